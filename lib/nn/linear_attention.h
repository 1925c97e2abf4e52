/* linear_attention.h: functions that the files of linear attention share. */
#ifndef EG_NN_LINEAR_ATTENTION_H
#define EG_NN_LINEAR_ATTENTION_H
#include "nn.h"

enum { Q, K, V, Y };

/* The string of a call. i: the first index that only query and output have; j: that only key and
 * value have; e: that only value and output have; front: the other indices of the output. */
typedef struct linear_terms {
    const eg_spec *all, *term[4], *front;
    const char *i, *j, *e;
} linear_terms;

static inline bool linear_has(const linear_terms *t, int term, const char *name)
{
    return eg_spec_find_item(t->all, term, name) >= 0;
}
static inline const eg_spec *linear_without(const eg_spec *s, const char *name)
{
    return eg_spec_replace(s, 0, name, "");
}
static inline const eg_spec *linear_with(const eg_spec *s, const char *name)
{
    return eg_spec_insert(s, 0, -1, name);
}

/* Returns s with the indices of `more` that it lacks. */
static inline const eg_spec *linear_union(const eg_spec *s, const eg_spec *more)
{
    for (int k = 0; more && k < more->indices; k++)
        if (eg_spec_find_item(s, 0, more->index[k].name) < 0)
            s = linear_with(s, more->index[k].name);
    return s;
}

static inline int linear_axis_of(const linear_terms *t, int term, const char *name)
{
    return eg_spec_axis(t->all, term, name);
}

/* An option that is a factor, .decay or .beta, and its indices; of is NULL if it is not given. */
typedef struct linear_factor {
    const eg_spec *of;
    eg_tensor *x;
} linear_factor;
typedef struct linear_factors {
    linear_factor decay, beta;
    bool channels;   /* .decay has an index that is summed over */
    eg_tensor *read; /* φ of the keys that read the state of the delta rule; NULL: the keys */
} linear_factors;

/* A causal call by chunks, and the strings of operands that are divided into chunks. Indices: n,
 * the chunk; c, a query in it; u, a key in it. */
typedef struct linear_chunks {
    const linear_terms *t;
    const char *n, *c, *u;
    const eg_spec *qs, *ks, *vs, *ys, *state, *states, *scored;
    int64_t length, chunk, count;
    eg_tensor *q, *k, *v;
} linear_chunks;

/* Products of decays of channels over blocks of `size` positions of a chunk: from, over the
 * positions of a block up to one of them, this one included; end, over those after it. */
typedef struct linear_level {
    int64_t size;
    eg_tensor *from, *end;
} linear_level;
enum { LEVELS = 40 };
/* The products of the decays within each chunk. All are NULL if there is no decay; left is NULL if
 * there are levels, which replace it where decays have channels. */
typedef struct linear_decays {
    int levels;
    linear_level level[LEVELS];                 /* of blocks of 1, 2, 4 … positions */
    const eg_spec *head, *to_c, *to_u, *within; /* indices: of whole, from, end and left */
    eg_tensor *whole;                           /* Π_s a_s over the chunk */
    eg_tensor *from;                            /* Π_{s≤c} a_s */
    eg_tensor *end;                             /* Π_{s>u} a_s */
    eg_tensor *left;                            /* Π_{u<s≤c} a_s; 0 for u > c */
} linear_decays;

enum { CONDITIONS = 16 };
/* The predicate in its parts: "j <= i", which the chunks compute; and masks of keys, including
 * .keep, and of queries. */
typedef struct linear_masks {
    bool causal;
    int keys, queries;
    eg_masked key[CONDITIONS + 1], query[CONDITIONS];
} linear_masks;

/* -- linear_masks.c ---------------------------------------------------------------------------- */
/* Sets the masks. False after an error: .where, .keep, or an option that needs .where cannot be
 * used. */
bool eg__linear_masks(eg_ctx *cx, const eg_linear_attention_args *o, const linear_terms *t,
                      linear_masks *m);
/* Returns x, an operand of that term, with 0 where a mask is false. Masks with indices that the
 * term does not have are skipped. */
eg_tensor *eg__linear_kept(const linear_terms *t, int term, eg_tensor *x, int n,
                           const eg_masked *mask);
/* Returns β with 0 where a mask of keys is false, since a masked element may be NaN. Masks with
 * indices that β does not have are skipped. */
eg_tensor *eg__linear_beta_kept(const linear_factor *beta, const linear_masks *m);

/* -- linear_chunks.c --------------------------------------------------------------------------- */
/* Splits an axis of positions into (n, chunk); the last chunk is padded with `value`. */
eg_tensor *eg__linear_chunked(eg_tensor *x, int axis, int64_t chunk, int64_t n, double value);
/* The reverse of it, for `length` positions. */
eg_tensor *eg__linear_merged(eg_tensor *x, int axis, int64_t length);
/* Returns s with the indices n and `in` for that of positions; s itself if it lacks that index. */
const eg_spec *eg__linear_cut(const eg_spec *s, const char *place, const char *n, const char *in);
/* Returns s with the indices of batches and heads of `more` that it lacks. */
const eg_spec *eg__linear_with_heads(const eg_spec *s, const linear_terms *t, const eg_spec *more);
/* Makes the strings of a causal call over `length` positions. */
void eg__linear_chunk_specs(linear_chunks *p, const linear_terms *t, const eg_spec *decay,
                            const eg_spec *beta, int64_t length, int64_t chunk);
/* Returns the sums without decay. Query i attends to keys up to i + seen, so every query attends to
 * the first `seen` keys. first: the state before all keys; NULL: 0. Sets *next to the state after
 * them. */
eg_tensor *eg__linear_causal(linear_chunks *p, eg_tensor *k, eg_tensor *v, int64_t seen,
                             eg_tensor *first, eg_tensor **next);
/* Returns Π_{s=u..c} a_s for c = 0 … positions − 1 and u = 0 … positions, where it is 1 for u = c +
 * 1 and 0 for greater u; c and u are appended to the other axes of a, whose last axis is that of
 * positions. */
eg_tensor *eg__linear_decay_products(eg_tensor *a);
/* Returns a, repeated along a new last axis of positions. */
eg_tensor *eg__linear_repeated(eg_tensor *a, int64_t positions);
/* Returns the einsum of x0, x1 and x2; of the first two if x2 is NULL. */
eg_tensor *eg__linear_einsum(const eg_spec *a, const eg_spec *b, const eg_spec *c, const eg_spec *y,
                             eg_tensor *x0, eg_tensor *x1, eg_tensor *x2);
/* Returns the products of the decays. even: a shorter last chunk may have the products of the
 * others. */
linear_decays eg__linear_decays(const linear_chunks *p, const linear_factors *f, bool even);
/* Returns y from the states before the chunks and the values v within them. */
eg_tensor *eg__linear_chunk_sums(const linear_chunks *p, const linear_decays *d, eg_tensor *k,
                                 eg_tensor *states, const eg_spec *vs, eg_tensor *v);
/* Returns the sums with decay over all keys. The states before the chunks are
 *
 *   S_{n+1} = A_n S_n + Σ_u (Π_{s>u} a_s) k_u v_u,   A_n = Π_s a_s, s in chunk n */
eg_tensor *eg__linear_causal_decayed(linear_chunks *p, eg_tensor *k, eg_tensor *v,
                                     const linear_factors *f, eg_tensor *first, eg_tensor **next);

/* -- linear_channels.c ------------------------------------------------------------------------- */
/* Sets the levels of d, and from them whole, from and end, from decays a with the indices to_c, of
 * which number `axis` is the position in a chunk. */
void eg__linear_levels(linear_decays *d, eg_tensor *a, int axis);
/* Returns Σ x_c k_u Π_{u<s≤c} a_s over the indices that y lacks; 0 for u > c if there are decays. x
 * and k have the axes xs and ks; y ends in (c u). */
eg_tensor *eg__linear_pairs(const eg_spec *xs, const eg_spec *ks, const linear_decays *d,
                            const eg_spec *y, eg_tensor *x, eg_tensor *k);

/* -- linear_delta.c ---------------------------------------------------------------------------- */
/* Returns the sums of the delta rule over all keys. Within a chunk whose first state is S,
 *
 *   u_c + Σ_{u<c} A_cu u_u = β_c (v_c − (Π_{s≤c} a_s) r_c · S)
 *
 * is solved for u. The solution for β_c (Π_{s≤c} a_s) r_c instead, times S, would be the same, but
 * is a product of the chunk's transitions, which can overflow where u does not. r: the keys that
 * read, which are k unless f has others. */
eg_tensor *eg__linear_causal_delta(linear_chunks *p, eg_tensor *k, eg_tensor *v,
                                   const linear_factors *f, eg_tensor *first, eg_tensor **next);
/* Returns the weights w of the delta rule, whose axes are `all`, from the weights p without it:
 * w = z β, z (I + A) = p. d: decays of all positions, as of one chunk. */
eg_tensor *eg__linear_delta_weights(const linear_terms *t, const linear_factors *f,
                                    const linear_decays *d, const eg_spec *all, eg_tensor *k,
                                    eg_tensor *p);
#endif
