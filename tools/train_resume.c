/* train_resume.c: the files that `eingrad train` finds: a checkpoint to continue, whose options
 * must agree with those that are given again, and files that it may replace. */
#include "train.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* -- resuming --------------------------------------------------------------------------------- */
/* Collects the same options from a trainer, to compare them. */
static void attention_from(const eg_mha_args *a, train *to)
{
    if (!a) return;
    to->kv_heads = a->kv_heads, to->rotary = a->rotary > 0, to->alibi = a->alibi;
    to->linear = a->linear != NULL, to->where = a->where, to->score = a->score;
}

static bool same_number(double x, double y) { return x <= y && x >= y; }

/* True if an option that is given again has the value of the checkpoint; else prints a message. */
static bool agrees(const option *k, const void *given, const void *has, const char *path)
{
    if (k->kind == INTEGER && *(const int64_t *)given != *(const int64_t *)has)
        print_error("--%s is %lld, but %s has %lld", k->name, (long long)*(const int64_t *)given,
                    path, (long long)*(const int64_t *)has);
    else if (k->kind == REAL && !same_number(*(const double *)given, *(const double *)has))
        print_error("--%s is %g, but %s has %g", k->name, *(const double *)given, path,
                    *(const double *)has);
    else if (k->kind == FLAG && !*(const bool *)has)
        print_error("--%s is given, but %s has none", k->name, path);
    else if (k->kind == TEXT && (!*(const char *const *)has ||
                                 strcmp(*(const char *const *)given, *(const char *const *)has)))
        print_error("--%s is \"%s\", but %s has \"%s\"", k->name, *(const char *const *)given, path,
                    *(const char *const *)has ? *(const char *const *)has : "");
    else if (k->kind == CHOICE &&
             strcmp(*(const char *const *)given, *(const char *const *)has) != 0)
        print_error("--%s is %s, but %s has %s", k->name, *(const char *const *)given, path,
                    *(const char *const *)has);
    else
        return true;
    return false;
}

static bool same_groups(const eg_opt_group *a, const eg_opt_group *b)
{
    char text[2][GROUPS_SIZE];
    return eg_opt_groups_write(a, text[0], GROUPS_SIZE) < GROUPS_SIZE &&
           eg_opt_groups_write(b, text[1], GROUPS_SIZE) < GROUPS_SIZE && !strcmp(text[0], text[1]);
}

/* True if the file still has the pairs that the model of the checkpoint is trained on; else prints
 * a message. */
static bool same_pairs(eg_ctx *cx, eg_trainer *t, const char *pairs, const char *path)
{
    eg_data *had = eg_trainer_data(t), *has = eg_data_pairs(cx, pairs);
    if (!has) return print_context_error(cx, NULL), false;
    if (!eg_data_pairs_text(had)) return print_error("%s was not trained on pairs", path), false;
    if (!strcmp(eg_data_pairs_text(has), eg_data_pairs_text(had))) return true;
    print_error(
        "%s has changed since %s was trained on it (%lld pairs, now %lld); --resume without "
        "--pairs "
        "goes on with the pairs in the checkpoint",
        pairs, path, (long long)eg_data_size(had), (long long)eg_data_size(has));
    return false;
}

/* True unless --steps is less than the checkpoint has done; else prints a message. A file that
 * cannot be read is left to load_model. */
static bool steps_left(eg_ctx *cx, int64_t steps, const char *path)
{
    eg_safetensors *file = steps ? eg_safetensors_open(cx, path) : NULL;
    const char *done = file ? eg_safetensors_metadata(file, "step") : NULL;
    const bool fewer = done && steps < strtoll(done, NULL, 10);
    if (fewer) print_error("--steps is %lld, but %s has done %s", (long long)steps, path, done);
    eg_safetensors_close(file);
    eg_clear(cx);
    return !fewer;
}
/* Options that may not change in a run (option.kept) must have the values of the checkpoint if they
 * are given again; --steps, --goal and --early-stop may change. */
eg_trainer *train_resumed(eg_ctx *cx, train *o, const char *task, const words *w, const command *c,
                          const char *path)
{
    if (!steps_left(cx, o->model.steps, path)) return NULL;
    eg_data *text = o->text ? text_data(cx, o->text) : NULL;
    if (o->text && !text) return print_context_error(cx, NULL), NULL;
    eg_trainer_load_args a = { .path = path, .steps = o->model.steps, .data = text };
    if (was_given(w, c, "goal")) a.goal = o->model.goal > 0 ? o->model.goal : EG_OFF;
    if (was_given(w, c, "early-stop"))
        a.early_stop = o->model.early_stop ? o->model.early_stop : EG_OFF;
    eg_trainer *t = load_model(cx, &a);
    if (!t) return NULL;
    const char *name = eg_data_name(eg_trainer_data(t)), *requested = o->text    ? NULL
                                                                      : o->pairs ? o->pairs
                                                                                 : task;
    if (requested && strcmp(name, requested) != 0) {
        print_error("%s was trained on %s, not on %s", path, name, requested);
        return NULL;
    }
    if (o->pairs && !same_pairs(cx, t, o->pairs, path)) return NULL;
    train has = { .model = *eg_trainer_config(t),
                  .schedule = eg_schedule_name(eg_trainer_config(t)->schedule.decay) };
    has.model.weight_decay =
        eg_option(has.model.weight_decay, train_default_decay(has.model.optimiser));
    char predicate[WHERE_SIZE];
    const char *where = train_where(o, predicate);
    attention_from(has.model.attention, &has);
    if (where && strcmp(where, has.where ? has.where : "")) {
        print_error("%s attends where \"%s\", not where \"%s\"", path, has.where ? has.where : "",
                    where);
        return NULL;
    }
    if (!train_groups(cx, o)) return NULL;
    if (o->group.count && !same_groups(o->model.groups, has.model.groups)) {
        print_error("--group is given, but %s has %s", path,
                    has.model.groups ? "other groups" : "none");
        return NULL;
    }
    int64_t marks[EG_MILESTONES] = { 0 };
    if (!train_milestones(o->milestones, marks)) return NULL;
    if (o->milestones && memcmp(marks, has.model.schedule.milestones, sizeof marks) != 0) {
        print_error("--milestones is %s, but %s has others", o->milestones, path);
        return NULL;
    }
    for (const option *k = train_options; k->name; k++)
        if (k->kept && w->given >> (k - train_options) & 1 &&
            !agrees(k, (const char *)o + k->at, (char *)&has + k->at, path))
            return NULL;
    eg_safetensors *file = eg_safetensors_open(cx, path);
    if (file && !eg_safetensors_metadata(file, "block"))
        printf("%s is from a version without blocks: the run continues with blocks of %lld\n", path,
               (long long)has.model.block);
    eg_safetensors_close(file);
    return t;
}

/* -- before training: whether the checkpoint may and can be written ---------------------------- */
/* True if there is no file at the path, or an earlier checkpoint of this run, whose step *step
 * receives, or if --force is given; else prints what is there. */
static bool may_replace(eg_trainer *t, const train *o, const char *which, const char *path,
                        int64_t *step)
{
    char text[STORED_SIZE];
    eg_saved has = eg_trainer_saved(t, path);
    const int64_t steps = eg_trainer_config(t)->steps;
    *step = has.same ? has.step : 0;
    eg_ctx *cx = eg_params_context(eg_trainer_params(t));
    if (eg_error(cx)) return print_context_error(cx, which), false; /* out of memory */
    if (!has.exists || o->force) return true;
    if (!has.checkpoint)
        print_error("%s %s is no checkpoint of eingrad; --force replaces it", which, path);
    else if (!has.same)
        print_error(
            "%s %s holds another run (%s): --resume %s goes on with it, --force replaces it", which,
            path, saved_differs(&has, text), path);
    else if (has.step > steps)
        print_error(
            "%s %s holds this run after step %lld of more than %lld: --resume %s goes on with it, "
            "--force replaces it",
            which, path, (long long)has.step, (long long)steps, path);
    else
        return true;
    return false;
}

static size_t bytes_of(eg_trainer *t) /* of a checkpoint without its header */
{
    size_t n = 0;
    for (int k = 0; k < eg_params_count(eg_trainer_params(t)); k++)
        n += (size_t)eg_size(eg_params_at(eg_trainer_params(t), k)->x);
    for (int k = 0; eg_opt_state(eg_trainer_opt(t), k); k++)
        n += (size_t)eg_size(eg_opt_state(eg_trainer_opt(t), k)->x);
    return n * sizeof(float);
}

/* True if a checkpoint can be written to the path. It is replaced as a whole, many times, so it
 * must be a file, or /dev/null. step NULL: whatever is there may be replaced. */
static bool try_out(eg_ctx *cx, eg_trainer *t, const train *o, const char *which, const char *path,
                    int64_t *step)
{
    struct stat s;
    bool there = stat(path, &s) == 0;
    if (same_file(path, "/dev/null")) return true;
    if (there && !S_ISREG(s.st_mode)) {
        print_error("%s %s is a %s; a checkpoint is replaced as a whole, so it must be a file",
                    which, path, S_ISFIFO(s.st_mode) ? "pipe" : "device");
        return false;
    }
    if (there && step && !may_replace(t, o, which, path, step)) return false;
    if (eg_file_check(cx, path, bytes_of(t)))
        return print_error("%s: %s", which, eg_error(cx)), false;
    return true;
}

/* True if --log may be written: there is no file, an empty one, no regular file, a log (its first
 * line begins with LOG_BEGINS), or --force is given; else prints that it would be lost. */
static bool try_log(const train *o)
{
    char begins[sizeof LOG_BEGINS] = "";
    struct stat s;
    if (!o->log || o->force || stat(o->log, &s) || !S_ISREG(s.st_mode) || !s.st_size) return true;
    FILE *f = fopen(o->log, "rbe");
    if (!f) return true; /* progress_open says why */
    const size_t n = fread(begins, 1, sizeof begins - 1, f);
    fclose(f);
    if (!strncmp(begins, LOG_BEGINS, n)) return true;
    print_error("--log %s is no log of eingrad; --force writes to it", o->log);
    return false;
}

bool train_try_outputs(eg_ctx *cx, eg_trainer *t, const train *o, const char *path,
                       const char *from, int64_t *step)
{
    int64_t best = 0;
    bool itself = from && same_file(from, path);
    if (!try_out(cx, t, o, "--out", path, itself ? NULL : step)) return false;
    if (o->best && !try_out(cx, t, o, "--best", o->best, &best)) return false;
    if (o->curve && eg_file_check(cx, o->curve, 0))
        return print_error("--curve: %s", eg_error(cx)), false;
    return try_log(o) && claim_file("--out", path) && (!o->best || claim_file("--best", o->best)) &&
           (!o->log || claim_file("--log", o->log)) &&
           (!o->curve || claim_file("--curve", o->curve));
}
