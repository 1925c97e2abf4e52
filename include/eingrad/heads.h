/* eingrad/heads.h: measures of attention heads, and of their similarity.
 *
 * A spec brackets the head's letter: "b [h] i j". The last of the other letters is the key j (or
 * the width of a vector), the one before it is the query i, and the rest are batches. The spec is
 * in letters or names, without groups and ellipsis. Refused: no spec, a spec without one bracketed
 * letter, a repeated letter, x of another rank, integer x. */
#ifndef EINGRAD_HEADS_H
#define EINGRAD_HEADS_H
#include <eingrad/ops.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- measures of one head
 * Means over batches and rows of weights a. Rows of zeros (without an allowed key) are counted, but
 * are not part of a mean. */
typedef struct eg_head {
    int64_t rows, empty;   /* rows with an allowed key; rows without one */
    double entropy;        /* −Σ a ln a, in nats */
    double spread;         /* entropy / ln(keys of weight > 0), in [0, 1]: 0 if all weight is on one
                            * key, 1 if all weights are equal; rows of one key are left out */
    double distance;       /* Σ a |i + offset − j| */
    double self;           /* weight on the key j = i + offset */
    double previous, next; /* on the key before that, and on the one after it */
    double first;          /* on j = 0 */
    double top;            /* on the `top` largest weights of the row */
    double saturated;      /* share of rows with a weight above 0.99, for which the softmax has
                            * almost no gradient */
    const char *label; /* "uniform": spread ≥ 0.95; else "local": previous + self + next ≥ 0.5;
                        * else "sparse": top ≥ 0.75; else "global". "empty": no row */
} eg_head;
typedef struct eg_heads_args {
    size_t size;
    eg_tensor *weights; /* the rows of a softmax, before dropout */
    const char *spec;   /* required: "b [h] i j" for a module's weights, "b i [h] j" for
                         * eg_attention's */
    int64_t top;        /* how many weights eg_head.top sums: 3 */
    int64_t offset;     /* query i has the position of key i + offset: 0 */
} eg_heads_args;
/* Returns an array with the measures of each head, in the open scope; NULL after an error. */
EG_API const eg_head *eg_heads_with(const eg_heads_args *);

/* -- similarity of heads: tensors with gradients of any order */
/* (h h): s[h,g] = mean over the other letters of cos(x[…h…:], x[…g…:]), the vectors being the last
 * letter's; the cosine with zeros is 0. For weights "b [h] i j" it measures whether two heads
 * attend to the same keys; for outputs or values of heads, "b i [h] d", whether these are
 * similar. */
EG_API eg_tensor *eg_head_similarity(const char *spec, eg_tensor *x);
/* A scalar: the mean of s[h,g] over h ≠ g; 0 for a single head. It is smaller if the heads are more
 * diverse. Added to the loss with a small factor, it keeps heads different: disagreement
 * regularisation, with the sign for a loss. Li et al. 2018, arXiv:1810.10183, eq. 5–7. */
EG_API eg_tensor *eg_head_diversity(const char *spec, eg_tensor *x);

/* -- the same without weights in memory
 * These functions take the arguments of eg_attention (string, operands, masks) and memory
 * O(length). The first two return one number for each row, with the letters of the query except
 * those that the scores sum over; 0 for a query without an allowed key. They have gradients of any
 * order, the first of which needs no more memory than eg_attention's. Dropout has no influence.
 * Refused: groups, an ellipsis, functions of scores or weights, .no_softmax. Entropy and similarity
 * also refuse .score, .sink, .bias, .alibi, and a letter of key and output that the query lacks. */
/* Σ of the weights where the predicate `region` holds: "j == i - 1", "j == 0". */
EG_API eg_tensor *eg_attention_mass_with(const eg_attention_args *, const char *region);
EG_API eg_tensor *eg_attention_entropy_with(const eg_attention_args *); /* −Σ a ln a */
/* (h h): eg_head_similarity of the weights, `head` naming the letter: "h". */
EG_API eg_tensor *eg_attention_similarity_with(const eg_attention_args *, const char *head);

#ifndef __cplusplus
/* eg_attention_mass("j == 0", spec, q, k, v, …) */
#define eg_attention_mass(region, ...) \
    eg_attention_mass_with(EG_ARGS_(eg_attention_args, __VA_ARGS__), (region))

#define eg_attention_entropy(...) \
    eg_attention_entropy_with(EG_ARGS_(eg_attention_args, __VA_ARGS__))
/* eg_attention_similarity("h", spec, q, k, v, …) */
#define eg_attention_similarity(head, ...) \
    eg_attention_similarity_with(EG_ARGS_(eg_attention_args, __VA_ARGS__), (head))
/* eg_heads(weights, "b [h] i j", .top = 5) */
#define eg_heads(...) eg_heads_with(EG_ARGS_(eg_heads_args, __VA_ARGS__))
#endif

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_HEADS_
#include <eingrad/cxx.h>
#endif
#endif
