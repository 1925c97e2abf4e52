/* where_value.c: predicates evaluated: at one index; along a row of indices, in 32 bits where
 * interval arithmetic has shown that no intermediate leaves them; as intervals, for a tile. */
#include "notation/where.h"
#include "notation/whole.h"
#include <string.h>

enum { LANES = 128 };

/* `all` > 0 stands for every letter in [−all, all] and every size in [0, all]; *widest is then the
 * largest magnitude of any number */
static eg_interval bounds(const eg_predicate *p, const int64_t *low, const int64_t *high,
                          const int64_t *sizes, int64_t all, int64_t *widest)
{
    eg_interval v[EG_WHERE_DEPTH];
    int t = 0;
    for (const step *s = p->step, *end = s + p->steps; s < end; s++) {
        switch (s->code) {
        case EG_X_WHOLE: v[t++] = (eg_interval){ s->value, s->value }; break;
        case EG_X_LETTER:
            v[t++] =
                all ? (eg_interval){ -all, all }
                    : (eg_interval){ eg__clamped(low[s->axis]), eg__clamped(high[s->axis] - 1) };
            break;
        case EG_X_SIZE:
            v[t++] = all ? (eg_interval){ s->value, eg__sum(all, s->value) }
                         : (eg_interval){ sizes[s->axis] + s->value, sizes[s->axis] + s->value };
            break;
        case EG_X_NEG:
        case EG_X_NOT:
        case EG_X_ABS: v[t - 1] = eg__interval(s->code, v[t - 1], v[t - 1], v[t - 1]); break;
        case EG_X_SELECT:
        case EG_X_CLIP: t -= 2, v[t - 1] = eg__interval(s->code, v[t - 1], v[t], v[t + 1]); break;
        default: t--, v[t - 1] = eg__interval(s->code, v[t - 1], v[t], v[t]); break;
        }
        if (widest && eg__larger(v[t - 1]) > *widest) *widest = eg__larger(v[t - 1]);
    }
    return v[0];
}

int64_t eg__where_widest(const eg_predicate *p, int64_t all)
{
    int64_t widest = 0;
    bounds(p, NULL, NULL, NULL, all, &widest);
    return widest;
}
eg_cover eg__where_tile(const eg_predicate *p, const int64_t *low, const int64_t *high,
                        const int64_t *sizes)
{
    for (unsigned u = p->uses; u; u &= u - 1)
        if (low[__builtin_ctz(u)] >= high[__builtin_ctz(u)]) return EG_COVER_NONE;
    const eg_interval v = bounds(p, low, high, sizes, 0, NULL);
    return v.low ? EG_COVER_ALL : v.high ? EG_COVER_SOME : EG_COVER_NONE;
}

/* -- values ----------------------------------------------------------------------------------- */
static bool value(const eg_predicate *p, const int64_t *index, const int64_t *sizes, int run,
                  int64_t at)
{
    int64_t v[EG_WHERE_DEPTH];
    int t = 0;
    for (const step *s = p->step, *end = s + p->steps; s < end; s++) switch (s->code) {
        case EG_X_WHOLE: v[t++] = s->value; break;
        case EG_X_LETTER: v[t++] = eg__clamped(s->axis == run ? at : index[s->axis]); break;
        case EG_X_SIZE: v[t++] = sizes[s->axis] + s->value; break;
        case EG_X_NEG: v[t - 1] = -v[t - 1]; break;
        case EG_X_NOT: v[t - 1] = !v[t - 1]; break;
        case EG_X_ABS: v[t - 1] = eg__whole(EG_X_ABS, v[t - 1], 0, 0); break;
        case EG_X_SELECT:
        case EG_X_CLIP: t -= 2, v[t - 1] = eg__whole(s->code, v[t - 1], v[t], v[t + 1]); break;
        default: t--, v[t - 1] = eg__whole(s->code, v[t - 1], v[t], 0); break;
        }
    return v[0];
}
bool eg__where_test(const eg_predicate *p, const int64_t *index, const int64_t *sizes)
{
    return value(p, index, sizes, -1, 0);
}

/* LANES values at a time, so that the compiler sees a fixed count; a value that is the same in all
 * lanes stays one number. ⌊x / m⌋ by 64-bit floats: x / m rounds by less than 2^−21 / m while the
 * next integer is at least 1 / m away, so truncation is exact. */
typedef struct lanes {
    bool flat;
    int32_t one, v[LANES];
} lanes;

static inline void spread(lanes *x)
{
    if (x->flat) {
        x->flat = false;
        for (int i = 0; i < LANES; i++) x->v[i] = x->one;
    }
}
static inline void divide(lanes *x, int32_t m, bool rest) /* x / m or x % m, m ≠ 0 */
{
    int32_t *v = x->v;
    const int32_t n = rest && m < 0 ? -m : m;
    if (n > 0 && (n & (n - 1)) == 0) {
        const int shift = __builtin_ctz((unsigned)n);
        if (rest)
            for (int i = 0; i < LANES; i++) v[i] = (int32_t)((uint32_t)v[i] & (uint32_t)(n - 1));
        else
            for (int i = 0; i < LANES; i++) v[i] = v[i] >= 0 ? v[i] >> shift : ~(~v[i] >> shift);
        return;
    }
    const double d = n;
    for (int i = 0; i < LANES; i++) {
        const int32_t q = (int32_t)(v[i] / d),
                      r = (int32_t)((uint32_t)v[i] - (uint32_t)q * (uint32_t)n),
                      off = -(r != 0 && (r ^ n) < 0);
        v[i] = rest ? (int32_t)((uint32_t)r + ((uint32_t)n & (uint32_t)off)) : q + off;
    }
}
#define EACH(e)                                     \
    do {                                            \
        for (int i = 0; i < LANES; i++) v[i] = (e); \
    } while (0)
#if HAVE_TARGET_CLONES
__attribute__((target_clones("default", "arch=x86-64-v3")))
#endif
static void
row(const eg_predicate *p, int run, int64_t at, const int64_t *index, const int64_t *sizes,
    uint8_t *out)
{
    lanes stack[EG_WHERE_DEPTH];
    int top = 0; /* the first free place */
    for (const step *s = p->step, *end = s + p->steps; s < end; s++) {
        if (s->code <= EG_X_SIZE) {
            lanes *x = &stack[top++];
            x->flat = s->code != EG_X_LETTER || s->axis != run;
            if (x->flat)
                x->one = (int32_t)(s->code == EG_X_WHOLE  ? s->value
                                   : s->code == EG_X_SIZE ? sizes[s->axis] + s->value
                                                          : index[s->axis]);
            else
                for (int i = 0; i < LANES; i++) x->v[i] = (int32_t)at + i;
            continue;
        }
        if (s->code == EG_X_NEG || s->code == EG_X_NOT || s->code == EG_X_ABS) {
            lanes *x = &stack[top - 1];
            int32_t *v = x->v;
            if (x->flat)
                x->one = (int32_t)eg__whole(s->code, x->one, 0, 0);
            else if (s->code == EG_X_NEG)
                EACH(-v[i]);
            else if (s->code == EG_X_ABS)
                EACH(v[i] < 0 ? -v[i] : v[i]);
            else
                EACH(!v[i]);
            continue;
        }
        if (s->code == EG_X_SELECT || s->code == EG_X_CLIP) {
            top -= 2;
            lanes *x = &stack[top - 1], *y = &stack[top], *z = &stack[top + 1];
            spread(x), spread(y), spread(z);
            int32_t *v = x->v;
            const int32_t *a = y->v, *b = z->v;
            if (s->code == EG_X_SELECT)
                EACH(v[i] ? a[i] : b[i]);
            else
                EACH(v[i] < a[i] ? a[i] : v[i] > b[i] ? b[i] : v[i]);
            continue;
        }
        top--;
        lanes *a = &stack[top - 1], *b = &stack[top];
        if (a->flat && b->flat) {
            a->one = (int32_t)eg__whole(s->code, a->one, b->one, 0);
            continue;
        }
        if (b->flat && (s->code == EG_X_DIV || s->code == EG_X_MOD) && b->one) {
            divide(a, b->one, s->code == EG_X_MOD);
            continue;
        }
        spread(a), spread(b);
        int32_t *v = a->v;
        const int32_t *w = b->v;
        switch (s->code) {
        case EG_X_ADD: EACH(v[i] + w[i]); break;
        case EG_X_SUB: EACH(v[i] - w[i]); break;
        case EG_X_MUL: EACH(v[i] * w[i]); break;
        case EG_X_DIV: EACH((int32_t)eg__quotient(v[i], w[i])); break;
        case EG_X_MOD: EACH((int32_t)eg__modulus(v[i], w[i])); break;
        case EG_X_MIN: EACH(v[i] < w[i] ? v[i] : w[i]); break;
        case EG_X_MAX: EACH(v[i] > w[i] ? v[i] : w[i]); break;
        case EG_X_EQ: EACH(v[i] == w[i]); break;
        case EG_X_NE: EACH(v[i] != w[i]); break;
        case EG_X_LT: EACH(v[i] < w[i]); break;
        case EG_X_LE: EACH(v[i] <= w[i]); break;
        case EG_X_GT: EACH(v[i] > w[i]); break;
        case EG_X_GE: EACH(v[i] >= w[i]); break;
        case EG_X_AND: EACH(v[i] & w[i]); break;
        default: EACH(v[i] | w[i]); break;
        }
    }
    if (stack[0].flat)
        memset(out, stack[0].one, LANES);
    else
        for (int i = 0; i < LANES; i++) out[i] = (uint8_t)stack[0].v[i];
}
#undef EACH

void eg__where_row(const eg_predicate *p, int run, int64_t count, const int64_t *index,
                   const int64_t *sizes, uint8_t *out)
{
    const int64_t start = run >= 0 ? index[run] : 0, most = p->narrow - LANES;
    if (count <= 0) return;
    if (run < 0 || run >= 32 || !(p->uses >> run & 1)) {
        memset(out, value(p, index, sizes, -1, 0), (size_t)count);
        return;
    }
    bool narrow = start > -most && start < most && count < most - start;
    for (unsigned u = p->uses; u; u &= u - 1) {
        const int64_t i = index[__builtin_ctz(u)];
        narrow &= i > -most && i < most;
    }
    for (unsigned u = p->sizes; u; u &= u - 1) narrow &= sizes[__builtin_ctz(u)] < most;
    if (!narrow) {
        for (int64_t r = 0; r < count; r++) out[r] = value(p, index, sizes, run, eg__sum(start, r));
        return;
    }
    for (int64_t r = 0; r < count; r += LANES) {
        uint8_t rest[LANES];
        const int64_t left = count - r;
        row(p, run, start + r, index, sizes, left < LANES ? rest : out + r);
        if (left < LANES) memcpy(out + r, rest, (size_t)left);
    }
}
