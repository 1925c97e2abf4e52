/* where_value.c: predicates evaluated: at one index; along a row of indices, in 32 bits where
 * interval arithmetic has shown that no intermediate leaves them; as intervals, for a tile. */
#include "notation/where.h"
#include <string.h>

enum { LANES = 128 };

/* -- arithmetic ------------------------------------------------------------------------------- */
static int64_t clamp(int64_t v) { return v == INT64_MIN ? -INT64_MAX : v; }
static int64_t add(int64_t a, int64_t b)
{
    int64_t v;
    return __builtin_add_overflow(a, b, &v) ? a > 0 ? INT64_MAX : -INT64_MAX : clamp(v);
}
static int64_t sub(int64_t a, int64_t b) { return add(a, -b); }
static int64_t mul(int64_t a, int64_t b)
{
    int64_t v;
    return __builtin_mul_overflow(a, b, &v) ? (a > 0) == (b > 0) ? INT64_MAX : -INT64_MAX
                                            : clamp(v);
}
static int64_t quotient(int64_t a, int64_t b)
{
    return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static int64_t modulus(int64_t a, int64_t b)
{
    if (b == 0) return 0;
    const int64_t m = b < 0 ? -b : b, r = a % m;
    return r < 0 ? r + m : r;
}
int64_t eg__where_apply(int op, int64_t a, int64_t b)
{
    switch (op) {
    case ADD: return add(a, b);
    case SUB: return sub(a, b);
    case MUL: return mul(a, b);
    case DIV: return quotient(a, b);
    case MOD: return modulus(a, b);
    case EQ: return a == b;
    case NE: return a != b;
    case LT: return a < b;
    case LE: return a <= b;
    case GT: return a > b;
    case GE: return a >= b;
    case AND: return a & b;
    default: return a | b;
    }
}

/* -- intervals -------------------------------------------------------------------------------- */
/* A number lies in [low, high]; a truth is (0, 0) never, (1, 1) always, (0, 1) unknown. Saturation
 * is monotone, so bounds stay bounds. */
typedef struct interval {
    int64_t low, high;
} interval;

static interval corners(int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t low = a < b ? a : b, high = a < b ? b : a, least = c < d ? c : d,
                  most = c < d ? d : c;
    return (interval){ low < least ? low : least, high > most ? high : most };
}
/* The largest magnitude in x. */
static int64_t larger(interval x) { return -x.low > x.high ? -x.low : x.high; }
static interval join(int op, interval x, interval y)
{
    switch (op) {
    case ADD: return (interval){ add(x.low, y.low), add(x.high, y.high) };
    case SUB: return (interval){ sub(x.low, y.high), sub(x.high, y.low) };
    case MUL:
        return corners(mul(x.low, y.low), mul(x.low, y.high), mul(x.high, y.low),
                       mul(x.high, y.high));
    case DIV:
        if (y.low > 0 || y.high < 0)
            return corners(quotient(x.low, y.low), quotient(x.low, y.high), quotient(x.high, y.low),
                           quotient(x.high, y.high));
        return (interval){ -larger(x), larger(x) };
    case MOD: {
        const int64_t m = larger(y);
        if (y.low == y.high && m && quotient(x.low, m) == quotient(x.high, m))
            return (interval){ modulus(x.low, m), modulus(x.high, m) };
        return (interval){ 0, m ? m - 1 : 0 };
    }
    case EQ:
        return (interval){ x.low == x.high && y.low == y.high && x.low == y.low,
                           x.low <= y.high && y.low <= x.high };
    case NE:
        return (interval){ x.high < y.low || y.high < x.low,
                           !(x.low == x.high && y.low == y.high && x.low == y.low) };
    case LT: return (interval){ x.high < y.low, x.low < y.high };
    case LE: return (interval){ x.high <= y.low, x.low <= y.high };
    case GT: return (interval){ x.low > y.high, x.high > y.low };
    case GE: return (interval){ x.low >= y.high, x.high >= y.low };
    case AND: return (interval){ x.low & y.low, x.high & y.high };
    default: return (interval){ x.low | y.low, x.high | y.high };
    }
}

/* `all` > 0 stands for every letter in [−all, all] and every size in [0, all]; *widest is then the
 * largest magnitude of any number */
static interval bounds(const eg_predicate *p, const int64_t *low, const int64_t *high,
                       const int64_t *sizes, int64_t all, int64_t *widest)
{
    interval v[EG_WHERE_DEPTH];
    int t = 0;
    for (const step *s = p->step, *end = s + p->steps; s < end; s++) {
        switch (s->code) {
        case NUMBER: v[t++] = (interval){ s->value, s->value }; break;
        case INDEX:
            v[t++] = all ? (interval){ -all, all }
                         : (interval){ clamp(low[s->axis]), clamp(high[s->axis] - 1) };
            break;
        case SIZE:
            v[t++] = all ? (interval){ s->value, add(all, s->value) }
                         : (interval){ sizes[s->axis] + s->value, sizes[s->axis] + s->value };
            break;
        case NEG: v[t - 1] = (interval){ -v[t - 1].high, -v[t - 1].low }; break;
        case NOT: v[t - 1] = (interval){ !v[t - 1].high, !v[t - 1].low }; break;
        default: t--, v[t - 1] = join(s->code, v[t - 1], v[t]); break;
        }
        if (widest && larger(v[t - 1]) > *widest) *widest = larger(v[t - 1]);
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
    const interval v = bounds(p, low, high, sizes, 0, NULL);
    return v.low ? EG_COVER_ALL : v.high ? EG_COVER_SOME : EG_COVER_NONE;
}

/* -- values ----------------------------------------------------------------------------------- */
static bool value(const eg_predicate *p, const int64_t *index, const int64_t *sizes, int run,
                  int64_t at)
{
    int64_t v[EG_WHERE_DEPTH];
    int t = 0;
    for (const step *s = p->step, *end = s + p->steps; s < end; s++) switch (s->code) {
        case NUMBER: v[t++] = s->value; break;
        case INDEX: v[t++] = clamp(s->axis == run ? at : index[s->axis]); break;
        case SIZE: v[t++] = sizes[s->axis] + s->value; break;
        case NEG: v[t - 1] = -v[t - 1]; break;
        case NOT: v[t - 1] = !v[t - 1]; break;
        default: t--, v[t - 1] = eg__where_apply(s->code, v[t - 1], v[t]); break;
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
        if (s->code <= SIZE) {
            lanes *x = &stack[top++];
            x->flat = s->code != INDEX || s->axis != run;
            if (x->flat)
                x->one = (int32_t)(s->code == NUMBER ? s->value
                                   : s->code == SIZE ? sizes[s->axis] + s->value
                                                     : index[s->axis]);
            else
                for (int i = 0; i < LANES; i++) x->v[i] = (int32_t)at + i;
            continue;
        }
        if (s->code == NEG || s->code == NOT) {
            lanes *x = &stack[top - 1];
            int32_t *v = x->v;
            if (x->flat)
                x->one = s->code == NEG ? -x->one : !x->one;
            else if (s->code == NEG)
                EACH(-v[i]);
            else
                EACH(!v[i]);
            continue;
        }
        top--;
        lanes *a = &stack[top - 1], *b = &stack[top];
        if (a->flat && b->flat) {
            a->one = (int32_t)eg__where_apply(s->code, a->one, b->one);
            continue;
        }
        if (b->flat && (s->code == DIV || s->code == MOD) && b->one) {
            divide(a, b->one, s->code == MOD);
            continue;
        }
        spread(a), spread(b);
        int32_t *v = a->v;
        const int32_t *w = b->v;
        switch (s->code) {
        case ADD: EACH(v[i] + w[i]); break;
        case SUB: EACH(v[i] - w[i]); break;
        case MUL: EACH(v[i] * w[i]); break;
        case DIV: EACH((int32_t)quotient(v[i], w[i])); break;
        case MOD: EACH((int32_t)modulus(v[i], w[i])); break;
        case EQ: EACH(v[i] == w[i]); break;
        case NE: EACH(v[i] != w[i]); break;
        case LT: EACH(v[i] < w[i]); break;
        case LE: EACH(v[i] <= w[i]); break;
        case GT: EACH(v[i] > w[i]); break;
        case GE: EACH(v[i] >= w[i]); break;
        case AND: EACH(v[i] & w[i]); break;
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
        for (int64_t r = 0; r < count; r++) out[r] = value(p, index, sizes, run, add(start, r));
        return;
    }
    for (int64_t r = 0; r < count; r += LANES) {
        uint8_t rest[LANES];
        const int64_t left = count - r;
        row(p, run, start + r, index, sizes, left < LANES ? rest : out + r);
        if (left < LANES) memcpy(out + r, rest, (size_t)left);
    }
}
