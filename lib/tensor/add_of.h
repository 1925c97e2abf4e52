/* add_of.h: the loops of add.c for one type T. NAME(x) is a name for this type; U is the unsigned
 * type of an integer, else T. With INTEGERS only the loop of the sum is made. */
EG_INLINE T NAME(add_value)(T a, T b) { return (T)((U)a + (U)b); }
EG_CLONES static void NAME(add)(int64_t n, char *const *p, const double *c)
{
    (void)c;
    NAME(eg__each_pair)(NAME(add_value), n, p);
}

#if !INTEGERS
EG_CLONES static void NAME(add_to)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    (void)user;
    if (step[0] == (int64_t)sizeof(T) && step[1] == (int64_t)sizeof(T)) {
        T *restrict y = (T *)p[0];
        const T *restrict x = (const T *)p[1];
        for (int64_t i = 0; i < n; i++) y[i] += x[i];
    } else
        for (int64_t i = 0; i < n; i++)
            *(T *)(p[0] + i * step[0]) += *(const T *)(p[1] + i * step[1]);
}

/* y = y / c of n numbers, rounded once: the quotient of two floats is the same number whether it is
 * made at once or in f64, which has more than twice as many bits, and rounded to a float (Figueroa
 * 1995). */
EG_CLONES static void NAME(divide_by)(int64_t n, char *const *p, const int64_t *step,
                                      const void *user)
{
    const double count = *(const double *)user;
    const REAL c = (REAL)count;
    const bool exact = (double)c == count;
    T *y = (T *)p[0];
    if (exact && step[0] == (int64_t)sizeof(T))
        for (int64_t i = 0; i < n; i++) y[i] /= c;
    else
        for (int64_t i = 0; i < n; i++) {
            T *at = (T *)(p[0] + i * step[0]);
            *at = exact ? *at / c : (T)(*at / count);
        }
}
#endif

/* y = y c of n numbers */
static void NAME(scale_by)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const T c = (T) * (const double *)user;
    for (int64_t i = 0; i < n; i++) {
        T *y = (T *)(p[0] + i * step[0]);
        *y = (T)((U)*y * (U)c);
    }
}
