/* blis.c: the micro-kernel of this processor: c[mr×nr] (+)= Σ_p a[p·mr + i] b[p·nr + j], from BLIS. No other file of the library
 * includes blis.h.
 *
 * BLIS picks a family ("skx", "haswell", …) when it is first used, by its own table of processors. That table is as old as the
 * release: 0.9 falls back to plain C on a Zen 5. So the family is chosen here, from CPUID, and handed to BLIS in BLIS_ARCH_TYPE,
 * set around BLIS's first look and restored. A user's own BLIS_ARCH_TYPE comes first, but is checked before BLIS sees it: 0.9
 * takes a name for 0 (skx), and aborts on a number it was not built for.
 * BLIS's contexts are structs that its inline functions read, so the library must be of the header's generation; a kernel that
 * fails its trial (a small product in integers) or a BLIS of another generation leaves the plain C kernel at the end. */
#include "contraction/contraction.h"
#include "contraction/blis_header.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The generation of the header: 1.0 made one list of all kernels, and with it went this macro. */
#if defined(BLIS_NUM_LEVEL3_UKRS)
#define GENERATION "0.9"
#else
#define GENERATION "1"
#endif

/* -- what the processor can do ------------------------------------------------------------------------------------------------- */
typedef enum need { NOTHING, AVX, AVX_FMA, AVX2, AVX512, NEVER } need;
static bool has(need n)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();
    switch (n) {
    case NOTHING: return true;
    case AVX:     return __builtin_cpu_supports("avx");
    case AVX_FMA: return __builtin_cpu_supports("avx") && __builtin_cpu_supports("fma");
    case AVX2:    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case AVX512:  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512vl") && has(AVX2);
    case NEVER:   return false;
    }
#endif
    return n == NOTHING;
}

/* The families that this BLIS was built with, the best first; those after `generic` are not chosen, only obeyed. */
typedef struct family { const char *name; int id; need need; bool own; } family;
static const family families[] = {
#if defined(BLIS_CONFIG_SKX)
    { "skx", BLIS_ARCH_SKX, AVX512, true },
#endif
#if defined(BLIS_CONFIG_HASWELL)
    { "haswell", BLIS_ARCH_HASWELL, AVX2, true },
#endif
#if defined(BLIS_CONFIG_ZEN3)
    { "zen3", BLIS_ARCH_ZEN3, AVX2, true },
#endif
#if defined(BLIS_CONFIG_ZEN2)
    { "zen2", BLIS_ARCH_ZEN2, AVX2, true },
#endif
#if defined(BLIS_CONFIG_ZEN)
    { "zen", BLIS_ARCH_ZEN, AVX2, true },
#endif
#if defined(BLIS_CONFIG_EXCAVATOR)
    { "excavator", BLIS_ARCH_EXCAVATOR, AVX_FMA, false },
#endif
#if defined(BLIS_CONFIG_STEAMROLLER)
    { "steamroller", BLIS_ARCH_STEAMROLLER, AVX_FMA, false },
#endif
#if defined(BLIS_CONFIG_PILEDRIVER)
    { "piledriver", BLIS_ARCH_PILEDRIVER, AVX_FMA, false },
#endif
#if defined(BLIS_CONFIG_SANDYBRIDGE)
    { "sandybridge", BLIS_ARCH_SANDYBRIDGE, AVX, true },
#endif
#if defined(BLIS_CONFIG_PENRYN)
    { "penryn", BLIS_ARCH_PENRYN, NOTHING, false },
#endif
#if defined(BLIS_CONFIG_BULLDOZER)
    { "bulldozer", BLIS_ARCH_BULLDOZER, NEVER, false },
#endif
#if defined(BLIS_CONFIG_KNL)
    { "knl", BLIS_ARCH_KNL, NEVER, false },
#endif
    { "generic", BLIS_ARCH_GENERIC, NOTHING, false },
};
enum { FAMILIES = sizeof families / sizeof *families };

/* -- running a kernel ---------------------------------------------------------------------------------------------------------- */
#if defined(BLIS_NUM_LEVEL3_UKRS)
#define UKR_F32 sgemm_ukr_ft
#define UKR_F64 dgemm_ukr_ft
#define ARG(type) type *
#else
typedef void (*ukr_any)(dim_t, dim_t, dim_t, const void *, const void *, const void *, const void *, void *, inc_t, inc_t,
                        const auxinfo_t *, const cntx_t *);
#define UKR_F32 ukr_any
#define UKR_F64 ukr_any
#define ARG(type) void *
#endif
#define RUN(name, type, ukr_type)                                                                                                  \
    static void name(const eg_kernel *kn, int64_t k, const void *a, const void *b, bool add, void *c, int64_t rs, int64_t cs)      \
    {                                                                                                                              \
        static const type one = 1, zero = 0;                                                                                       \
        auxinfo_t next;                                                                                                            \
        memset(&next, 0, sizeof next);                                                                                             \
        bli_auxinfo_set_next_ab((void *)a, (void *)b, &next);                                                                      \
        ukr_type ukr;                                                                                                              \
        memcpy(&ukr, &kn->ukr, sizeof ukr);                                                                                        \
        ukr(kn->mr, kn->nr, (dim_t)k, (ARG(type))&one, (ARG(type))a, (ARG(type))b, (ARG(type))(add ? &one : &zero), (ARG(type))c,  \
            (inc_t)rs, (inc_t)cs, &next, kn->cntx);                                                                                \
    }
RUN(run_f32, float, UKR_F32)
RUN(run_f64, double, UKR_F64)

enum { PLAIN_MR = 8, PLAIN_NR = 4 };
#define PLAIN(name, type)                                                                                                          \
    static void name(const eg_kernel *kn, int64_t k, const void *av, const void *bv, bool add, void *cv, int64_t rs, int64_t cs)   \
    {                                                                                                                              \
        const type *a = av, *b = bv;                                                                                               \
        type *c = cv, sum[PLAIN_NR][PLAIN_MR] = { { 0 } };                                                                         \
        (void)kn;                                                                                                                  \
        for (int64_t p = 0; p < k; p++, a += PLAIN_MR, b += PLAIN_NR)                                                              \
            for (int j = 0; j < PLAIN_NR; j++)                                                                                     \
                for (int i = 0; i < PLAIN_MR; i++) sum[j][i] += a[i] * b[j];                                                       \
        for (int j = 0; j < PLAIN_NR; j++)                                                                                         \
            for (int i = 0; i < PLAIN_MR; i++) {                                                                                   \
                type *to = c + i * rs + j * cs;                                                                                    \
                *to = add ? *to + sum[j][i] : sum[j][i];                                                                           \
            }                                                                                                                      \
    }
PLAIN(plain_f32, float)
PLAIN(plain_f64, double)

/* A product of small integers is exact in every order: the kernel must get it right to the bit. */
#define TRIAL(name, type)                                                                                                          \
    static bool name(const eg_kernel *kn)                                                                                          \
    {                                                                                                                              \
        enum { K = 5, SIDE = EG_KERNEL_SIDE };                                                                                     \
        _Alignas(64) type a[K * SIDE], b[K * SIDE], c[SIDE * SIDE];                                                                \
        for (int i = 0; i < K * SIDE; i++) { a[i] = (type)(i % 7 - 3); b[i] = (type)(i % 5 - 2); }                                 \
        int64_t rs = kn->rows ? kn->nr : 1, cs = kn->rows ? 1 : kn->mr;                                                            \
        for (int i = 0; i < SIDE * SIDE; i++) c[i] = 99;                                                                           \
        kn->run(kn, K, a, b, false, c, rs, cs);                                                                                    \
        kn->run(kn, K, a, b, true, c, rs, cs);                                                                                     \
        for (int i = 0; i < kn->mr; i++)                                                                                           \
            for (int j = 0; j < kn->nr; j++) {                                                                                     \
                type sum = 0;                                                                                                      \
                for (int p = 0; p < K; p++) sum += a[p * kn->mr + i] * b[p * kn->nr + j];                                          \
                if (c[i * rs + j * cs] != 2 * sum) return false;                                                                   \
            }                                                                                                                      \
        return true;                                                                                                               \
    }
TRIAL(trial_f32, float)
TRIAL(trial_f64, double)

/* -- the choice, once in a process --------------------------------------------------------------------------------------------- */
static const eg_kernel plain[2] = {
    { .name = "plain C", .mr = PLAIN_MR, .nr = PLAIN_NR, .run = plain_f32 },
    { .name = "plain C", .mr = PLAIN_MR, .nr = PLAIN_NR, .run = plain_f64 },
};
static eg_kernel chosen[2];
static eg_isa isa;
static char why[512];

static bool kernel_of(eg_kernel *kn, const char *name, cntx_t *cntx, bool f64)
{
    num_t dt = f64 ? BLIS_DOUBLE : BLIS_FLOAT;
    *kn = (eg_kernel){ .name = name, .run = f64 ? run_f64 : run_f32, .cntx = cntx };
    kn->mr = (int)bli_cntx_get_blksz_def_dt(dt, BLIS_MR, cntx);
    kn->nr = (int)bli_cntx_get_blksz_def_dt(dt, BLIS_NR, cntx);
#if defined(BLIS_NUM_LEVEL3_UKRS)
    void_fp ukr = bli_cntx_get_l3_nat_ukr_dt(dt, BLIS_GEMM_UKR, cntx);
    kn->rows = bli_cntx_l3_nat_ukr_prefers_rows_dt(dt, BLIS_GEMM_UKR, cntx);
#else
    void_fp ukr = bli_cntx_get_ukr_dt(dt, BLIS_GEMM_UKR, cntx);
    kn->rows = bli_cntx_ukr_prefers_rows_dt(dt, BLIS_GEMM_UKR, cntx);
#endif
    memcpy(&kn->ukr, &ukr, sizeof kn->ukr);
    if (!ukr || kn->mr < 1 || kn->nr < 1 || kn->mr > EG_KERNEL_SIDE || kn->nr > EG_KERNEL_SIDE) return false;
    /* panels as BLIS packs them may be padded; ours are not */
    if (bli_cntx_get_blksz_max_dt(dt, BLIS_MR, cntx) != kn->mr || bli_cntx_get_blksz_max_dt(dt, BLIS_NR, cntx) != kn->nr) return false;
    return f64 ? trial_f64(kn) : trial_f32(kn);
}

static const family *family_of(int id)
{
    for (int k = 0; k < FAMILIES; k++) if (families[k].id == id) return &families[k];
    return NULL;
}
/* A user's BLIS_ARCH_TYPE: a number of BLIS's list, or (more than 0.9 takes) a name. */
static const family *asked(const char *text)
{
    char *end;
    errno = 0;
    long id = strtol(text, &end, 10);
    if (*text && !*end && !errno) return id >= 0 && id <= 1000 ? family_of((int)id) : NULL;
    for (int k = 0; k < FAMILIES; k++) if (strcmp(families[k].name, text) == 0) return &families[k];
    return NULL;
}

static void choose(void)
{
    chosen[0] = plain[0];
    chosen[1] = plain[1];
    isa = has(AVX512) ? EG_ISA_AVX512 : has(AVX2) ? EG_ISA_AVX2 : EG_ISA_PLAIN;
    const char *version = bli_info_get_version_str();
    if (!version || strncmp(version, GENERATION, strlen(GENERATION)) != 0 || (GENERATION[0] == '1' && version[1] != '.')) {
        snprintf(why, sizeof why, "plain C, because BLIS %.32s at run time is not of the generation %s that eingrad was built with",
                 version ? version : "(unknown)", GENERATION);
        return;
    }
    const char *given = getenv("BLIS_ARCH_TYPE"), *because = "of what the processor can do";
    char note[160] = "";
    const family *want = NULL;
    if (given) {
        want = asked(given);
        if (want && has(want->need)) because = "BLIS_ARCH_TYPE asks for it";
        else {
            snprintf(note, sizeof note, want ? "; BLIS_ARCH_TYPE=%.32s was ignored, this processor cannot run it"
                                             : "; BLIS_ARCH_TYPE=%.32s was ignored, this BLIS has no such family", given);
            want = NULL;
        }
    }
    for (int k = 0; k < FAMILIES && !want; k++)
        if ((families[k].own || families[k].id == BLIS_ARCH_GENERIC) && has(families[k].need)) want = &families[k];

    /* The environment is changed for the time of BLIS's first look at it, and put back. */
    char number[16], *saved = given ? strdup(given) : NULL;
    snprintf(number, sizeof number, "%d", want->id);
    bool set = (!given || saved) && setenv("BLIS_ARCH_TYPE", number, 1) == 0;
    if (!set) {
        free(saved);
        snprintf(why, sizeof why, "plain C, because the environment had no room for BLIS_ARCH_TYPE");
        return;
    }
    cntx_t *cntx = (cntx_t *)bli_gks_query_cntx();       /* first: it starts BLIS, and 0.9 checks a family against its started list */
    int got = (int)bli_arch_query_id();
    if (saved) setenv("BLIS_ARCH_TYPE", saved, 1);
    else unsetenv("BLIS_ARCH_TYPE");
    free(saved);

    const char *name = want->name;
    if (got != want->id) {
        const family *has_now = family_of(got);
        name = has_now ? has_now->name : "of BLIS's own choice";
        because = "BLIS was running before eingrad and had chosen it";
    }
    eg_kernel f32, f64;
    if (!cntx || !kernel_of(&f32, name, cntx, false) || !kernel_of(&f64, name, cntx, true)) {
        snprintf(why, sizeof why, "plain C, because the kernel %s of BLIS %.32s failed its trial%s", name, version, note);
        return;
    }
    chosen[0] = f32;
    chosen[1] = f64;
    /* our own small kernels follow a user's choice of a smaller instruction set */
    const family *now = family_of(got);
    if (given && !*note && now)
        isa = now->need == AVX512 ? isa : now->need == AVX2 ? (isa > EG_ISA_AVX2 ? EG_ISA_AVX2 : isa) : EG_ISA_PLAIN;
    snprintf(why, sizeof why, "%s of BLIS %.32s (f32 %d×%d, f64 %d×%d), because %s%s", name, version, f32.mr, f32.nr, f64.mr, f64.nr,
             because, note);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
const eg_kernel *eg__kernel(eg_dtype dtype)
{
    pthread_once(&once, choose);
    return &chosen[dtype == EG_F64];
}
eg_isa eg__kernel_isa(void)
{
    pthread_once(&once, choose);
    return isa;
}
const char *eg__kernel_why(void)
{
    pthread_once(&once, choose);
    return why;
}
