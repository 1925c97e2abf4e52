/* threads.c: a team of threads per context, for loops whose pieces do not depend on each other.
 *
 * Pieces are claimed one by one, and the caller claims like everybody else: it waits only for pieces that a helper has begun. A helper
 * that the system does not run (another process has the core) costs nothing, where a barrier would wait for it: with one other busy
 * process on 2 cores, a training step under OpenMP took 20 times as long as on one thread, and under this it takes as long.
 *
 * `ticket` holds the number of the job (upper half) and of its next piece (lower half). A helper reads the ticket, then the job, then
 * claims by compare-and-swap: if that succeeds the job it read was the ticket's, since jobs change only while no piece is left. */
#include "core/context.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

enum { TEAM_MAX = 256, SPINS = 4000, WAITS = 200 };

typedef struct helper { struct eg__team *team; int number; pthread_t thread; } helper;
struct eg__team {
    _Atomic uint64_t ticket;
    _Atomic int64_t  pieces, done;
    _Atomic(eg_piece *) body;
    _Atomic(void *)  user;
    _Atomic int      invited, asleep;
    _Atomic bool     stop;
    pthread_mutex_t  lock;
    pthread_cond_t   wake;
    pid_t  process;             /* a child of fork has no helpers */
    bool   busy;                /* in a loop: one inside it runs alone */
    int    helpers;
    size_t bytes;
    helper helper[];
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Works on the present job until it has no piece left; returns the ticket it saw last. */
static uint64_t work(struct eg__team *t, int number)
{
    for (;;) {
        uint64_t ticket = atomic_load_explicit(&t->ticket, memory_order_acquire);
        int64_t piece = (int64_t)(ticket & UINT32_MAX);
        eg_piece *body = atomic_load_explicit(&t->body, memory_order_relaxed);
        void *user = atomic_load_explicit(&t->user, memory_order_relaxed);
        if (piece >= atomic_load_explicit(&t->pieces, memory_order_relaxed) ||
            number >= atomic_load_explicit(&t->invited, memory_order_relaxed))
            return ticket;
        if (!atomic_compare_exchange_weak_explicit(&t->ticket, &ticket, ticket + 1, memory_order_acq_rel, memory_order_relaxed)) continue;
        body(user, piece, number);
        atomic_fetch_add_explicit(&t->done, 1, memory_order_release);
    }
}

static void *help(void *user)
{
    helper *h = user;
    struct eg__team *t = h->team;
    while (!atomic_load(&t->stop)) {
        uint64_t job = work(t, h->number) >> 32;
        for (int k = 0; k < SPINS && atomic_load_explicit(&t->ticket, memory_order_relaxed) >> 32 == job; k++) relax();
        if (atomic_load(&t->ticket) >> 32 != job) continue;
        pthread_mutex_lock(&t->lock);
        atomic_fetch_add(&t->asleep, 1);        /* before the last look: who posts a job looks at it after posting */
        while (atomic_load(&t->ticket) >> 32 == job && !atomic_load(&t->stop)) pthread_cond_wait(&t->wake, &t->lock);
        atomic_fetch_sub(&t->asleep, 1);
        pthread_mutex_unlock(&t->lock);
    }
    return NULL;
}

static void rouse(struct eg__team *t)
{
    pthread_mutex_lock(&t->lock);
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
}

/* The helpers, made when they are first wanted. NULL where there can be none: everything then runs on the caller. */
static struct eg__team *team_of(eg_ctx *cx)
{
    int want = (cx->threads < TEAM_MAX ? cx->threads : TEAM_MAX) - 1;
    if (cx->team && cx->team->helpers >= want) return cx->team;
    if (cx->team && cx->team->busy) return cx->team;
    eg__team_close(cx);
    size_t bytes = sizeof *cx->team + (size_t)want * sizeof *cx->team->helper;
    struct eg__team *t = cx->realloc(cx->user, NULL, 0, bytes);
    if (!t) return NULL;
    cx->use.mallocs++;
    cx->use.bytes += bytes;
    *t = (struct eg__team){ .process = getpid(), .bytes = bytes };
    atomic_init(&t->ticket, (uint64_t)1 << 32);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    for (int k = 0; k < want; k++) {
        t->helper[k] = (helper){ .team = t, .number = k + 1 };
        if (pthread_create(&t->helper[k].thread, NULL, help, &t->helper[k])) break;
        t->helpers++;
    }
    return cx->team = t;
}

void eg__team_close(eg_ctx *cx)
{
    struct eg__team *t = cx->team;
    if (!t) return;
    if (t->process == getpid()) {
        atomic_store(&t->stop, true);
        rouse(t);
        for (int k = 0; k < t->helpers; k++) pthread_join(t->helper[k].thread, NULL);
        pthread_cond_destroy(&t->wake);
        pthread_mutex_destroy(&t->lock);
    }
    cx->use.bytes -= t->bytes;
    cx->realloc(cx->user, t, t->bytes, 0);
    cx->team = NULL;
}

/* A helper that spins takes a piece 0.3 µs after it is posted, one that sleeps needs 20 µs: an eighth of the work is worth it then. */
int eg__team(const eg_ctx *cx, int64_t work, int64_t grain)
{
    enum { WARM = 8 };
    if (cx->threads <= 1 || work < 2 * grain / WARM) return 1;
    const bool warm = cx->team && cx->team->helpers && !atomic_load_explicit(&cx->team->asleep, memory_order_relaxed);
    const int64_t most = work / (warm && grain > WARM ? grain / WARM : grain > 0 ? grain : 1);
    return most <= 1 ? 1 : most < cx->threads ? (int)most : cx->threads;
}

void eg__parallel(eg_ctx *cx, int team, int64_t pieces, eg_piece *body, void *user)
{
    struct eg__team *t = team > 1 && pieces > 1 && pieces < UINT32_MAX ? team_of(cx) : NULL;
    if (!t || t->busy || !t->helpers) {
        for (int64_t k = 0; k < pieces; k++) body(user, k, 0);
        return;
    }
    t->busy = true;
    atomic_store_explicit(&t->done, 0, memory_order_relaxed);
    atomic_store_explicit(&t->body, body, memory_order_relaxed);
    atomic_store_explicit(&t->user, user, memory_order_relaxed);
    atomic_store_explicit(&t->invited, team, memory_order_relaxed);
    atomic_store_explicit(&t->pieces, pieces, memory_order_relaxed);
    uint64_t job = (atomic_load_explicit(&t->ticket, memory_order_relaxed) >> 32) + 1;
    atomic_store(&t->ticket, job << 32);
    if (atomic_load(&t->asleep)) rouse(t);
    work(t, 0);
    for (int k = 0; atomic_load_explicit(&t->done, memory_order_acquire) < pieces; k++)
        if (k < WAITS) relax();
        else sched_yield();
    t->busy = false;
}

int eg__cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}
