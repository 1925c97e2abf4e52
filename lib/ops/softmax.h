/* softmax.h: masks by letters, shared by softmax and attention. */
#ifndef EG_SOFTMAX_H
#define EG_SOFTMAX_H
#include "ops/rows.h"

/* Scores over axis[0 … rank), axes of the bound string, the last `inner` of them those of the softmax. */
typedef struct eg_masking {
    const eg_bound *bound;
    int rank, inner;
    const uint16_t *axis;
    const char *where;                  /* NULL: none                                                        */
    int keep, bias;                     /* terms of the bound string; −1: none                               */
    int64_t offset;
} eg_masking;
eg_tensor *eg__softmax_masked(const eg_masking *, eg_tensor *scores, bool log);
/* A string with the letters of the masks as further terms: "b h i [j]" → "b h i [j],bj,hij", before its arrow. Appends to xs, sets
 * the terms; NULL after a message. */
const char *eg__masks_spec(eg_ctx *, const char *who, const char *spec, const eg_masked *keep, const eg_masked *bias, const char *names,
                           eg_tensor **xs, int *n, int *keep_term, int *bias_term);
#endif
