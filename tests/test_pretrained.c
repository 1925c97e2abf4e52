/* test_pretrained.c: complete files of each family of models: results of the transformers package
 * (tests/reference/models.py, stored in tests/data/models), and refusals. */
#include <eingrad.h>
#include <eingrad/check.h>
#include "fixtures.h"
#include "folder.h"
#include "tests.h"

static eg_ctx *cx;
static void open_f32(void) { cx = eg_open(.seed = 3); }
static void close_cx(void) { eg_close(cx); }

static const char *case_path(const char *name, const char *file)
{
    static char path[8][4500];
    static int k;
    char under[256];
    k = (k + 1) % 8;
    snprintf(under, sizeof under, "tests/data/models/%s%s%s", name, *file ? "/" : "", file);
    snprintf(path[k], sizeof path[k], "%s", source_path(under));
    return path[k];
}

static const char *const decoders[] = {
    "gpt2",       "llama", "llama_bf16", "mistral", "qwen2",   "qwen2_yarn", "qwen3",
    "gptj",       "gemma", "gemma2",     "gemma3",  "gpt_neo", "gpt_neox",   "gpt_neox_serial",
    "opt",        "olmo2", "phi",        "phi3",    "smollm3", "stablelm",   "stablelm_parallel",
    "starcoder2",
};
enum { DECODERS = sizeof decoders / sizeof *decoders, NEW = 8 };

/* the largest difference, as a share of the largest entry */
static double apart(eg_tensor *x, eg_tensor *y)
{
    return largest_difference(x, y) / eg_item(eg_max(NULL, eg_abs(y)));
}

GROUP("pretrained", .setup = open_f32, .teardown = close_cx)

/* the weights have 11 bits */
LOOP_TEST(decoders_with_weights_of_f16, DECODERS)
{
    const char *name = decoders[_i];
    eg_params *p = eg_params_open(cx, .dtype = EG_F16);
    eg_transformer *net = eg_pretrained_load(p, case_path(name, ""));
    ck_assert_msg(net != NULL, "%s: %s", name, eg_error(cx));
    ck_assert(eg_type(net->tokens->table) == EG_F16);
    eg_safetensors *golden = eg_safetensors_open(cx, case_path(name, "expected.safetensors"));
    eg_nograd(cx, true);
    eg_tensor *y = eg_transformer_run(net, eg_safetensors_get(golden, "tokens")),
              *logits = eg_safetensors_get(golden, "logits");
    eg_assert_ok(cx);
    ck_assert_msg(apart(y, logits) <= 1e-2, "%s: %g", name, apart(y, logits));
}

LOOP_TEST(decoders_compute_what_transformers_does, DECODERS)
{
    const char *name = decoders[_i];
    eg_params *p = eg_params_open(cx);
    eg_transformer *net = eg_pretrained_load(p, case_path(name, ""));
    ck_assert_msg(net != NULL, "%s: %s", name, eg_error(cx));
    eg_safetensors *golden = eg_safetensors_open(cx, case_path(name, "expected.safetensors"));
    eg_tensor *tokens = eg_safetensors_get(golden, "tokens"),
              *logits = eg_safetensors_get(golden, "logits"),
              *greedy = eg_safetensors_get(golden, "greedy");
    eg_tensor *y = eg_transformer_run(net, tokens);
    eg_assert_ok(cx);
    ck_assert_msg(apart(y, logits) <= 1e-5, "%s: %g", name, apart(y, logits));

    /* step by step as in one pass, and the same tokens one after another */
    eg_nograd(cx, true);
    eg_cache *c = eg_cache_new(eg_params_owner(p), 9 + NEW);
    eg_tensor *first = eg_transformer_run(net, eg_slice_axis(tokens, 1, 0, 5, 1), .cache = c),
              *rest = eg_transformer_run(net, eg_slice_axis(tokens, 1, 5, 9, 1), .cache = c);
    ck_assert_msg(apart(eg_concat_axis(1, first, rest), logits) <= 1e-5, "%s", name);
    ck_assert_int_eq(eg_cache_select(c, eg_zeros_like(eg_slice_axis(greedy, 0, 0, 1, 1))), 0);
    eg_tensor *next = eg_slice_axis(rest, 0, 0, 1, 1);
    for (int k = 0; k < NEW; k++) {
        int64_t last = eg_dim(next, 1) - 1;
        eg_tensor *token = eg_argmax("b l [v]", eg_slice_axis(next, 1, last, last + 1, 1));
        ck_assert_msg(eg_get(token, 0, 0) == eg_get(greedy, k), "%s: token %d is %g, not %g", name,
                      k, eg_get(token, 0, 0), eg_get(greedy, k));
        next = eg_transformer_run(net, token, .cache = c);
    }
    eg_assert_ok(cx);
}

/* several models in one list, each with its own name; parameters of f64 */
TEST(models_of_one_list)
{
    eg_params *p = eg_params_open(cx, .dtype = EG_F64);
    eg_transformer *net[2];
    static const char *const names[] = { "llama", "gpt2" };
    for (int k = 0; k < 2; k++)
        net[k] = eg_pretrained_load(eg_params_under(p, names[k]), case_path(names[k], ""));
    ck_assert_msg(net[0] && net[1], "%s", eg_error(cx));
    ck_assert(eg_params_find(p, "llama.1.ffn.gate.W") && eg_params_find(p, "gpt2.positions.P"));
    for (int k = 0; k < 2; k++) {
        eg_safetensors *golden =
            eg_safetensors_open(cx, case_path(names[k], "expected.safetensors"));
        eg_tensor *y = eg_transformer_run(net[k], eg_safetensors_get(golden, "tokens"));
        ck_assert_int_eq(eg_type(y), EG_F64);
        ck_assert_double_le(apart(y, eg_cast(eg_safetensors_get(golden, "logits"), EG_F64)), 1e-5);
    }
    ck_assert_ptr_null(eg_pretrained_load(eg_params_under(p, "gpt2"), case_path("gpt2", "")));
    eg_assert_error(cx, "gpt2.tokens.E");
}

static const char *const berts[] = { "bert", "bert_mlm", "roberta", "distilbert" };
LOOP_TEST(bert_computes_what_transformers_does, 4)
{
    const char *name = berts[_i];
    eg_params *p = eg_params_open(cx);
    eg_linear *pooler = NULL, *dense = NULL;
    eg_norm *norm = NULL;
    eg_tensor *bias = NULL;
    if (_i == 0) pooler = eg_linear_new(p, "pooler", .in = 16, .out = 16);
    if (_i == 1 || _i == 2) {
        dense = eg_linear_new(p, "prediction.dense", .in = 16, .out = 16);
        norm = eg_norm_new(p, "prediction.norm", .d_model = 16);
        bias = eg_param(p, "prediction.b", "v", 50);
    }
    eg_transformer *net = eg_pretrained_load(p, case_path(name, "")),
                   *body = eg_pretrained_load(eg_params_open(cx), case_path(name, ""));
    ck_assert_msg(net && body, "%s: %s", name, eg_error(cx));
    eg_safetensors *golden = eg_safetensors_open(cx, case_path(name, "expected.safetensors"));
    eg_tensor *tokens = eg_safetensors_get(golden, "tokens"),
              *types = _i < 3 ? eg_safetensors_get(golden, "types") : NULL,
              *keep = eg_safetensors_get(golden, "keep"),
              *hidden = eg_safetensors_get(golden, "hidden");
    eg_tensor *y = eg_transformer_run(net, tokens, .types = types, .keep = { "bj", keep });
    eg_assert_ok(cx);
    ck_assert_msg(apart(y, hidden) <= 1e-5, "%s: %g", name, apart(y, hidden));
    eg_assert_close(eg_transformer_run(body, tokens, .types = types, .keep = { "bj", keep }), y, 0);
    if (pooler) {
        eg_tensor *z = eg_tanh(eg_linear_run(pooler, eg_select_axis(y, 1, 0)));
        ck_assert_double_le(apart(z, eg_safetensors_get(golden, "pooled")), 1e-5);
    } else if (norm) {
        eg_tensor *h = eg_linear_run(dense, y),
                  *z = eg_norm_run(norm, _i == 1 ? eg_relu(h) : eg_gelu(h));
        z = eg_affine("blm,vm->blv", z, net->tokens->table, bias);
        ck_assert_double_le(apart(z, eg_safetensors_get(golden, "logits")), 1e-5);
    }
    eg_assert_ok(cx);
}

/* -- other settings, other files --------------------------------------------------------------- */
static void open_folder(void)
{
    open_f32();
    make_folder();
}
static void close_folder(void)
{
    remove_folder();
    close_cx();
}

/* Writes the config.json of a case to the folder, with `from` replaced by `to`. */
static void put_config(const char *name, const char *from, const char *to)
{
    long size;
    char *text = bytes_of(case_path(name, "config.json"), &size);
    text = realloc(text, (size_t)size + 1);
    text[size] = 0;
    char *at = strstr(text, from);
    ck_assert_msg(at != NULL, "%s has no %s", name, from);
    FILE *f = fopen(in_folder("config.json"), "w");
    ck_assert(f && fprintf(f, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0);
    fclose(f);
    free(text);
}

GROUP("settings", .setup = open_folder, .teardown = close_folder)

static const struct {
    const char *name, *from, *to, *refusal;
} refusals[] = {
    { "gpt2", "\"gpt2\"", "\"mamba\"",
      "config.json: the model_type \"mamba\" is none of gpt2, gptj, gpt_neo, gpt_neox, opt, "
      "llama, mistral, qwen2, qwen3, smollm3, stablelm, starcoder2, olmo2, phi, phi3, gemma, "
      "gemma2, gemma3_text, bert, roberta, xlm-roberta, camembert, distilbert" },
    { "gpt2", "\"model_type\": \"gpt2\",", "", "the model_type \"\" is none of" },
    { "gpt2", "\"n_embd\": 16,", "", "config.json: \"n_embd\" is missing, not an integer" },
    { "gpt2", "\"n_embd\": 16", "\"n_embd\": 16.5", "\"n_embd\" is 16.5, not an integer" },
    { "gpt2", "\"n_head\": 2", "\"n_head\": 0", "\"n_head\" is 0, not an integer from 1" },
    { "gpt2", "\"n_layer\": 2", "\"n_layer\": \"2\"", "\"n_layer\" is \"2\", not an integer" },
    { "mistral", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1e9",
      "\"num_hidden_layers\" is 1e+09, not an integer from 1 to 65536" },
    { "gpt2", "gelu_new", "mish",
      "\"activation_function\" is \"mish\", which is none of gelu, gelu_new, relu, silu" },
    { "gpt2", "\"scale_attn_by_inverse_layer_idx\": false",
      "\"scale_attn_by_inverse_layer_idx\": true",
      "\"scale_attn_by_inverse_layer_idx\" is true, but scores scaled by layer" },
    { "gpt2", "\"add_cross_attention\": false", "\"add_cross_attention\": true",
      "but cross attention is not supported" },
    { "gpt2", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": 1",
      "\"tie_word_embeddings\" is 1, neither true nor false" },
    { "gpt2", "\"eos_token_id\": 2", "\"eos_token_id\": \"</s>\"",
      "\"eos_token_id\" is \"</s>\", not the number of a token" },
    { "llama", "\"rope_type\": \"llama3\"", "\"rope_type\": \"dynamic\"",
      "the rope type \"dynamic\" is none of default, linear, llama3, yarn" },
    { "llama", "\"factor\": 8.0,", "",
      "\"factor\" is missing, but the rope type needs a number above 0" },
    { "llama", "\"high_freq_factor\": 4.0", "\"high_freq_factor\": 1.0",
      "\"high_freq_factor\" is 1, not above \"low_freq_factor\"" },
    { "llama", "\"rope_theta\": 500.0", "\"rope_theta\": 0", "\"rope_theta\" is 0, not above 1" },
    { "llama", "\"rope_theta\": 500.0", "\"partial_rotary_factor\": 0.3",
      "\"partial_rotary_factor\" is 0.3, which is not an even number of the 4 elements" },
    { "llama", "\"rope_theta\": 500.0", "\"partial_rotary_factor\": 1.5",
      "\"partial_rotary_factor\" is 1.5, which is not an even number of the 4 elements" },
    { "qwen2_yarn", "\"rope_theta\": 10000.0", "\"partial_rotary_factor\": 0.5",
      "\"rope_type\" is \"yarn\", but only whole heads can be scaled" },
    { "gptj", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true",
      "\"tie_word_embeddings\" is true, but logits with a bias have their own matrix" },
    { "gptj", "\"rotary_dim\": 4", "\"rotary_dim\": null",
      "\"rotary_dim\" is missing, not an integer" },
    { "gpt_neo", "\"attention_layers\"", "\"other\"",
      "\"attention_layers\" is missing, but each layer needs \"global\" or \"local\"" },
    { "gpt_neo", "\"local\"", "\"sparse\"",
      "\"attention_layers\" is \"sparse\", which is neither global nor local" },
    { "opt", "\"word_embed_proj_dim\": 16", "\"word_embed_proj_dim\": 8",
      "\"word_embed_proj_dim\" is 8, but only \"hidden_size\" is supported" },
    { "opt", "\"layer_norm_elementwise_affine\": true", "\"layer_norm_elementwise_affine\": false",
      "\"layer_norm_elementwise_affine\" is false, but norms need gains" },
    { "opt", "\"_remove_final_layer_norm\": false", "\"_remove_final_layer_norm\": true",
      "\"_remove_final_layer_norm\" is true, but the last norm cannot be left out" },
    { "stablelm", "\"qk_layernorm\": false", "\"qk_layernorm\": true",
      "\"qk_layernorm\" is true, but a norm for each head is not supported" },
    { "smollm3", "\"use_sliding_window\": false", "\"use_sliding_window\": true",
      "\"use_sliding_window\" is true, but windows of SmolLM3 are not supported" },
    { "smollm3", "    0\n", "    2\n", "\"no_rope_layers\" is 2, which is neither 0 nor 1" },
    { "gemma3", "\"attn_logit_softcapping\": null", "\"attn_logit_softcapping\": 2",
      "\"attn_logit_softcapping\" is 2, but scores of Gemma 3 have no cap" },
    { "gemma3", "\"use_bidirectional_attention\": false", "\"use_bidirectional_attention\": true",
      "\"use_bidirectional_attention\" is true, but decoders are causal" },
    { "roberta", "\"max_position_embeddings\": 22", "\"max_position_embeddings\": 2",
      "\"max_position_embeddings\" is 2, not above \"pad_token_id\" + 1" },
    { "roberta", "\"is_decoder\": false", "\"is_decoder\": true",
      "RoBERTa is read as an encoder only" },
    { "llama", "\"rope_theta\": 500.0", "\"full_attention\": {}",
      "\"full_attention\" is an object, but positions of layers that differ" },
    { "llama", "\"head_dim\": 4,", "\"sliding_window\": 4,",
      "\"sliding_window\" is 4, but Llama has no window; \"mistral\" has" },
    { "llama", "\"head_dim\": 4,\n  \"hidden_act\": \"silu\",\n  \"hidden_size\": 16",
      "\"hidden_size\": 18", "\"hidden_size\" is 18, not divisible by \"num_attention_heads\", 4" },
    { "llama", "\"pretraining_tp\": 1", "\"quantization_config\": {\"bits\": 4}",
      "\"quantization_config\" is an object, but quantised weights cannot be read" },
    { "qwen2", "\"sliding_attention\"\n", "\"chunked_attention\"\n",
      "\"layer_types\" is \"chunked_attention\", which is neither full_attention nor" },
    { "qwen2", ",\n    \"sliding_attention\"", "", "\"layer_types\" has 1 entry for 2 layers" },
    { "qwen2", "\"use_sliding_window\": true", "\"use_sliding_window\": false",
      "\"layer_types\" is \"sliding_attention\", but no layer of the model has a window" },
    { "qwen2", "\"sliding_window\": 3", "\"sliding_window\": null",
      "\"layer_types\" is \"sliding_attention\", but no layer of the model has a window" },
    { "mistral", "{", "{\"layer_types\": [\"sliding_attention\", \"full_attention\"],",
      "\"layer_types\" is \"full_attention\", but every layer of the model has the window" },
    { "llama", "\"rope_parameters\": {", "\"rope_scaling\": [1], \"other\": {",
      "\"rope_scaling\" is an array, not an object" },
    { "bert", "\"is_decoder\": false", "\"is_decoder\": true", "BERT is read as an encoder only" },
    { "bert", "\"pad_token_id\": 0", "\"position_embedding_type\": \"relative_key\"",
      "\"position_embedding_type\" is \"relative_key\", but only absolute ones are supported" },
    { "bert", "{", "[", "config.json: its text is not valid JSON at byte" },
};

LOOP_TEST(settings_refused, sizeof refusals / sizeof *refusals)
{
    put_config(refusals[_i].name, refusals[_i].from, refusals[_i].to);
    ck_assert_msg(!eg_pretrained_read(cx, folder), "%s", refusals[_i].refusal);
    eg_assert_error(cx, refusals[_i].refusal);
}

TEST(settings_are_read)
{
    eg_pretrained *o = eg_pretrained_read(cx, case_path("gpt2", ""));
    ck_assert_msg(o != NULL, "%s", eg_error(cx));
    ck_assert_str_eq(o->family, "gpt2");
    ck_assert(o->begin == 1 && o->end == 2 && o->names == eg_aliases("gpt2") &&
              o->model.mha == &o->mha && o->model.width == 64 && o->model.tied);
    put_config("gpt2", "\"scale_attn_weights\": true", "\"scale_attn_weights\": false");
    ck_assert((o = eg_pretrained_read(cx, folder)) && o->mha.scale == 1);
    put_config("gpt2", "\"eos_token_id\": 2", "\"eos_token_id\": [7, 8]");
    ck_assert((o = eg_pretrained_read(cx, folder)) && o->end == 7);
    put_config("bert", "1e-12", "0");
    ck_assert((o = eg_pretrained_read(cx, folder)) && o->model.eps == EG_OFF && o->begin == -1);
    put_config("mistral", "\"sliding_window\": 4", "\"sliding_window\": null");
    ck_assert((o = eg_pretrained_read(cx, folder)) && !strcmp(o->mha.where, "j <= i"));
    put_config("mistral", "\"sliding_window\": 4", "\"unknown\": 4"); /* the default of its class */
    ck_assert((o = eg_pretrained_read(cx, folder)) && !strcmp(o->mha.where, "i - 4096 < j <= i"));
    put_config("mistral", "{", "{\"layer_types\": [\"sliding_attention\", \"sliding_attention\"],");
    ck_assert((o = eg_pretrained_read(cx, folder)) && !strcmp(o->mha.where, "i - 4 < j <= i"));
    put_config("qwen3", "{", "{");
    ck_assert((o = eg_pretrained_read(cx, folder)) && !o->model.mha_each &&
              !strcmp(o->mha.where, "j <= i"));
    put_config("mistral", "\"rope_parameters\"", "\"rope_theta\": 7, \"unknown\"");
    ck_assert((o = eg_pretrained_read(cx, folder)) && o->mha.rotary == 7);
    put_config("gemma2", "\"layer_types\"", "\"other\""); /* every other layer */
    ck_assert((o = eg_pretrained_read(cx, folder)) && o->model.mha_each[0] == &o->mha_other &&
              o->model.mha_each[1] == &o->mha);
    put_config("gemma2", "\"attn_logit_softcapping\": 2.0", "\"attn_logit_softcapping\": null");
    ck_assert((o = eg_pretrained_read(cx, folder)) && !o->mha.score && o->model.logits_cap == 3);
    put_config("gemma", "\"hidden_act\": \"gelu_pytorch_tanh\"", "\"hidden_act\": \"gelu\"");
    ck_assert((o = eg_pretrained_read(cx, folder)) && o->model.activation == eg_gelu_tanh);
    put_config("smollm3", "\"no_rope_layers\"", "\"other\""); /* the fourth of four */
    ck_assert((o = eg_pretrained_read(cx, folder)) && o->model.mha_each[3]->rotary == 0 &&
              o->model.mha_each[2]->rotary == 2e6);
    put_config("phi3", "\"sliding_window\": 4", "\"sliding_window\": null");
    ck_assert((o = eg_pretrained_read(cx, folder)) && !strcmp(o->mha.where, "j <= i") &&
              o->mha.rotary_width == 2);
    put_config("gpt_neox", "\"rope_parameters\"",
               "\"rotary_pct\": 0.5, \"rotary_emb_base\": 77, \"unknown\"");
    ck_assert((o = eg_pretrained_read(cx, folder)) && o->mha.rotary_width == 4 &&
              o->mha.rotary == 77);
    ck_assert_ptr_null(eg_pretrained_read(cx, NULL));
    eg_assert_error(cx, "pretrained: the folder is NULL");
    ck_assert_ptr_null(eg_pretrained_load(eg_params_open(cx), "/nowhere/"));
    eg_assert_error(cx, "/nowhere/config.json: cannot be opened");
    ck_assert(!eg_pretrained_load(NULL, folder) && !eg_pretrained_read(NULL, folder));
}

/* Writes the tensors of a case to the folder, without `drop` at the beginning of their names, with
 * `from` in them replaced by `to`, and with others that such a file may contain: of ones, or
 * "COPY=TENSOR" as a copy of that tensor. */
static void put_tensors(const char *name, const char *drop, const char *from, const char *to,
                        int more, const char *const *others)
{
    static char names[64][128];
    const char *list[64];
    eg_tensor *xs[64];
    eg_safetensors *st = eg_safetensors_open(cx, case_path(name, "model"));
    int n = 0;
    for (; n < eg_safetensors_count(st); n++) {
        const char *s = eg_safetensors_name(st, n),
                   *in = s + (strncmp(s, drop, strlen(drop)) ? 0 : strlen(drop)),
                   *at = *from ? strstr(in, from) : NULL;
        snprintf(names[n], sizeof *names, "%.*s%s%s", at ? (int)(at - in) : 0, in, at ? to : "",
                 at ? at + strlen(from) : in);
        list[n] = names[n], xs[n] = eg_safetensors_at(st, n);
    }
    for (int k = 0; k < more; k++, n++) {
        const char *equals = strchr(others[k], '=');
        snprintf(names[n], sizeof *names, "%.*s", (int)strcspn(others[k], "="), others[k]);
        list[n] = names[n];
        xs[n] = equals ? eg_safetensors_get(st, equals + 1) : eg_full(cx, 1, 1, 4);
    }
    ck_assert_msg(!eg_safetensors_save(cx, in_folder("model.safetensors"), n, list, xs, NULL), "%s",
                  eg_error(cx));
}

static eg_tensor *output(const char *where)
{
    eg_transformer *net = eg_pretrained_load(eg_params_open(cx), where);
    ck_assert_msg(net != NULL, "%s", eg_error(cx));
    int32_t tokens[] = { 3, 1, 4, 1, 5, 9, 2, 6 };
    return eg_transformer_run(net, eg_from(cx, tokens, 2, 4));
}

/* equivalent settings of older programs: the same bits */
TEST(older_settings)
{
    put_tensors("llama", "", "", "", 0, NULL);
    put_config("llama", "\"rope_type\"", "\"type\"");
    eg_assert_close(output(folder), output(case_path("llama", "")), 0);
    put_config("llama", "rope_parameters", "rope_scaling");
    eg_assert_close(output(folder), output(case_path("llama", "")), 0);
    put_config("llama", "\"rope_parameters\": {", "\"rope_theta\": 500.0, \"rope_scaling\": {");
    eg_assert_close(output(folder), output(case_path("llama", "")), 0);
    /* rope_scaling replaces rope_parameters, unless it is empty */
    put_config("llama", "\"rope_parameters\": {",
               "\"rope_parameters\": { \"rope_theta\": 7 }, \"rope_scaling\": {");
    eg_assert_close(output(folder), output(case_path("llama", "")), 0);
    put_config("llama", "{", "{ \"rope_scaling\": {},");
    eg_assert_close(output(folder), output(case_path("llama", "")), 0);
    put_tensors("mistral", "", "", "", 0, NULL);
    put_config("mistral", "\"rope_parameters\": {", "\"rope_scaling\": null, \"other\": {");
    eg_assert_close(output(folder), output(case_path("mistral", "")), 0);
    /* a base for layers without a window and one for those with, beside a scaling of the former */
    put_tensors("gemma3", "", "", "", 0, NULL);
    put_config("gemma3", "\"rope_parameters\": {",
               "\"rope_theta\": 10000, \"rope_local_base_freq\": 100, \"rope_scaling\": {"
               "\"rope_type\": \"linear\", \"factor\": 8}, \"other\": {");
    eg_assert_close(output(folder), output(case_path("gemma3", "")), 0);
    put_tensors("qwen2", "", "", "", 0, NULL); /* max_window_layers instead of layer_types */
    put_config("qwen2", "\"layer_types\"", "\"other\"");
    eg_assert_close(output(folder), output(case_path("qwen2", "")), 0);
}

/* written under their names: exactly the tensors of their file */
enum { WRITTEN = 16 };
LOOP_TEST(pretrained_models_are_written_under_the_original_names, WRITTEN)
{
    static const char *const names[WRITTEN] = { "gpt2",   "llama",      "qwen3",    "bert",
                                                "gptj",   "gpt_neo",    "gpt_neox", "opt",
                                                "olmo2",  "phi",        "phi3",     "gemma2",
                                                "gemma3", "starcoder2", "stablelm", "distilbert" };
    const char *name = names[_i];
    eg_params *p = eg_params_open(cx);
    if (_i == 3) eg_linear_new(p, "pooler", .in = 16, .out = 16);
    ck_assert_msg(eg_pretrained_load(p, case_path(name, "")) != NULL, "%s", eg_error(cx));
    const eg_alias *list = eg_pretrained_read(cx, case_path(name, ""))->names;
    ck_assert_msg(!eg_params_save_as(p, in_folder("model.safetensors"), "", list), "%s",
                  eg_error(cx));
    eg_safetensors *theirs = eg_safetensors_open(cx, case_path(name, "model")),
                   *ours = eg_safetensors_open(cx, in_folder("model.safetensors"));
    ck_assert_int_eq(eg_safetensors_count(ours), eg_safetensors_count(theirs));
    for (int k = 0; k < eg_safetensors_count(theirs); k++) {
        const char *one = eg_safetensors_name(theirs, k);
        if (eg_safetensors_find(ours, one) < 0) {
            char full[160]; /* a base class of BERT writes names without "bert." */
            snprintf(full, sizeof full, "%s.%s", name, one);
            eg_assert_close(eg_safetensors_get(ours, full), eg_safetensors_at(theirs, k), 0);
            continue;
        }
        /* a gain less 1 is rounded twice */
        eg_assert_close(eg_safetensors_get(ours, one), eg_safetensors_at(theirs, k),
                        strstr(name, "gemma") && strstr(one, "norm") ? 1e-6 : 0);
    }
}

/* files of base classes, buffers of older programs, names of older programs: the same bits */
TEST(extra_tensors_and_older_names_in_files_are_accepted)
{
    static const char *const masks[] = { "h.0.attn.bias", "h.1.attn.masked_bias",
                                         "lm_head.weight=transformer.wte.weight" },
                             *const turns[] = { "model.layers.1.self_attn.rotary_emb.inv_freq" },
                             *const positions[] = { "bert.embeddings.position_ids",
                                                    "classifier.weight",
                                                    "cls.seq_relationship.bias" };
    put_config("gpt2", "{", "{");
    put_tensors("gpt2", "transformer.", "", "", 3, masks);
    eg_assert_close(output(folder), output(case_path("gpt2", "")), 0);
    put_config("mistral", "{", "{");
    put_tensors("mistral", "", "", "", 1, turns);
    eg_assert_close(output(folder), output(case_path("mistral", "")), 0);
    put_config("bert_mlm", "{", "{");
    put_tensors("bert_mlm", "", "LayerNorm.weight", "LayerNorm.gamma", 3, positions);
    eg_assert_close(output(folder), output(case_path("bert_mlm", "")), 0);
    put_tensors("bert_mlm", "bert.", "LayerNorm.bias", "LayerNorm.beta", 0, NULL);
    eg_assert_close(output(folder), output(case_path("bert_mlm", "")), 0);
}

/* logits that config.json ties to the embedding, and a file with another matrix for them */
TEST(logits_are_tied_as_config_and_file_say)
{
    static const char *const same[] = { "lm_head.weight=transformer.wte.weight" },
                             *const shape[] = { "lm_head.weight" };
    put_config("gpt2", "{", "{");
    put_tensors("gpt2", "", "", "", 1, same);
    eg_assert_close(output(folder), output(case_path("gpt2", "")), 0);
    put_tensors("gpt2", "", "", "", 1, shape);
    ck_assert_ptr_null(eg_pretrained_load(eg_params_open(cx), folder));
    eg_assert_error(cx, "\"lm_head.weight\" is (1, 4), but \"tokens.E\" needs (50, 16)");
    put_tensors("mistral", "", "", "", 0, NULL);
    put_config("mistral", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    eg_params *p = eg_params_open(cx);
    ck_assert_ptr_null(eg_pretrained_load(p, folder));
    eg_assert_error(cx, "model: tensors \"model.embed_tokens.weight\" and \"lm_head.weight\" "
                        "differ, but the model has one parameter for both, \"tokens.E\"");
    ck_assert_int_eq(eg_params_count(p), 0);
}

/* predictions of BERT by a matrix of their own; buffers; a list that would tie them to E */
TEST(predictions_of_bert_that_are_not_tied)
{
    static const char *const own[] = {
        "cls.predictions.decoder.weight=bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias=cls.predictions.bias", "bert.embeddings.token_type_ids"
    };
    put_config("bert_mlm", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
    put_tensors("bert_mlm", "", "", "", 3, own);
    eg_params *p = eg_params_open(cx);
    eg_tensor *w = eg_param(p, "prediction.W", "v m", 50, 16),
              *b = eg_param(p, "prediction.b", "v", 50);
    eg_transformer *net = eg_pretrained_load(p, folder);
    ck_assert_msg(net != NULL, "%s", eg_error(cx));
    eg_assert_close(w, net->tokens->table, 0);
    eg_safetensors *st = eg_safetensors_open(cx, in_folder("model"));
    eg_assert_close(b, eg_safetensors_get(st, "cls.predictions.bias"), 0);
    eg_assert_close(output(folder), output(case_path("bert_mlm", "")), 0); /* hidden states alone */
    p = eg_params_open(cx);
    eg_param(p, "prediction.b", "v", 50);
    ck_assert_ptr_null(eg_pretrained_load(p, folder));
    eg_assert_error(cx, "config.json: \"tie_word_embeddings\" is false, so that \"prediction.b\" "
                        "needs a parameter \"prediction.W\" (v m) beside it");
    put_config("bert_mlm", "{", "{");
    put_tensors("bert_mlm", "", "", "", 0, NULL);
    p = eg_params_open(cx);
    eg_param(p, "prediction.W", "v m", 50, 16);
    ck_assert_ptr_null(eg_pretrained_load(p, folder));
    eg_assert_error(cx, "no tensor \"cls.predictions.decoder.weight\", of which \"prediction.W\"");
}

/* one sentence with the file's name, ours, and both shapes; nothing is assigned */
TEST(tensors_refused)
{
    static const char *const extra[] = { "transformer.h.0.attn.gate" };
    put_tensors("gpt2", "", "", "", 0, NULL);
    put_config("gpt2", "\"n_positions\": 32", "\"n_positions\": 40");
    ck_assert_ptr_null(eg_pretrained_load(eg_params_open(cx), folder));
    eg_assert_error(cx, "model: tensor \"transformer.wpe.weight\" is (32, 16), but \"positions.P\" "
                        "needs (40, 16)");
    put_config("gpt2", "\"vocab_size\": 50", "\"vocab_size\": 500000000"); /* 32 GB of f32 */
    ck_assert_ptr_null(eg_pretrained_load(eg_params_open(cx), folder));
    eg_assert_error(cx, "config.json: 500000000 tokens, 2 layers and vectors of 16 need at least "
                        "8000002048 elements, but the tensors have ");
    put_tensors("llama", "", "", "", 0, NULL);
    put_config("llama", "\"num_attention_heads\": 4", "\"num_attention_heads\": 400000");
    ck_assert_ptr_null(eg_pretrained_load(eg_params_open(cx), folder));
    eg_assert_error(cx, "config.json: 2 layers with 400000 heads of 4 and vectors of 16 need at "
                        "least 102400000 elements, but the tensors have ");
    put_tensors("gpt2", "", "", "", 0, NULL);
    put_config("gpt2", "\"n_layer\": 2", "\"n_layer\": 3");
    ck_assert_ptr_null(eg_pretrained_load(eg_params_open(cx), folder));
    eg_assert_error(cx, "model: no tensor \"transformer.h.2.ln_1.weight\", of which "
                        "\"2.norm_self.gain\" needs (16,)");
    put_config("gpt2", "\"n_layer\": 2", "\"n_layer\": 1");
    ck_assert_ptr_null(eg_pretrained_load(eg_params_open(cx), folder));
    eg_assert_error(cx, "tensor \"transformer.h.1.");
    put_config("gpt2", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
    ck_assert_ptr_null(eg_pretrained_load(eg_params_open(cx), folder));
    eg_assert_error(cx, "no tensor \"lm_head.weight\", of which \"logits.W\" needs (50, 16)");
    put_config("gpt2", "{", "{");
    put_tensors("gpt2", "", "", "", 1, extra);
    eg_params *p = eg_params_open(cx);
    ck_assert_ptr_null(eg_pretrained_load(p, folder));
    eg_assert_error(cx, "tensor \"transformer.h.0.attn.gate\" belongs to no parameter");
    ck_assert_int_eq(eg_params_count(p), 0);
    put_config("llama", "llama3", "default"); /* a model of another family */
    ck_assert_ptr_null(eg_pretrained_load(eg_params_open(cx), folder));
    eg_assert_error(cx, "no tensor \"model.embed_tokens.weight\", of which \"tokens.E\" needs");
}

/* a list whose values are read next draws nothing: parameters that would be drawn are 0 */
TEST(undrawn_values)
{
    eg_params *p = eg_params_open(cx, .zero_init = true);
    const uint64_t before = eg_draws(cx);
    eg_transformer_new(p, "", .vocabulary = 7, .length = 5, .d_model = 8, .heads = 2, .layers = 1,
                       .init = 0.02);
    eg_mha_new(p, "more", .d_model = 8, .heads = 2, .form = EG_PACKED);
    eg_mha_new(p, "each", .d_model = 8, .heads = 2, .form = EG_PER_HEAD, .bias_kv = true);
    eg_assert_ok(cx);
    ck_assert_uint_eq(eg_draws(cx), before);
    for (int k = 0; k < eg_params_count(p); k++) {
        const eg_named *one = eg_params_at(p, k);
        ck_assert_msg(eg_item(eg_max(NULL, eg_abs(one->x))) == (strstr(one->name, "gain") != NULL),
                      "%s", one->name);
    }
}
