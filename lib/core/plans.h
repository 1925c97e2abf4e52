/* plans.h: the cache of plans (plans.c), which other folders look up by key. */
#ifndef EG_PLANS_H
#define EG_PLANS_H
#include "core/core.h"

/* Which kind of call a key belongs to, and what its text consists of. */
typedef enum eg_key_kind {
    EG_KEY_SPEC,       /* einsum: its string */
    EG_KEY_SPEC_ONES,  /* einsum with .broadcast: its string */
    EG_KEY_AFFINE,     /* affine: its string */
    EG_KEY_ATTENTION,  /* attention: its strings and options */
    EG_KEY_EXPRESSION, /* a predicate or formula: its text, its letters, and the names of .with */
    EG_KEY_FORMULA,    /* an eg_formula: what it was made from */
    EG_KEY_READ,       /* a parsed string: eg__labels_of_spec … */
    EG_KEY_READ_ONES,  /* a parsed string with .broadcast */
    EG_KEY_STACK,      /* stack: its string */
    /* EG_KEY_BOUND + flags below 32: a bound string, with the sizes that were given in addition */
    EG_KEY_BOUND,
    EG_KEY_BOUND_END = EG_KEY_BOUND + 31,
    /* an eg_program: labels of operands and result, and the order; the last operand of the key has
     * the result's shape */
    EG_KEY_PROGRAM,
    EG_KEY_LABELS,  /* an einsum by labels: the labels of operands and result */
    EG_KEY_ORDERED, /* an einsum by labels with limits or an order */
    /* an eg_tree: an einsum by labels or the number of its tree, and which cotangents are
     * computed */
    EG_KEY_TREE,
    /* all products of a backward pass (einsum/pass.c): the number of a tree and which cotangents
     * are computed; the operand is the cotangent of the result */
    EG_KEY_PASS,
    EG_KEY_COTANGENT /* EG_KEY_COTANGENT + i: the cotangent of operand i of an einsum by labels */
} eg_key_kind;
typedef struct eg_plan_key {
    int kind, count;
    size_t length; /* bytes of text */
    const void *text;
    eg_tensor *const *x; /* `count` operands: their dtypes, sizes and strides are part of the key */
} eg_plan_key;
/* A text that is composed of several parts. If it does not fit, `fits` becomes false, and the call
 * has no key. */
typedef struct eg_key_text {
    size_t length;
    bool fits;
    char text[1024];
} eg_key_text;
void eg__key_put(eg_key_text *, size_t bytes, const void *);

/* Returns the entry that was added under a key; NULL if there is none. The pointer is valid until
 * the next eg__plans_add, which may evict the entry; any operation may call that. */
const void *eg__plans_find(eg_ctx *, const eg_plan_key *);
/* Adds an entry and returns memory for its content, aligned to 16 bytes. NULL (no error) if it is
 * too large or if there is no memory. */
void *eg__plans_add(eg_ctx *, const eg_plan_key *, size_t bytes);
#endif
