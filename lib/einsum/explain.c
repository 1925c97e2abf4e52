/* explain.c: what einsum would do, in fields and in words. The numbers are the plan's own; nothing
 * is computed. */
#include "einsum/einsum.h"
#include <string.h>

/* -- text that grows in the open scope; after a failure it stays as it is --------------------- */
typedef struct text {
    eg_ctx *cx;
    char *s;
    size_t n, room;
} text;
static void explain_put(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends, as printf does; the text moves to twice the room when it is full. */
static void explain_put(text *t, const char *format, ...)
{
    for (;;) {
        va_list list;
        va_start(list, format);
        const int n = t->s ? vsnprintf(t->s + t->n, t->room - t->n, format, list) : 0;
        va_end(list);
        if (t->s && (size_t)n < t->room - t->n) {
            t->n += (size_t)n;
            return;
        }
        char *more = eg__alloc(t->cx, 2 * t->room + 512 + (size_t)n);
        if (!more) return;
        if (t->n) memcpy(more, t->s, t->n);
        more[t->n] = 0;
        t->s = more;
        t->room = 2 * t->room + 512 + (size_t)n;
    }
}
static char *taken(text *t)
{
    if (!t->s) explain_put(t, "%s", "");
    char *s = t->s;
    *t = (text){ .cx = t->cx };
    return s;
}

/* -- names of axes: letters stand together, names apart; a run of ellipsis axes is "..." ------ */
typedef struct names {
    const eg_bound *b;
    bool apart, said; /* said: "names:" must stand in front of them */
} names;
static void put_name(text *t, const names *n, uint16_t axis)
{
    explain_put(t, "%.*s", n->b->axis[axis].length, n->b->axis[axis].text);
}
static bool of_dots(const names *n, uint16_t axis) { return axis >= n->b->axes - n->b->dots; }
static void put_term(text *t, const names *n, int count, const uint16_t *label)
{
    for (int k = 0; k < count; k++) {
        if (k && of_dots(n, label[k]) && of_dots(n, label[k - 1])) continue;
        if (k && n->apart) explain_put(t, " ");
        put_name(t, n, label[k]);
    }
}
static const char *comma(const names *n) { return n->apart ? ", " : ","; }
static const char *arrow(const names *n) { return n->apart ? " -> " : "->"; }

/* The einsum that is the cotangent of operand i, as einsum_rule (einsum.c) makes it. */
static const char *explain_gradient(text *t, const names *n, int count, const eg_labelled *x,
                                    const eg_labelled *out, int i)
{
    /* the labels of operand i that others know; those it alone has */
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
    explain_put(t, "d%d: %s", i + 1, n->said ? "names: " : "");
    put_term(t, n, out->rank, out->label);
    for (int k = 0; k < count; k++)
        if (k != i) {
            explain_put(t, "%s", comma(n));
            put_term(t, n, x[k].rank, x[k].label);
        }
    explain_put(t, "%s", arrow(n));
    put_term(t, n, nhave, have);
    if (ngone) {
        explain_put(t, ", repeated along ");
        put_term(t, n, ngone, gone);
    }
    if (ngone && repeats) {
        explain_put(t, ", on the diagonal of ");
        put_term(t, n, x[i].rank, x[i].label);
    }
    return taken(t);
}

/* -- a step ----------------------------------------------------------------------------------- */
static const char *const kinds[][2] = {
    /* who does it, what is copied on the way */
    [EG_PAIR_NOTHING] = { "nothing: the result is empty", "none" },
    [EG_PAIR_ZERO] = { "zeros: a sum over nothing", "none" },
    [EG_PAIR_PLAIN] = { "plain loop in i64", "none" },
    [EG_PAIR_MAP] = { "elementwise loop", "none" },
    [EG_PAIR_SUM] = { "dots and row sums", "none" },
    [EG_PAIR_DIRECT] = { "product in registers", "none" },
    [EG_PAIR_PACKED] = { "packed product", "blocks packed into panels" },
    [EG_PAIR_INNER_BATCH] = { "products of batches drawn apart", "blocks turned, batch by batch" },
};
/* Describes step s: its labels by role, the matrix product it is, its counts, and its kernel. */
static void step_of(eg_explained_step *e, const eg_draft *d, const eg_program *p, int s, text *t,
                    const names *n)
{
    const eg_side *a = &d->side[d->pair[s][0]],
                  *b = d->pair[s][1] < 0 ? NULL : &d->side[d->pair[s][1]],
                  *c = eg__draft_result(d, s);
    double of_a = 1, of_b = b ? 1 : 0, of_c = 1, product = 1, alone_a = 1, alone_b = 1;
    *e = (eg_explained_step){
        .a = d->pair[s][0] + 1, .b = d->pair[s][1] + 1, .batch = 1, .m = 1, .n = 1, .k = 1
    };
    /* batch, free, summed, summed alone */
    text roles[4] = { { .cx = t->cx }, { .cx = t->cx }, { .cx = t->cx }, { .cx = t->cx } };
    for (int side = 0; side < 2; side++) {
        const eg_side *x = side ? b : a, *y = side ? a : b;
        for (int k = 0; x && k < x->n; k++) {
            const bool other = y && eg__label_at(y->label, y->n, x->label[k]) >= 0,
                       out = eg__label_at(c->label, c->n, x->label[k]) >= 0;
            *(side ? &of_b : &of_a) *= x->stride[k] || x->size[k] < 2 ? (double)x->size[k] : 1;
            if (side && other) continue;
            const int role = b && other && out ? 0 : out ? 1 : other ? 2 : 3;
            if (b && role == 3)
                *(side ? &alone_b : &alone_a) *= (double)x->size[k];
            else
                product *= (double)x->size[k];
            int64_t *const count[] = { &e->batch, side ? &e->n : &e->m, &e->k };
            if (role < 3) *count[role] *= x->size[k];
            explain_put(&roles[role], " ");
            put_name(&roles[role], n, x->label[k]);
        }
    }
    for (int k = 0; k < c->n; k++) of_c *= (double)c->size[k];
    const double width = eg__width[d->task->dtype];
    if (b) e->multiplications = product;
    e->additions = b              ? (alone_a > 1 ? of_a : 0) + (alone_b > 1 ? of_b : 0)
                   : of_a != of_c ? of_a
                                  : 0;
    e->bytes = width * (of_a + of_b + of_c);
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
    e->spec = taken(t);
    static const char *const role[2][4] = { { "", "kept", "", "summed" },
                                            { "batch", "free", "summed", "summed first" } };
    for (int r = 0; r < 4; r++)
        if (roles[r].n) explain_put(t, "%s%s%s", t->n ? ", " : "", role[b != NULL][r], roles[r].s);
    if (!t->n) explain_put(t, "scalars");
    e->roles = taken(t);
}

/* -- the whole -------------------------------------------------------------------------------- */
static void put_number(text *t, double x) { explain_put(t, x < 1e15 ? "%.0f" : "%.6g", x); }
static void put_dims(text *t, int rank, const int64_t *dim)
{
    char dims[22 * EG_RANK_MAX + 3];
    explain_put(t, "%s", eg__sizes_text(rank, dim, dims, sizeof dims));
}
static void put_who(text *t, int number, int count)
{
    explain_put(t, number <= count ? "%d" : "#%d", number <= count ? number : number - count);
}

/* An einsum that is planned but not computed, and what is said of it. */
typedef struct explanation {
    const eg_bound *b;
    const eg_spec_labels *r;
    eg_labelled in[EG_EINSUM_MAX], out;
    int64_t dim[EG_RANK_MAX], stride[EG_RANK_MAX]; /* of the result */
    eg_contraction task;
    eg_draft draft;
    const eg_program *program;
    eg_explained *e;
    eg_explained_step *step;
    eg_letter_role *letter;
    const char **gradient;
} explanation;

/* Reads and plans as einsum does, and makes room for the answer. False after an error. */
static bool explain_planned(eg_ctx *cx, explanation *x, const eg_einsum_args *o)
{
    eg_tensor *operand[EG_EINSUM_MAX];
    const uint16_t *label[EG_EINSUM_MAX];
    x->b = eg__bind("einsum", o->spec, EG_NOTATION_IMPLICIT | (o->broadcast ? EG_NOTATION_ONES : 0),
                    o->count, o->operands, 0, NULL);
    x->r =
        x->b ? eg__labels_of_spec(cx, o->spec, o->broadcast, o->count, o->operands, operand) : NULL;
    if (!x->r || !eg__check_all(cx, "einsum", o->count, operand)) return false;
    for (int k = 0; k < o->count; k++) {
        label[k] = x->r->operand[k].label;
        x->in[k] = (eg_labelled){ operand[k]->rank, operand[k]->dim, operand[k]->stride, label[k] };
    }
    const eg_term_labels *out = &x->r->out;
    if (!eg__einsum_layout(o->count, operand, label, out->items, out->label, x->dim, x->stride)) {
        eg_fail_as(cx, EG_ERROR_SHAPE, "einsum: the result has more than 2^63 elements");
        return false;
    }
    x->out = (eg_labelled){ out->items, x->dim, x->stride, out->label };
    x->task = (eg_contraction){ eg__einsum_type(operand[0]), o->count, x->in, &x->out,
                                eg__order_of(o->path, o->steps, o->limit) };
    if (!eg__draft(cx, &x->task, &x->draft)) return false;
    void *room = eg__alloc(cx, eg__program_bytes(&x->draft));
    x->e = eg__alloc(cx, sizeof *x->e);
    x->step = eg__alloc(cx, (size_t)x->draft.steps * sizeof *x->step);
    x->letter = eg__alloc(cx, (size_t)x->b->axes * sizeof *x->letter);
    x->gradient = eg__alloc(cx, (size_t)o->count * sizeof *x->gradient);
    if (!room || !x->e || !x->step || !x->letter || !x->gradient) return false;
    x->program = eg__program(room, &x->draft);
    *x->e = (eg_explained){ .steps = x->draft.steps,
                            .step = x->step,
                            .letters = x->b->axes,
                            .letter = x->letter,
                            .largest = (double)x->draft.largest,
                            .gradient = x->gradient };
    return true;
}
/* What index number a is to the operands and the result. */
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
/* "einsum SPEC  f32 (2, 3), (3, 4) -> (2, 4)", then a line for each index */
static void put_head(text *t, const explanation *x, eg_tensor *const *given)
{
    const int count = x->task.count;
    explain_put(t, "einsum %s  %s ", x->b->spec, eg_type_name(x->task.dtype));
    for (int k = 0; k < count; k++) {
        explain_put(t, "%s", k ? ", " : "");
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
        for (int k = 0; l->role != EG_BATCH && k < count; k++)
            if (l->operands >> k & 1) explain_put(t, " %d", k + 1);
    }
}
static void put_counts(text *t, double multiplications, double additions, double bytes)
{
    put_number(t, multiplications);
    explain_put(t, " multiplications, ");
    if (additions > 0) {
        put_number(t, additions);
        explain_put(t, " terms summed without, ");
    }
    put_number(t, bytes);
    explain_put(t, " bytes");
}
/* What a step is, who does it, and what it costs. */
static void put_step(text *t, const explanation *x, int s)
{
    const eg_explained_step *q = &x->step[s];
    const int steps = x->draft.steps, count = x->task.count;
    if (steps > 1) {
        explain_put(t, "\nstep %d: ", s + 1);
        put_who(t, q->a, count);
        explain_put(t, " and ");
        put_who(t, q->b, count);
        if (s < steps - 1) explain_put(t, " make #%d", s + 1);
        explain_put(t, ": %s", q->spec);
    }
    explain_put(t, "\n  %s", q->roles);
    if (q->b && q->k > 1)
        explain_put(t, "; GEMM m=%lld n=%lld k=%lld × %lld", (long long)q->m, (long long)q->n,
                    (long long)q->k, (long long)q->batch);
    explain_put(t, "\n  by %s; copies: %s\n  ", q->kernel, q->copies);
    put_counts(t, q->multiplications, q->additions, q->bytes);
}
static void put_total(text *t, const explanation *x)
{
    const eg_explained *e = x->e;
    explain_put(t, "\ntotal: ");
    put_counts(t, e->multiplications, e->additions, e->bytes);
    if (e->steps > 1) {
        explain_put(t, "; the largest of %d intermediates has ", e->steps - 1);
        put_number(t, e->largest);
        explain_put(t, " bytes");
    } else
        explain_put(t, "; no intermediate");
    if (e->gradients) explain_put(t, "\ngradient, g the cotangent of the result:");
    for (int k = 0; k < e->gradients; k++) explain_put(t, "\n  %s", e->gradient[k]);
    explain_put(t, "\n");
}

/* Plans the einsum, then fills in the fields, then the words. */
static eg_explained *explain(eg_ctx *cx, const eg_einsum_args *o)
{
    explanation x;
    if (!explain_planned(cx, &x, o)) return NULL;
    names n = { .b = x.b };
    for (int a = 0; a < x.b->axes - x.b->dots; a++) n.apart |= x.b->axis[a].length > 1;
    n.said = n.apart && x.b->said;
    text t = { .cx = cx };
    eg_explained *e = x.e;
    for (int a = 0; a < x.b->axes; a++) x.letter[a] = explain_letter(&x, a);
    for (int s = 0; s < e->steps; s++) {
        step_of(&x.step[s], &x.draft, x.program, s, &t, &n);
        e->multiplications += x.step[s].multiplications;
        e->additions += x.step[s].additions;
        e->bytes += x.step[s].bytes;
    }
    if (eg__is_float(x.task.dtype)) e->gradients = o->count;
    for (int k = 0; k < e->gradients; k++)
        x.gradient[k] = explain_gradient(&t, &n, o->count, x.in, &x.out, k);
    put_head(&t, &x, o->operands);
    for (int s = 0; s < e->steps; s++) put_step(&t, &x, s);
    put_total(&t, &x);
    e->text = taken(&t);
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
    eg_nograd(cx, old);
    return e;
}
const eg_explained *eg_explain_shapes(eg_ctx *cx, const char *spec, bool broadcast, int count,
                                      const eg_shape *shape)
{
    eg_tensor *x[EG_EINSUM_MAX];
    if (!cx) return NULL;
    if (count < 1 || count > EG_EINSUM_MAX)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "einsum: %d operands; 1 to %d can be explained",
                          count, EG_EINSUM_MAX),
               NULL;
    if (!shape) return eg_fail_as(cx, EG_ERROR_MISUSE, "einsum: the shapes are NULL"), NULL;
    for (int k = 0; k < count; k++) x[k] = eg__shape_only(cx, &shape[k]);
    return eg_explain_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                              .spec = spec,
                                              .count = count,
                                              .operands = x,
                                              .broadcast = broadcast });
}
