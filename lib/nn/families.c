/* families.c: the options of an eg_transformer that computes what a family of models does, from the
 * settings of its config.json. */
#include "config.h"
#include "nn.h"
#include <math.h>
#include <stdio.h>

enum { LAYERS_MAX = 65536 };

/* -- settings that all families have ----------------------------------------------------------- */
static const struct {
    const char *name;
    eg_activation *f;
} activations[] = {
    { "gelu", eg_gelu },
    { "gelu_python", eg_gelu },
    { "gelu_new", eg_gelu_tanh },
    { "gelu_fast", eg_gelu_tanh },
    { "gelu_pytorch_tanh", eg_gelu_tanh },
    { "relu", eg_relu },
    { "silu", eg_silu },
    { "swish", eg_silu },
    { "tanh", eg_tanh },
    { "sigmoid", eg_sigmoid },
};

static eg_activation *activation_of(const eg__config *c, const char *key, const char *otherwise)
{
    const char *name = eg__config_word(c, c->all, key, otherwise);
    for (size_t k = 0; k < sizeof activations / sizeof *activations; k++)
        if (!strcmp(activations[k].name, name)) return activations[k].f;
    eg__config_refuse(c, EG_ERROR_UNSUPPORTED, eg_json_find(c->all, key), key,
                      "which is none of gelu, gelu_new, relu, silu, tanh, sigmoid");
    return eg_gelu;
}

/* Returns a value for an option in which 0 would mean a default. */
static double family_eps(const eg__config *c, const char *key, double otherwise)
{
    const double eps = eg__config_real(c, c->all, key, otherwise);
    return eps > 0 ? eps : EG_OFF;
}

/* Refuses a setting unless it is missing or equal to the flag. */
static void only_flag(const eg__config *c, const char *key, bool wanted, const char *why)
{
    if (eg__config_flag(c, c->all, key, wanted) == wanted) return;
    eg__config_refuse(c, EG_ERROR_UNSUPPORTED, eg_json_find(c->all, key), key, why);
}

/* -- layers that differ ----------------------------------------------------------------------- */
static const char causal[] = "j <= i";

/* Gives the attentions of the layers k with is[k] the options `other`. */
static void layers_differ(const eg__config *c, eg_pretrained *o, const eg_mha_args *other,
                          const bool *is)
{
    const int64_t layers = o->model.layers;
    const eg_mha_args **each = eg_owner_alloc(c->owner, (size_t)layers * sizeof *each);
    int64_t count = 0;
    if (!each) return;
    o->mha_other = *other;
    for (int64_t k = 0; k < layers; k++) {
        count += is[k];
        each[k] = is[k] ? &o->mha_other : &o->mha;
    }
    if (count == layers)
        o->mha = *other;
    else if (count)
        o->model.mha_each = each;
}

/* Returns the first entry of a list that must have an entry for each layer; NULL if the list is
 * missing. */
static const eg_json *layer_list(const eg__config *c, const char *key, int64_t layers)
{
    const eg_json *list = eg__config_find(c->all, key);
    int64_t listed = 0;
    for (const eg_json *x = list ? list->first : NULL; x; x = x->next) listed++;
    if (list && listed != layers)
        eg_fail_as(c->cx, EG_ERROR_FILE, "%s: \"%s\" has %lld entr%s for %lld layer%s", c->path,
                   key, (long long)listed, listed == 1 ? "y" : "ies", (long long)layers,
                   layers == 1 ? "" : "s");
    return list && listed == layers ? list->first : NULL;
}

/* True if the entry x of a list is `yes`, false if it is `no`; else records an error. */
static bool layer_is(const eg__config *c, const eg_json *x, const char *key, const char *yes,
                     const char *no)
{
    char why[96];
    const char *word = x->kind == EG_JSON_STRING ? x->text : "";
    if (!strcmp(word, yes)) return true;
    snprintf(why, sizeof why, "which is neither %s nor %s", no, yes);
    if (strcmp(word, no)) eg__config_refuse(c, EG_ERROR_UNSUPPORTED, x, key, why);
    return false;
}

/* Which layers have a window where "layer_types" is missing: those from `full` on; or, if `period`
 * is not 0, all but the last of each `period` layers. */
typedef struct window_rule {
    int64_t size; /* positions; 0: there is no window */
    int64_t full, period;
    bool alike; /* all layers must be the same, also in layer_types */
} window_rule;

static const char *window_text(const eg__config *c, int64_t size)
{
    char *text = eg_owner_alloc(c->owner, 48);
    if (text) snprintf(text, 48, "i - %lld < j <= i", (long long)size);
    return text;
}

/* Sets the predicates of the layers: causal, and in some layers with a window. local: the options
 * of the latter; NULL: those of the others. */
static void windows(const eg__config *c, eg_pretrained *o, window_rule w, const eg_mha_args *local)
{
    const int64_t layers = o->model.layers;
    bool *is = eg_owner_alloc(c->owner, (size_t)layers);
    eg_mha_args other = local ? *local : o->mha;
    const eg_json *type = layer_list(c, "layer_types", layers);
    const bool listed = type != NULL;
    o->mha.where = causal, other.where = window_text(c, w.size);
    if (!is || !other.where) return;
    for (int64_t k = 0; k < layers && !eg_error(c->cx); k++) {
        is[k] = listed     ? layer_is(c, type, "layer_types", "sliding_attention", "full_attention")
                : !w.size  ? false
                : w.period ? (k + 1) % w.period != 0
                           : k >= w.full;
        if (is[k] ? !w.size : w.alike && w.size)
            eg__config_refuse(c, EG_ERROR_UNSUPPORTED, type, "layer_types",
                              is[k] ? "but no layer of the model has a window"
                                    : "but every layer of the model has the window");
        type = type ? type->next : NULL;
    }
    layers_differ(c, o, &other, is);
}

/* Returns the size of the window; 0 if the setting is null, `otherwise` if it is missing. */
static int64_t window_of(const eg__config *c, int64_t otherwise)
{
    const eg_json *window = eg_json_find(c->all, "sliding_window");
    if (window ? window->kind == EG_JSON_NULL : !otherwise) return 0;
    return eg__config_size(c, "sliding_window", otherwise);
}

/* -- GPT-2 and models with its names ----------------------------------------------------------- */
/* Radford et al. 2019 */
static void gpt2_sizes(const eg__config *c, eg_pretrained *o)
{
    eg_transformer_args *m = &o->model;
    m->d_model = eg__config_size(c, "n_embd", 0);
    m->heads = eg__config_size(c, "n_head", 0);
    m->layers = eg__config_count(c, "n_layer", 0, LAYERS_MAX);
    m->width = eg__config_size(c, "n_inner", 4 * m->d_model);
    m->length = eg__config_size(c, "n_positions", 0);
    m->eps = family_eps(c, "layer_norm_epsilon", 1e-5);
    m->activation = activation_of(c, "activation_function", "gelu_new");
    o->mha.where = causal;
}
static void gpt2_options(const eg__config *c, eg_pretrained *o)
{
    gpt2_sizes(c, o);
    o->model.tied = eg__config_flag(c, c->all, "tie_word_embeddings", true);
    o->model.no_logits_bias = true;
    o->mha.scale = eg__config_flag(c, c->all, "scale_attn_weights", true) ? 0 : 1;
}

/* Wang, Komatsuzaki 2021: attention and feed-forward part read one norm; rotated pairs are
 * neighbours */
static void gptj_options(const eg__config *c, eg_pretrained *o)
{
    gpt2_sizes(c, o);
    o->model.parallel = o->model.shared_norm = o->model.no_positions = true;
    o->mha.no_bias = o->mha.interleaved = true;
    o->mha.rotary = 10000, o->mha.rotary_width = eg__config_size(c, "rotary_dim", 0);
    only_flag(c, "tie_word_embeddings", false, "but logits with a bias have their own matrix");
}

/* Black et al. 2021: scores are not scaled, every other layer has a window */
static void gpt_neo_options(const eg__config *c, eg_pretrained *o)
{
    static const char key[] = "attention_layers";
    eg_transformer_args *m = &o->model;
    m->d_model = eg__config_size(c, "hidden_size", 0);
    m->heads = eg__config_size(c, "num_heads", 0);
    m->layers = eg__config_count(c, "num_layers", 0, LAYERS_MAX);
    m->width = eg__config_size(c, "intermediate_size", 4 * m->d_model);
    m->length = eg__config_size(c, "max_position_embeddings", 0);
    m->eps = family_eps(c, "layer_norm_epsilon", 1e-5);
    m->activation = activation_of(c, "activation_function", "gelu_new");
    m->tied = eg__config_flag(c, c->all, "tie_word_embeddings", true);
    m->no_logits_bias = true;
    o->mha.scale = 1, o->mha.where = causal;
    o->mha.no_q_bias = o->mha.no_k_bias = o->mha.no_v_bias = true;
    const eg_json *x = layer_list(c, key, m->layers);
    bool *is = eg_owner_alloc(c->owner, (size_t)m->layers);
    eg_mha_args other = o->mha;
    other.where = window_text(c, eg__config_size(c, "window_size", 256));
    if (!x && !eg_error(c->cx))
        eg__config_refuse(c, EG_ERROR_FILE, NULL, key,
                          "but each layer needs \"global\" or "
                          "\"local\"");
    for (int64_t k = 0; is && x && !eg_error(c->cx); k++, x = x->next)
        is[k] = layer_is(c, x, key, "local", "global");
    if (is && other.where && !eg_error(c->cx)) layers_differ(c, o, &other, is);
}

/* -- Llama and later families ------------------------------------------------------------------ */
/* Sets the sizes that config.json has under the same names for Llama and BERT. */
static void sizes_of_layers(const eg__config *c, eg_transformer_args *m)
{
    m->d_model = eg__config_size(c, "hidden_size", 0);
    m->heads = eg__config_size(c, "num_attention_heads", 0);
    m->layers = eg__config_count(c, "num_hidden_layers", 0, LAYERS_MAX);
    m->width = eg__config_size(c, "intermediate_size", 0);
    m->length = eg__config_size(c, "max_position_embeddings", 0);
}

/* Names and defaults in which the families differ; 0 and NULL: those of Llama. */
typedef struct usual {
    const char *activation_key, *activation; /* "hidden_act", "silu" */
    const char *eps_key;                     /* "rms_norm_eps"; another name: of layer norms */
    double eps;                              /* 1e-6 */
    bool tied, not_gated;
    int64_t head_dim; /* hidden_size / num_attention_heads */
    eg__rope rope;
} usual;

/* Sets the options that Llama has in common with later families. Touvron et al. 2023 */
static void llama_common(const eg__config *c, eg_pretrained *o, usual u)
{
    eg_transformer_args *m = &o->model;
    sizes_of_layers(c, m);
    m->rms = !u.eps_key, m->gated = !u.not_gated;
    m->eps = family_eps(c, u.eps_key ? u.eps_key : "rms_norm_eps", u.eps > 0 ? u.eps : 1e-6);
    m->activation = activation_of(c, u.activation_key ? u.activation_key : "hidden_act",
                                  u.activation ? u.activation : "silu");
    m->tied = eg__config_flag(c, c->all, "tie_word_embeddings", u.tied);
    m->no_positions = m->no_logits_bias = m->no_ffn_bias = true;
    o->mha.kv_heads = eg__config_size(c, "num_key_value_heads", m->heads);
    if (!u.head_dim && m->d_model % m->heads && !eg__config_find(c->all, "head_dim"))
        eg_fail_as(c->cx, EG_ERROR_SHAPE,
                   "%s: \"hidden_size\" is %lld, not divisible by \"num_attention_heads\", %lld",
                   c->path, (long long)m->d_model, (long long)m->heads);
    const int64_t head_dim =
        eg__config_size(c, "head_dim", u.head_dim ? u.head_dim : m->d_model / m->heads);
    o->mha.d_k = o->mha.d_v = head_dim;
    eg__config_rope(c, u.rope, head_dim, &o->mha);
    o->mha.where = causal;
}

static void llama_options(const eg__config *c, eg_pretrained *o)
{
    llama_common(c, o, (usual){ 0 });
    o->mha.no_bias = !eg__config_flag(c, c->all, "attention_bias", false);
    o->model.no_ffn_bias = !eg__config_flag(c, c->all, "mlp_bias", false);
}

/* Jiang et al. 2023: a window in every layer, unless it is null */
static void mistral_options(const eg__config *c, eg_pretrained *o)
{
    llama_common(c, o, (usual){ 0 });
    o->mha.no_bias = true;
    windows(c, o, (window_rule){ .size = window_of(c, 4096), .alike = true }, NULL);
}

static void qwen_windows(const eg__config *c, eg_pretrained *o)
{
    const int64_t full =
        (int64_t)fmin(eg__config_real(c, c->all, "max_window_layers", 28), LAYERS_MAX);
    const bool used = eg__config_flag(c, c->all, "use_sliding_window", false);
    windows(c, o, (window_rule){ .size = used ? window_of(c, 4096) : 0, .full = full }, NULL);
}

/* Yang et al. 2024: biases of query, key and value */
static void qwen2_options(const eg__config *c, eg_pretrained *o)
{
    llama_common(c, o, (usual){ 0 });
    o->mha.no_o_bias = true;
    qwen_windows(c, o);
}

/* Yang et al. 2025: queries and keys are normalised before they are rotated */
static void qwen3_options(const eg__config *c, eg_pretrained *o)
{
    llama_common(c, o, (usual){ .head_dim = 128 });
    o->mha.no_bias = !eg__config_flag(c, c->all, "attention_bias", false);
    o->mha.qk_norm = EG_QK_RMS;
    o->mha.qk_eps = o->model.eps;
    qwen_windows(c, o);
}

/* Abdin et al. 2024: Llama with joined matrices */
static void phi3_options(const eg__config *c, eg_pretrained *o)
{
    llama_common(c, o, (usual){ .eps = 1e-5 });
    o->mha.no_bias = true;
    windows(c, o, (window_rule){ .size = window_of(c, 0), .alike = true }, NULL);
}

/* OLMo Team 2025: norms of what attention and feed-forward part return, and of query and key over
 * all heads */
static void olmo2_options(const eg__config *c, eg_pretrained *o)
{
    llama_common(c, o, (usual){ .eps = 1e-5 });
    o->model.branch_norm = true;
    o->mha.no_bias = !eg__config_flag(c, c->all, "attention_bias", false);
    o->mha.qk_norm = EG_QK_RMS_ALL;
    o->mha.qk_eps = o->model.eps;
}

/* Bakouch et al. 2025: Llama, in which every fourth layer has no rotary positions */
static void smollm3_options(const eg__config *c, eg_pretrained *o)
{
    static const char key[] = "no_rope_layers";
    llama_common(c, o, (usual){ .tied = true, .rope.base = 2e6 });
    o->mha.no_bias = !eg__config_flag(c, c->all, "attention_bias", false);
    o->model.no_ffn_bias = !eg__config_flag(c, c->all, "mlp_bias", false);
    const int64_t layers = o->model.layers,
                  period = eg__config_size(c, "no_rope_layer_interval", 4);
    const eg_json *x = layer_list(c, key, layers);
    const bool listed = x != NULL;
    bool *is = eg_owner_alloc(c->owner, (size_t)layers);
    eg_mha_args other = o->mha;
    other.rotary = other.scale = 0, other.rotary_frequencies = NULL, other.rotary_width = 0;
    for (int64_t k = 0; is && k < layers && !eg_error(c->cx); k++, x = x ? x->next : NULL) {
        if (listed && (x->kind != EG_JSON_NUMBER || (x->number != 0 && x->number != 1)))
            eg__config_refuse(c, EG_ERROR_FILE, x, key, "which is neither 0 nor 1");
        is[k] = listed ? x->number == 0 : (k + 1) % period == 0;
    }
    if (is && !eg_error(c->cx)) layers_differ(c, o, &other, is);
}

/* -- Gemma ------------------------------------------------------------------------------------- */
/* Sets c of c tanh(x/c); 0 if the setting is null. */
static double cap_of(const eg__config *c, const char *key, double otherwise)
{
    const eg_json *x = eg_json_find(c->all, key);
    return x && x->kind == EG_JSON_NULL ? 0 : eg__config_real(c, c->all, key, otherwise);
}

/* Gemma Team 2024: the embedding is multiplied by √d_model; the file has the gains minus 1 */
static void gemma_common(const eg__config *c, eg_pretrained *o, usual u)
{
    u.tied = true, u.head_dim = 256, u.activation = "gelu_pytorch_tanh";
    llama_common(c, o, u);
    o->model.embedding_scale = sqrt((double)o->model.d_model);
    o->mha.no_bias = !eg__config_flag(c, c->all, "attention_bias", false);
}
static void gemma_options(const eg__config *c, eg_pretrained *o)
{
    gemma_common(c, o, (usual){ 0 });
    if (o->model.activation == eg_gelu) o->model.activation = eg_gelu_tanh; /* older files */
}

/* Riviere et al. 2024: norms before and after each part, caps of scores and logits, a window in
 * every other layer */
static void gemma2_common(const eg__config *c, eg_pretrained *o, double cap, eg__rope rope)
{
    o->mha.scale = 1 / sqrt((double)eg__config_size(c, "query_pre_attn_scalar", 256));
    gemma_common(c, o, (usual){ .activation_key = "hidden_activation", .rope = rope });
    o->model.sandwich = true;
    o->model.logits_cap = cap_of(c, "final_logit_softcapping", cap);
}
static void gemma2_options(const eg__config *c, eg_pretrained *o)
{
    gemma2_common(c, o, 30, (eg__rope){ 0 });
    const double cap = cap_of(c, "attn_logit_softcapping", 50);
    char *text = cap > 0 ? eg_owner_alloc(c->owner, 96) : NULL, number[32];
    eg_number_text(number, sizeof number, 17, cap);
    if (text) snprintf(text, 96, "%s * tanh(score / %s)", number, number);
    o->mha.score = text;
    windows(c, o, (window_rule){ .size = window_of(c, 4096), .period = 2 }, NULL);
}

/* Kamath et al. 2025: norms of query and key, and another rotary base in layers with a window */
static void gemma3_options(const eg__config *c, eg_pretrained *o)
{
    const eg_json *all = eg__config_rope_object(c), *full = eg__config_find(all, "full_attention"),
                  *local = eg__config_find(all, "sliding_attention");
    const bool nested = full || local;
    gemma2_common(c, o, 0, (eg__rope){ .base = 1e6, .given = nested, .with = full });
    o->mha.qk_norm = EG_QK_RMS, o->mha.qk_eps = o->model.eps;
    eg_mha_args other = o->mha;
    other.rotary_frequencies = NULL;
    eg__config_rope(c,
                    (eg__rope){ .base_key = "rope_local_base_freq", .given = true, .with = local },
                    other.d_k, &other);
    windows(c, o,
            (window_rule){ .size = window_of(c, 4096),
                           .period = eg__config_size(c, "sliding_window_pattern", 6) },
            &other);
}

/* -- families with layer norms and rotary positions of a part of each head --------------------- */
/* Black et al. 2022: attention and feed-forward part read the same x; one matrix for query, key and
 * value, head by head. Biderman et al. 2023 (Pythia) */
static void gpt_neox_options(const eg__config *c, eg_pretrained *o)
{
    llama_common(
        c, o,
        (usual){
            .activation = "gelu",
            .eps_key = "layer_norm_eps",
            .eps = 1e-5,
            .not_gated = true,
            .rope = { .base_key = "rotary_emb_base", .part_key = "rotary_pct", .part = 0.25 } });
    o->model.parallel = eg__config_flag(c, c->all, "use_parallel_residual", true);
    o->mha.no_bias = !eg__config_flag(c, c->all, "attention_bias", true);
    o->model.no_ffn_bias = false;
}

/* Li et al. 2023 */
static void phi_options(const eg__config *c, eg_pretrained *o)
{
    llama_common(c, o,
                 (usual){ .activation = "gelu_new",
                          .eps_key = "layer_norm_eps",
                          .eps = 1e-5,
                          .not_gated = true,
                          .rope = { .part = 0.5 } });
    o->model.parallel = o->model.shared_norm = true;
    o->model.no_ffn_bias = o->model.no_logits_bias = false;
    if (eg__config_flag(c, c->all, "qk_layernorm", false))
        o->mha.qk_norm = EG_QK_LAYER, o->mha.qk_eps = o->model.eps;
    only_flag(c, "tie_word_embeddings", false, "but logits with a bias have their own matrix");
}

/* Bellagente et al. 2024 */
static void stablelm_options(const eg__config *c, eg_pretrained *o)
{
    llama_common(c, o,
                 (usual){ .eps_key = "layer_norm_eps", .eps = 1e-5, .rope = { .part = 0.25 } });
    o->model.parallel = o->model.shared_norm =
        eg__config_flag(c, c->all, "use_parallel_residual", false);
    o->mha.no_bias = !eg__config_flag(c, c->all, "use_qkv_bias", false);
    o->mha.no_o_bias = true;
}

/* Lozhkov et al. 2024 */
static void starcoder2_options(const eg__config *c, eg_pretrained *o)
{
    llama_common(c, o,
                 (usual){ .activation = "gelu_pytorch_tanh",
                          .eps_key = "norm_epsilon",
                          .eps = 1e-5,
                          .tied = true,
                          .not_gated = true });
    o->mha.no_bias = o->model.no_ffn_bias = !eg__config_flag(c, c->all, "use_bias", true);
    windows(c, o, (window_rule){ .size = window_of(c, 0), .alike = true }, NULL);
}

/* -- learned positions ------------------------------------------------------------------------- */
/* Zhang et al. 2022: the table of positions has two rows before the first */
static void opt_options(const eg__config *c, eg_pretrained *o)
{
    eg_transformer_args *m = &o->model;
    m->d_model = eg__config_size(c, "hidden_size", 0);
    m->heads = eg__config_size(c, "num_attention_heads", 0);
    m->layers = eg__config_count(c, "num_hidden_layers", 0, LAYERS_MAX);
    m->width = eg__config_size(c, "ffn_dim", 0);
    m->length = eg__config_size(c, "max_position_embeddings", 0);
    m->first_position = 2;
    m->activation = activation_of(c, "activation_function", "relu");
    m->tied = eg__config_flag(c, c->all, "tie_word_embeddings", true);
    m->post_norm = !eg__config_flag(c, c->all, "do_layer_norm_before", true);
    m->no_logits_bias = true;
    o->mha.no_bias = m->no_ffn_bias = !eg__config_flag(c, c->all, "enable_bias", true);
    o->mha.where = causal;
    only_flag(c, "layer_norm_elementwise_affine", true, "but norms need gains");
    if (eg__config_size(c, "word_embed_proj_dim", m->d_model) != m->d_model)
        eg__config_refuse(c, EG_ERROR_UNSUPPORTED, eg_json_find(c->all, "word_embed_proj_dim"),
                          "word_embed_proj_dim", "but only \"hidden_size\" is supported");
}

/* Devlin et al. 2019 */
static void bert_options(const eg__config *c, eg_pretrained *o)
{
    static const char key[] = "position_embedding_type";
    eg_transformer_args *m = &o->model;
    sizes_of_layers(c, m);
    m->types = eg__config_size(c, "type_vocab_size", 2);
    m->eps = family_eps(c, "layer_norm_eps", 1e-12);
    m->activation = activation_of(c, "hidden_act", "gelu");
    m->tied = eg__config_flag(c, c->all, "tie_word_embeddings", true);
    m->post_norm = m->embedding_norm = m->no_logits = true;
    if (strcmp(eg__config_word(c, c->all, key, "absolute"), "absolute"))
        eg__config_refuse(c, EG_ERROR_UNSUPPORTED, eg_json_find(c->all, key), key,
                          "but only absolute ones are supported");
}

/* Liu et al. 2019: the table of positions has the rows up to the number of the padding token before
 * the first */
static void roberta_options(const eg__config *c, eg_pretrained *o)
{
    bert_options(c, o);
    o->model.first_position = (int64_t)eg__config_real(c, c->all, "pad_token_id", 1) + 1;
    if (o->model.length <= o->model.first_position)
        eg__config_refuse(c, EG_ERROR_FILE, eg_json_find(c->all, "max_position_embeddings"),
                          "max_position_embeddings", "not above \"pad_token_id\" + 1");
    o->model.length -= o->model.first_position;
}

/* Sanh et al. 2019 */
static void distilbert_options(const eg__config *c, eg_pretrained *o)
{
    eg_transformer_args *m = &o->model;
    m->d_model = eg__config_size(c, "dim", 0);
    m->heads = eg__config_size(c, "n_heads", 0);
    m->layers = eg__config_count(c, "n_layers", 0, LAYERS_MAX);
    m->width = eg__config_size(c, "hidden_dim", 0);
    m->length = eg__config_size(c, "max_position_embeddings", 0);
    m->eps = 1e-12;
    m->activation = activation_of(c, "activation", "gelu");
    m->tied = eg__config_flag(c, c->all, "tie_word_embeddings", true);
    m->post_norm = m->embedding_norm = m->no_logits = true;
}

static const eg__model_family families[] = {
    { "gpt2", "gpt2", gpt2_options },
    { "gptj", "gptj", gptj_options },
    { "gpt_neo", "gpt_neo", gpt_neo_options },
    { "gpt_neox", "gpt_neox", gpt_neox_options },
    { "opt", "opt", opt_options },
    { "llama", "llama", llama_options },
    { "mistral", "llama", mistral_options },
    { "qwen2", "llama", qwen2_options },
    { "qwen3", "llama", qwen3_options },
    { "smollm3", "llama", smollm3_options },
    { "stablelm", "llama", stablelm_options },
    { "starcoder2", "starcoder2", starcoder2_options },
    { "olmo2", "olmo2", olmo2_options },
    { "phi", "phi", phi_options },
    { "phi3", "phi3", phi3_options },
    { "gemma", "gemma", gemma_options },
    { "gemma2", "gemma2", gemma2_options },
    { "gemma3_text", "gemma2", gemma3_options },
    { "bert", "bert", bert_options },
    { "roberta", "roberta", roberta_options },
    { "xlm-roberta", "roberta", roberta_options },
    { "camembert", "roberta", roberta_options },
    { "distilbert", "distilbert", distilbert_options },
};
const eg__model_family *eg__model_family_at(int k)
{
    return k < (int)(sizeof families / sizeof *families) ? &families[k] : NULL;
}

/* Settings that the options cannot express; family NULL: in any family. */
static const struct {
    const char *family, *key, *why;
} beyond[] = {
    { NULL, "quantization_config", "but quantised weights cannot be read" },
    { NULL, "add_cross_attention", "but cross attention is not supported" },
    { NULL, "pruned_heads", "but layers with fewer heads are not supported" },
    { NULL, "use_bidirectional_attention", "but decoders are causal" },
    { "gpt2", "scale_attn_by_inverse_layer_idx", "but scores scaled by layer are not supported" },
    { "bert", "is_decoder", "but BERT is read as an encoder only" },
    { "roberta", "is_decoder", "but RoBERTa is read as an encoder only" },
    { "xlm-roberta", "is_decoder", "but RoBERTa is read as an encoder only" },
    { "camembert", "is_decoder", "but RoBERTa is read as an encoder only" },
    { "llama", "sliding_window", "but Llama has no window; \"mistral\" has" },
    { "smollm3", "use_sliding_window", "but windows of SmolLM3 are not supported" },
    { "stablelm", "qk_layernorm", "but a norm for each head is not supported" },
    { "gemma3_text", "attn_logit_softcapping", "but scores of Gemma 3 have no cap" },
    { "opt", "_remove_final_layer_norm", "but the last norm cannot be left out" },
};
void eg__model_family_limits(const eg__config *c, const char *family)
{
    for (size_t k = 0; k < sizeof beyond / sizeof *beyond; k++) {
        const eg_json *x = eg_json_find(c->all, beyond[k].key);
        if ((!beyond[k].family || !strcmp(beyond[k].family, family)) && eg__config_set(x))
            eg__config_refuse(c, EG_ERROR_UNSUPPORTED, x, beyond[k].key, beyond[k].why);
    }
}
