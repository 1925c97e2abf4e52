/* eingrad/einsum.h: plans of einsums, and explanations of their cost. eg_einsum itself and its
 * options are in ops.h. */
#ifndef EINGRAD_EINSUM_H
#define EINGRAD_EINSUM_H
#include <eingrad/ops.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- plans: an einsum of fixed shapes, strides and dtypes, made once and run often
 * A plan belongs to no context, never changes, and may be run by several threads at the same time,
 * each with an `out` of its own. A run uses the calling thread alone; small products need no memory
 * beyond its stack, others call malloc for the time of the run. Results are bitwise equal to those
 * of eg_einsum_to. */
typedef struct eg_shape {
    eg_dtype dtype;
    int rank;
    const int64_t *dim;    /* rank sizes */
    const int64_t *stride; /* rank strides, in elements; NULL: row-major */
} eg_shape;
/* The shape of x; its pointers are valid as long as x. The dtype is EG_DEFAULT if x is not
 * eg_ok. */
EG_API eg_shape eg_shape_of(const eg_tensor *x);
typedef struct eg_plan eg_plan;
typedef struct eg_plan_args {
    size_t size;
    const char *spec;
    int count; /* of operands */
    /* count of them, of one dtype: f32, f64 or i64; f16 and bf16 may be mixed with f32 or f64 */
    const eg_shape *operands;
    const eg_shape *out; /* NULL: row-major */
    /* the next six as in eg_einsum_args */
    bool broadcast;
    double alpha;
    double beta;
    const int (*path)[2];
    int steps;
    int64_t limit;
    char *why;       /* receives the message of an error; NULL: not wanted */
    size_t why_size; /* bytes of why */
} eg_plan_args;
/* Returns a plan, to be freed with eg_plan_free; NULL if eg_einsum would refuse the arguments, or
 * if there is no memory. */
EG_API eg_plan *eg_plan_new_with(const eg_plan_args *);
EG_API void eg_plan_free(eg_plan *); /* NULL is fine */
/* The shape of the result, with strides; it lives as long as the plan. */
EG_API const eg_shape *eg_plan_out(const eg_plan *);
/* Runs the plan on data: pointers to element 0 of each operand and of out, which shares no memory
 * with them. Returns 0; −1 if there is no memory, or an argument is NULL. */
EG_API int eg_plan_run(const eg_plan *, const void *const *operands, void *out);
/* Runs the plan on tensors. Returns −1, with the reason in `why`, if a shape, stride or dtype is
 * not the plan's, if out shares memory with an operand, or in a captured step (capture.h), which
 * needs eg_einsum_to instead. Not recorded; out counts as written to. */
EG_API int eg_plan_run_on(const eg_plan *, eg_tensor *const *operands, eg_tensor *out, char *why,
                          size_t why_size);

/* -- explanations: what an einsum would do, in numbers and words
 * Nothing is computed or printed. The results live in the open scope; NULL after an error. */
/* The role of an index. */
typedef enum eg_role {
    EG_BATCH, /* in every operand and in the result */
    EG_FREE,  /* in the result, not in every operand */
    EG_SUMMED /* not in the result */
} eg_role;
typedef struct eg_letter_role {
    const char *name; /* not ended by a 0 */
    int length;       /* of name */
    int64_t size;
    eg_role role;
    uint64_t operands; /* bit k: operand k + 1 has the index */
} eg_letter_role;
typedef struct eg_explained_step {
    int a, b;          /* operands from 1; count + s is the result of step s; b = 0: a alone */
    const char *spec;  /* "ibhd,jbhd->ijbh" */
    const char *roles; /* "batch b h, free i j, summed d" */
    /* the step as `batch` matrix products of (m k) and (k n) */
    int64_t batch, m, n, k;
    const char *kernel;     /* the loop or micro-kernel that computes it */
    const char *copies;     /* the operands that are copied for it */
    double multiplications; /* each followed by one addition */
    double additions;       /* of terms that are summed without a multiplication */
    double bytes;           /* of both operands and the result, each once */
    bool kept;              /* its result is kept for the gradient */
} eg_explained_step;
typedef struct eg_explained {
    int steps;
    const eg_explained_step *step;
    int letters;
    const eg_letter_role *letter;
    int gradients;                            /* one for each operand of floats */
    const char *const *gradient;              /* "d1: ijbh,jbhd->ibhd"; the cotangent comes first */
    double multiplications, additions, bytes; /* of all steps */
    double largest;                           /* bytes of the largest intermediate */
    /* multiply-adds, as eg_usage counts them: of the value, and of all gradients together if
     * neither the cotangent nor an operand is expanded along an axis */
    double forward, backward;
    double kept; /* bytes that are kept for the gradient */
    /* largest number of bytes in use at one time, without the operands: for the value and what is
     * kept; and for all gradients, if intermediate cotangents are freed only with their scope */
    double memory, gradient_memory;
    const char *text; /* all of it in words */
} eg_explained;
/* eg_explain(spec, operands …): how eg_einsum would compute these operands. .out, .add, .alpha and
 * .beta are ignored. */
EG_API const eg_explained *eg_explain_with(const eg_einsum_args *);
/* eg_explain_shapes(cx, .spec = "ij,jk->ik", .count = 2, .shapes = shapes): eg_explain for shapes
 * instead of tensors. */
typedef struct eg_explain_args {
    size_t size;
    const char *spec;
    int count;              /* of operands */
    const eg_shape *shapes; /* count of them */
    /* the next five as in eg_einsum_args */
    bool broadcast;
    const int (*path)[2];
    int steps;
    int64_t limit;
    int64_t keep_limit;
} eg_explain_args;
EG_API const eg_explained *eg_explain_shapes_with(eg_ctx *, const eg_explain_args *);

/* The sums of sizes and costs over the operations and leaves that y was computed from. */
typedef struct eg_explained_graph {
    int64_t nodes;        /* operations */
    int64_t leaves;       /* tensors that no operation made */
    int64_t parameters;   /* numbers in leaves of floats that an owner holds, as a module's */
    int64_t inputs;       /* numbers in the other leaves */
    double multiply_adds; /* of contractions; in fused attention without skipped tiles */
    double bytes;         /* of results that have memory of their own, and kept for the gradient */
    const char *text;     /* the same in words */
    /* of the operations' results, the dtype of floats with the fewest bits, whose rounding errors y
     * has: f16, bf16, f32, f64; EG_DEFAULT: no result has floats */
    eg_dtype narrowest;
} eg_explained_graph;
/* Adds up the recorded graph of y. The result lives in the open scope; NULL after an error. */
EG_API const eg_explained_graph *eg_explain_graph(eg_tensor *y);

#ifndef __cplusplus
#define eg_explain(spec, ...) \
    eg_explain_with(          \
        &(eg_einsum_args){ sizeof(eg_einsum_args), (spec), EG_XS_(__VA_ARGS__), .limit = 0 })
#define eg_explain_shapes(cx, ...) \
    eg_explain_shapes_with((cx), EG_ARGS_(eg_explain_args, __VA_ARGS__))
#define eg_plan_new(...) eg_plan_new_with(EG_ARGS_(eg_plan_args, __VA_ARGS__))
#endif

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_EINSUM_
#include <eingrad/cxx.h>
#endif
#endif
