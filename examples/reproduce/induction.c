/* Induction heads and their phase change (Olsson et al. 2022). Each sequence is a piece of random
 * symbols of random length, repeated to the end: from its second round on, the next symbol can be
 * predicted, and only from the context. Two layers of attention learn this abruptly, when a head of
 * the second layer begins to attend to the position after the last occurrence of this symbol (its
 * prefix matching score). One layer cannot form such a head, and does not learn it. */
#include "reproduce.h"

enum {
    V = 64,
    L = 48,
    SHORTEST = 8,
    LONGEST_PIECE = 24,
    D = 32,
    HEADS = 2,
    EVAL = 128,
    EVALUATIONS = 64,
    MAP = 28
};
typedef struct model {
    eg_embedding *symbols;
    eg_positions *positions;
    int layers;
    eg_mha *layer[2];
    eg_linear *logits;
} model;
typedef struct batch {
    int32_t x[EVAL][L], target[EVAL][L]; /* target: −1 in the first round */
    int piece[EVAL];
} batch;
typedef struct course {
    int evaluations;
    double step[EVALUATIONS], loss[EVALUATIONS], prefix[EVALUATIONS]; /* of the second round */
} course;

static void draw(batch *t, uint64_t seed, uint64_t first, int count)
{
    for (int b = 0; b < count; b++) {
        eg_rng rng = { .seed = seed, .number = first + (uint64_t)b };
        t->piece[b] = SHORTEST + (int)eg_rng_below(&rng, LONGEST_PIECE - SHORTEST + 1);
        for (int l = 0; l < L; l++)
            t->x[b][l] =
                l < t->piece[b] ? (int32_t)eg_rng_below(&rng, V) : t->x[b][l - t->piece[b]];
        for (int l = 0; l < L; l++)
            t->target[b][l] = l >= t->piece[b] && l + 1 < L ? t->x[b][l + 1] : -1;
    }
}

static eg_tensor *run_model(const model *m, eg_tensor *x, eg_tensor **weights)
{
    eg_tensor *y = eg_positions_run(m->positions, eg_embedding_run(m->symbols, x));
    for (int k = 0; k < m->layers; k++)
        y = eg_add(y, eg_mha_run(m->layer[k], y, .where = "j <= i",
                                 .weights = k == m->layers - 1 ? weights : NULL));
    return eg_linear_run(m->logits, y);
}

/* Returns the largest prefix matching score of the last layer's heads: the weight, on average over
 * the positions from the second round on, on the positions after those of the same symbol in
 * earlier rounds. */
static double prefix_matching(const batch *t, eg_tensor *weights)
{
    const float *w = eg_f32(weights);
    double best = 0;
    for (int h = 0; w && h < HEADS; h++) {
        double sum = 0;
        int64_t n = 0;
        for (int64_t b = 0; b < EVAL; b++)
            for (int i = t->piece[b]; i < L; i++, n++)
                for (int j = i - t->piece[b] + 1; j > 0; j -= t->piece[b])
                    sum += w[((b * HEADS + h) * L + i) * L + j];
        best = fmax(best, sum / (double)n);
    }
    return best;
}

/* Trains a model of `layers` layers; for two, draws the map of the last one for MAP positions. */
static void train(const setting *s, eg_ctx *cx, int layers, course *c)
{
    static batch t, test;
    const int steps = s->small ? 450 : 1000, size = 32, every = steps / 40;
    eg_params *p = eg_params_open(cx);
    model m = { .layers = layers,
                .symbols = eg_embedding_new(p, "symbols", .count = V, .d_model = D),
                .positions = eg_positions_new(p, "places", .length = L, .d_model = D),
                .logits = eg_linear_new(p, "logits", .in = D, .out = V) };
    for (int k = 0; k < layers; k++)
        m.layer[k] = eg_mha_new(eg_params_under(p, k ? "second" : "first"), "attention",
                                .d_model = D, .heads = HEADS);
    eg_opt *opt = eg_adam(p, .lr = 5e-3, .clip_norm = 1,
                          .schedule = { .decay = EG_COSINE, .steps = steps, .warmup = 50 });
    draw(&test, s->seed + 1000, 1u << 30, EVAL);
    for (int step = 0; step <= steps && !eg_error(cx); step++) {
        eg_mark mark = eg_push(cx);
        if (step % every == 0) {
            eg_nograd(cx, true);
            eg_tensor *w = NULL, *y = run_model(&m, eg_from(cx, &test.x[0][0], EVAL, L), &w);
            eg_tensor *target = eg_from(cx, &test.target[0][0], EVAL, L);
            c->step[c->evaluations] = step;
            c->loss[c->evaluations] = eg_item(eg_cross_entropy("b l [v]", y, target, .ignore = -1));
            c->prefix[c->evaluations] = prefix_matching(&test, w);
            printf("layers %d, step %4d: loss %.4f, prefix matching %.3f\n", layers, step,
                   c->loss[c->evaluations], c->prefix[c->evaluations]);
            c->evaluations++;
            eg_nograd(cx, false);
        }
        draw(&t, s->seed, (uint64_t)step * (uint64_t)size, size);
        eg_tensor *y = run_model(&m, eg_from(cx, &t.x[0][0], size, L), NULL);
        eg_step(opt, eg_cross_entropy("b l [v]", y, eg_from(cx, &t.target[0][0], size, L),
                                      .ignore = -1));
        eg_pop(cx, mark);
    }
    const char *path = layers == 2 ? picture(s, "induction-map") : NULL;
    if (!path || eg_error(cx)) return;
    int shortest = 0;
    for (int b = 1; b < EVAL; b++)
        if (test.piece[b] < test.piece[shortest]) shortest = b;
    eg_tensor *w = NULL;
    run_model(&m, eg_from(cx, test.x[shortest], 1, MAP), &w);
    eg_picture_save(path, eg_select("[b] h i j", eg_detach(w), 0), .low = 0, .high = 1,
                    .row_axis = "query", .column_axis = "key", .value_axis = "weight");
}

static double run(const setting *s)
{
    course one = { 0 }, two = { 0 };
    eg_ctx *cx = open_for(s);
    train(s, cx, 2, &two);
    train(s, cx, 1, &one);
    const eg_curve curve[] = {
        { "two layers: loss", two.evaluations, two.step, two.loss, 0, 0 },
        { "one layer: loss", one.evaluations, one.step, one.loss, 0, 0 },
        { "two layers: prefix matching", two.evaluations, two.step, two.prefix, 1, 1 },
        { "one layer: prefix matching", one.evaluations, one.step, one.prefix, 2, 1 },
    };
    draw_curves(s, cx, "induction", "loss in nats; weight", 4, curve);
    return close_with(cx, two.prefix[two.evaluations - 1] - one.prefix[one.evaluations - 1]);
}

int main(int argc, char **argv)
{
    const study y = { .name = "induction",
                      .published =
                          "two layers form induction heads in a phase change, one layer none",
                      .source = "Olsson et al. 2022, Arguments 1 and 2",
                      .measure = "score of prefix matching, two layers less one",
                      .bound = 0.5,
                      .at_least = true,
                      .run = run };
    return reproduce(&y, argc, argv);
}
