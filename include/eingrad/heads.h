/* eingrad/heads.h: what the heads of an attention do, and how alike they are.
 *
 * A spec brackets the head's letter: "b [h] i j". Of the others the last is the key j (or the width
 * of a vector), the one before it the query i; the rest are batches. Letters or names; each stands
 * alone: no groups, no ellipsis. Refused: no spec, a spec without one bracketed letter, a repeated
 * letter, x of another rank; integer x. */
#ifndef EINGRAD_HEADS_H
#define EINGRAD_HEADS_H
#include <eingrad/ops.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- one head in numbers: means over batches and rows. Rows of zeros (nothing to attend to) are
 * counted and enter no mean */
typedef struct eg_head {
    int64_t rows, empty; /* that attend to something; to nothing */
    double entropy;      /* −Σ a ln a, in nats */
    /* entropy / ln(keys of weight > 0): 0 is one key, 1 all alike; rows of one key left out */
    double spread;
    double distance; /* Σ a |i + offset − j| */
    /* mass on j = i, i − 1, i + 1 (each + offset), and on j = 0 */
    double self, previous, next, first;
    double top; /* mass on the `top` largest weights */
    /* share of rows with a weight above 0.99: there the softmax passes no gradient on */
    double saturated;
    const char *label; /* "uniform": spread ≥ 0.95; else "local": previous + self + next ≥ 0.5; else
                          "sparse": top ≥ 0.75; else "global". "empty": no row */
} eg_head;
typedef struct eg_heads_args {
    size_t size;
    eg_tensor *weights; /* a softmax's rows, before dropout */
    /* "b [h] i j" of a module's weights, "b i [h] j" of eg_attention's; there is no default */
    const char *spec;
    int64_t top, offset; /* 3; 0: a query i is the key i + offset */
} eg_heads_args;
/* one for each head, in the open scope; NULL after an error */
EG_API const eg_head *eg_heads_with(const eg_heads_args *);

/* -- alike or not; tensors with gradients of any order
 * s[h,g] = mean over the other letters of cos(x[…h…:], x[…g…:]), the vectors being the last
 * letter's; the cosine with zeros is 0. Of weights "b [h] i j": do two heads look at the same
 * places? Of heads' outputs or values "b i [h] d": do they say the same? */
EG_API eg_tensor *eg_head_similarity(const char *spec, eg_tensor *x); /* (h h) */
/* A loss to add, times a small factor, so that heads do not collapse into one: the mean of s[h,g]
 * over h ≠ g; of one head 0. Disagreement regularisation with the sign of a loss: Li et al. 2018,
 * arXiv:1810.10183, eq. 5–7. */
EG_API eg_tensor *eg_head_diversity(const char *spec, eg_tensor *x); /* one number */

/* -- the same without the weights: the call of eg_attention ("bihd,bjhd,bjhe->bihe", masks and
 * all), in memory O(length) One number a row, letters as the query's without the summed; 0 where
 * nothing is attended to. Gradients of any order; the first is as lean as eg_attention's. Refused:
 * groups, ellipsis, .score; for the last two .bias, .alibi and a letter of key and output that the
 * query lacks. Dropout does not enter. */
/* Σ of the weights where `region` holds: "j == i - 1", "j == 0" */
EG_API eg_tensor *eg_attention_mass_with(const eg_attention_args *, const char *region);
EG_API eg_tensor *eg_attention_entropy_with(const eg_attention_args *); /* −Σ a ln a */
/* (h h): eg_head_similarity of the weights; head "h" */
EG_API eg_tensor *eg_attention_similarity_with(const eg_attention_args *, const char *head);

#ifndef __cplusplus
#define eg_attention_mass(region, ...)                               \
    eg_attention_mass_with(EG_ARGS_(eg_attention_args, __VA_ARGS__), \
                           (region)) /* ("j == 0", spec, q, k, v, …) */
#define eg_attention_entropy(...) \
    eg_attention_entropy_with(EG_ARGS_(eg_attention_args, __VA_ARGS__))
#define eg_attention_similarity(head, ...)                                 \
    eg_attention_similarity_with(EG_ARGS_(eg_attention_args, __VA_ARGS__), \
                                 (head)) /* ("h", spec, q, k, v, …) */
#define eg_heads(...) \
    eg_heads_with(EG_ARGS_(eg_heads_args, __VA_ARGS__)) /* (weights, "b [h] i j", .top = 5) */
#endif

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_HEADS_
#include <eingrad/cxx.h>
#endif
#endif
