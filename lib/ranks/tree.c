/* tree.c: sums along a tree of leaves that are divided among ranks; gathering and statistics of
 * their results.
 *
 * By halving: in step s a rank and its neighbour at distance 2^s have the sums of two sibling
 * subtrees. Each sends the half of its range that the other one keeps, and adds the half that it
 * receives. After log2(ranks) steps a rank has the complete sum for 1/ranks of the chunks;
 * gathering takes the same steps in reverse.
 *
 * If subtrees are not siblings in this way, each rank receives all subtrees of the others for the
 * range that it owns, and adds them along the tree.
 *
 * If the number of ranks is a power of two, the ranges are those of halving in both cases: they
 * depend only on the ranks and the chunks, so that what a rank stores for its range (such as
 * moments) can be used with sums over any number of leaves. */
#include "ranks/tree.h"
#include <math.h>
#include <string.h>

enum { SUBTREES = 128 };
static const int64_t LEAVES_MOST = 1 << 30;

/* -- the tree --------------------------------------------------------------------------------- */
int64_t eg_ranks_tree_middle(eg_span node)
{
    const uint64_t from = (uint64_t)node.from,
                   n = node.to > node.from ? (uint64_t)node.to - from : 0;
    uint64_t half = 1;
    while (n > half && n - half > half) half *= 2;
    return (int64_t)(from + half);
}
static eg_span leaves_of(int64_t leaves, int rank, int ranks)
{
    return (eg_span){ leaves * rank / ranks, leaves * (rank + 1) / ranks };
}
/* Returns the largest node of the tree that begins at `from` and does not extend beyond `to`. */
static eg_span largest_node(int64_t leaves, int64_t from, int64_t to)
{
    eg_span node = { 0, leaves };
    while (node.from != from || node.to > to) {
        const int64_t middle = eg_ranks_tree_middle(node);
        if (from < middle)
            node.to = middle;
        else
            node.from = middle;
    }
    return node;
}
static bool power_of_two(int64_t n) { return (n & (n - 1)) == 0; }

eg_span eg_ranks_tree_leaves(const eg_ranks_tree *t)
{
    return t ? leaves_of(t->leaves, t->ranks->table.rank, t->ranks->table.ranks) : (eg_span){ 0 };
}
int64_t eg__ranks_tree_leaf_count(const eg_ranks_tree *t) { return t->leaves; }
int eg__ranks_tree_subtrees_of(const eg_ranks_tree *t, int rank)
{
    return t->first[rank + 1] - t->first[rank];
}
eg_span eg__ranks_tree_subtree_of(const eg_ranks_tree *t, int rank, int k)
{
    return t->node[t->first[rank] + k];
}
int eg_ranks_tree_subtrees(const eg_ranks_tree *t)
{
    return t ? eg__ranks_tree_subtrees_of(t, t->ranks->table.rank) : 0;
}
eg_span eg_ranks_tree_subtree(const eg_ranks_tree *t, int k)
{
    return t && k >= 0 && k < eg_ranks_tree_subtrees(t)
               ? eg__ranks_tree_subtree_of(t, t->ranks->table.rank, k)
               : (eg_span){ 0 };
}

/* -- chunks and ranges ------------------------------------------------------------------------ */
/* Returns the chunk that begins nearest to the element with a given number. Ranges are divided
 * there, so that ranks own nearly the same number of elements; the same number of chunks would not
 * suffice, since the last chunk of a part is shorter. */
static int64_t border_at(const eg_ranks_tree *t, int64_t number)
{
    int64_t low = 0, high = t->chunks; /* start[low] ≤ number ≤ start[high] */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (t->start[middle] <= number)
            low = middle;
        else
            high = middle;
    }
    return number - t->start[low] <= t->start[high] - number ? low : high;
}
/* Returns the half of a range that a rank keeps in a step or, with `other`, the half that it
 * sends. */
static eg_span tree_half_of(const eg_ranks_tree *t, eg_span range, int rank, int step, bool other)
{
    const int64_t middle =
        border_at(t, t->start[range.from] + (t->start[range.to] - t->start[range.from]) / 2);
    return ((rank >> step & 1) != 0) != other ? (eg_span){ middle, range.to }
                                              : (eg_span){ range.from, middle };
}
static eg_span range_of(const eg_ranks_tree *t, int rank)
{
    eg_span r = { 0, t->chunks };
    const int ranks = t->ranks->table.ranks;
    const int64_t each = t->start[t->chunks] / ranks, left = t->start[t->chunks] % ranks;
    if (!t->halves)
        return (eg_span){ border_at(t, each * rank + left * rank / ranks),
                          border_at(t, each * (rank + 1) + left * (rank + 1) / ranks) };
    for (int s = 0; s < t->steps; s++) r = tree_half_of(t, r, rank, s, false);
    return r;
}
int64_t eg_ranks_tree_chunks(const eg_ranks_tree *t) { return t ? t->chunks : 0; }
eg_span eg_ranks_tree_range(const eg_ranks_tree *t)
{
    return t ? t->range[t->ranks->table.rank] : (eg_span){ 0 };
}
eg_span eg_ranks_tree_range_of(const eg_ranks_tree *t, int rank)
{
    return t && rank >= 0 && rank < t->ranks->table.ranks ? t->range[rank] : (eg_span){ 0 };
}
eg_span eg_ranks_tree_chunk(const eg_ranks_tree *t, int64_t k)
{
    return t && k >= 0 && k < t->chunks ? (eg_span){ t->start[k], t->start[k + 1] }
                                        : (eg_span){ 0 };
}

/* -- opening ---------------------------------------------------------------------------------- */
/* True, after an error, if an option is wrong. */
static bool tree_refused(eg_ctx *cx, const eg_ranks_tree_args *o)
{
    int64_t all = 0;
    if (o->dtype != EG_F32 && o->dtype != EG_F64)
        eg_fail_as(cx, EG_ERROR_DTYPE, "ranks: a tree sums f32 or f64, not %s",
                   eg_type_name(o->dtype));
    else if (o->leaves < 0 || o->leaves > LEAVES_MOST)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "ranks: a tree has 1 to 2^30 leaves, or 0 to sum nothing, not %lld",
                   (long long)o->leaves);
    else if (o->chunk < 1)
        eg_fail_as(cx, EG_ERROR_MISUSE, "ranks: chunk must be positive, not %lld",
                   (long long)o->chunk);
    else if (o->parts < 1 || !o->counts)
        eg_fail_as(cx, EG_ERROR_MISUSE, "ranks: a buffer has at least one part, not %d", o->parts);
    for (int k = 0; !eg_error(cx) && k < o->parts; k++)
        if (o->counts[k] < 0 || o->counts[k] > (INT64_MAX >> 4) - all)
            eg_fail_as(cx, EG_ERROR_SHAPE, "ranks: part %d of a buffer cannot have %lld numbers", k,
                       (long long)o->counts[k]);
        else
            all += o->counts[k];
    return eg_error(cx) != NULL;
}

/* Divides the parts into chunks; no chunk is in two parts. False after an error. */
static bool tree_cut_chunks(eg_ranks_tree *t, const eg_ranks_tree_args *o)
{
    for (int k = 0; k < o->parts; k++) t->chunks += (o->counts[k] + o->chunk - 1) / o->chunk;
    t->start = eg_owner_alloc(t->owner, (size_t)(t->chunks + 1) * sizeof *t->start);
    t->part = eg_owner_alloc(t->owner, (size_t)(o->parts + 1) * sizeof *t->part);
    if (!t->start || !t->part) return false;
    int64_t c = 0, at = 0;
    for (int k = 0; k < o->parts; k++) {
        t->part[k] = c;
        for (int64_t left = o->counts[k]; left > 0; left -= o->chunk) {
            t->start[c++] = at;
            at += left < o->chunk ? left : o->chunk;
        }
    }
    t->part[o->parts] = c;
    t->start[c] = at;
    return true;
}

/* Finds the largest subtrees and the range of every rank. False after an error. */
static bool tree_divide_leaves(eg_ranks_tree *t)
{
    const int ranks = t->ranks->table.ranks, me = t->ranks->table.rank;
    const size_t most = (size_t)ranks * (t->leaves < SUBTREES ? (size_t)t->leaves : SUBTREES);
    t->range = eg_owner_alloc(t->owner, (size_t)ranks * sizeof *t->range);
    t->first = eg_owner_alloc(t->owner, (size_t)(ranks + 1) * sizeof *t->first);
    t->node = eg_owner_alloc(t->owner, (most + 1) * sizeof *t->node);
    t->at = eg_owner_alloc(t->owner, (most + 1) * sizeof *t->at);
    if (!t->range || !t->first || !t->node || !t->at) return false;
    int n = 0;
    for (int r = 0; r < ranks; r++) {
        const eg_span own = leaves_of(t->leaves, r, ranks);
        t->first[r] = n;
        for (int64_t a = own.from; a < own.to; a = t->node[n - 1].to)
            t->node[n++] = largest_node(t->leaves, a, own.to);
    }
    t->first[ranks] = n;
    t->halves = power_of_two(ranks);
    t->halving = t->halves && power_of_two(t->leaves) && ranks <= t->leaves;
    while (t->halves && 1 << t->steps < ranks) t->steps++;
    for (int r = 0; r < ranks; r++) t->range[r] = range_of(t, r);
    t->kept[0] = (eg_span){ 0, t->chunks };
    for (int s = 0; s < t->steps; s++) t->kept[s + 1] = tree_half_of(t, t->kept[s], me, s, false);
    const size_t each = bytes_in(t, t->range[me]);
    const size_t bytes = t->halving ? (t->steps ? bytes_in(t, t->kept[1]) : 0)
                                    : each * (size_t)(n - (t->first[me + 1] - t->first[me]));
    t->incoming = eg_owner_alloc(t->owner, bytes + 1);
    return t->incoming != NULL;
}

/* The tree and its arrays are in an owner, which eg_ranks_tree_close closes. */
eg_ranks_tree *eg_ranks_tree_open_with(const eg_ranks_tree_args *given)
{
    eg_ranks_tree_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg_ctx *cx = eg_ranks_context(o.ranks);
    if (!cx || eg_error(cx)) return NULL;
    if (!o.dtype) o.dtype = EG_F32;
    if (!o.chunk) o.chunk = EG_RANKS_CHUNK;
    if (tree_refused(cx, &o)) return NULL;
    eg_owner *owner = eg__owner_open_pooled(cx);
    eg_ranks_tree *t = owner ? eg_owner_alloc(owner, sizeof *t) : NULL;
    if (t)
        *t = (eg_ranks_tree){ .ranks = o.ranks,
                              .owner = owner,
                              .width = o.dtype == EG_F64 ? sizeof(double) : sizeof(float),
                              .leaves = o.leaves,
                              .parts = o.parts };
    if (t && tree_cut_chunks(t, &o) && tree_divide_leaves(t)) return t;
    eg_owner_close(owner);
    return NULL;
}
void eg_ranks_tree_close(eg_ranks_tree *t)
{
    if (t) eg_owner_close(t->owner);
}

/* -- adding ----------------------------------------------------------------------------------- */
static void tree_add(const eg_ranks_tree *t, int64_t n, void *x, const void *y)
{
    /* in the context's floating-point mode, as the additions of operations */
    const uint64_t begun = eg_flush_begin(t->ranks->cx);
    if (t->width == sizeof(double))
        eg__ranks_add_f64(n, x, y);
    else
        eg__ranks_add_f32(n, x, y);
    eg_flush_end(begun);
}
/* In step s the rank exchanges halves with rank ^ 2^s and adds the half that it keeps. */
static int sum_by_halving(eg_ranks_tree *t, char *x)
{
    const int me = t->ranks->table.rank;
    for (int s = 0; s < t->steps; s++) {
        const eg_span keep = t->kept[s + 1], send = tree_half_of(t, t->kept[s], me, s, true);
        const int other = me ^ 1 << s;
        const bool there = s == 0 && t->received; /* pieces.c has exchanged this step */
        if (!there && eg_ranks_exchange(t->ranks, other, x + byte_at(t, send.from),
                                        bytes_in(t, send), other, t->incoming, bytes_in(t, keep)))
            return -1;
        t->received = false;
        tree_add(t, numbers_in(t, keep), x + byte_at(t, keep.from), t->incoming);
    }
    return 0;
}

/* Adds nodes [from, to), which together are all leaves of one node, in one chunk. Writes the sum to
 * the first of them and returns its address. */
static char *sum_nodes(const eg_ranks_tree *t, int from, int to, size_t at, int64_t n)
{
    char *x = t->at[from] + at;
    if (to - from == 1) return x;
    const eg_span all = { t->node[from].from, t->node[to - 1].to };
    const int64_t middle = eg_ranks_tree_middle(all);
    int cut = from + 1;
    while (t->node[cut].from < middle) cut++;
    sum_nodes(t, from, cut, at, n);
    tree_add(t, n, x, sum_nodes(t, cut, to, at, n));
    return x;
}
/* Sends each subtree to the owners of its ranges, and adds all that are received. Returns 0; −1
 * after an error. */
static int sum_of_subtrees(eg_ranks_tree *t, void *const *subtree, char *sum)
{
    const int me = t->ranks->table.rank, ranks = t->ranks->table.ranks;
    const eg_span own = t->range[me];
    const size_t each = bytes_in(t, own), begin = byte_at(t, own.from);
    char *incoming = t->incoming;
    for (int k = 0; k < t->first[me + 1] - t->first[me]; k++)
        t->at[t->first[me] + k] = (char *)subtree[k] + begin;
    for (int d = 1; d < ranks; d++) {
        const int to = (me + d) % ranks, from = (me - d + ranks) % ranks;
        const int mine = t->first[me + 1] - t->first[me], n = t->first[from + 1] - t->first[from];
        const size_t part = bytes_in(t, t->range[to]);
        for (int k = 0; k < mine || k < n; k++) {
            const bool sends = k < mine, takes = k < n;
            if (eg_ranks_exchange(t->ranks, sends ? to : -1,
                                  sends ? (char *)subtree[k] + byte_at(t, t->range[to].from) : NULL,
                                  sends ? part : 0, takes ? from : -1, incoming, takes ? each : 0))
                return -1;
            if (!takes) continue;
            t->at[t->first[from] + k] = incoming;
            incoming += each;
        }
    }
    const int nodes = t->first[ranks];
    for (int64_t c = own.from; c < own.to; c++) {
        const size_t at = byte_at(t, c) - begin;
        const int64_t n = t->start[c + 1] - t->start[c];
        memmove(sum + begin + at, sum_nodes(t, 0, nodes, at, n), (size_t)n * t->width);
    }
    return 0;
}
int eg_ranks_tree_sum(eg_ranks_tree *t, void *const *subtree, void *sum)
{
    if (!t || eg_error(t->ranks->cx)) return -1;
    if (!t->leaves) {
        eg_fail_as(t->ranks->cx, EG_ERROR_MISUSE, "ranks: a tree without leaves has no sum");
        return -1;
    }
    for (int k = 0; k < eg_ranks_tree_subtrees(t); k++)
        if (!subtree || !subtree[k]) return eg__ranks_null(t->ranks, "sum", "a subtree is");
    if (!sum) return eg__ranks_null(t->ranks, "sum", "the sum is");
    if (!t->halving) return sum_of_subtrees(t, subtree, sum);
    if (sum_by_halving(t, subtree[0])) return -1;
    const eg_span own = eg_ranks_tree_range(t);
    const size_t at = byte_at(t, own.from);
    memmove((char *)sum + at, (char *)subtree[0] + at, bytes_in(t, own));
    return 0;
}

/* -- gathering -------------------------------------------------------------------------------- */
/* Completes x, of which each rank has its range, on all ranks; `at` returns the offset of a chunk
 * in bytes. Returns 0; −1 after an error. */
static int gather_ranges(eg_ranks_tree *t, char *x, size_t (*at)(const eg_ranks_tree *, int64_t))
{
    const int me = t->ranks->table.rank, ranks = t->ranks->table.ranks;
    const int rounds = t->halves ? t->steps : ranks - 1;
    for (int k = 0; k < rounds; k++) {
        const int s = t->steps - 1 - k; /* with halving, the steps in reverse */
        const int to = t->halves ? me ^ 1 << s : (me + k + 1) % ranks,
                  from = t->halves ? to : (me - k - 1 + ranks) % ranks;
        const eg_span have = t->halves ? t->kept[s + 1] : t->range[me],
                      take = t->halves ? tree_half_of(t, t->kept[s], me, s, true) : t->range[from];
        if (eg_ranks_exchange(t->ranks, to, x + at(t, have.from), at(t, have.to) - at(t, have.from),
                              from, x + at(t, take.from), at(t, take.to) - at(t, take.from)))
            return -1;
    }
    return 0;
}
int eg_ranks_tree_gather(eg_ranks_tree *t, void *values)
{
    if (!t || eg_error(t->ranks->cx)) return -1;
    return values ? gather_ranges(t, values, byte_at)
                  : eg__ranks_null(t->ranks, "gather", "the values are");
}

/* -- statistics ------------------------------------------------------------------------------- */
static size_t statistic_at(const eg_ranks_tree *t, int64_t chunk)
{
    (void)t;
    return (size_t)chunk * sizeof(double);
}
int eg_ranks_tree_statistics(eg_ranks_tree *t, double *value)
{
    if (!t || eg_error(t->ranks->cx)) return -1;
    return value ? gather_ranges(t, (char *)value, statistic_at)
                 : eg__ranks_null(t->ranks, "statistics", "the values are");
}
double eg_ranks_tree_total(const double *values, eg_span of)
{
    if (!values || of.from >= of.to) return 0;
    if (of.to - of.from == 1) return values[of.from];
    const int64_t middle = eg_ranks_tree_middle(of);
    return eg_ranks_tree_total(values, (eg_span){ of.from, middle }) +
           eg_ranks_tree_total(values, (eg_span){ middle, of.to });
}
eg_span eg_ranks_tree_part(const eg_ranks_tree *t, int part)
{
    return t && part >= 0 && part < t->parts ? (eg_span){ t->part[part], t->part[part + 1] }
                                             : (eg_span){ 0 };
}
/* Each rank computes Σ x² for the chunks that it owns; all get all of them. An infinite or
 * undefined one is an error that names its owner. */
int eg_ranks_tree_squares(eg_ranks_tree *t, const void *x, double *square)
{
    if (!t || eg_error(t->ranks->cx)) return -1;
    const eg_span own = eg_ranks_tree_range(t);
    if (!x || !square)
        return eg__ranks_null(t->ranks, "squares", x ? "the results are" : "the numbers are");
    for (int64_t c = own.from; c < own.to; c++) {
        const int64_t n = t->start[c + 1] - t->start[c];
        square[c] = t->width == sizeof(double)
                        ? eg__ranks_squares_f64(n, (const double *)x + t->start[c])
                        : eg__ranks_squares_f32(n, (const float *)x + t->start[c]);
    }
    if (eg_ranks_tree_statistics(t, square)) return -1;
    for (int64_t c = 0; c < t->chunks; c++)
        if (!isfinite(square[c])) {
            int owner = 0, part = 0;
            while (c < t->range[owner].from || c >= t->range[owner].to) owner++;
            while (c >= t->part[part + 1]) part++;
            /* all ranks have the same statistics, and hence the same error */
            eg_fail_as(t->ranks->cx, EG_ERROR_MISUSE,
                       "ranks: an element of the sum, or its square, is not finite: in part %d, "
                       "among its elements %lld to %lld, which rank %d owns",
                       part, (long long)(t->start[c] - t->start[t->part[part]]),
                       (long long)(t->start[c + 1] - t->start[t->part[part]] - 1), owner);
            eg__ranks_agreed(t->ranks);
            return -1;
        }
    return 0;
}

/* -- prediction ------------------------------------------------------------------------------- */
eg_ranks_tree_bytes eg_ranks_tree_predict(const eg_ranks_tree *t)
{
    eg_ranks_tree_bytes b = { 0 };
    if (!t) return b;
    const int me = t->ranks->table.rank, ranks = t->ranks->table.ranks;
    const eg_span own = t->range[me];
    const size_t all = byte_at(t, t->chunks), mine = bytes_in(t, own);
    /* a rank sends the ranges that it does not keep */
    b.sum = (t->halving ? 1 : (uint64_t)eg_ranks_tree_subtrees(t)) * (all - mine);
    if (!t->halves) {
        b.gather = (uint64_t)(ranks - 1) * mine;
        b.statistics = (uint64_t)(ranks - 1) * (uint64_t)(own.to - own.from) * sizeof(double);
    }
    for (int s = t->halves ? t->steps : 0; s > 0; s--) { /* ranges double in each step */
        b.gather += bytes_in(t, t->kept[s]);
        b.statistics += (uint64_t)(t->kept[s].to - t->kept[s].from) * sizeof(double);
    }
    return b;
}
