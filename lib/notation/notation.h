/* notation.h: the one parser. A string names axes; binding it to tensors gives every axis a size, or a caret.
 *
 *   parse.c    string → terms of items (axes, groups, brackets, ellipsis, 1)
 *   bind.c     terms + operands → a table of axes with sizes; every operand as a view in which groups are split
 *   where.c    mask predicates: "j <= i", "|i|", windows, blocks; values, and none/all/test for a tile
 *
 * See docs/notation.md for the language. */
#ifndef EG_NOTATION_H
#define EG_NOTATION_H
#include "impl.h"

enum { EG_TERMS_MAX = 66, EG_ITEMS_MAX = 256 };

/* One axis of the string: a letter, a name, an ellipsis axis, or a literal 1. */
typedef struct eg_axis_name {
    const char *text; int length;       /* in the spec ("d", "batch"); "..." for ellipsis axes         */
    int64_t size;                       /* −1 until bound                                              */
    int     from;                       /* operand that fixed the size; −1: the string or an option    */
} eg_axis_name;

typedef struct eg_letter { uint16_t axis; uint16_t at; bool bracket; uint8_t group; } eg_letter; /* at: byte offset in the spec; group: 0 none, else number of its ( ) */

typedef struct eg_bound_term {
    int items; eg_letter *item;           /* after ellipsis expansion, groups flattened, literal 1 dropped */
    int rank; int64_t *dim;             /* of the operand as it is (output: as it will be)              */
    int *first, *last;                  /* items [first, last) make axis r of the operand: a group, one axis, or nothing (1) */
    eg_tensor *x;                       /* operand with groups split and ones dropped: one axis per item. A recorded view, x itself where nothing changes */
} eg_bound_term;

typedef struct eg_bound {
    const char *who, *spec;             /* operation, string: for messages                             */
    eg_ctx *cx;
    int axes; eg_axis_name *axis;
    int terms; eg_bound_term *term;     /* the operands' terms                                          */
    bool arrow;                         /* the string has -> (or the implicit output was asked for)     */
    eg_bound_term out;                  /* valid if arrow or EG_NOTATION_IMPLICIT                       */
} eg_bound;

typedef struct eg_given { const char *name; int length; int64_t size; } eg_given;    /* .h = 8           */
enum {
    EG_NOTATION_IMPLICIT = 1,           /* without ->: output = axes that appear once, alphabetical (einsum) */
    EG_NOTATION_BRACKETS = 2,           /* [ ] is allowed                                              */
    EG_NOTATION_ONES     = 4,           /* a size of 1 under a letter broadcasts (.broadcast)          */
    EG_NOTATION_NEW_OUT  = 8,           /* output may have axes that no operand has, if sized (repeat) */
    EG_NOTATION_UNION    = 16           /* without ->: output = all axes in order of first appearance (eg_on) */
};
/* Binds spec to n operands. A term for which xs[k] is NULL only gives names (its axes must be sized by others). Returns NULL
 * after recording a message with caret. Everything lives in the open scope. */
const eg_bound *eg__bind(const char *who, const char *spec, int flags, int n, eg_tensor *const *xs, int sizes, const eg_given *size);
eg_tensor *eg__merge(const eg_bound *, eg_tensor *y);   /* y has one axis per item of out: merges groups and puts ones back (a reshape) */
eg_tensor *eg__refuse(const eg_bound *, int term, int item, const char *format, ...) __attribute__((format(printf, 4, 5))); /* caret under that item */

/* where.c */
typedef struct eg_predicate eg_predicate;
const eg_predicate *eg__where_parse(eg_ctx *, const char *who, const char *text, int n, const eg_axis_name *const *axis); /* NULL after a message with caret; refuses letters that are not among the n */
unsigned eg__where_uses(const eg_predicate *);              /* bit k: axis k occurs as an index (not only as |k|) */
bool eg__where_test(const eg_predicate *, const int64_t *index, const int64_t *sizes);
void eg__where_row(const eg_predicate *, int run, int64_t count, const int64_t *index, const int64_t *sizes, uint8_t *out); /* axis `run` goes index[run]… */
typedef enum { EG_NONE, EG_TEST, EG_EVERY } eg_three;
eg_three eg__where_tile(const eg_predicate *, const int64_t *low, const int64_t *high, const int64_t *sizes); /* indices in [low, high) */
#endif
