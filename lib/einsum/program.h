/* program.h: a contraction planned: for labels, sizes, strides and a type, the steps that do it. It holds no data and can be kept. */
#ifndef EG_PROGRAM_H
#define EG_PROGRAM_H
#include "einsum/einsum.h"
#include <eingrad/einsum.h>

/* -- program.c: what is to be done … ------------------------------------------------------------------------------------------- */
/* strides in elements */
typedef struct eg_labelled { int rank; const int64_t *dim, *stride; const uint16_t *label; } eg_labelled;
typedef struct eg_order_args {
    int64_t limit;              /* bytes of the largest intermediate; 0: any; EG_OFF: none at all       */
    int steps;                  /* of path; −1: no path, the order is searched                        */
    const int (*path)[2];       /* NumPy's: places among those that are left, results are appended    */
} eg_order_args;
typedef struct eg_task { eg_dtype dtype; int count; const eg_labelled *x, *out; eg_order_args order; } eg_task;

/* … the same as sets of labels (a repeated label is a diagonal: one label, the sum of its strides), with the order of pairs: step s
 * makes number count + s, the last one the result … */
typedef struct eg_side { int n; uint16_t label[EG_RANK_MAX]; int64_t size[EG_RANK_MAX], stride[EG_RANK_MAX]; } eg_side;
typedef struct eg_draft {
    const eg_task *task;
    int steps, pair[EG_EINSUM_MAX][2];      /* pair[s][1] is −1 for one operand alone                 */
    int64_t at[EG_EINSUM_MAX];              /* where step s puts an intermediate: bytes               */
    size_t room, largest;                   /* bytes of all intermediates, of the largest             */
    eg_side side[2 * EG_EINSUM_MAX], out;   /* operands, then intermediates                           */
} eg_draft;
bool eg__draft(eg_ctx *, const eg_task *, eg_draft *);          /* false after a message              */
const eg_side *eg__draft_result(const eg_draft *, int step);
int  eg__draft_axes(const eg_draft *, int step, eg_axis *axis); /* at most 3 · EG_RANK_MAX; axis may be NULL */

/* … and as pairings. */
typedef struct eg_step { const eg_pairing *pairing; int a, b; int64_t at; } eg_step;
typedef struct eg_program {
    int count, steps;
    size_t room;
    const eg_pairing *clear;    /* NULL, or: the result is a diagonal in zeros                        */
    bool empty;
    eg_step step[];
} eg_program;
size_t eg__program_bytes(const eg_draft *);
eg_program *eg__program(void *room, const eg_draft *);          /* points into itself                 */
bool eg__program_run(eg_ctx *, const eg_program *, const void *const *x, void *out, bool add);

/* -- cache.c: what was found out is kept in the context, by a key of words ----------------------------------------------------------
 * Bounded; when there is no room for more, the older half goes. Whatever is added may end what was found before. */
enum { EG_KEY_WORDS = 256 };
typedef struct eg_key { int n; bool fits; uint64_t word[EG_KEY_WORDS]; } eg_key;
static inline void eg__key_word(eg_key *k, uint64_t w) { if (k->n < EG_KEY_WORDS) k->word[k->n++] = w; else k->fits = false; }
void eg__key_words(eg_key *, int n, const int64_t *words);
void eg__key_bytes(eg_key *, size_t n, const void *bytes);      /* with their number                  */
const void *eg__cache_find(eg_ctx *, const eg_key *);
void *eg__cache_add(eg_ctx *, const eg_key *, size_t bytes);    /* NULL: too large, or no memory (no error) */
/* the same with keys of another kind */
void *eg__cache_match(eg_ctx *, uint64_t hash, bool (*same)(const void *kept, const void *wanted), const void *wanted);
void *eg__cache_put(eg_ctx *, uint64_t hash, size_t bytes);

/* A label below EG_LETTERS that is a letter is that letter of the string, for messages and graphs; a name is EG_LETTERS + its number. */
enum { EG_LETTERS = 128 };

/* -- strings.c: a string read for some shapes: the labels of every operand and of the output, and the shapes that groups and 1s are
 * split into. Kept in the cache, so that it ends with the next planning. */
/* a size per item */
/* label: numbers of axes; letter: the same as the row keeps them, EG_LETTERS */
typedef struct eg_reading_part { int items; bool changed; const uint16_t *label, *letter; const int64_t *dim; } eg_reading_part;
/* rank, dim: of the result */
typedef struct eg_reading { int rank; const int64_t *dim; eg_reading_part out, operand[]; } eg_reading;
/* x: as the labels see them; NULL after a message */
const eg_reading *eg__read(eg_ctx *, const char *spec, bool broadcast, int count, eg_tensor *const *operand, eg_tensor **x);

/* -- plan.c -------------------------------------------------------------------------------------------------------------------- */
/* a shape as a tensor without values, to be planned with; poison after a message */
eg_tensor *eg__hollow(eg_ctx *, const eg_shape *);

/* -- einsum.c ------------------------------------------------------------------------------------------------------------------ */
eg_tensor *eg__einsum_as(const eg_order_args *, int count, eg_tensor *const *x, const uint16_t *const *label, int out_rank,
                         const uint16_t *out);
bool eg__einsum_layout(int count, eg_tensor *const *x, const uint16_t *const *label, int rank, const uint16_t *out, int64_t *dim,
                       int64_t *stride); /* of the result; false if 64 bits do not count it */
eg_dtype eg__einsum_type(const eg_tensor *x);       /* of a result: integers are summed in i64                 */
bool eg__einsum_into(eg_tensor *target, bool add, const eg_order_args *, int count, eg_tensor *const *x,
                     const uint16_t *const *label, const uint16_t *out); /* target (+)= …; not recorded; nothing overlaps  */
#endif
