/* nn.h: what the files of lib/nn share. Public headers only: a user's module is written the
 * same way. */
#ifndef EG_NN_MODULE_H
#define EG_NN_MODULE_H
#include <eingrad/model.h>
#include <eingrad/notation.h>
#include <ctype.h>
#include <string.h>

static inline int64_t width_or(int64_t given, int64_t otherwise)
{
    return given ? given : otherwise;
}

/* Declares const type *a: a copy of `given`, with defaults where it is NULL or of an older
 * version. */
#define OPTIONS(type, a, given)                    \
    type a##_copy = { .size = sizeof a##_copy };   \
    eg_options(&a##_copy, sizeof a##_copy, given); \
    const type *a = &a##_copy

const char *eg__nn_prefix(const eg_params *); /* "" or "name." */
/* by its whole name; NULL if there is none */
const eg_named *eg__nn_named(const eg_params *, const char *full);
void eg__nn_read(eg_params *); /* the values were read: no file is expected any more */
/* Sets whether parameters stay 0 instead of being drawn. Returns what it was. */
bool eg__nn_undrawn(eg_params *, bool);
/* eg_init_normal and eg_init_xavier, unless values stay 0 */
eg_tensor *eg__nn_normal(const eg_params *, eg_tensor *w, double deviation);
eg_tensor *eg__nn_xavier(const eg_params *, eg_tensor *w, int64_t fan_in, int64_t fan_out);
/* -- strings of letters or names, eingrad/notation.h ------------------------------------------ */
/* Returns the string of a spec; of NULL "", which nobody reads, since there was an error. */
static inline const char *eg__nn_spec(const eg_spec *s) { return s ? s->text : ""; }
/* "a,b->y", of one term each; b, y NULL: without. */
const char *eg__nn_joined(const eg_spec *a, const eg_spec *b, const eg_spec *y);
/* True if s has `terms` operands, an output or none, and indices alone: no groups, no 1, no
 * ellipsis. Else records that `wanted`, with a caret. */
bool eg__nn_simple(const eg_spec *s, int terms, bool arrow, const char *wanted);

/* the full name under p, kept as long as p; NULL after an error */
char *eg__nn_name(eg_params *, const char *name);
/* True if there is a list of parameters; else records that `who` was given NULL. */
bool eg__params_there(const char *who, const eg_params *);
/* poison, after recording that a run was given no module (a failed X_new has already said why: the
 * first message stays) */
eg_tensor *eg__nn_absent(const char *who, eg_tensor *x);
/* poison, after recording that an operand is NULL (of one that failed the first message stays) */
eg_tensor *eg__nn_missing(const char *who, const char *name, const char *operand, eg_tensor *x);
/* y. If it failed and nothing had failed before, the error is told as this module's: 'linear "up":
 * affine: …' */
eg_tensor *eg__nn_told(const char *who, const char *name, eg_tensor *x, bool failed, eg_tensor *y);
static inline bool failed(eg_tensor *x) { return eg_error(eg_context(x)) != NULL; }
/* last axis of x is `width`; else recorded */
bool eg__nn_width(const char *who, const char *name, char letter, eg_tensor *x, int64_t width);
/* -- constructors: their errors begin with the kind of the module and its name ----------------- */
/* The list under that name; NULL after an error, which is recorded for a list that is NULL, too. */
eg_params *eg__nn_under(eg_params *, const char *who, const char *name);
/* 'mha "0.self"' of the list that eg__nn_under returned, kept as long; NULL after an error */
const char *eg__nn_who(eg_params *, const char *who);
/* Records 'mha "0.self": …'. */
void eg__nn_refuse(const eg_params *, eg_code, const char *who, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool eg__nn_share(const eg_params *, const char *who,
                  double dropout); /* in [0, 1]; else recorded */
/* else recorded */
bool eg__nn_positive(const eg_params *, const char *who, const char *option, int64_t size);
/* kept as long as p; NULL after an error */
char *eg__nn_text(eg_params *, const char *format, ...) __attribute__((format(printf, 2, 3)));
eg_tensor *eg__nn_dropped(eg_tensor *x, double p); /* dropout, or x itself if p is 0 */
/* x where the mask is true, else 0, whatever x is: no product, since 0 NaN is NaN */
eg_tensor *eg__nn_left_out(eg_tensor *x, eg_tensor *keep);

/* -- part.c: a length that is divided among ranks ---------------------------------------------- */
/* What a rank has of it. A module with .ranks computes with copies of its parts whose tensors are
 * eg_ranks_shared, so that their gradients are the sums over all ranks. */
typedef struct eg__part {
    eg_ranks *ranks; /* NULL: the length is whole, and the rest is not set */
    int64_t length, block;
    int runs;
    eg_span run[2];
} eg__part;
/* Finds the length of which this rank has `places`. False after an error, on every rank. */
bool eg__part_find(eg__part *, eg_ranks *, int64_t places, int64_t block, bool zigzag);
/* The numbers (n) of this rank's places in the whole, each + offset. */
eg_tensor *eg__part_places(const eg__part *, int64_t offset);
/* eg__nn_dropped of x, which has this rank's places along an axis: each block of them has a draw of
 * its own, so that what is dropped depends on the length and the block, not on who computes it. */
eg_tensor *eg__part_dropped(const eg__part *, int axis, eg_tensor *x, double p);
eg_norm *eg__part_norm(eg_ranks *, const eg_norm *, eg_norm *copy);         /* of NULL NULL */
eg_linear *eg__part_linear(eg_ranks *, const eg_linear *, eg_linear *copy); /* the same */

/* -- linear.c --------------------------------------------------------------------------------- */
/* eg_linear_run with an activation and a residual, as in eg_affine; NULL: without. */
eg_tensor *eg__nn_linear(const eg_linear *, eg_tensor *x, const char *activation, eg_tensor *add);

/* -- mha.c: strings that the layout decides, made once ----------------------------------------- */
enum { EG_Q, EG_K, EG_V, EG_O };
struct eg__mha_specs {
    const char *who;     /* what errors of the constructor begin with */
    const char *indices; /* those of the scores, "b h i j" */
    int axes;
    char letter[EG_RANK_MAX]; /* of the query; 0: a group */
    int place;                /* the axis of i */
    int batch;                /* batch letters */
    bool last;                /* the query's width is its last axis */
    const char *project[3], *core, *weights, *out, *out_bias, *turn_q, *turn_k, *gain;
    const char *per_head;    /* the query times a number for each head */
    const char *extra_score; /* the query times an extra key of each head: a score for each row */
    const char *rows;        /* those of the scores but the key's */
    const char *extra_value; /* rows times an extra value of each head */
};
const char *eg__mha_which(int part, bool bias); /* "W_q" … "b_o" */
/* the logical weight or bias; NULL: none */
eg_tensor *eg__mha_part(const eg_mha *, int part, bool bias);

/* -- mha_run.c: a call of a module. Errors are recorded without the module's name, which
 * eg_mha_run_with adds. --------------------------------------------------------------------------
 */
/* True if query, key and options go together, and with the module; else records an error. */
bool eg__mha_run_allowed(const eg_mha *, const eg_mha_run_args *);
/* The places of the keys: where these are the query, those of the query under the letter j. */
eg_masked eg__mha_key_places(const eg_mha_run_args *);
/* Projects, turns, appends to the cache, attends and projects the result. */
eg_tensor *eg__mha_run_whole(const eg_mha *, const eg_mha_run_args *, const eg__part *);

/* -- mha_core.c: the attention between the projections -------------------------------------------
 */
/* Reads a predicate or a score over the letters of the scores; NULL after an error, and of NULL.
 * any_tensor: it may read tensors beside those of `with`. */
const eg_formula *eg__mha_formula(const eg_mha *, eg_ctx *, const char *who, bool score,
                                  const char *text, const eg_given *with, bool any_tensor);
/* The attention of o's operands with what module and run say of scores. q: the query before it was
 * turned. */
eg_tensor *eg__mha_core(const eg_mha *, const eg_mha_run_args *, const eg__part *,
                        const eg_attention_args *o, eg_tensor *q);

/* -- mha_ranks.c ---------------------------------------------------------------------------------
 */
/* eg__mha_run_whole for this rank's places, of a module whose tensors all ranks read. */
eg_tensor *eg__mha_run_ranks(const eg_mha *, const eg_mha_run_args *);

/* -- block.c ---------------------------------------------------------------------------------- */
/* Sets *o to the options `given` in a block's .mha, which need not have a size; NULL: defaults. */
void eg__nn_template(eg_mha_args *o, const eg_mha_args *given);

/* -- cache.c ---------------------------------------------------------------------------------- */
int64_t eg__cache_taken(const eg_cache *, int slot); /* places in a slot */
bool eg__cache_filled(const eg_cache *, int slot);
/* Puts k and v (places on `axis`) behind what the slot holds and makes them views of all of it;
 * memory: the slot has just their room. */
bool eg__cache_append(eg_cache *, int slot, bool memory, int axis, eg_tensor **k, eg_tensor **v);
#endif
