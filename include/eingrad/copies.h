/* eingrad/copies.h: S computations of one shape as one.
 *
 * A tensor with copies is S tensors behind one handle. Its rank, its sizes and the strings that are
 * written for it are those of one copy, so that code for a single tensor works unchanged, by
 * letters and by axis numbers (similar to jax.vmap). The result of an operation has copies, each
 * bitwise equal to the result for a single tensor. An operand without copies is shared by all
 * copies. eg_fill and eg_assign write to all copies.
 *
 * Dropout draws for copy k from seed[k], as in a context of that seed. For a tensor without copies,
 * such as data that are the same for all, it draws once from the context's seed, and all copies
 * share that draw (for separate draws make copies of equal parts by eg_copies_unstack). The dropout
 * of eg_attention draws for each copy if any operand has copies.
 *
 * The gradient with respect to a tensor with copies has copies. The gradient with respect to a
 * tensor without copies is the sum over all copies; eg_grad_each (grad.h) gives the terms of that
 * sum.
 *
 * Refused: an operation on tensors of two different eg_copies; reading the elements of a tensor
 * with copies, printing, saving or exporting it (eg_copies_stack gives a tensor without copies
 * that has all of them), and checking its gradient.
 *
 *     const eg_copies *s = eg_copies_open(owner, 32, NULL);
 *     eg_tensor *W = eg_copies_unstack(s, W32);       W32 (32, i, o): 32 matrices (i, o)
 *     eg_tensor *y = eg_einsum("bi,io->bo", x, W);    32 products (b, o)
 *     eg_tensor *all = eg_copies_stack(y);            (32, b, o)
 */
#ifndef EINGRAD_COPIES_H
#define EINGRAD_COPIES_H
#include <eingrad/core.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Makes `count` copies. seed: `count` seeds, which are copied; NULL: s, s + 1, …, where s is the
 * context's seed. The result lives as long as the owner. NULL after an error. */
EG_API const eg_copies *eg_copies_open(eg_owner *, int64_t count, const uint64_t *seed);
EG_API int64_t eg_copies_count(const eg_copies *);            /* the number of copies; 0 for NULL */
EG_API uint64_t eg_copies_seed(const eg_copies *, int64_t k); /* the seed of copy k; 0 for NULL */
/* Returns the eg_copies of a tensor; NULL: it has none, as in a block that computes one copy of a
 * tensor of the calling context (blocks.h). */
EG_API const eg_copies *eg_copies_of(const eg_tensor *);
/* A tensor of zeros with these copies, which lives as long as the owner. If copies is NULL this is
 * eg_owner_tensor. */
EG_API eg_tensor *eg_owner_copies(eg_owner *, const eg_copies *, eg_dtype, int rank,
                                  const int64_t *dims);
/* Makes the first axis of x, of size count, the copies of a tensor with the other axes: a view,
 * recorded. Refused: a first axis of another size. */
EG_API eg_tensor *eg_copies_unstack(const eg_copies *, eg_tensor *x);
/* A tensor without copies whose first axis counts the copies of x: a view, recorded. Refused: an x
 * without copies. */
EG_API eg_tensor *eg_copies_stack(eg_tensor *x);
/* Copy k alone: a view, recorded; −1 is the last. */
EG_API eg_tensor *eg_copy_at(eg_tensor *x, int64_t k);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
