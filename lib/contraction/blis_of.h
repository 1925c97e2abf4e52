/* blis_of.h: the calls of a kernel in blis.c for one type: REAL; UKR, the type of BLIS's function;
 * and ARG, the type of pointers that it takes. */

/* c (+)= alpha Σ_p a[p] b[p] by BLIS */
static void NAME(run)(const eg_kernel *kn, int64_t k, double alpha, const void *a, const void *b,
                      bool add, void *c, int64_t rs, int64_t cs)
{
    static const REAL one = 1, zero = 0;
    const REAL factor = (REAL)alpha;
    auxinfo_t next;
    memset(&next, 0, sizeof next);
    bli_auxinfo_set_next_ab((void *)a, (void *)b, &next);
    UKR ukr;
    memcpy(&ukr, &kn->ukr, sizeof ukr);
    ukr(kn->mr, kn->nr, (dim_t)k, (ARG)&factor, (ARG)a, (ARG)b, (ARG)(add ? &one : &zero), (ARG)c,
        (inc_t)rs, (inc_t)cs, &next, kn->cntx);
}
/* run() in plain C */
static void NAME(plain)(const eg_kernel *kn, int64_t k, double alpha, const void *av,
                        const void *bv, bool add, void *cv, int64_t rs, int64_t cs)
{
    const REAL *a = av, *b = bv;
    REAL *c = cv, sum[PLAIN_NR][PLAIN_MR] = { { 0 } };
    (void)kn;
    for (int64_t p = 0; p < k; p++, a += PLAIN_MR, b += PLAIN_NR)
        for (int j = 0; j < PLAIN_NR; j++)
            for (int i = 0; i < PLAIN_MR; i++) sum[j][i] += a[i] * b[j];
    for (int j = 0; j < PLAIN_NR; j++)
        for (int i = 0; i < PLAIN_MR; i++) {
            REAL *to = c + i * rs + j * cs;
            const REAL term = (REAL)alpha * sum[j][i];
            *to = add ? *to + term : term;
        }
}
/* True if the kernel's product of small integers, which is exact in any order, is right to the bit.
 * The arrays are static: the choice is made once, perhaps when a limited address space has no 40 KB
 * left for the stack. */
static bool NAME(trial)(const eg_kernel *kn)
{
    enum { K = 5, LENGTH = EG_KERNEL_SIDE };
    static _Alignas(64) REAL a[K * LENGTH], b[K * LENGTH], c[LENGTH * LENGTH];
    for (int i = 0; i < K * LENGTH; i++) {
        a[i] = (REAL)(i % 7 - 3);
        b[i] = (REAL)(i % 5 - 2);
    }
    int64_t rs = kn->rows ? kn->nr : 1, cs = kn->rows ? 1 : kn->mr;
    for (int i = 0; i < LENGTH * LENGTH; i++) c[i] = 99;
    kn->run(kn, K, 1, a, b, false, c, rs, cs);
    kn->run(kn, K, 2, a, b, true, c, rs, cs);
    for (int i = 0; i < kn->mr; i++)
        for (int j = 0; j < kn->nr; j++) {
            REAL sum = 0;
            for (int p = 0; p < K; p++) sum += a[p * kn->mr + i] * b[p * kn->nr + j];
            if (c[i * rs + j * cs] != 3 * sum) return false;
        }
    return true;
}
#undef REAL
#undef UKR
#undef ARG
#undef NAME
