/* mpi.c: the table of functions that communicate by MPI. It is compiled to a separate module
 * (libeingrad-mpi.so), which launcher.c loads, and the only file that includes mpi.h.
 *
 * MPI is ended when the process exits, but only if every group that was opened has been closed. For
 * mpirun a process that exits without ending MPI has failed, and it ends the other processes;
 * MPI_Finalize would wait for them instead. */
#include "ranks/ranks.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { PIECE = 1 << 30 }; /* largest message in bytes: MPI counts in int */

/* A message that was started: MPI's request and, if it is received, its expected length. */
typedef struct mpi_message {
    MPI_Request request;
    int from, takes; /* from −1: a message that is sent */
} mpi_message;
typedef struct world {
    MPI_Comm comm; /* a duplicate, which separates the messages from those of other users of MPI */
    mpi_message *list; /* grows as needed */
    int count, capacity;
    char sentence[MPI_MAX_ERROR_STRING + 64];
} world;

static int groups;     /* number of open groups */
static bool ours;      /* MPI was started by this module */
static int exit_hooks; /* registrations of `finish` at exit; one is enough */

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

/* Sends and receives at the same time, in messages whose length fits an int. */
static const char *mpi_exchange(void *user, int to, const void *out, size_t out_bytes, int from,
                                void *in, size_t in_bytes)
{
    world *w = user;
    const size_t most = out_bytes > in_bytes ? out_bytes : in_bytes;
    for (size_t at = 0; at < most; at += PIECE) {
        const size_t o = at < out_bytes ? out_bytes - at : 0, i = at < in_bytes ? in_bytes - at : 0;
        const int sends = (int)(o < PIECE ? o : PIECE), takes = (int)(i < PIECE ? i : PIECE);
        int came = takes;
        MPI_Status s;
        const int code = MPI_Sendrecv(sends ? (const char *)out + at : NULL, sends, MPI_BYTE,
                                      sends && to >= 0 ? to : MPI_PROC_NULL, 0,
                                      takes ? (char *)in + at : NULL, takes, MPI_BYTE,
                                      takes && from >= 0 ? from : MPI_PROC_NULL, 0, w->comm, &s);
        if (code) return mpi_error(w, "MPI_Sendrecv", code);
        if (takes && from >= 0) MPI_Get_count(&s, MPI_BYTE, &came);
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
        if (!started_reserve(w)) return "memory ran out";
        if (takes) {
            mpi_message *s = &w->list[w->count];
            *s = (mpi_message){ .from = from, .takes = takes };
            code = MPI_Irecv((char *)in + at, takes, MPI_BYTE, from, 0, w->comm, &s->request);
            if (code) return mpi_error(w, "MPI_Irecv", code);
            w->count++;
        }
        if (sends) {
            mpi_message *s = &w->list[w->count];
            *s = (mpi_message){ .from = -1 };
            code = MPI_Isend((const char *)out + at, sends, MPI_BYTE, to, 0, w->comm, &s->request);
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
        const int code = MPI_Wait(&s->request, &status);
        if (bad) continue;
        bad = mpi_error(w, "MPI_Wait", code);
        if (!bad && s->from >= 0) MPI_Get_count(&status, MPI_BYTE, &came);
        if (came == s->takes) continue;
        snprintf(w->sentence, sizeof w->sentence, "rank %d sent %d byte%s, not %d", s->from, came,
                 came == 1 ? "" : "s", s->takes);
        bad = w->sentence;
    }
    w->count = 0;
    return bad;
}

static const char *mpi_gather(void *user, const void *mine, size_t bytes, void *all)
{
    world *w = user;
    int ranks = 1;
    MPI_Comm_size(w->comm, &ranks);
    if (bytes > PIECE) return "a gather is of at most 2^30 bytes";
    return mpi_error(w, "MPI_Allgather",
                     MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, w->comm));
}

static void mpi_close(void *user)
{
    world *w = user;
    int ended = 0;
    if (MPI_Finalized(&ended) == MPI_SUCCESS && !ended) MPI_Comm_free(&w->comm);
    free(w->list);
    free(w);
    groups--;
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
    if (MPI_Comm_dup(MPI_COMM_WORLD, &w->comm)) {
        free(w);
        return "MPI_Comm_dup failed";
    }
    /* Messages may be started in blocks, which other threads than the one that started MPI
     * compute. */
    if (!MPI_Query_thread(&have) && have >= MPI_THREAD_SERIALIZED)
        t.start = mpi_start, t.finish = mpi_finish;
    groups++;
    MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(w->comm, &t.rank);
    MPI_Comm_size(w->comm, &t.ranks);
    *table = t;
    return NULL;
}
