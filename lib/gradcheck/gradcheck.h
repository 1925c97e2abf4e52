/* gradcheck.h: the parts of a gradient check. eg_gradcheck (gradcheck.c) opens a trial, which is f
 * at a point with everything needed to evaluate it again; the other files ask the trial. All arrays
 * live in the scope in which the check was called. */
#ifndef EG_GRADCHECK_H
#define EG_GRADCHECK_H
#include "attention/attention.h"

/* -- probe.c: what a check sees of the tape while it runs: the tensors that f reads, and the
 * cotangents of a sweep */
/* a tensor older than the check, for its time in f64 and without history */
typedef struct eg__moved {
    struct eg__moved *next;
    eg_tensor *t;
    uint8_t dtype;
    int count;
    const eg_op *op;
    char *data;
    eg_storage *st, now; /* the one it had, and the one it has while the check runs */
} eg__moved;

/* an operation, the user's call, einsum's string */
typedef struct eg__site {
    const char *name;
    const void *caller;
    char spec[64];
} eg__site;
typedef enum eg__mutation {
    EG_MUTATE_NONE,
    EG_MUTATE_SIGN,
    EG_MUTATE_FACTOR,
    EG_MUTATE_ZERO,
    EG_MUTATE_SWAP,
    EG_MUTATIONS
} eg__mutation;
typedef struct eg__probe {
    struct eg__probe *outer; /* of the check whose f runs this one; NULL */
    uint64_t born;           /* tensors with a smaller number are older than the check */
    eg__arena *home;         /* what it allocates lives as long as the check */
    eg__moved *moved;
    eg__site cast; /* the operation that made f32 of f64 inside f; name NULL: none */
    eg__mutation mutation;
    /* the edge to mutate, counted from 0 in the order of the sweep; edges seen so far */
    int64_t edge, edges;
    /* by how much the mutation changed its cotangent at most; the largest entry of any cotangent */
    double changed, largest;
    /* the operation whose rule gave that cotangent, and for which operand */
    eg__site at;
    int operand;
} eg__probe;

/* x lies at data (f64, its own strides) until the end; *now: its storage, or NULL and a new one is
 * made */
bool eg__probe_input(eg_ctx *, eg_tensor *x, char *data, eg_storage **now);
eg__site eg__site_of(const eg_tensor *y);
/* of every operation, before its type is read */
void eg__probe_operand(eg_ctx *, eg_tensor *x);
/* of every rule's result */
eg_tensor *eg__probe_cotangent(eg_ctx *, const eg_tensor *y, int i, eg_tensor *c);
void eg__probe_end(eg_ctx *); /* every tensor as it was, the outer probe again */
/* the elements that x's strides reach; size > 0 */
void eg__reach(const eg_tensor *x, int64_t *low, int64_t *high);
/* of f32 or f64; at: elements from element 0 */
static inline double eg__element(const eg_tensor *x, int64_t at)
{
    return x->dtype == EG_F32 ? (double)((const float *)(const void *)x->data)[at]
                              : ((const double *)(const void *)x->data)[at];
}

enum { EG_CHECK_INPUTS = 64, EG_CHECK_SHOWN = 16, EG_CHECK_TEXT = 16384 };

/* -- trial.c: the point, and f there ---------------------------------------------------- */
/* A variable is a place in memory that an input reaches; entries of one or more inputs share it
 * (expand, the same tensor twice). */
/* the first entry that has it; how many have it */
typedef struct eg__variable {
    int64_t cell, index, shared;
    int input;
} eg__variable;
typedef struct eg__trial {
    eg_ctx *cx;
    eg_gradcheck_args o;
    eg__probe *probe;
    double *memory, *point; /* where the inputs lie, and the values they had */
    int64_t cells, vars, *var_of[EG_CHECK_INPUTS]; /* var_of[k][index] */
    eg__variable *var;
    uint64_t version[EG_CHECK_INPUTS];
    int order, rank;
    int64_t dim[EG_RANK_MAX], size; /* of f's result */
    int64_t outs; /* 1: ⟨f, W⟩; with .full one for each element of f's result */
    eg_tensor *w;
    double *weight;
    uint64_t draws;
    bool training, again; /* again: f gave another value for the same inputs and draws */
    double unit;          /* rounding of f's arithmetic */
    /* an operation on which the complex step stopped: differences instead */
    const char *unsupported;
    int64_t *calls, *sweeps; /* cost */
} eg__trial;
/* cx, o, probe given: inputs moved, W drawn, f called twice */
bool eg__trial_open(eg__trial *);
/* f at the present memory, recorded, in the open scope; NULL after an error */
eg_tensor *eg__trial_call(eg__trial *);
bool eg__trial_measure(eg__trial *); /* the shape of f's result, and W */
/* outs numbers, and the sums of absolute values behind them */
bool eg__trial_value(eg__trial *, double *out, double *size);
bool eg__trial_gradient(eg__trial *, double *a); /* a[out · vars + var] by reverse mode */
/* a[var] of ⟨seed, y⟩ */
bool eg__trial_sweep(eg__trial *, eg_tensor *y, eg_tensor *seed, double *a);

/* -- slope.c: derivatives along a direction --------------------------------------------- */
/* bend: |right − left| at h/4 over the same at h: 1/4 where smooth, 1 at a kink */
typedef struct eg__slope {
    double n, err, left, right, bend;
} eg__slope;
/* outs slopes, along a cell, or (−1) along a direction over all cells; differences: the same,
 * whatever the oracle */
bool eg__slopes(eg__trial *, int64_t cell, const double *direction, eg__slope *s);
/* a random one of one input; −1: of all */
void eg__direction(const eg__trial *, int number, int input, double *direction);
bool eg__differences(eg__trial *, int64_t cell, const double *direction, eg__slope *s);
/* Along one random direction, a note if they differ: forward mode against the reverse gradient a;
 * the complex step against differences. */
bool eg__forward(eg__trial *, eg_report *, const double *a);
bool eg__off_tape(eg__trial *, eg_report *);

/* -- paths.c: what the tape says of the inputs ------------------------------------------ */
enum { EG_SITES = 3 };
typedef struct eg__path {
    bool alive, any; /* some path to f's result has a gradient; some path is there at all */
    int cuts, uses;  /* more than EG_SITES are only counted */
    /* where a path with a gradient ends; what has the input as an operand */
    eg__site cut[EG_SITES], used[EG_SITES];
} eg__path;
bool eg__paths(eg__trial *, eg_tensor *y, eg__path *); /* one per input */

/* -- blame.c: which rule is wrong? Notes for those that disagree with their own forward, or
 * that none does */
/* cut: an operation without a gradient was named already */
bool eg__blame(eg__trial *, eg_report *, bool cut);

/* -- mutate.c --------------------------------------------------------------------------- */
bool eg__mutate(eg__trial *, double scale, eg_report *);

/* -- report.c --------------------------------------------------------------------------- */
void eg__report_note(eg__trial *, eg_report *, eg_verdict, int input, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* the k-th of "A, B" (or of "i j, j k"), trimmed; length 0 if there is none */
const char *eg__check_part(const char *list, int k, int *length);
/* "floor (model.c:8), detach" */
const char *eg__sites_text(const eg__site *, int count, char *out, size_t room);
void eg__report_write(const eg__trial *, eg_report *, const eg__path *);
bool eg__fails(eg_verdict);

/* -- row.c ------------------------------------------------------------------------------------ */
/* True if rule, jvp and samples of y's row are in order; else records what is wrong. */
bool eg__first_use(eg_tensor *y);
#if EG_DEBUG_ALLOC
/* the same, once a context for each row that is not the library's */
bool eg__look_once(eg_tensor *y);
#endif

/* -- the table: each file with rows ends in a list of them; table.c lists the files ----------- */
bool eg__in_table(const eg_op *);
#endif
