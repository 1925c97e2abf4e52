/* capture.c: eg_capture records what a step computes, so that it can be computed again without the
 * calls that led to it.
 *
 * The step runs once as usual. For each operation that is applied, an item is appended to a list:
 * the operation's forward() and the header of its result. A function that writes to tensors and is
 * not an operation (eg_assign, a draw, an optimiser's update) is called an act, and is an item too.
 * Headers, attributes and saved values are in the arena of an owner and are kept. Results are in a
 * scope that is closed after the step; they then get addresses in one block (captured.c).
 *
 * Calls that could make a run differ from the recorded step are refused here: reading elements in
 * the program, and using a leaf whose elements come from the program. */
#include "tensor/capture.h"
#include <string.h>

/* -- lists ------------------------------------------------------------------------------------ */
/* Returns the list with memory for one more element; NULL after an error. */
static void *capture_reserve(eg__capture *p, void *list, int64_t n, int64_t *capacity, size_t each)
{
    if (n < *capacity) return list;
    const int64_t more = *capacity ? 2 * *capacity : 64;
    void *to = eg__alloc_in(p->numbers, (size_t)more * each);
    if (!to) return NULL;
    if (n) memcpy(to, list, (size_t)n * each);
    *capacity = more;
    return to;
}
static eg_captured_item *capture_item(eg__capture *p)
{
    eg_captured *c = p->c;
    eg_captured_item *list =
        capture_reserve(p, c->item, c->items, &p->item_capacity, sizeof *c->item);
    if (!list) return NULL;
    c->item = list;
    c->item[c->items] = (eg_captured_item){ .recording = c->cx->recording };
    return &c->item[c->items];
}

/* -- the tensors that items read and write ----------------------------------------------------- */
/* Records that each run needs x, unless the step made it. False after an error. */
static bool capture_outside(eg__capture *p, const eg_tensor *x)
{
    eg_captured *c = p->c;
    if (x->seq > p->seq_before) return true;
    for (int64_t k = c->outsides; k-- > 0;)
        if (c->outside[k].x == x) return true;
    eg_captured_outside *list =
        capture_reserve(p, c->outside, c->outsides, &p->outside_capacity, sizeof *c->outside);
    if (!list) return false;
    c->outside = list;
    c->outside[c->outsides++] = (eg_captured_outside){ x, x->seq };
    return true;
}
/* Records that the next item uses x, and the tensor of which x is a view. False after an error. */
static bool capture_uses(eg__capture *p, const eg_tensor *x)
{
    const eg_tensor *of = x->st->of;
    if (x->st->place) p->each[x->st->place - 1].last = p->c->items;
    return capture_outside(p, x) && (!of || of->cx != x->cx || capture_outside(p, of));
}
/* As capture_uses, for an operand. Also false, after an error, if x is a leaf whose elements a run
 * could not compute again. */
static bool capture_reads(eg__capture *p, const char *who, eg_tensor *x)
{
    if (x->st->made == EG_MADE_UNKNOWN)
        return eg_fail_as(x->cx, EG_ERROR_UNSUPPORTED,
                          "%s: not possible in a captured step: it has an operand whose elements a "
                          "run cannot compute again",
                          who),
               false;
    return capture_uses(p, x);
}
void eg__also_reads(eg_tensor *y, eg_tensor *x)
{
    eg__capture *p = y->cx->capture;
    if (p && y->cx->aside == 1) capture_uses(p, x);
}
void eg__made_once(eg_tensor *x)
{
    if (x && x->st->made == EG_MADE_UNKNOWN) x->st->made = EG_MADE_ONCE;
}
/* Records that the next item writes to `to`. If `to` is a leaf with the same elements in each run,
 * these are stored, and each run begins by copying them to it. False after an error. */
static bool capture_writes(eg__capture *p, eg_tensor *to)
{
    eg_storage *st = to->st;
    if (st->made == EG_MADE_ONCE) {
        const eg_tensor *of =
            (const eg_tensor *)(const void *)((char *)st - offsetof(eg_tensor, own));
        void *from = eg__alloc_in(p->arena, st->bytes);
        eg_captured_start *list =
            capture_reserve(p, p->c->start, p->c->starts, &p->start_capacity, sizeof *p->c->start);
        if (!from || !list) return false;
        p->c->start = list;
        list[p->c->starts++] =
            (eg_captured_start){ of->data, memcpy(from, of->data, st->bytes), st->bytes };
    }
    if (st->made != EG_MADE_BEFORE) st->made = EG_MADE_EACH_RUN;
    return capture_uses(p, to);
}

/* -- operations -------------------------------------------------------------------------------- */
char *eg__capture_storage(eg_tensor *y)
{
    eg_ctx *cx = y->cx;
    eg__capture *p = cx->capture;
    eg_captured_numbers *list =
        capture_reserve(p, p->each, p->count, &p->count_capacity, sizeof *p->each);
    if (!list) return NULL;
    p->each = list;
    list[p->count++] = (eg_captured_numbers){
        .of = y, .bytes = (int64_t)y->own.bytes, .first = p->c->items, .last = p->c->items
    };
    y->own.place = (uint32_t)p->count;
    y->own.made = EG_MADE_EACH_RUN;
    return eg__alloc_in(p->numbers, y->own.bytes);
}
/* Returns a chunk in memory of the arena; NULL after an error. */
static eg__chunk *capture_chunk(eg__capture *p, size_t bytes)
{
    char *memory = eg__alloc_in(p->arena, EG_CHUNK_HEADER + bytes + EG_ALIGN);
    if (!memory) return NULL;
    eg__chunk *c = (eg__chunk *)(void *)memory;
    *c = (eg__chunk){ .cap = bytes };
    return c;
}
/* Runs forward() in the arena `work`, which has one chunk of `bytes` bytes and one of headers. Sets
 * *more to 0 or, if forward() took more, to a number of bytes that suffices. False after an error.
 */
static bool capture_in(eg__capture *p, eg_captured_item *i, eg__arena *work, size_t bytes,
                       uint64_t headers, size_t *more)
{
    eg_tensor *y = i->y;
    eg_ctx *cx = y->cx;
    eg__arena *outer = cx->top;
    eg__chunk *data = capture_chunk(p, bytes),
              *nodes = data && headers ? capture_chunk(p, headers * sizeof(eg_tensor)) : NULL;
    if (!data || (headers && !nodes)) return false;
    const size_t used = cx->use.used; /* includes the chunks */
    *work = (eg__arena){ .cx = cx,
                         .outer = outer,
                         .data = data,
                         .nodes = nodes,
                         .serial = ++cx->scopes,
                         .fixed = true };
    i->work = y->arena = cx->top = work;
    y->saved = i->saved;
    cx->aside++;
    cx->use.used -= bytes; /* forward() counts again what it takes of the chunk */
    if (i->draws) cx->draw = p->draw + i->drawn;
    const bool good = i->forward(y);
    if (i->draws) cx->draw = p->draw + i->drawn + i->draws;
    cx->aside--;
    cx->top = outer;
    *more = work->nodes != nodes ? SIZE_MAX : 0;
    const size_t overflow = eg__arena_keep_chunk(work, data);
    cx->use.used = used;
    if (!*more) *more = overflow;
    return good && !cx->failed;
}
/* Runs forward() again in a separate arena that has the memory that forward() takes. Each run fills
 * this arena from its start, so that saved values have the same addresses in every run. `bytes` is
 * what forward() took in the arena of the step, where elements at the start of a chunk take no
 * bytes to be aligned. If that is too little here, forward() runs once more in a larger arena.
 * False after an error. */
static bool capture_again(eg__capture *p, eg_captured_item *i, size_t bytes, uint64_t headers)
{
    eg_ctx *cx = p->c->cx;
    eg__arena *work = eg__alloc_in(p->arena, sizeof *work);
    size_t more = 0;
    if (!work || !capture_in(p, i, work, bytes + 4 * EG_ALIGN, headers, &more)) return false;
    if (more && more < SIZE_MAX && !capture_in(p, i, work, more, headers, &more)) return false;
    if (more)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "%s: not possible in a captured step: it takes more memory in each run",
                   i->y->op->name);
    return !more;
}
/* True if key points to the seed and number of a draw that this step has made. */
static bool capture_draws(const eg__capture *p, const void *key)
{
    uint64_t draw[2];
    memcpy(draw, key, sizeof draw);
    return draw[0] == p->c->cx->seed && draw[1] >= p->draw;
}
/* Computes y, whose shape and storage are known, and appends its operation to the list. False after
 * an error. */
bool eg__capture_op(eg_tensor *y, bool (*forward)(eg_tensor *))
{
    eg_ctx *cx = y->cx;
    eg__capture *p = cx->capture;
    const eg_op *op = y->op;
    for (int k = 0; k < y->count; k++)
        if (!capture_reads(p, op->name, y->in[k])) return false;
    eg_captured_item *i = capture_item(p);
    if (!i) return false;
    i->forward = forward;
    i->y = y;
    i->saved = y->saved;
    i->op = op;
    i->count = y->count;
    if (op->draws && capture_draws(p, (const char *)y->attr + op->draws - 1)) {
        char *attr = eg__alloc(cx, y->attr_size);
        if (!attr) return false;
        y->attr = memcpy(attr, y->attr, y->attr_size);
        i->draw = (uint64_t *)(void *)(attr + op->draws - 1);
        i->drawn = i->draw[1] - p->draw;
    }
    const size_t used = cx->use.used;
    const uint64_t seq = cx->seq, draw = cx->draw;
    p->lanes_of = NULL;
    cx->aside++;
    bool good = forward(y);
    cx->aside--;
    if (cx->draw != draw) {
        i->drawn = draw - p->draw;
        i->draws = cx->draw - draw;
    }
    if (good && p->lanes_of == y && !i->draw) i->lane = eg__capture_lane(p, y);
    good = good && !cx->failed;
    if (good && (cx->use.used != used || cx->seq != seq))
        good = capture_again(p, i, cx->use.used - used, cx->seq - seq);
    cx->aside++;
    /* forward() of copies saves more than one memory: each run saves it again */
    if (good && op->snapshot && !y->saved_each) good = (i->saved = op->snapshot(y)) != NULL;
    cx->aside--;
    p->c->items += good;
    return good;
}

/* -- acts ------------------------------------------------------------------------------------- */
/* Returns a header of x that belongs to the step, without history; NULL after an error. */
static eg_tensor *capture_header(eg_tensor *x)
{
    return x ? eg__alias(x, x->rank, x->dim, x->stride, 0) : NULL;
}
/* While a step is captured, the act becomes an item with copies of `arg` and of the headers, which
 * each run uses. */
bool eg__act(eg_ctx *cx, eg_act *act, eg_tensor *to, int count, eg_tensor *const *x, void *arg,
             size_t bytes, size_t draws)
{
    eg__capture *p = cx->capture;
    cx->acts += to != NULL;
    if (!eg__capturing(cx)) return act(cx, to, count, x, arg);
    char *kept = eg__alloc(cx, bytes ? bytes : 1);
    eg_tensor **own = kept ? eg__alloc(cx, (size_t)(count ? count : 1) * sizeof *own) : NULL;
    if (!own) return false;
    for (int k = 0; k < count; k++) {
        if (x[k] && !capture_reads(p, "a call that is no operation", x[k])) return false;
        if (!(own[k] = capture_header(x[k])) && x[k]) return false;
    }
    eg_tensor *target = capture_header(to);
    if (to && (!target || !capture_writes(p, to))) return false;
    eg_captured_item *i = capture_item(p);
    if (!i) return false;
    if (bytes) memcpy(kept, arg, bytes);
    i->act = act;
    i->y = target;
    i->x = own;
    i->count = count;
    i->arg = kept;
    if (draws) {
        i->draw = (uint64_t *)(void *)(kept + draws - 1);
        i->drawn = i->draw[1] - p->draw;
    }
    const uint64_t draw = cx->draw;
    cx->aside++;
    const bool good = act(cx, to, count, x, arg);
    cx->aside--;
    if (cx->draw != draw && !i->draw) { /* a function of the program draws */
        i->drawn = draw - p->draw;
        i->draws = cx->draw - draw;
    }
    p->c->items += good;
    return good;
}

/* What a gradient reads of a graph that was recorded before the step. */
typedef struct history {
    uint64_t version;
    char what[160];
} history;
static bool act_history(eg_ctx *cx, eg_tensor *to, int count, eg_tensor *const *x, void *arg)
{
    (void)to, (void)count;
    const history *h = arg;
    if (x[0]->st->version == h->version) return true;
    eg__fail_because(
        cx, EG_CAUSE_CHANGED, EG_ERROR_MISUSE,
        "captured_run: %s was changed in place, and the gradient in the step needs its old "
        "value; compute the forward pass inside the step, too",
        h->what);
    return false;
}
bool eg__captured_before(const eg_ctx *cx, const eg_tensor *t)
{
    return t->cx != cx || t->seq <= cx->capture->seq_before;
}
bool eg__capture_history(eg_ctx *cx, eg_tensor *x, uint64_t had, const char *what)
{
    history h = { .version = had };
    snprintf(h.what, sizeof h.what, "%s", what);
    return eg__act(cx, act_history, NULL, 1, &x, &h, sizeof h, 0);
}

/* The function that a program gave to eg_host_call, followed by a copy of its arguments. */
typedef struct host_call {
    eg_host_function *f;
    _Alignas(16) char args[];
} host_call;
static bool act_host(eg_ctx *cx, eg_tensor *to, int count, eg_tensor *const *x, void *arg)
{
    (void)to;
    host_call *h = arg;
    const eg_switches was = eg_switches_of(cx);
    const eg_mark m = eg_push(cx);
    const bool good = m.scope && !h->f(h->args, count, x);
    eg_pop(cx, m);
    eg_switches_restore(cx, was);
    if (!good && !cx->failed)
        eg_fail_as(cx, EG_ERROR_USER, "host_call: the function failed without recording an error");
    return good && !cx->failed;
}
/* Runs of a captured step repeat the call. */
int eg_host_call(eg_ctx *cx, eg_host_function *f, const void *args, size_t bytes, int count,
                 eg_tensor *const *x)
{
    cx = eg__here(cx);
    if (eg__failed(cx)) return -1;
    if (!f || (bytes && !args) || count < 0 || (count && !x)) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "host_call: %s",
                   !f          ? "the function is NULL"
                   : count < 0 ? "the number of tensors is negative"
                               : "arguments are NULL");
        return -1;
    }
    for (int k = 0; k < count; k++)
        if (x[k] && !eg__check_usable("host_call", x[k])) return -1;
    host_call *h = eg__alloc(cx, sizeof *h + bytes);
    if (!h) return -1;
    h->f = f;
    if (bytes) memcpy(h->args, args, bytes);
    return eg__act(cx, act_host, NULL, count, x, h, sizeof *h + bytes, 0) ? 0 : -1;
}

/* -- the call --------------------------------------------------------------------------------- */
bool eg_capturing(const eg_ctx *cx) { return cx && eg__capturing(eg__here(cx)); }
int eg_refuse_capture(eg_ctx *cx, const char *who)
{
    cx = eg__here(cx);
    return cx && eg__capture_refuses(cx, who, "it does something that a run cannot repeat") ? -1
                                                                                            : 0;
}
/* Marks the outputs of the step, whose memory no other result may share. False after an error. */
static bool capture_outputs(eg__capture *p, int count, eg_tensor **out)
{
    eg_captured *c = p->c;
    for (int k = 0; k < count; k++) {
        eg_tensor *x = out[k];
        if (!x) return eg_fail_as(c->cx, EG_ERROR_MISUSE, "capture: output %d is NULL", k), false;
        if (x->cx != c->cx && x->cx != c->cx->parent)
            return eg_fail_as(c->cx, EG_ERROR_MISUSE,
                              "capture: output %d belongs to another context", k),
                   false;
        if (!eg__check_usable("capture: output", x)) return false;
        if (!capture_reads(p, "capture", x)) return false;
        c->output[k] = x->seq > p->seq_before ? capture_header(x) : x;
        if (!c->output[k]) return false;
        if (x->st->place) p->each[x->st->place - 1].last = INT64_MAX;
    }
    return true;
}
/* Runs the step while the context records it, then assigns addresses to its results. False after an
 * error. */
static bool capture_step(eg__capture *p, eg_step_function *f, void *user, int outputs)
{
    eg_ctx *cx = p->c->cx;
    eg_captured *c = p->c;
    eg__arena *arena = p->arena, *outer = cx->top;
    eg_tensor **out = c->output;
    arena->outer = outer;
    arena->serial = ++cx->scopes;
    cx->top = cx->receiver = arena;
    cx->capture = p;
    const eg_switches was = eg_switches_of(cx);
    if (f(user, out) && !cx->failed)
        eg_fail_as(cx, EG_ERROR_USER, "capture: the step failed without recording an error");
    eg_switches_restore(cx, was); /* items have recorded what they need of them */
    bool good = !cx->failed;
    if (good && cx->top != arena)
        good = !eg_fail_as(cx, EG_ERROR_MISUSE, "capture: the step left a scope open");
    good = good && capture_outputs(p, outputs, out);
    cx->aside++; /* what follows is not part of the step */
    c->draws = cx->draw - p->draw;
    good = good && eg__captured_lay_out(p);
    cx->aside--;
    eg__arena *left = cx->top; /* scopes that the step did not close, after an error */
    while (left != arena && left->outer != arena) left = left->outer;
    if (left != arena) eg_pop(cx, (eg_mark){ left, left->serial });
    cx->capture = NULL;
    cx->receiver = NULL;
    cx->top = outer;
    arena->outer = NULL;
    return good;
}
/* The owner that holds the captured step is closed again after an error. */
eg_captured *eg__captured_make(eg_ctx *cx, eg_step_function *f, void *user, int outputs)
{
    const size_t used = cx->use.used;
    eg_owner *owner = eg_owner_open(cx);
    eg_captured *c = owner ? eg__handle(owner, sizeof *c) : NULL;
    const eg_mark m = c ? eg_push(cx) : (eg_mark){ NULL, 0 };
    bool good = m.scope != NULL;
    if (good) {
        eg__capture p = { .c = c,
                          .numbers = cx->top,
                          .arena = eg__owner_arena(owner),
                          .seq_before = cx->seq,
                          .draw = cx->draw };
        c->outputs = outputs;
        c->training = cx->training;
        c->output = eg_owner_alloc(owner, (size_t)(outputs ? outputs : 1) * sizeof *c->output);
        good = c->output && capture_step(&p, f, user, outputs);
    }
    if (m.scope) eg_pop(cx, m);
    if (good) c->bytes = cx->use.used - used;
    if (!good && owner) eg_owner_close(owner);
    return good ? c : NULL;
}
eg_captured *eg_capture(eg_ctx *cx, eg_step_function *f, void *user, int outputs)
{
    cx = eg__here(cx);
    if (eg__failed(cx)) return NULL;
    if (!f || outputs < 0 || cx->capture || cx->replaying || cx->probe || cx->parent) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "capture: %s",
                   !f            ? "the step is NULL"
                   : outputs < 0 ? "the number of outputs is negative"
                   : cx->probe   ? "inside a gradient check"
                   : cx->parent  ? "inside a block of eg_grad_over"
                                 : "inside of a captured step");
        return NULL;
    }
    return eg__captured_make(cx, f, user, outputs);
}
