/* einsum.h: contraction on labels. Strings are the business of lib/notation; here an axis is a small number.
 *
 *   strings.c  the public einsum: a string and tensors in, labels out; options
 *   einsum.c   the row: labels in, one tensor out, its rule is einsum again
 *   call.c     a call that was made before, found by its text and operands
 *   cache.c    what is kept in the context: calls, what strings said, how contractions are done
 *   program.c  labels, sizes, strides: the order, what each pair leaves, how it is done; and doing it
 *   plan.c     a program that no context owns; explain.c: a program in words
 *   order.c    which pair next: exact for few operands, greedy beyond
 *   pair.c     two operands: fuse axes, classify batch / m / n / k, choose a kernel
 *   gemm.c     packing from any strides into micro-panels, blocking
 *   direct.c   small products without packing; apart.c: batches that lie nearest
 *   blis.c     the only file that knows BLIS: a micro-kernel, its register block, its name */
#ifndef EG_EINSUM_H
#define EG_EINSUM_H
#include "impl.h"

enum { EG_EINSUM_MAX = 64, EG_LABEL_MAX = 512 };    /* operands; different labels of one contraction */

/* y[out] = Σ Π x_k[label_k] over the labels that are not in out. A label may repeat inside an operand (diagonal) and in out
 * (zero-filled diagonal). Every label of out is in some operand; sizes agree (the caller has checked). Recorded as one node. */
eg_tensor *eg__einsum(int count, eg_tensor *const *x, const uint16_t *const *label, int out_rank, const uint16_t *out);

/* -- pair.c: c = Σ a b (+ c if add). An axis is described by its size and its stride in each operand (0 where absent).
 * Strides in elements. An axis with sc ≠ 0 or size kept is free or batch, one in neither a nor b nor… is refused by assert. */
typedef struct eg_axis { int64_t size, sa, sb, sc; bool in_a, in_b, in_c; } eg_axis;
bool eg__pair(eg_ctx *, eg_dtype, int axes, const eg_axis *axis, const void *a, const void *b, void *c, bool add);
/* b NULL: c = Σ a, a pure reduction / transposition / copy / diagonal. The same in two parts, with the same bits: */
typedef struct eg_pairing eg_pairing;
typedef enum eg_way {
    EG_WAY_NOTHING, EG_WAY_ZERO, EG_WAY_PLAIN, EG_WAY_MAP, EG_WAY_SUM, EG_WAY_DIRECT, EG_WAY_PACKED, EG_WAY_APART
} eg_way;
eg_way eg__way(const eg_pairing *);
bool eg__way_copies(const eg_pairing *);            /* EG_WAY_DIRECT: strips of an operand?           */
size_t eg__pairing_bytes(int axes);
/* in room of that size; at most 3 · EG_RANK_MAX axes */
void eg__pairing(eg_pairing *, eg_dtype dtype, int axes, const eg_axis *axis, bool two);
bool eg__pair_run(eg_ctx *, const eg_pairing *, const void *a, const void *b, void *c, bool add);

/* -- order.c: the sequence of pairs -----------------------------------------------------------------------------------------------
 * Step s contracts pairs[s] into operand number n + s; there are n − 1 steps (n = 1: none). A step keeps the labels that a later
 * operand or out has and sums the others; labels that one operand alone has are summed in it first (eg__pair does so by itself).
 * Exact up to EG_ORDER_EXACT operands, greedy with local exact repair beyond. False if n is not 1 … EG_EINSUM_MAX, or if no order
 * was found whose intermediate results (not the last) all have at most `limit` elements (0: no limit). No allocation. */
enum { EG_ORDER_EXACT = 10 };
typedef struct eg_labelset { uint64_t bits[EG_LABEL_MAX / 64]; } eg_labelset;
/* opt_einsum's count (a first sum counts its operand once); elements of the largest intermediate */
typedef struct eg_cost { double flops, largest; } eg_cost;
bool eg__order(int n, const eg_labelset *ops, const eg_labelset *out, const double *size, double limit, int (*pairs)[2], eg_cost *cost);

/* -- blis.c -------------------------------------------------------------------------------------------------------------------- */
enum { EG_KERNEL_SIDE = 64 };       /* no register block is larger                                    */
typedef struct eg_kernel {          /* c[mr×nr] (+)= Σ_p a[p·mr + i] b[p·nr + j]; a, b packed panels, 64-byte aligned */
    const char *name;               /* "skx", "haswell", "plain C"                                     */
    int mr, nr;
    bool rows;                      /* prefers to store c by rows (cs = 1)                             */
    void (*run)(const struct eg_kernel *, int64_t k, const void *a, const void *b, bool add, void *c, int64_t rs, int64_t cs);
    void *ukr, *cntx;
} eg_kernel;
typedef enum eg_isa { EG_ISA_PLAIN, EG_ISA_AVX2, EG_ISA_AVX512 } eg_isa;
const eg_kernel *eg__kernel(eg_dtype);              /* chosen once per process from CPUID and BLIS_ARCH_TYPE; never NULL */
eg_isa eg__kernel_isa(void);                        /* what our own kernels may use                   */
const char *eg__kernel_why(void);                   /* one sentence: what was chosen and why          */
#endif
