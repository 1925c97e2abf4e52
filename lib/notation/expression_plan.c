/* expression_plan.c: where the values and cotangents of an expression are stored in the
 * workspace. */
#include "notation/expression_block.h"
#include <stddef.h>

/* Returns the bytes of the workspace that node k needs for elements of `width` bytes. */
static int64_t bytes_of_value(const eg_block_plan *p, int k, int width)
{
    const int extent = p->extent[k];
    const int64_t n = extent == EG_EXTENT_ONE        ? EG_LANES
                      : extent == EG_EXTENT_ROWS     ? eg__block_padded(p->rows)
                      : extent == EG_EXTENT_LANES    ? eg__block_padded(p->lanes)
                      : extent == EG_EXTENT_DIAGONAL ? eg__diagonal_padded(p->rows, p->lanes)
                                                     : p->rows * eg__block_padded(p->lanes);
    return eg__round_up(n * width, EG_ALIGN);
}
/* The parts of the workspace that can be used again, and the end of what has been used. */
typedef struct free_parts {
    int count;
    int64_t end, at[EG_NODES_MAX], bytes[EG_NODES_MAX];
} free_parts;
static int64_t take(free_parts *r, int64_t bytes)
{
    for (int k = r->count; k-- > 0;)
        if (r->bytes[k] == bytes) {
            const int64_t at = r->at[k];
            r->count--;
            r->at[k] = r->at[r->count], r->bytes[k] = r->bytes[r->count];
            return at;
        }
    r->end += bytes;
    return r->end - bytes;
}
static void give(free_parts *r, int64_t at, int64_t bytes)
{
    r->at[r->count] = at;
    r->bytes[r->count++] = bytes;
}

/* Returns how often node j is an operand of nodes that are used. */
static int times_read(const eg_block_plan *p, int j)
{
    int reads = 0;
    for (int m = j + 1; m <= p->root; m++)
        for (int i = 0; p->used[m] && i < p->e->node[m].count; i++)
            reads += p->e->node[m].in[i] == j;
    return reads;
}
/* True if node k is a sum or difference of floats that varies with rows and lanes. */
static bool is_sum(const eg_block_plan *p, int k)
{
    const eg_node *n = &p->e->node[k];
    return p->used[k] && n->kind == EG_IS_FLOAT && p->extent[k] == EG_EXTENT_BLOCK &&
           (n->code == EG_X_ADD || n->code == EG_X_SUB);
}
/* Finds the sums that are a summand of a single other sum, as s + a is in s + a − b. */
static void find_sums(eg_block_plan *p)
{
    for (int k = 0; k <= p->root; k++) p->within[k] = -1;
    for (int k = p->root; k >= 0; k--) {
        bool found = !is_sum(p, k) || p->within[k] >= 0;
        for (int i = 0; i < 2 && !found; i++) {
            const int j = p->e->node[k].in[i];
            found = is_sum(p, j) && times_read(p, j) == 1;
            if (found) p->within[j] = (int16_t)k;
        }
    }
}
/* Finds the letters of which a block of a single row reads only the first position: they are only
 * indices without bounds, and no other index of the read varies along lanes unless it is a
 * letter. */
static void find_steady(eg_block_plan *p)
{
    for (int k = 0; k <= p->root; k++) p->steady[k] = p->rows == 1 && k != p->root;
    for (int k = 0; k <= p->root; k++) {
        const eg_node *n = &p->e->node[k];
        bool steps = n->code == EG_X_READ && !n->guard;
        for (int i = 0; i < n->count; i++)
            steps &= !(p->extent[n->in[i]] & EG_EXTENT_LANES) ||
                     p->e->node[n->in[i]].code == EG_X_LETTER;
        for (int i = 0; i < n->count && !steps && p->used[k]; i++) p->steady[n->in[i]] = false;
    }
}
/* Assigns a part of the workspace to the value of each node. After the last node that reads a
 * value, its part is used for another node; but not if cotangents are wanted, which need all
 * values. */
static void place_values(eg_block_plan *p, free_parts *r)
{
    const eg_expression *e = p->e;
    int last[EG_NODES_MAX];
    for (int k = 0; k <= p->root; k++) last[k] = p->slopes ? EG_NODES_MAX : k;
    for (int k = 0; k <= p->root; k++)
        for (int i = 0; p->used[k] && i < e->node[k].count; i++) {
            const int reader = p->within[k] < 0 ? k : p->within[k];
            if (last[e->node[k].in[i]] < reader) last[e->node[k].in[i]] = reader;
        }
    last[p->root] = EG_NODES_MAX;
    for (int k = 0; k <= p->root; k++) {
        if (!p->used[k]) continue;
        const int64_t bytes = bytes_of_value(p, k, eg__node_width(p, k));
        bool given[EG_RANK_MAX] = { false };
        for (int late = 0; late < 2; late++) {
            /* first, operands of the same form are freed: the node can overwrite one in place */
            if (late) p->at[k] = take(r, bytes);
            for (int i = 0; i < e->node[k].count; i++) {
                const int j = e->node[k].in[i];
                bool twice = given[i];
                for (int m = 0; m < i; m++) twice |= e->node[k].in[m] == j;
                if (last[j] != k || twice) continue;
                if (!late &&
                    (p->extent[j] != p->extent[k] || eg__node_width(p, j) != eg__node_width(p, k)))
                    continue;
                give(r, p->at[j], bytes_of_value(p, j, eg__node_width(p, j)));
                given[i] = true;
            }
        }
    }
}
/* Returns the operand of node k that has the same cotangent as k and needs no memory for it: it has
 * the same extent, and only k reads it, once. If there are two, the score; −1 if there is none. */
static int passes_to(const eg_block_plan *p, int k)
{
    const eg_node *n = &p->e->node[k];
    int found = -1;
    for (int i = 0; n->code > EG_X_READ && i < n->count; i++) {
        const int j = n->in[i];
        if (p->moved[j] && times_read(p, j) == 1 && p->extent[j] == p->extent[k] &&
            eg__slope_sign(n->code, i) == 1 && (found < 0 || p->e->node[j].code == EG_X_SCORE))
            found = j;
    }
    return found;
}
/* Determines the nodes whose values eg__block_slopes needs: all integers and conditions, the
 * operands of functions that are not sums, and what these are computed from. */
static void find_needed(eg_block_plan *p)
{
    for (int k = p->root; k >= 0; k--) {
        const eg_node *n = &p->e->node[k];
        if (!p->used[k]) continue;
        const bool function = p->moved[k] && p->slope[k] >= 0 && n->code > EG_X_READ;
        p->needed[k] |= n->kind != EG_IS_FLOAT || (function && eg__slope_reads_value(n->code));
        for (int i = 0; i < n->count; i++)
            p->needed[n->in[i]] |= p->needed[k] || (function && !eg__slope_sign(n->code, i));
    }
}
/* True if no node needs the cotangent of the root any more when that of the score is written: by
 * then it has been passed from the root, through passed nodes, to a node after the score. */
static bool overwrites(const eg_block_plan *p)
{
    int last = p->root, score = p->root + 1;
    for (int k = p->root; k >= 0; k--) {
        const eg_node *n = &p->e->node[k];
        if (p->used[k] && n->code == EG_X_SCORE) score = k;
        for (int i = 0; k == last && n->code > EG_X_READ && i < n->count; i++)
            if (p->passed[n->in[i]]) last = n->in[i];
    }
    return score <= last;
}
/* Determines the nodes whose cotangent is needed, and assigns a part of the workspace to it, from
 * the last node that reads the value back to the node itself. */
static void place_slopes(eg_block_plan *p, free_parts *r)
{
    const eg_expression *e = p->e;
    const int width = p->f64 ? 8 : 4;
    for (int k = 0; k <= p->root; k++) {
        const eg_node *n = &e->node[k];
        p->moved[k] = p->passed[k] = false;
        p->slope[k] = p->first[k] = -1;
        if (!p->used[k] || n->kind != EG_IS_FLOAT || n->code == EG_X_FLOOR) continue;
        if (n->code == EG_X_READ) p->moved[k] = p->wanted >> n->tensor & 1;
        if (n->code == EG_X_SCORE) p->moved[k] = p->wanted >> EG_SCORE_BIT;
        for (int i = 0; n->code > EG_X_READ && i < n->count; i++) {
            p->moved[k] |= p->moved[n->in[i]];
            p->keeps |= e->node[n->in[i]].code == EG_X_SCORE && !eg__slope_sign(n->code, i);
        }
    }
    for (int k = 0; k <= p->root && p->slopes; k++)
        if (p->moved[k] && eg__keeps_first(e->node[k].code, p->f64))
            p->first[k] = take(r, bytes_of_value(p, k, width));
    if (p->slopes) p->slope[p->root] = take(r, bytes_of_value(p, p->root, width));
    for (int k = p->root; k >= 0 && p->slopes; k--) {
        const eg_node *n = &e->node[k];
        if (!p->moved[k] || p->slope[k] < 0)
            continue; /* −1: no derivative leads here, as below ⌊x⌋ */
        const int same = passes_to(p, k);
        if (same >= 0) p->passed[same] = true, p->slope[same] = p->slope[k];
        for (int i = 0; n->code > EG_X_READ && i < n->count; i++)
            if (p->moved[n->in[i]] && p->slope[n->in[i]] < 0)
                p->slope[n->in[i]] = take(r, bytes_of_value(p, n->in[i], width));
        if (same < 0) give(r, p->slope[k], bytes_of_value(p, k, width));
        if (p->first[k] >= 0) give(r, p->first[k], bytes_of_value(p, k, width));
    }
    if (p->slopes) find_needed(p);
    p->overwrites = overwrites(p);
}

/* True if the value increases by 1 from element to element: only one letter varies along the rows
 * or lanes of a block, node k is this letter plus or minus a constant, and arithmetic does not
 * saturate. */
static bool increments(const eg_block_plan *p, int k, uint32_t letter)
{
    const eg_node *n = &p->e->node[k];
    if (n->code == EG_X_LETTER) return p->narrow && n->letters == letter;
    if (n->kind != EG_IS_INTEGER || (n->code != EG_X_ADD && n->code != EG_X_SUB)) return false;
    if (p->extent[n->in[1]] == EG_EXTENT_ONE) return increments(p, n->in[0], letter);
    return n->code == EG_X_ADD && p->extent[n->in[0]] == EG_EXTENT_ONE &&
           increments(p, n->in[1], letter);
}
/* Returns what node k varies with; its operands have been determined. */
static uint8_t extent_of(const eg_block_plan *p, int k)
{
    const eg_node *n = &p->e->node[k];
    const bool all = n->letters == UINT32_MAX;
    const int extent = (all || n->letters & p->by_row ? EG_EXTENT_ROWS : 0) |
                       (all || n->letters & p->by_lane ? EG_EXTENT_LANES : 0);
    /* a block with a single row: what varies along lanes fills it */
    if (extent == EG_EXTENT_LANES && p->rows == 1 && n->count) return EG_EXTENT_BLOCK;
    if (extent != EG_EXTENT_BLOCK || all || !n->count) return (uint8_t)extent;
    if (n->code == EG_X_SUB && n->kind == EG_IS_INTEGER)
        for (int swapped = 0; swapped < 2; swapped++)
            if (increments(p, n->in[swapped], p->by_lane) &&
                increments(p, n->in[!swapped], p->by_row))
                return EG_EXTENT_DIAGONAL;
    for (int i = 0; i < n->count; i++)
        if (p->extent[n->in[i]] != EG_EXTENT_ONE && p->extent[n->in[i]] != EG_EXTENT_DIAGONAL)
            return EG_EXTENT_BLOCK;
    return EG_EXTENT_DIAGONAL;
}
/* Returns the bytes for the sums of the indices of a read that vary along lanes (eg__gather_of),
 * for the read that needs most; 0 if no read has several such indices. */
static int64_t bytes_of_joined(const eg_block_plan *p)
{
    int64_t most = 0;
    for (int k = 0; k <= p->root && p->rows > 1; k++) {
        const eg_node *n = &p->e->node[k];
        int count = 0;
        int64_t rows = 1;
        for (int i = 0; p->used[k] && n->code == EG_X_READ && i < n->count; i++) {
            const int extent = p->extent[n->in[i]];
            if (!(extent & (EG_EXTENT_LANES | EG_EXTENT_DIAGONAL))) continue;
            count++;
            if (extent != EG_EXTENT_LANES) rows = p->rows;
        }
        if (count > 1 && rows * eg__block_padded(p->lanes) > most)
            most = rows * eg__block_padded(p->lanes);
    }
    return eg__round_up(most * (p->narrow ? 4 : 8), EG_ALIGN);
}
void eg__block_plan(eg_block_plan *p, const eg_expression *e, int root, bool f64, int rows,
                    int lanes, uint32_t by_row, uint32_t by_lane, uint32_t wanted)
{
    memset(p, 0, offsetof(eg_block_plan, extent)); /* what follows is set for nodes up to root */
    p->e = e;
    p->root = root;
    p->rows = rows;
    p->lanes = lanes;
    p->f64 = f64;
    p->narrow = e->narrow;
    p->slopes = wanted != 0;
    p->by_row = by_row;
    p->by_lane = by_lane;
    p->wanted = wanted;
    memset(p->used, 0, (size_t)root + 1);
    memset(p->needed, 0, (size_t)root + 1);
    p->used[root] = true;
    for (int k = 0; k <= root; k++) p->extent[k] = extent_of(p, k);
    for (int k = root; k >= 0; k--)
        for (int i = 0; p->used[k] && i < e->node[k].count; i++) p->used[e->node[k].in[i]] = true;
    const int64_t most = eg__diagonal_padded(rows, lanes) * 8;
    free_parts r = { .end = eg__round_up((int64_t)sizeof(eg_stored) * e->nodes, EG_ALIGN) };
    p->scratch = r.end, r.end += 4 * most;
    p->offsets = r.end, r.end += most;
    p->sums = r.end, r.end += most;
    p->spare = r.end;
    if (p->slopes)
        r.end += eg__round_up(rows * eg__block_padded(lanes) * (f64 ? 8 : 4), EG_ALIGN) + most;
    for (int k = 0; k <= root && p->slopes; k++)
        if (p->extent[k] == EG_EXTENT_DIAGONAL) p->diagonals = r.end;
    if (p->diagonals) r.end += most;
    const int64_t joined = bytes_of_joined(p);
    if (joined) p->joined = r.end;
    r.end += joined;
    p->values = r.end;
    find_sums(p);
    find_steady(p);
    place_values(p, &r);
    place_slopes(p, &r);
    p->bytes = (size_t)r.end;
}
