/* plans.c: a context remembers how strings were read and contractions planned. One block of memory
 * in two halves: entries are appended to the newer half; when that is full the older half is
 * emptied and becomes the newer. Without memory nothing is kept. */
#include "einsum/einsum.h"
#include <string.h>

enum { HALF = 256 << 10, HEADS = 256 };
typedef struct entry {
    struct entry *next;
    uint64_t hash;
    _Alignas(16) char value[];
} entry;
typedef struct keyed {
    int words;
    _Alignas(16) uint64_t key[];
} keyed; /* then the value */
typedef struct half {
    size_t used;
    entry *head[HEADS];
} half;
typedef struct cache {
    int newer;
    half half[2];
    _Alignas(64) char room[2][HALF];
} cache;

void eg__key_words(eg_key *k, int n, const int64_t *words)
{
    if (k->n + n > EG_KEY_WORDS) {
        k->fits = false;
        return;
    }
    for (int i = 0; i < n; i++) k->word[k->n + i] = (uint64_t)words[i];
    k->n += n;
}
void eg__key_bytes(eg_key *k, size_t n, const void *bytes)
{
    const size_t words = (n + 7) / 8;
    if (words + 1 > (size_t)(EG_KEY_WORDS - k->n)) {
        k->fits = false;
        return;
    }
    k->word[k->n] = n;
    if (words) {
        k->word[k->n + (int)words] = 0;
        memcpy(&k->word[k->n + 1], bytes, n);
    }
    k->n += 1 + (int)words;
}

static uint64_t key_hash(const eg_key *k)
{
    uint64_t a = 0x9e3779b97f4a7c15, b = 0xc2b2ae3d27d4eb4f; /* two chains, for speed */
    int i = 0;
    for (; i + 1 < k->n; i += 2) {
        a = (a ^ k->word[i]) * 0xff51afd7ed558ccd;
        b = (b ^ k->word[i + 1]) * 0xc4ceb9fe1a85ec53;
        a ^= a >> 32;
        b ^= b >> 32;
    }
    if (i < k->n) a = (a ^ k->word[i]) * 0xff51afd7ed558ccd;
    a = (a ^ b ^ (b << 7)) * 0x9e3779b97f4a7c15;
    return a ^ a >> 29;
}
static void *value_of(keyed *e) { return e->key + (e->words + 1) / 2 * 2; }
static bool same_key(const void *kept, const void *wanted)
{
    const keyed *e = kept;
    const eg_key *k = wanted;
    return e->words == k->n && memcmp(e->key, k->word, (size_t)k->n * sizeof *k->word) == 0;
}
const void *eg__cache_find(eg_ctx *cx, const eg_key *k)
{
    void *e = k->fits ? eg__cache_match(cx, key_hash(k), same_key, k) : NULL;
    return e ? value_of(e) : NULL;
}
void *eg__cache_add(eg_ctx *cx, const eg_key *k, size_t bytes)
{
    keyed *e = k->fits && bytes <= HALF
                   ? eg__cache_put(cx, key_hash(k), sizeof *e + (size_t)(k->n + 1) / 2 * 16 + bytes)
                   : NULL;
    if (!e) return NULL;
    e->words = k->n;
    memcpy(e->key, k->word, (size_t)k->n * sizeof *k->word);
    return value_of(e);
}

void *eg__cache_match(eg_ctx *cx, uint64_t hash, bool (*same)(const void *kept, const void *wanted),
                      const void *wanted)
{
    cache *c = cx->plan_cache;
    if (!c) return NULL;
    for (int turn = 0; turn < 2; turn++)
        for (entry *e = c->half[c->newer ^ turn].head[hash % HEADS]; e; e = e->next)
            if (e->hash == hash && same(e->value, wanted)) return e->value;
    return NULL;
}
void *eg__cache_put(eg_ctx *cx, uint64_t hash, size_t bytes)
{
    cache *c = cx->plan_cache;
    if (!c && (c = eg__plan_cache_room(cx, sizeof *c))) {
        c->newer = 0;
        memset(c->half, 0, sizeof c->half);
    }
    if (!c || bytes > HALF - sizeof(entry)) return NULL;
    const size_t all = (sizeof(entry) + bytes + 63) / 64 * 64;
    half *h = &c->half[c->newer];
    if (all > HALF - h->used) {
        c->newer ^= 1;
        h = &c->half[c->newer];
        memset(h, 0, sizeof *h);
    }
    entry *e = (entry *)(void *)(c->room[c->newer] + h->used);
    h->used += all;
    e->hash = hash;
    e->next = h->head[hash % HEADS];
    h->head[hash % HEADS] = e;
    return e->value;
}

/* call.c: what was called before. A call is found by what is written (a string, or labels) and the
 * operands as they are: no parsing, no binding, no planning, and the checks of types and sizes are
 * the comparison with those that passed. */

static int64_t head_of(const eg_tensor *x) { return x->rank | (int64_t)x->dtype << 8; }

/* Σ (size + p)(stride + q) with other p, q for every axis: NH (Black et al. 1999, UMAC), whose
 * products do not wait for each other. */
static uint64_t call_hash_of(const eg_call_key *w)
{
    uint64_t text[2] = { 0, 0 }, p = 0x9e3779b97f4a7c15, q = 0xc2b2ae3d27d4eb4f;
    if (w->length >= 8) {
        memcpy(&text[0], w->text, 8);
        memcpy(&text[1], (const char *)w->text + w->length - 8, 8);
    } else
        memcpy(text, w->text, w->length);
    uint64_t h =
        (text[0] + p) * (text[1] + w->length + q) + (uint64_t)(w->written + 256 * w->count) * q;
    for (int k = 0; k < w->count; k++) {
        const eg_tensor *x = w->x[k];
        h += (uint64_t)head_of(x) * (p += 0xff51afd7ed558ccd);
        for (int r = 0; r < x->rank; r++) {
            p = (p << 23 | p >> 41) + 0x9e3779b97f4a7c15;
            q = (q << 29 | q >> 35) + 0xd6e8feb86659fd93;
            h += ((uint64_t)x->dim[r] + p) * ((uint64_t)x->stride[r] + q);
        }
    }
    h = (h ^ h >> 32) * 0xc4ceb9fe1a85ec53;
    return h ^ h >> 29;
}
static bool call_same(const void *kept, const void *wanted)
{
    const eg_call *c = kept;
    const eg_call_key *w = wanted;
    if (c->what.written != w->written || c->what.count != w->count || c->what.length != w->length ||
        memcmp(c->what.text, w->text, w->length))
        return false;
    const int64_t *shape = c->shapes;
    for (int k = 0; k < w->count; k++) {
        const eg_tensor *x = w->x[k];
        if (*shape++ != head_of(x)) return false;
        int64_t other = 0;
        for (int r = 0; r < x->rank; r++, shape += 2)
            other |= (shape[0] ^ x->dim[r]) | (shape[1] ^ x->stride[r]);
        if (other) return false;
    }
    return true;
}
const eg_call *eg__call_find(eg_ctx *cx, const eg_call_key *w)
{
    return eg__cache_match(cx, call_hash_of(w), call_same, w);
}

static size_t plans_up(size_t n) { return (n + 15) / 16 * 16; }
eg_call *eg__call_new(eg_ctx *cx, const eg_call_key *w, const eg_labelled *out, size_t attr_size,
                      void **attr, size_t program_bytes, void **program)
{
    size_t words = 2 * (size_t)out->rank;
    for (int k = 0; k < w->count; k++) words += 1 + 2 * (size_t)w->x[k]->rank;
    const size_t at_attr = plans_up(sizeof(eg_call) + words * sizeof(int64_t)),
                 at_text = at_attr + attr_size;
    const size_t at_program = plans_up(at_text + w->length);
    char *room = eg__cache_put(cx, call_hash_of(w), at_program + program_bytes);
    if (!room && !(room = eg__alloc(cx, at_program + program_bytes))) return NULL;
    eg_call *c = (eg_call *)(void *)room;
    int64_t *at = (int64_t *)(void *)(c + 1);
    *c = (eg_call){ .what = *w,
                    .rank = out->rank,
                    .dim = at,
                    .stride = at + out->rank,
                    .shapes = at + 2 * out->rank,
                    .attr_size = attr_size };
    for (int r = 0; r < out->rank; r++) *at++ = out->dim[r];
    for (int r = 0; r < out->rank; r++) *at++ = out->stride[r];
    for (int k = 0; k < w->count; k++) {
        *at++ = head_of(w->x[k]);
        for (int r = 0; r < w->x[k]->rank; r++) {
            *at++ = w->x[k]->dim[r];
            *at++ = w->x[k]->stride[r];
        }
    }
    c->what.text = memcpy(room + at_text, w->text, w->length);
    c->what.x = NULL;
    *attr = room + at_attr;
    *program = room + at_program;
    return c;
}
