/* captured.c: assigns addresses to the results of a captured step, and runs the step. A run calls
 * forward() of each operation on the recorded headers, in the recorded order. It looks up no plan,
 * makes no header and records no tape. */
#include "tensor/capture.h"
#include <string.h>

/* -- memory ----------------------------------------------------------------------------------- */
/* True if a gets its address before b: larger results come first, of equal sizes the earlier
 * one. */
static bool captured_before(const eg_captured_numbers *a, const eg_captured_numbers *b)
{
    return a->bytes != b->bytes ? a->bytes > b->bytes : a->first < b->first;
}
/* Sorts the order in which addresses are assigned: Shell's sort, which allocates nothing. */
static void captured_sort(int64_t n, int64_t *order, const eg_captured_numbers *each)
{
    for (int64_t gap = n / 2; gap > 0; gap /= 2)
        for (int64_t k = gap; k < n; k++) {
            const int64_t moved = order[k];
            int64_t at = k;
            for (; at >= gap && captured_before(&each[moved], &each[order[at - gap]]); at -= gap)
                order[at] = order[at - gap];
            order[at] = moved;
        }
}
/* Assigns an offset to each result, so that results that are in use at the same time do not
 * overlap: the largest result first, each at the lowest offset that is free. Returns the bytes of
 * the block; −1 after an error. */
static int64_t captured_offsets(eg__capture *p)
{
    const size_t n = (size_t)p->count;
    int64_t *order = eg__alloc_in(p->numbers, (n + 1) * sizeof *order), size = 0;
    eg__byte_range *taken = eg__alloc_in(p->numbers, (n + 1) * sizeof *taken);
    if (!order || !taken) return -1;
    for (int64_t k = 0; k < p->count; k++) order[k] = k;
    captured_sort(p->count, order, p->each);
    for (int64_t k = 0; k < p->count; k++) {
        eg_captured_numbers *b = &p->each[order[k]];
        int64_t others = 0;
        for (int64_t j = 0; j < k; j++) {
            const eg_captured_numbers *a = &p->each[order[j]];
            if (a->first <= b->last && b->first <= a->last)
                taken[others++] =
                    (eg__byte_range){ a->at, a->at + eg__round_up(a->bytes, EG_ALIGN) };
        }
        b->at = eg__gap(eg__round_up(b->bytes, EG_ALIGN), others, taken);
        if (b->at + b->bytes > size) size = b->at + b->bytes;
    }
    return size;
}
/* Sets the address of every header in the arena to that of its elements in the block. */
static void captured_move(eg__capture *p, char *block)
{
    for (eg__chunk *h = p->arena->nodes; h; h = h->next)
        for (size_t at = h->from; at < h->used; at += sizeof(eg_tensor)) {
            eg_tensor *t = (eg_tensor *)(void *)(eg__chunk_memory(h) + at);
            t->live = EG_LIVE;
            t->captured = true;
            if (!t->st || !t->st->place || t->st == &t->own) continue;
            const eg_captured_numbers *n = &p->each[t->st->place - 1];
            t->data = block + n->at + (t->data - n->of->data);
        }
    for (int64_t k = 0; k < p->count; k++) {
        eg_captured_numbers *n = &p->each[k];
        char *to = block + n->at;
        if (n->last == INT64_MAX && n->bytes) memcpy(to, n->of->data, (size_t)n->bytes);
        n->of->data = to;
    }
}
/* Removes the marks of the capture from the storages, so that another captured step may use the
 * outputs. */
static void captured_clear_marks(const eg__capture *p)
{
    for (eg__chunk *h = p->arena->nodes; h; h = h->next)
        for (size_t at = h->from; at < h->used; at += sizeof(eg_tensor)) {
            eg_tensor *t = (eg_tensor *)(void *)(eg__chunk_memory(h) + at);
            t->own.place = 0;
            t->own.made = EG_MADE_BEFORE;
        }
}
/* Copies a list into the arena. False after an error. */
static bool captured_keep(eg__capture *p, void *list, int64_t n, size_t each)
{
    void *from = *(void **)list;
    void *to = eg__alloc_in(p->arena, (size_t)n * each + 1);
    if (to && n) memcpy(to, from, (size_t)n * each);
    *(void **)list = to;
    return to;
}
/* Lists are copied from the scope of the capture to the owner's arena, since the scope ends. */
bool eg__captured_lay_out(eg__capture *p)
{
    eg_captured *c = p->c;
    c->steps = c->items;
    const int64_t bytes = eg__captured_passes(p) ? captured_offsets(p) : -1;
    char *block = bytes < 0 ? NULL : eg__alloc_in(p->arena, (size_t)bytes + EG_ALIGN);
    if (!block || !captured_keep(p, &c->item, c->items, sizeof *c->item) ||
        !captured_keep(p, &c->start, c->starts, sizeof *c->start) ||
        !captured_keep(p, &c->outside, c->outsides, sizeof *c->outside))
        return false;
    captured_move(p, (char *)(((uintptr_t)block + EG_ALIGN - 1) & -(uintptr_t)EG_ALIGN));
    for (int64_t k = 0; k < c->items; k++) {
        eg_captured_item *i = &c->item[k];
        i->lane = NULL; /* it is in memory of the scope, which ends with the capture */
        if (i->pass) eg__captured_pass_bind(p, i->pass);
        if (!i->forward) continue;
        /* the references to the operation were removed if the header was made without recording */
        i->y->op = i->op;
        i->y->count = i->count;
    }
    for (int k = 0; k < c->outputs; k++)
        if (c->output[k]->seq > p->seq_before) c->output[k]->captured = false;
    captured_clear_marks(p);
    return true;
}

/* -- runs ------------------------------------------------------------------------------------- */
/* True if the step can run now; else records an error. */
static bool captured_ready(const eg_captured *c)
{
    eg_ctx *cx = c->cx;
    if (cx->failed || !eg__handle_lives(c, "captured_run", "captured step")) return false;
    if (cx != eg__here(cx) || cx->capture || cx->replaying || cx->probe)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "captured_run: inside %s",
                          cx->probe            ? "a gradient check"
                          : cx != eg__here(cx) ? "a block of eg_grad_over"
                                               : "a captured step"),
               false;
    if (cx->training != c->training) /* dropout would still be applied, or not yet */
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "captured_run: the step was captured under %s, but the context is now "
                          "under %s, which changes dropout",
                          c->training ? "eg_train" : "eg_eval",
                          c->training ? "eg_eval" : "eg_train"),
               false;
    for (int64_t k = 0; k < c->outsides; k++)
        if (c->outside[k].x->live != EG_LIVE || c->outside[k].x->seq != c->outside[k].seq)
            return eg_fail_as(cx, EG_ERROR_MISUSE,
                              "captured_run: a tensor that the step reads or writes no longer "
                              "exists: its scope or owner was closed"),
                   false;
    return true;
}
/* Runs the operation of an item; its memory is that of the item's own arena, from its start. */
static bool captured_op(eg_ctx *cx, const eg_captured_item *i)
{
    eg__arena *outer = cx->top;
    const size_t used = cx->use.used;
    i->y->saved = i->saved;
    if (!i->work) return i->forward(i->y);
    i->work->data->used = 0;
    if (i->work->nodes) i->work->nodes->used = 0;
    i->work->outer = outer;
    cx->top = i->work;
    cx->use.used -= i->work->data->cap; /* forward() counts again what it takes of the chunk */
    const bool good = i->forward(i->y);
    cx->top = outer;
    cx->use.used = used;
    return good;
}
/* Calls the watch if it waits for items up to k. False after an error. */
static bool captured_notify(eg_captured *c, int64_t k)
{
    eg_captured_watch *w = c->watch;
    if (!w || !w->left || w->until[w->left - 1] > k) return true;
    while (w->left && w->until[w->left - 1] <= k) w->left--;
    w->f(w->user, w->left);
    return !c->cx->failed;
}
/* Runs one item. False after an error. */
static bool captured_item(eg_ctx *cx, const eg_captured_item *i, uint64_t draw)
{
    cx->recording = i->recording;
    if (i->draw) {
        i->draw[0] = cx->seed;
        i->draw[1] = draw + i->drawn;
    }
    if (i->pass)
        eg__captured_pass_run(cx, i->pass);
    else {
        const uint64_t after = cx->draw;
        if (i->draws) cx->draw = draw + i->drawn;
        const bool good =
            i->forward ? captured_op(cx, i) : i->act(cx, i->y, i->count, i->x, i->arg);
        if (i->draws || i->forward) cx->draw = after;
        if (i->forward || !good) return good;
    }
    if (!i->forward && i->y) i->y->st->version++;
    return true;
}
/* Runs the items in order. False after an error; c->failed is then the item. */
static bool captured_items(eg_captured *c, uint64_t draw)
{
    if (!captured_notify(c, -1)) return false;
    for (int64_t k = 0; k < c->items; k++)
        if (!captured_item(c->cx, &c->item[k], draw) || !captured_notify(c, k)) {
            c->failed = k;
            return false;
        }
    c->failed = c->items;
    return true;
}
int eg_captured_run(eg_captured *c) { return eg__captured_run(c, NULL); }
/* Restores the leaves that are written to, then runs the items with the draws that follow the
 * context's last one. */
int eg__captured_run(eg_captured *c, eg_captured_watch *watch)
{
    if (!c) {
        eg_fail_as(NULL, EG_ERROR_MISUSE, "captured_run: the step is NULL");
        return -1;
    }
    eg_ctx *cx = c->cx;
    c->failed = -1;
    if (!captured_ready(c)) return -1;
    const bool recording = cx->recording;
    const uint64_t draw = cx->draw, begun = eg__fpmode_begin(cx->flush);
    cx->replaying = true;
    c->watch = watch;
    cx->draw += c->draws;
    for (int64_t k = 0; k < c->starts; k++)
        memcpy(c->start[k].to, c->start[k].from, c->start[k].bytes);
    const bool good = captured_items(c, draw);
    for (int k = 0; k < c->outputs; k++) c->output[k]->st->version++;
    cx->replaying = false;
    c->watch = NULL;
    cx->recording = recording;
    eg__fpmode_end(begun);
    return good && !cx->failed ? 0 : -1;
}
static bool captured_nothing(eg_tensor *y) { return y != NULL; }
static void captured_no_lanes(int64_t n, char *const *p, const double *c)
{
    (void)n, (void)p, (void)c;
}
static bool captured_no_act(eg_ctx *cx, eg_tensor *to, int count, eg_tensor *const *x, void *arg)
{
    (void)to, (void)count, (void)x, (void)arg;
    return cx != NULL;
}
int64_t eg__captured_without_kernels(eg_captured *c, int64_t *items)
{
    for (int64_t k = 0; k < c->items; k++) {
        eg_captured_item *i = &c->item[k];
        for (int r = 0; i->pass && r < i->pass->rows; r++)
            i->pass->row[r].l.kernel = captured_no_lanes;
        if (i->forward)
            i->forward = captured_nothing;
        else
            i->act = captured_no_act;
    }
    *items = c->items;
    return c->steps;
}
bool eg__captured_wrote(const eg_captured *c, const eg_tensor *x)
{
    for (int64_t k = 0; k <= c->failed && k < c->items; k++) {
        const eg_captured_item *i = &c->item[k];
        if (!i->forward && i->y && i->y->st == x->st) return true;
    }
    return false;
}
int64_t eg__captured_last(const eg_captured *c, const eg_tensor *x)
{
    int64_t k = c->items;
    while (k-- > 0)
        if (!c->item[k].forward && c->item[k].y && c->item[k].y->st == x->st) break;
    return k;
}
/* Stores the headers of acts that use x's storage in to[] unless `to` is NULL, and returns their
 * number. */
static int64_t captured_find(const eg_captured *c, const eg_tensor *x, eg_tensor **to)
{
    int64_t n = 0;
    for (const eg_captured_item *i = c->item, *end = i + c->items; i < end; i++) {
        if (i->forward) continue;
        for (int k = -1; k < i->count; k++) {
            eg_tensor *t = k < 0 ? i->y : i->x[k];
            if (!t || t->st != x->st) continue;
            if (to) to[n] = t;
            n++;
        }
    }
    return n;
}
eg_tensor **eg__captured_headers(eg_captured *c, const eg_tensor *x, int64_t *count)
{
    eg_tensor **to = NULL;
    int64_t n = captured_find(c, x, NULL);
    if (!(to = eg_owner_alloc(c->owner, (size_t)(n + 1) * sizeof *to))) return NULL;
    *count = captured_find(c, x, to);
    return to;
}
size_t eg_captured_bytes(const eg_captured *c) { return c && c->owner ? c->bytes : 0; }
eg_tensor *eg_captured_output(const eg_captured *c, int k)
{
    if (!c || !eg__handle_lives(c, "captured_output", "captured step")) return NULL;
    if (k >= 0 && k < c->outputs) return c->output[k];
    return eg_fail_as(c->cx, EG_ERROR_INDEX,
                      "captured_output: there is no output %d; the step has %d, counted from 0", k,
                      c->outputs);
}
void eg_captured_free(eg_captured *c)
{
    if (c && eg__handle_lives(c, "captured_free", "captured step")) eg_owner_close(c->owner);
}
