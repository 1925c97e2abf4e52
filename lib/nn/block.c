/* block.c: the feed-forward module and the transformer block. */
#include "nn.h"
#include <limits.h>

/* -- feed-forward: y = dropout(act(x W₁ + b₁)) W₂ + b₂; gated: act(x W_g + b_g) ⊙ (x W₁ + b₁) in
 * place of act(…) -- */
eg_ffn *eg_ffn_new_with(const eg_ffn_args *given)
{
    OPTIONS(eg_ffn_args, a, given);
    eg_params *p = eg__nn_under(a->params, "ffn", a->name);
    if (!p || !eg__nn_positive(p, "ffn", "d_model", a->d_model) ||
        !eg__nn_dropout_fits(p, "ffn", a->dropout))
        return NULL;
    eg_ffn *m = eg_params_alloc(p, sizeof *m);
    if (!m) return NULL;
    const int before = eg_params_count(p);
    int64_t width = width_or(a->width, 4 * a->d_model);
    *m = (eg_ffn){
        .name = eg__nn_name(a->params, a->name),
        .activation = a->activation ? a->activation : eg_gelu,
        .dropout = a->dropout,
    };
    if (a->gated)
        m->gate = eg_linear_new(p, "gate", .in = a->d_model, .out = width, .no_bias = a->no_bias,
                                .init = a->init);
    m->up = eg_linear_new(p, "up", .in = a->d_model, .out = width, .no_bias = a->no_bias,
                          .init = a->init);
    m->down = eg_linear_new(p, "down", .in = width, .out = a->d_model, .no_bias = a->no_bias,
                            .init = a->init);
    return eg__nn_made(p, before, m);
}

/* Returns the name by which eg_affine knows an activation; NULL if it is not an operation of the
 * library. */
static const char *ffn_activation(eg_activation *f)
{
    static const struct {
        eg_activation *f;
        const char *name;
    } known[] = { { eg_gelu, "gelu" },           { eg_relu, "relu" },       { eg_silu, "silu" },
                  { eg_gelu_tanh, "gelu_tanh" }, { eg_sigmoid, "sigmoid" }, { eg_tanh, "tanh" },
                  { eg_softplus, "softplus" } };
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (known[k].f == f) return known[k].name;
    return NULL;
}
/* Returns act(x W + b). */
static eg_tensor *ffn_active(const eg_ffn *m, const eg_linear *l, eg_tensor *x)
{
    const char *name = ffn_activation(m->activation);
    return name ? eg__nn_linear(l, x, name, NULL) : m->activation(eg_linear_run(l, x));
}
/* Returns the module's result, plus r if that is not NULL. For dropout, x has the positions of
 * `part` along `axis`. */
static eg_tensor *ffn_run(const eg_ffn *m, eg_tensor *x, eg_tensor *r, const eg__part *part,
                          int axis)
{
    if (!m) return eg__nn_absent("ffn", x);
    if (!x) return eg__nn_missing("ffn", m->name, "x", x);
    eg_tensor *up = m->gate ? eg_linear_run(m->up, x) : NULL,
              *y = ffn_active(m, m->gate ? m->gate : m->up, x);
    y = eg__part_dropped(part, axis, up ? eg_mul(y, up) : y, m->dropout);
    return eg__nn_linear(m->down, y, NULL, r);
}
eg_tensor *eg_ffn_run(const eg_ffn *m, eg_tensor *x)
{
    return ffn_run(m, x, NULL, &(eg__part){ .ranks = NULL }, 0);
}

/* -- block ------------------------------------------------------------------------------------ */
/* Makes an attention of the block: the options .mha with the block's sizes and options. In cross
 * attention the positions of queries and keys are those of two different sequences, so options that
 * compare them are left out. */
static eg_mha *block_attention(const eg_block_args *a, eg_params *p, const char *name, bool self)
{
    eg_mha_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, a->mha);
    o.params = p, o.name = name;
    o.d_model = a->d_model, o.heads = a->heads;
    o.dropout = eg_option(o.dropout, self && o.linear ? 0 : a->dropout);
    o.no_bias = a->no_bias || o.no_bias;
    o.init = o.init ? o.init : a->init;
    if (!self) {
        memset(o.with, 0, sizeof o.with);
        o.kdim = o.vdim = a->memory_dim;
        o.rotary = 0, o.rotary_frequencies = NULL, o.rotary_width = 0, o.rotary_factor = 0;
        o.interleaved = false;
        o.alibi = o.no_softmax = false, o.where = o.score = NULL, o.core = NULL, o.linear = NULL,
        o.score_fn = NULL;
    }
    return eg_mha_new_with(&o);
}

static eg_norm *block_norm(const eg_block_args *a, eg_params *p, const char *name)
{
    return eg_norm_new(p, name, .d_model = a->d_model, .rms = a->rms, .eps = a->eps,
                       .no_bias = a->no_bias);
}

/* True if the block's options can be combined; else records an error. */
static bool block_fits(const eg_block_args *a, const eg_params *p)
{
    const struct {
        bool refused;
        const char *why;
    } rules[] = {
        { a->post_norm + a->branch_norm + a->sandwich > 1,
          "only one of .post_norm, .branch_norm and .sandwich may be set" },
        { a->parallel && a->post_norm, ".parallel and .post_norm exclude each other" },
        { a->parallel && a->cross, ".parallel and .cross exclude each other" },
        { a->shared_norm && !a->parallel, ".shared_norm belongs to .parallel, which is not set" },
        { a->shared_norm && a->branch_norm, ".shared_norm and .branch_norm exclude each other" },
    };
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++)
        if (rules[k].refused)
            return eg__nn_refuse(p, EG_ERROR_MISUSE, "block", "%s", rules[k].why), false;
    const eg_mha_args *m = a->mha;
    if (m && ((m->heads && m->heads != a->heads) || (m->d_model && m->d_model != a->d_model)))
        return eg__nn_refuse(p, EG_ERROR_SHAPE, "block",
                             ".mha has d_model %lld and heads %lld, the block %lld and %lld; leave "
                             "them out of .mha",
                             (long long)m->d_model, (long long)m->heads, (long long)a->d_model,
                             (long long)a->heads),
               false;
    if (!a->memory_dim || a->cross) return true;
    return eg__nn_refuse(p, EG_ERROR_MISUSE, "block", "memory_dim is %lld, but .cross is not set",
                         (long long)a->memory_dim),
           false;
}

/* The parameters are created in the order of the forward pass, which is their order in files. */
eg_block *eg_block_new_with(const eg_block_args *given)
{
    OPTIONS(eg_block_args, a, given);
    eg_params *p = eg__nn_under(a->params, "block", a->name);
    eg_block *m = p && block_fits(a, p) ? eg_params_alloc(p, sizeof *m) : NULL;
    if (!m) return NULL;
    const int before = eg_params_count(p);
    *m = (eg_block){ .name = eg__nn_name(a->params, a->name),
                     .post_norm = a->post_norm,
                     .branch_norm = a->branch_norm,
                     .parallel = a->parallel,
                     .dropout = a->dropout };
    m->norm_self = block_norm(a, p, "norm_self");
    m->self = block_attention(a, p, "self", true);
    if (a->sandwich) m->after_self = block_norm(a, p, "after_self");
    if (a->cross) {
        m->norm_cross = block_norm(a, p, "norm_cross");
        m->cross = block_attention(a, p, "cross", false);
        if (a->sandwich) m->after_cross = block_norm(a, p, "after_cross");
    }
    m->norm_ffn = a->shared_norm ? m->norm_self : block_norm(a, p, "norm_ffn");
    m->ffn = eg_ffn_new(p, "ffn", .d_model = a->d_model, .width = a->width,
                        .activation = a->activation, .gated = a->gated, .dropout = a->dropout,
                        .no_bias = a->no_bias || a->no_ffn_bias, .init = a->init);
    if (a->sandwich) m->after_ffn = block_norm(a, p, "after_ffn");
    return eg__nn_made(p, before, m);
}

/* Pre-norm: x + f(n(x)); post-norm: n(x + f(x)); branch norm: x + n(f(x)); sandwich:
 * x + n'(f(n(x))). block_in returns the operand of f; block_out returns the block's result from x
 * and y = f(…). */
static eg_tensor *block_in(const eg_block *m, const eg_norm *n, eg_tensor *x)
{
    return m->post_norm || m->branch_norm ? x : eg_norm_run(n, x);
}
/* Returns x if f itself adds it, in the product that computes its result; this requires that no
 * norm and no dropout is applied before the sum. Else returns NULL. */
static eg_tensor *block_add(const eg_block *m, eg_tensor *x)
{
    const bool drops = m->dropout && eg_training(eg_context(x));
    return drops || m->branch_norm || m->after_self ? NULL : x;
}
static eg_tensor *block_out(const eg_block *m, const eg__part *part, const eg_norm *n,
                            const eg_norm *after, eg_tensor *x, eg_tensor *y)
{
    const int axis = m->self->specs->position_axis;
    if (m->branch_norm || after) y = eg_norm_run(after ? after : n, y);
    eg_tensor *sum = block_add(m, x) ? y : eg_add(x, eg__part_dropped(part, axis, y, m->dropout));
    return m->post_norm ? eg_norm_run(n, sum) : sum;
}

/* A block whose tensors are shared by all ranks; attentions share their own tensors. */
typedef struct block_part {
    eg_block block;
    eg_ffn ffn;
    eg_linear linear[3];
    eg_norm norm[6];
} block_part;
static const eg_block *block_shared(eg_ranks *r, const eg_block *m, block_part *p)
{
    p->block = *m, p->ffn = *m->ffn;
    p->block.norm_self = eg__part_norm(r, m->norm_self, &p->norm[0]);
    p->block.norm_cross = eg__part_norm(r, m->norm_cross, &p->norm[1]);
    p->block.norm_ffn = m->norm_ffn == m->norm_self ? p->block.norm_self
                                                    : eg__part_norm(r, m->norm_ffn, &p->norm[2]);
    p->block.after_self = eg__part_norm(r, m->after_self, &p->norm[3]);
    p->block.after_cross = eg__part_norm(r, m->after_cross, &p->norm[4]);
    p->block.after_ffn = eg__part_norm(r, m->after_ffn, &p->norm[5]);
    p->ffn.gate = eg__part_linear(r, m->ffn->gate, &p->linear[0]);
    p->ffn.up = eg__part_linear(r, m->ffn->up, &p->linear[1]);
    p->ffn.down = eg__part_linear(r, m->ffn->down, &p->linear[2]);
    p->block.ffn = &p->ffn;
    return &p->block;
}
/* Finds this rank's part of x, if dropout needs it. False after an error, on every rank. */
static bool block_divides(const eg_block *m, const eg_block_run_args *a, eg__part *part)
{
    const int axis = m->self->specs->position_axis;
    if (!a->ranks || !eg_training(eg_ranks_context(a->ranks)) || !(m->dropout || m->ffn->dropout))
        return true;
    const bool fits = eg_ok(a->x) && eg_rank(a->x) > axis;
    if (!fits)
        eg_fail_as(eg_ranks_context(a->ranks), EG_ERROR_SHAPE,
                   "block \"%s\": x has no axis %d, that of the positions", m->name, axis);
    return eg__part_find(part, a->ranks, fits ? eg_dim(a->x, axis) : 0, a->ranks_block, a->zigzag);
}

/* Runs the self attention on `normed`; its last operation adds x, if block_add says so. */
static eg_tensor *block_self(const eg_block *m, const eg_block_run_args *a, eg_tensor *x,
                             eg_tensor *normed)
{
    eg_mha_run_args self = { .size = sizeof self,
                             .mha = m->self,
                             .query = normed,
                             .add = block_add(m, x),
                             .where = a->where,
                             .score = a->score,
                             .keep = a->keep,
                             .bias = a->bias,
                             .offset = a->offset,
                             .positions = a->positions,
                             .decay = a->decay,
                             .beta = a->beta,
                             .read = a->read,
                             .packed = a->packed,
                             .weights = a->weights,
                             .cache = a->cache,
                             .slot = a->slot,
                             .gain = a->gain,
                             .ranks = a->ranks,
                             .ranks_block = a->ranks_block,
                             .zigzag = a->zigzag };
    memcpy(self.with, a->with, sizeof self.with);
    return eg_mha_run_with(&self);
}
/* The same for the cross attention. before: number of positions before the first of x, to which its
 * expressions refer as well. */
static eg_tensor *block_cross(const eg_block *m, const eg_block_run_args *a, eg_tensor *x, int slot,
                              int64_t before)
{
    eg_mha_run_args cross = { .size = sizeof cross,
                              .mha = m->cross,
                              .query = block_in(m, m->norm_cross, x),
                              .add = block_add(m, x),
                              .key = a->memory,
                              .where = a->memory_where,
                              .score = a->memory_score,
                              .offset = a->memory_where || a->memory_score ? before : 0,
                              .keep = a->memory_keep,
                              .packed = a->packed,
                              .key_packed = a->memory_packed,
                              .weights = a->memory_weights,
                              .cache = a->cache,
                              .slot = slot,
                              .memory = a->ranks == NULL,
                              .gain = a->memory_gain,
                              .ranks = a->ranks,
                              .ranks_block = a->ranks_block,
                              .zigzag = a->zigzag };
    memcpy(cross.with, a->with, sizeof cross.with);
    return eg_mha_run_with(&cross);
}
/* Self attention, cross attention if there is a memory, and feed-forward, each with its norm. */
eg_tensor *eg_block_run_with(const eg_block_run_args *given)
{
    OPTIONS(eg_block_run_args, a, given);
    const eg_block *m = a->block;
    if (!m) return eg__nn_absent("block", a->x);
    if (!a->x) return eg__nn_missing("block", m->name, "x", a->x);
    if (!m->cross != !a->memory)
        return eg_fail_as(eg_context(a->x), EG_ERROR_MISUSE,
                          "block \"%s\": made with%s cross attention, but run with%s memory",
                          m->name, m->cross ? "" : "out", m->cross ? "out" : "");
    if (!m->cross && a->memory_packed.lengths)
        return eg_fail_as(eg_context(a->x), EG_ERROR_MISUSE,
                          "block \"%s\": .memory_packed, but it has no cross attention", m->name);
    eg__part part = { .ranks = NULL };
    block_part shared;
    if (!block_divides(m, a, &part)) return eg__nn_poison(eg_context(a->x));
    if (a->ranks) m = block_shared(a->ranks, m, &shared);
    const int next = a->slot < INT_MAX ? a->slot + 1 : -1;
    const int64_t seen[] = { eg__cache_position(a->cache, a->slot),
                             eg__cache_position(a->cache, next) };
    eg_tensor *x = a->x, *normed = block_in(m, m->norm_self, x);
    x = block_out(m, &part, m->norm_self, m->after_self, x, block_self(m, a, x, normed));
    if (m->cross)
        x = block_out(m, &part, m->norm_cross, m->after_cross, x,
                      block_cross(m, a, x, next, a->offset + (a->ranks ? 0 : seen[0])));
    if (!m->parallel || m->norm_ffn != m->norm_self)
        normed = block_in(m, m->norm_ffn, m->parallel ? a->x : x);
    eg_tensor *y = ffn_run(m->ffn, normed, block_add(m, x), &part, m->self->specs->position_axis);
    y = block_out(m, &part, m->norm_ffn, m->after_ffn, x, y);
    for (int k = 0; k < (m->cross ? 2 : 1); k++)
        y = eg__cache_roll_back(a->cache, y, k ? next : a->slot, 1, 1, seen[k]);
    return y;
}
