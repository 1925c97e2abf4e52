/* probe.h: what a gradient check sees of the tape while it runs: the tensors that f reads, and the cotangents of a sweep. */
#ifndef EG_PROBE_H
#define EG_PROBE_H
#include "core/context.h"

typedef struct eg__moved {              /* a tensor older than the check, for its time in f64 and without history     */
    struct eg__moved *next;
    eg_tensor  *t;
    uint8_t     dtype;
    int         count;
    const eg_op *op;
    char       *data;
    eg_storage *st, now;                /* the one it had, and the one it has while the check runs                    */
} eg__moved;

/* an operation, the user's call, einsum's string */
typedef struct eg__site { const char *name; const void *caller; char spec[64]; } eg__site;
typedef enum eg__mutation { EG_MUTATE_NONE, EG_MUTATE_SIGN, EG_MUTATE_FACTOR, EG_MUTATE_ZERO, EG_MUTATE_SWAP, EG_MUTATIONS } eg__mutation;
typedef struct eg__probe {
    struct eg__probe *outer;            /* of the check whose f runs this one; NULL                                   */
    uint64_t   born;                    /* tensors with a smaller number are older than the check                     */
    eg__arena *home;                    /* what it allocates lives as long as the check                               */
    eg__moved *moved;
    eg__site   cast;                    /* the operation that made f32 of f64 inside f; name NULL: none               */
    eg__mutation mutation;
    int64_t    edge, edges;             /* the edge to mutate, counted from 0 in the order of the sweep; edges seen so far */
    double     changed, largest;        /* by how much the mutation changed its cotangent at most; the largest entry of any cotangent */
    eg__site   at; int operand;         /* the operation whose rule gave that cotangent, and for which operand        */
} eg__probe;

/* x lies at data (f64, its own strides) until the end; *now: its storage, or NULL and a new one is made */
bool eg__probe_input(eg_ctx *, eg_tensor *x, char *data, eg_storage **now);
eg__site eg__site_of(const eg_tensor *y);
void eg__probe_operand(eg_ctx *, eg_tensor *x);                                 /* of every operation, before its type is read  */
eg_tensor *eg__probe_cotangent(eg_ctx *, const eg_tensor *y, int i, eg_tensor *c);      /* of every rule's result     */
void eg__probe_end(eg_ctx *);                                                   /* every tensor as it was, the outer probe again */
void eg__reach(const eg_tensor *x, int64_t *low, int64_t *high);                /* the elements that x's strides reach; size > 0 */
static inline double eg__element(const eg_tensor *x, int64_t at)                /* of f32 or f64; at: elements from element 0   */
{
    return x->dtype == EG_F32 ? (double)((const float *)(const void *)x->data)[at] : ((const double *)(const void *)x->data)[at];
}
#endif
