/* arithmetic_sum_of.h: one sum of arithmetic_of.h, in one vector that never leaves its register:
 * FUNCTION, its name and parameters, adds up TERM of two numbers u and v, elements of A and B.
 * WIDE_TERM is the same of 16 of them, where it is written otherwise. The last, incomplete group is
 * read together with elements before it, which count as 0. */
#ifndef WIDE_TERM
#define WIDE_TERM TERM
#endif
EG_INLINE T FUNCTION
{
    int64_t k = 0;
    if (n < EG_LANES) {
        T few = 0;
        for (; k < n; k++) {
            const T u = A[k], v = B[k];
            (void)v;
            few += TERM;
        }
        return few;
    }
    WIDE sum = { 0 }, u, v;
    for (; k + EG_LANES <= n; k += EG_LANES) {
        memcpy(&u, A + k, sizeof u);
        memcpy(&v, B + k, sizeof v);
        sum += WIDE_TERM;
    }
    if (k < n) {
        const BITS ours = COUNTING >= EG_LANES - (int)(n - k);
        memcpy(&u, A + n - EG_LANES, sizeof u);
        memcpy(&v, B + n - EG_LANES, sizeof v);
        sum += (WIDE)((BITS)(WIDE_TERM)&ours);
    }
    sum += TURN(sum, 8);
    sum += TURN(sum, 4);
    sum += TURN(sum, 2);
    return sum[0] + sum[1];
}
#undef FUNCTION
#undef A
#undef B
#undef TERM
#undef WIDE_TERM
