/* test_names.c: parameters under the names and in the layouts of PyTorch and of the seed documents: what they computed (golden values of
 * tests/reference/names.py, PyTorch 2.15, f64), and files both ways. */
#include <eingrad.h>
#include <eingrad/check.h>
#include <stdlib.h>
#include <unistd.h>
#include "tests.h"

static eg_ctx *cx;
static void open_f64(void) { cx = eg_open(.dtype = EG_F64, .seed = 7); }
static void close_cx(void) { eg_close(cx); }

static const char *golden_path(void)
{
    static char path[4096];
    const char *top = getenv("EG_SRCDIR");
    snprintf(path, sizeof path, "%s/tests/data/names.safetensors", top ? top : ".");
    return path;
}
static eg_tensor *golden(const eg_safetensors *file, const char *group, const char *name)
{
    char key[160];
    snprintf(key, sizeof key, "%s/%s", group, name);
    return eg_safetensors_find(file, key) < 0 ? NULL : eg_safetensors_get(file, key);
}

/* -- a module, as a case of the file wants it ------------------------------------------------------------------------------------------ */
typedef struct net { eg_mha *mha; eg_block *block[2]; eg_norm *norm, *source_norm; const char *where; } net;
enum { MHA, BLOCK, TWO, BOTH };                         /* TWO: encoder of two layers; BOTH: encoder and decoder                        */
static const eg_mha_args first = { .layout = "i b m" };
static const struct { const char *group, *style; int kind; eg_mha_args mha; eg_block_args block; const char *where; } cases[] = {
    { "mha", "torch", MHA, { 0 }, { 0 }, NULL },
    { "mha", "torch", MHA, { .form = EG_PACKED }, { 0 }, NULL },
    { "mha_widths", "torch", MHA, { .kdim = 5, .vdim = 6 }, { 0 }, NULL },
    { "mha_first", "torch", MHA, { .layout = "i b m", .no_bias = true }, { 0 }, NULL },
    { "mha_first", "torch", MHA, { .layout = "i b m", .no_bias = true, .form = EG_PACKED }, { 0 }, NULL },
    { "encoder_pre_relu", "torch", BLOCK, { 0 }, { .activation = eg_relu }, NULL },
    { "encoder_post_gelu", "torch", BLOCK, { 0 }, { .post_norm = true }, NULL },
    { "encoder_first", "torch", BLOCK, { 0 }, { .post_norm = true, .activation = eg_relu, .mha = &first }, NULL },
    { "decoder_pre_gelu", "torch.decoder", BLOCK, { 0 }, { .cross = true }, "j <= i" },
    { "decoder_post_relu", "torch.decoder", BLOCK, { 0 }, { .cross = true, .post_norm = true, .activation = eg_relu }, "j <= i" },
    { "encoder", "torch", TWO, { 0 }, { 0 }, NULL },
    { "transformer", "torch.transformer", BOTH, { 0 }, { .activation = eg_relu }, "j <= i" },
    { "W_q", "W_q", MHA, { 0 }, { 0 }, NULL },                       /* row 1.6 */
    { "q_proj", "q_proj", MHA, { 0 }, { 0 }, NULL },                 /* row 2.9 */
    { "labml", "labml", MHA, { 0 }, { 0 }, NULL },                   /* row 3.2 */
    { "heads", "heads", MHA, { 0 }, { 0 }, NULL },                   /* row 1.3 */
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
    if (n->mha)
        return eg_mha_run(n->mha, x[0], .key = x[1], .value = x[2], .where = n->where);
    if (n->source_norm) {
        eg_tensor *memory = eg_norm_run(n->source_norm, eg_block_run(n->block[0], x[1]));
        return eg_norm_run(n->norm, eg_block_run(n->block[1], x[0], .memory = memory, .where = n->where));
    }
    eg_tensor *y = eg_block_run(n->block[0], x[0], .memory = x[1], .where = n->where);
    y = n->block[1] ? eg_block_run(n->block[1], y) : y;
    return n->norm ? eg_norm_run(n->norm, y) : y;
}

START_TEST(their_names_their_numbers)
{
    const char *group = cases[_i].group;
    char under[64];
    snprintf(under, sizeof under, "%s/state.", group);
    eg_safetensors *file = eg_safetensors_open(cx, golden_path());
    eg_params *p = eg_params_open(cx);
    net n = make(p, _i);
    ck_assert_msg(!eg_params_read_as(p, file, "names", under, eg_aliases(cases[_i].style)), "%s", eg_error(cx));
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
END_TEST

START_TEST(files_both_ways)                     /* written as theirs: the very tensors of their file; read again: the same bits            */
{
    const char *group = cases[_i].group;
    char under[64], path[] = "/tmp/eg_names_XXXXXX";
    close(mkstemp(path));
    snprintf(under, sizeof under, "%s/state.", group);
    const eg_alias *list = eg_aliases(cases[_i].style);
    eg_params *p = eg_params_open(cx), *q = eg_params_open(cx);
    make(p, _i);
    make(q, _i);
    eg_safetensors *file = eg_safetensors_open(cx, golden_path());
    ck_assert_int_eq(eg_params_read_as(p, file, "names", under, list), 0);
    ck_assert_msg(!eg_params_save_as(p, path, under, list), "%s", eg_error(cx));
    eg_safetensors *mine = eg_safetensors_open(cx, path);
    int theirs = 0;
    for (int k = 0; k < eg_safetensors_count(file); k++) {
        const char *name = eg_safetensors_name(file, k);
        if (strncmp(name, under, strlen(under)))
            continue;
        theirs++;
        eg_assert_close(eg_safetensors_get(mine, name), eg_safetensors_at(file, k), 0);
    }
    ck_assert_int_eq(eg_safetensors_count(mine), theirs);
    ck_assert_int_eq(eg_params_load_as(q, path, under, list), 0);
    for (int k = 0; eg_params_at(p, k); k++)
        eg_assert_close(eg_params_at(q, k)->x, eg_params_at(p, k)->x, 0);
    unlink(path);
}
END_TEST

START_TEST(a_style_of_the_users)                /* and a list of parameters of which some only are read                                   */
{
    static const eg_alias mine[] = { { "W", "net/dense.kernel", "i o", 0, 0 }, { "b", "net/dense.bias", "o", 0, 0 },
                                     { NULL, NULL, NULL, 0, 0 } };
    char path[] = "/tmp/eg_names_XXXXXX";
    close(mkstemp(path));
    eg_params *p = eg_params_open(cx), *in = eg_params_under(p, "layer"), *q = eg_params_open(cx);
    eg_linear *a = eg_linear_new(in, "", .in = 3, .out = 2), *b = eg_linear_new(q, "", .in = 3, .out = 2);
    eg_linear_new(p, "other", .in = 3, .out = 2);
    ck_assert_int_eq(eg_params_save_as(in, path, NULL, mine), 0);
    ck_assert_int_eq(eg_params_load_as(q, path, "net/", (const eg_alias[]){ { "W", "dense.kernel", "i o", 0, 0 },
                                                                            { "b", "dense.bias", "o", 0, 0 }, { 0 } }), 0);
    eg_assert_close(b->weight, a->weight, 0);
    ck_assert_int_eq(eg_params_save_as(p, path, NULL, mine), -1);
    eg_assert_error(cx, "params_save_as: this style has no name for the parameter \"layer.W\"");
    unlink(path);
}
END_TEST

START_TEST(names_refused)                       /* a checkpoint of another architecture: one sentence with both shapes                    */
{
    eg_safetensors *file = eg_safetensors_open(cx, golden_path());
    const eg_alias *torch = eg_aliases("torch");
    ck_assert_ptr_null(eg_aliases("nothing"));
    ck_assert_ptr_null(eg_aliases(NULL));
    eg_params *p = eg_params_open(cx);
    eg_mha_new(p, "", .d_model = 12, .heads = 2);
    ck_assert_int_eq(eg_params_read_as(p, file, "f.safetensors", "mha/state.", torch), -1);
    eg_assert_error(cx, "f.safetensors: tensor \"mha/state.in_proj_weight\" is (24, 8), but \"W_q\" needs (36, 12)");
    eg_params *q = eg_params_open(cx);
    eg_mha_new(q, "", .d_model = 8, .heads = 2);
    ck_assert_int_eq(eg_params_read_as(q, file, "f", "W_q/state.", torch), -1);
    eg_assert_error(cx, "f: no tensor \"W_q/state.in_proj_weight\", of which \"W_q\" needs (24, 8); the nearest name is \"mha/state.in_proj_weight\"");
    ck_assert_int_eq(eg_params_read_as(q, file, "f", "mha/state.", NULL), -1);
    eg_assert_error(cx, "f: the list of names is NULL");
    eg_params *bare = eg_params_open(cx);
    eg_mha_new(bare, "", .d_model = 8, .heads = 2, .no_bias = true);
    ck_assert_int_eq(eg_params_read_as(bare, file, "f", "mha/state.", torch), -1);
    eg_assert_error(cx, "f: tensor \"mha/state.in_proj_bias\" belongs to no parameter; a row { \"\", \"in_proj_bias\", \"\" } leaves it out");
    eg_params *more = eg_params_open(cx);
    eg_mha_new(more, "", .d_model = 8, .heads = 4);
    ck_assert_int_eq(eg_params_read_as(more, file, "f", "heads/state.", eg_aliases("heads")), -1);
    eg_assert_error(cx, "f: tensor \"heads/state.W_q.0.weight\" is (4, 8), but \"W_q\" needs (2, 8)");
    eg_params *grown = eg_params_open(cx);
    eg_mha_new(grown, "", .d_model = 8, .heads = 3, .d_k = 4, .d_v = 4);
    ck_assert_int_eq(eg_params_read_as(grown, file, "f", "heads/state.", eg_aliases("heads")), -1);
    eg_assert_error(cx, "f: no tensor \"heads/state.W_q.2.weight\", of which \"W_q\" needs (4, 8); the nearest name is ");
    eg_param(q, "more", "x", 2);
    ck_assert_int_eq(eg_params_read_as(q, file, "f", "mha/state.", torch), -1);
    eg_assert_error(cx, "f: this style has no name for the parameter \"more\"");
    ck_assert_int_eq(eg_params_load_as(q, "/nonexistent/file", "", torch), -1);
    eg_assert_error(cx, "/nonexistent/file");
    ck_assert(eg_params_load_as(NULL, "x", "", torch) == -1 && eg_params_save_as(NULL, "x", "", torch) == -1);
}
END_TEST

Suite *suite_names(void)
{
    Suite *s = suite_create("names");
    TCase *t = tcase_create("names");
    tcase_add_checked_fixture(t, open_f64, close_cx);
    tcase_add_loop_test(t, their_names_their_numbers, 0, CASES);
    tcase_add_loop_test(t, files_both_ways, 0, CASES);
    tcase_add_test(t, a_style_of_the_users);
    tcase_add_test(t, names_refused);
    suite_add_tcase(s, t);
    return s;
}
