/* styles.c: the names that other programs give to the parameters of an attention, a block or a
 * model, and the order of their axes. */
#include "nn.h"

/* clang-format off */
/* weights as a linear layer of PyTorch holds them, (out, in): rows h·d of columns m */
#define LINEARS(q, k, v, o)                                                                  \
    { "W_q", q ".weight", "(h d) m", 0, 0 }, { "b_q", q ".bias", "(h d)", 0, 0 },             \
    { "W_k", k ".weight", "(h d) m", 0, 0 }, { "b_k", k ".bias", "(h d)", 0, 0 },             \
    { "W_v", v ".weight", "(h e) m", 0, 0 }, { "b_v", v ".bias", "(h e)", 0, 0 },             \
    { "W_o", o ".weight", "m (h e)", 0, 0 }, { "b_o", o ".bias", "m", 0, 0 }

/* nn.MultiheadAttention: one matrix for all three where widths agree, else three */
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
static const eg_alias capitals[] = { LINEARS("W_q", "W_k", "W_v", "W_o"), END };
static const eg_alias projections[] = { LINEARS("q_proj", "k_proj", "v_proj", "o_proj"), END };
static const eg_alias labml[] = { LINEARS("query.linear", "key.linear", "value.linear", "output"),
                                  END };
static const eg_alias gpt2[] = { { "W_q", "c_attn.weight", "m (c h d)", 0, 3 },
                                 { "W_k", "c_attn.weight", "m (c h d)", 1, 3 },
                                 { "W_v", "c_attn.weight", "m (c h e)", 2, 3 },
                                 { "b_q", "c_attn.bias", "(c h d)", 0, 3 },
                                 { "b_k", "c_attn.bias", "(c h d)", 1, 3 },
                                 { "b_v", "c_attn.bias", "(c h e)", 2, 3 },
                                 { "W_qkv", "c_attn.weight", "m (c h d)", 0, 0 },
                                 { "b_qkv", "c_attn.bias", "(c h d)", 0, 0 },
                                 { "W_o", "c_proj.weight", "(h e) m", 0, 0 },
                                 { "b_o", "c_proj.bias", "m", 0, 0 },
                                 /* buffers of its mask */
                                 { "", "bias", "", 0, 0 },
                                 { "", "masked_bias", "", 0, 0 },
                                 END };
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
                   { "heads", heads } };
    for (size_t k = 0; style && k < sizeof styles / sizeof *styles; k++)
        if (!strcmp(styles[k].style, style)) return styles[k].list;
    return NULL;
}
