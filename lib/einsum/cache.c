/* cache.c: a context remembers how strings were read and contractions planned. One block of memory in two halves: entries are
 * appended to the newer half; when that is full the older half is emptied and becomes the newer. Without memory nothing is kept. */
#include "core/context.h"
#include "einsum/program.h"
#include <string.h>

enum { HALF = 256 << 10, HEADS = 256 };
typedef struct entry { struct entry *next; uint64_t hash; _Alignas(16) char value[]; } entry;
typedef struct keyed { int words; _Alignas(16) uint64_t key[]; } keyed;     /* then the value */
typedef struct half { size_t used; entry *head[HEADS]; } half;
typedef struct cache { int newer; half half[2]; _Alignas(64) char room[2][HALF]; } cache;

void eg__key_words(eg_key *k, int n, const int64_t *words)
{
    if (k->n + n > EG_KEY_WORDS) { k->fits = false; return; }
    for (int i = 0; i < n; i++) k->word[k->n + i] = (uint64_t)words[i];
    k->n += n;
}
void eg__key_bytes(eg_key *k, size_t n, const void *bytes)
{
    const size_t words = (n + 7) / 8;
    if (words + 1 > (size_t)(EG_KEY_WORDS - k->n)) { k->fits = false; return; }
    k->word[k->n] = n;
    if (words) {
        k->word[k->n + (int)words] = 0;
        memcpy(&k->word[k->n + 1], bytes, n);
    }
    k->n += 1 + (int)words;
}

static uint64_t hash_of(const eg_key *k)
{
    uint64_t a = 0x9e3779b97f4a7c15, b = 0xc2b2ae3d27d4eb4f;        /* two chains, for speed */
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
    void *e = k->fits ? eg__cache_match(cx, hash_of(k), same_key, k) : NULL;
    return e ? value_of(e) : NULL;
}
void *eg__cache_add(eg_ctx *cx, const eg_key *k, size_t bytes)
{
    keyed *e = k->fits && bytes <= HALF ? eg__cache_put(cx, hash_of(k), sizeof *e + (size_t)(k->n + 1) / 2 * 16 + bytes) : NULL;
    if (!e) return NULL;
    e->words = k->n;
    memcpy(e->key, k->word, (size_t)k->n * sizeof *k->word);
    return value_of(e);
}

void *eg__cache_match(eg_ctx *cx, uint64_t hash, bool (*same)(const void *kept, const void *wanted), const void *wanted)
{
    cache *c = cx->kept;
    if (!c) return NULL;
    for (int turn = 0; turn < 2; turn++)
        for (entry *e = c->half[c->newer ^ turn].head[hash % HEADS]; e; e = e->next)
            if (e->hash == hash && same(e->value, wanted)) return e->value;
    return NULL;
}
void *eg__cache_put(eg_ctx *cx, uint64_t hash, size_t bytes)
{
    cache *c = cx->kept;
    if (!c && (c = eg__keep_block(cx, sizeof *c))) { c->newer = 0; memset(c->half, 0, sizeof c->half); }
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
