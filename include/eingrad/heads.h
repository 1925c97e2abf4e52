/* eingrad/heads.h: what the heads of an attention do, and how alike they are.
 *
 * A spec brackets the head's letter: "b [h] i j". Of the other letters the last is the key j (or
 * the width of a vector), the one before it the query i, and the rest are batches. Letters or
 * names, each on its own: no groups, no ellipsis. Refused: no spec, a spec without one bracketed
 * letter, a repeated letter, x of another rank, integer x. */
#ifndef EINGRAD_HEADS_H
#define EINGRAD_HEADS_H
#include <eingrad/ops.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- one head in numbers
 * Means over batches and rows of weights a. Rows of zeros (nothing to attend to) are counted and
 * enter no mean. */
typedef struct eg_head {
    int64_t rows, empty; /* rows that attend to something; rows that do not */
    double entropy;      /* −Σ a ln a, in nats */
    double spread;       /* entropy / ln(keys of weight > 0), in [0, 1]: 0 is one key, 1 all alike;
                          * rows of one key are left out */
    double distance;     /* Σ a |i + offset − j| */
    double self;         /* weight on the key j = i + offset */
    double previous, next; /* on the key before that, and on the one after it */
    double first;          /* on j = 0 */
    double top;            /* on the `top` largest weights of the row */
    double saturated;      /* share of rows with a weight above 0.99: their softmax passes no
                            * gradient on */
    const char *label; /* "uniform": spread ≥ 0.95; else "local": previous + self + next ≥ 0.5;
                        * else "sparse": top ≥ 0.75; else "global". "empty": no row */
} eg_head;
typedef struct eg_heads_args {
    size_t size;
    eg_tensor *weights; /* a softmax's rows, before dropout */
    const char *spec; /* needed: "b [h] i j" of a module's weights, "b i [h] j" of eg_attention's */
    int64_t top;      /* how many weights eg_head.top sums: 3 */
    int64_t offset;   /* a query i stands at the key i + offset: 0 */
} eg_heads_args;
/* An array, one for each head, in the open scope; NULL after an error. */
EG_API const eg_head *eg_heads_with(const eg_heads_args *);

/* -- how alike heads are; tensors with gradients of any order */
/* (h h): s[h,g] = mean over the other letters of cos(x[…h…:], x[…g…:]), the vectors being the last
 * letter's; the cosine with zeros is 0. Of weights "b [h] i j" it says whether two heads look at
 * the same places; of heads' outputs or values "b i [h] d" whether they say the same. */
EG_API eg_tensor *eg_head_similarity(const char *spec, eg_tensor *x);
/* One number: the mean of s[h,g] over h ≠ g; of one head 0. Added to the loss, times a small
 * factor, it keeps heads from becoming alike: disagreement regularisation, with the sign that a
 * loss needs. Li et al. 2018, arXiv:1810.10183, eq. 5–7. */
EG_API eg_tensor *eg_head_diversity(const char *spec, eg_tensor *x);

/* -- the same without weights in memory
 * These functions take the arguments of eg_attention (string, operands, masks) and memory
 * O(length). The first two return one number for each row, with the letters of the query but those
 * that the scores sum over; 0 where nothing is attended to. They have gradients of any order, the
 * first of which needs no more memory than eg_attention's. Dropout has no influence. Refused:
 * groups, an ellipsis, functions of scores or weights, .no_softmax. Entropy and similarity also
 * refuse .score, .sink, .bias, .alibi, and a letter of key and output that the query lacks. */
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
