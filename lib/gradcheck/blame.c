/* blame.c: finds what makes an entry wrong. The rules of the user's operations are compared element
 * by element with their forward function (contract_derivatives.c compares along one direction),
 * hooks are tested, and checkpoints are named. Operations of the library are not named: they are
 * tested elsewhere, and an entry may also be wrong by rounding. */
#include "gradcheck/gradcheck.h"
#include <math.h>
#include <string.h>

enum { NAMED = 3, OPERANDS = 16, EVALUATIONS = 20000 };

typedef struct blame {
    eg__trial *c;
    eg_report *r;
    int named;
    int64_t left; /* number of evaluations of operations that are still allowed */
    bool unclear; /* a rule could not be tested separately */
} blame;

static double blame_unit(uint64_t salt, int64_t k)
{
    return 2 * eg__unit(salt, 5, (uint64_t)k) - 1;
}
static eg_tensor *noise(eg_ctx *cx, uint64_t salt, const eg_tensor *like)
{
    eg_tensor *t = eg__new(cx, EG_F64, like->rank, like->dim);
    for (int64_t k = 0, n = t ? eg_size(t) : 0; k < n; k++)
        ((double *)(void *)t->data)[k] = blame_unit(salt, k);
    return t ? t : eg__poison(cx);
}
static double dot(eg_tensor *a, eg_tensor *b)
{
    const double *x = eg_f64(a), *y = eg_f64(b);
    double sum = 0;
    for (int64_t k = 0, n = x && y ? eg_size(a) : 0; k < n; k++) sum += x[k] * y[k];
    return x && y ? sum : NAN;
}

/* Returns ⟨u, t⟩ where element e of operand i is x + by. */
static double blame_value(blame *b, const eg_tensor *t, int i, int64_t e, double by, eg_tensor *u)
{
    eg_ctx *cx = t->cx;
    eg_tensor *in[OPERANDS];
    const eg_mark m = eg_push(cx);
    b->left--;
    for (int k = 0; k < t->count; k++) in[k] = t->in[k];
    in[i] = eg__new(cx, EG_F64, t->in[i]->rank, t->in[i]->dim);
    if (in[i]) {
        eg__copy(in[i], t->in[i]);
        ((double *)(void *)in[i]->data)[e] += by;
    }
    eg_tensor *y = in[i] ? eg_apply(t->op, t->attr, t->attr_size, t->count, in) : NULL;
    const double v = eg_ok(y) ? dot(u, y) : NAN;
    eg__refused(b->c->cx);
    eg_pop(cx, m);
    return v;
}
/* Returns the slope from two steps; sets *err to their difference. */
static double blame_slope(blame *b, const eg_tensor *t, int i, int64_t e, eg_tensor *u, double *err)
{
    double d[2], h = 1e-3;
    for (int k = 0; k < 2; k++, h /= 4)
        d[k] = (blame_value(b, t, i, e, h, u) - blame_value(b, t, i, e, -h, u)) / (2 * h);
    *err = fabs(d[1] - d[0]);
    return (16 * d[1] - d[0]) / 15;
}

/* Tests the rule for operand i element by element. True if it is wrong and has been named. */
static bool blame_elements(blame *b, eg_tensor *t, int i)
{
    eg_ctx *cx = t->cx;
    char words[256];
    const eg__site at = eg__site_of(t);
    eg_tensor *u = noise(cx, 1, t), *g = eg__rule(t, u, i);
    const bool none = !g && !eg_error(cx); /* the same as zeros */
    if (none) g = eg_zeros_like(t->in[i]);
    const double *a = g && eg_ok(g) && eg__same_shape(g, t->in[i]) ? eg_f64(g) : NULL;
    if (!a) {
        b->unclear |= g != NULL;
        eg__refused(b->c->cx);
        return false;
    }
    for (int64_t e = 0, n = eg_size(g); e < n; e++) {
        double err;
        if (b->left < 4) {
            b->unclear = true;
            return false;
        }
        const double own = blame_slope(b, t, i, e, u, &err);
        const double apart = fabs(a[e] - own);
        /* the check finds smaller errors than this comparison can name */
        b->unclear |= isfinite(own) && apart > 1e-7 * fmax(fabs(own), 1e-2);
        if (!isfinite(own) || apart <= 1e-5 * fmax(fabs(own), 1e-6) + err) continue;
        b->named++;
        eg__report_note(b->c, b->r, EG_WRONG, -1,
                        "the rule of %s for operand %d %s its own forward at element %lld: %.6g, "
                        "not %.6g",
                        eg__sites_text(&at, 1, words, sizeof words), i + 1,
                        none ? "returns NULL, no gradient, and so disagrees with"
                             : "disagrees with",
                        (long long)e, a[e], own);
        eg__report_blame(b->c, b->r, t->op->name, i, words);
        return true;
    }
    return false;
}

/* True if the hook does not return the cotangent that it was given, for whatever purpose. */
static bool hook_changes(eg_tensor *t, const eg__hook *h)
{
    bool changed = false;
    for (int call = 0; call < 2; call++) { /* it may keep something between calls */
        eg_tensor *u = noise(t->cx, 6, t), *kept = noise(t->cx, 6, t), *g = h->f(h->user, t, u);
        const double *x = g && eg_ok(g) ? eg_f64(g) : eg_f64(u), *y = eg_f64(kept);
        for (int64_t k = 0, n = x && y ? eg_size(t) : 0; k < n; k++) changed |= x[k] != y[k];
    }
    return changed;
}
/* Writes what t is, "tanh (model.c:8)" or its name, to words. False if it is neither. */
static bool hook_site(const eg_tensor *t, char *words, size_t size)
{
    const eg__site at = t->op ? eg__site_of(t) : (eg__site){ .name = eg_name_of(t) };
    if (at.name) eg__sites_text(&at, 1, words, size);
    return at.name != NULL;
}
/* Names hooks that change the cotangent. */
static void blame_hooks(blame *b, eg_tensor *t)
{
    char words[256];
    for (eg__hook *h = t->tag ? t->tag->hook : NULL; h && b->named < NAMED; h = h->next) {
        const bool changed = hook_changes(t, h);
        eg__refused(b->c->cx);
        if (!changed) continue;
        const bool named = hook_site(t, words, sizeof words);
        b->named++;
        eg__report_note(b->c, b->r, EG_WRONG, -1, "a hook of %s changes the cotangent",
                        named ? words : "an input");
        eg__report_blame(b->c, b->r, "hook", -1, named ? words : "");
    }
}
bool eg__hooked(eg__trial *c, eg_report *r)
{
    eg_tensor **node, *y = eg__named_call(c);
    int64_t n = 0;
    bool found = false;
    if (!y || !eg__nodes(y, &n, &node)) return false;
    const bool was = eg_nograd(c->cx, true);
    for (int64_t k = 0; k < n && !found; k++)
        for (eg__hook *h = node[k]->tag ? node[k]->tag->hook : NULL; h && !found; h = h->next) {
            char words[256];
            found = hook_changes(node[k], h);
            if (!eg__refused(c->cx) && c->cx->failed) break; /* out of memory */
            if (found)
                eg__report_note(c, r, EG_RIGHT, -1,
                                "forward mode was not compared with reverse mode: it calls no "
                                "hooks, and a hook of %s changes the cotangent",
                                hook_site(node[k], words, sizeof words) ? words : "an input");
        }
    eg_nograd(c->cx, was);
    return found;
}
static void blame_checkpoint(blame *b, const eg_tensor *t)
{
    char words[256];
    const eg__site at = eg__site_of(t);
    b->named++;
    eg__report_note(b->c, b->r, EG_WRONG, -1,
                    "the fault may lie inside %s: check its function by itself",
                    eg__sites_text(&at, 1, words, sizeof words));
    eg__report_blame(b->c, b->r, t->op->name, -1, words);
}

/* Notes where the first NaN or infinity of the gradient arises, in the words of eg_trace. True if
 * there is one. */
static bool blame_nonfinite(blame *b, eg_tensor *y)
{
    eg__trial *c = b->c;
    eg_tensor *dx[EG_CHECK_INPUTS];
    const eg_hooks before = c->cx->hooks;
    eg_trace(c->cx, true);
    const bool failed = eg__grad(y, c->w, c->o.count, c->o.xs, dx) != 0;
    c->cx->hooks = before;
    ++*c->sweeps;
    const bool found = failed && c->cx->cause == EG_CAUSE_NONFINITE;
    if (found)
        eg__report_note(c, b->r, EG_RIGHT, -1, "the gradient is not finite: %s",
                        strstr(eg_error(c->cx), ": ") + 2); /* without "trace: " */
    eg__refused(c->cx);
    return found;
}

bool eg__blame(eg__trial *c, eg_report *r, bool cut)
{
    eg_ctx *cx = c->cx;
    eg_tensor **node;
    int64_t n = 0;
    blame b = { .c = c, .r = r, .left = EVALUATIONS };
    eg_mark m = eg_push(cx);
    eg_tensor *y = eg__named_call(c);
    bool good = y != NULL;
    if (good) b.unclear = blame_nonfinite(&b, y);
    good = good && eg__nodes(y, &n, &node);
    const bool was = eg_nograd(cx, true);
    for (int k = 0; k < r->notes; k++) b.named += r->note[k].rule != NULL;
    for (int64_t k = 0; good && k < n && b.named < NAMED; k++) {
        eg_tensor *t = node[k];
        blame_hooks(&b, t);
        if (!t->op || b.named) continue;
        if (!strcmp(t->op->name, "checkpoint")) blame_checkpoint(&b, t);
        if (eg__in_table(t->op) || !t->op->rule || !t->op->forward || t->dtype != EG_F64) continue;
        b.unclear |= t->count > OPERANDS;
        for (int i = 0; i < t->count && t->count <= OPERANDS && !b.named; i++) {
            if (t->in[i]->dtype != EG_F64) continue;
            const eg_mark one = eg_push(cx);
            blame_elements(&b, t, i);
            eg_pop(cx, one);
        }
    }
    eg_nograd(cx, was);
    eg_pop(cx, m);
    if (good && !b.named && !cut && !b.unclear)
        eg__report_note(
            c, r, EG_RIGHT, -1,
            "each rule on the way agrees with its forward: what is missing is not on the tape "
            "(values read out of a tensor, eg_nograd, eg_keep)");
    return good && !cx->failed;
}

/* Finds an operation of the user whose rule writes to something at the present point, or, if `any`,
 * that breaks another contract, and writes to `words` which. False if there is none. */
static bool broken_operation(eg__trial *c, bool any, char *words, size_t size)
{
    eg_tensor **node, *y = eg__named_call(c);
    int64_t n;
    bool broken = false;
    if (!y || !eg__nodes(y, &n, &node)) return false;
    for (int64_t k = 0; k < n && !broken; k++) {
        eg_tensor *t = node[k];
        char what[256], where[256];
        eg__breach breach;
        if (!t->op || eg__in_table(t->op)) continue;
        broken = !eg__contract(t, false, what, sizeof what, &breach) && !breach.elsewhere &&
                 (any || breach.writes);
        if (!broken) continue;
        const eg__site at = eg__site_of(t);
        eg__sites_text(&at, 1, where, sizeof where);
        eg__contract_text(where, breach.operand, what, words, size);
    }
    return broken;
}
void eg__blame_error(eg__trial *c)
{
    static const char who[] = "gradcheck: ";
    eg_ctx *cx = c->cx;
    const eg_code code = eg_error_code(cx);
    const bool changed = cx->cause == EG_CAUSE_CHANGED;
    if (!cx->failed || code == EG_ERROR_MEMORY || !c->memory) return;
    const eg_mark m = eg_push(cx);
    char words[640], message[1024];
    snprintf(message, sizeof message, "%s", eg_error(cx));
    eg_clear(cx);
    if (c->cells) memcpy(c->memory, c->point, (size_t)c->cells * sizeof *c->point);
    for (int k = 0; k < c->o.count; k++) c->version[k] = c->o.xs[k]->st->version;
    /* a rule that records such an error itself cannot be tested for what it writes */
    const bool found = broken_operation(c, changed, words, sizeof words);
    const size_t skip = strncmp(message, who, sizeof who - 1) ? 0 : sizeof who - 1;
    eg_clear(cx);
    eg_pop(cx, m);
    if (found)
        eg_fail_as(cx, code, "%s%s: %s", who, words, message + skip);
    else
        eg_fail_as(cx, code, "%s", message);
}

bool eg__unlisted(eg__trial *c, eg_report *r, eg_tensor *y)
{
    eg_tensor **node;
    int64_t n, found = 0;
    char words[256], dims[64];
    size_t w = 0;
    if (!eg__nodes(y, &n, &node)) return false;
    for (int64_t k = 0; k < n; k++) {
        const eg_tensor *t = node[k];
        bool listed = t->count > 0 || t->seq >= c->probe->first_seq || !eg__is_float(t->dtype);
        for (int j = 0; j < c->o.count; j++) listed |= c->o.xs[j] == t;
        if (listed) continue;
        if (found++ >= 3 || w >= sizeof words) continue;
        w += (size_t)snprintf(words + w, sizeof words - w, "%s%s%s%s", found > 1 ? ", " : "",
                              eg_name_of(t) ? eg_name_of(t) : "", eg_name_of(t) ? " " : "",
                              eg__dims_text(t, dims, sizeof dims));
    }
    if (found)
        eg__report_note(c, r, EG_RIGHT, -1,
                        "f reads %lld other tensor%s, which no entry tests: %s%s", (long long)found,
                        found > 1 ? "s" : "", words, found > 3 ? ", …" : "");
    return true;
}
