/* notation.h: the one parser. A string names axes; binding it to tensors gives every axis a size,
 * or a caret.
 *
 *   parse.c    string → terms of items (axes, groups, brackets, ellipsis, 1); knows no operand, so
 * its result can be kept by string bind.c     terms + operands → a table of axes with sizes; every
 * operand as a view in which groups are split focus.c    an operand with its bracketed axes last,
 * and back where.c    mask predicates: "j <= i", "|i|", windows, blocks; where_value.c their
 * values, and none/all/test for a tile
 *
 * See docs/notation.md for the language. */
#ifndef EG_NOTATION_H
#define EG_NOTATION_H
#include "tensor/tensor.h"

enum {
    EG_OPERANDS_MAX = 64,
    EG_TERMS_MAX = 66,  /* operands, output, one more */
    EG_AXES_MAX = 512,  /* different names in one string, ellipsis axes included */
    EG_ITEMS_MAX = 2560 /* items in one string */
};

/* One axis of the string: a letter, a name, or an ellipsis axis. */
typedef struct eg_axis_name {
    const char *text;
    int length;   /* ("d", "batch"); "..." for ellipsis axes */
    int64_t size; /* −1 until bound */
    int from;     /* operand that fixed the size; −1: the string or an option */
} eg_axis_name;

/* at: byte offset in the spec; group: 0 none, else number of its ( ) within the term */
typedef struct eg_letter {
    uint16_t axis;
    uint16_t at;
    bool bracket;
    uint8_t group;
} eg_letter;

typedef struct eg_bound_term {
    /* after ellipsis expansion; groups flattened; literal 1, and a 1 that stretches, dropped */
    int items;
    eg_letter *item;
    int rank;
    int64_t *dim; /* of the operand as it is (output: as it will be) */
    /* items [first, last) make axis r of the operand: a group, one axis, or nothing (1) */
    int *first, *last;
    /* operand with groups split and ones dropped: one axis per item. A recorded view, x itself
     * where nothing changes */
    eg_tensor *x;
} eg_bound_term;

typedef struct eg_bound {
    const char *who, *spec;    /* operation; the string, copied: for messages */
    bool said;                 /* the string begins with "names:" or "letters:"; */
    int begin;                 /* the offset behind that, else 0 */
    const char *const *called; /* operands' names in messages, or NULL: the caller's array */
    eg_ctx *cx;
    /* in order of first appearance, ellipsis axes after all others */
    int axes;
    eg_axis_name *axis;
    int dots; /* ellipsis axes: axis[axes − dots …] */
    int terms;
    eg_bound_term *term; /* the operands' terms */
    bool arrow;          /* out is valid: the string has ->, or IMPLICIT or UNION was asked for */
    eg_bound_term out;
} eg_bound;

typedef struct eg_given {
    const char *name;
    int length;
    int64_t size;
} eg_given; /* .h = 8 */
enum {
    EG_NOTATION_IMPLICIT =
        1, /* without ->: output = axes that appear once, alphabetical (einsum) */
    EG_NOTATION_BRACKETS = 2, /* [ ] is allowed */
    EG_NOTATION_ONES = 4,     /* a size of 1 under a letter broadcasts (.broadcast) */
    EG_NOTATION_NEW_OUT = 8,  /* output may have axes that no operand has, if sized (repeat) */
    /* without ->: output = all axes in order of first appearance (eg_on) */
    EG_NOTATION_UNION = 16
};
/* Binds spec to n operands. A term for which xs[k] is NULL only gives names (its axes must be sized
 * by others). Returns NULL after recording a message with caret. Everything lives in the open
 * scope. A size of 1 that stretches (ellipsis; letters with ONES) loses its item: to the caller the
 * letter is missing from that operand, and a missing letter broadcasts. */
const eg_bound *eg__bind(const char *who, const char *spec, int flags, int n, eg_tensor *const *xs,
                         int sizes, const eg_given *size);
/* The same. Messages call operand k called[k], as "the query" or ".keep", or by its number where
 * that is NULL. */
const eg_bound *eg__bind_called(const char *who, const char *spec, int flags, int n,
                                eg_tensor *const *xs, int sizes, const eg_given *size,
                                const char *const *called);
/* caret under that item; item −1: the whole term; term = terms: the output */
eg_tensor *eg__refuse(const eg_bound *, int term, int item, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* parse.c */
/* eg_letter.axis of a literal 1 (or ()) and of an ellipsis */
enum { EG_ITEM_ONE = 0xffff, EG_ITEM_DOTS = 0xfffe };
/* appearances in operands, in the output; first term; size in the string or −1 */
typedef struct eg_parsed_axis {
    uint16_t at, length, inputs, outputs, term;
    uint16_t size_at;
    int64_t size;
} eg_parsed_axis;
/* items [begin, end), bytes [at, stop); slots: axes of the operand, ellipsis counted as one; names:
 * items that are names; dots: 1 has an ellipsis, 2 inside a group; plain: letters only */
typedef struct eg_parsed_term {
    uint16_t begin, end, at, stop;
    uint8_t slots, names, dots;
    bool plain;
} eg_parsed_term;
typedef struct eg_parsed {
    bool names, arrow;
    bool said; /* by "names:" or "letters:" in front; begin: the offset behind it, else 0 */
    int begin;
    int bracket; /* offset of the first [, or −1 */
    /* terms: of operands; term[terms] is the output if arrow */
    int length, axes, terms, items;
    eg_parsed_axis *axis;
    eg_parsed_term *term;
    eg_letter *item;
} eg_parsed;
typedef struct eg_parse_room {
    eg_parsed head;
    eg_parsed_term term[EG_TERMS_MAX];
    eg_parsed_axis axis[EG_AXES_MAX];
    eg_letter item[EG_ITEMS_MAX];
} eg_parse_room;
/* What a string without "names:" or "letters:" in front is read as: what the blanks in it decide
 * (see docs/notation.md), or names in any case. */
typedef enum { EG_READ_BY_BLANKS, EG_READ_AS_NAMES } eg_reading_as;
/* NULL after a message (without one if the context is NULL); depends on nothing but spec */
const eg_parsed *eg__parse(eg_ctx *, const char *who, const char *spec, eg_reading_as,
                           eg_parse_room *);

typedef struct eg_caret {
    int at, length;
} eg_caret;
#define EG_LETTERS_HINT "every letter is an axis here: for names begin the string with 'names:'"
#define EG_ONE_HINT     "1 is an axis of size 1 here, no part of a name"
/* Bytes of the UTF-8 character at s, from 1 to 4; 1 for a byte that begins none. */
int eg__utf8_bytes(const char *s);
/* Refuses the character of `text` at byte `at`, which has no meaning in `where` ("here"). */
void eg__caret_stray(eg_ctx *, const char *who, const char *text, int at, const char *where);
/* "who: sentence", the text, carets and tail, the hint; tail and hint may be NULL. Returns the
 * poison tensor. Nothing is said, and NULL returned, if the context is NULL. */
eg_tensor *eg__caret(eg_ctx *, const char *who, const char *text, int marks, const eg_caret *,
                     const char *tail, const char *hint, const char *format, ...)
    __attribute__((format(printf, 8, 9)));

/* where.c, where_value.c */
typedef struct eg_predicate eg_predicate;
/* NULL after a message with caret; refuses letters that are not among the n */
const eg_predicate *eg__where_parse(eg_ctx *, const char *who, const char *text, int n,
                                    const eg_axis_name *const *axis);
/* bit k: axis k occurs as an index (not only as |k|) */
unsigned eg__where_uses(const eg_predicate *);
size_t eg__where_bytes(const eg_predicate *); /* it points nowhere: bytes can be copied */
bool eg__where_test(const eg_predicate *, const int64_t *index, const int64_t *sizes);
/* axis `run` goes index[run]… */
void eg__where_row(const eg_predicate *, int run, int64_t count, const int64_t *index,
                   const int64_t *sizes, uint8_t *out);
typedef enum { EG_NONE, EG_TEST, EG_EVERY } eg_three;
/* indices in [low, high) */
eg_three eg__where_tile(const eg_predicate *, const int64_t *low, const int64_t *high,
                        const int64_t *sizes);

/* -- focus.c: who, spec and x → x with the bracketed axes last -------------------------------- */
typedef struct eg_focus {
    const char *who;
    const eg_bound *bound; /* NULL: spec was NULL, all axes */
    /* the operand, and a view of it: `outer` other axes, then `inner` bracketed ones */
    eg_tensor *given, *x;
    int outer, inner;
    int item[EG_RANK_MAX]; /* axis of x → item of the operand's term */
} eg_focus;
/* false after a message */
bool eg__focus(eg_focus *, const char *who, const char *spec, eg_tensor *x);
/* the same of a bound string's term 0 */
bool eg__focus_bound(eg_focus *, const eg_bound *, eg_tensor *given);
/* The same, but f->x has the term's items in the string's order: nothing is permuted. */
bool eg__focus_items(eg_focus *, const eg_bound *, eg_tensor *given);
/* The same of a string, which must not be NULL. Messages call the operand called[0], if `called` is
 * not NULL. */
bool eg__focus_in_place(eg_focus *, const char *who, const char *spec, eg_tensor *x,
                        const char *const *called);
/* The k-th bracketed axis of f->x, after eg__focus_in_place. Points to *f's bound string. */
eg_named_axis eg__focus_named(const eg_focus *, int k);
/* True if one axis stands in brackets; else records a sentence that points at the second. */
bool eg__focus_axis(const eg_focus *);
/* True if the string has no output; else records a sentence. */
bool eg__focus_no_output(const eg_focus *);
bool eg__focus_one(const eg_focus *); /* both */
/* y has one axis per item of the term: merges the groups and puts the ones back (a reshape), or
 * returns y itself. Sizes are y's own. */
eg_tensor *eg__merge(const eg_bound_term *, eg_tensor *y);
/* eg__refuse with another code than EG_ERROR_NOTATION. */
eg_tensor *eg__refuse_as(const eg_bound *, eg_code, int term, int item, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* y, with x's axes (bracketed sizes may differ), in the operand's own order and groups */
eg_tensor *eg__focus_same(const eg_focus *, eg_tensor *y);
/* y, which has x's outer axes, as the string orders them */
eg_tensor *eg__focus_outer(const eg_focus *, eg_tensor *y);
/* the operand's own axes that are (not) in brackets, groups merged; how many */
int eg__focus_dims(const eg_focus *, bool bracketed, int64_t *dim);
int eg__item_of(const eg_bound_term *, int axis); /* the item that is this axis, or −1 */
/* x with its axes in that order; x itself if it is the same */
eg_tensor *eg__reordered(eg_tensor *x, int rank, const int *order);
/* false after a message: an index stands twice */
bool eg__no_repeats(const eg_bound *, int term);
#endif
