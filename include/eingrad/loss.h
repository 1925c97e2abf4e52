/* eingrad/loss.h: losses. All but eg_cross_entropy refuse operands of different shapes: nothing
 * broadcasts. The mean of no elements is refused, except by eg_cross_entropy, which returns 0 (with
 * .each a tensor without elements). eg_kl_div is a sum: it is 0 over no elements. */
#ifndef EINGRAD_LOSS_H
#define EINGRAD_LOSS_H
#include <eingrad/ops.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct eg_cross_entropy_args {
    size_t size;
    const char *spec; /* axes of the logits, "b l [v]": the classes in brackets */
    eg_tensor *logits;
    eg_tensor *target; /* (b l) the numbers of the classes, i32 or i64 */
    int64_t ignore;    /* targets with this number do not count; EG_OFF: those with number 0; 0
                        * (left out): all count */
    double smoothing;  /* ε in [0, 1]: the target is (1−ε) one-hot + ε/n: 0. Szegedy et al.
                        * 2016 */
    bool each;         /* (b l): the loss of each target, 0 if it does not count; else their mean */
    /* z ≥ 0: adds z (ln Σ e^logits)² to each loss, which keeps logits from growing: 0. Chowdhery et
     * al. 2022 (PaLM) use 1e-4 */
    double z_loss;
} eg_cross_entropy_args;
/* mean of −ln softmax(logits)[target] over the targets that count; 0 if none does. Refused: a class
 * out of range, a string with an output */
EG_API eg_tensor *eg_cross_entropy_with(const eg_cross_entropy_args *);
/* mean of max(x,0) − x t + ln(1 + e^−|x|), x logits, t targets in [0, 1]: binary cross entropy */
EG_API eg_tensor *eg_bce_logits(eg_tensor *logits, eg_tensor *target);
EG_API eg_tensor *eg_mse(eg_tensor *a, eg_tensor *b); /* mean of (a − b)² */
/* mean of |d| ≤ delta ? d²/2 : delta (|d| − delta/2), d = a − b. Refused: delta ≤ 0. Huber 1964 */
EG_API eg_tensor *eg_huber(eg_tensor *a, eg_tensor *b, double delta);
/* Σ p (ln p − ln q) over the bracketed axes, not a mean; 0 where p = 0. Kullback, Leibler 1951 */
EG_API eg_tensor *eg_kl_div(const char *spec, eg_tensor *p, eg_tensor *log_q);

#ifndef __cplusplus
#define eg_cross_entropy(...) eg_cross_entropy_with(EG_ARGS_(eg_cross_entropy_args, __VA_ARGS__))
#endif

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_LOSS_
#include <eingrad/cxx.h>
#endif
#endif
