/* reverse.h: the state of one backward pass, for reverse.c, reverse_waiting.c, reverse_sums.c and
 * grad.c. */
#ifndef EG_AUTOGRAD_REVERSE_H
#define EG_AUTOGRAD_REVERSE_H
#include "autograd/autograd.h"

/* Contributions to the cotangent of one node that are not added up yet, in order of arrival. */
typedef struct waiting {
    int count;
    eg__addend *first, **end;
    /* the node with the last contribution: messages name the sum as its gradient */
    const eg_tensor *reader;
} waiting;
/* A node whose cotangent is added to a given sum. */
typedef struct reverse_target {
    eg_tensor *sum; /* NULL: there is none, or the node occurs several times among the xs */
    /* reached: the sum holds a gradient; used: a product of this pass has added to it */
    bool reached, used;
    int x, times; /* the node is xs[x]; number of its occurrences among the xs */
} reverse_target;
enum { DROPS = 8 };
typedef struct reverse {
    eg_sweep s;
    bool *sums; /* by node: d is a sum that this pass made and to which no other pointer exists */
    bool *is_x; /* by node */
    bool each;  /* the cotangents of copies are not added up */
    waiting **wait; /* by node; NULL if no contributions wait */
    uint64_t mine;  /* eg_ctx.pull for the node whose rule is called */
    int count;
    eg_tensor *const *xs;
    eg_into *into;          /* by x: the sum to which its cotangent is added; NULL without sums */
    reverse_target *target; /* by node; NULL without sums */
    const eg_into_watch *watch;
    /* the node that is visited now, and whether its rule was called; −1: no visit has begun */
    int64_t at;
    bool called;
    int left;                  /* nothing more is added to sums `left` and above */
    bool ends;                 /* cotangents that no node needs are freed */
    uint64_t begun;            /* eg_ctx.seq before the pass: it made the younger tensors */
    int drops;                 /* number of entries of `dropped`; further ones are not freed */
    eg_tensor *dropped[DROPS]; /* cotangents that this visit dropped */
} reverse;

/* eg_storage.pending is the number of cotangents that wait for their node in this storage. Notes
 * that c is the cotangent of a node, or a contribution to it. */
static inline void reverse_keep(eg_tensor *c) { c->st->pending++; }
/* Notes that c, which may be NULL, is no longer one. It is freed at the end of the visit, if the
 * pass made it and nothing else refers to it. */
static inline void reverse_drop(reverse *r, eg_tensor *c)
{
    if (!c || --c->st->pending || c->st->bytes < EG_SPARE_LEAST || !r->ends) return;
    if (r->drops < DROPS) r->dropped[r->drops++] = c;
}
/* Returns the contributions that wait for node k; NULL if there are none. */
static inline waiting *waiting_for(const reverse *r, int64_t k)
{
    return r->wait && r->wait[k] && r->wait[k]->count ? r->wait[k] : NULL;
}

/* -- reverse.c -------------------------------------------------------------------------------- */
/* Visits each node from y, whose cotangent is set, to the xs. A cotangent that is added to a sum is
 * added when its node is visited, since no later node contributes to it: it is then still in the
 * cache, and a watch of this sum need not wait for the others. False after an error. */
bool eg__reverse_nodes(reverse *);

/* -- reverse_waiting.c ------------------------------------------------------------------------- */
/* Appends g to the contributions that wait for x. g is the cotangent of t, which is a view of x by
 * way of `depth` views. False after an error. */
bool eg__waiting_append(reverse *, const eg_tensor *x, eg_tensor *t, eg_tensor *g, int depth);
/* Appends g, the cotangent of t (a view or eg_at), to the contributions that wait for t's operand.
 * False after an error. */
bool eg__waiting_read(reverse *, eg_tensor *t, eg_tensor *g);
/* If the cotangent of operand i of t, a result for which eg__addend_due is true, is a product that
 * need not be stored, appends its factors to the contributions that wait for it and returns true.
 */
bool eg__waiting_product(reverse *, eg_tensor *t, eg_tensor *g, int i);
/* Moves the contributions that wait for node k, of which there are some, to the list of its operand
 * if k is a view. False if it is none, if its own cotangent is needed, and after an error. */
bool eg__waiting_pass_on(reverse *, int64_t k);
/* Adds up the contributions that wait for node k, of which there are some; the sum becomes its
 * cotangent. False after an error. */
bool eg__waiting_add_up(reverse *, int64_t k);

/* -- reverse_sums.c ---------------------------------------------------------------------------- */
/* Assigns the sums to the nodes of the xs. A node that occurs twice among the xs has two sums and
 * gets none here: its cotangent is copied at the end. False after an error. */
bool eg__reverse_targets(reverse *);
/* In a pass with sums: lets the product that computes the cotangent of operand i of t add it
 * directly to the sum of that operand, a leaf. False if it has no sum, if the cotangent is no such
 * product, or if there are other contributions to it. */
bool eg__reverse_into(reverse *, eg_tensor *t, eg_tensor *g, int i);
/* Adds the cotangent of xs[k], which is complete, to sum k, unless products have already added all
 * of it. */
void eg__reverse_add_to_sum(reverse *, int k);
/* Calls the watch, which is not NULL, if more sums are complete now: those whose x is not a node of
 * the pass, and those whose node is at index `at` or later. The sum of an x that occurs twice among
 * the xs is complete only at the end, when `at` is −1. False after an error. */
bool eg__reverse_notify(reverse *, int64_t at);
#endif
