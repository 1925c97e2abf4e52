/* simulate.c: ranks that are threads of this process. A message is not stored: its sender publishes
 * the address of its bytes and waits until the receiver has copied them, so that nothing is
 * allocated. */
#include "ranks/ranks.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* STACK: of a rank's thread; the helper threads of its context have their own stacks */
enum { RANKS = 256, STACK = 4 << 20 };

typedef struct simulation simulation;
typedef struct offered { /* a message that one rank offers to another; bytes NULL: none */
    const void *bytes;
    size_t count;
} offered;
typedef struct member {
    simulation *all;
    int rank;
    bool ended, well;
    const offered *message; /* what it waits for, NULL: it does not wait; … */
    bool offers;            /* … true: it waits until `other` has taken the message */
    int other;
    pthread_cond_t wake; /* signalled when a message to or from this rank has changed */
    pthread_t thread;
    char sentence[128];
} member;
struct simulation {
    pthread_mutex_t lock;
    int ranks;
    bool stuck; /* every rank that had not ended waited for another one */
    member *member;
    offered *offered; /* index [to][from] */
    int (*body)(void *user, const eg_ranks_table *);
    void *user;
};

/* True if m waits, and only rank m->other can end this: by a message, by taking one, or by its end.
 */
static bool is_waiting(const member *m)
{
    return m->message && !m->message->bytes == !m->offers && !m->all->member[m->other].ended;
}
static bool all_members_wait(const simulation *all)
{
    for (int k = 0; k < all->ranks; k++)
        if (!all->member[k].ended && !is_waiting(&all->member[k])) return false;
    return true;
}
/* Waits until rank `other` has offered the message s to m, or (offers) has taken that of m. Returns
 * early if that rank ends, or if every rank waits for another, as after calls in different orders:
 * then all waiting calls fail. The caller holds the lock. */
static void wait_for(member *m, int other, const offered *s, bool offers)
{
    simulation *all = m->all;
    m->message = s, m->offers = offers, m->other = other;
    while (!all->stuck && is_waiting(m)) {
        all->stuck = all_members_wait(all);
        for (int k = 0; k < all->ranks && all->stuck; k++)
            pthread_cond_broadcast(&all->member[k].wake);
        if (!all->stuck) pthread_cond_wait(&m->wake, &all->lock);
    }
    m->message = NULL;
}
/* Returns a sentence: rank `other` ended before it `did` something, or cannot. */
static const char *message_missing(member *m, int other, const char *did)
{
    if (m->all->member[other].ended)
        snprintf(m->sentence, sizeof m->sentence, "rank %d ended before it %s a message", other,
                 did);
    else
        snprintf(m->sentence, sizeof m->sentence,
                 "every rank waits for another one, here for rank %d", other);
    return m->sentence;
}
/* Waits until rank `from` offers a message to m, and copies it. Returns NULL, or a sentence after
 * an error. The caller holds the lock. */
static const char *take_message(member *m, int from, void *in, size_t bytes)
{
    simulation *all = m->all;
    offered *s = &all->offered[m->rank * all->ranks + from];
    wait_for(m, from, s, false);
    if (!s->bytes) return message_missing(m, from, "sent");
    if (s->count != bytes) {
        snprintf(m->sentence, sizeof m->sentence, "rank %d sent %zu byte%s, not %zu", from,
                 s->count, s->count == 1 ? "" : "s", bytes);
        return m->sentence;
    }
    memcpy(in, s->bytes, bytes);
    s->bytes = NULL;
    pthread_cond_broadcast(&all->member[from].wake);
    return NULL;
}
/* Waits until rank `to` has copied the message that m offers; withdraws it if that rank never
 * does. */
static const char *wait_received(member *m, int to)
{
    offered *s = &m->all->offered[to * m->all->ranks + m->rank];
    wait_for(m, to, s, true);
    if (!s->bytes) return NULL;
    s->bytes = NULL;
    return message_missing(m, to, "took");
}
/* Offers the message, copies the other rank's, then waits until its own is copied. */
static const char *simulated_exchange(void *user, int to, const void *out, size_t out_bytes,
                                      int from, void *in, size_t in_bytes)
{
    member *m = user;
    simulation *all = m->all;
    const char *bad = NULL, *late = NULL;
    pthread_mutex_lock(&all->lock);
    if (to >= 0) {
        all->offered[to * all->ranks + m->rank] = (offered){ out, out_bytes };
        pthread_cond_broadcast(&all->member[to].wake);
    }
    if (from >= 0) bad = take_message(m, from, in, in_bytes);
    if (to >= 0 && !bad) late = wait_received(m, to);
    /* after an error the bytes must not be read any more */
    if (to >= 0) all->offered[to * all->ranks + m->rank].bytes = NULL;
    pthread_mutex_unlock(&all->lock);
    return bad ? bad : late;
}

/* The function of a rank's thread. */
static void *run_member(void *arg)
{
    member *m = arg;
    simulation *all = m->all;
    const eg_ranks_table table = { .size = sizeof table,
                                   .user = m,
                                   .rank = m->rank,
                                   .ranks = all->ranks,
                                   .exchange = simulated_exchange };
    const bool well = all->body(all->user, &table) == 0;
    pthread_mutex_lock(&all->lock);
    m->well = well, m->ended = true;
    for (int k = 0; k < all->ranks; k++) pthread_cond_broadcast(&all->member[k].wake);
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

/* Starts the members' threads; returns how many. Members whose thread could not be started count as
 * ended. */
static int start_all(simulation *all)
{
    pthread_attr_t a;
    if (pthread_attr_init(&a)) return 0;
    pthread_attr_setstacksize(&a, STACK);
    pthread_mutex_lock(&all->lock); /* no message is exchanged before all threads exist */
    int n = 0;
    while (n < all->ranks &&
           !pthread_create(&all->member[n].thread, &a, run_member, &all->member[n]))
        n++;
    for (int k = n; k < all->ranks; k++) all->member[k].ended = true;
    pthread_mutex_unlock(&all->lock);
    pthread_attr_destroy(&a);
    return n;
}

/* All threads are joined even if one of them failed; the error names the first body that failed. */
int eg_ranks_simulate(eg_ctx *cx, int ranks, int (*body)(void *user, const eg_ranks_table *table),
                      void *user)
{
    if (!cx || eg_error(cx)) return -1;
    if (ranks < 1 || ranks > RANKS || !body) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "ranks: %d ranks cannot be simulated%s; 1 to %d can", ranks,
                   body ? "" : " without a body", RANKS);
        return -1;
    }
    eg_owner *owner = eg_owner_open(cx);
    simulation all = { .ranks = ranks, .body = body, .user = user };
    if (owner) {
        all.member = eg_owner_alloc(owner, (size_t)ranks * sizeof *all.member);
        all.offered = eg_owner_alloc(owner, (size_t)ranks * (size_t)ranks * sizeof *all.offered);
    }
    if (!all.member || !all.offered) {
        eg_owner_close(owner);
        return -1;
    }
    pthread_mutex_init(&all.lock, NULL);
    for (int k = 0; k < ranks; k++) {
        all.member[k].all = &all, all.member[k].rank = k;
        pthread_cond_init(&all.member[k].wake, NULL);
    }
    const int started = start_all(&all);
    int bad = -1;
    for (int k = 0; k < started; k++) pthread_join(all.member[k].thread, NULL);
    for (int k = 0; k < ranks; k++) {
        if (bad < 0 && k < started && !all.member[k].well) bad = k;
        pthread_cond_destroy(&all.member[k].wake);
    }
    pthread_mutex_destroy(&all.lock);
    eg_owner_close(owner);
    if (started < ranks)
        eg_fail_as(cx, EG_ERROR_MEMORY, "ranks: the system started %d of %d threads", started,
                   ranks);
    else if (bad >= 0)
        eg_fail_as(cx, EG_ERROR_USER, "ranks: the body of simulated rank %d of %d failed", bad,
                   ranks);
    return eg_error(cx) ? -1 : 0;
}
