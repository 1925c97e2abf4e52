/* gradcheck.h: the parts of a gradient check. eg_gradcheck (gradcheck.c) opens a trial, that is, f
 * at a point with everything that is needed to evaluate it again; the other files use the trial.
 * All arrays are in the scope in which the check was called. */
#ifndef EG_GRADCHECK_H
#define EG_GRADCHECK_H
#include "attention/attention.h"

/* -- substitute.c: while a check runs, tensors that f reads are f64, and cotangents of a backward
 * pass are mutated */
/* A tensor older than the check, whose header is f64 and has no operation until the check ends; the
 * members here restore it. */
typedef struct eg__moved {
    struct eg__moved *next;
    eg_tensor *t;
    uint8_t dtype;
    int count;
    const eg_op *op;
    char *data;
    eg_storage *st, now; /* its storage before the check, and while the check runs */
} eg__moved;

/* The return address of the constructor of node y, whose operation is the user's. */
typedef struct eg__frame {
    struct eg__frame *next;
    const eg_tensor *y;
    const void *outer;
} eg__frame;
/* An operation as messages name it: its name, the address of the user's call, the string of einsum.
 * An operation of the user (own) is applied by a constructor; messages name the call of that
 * constructor, which returns to `outer`, or was inlined around `caller`. */
typedef struct eg__site {
    const char *name;
    const void *caller, *outer;
    bool own;
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
    struct eg__probe *outer; /* the probe of a check whose f runs this check; else NULL */
    uint64_t first_seq;      /* tensors with a smaller seq are older than the check */
    eg__arena *arena;        /* memory that exists as long as the check */
    eg__moved *moved;
    eg__frame *frames;   /* for the call of f whose nodes are named in messages */
    const void *entered; /* the user's call of the check, from that call on */
    eg__site cast;       /* the operation inside of f that converted f64 to f32; name NULL: none */
    eg__mutation mutation;
    /* the edge to mutate, counted from 0 in the order of the backward pass; number of edges so
     * far */
    int64_t edge, edges;
    /* the largest change of the mutated cotangent; the largest element of all cotangents */
    double changed, largest;
    /* the operation whose rule gave that cotangent, and for which operand */
    eg__site at;
    int operand;
    bool only_here;    /* operations are tested at their operands in f alone */
    uint64_t rounding; /* state of the random rounding of elements (rounding.c) */
} eg__probe;

/* Moves x until the check ends: its elements are at `data`, in f64 with x's strides. *now is its
 * storage for that time; if it is NULL, it is set. False after an error. */
bool eg__probe_input(eg_ctx *, eg_tensor *x, char *data, eg_storage **now);
eg__site eg__site_of(const eg_tensor *y);
/* The hook on each operand of an operation, which is called before its type is read. */
void eg__probe_operand(eg_ctx *, eg_tensor *x);
/* The hook on the result of each rule: changes the cotangent if this is the edge to mutate. */
eg_tensor *eg__probe_cotangent(eg_ctx *, const eg_tensor *y, int i, eg_tensor *c);
/* Restores every tensor that was moved, and the outer probe. */
void eg__probe_end(eg_ctx *);
/* Sets the range of elements that x's strides reach, relative to element 0. x must not be empty. */
void eg__reach(const eg_tensor *x, int64_t *low, int64_t *high);
/* Returns the element of x, which is f32 or f64, at offset `at` from element 0. */
static inline double eg__element(const eg_tensor *x, int64_t at)
{
    return x->dtype == EG_F32 ? (double)((const float *)(const void *)x->data)[at]
                              : ((const double *)(const void *)x->data)[at];
}

enum { EG_CHECK_INPUTS = 64, EG_CHECK_SHOWN = 16, EG_CHECK_KEPT = 65536, EG_CHECK_TEXT = 16384 };

/* -- trial.c: the point, and f there ---------------------------------------------------- */
/* A variable is an address in memory that an input reaches. Several entries of one or more inputs
 * may share it (expand; the same tensor given twice): index and input are those of the first entry,
 * `shared` is the number of entries. */
typedef struct eg__variable {
    int64_t cell, index, shared;
    int input;
} eg__variable;
typedef struct eg__trial {
    eg_ctx *cx;
    eg_gradcheck_args o;
    eg__probe *probe;
    double *memory, *point; /* the memory of the inputs; their values at the point */
    int64_t cells, vars, *var_of[EG_CHECK_INPUTS]; /* var_of[k][index] */
    eg__variable *var;
    uint64_t version[EG_CHECK_INPUTS];
    int order, rank;
    int64_t dim[EG_RANK_MAX], size; /* of the result of f */
    int64_t outs; /* outputs: 1 for ⟨f, W⟩; with .full one for each element of f's result */
    eg_tensor *w;
    double *weight, *drawn; /* the elements of W; a copy, since a rule may write to its cotangent */
    bool seed_written;      /* a backward pass has changed W, which was restored */
    uint64_t draws;
    bool training, again; /* again: f gave two values for the same inputs and draws */
    double unit;          /* rounding unit of the arithmetic of f */
    /* the operation that has no complex step, so that differences are used instead; else NULL */
    const char *unsupported;
    int64_t *calls, *sweeps; /* numbers of calls of f and of backward passes */
    double *middle;          /* f at the point */
    /* standard deviations of rounding. noise: of each element of the result of f; sum_noise: of
     * ⟨f, W⟩ if the roundings of the elements are independent; sum_factor: the measured one of
     * ⟨f, W⟩ divided by sum_noise, at least 1 */
    double *noise, sum_noise, sum_factor;
    double least;   /* rounding of values as large as the result of f or the inputs */
    double *jitter; /* by variable: standard deviation of the analytic derivative's rounding */
    double **row;   /* with .full: the same by output; NULL if not measured yet */
    double scale;   /* the largest analytic derivative */
    /* rounding of the largest element of f divided by the largest input: smaller derivatives cannot
     * be distinguished from it */
    double tiny;
    /* a difference of an analytic and a numeric derivative that rounding of cotangents near 1 may
     * cause, so that it proves nothing */
    double doubt;
    bool step_trusted,
        step_refused; /* the complex step agrees with differences; it cannot be computed */
    int rechecks;     /* how often it may still be computed */
    int confirmed;    /* number of entries that were WRONG at another step too */
    bool forwardless; /* a rule computes with plain values, so there is no forward mode */
    bool custom;      /* f applies an operation of the user */
    bool unrecorded;  /* f is called while the context does not record */
    struct eg__first_order *first_order; /* what precision.c needs of order 1 */
} eg__trial;
/* Opens a trial whose cx, o and probe are set: moves the inputs, draws W, calls f twice. False
 * after an error. */
bool eg__trial_open(eg__trial *);
/* Returns f at the present values of the inputs, recorded, in the open scope; NULL after an
 * error. */
eg_tensor *eg__trial_call(eg__trial *);
/* eg__trial_call that also finds the constructor calls of the nodes, for eg__site_of. */
eg_tensor *eg__named_call(eg__trial *);
/* Calls f twice: sets the shape of its result and W, and whether f gives the same values twice.
 * False after an error. */
bool eg__trial_measure(eg__trial *);
/* Writes the elements of the result of f at the present values to y; false after an error. */
bool eg__trial_value(eg__trial *, double *y);
/* Moves the inputs to another point. The value of f there becomes `middle`. False after an error,
 * and if that value is not finite. */
bool eg__trial_go(eg__trial *, const double *point);
/* Sets scale, tiny and doubt from the gradients of all outputs. */
void eg__trial_scale(eg__trial *, const double *a);
/* True if f or an operation recorded an error other than lack of memory; the error is then cleared.
 * False if there is no error, and if memory ran out; that error remains. */
bool eg__refused(eg_ctx *);
/* Computes all gradients a[out · vars + var] by reverse mode; false after an error. */
bool eg__trial_gradient(eg__trial *, double *a);
/* Computes the gradient a[var] of ⟨seed, y⟩ by one backward pass; false after an error. */
bool eg__trial_sweep(eg__trial *, eg_tensor *y, eg_tensor *seed, double *a);

/* -- slope.c: derivatives along a direction --------------------------------------------- */
/* The numeric derivative n of an output along a direction, with the slopes on the two sides. err is
 * the error of n by truncation and by the rounding of the elements of f's result that changed;
 * `all` counts the rounding of every element. bend is |right − left| at h/4 divided by that at h:
 * 1/4 if f is smooth, 1 at a kink. */
typedef struct eg__slope {
    double n, err, all, left, right, bend;
} eg__slope;
/* Computes the slopes of all outputs along a cell or, if cell is −1, along a direction over all
 * cells, by the oracle that the user chose. `a` are the analytic values, or NULL; if two calls of f
 * agree with them, there are no further calls. False after an error. */
bool eg__slopes(eg__trial *, int64_t cell, const double *direction, const double *a, eg__slope *s);
/* Draws random direction `number` over the entries of one input, or of all inputs if input is
 * −1. */
void eg__direction(const eg__trial *, int number, int input, double *direction);
/* eg__slopes by differences, whatever the oracle is, with the first step multiplied by shrink. */
bool eg__differences(eg__trial *, int64_t cell, const double *direction, const double *a,
                     double shrink, eg__slope *s);
#define EG_DEEP 0x1p-30 /* a step so small that only a function that varies very fast needs it */
/* Computes the slopes by the complex step; their error is its spread at points nearby. False, with
 * step_refused set, if an operation has no complex form, or if the complex step and differences
 * disagree along a random direction. */
bool eg__slope_recheck(eg__trial *, int64_t cell, const double *direction, eg__slope *s);
/* eg__forward compares forward mode with the reverse gradient a, eg__off_tape the complex step with
 * differences, along one random direction; both add a note if they differ. False after an error. */
bool eg__forward(eg__trial *, eg_report *, const double *a);
bool eg__off_tape(eg__trial *, eg_report *);

/* -- noise.c: measures rounding: of f at the point, and of its gradient a (one output) -------- */
bool eg__noise(eg__trial *);
bool eg__gradient_noise(eg__trial *, const double *a);

/* -- rounding.c: the effect of one rounding in each operation, by random rounding ------------- */
/* Sets `of` to the standard deviations of the rounding of the gradient a of output `out` (−1: of
 * ⟨f, W⟩); if a is NULL, of f's elements and, last, of ⟨f, W⟩. Infinite where rounding determines
 * whether the value is finite. All are 0 if f fails when it is rounded. False after an error. */
bool eg__rounding(eg__trial *, int64_t out, const double *a, double *of);
/* With .full, returns these for output `out`; they are measured at the first call. NULL after an
 * error. */
const double *eg__row_rounding(eg__trial *, const double *a, int64_t out);

/* -- judge.c: the verdict on an entry ---------------------------------------------------------- */
double eg__allowed(const eg__trial *, const eg__slope *, double jitter);
/* Returns a verdict. *covered: an analytic value of 0 would have been found wrong. UNTESTED: the
 * rounding of all elements of f's result could explain the difference, or the entry is not covered
 * and a is not 0. */
eg_verdict eg__judge(const eg__trial *, double a, double jitter, const eg__slope *, bool *covered);
/* An entry that is judged, and what is known of its analytic value. */
typedef struct eg__judged {
    int64_t cell;            /* the variable's address; −1: along `direction` */
    const double *direction; /* over all cells */
    int64_t out;             /* the output */
    double a, jitter;        /* the analytic value, the standard deviation of its rounding */
} eg__judged;
/* Returns the verdict after further steps and the complex step, if these help. *s is set to the
 * slope that decided. */
eg_verdict eg__judge_again(eg__trial *, const eg__judged *, eg__slope *s, bool *covered);

/* -- entries.c: the entries of one order. A column is a variable or a random direction, and has one
 * entry for every output. Entries that fail are kept, and the worst of the others. */
typedef struct eg__entries {
    eg__trial *c;
    eg_report *r;
    eg_verdict *input;
    bool *tested;
    const double *a;
    double *direction, *analytic; /* for the present column */
    eg__slope *s;
    uint8_t *open;                       /* by variable, for eg__points */
    eg_entry *kept, *passing;            /* n entries that fail; EG_CHECK_SHOWN that do not */
    int64_t n, capacity, columns, kinks; /* kinks: number of entries at a kink */
    int shown;
    int64_t *kink; /* their variables (or columns) */
} eg__entries;
bool eg__entries_open(eg__entries *); /* c, r, input and a must be set */
bool eg__entries_all(eg__entries *);  /* false after an error, or with c->unsupported */
bool eg__entries_add(eg__entries *, const eg_entry *); /* adds an entry that fails */
void eg__entries_close(eg__entries *);                 /* fills the report, the worst entry first */

/* -- hint.c: notes what the wrong entries of each input have in common ------------------------- */
void eg__hints(const eg__entries *);

/* -- points.c: other points: all inputs moved, one input scaled or drawn again ---------------- */
/* The finding about an input at other points. WRONG: see `worst`. UNTESTED: a point that moves only
 * this input covers it. RIGHT: a point that moves all inputs covers it. NOISE: no point is clear.
 * ZERO: the derivative is zero at all of them. */
typedef struct eg__elsewhere {
    eg_verdict v;
    const char *where;
    eg_entry worst;
} eg__elsewhere;
/* The state of a variable, open[v]: covered at the point; both derivatives are zero; or a
 * derivative is not 0, but too small to be tested. */
enum { EG_COVERED, EG_BOTH_ZERO, EG_HIDDEN };
/* Sets a finding for each input that is not WRONG already. open[v] becomes EG_COVERED if another
 * point covers v. False after an error. */
bool eg__points(eg__trial *, uint8_t *open, const bool *tested, const eg_verdict *input,
                eg__elsewhere *found);

/* -- state.c: effects of earlier calls and backward passes; the seed; eg_nograd --------------- */
bool eg__state(eg__trial *, eg_report *, const double *a);

/* -- contracts.c: what every operation must satisfy ------------------------------------------- */
/* Tests the user's operations in the history of y, and adds notes. False after an error. */
bool eg__contracts(eg__trial *, eg_report *, eg_tensor *y);
/* How a contract is broken. */
typedef struct eg__breach {
    int operand;    /* −1 is the result */
    bool writes;    /* the rule writes to a tensor */
    bool elsewhere; /* at operands of other values or sizes than the node's */
} eg__breach;
/* True if node t keeps all contracts; `words` are then a note, or "". Else writes to `words` which
 * contract it breaks, and sets *b. any_layout: also tests operands of any layout and rank, which
 * some operations of the library never get. */
bool eg__contract(eg_tensor *t, bool any_layout, char *words, size_t size, eg__breach *b);
/* Writes the sentence of such words for the operation at `where`; returns buffer. */
const char *eg__contract_text(const char *where, int operand, const char *words, char *buffer,
                              size_t size);

/* -- paths.c: paths on the tape from the inputs to the result ---------------------------------- */
enum { EG_SITES = 3 };
typedef struct eg__path {
    bool alive, any; /* alive: a path to the result of f has a gradient; any: there is a path */
    int cuts, uses;  /* their numbers; only EG_SITES of each are kept */
    /* cut: operations at which a path with a gradient ends; used: operations that have the input as
     * an operand */
    eg__site cut[EG_SITES], used[EG_SITES];
} eg__path;
/* Lists all nodes that y depends on, operands before results, in memory of the open scope. False
 * after an error. */
bool eg__nodes(eg_tensor *y, int64_t *count, eg_tensor ***node);
bool eg__paths(eg__trial *, eg_tensor *y, eg__path *); /* one for each input */

/* -- precision.c: f in f32 --------------------------------------------------------------------- */
/* What is kept of order 1 until the check is over and the inputs are restored. */
typedef struct eg__first_order {
    eg__trial c;
    const eg__path *path;
    const double *a; /* the gradients of all outputs */
} eg__first_order;
bool eg__precision(eg__first_order *, eg_report *);

/* -- kinks.c: sets *is to whether the analytic values of these entries are a subgradient ------- */
bool eg__subgradient(eg__trial *, const double *a, int64_t count, const int64_t *vars, bool *is);

/* -- blame.c: finds what makes an entry wrong. Adds notes for rules that disagree with their
 * forward function in an element, for hooks and for checkpoints; or a note that nothing on the tape
 * is wrong. */
/* cut: a note already names an operation without a gradient. False after an error. */
bool eg__blame(eg__trial *, eg_report *, bool cut);
/* True if a hook changes a cotangent; then also notes that forward mode, which calls no hooks, was
 * not compared. */
bool eg__hooked(eg__trial *, eg_report *);
/* After an error: if an operation of the user breaks a contract, puts that before the message, as a
 * rule that writes to an operand makes f fail. */
void eg__blame_error(eg__trial *);
/* Adds notes for tensors that f reads, that are older than the check and are not inputs. */
bool eg__unlisted(eg__trial *, eg_report *, eg_tensor *y);

/* -- mutate.c --------------------------------------------------------------------------- */
/* Counts the mutants that the check detects, and adds a note for each one that it does not. scale:
 * the largest analytic derivative. False after an error. */
bool eg__mutate(eg__trial *, double scale, eg_report *);

/* -- report.c --------------------------------------------------------------------------- */
/* Sets rule, operand (from 0) and call of the last note. */
void eg__report_blame(eg__trial *, eg_report *, const char *rule, int operand, const char *call);
void eg__report_note(eg__trial *, eg_report *, eg_verdict, int input, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Returns the k-th part of "A, B" or "i j, j k" without blanks around it, and sets *length to 0 if
 * there is none. */
const char *eg__check_part(const char *list, int k, int *length);
/* True if the n characters at `axes` name the axes of an input by words, "head d"; false if each
 * character names one. */
bool eg__check_words(int rank, const char *axes, int n);
/* Writes a list of operations such as "floor (model.c:8), detach" to out, and returns out. */
const char *eg__sites_text(const eg__site *, int count, char *out, size_t size);
void eg__report_write(const eg__trial *, eg_report *, const eg__path *);
bool eg__fails(eg_verdict);

/* -- op.c ------------------------------------------------------------------------------------ */
/* True if rule, jvp and samples of the operation of y are right; else records an error. */
bool eg__first_use(eg_tensor *y);
#if EG_DEBUG_ALLOC
/* eg__first_use, once in a context for each operation that is not the library's. */
bool eg__look_once(eg_tensor *y);
#endif

/* -- the table of operations: each file with operations ends in a list of them; table.c lists the
 * files */
bool eg__in_table(const eg_op *);
#endif
