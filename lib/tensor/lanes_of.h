/* lanes_of.h: the loops over lanes for one type T: y = value(x, a, b) of one operand, with
 * constants a and b, and y = value(a, b) of two. `value` is a constant where a loop is inlined.
 * NAME(x) is x with the name of this type. REAL is the type of the constants, which are real for
 * complex elements too: a complex factor with imaginary part 0 would give NaN for an infinite
 * element. Loops of functions are called with complete groups of lanes only (lanes.h). */
EG_INLINE void NAME(eg__each)(T (*value)(T x, REAL a, REAL b), int64_t n, char *const *p, REAL a,
                              REAL b)
{
    T *out = (T *)p[0];
    const T *in = (const T *)p[1];
    EG_EVERY_LANE
    for (int64_t k = 0; k < n; k++) out[k] = value(in[k], a, b);
}
/* y = last(x, first(x)), for functions with a division after an exponential. Each is a loop of its
 * own over a block: together they are a chain of dependent instructions that is longer than what a
 * processor overlaps (tanh and sigmoid of f32 take 0.57 instead of 0.71 ns an element on an AMD
 * EPYC, family 25, model 1). skips: NULL, or true of n numbers for which `last` does not read e. */
EG_INLINE void NAME(eg__each_staged)(T (*first)(T x), T (*last)(T x, T e),
                                     bool (*skips)(int64_t n, const T *x), int64_t n,
                                     char *const *p)
{
    T *out = (T *)p[0];
    const T *in = (const T *)p[1];
    for (int64_t size; n; n -= size, in += size, out += size) {
        T e[EG_BLOCK];
        size = n < EG_BLOCK ? n : EG_BLOCK;
        if (skips && skips(size, in)) {
            EG_EVERY_LANE
            for (int64_t k = 0; k < size; k++) out[k] = last(in[k], 0);
            continue;
        }
        EG_EVERY_LANE
        for (int64_t k = 0; k < size; k++) e[k] = first(in[k]);
        EG_EVERY_LANE
        for (int64_t k = 0; k < size; k++) out[k] = last(in[k], e[k]);
    }
}
/* still[0], still[1] (or NULL): in1, in2 is one element for all n. */
EG_INLINE void NAME(eg__each_pair)(T (*value)(T a, T b), int64_t n, char *const *p,
                                   const double *still)
{
    T *out = (T *)p[0];
    const T *in1 = (const T *)p[1], *in2 = (const T *)p[2];
    if (still && (still[0] != 0 || still[1] != 0)) {
        const T a = *in1, b = *in2;
        if (still[0] != 0) {
            EG_EVERY_LANE
            for (int64_t k = 0; k < n; k++) out[k] = value(a, in2[k]);
        } else {
            EG_EVERY_LANE
            for (int64_t k = 0; k < n; k++) out[k] = value(in1[k], b);
        }
        return;
    }
    EG_EVERY_LANE
    for (int64_t k = 0; k < n; k++) out[k] = value(in1[k], in2[k]);
}
/* eg__each_staged for y = last(a, b, first(b)) */
EG_INLINE void NAME(eg__each_pair_staged)(T (*first)(T b), T (*last)(T a, T b, T e), int64_t n,
                                          char *const *p)
{
    T *out = (T *)p[0];
    const T *in1 = (const T *)p[1], *in2 = (const T *)p[2];
    for (int64_t size; n; n -= size, in1 += size, in2 += size, out += size) {
        T e[EG_BLOCK];
        size = n < EG_BLOCK ? n : EG_BLOCK;
        EG_EVERY_LANE
        for (int64_t k = 0; k < size; k++) e[k] = first(in2[k]);
        EG_EVERY_LANE
        for (int64_t k = 0; k < size; k++) out[k] = last(in1[k], in2[k], e[k]);
    }
}
