/* checkpoint.c: a trainer as one safetensors file. Numbers are written so that they read back as
 * the same bits. */
#include "trainer.h"
#include <eingrad/grad.h>
#include <eingrad/io.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* -- the numbers in __metadata__, a row each: key, kind, where -------------------------------- */
typedef struct saved {
    int64_t layers, d_model, heads, width, batch, steps, seed, decay, warmup, decay_steps,
        vocabulary, longest, step, cursor, draws, dtype;
    double dropout, lr, clip_norm, last, goal, exact;
    int64_t context, micro_batches, evaluate, early_stop, waited, best_step, longest_step,
        characters, sum;
    double smoothing, held, best, longest_norm;
    int64_t step_size, noam_d_model, wsd_steps, milestone[EG_MILESTONES];
    double gamma;
} saved;
/* late: 0 in a file that lacks it */
typedef struct field {
    const char *key;
    bool real;
    size_t at;
    int64_t least, most;
    bool late;
} field;
static const field fields[] = {
/* A step and an example are counted on by less than 2^20 at a time; numbers of a text's symbols are
 * multiplied by 2^16. */
#define STEPS    ((int64_t)1 << 53)
#define EXAMPLES ((int64_t)1 << 62)
#define SYMBOLS  ((int64_t)1 << 44)
#define WHOLE(name, least, most)                                \
    {                                                           \
#name, false, offsetof(saved, name), least, most, false \
    }
#define REAL(name)                                      \
    {                                                   \
#name, true, offsetof(saved, name), 0, 0, false \
    }
    WHOLE(layers, 1, SIZE_MOST),
    WHOLE(d_model, 1, SIZE_MOST),
    WHOLE(heads, 1, SIZE_MOST),
    WHOLE(width, 1, SIZE_MOST),
    WHOLE(batch, 1, SIZE_MOST),
    WHOLE(steps, 1, STEPS),
    WHOLE(seed, INT64_MIN, INT64_MAX),
    WHOLE(decay, 0, INT32_MAX),
    WHOLE(warmup, 0, STEPS),
    WHOLE(decay_steps, 0, STEPS),
    WHOLE(vocabulary, 1, SIZE_MOST),
    WHOLE(longest, 1, SIZE_MOST),
    WHOLE(step, 0, STEPS),
    WHOLE(cursor, 0, EXAMPLES),
    WHOLE(draws, INT64_MIN, INT64_MAX),
    WHOLE(dtype, 0, INT32_MAX),
    REAL(dropout),
    REAL(lr),
    REAL(clip_norm),
    REAL(last),
    REAL(goal),
    REAL(exact),
    WHOLE(context, 0, SIZE_MOST),
    WHOLE(micro_batches, 1, SIZE_MOST),
    WHOLE(evaluate, 0, STEPS),
    WHOLE(early_stop, 0, STEPS),
    WHOLE(waited, 0, STEPS),
    WHOLE(best_step, 0, STEPS),
    WHOLE(longest_step, 0, STEPS),
    WHOLE(characters, 0, SYMBOLS),
    WHOLE(sum, INT64_MIN, INT64_MAX),
    REAL(smoothing),
    REAL(held),
    REAL(best),
    REAL(longest_norm),
#define LATE(name, real)                                   \
    {                                                      \
#name, real, offsetof(saved, name), 0, STEPS, true \
    }
#define MARK(k)                                                                                   \
    {                                                                                             \
        "milestone" #k, false, offsetof(saved, milestone) + (k) * sizeof(int64_t), 0, STEPS, true \
    }
    LATE(gamma, true),
    LATE(step_size, false),
    LATE(noam_d_model, false),
    LATE(wsd_steps, false),
    MARK(0),
    MARK(1),
    MARK(2),
    MARK(3),
    MARK(4),
    MARK(5),
    MARK(6),
    MARK(7),
#undef MARK
#undef LATE
#undef WHOLE
#undef REAL
#undef STEPS
#undef EXAMPLES
#undef SYMBOLS
};
enum { FIELDS = sizeof fields / sizeof *fields, TEXT = 40 };

static void checkpoint_put(const field *f, const saved *s, char *out)
{
    if (f->real)
        snprintf(out, TEXT, "%.17g", *(const double *)((const char *)s + f->at));
    else
        snprintf(out, TEXT, "%lld", (long long)*(const int64_t *)((const char *)s + f->at));
}

/* True if the text is a number within the field's range, which *s then has; else recorded. */
static bool get(eg_ctx *cx, const char *path, const field *f, saved *s, const char *text)
{
    char *end = NULL;
    if (!text && f->late) return true;
    errno = 0;
    if (!text || !*text || isspace((unsigned char)*text))
        eg_fail_as(cx, EG_ERROR_FILE, "%s: the metadata lacks a number for \"%s\"", path, f->key);
    else if (f->real)
        *(double *)((char *)s + f->at) = strtod(text, &end);
    else {
        int64_t value = strtoll(text, &end, 10);
        *(int64_t *)((char *)s + f->at) = value;
        if (!*end && (errno || value < f->least || value > f->most))
            eg_fail_as(cx, EG_ERROR_FILE,
                       "%s: the metadata's \"%s\" is %.40s, not within %lld and %lld", path, f->key,
                       text, (long long)f->least, (long long)f->most);
    }
    if (end && (*end || end == text))
        eg_fail_as(cx, EG_ERROR_FILE, "%s: the metadata's \"%s\" is \"%.40s\", not a number", path,
                   f->key, text);
    return !eg_error(cx);
}

static saved checkpoint_gather(const eg_trainer *t)
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
        .lr = unless_zero(s->lr),
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

/* -- save ------------------------------------------------------------------------------------- */
static int save(eg_trainer *t, const char *path, eg_owner *owner)
{
    int count = eg_params_count(t->params), states = 0, n = 0;
    while (eg_opt_state(t->opt, states)) states++;
    const char **names = eg_owner_alloc(owner, (size_t)(count + states) * sizeof *names);
    eg_tensor **xs = eg_owner_alloc(owner, (size_t)(count + states) * sizeof *xs);
    char(*text)[TEXT] = eg_owner_alloc(owner, FIELDS * sizeof *text),
    *vocabulary = eg__data_symbols_text(t->data, owner);
    if (!names || !xs || !text || !vocabulary) return -1;
    for (int k = 0; k < count + states; k++) {
        const eg_named *one =
            k < count ? eg_params_at(t->params, k) : eg_opt_state(t->opt, k - count);
        names[k] = one->name;
        xs[k] = one->x;
    }
    const char *pairs = eg_data_text(t->data), *metadata[2 * (FIELDS + 6) + 1];
    saved s = checkpoint_gather(t);
    const char *const texts[] = { "format",
                                  "eingrad trainer 2",
                                  pairs                   ? "name"
                                  : eg_data_free(t->data) ? "corpus"
                                                          : "task",
                                  eg_data_name(t->data),
                                  "model",
                                  t->o.model,
                                  "symbols",
                                  vocabulary,
                                  pairs ? "pairs" : NULL,
                                  pairs };
    for (size_t k = 0; k < sizeof texts / sizeof *texts && texts[k]; k++) metadata[n++] = texts[k];
    for (int k = 0; k < FIELDS; k++) {
        checkpoint_put(&fields[k], &s, text[k]);
        metadata[n++] = fields[k].key;
        metadata[n++] = text[k];
    }
    metadata[n] = NULL;
    return eg_safetensors_save(t->cx, path, count + states, names, xs, metadata);
}

int eg_trainer_save(eg_trainer *t, const char *path)
{
    if (!t || eg_error(t->cx)) return -1;
    eg_mark m = eg_push(t->cx);
    eg_owner *owner = eg_owner_open(t->cx);
    int bad = owner ? save(t, path, owner) : -1;
    eg_pop(t->cx, m);
    return bad;
}

/* -- what lies where a run is to be saved ----------------------------------------------------- */
/* Of the numbers, those that a run changes as it goes; the others are the run's own. steps: a
 * longer plan goes on with the same run; what a learning rate falls by is decay_steps. */
static const char *const saved_state[] = { "step",  "steps",  "cursor",       "draws",
                                           "exact", "waited", "best_step",    "longest_step",
                                           "held",  "best",   "longest_norm", NULL };

static bool saved_is_state(const char *key)
{
    int k = 0;
    while (saved_state[k] && strcmp(saved_state[k], key)) k++;
    return saved_state[k] != NULL;
}

static void saved_compare_number(const field *f, const saved *own, const eg_safetensors *file,
                                 eg_saved *out)
{
    const char *has = eg_safetensors_metadata(file, f->key);
    char text[TEXT];
    checkpoint_put(f, own, text);
    if (!*out->differs && !saved_is_state(f->key) && (!has || strcmp(has, text)))
        snprintf(out->differs, sizeof out->differs, "%s %.40s, not %s", f->key,
                 has ? has : "unknown", text);
}

/* A name in the metadata of pairs or of a text is where they lay: they are compared themselves. */
static void saved_compare(eg_trainer *t, const eg_safetensors *file, eg_owner *owner, eg_saved *out)
{
    saved own = checkpoint_gather(t);
    const struct {
        const char *key, *own;
        bool shown;
    } texts[] = {
        { "model", t->o.model, true },
        { "task", t->data->task ? eg_data_name(t->data) : NULL, true },
        { "pairs", eg_data_text(t->data), false },
        { "symbols", eg__data_symbols_text(t->data, owner), false },
    };
    for (size_t k = 0; k < sizeof texts / sizeof *texts && !*out->differs; k++) {
        const char *key = texts[k].key, *is = texts[k].own;
        const char *has = eg_safetensors_metadata(file, key);
        if (has && is ? strcmp(has, is) == 0 : has == is) continue;
        if (texts[k].shown && has && is)
            snprintf(out->differs, sizeof out->differs, "%s %.40s, not %.40s", key, has, is);
        else
            snprintf(out->differs, sizeof out->differs, "%s %s", is ? "other" : "with", key);
    }
    for (int k = 0; k < FIELDS; k++) /* the planned steps decide the warm-up too */
        if (fields[k].at == offsetof(saved, decay_steps))
            saved_compare_number(&fields[k], &own, file, out);
    for (int k = 0; k < FIELDS; k++) saved_compare_number(&fields[k], &own, file, out);
    const char *step = eg_safetensors_metadata(file, "step");
    out->step = step ? strtoll(step, NULL, 10) : 0;
}

eg_saved eg_trainer_saved(eg_trainer *t, const char *path)
{
    eg_saved out = { .step = 0 };
    if (!t || !path || eg_error(t->cx)) return out;
    FILE *there = fopen(path, "rbe");
    if (!there && (errno == ENOENT || errno == ENOTDIR)) return out;
    if (there) fclose(there);
    eg_mark m = eg_push(t->cx);
    eg_owner *owner = eg_owner_open(t->cx);
    eg_safetensors *file = eg_safetensors_open(t->cx, path);
    const char *format = file ? eg_safetensors_metadata(file, "format") : NULL;
    out.there = true;
    out.checkpoint = format && strncmp(format, "eingrad trainer", 15) == 0;
    if (out.checkpoint && owner) saved_compare(t, file, owner, &out);
    out.same = out.checkpoint && owner && !*out.differs && !eg_error(t->cx);
    eg_safetensors_close(file);
    eg_clear(t->cx); /* what cannot be read is no checkpoint */
    eg_pop(t->cx, m);
    return out;
}

/* -- load ------------------------------------------------------------------------------------- */
static bool same_data(const eg_data *d, const char *name, bool text, const saved *s,
                      const char *path)
{
    if (d->free_text != text || (!text && strcmp(d->name, name)))
        eg_fail_as(d->cx, EG_ERROR_FILE, "%s: a model of %s, not of %s", path, name, d->name);
    else if (text && ((int64_t)d->sum != s->sum || d->count != s->characters))
        eg_fail_as(d->cx, EG_ERROR_FILE,
                   "%s: trained on %s when it had %lld characters; %s has %lld and %s", path, name,
                   (long long)s->characters, d->name, (long long)d->count,
                   d->count == s->characters ? "others" : "is another text");
    return !eg_error(d->cx);
}

/* True if the path that a checkpoint names is a file that can have so many characters, of one to
 * four bytes; else recorded. */
static bool is_text_of(eg_ctx *cx, const char *corpus, const saved *s, const char *path)
{
    struct stat about;
    if (stat(corpus, &about))
        eg_fail_as(cx, EG_ERROR_FILE, "%s: %s", corpus, strerror(errno));
    else if (!S_ISREG(about.st_mode) || about.st_size > 4 * s->characters)
        eg_fail_as(cx, EG_ERROR_FILE,
                   "%s: %s is not the text that it was trained on: no file of at most %lld bytes",
                   path, corpus, 4 * (long long)s->characters);
    return !eg_error(cx);
}

static eg_data *data_of(const eg_trainer_load_args *o, const eg_safetensors *file, const saved *s)
{
    const char *task = eg_safetensors_metadata(file, "task"),
               *pairs = eg_safetensors_metadata(file, "pairs");
    const char *name = eg_safetensors_metadata(file, "name"),
               *corpus = eg_safetensors_metadata(file, "corpus");
    const char *symbols = eg_safetensors_metadata(file, "symbols"), *called = corpus  ? corpus
                                                                              : pairs ? name
                                                                                      : task;
    eg_data *d = o->data;
    if (d && !same_data(d, called ? called : o->path, corpus, s, o->path)) return NULL;
    if (d) return d;
    if (pairs) return eg_data_parse(o->cx, pairs, name ? name : o->path);
    if (corpus && o->answers)
        return eg__corpus_closed(o->cx, corpus, symbols ? symbols : "", (uint64_t)s->sum,
                                 s->characters);
    if (corpus) {
        d = is_text_of(o->cx, corpus, s, o->path) ? eg_data_corpus(o->cx, corpus) : NULL;
        return d && same_data(d, corpus, true, s, o->path) ? d : NULL;
    }
    if (!task || !eg_task_find(task)) {
        eg_fail_as(
            o->cx, EG_ERROR_FILE,
            "%s: the task \"%s\" is not one of eingrad's; load it with .data, the task that it "
            "was trained on",
            o->path, task ? task : "");
        return NULL;
    }
    return eg_data_task(o->cx, eg_task_find(task));
}

static bool counts_and_type(eg_ctx *cx, const saved *s, const char *path)
{
    if (s->dtype != (int64_t)eg_default_type(cx))
        eg_fail_as(cx, EG_ERROR_FILE, "%s: a model in %s, but the context is in %s", path,
                   s->dtype == EG_F64 ? "f64" : "f32", eg_type_name(eg_default_type(cx)));
    if (s->waited > s->step)
        eg_fail_as(cx, EG_ERROR_FILE,
                   "%s: the metadata's \"waited\" is %lld looks, but only %lld steps are done",
                   path, (long long)s->waited, (long long)s->step);
    return !eg_error(cx);
}

static bool same_vocabulary(eg_trainer *t, const char *text, const char *path)
{
    const char *own = eg__data_symbols_text(t->data, t->owner);
    if (own && (!text || strcmp(own, text) || t->vocabulary != eg_data_symbols(t->data)))
        eg_fail_as(t->cx, EG_ERROR_FILE, "%s: its vocabulary is not that of %s", path,
                   eg_data_name(t->data));
    return !eg_error(t->cx);
}

static bool state_fits(const eg_named *one, const eg_tensor *x)
{
    bool same = eg_ok(x) && eg_type(x) == eg_type(one->x) && eg_rank(x) == eg_rank(one->x);
    for (int k = 0; same && k < eg_rank(x); k++) same = eg_dim(x, k) == eg_dim(one->x, k);
    return same;
}

/* Counts are within 0 and the first, the steps, which are at most 2^53; the learning rate is what
 * eg_opt_set_lr takes; moments are finite. */
static bool state_sound(eg_ctx *cx, const eg_named *one, eg_tensor *x, const char *path)
{
    const int64_t *count = eg_type(x) == EG_I64 ? eg_i64(x) : NULL;
    for (int64_t k = 0; count && k < eg_size(x); k++)
        if (count[k] < 0 || count[k] > (k ? count[0] : STEP_MOST))
            eg_fail_as(cx, EG_ERROR_FILE,
                       "%s: tensor \"%s\" has a count of %lld, not within 0 and %lld", path,
                       one->name, (long long)count[k], (long long)(k ? count[0] : STEP_MOST));
    if (eg_rank(x) == 0 && !(eg_item(x) >= 0 && isfinite(eg_item(x))))
        eg_fail_as(cx, EG_ERROR_FILE,
                   "%s: tensor \"%s\" is %g, but a learning rate is not negative or infinite", path,
                   one->name, eg_item(x));
    else if (!eg_error(cx) && eg_first_nonfinite(x))
        eg_fail_as(cx, EG_ERROR_FILE, "%s: tensor \"%s\" has a NaN or an infinity", path,
                   one->name);
    return !eg_error(cx);
}

static bool read_state(eg_trainer *t, const eg_safetensors *file, const char *path)
{
    for (int k = 0; eg_opt_state(t->opt, k); k++) {
        const eg_named *one = eg_opt_state(t->opt, k);
        if (!strcmp(one->name, "opt.skipped") && eg_safetensors_find(file, one->name) < 0)
            continue; /* a file of before: no step skipped a parameter */
        int at = eg_safetensors_find(file, one->name);
        eg_tensor *x = eg_safetensors_at(file, at);
        bool real = eg_type(one->x) == eg_params_type(t->params);
        if (real && !eg_ok(eg_safetensors_need(file, path, one->name, one->name, eg_rank(one->x),
                                               eg_dims(one->x))))
            return false;
        if (!state_fits(one, x)) {
            eg_fail_as(t->cx, EG_ERROR_FILE,
                       "%s: tensor \"%s\" is %s; it must be %s of rank %d and %lld numbers", path,
                       one->name, at < 0 ? "missing" : "another", eg_type_name(eg_type(one->x)),
                       eg_rank(one->x), (long long)eg_size(one->x));
            return false;
        }
        if (!state_sound(t->cx, one, x, path) || eg_assign(one->x, x)) return false;
    }
    return true;
}

static eg_trainer *restore(const eg_trainer_load_args *l, const eg_safetensors *file, eg_data *data,
                           const saved *s)
{
    eg_trainer_args o = args_of(s, data, eg_safetensors_metadata(file, "model"), l->steps);
    if (!o.model) {
        eg_fail_as(l->cx, EG_ERROR_FILE, "%s: the metadata names no model", l->path);
        return NULL;
    }
    eg_trainer *t =
        eg__trainer_make(&o, &(eg__restored){ s->vocabulary, s->longest, file, l->path });
    if (!t || !same_vocabulary(t, eg_safetensors_metadata(file, "symbols"), l->path) ||
        eg_params_read(t->params, file, l->path) || !read_state(t, file, l->path))
        return NULL;
    eg_progress *n = &t->now;
    n->step = s->step, n->exact = s->exact, n->held = s->held, n->best = s->best,
    n->best_step = s->best_step;
    n->longest = s->longest_norm, n->longest_step = s->longest_step,
    n->clipped = eg_opt_now(t->opt).norm_clipped;
    t->cursor = (uint64_t)s->cursor, t->waited = s->waited;
    n->stopped = t->o.early_stop && t->waited >= t->o.early_stop;
    eg_set_draws(l->cx, (uint64_t)s->draws);
    return t;
}

eg_trainer *eg_trainer_load_with(const eg_trainer_load_args *given)
{
    eg_trainer_load_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    if (!o.cx || eg_error(o.cx)) return NULL;
    eg_safetensors *file = eg_safetensors_open(o.cx, o.path);
    if (!file) return NULL;
    saved s = { 0 };
    const char *format = eg_safetensors_metadata(file, "format");
    if (!format || strncmp(format, "eingrad trainer", 15))
        eg_fail_as(o.cx, EG_ERROR_FILE, "%s: not a model that eingrad trained", o.path);
    else if (strcmp(format, "eingrad trainer 2"))
        eg_fail_as(o.cx, EG_ERROR_FILE, "%s: a model of another version, in the format \"%s\"",
                   o.path, format);
    for (int k = 0; k < FIELDS && !eg_error(o.cx); k++)
        get(o.cx, o.path, &fields[k], &s, eg_safetensors_metadata(file, fields[k].key));
    eg_data *data =
        !eg_error(o.cx) && counts_and_type(o.cx, &s, o.path) ? data_of(&o, file, &s) : NULL;
    eg_trainer *t = data ? restore(&o, file, data, &s) : NULL;
    eg_safetensors_close(file);
    return t;
}
