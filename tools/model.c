/* model.c: loads a trained model for a command. */
#include "tools.h"
#include <string.h>
#include <math.h>

/* True if all elements are finite: 0 · x is 0 for finite x and NaN for others. */
bool all_finite(eg_tensor *x)
{
    eg_mark m = eg_push(eg_context(x));
    double sum = eg_item(eg_sum(NULL, eg_scale(x, 0)));
    eg_pop(eg_context(x), m);
    return !isnan(sum);
}
bool same_sizes(const eg_tensor *x, const eg_tensor *y)
{
    bool same = eg_rank(x) == eg_rank(y);
    for (int k = 0; same && k < eg_rank(x); k++) same = eg_dim(x, k) == eg_dim(y, k);
    return same;
}

bool finite_model(eg_trainer *t, const char *path)
{
    eg_params *p = eg_trainer_params(t);
    for (int k = 0; k < eg_params_count(p); k++)
        if (!all_finite(eg_params_at(p, k)->x)) {
            print_error(
                "%s: parameter \"%s\" has a NaN or an infinity: this model computes nothing", path,
                eg_params_at(p, k)->name);
            return false;
        }
    return true;
}

eg_trainer *load_model(eg_ctx *cx, const eg_trainer_load_args *a)
{
    eg_trainer_load_args o = *a;
    o.size = sizeof o, o.cx = cx;
    eg_trainer *t = cx ? eg_trainer_load_with(&o) : NULL;
    if (!t) print_load_error(cx, o.path, o.data ? "" : NULL);
    return t && finite_model(t, o.path) ? t : NULL;
}

eg_data *text_data(eg_ctx *cx, const char *path)
{
    return has_ending(path, ".npy") ? eg_data_tokens(cx, path) : eg_data_corpus(cx, path);
}
