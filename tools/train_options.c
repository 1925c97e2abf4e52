/* train_options.c: the options of `eingrad train`, and what is derived from them: the data, the
 * schedule, the attentions, a new trainer. */
#include "train.h"
#include <stdlib.h>
#include <string.h>

#define MODEL(member) offsetof(train, model.member)
#define AT(member)    offsetof(train, member), 0, 0, false
const option train_options[] = {
    { 0, "pairs", INPUT, "FILE", "train on a file of pairs, one per line: input TAB output",
      AT(pairs) },
    { 0, "text", INPUT, "FILE",
      "train a language model on a text (any file), or on the tokens of a .npy file", AT(text) },
    { 0, "context", INTEGER, "N", "length of the context of a text, in characters (default 64)",
      MODEL(context), 1, 65536, true },
    { 0, "model", CHOICE, "encoder|decoder|seq2seq",
      "seq2seq: encoder and decoder (default: the task's; pairs and text: decoder)", MODEL(model),
      0, 0, true },
    { 0, "layers", INTEGER, "N", "blocks (default 2; of a text 3)", MODEL(layers), 1, 1000, true },
    { 0, "d-model", INTEGER, "N", "width of a token's vector (default 64; of a text 128)",
      MODEL(d_model), 1, 65536, true },
    { 0, "heads", INTEGER, "N", "attention heads, a divisor of d-model (default 4)", MODEL(heads),
      1, 65536, true },
    { 0, "width", INTEGER, "N", "inner width of the feed-forward part (default 4 d-model)",
      MODEL(width), 1, 1 << 20, true },
    { 0, "kv-heads", INTEGER, "N", "heads of keys and values, a divisor of heads (default: heads)",
      offsetof(train, kv_heads), 1, 65536, true },
    { 0, "rotary", FLAG, NULL, "rotary positions instead of learned ones", offsetof(train, rotary),
      0, 0, true },
    { 0, "alibi", FLAG, NULL, "a bias by distance (ALiBi) instead of learned positions",
      offsetof(train, alibi), 0, 0, true },
    { 0, "window", INTEGER, "N", "attend only to keys at a distance below N (default: to all)",
      offsetof(train, window), 1, 65536, false },
    { 0, "where", TEXT, "EXPR",
      "the keys j that query i may attend to, as 'j % 2 == 0' (default: all)", AT(where) },
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
    { 0, "weight-decay", REAL, "X", "weight decay of the optimiser (default 0; adamw 0.01)",
      MODEL(weight_decay), 0, 10, true },
    { 0, "momentum", REAL, "X", "momentum of sgd and rmsprop (default 0)", MODEL(momentum), 0, 1,
      true },
    { 0, "group", TEXTS, "NAMES: OPTIONS",
      "options of the parameters of these names: 'tokens.*: frozen', '*.b *.gain: lr-factor 2, "
      "weight-decay 0'; may be given several times, and the first that names a parameter counts",
      AT(group) },
    { 0, "diversity", REAL, "X", "add X times the similarity of the heads to the loss (default 0)",
      MODEL(diversity), 0, 1e6, true },
    { 0, "dropout", REAL, "P", "share of values set to 0 while training (default 0)",
      MODEL(dropout), 0, 0.99, true },
    { 0, "lr", REAL, "X", "highest learning rate (default: the task's; pairs: 0.001; text: 0.002)",
      MODEL(lr), 1e-9, 10, true },
    { 0, "schedule", CHOICE, "constant|linear|cosine|noam|steps|exponential|wsd|wsd-sqrt",
      "how the learning rate falls (default cosine; linear, cosine and wsd end at a twentieth)",
      offsetof(train, schedule), 0, 0, true },
    { 0, "warm-up", INTEGER, "N",
      "steps of rising rate at the start (default: the task's; constant, steps, exponential: none)",
      MODEL(schedule.warmup), 1, 1e9, true },
    { 0, "gamma", REAL, "X",
      "schedule steps: factor of each fall (default 0.1); exponential: of each step (needed)",
      MODEL(schedule.gamma), 1e-9, 1e9, true },
    { 0, "step-size", INTEGER, "N",
      "schedule steps: number of steps from one fall to the next (default: --milestones are "
      "needed)",
      MODEL(schedule.step_size), 1, 1e9, true },
    { 0, "milestones", TEXT, "N,N,...",
      "schedule steps: numbers of the steps with a fall, at most 8 (default: --step-size is "
      "needed)",
      AT(milestones) },
    { 0, "decay-steps", INTEGER, "N",
      "schedule wsd: number of steps of the fall at the end (default: a tenth of the steps)",
      MODEL(schedule.decay_steps), 1, 1e9, true },
    { 0, "clip", REAL, "X", "largest norm of the gradient (default: no limit)", MODEL(clip_norm),
      1e-9, 1e9, true },
    { 0, "label-smoothing", REAL, "E",
      "label smoothing: share of each target spread over all symbols (default 0)", MODEL(smoothing),
      0, 0.99, true },
    { 0, "batch", INTEGER, "N", "sequences in a step (default 64; of a text 32)", MODEL(batch), 1,
      65536, true },
    { 0, "block", INTEGER, "N",
      "sequences that a thread computes at a time; fewer need less memory (default: from the sizes "
      "of model and batch)",
      MODEL(block), 1, 65536, true },
    { 0, "micro-batches", REMOVED, NULL,
      "a batch comes in blocks by itself, on all threads; --block N sets their sequences", 0, 0, 0,
      false },
    { 0, "steps", INTEGER, "N", "steps at most (default: the task's; pairs: 3000; text: 1500)",
      MODEL(steps), 1, 1e9, false },
    { 0, "goal", REAL, "X",
      "stop at this share of exact unseen sequences (default 0.99; 0, and of a text: never)",
      MODEL(goal), 0, 1, false },
    { 0, "evaluate", INTEGER, "N",
      "steps between evaluations on unseen data (default: when the goal is near; text: 250)",
      MODEL(evaluate), 1, 1e9, true },
    { 0, "early-stop", INTEGER, "N",
      "stop after N evaluations without a new minimum of the unseen loss (0: never; default: "
      "never, of a text "
      "4; evaluates every 100 steps if --evaluate is not given)",
      MODEL(early_stop), 0, 1e9, false },
    { 0, "best", OUTPUT, "FILE",
      "checkpoint with the smallest unseen loss; --out has the last one (default: none; text: the "
      "name of --out with -best)",
      AT(best) },
    { 0, "seed", INTEGER, "N", "seed of initial values, examples and dropout (default 0)",
      MODEL(seed), 0, 9e15, true },
    { 0, "threads", INTEGER, "N", "cores to use (default: all); the result is the same",
      offsetof(train, threads), 1, 1024, false },
    { 0, "log", OUTPUT, "FILE", "one JSON object a step (default: no log)", AT(log) },
    { 0, "curve", OUTPUT, "FILE",
      "draw the training loss and the unseen loss, .svg or .png (default: none)", AT(curve) },
    { 0, "out", OUTPUT, "FILE",
      "checkpoint (default TASK.safetensors, or TASK-MODEL.safetensors if --model is not the "
      "default)",
      AT(out) },
    { 0, "every", INTEGER, "N", "steps between checkpoints (default: one every 5 seconds)",
      offsetof(train, every), 1, 1e9, false },
    { 0, "resume", OPTIONAL, "[FILE]",
      "continue from a checkpoint, with the bits of an uninterrupted run (without FILE: from the "
      "--out file)",
      AT(resume) },
    { 0, "force", FLAG, NULL,
      "replace a checkpoint of another run, or a file that is not a checkpoint", AT(force) },
    { 0 }
};

/* -- what to train ---------------------------------------------------------------------------- */
const char *task_name(int k) { return eg_task_at(k) ? eg_task_at(k)->name : NULL; }

const eg_task *train_task(const char *name)
{
    const eg_task *task = eg_task_find(name);
    if (task) return task;
    char all[512] = "";
    for (int k = 0; eg_task_at(k); k++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", k ? ", " : "", task_name(k));
    const char *near = nearest(name, task_name);
    if (near)
        print_error("there is no task \"%s\"; is it %s?", name, near);
    else
        print_error("there is no task \"%s\"; there are %s, --pairs FILE and --text FILE", name,
                    all);
    return NULL;
}

void train_file(const train *o, const char *task, char *out, size_t size)
{
    const eg_task *row = task ? eg_task_find(task) : NULL;
    const char *requested = row && !row->decoder ? "encoder" : "decoder", *model = o->model.model;
    bool other = model && strcmp(model, requested) != 0;
    const char *file = o->pairs ? o->pairs : o->text, *name = file ? file : task,
               *slash = strrchr(name, '/');
    name = slash ? slash + 1 : name;
    const char *dot = file ? strrchr(name, '.') : NULL;
    int length = dot && dot > name ? (int)(dot - name) : (int)strlen(name);
    snprintf(out, size, "%.*s%s%s.safetensors", length, name, other ? "-" : "", other ? model : "");
}

/* -- the schedule ----------------------------------------------------------------------------- */
bool train_milestones(const char *text, int64_t *out)
{
    char one[32];
    const char *given = text;
    for (int k = 0; text; k++) {
        size_t n = strcspn(text, ",");
        snprintf(one, sizeof one, "%.*s", n < sizeof one ? (int)n : 0, text);
        if (k == EG_MILESTONES || !read_integer(one, &out[k]) || out[k] < 1 ||
            (k && out[k] <= out[k - 1])) {
            print_error(
                "--milestones must be at most %d increasing integers, as 300,600, not \"%s\"",
                EG_MILESTONES, given);
            return false;
        }
        text = text[n] ? text + n + 1 : NULL;
    }
    return true;
}

static bool schedule_of(const train *o, eg_schedule *s) /* false after an error message */
{
    int64_t given = s->warmup + s->step_size + s->decay_steps;
    bool some = o->schedule || o->milestones || given || s->gamma > 0;
    while (o->schedule && strcmp(eg_schedule_name(s->decay), o->schedule) != 0) s->decay++;
    if (!o->schedule && some) s->decay = EG_COSINE;
    if (s->decay == EG_CONSTANT && some && !s->warmup)
        s->warmup = 1; /* a struct of zeros would mean the default schedule */
    if (s->decay == EG_LINEAR || s->decay == EG_COSINE || s->decay == EG_WSD ||
        s->decay == EG_WSD_SQRT)
        s->last = 0.05;
    return train_milestones(o->milestones, s->milestones);
}

/* -- groups of parameters --------------------------------------------------------------------- */
bool train_groups(eg_ctx *cx, train *o)
{
    size_t size = 1, n = 0;
    for (int k = 0; k < o->group.count; k++) size += strlen(o->group.item[k]) + 2;
    char *text = o->group.count ? malloc(size) : NULL;
    for (int k = 0; text && k < o->group.count; k++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", k ? "; " : "", o->group.item[k]);
    if (text) o->model.groups = eg_opt_groups_read(cx, text);
    free(text);
    const bool good = !o->group.count || o->model.groups;
    if (!good && eg_error(cx))
        print_context_error(cx, "--group");
    else if (!good)
        print_error("out of memory");
    return good;
}

/* -- the attentions --------------------------------------------------------------------------- */
const char *train_where(const train *o, char *out)
{
    if (!o->window) return o->where;
    if (o->where)
        snprintf(out, WHERE_SIZE, "(%s) & abs(i - j) < %lld", o->where, (long long)o->window);
    else
        snprintf(out, WHERE_SIZE, "abs(i - j) < %lld", (long long)o->window);
    return out;
}

static bool attention_of(const train *o, char *text, eg_mha_args *to) /* false: all are defaults */
{
    static const eg_linear_attention_args linear = { 0 };
    *to = (eg_mha_args){ .kv_heads = o->kv_heads,
                         .rotary = o->rotary ? 1e4 : 0,
                         .alibi = o->alibi,
                         .where = train_where(o, text),
                         .score = o->score,
                         .linear = o->linear ? &linear : NULL };
    return o->kv_heads || o->rotary || o->alibi || to->where || o->score || o->linear;
}

double train_default_decay(const char *optimiser)
{
    return optimiser && !strcmp(optimiser, "adamw") ? 0.01 : 0;
}

enum { EARLY_STOP = 4 }; /* of a text: number of evaluations without a smaller held-out loss */

/* True if the trainer takes the options with a short text, so that what does not depend on the text
 * is refused before it is read, which may have gigabytes; else an error is recorded. */
static bool options_fit(eg_ctx *cx, const eg_trainer_args *options)
{
    enum { LEAST = 2000 }; /* its tenth, which is held out, has more than a default context */
    const size_t size = LEAST + 10 * (size_t)options->context;
    eg_trainer_args a = *options;
    const eg_mark m = eg_push(cx);
    char *text = eg_scope_alloc(cx, size);
    if (text) memset(text, 'a', size);
    a.data = text ? eg_data_corpus_of(cx, text, size, "a text") : NULL;
    const bool good = a.data && eg_trainer_new_with(&a);
    eg_pop(cx, m);
    return good;
}

eg_trainer *train_fresh(eg_ctx *cx, train *o, const char *task, const words *w, const command *c)
{
    const eg_task *row = o->pairs || o->text ? NULL : train_task(task);
    if (!o->pairs && !o->text && !row) return NULL;
    if (o->linear && o->window)
        return print_error(
                   "--linear and --window exclude each other: a window compares the positions of "
                   "queries and keys, and linear attention has conditions on one of them only"),
               NULL;
    eg_trainer_args a = o->model;
    a.size = sizeof a;
    if (!schedule_of(o, &a.schedule) || !train_groups(cx, o)) return NULL;
    a.groups = o->model.groups;
    if (was_given(w, c, "goal") && a.goal == 0) a.goal = EG_OFF;
    /* 0 would be the default */
    if (was_given(w, c, "weight-decay") && a.weight_decay == 0 &&
        train_default_decay(a.optimiser) > 0)
        a.weight_decay = EG_OFF;
    char where[WHERE_SIZE];
    eg_mha_args attention;
    if (attention_of(o, where, &attention)) a.attention = &attention;
    if (o->text && !was_given(w, c, "early-stop")) a.early_stop = EARLY_STOP;
    if (!o->text || options_fit(cx, &a))
        a.data = o->text    ? text_data(cx, o->text)
                 : o->pairs ? eg_data_pairs(cx, o->pairs)
                            : eg_data_task(cx, row);
    eg_trainer *t = a.data ? eg_trainer_new_with(&a) : NULL;
    if (!t) print_context_error(cx, NULL);
    return t;
}
