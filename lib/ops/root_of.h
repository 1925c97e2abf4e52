/* root_of.h: square roots of one type T by AVX-512, on registers V, in 0.4 (f64) and 0.65 (f32) of
 * the time of its instruction; without AVX-512 by the loop of pointwise.c. M(name) is its function
 * for these registers. NAME(x) is x with the name of the type.
 *
 * The instruction for 1/√x has 14 bits; g ≈ √x and h ≈ 1/2√x. A step with r = 1/2 − g h doubles
 * their correct bits: g + g r, h + h r. After STEPS of them g is at most one ulp from √x, so that x
 * − g² is exact in a fused product, and g + h (x − g²) is √x correctly rounded (Markstein 2004),
 * the bits of the instruction: f32 for every number, f64 also for the 719 numbers whose roots are
 * nearest to the middle of two numbers. For LEAST ≤ x ≤ MOST nothing is subnormal; a register with
 * any other number is computed by the instruction. `power`, a constant: as x^½ of C, 0 of −0 and ∞
 * of −∞. */
__attribute__((target("avx512f"))) static inline void NAME(fast_roots)(int64_t n, const T *x, T *y,
                                                                       const bool power)
{
    const V half = M(set1)((T).5), least = M(set1)((T)LEAST), most = M(set1)((T)MOST),
            low = M(set1)(-(T)INFINITY), zero = M(set1)(0);
    for (int64_t k = 0; k < n; k += (int64_t)(sizeof(V) / sizeof(T))) {
        const V v = M(loadu)(x + k);
        if ((COMPARE(v, least, _CMP_GE_OQ) & COMPARE(v, most, _CMP_LE_OQ)) != ALL) {
            const V root =
                M(sqrt)(power ? M(mask_sub)(v, COMPARE(v, low, _CMP_EQ_OQ), zero, v) : v);
            M(storeu)(y + k, power ? M(add)(root, zero) : root);
            continue;
        }
        const V inverse = M(rsqrt14)(v);
        V g = M(mul)(v, inverse), h = M(mul)(inverse, half);
        for (int i = 0; i < STEPS; i++) {
            const V r = M(fnmadd)(g, h, half);
            g = M(fmadd)(g, r, g), h = M(fmadd)(h, r, h);
        }
        M(storeu)(y + k, M(fmadd)(M(fnmadd)(g, g, v), h, g));
    }
}
/* the kernel of eg_sqrt for the type */
static void NAME(roots)(int64_t n, char *const *p, const double *c)
{
    if (__builtin_cpu_supports("avx512f"))
        NAME(fast_roots)(n & -EG_LANES, (const T *)(const void *)p[1], (T *)(void *)p[0], false);
    else
        NAME(sqrt)(n, p, c);
}
/* the kernel of eg_powc for x^½ */
static void NAME(power_roots)(int64_t n, char *const *p, const double *c)
{
    if (__builtin_cpu_supports("avx512f"))
        NAME(fast_roots)(n & -EG_LANES, (const T *)(const void *)p[1], (T *)(void *)p[0], true);
    else
        NAME(root)(n, p, c);
}
#undef T
#undef NAME
#undef V
#undef M
#undef COMPARE
#undef ALL
#undef LEAST
#undef MOST
#undef STEPS
