/* update_of.h: the loops of update.c for one type: REAL, its square root ROOT; SIGNED is a signed
 * integer of its width, and MAGNITUDE all of its bits but the sign; NAME(x) is x with the name of
 * the type. */
CLONES static eg__norms NAME(norms)(int64_t n, const REAL *g, double limit, double scale)
{
    double sum[LANES] = { 0 }, most[LANES] = { 0 };
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int l = 0; l < LANES; l++) {
            double x = (double)g[k + l], c = CLIPPED(x, limit) * scale, a = x < 0 ? -x : x;
            sum[l] += c * c;
            most[l] = LARGER(most[l], a);
        }
    for (int l = 0; k < n; k++, l++) {
        double x = (double)g[k], c = CLIPPED(x, limit) * scale, a = x < 0 ? -x : x;
        sum[l] += c * c;
        most[l] = LARGER(most[l], a);
    }
    eg__norms all = { 0, 0 };
    for (int l = 0; l < LANES; l++) {
        all.squares += sum[l];
        all.largest = LARGER(all.largest, most[l]);
    }
    return all;
}

/* As `norms`, without limit and scale. |x| are compared as integers, among which those of NaN are
 * the largest. */
EG__INLINE void NAME(plain_eight)(const REAL *g, eight_f64 *sum, NAME(whole) * most)
{
    NAME(eight) x;
    memcpy(&x, g, sizeof x);
    const eight_f64 wide = __builtin_convertvector(x, eight_f64);
    const NAME(whole) size = (NAME(whole))x & MAGNITUDE, more = size > *most;
    *sum += wide * wide;
    *most = (size & more) | (*most & ~more);
}
/* A largest number waits for the one before it longer than a sum does, so two grow side by side. */
CLONES static eg__norms NAME(plain_norms)(int64_t n, const REAL *g)
{
    enum { PARTS = LANES / 8 };
    eight_f64 sum[PARTS] = { { 0 } };
    NAME(whole) most[2 * PARTS] = { { 0 } };
    REAL rest[LANES] = { 0 }, largest;
    SIGNED tallest[8], top = 0;
    double squares[LANES];
    int64_t k = 0;
    for (; k + 2 * LANES <= n; k += 2 * LANES)
        UNROLLED for (int p = 0; p < 2 * PARTS; p++)
            NAME(plain_eight)(g + k + 8 * p, &sum[p % PARTS], &most[p]);
    if (k + LANES <= n) {
        UNROLLED for (int p = 0; p < PARTS; p++)
            NAME(plain_eight)(g + k + 8 * p, &sum[p], &most[p]);
        k += LANES;
    }
    if (k < n) {
        memcpy(rest, g + k, (size_t)(n - k) * sizeof *g);
        UNROLLED for (int p = 0; p < PARTS; p++) NAME(plain_eight)(rest + 8 * p, &sum[p], &most[p]);
    }
    UNROLLED for (int p = 1; p < 2 * PARTS; p++)
    {
        const NAME(whole) more = most[p] > most[0];
        most[0] = (most[p] & more) | (most[0] & ~more);
    }
    memcpy(squares, sum, sizeof sum);
    memcpy(tallest, most, sizeof tallest);
    eg__norms all = { 0, 0 };
    for (int l = 0; l < LANES; l++) all.squares += squares[l];
    for (int l = 0; l < 8; l++) top = tallest[l] > top ? tallest[l] : top; /* without jumps */
    memcpy(&largest, &top, sizeof top);
    all.largest = (double)largest;
    return all;
}

/* θ ← θ − η g;  with momentum u ← μu + keep g, θ ← θ − η (of_g g + of_u u) */
CLONES static void NAME(sgd)(int64_t n, const eg__coefficients *c, REAL *x, const REAL *g,
                             REAL *const *moment)
{
    const REAL limit = (REAL)c->limit, coef = (REAL)c->coef, l2 = (REAL)c->l2, eta = (REAL)c->eta;
    const REAL mu = (REAL)c->mu, keep = (REAL)c->keep, of_g = (REAL)c->of_g, of_u = (REAL)c->of_u;
    REAL *u = moment[0];
    const int64_t still = u ? 0 : n, moving = n - still; /* lengths, so that the loops vectorise */
    for (int64_t k = 0; k < still; k++) x[k] -= eta * GRADIENT;
    for (int64_t k = 0; k < moving; k++) {
        REAL d = GRADIENT;
        u[k] = mu * u[k] + keep * d;
        x[k] -= eta * (of_g * d + of_u * u[k]);
    }
}

/* m ← β₁m + (1 − β₁) g;  v ← β₂v + (1 − β₂) g²;  θ ← shrink θ − η m/(√v/root + eps);
 * amsgrad: the largest v so far */
CLONES static void NAME(adam)(int64_t n, const eg__coefficients *c, REAL *x, const REAL *g,
                              REAL *const *moment)
{
    const REAL limit = (REAL)c->limit, coef = (REAL)c->coef, l2 = (REAL)c->l2,
               shrink = (REAL)c->shrink;
    const REAL b1 = (REAL)c->b1, b2 = (REAL)c->b2, c1 = (REAL)(1 - c->b1), c2 = (REAL)(1 - c->b2);
    const REAL eta = (REAL)c->eta, root = (REAL)c->root, eps = (REAL)c->eps;
    REAL *m = moment[0], *v = moment[1], *most = moment[2];
    const int64_t usual = most ? 0 : n, amsgrad = n - usual;
    for (int64_t k = 0; k < usual; k++) {
        REAL d = GRADIENT;
        m[k] = b1 * m[k] + c1 * d;
        v[k] = b2 * v[k] + c2 * d * d;
        x[k] = shrink * x[k] - eta * m[k] / (ROOT(v[k]) / root + eps);
    }
    for (int64_t k = 0; k < amsgrad; k++) {
        REAL d = GRADIENT;
        m[k] = b1 * m[k] + c1 * d;
        v[k] = b2 * v[k] + c2 * d * d;
        most[k] = LARGER(most[k], v[k]);
        x[k] = shrink * x[k] - eta * m[k] / (ROOT(most[k]) / root + eps);
    }
}

/* v ← αv + (1 − α) g²;  d = g/(√v̂ + eps), where v̂ = v or, with m ← αm + (1 − α) g, the variance v
 * − m², which rounding may make negative;  with momentum u ← μu + d, d = u;  θ ← θ − η d */
CLONES static void NAME(rmsprop)(int64_t n, const eg__coefficients *c, REAL *x, const REAL *g,
                                 REAL *const *moment)
{
    const REAL limit = (REAL)c->limit, coef = (REAL)c->coef, l2 = (REAL)c->l2, eta = (REAL)c->eta;
    const REAL b2 = (REAL)c->b2, c2 = (REAL)(1 - c->b2), eps = (REAL)c->eps, mu = (REAL)c->mu;
    REAL *v = moment[0], *u = moment[1], *m = moment[2];
    for (int64_t k = 0; k < n; k++) {
        REAL d = GRADIENT, spread;
        spread = v[k] = b2 * v[k] + c2 * d * d;
        if (m) {
            m[k] = b2 * m[k] + c2 * d;
            spread = LARGER(v[k] - m[k] * m[k], 0);
        }
        d /= ROOT(spread) + eps;
        if (u) d = u[k] = mu * u[k] + d;
        x[k] -= eta * d;
    }
}

/* v ← v + g²;  θ ← θ − η g/(√v + eps) */
CLONES static void NAME(adagrad)(int64_t n, const eg__coefficients *c, REAL *x, const REAL *g,
                                 REAL *const *moment)
{
    const REAL limit = (REAL)c->limit, coef = (REAL)c->coef, l2 = (REAL)c->l2, eta = (REAL)c->eta,
               eps = (REAL)c->eps;
    REAL *v = moment[0];
    for (int64_t k = 0; k < n; k++) {
        REAL d = GRADIENT;
        v[k] += d * d;
        x[k] -= eta * d / (ROOT(v[k]) + eps);
    }
}

/* clang 14 finds a cloned function only in its own file */
eg__norms NAME(eg__norms)(int64_t n, const REAL *g, double limit, double scale)
{
    return isinf(limit) && scale == 1 ? NAME(plain_norms)(n, g) : NAME(norms)(n, g, limit, scale);
}

void NAME(eg__sgd)(int64_t n, const eg__coefficients *c, REAL *x, const REAL *g,
                   REAL *const *moment)
{
    NAME(sgd)(n, c, x, g, moment);
}

void NAME(eg__adam)(int64_t n, const eg__coefficients *c, REAL *x, const REAL *g,
                    REAL *const *moment)
{
    NAME(adam)(n, c, x, g, moment);
}

void NAME(eg__rmsprop)(int64_t n, const eg__coefficients *c, REAL *x, const REAL *g,
                       REAL *const *moment)
{
    NAME(rmsprop)(n, c, x, g, moment);
}

void NAME(eg__adagrad)(int64_t n, const eg__coefficients *c, REAL *x, const REAL *g,
                       REAL *const *moment)
{
    NAME(adagrad)(n, c, x, g, moment);
}

#undef REAL
#undef ROOT
#undef NAME
#undef MAGNITUDE
#undef SIGNED
