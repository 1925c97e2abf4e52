/* ranks.c: a group of ranks: opening it, exchanging and counting messages, and agreeing. */
#include "ranks/ranks.h"
#include "autograd/autograd.h"
#include <eingrad/ops.h>
#include <string.h>

enum { ROW = 2048 }; /* most bytes that a rank sends in a barrier and in eg_ranks_agree */

/* -- messages ---------------------------------------------------------------------------------- */
int eg_ranks_rank(const eg_ranks *r) { return r ? r->table.rank : 0; }
int eg_ranks_count(const eg_ranks *r) { return r ? r->table.ranks : 1; }
eg_ctx *eg_ranks_context(const eg_ranks *r) { return r ? r->cx : NULL; }
eg_traffic eg_ranks_traffic(const eg_ranks *r) { return r ? r->traffic : (eg_traffic){ 0 }; }

int eg__ranks_fail(eg_ranks *r, const char *sentence)
{
    if (!sentence) return 0;
    eg_fail_as(r->cx, EG_ERROR_FILE, "ranks: rank %d of %d: %s", r->table.rank, r->table.ranks,
               sentence);
    return -1;
}
/* Adds a message to the statistics. Ends of the exchange with rank −1, or without bytes, are left
 * out; false if nothing is sent or received. */
static bool traffic_counted(eg_ranks *r, int *to, size_t out_bytes, int *from, size_t in_bytes)
{
    if (!out_bytes) *to = -1;
    if (!in_bytes) *from = -1;
    r->traffic.sent += *to < 0 ? 0 : out_bytes;
    r->traffic.received += *from < 0 ? 0 : in_bytes;
    r->traffic.messages += *to >= 0;
    return *to >= 0 || *from >= 0;
}
const char *eg__ranks_exchanged(eg_ranks *r, int to, const void *out, size_t out_bytes, int from,
                                void *in, size_t in_bytes)
{
    const int me = r->table.rank;
    if (to == me && from == me) {
        if (out_bytes != in_bytes) return "a message to itself has another length than expected";
        if (in_bytes) memmove(in, out, in_bytes);
        return NULL;
    }
    if (!traffic_counted(r, &to, out_bytes, &from, in_bytes)) return NULL;
    return r->table.exchange(r->table.user, to, out, out_bytes, from, in, in_bytes);
}
bool eg__ranks_starts(const eg_ranks *r) { return r->table.start && r->table.finish; }
const char *eg__ranks_started(eg_ranks *r, int to, const void *out, size_t out_bytes, int from,
                              void *in, size_t in_bytes)
{
    traffic_counted(r, &to, out_bytes, &from, in_bytes);
    return r->table.start(r->table.user, to, out, out_bytes, from, in, in_bytes);
}
const char *eg__ranks_finished(eg_ranks *r) { return r->table.finish(r->table.user); }
int eg__ranks_null(eg_ranks *r, const char *who, const char *what)
{
    eg_fail_as(r->cx, EG_ERROR_MISUSE, "ranks: %s: %s NULL", who, what);
    return -1;
}
int eg_ranks_exchange(eg_ranks *r, int to, const void *out, size_t out_bytes, int from, void *in,
                      size_t in_bytes)
{
    if (!r || eg_error(r->cx)) return -1;
    if ((to >= 0 && out_bytes && !out) || (from >= 0 && in_bytes && !in))
        return eg__ranks_null(r, "exchange",
                              out || !out_bytes ? "the memory to receive in is"
                                                : "the bytes to send are");
    const int me = r->table.rank, ranks = r->table.ranks;
    if (to >= ranks || from >= ranks || (to != from && (to == me || from == me))) {
        eg_fail_as(r->cx, EG_ERROR_MISUSE,
                   "ranks: rank %d of %d cannot send to rank %d and receive from rank %d", me,
                   ranks, to, from);
        return -1;
    }
    return eg__ranks_fail(r, eg__ranks_exchanged(r, to, out, out_bytes, from, in, in_bytes));
}

/* Gathers by exchanges, for a table without a gather: in round k each rank sends to the rank k
 * above it and receives from the rank k below. */
static const char *counted_gather(eg_ranks *r, const void *mine, size_t bytes, void *all)
{
    const int me = r->table.rank, ranks = r->table.ranks;
    if (!bytes) return NULL;
    if (ranks > 1 && r->table.gather) {
        r->traffic.sent += bytes * (size_t)(ranks - 1);
        r->traffic.received += bytes * (size_t)(ranks - 1);
        r->traffic.messages += (size_t)(ranks - 1);
        return r->table.gather(r->table.user, mine, bytes, all);
    }
    memmove((char *)all + (size_t)me * bytes, mine, bytes);
    const char *bad = NULL;
    for (int k = 1; k < ranks && !bad; k++) {
        const int from = (me - k + ranks) % ranks;
        bad = eg__ranks_exchanged(r, (me + k) % ranks, (const char *)all + (size_t)me * bytes,
                                  bytes, from, (char *)all + (size_t)from * bytes, bytes);
    }
    return bad;
}
int eg__ranks_gather(eg_ranks *r, const void *mine, size_t bytes, void *all)
{
    return eg__ranks_fail(r, counted_gather(r, mine, bytes, all));
}
int eg_ranks_gather(eg_ranks *r, const void *mine, size_t bytes, void *all)
{
    if (!r || eg_error(r->cx)) return -1;
    if (bytes && (!mine || !all))
        return eg__ranks_null(r, "gather",
                              mine ? "the memory for all ranks is" : "the bytes of this rank are");
    return eg__ranks_gather(r, mine, bytes, all);
}

/* -- agreement --------------------------------------------------------------------------------- */
/* Records which part of the texts of two ranks differs: parts are separated by ", ". */
static void ranks_differ(const eg_ranks *r, const char *who, const char *first, const char *other,
                         int rank)
{
    while (*first && *other) {
        const size_t n = strcspn(first, ","), m = strcspn(other, ",");
        if (n != m || strncmp(first, other, n) != 0) break;
        first += n + strspn(first + n, ", "), other += m + strspn(other + m, ", ");
    }
    const int n = (int)strcspn(first, ","), m = (int)strcspn(other, ",");
    eg_fail_as(r->cx, EG_ERROR_MISUSE, "%s: rank 0 has %.*s, but rank %d has %.*s", who, n ? n : 12,
               n ? first : "another call", rank, m ? m : 12, m ? other : "another call");
}
void eg__ranks_agreed(eg_ranks *r)
{
    if (eg_error(r->cx)) r->agreed = r->cx->errors;
}
/* True if all ranks have the error that is in the context. */
static bool ranks_have_error(const eg_ranks *r)
{
    return eg_error(r->cx) && r->agreed == r->cx->errors;
}
/* Each rank sends whether it has an error, and if it has none a hash of its text. If one has an
 * error, all errors are gathered, and ranks without an error record that of the first rank with
 * one; else, if the hashes differ, all texts are gathered and compared. */
int eg__ranks_barrier_same(eg_ranks *r, const char *who, const char *text)
{
    typedef struct report {
        int32_t failed, code; /* code: of the error, or the hash */
    } report;
    if (!r) return -1;
    r->barriers++;
    if (ranks_have_error(r)) return -1;
    report mine = { eg_error(r->cx) != NULL, (int32_t)eg_error_code(r->cx) };
    if (!mine.failed && *text) {
        const uint64_t h = eg_hash(EG_HASH_START, text, strlen(text));
        mine.code = (int32_t)((h ^ h >> 32) & INT32_MAX);
    }
    report *all = r->all;
    const char *bad = counted_gather(r, &mine, sizeof mine, all);
    int first = 0, other = 1;
    while (!bad && other < r->table.ranks && all[other].code == all[0].code) other++;
    while (!bad && first < r->table.ranks && !all[first].failed) first++;
    if (!bad && first < r->table.ranks) {
        /* error texts are sent only if there is an error */
        char message[ROW] = "";
        const int32_t code = all[first].code;
        if (mine.failed) strncpy(message, eg_error(r->cx), sizeof message - 1);
        bad = counted_gather(r, message, sizeof message, r->all);
        if (!bad && !mine.failed)
            eg_fail_as(r->cx, (eg_code)code, "rank %d: %s", first,
                       (const char *)r->all + (size_t)first * ROW);
    } else if (!bad && other < r->table.ranks) {
        char message[ROW] = "";
        strncpy(message, text, sizeof message - 1);
        bad = counted_gather(r, message, sizeof message, r->all);
        const char *texts = r->all;
        if (!bad) ranks_differ(r, who, texts, texts + (size_t)other * ROW, other);
    }
    if (!bad) eg__ranks_agreed(r);
    eg__ranks_fail(r, bad);
    return eg_error(r->cx) ? -1 : 0;
}
int eg_ranks_barrier(eg_ranks *r) { return eg__ranks_barrier_same(r, "ranks", ""); }

eg_tensor *eg__ranks_apply(eg_ranks *r, const eg_op *op, const void *attr, size_t attr_size,
                           int count, eg_tensor *const *xs)
{
    const uint64_t before = r->barriers;
    eg_tensor *y = eg_apply(op, attr, attr_size, count, xs);
    if (r->barriers == before && eg_error(r->cx)) eg_ranks_barrier(r);
    return eg__communicates(y);
}

/* Each rank sends its value; all compare the values with that of rank 0. */
int eg_ranks_agree(eg_ranks *r, const char *what, const char *value)
{
    enum { MOST = 128 };
    if (!r || eg_error(r->cx)) return -1;
    char mine[MOST] = "";
    if (!what || !value || strlen(value) >= sizeof mine) {
        eg_fail_as(r->cx, EG_ERROR_MISUSE, "ranks: a value to agree on has at most %d bytes",
                   MOST - 1);
        return -1;
    }
    strcpy(mine, value);
    if (eg__ranks_fail(r, counted_gather(r, mine, sizeof mine, r->all))) return -1;
    const char *all = r->all;
    for (int k = 1; k < r->table.ranks; k++)
        if (strcmp(all, all + k * MOST)) {
            eg_fail_as(r->cx, EG_ERROR_MISUSE,
                       "ranks: %s of rank 0 are \"%s\", but those of rank %d \"%s\"", what, all, k,
                       all + k * MOST);
            eg__ranks_agreed(r);
            return -1;
        }
    return 0;
}

/* -- opening ---------------------------------------------------------------------------------- */
/* Hashes the bits of some functions and of a product in one dtype, which depend on processors,
 * mathematical libraries and kernels. */
static uint64_t bits_of(eg_ctx *cx, eg_dtype dtype, uint64_t h)
{
    enum { N = 64 };
    eg_tensor *x = eg_arange(cx, dtype, -1.5, 2.5, 4.0 / (N * N)), *m = eg_reshape(x, N, N),
              *p = eg_exp(x), *seen[EG_RANK_MAX];
    int n = 0;
    seen[n++] = p, seen[n++] = eg_log(p), seen[n++] = eg_tanh(x), seen[n++] = eg_sin(x);
    seen[n++] = eg_gelu(x), seen[n++] = eg_einsum("ik,kj->ij", m, m);
    for (int k = 0; k < n; k++) {
        const void *bytes =
            dtype == EG_F64 ? (const void *)eg_f64(seen[k]) : (const void *)eg_f32(seen[k]);
        if (bytes) h = eg_hash(h, bytes, N * N * (dtype == EG_F64 ? 8 : 4));
    }
    return h;
}
/* Refuses ranks whose results would have other bits. The error names the kernels as a hint; the
 * comparison is that of the hashes. Returns 0; −1 after an error. */
static int agree_on_bits(eg_ranks *r)
{
    eg_ctx *cx = r->cx;
    if (r->table.ranks == 1) return 0;
    char text[128], kernel[128];
    snprintf(kernel, sizeof kernel, "%s", eg_kernel_info());
    if (eg_ranks_barrier(r) || eg_ranks_agree(r, "the versions of eingrad", eg_version()) ||
        eg_ranks_agree(r, "the kernels", kernel) ||
        eg_ranks_agree(r, "the options eg_flush", eg_flushes(cx) ? "on" : "off"))
        return -1;
    const bool was = eg_nograd(cx, true);
    eg_mark m = eg_push(cx);
    const uint64_t h = bits_of(cx, EG_F64, bits_of(cx, EG_F32, EG_HASH_START));
    eg_pop(cx, m);
    eg_nograd(cx, was);
    snprintf(text, sizeof text, "%016llx", (unsigned long long)h);
    return eg_ranks_barrier(r) ? -1 : eg_ranks_agree(r, "the bits of the vector mathematics", text);
}

static void group_tell(eg__group *g) { eg_ranks_barrier((eg_ranks *)g); }
/* Appends the group to the list of its context, or removes it. */
static void group_list(eg_ranks *r, bool open)
{
    eg__group **at = &r->cx->groups;
    while (*at && *at != &r->link) at = &(*at)->next;
    *at = open ? &r->link : r->link.next;
}

/* The table is the given one, that of a launcher, or one of a single rank. */
eg_ranks *eg_ranks_open_with(const eg_ranks_open_args *given)
{
    eg_ranks_open_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    if (!o.cx || eg_error(o.cx) || eg_refuse_capture(o.cx, "ranks")) return NULL;
    eg_ranks_table table = { .size = sizeof table, .ranks = 1 };
    if (o.table)
        eg_options(&table, sizeof table, o.table);
    else if (!eg__ranks_of_launcher(o.cx, &table))
        return NULL;
    if (table.ranks < 1 || table.rank < 0 || table.rank >= table.ranks ||
        (table.ranks > 1 && !table.exchange)) {
        eg_fail_as(o.cx, EG_ERROR_MISUSE,
                   "ranks: a table with rank %d of %d%s is not that of a group", table.rank,
                   table.ranks, table.exchange ? "" : " and without exchange");
        return NULL;
    }
    eg_owner *owner = eg_owner_open(o.cx);
    eg_ranks *r = owner ? eg_owner_alloc(owner, sizeof *r) : NULL;
    void *all = r ? eg_owner_alloc(owner, (size_t)table.ranks * ROW) : NULL;
    if (!all) {
        eg_owner_close(owner);
        if (table.close) table.close(table.user);
        return NULL;
    }
    *r = (eg_ranks){
        .link = { .tell = group_tell }, .cx = o.cx, .owner = owner, .table = table, .all = all
    };
    group_list(r, true);
    if (agree_on_bits(r)) {
        eg_ranks_close(r);
        return NULL;
    }
    r->traffic = (eg_traffic){ 0 };
    return r;
}
void eg_ranks_close(eg_ranks *r)
{
    if (!r) return;
    /* After an error that only this rank has, the table is not closed: the other ranks wait for
     * this one, so MPI_Finalize would not return. If a group remains open, the process's exit
     * counts as a failure of the run. */
    if (r->table.close && (ranks_have_error(r) || !eg_error(r->cx))) r->table.close(r->table.user);
    eg_ctx *cx = r->cx;
    group_list(r, false);
    eg_owner_close(r->owner);
    if (!cx->groups) eg__owner_pool_free(cx);
}
