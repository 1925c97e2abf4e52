/* eingrad einsum: contraction of .npy files, and its gradient. */
#include "tools.h"
#include <stdlib.h>
#include <string.h>

typedef struct einsum {
    const char *out, *grad;
    list g;
    bool broadcast;
} einsum;
#define AT(member) offsetof(einsum, member), 0, 0, false
static const option options[] = {
    { 'o', "out", OUTPUT, "OUT.npy", "where to write the result (default: it is printed)",
      AT(out) },
    { 0, "broadcast", FLAG, NULL, "allow a size of 1 under a letter, as NumPy does",
      AT(broadcast) },
    { 0, "grad", INPUT, "W.npy",
      "the gradient of sum(out * W) too; W has the result's shape and type (default: no gradient)",
      AT(grad) },
    { 'g', NULL, OUTPUTS, "dA.npy",
      "where to write the gradient of an operand, once for each (default: it is printed)", AT(g) },
    { 0 }
};
enum { OPERANDS = 64 };

/* -- W has the shape and type of the result --------------------------------------------------- */
static const char *kind(const eg_tensor *x, char *out, size_t size) /* "f64 (3, 5)" */
{
    size_t n = (size_t)snprintf(out, size, "%s (", eg_type_name(eg_type(x)));
    for (int k = 0; k < eg_rank(x) && n < size; k++)
        n += (size_t)snprintf(out + n, size - n, k ? ", %lld" : "%lld", (long long)eg_dim(x, k));
    if (n < size) snprintf(out + n, size - n, ")");
    return out;
}

/* True if w has the dtype and shape of y; else prints both. */
static bool fits(const char *path, const eg_tensor *w, const eg_tensor *y)
{
    char a[1024], b[1024];
    if (strcmp(kind(w, a, sizeof a), kind(y, b, sizeof b)) == 0) return true;
    print_error("--grad %s is %s, but the result is %s", path, a, b);
    return false;
}

/* -- the command ------------------------------------------------------------------------------ */
/* Prints why an operand could not be read, and, if its path looks like a shape, which commands take
 * one. Returns the exit status. */
static int not_read(eg_ctx *cx, const char *path)
{
    if (*path < '0' || *path > '9' || path[strspn(path, "0123456789x")])
        return print_context_error(cx, NULL);
    return print_error("%s; einsum reads .npy files, shapes such as %s are for %s explain and %s "
                       "gradcheck",
                       eg_error(cx), path, program(), program());
}
/* Reads the operands, contracts them and writes or prints the result and gradients. Returns the
 * exit status. */
static int contract(eg_ctx *cx, const einsum *o, const char *spec, int count, char **path)
{
    eg_tensor *x[OPERANDS], *dx[OPERANDS];
    for (int k = 0; k < count; k++) {
        x[k] = eg_npy_load(cx, path[k]);
        if (eg_error(cx)) return not_read(cx, path[k]);
    }
    eg_tensor *w = o->grad ? eg_npy_load(cx, o->grad) : NULL;
    const eg_einsum_args a = {
        .size = sizeof a, .spec = spec, .count = count, .operands = x, .broadcast = o->broadcast
    };
    eg_tensor *y = eg_einsum_with(&a);
    if (eg_error(cx)) return print_context_error(cx, NULL);
    if (w && !fits(o->grad, w, y)) return EXIT_FAILURE;
    if (w && eg_grad(y, w, count, x, dx)) return print_context_error(cx, NULL);

    eg_tensor *out[OPERANDS + 1];
    const char *to[OPERANDS + 1];
    int outputs = 0;
    if (o->out) to[outputs] = o->out, out[outputs++] = y;
    for (int k = 0; k < o->g.count; k++) to[outputs] = o->g.item[k], out[outputs++] = dx[k];
    if (eg_npy_save_n(outputs, to, out)) return print_context_error(cx, NULL);
    if (!o->out) eg_print(stdout, y);
    for (int k = 0; o->grad && !o->g.count && k < count; k++) {
        printf("gradient of operand %d, %s:\n", k + 1, path[k]);
        eg_print(stdout, dx[k]);
    }
    return eg_error(cx) ? print_context_error(cx, NULL) : EXIT_SUCCESS;
}

static bool prints(const void *values)
{
    const einsum *o = values;
    return !o->out || (o->grad && !o->g.count);
}

static int run(const command *c, int count, char **word)
{
    einsum o = { 0 };
    words w;
    parsed p = read_options(c, count, word, &o, &w);
    int status = p == HELPED ? EXIT_SUCCESS : EXIT_FAILURE, operands = w.count - 1;
    if (p == PARSED) {
        if (operands < 1)
            print_error(
                "einsum needs SPEC and a .npy file for each operand, as in: %s einsum ij,jk A.npy "
                "B.npy",
                program());
        else if (operands > OPERANDS)
            print_error("einsum takes at most %d operands, not %d", OPERANDS, operands);
        else if (o.g.count && !o.grad)
            print_error("-g needs --grad W.npy: it writes the gradient of sum(out * W)");
        else if (o.g.count && o.g.count != operands)
            print_error("-g is given %d time%s for %d operand%s: once for each", o.g.count,
                        o.g.count == 1 ? "" : "s", operands, operands == 1 ? "" : "s");
        else {
            eg_ctx *cx = eg_open();
            status = cx ? contract(cx, &o, w.word[0], operands, w.word + 1)
                        : print_context_error(cx, NULL);
            eg_close(cx);
        }
    }
    free(o.g.item);
    return status;
}

const command einsum_command = {
    .name = "einsum",
    .usage = "SPEC A.npy [B.npy...] [-o OUT.npy] [--broadcast] [--grad W.npy [-g dA.npy...]]",
    .about = "contract .npy files, print or write the result",
    .more = "The word after einsum is SPEC, whatever it begins with: \"ij,jk->ik\", \"->\", \"\" "
            "(docs/notation.md).\n"
            "f4 f8 i4 i8 b1 are read as they are, u1 i1 i2 u2 as i4, f2 as f4; integers are summed "
            "in i8.\n\n"
            "  einsum \"bihd,bjhd->bhij\" Q.npy K.npy -o scores.npy\n"
            "  einsum \"ij,jk->ik\" A.npy B.npy -o C.npy --grad W.npy -g dA.npy -g dB.npy\n",
    .options = options,
    .first = "SPEC",
    .run = run,
    .input = "the operand",
    .input_first = 1,
    .input_count = OPERANDS,
    .prints = prints,
};
