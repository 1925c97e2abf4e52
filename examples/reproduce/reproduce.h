/* What the programs of this folder share: their options, the loop over seeds, and the row of the
 * table that `make reproduce` prints.
 *
 *     build/examples/reproduce/NAME [--quick | --small] [--seeds N] [--first SEED] [--threads N]
 *                                   [--pictures FOLDER]
 *
 * --quick computes one seed instead of five, at the same size; --small a size of a few seconds, as
 * `make check` runs it. Exit status 0: the figure was reproduced by every seed. */
#ifndef REPRODUCE_H
#define REPRODUCE_H
#include <eingrad.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct setting {
    uint64_t seed;
    bool small;           /* a size of a few seconds */
    int threads;          /* default: 1 */
    const char *pictures; /* a folder; NULL: no pictures */
} setting;

typedef struct study {
    const char *name;
    const char *published, *source; /* the published figure, and its place in the paper */
    const char *measure;            /* the meaning of the value that `run` returns */
    double bound;       /* a seed agrees if its value is at most (.at_least: at least) this */
    double small_bound; /* the bound of --small; 0: the same bound */
    bool at_least;
    bool no_seeds; /* nothing is drawn: only one run */
    /* trains and measures; NaN after an error, which it has printed */
    double (*run)(const setting *);
} study;

static inline int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Opens a context for a run: its seed, its threads. */
static inline eg_ctx *open_for(const setting *s)
{
    return eg_open(.seed = s->seed + 1, .threads = s->threads);
}

/* Closes the context. Returns `result`; NaN, after an error message, if an operation failed. */
static inline double close_with(eg_ctx *cx, double result)
{
    if (!cx || eg_error(cx)) {
        fprintf(stderr, "%s\n", eg_error(cx));
        result = NAN;
    }
    eg_close(cx);
    return result;
}

/* Returns "FOLDER/NAME.svg" in a static buffer; NULL if no pictures are requested. */
static inline const char *picture(const setting *s, const char *name)
{
    static char path[4096];
    if (!s->pictures) return NULL;
    snprintf(path, sizeof path, "%s/%s.svg", s->pictures, name);
    return path;
}

/* Draws curves over the steps of a training, if pictures are requested. */
static inline void draw_curves(const setting *s, eg_ctx *cx, const char *name, const char *y_name,
                               int count, const eg_curve *curve)
{
    const char *path = picture(s, name);
    if (path && !eg_error(cx))
        eg_curves_save(path, cx, count, curve, .x_name = "step", .y_name = y_name);
}

/* Prints the last line of a program, a row of the table, with columns separated by bars. */
static inline void print_row(const study *y, bool small, int runs, double *value, int agreed,
                             double seconds)
{
    char verdict[32];
    if (agreed == runs)
        strcpy(verdict, small ? "as expected of a small size" : "reproduced");
    else if (!agreed)
        strcpy(verdict, "not reproduced");
    else
        snprintf(verdict, sizeof verdict, "in %d of %d seeds", agreed, runs);
    qsort(value, (size_t)runs, sizeof *value, by_value);
    const double median = (value[(runs - 1) / 2] + value[runs / 2]) / 2;
    printf("row | %s | %s (%s) | %s: %.4g", y->name, y->published, y->source, y->measure, median);
    if (runs > 1) printf(" (%.4g … %.4g, %d seeds)", value[0], value[runs - 1], runs);
    printf(" | %s | %.1f |\n", verdict, seconds / 60);
}

/* Sets *number to the integer that the text consists of. False if it is none. */
static inline bool read_number(const char *text, uint64_t *number)
{
    char *end;
    *number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end;
}

static inline int reproduce(const study *y, int argc, char **argv)
{
    setting s = { .threads = 1 };
    uint64_t seeds = 5, threads = 1;
    int agreed = 0;
    bool numbers = true;
    double value[64];
    for (int k = 1; k < argc; k++) {
        const char *next = k + 1 < argc ? argv[k + 1] : NULL;
        if (!strcmp(argv[k], "--quick"))
            seeds = 1;
        else if (!strcmp(argv[k], "--small"))
            s.small = true, seeds = 1;
        else if (!strcmp(argv[k], "--seeds") && next)
            numbers &= read_number(argv[++k], &seeds);
        else if (!strcmp(argv[k], "--first") && next)
            numbers &= read_number(argv[++k], &s.seed);
        else if (!strcmp(argv[k], "--threads") && next)
            numbers &= read_number(argv[++k], &threads);
        else if (!strcmp(argv[k], "--pictures") && next)
            s.pictures = argv[++k];
        else {
            fprintf(stderr, "%s: no option %s, or no value behind it\n", y->name, argv[k]);
            return 2;
        }
    }
    if (!numbers || seeds < 1 || seeds > 64 || threads < 1 || threads > 1024) {
        fprintf(stderr, "%s: 1 to 64 seeds, 1 to 1024 threads\n", y->name);
        return 2;
    }
    s.threads = (int)threads;
    if (y->no_seeds) seeds = 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    const double bound = s.small && y->small_bound ? y->small_bound : y->bound;
    const double start = seconds_now();
    for (int k = 0; k < (int)seeds;
         k++, s.seed++, s.pictures = NULL) { /* the first seed draws them */
        value[k] = y->run(&s);
        if (isnan(value[k])) return 2;
        const bool agrees = y->at_least ? value[k] >= bound : value[k] <= bound;
        agreed += agrees;
        printf("%s, seed %llu: %s %.6g, %s %g: %s\n", y->name, (unsigned long long)s.seed,
               y->measure, value[k], y->at_least ? "at least" : "at most", bound,
               agrees ? "yes" : "no");
        fflush(stdout);
    }
    print_row(y, s.small, (int)seeds, value, agreed, seconds_now() - start);
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "%s: standard output cannot be written\n", y->name);
        return 2;
    }
    return agreed == (int)seeds ? 0 : 1;
}
#endif
