/* eingrad info: what this build computes with, or what a checkpoint or other safetensors file
 * holds. */
#include "train.h"
#include <stdlib.h>
#include <string.h>

enum { NAME_WIDTH = 34 };

/* Prints a name and a value of n bytes. */
static void print_pair(const char *name, const char *value, size_t n)
{
    char text[2][PRINTABLE], part[PRINTABLE];
    snprintf(part, sizeof part, "%.*s", (int)(n < PRINTABLE ? n : PRINTABLE), value);
    pad(stdout, printable(name, text[0]), NAME_WIDTH);
    printf(" %s\n", printable(part, text[1]));
}

/* Prints the strings of the file by the names of the options of `train`: of symbols, pairs and
 * other texts of several lines the number of these, but each line of a model's configuration. */
static void print_strings(const eg_safetensors *file)
{
    bool milestones = false;
    const char *key;
    for (int k = 0; (key = eg_safetensors_key(file, k)); k++) {
        const char *value = eg_safetensors_metadata(file, key);
        char name[STORED_SIZE], shown[STORED_SIZE];
        if (!strcmp(key, "config")) {
            for (size_t n; value && *value; value += n + (value[n] == '\n'))
                print_pair(key, value, n = strcspn(value, "\n"));
            continue;
        }
        const bool milestone = !strncmp(key, "milestone", 9); /* all of them are one option */
        if (milestone && milestones) continue;
        const char *one =
            milestone ? stored_milestones(file, shown) : stored_value(key, value, shown);
        if (!one) {
            int lines = 1;
            for (const char *s = value; s && *s; s++) lines += *s == '\n' && s[1];
            snprintf(shown, sizeof shown, "(%d lines)", lines);
            one = shown;
        }
        print_pair(milestone ? "milestones" : stored_name(key, strlen(key), name), one,
                   strlen(one));
        milestones |= milestone;
    }
}

/* Prints name, dtype and sizes of each tensor, without the state of an optimiser ("opt.…"), and a
 * line with their number. */
static void print_tensors(eg_ctx *cx, const eg_safetensors *file)
{
    int tensors[2] = { 0 };
    long long numbers[2] = { 0 };
    for (int k = 0; k < eg_safetensors_count(file); k++) {
        eg_mark m = eg_push(cx);
        const char *name = eg_safetensors_name(file, k);
        eg_tensor *x = eg_safetensors_at(file, k);
        const int state = !strncmp(name, "opt.", 4);
        char sizes[PRINTABLE] = "";
        size_t n = 0;
        for (int a = 0; a < eg_rank(x) && n < sizeof sizes; a++)
            n += (size_t)snprintf(sizes + n, sizeof sizes - n, "%s%lld", a ? ", " : "",
                                  (long long)eg_dim(x, a));
        tensors[state]++, numbers[state] += eg_size(x);
        if (!state && eg_ok(x)) {
            char line[PRINTABLE + 16];
            snprintf(line, sizeof line, "%s (%s)", eg_type_name(eg_type(x)), sizes);
            print_pair(name, line, strlen(line));
        }
        eg_pop(cx, m);
    }
    printf("%d tensor%s, %lld number%s", tensors[0], tensors[0] == 1 ? "" : "s", numbers[0],
           numbers[0] == 1 ? "" : "s");
    if (tensors[1])
        printf("; the optimiser's state: %d tensor%s, %lld numbers", tensors[1],
               tensors[1] == 1 ? "" : "s", numbers[1]);
    puts("");
}

static void print_build(eg_ctx *cx)
{
    printf("eingrad    %s\n", eg_version());
    printf("kernel     %s\n", eg_kernel_info());
    printf("threads    %d\n", eg_threads(cx, 0));
    printf("types     ");
    for (eg_dtype t = EG_F32; t <= EG_U8; t++)
        printf("%s %s", t == EG_F16 ? "; stored:" : "", eg_type_name(t));
    printf(" (default %s; c128 has no gradients)\n", eg_type_name(eg_default_type(cx)));
    printf("libraries  %s\n", eg_io_info());
}

static int run(const command *c, int count, char **word)
{
    words w;
    parsed p = read_options(c, count, word, NULL, &w);
    if (p != PARSED) return p == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    if (w.count > 1) return print_error("info takes one file, and there is \"%s\"", w.word[1]);
    eg_ctx *cx = eg_open();
    if (!cx) return print_context_error(cx, NULL);
    eg_safetensors *file = w.count ? eg_safetensors_open(cx, w.word[0]) : NULL;
    if (file) print_strings(file), print_tensors(cx, file);
    if (!w.count) print_build(cx);
    const int status = eg_error(cx) ? print_context_error(cx, NULL) : EXIT_SUCCESS;
    eg_close(cx);
    return status;
}

const command info_command = {
    .name = "info",
    .usage = "[FILE]",
    .about = "print the version, the BLIS kernel and its reason, threads, types, libraries; or the "
             "options and tensors of a file",
    .more =
        "FILE is a checkpoint or any other safetensors file. The names of its tensors are those "
        "that\n"
        "--group of `train` reads.\n\n"
        "  info\n"
        "  info copy.safetensors\n",
    .run = run,
    .input = "the file",
    .input_count = 1,
};
