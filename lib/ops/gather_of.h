/* gather_of.h: the loops of `at` for elements of one width. T is a type of that width, NAME(x) a
 * name for it; wide: the index is i64. */
EG_INLINE void NAME(gather)(bool wide, int64_t n, char *const *p, const int64_t *step,
                            const pick *v)
{
    if (step[2] == 0) {
        const char *x = p[1] + index_at(wide, p[2]) * v->step;
        if (step[0] == (int64_t)sizeof(T) && step[1] == (int64_t)sizeof(T))
            memcpy(p[0], x, (size_t)n * sizeof(T));
        else
            eg__move((int)sizeof(T), n, p[0], step[0], x, step[1]);
    } else { /* locals, since what is written could be p, step or v */
        char *const y = p[0], *const x = p[1], *const index = p[2];
        const int64_t apart = v->step, ys = step[0], xs = step[1], is = step[2];
        if (ys == (int64_t)sizeof(T) && is == (wide ? 8 : 4))
            for (int64_t i = 0; i < n; i++)
                ((T *)y)[i] =
                    *(const T *)(x + i * xs + index_at(wide, index + i * (wide ? 8 : 4)) * apart);
        else if (ys == (int64_t)sizeof(T) && is == (wide ? -8 : -4))
            for (int64_t i = 0; i < n; i++)
                ((T *)y)[i] =
                    *(const T *)(x + i * xs + index_at(wide, index - i * (wide ? 8 : 4)) * apart);
        else
            for (int64_t i = 0; i < n; i++)
                *(T *)(y + i * ys) =
                    *(const T *)(x + i * xs + index_at(wide, index + i * is) * apart);
    }
}
/* The same for rows of one index each, of `all` contiguous elements. */
EG_INLINE void NAME(gather_dense)(bool wide, int64_t rows, const int64_t all, char *const *p,
                                  const int64_t *row_step, const pick *v)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy(p[0] + r * row_step[0],
               p[1] + r * row_step[1] + index_at(wide, p[2] + r * row_step[2]) * v->step,
               (size_t)all * sizeof(T));
}
#define LOOP(x) NAME(gather##x)
#include "ops/index_rows_of.h"
