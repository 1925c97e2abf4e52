/* mpi.c: the table of functions that communicate by MPI. It is compiled to a separate module
 * (libeingrad-mpi.so), which launcher.c loads, and the only file that includes mpi.h.
 *
 * MPI is ended when the process exits, but only if every group that was opened has been closed. For
 * mpirun a process that exits without ending MPI has failed, and it ends the other processes;
 * MPI_Finalize would wait for them instead.
 *
 * A rank that closes its group tells the others, so that one that waits for a call which this rank
 * has not made returns an error instead of waiting forever. Each rank receives these messages from
 * all others before MPI ends, so that none is left: MPICH ends a process that frees a communicator
 * to which a message has come that nobody received. */
#include "ranks/ranks.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 30 }; /* largest message in bytes: MPI counts in int */
enum { DATA, CLOSED };    /* tags */
/* How many seconds a rank waits for one that has closed, whose last messages may still arrive, and
 * how often it tests whether one has. */
static const double GRACE = 5, INTERVAL = 0.1;

/* A message that was started: MPI's request and, if it is received, its expected length. */
typedef struct mpi_message {
    MPI_Request request;
    int with;        /* the other rank */
    int from, takes; /* from −1: a message that is sent */
} mpi_message;
typedef struct world {
    struct world *next;
    bool open;
    MPI_Comm comm; /* a duplicate, which separates the messages from those of other users of MPI */
    int rank, ranks;
    MPI_Request *notice; /* by rank: receives its message that it has closed */
    mpi_message *list;   /* grows as needed */
    int count, capacity;
    bool broken; /* a wait was given up; sentence says why */
    char sentence[MPI_MAX_ERROR_STRING + 64];
} world;

static world *worlds;  /* open ones, and closed ones that another rank may not have closed */
static int groups;     /* number of open groups */
static bool ours;      /* MPI was started by this module */
static int exit_hooks; /* registrations of `finish` at exit; one is enough */
static int hooked;     /* registrations of `worlds_end` for MPI_Finalize */

static void finish(void)
{
    int ended = 0;
    if (ours && !groups && MPI_Finalized(&ended) == MPI_SUCCESS && !ended) MPI_Finalize();
}

/* Returns NULL for success, else a sentence with MPI's error text. */
static const char *mpi_error(world *w, const char *call, int code)
{
    if (code == MPI_SUCCESS) return NULL;
    char text[MPI_MAX_ERROR_STRING];
    int n = 0;
    if (MPI_Error_string(code, text, &n)) n = 0;
    snprintf(w->sentence, sizeof w->sentence, "%s: %.*s", call, n, text);
    return w->sentence;
}

/* Returns a rank that has closed: `of`, or any one if of is −1; −1: none has. */
static int mpi_closed(world *w, int of)
{
    int found = -1;
    for (int k = 0; k < w->ranks; k++) {
        int over = 0;
        if (w->notice[k] == MPI_REQUEST_NULL || (of >= 0 && k != of)) continue;
        if (!MPI_Request_get_status(w->notice[k], &over, MPI_STATUS_IGNORE) && over) found = k;
    }
    return found;
}
/* Waits for a request to end. of: the rank that has to make the same call, −1: all have to. Returns
 * NULL, or a sentence if it failed or that rank has closed. */
static const char *mpi_await(world *w, const char *call, MPI_Request *request, MPI_Status *status,
                             int of)
{
    double next = 0, since = 0;
    if (w->broken) return w->sentence;
    for (unsigned k = 1;; k++) {
        int over = 0;
        const int code = MPI_Test(request, &over, status);
        if (code || over) return mpi_error(w, call, code);
        if (k % 1024) continue;
        const double now = MPI_Wtime();
        const int gone = now < next ? -1 : mpi_closed(w, of);
        if (now >= next) next = now + INTERVAL;
        if (gone < 0) continue;
        if (!since) since = now;
        if (now < since + GRACE) continue;
        w->broken = true; /* the request keeps its buffers: there are no further calls of MPI */
        snprintf(w->sentence, sizeof w->sentence,
                 "rank %d has closed the group, and this rank waits for a call of it", gone);
        return w->sentence;
    }
}

/* Sends and receives at the same time, in messages whose length fits an int. */
static const char *mpi_exchange(void *user, int to, const void *out, size_t out_bytes, int from,
                                void *in, size_t in_bytes)
{
    world *w = user;
    const size_t most = out_bytes > in_bytes ? out_bytes : in_bytes;
    if (w->broken) return w->sentence;
    for (size_t at = 0; at < most; at += PIECE) {
        const size_t o = at < out_bytes ? out_bytes - at : 0, i = at < in_bytes ? in_bytes - at : 0;
        const int sends = to < 0 ? 0 : (int)(o < PIECE ? o : PIECE),
                  takes = from < 0 ? 0 : (int)(i < PIECE ? i : PIECE);
        int came = takes, code = MPI_SUCCESS;
        MPI_Request sent = MPI_REQUEST_NULL, taken = MPI_REQUEST_NULL;
        MPI_Status s;
        if (takes) code = MPI_Irecv((char *)in + at, takes, MPI_BYTE, from, DATA, w->comm, &taken);
        if (code) return mpi_error(w, "MPI_Irecv", code);
        if (sends)
            code = MPI_Isend((const char *)out + at, sends, MPI_BYTE, to, DATA, w->comm, &sent);
        if (code) return mpi_error(w, "MPI_Isend", code);
        const char *bad = takes ? mpi_await(w, "MPI_Irecv", &taken, &s, from) : NULL,
                   *unsent = sends ? mpi_await(w, "MPI_Isend", &sent, MPI_STATUS_IGNORE, to) : NULL;
        if (bad || unsent) return bad ? bad : unsent;
        if (takes) MPI_Get_count(&s, MPI_BYTE, &came);
        if (came != takes) {
            snprintf(w->sentence, sizeof w->sentence, "rank %d sent %d byte%s, not %d", from, came,
                     came == 1 ? "" : "s", takes);
            return w->sentence;
        }
    }
    return NULL;
}

/* Makes the list large enough for two more messages; false without memory. */
static bool started_reserve(world *w)
{
    if (w->count + 2 <= w->capacity) return true;
    const int more = 2 * w->capacity + 32;
    mpi_message *list = realloc(w->list, (size_t)more * sizeof *list);
    if (!list) return false;
    w->list = list;
    w->capacity = more;
    return true;
}
/* MPI transfers bytes only during calls, so this tests the first message that is not finished. */
static const char *mpi_test_first(world *w)
{
    int over = 1, code = MPI_SUCCESS;
    for (int k = 0; k < w->count && over && !code; k++)
        code = MPI_Request_get_status(w->list[k].request, &over, MPI_STATUS_IGNORE);
    return mpi_error(w, "MPI_Request_get_status", code);
}
/* Starts messages of the same lengths as those of mpi_exchange, which the other rank may be
 * calling. */
static const char *mpi_start(void *user, int to, const void *out, size_t out_bytes, int from,
                             void *in, size_t in_bytes)
{
    world *w = user;
    if (to < 0) out_bytes = 0;
    if (from < 0) in_bytes = 0;
    const size_t most = out_bytes > in_bytes ? out_bytes : in_bytes;
    for (size_t at = 0; at < most; at += PIECE) {
        const size_t o = at < out_bytes ? out_bytes - at : 0, i = at < in_bytes ? in_bytes - at : 0;
        const int sends = (int)(o < PIECE ? o : PIECE), takes = (int)(i < PIECE ? i : PIECE);
        int code = MPI_SUCCESS;
        if (w->broken) return w->sentence;
        if (!started_reserve(w)) return "memory ran out";
        if (takes) {
            mpi_message *s = &w->list[w->count];
            *s = (mpi_message){ .with = from, .from = from, .takes = takes };
            code = MPI_Irecv((char *)in + at, takes, MPI_BYTE, from, DATA, w->comm, &s->request);
            if (code) return mpi_error(w, "MPI_Irecv", code);
            w->count++;
        }
        if (sends) {
            mpi_message *s = &w->list[w->count];
            *s = (mpi_message){ .with = to, .from = -1 };
            code =
                MPI_Isend((const char *)out + at, sends, MPI_BYTE, to, DATA, w->comm, &s->request);
            if (code) return mpi_error(w, "MPI_Isend", code);
            w->count++;
        }
    }
    return mpi_test_first(w);
}
/* Waits for all messages; returns NULL, or a sentence for the first that failed. */
static const char *mpi_finish(void *user)
{
    world *w = user;
    const char *bad = NULL;
    for (int k = 0; k < w->count; k++) {
        mpi_message *s = &w->list[k];
        int came = s->takes;
        MPI_Status status;
        const char *message = mpi_await(w, "MPI_Wait", &s->request, &status, s->with);
        if (bad) continue;
        bad = message;
        if (!bad && s->from >= 0) MPI_Get_count(&status, MPI_BYTE, &came);
        if (came == s->takes) continue;
        snprintf(w->sentence, sizeof w->sentence, "rank %d sent %d byte%s, not %d", s->from, came,
                 came == 1 ? "" : "s", s->takes);
        bad = w->sentence;
    }
    w->count = 0;
    return bad;
}

/* By exchanges with one rank after the other between few ranks, and of long messages, for which
 * Open MPI's non-blocking gather takes several times as long. */
static const char *mpi_gather(void *user, const void *mine, size_t bytes, void *all)
{
    enum { FEW = 4, LONG = 4096 };
    world *w = user;
    const int me = w->rank, ranks = w->ranks;
    if (w->broken) return w->sentence;
    if (ranks > FEW && bytes <= LONG) {
        MPI_Request request;
        const int code = MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                                        w->comm, &request);
        return code ? mpi_error(w, "MPI_Iallgather", code)
                    : mpi_await(w, "MPI_Iallgather", &request, MPI_STATUS_IGNORE, -1);
    }
    const char *bad = NULL;
    memmove((char *)all + (size_t)me * bytes, mine, bytes);
    for (int k = 1; k < ranks && !bad; k++) {
        const int from = (me - k + ranks) % ranks;
        bad = mpi_exchange(w, (me + k) % ranks, (const char *)all + (size_t)me * bytes, bytes, from,
                           (char *)all + (size_t)from * bytes, bytes);
    }
    return bad;
}

/* Expects the message of each other rank that it has closed. Returns MPI's code. */
static int notices_open(world *w)
{
    int code = MPI_SUCCESS;
    for (int k = 0; k < w->ranks; k++) w->notice[k] = MPI_REQUEST_NULL;
    for (int k = 0; k < w->ranks && !code; k++)
        if (k != w->rank) code = MPI_Irecv(NULL, 0, MPI_BYTE, k, CLOSED, w->comm, &w->notice[k]);
    return code;
}
/* Tells the other ranks that this one has closed. The messages are empty, and a receive is open for
 * each, so that sending does not wait. */
static void notices_close(world *w)
{
    for (int k = 0; k < w->ranks; k++)
        if (w->notice[k] != MPI_REQUEST_NULL) MPI_Send(NULL, 0, MPI_BYTE, k, CLOSED, w->comm);
}
/* Frees the closed groups that all other ranks have closed; waits: after these have. A group that
 * is broken keeps its communicator, to which requests still belong. */
static void worlds_free(bool waits)
{
    for (world **at = &worlds; *at;) {
        world *w = *at;
        int over = waits;
        if (!w->open && waits) MPI_Waitall(w->ranks, w->notice, MPI_STATUSES_IGNORE);
        if (!w->open && !waits) MPI_Testall(w->ranks, w->notice, &over, MPI_STATUSES_IGNORE);
        if (w->open || !over) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        if (!w->broken) MPI_Comm_free(&w->comm);
        free(w->notice);
        free(w->list);
        free(w);
    }
}
static void mpi_close(void *user)
{
    world *w = user;
    int ended = 0;
    groups--;
    w->open = false;
    if (MPI_Finalized(&ended) != MPI_SUCCESS || ended) return;
    notices_close(w);
    worlds_free(false);
}
/* MPI_Finalize calls this first, since MPI_COMM_SELF has an attribute that it deletes. Groups that
 * the program has left open are closed, since the other ranks would otherwise wait. */
static int worlds_end(MPI_Comm comm, int key, void *value, void *state)
{
    (void)comm, (void)key, (void)value, (void)state;
    for (world *w = worlds; w; w = w->next)
        if (w->open) notices_close(w);
    worlds_free(true);
    return MPI_SUCCESS;
}

const char *eg__ranks_mpi_1(size_t size, eg_ranks_table *table);
/* The function of the module (eg__ranks_module): initialises MPI, unless the program has, and fills
 * the table. */
__attribute__((visibility("default"))) const char *eg__ranks_mpi_1(size_t size,
                                                                   eg_ranks_table *table)
{
    if (size < sizeof *table) return "the library is older than its module for MPI";
    int started = 0, have = MPI_THREAD_SINGLE;
    if (MPI_Initialized(&started)) return "MPI_Initialized failed";
    if (!started && MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &have))
        return "MPI could not be started";
    ours |= !started;
    if (ours && !exit_hooks++) atexit(finish);
    world *w = calloc(1, sizeof *w);
    if (!w) return "memory ran out";
    eg_ranks_table t = { .size = sizeof t,
                         .user = w,
                         .exchange = mpi_exchange,
                         .gather = mpi_gather,
                         .close = mpi_close };
    MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &w->ranks);
    w->notice = calloc((size_t)w->ranks, sizeof(MPI_Request));
    if (!w->notice || MPI_Comm_dup(MPI_COMM_WORLD, &w->comm)) {
        const char *message = w->notice ? "MPI_Comm_dup failed" : "memory ran out";
        free(w->notice);
        free(w);
        return message;
    }
    /* Messages may be started in blocks, which other threads than the one that started MPI
     * compute. */
    if (!MPI_Query_thread(&have) && have >= MPI_THREAD_SERIALIZED)
        t.start = mpi_start, t.finish = mpi_finish;
    int key = MPI_KEYVAL_INVALID;
    if (!hooked++ && !MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, worlds_end, &key, NULL))
        MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    w->open = true;
    w->next = worlds;
    worlds = w;
    groups++;
    MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN);
    t.rank = w->rank, t.ranks = w->ranks;
    *table = t;
    return mpi_error(w, "MPI_Irecv", notices_open(w));
}
