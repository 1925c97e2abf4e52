/* compare_of.h: the kernels of compare.c for one type T, of which REAL is the part that is
 * compared. NAME(x) is a name for this type; ROWS are its operations. */
/* still[0], still[1] (or NULL): in1, in2 is one element for all n. */
EG_INLINE void NAME(each)(bool (*value)(REAL a, REAL b), int64_t n, bool *out, const T *in1,
                          const T *in2, const double *still)
{
    if (still && (still[0] != 0 || still[1] != 0)) {
        const REAL a = EG_RE(*in1), b = EG_RE(*in2);
        if (still[0] != 0) {
            EG_EVERY_LANE
            for (int64_t k = 0; k < n; k++) out[k] = value(a, EG_RE(in2[k]));
        } else {
            EG_EVERY_LANE
            for (int64_t k = 0; k < n; k++) out[k] = value(EG_RE(in1[k]), b);
        }
        return;
    }
    EG_EVERY_LANE
    for (int64_t k = 0; k < n; k++) out[k] = value(EG_RE(in1[k]), EG_RE(in2[k]));
}
/* p[N] is the last operand: with one operand, b is a. */
/* clang-format off */
#define ROW(CALL, OP, N, VALUE, ...)                                                               \
    EG_INLINE bool NAME(OP##_value)(REAL a, REAL b) { (void)b; return VALUE; }                     \
    EG_CLONES static void NAME(OP)(int64_t n, char *const *p, const double *c)                     \
    { NAME(each)(NAME(OP##_value), n, (bool *)p[0], (const T *)p[1], (const T *)p[N],              \
                 N == 2 ? c : NULL); }
/* clang-format on */
ROWS
#undef ROW
