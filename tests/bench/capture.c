/* capture.c: steps of fixed shapes that are captured and run again, beside the same steps as they
 * are (the contender "eager"): modules with all gradients, and 20 operations on 64 numbers. */
#include "bench.h"

enum { MOST = 32 };
typedef struct captive {
    eg_mha *mha;
    eg_block *block;
    eg_params *params;
    eg_tensor *x, *g, *w, *b;
    eg_captured *c;
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
    eg_tensor *out[MOST];
    for (int64_t k = 0; k < n; k++) {
        const eg_mark mark = eg_push(bench_cx);
        if (m->params ? module_step(user, out) : graph_step(user, out)) return false;
        eg_pop(bench_cx, mark);
    }
    return true;
}
static void captive_case(const char *name, captive *m)
{
    int outputs = 3;
    for (int k = 0; m->params && eg_params_at(m->params, k); k++) outputs = k + 2;
    if (!(m->c = eg_capture(bench_cx, m->params ? module_step : graph_step, m, outputs))) {
        fprintf(stderr, "%s: %s\n", name, eg_error(bench_cx));
        return;
    }
    const contender list[] = { { .name = "eingrad", .run = captive_again, .user = m },
                               { .name = "eager", .run = captive_eager, .user = m } };
    bench_case(&(report){ "capture", name, NULL, EG_F32, 0, 0, 0 }, 2, list);
}

void capture_cases(void)
{
    static const struct {
        int64_t batch, length, width, heads;
    } table[] = { { 1, 8, 16, 2 }, { 32, 16, 64, 4 } };
    static const char *const kinds[] = { "attention", "encoder" };
    char name[96];
    for (int kind = 0; kind < 2; kind++)
        for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
            const int64_t b = table[k].batch, l = table[k].length, w = table[k].width,
                          h = table[k].heads;
            snprintf(name, sizeof name, "%s (%lld,%lld,%lld,%lld)", kinds[kind], (long long)b,
                     (long long)l, (long long)w, (long long)h);
            if (!bench_wanted("capture", name, EG_F32)) continue;
            const eg_mark mark = eg_push(bench_cx);
            captive m = { .params = eg_params_open(bench_cx) };
            if (kind)
                m.block = eg_block_new(m.params, "block", .d_model = w, .heads = h);
            else
                m.mha = eg_mha_new(m.params, "mha", .d_model = w, .heads = h);
            m.x = eg_normal(bench_cx, 0, 1, b, l, w);
            m.g = eg_normal(bench_cx, 0, 1, b, l, w);
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
