/* report.c: writes a report as text: the settings of the check, the worst entries with the names of
 * their inputs and axes, the notes, the cost. */
#include "gradcheck/gradcheck.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const verdict_name[] = {
    [EG_RIGHT] = "right", [EG_WRONG] = "WRONG",         [EG_KINK] = "KINK",
    [EG_NOISE] = "NOISE", [EG_UNTESTED] = "UNTESTED",   [EG_ZERO] = "zero",
    [EG_EMPTY] = "empty", [EG_PRECISION] = "PRECISION",
};
bool eg__fails(eg_verdict v)
{
    return v == EG_WRONG || v == EG_KINK || v == EG_NOISE || v == EG_UNTESTED || v == EG_PRECISION;
}

/* The text of a report: s has EG_CHECK_TEXT bytes, of which n are written. */
typedef struct page {
    char *s;
    size_t n;
} page;
/* Appends to the text; what does not fit is cut off. */
static void report_write(page *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void report_write(page *t, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    const int w = eg__vsentence(t->s + t->n, EG_CHECK_TEXT - t->n, format, ap);
    va_end(ap);
    if (w > 0) t->n += (size_t)w < EG_CHECK_TEXT - t->n ? (size_t)w : EG_CHECK_TEXT - t->n - 1;
}

void eg__report_note(eg__trial *c, eg_report *r, eg_verdict v, int input, const char *format, ...)
{
    char words[512];
    va_list ap;
    va_start(ap, format);
    eg__vsentence(words, sizeof words, format, ap);
    va_end(ap);
    /* notes are few: the list is copied for each new one */
    eg_note *all = eg__alloc_in(c->probe->arena, (size_t)(r->notes + 1) * sizeof *all);
    char *text = eg__alloc_in(c->probe->arena, strlen(words) + 1);
    if (!all || !text) return;
    strcpy(text, words);
    if (r->notes) memcpy(all, r->note, (size_t)r->notes * sizeof *all);
    all[r->notes++] = (eg_note){ .verdict = v, .input = input, .text = text, .operand = -1 };
    r->note = all;
}
void eg__report_blame(eg__trial *c, eg_report *r, const char *rule, int operand, const char *call)
{
    char *text = eg__alloc_in(c->probe->arena, strlen(call) + 1);
    if (!r->notes || !text) return;
    eg_note *last = (eg_note *)(uintptr_t)&r->note[r->notes - 1];
    last->rule = rule;
    last->operand = operand;
    last->call = strcpy(text, call);
}

const char *eg__sites_text(const eg__site *site, int count, char *out, size_t size)
{
    eg__lines l;
    char line[128];
    size_t w = 0;
    out[0] = 0;
    eg__lines_open(&l);
    for (int k = 0; k < count && k < EG_SITES && w < size; k++) {
        if (site[k].own)
            eg__line_around(&l, site[k].caller, site[k].outer, line, sizeof line);
        else
            eg__line(&l, site[k].caller, line, sizeof line);
        w += (size_t)snprintf(out + w, size - w, site[k].spec[0] ? "%s%s \"%s\"" : "%s%s",
                              k ? ", " : "", site[k].name, site[k].spec);
        if (line[0] && w < size) w += (size_t)snprintf(out + w, size - w, " (%s)", line);
    }
    eg__lines_close(&l);
    if (count > EG_SITES && w < size) snprintf(out + w, size - w, " and %d more", count - EG_SITES);
    return out;
}

/* -- names of entries: dW_q[m=3,h=0,d=2] ------------------------------------------------------ */
/* Returns the end of the first part of a list such as "f(a, b), c": the first comma outside of
 * parentheses and braces, or the end of the text. */
static const char *next_part(const char *list)
{
    for (int depth = 0; *list && (*list != ',' || depth > 0); list++)
        depth += (*list == '(' || *list == '{') - (*list == ')' || *list == '}');
    return list;
}
const char *eg__check_part(const char *list, int k, int *length)
{
    *length = 0;
    if (!list) return "";
    while (k-- > 0) {
        list = next_part(list);
        if (!*list) return "";
        list++;
    }
    while (*list == ' ') list++;
    *length = (int)(next_part(list) - list);
    while (*length && list[*length - 1] == ' ') --*length;
    return list;
}
/* Writes the name of an input: as in the call, by eg_name, or "x2". */
static void report_input(page *t, const eg__trial *c, int input)
{
    int n;
    const char *name = eg__check_part(c->o.names, input, &n);
    if (n)
        report_write(t, "%.*s", n, name);
    else if (eg_name_of(c->o.xs[input]))
        report_write(t, "%s", eg_name_of(c->o.xs[input]));
    else
        report_write(t, "x%d", input);
}
bool eg__check_words(int rank, const char *axes, int n)
{
    return rank == 1 || memchr(axes, ' ', (size_t)n);
}
/* Writes a row-major index as "[i=1,j=2]"; the n characters at `axes` are the names of axes. */
static void report_index(page *t, int rank, const int64_t *dim, int64_t index, const char *axes,
                         int n)
{
    const bool words = eg__check_words(rank, axes, n);
    int64_t ix[EG_RANK_MAX];
    for (int r = rank; r-- > 0; index /= dim[r]) ix[r] = index % dim[r];
    for (int r = 0, w = 0; r < rank; r++) {
        while (w < n && axes[w] == ' ') w++;
        int len = !words ? w < n : (int)strcspn(axes + w, " ,");
        if (words && len > n - w) len = n - w;
        report_write(t, r ? "," : "[");
        if (len) report_write(t, "%.*s=", len, axes + w);
        w += len;
        report_write(t, "%lld", (long long)ix[r]);
    }
    if (rank) report_write(t, "]");
}
/* Writes which derivative an entry is, as in "df[1]/dW[i=0,j=2]". */
static void report_entry_name(page *t, const eg__trial *c, const eg_entry *e)
{
    const eg_tensor *x = c->o.xs[e->input];
    int n;
    const char *axes = eg__check_part(c->o.axes, e->input, &n);
    if (e->output >= 0) {
        report_write(t, "df");
        report_index(t, c->rank, c->dim, e->output, "", 0);
        report_write(t, "/");
    }
    report_write(t, "d");
    report_input(t, c, e->input);
    if (e->index >= 0)
        report_index(t, x->rank, x->dim, e->index, axes, n);
    else
        report_write(t, " along a random direction");
    if (e->shared > 1)
        report_write(t, " (one place in memory for %lld entries)", (long long)e->shared);
    if (e->at) report_write(t, strncmp(e->at, "with", 4) ? ", the input %s" : ", %s", e->at);
}
/* Writes the verdict on an entry, its analytic and numeric value, and their difference. */
static void report_numbers(page *t, const eg_entry *e)
{
    const double apart = fabs(e->analytic - e->numeric), of = fabs(e->numeric);
    report_write(t, ": %s: analytic %.9g, numeric %.9g (error %.0e)", verdict_name[e->verdict],
                 e->analytic, e->numeric, e->error);
    if (e->verdict == EG_WRONG && of > 0) report_write(t, ", off by %.3g %%", 100 * apart / of);
    report_write(t, ", left %.6g, right %.6g", e->left, e->right);
}

/* Returns the failing entry that the report begins with; NULL if a note explains the failure. */
static const eg_entry *report_first(const eg__trial *c, const eg_report *r)
{
    const bool random = c->again; /* f is random, so its slopes have no meaning */
    for (int k = 0; k < r->shown && !random; k++)
        if (eg__fails(r->entry[k].verdict) &&
            !(r->entry[k].verdict == EG_KINK && r->input[r->entry[k].input] != EG_KINK))
            return &r->entry[k];
    return NULL;
}
/* Writes one line about an entry. */
static void report_entry(page *t, const eg__trial *c, const eg_entry *e, const eg__path *path,
                         bool *named)
{
    char words[512];
    const eg__path *p = &path[e->input];
    report_entry_name(t, c, e);
    report_numbers(t, e);
    /* the first entry of an input also names the operations that read it */
    if (p->uses && !named[e->input])
        report_write(t, "; used by %s", eg__sites_text(p->used, p->uses, words, sizeof words));
    named[e->input] = true;
    report_write(t, "\n");
}
/* Writes the notes whose verdict is a failure (fails), or the others. */
static void report_notes(page *t, const eg__trial *c, const eg_report *r, bool fails)
{
    for (int k = 0; k < r->notes; k++) {
        const eg_note *n = &r->note[k];
        if (eg__fails(n->verdict) != fails) continue;
        report_write(t, "  ");
        if (n->input >= 0) report_input(t, c, n->input);
        if (n->input >= 0) report_write(t, ": ");
        if (n->verdict != EG_RIGHT) report_write(t, "%s: ", verdict_name[n->verdict]);
        report_write(t, "%s\n", n->text);
    }
}

void eg__report_write(const eg__trial *c, eg_report *r, const eg__path *path)
{
    page t = { .s = (char *)(uintptr_t)r->text };
    bool named[EG_CHECK_INPUTS] = { false };
    const eg_entry *first = report_first(c, r);
    if (r->order > 1) report_write(&t, "order %d: ", r->order);
    report_write(&t, "gradcheck: %s", r->passed ? "passed: " : "FAILED");
    if (!r->passed && first) {
        report_write(&t, "\n  ");
        report_entry(&t, c, first, path, named);
    } else if (!r->passed)
        report_write(&t, "\n");
    report_notes(&t, c, r, true);
    if (!r->passed) report_write(&t, "  ");
    const bool one = r->entries == 1;
    report_write(&t, "%lld of %lld %s right, %lld covered; ", (long long)r->right,
                 (long long)r->entries,
                 c->o.directions > 0 ? one ? "direction" : "directions"
                 : one               ? "entry"
                                     : "entries",
                 (long long)r->covered);
    report_write(
        &t,
        "worst |a - n| is %.1e of the largest, %.2g of what is allowed (rtol %.0e, atol %.0e)\n",
        r->worst, r->margin, c->o.rtol, c->o.atol);
    for (int k = 0; k < r->shown && k < EG_CHECK_SHOWN; k++) {
        const eg_entry *e = &r->entry[k];
        if (!eg__fails(e->verdict) || e == first || c->again) continue;
        report_write(&t, "  ");
        report_entry(&t, c, e, path, named);
    }
    report_notes(&t, c, r, false);
    char below[80] = "";
    if (r->unmeasurable)
        snprintf(below, sizeof below, "%lld without a measurable effect, ",
                 (long long)r->unmeasurable);
    if (r->mutants)
        report_write(
            &t, "  mutation: %lld mutant%s, %lld caught, %lld without effect, %s%lld survived\n",
            (long long)r->mutants, r->mutants == 1 ? "" : "s", (long long)r->caught,
            (long long)r->harmless, below, (long long)r->survivors);
    if (r->elsewhere)
        report_write(&t,
                     "  %lld entr%s not above the noise here and tested at another "
                     "point\n",
                     (long long)r->elsewhere, r->elsewhere == 1 ? "y is" : "ies are");
    if (r->order == 1)
        report_write(&t, "  cost: %lld call%s of f, %lld sweep%s; noise of f %.0e\n",
                     (long long)r->calls, r->calls == 1 ? "" : "s", (long long)r->sweeps,
                     r->sweeps == 1 ? "" : "s", r->noise);
    if (r->higher) report_write(&t, "%s", r->higher->text);
}
int eg_report_print(FILE *f, const eg_report *r)
{
    return r && f && fputs(r->text, f) >= 0 ? 0 : -1;
}
int eg_report_tap(FILE *f, const eg_report *r, int number, const char *name)
{
    if (!f || !r) return -1;
    if (fprintf(f, "%sok %d - %s\n", r->passed ? "" : "not ", number, name ? name : "gradient") < 0)
        return -1;
    if (r->passed) return 0;
    if (fputs("  ---\n  message: |\n", f) < 0) return -1;
    for (const char *line = r->text; *line;) {
        const int n = (int)strcspn(line, "\n");
        if (fprintf(f, "    %.*s\n", n, line) < 0) return -1;
        line += n + (line[n] == '\n');
    }
    return fputs("  ...\n", f) < 0 ? -1 : 0;
}
