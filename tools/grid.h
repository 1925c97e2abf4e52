/* grid.h: the runs of `eingrad grid`, and what its files share */
#ifndef EG_TOOLS_GRID_H
#define EG_TOOLS_GRID_H
#include "tools.h"
#include <sys/types.h>

enum { AXES_MOST = 8, VALUES_MOST = 64, RUNS_MOST = 4096, WORDS_MOST = 128 };
enum { NAME_ROOM = 200, VALUE_ROOM = 32 };

/* An option of `train` that is given several values. */
typedef struct axis {
    const option *o;
    int count;
    char given[VALUES_MOST][VALUE_ROOM], shown[VALUES_MOST][VALUE_ROOM]; /* "1e-3", "0.001" */
} axis;
typedef struct outcome { /* of a run, from its log */
    bool finished, reached;
    double step, seconds, loss, unseen, exact;
} outcome;
typedef struct grid_run {
    int setting, seed;
    char name[NAME_ROOM]; /* "lr=0.001,seed=3" */
    bool begun;           /* there is a checkpoint */
    pid_t process;        /* 0: it is not at work */
    int said;             /* the end of a pipe: what it says on standard error */
    bool failed;
    outcome result;
} grid_run;
typedef struct plan {
    const char *task; /* NULL: --pairs or --text */
    char *fixed[WORDS_MOST];
    int fixeds; /* options of `train` with one value */
    axis axis[AXES_MOST];
    int axes, settings, seeds, runs;
    int64_t seed[RUNS_MOST];
    char folder[2048];
    grid_run *run;
} plan;

/* -- grid_plan.c: which runs there are, and their names. False: after saying why --------------- */
/* Sorts the words: own ones to own[], which has room for all; options of `train` to the plan. */
bool plan_words(plan *, int count, char **word, char **own, int *owns);
bool plan_seeds(plan *, const char *text); /* "8", seeds 0 to 7, or "3,5,7"; NULL: 5 */
/* TASK-grid, or the name of the file in place of TASK, in the present folder; or what is given. */
void plan_folder(plan *, const char *given);
bool plan_runs(plan *); /* lays out the runs, in plan.run, which the caller frees */
void plan_path(const plan *, const grid_run *, const char *end, char *out, size_t room);
/* The value of axis k in a setting. The last axis varies fastest. */
int plan_value(const plan *, int setting, int k);
/* "lr=0.001,heads=4": what a setting has of its own; "" if there is one setting alone. */
void plan_setting(const plan *, int setting, const char *between, char *out, size_t room);

/* -- grid_table.c: results, from logs to the table --------------------------------------------- */
/* Reads the log of a run, if there is one. False after saying that it cannot be the run's. */
bool grid_look(eg_ctx *, const plan *, grid_run *);
/* Prints a line for each setting, or for each run. False after saying why. */
bool grid_table(const plan *, bool runs);
#endif
