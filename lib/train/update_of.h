/* update_of.h: the loops of update.c for one type: REAL, its square root ROOT; RATIO(a, b),
 * which is a / b, for the same b in all turns of a loop; SIGNED is a signed integer of its width,
 * and MAGNITUDE all of its bits but the sign; NAME(x) is x with the name of the type. */
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

/* Adds the squares of LANES numbers to sum, and compares |x| with most: as integers, among which
 * those of NaN are the largest. */
EG__INLINE void NAME(plain_lanes)(const REAL *g, four_f64 *sum, NAME(whole) * most)
{
    enum { WHOLE = sizeof *most / sizeof *g };
    UNROLLED for (int p = 0; p < LANES / 4; p++)
    {
        const REAL *x = g + 4 * p;
        const four_f64 wide = { x[0], x[1], x[2], x[3] };
        sum[p] += wide * wide;
    }
    UNROLLED for (int p = 0; p < LANES / WHOLE; p++)
    {
        NAME(whole) size, more;
        memcpy(&size, g + WHOLE * p, sizeof size);
        size &= MAGNITUDE;
        more = size > most[p];
        most[p] = (size & more) | (most[p] & ~more);
    }
}
/* As `norms`, without limit and scale. */
CLONES static eg__norms NAME(plain_norms)(int64_t n, const REAL *g)
{
    enum { WHOLE = sizeof(NAME(whole)) / sizeof *g };
    four_f64 sum[LANES / 4] = { { 0 } };
    NAME(whole) most[LANES / WHOLE] = { { 0 } };
    REAL rest[LANES] = { 0 }, largest;
    SIGNED tallest[LANES], top = 0;
    double squares[LANES];
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES) NAME(plain_lanes)(g + k, sum, most);
    if (k < n) {
        memcpy(rest, g + k, (size_t)(n - k) * sizeof *g);
        NAME(plain_lanes)(rest, sum, most);
    }
    memcpy(squares, sum, sizeof sum);
    memcpy(tallest, most, sizeof tallest);
    eg__norms all = { 0, 0 };
    for (int l = 0; l < LANES; l++) all.squares += squares[l];
    for (int l = 0; l < LANES; l++) top = tallest[l] > top ? tallest[l] : top; /* without jumps */
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
        x[k] = shrink * x[k] - eta * m[k] / (RATIO(ROOT(v[k]), root) + eps);
    }
    for (int64_t k = 0; k < amsgrad; k++) {
        REAL d = GRADIENT;
        m[k] = b1 * m[k] + c1 * d;
        v[k] = b2 * v[k] + c2 * d * d;
        most[k] = LARGER(most[k], v[k]);
        x[k] = shrink * x[k] - eta * m[k] / (RATIO(ROOT(most[k]), root) + eps);
    }
}

/* v ← αv + (1 − α) g²;  d = g/(√v̂ + eps), where v̂ = v or, if centred, with m ← αm + (1 − α) g,
 * the variance v − m², which rounding may make negative;  with momentum u ← μu + d, d = u;
 * θ ← θ − η d. centred and moving are constants, so that the loop vectorises. */
EG__INLINE void NAME(rmsprop_of)(const bool centred, const bool moving, int64_t n,
                                 const eg__coefficients *c, REAL *x, const REAL *g,
                                 REAL *const *moment)
{
    const REAL limit = (REAL)c->limit, coef = (REAL)c->coef, l2 = (REAL)c->l2, eta = (REAL)c->eta;
    const REAL b2 = (REAL)c->b2, c2 = (REAL)(1 - c->b2), eps = (REAL)c->eps, mu = (REAL)c->mu;
    REAL *v = moment[0], *u = moment[1], *m = moment[2];
    for (int64_t k = 0; k < n; k++) {
        REAL d = GRADIENT, spread;
        spread = v[k] = b2 * v[k] + c2 * d * d;
        if (centred) {
            m[k] = b2 * m[k] + c2 * d;
            spread = LARGER(v[k] - m[k] * m[k], 0);
        }
        d /= ROOT(spread) + eps;
        if (moving) d = u[k] = mu * u[k] + d;
        x[k] -= eta * d;
    }
}
CLONES static void NAME(rmsprop)(int64_t n, const eg__coefficients *c, REAL *x, const REAL *g,
                                 REAL *const *moment)
{
    if (moment[1] && moment[2])
        NAME(rmsprop_of)(true, true, n, c, x, g, moment);
    else if (moment[1])
        NAME(rmsprop_of)(false, true, n, c, x, g, moment);
    else if (moment[2])
        NAME(rmsprop_of)(true, false, n, c, x, g, moment);
    else
        NAME(rmsprop_of)(false, false, n, c, x, g, moment);
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
#undef RATIO
#undef NAME
#undef MAGNITUDE
#undef SIGNED
