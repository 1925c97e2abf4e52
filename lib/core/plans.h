/* plans.h: the memory of calls (plans.c), by key: how strings were read and bound, how contractions
 * are done, the plans of calls. */
#ifndef EG_PLANS_H
#define EG_PLANS_H
#include "core/core.h"

/* What the text of a key is made of. */
typedef enum eg_key_kind {
    EG_KEY_SPEC,       /* a call of einsum: its string … */
    EG_KEY_SPEC_ONES,  /* … with .broadcast */
    EG_KEY_AFFINE,     /* a call of affine: its string */
    EG_KEY_ATTENTION,  /* a call of attention: its strings and options */
    EG_KEY_EXPRESSION, /* a predicate or formula: its text, letters, and the names of .with */
    EG_KEY_FORMULA,    /* an eg_formula: what it was made from */
    EG_KEY_READ,       /* a string read: eg__labels_of_spec … */
    EG_KEY_READ_ONES,  /* … with .broadcast */
    EG_KEY_STACK,      /* a string of stack */
    EG_KEY_BOUND,      /* + flags below 32: a string bound, and the sizes given beside it */
    EG_KEY_BOUND_END = EG_KEY_BOUND + 31,
    EG_KEY_PROGRAM,  /* labels of operands and result, order: an eg_program; the last operand
                      * stands for the result */
    EG_KEY_LABELS,   /* an einsum by labels: those of operands and result … */
    EG_KEY_ORDERED,  /* … with limits or an order */
    EG_KEY_TREE,     /* an einsum by labels, or the number of its tree, and which cotangents are
                      * wanted: an eg_tree */
    EG_KEY_PASS,     /* the number of a tree and which cotangents are wanted; the operand is the
                      * cotangent of the result: all products (einsum/pass.c) */
    EG_KEY_COTANGENT /* + i: the cotangent of operand i of an einsum by labels */
} eg_key_kind;
typedef struct eg_plan_key {
    int kind, count;
    size_t length; /* bytes of text */
    const void *text;
    eg_tensor *const *x; /* count operands: their dtypes, sizes and strides */
} eg_plan_key;
/* A text that is put together piece by piece. If it does not fit, `fits` becomes false, and the
 * call has no key. */
typedef struct eg_key_text {
    size_t length;
    bool fits;
    char text[1024];
} eg_key_text;
void eg__key_put(eg_key_text *, size_t bytes, const void *);

/* Returns the entry that was added under a key; NULL if there is none. The pointer is valid until
 * the next eg__plans_add, which can evict the entry; any operation that you call may do that. */
const void *eg__plans_find(eg_ctx *, const eg_plan_key *);
/* Adds an entry and returns room for its content, aligned to 16 bytes. NULL (no error) if it is too
 * large, or without memory. */
void *eg__plans_add(eg_ctx *, const eg_plan_key *, size_t bytes);
#endif
