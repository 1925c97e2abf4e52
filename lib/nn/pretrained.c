/* pretrained.c: converts the config.json of a family of models to the options of an eg_transformer
 * that computes the same, and reads the tensors of its file. */
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
static double pretrained_eps(const eg__config *c, const char *key, double otherwise)
{
    const double eps = eg__config_real(c, c->all, key, otherwise);
    return eps > 0 ? eps : EG_OFF;
}

/* Returns the number of a token, or of the first of several; −1 if there is none. */
static int64_t token_of(const eg__config *c, const char *key)
{
    const eg_json *x = eg__config_find(c->all, key);
    x = x && x->kind == EG_JSON_ARRAY ? x->first : x;
    if (!x) return -1;
    if (x->kind == EG_JSON_NUMBER && x->number >= 0 && x->number < 1 << 30)
        return (int64_t)x->number;
    eg__config_refuse(c, EG_ERROR_FILE, x, key, "not the number of a token");
    return -1;
}

/* -- windows ---------------------------------------------------------------------------------- */
static const char causal[] = "j <= i";

/* True if layer k attends to a window; type: its entry in layer_types, or NULL. */
static bool layer_has_window(const eg__config *c, const eg_json *type, int64_t k, int64_t full)
{
    const char *word = type && type->kind == EG_JSON_STRING ? type->text : "";
    if (!type) return k >= full;
    if (!strcmp(word, "sliding_attention")) return true;
    if (strcmp(word, "full_attention"))
        eg__config_refuse(c, EG_ERROR_UNSUPPORTED, type, "layer_types",
                          "which is neither full_attention nor sliding_attention");
    return false;
}

/* Sets the predicates of the layers: causal, and in some layers with a window of that many
 * positions; 0 if there is no window. The first `full` layers have none, unless layer_types says
 * which layers have one; `alike`: all layers must be the same, also in layer_types. */
static void windows(const eg__config *c, eg_pretrained *o, int64_t window, int64_t full, bool alike)
{
    const int64_t layers = o->model.layers;
    const char **where = eg_owner_alloc(c->owner, (size_t)layers * sizeof *where);
    char *text = eg_owner_alloc(c->owner, 48);
    const eg_json *types = eg__config_find(c->all, "layer_types"),
                  *type = types ? types->first : NULL;
    int64_t sliding = 0, listed = 0;
    if (!where || !text) return;
    snprintf(text, 48, "i - %lld < j <= i", (long long)window);
    for (const eg_json *x = type; x; x = x->next) listed++;
    if (types && listed != layers)
        eg_fail_as(c->cx, EG_ERROR_FILE, "%s: \"layer_types\" has %lld entr%s for %lld layer%s",
                   c->path, (long long)listed, listed == 1 ? "y" : "ies", (long long)layers,
                   layers == 1 ? "" : "s");
    for (int64_t k = 0; k < layers && !eg_error(c->cx); k++, type = type ? type->next : NULL) {
        const bool one = layer_has_window(c, type, k, window ? full : layers);
        if (one ? !window : alike && window)
            eg__config_refuse(c, EG_ERROR_UNSUPPORTED, type, "layer_types",
                              one ? "but no layer of the model has a window"
                                  : "but every layer of the model has the window");
        where[k] = one ? text : causal;
        sliding += one;
    }
    o->mha.where = sliding == layers ? text : causal;
    o->model.where = sliding && sliding < layers ? where : NULL;
}

/* Returns the size of the window; 0 if the setting is null. */
static int64_t window_of(const eg__config *c)
{
    const eg_json *window = eg_json_find(c->all, "sliding_window");
    return window && window->kind == EG_JSON_NULL ? 0 : eg__config_size(c, "sliding_window", 4096);
}

/* -- families --------------------------------------------------------------------------------- */
/* Radford et al. 2019 */
static void gpt2_options(const eg__config *c, eg_pretrained *o)
{
    eg_transformer_args *m = &o->model;
    m->d_model = eg__config_size(c, "n_embd", 0);
    m->heads = eg__config_size(c, "n_head", 0);
    m->layers = eg__config_count(c, "n_layer", 0, LAYERS_MAX);
    m->width = eg__config_size(c, "n_inner", 4 * m->d_model);
    m->length = eg__config_size(c, "n_positions", 0);
    m->eps = pretrained_eps(c, "layer_norm_epsilon", 1e-5);
    m->activation = activation_of(c, "activation_function", "gelu_new");
    m->tied = eg__config_flag(c, c->all, "tie_word_embeddings", true);
    m->no_logits_bias = true;
    o->mha.scale = eg__config_flag(c, c->all, "scale_attn_weights", true) ? 0 : 1;
    o->mha.where = causal;
}

/* Sets the sizes that config.json has under the same names for Llama and BERT. */
static void sizes_of_layers(const eg__config *c, eg_transformer_args *m)
{
    m->d_model = eg__config_size(c, "hidden_size", 0);
    m->heads = eg__config_size(c, "num_attention_heads", 0);
    m->layers = eg__config_count(c, "num_hidden_layers", 0, LAYERS_MAX);
    m->width = eg__config_size(c, "intermediate_size", 0);
    m->length = eg__config_size(c, "max_position_embeddings", 0);
}

/* Sets the options that Llama has in common with later families. Touvron et al. 2023 */
static void llama_common(const eg__config *c, eg_pretrained *o, int64_t head_dim)
{
    eg_transformer_args *m = &o->model;
    sizes_of_layers(c, m);
    m->eps = pretrained_eps(c, "rms_norm_eps", 1e-6);
    m->activation = activation_of(c, "hidden_act", "silu");
    m->tied = eg__config_flag(c, c->all, "tie_word_embeddings", false);
    m->no_positions = m->rms = m->gated = m->no_logits_bias = m->no_ffn_bias = true;
    o->mha.kv_heads = eg__config_size(c, "num_key_value_heads", m->heads);
    if (!head_dim && m->d_model % m->heads && !eg__config_find(c->all, "head_dim"))
        eg_fail_as(c->cx, EG_ERROR_SHAPE,
                   "%s: \"hidden_size\" is %lld, not divisible by \"num_attention_heads\", %lld",
                   c->path, (long long)m->d_model, (long long)m->heads);
    head_dim = eg__config_size(c, "head_dim", head_dim ? head_dim : m->d_model / m->heads);
    o->mha.d_k = o->mha.d_v = head_dim;
    eg__config_rope(c, head_dim, &o->mha);
    o->mha.where = causal;
}

static void llama_options(const eg__config *c, eg_pretrained *o)
{
    llama_common(c, o, 0);
    o->mha.no_bias = !eg__config_flag(c, c->all, "attention_bias", false);
    o->model.no_ffn_bias = !eg__config_flag(c, c->all, "mlp_bias", false);
}

/* Jiang et al. 2023: a window in every layer, unless it is null */
static void mistral_options(const eg__config *c, eg_pretrained *o)
{
    llama_common(c, o, 0);
    o->mha.no_bias = true;
    windows(c, o, window_of(c), 0, true);
}

static void qwen_windows(const eg__config *c, eg_pretrained *o)
{
    const int64_t full =
        (int64_t)fmin(eg__config_real(c, c->all, "max_window_layers", 28), LAYERS_MAX);
    windows(c, o, eg__config_flag(c, c->all, "use_sliding_window", false) ? window_of(c) : 0, full,
            false);
}

/* Yang et al. 2024: biases of query, key and value */
static void qwen2_options(const eg__config *c, eg_pretrained *o)
{
    llama_common(c, o, 0);
    o->mha.no_o_bias = true;
    qwen_windows(c, o);
}

/* Yang et al. 2025: queries and keys are normalised before they are rotated */
static void qwen3_options(const eg__config *c, eg_pretrained *o)
{
    llama_common(c, o, 128);
    o->mha.no_bias = !eg__config_flag(c, c->all, "attention_bias", false);
    o->mha.qk_norm = EG_QK_RMS;
    o->mha.qk_eps = o->model.eps;
    qwen_windows(c, o);
}

/* Devlin et al. 2019 */
static void bert_options(const eg__config *c, eg_pretrained *o)
{
    eg_transformer_args *m = &o->model;
    sizes_of_layers(c, m);
    m->types = eg__config_size(c, "type_vocab_size", 2);
    m->eps = pretrained_eps(c, "layer_norm_eps", 1e-12);
    m->activation = activation_of(c, "hidden_act", "gelu");
    m->tied = eg__config_flag(c, c->all, "tie_word_embeddings", true);
    m->post_norm = m->embedding_norm = m->no_logits = true;
    if (strcmp(eg__config_word(c, c->all, "position_embedding_type", "absolute"), "absolute"))
        eg__config_refuse(c, EG_ERROR_UNSUPPORTED, eg_json_find(c->all, "position_embedding_type"),
                          "position_embedding_type", "but only absolute ones are supported");
}

static const struct {
    const char *family, *style;
    void (*options)(const eg__config *, eg_pretrained *);
} families[] = {
    { "gpt2", "gpt2", gpt2_options },        { "llama", "llama", llama_options },
    { "mistral", "llama", mistral_options }, { "qwen2", "llama", qwen2_options },
    { "qwen3", "llama", qwen3_options },     { "bert", "bert", bert_options },
};
enum { FAMILIES = sizeof families / sizeof *families };

/* Settings that the options cannot express; family NULL: in any family. */
static const struct {
    const char *family, *key, *why;
} beyond[] = {
    { NULL, "quantization_config", "but quantised weights cannot be read" },
    { NULL, "add_cross_attention", "but cross attention is not supported" },
    { NULL, "pruned_heads", "but layers with fewer heads are not supported" },
    { "gpt2", "scale_attn_by_inverse_layer_idx", "but scores scaled by layer are not supported" },
    { "bert", "is_decoder", "but BERT is read as an encoder only" },
    { "llama", "sliding_window", "but Llama has no window; \"mistral\" has" },
};

/* Returns the index of the model's family; −1 after an error that lists the families. */
static int pretrained_family(const eg__config *c)
{
    const char *type = eg__config_word(c, c->all, "model_type", "");
    for (int k = 0; k < FAMILIES; k++)
        if (!strcmp(families[k].family, type)) return k;
    char known[128] = "";
    for (int k = 0, n = 0; k < FAMILIES; k++)
        n += snprintf(known + n, sizeof known - (size_t)n, "%s%s", k ? ", " : "",
                      families[k].family);
    eg_fail_as(c->cx, EG_ERROR_UNSUPPORTED, "%s: the model_type \"%.40s\" is none of %s", c->path,
               type, known);
    return -1;
}

/* -- reading ---------------------------------------------------------------------------------- */
/* "folder/name", kept by the owner; NULL after an error */
static char *in_folder(eg_owner *owner, const char *folder, const char *name)
{
    const size_t n = strlen(folder), size = n + strlen(name) + 2;
    char *path = eg_owner_alloc(owner, size);
    if (path) snprintf(path, size, "%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", name);
    return path;
}

eg_pretrained *eg_pretrained_read(eg_ctx *cx, const char *folder)
{
    if (!cx || eg_error(cx)) return NULL;
    if (!folder) return eg_fail_as(cx, EG_ERROR_MISUSE, "pretrained: the folder is NULL"), NULL;
    eg_owner *owner = eg_owner_open(cx);
    eg_pretrained *o = owner ? eg_owner_alloc(owner, sizeof *o) : NULL;
    char *path = o ? in_folder(owner, folder, "config.json") : NULL;
    const eg__config c = { cx, owner, path, path ? eg_json_load(cx, path) : NULL };
    const int row = c.all ? pretrained_family(&c) : -1;
    if (row >= 0) {
        *o = (eg_pretrained){ .family = families[row].family,
                              .names = eg_aliases(families[row].style),
                              .begin = token_of(&c, "bos_token_id"),
                              .end = token_of(&c, "eos_token_id") };
        o->model.size = sizeof o->model, o->mha.size = sizeof o->mha;
        o->model.mha = &o->mha;
        o->model.vocabulary = eg__config_size(&c, "vocab_size", 0);
        families[row].options(&c, o);
    }
    for (size_t k = 0; row >= 0 && k < sizeof beyond / sizeof *beyond; k++) {
        const eg_json *x = eg_json_find(c.all, beyond[k].key);
        if ((!beyond[k].family || !strcmp(beyond[k].family, o->family)) && eg__config_set(x))
            eg__config_refuse(&c, EG_ERROR_UNSUPPORTED, x, beyond[k].key, beyond[k].why);
    }
    if (row >= 0 && !eg_error(cx)) return o;
    eg_owner_close(owner);
    return NULL;
}

/* True unless the list has a part of BERT's predictions whose logits would be x Eᵀ + b, although
 * config.json says that they have a matrix of their own; then records an error. */
static bool bert_predicts(eg_params *p, const eg_pretrained *o, const char *folder)
{
    static const char *const parts[] = { "prediction.dense.W", "prediction.b" };
    if (o->model.tied || strcmp(o->family, "bert") || eg_params_find(p, "prediction.W"))
        return true;
    for (int k = 0; k < 2; k++)
        if (eg_params_find(p, parts[k]))
            return eg_fail_as(eg_params_context(p), EG_ERROR_NOTATION,
                              "%s/config.json: \"tie_word_embeddings\" is false, so that \"%s\" "
                              "needs a parameter \"prediction.W\" (v m) beside it",
                              folder, parts[k]),
                   false;
    return true;
}
eg_transformer *eg_pretrained_load(eg_params *p, const char *folder)
{
    eg_ctx *cx = eg_params_context(p);
    if (!eg__params_there("pretrained_load", p) || eg_error(cx)) return NULL;
    eg_mark m = eg_push(cx);
    eg_owner *owner = eg_owner_open(cx);
    eg_pretrained *o = owner ? eg_pretrained_read(cx, folder) : NULL;
    char *path = o ? in_folder(owner, folder, "model") : NULL;
    eg_transformer *net = NULL;
    if (path) {
        const bool was = eg__nn_zero_init(p, true);
        o->model.params = p, o->model.name = "";
        net = eg_transformer_new_with(&o->model);
        eg__nn_zero_init(p, was);
    }
    if (net && (!bert_predicts(p, o, folder) || eg_params_load_as(p, path, "", o->names)))
        net = NULL;
    eg_pop(cx, m);
    return net;
}
