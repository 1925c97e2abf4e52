/* tree.h: the state of an einsum of three and more operands that tree.c and pass.c share.
 * Operands and steps of a tree have numbers: operands first, then steps. */
#ifndef EG_EINSUM_TREE_H
#define EG_EINSUM_TREE_H
#include "einsum/einsum.h"

/* The state of one backward pass through the tree, or of one forward pass. */
typedef struct eg_network_pass {
    eg_tensor *y, *g;
    /* eg_ctx.pull when the other members were computed; 0: outside of backward passes */
    uint64_t pull;
    eg_tensor **dx; /* by operand: its cotangent, if all were computed at once; else NULL */
    const eg_tree *tree;
    /* by number: the step that reads it; the other number that this step reads */
    int16_t *parent, *sibling;
    int16_t *kept;          /* by step: the step of the node's tree that kept its value, or −1 */
    eg_tensor **up, **down; /* by number: value and cotangent; NULL: not computed yet */
    eg_tensor **value;      /* by step of the node's tree: a kept value; NULL: not a tensor yet */
    int made;               /* the steps before this one have tensors */
    const uint16_t **label; /* by number: labels of the value; NULL: none */
} eg_network_pass;
/* What a node saves for its gradient. */
typedef struct eg_network {
    const eg_call *call; /* while the node is being made, for eg__call_saved; NULL afterwards */
    eg_tree *tree;     /* the tree by which the node was made; NULL: unknown, and nothing is kept */
    void **kept;       /* by step: the array of a kept value; NULL if … */
    eg_tensor **value; /* … kept values are tensors, by step */
    eg__scoped *made;  /* by step: the kept array as a tensor, made by a pass that was recorded */
    eg_network_pass pass;
} eg_network;

/* -- tree.c -- */
/* Returns the tree that computes the wanted cotangents with the fewest multiply-adds; w: that of y,
 * or NULL. It is w's tree, or an entry of the cache of plans, valid until the next eg__plans_add,
 * or in the open scope. NULL after an error. */
const eg_tree *eg__network_tree(const eg_tensor *y, const eg_network *w, uint64_t wanted);
/* Returns the step of w's tree whose kept value is that of step s of t; −1: there is none. */
int eg__network_kept(const eg_network *w, const eg_tree *t, int s);
/* Sets the sizes of labels of y's operands, whose labels are of[]. */
void eg__network_sizes(const eg_tensor *y, const uint16_t *const *of, int rank,
                       const uint16_t *label, int64_t *dim);

/* -- pass.c -- */
/* Computes all wanted cotangents of y's operands and sets dx[operand]. False if that is not
 * possible without recording each product, and after an error. */
bool eg__network_at_once(eg_tensor *y, const eg_network *w, eg_tensor *g, uint64_t wanted,
                         eg_tensor **dx);
#endif
