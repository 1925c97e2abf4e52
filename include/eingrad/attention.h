/* eingrad/attention.h: attention in any layout, its masks, and its intermediate results;
 * docs/attention.md. Modules are in mha.h and model.h. */
#ifndef EINGRAD_ATTENTION_H
#define EINGRAD_ATTENTION_H
#include <eingrad/ops.h>
#include <eingrad/ranks.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- attention: y = softmax(score(scale q·k)) v
 * The softmax runs over the letters that k and v share and q and y lack (the keys): j in
 * "ibhd,jbhd,jbhe->ibhe". The axes may have any order; grouped heads are letters: "b i g r d, b j g
 * d, b j g e -> b i g r e". With several masks a pair is allowed if all of them allow it. The
 * result of a query without an allowed key is 0, with gradient 0. NaN and infinities in forbidden
 * keys and values change nothing. There are gradients of any order; for that of first order the
 * fused form keeps no weights. Vaswani et al. 2017, eq. 1; tiles: Dao et al. 2022.
 *
 * Where numbers are not finite, allowed pairs follow IEEE arithmetic. Both forms then compute, with
 * the weights P, dropout's mask times its factor m, and the cotangent g of y:
 *   y = (m P) v,  dv = (m P) g,  dP = m (g v),  D = Σ P dP,  dS = P (dP − D),  dz = −P_z D
 * of a sink z; the log-sum-exp with the cotangent h adds P h to dS and P_z h to dz. Exceptions:
 * scores of ∞ share the weight of their row; the terms of y, dS and dz are 0 where their weight is
 * 0; a dP that is dropped is 0; with masks, a bias or a score, a weight of 0 adds nothing to dv.
 *
 * Refused:
 * - a letter of a single operand that is not in the output; no letter that only q and k share; no
 *   key letter
 * - operands of different types, except f16 and bf16 (below); masks with letters that the scores
 *   lack
 * - several key letters if the query has as many letters that no other operand has (in
 *   "bihd,bjgd,bjge", g is probably meant to be the head h), unless the key letters are merged:
 *   (j k)
 * - a width of 0 without .scale
 * - expressions that cannot be read, an index in them that can be out of range for an allowed pair,
 *   a tensor of which an axis is longer than the batch or head letter that is its whole index (an
 *   axis that a query or key letter indexes may be longer), tensors of .with that neither
 *   expression reads, an offset that is negative or applies to no index
 * - .score_fn or .weights_fn with EG_FUSED
 *
 * Operands of f16 and bf16, such as the keys and values of a cache, are converted to the type of
 * the result: f64 if an operand is f64, else f32. They are constants for gradients. In the unfused
 * form of a call that is not recorded, einsum converts keys and values while it reads them, unless
 * a mask is given and one of them has an element that is not finite; otherwise they are cast
 * before.
 */
/* EG_FUSED: the weights of one tile are in memory at a time: O(length); subnormal numbers count as
 * 0, as with eg_flush, since a tile of weights near e^-90 would otherwise take ten times as long;
 * EG_UNFUSED: einsum, softmax, einsum. Both give the same up to rounding. EG_FORM_BY_SIZE, the
 * default: one of the two; docs/attention.md has the sizes. */
typedef enum eg_form { EG_FORM_BY_SIZE, EG_FUSED, EG_UNFUSED } eg_form;
/* A further result is stored at a pointer (eg_tensor **); NULL: it is not wanted. Results that have
 * the letters of the scores have them in the order of `weights_axes`. */
typedef struct eg_attention_args {
    size_t size;
    const char *spec; /* "ibhd,jbhd,jbhe->ibhe" */
    eg_tensor *q, *k, *v;

    /* masks; NULL: all pairs are allowed */
    /* a predicate of the scores' letters and of integer and bool tensors of `with`,
     * "j <= i & doc[b,i] == doc[b,j]"; docs/expressions.md */
    const char *where;
    /* the number of positions before the first query, at least 0, such as the keys in a cache: the
     * query's index in `where`, `score` and alibi starts there, and its size |i| includes it.
     * Default 0 */
    int64_t offset;
    /* the index that the offset applies to, "i"; NULL: the only one of `where` and `score` that
     * only the query has, else the only one that is not a key; if there are several, an offset is
     * refused */
    const char *offset_letter;
    eg_masked keep;    /* { "bj", t }: the pairs where t is not 0; bool or integer */
    eg_masked lengths; /* { "b", t }: the first t[b] keys, 0 ≤ t ≤ their number; i32 or i64 */

    /* the scores */
    double scale; /* of q·k: 1/√d, d the product of the sizes of the letters that q·k sums over */
    /* an expression whose value replaces each score, "30 * tanh((score + r[h, clip(i - j, 0, 127)])
     * / 30)": `score` in it is scale q·k; bias and alibi are added to the result, then score_fn is
     * called. NULL: the scores stay as they are */
    const char *score;
    eg_given with[8]; /* the tensors that where and score read; ends at a NULL name */
    eg_masked bias;   /* { "hij", t }: t is added to the scores. −inf forbids its pair, also with
                       * no_softmax; if a row has scores of ∞, these share its weight; a NaN makes
                       * its row NaN */
    /* { "h", m }: − m |i − j| is added to the scores, differentiable; i is the only letter of the
     * queries that m lacks, or .offset_letter, and j the only key letter. Press et al. 2022 */
    eg_masked alibi;
    /* { "h", z }: e^z is added to the denominator of the softmax; any letters of the scores except
     * those of the keys. The sink acts as one more key, with value 0, that every query attends to:
     * −∞ has no effect, ∞ takes all the weight (of n scores of ∞ in that row, each then has the
     * weight 1/(n + 1)), and a NaN makes its rows NaN. A row without an allowed key is 0 with any
     * sink */
    eg_masked sink;
    /* the scores are the weights, 0 where the masks forbid; lse, empty and sink are refused */
    bool no_softmax;
    /* score_fn(user, scores) returns new scores, before the masks, and weights_fn(user, weights)
     * new weights, before dropout; both get axes in the order of weights_axes and keep the shape.
     * NULL: none. All scores and weights are then in memory. score_fn may read scores of forbidden
     * pairs; if q, k or v has an element that is not finite or beyond 1e15 (f64: 1e150), q·k is 0
     * there */
    eg_tensor *(*score_fn)(void *user, eg_tensor *scores);
    eg_tensor *(*weights_fn)(void *user, eg_tensor *weights);
    void *user;

    double dropout; /* probability that a weight is dropped, after the softmax, in [0, 1]: 0 */
    eg_form form;   /* EG_FORM_BY_SIZE: the faster one, by sizes and the text of the masks */

    /* the ranks among which the sequence is divided, see below; NULL: it is not divided */
    eg_ranks *ranks;
    int64_t ranks_block; /* positions in a block, of queries and of keys: 512 */
    bool zigzag; /* a rank has two ranges of positions, one from each end, to balance causal work */

    /* further results */
    eg_tensor **weights; /* the weights before dropout */
    eg_tensor **dropped; /* … and after it */
    eg_tensor **scores;  /* after score, bias, alibi and score_fn, before the masks */
    /* ln Σ e^scores, the sink included; it has the letters of the weights without the keys, and is
     * −inf for a query without an allowed key and without a sink */
    eg_tensor **lse;
    /* receives the number of rows of scores (queries of each batch, head and copy) without an
     * allowed key; with a sink 0. Without a sink it is refused in a captured step */
    int64_t *empty;
    /* letters of the weights; NULL: those of the output without the value's own, the summed ones
     * last */
    const char *weights_axes;
    /* the largest score of each query that is allowed, with the letters of lse and without a
     * gradient; −inf for a query without an allowed key. Refused with .sink and .no_softmax */
    eg_tensor **max_scores;
} eg_attention_args;
/* Returns y = softmax(score(scale q·k)) v, with the letters of the string. Requesting weights,
 * scores, lse or max_scores changes no bit of y. Weights, scores and lse have gradients too.
 * Weights and scores take O(length²) memory. */
EG_API eg_tensor *eg_attention_with(const eg_attention_args *);

/* -- a length divided among ranks (docs/distributed.md) ----------------------------------------
 * With .ranks every rank calls eg_attention with the queries, keys and values of its own positions,
 * and gets the results of its own queries, in their order. Keys and values are passed around the
 * ring of ranks; a rank has memory for its own part and for that of one other rank. The bits depend
 * only on the length and .ranks_block, so a group of one rank gives the same bits. Without .ranks
 * the results are equal up to rounding, except that .dropout draws other numbers. Letters in
 * `where` and `score` count positions of the whole sequence. Tensors of .with, .keep, .lengths,
 * .bias, .alibi and .sink are complete on every rank, and so are their gradients; only a sink with
 * the query's index has this rank's queries. Dropout draws the same numbers as in a group of one
 * rank. There are gradients of any order, with the same bits; for orders above the first each rank
 * gathers the sequence and computes all of it, with the time and the memory of one process, and
 * with .dropout they are refused. Liu, Zaharia, Abbeel 2023; zigzag: Brandon et al. 2023.
 *
 * Also refused: groups, 1 and an ellipsis in the spec; more than one index that only the key has,
 * or that only the query has unless .offset_letter names it; a number of positions that is not that
 * of eg_attention_positions; ranks whose options, other sizes or, with .dropout, random state
 * differ; weights, scores, max_scores, functions of scores and weights, .no_softmax. */
/* Sets positions[] to the one or two ranges of positions that this rank has of a sequence of
 * `length`. Returns the number of ranges. block 0: 512. Modules take the same three options (mha.h,
 * model.h). */
EG_API int eg_attention_positions(const eg_ranks *, int64_t length, int64_t block, bool zigzag,
                                  eg_span positions[2]);

/* Returns the length of the whole sequence, of which this rank has `positions` positions. All ranks
 * call it. −1 on every rank after an error: some rank has another number of positions than
 * eg_attention_positions says. */
EG_API int64_t eg_attention_length(eg_ranks *, int64_t positions, int64_t block, bool zigzag);

/* -- masks ------------------------------------------------------------------------------------ */
/* Converts a bool or integer mask in which true means ignore, as in nn.MultiheadAttention of
 * PyTorch, to one for .keep. A float mask is refused. The masks of its scaled_dot_product_attention
 * need no change: a bool one is a .keep, a float one a .bias */
EG_API eg_tensor *eg_mask_ignore(eg_tensor *ignore);
/* Converts a float mask of 0 and −inf to one for .keep. Refused: other numbers (use such a mask as
 * .bias). It reads the mask, so a captured step refuses it. */
EG_API eg_tensor *eg_mask_additive(eg_tensor *added);
/* Returns the slopes (heads) for .alibi: 2^(−8k/n), k = 1 … n, if n = heads is a power of two; else
 * those of the power of two below, then every other one of the power of two above. Press et al.
 * 2022. Refused: fewer than 1, more than 2²⁰ heads; in a captured step */
EG_API eg_tensor *eg_alibi_slopes(eg_ctx *, int64_t heads);

#ifndef __cplusplus
#define eg_attention(...) eg_attention_with(EG_ARGS_(eg_attention_args, __VA_ARGS__))
#endif

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_ATTENTION_
#include <eingrad/cxx.h>
#endif
#endif
