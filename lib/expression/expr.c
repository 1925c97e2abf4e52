/* expr.c: eg_expr, which computes a formula of index notation over tensors, in one pass forward and
 * one pass for the gradient: the operations of both, and the call. */
#include "expression/expression.h"
#include <string.h>

enum { PIECES = 64 }; /* largest number of sets of sums */

/* The attribute of both operations; the parsed expression follows it in memory. */
typedef struct formula {
    int letters;
    eg_dtype floats; /* the type of floats if no operand has floats */
    bool allow;      /* the last operand says which elements count: cotangents of others are 0 */
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

/* -- expr_gradient: the cotangents of all operands of floats, along one axis ------------------- */
static const eg_op expr_op, expr_gradient_op;
/* Returns how many of the `operands` of expr are tensors of the formula. */
static int tensors_of_formula(const formula *f, int operands) { return operands - f->allow; }
/* Returns the composed form of a formula over the first `count` operands of an operation. */
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
/* Gives a node of either operation a memo, which keeps the cotangents of all operands. */
static bool expr_saves(eg_tensor *y) { return eg__node_save(y, sizeof(eg_memo)); }
static bool gradient_shape(eg_tensor *d)
{
    const int64_t n = eg__gradient_size(d->count - 1, d->in);
    return expr_saves(d) && eg__shape(d, (eg_dtype)d->in[d->count - 1]->dtype, 1, &n);
}
/* True if g is a single number that is expanded along every axis, as the cotangent of a sum is. */
static bool is_expanded_number(const eg_tensor *g)
{
    for (int r = 0; r < g->rank; r++)
        if (g->dim[r] != 1 && g->stride[r]) return false;
    return true;
}
/* Returns a tensor of n copies of the first element of g; NULL after an error. */
static eg_tensor *first_repeated(const eg_tensor *g, int64_t n)
{
    static const int64_t still;
    eg_tensor first = *g, *y = eg__new(g->cx, (eg_dtype)g->dtype, 1, &n);
    if (!y) return NULL;
    first.rank = 1;
    first.dim = &n;
    first.stride = (int64_t *)(uintptr_t)&still;
    first.copies = NULL;
    eg__copy(y, &first);
    return y;
}
/* Computes the cotangents of all operands of floats in one pass over the result. Direct ones are
 * written, those of few summands added; the others are added in f64, and then summed over the
 * pieces. */
static bool gradient_forward(eg_tensor *d)
{
    const formula *f = d->attr;
    const int count = tensors_of_formula(f, d->count - 1);
    eg_tensor *g = d->in[d->count - 1], *x[EG_TENSORS_MAX], *allow = NULL;
    const bool f64 = d->dtype == EG_F64;
    const int width = f64 ? 8 : 4;
    uint32_t wanted = 0;
    int64_t at[EG_TENSORS_MAX] = { 0 }, sum_at[EG_TENSORS_MAX] = { 0 }, end = 0;
    eg_block_loop o;
    memset(d->data, 0, (size_t)(eg_size(d) * width)); /* st has the bytes of all copies */
    for (int k = 0; k < count; k++) {
        x[k] = d->in[k];
        if (eg__is_float(x[k]->dtype)) wanted |= 1u << k;
    }
    if (!eg__block_loop(&o, d->cx, expression_of(f), expression_of(f)->root, f->letters, f->size,
                        NULL, x, count, f64, wanted))
        return false;
    if (!o.elements) return true;
    o.uniform = is_expanded_number(g);
    if (!eg_ok(g = o.uniform ? first_repeated(g, eg__block_loop_size(&o)) : eg_contiguous(g)))
        return false;
    if (f->allow && !eg_ok(allow = eg_contiguous(d->in[count]))) return false;
    o.g = g->data;
    o.allow = allow ? (const uint8_t *)allow->data : NULL;
    int64_t step[EG_TENSORS_MAX][EG_RANK_MAX], added = 0;
    bool in_f64[EG_TENSORS_MAX] = { false }; /* its cotangents are added in f64 */
    for (int k = 0; k < count; k++) {
        if (!(wanted >> k & 1)) continue;
        at[k] = end, end += eg_size(x[k]);
        eg__row_major(x[k]->rank, x[k]->dim, step[k]);
        o.sink[k] = (eg_sink){
            .data = d->data + at[k] * width,
            .stride = step[k],
            .direct = eg__written_once(o.e, f->letters, f->size, k, x[k]->dim),
        };
        if (!o.sink[k].direct) {
            added += eg_size(x[k]);
            o.sink[k].few =
                o.elements <= 2 * eg_size(x[k]) && eg__few_summands(o.e, f->letters, f->size, k);
        }
        in_f64[k] = !o.sink[k].direct && !o.sink[k].few;
        if (in_f64[k]) sum_at[k] = o.summed, o.summed += eg_size(x[k]);
    }
    /* A tensor whose cotangents are added in place has at least half as many elements as the loop,
     * so there is one piece then, and no two threads add to one element. (A smaller tensor can have
     * few summands too, as that of z has in i < 16 ? z[i] : 0, where every i from 16 on adds a 0 to
     * the last element.) */
    o.pieces = eg__min64(eg__min64(o.blocks, PIECES), o.elements / (4 * added + 1) + 1);
    if (o.summed) {
        const size_t bytes = (size_t)(o.pieces * o.summed) * sizeof(double);
        if (!(o.sums = eg__scratch(d->cx, EG_SCRATCH_SUMS, bytes))) return false;
        memset(o.sums, 0, bytes);
    }
    for (int k = 0; k < count; k++)
        if (in_f64[k]) o.sink[k].data = o.sums + sum_at[k];
    if (!eg__block_loop_run(&o)) return false;
    for (int k = 0; k < count; k++)
        if (in_f64[k])
            eg__sums_add(f64, d->data + at[k] * width, eg_size(x[k]), o.pieces, o.summed,
                         o.sums + sum_at[k]);
    return true;
}
/* Computes d for complex operands, by copying the cotangents of the composed form to their parts of
 * d. */
static bool gradient_c128(eg_tensor *d)
{
    const int count = tensors_of_formula(d->attr, d->count - 1);
    eg_tensor *dx[EG_TENSORS_MAX];
    eg_composed c = composed_of(d->attr, d->cx, EG_C128, count, d->in);
    return eg_ok(eg__composed(&c)) && eg__composed_slopes(&c, d->in[d->count - 1], dx) &&
           eg__gradient_fill(d, count, d->in, dx);
}
/* Returns ⟨u, d⟩ with the cotangents d of the composed form computed from x and g, so that it can
 * be differentiated. NULL if no operand has a cotangent; poison after an error. */
static eg_tensor *gradient_dot(eg_tensor *d, eg_tensor *u, eg_tensor *const *x, eg_tensor *g)
{
    eg_tensor *dx[EG_TENSORS_MAX];
    const int count = tensors_of_formula(d->attr, d->count - 1);
    eg_composed c = composed_of(d->attr, d->cx, (eg_dtype)d->dtype, count, x);
    if (!eg_ok(eg__composed(&c)) || !eg__composed_slopes(&c, g, dx)) return eg__poison(d->cx);
    return eg__gradient_dot(u, count, d->in, dx);
}
/* The second derivative: ⟨u, d⟩ is differentiated by the operands and by g in one backward pass.
 * ⟨u, d⟩ is recorded whatever eg_nograd is. */
static eg_tensor *gradient_rule(eg_tensor *d, eg_tensor *u, int i)
{
    const int last = d->count - 1;
    eg_memo *memo = d->saved;
    if (!eg__remembered(memo, u)) {
        eg_tensor *x[EG_TENSORS_MAX + 2], *by[EG_TENSORS_MAX + 2], *du[EG_TENSORS_MAX + 2];
        int at[EG_TENSORS_MAX + 2], n = 0;
        const bool was = eg_nograd(d->cx, false);
        for (int k = 0; k <= last; k++) x[k] = eg__fresh_view(d->in[k]);
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
/* The tangent of the cotangents in composed form. The rule would compute the derivatives by all
 * operands once for each of them. */
static eg_tensor *gradient_jvp(eg_tensor *d, eg_tensor *const *dx)
{
    eg_tensor *x[EG_TENSORS_MAX + 2], *by[EG_TENSORS_MAX], *r = NULL;
    const int last = d->count - 1, count = tensors_of_formula(d->attr, last);
    const bool was = eg_nograd(d->cx, false), tracing = eg_trace(d->cx, false);
    for (int k = 0; k <= last; k++) x[k] = eg__fresh_view(d->in[k]);
    eg_composed c = composed_of(d->attr, d->cx, (eg_dtype)d->dtype, count, x);
    if (eg_ok(eg__composed(&c)) && eg__composed_slopes(&c, x[last], by))
        r = eg__gradient_join(count, x, by);
    eg_trace(d->cx, tracing);
    eg_nograd(d->cx, was);
    return r ? eg__tangent_of(r, d->count, x, dx) : eg__poison(d->cx);
}
/* Applies expr_gradient to the operands of y, a node of expr, and its cotangent g. */
static eg_tensor *expr_gradient_of(const eg_tensor *y, eg_tensor *g)
{
    eg_tensor *operand[EG_TENSORS_MAX + 2];
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
    .jvp = gradient_jvp,
    .forward_c128 = gradient_c128,
};

/* -- expr: y = f(x, …), elementwise ----------------------------------------------------------- */
/* Returns the type of floats in a call: that of its operands of floats, or the context's
 * default. */
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
                                      kind == EG_IS_CONDITION ? EG_BOOL
                                      : kind == EG_IS_INTEGER ? EG_I64
                                                              : expr_floats(y),
                                      f->letters, f->size);
}
static bool expr_forward(eg_tensor *y)
{
    const formula *f = y->attr;
    eg_block_loop o;
    if (!eg__block_loop(&o, y->cx, expression_of(f), expression_of(f)->root, f->letters, f->size,
                        NULL, y->in, tensors_of_formula(f, y->count), expr_floats(y) == EG_F64, 0))
        return false;
    o.out = y->data;
    return eg__block_loop_run(&o);
}
static bool expr_c128(eg_tensor *y)
{
    eg_composed c =
        composed_of(y->attr, y->cx, EG_C128, tensors_of_formula(y->attr, y->count), y->in);
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
        eg__gradient_parts(d, y->count, y->in, memo->d);
        eg__remember(memo, g);
    }
    return memo->d[i];
}
/* The tangent of the composed form, for the same reason as that of the gradient; 0 for elements
 * that do not count. */
static eg_tensor *expr_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    eg_tensor *x[EG_TENSORS_MAX + 1];
    const formula *f = y->attr;
    const int count = tensors_of_formula(f, y->count);
    const bool was = eg_nograd(y->cx, false), tracing = eg_trace(y->cx, false);
    for (int k = 0; k < count; k++) x[k] = eg__fresh_view(y->in[k]);
    eg_composed c = composed_of(f, y->cx, expr_floats(y), count, x);
    eg_tensor *r = eg__composed(&c);
    eg_trace(y->cx, tracing);
    eg_nograd(y->cx, was);
    eg_tensor *t = eg__tangent_of(r, count, x, dx);
    return f->allow && eg_ok(t) ? eg_where(y->in[count], t, eg_zeros_like(t)) : t;
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
    .jvp = expr_jvp,
    .forward_c128 = expr_c128,
};
const eg_op *const eg__expr_ops[] = { &expr_op, &expr_gradient_op, NULL };

/* -- formulas of other folders ---------------------------------------------------------------- */
/* Copies e to `to` with the score replaced by a read of tensor number `tensor` at all letters. The
 * nodes of the letters and of the read precede the others. */
static void with_score_read(eg_expression *to, const eg_expression *e, int letters, int tensor)
{
    const int shift = letters + 1;
    *to = *e;
    to->nodes += shift, to->root += shift, to->strict += shift;
    to->score = false, to->reads |= 1u << tensor;
    for (int l = 0; l < letters; l++)
        to->node[l] = (eg_node){
            .code = EG_X_LETTER, .kind = EG_IS_INTEGER, .in = { (uint8_t)l }, .letters = 1u << l
        };
    to->node[letters] = (eg_node){ .code = EG_X_READ,
                                   .kind = EG_IS_FLOAT,
                                   .count = (uint8_t)letters,
                                   .tensor = (uint8_t)tensor,
                                   .plain = true,
                                   .letters = letters ? (uint32_t)((1ull << letters) - 1) : 0 };
    for (int l = 0; l < letters; l++) to->node[letters].in[l] = (uint8_t)l;
    for (int k = 0; k < e->nodes; k++) {
        eg_node *n = &to->node[k + shift];
        *n = e->node[k];
        if (n->code > EG_X_SCORE)
            for (int i = 0; i < n->count; i++) n->in[i] = (uint8_t)(n->in[i] + shift);
    }
    /* operands that were the score become the read */
    for (int k = 0; k < e->nodes; k++) {
        eg_node *n = &to->node[k + shift];
        if (n->code <= EG_X_SCORE) continue;
        for (int i = 0; i < n->count; i++)
            if (to->node[n->in[i]].code == EG_X_SCORE) n->in[i] = (uint8_t)letters;
    }
    if (to->node[to->root].code == EG_X_SCORE) to->root = letters;
    const uint32_t all = letters ? (uint32_t)((1ull << letters) - 1) : 0;
    for (int k = 0; k < e->nodes; k++) to->node[k + shift].letters &= all;
}
bool eg__expr_call(eg_expr_call *f, eg_ctx *cx, const eg_expression *e, int letters,
                   const int64_t *size, int count, eg_tensor *const *x, eg_tensor *score,
                   eg_tensor *allow)
{
    const int shift = score ? letters + 1 : 0;
    const size_t bytes = eg__expression_bytes(e) + (size_t)shift * sizeof(eg_node);
    *f = (eg_expr_call){ .cx = cx, .bytes = sizeof(formula) + bytes };
    formula *attr = eg__alloc(cx, f->bytes);
    if (!attr) return false;
    *attr = (formula){ .letters = letters, .floats = EG_F32, .allow = allow != NULL };
    memcpy(attr->size, size, (size_t)letters * sizeof *size);
    if (score)
        with_score_read((eg_expression *)(void *)(attr + 1), e, letters, count);
    else
        memcpy(attr + 1, e, bytes);
    f->attr = attr;
    memcpy(f->operand, x, (size_t)count * sizeof *x);
    if (score) f->operand[count++] = score;
    f->tensors = count;
    if (allow) f->operand[count++] = allow;
    f->count = count;
    return true;
}
eg_tensor *eg__expr_value(const eg_expr_call *f)
{
    return eg_apply(&expr_op, f->attr, f->bytes, f->count, f->operand);
}
bool eg__expr_slopes(const eg_expr_call *f, eg_tensor *g, eg_tensor **dx)
{
    eg_tensor *operand[EG_TENSORS_MAX + 2];
    memcpy(operand, f->operand, (size_t)f->count * sizeof *operand);
    operand[f->count] = g;
    eg_tensor *d = eg_apply(&expr_gradient_op, f->attr, f->bytes, f->count + 1, operand);
    if (eg_ok(d)) eg__gradient_parts(d, f->tensors, f->operand, dx);
    return eg_ok(d);
}

/* -- the call --------------------------------------------------------------------------------- */
/* Reads the letters of `axes`, which must be one term without groups, with their sizes (−1 if none
 * is given). An ellipsis stands for the axes that x has beyond the letters. Returns how many there
 * are; −1 after an error. */
static int expr_letters(eg_ctx *cx, const char *who, const char *axes, const eg_tensor *x,
                        eg_axis_name *name, int64_t *size)
{
    eg_parse_buffer buffer;
    const eg_parsed *p = eg__parse(cx, who, axes, EG_READ_BY_BLANKS, &buffer);
    if (!p) return -1;
    const int dots = p->term[0].dots, letters = p->term[0].slots - dots;
    if (p->terms != 1 || p->arrow)
        return eg__caret(cx, who, axes, 0, NULL, NULL, NULL,
                         "the axes must be one term, without comma or arrow"),
               -1;
    if (dots > 1 || p->axes != letters || p->items != letters + dots || p->bracket >= 0)
        return eg__caret(
                   cx, who, axes, 0, NULL, NULL, NULL,
                   "the axes must be different letters or names, without groups, brackets and 1"),
               -1;
    if (dots && (!x || x->rank < letters))
        return eg__caret(cx, who, axes, 0, NULL, NULL, NULL,
                         "'...' stands for the other axes of the first tensor of .with, %s",
                         x ? "which has fewer axes than there are letters" : "and there is none"),
               -1;
    const int rest = dots ? x->rank - letters : 0, n = letters + rest;
    if (n > EG_RANK_MAX || n > EG_EXPRESSION_LETTERS)
        return eg__caret(cx, who, axes, 0, NULL, NULL, NULL, "there are more than %d axes",
                         EG_EXPRESSION_LETTERS),
               -1;
    for (int i = 0, k = 0; i < p->items; i++) {
        const bool letter = p->item[i].axis != EG_ITEM_DOTS;
        const eg_parsed_axis *a = letter ? &p->axis[p->item[i].axis] : NULL;
        for (int end = k + (letter ? 1 : rest); k < end; k++) {
            name[k] = a ? (eg_axis_name){ axes + a->at, a->length, a->size, -1 }
                        : (eg_axis_name){ "...", 3, -1, -1 }; /* no name in a formula */
            size[k] = name[k].size;
        }
    }
    return n;
}
eg_tensor *eg_expr_with(const eg_expr_args *args)
{
    static const char who[] = "expr";
    eg_expr_args o = { .size = sizeof o };
    eg_given_tensors given;
    eg_dtype was[EG_GIVEN_MAX];
    eg_tensor *x[EG_GIVEN_MAX] = { NULL };
    eg_axis_name name[EG_RANK_MAX];
    const eg_axis_name *letter[EG_RANK_MAX];
    int64_t size[EG_RANK_MAX];
    eg_options(&o, sizeof o, args);
    for (int k = 0; k < EG_GIVEN_MAX && o.with[k].name; k++) x[k] = o.with[k].x;
    if (!o.with[0].name && !o.cx)
        return eg_fail_as(NULL, EG_ERROR_MISUSE,
                          "%s: .with has no tensor, and its first one determines the context; "
                          "without tensors .cx gives it",
                          who);
    eg_ctx *cx = o.with[0].name ? eg__context_of(who, EG_GIVEN_MAX, x) : eg__here(o.cx);
    if (!cx || eg__failed(cx)) return eg__poison(cx);
    if (!o.axes || !o.text)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: the %s NULL", who,
                          o.axes ? "formula is" : "axes are");
    if (!eg__given_cast(cx, who, EG_DEFAULT, o.with, was) ||
        !eg__given_read(cx, who, o.text, NULL, o.with, was, &given))
        return eg__poison(cx);
    const int n = expr_letters(cx, who, o.axes, eg_ok(x[0]) ? x[0] : NULL, name, size);
    if (n < 0) return eg__poison(cx);
    for (int k = 0; k < n; k++) letter[k] = &name[k];
    const eg_expression_source source = { .who = who,
                                          .text = o.text,
                                          .noun = "expression",
                                          .letters = n,
                                          .letter = letter,
                                          .given = given.count,
                                          .readable = given.readable,
                                          .all_letters = true };
    eg_expression *e = eg__expression_read(cx, &source, &given);
    if (!e || !eg__expression_sizes(cx, &source, e, size) ||
        !eg__given_used(cx, who, &given, e, NULL, "the expression"))
        return eg__poison(cx);
    static const int64_t none[EG_RANK_MAX];
    for (int k = 0; k < n; k++) name[k].size = size[k];
    if (!eg__given_fit(cx, &source, e, none, size, size, &given) ||
        !eg__given_lengths(cx, &source, e, eg__expression_positions(e, 0), size))
        return eg__poison(cx);
    const size_t bytes = sizeof(formula) + eg__expression_bytes(e);
    formula *f = eg__alloc(cx, bytes);
    if (!f) return eg__poison(cx);
    *f = (formula){ .letters = n,
                    .floats = given.floats == EG_DEFAULT ? eg_default_type(cx) : given.floats };
    memcpy(f->size, size, (size_t)n * sizeof *size);
    memcpy(f + 1, e, eg__expression_bytes(e));
    return given.count ? eg_apply(&expr_op, f, bytes, given.count, given.x)
                       : eg__apply(cx, &expr_op, f, bytes, NULL, 0, NULL);
}
