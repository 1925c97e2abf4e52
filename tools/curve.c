/* eingrad curve: the logs of runs as curves in one picture. */
#include "tools.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct curve {
    const char *out, *columns, *title;
    bool logarithmic;
} curve;
#define AT(member) offsetof(curve, member), 0, 0, false
static const option options[] = {
    { 'o', "out", OUTPUT, "FILE", "the picture, .svg or .png (needed)", AT(out) },
    { 0, "columns", TEXT, "NAME,...", "columns to draw over the steps (default: loss,unseen_loss)",
      AT(columns) },
    { 0, "log-axis", FLAG, NULL, "a logarithmic axis; values of 0 and below are gaps",
      AT(logarithmic) },
    { 0, "title", TEXT, "TEXT", "above the picture (default: none)", AT(title) },
    { 0 }
};
enum { CURVES_MOST = 32, COLUMNS_MOST = 8, COLOURS = 8, NAME_SIZE = 96 };

/* The curves: one for each log and column, log by log. */
typedef struct curves {
    int logs, columns, count;
    char column[COLUMNS_MOST][NAME_SIZE];
    struct points {
        double *x, *y;
        int64_t count, capacity;
    } points[CURVES_MOST];
    char name[CURVES_MOST][2 * NAME_SIZE];
    char unit[16]; /* the unit of texts, as `train` prints it; "": other data */
    bool other;    /* a log is of other data than texts; losses are then in nats */
} curves;

static bool read_columns(curves *c, const char *text) /* false after an error message */
{
    for (; text; text = strchr(text, ',') ? strchr(text, ',') + 1 : NULL) {
        const size_t n = strcspn(text, ",");
        if (c->columns == COLUMNS_MOST || n == 0 || n >= NAME_SIZE)
            return print_error("--columns must be from 1 to %d names, as loss,unseen_loss",
                               COLUMNS_MOST),
                   false;
        snprintf(c->column[c->columns++], NAME_SIZE, "%.*s", (int)n, text);
    }
    return true;
}

/* Removes the points from step x on: a run that was resumed takes these steps again. */
static void remove_from(struct points *p, double x)
{
    while (p->count && p->x[p->count - 1] >= x) p->count--;
}
static bool add_point(struct points *p, double x, double y) /* false without memory */
{
    remove_from(p, x);
    if (p->count == p->capacity) {
        const int64_t capacity = p->capacity ? 2 * p->capacity : 1024;
        double *more = realloc(p->x, (size_t)capacity * sizeof *more);
        p->x = more ? more : p->x;
        double *also = more ? realloc(p->y, (size_t)capacity * sizeof *also) : NULL;
        if (!also) return false;
        p->y = also, p->capacity = capacity;
    }
    p->x[p->count] = x, p->y[p->count++] = y;
    return true;
}

/* Adds the points of one line of a log. False after an error message. */
static bool read_line(eg_ctx *cx, curves *c, int log, const char *path, int64_t number,
                      const char *text, size_t length)
{
    eg_mark m = eg_push(cx);
    const eg_json *line = eg_json_read(cx, text, length);
    bool good = line && line->kind == EG_JSON_OBJECT;
    if (eg_error_code(cx) == EG_ERROR_MEMORY)
        print_context_error(cx, path);
    else if (!good && number > 1 && *text == '{' && text[length - 1] != '\n') {
        /* as progress.c's log_continued; the run may still write it */
        printf("%s ends in half a line, which is left out\n", path);
        eg_clear(cx);
        eg_pop(cx, m);
        return true;
    } else if (!good)
        print_error("%s: line %lld is not a JSON object, as in a log", path, (long long)number);
    const eg_json *step = good ? eg_json_find(line, "step") : NULL;
    /* the first line, of options, names the data and has no step */
    const eg_json *text_of = good ? eg_json_find(line, "text") : NULL;
    if (good && eg_json_find(line, "data")) {
        const char *unit = text_of && text_of->kind == EG_JSON_STRING ? text_of->text : "";
        for (int k = 0; step && step->kind == EG_JSON_NUMBER && k < c->columns; k++)
            remove_from(&c->points[log * c->columns + k], step->number + 1);
        c->other = c->other || !*unit || (*c->unit && strcmp(c->unit, unit) != 0);
        snprintf(c->unit, sizeof c->unit, "%s", unit);
    }
    for (int k = 0; good && step && !eg_json_find(line, "data") && k < c->columns; k++) {
        const eg_json *y = eg_json_find(line, c->column[k]);
        if (step->kind == EG_JSON_NUMBER && y && y->kind == EG_JSON_NUMBER)
            good = add_point(&c->points[log * c->columns + k], step->number, y->number) ||
                   (print_error("out of memory"), false);
    }
    eg_pop(cx, m);
    return good;
}

/* Reads a log. False after an error message, also if it has no point of any column. */
static bool read_log(eg_ctx *cx, curves *c, int log, const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f) return print_error("%s: %s", path, strerror(errno)), false;
    char *text = NULL;
    size_t size = 0;
    int64_t number = 0, points = 0;
    bool good = true;
    errno = 0;
    for (ssize_t n; good && (n = getline(&text, &size, f)) >= 0; errno = 0)
        good = read_line(cx, c, log, path, ++number, text, (size_t)n);
    if (good && errno) good = (print_error("%s: %s", path, strerror(errno)), false);
    free(text);
    fclose(f);
    for (int k = 0; k < c->columns; k++) points += c->points[log * c->columns + k].count;
    if (good && !points)
        good = (print_error("%s: no line has a step and \"%s\"%s", path, c->column[0],
                            c->columns > 1 ? " or another of --columns" : ""),
                false);
    return good;
}

/* Writes the file's name without folders and without its ending. */
static void name_of(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path,
               *dot = strrchr(name, '.');
    snprintf(out, size, "%.*s", dot && dot > name ? (int)(dot - name) : (int)strlen(name), name);
}

/* Curves of a log have one colour, those of a column one kind of dashes, and from the ninth log on
 * others. At most 32 curves and 8 columns need at most 8 kinds. */
static int save(eg_ctx *cx, curves *c, const curve *o, char **path)
{
    eg_curve all[CURVES_MOST];
    char y_name[COLUMNS_MOST * NAME_SIZE] = "";
    bool losses = true;
    /* the unit in which `train` prints the losses of a text */
    const bool bits = *c->unit && !c->other;
    int n = 0;
    for (int k = 0; k < c->columns; k++) {
        losses = losses && strstr(c->column[k], "loss");
        snprintf(y_name + strlen(y_name), sizeof y_name - strlen(y_name), "%s%s", k ? ", " : "",
                 c->column[k]);
    }
    for (int log = 0; log < c->logs; log++)
        for (int k = 0; k < c->columns; k++) {
            const struct points *p = &c->points[log * c->columns + k];
            char run[NAME_SIZE];
            if (!p->count) continue;
            for (int64_t i = 0; bits && strstr(c->column[k], "loss") && i < p->count; i++)
                p->y[i] /= M_LN2;
            name_of(path[log], run, sizeof run);
            snprintf(c->name[n], sizeof c->name[n], "%s%s%s", c->logs > 1 ? run : "",
                     c->logs > 1 && c->columns > 1 ? ": " : "",
                     c->columns > 1 || c->logs == 1 ? c->column[k] : "");
            const bool one = c->logs == 1; /* then colours distinguish columns */
            all[n] = (eg_curve){ .name = c->name[n],
                                 .count = p->count,
                                 .x = p->x,
                                 .y = p->y,
                                 .colour = (one ? k : log) % COLOURS + 1,
                                 .dash = one ? 0 : k + c->columns * (log / COLOURS) };
            n++;
        }
    if (eg_curves_save(o->out, cx, n, all, .title = o->title, .x_name = "step",
                       .y_name = losses ? loss_name(bits ? c->unit : NULL) : y_name,
                       .logarithmic = o->logarithmic))
        return print_context_error(cx, NULL);
    printf("%s: %d curve%s of %d log%s\n", o->out, n, n == 1 ? "" : "s", c->logs,
           c->logs == 1 ? "" : "s");
    return EXIT_SUCCESS;
}

static int run(const command *row, int count, char **word)
{
    static curves c;
    curve o = { 0 };
    words w;
    parsed p = read_options(row, count, word, &o, &w);
    if (p != PARSED) return p == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    if (w.count < 1 || !o.out)
        return print_error("curve needs a log and -o FILE: %s curve a.json b.json -o loss.svg",
                           program());
    if (!is_picture(o.out)) return print_error("-o must end in .png or .svg, not \"%s\"", o.out);
    if (!read_columns(&c, o.columns ? o.columns : "loss,unseen_loss")) return EXIT_FAILURE;
    c.logs = w.count;
    if (c.logs * c.columns > CURVES_MOST)
        return print_error("curve: %d log%s of %d column%s are more than %d curves", c.logs,
                           c.logs == 1 ? "" : "s", c.columns, c.columns == 1 ? "" : "s",
                           CURVES_MOST);
    eg_ctx *cx = eg_open(.threads = 1);
    bool good = true;
    for (int k = 0; good && k < c.logs; k++) good = read_log(cx, &c, k, w.word[k]);
    const int status = good ? save(cx, &c, &o, w.word) : EXIT_FAILURE;
    for (int k = 0; k < CURVES_MOST; k++) free(c.points[k].x), free(c.points[k].y);
    eg_close(cx);
    return status;
}

const command curve_command = {
    .name = "curve",
    .usage = "LOG... -o FILE.png|.svg",
    .about = "draw columns of logs (train --log) as curves in one picture",
    .more = "Columns: loss, unseen_loss, tokens, sequences, unseen, lr, norm, tokens_per_second, "
            "seconds. Each log has\n"
            "its own colour, each column its own pattern of dashes.\n\n"
            "  curve a.json b.json -o loss.svg --columns loss,unseen_loss --log-axis\n",
    .options = options,
    .run = run,
    .input = "a log",
    .input_count = CURVES_MOST,
};
