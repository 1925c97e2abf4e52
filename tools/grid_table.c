/* grid_table.c: the results of the runs of `eingrad grid`, read from their logs, and the table of
 * them. */
#include "grid.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- logs -------------------------------------------------------------------------------------- */
static double number_in(const eg_json *line, const char *key)
{
    const eg_json *x = eg_json_find(line, key);
    return x && x->kind == EG_JSON_NUMBER ? x->number : NAN;
}
/* A line of a log: the number of a step, and the seconds for which the process had worked after
 * it. */
typedef struct timed {
    double step, seconds;
} timed;
typedef struct times {
    timed *at;
    size_t count, capacity;
} times;
static bool add_time(times *t, double step, double seconds) /* false without memory */
{
    if (t->count == t->capacity) {
        const size_t capacity = t->capacity ? 2 * t->capacity : 256;
        timed *more = realloc(t->at, capacity * sizeof *more);
        if (!more) return false;
        t->at = more, t->capacity = capacity;
    }
    t->at[t->count++] = (timed){ step, seconds };
    return true;
}
static double seconds_at(const times *t, double step) /* 0: no line has this step */
{
    for (size_t k = t->count; k-- > 0;)
        if (t->at[k].step == step) return t->at[k].seconds;
    return 0;
}
/* Reads the result of a run from its log. The seconds are the sum over the processes that worked on
 * the run one after another: each continues from the step on its first line, up to which the
 * process before it had needed the seconds that the log has for that step. False with errno if the
 * file cannot be read or without memory, and with an errno of 0 if it is not a log of train. */
static bool read_outcome(eg_ctx *cx, FILE *f, outcome *r)
{
    char *text = NULL;
    times t = { NULL, 0, 0 };
    double before = 0, goal = 0;
    size_t size = 0;
    bool good = true, first = true;
    *r = (outcome){ .step = 0, .loss = NAN, .unseen = NAN, .exact = NAN };
    errno = 0;
    for (ssize_t n; good && (n = getline(&text, &size, f)) >= 0; first = false) {
        const eg_mark m = eg_push(cx);
        const eg_json *line = eg_json_read(cx, text, (size_t)n);
        const double step = line ? number_in(line, "step") : NAN,
                     seconds = line ? number_in(line, "seconds") : NAN;
        bool memory = line || eg_error_code(cx) != EG_ERROR_MEMORY;
        if (!line) eg_clear(cx); /* the process was killed while it wrote this line */
        good = !first || (line && eg_json_find(line, "data"));
        if (line && eg_json_find(line, "data")) {
            before = seconds_at(&t, step);
            goal = number_in(line, "goal");
            r->finished = false;
        } else if (line && isfinite(seconds)) {
            memory = add_time(&t, step, before + seconds);
            r->step = step, r->seconds = before + seconds;
        }
        if (line && isfinite(number_in(line, "loss"))) r->loss = number_in(line, "loss");
        if (line && isfinite(number_in(line, "exact"))) {
            r->finished = true;
            r->exact = number_in(line, "exact") / number_in(line, "unseen_sequences");
            r->unseen = number_in(line, "unseen_loss");
            r->reached = goal > 0 && r->exact >= goal;
        }
        eg_pop(cx, m);
        good = good && memory;
        errno = memory ? 0 : ENOMEM;
    }
    const int why = errno == EISDIR ? 0 : errno; /* the run that writes to a folder says so */
    free(text);
    free(t.at);
    errno = why;
    return good && !why;
}
bool grid_read_log(eg_ctx *cx, const plan *p, grid_run *r)
{
    char path[4096];
    plan_path(p, r, "jsonl", path, sizeof path);
    FILE *f = fopen(path, "r");
    if (!f) return errno == ENOENT || (print_error("%s: %s", path, strerror(errno)), false);
    const bool good = read_outcome(cx, f, &r->result);
    const int why = errno;
    fclose(f);
    if (!good && why) return print_error("%s: %s", path, strerror(why)), false;
    if (!good) return print_error("%s is no log of eingrad train", path), false;
    if (r->result.finished && !r->begun)
        return print_error("%s is the log of a finished run whose checkpoint is gone; move it away",
                           path),
               false;
    return true;
}

/* -- the table --------------------------------------------------------------------------------- */
static int number_order(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
/* Writes "425 (400-450)": the median of n numbers and the smallest and largest; for an even n the
 * median is the mean of the two in the middle. Sorts the numbers. */
static void spread_text(double *x, int n, const char *format, char out[NAME_SIZE])
{
    char number[3][32];
    if (!n) {
        snprintf(out, NAME_SIZE, "-");
        return;
    }
    qsort(x, (size_t)n, sizeof *x, number_order);
    const double shown[] = { (x[(n - 1) / 2] + x[n / 2]) / 2, x[0], x[n - 1] };
    for (int k = 0; k < 3; k++) snprintf(number[k], sizeof number[k], format, shown[k]);
    if (n == 1)
        snprintf(out, NAME_SIZE, "%s", number[0]);
    else
        snprintf(out, NAME_SIZE, "%s (%s-%s)", number[0], number[1], number[2]);
}

enum { COLUMNS = 7 };
static const char *const heading[COLUMNS] = { "",     "reached",     "steps",       "seconds",
                                              "loss", "unseen loss", "exact unseen" };
/* Composes the line of runs [from, to): how many reached the goal, and the steps and seconds of
 * these; losses and exact answers of all that are finished. */
static bool table_line(const plan *p, int from, int to, char (*cell)[NAME_SIZE])
{
    const int n = to - from;
    double *x = calloc((size_t)n * 5, sizeof *x);
    int reached = 0, finished = 0, last = 0, losses = 0;
    if (!x) return print_error("out of memory"), false;
    for (int k = from; k < to; k++) finished += p->run[k].result.finished;
    for (int k = from; k < to; k++) reached += p->run[k].result.reached;
    for (int k = from, row = 0; k < to; k++) {
        const outcome *o = &p->run[k].result;
        if (!o->finished) continue;
        x[3 * n + last] = o->unseen, x[4 * n + last] = 100 * o->exact;
        last++;
        /* the log of a finished run may have been removed: then its last loss is not known */
        if (isfinite(o->loss) || !isfinite(o->unseen)) x[2 * n + losses++] = o->loss;
        /* if none reached it: of all */
        if (reached && !o->reached) continue;
        x[row] = o->step, x[n + row] = o->seconds;
        row++;
    }
    const int counted = reached ? reached : finished;
    snprintf(cell[1], NAME_SIZE, "%d of %d", reached, n);
    spread_text(x, counted, "%.0f", cell[2]);
    spread_text(x + n, counted, "%.1f", cell[3]);
    spread_text(x + 2 * n, losses, "%.3g", cell[4]);
    spread_text(x + 3 * n, last, "%.3g", cell[5]);
    spread_text(x + 4 * n, last, "%.1f%%", cell[6]);
    free(x);
    return true;
}
/* The cells of a table are computed first, so that columns have the width of their longest cell. */
bool grid_table(const plan *p, bool runs)
{
    const int lines = runs ? p->runs : p->settings, each = runs ? 1 : p->seeds;
    char(*cell)[NAME_SIZE] = calloc((size_t)(lines + 1) * COLUMNS, sizeof *cell);
    int width[COLUMNS] = { 0 };
    bool good = cell != NULL || (print_error("out of memory"), false);
    for (int c = 0; good && c < COLUMNS; c++) snprintf(cell[c], NAME_SIZE, "%s", heading[c]);
    for (int k = 0; good && k < lines; k++) {
        char(*line)[NAME_SIZE] = cell + (k + 1) * COLUMNS;
        good = table_line(p, k * each, (k + 1) * each, line);
        if (runs)
            snprintf(line[0], NAME_SIZE, "%s", p->run[k].name);
        else
            plan_setting(p, k, " ", line[0], NAME_SIZE);
    }
    for (int k = 0; good && k < (lines + 1) * COLUMNS; k++)
        width[k % COLUMNS] = (int)fmax(width[k % COLUMNS], (double)strlen(cell[k]));
    for (int k = 0; good && k < (lines + 1) * COLUMNS; k++) {
        const int c = k % COLUMNS;
        if (c == COLUMNS - 1)
            puts(cell[k]);
        else if (width[c])
            printf("%-*s  ", width[c], cell[k]);
    }
    free(cell);
    return good;
}
