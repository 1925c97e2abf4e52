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
EG_INLINE void NAME(eg__each_pair)(T (*value)(T a, T b), int64_t n, char *const *p)
{
    T *out = (T *)p[0];
    const T *in1 = (const T *)p[1], *in2 = (const T *)p[2];
    EG_EVERY_LANE
    for (int64_t k = 0; k < n; k++) out[k] = value(in1[k], in2[k]);
}
