/* 12: a custom score function. The task: repeat the symbol three positions before. Without
 * positions q·k does not depend on distance; a learned number for every distance, added to the
 * scores, solves the task (Shaw et al. 2018; Raffel et al. 2020, §2.1). Scores are limited by c
 * tanh(s/c), so that no head saturates. Both stand in one expression, which has gradients for the
 * scores and for the table that it reads. */
#include <eingrad.h>
#include <stdlib.h>

enum { B = 32, L = 12, V = 8, M = 16, BACK = 3 };
typedef struct model {
    eg_tensor *E, *Wq, *Wk, *Wv, *Wo, *R;
    bool relative;
} model;

static eg_tensor *run(model *m, eg_tensor *tokens)
{
    eg_tensor *x = eg_at("[v] m, b l -> b l m", m->E, tokens);
    eg_tensor *q = eg_einsum("bim,md->bid", x, m->Wq), *k = eg_einsum("bjm,md->bjd", x, m->Wk),
              *v = eg_einsum("bjm,me->bje", x, m->Wv);
    const char *score =
        m->relative ? "30 * tanh((score + R[i - j + |j| - 1]) / 30)" : "30 * tanh(score / 30)";
    eg_tensor *y = eg_attention("bid,bjd,bje->bie", q, k, v, .where = "j <= i", .score = score,
                                .with = { { m->relative ? "R" : NULL, m->R } });
    return eg_einsum("bie,ev->biv", y, m->Wo);
}

static double trained(bool relative)
{
    eg_ctx *cx = eg_open(.seed = 3);
    eg_params *p = eg_params_open(cx);
    model m = { .relative = relative };
    m.E = eg_init_normal(eg_param(p, "E", "v m", V, M), 1);
    eg_tensor **w[] = { &m.Wq, &m.Wk, &m.Wv };
    const char *name[] = { "W_q", "W_k", "W_v" };
    for (int n = 0; n < 3; n++) *w[n] = eg_init_xavier(eg_param(p, name[n], "m d", M, M), M, M);
    m.Wo = eg_init_xavier(eg_param(p, "W_o", "e v", M, V), M, V);
    m.R = eg_param(p, "R", "r", 2 * L - 1);
    eg_opt *op = eg_adam(p, .lr = 0.03);
    double right = 0;
    for (int step = 0; step < 200 && !eg_error(cx); step++) {
        eg_mark mark = eg_push(cx);
        eg_tensor *t = eg_randint(cx, 0, V, B, L),
                  *logits = eg_slice("b [i] v", run(&m, t), BACK, L, 1),
                  *target = eg_slice("b [i]", t, 0, L - BACK, 1);
        eg_step(op, eg_cross_entropy("b i [v]", logits, target));
        if (step == 199)
            right = eg_item(
                eg_mean(NULL, eg_cast(eg_eq(eg_argmax("b i [v]", logits), target), EG_F32)));
        eg_pop(cx, mark);
    }
    if (eg_error(cx)) fprintf(stderr, "%s\n", eg_error(cx));
    if (relative) {
        printf("R[i - j] for j = i - %d … i: ", BACK + 1);
        eg_print(stdout, eg_slice("[r]", m.R, L + BACK, L - 2, -1));
    }
    eg_close(cx);
    return right;
}

int main(void)
{
    double plain = trained(false), relative = trained(true);
    printf("the symbol of %d positions before: q·k alone %.0f %% right, with a number for each "
           "distance %.0f %%\n",
           BACK, 100 * plain, 100 * relative);
    return relative > 0.95 && plain < 0.5 ? EXIT_SUCCESS : EXIT_FAILURE;
}
