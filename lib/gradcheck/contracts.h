/* contracts.h: an operation under test, tools for testing it, and the contracts that contracts.c
 * lists. */
#ifndef EG_CONTRACTS_H
#define EG_CONTRACTS_H
#include "gradcheck/gradcheck.h"

enum { EG_ASKED_OPERANDS = 64 };

/* The operation of node t, applied to copies of the operands of t. */
typedef struct eg__contract_call {
    const eg_tensor *t;
    eg_ctx *cx;
    eg_tensor *x[EG_ASKED_OPERANDS]; /* copies of its operands, row-major, not recorded */
    eg_tensor *y, *g;                /* the result of the operation for these; a random cotangent */
    /* the rule's results; NULL if it has none, or if the operand is not f64. Only operands with a
     * result are varied. */
    eg_tensor *r[EG_ASKED_OPERANDS];
    double unit;    /* eg__contract_unit; 0: not computed yet */
    char *words;    /* the parameter of eg__contract, to which the message is written */
    char note[200]; /* a remark about an operation that keeps all contracts; "": none */
    size_t size;
    int operand;
} eg__contract_call;

/* -- contract_tensors.c ----------------------------------------------------------------------- */
/* Writes to `words` that the operation breaks a contract, followed by the error of cx, if there is
 * one. The error is then cleared, unless memory ran out. operand −1 is the result. Returns
 * false. */
bool eg__breaks(eg__contract_call *, int operand, const char *words);
/* Returns the elements of a row-major f64 tensor. */
static inline double *eg__contract_numbers(eg_tensor *x) { return (double *)(void *)x->data; }
/* Returns element k of a random sequence with values ±[.5, 1.5); salt selects the sequence. */
double eg__drawn(uint64_t salt, int64_t k);
/* Returns a tensor of such elements with the shape of `like`; NULL after an error. */
eg_tensor *eg__contract_noise(const eg_tensor *like, uint64_t salt);
/* Returns a row-major copy of x that is not recorded; NULL after an error. */
eg_tensor *eg__leaf_copy(eg_tensor *x);
/* True if no element is NaN or infinite. */
bool eg__all_finite(eg_tensor *);
/* Returns the largest magnitude of an element; 0 if x is NULL or has none. */
double eg__largest(eg_tensor *x);
/* True if a equals b up to `share` of the largest element. NULL stands for zeros. */
bool eg__contract_alike(eg_tensor *a, eg_tensor *b, double share);
/* True if a equals factor · b up to |factor| times the sum of `share` of b's largest element and
 * `floor`; with a floor above 0 also up to subnormal numbers. NULL stands for zeros. */
bool eg__contract_above(eg_tensor *a, eg_tensor *b, double factor, double share, double floor);
/* Returns the rounding error that remains where terms g, g y or g y / x cancel, as in y (g − Σ g y)
 * of a saturated softmax: 64 ε max|g| max(1, |y|, |y / x|). */
double eg__cancelled(const eg__contract_call *, eg_tensor *g);
/* As eg__contract_above, for results of the rule for operand i or, with i = −1, of the operation;
 * the floor is eg__cancelled of the call's g, or 0 with i = −1. If they differ by more, `share` is
 * increased by the effect of rounding on an ill-conditioned operation, and a note says so. */
bool eg__contract_close(eg__contract_call *, int i, eg_tensor *a, eg_tensor *b, double factor,
                        double share);
/* Returns ⟨a, b⟩ and adds the magnitudes of its terms to *size. */
double eg__contract_dot(eg_tensor *a, eg_tensor *b, double *size);
/* Returns the largest element of the result, here or at operands of other magnitudes, at most 1:
 * intermediate values are as large even where the result is not. */
double eg__contract_unit(eg__contract_call *);
/* True if the user allows no other operands than those in f. */
static inline bool eg__only_here(const eg_ctx *cx) { return cx->probe && cx->probe->only_here; }
/* True if the operation's samples allow the elements of x: it is not tested outside of their
 * range. */
bool eg__sampled_there(const eg_op *, const eg_tensor *x);
/* Returns the operation's result for other operands; NULL if it refuses them, and after an
 * error. */
eg_tensor *eg__contract_apply(const eg__contract_call *, eg_tensor *const *x);
/* Sets *d to the rule's result for operand i of y; NULL if it has none. False after an error. */
bool eg__contract_rule(eg_tensor *y, eg_tensor *g, int i, eg_tensor **d);
/* Returns the tangent of y by its jvp; NULL if that returns none, and after an error, such as a
 * tangent that does not have the shape and dtype of y. */
eg_tensor *eg__contract_tangent(eg_tensor *y, eg_tensor *const *dx);

/* Memory layouts for the elements of a tensor. */
enum {
    EG_PERMUTED,
    EG_SLICED,
    EG_REVERSED,
    EG_PADDED,
    EG_FIRST_REVERSED,
    EG_LAST_REVERSED,
    EG_LAYOUTS
};
const char *eg__layout_name(int how);
/* Returns a view with the shape and elements of v in a longer array. NULL after an error, and if
 * the layout equals another one, as for a vector. */
eg_tensor *eg__laid_out(eg_tensor *v, int how);
/* The axes along which eg__repeated expands. */
enum { EG_REPEATED_FIRST, EG_REPEATED_LAST, EG_REPEATED_ALL, EG_REPEATED };
/* Returns a view of v, of its shape, with a stride of 0 along these axes: all elements along them
 * are the first. NULL if that equals v or another way, and after an error. */
eg_tensor *eg__repeated(eg_tensor *v, int how);

/* -- contract_values.c: each is true if the operation keeps the contract or cannot be tested --- */
/* The result is the same if it is computed again, in another order, after other calls, while the
 * context does not record, on another number of threads and, if the value is, under eg_eval. */
bool eg__same_again(eg__contract_call *);
/* The rule's result is the same if operands and g are results of operations on each other. */
bool eg__same_of_results(eg__contract_call *);
/* The rule writes neither to g, nor to the result, nor to operands. */
bool eg__writes_nothing(eg__contract_call *);
/* The rule's result does not change if everything that .uses declares as not read is NaN. */
bool eg__uses_correct(eg__contract_call *);
/* The rule's result is the same for a permuted, sliced, reversed or expanded g as for a row-major
 * one. */
bool eg__layouts_of_g(eg__contract_call *);
/* The same for each operand permuted, sliced, reversed or expanded; and for two operands of one
 * shape that are the same tensor. */
bool eg__layouts_of_operands(eg__contract_call *);
/* The same for operands with another axis of 1 element in front, and for one axis instead of
 * several, if the operation then has the same result. */
bool eg__other_ranks(eg__contract_call *);

/* -- contract_linear.c ------------------------------------------------------------------------- */
/* The rule is linear: tested with −g, tiny, huge and zero g, with g + h, and with single elements
 * of g. */
bool eg__linear(eg__contract_call *);

/* -- contract_derivatives.c ------------------------------------------------------------------- */
/* The rule is the derivative of the operation's forward function at x; `where` describes this
 * point. refuses: the rule may have no result there. */
bool eg__derivative_at(eg__contract_call *, eg_tensor *const *x, const char *where, bool refuses);
/* The same at x along v alone, with operand i and, unless `with` is −1, another one of its shape
 * moved together. */
bool eg__derivative_together(eg__contract_call *, eg_tensor *const *x, int i, int with,
                             eg_tensor *v, const char *where);
/* If the cotangent has a gradient at x, that is its derivative, and the jvp has the same. */
bool eg__second_at(eg__contract_call *, eg_tensor *const *x, const char *where);
bool eg__second_order(eg__contract_call *);
/* forward_c128 has the values and derivatives of forward at real operands. */
bool eg__complex_forward(eg__contract_call *);

/* -- contract_jvp.c ---------------------------------------------------------------------------- */
/* Returns the tangent of y for a random tangent of the operand `only`, or, if that is −1, of all
 * operands with a cotangent; sets dx to these tangents. NULL if an operand's tangent cannot be
 * made, and after an error. */
eg_tensor *eg__contract_jvp(const eg__contract_call *, eg_tensor *y, int only, eg_tensor **dx);
/* True if ⟨jvp(dx), g⟩ = Σ ⟨r_i, dx_i⟩, where r_i is the rule's result for operand i of y, for a
 * tangent of each operand alone and of all together; else notes what is broken. */
bool eg__jvp_agrees(eg__contract_call *, eg_tensor *y, eg_tensor *g, eg_tensor *const *r,
                    const char *where);
/* jvp is the adjoint of the rule at the point. */
bool eg__jvp_adjoint(eg__contract_call *);
/* The jvp is linear and does not depend on the layout of tangents; it is the same if it is called
 * again, while the context does not record, and on another number of threads. */
bool eg__jvp_tangents(eg__contract_call *);

/* -- contract_single.c: rule and jvp are the same in f32 as in f64 ----------------------------- */
bool eg__same_in_single(eg__contract_call *);

/* -- contract_elsewhere.c: the rule is the derivative of the operation's forward function ------ */
bool eg__derivative_here(eg__contract_call *);
/* With operands moved: a factor that is 0 or 1 at this point may hide a wrong rule. */
bool eg__derivative_moved(eg__contract_call *);
/* With one operand that has values which a rule may treat as special, within the range of the
 * samples. */
bool eg__derivative_at_values(eg__contract_call *);
/* With masks that are true, false and both, and with integers that repeat and that are not
 * sorted. */
bool eg__derivative_at_masks(eg__contract_call *);
bool eg__derivative_at_integers(eg__contract_call *);
/* The second order where all operands are larger, smaller or negated. */
bool eg__second_elsewhere(eg__contract_call *);
/* At other sizes. */
bool eg__derivative_at_sizes(eg__contract_call *);

/* -- contract_broadcast.c: with one operand broadcast along an axis ---------------------------- */
bool eg__derivative_broadcast(eg__contract_call *);
#endif
