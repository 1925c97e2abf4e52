/* eingrad explain: what an einsum of these shapes is, and what it costs. */
#include "tools.h"
#include <stdlib.h>
#include <string.h>

typedef struct explain {
    bool broadcast;
    const char *type;
} explain;
static const option options[] = { { 0, "broadcast", FLAG, NULL,
                                    "allow a size of 1 under a letter, as NumPy does",
                                    offsetof(explain, broadcast), 0, 0, false },
                                  { 0, "type", CHOICE, "f32|f64", "of the operands (default f32)",
                                    offsetof(explain, type), 0, 0, false },
                                  { 0 } };
enum { OPERANDS = 64 };

/* Explains an einsum of these shapes; the exit status. */
static int report(const command *c, eg_ctx *cx, const explain *o, const char *spec, int count,
                  char **text)
{
    int64_t dim[OPERANDS][EG_RANK_MAX];
    eg_shape shape[OPERANDS];
    for (int k = 0; k < count; k++) {
        int rank = read_shape(c, text[k], dim[k]);
        if (rank < 0) return EXIT_FAILURE;
        shape[k] = (eg_shape){ strcmp(o->type, "f64") == 0 ? EG_F64 : EG_F32, rank, dim[k], NULL };
    }
    const eg_explained *e = eg_explain_shapes(cx, spec, o->broadcast, count, shape);
    if (!e) return say_error(cx, NULL);
    fputs(e->text, stdout);
    return EXIT_SUCCESS;
}

static int run(const command *c, int count, char **word)
{
    explain o = { .type = "f32" };
    words w;
    parsed p = read_options(c, count, word, &o, &w);
    if (p != PARSED) return p == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    if (w.count < 2)
        return say(
            "explain needs SPEC and the shape of each operand, as in: %s explain ij,jk->ik 4x8 8x3",
            program());
    if (w.count - 1 > OPERANDS)
        return say("explain takes at most %d operands, not %d", OPERANDS, w.count - 1);
    eg_ctx *cx = eg_open(.threads = 1);
    int status = cx ? report(c, cx, &o, w.word[0], w.count - 1, w.word + 1) : say_error(cx, NULL);
    eg_close(cx);
    return status;
}

const command explain_command = {
    .name = "explain",
    .usage = "SPEC SHAPE... [--broadcast] [--type T]",
    .about = "what an einsum of these shapes is: order, GEMM, cost, gradient",
    .more = "SHAPE is 4x8, or () for a scalar. The word after explain is SPEC, whatever it begins "
            "with.\n\n"
            "  explain \"ibhd,jbhd->ijbh\" 2x1x2x4 3x1x2x4\n",
    .options = options,
    .first = "SPEC",
    .run = run,
};
