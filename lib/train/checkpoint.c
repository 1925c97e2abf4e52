/* checkpoint.c: a trainer as one safetensors file. Numbers are written so that they read back as the same bits. */
#include "trainer.h"
#include <eingrad/grad.h>
#include <eingrad/io.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- the numbers in __metadata__, a row each: key, kind, where ---------------------------------------------------------------------- */
typedef struct saved {
    int64_t layers, d_model, heads, width, batch, steps, seed, decay, warmup, decay_steps, vocabulary, longest, step, cursor, draws, dtype;
    double dropout, lr, clip_norm, last, goal, exact;
    int64_t context, micro_batches, evaluate, early_stop, waited, best_step, longest_step, characters, sum;
    double smoothing, held, best, longest_norm;
    int64_t step_size, noam_d_model, wsd_steps, milestone[EG_MILESTONES];
    double gamma;
} saved;
typedef struct field {
    const char *key;
    bool real;
    size_t at;
    bool late;
} field; /* late: 0 in a file that has it not */
static const field fields[] = {
#define WHOLE(name) { #name, false, offsetof(saved, name), false }
#define REAL(name)  { #name, true,  offsetof(saved, name), false }
    WHOLE(layers), WHOLE(d_model), WHOLE(heads), WHOLE(width), WHOLE(batch), WHOLE(steps), WHOLE(seed), WHOLE(decay), WHOLE(warmup),
    WHOLE(decay_steps), WHOLE(vocabulary), WHOLE(longest), WHOLE(step), WHOLE(cursor), WHOLE(draws), WHOLE(dtype),
    REAL(dropout), REAL(lr), REAL(clip_norm), REAL(last), REAL(goal), REAL(exact),
    WHOLE(context), WHOLE(micro_batches), WHOLE(evaluate), WHOLE(early_stop), WHOLE(waited), WHOLE(best_step), WHOLE(longest_step),
    WHOLE(characters), WHOLE(sum), REAL(smoothing), REAL(held), REAL(best), REAL(longest_norm),
#define LATE(name, real) { #name, real, offsetof(saved, name), true }
#define MARK(k) { "milestone" #k, false, offsetof(saved, milestone) + (k) * sizeof(int64_t), true }
    LATE(gamma, true), LATE(step_size, false), LATE(noam_d_model, false), LATE(wsd_steps, false),
    MARK(0), MARK(1), MARK(2), MARK(3), MARK(4), MARK(5), MARK(6), MARK(7),
#undef MARK
#undef LATE
#undef WHOLE
#undef REAL
};
enum { FIELDS = sizeof fields / sizeof *fields, TEXT = 40 };

static void put(const field *f, const saved *s, char *out)
{
    if (f->real)
        snprintf(out, TEXT, "%.17g", *(const double *)((const char *)s + f->at));
    else
        snprintf(out, TEXT, "%lld", (long long)*(const int64_t *)((const char *)s + f->at));
}

static bool get(const field *f, saved *s, const char *text)
{
    char *end;
    if (!text && f->late)
        return true;
    if (!text || !*text)
        return false;
    if (f->real)
        *(double *)((char *)s + f->at) = strtod(text, &end);
    else
        *(int64_t *)((char *)s + f->at) = strtoll(text, &end, 10);
    return !*end;
}

static saved gather(const eg_trainer *t)
{
    const eg_trainer_args *o = &t->o;
    const eg_progress *n = &t->now;
    saved s = {
        o->layers,
        o->d_model,
        o->heads,
        o->width,
        o->batch,
        o->steps,
        (int64_t)o->seed,
        o->schedule.decay,
        o->schedule.warmup,
        o->schedule.steps,
        t->vocabulary,
        t->longest,
        n->step,
        (int64_t)t->cursor,
        (int64_t)eg_draws(t->cx),
        eg_params_type(t->params),
        o->dropout,
        o->lr,
        o->clip_norm,
        o->schedule.last,
        o->goal,
        n->exact,
        o->context,
        o->micro_batches,
        o->evaluate,
        o->early_stop,
        t->waited,
        n->best_step,
        n->longest_step,
        t->data->free_text ? t->data->count : 0,
        (int64_t)t->data->sum,
        o->smoothing,
        n->held,
        n->best,
        n->longest,
        .gamma = o->schedule.gamma,
        .step_size = o->schedule.step_size,
        .noam_d_model = o->schedule.d_model,
        .wsd_steps = o->schedule.decay_steps,
    };
    memcpy(s.milestone, o->schedule.milestones, sizeof s.milestone);
    return s;
}

static double unless_zero(double x) { return x == 0 ? EG_OFF : x; }

static eg_trainer_args args_of(const saved *s, eg_data *data, const char *model, int64_t steps)
{
    eg_trainer_args o = {
        .size = sizeof(eg_trainer_args),
        .data = data,
        .model = model,
        .layers = s->layers,
        .d_model = s->d_model,
        .heads = s->heads,
        .width = s->width,
        .batch = s->batch,
        .steps = steps ? steps : s->steps,
        .seed = (uint64_t)s->seed,
        .dropout = s->dropout,
        .lr = s->lr,
        .clip_norm = s->clip_norm,
        .goal = unless_zero(s->goal),
        .context = s->context,
        .micro_batches = s->micro_batches,
        .smoothing = s->smoothing,
        .evaluate = s->evaluate,
        .early_stop = s->early_stop,
        .schedule = { .decay = (eg_decay)s->decay,
                      .warmup = s->warmup,
                      .steps = s->decay_steps,
                      .last = s->last,
                      .gamma = s->gamma,
                      .step_size = s->step_size,
                      .d_model = s->noam_d_model,
                      .decay_steps = s->wsd_steps },
    };
    memcpy(o.schedule.milestones, s->milestone, sizeof s->milestone);
    return o;
}

/* -- save --------------------------------------------------------------------------------------------------------------------------- */
static int save(eg_trainer *t, const char *path, eg_owner *owner)
{
    int count = eg_params_count(t->params), states = 0, n = 0;
    while (eg_opt_state(t->opt, states))
        states++;
    const char **names = eg_owner_alloc(owner, (size_t)(count + states) * sizeof *names);
    eg_tensor **xs = eg_owner_alloc(owner, (size_t)(count + states) * sizeof *xs);
    char (*text)[TEXT] = eg_owner_alloc(owner, FIELDS * sizeof *text), *vocabulary = eg__data_symbols_text(t->data, owner);
    if (!names || !xs || !text || !vocabulary)
        return -1;
    for (int k = 0; k < count + states; k++) {
        const eg_named *one = k < count ? eg_params_at(t->params, k) : eg_opt_state(t->opt, k - count);
        names[k] = one->name;
        xs[k] = one->x;
    }
    const char *pairs = eg_data_text(t->data), *metadata[2 * (FIELDS + 6) + 1];
    saved s = gather(t);
    const char *const texts[] = { "format", "eingrad trainer 2", pairs ? "name" : eg_data_free(t->data) ? "corpus" : "task",
                                  eg_data_name(t->data), "model", t->o.model,
                                  "symbols", vocabulary, pairs ? "pairs" : NULL, pairs };
    for (size_t k = 0; k < sizeof texts / sizeof *texts && texts[k]; k++)
        metadata[n++] = texts[k];
    for (int k = 0; k < FIELDS; k++) {
        put(&fields[k], &s, text[k]);
        metadata[n++] = fields[k].key;
        metadata[n++] = text[k];
    }
    metadata[n] = NULL;
    return eg_safetensors_save(t->cx, path, count + states, names, xs, metadata);
}

int eg_trainer_save(eg_trainer *t, const char *path)
{
    if (!t || eg_error(t->cx))
        return -1;
    eg_mark m = eg_push(t->cx);
    eg_owner *owner = eg_owner_open(t->cx);
    int bad = owner ? save(t, path, owner) : -1;
    eg_pop(t->cx, m);
    return bad;
}

/* -- load --------------------------------------------------------------------------------------------------------------------------- */
static bool same_data(const eg_data *d, const char *name, bool text, const saved *s, const char *path)
{
    if (d->free_text != text || (!text && strcmp(d->name, name)))
        eg_fail(d->cx, "%s: a model of %s, not of %s", path, name, d->name);
    else if (text && ((int64_t)d->sum != s->sum || d->count != s->characters))
        eg_fail(d->cx, "%s: trained on %s when it had %lld characters; %s has %lld and %s", path, name, (long long)s->characters, d->name,
                (long long)d->count, d->count == s->characters ? "others" : "is another text");
    return !eg_error(d->cx);
}

static eg_data *data_of(const eg_trainer_load_args *o, const eg_safetensors *file, const saved *s)
{
    const char *task = eg_safetensors_metadata(file, "task"), *pairs = eg_safetensors_metadata(file, "pairs");
    const char *name = eg_safetensors_metadata(file, "name"), *corpus = eg_safetensors_metadata(file, "corpus");
    const char *symbols = eg_safetensors_metadata(file, "symbols"), *called = corpus ? corpus : pairs ? name : task;
    eg_data *d = o->data;
    if (d && !same_data(d, called ? called : o->path, corpus, s, o->path))
        return NULL;
    if (d)
        return d;
    if (pairs)
        return eg_data_parse(o->cx, pairs, name ? name : o->path);
    if (corpus && o->answers)
        return eg__corpus_closed(o->cx, corpus, symbols ? symbols : "", (uint64_t)s->sum, s->characters);
    if (corpus) {
        d = eg_data_corpus(o->cx, corpus);
        return d && same_data(d, corpus, true, s, o->path) ? d : NULL;
    }
    if (!task || !eg_task_find(task)) {
        eg_fail(o->cx, "%s: the task \"%s\" is not one of eingrad's; load it with .data, the task that it was trained on", o->path,
                task ? task : "");
        return NULL;
    }
    return eg_data_task(o->cx, eg_task_find(task));
}

static bool sound(eg_ctx *cx, const saved *s, const char *path)
{
    const int64_t sizes[] = { s->layers, s->d_model, s->heads, s->width, s->batch, s->vocabulary, s->longest };
    bool good = s->step >= 0 && s->warmup >= 0 && s->warmup < INT64_MAX && s->steps > 0 && s->cursor >= 0 && s->decay >= EG_CONSTANT &&
                s->decay <= EG_WSD_SQRT;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        good &= sizes[k] > 0 && sizes[k] <= SIZE_MOST;
    good &= s->waited >= 0 && s->best_step >= 0 && s->longest_step >= 0 && s->characters >= 0;
    if (!good)
        eg_fail(cx, "%s: the metadata describes no model (a size is not in 1 … %lld, or a step is negative)", path, (long long)SIZE_MOST);
    else if (s->dtype != (int64_t)eg_default_type(cx))
        eg_fail(cx, "%s: a model in %s, but the context is in %s", path, s->dtype == EG_F64 ? "f64" : "f32",
                eg_type_name(eg_default_type(cx)));
    return good && !eg_error(cx);
}

static bool same_vocabulary(eg_trainer *t, const char *text, const char *path)
{
    const char *own = eg__data_symbols_text(t->data, t->owner);
    if (own && (!text || strcmp(own, text) || t->vocabulary != eg_data_symbols(t->data)))
        eg_fail(t->cx, "%s: its vocabulary is not that of %s", path, eg_data_name(t->data));
    return !eg_error(t->cx);
}

static bool read_state(eg_trainer *t, const eg_safetensors *file, const char *path)
{
    for (int k = 0; eg_opt_state(t->opt, k); k++) {
        const eg_named *one = eg_opt_state(t->opt, k);
        if (!strcmp(one->name, "opt.skipped") && eg_safetensors_find(file, one->name) < 0)
            continue; /* a file of before: no step skipped a parameter */
        eg_tensor *x = eg_safetensors_get(file, one->name);
        if (!eg_ok(x) || eg_assign(one->x, x)) {
            eg_fail(t->cx, "%s: tensor \"%s\" cannot be used", path, one->name);
            return false;
        }
        if (eg_first_nonfinite(one->x)) {
            eg_fail(t->cx, "%s: tensor \"%s\" has a NaN or an infinity", path, one->name);
            return false;
        }
    }
    return true;
}

static eg_trainer *restore(const eg_trainer_load_args *l, const eg_safetensors *file, eg_data *data, const saved *s)
{
    eg_trainer_args o = args_of(s, data, eg_safetensors_metadata(file, "model"), l->steps);
    if (!o.model) {
        eg_fail(l->cx, "%s: the metadata names no model", l->path);
        return NULL;
    }
    eg_trainer *t = eg__trainer_make(&o, s->vocabulary, s->longest);
    if (!t || !same_vocabulary(t, eg_safetensors_metadata(file, "symbols"), l->path) || eg_params_read(t->params, file, l->path) ||
        !read_state(t, file, l->path))
        return NULL;
    eg_progress *n = &t->now;
    n->step = s->step, n->exact = s->exact, n->held = s->held, n->best = s->best, n->best_step = s->best_step;
    n->longest = s->longest_norm, n->longest_step = s->longest_step, n->clipped = eg_opt_now(t->opt).norm_clipped;
    t->cursor = (uint64_t)s->cursor, t->waited = s->waited;
    n->stopped = t->o.early_stop && t->waited >= t->o.early_stop;
    eg_set_draws(l->cx, (uint64_t)s->draws);
    return t;
}

eg_trainer *eg_trainer_load_with(const eg_trainer_load_args *given)
{
    eg_trainer_load_args o = { .size = sizeof o };
    if (given)
        memcpy(&o, given, given->size < sizeof o ? given->size : sizeof o);
    if (!o.cx || eg_error(o.cx))
        return NULL;
    eg_safetensors *file = eg_safetensors_open(o.cx, o.path);
    if (!file)
        return NULL;
    saved s = { 0 };
    const char *format = eg_safetensors_metadata(file, "format");
    if (!format || strncmp(format, "eingrad trainer", 15))
        eg_fail(o.cx, "%s: not a model that eingrad trained", o.path);
    else if (strcmp(format, "eingrad trainer 2"))
        eg_fail(o.cx, "%s: a model of another version, in the format \"%s\"", o.path, format);
    for (int k = 0; k < FIELDS && !eg_error(o.cx); k++)
        if (!get(&fields[k], &s, eg_safetensors_metadata(file, fields[k].key)))
            eg_fail(o.cx, "%s: the metadata lacks a number for \"%s\"", o.path, fields[k].key);
    eg_data *data = !eg_error(o.cx) && sound(o.cx, &s, o.path) ? data_of(&o, file, &s) : NULL;
    eg_trainer *t = data ? restore(&o, file, data, &s) : NULL;
    eg_safetensors_close(file);
    return t;
}
