/* bench_pair: the speed of eg__pair, beside this machine's FMA peak and BLIS's own gemm, all measured in this run.
 * Not part of make check. Arguments: threads (1), and a word that a case's name must contain (none).
 * Time is the best of many; peak is the best of register-only multiply-adds in the widest vectors that the kernel choice allows. */
#include "einsum/einsum.h"
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#endif
#include <blis.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* -- the peak: 16 independent chains of multiply-adds in registers ------------------------------------------------------------- */
#if defined(__x86_64__)
#define CHAINS(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)
#define PEAK(name, isa_name, vec, zero, fma, add)                                                                                  \
    __attribute__((target(isa_name))) static double name(int64_t n)                                                                \
    {                                                                                                                              \
        vec x = zero(), s0 = x, s1 = x, s2 = x, s3 = x, s4 = x, s5 = x, s6 = x, s7 = x, s8 = x, s9 = x, s10 = x, s11 = x;          \
        for (int64_t i = 0; i < n; i++) {                                                                                          \
            s0 = fma(x, x, s0); s1 = fma(x, x, s1); s2 = fma(x, x, s2); s3 = fma(x, x, s3); s4 = fma(x, x, s4); s5 = fma(x, x, s5);  \
            s6 = fma(x, x, s6); s7 = fma(x, x, s7); s8 = fma(x, x, s8); s9 = fma(x, x, s9); s10 = fma(x, x, s10); s11 = fma(x, x, s11); \
            __asm__ volatile("" : "+x"(s0), "+x"(s1), "+x"(s2), "+x"(s3), "+x"(s4), "+x"(s5), "+x"(s6), "+x"(s7), "+x"(s8), "+x"(s9), "+x"(s10), "+x"(s11)); \
        }                                                                                                                          \
        s0 = add(add(add(s0, s1), add(s2, s3)), add(add(s4, s5), add(s6, s7)));                                                    \
        s0 = add(s0, add(add(s8, s9), add(s10, s11)));                                                                             \
        double out = 0;                                                                                                            \
        memcpy(&out, &s0, sizeof out);                                                                                             \
        return out;                                                                                                                \
    }
PEAK(chains512, "avx512f", __m512, _mm512_setzero_ps, _mm512_fmadd_ps, _mm512_add_ps)
PEAK(chains256, "avx2,fma", __m256, _mm256_setzero_ps, _mm256_fmadd_ps, _mm256_add_ps)
#endif
static double peak_f32(void)            /* FLOP/s; f64 has half of it */
{
    double best = 0;
#if defined(__x86_64__)
    const int lanes = eg__kernel_isa() == EG_ISA_AVX512 ? 16 : 8;
    if (eg__kernel_isa() == EG_ISA_PLAIN) return 0;
    volatile double sink;
    for (int r = 0; r < 50; r++) {
        const int64_t n = 100000;
        double t = now();
        sink = lanes == 16 ? chains512(n) : chains256(n);
        t = now() - t;
        if (2.0 * 12 * lanes * (double)n / t > best) best = 2.0 * 12 * lanes * (double)n / t;
    }
    (void)sink;
#endif
    return best;
}

/* -- one case ------------------------------------------------------------------------------------------------------------------ */
static eg_ctx *cx;
static double peak;
static const char *only;
static void *room[3];
enum { ROOM = 256 << 20 };

typedef struct form { const char *name; int axes; eg_axis axis[8]; } form;
static double time_pair(eg_dtype dtype, const form *f)
{
    double best = 1e9, spent = 0;
    int inner = 1;
    for (int r = 0; r < 200 && (spent < 0.25 || r < 3); r++) {
        double t = now();
        for (int q = 0; q < inner; q++)
            if (!eg__pair(cx, dtype, f->axes, f->axis, room[0], room[1], room[2], false)) { fprintf(stderr, "%s\n", eg_error(cx)); exit(1); }
        t = now() - t;
        spent += t;
        if (t < 2e-5) { inner *= 4; continue; }
        if (t / inner < best) best = t / inner;
    }
    return best;
}
static double time_blis(eg_dtype dtype, int64_t m, int64_t n, int64_t k, int64_t batch, bool bt)
{
    float one = 1, zero = 0;
    double done = 1, dzero = 0, best = 1e9, spent = 0;
    for (int r = 0; r < 200 && (spent < 0.15 || r < 3); r++) {
        double t = now();
        for (int64_t i = 0; i < batch; i++)
            if (dtype == EG_F32)
                bli_sgemm(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, m, n, k, &one, (float *)room[0] + i * m * k, k, 1, (float *)room[1] + i * n * k,
                          bt ? 1 : n, bt ? k : 1, &zero, (float *)room[2] + i * m * n, n, 1);
            else
                bli_dgemm(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, m, n, k, &done, (double *)room[0] + i * m * k, k, 1, (double *)room[1] + i * n * k,
                          bt ? 1 : n, bt ? k : 1, &dzero, (double *)room[2] + i * m * n, n, 1);
        t = now() - t;
        spent += t;
        if (t < best) best = t;
    }
    return best;
}
static void fresh(eg_dtype dtype)
{
    for (int s = 0; s < 3; s++)
        for (int64_t i = 0; i < ROOM / 8; i++) {
            if (dtype == EG_F32) { ((float *)room[s])[2 * i] = (float)(i % 13) / 13; ((float *)room[s])[2 * i + 1] = (float)(i % 7) / 7; }
            else ((double *)room[s])[i] = (double)(i % 13) / 13;
        }
}
static void flops(eg_dtype dtype, const form *f, double blis)
{
    if (only && !strstr(f->name, only)) return;
    double n = 2, t = time_pair(dtype, f);
    for (int i = 0; i < f->axes; i++) n *= (double)f->axis[i].size;
    printf("%-34s %s %10.2f us %8.1f GFLOP/s %5.1f %% of peak", f->name, eg_type_name(dtype), t * 1e6, n / t * 1e-9,
           100 * n / t / (dtype == EG_F32 ? peak : peak / 2));
    if (blis > 0) printf("   %5.2f x BLIS", blis / t);
    printf("\n");
    fflush(stdout);
}
static void bytes(eg_dtype dtype, const form *f, double n, double memcpy_rate)
{
    if (only && !strstr(f->name, only)) return;
    double t = time_pair(dtype, f);
    printf("%-34s %s %10.2f us %8.1f GB/s    %5.1f %% of memcpy\n", f->name, eg_type_name(dtype), t * 1e6, n / t * 1e-9, 100 * n / t / memcpy_rate);
    fflush(stdout);
}

/* zab,zbc->zac and, with bt, zab,zcb->zac */
static void square(eg_dtype dtype, int64_t z, int64_t n, bool bt)
{
    char name[64];
    snprintf(name, sizeof name, "%s %lld x %lld", bt ? "zab,zcb->zac" : "zab,zbc->zac", (long long)z, (long long)n);
    if (only && !strstr(name, only)) return;
    form f = { name, 4, { { z, n * n, n * n, n * n, 1, 1, 1 }, { n, n, 0, n, 1, 0, 1 }, { n, 1, bt ? 1 : n, 0, 1, 1, 0 }, { n, 0, bt ? n : 1, 1, 0, 1, 1 } } };
    flops(dtype, &f, time_blis(dtype, n, n, n, z, bt));
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    only = argc > 2 ? argv[2] : NULL;
    cx = eg_open(.threads = threads);
    for (int s = 0; s < 3; s++) if (posix_memalign(&room[s], 64, ROOM)) return 1;
    printf("%s\n", eg__kernel_why());       /* before any other use of BLIS, which would choose for itself */
    bli_thread_set_num_threads(threads);
    peak = peak_f32() * threads;
    printf("FMA peak, f32, %d thread(s): %.1f GFLOP/s\n", threads, peak * 1e-9);
    for (int d = 0; d < 2; d++) {
        eg_dtype dtype = d ? EG_F64 : EG_F32;
        size_t w = d ? 8 : 4;
        fresh(dtype);
        for (int bt = 0; bt < 2; bt++) {
            static const int sizes[] = { 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 2048 };
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) square(dtype, 1, sizes[i], bt);
            for (int n = 8; n <= 64; n *= 2) square(dtype, 1024, n, bt);
        }
        /* attention scores ibhd,jbhd->bhij and values bhij,jbhd->ibhd(stored bhid), projections blm,mhd->blhd */
        for (int q = 0; q < 4; q++) {
            static const int64_t s[4][4] = { { 16, 32, 4, 16 }, { 60, 10, 8, 64 }, { 128, 8, 8, 64 }, { 512, 4, 8, 64 } };     /* i b h d */
            int64_t i = s[q][0], b = s[q][1], h = s[q][2], e = s[q][3];
            char name[64];
            snprintf(name, sizeof name, "ibhd,jbhd->bhij %lld %lld %lld %lld", (long long)i, (long long)b, (long long)h, (long long)e);
            form f = { name, 5, { { b, h * e, h * e, h * i * i, 1, 1, 1 }, { h, e, e, i * i, 1, 1, 1 }, { i, b * h * e, 0, i, 1, 0, 1 },
                                  { i, 0, b * h * e, 1, 0, 1, 1 }, { e, 1, 1, 0, 1, 1, 0 } } };
            flops(dtype, &f, 0);
            snprintf(name, sizeof name, "bhij,jbhd->ibhd %lld %lld %lld %lld", (long long)i, (long long)b, (long long)h, (long long)e);
            form v = { name, 5, { { b, h * i * i, h * e, h * e, 1, 1, 1 }, { h, i * i, e, e, 1, 1, 1 }, { i, i, 0, b * h * e, 1, 0, 1 },
                                  { i, 1, b * h * e, 0, 1, 1, 0 }, { e, 0, 1, 1, 0, 1, 1 } } };
            flops(dtype, &v, 0);
        }
        for (int q = 0; q < 2; q++) {
            int64_t bl = q ? 512 : 600, m = q ? 64 : 512, hd = q ? 64 : 512;
            char name[64];
            snprintf(name, sizeof name, "blm,mhd->blhd %lld %lld %lld", (long long)bl, (long long)m, (long long)hd);
            form f = { name, 3, { { bl, m, 0, hd, 1, 0, 1 }, { m, 1, hd, 0, 1, 1, 0 }, { hd, 0, 1, 1, 0, 1, 1 } } };
            flops(dtype, &f, 0);
            snprintf(name, sizeof name, "blm,blhd->mhd %lld %lld %lld", (long long)bl, (long long)m, (long long)hd);
            form v = { name, 3, { { bl, m, hd, 0, 1, 1, 0 }, { m, 1, 0, hd, 1, 0, 1 }, { hd, 0, 1, 1, 0, 1, 1 } } };
            flops(dtype, &v, 0);
        }
        flops(dtype, &(form){ "strided ab,bc->ac 512, steps of 2", 3, { { 512, 2048, 0, 512, 1, 0, 1 }, { 512, 2, 2048, 0, 1, 1, 0 }, { 512, 0, 2, 1, 0, 1, 1 } } }, 0);
        flops(dtype, &(form){ "thin ab,bc->ac 4096 4096 4", 3, { { 4096, 4096, 0, 4, 1, 0, 1 }, { 4096, 1, 4, 0, 1, 1, 0 }, { 4, 0, 1, 1, 0, 1, 1 } } }, 0);
        flops(dtype, &(form){ "thin ab,bc->ac 4 4096 4096", 3, { { 4, 4096, 0, 4096, 1, 0, 1 }, { 4096, 1, 4096, 0, 1, 1, 0 }, { 4096, 0, 1, 1, 0, 1, 1 } } }, 0);

        double best = 1e9;
        const int64_t N = 4096 * 4096 / (d ? 2 : 1), R = 4096, C = N / R;
        for (int r = 0; r < 10; r++) { double t = now(); memcpy(room[2], room[0], (size_t)N * w); t = now() - t; if (t < best) best = t; }
        double rate = 2.0 * (double)N * (double)w / best;
        printf("memcpy of %lld MB: %.1f GB/s\n", (long long)(N * (int64_t)w >> 20), rate * 1e-9);
        double both = 2.0 * (double)N * (double)w, one = (double)N * (double)w;
#define UNARY(title, n, count, ...) { void *keep = room[1]; room[1] = NULL; bytes(dtype, &(form){ title, n, { __VA_ARGS__ } }, count, rate); room[1] = keep; }
        UNARY("ij->ji", 2, both, { R, C, 0, 1, 1, 0, 1 }, { C, 1, 0, R, 1, 0, 1 })
        UNARY("ijk->kji", 3, both, { 64, 64 * C, 0, 1, 1, 0, 1 }, { 64, C, 0, 64, 1, 0, 1 }, { C, 1, 0, 4096, 1, 0, 1 })
        UNARY("bhij->bihj", 4, both, { 64, 64 * C, 0, 64 * C, 1, 0, 1 }, { 8, 8 * C, 0, 64, 1, 0, 1 }, { C / 8, 64, 0, 512, 1, 0, 1 }, { 64, 1, 0, 1, 1, 0, 1 })
        UNARY("ij->i", 2, one, { R, C, 0, 1, 1, 0, 1 }, { C, 1, 0, 0, 1, 0, 0 })
        UNARY("ij->j", 2, one, { R, C, 0, 0, 1, 0, 0 }, { C, 1, 0, 1, 1, 0, 1 })
        UNARY("ij->", 1, one, { N, 1, 0, 0, 1, 0, 0 })
        bytes(dtype, &(form){ "i,i->", 1, { { N, 1, 1, 0, 1, 1, 0 } } }, 2 * one, rate);
        bytes(dtype, &(form){ "i,i->i", 1, { { N, 1, 1, 1, 1, 1, 1 } } }, 3 * one, rate);
        bytes(dtype, &(form){ "i,j->ij", 2, { { R, 1, 0, C, 1, 0, 1 }, { C, 0, 1, 1, 0, 1, 1 } } }, one, rate);
        bytes(dtype, &(form){ "ij,j->i", 2, { { R, C, 0, 1, 1, 0, 1 }, { C, 1, 1, 0, 1, 1, 0 } } }, one, rate);
        bytes(dtype, &(form){ "ij,i->j", 2, { { R, C, 1, 0, 1, 1, 0 }, { C, 1, 0, 1, 1, 0, 1 } } }, one, rate);
    }
    eg_close(cx);
    for (int s = 0; s < 3; s++) free(room[s]);
    return 0;
}
