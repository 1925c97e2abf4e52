/* contracts.c: tests on one recorded node what every operation must satisfy. The cotangent is
 * linear in g, for any g and any layout of it, and is the same if it is computed again, in another
 * order, after other calls, and while the context does not record. Neither rule nor jvp writes to
 * anything or reads what .uses declares as not read. Forward and rule do not depend on the layout
 * of operands, nor on whether one tensor is given twice. ⟨g, jvp(dx)⟩ = Σ ⟨rule(g, i), dx_i⟩, for a
 * tangent of each operand alone and of all together. ⟨rule(g, i), v⟩ is the derivative of ⟨g,
 * forward⟩ along v, at other sizes too. If the cotangent has a gradient, that is its derivative.
 * Rule and jvp are the same in f32, up to rounding, and for operands of other ranks. forward_c128
 * continues forward.
 *
 * The operation is applied again to copies of the node's operands, so that the tape does not
 * change. This file lists the contracts and chooses the nodes. The contracts are in
 * contract_values.c, contract_linear.c, contract_derivatives.c, contract_jvp.c, contract_single.c,
 * contract_elsewhere.c and contract_broadcast.c, their tools in contract_tensors.c. */
#include "gradcheck/contracts.h"
#include <math.h>
#include <string.h>

enum { DISTINCT = 24 }; /* largest number of nodes of one history that are tested */

/* The contracts in the order in which they are tested; the first one that is broken is reported. */
static const struct {
    bool (*holds)(eg__contract_call *);
    bool any_layout; /* calls the operation with operands of any layout */
    bool elsewhere;  /* calls the operation with operands of other values or sizes */
    bool writes;     /* broken by a rule that writes to a tensor */
} contract_list[] = {
    { eg__writes_nothing, false, false, true },
    { eg__same_again, false, false, false },
    { eg__same_of_results, false, false, false },
    { eg__linear, false, false, false },
    { eg__layouts_of_g, false, false, false },
    { eg__uses_correct, false, false, false },
    { eg__derivative_here, false, false, false },
    { eg__derivative_moved, false, true, false },
    { eg__jvp_adjoint, false, false, false },
    { eg__jvp_tangents, false, false, false },
    { eg__derivative_at_values, false, true, false },
    { eg__derivative_at_masks, false, true, false },
    { eg__derivative_at_integers, false, true, false },
    { eg__derivative_at_sizes, false, true, false },
    { eg__derivative_broadcast, true, true, false },
    { eg__second_order, false, false, false },
    { eg__second_elsewhere, false, true, false },
    { eg__complex_forward, false, false, false },
    { eg__same_in_single, false, false, false },
    { eg__other_ranks, true, false, false },
    { eg__layouts_of_operands, true, false, false },
};

/* Notes a rule that gives NaN for a g of mixed signs but finite results for a positive one. */
static void contract_signs(eg__contract_call *k, int i)
{
    eg_tensor *g = eg__leaf_copy(k->g), *d;
    for (int64_t j = 0, n = g ? eg_size(g) : 0; j < n; j++)
        eg__contract_numbers(g)[j] = fabs(eg__contract_numbers(g)[j]);
    if (eg__contract_rule(k->y, g, i, &d) && d && eg__all_finite(d))
        eg__breaks(k, i, "is not linear in g: where g has negative elements it is no number");
}
/* Applies the operation to copies of the node's operands. False if it cannot be tested separately,
 * or has no value. */
static bool contract_open(eg__contract_call *k)
{
    const eg_tensor *t = k->t;
    if (!t->op || !t->op->rule || t->op->rule == eg_zero_rule || !t->op->forward ||
        t->dtype != EG_F64 || t->count > EG_ASKED_OPERANDS || !eg_size(t))
        return false;
    for (int i = 0; i < t->count; i++)
        if (!(k->x[i] = eg__leaf_copy(t->in[i]))) return false;
    k->y = eg__contract_apply(k, k->x);
    k->g = k->y ? eg__contract_noise(k->y, 1) : NULL;
    if (!k->g || !eg__all_finite(k->y)) return false;
    bool any = false;
    for (int i = 0; i < t->count; i++) {
        if (k->x[i]->dtype != EG_F64) continue;
        if (!eg__contract_rule(k->y, k->g, i, &k->r[i])) return false;
        if (k->r[i] && !eg__same_shape(k->r[i], k->x[i])) return false;
        if (k->r[i] && !eg__all_finite(k->r[i])) {
            contract_signs(k, i);
            return false;
        }
        any |= k->r[i] != NULL;
    }
    return any;
}
bool eg__contract(eg_tensor *t, bool any_layout, char *words, size_t size, eg__breach *b)
{
    eg_ctx *cx = t->cx;
    eg__contract_call k = { .t = t, .cx = cx, .words = words, .size = size, .operand = -1 };
    words[0] = 0;
    *b = (eg__breach){ .operand = -1 };
    if (cx->failed) return true;
    const eg_mark m = eg_push(cx);
    const bool was = eg_nograd(cx, false);
    const uint64_t draw = cx->draw;
    bool good = true;
    if (contract_open(&k))
        for (size_t n = 0; n < sizeof contract_list / sizeof *contract_list && good; n++) {
            if (contract_list[n].any_layout && !any_layout) continue;
            if (contract_list[n].elsewhere && eg__only_here(cx)) continue;
            const eg_mark one = eg_push(cx);
            good = contract_list[n].holds(&k);
            if (!good)
                b->elsewhere = contract_list[n].elsewhere, b->writes = contract_list[n].writes;
            eg_pop(cx, one);
            if (cx->failed) break;
        }
    good = good && !words[0];
    if (good) snprintf(words, size, "%s", k.note);
    eg__refused(cx);
    cx->draw = draw;
    eg_nograd(cx, was);
    eg_pop(cx, m);
    b->operand = k.operand;
    return good;
}

/* True if the rule reads g as plain values, so that its result has no gradient with respect to
 * g. */
static bool rule_is_raw(const eg_tensor *t)
{
    eg_ctx *cx = t->cx;
    const eg_mark m = eg_push(cx);
    const bool was = eg_nograd(cx, false);
    bool raw = false;
    for (int i = 0; i < t->count && t->op->rule && t->dtype == EG_F64; i++) {
        eg_tensor *g = eg__contract_noise(t, 1), *d, *cut;
        if (t->in[i]->dtype != EG_F64 || !g) continue;
        if (!eg__contract_rule((eg_tensor *)(uintptr_t)t, g, i, &d) || !d) continue;
        raw |= d != g && eg_path_to(d, g, &cut) == EG_NO_PATH;
    }
    eg__refused(cx);
    eg_nograd(cx, was);
    eg_pop(cx, m);
    return raw;
}

/* True if a node like t has been tested: of the same operation, with equal attributes and
 * shapes. */
static bool tested_already(const eg_tensor *t, eg_tensor *const *asked, int n)
{
    for (int k = 0; k < n; k++) {
        const eg_tensor *o = asked[k];
        bool same = o->op == t->op && o->count == t->count && o->attr_size == t->attr_size &&
                    (!t->attr_size || !memcmp(o->attr, t->attr, t->attr_size));
        for (int i = 0; i < t->count && same; i++) same = eg__same_shape(o->in[i], t->in[i]);
        if (same) return true;
    }
    return false;
}
/* True if t's operation is not tested at other sizes (eg__derivative_at_sizes) and is none of the
 * first n of `asked`. */
static bool sizes_untested(const eg_tensor *t, eg_tensor *const *asked, int n)
{
    for (int k = 0; k < n; k++)
        if (asked[k]->op == t->op) return false;
    return t->attr_size && t->op->rule && t->op->rule != eg_zero_rule;
}
/* Returns the length of all axes of t's operands if there are several and these are alike, as those
 * of square matrices; else 0. Lengths that are equal in f are equal in all tests at other sizes. */
static int64_t length_of_all(const eg_tensor *t)
{
    int64_t length = 0;
    int axes = 0;
    for (int i = 0; i < t->count; i++)
        for (int r = 0; r < t->in[i]->rank; r++, axes++) {
            if (length && t->in[i]->dim[r] != length) return 0;
            length = t->in[i]->dim[r];
        }
    return (axes > t->count || t->rank > 1) && length > 1 ? length : 0;
}
/* Returns words that say why the contracts of t cannot be tested; NULL if they can be. */
static const char *untestable(eg_tensor *t)
{
    if (t->count > EG_ASKED_OPERANDS) return "it has too many operands";
    return t->dtype == EG_F64 && !eg__all_finite(t) ? "its result is not finite" : NULL;
}
/* Notes, once for an operation, that the axes of its operands are alike in each of its calls, of
 * which `before` precede t. */
static void note_alike(eg__trial *c, eg_report *r, const eg_tensor *t, eg_tensor **node,
                       int64_t before, const char *where)
{
    const int64_t length = length_of_all(t);
    if (!length || !t->op->rule || t->op->rule == eg_zero_rule) return;
    for (int64_t k = 0; k < before; k++)
        if (node[k]->op == t->op) return;
    eg__report_note(c, r, EG_RIGHT, -1,
                    "all axes of the operands of %s have %lld elements, so a rule that confuses "
                    "them would pass: check it with different lengths too",
                    where, (long long)length);
}
const char *eg__contract_text(const char *where, int operand, const char *words, char *buffer,
                              size_t size)
{
    if (operand >= 0)
        snprintf(buffer, size, "the rule of %s for operand %d %s", where, operand + 1, words);
    else
        snprintf(buffer, size, "%s %s", where, words);
    return buffer;
}
bool eg__contracts(eg__trial *c, eg_report *r, eg_tensor *y)
{
    eg_tensor **node, *asked[DISTINCT];
    int64_t count;
    int n = 0;
    bool elsewhere = false;
    if (!eg__nodes(y, &count, &node)) return false;
    for (int64_t k = 0; k < count && !c->cx->failed; k++) {
        eg_tensor *t = node[k];
        char words[256], where[256], text[640];
        eg__breach broken;
        c->custom |= t->op && !eg__in_table(t->op);
        if (!t->op || eg__in_table(t->op) || tested_already(t, asked, n)) continue;
        const eg__site at = eg__site_of(t);
        const char *why = n < DISTINCT ? untestable(t) : "others were tested before it";
        if (why && t->op->rule && t->op->rule != eg_zero_rule)
            eg__report_note(c, r, EG_RIGHT, -1, "the contracts of %s were not tested: %s",
                            eg__sites_text(&at, 1, where, sizeof where), why);
        if (n == DISTINCT) break;
        asked[n++] = t;
        const bool kept = eg__contract(t, true, words, sizeof words, &broken);
        const eg_verdict v = kept ? EG_RIGHT : EG_WRONG;
        eg__sites_text(&at, 1, where, sizeof where);
        if (!t->op->jvp && rule_is_raw(t)) {
            c->forwardless = true;
            if (kept)
                eg__report_note(c, r, v, -1,
                                "the rule of %s computes with plain numbers: no forward mode and "
                                "no second order",
                                where);
        }
        if (words[0])
            eg__report_note(c, r, v, -1, "%s",
                            eg__contract_text(where, broken.operand, words, text, sizeof text));
        if (kept && sizes_untested(t, asked, n - 1))
            eg__report_note(c, r, v, -1,
                            "the arguments of %s may contain sizes, so it was tested at the sizes "
                            "of its calls alone",
                            where);
        if (kept) note_alike(c, r, t, node, k, where);
        if (!kept) eg__report_blame(c, r, t->op->name, broken.operand, where);
        elsewhere |= broken.elsewhere;
    }
    if (elsewhere)
        eg__report_note(c, r, EG_RIGHT, -1,
                        "operations are tested at other operands than those in f; outside of its "
                        "domain one gives NaN or fails, or has .samples with low and high; "
                        ".only_here leaves out these operands");
    return !c->cx->failed;
}
