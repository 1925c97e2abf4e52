/* launcher.c: finds out which launcher started this process, and loads the module that calls MPI.
 * Neither the library nor a program links MPI, since MPI takes a tenth of a second to start: the
 * module is loaded, and MPI started, only if a launcher has set its variables in the
 * environment. */
#if HAVE_CONFIG_H
#include <config.h>
#endif
#include "ranks/ranks.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Makefile.am sets these to the folders of the installation. */
#ifndef EG_MODULES
#define EG_PREFIX  "/usr/local"
#define EG_BINDIR  "/usr/local/bin"
#define EG_LIBDIR  "/usr/local/lib"
#define EG_MODULES "/usr/local/lib/eingrad"
#endif
#define MODULE "libeingrad-mpi.so"

/* The environment variables in which launchers give the number of each process. */
static const struct launcher {
    const char *name, *rank, *ranks;
} launchers[] = {
    { "mpirun of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE" },
    { "mpiexec of MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE" },
    { "mpiexec of MPICH", "PMI_RANK", "PMI_SIZE" },
    { "srun with PMIx", "PMIX_RANK", "SLURM_STEP_NUM_TASKS" },
};

/* Returns the launcher, and sets this process's number and the number of processes; NULL if there
 * is no launcher, or if it started only one process. */
static const struct launcher *launcher_of(int *rank, int *ranks)
{
    for (size_t k = 0; k < sizeof launchers / sizeof *launchers; k++) {
        const char *a = getenv(launchers[k].rank), *b = getenv(launchers[k].ranks);
        if (!a || !b) continue;
        *rank = atoi(a), *ranks = atoi(b);
        if (*ranks > 1) return &launchers[k];
    }
    return NULL;
}

int eg_ranks_launched(int *rank)
{
    int one = 0, all = 1;
    const bool some = launcher_of(&one, &all) != NULL;
    if (rank) *rank = some ? one : 0;
    return some ? all : 1;
}

/* Loads the module from one folder. NULL if it is not there or cannot be loaded; *why may then
 * contain the reason. */
static void *load(const char *folder, char *why, size_t size)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/" MODULE, folder) >= sizeof path) return NULL;
    if (access(path, R_OK)) return NULL;
    /* MPI loads components of its own, which look up MPI's symbols, so these must be global */
    void *so = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    const char *error = so ? NULL : dlerror();
    if (!so) snprintf(why, size, "%s", error ? error : "it cannot be loaded");
    return so;
}
/* Sets out to the folder of the running program, where a build also has the module; false if it is
 * unknown. */
static bool program_folder(char *out, size_t size)
{
    const ssize_t n = readlink("/proc/self/exe", out, size - 1);
    out[n > 0 ? n : 0] = 0;
    char *slash = strrchr(out, '/');
    if (slash) *slash = 0;
    return slash != NULL;
}
/* Sets out to the folder of the shared library; false if that is unknown, or in a program that
 * contains the library. */
static bool library_folder(char *out, size_t size)
{
    Dl_info info;
    char path[PATH_MAX];
    if (!dladdr(launchers, &info) || !info.dli_fname || !strchr(info.dli_fname, '/') ||
        !realpath(info.dli_fname, path))
        return false;
    *strrchr(path, '/') = 0;
    return (size_t)snprintf(out, size, "%s", path) < size;
}
/* For an installation whose prefix is not configure's (make install prefix=…). If the folder ends
 * as that of libraries or of programs below the prefix does, loads the module from its place below
 * the prefix in front of that end. */
static void *load_moved(const char *folder, char *why, size_t size)
{
    static const char modules[] = EG_MODULES, *const ends[] = { EG_LIBDIR, EG_BINDIR, modules };
    const size_t prefix = strlen(EG_PREFIX), have = strlen(folder);
    for (int k = 0; k < 3; k++)
        if (strncmp(ends[k], EG_PREFIX "/", prefix + 1)) return NULL;
    for (int k = 0; k < 2; k++) {
        const char *end = ends[k] + prefix;
        const size_t n = strlen(end);
        char moved[4096];
        if (have < n || strcmp(folder + have - n, end)) continue;
        if ((size_t)snprintf(moved, sizeof moved, "%.*s%s", (int)(have - n), folder,
                             modules + prefix) < sizeof moved)
            return load(moved, why, size);
    }
    return NULL;
}
static void *load_module(char *why, size_t size)
{
    char folder[4096];
    const char *given = getenv("EINGRAD_MODULES");
    if (given && *given) return load(given, why, size);
    void *so = NULL;
    if (program_folder(folder, sizeof folder)) {
        so = load(folder, why, size);
        if (!so && !*why) so = load_moved(folder, why, size);
    }
    if (!so && !*why && library_folder(folder, sizeof folder)) so = load_moved(folder, why, size);
    return so || *why ? so : load(EG_MODULES, why, size);
}

/* The module's function fills the table; its rank and number of ranks must be those of the
 * launcher. */
bool eg__ranks_of_launcher(eg_ctx *cx, eg_ranks_table *table)
{
    int rank = 0, ranks = 1;
    const struct launcher *who = launcher_of(&rank, &ranks);
    if (!who) return true;
    char why[512] = "";
    void *so = load_module(why, sizeof why);
    if (!so) {
        const char *given = getenv("EINGRAD_MODULES");
        const char *where = given && *given ? given
                                            : "the program's folder, in that of the installation "
                                              "or in " EG_MODULES
                                              "; EINGRAD_MODULES names another folder";
        eg_fail_as(
            cx, EG_ERROR_UNSUPPORTED,
            "ranks: %s started %d process%s, but there is no MPI for them: " MODULE
            " %s %s (configure builds it where it finds MPI; ./quickstart mpi installs that)",
            who->name, ranks, ranks == 1 ? "" : "es", *why ? "cannot be loaded:" : "is not in",
            *why ? why : where);
        return false;
    }
    void *p = dlsym(so, EG_RANKS_MODULE);
    eg__ranks_module *open = NULL;
    memcpy(&open, &p, sizeof open); /* ISO C has no cast from void * to a function */
    const char *bad = p ? open(sizeof *table, table) : "the module is of another version";
    if (!bad && (table->ranks != ranks || table->rank != rank)) {
        /* launcher and library are of different MPIs: each process is alone in its world */
        snprintf(why, sizeof why,
                 "MPI says that this is rank %d of %d; is the launcher of another MPI than " MODULE
                 " was built with?",
                 table->rank, table->ranks);
        if (table->close) table->close(table->user);
        bad = why;
    }
    if (bad)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED, "ranks: %s started rank %d of %d, but %s", who->name,
                   rank, ranks, bad);
    return !bad;
}
