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
    bool elsewhere;                     /* the offset moves something besides                                */
} eg_masking;
bool eg__masks_letters(const eg_masking *, int term, const char *which);  /* false after a message: a letter that the scores lack */
bool eg__masks_fit(const eg_masking *, eg_dtype scores);        /* false after a message: letters or types that do not fit   */
/* false after a message; moved: the place in axis that .offset moves, −1: none */
bool eg__masks_where(const eg_masking *, const eg_predicate **where, int *moved);
/* bool; NULL after a message */
eg_tensor *eg__where_tensor(eg_ctx *, const eg_predicate *, int rank, const int64_t *size, int moved, int64_t offset);
/* of scale x[0], 0 where one of x[1] … x[masks] is false; scale > 0 */
eg_tensor *eg__softmax_kept(eg_tensor *const *x, int masks, int inner, double scale);
/* A string with the letters of the masks as further terms: "b h i [j]" → "b h i [j],bj,hij", before its arrow, and at last those of
 * `names` if it is not NULL. Appends to xs, sets the terms (−1: no such mask); NULL after a message. */
typedef struct eg_mask_option { const char *option; eg_masked mask; int term; } eg_mask_option;
/* called: the operands' names in messages; those of the masks are filled in */
const char *eg__masks_spec(eg_ctx *, const char *who, const char *spec, int count, eg_mask_option *, const char *names, eg_tensor **xs,
                           const char **called, int *n);
#endif
