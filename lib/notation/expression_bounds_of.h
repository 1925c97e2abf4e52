/* expression_bounds_of.h: NAME extends the interval *v by n elements of type T with a stride. */
EG_CLONES static void NAME(int64_t n, const T *x, int64_t stride, eg_interval *v)
{
    T low = x[0], high = x[0];
    if (stride == 1)
        for (int64_t k = 1; k < n; k++)
            low = x[k] < low ? x[k] : low, high = x[k] > high ? x[k] : high;
    else
        for (int64_t k = 1; k < n; k++) {
            const T y = x[k * stride];
            low = y < low ? y : low, high = y > high ? y : high;
        }
    if (low < v->low) v->low = low;
    if (high > v->high) v->high = high;
}
#undef T
#undef NAME
