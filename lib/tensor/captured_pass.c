/* captured_pass.c: several rows of a captured step that are computed element by element, in one
 * pass. Rows of one size that follow each other in the list, and whose operands lie in memory in
 * the same order, are computed strip by strip: the kernel of each row on one strip, then all of
 * them on the next strip. The kernels are the rows' own, so the bits are those of the step. A value
 * that no item outside the pass uses gets no place in the step's block: it is kept for one strip,
 * in a slot. Kernels, sizes and addresses are set before the first run. */
#include "tensor/capture.h"
#include <string.h>

enum { PASS_ROWS = 64, PASS_STRIP = 1024, PASS_GRAIN = 1 << 18 };

/* -- while the step is captured --------------------------------------------------------------- */
void eg__capture_lanes(const eg_tensor *y, const eg_lanes *l)
{
    eg__capture *p = y->cx->capture;
    p->lanes_of = p->lanes_of ? &y->cx->poison : y; /* a second call: forward() does more */
    p->lanes = *l;
}
eg_captured_lane *eg__capture_lane(eg__capture *p, const eg_tensor *y)
{
    const eg_tensor *x[4] = { y };
    eg_captured_lane row = { .l = p->lanes };
    for (int k = 0; k < y->count; k++) x[k + 1] = y->in[k];
    for (int k = 0; k <= y->count; k++) row.x[k] = x[k];
    row.n = eg__single_run(y->count + 1, x, row.step);
    if (row.n <= 0 || row.step[0] != row.l.width[0]) return NULL;
    eg_captured_lane *kept = eg__alloc_in(p->numbers, sizeof *kept);
    return kept ? memcpy(kept, &row, sizeof row) : NULL;
}

/* -- which rows are one pass ------------------------------------------------------------------ */
static eg_captured_numbers *pass_numbers(const eg__capture *p, const eg_tensor *x)
{
    return x->st->place ? &p->each[x->st->place - 1] : NULL;
}
/* True if row k can be computed in the same pass as items `first` … k − 1: of their results it
 * reads only the elements in the same positions. */
static bool pass_takes(const eg__capture *p, int64_t first, int64_t k)
{
    const eg_captured_lane *one = p->c->item[first].lane, *row = p->c->item[k].lane;
    if (!row || row->n != one->n || k - first >= PASS_ROWS) return false;
    for (int i = 1; i <= row->l.operands; i++) {
        const eg_tensor *x = row->x[i];
        const eg_captured_numbers *n = pass_numbers(p, x);
        if (n && n->first >= first &&
            (x->data != n->of->data || x->dtype != n->of->dtype || row->step[i] != row->l.width[i]))
            return false;
    }
    return true;
}
/* Gives a slot, in place of memory in the block, to each result that no item after the pass uses.
 * The other results need their memory from the pass's first row on: the first strip of the last row
 * is written before the second strip of the first row is computed, and must not overwrite what that
 * row reads. Returns the number of slots. */
static int pass_slots(eg__capture *p, int64_t first, int64_t rows)
{
    const int64_t last = first + rows - 1;
    int64_t until[PASS_ROWS];
    int slots = 0;
    for (int64_t k = first; k <= last; k++) {
        eg_captured_numbers *y = pass_numbers(p, p->c->item[k].lane->x[0]);
        if (rows > 1 && y->last <= last) {
            int s = 0;
            while (s < slots && until[s] >= k) s++;
            slots += s == slots;
            until[s] = y->last;
            y->slot = s + 1;
            y->bytes = 0;
        } else
            y->first = first;
    }
    return slots;
}
/* Makes one pass of `rows` items from `first` on. False after an error. */
static bool pass_make(eg__capture *p, int64_t first, int64_t rows)
{
    eg_captured_item *item = p->c->item;
    eg_captured_pass *s = eg__alloc_in(p->arena, sizeof *s + (size_t)rows * sizeof *s->row);
    if (!s) return false;
    *s = (eg_captured_pass){ .n = item[first].lane->n, .rows = (int)rows, .threads = 1 };
    int width = 1;
    for (int64_t k = 0; k < rows; k++) {
        s->row[k] = *item[first + k].lane;
        for (int i = 0; i <= s->row[k].l.operands; i++)
            if (s->row[k].l.width[i] > width) width = s->row[k].l.width[i];
    }
    const int slots = pass_slots(p, first, rows);
    s->strip = eg__min64(s->n, PASS_STRIP);
    s->each = eg__round_up(eg__round_up(s->strip, EG_LANES) * width, EG_ALIGN);
    s->share = s->each * slots;
    if (s->strip < s->n) s->threads = p->c->cx->threads;
    const size_t bytes = (size_t)(s->share * s->threads);
    s->slots = bytes ? eg__alloc_in(p->arena, bytes + EG_ALIGN) : NULL;
    if (bytes && !s->slots) return false;
    s->slots = (char *)(((uintptr_t)s->slots + EG_ALIGN - 1) & -(uintptr_t)EG_ALIGN);
    item[first].pass = s;
    for (int64_t k = 0; k < rows; k++) item[first + k].joined = k > 0;
    return true;
}
bool eg__captured_passes(eg__capture *p)
{
    eg_captured *c = p->c;
    for (int64_t k = 0, end; k < c->items; k = end) {
        end = k + 1;
        if (!c->item[k].lane) continue;
        while (end < c->items && pass_takes(p, k, end)) end++;
        /* a single long row gains nothing: its forward() divides it among threads */
        if ((end - k > 1 || c->item[k].lane->n <= PASS_STRIP) && !pass_make(p, k, end - k))
            return false;
    }
    int64_t n = 0;
    for (int64_t k = 0; k < c->items; k++)
        if (!c->item[k].joined) c->item[n++] = c->item[k];
    c->items = n;
    return true;
}
void eg__captured_pass_bind(const eg__capture *p, eg_captured_pass *s)
{
    for (int k = 0; k < s->rows; k++) {
        eg_captured_lane *row = &s->row[k];
        row->whole = row->l.exact || s->n % EG_LANES == 0;
        for (int i = 0; i <= row->l.operands; i++) {
            const eg_captured_numbers *n = pass_numbers(p, row->x[i]);
            const bool slot = n && n->slot;
            row->p[i] = slot ? s->slots + s->each * (n->slot - 1) : row->x[i]->data;
            row->move[i] = slot ? 0 : row->step[i];
            row->share[i] = slot ? s->share : 0;
            row->whole &= row->step[i] == row->l.width[i];
        }
    }
}

/* -- runs ------------------------------------------------------------------------------------- */
static void pass_strip(void *user, int64_t piece, int thread)
{
    const eg_captured_pass *s = user;
    const int64_t from = piece * s->strip, n = eg__min64(s->n - from, s->strip);
    for (int k = 0; k < s->rows; k++) {
        const eg_captured_lane *row = &s->row[k];
        char *q[4];
        for (int i = 0; i <= row->l.operands; i++)
            q[i] = row->p[i] + from * row->move[i] + thread * row->share[i];
        eg__lanes_inner(n, q, row->step, &row->l);
    }
}
void eg__captured_pass_run(eg_ctx *cx, eg_captured_pass *s)
{
    if (s->n > s->strip) {
        const int64_t strips = (s->n + s->strip - 1) / s->strip;
        const int team = eg__team(cx, s->n * s->rows, PASS_GRAIN);
        eg__parallel(cx, team < s->threads ? team : s->threads, strips, pass_strip, s);
        return;
    }
    for (const eg_captured_lane *row = s->row, *end = row + s->rows; row < end; row++) {
        if (row->whole)
            row->l.kernel(s->n, row->p, row->l.c);
        else
            eg__lanes_inner(s->n, row->p, row->step, &row->l);
    }
}
