/* One step of gradient descent by one layer of linear attention (von Oswald et al. 2023).
 *
 * A context is N pairs (x_j, y_j = w·x_j), w ~ N(0, 1), x uniform in [−1, 1]; the question is
 * w·x_q. A step of size η from w = 0 on L(w) = Σ_j (w·x_j − y_j)²/2N answers (η/N) Σ_j y_j x_j·x_q.
 * A layer of linear attention, y = Σ_j P V e_j (K e_j · Q e_q) with tokens e_j = (x_j, y_j) and e_q
 * = (x_q, 0), computes the same if Q = K select x, V selects y and P = η/N (Proposition 1; here
 * from w = 0). First these weights are set and compared with the step of eg_grad; then random
 * weights are trained.
 *
 * With the variance s = 1/3 and A = Σ x xᵀ/N the expected loss of a step is s/2 (η² E tr A² − 2η E
 * tr A + D), E tr A = D s, E tr A² = (D/5 + D (D − 1)/9 + (N − 1) D s²)/N. The best η and its loss
 * are therefore known, and a trained layer has to reach them. */
#include "reproduce.h"

enum { N = 10, D = 10, M = D + 1 };
typedef struct layer {
    eg_tensor *q, *k, *v, *p;
} layer;
typedef struct tasks {
    eg_tensor *x, *y, *xq, *yq; /* (b j d), (b j), (b d), (b) */
} tasks;

static tasks draw(eg_ctx *cx, int64_t count)
{
    eg_tensor *w = eg_normal(cx, 0, 1, count, D);
    tasks t = { .x = eg_uniform(cx, -1, 1, count, N, D), .xq = eg_uniform(cx, -1, 1, count, D) };
    t.y = eg_einsum("bjd,bd->bj", t.x, w);
    t.yq = eg_einsum("bd,bd->b", t.xq, w);
    return t;
}

/* Returns the layer's answers (b): the last element of its result at the query. */
static eg_tensor *attend(const layer *l, const tasks *t)
{
    eg_tensor *e = eg_concat("b j [m]", t->x, eg_rearrange("b j -> b j 1", t->y));
    eg_tensor *eq = eg_rearrange("b m -> b 1 m", eg_pad("b [m]", t->xq, 0, 1, 0));
    eg_tensor *q = eg_einsum("bim,mk->bik", eq, l->q), *k = eg_einsum("bjm,mk->bjk", e, l->k);
    eg_tensor *v = eg_einsum("bjm,me->bje", e, l->v);
    eg_tensor *y = eg_linear_attention("bik,bjk,bje->bie", q, k, v, .phi = "x", .no_norm = true);
    return eg_rearrange("b 1 -> b", eg_select("b i [m]", eg_einsum("bie,em->bim", y, l->p), D));
}

/* Returns the answers after one step of gradient descent from w = 0. */
static eg_tensor *descend(const tasks *t, double eta)
{
    eg_tensor *w = eg_zeros_like(t->xq), *g = NULL;
    eg_tensor *wrong = eg_sub(eg_einsum("bjd,bd->bj", t->x, w), t->y);
    eg_grad(eg_scale(eg_sum(NULL, eg_square(wrong)), 0.5 / N), NULL, 1, &w, &g);
    return eg_einsum("bd,bd->b", t->xq, eg_scale(g, -eta));
}

static double loss_of(eg_tensor *answer, const tasks *t)
{
    return eg_item(eg_mse(answer, t->yq)) / 2;
}

/* Returns the largest |layer − gradient descent| over 1000 tasks, in f64, with the weights
 * above. */
static double by_construction(uint64_t seed, double eta)
{
    eg_ctx *cx = eg_open(.seed = seed + 1, .dtype = EG_F64, .threads = 1);
    layer l = { eg_zeros(cx, M, M), eg_zeros(cx, M, M), eg_zeros(cx, M, M), eg_zeros(cx, M, M) };
    for (int d = 0; d < D; d++) eg_mut_f64(l.q)[d * M + d] = eg_mut_f64(l.k)[d * M + d] = 1;
    eg_mut_f64(l.v)[D * M + D] = 1;
    eg_mut_f64(l.p)[D * M + D] = eta / N;
    const tasks t = draw(cx, 1000);
    return close_with(cx, eg_item(eg_max(NULL, eg_abs(eg_sub(attend(&l, &t), descend(&t, eta))))));
}

static double run(const setting *s)
{
    const double v = 1.0 / 3, trace = D * v;
    const double square = (D / 5.0 + D * (D - 1) / 9.0 + (N - 1) * D * v * v) / N;
    const double eta = trace / square, best = v / 2 * (D - trace * trace / square);
    const double apart = by_construction(s->seed, eta);
    printf("set by hand: at most %.1e from the step of gradient descent\n", apart);
    if (!(apart < 1e-12)) return 1;

    eg_ctx *cx = open_for(s);
    eg_params *p = eg_params_open(cx);
    layer l = { eg_param(p, "Q", "m k", M, M), eg_param(p, "K", "m k", M, M),
                eg_param(p, "V", "m e", M, M), eg_param(p, "P", "e m", M, M) };
    const int steps = s->small ? 600 : 2000, batch = 512;
    eg_opt *opt = eg_adam(p, .lr = s->small ? 2e-2 : 1e-2, .clip_norm = 1,
                          .schedule = { .decay = EG_COSINE, .steps = steps });
    for (int step = 0; step <= steps && !eg_error(cx); step++) {
        eg_mark m = eg_push(cx);
        const tasks t = draw(cx, batch);
        eg_tensor *loss = eg_scale(eg_mse(attend(&l, &t), t.yq), 0.5);
        if (step % (steps / 4) == 0) printf("step %4d: loss %.4f\n", step, eg_item(loss));
        if (step < steps) eg_step(opt, loss);
        eg_pop(cx, m);
    }
    eg_nograd(cx, true);
    const tasks t = draw(cx, 20000);
    eg_nograd(cx, false); /* `descend` differentiates */
    const double trained = loss_of(attend(&l, &t), &t), step = loss_of(descend(&t, eta), &t);
    printf("loss of 20000 tasks: layer %.4f, a step of η = %.3f %.4f, expected %.4f\n", trained,
           eta, step, best);
    return close_with(cx, trained / step - 1);
}

int main(int argc, char **argv)
{
    const study y = { .name = "descent",
                      .published = "a trained layer of linear attention is one step of gradient "
                                   "descent",
                      .source = "von Oswald et al. 2023, Prop. 1, Fig. 2",
                      .measure = "loss above that of the step, relative",
                      .bound = 0.01,
                      .run = run };
    return reproduce(&y, argc, argv);
}
