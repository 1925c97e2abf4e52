/* evaluate.c: the score of a network on the test set. Each thread computes complete blocks of
 * sequences, as in a training step (eg_grad_over without xs), and ranks compute consecutive blocks.
 * Every block has a separate score; these are added in the order of the blocks, losses along the
 * tree of pairs, so that the bits do not depend on which thread or rank computed which block. */
#include "batch.h"
#include <eingrad/grad.h>
#include <string.h>

typedef struct evaluating {
    const eg__evaluating *o;
    int64_t blocks, leaves;
    eg_score *score; /* by block */
} evaluating;
/* Returns the loss of test sequences [from, to), which are one block. */
static eg_tensor *evaluating_block(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    const evaluating *e = user;
    const eg__evaluating *o = e->o;
    const int64_t rows = o->batches->test_batch_rows, first = from / rows * rows;
    const eg_batch b =
        eg_batch_part(&o->batches->test_batches[from / rows], from - first, to - first);
    eg_score *s = &e->score[from / o->block];
    eg_tensor *logits = o->logits(o->network, cx, &b);
    if (!eg__batch_logits_fit(cx, o->batches, "the network", &b, logits)) return NULL;
    eg_tensor *loss = eg_batch_loss(cx, &b, logits, 0);
    *s = eg__batch_right(o->batches, &b, logits);
    s->loss = eg_item(loss);
    *count = s->tokens;
    return loss;
}
static int evaluating_taken(void *user, const eg_leaf_sum *s)
{
    (void)user, (void)s;
    return 0; /* evaluating_block has stored the score and the loss of each block */
}
/* Returns the leaves that a rank computes, and the blocks in them. */
static eg_span evaluating_leaves(const evaluating *e, int64_t rank)
{
    const int64_t ranks = eg_ranks_count(e->o->ranks);
    return (eg_span){ rank * e->leaves / ranks, (rank + 1) * e->leaves / ranks };
}
static eg_span evaluating_blocks(const evaluating *e, int64_t rank)
{
    const eg_span l = evaluating_leaves(e, rank);
    return (eg_span){ l.from * e->blocks / e->leaves, l.to * e->blocks / e->leaves };
}
/* Computes this rank's blocks. False after an error. */
static bool evaluating_here(evaluating *e)
{
    const eg__evaluating *o = e->o;
    const eg_span own = evaluating_leaves(e, eg_ranks_rank(o->ranks));
    if (own.from == own.to) return true;
    return !eg_grad_over(o->batches->cx, evaluating_block, e, o->batches->tests, .block = o->block,
                         .leaves = (int)e->leaves, .from_leaf = own.from, .to_leaf = own.to,
                         .take = evaluating_taken, .serial = o->serial, .who = o->who);
}
/* Adds the scores of the other ranks, which have at most `most` blocks; `scores` has memory for
 * `most` scores of each rank. False after an error on any rank. */
static bool evaluating_gather(evaluating *e, int64_t most, eg_score *scores)
{
    eg_ranks *ranks = e->o->ranks;
    const eg_span own = evaluating_blocks(e, eg_ranks_rank(ranks));
    eg_score *mine = scores + most * eg_ranks_count(ranks);
    memset(mine, 0, (size_t)most * sizeof *mine);
    memcpy(mine, e->score + own.from, (size_t)(own.to - own.from) * sizeof *mine);
    if (eg_ranks_gather(ranks, mine, (size_t)most * sizeof *mine, scores)) return false;
    for (int64_t r = 0; r < eg_ranks_count(ranks); r++) {
        const eg_span s = evaluating_blocks(e, r);
        memcpy(e->score + s.from, scores + r * most, (size_t)(s.to - s.from) * sizeof *mine);
    }
    return true;
}
/* Allocates scores for all blocks, memory to gather them, and a loss for each block, when they are
 * first needed. NULL without memory. */
static eg_score *evaluating_alloc(eg_batches *t, int64_t blocks, int64_t gathered)
{
    const int64_t need = 2 * blocks + gathered;
    if (t->scores >= need) return t->score;
    t->score = eg_owner_alloc(t->owner, (size_t)need * sizeof *t->score);
    t->scores = t->score ? need : 0;
    return t->score;
}
/* The work of eg__evaluate between eg__evaluation_begin and _end. False after an error on any
 * rank. */
static bool evaluating_run(const eg__evaluating *o, eg_score *out)
{
    eg_batches *t = o->batches;
    const int64_t ranks = eg_ranks_count(o->ranks), blocks = (t->tests + o->block - 1) / o->block,
                  leaves = blocks < EG_LEAVES_MAX ? blocks : EG_LEAVES_MAX,
                  rows = o->batch > o->block ? o->batch / o->block * o->block : o->block;
    evaluating e = { .o = o, .blocks = blocks, .leaves = leaves };
    int64_t most = 0;
    for (int64_t r = 0; r < ranks; r++) {
        const eg_span s = evaluating_blocks(&e, r);
        most = s.to - s.from > most ? s.to - s.from : most;
    }
    e.score = evaluating_alloc(t, blocks, ranks > 1 ? (ranks + 1) * most : 0);
    const bool good = e.score && eg__batches_fill_tests(t, rows) && evaluating_here(&e);
    if (ranks > 1 && eg_ranks_barrier(o->ranks)) return false;
    if (!good || (ranks > 1 && !evaluating_gather(&e, most, e.score + 2 * blocks))) return false;
    double *loss = (double *)(void *)(e.score + blocks);
    *out = (eg_score){ 0 };
    for (int64_t k = 0; k < blocks; k++) {
        loss[k] = e.score[k].loss;
        eg__score_add(out, &e.score[k]);
    }
    out->loss = eg_ranks_tree_total(loss, (eg_span){ 0, blocks }) / (double)out->tokens;
    return true;
}
int eg__evaluate(const eg__evaluating *o, eg_score *out)
{
    eg_ctx *cx = o->batches->cx;
    eg_score s;
    const eg__evaluation e = eg__evaluation_begin(cx);
    const eg_mark m = eg_push(cx);
    const bool good = evaluating_run(o, &s);
    eg_pop(cx, m);
    eg__evaluation_end(cx, e);
    if (!good || eg_error(cx)) return -1;
    if (out) *out = s;
    return 0;
}
