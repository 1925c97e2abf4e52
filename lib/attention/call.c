/* call.c: eg_attention: checks the options, finds or makes the plan of the call, chooses the form,
 * and computes y and the other results. A plan depends on strings, dtypes and sizes only, and is
 * kept in the context's cache for later calls. */
#include "attention/bind_call.h"
#include <math.h>
#include <string.h>

/* -- functions of the caller, and further results --------------------------------------------- */
/* Applies a function of the caller to the scores or weights s and returns its result, or poison
 * after an error. The function gets the axes in the order of .weights_axes. Messages name
 * `option` and, as `what`, "scores" or "weights". */
static eg_tensor *changed(eg_tensor *(*f)(void *, eg_tensor *), const char *option,
                          const char *what, void *user, eg_tensor *s, int rank, const int *order)
{
    int back[EG_RANK_MAX];
    char have[256], want[256];
    if (!eg_ok(s)) return s;
    for (int k = 0; k < rank; k++) back[order[k]] = k;
    const eg_switches was = eg_switches_of(s->cx);
    eg_tensor *x = eg_permute_n(s, rank, order), *y = f(user, x);
    if (!eg__switches_kept(s->cx, was, "attention", option)) return eg__poison(s->cx);
    if (!y) return eg_fail_as(s->cx, EG_ERROR_MISUSE, "attention: %s returned NULL", option);
    snprintf(have, sizeof have, "the result of %s", option);
    if (!eg__check_option(s->cx, "attention", have, NULL, EG_TAKES_NUMBERS, y))
        return eg__poison(s->cx);
    if (!eg__same_shape(x, y) || y->dtype != x->dtype)
        return eg_fail_as(s->cx, y->dtype == x->dtype ? EG_ERROR_SHAPE : EG_ERROR_DTYPE,
                          "attention: %s returned %s %s for %s that are %s %s", option,
                          eg_type_name(y->dtype), eg__dims_text(y, have, sizeof have), what,
                          eg_type_name(x->dtype), eg__dims_text(x, want, sizeof want));
    return eg_permute_n(y, rank, back);
}
int64_t eg__attention_count(eg_tensor *x)
{
    return (int64_t)eg_item(eg_sum(NULL, eg_copies_of(x) ? eg_copies_stack(x) : x));
}
static void count_empty(eg_tensor *weights, int inner, int64_t *empty)
{
    *empty =
        eg__attention_count(eg_eq(eg__sum_last(eg_detach(weights), inner), eg__zero_like(weights)));
}
/* Returns x, whose axes are those of the scores' rows, with the axes in the order of the
 * weights. */
static eg_tensor *rows_ordered(const eg_attention_plan *a, eg_tensor *x, const int *order)
{
    const int rows = a->scores - a->inner;
    int axes[EG_RANK_MAX], n = 0;
    for (int k = 0; k < a->scores; k++)
        if (order[k] < rows) axes[n++] = order[k];
    return eg_permute_n(x, rows, axes);
}

/* -- plans of earlier calls: the same strings, types and sizes give the same plan ------------- */
/* An entry of the plan cache: the order of the weights' axes. The plan follows it in memory. */
typedef struct bind_cached {
    int order[EG_RANK_MAX];
    _Alignas(16) size_t bytes;
} bind_cached;
/* The key of a call in the plan cache, with room for its text and its list of operands. */
typedef struct call_key {
    eg_plan_key key;
    eg_key_text text;
    eg_tensor *x[EG_CALL_TERMS + EG_GIVEN_MAX];
} call_key;
static void put_text(eg_key_text *t, const char *text)
{
    eg__key_put(t, text ? strlen(text) + 1 : 1, text ? text : "");
}
/* Makes the key of a call from its strings, the options that binding reads, and the given
 * operands, which are listed in k->x. False if the text does not fit; the call is then not
 * cached. */
static bool attention_key(eg_ctx *cx, call_key *k, const eg_attention_call *c)
{
    const eg_attention_args *o = &c->o;
    /* a captured step has a plan of its own, which wider bounds are for (eg__given_widen) */
    uint16_t there = (uint16_t)(o->no_softmax << 15 | eg__capturing(cx) << 14);
    int8_t term[EG_MASKS];
    int count = 0;
    for (int t = 0; t < c->terms; t++)
        if (c->x[t]) {
            there |= (uint16_t)(1 << t);
            k->x[count++] = c->x[t];
        }
    for (int m = 0; m < EG_MASKS; m++) term[m] = (int8_t)c->mask[m].term;
    k->text.length = 0;
    k->text.fits = true;
    eg__key_put(&k->text, sizeof o->scale, &o->scale);
    eg__key_put(&k->text, sizeof o->offset, &o->offset);
    eg__key_put(&k->text, sizeof term, term);
    eg__key_put(&k->text, sizeof there, &there);
    put_text(&k->text, c->spec);
    put_text(&k->text, o->offset_letter);
    put_text(&k->text, o->where);
    if (o->score) put_text(&k->text, o->score);
    for (int g = 0; g < EG_GIVEN_MAX && o->with[g].name; g++) {
        put_text(&k->text, o->with[g].name);
        k->x[count++] = o->with[g].x;
    }
    k->key = (eg_plan_key){ EG_KEY_ATTENTION, count, k->text.length, k->text.text, k->x };
    return k->text.fits;
}
/* Adds the plan to the cache. */
static void remember(eg_ctx *cx, const eg_plan_key *key, const eg_attention_plan *a,
                     const int *order)
{
    const size_t bytes = eg__attention_bytes(a);
    bind_cached *k = eg__plans_add(cx, key, sizeof *k + bytes);
    if (!k) return;
    memcpy(k->order, order, sizeof k->order);
    k->bytes = bytes;
    memcpy(k + 1, a, bytes);
}

/* Copies the plan of an earlier call with the same key, and lists the operands of this call in
 * x. NULL if there is none whose bounds hold for these operands; NULL also after an error. */
static eg_attention_plan *remembered(eg_ctx *cx, const eg_plan_key *key, const eg_attention_call *c,
                                     eg_tensor **x, int *order)
{
    const bind_cached *m = eg__plans_find(cx, key);
    eg_tensor *given[EG_MASKS];
    if (!m) return NULL;
    for (int k = 0; k < EG_MASKS; k++)
        given[k] = c->mask[k].term < 0 ? NULL : c->x[c->mask[k].term];
    memcpy(x, c->x, 3 * sizeof *x);
    x[EG_TERM_SINK] = given[EG_MASK_SINK];
    eg__attention_tensors(&c->o, given, x + EG_TERMS);
    const eg_attention_plan *of = (const void *)(m + 1);
    if (!eg__attention_within(of, x + EG_TERMS)) return NULL;
    eg_attention_plan *a = eg__alloc(cx, m->bytes);
    if (!a) return NULL;
    memcpy(order, m->order, sizeof m->order);
    return memcpy(a, of, m->bytes);
}
/* Returns the plan of a call, from the cache or by binding the string, and sets x to its operands
 * and order[] to the order of the weights' axes. *known: the plan is of an earlier call, and r is
 * not set. NULL after an error. */
static eg_attention_plan *plan_of_call(eg_ctx *cx, const eg_attention_call *c, eg_call_roles *r,
                                       bool *known, eg_tensor **x, int *order)
{
    call_key key;
    const bool keyed = attention_key(cx, &key, c);
    eg_attention_plan *a = keyed ? remembered(cx, &key.key, c, x, order) : NULL;
    *known = a != NULL;
    if (a) return a;
    memset(x, 0, EG_ATTENTION_OPERANDS * sizeof *x);
    a = eg__call_bind(c, r, x, order);
    if (a && keyed && eg__call_is_as_given(c, r, a)) remember(r->bound->cx, &key.key, a, order);
    return a;
}

/* -- the two forms ------------------------------------------------------------------------- */
/* Returns the scores for the output .scores. They are left · s, where s was computed for the
 * softmax, if s is the same for forbidden pairs as for allowed ones; else they are computed again
 * for all pairs. */
static eg_tensor *all_scores(const eg_attention_args *o, const eg_attention_plan *a,
                             const eg_attention_masks *m, eg_tensor *const *x, eg_tensor *s,
                             double left)
{
    if (!s || (m->n && !o->score_fn && (a->score_bytes || a->careful)))
        s = eg__attend_scores(a, NULL, x, &left);
    return left == 1 || !eg_ok(s) ? s : eg_scale(s, left);
}
/* Casts keys and values of f16 and bf16 to the type of the query unless einsum alone reads them:
 * tiles, products that leave out forbidden elements, and gradients need them in that type. False
 * after an error. */
static bool operands_cast(const eg_attention_plan *a, bool fused, eg_tensor **x)
{
    const eg_tensor *q = x[EG_TERM_Q];
    for (int t = EG_TERM_K; t <= EG_TERM_V; t++)
        if (eg__is_half(x[t]->dtype) && (fused || a->careful || eg__recording(q->cx)) &&
            !eg_ok(x[t] = eg_cast(x[t], (eg_dtype)q->dtype)))
            return false;
    return true;
}
static bool is_fused(const eg_attention_args *o, const eg_attention_plan *a, eg_dtype type)
{
    return !o->score_fn && !o->weights_fn &&
           (o->form == EG_FUSED ? eg__fused_possible(a, type)
                                : o->form != EG_UNFUSED && eg__fused_suits(a, type));
}
/* Computes y and the other outputs of the call, in the unfused or the fused form. r NULL: y
 * already has the axes of the output. */
static eg_tensor *compute(const eg_attention_args *o, const eg_call_roles *r,
                          const eg_attention_plan *a, bool fused, eg_tensor **x, const int *order)
{
    eg_tensor *s = NULL, *w = NULL, *d = NULL, *lse = NULL, *max = NULL, *y;
    double left = 1;
    if (!operands_cast(a, fused, x)) return eg__poison(x[EG_TERM_Q]->cx);
    eg_attention_masks m = { 0 };
    const bool unfused = !fused || o->weights || o->dropped;
    if (unfused && (m = eg__attend_masks(a, x)).n < 0) return eg__poison(x[0]->cx);
    /* .score_fn may read the scores of forbidden pairs, which then have gradients. If an operand is
     * not finite or very large, it reads 0 there, since NaN times a cotangent of 0 is NaN. */
    if (unfused) s = eg__attend_scores(a, o->score_fn && !a->careful ? NULL : &m, x, &left);
    if (o->score_fn) {
        s = changed(o->score_fn, ".score_fn", "scores", o->user, eg_scale(s, left), a->scores,
                    order);
        left = 1;
    }
    if (unfused) w = eg__attend_weights(a, &m, x, s, left);
    if (o->weights_fn)
        w = changed(o->weights_fn, ".weights_fn", "weights", o->user, w, a->scores, order);
    if (o->scores) *o->scores = eg_permute_n(all_scores(o, a, &m, x, s, left), a->scores, order);
    if (left != 1 && a->wants_lse && !fused) s = eg_scale(s, left);
    if (!fused || o->dropped) d = a->dropping && w ? eg__drop(&a->drop, w) : w;
    y = fused ? eg__fused(a, x, x[EG_TERM_SINK] ? NULL : o->empty, &lse, &max)
              : eg__attend_values(a, &m, x, d);
    if (!eg_ok(y)) return y;
    if (o->empty && !fused && !x[EG_TERM_SINK]) count_empty(w, a->inner, o->empty);
    if (o->lse && !fused) lse = eg__attend_lse(a, &m, x, s);
    if (o->lse) *o->lse = rows_ordered(a, lse, order);
    if (o->max_scores && !fused) max = eg__attend_max(a, &m, x, s);
    if (o->max_scores) *o->max_scores = rows_ordered(a, max, order);
    if (o->weights) *o->weights = eg_permute_n(w, a->scores, order);
    if (o->dropped) *o->dropped = eg_permute_n(d, a->scores, order);
    return r ? eg__call_result(r, a, y) : y;
}

/* -- eg_attention --------------------------------------------------------------------------- */
/* True if the options can be combined and have valid values; else records an error. */
static bool options_fit(eg_ctx *cx, const eg_attention_args *o)
{
    const double dropout = eg_option(o->dropout, 0);
    const char *refused = !o->no_softmax  ? NULL
                          : o->lse        ? ".lse"
                          : o->empty      ? ".empty"
                          : o->sink.x     ? ".sink"
                          : o->max_scores ? ".max_scores"
                                          : NULL;
    if (!isfinite(o->scale))
        eg_fail_as(cx, EG_ERROR_MISUSE, "attention: .scale is %g; it must be finite", o->scale);
    else if (!(dropout >= 0 && dropout <= 1))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "attention: .dropout: %g is not a probability; it must lie in [0, 1]", dropout);
    else if (o->ranks_block < 0)
        eg_fail_as(cx, EG_ERROR_MISUSE, "attention: .ranks_block is %lld",
                   (long long)o->ranks_block);
    else if (o->form < EG_FORM_BY_SIZE || o->form > EG_UNFUSED)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "attention: .form is %d; it is EG_FUSED or EG_UNFUSED, or not given",
                   (int)o->form);
    else if (o->form == EG_FUSED && (o->score_fn || o->weights_fn))
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "attention: .form is EG_FUSED, but %s works on %s in memory, which that form "
                   "does not have",
                   o->score_fn ? ".score_fn" : ".weights_fn", o->score_fn ? "scores" : "weights");
    else if (o->max_scores && o->sink.x)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "attention: .max_scores is not supported with .sink, which counts as a score");
    else if (refused)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "attention: %s needs a softmax, but .no_softmax is given", refused);
    return !eg__failed(cx);
}
/* Casts tensors of .with of storage types; `was` gets the dtypes before. True if none is NULL and
 * each that has floats has the type of the query; else records an error. */
static bool with_fits(eg_ctx *cx, eg_attention_args *o, eg_dtype *was)
{
    if (!eg__given_cast(cx, "attention", (eg_dtype)o->q->dtype, o->with, was)) return false;
    for (int k = 0; k < EG_GIVEN_MAX && o->with[k].name; k++) {
        eg_tensor *x = o->with[k].x;
        if (!x)
            return eg_fail_as(cx, EG_ERROR_MISUSE, "attention: '%.40s' of .with is NULL",
                              o->with[k].name),
                   false;
        if (!eg__check_option(cx, "attention", ".with", o->with[k].name, EG_TAKES_NUMBERS, x))
            return false;
        if (!eg__is_inexact(x->dtype) || x->dtype == o->q->dtype) continue;
        return eg__names_refuse(cx, "attention", o->where, o->score, 1, &o->with[k].name,
                                EG_ERROR_DTYPE,
                                "the query is %s but '%.40s' of .with is %s; eg_cast one of them",
                                eg_type_name(o->q->dtype), o->with[k].name, eg_type_name(x->dtype));
    }
    return true;
}

/* Casts masks of storage types. False after an error. */
static bool masks_cast(eg_ctx *cx, eg_attention_args *o)
{
    static const char who[] = "attention";
    const eg_dtype scores = (eg_dtype)o->q->dtype;
    return eg__mask_cast(cx, who, ".keep", EG_DEFAULT, &o->keep) &&
           eg__mask_cast(cx, who, ".lengths", EG_DEFAULT, &o->lengths) &&
           eg__mask_cast(cx, who, ".bias", scores, &o->bias) &&
           eg__mask_cast(cx, who, ".alibi", scores, &o->alibi) &&
           eg__mask_cast(cx, who, ".sink", scores, &o->sink);
}

/* False, after an error, if query, key or value is i8 or u8. */
static bool no_storage_type(eg_ctx *cx, const eg_attention_call *c)
{
    for (int k = 0; k < 3; k++) {
        const eg_tensor *x = c->x[k];
        if (!eg_ok(x) || !eg__is_storage(x->dtype) || eg__is_half(x->dtype)) continue;
        return eg_fail_as(cx, EG_ERROR_DTYPE,
                          "attention: %s is %s, which is a storage type; eg_cast it to f32 or f64 "
                          "first",
                          c->called[k], eg_type_name((eg_dtype)x->dtype)),
               false;
    }
    return true;
}
/* Casts the query to the type of the scores: f64 if an operand is f64, else f32. Keys and values of
 * f16 and bf16 remain as they are, unless the length is divided among ranks. False after an error:
 * operands of integers, or of two types that are not f16 or bf16. */
static bool types_fit(eg_ctx *cx, eg_attention_call *c)
{
    eg_tensor **const xs = c->x;
    const char *const *called = c->called;
    int first = -1;
    for (int k = 0; k < 3; k++) {
        const eg_dtype type = (eg_dtype)xs[k]->dtype;
        if (eg__is_half(type)) continue;
        if (!eg__is_inexact(type))
            return eg_fail_as(cx, EG_ERROR_DTYPE,
                              "attention: %s is %s; cast it to f32 or f64 first", called[k],
                              eg_type_name(type)),
                   false;
        if (first < 0) first = k;
        if (type != xs[first]->dtype)
            return eg_fail_as(cx, EG_ERROR_DTYPE,
                              "attention: %s is %s but %s is %s; eg_cast one of them",
                              called[first], eg_type_name((eg_dtype)xs[first]->dtype), called[k],
                              eg_type_name(type)),
                   false;
    }
    const eg_dtype type = first < 0 ? EG_F32 : (eg_dtype)xs[first]->dtype;
    for (int k = 0; k < (c->o.ranks ? 3 : 1); k++)
        if (eg__is_half(xs[k]->dtype) && !eg_ok(xs[k] = eg_cast(xs[k], type))) return false;
    c->o.q = xs[0], c->o.k = xs[1], c->o.v = xs[2];
    return true;
}
/* True if no captured step is recorded that could not repeat the call; else records an error. */
static bool capture_allows(eg_ctx *cx, const eg_attention_args *o)
{
    if (o->ranks && eg__capture_refuses(cx, "attention", "processes cannot wait for each other"))
        return false;
    return !o->empty || o->sink.x ||
           !eg__capture_refuses(cx, "attention", ".empty would not be counted again in each run");
}
/* Returns the copies of the operands; NULL: none has copies. */
static const eg_copies *copies_of_any(eg_tensor *const x[EG_ATTENTION_OPERANDS])
{
    const eg_copies *c = NULL;
    for (int k = 0; k < EG_ATTENTION_OPERANDS && !c; k++)
        if (x[k]) c = eg_copies_of(x[k]);
    return c;
}
/* True if operands and options can be used; else records an error. */
static bool call_fits(eg_ctx *cx, eg_attention_call *c)
{
    eg_attention_args *const o = &c->o;
    if (!cx || !no_storage_type(cx, c)) return false;
    if (!eg__check_taken(cx, "attention", EG_TAKES_HALVES, 3, c->x)) return false;
    if (!o->spec) eg_fail_as(cx, EG_ERROR_MISUSE, "attention: the spec is NULL");
    return o->spec && options_fit(cx, o) && types_fit(cx, c) && with_fits(cx, o, c->was) &&
           masks_cast(cx, o) && capture_allows(cx, o);
}
eg_tensor *eg_attention_with(const eg_attention_args *given)
{
    eg_attention_call c = { .o = { .size = sizeof c.o },
                            .called = { "the query", "the key", "the value" } };
    eg_attention_args *const o = &c.o;
    eg_options(o, sizeof *o, given);
    c.x[0] = o->q, c.x[1] = o->k, c.x[2] = o->v;
    eg_ctx *cx = eg__context_of("attention", 3, c.x);
    eg_tensor **const out[] = { o->weights, o->dropped, o->scores, o->lse, o->max_scores };
    for (size_t k = 0; k < sizeof out / sizeof *out; k++)
        if (out[k]) *out[k] = eg__poison(cx);
    if (o->empty) *o->empty = 0;
    if (!call_fits(cx, &c)) {
        /* the other ranks wait for this one: they have its error after the barrier */
        if (cx && eg_ranks_context(o->ranks) == cx) eg_ranks_barrier(o->ranks);
        return eg__poison(cx);
    }
    if (o->ranks) return eg__attention_ring(cx, o);
    c.mask[EG_MASK_KEEP] = (eg_mask_option){ ".keep", o->keep, -1 };
    c.mask[EG_MASK_BIAS] = (eg_mask_option){ ".bias", o->bias, -1 };
    c.mask[EG_MASK_LENGTHS] = (eg_mask_option){ ".lengths", o->lengths, -1 };
    c.mask[EG_MASK_ALIBI] = (eg_mask_option){ ".alibi", o->alibi, -1 };
    c.mask[EG_MASK_SINK] = (eg_mask_option){ ".sink", o->sink, -1 };
    c.terms = 3;
    c.spec = eg__masks_spec(cx, "attention", o->spec, EG_MASKS, c.mask, o->weights_axes, c.x,
                            c.called, &c.terms);
    if (!c.spec) return eg__poison(cx);
    eg_call_roles r;
    eg_tensor *x[EG_ATTENTION_OPERANDS] = { NULL };
    int order[EG_RANK_MAX];
    bool known;
    eg_attention_plan *a = plan_of_call(cx, &c, &r, &known, x, order);
    if (!a) return eg__poison(cx);
    for (int t = 0; t < a->tensors; t++)
        if (eg__is_int(x[EG_TERMS + t]->dtype) &&
            !eg__extremes_act("attention", x[EG_TERMS + t], a->least[t], a->most[t]))
            return eg__poison(cx);
    a->dropping = eg__drop_draw(cx, eg_option(o->dropout, 0), copies_of_any(x), &a->drop);
    a->wants_lse = o->lse || o->max_scores;
    a->wants_max = o->max_scores != NULL;
    a->rescored = o->score_fn || o->score;
    const bool fused = is_fused(o, a, (eg_dtype)x[EG_TERM_Q]->dtype);
    a->careful = eg__attention_reads_nonfinite(a, x, fused);
    if (a->careful || a->no_softmax) eg__attention_be_strict(a);
    return eg__failed(cx) ? eg__poison(cx) : compute(o, known ? NULL : &r, a, fused, x, order);
}
