/* einsum.h: einsum, and what a context remembers of it.
 *
 *   strings.c  the public einsum: a string and tensors in, labels out; options
 *   einsum.c   the row: labels in, one tensor out, its rule is einsum again
 *   expand.c   stretching axes, whose adjoint is a sum
 *   affine.c   a product and a bias in one node
 *   plans.c    a call that was made before, found by its text and operands; what strings said; how
 * contractions are done plan.c     a program that no context owns; explain.c: a program in words */
#ifndef EG_EINSUM_H
#define EG_EINSUM_H
#include "contraction/contraction.h"
#include "notation/notation.h"

/* y[out] = Σ Π x_k[label_k] over the labels that are not in out. A label may repeat inside an
 * operand (diagonal) and in out (zero-filled diagonal). Every label of out is in some operand;
 * sizes agree (the caller has checked). Recorded as one node. */
eg_tensor *eg__einsum(int count, eg_tensor *const *x, const uint16_t *const *label, int out_rank,
                      const uint16_t *out);

/* "ij,jk->ik" of what einsum made; NULL of others, or if there is no room */
const char *eg__einsum_text(const eg_tensor *y, char *out, size_t room);

/* -- cache.c: what was found out is kept in the context, by a key of words
 * Bounded; when there is no room for more, the older half goes. Whatever is added may end what was
 * found before. */
enum { EG_KEY_WORDS = 256 };
typedef struct eg_key {
    int n;
    bool fits;
    uint64_t word[EG_KEY_WORDS];
} eg_key;
static inline void eg__key_word(eg_key *k, uint64_t w)
{
    if (k->n < EG_KEY_WORDS)
        k->word[k->n++] = w;
    else
        k->fits = false;
}
void eg__key_words(eg_key *, int n, const int64_t *words);
void eg__key_bytes(eg_key *, size_t n, const void *bytes); /* with their number */
const void *eg__cache_find(eg_ctx *, const eg_key *);
/* NULL: too large, or no memory (no error) */
void *eg__cache_add(eg_ctx *, const eg_key *, size_t bytes);
/* the same with keys of another kind */
void *eg__cache_match(eg_ctx *, uint64_t hash, bool (*same)(const void *kept, const void *wanted),
                      const void *wanted);
void *eg__cache_put(eg_ctx *, uint64_t hash, size_t bytes);

/* A label below EG_LETTERS that is a letter is that letter of the string, for messages and graphs;
 * a name is EG_LETTERS + its number. */
enum { EG_LETTERS = 128 };

/* -- strings.c: a string read for some shapes: the labels of every operand and of the output, and
 * the shapes that groups and 1s are split into. Kept in the cache, so that it ends with the next
 * planning. */
/* a size per item */
/* label: numbers of axes; letter: the same as the row keeps them, EG_LETTERS */
typedef struct eg_term_labels {
    int items;
    bool changed;
    const uint16_t *label, *letter;
    const int64_t *dim;
} eg_term_labels;
/* rank, dim: of the result */
typedef struct eg_spec_labels {
    int rank;
    const int64_t *dim;
    eg_term_labels out, operand[];
} eg_spec_labels;
/* x: as the labels see them; NULL after a message */
const eg_spec_labels *eg__labels_of_spec(eg_ctx *, const char *spec, bool broadcast, int count,
                                         eg_tensor *const *operand, eg_tensor **x);

/* True if out has the dtype and the sizes of the result; else records the difference. */
bool eg__out_fits(eg_ctx *, const eg_tensor *out, eg_dtype, const eg_spec_labels *);

/* -- plan.c ----------------------------------------------------------------------------------- */
/* a shape as a tensor without values, to be planned with; poison after a message */
eg_tensor *eg__shape_only(eg_ctx *, const eg_shape *);

/* -- einsum.c --------------------------------------------------------------------------------- */
eg_tensor *eg__einsum_limited(const eg_order_args *, int count, eg_tensor *const *x,
                              const uint16_t *const *label, int out_rank, const uint16_t *out);
bool eg__einsum_layout(int count, eg_tensor *const *x, const uint16_t *const *label, int rank,
                       const uint16_t *out, int64_t *dim,
                       int64_t *stride);      /* of the result; false if 64 bits do not count it */
eg_dtype eg__einsum_type(const eg_tensor *x); /* of a result: integers are summed in i64 */
bool eg__einsum_into(eg_tensor *target, bool add, const eg_order_args *, int count,
                     eg_tensor *const *x,
                     /* target (+)= …; not recorded; nothing overlaps */
                     const uint16_t *const *label, const uint16_t *out);

/* -- calls that were made before -------------------------------------------------------------- */
/* a string; with .broadcast; eg_affine's; labels; … + i: the cotangent of operand i */
typedef enum eg_key_kind {
    EG_SPEC,
    EG_SPEC_ONES,
    EG_AFFINE,
    EG_LABELS,
    EG_LABELS_BACK
} eg_key_kind;
/* length: of text */
typedef struct eg_call_key {
    int written, count;
    size_t length;
    const void *text;
    eg_tensor *const *x;
} eg_call_key;

typedef struct eg_call {
    eg_call_key what; /* x: NULL */
    /* of each operand: its type and rank, then size and stride by axis */
    const int64_t *shapes;
    int rank;
    const int64_t *dim, *stride; /* of the result */
    size_t attr_size;
    const void *attr;
    const eg_program *program;
} eg_call;
const eg_call *eg__call_find(eg_ctx *, const eg_call_key *);
/* with room for attr and program; in the cache, else in the open scope; NULL after an error */
eg_call *eg__call_new(eg_ctx *, const eg_call_key *, const eg_labelled *out, size_t attr_size,
                      void **attr, size_t program_bytes, void **program);

/* -- einsum.c --------------------------------------------------------------------------------- */
extern const eg_order_args eg__any_order; /* the best order, without a limit */
/* in a row's shape(): the layout of the einsum of y's first `count` operands */
bool eg__einsum_shape(eg_tensor *y, int count, const uint16_t *const *label, int rank,
                      const uint16_t *out);
/* a new call whose contraction is planned; NULL after an error */
eg_call *eg__call_plan(eg_ctx *, const eg_call_key *, const void *attr, size_t size, int count,
                       eg_tensor *const *x, const uint16_t *const *label, const eg_labelled *out,
                       const eg_order_args *);
/* Applies a row by a planned call, which its shape() and forward() find in y->saved while they run.
 * Afterwards nothing is saved: the cache may evict the call. */
eg_tensor *eg__call_apply(eg_ctx *, const eg_op *, const eg_call *, const void *attr,
                          size_t attr_size, int count, eg_tensor *const *);
/* the call that y is being made by; NULL: none, the row was applied by eg_apply */
static inline const eg_call *eg__call_saved(const eg_tensor *y)
{
    return y->saved ? *(const eg_call *const *)y->saved : NULL;
}
/* what was called before (checked operands); else NULL, and no error */
eg_tensor *eg__einsum_lookup(eg_ctx *, const eg_call_key *);
eg_tensor *eg__einsum_keyed(const eg_call_key *, const eg_order_args *, int count,
                            eg_tensor *const *x, const uint16_t *const *label,
                            /* eg__einsum_limited; what it is called from now on, or NULL */
                            int out_rank, const uint16_t *out);
#endif
