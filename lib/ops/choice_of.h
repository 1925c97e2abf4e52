/* choice_of.h: y = condition ? a : b for elements of one width: T is a type of that width, NAME(x)
 * a name for it. */
EG_CLONES static void NAME(where)(int64_t n, char *const *p, const double *c)
{
    T *y = (T *)p[0];
    const uint8_t *condition = (const uint8_t *)p[1];
    const T *a = (const T *)p[2], *b = (const T *)p[3];
    (void)c;
    EG_EVERY_LANE
    for (int64_t k = 0; k < n; k++) y[k] = condition[k] ? a[k] : b[k];
}
