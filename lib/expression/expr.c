/* expr.c: eg_expr, which computes a formula of index notation over tensors, in one pass forward and
 * one pass for the gradient. Also the composed form of formulas, in which each node is an operation
 * of tensors: it defines the result, and computes derivatives of higher order and c128.
 *
 * Neighbouring letters that occur only as indices of neighbouring axes are joined to one axis of
 * the loop, so that a formula without brackets runs along a single axis. The last axis of the loop
 * is cut into lanes, the one before into rows (notation/expression.h). How sums are cut depends on
 * sizes alone. */
#include "expression/expression.h"
#include <math.h>
#include <string.h>

/* The most elements of a block, lanes of a block with several rows, lanes of one with a single row;
 * the work for which another thread is worth its while; the most sets of sums. */
enum { ELEMENTS = 4096, LANES = 512, RUN = 2048, GRAIN = 1 << 18, PIECES = 64 };

/* The attribute of both rows; the parsed expression follows it in memory. */
typedef struct formula {
    int letters;
    eg_dtype floats; /* the type of floats if no operand is a float */
    int64_t size[EG_EXPRESSION_LETTERS];
} formula;
static const eg_expression *expression_of(const formula *f)
{
    return (const eg_expression *)(const void *)(f + 1);
}
static size_t formula_bytes(const formula *f)
{
    return sizeof *f + eg__expression_bytes(expression_of(f));
}

/* -- the loop over the result ----------------------------------------------------------------- */
/* Its axes are groups of letters that are joined; it is cut into blocks. */
typedef struct loop {
    eg_ctx *cx;
    const eg_expression *e;
    int root, letters, groups;
    int last[EG_EXPRESSION_LETTERS]; /* of each group its last letter, which stands for all of it */
    int64_t count[EG_EXPRESSION_LETTERS],
        step[EG_EXPRESSION_LETTERS]; /* of each group: positions, and the stride in the result */
    int64_t row_blocks, lane_blocks, blocks, elements;
    eg_block_plan plan;
    eg_source source[EG_GIVEN_MAX];
    int64_t strides[EG_GIVEN_MAX][EG_READ_MAX];
    eg_sink sink[EG_GIVEN_MAX];
    void *out;
    const void *g;
    char *workspace; /* plan.bytes for each thread */
    double *sums;    /* of cotangents that are added: a set for each piece */
    int64_t summed;  /* doubles in a set */
    int64_t pieces;
} loop;

/* Sets joined[l] if letters l and l + 1 can be one axis of the loop: each read has both, at axes r
 * and r + 1 of the letters' sizes, or neither, and nothing else depends on them. */
static void find_joined(const loop *o, const int64_t *size, eg_tensor *const *x, bool *joined)
{
    const eg_expression *e = o->e;
    for (int l = 0; l + 1 < o->letters; l++) joined[l] = size[l] < INT32_MAX / (size[l + 1] + 1);
    for (int k = 0; k <= o->root; k++) {
        const eg_node *n = &e->node[k];
        int axis[EG_EXPRESSION_LETTERS];
        bool apart[EG_EXPRESSION_LETTERS] = { false };
        memset(axis, -1, sizeof axis);
        if (k == o->root && n->code == EG_X_LETTER) apart[n->in[0]] = true;
        for (int r = 0; r < n->count; r++) {
            const eg_node *i = &e->node[n->in[r]];
            if (i->code != EG_X_LETTER) continue;
            apart[i->in[0]] |= n->code != EG_X_READ || n->guard || axis[i->in[0]] >= 0;
            axis[i->in[0]] = r;
        }
        for (int l = 0; l + 1 < o->letters; l++) {
            const int a = axis[l], b = axis[l + 1];
            if (apart[l] || apart[l + 1]) joined[l] = false;
            if (a < 0 && b < 0) continue;
            if (a < 0 || b != a + 1 || x[n->tensor]->dim[b] != size[l + 1]) joined[l] = false;
        }
    }
}
/* Sets the axes of the loop: runs of letters that are joined, with the position in the run as the
 * position of its last letter. */
static void form_groups(loop *o, const int64_t *size, eg_tensor *const *x)
{
    bool joined[EG_EXPRESSION_LETTERS] = { false };
    find_joined(o, size, x, joined);
    o->groups = 0;
    for (int l = 0; l < o->letters; l++) {
        const bool on = l && joined[l - 1];
        if (!on) o->count[o->groups++] = 1;
        o->last[o->groups - 1] = l;
        o->count[o->groups - 1] *= size[l];
        if (o->count[o->groups - 1] > INT32_MAX && on) { /* a position must fit in 32 bits */
            o->count[o->groups - 1] /= size[l];
            o->last[o->groups - 1] = l - 1;
            o->last[o->groups] = l;
            o->count[o->groups++] = size[l];
        }
    }
    o->elements = 1;
    for (int k = o->groups; k-- > 0;) {
        o->step[k] = o->elements;
        o->elements *= o->count[k];
    }
}
/* Sets the sources of the loop: the tensors, or row-major copies of those in which the axes of
 * joined letters cannot be walked with one stride. False after an error. */
static bool give_sources(loop *o, const int64_t *size, eg_tensor *const *x, int count)
{
    bool whole[EG_GIVEN_MAX];
    uint32_t inside = 0; /* bits: letters that are joined with the next one */
    for (int g = 0; g < o->groups; g++)
        for (int l = g ? o->last[g - 1] + 1 : 0; l < o->last[g]; l++) inside |= 1u << l;
    for (int t = 0; t < count; t++) whole[t] = true;
    for (int k = 0; k <= o->root; k++) {
        const eg_node *n = &o->e->node[k];
        for (int r = 0; n->code == EG_X_READ && r + 1 < n->count; r++) {
            const eg_node *i = &o->e->node[n->in[r]];
            const eg_tensor *t = x[n->tensor];
            if (i->code == EG_X_LETTER && inside >> i->in[0] & 1 && t->dim[r] > 1 &&
                t->stride[r] != t->stride[r + 1] * size[i->in[0] + 1])
                whole[n->tensor] = false;
        }
    }
    for (int t = 0; t < count; t++) {
        const eg_tensor *s = x[t];
        if (!whole[t]) {
            eg_tensor *copy = eg__new(o->cx, (eg_dtype)s->dtype, s->rank, s->dim);
            if (!copy) return false;
            eg__copy(copy, s);
            s = copy;
        }
        for (int r = 0; r < s->rank && r < EG_READ_MAX; r++) o->strides[t][r] = s->stride[r];
        o->source[t] = (eg_source){ s->data, o->strides[t], (eg_dtype)s->dtype, s->dim };
    }
    return true;
}
/* Prepares the loop for the value of node `root` over letters of these sizes; wanted: bits of the
 * tensors whose cotangents are wanted. False after an error. */
static bool loop_open(loop *o, eg_ctx *cx, const eg_expression *e, int root, int letters,
                      const int64_t *size, eg_tensor *const *x, int count, bool f64,
                      uint32_t wanted)
{
    *o = (loop){ .cx = cx, .e = e, .root = root, .letters = letters };
    form_groups(o, size, x);
    if (!o->elements) return true;
    if (!give_sources(o, size, x, count)) return false;
    const int g = o->groups;
    const int64_t lanes = g ? o->count[g - 1] : 1, rows = g > 1 ? o->count[g - 2] : 1;
    const int64_t wide = eg__min64(lanes, rows > 1 ? LANES : RUN),
                  tall = eg__min64(rows, ELEMENTS / eg__round_up(wide, EG_LANES));
    o->lane_blocks = (lanes + wide - 1) / wide;
    o->row_blocks = (rows + tall - 1) / tall;
    o->blocks = o->elements / (lanes * rows) * o->lane_blocks * o->row_blocks;
    eg__block_plan(&o->plan, e, root, f64, (int)tall, (int)wide, g > 1 ? 1u << o->last[g - 2] : 0,
                   g ? 1u << o->last[g - 1] : 0, wanted);
    return true;
}
/* Computes block `number`: its values, and its cotangents if o->g is set. Blocks are numbered along
 * lanes first, then along rows. */
static void one_block(const loop *o, int64_t number, char *workspace, const eg_sink *sink)
{
    eg_place place[EG_EXPRESSION_LETTERS] = { { 0 } };
    const int g = o->groups, width = o->plan.f64 ? 8 : 4;
    const int kind = o->e->node[o->root].kind, out = kind == EG_IS_TRUTH   ? 1
                                                     : kind == EG_IS_WHOLE ? 8
                                                                           : width;
    const int64_t lane = number % o->lane_blocks * o->plan.lanes,
                  row = number / o->lane_blocks % o->row_blocks * o->plan.rows;
    int64_t rest = number / o->lane_blocks / o->row_blocks, at = 0;
    for (int k = g - 2; k-- > 0; rest /= o->count[k]) {
        place[o->last[k]].first = rest % o->count[k];
        at += rest % o->count[k] * o->step[k];
    }
    if (g) place[o->last[g - 1]].first = lane, at += lane;
    if (g > 1) place[o->last[g - 2]].first = row, at += row * o->step[g - 2];
    eg_block_data b = {
        .rows = (int)(g > 1 ? eg__min64(o->plan.rows, o->count[g - 2] - row) : 1),
        .lanes = (int)(g ? eg__min64(o->plan.lanes, o->count[g - 1] - lane) : 1),
        .place = place,
        .source = o->source,
        .out = o->out ? (char *)o->out + at * out : NULL,
        .out_step = g > 1 ? o->step[g - 2] : 0,
        .g = o->g ? (const char *)o->g + at * width : NULL,
        .g_step = g > 1 ? o->step[g - 2] : 0,
        .sink = sink,
    };
    eg__block_values(&o->plan, &b, workspace);
    if (o->g) eg__block_slopes(&o->plan, &b, workspace);
}
static void some_blocks(void *user, int64_t piece, int thread)
{
    const loop *o = user;
    eg_sink sink[EG_GIVEN_MAX];
    memcpy(sink, o->sink, sizeof sink);
    for (int t = 0; t < EG_GIVEN_MAX && o->sums; t++)
        if (sink[t].data && !sink[t].direct)
            sink[t].data = (double *)sink[t].data + piece * o->summed;
    const int64_t from = o->blocks * piece / o->pieces, to = o->blocks * (piece + 1) / o->pieces;
    for (int64_t k = from; k < to; k++)
        one_block(o, k, o->workspace + (size_t)thread * o->plan.bytes, sink);
}
static bool loop_run(loop *o)
{
    if (!o->elements) return true;
    const int64_t work = o->elements * (o->e->nodes + 1);
    int team = eg__team(o->cx, work, GRAIN);
    if (team > o->blocks) team = (int)o->blocks;
    if (!o->pieces) o->pieces = eg__min64(o->blocks, 4 * team);
    o->workspace = eg__scratch(o->cx, EG_SCRATCH_BLOCKS, (size_t)team * o->plan.bytes);
    if (!o->workspace) return false;
    eg__parallel(o->cx, team, o->pieces, some_blocks, o);
    return true;
}

/* -- the composed form ------------------------------------------------------------------------ */
/* Returns the cotangent of a in min(a, b) or max(a, b): g where wins(a, b), g/2 where a and b are
 * equal, else 0. */
static eg_tensor *tie(eg_tensor *(*wins)(eg_tensor *, eg_tensor *), eg_tensor *a, eg_tensor *b,
                      eg_tensor *g)
{
    eg_tensor *zero = eg_full_n(g->cx, eg_type(g), 0, 0, NULL);
    return eg_where(eg_eq(a, b), eg_scale(g, .5), eg_where(wins(a, b), g, zero));
}
/* The cotangents of a and b in a^b, as pow's rule in binary.c: at a = 0, da is 0 for b = 0, and db
 * is 0 for b > 0. */
static eg_tensor *power_base(eg_tensor *a, eg_tensor *b, eg_tensor *g)
{
    eg_tensor *zero = eg_full_n(g->cx, eg_type(g), 0, 0, NULL), *one = eg_shift(zero, 1);
    eg_tensor *flat = eg_and(eg_eq(a, zero), eg_eq(b, zero));
    return eg_mul(g, eg_mul(b, eg_pow(a, eg_where(flat, one, eg_shift(b, -1)))));
}
static eg_tensor *power_exponent(eg_tensor *a, eg_tensor *b, eg_tensor *y, eg_tensor *g)
{
    eg_tensor *zero = eg_full_n(g->cx, eg_type(g), 0, 0, NULL), *one = eg_shift(zero, 1);
    eg_tensor *flat = eg_and(eg_eq(a, zero), eg_gt(b, zero));
    return eg_mul(g, eg_mul(y, eg_log(eg_where(flat, one, a))));
}

/* Sets the sizes of node k as a tensor: those of the letters, 1 if the value does not depend on the
 * letter. */
static void node_sizes(const eg_composed *c, int k, int64_t *dim)
{
    for (int l = 0; l < c->letters; l++) dim[l] = c->e->node[k].letters >> l & 1 ? c->size[l] : 1;
}
/* Returns the values of node k, whole numbers or truths. They have no derivative, so they are
 * computed by the loop, from the real parts of complex operands. Poison after an error. */
static eg_tensor *plain_values(eg_composed *c, int k)
{
    int64_t dim[EG_RANK_MAX];
    eg_tensor *x[EG_GIVEN_MAX];
    loop o;
    if (c->value[k]) return c->value[k];
    node_sizes(c, k, dim);
    for (int t = 0; t < c->count; t++)
        x[t] = eg_type(c->x[t]) == EG_C128 ? eg_real(c->x[t]) : c->x[t];
    for (int t = 0; t < c->count; t++)
        if (!eg_ok(x[t])) return x[t];
    const bool truth = c->e->node[k].kind == EG_IS_TRUTH;
    eg_tensor *y = eg__new(c->cx, truth ? EG_BOOL : EG_I64, c->letters, dim);
    if (!y || !loop_open(&o, c->cx, c->e, k, c->letters, dim, x, c->count, c->floats != EG_F32, 0))
        return eg__poison(c->cx);
    o.out = y->data;
    return c->value[k] = loop_run(&o) ? y : eg__poison(c->cx);
}
/* True if read k is a view of its tensor: each index is another letter, whose size is that of the
 * axis. letter[r] is then the letter of axis r. */
static bool read_is_view(const eg_composed *c, int k, int *letter)
{
    const eg_node *n = &c->e->node[k];
    uint32_t seen = 0;
    for (int r = 0; r < n->count; r++) {
        const eg_node *i = &c->e->node[n->in[r]];
        if (i->code != EG_X_LETTER || seen >> i->in[0] & 1 ||
            c->x[n->tensor]->dim[r] != c->size[i->in[0]])
            return false;
        seen |= 1u << (letter[r] = i->in[0]);
    }
    return true;
}
/* Sets order[] to the n axes of a tensor, sorted by their letters; returns n. */
static int order_of(int n, const int *letter, int *order)
{
    int m = 0;
    for (int l = 0; l < EG_EXPRESSION_LETTERS; l++)
        for (int r = 0; r < n; r++)
            if (letter[r] == l) order[m++] = r;
    return m;
}
/* Returns the places of read k in its tensor, as row-major indices in i64 with an axis for each
 * letter. */
static eg_tensor *read_places(eg_composed *c, int k)
{
    const eg_node *n = &c->e->node[k];
    const eg_tensor *x = c->x[n->tensor];
    eg_tensor *sum = NULL;
    int64_t step = 1;
    for (int r = n->count; r-- > 0; step *= x->dim[r]) {
        eg_tensor *i = plain_values(c, n->in[r]);
        if (n->guard) i = eg_clip(i, 0, (double)(x->dim[r] - 1));
        i = eg_scale(i, (double)step);
        sum = sum ? eg_add(sum, i) : i;
    }
    return sum;
}
/* Returns the values of read k: a view of the tensor if that is possible, else a gather from the
 * flattened tensor. */
static eg_tensor *read_composed(eg_composed *c, int k)
{
    const eg_node *n = &c->e->node[k];
    eg_tensor *x = c->x[n->tensor];
    int64_t dim[EG_RANK_MAX], all = eg_size(x), count;
    int letter[EG_READ_MAX], order[EG_READ_MAX];
    node_sizes(c, k, dim);
    if (read_is_view(c, k, letter)) {
        order_of(n->count, letter, order);
        return eg_reshape_n(n->count ? eg_permute_n(x, n->count, order) : x, c->letters, dim);
    }
    if (!all) return eg_full_n(c->cx, eg_type(x), 0, c->letters, dim);
    eg_tensor *place = read_places(c, k);
    if (!eg_ok(place)) return place;
    count = eg_size(place);
    eg_tensor *y = eg_at("[v], l -> l", eg_reshape_n(x, 1, &all), eg_reshape_n(place, 1, &count));
    return eg_reshape_n(y, c->letters, dim);
}
static eg_tensor *scalar_of(eg_composed *c, double value)
{
    return eg_full_n(c->cx, c->floats, value, 0, NULL);
}
/* Returns the value of float node k, computed from the tensors of its operands. */
static eg_tensor *node_composed(eg_composed *c, int k)
{
    const eg_node *n = &c->e->node[k];
    eg_tensor *a = n->count ? c->value[n->in[0]] : NULL,
              *b = n->count > 1 ? c->value[n->in[1]] : NULL,
              *low = n->count > 2 ? c->value[n->in[2]] : NULL, *x = a;
    switch (n->code) {
    case EG_X_FLOAT: return scalar_of(c, n->real);
    case EG_X_SCORE: return c->score;
    case EG_X_READ: return read_composed(c, k);
    case EG_X_TO_FLOAT: {
        eg_tensor *whole =
            eg_cast(plain_values(c, n->in[0]), c->floats == EG_F32 ? EG_F32 : EG_F64);
        return c->floats == EG_C128 ? eg_cast(whole, EG_C128) : whole;
    }
    case EG_X_SELECT: return eg_where(plain_values(c, n->in[0]), b, low);
    case EG_X_CLIP: return eg_where(eg_lt(a, b), b, eg_where(eg_gt(a, low), low, a));
#define VALUE_1(CODE, NAME, Y, D, COMPOSED, SLOPE) \
    case EG_X_##CODE:                              \
        return COMPOSED;
#define VALUE_2(CODE, NAME, Y, DA, DB, COMPOSED, SLOPE_A, SLOPE_B) \
    case EG_X_##CODE: return COMPOSED;
        EG_FUNCTIONS_1(VALUE_1)
        EG_FUNCTIONS_2(VALUE_2)
#undef VALUE_1
#undef VALUE_2
    default: return eg_fail_as(c->cx, EG_ERROR_MISUSE, "expr: node %d is of no known kind", k);
    }
}
eg_tensor *eg__composed(eg_composed *c)
{
    bool used[EG_NODES_MAX] = { false };
    memset(c->value, 0, sizeof c->value);
    used[c->e->root] = true;
    for (int k = c->e->root; k >= 0; k--)
        for (int i = 0; used[k] && c->e->node[k].kind == EG_IS_FLOAT && i < c->e->node[k].count;
             i++)
            used[c->e->node[k].in[i]] = true;
    for (int k = 0; k <= c->e->root; k++) {
        if (!used[k]) continue;
        eg_tensor *y = c->e->node[k].kind == EG_IS_FLOAT ? node_composed(c, k)
                       : k == c->e->root                 ? plain_values(c, k)
                                                         : NULL;
        if (y && !eg_ok(y)) return y;
        if (y) c->value[k] = y;
    }
    return eg_expand_n(c->value[c->e->root], c->letters, c->size);
}

/* -- cotangents of the composed form ---------------------------------------------------------- */
/* Returns t summed over the letters that node j does not depend on. */
static eg_tensor *folded(eg_composed *c, eg_tensor *t, int j)
{
    int64_t dim[EG_RANK_MAX];
    int order[EG_RANK_MAX], n = 0, inner = 0;
    node_sizes(c, j, dim);
    if (!eg_ok(t)) return t;
    for (int l = 0; l < c->letters; l++)
        if (t->dim[l] == dim[l]) order[n++] = l;
    for (int l = 0; l < c->letters; l++)
        if (t->dim[l] != dim[l]) order[n++] = l, inner++;
    if (!inner) return t;
    return eg_reshape_n(eg__sum_last(eg_permute_n(t, n, order), inner), c->letters, dim);
}
/* Returns the cotangent of operand i of node k, before it is summed, from the cotangent g of k. */
static eg_tensor *operand_slope(eg_composed *c, int k, int i, eg_tensor *g)
{
    const eg_node *n = &c->e->node[k];
    eg_tensor *y = c->value[k], *a = c->value[n->in[0]],
              *b = n->count > 1 ? c->value[n->in[1]] : NULL,
              *high = n->count > 2 ? c->value[n->in[2]] : NULL, *x = a, *zero = scalar_of(c, 0);
    (void)x, (void)y;
    switch (n->code) {
    case EG_X_SELECT:
        return i == 1 ? eg_where(plain_values(c, n->in[0]), g, zero)
                      : eg_where(plain_values(c, n->in[0]), zero, g);
    case EG_X_CLIP: {
        eg_tensor *under = eg_lt(a, b), *over = eg_gt(a, high);
        return i == 1   ? eg_where(under, g, zero)
               : i == 2 ? eg_where(under, zero, eg_where(over, g, zero))
                        : eg_where(eg_or(under, over), zero, g);
    }
#define SLOPE_1(CODE, NAME, Y, D, COMPOSED, SLOPE) \
    case EG_X_##CODE:                              \
        return SLOPE;
#define SLOPE_2(CODE, NAME, Y, DA, DB, COMPOSED, SLOPE_A, SLOPE_B) \
    case EG_X_##CODE: return i == 0 ? SLOPE_A : SLOPE_B;
        EG_FUNCTIONS_1(SLOPE_1)
        EG_FUNCTIONS_2(SLOPE_2)
#undef SLOPE_1
#undef SLOPE_2
    default: return NULL;
    }
}
/* Returns the cotangent of the tensor of read k from d, that of the values read. */
static eg_tensor *read_slope(eg_composed *c, int k, eg_tensor *d)
{
    const eg_node *n = &c->e->node[k];
    eg_tensor *x = c->x[n->tensor];
    int letter[EG_READ_MAX], order[EG_READ_MAX], back[EG_READ_MAX];
    int64_t dim[EG_READ_MAX], all = eg_size(x), count;
    if (read_is_view(c, k, letter)) {
        order_of(n->count, letter, order);
        for (int r = 0; r < n->count; r++) {
            dim[r] = x->dim[order[r]];
            back[order[r]] = r;
        }
        d = eg_reshape_n(d, n->count, dim);
        return n->count ? eg_permute_n(d, n->count, back) : d;
    }
    eg_tensor *zero = eg_full_n(c->cx, c->floats, 0, 1, &all);
    if (!all) return eg_reshape_n(zero, x->rank, x->dim);
    eg_tensor *place = read_places(c, k);
    if (!eg_ok(place)) return place;
    int64_t full[EG_RANK_MAX];
    for (int l = 0; l < c->letters; l++) full[l] = place->dim[l];
    d = eg_expand_n(d, c->letters, full);
    count = eg_size(place);
    d = eg_scatter_add("[v], l, l", zero, eg_reshape_n(place, 1, &count),
                       eg_reshape_n(d, 1, &count));
    return eg_reshape_n(d, x->rank, x->dim);
}
bool eg__composed_slopes(eg_composed *c, eg_tensor *g, eg_tensor **dx, eg_tensor **dscore)
{
    eg_tensor *slope[EG_NODES_MAX] = { NULL };
    bool moved[EG_NODES_MAX];
    for (int k = 0; k <= c->e->root; k++) {
        const eg_node *n = &c->e->node[k];
        moved[k] = n->kind == EG_IS_FLOAT && (n->code == EG_X_READ || n->code == EG_X_SCORE);
        for (int i = 0; n->kind == EG_IS_FLOAT && n->code > EG_X_READ && i < n->count; i++)
            moved[k] |= n->code != EG_X_FLOOR && moved[n->in[i]];
    }
    for (int t = 0; t < c->count; t++) dx[t] = NULL;
    if (dscore) *dscore = NULL;
    if (moved[c->e->root]) slope[c->e->root] = folded(c, g, c->e->root);
    for (int k = c->e->root; k >= 0; k--) {
        const eg_node *n = &c->e->node[k];
        if (!slope[k]) continue;
        if (!eg_ok(slope[k])) return false;
        if (n->code == EG_X_SCORE && dscore) *dscore = slope[k];
        if (n->code == EG_X_READ) {
            eg_tensor *d = read_slope(c, k, slope[k]), **to = &dx[n->tensor];
            *to = *to ? eg_add(*to, d) : d;
        }
        for (int i = 0; n->code > EG_X_READ && i < n->count; i++) {
            const int j = n->in[i];
            if (!moved[j]) continue;
            eg_tensor *d = folded(c, operand_slope(c, k, i, slope[k]), j);
            slope[j] = slope[j] ? eg_add(slope[j], d) : d;
        }
    }
    for (int t = 0; t < c->count; t++)
        if (dx[t] ? !eg_ok(dx[t]) : false) return false;
    return !eg__failed(c->cx);
}

/* -- expr_gradient: the cotangents of all float operands, one after the other in one axis ----- */
static const eg_op expr_op, expr_gradient_op;
/* Returns the composed form of a formula over the first `count` operands of a row. */
static eg_composed composed_of(const formula *f, eg_ctx *cx, eg_dtype floats, int count,
                               eg_tensor *const *x)
{
    return (eg_composed){ .cx = cx,
                          .e = expression_of(f),
                          .letters = f->letters,
                          .size = f->size,
                          .floats = floats,
                          .count = count,
                          .x = x };
}
/* Gives a node of either row a memo, which keeps the cotangents of all operands. */
static bool expr_saves(eg_tensor *y) { return eg_node_save(y, sizeof(eg_memo)); }
static bool gradient_shape(eg_tensor *d)
{
    int64_t n = 0;
    for (int k = 0; k + 1 < d->count; k++)
        if (eg__is_inexact(d->in[k]->dtype)) n += eg_size(d->in[k]);
    return expr_saves(d) && eg__shape(d, (eg_dtype)d->in[d->count - 1]->dtype, 1, &n);
}
/* True if each element of the cotangent of tensor t is written once, without a sum: one node alone
 * reads t, and every letter of the loop is the index of an axis. */
static bool is_direct(const formula *f, const eg_tensor *x, int t)
{
    const eg_expression *e = expression_of(f);
    uint32_t seen = 0, all = 0;
    int reads = 0;
    for (int l = 0; l < f->letters; l++) all |= (uint32_t)(f->size[l] != 1) << l;
    for (int k = 0; k <= e->root; k++) {
        const eg_node *n = &e->node[k];
        if (n->code != EG_X_READ || n->tensor != t) continue;
        reads++;
        for (int r = 0; r < n->count; r++) {
            const eg_node *i = &e->node[n->in[r]];
            if (i->code != EG_X_LETTER || seen >> i->in[0] & 1 || f->size[i->in[0]] != x->dim[r])
                return false;
            seen |= 1u << i->in[0];
        }
    }
    return reads == 1 && (all & ~seen) == 0;
}
/* Writes the sums of n cotangents to `to`. Each piece of the loop has added to a set of doubles of
 * its own; the sets are added in order. */
static void add_pieces(const loop *o, char *to, int64_t n, const double *sum)
{
    for (int64_t k = 0; k < n; k++) {
        double all = 0;
        for (int64_t p = 0; p < o->pieces; p++) all += sum[p * o->summed + k];
        if (o->plan.f64)
            ((double *)(void *)to)[k] = all;
        else
            ((float *)(void *)to)[k] = (float)all;
    }
}
/* Computes the cotangents of all float operands in one pass over the result. Those that are direct
 * are written; others are added to doubles, and then summed over the pieces. */
static bool gradient_forward(eg_tensor *d)
{
    const formula *f = d->attr;
    const int count = d->count - 1;
    eg_tensor *g = d->in[count], *x[EG_GIVEN_MAX];
    const bool f64 = d->dtype == EG_F64;
    const int width = f64 ? 8 : 4;
    uint32_t wanted = 0;
    int64_t at[EG_GIVEN_MAX] = { 0 }, room[EG_GIVEN_MAX] = { 0 }, end = 0;
    loop o;
    memset(d->data, 0, d->st->bytes);
    for (int k = 0; k < count; k++) {
        x[k] = d->in[k];
        if (eg__is_float(x[k]->dtype)) wanted |= 1u << k;
    }
    if (!loop_open(&o, d->cx, expression_of(f), expression_of(f)->root, f->letters, f->size, x,
                   count, f64, wanted))
        return false;
    if (!o.elements) return true;
    if (!eg_ok(g = eg_contiguous(g))) return false;
    o.g = g->data;
    int64_t step[EG_GIVEN_MAX][EG_RANK_MAX];
    for (int k = 0; k < count; k++) {
        if (!(wanted >> k & 1)) continue;
        at[k] = end, end += eg_size(x[k]);
        eg__row_major(x[k]->rank, x[k]->dim, step[k]);
        o.sink[k] = (eg_sink){ d->data + at[k] * width, step[k], is_direct(f, x[k], k) };
        if (!o.sink[k].direct) room[k] = o.summed, o.summed += eg_size(x[k]);
    }
    o.pieces = eg__min64(eg__min64(o.blocks, PIECES), o.elements / (4 * o.summed + 1) + 1);
    if (o.summed) {
        const size_t bytes = (size_t)(o.pieces * o.summed) * sizeof(double);
        if (!(o.sums = eg__scratch(d->cx, EG_SCRATCH_SUMS, bytes))) return false;
        memset(o.sums, 0, bytes);
    }
    for (int k = 0; k < count; k++)
        if (wanted >> k & 1 && !o.sink[k].direct) o.sink[k].data = o.sums + room[k];
    if (!loop_run(&o)) return false;
    for (int k = 0; k < count; k++)
        if (wanted >> k & 1 && !o.sink[k].direct)
            add_pieces(&o, d->data + at[k] * width, eg_size(x[k]), o.sums + room[k]);
    return true;
}
/* Sets part[k] to a view of x, which has the cotangents of all float operands one after the other,
 * as the cotangent of operand k; NULL if that has none. */
static void gradient_parts(const eg_tensor *d, eg_tensor *x, eg_tensor **part)
{
    int64_t at = 0;
    for (int k = 0; k + 1 < d->count; k++) {
        part[k] = NULL;
        if (!eg__is_inexact(d->in[k]->dtype)) continue;
        const int64_t n = eg_size(d->in[k]);
        part[k] = eg_reshape_n(eg_slice_axis(x, 0, at, at + n, 1), d->in[k]->rank, d->in[k]->dim);
        at += n;
    }
}
/* Computes d for complex operands, by copying the cotangents of the composed form to their parts of
 * it. */
static bool gradient_c128(eg_tensor *d)
{
    const int count = d->count - 1;
    eg_tensor *dx[EG_GIVEN_MAX];
    eg_composed c = composed_of(d->attr, d->cx, EG_C128, count, d->in);
    if (!eg_ok(eg__composed(&c)) || !eg__composed_slopes(&c, d->in[count], dx, NULL)) return false;
    int64_t at = 0;
    for (int k = 0; k < count; k++) {
        int64_t step[EG_RANK_MAX];
        if (!eg__is_inexact(d->in[k]->dtype)) continue;
        eg__row_major(d->in[k]->rank, d->in[k]->dim, step);
        eg_tensor *part = eg__alias(d, d->in[k]->rank, d->in[k]->dim, step, at);
        if (!eg_ok(part)) return false;
        if (dx[k])
            eg__copy(part, dx[k]);
        else
            eg__fill(part, 0);
        at += eg_size(d->in[k]);
    }
    return true;
}
/* Returns a new view of x. Nothing else depends on it, so that derivatives by it are those of the
 * formula alone. */
static eg_tensor *expr_own(eg_tensor *x)
{
    int order[EG_RANK_MAX];
    if (!eg__is_inexact(x->dtype)) return x;
    for (int r = 0; r < x->rank; r++) order[r] = r;
    return eg_permute_n(x, x->rank, order);
}
/* Returns ⟨u, d⟩, with the cotangents d of the composed form computed from x and g, so that it can
 * be differentiated. NULL if no operand has a cotangent; poison after an error. */
static eg_tensor *gradient_dot(eg_tensor *d, eg_tensor *u, eg_tensor *const *x, eg_tensor *g)
{
    eg_tensor *dx[EG_GIVEN_MAX], *part[EG_GIVEN_MAX], *all = NULL;
    eg_composed c = composed_of(d->attr, d->cx, (eg_dtype)d->dtype, d->count - 1, x);
    if (!eg_ok(eg__composed(&c)) || !eg__composed_slopes(&c, g, dx, NULL)) return eg__poison(d->cx);
    gradient_parts(d, u, part);
    for (int k = 0; k + 1 < d->count; k++) {
        if (!dx[k]) continue;
        eg_tensor *dot = eg_sum(NULL, eg_mul(part[k], dx[k]));
        all = all ? eg_add(all, dot) : dot;
    }
    return all;
}
/* The second derivative: ⟨u, d⟩ is differentiated by the operands and by g in one sweep, recorded
 * whatever eg_nograd is. */
static eg_tensor *gradient_rule(eg_tensor *d, eg_tensor *u, int i)
{
    const int last = d->count - 1;
    eg_memo *memo = d->saved;
    if (!eg__remembered(memo, u)) {
        eg_tensor *x[EG_GIVEN_MAX + 1], *by[EG_GIVEN_MAX + 1], *du[EG_GIVEN_MAX + 1];
        int at[EG_GIVEN_MAX + 1], n = 0;
        const bool was = eg_nograd(d->cx, false);
        for (int k = 0; k <= last; k++) x[k] = expr_own(d->in[k]);
        eg_tensor *all = gradient_dot(d, u, x, x[last]);
        eg_nograd(d->cx, was);
        for (int k = 0; k <= last; k++)
            if (eg__is_float(d->in[k]->dtype)) at[n] = k, by[n++] = x[k];
        for (int k = 0; k < n; k++) du[k] = eg_zeros_like(by[k]);
        if (all && eg_grad(all, NULL, n, by, du)) return eg__poison(d->cx);
        for (int k = 0; k < n; k++) memo->d[at[k]] = du[k];
        eg__remember(memo, u);
    }
    return memo->d[i];
}
/* Applies expr_gradient to the operands of y, a node of expr, and its cotangent g. */
static eg_tensor *expr_gradient_of(const eg_tensor *y, eg_tensor *g)
{
    eg_tensor *operand[EG_GIVEN_MAX + 1];
    const formula *f = y->attr;
    memcpy(operand, y->in, (size_t)y->count * sizeof *operand);
    operand[y->count] = g;
    return eg_apply(&expr_gradient_op, f, formula_bytes(f), y->count + 1, operand);
}
static eg_tensor *expr_gradient_sample(eg_tensor *const *x)
{
    eg_tensor *real[2];
    for (int k = 0; k < 2; k++) real[k] = eg_type(x[k]) == EG_C128 ? eg_real(x[k]) : x[k];
    eg_tensor *y = eg_expr("i j", "x * sigmoid(r[abs(i - j)]) + x",
                           .with = { { "x", real[0] }, { "r", real[1] } });
    if (eg_op_of(y) != &expr_op) return y;
    eg_tensor like = *y, *in[2] = { x[0], x[1] };
    like.in = in;
    return expr_gradient_of(&like, x[2]);
}
static const eg_sample gradient_samples[] = { { expr_gradient_sample, "3x4, 6, 3x4", -1, 1 },
                                              { 0 } };
static const eg_op expr_gradient_op = {
    .name = "expr_gradient",
    .equation = "d = (df/dx g, ...) of y = f(x, ...)",
    .gradient = "of the composed form",
    .arity = -1,
    .shape = gradient_shape,
    .forward = gradient_forward,
    .rule = gradient_rule,
    .uses = EG_USES_OPERANDS,
    .samples = gradient_samples,
    .forward_c128 = gradient_c128,
};

/* -- expr: y = f(x, …), element by element ---------------------------------------------------- */
/* Returns the type of floats in a call: that of its float operands, or the context's default. */
static eg_dtype expr_floats(const eg_tensor *y)
{
    eg_dtype t = ((const formula *)y->attr)->floats;
    for (int k = 0; k < y->count; k++)
        if (eg__is_inexact(y->in[k]->dtype)) t = (eg_dtype)y->in[k]->dtype;
    return t;
}
static bool expr_shape(eg_tensor *y)
{
    const formula *f = y->attr;
    const eg_expression *e = expression_of(f);
    const int kind = e->node[e->root].kind;
    return expr_saves(y) && eg__shape(y,
                                      kind == EG_IS_TRUTH   ? EG_BOOL
                                      : kind == EG_IS_WHOLE ? EG_I64
                                                            : expr_floats(y),
                                      f->letters, f->size);
}
static bool expr_forward(eg_tensor *y)
{
    const formula *f = y->attr;
    loop o;
    if (!loop_open(&o, y->cx, expression_of(f), expression_of(f)->root, f->letters, f->size, y->in,
                   y->count, expr_floats(y) == EG_F64, 0))
        return false;
    o.out = y->data;
    return loop_run(&o);
}
static bool expr_c128(eg_tensor *y)
{
    eg_composed c = composed_of(y->attr, y->cx, EG_C128, y->count, y->in);
    eg_tensor *z = eg__composed(&c);
    if (eg_ok(z)) eg__copy(y, z);
    return eg_ok(z);
}
static eg_tensor *expr_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_memo *memo = y->saved;
    if (!eg__remembered(memo, g)) {
        eg_tensor *d = expr_gradient_of(y, g);
        if (!eg_ok(d)) return d;
        gradient_parts(d, d, memo->d);
        eg__remember(memo, g);
    }
    return memo->d[i];
}
static eg_tensor *expr_gate(eg_tensor *const *x)
{
    return eg_expr("b i h", "x * sigmoid(x) * g[h] + 0.5",
                   .with = { { "x", x[0] }, { "g", x[1] } });
}
static eg_tensor *expr_cap(eg_tensor *const *x)
{
    return eg_expr("i j", "3 * tanh((s + r[clip(i - j, 0, 2)]) / 3)",
                   .with = { { "s", x[0] }, { "r", x[1] } });
}
static eg_tensor *expr_bucket(eg_tensor *const *x)
{
    return eg_expr("h i", "keep[i] ? pow(r[h, bucket[i]], 2) : exp(-r[h, 0])",
                   .with = { { "r", x[0] }, { "bucket", x[1] }, { "keep", x[2] } });
}
static const eg_sample expr_samples[] = { { expr_gate, "2x3x5, 5", 0, 0 },
                                          { expr_cap, "3x4, 3", 0, 0 },
                                          { expr_bucket, "2x4, 6:i4, 6:b", 0, 0 },
                                          { 0 } };
static const eg_op expr_op = {
    .name = "expr",
    .equation = "y = f(x, ...)",
    .gradient = "dx = df/dx g, added where f reads x",
    .arity = -1,
    .shape = expr_shape,
    .forward = expr_forward,
    .rule = expr_rule,
    .uses = EG_USES_OPERANDS,
    .samples = expr_samples,
    .forward_c128 = expr_c128,
};
const eg_op *const eg__expr_rows[] = { &expr_op, &expr_gradient_op, NULL };

/* -- the call --------------------------------------------------------------------------------- */
typedef struct extremes {
    bool wide;
    int64_t *least, *most;
} extremes;
static void extremes_of(int64_t n, char *const *p, const int64_t *step, const void *user)
{
    const extremes *e = user;
    for (int64_t k = 0; k < n; k++) {
        const void *at = p[0] + k * step[0];
        const int64_t v = e->wide ? *(const int64_t *)at : *(const int32_t *)at;
        if (v < *e->least) *e->least = v;
        if (v > *e->most) *e->most = v;
    }
}
void eg__extremes(const eg_tensor *x, int64_t *least, int64_t *most)
{
    *least = INT64_MAX, *most = -INT64_MAX;
    eg__loop_work(x->cx, 1, &x, extremes_of, &(extremes){ x->dtype == EG_I64, least, most }, 0);
    if (*least > *most) *least = *most = 0;
}

/* Reads the letters of `axes`, which must be one term without groups, with their sizes (−1 if none
 * is given). Returns how many; −1 after an error. */
static int expr_letters(eg_ctx *cx, const char *who, const char *axes, eg_axis_name *name,
                        int64_t *size)
{
    eg_parse_room room;
    const eg_parsed *p = eg__parse(cx, who, axes, EG_READ_BY_BLANKS, &room);
    if (!p) return -1;
    const int n = p->term[0].slots;
    if (p->terms != 1 || p->arrow)
        return eg__caret(cx, who, axes, 0, NULL, NULL, NULL,
                         "the axes are one term, without comma or arrow"),
               -1;
    if (p->axes != n || p->items != n || p->term[0].dots || p->bracket >= 0)
        return eg__caret(cx, who, axes, 0, NULL, NULL, NULL,
                         "the axes are different letters or names, without groups, brackets, 1 and "
                         "'...'"),
               -1;
    if (n > EG_RANK_MAX || n > EG_EXPRESSION_LETTERS)
        return eg__caret(cx, who, axes, 0, NULL, NULL, NULL, "the axes are more than %d",
                         EG_EXPRESSION_LETTERS),
               -1;
    for (int k = 0; k < n; k++) {
        const eg_parsed_axis *a = &p->axis[p->item[k].axis];
        name[k] = (eg_axis_name){
            .text = axes + a->at, .length = a->length, .size = a->size, .from = -1
        };
        size[k] = a->size;
    }
    return n;
}
/* Reads the tensors of .with to x and r; *floats becomes the type of those that are floats. Returns
 * how many; −1 after an error. */
static int expr_given(eg_ctx *cx, const char *who, const eg_given *with, eg_readable *r,
                      eg_tensor **x, eg_dtype *floats)
{
    int n = 0;
    const char *first = NULL;
    for (; n < EG_GIVEN_MAX && with[n].name; n++) {
        x[n] = with[n].x;
        if (!x[n])
            return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: '%s' of .with is NULL", who, with[n].name),
                   -1;
    }
    if (!eg__check_all(cx, who, n, x)) return -1;
    for (int k = 0; k < n; k++) {
        r[k] = (eg_readable){ .name = with[k].name,
                              .dtype = (eg_dtype)x[k]->dtype,
                              .rank = x[k]->rank,
                              .dim = x[k]->dim,
                              .most = 1 };
        if (eg__is_int(x[k]->dtype)) eg__extremes(x[k], &r[k].least, &r[k].most);
        if (!eg__is_inexact(x[k]->dtype)) continue;
        if (first && *floats != (eg_dtype)x[k]->dtype)
            return eg_fail_as(cx, EG_ERROR_DTYPE,
                              "%s: '%s' is %s but '%s' is %s; eg_cast one of them first", who,
                              first, eg_type_name(*floats), with[k].name,
                              eg_type_name((eg_dtype)x[k]->dtype)),
                   -1;
        first = with[k].name;
        *floats = (eg_dtype)x[k]->dtype;
    }
    return n;
}

eg_tensor *eg_expr_with(const eg_expr_args *given)
{
    static const char who[] = "expr";
    eg_expr_args o = { .size = sizeof o };
    eg_readable readable[EG_GIVEN_MAX];
    eg_tensor *x[EG_GIVEN_MAX] = { NULL };
    eg_axis_name name[EG_RANK_MAX];
    const eg_axis_name *letter[EG_RANK_MAX];
    int64_t size[EG_RANK_MAX];
    eg_options(&o, sizeof o, given);
    for (int k = 0; k < EG_GIVEN_MAX && o.with[k].name; k++) x[k] = o.with[k].x;
    eg_ctx *cx = eg__context_of(who, EG_GIVEN_MAX, x);
    if (!cx || eg__failed(cx)) return eg__poison(cx);
    if (!o.axes || !o.text)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: the %s NULL", who,
                          o.axes ? "formula is" : "axes are");
    eg_dtype floats = eg_default_type(cx);
    const int count = expr_given(cx, who, o.with, readable, x, &floats),
              n = count < 0 ? -1 : expr_letters(cx, who, o.axes, name, size);
    if (n < 0) return eg__poison(cx);
    for (int k = 0; k < n; k++) letter[k] = &name[k];
    const eg_expression_source source = { .who = who,
                                          .text = o.text,
                                          .noun = "expression",
                                          .letters = n,
                                          .letter = letter,
                                          .given = count,
                                          .readable = readable,
                                          .whole = true };
    eg_expression *e = eg__expression_parse(cx, &source);
    if (!e || !eg__expression_sizes(cx, &source, e, size)) return eg__poison(cx);
    for (int k = 0; k < count; k++)
        if (!(e->reads >> k & 1))
            return eg_fail_as(cx, EG_ERROR_NOTATION, "%s: '%s' of .with does not stand in \"%s\"",
                              who, readable[k].name, o.text);
    static const int64_t none[EG_RANK_MAX];
    eg_box box = { .low = none, .high = size, .size = size };
    for (int k = 0; k < n; k++) name[k].size = size[k];
    for (int k = 0; k < count; k++)
        box.least[k] = readable[k].least, box.most[k] = readable[k].most;
    if (!eg__expression_fits(cx, &source, e, &box)) return eg__poison(cx);
    const size_t bytes = sizeof(formula) + eg__expression_bytes(e);
    formula *f = eg__alloc(cx, bytes);
    if (!f) return eg__poison(cx);
    *f = (formula){ .letters = n, .floats = floats };
    memcpy(f->size, size, (size_t)n * sizeof *size);
    memcpy(f + 1, e, eg__expression_bytes(e));
    return eg_apply(&expr_op, f, bytes, count, x);
}
