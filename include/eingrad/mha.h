/* eingrad/mha.h: multi-head attention as a module, its cache, rotary positions.
 *
 * Letters: i query, j key, m width of an operand, h head, d key width, e value width; every other
 * letter is a batch letter. For lifetimes, errors and names see nn.h. */
#ifndef EINGRAD_MHA_H
#define EINGRAD_MHA_H
#include <eingrad/linear_attention.h>
#include <eingrad/nn.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- cache: the keys and values of the positions so far, for decoding step by step
 * It has a slot for every attention of a model, filled with keys and values as the model runs. Each
 * tensor is made once, with room for `capacity` positions. A cache has no gradients, so a run with
 * one is refused while the context records (see eg_nograd). Also refused: more positions than
 * `capacity`; keys with copies (copies.h). A run that fails adds no positions, so it can be
 * repeated. */
typedef struct eg_cache eg_cache;
typedef struct eg_cache_args {
    size_t size;
    eg_owner *owner;  /* lives at least as long */
    int64_t capacity; /* the largest number of positions, at least 1 */
    /* of keys and values. f16 or bf16: they are rounded, take half the memory, and are read as
     * eg_attention reads them; attention by .linear or .core gets them in the query's dtype.
     * EG_DEFAULT: the dtype in which they are computed. States have their own dtype */
    eg_dtype dtype;
} eg_cache_args;
/* eg_cache_new(owner, capacity, .dtype = EG_BF16). Lives as long as the owner; NULL after an error.
 * Refused: a capacity below 1, a dtype that is not one of floats. */
EG_API eg_cache *eg_cache_new_with(const eg_cache_args *);
EG_API int64_t eg_cache_length(const eg_cache *);   /* positions in slot 0 */
EG_API int64_t eg_cache_capacity(const eg_cache *); /* the largest number of positions */
/* The position of the next token in slot 0: eg_cache_length plus the number of positions that
 * eg_cache_keep dropped. */
EG_API int64_t eg_cache_position(const eg_cache *);
/* Removes the positions from `length` on, and the same tokens from the other slots; a length of 0
 * also removes the projected keys and values of a memory. Refused: a length below 0, or above
 * eg_cache_length; for a cache with states, a length other than 0 that is below the number of their
 * positions. */
EG_API int eg_cache_truncate(eg_cache *, int64_t length);
/* Selects the beams with which a search continues: for every b below the size of index, batch b of
 * the cache becomes the old batch index[b]. The cache then has as many batches as index has
 * elements, fewer or more than before. Refused: an index that is empty or has several axes, numbers
 * that are not a batch, a cache of a layout without a batch. After an error no batch has changed.
 * While it runs it takes as much memory again as the cache has in use. */
EG_API int eg_cache_select(eg_cache *, eg_tensor *index);
/* Keeps these positions of a slot, in this order, and drops the others, as compression of a cache
 * does (StreamingLLM, Xiao et al. 2023; H2O, Zhang et al. 2023; SnapKV, Li et al. 2024). positions:
 * integers from 0 to the number of positions in the slot less 1, no more of them than the slot
 * holds; axes n, the same for all batches; batch n; or batch heads n, for keys with one axis of
 * heads. slot < 0: every slot that holds positions, of which there may be one for each attention of
 * a model. Rotary and learned positions of later tokens count what was dropped (eg_cache_position);
 * masks and scores do not: their j numbers the keys that are there, their i begins after the last
 * of these. Returns 0, or −1 after an error, when no slot has changed. Refused: numbers that are
 * not positions; a slot that holds none, a memory or a state; batches or heads of another number
 * than those of the slot. */
EG_API int eg_cache_keep(eg_cache *, int slot, eg_tensor *positions);
/* For an attention that a program writes itself (eg_attention): appends keys and values to a slot,
 * in the cache's dtype, and sets *k and *v to views of all keys and values of the slot, valid until
 * the next call that changes the cache. `axis` is that of the positions, in both, −1 the last; the
 * first axis is the batch, unless it is that of the positions. Before the first query there are
 * eg_dim(*k, axis) positions less the new ones: .offset of eg_attention. Returns 0, or −1 after an
 * error, when nothing was appended and *k and *v are as they were; after an error in another slot,
 * eg_cache_truncate removes the positions of this one. Refused: keys and values of different
 * numbers of positions; other sizes than those of the slot; a slot that holds a memory or a state;
 * while the context records, and in a captured step. */
EG_API int eg_cache_append(eg_cache *, int slot, int axis, eg_tensor **k, eg_tensor **v);
/* The state of a recurrence (GRU, state space model, .next of eg_linear_attention) takes a slot in
 * place of keys and values. eg_cache_set_state copies a tensor, whose first axis is the batch, into
 * the slot as the state after the first `length` positions, from 1 to the capacity;
 * eg_cache_select selects its batches too. Returns 0, or −1 after an error. Refused: a slot that
 * holds keys; a dtype or shape other than that of the state which it replaces, unless the cache was
 * cut to length 0; while the context records, and in a captured step. */
EG_API int eg_cache_set_state(eg_cache *, int slot, eg_tensor *state, int64_t length);
/* The state of a slot, valid until the next call that changes the cache; NULL, without an error:
 * the slot has none yet. */
EG_API eg_tensor *eg_cache_state(eg_cache *, int slot);

/* -- rotary positions: (x₁, x₂) → (x₁ cos θ − x₂ sin θ, x₁ sin θ + x₂ cos θ),
 *                      θ = (i + offset)/factor · base^(−2k/d), k the pair's number
 *
 * Pairs are k and k + d/2 (GPT-NeoX, LLaMA), or with .interleaved 2k and 2k + 1 (RoFormer, GPT-J);
 * d is .width, and elements beyond it are not changed. x has a gradient, and so have positions and
 * frequencies that are floats. Su et al. 2021, eq. 34. Refused: an x of integers; an odd width, or
 * one above that of x; letters of spec or .positions that x does not have; .positions with the
 * letter of the width; other than d/2 frequencies; a base or factor that is not positive and
 * finite. */
typedef struct eg_rotary_args {
    size_t size;
    const char *spec; /* "bihd, id": the letters of x, then those of position and width */
    eg_tensor *x;
    /* the angles */
    double base;            /* > 0: 10000 */
    eg_tensor *frequencies; /* (d/2): replace base^(−2k/d); f32 or f64, may be learned */
    int64_t offset;         /* is added to the positions: 0 */
    eg_masked positions;    /* {"bi", t}: positions instead of 0, 1, 2 …; integers or floats */
    double factor; /* > 0; positions are divided by it, so that sequences can be longer than in
                    * training: 1. Chen et al. 2023, "position interpolation" */
    /* the pairs */
    int64_t width;    /* even: how many elements of x, from the first, are rotated: all of them.
                       * GPT-NeoX rotates a quarter */
    bool interleaved; /* pairs are neighbours */
} eg_rotary_args;
EG_API eg_tensor *eg_rotary_with(const eg_rotary_args *);

/* -- multi-head attention: y = softmax(scale (q W_q)(k W_k)ᵀ + bias)(v W_v) W_o
 * Each product has its bias, b_q … b_o. q (b i qdim), k (b j kdim), v (b j vdim) → y (b i d_out):
 * "bim,mhd->bihd"  "bjm,mhd->bjhd"  "bjm,mhe->bjhe"  eg_attention("bihd,bjhd,bjhe->bihe")
 * "bihe,hem->bim".  Vaswani et al. 2017, §3.2.2
 *
 * The form says in which tensors the weights are stored; results are bitwise equal in all three:
 *
 *   EG_SEPARATE  W_q (m h d), W_k (m h d), W_v (m h e), W_o (h e m)
 *                b_q (h d), b_k (h d), b_v (h e), b_o (m)
 *   EG_PACKED    W_qkv (m c h d), b_qkv (c h d) with c = q, k, v; W_o, b_o.
 *                Needs qdim = kdim = vdim and d_k = d_v
 *   EG_PER_HEAD  W_q.0 (m d) … W_o.0 (e m) …, b_q.0 (d) …; b_o.
 *                Heads may differ in width
 *
 * With kv_heads < heads, which needs EG_SEPARATE, heads/kv_heads neighbouring heads share a key and
 * a value; h of W_k, W_v, b_k and b_v has the size kv_heads. Shazeer 2019; Ainslie et al. 2023 */
typedef enum eg_mha_form { EG_SEPARATE, EG_PACKED, EG_PER_HEAD } eg_mha_form;
/* How query and key are normalised over d, each head alone, before rotary positions. */
typedef enum eg_qk_norm {
    EG_QK_AS_IS,
    EG_QK_RMS,    /* RMS norm; "norm_q.gain" and "norm_k.gain" (d). Qwen3, Gemma 3 */
    EG_QK_LAYER,  /* layer norm; "norm_q.bias" and "norm_k.bias" too, unless .no_bias is set.
                   * Dehghani et al. 2023 */
    EG_QK_UNIT,   /* divided by their lengths: scores are cosines. Henry et al. 2020 */
    EG_QK_RMS_ALL /* RMS norm over all heads together; gains (h d) in one axis. OLMo 2 */
} eg_qk_norm;
/* A function that takes the place of eg_attention_with. */
typedef eg_tensor *eg_core(const struct eg_attention_args *);
typedef struct eg_mha {
    const char *name;
    const char *batch; /* the batch letters of the layout */
    eg_mha_form form;
    int64_t d_model, heads, kv_heads, d_k, d_v, qdim, kdim, vdim, d_out;
    const int64_t *d_k_each, *d_v_each; /* NULL: all heads alike */
    double dropout, scale;              /* scale 0: 1/√d_k */
    eg_qk_norm qk_norm;
    double qk_eps;            /* as given; 0: 1e-5, of EG_QK_UNIT 0 */
    eg_norm *norm_q, *norm_k; /* NULL: none */
    double rotary, rotary_factor;
    int64_t rotary_width;          /* 0: d_k */
    eg_tensor *rotary_frequencies; /* NULL: from the base */
    bool has_rotary, interleaved;  /* has_rotary: there are rotary positions */
    bool zero_attn, no_softmax;
    const char *where, *score;
    eg_given with[8];
    eg_core *core;
    const eg_linear_attention_args *linear; /* NULL: softmax */
    eg_tensor *alibi;                       /* (h) slopes; NULL: none */
    eg_tensor *(*score_fn)(void *user, eg_tensor *scores);
    void *user;
    eg_tensor *W_q, *W_k, *W_v, *W_o;   /* NULL where the form has other tensors */
    eg_tensor *b_q, *b_k, *b_v, *b_o;   /* NULL: none */
    eg_tensor *W_qkv, *b_qkv;           /* packed */
    eg_tensor *bias_k, *bias_v;         /* (h d), (h e) of the key heads; NULL: none */
    eg_tensor *sink, *temperature;      /* (h) each; NULL: none */
    eg_tensor **W_each[4], **b_each[3]; /* per head: q, k, v, o */
    const struct eg__mha_specs *specs;
} eg_mha;
typedef struct eg_mha_args {
    size_t size;
    eg_params *params;
    const char *name;
    /* sizes */
    int64_t d_model;          /* needed only where a width below is left out */
    int64_t heads;            /* needed */
    int64_t kv_heads;         /* heads of keys and values, a divisor of heads: heads; 1 is
                               * multi-query attention */
    int64_t d_k, d_v;         /* widths of a head's key and value: d_model / heads */
    int64_t qdim, kdim, vdim; /* widths of query, key and value: d_model */
    int64_t d_out;            /* width of the result: d_model */
    const int64_t *d_k_each;  /* per head: `heads` widths; NULL: d_k each */
    const int64_t *d_v_each;  /* only with d_k_each; NULL: d_k_each */
    /* the attention */
    /* axes of the query: "i b m", "i (b c=2) m", "i m" …; key and value have the same with j in
     * place of i. NULL: "b i m" */
    const char *layout;
    const char *where;  /* a mask for every run, combined with the run's .where: "i - 64 < j <= i"
                         * is local, "i/64 == j/64 | j < 64" block-sparse; NULL: none */
    const char *score;  /* as eg_attention's, over b h i j: "30 * tanh(score / 30)"; NULL: none */
    eg_given with[8];   /* what where and score read in every run, such as parameters; ends at a
                         * NULL name */
    bool no_softmax;    /* the scores are the weights, 0 where they are masked, as eg_attention has
                         * it: .score = "sigmoid(score + u[h])" */
    double scale;       /* of q·k: 1/√d_k; with EG_QK_UNIT 1 */
    eg_qk_norm qk_norm; /* EG_QK_AS_IS */
    double qk_eps;      /* of that norm, ≥ 0: 1e-5; of EG_QK_UNIT 0 */
    double temperature; /* first value, > 0, of a parameter "temperature" (h), by which the scores
                         * of each head are multiplied (with .linear: the queries, before φ); 0: no
                         * such parameter */
    double dropout;     /* probability of a weight to be dropped, after the softmax: 0 */
    /* rotary positions of query and key, as eg_rotary has them */
    double rotary; /* base; 0: none, unless there are frequencies */
    /* (rotary_width/2), instead of a base: a parameter of the same list, which is then trained; of
     * any other tensor the module keeps a copy */
    eg_tensor *rotary_frequencies;
    double rotary_factor; /* positions are divided by it: 1 */
    int64_t rotary_width; /* how many elements of a head are rotated: d_k */
    bool interleaved;     /* pairs are neighbours; refused without rotary positions */
    /* extra keys, as in nn.MultiheadAttention of PyTorch: masks, biases and positions do not apply
     * to them. The weights of a run are those of the other keys, which then sum to less than 1 */
    bool bias_kv;   /* a learned key "bias_k" (h d) with its value "bias_v" (h e) */
    bool zero_attn; /* a key with score 0 and value 0 */
    bool sink;      /* a key with the learned score "sink" (h), initially 0, and value 0. Xiao et
                     * al. 2024 */
    bool alibi;     /* adds − m_h |i − j| to the scores, m of eg_alibi_slopes. Press et
                     * al. 2022 */
    eg_tensor *(*score_fn)(void *user, eg_tensor *scores); /* (b h i j) → the scores to use, before
                                                            * the masks; NULL: none */
    void *user;                                            /* what score_fn is called with */
    eg_core *core; /* the attention function: eg_attention_with. It gets all options, including the
                    * sink, and with bias_kv has to set .lse */
    /* attention without a softmax, such as &(eg_linear_attention_args){ .phi = "exp(x)" }; phi,
     * no_norm, decay, beta and chunk of it are read; NULL: softmax */
    const eg_linear_attention_args *linear;
    /* parameters */
    eg_mha_form form; /* EG_SEPARATE */
    bool no_bias;     /* none of the four */
    bool no_q_bias, no_k_bias, no_v_bias, no_o_bias;
    double init; /* standard deviation of a normal draw; 0: Xavier of the logical
                  * matrices, m × hd */
    const char *W_q, *W_k, *W_v, *W_o, *b_q, *b_k, *b_v, *b_o; /* other names of parameters */
    const char *W_qkv, *b_qkv; /* the same of EG_PACKED; NULL: the names of the members */
} eg_mha_args;
/* Sequences that eg_pack laid one after the other. A packed operand is (1 p m). */
typedef struct eg_packed {
    /* (b) i32 or i64, whose sum is at most p; NULL: the operand is not packed */
    eg_tensor *lengths;
    int64_t max_length; /* l ≥ each of them */
} eg_packed;
typedef struct eg_mha_run_args {
    size_t size;
    const eg_mha *mha;
    eg_tensor *query;
    eg_tensor *key;   /* the query */
    eg_tensor *value; /* the key */
    /* masks */
    const char *where;    /* over b h i j: "j <= i" */
    const char *score;    /* as eg_attention's; NULL: the module's */
    eg_given with[8];     /* what where and score read in this run, besides the module's .with */
    eg_masked keep, bias; /* {"bj", pad}, {"hij", relative} */
    eg_masked lengths;    /* as eg_attention's */
    /* sequences without padding, for modules whose layout is one batch letter, position and width,
     * "b i m": x (1 p m), eg_unsqueeze(eg_pack(x, t, p), 0), gives y (1 p m). The projections
     * compute p positions, the attention is within each sequence. Masks, scores, positions and
     * .weights are those of (b h i j) with length l; positions beyond a sequence's length are
     * masked, and their weights are undefined. Refused together with .cache, .ranks and .lengths */
    eg_packed packed;     /* of the query, of y and .add, and of the key if that is the query */
    eg_packed key_packed; /* of a key that is not the query, and of its values; none: they are
                           * (b j ·). If the key is the query, values are packed like the query */
    eg_masked alibi;      /* {"h", slopes} instead of the module's */
    double fill; /* the score, < 0, of pairs that where and keep forbid. Default (0): −∞, with which
                  * the result of a query without an allowed key is 0. Older code uses −1e9, with
                  * which all weights of such a query are equal */
    eg_masked sink; /* {"h", z} instead of the module's: e^z is added to the denominator */
    int64_t offset; /* the number of positions before the first query, at least 0, as
                     * eg_attention's: i starts there in where, score, alibi and rotary positions.
                     * The length of a cache is added. Default 0 */
    /* rotary positions, to which neither offset nor the length of a cache is added */
    eg_masked positions;     /* {"bi", t}: of the queries, and of keys that are the query; NULL:
                              * offset, offset + 1 … */
    eg_masked key_positions; /* {"bj", t}: of the new keys; NULL: .positions if the keys are the
                              * query, else 0, 1 …, after those of a cache */
    eg_masked decay, beta;   /* of a linear attention: {"bjh", t} instead of the module's */
    /* decoding */
    eg_cache *cache; /* the new keys and values are appended to the slot, and the queries attend to
                      * all of its keys; NULL: none */
    int slot;        /* of the cache: 0 */
    bool memory;     /* with a cache: the keys are the same at every step, and projected at the
                      * first one only */
    /* the attention */
    eg_tensor *gain; /* (h): a factor of each head's result; 0 switches a head off; NULL: 1. Michel
                      * et al. 2019 */
    eg_tensor *(*score_fn)(void *user, eg_tensor *scores); /* the module's */
    void *user;
    eg_form form; /* as eg_attention's */
    /* the ranks among which the sequence is divided, see below; NULL: not divided */
    eg_ranks *ranks;
    int64_t ranks_block; /* as eg_attention's: 512 */
    bool zigzag;         /* as eg_attention's */
    /* a tensor of y's shape that the output projection adds to y, such as a residual; NULL:
     * nothing */
    eg_tensor *add;
    /* further results, which do not change y */
    eg_tensor **weights; /* (b h i j) before dropout */
    eg_tensor **dropped; /* after dropout */
    eg_tensor **scores, **lse;
    int64_t *empty; /* as eg_attention's */
    /* (b h i) as eg_attention's, with which MuonClip of Kimi Team 2025 scales W_q and W_k of a
     * head. Refused with .sink, .bias_kv, .zero_attn */
    eg_tensor **max_scores;
    /* of a linear attention with .beta: the keys that read the state, as eg_linear_attention's
     * .read. (b j h d), batch letters first, with the heads of the keys, for heads of different
     * widths (b j s); one for every key, those of a cache too. Neither the norm nor rotary
     * positions are applied to them. NULL: the module's keys */
    eg_tensor *read;
} eg_mha_run_args;
/* Refused: sizes below 1; heads that do not divide d_model (where a width follows from it) or are
 * no multiple of kv_heads; what the form cannot hold (above); rotary positions, norms or further
 * scores with heads of different widths; an odd rotary_width; rotary_width or rotary_factor without
 * rotary positions; .linear with .core; .linear or .no_softmax with options of the softmax; a φ of
 * .linear that is not a formula of x. */
EG_API eg_mha *eg_mha_new_with(const eg_mha_args *);
/* Refused: operands whose axes or sizes are not those of the layout and of each other; masks with
 * letters that the scores lack; a name that is in the .with of module and run; .fill or a score_fn
 * with EG_FUSED; positions without rotary positions; without a softmax, options of the softmax;
 * .decay, .beta or .read without .linear; what eg_attention and the cache refuse. The message names
 * the module.
 *
 * With .ranks every rank calls eg_mha_run with its own positions of query, key and value, and gets
 * its positions of the result; docs/distributed.md. .where and .score of the module, rotary
 * positions and ALiBi count positions of the whole sequence. .keep, .bias, .lengths, .alibi, .gain
 * and the tensors of .with are complete on every rank; .positions, .key_positions, .add and a .sink
 * with the letter i have this rank's positions. Every rank gets complete gradients of the
 * parameters and of all complete tensors: those of L = Σ_r L_r, where L_r is the scalar that rank r
 * differentiates. Refused with .ranks: .cache, .fill, .score_fn, .weights, .dropped, .scores,
 * .max_scores, and modules with .linear, .core, .score_fn or .no_softmax. An error of one rank is
 * an error of all. */
EG_API eg_tensor *eg_mha_run_with(const eg_mha_run_args *);
/* Returns the weight "W_q" (m h d) … "b_o" of a module of any form, with its gradient. If heads
 * differ in width, h and d are one axis, all heads one after the other: (m s). NULL if there is
 * none. */
EG_API eg_tensor *eg_mha_weight(const eg_mha *, const char *which);
/* Copies the values of all parameters, from any form to any form. Refused: modules of other sizes,
 * or a parameter that one of them lacks. After an error no value has changed. */
EG_API int eg_mha_copy(eg_mha *to, const eg_mha *from);

#ifndef __cplusplus
#define eg_cache_new(...) eg_cache_new_with(EG_ARGS_(eg_cache_args, __VA_ARGS__))
#define eg_rotary(...)    eg_rotary_with(EG_ARGS_(eg_rotary_args, __VA_ARGS__))
#define eg_mha_new(...)   eg_mha_new_with(EG_ARGS_(eg_mha_args, __VA_ARGS__))
#define eg_mha_run(...)   eg_mha_run_with(EG_ARGS_(eg_mha_run_args, __VA_ARGS__))
#endif

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_MHA_
#include <eingrad/cxx.h>
#endif
#endif
