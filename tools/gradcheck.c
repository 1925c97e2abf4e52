/* eingrad gradcheck: checks a gradient, and whether a wrong one would be found: that of an einsum;
 * with --op that of a softmax, a reduction, a rearrangement or attention, with masks; or one that
 * another program computed, from files (gradvalues.c). */
#include "tools.h"
#include <stdlib.h>
#include <string.h>

typedef struct gradcheck {
    bool broadcast, full, mutate, complex, kinks, tap;
    int64_t order, directions, seed;
    const char *op, *where, *score, *with, *sizes;
    double spread, rtol, atol;
} gradcheck;
#define AT(member) offsetof(gradcheck, member), 0, 0, false
static const option options[] = {
    { 0, "broadcast", FLAG, NULL, "allow a size of 1 under a letter, as NumPy does",
      AT(broadcast) },
    { 0, "order", INTEGER, "K",
      "also check derivatives of higher order, up to the K-th (default 1)",
      offsetof(gradcheck, order), 1, 8, false },
    { 0, "full", FLAG, NULL,
      "check every element of the Jacobian, instead of <result, W> with a random W", AT(full) },
    { 0, "mutate", FLAG, NULL,
      "make the gradient wrong in several ways and require that the check fails", AT(mutate) },
    { 0, "complex", FLAG, NULL, "compare with the complex step instead of differences",
      AT(complex) },
    { 0, "directions", INTEGER, "N",
      "check N random directions of each operand instead of every entry",
      offsetof(gradcheck, directions), 1, 1e6, false },
    { 0, "seed", INTEGER, "N", "seed of the random operands (default 0)", offsetof(gradcheck, seed),
      0, 9e15, false },
    { 0, "op", TEXT, "NAME", "the operation, one of the names below (default einsum)", AT(op) },
    { 0, "where", TEXT, "PREDICATE", "mask of softmax and attention: \"j <= i\"", AT(where) },
    { 0, "score", TEXT, "EXPRESSION", "score formula of attention: \"30 * tanh(score / 30)\"",
      AT(score) },
    { 0, "with", TEXT, "r=2x5,...",
      "tensors that --where and --score read: random ones of a shape, or from a file, doc=doc.npy",
      AT(with) },
    { 0, "sizes", TEXT, "h=2,...", "sizes of letters that SPEC splits, of rearrange", AT(sizes) },
    { 0, "spread", REAL, "SD", "standard deviation of the random operands (default 1)",
      offsetof(gradcheck, spread), 1e-12, 1e12, false },
    { 0, "rtol", REAL, "R", "relative tolerance (default 1e-8)", offsetof(gradcheck, rtol), 0, 1,
      false },
    { 0, "atol", REAL, "A", "tolerance relative to the largest entry (default 1e-15)",
      offsetof(gradcheck, atol), 0, 1, false },
    { 0, "kinks", FLAG, NULL, "a kink passes where the gradient is a subgradient", AT(kinks) },
    { 0, "tap", FLAG, NULL, "print the result as a line of the Test Anything Protocol", AT(tap) },
    { 0 }
};
enum { OPERANDS = 64 };

typedef struct product {
    const char *spec, *where, *score;
    int count;
    bool broadcast;
    eg_given with[8];
    /* by entry of `with`: the number of the operand that is used for it; −1: it is constant */
    int operand[8];
    char name[8][32];
    eg_rearrange_args sizes; /* used by rearrange */
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
/* Sets `with` to that of p, with this call's operands in place of float tensors. */
static void give(const product *p, eg_tensor *const *x, eg_given *with)
{
    memcpy(with, p->with, sizeof p->with);
    for (int k = 0; k < 8 && with[k].name; k++)
        if (p->operand[k] >= 0) with[k].x = x[p->operand[k]];
}
static eg_tensor *attention(void *user, eg_tensor *const *x)
{
    const product *p = user;
    eg_attention_args a = { .size = sizeof a,
                            .spec = p->spec,
                            .q = x[0],
                            .k = x[1],
                            .v = x[2],
                            .where = p->where,
                            .score = p->score };
    give(p, x, a.with);
    return eg_attention_with(&a);
}
static eg_tensor *softmax(void *user, eg_tensor *const *x)
{
    const product *p = user;
    eg_softmax_args a = { .size = sizeof a, .spec = p->spec, .x = x[0], .where = p->where };
    give(p, x, a.with);
    return eg_softmax_with(&a);
}
static eg_tensor *log_softmax(void *user, eg_tensor *const *x)
{
    const product *p = user;
    eg_softmax_args a = { .size = sizeof a, .spec = p->spec, .x = x[0], .where = p->where };
    give(p, x, a.with);
    return eg_log_softmax_with(&a);
}
static eg_tensor *rearrange(void *user, eg_tensor *const *x)
{
    const product *p = user;
    eg_rearrange_args a = p->sizes;
    a.size = sizeof a;
    a.spec = p->spec;
    a.operand = x[0];
    return eg_rearrange_with(&a);
}
#define OF_ONE(NAME)                                           \
    static eg_tensor *NAME(void *user, eg_tensor *const *x)    \
    {                                                          \
        return eg_##NAME(((const product *)user)->spec, x[0]); \
    }
OF_ONE(sum)
OF_ONE(mean)
OF_ONE(prod)
OF_ONE(max)
OF_ONE(min)
OF_ONE(logsumexp)
OF_ONE(cumsum)
OF_ONE(var)
OF_ONE(std)
OF_ONE(layernorm)
OF_ONE(rmsnorm)
static const struct operation {
    const char *name;
    eg_function *f;
    int operands; /* 0: any number */
    bool where, sizes;
} operations[] = {
    { "einsum", einsum, 0, false, false },
    { "attention", attention, 3, true, false },
    { "softmax", softmax, 1, true, false },
    { "log_softmax", log_softmax, 1, true, false },
    { "rearrange", rearrange, 1, false, true },
    { "sum", sum, 1, false, false },
    { "mean", mean, 1, false, false },
    { "prod", prod, 1, false, false },
    { "max", max, 1, false, false },
    { "min", min, 1, false, false },
    { "logsumexp", logsumexp, 1, false, false },
    { "cumsum", cumsum, 1, false, false },
    { "var", var, 1, false, false },
    { "std", std, 1, false, false },
    { "layernorm", layernorm, 1, false, false },
    { "rmsnorm", rmsnorm, 1, false, false },
};
static const char *operation_name(int k)
{
    return k < (int)(sizeof operations / sizeof *operations) ? operations[k].name : NULL;
}
static void list_operations(FILE *f)
{
    fprintf(f, "\nNAME of --op:");
    for (int k = 0; operation_name(k); k++) fprintf(f, " %s", operation_name(k));
    fprintf(f, "\n");
}
/* NULL, after an error message, if the options do not fit. */
static const struct operation *operation_of(const gradcheck *o, int count)
{
    const struct operation *p = NULL;
    for (int k = 0; operation_name(k); k++)
        if (!strcmp(operation_name(k), o->op ? o->op : "einsum")) p = &operations[k];
    if (!p) {
        const char *near = nearest(o->op, operation_name);
        near ? print_error("--op: there is no \"%s\"; is it %s?", o->op, near)
             : print_error("--op: there is no \"%s\"; see %s gradcheck --help", o->op, program());
    } else if (p->operands && p->operands != count)
        print_error("%s takes %d operand%s, and %d %s given", p->name, p->operands,
                    p->operands > 1 ? "s" : "", count, count == 1 ? "shape was" : "shapes were");
    else if (o->where && !p->where)
        print_error("--where is for attention and softmax, not for %s", p->name);
    else if (o->score && p->f != attention)
        print_error("--score is for attention, not for %s", p->name);
    else if (o->with && !p->where)
        print_error("--with is for attention and softmax, not for %s", p->name);
    else if (o->sizes && !p->sizes)
        print_error("--sizes is for rearrange, not for %s", p->name);
    else
        return p;
    return NULL;
}
/* Reads "h=2,d=8" into the members with these letters. */
static bool read_sizes(const char *s, eg_rearrange_args *a)
{
    for (; s && *s; s += *s == ',') {
        char number[24];
        int64_t v;
        const size_t n = strcspn(s, ",");
        if (n < 3 || n - 2 >= sizeof number || s[0] < 'a' || s[0] > 'z' || s[1] != '=') break;
        snprintf(number, sizeof number, "%.*s", (int)(n - 2), s + 2);
        if (!read_integer(number, &v) || v < 1) break;
        memcpy((char *)a + offsetof(eg_rearrange_args, a) + (size_t)(s[0] - 'a') * sizeof v, &v,
               sizeof v);
        s += n;
        if (!*s) return true;
    }
    if (s) print_error("--sizes must be as in h=2,d=8, not \"%s\"", s);
    return !s;
}

/* Reads "r=2x5,doc=doc.npy": tensors with these names; float tensors become operands, from
 * x[*count] on. */
static bool read_with(const command *c, eg_ctx *cx, const gradcheck *o, product *f, eg_tensor **x,
                      int *count)
{
    int n = 0;
    for (const char *s = o->with; s && *s; s += *s == ',', n++) {
        char what[512];
        int64_t dim[EG_RANK_MAX];
        const size_t all = strcspn(s, ","), name = strcspn(s, "=,");
        if (n == 8) return print_error("--with takes at most 8 tensors"), false;
        if (!name || name == all || name >= sizeof f->name[n] || all - name > sizeof what)
            return print_error("--with must be as in r=2x5,doc=doc.npy, not \"%s\"", o->with),
                   false;
        snprintf(f->name[n], sizeof f->name[n], "%.*s", (int)name, s);
        snprintf(what, sizeof what, "%.*s", (int)(all - name - 1), s + name + 1);
        const bool file = strlen(what) > 4 && !strcmp(what + strlen(what) - 4, ".npy");
        const int rank = file ? 0 : read_shape(c, what, dim);
        if (rank < 0) return false;
        eg_tensor *t =
            file ? eg_npy_load(cx, what) : eg_normal_n(cx, EG_F64, 0, o->spread, rank, dim);
        if (eg_error(cx)) return print_context_error(cx, NULL), false;
        const bool real = eg_type(t) == EG_F32 || eg_type(t) == EG_F64;
        f->operand[n] = real ? *count : -1;
        f->with[n] = (eg_given){ f->name[n], t };
        if (real) x[(*count)++] = eg_cast(t, EG_F64);
        s += all;
    }
    return true;
}

/* Writes the letters or names of the operands, for the report, if each names one axis and there are
 * as many terms as shapes. A blank in a term means that it has names. */
static const char *letters(const char *spec, int count, char *out, size_t size)
{
    const char *colon = strchr(spec, ':');
    const bool names = colon && spec[strspn(spec, " \t\r\n")] == 'n';
    if (colon) spec = colon + 1;
    const char *arrow = strstr(spec, "->");
    const size_t n = arrow ? (size_t)(arrow - spec) : strlen(spec);
    size_t at = 0;
    if (2 * n + 2 >= size || strcspn(spec, "([.1") < n) return NULL;
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

/* Draws operands of the shapes, checks the gradient and prints the report. Returns the exit
 * status. */
static int check(const command *c, eg_ctx *cx, const gradcheck *o, const char *spec, int count,
                 char **shape)
{
    eg_tensor *x[OPERANDS + 8];
    char names[OPERANDS * 4 + 8 * 32] = "", axes[4096];
    const int shapes = count;
    const struct operation *op = operation_of(o, count);
    product f = { .spec = spec,
                  .where = o->where,
                  .score = o->score,
                  .count = count,
                  .broadcast = o->broadcast };
    if (!op || !read_sizes(o->sizes, &f.sizes)) return EXIT_FAILURE;
    for (int k = 0; k < count; k++) {
        int64_t dim[EG_RANK_MAX];
        int rank = read_shape(c, shape[k], dim);
        if (rank < 0) return EXIT_FAILURE;
        x[k] = eg_normal_n(cx, EG_F64, 0, o->spread, rank, dim);
        size_t at = strlen(names);
        snprintf(names + at, sizeof names - at, "%s%c", k ? "," : "", 'A' + k);
    }
    if (!read_with(c, cx, o, &f, x, &count)) return EXIT_FAILURE;
    for (int k = 0; k < 8 && f.with[k].name; k++)
        if (f.operand[k] >= 0)
            snprintf(names + strlen(names), sizeof names - strlen(names), ",%s", f.name[k]);
    const eg_report *r =
        eg_gradcheck(.f = op->f, .user = &f, .count = count, .xs = x,
                     .names = shapes <= 26 ? names : NULL,
                     .axes = count == shapes && (op->f == einsum || op->f == attention)
                                 ? letters(spec, count, axes, sizeof axes)
                                 : NULL,
                     .rtol = o->rtol, .atol = o->atol, .kinks = o->kinks, .order = (int)o->order,
                     .directions = (int)o->directions, .full = o->full, .mutate = o->mutate,
                     .oracle = o->complex ? EG_COMPLEX_STEP : EG_DIFFERENCES,
                     .seed = (uint64_t)o->seed);
    if (!r) return print_context_error(cx, NULL);
    if (r->passed && r->entries && !r->covered && !r->elsewhere)
        return print_error(
            "nothing was tested: the result does not depend on the operands, or is empty");
    if (o->tap)
        printf("1..1\n"), eg_report_tap(stdout, r, 1, spec);
    else
        eg_report_print(stdout, r);
    return r->passed ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int run(const command *c, int count, char **word)
{
    if (count && (!strcmp(word[0], "--values") || !strcmp(word[0], "--points")))
        return check_values(count, word);
    gradcheck o = { .order = 1, .spread = 1 };
    words w;
    parsed p = read_options(c, count, word, &o, &w);
    if (p != PARSED) return p == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    if (w.count < 2)
        return print_error(
            "gradcheck needs SPEC and the shape of each operand, as in: %s gradcheck ij,jk 4x8 8x3",
            program());
    if (w.count - 1 > OPERANDS)
        return print_error("gradcheck takes at most %d operands, not %d", OPERANDS, w.count - 1);
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = (uint64_t)o.seed);
    int status =
        cx ? check(c, cx, &o, w.word[0], w.count - 1, w.word + 1) : print_context_error(cx, NULL);
    eg_close(cx);
    return status;
}

const command gradcheck_command = {
    .name = "gradcheck",
    .usage = "SPEC SHAPE... [--broadcast] [--order K]",
    .about = "check the gradient of an einsum, softmax, attention ... at random f64 operands",
    .more = "SHAPE is 4x8, or () for a scalar. The word after gradcheck is SPEC, whatever it "
            "begins with.\n"
            "The exit status is 0 only if every entry is right and every operand was tested.\n\n"
            "  gradcheck \"ibhd,jbhd->ijbh\" 3x2x2x4 5x2x2x4\n"
            "  gradcheck \"i [j]\" 3x4 --op softmax --where \"j <= i\"\n"
            "  gradcheck \"id,jd,je->ie\" 3x4 5x4 5x2 --op attention --where \"j <= i\"\n"
            "  gradcheck \"id,jd,je->ie\" 3x4 5x4 5x2 --op attention "
            "--score \"score + r[clip(i - j, 0, 3)]\" --with r=4\n"
            "\nFor values that another program computes (each row of POINTS is a point x):\n"
            "  gradcheck --points x.npy --out POINTS.npy\n"
            "  gradcheck --values POINTS.npy --results F.npy --gradient G.npy [--weights W.npy]\n"
            "            [--kinks] [--points x.npy, whose shape G.npy must have]\n",
    .options = options,
    .list = list_operations,
    .first = "SPEC",
    .run = run,
};
