/* expression_result.c: the loop of an expression over its result: its axes, its blocks, and the
 * threads that run it.
 *
 * Neighbouring letters that occur only as indices of neighbouring axes are joined to one axis of
 * the loop, so that a formula without brackets is computed along a single axis. The last axis of
 * the loop is divided into lanes, the one before it into rows (notation/expression.h), or a longer
 * one if both are short. If the last axis has fewer elements than a group of lanes, and no
 * cotangent is a sum, the lanes are along a longer axis, and blocks are transposed into the result.
 * Where sums are divided depends on sizes only. */
#include "notation/expression.h"
#include <stddef.h>
#include <string.h>

/* The largest number of elements of a block, of lanes of a block with several rows, and of lanes of
 * a block with a single row; the number of elements from which the calls of a block take little of
 * its time; the work for which another thread is worthwhile. */
enum { ELEMENTS = 4096, LANES = 512, RUN = 4096, FEW = 512, GRAIN = 1 << 18 };

/* Sets joined[l] to whether letters l and l + 1 can be one axis of the loop: both begin at position
 * 0, each read has either both, at axes r and r + 1 of the letters' sizes, or neither, and nothing
 * else depends on them. */
static void find_joined(const eg_block_loop *o, const int64_t *size, eg_tensor *const *x,
                        bool *joined)
{
    const eg_expression *e = o->e;
    for (int l = 0; l + 1 < o->letters; l++)
        joined[l] = size[l] < INT32_MAX / (size[l + 1] + 1) && !o->first[l] && !o->first[l + 1];
    for (int k = 0; k <= o->root; k++) {
        const eg_node *n = &e->node[k];
        int axis[EG_EXPRESSION_LETTERS];
        bool apart[EG_EXPRESSION_LETTERS] = { false };
        memset(axis, -1, sizeof axis);
        if (k == o->root && n->code == EG_X_LETTER) apart[n->in[0]] = true;
        for (int r = 0; r < n->count; r++) {
            const eg_node *i = &e->node[n->in[r]];
            if (i->code != EG_X_LETTER) continue;
            apart[i->in[0]] |= n->code != EG_X_READ || n->guard || axis[i->in[0]] >= 0;
            axis[i->in[0]] = r;
        }
        for (int l = 0; l + 1 < o->letters; l++) {
            const int a = axis[l], b = axis[l + 1];
            if (apart[l] || apart[l + 1]) joined[l] = false;
            if (a < 0 && b < 0) continue;
            if (a < 0 || b != a + 1 || n->code != EG_X_READ || x[n->tensor]->dim[b] != size[l + 1])
                joined[l] = false;
        }
    }
}
/* Sets the axes of the loop: groups of joined letters. The position in a group is stored as the
 * position of its last letter. A letter of size 1 that is not joined needs no axis. */
static void form_groups(eg_block_loop *o, const int64_t *size, eg_tensor *const *x)
{
    bool joined[EG_EXPRESSION_LETTERS] = { false };
    find_joined(o, size, x, joined);
    o->groups = 0;
    for (int l = 0; l < o->letters; l++) {
        const bool on = l && joined[l - 1];
        if (!on && size[l] == 1 && !joined[l]) continue;
        if (!on) o->begin[o->groups] = l, o->count[o->groups++] = 1;
        o->last[o->groups - 1] = l;
        o->count[o->groups - 1] *= size[l];
        if (o->count[o->groups - 1] > INT32_MAX && on) { /* a position must fit in 32 bits */
            o->count[o->groups - 1] /= size[l];
            o->last[o->groups - 1] = l - 1;
            o->begin[o->groups] = o->last[o->groups] = l;
            o->count[o->groups++] = size[l];
        }
    }
    o->elements = 1;
    for (int k = o->groups; k-- > 0;) {
        o->step[k] = o->elements;
        o->elements *= o->count[k];
    }
}
/* True if read n of t traverses each group of joined letters with one stride, that of the group's
 * last letter. Bit l of `inside`: letter l is joined with the next one. The strides of axes of size
 * 1 do not matter. */
static bool walks_in_runs(const eg_block_loop *o, const eg_node *n, const eg_tensor *t,
                          const int64_t *size, uint32_t inside)
{
    for (int r = 0; r + 1 < n->count; r++) {
        const eg_node *i = &o->e->node[n->in[r]];
        if (i->code != EG_X_LETTER || !(inside >> i->in[0] & 1) || t->dim[r] == 1) continue;
        int last = r, letter = i->in[0];
        int64_t below = 1; /* elements of the group for each step along letter i */
        for (; inside >> letter & 1; letter++, last++) below *= size[letter + 1];
        if (t->stride[r] != t->stride[last] * below) return false;
    }
    return true;
}
/* Sets the sources of the loop: the tensors, or row-major copies of those in which a group of
 * joined letters does not have a single stride. False after an error. */
static bool give_sources(eg_block_loop *o, const int64_t *size, eg_tensor *const *x, int count)
{
    bool whole[EG_TENSORS_MAX];
    uint32_t inside = 0; /* bits: letters that are joined with the next one */
    for (int g = 0; g < o->groups; g++)
        for (int l = o->begin[g]; l < o->last[g]; l++) inside |= 1u << l;
    for (int t = 0; t < count; t++) whole[t] = true;
    for (int k = 0; k <= o->root; k++) {
        const eg_node *n = &o->e->node[k];
        if (n->code == EG_X_READ && !walks_in_runs(o, n, x[n->tensor], size, inside))
            whole[n->tensor] = false;
    }
    for (int t = 0; t < count; t++) {
        const eg_tensor *s = x[t];
        if (!whole[t]) {
            eg_tensor *copy = eg__new(o->cx, (eg_dtype)s->dtype, s->rank, s->dim);
            if (!copy) return false;
            eg__copy(copy, s);
            s = copy;
        }
        for (int r = 0; r < s->rank; r++) o->strides[t][r] = s->stride[r];
        o->source[t] = (eg_source){ s->data, o->strides[t], (eg_dtype)s->dtype, s->dim };
    }
    return true;
}
/* Returns the group along which a block has its rows: the one before the last, or the longest if
 * blocks of these two would have few elements; −1 if there is a single group. */
static int group_of_rows(const eg_block_loop *o)
{
    int row = o->groups - 2;
    if (row < 0 || o->count[row] * o->count[row + 1] >= FEW) return row;
    for (int k = row; k-- > 0;)
        if (o->count[k] > o->count[row]) row = k;
    return row;
}
/* Returns the group along which a block has its lanes: the last one, or, if that is short and the
 * order of lanes and rows is that of no sum, the one before it or the longest. −1 if there are no
 * groups. */
static int group_of_lanes(const eg_block_loop *o, const int64_t *size, eg_tensor *const *x,
                          int count, uint32_t wanted)
{
    const int last = o->groups - 1;
    int lane = last - 1;
    if (last < 1 || o->count[last] >= EG_LANES) return last;
    for (int t = 0; t < count; t++)
        if (wanted >> t & 1 && !eg__written_once(o->e, o->letters, size, t, x[t]->dim)) return last;
    for (int k = lane; k-- > 0 && o->count[lane] * o->count[last] < FEW;)
        if (o->count[k] > o->count[lane]) lane = k;
    return o->count[lane] < 2 * EG_LANES ? last : lane;
}
bool eg__block_loop(eg_block_loop *o, eg_ctx *cx, const eg_expression *e, int root, int letters,
                    const int64_t *size, const int64_t *first, eg_tensor *const *x, int count,
                    bool f64, uint32_t wanted)
{
    memset(o, 0, offsetof(eg_block_loop, plan));
    o->cx = cx;
    o->e = e;
    o->root = root;
    o->letters = letters;
    if (first) memcpy(o->first, first, (size_t)letters * sizeof *first);
    form_groups(o, size, x);
    if (!o->elements) return true;
    if (!give_sources(o, size, x, count)) return false;
    const int lane = o->lane = group_of_lanes(o, size, x, count, wanted);
    o->across = lane >= 0 && lane < o->groups - 1;
    const int row = o->row = o->across ? o->groups - 1 : group_of_rows(o);
    const int64_t lanes = lane < 0 ? 1 : o->count[lane], rows = row < 0 ? 1 : o->count[row];
    const int64_t most = rows == 1 ? RUN : o->across && rows > ELEMENTS / LANES ? LANES / 2 : LANES;
    const int64_t wide = eg__min64(lanes, most),
                  tall = eg__min64(rows, ELEMENTS / eg__round_up(wide, EG_LANES));
    o->lane_blocks = (lanes + wide - 1) / wide;
    o->row_blocks = (rows + tall - 1) / tall;
    o->blocks = o->elements / (lanes * rows) * o->lane_blocks * o->row_blocks;
    eg__block_plan(&o->plan, e, root, f64, (int)tall, (int)wide, row < 0 ? 0 : 1u << o->last[row],
                   lane < 0 ? 0 : 1u << o->last[lane], wanted);
    o->bytes = o->plan.bytes;
    if (o->across) /* a block of results or cotangents, and one of bools */
        o->bytes +=
            (size_t)eg__round_up(eg__block_loop_size(o) * (int64_t)(sizeof(double) + 1), 64);
    return true;
}
int64_t eg__block_loop_size(const eg_block_loop *o)
{
    return o->plan.rows * eg__round_up(o->plan.lanes, EG_LANES);
}
/* y[j·ys + i] = x[i·xs + j] for i < n, j < m: elements of 1, 4 or 8 bytes */
static void block_transposed(int width, int64_t n, int64_t m, const void *x, int64_t xs, void *y,
                             int64_t ys)
{
    if (width > 1)
        eg__transpose((size_t)width, n, m, x, xs, y, ys, false);
    else
        for (int64_t j = 0; j < m; j++)
            for (int64_t i = 0; i < n; i++)
                ((uint8_t *)y)[j * ys + i] = ((const uint8_t *)x)[i * xs + j];
}
/* Computes a block whose rows are along the last axis of the result, in `transposed` memory, from
 * which values are transposed, and to which cotangents are. */
static void block_across(const eg_block_loop *o, eg_block_data *b, int out, char *workspace)
{
    const int width = o->plan.f64 ? 8 : 4;
    const int64_t apart = o->step[o->lane], lanes = b->lanes;
    char *transposed = workspace + o->plan.bytes, *to = b->out;
    uint8_t *allow = (uint8_t *)transposed + eg__block_loop_size(o) * (int64_t)sizeof(double);
    b->out_step = b->allow_step = lanes;
    if (to) b->out = transposed;
    if (b->g && !o->uniform) {
        block_transposed(width, lanes, b->rows, b->g, apart, transposed, lanes);
        b->g = transposed;
        b->g_step = lanes;
    }
    if (b->allow) {
        block_transposed(1, lanes, b->rows, b->allow, apart, allow, lanes);
        b->allow = allow;
    }
    eg__block_values(&o->plan, b, workspace);
    if (o->g) eg__block_slopes(&o->plan, b, workspace);
    if (to) block_transposed(out, b->rows, lanes, transposed, lanes, to, apart);
}
/* Computes block `number`: its values, and its cotangents if o->g is set. Blocks are numbered along
 * lanes first, then along rows; if `across`, along the other axes before these, so that blocks next
 * to each other in memory follow each other. */
static void one_block(const eg_block_loop *o, int64_t number, char *workspace, const eg_sink *sink)
{
    eg_letter_values letter[EG_EXPRESSION_LETTERS];
    const int across = o->lane, along = o->row, width = o->plan.f64 ? 8 : 4;
    const int kind = o->e->node[o->root].kind, out = kind == EG_IS_CONDITION ? 1
                                                     : kind == EG_IS_INTEGER ? 8
                                                                             : width;
    const int64_t plane = o->lane_blocks * o->row_blocks, planes = o->blocks / plane,
                  inside = o->across ? number / planes : number % plane;
    const int64_t lane = inside % o->lane_blocks * o->plan.lanes,
                  row = inside / o->lane_blocks * o->plan.rows;
    int64_t rest = o->across ? number % planes : number / plane, at = 0;
    for (int l = 0; l < o->letters; l++) letter[l] = (eg_letter_values){ .first = o->first[l] };
    for (int k = o->groups; k-- > 0;) {
        if (k == along || k == across) continue;
        letter[o->last[k]].first += rest % o->count[k];
        at += rest % o->count[k] * o->step[k];
        rest /= o->count[k];
    }
    if (across >= 0) letter[o->last[across]].first += lane, at += lane * o->step[across];
    if (along >= 0) letter[o->last[along]].first += row, at += row * o->step[along];
    const int64_t step = along < 0 ? 0 : o->step[along];
    eg_block_data b = {
        .rows = (int)(along < 0 ? 1 : eg__min64(o->plan.rows, o->count[along] - row)),
        .lanes = (int)(across < 0 ? 1 : eg__min64(o->plan.lanes, o->count[across] - lane)),
        .letter = letter,
        .source = o->source,
        .out = o->out ? (char *)o->out + at * out : NULL,
        .out_step = step,
        .g = o->g ? (const char *)o->g + (o->uniform ? 0 : at * width) : NULL,
        .g_step = step,
        .sink = sink,
        .allow = o->allow ? o->allow + at : NULL,
        .allow_step = step,
    };
    b.allow_rows = o->allow ? b.rows : 0;
    if (o->uniform || o->groups < 2) b.g_step = b.lanes;
    if (o->across) {
        block_across(o, &b, out, workspace);
        return;
    }
    eg__block_values(&o->plan, &b, workspace);
    if (o->g) eg__block_slopes(&o->plan, &b, workspace);
}
static void some_blocks(void *user, int64_t piece, int thread)
{
    const eg_block_loop *o = user;
    eg_sink sink[EG_TENSORS_MAX];
    memcpy(sink, o->sink, sizeof sink);
    for (int t = 0; t < EG_TENSORS_MAX && o->sums; t++)
        if (sink[t].data && !sink[t].direct && !sink[t].few)
            sink[t].data = (double *)sink[t].data + piece * o->summed;
    const int64_t from = o->blocks * piece / o->pieces, to = o->blocks * (piece + 1) / o->pieces;
    for (int64_t k = from; k < to; k++)
        one_block(o, k, o->workspace + (size_t)thread * o->bytes, sink);
}
bool eg__block_loop_run(eg_block_loop *o)
{
    if (!o->elements) return true;
    const int64_t work = o->elements * (o->e->nodes + 1);
    int team = eg__team(o->cx, work, GRAIN);
    if (team > o->blocks) team = (int)o->blocks;
    if (!o->pieces) o->pieces = eg__min64(o->blocks, 4 * team);
    o->workspace = eg__scratch(o->cx, EG_SCRATCH_BLOCKS, (size_t)team * o->bytes);
    if (!o->workspace) return false;
    eg__parallel(o->cx, team, o->pieces, some_blocks, o);
    return true;
}

/* -- sums of cotangents ----------------------------------------------------------------------- */
bool eg__written_once(const eg_expression *e, int letters, const int64_t *size, int t,
                      const int64_t *dim)
{
    uint32_t seen = 0, all = 0;
    int reads = 0;
    for (int l = 0; l < letters; l++) all |= (uint32_t)(size[l] != 1) << l;
    for (int k = 0; k <= e->root; k++) {
        const eg_node *n = &e->node[k];
        if (n->code != EG_X_READ || n->tensor != t) continue;
        reads++;
        for (int r = 0; r < n->count; r++) {
            const eg_node *i = &e->node[n->in[r]];
            if (i->code != EG_X_LETTER || seen >> i->in[0] & 1 || size[i->in[0]] != dim[r])
                return false;
            seen |= 1u << i->in[0];
        }
    }
    return reads == 1 && (all & ~seen) == 0;
}
/* The values of an index that depends on a single letter, over all positions of the letter: they
 * are from `low` to `high`, at most `times` positions have the same value (MANY: not known), and
 * with `unit` consecutive positions have values that differ by one. */
typedef struct walk {
    int64_t low, high, times;
    bool unit;
} walk;
enum { MANY = 1 << 20 };
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
/* Returns the walk through the values of `node`, of which `of` is one operand and the other one is
 * the constant c; `first`: the constant is the first operand. */
static walk walk_on(const eg_node *node, walk of, int64_t c, bool first)
{
    const int64_t low = of.low, high = of.high, below = c - low + 1, above = high - c + 1;
    switch (node->code) {
    case EG_X_ADD: return (walk){ low + c, high + c, of.times, of.unit };
    case EG_X_SUB:
        if (first) return (walk){ c - high, c - low, of.times, of.unit };
        return (walk){ low - c, high - c, of.times, of.unit };
    case EG_X_MUL:
        if (c == 0) break;
        return (walk){ eg__min64(low * c, high * c), larger(low * c, high * c), of.times,
                       of.unit && (c == 1 || c == -1) };
    case EG_X_MAX: /* the values up to c become c */
        if (!of.unit || of.times != 1) break;
        return (walk){ larger(low, c), larger(high, c), larger(below, 1), below <= 1 };
    case EG_X_MIN:
        if (!of.unit || of.times != 1) break;
        return (walk){ eg__min64(low, c), eg__min64(high, c), larger(above, 1), above <= 1 };
    case EG_X_MOD:
        if (first || !of.unit || of.times != 1 || c <= 0) break;
        return (walk){ 0, c - 1, (high - low) / c + 1, false };
    default: break;
    }
    return (walk){ .times = MANY };
}
/* Returns the walk of node k, an index; a constant has low = high, and times 1. */
static walk walk_of(const eg_expression *e, const int64_t *size, int k)
{
    const eg_node *n = &e->node[k];
    walk w[3];
    if (n->code == EG_X_INTEGER || n->code == EG_X_SIZE)
        return (walk){ n->integer, n->integer, 1, true };
    if (n->code == EG_X_LETTER) return (walk){ 0, size[n->in[0]] - 1, 1, true };
    if (n->code < EG_X_ADD && n->code != EG_X_NEG) return (walk){ .times = MANY };
    if (n->count > 3) return (walk){ .times = MANY };
    for (int i = 0; i < n->count; i++) {
        w[i] = walk_of(e, size, n->in[i]);
        if (w[i].times == MANY) return w[i];
    }
    if (n->code == EG_X_NEG) return (walk){ -w[0].high, -w[0].low, w[0].times, w[0].unit };
    if (n->code == EG_X_CLIP) {
        static const eg_node raise = { .code = EG_X_MAX }, lower = { .code = EG_X_MIN };
        if (e->node[n->in[1]].letters || e->node[n->in[2]].letters || w[1].low >= w[2].low)
            return (walk){ .times = MANY };
        const walk up = walk_on(&raise, w[0], w[1].low, false),
                   down = walk_on(&lower, w[0], w[2].low, false);
        return (walk){ eg__min64(up.low, w[2].low), larger(down.high, w[1].low),
                       larger(up.times, down.times), false };
    }
    if (n->count != 2) return (walk){ .times = MANY };
    for (int i = 0; i < 2; i++)
        if (!e->node[n->in[i]].letters) return walk_on(n, w[!i], w[i].low, i == 0);
    return (walk){ .times = MANY };
}
/* True if node k, a sum or difference, is another integer for each position of the one of its
 * letters that is not among `seen`, as i − j is if i is seen. */
static bool tells_apart(const eg_expression *e, int k, uint32_t seen)
{
    const eg_node *n = &e->node[k];
    if (n->code == EG_X_LETTER) return true;
    if (n->code == EG_X_NEG) return tells_apart(e, n->in[0], seen);
    if (n->code != EG_X_ADD && n->code != EG_X_SUB) return false;
    const bool a = e->node[n->in[0]].letters & ~seen, b = e->node[n->in[1]].letters & ~seen;
    return a != b && tells_apart(e, n->in[!a], seen);
}
/* Returns how many positions of the letters (bits) `all` at most read one element in read n, if its
 * indices are in their axes; MANY if this is not known. Indices of one letter come first; an index
 * of several then tells one more letter apart. */
static int64_t summands_of_read(const eg_expression *e, const int64_t *size, const eg_node *n,
                                uint32_t all)
{
    uint32_t seen = 0;
    int64_t times = 1;
    for (int r = 0; r < n->count && times <= 2; r++) {
        const uint32_t of = e->node[n->in[r]].letters & all;
        if (of & (of - 1)) continue;
        if (seen & of) return MANY;
        seen |= of;
        times *= of ? walk_of(e, size, n->in[r]).times : 1;
    }
    for (int r = 0; r < n->count && times <= 2; r++) {
        const uint32_t of = e->node[n->in[r]].letters & all, more = of & ~seen;
        if (!(of & (of - 1)) || !more) continue;
        if (more & (more - 1) || !tells_apart(e, n->in[r], seen | ~all)) return MANY;
        seen |= more;
    }
    return seen == all ? times : MANY;
}
bool eg__few_summands(const eg_expression *e, int letters, const int64_t *size, int t)
{
    uint32_t all = 0;
    int64_t most = 0;
    for (int l = 0; l < letters; l++) all |= (uint32_t)(size[l] != 1) << l;
    for (int k = 0; k <= e->root; k++) {
        const eg_node *n = &e->node[k];
        if (n->code != EG_X_READ || n->tensor != t) continue;
        most += summands_of_read(e, size, n, all);
        if (most > 2) return false;
    }
    return e->narrow && most <= 2;
}
void eg__sums_add(bool f64, void *to, int64_t n, int64_t sets, int64_t apart, const double *sum)
{
    for (int64_t k = 0; k < n; k++) {
        double all = 0;
        for (int64_t p = 0; p < sets; p++) all += sum[p * apart + k];
        if (f64)
            ((double *)to)[k] = all;
        else
            ((float *)to)[k] = (float)all;
    }
}

/* -- values that runs of a captured step compute again ----------------------------------------- */
typedef struct values_act { /* the expression follows it in memory */
    int root, letters;
    bool f64;
    int64_t size[EG_RANK_MAX], first[EG_RANK_MAX];
} values_act;
/* Computes the values of copy k into y from the elements of x. False after an error. */
static bool values_of_copy(const values_act *a, eg_tensor *y, int count, eg_tensor *const *x,
                           int64_t k)
{
    eg_block_loop o;
    eg_tensor one[EG_TENSORS_MAX], *of[EG_TENSORS_MAX] = { NULL };
    for (int i = 0; i < count; i++) {
        one[i] = *x[i];
        one[i].data = eg__copy_data(x[i], k);
        one[i].copies = NULL;
        of[i] = &one[i];
    }
    if (!eg__block_loop(&o, y->cx, (const eg_expression *)(const void *)(a + 1), a->root,
                        a->letters, a->size, a->first, of, count, a->f64, 0))
        return false;
    o.out = eg__copy_data(y, k);
    return eg__block_loop_run(&o);
}
static bool act_values(eg_ctx *cx, eg_tensor *y, int count, eg_tensor *const *x, void *arg)
{
    const eg_mark m = eg_push(cx); /* a run of a captured step may have any scope open */
    bool good = true;
    for (int64_t k = 0; good && k < eg__copy_count(y); k++)
        good = values_of_copy(arg, y, count, x, k);
    eg_pop(cx, m);
    return good;
}
/* Computes the values into y from the elements of x. False after an error. */
static bool values_into(eg_tensor *y, const eg_expression_values *v, eg_tensor *const *x)
{
    const size_t bytes = eg__expression_bytes(v->e);
    values_act *a = eg__alloc(y->cx, sizeof *a + bytes);
    if (!a) return false;
    *a = (values_act){ .root = v->root, .letters = v->letters, .f64 = v->f64 };
    if (v->letters) memcpy(a->size, v->size, (size_t)v->letters * sizeof *v->size);
    if (v->letters && v->first) memcpy(a->first, v->first, (size_t)v->letters * sizeof *v->first);
    memcpy(a + 1, v->e, bytes);
    if (!v->count && eg__capturing(y->cx)) { /* positions only: the values are the same in each
                                              * run */
        eg__made_once(y);
        return act_values(y->cx, y, 0, x, a);
    }
    return eg__act(y->cx, act_values, y, v->count, x, a, sizeof *a + bytes, 0);
}
eg_tensor *eg__expression_values(eg_ctx *cx, const eg_expression_values *v, eg_dtype dtype,
                                 int rank, const int64_t *dims)
{
    const eg_copies *copies;
    if (!eg__copies_of_all(cx, v->who, v->count, v->x, &copies) ||
        !eg__sizes_fit(cx, v->who, dtype, rank, dims))
        return NULL;
    eg_tensor *y = eg__new_copies(cx, copies, dtype, rank, dims);
    return y && values_into(y, v, v->x) ? y : NULL;
}
