/* loop.h: the loop of a formula over its result, for the files of this folder; loop.c defines the
 * functions. */
#ifndef EG_RESULT_LOOP_H
#define EG_RESULT_LOOP_H
#include "expression/expression.h"

/* A loop over the elements of a result. Its axes are groups of letters that are joined; it is cut
 * into blocks. */
typedef struct eg_result_loop {
    eg_ctx *cx;
    const eg_expression *e;
    int root, letters, groups;
    int last[EG_EXPRESSION_LETTERS]; /* of each group its last letter, which stands for all of it */
    int64_t count[EG_EXPRESSION_LETTERS],
        step[EG_EXPRESSION_LETTERS]; /* of each group: positions, and the stride in the result */
    int64_t row_blocks, lane_blocks, blocks, elements;
    eg_block_plan plan;
    eg_source source[EG_TENSORS_MAX];
    int64_t strides[EG_TENSORS_MAX][EG_READ_MAX];
    eg_sink sink[EG_TENSORS_MAX];
    void *out;
    const void *g;
    const uint8_t *allow; /* over the result: eg_block_data.allow; NULL: all count */
    char *workspace;      /* plan.bytes for each thread */
    double *sums;         /* of cotangents that are added: a set for each piece */
    int64_t summed;       /* doubles in a set */
    int64_t pieces;
} eg_result_loop;
/* Prepares the loop for the value of node `root` over letters of these sizes; wanted: bits of the
 * tensors whose cotangents are wanted. False after an error. */
bool eg__result_loop(eg_result_loop *o, eg_ctx *cx, const eg_expression *e, int root, int letters,
                     const int64_t *size, eg_tensor *const *x, int count, bool f64,
                     uint32_t wanted);
/* Runs the loop: computes values to o->out if that is set, and cotangents to o->sink if o->g is,
 * which the caller sets after eg__result_loop. o->pieces: into how many pieces the blocks are
 * divided; 0: as many as suit the threads. False after an error. */
bool eg__result_loop_run(eg_result_loop *o);
#endif
