/* scatter_of.h: the loops of scatter_add for elements of type T. NAME(x) is a name for this type;
 * wide: the index is i64. */
EG_INLINE void NAME(scatter)(bool wide, int64_t n, char *const *p, const int64_t *step,
                             const pick *v)
{
    if (step[2] == 0) {
        const int64_t at = index_at(wide, p[2]);
        if (at < v->low || at >= v->high) return;
        char *y = p[1] + at * v->step;
        if (step[0] == (int64_t)sizeof(T) && step[1] == (int64_t)sizeof(T)) {
            T *restrict to = (T *)y;
            const T *restrict from = (const T *)p[0];
            for (int64_t i = 0; i < n; i++) to[i] += from[i];
        } else
            for (int64_t i = 0; i < n; i++)
                *(T *)(y + i * step[1]) += *(const T *)(p[0] + i * step[0]);
    } else {
        char *const y = p[1], *const from = p[0], *const index = p[2];
        const int64_t apart = v->step, low = v->low, all = v->high - v->low;
        const int64_t us = step[0], ys = step[1], is = step[2];
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = index_at(wide, index + i * is);
            if ((uint64_t)(at - low) >= (uint64_t)all) continue;
            *(T *)(y + i * ys + at * apart) += *(const T *)(from + i * us);
        }
    }
}
/* The same for rows of one index each, of `all` contiguous elements. */
EG_INLINE void NAME(scatter_dense)(bool wide, int64_t rows, const int64_t all, char *const *p,
                                   const int64_t *row_step, const pick *v)
{
    for (int64_t r = 0; r < rows; r++) {
        const int64_t at = index_at(wide, p[2] + r * row_step[2]);
        if (at < v->low || at >= v->high) continue;
        T *restrict to = (T *)(p[1] + r * row_step[1] + at * v->step);
        const T *restrict from = (const T *)(p[0] + r * row_step[0]);
        for (int64_t i = 0; i < all; i++) to[i] += from[i];
    }
}
#define LOOP(x) NAME(scatter##x)
#include "ops/index_rows_of.h"
#undef T
#undef NAME
