/* eingrad/pretrained.h: models that others trained, from a folder as the transformers package of
 * Hugging Face writes it: config.json and beside it model.safetensors, or shards and their index.
 *
 *     eg_params *p = eg_params_open(cx);
 *     eg_transformer *net = eg_pretrained_load(p, "folder");
 *     logits = eg_transformer_run(net, tokens);
 *
 * family             what eg_transformer_run returns       model_type in config.json
 * GPT-2              logits                                gpt2
 * Llama, Mistral     logits                                llama, mistral
 * Qwen 2, Qwen 3     logits                                qwen2, qwen3
 * BERT               hidden states (b l m)                 bert
 *
 * Tokens are numbers; turning text into them is left to a tokenizer. What the model forbids (later
 * places, places beyond a window) is in the predicates of its attentions: a run needs no .where.
 * Dropout is 0. Lives, fails and is named as nn.h says. */
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
    int64_t begin, end;        /* tokens that begin and end a text; −1: config.json has none */
} eg_pretrained;
/* Reads folder/config.json alone, so that options can be changed and parameters added before the
 * tensors are read:
 *     eg_pretrained *o = eg_pretrained_read(cx, folder);
 *     o->model.params = p, o->model.name = "", o->model.dropout = 0.1;
 *     eg_transformer *net = eg_transformer_new_with(&o->model);
 *     eg_params_load_as(p, "folder/model", "", o->names);
 * Lives in the open scope; NULL after an error. A model that is made of it keeps nothing of it.
 * Refused: a model_type that is not above (the message lists them); a size that is missing or no
 * whole number; settings that would change the result and have no option here, such as other rope
 * types than default, linear, llama3 and yarn, other activations and position embeddings, cross
 * attention, quantised weights. */
EG_API eg_pretrained *eg_pretrained_read(eg_ctx *, const char *folder);
/* Reads a whole model, in the steps of eg_pretrained_read's example: returns the model, its
 * parameters in the list, with the values of the file; NULL after an error. F16 and BF16 become the
 * dtype of the list; masks and frequencies that a file stores are left out. Of BERT's heads those
 * are read whose parameters the list has before the call, such as linear layers "pooler" and
 * "classifier" (docs/models.md). Refused: tensors that are missing, left over, or of another
 * shape. */
EG_API eg_transformer *eg_pretrained_load(eg_params *, const char *folder);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
