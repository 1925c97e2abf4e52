/* trainer_options.c: the defaults of a trainer's options, of which some depend on the data, and the
 * checks of their values. */
#include "trainer.h"
#include <math.h>
#include <string.h>

static int64_t trainer_integer(int64_t given, int64_t otherwise)
{
    return given ? given : otherwise;
}

/* True if there is a model of that name, or the user's own network is valid, and the data fit it;
 * sets o->network. Else records an error. */
static bool trainer_network(eg_trainer_args *o)
{
    eg_ctx *cx = o->data->cx;
    if (o->network && o->model && strcmp(o->model, o->network->name ? o->network->name : ""))
        eg_fail_as(cx, EG_ERROR_MISUSE, "trainer: both model \"%s\" and network \"%s\" are given",
                   o->model, o->network->name ? o->network->name : "");
    if (eg_error(cx) || (o->network && !eg__network_sound(cx, o->network))) return false;
    if (!o->model)
        o->model = o->network                       ? o->network->name
                   : eg_data_wants_decoder(o->data) ? "decoder"
                                                    : "encoder";
    const eg_network *row = o->network ? o->network : eg__network_find(o->model);
    if (!row)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "trainer: model \"%s\" is neither encoder nor decoder nor seq2seq", o->model);
    if (!row || !eg__batches_fit(o->data, "trainer", o->model, row->encoder, row->source, o->seed))
        return false;
    o->network = row, o->model = row->name;
    return true;
}

/* True if no options of the built-in models are given with a user's own network; else records an
 * error. */
static bool trainer_own(const eg_trainer_args *o)
{
    if (!eg__network_find(o->model) && (o->attention || o->norm || o->ffn))
        eg_fail_as(o->data->cx, EG_ERROR_MISUSE,
                   "trainer: .%s belongs to the built-in models; network \"%s\" reads .user",
                   o->attention ? "attention"
                   : o->norm    ? "norm"
                                : "ffn",
                   o->model);
    if (o->diversity > 0 && !eg__network_parts(o->network))
        eg_fail_as(o->data->cx, EG_ERROR_MISUSE,
                   "trainer: diversity is about heads, but network \"%s\" names no part that "
                   "attends",
                   o->model);
    return !eg_error(o->data->cx);
}

/* True if every option is in range; else records an error for the first that is not. */
static bool trainer_in_range(const eg_trainer_args *o)
{
    eg_ctx *cx = o->data->cx;
    int64_t milestone = 0; /* the largest */
    for (int k = 0; k < EG_MILESTONES; k++)
        if (milestone < o->schedule.milestones[k]) milestone = o->schedule.milestones[k];
    const struct {
        const char *name;
        int64_t value, least, most;
    } sizes[] = {
        { "layers", o->layers, 1, SIZE_MOST },
        { "d_model", o->d_model, 1, SIZE_MOST },
        { "heads", o->heads, 1, SIZE_MOST },
        { "width", o->width, 1, SIZE_MOST },
        { "batch", o->batch, 1, SIZE_MOST },
        { "context", o->context, o->data->free_text, SIZE_MOST },
        { "block", o->block, 0, SIZE_MOST },
        { "leaves", o->leaves, 1, EG_LEAVES_MAX },
        { "steps", o->steps, 1, STEP_MOST },
        { "evaluate", o->evaluate, 0, STEP_MOST },
        { "early_stop", o->early_stop, 0, STEP_MOST },
        { "schedule.warmup", o->schedule.warmup, 0, STEP_MOST },
        { "schedule.steps", o->schedule.steps, 0, STEP_MOST },
        /* the optimiser refuses these if they are negative */
        { "schedule.d_model", o->schedule.d_model, INT64_MIN, STEP_MOST },
        { "schedule.step_size", o->schedule.step_size, INT64_MIN, STEP_MOST },
        { "schedule.milestones", milestone, 0, STEP_MOST },
    };
    const struct {
        const char *name;
        double value, below;
        const char *range;
    } shares[] = {
        { "dropout", o->dropout, 1, "in [0, 1)" },
        { "smoothing", o->smoothing, 1, "in [0, 1)" },
        { "momentum", eg_option(o->momentum, 0), nextafter(1, 2), "in [0, 1]" },
        { "diversity", o->diversity, INFINITY, "a number from 0 on" },
        { "goal", o->goal, nextafter(1, 2), "a share of exact sequences, in [0, 1]" },
    };
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        if (sizes[k].value < sizes[k].least || sizes[k].value > sizes[k].most) {
            const char *low = sizes[k].least ? "must be positive" : "must not be negative";
            const char *what = sizes[k].value <= sizes[k].most  ? low
                               : sizes[k].most == SIZE_MOST     ? "is at most 2^20"
                               : sizes[k].most == EG_LEAVES_MAX ? "is at most 4096"
                                                                : "is at most 2^53";
            eg_fail_as(cx, EG_ERROR_MISUSE, "trainer: %s %s, not %lld", sizes[k].name, what,
                       (long long)sizes[k].value);
        }
    for (size_t k = 0; k < sizeof shares / sizeof *shares; k++)
        if (!(shares[k].value >= 0 && shares[k].value < shares[k].below))
            eg_fail_as(cx, EG_ERROR_MISUSE, "trainer: %s must be %s, not %g", shares[k].name,
                       shares[k].range, shares[k].value);
    int64_t span = o->data->free_text ? o->data->count - 1 - o->data->held_from : 0;
    if (!o->data->free_text && o->context)
        eg_fail_as(cx, EG_ERROR_MISUSE, "trainer: context %lld, but only a text has one",
                   (long long)o->context);
    if (o->data->free_text && o->context > span)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "trainer: context %lld is longer than what is held out of %s, %lld and one more",
                   (long long)o->context, o->data->name, (long long)span);
    return !eg_error(cx);
}

/* Without a schedule the rate decays by a cosine to 1/20. If a decay has an end and none is given,
 * it ends with the last step; then, and with noam, a warm-up that is not given is the task's. */
static void schedule_defaults(eg_trainer_args *o, int64_t warmup)
{
    eg_schedule *s = &o->schedule;
    warmup = warmup < o->steps ? warmup : o->steps > 0 ? o->steps - 1 : 0;
    if (eg__schedule_is_default(s)) *s = (eg_schedule){ .decay = EG_COSINE, .last = 0.05 };
    bool ends = s->decay == EG_LINEAR || s->decay == EG_COSINE || s->decay == EG_WSD ||
                s->decay == EG_WSD_SQRT;
    if (!s->warmup && ((ends && !s->steps) || s->decay == EG_NOAM)) s->warmup = warmup;
    if (ends && !s->steps) s->steps = o->steps;
    if (s->decay == EG_NOAM && !s->d_model) s->d_model = o->d_model;
}

/* With noam, lr is a factor of its rate; returns the factor with which the largest rate is 1. */
static double noam_scale(const eg_trainer_args *o)
{
    const eg_schedule *s = &o->schedule;
    return s->decay == EG_NOAM && s->warmup > 0 && s->d_model > 0
               ? sqrt((double)s->d_model) * sqrt((double)s->warmup)
               : 1;
}

bool eg__trainer_defaults(eg_trainer_args *o)
{
    const eg_task *task = o->data->task;
    bool text = o->data->free_text;
    o->layers = trainer_integer(o->layers, text ? 3 : 2),
    o->d_model = trainer_integer(o->d_model, text ? 128 : 64),
    o->heads = trainer_integer(o->heads, 4);
    /* 4 d_model may overflow for a d_model out of range, which is refused below */
    o->width =
        trainer_integer(o->width, o->d_model > 0 && o->d_model <= SIZE_MOST ? 4 * o->d_model : 1),
    o->batch = trainer_integer(o->batch, text ? 32 : 64);
    o->steps = trainer_integer(o->steps, text ? 1500 : task && task->steps ? task->steps : 3000);
    o->context = eg__batches_context(o->data, o->context);
    o->leaves = trainer_integer(o->leaves, 16), o->smoothing = eg_option(o->smoothing, 0);
    o->diversity = eg_option(o->diversity, 0);
    o->evaluate = trainer_integer(o->evaluate, text ? 250 : o->early_stop ? 100 : 0);
    bool given = o->lr != 0;
    o->dropout = eg_option(o->dropout, 0),
    o->lr = eg_option(o->lr, text   ? 2e-3
                             : task ? eg_option(task->lr, 1e-3)
                                    : 1e-3);
    o->clip_norm = eg_option(o->clip_norm, 0), o->goal = eg_option(o->goal, text ? 0 : 0.99);
    schedule_defaults(o, task ? (int64_t)eg_option((double)task->warmup, 50) : 50);
    o->lr *= given ? 1 : noam_scale(o);
    return trainer_in_range(o) && trainer_network(o) && trainer_own(o) &&
           eg__recipe_sound(o->data->cx, o);
}
