/* norm.c: layer norm (Ba et al. 2016) and RMS norm (Zhang, Sennrich 2019) over the last axis. */
#include "nn.h"
#include <math.h>

eg_norm *eg_norm_new_with(const eg_norm_new_args *given)
{
    OPTIONS(eg_norm_new_args, a, given);
    eg_params *p = eg__nn_under(a->params, "norm", a->name);
    if (!p || !eg__nn_positive(p, "norm", "d_model", a->d_model)) return NULL;
    if (!(eg_option(a->eps, 1e-5) >= 0) || !isfinite(a->eps))
        return eg__nn_refuse(p, EG_ERROR_MISUSE, "norm",
                             "eps is %g; it must be finite and not negative", a->eps),
               NULL;
    eg_norm *m = eg_params_alloc(p, sizeof *m);
    if (!m) return NULL;
    const int before = eg_params_count(p);
    *m = (eg_norm){
        .name = eg__nn_name(a->params, a->name), .d_model = a->d_model, .eps = a->eps, .rms = a->rms
    };
    m->gain = eg__nn_constant(p, eg_param(p, "gain", "m", a->d_model), 1);
    if (!a->no_bias && !a->rms) m->bias = eg_param(p, "bias", "m", a->d_model);
    return eg__nn_made(p, before, m);
}

eg_tensor *eg_norm_run(const eg_norm *m, eg_tensor *x)
{
    if (!m) return eg__nn_absent("norm", x);
    if (!eg__nn_width_fits("norm", m->name, 'm', x, m->d_model))
        return eg__nn_missing("norm", m->name, "x", x);
    const bool before = failed(x);
    eg_tensor *y =
        m->rms ? eg_rmsnorm("... [m]", x, .gain = m->gain, .eps = m->eps)
               : eg_layernorm("... [m]", x, .gain = m->gain, .bias = m->bias, .eps = m->eps);
    return eg__nn_error_in("norm", m->name, x, before, y);
}
