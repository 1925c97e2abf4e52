/* map_of.h: map.c's tile for one type, REAL. */

/* c[r, i] (+)= alpha a[r, i] b[r, i]; b NULL: alpha a[r, i]. Contiguous rows, and rows times one
 * number, have loops of their own. */
EG_CLONES static void NAME(map)(const tile *t, const REAL *a, const REAL *b, REAL *restrict c,
                                REAL alpha, bool add)
{
    const int64_t n = t->n, sa = t->sa, sc = t->sc;
    const bool factor = !b && alpha != 1; /* rows times alpha */
    for (int64_t r = 0; r < t->rows; r++, a += t->ra, c += t->rc) {
        if (!b && !factor) {
            if (sa == 1 && sc == 1) {
                if (add)
                    for (int64_t i = 0; i < n; i++) c[i] += a[i];
                else
                    for (int64_t i = 0; i < n; i++) c[i] = a[i];
            } else if (add)
                for (int64_t i = 0; i < n; i++) c[i * sc] += a[i * sa];
            else
                for (int64_t i = 0; i < n; i++) c[i * sc] = a[i * sa];
            continue;
        }
        const int64_t sb = b ? t->sb : 0;
        const REAL one = !b ? alpha : sa ? *b * alpha : *a * alpha, *many = sa ? a : b;
        if (sc == 1 && sa == 1 && sb == 1) {
            if (add)
                for (int64_t i = 0; i < n; i++) c[i] += alpha * (a[i] * b[i]);
            else
                for (int64_t i = 0; i < n; i++) c[i] = alpha * (a[i] * b[i]);
        } else if (sc == 1 && (sa == 0 || sb == 0) && sa + sb == 1) {
            if (add)
                for (int64_t i = 0; i < n; i++) c[i] += one * many[i];
            else
                for (int64_t i = 0; i < n; i++) c[i] = one * many[i];
        } else if (add)
            for (int64_t i = 0; i < n; i++) c[i * sc] += alpha * (a[i * sa] * (b ? b[i * sb] : 1));
        else
            for (int64_t i = 0; i < n; i++) c[i * sc] = alpha * (a[i * sa] * (b ? b[i * sb] : 1));
        if (b) b += t->rb;
    }
}
#undef REAL
#undef NAME
