/* program.c: from labels, sizes and strides to an order of pairs, the addresses of intermediates,
 * and a pairing for each step; and running them. */
#include "contraction/contraction.h"
#include <string.h>

static void side_of(eg_side *s, const eg_labelled *x)
{
    s->n = 0;
    for (int k = 0; k < x->rank; k++) {
        int at = eg__label_at(s->label, s->n, x->label[k]);
        if (at < 0) {
            at = s->n++;
            s->label[at] = x->label[k];
            s->size[at] = x->dim[k];
            s->stride[at] = 0;
        }
        s->stride[at] += x->stride[k];
    }
}

/* -- the order -------------------------------------------------------------------------------- */
static bool by_path(eg_ctx *cx, const eg_contraction *t, int (*pair)[2])
{
    const int n = t->count, steps = t->order.steps;
    int left[EG_EINSUM_MAX];
    if (steps != n - 1) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "einsum: .path has %d step%s; %d operands take %d", steps,
                   steps == 1 ? "" : "s", n, n - 1);
        return false;
    }
    if (steps && !t->order.path) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "einsum: .path is NULL, with %d step%s", steps,
                   steps == 1 ? "" : "s");
        return false;
    }
    for (int s = 0; s < steps && t->order.numbered; s++)
        memcpy(pair[s], t->order.path[s], sizeof *pair);
    if (t->order.numbered) return true;
    for (int k = 0; k < n; k++) left[k] = k;
    for (int s = 0; s < steps; s++) {
        const int living = n - s, *p = t->order.path[s];
        for (int q = 0; q < 2; q++)
            if (p[q] < 0 || p[q] >= living) {
                eg_fail_as(cx, EG_ERROR_MISUSE,
                           "einsum: step %d of .path is (%d, %d), but %d are left then: 0 to %d",
                           s + 1, p[0], p[1], living, living - 1);
                return false;
            }
        if (p[0] == p[1]) {
            eg_fail_as(cx, EG_ERROR_MISUSE,
                       "einsum: step %d of .path is (%d, %d): an operand with itself", s + 1, p[0],
                       p[1]);
            return false;
        }
        const int low = p[0] < p[1] ? p[0] : p[1], high = p[0] < p[1] ? p[1] : p[0];
        pair[s][0] = left[low];
        pair[s][1] = left[high];
        if (pair[s][0] > pair[s][1]) {
            int q = pair[s][0];
            pair[s][0] = pair[s][1];
            pair[s][1] = q;
        }
        int m = 0;
        for (int k = 0; k < living; k++)
            if (k != low && k != high) left[m++] = left[k];
        left[m] = n + s;
    }
    return true;
}

static void set_of(eg_labelset *set, const eg_side *s, double *size)
{
    *set = (eg_labelset){ { 0 } };
    for (int k = 0; k < s->n; k++) {
        set->bits[s->label[k] / 64] |= (uint64_t)1 << s->label[k] % 64;
        size[s->label[k]] = (double)s->size[k];
    }
}
/* Returns the largest number of bytes that an intermediate may have. */
static int64_t most_bytes(const eg_order_args *o)
{
    return !o->limit ? INT64_MAX : o->limit == EG_OFF ? 0 : o->limit;
}
/* Sets the sets of labels of a contraction, and the size of each label. */
static void draft_sets(const eg_contraction *t, const eg_side *s, const eg_side *out,
                       eg_labelset *set, eg_labelset *all, double *size)
{
    for (int k = 0; k < t->count; k++) set_of(&set[k], &s[k], size);
    set_of(all, out, size);
}
/* Returns the largest number of elements of an intermediate, as eg__order takes it: 0 for any; half
 * an element allows no intermediate. */
static double most_elements(const eg_contraction *t)
{
    const int64_t most = most_bytes(&t->order);
    return most == INT64_MAX ? 0 : most ? (double)most / eg__width[t->dtype] : 0.5;
}
/* Finds the order of pairs by eg__order. False after an error: no order is within the limit; the
 * message has the smallest possible size of the largest intermediate. */
static bool by_search(eg_ctx *cx, const eg_contraction *t, const eg_side *s, const eg_side *out,
                      int (*pair)[2])
{
    eg_labelset set[EG_EINSUM_MAX], all;
    double size[EG_LABEL_MAX] = { 0 };
    const double width = eg__width[t->dtype];
    const int64_t most = most_bytes(&t->order);
    const double limit = most_elements(t);
    void *memory = eg__scratch(cx, EG_SCRATCH_SEARCH, eg__order_bytes(t->count));
    if (!memory) return false;
    draft_sets(t, s, out, set, &all, size);
    if (eg__order(t->count, set, &all, size, limit, pair, NULL, memory)) return true;
    eg_cost cost, best = { 0, 0 };
    for (double below = 0; eg__order(t->count, set, &all, size, below, pair, &cost, memory);
         below = cost.largest - 0.5)
        best = cost;
    eg_fail_as(
        cx, EG_ERROR_MISUSE,
        "einsum: .limit is %lld bytes, and every order of the %d operands that was found has "
        "an intermediate of at least %.0f "
        "bytes",
        (long long)most, t->count, best.largest * width);
    return false;
}

/* -- intermediates have the labels that a later operand or the result has, row-major: shared ones
 * first, then those of a alone, then those of b alone */
static bool needed(const eg_draft *d, const bool *gone, int numbers, uint16_t label)
{
    for (int k = 0; k < numbers; k++)
        if (!gone[k] && eg__label_at(d->side[k].label, d->side[k].n, label) >= 0) return true;
    return eg__label_at(d->out.label, d->out.n, label) >= 0;
}
/* Sets the labels and the address of the result of a step. False after an error: too many axes or
 * bytes. */
static bool intermediate(eg_ctx *cx, eg_draft *d, const bool *gone, int step)
{
    const int n = d->task->count, numbers = n + step;
    const eg_side *a = &d->side[d->pair[step][0]], *b = &d->side[d->pair[step][1]];
    eg_side *c = &d->side[numbers];
    c->n = 0;
    for (int pass = 0; pass < 3; pass++) {
        const eg_side *from = pass == 2 ? b : a, *other = pass == 2 ? a : b;
        for (int k = 0; k < from->n; k++) {
            const bool shared = eg__label_at(other->label, other->n, from->label[k]) >= 0;
            if (shared != (pass == 0) || !needed(d, gone, numbers, from->label[k])) continue;
            if (c->n == EG_RANK_MAX) {
                eg_fail_as(cx, EG_ERROR_SHAPE,
                           "einsum: step %d would make an intermediate of more than %d axes",
                           step + 1, EG_RANK_MAX);
                return false;
            }
            c->label[c->n] = from->label[k];
            c->size[c->n++] = from->size[k];
        }
    }
    eg__row_major(c->n, c->size, c->stride);
    int64_t bytes = eg__width[d->task->dtype];
    for (int k = 0; k < c->n; k++)
        if (__builtin_mul_overflow(bytes, c->size[k], &bytes)) {
            eg_fail_as(cx, EG_ERROR_SHAPE,
                       "einsum: step %d would make an intermediate of more than 2^63 bytes",
                       step + 1);
            return false;
        }
    const int64_t limit = most_bytes(&d->task->order);
    if (bytes > limit) {
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "einsum: .limit is %lld bytes, and step %d makes an intermediate of %lld",
                   (long long)limit, step + 1, (long long)bytes);
        return false;
    }
    if ((size_t)bytes > d->largest) d->largest = (size_t)bytes;

    /* the lowest address at which it overlaps no intermediate that is still needed */
    const int64_t need = (bytes + 63) / 64 * 64;
    eg__byte_range taken[EG_EINSUM_MAX];
    int alive = 0;
    for (int s = 0; s < step; s++) {
        if (gone[n + s] && d->pair[step][0] != n + s && d->pair[step][1] != n + s) continue;
        int64_t size = eg__width[d->task->dtype];
        for (int k = 0; k < d->side[n + s].n; k++) size *= d->side[n + s].size[k];
        taken[alive++] = (eg__byte_range){ d->at[s], d->at[s] + (size + 63) / 64 * 64 };
    }
    const int64_t at = eg__gap(need, alive, taken);
    int64_t end;
    if (__builtin_add_overflow(at, need, &end)) {
        eg_fail_as(cx, EG_ERROR_SHAPE,
                   "einsum: up to step %d the intermediates take more than 2^63 bytes", step + 1);
        return false;
    }
    d->at[step] = at;
    if ((size_t)end > d->intermediates) d->intermediates = (size_t)end;
    return true;
}

/* Merges repeated labels, finds the order of pairs, and describes each intermediate. False after an
 * error. */
bool eg__draft(eg_ctx *cx, const eg_contraction *t, eg_draft *d)
{
    const int n = t->count;
    d->task = t;
    d->steps = n == 1 ? 1 : n - 1;
    d->intermediates = d->largest = 0;
    for (int k = 0; k < n; k++) side_of(&d->side[k], &t->x[k]);
    side_of(&d->out, t->out);
    d->pair[0][0] = 0;
    d->pair[0][1] = n == 1 ? -1 : 1;
    const int64_t limits[] = { t->order.limit, t->order.keep_limit };
    for (int k = 0; k < 2; k++)
        if (limits[k] < 0 && limits[k] != EG_OFF) {
            eg_fail_as(cx, EG_ERROR_MISUSE, "einsum: .%s is %lld bytes", k ? "keep_limit" : "limit",
                       (long long)limits[k]);
            return false;
        }
    if (t->order.path || t->order.steps >= 0
            ? !by_path(cx, t, d->pair)
            : n > 2 && !by_search(cx, t, d->side, &d->out, d->pair))
        return false;
    bool gone[2 * EG_EINSUM_MAX] = { false };
    for (int s = 0; s < d->steps - 1; s++) {
        gone[d->pair[s][0]] = gone[d->pair[s][1]] = true;
        if (!intermediate(cx, d, gone, s)) return false;
    }
    return true;
}
const eg_side *eg__draft_result(const eg_draft *d, int step)
{
    return step == d->steps - 1 ? &d->out : &d->side[d->task->count + step];
}

/* -- trees ------------------------------------------------------------------------------------ */
size_t eg__tree_bytes(const eg_draft *d)
{
    size_t labels = 0;
    for (int s = 0; s < d->steps; s++) labels += (size_t)eg__draft_result(d, s)->n;
    return eg__up16(sizeof(eg_tree) + (size_t)d->steps * sizeof(eg_tree_step) +
                    labels * sizeof(uint16_t));
}
/* Returns the steps whose values are kept within `most` bytes, to repeat as few multiply-adds as
 * possible: those that save the most per byte are kept first. */
static uint64_t kept_within(const eg_draft *d, const eg_tree *t, int64_t most)
{
    uint64_t kept = 0;
    for (;;) {
        int best = -1;
        double dearest = -1;
        for (int s = 0; s < t->steps - 1; s++) {
            if (kept >> s & 1 || t->step[s].bytes > most) continue;
            const double worth =
                eg__draft_work(d, s, NULL) / (double)(t->step[s].bytes ? t->step[s].bytes : 1);
            if (worth <= dearest) continue;
            dearest = worth;
            best = s;
        }
        if (best < 0) return kept;
        kept |= (uint64_t)1 << best;
        most -= t->step[best].bytes;
    }
}
eg_tree *eg__tree(void *memory, const eg_draft *d)
{
    eg_tree *t = memory;
    const int n = d->task->count;
    const int64_t limit = d->task->order.keep_limit;
    *t = (eg_tree){ .count = n,
                    .steps = d->steps,
                    .bytes = eg__tree_bytes(d),
                    .searched = d->task->order.steps < 0 };
    uint16_t *label = (uint16_t *)(void *)(t->step + t->steps);
    int16_t first = 0;
    for (int s = 0; s < t->steps; s++) {
        const eg_side *c = eg__draft_result(d, s);
        eg_tree_step *q = &t->step[s];
        *q = (eg_tree_step){ .a = (int16_t)d->pair[s][0],
                             .b = (int16_t)d->pair[s][1],
                             .rank = (int16_t)c->n,
                             .first = first,
                             .bytes = eg__width[d->task->dtype] };
        for (int side = 0; side < 2; side++)
            q->operands |= d->pair[s][side] < n ? (uint64_t)1 << d->pair[s][side]
                                                : t->step[d->pair[s][side] - n].operands;
        for (int k = 0; k < c->n; k++) q->bytes *= c->size[k];
        if (c->n) memcpy(label + first, c->label, (size_t)c->n * sizeof *label);
        first = (int16_t)(first + c->n);
    }
    t->kept = limit == EG_OFF ? 0 : kept_within(d, t, limit ? limit : INT64_MAX);
    return t;
}
double eg__tree_cotangents(eg_ctx *cx, const eg_tree *t, const eg_draft *d, uint64_t wanted,
                           int (*pair)[2])
{
    void *memory = eg__scratch(cx, EG_SCRATCH_SEARCH, eg__order_bytes(t->count));

    eg_labelset set[EG_EINSUM_MAX], all;
    double size[EG_LABEL_MAX] = { 0 };
    uint64_t keep[EG_EINSUM_MAX];
    int kept = 0;
    draft_sets(d->task, d->side, &d->out, set, &all, size);
    for (int s = 0; s < t->steps; s++) {
        pair[s][0] = t->step[s].a;
        pair[s][1] = t->step[s].b;
        if (t->kept >> s & 1) keep[kept++] = t->step[s].operands;
    }
    return memory ? eg__order_cotangents(t->count, set, &all, size, most_elements(d->task), wanted,
                                         kept, keep, pair, memory)
                  : -1;
}

/* Sets the axes of a step, one for each label of its operands and result. Returns their number, at
 * most 3 · EG_RANK_MAX; if axis is NULL, only this. */
static int draft_axes(const eg_draft *d, int step, eg_axis *axis)
{
    const int b = d->pair[step][1];
    const eg_side *all[3] = { &d->side[d->pair[step][0]], b < 0 ? NULL : &d->side[b],
                              eg__draft_result(d, step) };
    uint16_t seen[3 * EG_RANK_MAX];
    int n = 0;
    for (int s = 0; s < 3; s++)
        for (int k = 0; all[s] && k < all[s]->n; k++) {
            int at = eg__label_at(seen, n, all[s]->label[k]);
            if (at < 0) {
                at = n++;
                seen[at] = all[s]->label[k];
                if (axis) axis[at] = (eg_axis){ .size = all[s]->size[k] };
            }
            if (!axis) continue;
            const int64_t stride = all[s]->stride[k];
            if (s == 0) {
                axis[at].in_a = true;
                axis[at].sa = stride;
            }
            if (s == 1) {
                axis[at].in_b = true;
                axis[at].sb = stride;
            }
            if (s == 2) {
                axis[at].in_c = true;
                axis[at].sc = stride;
            }
        }
    return n;
}

double eg__draft_work(const eg_draft *d, int step, double *terms)
{
    eg_axis axis[3 * EG_RANK_MAX];
    double sums;
    return eg__pair_work(draft_axes(d, step, axis), axis, d->pair[step][1] >= 0,
                         terms ? terms : &sums);
}

/* -- pairings --------------------------------------------------------------------------------- */
static bool diagonal(const eg_draft *d) { return d->out.n < d->task->out->rank; }

size_t eg__program_bytes(const eg_draft *d)
{
    size_t bytes = eg__up16(sizeof(eg_program) + (size_t)d->steps * sizeof(eg_program_step));
    const eg_dtype dtype = d->task->dtype;
    for (int s = 0; s < d->steps; s++)
        bytes += eg__up16(eg__pairing_bytes(dtype, draft_axes(d, s, NULL)));
    return bytes + (diagonal(d) ? eg__up16(eg__pairing_bytes(dtype, d->task->out->rank + 1)) : 0);
}

static const eg_pairing *pairing(char **memory, eg_dtype dtype, const eg_dtype *of, int axes,
                                 const eg_axis *axis, bool two)
{
    eg_pairing *p = (eg_pairing *)(void *)*memory;
    eg__pairing(p, dtype, of, axes, axis, two);
    *memory += eg__up16(eg__pairing_bytes(dtype, axes));
    return p;
}
/* Returns the dtype of number `number` of the draft: an operand's own, else that of the
 * contraction. */
static eg_dtype type_of(const eg_draft *d, int number)
{
    const eg_contraction *t = d->task;
    return t->of && number >= 0 && number < t->count ? t->of[number] : t->dtype;
}
/* Makes the pairing of each step, one after another in the memory. */
eg_program *eg__program(void *memory, const eg_draft *d)
{
    eg_program *p = memory;
    char *next = (char *)memory + eg__up16(sizeof *p + (size_t)d->steps * sizeof(eg_program_step));
    *p = (eg_program){ .count = d->task->count,
                       .steps = d->steps,
                       .intermediates = d->intermediates };
    for (int k = 0; k < d->out.n; k++) p->empty |= d->out.size[k] == 0;
    eg_axis axis[3 * EG_RANK_MAX];
    for (int s = 0; s < d->steps; s++) {
        const int n = draft_axes(d, s, axis);
        p->step[s] = (eg_program_step){ .a = d->pair[s][0],
                                        .b = d->pair[s][1],
                                        .at = s == d->steps - 1 ? 0 : d->at[s] };
        const eg_dtype of[2] = { type_of(d, p->step[s].a), type_of(d, p->step[s].b) };
        p->step[s].pairing = pairing(&next, d->task->dtype, of, n, axis, p->step[s].b >= 0);
    }
    if (diagonal(d)) { /* a sum over no elements, which writes the zeros outside of the diagonal */
        const eg_labelled *o = d->task->out;
        for (int k = 0; k < o->rank; k++)
            axis[k] = (eg_axis){ .size = o->dim[k], .sc = o->stride[k], .in_c = true };
        axis[o->rank] = (eg_axis){ .size = 0, .sa = 1, .in_a = true };
        p->clear = pairing(&next, d->task->dtype, NULL, o->rank + 1, axis, false);
    }
    p->bytes = (size_t)(next - (char *)memory);
    return p;
}
/* Returns the pairing of a copied program that corresponds to p of the original. */
static eg_pairing *program_copied(void *memory, const eg_program *from, const eg_pairing *p)
{
    char *at = (char *)memory + ((const char *)p - (const char *)from);
    eg__pairing_moved((eg_pairing *)(void *)at, p);
    return (eg_pairing *)(void *)at;
}
eg_program *eg__program_copy(void *memory, const eg_program *from)
{
    eg_program *p = memcpy(memory, from, from->bytes);
    for (int s = 0; s < p->steps; s++)
        p->step[s].pairing = program_copied(memory, from, from->step[s].pairing);
    if (from->clear) p->clear = program_copied(memory, from, from->clear);
    return p;
}

bool eg__program_finishes(const eg_program *p)
{
    return p->steps > 0 && !p->empty && eg__pair_finishes(p->step[p->steps - 1].pairing);
}
/* Runs two steps or more. An intermediate is at kept[step], if that is not NULL; else on the stack
 * if all are small, else in a separate scope. */
static bool run_steps(eg_ctx *cx, const eg_program *p, const void *const *x, void *out,
                      double alpha, bool add, const eg_finish *finish, void *const *kept)
{
    const void *at[2 * EG_EINSUM_MAX];
    memcpy(at, x, (size_t)p->count * sizeof *at);
    _Alignas(64) char near[1 << 12];
    bool all = kept != NULL;
    for (int s = 0; all && s < p->steps - 1; s++) all = kept[s] != NULL;
    const bool small = all || p->intermediates <= sizeof near;
    const eg_mark m = small ? (eg_mark){ NULL, 0 } : eg_push(cx);
    char *memory = small ? near : m.scope ? eg__alloc(cx, p->intermediates) : NULL;
    bool good = memory != NULL;
    for (int s = 0; good && s < p->steps; s++) {
        const eg_program_step *step = &p->step[s];
        const bool last = s == p->steps - 1;
        void *to = last ? out : kept && kept[s] ? kept[s] : memory + step->at;
        good = eg__pair_run(cx, step->pairing, at[step->a], at[step->b], to, last ? alpha : 1,
                            last && add, last ? finish : NULL);
        at[p->count + s] = to;
    }
    eg_pop(cx, m);
    return good;
}
/* The zeros outside of a diagonal are written first. An empty result takes no step, unless
 * intermediates are kept. */
bool eg__program_run(eg_ctx *cx, const eg_program *p, const void *const *x, void *out, double alpha,
                     bool add, const eg_finish *finish, void *const *kept)
{
    if (p->empty && !kept) return true;
    if (p->clear && !eg__pair_run(cx, p->clear, x[0], NULL, out, 1, add, NULL)) return false;
    if (p->steps == 1)
        return eg__pair_run(cx, p->step[0].pairing, x[0], p->count == 2 ? x[1] : NULL, out, alpha,
                            add, finish);
    return run_steps(cx, p, x, out, alpha, add, finish, kept);
}

bool eg__program_run_copies(eg_ctx *cx, const eg_program *p, const eg_copy_steps *s,
                            const void *const *x, void *out, double alpha, const eg_finish *finish)
{
    if (p->steps == 1 && !p->clear && !p->empty)
        return eg__pair_run_copies(cx, p->step[0].pairing, s, x[0], p->count == 2 ? x[1] : NULL,
                                   out, alpha, finish);
    const void *at[EG_EINSUM_MAX];
    bool good = true;
    for (int64_t k = 0; good && k < s->count; k++) {
        for (int i = 0; i < p->count; i++) at[i] = (const char *)x[i] + k * s->x[i];
        good = eg__program_run(cx, p, at, (char *)out + k * s->out, alpha, false, finish, NULL);
    }
    return good;
}
