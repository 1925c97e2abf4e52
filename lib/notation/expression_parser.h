/* expression_parser.h: an expression while it is parsed; shared by the files that parse the text
 * (expression.c, expression_operators.c, expression_operands.c, expression_names.c) and the one
 * that makes the nodes (expression_nodes.c). */
#ifndef EG_EXPRESSION_PARSER_H
#define EG_EXPRESSION_PARSER_H
#include "notation/expression.h"

/* The letter of a reduction while its terms are parsed: its name is in the text at byte `at`. */
typedef struct eg_own_letter {
    int at, length;
    bool given;             /* the text has its size */
    int64_t size, position; /* size −1: not known yet */
} eg_own_letter;
enum { EG_OWN_LETTERS = 8 };
typedef struct eg_parser {
    eg_ctx *cx;
    const eg_expression_source *s;
    const char *text;
    int at, nesting, nodes; /* next byte of the text; open brackets; nodes so far */
    int owns, terms;        /* reductions around the next byte; terms of reductions so far */
    eg_own_letter own[EG_OWN_LETTERS];
    eg_node node[EG_NODES_MAX];
} eg_parser;

/* Records an error with carets under `length` bytes of the text at `at`, and a hint if it is not
 * NULL. Returns −1. */
int eg__expression_refuse(eg_parser *, int at, int length, const char *hint, const char *format,
                          ...) __attribute__((format(printf, 5, 6)));
/* Records that the current byte cannot follow what was read: an operator is expected, or `close`,
 * which ends a bracket opened at byte `open` (0: the end of the text is). Returns −1. */
int eg__expression_unexpected(eg_parser *, char close, int open);
/* Records that the current byte has no meaning. Returns −1. */
int eg__expression_stray(eg_parser *);
/* Returns how many bytes of a name of `length` bytes a message shows. */
static inline int eg__limited(int length) { return length < 40 ? length : 40; }

static inline bool eg__name_starts(char c) { return (unsigned)((c | 32) - 'a') < 26 || c == '_'; }
static inline bool eg__digit(char c) { return (unsigned)(c - '0') < 10; }
static inline void eg__expression_blanks(eg_parser *p)
{
    while (p->text[p->at] == ' ' || (p->text[p->at] >= '\t' && p->text[p->at] <= '\r')) p->at++;
}

/* -- expression_names.c ----------------------------------------------------------------------- */
typedef struct eg_function_entry {
    const char *name;
    uint8_t code, arity;
    bool integer; /* the result is an integer if all operands are */
} eg_function_entry;
/* True if the text of `length` bytes is equal to the word. */
bool eg__name_is(const char *word, const char *text, int length);
/* Returns the function of that name; NULL if there is none. */
const eg_function_entry *eg__function_called(const char *text, int length);
/* Returns the number of the letter of that name; −1 if there is none. */
int eg__letter_called(const eg_parser *, const char *text, int length);
/* Returns the length of the name or number at the current byte; 0 if there is none. */
int eg__name_length(const eg_parser *);
/* Returns a hint for a word of another language, such as `and`; NULL if there is none. */
const char *eg__foreign_name(const char *text, int length);
/* Returns a hint for an operator of another language that ends at byte `at`, such as ** and <>;
 * NULL if there is none. */
const char *eg__foreign_operator(const char *text, int at);
/* Records that the name at `at` is unknown, with the names that are known. Returns −1. */
int eg__name_unknown(eg_parser *, int at, int length);

/* -- the levels of the grammar: each returns the number of a node; −1 after an error ---------- */
int eg__parse_choice(eg_parser *);
int eg__parse_operand(eg_parser *);
/* Counts one level of nesting, which the caller subtracts later. False after an error: there are
 * too many. */
bool eg__expression_enter(eg_parser *, int at);
enum { EG_TEXT_MAX = 4000 }; /* bytes of a text */

/* -- expression_sums.c ------------------------------------------------------------------------ */
/* Returns the number of the reduction of that name; −1 if there is none. */
int eg__reduction_called(const char *text, int length);
const char *eg__reduction_name(int k); /* NULL past the end */
/* Parses the brackets of a reduction whose name is at byte `at`, from the opening one, and adds the
 * nodes of its terms. Returns the node of the whole; −1 after an error. */
int eg__parse_reduction(eg_parser *, int reduction, int at);
/* Returns the number in p->own of the letter of that name, of the innermost reduction; −1 if there
 * is none. */
int eg__own_letter_called(const eg_parser *, const char *text, int length);
/* If the text of an index, `length` bytes at `at`, is the letter of a reduction without a size, its
 * size becomes that of the axis. False after an error: it has another size. */
bool eg__own_letter_sized(eg_parser *, int at, int length, const eg_readable *, int axis);

/* -- expression_nodes.c: each function returns the number of a node; −1 after an error -------- */
/* `at` is the byte where the text of the node begins; it ends at the parser's current byte. */
static inline int eg__node_kind(const eg_parser *p, int k) { return p->node[k].kind; }
static inline bool eg__node_is_constant(const eg_parser *p, int k)
{
    return p->node[k].code == EG_X_INTEGER || p->node[k].code == EG_X_FLOAT;
}
/* Returns the value of a constant. */
static inline double eg__node_constant(const eg_parser *p, int k)
{
    return p->node[k].code == EG_X_INTEGER ? (double)p->node[k].integer : p->node[k].real;
}
/* Adds a node, unless there is an equal one. */
int eg__node_add(eg_parser *, eg_node);
int eg__node_integer(eg_parser *, int at, int64_t value);
int eg__node_real(eg_parser *, int at, double value);
/* Adds letter k as a position (EG_X_LETTER) or as a size (EG_X_SIZE), plus the offset if it applies
 * to the letter. */
int eg__node_letter(eg_parser *, int code, int k, int at);
/* Adds the element of a tensor at `count` indices; its kind follows from the dtype. plain: the text
 * has no brackets. */
int eg__node_read(eg_parser *, int tensor, int at, int count, const int *in, bool plain);
/* Returns node k converted to float; in a predicate this is an error. A negative k is returned
 * unchanged. */
int eg__node_float(eg_parser *, int at, int k);
/* Adds operation `code` of one node; the result has its kind. −1 if a is negative. */
int eg__node_1(eg_parser *, int code, int at, int a);
/* Adds operation `code` of two nodes of one kind; `kind` is that of the result. */
int eg__node_2(eg_parser *, int code, int kind, int at, int a, int b);
/* Adds c ? a : b, where c is a bool, and a and b are both bools or both numbers. */
int eg__node_select(eg_parser *, int at, int c, int a, int b);
/* Adds the additions of the source to node `root`, which is −1 if there is no text, and sets
 * *strict. Returns the root, −1 if there is none; −2 after an error. */
int eg__node_additions(eg_parser *, int root, int *strict);
/* Adds a function of numbers, or + − * /. The result is an integer if `integer` is true and all
 * operands are integers; else the operands are converted to float, also in in[]. */
int eg__node_numbers(eg_parser *, int code, bool integer, int at, int count, int *in);
#endif
