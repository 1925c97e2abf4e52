/* choose_form.c: the choice between the fused and the unfused form, by sizes and by the letters of
 * the predicate, and the keys that the form reads. */
#include "attention/attention.h"
#include <string.h>

/* FUSED_LENGTH: with fewer queries or keys the weights fit into the caches, and tiles are mostly
 * padding. RELATED_LENGTH: if the predicate relates queries to keys, as "j <= i" does, so that
 * tiles may be skipped; a predicate of keys alone, as of padding, skips little. MANY_KEYS: with at
 * least this number of keys, bounds of a window of them are computed. WINDOW: tiles of one query
 * take 2 to 5 times the time of the products (8192, 512 keys), so they suit a window of an eighth
 * of them. */
enum { FUSED_LENGTH = 256, RELATED_LENGTH = 128, MANY_KEYS = 1024, WINDOW = 8 };

/* Returns the largest n < size for which bounds show that the predicate forbids every pair of the
 * first n keys (`last`: of the last n keys). Binary search. */
static int64_t keys_forbidden(const eg_expression *e, const eg_box *box, int64_t *low,
                              int64_t *high, int64_t size, bool last)
{
    eg_interval range[EG_NODES_MAX];
    int64_t none = 0, some = size;
    while (some - none > 1) {
        const int64_t n = none + (some - none) / 2;
        *low = last ? size - n : 0, *high = last ? size : n;
        if (eg__expression_cover(e, box, range) == EG_COVER_NONE)
            none = n;
        else
            some = n;
    }
    return none;
}
eg_span eg__attention_key_range(const eg_attention_plan *a)
{
    const eg_expression *e = eg__attention_where(a);
    const int key = a->scores - 1;
    int64_t low[EG_RANK_MAX] = { 0 }, high[EG_RANK_MAX], size[EG_RANK_MAX] = { 0 };
    eg_box box = { .low = low, .high = high, .size = size };
    eg__score_sizes(a, size);
    memcpy(high, size, sizeof high);
    const int64_t keys = size[key];
    if (!e || e->reads || a->inner != 1 || keys < MANY_KEYS) return (eg_span){ 0, keys };
    for (int s = 0; s < key; s++)
        if (!size[s]) return (eg_span){ 0, keys };
    const int64_t before = keys_forbidden(e, &box, low + key, high + key, keys, false),
                  after = keys_forbidden(e, &box, low + key, high + key, keys, true);
    return before + after < keys ? (eg_span){ before, keys - after } : (eg_span){ 0, keys };
}

bool eg__fused_possible(const eg_attention_plan *a, eg_dtype dtype)
{
    eg_fused f;
    eg__fused_open(&f, a, dtype);
    for (int x = 0; x < a->axes; x++)
        if (!a->size[x]) return false;
    return f.ops != NULL;
}
static bool relates_queries_to_keys(const eg_attention_plan *a)
{
    const eg_expression *e = eg__attention_where(a);
    bool query = false, key = false;
    for (int s = 0; e && s < a->scores; s++) {
        const bool reads = e->node[e->root].letters >> s & 1;
        query |= reads && a->part[a->score[s]] == EG_PART_QUERY;
        key |= reads && a->part[a->score[s]] == EG_PART_KEY;
    }
    return query && key;
}
bool eg__fused_suits(const eg_attention_plan *a, eg_dtype dtype)
{
    const int64_t least = relates_queries_to_keys(a) ? RELATED_LENGTH : FUSED_LENGTH;
    int64_t queries = 1, keys = 1;
    for (int x = 0; x < a->axes; x++) {
        if (a->part[x] == EG_PART_QUERY) queries *= a->size[x];
        if (a->part[x] == EG_PART_KEY) keys *= a->size[x];
    }
    const bool window = queries < least && keys >= MANY_KEYS &&
                        WINDOW * (a->key_range.to - a->key_range.from) <= keys;
    return (window || (queries >= least && keys >= least)) && eg__fused_possible(a, dtype);
}

/* True if only v must be tested: without a gradient the fused form multiplies a weight of 0 by v
 * alone, since it replaces the scores of forbidden pairs. A strict predicate that forbids more
 * pairs (eg__attention_be_strict) is needed whichever operand has such elements. */
static bool reads_values_alone(const eg_attention_plan *a)
{
    const eg_expression *e = (const void *)a->expressions;
    return !a->where_bytes || e->strict == e->root;
}
/* The fused form does not read a block of keys that is forbidden to every query; a block that it
 * reads has fewer than EG_FUSED_KEYS keys outside of the range. */
bool eg__attention_reads_nonfinite(const eg_attention_plan *a, eg_tensor *const *x, bool fused)
{
    const eg_span keys = a->key_range;
    eg_tensor *read[EG_ATTENTION_OPERANDS];
    if (!fused || eg__recording(x[EG_TERM_Q]->cx)) return eg__attention_has_nonfinite(a, x, NULL);
    memcpy(read, x, sizeof read);
    if (reads_values_alone(a)) read[EG_TERM_Q] = read[EG_TERM_K] = NULL;
    const bool all = keys.to - keys.from == a->size[a->score[a->scores - 1]];
    for (int t = EG_TERM_K; t <= EG_TERM_V && !all; t++)
        for (int k = 0; k < a->rank[t] && read[t]; k++)
            if (a->part[a->label[t][k]] == EG_PART_KEY)
                read[t] = eg_slice_axis(x[t], k,
                                        keys.from > EG_FUSED_KEYS ? keys.from - EG_FUSED_KEYS : 0,
                                        eg__min64(keys.to + EG_FUSED_KEYS, x[t]->dim[k]), 1);
    return !eg__failed(x[EG_TERM_Q]->cx) && eg__attention_has_nonfinite(a, read, NULL);
}
