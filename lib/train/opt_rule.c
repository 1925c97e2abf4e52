/* opt_rule.c: optimisers with a custom rule (eg_opt_rule): its checks, and its step on every
 * parameter. */
#include "opt.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RULE_TEXT = 64 }; /* bytes of a name in messages */
_Static_assert((int)EG_OPT_MOMENTS <= (int)EG__MOMENTS,
               "an optimiser has room for the moments of a rule");

/* -- checks and copies ------------------------------------------------------------------------- */
eg_opt_rule eg__rule_whole(const eg_opt_rule *given)
{
    eg_opt_rule r = { .size = sizeof r };
    eg_options(&r, sizeof r, given);
    return r;
}

/* Copies the names of the moments to memory of the owner, and points name[] to them. Returns how
 * many there are; −1 after an error: too many, one that is not a name, or one that occurs twice. */
static int rule_moments(eg_ctx *cx, eg_owner *owner, const eg_opt_rule *r,
                        const char *name[EG_OPT_MOMENTS])
{
    int n = 0;
    const char *at = r->moments ? r->moments : "";
    for (const char *end; *(at += strspn(at, " ")); at = end, n++) {
        end = at + strcspn(at, " ");
        const size_t length = (size_t)(end - at);
        for (const char *c = at; c < end; c++)
            if (!isalnum((unsigned char)*c) && *c != '_')
                return eg_fail_as(
                           cx, EG_ERROR_MISUSE,
                           "%s: the moment \"%.*s\" has a character that is no letter, digit "
                           "or '_'",
                           r->name, (int)length, at),
                       -1;
        if (n == EG_OPT_MOMENTS)
            return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: more than %d moments", r->name,
                              EG_OPT_MOMENTS),
                   -1;
        char *copy = eg_owner_alloc(owner, length + 1);
        if (!copy) return -1;
        name[n] = memcpy(copy, at, length);
        for (int k = 0; k < n; k++)
            if (!strcmp(name[k], copy))
                return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: the moment \"%s\" occurs twice",
                                  r->name, copy),
                       -1;
    }
    return n;
}

bool eg__rule_sound(eg_ctx *cx, const char *who, const eg_opt_rule *r)
{
    if (!r->name || !*r->name)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: .rule has no .name", who);
    else if (eg__opt_built_in(r->name))
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: .rule has the name \"%s\" of a built-in optimiser",
                   who, r->name);
    else if (strlen(r->name) >= RULE_TEXT || r->name[strcspn(r->name, "\r\n")])
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: .rule has a name with a line end, or of %d bytes or more", who, RULE_TEXT);
    else if (!r->update)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: .rule \"%s\" has no .update", who, r->name);
    else if (r->elementwise && r->shape)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: .rule \"%s\" has .elementwise, and so its moments have the parameter's "
                   "shape; it has .shape, too",
                   who, r->name);
    return !eg_error(cx);
}

const eg_opt_rule *eg__rule_copy(eg_owner *owner, const eg_opt_rule *given)
{
    const eg_opt_rule whole = eg__rule_whole(given);
    const char *moments = whole.moments ? whole.moments : "";
    eg_opt_rule *r = eg_owner_alloc(owner, sizeof *r);
    char *name = eg_owner_alloc(owner, strlen(whole.name) + 1),
         *names = eg_owner_alloc(owner, strlen(moments) + 1);
    if (!r || !name || !names) return NULL;
    *r = whole;
    r->size = sizeof *r, r->name = strcpy(name, whole.name), r->moments = strcpy(names, moments);
    return r;
}

const char *eg__rule_config(eg_ctx *cx, const eg_opt_rule *r, eg_owner *owner)
{
    char none[1] = "";
    const int n = r && r->config ? r->config(r->user, none, sizeof none) : 0;
    char *text = n < 0 ? NULL : eg_owner_alloc(owner, (size_t)n + 1);
    if (n < 0) eg_fail_as(cx, EG_ERROR_MISUSE, "%s: .config gave no text", r->name);
    if (text && n) r->config(r->user, text, (size_t)n + 1);
    return text;
}

/* Returns the kind of optimiser with a copy of this rule; NULL after an error. */
static eg__opt_kind *rule_kind(eg_params *p, const eg_opt_rule *given)
{
    eg_ctx *cx = eg_params_context(p);
    const eg_opt_rule whole = eg__rule_whole(given);
    if (!eg__rule_sound(cx, "opt_custom", &whole)) return NULL;
    eg__opt_kind *kind = eg_params_alloc(p, sizeof *kind);
    const eg_opt_rule *r = kind ? eg__rule_copy(eg_params_owner(p), given) : NULL;
    if (!r) return NULL;
    *kind = (eg__opt_kind){ .name = r->name, .lr = 1e-3, .rule = r };
    return rule_moments(cx, eg_params_owner(p), r, kind->moment) < 0 ? NULL : kind;
}

int eg__rule_shape(const eg_opt *op, const eg_named *x, int m, int64_t dims[EG_RANK_MAX])
{
    const eg_opt_rule *r = op->kind->rule;
    int rank = eg_rank(x->x);
    if (r && r->shape) {
        rank = r->shape(r->user, x, m, dims);
        bool good = rank <= EG_RANK_MAX;
        for (int k = 0; good && k < rank; k++) good = dims[k] >= 0;
        if (good) return rank < 0 ? -1 : rank;
        eg_fail_as(op->cx, EG_ERROR_MISUSE,
                   "%s: .shape gave no valid shape for the moment \"%s\" of \"%s\"", r->name,
                   op->kind->moment[m], x->name);
        return -1;
    }
    for (int k = 0; k < rank; k++) dims[k] = eg_dim(x->x, k);
    return rank;
}

/* -- a step ----------------------------------------------------------------------------------- */
/* Calls update for one parameter. Returns false after an error. */
static bool rule_call(eg_ctx *cx, const eg_opt_rule *r, const eg_opt_rule_step *s)
{
    if (eg_error(cx)) return false;
    const int bad = r->update(r->user, s);
    if (bad && !eg_error(cx))
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: .update of \"%s\" returned %d", r->name, s->name, bad);
    else if (eg_error(cx))
        eg_fail_in(cx, "%s: \"%s\"", r->name, s->name);
    return !eg_error(cx);
}

/* The n numbers from `from` on of memory of this type, as a tensor with one axis. */
static eg_tensor *rule_line(eg_ctx *cx, eg_dtype type, const void *numbers, int64_t from, int64_t n,
                            bool writable)
{
    const size_t width = type == EG_F64 ? sizeof(double) : sizeof(float);
    const char *first = numbers ? (const char *)numbers + (size_t)from * width : NULL;
    return eg_from_memory(cx, type, first, 1, &n, .writable = writable);
}

/* Updates parameter k of one copy: the elements of this rank. group: the optimiser of all copies.
 * False after an error. */
static bool rule_parameter(eg_opt *group, int64_t copy, int k)
{
    eg_opt *op = eg__opt_at(group, copy);
    const eg_opt_rule *r = op->kind->rule;
    const eg__coefficients *c = &op->c[op->same[k]];
    const eg_dtype type = eg_type(group->x[k]);
    const eg_span own = eg__opt_own(group, k);
    const int64_t n = own.to - own.from, at = copy * group->size[k] + own.from;
    const size_t width = type == EG_F64 ? sizeof(double) : sizeof(float);
    const bool divided = group->ranks != NULL;
    eg_tensor *moment[EG__MOMENTS] = { NULL };
    if (!n) return true;
    void *numbers = eg__opt_numbers(group->x[k]); /* counts as a change, of all copies */
    if (eg_error(op->cx))
        return eg_fail_in(op->cx, "%s: \"%s\"", op->kind->name, op->name[k]), false;
    const void *g = (const char *)group->at[k] + (size_t)(copy * group->size[k]) * width;
    eg_opt_rule_step s = { .name = op->name[k],
                           .moment = moment,
                           .lr = c->eta,
                           .weight_decay = op->of[k].weight_decay,
                           .step = c->t };
    for (int m = 0; m < EG__MOMENTS; m++) {
        moment[m] = op->moment[m][k];
        if (moment[m] && r->elementwise)
            moment[m] = rule_line(op->cx, type, eg__opt_numbers(moment[m]), divided ? 0 : own.from,
                                  n, true);
    }
    if (r->elementwise) {
        s.x = rule_line(op->cx, type, numbers, at, n, true);
        s.g = rule_line(op->cx, type, g, own.from, n, false);
    } else {
        s.x = op->x[k];
        s.g = eg_from_memory(op->cx, type, g, eg_rank(s.x), eg_dims(s.x));
    }
    if (isfinite(c->limit)) s.g = eg_clip(s.g, -c->limit, c->limit);
    if (c->coef < 1) s.g = eg_scale(s.g, c->coef);
    return rule_call(op->cx, r, &s);
}
bool eg__rule_apply(eg_opt *op)
{
    bool good = true;
    const bool was = eg_nograd(op->cx, true);
    const eg_copies *copies = op->count ? eg_copies_of(op->x[0]) : NULL;
    const uint64_t seed = eg_seed_of(op->cx), draws = eg_draws(op->cx);
    for (int64_t copy = 0; good && copy < op->copies; copy++) {
        if (copies) { /* a rule that draws gets the numbers of a single model */
            eg_seed(op->cx, eg_copies_seed(copies, copy));
            eg_set_draws(op->cx, draws);
        }
        for (int k = 0; good && k < op->count; k++) {
            if (!op->at[k]) continue;
            const eg_mark m = eg_push(op->cx);
            good = rule_parameter(op, copy, k);
            eg_pop(op->cx, m);
        }
    }
    if (copies) {
        const uint64_t next = eg_draws(op->cx);
        eg_seed(op->cx, seed);
        eg_set_draws(op->cx, next);
    }
    eg_nograd(op->cx, was);
    return good && !eg_error(op->cx);
}

/* -- is the rule elementwise? ------------------------------------------------------------------ */
enum { RULE_TESTED = EG__CHUNK + 20 }; /* a chunk, at whose end a range may end, and some more */
/* Random numbers in [0.1, 1), which are the same for every call with that number. */
static eg_tensor *rule_numbers(const eg_opt *op, int64_t number)
{
    eg_rng rng = { 1, (uint64_t)number, 0 };
    double value[RULE_TESTED];
    for (int k = 0; k < RULE_TESTED; k++)
        value[k] = 0.1 + 0.9 * (double)eg_rng_below(&rng, 1 << 30) / (1 << 30);
    eg_tensor *x = eg_from_n(op->cx, EG_F64, value, 1, &(int64_t){ RULE_TESTED });
    return eg_copy(eg_cast(x, eg_type(op->x[0])));
}
/* Makes a step with the numbers [from, to) of x and the moments. False after an error. */
static bool rule_part(eg_opt *op, eg_tensor *x, eg_tensor *const *moment, int64_t from, int64_t to)
{
    const eg_opt_rule *r = op->kind->rule;
    const eg_dtype type = eg_type(x);
    eg_tensor *part[EG__MOMENTS] = { NULL };
    for (int m = 0; m < EG__MOMENTS && op->kind->moment[m]; m++)
        part[m] = rule_line(op->cx, type, eg__opt_numbers(moment[m]), from, to - from, true);
    eg_opt_rule_step s = { .name = op->name[0],
                           .x = rule_line(op->cx, type, eg__opt_numbers(x), from, to - from, true),
                           .g = eg_slice_axis(rule_numbers(op, -1), 0, from, to, 1),
                           .moment = part,
                           .lr = 0.01,
                           .weight_decay = 0.1,
                           .step = 2 };
    return rule_call(op->cx, r, &s);
}
static bool rule_same(eg_tensor *a, eg_tensor *b)
{
    const size_t width = eg_type(a) == EG_F64 ? sizeof(double) : sizeof(float);
    const void *one = eg_raw(a, NULL), *two = eg_raw(b, NULL);
    return one && two && !memcmp(one, two, (size_t)eg_size(a) * width);
}
/* True if the rule is elementwise, or does not say so; else records an error. A step on a tensor
 * and on its two parts has to give the same bits; else results would depend on the number of ranks.
 */
static bool rule_is_elementwise(eg_opt *op)
{
    const eg_opt_rule *r = op->kind->rule;
    if (!r->elementwise) return true;
    const eg_mark mark = eg_push(op->cx);
    const bool was = eg_nograd(op->cx, true);
    eg_tensor *x[2], *moment[2][EG__MOMENTS] = { { NULL } };
    for (int k = 0; k < 2; k++) {
        x[k] = rule_numbers(op, 0);
        for (int m = 0; m < EG__MOMENTS && op->kind->moment[m]; m++)
            moment[k][m] = rule_numbers(op, 1 + m);
    }
    bool same = rule_part(op, x[0], moment[0], 0, RULE_TESTED) &&
                rule_part(op, x[1], moment[1], 0, EG__CHUNK) &&
                rule_part(op, x[1], moment[1], EG__CHUNK, RULE_TESTED) && rule_same(x[0], x[1]);
    for (int m = 0; same && m < EG__MOMENTS && op->kind->moment[m]; m++)
        same = rule_same(moment[0][m], moment[1][m]);
    if (!same && !eg_error(op->cx))
        eg_fail_as(op->cx, EG_ERROR_MISUSE,
                   "%s: .rule has .elementwise, but a step of %d numbers differs from those of its "
                   "first %d and its last %d",
                   r->name, RULE_TESTED, EG__CHUNK, RULE_TESTED - EG__CHUNK);
    eg_nograd(op->cx, was);
    eg_pop(op->cx, mark);
    return !eg_error(op->cx);
}

eg_opt *eg_opt_custom_with(const eg_opt_args *given)
{
    eg_opt_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg_ctx *cx = o.params ? eg_params_context(o.params) : NULL;
    if (!o.params)
        eg_fail_as(NULL, EG_ERROR_MISUSE, "opt_custom: the list of parameters is NULL");
    else if (!o.rule && !eg_error(cx))
        eg_fail_as(cx, EG_ERROR_MISUSE, "opt_custom: .rule is NULL");
    if (!o.params || eg_error(cx)) return NULL;
    const eg__opt_kind *kind = rule_kind(o.params, o.rule);
    eg_opt *op = kind ? eg__opt_open(kind, &o) : NULL;
    return op && rule_is_elementwise(op) ? op : NULL;
}
