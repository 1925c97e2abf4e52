/* decode.c: generates sequences by a step function: greedily, by random draws, or by beam
 * search. */
#include <eingrad/decode.h>
#include <eingrad/train.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NO_END = -1 };

/* A token that may follow the unfinished prefix with number `row`. */
typedef struct candidate {
    int64_t row;
    int32_t token;
    double log_p;
} candidate;
/* A token and its weight in a draw. */
typedef struct weighed {
    double x;
    int32_t token;
} weighed;

typedef struct decoder {
    eg_decode_args o;
    eg_owner *owner;
    int64_t capacity, length; /* tokens of a prefix: largest number, present number */
    int64_t classes;          /* number of logits for a prefix; 0: not known yet */
    int32_t *tokens;          /* the tokens of the prefixes: eg_prefixes.tokens */
    int64_t *from;            /* eg_prefixes.from */
    double *log_p;            /* ln p of the tokens after one prefix */
    weighed *order;           /* the tokens after one prefix, for a draw */
    eg_decoded out;
    eg_sequence *found; /* the best sequences so far, in order */
} decoder;

/* -- arguments -------------------------------------------------------------------------------- */
static bool draws(const eg_decode_args *o) { return o->temperature > 0; }

/* Fills in the defaults. False, after an error, if an option is out of range. */
static bool decode_settle(eg_decode_args *o)
{
    eg_ctx *cx = o->cx;
    bool wants = o->top_k != 0 || o->top_p != 0; /* NaN is not 0 */
    o->temperature = eg_option(o->temperature, wants);
    o->top_p = o->top_p != 0 ? o->top_p : 1;
    o->end = (int32_t)eg_option(o->end, NO_END);
    o->beam = o->beam ? o->beam : 1;
    o->length_power = eg_option(o->length_power, 1);
    if (!o->next)
        eg_fail_as(cx, EG_ERROR_MISUSE, "decode: the step function is NULL");
    else if (!o->prompt || o->prompt_length < 1)
        eg_fail_as(cx, EG_ERROR_MISUSE, "decode: the prompt is empty");
    else if (o->max_new_tokens < 1 || o->max_new_tokens > INT32_MAX || o->prompt_length > INT32_MAX)
        eg_fail_as(
            cx, EG_ERROR_MISUSE,
            "decode: max_new_tokens must be from 1 to 2^31 − 1, not %lld after a prompt of %lld",
            (long long)o->max_new_tokens, (long long)o->prompt_length);
    else if (!(o->temperature >= 0 && o->temperature < INFINITY))
        eg_fail_as(cx, EG_ERROR_MISUSE, "decode: the temperature must be positive, not %g",
                   o->temperature);
    else if (o->top_k < 0)
        eg_fail_as(cx, EG_ERROR_MISUSE, "decode: top_k must be positive, not %lld",
                   (long long)o->top_k);
    else if (!(o->top_p > 0 && o->top_p <= 1))
        eg_fail_as(cx, EG_ERROR_MISUSE, "decode: top_p must be above 0 and at most 1, not %g",
                   o->top_p);
    else if (o->beam < 1 || o->beam > 1 << 16)
        eg_fail_as(cx, EG_ERROR_MISUSE, "decode: beam must be from 1 to 65536, not %lld",
                   (long long)o->beam);
    else if (o->beam > 1 && (draws(o) || wants))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "decode: a beam of %lld draws nothing; leave temperature, top_k and top_p out",
                   (long long)o->beam);
    else if (!(o->length_power >= 0 && o->length_power < INFINITY))
        eg_fail_as(cx, EG_ERROR_MISUSE, "decode: length_power must not be negative, not %g",
                   o->length_power);
    else if (o->end < NO_END || o->min_token < 0)
        eg_fail_as(cx, EG_ERROR_INDEX, "decode: the token %d is negative",
                   o->end < NO_END ? o->end : o->min_token);
    return !eg_error(cx);
}

/* -- logits ----------------------------------------------------------------------------------- */
static double decode_number(eg_tensor *x, const void *at, int64_t k)
{
    return eg_type(x) == EG_F64 ? ((const double *)at)[k] : (double)((const float *)at)[k];
}

/* True if the logits are floats of shape (rows, v), with the same v as in the last step; else
 * records an error. */
static bool decode_sizes(decoder *d, eg_tensor *logits, int64_t rows)
{
    eg_ctx *cx = d->o.cx;
    if (eg_error(cx) || !eg_ok(logits))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "decode: the step function gave no logits"), false;
    int64_t classes = eg_rank(logits) == 2 ? eg_dim(logits, 1) : 0;
    const bool real = eg_type(logits) == EG_F32 || eg_type(logits) == EG_F64;
    if (!classes || eg_dim(logits, 0) != rows || !real)
        return eg_fail_as(cx, real ? EG_ERROR_SHAPE : EG_ERROR_DTYPE,
                          "decode: the logits must be floats of (%lld, v), not %s of rank %d with "
                          "%lld first",
                          (long long)rows, eg_type_name(eg_type(logits)), eg_rank(logits),
                          (long long)(eg_rank(logits) ? eg_dim(logits, 0) : 0)),
               false;
    if (d->classes && d->classes != classes)
        return eg_fail_as(cx, EG_ERROR_SHAPE,
                          "decode: 'v' is %lld in these logits but %lld in those before",
                          (long long)classes, (long long)d->classes),
               false;
    if (d->o.end >= classes || (d->o.min_token >= classes && d->o.end == NO_END))
        return eg_fail_as(cx, EG_ERROR_INDEX,
                          "decode: the token %d is not below %lld, the number of logits",
                          d->o.end >= classes ? d->o.end : d->o.min_token, (long long)classes),
               false;
    if (!d->classes) {
        d->classes = classes;
        d->log_p = eg_owner_alloc(d->owner, (size_t)classes * sizeof *d->log_p);
        d->order = eg_owner_alloc(d->owner, (size_t)classes * sizeof *d->order);
    }
    return d->log_p && d->order;
}

static bool decode_allowed(const decoder *d, int64_t token)
{
    return token >= d->o.min_token || token == d->o.end;
}

/* Sets log_p[v] = ln softmax(logits[row])[v] for tokens that are allowed, −inf for others. False
 * after an error: a logit is NaN or +inf, or all of a row are −inf. */
static bool log_softmax(decoder *d, eg_tensor *logits, const void *x, int64_t row)
{
    double most = -INFINITY, sum = 0;
    for (int64_t v = 0; v < d->classes; v++) {
        double one =
            decode_allowed(d, v) ? decode_number(logits, x, row * d->classes + v) : -INFINITY;
        if (isnan(one) || one > 1.79e308) {
            eg_fail_as(d->o.cx, EG_ERROR_MISUSE, "decode: logit %lld after %lld token%s is %g",
                       (long long)v, (long long)d->length, d->length == 1 ? "" : "s", one);
            return false;
        }
        d->log_p[v] = one;
        most = one > most ? one : most;
    }
    if (isinf(most)) {
        eg_fail_as(d->o.cx, EG_ERROR_MISUSE,
                   "decode: every token that may follow after %lld has a logit of −inf",
                   (long long)d->length);
        return false;
    }
    for (int64_t v = 0; v < d->classes; v++) sum += exp(d->log_p[v] - most);
    for (int64_t v = 0; v < d->classes; v++) d->log_p[v] -= most + log(sum);
    return true;
}

static eg_tensor *decode_step(decoder *d, int64_t rows, bool first, const void **x)
{
    eg_tensor *logits =
        d->o.next(d->o.user, &(eg_prefixes){ rows, d->length, d->tokens, first ? NULL : d->from });
    if (!decode_sizes(d, logits, rows)) return NULL;
    *x = eg_type(logits) == EG_F64 ? (const void *)eg_f64(logits) : (const void *)eg_f32(logits);
    return *x ? logits : NULL;
}

/* -- one token -------------------------------------------------------------------------------- */
static int64_t likeliest(const decoder *d)
{
    int64_t best = 0;
    for (int64_t v = 1; v < d->classes; v++)
        if (d->log_p[v] > d->log_p[best]) best = v;
    return best;
}

static int decode_falling(const void *p, const void *q)
{
    const weighed *a = p, *b = q;
    return a->x < b->x ? 1 : a->x > b->x ? -1 : a->token < b->token ? -1 : a->token > b->token;
}

/* Returns a value in [0, 1) with 53 random bits. */
static double uniform(uint64_t seed, int64_t place)
{
    eg_rng rng = { seed, (uint64_t)place, 0 };
    double high = eg_rng_below(&rng, 1u << 26);
    return (high * (1u << 27) + eg_rng_below(&rng, 1u << 27)) / ((double)(1u << 26) * (1u << 27));
}

/* Draws a token with weights p^(1/temperature), from the top_k likeliest tokens, and of these from
 * the smallest number whose weights sum up to top_p of all. */
static int64_t decode_drawn(const decoder *d)
{
    const eg_decode_args *o = &d->o;
    int64_t n = 0, end = d->classes;
    double most = d->log_p[likeliest(d)], sum = 0, kept = 0;
    for (int64_t v = 0; v < d->classes; v++)
        d->order[n++] = (weighed){ exp((d->log_p[v] - most) / o->temperature), (int32_t)v };
    if (o->top_k || o->top_p < 1) qsort(d->order, (size_t)n, sizeof *d->order, decode_falling);
    end = o->top_k && o->top_k < end ? o->top_k : end;
    for (int64_t k = 0; k < end; k++) sum += d->order[k].x;
    for (int64_t k = 0; k < end && o->top_p < 1; k++)
        if ((kept += d->order[k].x) >= o->top_p * sum) {
            end = k + 1;
            sum = kept;
        }
    double left = uniform(o->seed, d->length) * sum;
    int64_t k = 0, last = 0;
    /* if rounding leaves a remainder: the last token with a weight */
    for (; k < end && left >= 0; k++)
        if (d->order[k].x > 0) {
            left -= d->order[k].x;
            last = k;
        }
    return d->order[last].token;
}

/* Inserts a finished sequence into the best `beam`, in order of score. */
static void decode_insert(decoder *d, const int32_t *tokens, int64_t count, bool ended,
                          double log_p)
{
    double score = log_p / pow((double)(count + ended > 0 ? count + ended : 1), d->o.length_power);
    int64_t at = d->out.count < d->o.beam ? d->out.count++ : d->o.beam - 1;
    if (at == d->o.beam - 1 && d->found[at].tokens && d->found[at].score >= score) return;
    /* the memory of the sequence that is dropped */
    int32_t *own = (int32_t *)(uintptr_t)d->found[at].tokens;
    own = own ? own : eg_owner_alloc(d->owner, (size_t)(d->o.max_new_tokens + 1) * sizeof *own);
    if (!own) return;
    memcpy(own, tokens, (size_t)count * sizeof *own);
    for (; at && d->found[at - 1].score < score; at--) d->found[at] = d->found[at - 1];
    d->found[at] = (eg_sequence){ count, own, ended, log_p, score };
}

/* Generates one sequence token by token, greedily or by draws. */
static void decode_one_by_one(decoder *d)
{
    double total = 0;
    bool more = true, ended = false;
    for (int64_t n = 0; more && n < d->o.max_new_tokens; n++) {
        eg_mark m = eg_push(d->o.cx);
        const void *x;
        eg_tensor *logits = decode_step(d, 1, n == 0, &x);
        more = logits && log_softmax(d, logits, x, 0);
        if (more) {
            int64_t token = draws(&d->o) ? decode_drawn(d) : likeliest(d);
            total += d->log_p[token];
            ended = token == d->o.end;
            more = !ended;
            if (more) d->tokens[d->length++] = (int32_t)token;
        }
        eg_pop(d->o.cx, m);
    }
    if (!eg_error(d->o.cx))
        decode_insert(d, d->tokens + d->o.prompt_length, d->length - d->o.prompt_length, ended,
                      total);
}

/* -- beam search ------------------------------------------------------------------------------ */
/* Inserts c into the `most` likeliest candidates so far, which are in order; of two equal
 * candidates the earlier comes first. Returns the number of candidates. */
static int64_t candidate_enter(candidate *best, int64_t count, int64_t most, candidate c)
{
    if (count == most && best[count - 1].log_p >= c.log_p) return count;
    int64_t at = count < most ? count++ : count - 1;
    for (; at && best[at - 1].log_p < c.log_p; at--) best[at] = best[at - 1];
    best[at] = c;
    return count;
}

/* True if no unfinished prefix can become one of the best `beam` sequences: its score is at most
 * its present Σ ln p divided by the longest length to its power. */
static bool search_is_over(const decoder *d, double log_p)
{
    return d->out.count == d->o.beam &&
           d->found[d->o.beam - 1].score >=
               log_p / pow((double)d->o.max_new_tokens, d->o.length_power);
}

/* Beam search. In each step the likeliest continuations of all unfinished prefixes either end, and
 * are candidates for the result, or become the next prefixes. */
static void decode_search(decoder *d)
{
    const eg_decode_args *o = &d->o;
    /* each prefix has one continuation that ends, so at least half of 2 · beam do not */
    int64_t live = 1, count, most = 2 * o->beam;
    candidate *best = eg_owner_alloc(d->owner, (size_t)most * sizeof *best);
    int32_t *next = eg_owner_alloc(d->owner, (size_t)(o->beam * d->capacity) * sizeof *next);
    double *log_p = eg_owner_alloc(d->owner, (size_t)o->beam * sizeof *log_p);
    for (int64_t n = 0; best && next && log_p && live && n < o->max_new_tokens; n++) {
        eg_mark m = eg_push(o->cx);
        const void *x;
        eg_tensor *logits = decode_step(d, live, n == 0, &x);
        count = 0;
        for (int64_t r = 0; logits && r < live && log_softmax(d, logits, x, r); r++)
            for (int64_t v = 0; v < d->classes; v++)
                if (d->log_p[v] > -INFINITY)
                    count = candidate_enter(best, count, most,
                                            (candidate){ r, (int32_t)v, log_p[r] + d->log_p[v] });
        eg_pop(o->cx, m);
        if (eg_error(o->cx)) return;
        live = 0;
        for (int64_t k = 0; k < count && live < o->beam; k++) {
            const int32_t *old = d->tokens + best[k].row * d->length;
            if (best[k].token == o->end) {
                decode_insert(d, old + o->prompt_length, n, true, best[k].log_p);
                continue;
            }
            int32_t *to = next + live * (d->length + 1);
            memcpy(to, old, (size_t)d->length * sizeof *to);
            to[d->length] = best[k].token;
            d->from[live] = best[k].row;
            log_p[live++] = best[k].log_p;
        }
        memcpy(d->tokens, next, (size_t)(live * ++d->length) * sizeof *next);
        if (live && search_is_over(d, log_p[0])) live = 0;
    }
    for (int64_t r = 0; r < live && log_p; r++)
        decode_insert(d, d->tokens + r * d->length + o->prompt_length, d->length - o->prompt_length,
                      false, log_p[r]);
}

/* Allocates the memory of the search, whose size depends on the options, then runs it. */
const eg_decoded *eg_decode_with(const eg_decode_args *given)
{
    decoder *d, start = { .o = { .size = sizeof start.o } };
    eg_options(&start.o, sizeof start.o, given);
    eg_ctx *cx = start.o.cx;
    if (!cx || eg_error(cx) || !decode_settle(&start.o)) return NULL;
    start.owner = eg_owner_open(cx);
    start.capacity = start.o.prompt_length + start.o.max_new_tokens,
    start.length = start.o.prompt_length;
    d = start.owner ? eg_owner_alloc(start.owner, sizeof *d) : NULL;
    if (!d) return NULL;
    *d = start;
    d->tokens = eg_owner_alloc(d->owner, (size_t)(d->o.beam * d->capacity) * sizeof *d->tokens);
    d->from = eg_owner_alloc(d->owner, (size_t)d->o.beam * sizeof *d->from);
    d->found = eg_owner_alloc(d->owner, (size_t)d->o.beam * sizeof *d->found);
    if (!d->tokens || !d->from || !d->found) return NULL;
    memcpy(d->tokens, d->o.prompt, (size_t)d->o.prompt_length * sizeof *d->tokens);
    const eg_switches was = eg_switches_of(cx);
    if (d->o.beam > 1)
        decode_search(d);
    else
        decode_one_by_one(d);
    eg_switches_restore(cx, was);
    d->out.sequence = d->found;
    return eg_error(cx) ? NULL : &d->out;
}
