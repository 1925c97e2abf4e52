/* fill_of.h: the loop of eg__fill for one type T; AS(x) converts a double to that type, NAME(x) is
 * x with its name. */
static void NAME(fill)(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const T v = AS(*(const double *)user);
    if (step[0] == (int64_t)sizeof(T))
        for (int64_t i = 0; i < n; i++) ((T *)p[0])[i] = v;
    else
        for (int64_t i = 0; i < n; i++) *(T *)(p[0] + i * step[0]) = v;
}
#undef T
#undef NAME
#undef AS
