/* eingrad/views.h: views, which share the elements of their operand and have strides of their own,
 * copies, and conversions between dtypes. */
#ifndef EINGRAD_VIEWS_H
#define EINGRAD_VIEWS_H
#include <eingrad/core.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- views: share storage, have gradients; refused: axes out of range, sizes that do not fit
 * A function eg_X along one axis takes the axis as the letter in brackets of a string, which names
 * all axes of x (docs/notation.md); eg_X_axis takes it as a number, −1 the last. Both give the same
 * view. Groups and ones of the string are kept: in "b ([h=8] d)" the axis is h, and the result is
 * (b, h·d) again, a copy if no view exists. */
/* y[i_p(0), i_p(1)…] = x[i0, i1…], p = axes: axis r of y is axis axes[r] of x (numpy.transpose) */
EG_API eg_tensor *eg_permute_n(eg_tensor *x, int rank, const int *axes);
/* x with two axes exchanged; eg_rearrange("b i j -> b j i", x) gives any order, by letters */
EG_API eg_tensor *eg_transpose(eg_tensor *x, int axis_a, int axis_b);
/* x in another shape, never a copy: if no view exists, an error names the axes that prevent it. A
 * size of −1 is inferred */
EG_API eg_tensor *eg_view_n(eg_tensor *x, int rank, const int64_t *dims);
/* a view if there is one, else a copy */
EG_API eg_tensor *eg_reshape_n(eg_tensor *x, int rank, const int64_t *dims);
/* "b [l] d": x[:, start:stop:step, :] by Python's rules; EG_END is a start or stop that is left
 * out */
EG_API eg_tensor *eg_slice(const char *spec, eg_tensor *x, int64_t start, int64_t stop,
                           int64_t step);
EG_API eg_tensor *eg_slice_axis(eg_tensor *x, int axis, int64_t start, int64_t stop, int64_t step);
/* "b [l] d": x[:, index, :], without the axis l; −1 is the last element; "b [l] d -> d b" gives the
 * order of the other axes */
EG_API eg_tensor *eg_select(const char *spec, eg_tensor *x, int64_t index);
EG_API eg_tensor *eg_select_axis(eg_tensor *x, int axis, int64_t index);
/* "b [l]": y[i] = x[n−1−i]; several axes may stand in brackets */
EG_API eg_tensor *eg_flip(const char *spec, eg_tensor *x);
EG_API eg_tensor *eg_flip_axis(eg_tensor *x, int axis);
/* "b [l] d": y[:, i, :] = x[:, (i − shift) mod n, :], a copy: the first element moves to index
 * `shift`, and those that leave at one end enter at the other (numpy.roll); shift may be negative
 */
EG_API eg_tensor *eg_roll(const char *spec, eg_tensor *x, int64_t shift);
EG_API eg_tensor *eg_roll_axis(eg_tensor *x, int axis, int64_t shift);
/* windows: "b [l] d -> b l w d": y[b,l,w,d] = x[b, l·step + w, d], w < size, in as many windows as
 * fit, ⌊(n − size)/step⌋ + 1 along n elements. The new index of the output is the position in the
 * window; eg_unfold_axis makes it the last axis. Refused: a size outside [1, n], a step below 1 */
EG_API eg_tensor *eg_unfold(const char *spec, eg_tensor *x, int64_t size, int64_t step);
EG_API eg_tensor *eg_unfold_axis(eg_tensor *x, int axis, int64_t size, int64_t step);
/* "b [l] d": sets parts[0 … count) to consecutive slices of x along l. sizes NULL: they have equal
 * sizes. Refused: sizes that do not add up to the axis; without sizes a count that does not divide
 * it. 0, or −1 after an error (the parts are then poison). */
EG_API int eg_split(const char *spec, eg_tensor *x, int count, const int64_t *sizes,
                    eg_tensor **parts);
EG_API int eg_split_axis(eg_tensor *x, int axis, int count, const int64_t *sizes,
                         eg_tensor **parts);
/* "b [c] d": sets parts[k] to x[:, k, :], the view that eg_select makes, for k = 0 … count − 1.
 * "b [c] d -> d b" gives the order of the other axes. Refused: a count other than the size of the
 * axis. 0, or −1 after an error (the parts are then poison). */
EG_API int eg_unbind(const char *spec, eg_tensor *x, int count, eg_tensor **parts);
EG_API int eg_unbind_axis(eg_tensor *x, int axis, int count, eg_tensor **parts);
/* NumPy's broadcast_to; −1 keeps a size */
EG_API eg_tensor *eg_expand_n(eg_tensor *x, int rank, const int64_t *dims);
/* removes an axis of size 1; eg_rearrange("b 1 d -> b d", x) does it by letters */
EG_API eg_tensor *eg_squeeze(eg_tensor *x, int axis);
/* a new axis of size 1, number `axis` of the result; eg_rearrange("b d -> b 1 d", x) does it by
 * letters */
EG_API eg_tensor *eg_unsqueeze(eg_tensor *x, int axis);
/* y[…,k] = x[k, k+offset] along the two axes; the new axis is the last one.
 * eg_einsum("b k k -> b k", x) gives the diagonal of offset 0 by letters */
EG_API eg_tensor *eg_diagonal(eg_tensor *x, int64_t offset, int axis_a, int axis_b);

/* -- copies and conversions -------------------------------------------------------------------- */
/* True if the elements lie in memory in row-major order, without gaps */
EG_API bool eg_is_row_major(const eg_tensor *x);
/* False if x must not be written to: it is in read-only foreign memory, or a block must not change
 * it, or x is not eg_ok. What else eg_fill, eg_assign and eg_mut_… refuse is written there */
EG_API bool eg_is_writable(const eg_tensor *x);
/* x itself if row-major, else a row-major copy */
EG_API eg_tensor *eg_contiguous(eg_tensor *x);
EG_API eg_tensor *eg_copy(eg_tensor *x); /* a row-major copy, with gradient */
/* x in another dtype (EG_DEFAULT: the context's), converted as C does; with a gradient between f32
 * and f64. Refused: c128 to another dtype; eg_real and eg_imag take its parts. To bool: x ≠ 0. To
 * f16 and bf16: the nearest number, ties to even, infinity beyond the largest. Where C does not
 * define the integer of a float, NaN becomes 0, and a number out of range the nearest integer of
 * the dtype. */
EG_API eg_tensor *eg_cast(eg_tensor *x, eg_dtype);
EG_API eg_tensor *eg_detach(eg_tensor *x); /* x without history: a constant for gradients */
/* the real part of c128: a view in f64, without history; eg_assign to it writes into z */
EG_API eg_tensor *eg_real(eg_tensor *z);
EG_API eg_tensor *eg_imag(eg_tensor *z); /* the imaginary part of c128, as eg_real */

#ifndef __cplusplus
#define eg_permute(x, ...) \
    eg_permute_n((x), (int)(sizeof((int[]){ __VA_ARGS__ }) / sizeof(int)), (int[]){ __VA_ARGS__ })
#define eg_view(x, ...)    eg_view_n((x), EG_DIMS_(__VA_ARGS__))
#define eg_reshape(x, ...) eg_reshape_n((x), EG_DIMS_(__VA_ARGS__))
#define eg_expand(x, ...)  eg_expand_n((x), EG_DIMS_(__VA_ARGS__))
#endif

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_VIEWS_
#include <eingrad/cxx.h>
#endif
#endif
