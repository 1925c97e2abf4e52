/* ring.c: eg_attention with .ranks: attention over a sequence that is divided among ranks. This
 * file binds the call; ring_forward.c and ring_backward.c compute it. There are two operations:
 * attention, whose result consists of y and, after it, the log-sum-exp; and its gradient, whose
 * result consists of the cotangents of all operands. */
#include "attention/ring.h"
#include <string.h>

enum { BLOCK = 512 };
/* Returns the number of positions of a block: `given`, or BLOCK for 0. It is at most INT64_MAX / 4,
 * so that sums with it do not overflow; a sequence that fits into memory is shorter than that, and
 * is one block in either case. */
static int64_t block_size(int64_t given) { return given ? eg__min64(given, INT64_MAX / 4) : BLOCK; }
static const char who[] = "attention";

/* -- binding ---------------------------------------------------------------------------------- */
static bool ring_refuse(eg_ctx *cx, eg_code code, const char *sentence)
{
    eg_fail_as(cx, code, "%s: .ranks: %s", who, sentence);
    return false;
}
static bool ring_in(const eg_spec *s, int term, const char *name)
{
    return eg_spec_find_item(s, term, name) >= 0;
}
/* Returns the index that all terms of `in` have and no term of `out` has (bit sets of q, k, v, y).
 * If there are several, it must be `wish`. NULL after an error. */
static const char *ring_letter(const eg_spec *s, unsigned in, unsigned out, const char *wish,
                               const char *what)
{
    const char *found = NULL;
    int n = 0;
    for (int k = 0; k < s->indices; k++) {
        const char *name = s->index[k].name;
        unsigned has = 0;
        for (int t = 0; t < 4; t++) has |= ring_in(s, t, name) ? 1u << t : 0;
        if ((has & in) != in || (has & out)) continue;
        n++;
        if (!found || (wish && !strcmp(wish, name))) found = name;
    }
    if (n == 1 || (found && wish && !strcmp(wish, found))) return found;
    eg_fail_as(s->cx, EG_ERROR_NOTATION,
               "%s: .ranks: exactly one index of the %s alone can be divided, and \"%s\" has %d%s",
               who, what, s->text, n,
               n && wish == NULL ? "; .offset_letter names the query's" : "");
    return NULL;
}
/* True if the spec has an arrow, three terms, and one axis for each index; else records an
 * error. */
static bool ring_plain(const eg_spec *s)
{
    if (!s) return false;
    if (s->terms != 3 || !s->arrow)
        return ring_refuse(s->cx, EG_ERROR_NOTATION, "the spec has three terms and an output");
    for (int t = 0; t < 4; t++)
        for (int k = 0; k < s->term[t].items; k++)
            if (s->term[t].item[k].index < 0 || s->term[t].item[k].group)
                return ring_refuse(s->cx, EG_ERROR_UNSUPPORTED,
                                   "the spec has neither groups, nor 1, nor an ellipsis");
    return true;
}
/* True if every given option can be combined with .ranks; else records an error. */
static bool ring_supports(eg_ctx *cx, const eg_attention_args *o)
{
    const char *no = o->score_fn     ? ".score_fn"
                     : o->weights_fn ? ".weights_fn"
                     : o->weights    ? ".weights"
                     : o->dropped    ? ".dropped"
                     : o->scores     ? ".scores"
                     : o->no_softmax ? ".no_softmax"
                     : o->max_scores ? ".max_scores"
                                     : NULL;
    if (no)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "%s: .ranks: %s is not supported with a divided sequence", who, no);
    else if (o->ranks_block < 0)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: .ranks_block is %lld; it must be at least 0", who,
                   (long long)o->ranks_block);
    return !eg_error(cx) && eg__where_before(cx, who, o->offset);
}

int eg_attention_positions(const eg_ranks *ranks, int64_t length, int64_t block, bool zigzag,
                           eg_span positions[2])
{
    if (!positions) return 0;
    block = block_size(block);
    positions[0] = positions[1] = (eg_span){ 0, 0 };
    if (length < 0 || block < 0) return 0;
    const int64_t full = length / block;
    const int n = eg__ring_runs(full + (length % block > 0), eg_ranks_rank(ranks),
                                eg_ranks_count(ranks), zigzag, positions);
    for (int k = 0; k < n; k++) /* the end of a last block that is not full may overflow */
        positions[k] = (eg_span){ positions[k].from > full ? length : positions[k].from * block,
                                  positions[k].to > full ? length : positions[k].to * block };
    return n;
}

/* Rank k has all[stride k] positions. Returns the length of the whole sequence; −1, with the
 * same error on all ranks, if a rank has another number of positions than eg_attention_positions
 * gives it. */
static int64_t ring_length(eg_ranks *r, const int64_t *all, int stride, int64_t block, bool zigzag,
                           const char *letter)
{
    const int ranks = eg_ranks_count(r);
    int64_t length = 0;
    for (int k = 0; k < ranks; k++) length += all[stride * k];
    const int64_t blocks = (length + block - 1) / block;
    for (int k = 0; k < ranks; k++) {
        eg_span run[2];
        int64_t want = 0;
        for (int n = eg__ring_runs(blocks, k, ranks, zigzag, run) - 1; n >= 0; n--)
            want += eg__min64(run[n].to * block, length) - eg__min64(run[n].from * block, length);
        if (want == all[stride * k]) continue;
        eg_fail_as(
            eg_ranks_context(r), EG_ERROR_SHAPE,
            "%s: .ranks: rank %d has %lld position%s%s%s%s, but eg_attention_positions gives it "
            "%lld of %lld in blocks of %lld",
            who, k, (long long)all[stride * k], all[stride * k] == 1 ? "" : "s",
            letter ? " of index '" : "", letter ? letter : "", letter ? "'" : "", (long long)want,
            (long long)length, (long long)block);
        eg_ranks_barrier(r);
        return -1;
    }
    return length;
}
int64_t eg_attention_length(eg_ranks *r, int64_t positions, int64_t block, bool zigzag)
{
    eg_ctx *cx = eg_ranks_context(r);
    if (!r) return positions;
    const eg_mark m = eg_push(cx);
    int64_t *all = eg__alloc(cx, (size_t)eg_ranks_count(r) * sizeof *all), length = -1;
    const bool fits = positions >= 0 && positions <= INT64_MAX / 4 / eg_ranks_count(r);
    if (!fits || block < 0)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: .ranks: %s is %lld", who,
                   fits ? ".ranks_block" : "the number of positions",
                   (long long)(fits ? block : positions));
    if (!eg_ranks_barrier(r) && !eg_ranks_gather(r, &positions, sizeof positions, all))
        length = ring_length(r, all, 1, block_size(block), zigzag, NULL);
    eg_pop(cx, m);
    return length;
}
/* Gathers the number of positions of each rank and sets the lengths of queries and keys. The result
 * is the same on all ranks; false after an error. */
static bool ring_lengths(eg_ctx *cx, eg_ring *r)
{
    const int64_t mine[2] = { r->dims[0][r->axis[0]], r->dims[1][r->axis[1]] };
    int64_t *all = eg__alloc(cx, (size_t)eg_ranks_count(r->ranks) * sizeof mine);
    if (eg_ranks_barrier(r->ranks) || !all || eg_ranks_gather(r->ranks, mine, sizeof mine, all))
        return false;
    eg_ring_side *side[] = { &r->query, &r->key };
    for (int t = 0; t < 2; t++) {
        side[t]->length = ring_length(r->ranks, all + t, 2, r->block, r->zigzag, side[t]->letter);
        if (side[t]->length < 0) return false;
        side[t]->blocks = (side[t]->length + r->block - 1) / r->block;
    }
    if (!r->query.length || !r->key.length)
        return ring_refuse(cx, EG_ERROR_SHAPE, "there are no queries or no keys");
    return true;
}

/* Returns the length of the names in a term, with a byte for each. */
static size_t ring_names_size(const eg_spec *s, int term)
{
    size_t size = 0;
    for (int k = 0; k < s->term[term].items; k++) {
        const int index = s->term[term].item[k].index;
        size += (index < 0 ? 0 : strlen(s->index[index].name)) + 1;
    }
    return size;
}
/* Returns an einsum over the axes of y and of the log-sum-exp: "names: y, lse -> y" if weigh,
 * else "names: y, y -> lse". Example: "names: b i h e, b i h -> b i h e". */
static const char *ring_einsum(eg_ctx *cx, const eg_spec *s, bool weigh)
{
    const size_t size = ring_names_size(s, 3) + 16;
    char *y = eg__alloc(cx, size), *lse = eg__alloc(cx, size), *all = eg__alloc(cx, 3 * size);
    if (!y || !lse || !all) return NULL;
    *y = *lse = 0;
    for (int k = 0; k < s->term[3].items; k++) {
        const char *name = s->index[s->term[3].item[k].index].name;
        strcat(strcat(y, " "), name);
        if (ring_in(s, 0, name) || ring_in(s, 1, name)) strcat(strcat(lse, " "), name);
    }
    snprintf(all, 3 * size, "names:%s,%s ->%s", y, weigh ? lse : y, weigh ? y : lse);
    return all;
}
/* Sets axis[] to the axes of an option's tensor that have the query's and the key's letter; −1 if
 * it has no such axis. False after an error. */
static bool ring_mask_axes(const eg_spec *of, const eg_ring *r, const eg_masked *mask, int *axis)
{
    axis[0] = axis[1] = -1;
    if (!mask->x) return true;
    const eg_spec *s = eg_spec_like(of, mask->axes);
    if (!s) return false;
    axis[0] = eg_spec_axis(s, 0, r->query.letter);
    axis[1] = eg_spec_axis(s, 0, r->key.letter);
    return true;
}

/* Replaces .alibi by the equivalent .score and a tensor of slopes in .with. False after an
 * error. */
static bool ring_alibi(eg_ctx *cx, eg_ring *r, const eg_spec *of)
{
    eg_attention_args *o = &r->o;
    int k = 0;
    if (!o->alibi.x) return true;
    while (k < EG_GIVEN_MAX && o->with[k].name) k++;
    if (k == EG_GIVEN_MAX)
        return ring_refuse(cx, EG_ERROR_UNSUPPORTED,
                           ".alibi takes one entry of .with, and all are in use");
    const eg_spec *s = eg_spec_like(of, o->alibi.axes);
    const char *score = o->score ? o->score : "score";
    /* each name at most twice, as in "*|r|+r" */
    const size_t size = strlen(score) + (s ? 4 * ring_names_size(s, 0) : 0) +
                        strlen(r->query.letter) + strlen(r->key.letter) + 64;
    char *text = eg__alloc(cx, size);
    if (!s || !text) return false;
    int n = sprintf(text, "(%s) - alibi_[", score), axis = -1;
    for (int a = 0; a < s->term[0].items; a++) { /* a group (g r) becomes g * |r| + r */
        const eg_spec_item *item = &s->term[0].item[a];
        const char *name = item->index < 0 ? "0" : s->index[item->index].name;
        if (item->axis == axis)
            n += sprintf(text + n, "*|%s|+%s", name, name);
        else
            n += sprintf(text + n, "%s%s", axis < 0 ? "" : ",", name);
        axis = item->axis;
    }
    sprintf(text + n, "] * abs(%s - %s)", r->query.letter, r->key.letter);
    o->with[k] = (eg_given){ "alibi_", o->alibi.x };
    o->score = text;
    o->alibi = (eg_masked){ 0 };
    return true;
}

static const char *ring_keep_text(eg_ctx *cx, const char *text)
{
    char *to = text ? eg__alloc(cx, strlen(text) + 1) : NULL;
    return to ? strcpy(to, text) : NULL;
}
/* Sets the sizes of q, k, v, of the result and of the log-sum-exp, and the axes that are
 * divided. */
static void ring_shapes(eg_ring *r, const eg_spec *s, eg_tensor *const *x)
{
    r->y_count = r->l_count = 1;
    for (int t = 0; t < 3; t++) {
        r->rank[t] = eg_rank(x[t]);
        memcpy(r->dims[t], eg_dims(x[t]), (size_t)r->rank[t] * sizeof(int64_t));
        r->axis[t] = eg_spec_axis(s, t, t ? r->key.letter : r->query.letter);
    }
    for (int k = 0; k < s->term[3].items; k++) {
        const eg_spec_index *index = &s->index[s->term[3].item[k].index];
        const bool value = !ring_in(s, 0, index->name) && !ring_in(s, 1, index->name);
        if (!strcmp(index->name, r->query.letter)) r->y_axis = r->y_rank, r->l_axis = r->l_rank;
        r->y_dims[r->y_rank++] = index->size, r->y_count *= index->size;
        if (!value) r->l_dims[r->l_rank++] = index->size, r->l_count *= index->size;
    }
}
/* Lists the operands of the node in x. */
static void ring_operands(eg_ring *r, eg_tensor **x)
{
    const eg_attention_args *o = &r->o;
    eg_tensor *all[EG_RING_OPERANDS] = { o->q, o->k, o->v, o->keep.x, o->bias.x, o->lengths.x };
    for (int k = 0; k < EG_GIVEN_MAX && o->with[k].name; k++) all[EG_RING_WITH + k] = o->with[k].x;
    for (int k = 0; k < EG_RING_OPERANDS; k++) {
        r->operand[k] = all[k] ? r->operands : -1;
        if (all[k]) x[r->operands++] = all[k];
    }
}
/* Appends to the output of the spec the indices of the scores that it lacks: parts of y are weighed
 * by the log-sum-exp of their rows, so that y can be summed over these indices only at the end.
 * Returns the new spec; NULL after an error. */
static const eg_spec *ring_all_rows(eg_ctx *cx, eg_ring *r, const eg_spec *s)
{
    size_t size = strlen(r->o.spec) + 1;
    for (int k = 0; k < s->indices; k++) size += strlen(s->index[k].name) + 1;
    char *text = eg__alloc(cx, size);
    if (!text) return NULL;
    strcpy(text, r->o.spec);
    for (int k = 0; k < s->indices; k++) {
        const char *name = s->index[k].name;
        if (!ring_in(s, 0, name) || !ring_in(s, 2, name) || ring_in(s, 3, name)) continue;
        strcat(strcat(text, s->names ? " " : ""), name);
        r->summed++;
    }
    if (!r->summed) return s;
    r->o.spec = text;
    return eg_spec_parse(cx, who, text);
}
/* Reads the options; false after an error. */
static bool ring_bind(eg_ctx *cx, eg_ring *r, eg_tensor **x)
{
    eg_attention_args *o = &r->o;
    const eg_spec *s = eg_spec_parse(cx, who, o->spec);
    if (!ring_supports(cx, o) || !ring_plain(s) || !(s = ring_all_rows(cx, r, s))) return false;
    r->query.letter = ring_letter(s, 1 | 8, 2 | 4, o->offset_letter, "query");
    if (!r->query.letter || !(r->key.letter = ring_letter(s, 2 | 4, 1 | 8, NULL, "key")))
        return false;
    eg_tensor *const qkv[] = { o->q, o->k, o->v };
    if (!(s = eg_spec_bind(s, 3, qkv))) return false;
    ring_shapes(r, s, qkv);
    r->weigh = ring_einsum(cx, s, true), r->inner = ring_einsum(cx, s, false);
    if (!ring_alibi(cx, r, s) || !ring_mask_axes(s, r, &o->keep, r->keep_axis) ||
        !ring_mask_axes(s, r, &o->bias, r->bias_axis))
        return false;
    o->spec = ring_keep_text(cx, o->spec), o->keep.axes = ring_keep_text(cx, o->keep.axes);
    o->bias.axes = ring_keep_text(cx, o->bias.axes);
    o->lengths.axes = ring_keep_text(cx, o->lengths.axes);
    for (int k = 0; k < EG_GIVEN_MAX && o->with[k].name; k++)
        o->with[k].name = ring_keep_text(cx, o->with[k].name);
    if (o->where) r->where = eg_formula_parse(cx, who, o->where);
    if (o->score) r->score = eg_formula_score(cx, who, o->score);
    ring_operands(r, x);
    return !eg_error(cx) && eg__check_all(cx, who, r->operands, x);
}

/* -- the operations --------------------------------------------------------------------------- */
typedef struct ring_saved {
    uint64_t pull; /* number of the backward pass in which `all` was computed for the cotangent g */
    eg_tensor *g, *all;
    void *infinite; /* the number of scores of ∞ in each row; NULL if there are none */
} ring_saved;
typedef struct ring_slopes { /* what the gradient saves: the cotangents of its operands */
    uint64_t pull;
    eg_tensor *g, *d[1 + EG_RING_OPERANDS]; /* of the cotangent, and by EG_RING_… */
} ring_slopes;
static const eg_ring *ring_of(const eg_tensor *y) { return *(const eg_ring *const *)eg_attr(y); }
/* Lists the operands of attention by EG_RING_…; the node has `skip` operands before them. */
static void ring_by_number(const eg_ring *r, const eg_tensor *y, int skip, eg_tensor **x)
{
    for (int k = 0; k < EG_RING_OPERANDS; k++)
        x[k] = r->operand[k] < 0 ? NULL : eg_operand(y, skip + r->operand[k]);
}
static bool ring_shape(eg_tensor *y)
{
    const eg_ring *r = ring_of(y);
    return eg_result(y, r->dtype, 1, (int64_t[]){ r->y_count + r->l_count }) &&
           eg_node_save(y, sizeof(ring_saved));
}
static bool ring_forward(eg_tensor *y)
{
    const eg_ring *r = ring_of(y);
    eg_tensor *x[EG_RING_OPERANDS];
    ring_saved *s = eg_node_saved(y);
    ring_by_number(r, y, 0, x);
    return eg__ring_forward(r, y, x, &s->infinite);
}
/* Returns the number of scores of ∞ in each row of attention's result; NULL if there are none. A
 * result with copies has a number for each; in a forward() of copy k it is that copy's. */
static eg_tensor *ring_infinite(const eg_ring *r, const eg_tensor *y)
{
    eg_ctx *cx = y->cx;
    void *const *each = y->saved_each ? y->saved : NULL;
    const ring_saved *s = each && !y->copies ? each[cx->copy.k] : eg_node_saved(y);
    if (!each || !y->copies)
        return s && s->infinite ? eg_from_n(cx, r->dtype, s->infinite, r->l_rank, r->l_dims) : NULL;
    const int64_t count = y->copies->count;
    eg_tensor *rows = NULL;
    for (int64_t k = 0; k < count; k++) {
        s = each[k];
        if (!s->infinite) continue;
        if (!rows) rows = eg_full_n(cx, r->dtype, 0, 2, (int64_t[]){ count, r->l_count });
        if (!eg_ok(rows)) return rows;
        eg_assign(eg_select_axis(rows, 0, k), eg_from_n(cx, r->dtype, s->infinite, 1, &r->l_count));
    }
    eg_tensor *all = rows ? eg_copies_unstack(y->copies, rows) : NULL;
    return all ? eg_reshape_n(all, r->l_rank, r->l_dims) : NULL;
}
/* `all` has the layout of attention's result. Returns its part y (which = 0) or the log-sum-exp
 * (1). */
static eg_tensor *ring_view(const eg_ring *r, eg_tensor *all, int which)
{
    return which ? eg_reshape_n(eg_slice_axis(all, 0, r->y_count, r->y_count + r->l_count, 1),
                                r->l_rank, r->l_dims)
                 : eg_reshape_n(eg_slice_axis(all, 0, 0, r->y_count, 1), r->y_rank, r->y_dims);
}

/* -- the gradient: the cotangents of all operands of floats, one after another ---------------- */
static int64_t ring_offset(const eg_tensor *y, int skip, int until)
{
    int64_t n = 0;
    for (int k = skip; k < until; k++)
        if (eg__is_float(eg_operand(y, k)->dtype)) n += eg_size(eg_operand(y, k));
    return n;
}
static bool ring_gradient_shape(eg_tensor *y)
{
    return eg_result(y, ring_of(y)->dtype, 1,
                     (int64_t[]){ ring_offset(y, 2, 2 + ring_of(y)->operands) }) &&
           eg__node_save(y, sizeof(ring_slopes));
}
/* The operands are attention's result, its cotangent, and attention's operands. */
static bool ring_gradient_forward(eg_tensor *y)
{
    const eg_ring *r = ring_of(y);
    eg_tensor *x[EG_RING_OPERANDS];
    void *dx[EG_RING_OPERANDS] = { NULL };
    const size_t width = r->dtype == EG_F64 ? 8 : 4;
    ring_by_number(r, y, 2, x);
    memset(y->data, 0, (size_t)eg_size(y) * width);
    for (int k = 0; k < EG_RING_OPERANDS; k++)
        if (x[k] && eg__is_float(x[k]->dtype))
            dx[k] = y->data + (size_t)ring_offset(y, 2, 2 + r->operand[k]) * width;
    const bool was = eg_nograd(y->cx, true);
    eg_tensor *of = eg_operand(y, 0), *g = eg_operand(y, 1);
    const eg_ring_results results = { ring_view(r, of, 0), ring_view(r, of, 1),
                                      ring_infinite(r, of), ring_view(r, g, 0),
                                      ring_view(r, g, 1) };
    const bool good = eg__ring_backward(r, x, &results, dx);
    eg_nograd(y->cx, was);
    return good;
}
/* Sets d[] to the cotangents of the gradient's operands. The first operand, attention's result, has
 * none: its part is included in the cotangents of the operands that it is a function of. */
static bool ring_gradient_slopes(const eg_ring *r, eg_tensor *y, eg_tensor *h, eg_tensor **d)
{
    eg_tensor *x[EG_RING_OPERANDS],
        *to[EG_RING_OPERANDS] = { NULL }, *dg[2],
        *g[] = { ring_view(r, eg_operand(y, 1), 0), ring_view(r, eg_operand(y, 1), 1) };
    ring_by_number(r, y, 2, x);
    for (int k = 0; k < EG_RING_OPERANDS; k++) {
        if (!x[k] || !eg__is_float(x[k]->dtype)) continue;
        const int64_t at = ring_offset(y, 2, 2 + r->operand[k]);
        to[k] = eg_reshape_n(eg_slice_axis(h, 0, at, at + eg_size(x[k]), 1), eg_rank(x[k]),
                             eg_dims(x[k]));
    }
    if (!eg__ring_second(r, x, g, to, d + 1, dg)) return false;
    eg_tensor *flat[] = { eg_reshape(dg[0], r->y_count), eg_reshape(dg[1], r->l_count) };
    d[0] = eg_concat_axis_n(0, 2, flat);
    return !eg_error(y->cx);
}
/* Computes the cotangents of all operands at once, and keeps those that are asked for later. */
static eg_tensor *ring_gradient_rule(eg_tensor *y, eg_tensor *h, int i)
{
    const eg_ring *r = ring_of(y);
    ring_slopes *s = eg_node_saved(y);
    const uint64_t pull = y->cx->pull;
    if (i == 0) return NULL;
    if (!pull || s->pull != pull || s->g != h) {
        ring_slopes made = { .pull = pull, .g = h };
        if (!ring_gradient_slopes(r, y, h, made.d)) return eg__poison(y->cx);
        *s = made;
    }
    if (i == 1) return s->d[0];
    for (int k = 0; k < EG_RING_OPERANDS; k++)
        if (r->operand[k] == i - 2) return s->d[1 + k];
    return NULL;
}
static const eg_op ring_gradient_op = {
    .name = "attention over ranks, its gradient",
    .equation = "d = the cotangents of q, k, v and the score's tensors",
    .gradient = "that of the formula, of the whole length on each rank",
    .arity = -1,
    .shape = ring_gradient_shape,
    .forward = ring_gradient_forward,
    .rule = ring_gradient_rule,
};
/* Computes the cotangents of all operands at once, since the ranks exchange messages for them, and
 * keeps them. */
static eg_tensor *ring_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const eg_ring *r = ring_of(y);
    ring_saved *s = eg_node_saved(y);
    const uint64_t pull = y->cx->pull;
    if (!pull || s->pull != pull || s->g != g) {
        eg_tensor *x[2 + EG_RING_OPERANDS] = { y, g };
        for (int k = 0; k < r->operands; k++) x[2 + k] = eg_operand(y, k);
        s->pull = pull, s->g = g;
        s->all = eg__ranks_apply(r->ranks, &ring_gradient_op, &r, sizeof r, 2 + r->operands, x);
    }
    eg_tensor *x = eg_operand(y, i);
    const int64_t at = ring_offset(y, 0, i);
    return eg_reshape_n(eg_slice_axis(s->all, 0, at, at + eg_size(x), 1), eg_rank(x), eg_dims(x));
}
static const eg_op ring_op = {
    .name = "attention over ranks",
    .equation = "y = softmax(score(q k)) v and ln sum e^score, keys from all ranks",
    .gradient = "dS = P g, dq = scale dS k, dk = scale dS^T q",
    .arity = -1,
    .shape = ring_shape,
    .forward = ring_forward,
    .rule = ring_rule,
};

/* -- the call --------------------------------------------------------------------------------- */
/* Writes an expression as a part of the text that ranks compare, where a comma ends a part. */
static size_t ring_write(char *out, size_t size, const char *name, const char *value)
{
    const size_t n = (size_t)snprintf(out, size, ", %s %.200s", name, value ? value : "none");
    for (size_t k = 2; k < n && k < size; k++)
        if (out[k] == ',') out[k] = ';';
    return n < size ? n : size;
}
/* Writes what must be the same on all ranks: with other options each rank would compute a part of
 * another result, and the ranks would wait for messages of other lengths. */
static void ring_text(const eg_ring *r, const eg_attention_args *o, size_t size, char *out)
{
    size_t n =
        (size_t)eg__sentence(out, size, ".ranks_block %lld, .zigzag %d, %s, .scale %.9g",
                             (long long)r->block, r->zigzag, eg_type_name(r->dtype), o->scale);
    static const char *const operand[] = { "query", "key", "value" };
    const double dropout = eg_option(o->dropout, 0);
    n += (size_t)eg__sentence(out + n, size - n, ", .dropout %.9g", r->training ? dropout : 0);
    if (r->training && dropout > 0)
        n += (size_t)snprintf(out + n, size - n, ", seed %llu, %llu random draws",
                              (unsigned long long)r->seed, (unsigned long long)r->draw);
    for (int t = 0; t < 3; t++) {
        n += (size_t)snprintf(out + n, size - n, ", %s of", operand[t]);
        for (int a = 0; a < r->rank[t] && n < size; a++)
            n += (size_t)snprintf(out + n, size - n, a == r->axis[t] ? " *" : " %lld",
                                  (long long)r->dims[t][a]);
    }
    n += ring_write(out + n, size - n, "the spec", o->spec);
    n += ring_write(out + n, size - n, ".where", o->where);
    n += ring_write(out + n, size - n, ".score", o->score);
    const struct {
        const char *name;
        const eg_masked *mask;
    } masks[] = { { ".keep", &o->keep },
                  { ".bias", &o->bias },
                  { ".lengths", &o->lengths },
                  { ".alibi", &o->alibi },
                  { ".sink", &o->sink } };
    for (size_t k = 0; k < sizeof masks / sizeof *masks; k++)
        n += ring_write(out + n, size - n, masks[k].name,
                        masks[k].mask->x ? masks[k].mask->axes : NULL);
    snprintf(out + n, size - n, ", .offset %lld", (long long)o->offset);
}
/* Returns the log-sum-exp with its axes in the order of .weights_axes, which also contain the index
 * of the keys. */
static eg_tensor *ring_ordered(eg_ctx *cx, const eg_ring *r, const char *axes, eg_tensor *lse)
{
    int order[EG_RANK_MAX], n = 0;
    char rows[512];
    snprintf(rows, sizeof rows, "names:%s", strrchr(r->inner, '>') + 1);
    const eg_spec *s = axes ? eg_spec_like(eg_spec_parse(cx, who, r->o.spec), axes) : NULL,
                  *l = s ? eg_spec_parse(cx, who, rows) : NULL;
    if (!axes || !l) return lse;
    for (int k = 0; k < s->term[0].items && n < EG_RANK_MAX; k++) {
        const int index = s->term[0].item[k].index;
        const char *name = index < 0 ? "" : s->index[index].name;
        if (!strcmp(name, r->key.letter)) continue;
        order[n++] = eg_spec_axis(l, 0, name);
        if (order[n - 1] < 0) n = EG_RANK_MAX;
    }
    return n == r->l_rank ? eg_permute_n(lse, n, order)
                          : eg_fail_as(cx, EG_ERROR_NOTATION,
                                       "attention: .weights_axes are \"%s\", but the weights have "
                                       "the indices%s and '%s'",
                                       axes, strrchr(r->inner, '>') + 1, r->key.letter);
}
eg_tensor *eg__attention_ring(eg_ctx *cx, const eg_attention_args *o)
{
    eg_ring *r = eg__alloc(cx, sizeof *r);
    eg_tensor *x[EG_RING_OPERANDS] = { NULL };
    if (eg_ranks_context(o->ranks) != cx)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "attention: .ranks belongs to another context");
    bool good = r != NULL;
    if (good) {
        *r = (eg_ring){ .o = *o,
                        .ranks = o->ranks,
                        .zigzag = o->zigzag,
                        .block = block_size(o->ranks_block),
                        .dtype = eg_type(o->q),
                        .seed = cx->seed,
                        .draw = cx->draw,
                        .training = cx->training };
        r->o.sink = (eg_masked){ 0 };
        r->o.lse = NULL, r->o.empty = NULL, r->o.weights_axes = NULL;
        good = ring_bind(cx, r, x);
    }
    char text[2048] = "";
    if (good) ring_text(r, o, sizeof text, text);
    if (eg__ranks_barrier_same(o->ranks, "attention: .ranks", text) || !good ||
        !ring_lengths(cx, r))
        return eg__poison(cx);
    if (eg_option(o->dropout, 0) > 0 && cx->training)
        cx->draw += (uint64_t)(r->query.blocks * r->key.blocks);
    eg_tensor *all = eg__ranks_apply(r->ranks, &ring_op, &r, sizeof r, r->operands, x),
              *y = ring_view(r, all, 0), *lse = ring_view(r, all, 1);
    if (o->sink.x && eg_ok(all) &&
        !eg__ring_add_sink(cx, r, &o->sink, ring_infinite(r, all), &y, &lse))
        return eg__poison(cx);
    eg_tensor *ordered = ring_ordered(cx, r, o->weights_axes, lse);
    if (!eg_ok(ordered)) return eg__poison(cx);
    if (r->summed) y = eg__sum_last(y, r->summed);
    if (o->lse) *o->lse = ordered;
    if (o->empty && !o->sink.x && eg_ok(lse)) {
        const bool was = eg_nograd(cx, true);
        *o->empty = eg__attention_count(eg_lt(lse, eg_full_n(cx, r->dtype, -1e38, 0, NULL)));
        eg_nograd(cx, was);
    }
    return y;
}

/* The group whose ranks the rule of a node waits for; NULL: none. The operations inside a
 * checkpoint do not exist any more: their group is the context's, or the first one of several. */
static eg_ranks *ring_group(const eg_tensor *t)
{
    if (t->communicates && eg__is_checkpoint(t)) return (eg_ranks *)t->cx->groups;
    return t->op == &ring_op ? ring_of(t)->ranks : eg__ranks_of_node(t);
}
eg_ranks *eg_ranks_of(eg_tensor *y)
{
    eg_ranks *found = NULL;
    bool walked = false;
    if (!y || (!eg_ok(y) && !y->poison)) return NULL;
    /* the usual case, without a traversal; blocks share the groups of their parent */
    if (!y->cx->groups && !y->cx->parent) return NULL;
    if (!y->poison) {
        const eg_mark m = eg_push(y->cx);
        eg_walk w = { .cx = y->cx };
        walked = eg__walk(&w, 1, &y);
        for (int64_t k = 0; walked && k < w.n && !found; k++) found = ring_group(w.node[k]);
        eg_pop(y->cx, m);
    }
    const eg_tensor *last = walked ? NULL : eg__scoped_tensor(y->cx, &y->cx->last_communicating);
    return last ? ring_group(last) : found;
}
