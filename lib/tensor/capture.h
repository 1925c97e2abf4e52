/* capture.h: a captured step, which capture.c records and captured.c runs. */
#ifndef EG_TENSOR_CAPTURE_H
#define EG_TENSOR_CAPTURE_H
#include "tensor/tensor.h"

/* A row whose kernel computes element by element along one run of its operands. */
typedef struct eg_captured_lane {
    eg_lanes l;
    int64_t n, step[4];    /* bytes */
    const eg_tensor *x[4]; /* the result, then the operands */
    /* set when the positions of numbers are known: strip `from` of operand k begins at p[k] + from ·
     * move[k] + thread · share[k] */
    char *p[4];
    int64_t move[4], share[4];
    bool whole; /* a strip may be the whole run: the kernel is called with p and n as they are */
} eg_captured_lane;
/* Several such rows, computed together strip by strip (captured_pass.c). */
typedef struct eg_captured_pass {
    int64_t n, strip; /* elements */
    int64_t each;     /* bytes of a slot, which holds one strip of a value */
    int64_t share;    /* bytes of a thread's slots */
    char *slots;
    int rows, threads;
    eg_captured_lane row[];
} eg_captured_pass;

/* One item of a run: a row's forward(), a pass, or an act. */
typedef struct eg_captured_item {
    bool (*forward)(eg_tensor *); /* of y's row; NULL: an act */
    eg_captured_pass *pass;       /* a pass of y's row and the rows after it; or NULL */
    eg_captured_lane *lane;       /* while the step is captured: y's row if a pass may compute it */
    bool joined;                  /* …: an earlier item's pass computes this row */
    eg_tensor *y;                 /* the result of the row, or what the act writes to, or NULL */
    void *saved;                  /* of a row: y->saved before forward() runs */
    bool recording;               /* true if the context recorded a tape at the time */
    eg__arena *work; /* of a row: the arena that forward() takes memory from; NULL: it takes none */
    uint64_t *draw;  /* seed and number of a draw, renewed in each run; or NULL */
    uint64_t drawn;  /* the draw's number, counted from the run's first draw */
    const eg_op *op; /* of a row, with its operands: y has them while the row runs */
    int count;
    eg_act *act;
    eg_tensor **x; /* of an act */
    void *arg;
} eg_captured_item;
/* A leaf that is created with the same numbers in each run and then written to. */
typedef struct eg_captured_start {
    void *to, *from;
    size_t bytes;
} eg_captured_start;
/* A tensor that was made before the step. */
typedef struct eg_captured_outside {
    eg_tensor *x;
    uint64_t seq;
} eg_captured_outside;
struct eg_captured {
    eg_ctx *cx;
    eg_owner *owner;
    eg_captured_item *item;
    eg_captured_start *start;
    eg_captured_outside *outside;
    int64_t items, starts, outsides;
    int64_t steps; /* rows and acts; more than items if there are passes */
    int outputs;
    eg_tensor **output;
    uint64_t draws; /* draws of one run */
    bool training;  /* the context's state when the step began */
    size_t bytes;
    int64_t failed; /* item at which the last run failed; −1: before the first; items: none */
    eg_captured_watch *watch; /* of the run that goes on now; or NULL */
};

/* Numbers that get a place in the step's block: those of a row's result. */
typedef struct eg_captured_numbers {
    eg_tensor *of;
    int64_t bytes, first, last; /* first and last item that uses these numbers */
    int64_t at;
    int slot; /* 1 + slot, if a single pass uses these numbers; else 0 */
} eg_captured_numbers;
/* The state that exists only while a step is captured: lists that grow, in a scope that is closed
 * afterwards. */
typedef struct eg__capture {
    eg_captured *c;
    eg__arena *numbers; /* holds results until they get their positions */
    eg__arena *arena;   /* the owner's arena, which holds all the rest */
    uint64_t born;      /* tensors with greater numbers were made by the step */
    uint64_t draw;      /* the number of the step's first draw */
    int64_t item_room, start_room, outside_room, count, count_room;
    eg_captured_numbers *each;
    const eg_tensor *lanes_of; /* while a row's forward() runs: what eg__lanes_run computed */
    eg_lanes lanes;            /* … and how it was computed */
} eg__capture;

/* Finds positions in one block for all numbers, and sets every header's address. False after an
 * error. */
bool eg__captured_lay_out(eg__capture *);

/* -- captured_pass.c -- */
/* y's row, which is being appended, was computed by eg__lanes_run alone. Returns the row as a
 * candidate for a pass; NULL if it cannot be one, and after an error. */
eg_captured_lane *eg__capture_lane(eg__capture *, const eg_tensor *y);
/* Joins rows to passes where that is possible. False after an error. */
bool eg__captured_passes(eg__capture *);
/* Sets the addresses in a pass. Call it after eg__captured_lay_out has set those of the numbers. */
void eg__captured_pass_bind(const eg__capture *, eg_captured_pass *);
void eg__captured_pass_run(eg_ctx *, eg_captured_pass *);
#endif
