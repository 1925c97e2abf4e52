/* eingrad/linear_attention.h: attention without a softmax, whose state has a fixed size. */
#ifndef EINGRAD_LINEAR_ATTENTION_H
#define EINGRAD_LINEAR_ATTENTION_H
#include <eingrad/ops.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- linear attention: y_i = Σ_j w_ij v_j / Σ_j w_ij,  w_ij = φ(q_i) · (Π_{j<s≤i} a_s) φ(k_j)
 *
 * It takes time and memory O(length). .phi is φ, .no_norm leaves the denominator out, .decay is a;
 * with .phi = "x", .no_norm and .decay it is RetNet or gated linear attention (GLA). Linear
 * attention is the recurrence over the keys
 *     S_j = a_j S_{j−1} + φ(k_j) v_j,   y_i = φ(q_i) S_i [/ φ(q_i)·z_i,  z as S with v = 1]
 * computed in chunks, which is faster and equal up to rounding: positions before a chunk contribute
 * through the S before it, those within the chunk through scores. Katharopoulos et al. 2020, eq. 5,
 * 9, 10; Sun et al. 2023; Yang et al. 2024. With .beta it is the (gated) delta rule
 *     S_j = a_j S_{j−1} + φ(k_j) u_j,   u_j = β_j (v_j − φ(k_j) · a_j S_{j−1}),   y_i = φ(q_i) S_i
 * Schlag et al. 2021 (DeltaNet); Yang, Kautz, Hatamizadeh 2025 (Gated DeltaNet); Kimi Team 2025.
 * With .read a key r_j reads and another one, k_j, writes: u_j = β_j (v_j − φ(r_j) · a_j S_{j−1})
 * Hu et al. 2025 (Comba); Peng et al. 2025 (RWKV-7) */
typedef struct eg_linear_attention_args {
    size_t size;
    const char *spec; /* "bihd,bjhd,bjhe->bihe", as eg_attention's */
    eg_tensor *q, *k, *v;

    /* the weights */
    const char *phi; /* a formula of x, as eg_expr's: "exp(x)", "x" (scores are q·k); NULL: "x > 0 ?
                      * x + 1 : exp(x)", which is elu(x) + 1 */
    double scale;    /* of q, before φ: 1 */
    bool no_norm;    /* y_i = Σ_j w_ij v_j */
    /* Numbers in [0, 1] by which S is multiplied before a key is added to it: { "h", t } has one
     * for each head, { "bjh", t } one for each position and head, { "bjhd", t } one for each
     * element of a key (a channel). It may have any letters of the key, and those of the output
     * except i and e. Needs .where; NULL: 1 */
    eg_masked decay;
    /* The delta rule: β, the share by which a key replaces what the state has for it. { "bjh", t },
     * letters as .decay's but no channel; in [0, 1], or up to 2, with keys of length 1. If β k·k >
     * 2, S grows by β k·k − 1 with each key of the same direction, and may overflow. Needs .where
     * and .no_norm, since there is no denominator; NULL: keys add to the state */
    eg_masked beta;

    /* what may be seen */
    /* "j <= i", with as many keys as queries plus .offset; and, joined by &, conditions on keys
     * only or on queries only, "j <= i & pad[b,j] & doc[b,i] > 0". One that reads neither, such as
     * "on[h]", is a condition on keys: queries still see .state. NULL: all */
    const char *where;
    eg_given with[8]; /* the tensors that it reads: integers and bools; ends at a NULL name */
    int64_t offset;   /* number of keys before that of the first query, at least 0: 0 */
    eg_masked keep;   /* { "bj", t }: the keys where t is true; bool or integer; NULL: all */

    /* how it is computed, with "j <= i" */
    /* positions in a chunk; 1: the recurrence, step by step. In a longer chunk a number that is not
     * finite may reach earlier positions of the chunk. Default: 64, with .beta 32, and 16 if .decay
     * has channels */
    int64_t chunk;
    /* S before the first key (NULL: 0), and where to put S after the last key (NULL: not
     * wanted): the state after one call is passed to the next, also if each has one position, as
     * in a decoder. Its axes are the letters of the key without j, then those letters of .decay,
     * .beta and the value that are not among them, then e. Without .no_norm the last axis has
     * one more element, for z */
    eg_tensor *state, **next;

    /* what else is wanted */
    eg_tensor **weights;      /* w, normalised as y is: O(length²) */
    const char *weights_axes; /* as eg_attention's */

    /* of the delta rule: the keys r that read the state, with the axes and sizes of k; masked as
     * the keys are. Needs .beta; NULL: k */
    eg_tensor *read;
} eg_linear_attention_args;
/* The result of a query whose weights sum to 0, or which .where masks, is 0. Refused: a predicate
 * that compares a query with a key in another way than "j <= i", such as a window or documents (for
 * packed documents set .decay to 0 at the first position of each); with "j <= i" a number of keys
 * that is not the number of queries plus .offset; .decay, .beta, .state, .next or .chunk without
 * it; .beta without .no_norm; .read without .beta, or of another shape or type than the keys; a
 * float .keep, or one with a letter of the query alone; a .phi that changes the type; queries and
 * keys of f16 and bf16, which eg_cast converts; operands of different types, except that values may
 * be f16 or bf16, as in einsum. */
EG_API eg_tensor *eg_linear_attention_with(const eg_linear_attention_args *);

#ifndef __cplusplus
#define eg_linear_attention(...) \
    eg_linear_attention_with(EG_ARGS_(eg_linear_attention_args, __VA_ARGS__))
#endif

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_LINEAR_ATTENTION_
#include <eingrad/cxx.h>
#endif
#endif
