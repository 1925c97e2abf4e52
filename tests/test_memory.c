/* test_memory.c: memory that runs out. Every allocation fails in turn: the context's and the
 * library's own. The linker replaces malloc and related functions, in this program and in the
 * library, by the __wrap_ functions below (Makefile.am), under sanitizers too. Those of the
 * libraries that draw PNG cannot be replaced in this way (tests/memory.sh does that): here the
 * start of the process that draws fails instead.
 *
 * Allocation number n fails, once alone and once with all that follow it. Each time: the scenario
 * has its complete result or records "out of memory"; its memory is freed; the context works after
 * eg_clear; no temporary file is left, and an older file is unchanged. */
#if HAVE_CONFIG_H
#include <config.h>
#endif
#include <dirent.h>
#include <eingrad.h>
#include <eingrad/check.h>
#include <eingrad/dlpack.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include "gradcheck/gradcheck.h"
#include "tests.h"

/* -- allocations that fail -------------------------------------------------------------------- */
/* Written only while it is armed, by one thread: other tests allocate in several. */
static struct {
    bool armed, onward, wrong_size;
    long calls, used, fail, held;
} memory;

static bool refused(void)
{
    long n = memory.armed ? memory.calls++ : -1;
    if (n < 0 || (memory.onward ? n < memory.fail : n != memory.fail)) return false;
    errno = ENOMEM;
    return true;
}
static void *held(void *p)
{
    if (memory.armed && p) memory.held++;
    return p;
}

/* result, name, parameters, their names: the real function or NULL */
#define WRAPPED(result, name, parameters, names) \
    result __real_##name parameters;             \
    result __wrap_##name parameters;             \
    result __wrap_##name parameters { return refused() ? NULL : held(__real_##name names); }
WRAPPED(void *, malloc, (size_t size), (size))
WRAPPED(void *, calloc, (size_t count, size_t size), (count, size))
WRAPPED(char *, strdup, (const char *text), (text))
WRAPPED(char *, realpath, (const char *path, char *out), (path, out))
WRAPPED(FILE *, fopen, (const char *path, const char *mode), (path, mode))
WRAPPED(FILE *, fdopen, (int fd, const char *mode), (fd, mode))

void *__real_realloc(void *, size_t), *__wrap_realloc(void *, size_t);
void *__wrap_realloc(void *p, size_t size)
{
    if (refused()) return NULL;
    if (memory.armed && p) memory.held--;
    return held(__real_realloc(p, size));
}
void __real_free(void *), __wrap_free(void *);
void __wrap_free(void *p)
{
    if (memory.armed && p) memory.held--;
    __real_free(p);
}
int __real_fclose(FILE *), __wrap_fclose(FILE *);
int __wrap_fclose(FILE *f)
{
    if (memory.armed) memory.held--;
    return __real_fclose(f);
}
pid_t __real_fork(void), __wrap_fork(void);
pid_t __wrap_fork(void) { return refused() ? -1 : __real_fork(); }

/* The context's allocator: old_size must be the size that was requested. */
typedef union block {
    size_t size;
    max_align_t align;
} block;
static void *counted(void *user, void *p, size_t old_size, size_t new_size)
{
    (void)user;
    block *b = p ? (block *)p - 1 : NULL;
    memory.wrong_size |= (b ? b->size : 0) != old_size;
    if (!new_size) {
        free(b);
        return NULL;
    }
    b = new_size > SIZE_MAX - sizeof *b ? NULL : realloc(b, sizeof *b + new_size);
    if (!b) return NULL;
    b->size = new_size;
    return b + 1;
}

/* -- scenarios: true if the results are right -------------------------------------------------- */
static char folder[64], saved[96], other[96], picture[96], arrays[96];
static eg_ctx *cx;

static eg_trainer *trainer(eg_data *data)
{
    return data ? eg_trainer_new(.data = data, .layers = 1, .d_model = 8, .heads = 2, .batch = 3,
                                 .seed = 4,
                                 .groups = eg_opt_groups_read(cx, "*.gain: weight_decay 0; *.b:"))
                : NULL;
}
static eg_trainer *small(void)
{
    static const char pairs[] = "ab\tba\nac\tca\nad\tda\nae\tea\naf\tfa\nag\tga\nah\tha\nai\tia\nbc"
                                "\tcb\nbd\tdb\nbe\teb\nbf\tfb\nbg\tgb\n"
                                "bh\thb\nbi\tib\ncd\tdc\nce\tec\ncf\tfc\ncg\tgc\nch\thc\nci\tic\nde"
                                "\ted\ndf\tfd\ndg\tgd\ndh\thd\ndi\tid\n";
    return trainer(eg_data_parse(cx, pairs, "pairs"));
}

static bool task_and_step(void)
{
    eg_progress p;
    return eg_trainer_step(trainer(eg_data_task(cx, eg_task_find("copy"))), &p) == 0 &&
           p.step == 1 && isfinite(p.loss);
}
static bool evaluate_and_predict(void)
{
    eg_score s;
    const char *const *tokens;
    eg_trainer *t = small();
    if (!t || eg_trainer_evaluate(t, &s)) return false;
    const char *answer = eg_trainer_predict(t, "ab");
    eg_tensor *weights = answer ? eg_trainer_self_attention_weights(t, "ab", &tokens) : NULL;
    return eg_ok(weights) && eg_rank(weights) == 4 && s.sequences > 0 && s.tokens >= s.sequences;
}
static bool check_a_model(void)
{
    eg_trainer_check_report r;
    eg_trainer *t = small();
    return t && eg_trainer_check(t, &r) == 0 && r.entries > 0 && r.right == r.entries;
}
static bool save(void)
{
    eg_trainer *t = small();
    return t && eg_trainer_step(t, NULL) == 0 && eg_trainer_save(t, saved) == 0;
}
static bool load_and_step(void)
{
    eg_progress p;
    eg_trainer *t = eg_trainer_load(cx, saved, 0);
    return t && eg_trainer_step(t, &p) == 0 && p.step == 2;
}
static bool npy(void)
{
    eg_tensor *x = eg_transpose(eg_reshape(eg_arange(cx, EG_F64, 0, 6, 1), 2, 3), 0, 1);
    if (eg_npy_save(other, x)) return false;
    eg_tensor *y = eg_npy_load(cx, other);
    return eg_ok(y) && eg_get(y, 2, 1) == 5;
}
static bool safetensors(void)
{
    static const char *const metadata[] = { "one", "1", "two", "2", NULL }, *const names[] = {
        "a", "b"
    };
    eg_tensor *xs[] = { eg_arange(cx, EG_I32, 0, 5, 1), eg_ones(cx, 2, 2) };
    if (eg_error(cx) || eg_safetensors_save(cx, arrays, 2, names, xs, metadata)) return false;
    eg_safetensors *file = eg_safetensors_open(cx, arrays);
    bool good = file && eg_safetensors_count(file) == 2 &&
                eg_get(eg_safetensors_get(file, "a"), 4) == 4 &&
                !strcmp(eg_safetensors_metadata(file, "two"), "2");
    eg_safetensors_close(file);
    return good;
}
static bool npz(void)
{
    static const char *const names[] = { "a", "b" };
    eg_tensor *xs[] = { eg_arange(cx, EG_I32, 0, 5, 1), eg_transpose(eg_ones(cx, 2, 3), 0, 1) };
    for (int deflate = 0; deflate < 2; deflate++) {
        if (eg_npz_save(cx, arrays, 2, names, xs, .deflate = deflate)) return false;
        eg_npz *file = eg_npz_open(cx, arrays);
        const bool good = file && eg_npz_count(file) == 2 &&
                          eg_get(eg_npz_get(file, "a"), 4) == 4 &&
                          eg_get(eg_npz_get(file, "b"), 2, 1) == 1;
        eg_npz_close(file);
        if (!good) return false;
    }
    return true;
}
/* A file that is large enough to be mapped; without memory for that it is read. */
static bool mapped(void)
{
    enum { SIZE = 1 << 18 };
    if (eg_npy_save(other, eg_full(cx, 2, SIZE))) return false;
    DLManagedTensorVersioned *m = eg_to_dlpack(eg_npy_load(cx, other));
    const bool good = m && ((float *)m->dl_tensor.data)[SIZE - 1] == 2;
    if (m) m->deleter(m);
    return good;
}
static bool pretrained(void)
{
    static const char *const models[] = { "qwen2", "llama_bf16" };
    const eg_mark m = eg_push(cx);
    bool good = true;
    for (int k = 0; k < 2 && good; k++) {
        char path[512];
        const char *top = getenv("EG_SRCDIR");
        snprintf(path, sizeof path, "%s/tests/data/models/%s", top ? top : ".", models[k]);
        eg_transformer *net = eg_pretrained_load(eg_params_open(cx), path);
        good = net && eg_ok(eg_transformer_run(net, eg_from(cx, ((int32_t[]){ 3, 1 }), 1, 2)));
    }
    eg_pop(cx, m);
    return good;
}
static bool draws_png(void) { return strstr(eg_io_info(), "fontconfig") != NULL; }
static bool pictures(void)
{
    static const char *const rows[] = { "a", "b" };
    eg_tensor *x = eg_reshape(eg_arange(cx, EG_F32, 0, 6, 1), 2, 3);
    FILE *null = eg_error(cx) ? NULL : __real_fopen("/dev/null", "w");
    bool good = null && eg_heatmap_print(null, x, .rows = rows) == 0;
    if (null) __real_fclose(null);
    for (int k = 0; k < 2 && good; k++) {
        memcpy(strrchr(picture, '.'), k ? ".png" : ".svg", 5);
        good = (k && !draws_png()) ||
               eg_picture_save(picture, x, .against = x, .rows = rows, .title = "title") == 0;
    }
    return good;
}
static eg_tensor *curve(void *user, eg_tensor *const *x)
{
    (void)user;
    eg_tensor *s = eg_attention("id,jd,je->ie", x[0], x[1], eg_tanh(x[1]), .where = "j <= i");
    return eg_sum(NULL, eg_square(eg_einsum("ie,ef,fg->ig", s, x[2], x[2])));
}
static bool gradcheck(void)
{
    eg_tensor *xs[] = { eg_uniform(cx, -1, 1, 2, 2), eg_uniform(cx, -1, 1, 2, 2),
                        eg_uniform(cx, -1, 1, 2, 2) };
    const eg_report *r = eg_gradcheck(curve, NULL, 3, xs, .names = "q, k, w", .order = 2);
    return r && r->passed;
}
static bool tiles(void) /* fused attention, its gradients and their gradients */
{
    eg_tensor *x[] = { eg_uniform(cx, -1, 1, 2, 2), eg_uniform(cx, -1, 1, 3, 2),
                       eg_uniform(cx, -1, 1, 3, 2), eg_uniform(cx, -1, 1, 2, 3) },
              *lse, *d[4], *e[4];
    eg_tensor *y = eg_attention("id,jd,je->ie", x[0], x[1], x[2], .where = "j <= i",
                                .bias = { "ij", x[3] }, .form = EG_FUSED, .lse = &lse);
    return eg_grad(eg_sum(NULL, eg_mul(y, eg_unsqueeze(lse, 1))), NULL, 4, x, d) == 0 &&
           eg_grad(d[0], d[0], 4, x, e) == 0 && eg_ok(e[3]);
}
static bool both_modes(void)
{
    eg_tensor *x[] = { eg_uniform(cx, -1, 1, 2, 2), eg_uniform(cx, -1, 1, 2, 2),
                       eg_uniform(cx, -1, 1, 2, 2) },
              *hv[3];
    eg_tensor *y = eg_checkpoint(curve, NULL, 3, x);
    return eg_hvp(y, 3, x, x, hv) == 0 && eg_size(eg_jacobian(hv[0], x[1])) == 16 && eg_ok(hv[2]);
}

/* a decoder with a cache: grouped heads, rotary positions; then other beams */
static bool step_by_step(void)
{
    const eg_mha_args more = { .rotary = 100, .kv_heads = 1 };
    eg_params *p = eg_params_open(cx);
    eg_seq2seq *net =
        eg_seq2seq_new(p, "net", .vocabulary = 5, .length = 4, .d_model = 4, .heads = 2,
                       .layers = 1, .width = 4, .mha = &more, .tied = true);
    eg_cache *c = eg_cache_new(eg_params_owner(p), 4);
    if (!net || !c) return false;
    eg_nograd(cx, true);
    eg_tensor *source = eg_randint(cx, 0, 5, 2, 3), *there = eg_seq2seq_encode(net, source),
              *y = NULL;
    int64_t order[] = { 1, 0 };
    for (int t = 0; t < 3; t++) {
        y = eg_seq2seq_decode(net, eg_randint(cx, 0, 5, 2, 1), there, .cache = c);
        if (eg_cache_select(c, eg_from(cx, order, 2))) return false;
    }
    eg_nograd(cx, false);
    return eg_ok(y) && eg_cache_truncate(c, 1) == 0 && isfinite(eg_item(eg_sum(NULL, y)));
}
static bool other_names(void) /* per head, under PyTorch's names, packed */
{
    static const int64_t widths[] = { 1, 3 };
    eg_params *p = eg_params_open(cx), *q = eg_params_open(cx), *uneven = eg_params_open(cx);
    eg_mha *a = eg_mha_new(p, "", .d_model = 4, .heads = 2),
           *b = eg_mha_new(q, "", .d_model = 4, .heads = 2, .form = EG_PACKED);
    eg_mha *c = eg_mha_new(eg_params_open(cx), "", .d_model = 4, .heads = 2, .form = EG_PER_HEAD);
    eg_mha *d =
        eg_mha_new(uneven, "", .d_model = 4, .heads = 2, .form = EG_PER_HEAD, .d_k_each = widths);
    if (!a || !b || !c || !d || eg_mha_copy(c, a) || eg_mha_copy(a, c) ||
        eg_params_save_as(p, arrays, "x.", eg_aliases("torch")) ||
        eg_params_load_as(q, arrays, "x.", eg_aliases("torch")))
        return false;
    eg_tensor *x = eg_normal(cx, 0, 1, 1, 2, 4), *y = eg_mha_run(a, x), *z = eg_mha_run(b, x), *w,
              *u = eg_mha_run(d, x, .weights = &w);
    return eg_params_unused(p, 1, &y, NULL) == 0 &&
           eg_item(eg_max(NULL, eg_abs(eg_sub(y, z)))) < 1e-6 && eg_ok(u) && eg_ok(w);
}
static bool linear_attention(void)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 1, 70, 1, 2), *w, *s, *g;
    eg_tensor *y =
        eg_linear_attention("bihd,bjhd,bjhe->bihe", x, x, x, .where = "j <= i", .weights = &w);
    eg_tensor *z =
        eg_linear_attention("bihd,bjhd,bjhe->bihe", x, x, x, .where = "j <= i", .phi = "exp(x)",
                            .no_norm = true, .next = &s, .decay = { "bjhd", eg_sigmoid(x) });
    return eg_grad(eg_add(y, z), eg_ones_like(y), 1, &x, &g) == 0 && eg_ok(w) && eg_ok(s) &&
           isfinite(eg_item(eg_sum(NULL, g)));
}
static bool delta_rule(void)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 1, 5, 1, 2), *b = eg_full(cx, 0.5, 1, 5), *w, *s, *g;
    eg_tensor *y = eg_linear_attention("bihd,bjhd,bjhe->bihe", x, x, x, .where = "j <= i",
                                       .phi = "x", .no_norm = true, .next = &s, .chunk = 2,
                                       .beta = { "bj", b }, .decay = { "bj", b }, .weights = &w);
    return eg_grad(y, eg_ones_like(y), 1, &x, &g) == 0 && eg_ok(w) && eg_ok(s) &&
           isfinite(eg_item(eg_sum(NULL, g)));
}
static bool options_of_modules(void) /* gates, norms of query and key, extra keys, positions */
{
    eg_params *p = eg_params_open(cx);
    const eg_mha_args o = { .kv_heads = 1,
                            .qk_norm = EG_QK_RMS,
                            .rotary = 100,
                            .rotary_width = 2,
                            .bias_kv = true,
                            .zero_attn = true,
                            .sink = true,
                            .temperature = 2 };
    eg_block *b = eg_block_new(p, "", .d_model = 6, .heads = 2, .width = 3, .gated = true,
                               .rms = true, .eps = 1e-6, .mha = &o);
    eg_mha *tabled =
        eg_mha_new(p, "tabled", .d_model = 6, .heads = 2, .where = "j <= i",
                   .score = "score + t[abs(i - j)]", .with = { { "t", eg_param(p, "t", "n", 3) } });
    eg_tensor *x = eg_normal(cx, 0, 1, 1, 3, 6), *g, *part[3];
    if (!tabled || !b || eg_unbind("b [i] m", x, 3, part)) return false;
    eg_tensor *y =
        eg_block_run(b, x, .where = "j <= i", .positions = { "i", eg_arange(cx, EG_F32, 2, 5, 1) });
    y = eg_mha_run(tabled, y, .where = "doc[i] == doc[j]",
                   .with = { { "doc", eg_cast(eg_randint(cx, 0, 2, 3), EG_U8) } });
    return eg_grad(y, eg_ones_like(y), 1, &x, &g) == 0 && isfinite(eg_item(eg_sum(NULL, g)));
}

static eg_tensor *layer_doubled(void *user, int64_t layer, eg_tensor *x)
{
    (void)user;
    return layer ? eg_scale(x, 2) : NULL;
}
static bool between_layers(void) /* states that are replaced; keys that read; graphs explained */
{
    const eg_linear_attention_args delta = { .phi = "x", .no_norm = true, .beta = { "bj", NULL } };
    eg_params *p = eg_params_open(cx);
    eg_seq2seq *net = eg_seq2seq_new(p, "", .vocabulary = 5, .length = 4, .d_model = 4, .heads = 2,
                                     .layers = 1, .width = 4);
    eg_mha *m = eg_mha_new(p, "m", .d_model = 4, .heads = 2, .linear = &delta);
    eg_tensor *tokens = eg_randint(cx, 0, 5, 2, 3), *x = eg_normal(cx, 0, 1, 2, 3, 4), *g;
    eg_tensor *y = eg_seq2seq_run(net, tokens, tokens, .layer_fn = layer_doubled,
                                  .source_layer_fn = layer_doubled);
    eg_tensor *z = eg_mha_run(m, x, .where = "j <= i", .read = eg_normal(cx, 0, 1, 2, 3, 2, 2),
                              .beta = { "bj", eg_full(cx, 0.5, 2, 3) });
    const eg_explained_graph *e = eg_explain_graph(y);
    return eg_ok(y) && e && e->nodes > 0 && eg_grad(z, eg_ones_like(z), 1, &x, &g) == 0 &&
           isfinite(eg_item(eg_sum(NULL, g)));
}
static int step_of_all(void *user, eg_tensor **out)
{
    eg_tensor **x = user, *dx[2];
    eg_tensor *y = eg_attention("id,jd,je->ie", x[0], x[1], x[1], .where = "j <= i");
    y = eg_expr("i e", "y * sigmoid(y) + t[i]", .with = { { "y", y }, { "t", x[2] } });
    y = eg_add(eg_dropout(y, 0.5),
               eg_tril(eg_sort("i [e]", eg_einsum("id,de,ef->if", x[0], x[1], x[1])), 0));
    if (eg_grad(eg_sum(NULL, eg_square(y)), NULL, 2, x, dx)) return -1;
    out[0] = y, out[1] = dx[0];
    return eg_assign(x[2], eg_mean("i [e]", y));
}
static bool captured_steps(void)
{
    eg_tensor *x[] = { eg_uniform(cx, -1, 1, 3, 3), eg_uniform(cx, -1, 1, 3, 3), eg_zeros(cx, 3) };
    eg_captured *c = eg_capture(cx, step_of_all, x, 2);
    if (!c || eg_captured_run(c)) return false;
    const double sum = eg_item(eg_sum(NULL, eg_captured_output(c, 1)));
    eg_captured_free(c);
    return isfinite(sum);
}
static eg_tensor *rows_loss(void *user, eg_ctx *own, int64_t from, int64_t to, int64_t *count)
{
    (void)from, (void)to, (void)count;
    return eg_sum(NULL, eg_square(eg_linear_run(user, eg_block_rows(own, "x"))));
}
static bool blocks_and_copies(void) /* of one thread, since others must not allocate meanwhile */
{
    eg_params *p = eg_params_open(cx);
    eg_linear *l = eg_linear_new(p, "l", .in = 3, .out = 2);
    eg_opt *opt = eg_adam(p);
    eg_threads(cx, 1);
    eg_tensor *x = eg_normal(cx, 0, 1, 6, 3), *each[2];
    double mean = NAN;
    for (int k = 0; k < 3; k++)
        if (eg_step_over(opt, rows_loss, l, 6, .block = 2, .batch = { { "x", x } }, .mean = &mean,
                         .capture = true))
            return false;
    eg_tensor *rows = eg_copies_unstack(eg_copies_open(eg_params_owner(p), 6, NULL), x);
    eg_tensor *y = eg_sum(NULL, eg_square(eg_linear_run(l, eg_rearrange("i -> 1 i", rows))));
    return eg_grad_each(y, 2, (eg_tensor *[]){ l->weight, l->bias }, each) == 0 &&
           eg_dim(each[0], 0) == 6 && isfinite(mean) && isfinite(eg_item(eg_sum(NULL, each[0])));
}
static bool optimiser_file(void)
{
    eg_params *p = eg_params_open(cx);
    eg_linear *l = eg_linear_new(p, "l", .in = 3, .out = 2);
    eg_opt *opt = eg_adam(p);
    eg_tensor *y = eg_linear_run(l, eg_ones(cx, 2, 3));
    return eg_step(opt, eg_sum(NULL, eg_square(y))) == 0 && eg_opt_save(opt, arrays) == 0 &&
           eg_opt_resume(opt, arrays) == 1;
}
static bool text_of_json(void)
{
    static const char text[] = "{\"a\": [1, {\"b\": \"\\u00e9\"}], \"c\": null}";
    const eg_json *j = eg_json_read(cx, text, sizeof text - 1);
    const eg_json *a = eg_json_find(j, "a");
    const eg_spec *s = eg_spec_insert(eg_spec_parse(cx, "mine", "b i [j]"), 0, 0, "c");
    const eg_formula *f =
        eg_formula_replace(eg_formula_parse(cx, "mine", "j <= i & i < |j|"), "i", "i + 5", "7");
    return a && a->first && a->first->number == 1 && s && f && strstr(f->text, "i + 5");
}

/* -- each of its allocations ------------------------------------------------------------------ */
static size_t bytes_of(const char *path, char *out, size_t room)
{
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(out, 1, room, f) : 0;
    if (f) fclose(f);
    return n;
}
static int strangers(void) /* number of files in the folder that no scenario names */
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) n += strstr(e->d_name, ".tmp") != NULL;
    closedir(d);
    return n;
}

/* Check allocates when it asserts, so nothing is asserted while allocations are counted. */
static bool attempt(bool (*run)(void), long fail, bool onward)
{
    char message[300] = "";
    bool good = false, failed = true;
    double three = 3;
    memory.calls = memory.held = 0, memory.fail = fail, memory.onward = onward, memory.armed = true;
    cx = eg_open(.realloc = counted, .threads = 2);
    if (cx) {
        good = run();
        memory.used = memory.calls;
        failed = eg_error(cx) != NULL;
        snprintf(message, sizeof message, "%s", failed ? eg_error(cx) : "");
        eg_clear(cx);
        memory.fail = -1, memory.onward = false;
        three = eg_item(eg_sum(NULL, eg_exp(eg_zeros(cx, 3))));
        eg_close(cx);
    }
    memory.armed = false;
    ck_assert_msg(good == !failed, "allocation %ld: %s", fail,
                  failed ? message : "failed, and there is no error");
    ck_assert_msg(good || !cx || strstr(message, "out of memory") ||
                      strstr(message, strerror(ENOMEM)),
                  "allocation %ld: %s", fail, message);
    ck_assert_double_eq(three, 3);
    ck_assert_msg(!memory.wrong_size, "allocation %ld: the allocator was told a wrong old size",
                  fail);
    ck_assert_msg(memory.held == 0, "allocation %ld: %ld blocks and files were not given back",
                  fail, memory.held);
    ck_assert_msg(strangers() == 0, "allocation %ld: a temporary file is left", fail);
    return good;
}

static void fail_each(bool (*run)(void), const char *written)
{
    enum { ROOM = 1 << 18, MOST = 3000 / SLOWER, WORK = 10000000 / SLOWER };
    static char before[ROOM], after[ROOM];
    ck_assert(attempt(run, -1, false)); /* what is made once in a process is made here */
    ck_assert(attempt(run, -1, false));
    long calls = memory.used, step = 1;
    ck_assert_int_gt(calls, 2);
    long most = WORK / calls < MOST ? WORK / calls : MOST;
    /* too many (--enable-debug): only some, at irregular distances */
    if (calls > most)
        for (step = calls / most + 1; step % 2 == 0 || step % 3 == 0 || step % 5 == 0;) step++;
    for (int onward = 0; onward < 2; onward++) {
        long noticed = 0;
        for (long n = 0; n < calls; n += step) {
            size_t held_before = written ? bytes_of(written, before, ROOM) : 0;
            bool good = attempt(run, n, onward);
            noticed += !good;
            if (written && !good)
                ck_assert_msg(bytes_of(written, after, ROOM) == held_before &&
                                  !memcmp(before, after, held_before),
                              "allocation %ld: %s is not what it was", n, written);
        }
        ck_assert_int_gt(noticed, 0);
    }
}

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/eingrad-memory-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(saved, sizeof saved, "%s/model.safetensors", folder);
    snprintf(other, sizeof other, "%s/x.npy", folder);
    snprintf(arrays, sizeof arrays, "%s/x.safetensors", folder);
    snprintf(picture, sizeof picture, "%s/map.svg", folder);
    cx = eg_open();
    eg_assert_ok(cx);
    ck_assert(save());
    eg_close(cx);
}
static void remove_folder(void)
{
    unlink(saved), unlink(other), unlink(arrays);
    for (int k = 0; k < 2; k++) {
        memcpy(strrchr(picture, '.'), k ? ".png" : ".svg", 5);
        unlink(picture);
    }
    ck_assert_int_eq(rmdir(folder), 0);
}

static bool reductions(void) /* what a reduction computes from a result that failed */
{
    eg_tensor *x = eg_uniform(cx, -1, 1, 2, 3, 2), *y = eg_std("[a] b [c]", x), *g;
    y = eg_add(y, eg_add(eg_var("[a] b [c]", x), eg_mean("[a] b [c]", x)));
    y = eg_add(y, eg_add(eg_logsumexp("[a] b [c]", x), eg_prod("[a] b [c]", x)));
    y = eg_add(y, eg_add(eg_max("[a] b [c]", x), eg_pnorm("[a] b [c]", x, 3)));
    return eg_grad(y, eg_ones_like(y), 1, &x, &g) == 0 && isfinite(eg_item(eg_sum(NULL, g)));
}
static bool complex_step(void)
{
    eg_tensor *x = eg_full_n(cx, EG_F64, .5, 2, (int64_t[]){ 3, 4 }), *v = eg_ones_like(x), *g, *dy;
    const eg_op *unsupported;
    /* 36 e^x tanh x */
    eg_tensor *y = eg_einsum("ij,jk->", eg_exp(x), eg_tanh(eg_transpose(x, 0, 1)));
    if (!eg_ok(y) || eg_grad(y, NULL, 1, &x, &g) ||
        !eg__complex_step(eg_sum(NULL, g), 1, &x, &v, &dy, &unsupported))
        return false;
    const double t = tanh(.5), s = 1 - t * t, want = 36 * exp(.5) * (t + 2 * s - 2 * t * s);
    return fabs(eg_item(dy) - want) < 1e-12 * want && eg_format(eg_complex(x, v), NULL, 0) > 0;
}

static const struct {
    const char *name;
    bool (*run)(void);
    const char *written;
} scenarios[] = {
    { "a task, one step", task_and_step, NULL },
    { "evaluation, prediction", evaluate_and_predict, NULL },
    { "a model's gradients", check_a_model, NULL },
    { "saving a trainer", save, saved },
    { "loading it, one step", load_and_step, saved },
    { "npy", npy, NULL },
    { "safetensors", safetensors, NULL },
    { "npz", npz, NULL },
    { "mapped", mapped, NULL },
    { "models of others", pretrained, NULL },
    { "heat maps", pictures, NULL },
    { "gradient check", gradcheck, NULL },
    { "forward and reverse", both_modes, NULL },
    { "fused attention", tiles, NULL },
    { "decoding with a cache", step_by_step, NULL },
    { "other names and forms", other_names, NULL },
    { "linear attention", linear_attention, NULL },
    { "delta rule", delta_rule, NULL },
    { "options of modules", options_of_modules, NULL },
    { "between layers", between_layers, NULL },
    { "captured steps", captured_steps, NULL },
    { "blocks and copies", blocks_and_copies, NULL },
    { "an optimiser's file", optimiser_file, arrays },
    { "JSON, specs, formulas", text_of_json, NULL },
    { "a complex step", complex_step, NULL },
    { "reductions", reductions, NULL },
};

GROUP("memory", .setup = make_folder, .teardown = remove_folder)

LOOP_TEST(memory_may_run_out, sizeof scenarios / sizeof *scenarios)
{
    fail_each(scenarios[_i].run, scenarios[_i].written);
}

/* -- calls that are repeated after they failed ------------------------------------------------- */
/* The first training step, and heads that are switched off. */
typedef struct repeated {
    eg_trainer *t;
    eg_params *p;
    eg_linear *l;
    eg_opt *opt;
    eg_tensor *x;
} repeated;
static int step_of_trainer(repeated *r) { return eg_trainer_step(r->t, NULL); }
static int switch_heads_off(repeated *r)
{
    return eg_trainer_heads_off(r->t, 1, &(eg_head_at){ .attention = 0, .head = 1 });
}
static int step_of_copies(repeated *r)
{
    eg_tensor *y = eg_linear_run(r->l, r->x);
    return eg_step(r->opt, eg_sum(NULL, eg_square(y)));
}
static const struct {
    const char *name;
    int (*call)(repeated *);
} repeatable[] = { { "trainer_step", step_of_trainer },
                   { "trainer_heads_off", switch_heads_off },
                   { "a step of copies", step_of_copies } };

static repeated repeated_open(void)
{
    repeated r = { .p = eg_params_open(cx, .copies = 3) };
    r.l = eg_linear_new(r.p, "l", .in = 3, .out = 2);
    r.opt = eg_adam(r.p);
    r.x = eg_normal(cx, 0, 1, 4, 3);
    r.t = eg_trainer_new(.data = eg_data_task(cx, eg_task_find("copy")), .layers = 1, .d_model = 8,
                         .heads = 2, .batch = 3, .seed = 4, .dropout = 0.2);
    eg_assert_ok(cx);
    return r;
}
/* The bits of all values on which later calls depend. */
static uint64_t repeated_hash(repeated *r)
{
    uint64_t h = EG_HASH_START;
    eg_params *trained = eg_trainer_params(r->t);
    eg_score s;
    const uint64_t draws = eg_draws(cx);
    h = eg_hash(h, &draws, sizeof draws);
    for (int k = 0; k < eg_params_count(trained); k++) {
        eg_tensor *x = eg_params_at(trained, k)->x;
        h = eg_hash(h, eg_f32(x), (size_t)eg_size(x) * sizeof(float));
    }
    for (int k = 0; k < 3; k++) {
        const eg_named *n;
        for (int i = 0; (n = eg_opt_state(eg_opt_of_copy(r->opt, k), i)); i++)
            h = eg_type(n->x) == EG_I64
                    ? eg_hash(h, eg_i64(n->x), (size_t)eg_size(n->x) * sizeof(int64_t))
                    : h;
    }
    ck_assert_int_eq(eg_trainer_evaluate(r->t, &s), 0);
    h = eg_hash(h, &s.loss, sizeof s.loss);
    eg_assert_ok(cx);
    return h;
}
/* A call that failed and is made again has the results of one that succeeds at once, and leaves the
 * same state for the next call. */
LOOP_TEST(a_call_can_be_repeated_after_it_failed, sizeof repeatable / sizeof *repeatable)
{
    uint64_t hash[2];
    for (int failing = 0; failing < 2; failing++) {
        cx = eg_open(.realloc = counted, .threads = 2);
        repeated r = repeated_open();
        for (long n = 0;; n += 1 + n / 8) {
            eg_mark m = eg_push(cx);
            memory.calls = 0, memory.fail = failing ? n : -1, memory.armed = true;
            int bad = repeatable[_i].call(&r);
            memory.armed = false, memory.fail = -1;
            eg_pop(cx, m);
            if (!bad) break;
            ck_assert_msg(eg_error(cx) != NULL, "%s, allocation %ld: there is no error",
                          repeatable[_i].name, n);
            eg_clear(cx);
        }
        ck_assert_int_eq(repeatable[_i].call(&r), 0);
        hash[failing] = repeated_hash(&r);
        eg_close(cx);
    }
    ck_assert_msg(hash[0] == hash[1], "%s: another result", repeatable[_i].name);
}

#if !EG_DEBUG_ALLOC
static void *until(void *user, void *p, size_t old_size, size_t new_size)
{
    (void)old_size;
    if (new_size) return *(const bool *)user ? NULL : realloc(p, new_size);
    free(p);
    return NULL;
}
/* Also of views, which have no elements of their own. */
TEST(an_operation_without_memory_is_named)
{
    bool none = false;
    eg_ctx *limited = eg_open(.realloc = until, .user = &none, .threads = 1);
    eg_tensor *x = eg_zeros(limited, 2, 3);
    eg_assert_ok(limited);
    none = true;
    for (int k = 0; k < 100000 && !eg_error(limited); k++) eg_transpose(x, 0, 1);
    eg_assert_error(limited, "permute: out of memory");
    eg_close(limited);
}

/* Calls that allocate memory of owners and scopes: files, parameters, data, strings, DLPack. */
typedef struct naming {
    eg_params *p, *other;
    eg_opt *opt;
    eg_tensor *x;
    const eg_spec *spec;
    eg_safetensors *file;
} naming;
static const eg_alias linear_style[] = { { "l.W", "w", "o i", 0, 0 },
                                         { "l.b", "b", "o", 0, 0 },
                                         { 0 } };
static void name_save(naming *n) { eg_params_save(n->p, saved); }
static void name_load(naming *n) { eg_params_load(n->p, saved); }
static void name_read(naming *n) { eg_params_read(n->p, n->file, NULL); }
static void name_save_as(naming *n) { eg_params_save_as(n->p, arrays, "", linear_style); }
static void name_load_as(naming *n) { eg_params_load_as(n->p, arrays, "", linear_style); }
static void name_copy(naming *n) { eg_params_copy(n->p, n->other); }
static void name_open(naming *n) { eg_safetensors_open(eg_context(n->x), saved); }
static void name_opt_save(naming *n) { eg_opt_save(n->opt, other); }
static void name_opt_resume(naming *n) { eg_opt_resume(n->opt, other); }
static void name_json(naming *n) { eg_json_read(eg_context(n->x), "{\"a\":[1,2,3]}", 13); }
static void name_task(naming *n) { eg_data_task(eg_context(n->x), eg_task_find("copy")); }
static void name_pairs(naming *n) { eg_data_parse(eg_context(n->x), "a\tb\nc\td\n", "t"); }
static void name_corpus(naming *n)
{
    eg_data_corpus_of(eg_context(n->x), "abcabcabcabcabcabcabc", 21, "c");
}
static void name_spec(naming *n) { eg_spec_parse(eg_context(n->x), "w", "bihd,bjhd->bhij"); }
static void name_items(naming *n) { eg_spec_items(n->spec, 0); }
static void name_insert(naming *n) { eg_spec_insert(n->spec, 0, -1, "z"); }
static void name_tensor(naming *n) { eg_name(n->x, "a name"); }
static void name_cache(naming *n)
{
    eg_owner *o = eg_owner_open(eg_context(n->x));
    if (o) eg_cache_new(o, 8);
    if (!o) eg_fail_in(eg_context(n->x), "cache");
}
static void name_dlpack(naming *n)
{
    DLManagedTensorVersioned *m = eg_to_dlpack(n->x);
    if (m) m->deleter(m);
}
static void name_memory(naming *n)
{
    static const float one = 1;
    eg_from_memory(eg_context(n->x), EG_F32, &one, 0, NULL);
}
static const struct {
    const char *called;
    void (*call)(naming *);
} naming_calls[] = {
    { "params_save: |safetensors: ", name_save },
    { "params_load: |safetensors: ", name_load },
    { "params_read: ", name_read },
    { "params_save_as: |safetensors: ", name_save_as },
    { "params_load_as: |safetensors: ", name_load_as },
    { "params_copy: ", name_copy },
    { "safetensors: ", name_open },
    { "opt_save: |safetensors: ", name_opt_save },
    { "opt_resume: |safetensors: ", name_opt_resume },
    { "json: ", name_json },
    { "data: ", name_task },
    { "data: ", name_pairs },
    { "data: ", name_corpus },
    { "w: ", name_spec },
    { "w: ", name_items },
    { "w: ", name_insert },
    { "name: ", name_tensor },
    { "cache: ", name_cache },
    { "to_dlpack: ", name_dlpack },
    { "from_memory: ", name_memory },
};
/* The message of each call whose allocation number k fails, for every k. `full`: the open scope has
 * no memory left in its chunks. */
LOOP_TEST(calls_without_memory_are_named, sizeof naming_calls / sizeof *naming_calls)
{
    for (int k = 0; k < 60; k++) {
        const bool full = k & 1;
        cx = eg_open(.realloc = counted, .threads = 1);
        naming n = { .p = eg_params_open(cx), .other = eg_params_open(cx) };
        eg_linear_new(n.p, "l", .in = 3, .out = 2);
        eg_linear_new(n.other, "l", .in = 3, .out = 2);
        n.opt = eg_adam(n.p);
        n.x = eg_ones(cx, 3, 3);
        n.spec = eg_spec_parse(cx, "w", "bihd,bjhd->bhij");
        ck_assert_int_eq(eg_params_save(n.p, saved), 0);
        ck_assert_int_eq(eg_params_save_as(n.p, arrays, "", linear_style), 0);
        ck_assert_int_eq(eg_opt_save(n.opt, other), 0);
        n.file = eg_safetensors_open(cx, saved);
        eg_assert_ok(cx);
        memory.armed = true, memory.calls = 0, memory.fail = 0, memory.onward = true;
        while (full && eg_scope_alloc(cx, 64)) continue;
        memory.calls = 0, memory.fail = k / 2;
        eg_clear(cx);
        naming_calls[_i].call(&n);
        memory.armed = false, memory.fail = -1, memory.onward = false;
        const char *says = eg_error(cx), *called = naming_calls[_i].called,
                   * or = strchr(called, '|');
        const size_t first = or ? (size_t)(or -called) : strlen(called);
        ck_assert_msg(!says || !strncmp(says, called, first) ||
                          (or &&!strncmp(says, or +1, strlen(or +1))),
                      "%s: %s", called, says);
        eg_clear(cx);
        eg_close(cx);
    }
}
#endif

/* -- calls that change all of their targets, or none ------------------------------------------- */
typedef struct stateful {
    eg_params *p, *other, *wide, *copied, *drawn;
    eg_mha *a, *b;
    eg_opt *opt;
    eg_cache *c, *keys;
    eg_mha *m; /* of the keys */
    eg_tensor *index, *kept, *query;
} stateful;
static const eg_alias style[] = { { "W_q", "q", "(h d) m", 0, 0 }, { "b_q", "q.b", "(h d)", 0, 0 },
                                  { "W_k", "k", "(h d) m", 0, 0 }, { "b_k", "k.b", "(h d)", 0, 0 },
                                  { "W_v", "v", "(h e) m", 0, 0 }, { "b_v", "v.b", "(h e)", 0, 0 },
                                  { "W_o", "o", "m (h e)", 0, 0 }, { "b_o", "o.b", "m", 0, 0 },
                                  { "z", "z", "b a", 0, 0 },       { 0 } };
static int load_parameters(stateful *s) { return eg_params_load(s->p, saved); }
static int load_in_a_style(stateful *s) { return eg_params_load_as(s->p, arrays, "", style); }
static int copy_parameters(stateful *s) { return eg_params_copy(s->p, s->other); }
static int copy_attention(stateful *s) { return eg_mha_copy(s->a, s->b); }
static int resume_optimiser(stateful *s) { return eg_opt_resume(s->opt, other) > 0 ? 0 : -1; }
static int select_beams(stateful *s) { return eg_cache_select(s->c, s->index); }
static int keep_positions(stateful *s) { return eg_cache_keep(s->keys, -1, s->kept); }
static int draw_copies(stateful *s)
{
    return eg_ok(eg_init_normal(eg_params_find(s->copied, "l.W"), 1)) ? 0 : -1;
}
static int make_a_module(stateful *s)
{
    return eg_block_new(s->drawn, "new", .d_model = 64, .heads = 2) ? 0 : -1;
}
static int make_a_trainer(stateful *s)
{
    (void)s;
    return small() ? 0 : -1;
}
static int load_a_trainer(stateful *s)
{
    (void)s;
    return eg_trainer_load(cx, picture) ? 0 : -1;
}
static const struct {
    const char *name;
    int (*call)(stateful *);
} unchanging[] = { { "params_load", load_parameters }, { "params_load_as", load_in_a_style },
                   { "params_copy", copy_parameters }, { "mha_copy", copy_attention },
                   { "opt_resume", resume_optimiser }, { "cache_select", select_beams },
                   { "cache_keep", keep_positions },   { "init_normal", draw_copies },
                   { "block_new", make_a_module },     { "trainer_new", make_a_trainer },
                   { "trainer_load", load_a_trainer } };

/* A model whose parameters, optimiser and cache differ from what the files and the other model,
 * whose parameters are f64, contain. */
static stateful stateful_open(bool writes)
{
    stateful s = { .drawn = eg_params_open(cx),
                   .p = eg_params_open(cx, .zero_init = true),
                   .other = eg_params_open(cx, .zero_init = true, .dtype = EG_F64),
                   .wide = eg_params_open(cx, .zero_init = true),
                   .copied = eg_params_open(cx, .zero_init = true, .copies = 3) };
    eg_mha *m = s.m = eg_mha_new(s.p, "", .d_model = 4, .heads = 2);
    eg_mha_new(s.other, "", .d_model = 4, .heads = 2);
    /* What comes last is large, and nothing else is, so that its memory is not in a pool. */
    eg_param(s.p, "z", "ab", 500, 500);
    eg_param(s.other, "z", "ab", 500, 500);
    s.a = eg_mha_new(s.wide, "a", .d_model = 4, .heads = 2, .d_out = 90000);
    s.b = eg_mha_new(s.wide, "b", .d_model = 4, .heads = 2, .d_out = 90000, .form = EG_PER_HEAD);
    eg_linear_new(s.copied, "l", .in = 500, .out = 700);
    eg_params *const all[] = { s.p, s.other, s.wide };
    for (int l = 0; l < 3; l++)
        for (int k = 0; k < eg_params_count(all[l]); k++)
            eg_fill(eg_params_at(all[l], k)->x, 1 - 0.03 * k - 0.3 * l);
    s.opt = eg_adam(s.p);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 3, 4);
    for (int steps = 0; steps < 2; steps++) {
        ck_assert_int_eq(eg_step(s.opt, eg_sum(NULL, eg_square(eg_mha_run(m, x)))), 0);
        if (steps == 0 && writes) ck_assert_int_eq(eg_opt_save(s.opt, other), 0);
    }
    if (writes) {
        ck_assert_int_eq(eg_params_save(s.other, saved), 0);
        ck_assert_int_eq(eg_params_save_as(s.other, arrays, "", style), 0);
        ck_assert_int_eq(eg_trainer_save(small(), picture), 0);
    }
    s.c = eg_cache_new(eg_params_owner(s.p), 4);
    eg_nograd(cx, true);
    for (int k = 0; k < 3; k++)
        ck_assert_int_eq(eg_cache_set_state(s.c, k, eg_normal(cx, 0, 1, 2, 5 + 20000 * k), 1), 0);
    s.index = eg_from(cx, ((int64_t[]){ 1, 0, 1 }), 3);
    s.keys = eg_cache_new(eg_params_owner(s.p), 4);
    s.query = eg_normal(cx, 0, 1, 5000, 1, 4);
    for (int k = 0; k < 2; k++)
        eg_mha_run(m, eg_normal(cx, 0, 1, 5000, 3, 4), .cache = s.keys, .slot = k);
    s.kept = eg_from(cx, ((int64_t[]){ 2, 0 }), 2);
    eg_seed(cx, 5);
    eg_assert_ok(cx);
    return s;
}
static uint64_t hash_of(uint64_t h, eg_tensor *x)
{
    const eg_mark m = eg_push(cx);
    x = eg_copies_of(x) ? eg_copies_stack(x) : x;
    h = eg_hash(h, eg_raw(x, NULL), (size_t)eg_size(x) * (eg_type(x) == EG_F32 ? 4 : 8));
    eg_pop(cx, m);
    return h;
}
/* The bits of all that a later call can see. */
static uint64_t stateful_hash(const stateful *s)
{
    const uint64_t random[] = { eg_seed_of(cx), eg_draws(cx) };
    uint64_t h = eg_hash(EG_HASH_START, random, sizeof random);
    const eg_named *n;
    for (int k = 0; (n = eg_params_at(s->p, k)); k++) h = hash_of(h, n->x);
    for (int k = 0; (n = eg_params_at(s->copied, k)); k++) h = hash_of(h, n->x);
    for (int k = 0; (n = eg_params_at(s->wide, k)); k++) h = hash_of(h, n->x);
    for (int k = 0; (n = eg_opt_state(s->opt, k)); k++) h = hash_of(h, n->x);
    for (int k = 0; k < 3; k++) h = hash_of(h, eg_cache_state(s->c, k));
    const int64_t length = eg_cache_length(s->keys);
    for (int k = 0; k < 2; k++)
        h = hash_of(h, eg_mha_run(s->m, s->query, .cache = s->keys, .slot = k));
    ck_assert_int_eq(eg_cache_truncate(s->keys, length), 0);
    eg_assert_ok(cx);
    return h;
}
LOOP_TEST(a_call_that_failed_has_changed_nothing, sizeof unchanging / sizeof *unchanging)
{
    const char *name = unchanging[_i].name;
    uint64_t before = 0;
    long failed = 0;
    cx = eg_open();
    stateful s = stateful_open(true);
    eg_close(cx);
    cx = NULL;
    for (long n = 0;; n += 1 + n / 64) {
        if (!cx) {
            cx = eg_open(.realloc = counted, .threads = 2);
            s = stateful_open(false);
            before = stateful_hash(&s);
        }
        eg_mark m = eg_push(cx);
        memory.calls = 0, memory.fail = n, memory.armed = true;
        const int bad = unchanging[_i].call(&s);
        memory.armed = false, memory.fail = -1;
        eg_pop(cx, m);
        if (bad) {
            ck_assert_msg(eg_error(cx) != NULL, "%s, allocation %ld: there is no error", name, n);
            eg_clear(cx);
            ck_assert_msg(stateful_hash(&s) == before, "%s, allocation %ld: something has changed",
                          name, n);
            failed++;
            continue;
        }
        ck_assert_msg(stateful_hash(&s) != before, "%s: nothing has changed", name);
        eg_close(cx);
        cx = NULL;
        if (memory.calls <= n) break; /* else the call did without it */
    }
    ck_assert_int_gt(failed, 0);
    unlink(picture);
}

/* Without memory it is not known whether a file is the checkpoint of this run: an error, not a file
 * that --force may replace. */
TEST(what_is_saved_is_right_or_unknown)
{
    cx = eg_open(.realloc = counted, .threads = 1);
    eg_trainer *t = small();
    ck_assert(t && eg_trainer_step(t, NULL) == 0);
    long unknown = 0;
    for (long n = 0, more = 1; more; n++) {
        memory.calls = 0, memory.fail = n, memory.armed = true;
        const eg_saved s = eg_trainer_saved(t, saved);
        memory.armed = false, memory.fail = -1;
        more = memory.calls > n;
        const bool right = s.exists && s.checkpoint && s.same && s.step == 1;
        ck_assert_msg(right == !eg_error(cx), "allocation %ld: checkpoint %d, same %d, differs %s",
                      n, s.checkpoint, s.same, s.differs);
        if (!right) ck_assert_int_eq(eg_error_code(cx), EG_ERROR_MEMORY);
        unknown += !right;
        eg_clear(cx);
    }
    ck_assert_int_gt(unknown, 0);
    eg_close(cx);
}
