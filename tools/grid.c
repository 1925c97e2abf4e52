/* eingrad grid: runs `train` with several seeds and values of options, several runs at a time, each
 * in a process of its own, and prints a table of their results. The folder of the grid holds a
 * checkpoint and a log for each run, named by its values. A run that is finished is read from its
 * log, and one that was interrupted continues from its checkpoint. */
#include "tools.h"
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct grid {
    const char *seeds, *out;
    int64_t jobs;
    bool runs;
} grid;
#define AT(member) offsetof(grid, member)
static const option options[] = {
    { 0, "seeds", TEXT, "N|N,N,...", "so many seeds from 0 on, or these (default 5)", AT(seeds), 0,
      0, false },
    { 0, "out", TEXT, "FOLDER", "of checkpoints and logs (default TASK-grid); it is made", AT(out),
      0, 0, false },
    { 0, "jobs", WHOLE, "N", "runs at the same time (default: as many as cores)", AT(jobs), 1, 1024,
      false },
    { 0, "runs", FLAG, NULL, "a line for each run in the table, not for each setting", AT(runs), 0,
      0, false },
    { 0 }
};
enum {
    AXES_MOST = 8,
    VALUES_MOST = 64,
    RUNS_MOST = 4096,
    WORDS_MOST = 128,
    NAME_ROOM = 200,
    VALUE_ROOM = 32
};

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
typedef struct one { /* a run */
    int setting, seed;
    char name[NAME_ROOM]; /* "lr=0.001,seed=3" */
    bool begun;           /* there is a checkpoint */
    pid_t process;        /* 0: it is not at work */
    int said;             /* the end of a pipe: what it says on standard error */
    bool failed;
    outcome result;
} one;
typedef struct plan {
    const char *task; /* NULL: --pairs or --text */
    char *fixed[WORDS_MOST];
    int fixeds; /* options of `train` with one value */
    axis axis[AXES_MOST];
    int axes, settings, seeds, runs;
    int64_t seed[RUNS_MOST];
    char folder[2048];
    one *run;
} plan;

/* -- words: those of grid, those of train, and lists of values --------------------------------- */
/* Options of `train` that a grid gives to each run itself. */
static const char *const taken[][2] = { { "seed", "--seeds" }, { "threads", "--jobs" },
                                        { "out", "--out" },    { "log", "--out" },
                                        { "resume", "--out" }, { "best", NULL },
                                        { "curve", NULL },     { "force", NULL } };

static const option *option_of(const option *o, const char *word)
{
    const size_t n = strcspn(word + 2, "=");
    for (; o->name || o->letter; o++)
        if (o->name && o->kind != GONE && strlen(o->name) == n && !strncmp(o->name, word + 2, n))
            return o;
    return NULL;
}

/* Writes a value as it stands in names of runs: texts of the same number, such as 1e-3 and 0.001,
 * give the same name. */
static void shown_value(const option *o, const char *text, char out[VALUE_ROOM])
{
    char *end;
    const double x = strtod(text, &end);
    if (o->kind != CHOICE && *text && !*end)
        snprintf(out, VALUE_ROOM, "%.12g", x);
    else
        memcpy(out, text, strlen(text) + 1);
}

/* Adds "--lr 1e-3,3e-3" as an axis. False after saying why. */
static bool add_axis(plan *p, const option *o, const char *text)
{
    if (p->axes == AXES_MOST)
        return say("grid: at most %d options have several values", AXES_MOST), false;
    axis *a = &p->axis[p->axes++];
    a->o = o;
    for (const char *s = text;; s++) {
        const size_t n = strcspn(s, ",");
        if (a->count == VALUES_MOST || !n || n >= sizeof a->given[0])
            return say("--%s must be from 1 to %d values, as 1,2,3, not \"%s\"", o->name,
                       VALUES_MOST, text),
                   false;
        char *given = a->given[a->count];
        memcpy(given, s, n);
        given[n] = 0;
        shown_value(o, given, a->shown[a->count]);
        for (int k = 0; k < a->count; k++)
            if (!strcmp(a->shown[k], a->shown[a->count]))
                return say("--%s has %s twice", o->name, a->shown[k]), false;
        a->count++;
        s += n;
        if (!*s) return true;
    }
}

/* Sorts the words: own ones to own[], which has room for all. False after saying why. */
static bool sort_words(plan *p, int count, char **word, char **own, int *owns)
{
    for (int k = 0; k < count; k++) {
        const bool dashes = !strncmp(word[k], "--", 2) && word[k][2];
        const option *o = dashes && !option_of(options, word[k])
                              ? option_of(train_command.options, word[k])
                              : NULL;
        if (!o) { /* read_options has the last word on it */
            const option *mine = dashes ? option_of(options, word[k]) : NULL;
            own[(*owns)++] = word[k];
            if (mine && mine->kind != FLAG && !strchr(word[k], '=') && k + 1 < count)
                own[(*owns)++] = word[++k];
            continue;
        }
        for (size_t t = 0; t < sizeof taken / sizeof *taken; t++)
            if (!strcmp(taken[t][0], o->name))
                return taken[t][1]
                           ? say("grid has no --%s; see %s", o->name, taken[t][1])
                           : say("grid has no --%s: each run has files of its own", o->name),
                       false;
        const char *value = strchr(word[k], '=');
        if (!value && o->kind != FLAG && k + 1 == count)
            return say("--%s needs a value: %s", o->name, o->argument), false;
        value = value ? value + 1 : o->kind != FLAG ? word[k + 1] : NULL;
        const bool number = o->kind == WHOLE || o->kind == REAL || o->kind == CHOICE;
        const int taking = o->kind != FLAG && !strchr(word[k], '=') ? 2 : 1;
        if (number && strchr(value, ',')) {
            if (!add_axis(p, o, value)) return false;
        } else {
            if (p->fixeds + taking > WORDS_MOST - 16) return say("grid: too many words"), false;
            for (int j = 0; j < taking; j++) p->fixed[p->fixeds++] = word[k + j];
        }
        k += taking - 1;
    }
    return true;
}

/* "8", seeds 0 to 7, or "3,5,7". False after saying why. */
static bool read_seeds(plan *p, const char *text)
{
    int64_t n;
    char number[32];
    if (!text) text = "5";
    const bool several = strchr(text, ',');
    for (const char *s = text;; s++) {
        const size_t length = strcspn(s, ",");
        snprintf(number, sizeof number, "%.*s", length < sizeof number ? (int)length : 0, s);
        if (!read_whole(number, &n) || n < !several ||
            (several ? n > 9000000000000000 : n > RUNS_MOST) || p->seeds == RUNS_MOST)
            return say("--seeds must be a number from 1 to %d, or seeds as 3,5,7, not \"%s\"",
                       RUNS_MOST, text),
                   false;
        for (int k = 0; k < p->seeds; k++)
            if (p->seed[k] == n) return say("--seeds has %lld twice", (long long)n), false;
        if (several) p->seed[p->seeds++] = n;
        s += length;
        if (!*s) break;
    }
    for (int64_t k = 0; !several && k < n; k++) p->seed[p->seeds++] = k;
    return true;
}

/* -- files ------------------------------------------------------------------------------------- */
static void path_of(const plan *p, const one *r, const char *end, char *out, size_t room)
{
    snprintf(out, room, "%s/%s.%s", p->folder, r->name, end);
}
/* The value of axis k in a setting. The last axis varies fastest. */
static int value_at(const plan *p, int setting, int k)
{
    for (int later = p->axes - 1; later > k; later--) setting /= p->axis[later].count;
    return setting % p->axis[k].count;
}
/* "lr=0.001,heads=4": what a setting has of its own; "" if there is one setting alone. */
static void setting_name(const plan *p, int setting, const char *between, char *out, size_t room)
{
    *out = 0;
    for (int k = 0; k < p->axes; k++)
        snprintf(out + strlen(out), room - strlen(out), "%s%s=%s", k ? between : "",
                 p->axis[k].o->name, p->axis[k].shown[value_at(p, setting, k)]);
}
static bool lay_out(plan *p) /* false after saying why */
{
    p->settings = 1;
    for (int k = 0; k < p->axes && p->settings <= RUNS_MOST; k++) p->settings *= p->axis[k].count;
    if (p->settings > RUNS_MOST || p->settings * p->seeds > RUNS_MOST)
        return say("grid: %d seeds of %d settings are more than %d runs", p->seeds, p->settings,
                   RUNS_MOST),
               false;
    p->runs = p->settings * p->seeds;
    p->run = calloc((size_t)p->runs, sizeof *p->run);
    if (!p->run) return say("out of memory"), false;
    for (int k = 0; k < p->runs; k++) {
        one *r = &p->run[k];
        char setting[NAME_ROOM], path[4096];
        r->setting = k / p->seeds, r->seed = k % p->seeds;
        setting_name(p, r->setting, ",", setting, sizeof setting);
        if (snprintf(r->name, sizeof r->name, "%s%sseed=%lld", setting, *setting ? "," : "",
                     (long long)p->seed[r->seed]) >= (int)sizeof r->name)
            return say("grid: the name of a run, \"%s\", is too long", r->name), false;
        path_of(p, r, "safetensors", path, sizeof path);
        r->begun = access(path, F_OK) == 0;
    }
    return true;
}

/* -- logs -------------------------------------------------------------------------------------- */
static double number_in(const eg_json *line, const char *key)
{
    const eg_json *x = eg_json_find(line, key);
    return x && x->kind == EG_JSON_NUMBER ? x->number : NAN;
}
/* Reads the result of a run from its log. The seconds are the sum over the processes that worked on
 * the run one after another: each continues from the step on its first line, and the process before
 * it had needed at[step] seconds up to that step. False if the file is no log of train. */
static bool read_outcome(eg_ctx *cx, FILE *f, outcome *r)
{
    char *text = NULL;
    double *at = NULL, before = 0, goal = 0;
    size_t room = 0, ats = 0;
    bool good = true, first = true;
    *r = (outcome){ .step = 0, .loss = NAN, .unseen = NAN, .exact = NAN };
    for (ssize_t n; good && (n = getline(&text, &room, f)) >= 0; first = false) {
        const eg_mark m = eg_push(cx);
        const eg_json *line = eg_json_read(cx, text, (size_t)n);
        const double step = line ? number_in(line, "step") : NAN,
                     seconds = line ? number_in(line, "seconds") : NAN;
        const size_t s = step >= 0 && step < 1e9 ? (size_t)step : 0;
        if (!line) eg_clear(cx); /* the process was killed while it wrote this line */
        good = !first || (line && eg_json_find(line, "data"));
        if (line && eg_json_find(line, "data")) {
            before = s < ats ? at[s] : 0;
            goal = number_in(line, "goal");
            r->finished = false;
        } else if (line && isfinite(seconds)) {
            double *more = s < ats ? at : realloc(at, 2 * (s + 64) * sizeof *more);
            if (more && more != at) memset(more + ats, 0, (2 * (s + 64) - ats) * sizeof *more);
            if (more && s >= ats) at = more, ats = 2 * (s + 64);
            if (more) at[s] = before + seconds;
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
    }
    free(text);
    free(at);
    return good;
}
/* Reads the log of a run, if there is one. False after saying that it cannot be the run's. */
static bool look(eg_ctx *cx, const plan *p, one *r)
{
    char path[4096];
    path_of(p, r, "jsonl", path, sizeof path);
    FILE *f = fopen(path, "r");
    if (!f) return errno == ENOENT || (say("%s: %s", path, strerror(errno)), false);
    const bool good = read_outcome(cx, f, &r->result);
    fclose(f);
    if (!good) return say("%s is no log of eingrad train", path), false;
    if (r->result.finished && !r->begun)
        return say("%s is the log of a finished run whose checkpoint is gone; move it away", path),
               false;
    return true;
}

/* -- processes --------------------------------------------------------------------------------- */
/* The words of `train` for a run. Returns how many. */
static int train_words(const plan *p, const one *r, int threads, char (*text)[4096], char **word)
{
    int n = 0, t = 0;
    if (p->task) word[n++] = (char *)p->task;
    for (int k = 0; k < p->fixeds; k++) word[n++] = p->fixed[k];
    for (int k = 0; k < p->axes; k++) {
        snprintf(text[t], sizeof text[t], "--%s=%s", p->axis[k].o->name,
                 p->axis[k].given[value_at(p, r->setting, k)]);
        word[n++] = text[t++];
    }
    snprintf(text[t], sizeof text[t], "--seed=%lld", (long long)p->seed[r->seed]);
    word[n++] = text[t++];
    snprintf(text[t], sizeof text[t], "--threads=%d", threads);
    word[n++] = text[t++];
    memcpy(text[t], "--out=", 6);
    path_of(p, r, "safetensors", text[t] + 6, sizeof text[t] - 6);
    word[n++] = text[t++];
    memcpy(text[t], "--log=", 6);
    path_of(p, r, "jsonl", text[t] + 6, sizeof text[t] - 6);
    word[n++] = text[t++];
    if (r->begun) word[n++] = "--resume";
    return n;
}

/* Runs in a process of its own: trains, or only checks whether the options are possible. Does not
 * return. */
static void be(const plan *p, const one *r, int threads, bool check)
{
    char text[AXES_MOST + 4][4096], *word[2 * WORDS_MOST];
    const int n = train_words(p, r, threads, text, word);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    if (!freopen("/dev/null", "w", stdout)) _exit(EXIT_FAILURE);
    const int status =
        check ? train_check(n - r->begun, word) : train_command.run(&train_command, n, word);
    fflush(NULL);
    _exit(status);
}

/* Asks `train` about the first run of each setting, and about each that has a checkpoint already:
 * whether its values are possible, and the checkpoint is of that run. False after saying why. */
static bool all_possible(const plan *p)
{
    for (int k = 0; k < p->runs; k++) {
        if (p->run[k].seed && !p->run[k].begun) continue;
        int status = -1;
        fflush(NULL);
        const pid_t process = fork();
        if (process == 0) be(p, &p->run[k], 1, true);
        while (process > 0 && waitpid(process, &status, 0) < 0 && errno == EINTR) continue;
        if (process < 0) return say("no process can be started: %s", strerror(errno)), false;
        if (!WIFEXITED(status)) return say("grid: a process was ended by a signal"), false;
        if (WEXITSTATUS(status)) return false;
    }
    return true;
}

static volatile sig_atomic_t stopped;
static void stop(int number) { stopped = number; }

static bool begin(const plan *p, one *r, int threads) /* false after saying why */
{
    int ends[2];
    if (pipe(ends)) return say("no pipe can be opened: %s", strerror(errno)), false;
    fflush(NULL);
    r->process = fork();
    if (r->process == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        be(p, r, threads, false);
    }
    close(ends[1]);
    r->said = ends[0];
    if (r->process > 0) return true;
    close(ends[0]);
    return say("no process can be started: %s", strerror(errno)), false;
}

static void print_run(const one *r)
{
    const outcome *o = &r->result;
    if (o->reached)
        printf("%s: the goal after %.0f steps, %.1f s\n", r->name, o->step, o->seconds);
    else
        printf("%s: %.0f steps, %.1f s, unseen loss %.4g%s\n", r->name, o->step, o->seconds,
               o->unseen, o->finished ? "" : ", unfinished");
    fflush(stdout);
}

/* What a process has said and done. */
static void ended(eg_ctx *cx, const plan *p, one *r, int status)
{
    char text[2048];
    ssize_t n = read(r->said, text, sizeof text - 1);
    close(r->said);
    r->process = 0;
    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    r->begun = true;
    if (WIFEXITED(status) && !WEXITSTATUS(status) && look(cx, p, r) && r->result.finished) {
        print_run(r);
        return;
    }
    if (stopped) return;
    r->failed = true;
    const char *why = strncmp(text, "eingrad: ", 9) ? text : text + 9;
    if (WIFSIGNALED(status))
        say("%s: ended by signal %d", r->name, WTERMSIG(status));
    else
        say("%s: %s", r->name, *why ? why : "it ended without a result");
}

/* Runs all that is unfinished, `jobs` at a time. False after an error that ends the grid. */
static bool work(eg_ctx *cx, plan *p, int jobs, int threads)
{
    int next = 0, busy = 0;
    bool good = true;
    while (busy || (good && !stopped && next < p->runs)) {
        if (good && !stopped && busy < jobs && next < p->runs) {
            one *r = &p->run[next++];
            if (r->result.finished) continue;
            good = begin(p, r, threads);
            busy += good;
            continue;
        }
        int status;
        const pid_t process = waitpid(-1, &status, 0);
        if (process < 0 && errno == EINTR) { /* a terminal tells all; a lone signal is handed on */
            for (int k = 0; stopped && k < p->runs; k++)
                if (p->run[k].process > 0) kill(p->run[k].process, SIGTERM);
            continue;
        }
        if (process < 0) break;
        for (int k = 0; k < p->runs; k++)
            if (p->run[k].process == process) ended(cx, p, &p->run[k], status), busy--;
    }
    return good;
}

/* -- the table --------------------------------------------------------------------------------- */
static int number_order(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
/* "425 (400-450)": the median of n numbers, which are sorted, and the smallest and largest; of an
 * even number of them the mean of the two in the middle. */
static void spread_text(double *x, int n, const char *format, char *out, size_t room)
{
    char number[3][32];
    if (!n) {
        snprintf(out, room, "-");
        return;
    }
    qsort(x, (size_t)n, sizeof *x, number_order);
    const double shown[] = { (x[(n - 1) / 2] + x[n / 2]) / 2, x[0], x[n - 1] };
    for (int k = 0; k < 3; k++) snprintf(number[k], sizeof number[k], format, shown[k]);
    if (n == 1)
        snprintf(out, room, "%s", number[0]);
    else
        snprintf(out, room, "%s (%s-%s)", number[0], number[1], number[2]);
}

enum { COLUMNS = 7 };
static const char *const heading[COLUMNS] = { "",     "reached",     "steps",       "seconds",
                                              "loss", "unseen loss", "exact unseen" };
/* The line of runs [from, to): how many reached the goal, and of those steps and seconds; losses
 * and exact answers of all that are finished. */
static bool table_line(const plan *p, int from, int to, char (*cell)[NAME_ROOM])
{
    const int n = to - from;
    double *x = calloc((size_t)n * 5, sizeof *x);
    int reached = 0, finished = 0, last = 0;
    if (!x) return say("out of memory"), false;
    for (int k = from; k < to; k++) finished += p->run[k].result.finished;
    for (int k = from; k < to; k++) reached += p->run[k].result.reached;
    for (int k = from, row = 0; k < to; k++) {
        const outcome *o = &p->run[k].result;
        if (!o->finished) continue;
        x[2 * n + last] = o->loss, x[3 * n + last] = o->unseen, x[4 * n + last] = 100 * o->exact;
        last++;
        /* where none reached it: of all */
        if (reached && !o->reached) continue;
        x[row] = o->step, x[n + row] = o->seconds;
        row++;
    }
    const int counted = reached ? reached : finished;
    snprintf(cell[1], NAME_ROOM, "%d of %d", reached, n);
    spread_text(x, counted, "%.0f", cell[2], NAME_ROOM);
    spread_text(x + n, counted, "%.1f", cell[3], NAME_ROOM);
    spread_text(x + 2 * n, last, "%.3g", cell[4], NAME_ROOM);
    spread_text(x + 3 * n, last, "%.3g", cell[5], NAME_ROOM);
    spread_text(x + 4 * n, last, "%.1f%%", cell[6], NAME_ROOM);
    free(x);
    return true;
}
static bool print_table(const plan *p, bool runs) /* false after saying why */
{
    const int lines = runs ? p->runs : p->settings, each = runs ? 1 : p->seeds;
    char(*cell)[NAME_ROOM] = calloc((size_t)(lines + 1) * COLUMNS, sizeof *cell);
    int width[COLUMNS] = { 0 };
    bool good = cell != NULL || (say("out of memory"), false);
    for (int c = 0; good && c < COLUMNS; c++) snprintf(cell[c], NAME_ROOM, "%s", heading[c]);
    for (int k = 0; good && k < lines; k++) {
        char(*line)[NAME_ROOM] = cell + (k + 1) * COLUMNS;
        good = table_line(p, k * each, (k + 1) * each, line);
        if (runs)
            snprintf(line[0], NAME_ROOM, "%s", p->run[k].name);
        else
            setting_name(p, k, " ", line[0], NAME_ROOM);
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

/* -- the command ------------------------------------------------------------------------------- */
/* *made: it was not there. False after saying why. */
static bool make_folder(const plan *p, bool *made)
{
    struct stat s;
    *made = !mkdir(p->folder, 0777);
    if (!*made && errno != EEXIST) return say("--out %s: %s", p->folder, strerror(errno)), false;
    if (stat(p->folder, &s) || !S_ISDIR(s.st_mode))
        return say("--out %s is no folder", p->folder), false;
    return true;
}
/* TASK-grid, or the name of the file in place of TASK, in the present folder. */
static void folder_of(plan *p, const char *given)
{
    const char *name = p->task ? p->task : "grid";
    for (int k = 0; !p->task && k < p->fixeds; k++) {
        const char *file = !strncmp(p->fixed[k], "--pairs", 7) || !strncmp(p->fixed[k], "--text", 6)
                               ? strchr(p->fixed[k], '=')
                               : NULL;
        if (!file && (!strcmp(p->fixed[k], "--pairs") || !strcmp(p->fixed[k], "--text")))
            file = p->fixed[k + 1] - 1;
        if (!file) continue;
        const char *slash = strrchr(file + 1, '/');
        name = slash ? slash + 1 : file + 1;
    }
    if (given)
        snprintf(p->folder, sizeof p->folder, "%s", given);
    else
        snprintf(p->folder, sizeof p->folder, "%.*s-grid", (int)strcspn(name, "."), name);
}

static int carry_out(eg_ctx *cx, plan *p, const grid *o)
{
    int left = 0, failed = 0;
    bool made;
    for (int k = 0; k < p->runs; k++)
        if (!look(cx, p, &p->run[k])) return EXIT_FAILURE;
    if (!make_folder(p, &made)) return EXIT_FAILURE;
    if (!all_possible(p)) {
        if (made) rmdir(p->folder);
        return EXIT_FAILURE;
    }
    for (int k = 0; k < p->runs; k++) left += !p->run[k].result.finished;
    const int cores = (int)sysconf(_SC_NPROCESSORS_ONLN), most = o->jobs ? (int)o->jobs : cores,
              jobs = left < most ? left : most, threads = jobs && jobs < cores ? cores / jobs : 1;
    printf("%d runs in %s, %d of them finished; %d at a time\n", p->runs, p->folder, p->runs - left,
           jobs);
    fflush(stdout);
    struct sigaction act = { .sa_handler = stop };
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    const bool good = work(cx, p, jobs, threads);
    for (int k = 0; k < p->runs; k++) failed += p->run[k].failed;
    if (stopped) {
        printf("stopped; the same command goes on\n");
        return 128 + stopped;
    }
    putchar('\n');
    if (!good || !print_table(p, o->runs)) return EXIT_FAILURE;
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int run(const command *c, int count, char **word)
{
    grid o = { 0 };
    words w;
    static plan p;
    char **own = calloc((size_t)count + 1, sizeof *own);
    int owns = 0, status = EXIT_FAILURE;
    if (!own) return say("out of memory");
    const bool sorted = sort_words(&p, count, word, own, &owns);
    const parsed parse = sorted ? read_options(c, owns, own, &o, &w) : REFUSED;
    if (parse == HELPED) status = EXIT_SUCCESS;
    if (parse == PARSED && w.count > 1)
        say("grid takes one task, and there is \"%s\" too", w.word[1]);
    if (parse == PARSED && w.count <= 1 && read_seeds(&p, o.seeds)) {
        p.task = w.count ? w.word[0] : NULL;
        folder_of(&p, o.out);
        eg_ctx *cx = eg_open(.threads = 1);
        if (!cx)
            say_error(cx, NULL);
        else if (lay_out(&p))
            status = carry_out(cx, &p, &o);
        eg_close(cx);
    }
    free(p.run);
    free(own);
    return status;
}

const command grid_command = {
    .name = "grid",
    .usage = "TASK | --pairs FILE | --text FILE [OPTION VALUE,VALUE...]",
    .about = "train with several seeds and values of options, side by side: a table of medians",
    .more =
        "Takes the options of train; one that is a number or a choice may have several values.\n"
        "Each run has the bits that it has alone. The same command again runs what is not\n"
        "finished and prints the table: steps and seconds are of the runs that reached the "
        "goal\n"
        "(of all if none did), as median (smallest-largest).\n\n"
        "  grid reverse --seeds 8 --lr 1e-3,3e-3 --heads 2,4\n",
    .options = options,
    .run = run,
};
