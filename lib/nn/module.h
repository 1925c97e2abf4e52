/* module.h: what the files of lib/nn share. Public headers only: a user's module is written the same way. */
#ifndef EG_NN_MODULE_H
#define EG_NN_MODULE_H
#include <eingrad/nn.h>
#include <string.h>

/* an option: absent or 0 means the default, EG_OFF zero */
static inline double  option(double given, double otherwise)    { return given == EG_OFF ? 0 : given != 0 ? given : otherwise; }
static inline int64_t width_or(int64_t given, int64_t otherwise) { return given ? given : otherwise; }

/* const type *a: a copy of `given`, whose caller may have been built with an older header that had fewer options, or all defaults */
#define OPTIONS(type, a, given)                                                                             \
    type a##_copy = { .size = sizeof a##_copy };                                                            \
    if (given) memcpy(&a##_copy, given, (given)->size < sizeof a##_copy ? (given)->size : sizeof a##_copy); \
    const type *a = &a##_copy

char *eg__nn_name(eg_params *, const char *name);       /* the full name under p, kept as long as p; NULL after an error */
/* poison, after recording that a run was given no module (a failed X_new has already said why: the first message stays) */
eg_tensor *eg__nn_absent(const char *who, eg_tensor *x);
bool eg__nn_width(const char *who, const char *name, char letter, eg_tensor *x, int64_t width); /* last axis of x is `width`; else recorded */
bool eg__nn_share(eg_params *, const char *who, double dropout);                                /* in [0, 1); else recorded */
bool eg__nn_positive(eg_params *, const char *who, const char *option, int64_t size);           /* else recorded */
#endif
