/* eingrad/nn.h: named parameters and the smaller modules, written with public headers alone.
 * Attention is in mha.h, models in model.h.
 *
 * A module is a struct of tensors that lives as long as its parameters. X_new(p, "name", .options…)
 * adds parameters "name.W" … to p; X_run(m, x, .options…) applies the module m to x. A failed X_new
 * returns NULL and does not change the list, and X_run of NULL returns poison, so one check of
 * eg_error() is enough. Letters: b batch, i query, j key, l position, m model width, h head, d key
 * width, e value width, f inner width, v vocabulary. Widths are checked where a module runs; the
 * message names the module, the letter and both sizes. In the struct of a module sizes have their
 * defaults filled in; other numbers may be as they were given, 0 and EG_OFF included. int results
 * are 0, or −1 after recording the failure, unless a comment says otherwise. An option that is 0 or
 * left out has the default that its comment gives after the colon; EG_OFF sets it to 0. Every X_new
 * refuses: no list of parameters, a name that is taken, a needed size below 1, a probability
 * outside [0, 1], an eps below 0. */
#ifndef EINGRAD_NN_H
#define EINGRAD_NN_H
#include <eingrad/copies.h>
#include <eingrad/io.h>
#include <eingrad/ops.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- parameters: a list of named tensors
 * It lives in the scope that is open when it is made. */
typedef struct eg_params eg_params;
typedef struct eg_named {
    const char *name; /* "encoder.0.self.W_q" */
    const char *axes; /* a letter or name for each axis: "m h d" */
    eg_tensor *x;
} eg_named;
typedef struct eg_params_args {
    size_t size;
    eg_ctx *cx;
    /* f32 or f64: the context's. f16 or bf16: to compute with weights of half the memory; they have
     * no gradients. Parameters of one axis and constants then have the context's dtype, as results
     * have */
    eg_dtype dtype;
    const eg_safetensors *expected; /* a file that must have a tensor of each parameter's name and
                                     * sizes: any other parameter is refused before it takes
                                     * memory.
                                     * It must stay open until eg_params_read has read it */
    const char *path;               /* of that file, for messages */
    bool zero_init;                 /* no random initial values, 0 instead: saves time where the
                                     * values are read from a file next */
    int64_t copies;        /* S ≥ 1: every parameter has S copies (copies.h), and so has every
                            * result computed from it: S models in one run, each with the same bits
                            * as alone; 0: none */
    const uint64_t *seeds; /* S seeds, for initial values and dropout of each copy; NULL: the
                            * context's seed s, s + 1, … */
    /* another list, of any context, that lives at least as long: parameters share the memory of
     * those of the same names there, and cannot be written to. Models in several contexts, one for
     * each thread, can thus compute with one set of weights. NULL: none */
    const eg_params *shared;
    /* tensors that are used as the parameters of these names instead of new ones, as by
     * functional_call of PyTorch; they may be results of operations. They end at a NULL name; they
     * are not copied, and have to live as long as the list; those without a name get that of the
     * parameter (eg_name). NULL: none */
    const eg_named *values;
} eg_params_args;
/* A new list without parameters; NULL after an error. */
EG_API eg_params *eg_params_open_with(const eg_params_args *);
/* Frees the list, and all modules and optimisers made on it, before its scope ends; NULL is
 * fine. */
EG_API void eg_params_close(eg_params *);
/* The same list, with "name." in front of the names given to it; the list itself if name is NULL or
 * empty. Optimisers, eg_params_copy and eg_params_load_as, _read_as and _save_as use the parameters
 * below that name alone; eg_params_count, _size, _at, _unused, _save, _load and _read use the whole
 * list. */
EG_API eg_params *eg_params_under(eg_params *, const char *name);
/* The prefix "name." of a list of eg_params_under; "" for other lists and for NULL. */
EG_API const char *eg_params_prefix(const eg_params *);
EG_API eg_ctx *eg_params_context(const eg_params *);         /* the context of the list */
EG_API eg_dtype eg_params_type(const eg_params *);           /* .dtype: the dtype of matrices */
EG_API const eg_copies *eg_params_copies(const eg_params *); /* the list's copies, or NULL */
/* The list of copy k: tensors of the same names in the same memory, without copies, which can be
 * saved, loaded, copied and read. It has the parameters that the list has at the time of the last
 * call for k, and lives as long as the list. NULL after an error. */
EG_API eg_params *eg_params_of_copy(eg_params *, int64_t k);
EG_API eg_owner *eg_params_owner(eg_params *); /* the owner of the list's tensors and modules */
/* Zeroed memory for a module's struct, which lives as long as the list; NULL after an error. */
EG_API void *eg_params_alloc(eg_params *, size_t bytes);
/* Adds a tensor, with one letter or name in axes for each size. Its first values are zeros if the
 * rank is 0 or 1, else Xavier's (eg_init_xavier), where fan_in is the first size and fan_out the
 * product of the others; eg_init_… sets other values. Refused: a name that is taken, a letter twice
 * in axes, a size below 1. */
EG_API eg_tensor *eg_param_n(eg_params *, const char *name, const char *axes, int rank,
                             const int64_t *dims);
/* A tensor of zeros that lives as long as the list but is not in it: it is neither trained nor
 * saved. eg_constant(p, 2, 3) has the sizes 2 and 3. */
EG_API eg_tensor *eg_constant_n(eg_params *, int rank, const int64_t *dims);
EG_API int eg_params_count(const eg_params *); /* the number of tensors */
/* The number of elements of all tensors, in one copy */
EG_API int64_t eg_params_size(const eg_params *);
/* The k-th in the order of making; NULL past the end. */
EG_API const eg_named *eg_params_at(const eg_params *, int k);
/* The parameter of that name; NULL if there is none (no error). */
EG_API eg_tensor *eg_params_find(const eg_params *, const char *name);
/* Finds the parameters on which no y depends. Returns their number, or −1 after an error; out
 * (NULL, or an array as long as the list) receives them. */
EG_API int eg_params_unused(const eg_params *, int count, eg_tensor *const *ys,
                            const eg_named **out);
/* Copies values by name, cast to the dtype of `to`; the lists may belong to two contexts. For a
 * list made by eg_params_under, it takes the parameters below its name, by the rest of their names:
 * eg_params_copy(eg_params_under(p, "target"), eg_params_under(p, "net")). Refused: a name of `to`
 * that `from` lacks; a `to` with nothing below its name. After an error, lack of memory included,
 * no value has changed; the same holds for the functions below. */
EG_API int eg_params_copy(eg_params *to, const eg_params *from);
/* All parameters as one safetensors file. */
EG_API int eg_params_save(const eg_params *, const char *path);
/* Reads values by name, cast. Refused, before a value changes: a parameter that the file lacks or
 * has in other sizes; a tensor of the file that is no parameter, unless its name begins with
 * "opt.". */
EG_API int eg_params_load(eg_params *, const char *path);
/* As eg_params_load, from an open file; path is for messages. */
EG_API int eg_params_read(eg_params *, const eg_safetensors *, const char *path);

/* -- weight files of other libraries
 * A row maps a parameter (`ours`) to a tensor of a file (`theirs`), whose axes are written in the
 * letters of the parameter:
 * { "W_q", "in_proj_weight", "(c h d) m", 0, 3 }     part 0 of 3 (letter c) of a tensor (3 h d, m)
 *                                                    is W_q (m h d)
 * { "W_q", "W_q.#.weight", "d m" }                   one tensor for each index of the letter that
 *                                                    is left out, h: W_q.0.weight …
 * { "*.norm.gain", "layers.*.norm.weight", "m" }     * is a number, the same in both names
 * { "", "h.*.attn.bias", "" }                        a tensor that is not loaded ('*', '#': any
 *                                                    number)
 * { "*.scale", "", "" }                              a parameter without a tensor: it keeps its
 *                                                    value, and is not written
 * { "norm.gain", "model.?norm.weight", "m" }         the part before '?' is optional in a file that
 *                                                    is read, and is written
 * { "E", "lm_head.weight", "v m", 0, EG_ALIAS_COPY } if a file has this tensor, and no parameter is
 *                                                    read from it, it must be equal to that of E;
 *                                                    it is not written
 * { "norm.gain", "norm.weight", "m", 0, EG_ALIAS_LESS_ONE }  the file has gain − 1
 * If the letter of the parts is the first of a group, "(c h d) m", the parts are consecutive, each
 * as wide as its parameter: query, key and value of 8, 2 and 2 heads are one matrix ((8 + 2 + 2) d,
 * m). Elsewhere, "(h c d) m", all parts have the same size. If there are several rows for one
 * parameter, reading uses the first whose tensor is in the file, and writing uses the first that
 * has it alone or with parts of the same size, else the first row. */
typedef struct eg_alias {
    const char *ours; /* NULL ends a list */
    const char *theirs;
    const char *axes;
    int part, parts; /* part 0, 1, … of at most 8; 0, 0: the whole tensor; 0, EG_ALIAS_COPY; 0,
                      * EG_ALIAS_LESS_ONE */
} eg_alias;
enum { EG_ALIAS_COPY = -1, EG_ALIAS_LESS_ONE = -2 };
/* The table of a style; NULL if there is none of that name (no error). Styles: "torch"
 * (nn.MultiheadAttention, TransformerEncoderLayer, TransformerEncoder), "torch.decoder"
 * (TransformerDecoderLayer, TransformerDecoder), "torch.transformer" (Transformer: eg_seq2seq
 * without embeddings and logits), and linear layers called "W_q" (W_q W_k W_v W_o), "q_proj"
 * (q_proj … o_proj), "labml" (query.linear … output), "gpt2" (c_attn, c_proj), "heads" (W_q.0 …).
 * For whole models, that is, an eg_transformer as eingrad/pretrained.h makes it, the style is its
 * model_type: "gpt2", "gptj", "gpt_neo", "gpt_neox", "opt", "llama" (also mistral, qwen2, qwen3,
 * smollm3, stablelm), "starcoder2", "olmo2", "phi", "phi3", "gemma", "gemma2" (also gemma3_text),
 * "bert", "roberta" (also xlm-roberta, camembert), "distilbert". */
EG_API const eg_alias *eg_aliases(const char *style);
/* Reads every parameter of the list by a table of names; for a list made by eg_params_under, the
 * parameters below its name, by the rest of their names. `under` ("" or "encoder.") is the prefix
 * of each name in the file, and every tensor with this prefix must be used. All names and sizes are
 * compared before a value changes. */
EG_API int eg_params_load_as(eg_params *, const char *path, const char *under, const eg_alias *);
/* As eg_params_load_as, from an open file; path is for messages. */
EG_API int eg_params_read_as(eg_params *, const eg_safetensors *, const char *path,
                             const char *under, const eg_alias *);
/* Writes the parameters that eg_params_load_as reads, under the names and in the layouts of the
 * table. */
EG_API int eg_params_save_as(const eg_params *, const char *path, const char *under,
                             const eg_alias *);

/* -- initial values: in place, from the context's random numbers; each returns w -------------- */
/* Uniform in ±√(6/(fan_in + fan_out)). fan_in and fan_out are those of the logical matrix, so that
 * the distribution does not depend on the form in which heads are stored: W_q "m h d" is m × hd.
 * Glorot, Bengio 2010 */
EG_API eg_tensor *eg_init_xavier(eg_tensor *w, int64_t fan_in, int64_t fan_out);
EG_API eg_tensor *eg_init_normal(eg_tensor *w, double deviation); /* normal draws of mean 0 */
EG_API eg_tensor *eg_init_constant(eg_tensor *w, double value);   /* every number = value */

/* -- linear: y = x W + b,  W (i o), b (o);  x (… i) → (… o) ----------------------------------- */
typedef struct eg_linear {
    const char *name;
    int64_t in, out;
    eg_tensor *weight;
    eg_tensor *bias; /* NULL: none */
} eg_linear;
typedef struct eg_linear_args {
    size_t size;
    eg_params *params;
    const char *name;
    int64_t in, out; /* needed */
    bool no_bias;
    double init;               /* standard deviation of a normal draw; 0: Xavier */
    const char *weight, *bias; /* names: "W", "b" */
} eg_linear_args;
/* Adds "W" (i o) and, unless .no_bias, "b" (o) */
EG_API eg_linear *eg_linear_new_with(const eg_linear_args *);
/* y = x W + b, of any batch axes in front */
EG_API eg_tensor *eg_linear_run(const eg_linear *, eg_tensor *x);

/* -- norm over the last axis: y = (x − mean)/√(var + eps) gain + bias
 * .rms                        y = x/√(mean x² + eps) gain */
typedef struct eg_norm {
    const char *name;
    int64_t d_model;
    double eps; /* 0: 1e-5 */
    bool rms;
    eg_tensor *gain, *bias; /* bias NULL: none */
} eg_norm;
typedef struct eg_norm_new_args {
    size_t size;
    eg_params *params;
    const char *name;
    int64_t d_model; /* needed */
    bool rms;        /* without the mean, and without a bias */
    bool no_bias;
    double eps; /* ≥ 0: 1e-5; EG_OFF: 0 */
} eg_norm_new_args;
/* "gain" (m) of 1, "bias" (m) of 0 (not for rms) */
EG_API eg_norm *eg_norm_new_with(const eg_norm_new_args *);
/* The norm of x over its last axis, times gain, plus bias */
EG_API eg_tensor *eg_norm_run(const eg_norm *, eg_tensor *x);

/* -- embedding: y[b,l,m] = scale E[index[b,l], m],  E (v m) ----------------------------------- */
typedef struct eg_embedding {
    const char *name;
    int64_t count, d_model;
    double scale; /* 0: 1 */
    eg_tensor *table;
} eg_embedding;
typedef struct eg_embedding_args {
    size_t size;
    eg_params *params;
    const char *name;
    int64_t count, d_model; /* needed */
    double deviation;       /* of the normal draw: 0.5; with 0.02 the tasks recall and addition
                             * learn nothing in 1000 steps */
    double scale;           /* 1 */
} eg_embedding_args;
EG_API eg_embedding *eg_embedding_new_with(const eg_embedding_args *); /* adds "E" */
/* index: any shape, i32 or i64 */
EG_API eg_tensor *eg_embedding_run(const eg_embedding *, eg_tensor *index);

/* -- positions: y[b,l,m] = x[b,l,m] + P[l + first + offset, m]
 * .sinusoid     P[l,2k] = sin(l/10000^(2k/m)), P[l,2k+1] = cos(l/10000^(2k/m)), no parameter.
 *               Vaswani et al. 2017, §3.5 */
typedef struct eg_positions {
    const char *name;
    int64_t length, d_model, first;
    eg_tensor *table;
} eg_positions;
typedef struct eg_positions_args {
    size_t size;
    eg_params *params;
    const char *name;
    int64_t length;  /* of the longest sequence; needed */
    int64_t d_model; /* needed */
    bool sinusoid;
    int64_t first; /* ≥ 0: the number of rows of the learned table before that of position 0: 0.
                    * RoBERTa and OPT have 2 */
    double deviation; /* of the learned table "P" (l m): 0.5; refused with .sinusoid */
} eg_positions_args;
typedef struct eg_positions_run_args {
    size_t size;
    const eg_positions *positions;
    eg_tensor *x;   /* (b l m) */
    int64_t offset; /* the position of the first: 0 */
    /* (l) integers: the position of each element of the sequence, refused together with an offset;
     * NULL: offset, offset + 1 … */
    eg_tensor *position_ids;
} eg_positions_run_args;
/* Adds "P" (first + length, m), unless .sinusoid. Refused: .first with .sinusoid */
EG_API eg_positions *eg_positions_new_with(const eg_positions_args *);
/* x plus the vectors of its positions. Refused: a position that is not in the table */
EG_API eg_tensor *eg_positions_run_with(const eg_positions_run_args *);

/* -- feed-forward: y = dropout(act(x W₁ + b₁)) W₂ + b₂;  x (… m), W₁ (m f), W₂ (f m)
 * .gated           y = dropout(act(x W_g + b_g) ⊙ (x W₁ + b₁)) W₂ + b₂
 * act is .activation; gated, eg_silu makes it SwiGLU, eg_gelu GEGLU, eg_relu ReGLU, eg_sigmoid GLU.
 * Shazeer 2020 */
typedef eg_tensor *eg_activation(eg_tensor *);
typedef struct eg_ffn {
    const char *name;
    eg_linear *gate, *up, *down; /* gate NULL: not gated */
    eg_activation *activation;
    double dropout;
} eg_ffn;
typedef struct eg_ffn_args {
    size_t size;
    eg_params *params;
    const char *name;
    int64_t d_model; /* needed */
    int64_t width;   /* f, of gate and up each: 4 d_model. With a gate and 8/3 d_model there are as
                      * many weights as with 4 d_model and none */
    eg_activation *activation; /* act: eg_gelu */
    bool gated;                /* with a gate, as above */
    double dropout;            /* probability, in [0, 1]: 0 */
    bool no_bias;
    double init; /* standard deviation of a normal draw; 0: Xavier */
} eg_ffn_args;
/* "up.W" (i o), "up.b", "down.W", "down.b"; gated, "gate.W" and "gate.b" before them */
EG_API eg_ffn *eg_ffn_new_with(const eg_ffn_args *);
/* y of the same shape as x */
EG_API eg_tensor *eg_ffn_run(const eg_ffn *, eg_tensor *x);

#ifndef __cplusplus
#define eg_params_open(...)          eg_params_open_with(EG_ARGS_(eg_params_args, __VA_ARGS__))
#define eg_param(p, name, axes, ...) eg_param_n((p), (name), (axes), EG_DIMS_(__VA_ARGS__))
#define eg_constant(p, ...)          eg_constant_n((p), EG_DIMS_(__VA_ARGS__))
#define eg_linear_new(...)           eg_linear_new_with(EG_ARGS_(eg_linear_args, __VA_ARGS__))
#define eg_norm_new(...)             eg_norm_new_with(EG_ARGS_(eg_norm_new_args, __VA_ARGS__))
#define eg_embedding_new(...)        eg_embedding_new_with(EG_ARGS_(eg_embedding_args, __VA_ARGS__))
#define eg_positions_new(...)        eg_positions_new_with(EG_ARGS_(eg_positions_args, __VA_ARGS__))
/* clang-format off */
#define eg_positions_run(...) \
    eg_positions_run_with(EG_ARGS_(eg_positions_run_args, __VA_ARGS__))
/* clang-format on */
#define eg_ffn_new(...) eg_ffn_new_with(EG_ARGS_(eg_ffn_args, __VA_ARGS__))
#endif

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_NN_
#include <eingrad/cxx.h>
#endif
#endif
