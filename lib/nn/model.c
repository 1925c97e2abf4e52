/* model.c: complete models: tokens → embedding + positions → blocks → norm → logits, with or
 * without an encoder. */
#include "nn.h"
#include <eingrad/grad.h>

/* -- parts that the models share -------------------------------------------------------------- */
/* Makes `count` blocks with the names "0", "1" …. each: the options of each one's attention; NULL:
 * those of `like`. */
static eg_block **model_blocks(eg_params *p, int64_t count, const eg_block_args *like,
                               const eg_mha_args *const *each)
{
    eg_block **block = eg_params_alloc(p, (size_t)count * sizeof *block);
    for (int64_t k = 0; block && k < count; k++) {
        eg_block_args o = *like;
        o.size = sizeof o, o.params = p, o.name = eg__nn_text(p, "%lld", (long long)k);
        o.mha = each ? each[k] : o.mha;
        block[k] = eg_block_new_with(&o);
        if (!block[k]) return NULL;
    }
    return block;
}

/* Returns the logits after the norm; with tied weights logits = x Eᵀ. cap: c of c tanh(logits/c),
 * or 0. */
static eg_tensor *model_logits(const eg_norm *norm, const eg_linear *logits, const eg_embedding *e,
                               double cap, eg_tensor *x)
{
    x = norm ? eg_norm_run(norm, x) : x;
    x = logits ? eg_linear_run(logits, x) : eg_einsum("...m,vm->...v", x, e->table);
    return cap > 0 ? eg_scale(eg_tanh(eg_scale(x, 1 / cap)), cap) : x;
}

/* Tokens without padding: how they are packed, and into how many positions. */
typedef struct model_packing {
    eg_packed of;
    int64_t packed_length;
    const char *who, *name, *option; /* for messages: transformer "net": .lengths */
} model_packing;
/* If packing failed and x is poison, prepends the model and its option to the error. */
static eg_tensor *model_packing_error(const model_packing *p, eg_ctx *cx, bool before, eg_tensor *x)
{
    return before || eg_ok(x) ? x : eg_fail_in(cx, "%s \"%s\": %s", p->who, p->name, p->option);
}
/* Sets the other members of *p for x (b l …) of these lengths; lengths NULL: it is not packed.
 * packed_length 0: as many positions as are needed. cached: the run has a cache, with which lengths
 * are refused. False after an error. */
static bool model_packs(model_packing *p, eg_tensor *x, eg_tensor *lengths, int64_t packed_length,
                        bool cached)
{
    eg_ctx *cx = eg_context(x);
    const bool before = failed(x), counts = lengths && !packed_length;
    if (!x || (!lengths && !packed_length)) return true;
    if (lengths && cached)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "it cannot be used beside .cache; .keep hides padding");
    else if (lengths && eg_ok(x) && eg_rank(x) < 2)
        eg_fail_as(cx, EG_ERROR_SHAPE, "it belongs to axes b and l, but there is %d axis",
                   eg_rank(x));
    else if (packed_length < 0 || (packed_length && !lengths))
        eg_fail_as(cx, EG_ERROR_SHAPE,
                   lengths ? "the number of packed positions is %lld, but must not be negative"
                           : "the number of packed positions is %lld, but there are no lengths",
                   (long long)packed_length);
    else if (counts && eg_capturing(cx))
        eg_fail_as(cx, EG_ERROR_MISUSE, "a captured step needs the number of positions beside it");
    else if (lengths && eg_ok(x)) {
        const int64_t all = eg_dim(x, 0) * eg_dim(x, 1),
                      needed = counts ? eg_packed_length(lengths) : packed_length;
        p->of = (eg_packed){ lengths, eg_dim(x, 1) };
        p->packed_length = counts && needed > all ? all : needed;
    }
    if (!eg_error(cx)) return true;
    model_packing_error(p, cx, before, NULL);
    return false;
}
/* Returns x (b l …) as (1 p …), or x itself if it is not packed. */
static eg_tensor *model_packed(const model_packing *p, eg_tensor *x)
{
    const bool before = failed(x);
    if (!p->of.lengths) return x;
    return model_packing_error(p, eg_context(x), before,
                               eg_unsqueeze(eg_pack(x, p->of.lengths, p->packed_length), 0));
}
/* Returns x (1 p …) as (b l …), or x itself if it is not packed. */
static eg_tensor *model_unpacked(const model_packing *p, eg_tensor *x)
{
    return p->of.lengths ? eg_unpack(eg_select_axis(x, 0, 0), p->of.lengths, p->of.max_length) : x;
}
/* Returns the embedded tokens plus positions from `before` on, packed if p requires it. */
static eg_tensor *model_tokens(const eg_embedding *e, const eg_positions *at, eg_tensor *index,
                               const model_packing *p, int64_t before)
{
    if (at && eg_ok(index) && eg_rank(index) != 2)
        return eg_fail_as(eg_context(index), EG_ERROR_SHAPE,
                          "%s \"%s\": the tokens have %d ax%s, but must be (b l)", p->who, p->name,
                          eg_rank(index), eg_rank(index) == 1 ? "is" : "es");
    eg_tensor *x = eg_embedding_run(e, model_packed(p, index));
    if (!at) return x;
    if (!p->of.lengths) return eg_positions_run(at, x, .offset = before);
    const int64_t dims[] = { eg_dim(p->of.lengths, 0), p->of.max_length };
    eg_tensor *place =
        eg_expand_n(eg_arange(eg_context(x), EG_I32, 0, (double)dims[1], 1), 2, dims);
    return eg_positions_run(at, x, .position_ids = eg_pack(place, p->of.lengths, p->packed_length));
}

/* A function of the program between layers, and its names for messages: transformer "net":
 * .layer_fn */
typedef struct model_layers {
    eg_tensor *(*fn)(void *user, int64_t layer, eg_tensor *x); /* NULL: none */
    void *user;
    const char *who, *name, *option;
} model_layers;
/* Returns what the function returns for x (b l m) after `layer` layers; x if it is NULL. Poison
 * after an error, such as a result of another shape or dtype. */
static eg_tensor *model_between(const model_layers *f, int64_t layer, eg_tensor *x)
{
    if (!f->fn || !eg_ok(x)) return x;
    eg_ctx *cx = eg_context(x);
    const eg_switches was = eg_switches_of(cx);
    eg_tensor *y = f->fn(f->user, layer, x);
    const char *changed = eg_switches_restore(cx, was);
    if (changed)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s \"%s\": %s was called in %s and not undone", f->who,
                   f->name, changed, f->option);
    if (!y && !eg_error(cx)) return x;
    if (eg_error(cx)) return eg__nn_poison(cx);
    const int64_t *want = eg_dims(x), *have = eg_dims(y);
    if (!eg_ok(y))
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "%s \"%s\": %s returned a tensor whose scope is gone", f->who, f->name,
                          f->option);
    if (eg_rank(y) != 3)
        return eg_fail_as(cx, EG_ERROR_SHAPE,
                          "%s \"%s\": %s returned a tensor of rank %d for x (b l m)", f->who,
                          f->name, f->option, eg_rank(y));
    if (eg_type(x) == eg_type(y) && !memcmp(want, have, 3 * sizeof *want)) return y;
    return eg_fail_as(cx, eg_type(x) == eg_type(y) ? EG_ERROR_SHAPE : EG_ERROR_DTYPE,
                      "%s \"%s\": %s returned %s (%lld, %lld, %lld) for x %s (%lld, %lld, %lld)",
                      f->who, f->name, f->option, eg_type_name(eg_type(y)), (long long)have[0],
                      (long long)have[1], (long long)have[2], eg_type_name(eg_type(x)),
                      (long long)want[0], (long long)want[1], (long long)want[2]);
}

static eg_tensor *model_row(eg_tensor *gain, int64_t k)
{
    return gain ? eg_select_axis(gain, 0, k) : NULL;
}

/* True if the gain is NULL or has shape (rows, heads); else records an error. */
static bool gain_fits(const char *who, const char *name, eg_tensor *gain, eg_tensor *x,
                      int64_t rows, int64_t heads)
{
    if (!gain ||
        (eg_ok(gain) && eg_rank(gain) == 2 && eg_dim(gain, 0) == rows && eg_dim(gain, 1) == heads))
        return true;
    return eg_fail_as(
               eg_context(x), EG_ERROR_SHAPE,
               "%s \"%s\": the gain needs (%lld, %lld) numbers, but has %d ax%s and %lld number%s",
               who, name, (long long)rows, (long long)heads, eg_rank(gain),
               eg_rank(gain) == 1 ? "is" : "es", (long long)eg_size(gain),
               eg_size(gain) == 1 ? "" : "s"),
           false;
}

static bool tied_fits(eg_params *p, const char *who, bool tied, int64_t classes, int64_t vocabulary)
{
    if (!tied || !classes || classes == vocabulary) return true;
    return eg__nn_refuse(
               p, EG_ERROR_MISUSE, who,
               "tied logits need as many classes as the vocabulary has, not %lld and %lld",
               (long long)classes, (long long)vocabulary),
           false;
}

/* True unless an option of the positions is given that .no_positions leaves without effect; then
 * records an error. */
static bool positions_fit(eg_params *p, const char *who, bool no_positions, bool sinusoid)
{
    if (!no_positions || !sinusoid) return true;
    return eg__nn_refuse(p, EG_ERROR_MISUSE, who, ".sinusoid and .no_positions exclude each other"),
           false;
}

/* -- transformer ------------------------------------------------------------------------------ */
/* True if the numbers among the options are allowed; else records an error. */
static bool model_fits(eg_params *p, const eg_transformer_args *a)
{
    const double cap = eg_option(a->logits_cap, 0);
    if (!(cap >= 0 && cap < 1e300))
        eg__nn_refuse(p, EG_ERROR_MISUSE, "transformer",
                      "logits_cap is %g; it must be finite and not negative", cap);
    else if (cap > 0 && a->no_logits)
        eg__nn_refuse(p, EG_ERROR_MISUSE, "transformer",
                      "logits_cap is %g, but .no_logits leaves the logits out", cap);
    else if (a->first_position && a->no_positions)
        eg__nn_refuse(p, EG_ERROR_MISUSE, "transformer",
                      "first_position is %lld, but .no_positions leaves the table out",
                      (long long)a->first_position);
    else if (a->classes && a->no_logits)
        eg__nn_refuse(p, EG_ERROR_MISUSE, "transformer",
                      "classes is %lld, but .no_logits leaves the logits out",
                      (long long)a->classes);
    else
        return positions_fit(p, "transformer", a->no_positions, a->sinusoid);
    return false;
}

/* Parameters are made in the order of the forward pass, which is their order in files. */
eg_transformer *eg_transformer_new_with(const eg_transformer_args *given)
{
    OPTIONS(eg_transformer_args, a, given);
    eg_params *p = eg__nn_under(a->params, "transformer", a->name);
    if (!p || !eg__nn_positive(p, "transformer", "layers", a->layers) ||
        !tied_fits(p, "transformer", a->tied, a->classes, a->vocabulary) || !model_fits(p, a))
        return NULL;
    eg_transformer *m = eg_params_alloc(p, sizeof *m);
    if (!m) return NULL;
    const int before = eg_params_count(p);
    *m = (eg_transformer){ .name = eg__nn_name(a->params, a->name),
                           .layers = a->layers,
                           .no_logits = a->no_logits,
                           .logits_cap = eg_option(a->logits_cap, 0),
                           .dropout = a->dropout };
    m->tokens = eg_embedding_new(p, "tokens", .count = a->vocabulary, .d_model = a->d_model,
                                 .deviation = a->deviation, .scale = a->embedding_scale);
    if (a->types)
        m->types = eg_embedding_new(p, "types", .count = a->types, .d_model = a->d_model,
                                    .deviation = a->deviation);
    if (!a->no_positions)
        m->positions = eg_positions_new(
            p, "positions", .length = a->length, .first = a->first_position, .d_model = a->d_model,
            .sinusoid = a->sinusoid, .deviation = a->sinusoid ? 0 : a->deviation);
    if (a->embedding_norm)
        m->embedding_norm = eg_norm_new(p, "embedding_norm", .d_model = a->d_model, .rms = a->rms,
                                        .eps = a->eps, .no_bias = a->no_bias);
    m->block = model_blocks(p, a->layers,
                            &(eg_block_args){ .d_model = a->d_model,
                                              .heads = a->heads,
                                              .width = a->width,
                                              .dropout = a->dropout,
                                              .rms = a->rms,
                                              .eps = a->eps,
                                              .activation = a->activation,
                                              .gated = a->gated,
                                              .post_norm = a->post_norm,
                                              .branch_norm = a->branch_norm,
                                              .sandwich = a->sandwich,
                                              .parallel = a->parallel,
                                              .shared_norm = a->shared_norm,
                                              .no_bias = a->no_bias,
                                              .no_ffn_bias = a->no_ffn_bias,
                                              .mha = a->mha,
                                              .init = a->init },
                            a->mha_each);
    if (!a->post_norm)
        m->norm = eg_norm_new(p, "norm", .d_model = a->d_model, .rms = a->rms, .eps = a->eps,
                              .no_bias = a->no_bias);
    if (!a->tied && !a->no_logits)
        m->logits =
            eg_linear_new(p, "logits", .in = a->d_model, .out = width_or(a->classes, a->vocabulary),
                          .no_bias = a->no_bias || a->no_logits_bias, .init = a->init);
    return eg__nn_made(p, before, m);
}

/* Returns the norm of tokens + types + positions. Without types, all tokens have type 0. */
static eg_tensor *transformer_embedded(const eg_transformer *m, const eg_transformer_run_args *a,
                                       const eg__part *part, const model_packing *packing)
{
    eg_tensor *x = part->ranks ? eg_embedding_run(m->tokens, a->index)
                               : model_tokens(m->tokens, m->positions, a->index, packing,
                                              eg_cache_position(a->cache));
    if (a->types && !m->types)
        return eg_fail_as(eg_context(a->index), EG_ERROR_MISUSE,
                          "transformer \"%s\": made without types, but run with some", m->name);
    if (a->types)
        x = eg_on("b l m, b l m", eg_add, x,
                  eg_embedding_run(m->types, model_packed(packing, a->types)));
    else if (m->types)
        x = eg_on("b l m, m", eg_add, x, eg__nn_float(eg_select_axis(m->types->table, 0, 0)));
    if (part->ranks && m->positions)
        x = eg_positions_run(m->positions, x, .position_ids = eg__part_positions(part, 0));
    return eg__part_dropped(part, 1, m->embedding_norm ? eg_norm_run(m->embedding_norm, x) : x,
                            m->dropout);
}

/* A model whose tensors are shared by all ranks; blocks share their own tensors. */
typedef struct transformer_part {
    eg_transformer model;
    eg_embedding tokens, types;
    eg_positions positions;
    eg_norm norm[2];
    eg_linear logits;
} transformer_part;
/* Sets *p to a copy of the model whose tensors are shared by all ranks, and returns it. */
static const eg_transformer *transformer_shared(eg_ranks *r, const eg_transformer *m,
                                                transformer_part *p)
{
    p->model = *m, p->tokens = *m->tokens;
    p->tokens.table = eg_ranks_shared(r, m->tokens->table);
    p->model.tokens = &p->tokens;
    if (m->types) {
        p->types = *m->types;
        p->types.table = eg_ranks_shared(r, m->types->table);
        p->model.types = &p->types;
    }
    if (m->positions) {
        p->positions = *m->positions;
        p->positions.table = eg_ranks_shared(r, m->positions->table);
        p->model.positions = &p->positions;
    }
    p->model.embedding_norm = eg__part_norm(r, m->embedding_norm, &p->norm[0]);
    p->model.norm = eg__part_norm(r, m->norm, &p->norm[1]);
    p->model.logits = eg__part_linear(r, m->logits, &p->logits);
    return &p->model;
}
/* Finds this rank's part of the tokens. False after an error, on every rank. */
static bool transformer_divides(const eg_transformer *m, const eg_transformer_run_args *a,
                                eg__part *part)
{
    eg_ctx *cx = eg_ranks_context(a->ranks);
    if (!a->ranks) return true;
    const bool fits = eg_ok(a->index) && eg_rank(a->index) == 2;
    if (cx != eg_context(a->index))
        eg_fail_as(cx, EG_ERROR_MISUSE, ".ranks belongs to another context");
    else if (!fits)
        eg_fail_as(cx, EG_ERROR_SHAPE, ".ranks: the index is of rank %d, not b l",
                   a->index ? eg_rank(a->index) : 0);
    else if (a->cache)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   ".ranks: .cache is not divided among ranks; decode on one rank");
    else if (a->lengths)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   ".ranks: .lengths packs positions that the ranks divide; .keep hides padding");
    if (!eg__part_find(part, a->ranks, fits ? eg_dim(a->index, 1) : 0, a->ranks_block, a->zigzag))
        return false;
    if (!m->positions || part->length <= m->positions->length) return true;
    return eg_fail_as(cx, EG_ERROR_INDEX, "positions: 'l' goes to %lld, but the table ends at %lld",
                      (long long)part->length, (long long)m->positions->length),
           false;
}

/* Tokens, packed if there are .lengths, pass through the blocks; the result is unpacked. */
eg_tensor *eg_transformer_run_with(const eg_transformer_run_args *given)
{
    OPTIONS(eg_transformer_run_args, a, given);
    const eg_transformer *m = a->transformer;
    eg__part part = { .ranks = NULL };
    transformer_part shared;
    if (!m) return eg__nn_absent("transformer", a->index);
    if (!a->index) return eg__nn_missing("transformer", m->name, "the index", a->index);
    const bool before = failed(a->index);
    if (!transformer_divides(m, a, &part))
        return eg__nn_error_in("transformer", m->name, a->index, before, NULL);
    if (!gain_fits("transformer", m->name, a->gain, a->index, m->layers, m->block[0]->self->heads))
        return eg__nn_poison(eg_context(a->index));
    model_packing packing = { .who = "transformer", .name = m->name, .option = ".lengths" };
    if (!model_packs(&packing, a->index, a->lengths, a->packed_length, a->cache != NULL))
        return eg__nn_poison(eg_context(a->index));
    if (a->ranks) m = transformer_shared(a->ranks, m, &shared);
    const model_layers between = { a->layer_fn, a->user, "transformer", m->name, ".layer_fn" };
    const int64_t seen = eg_cache_position(a->cache);
    eg_tensor *x = model_between(&between, 0, transformer_embedded(m, a, &part, &packing));
    for (int64_t k = 0; k < m->layers; k++) {
        eg_block_run_args block = { .size = sizeof block,
                                    .block = m->block[k],
                                    .x = x,
                                    .where = a->where,
                                    .score = a->score,
                                    .keep = a->keep,
                                    .positions = a->positions,
                                    .packed = packing.of,
                                    .weights = a->weights ? a->weights + k : NULL,
                                    .cache = a->cache,
                                    .slot = (int)k,
                                    .gain = model_row(a->gain, k),
                                    .ranks = a->ranks,
                                    .ranks_block = a->ranks_block,
                                    .zigzag = a->zigzag };
        memcpy(block.with, a->with, sizeof block.with);
        x = model_between(&between, k + 1, eg_block_run_with(&block));
    }
    if (!m->no_logits)
        x = model_logits(m->norm, m->logits, m->tokens, m->logits_cap, x);
    else if (m->norm)
        x = eg_norm_run(m->norm, x);
    return eg__cache_roll_back(a->cache, model_unpacked(&packing, x), 0, 1, m->layers, seen);
}

/* -- encoder and decoder ---------------------------------------------------------------------- */
/* A decoder block is an encoder block with cross attention. */
eg_seq2seq *eg_seq2seq_new_with(const eg_seq2seq_args *given)
{
    OPTIONS(eg_seq2seq_args, a, given);
    eg_params *p = eg__nn_under(a->params, "seq2seq", a->name);
    int64_t source = width_or(a->source_vocabulary, a->vocabulary),
            decoder_layers = width_or(a->decoder_layers, a->layers);
    if (!p || !eg__nn_positive(p, "seq2seq", "layers", a->layers) ||
        !eg__nn_positive(p, "seq2seq", "decoder_layers", decoder_layers) ||
        !positions_fit(p, "seq2seq", a->no_positions, a->sinusoid))
        return NULL;
    if (a->shared && source != a->vocabulary)
        return eg__nn_refuse(p, EG_ERROR_MISUSE, "seq2seq",
                             "a shared embedding needs one vocabulary, not %lld and %lld",
                             (long long)source, (long long)a->vocabulary),
               NULL;
    eg_seq2seq *m = eg_params_alloc(p, sizeof *m);
    if (!m) return NULL;
    const int before = eg_params_count(p);
    *m = (eg_seq2seq){ .name = eg__nn_name(a->params, a->name),
                       .layers = a->layers,
                       .decoder_layers = decoder_layers,
                       .dropout = a->dropout };
    m->target = eg_embedding_new(p, a->shared ? "tokens" : "target", .count = a->vocabulary,
                                 .d_model = a->d_model, .deviation = a->deviation);
    m->source = a->shared ? m->target
                          : eg_embedding_new(p, "source", .count = source, .d_model = a->d_model,
                                             .deviation = a->deviation);
    if (!a->no_positions) {
        m->source_positions =
            eg_positions_new(p, "source_positions", .length = width_or(a->source_length, a->length),
                             .d_model = a->d_model, .sinusoid = a->sinusoid,
                             .deviation = a->sinusoid ? 0 : a->deviation);
        m->positions =
            eg_positions_new(p, "positions", .length = a->length, .d_model = a->d_model,
                             .sinusoid = a->sinusoid, .deviation = a->sinusoid ? 0 : a->deviation);
    }
    eg_block_args like = { .d_model = a->d_model,
                           .heads = a->heads,
                           .width = a->width,
                           .dropout = a->dropout,
                           .rms = a->rms,
                           .eps = a->eps,
                           .activation = a->activation,
                           .gated = a->gated,
                           .post_norm = a->post_norm,
                           .no_bias = a->no_bias,
                           .mha = a->mha,
                           .init = a->init };
    m->encoder = model_blocks(eg_params_under(p, "encoder"), a->layers, &like, NULL);
    like.cross = true;
    m->decoder = model_blocks(eg_params_under(p, "decoder"), decoder_layers, &like, NULL);
    if (!a->post_norm) {
        m->source_norm = eg_norm_new(p, "source_norm", .d_model = a->d_model, .rms = a->rms,
                                     .eps = a->eps, .no_bias = a->no_bias);
        m->norm = eg_norm_new(p, "norm", .d_model = a->d_model, .rms = a->rms, .eps = a->eps,
                              .no_bias = a->no_bias);
    }
    if (!a->tied)
        m->logits = eg_linear_new(p, "logits", .in = a->d_model, .out = a->vocabulary,
                                  .no_bias = a->no_bias, .init = a->init);
    return eg__nn_made(p, before, m);
}

static bool seq2seq_gain(const eg_seq2seq *m, eg_tensor *gain, eg_tensor *x)
{
    return gain_fits("seq2seq", m->name, gain, x, m->layers + 2 * m->decoder_layers,
                     m->encoder[0]->self->heads);
}

/* The encoder alone: its result can be the memory of several calls of the decoder. */
eg_tensor *eg_seq2seq_encode_with(const eg_seq2seq_run_args *given)
{
    OPTIONS(eg_seq2seq_run_args, a, given);
    const eg_seq2seq *m = a->net;
    if (!m) return eg__nn_absent("seq2seq", a->source);
    if (!a->source) return eg__nn_missing("seq2seq", m->name, "the source", a->source);
    if (!seq2seq_gain(m, a->gain, a->source)) return eg__nn_poison(eg_context(a->source));
    model_packing packing = { .who = "seq2seq", .name = m->name, .option = ".source_lengths" };
    if (!model_packs(&packing, a->source, a->source_lengths, a->packed_source_length, false))
        return eg__nn_poison(eg_context(a->source));
    eg_tensor *x = model_tokens(m->source, m->source_positions, a->source, &packing, 0);
    const model_layers between = { a->source_layer_fn, a->user, "seq2seq", m->name,
                                   ".source_layer_fn" };
    x = model_between(&between, 0, eg__nn_dropped(x, m->dropout));
    for (int64_t k = 0; k < m->layers; k++) {
        eg_block_run_args block = { .size = sizeof block,
                                    .block = m->encoder[k],
                                    .x = x,
                                    .where = a->source_where,
                                    .score = a->source_score,
                                    .keep = a->source_keep,
                                    .packed = packing.of,
                                    .weights = a->source_weights ? a->source_weights + k : NULL,
                                    .gain = model_row(a->gain, k) };
        memcpy(block.with, a->with, sizeof block.with);
        x = model_between(&between, k + 1, eg_block_run_with(&block));
    }
    return model_unpacked(&packing, m->source_norm ? eg_norm_run(m->source_norm, x) : x);
}

/* Returns "j <= i", combined by & with the predicate if there is one. */
static const char *causal_where(eg_ctx *cx, const char *where)
{
    static const char causal[] = "j <= i";
    if (!where) return causal;
    const eg_formula *f = eg_formula_and(eg_formula_parse(cx, "seq2seq: .where", causal),
                                         eg_formula_parse(cx, "seq2seq: .where", where));
    return f ? f->text : where;
}

/* The self attention of each block is causal. In the gain the decoder's rows follow those of the
 * encoder, two for each block: self and cross attention. */
eg_tensor *eg_seq2seq_decode_with(const eg_seq2seq_decode_args *given)
{
    OPTIONS(eg_seq2seq_decode_args, a, given);
    const eg_seq2seq *m = a->net;
    if (!m) return eg__nn_absent("seq2seq", a->target);
    if (!a->target) return eg__nn_missing("seq2seq", m->name, "the target", a->target);
    if (!seq2seq_gain(m, a->gain, a->target)) return eg__nn_poison(eg_context(a->target));
    const bool cached = a->cache != NULL;
    model_packing packing = { .who = "seq2seq", .name = m->name, .option = ".lengths" },
                  memory = { .who = "seq2seq", .name = m->name, .option = ".memory_lengths" };
    if (!model_packs(&packing, a->target, a->lengths, a->packed_length, cached) ||
        !model_packs(&memory, a->memory, a->memory_lengths, a->packed_memory_length, cached))
        return eg__nn_poison(eg_context(a->target));
    const int64_t seen[] = { eg_cache_position(a->cache), eg__cache_position(a->cache, 1) };
    eg_tensor *x = model_tokens(m->target, m->positions, a->target, &packing, seen[0]);
    const model_layers between = { a->layer_fn, a->user, "seq2seq", m->name, ".layer_fn" };
    x = model_between(&between, 0, eg__nn_dropped(x, m->dropout));
    eg_tensor *const keys = model_packed(&memory, a->memory);
    const char *where = causal_where(eg_context(a->target), a->where);
    for (int64_t k = 0; k < m->decoder_layers; k++) {
        eg_block_run_args block = { .size = sizeof block,
                                    .block = m->decoder[k],
                                    .x = x,
                                    .memory = keys,
                                    .packed = packing.of,
                                    .memory_packed = memory.of,
                                    .where = where,
                                    .score = a->score,
                                    .keep = a->keep,
                                    .memory_where = a->memory_where,
                                    .memory_score = a->memory_score,
                                    .memory_keep = a->memory_keep,
                                    .weights = a->weights ? a->weights + k : NULL,
                                    .memory_weights =
                                        a->memory_weights ? a->memory_weights + k : NULL,
                                    .cache = a->cache,
                                    .slot = (int)(2 * k),
                                    .gain = model_row(a->gain, m->layers + 2 * k),
                                    .memory_gain = model_row(a->gain, m->layers + 2 * k + 1) };
        memcpy(block.with, a->with, sizeof block.with);
        x = model_between(&between, k + 1, eg_block_run_with(&block));
    }
    x = model_unpacked(&packing, model_logits(m->norm, m->logits, m->target, 0, x));
    for (int k = 0; k < 2; k++)
        x = eg__cache_roll_back(a->cache, x, k, 2, m->decoder_layers, seen[k]);
    return x;
}

eg_tensor *eg_seq2seq_run_with(const eg_seq2seq_run_args *given)
{
    OPTIONS(eg_seq2seq_run_args, a, given);
    eg_seq2seq_decode_args decode = { .size = sizeof decode,
                                      .net = a->net,
                                      .target = a->target,
                                      .memory = eg_seq2seq_encode_with(a),
                                      .where = a->where,
                                      .score = a->score,
                                      .memory_where = a->memory_where,
                                      .memory_score = a->memory_score,
                                      .keep = a->keep,
                                      .memory_keep = a->source_keep,
                                      .lengths = a->lengths,
                                      .packed_length = a->packed_length,
                                      .memory_lengths = a->source_lengths,
                                      .packed_memory_length = a->packed_source_length,
                                      .weights = a->weights,
                                      .memory_weights = a->memory_weights,
                                      .layer_fn = a->layer_fn,
                                      .user = a->user,
                                      .gain = a->gain };
    memcpy(decode.with, a->with, sizeof decode.with);
    return eg_seq2seq_decode_with(&decode);
}
