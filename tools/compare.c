/* eingrad compare: compares two checkpoints, or any two safetensors files: options, parameters,
 * attention weights. */
#include "train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct compare {
    const char *input, *part;
} compare;
#define AT(member) offsetof(compare, member), 0, 0, false
static const option options[] = {
    { 0, "input", TEXT, "TEXT", "also compare the attention weights on this input", AT(input) },
    { 0, "part", CHOICE, "cross|encoder|decoder",
      "which attention of a seq2seq model (default: cross)", AT(part) },
    { 0 }
};
enum { OPTIONS_MOST = 100, LINES_MOST = 20, SHOWN = 40 };

/* Prints a line of an option that differs; x or y is NULL in a file that has none. After
 * OPTIONS_MOST lines, further ones are only counted. */
static void print_option(const char *name, const char *x, const char *y, int *differ)
{
    char text[3][PRINTABLE];
    if ((*differ)++ >= OPTIONS_MOST) return;
    printable(name, text[0]);
    if (x && y)
        printf("%s: %.*s, %.*s\n", text[0], SHOWN, printable(x, text[1]), SHOWN,
               printable(y, text[2]));
    else
        printf("%s: only the %s has it\n", text[0], x ? "first" : "second");
}
/* The same of values that have several lines, such as pairs. */
static void print_longer(const char *name, int *differ)
{
    char text[PRINTABLE];
    if ((*differ)++ < OPTIONS_MOST) printf("%s: different texts\n", printable(name, text));
}

/* Returns the value of the option `name` in a configuration with lines such as "rotary 10000", and
 * sets *n to its bytes; NULL if there is none. */
static const char *config_value(const char *text, const char *name, size_t length, int *n)
{
    for (const char *s = text; s && *s; s += strcspn(s, "\n"), s += *s == '\n')
        if (!strncmp(s, name, length) && s[length] == ' ') {
            *n = (int)strcspn(s + length + 1, "\n");
            return s + length + 1;
        }
    return NULL;
}

/* Compares the lines of two configurations, either of which may be NULL. */
static void compare_configs(const char *a, const char *b, int *differ)
{
    for (int side = 0; side < 2; side++)
        for (const char *s = side ? b : a; s && *s; s += strcspn(s, "\n"), s += *s == '\n') {
            const size_t length = strcspn(s, " \n");
            int nx = 0, ny = 0;
            const char *x = config_value(a, s, length, &nx), *y = config_value(b, s, length, &ny);
            if (x && y && (side || (nx == ny && !strncmp(x, y, (size_t)nx)))) continue;
            char name[STORED_SIZE], values[2][STORED_SIZE];
            snprintf(values[0], STORED_SIZE, "%.*s", nx, x ? x : "");
            snprintf(values[1], STORED_SIZE, "%.*s", ny, y ? y : "");
            print_option(stored_name(s, length, name), x ? values[0] : NULL, y ? values[1] : NULL,
                         differ);
        }
}

/* Prints the options that differ. Returns their number. */
static int compare_options(const eg_safetensors *a, const eg_safetensors *b)
{
    int differ = 0;
    bool milestones = false;
    for (int side = 0; side < 2; side++) {
        const eg_safetensors *one = side ? b : a, *other = side ? a : b;
        for (int k = 0; eg_safetensors_key(one, k); k++) {
            char meant[2][STORED_SIZE];
            const char *key = eg_safetensors_key(one, k), *x = stored_metadata(one, key, meant[0]),
                       *y = stored_metadata(other, key, meant[1]);
            if (y && (side || !strcmp(x, y))) continue; /* equal, or already reported */
            if (!strcmp(key, "config")) {
                compare_configs(side ? y : x, side ? x : y, &differ);
                continue;
            }
            char name[STORED_SIZE], shown[2][STORED_SIZE];
            if (!strncmp(key, "milestone", 9)) { /* all of them are one option */
                if (!milestones)
                    print_option("milestones", stored_milestones(a, shown[0]),
                                 stored_milestones(b, shown[1]), &differ);
                milestones = true;
                continue;
            }
            const char *said = stored_name(key, strlen(key), name);
            if (y && (!stored_value(key, x, shown[0]) || !stored_value(key, y, shown[1])))
                print_longer(said, &differ);
            else if (side)
                print_option(said, NULL, x, &differ);
            else
                print_option(said, stored_value(key, x, shown[0]), stored_value(key, y, shown[1]),
                             &differ);
        }
    }
    return differ;
}

/* The differences of one tensor. */
typedef struct difference {
    int64_t count, first; /* number of elements that differ; index of the first of them */
    double largest;
} difference;

/* NaN is equal to NaN here, since the question is whether the files contain the same. */
static difference difference_of(eg_tensor *x, eg_tensor *y)
{
    difference d = { .first = -1 };
    const double *a = eg_f64(eg_cast(x, EG_F64)), *b = eg_f64(eg_cast(y, EG_F64));
    for (int64_t k = 0; a && b && k < eg_size(x); k++) {
        if ((a[k] >= b[k] && a[k] <= b[k]) || (isnan(a[k]) && isnan(b[k]))) continue;
        d.first = d.count++ ? d.first : k;
        d.largest = fmax(d.largest, fabs(a[k] - b[k]));
    }
    return d;
}

static bool same_shape(eg_tensor *x, eg_tensor *y)
{
    return eg_type(x) == eg_type(y) && same_sizes(x, y);
}

/* Prints "name[3, 4]: 0.5, 0.25". */
static void print_first(const char *name, eg_tensor *x, eg_tensor *y, int64_t place)
{
    int64_t at[EG_RANK_MAX] = { 0 }, rest = place;
    for (int k = eg_rank(x) - 1; k >= 0; k--) at[k] = rest % eg_dim(x, k), rest /= eg_dim(x, k);
    printf("the first difference is %s%s", name, eg_rank(x) ? "[" : "");
    for (int k = 0; k < eg_rank(x); k++) printf("%s%lld", k ? ", " : "", (long long)at[k]);
    const double *a = eg_f64(eg_cast(x, EG_F64)), *b = eg_f64(eg_cast(y, EG_F64));
    if (a && b) printf("%s: %.9g, %.9g\n", eg_rank(x) ? "]" : "", a[place], b[place]);
}

/* Prints the tensors that differ, each with its first element that does, and a summary. Returns the
 * number of tensors that differ. */
static int compare_tensors(eg_ctx *cx, const eg_safetensors *a, const eg_safetensors *b)
{
    int differ = 0, tensors = eg_safetensors_count(a);
    for (int k = 0; k < tensors; k++) {
        char name[PRINTABLE];
        const int other = eg_safetensors_find(b, eg_safetensors_name(a, k));
        eg_tensor *x = eg_safetensors_at(a, k), *y = other < 0 ? NULL : eg_safetensors_at(b, other);
        eg_mark m = eg_push(cx);
        const bool alike = y && same_shape(x, y);
        const difference d = alike ? difference_of(x, y) : (difference){ .count = 1, .first = -1 };
        differ += d.count > 0;
        if (d.count && differ <= LINES_MOST) {
            printable(eg_safetensors_name(a, k), name);
            if (!y)
                printf("%s: only the first has it\n", name);
            else if (!alike)
                printf("%s: sizes or types differ\n", name);
            else
                printf("%s: %lld of %lld number%s differ%s, by at most %.3g\n", name,
                       (long long)d.count, (long long)eg_size(x), eg_size(x) == 1 ? "" : "s",
                       d.count == 1 ? "s" : "", d.largest);
            if (differ == 1 && d.first >= 0) print_first(name, x, y, d.first);
        }
        eg_pop(cx, m);
    }
    for (int k = 0; k < eg_safetensors_count(b); k++) {
        char name[PRINTABLE];
        if (eg_safetensors_find(a, eg_safetensors_name(b, k)) >= 0) continue;
        if (differ++ < LINES_MOST)
            printf("%s: only the second has it\n", printable(eg_safetensors_name(b, k), name));
    }
    if (differ > LINES_MOST)
        printf("... and %d tensor%s more\n", differ - LINES_MOST,
               differ - LINES_MOST == 1 ? "" : "s");
    return differ;
}

/* Prints by how much the weights of each head differ on the input. Returns the number of heads that
 * differ; −1, after an error message, if they cannot be compared. */
static int compare_attention(eg_ctx *cx, const compare *o, char **path)
{
    eg_tensor *w[2];
    for (int k = 0; k < 2; k++) {
        eg_trainer *t =
            load_model(cx, &(eg_trainer_load_args){ .path = path[k], .inference_only = true });
        const char *const *rows, *const *columns;
        if (!t) return -1;
        w[k] = eg_trainer_attention_weights(t, o->input, o->part, &rows, &columns);
        if (!w[k]) return print_context_error(cx, path[k]), -1;
    }
    if (!same_shape(w[0], w[1])) {
        printf("attention: the maps differ in layers, heads or tokens\n");
        return 1;
    }
    int differ = 0;
    for (int64_t l = 0; l < eg_dim(w[0], 0); l++)
        for (int64_t h = 0; h < eg_dim(w[0], 1); h++) {
            eg_mark m = eg_push(cx);
            const difference d = difference_of(eg_select_axis(eg_select_axis(w[0], 0, l), 0, h),
                                               eg_select_axis(eg_select_axis(w[1], 0, l), 0, h));
            eg_pop(cx, m);
            if (!d.count) continue;
            differ++;
            printf("attention: layer %lld, head %lld differs by at most %.3g\n", (long long)l,
                   (long long)h, d.largest);
        }
    return differ;
}

static int run(const command *c, int count, char **word)
{
    compare o = { 0 };
    words w;
    parsed p = read_options(c, count, word, &o, &w);
    if (p != PARSED) return p == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    if (w.count != 2)
        return print_error("compare needs two files: %s compare a.safetensors b.safetensors",
                           program());
    eg_ctx *cx = eg_open();
    eg_safetensors *a = eg_safetensors_open(cx, w.word[0]),
                   *b = a ? eg_safetensors_open(cx, w.word[1]) : NULL;
    int status = b ? EXIT_SUCCESS : print_context_error(cx, NULL);
    if (b) {
        const int tensors = eg_safetensors_count(a), settings = compare_options(a, b),
                  values = compare_tensors(cx, a, b),
                  heads = o.input ? compare_attention(cx, &o, w.word) : 0;
        if (eg_error(cx) || heads < 0) {
            status = heads < 0 ? EXIT_FAILURE : print_context_error(cx, NULL);
        } else if (settings + values + heads) {
            printf("%d option%s and %d tensor%s differ%s\n", settings, settings == 1 ? "" : "s",
                   values, values == 1 ? "" : "s",
                   heads ? ", and so do the attention weights" : "");
            status = EXIT_FAILURE;
        } else {
            printf("the same: %d tensor%s and all options\n", tensors, tensors == 1 ? "" : "s");
        }
    }
    eg_close(cx);
    return status;
}

const command compare_command = {
    .name = "compare",
    .usage = "A B [--input TEXT]",
    .about = "list the differences of two checkpoints or other safetensors files",
    .more =
        "Exit status 0 if they hold the same, 1 if they differ or cannot be read. An optimiser's "
        "state counts\n"
        "with the parameters. --input also compares the attention weights on an input.\n\n"
        "  compare a.safetensors b.safetensors --input abcd\n",
    .options = options,
    .run = run,
    .input = "a model",
    .input_count = 2,
};
