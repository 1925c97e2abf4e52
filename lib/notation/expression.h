/* expression.h: formulas of index notation, as "30 * tanh((score + r[h, clip(i - j, 0, 127)]) /
 * 30)": parsed once to a list of typed nodes, evaluated and differentiated in blocks.
 *
 *   expression.c        text → nodes, equal ones once, constants folded
 *   expression_range.c  where whole numbers and truths lie while letters go over a box
 *   expression_block.c  values and cotangents of a block of rows × lanes
 *   expression_loops.c  the loops of it, made from expression_rows.h
 *
 * docs/expressions.md describes the language. Part of notation.h, which other folders include. */
#ifndef EG_EXPRESSION_H
#define EG_EXPRESSION_H
#include "notation/notation.h"
#include "notation/expression_rows.h"

enum {
    EG_GIVEN_MAX = 8,   /* tensors of .with */
    EG_READ_MAX = 8,    /* axes of a tensor that is read */
    EG_NODES_MAX = 256, /* nodes of an expression */
    EG_EXPRESSION_LETTERS = 32,
    EG_PLACES_MAX = 256 /* names in a text whose places are asked for */
};

/* What a node makes: a row of expression_rows.h, or one of these. */
typedef enum eg_node_code {
    EG_X_WHOLE,  /* a constant, .whole */
    EG_X_FLOAT,  /* a constant, .real */
    EG_X_LETTER, /* the position along letter in[0] */
    EG_X_SIZE,   /* the size of letter in[0], .whole once the sizes are known */
    EG_X_SCORE,  /* the caller's number of each element */
    EG_X_READ,   /* an element of tensor .tensor at the whole numbers in[0] … in[count − 1] */
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
    EG_X_TO_FLOAT, /* a whole number as a float */
    EG_X_ADD,
    EG_X_SUB,
    EG_X_MUL,
    EG_X_DIV,
    EG_X_MOD, /* of whole numbers; of floats it is made of others */
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
    EG_X_CLIP,   /* in[0] between in[1] and in[2] */
    EG_X_CODES
} eg_node_code;
typedef enum eg_value_kind { EG_IS_NOTHING, EG_IS_WHOLE, EG_IS_FLOAT, EG_IS_TRUTH } eg_value_kind;

/* One value. Operands have smaller numbers. */
typedef struct eg_node {
    uint8_t code, kind;
    uint8_t count;  /* operands */
    uint8_t tensor; /* of a read: which of the given */
    bool guard;     /* of a read: an index can leave its axis where the value is not used */
    bool plain;     /* of a read: it stands without brackets */
    uint8_t in[EG_READ_MAX];
    uint32_t letters;    /* bit k: the value depends on the position along letter k */
    uint16_t at, length; /* where it stands in the text */
    union {
        int64_t whole;
        double real;
    };
} eg_node;

/* It points nowhere: its bytes can be copied. */
typedef struct eg_expression {
    int nodes, root;
    int letters;
    uint32_t positions, sizes; /* letters that occur as i, as |i| */
    uint32_t reads;            /* tensors that are read */
    bool score;                /* the score is read */
    bool narrow;               /* every whole number fits in 32 bits; set by eg__expression_fits */
    eg_node node[];
} eg_expression;

/* A tensor that the text may read. */
typedef struct eg_readable {
    const char *name;
    eg_dtype dtype;
    int rank;
    const int64_t *dim;
    int64_t least, most; /* its values lie there, if they are whole numbers */
} eg_readable;

/* Where a name stands in a text: its bytes [name, name + length), and what an edit replaces,
 * [from, to): with its bars if it is a size, |i|. */
typedef struct eg_name_place {
    int name, length, from, to;
    bool size;
} eg_name_place;
/* What a text is parsed with. */
typedef struct eg_expression_source {
    const char *who, *text;
    const char *noun; /* what messages call it: "predicate", "score", "expression" */
    int letters;
    const eg_axis_name *const *letter;
    int given;
    const eg_readable *readable;
    bool score;     /* the word score stands for the caller's number */
    bool whole;     /* a name without brackets reads all letters in order */
    bool predicate; /* whole numbers and truths only, and a truth in the end */
    bool number;    /* a number in the end, made a float */
    /* Any name is an index, of one letter to the nodes, and a predicate may be a number in the end;
     * *places of them go here in order of the text. NULL: names are those of `letter`, `readable`
     */
    eg_name_place *place; /* EG_PLACES_MAX of them */
    int *places;
} eg_expression_source;

/* NULL after a message with a caret. The sizes of the letters are not looked at. */
eg_expression *eg__expression_parse(eg_ctx *, const eg_expression_source *);
size_t eg__expression_bytes(const eg_expression *);
/* Gives each letter whose size[k] is −1 the size of the axes that it alone indexes: of names
 * without brackets, then of others. False after a message: sizes that disagree, a letter without
 * one. */
bool eg__expression_sizes(eg_ctx *, const eg_expression_source *, const eg_expression *,
                          int64_t *size);

/* -- ranges ----------------------------------------------------------------------------------- */
/* Positions of letter k: low[k] ≤ i < high[k]; its size size[k]. least, most: of each tensor of
 * whole numbers. */
typedef struct eg_box {
    const int64_t *low, *high, *size;
    int64_t least[EG_GIVEN_MAX], most[EG_GIVEN_MAX];
} eg_box;
/* A whole number lies in [low, high]; a truth is (0, 0) never, (1, 1) always, (0, 1) unknown. */
typedef struct eg_interval {
    int64_t low, high;
} eg_interval;
/* Of all nodes, into range[0 … nodes). */
void eg__expression_ranges(const eg_expression *, const eg_box *, eg_interval *range);
/* Writes the sizes into the nodes and finds out whether 32 bits are enough; false after a message
 * with a caret: an index can leave its axis. */
bool eg__expression_fits(eg_ctx *, const eg_expression_source *, eg_expression *, const eg_box *);
/* The root, a truth, over a box. */
eg_cover eg__expression_cover(const eg_expression *, const eg_box *);

/* -- blocks ----------------------------------------------------------------------------------- */
/* Where a letter is: first, first + 1 … along rows or lanes, or at value[0], value[1] … */
typedef struct eg_place {
    int64_t first;
    const int64_t *value; /* NULL: it counts */
} eg_place;
/* A value does not depend on rows and lanes, or on one, or on both. */
typedef enum eg_extent {
    EG_EXTENT_ONE,
    EG_EXTENT_ROWS,
    EG_EXTENT_LANES,
    EG_EXTENT_BLOCK
} eg_extent;
/* The layout of a workspace for blocks of at most rows × lanes. */
typedef struct eg_block_plan {
    const eg_expression *e;
    int root;
    int rows, lanes;
    bool f64;                 /* floats are doubles */
    bool narrow;              /* whole numbers have 32 bits */
    bool slopes;              /* values are kept for eg__block_slopes */
    uint32_t by_row, by_lane; /* letters that vary so */
    uint32_t wanted;          /* tensors whose cotangents are wanted; bit 31: the score's */
    size_t bytes;             /* of the workspace, 64-byte aligned */
    int64_t values, scratch, offsets, sums;
    uint8_t extent[EG_NODES_MAX];
    bool used[EG_NODES_MAX], moved[EG_NODES_MAX];  /* below the root; has a wanted cotangent */
    int64_t at[EG_NODES_MAX], slope[EG_NODES_MAX]; /* byte offsets; −1: none */
} eg_block_plan;
/* One tensor of a block: element strides. */
typedef struct eg_source {
    const void *data;
    const int64_t *stride;
    eg_dtype dtype;
    const int64_t *dim;
} eg_source;
/* Where the cotangent of a tensor goes. direct: it is written, as floats, where stride says; only
 * for a tensor that one node reads at different letters, all that vary in the loop. Else it is
 * added, rows outer, lanes inner. */
typedef struct eg_sink {
    void *data;            /* NULL: not wanted */
    const int64_t *stride; /* in elements */
    bool direct;           /* else doubles */
} eg_sink;
typedef struct eg_block_data {
    int rows, lanes;
    const eg_place *place; /* of each letter */
    const eg_source *source;
    const void *score;
    /* floats, or i64, or truths in bytes; may be score if no slopes are wanted */
    void *out;
    int64_t score_step, out_step; /* elements from row to row */
    /* eg__block_slopes alone */
    const void *g; /* the cotangent of out */
    void *dscore;  /* written; may be g */
    int64_t g_step, dscore_step;
    const eg_sink *sink;
} eg_block_data;

/* by_row, by_lane: letters that vary along rows, along lanes; wanted: 0 if no slopes are. */
void eg__block_plan(eg_block_plan *, const eg_expression *, int root, bool f64, int rows, int lanes,
                    uint32_t by_row, uint32_t by_lane, uint32_t wanted);
void eg__block_values(const eg_block_plan *, const eg_block_data *, void *workspace);
/* After eg__block_values of the same block in the same workspace. */
void eg__block_slopes(const eg_block_plan *, const eg_block_data *, void *workspace);
#endif
