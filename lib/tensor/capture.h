/* capture.h: a captured step, which capture.c records and captured.c runs. */
#ifndef EG_TENSOR_CAPTURE_H
#define EG_TENSOR_CAPTURE_H
#include "tensor/tensor.h"

/* An operation whose kernel computes its elements one after another along one run of its
 * operands. */
typedef struct eg_captured_lane {
    eg_lanes l;
    int64_t n, step[4];    /* step in bytes */
    const eg_tensor *x[4]; /* the result, then the operands */
    /* Set when the addresses of all elements are known: the strip of operand k that begins at
     * element `from` is at p[k] + from · move[k] + thread · share[k]. */
    char *p[4];
    int64_t move[4], share[4];
    /* the kernel can be called with p and n as they are, without copies and padding
     * (eg__lanes_inner) */
    bool whole;
} eg_captured_lane;
/* Several such operations that are computed together, strip by strip (captured_pass.c). */
typedef struct eg_captured_pass {
    int64_t n, strip; /* elements */
    int64_t each;     /* bytes of a slot, which holds one strip of a value */
    int64_t share;    /* bytes of a thread's slots */
    char *slots;
    int rows, threads;
    eg_captured_lane row[];
} eg_captured_pass;

/* One item of a run: the forward() of an operation, a pass, or an act. */
typedef struct eg_captured_item {
    bool (*forward)(eg_tensor *); /* of y's operation; NULL for an act */
    /* a pass that computes y and the results of the items after it; or NULL */
    eg_captured_pass *pass;
    /* while the step is captured: y's operation if a pass may compute it; else NULL */
    eg_captured_lane *lane;
    bool joined;    /* while the step is captured: the pass of an earlier item computes y */
    eg_tensor *y;   /* the result of the operation, or the tensor that the act writes to, or NULL */
    void *saved;    /* of an operation: the value of y->saved before forward() runs */
    bool recording; /* true if the context recorded a tape at that time */
    /* of an operation: the arena from which forward() takes memory; NULL if it takes none */
    eg__arena *work;
    uint64_t *draw;  /* seed and number of a draw, which each run sets; or NULL */
    uint64_t drawn;  /* number of the draw, relative to the first draw of the run */
    uint64_t draws;  /* draws that forward() or act() makes, from number `drawn` on; 0 if none */
    const eg_op *op; /* the operation and its operands, which y has while forward() runs */
    int count;
    eg_act *act;
    eg_tensor **x; /* operands of an act */
    void *arg;
} eg_captured_item;
/* A leaf that is created with the same elements in each run and is then written to. */
typedef struct eg_captured_start {
    void *to, *from;
    size_t bytes;
} eg_captured_start;
/* A tensor that was made before the step. */
typedef struct eg_captured_outside {
    const eg_tensor *x;
    uint64_t seq;
} eg_captured_outside;
struct eg_captured {
    eg_ctx *cx;
    eg_owner *owner;
    eg_captured_item *item;
    eg_captured_start *start;
    eg_captured_outside *outside;
    int64_t items, starts, outsides;
    int64_t steps; /* number of operations and acts; larger than `items` if there are passes */
    int outputs;
    eg_tensor **output;
    uint64_t draws; /* number of draws in a run */
    bool training;  /* eg_training of the context when the step began */
    size_t bytes;
    /* the item at which the last run failed; −1: before the first item; `items`: it did not fail */
    int64_t failed;
    eg_captured_watch *watch; /* of the current run; or NULL */
};

/* The elements of an operation's result, which get an address in the block of the step. */
typedef struct eg_captured_numbers {
    eg_tensor *of;
    int64_t bytes, first, last; /* first and last item that uses these elements */
    int64_t at;
    int slot; /* 1 + slot if only one pass uses these elements; else 0 */
} eg_captured_numbers;
/* The state that exists only while a step is captured: lists, in a scope that is closed
 * afterwards. */
typedef struct eg__capture {
    eg_captured *c;
    eg__arena *numbers;  /* holds results until they get their addresses in the block */
    eg__arena *arena;    /* the owner's arena, which holds everything else */
    uint64_t seq_before; /* tensors with a larger `seq` were made by the step */
    uint64_t draw;       /* the number of the first draw of the step */
    int64_t item_capacity, start_capacity, outside_capacity, count, count_capacity;
    eg_captured_numbers *each;
    /* while an operation's forward() runs: the node that eg__lanes_run computed */
    const eg_tensor *lanes_of;
    eg_lanes lanes; /* the kernel with which it was computed */
} eg__capture;

/* Assigns addresses in one block to all results, and sets `data` of every header. False after an
 * error. */
bool eg__captured_lay_out(eg__capture *);

/* -- captured_pass.c -- */
/* Called for y, whose item is being appended. Returns y's operation as a candidate for a pass if
 * forward() did nothing but call eg__lanes_run; NULL if it cannot be part of a pass, and after an
 * error. */
eg_captured_lane *eg__capture_lane(eg__capture *, const eg_tensor *y);
/* Combines items into passes where possible. False after an error. */
bool eg__captured_passes(eg__capture *);
/* Sets the addresses in a pass. eg__captured_lay_out must have set those of the results before. */
void eg__captured_pass_bind(const eg__capture *, eg_captured_pass *);
void eg__captured_pass_run(eg_ctx *, eg_captured_pass *);
#endif
