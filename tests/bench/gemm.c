/* gemm.c: the peers that only multiply matrices: BLIS, which is linked, and OpenBLAS, which is
 * opened so that its symbols do not replace others. */
#include "bench.h"
#include "contraction/blis_header.h"
#include <dlfcn.h>
#include <stdlib.h>

/* -- BLIS: any strides ------------------------------------------------------------------------ */
bool gemm_blis(void *user, int64_t n)
{
    const gemm *g = user;
    float one = 1, zero = 0;
    double done = 1, dzero = 0;
    for (int64_t r = 0; r < n; r++)
        for (int64_t z = 0; z < g->batch; z++)
            if (g->dtype == EG_F32)
                bli_sgemm(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, g->m, g->n, g->k, &one,
                          (float *)(uintptr_t)g->a + g->az[z], g->am, g->ak,
                          (float *)(uintptr_t)g->b + g->bz[z], g->bk, g->bn, &zero,
                          (float *)g->c + z * g->m * g->n, g->n, 1);
            else
                bli_dgemm(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, g->m, g->n, g->k, &done,
                          (double *)(uintptr_t)g->a + g->az[z], g->am, g->ak,
                          (double *)(uintptr_t)g->b + g->bz[z], g->bk, g->bn, &dzero,
                          (double *)g->c + z * g->m * g->n, g->n, 1);
    return true;
}
const char *gemm_blis_open(int threads)
{
    /* BLIS is given the family of kernels that eingrad uses: it does not know processors that are
     * newer than itself, such as Zen 5 for 0.9, and would take generic kernels. It reads the number
     * when it starts. */
    const char *family = eg_kernel_info();
    const size_t length = strcspn(family, " ");
    char number[16];
    for (int id = 0; id < BLIS_NUM_ARCHS; id++) {
        const char *name = bli_arch_string((arch_t)id);
        if (strlen(name) != length || strncmp(name, family, length) != 0) continue;
        snprintf(number, sizeof number, "%d", id);
        setenv("BLIS_ARCH_TYPE", number, 0);
    }
    bli_thread_set_num_threads(threads);
    return bli_info_get_version_str();
}

/* -- OpenBLAS: CBLAS with 32-bit integers, or with 64-bit ones under the names that NumPy's copy
 * has */
enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };
typedef void sgemm32(int, int, int, int, int, int, float, const float *, int, const float *, int,
                     float, float *, int);
typedef void dgemm32(int, int, int, int, int, int, double, const double *, int, const double *, int,
                     double, double *, int);
typedef void sgemm64(int, int, int, int64_t, int64_t, int64_t, float, const float *, int64_t,
                     const float *, int64_t, float, float *, int64_t);
typedef void dgemm64(int, int, int, int64_t, int64_t, int64_t, double, const double *, int64_t,
                     const double *, int64_t, double, double *, int64_t);
static union {
    void *p;
    sgemm32 *f;
} s32;
static union {
    void *p;
    dgemm32 *f;
} d32;
static union {
    void *p;
    sgemm64 *f;
} s64;
static union {
    void *p;
    dgemm64 *f;
} d64;
static union {
    void *p;
    void (*f)(int);
} set_threads;
static union {
    void *p;
    char *(*f)(void);
} config;

static bool open_at(const char *path)
{
    int how = RTLD_NOW | RTLD_LOCAL;
#if defined(RTLD_DEEPBIND)
    /* its own calls are bound inside it, since BLIS exports BLAS names as well */
    how |= RTLD_DEEPBIND;
#endif
    void *lib = path && *path ? dlopen(path, how) : NULL;
    if (!lib) return false;
    config.p = dlsym(lib, "openblas_get_config");
    if (!config.p) config.p = dlsym(lib, "scipy_openblas_get_config64_");
    set_threads.p = dlsym(lib, "openblas_set_num_threads");
    if (!set_threads.p) set_threads.p = dlsym(lib, "scipy_openblas_set_num_threads64_");
    s64.p = dlsym(lib, "scipy_cblas_sgemm64_"), d64.p = dlsym(lib, "scipy_cblas_dgemm64_");
    if (!s64.p) s32.p = dlsym(lib, "cblas_sgemm"), d32.p = dlsym(lib, "cblas_dgemm");
    return config.p && set_threads.p && ((s64.p && d64.p) || (s32.p && d32.p));
}
const char *gemm_openblas_open(int threads, const char *path)
{
    const char *asked = getenv("OPENBLAS");
    if (!(asked ? open_at(asked) : open_at("libopenblas.so.0") || open_at(path))) return NULL;
    set_threads.f(threads);
    return config.f();
}

/* A matrix whose rows or columns are contiguous: its transpose flag and leading dimension. */
typedef struct lead {
    int trans;
    int64_t ld;
} lead;
static lead lead_of(int64_t rows, int64_t columns, int64_t rs, int64_t cs)
{
    if (cs == 1 || columns == 1) return (lead)
        {
            PLAIN
            , rows == 1 || rs < columns ? columns : rs
        };
    if (rs == 1 || rows == 1) return (lead){ TRANSPOSED, cs < rows ? rows : cs };
    return (lead){ 0, 0 };
}
bool gemm_openblas_takes(const gemm *g)
{
    return lead_of(g->m, g->k, g->am, g->ak).trans && lead_of(g->k, g->n, g->bk, g->bn).trans;
}
bool gemm_openblas(void *user, int64_t n)
{
    const gemm *g = user;
    lead a = lead_of(g->m, g->k, g->am, g->ak), b = lead_of(g->k, g->n, g->bk, g->bn);
    for (int64_t r = 0; r < n; r++)
        for (int64_t z = 0; z < g->batch; z++) {
            const void *x = (const char *)g->a + g->az[z] * (g->dtype == EG_F32 ? 4 : 8);
            const void *y = (const char *)g->b + g->bz[z] * (g->dtype == EG_F32 ? 4 : 8);
            void *c = (char *)g->c + z * g->m * g->n * (g->dtype == EG_F32 ? 4 : 8);
            int m = (int)g->m, w = (int)g->n, k = (int)g->k;
            if (s64.p && g->dtype == EG_F32)
                s64.f(ROW_MAJOR, a.trans, b.trans, m, w, k, 1, x, a.ld, y, b.ld, 0, c, w);
            else if (s64.p)
                d64.f(ROW_MAJOR, a.trans, b.trans, m, w, k, 1, x, a.ld, y, b.ld, 0, c, w);
            else if (g->dtype == EG_F32)
                s32.f(ROW_MAJOR, a.trans, b.trans, m, w, k, 1, x, (int)a.ld, y, (int)b.ld, 0, c, w);
            else
                d32.f(ROW_MAJOR, a.trans, b.trans, m, w, k, 1, x, (int)a.ld, y, (int)b.ld, 0, c, w);
        }
    return true;
}
