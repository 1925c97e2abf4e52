/* call.c: what was called before. A call is found by what is written (a string, or labels) and the operands as they are: no parsing, no
 * binding, no planning, and the checks of types and sizes are the comparison with those that passed. */
#include "einsum/call.h"
#include <string.h>

static int64_t head_of(const eg_tensor *x) { return x->rank | (int64_t)x->dtype << 8; }

/* Σ (size + p)(stride + q) with other p, q for every axis: NH (Black et al. 1999, UMAC), whose products do not wait for each other. */
static uint64_t hash_of(const eg_wanted *w)
{
    uint64_t text[2] = { 0, 0 }, p = 0x9e3779b97f4a7c15, q = 0xc2b2ae3d27d4eb4f;
    if (w->length >= 8) {
        memcpy(&text[0], w->text, 8);
        memcpy(&text[1], (const char *)w->text + w->length - 8, 8);
    } else memcpy(text, w->text, w->length);
    uint64_t h = (text[0] + p) * (text[1] + w->length + q) + (uint64_t)(w->written + 256 * w->count) * q;
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
static bool same(const void *kept, const void *wanted)
{
    const eg_call *c = kept;
    const eg_wanted *w = wanted;
    if (c->what.written != w->written || c->what.count != w->count || c->what.length != w->length ||
        memcmp(c->what.text, w->text, w->length))
        return false;
    const int64_t *shape = c->shapes;
    for (int k = 0; k < w->count; k++) {
        const eg_tensor *x = w->x[k];
        if (*shape++ != head_of(x)) return false;
        int64_t other = 0;
        for (int r = 0; r < x->rank; r++, shape += 2) other |= (shape[0] ^ x->dim[r]) | (shape[1] ^ x->stride[r]);
        if (other) return false;
    }
    return true;
}
const eg_call *eg__call_find(eg_ctx *cx, const eg_wanted *w) { return eg__cache_match(cx, hash_of(w), same, w); }

static size_t up(size_t n) { return (n + 15) / 16 * 16; }
eg_call *eg__call_new(eg_ctx *cx, const eg_wanted *w, const eg_labelled *out, size_t attr_size, void **attr, size_t program_bytes,
                      void **program)
{
    size_t words = 2 * (size_t)out->rank;
    for (int k = 0; k < w->count; k++) words += 1 + 2 * (size_t)w->x[k]->rank;
    const size_t at_attr = up(sizeof(eg_call) + words * sizeof(int64_t)), at_text = at_attr + attr_size;
    const size_t at_program = up(at_text + w->length);
    char *room = eg__cache_put(cx, hash_of(w), at_program + program_bytes);
    if (!room && !(room = eg__alloc(cx, at_program + program_bytes))) return NULL;
    eg_call *c = (eg_call *)(void *)room;
    int64_t *at = (int64_t *)(void *)(c + 1);
    *c = (eg_call){ .what = *w, .rank = out->rank, .dim = at, .stride = at + out->rank, .shapes = at + 2 * out->rank,
                    .attr_size = attr_size };
    for (int r = 0; r < out->rank; r++) *at++ = out->dim[r];
    for (int r = 0; r < out->rank; r++) *at++ = out->stride[r];
    for (int k = 0; k < w->count; k++) {
        *at++ = head_of(w->x[k]);
        for (int r = 0; r < w->x[k]->rank; r++) { *at++ = w->x[k]->dim[r]; *at++ = w->x[k]->stride[r]; }
    }
    c->what.text = memcpy(room + at_text, w->text, w->length);
    c->what.x = NULL;
    *attr = room + at_attr;
    *program = room + at_program;
    return c;
}
