/* probe.c: the limits of this machine: multiply-adds in registers; bytes read, copied and written,
 * by footprint. */
#include "bench.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* -- twelve independent chains of multiply-adds, so that latency is hidden; and a sum of everything
 * in a buffer */
#if defined(__x86_64__)
#define PEAK(name, isa, vec, zero, fma, add)                                                  \
    __attribute__((target(isa))) static double name(int64_t n)                                \
    {                                                                                         \
        vec x = zero(), a = x, b = x, c = x, d = x, e = x, f = x, g = x, h = x, i = x, j = x, \
            k = x, l = x;                                                                     \
        for (int64_t q = 0; q < n; q++) {                                                     \
            a = fma(x, x, a);                                                                 \
            b = fma(x, x, b);                                                                 \
            c = fma(x, x, c);                                                                 \
            d = fma(x, x, d);                                                                 \
            e = fma(x, x, e);                                                                 \
            f = fma(x, x, f);                                                                 \
            g = fma(x, x, g);                                                                 \
            h = fma(x, x, h);                                                                 \
            i = fma(x, x, i);                                                                 \
            j = fma(x, x, j);                                                                 \
            k = fma(x, x, k);                                                                 \
            l = fma(x, x, l);                                                                 \
            __asm__ volatile("" : "+x"(a), "+x"(b), "+x"(c), "+x"(d), "+x"(e), "+x"(f));      \
            __asm__ volatile("" : "+x"(g), "+x"(h), "+x"(i), "+x"(j), "+x"(k), "+x"(l));      \
        }                                                                                     \
        a = add(add(add(a, b), add(c, d)), add(add(e, f), add(g, h)));                        \
        a = add(a, add(add(i, j), add(k, l)));                                                \
        double out = 0;                                                                       \
        memcpy(&out, &a, sizeof out);                                                         \
        return out;                                                                           \
    }
PEAK(chains512, "avx512f", __m512, _mm512_setzero_ps, _mm512_fmadd_ps, _mm512_add_ps)
PEAK(chains256, "avx2,fma", __m256, _mm256_setzero_ps, _mm256_fmadd_ps, _mm256_add_ps)
PEAK(chains512d, "avx512f", __m512d, _mm512_setzero_pd, _mm512_fmadd_pd, _mm512_add_pd)
PEAK(chains256d, "avx2,fma", __m256d, _mm256_setzero_pd, _mm256_fmadd_pd, _mm256_add_pd)
#define READ(name, isa, vec, load, zero, add)                                  \
    __attribute__((target(isa))) static double name(const float *x, int64_t n) \
    {                                                                          \
        vec a = zero(), b = a, c = a, d = a;                                   \
        const int64_t w = (int64_t)(sizeof(vec) / sizeof *x);                  \
        for (int64_t q = 0; q + 4 * w <= n; q += 4 * w) {                      \
            a = add(a, load(x + q)), b = add(b, load(x + q + w));              \
            c = add(c, load(x + q + 2 * w)), d = add(d, load(x + q + 3 * w));  \
        }                                                                      \
        a = add(add(a, b), add(c, d));                                         \
        double out = 0;                                                        \
        memcpy(&out, &a, sizeof out);                                          \
        return out;                                                            \
    }
READ(read512, "avx512f", __m512, _mm512_loadu_ps, _mm512_setzero_ps, _mm512_add_ps)
READ(read256, "avx2", __m256, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_add_ps)
#endif
/* on other processors: one element at a time, so that the table's shares can exceed 100 % */
static double chains(int64_t n)
{
    double a = 0, b = 0, c = 0, d = 0, x = 1e-9;
    for (int64_t q = 0; q < n; q++) {
        a += x * x, b += x * x, c += x * x, d += x * x;
        __asm__ volatile("" : "+m"(a), "+m"(b), "+m"(c), "+m"(d), "+m"(x));
    }
    return a + b + c + d;
}
static double reading(const float *x, int64_t n)
{
    double a = 0;
    for (int64_t q = 0; q < n; q++) a += (double)x[q];
    return a;
}

/* -- one measurement, by each of several threads at once: the slowest of them counts ---------- */
typedef enum what { PEAK_F32, PEAK_F64, COPY, READ, WRITE } what;
typedef struct job {
    what what;
    int64_t n, repeat;
    float *from, *to;
    double seconds, sink;
    pthread_barrier_t *start;
} job;

static double work(job *j) /* returns the FLOP or bytes */
{
    double done = 0;
    for (int64_t r = 0; r < j->repeat; r++) switch (j->what) {
        case PEAK_F32:
        case PEAK_F64: {
            bool f64 = j->what == PEAK_F64;
            int lanes = 0;
#if defined(__x86_64__)
            if (__builtin_cpu_supports("avx512f")) {
                j->sink += f64 ? chains512d(j->n) : chains512(j->n);
                lanes = 12 * (f64 ? 8 : 16);
            } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
                j->sink += f64 ? chains256d(j->n) : chains256(j->n);
                lanes = 12 * (f64 ? 4 : 8);
            }
#endif
            if (!lanes) {
                j->sink += chains(j->n);
                lanes = 4;
            }
            done += 2.0 * lanes * (double)j->n;
            break;
        }
        case COPY:
            memcpy(j->to, j->from, (size_t)j->n * 4);
            done += 8.0 * (double)j->n;
            break;
        case WRITE:
            memset(j->to, (int)(r & 1), (size_t)j->n * 4);
            done += 4.0 * (double)j->n;
            break;
        case READ: {
            double (*read)(const float *, int64_t) = reading;
#if defined(__x86_64__)
            read = __builtin_cpu_supports("avx512f") ? read512
                   : __builtin_cpu_supports("avx2")  ? read256
                                                     : reading;
#endif
            j->sink += read(j->from, j->n);
            done += 4.0 * (double)j->n;
            break;
        }
        }
    return done;
}
static double work_again(job *j)
{
    double t = bench_now(), done = work(j);
    __asm__ volatile("" : : "r"(j->to), "r"(j->from) : "memory");
    j->seconds = bench_now() - t;
    return done;
}
static void *thread(void *user)
{
    job *j = user;
    pthread_barrier_wait(j->start);
    work_again(j);
    return NULL;
}

enum { MOST = 64 };
static double rate(what w, int threads, int64_t n, int64_t repeat, float *room, int64_t stride)
{
    pthread_t other[MOST];
    job jobs[MOST];
    pthread_barrier_t start;
    double slowest = 0, done;
    int made = 0;
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    for (int t = 0; t < threads; t++) {
        jobs[t] = (job){ .what = w,
                         .n = n,
                         .repeat = repeat,
                         .from = room + t * stride,
                         .to = room + t * stride + stride / 2,
                         .start = &start };
        if (t > 0 && !pthread_create(&other[t], NULL, thread, &jobs[t])) made++;
    }
    if (made != threads - 1) {
        fprintf(stderr, "bench: a thread could not be made\n");
        exit(1);
    }
    if (threads > 1) pthread_barrier_wait(&start);
    done = work_again(&jobs[0]);
    for (int t = 0; t < threads; t++) {
        if (t > 0) pthread_join(other[t], NULL);
        slowest = jobs[t].seconds > slowest ? jobs[t].seconds : slowest;
    }
    pthread_barrier_destroy(&start);
    return done * threads / slowest;
}

static void better(double *best, double x)
{
    if (x > *best) *best = x;
}

void probe_run(probe *p, int threads)
{
    static const double size[LEVELS] = { 32e3, 256e3, 1e6, 4e6, 12e6, 48e6, 256e6 };
    static float *room;
    threads = threads < MOST ? threads : MOST;
    if (!room) {
        if (posix_memalign((void **)(void *)&room, 4096, (size_t)size[LEVELS - 1] + 4096 * MOST))
            exit(1);
        memset(room, 0, (size_t)size[LEVELS - 1] + 4096 * MOST);
    }
    for (int r = 0; r < 20; r++)
        for (int d = 0; d < 2; d++)
            better(&p->peak[d], rate(d ? PEAK_F64 : PEAK_F32, threads, 100000, 1, room, 0));
    for (int s = 0; s < LEVELS; s++) {
        int64_t all = (int64_t)size[s] / 4 / threads,
                repeat = (int64_t)(4e6 / size[s]) + 1; /* floats for each thread; at least 0.1 ms */
        p->footprint[s] = size[s];
        for (int r = 0; r < (size[s] > 1e7 ? 4 : 10); r++) {
            int64_t stride = (all + 1024) / 1024 * 1024;
            if (stride * 4 * threads > (int64_t)size[LEVELS - 1] + 4096 * MOST)
                stride = all / 32 * 32;
            better(&p->copy[s], rate(COPY, threads, all / 2, repeat, room, stride));
            better(&p->read[s], rate(READ, threads, all, repeat, room, stride));
            better(&p->write[s], rate(WRITE, threads, all / 2, 2 * repeat, room, stride));
        }
    }
}

double probe_peak(int threads, bool f64)
{
    static float none; /* so that the loop stays in registers */
    double best = 0;
    for (int r = 0; r < 2; r++)
        better(&best, rate(f64 ? PEAK_F64 : PEAK_F32, threads < MOST ? threads : MOST, 100000, 1,
                           &none, 0));
    return best;
}

/* The equal parts of what is read and written are transferred like a copy, the rest like a read or
 * a write. */
double probe_moved(const probe *p, double read, double written)
{
    double all = read + written, both = read < written ? read : written;
    int s = 0;
    while (s < LEVELS - 1 && all > p->footprint[s]) s++;
    return 2 * both / p->copy[s] + (read - both) / p->read[s] + (written - both) / p->write[s];
}
