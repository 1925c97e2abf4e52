/* eingrad explain: how an einsum of these shapes would be computed, and its cost. */
#include "tools.h"
#include <stdlib.h>
#include <string.h>

typedef struct explain {
    bool broadcast;
    const char *type;
    int64_t limit, keep_limit; /* −1: not given */
} explain;
static const option options[] = {
    { 0, "broadcast", FLAG, NULL, "allow a size of 1 under a letter, as NumPy does",
      offsetof(explain, broadcast), 0, 0, false },
    { 0, "type", CHOICE, "f32|f64|f16|bf16", "dtype of the operands (default f32)",
      offsetof(explain, type), 0, 0, false },
    { 0, "limit", INTEGER, "BYTES", "most bytes of a result between two steps (default: no limit)",
      offsetof(explain, limit), 0, 0x1p62, false },
    { 0, "keep-limit", INTEGER, "BYTES",
      "most bytes of such results that are kept for the gradient (default: no limit)",
      offsetof(explain, keep_limit), 0, 0x1p62, false },
    { 0 }
};
enum { OPERANDS = 64 };

static eg_dtype explain_type(const char *name)
{
    static const eg_dtype of[] = { EG_F32, EG_F64, EG_F16, EG_BF16 };
    int k = 0;
    while (strcmp(eg_type_name(of[k]), name) != 0) k++;
    return of[k];
}
/* Converts a limit to that of the library, where 0 means none and EG_OFF means 0. */
static int64_t limit_of(int64_t given) { return given < 0 ? 0 : given ? given : EG_OFF; }

/* Explains an einsum of these shapes. Returns the exit status. */
static int report(const command *c, eg_ctx *cx, const explain *o, const char *spec, int count,
                  char **text)
{
    int64_t dim[OPERANDS][EG_RANK_MAX];
    eg_shape shape[OPERANDS];
    for (int k = 0; k < count; k++) {
        int rank = read_shape(c, text[k], dim[k]);
        if (rank < 0) return EXIT_FAILURE;
        shape[k] = (eg_shape){ explain_type(o->type), rank, dim[k], NULL };
    }
    const eg_explained *e = eg_explain_shapes(
        cx, .spec = spec, .count = count, .shapes = shape, .broadcast = o->broadcast,
        .limit = limit_of(o->limit), .keep_limit = limit_of(o->keep_limit));
    if (!e) return print_context_error(cx, NULL);
    fputs(e->text, stdout);
    return EXIT_SUCCESS;
}

static int run(const command *c, int count, char **word)
{
    explain o = { .type = "f32", .limit = -1, .keep_limit = -1 };
    words w;
    parsed p = read_options(c, count, word, &o, &w);
    if (p != PARSED) return p == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    if (w.count < 2)
        return print_error(
            "explain needs SPEC and the shape of each operand, as in: %s explain ij,jk->ik 4x8 8x3",
            program());
    if (w.count - 1 > OPERANDS)
        return print_error("explain takes at most %d operands, not %d", OPERANDS, w.count - 1);
    eg_ctx *cx = eg_open(.threads = 1);
    int status =
        cx ? report(c, cx, &o, w.word[0], w.count - 1, w.word + 1) : print_context_error(cx, NULL);
    eg_close(cx);
    return status;
}

const command explain_command = {
    .name = "explain",
    .usage = "SPEC SHAPE... [--broadcast] [--type T] [--limit BYTES] [--keep-limit BYTES]",
    .about = "show how an einsum of these shapes is computed: order, GEMM, cost, gradient",
    .more = "SHAPE is 4x8, or () for a scalar. The word after explain is SPEC, whatever it begins "
            "with.\n\n"
            "  explain \"ibhd,jbhd->ijbh\" 2x1x2x4 3x1x2x4\n",
    .options = options,
    .first = "SPEC",
    .run = run,
};
