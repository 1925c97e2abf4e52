/* expression_plan.c: where the values and cotangents of an expression lie in the workspace. */
#include "notation/expression_block.h"

/* Returns the bytes of the workspace that node k takes with elements of `width` bytes. */
static int64_t room_of(const eg_block_plan *p, int k, int width)
{
    const int64_t n = p->extent[k] == EG_EXTENT_ONE     ? EG_LANES
                      : p->extent[k] == EG_EXTENT_ROWS  ? eg__block_padded(p->rows)
                      : p->extent[k] == EG_EXTENT_LANES ? eg__block_padded(p->lanes)
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

/* Assigns a part of the workspace to the value of each node. Once a value has been read for the
 * last time, its part is used for a later node, unless cotangents are wanted, which need all
 * values. */
static void place_values(eg_block_plan *p, rooms *r)
{
    const eg_expression *e = p->e;
    int last[EG_NODES_MAX];
    for (int k = 0; k <= p->root; k++) last[k] = p->slopes ? EG_NODES_MAX : k;
    for (int k = 0; k <= p->root; k++)
        for (int i = 0; p->used[k] && i < e->node[k].count; i++)
            if (last[e->node[k].in[i]] < k) last[e->node[k].in[i]] = k;
    last[p->root] = EG_NODES_MAX;
    for (int k = 0; k <= p->root; k++) {
        if (!p->used[k]) continue;
        const int64_t bytes = room_of(p, k, eg__node_width(p, k));
        bool given[EG_READ_MAX] = { false };
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
/* Finds the nodes whose cotangent is needed, and assigns a part of the workspace to it, from the
 * last node that reads the value back to the node itself. */
static void place_slopes(eg_block_plan *p, rooms *r)
{
    const eg_expression *e = p->e;
    const int width = p->f64 ? 8 : 4;
    for (int k = 0; k <= p->root; k++) {
        const eg_node *n = &e->node[k];
        p->moved[k] = false;
        p->slope[k] = -1;
        if (!p->used[k] || n->kind != EG_IS_FLOAT || n->code == EG_X_FLOOR) continue;
        if (n->code == EG_X_READ) p->moved[k] = p->wanted >> n->tensor & 1;
        if (n->code == EG_X_SCORE) p->moved[k] = p->wanted >> EG_SCORE_BIT;
        for (int i = 0; n->code > EG_X_READ && i < n->count; i++) p->moved[k] |= p->moved[n->in[i]];
    }
    if (p->slopes) p->slope[p->root] = take(r, room_of(p, p->root, width));
    for (int k = p->root; k >= 0 && p->slopes; k--) {
        const eg_node *n = &e->node[k];
        if (!p->moved[k] || p->slope[k] < 0)
            continue; /* −1: no derivative leads here, as under ⌊x⌋ */
        for (int i = 0; n->code > EG_X_READ && i < n->count; i++)
            if (p->moved[n->in[i]] && p->slope[n->in[i]] < 0)
                p->slope[n->in[i]] = take(r, room_of(p, n->in[i], width));
        give(r, p->slope[k], room_of(p, k, width));
    }
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
    for (int k = root; k >= 0; k--) {
        const eg_node *n = &e->node[k];
        const bool all = n->letters == UINT32_MAX;
        p->extent[k] = (uint8_t)((all || n->letters & by_row ? EG_EXTENT_ROWS : 0) |
                                 (all || n->letters & by_lane ? EG_EXTENT_LANES : 0));
        for (int i = 0; p->used[k] && i < n->count; i++) p->used[n->in[i]] = true;
    }
    const int64_t most = eg__block_padded(rows > lanes ? rows : lanes) * 8;
    rooms r = { .end = eg__round_up((int64_t)sizeof(eg_stored) * e->nodes, EG_ALIGN) };
    p->scratch = r.end, r.end += 4 * most;
    p->offsets = r.end, r.end += most;
    p->sums = r.end, r.end += most;
    p->spare = r.end;
    if (p->slopes)
        r.end += eg__round_up(rows * eg__block_padded(lanes) * (f64 ? 8 : 4), EG_ALIGN) + most;
    p->values = r.end;
    place_values(p, &r);
    place_slopes(p, &r);
    p->bytes = (size_t)r.end;
}
