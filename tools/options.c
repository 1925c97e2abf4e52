/* options.c: parses the command line strictly: for an unknown option, or a missing or wrong value,
 * it prints one sentence that names the option. */
#include "tools.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads "4x8" as sizes, "()" as no sizes. Returns the rank; −1 after an error message. */
int read_shape(const command *c, const char *text, int64_t *dim)
{
    int rank = 0;
    if (strcmp(text, "()") == 0) return 0;
    for (const char *s = text;; s++) {
        char *end;
        errno = 0;
        long long n = strtoll(s, &end, 10);
        if (*s < '0' || *s > '9' || errno || (*end && *end != 'x')) break;
        if (rank == EG_RANK_MAX)
            return print_error("%s: the shape \"%s\" has more than %d axes", c->name, text,
                               EG_RANK_MAX),
                   -1;
        dim[rank++] = n;
        if (!*end) return rank;
        s = end;
    }
    return print_error("%s: \"%s\" is not a shape, such as 4x8, or () for a scalar", c->name, text),
           -1;
}

bool read_integer(const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return *text && !*end && !errno && ((*text >= '0' && *text <= '9') || *text == '-');
}

static bool read_real(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return *text && !*end && isfinite(*value) && strchr("0123456789.-", *text) &&
           !strpbrk(text, "xXpP"); /* decimal, as integers are */
}

/* Returns "--out" or "-o" for messages; valid until the next call. */
static const char *shown_option(const option *o)
{
    static char name[64];
    if (o->name)
        snprintf(name, sizeof name, "--%s", o->name);
    else
        snprintf(name, sizeof name, "-%c", o->letter);
    return name;
}

static bool chosen(const option *o, const char *text, const char **value)
{
    size_t n = strlen(text);
    for (const char *c = o->argument; *c; c += strcspn(c, "|"), c += *c == '|')
        if (n && strcspn(c, "|") == n && strncmp(c, text, n) == 0) {
            *value = text;
            return true;
        }
    return false;
}

/* The words of a CHOICE, for nearest(). */
enum { CHOICES_MOST = 16 };
static char choices[CHOICES_MOST][32];
static const char *choice_name(int k)
{
    return k < CHOICES_MOST && *choices[k] ? choices[k] : NULL;
}
static void not_chosen(const option *o, const char *text)
{
    int n = 0;
    memset(choices, 0, sizeof choices);
    for (const char *c = o->argument; *c && n < CHOICES_MOST; c += strcspn(c, "|"), c += *c == '|')
        snprintf(choices[n++], sizeof *choices, "%.*s", (int)strcspn(c, "|"), c);
    const char *near = nearest(text, choice_name);
    print_error("%s must be one of %s, not \"%s\"%s%s%s", shown_option(o), o->argument, text,
                near ? "; is it " : "", near ? near : "", near ? "?" : "");
}

/* Stores the value of an option. False after printing why it is invalid. */
static bool store_value(const option *o, char *text, void *values)
{
    void *at = (char *)values + o->at;
    bool good = true;
    switch (o->kind) {
    case FLAG: *(bool *)at = true; break;
    case REMOVED: break; /* find() refuses it */
    case OPTIONAL: *(const char **)at = text; break;
    case TEXT:
    case INPUT:
    case OUTPUT:
        *(const char **)at = text;
        if (!*text) {
            print_error("%s needs a value that is not empty", shown_option(o));
            return false;
        }
        break;
    case TEXTS:
    case OUTPUTS: {
        list *l = at;
        const char **more = realloc(l->item, (size_t)(l->count + 1) * sizeof *more);
        if (!more) {
            print_error("out of memory");
            return false;
        }
        l->item = more;
        l->item[l->count++] = text;
        break;
    }
    case INTEGER: {
        int64_t *value = at;
        good = read_integer(text, value) && (double)*value >= o->low && (double)*value <= o->high;
        if (!good)
            print_error("%s must be an integer from %.15g to %.15g, not \"%s\"", shown_option(o),
                        o->low, o->high, text);
        break;
    }
    case REAL: {
        double *value = at;
        good = read_real(text, value) && *value >= o->low && *value <= o->high;
        if (!good)
            print_error("%s must be a number from %g to %g, not \"%s\"", shown_option(o), o->low,
                        o->high, text);
        break;
    }
    case CHOICE:
        good = chosen(o, text, at);
        if (!good) not_chosen(o, text);
        break;
    }
    return good;
}

static const option *options_now; /* the options of the command that is running */
static const char *option_name(int k)
{
    for (const option *o = options_now; o && (o->name || o->letter); o++)
        if (o->name && o->kind != REMOVED && k-- == 0) return o->name;
    return NULL;
}

/* Returns the length of an option's name at the start of a word, if the word ends there or
 * continues with '='; else 0. Hyphens inside are ignored: --warmup is --warm-up. */
static size_t named(const char *word, const char *name)
{
    const char *w = word;
    for (; *name; name++) {
        if (*name == '-' && *w != '-') continue;
        if (*name != '-' && *w == '-' && w > word) w++;
        if (*w++ != *name) return 0;
    }
    return *w && *w != '=' ? 0 : (size_t)(w - word);
}

const char *option_of_member(const char *member, size_t n)
{
    static const char *const other[][2] = { { "clip_norm", "clip" },
                                            { "groups", "group" },
                                            { "smoothing", "label-smoothing" } };
    char name[32];
    if (n >= sizeof name) return NULL;
    for (size_t k = 0; k < n; k++) name[k] = member[k] == '_' ? '-' : member[k];
    name[n] = 0;
    for (size_t k = 0; k < sizeof other / sizeof *other; k++)
        if (strlen(other[k][0]) == n && !strncmp(member, other[k][0], n))
            snprintf(name, sizeof name, "%s", other[k][1]);
    for (const option *o = options_now; o && (o->name || o->letter); o++)
        if (o->name && o->kind != REMOVED && named(name, o->name)) return o->name;
    return NULL;
}

/* Returns the option of a word "--name", "--name=value", "-n" or "-nvalue", and sets *value to its
 * value or to NULL. NULL after printing that there is no such option. */
static const option *find(const command *c, const char *word, char **value)
{
    *value = NULL;
    for (const option *o = c->options; o && (o->name || o->letter); o++) {
        const size_t n = word[1] == '-' && o->name ? named(word + 2, o->name) : 0;
        if (n) {
            if (word[2 + n]) *value = (char *)word + 3 + n;
            if (o->kind != REMOVED) return o;
            print_error("%s has no option --%s any more: %s", c->name, o->name, o->help);
            return NULL;
        }
        if (word[1] != '-' && o->letter == word[1]) {
            if (word[2]) *value = (char *)word + 2;
            return o;
        }
    }
    const char *near = word[1] == '-' ? nearest(word + 2, option_name) : NULL;
    if (near)
        print_error("%s has no option %s; is it --%s?", c->name, word, near);
    else
        print_error("%s has no option %s; see %s %s --help", c->name, word, program(), c->name);
    return NULL;
}

/* Registers with files.c the streams, the words that are files, and the options that are files.
 * False after printing why one cannot be used. */
static bool use_files(const command *c, const words *w, const void *values)
{
    bool silent = c->prints && !c->prints(values);
    bool good = silent || use_stream("standard output", STDOUT_FILENO, true);
    good = good && use_stream("standard error", STDERR_FILENO, true);
    for (int k = c->input_first; good && k < c->input_first + c->input_count && k < w->count; k++)
        good = use_file(c->input, w->word[k], false);
    for (const option *o = c->options; good && o && (o->name || o->letter); o++) {
        const void *at = (const char *)values + o->at;
        const list *l = at;
        if (o->kind == INPUT || o->kind == OUTPUT)
            good = use_file(shown_option(o), *(const char *const *)at, o->kind == OUTPUT);
        for (int k = 0; o->kind == OUTPUTS && good && k < l->count; k++)
            good = use_file(shown_option(o), l->item[k], true);
    }
    return good;
}

/* Options and words may come in any order; "--" ends the options. */
parsed read_options(const command *c, int count, char **word, void *values, words *w)
{
    *w = (words){ .word = word };
    options_now = c->options;
    static char empty[1];
    bool only_words = false;
    for (int k = 0; k < count; k++) {
        if (!only_words && (!c->first || k == 0) &&
            (strcmp(word[k], "--help") == 0 || strcmp(word[k], "-h") == 0)) {
            print_help(stdout, c);
            return HELPED;
        }
        if ((c->first && k == 0) || only_words || word[k][0] != '-' || !word[k][1]) {
            word[w->count++] = word[k];
            continue;
        }
        if (strcmp(word[k], "--") == 0) {
            only_words = true;
            continue;
        }
        if (strcmp(word[k], "--help") == 0) {
            print_help(stdout, c);
            return HELPED;
        }
        char *value;
        const option *o = find(c, word[k], &value);
        if (!o) return REFUSED;
        uint64_t bit = (uint64_t)1 << (o - c->options);
        if (o->kind == FLAG && value) {
            print_error("%s takes no value", shown_option(o));
            return REFUSED;
        }
        if (w->given & bit && o->kind != OUTPUTS && o->kind != TEXTS) {
            print_error("%s is given twice", shown_option(o));
            return REFUSED;
        }
        if (o->kind == OPTIONAL && !value)
            value = k + 1 < count && word[k + 1][0] != '-' ? word[++k] : empty;
        if (o->kind != FLAG && !value) {
            if (k + 1 == count) {
                print_error("%s needs a value: %s", shown_option(o), o->argument);
                return REFUSED;
            }
            value = word[++k];
        }
        if (!store_value(o, value, values)) return REFUSED;
        w->given |= bit;
    }
    return use_files(c, w, values) ? PARSED : REFUSED;
}

bool was_given(const words *w, const command *c, const char *name)
{
    for (const option *o = c->options; o->name || o->letter; o++)
        if (o->name && strcmp(o->name, name) == 0) return w->given >> (o - c->options) & 1;
    return false;
}

static int left_side(const option *o, char *out, size_t size)
{
    char letter[4] = "";
    if (o->letter) snprintf(letter, sizeof letter, "-%c", o->letter);
    return snprintf(out, size, "  %s%s%s%s%s%s", letter, o->letter && o->name ? ", " : "",
                    o->name ? "--" : "", o->name ? o->name : "", o->argument ? " " : "",
                    o->argument ? o->argument : "");
}

/* Prints usage, a line about the command, and a line for each option; the explanation of an option
 * whose left side is wider than WIDE is on a line of its own, so that the others are near it. */
void print_help(FILE *file, const command *c)
{
    enum { WIDE = 30 };
    char text[128];
    fprintf(file, "usage: %s %s%s%s\n%s\n", program(), c->name, *c->usage ? " " : "", c->usage,
            c->about);
    if (c->more) fprintf(file, "\n%s", c->more);
    int width = 0;
    for (const option *o = c->options; o && (o->name || o->letter); o++) {
        int n = o->kind == REMOVED ? 0 : left_side(o, text, sizeof text);
        width = n > width && n <= WIDE ? n : width;
    }
    if (width) fputs("\noptions:\n", file);
    for (const option *o = c->options; o && (o->name || o->letter); o++) {
        if (o->kind == REMOVED) continue;
        if (left_side(o, text, sizeof text) > width) fprintf(file, "%s\n", text), *text = 0;
        fprintf(file, "%-*s   %s\n", width, text, o->help);
    }
    if (c->list) c->list(file);
}
