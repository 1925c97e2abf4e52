/* given.c: the tensors of .with, which expressions read by their names. */
#include "notation/notation.h"
#include <eingrad/ops.h>

bool eg__given_read(eg_ctx *cx, const char *who, const eg_given *with, eg_given_tensors *g)
{
    const char *first = NULL;
    *g = (eg_given_tensors){ .floats = EG_DEFAULT };
    for (; g->count < EG_GIVEN_MAX && with[g->count].name; g->count++) {
        g->x[g->count] = with[g->count].x;
        if (!g->x[g->count])
            return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: '%s' of .with is NULL", who,
                              with[g->count].name),
                   false;
    }
    if (!eg__check_all(cx, who, g->count, g->x)) return false;
    for (int k = 0; k < g->count; k++) {
        const eg_tensor *x = g->x[k];
        g->readable[k] = (eg_readable){
            .name = with[k].name, .dtype = (eg_dtype)x->dtype, .rank = x->rank, .dim = x->dim
        };
        if (eg__is_int(x->dtype)) {
            eg__extremes(x, &g->readable[k].least, &g->readable[k].most);
            if (!eg__extremes_act(who, g->x[k], g->readable[k].least, g->readable[k].most))
                return false;
        }
        if (!eg__is_inexact(x->dtype)) continue;
        if (first && g->floats != (eg_dtype)x->dtype)
            return eg_fail_as(cx, EG_ERROR_DTYPE,
                              "%s: '%s' is %s but '%s' is %s; eg_cast one of them first", who,
                              first, eg_type_name(g->floats), with[k].name,
                              eg_type_name((eg_dtype)x->dtype)),
                   false;
        first = with[k].name;
        g->floats = (eg_dtype)x->dtype;
    }
    return true;
}
eg_box eg__given_box(const eg_given_tensors *g, const int64_t *low, const int64_t *high,
                     const int64_t *size)
{
    eg_box box = { .low = low, .high = high, .size = size };
    for (int k = 0; k < g->count; k++)
        box.least[k] = g->readable[k].least, box.most[k] = g->readable[k].most;
    return box;
}
bool eg__given_used(eg_ctx *cx, const char *who, const eg_given_tensors *g, const eg_expression *a,
                    const eg_expression *b, const char *what)
{
    const uint32_t reads = (a ? a->reads : 0) | (b ? b->reads : 0);
    for (int k = 0; k < g->count; k++)
        if (!(reads >> k & 1))
            return eg_fail_as(cx, EG_ERROR_NOTATION, "%s: '%s' of .with does not stand in %s", who,
                              g->readable[k].name, what),
                   false;
    return true;
}
