/* test_names.c: parameters under the names and in the layouts of PyTorch and of tutorials: what
 * they computed (golden values of tests/reference/names.py, PyTorch 2.15, f64), and files in both
 * directions. */
#include <eingrad.h>
#include <limits.h>
#include <eingrad/check.h>
#include <stdlib.h>
#include "fixtures.h"
#include "folder.h"
#include "tests.h"

static eg_ctx *cx;
static void open_f64(void) { cx = eg_open(.dtype = EG_F64, .seed = 7); }
static void close_cx(void) { eg_close(cx); }

static eg_tensor *golden(const eg_safetensors *file, const char *group, const char *name)
{
    char key[160];
    snprintf(key, sizeof key, "%s/%s", group, name);
    return eg_safetensors_find(file, key) < 0 ? NULL : eg_safetensors_get(file, key);
}

/* -- a module for a case of the file ----------------------------------------------------------- */
typedef struct net {
    eg_mha *mha;
    eg_block *block[2];
    eg_norm *norm, *source_norm;
    const char *where;
} net;
enum { MHA, BLOCK, TWO, BOTH }; /* TWO: encoder of two layers; BOTH: encoder and decoder */
static const eg_mha_args first = { .layout = "i b m" };
static const struct {
    const char *group, *style;
    int kind;
    eg_mha_args mha;
    eg_block_args block;
    const char *where;
} cases[] = {
    { "mha", "torch", MHA, { 0 }, { 0 }, NULL },
    { "mha", "torch", MHA, { .form = EG_PACKED }, { 0 }, NULL },
    { "mha_widths", "torch", MHA, { .kdim = 5, .vdim = 6 }, { 0 }, NULL },
    { "mha_first", "torch", MHA, { .layout = "i b m", .no_bias = true }, { 0 }, NULL },
    { "mha_first",
      "torch",
      MHA,
      { .layout = "i b m", .no_bias = true, .form = EG_PACKED },
      { 0 },
      NULL },
    { "encoder_pre_relu", "torch", BLOCK, { 0 }, { .activation = eg_relu }, NULL },
    { "encoder_post_gelu", "torch", BLOCK, { 0 }, { .post_norm = true }, NULL },
    { "encoder_first",
      "torch",
      BLOCK,
      { 0 },
      { .post_norm = true, .activation = eg_relu, .mha = &first },
      NULL },
    { "decoder_pre_gelu", "torch.decoder", BLOCK, { 0 }, { .cross = true }, "j <= i" },
    { "decoder_post_relu",
      "torch.decoder",
      BLOCK,
      { 0 },
      { .cross = true, .post_norm = true, .activation = eg_relu },
      "j <= i" },
    { "encoder", "torch", TWO, { 0 }, { 0 }, NULL },
    { "transformer", "torch.transformer", BOTH, { 0 }, { .activation = eg_relu }, "j <= i" },
    { "W_q", "W_q", MHA, { 0 }, { 0 }, NULL },
    { "q_proj", "q_proj", MHA, { 0 }, { 0 }, NULL },
    { "labml", "labml", MHA, { 0 }, { 0 }, NULL },
    { "heads", "heads", MHA, { 0 }, { 0 }, NULL },
    { "heads", "heads", MHA, { .form = EG_PER_HEAD }, { 0 }, NULL },
    { "gpt2", "gpt2", MHA, { 0 }, { 0 }, "j <= i" },
    { "gpt2", "gpt2", MHA, { .form = EG_PACKED }, { 0 }, "j <= i" },
};
enum { CASES = sizeof cases / sizeof *cases };

static net make(eg_params *p, int k)
{
    net n = { .where = cases[k].where };
    eg_mha_args m = cases[k].mha;
    eg_block_args b = cases[k].block;
    m.size = sizeof m, m.params = p, m.name = "", m.d_model = 8, m.heads = 2;
    b.size = sizeof b, b.params = p, b.name = "", b.d_model = 8, b.heads = 2, b.width = 12;
    if (cases[k].kind == MHA)
        n.mha = eg_mha_new_with(&m);
    else if (cases[k].kind == BLOCK)
        n.block[0] = eg_block_new_with(&b);
    else if (cases[k].kind == BOTH) {
        b.name = "encoder.0", n.block[0] = eg_block_new_with(&b);
        b.cross = true, b.name = "decoder.0", n.block[1] = eg_block_new_with(&b);
        n.source_norm = eg_norm_new(p, "source_norm", .d_model = 8);
        n.norm = eg_norm_new(p, "norm", .d_model = 8);
    } else {
        b.name = "0", n.block[0] = eg_block_new_with(&b);
        b.name = "1", n.block[1] = eg_block_new_with(&b);
        n.norm = eg_norm_new(p, "norm", .d_model = 8);
    }
    return n;
}
static eg_tensor *run(const net *n, eg_tensor *const *x)
{
    if (n->mha) return eg_mha_run(n->mha, x[0], .key = x[1], .value = x[2], .where = n->where);
    if (n->source_norm) {
        eg_tensor *memory = eg_norm_run(n->source_norm, eg_block_run(n->block[0], x[1]));
        return eg_norm_run(n->norm,
                           eg_block_run(n->block[1], x[0], .memory = memory, .where = n->where));
    }
    eg_tensor *y = eg_block_run(n->block[0], x[0], .memory = x[1], .where = n->where);
    y = n->block[1] ? eg_block_run(n->block[1], y) : y;
    return n->norm ? eg_norm_run(n->norm, y) : y;
}

GROUP("names", .setup = open_f64, .teardown = close_cx)

LOOP_TEST(modules_from_foreign_files_compute_stored_values, CASES)
{
    const char *group = cases[_i].group;
    char under[64];
    snprintf(under, sizeof under, "%s/state.", group);
    eg_safetensors *file = eg_safetensors_open(cx, source_path("tests/data/names.safetensors"));
    eg_params *p = eg_params_open(cx);
    net n = make(p, _i);
    ck_assert_msg(!eg_params_read_as(p, file, "names", under, eg_aliases(cases[_i].style)), "%s",
                  eg_error(cx));
    static const char *const names[] = { "x", "k", "v" };
    eg_tensor *x[3], *g[3];
    int count = 0;
    for (int k = 0; k < 3; k++) {
        char key[8] = "in.";
        x[k] = golden(file, group, strcat(key, names[k]));
        count += x[k] != NULL;
    }
    eg_tensor *y = run(&n, x);
    eg_assert_close(y, golden(file, group, "out.y"), 1e-12);
    ck_assert_int_eq(eg_grad(y, golden(file, group, "out.seed"), count, x, g), 0);
    for (int k = 0; k < count; k++) {
        char key[8] = "grad.";
        eg_assert_close(g[k], golden(file, group, strcat(key, names[k])), 1e-11);
    }
}

/* written under their names: exactly the tensors of their file; read again: the same bits */
LOOP_TEST(saved_files_have_the_tensors_and_bits_of_the_original, CASES)
{
    const char *group = cases[_i].group;
    char under[64], path[] = "/tmp/eg_names_XXXXXX";
    close(mkstemp(path));
    snprintf(under, sizeof under, "%s/state.", group);
    const eg_alias *list = eg_aliases(cases[_i].style);
    eg_params *p = eg_params_open(cx), *q = eg_params_open(cx);
    make(p, _i);
    make(q, _i);
    eg_safetensors *file = eg_safetensors_open(cx, source_path("tests/data/names.safetensors"));
    ck_assert_int_eq(eg_params_read_as(p, file, "names", under, list), 0);
    ck_assert_msg(!eg_params_save_as(p, path, under, list), "%s", eg_error(cx));
    eg_safetensors *mine = eg_safetensors_open(cx, path);
    int theirs = 0;
    for (int k = 0; k < eg_safetensors_count(file); k++) {
        const char *name = eg_safetensors_name(file, k);
        if (strncmp(name, under, strlen(under))) continue;
        theirs++;
        eg_assert_close(eg_safetensors_get(mine, name), eg_safetensors_at(file, k), 0);
    }
    ck_assert_int_eq(eg_safetensors_count(mine), theirs);
    ck_assert_int_eq(eg_params_load_as(q, path, under, list), 0);
    for (int k = 0; eg_params_at(p, k); k++)
        eg_assert_close(eg_params_at(q, k)->x, eg_params_at(p, k)->x, 0);
    unlink(path);
}

TEST(a_style_of_the_users) /* including a list of parameters of which only some are read */
{
    static const eg_alias mine[] = { { "W", "net/dense.kernel", "i o", 0, 0 },
                                     { "b", "net/dense.bias", "o", 0, 0 },
                                     { NULL, NULL, NULL, 0, 0 } };
    char path[] = "/tmp/eg_names_XXXXXX";
    close(mkstemp(path));
    eg_params *p = eg_params_open(cx), *in = eg_params_under(p, "layer"), *q = eg_params_open(cx);
    eg_linear *a = eg_linear_new(in, "", .in = 3, .out = 2),
              *b = eg_linear_new(q, "", .in = 3, .out = 2);
    eg_linear_new(p, "other", .in = 3, .out = 2);
    ck_assert_int_eq(eg_params_save_as(in, path, NULL, mine), 0);
    ck_assert_int_eq(eg_params_load_as(q, path, "net/",
                                       (const eg_alias[]){ { "W", "dense.kernel", "i o", 0, 0 },
                                                           { "b", "dense.bias", "o", 0, 0 },
                                                           { 0 } }),
                     0);
    eg_assert_close(b->weight, a->weight, 0);
    ck_assert_int_eq(eg_params_save_as(p, path, NULL, mine), -1);
    eg_assert_error(cx, "params_save_as: this style has no name for the parameter \"layer.W\"");
    unlink(path);
}

/* a checkpoint of another architecture: an error with both shapes */
TEST(names_refused)
{
    eg_safetensors *file = eg_safetensors_open(cx, source_path("tests/data/names.safetensors"));
    const eg_alias *torch = eg_aliases("torch");
    ck_assert_ptr_null(eg_aliases("nothing"));
    ck_assert_ptr_null(eg_aliases(NULL));
    eg_params *p = eg_params_open(cx);
    eg_mha_new(p, "", .d_model = 12, .heads = 2);
    ck_assert_int_eq(eg_params_read_as(p, file, "f.safetensors", "mha/state.", torch), -1);
    eg_assert_error(cx, "f.safetensors: tensor \"mha/state.in_proj_weight\" is (24, 8), but "
                        "\"W_q\" needs (36, 12)");
    eg_params *q = eg_params_open(cx);
    eg_mha_new(q, "", .d_model = 8, .heads = 2);
    ck_assert_int_eq(eg_params_read_as(q, file, "f", "W_q/state.", torch), -1);
    eg_assert_error(cx, "f: no tensor \"W_q/state.in_proj_weight\", of which \"W_q\" needs (24, "
                        "8); the nearest name is \"mha/state.in_proj_weight\"");
    ck_assert_int_eq(eg_params_read_as(q, file, "f", "mha/state.", NULL), -1);
    eg_assert_error(cx,
                    "f: the list of names is NULL, as eg_aliases returns it for an unknown style");
    eg_params *bare = eg_params_open(cx);
    eg_mha_new(bare, "", .d_model = 8, .heads = 2, .no_bias = true);
    ck_assert_int_eq(eg_params_read_as(bare, file, "f", "mha/state.", torch), -1);
    eg_assert_error(cx, "f: tensor \"mha/state.in_proj_bias\" belongs to no parameter; a row { "
                        "\"\", \"in_proj_bias\", \"\" } leaves it out");
    eg_params *more = eg_params_open(cx);
    eg_mha_new(more, "", .d_model = 8, .heads = 4);
    ck_assert_int_eq(eg_params_read_as(more, file, "f", "heads/state.", eg_aliases("heads")), -1);
    eg_assert_error(cx,
                    "f: tensor \"heads/state.W_q.0.weight\" is (4, 8), but \"W_q\" needs (2, 8)");
    eg_params *grown = eg_params_open(cx);
    eg_mha_new(grown, "", .d_model = 8, .heads = 3, .d_k = 4, .d_v = 4);
    ck_assert_int_eq(eg_params_read_as(grown, file, "f", "heads/state.", eg_aliases("heads")), -1);
    eg_assert_error(cx, "f: no tensor \"heads/state.W_q.2.weight\", of which \"W_q\" needs (4, 8); "
                        "the nearest name is ");
    eg_param(q, "more", "x", 2);
    ck_assert_int_eq(eg_params_read_as(q, file, "f", "mha/state.", torch), -1);
    eg_assert_error(cx, "f: this style has no name for the parameter \"more\"");
    /* parts that no tensor has; a loop over all would take very long */
    static const int odd[][2] = {
        { 0, INT_MAX }, { 0, 9 }, { 3, 3 }, { -1, 3 }, { 1, 0 }, { 0, -3 }
    };
    for (size_t k = 0; k < sizeof odd / sizeof *odd; k++) {
        const eg_alias list[] = { { "W_q", "qkv", "(c h d) m", odd[k][0], odd[k][1] }, { 0 } };
        ck_assert_int_eq(eg_params_read_as(q, file, "f", "mha/state.", list), -1);
        eg_assert_error(cx, "f: row \"W_q\" is part");
        ck_assert_int_eq(eg_params_save_as(q, "nowhere", "", list), -1);
        eg_assert_error(cx, "a tensor has at most 8 parts, counted from 0");
    }
    ck_assert_int_eq(eg_params_load_as(q, "/nonexistent/file", "", torch), -1);
    eg_assert_error(cx, "/nonexistent/file");
    ck_assert(eg_params_load_as(NULL, "x", "", torch) == -1 &&
              eg_params_save_as(NULL, "x", "", torch) == -1);
}

/* -- files as other programs write them -------------------------------------------------------- */
static void put(const char *name, int count, const char *const *names, eg_tensor *const *xs)
{
    ck_assert_msg(!eg_safetensors_save(cx, in_folder(name), count, names, xs, NULL), "%s",
                  eg_error(cx));
}
static void put_text(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "w");
    ck_assert(f && fputs(text, f) >= 0 && !fclose(f));
}
static void open_folder(void)
{
    open_f64();
    make_folder();
}
static void close_folder(void)
{
    remove_folder();
    close_cx();
}

GROUP("files", .setup = open_folder, .teardown = close_folder)

/* a mask's buffer in each layer, a tied matrix; a parameter that the file does not have */
TEST(tensors_that_are_left_out)
{
    static const char *const names[] = { "h.0.w", "h.0.attn.bias", "h.12.attn.bias",
                                         "lm_head.weight" };
    eg_tensor *w = eg_normal(cx, 0, 1, 2, 3);
    put("model.safetensors", 4, names,
        (eg_tensor *[]){ w, eg_full(cx, 1, 2), eg_full(cx, 1, 2), w });
    static const eg_alias full[] = { { "*.W", "h.*.w", "o i", 0, 0 },
                                     { "", "h.*.attn.bias", "", 0, 0 },
                                     { "", "lm_head.weight", "", 0, 0 },
                                     { "scale", "", "", 0, 0 },
                                     { NULL, NULL, NULL, 0, 0 } };
    const eg_alias without[] = { full[0], full[2], full[3], full[4] };
    eg_params *p = eg_params_open(cx);
    eg_tensor *mine = eg_param(p, "0.W", "i o", 3, 2),
              *scale = eg_init_constant(eg_param(p, "scale", "i", 1), 7);
    ck_assert_int_eq(eg_params_load_as(p, in_folder("model.safetensors"), "", without), -1);
    eg_assert_error(cx, "tensor \"h.0.attn.bias\" belongs to no parameter; a row { \"\", "
                        "\"h.0.attn.bias\", \"\" } leaves it out");
    ck_assert_msg(!eg_params_load_as(p, in_folder("model.safetensors"), "", full), "%s",
                  eg_error(cx));
    eg_assert_close(mine, eg_rearrange("o i -> i o", w), 0);
    ck_assert_double_eq(eg_item(scale), 7);
    ck_assert_int_eq(eg_params_save_as(p, in_folder("again.safetensors"), "", full), 0);
    eg_safetensors *again = eg_safetensors_open(cx, in_folder("again.safetensors"));
    ck_assert_int_eq(eg_safetensors_count(again), 1);
    eg_assert_close(eg_safetensors_get(again, "h.0.w"), w, 0);
}

/* what precedes '?' may be missing, in names that are read and in those that are left out */
TEST(names_with_and_without_a_beginning)
{
    static const char *const names[] = { "model.h.0.w", "model.h.0.mask", "model.norm" },
                             *const bare[] = { "h.0.w", "h.0.mask", "norm" },
                             *const some[] = { "h.0.w", "h.0.mask", "norms" };
    static const eg_alias list[] = { { "*.W", "model.?h.*.w", "o i", 0, 0 },
                                     { "norm", "model.?norm", "i", 0, 0 },
                                     { "", "model.?h.*.mask", "", 0, 0 },
                                     { NULL, NULL, NULL, 0, 0 } };
    eg_tensor *w = eg_normal(cx, 0, 1, 2, 3), *xs[] = { w, eg_full(cx, 1, 2), eg_full(cx, 5, 3) };
    put("full.safetensors", 3, names, xs);
    put("bare.safetensors", 3, bare, xs);
    put("some.safetensors", 3, some, xs);
    for (int k = 0; k < 2; k++) {
        eg_params *p = eg_params_open(cx);
        eg_tensor *mine = eg_param(p, "0.W", "i o", 3, 2), *norm = eg_param(p, "norm", "i", 3);
        ck_assert_msg(
            !eg_params_load_as(p, in_folder(k ? "bare.safetensors" : "full.safetensors"), "", list),
            "%s", eg_error(cx));
        eg_assert_close(mine, eg_rearrange("o i -> i o", w), 0);
        eg_assert_close(norm, xs[2], 0);
        ck_assert_int_eq(eg_params_save_as(p, in_folder("again.safetensors"), "", list), 0);
        eg_safetensors *again = eg_safetensors_open(cx, in_folder("again.safetensors"));
        ck_assert(eg_safetensors_count(again) == 2 &&
                  eg_safetensors_find(again, "model.h.0.w") >= 0 &&
                  eg_safetensors_find(again, "model.norm") >= 0);
    }
    eg_params *p = eg_params_open(cx);
    eg_param(p, "0.W", "i o", 3, 2), eg_param(p, "norm", "i", 3);
    ck_assert_int_eq(eg_params_load_as(p, in_folder("some.safetensors"), "", list), -1);
    eg_assert_error(cx, "no tensor \"norm\", which must be (3,); the nearest name is "
                        "\"norms\"");
}

/* 4 heads of queries, 2 of keys and values, in one matrix; b_k is not in the file */
TEST(parts_of_unequal_size)
{
    static const eg_alias fused[] = { { "W_q", "qkv.weight", "(c h d) m", 0, 3 },
                                      { "W_k", "qkv.weight", "(c h d) m", 1, 3 },
                                      { "W_v", "qkv.weight", "(c h e) m", 2, 3 },
                                      { "b_q", "qkv.bias", "(c h d)", 0, 3 },
                                      { "b_k", "qkv.bias", "(c h d)", 1, 3 },
                                      { "b_v", "qkv.bias", "(c h e)", 2, 3 },
                                      { "W_o", "o.weight", "m (h e)", 0, 0 },
                                      { "b_o", "o.bias", "m", 0, 0 },
                                      { NULL, NULL, NULL, 0, 0 } };
    static const char *const names[] = { "qkv.weight", "qkv.bias", "o.weight", "o.bias" };
    eg_tensor *all = eg_normal(cx, 0, 1, 16, 8), *bias = eg_normal(cx, 0, 1, 16),
              *out = eg_normal(cx, 0, 1, 8, 8);
    put("gqa.safetensors", 4, names, (eg_tensor *[]){ all, bias, out, eg_full(cx, 0, 8) });
    eg_params *p = eg_params_open(cx);
    eg_mha *m = eg_mha_new(p, "", .d_model = 8, .heads = 4, .kv_heads = 2);
    ck_assert_msg(!eg_params_load_as(p, in_folder("gqa.safetensors"), "", fused), "%s",
                  eg_error(cx));
    eg_assert_close(m->W_q, eg_rearrange("(h=4 d) m -> m h d", eg_slice_axis(all, 0, 0, 8, 1)), 0);
    eg_assert_close(m->W_k, eg_rearrange("(h=2 d) m -> m h d", eg_slice_axis(all, 0, 8, 12, 1)), 0);
    eg_assert_close(m->W_v, eg_rearrange("(h=2 d) m -> m h d", eg_slice_axis(all, 0, 12, 16, 1)),
                    0);
    eg_assert_close(m->b_v, eg_rearrange("(h=2 d) -> h d", eg_slice_axis(bias, 0, 12, 16, 1)), 0);
    ck_assert_msg(!eg_params_save_as(p, in_folder("back.safetensors"), "", fused), "%s",
                  eg_error(cx));
    eg_safetensors *back = eg_safetensors_open(cx, in_folder("back.safetensors"));
    eg_assert_close(eg_safetensors_get(back, "qkv.weight"), all, 0);
    eg_assert_close(eg_safetensors_get(back, "qkv.bias"), bias, 0);
    eg_params *q = eg_params_open(cx);
    eg_mha_new(q, "", .d_model = 8, .heads = 4, .kv_heads = 4);
    ck_assert_int_eq(eg_params_load_as(q, in_folder("gqa.safetensors"), "", fused), -1);
    eg_assert_error(cx,
                    "gqa.safetensors: tensor \"qkv.weight\" is (16, 8), but \"W_q\" needs (24, 8)");
}

/* everything is compared with the file before the first parameter changes */
TEST(a_bad_last_tensor_changes_no_parameter)
{
    static const char *const names[] = { "w", "b" };
    static const eg_alias list[] = { { "W", "w", "o i", 0, 0 },
                                     { "b", "b", "o", 0, 0 },
                                     { NULL, NULL, NULL, 0, 0 } };
    put("bad.safetensors", 2, names, (eg_tensor *[]){ eg_full(cx, 9, 2, 3), eg_full(cx, 9, 5) });
    eg_params *p = eg_params_open(cx);
    eg_tensor *w = eg_param(p, "W", "i o", 3, 2), *before = eg_copy(w);
    eg_param(p, "b", "o", 2);
    ck_assert_int_eq(eg_params_load_as(p, in_folder("bad.safetensors"), "", list), -1);
    eg_assert_error(cx, "bad.safetensors: tensor \"b\" is (5,), not (2,)");
    eg_assert_close(w, before, 0);
}

/* by the index, by the stem, and by the name of a file that does not exist */
TEST(shards_with_their_index)
{
    static const char *const a[] = { "x.W", "x.b" }, *const b[] = { "y.W" };
    eg_tensor *xw = eg_full(cx, 2, 3, 2), *xb = eg_full(cx, 3, 2), *yw = eg_full(cx, 4, 2, 2);
    put("model-00001-of-00002.safetensors", 2, a, (eg_tensor *[]){ xw, xb });
    put("model-00002-of-00002.safetensors", 1, b, &yw);
    put_text("model.safetensors.index.json",
             "{\"metadata\": {\"total_size\": 96}, \"weight_map\": {"
             "\"y.W\": \"model-00002-of-00002.safetensors\", \"x.W\": "
             "\"model-00001-of-00002.safetensors\","
             "\"x.b\": \"model-00001-of-00002.safetensors\"}}\n");
    static const char *const paths[] = { "model.safetensors.index.json", "model",
                                         "model.safetensors" };
    eg_params *p = eg_params_open(cx);
    eg_tensor *w = eg_param(p, "x.W", "i o", 3, 2), *v = eg_param(p, "y.W", "i o", 2, 2),
              *c = eg_param(p, "x.b", "o", 2);
    for (int k = 0; k < 3; k++) {
        eg_init_constant(w, 0), eg_init_constant(v, 0), eg_init_constant(c, 0);
        ck_assert_msg(!eg_params_load(p, in_folder(paths[k])), "%s", eg_error(cx));
        eg_assert_close(w, xw, 0);
        eg_assert_close(v, yw, 0);
        eg_assert_close(c, xb, 0);
    }
    eg_safetensors *all = eg_safetensors_open(cx, in_folder("model"));
    ck_assert_int_eq(eg_safetensors_count(all), 3);
    ck_assert_ptr_nonnull(strstr(eg_safetensors_file(all, eg_safetensors_find(all, "y.W")),
                                 "/model-00002-of-00002.safetensors"));
    eg_params *narrow = eg_params_open(cx);
    eg_param(narrow, "y.W", "i o", 2, 3);
    ck_assert_int_eq(eg_params_read(narrow, all, "model"), -1);
    eg_assert_error(cx, "model-00002-of-00002.safetensors: tensor \"y.W\" is (2, 2), not (2, 3)");
    static const struct {
        const char *index, *error;
    } bad[] = {
        { "{\"weight_map\": {\"y.W\": \"../model-00002-of-00002.safetensors\"}}",
          "the file of tensor 'y.W' is not the name of a file in the" },
        { "{\"weight_map\": {\"y.W\": \"model-00003-of-00002.safetensors\"}}",
          "model-00003-of-00002.safetensors: cannot be opened" },
        { "{\"weight_map\": {\"z\": \"model-00002-of-00002.safetensors\"}}",
          "tensor 'z' is in none of the shards, not in model-00002" },
        { "{\"weight_map\": {\"y.W\": 7}}", "the file of tensor 'y.W'" },
        { "{\"weight_map\": {}}", "is an index without \"weight_map\"" },
        { "{}", "is an index without \"weight_map\"" },
        { "{\"weight_map\": {\"y.W\": \"model-00002-of-00002.safetensors\"}",
          "its index is not valid JSON at byte" },
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        put_text("bad.json", bad[k].index);
        ck_assert_ptr_null(eg_safetensors_open(cx, in_folder("bad.json")));
        eg_assert_error(cx, bad[k].error);
    }
    put("model-00003-of-00002.safetensors", 1, b, &yw);
    put_text("bad.json", "{\"weight_map\": {\"y.W\": \"model-00002-of-00002.safetensors\", \"x\": "
                         "\"model-00003-of-00002.safetensors\"}}");
    ck_assert_ptr_null(eg_safetensors_open(cx, in_folder("bad.json")));
    eg_assert_error(cx, "two of its shards have a tensor 'y.W'");
}

TEST(the_nearest_name)
{
    static const char *const names[] = { "layers.0.weight", "layers.1.weight", "bias" };
    eg_tensor *x = eg_full(cx, 1, 2);
    put("near.safetensors", 3, names, (eg_tensor *[]){ x, x, x });
    eg_safetensors *file = eg_safetensors_open(cx, in_folder("near.safetensors"));
    ck_assert_str_eq(eg_safetensors_nearest(file, "layer.1.weight"), "layers.1.weight");
    ck_assert_ptr_null(eg_safetensors_nearest(file, "nothing like it"));
    ck_assert_ptr_null(eg_safetensors_nearest(file, ""));
    ck_assert(
        !eg_ok(eg_safetensors_need(file, NULL, "layer.1.weight", "1.W", 1, (int64_t[]){ 2 })));
    eg_assert_error(cx, "near.safetensors: no tensor \"layer.1.weight\", of which \"1.W\" needs "
                        "(2,); the nearest name is \"layers.1.weight\"");
    ck_assert(!eg_ok(eg_safetensors_need(file, NULL, "bias", NULL, 1, (int64_t[]){ 3 })));
    eg_assert_error(cx, "safetensors_need: name, whose or dims is NULL");
    ck_assert(!eg_ok(eg_safetensors_need(file, NULL, "bias", "b", 1, NULL)));
    eg_assert_error(cx, "safetensors_need: name, whose or dims is NULL");
    ck_assert(!eg_ok(eg_safetensors_get(file, "bais")));
    eg_assert_error(cx, "no tensor is named 'bais'; the nearest name is 'bias'");
}

/* refused before memory is allocated: 4 GB are not available */
TEST(parameters_that_a_file_expects)
{
    static const char *const names[] = { "a", "b.W" };
    eg_tensor *xs[] = { eg_full(cx, 1, 2), eg_full(cx, 5, 3, 2) };
    put("small.safetensors", 2, names, xs);
    eg_safetensors *file = eg_safetensors_open(cx, in_folder("small.safetensors"));
    size_t before = eg_stats(cx).peak;
    eg_params *p = eg_params_open(cx, .expected = file, .path = "small");
    ck_assert(!eg_ok(eg_param(p, "a", "i", (int64_t)1 << 29)));
    eg_assert_error(cx, "small: tensor \"a\" is (2,), not (536870912,)");
    ck_assert_ptr_null(eg_linear_new(p, "b", .in = 1 << 15, .out = 1 << 14));
    eg_assert_error(cx, "small: tensor \"b.W\" is (3, 2), not (32768, 16384)");
    ck_assert(!eg_ok(eg_param(p, "c", "i", 2)));
    eg_assert_error(cx, "small: no tensor \"c\", which must be (2,)");
    ck_assert_uint_le(eg_stats(cx).peak - before, 1 << 20);
    eg_param(p, "a", "i", 2), eg_param(p, "b.W", "io", 3, 2);
    ck_assert_msg(!eg_params_read(p, file, "small"), "%s", eg_error(cx));
    eg_safetensors_close(file);
    ck_assert(eg_ok(eg_param(p, "c", "i", 2)));
    eg_assert_close(eg_params_find(p, "b.W"), xs[1], 0);
}

TEST(many_parameters) /* each of 5000 names is found, and refused when given again */
{
    eg_params *p = eg_params_open(cx);
    char name[32];
    for (int k = 0; k < 5000; k++) {
        snprintf(name, sizeof name, "layer.%d", k);
        ck_assert(eg_ok(eg_param(p, name, "i", 1)));
    }
    ck_assert(!eg_ok(eg_param(p, "layer.4999", "i", 1)));
    eg_assert_error(cx, "the name \"layer.4999\" is taken");
    eg_params *in = eg_params_under(p, "layer");
    ck_assert_ptr_eq(eg_params_find(in, "777"), eg_params_at(p, 777)->x);
    ck_assert_ptr_null(eg_params_find(in, "5000"));
    ck_assert_ptr_null(eg_params_find(p, "777"));
}
