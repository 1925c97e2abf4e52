/* index.c: eg_at (gather, embedding), eg_scatter_add and eg_one_hot, which read or add at indices
 * that a tensor of integers gives.
 *
 * at and scatter_add are each other's adjoint. Both loop over the axes of the gathered values u. x
 * without its indexed axis v, the index and u are viewed with these axes; an axis that x or the
 * index does not have gets stride 0. */
#include "ops/ops.h"
#include <string.h>

/* The attribute of at and scatter_add: the correspondence of the axes of x, index and u. */
typedef struct index_axes {
    int n, v; /* the number of axes of u; the indexed axis of x */
    /* by axis of u: the corresponding axis of x, and of the index; −1 if there is none */
    signed char x[EG_RANK_MAX], index[EG_RANK_MAX];
    char name[32]; /* the letter of v, for messages */
} index_axes;

/* Returns t viewed with the axes of u, whose sizes are dim. `stride` is set to the strides. */
static eg_tensor view_over_axes(const index_axes *p, const signed char *axis, const eg_tensor *t,
                                int64_t *dim, int64_t *stride)
{
    eg_tensor s = *t;
    for (int k = 0; k < p->n; k++) stride[k] = axis[k] < 0 ? 0 : t->stride[axis[k]];
    s.rank = (uint8_t)p->n;
    s.dim = dim;
    s.stride = stride;
    return s;
}
/* Sets the sizes of u. */
static void index_sizes(const index_axes *p, const eg_tensor *x, const eg_tensor *index,
                        int64_t *dim)
{
    for (int k = 0; k < p->n; k++)
        dim[k] = p->x[k] >= 0 ? x->dim[p->x[k]] : index->dim[p->index[k]];
}

/* -- a check that each index is in 0 … size − 1 ----------------------------------------------- */
typedef struct range {
    int64_t size;
    bool *outside;
} range;
/* Returns the index at p, an i64 if `wide`, else an i32. */
EG_INLINE int64_t index_at(bool wide, const char *p)
{
    return wide ? *(const int64_t *)(const void *)p : *(const int32_t *)(const void *)p;
}
EG_INLINE void outside(bool wide, int64_t n, const char *p, int64_t step, const range *r)
{
    const uint64_t size = (uint64_t)r->size;
    int64_t out = 0;
    for (int64_t i = 0; i < n; i++) out |= (uint64_t)index_at(wide, p + i * step) >= size;
    if (out) *r->outside = true;
}
EG_CLONES static void outside_i32(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    if (step[0] == 4)
        outside(false, n, p[0], 4, user);
    else if (step[0] == -4) /* the order of the indices does not matter */
        outside(false, n, p[0] - (n - 1) * 4, 4, user);
    else
        outside(false, n, p[0], step[0], user);
}
EG_CLONES static void outside_i64(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    if (step[0] == 8)
        outside(true, n, p[0], 8, user);
    else if (step[0] == -8) /* the order of the indices does not matter */
        outside(true, n, p[0] - (n - 1) * 8, 8, user);
    else
        outside(true, n, p[0], step[0], user);
}

static bool index_integer(const char *who, const eg_tensor *index, int operand)
{
    if (eg__is_int(index->dtype)) return true;
    eg_fail_as(index->cx, EG_ERROR_DTYPE, "%s: operand %d is %s, but an index is i32 or i64", who,
               operand, eg_type_name(index->dtype));
    return false;
}
/* True if each index is in 0 … size − 1; else records an error with the first one that is not.
 * axis: the name of the axis of that size; NULL if the size is a depth. */
static bool index_in_range(const char *who, const eg_tensor *index, int64_t size, const char *axis)
{
    bool out = false;
    range r = { size, &out };
    eg__loop_work(index->cx, 1, (const eg_tensor *[]){ index },
                  index->dtype == EG_I32 ? outside_i32 : outside_i64, &r, 0);
    if (!out) return true;
    char at[256] = "";
    size_t w = 0;
    int64_t i[EG_RANK_MAX] = { 0 }, value;
    for (;;) { /* find the first one in logical order */
        const char *p = index->data;
        for (int k = 0; k < index->rank; k++)
            p += i[k] * index->stride[k] * eg__width[index->dtype];
        value = index_at(index->dtype == EG_I64, p);
        if (value < 0 || value >= size) break;
        for (int k = index->rank; k-- > 0; i[k] = 0)
            if (++i[k] < index->dim[k]) break;
    }
    for (int k = 0; k < index->rank && w < sizeof at; k++)
        w += (size_t)snprintf(at + w, sizeof at - w, "%s%lld%s", k ? ", " : "[", (long long)i[k],
                              k + 1 == index->rank ? "]" : "");
    const char *quote = axis ? "'" : "", *what = axis ? "' has size" : "the depth is";
    if (size)
        eg_fail_as(index->cx, EG_ERROR_INDEX, "%s: index%s is %lld, but %s%s%s %lld (0..%lld)", who,
                   at, (long long)value, quote, axis ? axis : "", what, (long long)size,
                   (long long)size - 1);
    else
        eg_fail_as(index->cx, EG_ERROR_INDEX, "%s: index%s is %lld, but %s%s%s 0", who, at,
                   (long long)value, quote, axis ? axis : "", what);
    return false;
}
static bool place_ok(const eg_tensor *y, const eg_tensor *x, const eg_tensor *index)
{
    const index_axes *p = y->attr;
    return index_in_range(y->op->name, index, x->dim[p->v], p->name);
}

/* -- at: u[…] = x[…, index[…], …],  dx = 0; dx[…, index[…], …] += g --------------------------- */
/* The indexed axis, for the loops over u: its elements are `step` bytes apart; a scatter adds only
 * if low ≤ index < high. */
typedef struct pick {
    int64_t step, low, high;
} pick;

#define TEMPLATE "ops/gather_of.h"
#include "tensor/each_width_of.h"
typedef struct index_loops {
    eg_inner *run;
    eg_plane *rows;
} index_loops;
#define LOOPS(NAME, TYPE)                              \
    {                                                  \
        { NAME##_i32_##TYPE, NAME##_rows_i32_##TYPE }, \
        {                                              \
            NAME##_i64_##TYPE, NAME##_rows_i64_##TYPE  \
        }                                              \
    }
/* by bytes of an element; [1]: i64 indices */
static const index_loops gather[17][2] = {
    [1] = LOOPS(gather, 8),  [2] = LOOPS(gather, 16),   [4] = LOOPS(gather, 32),
    [8] = LOOPS(gather, 64), [16] = LOOPS(gather, 128),
};

static const eg_op at_op, scatter_op;

static bool at_shape(eg_tensor *y)
{
    int64_t dim[EG_RANK_MAX];
    const index_axes *p = y->attr;
    if (!index_integer("at", y->in[1], 2)) return false;
    index_sizes(p, y->in[0], y->in[1], dim);
    return eg__shape(y, y->in[0]->dtype, p->n, dim);
}
static bool at_forward(eg_tensor *y)
{
    int64_t xs[EG_RANK_MAX], is[EG_RANK_MAX];
    const index_axes *p = y->attr;
    const eg_tensor *x = y->in[0], *index = y->in[1];
    if (!place_ok(y, x, index)) return false;
    int w = eg__width[x->dtype];
    eg_tensor from = view_over_axes(p, p->x, x, y->dim, xs),
              which = view_over_axes(p, p->index, index, y->dim, is);
    pick v = { .step = x->stride[p->v] * w };
    const index_loops l = gather[w][index->dtype == EG_I64];
    eg__loop_rows(y->cx, 3, (const eg_tensor *[]){ y, &from, &which }, l.run, l.rows, &v, 1);
    return true;
}
static eg_tensor *at_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = y->in[i], *zero = eg_expand_n(eg__zero_like(x), x->rank, x->dim);
    return eg_apply(&scatter_op, y->attr, sizeof(index_axes), 3,
                    (eg_tensor *[]){ zero, y->in[1], g });
}
static eg_tensor *rows_call(eg_tensor *const *x)
{
    return eg_at("[v] m, b l -> b l m", x[0], x[1]);
}
static eg_tensor *inside_call(eg_tensor *const *x)
{
    return eg_at("b m [v], b l -> l m b", x[0], x[1]);
}
static const eg_sample at_samples[] = { { rows_call, "4x3, 2x5:i4", 0, 0 },
                                        { inside_call, "2x3x4, 2x5:i4", 0, 0 },
                                        { rows_call, "4x3:i9, 2x5:i4", 0, 0 },
                                        { 0 } };
static const eg_op at_op = {
    .name = "at",
    .equation = "u[...] = x[index[...], ...]",
    .gradient = "g added at index",
    .arity = 2,
    .shape = at_shape,
    .forward = at_forward,
    .rule = at_rule,
    .uses = EG_USES_OTHERS,
    .samples = at_samples,
    .jvp = eg_jvp_linear,
    .forward_c128 = at_forward,
    .takes = EG_TAKES_ALL,
};

/* Sets *p from the bound spec; letter[0 … n) are the axes of u, as numbers of b's axes. False after
 * an error: x has not exactly one bracketed axis, the index has brackets, or a letter repeats. */
static bool index_placed(index_axes *p, const eg_bound *b, int n, const uint16_t *letter)
{
    const eg_bound_term *x = &b->term[0], *index = &b->term[1];
    *p = (index_axes){ .n = n, .v = -1 };
    for (int k = 0; k < x->items; k++) {
        if (!x->item[k].bracket) continue;
        if (p->v >= 0) {
            eg__refuse(b, 0, k,
                       "only one axis can be indexed; eg_expr reads several: x[a[n], b[n]]");
            return false;
        }
        p->v = k;
    }
    if (p->v < 0) {
        eg__refuse(
            b, 0, -1,
            "no axis is in brackets; they mark the one that is indexed, as in \"[v] m, b l\"");
        return false;
    }
    for (int k = 0; k < index->items; k++)
        if (index->item[k].bracket) {
            eg__refuse(b, 1, k, "brackets mark the indexed axis of operand 1");
            return false;
        }
    const eg_axis_name *v = &b->axis[x->item[p->v].axis];
    snprintf(p->name, sizeof p->name, "%.*s", v->length, v->text);
    int at = eg__item_of(index, x->item[p->v].axis);
    if (at >= 0) {
        eg__refuse(b, 1, at, "'%s' is the indexed axis and cannot be an axis of the index",
                   p->name);
        return false;
    }
    for (int k = 0; k < n; k++) {
        p->x[k] = (signed char)eg__item_of(x, letter[k]);
        p->index[k] = (signed char)eg__item_of(index, letter[k]);
    }
    return eg__no_repeats(b, 0) && eg__no_repeats(b, 1);
}
/* True if the axes of u, which is term t, are all axes of x and of the index except v; else records
 * an error. */
static bool complete(const index_axes *p, const eg_bound *b, int t)
{
    const eg_bound_term *u = t == b->terms ? &b->out : &b->term[t];
    int v = b->term[0].item[p->v].axis, at = eg__item_of(u, v);
    if (at >= 0) {
        eg__refuse(b, t, at,
                   "'%s' is the indexed axis; the values read at the index do not have it",
                   p->name);
        return false;
    }
    for (int term = 0; term < 2; term++)
        for (int k = 0; k < b->term[term].items; k++) {
            int axis = b->term[term].item[k].axis;
            if (axis == v || eg__item_of(u, axis) >= 0) continue;
            eg__refuse(b, term, k, "index '%.*s' is missing in %s", b->axis[axis].length,
                       b->axis[axis].text, t == b->terms ? "the output" : "the last operand");
            return false;
        }
    for (int k = 0; k < u->items; k++) {
        int axis = u->item[k].axis;
        if (eg__item_of(&b->term[0], axis) >= 0 || eg__item_of(&b->term[1], axis) >= 0) continue;
        eg__refuse(b, t, k, "index '%.*s' is neither in operand 1 nor in the index",
                   b->axis[axis].length, b->axis[axis].text);
        return false;
    }
    return eg__no_repeats(b, t);
}

/* Sets the axes of u for a spec without an output: those of x, with v replaced by the axes that
 * only the index has. dim[0 … rank) are the sizes of the result, with groups as in the operands.
 * False after an error. */
static bool index_in_place(const eg_bound *b, uint16_t *letter, int *n, int64_t *dim, int *rank)
{
    const eg_bound_term *x = &b->term[0], *index = &b->term[1];
    *n = *rank = 0;
    for (int r = 0; r < x->rank; r++) {
        bool here = false;
        for (int k = x->first[r]; k < x->last[r]; k++) here |= x->item[k].bracket;
        if (here && x->last[r] - x->first[r] > 1) {
            eg__refuse(
                b, 0, x->first[r],
                "an axis inside of a group is indexed, so the output must be given after '->'");
            return false;
        }
        const eg_bound_term *t = here ? index : x;
        for (int s = here ? 0 : r; s < (here ? t->rank : r + 1); s++) {
            bool mine = t->first[s] == t->last[s];
            int64_t size = 1;
            for (int k = t->first[s]; k < t->last[s]; k++) {
                int axis = t->item[k].axis;
                if (here && eg__item_of(x, axis) >= 0) continue;
                if (*n == EG_RANK_MAX) {
                    eg__refuse(b, 0, -1, "the result would have more than %d axes", EG_RANK_MAX);
                    return false;
                }
                letter[(*n)++] = (uint16_t)axis;
                size *= b->axis[axis].size;
                mine = true;
            }
            if (!mine) continue;
            if (*rank == EG_RANK_MAX) {
                eg__refuse(b, 0, -1, "the result would have more than %d axes", EG_RANK_MAX);
                return false;
            }
            dim[(*rank)++] = size;
        }
    }
    return true;
}

eg_tensor *eg_at(const char *spec, eg_tensor *x, eg_tensor *index)
{
    uint16_t letter[EG_ITEMS_MAX];
    int64_t dim[EG_RANK_MAX];
    int n = 0, rank = 0;
    index_axes p;
    eg_tensor *xs[2] = { x, index };
    eg_ctx *cx = eg__context_of("at", 2, xs);
    if (!cx) return NULL;
    const eg_bound *b = eg__bind("at", spec, EG_NOTATION_BRACKETS, 2, xs, 0, NULL);
    if (!b) return eg__poison(cx);
    if (b->arrow)
        for (; n < b->out.items; n++) letter[n] = b->out.item[n].axis;
    else if (!index_in_place(b, letter, &n, dim, &rank))
        return eg__poison(cx);
    if (n > EG_RANK_MAX)
        return eg__refuse(b, b->terms, -1, "the result would have more than %d axes", EG_RANK_MAX);
    if (!index_placed(&p, b, n, letter) || (b->arrow && !complete(&p, b, b->terms)))
        return eg__poison(cx);
    eg_tensor *y = eg_apply(&at_op, &p, sizeof p, 2, (eg_tensor *[]){ b->term[0].x, b->term[1].x });
    if (!eg_ok(y)) return y;
    if (b->arrow) return eg__merge(&b->out, y);
    return rank == n ? y : eg_reshape_n(y, rank, dim);
}

eg_tensor *eg__take_last(eg_tensor *x, eg_tensor *index)
{
    if (!eg_ok(x) || !eg_ok(index)) return eg__poison(x->cx);
    index_axes p = { .n = x->rank, .v = x->rank - 1, .name = "last axis" };
    for (int k = 0; k < p.n; k++) {
        p.index[k] = (signed char)k;
        p.x[k] = k < p.v ? (signed char)k : -1;
    }
    return eg_apply(&at_op, &p, sizeof p, 2, (eg_tensor *[]){ x, index });
}

/* -- scatter_add: y = x; y[…, index[…], …] += u[…],  dx = g, du = at(g, index)
 *
 * Values with the same index are added in the row-major order of u. Each thread traverses all of u,
 * and adds only for indices in its own range: the sums do not depend on the number of threads. */
#define T       float
#define NAME(x) x##_f32
#include "ops/scatter_of.h"
#define T       double
#define NAME(x) x##_f64
#include "ops/scatter_of.h"
#define T       double complex
#define NAME(x) x##_c128
#include "ops/scatter_of.h"
#define T       uint32_t /* integers, as unsigned, so that overflow wraps */
#define NAME(x) x##_u32
#include "ops/scatter_of.h"
#define T       uint64_t
#define NAME(x) x##_u64
#include "ops/scatter_of.h"
static const index_loops scatter[EG_DTYPES][2] = {
    /* [1]: i64 indices */
    [EG_F32] = LOOPS(scatter, f32),   [EG_F64] = LOOPS(scatter, f64),
    [EG_C128] = LOOPS(scatter, c128), [EG_I32] = LOOPS(scatter, u32),
    [EG_I64] = LOOPS(scatter, u64),
};

static bool scatter_shape(eg_tensor *y)
{
    const eg_tensor *x = y->in[0], *u = y->in[2];
    if (!index_integer("scatter_add", y->in[1], 2)) return false;
    if (x->dtype != u->dtype)
        eg_fail_as(y->cx, EG_ERROR_DTYPE, "scatter_add: operand 3 is %s, operand 1 is %s",
                   eg_type_name(u->dtype), eg_type_name(x->dtype));
    else if (x->dtype == EG_BOOL)
        eg_fail_as(y->cx, EG_ERROR_DTYPE,
                   "scatter_add: operand 1 is bool; cast it to a type that can be added first");
    else
        return eg__shape_like(y, x->dtype, x);
    return false;
}
/* A scatter over tensors x, whose indexed axis has `size` elements, divided into `parts` ranges. */
typedef struct scattering {
    eg_ctx *cx;
    const eg_tensor *const *x;
    index_loops loops;
    int64_t step, size;
    int parts;
} scattering;
static void scatter_part(void *user, int64_t part, int thread)
{
    (void)thread;
    const scattering *s = user;
    pick v = { s->step, s->size * part / s->parts, s->size * (part + 1) / s->parts };
    eg__loop_rows(s->cx, 3, s->x, s->loops.run, s->loops.rows, &v, 0);
}
/* sum[…, index[…], …] += u[…]; the caller has checked the indices. False after an error. */
static bool scatter_into(const index_axes *p, eg_tensor *sum, const eg_tensor *index, eg_tensor *u)
{
    int64_t ys[EG_RANK_MAX], is[EG_RANK_MAX];
    if (!eg_is_row_major(u)) {
        eg_tensor *rows = eg__new(u->cx, u->dtype, u->rank, u->dim);
        if (!rows) return false;
        eg__copy(rows, u);
        u = rows;
    }
    eg_tensor to = view_over_axes(p, p->x, sum, u->dim, ys),
              which = view_over_axes(p, p->index, index, u->dim, is);
    const eg_tensor *xs[] = { u, &to, &which };
    int64_t size = sum->dim[p->v], step = sum->stride[p->v] * eg__width[sum->dtype];
    int team = eg__team(u->cx, eg_size(u), 1 << 18);
    if (team > size) team = (int)size;
    const index_loops loops = scatter[sum->dtype][index->dtype == EG_I64];
    scattering s = { u->cx, xs, loops, step, size, team > 1 ? team : 1 };
    eg__parallel(u->cx, s.parts, s.parts, scatter_part, &s);
    return true;
}
static bool scatter_forward(eg_tensor *y)
{
    if (!place_ok(y, y, y->in[1])) return false;
    eg__copy(y, y->in[0]);
    return scatter_into(y->attr, y, y->in[1], y->in[2]);
}
bool eg__at_made(const eg_tensor *t) { return t->op == &at_op; }
bool eg__at_add(const eg_tensor *t, eg_tensor *sum, const eg_tensor *index, eg_tensor *u)
{
    return place_ok(t, sum, index) && scatter_into(t->attr, sum, index, u);
}
eg_tensor *eg__at_again(const eg_tensor *t, eg_tensor *x, eg_tensor *index)
{
    return eg_apply(&at_op, t->attr, sizeof(index_axes), 2, (eg_tensor *[]){ x, index });
}
static eg_tensor *scatter_rule(eg_tensor *y, eg_tensor *g, int i)
{
    return i == 0
               ? g
               : eg_apply(&at_op, y->attr, sizeof(index_axes), 2, (eg_tensor *[]){ g, y->in[1] });
}
static eg_tensor *scatter_call(eg_tensor *const *x)
{
    return eg_scatter_add("[v] m, b l, b l m", x[0], x[1], x[2]);
}
static eg_tensor *count_call(eg_tensor *const *x)
{
    return eg_scatter_add("b [v], b l, l b", x[0], x[1], x[2]);
}
static const eg_sample scatter_samples[] = {
    { scatter_call, "4x3, 2x5:i4, 2x5x3", 0, 0 },
    { count_call, "2x4, 2x3:i4, 3x2", 0, 0 },
    { scatter_call, "4x3:i9, 2x5:i4, 2x5x3:i9", 0, 0 },
    { 0 },
};
static const eg_op scatter_op = {
    .name = "scatter_add",
    .equation = "y = x; y[index[...], ...] += u[...]",
    .gradient = "g, and g read at index",
    .arity = 3,
    .shape = scatter_shape,
    .forward = scatter_forward,
    .rule = scatter_rule,
    .uses = EG_USES_OTHERS,
    .samples = scatter_samples,
    .jvp = eg_jvp_linear,
    .forward_c128 = scatter_forward,
};
eg_tensor *eg_scatter_add(const char *spec, eg_tensor *x, eg_tensor *index, eg_tensor *u)
{
    uint16_t letter[EG_ITEMS_MAX];
    index_axes p;
    eg_tensor *xs[3] = { x, index, u };
    eg_ctx *cx = eg__context_of("scatter_add", 3, xs);
    if (!cx) return NULL;
    const eg_bound *b = eg__bind("scatter_add", spec, EG_NOTATION_BRACKETS, 3, xs, 0, NULL);
    if (!b) return eg__poison(cx);
    if (b->arrow)
        return eg__refuse(b, b->terms, -1,
                          "the result has the axes of operand 1; it takes no output");
    for (int k = 0; k < b->term[2].items; k++) {
        letter[k] = b->term[2].item[k].axis;
        if (b->term[2].item[k].bracket)
            return eg__refuse(b, 2, k, "brackets mark the indexed axis of operand 1");
    }
    if (!index_placed(&p, b, b->term[2].items, letter) || !complete(&p, b, 2))
        return eg__poison(cx);
    eg_tensor *y = eg_apply(&scatter_op, &p, sizeof p, 3,
                            (eg_tensor *[]){ b->term[0].x, b->term[1].x, b->term[2].x });
    return !eg_ok(y) || eg__same_shape(y, x) ? y : eg_reshape_n(y, x->rank, x->dim);
}

/* -- one_hot: y[…, k] = [index[…] = k] -------------------------------------------------------- */
typedef struct one_hot_attr {
    bool f64, wide; /* dtype of the result; the index is i64 */
} one_hot_attr;
static void one_hot_row(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const one_hot_attr *h = user;
    for (int64_t i = 0; i < n; i++) {
        char *row = p[0] + i * step[0];
        const int64_t k = index_at(h->wide, p[1] + i * step[1]);
        if (h->f64)
            ((double *)(void *)row)[k] = 1;
        else
            ((float *)(void *)row)[k] = 1;
    }
}

/* Sets the shape of one_hot: that of the index with an axis of size `depth` appended. False after
 * an error. */
static bool one_hot_shape(eg_tensor *y)
{
    const eg_tensor *index = y->in[0];
    int64_t dim[EG_RANK_MAX], depth = *(const int64_t *)y->attr;
    if (!index_integer("one_hot", index, 1)) return false;
    if (index->rank == EG_RANK_MAX) {
        eg_fail_as(y->cx, EG_ERROR_SHAPE, "one_hot: the result would have more than %d axes",
                   EG_RANK_MAX);
        return false;
    }
    if (depth < 0) {
        eg_fail_as(y->cx, EG_ERROR_MISUSE, "one_hot: depth %lld is negative", (long long)depth);
        return false;
    }
    memcpy(dim, index->dim, index->rank * sizeof *dim);
    dim[index->rank] = depth;
    return eg__shape(y, EG_DEFAULT, index->rank + 1, dim);
}
static bool one_hot_forward(eg_tensor *y)
{
    const eg_tensor *index = y->in[0];
    if (!index_in_range("one_hot", index, *(const int64_t *)y->attr, NULL)) return false;
    eg__fill(y, 0);
    eg_tensor first = *y; /* the elements k = 0 */
    first.rank--;
    eg__loop(y->cx, 2, (const eg_tensor *[]){ &first, index }, one_hot_row,
             &(one_hot_attr){ y->dtype == EG_F64, index->dtype == EG_I64 });
    return true;
}
static eg_tensor *one_hot_call(eg_tensor *const *x) { return eg_one_hot(x[0], 4); }
static const eg_sample hot_samples[] = { { one_hot_call, "2x3:i4", 0, 0 }, { 0 } };
static const eg_op hot_op = {
    .name = "one_hot",
    .equation = "y[..., k] = [index[...] = k]",
    .gradient = "",
    .arity = 1,
    .shape = one_hot_shape,
    .forward = one_hot_forward,
    .uses = EG_USES_NOTHING,
    .samples = hot_samples,
};
eg_tensor *eg_one_hot(eg_tensor *index, int64_t depth)
{
    return eg_apply(&hot_op, &depth, sizeof depth, 1, &index);
}

const eg_op *const eg__index_ops[] = { &at_op, &scatter_op, &hot_op, NULL };
