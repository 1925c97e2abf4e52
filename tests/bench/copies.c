/* copies.c: what a step of S models in one costs compared with S steps of single models: forward,
 * gradient and Adam of a decoder of 2 layers, 2 heads, 12 positions and 13 tokens, on one thread.
 * Prints the tables of docs/measurements.md: the processor time of a step, as it is called,
 * captured, and by eg_step_over, which computes one copy after another; and that of the gradient of
 * a batch beside the gradients of its examples (eg_grad_each).
 *
 * With three numbers, `copies WIDTH BATCH WAY`, it prints one row of the first table; WAY is 0 for
 * a step that is called, 1 for a captured one, 2 for eg_step_over. With four numbers,
 * `copies WIDTH BATCH COPIES STEPS`, it does nothing but this number of steps after two that warm
 * up, in steps_measured(), for a profiler; COPIES 0 is a single model. A fifth number is WAY:
 *
 *     valgrind --tool=callgrind --toggle-collect=steps_measured tests/bench/copies 16 1 32 10 */
#include <eingrad.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PLACES = 12, TOKENS = 13, TURNS = 7, MOST = 32, BATCH_MOST = 32 };
typedef struct bench_model {
    eg_ctx *cx;
    eg_transformer *net;
    eg_opt *opt;
    eg_tensor *token;
    eg_captured *again; /* NULL: the step is called */
    int batch;          /* examples of the block of eg_step_over; 0: the step is another one */
} bench_model;
/* How a step is made. */
enum { CALLED, CAPTURED, BLOCKS, WAYS };
static const char *const way_name[WAYS] = { "called", "captured", "`eg_step_over`" };

static int step(void *user, eg_tensor **out)
{
    const bench_model *m = user;
    eg_tensor *y = eg_transformer_run(m->net, m->token, .where = "j <= i");
    out[0] = eg_cross_entropy("b l [v]", y, m->token, .ignore = -1);
    return eg_step(m->opt, out[0]);
}
static eg_tensor *block_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    const bench_model *m = user;
    eg_tensor *t = eg_block_rows(cx, "t");
    eg_tensor *y = eg_transformer_run(m->net, t, .where = "j <= i");
    *count = (to - from) * PLACES;
    return eg_scale(eg_cross_entropy("b l [v]", y, t, .ignore = -1), (double)*count);
}
/* Makes a step in the open scope. Returns 0, or another number after an error. */
static int step_made(bench_model *m)
{
    eg_tensor *out[1];
    if (m->again) return eg_captured_run(m->again);
    if (!m->batch) return step(m, out);
    return eg_step_over(m->opt, block_loss, m, .batch = { { "t", m->token } }, .examples = m->batch,
                        .block = m->batch);
}
/* list: NULL, or where the list of parameters is left. */
static bool prepare(bench_model *m, eg_params **list, int width, int batch, int copies, int way)
{
    static int64_t t[MOST * BATCH_MOST * PLACES];
    eg_ctx *cx = m->cx = eg_open(.threads = 1, .seed = 1);
    for (int k = 0; k < MOST * BATCH_MOST * PLACES; k++) t[k] = (int64_t)k * k % TOKENS;
    eg_params *p = eg_params_open(cx, .copies = copies);
    if (list) *list = p;
    m->net = eg_transformer_new(p, "", .vocabulary = TOKENS, .length = PLACES, .d_model = width,
                                .heads = 2, .layers = 2);
    m->opt = eg_adam(p, .lr = 1e-3, .clip_norm = 1);
    m->token =
        eg_from_n(cx, EG_I64, t, copies ? 3 : 2,
                  copies ? (int64_t[]){ copies, batch, PLACES } : (int64_t[]){ batch, PLACES });
    if (copies) m->token = eg_copies_unstack(eg_params_copies(p), m->token);
    m->again = way == CAPTURED ? eg_capture(cx, step, m, 1) : NULL;
    m->batch = way == BLOCKS ? batch : 0;
    if (!eg_error(cx)) return true;
    fprintf(stderr, "copies: %s\n", eg_error(cx));
    return false;
}
static void steps_measured(bench_model *m, int count) __attribute__((noinline));
static void steps_measured(bench_model *m, int count)
{
    for (int k = 0; k < count; k++) {
        const eg_mark mark = eg_push(m->cx);
        if (step_made(m)) fprintf(stderr, "copies: %s\n", eg_error(m->cx));
        eg_pop(m->cx, mark);
    }
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
/* Prints a row: the ms of a step of a single model and of S copies, each the least of the turns,
 * and the ratio to S steps of the single model. */
static void row(int width, int batch, int way)
{
    static const int many[] = { 0, 1, 8, 32 };
    enum { CASES = sizeof many / sizeof *many };
    bench_model m[CASES];
    double best[CASES];
    bool good = true;
    for (int k = 0; k < CASES; k++) {
        good &= prepare(&m[k], NULL, width, batch, many[k], way);
        best[k] = 1e9;
    }
    for (int turn = -1; good && turn < TURNS; turn++)
        for (int k = 0; k < CASES; k++) {
            const int times = 1 + 6400 / ((1 + many[k]) * batch * (width / 16));
            const double start = seconds();
            steps_measured(&m[k], times);
            const double each = 1e3 * (seconds() - start) / times;
            if (turn >= 0 && each < best[k]) best[k] = each;
        }
    if (good)
        printf("| %d | %d | %s | %.3f | %.3f | %.3f | %.2f | %.2f | %.2f |\n", width, batch,
               way_name[way], best[0], best[1], best[2], best[3], best[2] / (8 * best[0]),
               best[3] / (32 * best[0]));
    fflush(stdout);
    for (int k = 0; k < CASES; k++) eg_close(m[k].cx);
}

/* Loss and gradient of a batch, or (each) of all its examples, which are copies; no update. */
static void gradients(bench_model *m, eg_params *p, const eg_copies *each)
{
    eg_tensor *x[64], *d[64], *t = m->token;
    const int n = eg_params_count(p);
    for (int k = 0; k < n && k < 64; k++) x[k] = eg_params_at(p, k)->x;
    if (each) t = eg_copies_unstack(each, eg_rearrange("b l -> b 1 l", t));
    eg_tensor *loss = eg_cross_entropy("b l [v]", eg_transformer_run(m->net, t, .where = "j <= i"),
                                       t, .ignore = -1);
    if (each)
        eg_grad_each(loss, n, x, d);
    else
        eg_grad(loss, NULL, n, x, d);
}
/* Prints a row: ms of the gradient of a batch and of the gradients of its examples, and their
 * ratio. */
static void row_each(int width, int batch)
{
    bench_model m;
    double best[2] = { 1e9, 1e9 };
    eg_params *p = NULL;
    bool good = prepare(&m, &p, width, batch, 0, CALLED);
    const eg_copies *each = good ? eg_copies_open(eg_params_owner(p), batch, NULL) : NULL;
    for (int turn = -1; good && turn < TURNS; turn++)
        for (int k = 0; k < 2; k++) {
            const int times = 1 + 3200 / (batch * (width / 16));
            const double start = seconds();
            for (int t = 0; t < times; t++) {
                const eg_mark mark = eg_push(m.cx);
                gradients(&m, p, k ? each : NULL);
                eg_pop(m.cx, mark);
            }
            const double once = 1e3 * (seconds() - start) / times;
            if (turn >= 0 && once < best[k]) best[k] = once;
        }
    if (good && eg_error(m.cx)) fprintf(stderr, "copies: %s\n", eg_error(m.cx));
    printf("| %d | %d | %.3f | %.3f | %.2f |\n", width, batch, best[0], best[1], best[1] / best[0]);
    fflush(stdout);
    eg_close(m.cx);
}

int main(int argc, char **argv)
{
    int n[5] = { 0 };
    for (int k = 1; k < argc && k <= 5; k++) n[k - 1] = atoi(argv[k]);
    if (argc == 4 && n[1] <= BATCH_MOST && n[2] < WAYS) {
        row(n[0], n[1], n[2]);
        return 0;
    }
    if (argc > 4) {
        bench_model m;
        if (n[1] > BATCH_MOST || n[2] > MOST || !prepare(&m, NULL, n[0], n[1], n[2], n[4]))
            return 1;
        for (int k = 0; k < 2; k++) {
            const eg_mark mark = eg_push(m.cx);
            if (step_made(&m)) return 1;
            eg_pop(m.cx, mark);
        }
        steps_measured(&m, n[3]);
        eg_close(m.cx);
        return 0;
    }
    printf("| width | batch | step | one run | S = 1 | S = 8 | S = 32 | 8 copies/8 runs | "
           "32 copies/32 runs |\n|---|---|---|---|---|---|---|---|---|\n");
    static const int width[] = { 16, 64 }, batch[] = { 1, 8, 32 };
    for (int w = 0; w < 2; w++)
        for (int b = 0; b < 3; b++)
            for (int way = 0; way < WAYS; way++) row(width[w], batch[b], way);
    printf("\n| width | batch | gradient of the batch | gradients of the examples | ratio |\n"
           "|---|---|---|---|---|\n");
    for (int w = 0; w < 2; w++)
        for (int b = 1; b < 3; b++) row_each(width[w], batch[b]);
    return 0;
}
