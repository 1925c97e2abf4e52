/* nn.h: functions that the files of lib/nn share. It includes public headers only: a user's module
 * can be written in the same way. */
#ifndef EG_NN_MODULE_H
#define EG_NN_MODULE_H
#include <eingrad/capture.h>
#include <eingrad/model.h>
#include <eingrad/notation.h>
#include <ctype.h>
#include <string.h>

static inline int64_t width_or(int64_t given, int64_t otherwise)
{
    return given ? given : otherwise;
}

/* Declares const type *a: a copy of `given`, with defaults for members that an older version of the
 * struct does not have, or for all if it is NULL. */
#define OPTIONS(type, a, given)                    \
    type a##_copy = { .size = sizeof a##_copy };   \
    eg_options(&a##_copy, sizeof a##_copy, given); \
    const type *a = &a##_copy

/* Returns the parameter with this full name; NULL if there is none. */
const eg_named *eg__nn_named(const eg_params *, const char *full);
/* records that the values were read, so that the list expects no file */
void eg__nn_read(eg_params *);
/* Sets whether new parameters remain 0 instead of getting random values. Returns the old
 * setting. */
bool eg__nn_zero_init(eg_params *, bool);
/* eg_init_normal and eg_init_xavier, unless values remain 0. */
eg_tensor *eg__nn_normal(const eg_params *, eg_tensor *w, double deviation);
eg_tensor *eg__nn_xavier(const eg_params *, eg_tensor *w, int64_t fan_in, int64_t fan_out);
/* True for f16 and bf16, the dtypes of weights that einsum and affine convert as they read. */
bool eg__nn_half(eg_dtype);
/* x, cast to the context's dtype if it is f16 or bf16. */
eg_tensor *eg__nn_float(eg_tensor *x);
/* eg_init_constant, except for a parameter with given values (.shared, .values). */
eg_tensor *eg__nn_constant(const eg_params *, eg_tensor *w, double value);
/* Values that are to be written to tensors: all of them, or none after an error. */
typedef struct eg__nn_writes {
    eg_owner *owner; /* holds the lists; NULL after an error */
    int count, capacity;
    eg_tensor **to, **value;
} eg__nn_writes;
/* Adds a pair to the list. The value may have another dtype; it must live until it is written. */
void eg__nn_write(eg__nn_writes *, eg_tensor *to, eg_tensor *value);
/* Writes all values without history, so that parameters remain leaves. Returns 0; −1 after an
 * error, an earlier one too: then no tensor has changed. */
int eg__nn_written(eg_ctx *, const eg__nn_writes *);
/* -- strings of letters or names, eingrad/notation.h ------------------------------------------ */
/* Returns the string of a spec; "" for NULL, which only occurs after an error. */
static inline const char *eg__nn_spec(const eg_spec *s) { return s ? s->text : ""; }
/* Returns "a,b->y", each with one term; b and y may be NULL. */
const char *eg__nn_joined(const eg_spec *a, const eg_spec *b, const eg_spec *y);
/* True if s has `terms` operands, an output if `arrow`, and only indices: no groups, no 1, no
 * ellipsis. Else records an error with the text `wanted` and a caret. */
bool eg__nn_only_indices(const eg_spec *s, int terms, bool arrow, const char *wanted);
/* True if .offset is a number of positions; else records an error, which begins with `who`. */
bool eg__nn_offset_fits(eg_ctx *, const char *who, int64_t offset);
/* True if no index occurs twice in the term. Else records an error with a caret. */
bool eg__nn_indices_differ(const eg_spec *s, int term);

/* Returns the full name under p, which is valid as long as p; NULL after an error. */
char *eg__nn_name(eg_params *, const char *name);
/* True if the list is not NULL; else records an error that begins with `who`. */
bool eg__params_there(const char *who, const eg_params *);
/* As eg__params_there, for a call that writes the parameters to a file; also false, after an error,
 * if they have copies. */
bool eg__params_single(const char *who, const eg_params *);
/* True if the path is not NULL; else records an error. */
bool eg__nn_path(const eg_params *, const char *who, const char *path);
/* Records the error that the module of a run is NULL, and returns poison. If the module's
 * constructor failed, its error is kept. */
eg_tensor *eg__nn_absent(const char *who, eg_tensor *x);
/* Records the error that an operand is NULL, and returns poison. If the operation of the operand
 * failed, its error is kept. */
eg_tensor *eg__nn_missing(const char *who, const char *name, const char *operand, eg_tensor *x);
/* Returns y. If y failed and nothing had failed before, prepends the module's name to the error:
 * 'linear "up": affine: …'. */
eg_tensor *eg__nn_error_in(const char *who, const char *name, eg_tensor *x, bool failed,
                           eg_tensor *y);
static inline bool failed(eg_tensor *x) { return eg_error(eg_context(x)) != NULL; }
/* Returns the poison tensor of a context that has an error, which is kept as the first one. */
static inline eg_tensor *eg__nn_poison(eg_ctx *cx)
{
    return eg_fail_as(cx, EG_ERROR_MISUSE, "an earlier error was lost");
}
/* True if the last axis of x has size `width`; else records an error. */
bool eg__nn_width_fits(const char *who, const char *name, char letter, eg_tensor *x, int64_t width);
/* -- constructors: their errors begin with the kind of the module and its name ----------------- */
/* Returns the list with that prefix; NULL after an error, also if the list is NULL. */
eg_params *eg__nn_under(eg_params *, const char *who, const char *name);
/* Returns the module m, whose constructor found `before` parameters in the list. After an error,
 * takes those that it made from the list, so that their names are free, and returns NULL. */
void *eg__nn_made(eg_params *, int before, void *m);
/* Returns 'mha "0.self"' for the list that eg__nn_under returned, valid as long as the list. NULL
 * after an error. */
const char *eg__nn_who(eg_params *, const char *who);
/* Records an error that begins with 'mha "0.self": '. */
void eg__nn_refuse(const eg_params *, eg_code, const char *who, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* True if dropout is in [0, 1]; else records an error. */
bool eg__nn_dropout_fits(const eg_params *, const char *who, double dropout);
/* True if size is positive; else records an error. */
bool eg__nn_positive(const eg_params *, const char *who, const char *option, int64_t size);
/* Returns text that is valid as long as p; NULL after an error. */
char *eg__nn_text(eg_params *, const char *format, ...) __attribute__((format(printf, 2, 3)));
eg_tensor *eg__nn_dropped(eg_tensor *x, double p); /* dropout, or x itself if p is 0 */
/* Returns x where the mask is true, else 0. This is not a product, since 0 NaN is NaN. */
eg_tensor *eg__nn_masked(eg_tensor *x, eg_tensor *keep);

/* -- part.c: a sequence that is divided among ranks -------------------------------------------- */
/* One rank's part of the sequence. A module with .ranks computes with copies of its parts whose
 * tensors are eg_ranks_shared, so that their gradients are the sums over all ranks. */
typedef struct eg__part {
    eg_ranks *ranks; /* NULL: the sequence is not divided, and the other members are not set */
    int64_t length, block;
    int runs;
    eg_span run[2];
} eg__part;
/* Finds the sequence of which this rank has `positions` positions. False after an error, on every
 * rank. */
bool eg__part_find(eg__part *, eg_ranks *, int64_t positions, int64_t block, bool zigzag);
/* Returns the positions (n) of this rank in the sequence, each + offset. */
eg_tensor *eg__part_positions(const eg__part *, int64_t offset);
/* eg__nn_dropped of x, which has this rank's positions along an axis. Each block of positions has a
 * separate draw, so that what is dropped depends on the length and the block size, not on the
 * ranks. */
eg_tensor *eg__part_dropped(const eg__part *, int axis, eg_tensor *x, double p);
eg_norm *eg__part_norm(eg_ranks *, const eg_norm *, eg_norm *copy);         /* NULL for NULL */
eg_linear *eg__part_linear(eg_ranks *, const eg_linear *, eg_linear *copy); /* NULL for NULL */

/* -- linear.c --------------------------------------------------------------------------------- */
/* eg_linear_run with an activation and a residual as in eg_affine; each may be NULL. */
eg_tensor *eg__nn_linear(const eg_linear *, eg_tensor *x, const char *activation, eg_tensor *add);

/* -- mha_layout.c: strings that are derived from the layout once ------------------------------- */
enum { EG_Q, EG_K, EG_V, EG_O };
struct eg__mha_specs {
    const char *who;     /* the beginning of the constructor's errors */
    const char *indices; /* the indices of the scores, "b h i j" */
    int axes;
    char letter[EG_RANK_MAX]; /* the letters of the query's axes; 0: a group */
    int position_axis;        /* the axis of i */
    int batch;                /* number of batch letters */
    bool last;                /* the query's width is its last axis */
    const char *project[3], *core, *weights, *out, *out_bias, *rotate_q, *rotate_k, *gain;
    const char *per_head; /* the query times one value for each head */
    /* the query times an extra key of each head: one score per head and query */
    const char *extra_score;
    const char *rows;        /* the indices of the scores without that of the key */
    const char *keys;        /* the batch letters and the key's letter, "bj" */
    const char *extra_value; /* weights of the extra key times its value of each head */
};
/* Composes the strings of the module; they are valid as long as the parameters. layout may be NULL.
 * False after an error. */
bool eg__mha_layout(eg_mha *, const char *layout, eg_params *);

/* -- mha_weights.c ---------------------------------------------------------------------------- */
const char *eg__mha_which(int part, bool bias); /* "W_q" … "b_o" */
/* Returns the logical weight or bias; NULL if there is none. */
eg_tensor *eg__mha_part(const eg_mha *, int part, bool bias);

/* -- mha_run.c: a call of a module. Errors are recorded without the module's name, which
 * eg_mha_run_with adds -- */
/* True if query, key and options can be used together and with this module; else records an
 * error. */
bool eg__mha_run_allowed(const eg_mha *, const eg_mha_run_args *);
/* Returns the positions of the keys. If the keys are the query, these are the query's positions
 * with the letter j. */
eg_masked eg__mha_key_positions(const eg_mha_run_args *);
/* Projects, rotates, appends to the cache, attends, and projects the result. Poison after an
 * error. */
eg_tensor *eg__mha_run_part(const eg_mha *, const eg_mha_run_args *, const eg__part *);

/* -- mha_core.c: the attention between the projections ----------------------------------------- */
/* Parses a predicate or a score over the letters of the scores; NULL if text is NULL, and after an
 * error. any_tensor: it may read tensors that are not in `with`. */
const eg_formula *eg__mha_formula(const eg_mha *, eg_ctx *, const char *who, bool score,
                                  const char *text, const eg_given *with, bool any_tensor);
/* Returns the attention of o's operands with the predicates, scores and masks of module and run. q:
 * the query before rotary positions. */
eg_tensor *eg__mha_core(const eg_mha *, const eg_mha_run_args *, const eg__part *,
                        const eg_attention_args *o, eg_tensor *q);

/* -- mha_ranks.c ------------------------------------------------------------------------------- */
/* eg__mha_run_part for this rank's positions, with tensors that are shared by all ranks. */
eg_tensor *eg__mha_run_ranks(const eg_mha *, const eg_mha_run_args *);

/* -- cache.c ---------------------------------------------------------------------------------- */
int64_t eg__cache_taken(const eg_cache *, int slot); /* number of positions in use in a slot */
/* the position of the next token in a slot */
int64_t eg__cache_position(const eg_cache *, int slot);
bool eg__cache_filled(const eg_cache *, int slot);
/* Appends k and v, whose positions are along `axis`, to the slot and replaces them by views of all
 * its positions. memory: the slot gets memory for exactly these. False after an error. */
bool eg__cache_append(eg_cache *, int slot, bool memory, int axis, eg_tensor **k, eg_tensor **v);
/* Returns y, the result of a run. If it failed, removes the positions that the run appended to the
 * slots first, first + step, … (`count` of them), whose next position was `seen` before it, so that
 * the run can be repeated. */
eg_tensor *eg__cache_roll_back(eg_cache *, eg_tensor *y, int first, int step, int64_t count,
                               int64_t seen);
#endif
