/* mha.c: multi-head attention. Splitting and merging heads are letters of the weights, so there is no reshape to get wrong.
 * Vaswani et al. 2017, §3.2.2 */
#include "module.h"

static bool sizes(eg_mha *m, const eg_mha_args *a)
{
    eg_ctx *cx = eg_params_context(a->params);
    if (!eg__nn_positive(a->params, "mha", "d_model", a->d_model) || !eg__nn_positive(a->params, "mha", "heads", a->heads) ||
        !eg__nn_share(a->params, "mha", a->dropout))
        return false;
    if ((!a->d_k || !a->d_v) && a->d_model % a->heads) {
        eg_fail(cx, "mha: d_model must be divisible by heads: %lld / %lld", (long long)a->d_model, (long long)a->heads);
        return false;
    }
    *m = (eg_mha){
        .name = eg__nn_name(a->params, a->name), .d_model = a->d_model, .heads = a->heads,
        .d_k = width_or(a->d_k, a->d_model / a->heads), .d_v = width_or(a->d_v, a->d_model / a->heads),
        .kdim = width_or(a->kdim, a->d_model), .vdim = width_or(a->vdim, a->d_model), .d_out = width_or(a->d_out, a->d_model),
        .dropout = a->dropout, .scale = a->scale,
    };
    return eg__nn_positive(a->params, "mha", "d_k", m->d_k) && eg__nn_positive(a->params, "mha", "d_v", m->d_v) &&
           eg__nn_positive(a->params, "mha", "kdim", m->kdim) && eg__nn_positive(a->params, "mha", "vdim", m->vdim) &&
           eg__nn_positive(a->params, "mha", "d_out", m->d_out);
}

eg_mha *eg_mha_new_with(const eg_mha_args *given)
{
    OPTIONS(eg_mha_args, a, given);
    eg_params *p = eg_params_under(a->params, a->name);
    eg_mha *m = p ? eg_params_alloc(p, sizeof *m) : NULL;
    if (!m || !sizes(m, a))
        return NULL;
    int64_t h = m->heads, d = m->d_k, e = m->d_v;
    struct row {
        eg_tensor **x; const char *given, *name, *axes; bool off;
        int rank; int64_t dims[3], fan_in, fan_out;     /* fan_in 0: a bias                                    */
    } rows[] = {
        { &m->W_q, a->W_q, "W_q", "m h d", false, 3, { m->d_model, h, d }, m->d_model, h * d },
        { &m->W_k, a->W_k, "W_k", "m h d", false, 3, { m->kdim, h, d }, m->kdim, h * d },
        { &m->W_v, a->W_v, "W_v", "m h e", false, 3, { m->vdim, h, e }, m->vdim, h * e },
        { &m->W_o, a->W_o, "W_o", "h e m", false, 3, { h, e, m->d_out }, h * e, m->d_out },
        { &m->b_q, a->b_q, "b_q", "h d", a->no_bias || a->no_q_bias, 2, { h, d }, 0, 0 },
        { &m->b_k, a->b_k, "b_k", "h d", a->no_bias || a->no_k_bias, 2, { h, d }, 0, 0 },
        { &m->b_v, a->b_v, "b_v", "h e", a->no_bias || a->no_v_bias, 2, { h, e }, 0, 0 },
        { &m->b_o, a->b_o, "b_o", "m", a->no_bias || a->no_o_bias, 1, { m->d_out }, 0, 0 },
    };
    for (struct row *r = rows; r < rows + sizeof rows / sizeof *rows; r++) {
        if (r->off)
            continue;
        eg_tensor *x = eg_param_n(p, r->given ? r->given : r->name, r->axes, r->rank, r->dims);
        *r->x = r->fan_in ? eg_init_xavier(x, r->fan_in, r->fan_out) : eg_init_constant(x, 0);
    }
    return eg_error(eg_params_context(p)) ? NULL : m;
}

static bool operand(const eg_mha *m, const char *which, char letter, eg_tensor *x, int64_t width)
{
    if (!eg_ok(x))
        return false;
    eg_ctx *cx = eg_context(x);
    if (eg_rank(x) != 3)
        eg_fail(cx, "mha \"%s\": the %s has %d axes, but \"b %c m\" needs 3", m->name, which, eg_rank(x), letter);
    else if (eg_dim(x, 2) != width)
        eg_fail(cx, "mha \"%s\": 'm' is %lld in the module but %lld in the %s", m->name, (long long)width, (long long)eg_dim(x, 2), which);
    else
        return true;
    return false;
}

static eg_tensor *projected(const char *spec, eg_tensor *x, eg_tensor *weight, eg_tensor *bias)
{
    eg_tensor *y = eg_einsum(spec, x, weight);
    return bias ? eg_add(y, bias) : y;              /* the last letters of y are the bias's */
}

eg_tensor *eg_mha_run_with(const eg_mha_run_args *given)
{
    OPTIONS(eg_mha_run_args, a, given);
    const eg_mha *m = a->mha;
    if (!m)
        return eg__nn_absent("mha", a->query);
    eg_ctx *cx = eg_context(a->query);
    eg_tensor *key = a->key ? a->key : a->query, *value = a->value ? a->value : key;
    if (!operand(m, "query", 'i', a->query, m->d_model) || !operand(m, "key", 'j', key, m->kdim) ||
        !operand(m, "value", 'j', value, m->vdim))
        return eg_fail(cx, "mha: the query is NULL");
    if (eg_dim(a->query, 0) != eg_dim(key, 0))
        return eg_fail(cx, "mha \"%s\": batch 'b' is %lld in the query but %lld in the key", m->name,
                       (long long)eg_dim(a->query, 0), (long long)eg_dim(key, 0));
    if (eg_dim(key, 0) != eg_dim(value, 0))
        return eg_fail(cx, "mha \"%s\": batch 'b' is %lld in the key but %lld in the value", m->name,
                       (long long)eg_dim(key, 0), (long long)eg_dim(value, 0));
    if (eg_dim(key, 1) != eg_dim(value, 1))
        return eg_fail(cx, "mha \"%s\": length 'j' is %lld in the key but %lld in the value", m->name,
                       (long long)eg_dim(key, 1), (long long)eg_dim(value, 1));
    eg_tensor *q = projected("bim,mhd->bihd", a->query, m->W_q, m->b_q);
    eg_tensor *k = projected("bjm,mhd->bjhd", key, m->W_k, m->b_k);
    eg_tensor *v = projected("bjm,mhe->bjhe", value, m->W_v, m->b_v);
    eg_tensor *y = eg_attention("bihd,bjhd,bjhe->bihe", q, k, v, .where = a->where, .keep = a->keep, .bias = a->bias,
                                .offset = a->offset, .scale = m->scale, .dropout = m->dropout,
                                .weights = a->weights, .dropped = a->dropped, .weights_axes = "bhij");
    return projected("bihe,hem->bim", y, m->W_o, m->b_o);
}
