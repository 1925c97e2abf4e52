/* The Chomsky hierarchy (Delétang et al. 2022): a transformer that fits strings of the training
 * lengths does not compute the function on longer ones. Two of their tasks, one of each level above
 * the regular one: reversing a string is context-free; writing first its bits with odd index is
 * context-sensitive. As in their code random bits are followed by as many empty positions, an
 * encoder with sinusoidal positions predicts all bits of the answer at once, and all strings of a
 * step have one length. */
#include "reproduce.h"

enum {
    TRAINED = 10, /* lengths 1 … TRAINED are trained */
    FAR = 125,    /* length of the longest strings of the test */
    EVERY = 5,    /* distance of the tested lengths between the two */
    SIZE = 32,    /* number of strings in a step */
    TEST = 64,    /* number of strings of each tested length */
    EMPTY = 2
};
typedef enum task { REVERSE, ODDS_FIRST, TASKS } task;
typedef struct batch {
    int32_t x[TEST * 2 * FAR], answer[TEST * FAR];
} batch;
typedef struct course {
    int evaluations;
    double length[FAR], right[FAR];
} course;

static void draw(batch *t, task k, int n, uint64_t seed, uint64_t first, int count)
{
    for (int b = 0; b < count; b++) {
        eg_rng rng = { .seed = seed, .number = first + (uint64_t)b };
        int32_t *bit = t->x + b * 2 * n, *answer = t->answer + b * n;
        for (int l = 0; l < n; l++) bit[l] = (int32_t)eg_rng_below(&rng, 2), bit[n + l] = EMPTY;
        for (int l = 0; l < n; l++)
            if (k == REVERSE)
                answer[l] = bit[n - 1 - l];
            else
                answer[l] = bit[l < n / 2 ? 2 * l + 1 : 2 * (l - n / 2)];
    }
}

/* Returns logits (b l v) of the empty positions. */
static eg_tensor *run_model(const eg_transformer *m, eg_ctx *cx, const batch *t, int n, int count)
{
    eg_tensor *y = eg_transformer_run(m, eg_from(cx, t->x, count, 2 * n));
    return eg_slice("b [l] v", y, n, 2 * n, 1);
}

/* Returns the share of correct bits in TEST strings of length n. */
static double right(const eg_transformer *m, eg_ctx *cx, task k, int n, uint64_t seed)
{
    static batch t;
    eg_mark mark = eg_push(cx);
    eg_nograd(cx, true);
    draw(&t, k, n, seed, (uint64_t)n * TEST, TEST);
    const int64_t *said = eg_i64(eg_argmax("b l [v]", run_model(m, cx, &t, n, TEST)));
    int good = 0;
    for (int q = 0; said && q < TEST * n; q++) good += said[q] == t.answer[q];
    eg_nograd(cx, false);
    eg_pop(cx, mark);
    return (double)good / (TEST * n);
}

/* Trains on lengths up to `trained`; then computes the share of correct bits by length, and its
 * mean over these lengths and over longer ones. */
static void train(const setting *s, eg_ctx *cx, task k, int trained, course *c, double mean[2])
{
    static const char *const name[TASKS] = { "reverse", "odds first" };
    static batch t;
    const int steps = s->small ? 600 : k == REVERSE ? 4000 : 6000;
    eg_params *p = eg_params_open(cx);
    eg_transformer *m =
        eg_transformer_new(p, "", .vocabulary = 3, .classes = 2, .length = 2 * FAR, .d_model = 64,
                           .heads = 4, .layers = 2, .sinusoid = true);
    eg_opt *opt =
        eg_adam(p, .lr = 2e-3, .clip_norm = 1,
                .schedule = { .decay = EG_COSINE, .warmup = 100, .steps = steps, .last = 0.05 });
    for (int step = 0; step < steps && !eg_error(cx); step++) {
        eg_mark mark = eg_push(cx);
        eg_rng rng = { .seed = s->seed + 2000, .number = (uint64_t)step };
        const int n = 1 + (int)eg_rng_below(&rng, (uint32_t)trained);
        draw(&t, k, n, s->seed, (uint64_t)step * SIZE, SIZE);
        eg_tensor *loss = eg_cross_entropy("b l [v]", run_model(m, cx, &t, n, SIZE),
                                           eg_from(cx, t.answer, SIZE, n));
        eg_step(opt, loss);
        if (step % 500 == 0)
            printf("%s, step %4d: loss %.4f, of length %d %.3f right\n", name[k], step,
                   eg_item(loss), trained, right(m, cx, k, trained, s->seed + 1000));
        eg_pop(cx, mark);
    }
    int count[2] = { 0 };
    for (int n = 1; n <= FAR && !eg_error(cx); n += n < trained ? 1 : EVERY) {
        const double share = right(m, cx, k, n, s->seed + 1000);
        mean[n > trained] += share, count[n > trained]++;
        c->length[c->evaluations] = n, c->right[c->evaluations++] = share;
    }
    for (int far = 0; far < 2; far++) mean[far] /= fmax(1, count[far]);
    printf("%s: %.4f right up to length %d, %.4f up to %d\n", name[k], mean[0], trained, mean[1],
           FAR);
}

/* Returns the larger share of both tasks; 1 if a model does not fit the lengths that it was trained
 * on. */
static double run(const setting *s)
{
    course c[TASKS] = { 0 };
    double larger = 0;
    eg_ctx *cx = open_for(s);
    for (task k = 0; k < TASKS; k++) {
        double mean[2] = { 0, 0 };
        train(s, cx, k, s->small ? 4 : TRAINED, &c[k], mean);
        larger = fmax(larger, mean[0] >= 0.99 ? mean[1] : 1);
    }
    const eg_curve curve[] = { { "reverse", c[0].evaluations, c[0].length, c[0].right, 0, 0 },
                               { "odds first", c[1].evaluations, c[1].length, c[1].right, 1, 0 } };
    const char *path = picture(s, "chomsky");
    if (path && !eg_error(cx))
        eg_curves_save(path, cx, TASKS, curve, .x_name = "length", .y_name = "share of right bits");
    return close_with(cx, larger);
}

int main(int argc, char **argv)
{
    const study y = { .name = "chomsky",
                      .published = "transformers fit the training lengths and fail to generalize "
                                   "on non-regular tasks",
                      .source = "Delétang et al. 2023, abstract",
                      .measure = "share of bits right in longer strings, where chance is 0.5",
                      .bound = 0.6,
                      .run = run };
    return reproduce(&y, argc, argv);
}
