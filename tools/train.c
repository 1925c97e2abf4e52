/* eingrad train: a model on a task, on the user's pairs or on a text, from the first step or from a
 * checkpoint. */
#include "tools.h"
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct train {
    eg_trainer_args model;
    const char *pairs, *text, *log, *out, *resume, *best, *curve, *schedule, *milestones;
    int64_t threads, every;
    bool force;
    /* of the attentions: model.attention is made of these */
    int64_t kv_heads, window;
    bool rotary, alibi, linear;
    const char *where, *score;
} train;
#define MODEL(member) offsetof(train, model.member)
#define AT(member)    offsetof(train, member), 0, 0, false
static const option options[] = {
    { 0, "pairs", INPUT, "FILE", "your own examples, one a line: input TAB output", AT(pairs) },
    { 0, "text", INPUT, "FILE",
      "a text to continue, character by character; any file will do. A .npy of integers: tokens",
      AT(text) },
    { 0, "context", WHOLE, "N", "of a text: characters that the model sees at once (default 64)",
      MODEL(context), 1, 65536, true },
    { 0, "model", CHOICE, "encoder|decoder|seq2seq",
      "seq2seq: both, with cross attention (default: what the task asks for; pairs, text: decoder)",
      MODEL(model), 0, 0, true },
    { 0, "layers", WHOLE, "N", "blocks (default 2; of a text 3)", MODEL(layers), 1, 1000, true },
    { 0, "d-model", WHOLE, "N", "width of a token's vector (default 64; of a text 128)",
      MODEL(d_model), 1, 65536, true },
    { 0, "heads", WHOLE, "N", "attention heads, a divisor of d-model (default 4)", MODEL(heads), 1,
      65536, true },
    { 0, "width", WHOLE, "N", "inner width of the feed-forward part (default 4 d-model)",
      MODEL(width), 1, 1 << 20, true },
    { 0, "kv-heads", WHOLE, "N", "heads of keys and values, a divisor of heads (default: heads)",
      offsetof(train, kv_heads), 1, 65536, true },
    { 0, "rotary", FLAG, NULL, "rotary positions in the place of learned ones",
      offsetof(train, rotary), 0, 0, true },
    { 0, "alibi", FLAG, NULL, "a bias by distance (ALiBi) in the place of learned positions",
      offsetof(train, alibi), 0, 0, true },
    { 0, "window", WHOLE, "N", "attend to less than N places away only (default: to all)",
      offsetof(train, window), 1, 65536, false },
    { 0, "where", TEXT, "EXPR",
      "what query i may see of the keys j, as 'j % 2 == 0' (default: all)", AT(where) },
    { 0, "score", TEXT, "EXPR", "the scores, as '30 * tanh(score / 30)' (default: score)",
      offsetof(train, score), 0, 0, true },
    { 0, "linear", FLAG, NULL, "linear attention, without a softmax", offsetof(train, linear), 0, 0,
      true },
    { 0, "norm", CHOICE, "pre|post|rms", "norms before or after, or RMS norms before (default pre)",
      MODEL(norm), 0, 0, true },
    { 0, "ffn", CHOICE, "gelu|relu|swiglu|geglu", "feed-forward part (default gelu)", MODEL(ffn), 0,
      0, true },
    { 0, "optimiser", CHOICE, "adam|adamw|sgd|rmsprop|adagrad", "(default adam)", MODEL(optimiser),
      0, 0, true },
    { 0, "weight-decay", REAL, "X", "of the optimiser (default 0; adamw 0.01)", MODEL(weight_decay),
      0, 10, true },
    { 0, "momentum", REAL, "X", "of sgd and rmsprop (default 0)", MODEL(momentum), 0, 1, true },
    { 0, "diversity", REAL, "X", "added to the loss: X times how alike heads look (default 0)",
      MODEL(diversity), 0, 1e6, true },
    { 0, "dropout", REAL, "P", "share of values set to 0 while training (default 0)",
      MODEL(dropout), 0, 1, true },
    { 0, "lr", REAL, "X", "highest learning rate (default: the task's; pairs: 0.001; text: 0.002)",
      MODEL(lr), 1e-9, 10, true },
    { 0, "schedule", CHOICE, "constant|linear|cosine|noam|steps|exponential|wsd|wsd-sqrt",
      "how the learning rate falls (default cosine; linear, cosine and wsd end at a twentieth)",
      offsetof(train, schedule), 0, 0, true },
    { 0, "warm-up", WHOLE, "N",
      "steps of rising rate before that (default: the task's; constant, steps, exponential: none)",
      MODEL(schedule.warmup), 1, 1e9, true },
    { 0, "gamma", REAL, "X",
      "of steps: factor of each fall (default 0.1); of exponential: of each step (needed)",
      MODEL(schedule.gamma), 1e-9, 1e9, true },
    { 0, "step-size", WHOLE, "N",
      "of steps: steps from one fall to the next (default: --milestones are needed)",
      MODEL(schedule.step_size), 1, 1e9, true },
    { 0, "milestones", TEXT, "N,N,...",
      "of steps: the steps of the falls, at most 8 (default: --step-size is needed)",
      AT(milestones) },
    { 0, "decay-steps", WHOLE, "N",
      "of wsd: steps of the fall at the end (default: a tenth of the steps)",
      MODEL(schedule.decay_steps), 1, 1e9, true },
    { 0, "clip", REAL, "X", "largest norm of the gradient (default: no limit)", MODEL(clip_norm),
      1e-9, 1e9, true },
    { 0, "label-smoothing", REAL, "E",
      "share of each target that all symbols have evenly (default 0)", MODEL(smoothing), 0, 0.99,
      true },
    { 0, "batch", WHOLE, "N", "sequences in a step (default 64; of a text 32)", MODEL(batch), 1,
      65536, true },
    { 0, "block", WHOLE, "N",
      "sequences that a thread computes at once: fewer, less memory (default: by the sizes of "
      "model "
      "and batch)",
      MODEL(block), 1, 65536, true },
    { 0, "micro-batches", GONE, NULL,
      "a batch comes in blocks by itself, on all threads; --block N sets their sequences", 0, 0, 0,
      false },
    { 0, "steps", WHOLE, "N", "steps at most (default: the task's; pairs: 3000; text: 1500)",
      MODEL(steps), 1, 1e9, false },
    { 0, "goal", REAL, "X",
      "stop at this share of exact unseen sequences (default 0.99; 0, and of a text: never)",
      MODEL(goal), 0, 1, true },
    { 0, "evaluate", WHOLE, "N",
      "steps between evaluations on what is unseen (default: when the goal is near; text: 250)",
      MODEL(evaluate), 1, 1e9, true },
    { 0, "early-stop", WHOLE, "N",
      "stop after N evaluations without a smaller unseen loss (0: never; default: never, of a text "
      "4; evaluates every 100 steps if --evaluate says nothing)",
      MODEL(early_stop), 0, 1e9, true },
    { 0, "best", OUTPUT, "FILE",
      "checkpoint of the smallest unseen loss, beside --out, the last one (default: none; of a "
      "text "
      "--out with -best)",
      AT(best) },
    { 0, "seed", WHOLE, "N", "of first values, examples and dropout (default 0)", MODEL(seed), 0,
      9e15, true },
    { 0, "threads", WHOLE, "N", "cores to use (default: all); the result is the same",
      offsetof(train, threads), 1, 1024, false },
    { 0, "log", OUTPUT, "FILE", "one JSON object a step (default: no log)", AT(log) },
    { 0, "curve", OUTPUT, "FILE",
      "the loss of each step and the unseen one as a picture, .svg or .png (default: none)",
      AT(curve) },
    { 0, "out", OUTPUT, "FILE",
      "checkpoint (default TASK.safetensors; of another --model than usual TASK-MODEL.safetensors)",
      AT(out) },
    { 0, "every", WHOLE, "N", "steps between checkpoints (default: those of 5 seconds)",
      offsetof(train, every), 1, 1e9, false },
    { 0, "resume", MAYBE, "[FILE]",
      "go on from a checkpoint, to the same bits (default: from the start; without FILE: the --out "
      "file)",
      AT(resume) },
    { 0, "force", FLAG, NULL, "replace a checkpoint of another run, or a file that is none",
      AT(force) },
    { 0 }
};

enum { EARLY_STOP = 4 }; /* of a text: looks without a smaller unseen loss */

/* -- what to train ---------------------------------------------------------------------------- */
static const char *task_name(int k) { return eg_task_at(k) ? eg_task_at(k)->name : NULL; }

static const eg_task *task_of(const char *name) /* NULL after saying why */
{
    const eg_task *task = eg_task_find(name);
    if (task) return task;
    char all[512] = "";
    for (int k = 0; eg_task_at(k); k++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", k ? ", " : "", task_name(k));
    const char *near = nearest(name, task_name);
    if (near)
        say("there is no task \"%s\"; is it %s?", name, near);
    else
        say("there is no task \"%s\"; there are %s, --pairs FILE and --text FILE", name, all);
    return NULL;
}

/* TASK.safetensors or TASK-MODEL.safetensors, in the present folder: two models of the same data
 * are two files. */
static void file_of(const train *o, const char *task, char *out, size_t room)
{
    const eg_task *row = task ? eg_task_find(task) : NULL;
    const char *asked = row && !row->decoder ? "encoder" : "decoder", *model = o->model.model;
    bool other = model && strcmp(model, asked) != 0;
    const char *file = o->pairs ? o->pairs : o->text, *name = file ? file : task,
               *slash = strrchr(name, '/');
    name = slash ? slash + 1 : name;
    const char *dot = file ? strrchr(name, '.') : NULL;
    int length = dot && dot > name ? (int)(dot - name) : (int)strlen(name);
    snprintf(out, room, "%.*s%s%s.safetensors", length, name, other ? "-" : "", other ? model : "");
}

/* -- the schedule: names in the order of eg_decay --------------------------------------------- */
static const char *const decays[] = { "constant", "linear",      "cosine", "noam",
                                      "steps",    "exponential", "wsd",    "wsd-sqrt" };

static bool read_milestones(const char *text, int64_t *out)
{
    char one[32];
    for (int k = 0; text; k++) {
        size_t n = strcspn(text, ",");
        snprintf(one, sizeof one, "%.*s", n < sizeof one ? (int)n : 0, text);
        if (k == EG_MILESTONES || !read_whole(one, &out[k]) || out[k] < 1 ||
            (k && out[k] <= out[k - 1])) {
            say("--milestones must be at most %d rising whole numbers, as 300,600, not \"%s\"",
                EG_MILESTONES, text);
            return false;
        }
        text = text[n] ? text + n + 1 : NULL;
    }
    return true;
}

static bool schedule_of(const train *o, eg_schedule *s) /* false after saying why */
{
    int64_t given = s->warmup + s->step_size + s->decay_steps;
    bool some = o->schedule || o->milestones || given || s->gamma > 0;
    while (o->schedule && strcmp(decays[s->decay], o->schedule) != 0) s->decay++;
    if (!o->schedule && some) s->decay = EG_COSINE;
    if (s->decay == EG_CONSTANT && some && !s->warmup)
        s->warmup = 1; /* all zeros are the default */
    if (s->decay == EG_LINEAR || s->decay == EG_COSINE || s->decay == EG_WSD ||
        s->decay == EG_WSD_SQRT)
        s->last = 0.05;
    if ((s->step_size || o->milestones) && s->decay != EG_STEPS)
        return say("--step-size and --milestones belong to --schedule steps, not to %s",
                   decays[s->decay]),
               false;
    if (s->gamma > 0 && s->decay != EG_STEPS && s->decay != EG_EXPONENTIAL)
        return say("--gamma belongs to --schedule steps or exponential, not to %s",
                   decays[s->decay]),
               false;
    if (s->decay_steps && s->decay != EG_WSD && s->decay != EG_WSD_SQRT)
        return say("--decay-steps belongs to --schedule wsd or wsd-sqrt, not to %s",
                   decays[s->decay]),
               false;
    return read_milestones(o->milestones, s->milestones);
}

/* -- the attentions --------------------------------------------------------------------------- */
enum { WHERE_ROOM = 4096 };
/* --where and --window as one predicate, NULL if there is neither. */
static const char *where_of(const train *o, char *out)
{
    if (!o->window) return o->where;
    if (o->where)
        snprintf(out, WHERE_ROOM, "(%s) & abs(i - j) < %lld", o->where, (long long)o->window);
    else
        snprintf(out, WHERE_ROOM, "abs(i - j) < %lld", (long long)o->window);
    return out;
}

static bool attention_of(const train *o, char *room, eg_mha_args *to) /* false: all are defaults */
{
    static const eg_linear_attention_args linear = { 0 };
    *to = (eg_mha_args){ .kv_heads = o->kv_heads,
                         .rotary = o->rotary ? 1e4 : 0,
                         .alibi = o->alibi,
                         .where = where_of(o, room),
                         .score = o->score,
                         .linear = o->linear ? &linear : NULL };
    return o->kv_heads || o->rotary || o->alibi || to->where || o->score || o->linear;
}

/* The same options of a trainer, to be compared. */
static void attention_from(const eg_mha_args *a, train *to)
{
    if (!a) return;
    to->kv_heads = a->kv_heads, to->rotary = a->rotary > 0, to->alibi = a->alibi;
    to->linear = a->linear != NULL, to->where = a->where, to->score = a->score;
}

/* A new trainer of the options; NULL after saying why. */
static eg_trainer *fresh(eg_ctx *cx, train *o, const char *task, const words *w, const command *c)
{
    const eg_task *row = o->pairs || o->text ? NULL : task_of(task);
    if (!o->pairs && !o->text && !row) return NULL;
    eg_trainer_args a = o->model;
    a.size = sizeof a;
    if (!schedule_of(o, &a.schedule)) return NULL;
    a.data = o->text    ? text_data(cx, o->text)
             : o->pairs ? eg_data_pairs(cx, o->pairs)
                        : eg_data_task(cx, row);
    if (was_given(w, c, "goal") && a.goal == 0) a.goal = EG_OFF;
    char where[WHERE_ROOM];
    eg_mha_args attention;
    if (attention_of(o, where, &attention)) a.attention = &attention;
    if (o->text && !was_given(w, c, "early-stop")) a.early_stop = EARLY_STOP;
    eg_trainer *t = a.data ? eg_trainer_new_with(&a) : NULL;
    if (!t) say_error(cx, NULL);
    return t;
}

/* True if an option that is given again has the value that the checkpoint has; else says so. */
static bool agrees(const option *k, const void *given, const void *has, const char *path)
{
    if (k->kind == WHOLE && *(const int64_t *)given != *(const int64_t *)has)
        say("--%s is %lld, but %s has %lld", k->name, (long long)*(const int64_t *)given, path,
            (long long)*(const int64_t *)has);
    else if (k->kind == REAL && !(*(const double *)given <= *(const double *)has &&
                                  *(const double *)given >= *(const double *)has))
        say("--%s is %g, but %s has %g", k->name, *(const double *)given, path,
            *(const double *)has);
    else if (k->kind == FLAG && !*(const bool *)has)
        say("--%s is given, but %s has none", k->name, path);
    else if (k->kind == TEXT && (!*(const char *const *)has ||
                                 strcmp(*(const char *const *)given, *(const char *const *)has)))
        say("--%s is \"%s\", but %s has \"%s\"", k->name, *(const char *const *)given, path,
            *(const char *const *)has ? *(const char *const *)has : "");
    else if (k->kind == CHOICE &&
             strcmp(*(const char *const *)given, *(const char *const *)has) != 0)
        say("--%s is %s, but %s has %s", k->name, *(const char *const *)given, path,
            *(const char *const *)has);
    else
        return true;
    return false;
}

/* The trainer of a checkpoint, if what is said again agrees with it; NULL after saying why. */
static eg_trainer *resumed(eg_ctx *cx, const train *o, const char *task, const words *w,
                           const char *path)
{
    eg_data *text = o->text ? text_data(cx, o->text) : NULL;
    const eg_trainer_load_args a = { .path = path, .steps = o->model.steps, .data = text };
    eg_trainer *t = load_model(cx, &a);
    if (!t) return NULL;
    const char *name = eg_data_name(eg_trainer_data(t)), *asked = o->text    ? NULL
                                                                  : o->pairs ? o->pairs
                                                                             : task;
    if (asked && strcmp(name, asked) != 0) {
        say("%s was trained on %s, not on %s", path, name, asked);
        return NULL;
    }
    train has = { .model = *eg_trainer_config(t),
                  .schedule = decays[eg_trainer_config(t)->schedule.decay] };
    char room[WHERE_ROOM];
    const char *where = where_of(o, room);
    attention_from(has.model.attention, &has);
    if (where && strcmp(where, has.where ? has.where : "")) {
        say("%s attends where \"%s\", not where \"%s\"", path, has.where ? has.where : "", where);
        return NULL;
    }
    int64_t marks[EG_MILESTONES] = { 0 };
    if (!read_milestones(o->milestones, marks)) return NULL;
    if (o->milestones && memcmp(marks, has.model.schedule.milestones, sizeof marks) != 0) {
        say("--milestones is %s, but %s has others", o->milestones, path);
        return NULL;
    }
    for (const option *k = options; k->name; k++)
        if (k->kept && w->given >> (k - options) & 1 &&
            !agrees(k, (const char *)o + k->at, (char *)&has + k->at, path))
            return NULL;
    if (eg_trainer_now(t).step > has.model.steps) {
        say("--steps is %lld, but %s has done %lld", (long long)has.model.steps, path,
            (long long)eg_trainer_now(t).step);
        return NULL;
    }
    eg_safetensors *file = eg_safetensors_open(cx, path);
    if (file && !eg_safetensors_metadata(file, "block"))
        printf("%s is from before batches came in blocks: it goes on in blocks of %lld\n", path,
               (long long)has.model.block);
    eg_safetensors_close(file);
    return t;
}

/* -- before training: may the checkpoint be written, and can it be? --------------------------- */
/* True if nothing is at the path, or an earlier state of this very run, whose step *step receives,
 * or
 * --force is given; else says what is there. */
static bool may_replace(eg_trainer *t, const train *o, const char *which, const char *path,
                        int64_t *step)
{
    eg_saved has = eg_trainer_saved(t, path);
    const int64_t steps = eg_trainer_config(t)->steps;
    *step = has.same ? has.step : 0;
    if (!has.exists || o->force) return true;
    if (!has.checkpoint)
        say("%s %s is no checkpoint of eingrad; --force replaces it", which, path);
    else if (!has.same)
        say("%s %s holds another run (%s): --resume %s goes on with it, --force replaces it", which,
            path, has.differs, path);
    else if (has.step > steps)
        say("%s %s holds this run after step %lld of more than %lld: --resume %s goes on with it, "
            "--force replaces it",
            which, path, (long long)has.step, (long long)steps, path);
    else
        return true;
    return false;
}

static size_t bytes_of(eg_trainer *t) /* of a checkpoint, but for its header */
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
        say("%s %s is a %s; a checkpoint is replaced as a whole, so it must be a file", which, path,
            S_ISFIFO(s.st_mode) ? "pipe" : "device");
        return false;
    }
    if (there && step && !may_replace(t, o, which, path, step)) return false;
    if (eg_file_check(cx, path, bytes_of(t))) return say("%s: %s", which, eg_error(cx)), false;
    return true;
}

static bool try_outputs(eg_ctx *cx, eg_trainer *t, const train *o, const char *path,
                        const char *from, int64_t *step)
{
    int64_t best = 0;
    bool itself = from && same_file(from, path);
    if (!try_out(cx, t, o, "--out", path, itself ? NULL : step)) return false;
    if (o->best && !try_out(cx, t, o, "--best", o->best, &best)) return false;
    if (o->curve && eg_file_check(cx, o->curve, 0)) return say("--curve: %s", eg_error(cx)), false;
    return true;
}

/* -- the run ---------------------------------------------------------------------------------- */
static volatile sig_atomic_t stopped;
static void stop(int signal_number) { stopped = signal_number; }

/* What the training loop's callback needs. */
typedef struct turn {
    const train *o;
    const char *path; /* of the checkpoint */
    progress g;
    double saved; /* seconds(), when it was saved last */
    int64_t kept; /* the step of this very run that the file had before; an earlier step does not
                   * replace it */
    bool log_failed;
} turn;

/* After each step: shows and logs it, saves if it is time to, and stops after a signal. */
static bool watch(void *user, eg_trainer *t, const eg_progress *p)
{
    turn *u = user;
    u->log_failed = !progress_step(&u->g, t, p);
    bool due = u->o->every ? p->step % u->o->every == 0 : seconds() - u->saved >= 5;
    if (due && p->step > u->kept) {
        if (eg_trainer_save(t, u->path)) return true;
        u->saved = seconds();
    }
    return stopped || u->log_failed;
}

/* A line of the options that are not the usual ones, if there are any. */
static void introduce_options(eg_trainer *t)
{
    const eg_trainer_args *o = eg_trainer_config(t);
    const char *text = eg_trainer_config_text(t), *between = "";
    for (; text && *text; text += strcspn(text, "\n"), text += *text == '\n', between = ", ")
        printf("%s%.*s", between, (int)strcspn(text, "\n"), text);
    if (strcmp(o->optimiser, "adam")) printf("%s%s", between, o->optimiser), between = ", ";
    if (o->weight_decay > 0) printf("%sweight decay %g", between, o->weight_decay), between = ", ";
    if (o->momentum > 0) printf("%smomentum %g", between, o->momentum), between = ", ";
    if (o->diversity > 0) printf("%sdiversity %g", between, o->diversity), between = ", ";
    if (*between) putchar('\n');
}

/* Prints what is trained on what. */
static void introduce(eg_trainer *t, eg_ctx *cx, eg_ranks *r)
{
    const eg_trainer_args *o = eg_trainer_config(t);
    eg_data *d = eg_trainer_data(t);
    const eg_task *task =
        eg_data_pairs_text(d) || eg_data_is_text(d) ? NULL : eg_task_find(eg_data_name(d));
    bool text = eg_data_is_text(d);
    if (task)
        printf("%s: %s\n", task->name, task->about);
    else if (text)
        printf("%s: %lld %ss, %d different ones, the last tenth unseen; context %lld\n",
               eg_data_name(d), (long long)eg_data_size(d), eg_data_unit(d),
               eg_data_symbols(d) - EG_FIRST, (long long)o->context);
    else
        printf("%s: %lld pairs, %d symbols\n", eg_data_name(d), (long long)eg_data_size(d),
               eg_data_symbols(d) - EG_FIRST);
    printf("%s, %lld layers, d_model %lld, %lld heads: %lld parameters; ", o->model,
           (long long)o->layers, (long long)o->d_model, (long long)o->heads,
           (long long)eg_params_size(eg_trainer_params(t)));
    printf("batch %lld, seed %llu, threads %d", (long long)o->batch, (unsigned long long)o->seed,
           eg_threads(cx, 0));
    const int64_t ranks = eg_ranks_count(r), blocks = (o->batch + o->block - 1) / o->block,
                  leaves = o->leaves < blocks ? o->leaves : blocks;
    if (ranks > 1) printf(", ranks %lld", (long long)ranks);
    if (ranks > leaves)
        printf("; %lld of them have nothing to compute: a batch has %lld leaves",
               (long long)(ranks - leaves), (long long)leaves);
    putchar('\n');
    introduce_options(t);
    eg_progress now = eg_trainer_now(t);
    if (now.step) printf("resumed after step %lld\n", (long long)now.step);
    fflush(stdout);
}

/* A second interrupt ends the process at once (SA_RESETHAND). A terminal that goes away may send
 * SIGHUP twice. SIGHUP and SIGPIPE stay ignored where they were, as under nohup. */
static void on_signals(void (*handler)(int))
{
    static const struct {
        int number, flags;
        bool unless_ignored;
    } signals[] = {
        { SIGINT, (int)SA_RESETHAND, false },
        { SIGTERM, (int)SA_RESETHAND, false },
        { SIGHUP, 0, true },
        { SIGPIPE, 0, true },
    };
    for (size_t k = 0; k < sizeof signals / sizeof *signals; k++) {
        int number = signals[k].number, flags = signals[k].flags | SA_RESTART;
        struct sigaction was, act = { .sa_handler = handler, .sa_flags = flags };
        sigaction(number, NULL, &was);
        if (!signals[k].unless_ignored || was.sa_handler != SIG_IGN) sigaction(number, &act, NULL);
    }
}

static int stopped_early(const turn *u, const eg_progress *p)
{
    if (p->step < u->kept)
        printf("stopped after step %lld; %s still has step %lld of this run; to go on:\n",
               (long long)p->step, u->path, (long long)u->kept);
    else
        printf("stopped after step %lld, saved in %s; to go on:\n", (long long)p->step, u->path);
    printf("  %s train --resume %s\n", program(), u->path);
    return 128 + stopped;
}

/* -- ranks (mpirun) --------------------------------------------------------------------------- */
/* True if all ranks are well; else every rank has an error, and rank 0 says it. */
static bool all_well(eg_ranks *r, eg_ctx *cx, bool good)
{
    if (!good && !eg_error(cx)) {
        const char *unsaid = eg_ranks_rank(r) ? say_nothing(true) : NULL;
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s", unsaid ? unsaid : "it ended");
    }
    if (!eg_ranks_meet(r)) return true;
    /* what is wrong here was said where it was found */
    if (good && eg_ranks_rank(r) == 0) say_error(cx, NULL);
    return false;
}
/* *leaders becomes what rank 0 gives as `mine`. False after an error. */
static bool of_leader(eg_ranks *r, char mine, char *leaders)
{
    char *all = calloc((size_t)eg_ranks_count(r), 1);
    const bool good = all && !eg_ranks_gather(r, &mine, 1, all);
    *leaders = good ? all[0] : 0;
    free(all);
    return good;
}
/* The way of the ranks that neither print nor write: they compute. Their steps and looks are those
 * of rank 0; what they return ends with it. */
static int follow(eg_ctx *cx, eg_trainer *t, const train *o, eg_ranks *r)
{
    eg_progress p;
    eg_score s;
    char goes_on, saves;
    if (!all_well(r, cx, true) || eg_trainer_divide(t, r)) return EXIT_FAILURE;
    if (o->best && eg_trainer_keep_best(t, o->best)) return EXIT_FAILURE;
    if (!of_leader(r, 0, &goes_on)) return EXIT_FAILURE;
    if (goes_on && eg_trainer_run(t, NULL, NULL, &p)) return EXIT_FAILURE;
    if (!all_well(r, cx, true) || !of_leader(r, 0, &saves)) return EXIT_FAILURE;
    if (saves && eg_trainer_save(t, "")) return EXIT_FAILURE;
    if (!all_well(r, cx, true) || !of_leader(r, 0, &goes_on)) return EXIT_FAILURE;
    return goes_on && eg_trainer_evaluate(t, &s) ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Trains, saves, evaluates and shows the result; the exit status. */
static int go(eg_ctx *cx, eg_trainer *t, const train *o, const char *path, const char *from,
              eg_ranks *r)
{
    turn u = { .o = o, .path = path };
    eg_data *d = eg_trainer_data(t);
    bool of_file = eg_data_pairs_text(d) || eg_data_is_text(d); /* a checkpoint can name it alone */
    bool good = !from || !of_file || use_file("the data", eg_data_name(d), false);
    good = good && try_outputs(cx, t, o, path, from, &u.kept) &&
           progress_open(&u.g, t, o->log, o->resume != NULL);
    if (!all_well(r, cx, good)) return EXIT_FAILURE;
    if (eg_trainer_divide(t, r)) return say_error(cx, NULL);
    introduce(t, cx, r);
    on_signals(stop);
    u.saved = seconds();
    u.g.curve = o->curve;
    eg_progress p = eg_trainer_now(t);
    bool done =
        p.step >= p.steps || p.stopped || (u.g.goal > 0 && p.exact >= u.g.goal && !o->model.steps);
    if (done)
        printf("%s has nothing left to do: %s\n", path,
               p.step >= p.steps ? "all its steps are done"
               : p.stopped       ? "it was stopped early"
                                 : "its goal is reached");
    if (o->best && eg_trainer_keep_best(t, o->best)) return say_error(cx, NULL);
    char goes_on;
    if (!of_leader(r, !done, &goes_on)) return say_error(cx, NULL);
    int bad = done ? 0 : eg_trainer_run(t, watch, &u, &p);
    if (bad || u.log_failed || stopped) progress_clear(&u.g);
    bool behind = stopped && p.step < u.kept, saves = !done && !u.log_failed && !behind;
    if (!bad && (eg_ranks_meet(r) || !of_leader(r, saves, &goes_on))) bad = -1;
    if (!bad && saves) bad = eg_trainer_save(t, path);
    good = bad || progress_curve(&u.g, t);
    free(u.g.point);
    /* an error of run and save is known to all ranks; what rank 0 alone does comes to them here */
    if (!bad && !all_well(r, cx, good)) return EXIT_FAILURE;
    if (!bad && !of_leader(r, !u.log_failed && !stopped, &goes_on)) bad = -1;
    if (bad) {
        say_error(cx, NULL);
        progress_close(&u.g, NULL, NULL);
        return EXIT_FAILURE;
    }
    if (u.log_failed) return EXIT_FAILURE;
    if (stopped) {
        progress_close(&u.g, NULL, NULL);
        return stopped_early(&u, &p);
    }
    on_signals(SIG_DFL);
    eg_score s;
    if (eg_trainer_evaluate(t, &s)) return say_error(cx, NULL);
    if (!progress_close(&u.g, &s, &p)) return EXIT_FAILURE;
    if (!isfinite(s.loss))
        return say("the unseen loss is %g: the model's numbers are not finite", s.loss);
    return show(t, path, o->best, &s, &p, &u.g);
}

/* The best model of a text is kept: beside FILE.safetensors in FILE-best.safetensors, unless --best
 * says where. False after saying why not. */
static bool best_of(eg_trainer *t, train *o, const char *to, char *out, size_t room)
{
    const char *slash = strrchr(to, '/'), *dot = strrchr(to, '.');
    const int stem = dot && dot > (slash ? slash + 1 : to) ? (int)(dot - to) : (int)strlen(to);
    if (o->best || !eg_data_is_text(eg_trainer_data(t)) || same_file(to, "/dev/null")) return true;
    snprintf(out, room, "%.*s-best%s", stem, to, to + stem);
    o->best = out;
    return use_file("--best", out, true);
}

static int run(const command *c, int count, char **word)
{
    train o = { 0 };
    words w;
    parsed parse = read_options(c, count, word, &o, &w);
    if (parse != PARSED) return parse == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    const char *task = w.count ? w.word[0] : NULL;
    if (w.count > 1) return say("train takes one task, and there is \"%s\" too", w.word[1]);
    if ((task != NULL) + (o.pairs != NULL) + (o.text != NULL) > 1)
        return say("train takes a task, --pairs or --text, not both %s and %s",
                   task ? task : o.pairs, o.text ? o.text : o.pairs);
    if (!task && !o.pairs && !o.text && o.resume && *o.resume && eg_task_find(o.resume) &&
        access(o.resume, F_OK)) {
        task = o.resume; /* train --resume reverse */
        o.resume = "";
    }
    bool needs_name = !o.resume || !(*o.resume || o.out);
    if (!task && !o.pairs && !o.text && needs_name)
        return say(
            "train needs a task or --pairs FILE or --text FILE; %s train --help lists the tasks",
            program());
    if (task && !task_of(task)) return EXIT_FAILURE;
    char path[4096] = "";
    if (task || o.pairs || o.text) file_of(&o, task, path, sizeof path);
    const char *from = !o.resume   ? NULL
                       : *o.resume ? o.resume
                       : o.out     ? o.out
                                   : path,
               *to = o.out  ? o.out
                     : from ? from
                            : path;
    if (!o.out && !use_file("the checkpoint", to, true)) return EXIT_FAILURE;
    if (from && !same_file(from, to) && !use_file("--resume", from, false)) return EXIT_FAILURE;
    if (o.curve && !is_picture(o.curve))
        return say("--curve must end in .png or .svg, not \"%s\"", o.curve);
    eg_ctx *cx = eg_open(.threads = (int)o.threads);
    eg_ranks *r = eg_ranks_open(.cx = cx);
    const bool follows = eg_ranks_rank(r) > 0;
    int status = EXIT_FAILURE;
    if (!r) {
        /* what ranks do not agree on all of them know; the rest may be this one's alone */
        if (!cx || eg_error_code(cx) != EG_ERROR_MISUSE) say_nothing(false);
        say_error(cx, NULL);
    } else {
        if (follows) on_signals(SIG_IGN); /* mpirun hands signals on; rank 0 decides */
        eg_trainer *t = from ? resumed(cx, &o, task, &w, from) : fresh(cx, &o, task, &w, c);
        char best[4096 + 8];
        const bool good = t && best_of(t, &o, to, best, sizeof best);
        if (all_well(r, cx, good))
            status = follows ? follow(cx, t, &o, r) : go(cx, t, &o, to, from, r);
    }
    eg_ranks_close(r);
    eg_close(cx);
    return status;
}

int train_check(int count, char **word)
{
    train o = { 0 };
    words w;
    if (read_options(&train_command, count, word, &o, &w) != PARSED) return EXIT_FAILURE;
    if (w.count + (o.pairs != NULL) + (o.text != NULL) != 1)
        return say(
            "one task, --pairs FILE or --text FILE is needed; %s train --help lists the tasks",
            program());
    eg_ctx *cx = eg_open(.threads = 1);
    eg_trainer *t = cx ? fresh(cx, &o, w.count ? w.word[0] : NULL, &w, &train_command) : NULL;
    const eg_saved has = t && o.out ? eg_trainer_saved(t, o.out) : (eg_saved){ .exists = false };
    if (has.exists && !has.checkpoint)
        say("%s is no checkpoint of eingrad", o.out);
    else if (has.exists && !has.same)
        say("%s holds another run (%s)", o.out, has.differs);
    if (!cx) say_error(cx, NULL);
    eg_close(cx);
    return t && (!has.exists || has.same) ? EXIT_SUCCESS : EXIT_FAILURE;
}

static void list_tasks(FILE *file)
{
    fputs("\ntasks:\n", file);
    for (int k = 0; eg_task_at(k); k++)
        fprintf(file, "  %-10s %s\n", task_name(k), eg_task_at(k)->about);
}

const command train_command = {
    .name = "train",
    .usage = "TASK | --pairs FILE | --text FILE [OPTION...]",
    .about =
        "train a transformer on a task, on your own pairs or on a text, and show what it learnt",
    .more = "Symbols of pairs are characters; or words, if blanks occur and most words of the "
            "outputs occur more than once.\n"
            "Under mpirun, ranks divide each step: the result is the same.\n"
            "One input in ten is held out; training stops when the goal is met on those. An\n"
            "interrupt saves. A run replaces its own checkpoint, another's with --force only.\n\n"
            "  train reverse --heads 2 --seed 1\n"
            "  train --pairs dates.tsv --model seq2seq --out dates.safetensors\n"
            "  train --text poems.txt --context 128\n"
            "  train --resume poems.safetensors --steps 3000\n",
    .options = options,
    .run = run,
    .list = list_tasks,
};
