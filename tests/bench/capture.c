/* capture.c: steps of fixed shapes that are captured and run again, beside the same steps as they
 * are: modules with all gradients, and 20 operations on 64 numbers with gradients. A third
 * contender runs the captured list with the bodies of its rows replaced by nothing; what it takes
 * is the list's own, and the rest is arithmetic. Processor time counts, not the clock's: these
 * steps are short, and other programs' turns would drown them. */
#include <stdlib.h>
#include <time.h>
#include "bench.h"
#include "tensor/tensor.h"

enum { CONTESTED = 3, TURNS = 15 };
typedef struct captive {
    module m; /* else params is NULL, and these are what the graph reads: */
    eg_tensor *x, *w, *b;
} captive;
static int module_step(void *user, eg_tensor **out)
{
    const captive *m = user;
    return module_pass(&m->m, out) < 0;
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
static bool captive_again(void *user, int64_t n)
{
    eg_captured *c = user;
    for (int64_t k = 0; k < n; k++)
        if (eg_captured_run(c)) return false;
    return true;
}
static bool captive_eager(void *user, int64_t n)
{
    const captive *m = user;
    eg_tensor *out[MODULE_GRADIENTS];
    for (int64_t k = 0; k < n; k++) {
        const eg_mark mark = eg_push(bench_cx);
        if (m->m.params ? module_step(user, out) : graph_step(user, out)) return false;
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
/* Seconds of a call: of `calls` calls, the best of three such rows. */
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
    for (int k = 0; k < CONTESTED; k++) captive_turn(&list[k], 10); /* warm */
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
    int outputs = 3;
    for (int k = 0; m->m.params && eg_params_at(m->m.params, k); k++) outputs = k + 2;
    int (*const step)(void *, eg_tensor **) = m->m.params ? module_step : graph_step;
    eg_captured *c = eg_capture(bench_cx, step, m, outputs),
                *hollow = eg_capture(bench_cx, step, m, outputs);
    if (!c || !hollow) {
        fprintf(stderr, "%s: %s\n", name, eg_error(bench_cx));
        return;
    }
    int64_t items;
    const int64_t steps = eg__captured_hollow(hollow, &items);
    const contender list[CONTESTED] = {
        { .name = "captured", .run = captive_again, .user = c },
        { .name = "eager", .run = captive_eager, .user = m },
        { .name = "hollow", .run = captive_again, .user = hollow }
    };
    captive_compare(name, list, steps, items);
}

void capture_cases(void)
{
    static const module_size sizes[] = { { 1, 8, 16, 2 }, { 32, 16, 64, 4 } };
    char name[96];
    if (!bench_wanted("capture", "", EG_F32)) return;
    printf("\n%-32s %9s %9s %6s %9s %11s %6s %6s %9s %11s\n", "processor time of a step, µs",
           "eager", "captured", "ratio", "bodyless", "arithmetic", "rows", "items", "ns a row",
           "of the aim");
    for (int kind = 0; kind < 2; kind++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            module_name(kind, &sizes[k], name, sizeof name);
            if (!bench_wanted("capture", name, EG_F32)) continue;
            const eg_mark mark = eg_push(bench_cx);
            captive m = { .m = module_open(kind, &sizes[k]) };
            captive_case(name, &m);
            eg_pop(bench_cx, mark);
        }
    if (!bench_wanted("capture", "20 operations on 64 numbers", EG_F32)) return;
    const eg_mark mark = eg_push(bench_cx);
    captive m = { .x = eg_normal(bench_cx, 0, 1, 64),
                  .w = eg_normal(bench_cx, 0, 1, 64),
                  .b = eg_normal(bench_cx, 0, 1, 64) };
    captive_case("20 operations on 64 numbers", &m);
    eg_pop(bench_cx, mark);
}
