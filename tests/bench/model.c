/* model.c: cases other than contraction: the tape, rows of numbers, training. PyTorch computes the
 * same (peers.py). */
#include "bench.h"
#include <stdlib.h>
#include <string.h>

static void measure(const char *group, const char *name, const char *line, double bytes,
                    bool (*run)(void *, int64_t), void *user)
{
    char reply[256];
    if (!bench_wanted(group, name, EG_F32)) return;
    contender list[CONTENDERS] = { { .name = "eingrad", .run = run, .user = user } };
    int n = 1;
    if (bench_ask("PyTorch", line, reply, sizeof reply) && !strncmp(reply, "ok", 2))
        list[n++] = (contender){ .name = "PyTorch" };
    if (n > 1 && !strcmp(group, "train"))
        list[n++] = (contender){ .name = "PyTorch, fused Adam", .peer = "PyTorch" };
    bench_case(&(report){ group, name, NULL, EG_F32, 0, bytes / 2, bytes / 2 }, n, list);
}

/* -- the tape --------------------------------------------------------------------------------- */
typedef struct leaves {
    eg_tensor *x, *w, *b;
} leaves;
/* scopes of 100, so that a push and a pop have little weight */
static bool add(void *user, int64_t n)
{
    const leaves *l = user;
    for (int64_t k = 0; k < n;) {
        eg_mark m = eg_push(bench_cx);
        for (int64_t stop = k + 100 < n ? k + 100 : n; k < stop; k++) eg_add(l->x, l->w);
        eg_pop(bench_cx, m);
    }
    return !eg_error(bench_cx);
}
static eg_tensor *graph20(const leaves *l) /* 20 operations */
{
    eg_tensor *h = l->x;
    for (int k = 0; k < 4; k++) {
        h = eg_sigmoid(eg_tanh(eg_add(eg_mul(h, l->w), l->b)));
        h = k < 3 ? eg_sub(h, l->x) : eg_sum(NULL, h);
    }
    return h;
}
static bool gradient20(void *user, int64_t n)
{
    const leaves *l = user;
    for (int64_t k = 0; k < n; k++) {
        eg_mark m = eg_push(bench_cx);
        eg_tensor *dxs[3];
        eg_tensor *y = graph20(l);
        /* as in eg_step and PyTorch, the gradient has no history */
        eg_nograd(bench_cx, true);
        eg_grad(y, NULL, 3, (eg_tensor *[]){ l->x, l->w, l->b }, dxs);
        eg_nograd(bench_cx, false);
        eg_pop(bench_cx, m);
    }
    return !eg_error(bench_cx);
}
/* Hessian times v of one attention layer, 8 sequences of 16, 4 heads of 16: Σ y² by Wq, Wk, Wv,
 * Wo */
typedef struct layer {
    eg_tensor *x, *w[4], *v[4];
} layer;
static eg_tensor *attention(const layer *l)
{
    eg_tensor *q = eg_einsum("bim,mhd->bihd", l->x, l->w[0]),
              *k = eg_einsum("bim,mhd->bihd", l->x, l->w[1]);
    eg_tensor *a = eg_softmax("b h i [j]", eg_scale(eg_einsum("bihd,bjhd->bhij", q, k), .25));
    eg_tensor *y =
        eg_einsum("bhij,bjhd,hdm->bim", a, eg_einsum("bim,mhd->bihd", l->x, l->w[2]), l->w[3]);
    return eg_sum(NULL, eg_square(y));
}
static bool hessian_product(void *user, int64_t n)
{
    const layer *l = user;
    for (int64_t k = 0; k < n; k++) {
        eg_mark m = eg_push(bench_cx);
        eg_tensor *hv[4], *y = attention(l);
        eg_nograd(bench_cx, true);
        eg_hvp(y, 4, l->w, l->v, hv);
        eg_nograd(bench_cx, false);
        eg_pop(bench_cx, m);
    }
    return !eg_error(bench_cx);
}

static void tape(void)
{
    eg_mark m = eg_push(bench_cx);
    leaves l = { eg_uniform(bench_cx, 0, 1, 64), eg_uniform(bench_cx, 0, 1, 64),
                 eg_uniform(bench_cx, 0, 1, 64) };
    eg_nograd(bench_cx, true);
    measure("tape", "add, 64 numbers, nothing recorded", "op add plain", 0, add, &l);
    eg_nograd(bench_cx, false);
    measure("tape", "add, 64 numbers, recorded", "op add recorded", 0, add, &l);
    measure("tape", "20 operations on 64 numbers, forward and gradient", "op graph20", 0,
            gradient20, &l);
    layer a = { .x = eg_uniform(bench_cx, -1, 1, 8, 16, 64) };
    for (int k = 0; k < 8; k++)
        *(k < 4 ? &a.w[k] : &a.v[k - 4]) = k % 4 < 3 ? eg_uniform(bench_cx, -.2, .2, 64, 4, 16)
                                                     : eg_uniform(bench_cx, -.2, .2, 4, 16, 64);
    measure("tape", "Hessian times v, one attention layer", "op hvp", 0, hessian_product, &a);
    eg_pop(bench_cx, m);
}

/* -- rows ------------------------------------------------------------------------------------- */
enum { TOP = 8 }; /* the k of topk, as in peers.py */
typedef struct row {
    const char *name;
    eg_tensor *x, *gain, *bias, *seed;
} row;
static eg_tensor *forward(const row *r)
{
    if (!strcmp(r->name, "softmax")) return eg_softmax("... [j]", r->x);
    if (!strcmp(r->name, "log_softmax")) return eg_log_softmax("... [j]", r->x);
    if (!strcmp(r->name, "gelu")) return eg_gelu(r->x);
    if (!strcmp(r->name, "sort")) return eg_sort("... [j]", r->x);
    if (!strcmp(r->name, "topk")) return eg_topk("... [j]", r->x, TOP);
    if (!strcmp(r->name, "cumsum")) return eg_cumsum("... [j]", r->x);
    return eg_layernorm("... [d]", r->x, .gain = r->gain, .bias = r->bias);
}
static bool rows_forward(void *user, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        eg_mark m = eg_push(bench_cx);
        forward(user);
        eg_pop(bench_cx, m);
    }
    return !eg_error(bench_cx);
}
static bool rows_gradient(void *user, int64_t n)
{
    const row *r = user;
    for (int64_t k = 0; k < n; k++) {
        eg_mark m = eg_push(bench_cx);
        eg_tensor *dxs[3];
        eg_grad(forward(r), r->seed, r->gain ? 3 : 1, (eg_tensor *[]){ r->x, r->gain, r->bias },
                dxs);
        eg_pop(bench_cx, m);
    }
    return !eg_error(bench_cx);
}
static void rows(void)
{
    static const struct {
        const char *name;
        int rank;
        int64_t dims[4];
    } table[] = {
        { "softmax", 4, { 64, 4, 16, 16 } }, { "softmax", 3, { 32, 512, 512 } },
        { "layernorm", 3, { 64, 16, 64 } },  { "layernorm", 2, { 8192, 512 } },
        { "gelu", 3, { 64, 16, 256 } },      { "gelu", 2, { 8192, 1024 } },
        { "log_softmax", 2, { 1024, 26 } },  { "log_softmax", 2, { 256, 512 } },
        { "sort", 2, { 1024, 512 } },        { "topk", 2, { 1024, 512 } },
        { "cumsum", 2, { 1024, 512 } },
    };
    for (size_t k = 0; k < sizeof table / sizeof *table; k++)
        for (int g = 0; g < 2; g++) {
            char shape[64] = "", name[128], line[128];
            double n = 1;
            for (int a = 0; a < table[k].rank; a++) {
                snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%lld",
                         a ? "x" : "", (long long)table[k].dims[a]);
                n *= (double)table[k].dims[a];
            }
            snprintf(name, sizeof name, "%s %s%s", table[k].name, shape,
                     g ? ", forward and gradient" : "");
            if (!bench_wanted("rows", name, EG_F32)) continue;
            snprintf(line, sizeof line, "op rows %s %s %s", table[k].name, shape,
                     g ? "gradient" : "forward");
            eg_mark m = eg_push(bench_cx);
            bool norm = !strcmp(table[k].name, "layernorm");
            const int last = table[k].rank - 1;
            int64_t width = table[k].dims[last], shape_of_g[4];
            memcpy(shape_of_g, table[k].dims, sizeof shape_of_g);
            if (!strcmp(table[k].name, "topk")) shape_of_g[last] = TOP;
            row r = { table[k].name,
                      eg_uniform_n(bench_cx, EG_F32, -1, 1, table[k].rank, table[k].dims),
                      norm ? eg_ones(bench_cx, width) : NULL,
                      norm ? eg_zeros(bench_cx, width) : NULL,
                      eg_uniform_n(bench_cx, EG_F32, 0, 1, table[k].rank, shape_of_g) };
            eg_nograd(bench_cx, !g);
            measure("rows", name, line, g ? 0 : 8 * n, g ? rows_gradient : rows_forward, &r);
            eg_nograd(bench_cx, false);
            eg_pop(bench_cx, m);
        }
}

/* -- training: an encoder of 2 layers, width 64, 4 heads; 64 sequences of `reverse`, length 16 with
 * padding -- */
enum { BATCH = 64, LENGTH = 16 };
typedef struct training {
    eg_transformer *net;
    eg_opt *opt;
    int32_t index[BATCH * LENGTH], target[BATCH * LENGTH];
    int32_t lengths[BATCH];
    bool keep[BATCH * LENGTH];
    bool padding; /* is computed, and hidden by .keep */
    eg_captured_blocks *captured;
} training;
static bool train_step(void *user, int64_t n)
{
    training *t = user;
    for (int64_t k = 0; k < n; k++) {
        eg_mark m = eg_push(bench_cx);
        const int64_t dims[] = { BATCH, LENGTH };
        eg_tensor *index = eg_from_n(bench_cx, EG_I32, t->index, 2, dims),
                  *target = eg_from_n(bench_cx, EG_I32, t->target, 2, dims);
        eg_tensor *logits =
            t->padding
                ? eg_transformer_run(
                      t->net, index,
                      .keep = { "bj", eg_from_n(bench_cx, EG_BOOL, t->keep, 2, dims) })
                : eg_transformer_run(t->net, index,
                                     .lengths = eg_from_n(bench_cx, EG_I32, t->lengths, 1, dims));
        eg_step(t->opt, eg_cross_entropy("b l [v]", logits, target, .ignore = EG_OFF));
        eg_pop(bench_cx, m);
    }
    return !eg_error(bench_cx);
}
/* One's own loop over blocks of the batch (eg_step_over), which are captured or called. */
enum { BLOCK = 16 };
/* The positions for a block's sequences without padding, by which blocks have different shapes. */
static int64_t places(const training *t, int64_t from, int64_t to)
{
    int64_t sum = 0;
    for (int64_t b = from; b < to; b++) sum += t->lengths[b];
    return (sum + EG_PACK_ROUND - 1) / EG_PACK_ROUND * EG_PACK_ROUND;
}
static void block_kind(void *user, int64_t from, int64_t to, int64_t kind[EG_KIND_NUMBERS])
{
    kind[0] = places(user, from, to);
}
static eg_tensor *block_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    const training *t = user;
    eg_tensor *target = eg_block_rows(cx, "target"), *lengths = eg_block_rows(cx, "lengths");
    eg_block_count(count, lengths);
    eg_tensor *logits = eg_transformer_run(t->net, eg_block_rows(cx, "index"), .lengths = lengths,
                                           .packed_length = places(t, from, to));
    return eg_sum(NULL,
                  eg_cross_entropy("b l [v]", logits, target, .ignore = EG_OFF, .each = true));
}
static bool blocks_step(void *user, int64_t n)
{
    training *t = user;
    const int64_t dims[] = { BATCH, LENGTH };
    for (int64_t k = 0; k < n; k++) {
        eg_mark m = eg_push(bench_cx);
        const int bad = eg_step_over(
            t->opt, block_loss, t, .block = BLOCK, .kind = block_kind, .captured = t->captured,
            .batch = { { "index", eg_from_n(bench_cx, EG_I32, t->index, 2, dims) },
                       { "target", eg_from_n(bench_cx, EG_I32, t->target, 2, dims) },
                       { "lengths", eg_from_n(bench_cx, EG_I32, t->lengths, 1, dims) } });
        eg_pop(bench_cx, m);
        if (bad || eg_captured_blocks_refused(t->captured)) return false;
    }
    return true;
}
static bool trainer_step(void *user, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        if (eg_trainer_step(user, NULL)) return false;
    return true;
}
/* a character model: 6 layers, width 384, 6 heads; 8 windows of 128 characters out of 65, causal */
static bool characters_step(void *user, int64_t n)
{
    training *t = user;
    for (int64_t k = 0; k < n; k++) {
        eg_mark m = eg_push(bench_cx);
        const int64_t dims[] = { 8, 128 };
        eg_tensor *index = eg_from_n(bench_cx, EG_I32, t->index, 2, dims),
                  *target = eg_from_n(bench_cx, EG_I32, t->target, 2, dims);
        eg_step(t->opt,
                eg_cross_entropy("b l [v]", eg_transformer_run(t->net, index, .where = "j <= i"),
                                 target));
        eg_pop(bench_cx, m);
    }
    return !eg_error(bench_cx);
}
static void characters(void)
{
    const char *name = "step of a character model, 6 layers of width 384";
    if (!bench_wanted("train", name, EG_F32)) return;
    eg_mark m = eg_push(bench_cx);
    training *t = calloc(1, sizeof *t);
    eg_params *params = eg_params_open(bench_cx);
    if (!t) return;
    t->net = eg_transformer_new(params, "", .vocabulary = 65, .length = 128, .d_model = 384,
                                .heads = 6, .layers = 6);
    t->opt = eg_adam(params, .lr = 1e-3);
    eg_rng rng = { 1, 0, 0 };
    for (int k = 0; k < 8 * 128; k++) t->index[k] = 3 + (int)eg_rng_below(&rng, 62);
    for (int k = 0; k < 8 * 128; k++) t->target[k] = t->index[k % 128 < 127 ? k + 1 : k];
    measure("train", name, "op train characters", 0, characters_step, t);
    free(t);
    eg_pop(bench_cx, m);
}
static void train(void)
{
    eg_mark m = eg_push(bench_cx);
    training *t = calloc(1, sizeof *t);
    if (!t) return;
    eg_params *params = eg_params_open(bench_cx);
    t->net = eg_transformer_new(params, "", .vocabulary = 29, .length = LENGTH, .d_model = 64,
                                .heads = 4, .layers = 2);
    t->opt = eg_adam(params, .lr = 3e-3);
    eg_rng rng = { 1, 0, 0 };
    for (int b = 0; b < BATCH; b++) {
        const int n = t->lengths[b] = 4 + (int)eg_rng_below(&rng, 13);
        for (int l = 0; l < n; l++) {
            t->index[b * LENGTH + l] = EG_FIRST + (int)eg_rng_below(&rng, 26);
            t->keep[b * LENGTH + l] = true;
        }
        for (int l = 0; l < n; l++) t->target[b * LENGTH + l] = t->index[b * LENGTH + n - 1 - l];
    }
    measure("train", "step of the reverse model, fixed batch", "op train", 0, train_step, t);
    measure("train", "the same by eg_step_over, blocks called", "op train", 0, blocks_step, t);
    t->captured = eg_captured_blocks_open(bench_cx);
    measure("train", "the same by eg_step_over, captured blocks", "op train", 0, blocks_step, t);
    t->padding = true;
    measure("train", "the same, padding computed as PyTorch does", "op train", 0, train_step, t);
    const char *whole = "the same by eg_trainer, its examples and score included";
    if (bench_wanted("train", whole, EG_F32))
        measure("train", whole, "op train", 0, trainer_step,
                eg_trainer_new(eg_data_task(bench_cx, eg_task_find("reverse")), .steps = 1000000));
    free(t);
    eg_pop(bench_cx, m);
}

int model_to_goal(int threads, int seed)
{
    eg_ctx *cx = eg_open(.threads = threads);
    eg_progress p = { .exact = 0 };
    eg_trainer *t =
        cx ? eg_trainer_new(eg_data_task(cx, eg_task_find("reverse")), .seed = (uint64_t)seed)
           : NULL;
    bool bad = !t || eg_trainer_run(t, NULL, NULL, &p) || p.exact < 0.99;
    printf("steps %lld exact %.3f\n", (long long)p.step, p.exact);
    eg_close(cx);
    return bad;
}
/* The programs of one library that train to the goal: seconds, and their steps as text. */
typedef struct trainings {
    double seconds;
    char steps[128];
    bool failed;
} trainings;
static void trained(trainings *t, char *const *argv)
{
    char last[256];
    int n = 0;
    const double seconds = bench_shell(argv, last, sizeof last);
    const size_t used = strlen(t->steps);
    t->failed = t->failed || seconds < 0 || sscanf(last, "steps %d", &n) != 1;
    t->seconds += seconds;
    snprintf(t->steps + used, sizeof t->steps - used, " %d", n);
}
/* The mean of some seeds, since the number of steps to the goal varies: 325 to 450. */
static void goal(void)
{
    const char *name = "reverse to 99 % of 1000 test sequences, from program start, mean";
    if (!bench_wanted("train", name, EG_F32)) return;
    char threads[16], seed[16], path[4096], preload[4096], note[600];
    trainings own = { .failed = false }, torch = { .failed = !bench_version("PyTorch") };
    const int seeds = bench_quick ? 1 : 5;
    snprintf(threads, sizeof threads, "%d", bench_threads);
    snprintf(path, sizeof path, "%s/peers.py", bench_folder());
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", bench_mkl());
    for (int s = 0; s < seeds; s++) {
        snprintf(seed, sizeof seed, "%d", s);
        trained(&own,
                (char *[]){ (char *)(uintptr_t)bench_self(), "--to-goal", threads, seed, NULL });
        if (!torch.failed)
            trained(&torch, (char *[]){ "env", preload, (char *)(uintptr_t)bench_python(), path,
                                        "--to-goal", threads, seed, NULL });
    }
    if (own.failed) {
        fprintf(stderr, "bench: %s: a program failed or missed the goal; steps:%s\n", name,
                own.steps);
        return;
    }
    snprintf(note, sizeof note, "steps%s%s%s", own.steps,
             torch.failed ? "" : "; PyTorch:", torch.failed ? "" : torch.steps);
    bench_wall("train", name, own.seconds / seeds, torch.failed ? -1 : torch.seconds / seeds, note);
}

void model_cases(void)
{
    tape();
    rows();
    train();
    characters();
    goal();
}
