/* bind_terms.h: a string while it is being bound; shared by bind_terms.c, which binds it, and
 * refuse.c, which reports why that is not possible. */
#ifndef EG_BIND_TERMS_H
#define EG_BIND_TERMS_H
#include "notation/notation.h"

typedef struct bind {
    eg_ctx *cx;
    const char *who, *spec;
    int flags, n; /* number of operands */
    eg_tensor *const *xs;
    const eg_parsed *p;
    eg_bound *b;
    int dots;                /* axes of an ellipsis, the most of all operands */
    bool groups, broadcasts; /* a group has sizes to solve for; an axis of size 1 is broadcast */
    /* the parts of the block of b that are not used yet */
    int64_t *dim;
    int *place;
    eg_term_item *item;
    /* names of operands, such as "the query"; NULL, or NULL for one operand: "operand 1" */
    const char *const *called;
} bind;

/* A sentence that is composed piece by piece; text that does not fit is cut off. */
typedef struct words {
    char s[240];
    size_t n;
} words;
static inline int clip(int length) { return length < 40 ? length : 40; }
static inline const char *a_name(const bind *B, int a) { return B->spec + B->p->axis[a].at; }
static inline int a_length(const bind *B, int a) { return clip(B->p->axis[a].length); }

/* A buffer for text such as "operand 1". */
typedef struct operand_name {
    char s[24];
} operand_name;
/* Returns the name of operand k, called[k], or "operand 1" written into the buffer. */
const char *eg__operand_name(const char *const *called, int k, operand_name *);
/* Appends "operand 1 is (10, 2)". */
void eg__say_operand(words *, const char *const *called, int k, int rank, const int64_t *dim);
/* Each of the following functions that returns an eg_bound records an error and returns NULL. */
const eg_bound *eg__bad_count(const bind *, int n); /* n operands were given, but the string has
                                                     * another number of terms */
/* The rank of operand k is not that of its term. */
const eg_bound *eg__bad_rank(const bind *, int k);
/* Axis a has a size already, and item i of operand k has another one. */
const eg_bound *eg__bad_size(const bind *, int a, int64_t size, int k, int i);
/* The group that is axis r of operand k does not fit. known: the product of its known sizes, −1 if
 * it is too large; unknown: how many sizes are unknown. */
const eg_bound *eg__bad_group(const bind *, int k, int r, int64_t known, int unknown);
/* No operand has axis `a` of the output. */
const eg_bound *eg__bad_out(const bind *, int a, int at);
/* A name seems to be mistyped. Sets *found to whether there is such a name; if not, nothing is
 * recorded. */
const eg_bound *eg__bad_name(const bind *, bool *found);
/* True if a letter immediately precedes the 1 at this byte, so that both were probably meant as one
 * name. */
bool eg__touches_name(const char *spec, int at);
bool eg__also_letters(const bind *); /* True if the names could be letters as well. */
/* True if the string, which was bound as letters, cannot be read as names with another result; else
 * records an error with both readings. The sizes are those of options. */
bool eg__certain_letters(const bind *, int sizes, const eg_sized *);
#endif
