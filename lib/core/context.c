/* context.c: opening and closing a context; its switches, draws and counters; options of calls. */
#include "core/arena.h"
#include <string.h>

/* -- opening and closing ---------------------------------------------------------------------- */
/* Checks the options, then makes a context in one block of the given allocator. NULL after an
 * error, which is kept for the thread since there is no context that could record it. */
eg_ctx *eg__context_open(const eg_open_args *given)
{
    eg_open_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg_clear(NULL); /* so that eg_error(NULL) reports this call */
    if (o.dtype != EG_DEFAULT && o.dtype != EG_F32 && o.dtype != EG_F64) {
        eg_fail_as(NULL, EG_ERROR_DTYPE, "open: .dtype is %s, not f32 or f64",
                   eg_type_name(o.dtype));
        return NULL;
    }
    if (o.threads < 0) {
        eg_fail_as(NULL, EG_ERROR_MISUSE, "open: .threads is %d", o.threads);
        return NULL;
    }
    if (!o.realloc) o.realloc = eg__plain_realloc;
    eg_ctx *cx = o.realloc(o.user, NULL, 0, sizeof *cx);
    if (!cx) {
        eg_fail_as(NULL, EG_ERROR_MEMORY, "out of memory: no room for a context");
        return NULL;
    }
    *cx = (eg_ctx){
        .realloc = o.realloc,
        .user = o.user,
        .seed = o.seed,
        .training = true,
        .recording = true,
        .flush = o.flush,
        .dtype = o.dtype ? o.dtype : EG_F32,
        .threads = o.threads ? o.threads : eg__cores(),
        .poison = { .live = EG_LIVE, .poison = true, .dtype = EG_F32 },
    };
    cx->poison.cx = cx;
    cx->poison.st = &cx->poison.own;
    cx->poison.dim = cx->poison.stride = cx->no_dims;
    cx->root = (eg__arena){ .cx = cx };
    cx->top = &cx->root;
    eg__text(&cx->text, &cx->text_size);
    cx->use = (eg_usage){ .mallocs = 1, .bytes = sizeof *cx, .peak = sizeof *cx };
    return cx;
}

void eg_close(eg_ctx *cx)
{
    if (!cx) return;
    if (cx->parent && cx->family) { /* a child is closed with its parent */
        eg_fail_as(cx, EG_ERROR_MISUSE, "close: the context of a block is closed by its call");
        return;
    }
    /* block.to of a context that is no child: inside eg_block_call */
    if (eg__here(cx) != cx || (cx->block.to && !cx->parent)) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "close: the context waits for its blocks, and stays open");
        return;
    }
    eg__children_close(cx);
    eg__team_close(cx);
    while (cx->top != &cx->root) eg_pop(cx, (eg_mark){ cx->top, cx->top->serial });
    eg__arena_release(&cx->root);
    eg__arenas_end(cx);
    cx->realloc(cx->user, cx, sizeof *cx, 0);
}

void eg__temporary_open(eg_ctx *cx)
{
    /* all members before no_dims; the last ones include the poison tensor and the message */
    memset(cx, 0, offsetof(eg_ctx, no_dims));
    cx->realloc = eg__plain_realloc;
    cx->dtype = EG_F32;
    cx->threads = 1;
    cx->root.cx = cx;
    cx->top = &cx->root;
}
void eg__temporary_close(eg_ctx *cx)
{
    eg__arena_release(&cx->root);
    eg__arenas_end(cx);
}

/* -- switches and counters -------------------------------------------------------------------- */
void eg_seed(eg_ctx *cx, uint64_t seed)
{
    cx = eg__here(cx);
    if (!cx) return;
    if (cx->block.to)
        eg_fail_as(cx, EG_ERROR_MISUSE, "seed: inside a block, which has a seed of its own");
    else if (!eg__capture_refuses(cx, "seed", "its draws use the seed of the context")) {
        cx->seed = seed;
        cx->draw = 0;
    }
}
uint64_t eg_seed_of(const eg_ctx *cx) { return cx ? eg__here(cx)->seed : 0; }
uint64_t eg_draws(const eg_ctx *cx) { return cx ? eg__here(cx)->draw : 0; }
void eg_set_draws(eg_ctx *cx, uint64_t draw)
{
    cx = eg__here(cx);
    if (cx && !eg__capture_refuses(cx, "set_draws", "its draws continue those of the context"))
        cx->draw = draw;
}
uint64_t eg__draw(eg_ctx *cx) { return eg__here(cx)->draw++; }
uint64_t eg__seed_of(const eg_ctx *cx) { return eg__here(cx)->seed; }
eg_dtype eg_default_type(const eg_ctx *cx) { return cx ? eg__here(cx)->dtype : EG_F32; }
eg_dtype eg_set_default_type(eg_ctx *cx, eg_dtype dtype)
{
    const eg_dtype was = eg_default_type(cx);
    if (!(cx = eg__here(cx))) return was;
    if (dtype == EG_F32 || dtype == EG_F64)
        cx->dtype = dtype;
    else
        eg_fail_as(cx, EG_ERROR_DTYPE, "set_default_type: the dtype is %s, not f32 or f64",
                   eg_type_name(dtype));
    return was;
}
void eg_train(eg_ctx *cx)
{
    cx = eg__here(cx);
    if (cx) cx->training = true;
}
void eg_eval(eg_ctx *cx)
{
    cx = eg__here(cx);
    if (cx) cx->training = false;
}
bool eg_training(const eg_ctx *cx) { return cx && eg__here(cx)->training; }
bool eg_nograd(eg_ctx *cx, bool on)
{
    cx = eg__here(cx);
    if (!cx) return false;
    bool old = !cx->recording;
    cx->recording = !on;
    return old;
}
bool eg_flush(eg_ctx *cx, bool on)
{
    cx = eg__here(cx);
    if (!cx) return false;
    bool old = cx->flush;
    cx->flush = on;
    return old;
}
bool eg_flushes(const eg_ctx *cx) { return cx && eg__here(cx)->flush; }
uint64_t eg_flush_begin(const eg_ctx *cx) { return eg__fpmode_begin(eg_flushes(cx)); }
void eg_flush_end(uint64_t begun) { eg__fpmode_end(begun); }
eg_switches eg_switches_of(const eg_ctx *cx)
{
    cx = eg__here(cx);
    return cx ? eg__switches_in(cx) : (eg_switches){ .on = 0 };
}
const char *eg_switches_restore(eg_ctx *cx, eg_switches was)
{
    if (!(cx = eg__here(cx))) return NULL;
    const bool training = cx->training, recording = cx->recording, flush = cx->flush;
    const eg_switches now = eg__switches_in(cx);
    cx->switches = (uint32_t)was.on;
    cx->hooks.result = (bool (*)(const eg_tensor *))was.trace;
    return training != cx->training     ? training ? "eg_train" : "eg_eval"
           : recording != cx->recording ? "eg_nograd"
           : flush != cx->flush         ? "eg_flush"
           : now.trace != was.trace     ? "eg_trace"
                                        : NULL;
}
bool eg__switches_kept(eg_ctx *cx, eg_switches was, const char *who, const char *where)
{
    const char *changed = eg_switches_restore(cx, was);
    if (changed)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: %s was called in %s and not undone", who, changed,
                   where);
    return !cx->failed;
}
bool eg__recording(const eg_ctx *cx) { return eg__here(cx)->recording; }
int eg_threads(eg_ctx *cx, int threads)
{
    cx = eg__here(cx);
    if (!cx) return 1;
    if (threads < 0)
        eg_fail_as(cx, EG_ERROR_MISUSE, "threads: %d is not a number of threads", threads);
    else if (threads > 0 && cx->parent)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "threads: a block runs on the threads of the context that waits for it");
    else if (threads > 0)
        cx->threads = threads;
    return cx->threads;
}
eg_usage eg_stats(const eg_ctx *cx)
{
    cx = eg__here(cx);
    eg_usage u = cx ? cx->use : (eg_usage){ 0 };
    eg__note_peak(&u);
    if (cx && !cx->parent) eg__children_usage(cx, &u);
    return u;
}
void eg_stats_reset(eg_ctx *cx)
{
    if (!(cx = eg__here(cx))) return;
    cx->use.used_peak = cx->use.used;
    if (!cx->parent) eg__children_reset(cx);
}
const char *eg_type_name(eg_dtype t)
{
    static const char *const name[] = { "default", "f32", "f64",  "i32", "i64", "bool",
                                        "c128",    "f16", "bf16", "i8",  "u8" };
    return (unsigned)t < EG_DTYPES ? name[t] : "unknown";
}
const char *eg_version(void) { return EG_VERSION; }

/* -- options ---------------------------------------------------------------------------------- */
double eg_option(double given, double otherwise)
{
    return given == 0 ? otherwise : given == EG_OFF ? 0 : given;
}
void eg_options(void *own, size_t size, const void *given)
{
    size_t have;
    if (!own || !given) return;
    memcpy(&have, given, sizeof have);
    memcpy(own, given, have && have < size ? have : size);
    memcpy(own, &size, sizeof size);
}
