/* eingrad ops: the table of the library's operations. */
#include "tools.h"
#include <stdlib.h>
#include <string.h>

static const char *op_name(int k) { return eg_op_at(k) ? eg_op_at(k)->name : NULL; }

static const char *text_of(const char *s) { return s ? s : "none"; }

/* Writes the range from which the samples of the operation draw their operands. */
static void domain(const eg_op *op, char *out, size_t size)
{
    double low = 0, high = 0;
    for (const eg_sample *s = op->samples; s && s->call; s++) {
        double a = s->low == 0 && s->high == 0 ? -2 : s->low,
               b = s->low == 0 && s->high == 0 ? 2 : s->high;
        if (s == op->samples || a < low) low = a;
        if (s == op->samples || b > high) high = b;
    }
    if (op->samples && op->samples->call)
        snprintf(out, size, "[%g, %g]", low, high);
    else
        snprintf(out, size, "not sampled");
}

/* Prints the table of the operations that are named, or of all: one pass for the widths, one to
 * print. */
static void rows(int count, char **name)
{
    int wide[3] = { 4, 8, 8 };
    char where[64];
    for (int pass = 0; pass < 2; pass++)
        for (int k = -1; k < 0 || eg_op_at(k); k++) {
            const eg_op *op = eg_op_at(k);
            bool wanted = !count || !op;
            for (int j = 0; j < count && !wanted; j++) wanted = strcmp(name[j], op->name) == 0;
            if (!wanted) continue;
            if (op) domain(op, where, sizeof where);
            const char *cell[] = { "name", "equation", "gradient" };
            if (op) {
                cell[0] = op->name;
                cell[1] = text_of(op->equation);
                cell[2] = text_of(op->gradient);
            }
            for (int j = 0; j < 3; j++) {
                if (pass) {
                    pad(stdout, cell[j], wide[j]);
                    fputs("   ", stdout);
                } else if (columns(cell[j]) > wide[j])
                    wide[j] = columns(cell[j]);
            }
            if (pass) printf("%s\n", op ? where : "tested on");
        }
}

static int run(const command *c, int count, char **word)
{
    words w;
    parsed p = read_options(c, count, word, NULL, &w);
    if (p != PARSED) return p == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    for (int j = 0; j < w.count; j++) {
        bool found = false;
        for (int k = 0; eg_op_at(k) && !found; k++)
            found = strcmp(eg_op_at(k)->name, w.word[j]) == 0;
        const char *near = found ? NULL : nearest(w.word[j], op_name);
        if (!found)
            return near ? print_error("there is no operation \"%s\"; is it %s?", w.word[j], near)
                        : print_error("there is no operation \"%s\"; %s ops lists them", w.word[j],
                                      program());
    }
    rows(w.count, w.word);
    return EXIT_SUCCESS;
}

const command ops_command = {
    .name = "ops",
    .usage = "[NAME...]",
    .about = "list the operations: name, equation, gradient, domain of the test",
    .run = run,
    .more = "x, a, b are operands, y the result, g the gradient with respect to y; dx, da, db "
            "those with respect to the operands.\n\n"
            "  ops softmax layernorm\n",
};
