/* moderate.c: tests whether the elements of a tensor are moderate: finite, and so small that
 * products of two of them do not overflow. */
#include "ops/ops.h"

/* True if the n elements at x are moderate. */
typedef bool moderate_of(int64_t n, const void *x);
/* True if the bits of all n elements, without the sign, are at most `most`. */
EG_CLONES static bool halves_at_most(int64_t n, const uint16_t *x, uint16_t most)
{
    uint16_t largest = 0;
    for (int64_t k = 0; k < n; k++) {
        const uint16_t size = x[k] & 0x7fff;
        largest = size > largest ? size : largest;
    }
    return largest <= most;
}
/* every finite number of f16, at most 65504 */
static bool moderate_f16(int64_t n, const void *x) { return halves_at_most(n, x, 0x7bff); }
/* those of bf16 up to EG_MODERATE_F32, rounded down */
static bool moderate_bf16(int64_t n, const void *x) { return halves_at_most(n, x, 0x5863); }
static moderate_of *moderate_for(int dtype)
{
    return dtype == EG_F16    ? moderate_f16
           : dtype == EG_BF16 ? moderate_bf16
                              : eg__arithmetic(dtype)->moderate;
}

typedef struct moderate_job {
    moderate_of *moderate;
    int width;
    _Atomic bool *exceeds;
} moderate_job;
/* Elements that are not next to each other are copied to a buffer, 256 at a time. */
static void moderate_run(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    enum { AT_A_TIME = 256 };
    const moderate_job *t = user;
    bool moderate = true;
    if (step[0] == t->width)
        moderate = t->moderate(n, p[0]);
    else
        for (int64_t k = 0; k < n && moderate; k += AT_A_TIME) {
            double some[AT_A_TIME]; /* for elements of at most 8 bytes */
            const int64_t m = eg__min64(n - k, AT_A_TIME);
            eg__move(t->width, m, some, t->width, p[0] + k * step[0], step[0]);
            moderate = t->moderate(m, some);
        }
    if (!moderate) *t->exceeds = true;
}
/* True if every element of x, and of each of its copies, is moderate. An axis along which x is
 * expanded repeats them, so one place of it is read. */
static bool moderate_now(const eg_tensor *x)
{
    _Atomic bool exceeds = false;
    /* only the gradient check uses c128, with finite elements */
    if (x->dtype == EG_C128) return true;
    if (x->copies) {
        bool moderate = true;
        for (int64_t k = 0; moderate && k < x->copies->count; k++) {
            eg_tensor one = *x;
            one.data = eg__copy_data(x, k);
            one.copies = NULL;
            moderate = moderate_now(&one);
        }
        return moderate;
    }
    int64_t n = 1, dim[EG_RANK_MAX];
    bool dense = true;
    for (int r = x->rank; r-- > 0; n *= dim[r]) {
        dim[r] = x->stride[r] ? x->dim[r] : eg__min64(x->dim[r], 1);
        dense &= dim[r] == 1 || x->stride[r] == n;
    }
    /* small and contiguous: no loop over threads */
    if (dense && n < 1 << 16) return moderate_for(x->dtype)(n, x->data);
    eg_tensor once = *x;
    once.dim = dim;
    eg__loop(x->cx, 1, &(const eg_tensor *){ &once }, moderate_run,
             &(moderate_job){ moderate_for(x->dtype), eg__width[x->dtype], &exceeds });
    return !exceeds;
}

static bool act_moderate(eg_ctx *cx, eg_tensor *to, int count, eg_tensor *const *x, void *arg)
{
    (void)to, (void)count;
    if (moderate_now(x[0]) == *(const bool *)arg) return true;
    eg_fail_as(
        cx, EG_ERROR_UNSUPPORTED,
        "captured_run: an operand of a masked operation is %s, but was not when the step was "
        "captured; capture it again",
        *(const bool *)arg ? "infinite, NaN or so large that products overflow" : "finite");
    return false;
}
bool eg__moderate(eg_tensor *x)
{
    bool moderate = moderate_now(x);
    if (eg__capturing(x->cx))
        eg__act(x->cx, act_moderate, NULL, 1, &x, &moderate, sizeof moderate, 0);
    return moderate;
}
