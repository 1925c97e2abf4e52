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
#define BERT_LAYER(rest) "bert.?encoder.layer.*." rest
#define NOBODYS(theirs) { "", theirs, "", 0, 0 }
#define NOBODYS_PAIR(theirs) NOBODYS(theirs "weight"), NOBODYS(theirs "bias")
/* a second copy of the matrix of tied logits */
#define TIED_HEAD { "tokens.E", "lm_head.weight", "v m", 0, EG_ALIAS_COPY }
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
static const eg_alias llama[] = {
    { "tokens.E", "model.?embed_tokens.weight", "v m", 0, 0 },
    TORCH_NORM("*.norm_self.", "model.?layers.*.input_layernorm."),
    LINEARS("*.self.", "model.?layers.*.self_attn.q_proj", "model.?layers.*.self_attn.k_proj",
            "model.?layers.*.self_attn.v_proj", "model.?layers.*.self_attn.o_proj"),
    TORCH_NORM("*.self.norm_q.", "model.?layers.*.self_attn.q_norm."),
    TORCH_NORM("*.self.norm_k.", "model.?layers.*.self_attn.k_norm."),
    TORCH_NORM("*.norm_ffn.", "model.?layers.*.post_attention_layernorm."),
    TORCH_LINEAR("*.ffn.gate.", "model.?layers.*.mlp.gate_proj."),
    TORCH_LINEAR("*.ffn.up.", "model.?layers.*.mlp.up_proj."),
    TORCH_LINEAR("*.ffn.down.", "model.?layers.*.mlp.down_proj."),
    TORCH_NORM("norm.", "model.?norm."),
    TORCH_LINEAR("logits.", "lm_head."),
    NOBODYS("model.?layers.*.self_attn.rotary_emb.inv_freq"),
    NOBODYS("model.?rotary_emb.inv_freq"), TIED_HEAD,
    END
};
/* A user may put heads on top of BERT. Their parameters are read under these names: a linear layer
 * "pooler" or "classifier", a "prediction.dense" and a norm "prediction.norm", and, if the logits
 * are not tied to the embedding, a "prediction.W" (v m). */
static const eg_alias bert[] = {
    { "tokens.E", "bert.?embeddings.word_embeddings.weight", "v m", 0, 0 },
    { "types.E", "bert.?embeddings.token_type_embeddings.weight", "v m", 0, 0 },
    { "positions.P", "bert.?embeddings.position_embeddings.weight", "l m", 0, 0 },
    BERT_NORM("embedding_norm.", "bert.?embeddings.LayerNorm."),
    LINEARS("*.self.", BERT_LAYER("attention.self.query"), BERT_LAYER("attention.self.key"),
            BERT_LAYER("attention.self.value"), BERT_LAYER("attention.output.dense")),
    BERT_NORM("*.norm_self.", BERT_LAYER("attention.output.LayerNorm.")),
    TORCH_LINEAR("*.ffn.up.", BERT_LAYER("intermediate.dense.")),
    TORCH_LINEAR("*.ffn.down.", BERT_LAYER("output.dense.")),
    BERT_NORM("*.norm_ffn.", BERT_LAYER("output.LayerNorm.")),
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
    NOBODYS_PAIR("cls.predictions.transform.LayerNorm."),
    NOBODYS("cls.predictions.transform.LayerNorm.gamma"),
    NOBODYS("cls.predictions.transform.LayerNorm.beta"),
    NOBODYS("cls.predictions.bias"), NOBODYS_PAIR("cls.predictions.decoder."),
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
                   { "llama", llama },
                   { "bert", bert },
                   { "heads", heads } };
    for (size_t k = 0; style && k < sizeof styles / sizeof *styles; k++)
        if (!strcmp(styles[k].style, style)) return styles[k].list;
    return NULL;
}
