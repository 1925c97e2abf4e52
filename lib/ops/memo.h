/* memo.h: the cotangents of all operands, where a rule finds them together: kept beside the node until the sweep has asked for each.
 * Good while the same scope is open, the cotangent is the same tensor with the same numbers, as much is recorded, and nobody has written
 * into what is kept. */
#ifndef EG_MEMO_H
#define EG_MEMO_H
#include "core/context.h"

enum { EG_MEMO = 12 };
typedef struct eg_memo {
    uint64_t scope, seq, version, written;
    bool recorded;
    const eg_tensor *g;                 /* NULL: nothing is kept                */
    eg_tensor *d[EG_MEMO];              /* NULL: none of this operand           */
} eg_memo;

static inline uint64_t eg__memo_versions(const eg_memo *m)      /* versions only grow */
{
    uint64_t sum = 0;
    for (int k = 0; k < EG_MEMO; k++) if (m->d[k]) sum += m->d[k]->st->version;
    return sum;
}
static inline eg_memo *eg__memo(eg_ctx *cx)                     /* an empty one in the open scope; NULL after "out of memory" */
{
    eg_memo *m = eg__alloc(cx, sizeof *m);
    if (m) *m = (eg_memo){ .g = NULL };
    return m;
}
static inline bool eg__remembered(const eg_memo *m, const eg_tensor *g)
{
    const eg_ctx *cx = g->cx;
    return m->g == g && m->seq == g->seq && m->version == g->st->version && m->scope == cx->top->serial && m->recorded == cx->recording &&
           m->written == eg__memo_versions(m);
}
static inline void eg__remember(eg_memo *m, const eg_tensor *g)  /* what m->d holds now belongs to g */
{
    const eg_ctx *cx = g->cx;
    m->g = g;
    m->seq = g->seq;
    m->version = g->st->version;
    m->scope = cx->top->serial;
    m->recorded = cx->recording;
    m->written = eg__memo_versions(m);
}
#endif
