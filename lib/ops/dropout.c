/* dropout.c: y = x m/(1 − p), where m is 0 with probability p, else 1.
 *
 * The mask m is a function of the context's seed, the number of the draw and the logical index of
 * an element (Philox), so it does not depend on threads, layout or recomputation. The attribute of
 * the node has seed and draw, and the copies that draw from seeds of their own; the gradient
 * applies the same dropout to g, whose copies may be others: g has none if it is the same for all
 * copies, and has those of a later operand if each copy's gradient is wanted. */
#include "ops/ops.h"

/* Draws for up to DRAWS elements from a logical index on are in bits[skip …]: a counter of Philox
 * gives four, and skip is the index modulo 4. */
enum { DRAWS = 256 };
static int64_t drop_draws(const eg_drop *d, uint64_t index, int64_t n, uint32_t *bits,
                          int64_t *skip)
{
    *skip = (int64_t)(index % 4);
    const int64_t taken = eg__min64(n, DRAWS - *skip);
    eg__philox_many(d->seed, d->draw, index / 4, 1, (*skip + taken + 3) / 4, bits);
    return taken;
}
/* If every element is dropped, below is 2^32, which 32 bits cannot hold; `some` is then 0. */
EG_CLONES static void drop_stays(const eg_drop *d, uint64_t first, int64_t n, uint8_t *stay)
{
    const uint32_t below = (uint32_t)d->below, some = d->below >> 32 ? 0 : 1;
    uint32_t bits[DRAWS];
    for (int64_t k = 0, taken, skip; k < n; k += taken) {
        taken = drop_draws(d, first + (uint64_t)k, n - k, bits, &skip);
        for (int64_t b = 0; b < taken; b++)
            stay[k + b] = (uint8_t)((bits[skip + b] >= below) & some);
    }
}
void eg__drop_stays(const eg_drop *d, uint64_t first, int64_t n, uint8_t *stay)
{
    drop_stays(d, first, n, stay);
}
/* Applies dropout to n contiguous elements, the first of which has this logical index. */
EG_CLONES static void drop_some(const eg_drop *d, int width, uint64_t first, int64_t n,
                                const void *x, void *y)
{
    const uint32_t below = (uint32_t)d->below, some = d->below >> 32 ? 0 : 1;
    const double factor = d->factor;
    uint32_t bits[DRAWS];
    for (int64_t k = 0, taken, skip; k < n; k += taken) {
        taken = drop_draws(d, first + (uint64_t)k, n - k, bits, &skip);
        const uint32_t *own = bits + skip;
#define DROP(T, REAL)                   \
    EG_EVERY_LANE                       \
    for (int64_t b = 0; b < taken; b++) \
        ((T *)y)[k + b] = (own[b] >= below) & some ? ((const T *)x)[k + b] * (REAL)factor : 0;
        if (width == 4)
            DROP(float, float)
        else if (width == 8)
            DROP(double, double)
        else
            DROP(double complex, double)
#undef DROP
    }
}

/* The operands of a dropout whose last axes, as many as are contiguous in both, form rows. */
typedef struct drop_job {
    eg_drop d;
    eg_strip y, x;
    char *to; /* the elements, if all axes are contiguous: there is one row, computed in pieces */
    const char *from;
} drop_job;
enum { PIECE = 1 << 13 };
static void drop_piece(void *user, int64_t piece, int thread)
{
    const drop_job *j = user;
    const int64_t first = piece * PIECE, n = eg__min64(j->y.n - first, PIECE);
    (void)thread;
    drop_some(&j->d, j->y.width, (uint64_t)first, n, j->from + first * j->y.width,
              j->to + first * j->y.width);
}
/* A draw belongs to the logical index of its element, row · n + k. */
static void drop_row(const void *user, int64_t row, char *const *p)
{
    const drop_job *j = user;
    _Alignas(64) char in[EG_CHUNK * 16], out[EG_CHUNK * 16];
    for (int64_t k = 0, n; k < j->y.n; k += n) {
        n = eg__min64(j->y.n - k, EG_CHUNK);
        void *y = eg__strip_buffer(&j->y, p[0], k, out);
        drop_some(&j->d, j->y.width, (uint64_t)(row * j->y.n + k), n,
                  eg__strip_read(&j->x, p[1], k, n, in), y);
        eg__strip_done(&j->y, p[0], k, n, y);
    }
}
static bool drop_shape(eg_tensor *y)
{
    return eg__shape_like(y, (eg_dtype)y->in[0]->dtype, y->in[0]);
}
/* Rows consist of as many of the last axes as are contiguous in both tensors, since a call for
 * each short row would draw more numbers than it needs. */
static bool drop_forward(eg_tensor *y)
{
    const eg_tensor *x = y->in[0];
    drop_job j = { .d = *(const eg_drop *)y->attr, .to = y->data, .from = x->data }, more = j;
    j.d.seed = eg__drop_seed(y->cx, &j.d);
    int inner = y->rank > 0;
    eg__strip(&j.y, y, inner);
    eg__strip(&j.x, x, inner);
    for (; inner < y->rank; inner++) {
        eg__strip(&more.y, y, inner + 1);
        eg__strip(&more.x, x, inner + 1);
        if (!eg__strip_contiguous(&more.y) || !eg__strip_contiguous(&more.x)) break;
        j.y = more.y, j.x = more.x;
    }
    if (!j.y.n) return true;
    if (inner == y->rank && eg__strip_contiguous(&j.y) && eg__strip_contiguous(&j.x))
        eg__parallel(y->cx, eg__team(y->cx, j.y.n, PIECE), (j.y.n + PIECE - 1) / PIECE, drop_piece,
                     &j);
    else
        eg__rows(y->cx, y->rank - inner, 2, (const eg_tensor *[]){ y, x }, 4 * j.y.n, drop_row, &j);
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
uint64_t eg__drop_seed(const eg_ctx *cx, const eg_drop *d)
{
    return eg__copy_seed(cx, d->copies, d->seed);
}
eg_tensor *eg__drop(const eg_drop *d, eg_tensor *x)
{
    if (d->copies) x = eg__copies_spread(d->copies, x);
    return eg_apply(&drop_op, d, sizeof *d, 1, &x);
}

bool eg__drop_draw(eg_ctx *cx, double p, const eg_copies *copies, eg_drop *d)
{
    if (p == 0 || !eg_training(cx)) return false;
    *d = (eg_drop){ eg__seed_of(cx), eg__draw(cx), (uint64_t)(p * 0x1p32), p < 1 ? 1 / (1 - p) : 0,
                    copies };
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
    return eg__drop_draw(x->cx, p, eg_copies_of(x), &d) ? eg__drop(&d, x) : x;
}
const eg_op *const eg__dropout_ops[] = { &drop_op, NULL };
