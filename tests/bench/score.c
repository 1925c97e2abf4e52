/* score.c: published scores and masks beside plain causal attention of the same sizes, and forward
 * beside PyTorch's flex_attention, which does not train on a CPU. 2048 positions, 4 heads of 32.
 * Gradients are those of the queries, keys, values and learned numbers. */
#include "bench.h"
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 2048, HEADS = 4, WIDTH = 32, BUCKETS = 128 };
/* What a score reads: nothing, a slope for each head, a table by distance, a gate for each place,
 * the number of the document at each place. */
typedef enum reads { NOTHING, SLOPES, TABLE, GATES, DOCUMENTS } reads;
typedef struct kind {
    const char *name, *flex; /* flex: the peer's name for it; NULL: it has none */
    const char *where, *score;
    bool no_softmax;
    reads reads;
    int64_t document; /* positions of a document; 0: the whole length is one */
} kind;
static const kind kinds[] = {
    { "causal", "causal", "j <= i", NULL, false, NOTHING, 0 },
    { "soft cap", "cap", "j <= i", "30 * tanh(score / 30)", false, NOTHING, 0 },
    { "sigmoid", NULL, "j <= i", "sigmoid(score)", true, NOTHING, 0 },
    { "learned ALiBi", "alibi", "j <= i", "score - r[h] * (i - j)", false, SLOPES, 0 },
    { "T5's table", "table", "j <= i", "score + r[h, clip(i - j, 0, 127)]", false, TABLE, 0 },
    { "forgetting gates", "gates", "j <= i", "score + r[h,i] - r[h,j]", false, GATES, 0 },
    { "eight documents", "documents256", "j <= i & r[i] == r[j]", NULL, false, DOCUMENTS, 256 },
    { "documents of 128", "documents128", "j <= i & r[i] == r[j]", NULL, false, DOCUMENTS, 128 },
};

typedef struct scored {
    const kind *kind;
    eg_tensor *x[4], *g; /* q, k, v, and what the score reads */
    bool gradient;
} scored;
static bool score(void *user, int64_t n)
{
    const scored *s = user;
    const kind *d = s->kind;
    const int learned = d->reads != NOTHING && d->reads != DOCUMENTS;
    for (int64_t k = 0; k < n; k++) {
        const eg_mark m = eg_push(bench_cx);
        eg_tensor *dx[4],
            *y = eg_attention("bihd,bjhd,bjhe->bihe", s->x[0], s->x[1], s->x[2], .where = d->where,
                              .score = d->score, .no_softmax = d->no_softmax,
                              .with = { { s->x[3] ? "r" : NULL, s->x[3] } });
        if (s->gradient) eg_grad(y, s->g, 3 + learned, s->x, dx);
        eg_pop(bench_cx, m);
    }
    return !eg_error(bench_cx);
}
static eg_tensor *read_of(const kind *d)
{
    if (d->reads == NOTHING) return NULL;
    if (d->reads == SLOPES) return eg_uniform(bench_cx, 0, .1, HEADS);
    if (d->reads == TABLE) return eg_normal(bench_cx, 0, 1, HEADS, BUCKETS);
    if (d->reads == GATES) return eg_cumsum("h [i]", eg_uniform(bench_cx, -.1, 0, HEADS, LENGTH));
    int32_t of[LENGTH];
    for (int64_t i = 0; i < LENGTH; i++) of[i] = (int32_t)(i / d->document);
    return eg_from(bench_cx, of, LENGTH);
}

void score_cases(void)
{
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int gradient = 0; gradient < 2; gradient++) {
            const kind *d = &kinds[k];
            char name[96], line[96], reply[256];
            snprintf(name, sizeof name, "%s%s", d->name, gradient ? ", forward and gradient" : "");
            if (!bench_wanted("score", name, EG_F32)) continue;
            const eg_mark m = eg_push(bench_cx);
            scored s = { .kind = d, .gradient = gradient };
            for (int t = 0; t < 3; t++) s.x[t] = eg_normal(bench_cx, 0, 1, 1, LENGTH, HEADS, WIDTH);
            s.g = eg_normal(bench_cx, 0, 1, 1, LENGTH, HEADS, WIDTH);
            s.x[3] = read_of(d);
            scored causal = s;
            causal.kind = &kinds[0];
            causal.x[3] = NULL;
            const double of = (double)(d->document ? d->document : LENGTH),
                         pairs = LENGTH * (of + 1) / 2;
            contender list[CONTENDERS] = { { .name = "eingrad", .run = score, .user = &s } };
            int contenders = 1;
            if (k) list[contenders++] = (contender){ "causal", score, &causal, NULL };
            snprintf(line, sizeof line, "op flex %s", d->flex ? d->flex : "");
            if (!gradient && d->flex && !bench_quick &&
                bench_ask("PyTorch", line, reply, sizeof reply) && !strncmp(reply, "ok", 2))
                list[contenders++] = (contender){ .name = "PyTorch" };
            eg_nograd(bench_cx, !gradient);
            bench_case(&(report){ "score", name, NULL, EG_F32,
                                  (gradient ? 14 : 4) * pairs * HEADS * WIDTH, 0, 0 },
                       contenders, list);
            eg_nograd(bench_cx, false);
            eg_pop(bench_cx, m);
        }
}
