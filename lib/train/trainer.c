/* trainer.c: makes a trainer; steps, evaluation and the training loop. */
#include "trainer.h"
#include <eingrad/grad.h>
#include <eingrad/heads.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { EVERY = 25 }; /* number of steps between evaluations, where they depend on the batch */

static double now(void)
{
    struct timespec t = { .tv_sec = 0 };
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* -- making ----------------------------------------------------------------------------------- */
/* Allocates memory for answers and attention weights. False without memory. */
static bool trainer_alloc(eg_trainer *t)
{
    size_t most = (size_t)(t->batches->longest + t->batches->source_longest + 2);
    t->label[0] = eg_owner_alloc(t->owner, 2 * most * sizeof *t->label[0]);
    t->label[1] = t->label[0] ? t->label[0] + most : NULL;
    t->question = eg_owner_alloc(t->owner, 3 * most * sizeof *t->question);
    t->weights = eg_owner_alloc(t->owner, (size_t)eg_trainer_attentions(t) * sizeof *t->weights);
    return t->weights && t->question && t->label[0] && eg__attention_names(t);
}

/* Returns the mean number of positions of a sequence and its source, without padding, in the first
 * batch of tests; for a text that was left out the length of its windows. */
static double mean_positions(eg_trainer *t)
{
    if (t->data->free_text && !t->data->tokens) return (double)t->o.context;
    const int64_t rows = t->o.batch < t->batches->tests ? t->o.batch : t->batches->tests;
    const eg_batch b = eg__batches_tested(t->batches, 0, rows);
    double sum = 0;
    for (int64_t k = 0; k < b.rows; k++)
        sum += (double)b.lengths[k] + (b.source_lengths ? (double)b.source_lengths[k] : 0);
    return b.rows ? sum / (double)b.rows : 1;
}

/* Returns the number of sequences in a block: of 1, 2, 4 … up to a quarter of the batch, so that
 * four threads or ranks have work, the number for which a step moves the fewest bytes between
 * memory and a cache of CACHE bytes. Each block reads or writes the parameters WEIGHTS times: it
 * reads them twice, and writes and reads its gradient and the sum's; the time of calling its
 * operations is that of CALLS bytes. Activations are read again by the backward pass; those that do
 * not fit into the cache count PASSES times. The result depends only on sizes, not on the machine,
 * since it determines the bits. */
static int64_t trainer_block(eg_trainer *t)
{
    enum { CACHE = 1 << 20, CALLS = 1 << 20, WEIGHTS = 6, PASSES = 4 };
    const eg_trainer_args *o = &t->o;
    const double width = eg_params_type(t->params) == EG_F64 ? 8 : 4, positions = mean_positions(t),
                 d = (double)o->d_model, batch = (double)o->batch,
                 parameters = width * (double)eg_params_size(t->params),
                 layer = 10 * d + 2 * (double)o->width + 2 * (double)o->heads * positions,
                 sequence = width * positions *
                            ((double)o->layers * layer + 3 * (double)t->batches->vocabulary);
    const int64_t most = (o->batch + 3) / 4;
    int64_t best = most;
    double least = INFINITY;
    for (int64_t b = 1;; b = 2 * b < most ? 2 * b : most) {
        const double fits = fmin(1, CACHE / ((double)b * sequence)),
                     bytes = ceil(batch / (double)b) * (WEIGHTS * parameters + CALLS) +
                             batch * PASSES * sequence * (1 - fits);
        if (bytes <= least) least = bytes, best = b;
        if (b == most) return best;
    }
}

/* True if a model with these lengths has enough positions for the data's longest example; else
 * records an error. */
static bool long_enough(const eg_trainer *t, const eg__restored *r, int64_t needed)
{
    bool good = !r || (t->data->free_text ? r->longest == needed : r->longest >= needed);
    if (!good)
        eg_fail_as(t->cx, EG_ERROR_FILE, "%s: the model has %lld positions, but %s needs %lld",
                   r->path, (long long)r->longest, t->data->name, (long long)needed);
    return good;
}

/* Returns the struct with all members; those that are missing in a smaller .size, of a program that
 * was compiled with an older header, are 0. */
static eg_network trainer_whole(const eg_network *given)
{
    eg_network row = { .size = sizeof row };
    eg_options(&row, sizeof row, given);
    return row;
}
/* Returns a copy of a complete struct and its name in memory of the owner; NULL without memory. */
static const eg_network *trainer_row(eg_owner *owner, const eg_network *whole)
{
    eg_network *row = eg_owner_alloc(owner, sizeof *row);
    char *name = eg_owner_alloc(owner, strlen(whole->name) + 1);
    if (!row || !name) return NULL;
    *row = *whole;
    row->size = sizeof *row, row->name = strcpy(name, whole->name);
    return row;
}

/* Makes the model, the test set and the optimiser of a trainer that has its options and batches.
 * False after an error. */
static bool trainer_fill(eg_trainer *t, const eg__restored *r)
{
    eg_ctx *cx = t->cx;
    eg_seed(cx, t->o.seed);
    t->params = eg_params_open(cx, .expected = r ? r->file : NULL, .path = r ? r->path : NULL);
    /* The model is made before all other memory that depends on sizes: if a checkpoint gives the
     * sizes, they are compared here with those of its tensors. */
    t->net = eg__network_make(t, t->params);
    if (!t->net || !trainer_alloc(t) || !eg__batches_tests(t->batches)) return false;
    t->opt = eg__recipe_optimiser(t->params, &t->o);
    if (!t->o.block) t->o.block = trainer_block(t);
    /* with diversity a factor has another value in each batch */
    if (t->network->captures && !t->o.eager && !(t->o.diversity > 0))
        t->captured = eg_captured_blocks_open(cx);
    return !eg_error(cx) && eg__network_probe(t);
}
/* Makes a trainer with these options, whose defaults are set. NULL after an error. */
static eg_trainer *trainer_made(eg_ctx *cx, const eg_trainer_args *o, const eg__restored *r)
{
    eg_owner *owner = eg_owner_open(cx);
    eg_trainer *t = owner ? eg_owner_alloc(owner, sizeof *t) : NULL;
    if (!t) return NULL;
    *t = (eg_trainer){ .cx = cx,
                       .owner = owner,
                       .data = o->data,
                       .o = *o,
                       .now = {
                           .steps = o->steps, .exact = -1, .held_out_loss = -1, .best_loss = -1 } };
    t->network = trainer_row(owner, o->network);
    t->batches = eg__batches_make(owner, &(eg_batches_args){ .data = o->data,
                                                             .rows = o->batch,
                                                             .encoder = o->network->encoder,
                                                             .source = o->network->source,
                                                             .context = o->context,
                                                             .seed = o->seed });
    if (!t->network || !t->batches || !eg__recipe_copy(owner, cx, &t->o)) return NULL;
    t->o.network = t->network, t->o.model = t->network->name;
    const int64_t needed = t->batches->longest;
    if (r) t->batches->longest = r->longest, t->batches->vocabulary = r->vocabulary;
    if (!long_enough(t, r, needed)) return NULL;
    const uint64_t seed = eg_seed_of(cx), draws = eg_draws(cx);
    if (trainer_fill(t, r)) return t;
    eg_seed(cx, seed), eg_set_draws(cx, draws);
    return NULL;
}
/* Fills in the defaults, checks the options, then makes the model, the test set and the optimiser.
 * NULL after an error. */
eg_trainer *eg__trainer_make(const eg_trainer_args *given, const eg__restored *r)
{
    eg_trainer_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    if (!o.data) return eg_fail_as(NULL, EG_ERROR_MISUSE, "trainer: the data is NULL"), NULL;
    eg_ctx *cx = o.data->cx;
    /* completed first, so that nothing is read after the end of a smaller struct */
    const eg_network whole = o.network ? trainer_whole(o.network) : (eg_network){ 0 };
    if (o.network) o.network = &whole;
    if (eg_error(cx) || !eg__trainer_defaults(&o)) return NULL;
    eg_trainer *t = trainer_made(cx, &o, r);
    if (!t) eg_name_memory_error(cx, "trainer");
    return t;
}

eg_trainer *eg_trainer_new_with(const eg_trainer_args *a) { return eg__trainer_make(a, NULL); }

/* -- a step ----------------------------------------------------------------------------------- */
/* Returns the loss of heads that are alike, as a sum over examples: with the mean loss per target
 * the step adds diversity · mean over attentions of eg_head_diversity. */
static eg_tensor *trainer_diversity(const eg_trainer *t, const eg_batch *b, eg_tensor **weights)
{
    const int count = eg_trainer_attentions(t);
    const eg_batch *all = &t->batch;
    const double each = t->o.diversity / count * (double)b->rows * (double)eg_batch_counted(all) /
                        (double)all->rows;
    eg_tensor *sum = NULL;
    for (int k = 0; k < count; k++) {
        eg_tensor *one = eg_head_diversity("b [h] i j", weights[k]);
        sum = sum ? eg_add(sum, one) : one;
    }
    return eg_scale(sum, each);
}

/* A host call that counts the targets of a block, and stores how many of them the model predicted,
 * by the block's number. */
typedef struct trainer_count {
    const eg_trainer *t;
    eg_ctx *cx;
    int64_t *count;
} trainer_count;
/* The number of the block is derived from its range of examples. */
static int trainer_counts(void *args, int count, eg_tensor *const *logits)
{
    const trainer_count *a = args;
    const eg_trainer *t = a->t;
    int64_t from, to;
    (void)count;
    /* not a block of a step, but the test whether the loss is a sum */
    if (!eg_training(a->cx) || eg_block_range(a->cx, &from, &to)) return 0;
    const eg_batch b = eg_batch_part(&t->batch, from, to);
    const bool was = eg_nograd(a->cx, true);
    t->score[from / t->o.block] = eg__batch_right(t->batches, &b, logits[0]);
    eg_nograd(a->cx, was);
    *a->count = eg_batch_counted(&b);
    return eg_error(a->cx) ? -1 : 0;
}
/* Returns the loss of some rows. */
static eg_tensor *trainer_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    const eg_trainer *t = user;
    eg_tensor *auxiliary = NULL;
    eg_batch b = eg_batch_part(&t->batch, from, to);
    b.auxiliary_loss = &auxiliary;
    const int shown = t->o.diversity > 0 ? eg_trainer_attentions(t) : 0;
    eg_owner *owner = shown ? eg_owner_open(cx) : NULL;
    eg_tensor **weights = shown ? eg_owner_alloc(owner, (size_t)shown * sizeof *weights) : NULL;
    eg_tensor *logits = eg__network_logits(t, cx, &b, weights);
    *count = eg_batch_counted(&b);
    eg_host_call(cx, trainer_counts, &(trainer_count){ t, cx, count }, sizeof(trainer_count), 1,
                 &logits);
    eg_tensor *loss = eg__network_loss(t, cx, &b, logits, t->o.smoothing);
    return weights ? eg_add(loss, trainer_diversity(t, &b, weights)) : loss;
}
/* Completes the scores with those that other ranks computed. False after an error. */
static bool score_of_all(eg_trainer *t, eg_score *s)
{
    const int ranks = eg_ranks_count(t->ranks);
    const eg_score mine = *s;
    if (ranks == 1) return true;
    if (eg_ranks_gather(t->ranks, &mine, sizeof mine, t->rank_scores)) return false;
    *s = (eg_score){ 0 };
    for (int k = 0; k < ranks; k++) eg__score_add(s, &t->rank_scores[k]);
    return true;
}
/* The kind of a block of t->batch (eg_block_kind). */
static void trainer_kind(void *user, int64_t from, int64_t to, int64_t kind[EG_KIND_NUMBERS])
{
    const eg_trainer *t = user;
    const eg_batch b = eg_batch_part(&t->batch, from, to);
    kind[0] = b.length << 24 | b.source_length;
    kind[1] = eg_batch_packed_length(&b);
    kind[2] = eg_batch_packed_source_length(&b);
    kind[3] = b.padded << 2 | b.source_padded << 1 | (t->gain_now != NULL);
}
/* Computes a step on t->batch; sets its mean loss per target and its score. False after an
 * error. */
static bool trainer_step_over(eg_trainer *t, double *mean, eg_score *s)
{
    char who[64];
    const eg_batch *all = &t->batch;
    const int64_t blocks = (all->rows + t->o.block - 1) / t->o.block;
    if (!t->score) /* allocated here, since a model that only predicts needs no scores */
        t->score = eg_owner_alloc(t->owner, (size_t)((t->o.batch + t->o.block - 1) / t->o.block) *
                                                sizeof *t->score);
    if (!t->score) return false;
    memset(t->score, 0, (size_t)blocks * sizeof *t->score);
    snprintf(who, sizeof who, "trainer, step %lld", (long long)t->now.step + 1);
    if (eg_step_over(t->opt, trainer_loss, t, all->rows, .block = t->o.block,
                     .leaves = (int)t->o.leaves, .serial = t->network->serial, .ranks = t->ranks,
                     .mean = mean, .who = who, .captured = t->captured, .kind = trainer_kind)) {
        char sentence[900];
        if (eg_error_code(t->cx) != EG_ERROR_NONFINITE) return false;
        snprintf(sentence, sizeof sentence, "%s; a smaller .lr or .clip_norm may help",
                 eg_error(t->cx));
        eg_clear(t->cx);
        eg_fail_as(t->cx, EG_ERROR_NONFINITE, "%s", sentence);
        return false;
    }
    for (int64_t k = 0; k < blocks; k++) eg__score_add(s, &t->score[k]);
    return score_of_all(t, s);
}

bool eg__trainer_there(const char *who, const eg_trainer *t)
{
    if (!t) eg_fail_as(NULL, EG_ERROR_MISUSE, "%s: the trainer is NULL", who);
    return t;
}
bool eg__trainer_has_rule(const char *who, const eg_trainer *t)
{
    if (t->rule_missing)
        eg_fail_as(t->cx, EG_ERROR_MISUSE,
                   "%s: the run has the custom optimiser \"%s\", and was loaded without .rule", who,
                   t->o.optimiser);
    return !t->rule_missing;
}
bool eg__trainer_ready(const char *who, const eg_trainer *t)
{
    return eg__trainer_there(who, t) && !eg_error(t->cx);
}

/* The time of this batch is measured. If the step fails, the next one has the same batch and the
 * same random draws, as in a run in which nothing failed. */
/* Returns the progress after the last step. */
static eg_progress progress_of(const eg_trainer *t)
{
    return t ? t->now : (eg_progress){ .exact = -1, .held_out_loss = -1, .best_loss = -1 };
}
int eg_trainer_step(eg_trainer *t, eg_progress *p)
{
    if (p) *p = progress_of(t);
    if (!eg__trainer_ready("trainer_step", t) || !eg__trainer_has_rule("trainer_step", t))
        return -1;
    if (t->now.step >= STEP_MOST || eg_opt_report_of(t->opt).steps >= STEP_MOST) {
        eg_fail_as(t->cx, EG_ERROR_MISUSE,
                   "trainer: all of the 2^53 steps that can be counted are done");
        return -1;
    }
    double start = now(), mean = 0, lr = eg_opt_report_of(t->opt).lr;
    eg_score s = { 0 };
    const uint64_t cursor = t->batches->cursor, draws = eg_draws(t->cx);
    eg_batch b = eg__batches_next(t->batches);
    bool good = b.rows > 0;
    if (good) {
        t->batch = b;
        t->batch.full_batch = &t->batch;
        bool training_before = eg_training(t->cx);
        eg_train(t->cx);
        eg_mark m = eg_push(t->cx);
        good = trainer_step_over(t, &mean, &s);
        eg_pop(t->cx, m);
        if (!training_before) eg_eval(t->cx);
    }
    if (!good || eg_error(t->cx)) {
        t->batches->cursor = cursor;
        eg_set_draws(t->cx, draws);
        return -1;
    }
    double took = now() - start;
    eg_opt_report opt = eg_opt_report_of(t->opt);
    eg_progress *n = &t->now;
    n->step++;
    n->loss = mean, n->accuracy = (double)s.right / (double)s.tokens,
    n->sequence_accuracy = (double)s.exact / (double)s.sequences;
    n->tokens_per_second = (double)(b.rows * b.length) / took, n->seconds += took, n->lr = lr,
    n->norm = opt.norm, n->clipped = opt.norm_clipped;
    if (opt.norm > n->largest_norm) n->largest_norm = opt.norm, n->largest_norm_step = n->step;
    if (p) *p = *n;
    return 0;
}

eg_progress eg_trainer_progress(const eg_trainer *t)
{
    eg_progress p = progress_of(t);
    if (t) p.lr = eg_opt_report_of(t->opt).lr;
    return p;
}

/* -- evaluation ------------------------------------------------------------------------------- */
eg__evaluation eg__evaluation_begin(eg_ctx *cx)
{
    eg__evaluation e = { eg_switches_of(cx), eg_draws(cx) };
    eg_nograd(cx, true);
    eg_eval(cx);
    return e;
}

void eg__evaluation_end(eg_ctx *cx, eg__evaluation e)
{
    eg_set_draws(cx, e.draws);
    eg_switches_restore(cx, e.was);
}

static eg_tensor *trainer_logits(const void *trainer, eg_ctx *cx, const eg_batch *b)
{
    return eg__network_logits(trainer, cx, b, NULL);
}
int eg_trainer_evaluate(eg_trainer *t, eg_score *out)
{
    if (!eg__trainer_ready("trainer_evaluate", t)) return -1;
    eg_score all;
    if (eg__evaluate(&(eg__evaluating){ .batches = t->batches,
                                        .logits = trainer_logits,
                                        .network = t,
                                        .batch = t->o.batch,
                                        .block = t->o.block < t->o.batch ? t->o.block : t->o.batch,
                                        .serial = t->network->serial,
                                        .ranks = t->ranks,
                                        .who = "trainer_evaluate" },
                     &all))
        return -1;
    t->now.exact = (double)all.exact / (double)all.sequences;
    t->now.held_out_loss = all.loss;
    if (out) *out = all;
    return 0;
}

int eg_trainer_keep_best(eg_trainer *t, const char *path)
{
    char *copy = t && path ? eg_owner_alloc(t->owner, strlen(path) + 1) : NULL;
    if (!eg__trainer_there("trainer_keep_best", t) || (path && !copy)) return -1;
    t->best_path = copy ? strcpy(copy, path) : NULL;
    return 0;
}

/* Evaluates on the test set inside the loop, for early_stop and eg_trainer_keep_best. Returns 0;
 * −1 after an error. */
static int evaluate_and_keep_best(eg_trainer *t)
{
    eg_progress *n = &t->now;
    if (eg_trainer_evaluate(t, NULL)) return -1;
    if (!isfinite(n->held_out_loss)) { /* if a NaN were stored as the best, no later loss would be
                                          smaller */
        eg_fail_as(t->cx, EG_ERROR_MISUSE, "trainer: the held-out loss after step %lld is %g",
                   (long long)n->step, n->held_out_loss);
        return -1;
    }
    bool better = n->best_loss < 0 || n->held_out_loss < n->best_loss;
    t->waited = better ? 0 : t->waited + 1;
    if (better) n->best_loss = n->held_out_loss, n->best_step = n->step;
    n->stopped = t->o.early_stop && t->waited >= t->o.early_stop;
    return better && t->best_path ? eg_trainer_save(t, t->best_path) : 0;
}

/* Sends rank 0's command to all ranks, and returns it; −1 after an error on any rank. */
int eg__trainer_broadcast(eg_trainer *t, char what)
{
    char *all = (char *)t->rank_scores;
    if (eg_ranks_barrier(t->ranks) || eg_ranks_gather(t->ranks, &what, 1, all)) return -1;
    return all[0];
}
/* Returns 1 if `watch` of rank 0 ends the run, else 0; −1 after an error on any rank. Meanwhile
 * rank 0 may save, for which it requests the moments of the others. */
static int run_ends(eg_trainer *t, bool stop)
{
    if (eg_ranks_count(t->ranks) == 1) return stop;
    for (;;) {
        const int command = eg__trainer_broadcast(t, stop ? EG__COMMAND_STOP : EG__COMMAND_GO);
        if (command != EG__COMMAND_SAVE) return command;
        eg__trainer_collect(t, NULL); /* an error of rank 0 ends its watch and is reported next */
    }
}
/* Makes the steps of eg_trainer_run. Whether to evaluate depends only on the step and its batch, so
 * that a resumed run stops at the same step as the uninterrupted one. Returns 0; −1 after an
 * error. */
static int trainer_steps(eg_trainer *t, bool (*watch)(void *, eg_trainer *, const eg_progress *),
                         void *user)
{
    const eg_trainer_args *o = &t->o;
    while (t->now.step < o->steps && !t->now.stopped) {
        if (eg_trainer_step(t, NULL)) return -1;
        bool due = o->evaluate ? t->now.step % o->evaluate == 0
                               : o->goal > 0 && t->now.step % EVERY == 0 &&
                                     t->now.sequence_accuracy >= o->goal - 0.05;
        bool evaluated = due || t->now.step == o->steps;
        if (evaluated && evaluate_and_keep_best(t)) return -1;
        t->watching = true;
        const bool stop = watch && watch(user, t, &t->now);
        t->watching = false;
        const int ends = run_ends(t, stop);
        if (ends < 0) return -1;
        if (ends || (evaluated && o->goal > 0 && t->now.exact >= o->goal)) break;
    }
    return eg_error(t->cx) ? -1 : 0;
}
int eg_trainer_run(eg_trainer *t, bool (*watch)(void *, eg_trainer *, const eg_progress *),
                   void *user, eg_progress *last)
{
    const int bad = eg__trainer_ready("trainer_run", t) ? trainer_steps(t, watch, user) : -1;
    if (last) *last = progress_of(t);
    return bad;
}

/* -- ranks ------------------------------------------------------------------------------------ */
/* True if the data and the steps done are the same on all ranks; else records an error. */
static bool divide_agree(const eg_trainer *t, eg_ranks *r)
{
    const eg_data *d = t->data;
    char text[128];
    snprintf(text, sizeof text, "%lld", (long long)t->now.step);
    if (eg_ranks_agree(r, "the steps done", text)) return false;
    uint64_t h = eg_hash(d->sum + 1, d->name, strlen(d->name));
    if (d->text) h = eg_hash(h, d->text, strlen(d->text));
    snprintf(text, sizeof text, "%.60s, %lld examples, %d symbols, %016llx",
             strrchr(d->name, '/') ? strrchr(d->name, '/') + 1 : d->name, (long long)d->count,
             d->symbols, (unsigned long long)h);
    return !eg_ranks_agree(r, "the data", text);
}
/* With NULL or one rank the optimiser is made complete again. Memory is allocated before the ranks
 * agree. */
int eg_trainer_distribute(eg_trainer *t, eg_ranks *r)
{
    if (!eg__trainer_there("trainer_distribute", t)) return -1;
    if (!r || eg_ranks_count(r) == 1) {
        t->ranks = NULL;
        return eg_opt_shard(t->opt, NULL);
    }
    if (eg_ranks_context(r) != t->cx) {
        eg_fail_as(t->cx, EG_ERROR_MISUSE, "trainer: the ranks belong to another context");
        return -1;
    }
    eg_score *scores = eg_owner_alloc(t->owner, (size_t)eg_ranks_count(r) * sizeof *scores);
    eg_owner *owner = eg_owner_open(t->cx);
    const bool good =
        !eg_ranks_barrier(r) && scores && divide_agree(t, r) && eg__trainer_agree(t, r, owner);
    eg_owner_close(owner);
    if (!good || eg_opt_shard(t->opt, r)) return -1;
    t->rank_scores = scores;
    t->ranks = r;
    return 0;
}

/* -- properties -------------------------------------------------------------------------------- */
int eg_trainer_test(eg_trainer *t, int k, eg_example *e)
{
    bool there = t && k >= 0 && k < t->batches->tests && !t->data->free_text;
    return there ? eg_data_example(t->data, t->o.seed, t->batches->test[k], e) : -1;
}
eg_params *eg_trainer_params(eg_trainer *t) { return t ? t->params : NULL; }
eg_opt *eg_trainer_opt(eg_trainer *t) { return t ? t->opt : NULL; }
eg_data *eg_trainer_data(eg_trainer *t) { return t ? t->data : NULL; }
const eg_trainer_args *eg_trainer_config(const eg_trainer *t) { return t ? &t->o : NULL; }
const char *eg_trainer_config_text(eg_trainer *t)
{
    eg_owner *owner = t && !eg_error(t->cx) ? eg_owner_open(t->cx) : NULL;
    return owner ? eg__network_config(t, owner) : NULL;
}
