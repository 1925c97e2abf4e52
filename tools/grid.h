/* grid.h: the runs of `eingrad grid`, and what its files share. */
#ifndef EG_TOOLS_GRID_H
#define EG_TOOLS_GRID_H
#include "tools.h"
#include <sys/types.h>

enum { AXES_MOST = 8, VALUES_MOST = 64, RUNS_MOST = 4096, WORDS_MOST = 128 };
enum { NAME_SIZE = 200, VALUE_SIZE = 32 };

/* An option of `train` with several values. */
typedef struct axis {
    const option *o;
    int count;
    char given[VALUES_MOST][VALUE_SIZE], shown[VALUES_MOST][VALUE_SIZE]; /* "1e-3", "0.001" */
} axis;
typedef struct outcome { /* the results of a run, from its log */
    bool finished, reached;
    double step, seconds, loss, unseen, exact;
} outcome;
typedef struct grid_run {
    int setting, seed;
    char name[NAME_SIZE]; /* "lr=0.001,seed=3" */
    bool begun;           /* a checkpoint exists */
    pid_t process;        /* 0: it is not running */
    int said;             /* the end of a pipe from its standard error */
    bool failed;
    outcome result;
} grid_run;
typedef struct plan {
    const char *task; /* NULL: --pairs or --text */
    char *fixed[WORDS_MOST];
    int fixeds; /* number of options of `train` with one value */
    axis axis[AXES_MOST];
    int axes, settings, seeds, runs;
    int64_t seed[RUNS_MOST];
    char folder[2048];
    grid_run *run;
} plan;

/* -- grid_plan.c: the runs and their names. False after an error message ----------------------- */
/* Distributes the words: those of `grid` to own[], which has room for all; options of `train` to
 * the plan. */
bool plan_words(plan *, int count, char **word, char **own, int *owns);
bool plan_seeds(plan *, const char *text); /* "8", seeds 0 to 7, or "3,5,7"; NULL: "5" */
/* Sets the folder: the given one, or TASK-grid in the present folder, with the name of the file in
 * place of TASK. */
void plan_folder(plan *, const char *given);
bool plan_runs(plan *); /* lists the runs in plan.run, which the caller frees */
void plan_path(const plan *, const grid_run *, const char *end, char *out, size_t size);
/* Returns the value of axis k in a setting. The last axis varies fastest. */
int plan_value(const plan *, int setting, int k);
/* Writes "lr=0.001,heads=4", the values that distinguish a setting; "" if there is only one
 * setting. */
void plan_setting(const plan *, int setting, const char *between, char *out, size_t size);

/* -- grid_table.c: results, from logs to the table --------------------------------------------- */
/* Reads the log of a run, if there is one. False after a message that it is not the log of this
 * run. */
bool grid_read_log(eg_ctx *, const plan *, grid_run *);
/* Prints a line for each setting, or for each run. False after an error message. */
bool grid_table(const plan *, bool runs);
#endif
