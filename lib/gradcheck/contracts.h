/* contracts.h: a row under test, the tools with which contracts test it, and the contracts that
 * contracts.c lists. */
#ifndef EG_CONTRACTS_H
#define EG_CONTRACTS_H
#include "gradcheck/gradcheck.h"

enum { EG_ASKED_OPERANDS = 16 };

/* The row of node t, applied to copies of t's operands. */
typedef struct eg__asked {
    const eg_tensor *t;
    eg_ctx *cx;
    eg_tensor *x[EG_ASKED_OPERANDS]; /* copies of its operands, row-major, without history */
    eg_tensor *y, *g;                /* the row's result for these; a random cotangent */
    /* the rule's results; NULL: it has none, or the operand is not f64. Only operands with a result
     * are moved. */
    eg_tensor *r[EG_ASKED_OPERANDS];
    char *words; /* receives the words of eg__contract */
    size_t room;
    int operand;
} eg__asked;

/* -- contract_tensors.c ----------------------------------------------------------------------- */
/* Notes in words that the row breaks a contract, followed by the error of cx, if there is one. The
 * error is then cleared, unless it is lack of memory. operand −1: the result. Returns false. */
bool eg__breaks(eg__asked *, int operand, const char *words);
/* Returns the elements of a row-major f64 tensor. */
static inline double *eg__contract_numbers(eg_tensor *x) { return (double *)(void *)x->data; }
/* Returns number k of a random sequence with values ±[.5, 1.5); salt chooses the sequence. */
double eg__drawn(uint64_t salt, int64_t k);
/* Returns a tensor of such numbers with the shape of `like`; NULL after an error. */
eg_tensor *eg__contract_noise(const eg_tensor *like, uint64_t salt);
/* Returns a row-major copy of x without history; NULL after an error. */
eg_tensor *eg__leaf_copy(eg_tensor *x);
/* True if no element is NaN or infinite. */
bool eg__all_finite(eg_tensor *);
/* True if a equals factor · b up to `share` of its largest element. NULL stands for zeros. */
bool eg__contract_alike(eg_tensor *a, eg_tensor *b, double factor, double share);
/* Returns the row's result for other operands; NULL if it refuses them, and after an error. */
eg_tensor *eg__contract_apply(const eg__asked *, eg_tensor *const *x);
/* Sets *d to the rule's result for operand i of y; NULL if it has none. False after an error. */
bool eg__contract_ask(eg_tensor *y, eg_tensor *g, int i, eg_tensor **d);

/* -- contract_values.c: each is true if the row keeps the contract or cannot be tested ---- */
/* The result is the same when computed again, in another order, after other calls, and while the
 * context does not record. */
bool eg__same_again(eg__asked *);
/* The rule writes neither to g, nor to the result, nor to operands. */
bool eg__writes_nothing(eg__asked *);
/* The rule's result stays the same if all that .uses says it does not read is NaN. */
bool eg__uses_honest(eg__asked *);
/* The rule's result is the same for a permuted, sliced, reversed and expanded g as for a row-major
 * one. */
bool eg__layouts_of_g(eg__asked *);
/* The same for each operand permuted, sliced, reversed, expanded; and for two operands of one shape
 * that are the same tensor. */
bool eg__layouts_of_operands(eg__asked *);

/* -- contract_derivatives.c ------------------------------------------------------------------- */
/* The rule is linear: tested with −g, tiny, huge and zero g, with g + h, and with single elements
 * of g. */
bool eg__linear(eg__asked *);
/* jvp is the adjoint of rule, each operand moving alone and all of them together. */
bool eg__jvp_adjoint(eg__asked *);
/* The rule is the derivative of the row's own forward function at x; `where` names this point in
 * words. refuses: the rule may have no result there. */
bool eg__derivative_at(eg__asked *, eg_tensor *const *x, const char *where, bool refuses);
/* Where the cotangent has a gradient of its own, that is its derivative. */
bool eg__second_order(eg__asked *);

/* -- contract_elsewhere.c: the rule is the derivative of the row's own forward ---------------- */
bool eg__derivative_here(eg__asked *);
/* With operands moved: a factor that is 0 or 1 at this point may hide a wrong rule. */
bool eg__derivative_moved(eg__asked *);
/* With one operand that has values which a rule may treat as special, within what the samples
 * allow. */
bool eg__derivative_at_values(eg__asked *);
/* At other sizes. */
bool eg__derivative_at_sizes(eg__asked *);
#endif
