/* map_of.h: the tile of map.c for one type, REAL. Products are rounded in the same way in all
 * loops, so bits do not depend on strides. */

#define EACH(to, value)                                \
    if (add)                                           \
        for (int64_t i = 0; i < n; i++) (to) += value; \
    else                                               \
        for (int64_t i = 0; i < n; i++) (to) = value
/* c[r, i] (+)= a[r, i] */
EG_CLONES static void NAME(map_copy)(const tile *t, const REAL *a, REAL *restrict c, bool add)
{
    const int64_t n = t->n, sa = t->sa, sc = t->sc;
    for (int64_t r = 0; r < t->rows; r++, a += t->ra, c += t->rc)
        if (sa == 1 && sc == 1)
            EACH(c[i], a[i]);
        else
            EACH(c[i * sc], a[i * sa]);
}
/* c[r, i] (+)= alpha (a[r, i] b[r]); alpha a[r, i] if b is NULL */
EG_CLONES static void NAME(map_scale)(const tile *t, const REAL *a, const REAL *b, REAL *restrict c,
                                      REAL alpha, bool add)
{
    const int64_t n = t->n, sa = t->sa, sc = t->sc;
    for (int64_t r = 0; r < t->rows; r++, a += t->ra, c += t->rc) {
        const REAL one = b ? b[r * t->rb] : 1;
        if (sa == 1 && sc == 1)
            EACH(c[i], alpha * (a[i] * one));
        else
            EACH(c[i * sc], alpha * (a[i * sa] * one));
    }
}
/* c[r, i] (+)= alpha (a[r, i] b[r, i]) */
EG_CLONES static void NAME(map_multiply)(const tile *t, const REAL *a, const REAL *b,
                                         REAL *restrict c, REAL alpha, bool add)
{
    const int64_t n = t->n, sa = t->sa, sb = t->sb, sc = t->sc;
    for (int64_t r = 0; r < t->rows; r++, a += t->ra, b += t->rb, c += t->rc)
        if (sa == 1 && sb == 1 && sc == 1)
            EACH(c[i], alpha * (a[i] * b[i]));
        else if (sa == 1 && sc == 1)
            EACH(c[i], alpha * (a[i] * b[i * sb]));
        else
            EACH(c[i * sc], alpha * (a[i * sa] * b[i * sb]));
}
/* c (+)= alpha a b; alpha a if b is NULL. If there are two operands, one that varies along rows
 * comes first. */
static void NAME(map)(const tile *t, const REAL *a, const REAL *b, REAL *c, REAL alpha, bool add)
{
    tile swapped = *t; /* with a and b exchanged */
    swapped.ra = t->rb, swapped.sa = t->sb, swapped.rb = t->ra, swapped.sb = t->sa;
    if (!b && alpha == 1)
        NAME(map_copy)(t, a, c, add);
    else if (b && t->sb && (t->sa == 0 || (t->sb == 1 && t->sa != 1)))
        NAME(map)(&swapped, b, a, c, alpha, add);
    else
        (b && t->sb ? NAME(map_multiply) : NAME(map_scale))(t, a, b, c, alpha, add);
}
#undef EACH
#undef REAL
#undef NAME
