/* eingrad/attention.h: attention in any layout, its masks, and looking at its parts;
 * docs/attention.md. Modules are in mha.h and model.h. */
#ifndef EINGRAD_ATTENTION_H
#define EINGRAD_ATTENTION_H
#include <eingrad/ops.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- y = softmax(score(scale q·k)) v, softmax over the letters that k and v share and q and y lack:
 * "ibhd,jbhd,jbhe->ibhe". Any layout; batches and heads anywhere; grouped heads are letters:
 * "b i g r d, b j g d, b j g e -> b i g r e". Masks as in softmax; several combine. A row with
 * nothing to attend to is 0, gradient 0. NaN and infinities in forbidden keys and values change
 * nothing. Gradients of any order; by q, k and v the first keeps no weights. Vaswani et al. 2017,
 * eq. 1; tiles: Dao et al. 2022.
 *
 * Refused: a letter in one operand only that is not in the output; no letter that only q and k
 * share, or none to attend over; mixed types; masks with letters that the scores lack; several axes
 * of the key to attend over where the query has as many letters for itself ("bihd,bjgd,bjge": is g
 * the head h?), unless they are merged, (j k). */
/* FUSED: weights exist a tile at a time, memory O(length); UNFUSED: einsum, softmax, einsum. Both
 * give the same up to rounding. */
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
    /* the places before the first query, as in a cache: the query's index in `where`, `score` and
     * alibi begins there, and its size |i| counts them, too; 0 */
    int64_t offset;
    /* which index that is, "i"; needed where `where` and `score` have more than one that is not
     * attended over */
    const char *offset_letter;
    eg_masked keep;    /* { "bj", t }: where t is true; bool or integer */
    eg_masked lengths; /* { "b", t }: the first t[b] keys, 0 ≤ t ≤ their number; i32 or i64 */

    /* the scores */
    double scale; /* of q·k; 1/√(product of the sizes of the letters that only q and k share) */
    /* an expression that the scores become, "30 * tanh((score + r[h, clip(i - j, 0, 127)]) / 30)":
     * `score` is scale q·k; bias and alibi are added to it; score_fn comes after them */
    const char *score;
    eg_given with[8]; /* the tensors that where and score read; ends at a NULL name */
    eg_masked bias;   /* { "hij", t }: t is added */
    /* { "h", m }: − m |i + offset − j|, differentiable; one query and one key letter. Press et al.
     * 2022 */
    eg_masked alibi;
    /* { "h", z }: e^z is added to the sum that the weights are divided by, z finite; any letters of
     * the scores but the keys'. A row with nothing to attend to is 0, as without */
    eg_masked sink;
    /* the scores are the weights, 0 where the masks forbid; lse, empty and sink are refused */
    bool no_softmax;
    /* the scores become score_fn(user, scores), of their shape, before the masks; and the weights
     * weights_fn(user, weights), before dropout; never fused */
    eg_tensor *(*score_fn)(void *user, eg_tensor *scores);
    eg_tensor *(*weights_fn)(void *user, eg_tensor *weights);
    void *user;

    double dropout; /* probability of a weight to be dropped, after the softmax; 0 */
    eg_form form;   /* by the sizes alone */

    /* what else is wanted */
    eg_tensor **weights; /* the weights before dropout */
    eg_tensor **dropped; /* … and after it */
    eg_tensor **scores;  /* after score, bias, alibi and score_fn, before the masks */
    /* ln Σ e^scores, the sink included; letters of the weights without the keys; −inf of nothing */
    eg_tensor **lse;
    int64_t *empty; /* how many rows have nothing to attend to; with a sink: 0 */
    /* letters of the weights; NULL: those of the output without the value's own, the summed ones
     * last */
    const char *weights_axes;
} eg_attention_args;
/* Asking for weights, scores or lse changes no bit of y; they are differentiable too, and weights
 * and scores need memory for themselves. */
EG_API eg_tensor *eg_attention_with(const eg_attention_args *);

/* -- masks ------------------------------------------------------------------------------------ */
/* true = ignore, as torch's nn.MultiheadAttention has bool masks, → a .keep. What torch's
 * scaled_dot_product_attention takes is a .keep (bool) or a .bias (float) as it is */
EG_API eg_tensor *eg_mask_ignore(eg_tensor *ignore);
/* a float mask of 0 and −inf → a .keep; other numbers are refused: they are a .bias */
EG_API eg_tensor *eg_mask_additive(eg_tensor *added);
/* (heads) for .alibi: 2^(−8k/n), k = 1 … n; between powers of two every other one of the next.
 * Press et al. 2022 */
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
