/* block.c: feed-forward, transformer block, transformer */
#include "module.h"
#include <stdio.h>

/* -- feed-forward: y = dropout(f(x W₁ + b₁)) W₂ + b₂ ------------------------------------------------------------------------ */
eg_ffn *eg_ffn_new_with(const eg_ffn_args *given)
{
    OPTIONS(eg_ffn_args, a, given);
    eg_params *p = eg_params_under(a->params, a->name);
    if (!p || !eg__nn_positive(p, "ffn", "d_model", a->d_model) || !eg__nn_share(p, "ffn", a->dropout))
        return NULL;
    eg_ffn *m = eg_params_alloc(p, sizeof *m);
    if (!m)
        return NULL;
    int64_t width = width_or(a->width, 4 * a->d_model);
    *m = (eg_ffn){
        .name = eg__nn_name(a->params, a->name), .activation = a->activation ? a->activation : eg_gelu, .dropout = a->dropout,
        .up   = eg_linear_new(p, "up", .in = a->d_model, .out = width, .no_bias = a->no_bias),
        .down = eg_linear_new(p, "down", .in = width, .out = a->d_model, .no_bias = a->no_bias),
    };
    return eg_error(eg_params_context(p)) ? NULL : m;
}

static eg_tensor *dropped(eg_tensor *x, double p) { return p > 0 ? eg_dropout(x, p) : x; }

eg_tensor *eg_ffn_run(const eg_ffn *m, eg_tensor *x)
{
    if (!m)
        return eg__nn_absent("ffn", x);
    return eg_linear_run(m->down, dropped(m->activation(eg_linear_run(m->up, x)), m->dropout));
}

/* -- block ------------------------------------------------------------------------------------------------------------------ */
eg_block *eg_block_new_with(const eg_block_args *given)
{
    OPTIONS(eg_block_args, a, given);
    eg_params *p = eg_params_under(a->params, a->name);
    eg_block *m = p ? eg_params_alloc(p, sizeof *m) : NULL;
    if (!m)
        return NULL;
    *m = (eg_block){ .name = eg__nn_name(a->params, a->name), .post_norm = a->post_norm, .dropout = a->dropout };
    m->norm_self = eg_norm_new(p, "norm_self", .d_model = a->d_model, .rms = a->rms, .no_bias = a->no_bias);
    m->self = eg_mha_new(p, "self", .d_model = a->d_model, .heads = a->heads, .dropout = a->dropout, .no_bias = a->no_bias);
    if (a->cross) {
        m->norm_cross = eg_norm_new(p, "norm_cross", .d_model = a->d_model, .rms = a->rms, .no_bias = a->no_bias);
        m->cross = eg_mha_new(p, "cross", .d_model = a->d_model, .heads = a->heads, .dropout = a->dropout, .no_bias = a->no_bias,
                              .kdim = a->memory_dim, .vdim = a->memory_dim);
    }
    m->norm_ffn = eg_norm_new(p, "norm_ffn", .d_model = a->d_model, .rms = a->rms, .no_bias = a->no_bias);
    m->ffn = eg_ffn_new(p, "ffn", .d_model = a->d_model, .width = a->width, .activation = a->activation, .dropout = a->dropout,
                        .no_bias = a->no_bias);
    return eg_error(eg_params_context(p)) ? NULL : m;
}

/* pre-norm: x + f(n(x)); post-norm: n(x + f(x)). `before` is what f sees, `after` joins what f gave. */
static eg_tensor *before(const eg_block *m, const eg_norm *n, eg_tensor *x) { return m->post_norm ? x : eg_norm_run(n, x); }
static eg_tensor *after(const eg_block *m, const eg_norm *n, eg_tensor *x, eg_tensor *y)
{
    eg_tensor *sum = eg_add(x, dropped(y, m->dropout));
    return m->post_norm ? eg_norm_run(n, sum) : sum;
}

eg_tensor *eg_block_run_with(const eg_block_run_args *given)
{
    OPTIONS(eg_block_run_args, a, given);
    const eg_block *m = a->block;
    if (!m)
        return eg__nn_absent("block", a->x);
    if (!m->cross != !a->memory)
        return eg_fail(eg_context(a->x), "block \"%s\": made with%s cross attention, but run with%s memory", m->name,
                       m->cross ? "" : "out", m->cross ? "out" : "");
    eg_tensor *x = a->x;
    x = after(m, m->norm_self, x, eg_mha_run(m->self, before(m, m->norm_self, x), .where = a->where, .keep = a->keep,
                                             .bias = a->bias, .offset = a->offset, .weights = a->weights));
    if (m->cross)
        x = after(m, m->norm_cross, x, eg_mha_run(m->cross, before(m, m->norm_cross, x), .key = a->memory, .keep = a->memory_keep,
                                                  .weights = a->memory_weights));
    return after(m, m->norm_ffn, x, eg_ffn_run(m->ffn, before(m, m->norm_ffn, x)));
}

/* -- transformer -------------------------------------------------------------------------------------------------------------- */
eg_transformer *eg_transformer_new_with(const eg_transformer_args *given)
{
    OPTIONS(eg_transformer_args, a, given);
    eg_params *p = eg_params_under(a->params, a->name);
    if (!p || !eg__nn_positive(p, "transformer", "layers", a->layers))
        return NULL;
    eg_transformer *m = eg_params_alloc(p, sizeof *m);
    eg_block **block = m ? eg_params_alloc(p, (size_t)a->layers * sizeof *block) : NULL;
    if (!block)
        return NULL;
    *m = (eg_transformer){
        .name = eg__nn_name(a->params, a->name), .layers = a->layers, .block = block, .dropout = a->dropout,
        .tokens = eg_embedding_new(p, "tokens", .count = a->vocabulary, .d_model = a->d_model, .deviation = a->deviation),
        .positions = eg_positions_new(p, "positions", .length = a->length, .d_model = a->d_model, .sinusoid = a->sinusoid,
                                      .deviation = a->deviation),
    };
    for (int64_t k = 0; k < a->layers; k++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)k);
        block[k] = eg_block_new(p, number, .d_model = a->d_model, .heads = a->heads, .width = a->width, .dropout = a->dropout,
                                .rms = a->rms, .activation = a->activation);
    }
    m->norm = eg_norm_new(p, "norm", .d_model = a->d_model, .rms = a->rms);
    m->logits = eg_linear_new(p, "logits", .in = a->d_model, .out = width_or(a->classes, a->vocabulary));
    return eg_error(eg_params_context(p)) ? NULL : m;
}

eg_tensor *eg_transformer_run_with(const eg_transformer_run_args *given)
{
    OPTIONS(eg_transformer_run_args, a, given);
    const eg_transformer *m = a->transformer;
    if (!m)
        return eg__nn_absent("transformer", a->index);
    eg_tensor *x = dropped(eg_positions_run(m->positions, eg_embedding_run(m->tokens, a->index)), m->dropout);
    for (int64_t k = 0; k < m->layers; k++)
        x = eg_block_run(m->block[k], x, .where = a->where, .keep = a->keep, .weights = a->weights ? a->weights + k : NULL);
    return eg_linear_run(m->logits, eg_norm_run(m->norm, x));
}
