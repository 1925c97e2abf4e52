/* affine_finish.c: computes y = f(c + b) + r for a tile of sums c of an affine map while the tile
 * is in the first-level cache (eg_finish of contraction.h). Product, bias, activation, the values
 * that its gradient needs, and residual thus take one pass over memory. The bits are those of the
 * separate operations, since activations are called for whole groups of lanes. */
#include "ops/ops.h"
#include <string.h>

/* Returns the finish of the copy to which the elements at `at` belong: the given one, or *its,
 * which is set to that of the copy. */
static const eg_affine_finish *affine_finish_at(const eg_finish *finish, const void *at,
                                                eg_affine_finish *its)
{
    const eg_affine_finish *f = (const eg_affine_finish *)(const void *)finish;
    const int64_t copy = f->y_step ? ((const char *)at - f->y) / f->y_step : 0;
    if (!copy) return f;
    *its = *f;
    its->y += copy * f->y_step;
    if (f->z) its->z += copy * f->z_step;
    if (f->bias) its->bias += copy * f->bias_step;
    if (f->add) its->add += copy * f->add_step;
    return its;
}

#define T       float
#define NAME(x) x##_f32
#include "ops/affine_finish_of.h"
#define T       double
#define NAME(x) x##_f64
#include "ops/affine_finish_of.h"

void eg__affine_finish(eg_affine_finish *f, eg_dtype dtype)
{
    f->width = eg__width[dtype];
    f->finish.run = dtype == EG_F64 ? affine_tile_f64 : affine_tile_f32;
    const uintptr_t y = (uintptr_t)f->y;
    f->finish.beside[0] = f->z ? (int64_t)((uintptr_t)f->z - y) : 0;
    f->finish.beside[1] = f->add ? (int64_t)((uintptr_t)f->add - y) : 0;
}

enum { PIECE = 1 << 13 }; /* elements */
typedef struct affine_all {
    const eg_affine_finish *f;
    int64_t n;
} affine_all;
static void affine_piece(void *user, int64_t piece, int thread)
{
    const affine_all *a = user;
    const int64_t from = piece * PIECE;
    (void)thread;
    a->f->finish.run(&a->f->finish, a->f->y + from * a->f->width, eg__min64(PIECE, a->n - from), 1,
                     0);
}
void eg__affine_finish_all(eg_ctx *cx, const eg_affine_finish *f, int64_t n)
{
    affine_all a = { f, n };
    eg__parallel(cx, eg__team(cx, n, PIECE), (n + PIECE - 1) / PIECE, affine_piece, &a);
}
