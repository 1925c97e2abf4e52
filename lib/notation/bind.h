/* bind.h: a binding under way: what bind.c, which does it, and refuse.c, which says why it cannot
 * be done, share. */
#ifndef EG_BIND_H
#define EG_BIND_H
#include "notation/notation.h"

typedef struct bind {
    eg_ctx *cx;
    const char *who, *spec;
    int flags, n; /* n: operands */
    eg_tensor *const *xs;
    const eg_parsed *p;
    eg_bound *b;
    int dots;             /* axes of an ellipsis                             */
    bool groups, stretch; /* a group has sizes to solve; a size of 1 stretches */
    /* free parts of the block that b is in */
    int64_t *dim;
    int *place;
    eg_term_item *item;
    /* names of operands, as "the query"; NULL, or NULL for one: "operand 1" */
    const char *const *called;
} bind;

/* A part of a sentence, put together piece by piece; what is too long is cut. */
typedef struct words {
    char s[240];
    size_t n;
} words;
static inline int clip(int length) { return length < 40 ? length : 40; }
static inline const char *a_name(const bind *B, int a) { return B->spec + B->p->axis[a].at; }
static inline int a_length(const bind *B, int a) { return clip(B->p->axis[a].length); }

/* Room for "operand 1". */
typedef struct operand_name {
    char s[24];
} operand_name;
/* What operand k is called, or "operand 1", written into the room. */
const char *eg__operand_name(const char *const *called, int k, operand_name *);
/* Appends "operand 1 is (10, 2)". */
void eg__say_operand(words *, const char *const *called, int k, int rank, const int64_t *dim);
/* Each records its sentence and returns NULL. */
const eg_bound *eg__bad_count(const bind *, int n); /* n operands were given */
/* operand k's rank is not that of its term */
const eg_bound *eg__bad_rank(const bind *, int k);
/* axis a has a size already, and `size` under item i of operand k */
const eg_bound *eg__bad_size(const bind *, int a, int64_t size, int k, int i);
/* axis r of operand k: its known sizes' product (−1: too large), how many are unknown */
const eg_bound *eg__bad_group(const bind *, int k, int r, int64_t known, int unknown);
/* the output's axis a is in no operand */
const eg_bound *eg__bad_out(const bind *, int a, int at);
/* a name that looks mistyped; only then *found is true */
const eg_bound *eg__bad_name(const bind *, bool *found);
/* A letter stands right before the 1 at this place: it was meant as one name. */
bool eg__touches_name(const char *spec, int at);
bool eg__also_letters(const bind *); /* the names could be letters as well */
/* True if the string, which was read as letters and fits, cannot be read as names as well with
 * another result; else records both readings. The given sizes are the options'. */
bool eg__certain_letters(const bind *, int sizes, const eg_given *);
#endif
