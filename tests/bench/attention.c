/* attention.c: attention alone, 8 heads of 64, compared with PyTorch's
 * scaled_dot_product_attention. The count of multiply-adds excludes what the mask forbids: two
 * products forward, five in the gradient (the scores are computed again). */
#include "bench.h"
#include <string.h>

enum { HEADS = 8, WIDTH = 64 };
typedef struct attention {
    eg_tensor *x[3], *g;
    const char *where;
    bool gradient;
} attention;
static bool attend(void *user, int64_t n)
{
    const attention *a = user;
    for (int64_t k = 0; k < n; k++) {
        eg_mark m = eg_push(bench_cx);
        eg_tensor *y = eg_attention("bihd,bjhd,bjhe->bihe", a->x[0], a->x[1], a->x[2],
                                    .where = a->where),
                  *d[3];
        if (a->gradient) eg_grad(y, a->g, 3, a->x, d);
        eg_pop(bench_cx, m);
    }
    return !eg_error(bench_cx);
}

void attention_cases(void)
{
    static const struct {
        int64_t length;
        const char *name, *where;
        int window;
    } table[] = {
        { 1024, "causal", "j <= i", 0 },
        { 4096, "causal", "j <= i", 0 },
        { 4096, "no mask", NULL, 0 },
        { 16384, "causal", "j <= i", 0 },
        { 16384, "window 256", "i - 256 < j <= i", 256 },
    };
    for (size_t k = 0; k < sizeof table / sizeof *table; k++)
        for (int g = 0; g < 2; g++) {
            char name[96], line[96], reply[256];
            const int64_t n = table[k].length;
            snprintf(name, sizeof name, "%s, length %lld%s", table[k].name, (long long)n,
                     g ? ", forward and gradient" : "");
            if (!bench_wanted("sdpa", name, EG_F32) || (bench_quick && n > 4096)) continue;
            eg_mark m = eg_push(bench_cx);
            attention a = { .where = table[k].where, .gradient = g };
            for (int t = 0; t < 3; t++) a.x[t] = eg_normal(bench_cx, 0, 1, 1, n, HEADS, WIDTH);
            a.g = eg_normal(bench_cx, 0, 1, 1, n, HEADS, WIDTH);
            const double w = table[k].window, d = (double)n;
            const double pairs = w > 0            ? w * d - w * (w - 1) / 2
                                 : table[k].where ? d * (d + 1) / 2
                                                  : d * d;
            contender list[CONTENDERS] = { { .name = "eingrad", .run = attend, .user = &a } };
            int contenders = 1;
            snprintf(line, sizeof line, "op sdpa %lld %s %s", (long long)n,
                     table[k].where ? "causal" : "full", g ? "gradient" : "forward");
            if (!table[k].window && bench_ask("PyTorch", line, reply, sizeof reply) &&
                !strncmp(reply, "ok", 2))
                list[contenders++] = (contender){ .name = "PyTorch" };
            eg_nograd(bench_cx, !g);
            bench_case(
                &(report){ "sdpa", name, NULL, EG_F32, (g ? 14 : 4) * pairs * HEADS * WIDTH, 0, 0 },
                contenders, list);
            eg_nograd(bench_cx, false);
            eg_pop(bench_cx, m);
        }
}
