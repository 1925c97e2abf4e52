/* blocks_captured.c: blocks of eg_grad_over that are captured, and run again in later calls.
 *
 * Each thread's child context keeps one captured step for each size of block, shape of the call,
 * state of training, and set of sums that hold a gradient when the block begins (the first block of
 * a leaf writes its gradients, the others add). It also keeps the headers of the parent's tensors,
 * through which the captured steps read. The sums differ from block to block, so the captured steps
 * write through headers whose addresses are set before each run.
 *
 * The first block of a kind is computed as usual; the second one is captured. */
#include "autograd/blocks.h"
#include <math.h>
#include <string.h>

/* For each worker. KINDS: number of captured steps that are kept; a new one replaces the least
 * recently used. WASTED: after this number of captured steps that were replaced or lost, no more
 * are captured. */
enum { KINDS = 16, WASTED = 64 };

/* Blocks of one kind, which one captured step can compute. */
typedef struct captured_kind {
    int64_t examples;
    uint64_t form;                   /* of the batch */
    int64_t number[EG_KIND_NUMBERS]; /* of eg_block_kind */
    bool training;
    eg_dtype dtype;       /* the default dtype of the context */
    bool *before, *after; /* by x: its sum holds a gradient before and after the block */
    uint64_t used;        /* number of its last use */
    eg_captured *c;       /* NULL: one such block was computed, but not captured */
    int64_t runs;         /* of c */
    int64_t from;         /* the first example of the block that was captured */
    bool moved;           /* a run for other examples was compared with the loss function */
    /* by x: the last item of c that writes to its sum or to the sum of a later x */
    int64_t *until;
    struct captured_part { /* by x: the headers of the captured step that refer to its sum */
        eg_tensor **header;
        int64_t count;
        char *at; /* the address of the sum in these headers */
    } * part;
} captured_kind;
/* The state that a child keeps from call to call. */
typedef struct captured_worker {
    eg_owner *owner; /* an owner of the child; NULL: nothing is kept */
    eg__loans loans;
    bool open;
    /* nothing more is captured: capturing failed, or the captured steps were rarely used */
    bool refused;
    int wasted; /* number of captured steps that were replaced or whose tensors were freed */
    eg_tensor **target; /* by x: a header of the sum of the leaf that is being computed */
    int64_t count;      /* to which the captured step writes the count of the loss */
    uint64_t uses;
    int kinds;
    captured_kind kind[KINDS];
} captured_worker;
struct eg_captured_blocks {
    eg_ctx *cx;
    eg_owner *owner;
    int changes; /* how often captured steps were freed because of another call */
    /* a run was not equal to the loss function: the next call begins again */
    atomic_bool stale;
    char why[256]; /* the error of the first capture that failed; "": none did */
    /* the call that was captured; any other call begins again */
    eg_block_loss *loss;
    void *user;
    int count, capacity;
    eg_tensor **x;
    uint64_t *seq;
    captured_worker *worker[BLOCKS_WORKERS];
};

/* -- making and freeing ------------------------------------------------------------------------ */
/* Frees what a child keeps. The calling thread is inside the child. */
static void worker_drop(captured_worker *w)
{
    for (int k = 0; k < w->kinds; k++) eg_captured_free(w->kind[k].c);
    if (w->owner) eg_owner_close(w->owner);
    *w = (captured_worker){ .refused = w->refused, .wasted = w->wasted };
}
/* Calls worker_drop for all children that still exist. */
static void captured_drop(eg_captured_blocks *c)
{
    for (int k = 0; k < BLOCKS_WORKERS; k++) {
        eg_ctx *child = c->worker[k] && c->worker[k]->owner ? eg__child_of(c->cx, k) : NULL;
        if (!child) continue;
        eg__enter(child, NULL, NULL);
        worker_drop(c->worker[k]);
        eg__leave();
    }
}
static void captured_release(void *user) { captured_drop(user); }
/* Makes captured blocks that end with another owner, or with the open scope. They have an owner of
 * their own, which calls captured_release. NULL after an error. */
static eg_captured_blocks *captured_open(eg_ctx *cx, eg_owner *in)
{
    if (eg__failed(cx)) return NULL;
    if (cx->parent || cx->capture || cx->replaying) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "captured_blocks_open: inside of a %s",
                   cx->parent ? "block" : "captured step");
        return NULL;
    }
    eg_owner *owner = in ? eg_owner_open_in(in) : eg_owner_open(cx);
    eg_captured_blocks *c = owner ? eg__handle(owner, sizeof *c) : NULL;
    if (c && eg__hold_foreign(eg__owner_arena(owner), captured_release, c, false)) return c;
    if (owner) eg_owner_close(owner);
    return NULL;
}
eg_captured_blocks *eg_captured_blocks_open(eg_ctx *cx)
{
    return captured_open(eg__here(cx), NULL);
}
eg_captured_blocks *eg_captured_blocks_open_in(eg_owner *owner)
{
    return owner ? captured_open(eg__here(eg_owner_context(owner)), owner) : NULL;
}
void eg_captured_blocks_free(eg_captured_blocks *c)
{
    if (c && eg__handle_lives(c, "captured_blocks_free", "captured blocks"))
        eg_owner_close(c->owner);
}
size_t eg_captured_blocks_bytes(const eg_captured_blocks *c)
{
    size_t bytes = 0;
    for (int k = 0; c && c->owner && k < BLOCKS_WORKERS; k++)
        for (int i = 0; c->worker[k] && i < c->worker[k]->kinds; i++)
            bytes += eg_captured_bytes(c->worker[k]->kind[i].c);
    return bytes;
}

const char *eg_captured_blocks_refused(const eg_captured_blocks *c)
{
    return c && *c->why ? c->why : NULL;
}

/* True if the captured blocks are those of this call: the same loss, user data and xs. */
static bool captured_same(const eg_captured_blocks *c, const eg_grad_over_args *o)
{
    if (c->loss != o->loss || c->user != o->user || c->count != o->count) return false;
    for (int k = 0; k < o->count; k++)
        if (c->x[k] != o->xs[k] || c->seq[k] != o->xs[k]->seq) return false;
    return true;
}
/* Blocks of another call than the one that was captured are dropped, unless that has happened too
 * often. With hooks nothing is captured, since a run would not call them. */
bool eg__blocks_captured_fit(blocks *b)
{
    const eg_grad_over_args *o = &b->o;
    eg_captured_blocks *c = o->captured;
    const eg_hooks *h = &b->cx->hooks;
    if (!c) return true;
    if (c->cx != b->cx)
        return eg_fail_as(b->cx, EG_ERROR_MISUSE,
                          "%s: the captured blocks belong to another context", o->who),
               false;
    if (!eg__handle_lives(c, o->who, "captured blocks")) return false;
    if (h->operand || h->result || h->cotangent) return true;
    if (!captured_same(c, o) || atomic_load(&c->stale)) {
        if (c->changes > WASTED) return true;
        c->changes += eg_captured_blocks_bytes(c) > 0;
        captured_drop(c);
        atomic_store(&c->stale, false);
        c->why[0] = 0;
        if (o->count > c->capacity) {
            c->count = c->capacity = 0;
            c->x = eg_owner_alloc(c->owner, (size_t)o->count * sizeof *c->x);
            c->seq = eg_owner_alloc(c->owner, (size_t)o->count * sizeof *c->seq);
            if (!c->x || !c->seq) return false;
            c->capacity = o->count;
        }
        for (int k = 0; k < BLOCKS_WORKERS; k++)
            if (c->worker[k]) *c->worker[k] = (captured_worker){ .owner = NULL };
        c->loss = o->loss;
        c->user = o->user;
        c->count = o->count;
        for (int k = 0; k < o->count; k++) c->x[k] = o->xs[k], c->seq[k] = o->xs[k]->seq;
    }
    for (int k = 0; k < b->workers; k++)
        if (!c->worker[k] && !(c->worker[k] = eg_owner_alloc(c->owner, sizeof **c->worker)))
            return false;
    b->captured = c;
    return true;
}
/* Makes what a child keeps from call to call. False after an error. */
static bool worker_begin(const blocks *b, eg_ctx *child, captured_worker *w)
{
    if (!(w->owner = eg_owner_open(child))) return false;
    child->loans = (eg__loans){ .arena = eg__owner_arena(w->owner) };
    w->target = eg_owner_alloc(w->owner, (size_t)b->o.count * sizeof *w->target);
    for (int k = 0; w->target && k < b->o.count; k++)
        if (!(w->target[k] = eg__borrow_like(child, b->o.xs[k]))) return false;
    return w->target != NULL;
}
/* If one of the tensors that the kept headers refer to no longer exists, the child makes new
 * headers. */
bool eg__blocks_captured_open(blocks *b, int k, bool (*check)(eg_ctx *, eg_tensor *, void *))
{
    eg_ctx *child = b->child[k];
    captured_worker *w = b->captured->worker[k];
    if (w->open) return true;
    if (w->owner && !eg__borrow_resume(child, &w->loans, check, b)) {
        w->wasted++;
        worker_drop(w);
    }
    w->open = w->owner || worker_begin(b, child, w);
    child->loans.check = check;
    child->loans.user = b;
    if (w->open) return true;
    eg__borrow_suspend(child);
    worker_drop(w);
    return false;
}
void eg__blocks_captured_close(blocks *b, int k)
{
    captured_worker *w = b->captured->worker[k];
    if (w->open) w->loans = eg__borrow_suspend(b->child[k]);
    w->open = false;
}

/* -- a block ---------------------------------------------------------------------------------- */
/* Frees the captured step of a kind. */
static void kind_free(captured_kind *p, int count)
{
    eg_captured_free(p->c);
    p->c = NULL;
    memset(p->part, 0, (size_t)count * sizeof *p->part);
}
/* Returns the entry for this block's kind, which may be new; NULL after an error. */
static captured_kind *kind_of(const blocks *b, const eg_ctx *child, captured_worker *w,
                              const blocks_sum *s)
{
    const int64_t examples = child->block.to - child->block.from;
    const size_t n = (size_t)b->o.count;
    int64_t number[EG_KIND_NUMBERS] = { 0 };
    if (b->o.kind) b->o.kind(b->o.user, child->block.from, child->block.to, number);
    captured_kind *oldest = w->kind;
    for (captured_kind *p = w->kind; p < w->kind + w->kinds; p++) {
        if (p->examples == examples && p->form == b->batch.form &&
            !memcmp(p->number, number, sizeof number) && p->training == child->training &&
            p->dtype == child->dtype && !memcmp(p->before, s->reached, n))
            return p;
        if (p->used < oldest->used) oldest = p;
    }
    captured_kind *p = w->kinds < KINDS ? &w->kind[w->kinds] : oldest;
    if (w->kinds == KINDS) {
        w->wasted += p->c != NULL;
        kind_free(p, b->o.count);
    } else {
        p->before = eg_owner_alloc(w->owner, 2 * n);
        p->part = eg_owner_alloc(w->owner, n * sizeof *p->part);
        p->until = eg_owner_alloc(w->owner, n * sizeof *p->until);
        if (!p->before || !p->part || !p->until) return NULL;
        w->kinds++;
    }
    memcpy(p->before, s->reached, n);
    *p = (captured_kind){ .examples = examples,
                          .form = b->batch.form,
                          .training = child->training,
                          .dtype = child->dtype,
                          .before = p->before,
                          .after = p->before + n,
                          .until = p->until,
                          .part = p->part };
    memcpy(p->number, number, sizeof number);
    return p;
}
/* Sets the addresses of the sums in the headers of the captured step. */
static void kind_set_sums(const captured_worker *w, const captured_kind *p, int count,
                          const blocks_sum *s)
{
    for (int k = 0; k < count; k++) {
        struct captured_part *to = &p->part[k];
        char *at = s->g[k]->data;
        for (int64_t i = 0; i < to->count; i++) to->header[i]->data += at - to->at;
        w->target[k]->data = to->at = at;
    }
}
/* The user data of kind_step; its one output is the loss. */
typedef struct captured_step {
    blocks *b;
    eg_ctx *child;
    blocks_sum *s;
    captured_worker *w;
    captured_kind *p;
    bool added; /* the backward pass has begun and may have added to the sums */
} captured_step;
/* The step function of eg_capture: computes the loss, and adds its gradients to the sums. */
static int kind_step(void *user, eg_tensor **out)
{
    captured_step *a = user;
    const eg_grad_over_args *o = &a->b->o;
    eg_ctx *child = a->child;
    const eg__arena *top = child->top;
    eg_tensor *y = eg__block_loss(o, child, &a->w->count);
    if (y && child->top != top) /* a captured step must not; said before the sums are written to */
        return eg_fail_as(child, EG_ERROR_MISUSE, "capture: the loss left a scope open"), -1;
    eg_into *into = eg__alloc(child, (size_t)o->count * sizeof *into);
    if (!y || !into) return -1;
    for (int k = 0; k < o->count; k++)
        into[k] = (eg_into){ .sum = a->w->target[k], .reached = a->p->before[k] };
    blocks_work work = { .b = a->b, .child = child, .s = a->s, .into = into };
    const eg_into_watch watch = { eg__blocks_complete, &work };
    const bool was = eg_nograd(child, true);
    a->added = true;
    const int bad = eg__grad_into(y, o->count, o->xs, into, a->b->early ? &watch : NULL);
    eg_nograd(child, was);
    for (int k = 0; k < o->count; k++) a->p->after[k] = into[k].reached;
    out[0] = y;
    return bad;
}
/* Lists the headers of the captured step that refer to the sums, and for each x the last item that
 * writes to them. False without memory. */
static bool kind_parts(const captured_worker *w, captured_kind *p, int count)
{
    int64_t last = -1;
    for (int k = count; k-- > 0;) {
        if (!(p->part[k].header = eg__captured_headers(p->c, w->target[k], &p->part[k].count)))
            return false;
        const int64_t own = eg__captured_last(p->c, w->target[k]);
        p->until[k] = last = own > last ? own : last;
    }
    return true;
}
/* True if the block adds to a sum that already holds a gradient, so that it must not be computed
 * twice. */
static bool kind_adds(const captured_kind *p, int count)
{
    return memchr(p->before, true, (size_t)count) != NULL;
}
/* True if a block of this kind may be captured now. A block that adds to no sum may always be
 * captured; one that adds, only if a block of the same shapes that adds to none was captured
 * before. */
static bool kind_due(const captured_worker *w, const captured_kind *p, int count)
{
    if (!kind_adds(p, count)) return true;
    for (int k = 0; k < w->kinds; k++) {
        const captured_kind *o = &w->kind[k];
        if (o->c && o->form == p->form && !memcmp(o->number, p->number, sizeof o->number) &&
            o->training == p->training && o->dtype == p->dtype && !kind_adds(o, count))
            return true;
    }
    return false;
}
/* Computes a block while capturing it. */
static eg_block_done kind_capture(captured_step *a)
{
    const int count = a->b->o.count;
    captured_kind *p = a->p;
    p->runs = 0;
    p->from = a->child->block.from;
    p->moved = false;
    p->c = eg__captured_make(a->child, kind_step, a, 1);
    if (p->c && kind_parts(a->w, p, count)) return EG_BLOCK_DONE;
    kind_free(p, count);
    if (a->added && kind_adds(p, count)) return EG_BLOCK_FAILED;
    pthread_mutex_lock(&a->b->lock);
    char *why = a->b->captured->why;
    if (!*why) snprintf(why, sizeof a->b->captured->why, "%s", eg_error(a->child));
    pthread_mutex_unlock(&a->b->lock);
    /* the caller computes the block again, and then records its error */
    eg_clear(a->child);
    a->w->refused = true;
    return EG_BLOCK_NOT_CAPTURED;
}
/* Calls the loss function for the present block with these draws; *count is the block's. NaN after
 * an error. */
static double kind_call(const captured_step *a, uint64_t draws, bool recording, int64_t *count)
{
    eg_ctx *child = a->child;
    const eg_mark m = eg_push(child);
    const bool was = eg_nograd(child, !recording);
    *count = child->block.to - child->block.from;
    eg_set_draws(child, draws);
    eg_tensor *y = m.scope ? eg__block_loss(&a->b->o, child, count) : NULL;
    const double loss = y ? eg_item(y) : NAN;
    eg_nograd(child, was);
    eg_pop(child, m);
    return loss;
}
/* True if this run of a captured step is compared with the loss function: the first run, which is
 * also the first one of other examples in most cases, and runs 2, 4, 8, … and every 64th, since
 * what the function reads of the program may change later. A run in 64 costs less than 1 % of the
 * time. */
static bool kind_run_is_compared(captured_kind *p, const eg_ctx *child)
{
    const bool moved = !p->moved && child->block.from != p->from;
    const int64_t run = ++p->runs;
    p->moved |= moved;
    return moved || !(run & (run - 1)) || run % 64 == 0;
}
/* Compares the loss and the count of a run of a captured step with those of the loss function,
 * called for the same block with the same draws. They differ if the function reads the data of its
 * block otherwise than through eg_block_rows and eg_from_call, such as by a slice of all data: a
 * run then reads the data of the block that was captured. A function that computes gradients itself
 * fails without a history, or gets gradients of 0, and is called again with one. False after an
 * error; the captured step is then freed. */
static bool kind_compare(const captured_step *a, uint64_t draws)
{
    eg_ctx *child = a->child;
    const uint64_t after = eg_draws(child);
    const int64_t count = a->w->count;
    const double loss = eg_item(eg_captured_output(a->p->c, 0));
    int64_t again;
    double called = NAN;
    bool differs = true;
    for (int recording = 0; recording < 2 && differs; recording++) {
        eg_clear(child);
        called = kind_call(a, draws, recording, &again);
        differs = child->failed || memcmp(&loss, &called, sizeof loss) != 0;
    }
    eg_set_draws(child, after);
    if (!child->failed && isfinite(loss) && (differs || count != again))
        eg_fail_as(child, EG_ERROR_MISUSE,
                   "the operations that were captured for another block give a loss of %.9g and a "
                   "count of %lld, but the loss function gives %.9g and %lld: %s",
                   loss, (long long)count, called, (long long)again,
                   differs ? "what differs between blocks and calls must be in .batch or come from "
                             "eg_from_call, or .kind must distinguish such blocks"
                           : "a captured block does not repeat an assignment to *count, but calls "
                             "of eg_block_count");
    a->w->count = count; /* the function may have set it */
    if (child->failed) atomic_store(&a->b->captured->stale, true);
    return !child->failed;
}
/* Runs a captured block in a separate scope. If the run fails before it has added to a sum, the
 * caller computes the block with the loss function, which then records the error: other values may
 * need other operations than those that were captured. */
static eg_block_done kind_run(const captured_step *a)
{
    eg_ctx *child = a->child;
    captured_worker *w = a->w;
    captured_kind *p = a->p;
    const int count = a->b->o.count;
    blocks_work work = { .b = a->b, .child = child, .s = a->s, .after = p->after };
    eg_captured_watch watch = { p->until, count, eg__blocks_complete, &work };
    const eg_mark m = eg_push(child);
    const uint64_t draws = eg_draws(child);
    const bool good = m.scope && !eg__captured_run(p->c, a->b->early ? &watch : NULL);
    eg_pop(child, m);
    if (good)
        return !kind_run_is_compared(p, child) || kind_compare(a, draws) ? EG_BLOCK_DONE
                                                                         : EG_BLOCK_FAILED;
    for (int k = 0; k < count; k++)
        if (p->before[k] && eg__captured_wrote(p->c, w->target[k])) return EG_BLOCK_FAILED;
    eg_clear(child);
    kind_free(p, count);
    w->wasted++;
    return EG_BLOCK_NOT_CAPTURED;
}
/* The first block of a kind, and any block that may not be captured, is computed by the caller. */
eg_block_done eg__block_captured(blocks *b, int worker, blocks_sum *s)
{
    eg_ctx *child = b->child[worker];
    captured_worker *w = b->captured->worker[worker];
    if (w->refused || w->wasted > WASTED) return EG_BLOCK_NOT_CAPTURED;
    captured_kind *p = kind_of(b, child, w, s);
    if (!p) return EG_BLOCK_FAILED;
    const bool seen = p->used;
    p->used = ++w->uses;
    if (!seen || (!p->c && !kind_due(w, p, b->o.count))) return EG_BLOCK_NOT_CAPTURED;
    w->count = child->block.to - child->block.from;
    kind_set_sums(w, p, b->o.count, s);
    captured_step step = { .b = b, .child = child, .s = s, .w = w, .p = p };
    const eg_block_done done = p->c ? kind_run(&step) : kind_capture(&step);
    if (done != EG_BLOCK_DONE) return done;
    const double loss = eg_item(eg_captured_output(p->c, 0));
    /* the caller calls the loss again, which records the reason */
    if (!isfinite(loss)) return EG_BLOCK_NOT_CAPTURED;
    if (!eg__block_count_fits(child, w->count)) return EG_BLOCK_FAILED;
    memcpy(s->reached, p->after, (size_t)b->o.count);
    s->loss += loss;
    s->count += w->count;
    return child->failed ? EG_BLOCK_FAILED : EG_BLOCK_DONE;
}
