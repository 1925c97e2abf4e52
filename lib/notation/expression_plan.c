/* expression_plan.c: where the values and cotangents of an expression lie in the workspace. */
#include "notation/expression_block.h"

/* Returns the bytes of the workspace that node k takes with elements of `width` bytes. */
static int64_t room_of(const eg_block_plan *p, int k, int width)
{
    const int extent = p->extent[k];
    const int64_t n = extent == EG_EXTENT_ONE        ? EG_LANES
                      : extent == EG_EXTENT_ROWS     ? eg__block_padded(p->rows)
                      : extent == EG_EXTENT_LANES    ? eg__block_padded(p->lanes)
                      : extent == EG_EXTENT_DIAGONAL ? eg__diagonal_padded(p->rows, p->lanes)
                                                     : p->rows * eg__block_padded(p->lanes);
    return eg__round_up(n * width, EG_ALIGN);
}
/* The parts of the workspace that are free to be used again, and the end of what is in use. */
typedef struct rooms {
    int count;
    int64_t end, at[EG_NODES_MAX], bytes[EG_NODES_MAX];
} rooms;
static int64_t take(rooms *r, int64_t bytes)
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
static void give(rooms *r, int64_t at, int64_t bytes)
{
    r->at[r->count] = at;
    r->bytes[r->count++] = bytes;
}

/* Returns how many operands of nodes that are used are node j. */
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
/* Finds the sums that are a summand of one other sum, as s + a is in s + a − b. */
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
/* Assigns a part of the workspace to the value of each node. Once a value has been read for the
 * last time, its part is used for a later node, unless cotangents are wanted, which need all
 * values. */
static void place_values(eg_block_plan *p, rooms *r)
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
        const int64_t bytes = room_of(p, k, eg__node_width(p, k));
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
                give(r, p->at[j], room_of(p, j, eg__node_width(p, j)));
                given[i] = true;
            }
        }
    }
}
/* Returns the operand of node k whose cotangent is that of k, and needs no memory of its own: it
 * has the same extent, and k alone reads it, once. Of two, the score; −1 if there is none. */
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
/* True if no node needs the cotangent of the root any more when the score's is written: it has gone
 * by then from the root, through passed nodes, to a node that comes after the score. */
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
/* Finds the nodes whose cotangent is needed, and assigns a part of the workspace to it, from the
 * last node that reads the value back to the node itself. */
static void place_slopes(eg_block_plan *p, rooms *r)
{
    const eg_expression *e = p->e;
    const int width = p->f64 ? 8 : 4;
    for (int k = 0; k <= p->root; k++) {
        const eg_node *n = &e->node[k];
        p->moved[k] = p->passed[k] = false;
        p->slope[k] = -1;
        if (!p->used[k] || n->kind != EG_IS_FLOAT || n->code == EG_X_FLOOR) continue;
        if (n->code == EG_X_READ) p->moved[k] = p->wanted >> n->tensor & 1;
        if (n->code == EG_X_SCORE) p->moved[k] = p->wanted >> EG_SCORE_BIT;
        for (int i = 0; n->code > EG_X_READ && i < n->count; i++) {
            p->moved[k] |= p->moved[n->in[i]];
            p->keeps |= e->node[n->in[i]].code == EG_X_SCORE && !eg__slope_sign(n->code, i);
        }
    }
    if (p->slopes) p->slope[p->root] = take(r, room_of(p, p->root, width));
    for (int k = p->root; k >= 0 && p->slopes; k--) {
        const eg_node *n = &e->node[k];
        if (!p->moved[k] || p->slope[k] < 0)
            continue; /* −1: no derivative leads here, as under ⌊x⌋ */
        const int same = passes_to(p, k);
        if (same >= 0) p->passed[same] = true, p->slope[same] = p->slope[k];
        for (int i = 0; n->code > EG_X_READ && i < n->count; i++)
            if (p->moved[n->in[i]] && p->slope[n->in[i]] < 0)
                p->slope[n->in[i]] = take(r, room_of(p, n->in[i], width));
        if (same < 0) give(r, p->slope[k], room_of(p, k, width));
    }
    p->overwrites = overwrites(p);
}

/* True if the letters of a block along rows or lanes are a single one, node k is it or it plus or
 * minus a number, and arithmetic does not saturate: the value rises by 1 from element to element.
 */
static bool rises(const eg_block_plan *p, int k, uint32_t letter)
{
    const eg_node *n = &p->e->node[k];
    if (n->code == EG_X_LETTER) return p->narrow && n->letters == letter;
    if (n->kind != EG_IS_INTEGER || (n->code != EG_X_ADD && n->code != EG_X_SUB)) return false;
    if (p->extent[n->in[1]] == EG_EXTENT_ONE) return rises(p, n->in[0], letter);
    return n->code == EG_X_ADD && p->extent[n->in[0]] == EG_EXTENT_ONE &&
           rises(p, n->in[1], letter);
}
/* Returns what node k, whose operands are known, varies with. */
static uint8_t extent_of(const eg_block_plan *p, int k)
{
    const eg_node *n = &p->e->node[k];
    const bool all = n->letters == UINT32_MAX;
    const int extent = (all || n->letters & p->by_row ? EG_EXTENT_ROWS : 0) |
                       (all || n->letters & p->by_lane ? EG_EXTENT_LANES : 0);
    if (extent != EG_EXTENT_BLOCK || all || !n->count) return (uint8_t)extent;
    if (n->code == EG_X_SUB && n->kind == EG_IS_INTEGER)
        for (int turned = 0; turned < 2; turned++)
            if (rises(p, n->in[turned], p->by_lane) && rises(p, n->in[!turned], p->by_row))
                return EG_EXTENT_DIAGONAL;
    for (int i = 0; i < n->count; i++)
        if (p->extent[n->in[i]] != EG_EXTENT_ONE && p->extent[n->in[i]] != EG_EXTENT_DIAGONAL)
            return EG_EXTENT_BLOCK;
    return EG_EXTENT_DIAGONAL;
}
void eg__block_plan(eg_block_plan *p, const eg_expression *e, int root, bool f64, int rows,
                    int lanes, uint32_t by_row, uint32_t by_lane, uint32_t wanted)
{
    *p = (eg_block_plan){ .e = e,
                          .root = root,
                          .rows = rows,
                          .lanes = lanes,
                          .f64 = f64,
                          .narrow = e->narrow,
                          .slopes = wanted != 0,
                          .by_row = by_row,
                          .by_lane = by_lane,
                          .wanted = wanted };
    p->used[root] = true;
    for (int k = 0; k <= root; k++) p->extent[k] = extent_of(p, k);
    for (int k = root; k >= 0; k--)
        for (int i = 0; p->used[k] && i < e->node[k].count; i++) p->used[e->node[k].in[i]] = true;
    const int64_t most = eg__diagonal_padded(rows, lanes) * 8;
    rooms r = { .end = eg__round_up((int64_t)sizeof(eg_stored) * e->nodes, EG_ALIGN) };
    p->scratch = r.end, r.end += 4 * most;
    p->offsets = r.end, r.end += most;
    p->sums = r.end, r.end += most;
    p->spare = r.end;
    if (p->slopes)
        r.end += eg__round_up(rows * eg__block_padded(lanes) * (f64 ? 8 : 4), EG_ALIGN) + most;
    for (int k = 0; k <= root && p->slopes; k++)
        if (p->extent[k] == EG_EXTENT_DIAGONAL) p->diagonals = r.end;
    if (p->diagonals) r.end += most;
    p->values = r.end;
    find_sums(p);
    place_values(p, &r);
    place_slopes(p, &r);
    p->bytes = (size_t)r.end;
}
