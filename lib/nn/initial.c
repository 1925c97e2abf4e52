/* initial.c: initial values of parameters (eg_init_xavier, eg_init_normal, eg_init_constant). */
#include "nn.h"
#include <math.h>

/* Each copy is drawn with its own seed and the same numbers of draws, as if it were a model of its
 * own. */
static eg_tensor *params_drawn(eg_tensor *w, bool normal, double spread)
{
    eg_ctx *cx = eg_context(w);
    if (!eg_ok(w))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: w is NULL, failed or gone with its scope",
                          normal ? "init_normal" : "init_xavier");
    if (eg_error(cx)) return eg__nn_poison(cx);
    const eg_copies *c = eg_copies_of(w);
    const uint64_t seed = eg_seed_of(cx), draw = eg_draws(cx);
    const eg_dtype type = eg__nn_half(eg_type(w)) ? EG_F32 : eg_type(w);
    eg_mark m = eg_push(cx);
    const bool was = eg_nograd(cx, true);
    eg__nn_writes all = { .owner = c ? eg_owner_open(cx) : NULL };
    int bad = eg_error(cx) != NULL;
    for (int64_t k = 0; !bad && !eg_error(cx) && k < (c ? eg_copies_count(c) : 1); k++) {
        eg_tensor *one = c ? eg_copy_at(w, k) : w;
        if (c) eg_seed(cx, eg_copies_seed(c, k)), eg_set_draws(cx, draw);
        eg_tensor *drawn = normal ? eg_normal_n(cx, type, 0, spread, eg_rank(w), eg_dims(w))
                                  : eg_uniform_n(cx, type, -spread, spread, eg_rank(w), eg_dims(w));
        if (c)
            eg__nn_write(&all, one, drawn);
        else
            bad = eg_assign(w, eg_cast(drawn, eg_type(w)));
    }
    if (c) bad = eg__nn_written(cx, &all);
    const uint64_t next = bad ? draw : eg_draws(cx);
    if (c) eg_seed(cx, seed);
    if (c || bad) eg_set_draws(cx, next);
    eg_nograd(cx, was);
    eg_pop(cx, m);
    return bad ? eg_fail_in(cx, normal ? "init_normal" : "init_xavier") : w;
}

eg_tensor *eg_init_xavier(eg_tensor *w, int64_t fan_in, int64_t fan_out)
{
    if (fan_in < 1 || fan_out < 1)
        return eg_fail_as(eg_context(w), EG_ERROR_MISUSE,
                          "init_xavier: fans must be positive, not %lld and %lld",
                          (long long)fan_in, (long long)fan_out);
    return params_drawn(w, false, sqrt(6.0 / ((double)fan_in + (double)fan_out)));
}

eg_tensor *eg_init_normal(eg_tensor *w, double deviation)
{
    return params_drawn(w, true, deviation);
}

eg_tensor *eg_init_constant(eg_tensor *w, double value)
{
    if (!eg_ok(w))
        return eg_fail_as(eg_context(w), EG_ERROR_MISUSE,
                          "init_constant: w is NULL, failed or gone with its scope");
    return eg_fill(w, value) ? eg__nn_poison(eg_context(w)) : w;
}
