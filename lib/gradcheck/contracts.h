/* contracts.h: what the files of the contracts share: a row that is asked, what they ask it with,
 * and the contracts that contracts.c lists. */
#ifndef EG_CONTRACTS_H
#define EG_CONTRACTS_H
#include "gradcheck/gradcheck.h"

enum { EG_ASKED_OPERANDS = 16 };

/* The row of node t, applied to copies of t's operands. */
typedef struct eg__asked {
    const eg_tensor *t;
    eg_ctx *cx;
    eg_tensor *x[EG_ASKED_OPERANDS]; /* copies of its operands, row-major, without history */
    eg_tensor *y, *g;                /* the row on these; a random cotangent */
    /* the rule's answers; NULL: none, or the operand is not f64. Only the others are moved. */
    eg_tensor *r[EG_ASKED_OPERANDS];
    char *words; /* what eg__contract says was broken */
    size_t room;
    int operand;
} eg__asked;

/* -- contract_tensors.c ----------------------------------------------------------------------- */
/* Notes in words that the row breaks its promise, and an error of cx behind it, which is forgotten
 * unless it is want of memory. operand −1: the result. Returns false. */
bool eg__breaks(eg__asked *, int operand, const char *words);
/* Returns the elements of a row-major f64 tensor. */
static inline double *eg__contract_numbers(eg_tensor *x) { return (double *)(void *)x->data; }
/* Returns number k of the random numbers ±[.5, 1.5) of this salt. */
double eg__drawn(uint64_t salt, int64_t k);
/* Returns a tensor of these numbers with the shape of like; NULL after an error. */
eg_tensor *eg__contract_noise(const eg_tensor *like, uint64_t salt);
/* Returns a row-major copy of x without history; NULL after an error. */
eg_tensor *eg__leaf_copy(eg_tensor *x);
/* True if no element is NaN or infinite. */
bool eg__all_finite(eg_tensor *);
/* True if a is factor · b, up to this share of its largest element; NULL is zero. */
bool eg__contract_alike(eg_tensor *a, eg_tensor *b, double factor, double share);
/* Returns the row on other operands; NULL if it refuses them or after an error. */
eg_tensor *eg__contract_apply(const eg__asked *, eg_tensor *const *x);
/* Sets *d to the rule's answer for operand i of y, NULL if it has none. False after an error. */
bool eg__contract_ask(eg_tensor *y, eg_tensor *g, int i, eg_tensor **d);

/* -- contract_values.c: each is true if the row keeps the contract or cannot be tested ---- */
/* Asked again, in another order, after other calls, while nothing is recorded. */
bool eg__same_again(eg__asked *);
/* The rule writes neither to g, nor to the result, nor to operands. */
bool eg__writes_nothing(eg__asked *);
/* What .uses says is not read is made NaN before the rule is asked. */
bool eg__uses_honest(eg__asked *);
/* Permuted, sliced, reversed and expanded g, against the same numbers row-major. */
bool eg__layouts_of_g(eg__asked *);
/* Each operand permuted, sliced, reversed, expanded; two operands of one shape the same tensor. */
bool eg__layouts_of_operands(eg__asked *);

/* -- contract_derivatives.c ------------------------------------------------------------------- */
/* Of −g, tiny, huge and zero g, of g + h, and of single elements of g. */
bool eg__linear(eg__asked *);
/* jvp is the adjoint of rule, each operand moving alone and all of them together. */
bool eg__jvp_adjoint(eg__asked *);
/* The rule is the derivative of the row's own forward at x; words say where that is. refuses: the
 * rule may have no answer there. */
bool eg__derivative_at(eg__asked *, eg_tensor *const *x, const char *where, bool refuses);
/* Where the cotangent has a gradient of its own, that is its derivative. */
bool eg__second_order(eg__asked *);

/* -- contract_elsewhere.c: the rule is the derivative of the row's own forward ---------------- */
bool eg__derivative_here(eg__asked *);
/* With operands moved: a factor that is 0 or 1 at this point hides a rule. */
bool eg__derivative_moved(eg__asked *);
/* Where one operand has values that a rule may take for special, within what samples allow. */
bool eg__derivative_at_values(eg__asked *);
/* At other sizes. */
bool eg__derivative_at_sizes(eg__asked *);
#endif
