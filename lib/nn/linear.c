/* linear.c: y = x W + b */
#include "nn.h"

eg_linear *eg_linear_new_with(const eg_linear_args *given)
{
    OPTIONS(eg_linear_args, a, given);
    eg_params *p = eg__nn_under(a->params, "linear", a->name);
    if (!p || !eg__nn_positive(p, "linear", "in", a->in) ||
        !eg__nn_positive(p, "linear", "out", a->out))
        return NULL;
    eg_linear *m = eg_params_alloc(p, sizeof *m);
    if (!m) return NULL;
    const int before = eg_params_count(p);
    *m = (eg_linear){ .name = eg__nn_name(a->params, a->name), .in = a->in, .out = a->out };
    m->weight = eg_param(p, a->weight ? a->weight : "W", "i o", a->in, a->out);
    if (a->init) eg__nn_normal(p, m->weight, eg_option(a->init, 0));
    if (!a->no_bias) m->bias = eg_param(p, a->bias ? a->bias : "b", "o", a->out);
    return eg__nn_made(p, before, m);
}

eg_tensor *eg_linear_run(const eg_linear *m, eg_tensor *x)
{
    return eg__nn_linear(m, x, NULL, NULL);
}
eg_tensor *eg__nn_linear(const eg_linear *m, eg_tensor *x, const char *activation, eg_tensor *add)
{
    if (!m) return eg__nn_absent("linear", x);
    if (!eg__nn_width_fits("linear", m->name, 'i', x, m->in))
        return eg__nn_missing("linear", m->name, "x", x);
    const bool before = failed(x);
    return eg__nn_error_in(
        "linear", m->name, x, before,
        eg_affine("...i,io->...o", x, m->weight, m->bias, .activation = activation, .add = add));
}
