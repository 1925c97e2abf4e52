/* plans.c: a cache of what calls computed from strings and shapes: parsed and bound strings, plans
 * of contractions, and the plans of calls of einsum, affine and attention.
 *
 * An entry is found by a key: a text, and the dtypes, sizes and strides of operands. A call with
 * the key of an earlier one is not parsed, bound, checked or planned again, since operands with
 * this key passed the checks before.
 *
 * The memory is one block in two halves. Entries are appended to the newer half; when it is full,
 * the older half is emptied and becomes the newer. If the block cannot be allocated, nothing is
 * cached. */
#include "core/plans.h"
#include <string.h>

enum { HALF = 384 << 10, HEADS = 256, RECENT = 64 };
typedef struct entry {
    struct entry *next;
    uint64_t hash;
    int kind, count;
    size_t length; /* bytes of the text */
    const char *text;
    void *value;
    /* for each operand its dtype and rank, then the size and stride of each axis */
    int64_t shapes[];
} entry;
typedef struct half {
    size_t used;
    entry *head[HEADS];
} half;
typedef struct cache {
    int newer;
    half half[2];
    /* index: a hash of the text's address; the entry that was found last for that text; NULL:
     * none */
    entry *recent[RECENT];
    _Alignas(64) char memory[2][HALF];
} cache;

void eg__key_put(eg_key_text *t, size_t n, const void *bytes)
{
    if (n > sizeof t->text - t->length) {
        t->fits = false;
        return;
    }
    if (n) memcpy(t->text + t->length, bytes, n);
    t->length += n;
}

static int64_t dtype_and_rank(const eg_tensor *x) { return x->rank | (int64_t)x->dtype << 8; }

/* Σ (u + p)(v + q) over pairs (u, v) of 64-bit words, with other p and q for each pair: the hash NH
 * (Black et al. 1999, UMAC), whose products are independent of each other. The words are those of
 * the text, then the size and stride of each axis. */
static uint64_t plan_hash(const eg_plan_key *k)
{
    uint64_t text[2] = { 0, 0 }, p = 0x9e3779b97f4a7c15, q = 0xc2b2ae3d27d4eb4f, h = 0;
    const char *t = k->text;
    size_t n = k->length;
    for (; n > 16; n -= 16, t += 16) {
        memcpy(text, t, 16);
        h = (h ^ h >> 32) * p + (text[0] + p) * (text[1] + q);
    }
    if (n >= 8) {
        memcpy(&text[0], t, 8);
        memcpy(&text[1], t + n - 8, 8);
    } else if (n)
        memcpy(text, t, n);
    h += (text[0] + p) * (text[1] + k->length + q) + (uint64_t)(k->kind + 256 * k->count) * q;
    for (int i = 0; i < k->count; i++) {
        const eg_tensor *x = k->x[i];
        h += (uint64_t)dtype_and_rank(x) * (p += 0xff51afd7ed558ccd);
        for (int r = 0; r < x->rank; r++) {
            p = (p << 23 | p >> 41) + 0x9e3779b97f4a7c15;
            q = (q << 29 | q >> 35) + 0xd6e8feb86659fd93;
            h += ((uint64_t)x->dim[r] + p) * ((uint64_t)x->stride[r] + q);
        }
    }
    h = (h ^ h >> 32) * 0xc4ceb9fe1a85ec53;
    return h ^ h >> 29;
}
/* True if the entry's text and the dtypes, sizes and strides of its operands are those of the
 * key. */
EG_INLINE bool same_key(const entry *e, const eg_plan_key *k)
{
    if (e->kind != k->kind || e->count != k->count || e->length != k->length ||
        memcmp(e->text, k->text, k->length))
        return false;
    const int64_t *shape = e->shapes;
    for (int i = 0; i < k->count; i++) {
        const eg_tensor *x = k->x[i];
        if (*shape++ != dtype_and_rank(x)) return false;
        int64_t other = 0;
        for (int r = 0; r < x->rank; r++, shape += 2)
            other |= (shape[0] ^ x->dim[r]) | (shape[1] ^ x->stride[r]);
        if (other) return false;
    }
    return true;
}

static __attribute__((noinline)) const void *find_by_hash(cache *c, entry **recent,
                                                          const eg_plan_key *k)
{
    const uint64_t hash = plan_hash(k);
    for (int older = 0; older < 2; older++)
        for (entry *e = c->half[c->newer ^ older].head[hash % HEADS]; e; e = e->next)
            if (e->hash == hash && same_key(e, k)) return (*recent = e)->value;
    return NULL;
}
/* A call in a loop has its text at the same address each time and usually operands of the same
 * shapes, so the entry found last for that address is compared first, without a hash. The key is
 * compared in full, since other text may be at that address by then. */
const void *eg__plans_find(eg_ctx *cx, const eg_plan_key *k)
{
    cache *c = eg__here(cx)->plan_cache;
    if (!c) return NULL;
    const uintptr_t at = (uintptr_t)k->text;
    entry **recent = &c->recent[(at >> 3 ^ at >> 9 ^ (uintptr_t)k->kind) % RECENT];
    return *recent && same_key(*recent, k) ? (*recent)->value : find_by_hash(c, recent, k);
}
/* The entry also contains the key: its text and the shapes of its operands. */
void *eg__plans_add(eg_ctx *cx, const eg_plan_key *k, size_t bytes)
{
    cx = eg__here(cx);
    cache *c = cx->plan_cache;
    if (!c && (c = eg__plan_cache_memory(cx, sizeof *c))) {
        c->newer = 0;
        memset(c->half, 0, sizeof c->half);
        memset(c->recent, 0, sizeof c->recent);
    }
    size_t words = 0;
    for (int i = 0; i < k->count; i++) words += 1 + 2 * (size_t)k->x[i]->rank;
    const size_t at_text = sizeof(entry) + words * sizeof(int64_t),
                 at_value = eg__up16(at_text + k->length);
    if (!c || bytes > HALF || at_value > HALF - bytes) return NULL;
    const size_t all = (at_value + bytes + 63) / 64 * 64;
    half *h = &c->half[c->newer];
    if (all > HALF - h->used) {
        c->newer ^= 1;
        h = &c->half[c->newer];
        memset(h, 0, sizeof *h);
        memset(c->recent, 0, sizeof c->recent);
    }
    char *memory = c->memory[c->newer] + h->used;
    entry *e = (entry *)(void *)memory;
    h->used += all;
    *e = (entry){ .hash = plan_hash(k),
                  .kind = k->kind,
                  .count = k->count,
                  .length = k->length,
                  .text = memcpy(memory + at_text, k->text, k->length),
                  .value = memory + at_value };
    int64_t *shape = e->shapes;
    for (int i = 0; i < k->count; i++) {
        const eg_tensor *x = k->x[i];
        *shape++ = dtype_and_rank(x);
        for (int r = 0; r < x->rank; r++) {
            *shape++ = x->dim[r];
            *shape++ = x->stride[r];
        }
    }
    e->next = h->head[e->hash % HEADS];
    h->head[e->hash % HEADS] = e;
    return e->value;
}
