/* eingrad/notation.h: strings of axes, and formulas over their indices, as data; docs/notation.md.
 *
 * Every operation reads its strings with one parser. Here a program has the same parser: it parses
 * a string, reads its terms, edits them, and passes .text to an operation.
 *
 *     const eg_spec *s = eg_spec_parse(cx, "mine", "b i [j]");
 *     s = eg_spec_insert(s, 0, 0, "c");                                   s->text: "c b i [j]"
 *     const eg_formula *f = eg_formula_parse(cx, "mine", "j <= i");
 *     f = eg_formula_replace(f, "i", "i + 5", NULL);                      f->text: "j <= (i + 5)"
 *
 * A spec or formula does not change once it is made: an edit returns another one. Both live in the
 * scope that is open when they are made, as tensors do; so does all that their members point to.
 * After an error functions return NULL, and for NULL they return NULL (or −1, false), so calls can
 * be nested, and one check of eg_error() at the end is enough. Error messages begin with `who` and
 * have carets; their code is EG_ERROR_NOTATION, EG_ERROR_SHAPE for sizes and ranks that do not fit,
 * or EG_ERROR_MEMORY. */
#ifndef EINGRAD_NOTATION_H
#define EINGRAD_NOTATION_H
#include <eingrad/core.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- specs: "b i [j], (h=8 d) ... -> b j" ------------------------------------------------------ */
enum {
    EG_INDEX_ONE = -1, /* eg_spec_item.index of a 1 and of () */
    EG_INDEX_REST = -2 /* … of an ellipsis */
};
/* One element of a term. The items of a group are consecutive. */
typedef struct eg_spec_item {
    int index; /* which eg_spec.index, or EG_INDEX_ONE, EG_INDEX_REST */
    int axis;  /* of the operand, from 0, an ellipsis counted as one; items of a group share it */
    int group; /* 0: none; else the number of its ( ) in the term, from 1 */
    bool bracket; /* stands in [ ] */
    int at;       /* its first byte in eg_spec.text */
} eg_spec_item;
typedef struct eg_spec_term {
    int axes;  /* of the operand, an ellipsis counted as one */
    int items; /* 0: an empty term, an operand of rank 0 */
    const eg_spec_item *item;
} eg_spec_term;
/* A letter or name of the string. */
typedef struct eg_spec_index {
    const char *name;
    int64_t size; /* −1: not known */
    bool fixed;   /* by the string: h=8 */
} eg_spec_index;
typedef struct eg_spec {
    /* the string as it was given. An edit writes it anew: "cbij" if all items are letters, else
     * with a blank between items, "c b i [j]", and in names after "names:" */
    const char *text;
    bool names;  /* indices are names, not letters */
    bool arrow;  /* there is an output: term[terms] */
    int indices; /* in order of first appearance */
    int terms;   /* of operands */
    const eg_spec_index *index;
    const eg_spec_term *term;
    eg_ctx *cx;
    const char *who;
} eg_spec;

/* Reads a string. NULL after an error: a string that cannot be read, NULL. */
EG_API const eg_spec *eg_spec_parse(eg_ctx *, const char *who, const char *text);
/* Returns the spec with sizes of its indices, taken from `count` tensors; xs[k] may be NULL if the
 * others determine all sizes of term k. Refused as by every operation: a wrong rank, two sizes for
 * one index, an unknown size. */
EG_API const eg_spec *eg_spec_bind(const eg_spec *, int count, eg_tensor *const *xs);
/* As eg_spec_bind; errors name tensor k by called[k], such as ".bias", and "operand k + 1" if it is
 * NULL. */
EG_API const eg_spec *eg_spec_bind_called(const eg_spec *, int count, eg_tensor *const *xs,
                                          const char *const *called);
/* The number of the first item of a term that has this index; −1: none. term = terms: the
 * output. */
EG_API int eg_spec_find_item(const eg_spec *, int term, const char *name);
/* The axis of the operand that has this index; −1: none. */
EG_API int eg_spec_axis(const eg_spec *, int term, const char *name);

/* One term as a spec of its own. */
EG_API const eg_spec *eg_spec_of_term(const eg_spec *, int term);
/* The items of a term as text, as .keep, .weights_axes and eg_spec_insert take them. */
EG_API const char *eg_spec_items(const eg_spec *, int term);
/* Items as a spec of one term, in letters or names as the other spec is. Its text is `items`,
 * unless these would be read as other indices alone: "head" of a spec in names becomes "names:
 * head". */
EG_API const eg_spec *eg_spec_like(const eg_spec *, const char *items);
/* A spec of the first term of each of `count` specs and, after an arrow, that of `output` (NULL: no
 * arrow). It is in names if one of them is; letters are then names of one letter. */
EG_API const eg_spec *eg_spec_join(int count, const eg_spec *const *terms, const eg_spec *output);
/* Renames an index: j → t in "ij,jk->ik" gives "it,tk->ik". Refused: an index that is there
 * already. */
EG_API const eg_spec *eg_spec_rename(const eg_spec *, const char *from, const char *to);
/* Replaces an index of a term (−1: of all terms) by other items: "" removes it; "(g r)", "h=8",
 * "[j]" */
EG_API const eg_spec *eg_spec_replace(const eg_spec *, int term, const char *name,
                                      const char *items);
/* Inserts items before item `at` of a term (−1: of every term); at < 0: after the last. */
EG_API const eg_spec *eg_spec_insert(const eg_spec *, int term, int at, const char *items);
/* Puts these indices of a term in brackets, and no others. */
EG_API const eg_spec *eg_spec_bracket(const eg_spec *, int term, int count,
                                      const char *const *names);
/* A letter that the spec does not have: the first of `wish` if it is unused. For a spec in names:
 * `wish`, if necessary with a number appended. */
EG_API const char *eg_spec_unused(const eg_spec *, const char *wish);
/* Records an error with a caret under an item of a term (−1: under all of the term); returns the
 * poison tensor. */
EG_API eg_tensor *eg_spec_fail(const eg_spec *, eg_code, int term, int item, const char *format,
                               ...) EG_FORMAT_(5, 6);

/* -- formulas: "j <= i & j > i - |h|", a predicate; "g*4 + r", a number -------------------------
 * docs/expressions.md describes the language. A name before brackets is a tensor, as in "doc[b,i]
 * == doc[b,j]", and every other name that is not called as a function is an index. */
typedef struct eg_formula {
    const char *text;
    bool score;     /* made by eg_formula_score */
    bool condition; /* true or false, or an element of a tensor; else a number */
    int indices;    /* names that occur, as i or as |i|, in order of appearance */
    const char *const *index;
    int tensors; /* names that occur before brackets, in order of appearance */
    const char *const *tensor;
    eg_ctx *cx;
    const char *who;
    int occurrences; /* for eg_formula_replace: how many places of the text, and which */
    const struct eg__formula_occurrence *occurrence;
} eg_formula;
/* Reads a predicate or a number of integers and indices. NULL after an error: a text that cannot be
 * read, NULL. */
EG_API const eg_formula *eg_formula_parse(eg_ctx *, const char *who, const char *text);
/* Reads a score, "30 * tanh(score / 30)", in which floats and the word score may occur. */
EG_API const eg_formula *eg_formula_score(eg_ctx *, const char *who, const char *text);
/* What eg_formula_parse_with checks the names in a text against. */
typedef struct eg_formula_args {
    size_t size;
    const char *who, *text;
    bool score;    /* a score, as eg_formula_score reads it; else a predicate */
    bool complete; /* the text is complete: a predicate has to be a condition, and a score a number
                    */
    /* the known indices, separated by blanks: "b h i j"; NULL: any name is an index */
    const char *indices;
    const eg_given *with; /* the known tensors, up to a NULL name; NULL: any name is a tensor */
    bool any_tensor;      /* tensors that are not in `with` are accepted */
} eg_formula_args;
/* Reads a predicate or a score with the checks of an operation. Refused: names that are neither an
 * index nor a tensor (the message proposes the most similar one); a tensor with another number of
 * axes; a float in a predicate. */
EG_API const eg_formula *eg_formula_parse_with(eg_ctx *, const eg_formula_args *);
/* True if the index occurs, as i or as |i|. */
EG_API bool eg_formula_has(const eg_formula *, const char *name);
/* True if the tensor is read. */
EG_API bool eg_formula_reads(const eg_formula *, const char *name);
/* True if both read the same, blanks aside: "j<=i" and "j <= i". */
EG_API bool eg_formula_equals(const eg_formula *f, const eg_formula *g);
/* Replaces every index `name` by the number `value` and every |name| by `size`, in parentheses
 * where they are needed; NULL leaves them as they are. "j <= i", i → i + 5: "j <= (i + 5)". The own
 * letter k of sum(k, …), any(k, …) and all(k, …) is no index and is not replaced; a `value` that is
 * inserted between their parentheses must not read k, which is not checked. */
EG_API const eg_formula *eg_formula_replace(const eg_formula *, const char *name, const char *value,
                                            const char *size);
/* Returns "(f) & (g)"; if one of them is NULL, the other. Refused: numbers. */
EG_API const eg_formula *eg_formula_and(const eg_formula *f, const eg_formula *g);
/* Sets term[0 … most) to the conditions that are joined by &: for "(i > 0 & j > 0) & (i < 4 | j <
 * 4)" these are i > 0, j > 0 and i < 4 | j < 4. Returns their number; −1 after an error, also if
 * there are more than `most`. */
EG_API int eg_formula_terms(const eg_formula *f, int most, const eg_formula **term);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
