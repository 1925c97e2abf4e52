/* eingrad/capture.h: a step of fixed shapes that is computed once, recorded, and run again. */
#ifndef EINGRAD_CAPTURE_H
#define EINGRAD_CAPTURE_H
#include <eingrad/core.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- captured steps --------------------------------------------------------------------------- */
/* A step with fixed shapes. It reads tensors that existed before it, and may write to them. It sets
 * out[k], for each output, to a tensor that will be read after a run: one that the step made, or
 * one that existed before. Returns 0, or another number after an error. */
typedef int eg_step_function(void *user, eg_tensor **out);
/* Calls f once, which computes as usual, and records its operations: forward pass, gradients of any
 * order, updates in place, random draws. Each eg_captured_run computes the same from the current
 * elements of the tensors. It reads no string, looks up no plan, makes no tensor header and records
 * no tape, and results that are not needed at the same time share memory. Results are bitwise equal
 * to those of calling f again.
 *
 * Between runs the context's seed, number of draws, threads and eg_flush may change too. What f
 * reads of the program stays as it was at the capture: numbers (a factor, the offset of a slice, a
 * learning rate), pointers to tensors, the default dtype, the hooks of tensors, and its decisions:
 * an `if` that depends on a counter of the program has the same branch in every run. This is not
 * detected, since f is called once only; captured blocks (blocks.h) are compared with their loss.
 * To test a step, compare a run with a call of f (docs/gradients.md).
 *
 * Calls that a run could not repeat are refused while f runs, with an error that names the
 * function: reading or writing elements (eg_item, eg_f32, eg_mut_f32, eg_print …; a function called
 * by eg_host_call may do so), tensors made from the program's data (eg_from), objects that outlive
 * the step (eg_keep, eg_keep_in, owners, modules), eg_seed, eg_set_draws, eg_grad_over,
 * eg_plan_run_on, attention with .ranks, caches.
 *
 * A run is refused if current values would lead to other operations: integers outside of the bounds
 * that an index or a mask was planned for, operands of a masked operation that were finite and are
 * not now, or the reverse. It is also refused if a gradient of a graph that was made before the
 * step reads a tensor that has changed since; if the mode (eg_train, eg_eval) is not that of the
 * capture; and if a tensor has been freed.
 *
 * The captured step and its outputs live until the open scope ends or eg_captured_free is
 * called; a use of the step after that records an error. NULL after an error. */
typedef struct eg_captured eg_captured;
EG_API eg_captured *eg_capture(eg_ctx *, eg_step_function *f, void *user, int outputs);
/* Computes the step again. Returns 0; −1 after an error, when part of the step may be done */
EG_API int eg_captured_run(eg_captured *);
/* The number of bytes that the captured step occupies, known before the first run: results, tensor
 * headers and what operations save for their gradients. Beyond this a run uses only the context's
 * workspaces. */
EG_API size_t eg_captured_bytes(const eg_captured *);
/* The k-th output, a leaf whose numbers each run overwrites. */
EG_API eg_tensor *eg_captured_output(const eg_captured *, int k);
/* Frees the step before its scope ends; NULL is fine */
EG_API void eg_captured_free(eg_captured *);
/* Calls f(args, count, xs) at once. If a step is being captured, each run calls f at the same
 * point, too. Use it for work that is not an operation, such as an optimiser's update or reading
 * the next batch. f gets a copy of the `bytes` bytes at args, and detached tensors with the
 * elements of xs; entries of xs may be NULL. It may read elements, and write to tensors that
 * existed before the step. Returns 0, or −1 after an error, such as an f that does not return 0. */
typedef int eg_host_function(void *args, int count, eg_tensor *const *xs);
EG_API int eg_host_call(eg_ctx *, eg_host_function *f, const void *args, size_t bytes, int count,
                        eg_tensor *const *xs);
EG_API bool eg_capturing(const eg_ctx *); /* true while eg_capture records what is done */
/* Called first by a function that must not be part of a captured step. If a step is being captured,
 * records an error that names the function `who` and returns −1; else returns 0. */
EG_API int eg_refuse_capture(eg_ctx *, const char *who);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
