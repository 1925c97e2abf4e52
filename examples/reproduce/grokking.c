/* Grokking (Power et al. 2022; Nanda et al. 2023): one layer of attention and a ReLU layer, without
 * norms, learn a + b modulo P from a part of all pairs. With weight decay the model fits the
 * training pairs long before it predicts unseen ones. The result is the ratio of the steps that
 * unseen pairs take to 99 % to those that the training pairs take; it is 0 for a run whose unseen
 * pairs do not reach 99 %. */
#include "reproduce.h"

enum { P_MOST = 59, D = 64, HEADS = 4, WIDTH = 256, EVALUATIONS = 400 };
typedef struct model {
    eg_tensor *E, *place, *U; /* (v m), (l m), (m v) */
    eg_mha *attention;
    eg_ffn *ff;
} model;
typedef struct pairs {
    int count;
    int32_t x[P_MOST * P_MOST][3], y[P_MOST * P_MOST]; /* a, b, =; (a + b) mod P */
} pairs;

static void split(const setting *s, int p, double part, pairs *train, pairs *test)
{
    static int order[P_MOST * P_MOST];
    eg_rng rng = { .seed = s->seed, .number = 1 };
    const int all = p * p, known = (int)(part * all);
    for (int k = 0; k < all; k++) order[k] = k;
    train->count = test->count = 0;
    for (int k = 0; k < all; k++) {
        const int other = k + (int)eg_rng_below(&rng, (uint32_t)(all - k)), number = order[other];
        order[other] = order[k];
        pairs *to = k < known ? train : test;
        const int a = number / p, b = number % p, n = to->count++;
        to->x[n][0] = a, to->x[n][1] = b, to->x[n][2] = p, to->y[n] = (a + b) % p;
    }
}

/* Returns the logits at the last position, the only one that is used. */
static eg_tensor *run_model(const model *m, eg_ctx *cx, const pairs *t)
{
    eg_tensor *x = eg_at("[v] m, b l -> b l m", m->E, eg_from(cx, &t->x[0][0], t->count, 3));
    x = eg_add(x, m->place);
    eg_tensor *last = eg_slice("b [l] m", x, 2, 3, 1);
    last = eg_add(last, eg_mha_run(m->attention, last, x));
    last = eg_add(last, eg_ffn_run(m->ff, last));
    return eg_einsum("blm,mv->bv", last, m->U);
}

static double accuracy(eg_ctx *cx, eg_tensor *logits, const pairs *t)
{
    eg_tensor *y = eg_cast(eg_from(cx, t->y, t->count), EG_I64);
    return eg_item(eg_mean(NULL, eg_cast(eg_eq(eg_argmax("b [v]", logits), y), EG_F32)));
}

static double run(const setting *s)
{
    static pairs train, test;
    static double at[EVALUATIONS], known[EVALUATIONS], unseen[EVALUATIONS];
    const int p = s->small ? 31 : P_MOST, steps = s->small ? 1000 : 4000, every = 10;
    int evaluations = 0;
    double first_known = 0, first_unseen = 0;
    split(s, p, s->small ? 0.7 : 0.4, &train, &test);
    eg_ctx *cx = open_for(s);
    eg_params *list = eg_params_open(cx);
    model m = { .E = eg_init_normal(eg_param(list, "E", "v m", p + 1, D), 1 / sqrt(D)),
                .place = eg_init_normal(eg_param(list, "place", "l m", 3, D), 1 / sqrt(D)),
                .U = eg_init_normal(eg_param(list, "U", "m v", D, p), 1 / sqrt(D)),
                .attention =
                    eg_mha_new(list, "attention", .d_model = D, .heads = HEADS, .no_bias = true),
                .ff = eg_ffn_new(list, "ff", .d_model = D, .width = WIDTH, .activation = eg_relu) };
    eg_opt *opt =
        eg_adamw(list, .lr = 3e-3, .weight_decay = 1, .beta2 = 0.98, .schedule = { .warmup = 10 });
    for (int step = 0; step <= steps && !first_unseen && !eg_error(cx); step++) {
        eg_mark mark = eg_push(cx);
        eg_tensor *logits = run_model(&m, cx, &train);
        eg_step(opt, eg_cross_entropy("b [v]", logits, eg_from(cx, train.y, train.count)));
        if (step % every == 0 && evaluations < EVALUATIONS) {
            eg_nograd(cx, true);
            at[evaluations] = step, known[evaluations] = accuracy(cx, logits, &train);
            unseen[evaluations] = accuracy(cx, run_model(&m, cx, &test), &test);
            if (!first_known && known[evaluations] >= 0.99) first_known = step;
            if (!first_unseen && unseen[evaluations] >= 0.99) first_unseen = step;
            if (step % (10 * every) == 0 || first_unseen)
                printf("step %4d: %.3f of the training pairs right, %.3f of the unseen ones\n",
                       step, known[evaluations], unseen[evaluations]);
            evaluations++;
            eg_nograd(cx, false);
        }
        eg_pop(cx, mark);
    }
    const eg_curve curve[] = { { "training pairs", evaluations, at, known, 0, 0 },
                               { "unseen pairs", evaluations, at, unseen, 0, 0 } };
    draw_curves(s, cx, "grokking", "share right", 2, curve);
    return close_with(cx, first_known > 0 ? first_unseen / first_known : 0);
}

int main(int argc, char **argv)
{
    const study y = { .name = "grokking",
                      .published = "unseen pairs come to be right long after the training pairs",
                      .source = "Power et al. 2022, Fig. 1; Nanda et al. 2023, Fig. 2",
                      .measure = "steps to 99 % of unseen pairs, by those of training pairs",
                      .bound = 5,
                      .small_bound = 2,
                      .at_least = true,
                      .run = run };
    return reproduce(&y, argc, argv);
}
