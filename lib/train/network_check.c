/* network_check.c: tests of a network that a trainer makes before the first step, on a few test
 * examples. A built-in model is called once, since some options are read only then, and its loss
 * must be finite. For a user's own network they also tell whether the logits have the right shape,
 * the loss reaches every parameter, the network has state besides its parameters or changes the
 * context's, examples depend on each other, positions depend on later ones, or a cache changes the
 * logits. */
#include "trainer.h"
#include <eingrad/einsum.h>
#include <eingrad/grad.h>
#include <math.h>
#include <stdio.h>

enum { PROBED = 4 }; /* number of examples */
typedef struct probing {
    eg_trainer *t;
    bool own;     /* the network is a user's own */
    char who[96]; /* "trainer: network …" */
    eg_batch batch;
    eg_tensor *logits; /* of the batch, and … */
    eg_tensor *loss;   /* … its loss */
    double share;      /* of the largest logit: what may be rounding */
} probing;

static double probing_number(eg_tensor *x, const void *at, int64_t k)
{
    return eg_type(x) == EG_F64 ? ((const double *)at)[k] : (double)((const float *)at)[k];
}

/* Compares elements [from, from + count) of x with the first `count` of y. Returns the index of the
 * first pair that differs by more than `share` times the largest finite element of y; −1 if there
 * is none. NaN counts as equal to NaN, and an infinity to itself: a class that a mask forbids has
 * −∞. */
static int64_t probing_differs(eg_tensor *x, int64_t from, eg_tensor *y, int64_t count,
                               double share, double pair[2])
{
    const void *a = eg_raw(eg_contiguous(x), NULL), *b = eg_raw(eg_contiguous(y), NULL);
    double most = 0;
    if (!a || !b) return -1;
    for (int64_t k = 0; k < count; k++) {
        const double size = fabs(probing_number(y, b, k));
        if (isfinite(size)) most = fmax(most, size);
    }
    for (int64_t k = 0; k < count; k++) {
        pair[0] = probing_number(x, a, from + k), pair[1] = probing_number(y, b, k);
        const bool same = pair[0] == pair[1] || (isnan(pair[0]) && isnan(pair[1])) ||
                          fabs(pair[0] - pair[1]) <= share * most;
        if (!same) return k;
    }
    return -1;
}

/* The logits of a batch as a block's loss, so that eg_block_call tests whether they change the
 * context. */
typedef struct probing_call {
    const eg_trainer *t;
    const eg_batch *batch;
    eg_tensor *logits;
} probing_call;
static eg_tensor *probing_logits(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    probing_call *c = user;
    (void)from, (void)to, (void)count;
    return c->logits = eg__network_logits(c->t, cx, c->batch, NULL);
}

/* The sum of the logits as the loss of a block. */
typedef struct probing_inside {
    const probing *p;
    eg_code code;
    char says[512]; /* the error, without the number of the block */
} probing_inside;
static eg_tensor *probing_inside_loss(void *user, eg_ctx *cx, int64_t from, int64_t to,
                                      int64_t *count)
{
    probing_inside *in = user;
    probing_call c = { in->p->t, &in->p->batch, NULL };
    (void)from, (void)to;
    eg_block_call(cx, probing_logits, &c, 0, in->p->batch.rows, NULL);
    *count = 1;
    if (!eg_error(cx)) return eg_zeros(cx, 1);
    in->code = eg_error_code(cx);
    snprintf(in->says, sizeof in->says, "%s", eg_error(cx));
    return NULL;
}
/* True if the network can be called inside a block, where writing to a parameter is refused, in
 * evaluation and in training, where it may draw; else records an error. */
static bool probing_blocks(const probing *p)
{
    eg_ctx *cx = p->t->cx;
    probing_inside in = { .p = p };
    for (int train = 0; train < 2 && !eg_error(cx); train++) {
        if (train) eg_train(cx);
        eg_grad_over(.cx = cx, .loss = probing_inside_loss, .user = &in, .examples = 1,
                     .serial = true);
        eg_eval(cx);
    }
    if (!*in.says) return !eg_error(cx);
    eg_clear(cx);
    return eg_fail_as(cx, in.code, "%s: %s", p->who, in.says), false;
}

/* Calls the network on a batch and checks shape and dtype of its logits. NULL after an error. */
static eg_tensor *probing_run(const probing *p, const eg_batch *b)
{
    eg_ctx *cx = p->t->cx;
    probing_call c = { p->t, b, NULL };
    eg_block_call(cx, probing_logits, &c, 0, b->rows, NULL);
    if (p->own && eg_error(cx)) eg_fail_in(cx, "%s", p->who);
    eg_tensor *x = c.logits;
    if (!eg__batch_logits_fit(cx, p->t->batches, p->who, b, x)) return NULL;
    if (eg_type(x) != eg_params_type(p->t->params))
        return eg_fail_as(cx, EG_ERROR_DTYPE, "%s: the logits are %s, but the parameters %s",
                          p->who, eg_type_name(eg_type(x)),
                          eg_type_name(eg_params_type(p->t->params))),
               NULL;
    return x;
}

/* True if the loss is a finite number; else records an error with the first operation that made one
 * that is not. A logit of −∞ may be a class that no example has; with such a target the loss is
 * infinite. */
static bool probing_finite(const probing *p)
{
    const double loss = eg_item(p->loss);
    if (!isfinite(loss) && !eg_error(p->t->cx))
        eg_fail_as(p->t->cx, EG_ERROR_MISUSE,
                   "%s: the loss of the first examples is %g, which comes from %s", p->who,
                   isnan(loss) ? (double)NAN : loss, eg_origin(eg_first_nonfinite(p->loss)));
    return !eg_error(p->t->cx);
}

/* True if the loss reaches every parameter; else records an error. */
static bool probing_paths(const probing *p)
{
    eg_ctx *cx = p->t->cx;
    eg_tensor *loss = p->loss, *cut = NULL;
    for (int k = 0; k < eg_params_count(p->t->params) && !eg_error(cx); k++) {
        const eg_named *one = eg_params_at(p->t->params, k);
        const eg_path path = eg_path_to(loss, one->x, &cut);
        if (path == EG_NO_PATH)
            eg_fail_as(cx, EG_ERROR_MISUSE, "%s: the loss does not reach the parameter \"%s\"",
                       p->who, one->name);
        if (path == EG_CUT_PATH)
            eg_fail_as(cx, EG_ERROR_MISUSE,
                       "%s: the loss reaches the parameter \"%s\" only through %s, which has no "
                       "gradient",
                       p->who, one->name,
                       cut && eg_op_of(cut) ? eg_op_of(cut)->name : "an operation");
    }
    return !eg_error(cx);
}

/* True if the same batch gives the same bits twice; else records an error. */
static bool probing_state(const probing *p)
{
    double pair[2];
    eg_tensor *again = probing_run(p, &p->batch);
    const int64_t n = again ? eg_size(again) : 0,
                  at = again ? probing_differs(p->logits, 0, again, n, 0, pair) : -1;
    if (at >= 0)
        eg_fail_as(p->t->cx, EG_ERROR_MISUSE,
                   "%s: logit %lld of the first batch is %g, but %g when it is computed again: the "
                   "network has state outside its parameters, or draws random numbers",
                   p->who, (long long)at, pair[0], pair[1]);
    return !eg_error(p->t->cx);
}

/* True if the last example alone has the same logits as in the batch; else records an error. */
static bool probing_examples(const probing *p)
{
    double pair[2];
    const int64_t rows = p->batch.rows, length = p->batch.lengths[rows - 1],
                  classes = p->t->batches->vocabulary;
    const eg_batch one = eg_batch_part(&p->batch, rows - 1, rows);
    eg_tensor *alone = rows > 1 ? probing_run(p, &one) : NULL;
    const int64_t at = alone ? probing_differs(p->logits, (rows - 1) * p->batch.length * classes,
                                               alone, length * classes, p->share, pair)
                             : -1;
    if (at >= 0)
        eg_fail_as(p->t->cx, EG_ERROR_MISUSE,
                   "%s: the loss is not a sum over examples: a logit of one example is %g in a "
                   "batch of %lld, but %g alone; examples of a batch must not depend on each "
                   "other; a loss of several examples needs a loop with eg_step instead of a "
                   "trainer",
                   p->who, pair[0], (long long)rows, pair[1]);
    return !eg_error(p->t->cx);
}

/* For a network that generates token by token: true if changing the last token of the longest row,
 * or the one before it, does not change the logits at the positions before that token; else records
 * an error. Of positions in groups that read each other, one of the two does not begin a group. */
static bool probing_order(const probing *p)
{
    double pair[2];
    int64_t row = 0, at = -1;
    for (int64_t k = 1; k < p->batch.rows; k++)
        if (p->batch.lengths[k] > p->batch.lengths[row]) row = k;
    const eg_batch b = eg_batch_part(&p->batch, row, row + 1);
    const int64_t last = b.lengths[0] - 1, classes = p->t->batches->vocabulary;
    int32_t *tokens = p->t->batches->one.tokens + (b.tokens - p->batch.tokens);
    for (int64_t k = last; k > 0 && k > last - 2 && at < 0 && !p->t->network->encoder; k--) {
        const int32_t was = tokens[k];
        tokens[k] = was + 1 < classes ? was + 1 : EG_FIRST;
        eg_tensor *other = probing_run(p, &b);
        tokens[k] = was;
        if (!other) break;
        at = probing_differs(p->logits, row * p->batch.length * classes, other, k * classes,
                             p->share, pair);
        if (at >= 0)
            eg_fail_as(p->t->cx, EG_ERROR_MISUSE,
                       "%s: a logit at position %lld is %g, but %g if the token at position %lld "
                       "is changed: the network reads what it has to predict",
                       p->who, (long long)(at / classes), pair[0], pair[1], (long long)k);
    }
    return !eg_error(p->t->cx);
}

/* For a network with a cache: true if the logits at the last position of a row are the same when
 * the positions before it are in the cache; else records an error. A network that ignores the cache
 * computes every position again, and is right too. */
static bool probing_cache(const probing *p)
{
    double pair[2];
    const eg_trainer *t = p->t;
    eg_ctx *cx = t->cx;
    const eg_batch row = eg_batch_part(&p->batch, 0, 1);
    const int64_t last = row.lengths[0] - 1, classes = t->batches->vocabulary;
    if (!t->network->cached || last < 1) return true;
    const int64_t sources = row.source_lengths ? row.source_lengths[0] : 0;
    eg_owner *owner = eg_owner_open(cx);
    eg_batch b = { .rows = 1, .length = last, .tokens = row.tokens, .source_length = sources };
    b.cache = owner ? eg_cache_new(owner, t->batches->longest) : NULL;
    b.source = t->network->memory ? NULL : row.source;
    if (t->network->memory)
        b.memory = t->network->memory(
            t->net, cx, &(eg_batch){ .rows = 1, .source_length = sources, .source = row.source });
    int64_t at = -1;
    if (b.cache && eg_ok(eg__network_logits(t, cx, &b, NULL)) && eg_cache_length(b.cache) == last) {
        b.tokens += last, b.length = 1;
        eg_tensor *x = eg__network_logits(t, cx, &b, NULL);
        if (eg__batch_logits_fit(cx, t->batches, p->who, &b, x))
            at = probing_differs(p->logits, last * classes, x, classes, p->share, pair);
    }
    if (eg_error(cx)) eg_fail_in(cx, "%s", p->who);
    if (at >= 0)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: a logit at position %lld is %g, but %g with the positions before it in "
                   "the cache: each attention needs a separate slot, and positions count from the "
                   "end of the cache",
                   p->who, (long long)last, pair[0], pair[1]);
    eg_owner_close(owner);
    return !eg_error(cx);
}

static probing probing_of(eg_trainer *t)
{
    probing p = { .t = t, .own = !eg__network_find(t->network->name) };
    snprintf(p.who, sizeof p.who, "trainer: network \"%.60s\"", t->network->name);
    return p;
}
bool eg__network_probe_gain(eg_trainer *t)
{
    probing p = probing_of(t);
    const eg_batch first = eg__batches_tested(t->batches, 0, 1);
    if (!p.own || !first.rows) return true;
    eg__evaluation e = eg__evaluation_begin(t->cx);
    eg_nograd(t->cx, false);
    eg_mark m = eg_push(t->cx);
    eg_tensor *off = probing_run(&p, &first), *cut = NULL, *gain = t->gain_now;
    if (off && eg_path_to(off, gain, &cut) == EG_NO_PATH) {
        double pair[2];
        t->gain_now = NULL; /* a network may read the elements, so the numbers decide */
        eg_tensor *on = probing_run(&p, &first);
        t->gain_now = gain;
        if (on && probing_differs(on, 0, off, eg_size(off), 0, pair) < 0)
            eg_fail_as(t->cx, EG_ERROR_MISUSE,
                       "heads off: the logits of network \"%s\" do not depend on batch->gain",
                       t->network->name);
    }
    eg_pop(t->cx, m);
    eg__evaluation_end(t->cx, e);
    return !eg_error(t->cx);
}

bool eg__network_probe(eg_trainer *t)
{
    probing p = probing_of(t);
    const int64_t tests = t->batches->tests;
    eg__evaluation e = eg__evaluation_begin(t->cx);
    eg_nograd(t->cx, false); /* paths and origins need a history */
    eg_mark m = eg_push(t->cx);
    if (!t->data->free_text || t->data->tokens) { /* false if the data contain no text */
        p.batch = eg__batches_tested(t->batches, 0, tests < PROBED ? tests : PROBED);
        const bool good = p.batch.rows && (!p.own || probing_blocks(&p));
        eg_tensor *auxiliary = NULL;
        eg_batch b = p.batch;
        b.auxiliary_loss = &auxiliary;
        p.logits = good ? probing_run(&p, &b) : NULL;
        p.loss = p.logits ? eg__network_loss(t, t->cx, &b, p.logits, 0) : NULL;
    }
    if (p.loss && probing_finite(&p) && p.own && probing_paths(&p)) {
        const eg_explained_graph *graph = eg_explain_graph(p.logits);
        p.share = graph && graph->narrowest == EG_F64 ? 1e-9 : 1e-4;
        eg_nograd(t->cx, true);
        (void)(probing_state(&p) && probing_examples(&p) && probing_order(&p) && probing_cache(&p));
    }
    eg_pop(t->cx, m);
    eg__evaluation_end(t->cx, e);
    return !eg_error(t->cx);
}
