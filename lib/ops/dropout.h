/* dropout.h: which elements a draw drops. */
#ifndef EG_DROPOUT_H
#define EG_DROPOUT_H
#include "impl.h"

typedef struct eg_drop { uint64_t seed, draw, below; double factor; } eg_drop;  /* an element goes if its 32 bits are < below    */
bool eg__drop_draw(eg_ctx *, double p, eg_drop *);      /* a new draw; false, and none is drawn, where dropout is the identity */
void eg__drop_stays(const eg_drop *, uint64_t first, int64_t n, uint8_t *stay);  /* of the logical indices first … first + n   */
eg_tensor *eg__drop(const eg_drop *, eg_tensor *x);     /* x m factor                                                        */
#endif
