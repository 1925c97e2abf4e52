/* where.h: a compiled predicate: postfix steps. where.c makes it, where_value.c evaluates it. */
#ifndef EG_WHERE_H
#define EG_WHERE_H
#include "notation/notation.h"

/* steps of a predicate; values that wait for an operator */
enum { EG_WHERE_STEPS = 256, EG_WHERE_DEPTH = 24 };
/* code: an eg_node_code. value: a constant; of a size what is added to it
 * (eg__where_lengthen). */
typedef struct step {
    uint8_t code, axis;
    int64_t value;
} step;
struct eg_predicate {
    int steps;
    unsigned uses, sizes; /* axes that occur as i, as |i|: bit k is axis k */
    int64_t narrow;       /* while all |i| stay below this, every intermediate fits in 32 bits */
    step step[];
};

/* the largest magnitude of any intermediate while every |i| ≤ all */
int64_t eg__where_widest(const eg_predicate *, int64_t all);
#endif
