/* step_over.c: an optimiser step whose gradients are computed block by block on several threads
 * (eg_grad_over), and the check that its loss is a sum over examples. */
#include "opt.h"
#include <eingrad/einsum.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void eg__step_over_again(eg_opt *op)
{
    const uint64_t draws = eg_draws(op->cx);
    eg_set_draws(op->cx, op->draws);
    eg_grad_over_with(op->over);
    eg_set_draws(op->cx, draws);
}

/* -- is the loss a sum? ----------------------------------------------------------------------- */
enum { WHOLE, FIRST, SECOND, ASKED }; /* the first examples, and the two parts of them */
/* The loss of examples [from, to). */
typedef struct step_over_part {
    int64_t from, to;
    double value;
    int64_t count;
    bool known; /* it is a finite number with a count that a block may have */
    bool drew;  /* random draws were made for it */
    bool f64;   /* the loss, and if it is recorded each result that it was computed from */
} step_over_part;
typedef struct step_over_asking {
    const eg_step_over_args *o;
    const eg_copies *copies; /* of the parameters, or NULL */
    bool recording;
    step_over_part part[ASKED];
} step_over_asking;
/* The loss of part k, as that of example k: so it is computed in the context of a block, which
 * refuses what blocks must not do, such as writing to parameters. */
static eg_tensor *step_over_part_loss(void *user, eg_ctx *cx, int64_t k, int64_t to, int64_t *count)
{
    step_over_asking *a = user;
    step_over_part *p = &a->part[k];
    if (eg_block_copy(cx) > 0) return eg_scalar(cx, 0); /* the first copy suffices */
    const uint64_t draws = eg_draws(cx);
    const bool was = eg_nograd(cx, !a->recording);
    (void)to;
    eg_block_call_args call = { .size = sizeof call,
                                .cx = cx,
                                .loss = a->o->loss,
                                .user = a->o->user,
                                .from = p->from,
                                .to = p->to,
                                .count = &p->count };
    memcpy(call.batch, a->o->batch, sizeof call.batch);
    eg_tensor *y = eg_block_call_with(&call);
    eg_nograd(cx, was);
    p->drew = eg_draws(cx) != draws;
    *count = 1;
    if (p->drew) /* the other parts are not needed */
        return eg_fail_as(cx, EG_ERROR_MISUSE, "random draws");
    if (!eg_ok(y) || eg_size(y) != 1 || eg_error(cx)) return y;
    p->value = eg_item(y);
    p->f64 = eg_type(y) == EG_F64;
    if (p->f64 && a->recording) {
        const eg_explained_graph *e = eg_explain_graph(y);
        p->f64 = e && e->narrowest == EG_F64;
    }
    p->known = isfinite(p->value);
    return y;
}
/* Computes the parts in training or in evaluation mode; errors are forgotten. With `recorded` 0 the
 * loss is not recorded; one that computes gradients itself then fails, and is called again with a
 * history. True if all are known. */
static bool step_over_compute_parts(eg_ctx *cx, step_over_asking *a, bool train, int recorded)
{
    const bool training = eg_training(cx);
    const uint64_t draws = eg_draws(cx);
    bool known = false;
    for (; recorded < 2 && !known && !a->part[WHOLE].drew; recorded++) {
        a->recording = recorded;
        train ? eg_train(cx) : eg_eval(cx);
        const eg_mark m = eg_push(cx);
        eg_grad_over(.cx = cx, .loss = step_over_part_loss, .user = a, .examples = ASKED,
                     .block = 1, .leaves = 1, .serial = true, .copies = a->copies);
        eg_pop(cx, m);
        eg_set_draws(cx, draws);
        training ? eg_train(cx) : eg_eval(cx);
        eg_clear(cx);
        known = a->part[WHOLE].known && a->part[FIRST].known && a->part[SECOND].known;
    }
    return known;
}
/* True if the loss of all differs from the sum of those of the two parts by more than rounding. A
 * loss of f64 of parameters of f32 is rounded as these are. */
static bool step_over_differs(const eg_opt *op, const step_over_part part[ASKED], bool f64)
{
    for (int k = 0; k < op->count; k++) f64 &= eg_type(op->x[k]) == EG_F64;
    const double all = part[WHOLE].value, one = part[FIRST].value, two = part[SECOND].value;
    return fabs(all - (one + two)) > (f64 ? 1e-9 : 1e-4) * (fabs(all) + fabs(one) + fabs(two));
}
/* Records the error that the loss or its count is no sum. */
static void step_over_refuse(eg_ctx *cx, const char *who, const step_over_part part[ASKED])
{
    const step_over_part *all = &part[WHOLE], *one = &part[FIRST], *two = &part[SECOND];
    char whole[96], parts[128];
    snprintf(whole, sizeof whole, "of examples 0 to %lld", (long long)all->to - 1);
    snprintf(parts, sizeof parts, "of 0 to %lld and %lld to %lld together", (long long)one->to - 1,
             (long long)two->from, (long long)all->to - 1);
    if (all->count != one->count + two->count)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: the count is not a sum: %s it is %lld, %s %lld", who,
                   whole, (long long)all->count, parts,
                   (long long)one->count + (long long)two->count);
    else
        eg_fail_as(
            cx, EG_ERROR_MISUSE,
            "%s: the loss is not a sum over its examples: %s it is %.9g, %s %.9g; add up the "
            "losses of the examples, and leave the division by the count to the step; a loss "
            "of pairs of examples needs eg_step on the whole batch",
            who, whole, all->value, parts, one->value + two->value);
}
/* True if the loss of the first examples equals the sum of the losses of its two parts; else
 * records an error. If random draws are made for it in training, it is compared in evaluation mode,
 * without dropout. A loss that fails, or that draws even there, is not compared: the step then
 * reports the error. A loss of f64 that differs by no more than one of f32 may is computed again
 * with a history, which says whether f32 was used for it. */
static bool step_over_is_sum(eg_opt *op, const eg_step_over_args *o)
{
    eg_ctx *cx = op->cx;
    const int64_t block = o->block > 0 ? o->block : 8,
                  n = o->examples / 2 < block ? o->examples : 2 * block, cut = n / 3 + (n % 3 > 0);
    bool tested = n < 2, train = eg_training(cx);
    for (int k = 0; k < OPT_SUMS; k++) tested |= op->sum[k] == o->loss;
    if (tested) return true;
    const step_over_asking asked = {
        .o = o,
        .copies = op->count ? eg_copies_of(op->x[0]) : NULL,
        .part = { { .from = 0, .to = n }, { .from = 0, .to = cut }, { .from = cut, .to = n } }
    };
    step_over_asking a = asked;
    if (!train || !step_over_compute_parts(cx, &a, true, 0)) {
        a = asked, train = false;
        if (!step_over_compute_parts(cx, &a, false, 0)) return true;
    }
    const step_over_part *part = a.part;
    if (part->f64 && step_over_differs(op, part, true) && !step_over_differs(op, part, false)) {
        a = asked;
        if (!step_over_compute_parts(cx, &a, train, 1)) return true;
    }
    if (part[WHOLE].count != part[FIRST].count + part[SECOND].count ||
        step_over_differs(op, part, part->f64))
        return step_over_refuse(cx, o->who, part), false;
    op->sum[op->next_sum] = o->loss, op->next_sum = (op->next_sum + 1) % OPT_SUMS;
    return !eg_error(cx);
}

/* Sets o->captured to the blocks that the optimiser keeps, which are opened by the first step with
 * .capture, unless the caller has given others. False after an error. */
static bool step_over_captures(eg_opt *op, eg_step_over_args *o)
{
    if (!o->capture || o->captured) return true;
    if (!op->captured) op->captured = eg_captured_blocks_open_in(eg_params_owner(op->o.params));
    o->captured = op->captured;
    return op->captured != NULL;
}

/* -- the step --------------------------------------------------------------------------------- */
/* Updates a divided optimiser with the gradient of this rank's range. Returns 0; −1 after an
 * error. */
static int step_over_take(void *user, const eg_ranks_gradient *g)
{
    eg_opt *op = user;
    const char *at = g->numbers;
    for (int k = 0; k < op->count; k++) {
        op->at[k] = g->reached[k] ? at : NULL;
        at += (size_t)eg_size(op->x[k]) *
              (eg_type(op->x[k]) == EG_F64 ? sizeof(double) : sizeof(float));
    }
    op->tree = g->tree;
    const int bad = eg__opt_update(op, true, g->numbers);
    op->tree = NULL;
    return bad;
}
/* True if there is an optimiser and it may compute blocks here; else records an error. An earlier
 * error remains, and the other ranks are informed of it. */
static bool step_over_possible(const eg_opt *op, const char *who)
{
    if (!op) {
        eg_fail_as(NULL, EG_ERROR_MISUSE, "%s: the optimiser is NULL", who);
        return false;
    }
    if (eg_error(op->cx)) return true;
    if (!eg_block_range(op->cx, NULL, NULL)) {
        /* before the loss is called, which would call this function again without end */
        eg_fail_as(op->cx, EG_ERROR_MISUSE, "%s: inside a block of another call", who);
        return false;
    }
    return true;
}
/* Gradients and update are in one scope, so that all temporaries are freed with it. */
int eg_step_over_with(const eg_step_over_args *given)
{
    eg_step_over_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg_opt *op = o.opt;
    if (!o.who) o.who = "step_over";
    if (!step_over_possible(op, o.who)) return -1;
    eg_ranks *ranks = eg__opt_group(op) ? eg__opt_group(op) : o.ranks;
    if (ranks && o.ranks && o.ranks != ranks)
        eg_fail_as(op->cx, EG_ERROR_MISUSE, "%s: the optimiser is divided among other ranks",
                   o.who);
    const eg_tensor *first = o.batch[0].name ? o.batch[0].x : NULL;
    if (!o.examples && eg_ok(first) && eg_rank(first)) o.examples = eg_dim(first, 0);
    const bool good =
        !eg_error(op->cx) && (!o.loss || step_over_is_sum(op, &o)) && step_over_captures(op, &o);
    if (!good && !ranks) return -1; /* ranks must agree before they return */
    eg_grad_over_args over = { .size = sizeof over,
                               .cx = op->cx,
                               .loss = o.loss,
                               .user = o.user,
                               .examples = o.examples,
                               .count = op->count,
                               .xs = op->x,
                               .dxs = op->g,
                               .block = o.block,
                               .leaves = o.leaves,
                               .serial = o.serial,
                               .mean = o.mean,
                               .counted = o.counted,
                               .sums = o.sums,
                               .mean_each = o.mean_each,
                               .captured = o.captured,
                               .kind = o.kind,
                               .who = o.who };
    char text[EG__OPT_TEXT];
    if (eg_ranks_count(ranks) > 1)
        eg__opt_text(op, !op->ranks && op->met != ranks, text), over.agreed = text;
    memcpy(over.batch, o.batch, sizeof over.batch);
    const eg_mark m = eg_push(op->cx);
    const bool was = eg_nograd(op->cx, true);
    op->draws = eg_draws(op->cx);
    op->over = &over;
    int bad = op->ranks ? eg_ranks_grad_range(ranks, &over, step_over_take, op)
                        : eg_ranks_grad_over(ranks, &over);
    if (!bad) op->met = ranks;
    if (!bad && !op->ranks) bad = eg__opt_step(op);
    if (!op->ranks && ranks && eg_ranks_barrier(ranks)) bad = -1;
    op->over = NULL;
    eg_nograd(op->cx, was);
    eg_pop(op->cx, m);
    return bad;
}
