/* blocks.c: eg_grad_over, the gradient of a sum over examples, block by block; without xs only the
 * sum.
 *
 * There are two levels. A leaf is a sequence of blocks, whose gradients are added in order; the
 * sums of the leaves are added along one binary tree (blocks_tree.c). Leaves and tree depend only
 * on the numbers of blocks and of leaves, so the sum has the same bits no matter which thread
 * computes which leaf.
 *
 * The threads are those of the context; each has a child context (core/child.c). The draws of a
 * block have a separate seed, a hash of the context's seed, the number of the call and that of the
 * block. */
#include "autograd/blocks.h"
#include <math.h>

enum { BLOCK = 8, LEAVES = 16 };

/* -- a block ---------------------------------------------------------------------------------- */
/* True if the counts of all blocks can be added up without overflow; else records an error. */
bool eg__block_count_fits(eg_ctx *child, int64_t count)
{
    if (count >= 0 && count <= EG__EXAMPLES_MOST) return true;
    eg_fail_as(child, EG_ERROR_MISUSE, "the count is %lld; it must be from 0 to 2^48",
               (long long)count);
    return false;
}
/* Records the child's error as the call's error, unless an earlier block failed; k is the number of
 * this block. */
static void blocks_fail(blocks *b, eg_ctx *child, int64_t k)
{
    pthread_mutex_lock(&b->lock);
    if (k < atomic_load(&b->failed)) {
        atomic_store(&b->failed, k);
        b->code = eg_error_code(child);
        b->cause = child->cause;
        snprintf(b->message, sizeof b->message, "%s", eg_error(child));
    }
    pthread_mutex_unlock(&b->lock);
    eg_clear(child);
}
/* Calls a loss. Records an error if the loss changed the context's switches: the backward pass, and
 * what the caller computes afterwards, would run with other switches. */
static eg_tensor *block_called(eg_ctx *cx, eg_block_loss *loss, void *user, int64_t *count)
{
    const eg_switches was = eg_switches_of(cx);
    eg_tensor *y = loss(user, cx, cx->block.from, cx->block.to, count);
    const char *changed = eg_switches_restore(cx, was);
    if (changed) eg_fail_as(cx, EG_ERROR_MISUSE, "%s was called and not undone", changed);
    return y;
}
/* True if y is a float tensor of one element and the count is valid; else records an error. */
static bool block_loss_fits(eg_ctx *child, eg_tensor *y, int64_t count)
{
    if (child->failed) return false;
    if (!y)
        eg_fail_as(child, EG_ERROR_MISUSE, "the loss is NULL");
    else if (!eg__check_differentiable(child, "grad", "the loss", -1, y))
        return false;
    else if (eg_size(y) != 1)
        eg_fail_as(child, EG_ERROR_SHAPE,
                   "the loss has %lld elements, not one; it must be the sum over its examples",
                   (long long)eg_size(y));
    else
        eg__block_count_fits(child, count);
    return !child->failed;
}
eg_tensor *eg__block_loss(const eg_grad_over_args *o, eg_ctx *child, int64_t *count)
{
    eg_tensor *y = block_called(child, o->loss, o->user, count);
    if (eg_ok(y) && !(y = eg__own(y))) y = &child->poison;
    return block_loss_fits(child, y, *count) ? y : NULL;
}
/* True if the loss is finite, or no gradient is computed; else records an error with its value. */
static bool blocks_loss_finite(const blocks *b, eg_ctx *child, eg_tensor *y)
{
    if (b->o.count && !isfinite(eg_item(y)) && !child->hooks.result)
        eg_fail_as(child, EG_ERROR_NONFINITE, "the loss is %g, which comes from %s",
                   isnan(eg_item(y)) ? (double)NAN : eg_item(y), eg_origin(eg_first_nonfinite(y)));
    return !child->failed;
}
/* Adds the gradients of the loss y to the sum s. False after an error. */
static bool blocks_sweep(blocks *b, eg_ctx *child, eg_tensor *y, blocks_sum *s)
{
    eg_into *into = eg__alloc(child, (size_t)b->o.count * sizeof *into);
    blocks_work w = { .b = b, .child = child, .s = s, .into = into };
    const eg_into_watch watch = { eg__blocks_complete, &w };
    if (!b->o.count) return into != NULL;
    const bool was = eg_nograd(child, true);
    bool good = into != NULL;
    for (int k = 0; good && k < b->o.count; k++) {
        into[k] = (eg_into){ .sum = eg__borrow_here(child, s->g[k]), .reached = s->reached[k] };
        good = into[k].sum != NULL;
    }
    good = good && !eg__grad_into(y, b->o.count, b->o.xs, into, b->early ? &watch : NULL);
    for (int k = 0; good && k < b->o.count; k++) s->reached[k] = into[k].reached;
    eg_nograd(child, was);
    return good;
}
/* Sets the switches, the draws and the examples of block k in the child, the same for every
 * thread. */
static void blocks_begin(const blocks *b, eg_ctx *child, int64_t k)
{
    uint32_t key[4];
    eg__philox(b->seed, b->draw, (uint64_t)k, key);
    child->seed = (uint64_t)key[1] << 32 | key[0];
    child->draw = 0;
    child->block.on = true;
    child->block.draw = b->draw;
    child->block.block = (uint64_t)k;
    child->block.from = k * b->o.block;
    child->block.to = eg__min64(child->block.from + b->o.block, b->o.examples);
    child->block.copy = b->copy;
    child->block.batch = &b->batch;
    child->training = b->cx->training;
    child->flush = b->cx->flush;
    child->recording = b->o.count > 0;
}
/* The examples [from, to) are those of the context while the loss runs; afterwards its former
 * examples are restored. */
eg_tensor *eg_block_call_with(const eg_block_call_args *given)
{
    eg_block_call_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    if (eg__failed(o.cx)) return NULL;
    eg_ctx *cx = eg__here(o.cx);
    if (!o.loss || o.from < 0 || o.to <= o.from)
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          o.loss ? "block_call: there are no examples from %lld to %lld"
                                 : "block_call: the loss is NULL",
                          (long long)o.from, (long long)o.to - 1),
               NULL;
    eg__block_batch batch;
    if (o.batch[0].name && eg__capture_refuses(cx, "block_call", "its batch ends with the call"))
        return NULL;
    if (!eg__batch_fit(cx, "block_call", o.batch, o.to, true, cx->loans.copies, &batch))
        return NULL;
    const int64_t before[] = { cx->block.from, cx->block.to };
    const eg__block_batch *outer = cx->block.batch;
    int64_t all = o.to - o.from;
    cx->block.from = o.from;
    cx->block.to = o.to;
    cx->block.batch = &batch;
    if (!o.count) o.count = &all;
    *o.count = all;
    eg_tensor *y = block_called(cx, o.loss, o.user, o.count);
    if (!cx->failed) eg__block_count_fits(cx, *o.count);
    cx->block.from = before[0];
    cx->block.to = before[1];
    cx->block.batch = outer;
    return eg_ok(y) && !cx->failed ? y : NULL;
}
int eg_block_range(const eg_ctx *cx, int64_t *from, int64_t *to)
{
    cx = eg__here(cx);
    if (!cx || !cx->block.to) return -1;
    if (from) *from = cx->block.from;
    if (to) *to = cx->block.to;
    return 0;
}
int64_t eg_block_copy(const eg_ctx *cx)
{
    cx = eg__here(cx);
    return cx && cx->block.to ? cx->block.copy : -1;
}
/* Computes block k in a separate scope and adds it to s. False after an error. */
static bool blocks_one(blocks *b, int worker, int64_t k, blocks_sum *s)
{
    eg_ctx *child = b->child[worker];
    blocks_begin(b, child, k);
    if (b->captured) {
        const eg_block_done done = eg__block_captured(b, worker, s);
        if (done == EG_BLOCK_FAILED) blocks_fail(b, child, k);
        if (done != EG_BLOCK_NOT_CAPTURED) return done == EG_BLOCK_DONE;
        blocks_begin(b, child, k);
    }
    int64_t count = child->block.to - child->block.from;
    const eg_mark m = eg_push(child);
    eg_tensor *y = m.scope ? eg__block_loss(&b->o, child, &count) : NULL;
    const bool good = y && blocks_loss_finite(b, child, y) && blocks_sweep(b, child, y, s);
    if (good) {
        s->loss += eg_item(y);
        s->count += count;
    } else
        blocks_fail(b, child, k);
    eg_pop(child, m);
    if (child->failed) { /* the block popped a scope that it had not opened */
        blocks_fail(b, child, k);
        return false;
    }
    return good;
}
/* True if x was computed from one of the xs. The traversal writes to headers of the calling
 * context. */
static bool blocks_reach(const blocks *b, eg_tensor *x)
{
    bool of_xs = false;
    if (!x->op || !eg__is_float(x->dtype)) return false;
    eg_walk w = { .cx = b->cx, .oldest = UINT64_MAX, .floats = true, .slopes = true };
    for (int k = 0; k < b->o.count; k++)
        if (b->o.xs[k]->seq < w.oldest) w.oldest = b->o.xs[k]->seq;
    eg__walk(&w, 1, &x);
    for (int k = 0; k < b->o.count; k++) of_xs |= b->o.xs[k] != x && eg__walked(&w, b->o.xs[k]);
    return of_xs;
}
/* True if a block may read the parent's tensor x as a constant. False, after an error, if x depends
 * on one of the xs, since the gradient by way of x would be missing. */
static bool blocks_may_read(eg_ctx *child, eg_tensor *x, void *user)
{
    char at[256];
    eg__family_lock(child);
    const bool of_xs = blocks_reach(user, x);
    eg__family_unlock(child);
    if (of_xs)
        eg_fail_as(child, EG_ERROR_MISUSE,
                   "%s was computed outside of the block from an x, and the gradient through it "
                   "would be missing: compute it in the block, or use eg_detach",
                   eg__origin(x, at, sizeof at));
    return !of_xs;
}
/* Gives the child of a worker headers of the xs, before its first block: an x must be older than
 * all nodes that are computed from it. The calling thread is inside the child. False after an
 * error; a worker that then takes an earlier block tries again. */
static bool blocks_open(blocks *b, int worker)
{
    eg_ctx *child = b->child[worker];
    if (b->opened[worker]) return true;
    if (!b->captured && !b->loan[worker].scope)
        b->loan[worker] = eg__borrow_open(child, blocks_may_read, b);
    child->loans.copies = b->o.copies;
    child->loans.copy = b->copy;
    bool good = b->captured ? eg__blocks_captured_open(b, worker, blocks_may_read)
                            : b->loan[worker].scope != NULL;
    for (int i = 0; i < b->o.count && good; i++) good = eg__borrow(child, b->o.xs[i]) != NULL;
    return b->opened[worker] = good && !child->failed;
}
/* Computes one leaf; a piece of eg__parallel. Blocks after one that failed are not computed. */
static void blocks_leaf(void *user, int64_t piece, int thread)
{
    blocks *b = user;
    eg_ctx *child = b->child[thread];
    const int64_t leaf = b->from + piece, end = (leaf + 1) * b->blocks / b->leaves;
    int64_t k = leaf * b->blocks / b->leaves;
    if (k > atomic_load(&b->failed)) return;
    blocks_sum *s = eg__blocks_take(b);
    s->leaf = leaf;
    eg__enter(child, __builtin_frame_address(0), b->cx->from);
    if (!blocks_open(b, thread)) blocks_fail(b, child, k);
    for (; k < end && k < atomic_load(&b->failed); k++) {
        s->last = k == end - 1;
        if (!blocks_one(b, thread, k, s)) break;
    }
    if (k == end && !eg__blocks_climb(b, child, leaf, s)) blocks_fail(b, child, end - 1);
    atomic_fetch_add(&b->climbed, 1);
    eg__leave();
}

/* -- the call --------------------------------------------------------------------------------- */
/* Returns the largest number of sums that are in use at one time; blocks_tree.c derives it. The
 * team may be smaller than the number of workers, and leaves are divided as eg__parallel does it.
 */
static int64_t blocks_sums(const blocks *b, int levels)
{
    const int64_t leaves = b->to - b->from, left = b->from ? levels : 0;
    int64_t most = 0;
    for (int team = 1; team <= b->workers; team++) {
        int64_t sums = left + team * (int64_t)(levels + 1);
        for (int t = 1; t < team; t++) {
            const int64_t first = b->from + leaves * t / team;
            for (int l = 0; l < levels; l++) sums += (first & (((int64_t)2 << l) - 1)) != 0;
        }
        if (sums > most) most = sums;
    }
    return eg__min64(leaves, most);
}
/* Allocates the sums and the tree, in the open scope. False after an error. */
static bool blocks_alloc(blocks *b)
{
    int levels = 0;
    while (eg__blocks_wide(b, levels) > 1) levels++;
    for (int l = 0; l <= levels; l++) {
        const int64_t wide = eg__blocks_wide(b, l);
        if (!(b->at[l] = eg__alloc(b->cx, (size_t)wide * sizeof *b->at[l]))) return false;
        for (int64_t k = 0; k < wide; k++) atomic_init(&b->at[l][k], NULL);
    }
    for (int64_t n = blocks_sums(b, levels); n > 0; n--) {
        blocks_sum *s = eg__alloc(b->cx, sizeof *s);
        if (!s || !(s->g = eg__alloc(b->cx, (size_t)b->o.count * sizeof *s->g)) ||
            !(s->reached = eg__alloc(b->cx, (size_t)b->o.count)))
            return false;
        for (int k = 0; k < b->o.count; k++) {
            const eg_tensor *x = b->o.xs[k];
            if (!(s->g[k] = eg__new(b->cx, x->dtype, x->rank, x->dim))) return false;
        }
        s->next = b->free;
        b->free = s;
    }
    return true;
}

static void blocks_close(blocks *b)
{
    for (int k = 0; k < b->workers; k++)
        if (b->child[k] && (b->captured || b->loan[k].scope)) {
            eg__enter(b->child[k], NULL, NULL);
            if (b->captured)
                eg__blocks_captured_close(b, k);
            else
                eg__borrow_close(b->child[k], b->loan[k]);
            b->child[k]->failed = false;
            eg__leave();
        }
}

/* True if the tensors of .batch fit and are constants; else records an error. */
static bool blocks_batch(blocks *b)
{
    const eg_grad_over_args *o = &b->o;
    for (int k = 0; k < BATCH_MOST && o->batch[k].name; k++) {
        eg_tensor *x = o->batch[k].x;
        bool is_x = false;
        for (int i = 0; i < o->count; i++) is_x |= o->xs[i] == x;
        if (is_x || (x && x->cx == b->cx &&
                     eg__check_option(b->cx, o->who, ".batch", o->batch[k].name, EG_TAKES_ALL, x) &&
                     blocks_reach(b, x)))
            eg_fail_as(b->cx, EG_ERROR_MISUSE,
                       "%s: \"%s\" of .batch %s, and the gradient through it would be missing",
                       o->who, o->batch[k].name,
                       is_x ? "is an x" : "was computed from an x outside of the blocks");
        if (b->cx->failed) return false;
    }
    return eg__batch_fit(b->cx, o->who, o->batch, o->examples, false, o->copies, &b->batch);
}
/* True if the options are in range and the xs can be differentiated; else records an error. */
static bool blocks_fit(blocks *b)
{
    eg_grad_over_args *o = &b->o;
    eg_ctx *cx = b->cx;
    const char *who = o->who;
    if (cx->failed) return false;
    if (!o->examples) o->examples = eg__batch_examples(o->batch);
    if (eg__capture_refuses(cx, who, "its blocks have other contexts")) return false;
    if (cx->parent || cx->block.to || cx->probe)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: inside %s", who,
                   cx->parent || cx->block.to ? "a block of another call" : "a gradient check");
    else if (!o->loss)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: the loss is NULL", who);
    else if (o->examples < 1 || o->examples > EG__EXAMPLES_MOST || o->block < 0)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: %s, not %lld", who,
                   o->block < 0 ? "a block must have at least 1 example, and 0 is for 8"
                                : "there must be from 1 to 2^48 examples",
                   (long long)(o->block < 0 ? o->block : o->examples));
    else if (o->leaves < 0 || o->leaves > EG_LEAVES_MAX)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: %d leaves; 1 to %d, and 0 for %d", who, o->leaves,
                   EG_LEAVES_MAX, LEAVES);
    else if (o->count < 0 || (!o->count && (o->xs || o->dxs)))
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: there are no xs", who);
    else if (o->count && (!o->xs || (!o->dxs && !o->take)))
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: %s", who, o->xs ? "dxs is NULL" : "xs is NULL");
    else if (!o->count && o->captured)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: without xs, blocks are not captured", who);
    for (int k = 0; k < o->count && !cx->failed; k++)
        if (eg__check_differentiable(cx, who, "xs", k, o->xs[k]) && o->xs[k]->tag &&
            o->xs[k]->tag->hook)
            eg_fail_as(cx, EG_ERROR_MISUSE,
                       "%s: xs[%d] has a hook, which several blocks would call at a time", who, k);
    return !cx->failed && eg__blocks_copies_fit(b) && blocks_batch(b);
}
/* Sets defaults, and the range of leaves that this process computes. False after an error. */
static bool blocks_plan(blocks *b)
{
    eg_grad_over_args *o = &b->o;
    if (!o->block) o->block = BLOCK;
    o->block = eg__min64(o->block, o->examples);
    b->blocks = (o->examples + o->block - 1) / o->block;
    b->leaves = eg__min64(o->leaves ? o->leaves : LEAVES, b->blocks);
    b->from = o->from_leaf;
    b->to = o->to_leaf ? o->to_leaf : b->leaves;
    if (b->from < 0 || b->from >= b->to || b->to > b->leaves)
        eg_fail_as(
            b->cx, EG_ERROR_MISUSE,
            "%s: .from_leaf is %lld and .to_leaf %lld, but there %s %lld lea%s, counted from 0",
            o->who, (long long)b->from, (long long)b->to, b->leaves == 1 ? "is" : "are",
            (long long)b->leaves, b->leaves == 1 ? "f" : "ves");
    else if (b->to - b->from < b->leaves && !o->take)
        eg_fail_as(b->cx, EG_ERROR_MISUSE, "%s: .from_leaf and .to_leaf need .take", o->who);
    const int threads = b->cx->threads < BLOCKS_WORKERS ? b->cx->threads : BLOCKS_WORKERS;
    b->workers = o->serial || b->to - b->from < threads ? 1 : threads;
    b->seed = b->cx->seed;
    return !b->cx->failed;
}

/* Calls `take` with the sums of the largest subtrees of this process's leaves, from left to right.
 * False after an error. */
static bool blocks_take_sums(blocks *b)
{
    for (int64_t leaf = b->from; leaf < b->to;) {
        int level = 0;
        while (eg__blocks_wide(b, level) > 1 && leaf >> level << level == leaf &&
               !(leaf & ((int64_t)1 << level)) &&
               eg__blocks_here(b, level + 1, leaf >> (level + 1)))
            level++;
        const blocks_sum *s = atomic_load(&b->at[level][leaf >> level]);
        if (!s) return false;
        for (int k = 0; k < b->o.count; k++)
            if (!s->reached[k]) eg_fill(s->g[k], 0);
        const eg_leaf_sum sum = { .from = leaf,
                                  .to = eg__min64(leaf + ((int64_t)1 << level), b->leaves),
                                  .level = level,
                                  .gradient = s->g,
                                  .reached = s->reached,
                                  .loss = s->loss,
                                  .count = s->count };
        if (b->o.take(b->o.take_user, &sum)) {
            if (!b->cx->failed)
                eg_fail_as(b->cx, EG_ERROR_USER, "%s: .take failed without recording an error",
                           b->o.who);
            return false;
        }
        leaf = sum.to;
    }
    return true;
}
/* Computes the leaves, on all threads or one after another, and passes their sums to `take`. False
 * after an error. */
static bool blocks_run(blocks *b)
{
    const int64_t leaves = b->to - b->from;
    if (!blocks_alloc(b)) return false;
    for (int k = 0; k < b->workers; k++)
        if (!(b->child[k] = eg__child(b->cx, k))) return false;
    b->cx->from = eg__caller(b->cx);
    if (b->workers > 1)
        eg__parallel(b->cx, b->workers, leaves, blocks_leaf, b);
    else {
        eg__team_lend(b->cx, b->child[0]);
        for (int64_t k = 0; k < leaves; k++) blocks_leaf(b, k, 0);
        eg__team_take_back(b->child[0]);
    }
    b->cx->from = NULL;
    const int64_t k = atomic_load(&b->failed), from = k < b->blocks ? k * b->o.block : 0;
    char copy[32] = "";
    if (b->o.copies) snprintf(copy, sizeof copy, "copy %lld, ", (long long)b->copy);
    if (k < b->blocks)
        eg__fail_because(b->cx, b->cause, b->code, "%s: %sblock %lld (examples %lld to %lld): %s",
                         b->o.who, copy, (long long)k, (long long)from,
                         (long long)eg__min64(from + b->o.block, b->o.examples) - 1, b->message);
    if (b->o.sums) *b->o.sums = b->most;
    return !b->cx->failed && (b->o.take ? blocks_take_sums(b) : eg__blocks_mean(b));
}
bool eg__blocks_call(blocks *b)
{
    atomic_init(&b->failed, INT64_MAX);
    atomic_init(&b->climbed, 0);
    b->front = b->o.count;
    pthread_mutex_init(&b->lock, NULL);
    const bool good = blocks_run(b);
    blocks_close(b);
    pthread_mutex_destroy(&b->lock);
    return good;
}

int eg_grad_over_with(const eg_grad_over_args *given) { return eg__grad_over(given, NULL); }
/* The number of the call (b.draw) is the context's next draw, so that each call has other random
 * numbers. */
int eg__grad_over(const eg_grad_over_args *given, const eg_early *early)
{
    blocks b = { .o = { .size = sizeof b.o }, .early = early };
    eg_options(&b.o, sizeof b.o, given);
    if (!b.o.who) b.o.who = "grad_over";
    if (!(b.cx = eg__here(b.o.cx))) {
        eg_fail_as(NULL, EG_ERROR_MISUSE, "%s: the context is NULL", b.o.who);
        return -1;
    }
    if (!blocks_fit(&b) || !blocks_plan(&b) || !eg__blocks_captured_fit(&b)) return -1;
    b.draw = b.cx->draw++;
    const bool good = b.o.copies ? eg__blocks_each(&b) : eg__blocks_call(&b);
    for (int k = 0; !good && b.o.dxs && k < b.o.count; k++) b.o.dxs[k] = eg__poison(b.cx);
    if (!good && b.cx->draw == b.draw + 1) b.cx->draw = b.draw; /* the call changed nothing */
    return good ? 0 : -1;
}
