/* pieces.c: the first step of halving, divided into pieces, so that it can begin while later
 * elements are still being computed.
 *
 * In this step ranks with even and odd number exchange half of all elements; with two ranks that is
 * everything that is sent. A backward pass goes from the loss back to the first layer and completes
 * the gradients of the last layers first, so pieces go from the last part of the elements to the
 * first. The division depends only on the sizes of the parts, and pieces are sent in their order.
 * Both ranks of a pair therefore agree on them, whenever each has its elements, and each element is
 * sent once and added once, with the same bits. Each piece except the last has at least
 * 1/RANKS_PIECES of all elements, since every message has a fixed cost.
 *
 * A rank that fails still exchanges the remaining pieces: the messages of a step are always the
 * same, and after them the ranks ask each other for errors. */
#include "ranks/tree.h"
#include <stdio.h>

bool eg__ranks_pieces_fit(const eg_ranks_tree *t) { return t->halving && t->steps > 0; }

/* Returns the first part of piece k; the last piece is the one that begins with part 0. */
static int piece_from(eg_ranks_tree *t, int k)
{
    const int64_t least = t->start[t->chunks] / RANKS_PIECES + 1;
    const int end = k ? t->piece[k - 1] : t->parts;
    int from = end;
    while (from > 0 && t->start[t->part[end]] - t->start[t->part[from]] < least) from--;
    return t->piece[k] = from;
}
static eg_span piece_chunks(eg_span a, eg_span b)
{
    const eg_span both = { a.from > b.from ? a.from : b.from, a.to < b.to ? a.to : b.to };
    return both.from < both.to ? both : (eg_span){ 0, 0 };
}
/* Sends piece k to the neighbour and receives the neighbour's piece: waits for both if `waits`,
 * else starts them. Returns NULL, or a sentence after an error. */
static const char *piece_send(eg_ranks_tree *t, const char *x, int k, bool waits)
{
    const eg_span all = t->kept[0], keep = t->kept[1],
                  gone = keep.from == all.from ? (eg_span){ keep.to, all.to }
                                               : (eg_span){ all.from, keep.from },
                  piece = { t->part[piece_from(t, k)], t->part[k ? t->piece[k - 1] : t->parts] },
                  out = piece_chunks(piece, gone), in = piece_chunks(piece, keep);
    const int other = t->ranks->table.rank ^ 1;
    char *incoming = t->incoming;
    if (in.from < in.to) incoming += byte_at(t, in.from) - byte_at(t, keep.from);
    return (waits ? eg__ranks_exchanged
                  : eg__ranks_started)(t->ranks, other, x + byte_at(t, out.from), bytes_in(t, out),
                                       other, incoming, bytes_in(t, in));
}
void eg__ranks_pieces_begin(eg_ranks_tree *t, const char *x, int part)
{
    const char *bad = NULL;
    if (!eg__ranks_starts(t->ranks) || *t->sentence) return;
    const int before = t->begun;
    while (!bad && (!t->begun || t->piece[t->begun - 1]) && piece_from(t, t->begun) >= part)
        bad = piece_send(t, x, t->begun++, false);
    /* MPI transfers bytes only during calls */
    if (t->begun == before && before) bad = eg__ranks_started(t->ranks, -1, NULL, 0, -1, NULL, 0);
    if (bad) snprintf(t->sentence, sizeof t->sentence, "%s", bad);
}
int eg__ranks_pieces_end(eg_ranks_tree *t, const char *x)
{
    const bool starts = eg__ranks_starts(t->ranks);
    const char *bad = NULL;
    while (!bad && !*t->sentence && (!t->begun || t->piece[t->begun - 1]))
        bad = piece_send(t, x, t->begun++, !starts);
    if (bad) snprintf(t->sentence, sizeof t->sentence, "%s", bad);
    /* wait even after an error: until then the buffers must not be changed */
    bad = starts ? eg__ranks_finished(t->ranks) : NULL;
    t->begun = 0;
    t->received = true;
    return eg__ranks_fail(t->ranks, *t->sentence ? t->sentence : bad);
}
