/* grid_plan.c: the runs of `eingrad grid`: its words, those that it passes to `train`, lists of
 * values and of seeds; the names of runs and of their files. */
#include "grid.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* -- words: those of grid, those of train, and lists of values --------------------------------- */
/* Options of `train` that a grid sets for each run itself, and the option of grid that determines
 * them. */
static const char *const taken[][2] = { { "seed", "--seeds" }, { "threads", "--jobs" },
                                        { "out", "--out" },    { "log", "--out" },
                                        { "resume", "--out" }, { "best", NULL },
                                        { "curve", NULL },     { "force", NULL } };

static const option *option_of(const option *o, const char *word)
{
    const size_t n = strcspn(word + 2, "=");
    for (; o->name || o->letter; o++)
        if (o->name && o->kind != REMOVED && strlen(o->name) == n && !strncmp(o->name, word + 2, n))
            return o;
    return NULL;
}

/* Writes a value as it occurs in names of runs: texts of the same number, such as 1e-3 and 0.001,
 * give the same name. */
static void shown_value(const option *o, const char *text, char out[VALUE_SIZE])
{
    char *end;
    const double x = strtod(text, &end);
    if (o->kind != CHOICE && *text && !*end)
        snprintf(out, VALUE_SIZE, "%.12g", x);
    else
        memcpy(out, text, strlen(text) + 1);
}

/* Adds "--lr 1e-3,3e-3" as an axis. False after an error message. */
static bool add_axis(plan *p, const option *o, const char *text)
{
    if (p->axes == AXES_MOST)
        return print_error("grid: at most %d options have several values", AXES_MOST), false;
    axis *a = &p->axis[p->axes++];
    a->o = o;
    for (const char *s = text;; s++) {
        const size_t n = strcspn(s, ",");
        if (a->count == VALUES_MOST || !n || n >= sizeof a->given[0])
            return print_error("--%s must be from 1 to %d values, as 1,2,3, not \"%s\"", o->name,
                               VALUES_MOST, text),
                   false;
        char *given = a->given[a->count];
        memcpy(given, s, n);
        given[n] = 0;
        shown_value(o, given, a->shown[a->count]);
        for (int k = 0; k < a->count; k++)
            if (!strcmp(a->shown[k], a->shown[a->count]))
                return print_error("--%s has %s twice", o->name, a->shown[k]), false;
        a->count++;
        s += n;
        if (!*s) return true;
    }
}

/* A word is one of grid's unless `train` has an option of that name and grid has none. */
bool plan_words(plan *p, int count, char **word, char **own, int *owns)
{
    for (int k = 0; k < count; k++) {
        const bool dashes = !strncmp(word[k], "--", 2) && word[k][2];
        const option *o = dashes && !option_of(grid_command.options, word[k])
                              ? option_of(train_command.options, word[k])
                              : NULL;
        if (!o) { /* read_options reports errors in these words */
            const option *mine = dashes ? option_of(grid_command.options, word[k]) : NULL;
            own[(*owns)++] = word[k];
            if (mine && mine->kind != FLAG && !strchr(word[k], '=') && k + 1 < count)
                own[(*owns)++] = word[++k];
            continue;
        }
        for (size_t t = 0; t < sizeof taken / sizeof *taken; t++)
            if (!strcmp(taken[t][0], o->name))
                return taken[t][1] ? print_error("grid has no --%s; see %s", o->name, taken[t][1])
                                   : print_error("grid has no --%s: each run has files of its own",
                                                 o->name),
                       false;
        const char *value = strchr(word[k], '=');
        if (!value && o->kind != FLAG && k + 1 == count)
            return print_error("--%s needs a value: %s", o->name, o->argument), false;
        value = value ? value + 1 : o->kind != FLAG ? word[k + 1] : NULL;
        const bool number = o->kind == INTEGER || o->kind == REAL || o->kind == CHOICE;
        const int taking = o->kind != FLAG && !strchr(word[k], '=') ? 2 : 1;
        if (number && strchr(value, ',')) {
            if (!add_axis(p, o, value)) return false;
        } else {
            if (p->fixeds + taking > WORDS_MOST - 16)
                return print_error("grid: too many words"), false;
            for (int j = 0; j < taking; j++) p->fixed[p->fixeds++] = word[k + j];
        }
        k += taking - 1;
    }
    return true;
}

/* Reads a number of seeds, or a list of them. */
bool plan_seeds(plan *p, const char *text)
{
    int64_t n;
    char number[32];
    if (!text) text = "5";
    const bool several = strchr(text, ',');
    for (const char *s = text;; s++) {
        const size_t length = strcspn(s, ",");
        snprintf(number, sizeof number, "%.*s", length < sizeof number ? (int)length : 0, s);
        if (!read_integer(number, &n) || n < !several ||
            (several ? n > 9000000000000000 : n > RUNS_MOST) || p->seeds == RUNS_MOST)
            return print_error(
                       "--seeds must be a number from 1 to %d, or seeds as 3,5,7, not \"%s\"",
                       RUNS_MOST, text),
                   false;
        for (int k = 0; k < p->seeds; k++)
            if (p->seed[k] == n) return print_error("--seeds has %lld twice", (long long)n), false;
        if (several) p->seed[p->seeds++] = n;
        s += length;
        if (!*s) break;
    }
    for (int64_t k = 0; !several && k < n; k++) p->seed[p->seeds++] = k;
    return true;
}

/* -- runs and their files ---------------------------------------------------------------------- */
void plan_path(const plan *p, const grid_run *r, const char *end, char *out, size_t size)
{
    snprintf(out, size, "%s/%s.%s", p->folder, r->name, end);
}
int plan_value(const plan *p, int setting, int k)
{
    for (int later = p->axes - 1; later > k; later--) setting /= p->axis[later].count;
    return setting % p->axis[k].count;
}
void plan_setting(const plan *p, int setting, const char *between, char *out, size_t size)
{
    *out = 0;
    for (int k = 0; k < p->axes; k++)
        snprintf(out + strlen(out), size - strlen(out), "%s%s=%s", k ? between : "",
                 p->axis[k].o->name, p->axis[k].shown[plan_value(p, setting, k)]);
}
/* The seeds of a setting are consecutive runs. */
bool plan_runs(plan *p)
{
    p->settings = 1;
    for (int k = 0; k < p->axes && p->settings <= RUNS_MOST; k++) p->settings *= p->axis[k].count;
    if (p->settings > RUNS_MOST || p->settings * p->seeds > RUNS_MOST)
        return print_error("grid: %d seed%s of %d setting%s are more than %d runs", p->seeds,
                           p->seeds == 1 ? "" : "s", p->settings, p->settings == 1 ? "" : "s",
                           RUNS_MOST),
               false;
    p->runs = p->settings * p->seeds;
    p->run = calloc((size_t)p->runs, sizeof *p->run);
    if (!p->run) return print_error("out of memory"), false;
    for (int k = 0; k < p->runs; k++) {
        grid_run *r = &p->run[k];
        char setting[NAME_SIZE], path[4096];
        r->setting = k / p->seeds, r->seed = k % p->seeds;
        plan_setting(p, r->setting, ",", setting, sizeof setting);
        if (snprintf(r->name, sizeof r->name, "%s%sseed=%lld", setting, *setting ? "," : "",
                     (long long)p->seed[r->seed]) >= (int)sizeof r->name)
            return print_error("grid: the name of a run, \"%s\", is too long", r->name), false;
        plan_path(p, r, "safetensors", path, sizeof path);
        r->begun = access(path, F_OK) == 0;
    }
    return true;
}
void plan_folder(plan *p, const char *given)
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
