/* notation.h: strings that name axes. One parser reads all of them; binding a string to tensors
 * gives every axis a size, or an error with carets. docs/notation.md describes the language.
 *
 *   parse_terms.c  from a string to terms of items: axes, groups, brackets, an ellipsis, 1. It does
 *                  not know the operands, so its result depends on the string only.
 *   bind_terms.c   from terms and operands to a table of axes with sizes; every operand becomes a
 *                  view in which groups are split
 *   refuse.c       the messages if that is not possible
 *   axes_by_letters.c   eg_axes: sizes of a tensor's axes, by letters
 *   remember.c     strings that were bound to operands of the same shapes before are not bound
 *                  again
 *   focus.c        views of an operand with its bracketed axes last; results in the order of the
 *                  string
 *   expression.c   predicates, scores, formulas: one parser; expression.h lists its files
 *   spec.c, formula.c   strings and predicates as data for programs: include/eingrad/notation.h */
#ifndef EG_NOTATION_H
#define EG_NOTATION_H
#include "tensor/tensor.h"

enum {
    EG_OPERANDS_MAX = 64,
    EG_TERMS_MAX = 66,  /* operands, output, and one more */
    EG_AXES_MAX = 512,  /* different names in one string, including the axes of an ellipsis */
    EG_ITEMS_MAX = 2560 /* items in one string */
};

/* One axis of the string: a letter, a name, or an ellipsis axis. */
typedef struct eg_axis_name {
    const char *text;
    int length;   /* ("d", "batch"); "..." for ellipsis axes */
    int64_t size; /* −1 until it is bound */
    int from;     /* operand that determined the size; −1 if the string or an option did */
} eg_axis_name;

/* An item of a term. */
typedef struct eg_term_item {
    uint16_t axis; /* which axis of the string, or EG_ITEM_ONE, EG_ITEM_DOTS */
    uint16_t at;   /* its byte in the string */
    bool bracket;  /* is inside of [ ] */
    uint8_t group; /* 0 if none; else the number of its ( ) in the term, from 1 */
} eg_term_item;

/* A term after binding to its operand. */
typedef struct eg_bound_term {
    int items; /* with ellipses expanded; without a 1, and without letters of an axis of size 1 that
                * is broadcast */
    eg_term_item *item;
    int rank;     /* of the operand (output: of the result) */
    int64_t *dim; /* sizes of the operand */
    /* Items [first[r], last[r]) are axis r of the operand: a group, a single axis, or no item (a
     * 1). */
    int *first, *last;
    /* The operand with one axis for each item: a recorded view, or the operand itself if it already
     * has these axes. */
    eg_tensor *x;
} eg_bound_term;

/* A string bound to operands. It is the beginning of a block that contains everything it points to,
 * except tensors, their sizes, and memory of the caller. */
typedef struct eg_bound {
    size_t bytes;              /* of the block */
    const char *who;           /* the name of the operation, for messages */
    const char *spec;          /* the string, a copy */
    bool prefixed;             /* it begins with "names:" or "letters:" */
    int begin;                 /* the byte after that, else 0 */
    const char *const *called; /* the caller's names of operands, for messages; NULL: none */
    eg_ctx *cx;
    int axes; /* in order of first appearance; the axes of ellipses are last */
    eg_axis_name *axis;
    int dots;  /* how many axes are of ellipses */
    int terms; /* number of operands */
    eg_bound_term *term;
    bool arrow; /* `out` is valid: the string has ->, or the flags define an output */
    eg_bound_term out;
} eg_bound;

/* A size that an option gives, as .h = 8. If the name of the first is NULL, there is no second; it
 * is then the size of the first index of the output that no operand has, if there is one. */
typedef struct eg_sized {
    const char *name;
    int length;
    int64_t size;
} eg_sized;
enum {
    EG_NOTATION_IMPLICIT =
        1, /* without ->: the output has the axes that occur once, in alphabetical order (einsum) */
    EG_NOTATION_BRACKETS = 2, /* [ ] is allowed */
    EG_NOTATION_ONES = 4,     /* an axis of size 1 broadcasts to the size of its letter
                               * (.broadcast) */
    EG_NOTATION_NEW_OUT = 8,  /* the output may have new axes, if they have sizes (repeat) */
    /* without ->: the output has all axes in order of first appearance (eg_on) */
    EG_NOTATION_UNION = 16
};
/* Binds spec to n operands. A term whose xs[k] is NULL only gives names; other terms or options
 * must give the sizes of its axes. The result is in the memory of the open scope; NULL after an
 * error, which is recorded with carets. An axis of size 1 that is broadcast (of an ellipsis; of
 * letters with ONES) is removed from the term: the operand then does not have the letter, and is
 * broadcast along it. */
const eg_bound *eg__bind(const char *who, const char *spec, int flags, int n, eg_tensor *const *xs,
                         int sizes, const eg_sized *size);
/* eg__bind with messages that call operand k called[k], such as "the query" or ".keep"; by its
 * number, if that is NULL. */
const eg_bound *eg__bind_called(const char *who, const char *spec, int flags, int n,
                                eg_tensor *const *xs, int sizes, const eg_sized *size,
                                const char *const *called);
/* eg__bind_called without the cache. The operands are NULL or tensors of cx, which has no error. */
const eg_bound *eg__bind_anew(eg_ctx *cx, const char *who, const char *spec, int flags, int n,
                              eg_tensor *const *xs, int sizes, const eg_sized *size,
                              const char *const *called);
/* Records an error with carets under an item, or under the whole term if item is −1; term = terms
 * is the output. Returns poison. */
eg_tensor *eg__refuse(const eg_bound *, int term, int item, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* -- parse_terms.c ---------------------------------------------------------------------------- */
/* eg_term_item.axis of a 1 (and of ()), and of an ellipsis */
enum { EG_ITEM_ONE = 0xffff, EG_ITEM_DOTS = 0xfffe };
/* A letter or name of a string. */
typedef struct eg_parsed_axis {
    uint16_t at, length;      /* its bytes where it occurs first */
    uint16_t inputs, outputs; /* how often it occurs in operands, in the output */
    uint16_t term;            /* the first term that has it */
    uint16_t size_at;         /* where the string gives its size … */
    int64_t size;             /* … which is this; −1 if nowhere */
} eg_parsed_axis;
typedef struct eg_parsed_term {
    uint16_t begin, end; /* its items are [begin, end) */
    uint16_t at, stop;   /* its bytes are [at, stop) */
    uint8_t slots;       /* axes of the operand, where an ellipsis counts as one */
    uint8_t names;       /* items that are letters or names */
    uint8_t dots;        /* 1 if it has an ellipsis; 2 if that is inside of a group */
    bool plain;          /* only letters or names, without sizes, 1, groups, brackets and
                          * ellipses */
} eg_parsed_term;
/* A string after parsing. */
typedef struct eg_parsed {
    bool names;             /* it consists of names, not of letters */
    bool arrow;             /* it has an output, term[terms] */
    bool prefixed;          /* it begins with "names:" or "letters:", which determines .names */
    int begin;              /* the byte after that, else 0 */
    int bracket;            /* the byte of the first [; −1 if there is none */
    int length;             /* of the string */
    int axes, terms, items; /* terms: number of operands */
    eg_parsed_axis *axis;
    eg_parsed_term *term;
    eg_term_item *item;
} eg_parsed;
typedef struct eg_parse_buffer {
    eg_parsed head;
    eg_parsed_term term[EG_TERMS_MAX];
    eg_parsed_axis axis[EG_AXES_MAX];
    eg_term_item item[EG_ITEMS_MAX];
} eg_parse_buffer;
/* How a string without "names:" or "letters:" is read: as its blanks determine (docs/notation.md),
 * or always as names, or always as letters. */
typedef enum { EG_READ_BY_BLANKS, EG_READ_AS_NAMES, EG_READ_AS_LETTERS } eg_reading;
/* Parses spec into the buffer and returns its head, which points into the buffer. The result
 * depends on spec only. NULL after an error; if the context is NULL, nothing is recorded. */
const eg_parsed *eg__parse(eg_ctx *, const char *who, const char *spec, eg_reading,
                           eg_parse_buffer *);

/* Returns the byte of the arrow of a string, or of its end if there is no arrow. */
int eg__arrow(const char *spec);

typedef struct eg_caret {
    int at, length;
} eg_caret;
#define EG_LETTERS_HINT "every letter is an axis here: for names begin the string with 'names:'"
#define EG_ONE_HINT     "1 is an axis of size 1 here, no part of a name"
/* Records an error: the character of `text` at byte `at` has no meaning in `where` ("here"). */
void eg__caret_stray(eg_ctx *, const char *who, const char *text, int at, const char *where);
/* Records "who: sentence" and, below it, the text, carets followed by `tail`, and the hint; tail
 * and hint may be NULL. Returns poison. If the context is NULL, nothing is recorded and the result
 * is NULL. eg__caret does this with the code EG_ERROR_NOTATION. */
eg_tensor *eg__caret_as(eg_ctx *, eg_code, const char *who, const char *text, int marks,
                        const eg_caret *, const char *tail, const char *hint, const char *format,
                        ...) __attribute__((format(printf, 9, 10)));
#define eg__caret(cx, ...) eg__caret_as((cx), EG_ERROR_NOTATION, __VA_ARGS__)

/* Whether a predicate is true for none, some or all positions of a box. SOME also if that is not
 * known. */
typedef enum { EG_COVER_NONE, EG_COVER_SOME, EG_COVER_ALL } eg_cover;

/* -- focus.c ---------------------------------------------------------------------------------- */
/* A view of an operand with its bracketed axes last. */
typedef struct eg_focus {
    const char *who;
    const eg_bound *bound; /* NULL if the string was NULL: all axes are bracketed */
    /* the operand, and the view of it, with `outer` other axes and then `inner` bracketed ones */
    eg_tensor *given, *x;
    int outer, inner;
    int item[EG_RANK_MAX]; /* axis of x → item of the operand's term */
} eg_focus;
/* Binds spec to x; if spec is NULL, all axes are bracketed. False after an error. */
bool eg__focus(eg_focus *, const char *who, const char *spec, eg_tensor *x);
/* eg__focus of term 0 of a bound string. */
bool eg__focus_bound(eg_focus *, const eg_bound *, eg_tensor *given);
/* eg__focus_bound, except that f->x has the items of the term in the order of the string. */
bool eg__focus_items(eg_focus *, const eg_bound *, eg_tensor *given);
/* eg__focus_items of a string, which must not be NULL. Messages call the operand called[0], unless
 * `called` is NULL. */
bool eg__focus_in_place(eg_focus *, const char *who, const char *spec, eg_tensor *x,
                        const char *const *called);
/* Returns the k-th bracketed axis of f->x after eg__focus_in_place. It points into the bound string
 * of *f. */
eg_named_axis eg__focus_named(const eg_focus *, int k);
/* True if exactly one axis is in brackets; else records an error with a caret under the second. */
bool eg__focus_axis(const eg_focus *);
/* True if the string has no output; else records an error. */
bool eg__focus_no_output(const eg_focus *);
bool eg__focus_one(const eg_focus *); /* True if both of the above are */
/* Returns y, which has one axis per item of the term, with groups merged and 1s inserted (a
 * reshape); y itself if there are none. Sizes are taken from y. */
eg_tensor *eg__merge(const eg_bound_term *, eg_tensor *y);
/* eg__refuse with a code other than EG_ERROR_NOTATION. */
eg_tensor *eg__refuse_as(const eg_bound *, eg_code, int term, int item, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Returns y, which has the axes of f->x (sizes of bracketed ones may differ), with the order and
 * groups of the operand. */
eg_tensor *eg__focus_same(const eg_focus *, eg_tensor *y);
/* Returns y, which has the outer axes of f->x, in the order of the output or, if there is none, of
 * the operand. */
eg_tensor *eg__focus_outer(const eg_focus *, eg_tensor *y);
/* Sets dim[] to the sizes of the operand's axes that are (not) in brackets, with groups merged.
 * Returns their number. */
int eg__focus_dims(const eg_focus *, bool bracketed, int64_t *dim);
/* Returns the first item of the term that has this axis; −1 if there is none. */
int eg__item_of(const eg_bound_term *, int axis);
/* Returns x with its axes in that order; x itself if it already has this order. */
eg_tensor *eg__reordered(eg_tensor *x, int rank, const int *order);
/* True if no index occurs twice in the term (terms: the output); else records an error. */
bool eg__no_repeats(const eg_bound *, int term);
#include "notation/expression.h"
#endif
