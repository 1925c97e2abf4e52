/* capture.c: steps of fixed shapes that are captured and run again, compared with the same steps as
 * they are called: modules with all gradients, steps of training, and 20 operations on 64 elements
 * with gradients. A third contender runs the captured list without its kernels; its time is that of
 * the list itself, and the rest is arithmetic. Processor time is measured, not wall time, since
 * these steps are shorter than the time slices of other programs. */
#include <stdlib.h>
#include <time.h>
#include "bench.h"
#include "tensor/tensor.h"

enum { MOST = 32, CONTESTED = 3, TURNS = 15 };
typedef struct captive {
    eg_mha *mha;
    eg_block *block;
    eg_params *params;
    eg_transformer *net;
    eg_opt *opt;
    eg_tensor *x, *g, *w, *b, *token, *target;
    int (*step)(void *user, eg_tensor **out);
    int outputs;
} captive;
static int module_step(void *user, eg_tensor **out)
{
    const captive *m = user;
    eg_tensor *xs[MOST] = { m->x };
    int count = 1;
    for (; count < MOST && eg_params_at(m->params, count - 1); count++)
        xs[count] = eg_params_at(m->params, count - 1)->x;
    eg_tensor *y = m->mha ? eg_mha_run(m->mha, m->x) : eg_block_run(m->block, m->x);
    eg_nograd(bench_cx, true);
    const int bad = eg_grad(y, m->g, count, xs, out);
    eg_nograd(bench_cx, false);
    return bad;
}
static int graph_step(void *user, eg_tensor **out)
{
    const captive *m = user;
    eg_tensor *h = m->x;
    for (int k = 0; k < 4; k++) {
        h = eg_sigmoid(eg_tanh(eg_add(eg_mul(h, m->w), m->b)));
        h = k < 3 ? eg_sub(h, m->x) : eg_sum(NULL, h);
    }
    eg_nograd(bench_cx, true);
    const int bad = eg_grad(h, NULL, 3, (eg_tensor *[]){ m->x, m->w, m->b }, out);
    eg_nograd(bench_cx, false);
    return bad;
}
static int training_step(void *user, eg_tensor **out)
{
    const captive *m = user;
    eg_tensor *y = eg_transformer_run(.transformer = m->net, .index = m->token, .where = "j <= i");
    out[0] = eg_cross_entropy("b l [v]", y, m->target, .ignore = -1);
    return eg_step(m->opt, out[0]);
}
static bool captive_again(void *user, int64_t n)
{
    eg_captured *c = user;
    for (int64_t k = 0; k < n; k++)
        if (eg_captured_run(c)) return false;
    return true;
}
static bool captive_eager(void *user, int64_t n)
{
    captive *m = user;
    eg_tensor *out[MOST];
    for (int64_t k = 0; k < n; k++) {
        const eg_mark mark = eg_push(bench_cx);
        if (m->step(m, out)) return false;
        eg_pop(bench_cx, mark);
    }
    return true;
}

static double captive_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
/* Returns the seconds of a call: the best of three measurements of `calls` calls. */
static double captive_turn(const contender *c, int64_t calls)
{
    double best = 0;
    for (int k = 0; k < 3; k++) {
        const double before = captive_clock();
        if (!c->run(c->user, calls)) return 0;
        const double t = (captive_clock() - before) / (double)calls;
        if (!k || t < best) best = t;
    }
    return best;
}
static int captive_by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double captive_median(double *x)
{
    qsort(x, TURNS, sizeof *x, captive_by_size);
    return x[TURNS / 2];
}
/* Prints the median times of a case and the median of the paired ratios. */
static void captive_compare(const char *name, const contender *list, int64_t steps, int64_t items)
{
    double t[CONTESTED][TURNS], ratio[TURNS], own[TURNS];
    for (int k = 0; k < CONTESTED; k++) captive_turn(&list[k], 10); /* warm up */
    const double long_enough = bench_quick ? 5e-4 : 4e-3, each = captive_turn(&list[0], 20);
    const int64_t calls = 1 + (int64_t)(long_enough / (each > 0 ? each : 1));
    for (int q = 0; q < TURNS; q++) {
        for (int k = 0; k < CONTESTED; k++)
            if ((t[k][q] = captive_turn(&list[k], calls)) <= 0) return;
        ratio[q] = t[0][q] / t[1][q];
        own[q] = t[2][q];
    }
    const double r = captive_median(ratio), c = captive_median(t[0]), e = captive_median(t[1]),
                 o = captive_median(own);
    printf("%-32s %9.2f %9.2f %6.2f %9.2f %11.2f %6lld %6lld %9.1f %11.2f\n", name, 1e6 * e,
           1e6 * c, r, 1e6 * o, 1e6 * (c - o), (long long)steps, (long long)items,
           1e9 * o / (double)steps, c / (1.25 * (c - o) + 1e-8 * (double)steps));
    fflush(stdout);
}
static void captive_case(const char *name, captive *m)
{
    eg_captured *c = eg_capture(bench_cx, m->step, m, m->outputs),
                *empty_steps = eg_capture(bench_cx, m->step, m, m->outputs);
    if (!c || !empty_steps) {
        fprintf(stderr, "%s: %s\n", name, eg_error(bench_cx));
        return;
    }
    int64_t items;
    const int64_t steps = eg__captured_without_kernels(empty_steps, &items);
    const contender list[CONTESTED] = {
        { .name = "captured", .run = captive_again, .user = c },
        { .name = "eager", .run = captive_eager, .user = m },
        { .name = "list", .run = captive_again, .user = empty_steps }
    };
    captive_compare(name, list, steps, items);
}

/* Loss, gradients and Adam of a language model of two layers. */
static void training_cases(void)
{
    static const int64_t table[][4] = { { 4, 16, 16, 4 }, { 64, 16, 64, 4 } };
    char name[96];
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        const int64_t *t = table[k];
        snprintf(name, sizeof name, "training (%lld,%lld,%lld,%lld)", (long long)t[0],
                 (long long)t[1], (long long)t[2], (long long)t[3]);
        if (!bench_wanted("capture", name, EG_F32)) continue;
        const eg_mark mark = eg_push(bench_cx);
        captive m = { .params = eg_params_open(bench_cx), .step = training_step, .outputs = 1 };
        m.net = eg_transformer_new(.params = m.params, .vocabulary = 16, .length = t[1],
                                   .layers = 2, .d_model = t[2], .heads = t[3]);
        m.opt = eg_adam(m.params);
        m.token = eg_randint(bench_cx, 0, 16, t[0], t[1]);
        m.target = eg_randint(bench_cx, 0, 16, t[0], t[1]);
        captive_case(name, &m);
        eg_pop(bench_cx, mark);
    }
}

void capture_cases(void)
{
    static const struct {
        int64_t batch, length, width, heads;
    } table[] = { { 1, 8, 16, 2 }, { 32, 16, 64, 4 } };
    static const char *const kinds[] = { "attention", "encoder" };
    char name[96];
    if (!bench_wanted("capture", "", EG_F32)) return;
    printf("\n%-32s %9s %9s %6s %9s %11s %6s %6s %9s %11s\n", "processor time of a step, µs",
           "eager", "captured", "ratio", "bodyless", "arithmetic", "rows", "items", "ns a row",
           "of the aim");
    for (int kind = 0; kind < 2; kind++)
        for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
            const int64_t b = table[k].batch, l = table[k].length, w = table[k].width,
                          h = table[k].heads;
            snprintf(name, sizeof name, "%s (%lld,%lld,%lld,%lld)", kinds[kind], (long long)b,
                     (long long)l, (long long)w, (long long)h);
            if (!bench_wanted("capture", name, EG_F32)) continue;
            const eg_mark mark = eg_push(bench_cx);
            captive m = { .params = eg_params_open(bench_cx), .step = module_step, .outputs = 1 };
            if (kind)
                m.block = eg_block_new(m.params, "block", .d_model = w, .heads = h);
            else
                m.mha = eg_mha_new(m.params, "mha", .d_model = w, .heads = h);
            m.x = eg_normal(bench_cx, 0, 1, b, l, w);
            m.g = eg_normal(bench_cx, 0, 1, b, l, w);
            while (eg_params_at(m.params, m.outputs - 1)) m.outputs++;
            captive_case(name, &m);
            eg_pop(bench_cx, mark);
        }
    training_cases();
    if (!bench_wanted("capture", "20 operations on 64 numbers", EG_F32)) return;
    const eg_mark mark = eg_push(bench_cx);
    captive m = { .x = eg_normal(bench_cx, 0, 1, 64),
                  .w = eg_normal(bench_cx, 0, 1, 64),
                  .b = eg_normal(bench_cx, 0, 1, 64),
                  .step = graph_step,
                  .outputs = 3 };
    captive_case("20 operations on 64 numbers", &m);
    eg_pop(bench_cx, mark);
}
