/* threads.c: a team of threads for each context, for loops whose pieces are independent of each
 * other.
 *
 * Pieces are claimed one by one, by helper threads and by the caller, which waits only for pieces
 * that a helper has begun. A helper that the system does not run, because another process uses the
 * core, therefore delays nothing; at a barrier all threads would wait for it. (With one other busy
 * process on 2 cores, a training step under OpenMP took 20 times as long as on one thread; with
 * this team it takes as long as on one thread.)
 *
 * Each thread has its own range of the pieces, and helps with those of other threads when its own
 * range is done. In successive loops over the same data a thread thus gets the pieces that are in
 * its cache.
 *
 * The ticket of a range holds the number of the job (upper half) and how many of its pieces are
 * left (lower half). To claim a piece a thread reads the ticket, then the number of participants
 * (threads with a range), then does a compare-and-swap. If it succeeds, the job was that of the
 * ticket in between, since the job changes only when no piece is left, and it remains until this
 * piece is done.
 *
 * What a piece reads was written before: the caller's writes precede the release store of the
 * ticket, which the compare-and-swap reads. What it writes precedes the addition to `done`, which
 * the caller reads with acquire. Helgrind supports locks but not C11 atomics, and reports these
 * accesses as possible races; ThreadSanitizer supports both.
 *
 * A piece is computed in the floating-point mode of the thread that started its loop, so that the
 * bits do not depend on which thread computes it.
 *
 * A child process of fork has the memory of the team but none of its helpers: a lock that a helper
 * held is never released, and no helper answers. Each team therefore stores the number of forks
 * that led to its process; a child process does not use its parent's team and makes its own. */
#include "core/core.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* TEAM_MAX: largest number of threads. POLLS: how often a helper reads the job between two readings
 * of the clock. WAITS: how often a caller reads the count of unfinished pieces before it yields the
 * processor. STACK: bytes of a helper's stack; pieces need less than 64 KB, with sanitizers four
 * times as much, and a user's block may need more; the usual 8 MB per thread would exhaust a
 * limited address space. */
enum { TEAM_MAX = 256, POLLS = 64, WAITS = 200, STACK = 1 << 21 };
enum { SPIN_NS = 200000 }; /* how long a helper waits actively for the next job before it sleeps */

typedef struct member { /* member 0 is that of the caller, which uses only its ticket and end */
    _Alignas(64) _Atomic uint64_t ticket;
    _Atomic int64_t end; /* end of the range */
    struct eg__team *team;
    int number;
    uint64_t mode; /* floating-point mode that the helper has set last */
    pthread_t thread;
} member;
struct eg__team {
    _Atomic uint32_t job;
    _Atomic int64_t done;
    _Atomic(eg_piece *) body;
    _Atomic(void *) user;
    /* floating-point mode of the thread that started the job: core/fpmode.h */
    _Atomic uint64_t mode;
    _Atomic int participants, asleep;
    _Atomic int stop; /* helpers with this number or a larger one end */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    unsigned forks; /* number of forks of the process that the helpers belong to */
    bool busy;      /* true in a loop: a loop inside it runs on one thread */
    _Atomic int helpers;
    int wanted; /* number of helpers requested; the system may have refused some */
    size_t bytes;
    member *member; /* helpers + 1 members, each in its own cache lines */
};

/* -- forks ------------------------------------------------------------------------------------ */
/* the number of forks between the first process and this one, counted from the first team on */
static _Atomic unsigned forks;
static _Atomic bool counted;
static void count_fork(void) { atomic_fetch_add(&forks, 1); }
/* True if forks are counted from now on. If two threads call this at the same time, each fork is
 * counted twice, which does no harm. */
static bool forks_counted(void)
{
    if (!atomic_load(&counted) && pthread_atfork(NULL, NULL, count_fork) == 0)
        atomic_store(&counted, true);
    return atomic_load(&counted);
}
static bool of_this_process(const struct eg__team *t)
{
    return t->forks == atomic_load_explicit(&forks, memory_order_relaxed);
}

/* -- work ------------------------------------------------------------------------------------- */
static inline void pause_processor(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static uint64_t nanoseconds(void) /* 0: there is no clock */
{
    struct timespec t;
    if (clock_gettime(CLOCK_MONOTONIC, &t)) return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Claims and computes pieces of the range s until none is left. */
static void work_on(struct eg__team *t, int number, member *s)
{
    uint64_t ticket = atomic_load_explicit(&s->ticket, memory_order_acquire);
    while (ticket & UINT32_MAX &&
           number < atomic_load_explicit(&t->participants, memory_order_relaxed)) {
        if (!atomic_compare_exchange_weak_explicit(&s->ticket, &ticket, ticket - 1,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        const int64_t piece =
            atomic_load_explicit(&s->end, memory_order_relaxed) - (int64_t)(ticket & UINT32_MAX);
        eg_piece *body = atomic_load_explicit(&t->body, memory_order_relaxed);
        const uint64_t mode = atomic_load_explicit(&t->mode, memory_order_relaxed);
        if (number && mode != t->member[number].mode) eg__fpmode_set(t->member[number].mode = mode);
        body(atomic_load_explicit(&t->user, memory_order_relaxed), piece, number);
        atomic_fetch_add_explicit(&t->done, 1, memory_order_release);
        ticket = atomic_load_explicit(&s->ticket, memory_order_acquire);
    }
}
static void work(struct eg__team *t, int number)
{
    for (int k = number; k <= t->helpers; k++) work_on(t, number, &t->member[k]);
    for (int k = 0; k < number; k++) work_on(t, number, &t->member[k]);
}

/* True if a new job is posted while the helper waits actively. The time is measured, since a pause
 * instruction takes 10 cycles on one processor and 140 on another. */
static bool spin_for_job(struct eg__team *t, uint32_t job)
{
    const uint64_t begun = nanoseconds();
    uint64_t now;
    do
        for (int k = 0; k < POLLS; k++) {
            if (atomic_load_explicit(&t->job, memory_order_relaxed) != job) return true;
            pause_processor();
        }
    while ((now = nanoseconds()) != 0 && now - begun < SPIN_NS);
    return false;
}
/* The function of a helper thread: works on each job that is posted, waits actively for a while,
 * then sleeps until it is woken. */
static void *help(void *user)
{
    member *h = user;
    struct eg__team *t = h->team;
    while (h->number < atomic_load(&t->stop)) {
        const uint32_t job = atomic_load_explicit(&t->job, memory_order_acquire);
        work(t, h->number);
        if (spin_for_job(t, job)) continue;
        pthread_mutex_lock(&t->lock);
        /* before the job is read once more: a thread that posts a job reads `asleep` afterwards */
        atomic_fetch_add(&t->asleep, 1);
        while (atomic_load(&t->job) == job && h->number < atomic_load(&t->stop))
            pthread_cond_wait(&t->wake, &t->lock);
        atomic_fetch_sub(&t->asleep, 1);
        pthread_mutex_unlock(&t->lock);
    }
    return NULL;
}

static void wake_helpers(struct eg__team *t)
{
    pthread_mutex_lock(&t->lock);
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
}

/* Ends all helpers but the first `keep`. No loop is running. */
static void stop_helpers(struct eg__team *t, int keep)
{
    const int had = t->helpers;
    atomic_store(&t->stop, keep + 1);
    wake_helpers(t);
    for (int k = keep + 1; k <= had; k++) pthread_join(t->member[k].thread, NULL);
    atomic_store(&t->helpers, keep);
    atomic_store(&t->stop, TEAM_MAX);
}

/* Blocks the signals that are sent to the process, in this thread and in those that it starts, and
 * stores the previous mask in *old. A helper inherits the mask: otherwise a signal that the program
 * blocks later, to wait for it (sigwait, signalfd), would be delivered to a helper and could end
 * the process, and handlers would run on a helper's small stack. Signals that the thread's own
 * instructions cause, and those of profilers, are not blocked. */
static void block_signals(sigset_t *old)
{
    static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF };
    sigset_t s;
    sigfillset(&s);
    for (size_t k = 0; k < sizeof own / sizeof *own; k++) sigdelset(&s, own[k]);
    pthread_sigmask(SIG_BLOCK, &s, old);
}
/* Starts up to `want` helpers. If the system refuses one, half of those that were started are ended
 * again: if they took the last of the address space or of a quota, the stack of the caller could
 * not grow. */
static void make_helpers(struct eg__team *t, int want)
{
    pthread_attr_t attr;
    sigset_t signals;
    if (pthread_attr_init(&attr)) return;
    block_signals(&signals);
    /* if STACK is too small for this system, the default size is used */
    pthread_attr_setstacksize(&attr, STACK);
    for (int k = 1; k <= want; k++) {
        t->member[k].team = t;
        t->member[k].number = k;
        t->member[k].mode = ~(uint64_t)0;
        if (pthread_create(&t->member[k].thread, &attr, help, &t->member[k])) {
            stop_helpers(t, (k - 1) / 2);
            break;
        }
        atomic_store(&t->helpers, k);
    }
    pthread_sigmask(SIG_SETMASK, &signals, NULL);
    pthread_attr_destroy(&attr);
}

/* Returns the team, which is made by the first call. NULL if it cannot be made; all loops then run
 * on the caller. */
static struct eg__team *team_of(eg_ctx *cx)
{
    int want = (cx->threads < TEAM_MAX ? cx->threads : TEAM_MAX) - 1;
    if (cx->team && of_this_process(cx->team) && (cx->team->wanted >= want || cx->team->busy))
        return cx->team;
    eg__team_close(cx);
    if (!forks_counted()) return NULL;
    size_t bytes = sizeof *cx->team + (size_t)(want + 2) * sizeof *cx->team->member;
    struct eg__team *t = cx->realloc(cx->user, NULL, 0, bytes);
    if (!t) return NULL;
    cx->use.mallocs++;
    cx->use.bytes += bytes;
    memset(t, 0, bytes);
    t->forks = atomic_load(&forks);
    t->wanted = want;
    t->bytes = bytes;
    t->stop = TEAM_MAX;
    t->member = (member *)(void *)(((uintptr_t)(t + 1) + 63) / 64 * 64);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    make_helpers(t, want);
    return cx->team = t;
}

void eg__team_close(eg_ctx *cx)
{
    struct eg__team *t = cx->team;
    if (!t) return;
    if (of_this_process(t)) {
        stop_helpers(t, 0);
        pthread_cond_destroy(&t->wake);
        pthread_mutex_destroy(&t->lock);
    }
    cx->use.bytes -= t->bytes;
    cx->realloc(cx->user, t, t->bytes, 0);
    cx->team = NULL;
}

void eg__team_lend(eg_ctx *parent, eg_ctx *child)
{
    child->threads = parent->threads;
    child->team = parent->threads > 1 ? team_of(parent) : NULL;
    if (!child->team) child->threads = 1;
}
void eg__team_take_back(eg_ctx *child)
{
    child->team = NULL;
    child->threads = 1;
}

/* A helper that waits actively takes a piece 0.3 µs after it is posted; one that sleeps needs 20
 * µs. Sleeping helpers are therefore woken only when the loops that could have been divided add up
 * to eight times the least work that is worth dividing. */
int eg__team(eg_ctx *cx, int64_t work, int64_t grain)
{
    cx = eg__here(cx);
    enum { WARM = 8 };
    if (cx->threads <= 1 || work < 2 * grain / WARM) return 1;
    const int64_t most = work / (grain > WARM ? grain / WARM : 1);
    const bool awake = cx->team && cx->team->helpers &&
                       !atomic_load_explicit(&cx->team->asleep, memory_order_relaxed);
    if (most <= 1) return 1;
    cx->pending_work = awake ? 0 : cx->pending_work + most;
    if (!awake && cx->pending_work < 2 * WARM) return 1;
    cx->pending_work = 0;
    return most < cx->threads ? (int)most : cx->threads;
}

/* Posts a loop as a job, works on it, and waits for the pieces that helpers have begun. A loop that
 * is started inside a piece runs on its thread alone. */
void eg__parallel(eg_ctx *cx, int team, int64_t pieces, eg_piece *body, void *user)
{
    cx = eg__here(cx);
    struct eg__team *t = team > 1 && pieces > 1 && pieces < UINT32_MAX ? team_of(cx) : NULL;
    if (!t || t->busy || !t->helpers) {
        for (int64_t k = 0; k < pieces; k++) body(user, k, 0);
        return;
    }
    t->busy = true;
    const int64_t participants = team <= t->helpers ? team : t->helpers + 1;
    const uint32_t job = atomic_load_explicit(&t->job, memory_order_relaxed) + 1;
    atomic_store_explicit(&t->done, 0, memory_order_relaxed);
    atomic_store_explicit(&t->body, body, memory_order_relaxed);
    atomic_store_explicit(&t->user, user, memory_order_relaxed);
    atomic_store_explicit(&t->mode, eg__fpmode(), memory_order_relaxed);
    atomic_store_explicit(&t->participants, (int)participants, memory_order_relaxed);
    for (int64_t s = 0; s < participants; s++)
        atomic_store_explicit(&t->member[s].end, pieces * (s + 1) / participants,
                              memory_order_relaxed);
    for (int64_t s = 0; s < participants; s++)
        atomic_store_explicit(&t->member[s].ticket,
                              (uint64_t)job << 32 | (uint64_t)(pieces * (s + 1) / participants -
                                                               pieces * s / participants),
                              memory_order_release);
    atomic_store(&t->job, job);
    if (atomic_load(&t->asleep)) wake_helpers(t);
    work(t, 0);
    for (int k = 0; atomic_load_explicit(&t->done, memory_order_acquire) < pieces; k++)
        if (k < WAITS)
            pause_processor();
        else
            sched_yield();
    t->busy = false;
}

typedef struct loop_call {
    eg_loop_piece *f;
    void *user;
} loop_call;
static void loop_piece(void *user, int64_t piece, int thread)
{
    const loop_call *c = user;
    (void)thread;
    c->f(c->user, piece);
}
void eg_parallel(eg_ctx *cx, int64_t pieces, double ns, eg_loop_piece *f, void *user)
{
    enum { GRAIN = 15000 };
    loop_call c = { f, user };
    if (!f) return;
    const int64_t work = ns > 0 && ns < 1e15 ? (int64_t)ns : ns > 0 ? (int64_t)1e15 : 0;
    if (cx) eg__parallel(cx, eg__team(cx, work, GRAIN), pieces, loop_piece, &c);
    for (int64_t k = 0; !cx && k < pieces; k++) f(user, k);
}

int eg__cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}
