/* trainer.c: batches, steps, evaluation and the loop.
 *
 * encoder   tokens = input;  logits at each place are for the output there; padding is masked by .keep
 * decoder   tokens = input SEP output;  logits at a place are for the next token; targets from the end of `input SEP` on: output STOP.
 *           Causal, so that padding at the end is never seen.
 * A greedy decoder gives the whole right answer if and only if it is right at each place given the right tokens before it (induction over
 * places), so that exact match takes one forward pass. */
#include "trainer.h"
#include <math.h>
#include <string.h>
#include <time.h>

enum { TESTS = 1000, SCAN = 200000, EVERY = 25, ROUND = 8 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* -- making -------------------------------------------------------------------------------------------------------------------------- */
static double option(double given, double otherwise)     { return given == EG_OFF ? 0 : given != 0 ? given : otherwise; }
static int64_t integer(int64_t given, int64_t otherwise) { return given ? given : otherwise; }

static bool model_kind(eg_trainer_args *o)
{
    eg_ctx *cx = eg__data_context(o->data);
    if (!o->model)
        o->model = eg_data_decoder(o->data) ? "decoder" : "encoder";
    if (!strcmp(o->model, "decoder"))
        return true;
    if (strcmp(o->model, "encoder")) {
        eg_fail(cx, "trainer: model \"%s\" is neither encoder nor decoder", o->model);
        return false;
    }
    int64_t line = eg__data_uneven(o->data);
    eg_example e;
    for (uint64_t k = 0; line < 0 && eg__data_task(o->data) && k < 100; k++)
        if (eg_data_example(o->data, o->seed, k, &e) || e.inputs != e.outputs) {
            eg_fail(cx, "trainer: an encoder needs input and output of one length, but task %s has %d and %d; use the decoder",
                    eg_data_name(o->data), e.inputs, e.outputs);
            return false;
        }
    if (line >= 0)
        eg_fail(cx, "%s:%lld: an encoder needs input and output of one length; use the decoder", eg_data_name(o->data),
                (long long)line + 1);
    return line < 0;
}

static bool defaults(eg_trainer_args *o)
{
    const eg_task *task = eg__data_task(o->data);
    o->layers = integer(o->layers, 2), o->d_model = integer(o->d_model, 64), o->heads = integer(o->heads, 4);
    o->width = integer(o->width, o->d_model > SIZE_MOST ? 1 : 4 * o->d_model), o->batch = integer(o->batch, 64);
    o->steps = integer(o->steps, task && task->steps ? task->steps : 3000);
    o->dropout = option(o->dropout, 0), o->lr = option(o->lr, task && task->lr > 0 ? task->lr : 1e-3);
    o->clip_norm = option(o->clip_norm, 0), o->goal = option(o->goal, 0.99);
    if (!o->schedule.decay && !o->schedule.warmup && !o->schedule.steps) {
        int64_t warmup = task ? task->warmup : 50;
        o->schedule = (eg_schedule){ EG_COSINE, warmup < o->steps ? warmup : o->steps - 1, o->steps, 0.05 };
    }
    const struct { const char *name; int64_t value; } sizes[] = {
        { "layers", o->layers }, { "d_model", o->d_model }, { "heads", o->heads }, { "width", o->width }, { "batch", o->batch },
        { "steps", o->steps },
    };
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        if (sizes[k].value < 1 || (sizes[k].value > SIZE_MOST && strcmp(sizes[k].name, "steps"))) {
            const char *what = sizes[k].value < 1 ? "must be positive" : "is at most 2^20";
            eg_fail(eg__data_context(o->data), "trainer: %s %s, not %lld", sizes[k].name, what, (long long)sizes[k].value);
            return false;
        }
    if (!(o->dropout >= 0 && o->dropout < 1)) {
        eg_fail(eg__data_context(o->data), "trainer: dropout must be in [0, 1), not %g", o->dropout);
        return false;
    }
    if (!(o->goal >= 0)) {
        eg_fail(eg__data_context(o->data), "trainer: goal must be a share of exact sequences, not %g", o->goal);
        return false;
    }
    return model_kind(o);
}

static bool seen_before(uint64_t *seen, uint64_t slots, uint64_t h)       /* a hash table of hashes; 0: empty      */
{
    uint64_t at = h % slots;
    while (seen[at] && seen[at] != h)
        at = (at + 1) % slots;
    bool known = seen[at] == h;
    seen[at] = h;
    return known;
}

/* the first 1000 different held-out inputs of the stream (of pairs: of the first time round) */
static bool choose_tests(eg_trainer *t)
{
    enum { SLOTS = 4096 };
    uint64_t *seen = eg_owner_alloc(t->owner, SLOTS * sizeof *seen);
    uint64_t end = eg_data_size(t->data) ? (uint64_t)eg_data_size(t->data) : SCAN;
    t->test = eg_owner_alloc(t->owner, TESTS * sizeof *t->test);
    if (!seen || !t->test)
        return false;
    eg_example e;
    for (uint64_t k = 0; k < end && t->tests < TESTS; k++) {
        if (eg_data_example(t->data, t->o.seed, k, &e))
            return false;
        if (eg_data_held_out(t->data, &e) && !seen_before(seen, SLOTS, eg__data_hash(t->data, &e) | 1))
            t->test[t->tests++] = k;
    }
    if (!t->tests)
        eg_fail(t->cx, "trainer: no example of %s is held out for tests", eg_data_name(t->data));
    return t->tests > 0;
}

eg_trainer *eg__trainer_make(const eg_trainer_args *given, int64_t vocabulary, int64_t longest)
{
    eg_trainer_args o = { .size = sizeof o };
    if (given)                                      /* a caller built with an older header has fewer options */
        memcpy(&o, given, given->size < sizeof o ? given->size : sizeof o);
    eg_ctx *cx = eg__data_context(o.data);
    if (!cx || eg_error(cx) || !defaults(&o))
        return NULL;
    eg_owner *owner = eg_owner_open(cx);
    eg_trainer *t = owner ? eg_owner_alloc(owner, sizeof *t) : NULL;
    if (!t)
        return NULL;
    bool decoder = !strcmp(o.model, "decoder"), separator = decoder && !eg__data_asks(o.data);
    o.model = decoder ? "decoder" : "encoder";
    *t = (eg_trainer){ .cx = cx, .owner = owner, .data = o.data, .o = o, .decoder = decoder, .separator = separator, .exact = -1 };
    int64_t in = eg__data_longest(o.data, false), out = eg__data_longest(o.data, true);
    t->longest = longest ? longest : decoder ? in + separator + out : in;
    t->vocabulary = vocabulary ? vocabulary : eg_data_symbols(o.data);
    size_t places = (size_t)(o.batch * (t->longest + ROUND));
    t->tokens = eg_owner_alloc(owner, places * sizeof *t->tokens);
    t->target = eg_owner_alloc(owner, places * sizeof *t->target);
    t->keep = eg_owner_alloc(owner, places * sizeof *t->keep);
    t->length = eg_owner_alloc(owner, (size_t)o.batch * sizeof *t->length);
    t->label = eg_owner_alloc(owner, (size_t)t->longest * sizeof *t->label);
    t->weights = eg_owner_alloc(owner, (size_t)o.layers * sizeof *t->weights);
    if (!t->weights || !t->tokens || !t->target || !t->keep || !t->length || !t->label || !choose_tests(t))
        return NULL;
    eg_seed(cx, o.seed);
    t->params = eg_params_open(cx);
    t->net = eg_transformer_new(t->params, "", .vocabulary = t->vocabulary, .length = t->longest, .d_model = o.d_model, .heads = o.heads,
                                .layers = o.layers, .width = o.width, .dropout = o.dropout);
    t->opt = eg_adam(t->params, .lr = o.lr, .clip_norm = o.clip_norm, .schedule = o.schedule);
    return eg_error(cx) ? NULL : t;
}

eg_trainer *eg_trainer_new_with(const eg_trainer_args *a) { return eg__trainer_make(a, 0, 0); }

/* -- batches -------------------------------------------------------------------------------------------------------------------------- */
static int64_t sequence(const eg_trainer *t, const eg_example *e, int32_t *tokens, int32_t *target)    /* returns its length */
{
    int64_t prompt = e->inputs + t->separator, n = 0;
    for (int k = 0; k < e->inputs; k++)
        tokens[n++] = e->input[k];
    if (!t->decoder) {
        memcpy(target, e->output, (size_t)e->outputs * sizeof *target);
        return n;
    }
    if (t->separator)
        tokens[n++] = EG_SEP;
    for (int64_t k = 0; k < prompt - 1; k++)
        target[k] = EG_PAD;
    for (int k = 0; k < e->outputs; k++)
        target[n - 1] = tokens[n] = e->output[k], n++;
    target[n - 1] = EG_STOP;
    return n;
}

eg__batch eg__trainer_fill(eg_trainer *t, int64_t first, int64_t rows, const eg_example *(*next)(eg_trainer *, int64_t, eg_example *))
{
    int64_t wide = t->longest + 1, longest = 0, shortest = wide, *length = t->length;
    eg_example e;
    for (int64_t r = 0; r < rows; r++) {
        if (!next(t, first + r, &e))
            return (eg__batch){ 0 };
        length[r] = sequence(t, &e, t->tokens + r * wide, t->target + r * wide);
        longest = length[r] > longest ? length[r] : longest;
        shortest = length[r] < shortest ? length[r] : shortest;
    }
    /* few different lengths, so that plans and memory are reused */
    int64_t round = (longest + ROUND - 1) / ROUND * ROUND, l = round < t->longest ? round : t->longest;
    for (int64_t r = 0; r < rows; r++) {            /* close the rows up: l ≤ wide, so nothing is overwritten unread */
        int64_t n = length[r];
        memmove(t->tokens + r * l, t->tokens + r * wide, (size_t)n * sizeof *t->tokens);
        memmove(t->target + r * l, t->target + r * wide, (size_t)n * sizeof *t->target);
        for (int64_t k = 0; k < l; k++) {
            t->keep[r * l + k] = k < n;
            if (k >= n)
                t->tokens[r * l + k] = t->target[r * l + k] = EG_PAD;
        }
    }
    return (eg__batch){ rows, l, !t->decoder && shortest < l };
}

static const eg_example *training(eg_trainer *t, int64_t k, eg_example *e)
{
    (void)k;                                        /* the stream's cursor counts                                  */
    for (int tries = 0; tries < SCAN; tries++) {
        if (eg_data_example(t->data, t->o.seed, t->cursor++, e))
            return NULL;
        if (!eg_data_held_out(t->data, e))
            return e;
    }
    eg_fail(t->cx, "trainer: %d examples of %s on end are held out for tests", SCAN, eg_data_name(t->data));
    return NULL;
}

const eg_example *eg__trainer_test(eg_trainer *t, int64_t k, eg_example *e)
{
    return k < t->tests && !eg_data_example(t->data, t->o.seed, t->test[k], e) ? e : NULL;
}

eg_tensor *eg__trainer_logits(eg_trainer *t, const eg_transformer *net, eg__batch b, eg_tensor **target, eg_tensor **weights)
{
    const int64_t dims[] = { b.rows, b.length };
    eg_tensor *tokens = eg_from_n(t->cx, EG_I32, t->tokens, 2, dims);
    eg_masked keep = { "bj", b.padded ? eg_from_n(t->cx, EG_BOOL, t->keep, 2, dims) : NULL };
    if (target)
        *target = eg_from_n(t->cx, EG_I32, t->target, 2, dims);
    return eg_transformer_run(net, tokens, .where = t->decoder ? "j <= i" : NULL, .keep = b.padded ? keep : (eg_masked){ 0 },
                              .weights = weights);
}

static double value(eg_tensor *logits, const void *x, int64_t k)
{
    return eg_type(logits) == EG_F64 ? ((const double *)x)[k] : (double)((const float *)x)[k];
}

int32_t eg__trainer_best(const eg_trainer *t, eg_tensor *logits, int64_t place)
{
    const void *x = eg_type(logits) == EG_F64 ? (const void *)eg_f64(logits) : (const void *)eg_f32(logits);
    int32_t best = t->decoder ? EG_STOP : EG_FIRST;
    for (int32_t v = best + 1; x && v < t->vocabulary; v++)
        if (value(logits, x, place * t->vocabulary + v) > value(logits, x, place * t->vocabulary + best))
            best = v;
    return best;
}

static eg_score score(const eg_trainer *t, eg_tensor *logits, eg__batch b)
{
    eg_score s = { .sequences = b.rows };
    logits = eg_contiguous(logits);
    for (int64_t r = 0; r < b.rows; r++) {
        bool all = true;
        for (int64_t k = r * b.length; k < (r + 1) * b.length; k++)
            if (t->target[k] != EG_PAD) {
                bool right = eg__trainer_best(t, logits, k) == t->target[k];
                s.tokens++;
                s.right += right;
                all &= right;
            }
        s.exact += all;
    }
    return s;
}

/* -- a step -------------------------------------------------------------------------------------------------------------------------- */
int eg_trainer_step(eg_trainer *t, eg_progress *p)
{
    if (!t || eg_error(t->cx))
        return -1;
    double start = now();
    eg__batch b = eg__trainer_fill(t, 0, t->o.batch, training);
    if (!b.rows)
        return -1;
    bool training_before = eg_training(t->cx);
    eg_train(t->cx);
    eg_mark m = eg_push(t->cx);
    eg_tensor *target, *logits = eg__trainer_logits(t, t->net, b, &target, NULL);
    eg_tensor *loss = eg_cross_entropy("b l [v]", logits, target, .ignore = EG_OFF);
    double lr = eg_opt_now(t->opt).lr, mean = eg_item(loss);
    if (!eg_error(t->cx) && !isfinite(mean))
        eg_fail(t->cx, "trainer: the loss of step %lld is %g; a smaller lr or clip_norm may help", (long long)t->step + 1, mean);
    int bad = eg_step(t->opt, loss);
    eg_score s = bad ? (eg_score){ 0 } : score(t, logits, b);
    eg_pop(t->cx, m);
    if (!training_before)
        eg_eval(t->cx);
    if (bad || eg_error(t->cx))
        return -1;
    double took = now() - start;
    t->step++;
    t->seconds += took;
    t->batch_exact = (double)s.exact / (double)s.sequences;
    if (p)
        *p = (eg_progress){ .step = t->step, .steps = t->o.steps, .loss = mean, .accuracy = (double)s.right / (double)s.tokens,
                            .whole = t->batch_exact, .exact = t->exact,
                            .rate = (double)(b.rows * b.length) / took, .seconds = t->seconds, .lr = lr };
    return 0;
}

eg_progress eg_trainer_now(const eg_trainer *t)
{
    if (!t)
        return (eg_progress){ .exact = -1 };
    return (eg_progress){ .step = t->step, .steps = t->o.steps, .exact = t->exact, .seconds = t->seconds, .lr = eg_opt_now(t->opt).lr };
}

int eg_trainer_evaluate(eg_trainer *t, eg_score *out)
{
    if (!t || eg_error(t->cx))
        return -1;
    eg_score all = { 0 };
    uint64_t draws = eg_draws(t->cx);
    bool training_before = eg_training(t->cx), was = eg_nograd(t->cx, true);
    eg_eval(t->cx);
    for (int64_t k = 0; k < t->tests && !eg_error(t->cx); k += t->o.batch) {
        eg__batch b = eg__trainer_fill(t, k, t->tests - k < t->o.batch ? t->tests - k : t->o.batch, eg__trainer_test);
        eg_mark m = eg_push(t->cx);
        eg_score s = b.rows ? score(t, eg__trainer_logits(t, t->net, b, NULL, NULL), b) : (eg_score){ 0 };
        eg_pop(t->cx, m);
        all = (eg_score){ all.sequences + s.sequences, all.exact + s.exact, all.tokens + s.tokens, all.right + s.right };
    }
    eg_nograd(t->cx, was);
    if (training_before)
        eg_train(t->cx);
    eg_set_draws(t->cx, draws);
    if (eg_error(t->cx))
        return -1;
    t->exact = (double)all.exact / (double)all.sequences;
    if (out)
        *out = all;
    return 0;
}

/* When to look at the test set is a function of the step and its batch alone, so that a resumed run stops where the other does. */
int eg_trainer_run(eg_trainer *t, bool (*watch)(void *, eg_trainer *, const eg_progress *), void *user, eg_progress *last)
{
    eg_progress p = { 0 };
    if (!t || eg_error(t->cx))
        return -1;
    while (t->step < t->o.steps) {
        if (eg_trainer_step(t, &p))
            return -1;
        bool look = t->step == t->o.steps || (t->o.goal > 0 && t->step % EVERY == 0 && t->batch_exact >= t->o.goal - 0.05);
        if (look && eg_trainer_evaluate(t, NULL))
            return -1;
        p.exact = t->exact;
        if ((watch && watch(user, t, &p)) || (look && t->o.goal > 0 && t->exact >= t->o.goal))
            break;
    }
    if (last)
        *last = p;
    return eg_error(t->cx) ? -1 : 0;
}

/* -- asking -------------------------------------------------------------------------------------------------------------------------- */
int eg_trainer_test(eg_trainer *t, int k, eg_example *e)      { return t && k >= 0 && eg__trainer_test(t, k, e) ? 0 : -1; }
eg_params *eg_trainer_params(eg_trainer *t)                   { return t ? t->params : NULL; }
eg_opt *eg_trainer_opt(eg_trainer *t)                         { return t ? t->opt : NULL; }
eg_data *eg_trainer_data(eg_trainer *t)                       { return t ? t->data : NULL; }
const eg_trainer_args *eg_trainer_config(const eg_trainer *t) { return t ? &t->o : NULL; }
