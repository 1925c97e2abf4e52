/* hint.c: what the wrong entries of an input have in common, as a note of the report: a sign, a
 * factor, a transposition, a shift, a reversal, a constant, or one index of an axis. */
#include "gradcheck/gradcheck.h"
#include <math.h>
#include <string.h>

/* The gradient by one input: analytic values a, numeric values n (those of entries that are right
 * are the analytic ones), and which entries are wrong. */
typedef struct hint {
    eg_tensor *x;
    double *a, *n;
    bool *wrong;
    int64_t size, count; /* entries; those that are wrong */
    double apart;        /* the largest |a − n| */
} hint;
#define EXPLAINED 0.01 /* a cause leaves less than this part of the difference */

/* Fills h for an input; false if no entry is wrong at the point of the check, and after an error.
 */
static bool hint_open(const eg__entries *e, int input, hint *h)
{
    const eg__trial *c = e->c;
    *h = (hint){ .x = c->o.xs[input], .size = eg_size(c->o.xs[input]) };
    const size_t bytes = (size_t)(h->size + 1) * sizeof *h->a;
    h->a = eg__alloc(c->cx, bytes);
    h->n = eg__alloc(c->cx, bytes);
    h->wrong = eg__alloc(c->cx, (size_t)h->size + 1);
    if (!h->a || !h->n || !h->wrong) return false;
    for (int64_t j = 0; j < h->size; j++) h->a[j] = h->n[j] = e->a[c->var_of[input][j]];
    memset(h->wrong, 0, (size_t)h->size + 1);
    for (int64_t k = 0; k < e->n; k++) {
        const eg_entry *of = &e->kept[k];
        if (of->verdict != EG_WRONG || of->input != input || of->index < 0 || of->at) continue;
        if (of->shared > 1 || !isfinite(of->analytic)) return false;
        h->n[of->index] = of->numeric;
        h->wrong[of->index] = true;
        h->apart = fmax(h->apart, fabs(of->analytic - of->numeric));
        h->count++;
    }
    return h->count > 0;
}
/* Returns the length of axis r, and in *stride the distance of its elements. */
static int64_t hint_axis(const hint *h, int r, int64_t *stride)
{
    *stride = 1;
    for (int k = r + 1; k < h->x->rank; k++) *stride *= h->x->dim[k];
    return h->x->dim[r];
}
/* True if a number is, up to rounding, the length of an axis longer than 1 of an input or of the
 * result of f. */
static bool is_length(const eg__trial *c, double of)
{
    for (int k = 0; k < c->o.count; k++)
        for (int r = 0; r < c->o.xs[k]->rank; r++)
            if (c->o.xs[k]->dim[r] > 1 && fabs(of - (double)c->o.xs[k]->dim[r]) < 1e-5 * of)
                return true;
    for (int r = 0; r < c->rank; r++)
        if (c->dim[r] > 1 && fabs(of - (double)c->dim[r]) < 1e-5 * of) return true;
    return false;
}
/* Writes the factor by which the wrong entries differ. False if it is not the same for all; of a
 * single entry, only −1, 2, 1/2 and lengths count. */
static bool hint_factor(const eg__trial *c, const hint *h, char *out, size_t size)
{
    double an = 0, aa = 0, worst = 0;
    for (int64_t j = 0; j < h->size; j++) {
        an += h->wrong[j] ? h->a[j] * h->n[j] : 0;
        aa += h->wrong[j] ? h->a[j] * h->a[j] : 0;
    }
    if (aa == 0) {
        snprintf(out, size, "the analytic values of all wrong entries are 0 (%lld of %lld)",
                 (long long)h->count, (long long)h->size);
        return h->count > 1;
    }
    const double f = an / aa, more = fabs(f) > 1 ? fabs(f) : 1 / fabs(f);
    for (int64_t j = 0; j < h->size; j++)
        if (h->wrong[j]) worst = fmax(worst, fabs(h->n[j] - f * h->a[j]));
    if (!(worst <= EXPLAINED * h->apart)) return false;
    const bool sign = fabs(f + 1) < 1e-5, length = is_length(c, more);
    if (h->count == 1 && !sign && !length && fabs(more - 2) > 1e-5) return false;
    eg__sentence(out, size,
                 "the numeric values are %.6g times the analytic ones in all wrong entries "
                 "(%lld of %lld): %s",
                 f, (long long)h->count, (long long)h->size,
                 sign     ? "the sign"
                 : length ? "a factor; an axis has that length, so a mean may stand for a sum"
                          : "a factor");
    return true;
}
/* The arrangements of the analytic values that may be the numeric ones. */
enum { SWAPPED, AFTER, BEFORE, REVERSED, ARRANGEMENTS };
/* Returns the place of entry j with axes p and q exchanged, or the next, previous or mirrored place
 * along axis p (p = q); −1 beyond the ends. */
static int64_t arranged(const hint *h, int how, int p, int q, int64_t j)
{
    int64_t by_p, by_q;
    const int64_t length = hint_axis(h, p, &by_p), i = j / by_p % length;
    hint_axis(h, q, &by_q);
    const int64_t k = j / by_q % length;
    switch (how) {
    case SWAPPED: return j + (k - i) * by_p + (i - k) * by_q;
    case AFTER: return i + 1 < length ? j + by_p : -1;
    case BEFORE: return i > 0 ? j - by_p : -1;
    default: return j + (length - 1 - 2 * i) * by_p;
    }
}
/* True if the numeric values are the analytic ones at these places. Entries without such a place
 * are left out. */
static bool is_arranged(const hint *h, int how, int p, int q)
{
    int64_t explained = 0;
    for (int64_t j = 0; j < h->size; j++) {
        const int64_t at = arranged(h, how, p, q, j);
        if (at < 0) continue;
        if (!(fabs(h->n[j] - h->a[at]) <= EXPLAINED * h->apart)) return false;
        explained += h->wrong[j];
    }
    return explained > 1;
}
/* Writes which arrangement explains the difference; false if there is none. */
static bool hint_arrangement(const hint *h, char *out, size_t size)
{
    static const char *const words[] = { [AFTER] = "of the next place along axis %d",
                                         [BEFORE] = "of the place before along axis %d",
                                         [REVERSED] = "in reverse order along axis %d" };
    for (int how = 0; how < ARRANGEMENTS; how++)
        for (int p = 0; p < h->x->rank; p++)
            for (int q = p; q < h->x->rank; q++) {
                if ((how == SWAPPED) != (p != q) || h->x->dim[p] != h->x->dim[q]) continue;
                if (!is_arranged(h, how, p, q)) continue;
                size_t w = (size_t)snprintf(out, size, "the numeric values are the analytic ones ");
                if (how == SWAPPED)
                    snprintf(out + w, size - w, "with axes %d and %d exchanged", p, q);
                else
                    snprintf(out + w, size - w, words[how], p);
                return true;
            }
    return false;
}
/* Writes the constant by which all entries differ; false if there is none. */
static bool hint_constant(const hint *h, char *out, size_t size)
{
    double sum = 0, worst = 0;
    for (int64_t j = 0; j < h->size; j++) sum += h->n[j] - h->a[j];
    const double mean = sum / (double)h->size;
    for (int64_t j = 0; j < h->size; j++) worst = fmax(worst, fabs(h->n[j] - h->a[j] - mean));
    eg__sentence(out, size, "the numeric values are the analytic ones plus %.6g, in all entries",
                 mean);
    return h->size > 1 && worst <= EXPLAINED * h->apart;
}
/* Appends the index of an axis that all wrong entries have to `out`, which has `used` characters;
 * false if there is none. */
static bool hint_index(const hint *h, size_t used, char *out, size_t size)
{
    for (int r = 0; r < h->x->rank; r++) {
        int64_t stride, at = -1;
        const int64_t length = hint_axis(h, r, &stride);
        bool one = length > 1;
        for (int64_t j = 0; j < h->size && one; j++) {
            if (!h->wrong[j]) continue;
            one = at < 0 || at == j / stride % length;
            at = j / stride % length;
        }
        if (!one || used >= size) continue;
        if (used)
            snprintf(out + used, size - used, ", with the index %lld%s along axis %d",
                     (long long)at, at == length - 1 ? ", the last," : "", r);
        else
            snprintf(out, size,
                     "all wrong entries (%lld of %lld) have the index %lld%s along axis "
                     "%d",
                     (long long)h->count, (long long)h->size, (long long)at,
                     at == length - 1 ? ", the last," : "", r);
        return true;
    }
    return false;
}
/* Writes what explains the wrong entries; false if nothing is found. */
static bool hint_text(const eg__trial *c, const hint *h, char *out, size_t size)
{
    if (hint_factor(c, h, out, size)) {
        hint_index(h, strlen(out), out, size);
        return true;
    }
    return hint_arrangement(h, out, size) || hint_constant(h, out, size) ||
           hint_index(h, 0, out, size);
}

void eg__hints(const eg__entries *e)
{
    eg__trial *c = e->c;
    if (c->o.full || c->o.directions > 0 || c->again || e->n == EG_CHECK_KEPT) return;
    for (int k = 0; k < c->o.count && !c->cx->failed; k++) {
        char words[256];
        hint h;
        const eg_mark m = eg_push(c->cx);
        if (e->input[k] == EG_WRONG && hint_open(e, k, &h) && hint_text(c, &h, words, sizeof words))
            eg__report_note(c, e->r, EG_WRONG, k, "%s", words);
        eg_pop(c->cx, m);
    }
}
