/* eingrad/gradcheck.h: the check of gradients, of functions of tensors and of functions on plain
 * arrays. */
#ifndef EINGRAD_GRADCHECK_H
#define EINGRAD_GRADCHECK_H
#include <eingrad/grad.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- gradient check --------------------------------------------------------------------------- */
/* Reverse mode is compared with differences of f (Richardson) or its complex step, entry by entry;
 * docs/gradcheck.md. While it runs, every tensor that f reads is f64 (inputs, parameters read
 * through `user`, constants made in f), the random state is restored before each call, and entries
 * that share memory are changed together.
 *
 * With a the analytic value, n the numeric one, err the error of n (the rounding of f is measured)
 * and s the largest |a|, an entry is right if |a − n| ≤ rtol |n| + atol s + err. It is covered if a
 * gradient of 0 would have been found wrong.
 *
 * The check is repeated where all inputs are changed by about a fifth. Entries that are not covered
 * then are checked where their input is scaled by 0.3, 0.1 and 0.01 and drawn again. If f applies
 * no custom operation, the check is also repeated with all inputs negated, and scaled by 0.1, 0.01
 * and 10. An entry that is wrong at one of these points is WRONG. An input without a covered entry
 * is ZERO, which passes, if its entries are 0 at all points or are covered where all inputs are
 * changed; it is UNTESTED if they are covered only where this input alone is changed.
 *
 * The contracts of custom operations are tested (docs/gradcheck.md). At the end f is called once
 * in f32. */
typedef enum eg_verdict {
    EG_RIGHT,
    EG_WRONG,
    EG_KINK,     /* f has a kink at this point, and a lies between the one-sided slopes */
    EG_NOISE,    /* the numeric value is not exact enough to tell */
    EG_UNTESTED, /* no entry of the input is covered here, but some are where it is scaled or drawn
                  * again; f does not depend on it; or entries are not 0, but below the noise at
                  * every point */
    EG_ZERO,     /* no entry is covered here, since all are 0; passes */
    EG_EMPTY,    /* the input has no elements */
    EG_PRECISION /* in f32 f or its gradient is not finite, or loses digits that f64 has */
} eg_verdict;
typedef enum eg_oracle { EG_DIFFERENCES, EG_COMPLEX_STEP } eg_oracle;
typedef struct eg_gradcheck_args {
    size_t size;
    eg_function *f; /* f(user, xs) */
    void *user;
    int count;            /* inputs, at most 64 */
    eg_tensor *const *xs; /* f32 or f64 */

    int order; /* checks derivatives up to this order, at most 8; 1 */
    bool full; /* checks the Jacobian of f's result; else the gradient of ⟨f, W⟩ for one random W */
    int directions;   /* > 0: checks this number of random directions of each input; 0: all
                       * entries */
    bool mutate;      /* makes each cotangent wrong in four ways; the check must then fail */
    eg_oracle oracle; /* how n is computed; EG_DIFFERENCES */
    double rtol;      /* 1e-8; with the complex step 1e-11 */
    double atol;      /* 1e-15; with the complex step 1e-14 */
    uint64_t seed;    /* of W and of the directions; 0 */
    bool kinks;       /* a KINK passes if all analytic values together are a subgradient */

    /* for the report */
    const char *names; /* "A, B": of the inputs; NULL: what eg_name gave them, else x0, x1 …; more
                        * names than inputs are refused */
    const char *axes;  /* "i j, j k": their letters, one for each axis; NULL: numbers */

    bool only_here; /* custom operations are tested at their operands in f alone: for one whose
                     * derivative exists only in a domain, as for symmetric matrices */
} eg_gradcheck_args;
/* One entry of the gradient. */
typedef struct eg_entry {
    eg_verdict verdict;
    int input;
    int64_t index;  /* in the input, row-major; −1: a random direction */
    int64_t output; /* with .full the element of f's result; else −1 */
    double analytic, numeric;
    double left, right; /* one-sided slopes */
    double error;       /* err */
    int64_t shared;     /* number of entries, of all inputs, at this address */
    const char *at;     /* NULL: at xs; else the point, as "scaled by 0.1" */
    const char *rule;   /* the operation whose rule is wrong, or "hook"; NULL: none was found */
    int operand;        /* of that operation, from 0; −1: of none */
    const char *call;   /* where it was called, "gate (model.c:8)"; NULL if rule is NULL */
} eg_entry;
/* A finding beyond the entries. */
typedef struct eg_note {
    eg_verdict verdict; /* EG_RIGHT: it is no failure */
    int input;          /* −1: of no single input */
    const char *text;
    const char *rule; /* rule, operand, call: as in eg_entry */
    int operand;
    const char *call;
} eg_note;
typedef struct eg_report {
    bool passed;             /* true if nothing fails, in this order and in the higher ones */
    const char *text;        /* the report in words, as eg_report_print writes it */
    const eg_verdict *input; /* one per input */

    int64_t entries, right; /* checked; right */
    int64_t covered;        /* number of entries at which a gradient of 0 would be found wrong */
    double worst;           /* largest |a − n| / s */
    double margin;          /* largest |a − n| / (rtol |n| + atol s + err): 1 is the limit */
    int shown; /* length of `entry`: all that fail (at most 65536), and others if they are few */
    const eg_entry *entry; /* the worst first */
    int notes;
    const eg_note *note;

    int order;                      /* of this report */
    const struct eg_report *higher; /* the report of the next order, or NULL */
    /* of .mutate; harmless: mutants that did not change the cotangent */
    int64_t mutants, caught, harmless, survivors; /* see also unmeasurable */
    int64_t calls, sweeps; /* cost of all orders: of f, and of the reverse sweep */
    int64_t hidden;        /* number of entries that are right at this point but not covered */
    int64_t elsewhere;     /* number of those that were tested at another point */
    double noise;          /* rounding of f, measured, relative to its largest element */
    int64_t unmeasurable;  /* mutants whose effect on the gradient is below the tolerance */
} eg_report;
/* Returns the report, in the open scope; NULL after an error. Never prints. */
EG_API const eg_report *eg_gradcheck_with(const eg_gradcheck_args *);
EG_API int eg_report_print(FILE *, const eg_report *); /* writes the report; 0, or −1 */
/* Writes the report as line `number` of the Test Anything Protocol, "ok 1 - name", or "not ok 1 -
 * name" and the report's text. Returns 0, or −1 if it cannot be written. The caller writes the
 * plan, "1..3". */
EG_API int eg_report_tap(FILE *, const eg_report *, int number, const char *name);
/* Checks an operation at each of its samples (it must have one), and tests the contracts of
 * operations: its rule is linear in g and right for any layout of g, writes to no tensor, keeps
 * nothing between calls, reads only what .uses names, and agrees with its jvp. Returns the first
 * report that fails, or the last. */
EG_API const eg_report *eg_gradcheck_op(eg_ctx *, const eg_op *);

/* -- the gradient check for functions on plain arrays, y = f(x) of n and m numbers, dx = Jᵀ g. Both
 * functions set every element of their result, which holds NaN before the call, and return 0, or
 * another number after an error. */
typedef int eg_fn(void *user, const double *x, double *y);
typedef int eg_fn_vjp(void *user, const double *x, const double *g, double *dx);
typedef struct eg_gradcheck_fn_args {
    size_t size;
    eg_ctx *cx; /* the report lives in its open scope */
    eg_fn *f;
    eg_fn_vjp *vjp;
    void *user; /* handed to both */
    int64_t n, m;
    const double *x; /* the point: n numbers */
    /* the options of eg_gradcheck */
    const char *names; /* of x */
    double rtol, atol;
    int directions;
    uint64_t seed;
    bool full, kinks;
} eg_gradcheck_fn_args;
EG_API const eg_report *eg_gradcheck_fn_with(const eg_gradcheck_fn_args *);

#ifndef __cplusplus
#define eg_gradcheck(...)    eg_gradcheck_with(EG_ARGS_(eg_gradcheck_args, __VA_ARGS__))
#define eg_gradcheck_fn(...) eg_gradcheck_fn_with(EG_ARGS_(eg_gradcheck_fn_args, __VA_ARGS__))
#endif

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_GRADCHECK_
#include <eingrad/cxx.h>
#endif
#endif
