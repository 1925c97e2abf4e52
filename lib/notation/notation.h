/* notation.h: strings that name axes. One parser reads them all; binding a string to tensors gives
 * every axis a size, or an error with carets. docs/notation.md has the language.
 *
 *   parse.c        a string → terms of items: axes, groups, brackets, an ellipsis, 1. It knows no
 *                  operand, so its result can be kept by the string.
 *   bind.c         terms and operands → a table of axes with sizes, and every operand as a view in
 *                  which groups are split; refuse.c: the sentences where that cannot be done
 *   remember.c     a string that was bound to operands of these shapes before is not bound again
 *   focus.c        an operand with its bracketed axes last, and results back in the string's order
 *   expression.c   predicates, scores, formulas: one parser; expression.h has its files
 *   spec.c, formula.c   strings and predicates as data for programs: include/eingrad/notation.h */
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

/* One thing that a term is made of. */
typedef struct eg_term_item {
    uint16_t axis; /* which axis of the string, or EG_ITEM_ONE, EG_ITEM_DOTS   */
    uint16_t at;   /* its byte in the spec                                     */
    bool bracket;  /* stands in [ ]                                            */
    uint8_t group; /* 0: none; else the number of its ( ) in the term, from 1  */
} eg_term_item;

/* A term after binding to its operand. */
typedef struct eg_bound_term {
    int items; /* with ellipses expanded; without a 1, and without letters of a 1 that stretches */
    eg_term_item *item;
    int rank;     /* of the operand (output: of the result) */
    int64_t *dim; /* … its sizes                            */
    /* Items [first[r], last[r]) make axis r of the operand: a group, a single axis, or none (a
     * 1). */
    int *first, *last;
    /* The operand with one axis for each item: a recorded view, or the operand itself if that is
     * the same. */
    eg_tensor *x;
} eg_bound_term;

/* A string bound to operands. It is the head of a block that also holds all it points to, except
 * tensors, their sizes, and memory of the caller. */
typedef struct eg_bound {
    size_t bytes;              /* of the block                                              */
    const char *who;           /* the operation, for messages                               */
    const char *spec;          /* the string, a copy                                        */
    bool said;                 /* it begins with "names:" or "letters:"                     */
    int begin;                 /* the byte behind that, else 0                              */
    const char *const *called; /* the caller's names of operands for messages; NULL: none   */
    eg_ctx *cx;
    int axes; /* in order of first appearance, those of ellipses behind all others */
    eg_axis_name *axis;
    int dots;  /* how many of them are of ellipses                                  */
    int terms; /* operands                                                          */
    eg_bound_term *term;
    bool arrow; /* out is valid: the string has ->, or the flags make an output      */
    eg_bound_term out;
} eg_bound;

typedef struct eg_sized {
    const char *name;
    int length;
    int64_t size;
} eg_sized; /* a size that an option gives: .h = 8. The first name may be NULL, and there is no
               second one: it is the first index of the output that no operand has, if there is
             * one */
enum {
    EG_NOTATION_IMPLICIT =
        1, /* without ->: output = axes that appear once, alphabetical (einsum) */
    EG_NOTATION_BRACKETS = 2, /* [ ] is allowed */
    EG_NOTATION_ONES = 4,     /* a size of 1 under a letter broadcasts (.broadcast) */
    EG_NOTATION_NEW_OUT = 8,  /* output may have axes that no operand has, if sized (repeat) */
    /* without ->: output = all axes in order of first appearance (eg_on) */
    EG_NOTATION_UNION = 16
};
/* Binds spec to n operands. A term whose xs[k] is NULL only gives names; other terms or options
 * must give the sizes of its axes. The result is in the open scope; NULL after an error, which is
 * recorded with carets. An item of size 1 that stretches (of an ellipsis; of letters with ONES) is
 * removed: the operand then lacks the letter, and a missing letter broadcasts. */
const eg_bound *eg__bind(const char *who, const char *spec, int flags, int n, eg_tensor *const *xs,
                         int sizes, const eg_sized *size);
/* The same. Messages call operand k called[k], such as "the query" or ".keep", or by its number if
 * that is NULL. */
const eg_bound *eg__bind_called(const char *who, const char *spec, int flags, int n,
                                eg_tensor *const *xs, int sizes, const eg_sized *size,
                                const char *const *called);
/* The same without a look into the plan memory. The operands are tensors of cx, which has not
 * failed, or NULL. */
const eg_bound *eg__bind_anew(eg_ctx *cx, const char *who, const char *spec, int flags, int n,
                              eg_tensor *const *xs, int sizes, const eg_sized *size,
                              const char *const *called);
/* Records an error with a caret under that item (−1: under the whole term); term = terms: the
 * output. Returns the poison tensor. */
eg_tensor *eg__refuse(const eg_bound *, int term, int item, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* -- parse.c ---------------------------------------------------------------------------------- */
/* eg_term_item.axis of a 1 (and of ()), and of an ellipsis */
enum { EG_ITEM_ONE = 0xffff, EG_ITEM_DOTS = 0xfffe };
/* A letter or name of the string. */
typedef struct eg_parsed_axis {
    uint16_t at, length;      /* its bytes where it stands first   */
    uint16_t inputs, outputs; /* how often: in operands, the output */
    uint16_t term;            /* the first that has it             */
    uint16_t size_at;         /* where the string gives its size … */
    int64_t size;             /* … which is this; −1: nowhere      */
} eg_parsed_axis;
typedef struct eg_parsed_term {
    uint16_t begin, end; /* its items [begin, end)                            */
    uint16_t at, stop;   /* its bytes [at, stop)                              */
    uint8_t slots;       /* axes of the operand, an ellipsis counted as one   */
    uint8_t names;       /* items that are letters or names                   */
    uint8_t dots;        /* 1: has an ellipsis; 2: it stands in a group       */
    bool plain;          /* letters or names alone, without sizes of axes 1,
                          * groups, brackets and ellipses                     */
} eg_parsed_term;
/* A string after parsing. */
typedef struct eg_parsed {
    bool names;             /* it is in names, not in letters                               */
    bool arrow;             /* it has an output: term[terms]                                */
    bool said;              /* by "names:" or "letters:" in front                           */
    int begin;              /* the byte behind that, else 0                                 */
    int bracket;            /* the byte of the first [, or −1                              */
    int length;             /* of the string                                               */
    int axes, terms, items; /* terms: of operands                               */
    eg_parsed_axis *axis;
    eg_parsed_term *term;
    eg_term_item *item;
} eg_parsed;
typedef struct eg_parse_room {
    eg_parsed head;
    eg_parsed_term term[EG_TERMS_MAX];
    eg_parsed_axis axis[EG_AXES_MAX];
    eg_term_item item[EG_ITEMS_MAX];
} eg_parse_room;
/* How a string without "names:" or "letters:" in front is read: as its blanks decide
 * (docs/notation.md), or always as names, or always as letters. */
typedef enum { EG_READ_BY_BLANKS, EG_READ_AS_NAMES, EG_READ_AS_LETTERS } eg_reading;
/* Parses spec into room and returns the head, which points into room and depends on nothing but
 * spec. NULL after an error; with a NULL context nothing is recorded. */
const eg_parsed *eg__parse(eg_ctx *, const char *who, const char *spec, eg_reading,
                           eg_parse_room *);

/* Returns the byte of the arrow of a string, or of its end if there is no arrow. */
int eg__arrow(const char *spec);

typedef struct eg_caret {
    int at, length;
} eg_caret;
#define EG_LETTERS_HINT "every letter is an axis here: for names begin the string with 'names:'"
#define EG_ONE_HINT     "1 is an axis of size 1 here, no part of a name"
/* Returns the bytes of the UTF-8 character at s, 1 to 4; 1 for a byte that begins none. */
int eg__utf8_bytes(const char *s);
/* Records an error: the character of `text` at byte `at` has no meaning in `where` ("here"). */
void eg__caret_stray(eg_ctx *, const char *who, const char *text, int at, const char *where);
/* Records "who: sentence", and below it the text, carets followed by `tail`, and the hint; tail and
 * hint may be NULL. Returns the poison tensor. With a NULL context nothing is recorded, and the
 * result is NULL. eg__caret does this with the code EG_ERROR_NOTATION. */
eg_tensor *eg__caret_as(eg_ctx *, eg_code, const char *who, const char *text, int marks,
                        const eg_caret *, const char *tail, const char *hint, const char *format,
                        ...) __attribute__((format(printf, 9, 10)));
#define eg__caret(cx, ...) eg__caret_as((cx), EG_ERROR_NOTATION, __VA_ARGS__)

/* Whether a condition on indices holds in none, some or all of a box of indices. SOME also if that
 * is not known. */
typedef enum { EG_COVER_NONE, EG_COVER_SOME, EG_COVER_ALL } eg_cover;

/* -- focus.c ---------------------------------------------------------------------------------- */
/* An operand seen with its bracketed axes last. */
typedef struct eg_focus {
    const char *who;
    const eg_bound *bound; /* NULL: spec was NULL, all axes */
    /* the operand, and a view of it: `outer` other axes, then `inner` bracketed ones */
    eg_tensor *given, *x;
    int outer, inner;
    int item[EG_RANK_MAX]; /* axis of x → item of the operand's term */
} eg_focus;
/* Binds spec to x; with spec NULL takes all axes as bracketed. False after an error. */
bool eg__focus(eg_focus *, const char *who, const char *spec, eg_tensor *x);
/* The same for term 0 of a bound string. */
bool eg__focus_bound(eg_focus *, const eg_bound *, eg_tensor *given);
/* The same, but f->x keeps the term's items in the string's order. */
bool eg__focus_items(eg_focus *, const eg_bound *, eg_tensor *given);
/* The same for a string, which must not be NULL. Messages call the operand called[0], unless
 * `called` is NULL. */
bool eg__focus_in_place(eg_focus *, const char *who, const char *spec, eg_tensor *x,
                        const char *const *called);
/* Returns the k-th bracketed axis of f->x, after eg__focus_in_place. It points to the bound string
 * of *f. */
eg_named_axis eg__focus_named(const eg_focus *, int k);
/* True if exactly one axis stands in brackets; else records an error with a caret under the
 * second. */
bool eg__focus_axis(const eg_focus *);
/* True if the string has no output; else records an error. */
bool eg__focus_no_output(const eg_focus *);
bool eg__focus_one(const eg_focus *); /* both of the above */
/* For y with one axis per item of the term: merges the groups and inserts the 1s again (a reshape);
 * returns y itself if there are none. The sizes are those of y. */
eg_tensor *eg__merge(const eg_bound_term *, eg_tensor *y);
/* eg__refuse with another code than EG_ERROR_NOTATION. */
eg_tensor *eg__refuse_as(const eg_bound *, eg_code, int term, int item, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Returns y, which has x's axes (bracketed sizes may differ), in the operand's own order and
 * groups. */
eg_tensor *eg__focus_same(const eg_focus *, eg_tensor *y);
/* Returns y, which has x's outer axes, in the order of the output, or else of the operand. */
eg_tensor *eg__focus_outer(const eg_focus *, eg_tensor *y);
/* Sets dim[] to the sizes of the operand's own axes that are (not) in brackets, groups merged.
 * Returns their number. */
int eg__focus_dims(const eg_focus *, bool bracketed, int64_t *dim);
/* Returns the first item of the term that has this axis; −1 if there is none. */
int eg__item_of(const eg_bound_term *, int axis);
/* Returns x with its axes in that order; x itself if the order is the same. */
eg_tensor *eg__reordered(eg_tensor *x, int rank, const int *order);
/* True if no index occurs twice in the term (terms: the output); else records an error. */
bool eg__no_repeats(const eg_bound *, int term);
#include "notation/expression.h"
#endif
