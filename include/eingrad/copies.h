/* eingrad/copies.h: S computations of one shape as one.
 *
 * A tensor with copies is S tensors behind one handle. Rank, sizes and strings are those of one of
 * them, so that code for one works as it is, by letters and by axis numbers; an operation on it
 * does for each copy, to the bit, what it does for a tensor alone, and its result has copies again.
 * Operands without copies are the same for all. Dropout draws for copy k from seed[k], as in a
 * context of that seed. A gradient by a tensor with copies has copies; by one without it is the sum
 * over them (eg_grad_each in grad.h: each of them). eg_fill and eg_assign write to all copies.
 * Refused: operands of two groups of copies; to read numbers of a tensor with copies, to print,
 * save or export it (eg_copies_out shows them all), or to check its gradient.
 *
 *     const eg_copies *s = eg_copies_open(owner, 32, NULL);
 *     eg_tensor *W = eg_copies_in(s, W32);               (32, i, o): 32 matrices (i, o)
 *     eg_tensor *y = eg_einsum("bi,io->bo", x, W);       32 products; eg_copies_out(y): (32, b, o)
 */
#ifndef EINGRAD_COPIES_H
#define EINGRAD_COPIES_H
#include <eingrad/core.h>
#ifdef __cplusplus
extern "C" {
#endif

/* seed: `count` seeds, which are copied; NULL: those from the context's own on, s, s + 1, …. It
 * lives as long as the owner. NULL after an error. */
EG_API const eg_copies *eg_copies_open(eg_owner *, int64_t count, const uint64_t *seed);
EG_API int64_t eg_copies_count(const eg_copies *);            /* 0 of NULL */
EG_API uint64_t eg_copies_seed(const eg_copies *, int64_t k); /* 0 of NULL */
EG_API const eg_copies *eg_copies_of(const eg_tensor *);      /* NULL: it has none */
/* Zeros with copies that live as long as the owner; copies NULL: eg_owner_tensor. */
EG_API eg_tensor *eg_owner_copies(eg_owner *, const eg_copies *, eg_dtype, int rank,
                                  const int64_t *dims);
/* x (count, …) as copies of a tensor (…): a view, recorded. Refused: another first size. */
EG_API eg_tensor *eg_copies_in(const eg_copies *, eg_tensor *x);
/* All copies as one tensor, of which they are the first axis: a view, recorded. Refused: a tensor
 * without copies. */
EG_API eg_tensor *eg_copies_out(eg_tensor *x);
/* Copy k alone: a view, recorded; −1 is the last. */
EG_API eg_tensor *eg_copy_at(eg_tensor *x, int64_t k);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
