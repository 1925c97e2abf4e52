/* capture.h: a captured step, as capture.c records it and captured.c runs it. */
#ifndef EG_TENSOR_CAPTURE_H
#define EG_TENSOR_CAPTURE_H
#include "tensor/tensor.h"

/* A row that is computed element by element by a kernel, in a run of its operands. */
typedef struct eg_captured_lane {
    eg_lanes l;
    int64_t n, step[4];    /* bytes */
    const eg_tensor *x[4]; /* the result, then the operands */
    /* from here on set when places are known. Strip `from` of operand k begins at p[k] + from ·
     * move[k] + thread · share[k] */
    char *p[4];
    int64_t move[4], share[4];
    bool whole; /* the kernel can be called with p and n as they are */
} eg_captured_lane;
/* Such rows, computed strip by strip (captured_pass.c). */
typedef struct eg_captured_pass {
    int64_t n, strip; /* elements */
    int64_t each;     /* bytes of a slot, which has a value for one strip */
    int64_t share;    /* bytes of a thread's slots */
    char *slots;
    int rows, threads;
    eg_captured_lane row[];
} eg_captured_pass;

/* One thing that a run does: a row's forward(), a pass, or an act. */
typedef struct eg_captured_item {
    bool (*forward)(eg_tensor *); /* of y's row; NULL: an act */
    eg_captured_pass *pass;       /* of y's row and those that follow it; or NULL */
    eg_captured_lane *lane;       /* while the step is captured: y's row as one of a pass */
    bool joined;                  /* …: it is part of the pass of an item before it */
    eg_tensor *y;                 /* the result of the row, or what the act writes to, or NULL */
    void *saved;                  /* of a row: what y->saved is when forward() begins */
    bool recording;               /* true if the context recorded a tape at the time */
    eg__arena *work; /* of a row: where forward() takes memory from; NULL: it takes none */
    uint64_t *draw;  /* seed and number of a draw, which each run has anew; or NULL */
    uint64_t drawn;  /* the draw's number, counted from the run's first draw */
    const eg_op *op; /* of a row, and its operands: y has them while it runs */
    int count;
    eg_act *act;
    eg_tensor **x; /* of an act */
    void *arg;
} eg_captured_item;
/* A leaf that is made with the same numbers in each run and then written to. */
typedef struct eg_captured_start {
    void *to, *from;
    size_t bytes;
} eg_captured_start;
/* A tensor that was there before the step. */
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
    int64_t steps; /* rows and acts: more than items where passes are one */
    int outputs;
    eg_tensor **output;
    uint64_t draws; /* how many a run makes */
    size_t bytes;
    int64_t failed; /* the item at which the last run ended; −1: before the first; items: none */
    eg_captured_watch *watch; /* of the run that goes on; or NULL */
};

/* Numbers that the step lays out: those of a row's result. */
typedef struct eg_captured_numbers {
    eg_tensor *of;
    int64_t bytes, first, last; /* first and last item that uses them */
    int64_t at;
    int slot; /* 1 + its slot in the one pass that uses it; 0: none */
} eg_captured_numbers;
/* What exists only while a step is captured: lists that grow, in a scope that is closed
 * afterwards. */
typedef struct eg__capture {
    eg_captured *c;
    eg__arena *numbers; /* where results lie until they are laid out */
    eg__arena *arena;   /* the owner's, which everything else lies in */
    uint64_t born;      /* tensors with greater numbers are of the step */
    uint64_t draw;      /* the number of the first draw */
    int64_t item_room, start_room, outside_room, count, count_room;
    eg_captured_numbers *each;
    const eg_tensor *lanes_of; /* while a row's forward() runs: what eg__lanes_run computed */
    eg_lanes lanes;            /* … and how */
} eg__capture;

/* Gives the numbers their places in one block, and every header its own. False after an error. */
bool eg__captured_lay_out(eg__capture *);

/* -- captured_pass.c -- */
/* Returns y's row, which is being appended and was computed by eg__lanes_run alone, as one of a
 * pass; NULL if it cannot be one, or after an error. */
eg_captured_lane *eg__capture_lane(eg__capture *, const eg_tensor *y);
/* Makes passes of the rows that can be one. False after an error. */
bool eg__captured_passes(eg__capture *);
/* Sets the addresses of a pass, after eg__captured_lay_out has set those of the numbers. */
void eg__captured_pass_bind(const eg__capture *, eg_captured_pass *);
void eg__captured_pass_run(eg_ctx *, eg_captured_pass *);
#endif
