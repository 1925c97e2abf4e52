/* capture.c: steps of fixed shapes that are captured and run again, beside the same steps as they
 * are (the contender "eager"): modules with all gradients, and 20 operations on 64 numbers. */
#include "bench.h"

typedef struct captive {
    module m; /* else params is NULL, and these are what the graph reads: */
    eg_tensor *x, *w, *b;
    eg_captured *c;
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
    const captive *m = user;
    for (int64_t k = 0; k < n; k++)
        if (eg_captured_run(m->c)) return false;
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
static void captive_case(const char *name, captive *m)
{
    int outputs = 3;
    for (int k = 0; m->m.params && eg_params_at(m->m.params, k); k++) outputs = k + 2;
    if (!(m->c = eg_capture(bench_cx, m->m.params ? module_step : graph_step, m, outputs))) {
        fprintf(stderr, "%s: %s\n", name, eg_error(bench_cx));
        return;
    }
    const contender list[] = { { .name = "eingrad", .run = captive_again, .user = m },
                               { .name = "eager", .run = captive_eager, .user = m } };
    bench_case(&(report){ "capture", name, NULL, EG_F32, 0, 0, 0 }, 2, list);
}

void capture_cases(void)
{
    static const module_size sizes[] = { { 1, 8, 16, 2 }, { 32, 16, 64, 4 } };
    char name[96];
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
