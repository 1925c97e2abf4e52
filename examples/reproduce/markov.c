/* In-context Markov chains (Edelman et al. 2024). Each sequence comes from a chain of its own,
 * whose K rows of transition probabilities are drawn uniformly (Dirichlet(1)). The best prediction
 * from the sequence alone is known exactly: with n_ab transitions a → b seen so far, b follows a
 * with probability (n_ab + 1)/(n_a + K). Two layers of attention with relative positions and
 * nothing else (no feed-forward part, no norms) learn it; before that they predict from counts of
 * single symbols. */
#include "reproduce.h"

enum { K = 3, L = 64, D = 32, EVAL = 256 };
typedef struct model {
    eg_embedding *symbols;
    eg_mha *layer[2];
    eg_tensor *offset[2]; /* added to the scores, by distance */
    eg_ffn *ff;
    eg_linear *logits;
} model;
typedef struct batch {
    int32_t x[EVAL][L + 1];                        /* K, then the chain */
    float bigram[EVAL][L][K], unigram[EVAL][L][K]; /* predictions of the symbol after position l */
} batch;

static double uniform(eg_rng *rng) { return (eg_rng_below(rng, 1 << 30) + 0.5) / (1 << 30); }

static int pick(eg_rng *rng, const double *p)
{
    double u = uniform(rng);
    int k = 0;
    while (k < K - 1 && u >= p[k]) u -= p[k++];
    return k;
}

/* Draws sequences from number `first` on, and computes both predictions by counting. */
static void draw(batch *t, uint64_t seed, uint64_t first, int count)
{
    for (int b = 0; b < count; b++) {
        eg_rng rng = { .seed = seed, .number = first + (uint64_t)b };
        double p[K][K], pair[K][K] = { { 0 } }, single[K] = { 0 };
        for (int i = 0; i < K; i++) {
            double sum = 0;
            for (int k = 0; k < K; k++) sum += p[i][k] = -log(uniform(&rng));
            for (int k = 0; k < K; k++) p[i][k] /= sum;
        }
        int now = (int)eg_rng_below(&rng, K);
        t->x[b][0] = K;
        for (int l = 0; l < L; l++) {
            double seen = 0;
            t->x[b][l + 1] = now;
            if (l) pair[t->x[b][l]][now]++;
            single[now]++;
            for (int k = 0; k < K; k++) seen += pair[now][k];
            for (int k = 0; k < K; k++) {
                t->bigram[b][l][k] = (float)((pair[now][k] + 1) / (seen + K));
                t->unigram[b][l][k] = (float)((single[k] + 1) / (l + 1 + K));
            }
            now = pick(&rng, p[now]);
        }
    }
}

static eg_tensor *run_model(const model *m, eg_tensor *x)
{
    eg_tensor *y = eg_embedding_run(m->symbols, x);
    for (int k = 0; k < 2; k++)
        y = eg_add(y, eg_mha_run(m->layer[k], y, .where = "j <= i", .score = "score + r[h, i - j]",
                                 .with = { { "r", m->offset[k] } }));
    return eg_linear_run(m->logits, eg_add(y, eg_ffn_run(m->ff, y)));
}

/* Returns the mean over positions of KL(p, model), where p is a prediction by counting. */
static double apart(eg_ctx *cx, eg_tensor *log_q, const float *p)
{
    eg_tensor *kl =
        eg_kl_div("b l [k]", eg_from(cx, p, EVAL, L, K), eg_slice("b [l] k", log_q, 1, L + 1, 1));
    return eg_item(eg_mean(NULL, kl));
}

static double run(const setting *s)
{
    static batch t, test;
    double at[200], to_bigram[200], to_unigram[200];
    int evaluations = 0;
    eg_ctx *cx = open_for(s);
    eg_params *p = eg_params_open(cx);
    model m = { .symbols = eg_embedding_new(p, "symbols", .count = K + 1, .d_model = D) };
    for (int k = 0; k < 2; k++) {
        eg_params *q = eg_params_under(p, k ? "second" : "first");
        m.layer[k] = eg_mha_new(q, "attention", .d_model = D, .heads = 1);
        m.offset[k] = eg_init_constant(eg_param(q, "r", "h d", 1, L + 1), 0);
    }
    m.ff = eg_ffn_new(p, "ff", .d_model = D);
    m.logits = eg_linear_new(p, "logits", .in = D, .out = K);
    const int steps = s->small ? 250 : 900, every = 50, size = 64;
    eg_opt *opt = eg_adam(p, .lr = 5e-3, .clip_norm = 1,
                          .schedule = { .decay = EG_COSINE, .steps = steps, .warmup = 20 });
    draw(&test, s->seed + 1000, 1u << 30, EVAL);
    for (int step = 0; step <= steps && !eg_error(cx); step++) {
        eg_mark mark = eg_push(cx);
        if (step % every == 0) {
            eg_nograd(cx, true);
            eg_tensor *q =
                eg_log_softmax("b l [k]", run_model(&m, eg_from(cx, &test.x[0][0], EVAL, L + 1)));
            at[evaluations] = step;
            to_bigram[evaluations] = apart(cx, q, &test.bigram[0][0][0]);
            to_unigram[evaluations] = apart(cx, q, &test.unigram[0][0][0]);
            printf("step %4d: %.4f from the bigram, %.4f from the unigram\n", step,
                   to_bigram[evaluations], to_unigram[evaluations]);
            evaluations++;
            eg_nograd(cx, false);
        }
        draw(&t, s->seed, (uint64_t)step * (uint64_t)size, size);
        eg_tensor *x = eg_from(cx, &t.x[0][0], size, L + 1);
        eg_tensor *y = eg_slice("b [l] k", run_model(&m, x), 0, L, 1);
        eg_step(opt, eg_cross_entropy("b l [k]", y, eg_slice("b [l]", x, 1, L + 1, 1)));
        eg_pop(cx, mark);
    }
    const eg_curve curve[] = { { "from the bigram", evaluations, at, to_bigram, 0, 0 },
                               { "from the unigram", evaluations, at, to_unigram, 0, 0 } };
    draw_curves(s, cx, "markov", "KL, nats", 2, curve);
    return close_with(cx, to_bigram[evaluations - 1]);
}

int main(int argc, char **argv)
{
    const study y = { .name = "markov",
                      .published = "two attention layers reach the Bayes-optimal bigram",
                      .source = "Edelman et al. 2024, Fig. 1",
                      .measure = "KL from the optimum, nats",
                      .bound = 0.01,
                      .small_bound = 0.03,
                      .run = run };
    return reproduce(&y, argc, argv);
}
