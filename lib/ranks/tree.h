/* tree.h: a sum along a tree of leaves that are divided among ranks: what tree.c makes, and
 * pieces.c begins. */
#ifndef EG_RANKS_TREE_H
#define EG_RANKS_TREE_H
#include "ranks/ranks.h"

enum { RANKS_STEPS = 30, RANKS_PIECES = 16 };

struct eg_ranks_tree {
    eg_ranks *ranks;
    eg_owner *owner;
    size_t width;
    int64_t leaves, chunks;
    int parts;
    int64_t *start; /* of each chunk, and the end: chunks + 1 */
    int64_t *part;  /* the first chunk of each part, and the end */
    bool halving;   /* sums, and so have no subtrees */
    bool halves;    /* ranges; the ranks are a power of two */
    int steps;
    /* by halves: the range after so many steps; the last is owned */
    eg_span kept[RANKS_STEPS + 1];
    eg_span *range; /* of each rank */
    eg_span *node;  /* whole subtrees of all ranks, in the order of leaves */
    int *first;     /* of a rank's, and the end */
    char **at;      /* of each node: its numbers in the own range, while adding */
    char *room;     /* for what is received */
    /* pieces.c: the first step of halving, if it is cut into pieces: how many were begun, the
     * first part of each, which ends where the one before begins, and what failed, "": nothing */
    int begun, piece[RANKS_PIECES];
    char sentence[256];
    bool received; /* all messages of that step have come */
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
/* The first step of halving, in pieces that travel while the last parts of x are still computed.
 * True if the sum of the tree has such a step. */
bool eg__ranks_pieces_fit(const eg_ranks_tree *);
/* The parts of x from `part` on hold the sum of the own subtree: begins the pieces that lie in
 * them, if the table of functions can, and lets those that were begun go on. x and the tree's room
 * belong to the messages until eg__ranks_pieces_end. Called by one thread at a time. */
void eg__ranks_pieces_begin(eg_ranks_tree *, const char *x, int part);
/* Exchanges what is left, and waits for all; eg_ranks_tree_sum of x goes on from there. It does so
 * after an error, too, since the other ranks wait for it: then nobody uses the numbers. −1 if a
 * message failed. */
int eg__ranks_pieces_end(eg_ranks_tree *, const char *x);
#endif
