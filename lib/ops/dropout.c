/* dropout.c: y = x m/(1 − p), where m is 0 with probability p, else 1.
 *
 * The mask m is a function of the context's seed, the number of the draw and the logical index of
 * an element (Philox), so it does not depend on threads, layout or recomputation. The attribute of
 * the node has seed and draw; the gradient applies the same dropout to g. */
#include "ops/ops.h"

/* The arguments of drop_row, which applies a dropout to each row of y and x. */
typedef struct drop_job {
    eg_drop d;
    eg_strip y, x;
} drop_job;

EG_CLONES static void drop_stays(const eg_drop *d, uint64_t first, int64_t n, uint8_t *stay)
{
    enum { MOST = 256 };
    for (int64_t k = 0, take; k < n; k += take) { /* a counter of Philox gives four draws */
        const uint64_t from = first + (uint64_t)k;
        const int64_t skip = (int64_t)(from % 4);
        uint32_t bits[MOST];
        take = eg__min64(n - k, MOST - skip);
        eg__philox_many(d->seed, d->draw, from / 4, 1, (skip + take + 3) / 4, bits);
        for (int64_t b = 0; b < take; b++) stay[k + b] = bits[skip + b] >= d->below;
    }
}
void eg__drop_stays(const eg_drop *d, uint64_t first, int64_t n, uint8_t *stay)
{
    drop_stays(d, first, n, stay);
}

/* Applies dropout to one row. A draw belongs to the logical index of its element, row · n + k. */
static void drop_row(const void *user, int64_t row, char *const *p)
{
    const drop_job *j = user;
    _Alignas(64) char in[EG_CHUNK * 16], out[EG_CHUNK * 16];
    uint8_t stays[EG_CHUNK];
    for (int64_t k = 0, n; k < j->y.n; k += n) {
        n = j->y.n - k < EG_CHUNK ? j->y.n - k : EG_CHUNK;
        const void *x = eg__strip_read(&j->x, p[1], k, n, in);
        void *y = eg__strip_buffer(&j->y, p[0], k, out);
        eg__drop_stays(&j->d, (uint64_t)(row * j->y.n + k), n, stays);
#define DROP(T, REAL)               \
    for (int64_t i = 0; i < n; i++) \
        ((T *)y)[i] = stays[i] ? ((const T *)x)[i] * (REAL)j->d.factor : 0;
        if (j->y.width == 8)
            DROP(double, double)
        else if (j->y.width == 16)
            DROP(double complex, double)
        else
            DROP(float, float)
        eg__strip_done(&j->y, p[0], k, n, y);
    }
}
static bool drop_shape(eg_tensor *y)
{
    return eg__shape_like(y, (eg_dtype)y->in[0]->dtype, y->in[0]);
}
static bool drop_forward(eg_tensor *y)
{
    const int inner = y->rank > 0;
    drop_job j = { .d = *(const eg_drop *)y->attr };
    j.d.seed = eg__copy_seed(y->cx, j.d.seed);
    eg__strip(&j.y, y, inner);
    eg__strip(&j.x, y->in[0], inner);
    if (j.y.n)
        eg__rows(y->cx, y->rank - inner, 2, (const eg_tensor *[]){ y, y->in[0] }, 4 * j.y.n,
                 drop_row, &j);
    return true;
}

/* -- dropout: y = x m/(1 − p),  dx = g m/(1 − p). Srivastava et al. 2014 ---------------------- */
static eg_tensor *drop_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)i;
    return eg__drop(y->attr, g);
}
/* The sampled call, with a fixed draw. */
static eg_tensor *drop_fixed(eg_tensor *const *x)
{
    return eg__drop(&(eg_drop){ .seed = 7, .draw = 1, .below = 1u << 30, .factor = 4 / 3. }, x[0]);
}
static const eg_sample drop_samples[] = { { drop_fixed, "3x7", 0, 0 }, { 0 } };
static const eg_op drop_op = {
    .name = "dropout",
    .equation = "y = x m/(1-p)",
    .gradient = "dx = g m/(1-p)",
    .arity = 1,
    .shape = drop_shape,
    .forward = drop_forward,
    .rule = drop_rule,
    .uses = EG_USES_NOTHING,
    .samples = drop_samples,
    .jvp = eg_jvp_symmetric,
    .forward_c128 = drop_forward,
    .draws = 1,
};
eg_tensor *eg__drop(const eg_drop *d, eg_tensor *x)
{
    return eg_apply(&drop_op, d, sizeof *d, 1, &x);
}

bool eg__drop_draw(eg_ctx *cx, double p, eg_drop *d)
{
    if (p == 0 || !eg_training(cx)) return false;
    *d =
        (eg_drop){ eg__seed_of(cx), eg__draw(cx), (uint64_t)(p * 0x1p32), p < 1 ? 1 / (1 - p) : 0 };
    return true;
}
eg_tensor *eg_dropout(eg_tensor *x, double p)
{
    if (!eg__check("dropout", x)) return eg__poison_of(x);
    if (!(p >= 0 && p <= 1))
        return eg_fail_as(x->cx, EG_ERROR_MISUSE,
                          "dropout: %g is not a probability; it must lie in [0, 1]", p);
    if (!eg__floats("dropout", x, 1)) return eg__poison(x->cx);
    eg_drop d;
    return eg__drop_draw(x->cx, p, &d) ? eg__drop(&d, x) : x;
}
const eg_op *const eg__dropout_ops[] = { &drop_op, NULL };
