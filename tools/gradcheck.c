/* eingrad gradcheck: is the gradient of this einsum right, and was it tested? */
#include "tools.h"
#include <stdlib.h>
#include <string.h>

typedef struct gradcheck {
    bool broadcast, full, mutate, complex;
    int64_t order, directions, seed;
} gradcheck;
#define AT(member) offsetof(gradcheck, member), 0, 0, false
static const option options[] = {
    { 0, "broadcast", FLAG, NULL, "allow a size of 1 under a letter, as NumPy does",
      AT(broadcast) },
    { 0, "order", WHOLE, "K", "the gradient of the gradient … too, up to the K-th (default 1)",
      offsetof(gradcheck, order), 1, 8, false },
    { 0, "full", FLAG, NULL,
      "every element of the Jacobian, instead of <result, W> with a random W", AT(full) },
    { 0, "mutate", FLAG, NULL,
      "make the gradient wrong in many ways and demand that the check notices", AT(mutate) },
    { 0, "complex", FLAG, NULL, "the complex step instead of differences", AT(complex) },
    { 0, "directions", WHOLE, "N", "N random directions of each operand instead of every entry",
      offsetof(gradcheck, directions), 1, 1e6, false },
    { 0, "seed", WHOLE, "N", "of the random operands (default 0)", offsetof(gradcheck, seed), 0,
      9e15, false },
    { 0 }
};
enum { OPERANDS = 64 };

typedef struct product {
    const char *spec;
    int count;
    bool broadcast;
} product;
static eg_tensor *einsum(void *user, eg_tensor *const *x)
{
    const product *p = user;
    const eg_einsum_args a = { .size = sizeof a,
                               .spec = p->spec,
                               .count = p->count,
                               .operands = x,
                               .broadcast = p->broadcast };
    return eg_einsum_with(&a);
}

/* The letters or names of the operands, for the report, where each stands for one axis and there
 * are as many terms as shapes. A blank in a term says that it is in names. */
static const char *letters(const char *spec, int count, char *out, size_t room)
{
    const char *colon = strchr(spec, ':');
    const bool names = colon && spec[strspn(spec, " \t\r\n")] == 'n';
    if (colon) spec = colon + 1;
    const char *arrow = strstr(spec, "->");
    const size_t n = arrow ? (size_t)(arrow - spec) : strlen(spec);
    size_t at = 0;
    if (2 * n + 2 >= room || strcspn(spec, "([.1") < n) return NULL;
    if (names) out[at++] = ' ';
    for (size_t k = 0; k < n; k++) {
        out[at++] = spec[k];
        if (spec[k] != ',') continue;
        count--;
        if (names) out[at++] = ' ';
    }
    out[at] = 0;
    return count == 1 ? out : NULL;
}

/* Draws operands of the shapes, checks the gradient and prints the report; the exit status. */
static int check(const command *c, eg_ctx *cx, const gradcheck *o, const char *spec, int count,
                 char **shape)
{
    eg_tensor *x[OPERANDS];
    char names[OPERANDS * 4] = "", axes[4096];
    for (int k = 0; k < count; k++) {
        int64_t dim[EG_RANK_MAX];
        int rank = read_shape(c, shape[k], dim);
        if (rank < 0) return EXIT_FAILURE;
        x[k] = eg_normal_n(cx, EG_F64, 0, 1, rank, dim);
        size_t at = strlen(names);
        snprintf(names + at, sizeof names - at, "%s%c", k ? "," : "", 'A' + k);
    }
    product f = { spec, count, o->broadcast };
    const eg_report *r =
        eg_gradcheck(.f = einsum, .user = &f, .count = count, .xs = x,
                     .names = count <= 26 ? names : NULL,
                     .axes = letters(spec, count, axes, sizeof axes), .order = (int)o->order,
                     .directions = (int)o->directions, .full = o->full, .mutate = o->mutate,
                     .oracle = o->complex ? EG_COMPLEX_STEP : EG_DIFFERENCES,
                     .seed = (uint64_t)o->seed);
    if (!r) return say_error(cx, NULL);
    eg_report_print(stdout, r);
    return r->passed ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int run(const command *c, int count, char **word)
{
    gradcheck o = { .order = 1 };
    words w;
    parsed p = read_options(c, count, word, &o, &w);
    if (p != PARSED) return p == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    if (w.count < 2)
        return say(
            "gradcheck needs SPEC and the shape of each operand, as in: %s gradcheck ij,jk 4x8 8x3",
            program());
    if (w.count - 1 > OPERANDS)
        return say("gradcheck takes at most %d operands, not %d", OPERANDS, w.count - 1);
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = (uint64_t)o.seed);
    int status = cx ? check(c, cx, &o, w.word[0], w.count - 1, w.word + 1) : say_error(cx, NULL);
    eg_close(cx);
    return status;
}

const command gradcheck_command = {
    .name = "gradcheck",
    .usage = "SPEC SHAPE... [--broadcast] [--order K]",
    .about = "check the gradient of an einsum at random f64 operands",
    .more = "SHAPE is 4x8, or () for a scalar. The word after gradcheck is SPEC, whatever it "
            "begins with.\n"
            "The exit status is 0 only if every entry is right and every operand was tested.\n\n"
            "  gradcheck \"ibhd,jbhd->ijbh\" 3x2x2x4 5x2x2x4\n",
    .options = options,
    .first = "SPEC",
    .run = run,
};
