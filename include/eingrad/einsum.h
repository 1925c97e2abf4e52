/* eingrad/einsum.h: an einsum planned beforehand, and explained. eg_einsum itself and its options
 * are in ops.h. */
#ifndef EINGRAD_EINSUM_H
#define EINGRAD_EINSUM_H
#include <eingrad/ops.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- plans: an einsum of fixed shapes, strides and types, made once and run often. A plan belongs
 * to no context, never changes, and may be run by several threads at the same time, each with an
 * `out` of its own. A run works on the thread that calls it; small products need no memory beyond
 * its stack, others malloc what they need for the run. Results are bit for bit those of
 * eg_einsum_to. */
/* strides in elements; NULL: row-major */
typedef struct eg_shape {
    eg_dtype dtype;
    int rank;
    const int64_t *dim, *stride;
} eg_shape;
EG_API eg_shape eg_shape_of(const eg_tensor *x); /* points into x */
typedef struct eg_plan eg_plan;
typedef struct eg_plan_args {
    size_t size;
    const char *spec;
    int count;
    const eg_shape *operands; /* f32, f64 or i64, all alike */
    const eg_shape *out;      /* NULL: row-major */
    bool broadcast, accumulate;
    const int (*path)[2];
    int steps;
    int64_t limit; /* as eg_einsum_args has them */
    char *why;
    size_t room; /* where a refusal is told, in one sentence; NULL: nowhere */
} eg_plan_args;
/* what eg_einsum would refuse is refused: NULL. Ended by … */
EG_API eg_plan *eg_plan_new_with(const eg_plan_args *);
EG_API void eg_plan_free(eg_plan *);                 /* … this; NULL is fine */
EG_API const eg_shape *eg_plan_out(const eg_plan *); /* of the result, strides too */
/* element 0 of each; out shares nothing with them; −1: out of memory */
EG_API int eg_plan_run(const eg_plan *, const void *const *operands, void *out);
/* −1 if a shape, stride or type is not the plan's, or out shares memory; not recorded, bumps out's
 * version */
EG_API int eg_plan_run_on(const eg_plan *, eg_tensor *const *operands, eg_tensor *out, char *why,
                          size_t room);

/* -- what einsum would do: the plan's own numbers; nothing is computed, nothing printed. In the
 * open scope; NULL after an error. */
/* in every operand and kept; kept; not kept */
typedef enum eg_role { EG_BATCH, EG_FREE, EG_SUMMED } eg_role;
/* bit k: operand k + 1 has it */
typedef struct eg_letter_role {
    const char *name;
    int length;
    int64_t size;
    eg_role role;
    uint64_t operands;
} eg_letter_role;
typedef struct eg_explained_step {
    int a, b; /* operands from 1; count + s is the result of step s; b = 0: one operand alone */
    const char *spec, *roles; /* "ibhd,jbhd->ijbh"; "batch b h, free i j, summed d" */
    int64_t batch, m, n, k;   /* the matrix product it is: free of a, free of b, summed */
    const char *kernel, *copies;
    /* each multiplication is added once; additions: terms summed without one */
    double multiplications, additions;
    double bytes; /* both operands and the result, each once */
} eg_explained_step;
typedef struct eg_explained {
    int steps;
    const eg_explained_step *step;
    int letters;
    const eg_letter_role *letter;
    /* "d1: ijbh,jbhd->ibhd": first comes the cotangent */
    int gradients;
    const char *const *gradient;
    /* totals; bytes of the largest intermediate */
    double multiplications, additions, bytes, largest;
    const char *text; /* all of it in words */
} eg_explained;
/* out and accumulate play no part */
EG_API const eg_explained *eg_explain_with(const eg_einsum_args *);
/* without tensors */
EG_API const eg_explained *eg_explain_shapes(eg_ctx *, const char *spec, bool broadcast, int count,
                                             const eg_shape *shapes);

#ifndef __cplusplus
#define eg_explain(spec, ...) \
    eg_explain_with(          \
        &(eg_einsum_args){ sizeof(eg_einsum_args), (spec), EG_XS_(__VA_ARGS__), .limit = 0 })
#define eg_plan_new(...) eg_plan_new_with(EG_ARGS_(eg_plan_args, __VA_ARGS__))
#endif

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_EINSUM_
#include <eingrad/cxx.h>
#endif
#endif
