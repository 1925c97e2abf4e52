/* eingrad/model.h: transformer blocks and whole models. For lifetimes, errors and names see
 * nn.h. */
#ifndef EINGRAD_MODEL_H
#define EINGRAD_MODEL_H
#include <eingrad/mha.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- transformer block: x ← x + A(n₁(x)), [x ← x + C(n₂(x), memory),] x ← x + F(n₃(x))
 * .post_norm            x ← n₁(x + A(x)) …
 * .branch_norm          x ← x + n₁(A(x)) …                          OLMo 2
 * .sandwich             x ← x + n₁'(A(n₁(x))) …                     Gemma 2
 * .parallel             x ← x + A(n₁(x)) + F(n₃(x))                 GPT-J, GPT-NeoX
 * A self attention, C cross attention, F feed-forward, n norms. Vaswani et al. 2017, §3.1;
 * pre-norm: Xiong et al. 2020 */
typedef struct eg_block {
    const char *name;
    bool post_norm, branch_norm, parallel;
    double dropout;
    eg_mha *self, *cross; /* cross NULL: none */
    eg_ffn *ffn;
    eg_norm *norm_self, *norm_cross, *norm_ffn;    /* norm_ffn is norm_self if that is shared */
    eg_norm *after_self, *after_cross, *after_ffn; /* n' of a sandwich; else NULL */
} eg_block;
typedef struct eg_block_args {
    size_t size;
    eg_params *params;
    const char *name;
    int64_t d_model, heads; /* needed */
    int64_t width;          /* of the feed-forward part: 4 d_model */
    bool cross;             /* the block also attends to a memory, the result of an encoder */
    int64_t memory_dim;     /* with .cross: width of the memory: d_model */
    bool post_norm;         /* norms after the sums, as above */
    bool branch_norm;       /* norms of what A, C and F return */
    bool sandwich;          /* norms of what A, C and F read, and of what they return */
    bool parallel;          /* F reads the block's x, not the sum with A */
    bool shared_norm;       /* with .parallel: n₃ is n₁ */
    bool rms;               /* norms are RMS norms */
    double eps;             /* of the norms, as eg_norm_new's: 1e-5 */
    bool no_bias;           /* no biases in the block */
    bool no_ffn_bias;       /* none in F; .mha has the options for A and C */
    /* probability of dropout: 0. It applies to the attention weights (unless .mha has .dropout,
     * where EG_OFF means none, or .linear), inside F, and to what A, C and F add to x */
    double dropout;
    eg_activation *activation; /* of F: eg_gelu */
    bool gated;                /* F is a gated feed-forward, as eg_ffn_new's */
    const eg_mha_args *mha;    /* further options of the attentions:
                                * &(eg_mha_args){ .rotary = 1e4, .kv_heads = 2 }; C ignores those
                                * that compare positions or replace the attention: rotary positions,
                                * .alibi, .where, .score with .no_softmax, .core, .linear,
                                * .score_fn */
    double init;               /* standard deviation of a normal draw; 0: Xavier */
} eg_block_args;
typedef struct eg_block_run_args {
    size_t size;
    const eg_block *block;
    eg_tensor *x;
    eg_tensor *memory; /* (b j m), where the block has cross attention */
    /* of the self attention, each as eg_mha_run's */
    const char *where;
    const char *score;
    eg_given with[8];
    eg_masked keep, bias;
    int64_t offset;
    eg_masked positions; /* {"bi", t}: rotary positions, as eg_mha_run's */
    /* x and the result are (1 p m), packed sequences, as eg_mha_run's; so may the memory be */
    eg_packed packed, memory_packed;
    /* of the cross attention: i is a position of x, j one of the memory; it may read `with` too */
    const char *memory_where;
    const char *memory_score;
    eg_masked memory_keep;  /* {"bj", pad} */
    eg_cache *cache;        /* NULL: none */
    int slot;               /* of the cache, for the self attention: 0; the cross attention has the
                             * slot after it */
    eg_tensor *gain;        /* (h): factors of the self attention's heads; NULL: 1 */
    eg_tensor *memory_gain; /* (h): of the cross attention's */
    eg_tensor **weights;    /* out: (b h i j) of the self attention */
    eg_tensor **memory_weights; /* out: of the cross attention */
    /* the ranks among which the sequence is divided, as eg_mha_run's: x and memory are those of
     * this rank; NULL: not divided */
    eg_ranks *ranks;
    int64_t ranks_block; /* as eg_attention's: 512 */
    bool zigzag;         /* as eg_attention's */
    /* of a self attention by .linear, each as eg_mha_run's: {"bjh", t} instead of the module's, and
     * the keys that read the state of a delta rule */
    eg_masked decay, beta;
    eg_tensor *read;
} eg_block_run_args;
/* Parameters: "self.…" "cross.…" "ffn.…" "norm_self.…" "norm_cross.…" "norm_ffn.…", of a sandwich
 * "after_self.…" "after_cross.…" "after_ffn.…". Refused: two of .post_norm, .branch_norm and
 * .sandwich; .parallel with .post_norm or .cross; .shared_norm without .parallel or with
 * .branch_norm; what eg_mha_new and eg_ffn_new refuse. */
EG_API eg_block *eg_block_new_with(const eg_block_args *);
/* x after the block, of the same shape */
EG_API eg_tensor *eg_block_run_with(const eg_block_run_args *);

/* -- transformer: tokens (b l) → logits (b l v)
 * embedding [+ types] + positions [, norm], blocks, norm (none with post-norm), linear
 * .logits_cap           logits ← c tanh(logits/c) */
typedef struct eg_transformer {
    const char *name;
    eg_embedding *tokens;
    eg_embedding *types;     /* NULL: none */
    eg_positions *positions; /* NULL: none */
    eg_norm *embedding_norm; /* NULL: none */
    int64_t layers;
    eg_block **block;
    eg_norm *norm;     /* NULL after post-norm */
    eg_linear *logits; /* NULL if tied or no_logits */
    bool no_logits;
    double logits_cap; /* 0: none */
    double dropout;
} eg_transformer;
typedef struct eg_transformer_args {
    size_t size;
    eg_params *params;
    const char *name;
    int64_t vocabulary;     /* tokens; needed */
    int64_t length;         /* length of the longest sequence; needed */
    int64_t d_model, heads; /* needed */
    int64_t layers;         /* needed */
    int64_t width;          /* of the feed-forward parts: 4 d_model */
    int64_t classes;        /* number of logits at a position: vocabulary */
    double dropout;         /* as the block's, and on the embedding: 0 */
    bool sinusoid;          /* positions without parameters */
    bool no_positions;      /* for .mha with rotary positions */
    int64_t first_position; /* row of the table of positions for the first token: 0 */
    double embedding_scale; /* factor of the tokens' vectors, before anything is added: 1; √d_model
                             * in Vaswani et al. 2017, §3.4 */
    double logits_cap;      /* c > 0, as above; 0: none */
    bool tied;              /* logits = x Eᵀ, with the embedding's table E. Press, Wolf 2017. With
                             * .no_logits: the model is the same without it (eg_pretrained sets both
                             * for encoders, whose predictions the caller computes so) */
    bool no_logits;         /* a run returns the hidden states (b l m), and there is no last linear
                             * layer */
    int64_t types; /* kinds of tokens, such as the segments of BERT, each with a vector that is
                    * added to those of its tokens: none. Devlin et al. 2019, fig. 2 */
    bool embedding_norm;                               /* a norm of tokens + types + positions */
    bool post_norm, rms, no_bias;                      /* as the block's */
    bool branch_norm, sandwich, parallel, shared_norm; /* as the block's */
    bool no_ffn_bias, no_logits_bias;                  /* none in these parts */
    double eps;                                        /* of every norm: 1e-5 */
    eg_activation *activation;                         /* eg_gelu */
    bool gated;                                        /* as the block's */
    double deviation;                                  /* of embedding and positions: 0.5 */
    double init;                                       /* as the block's */
    const eg_mha_args *mha;                            /* as the block's */
    /* an entry for each layer, used instead of .mha, so that some layers can have a window, or
     * other rotary positions; an entry may be NULL. NULL: every layer uses .mha */
    const eg_mha_args *const *mha_each;
} eg_transformer_args;
typedef struct eg_transformer_run_args {
    size_t size;
    const eg_transformer *transformer;
    eg_tensor *index;  /* (b l) tokens */
    eg_tensor *types;  /* (b l) their types; NULL: all 0 */
    const char *where; /* of every layer's attention: "j <= i" makes a decoder */
    const char *score; /* of every layer's attention, as eg_mha_run's */
    eg_given with[8];  /* what where and score read */
    eg_masked keep;    /* {"bj", pad} */
    /* (b) i32 or i64: positions beyond the length of a sequence are padding. They are not computed
     * and not attended to, and the result there is 0. Masks and scores still refer to (b h i j).
     * Refused together with .cache and .ranks; NULL: all positions are computed */
    eg_tensor *lengths;
    int64_t packed_length; /* with .lengths: the number of packed positions, at least the sum of the
                            * lengths. 0: eg_packed_length(lengths), or b·l if that is less, which a
                            * captured step refuses */
    eg_masked positions;   /* {"bi", t}: rotary positions, as eg_mha_run's */
    eg_cache *cache;       /* index holds the next tokens only; keep's j counts from the first */
    eg_tensor *gain;       /* (layers h): factors of the heads */
    eg_tensor **weights;   /* out: one (b h i j) per layer */
    /* the ranks among which the sequence is divided, as eg_mha_run's: index, types and .positions
     * are those of this rank; NULL: not divided */
    eg_ranks *ranks;
    int64_t ranks_block; /* as eg_attention's: 512 */
    bool zigzag;         /* as eg_attention's */
    /* called with the hidden states x (b l m): with layer = 0 before the first layer, and with
     * layer = n after the n-th layer. The tensor that it returns takes the place of x, and has
     * gradients; if it returns NULL, x stays. x is (1 p m) with .lengths, has the new positions
     * only with .cache, and the positions of this rank with .ranks. Inside blocks several threads
     * call it at the same time. NULL: not called */
    eg_tensor *(*layer_fn)(void *user, int64_t layer, eg_tensor *x);
    void *user; /* what layer_fn is called with */
} eg_transformer_run_args;
/* Parameters: "tokens.E" "types.E" "positions.P" "embedding_norm.…" "0.…" "1.…" "norm.…"
 * "logits.…". Refused: a needed size that is missing, .tied with another number of classes than of
 * tokens, .classes and .logits_cap with .no_logits, .sinusoid and .first_position with
 * .no_positions, what the parts refuse. */
EG_API eg_transformer *eg_transformer_new_with(const eg_transformer_args *);
/* Refused: tokens out of range and sequences longer than .length, except in padding; types of a
 * model without them, a gain of another shape, a result of layer_fn of another shape or dtype than
 * x, what the attentions and eg_pack refuse. */
EG_API eg_tensor *eg_transformer_run_with(const eg_transformer_run_args *);

/* -- encoder and decoder: source (b j), target (b i) → logits (b i v)
 * memory = encoder(source); decoder blocks attend to the target so far (causal), then to the
 * memory. Vaswani et al. 2017, fig. 1 */
typedef struct eg_seq2seq {
    const char *name;
    eg_embedding *source, *target; /* the same if shared */
    eg_positions *source_positions, *positions;
    int64_t layers, decoder_layers;
    eg_block **encoder, **decoder;
    eg_norm *source_norm, *norm;
    eg_linear *logits;
    double dropout;
} eg_seq2seq;
typedef struct eg_seq2seq_args {
    size_t size;
    eg_params *params;
    const char *name;
    int64_t vocabulary;        /* of the target; needed */
    int64_t source_vocabulary; /* vocabulary */
    int64_t length;            /* length of the longest target; needed */
    int64_t source_length;     /* length */
    int64_t d_model, heads;    /* needed */
    int64_t layers;            /* of the encoder; needed */
    int64_t decoder_layers;    /* layers */
    int64_t width;             /* of the feed-forward parts: 4 d_model */
    bool shared;               /* one embedding for source and target */
    double dropout;            /* the rest as the transformer's */
    bool sinusoid, no_positions, tied, post_norm, rms, no_bias;
    double eps;
    eg_activation *activation;
    bool gated;
    double deviation, init;
    const eg_mha_args *mha;
} eg_seq2seq_args;
typedef struct eg_seq2seq_run_args {
    size_t size;
    const eg_seq2seq *net;
    eg_tensor *source, *target; /* (b j), (b i) tokens */
    /* the predicates and scores of attentions, as eg_mha_run's: those of the encoder, … */
    const char *source_where, *source_score;
    /* … of the decoder's self attention, in addition to "j <= i", … */
    const char *where, *score;
    /* … and of its cross attention, i in the target and j in the source */
    const char *memory_where, *memory_score;
    eg_given with[8];                    /* what these six read */
    eg_masked source_keep, keep;         /* {"bj", pad} each: of the source, of the target */
    eg_tensor *source_lengths, *lengths; /* as eg_transformer_run's .lengths: of the source, … */
    int64_t packed_source_length, packed_length; /* … and .packed_length */
    eg_tensor *gain;            /* (layers + 2 decoder_layers, h): factors of the heads of the
                                 * encoder, then of self and cross attention of each decoder
                                 * layer; NULL: 1 */
    eg_tensor **source_weights; /* out: one (b h i j) per layer of the encoder, … */
    eg_tensor **weights;        /* … of the decoder's self attention … */
    eg_tensor **memory_weights; /* … and of its cross attention */
    /* called with the hidden states between the layers, as eg_transformer_run's .layer_fn: those of
     * the encoder (b j m), before its norm, … */
    eg_tensor *(*source_layer_fn)(void *user, int64_t layer, eg_tensor *x);
    eg_tensor *(*layer_fn)(void *user, int64_t layer, eg_tensor *x); /* … of the decoder (b i m) */
    void *user;                                                      /* what both are called with */
} eg_seq2seq_run_args;
typedef struct eg_seq2seq_decode_args {
    size_t size;
    const eg_seq2seq *net;
    eg_tensor *target;                                       /* (b i) tokens */
    eg_tensor *memory;                                       /* (b j m) */
    const char *where, *score, *memory_where, *memory_score; /* as those of a run */
    eg_given with[8];
    eg_masked memory_keep, keep;
    eg_tensor *memory_lengths, *lengths; /* as those of a run; refused with .cache */
    int64_t packed_memory_length, packed_length;
    eg_cache *cache; /* NULL: none; else target holds the next tokens only, and the memory is
                      * projected at the first step only */
    eg_tensor *gain; /* as that of a run; the encoder's rows are not read */
    eg_tensor **weights, **memory_weights;
    eg_tensor *(*layer_fn)(void *user, int64_t layer, eg_tensor *x); /* as that of a run */
    void *user;                                                      /* what it is called with */
} eg_seq2seq_decode_args;
/* Parameters: "source.E" "target.E" ("tokens.E" if shared) "source_positions.P" "positions.P"
 * "encoder.0.…" "decoder.0.…" "source_norm.…" "norm.…" "logits.…" */
EG_API eg_seq2seq *eg_seq2seq_new_with(const eg_seq2seq_args *);
/* = decode(target, encode(source)). Refused: tokens out of range, sequences beyond .length and
 * .source_length, what eg_mha_run refuses of masks, scores and gain, a result of layer_fn or
 * source_layer_fn of another shape or dtype than x */
EG_API eg_tensor *eg_seq2seq_run_with(const eg_seq2seq_run_args *);
/* source → memory (b j m). It reads the options .net, .source and those of the source, .with, .gain
 * and .user, and ignores the others */
EG_API eg_tensor *eg_seq2seq_encode_with(const eg_seq2seq_run_args *);
/* target, memory → logits (b i v) */
EG_API eg_tensor *eg_seq2seq_decode_with(const eg_seq2seq_decode_args *);

#ifndef __cplusplus
#define eg_block_new(...)       eg_block_new_with(EG_ARGS_(eg_block_args, __VA_ARGS__))
#define eg_block_run(...)       eg_block_run_with(EG_ARGS_(eg_block_run_args, __VA_ARGS__))
#define eg_transformer_new(...) eg_transformer_new_with(EG_ARGS_(eg_transformer_args, __VA_ARGS__))
#define eg_transformer_run(...) \
    eg_transformer_run_with(EG_ARGS_(eg_transformer_run_args, __VA_ARGS__))
#define eg_seq2seq_new(...)    eg_seq2seq_new_with(EG_ARGS_(eg_seq2seq_args, __VA_ARGS__))
#define eg_seq2seq_run(...)    eg_seq2seq_run_with(EG_ARGS_(eg_seq2seq_run_args, __VA_ARGS__))
#define eg_seq2seq_encode(...) eg_seq2seq_encode_with(EG_ARGS_(eg_seq2seq_run_args, __VA_ARGS__))
#define eg_seq2seq_decode(...) eg_seq2seq_decode_with(EG_ARGS_(eg_seq2seq_decode_args, __VA_ARGS__))
#endif

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_MODEL_
#include <eingrad/cxx.h>
#endif
#endif
