/* text.c: error messages, and what the terminal can show. */
#include "tools.h"
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { MESSAGE = 2 * PATH_MAX };
static bool keep, printed;
static char kept[MESSAGE];
bool has_printed_error(void) { return printed; }
const char *keep_errors(bool on)
{
    keep = on;
    return *kept ? kept : NULL;
}
/* Prints the message, or keeps it after keep_errors(true). Returns EXIT_FAILURE. */
static int print_line(const char *text)
{
    if (keep) {
        snprintf(kept, sizeof kept, "%s", text);
        return EXIT_FAILURE;
    }
    printed = true;
    fflush(stdout); /* the order on a terminal is that of the calls */
    fprintf(stderr, "eingrad: %s\n", text);
    return EXIT_FAILURE;
}
int print_error(const char *format, ...)
{
    char text[MESSAGE];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    for (char *c = text; *c; c++) *c = *c == '\n' ? '?' : *c; /* of a path or an argument */
    return print_line(text);
}

/* Returns the option of the running command that the library's sentence names at a word:
 * ".kv_heads", "schedule.gamma", or "kv_heads", which is no English word. *n receives the bytes of
 * the word. NULL if it names none. */
static const char *option_meant(const char *word, size_t *n)
{
    static const char in[] = "abcdefghijklmnopqrstuvwxyz_", schedule[] = "schedule.";
    const char *name = word + (*word == '.');
    if (strncmp(word, schedule, strlen(schedule)) == 0) name = word + strlen(schedule);
    const size_t length = strspn(name, in);
    const char after = name[length];
    *n = (size_t)(name - word) + length;
    if (!length || (after && strchr("./-", after))) return NULL; /* it is a file name */
    return name > word || memchr(name, '_', length) ? option_of_member(name, length) : NULL;
}

/* Replaces what a sentence of the library advises to a C program. */
static void reworded(char *out, size_t size)
{
    static const struct {
        const char *library, *program;
    } wording[] = {
        { "; eg_cast one of them", "" },
        { "must be divisible by heads: ", "must be divisible by --heads: " },
        { "heads must be divisible by ", "--heads must be divisible by " },
        { "; load it with .data, the task that it was trained on",
          "; a program in C that has the task loads it, by eg_trainer_load" },
        { "; load it with .network, the struct that it was trained with",
          "; a program in C that has the network loads it, by eg_trainer_load" },
        { "opt_groups_read: ", "" },
        { ": lr_factor 2, weight_decay 0", ": lr-factor 2, weight-decay 0" },
        { "EG_STEPS needs", "--schedule steps needs" },
        { "; name one by .offset_letter", "" }, /* for commands without this option */
        { "\n  give the tensor in .with", "" },
    };
    for (size_t k = 0; k < sizeof wording / sizeof *wording; k++) {
        char *at = strstr(out, wording[k].library);
        size_t from = strlen(wording[k].library), to = strlen(wording[k].program);
        if (!at || strlen(out) - from + to >= size) continue;
        memmove(at + to, at + from, strlen(at + from) + 1);
        memcpy(at, wording[k].program, to);
    }
}

/* Returns the library's error in the words of the command line: with its options in place of C
 * members and functions. What stands in quotation marks is the user's. */
static const char *program_words(const char *error, char *out, size_t size)
{
    size_t n, used = 0;
    /* after the first line there is the user's text with a caret below it */
    bool quoted = false, marked = false;
    *out = 0;
    for (const char *c = error; *c && used + 1 < size; c += n) {
        const bool begins = c > error && strchr(" (", c[-1]) && (!marked || *c == '.');
        const char *name = begins && !quoted ? option_meant(c, &n) : NULL;
        quoted ^= *c == '"', marked |= *c == '\n';
        if (!name) n = 1;
        used += (size_t)(name ? snprintf(out + used, size - used, "--%s", name)
                              : snprintf(out + used, size - used, "%c", *c));
    }
    reworded(out, size);
    return out;
}

int print_context_error(eg_ctx *cx, const char *where)
{
    char text[1200], whole[PATH_MAX + sizeof text + 2];
    const char *error = eg_error(cx);
    /* a message of the library may have several lines, a path has one */
    int n = snprintf(whole, PATH_MAX, "%s", where ? where : "");
    for (char *c = whole; *c; c++) *c = *c == '\n' ? '?' : *c;
    n = n < PATH_MAX ? n : PATH_MAX - 1;
    snprintf(whole + n, sizeof whole - (size_t)n, "%s%s", where ? ": " : "",
             error ? program_words(error, text, sizeof text)
                   : "it failed without recording an error");
    return print_line(whole);
}

int print_context_error_naming(eg_ctx *cx, const char *path, const char *shown)
{
    const char *error = eg_error(cx), *at = error ? strstr(error, path) : NULL;
    if (!at) return print_context_error(cx, NULL);
    return print_error("%.*s%s%s", (int)(at - error), error, shown, at + strlen(path));
}

/* True if the model names the text that it was trained on, and there is no such file. */
static bool text_is_gone(const char *model)
{
    eg_ctx *cx = eg_open();
    eg_safetensors *file = cx ? eg_safetensors_open(cx, model) : NULL;
    const char *corpus = file ? eg_safetensors_metadata(file, "corpus") : NULL,
               *tokens = file ? eg_safetensors_metadata(file, "tokens") : NULL,
               *text = tokens ? tokens : corpus;
    const bool gone = text && access(text, F_OK) != 0 && errno == ENOENT;
    eg_close(cx);
    return gone;
}
int print_load_error(eg_ctx *cx, const char *model, const char *corpus)
{
    const char *error = eg_error(cx);
    if (!error) return print_context_error(cx, NULL);
    const bool moved = !corpus && eg_error_code(cx) == EG_ERROR_FILE && text_is_gone(model);
    /* the names are those in the file, not options that were given */
    char text[1200];
    snprintf(text, sizeof text, "%s", error);
    reworded(text, sizeof text);
    if (moved) return print_error("%s; --text FILE gives the new path of the text", text);
    return print_line(text);
}

const char *printable(const char *text, char out[PRINTABLE])
{
    const char *s = text;
    int n = 0;
    while (*s && n < PRINTABLE - 4) {
        const bool high = !strncmp(s, "\xc2", 1) && (s[1] & 0xe0) == 0x80;
        const bool turns = (!strncmp(s, "\xe2\x80", 2) && s[2] >= '\xa8' && s[2] <= '\xae') ||
                           (!strncmp(s, "\xe2\x81", 2) && s[2] >= '\xa6' && s[2] <= '\xa9');
        const bool control = (unsigned char)*s < 0x20 || *s == 0x7f || high || turns;
        out[n++] = control ? '?' : *s;
        s += high ? 2 : turns ? 3 : 1;
    }
    if (*s) { /* cut between two characters */
        while (n && (s[0] & 0xc0) == 0x80) s--, n--;
        memcpy(out + n, "\xe2\x80\xa6", 3);
        n += 3;
    }
    out[n] = '\0';
    return out;
}

bool has_ending(const char *path, const char *end)
{
    const char *dot = strrchr(path, '.');
    return dot && !strcasecmp(dot, end);
}
bool is_picture(const char *path)
{
    return strlen(path) > 4 && (has_ending(path, ".png") || has_ending(path, ".svg"));
}

/* -- columns ---------------------------------------------------------------------------------- */
int columns(const char *utf8)
{
    int n = 0;
    for (; *utf8; utf8++) n += (*utf8 & 0xc0) != 0x80;
    return n;
}

void pad(FILE *file, const char *text, int width)
{
    int n = width - columns(text);
    fprintf(file, "%s%*s", text, n > 0 ? n : 0, "");
}

/* -- the terminal ----------------------------------------------------------------------------- */
/* Open MPI gives its processes pseudo-terminals, whose bytes mpirun may write to a file. Under
 * MPICH they have pipes. */
bool is_terminal(FILE *file)
{
    const char *term = getenv("TERM");
    return isatty(fileno(file)) && !(term && strcmp(term, "dumb") == 0) &&
           !getenv("OMPI_COMM_WORLD_SIZE");
}

bool in_colour(FILE *file)
{
    const char *no = getenv("NO_COLOR");
    return is_terminal(file) && !(no && *no);
}

int terminal_width(void)
{
    struct winsize w;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0) return w.ws_col;
    const char *given = getenv("COLUMNS");
    int64_t n;
    return given && read_integer(given, &n) && n >= 20 && n <= 10000 ? (int)n : 80;
}

/* -- names ------------------------------------------------------------------------------------ */
enum { LONGEST = 32 };

/* Returns the number of insertions, deletions, replacements and exchanges of neighbours that change
 * one into the other. Damerau 1964. */
static int distance(const char *a, const char *b)
{
    int m = (int)strlen(a), n = (int)strlen(b), d[LONGEST + 1][LONGEST + 1];
    if (m > LONGEST || n > LONGEST) return LONGEST;
    for (int i = 0; i <= m; i++)
        for (int j = 0; j <= n; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            int least = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < least) least = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < least) least = d[i][j - 1] + 1;
            bool exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (exchanged && d[i - 2][j - 2] + 1 < least) least = d[i - 2][j - 2] + 1;
            d[i][j] = least;
        }
    return d[m][n];
}

const char *nearest(const char *word, const char *(*name)(int))
{
    const char *best = NULL, *one;
    size_t length = strlen(word);
    int least = 1 + (int)(length > 3 ? 2 : length / 2);
    for (int k = 0; (one = name(k)); k++) {
        int d = length > 2 && strncmp(one, word, length) == 0 ? 0 : distance(word, one);
        /* of the names that begin with the word, the shortest */
        if (d < least || (d == 0 && strlen(one) < strlen(best))) {
            least = d;
            best = one;
        }
    }
    return best;
}

/* Writes s as one word of a shell. */
static void quote(FILE *file, const char *s)
{
    static const char plain_bytes[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+:,=@%-";
    if (*s && strspn(s, plain_bytes) == strlen(s)) {
        fputs(s, file);
        return;
    }
    fputc('\'', file);
    for (; *s; s++) fputs(*s == '\'' ? "'\\''" : (char[]){ *s, 0 }, file);
    fputc('\'', file);
}
void print_quoted(const char *s) { quote(stdout, s); }

/* the name by which the user called the program, as a word of a shell */
static const char *called = "eingrad";
const char *program(void) { return called; }

void set_program(const char *argv0)
{
    static char here[4096], quoted[4096];
    if (!argv0 || !*argv0) return;
    called = argv0;
    /* a path below the present folder is shortened to a relative one */
    if (*argv0 == '/' && getcwd(here, sizeof here)) {
        size_t n = strlen(here);
        if (n > 1 && strncmp(argv0, here, n) == 0 && argv0[n] == '/' && strchr(argv0 + n + 1, '/'))
            called = argv0 + n + 1;
    }
    FILE *file = fmemopen(quoted, sizeof quoted, "w");
    if (!file) return;
    quote(file, called);
    if (!fclose(file)) called = quoted;
}
