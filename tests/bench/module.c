/* module.c: multi-head self-attention as a module, and an encoder layer; forward, and all
 * gradients. Compared with nn.MultiheadAttention, with the same on scaled_dot_product_attention,
 * with nn.TransformerEncoder, and with the compiled form of the second where torch.compile works
 * (peers.py). */
#include "bench.h"
#include <string.h>

typedef struct module {
    eg_mha *mha;
    eg_block *block;
    eg_params *params;
    eg_tensor *x, *g;
} module;
static bool pass(void *user, int64_t n)
{
    enum { MOST = 32 };
    const module *m = user;
    for (int64_t k = 0; k < n; k++) {
        const eg_mark mark = eg_push(bench_cx);
        eg_tensor *xs[MOST] = { m->x }, *dxs[MOST];
        int count = 1;
        for (; count < MOST && eg_params_at(m->params, count - 1); count++)
            xs[count] = eg_params_at(m->params, count - 1)->x;
        eg_tensor *y = m->mha ? eg_mha_run(m->mha, m->x) : eg_block_run(m->block, m->x);
        eg_nograd(bench_cx, true);
        eg_grad(y, m->g, count, xs, dxs);
        eg_nograd(bench_cx, false);
        eg_pop(bench_cx, mark);
    }
    return !eg_error(bench_cx);
}

void module_cases(void)
{
    static const struct {
        int64_t batch, length, width, heads;
    } table[] = { { 1, 8, 16, 2 }, { 32, 16, 64, 4 }, { 10, 60, 512, 8 }, { 4, 512, 512, 8 } };
    static const char *const kinds[] = { "attention", "encoder" };
    static const char *const peers[] = { "PyTorch", "SDPA", "compiled" };
    for (int kind = 0; kind < 2; kind++)
        for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
            const int64_t b = table[k].batch, l = table[k].length, w = table[k].width,
                          h = table[k].heads;
            char name[96], line[128], reply[256];
            snprintf(name, sizeof name, "%s (%lld,%lld,%lld,%lld)", kinds[kind], (long long)b,
                     (long long)l, (long long)w, (long long)h);
            if (!bench_wanted("module", name, EG_F32)) continue;
            const eg_mark mark = eg_push(bench_cx);
            module m = { .params = eg_params_open(bench_cx) };
            if (kind)
                m.block = eg_block_new(m.params, "block", .d_model = w, .heads = h);
            else
                m.mha = eg_mha_new(m.params, "mha", .d_model = w, .heads = h);
            m.x = eg_normal(bench_cx, 0, 1, b, l, w);
            m.g = eg_normal(bench_cx, 0, 1, b, l, w);
            contender list[CONTENDERS] = { { .name = "eingrad", .run = pass, .user = &m } };
            int n = 1;
            snprintf(line, sizeof line, "op module %s %lld %lld %lld %lld %d", kinds[kind],
                     (long long)b, (long long)l, (long long)w, (long long)h, !bench_quick && !kind);
            if (bench_ask("PyTorch", line, reply, sizeof reply) && !strncmp(reply, "ok", 2))
                for (int p = 0; p < 3; p++)
                    if (strstr(reply, peers[p]))
                        list[n++] = (contender){ .name = peers[p], .peer = "PyTorch" };
            const double rows = (double)(b * l),
                         flop =
                             3 * rows * (double)w * ((kind ? 24 : 8) * (double)w + 4 * (double)l);
            bench_case(&(report){ "module", name, NULL, EG_F32, flop, 0, 0 }, n, list);
            eg_pop(bench_cx, mark);
        }
}
