/* solve.c: triangular systems of linear equations, by forward substitution. */
#include "ops/ops.h"

enum { ROWS = 4, VECTORS = 2 }; /* of a tile, whose sums are kept in registers */
/* What remains of the columns is copied to the stack, up to NARROW rows, or solved column by
 * column, TALL rows at a time; row by row if there are fewer than SMALL rows. */
enum { NARROW = 512, TALL = 8, SMALL = 8 };
/* The systems of a call: n unknowns, for several columns of right-hand sides. An upper triangle is
 * a lower one with rows and columns in reverse. Distances from row to row and from column to
 * column, and where the first row begins: of x in elements and bytes, of a in bytes. */
typedef struct solving {
    int64_t n, columns, x, row, column, x_first, a_first;
} solving;

#define BYTES   32
#define T       float
#define NAME(x) x##_f32
#include "ops/solve_of.h"
#define T       double
#define NAME(x) x##_f64
#include "ops/solve_of.h"
#undef BYTES
#define T       double complex
#define NAME(x) x##_c128
#include "ops/solve_of.h"

/* -- solve_triangular: x with a x = b,  db = y with aᵀ y = g, da = −y xᵀ in the triangle. Golub,
 * Van Loan 2013, §3.1 */
static bool solve_shape(eg_tensor *y)
{
    const eg_tensor *a = y->in[0], *b = y->in[1];
    if (!eg__floats("solve_triangular", a, 1)) return false;
    if (a->dtype == b->dtype) return eg_result(y, (eg_dtype)b->dtype, b->rank, b->dim);
    eg_fail_as(y->cx, EG_ERROR_DTYPE,
               "solve_triangular: operand 1 is %s, operand 2 is %s; eg_cast one of them",
               eg_type_name((eg_dtype)a->dtype), eg_type_name((eg_dtype)b->dtype));
    return false;
}
/* Copies b to y, and solves in y. */
static bool solve_forward(eg_tensor *y)
{
    const eg_tensor *a = y->in[0];
    const int outer = y->rank - 2, width = eg__width[y->dtype];
    solving s = { .n = y->dim[outer], .columns = y->dim[outer + 1], .x = y->stride[outer] };
    s.row = a->stride[outer] * width;
    s.column = a->stride[outer + 1] * width;
    if (*(const bool *)y->attr && s.n) {
        s.x_first = (s.n - 1) * s.x * width;
        s.a_first = (s.n - 1) * (s.row + s.column);
        s.x = -s.x, s.row = -s.row, s.column = -s.column;
    }
    if (eg__recording(y->cx) && !eg__node_save(y, sizeof(eg_memo))) return false;
    eg__copy(y, y->in[1]);
    eg__rows(y->cx, outer, 2, (const eg_tensor *[]){ y, a }, s.n * s.n * s.columns / 2,
             y->dtype == EG_F32   ? solve_f32
             : y->dtype == EG_F64 ? solve_f64
                                  : solve_c128,
             &s);
    return true;
}
static eg_tensor *solution(eg_tensor *a, eg_tensor *b, bool upper);
/* Both cotangents need db, which is kept for the second. */
static eg_tensor *solve_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const bool upper = *(const bool *)y->attr;
    eg_memo *memo = y->saved;
    eg_tensor *db = memo && eg__remembered(memo, g)
                        ? memo->d[1]
                        : solution(eg_transpose(y->in[0], -1, -2), g, !upper);
    if (!eg_ok(db)) return db;
    if (memo) {
        memo->d[1] = db;
        eg__remember(memo, g);
    }
    if (i == 1) return db;
    eg_tensor *da = eg_neg(eg_einsum("...ik,...jk->...ij", db, y));
    return upper ? eg_triu(da, 0) : eg_tril(da, 0);
}
static eg_tensor *solve_call(eg_tensor *const *x)
{
    return eg_solve_triangular("bij,bik->bjk", x[0], x[1], false);
}
static eg_tensor *solve_call_upper(eg_tensor *const *x)
{
    return eg_solve_triangular("ij,kib->kbj", x[0], x[1], true);
}
static const eg_sample solve_samples[] = { { solve_call, "2x5x5, 2x5x3", 1, 2 },
                                           { solve_call_upper, "3x3, 2x3x2", 1, 2 },
                                           { 0 } };
static const eg_op solve_op = {
    .name = "solve_triangular",
    .equation = "x with a x = b",
    .gradient = "db = y with transpose(a) y = g, da = -y transpose(x) in the triangle",
    .arity = 2,
    .shape = solve_shape,
    .forward = solve_forward,
    .rule = solve_rule,
    .uses = EG_USES_ALL,
    .samples = solve_samples,
    .forward_c128 = solve_forward,
};
/* Returns x of a (… n n) and b (… n k). */
static eg_tensor *solution(eg_tensor *a, eg_tensor *b, bool upper)
{
    return eg_apply(&solve_op, &upper, sizeof upper, 2, (eg_tensor *[]){ a, b });
}

/* The axes of a call: those that number the systems, that of the equations, that of the unknowns,
 * and those of the right-hand sides of a system. */
typedef struct solve_axes {
    int batches, columns;
    uint16_t batch[EG_ITEMS_MAX], column[EG_ITEMS_MAX], equation, unknown;
} solve_axes;
/* Reads the axes of a bound string. False after an error. */
static bool solve_read(const eg_bound *b, solve_axes *s)
{
    int equations = 0, unknowns = 0;
    s->batches = s->columns = 0;
    for (int k = 0; k <= b->terms && b->arrow; k++)
        if (!eg__no_repeats(b, k)) return false;
    for (int k = 0; k < b->axes && b->arrow; k++) {
        const bool a = eg__item_of(&b->term[0], k) >= 0, right = eg__item_of(&b->term[1], k) >= 0,
                   x = eg__item_of(&b->out, k) >= 0;
        const uint16_t axis = (uint16_t)k;
        if (!x && !(a && right))
            return eg__refuse(b, a ? 0 : 1, eg__item_of(&b->term[a ? 0 : 1], k),
                              "index '%.*s' is in one operand only", b->axis[k].length,
                              b->axis[k].text),
                   false;
        if (!x)
            s->equation = axis, equations++;
        else if (!right)
            s->unknown = axis, unknowns++;
        else if (a)
            s->batch[s->batches++] = axis;
        else
            s->column[s->columns++] = axis;
    }
    if (equations != 1 || unknowns != 1)
        return eg__refuse(b, 0, -1,
                          "one index is needed that only the operands have (of the equations), and "
                          "one that only operand 1 and the output have (of the unknowns), as in "
                          "\"ij,ik->jk\""),
               false;
    const eg_axis_name *i = &b->axis[s->equation], *j = &b->axis[s->unknown];
    if (i->size == j->size && s->batches + 1 + s->columns < EG_RANK_MAX) return true;
    if (i->size != j->size)
        eg__refuse_as(b, EG_ERROR_SHAPE, 0, -1, "'%.*s' is %lld but '%.*s' is %lld: not square",
                      i->length, i->text, (long long)i->size, j->length, j->text,
                      (long long)j->size);
    else
        eg__refuse(b, 1, -1, "the result would have more than %d axes", EG_RANK_MAX);
    return false;
}

/* Applies the operation with the axes of b (batches, equation, columns), where the columns are
 * merged into one axis. */
eg_tensor *eg_solve_triangular(const char *spec, eg_tensor *a, eg_tensor *b, bool upper)
{
    uint16_t axis[EG_ITEMS_MAX];
    int64_t dim[EG_RANK_MAX];
    int order[EG_RANK_MAX], n;
    solve_axes s;
    eg_tensor *const xs[] = { a, b };
    eg_ctx *cx = eg__context_of("solve_triangular", 2, xs);
    if (!cx || !eg__check_all(cx, "solve_triangular", 2, xs)) return eg__poison(cx);
    const eg_bound *bound = eg__bind("solve_triangular", spec, 0, 2, xs, 0, NULL);
    if (!bound || !solve_read(bound, &s)) return eg__poison(cx);
    memcpy(axis, s.batch, sizeof s.batch);
    axis[n = s.batches] = s.equation;
    axis[n + 1] = s.unknown;
    eg_tensor *left = eg__align(bound, 0, n + 2, axis);
    memcpy(&axis[n + 1], s.column, (size_t)s.columns * sizeof *axis);
    eg_tensor *right = eg__align(bound, 1, n + 1 + s.columns, axis);
    dim[n + 1] = 1;
    for (int k = 0; k < n + 1 + s.columns; k++) {
        const int64_t size = bound->axis[axis[k]].size;
        if (k <= n)
            dim[k] = size;
        else
            dim[n + 1] *= size;
    }
    eg_tensor *x = solution(left, eg_reshape_n(right, n + 2, dim), upper);
    for (int k = 0; k < s.columns; k++) dim[n + 1 + k] = bound->axis[s.column[k]].size;
    x = eg_reshape_n(x, n + 1 + s.columns, dim);
    axis[n] = s.unknown;
    for (int k = 0; k < bound->out.items; k++)
        for (int from = 0; from < n + 1 + s.columns; from++)
            if (axis[from] == bound->out.item[k].axis) order[k] = from;
    return eg__merge(&bound->out, eg__reordered(x, bound->out.items, order));
}

const eg_op *const eg__solve_ops[] = { &solve_op, NULL };
