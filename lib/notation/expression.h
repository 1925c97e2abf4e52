/* expression.h: formulas of index notation, such as
 *
 *   30 * tanh((score + r[h, clip(i - j, 0, 127)]) / 30)
 *
 * A formula is parsed once to a list of typed nodes, which is then evaluated and differentiated in
 * blocks.
 *
 *   expression.c        parses the text, with expression_operators.c, _operands.c and _names.c
 *   expression_sums.c   parses sum(k=8, …), any(…), all(…)
 *   expression_nodes.c  makes the nodes for the parser: equal nodes are shared, constants are
 *                       folded; expression_parser.h is their common header
 *   expression_sizes.c  sizes of letters, from the tensors that they index
 *   expression_range.c  bounds of integers and bools for a box of positions
 *   expression_bounds.c bounds of the elements of integer and bool tensors in blocks, for such
 *                       boxes
 *   expression_plan.c   where values and cotangents of a block of rows × lanes are stored
 *   expression_values.c, expression_slopes.c
 *                       the values of a block, and its cotangents; expression_block.h is their
 *                       common header
 *   expression_read.c   the elements of tensors that a block reads; expression_gather.c copies them
 *   expression_loops.c  the inner loops of both, generated from expression_rows.h
 *   expression_result.c the loop over a result, divided into such blocks
 *   given.c             the tensors of .with
 *
 * In these files a letter is an index of the formula, even if it has a longer name; integers have
 * 64 bits and saturate. docs/expressions.md describes the language. Other folders include this
 * header through notation.h. */
#ifndef EG_EXPRESSION_H
#define EG_EXPRESSION_H
#include "notation/notation.h"
#include "notation/expression_rows.h"

enum {
    EG_GIVEN_MAX = 8,    /* tensors of .with */
    EG_TENSORS_MAX = 16, /* tensors of an expression, including those of options */
    EG_NODES_MAX = 256,  /* nodes of an expression */
    EG_EXPRESSION_LETTERS = 32,
    EG_OCCURRENCES_MAX = 256 /* occurrences of names in a text (eg_name_occurrence) */
};

/* What a node computes. The functions of floats are defined in expression_rows.h. */
typedef enum eg_node_code {
    EG_X_INTEGER, /* an integer constant, .integer */
    EG_X_FLOAT,   /* a float constant, .real */
    EG_X_LETTER,  /* the position along letter in[0] */
    EG_X_SIZE,    /* the size of letter in[0], .integer once the sizes are known */
    EG_X_SCORE,   /* the value that the caller gives for each element */
    EG_X_READ,    /* the element of tensor .tensor at the integers in[0] … in[count − 1] */
    EG_X_NEG,
    EG_X_ABS,
    EG_X_EXP,
    EG_X_LOG,
    EG_X_SQRT,
    EG_X_TANH,
    EG_X_SIGMOID,
    EG_X_SOFTPLUS,
    EG_X_ERF,
    EG_X_SIN,
    EG_X_COS,
    EG_X_FLOOR,
    EG_X_TO_FLOAT, /* an integer converted to float */
    EG_X_ADD,
    EG_X_SUB,
    EG_X_MUL,
    EG_X_DIV,
    EG_X_MOD, /* of integers only; for floats the parser composes it */
    EG_X_MIN,
    EG_X_MAX,
    EG_X_POW,
    EG_X_EQ,
    EG_X_NE,
    EG_X_LT,
    EG_X_LE,
    EG_X_GT,
    EG_X_GE,
    EG_X_NOT,
    EG_X_AND,
    EG_X_OR,
    EG_X_SELECT, /* in[0] ? in[1] : in[2] */
    EG_X_CLIP,   /* min(max(in[0], in[1]), in[2]) */
    EG_X_CODES
} eg_node_code;
typedef enum eg_value_kind {
    EG_IS_NOTHING,
    EG_IS_INTEGER,
    EG_IS_FLOAT,
    EG_IS_CONDITION
} eg_value_kind;

/* One value of a formula. The operands of a node precede it in the list. */
typedef struct eg_node {
    uint8_t code, kind; /* eg_node_code, eg_value_kind */
    uint8_t count;      /* number of operands */
    uint8_t tensor;     /* of a read: number of the tensor */
    bool guard;         /* of a read: where the value is not used, an index may be outside of its
                         * axis, and must be clamped */
    bool plain;         /* of a read: it is written without brackets */
    uint8_t in[EG_RANK_MAX]; /* the operands' nodes; for EG_X_LETTER and EG_X_SIZE the letter */
    uint32_t letters;        /* bit k: the value depends on the position along letter k */
    uint16_t at, length;     /* the bytes of the text from which it was parsed */
    union {
        int64_t integer;
        double real;
    };
} eg_node;

/* A parsed formula. It contains no pointers, so it can be copied by memcpy. */
typedef struct eg_expression {
    int nodes, root; /* the number of nodes; the node of the result, −1 if there is none */
    int strict;      /* the node of the result that includes EG_ADD_NO_INFINITY; else the root */
    int letters;
    uint32_t positions, sizes; /* bits: letters that occur as i; letters that occur as |i| */
    uint32_t reads;            /* bits: tensors that are read */
    bool score;                /* the score is read */
    bool narrow;               /* every integer fits in 32 bits; set by eg__expression_fits */
    eg_node node[];
} eg_expression;

/* A tensor that the text may read. */
typedef struct eg_readable {
    const char *name;
    eg_dtype dtype;
    int rank;
    const int64_t *dim;
    int64_t least, most; /* of integers: the smallest and the largest element */
    eg_dtype was;        /* the dtype that the program gave, which messages name */
} eg_readable;

/* A term that an option adds to the value of a text, in the order of the list. x[…] is the tensor
 * at letters, whose positions are those without the offset. */
typedef enum eg_addition_kind {
    EG_ADD_BIAS,       /* e + x[…] */
    EG_ADD_DISTANCE,   /* e − x[…] |i − j| */
    EG_ADD_KEEP,       /* e & x[…] of bools, or e & x[…] != 0 of integers */
    EG_ADD_LENGTH,     /* e & j < x[…] */
    EG_ADD_NO_INFINITY /* e & x[…] != −inf; these are last in the list, and only the strict root
                        * includes them */
} eg_addition_kind;
typedef struct eg_addition {
    uint8_t kind, tensor, count, letter[EG_RANK_MAX];
    uint8_t i, j;
} eg_addition;

/* One occurrence of a name in a text: the bytes [name, name + length) are the name, and [from, to)
 * are replaced by an edit; they include the bars of a size |i|. */
typedef struct eg_name_occurrence {
    int name, length, from, to;
    bool size;
    bool tensor; /* brackets follow the name, as in doc[b,i] */
} eg_name_occurrence;
/* A text, and the names that it may use. */
typedef struct eg_expression_source {
    const char *who, *text;
    const char *noun; /* what messages call the text: "predicate", "score", "expression" */
    int letters;
    const eg_axis_name *const *letter;
    int others; /* letters that the text must not read; messages say `why_not` of them */
    const eg_axis_name *const *other;
    const char *why_not;
    int given;
    const eg_readable *readable; /* the `given` tensors that the text may name, then those of the
                                  * additions */
    int additions;
    const eg_addition *addition; /* if there are any, text may be NULL: the value is then true for a
                                  * predicate, else the score */
    int64_t offset;              /* added to the position and to the size of letter `moved` */
    int moved;
    bool score;       /* the word score (EG_X_SCORE) is allowed */
    bool all_letters; /* a tensor without brackets is read at all letters in order */
    bool predicate;   /* all values are integers and bools, and the result is a bool */
    bool number;      /* the result is a number, which is converted to float */
    /* If not NULL, the occurrences of names are written here in the order of the text, and their
     * number to *occurrences. The result then describes the text and cannot be evaluated. */
    eg_name_occurrence *occurrence; /* EG_OCCURRENCES_MAX of them */
    int *occurrences;
    /* Only with `occurrences`: other names are accepted too: any_tensor, before brackets, as a
     * tensor of integers or bools; any_letter, elsewhere, as an index (if there are no letters; it
     * becomes letter 0); any_kind: a predicate may result in a number. */
    bool any_tensor, any_letter, any_kind;
} eg_expression_source;

/* Returns the parsed formula in the memory of the open scope; NULL after an error, which is
 * recorded with a caret under the text. Does not use the sizes of the letters. */
eg_expression *eg__expression_parse(eg_ctx *, const eg_expression_source *);
/* True if node k is a bool, or may be one since it consists of elements of tensors of which only
 * the names are known. */
bool eg__may_be_condition(const eg_node *, int k);
size_t eg__expression_bytes(const eg_expression *);
/* -- sizes ------------------------------------------------------------------------------------ */
/* Sets each size[k] that is −1 to the size of an axis that letter k alone indexes: first of tensors
 * that are read without brackets, then of others. False after an error: two sizes differ, or a
 * letter has none. */
bool eg__expression_sizes(eg_ctx *, const eg_expression_source *, const eg_expression *,
                          int64_t *size);

/* -- ranges ----------------------------------------------------------------------------------- */
/* A box of positions: letter k, of size size[k], goes over low[k] ≤ i < high[k]. */
typedef struct eg_box {
    const int64_t *low, *high, *size;
    int64_t least[EG_TENSORS_MAX], most[EG_TENSORS_MAX]; /* bounds of the elements of each tensor of
                                                          * integers */
    const struct eg_bounds *bounds; /* bounds by blocks of positions; NULL if there are none */
} eg_box;
/* Bounds of a value: an integer is in [low, high]; a bool has [0, 0] if it is always false, [1, 1]
 * if it is always true, else [0, 1]. */
typedef struct eg_interval {
    int64_t low, high;
} eg_interval;
/* Sets the values of sizes |i|, the guards of reads, and `narrow`. False after an error: an index
 * can be outside of its axis in an element that uses the value. */
bool eg__expression_fits(eg_ctx *, const eg_expression_source *, eg_expression *, const eg_box *);
/* The first step of eg__expression_fits: true if no index can be outside of its axis in an element
 * that uses the value. False without an error if the check takes too long, or if the index is
 * before byte `shift` of the text of the source; else the error shows `text`, which begins there.
 */
bool eg__expression_inside(eg_ctx *, const eg_expression_source *, const eg_expression *,
                           const eg_box *, const char *text, int shift);
/* The second step: sets what eg__expression_fits sets. */
void eg__expression_settle(const eg_expression_source *, eg_expression *, const eg_box *);
/* Returns whether a predicate is true in all of a box, in some of it, or in none. SOME also if the
 * bounds do not decide. The bounds of all nodes are written to range[0 … nodes), except if the box
 * is empty. */
eg_cover eg__expression_cover(const eg_expression *, const eg_box *, eg_interval *range);
/* The same if only the letters `moved` (bits) of the box have changed since the call that wrote
 * `range`, and the box is not empty: nodes that depend on no such letter keep their bounds. */
eg_cover eg__expression_cover_moved(const eg_expression *, const eg_box *, uint32_t moved,
                                    eg_interval *range);

/* -- blocks ----------------------------------------------------------------------------------- */
/* The positions of a letter along the rows or lanes of a block: first, first + 1, …; or, if value
 * is not NULL, value[0], value[1], … */
typedef struct eg_letter_values {
    int64_t first;
    const int64_t *value;
} eg_letter_values;
/* What a value varies with in a block: nothing, rows, lanes, both, or only lane − row, as functions
 * of i − j do. */
typedef enum eg_extent {
    EG_EXTENT_ONE,
    EG_EXTENT_ROWS,
    EG_EXTENT_LANES,
    EG_EXTENT_BLOCK,
    EG_EXTENT_DIAGONAL
} eg_extent;
/* The layout of a workspace for blocks of at most rows × lanes. */
typedef struct eg_block_plan {
    const eg_expression *e;
    int root;
    int rows, lanes;
    bool f64;                 /* floats have 64 bits, else 32 */
    bool narrow;              /* integers have 32 bits, else 64 */
    bool slopes;              /* all values are kept for eg__block_slopes */
    uint32_t by_row, by_lane; /* letters that vary along rows, along lanes */
    uint32_t wanted;          /* bits: tensors whose cotangents are wanted; bit 31 for the score */
    size_t bytes;             /* size of the workspace, which must be aligned to 64 bytes */
    /* offsets of its parts in bytes; diagonals is 0 if no value varies only with lane − row, joined
     * if no read has several indices that vary along lanes */
    int64_t values, scratch, offsets, sums, spare, diagonals, joined;
    bool overwrites; /* the cotangent of the result can be overwritten by that of the score */
    bool keeps;      /* cotangents depend on the score, which must not be overwritten before they
                      * are computed */
    /* the arrays from here on are by node, and are set for nodes up to the root */
    uint8_t extent[EG_NODES_MAX]; /* an eg_extent */
    bool used[EG_NODES_MAX];      /* the root depends on it */
    bool moved[EG_NODES_MAX];     /* its cotangent is needed */
    bool passed[EG_NODES_MAX]; /* its cotangent is that of the node that reads it, as that of a in
                                * a + b, and is not copied */
    bool needed[EG_NODES_MAX]; /* cotangents are computed from its value */
    bool steady[EG_NODES_MAX]; /* a letter of which only the first element is read */
    /* the sum that has it as a summand and computes it in the same loop; −1 if it is computed
     * separately */
    int16_t within[EG_NODES_MAX];
    /* offset of its value, of its cotangent and of the first step of its function, if that is kept
     * for the cotangent of the operand (eg__keeps_first), in bytes; −1 if it has none */
    int64_t at[EG_NODES_MAX], slope[EG_NODES_MAX], first[EG_NODES_MAX];
} eg_block_plan;
/* A tensor that a block reads; strides in elements. */
typedef struct eg_source {
    const void *data;
    const int64_t *stride;
    eg_dtype dtype;
    const int64_t *dim;
} eg_source;
/* Where the cotangent of a tensor is written. If `direct`, each element is written once, as a float
 * of the block's type; this requires that a single node reads the tensor, with every letter of the
 * loop as the index of an axis. Otherwise cotangents are added, row by row: to floats of the
 * block's type if `few`, else to elements of f64. */
typedef struct eg_sink {
    void *data;            /* NULL if the cotangent is not wanted */
    const int64_t *stride; /* in elements */
    bool direct, few;
} eg_sink;
/* The operands and results of a block. */
typedef struct eg_block_data {
    int rows, lanes;                /* at most those of the plan */
    const eg_letter_values *letter; /* by letter */
    const eg_source *source;        /* by tensor */
    const void *score;
    /* the result: floats, i64, or bools in bytes; may be the memory of score, unless the plan keeps
     * that */
    void *out;
    double factor;                /* multiplies the result, if that is a float; 0 means 1 */
    int64_t score_step, out_step; /* distance of rows in elements */
    /* only for eg__block_slopes */
    const void *g; /* the cotangent of out */
    void *dscore;  /* where the cotangent of the score is written; may be g */
    int64_t g_step, dscore_step;
    const eg_sink *sink;
    /* A bool per element, in allow_rows rows from row allow_from on, allow_step bytes apart: the
     * element counts. The cotangents of other elements are 0, even where a derivative is not
     * finite. All elements of other rows count. */
    const uint8_t *allow;
    int64_t allow_step;
    int allow_from, allow_rows;
} eg_block_data;

/* Plans blocks of at most rows × lanes of node `root`. by_row, by_lane: the letters that vary along
 * rows, along lanes; if it is a single letter, its eg_letter_values has no `value`. wanted: as in
 * the plan, 0 if no cotangents are wanted. */
void eg__block_plan(eg_block_plan *, const eg_expression *, int root, bool f64, int rows, int lanes,
                    uint32_t by_row, uint32_t by_lane, uint32_t wanted);
/* Computes the values of a block, and writes the result to out; if out is NULL, only the values
 * that eg__block_slopes needs. */
void eg__block_values(const eg_block_plan *, const eg_block_data *, void *workspace);
/* Computes the cotangents of a block. Must follow eg__block_values of the same block with the same
 * workspace. */
void eg__block_slopes(const eg_block_plan *, const eg_block_data *, void *workspace);

/* -- bounds by blocks ------------------------------------------------------------------------- */
/* A tensor that is divided into blocks along its axes; its part of the table begins at entry
 * `at`. */
typedef struct eg_bounded {
    int rank;
    int64_t at, dim[EG_RANK_MAX], block[EG_RANK_MAX], blocks[EG_RANK_MAX];
} eg_bounded;
/* The smallest and the largest element in each block of the integer and bool tensors that an
 * expression reads. */
typedef struct eg_bounds {
    uint32_t tensors; /* bits: tensors that are in the table */
    int64_t entries;  /* number of entries of the table */
    const eg_interval *table;
    eg_bounded of[EG_TENSORS_MAX];
} eg_bounds;
/* Divides the tensors into blocks. An axis has blocks of as many positions as its index moves while
 * each letter k moves through block[k] > 0 positions: block[k] if letter k alone is the index, 2
 * for i/64 if block[i] is 128. If it has several indices, the smallest move counts; if its indices
 * depend on elements of tensors, the axis is one block. Only source[…].dim is used. */
void eg__bounds_plan(eg_bounds *, const eg_expression *, const eg_source *source,
                     const int64_t *block);
/* Fills the table of b->entries entries. It belongs to the caller and must exist as long as the
 * bounds are used, as eg_box.bounds. The strides may be arbitrary. */
void eg__bounds_fill(eg_bounds *b, const eg_source *source, eg_interval *table);
/* Returns bounds of the elements of a tensor whose indices are in index[0], index[1], …; if the
 * table has no better ones, returns `all`, the bounds of all elements. */
eg_interval eg__bounds_over(const eg_bounds *, int tensor, const eg_interval *index,
                            eg_interval all);

/* -- results ---------------------------------------------------------------------------------- */
/* A loop over the elements of a result. Its axes are groups of joined letters; it is divided into
 * blocks. */
typedef struct eg_block_loop {
    eg_ctx *cx;
    const eg_expression *e;
    int root, letters, groups;
    int64_t first[EG_EXPRESSION_LETTERS]; /* the position of each letter where the loop begins */
    /* the first and the last letter of each group; the last one has the position of the group */
    int begin[EG_EXPRESSION_LETTERS], last[EG_EXPRESSION_LETTERS];
    int64_t count[EG_EXPRESSION_LETTERS],
        step[EG_EXPRESSION_LETTERS]; /* by group: number of positions, and stride in the result */
    int row;                         /* the group that the rows of a block are along; < 0: none */
    int lane;                        /* the group of the lanes; < 0: none. If it is not the last one
                                      * (`across`), the last one is that of the rows */
    bool across;
    int64_t row_blocks, lane_blocks, blocks, elements;
    eg_sink sink[EG_TENSORS_MAX];
    void *out;
    const void *g;
    bool uniform;         /* all cotangents are equal: g has those of one block */
    const uint8_t *allow; /* by element of the result: eg_block_data.allow; NULL if all count */
    char *workspace;      /* `bytes` for each thread: plan.bytes, and a block if `across` */
    size_t bytes;
    double *sums;   /* sums of cotangents, a set for each piece */
    int64_t summed; /* elements of a set */
    int64_t pieces;
    /* set by eg__block_loop, the first of these being `plan`, for the tensors that it has */
    eg_block_plan plan;
    eg_source source[EG_TENSORS_MAX];
    int64_t strides[EG_TENSORS_MAX][EG_RANK_MAX];
} eg_block_loop;
/* Prepares the loop for the value of node `root` over letters of these sizes, letter k from
 * position first[k] on (from 0 if first is NULL). wanted: bits of the tensors whose cotangents are
 * wanted. False after an error. */
bool eg__block_loop(eg_block_loop *o, eg_ctx *cx, const eg_expression *e, int root, int letters,
                    const int64_t *size, const int64_t *first, eg_tensor *const *x, int count,
                    bool f64, uint32_t wanted);
/* Runs the loop: computes values to o->out if that is set, and cotangents to o->sink if o->g is
 * set; the caller sets these after eg__block_loop. o->pieces is the number of pieces that the
 * blocks are divided into; 0 for a number that suits the threads. False after an error. */
bool eg__block_loop_run(eg_block_loop *o);
/* Returns the largest number of elements of a block of the loop. */
int64_t eg__block_loop_size(const eg_block_loop *);
/* True if each element of the cotangent of tensor t, which has sizes dim, is written once, without
 * a sum: a single node reads t, and every letter of a size other than 1 is the index of an axis. */
bool eg__written_once(const eg_expression *, int letters, const int64_t *size, int t,
                      const int64_t *dim);
/* True if each element of the cotangent of tensor t has at most two summands that can be other than
 * 0, as that of x has in x[i] − x[i − 1]. Their sum in f64, rounded to f32, is their sum in f32, so
 * they can be added in the cotangent itself. */
bool eg__few_summands(const eg_expression *, int letters, const int64_t *size, int t);
/* Writes n sums to `to`: element k is Σ_p sum[p · apart + k] over the `sets` sets. */
void eg__sums_add(bool f64, void *to, int64_t n, int64_t sets, int64_t apart, const double *sum);

/* -- the tensors of .with --------------------------------------------------------------------- */
typedef struct eg_given_tensors {
    int count;
    eg_tensor *x[EG_GIVEN_MAX];
    eg_readable readable[EG_GIVEN_MAX];
    eg_dtype floats; /* dtype of the tensors of floats; EG_DEFAULT if there are none */
} eg_given_tensors;
/* Records an error about one or two names, with carets where `text` has them first or, if it has
 * none of them, where `other` has; both may be NULL. Returns false. */
bool eg__names_refuse(eg_ctx *, const char *who, const char *text, const char *other, int count,
                      const char *const *name, eg_code, const char *format, ...)
    __attribute__((format(printf, 8, 9)));
/* Replaces the tensors of .with that are of storage types by casts: i8 and u8 to i32, f16 and bf16
 * to `floats`, or if that is EG_DEFAULT to the dtype of the other floats, f32 if there are none.
 * was[EG_GIVEN_MAX] gets the dtypes before. False after an error: a tensor cannot be used. */
bool eg__given_cast(eg_ctx *, const char *who, eg_dtype floats, struct eg_given *with,
                    eg_dtype *was);
/* Reads the tensors of .with, up to the first whose name is NULL, with the bounds of tensors of
 * integers. For messages: the expressions text and other that read them (NULL: none) and the dtypes
 * `was` of eg__given_cast. False after an error: a tensor cannot be used, or tensors of floats have
 * different dtypes. */
bool eg__given_read(eg_ctx *, const char *who, const char *text, const char *other,
                    const struct eg_given *with, const eg_dtype *was, eg_given_tensors *);
/* Expressions of which runs of a captured step may read other integers. */
enum { EG_WIDENED = 2 };
typedef struct eg_widening {
    int count; /* tensors */
    eg_readable *readable;
    uint32_t fixed;               /* bits: tensors whose bounds remain */
    eg_expression *e[EG_WIDENED]; /* may be NULL */
    /* calls eg__expression_fits, or what sets the same, of each expression with the bounds in x */
    bool (*fits)(eg_ctx *, void *user, const eg_readable *x);
    void *user;
} eg_widening;
/* In a captured step, makes the bounds of integers in w->readable as wide as the indices of the
 * expressions, which fit with the present bounds, and the width of their integers allow, so that
 * runs may read other integers. The bits of the values do not depend on bounds. False after an
 * error. */
bool eg__given_widen(eg_ctx *, const eg_widening *w);
/* eg__expression_fits of an expression over letters low … high of these sizes, with the bounds of
 * the tensors. In a captured step these are widened, and acts are appended: each run refuses
 * integers outside of them. False after an error. */
bool eg__given_fit(eg_ctx *, const eg_expression_source *, eg_expression *, const int64_t *low,
                   const int64_t *high, const int64_t *size, eg_given_tensors *);
/* eg__expression_parse of a source that reads these tensors, with a cache of parsed texts. NULL
 * after an error. */
eg_expression *eg__expression_read(eg_ctx *, const eg_expression_source *,
                                   const eg_given_tensors *);
/* True if each of the tensors is read by one of the expressions, which may be NULL; else records an
 * error. what: the name of the texts in the message, such as ".where or .score". */
bool eg__given_used(eg_ctx *, const char *who, const eg_given_tensors *, const eg_expression *a,
                    const eg_expression *b, const char *what);
/* Returns the letters that are positions in an expression: `known`, those that it computes with or
 * compares, and those that index an axis which is elsewhere indexed by one of these or by anything
 * else. The other letters are batches: each alone indexes its axes, wherever it occurs. */
uint32_t eg__expression_positions(const eg_expression *, uint32_t known);
/* True if no tensor of .with is longer than a letter that alone indexes an axis of it and is not
 * among `positions`; else records an error. A table of positions may be longer than the sequence,
 * but a part of a batch or a head that is never read is a mistake. The expression may be NULL. */
bool eg__given_lengths(eg_ctx *, const eg_expression_source *, const eg_expression *,
                       uint32_t positions, const int64_t *size);
/* Sets the smallest and the largest element of a tensor of integers or bools; 0 and 0 if it is
 * empty. */
void eg__extremes(const eg_tensor *x, int64_t *least, int64_t *most);
/* In a captured step, appends an act: each run refuses elements of x outside of these bounds, for
 * which the step was planned. False after an error. */
bool eg__extremes_act(const char *who, eg_tensor *x, int64_t least, int64_t most);
/* The values of an expression over tensors. */
typedef struct eg_expression_values {
    const char *who;
    const eg_expression *e;
    int root, letters;    /* node `root` is computed for all positions of the letters, … */
    const int64_t *size;  /* … of these sizes, … */
    const int64_t *first; /* … from these positions on; NULL: from 0 */
    eg_tensor *const *x;  /* the tensors that it reads */
    int count;
    bool f64;
} eg_expression_values;
/* Returns a tensor of the values, which is not recorded; for copies it is computed from each copy's
 * elements. In a captured step this is an act. NULL after an error. */
eg_tensor *eg__expression_values(eg_ctx *, const eg_expression_values *, eg_dtype, int rank,
                                 const int64_t *dims);
#endif
