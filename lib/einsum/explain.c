/* explain.c: eg_explain, a description of how an einsum would be computed, as a struct and as text.
 * The counts are those of its plan; no product is computed. */
#include "einsum/einsum.h"
#include <string.h>

/* -- text that grows in the open scope; after a failure it stays unchanged --------------------- */
typedef struct text {
    eg_ctx *cx;
    char *s;
    size_t n, size;
} text;
static void explain_put(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends, as printf does. If the text does not fit, it moves to memory of twice the size. */
static void explain_put(text *t, const char *format, ...)
{
    for (;;) {
        va_list list;
        va_start(list, format);
        const int n = t->s ? eg__vsentence(t->s + t->n, t->size - t->n, format, list) : 0;
        va_end(list);
        if (t->s && (size_t)n < t->size - t->n) {
            t->n += (size_t)n;
            return;
        }
        char *more = eg__alloc(t->cx, 2 * t->size + 512 + (size_t)n);
        if (!more) return;
        if (t->n) memcpy(more, t->s, t->n);
        more[t->n] = 0;
        t->s = more;
        t->size = 2 * t->size + 512 + (size_t)n;
    }
}
/* Returns the text so far and begins an empty one. */
static char *text_end(text *t)
{
    if (!t->s) explain_put(t, "%s", "");
    char *s = t->s;
    *t = (text){ .cx = t->cx };
    return s;
}

/* -- names of axes: letters are written without blanks, names with blanks; ellipses as "..." --- */
typedef struct names {
    const eg_bound *b;
    bool apart, prefixed; /* prefixed: the string must begin with "names:" */
    bool broadcast;       /* .broadcast of the call */
    /* letters for the axes of an ellipsis; empty: it is written as ... */
    char dots[EG_RANK_MAX + 1];
} names;
static bool of_dots(const names *n, uint16_t axis) { return axis >= n->b->axes - n->b->dots; }
static void put_name(text *t, const names *n, uint16_t axis)
{
    if (*n->dots && of_dots(n, axis)) {
        explain_put(t, "%c", n->dots[axis - (n->b->axes - n->b->dots)]);
        return;
    }
    explain_put(t, "%.*s", n->b->axis[axis].length, n->b->axis[axis].text);
}
static void put_term(text *t, const names *n, int count, const uint16_t *label)
{
    for (int k = 0; k < count; k++) {
        if (k && !*n->dots && of_dots(n, label[k]) && of_dots(n, label[k - 1])) continue;
        if (k && n->apart) explain_put(t, " ");
        put_name(t, n, label[k]);
    }
}
static const char *comma(const names *n) { return n->apart ? ", " : ","; }
static const char *arrow(const names *n) { return n->apart ? " -> " : "->"; }

/* True if axis r of a term is a group, or a 1 in the string. */
static bool explain_grouped(const eg_bound_term *term, int r, bool broadcast)
{
    const int items = term->last[r] - term->first[r];
    return items > 1 || (!items && !broadcast);
}
/* Writes a term with its groups in parentheses, with the sizes that operands need. */
static void put_whole_term(text *t, const names *n, const eg_bound_term *term, bool sizes,
                           bool broadcast)
{
    bool first = true;
    for (int r = 0; r < term->rank; r++) {
        const int from = term->first[r], to = term->last[r];
        const uint16_t axis = from < to ? term->item[from].axis : 0;
        if (from == to && broadcast) continue;
        if (r && !*n->dots && to - from == 1 && of_dots(n, axis) &&
            term->last[r - 1] - term->first[r - 1] == 1 &&
            of_dots(n, term->item[term->first[r - 1]].axis))
            continue;
        if (!first && n->apart) explain_put(t, " ");
        first = false;
        if (from == to) explain_put(t, "1");
        if (to - from > 1) explain_put(t, "(");
        for (int i = from; i < to; i++) {
            if (i > from) explain_put(t, " ");
            put_name(t, n, term->item[i].axis);
            if (sizes && i < to - 1)
                explain_put(t, "=%lld", (long long)n->b->axis[term->item[i].axis].size);
        }
        if (to - from > 1) explain_put(t, ")");
    }
}

static bool has_dots(const names *n, const eg_labelled *x)
{
    for (int r = 0; r < x->rank; r++)
        if (of_dots(n, x->label[r])) return true;
    return false;
}
/* Finds letters for the axes of ellipses, which a sum over "..." must name. */
static void spell_dots(names *n)
{
    int found = 0;
    for (char c = 'A'; c <= 'z' && found < n->b->dots; c = c == 'Z' ? 'a' : (char)(c + 1)) {
        bool taken = false;
        for (int a = 0; a < n->b->axes - n->b->dots; a++)
            taken |= n->b->axis[a].length == 1 && *n->b->axis[a].text == c;
        if (!taken) n->dots[found++] = c;
    }
    if (found < n->b->dots) *n->dots = 0;
}

/* Writes the einsum that is the cotangent of operand i, as einsum_rule (einsum.c) computes it. */
static const char *explain_gradient(text *t, const names *n, int count, const eg_labelled *x,
                                    const eg_labelled *out, int i)
{
    /* the labels of operand i that other operands or the output have; those that only it has */
    uint16_t have[EG_RANK_MAX], gone[EG_RANK_MAX];
    int nhave = 0, ngone = 0;
    bool repeats = false;
    for (int r = 0; r < x[i].rank; r++) {
        bool known = false;
        for (int k = 0; k <= count; k++) {
            const eg_labelled *o = k < count ? &x[k] : out;
            for (int q = 0; k != i && q < o->rank; q++) known |= o->label[q] == x[i].label[r];
        }
        repeats |= eg__label_at(x[i].label, r, x[i].label[r]) >= 0;
        if (known)
            have[nhave++] = x[i].label[r];
        else if (eg__label_at(gone, ngone, x[i].label[r]) < 0)
            gone[ngone++] = x[i].label[r];
    }
    names spelt = *n;
    if (n->b->dots && !has_dots(n, &x[i])) spell_dots(&spelt);
    n = &spelt;
    explain_put(t, "d%d: %s", i + 1, n->prefixed ? "names: " : "");
    put_whole_term(t, n, &n->b->out, true, n->broadcast);
    for (int k = 0; k < count; k++)
        if (k != i) {
            explain_put(t, "%s", comma(n));
            put_whole_term(t, n, &n->b->term[k], true, n->broadcast);
        }
    explain_put(t, "%s", arrow(n));
    if (ngone)
        put_term(t, n, nhave, have);
    else
        put_whole_term(t, n, &n->b->term[i], false, n->broadcast);
    if (ngone) {
        explain_put(t, ", repeated along ");
        put_term(t, n, ngone, gone);
    }
    if (ngone && repeats) {
        explain_put(t, ", on the diagonal of ");
        put_term(t, n, x[i].rank, x[i].label);
    }
    return text_end(t);
}

/* -- a step ----------------------------------------------------------------------------------- */
static const char *const kinds[][2] = {
    /* the name of the kernel; the operands that it copies */
    [EG_PAIR_NOTHING] = { "nothing: the result is empty", "none" },
    [EG_PAIR_ZERO] = { "zeros: a sum over nothing", "none" },
    [EG_PAIR_PLAIN] = { "plain loop in i64", "none" },
    [EG_PAIR_MAP] = { "elementwise loop", "none" },
    [EG_PAIR_SUM] = { "dots and row sums", "none" },
    [EG_PAIR_DIRECT] = { "product in registers", "none" },
    [EG_PAIR_PACKED] = { "packed product", "blocks packed into panels" },
    [EG_PAIR_INNER_BATCH] = { "products of one batch at a time",
                              "blocks transposed, batch by batch" },
};
/* Returns the bytes of an element of operand or intermediate `number`, counted from 1; 0 if there
 * is none. */
static double explain_width(const eg_contraction *t, int number)
{
    return number ? eg__width[number <= t->count ? t->of[number - 1] : t->dtype] : 0;
}
/* As text_end, for the string of a step: it begins with "names:" if its blanks alone do not say
 * that it is in names, as "key, key ->". A separate function, since the parser's buffer is large.
 */
static __attribute__((noinline)) const char *spec_end(text *t, const names *n)
{
    eg_parse_buffer buffer;
    const char *spec = text_end(t);
    bool words = false;
    for (int a = 0; a < n->b->axes - n->b->dots; a++) words |= n->b->axis[a].length > 1;
    const eg_parsed *p =
        words && spec ? eg__parse(NULL, "einsum", spec, EG_READ_BY_BLANKS, &buffer) : NULL;
    if (!words || !spec || (p && p->names)) return spec;
    explain_put(t, "names: %s", spec);
    return text_end(t);
}
/* Describes step s: its labels by role, its matrix product, its counts, and its kernel. */
static void step_of(eg_explained_step *e, const eg_draft *d, const eg_program *p,
                    const eg_tree *tree, int s, text *t, const names *n)
{
    const eg_side *a = &d->side[d->pair[s][0]],
                  *b = d->pair[s][1] < 0 ? NULL : &d->side[d->pair[s][1]],
                  *c = eg__draft_result(d, s);
    double of_a = 1, of_b = b ? 1 : 0, of_c = 1, alone_a = 1, alone_b = 1;
    *e = (eg_explained_step){ .kept = tree && s < d->steps - 1 && tree->kept >> s & 1,
                              .a = d->pair[s][0] + 1,
                              .b = d->pair[s][1] + 1,
                              .batch = 1,
                              .m = 1,
                              .n = 1,
                              .k = 1 };
    /* labels by role: batch, free, summed, summed in one operand */
    text roles[4] = { { .cx = t->cx }, { .cx = t->cx }, { .cx = t->cx }, { .cx = t->cx } };
    for (int side = 0; side < 2; side++) {
        const eg_side *x = side ? b : a, *y = side ? a : b;
        for (int k = 0; x && k < x->n; k++) {
            const bool other = y && eg__label_at(y->label, y->n, x->label[k]) >= 0,
                       out = eg__label_at(c->label, c->n, x->label[k]) >= 0;
            *(side ? &of_b : &of_a) *= x->stride[k] || x->size[k] < 2 ? (double)x->size[k] : 1;
            if (side && other) continue;
            const int role = b && other && out ? 0 : out ? 1 : other ? 2 : 3;
            if (b && role == 3) *(side ? &alone_b : &alone_a) *= (double)x->size[k];
            int64_t *const count[] = { &e->batch, side ? &e->n : &e->m, &e->k };
            if (role < 3) *count[role] *= x->size[k];
            explain_put(&roles[role], " ");
            put_name(&roles[role], n, x->label[k]);
        }
    }
    for (int k = 0; k < c->n; k++) of_c *= (double)c->size[k];
    const double width = eg__width[d->task->dtype];
    e->multiplications = eg__draft_work(d, s, &e->additions);
    e->multiplications -= e->additions;
    e->bytes =
        explain_width(d->task, e->a) * of_a + explain_width(d->task, e->b) * of_b + width * of_c;
    const eg_pair_kind kind = eg__pair_kind(p->step[s].pairing);
    e->kernel = kinds[kind][0];
    e->copies = kind == EG_PAIR_DIRECT && eg__pair_copies(p->step[s].pairing)
                    ? "strips of an operand"
                    : kinds[kind][1];
    if (alone_a > 1 || alone_b > 1)
        e->copies = alone_a > 1 && alone_b > 1 ? "both operands summed first"
                    : alone_a > 1              ? "the first operand summed first"
                                               : "the second operand summed first";
    if (kind == EG_PAIR_NOTHING || kind == EG_PAIR_ZERO) e->multiplications = e->additions = 0;

    put_term(t, n, a->n, a->label);
    if (b) {
        explain_put(t, "%s", comma(n));
        put_term(t, n, b->n, b->label);
    }
    explain_put(t, "%s", arrow(n));
    put_term(t, n, c->n, c->label);
    e->spec = spec_end(t, n);
    static const char *const role[2][4] = { { "", "kept", "", "summed" },
                                            { "batch", "free", "summed", "summed first" } };
    for (int r = 0; r < 4; r++)
        if (roles[r].n) explain_put(t, "%s%s%s", t->n ? ", " : "", role[b != NULL][r], roles[r].s);
    if (!t->n) explain_put(t, "scalars");
    e->roles = text_end(t);
}

/* -- the whole einsum -------------------------------------------------------------------------- */
static void put_number(text *t, double x) { explain_put(t, x < 1e15 ? "%.0f" : "%.6g", x); }
static void put_dims(text *t, int rank, const int64_t *dim)
{
    char dims[22 * EG_RANK_MAX + 3];
    explain_put(t, "%s", eg__sizes_text(rank, dim, dims, sizeof dims));
}
static void put_operand_number(text *t, int number, int count)
{
    explain_put(t, number <= count ? "%d" : "#%d", number <= count ? number : number - count);
}

/* An einsum that is planned but not computed, and its description. */
typedef struct explanation {
    const eg_bound *b;
    const eg_spec_labels *r;
    eg_labelled in[EG_EINSUM_MAX], out;
    eg_dtype of[EG_EINSUM_MAX];                    /* dtypes of the operands that are read */
    double casts;                                  /* bytes of operands that are cast first */
    int64_t dim[EG_RANK_MAX], stride[EG_RANK_MAX]; /* sizes and strides of the result */
    eg_contraction task;
    eg_draft *draft; /* in the memory of eg__planning */
    const eg_program *program;
    const eg_tree *tree; /* of float operands; NULL: one operand, or integers */
    bool copied;         /* groups of the result require a copy */
    eg_explained *e;
    eg_explained_step *step;
    eg_letter_role *letter;
    const char **gradient;
} explanation;

/* True if operand k alone has the label of its axis r, over which the einsum sums: its cotangent is
 * then expanded along that axis, unless the operand is read along a diagonal. */
static bool summed_alone(const explanation *x, int k, int r)
{
    const eg_labelled *in = &x->in[k];
    bool alone = eg__label_at(x->out.label, x->out.rank, in->label[r]) < 0;
    for (int other = 0; other < x->task.count && alone; other++)
        alone = other == k || eg__label_at(x->in[other].label, x->in[other].rank, in->label[r]) < 0;
    for (int q = 1; q < in->rank && alone; q++)
        alone = eg__label_at(in->label, q, in->label[q]) < 0;
    return alone;
}
/* Returns the bytes of the cotangents of the operands, of the cotangents in between along tree u,
 * and of values that t did not keep and that are computed again. */
static double cotangent_bytes(const explanation *x, const eg_tree *t, const eg_tree *u)
{
    double sum = 0;
    for (int k = 0; k < x->task.count; k++) {
        double bytes = eg__is_half(x->of[k]) ? 0 : eg__width[x->task.dtype];
        for (int r = 0; r < x->in[k].rank; r++)
            if (!summed_alone(x, k, r)) bytes *= (double)x->in[k].dim[r];
        sum += bytes;
    }
    for (int s = 0; s < u->steps - 1; s++) {
        bool kept = false;
        for (int v = 0; v < t->steps - 1; v++)
            kept |= t->kept >> v & 1 && t->step[v].operands == u->step[s].operands;
        sum += (double)u->step[s].bytes * (kept ? 1 : 2);
    }
    return sum;
}
/* Describes the joint plan of value and gradients: which values are kept, the multiply-adds and the
 * memory. False after an error. */
static bool explain_joint(eg_ctx *cx, explanation *x)
{
    const int n = x->task.count;
    const eg_draft *d = x->draft;
    double result = eg__width[x->task.dtype];
    for (int k = 0; k < d->out.n; k++) result *= (double)d->out.size[k];
    for (int s = 0; s < d->steps; s++) x->e->forward += eg__draft_work(d, s, NULL);
    x->e->memory = result + x->casts + (double)d->intermediates;
    uint64_t wanted = 0; /* bit set; operands of f16 and bf16 have no gradient */
    for (int k = 0; k < n; k++) wanted |= (uint64_t)!eg__is_half(x->of[k]) << k;
    if (n < 2 || !eg__is_float(x->task.dtype) || !wanted) return true;
    void *memory = eg__alloc(cx, eg__tree_bytes(d));
    int pair[EG_EINSUM_MAX][2];
    if (!memory) return false;
    const eg_tree *t = x->tree = eg__tree(memory, d);
    x->e->backward = eg__tree_cotangents(cx, t, d, wanted, pair);
    if (x->e->backward < 0) return false;
    for (int s = 0; s < t->steps - 1; s++)
        if (t->kept >> s & 1) x->e->kept += (double)t->step[s].bytes;
    const bool all = t->steps == 1 || t->kept == ~(uint64_t)0 >> (64 - t->steps + 1);
    x->e->memory = result + x->e->kept + (all ? 0 : (double)d->intermediates);
    /* the memory of the gradients: g, and what cotangent_bytes counts */
    eg_contraction task = x->task;
    task.order = (eg_order_args){ .limit = task.order.limit,
                                  .steps = t->steps,
                                  .path = (const int(*)[2])pair,
                                  .numbered = true };
    const eg_mark m = eg_push(cx);
    eg_draft *back = eg__alloc(cx, sizeof *back);
    const bool good = back && eg__draft(cx, &task, back);
    memory = good ? eg__alloc(cx, eg__tree_bytes(back)) : NULL;
    const double more = memory ? cotangent_bytes(x, t, eg__tree(memory, back)) : 0;
    eg_pop(cx, m);
    x->e->gradient_memory = 2 * result + x->e->kept + more;
    return memory != NULL;
}
/* True if groups of the result can only be merged with a copy. */
static bool merge_copies(eg_ctx *cx, const explanation *x, const eg_tensor *only)
{
    const eg_term_labels *out = &x->r->out;
    int64_t stride[EG_RANK_MAX];
    if (!out->changed) return false;
    if (out->items) memcpy(stride, x->stride, (size_t)out->items * sizeof *stride);
    /* an einsum of one operand whose axes are permuted is a view */
    bool view = x->task.count == 1 && out->items == x->in[0].rank && only->dtype == x->task.dtype;
    for (int r = 0; view && r < out->items; r++) {
        const int at = eg__label_at(x->in[0].label, x->in[0].rank, out->label[r]);
        if (eg__label_at(out->label, r, out->label[r]) >= 0 || at < 0) view = false;
        if (view) stride[r] = x->in[0].stride[at];
    }
    if (x->task.count == 1 && !view) memcpy(stride, x->stride, sizeof stride);
    eg_tensor *y = eg__shape_only(cx, &(eg_shape){ x->task.dtype, out->items, x->dim, stride });
    return eg_ok(y) && !eg__view_exists(y, x->r->rank, x->r->dim);
}
/* Reads the string and plans as einsum does, and allocates the result. False after an error. */
static bool explain_planned(eg_ctx *cx, explanation *x, const eg_einsum_args *o)
{
    eg_tensor *operand[EG_EINSUM_MAX];
    const uint16_t *label[EG_EINSUM_MAX] = { NULL };
    x->b = eg__bind("einsum", o->spec, EG_NOTATION_IMPLICIT | (o->broadcast ? EG_NOTATION_ONES : 0),
                    o->count, o->operands, 0, NULL);
    x->r = x->b ? eg__labels_of_spec(cx, "einsum", o->spec, o->broadcast, o->count, o->operands,
                                     operand)
                : NULL;
    if (!x->r || !eg__check_taken(cx, "einsum", EG_TAKES_HALVES, o->count, operand)) return false;
    for (int k = 0; k < o->count; k++) {
        label[k] = x->r->operand[k].label;
        x->in[k] = (eg_labelled){ operand[k]->rank, operand[k]->dim, operand[k]->stride, label[k] };
        x->of[k] = (eg_dtype)operand[k]->dtype;
        /* three and more operands of integers are cast first */
        const bool cast = o->count > 2 && (x->of[k] == EG_I32 || x->of[k] == EG_BOOL);
        if (cast) x->of[k] = EG_I64;
        if (cast)
            x->casts += (double)eg__count(operand[k]->rank, operand[k]->dim) * eg__width[EG_I64];
    }
    const eg_term_labels *out = &x->r->out;
    if (!eg__einsum_layout(o->count, operand, label, out->items, out->label, x->dim, x->stride)) {
        eg_fail_as(cx, EG_ERROR_SHAPE, "einsum: the result has more than 2^63 elements");
        return false;
    }
    x->out = (eg_labelled){ out->items, x->dim, x->stride, out->label };
    x->task = (eg_contraction){ eg__einsum_type(o->count, operand),
                                x->of,
                                o->count,
                                x->in,
                                &x->out,
                                eg__order_of(o->path, o->steps, o->limit, o->keep_limit) };
    eg_planning *planning = eg__planning(cx);
    if (!planning) return false;
    x->draft = &planning->draft;
    if (!eg__draft(cx, &x->task, x->draft)) return false;
    void *memory = eg__alloc(cx, eg__program_bytes(x->draft));
    x->e = eg__alloc(cx, sizeof *x->e);
    x->step = eg__alloc(cx, (size_t)x->draft->steps * sizeof *x->step);
    x->letter = eg__alloc(cx, (size_t)x->b->axes * sizeof *x->letter);
    x->gradient = eg__alloc(cx, (size_t)o->count * sizeof *x->gradient);
    if (!memory || !x->e || !x->step || !x->letter || !x->gradient) return false;
    x->program = eg__program(memory, x->draft);
    *x->e = (eg_explained){ .steps = x->draft->steps,
                            .step = x->step,
                            .letters = x->b->axes,
                            .letter = x->letter,
                            .largest = (double)x->draft->largest,
                            .gradient = x->gradient };
    x->copied = merge_copies(cx, x, operand[0]);
    return explain_joint(cx, x) && !eg__failed(cx);
}
static const char *with_result(text *t, const char *copies)
{
    explain_put(t, "%s%sthe result, whose groups have no view",
                strcmp(copies, "none") ? copies : "", strcmp(copies, "none") ? "; " : "");
    return text_end(t);
}
/* Returns the role of the index with number a in the operands and the result. */
static eg_letter_role explain_letter(const explanation *x, int a)
{
    const eg_axis_name *name = &x->b->axis[a];
    const int count = x->task.count;
    eg_letter_role l = { .name = name->text, .length = name->length, .size = name->size };
    for (int k = 0; k < count; k++)
        if (eg__label_at(x->in[k].label, x->in[k].rank, (uint16_t)a) >= 0)
            l.operands |= (uint64_t)1 << k;
    l.role = eg__label_at(x->out.label, x->out.rank, (uint16_t)a) < 0 ? EG_SUMMED
             : count > 1 && __builtin_popcountll(l.operands) == count ? EG_BATCH
                                                                      : EG_FREE;
    return l;
}

/* -- in words --------------------------------------------------------------------------------- */
/* Writes "einsum SPEC  f32 (2, 3), (3, 4) -> (2, 4)", then a line for each index. */
static void put_head(text *t, const explanation *x, eg_tensor *const *given)
{
    const int count = x->task.count;
    explain_put(t, "einsum %s  %s ", x->b->spec, eg_type_name(x->task.dtype));
    for (int k = 0; k < count; k++) {
        explain_put(t, "%s", k ? ", " : "");
        if (eg__is_half(x->of[k])) explain_put(t, "%s ", eg_type_name(x->of[k]));
        put_dims(t, given[k]->rank, given[k]->dim);
    }
    explain_put(t, " -> ");
    put_dims(t, x->r->rank, x->r->dim);
    for (int a = 0; a < x->b->axes; a++) {
        const eg_letter_role *l = &x->letter[a];
        explain_put(t, "\n  %.*s = %lld: %s", l->length, l->name, (long long)l->size,
                    l->role == EG_BATCH  ? "batch, of every operand"
                    : l->role == EG_FREE ? "free, of operand"
                                         : "summed, of operand");
        const char *before = l->operands & (l->operands - 1) ? "s " : " "; /* several, or one */
        for (int k = 0; l->role != EG_BATCH && k < count; k++)
            if (l->operands >> k & 1) explain_put(t, "%s%d", before, k + 1), before = ", ";
    }
}
static void put_counts(text *t, double multiplications, double additions, double bytes)
{
    put_number(t, multiplications);
    explain_put(t, multiplications > 0 && multiplications < 2 ? " multiplication, "
                                                              : " multiplications, ");
    if (additions > 0) {
        put_number(t, additions);
        explain_put(t, " terms summed without, ");
    }
    put_number(t, bytes);
    explain_put(t, " bytes");
}
/* Writes a step: its product, its kernel, and its cost. */
static void put_step(text *t, const explanation *x, int s)
{
    const eg_explained_step *q = &x->step[s];
    const int steps = x->draft->steps, count = x->task.count;
    if (steps > 1) {
        explain_put(t, "\nstep %d: ", s + 1);
        put_operand_number(t, q->a, count);
        explain_put(t, " and ");
        put_operand_number(t, q->b, count);
        if (s < steps - 1) explain_put(t, " make #%d", s + 1);
        explain_put(t, ": %s", q->spec);
    }
    explain_put(t, "\n  %s", q->roles);
    if (q->b && q->k > 1)
        explain_put(t, "; GEMM m=%lld n=%lld k=%lld × %lld", (long long)q->m, (long long)q->n,
                    (long long)q->k, (long long)q->batch);
    explain_put(t, "\n  by %s; copies: %s\n  ", q->kernel, q->copies);
    put_counts(t, q->multiplications, q->additions, q->bytes);
    if (q->kept) explain_put(t, "; kept for the gradient");
}
/* Writes the sums over all steps, the joint plan, and the strings of the gradients. */
static void put_total(text *t, const explanation *x)
{
    const eg_explained *e = x->e;
    explain_put(t, "\ntotal: ");
    put_counts(t, e->multiplications, e->additions, e->bytes);
    if (e->steps > 1) {
        explain_put(
            t, e->steps == 2 ? "; its intermediate has " : "; the largest of %d intermediates has ",
            e->steps - 1);
        put_number(t, e->largest);
        explain_put(t, " bytes");
    } else
        explain_put(t, "; no intermediate");
    if (e->gradients) {
        explain_put(t, "\nmultiply-adds: ");
        put_number(t, e->forward);
        explain_put(t, ", of all gradients ");
        put_number(t, e->backward);
        explain_put(t, "; bytes beside the operands: ");
        put_number(t, e->memory);
        explain_put(t, ", ");
        put_number(t, e->kept);
        explain_put(t, " of them kept for the gradient, with all gradients ");
        put_number(t, e->gradient_memory);
    }
    if (e->gradients) explain_put(t, "\ngradient, g the cotangent of the result:");
    for (int k = 0; k < e->gradients; k++) explain_put(t, "\n  %s", e->gradient[k]);
    explain_put(t, "\n");
}

/* Plans the einsum, fills in the members of the struct, then writes the text. NULL after an
 * error. */
static eg_explained *explain(eg_ctx *cx, const eg_einsum_args *o)
{
    explanation x = { .b = NULL };
    if (!explain_planned(cx, &x, o)) return NULL;
    names n = { .b = x.b };
    for (int a = 0; a < x.b->axes - x.b->dots; a++) n.apart |= x.b->axis[a].length > 1;
    for (int k = 0; k <= x.b->terms; k++) {
        const eg_bound_term *term = k < x.b->terms ? &x.b->term[k] : &x.b->out;
        for (int r = 0; r < term->rank; r++) n.apart |= explain_grouped(term, r, o->broadcast);
    }
    n.prefixed = n.apart && x.b->prefixed;
    n.broadcast = o->broadcast;
    text t = { .cx = cx };
    eg_explained *e = x.e;
    for (int a = 0; a < x.b->axes; a++) x.letter[a] = explain_letter(&x, a);
    for (int s = 0; s < e->steps; s++) {
        step_of(&x.step[s], x.draft, x.program, x.tree, s, &t, &n);
        if (s == e->steps - 1 && x.copied) x.step[s].copies = with_result(&t, x.step[s].copies);
        e->multiplications += x.step[s].multiplications;
        e->additions += x.step[s].additions;
        e->bytes += x.step[s].bytes;
    }
    for (int k = 0; k < o->count && eg__is_float(x.task.dtype); k++)
        if (!eg__is_half(x.of[k]))
            x.gradient[e->gradients++] = explain_gradient(&t, &n, o->count, x.in, &x.out, k);
    put_head(&t, &x, o->operands);
    for (int s = 0; s < e->steps; s++) put_step(&t, &x, s);
    put_total(&t, &x);
    e->text = text_end(&t);
    return eg__failed(cx) ? NULL : e;
}

const eg_explained *eg_explain_with(const eg_einsum_args *given)
{
    eg_einsum_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg_ctx *cx = eg__context_of("einsum", o.count, o.operands);
    if (!cx) return NULL;
    if (!eg__einsum_usable(cx, &o) || !eg__einsum_dtypes(cx, o.count, o.operands)) return NULL;
    const bool old = eg_nograd(cx, true);
    const eg_explained *e = explain(cx, &o);
    if (!e) eg_name_memory_error(cx, "explain");
    eg_nograd(cx, old);
    return e;
}
const eg_explained *eg_explain_shapes_with(eg_ctx *cx, const eg_explain_args *given)
{
    eg_tensor *x[EG_EINSUM_MAX];
    eg_explain_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    if (!cx) return NULL;
    if (o.count < 1 || o.count > EG_EINSUM_MAX)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "einsum: %d operands; 1 to %d can be explained",
                          o.count, EG_EINSUM_MAX),
               NULL;
    if (!o.shapes) return eg_fail_as(cx, EG_ERROR_MISUSE, "einsum: the shapes are NULL"), NULL;
    for (int k = 0; k < o.count; k++) x[k] = eg__shape_only(cx, &o.shapes[k]);
    return eg_explain_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                              .spec = o.spec,
                                              .count = o.count,
                                              .operands = x,
                                              .broadcast = o.broadcast,
                                              .path = o.path,
                                              .steps = o.steps,
                                              .limit = o.limit,
                                              .keep_limit = o.keep_limit });
}
