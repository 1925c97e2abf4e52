/* styles.c: the names that other programs give to the parameters of an attention, a block or a
 * model, and the order of their axes. */
#include "nn.h"

/* clang-format off */
/* weights as in a linear layer of PyTorch, (out, in): h·d rows, m columns */
#define LINEARS_3(ours, q, k, v)                                                             \
    { ours "W_q", q ".weight", "(h d) m", 0, 0 }, { ours "b_q", q ".bias", "(h d)", 0, 0 },   \
    { ours "W_k", k ".weight", "(h d) m", 0, 0 }, { ours "b_k", k ".bias", "(h d)", 0, 0 },   \
    { ours "W_v", v ".weight", "(h e) m", 0, 0 }, { ours "b_v", v ".bias", "(h e)", 0, 0 }
#define LINEARS(ours, q, k, v, o)                                                            \
    LINEARS_3(ours, q, k, v),                                                                 \
    { ours "W_o", o ".weight", "m (h e)", 0, 0 }, { ours "b_o", o ".bias", "m", 0, 0 }

/* nn.MultiheadAttention: one matrix for all three if the widths are equal, else three */
#define TORCH_IN(ours, theirs)                                                               \
    { ours "W_q", theirs "in_proj_weight", "(c h d) m", 0, 3 },                               \
    { ours "W_k", theirs "in_proj_weight", "(c h d) m", 1, 3 },                               \
    { ours "W_v", theirs "in_proj_weight", "(c h e) m", 2, 3 },                               \
    { ours "W_qkv", theirs "in_proj_weight", "(c h d) m", 0, 0 }
#define TORCH_IN_BIAS(ours, theirs)                                                          \
    { ours "b_q", theirs "in_proj_bias", "(c h d)", 0, 3 },                                   \
    { ours "b_k", theirs "in_proj_bias", "(c h d)", 1, 3 },                                   \
    { ours "b_v", theirs "in_proj_bias", "(c h e)", 2, 3 },                                   \
    { ours "b_qkv", theirs "in_proj_bias", "(c h d)", 0, 0 }
#define TORCH_IN_EACH(ours, theirs)                                                          \
    { ours "W_q", theirs "q_proj_weight", "(h d) m", 0, 0 },                                  \
    { ours "W_k", theirs "k_proj_weight", "(h d) m", 0, 0 },                                  \
    { ours "W_v", theirs "v_proj_weight", "(h e) m", 0, 0 }
#define TORCH_MHA(ours, theirs)                                                              \
    TORCH_IN(ours, theirs), TORCH_IN_EACH(ours, theirs), TORCH_IN_BIAS(ours, theirs),         \
    { ours "W_o", theirs "out_proj.weight", "m (h e)", 0, 0 },                                \
    { ours "b_o", theirs "out_proj.bias", "m", 0, 0 },                                        \
    { ours "bias_k", theirs "bias_k", "1 1 (h d)", 0, 0 },                                    \
    { ours "bias_v", theirs "bias_v", "1 1 (h e)", 0, 0 }

/* layers */
#define TORCH_NORM(ours, theirs)                                                             \
    { ours "gain", theirs "weight", "m", 0, 0 }, { ours "bias", theirs "bias", "m", 0, 0 }
#define TORCH_LINEAR(ours, theirs)                                                           \
    { ours "W", theirs "weight", "o i", 0, 0 }, { ours "b", theirs "bias", "o", 0, 0 }
#define TORCH_FFN(ours, theirs)                                                              \
    TORCH_LINEAR(ours "ffn.up.", theirs "linear1."),                                          \
    TORCH_LINEAR(ours "ffn.down.", theirs "linear2.")
#define TORCH_ENCODER(ours, theirs)                                                          \
    TORCH_MHA(ours "self.", theirs "self_attn."), TORCH_FFN(ours, theirs),                    \
    TORCH_NORM(ours "norm_self.", theirs "norm1."), TORCH_NORM(ours "norm_ffn.", theirs "norm2.")
#define TORCH_DECODER(ours, theirs)                                                          \
    TORCH_MHA(ours "self.", theirs "self_attn."),                                             \
    TORCH_MHA(ours "cross.", theirs "multihead_attn."), TORCH_FFN(ours, theirs),              \
    TORCH_NORM(ours "norm_self.", theirs "norm1."),                                           \
    TORCH_NORM(ours "norm_cross.", theirs "norm2."),                                          \
    TORCH_NORM(ours "norm_ffn.", theirs "norm3.")

/* GPT-2: weights of a Conv1D, (in, out); query, key and value in one matrix */
#define GPT2_MHA(ours, theirs)                                                               \
    { ours "W_q", theirs "c_attn.weight", "m (c h d)", 0, 3 },                                \
    { ours "W_k", theirs "c_attn.weight", "m (c h d)", 1, 3 },                                \
    { ours "W_v", theirs "c_attn.weight", "m (c h e)", 2, 3 },                                \
    { ours "b_q", theirs "c_attn.bias", "(c h d)", 0, 3 },                                    \
    { ours "b_k", theirs "c_attn.bias", "(c h d)", 1, 3 },                                    \
    { ours "b_v", theirs "c_attn.bias", "(c h e)", 2, 3 },                                    \
    { ours "W_qkv", theirs "c_attn.weight", "m (c h d)", 0, 0 },                              \
    { ours "b_qkv", theirs "c_attn.bias", "(c h d)", 0, 0 },                                  \
    { ours "W_o", theirs "c_proj.weight", "(h e) m", 0, 0 },                                  \
    { ours "b_o", theirs "c_proj.bias", "m", 0, 0 }
#define CONV1D(ours, theirs)                                                                 \
    { ours "W", theirs "weight", "i o", 0, 0 }, { ours "b", theirs "bias", "o", 0, 0 }

/* a layer norm of BERT, under the names of PyTorch or those of older files */
#define BERT_NORM(ours, theirs)                                                              \
    TORCH_NORM(ours, theirs),                                                                 \
    { ours "gain", theirs "gamma", "m", 0, 0 }, { ours "bias", theirs "beta", "m", 0, 0 }
#define BERT_LAYER(rest) "encoder.layer.*." rest
/* the embeddings and layers of BERT and RoBERTa; prefix: "bert.?" */
#define BERT_ENCODER(prefix)                                                                 \
    { "tokens.E", prefix "embeddings.word_embeddings.weight", "v m", 0, 0 },                  \
    { "types.E", prefix "embeddings.token_type_embeddings.weight", "v m", 0, 0 },             \
    { "positions.P", prefix "embeddings.position_embeddings.weight", "l m", 0, 0 },           \
    BERT_NORM("embedding_norm.", prefix "embeddings.LayerNorm."),                             \
    LINEARS("*.self.", prefix BERT_LAYER("attention.self.query"),                             \
            prefix BERT_LAYER("attention.self.key"), prefix BERT_LAYER("attention.self.value"), \
            prefix BERT_LAYER("attention.output.dense")),                                     \
    BERT_NORM("*.norm_self.", prefix BERT_LAYER("attention.output.LayerNorm.")),              \
    TORCH_LINEAR("*.ffn.up.", prefix BERT_LAYER("intermediate.dense.")),                      \
    TORCH_LINEAR("*.ffn.down.", prefix BERT_LAYER("output.dense.")),                          \
    BERT_NORM("*.norm_ffn.", prefix BERT_LAYER("output.LayerNorm."))
#define NOBODYS(theirs) { "", theirs, "", 0, 0 }
#define NOBODYS_PAIR(theirs) NOBODYS(theirs "weight"), NOBODYS(theirs "bias")
/* a second copy of the matrix of tied logits */
#define TIED(theirs) { "tokens.E", theirs, "v m", 0, EG_ALIAS_COPY }
#define TIED_HEAD    TIED("lm_head.weight")
/* layers of Llama; rows of a linear layer of another name in some of its successors */
#define LLAMA_LAYER(rest) "model.?layers.*." rest
#define LLAMA_ATTENTION                                                                      \
    LINEARS("*.self.", LLAMA_LAYER("self_attn.q_proj"), LLAMA_LAYER("self_attn.k_proj"),      \
            LLAMA_LAYER("self_attn.v_proj"), LLAMA_LAYER("self_attn.o_proj"))
#define LLAMA_FFN                                                                            \
    TORCH_LINEAR("*.ffn.gate.", LLAMA_LAYER("mlp.gate_proj.")),                               \
    TORCH_LINEAR("*.ffn.up.", LLAMA_LAYER("mlp.up_proj.")),                                   \
    TORCH_LINEAR("*.ffn.down.", LLAMA_LAYER("mlp.down_proj."))
#define LLAMA_HEAD                                                                           \
    TORCH_LINEAR("logits.", "lm_head."), TIED_HEAD,                                           \
    NOBODYS(LLAMA_LAYER("self_attn.rotary_emb.inv_freq")),                                    \
    NOBODYS("model.?rotary_emb.inv_freq")
#define LLAMA_TOKENS { "tokens.E", "model.?embed_tokens.weight", "v m", 0, 0 }
/* Gemma's file has the gains minus 1 */
#define GEMMA_NORM(ours, theirs) { ours "gain", theirs "weight", "m", 0, EG_ALIAS_LESS_ONE }
/* what a user may put on top of an encoder is not a part of it */
#define NOBODYS_NORM(theirs)                                                                 \
    NOBODYS_PAIR(theirs), NOBODYS(theirs "gamma"), NOBODYS(theirs "beta")
#define END { NULL, NULL, NULL, 0, 0 }
/* clang-format on */

static const eg_alias torch[] = { TORCH_MHA("", ""), TORCH_ENCODER("", ""),
                                  TORCH_ENCODER("*.", "layers.*."), TORCH_NORM("norm.", "norm."),
                                  END };
static const eg_alias torch_decoder[] = { TORCH_DECODER("", ""), TORCH_DECODER("*.", "layers.*."),
                                          TORCH_NORM("norm.", "norm."), END };
static const eg_alias torch_transformer[] = { TORCH_ENCODER("encoder.*.", "encoder.layers.*."),
                                              TORCH_NORM("source_norm.", "encoder.norm."),
                                              TORCH_DECODER("decoder.*.", "decoder.layers.*."),
                                              TORCH_NORM("norm.", "decoder.norm."), END };
static const eg_alias capitals[] = { LINEARS("", "W_q", "W_k", "W_v", "W_o"), END };
static const eg_alias projections[] = { LINEARS("", "q_proj", "k_proj", "v_proj", "o_proj"), END };
static const eg_alias labml[] = {
    LINEARS("", "query.linear", "key.linear", "value.linear", "output"), END
};
/* clang-format off */
static const eg_alias gpt2[] = {
    GPT2_MHA("", ""),
    { "tokens.E", "transformer.?wte.weight", "v m", 0, 0 },
    { "positions.P", "transformer.?wpe.weight", "l m", 0, 0 },
    TORCH_NORM("*.norm_self.", "transformer.?h.*.ln_1."),
    GPT2_MHA("*.self.", "transformer.?h.*.attn."),
    TORCH_NORM("*.norm_ffn.", "transformer.?h.*.ln_2."),
    CONV1D("*.ffn.up.", "transformer.?h.*.mlp.c_fc."),
    CONV1D("*.ffn.down.", "transformer.?h.*.mlp.c_proj."),
    TORCH_NORM("norm.", "transformer.?ln_f."),
    TORCH_LINEAR("logits.", "lm_head."),
    /* buffers of the causal mask */
    NOBODYS("bias"), NOBODYS("masked_bias"),
    NOBODYS("transformer.?h.*.attn.bias"), NOBODYS("transformer.?h.*.attn.masked_bias"),
    TIED_HEAD,
    END
};
static const eg_alias gptj[] = {
    { "tokens.E", "transformer.?wte.weight", "v m", 0, 0 },
    TORCH_NORM("*.norm_self.", "transformer.?h.*.ln_1."),
    LINEARS("*.self.", "transformer.?h.*.attn.q_proj", "transformer.?h.*.attn.k_proj",
            "transformer.?h.*.attn.v_proj", "transformer.?h.*.attn.out_proj"),
    TORCH_LINEAR("*.ffn.up.", "transformer.?h.*.mlp.fc_in."),
    TORCH_LINEAR("*.ffn.down.", "transformer.?h.*.mlp.fc_out."),
    TORCH_NORM("norm.", "transformer.?ln_f."),
    TORCH_LINEAR("logits.", "lm_head."),
    NOBODYS("transformer.?h.*.attn.bias"), NOBODYS("transformer.?h.*.attn.masked_bias"),
    NOBODYS("transformer.?h.*.attn.embed_positions"),
    END
};
#define NEO_LAYER(rest) "transformer.?h.*." rest
static const eg_alias gpt_neo[] = {
    { "tokens.E", "transformer.?wte.weight", "v m", 0, 0 },
    { "positions.P", "transformer.?wpe.weight", "l m", 0, 0 },
    TORCH_NORM("*.norm_self.", NEO_LAYER("ln_1.")),
    LINEARS("*.self.", NEO_LAYER("attn.attention.q_proj"), NEO_LAYER("attn.attention.k_proj"),
            NEO_LAYER("attn.attention.v_proj"), NEO_LAYER("attn.attention.out_proj")),
    TORCH_NORM("*.norm_ffn.", NEO_LAYER("ln_2.")),
    TORCH_LINEAR("*.ffn.up.", NEO_LAYER("mlp.c_fc.")),
    TORCH_LINEAR("*.ffn.down.", NEO_LAYER("mlp.c_proj.")),
    TORCH_NORM("norm.", "transformer.?ln_f."),
    TORCH_LINEAR("logits.", "lm_head."),
    NOBODYS(NEO_LAYER("attn.attention.bias")), NOBODYS(NEO_LAYER("attn.attention.masked_bias")),
    TIED_HEAD,
    END
};
/* query, key and value in one matrix, head by head */
#define NEOX_LAYER(rest) "gpt_neox.?layers.*." rest
#define NEOX_PART(W, b, d, part)                                                             \
    { "*.self." W, NEOX_LAYER("attention.query_key_value.weight"), "(h c " d ") m", part, 3 },\
    { "*.self." b, NEOX_LAYER("attention.query_key_value.bias"), "(h c " d ")", part, 3 }
static const eg_alias gpt_neox[] = {
    { "tokens.E", "gpt_neox.?embed_in.weight", "v m", 0, 0 },
    TORCH_NORM("*.norm_self.", NEOX_LAYER("input_layernorm.")),
    NEOX_PART("W_q", "b_q", "d", 0), NEOX_PART("W_k", "b_k", "d", 1),
    NEOX_PART("W_v", "b_v", "e", 2),
    { "*.self.W_o", NEOX_LAYER("attention.dense.weight"), "m (h e)", 0, 0 },
    { "*.self.b_o", NEOX_LAYER("attention.dense.bias"), "m", 0, 0 },
    TORCH_NORM("*.norm_ffn.", NEOX_LAYER("post_attention_layernorm.")),
    TORCH_LINEAR("*.ffn.up.", NEOX_LAYER("mlp.dense_h_to_4h.")),
    TORCH_LINEAR("*.ffn.down.", NEOX_LAYER("mlp.dense_4h_to_h.")),
    TORCH_NORM("norm.", "gpt_neox.?final_layer_norm."),
    TORCH_LINEAR("logits.", "embed_out."), TIED("embed_out.weight"),
    NOBODYS(NEOX_LAYER("attention.bias")), NOBODYS(NEOX_LAYER("attention.masked_bias")),
    NOBODYS(NEOX_LAYER("attention.rotary_emb.inv_freq")), NOBODYS("gpt_neox.?rotary_emb.inv_freq"),
    END
};
#define OPT_LAYER(rest) "model.?decoder.layers.*." rest
static const eg_alias opt[] = {
    { "tokens.E", "model.?decoder.embed_tokens.weight", "v m", 0, 0 },
    { "positions.P", "model.?decoder.embed_positions.weight", "l m", 0, 0 },
    TORCH_NORM("*.norm_self.", OPT_LAYER("self_attn_layer_norm.")),
    LINEARS("*.self.", OPT_LAYER("self_attn.q_proj"), OPT_LAYER("self_attn.k_proj"),
            OPT_LAYER("self_attn.v_proj"), OPT_LAYER("self_attn.out_proj")),
    TORCH_NORM("*.norm_ffn.", OPT_LAYER("final_layer_norm.")),
    TORCH_LINEAR("*.ffn.up.", OPT_LAYER("fc1.")),
    TORCH_LINEAR("*.ffn.down.", OPT_LAYER("fc2.")),
    TORCH_NORM("norm.", "model.?decoder.final_layer_norm."),
    TORCH_LINEAR("logits.", "lm_head."), TIED_HEAD,
    END
};
static const eg_alias llama[] = {
    LLAMA_TOKENS,
    TORCH_NORM("*.norm_self.", LLAMA_LAYER("input_layernorm.")),
    LLAMA_ATTENTION,
    TORCH_NORM("*.self.norm_q.", LLAMA_LAYER("self_attn.q_norm.")),
    TORCH_NORM("*.self.norm_k.", LLAMA_LAYER("self_attn.k_norm.")),
    TORCH_NORM("*.norm_ffn.", LLAMA_LAYER("post_attention_layernorm.")),
    LLAMA_FFN,
    TORCH_NORM("norm.", "model.?norm."),
    LLAMA_HEAD,
    END
};
static const eg_alias starcoder2[] = {
    LLAMA_TOKENS,
    TORCH_NORM("*.norm_self.", LLAMA_LAYER("input_layernorm.")),
    LLAMA_ATTENTION,
    TORCH_NORM("*.norm_ffn.", LLAMA_LAYER("post_attention_layernorm.")),
    TORCH_LINEAR("*.ffn.up.", LLAMA_LAYER("mlp.c_fc.")),
    TORCH_LINEAR("*.ffn.down.", LLAMA_LAYER("mlp.c_proj.")),
    TORCH_NORM("norm.", "model.?norm."),
    LLAMA_HEAD,
    END
};
static const eg_alias olmo2[] = {
    LLAMA_TOKENS,
    LLAMA_ATTENTION,
    TORCH_NORM("*.self.norm_q.", LLAMA_LAYER("self_attn.q_norm.")),
    TORCH_NORM("*.self.norm_k.", LLAMA_LAYER("self_attn.k_norm.")),
    TORCH_NORM("*.norm_self.", LLAMA_LAYER("post_attention_layernorm.")),
    LLAMA_FFN,
    TORCH_NORM("*.norm_ffn.", LLAMA_LAYER("post_feedforward_layernorm.")),
    TORCH_NORM("norm.", "model.?norm."),
    LLAMA_HEAD,
    END
};
static const eg_alias phi[] = {
    LLAMA_TOKENS,
    TORCH_NORM("*.norm_self.", LLAMA_LAYER("input_layernorm.")),
    LINEARS("*.self.", LLAMA_LAYER("self_attn.q_proj"), LLAMA_LAYER("self_attn.k_proj"),
            LLAMA_LAYER("self_attn.v_proj"), LLAMA_LAYER("self_attn.dense")),
    TORCH_NORM("*.self.norm_q.", LLAMA_LAYER("self_attn.q_layernorm.")),
    TORCH_NORM("*.self.norm_k.", LLAMA_LAYER("self_attn.k_layernorm.")),
    TORCH_LINEAR("*.ffn.up.", LLAMA_LAYER("mlp.fc1.")),
    TORCH_LINEAR("*.ffn.down.", LLAMA_LAYER("mlp.fc2.")),
    TORCH_NORM("norm.", "model.?final_layernorm."),
    LLAMA_HEAD,
    END
};
static const eg_alias phi3[] = {
    LLAMA_TOKENS,
    TORCH_NORM("*.norm_self.", LLAMA_LAYER("input_layernorm.")),
    { "*.self.W_q", LLAMA_LAYER("self_attn.qkv_proj.weight"), "(c h d) m", 0, 3 },
    { "*.self.W_k", LLAMA_LAYER("self_attn.qkv_proj.weight"), "(c h d) m", 1, 3 },
    { "*.self.W_v", LLAMA_LAYER("self_attn.qkv_proj.weight"), "(c h e) m", 2, 3 },
    { "*.self.W_o", LLAMA_LAYER("self_attn.o_proj.weight"), "m (h e)", 0, 0 },
    TORCH_NORM("*.norm_ffn.", LLAMA_LAYER("post_attention_layernorm.")),
    { "*.ffn.gate.W", LLAMA_LAYER("mlp.gate_up_proj.weight"), "(c o) i", 0, 2 },
    { "*.ffn.up.W", LLAMA_LAYER("mlp.gate_up_proj.weight"), "(c o) i", 1, 2 },
    TORCH_LINEAR("*.ffn.down.", LLAMA_LAYER("mlp.down_proj.")),
    TORCH_NORM("norm.", "model.?norm."),
    LLAMA_HEAD,
    END
};
static const eg_alias gemma[] = {
    LLAMA_TOKENS,
    GEMMA_NORM("*.norm_self.", LLAMA_LAYER("input_layernorm.")),
    LLAMA_ATTENTION,
    GEMMA_NORM("*.norm_ffn.", LLAMA_LAYER("post_attention_layernorm.")),
    LLAMA_FFN,
    GEMMA_NORM("norm.", "model.?norm."),
    LLAMA_HEAD,
    END
};
static const eg_alias gemma2[] = {
    LLAMA_TOKENS,
    GEMMA_NORM("*.norm_self.", LLAMA_LAYER("input_layernorm.")),
    LLAMA_ATTENTION,
    GEMMA_NORM("*.self.norm_q.", LLAMA_LAYER("self_attn.q_norm.")),
    GEMMA_NORM("*.self.norm_k.", LLAMA_LAYER("self_attn.k_norm.")),
    GEMMA_NORM("*.after_self.", LLAMA_LAYER("post_attention_layernorm.")),
    GEMMA_NORM("*.norm_ffn.", LLAMA_LAYER("pre_feedforward_layernorm.")),
    LLAMA_FFN,
    GEMMA_NORM("*.after_ffn.", LLAMA_LAYER("post_feedforward_layernorm.")),
    GEMMA_NORM("norm.", "model.?norm."),
    LLAMA_HEAD,
    END
};
/* A user may put heads on top of BERT. Their parameters are read under these names: a linear layer
 * "pooler" or "classifier", a "prediction.dense" and a norm "prediction.norm", and, if the logits
 * are not tied to the embedding, a "prediction.W" (v m). */
static const eg_alias bert[] = {
    BERT_ENCODER("bert.?"),
    TORCH_LINEAR("pooler.", "bert.?pooler.dense."),
    TORCH_LINEAR("classifier.", "classifier."),
    TORCH_LINEAR("prediction.dense.", "cls.predictions.transform.dense."),
    BERT_NORM("prediction.norm.", "cls.predictions.transform.LayerNorm."),
    { "prediction.W", "cls.predictions.decoder.weight", "v m", 0, 0 },
    { "prediction.b", "cls.predictions.bias", "v", 0, 0 },
    { "prediction.b", "cls.predictions.decoder.bias", "v", 0, 0 },
    NOBODYS("bert.?embeddings.position_ids"), NOBODYS("bert.?embeddings.token_type_ids"),
    NOBODYS_PAIR("bert.?pooler.dense."),
    NOBODYS_PAIR("classifier."), NOBODYS_PAIR("qa_outputs."), NOBODYS_PAIR("cls.seq_relationship."),
    NOBODYS_PAIR("cls.predictions.transform.dense."),
    NOBODYS_NORM("cls.predictions.transform.LayerNorm."),
    NOBODYS("cls.predictions.bias"), NOBODYS_PAIR("cls.predictions.decoder."),
    END
};
/* RoBERTa has BERT's layers and another prediction. */
static const eg_alias roberta[] = {
    BERT_ENCODER("roberta.?"),
    TORCH_LINEAR("pooler.", "roberta.?pooler.dense."),
    TORCH_LINEAR("classifier.dense.", "classifier.dense."),
    TORCH_LINEAR("classifier.", "classifier.out_proj."),
    TORCH_LINEAR("prediction.dense.", "lm_head.dense."),
    BERT_NORM("prediction.norm.", "lm_head.layer_norm."),
    { "prediction.W", "lm_head.decoder.weight", "v m", 0, 0 },
    { "prediction.b", "lm_head.bias", "v", 0, 0 },
    { "prediction.b", "lm_head.decoder.bias", "v", 0, 0 },
    NOBODYS("roberta.?embeddings.position_ids"), NOBODYS("roberta.?embeddings.token_type_ids"),
    NOBODYS_PAIR("roberta.?pooler.dense."), NOBODYS_PAIR("classifier.dense."),
    NOBODYS_PAIR("classifier.out_proj."), NOBODYS_PAIR("classifier."), NOBODYS_PAIR("qa_outputs."),
    NOBODYS_PAIR("lm_head.dense."), NOBODYS_NORM("lm_head.layer_norm."), NOBODYS("lm_head.bias"),
    NOBODYS_PAIR("lm_head.decoder."),
    END
};
#define DISTIL_LAYER(rest) "distilbert.?transformer.layer.*." rest
static const eg_alias distilbert[] = {
    { "tokens.E", "distilbert.?embeddings.word_embeddings.weight", "v m", 0, 0 },
    { "positions.P", "distilbert.?embeddings.position_embeddings.weight", "l m", 0, 0 },
    BERT_NORM("embedding_norm.", "distilbert.?embeddings.LayerNorm."),
    LINEARS("*.self.", DISTIL_LAYER("attention.q_lin"), DISTIL_LAYER("attention.k_lin"),
            DISTIL_LAYER("attention.v_lin"), DISTIL_LAYER("attention.out_lin")),
    TORCH_NORM("*.norm_self.", DISTIL_LAYER("sa_layer_norm.")),
    TORCH_LINEAR("*.ffn.up.", DISTIL_LAYER("ffn.lin1.")),
    TORCH_LINEAR("*.ffn.down.", DISTIL_LAYER("ffn.lin2.")),
    TORCH_NORM("*.norm_ffn.", DISTIL_LAYER("output_layer_norm.")),
    TORCH_LINEAR("pooler.", "pre_classifier."),
    TORCH_LINEAR("classifier.", "classifier."),
    TORCH_LINEAR("prediction.dense.", "vocab_transform."),
    TORCH_NORM("prediction.norm.", "vocab_layer_norm."),
    { "prediction.W", "vocab_projector.weight", "v m", 0, 0 },
    { "prediction.b", "vocab_projector.bias", "v", 0, 0 },
    NOBODYS("distilbert.?embeddings.position_ids"), NOBODYS_PAIR("pre_classifier."),
    NOBODYS_PAIR("classifier."), NOBODYS_PAIR("qa_outputs."), NOBODYS_PAIR("vocab_transform."),
    NOBODYS_PAIR("vocab_layer_norm."), NOBODYS_PAIR("vocab_projector."),
    END
};
/* clang-format on */
static const eg_alias heads[] = {
    { "W_q", "W_q.#.weight", "d m", 0, 0 },   { "W_k", "W_k.#.weight", "d m", 0, 0 },
    { "W_v", "W_v.#.weight", "e m", 0, 0 },   { "b_q", "W_q.#.bias", "d", 0, 0 },
    { "b_k", "W_k.#.bias", "d", 0, 0 },       { "b_v", "W_v.#.bias", "e", 0, 0 },
    { "W_q.*", "W_q.*.weight", "d m", 0, 0 }, { "W_k.*", "W_k.*.weight", "d m", 0, 0 },
    { "W_v.*", "W_v.*.weight", "e m", 0, 0 }, { "b_q.*", "W_q.*.bias", "d", 0, 0 },
    { "b_k.*", "W_k.*.bias", "d", 0, 0 },     { "b_v.*", "W_v.*.bias", "e", 0, 0 },
    { "W_o", "W_o.#.weight", "m e", 0, 0 },   { "W_o.*", "W_o.*.weight", "m e", 0, 0 },
    { "b_o", "W_o.bias", "m", 0, 0 },         END
};

const eg_alias *eg_aliases(const char *style)
{
    static const struct {
        const char *style;
        const eg_alias *list;
    } styles[] = { { "torch", torch },
                   { "torch.decoder", torch_decoder },
                   { "torch.transformer", torch_transformer },
                   { "W_q", capitals },
                   { "q_proj", projections },
                   { "labml", labml },
                   { "gpt2", gpt2 },
                   { "gptj", gptj },
                   { "gpt_neo", gpt_neo },
                   { "gpt_neox", gpt_neox },
                   { "opt", opt },
                   { "llama", llama },
                   { "starcoder2", starcoder2 },
                   { "olmo2", olmo2 },
                   { "phi", phi },
                   { "phi3", phi3 },
                   { "gemma", gemma },
                   { "gemma2", gemma2 },
                   { "bert", bert },
                   { "roberta", roberta },
                   { "distilbert", distilbert },
                   { "heads", heads } };
    for (size_t k = 0; style && k < sizeof styles / sizeof *styles; k++)
        if (!strcmp(styles[k].style, style)) return styles[k].list;
    return NULL;
}
