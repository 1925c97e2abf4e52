/* eingrad/attention.h: attention in any layout, its masks, and looking at its parts;
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
 * "ibhd,jbhd,jbhe->ibhe". Any layout; batches and heads stand anywhere; grouped heads are letters:
 * "b i g r d, b j g d, b j g e -> b i g r e". Several masks forbid what any of them forbids. A row
 * with nothing to attend to is 0, its gradient 0. NaN and infinities in forbidden keys and values
 * change nothing. There are gradients of any order; the first by q, k and v keeps no weights.
 * Vaswani et al. 2017, eq. 1; tiles: Dao et al. 2022.
 *
 * Where numbers are not finite, pairs that are not forbidden follow IEEE arithmetic, in both forms
 * alike, with the weights P, dropout's mask times its factor m and the cotangent g of y:
 *   y = (m P) v,  dv = (m P) g,  dP = m (g v),  D = Σ P dP,  dS = P (dP − D),  dz = −P_z D
 * of a sink z, and dS = P g of the log-sum-exp. Exceptions: scores of ∞ share the weight of their
 * row; of y, dS and dz are 0 where the weight is 0; a dP that is dropped is 0; with masks, a bias
 * or a score, a weight of 0 adds nothing to dv.
 *
 * Refused:
 * - a letter of one operand alone that is not in the output; no letter that only q and k share; no
 *   letter to attend over
 * - operands of different types; masks with letters that the scores lack
 * - several key letters where the query has as many of its own ("bihd,bjgd,bjge": is g meant to be
 *   the head h?), unless they are merged: (j k)
 * - a width of 0 without .scale
 * - expressions that cannot be read, an index in them that can leave its axis in an allowed pair, a
 *   tensor that is longer than the batch or head letter which alone indexes its axis (tables of
 *   queries' and keys' positions may be longer),
 *   tensors of .with that neither of them reads, an offset that is negative or moves nothing
 * - functions of scores or weights with EG_FUSED */
/* EG_FUSED: the weights of one tile are in memory at a time: O(length); EG_UNFUSED: einsum,
 * softmax, einsum. Both give the same up to rounding. */
typedef enum eg_form { EG_FORM_BY_SIZE, EG_FUSED, EG_UNFUSED } eg_form;
/* An output is a pointer to where the tensor goes; NULL: not wanted. Those that have the letters of
 * the scores have them in the order of `weights_axes`. */
typedef struct eg_attention_args {
    size_t size;
    const char *spec; /* "ibhd,jbhd,jbhe->ibhe" */
    eg_tensor *q, *k, *v;

    /* what may be seen; NULL: everything */
    /* a predicate of the scores' letters and of integer and bool tensors of `with`,
     * "j <= i & doc[b,i] == doc[b,j]"; docs/expressions.md */
    const char *where;
    /* the places before the first query, at least 0, as in a cache: the query's index in `where`,
     * `score` and alibi begins there, and its size |i| counts them, too: 0 */
    int64_t offset;
    /* which index that is, "i"; NULL: the only one of `where` and `score` that the query alone has,
     * else the only one that is no key; if there are several, an offset is refused */
    const char *offset_letter;
    eg_masked keep;    /* { "bj", t }: where t is true; bool or integer */
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
    /* { "h", m }: − m |i + offset − j|, differentiable; one query and one key letter. Press et al.
     * 2022 */
    eg_masked alibi;
    /* { "h", z }: e^z is added to the sum that the weights are divided by; any letters of the
     * scores but the keys'. The sink is one more key, with the value 0, that every query sees: −∞
     * adds nothing, ∞ takes all the weight, n scores of ∞ beside it get 1/(n + 1) of it each, and a
     * NaN makes its rows NaN. A row with nothing to attend to is 0, whatever the sink is */
    eg_masked sink;
    /* the scores are the weights, 0 where the masks forbid; lse, empty and sink are refused */
    bool no_softmax;
    /* score_fn(user, scores) takes the place of the scores, before the masks, and
     * weights_fn(user, weights) that of the weights, before dropout; both keep the shape. NULL:
     * none. Scores and weights are then in memory */
    eg_tensor *(*score_fn)(void *user, eg_tensor *scores);
    eg_tensor *(*weights_fn)(void *user, eg_tensor *weights);
    void *user;

    double dropout; /* probability of a weight to be dropped, after the softmax, in [0, 1]: 0 */
    eg_form form;   /* EG_FORM_BY_SIZE: the faster one, chosen by the sizes alone */

    /* a length that is divided among ranks: see below; NULL: it is whole */
    eg_ranks *ranks;
    int64_t ranks_block; /* places that stay together, queries and keys: 512 */
    bool zigzag; /* a rank has two runs of places, from both ends, so that causal work is even */

    /* what else is wanted */
    eg_tensor **weights; /* the weights before dropout */
    eg_tensor **dropped; /* … and after it */
    eg_tensor **scores;  /* after score, bias, alibi and score_fn, before the masks */
    /* ln Σ e^scores, the sink included; it has the letters of the weights without the keys, and is
     * −inf where there is nothing to attend to and no sink */
    eg_tensor **lse;
    int64_t *empty; /* becomes the number of rows with nothing to attend to; with a sink 0 */
    /* letters of the weights; NULL: those of the output without the value's own, the summed ones
     * last */
    const char *weights_axes;
} eg_attention_args;
/* Returns y, with the letters of the string. Asking for weights, scores or lse changes no bit of
 * it; they are differentiable too, and weights and scores need memory for themselves. */
EG_API eg_tensor *eg_attention_with(const eg_attention_args *);

/* -- a length divided among ranks (docs/distributed.md) ----------------------------------------
 * With .ranks every rank calls eg_attention with the queries, keys and values of its own places,
 * and gets the results of its own queries, in their order. Keys and values are passed round the
 * ranks; a rank has memory for its own share and for that of one other rank. The bits are a
 * function of length and .ranks_block alone: on one rank with .ranks they are the same, without
 * .ranks equal to rounding; a row with a score or a sink of ∞ may be NaN, since its parts do not
 * say how many of their scores are ∞. Letters in `where` and `score` count places of the whole
 * length, and tensors of .with, .keep, .lengths, .bias, .alibi and .sink are whole on every rank,
 * and so are their gradients; only a sink with the query's index has the places of this rank's
 * queries. Dropout draws as on one rank. There are gradients of any order, with the same bits;
 * beyond the first each rank gathers the length and computes them whole, with the time and the
 * memory of one process, and with .dropout they are refused. Liu, Zaharia, Abbeel 2023; zigzag:
 * Brandon et al. 2023.
 *
 * Refused beside the above: groups, 1 and an ellipsis in the spec; more than one index of the key
 * alone, or of the query alone unless .offset_letter names it; other places than
 * eg_attention_places gives; weights, scores, functions of them, .no_softmax. */
/* Sets places[] to the one or two runs of places, of `length` in all, that this rank has. Returns
 * how many there are. block 0: 512. Modules take the same three options (mha.h, model.h). */
EG_API int eg_attention_places(const eg_ranks *, int64_t length, int64_t block, bool zigzag,
                               eg_span places[2]);

/* Returns the whole length, of which this rank has `places` places. All ranks call it. −1 on every
 * rank after an error: some rank has another number of places than eg_attention_places gives it. */
EG_API int64_t eg_attention_length(eg_ranks *, int64_t places, int64_t block, bool zigzag);

/* -- masks ------------------------------------------------------------------------------------ */
/* Makes a .keep of a mask in which true means ignore, as nn.MultiheadAttention of PyTorch has it:
 * bool or integer; a float is refused. The masks of its scaled_dot_product_attention need no
 * change: a bool one is a .keep, a float one a .bias */
EG_API eg_tensor *eg_mask_ignore(eg_tensor *ignore);
/* Makes a .keep of a float mask of 0 and −inf. Refused: other numbers, which make it a .bias */
EG_API eg_tensor *eg_mask_additive(eg_tensor *added);
/* Returns the slopes (heads) for .alibi: 2^(−8k/n), k = 1 … n, if n = heads is a power of two; else
 * those of the power of two below, then every other one of the power of two above. Press et al.
 * 2022. Refused: fewer than 1, more than 2²⁰ heads */
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
