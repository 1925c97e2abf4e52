/* tree.h: a sum along a tree of leaves that are divided among ranks (tree.c), whose first step can
 * begin early (pieces.c). */
#ifndef EG_RANKS_TREE_H
#define EG_RANKS_TREE_H
#include "core/core.h"
#include "ranks/ranks.h"

enum { RANKS_STEPS = 30, RANKS_PIECES = 16 };

struct eg_ranks_tree {
    eg_ranks *ranks;
    eg_owner *owner;
    size_t width;
    int64_t leaves, chunks;
    int parts;
    int64_t *start; /* index of the first element of each chunk, and the end: chunks + 1 entries */
    int64_t *part;  /* first chunk of each part, and the end */
    bool halving;   /* subtrees are added by halving */
    bool halves;    /* ranges are those of halving: the number of ranks is a power of two */
    int steps;
    /* with halves: the range that remains after each step; this rank owns the last one */
    eg_span kept[RANKS_STEPS + 1];
    eg_span *range; /* by rank: the range that it owns */
    eg_span *node;  /* the largest subtrees of all ranks, in the order of leaves */
    int *first;     /* by rank: index in `node` of its first subtree; then the end */
    char **at;      /* by node: its elements in this rank's range, during a sum */
    char *incoming; /* for elements that are received */
    /* pieces.c, for the first step of halving: number of pieces that were begun; the first part of
     * each, at which the one after it ends; the sentence of an error, or "" */
    int begun, piece[RANKS_PIECES];
    char sentence[256];
    bool received; /* the messages of that step have been received */
};

static inline int64_t numbers_in(const eg_ranks_tree *t, eg_span chunks)
{
    return t->start[chunks.to] - t->start[chunks.from];
}
static inline size_t bytes_in(const eg_ranks_tree *t, eg_span chunks)
{
    return (size_t)numbers_in(t, chunks) * t->width;
}
static inline size_t byte_at(const eg_ranks_tree *t, int64_t chunk)
{
    return (size_t)t->start[chunk] * t->width;
}

/* -- pieces.c ---------------------------------------------------------------------------------- */
/* The first step of halving, in pieces that are sent while other parts of x are still being
 * computed. True if the sum of this tree has such a step. */
bool eg__ranks_pieces_fit(const eg_ranks_tree *);
/* The parts of x from `part` on hold the sum of this rank's subtree. Begins the pieces that consist
 * of these parts, if the table can start messages, and continues those that were begun. x and the
 * tree's buffer must not be changed until eg__ranks_pieces_end. One thread at a time may call this
 * function. */
void eg__ranks_pieces_begin(eg_ranks_tree *, const char *x, int part);
/* Exchanges the remaining pieces and waits for all; eg_ranks_tree_sum of x continues from there. It
 * must be called even after an error, since the other ranks wait; the elements are then not used.
 * Returns 0; −1 if a message failed. */
int eg__ranks_pieces_end(eg_ranks_tree *, const char *x);
#endif
