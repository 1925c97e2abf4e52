/* Associative recall with several questions, MQAR (Arora et al. 2024, "Zoology"): four pairs of a
 * key and its value, then 56 positions of which four ask for a key again; the answer there is its
 * value. Keys and values are of a vocabulary of 8192. The cell of their Fig. 2 with 64 positions, 4
 * pairs and width 64: two layers of attention with one head and nothing between them. Logits are
 * made where there are questions, and nowhere else. */
#include "reproduce.h"

enum { PAIRS = 4, L = 64, D = 64, MOST = 8192, TEST = 500 };
typedef struct model {
    int symbols;
    eg_embedding *E; /* of tokens, and of logits */
    eg_mha *layer[2];
    eg_tensor *distance[2]; /* of the scores */
    eg_norm *norm[3];
} model;
typedef struct batch {
    int32_t x[TEST][L], asked[TEST * PAIRS], value[TEST * PAIRS];
} batch;

/* The gap before a question follows a power law with exponent −1; theirs has −0.99. */
static void draw(batch *t, int symbols, uint64_t seed, uint64_t first, int count)
{
    memset(t->x, 0, sizeof t->x); /* positions without a question: token 0 */
    for (int b = 0; b < count; b++) {
        eg_rng rng = { .seed = seed, .number = first + (uint64_t)b };
        for (int k = 0; k < PAIRS; k++) {
            bool again;
            do {
                t->x[b][2 * k] = 1 + (int32_t)eg_rng_below(&rng, (uint32_t)symbols / 2 - 1);
                again = false;
                for (int j = 0; j < k; j++) again |= t->x[b][2 * j] == t->x[b][2 * k];
            } while (again);
            t->x[b][2 * k + 1] = symbols / 2 + (int32_t)eg_rng_below(&rng, (uint32_t)symbols / 2);
        }
        for (int k = 0; k < PAIRS; k++) {
            int place;
            do {
                const double u = (eg_rng_below(&rng, 1 << 30) + 0.5) / (1 << 30);
                place = 2 * PAIRS + 2 * ((int)pow(L / 2 - PAIRS + 1, u) - 1);
            } while (t->x[b][place]);
            t->x[b][place] = t->x[b][2 * k];
            t->asked[b * PAIRS + k] = b * L + place;
            t->value[b * PAIRS + k] = t->x[b][2 * k + 1];
        }
    }
}

/* Logits (q v) of the questions. */
static eg_tensor *run_model(const model *m, eg_ctx *cx, const batch *t, int count)
{
    eg_tensor *x = eg_embedding_run(m->E, eg_from(cx, &t->x[0][0], count, L));
    for (int k = 0; k < 2; k++)
        x = eg_add(x,
                   eg_mha_run(m->layer[k], eg_norm_run(m->norm[k], x), .where = "j <= i",
                              .score = "score + r[h, i - j]", .with = { { "r", m->distance[k] } }));
    x = eg_norm_run(m->norm[2], x);
    eg_tensor *rows = eg_rearrange("b l m -> (b l) m", x);
    rows = eg_at("[r] m, q -> q m", rows, eg_from(cx, t->asked, count * PAIRS));
    return eg_einsum("qm,vm->qv", rows, m->E->table);
}

static double right(eg_ctx *cx, const model *m, const batch *t)
{
    eg_nograd(cx, true);
    eg_tensor *y = eg_argmax("q [v]", run_model(m, cx, t, TEST));
    eg_nograd(cx, false);
    const int64_t *said = eg_i64(y);
    int n = 0;
    for (int q = 0; said && q < TEST * PAIRS; q++) n += said[q] == t->value[q];
    return (double)n / (TEST * PAIRS);
}

static double run(const setting *s)
{
    static batch t, test;
    const int size = 64, steps = s->small ? 300 : 800;
    eg_ctx *cx = open_for(s);
    eg_params *p = eg_params_open(cx);
    model m = { .symbols = s->small ? 256 : MOST };
    m.E = eg_embedding_new(p, "tokens", .count = m.symbols, .d_model = D, .deviation = 1 / sqrt(D));
    for (int k = 0; k < 3; k++) {
        eg_params *q = eg_params_under(p, (const char *[]){ "0", "1", "2" }[k]);
        m.norm[k] = eg_norm_new(q, "norm", .d_model = D);
        if (k == 2) break;
        m.layer[k] = eg_mha_new(q, "attention", .d_model = D, .heads = 1);
        m.distance[k] = eg_init_constant(eg_param(q, "distance", "h l", 1, L), 0);
        for (int d = 0; k == 0 && d < L && !eg_error(cx); d++)
            eg_mut_f32(m.distance[0])[d] = (float)-d;
    }
    eg_opt *opt = eg_adam(p, .lr = 3e-3, .clip_norm = 1,
                          .schedule = { .decay = EG_COSINE, .warmup = 50, .steps = steps });
    draw(&test, m.symbols, s->seed + 1000, 0, TEST);
    for (int step = 0; step < steps && !eg_error(cx); step++) {
        eg_mark mark = eg_push(cx);
        draw(&t, m.symbols, s->seed, (uint64_t)step * (uint64_t)size, size);
        eg_tensor *loss = eg_cross_entropy("q [v]", run_model(&m, cx, &t, size),
                                           eg_from(cx, t.value, size * PAIRS));
        eg_step(opt, loss);
        if (step % 50 == 0)
            printf("step %4d: loss %.4f, %.3f of the questions right\n", step, eg_item(loss),
                   right(cx, &m, &test));
        eg_pop(cx, mark);
    }
    return close_with(cx, right(cx, &m, &test));
}

int main(int argc, char **argv)
{
    const study y = { .name = "recall",
                      .published = "attention of width 64 solves MQAR with 64 positions and 4 pairs",
                      .source = "Arora et al. 2024, Fig. 2",
                      .measure = "share of questions right",
                      .bound = 0.99,
                      .small_bound = 0.6,
                      .at_least = true,
                      .run = run };
    return reproduce(&y, argc, argv);
}
