/* blis.c: the micro-kernel for this processor, from BLIS: c[mr×nr] (+)= Σ_p a[p·mr + i] b[p·nr +
 * j]. No other file of the library includes blis.h.
 *
 * The family ("skx", "haswell", …) is chosen here, from CPUID: BLIS's table of processors is as old
 * as its release, and 0.9 falls back to plain C on a Zen 5. BLIS_ARCH_TYPE of the user takes
 * precedence if the processor can run it.
 *
 * HAVE_BLIS_KERNELS: BLIS's static library was found, and its kernels are linked by their names,
 * which blis.h declares. A kernel reads no context of BLIS, so BLIS is never initialised: its
 * initialisation calls malloc 340 times, aborts the process if one call fails, and reads and keeps
 * the environment.
 *
 * Without the static library (the shared one hides the kernels) the kernel is taken from BLIS's
 * context, which initialises BLIS: the family is passed in BLIS_ARCH_TYPE, which is set around that
 * call and restored; 0.9 reads a name there as 0 (skx), and aborts on a number that it was not
 * built for. The library can end the process only in this initialisation. BLIS's contexts are
 * structs that its inline functions read, so header and library must then be of one generation. If
 * a kernel fails its trial (a small product of integers), the plain C kernel is used. */
#include "contraction/contraction.h"
#include "contraction/blis_header.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The generation of the header: 1.0 has one list of all kernels, and no longer this macro. */
#if defined(BLIS_NUM_LEVEL3_UKRS)
#define GENERATION "0.9"
#else
#define GENERATION "1"
#endif

/* -- the instruction sets of the processor ---------------------------------------------------- */
typedef enum need { NOTHING, AVX, AVX_FMA, AVX2, AVX512, NEVER } need;
/* True if the processor has the instructions. */
static bool blis_has(need n)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();
    switch (n) {
    case NOTHING: return true;
    case AVX: return __builtin_cpu_supports("avx");
    case AVX_FMA: return __builtin_cpu_supports("avx") && __builtin_cpu_supports("fma");
    case AVX2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               blis_has(AVX2);
    case NEVER: return false;
    }
#endif
    return n == NOTHING;
}

/* The processor families for which this BLIS was built, the best first. A family that is not `own`
 * is used only if BLIS_ARCH_TYPE names it. */
typedef struct family {
    const char *name;
    int id;
    need need;
    bool own;
} family;
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
/* AArch64: every processor has the instructions of these kernels */
#if defined(BLIS_CONFIG_FIRESTORM)
    { "firestorm", BLIS_ARCH_FIRESTORM, NOTHING, true },
#endif
#if defined(BLIS_CONFIG_THUNDERX2)
    { "thunderx2", BLIS_ARCH_THUNDERX2, NOTHING, true },
#endif
#if defined(BLIS_CONFIG_CORTEXA57)
    { "cortexa57", BLIS_ARCH_CORTEXA57, NOTHING, true },
#endif
#if defined(BLIS_CONFIG_CORTEXA53)
    { "cortexa53", BLIS_ARCH_CORTEXA53, NOTHING, true },
#endif
    { "generic", BLIS_ARCH_GENERIC, NOTHING, false },
};
enum { FAMILIES = sizeof families / sizeof *families };

/* -- running a kernel ------------------------------------------------------------------------- */
#if defined(BLIS_NUM_LEVEL3_UKRS)
#define UKR_F32 sgemm_ukr_ft
#define UKR_F64 dgemm_ukr_ft
#define ARG_F32 float *
#define ARG_F64 double *
#else
typedef void (*ukr_any)(dim_t, dim_t, dim_t, const void *, const void *, const void *, const void *,
                        void *, inc_t, inc_t, const auxinfo_t *, const cntx_t *);
#define UKR_F32 ukr_any
#define UKR_F64 ukr_any
#define ARG_F32 void *
#define ARG_F64 void *
#endif
enum { PLAIN_MR = 8, PLAIN_NR = 4 };
#define REAL    float
#define UKR     UKR_F32
#define ARG     ARG_F32
#define NAME(x) blis_##x##_f32
#include "contraction/blis_of.h"
#define REAL    double
#define UKR     UKR_F64
#define ARG     ARG_F64
#define NAME(x) blis_##x##_f64
#include "contraction/blis_of.h"

/* -- the choice, made once per process --------------------------------------------------------- */
static const eg_kernel plain[2] = {
    { .name = "plain C", .mr = PLAIN_MR, .nr = PLAIN_NR, .run = blis_plain_f32 },
    { .name = "plain C", .mr = PLAIN_MR, .nr = PLAIN_NR, .run = blis_plain_f64 },
};
static eg_kernel chosen[2];
static eg_isa isa;
static char why[512];

#if HAVE_BLIS_KERNELS
/* Kernels by name, with the register blocks that are part of their names. Generations of BLIS
 * differ in the types of pointers, not in the call. */
typedef struct named {
    const char *family;
    void (*ukr)(void);
    int mr, nr;
    bool rows;
} named;
#define NAMED(family, name, mr, nr, rows)          \
    {                                              \
        family, (void (*)(void))name, mr, nr, rows \
    }
#define HASWELL(family)                                          \
    {                                                            \
        NAMED(family, bli_sgemm_haswell_asm_6x16, 6, 16, true),  \
            NAMED(family, bli_dgemm_haswell_asm_6x8, 6, 8, true) \
    }
#define PILEDRIVER(family)                                           \
    {                                                                \
        NAMED(family, bli_sgemm_piledriver_asm_16x3, 16, 3, false),  \
            NAMED(family, bli_dgemm_piledriver_asm_8x3, 8, 3, false) \
    }
#define ARMV8A(family)                                           \
    {                                                            \
        NAMED(family, bli_sgemm_armv8a_asm_8x12, 8, 12, false),  \
            NAMED(family, bli_dgemm_armv8a_asm_6x8, 6, 8, false) \
    }
static const named by_name[][2] = {
#if defined(BLIS_CONFIG_SKX) && defined(BLIS_KERNELS_SKX)
    { NAMED("skx", bli_sgemm_skx_asm_32x12_l2, 32, 12, false),
      NAMED("skx", bli_dgemm_skx_asm_16x14, 16, 14, false) },
#endif
#if defined(BLIS_KERNELS_HASWELL)
    HASWELL("haswell"),
    HASWELL("zen3"),
    HASWELL("zen2"),
    HASWELL("zen"),
#endif
#if defined(BLIS_CONFIG_PILEDRIVER) && defined(BLIS_KERNELS_PILEDRIVER)
    PILEDRIVER("excavator"),
    PILEDRIVER("steamroller"),
    PILEDRIVER("piledriver"),
#endif
#if defined(BLIS_CONFIG_SANDYBRIDGE) && defined(BLIS_KERNELS_SANDYBRIDGE)
    { NAMED("sandybridge", bli_sgemm_sandybridge_asm_8x8, 8, 8, false),
      NAMED("sandybridge", bli_dgemm_sandybridge_asm_8x4, 8, 4, false) },
#endif
#if defined(BLIS_CONFIG_PENRYN) && defined(BLIS_KERNELS_PENRYN)
    { NAMED("penryn", bli_sgemm_penryn_asm_8x4, 8, 4, false),
      NAMED("penryn", bli_dgemm_penryn_asm_4x4, 4, 4, false) },
#endif
#if defined(BLIS_KERNELS_ARMV8A)
    ARMV8A("firestorm"),
    ARMV8A("thunderx2"),
    ARMV8A("cortexa57"),
    ARMV8A("cortexa53"),
#endif
    { { .family = NULL }, { .family = NULL } },
};
static bool kernel_by_name(eg_kernel *kn, const char *name, bool f64)
{
    for (int k = 0; by_name[k][0].family; k++) {
        const named *n = &by_name[k][f64];
        if (strcmp(n->family, name) != 0) continue;
        *kn = (eg_kernel){ .name = name,
                           .mr = n->mr,
                           .nr = n->nr,
                           .rows = n->rows,
                           .run = f64 ? blis_run_f64 : blis_run_f32 };
        memcpy(&kn->ukr, &n->ukr, sizeof kn->ukr);
        return f64 ? blis_trial_f64(kn) : blis_trial_f32(kn);
    }
    return false;
}
#else
/* Takes the kernel of a type from BLIS's context. False if its register block has an unusual size,
 * or if it fails its trial. */
static bool kernel_of(eg_kernel *kn, const char *name, cntx_t *cntx, bool f64)
{
    num_t dt = f64 ? BLIS_DOUBLE : BLIS_FLOAT;
    *kn = (eg_kernel){ .name = name, .run = f64 ? blis_run_f64 : blis_run_f32, .cntx = cntx };
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
    if (!ukr || kn->mr < 1 || kn->nr < 1 || kn->mr > EG_KERNEL_SIDE || kn->nr > EG_KERNEL_SIDE)
        return false;
    /* BLIS may pad its packed panels; those of this library are not padded */
    if (bli_cntx_get_blksz_max_dt(dt, BLIS_MR, cntx) != kn->mr ||
        bli_cntx_get_blksz_max_dt(dt, BLIS_NR, cntx) != kn->nr)
        return false;
    return f64 ? blis_trial_f64(kn) : blis_trial_f32(kn);
}
#endif

static const family *family_of(int id)
{
    for (int k = 0; k < FAMILIES; k++)
        if (families[k].id == id) return &families[k];
    return NULL;
}
/* Returns the family that BLIS_ARCH_TYPE of the user names: by a number of BLIS's list, or by a
 * name, which 0.9 itself does not read; NULL if there is none. */
static const family *family_by_name(const char *text)
{
    char *end;
    errno = 0;
    long id = strtol(text, &end, 10);
    if (*text && !*end && !errno) return id >= 0 && id <= 1000 ? family_of((int)id) : NULL;
    for (int k = 0; k < FAMILIES; k++)
        if (strcmp(families[k].name, text) == 0) return &families[k];
    return NULL;
}

/* Returns the best family that the processor can run, or the one that BLIS_ARCH_TYPE names, if
 * it can be used. Writes to note why it cannot. */
static const family *family_wanted(const char *given, char *note, size_t size)
{
    const family *want = given ? family_by_name(given) : NULL;
    *note = 0;
    if (want && blis_has(want->need)) return want;
    if (given)
        snprintf(note, size,
                 want ? "; BLIS_ARCH_TYPE=%.32s was ignored, this processor cannot run it"
                      : "; BLIS_ARCH_TYPE=%.32s was ignored, this BLIS has no such family",
                 given);
    for (int k = 0; k < FAMILIES; k++)
        if ((families[k].own || families[k].id == BLIS_ARCH_GENERIC) && blis_has(families[k].need))
            return &families[k];
    return family_of(BLIS_ARCH_GENERIC);
}

#if HAVE_BLIS_KERNELS
#define BLIS_AT_RUN_TIME GENERATION
static const family *kernels_of(const family *want, eg_kernel *both, bool *other)
{
    *other = false;
    return kernel_by_name(&both[0], want->name, false) && kernel_by_name(&both[1], want->name, true)
               ? want
               : NULL;
}
#else
#define BLIS_AT_RUN_TIME bli_info_get_version_str()
/* Sets BLIS_ARCH_TYPE while BLIS reads it for the first time, then restores it. *other: BLIS was
 * initialised before, with another family. If BLIS has no generic family and the processor's is not
 * known here, BLIS chooses: it would abort on a number that it was not built for. */
static const family *kernels_of(const family *want, eg_kernel *both, bool *other)
{
#if defined(BLIS_CONFIG_GENERIC)
    const bool itself = false;
#else
    const bool itself = want->id == BLIS_ARCH_GENERIC;
#endif
    const char *given = getenv("BLIS_ARCH_TYPE");
    char number[16], *saved = given ? strdup(given) : NULL;
    snprintf(number, sizeof number, "%d", want->id);
    *other = false;
    if ((given && !saved) ||
        (itself ? unsetenv("BLIS_ARCH_TYPE") : setenv("BLIS_ARCH_TYPE", number, 1)) != 0) {
        free(saved);
        return NULL;
    }
    /* first, since it initialises BLIS, and 0.9 checks a family against its initialised list */
    cntx_t *cntx = (cntx_t *)bli_gks_query_cntx();
    int got = (int)bli_arch_query_id();
    if (saved)
        setenv("BLIS_ARCH_TYPE", saved, 1);
    else
        unsetenv("BLIS_ARCH_TYPE");
    free(saved);
    static const family unknown = { "of BLIS's own choice", -1, NOTHING, false };
    const family *now = family_of(got) ? family_of(got) : &unknown;
    *other = !itself && got != want->id;
    return cntx && kernel_of(&both[0], now->name, cntx, false) &&
                   kernel_of(&both[1], now->name, cntx, true)
               ? now
               : NULL;
}
#endif

/* Chooses the kernels of both types and the instruction set of the library's own kernels, and
 * records why. The plain C kernels are used if no others are available. */
static void choose(void)
{
    chosen[0] = plain[0];
    chosen[1] = plain[1];
    isa = blis_has(AVX512) ? EG_ISA_AVX512 : blis_has(AVX2) ? EG_ISA_AVX2 : EG_ISA_PLAIN;
    const char *version = BLIS_AT_RUN_TIME;
    if (!version || strncmp(version, GENERATION, strlen(GENERATION)) != 0 ||
        (GENERATION[0] == '1' && version[1] && version[1] != '.')) {
        snprintf(why, sizeof why,
                 "plain C, because BLIS %.32s at run time is not of the generation %s that eingrad "
                 "was built with",
                 version ? version : "(unknown)", GENERATION);
        return;
    }
    const char *given = getenv("BLIS_ARCH_TYPE");
    char note[160];
    const family *want = family_wanted(given, note, sizeof note);
    bool other;
    eg_kernel both[2];
    const family *now = kernels_of(want, both, &other);
    const bool obeyed = given && !*note;
    const char *because = other    ? "BLIS was running before eingrad and had chosen it"
                          : obeyed ? "BLIS_ARCH_TYPE asks for it"
                                   : "of what the processor can do";
    /* the library's own kernels also use the smaller instruction set that a user chose */
    const family *follow = now ? now : want;
    if (obeyed && follow->id >= 0)
        isa = follow->need == AVX512 ? isa
              : follow->need == AVX2 ? (isa > EG_ISA_AVX2 ? EG_ISA_AVX2 : isa)
                                     : EG_ISA_PLAIN;
    if (!now && want->id == BLIS_ARCH_GENERIC) {
        snprintf(why, sizeof why, "plain C, because %s%s",
                 obeyed ? "BLIS_ARCH_TYPE asks for generic" : because, note);
        return;
    }
    if (!now) {
        snprintf(why, sizeof why, "plain C, because the kernel %s of BLIS %.32s failed its trial%s",
                 want->name, version, note);
        return;
    }
    chosen[0] = both[0];
    chosen[1] = both[1];
    snprintf(why, sizeof why, "%s of BLIS %.32s (f32 %d×%d, f64 %d×%d), because %s%s", now->name,
             version, both[0].mr, both[0].nr, both[1].mr, both[1].nr, because, note);
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
