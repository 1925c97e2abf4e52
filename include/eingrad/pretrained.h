/* eingrad/pretrained.h: pretrained models, from a folder that the transformers package of Hugging
 * Face wrote: config.json with model.safetensors, or shards and their index.
 *
 *     eg_params *p = eg_params_open(cx);
 *     eg_transformer *net = eg_pretrained_load(p, "folder");
 *     logits = eg_transformer_run(net, tokens);
 *
 * eg_transformer_run returns   model_type in config.json
 * logits                       gpt2, gptj, gpt_neo, gpt_neox, opt, llama, mistral, qwen2, qwen3,
 *                              smollm3, stablelm, starcoder2, olmo2, phi, phi3, gemma, gemma2,
 *                              gemma3_text
 * hidden states (b l m)        bert, roberta, xlm-roberta, camembert, distilbert
 *
 * Tokens are integers; the library has no tokenizer. Causality and windows are predicates of the
 * model's attentions, so a run needs no .where. Dropout is 0. For lifetimes, errors and names see
 * nn.h. */
#ifndef EINGRAD_PRETRAINED_H
#define EINGRAD_PRETRAINED_H
#include <eingrad/model.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct eg_pretrained {
    const char *family;        /* model_type: "gpt2" */
    const eg_alias *names;     /* of its tensors */
    eg_transformer_args model; /* all but params and name */
    eg_mha_args mha;           /* model.mha points to it */
    eg_mha_args mha_other;     /* of some layers, if model.mha_each is not NULL: its entries point
                                * to mha or to mha_other */
    int64_t begin, end;        /* tokens that begin and end a text; −1: config.json has none */
} eg_pretrained;
/* Reads only folder/config.json, so that options can be changed and parameters added before the
 * tensors are read:
 *     eg_pretrained *o = eg_pretrained_read(cx, folder);
 *     o->model.params = p, o->model.name = "", o->model.dropout = 0.1;
 *     eg_transformer *net = eg_transformer_new_with(&o->model);
 *     eg_params_load_as(p, "folder/model", "", o->names);
 * Lives in the open scope; NULL after an error. A model made from it does not refer to it
 * afterwards. Refused: a model_type that is not above (the message lists them); a size that is
 * missing or not an integer; settings that change the result and are not supported, such as other
 * rope types than default, linear, llama3 and yarn, other activations and position embeddings,
 * cross attention, quantised weights. */
EG_API eg_pretrained *eg_pretrained_read(eg_ctx *, const char *folder);
/* Loads a whole model by the steps of eg_pretrained_read's example: adds its parameters to the
 * list, reads their values, and returns the model; NULL after an error, which leaves the list as it
 * was. F16 and BF16 are converted to the dtype of the list; stored masks and frequencies are not
 * read. Of BERT's heads those are read whose parameters the list has before the call, such as
 * linear layers "pooler" and "classifier" (docs/models.md). Refused: sizes that need more elements
 * than the tensors have; tensors that are missing, left over, or of another shape; parts of an
 * encoder's prediction without "prediction.W", if tie_word_embeddings is false. */
EG_API eg_transformer *eg_pretrained_load(eg_params *, const char *folder);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
