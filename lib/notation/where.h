/* where.h: a compiled predicate: postfix steps. where.c makes it, where_value.c evaluates it. */
#ifndef EG_WHERE_H
#define EG_WHERE_H
#include "notation/notation.h"

/* steps of a predicate; values that wait for an operator */
enum { EG_WHERE_STEPS = 256, EG_WHERE_DEPTH = 24 };
typedef enum code {
    NUMBER,
    INDEX,
    SIZE,
    NEG,
    ADD,
    SUB,
    MUL,
    DIV,
    MOD,
    EQ,
    NE,
    LT,
    LE,
    GT,
    GE,
    NOT,
    AND,
    OR
} code;
/* value: a NUMBER; of a SIZE what is added to it (eg__where_lengthen) */
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

/* Where a name stands in the text of a formula: its bytes [name, name + length), and what an edit
 * replaces, [from, to): with its bars if it is a size, |i|. */
typedef struct eg_where_place {
    int name, length, from, to;
    bool size;
} eg_where_place;
/* The same in an eg_formula; index: which of its names. */
typedef struct eg__formula_place {
    int from, to, index;
    bool size;
} eg__formula_place;
/* Reads a formula with any names: *places of them, at most EG_WHERE_STEPS, in order of the text;
 * *truth: it is true or false, not a number. False after recording what cannot be read. */
bool eg__where_scan(eg_ctx *, const char *who, const char *text, eg_where_place *, int *places,
                    bool *truth);

/* a op b of an operator of two operands */
int64_t eg__where_apply(int code, int64_t a, int64_t b);
/* the largest magnitude of any intermediate while every |i| ≤ all */
int64_t eg__where_widest(const eg_predicate *, int64_t all);
#endif
