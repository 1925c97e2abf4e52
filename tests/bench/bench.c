/* bench.c: options, rounds, the table and the JSON lines. See bench.h. */
#include "bench.h"
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "usage: bench [--quick] [--case WORD] [--group WORD] [--type f32|f64] [--threads N]\n"
    "             [--rounds N] [--alone] [--processor-time] [--slow-mkl] [--json FILE]\n"
    "\n"
    "Contraction, small operations, rows and training, each compared with this machine's limits\n"
    "and with BLIS, OpenBLAS, NumPy and PyTorch where they are installed, one after another.\n"
    "Groups: attention projection batch square thin tccg move reduce network sdpa score module\n"
    "        capture tape rows train.\n"
    "  --quick      short rounds, about five minutes in all\n"
    "  --case WORD  only cases whose name contains WORD; --group, --type, --threads: only these\n"
    "  --rounds N   runs of each program (5; quick: 2)\n"
    "  --alone      eingrad only, for a profiler\n"
    "  --processor-time  measures processor time, for a machine that is busy; one thread only;\n"
    "               whole programs are timed by the clock\n"
    "  --slow-mkl   leaves MKL the kernels that it takes on processors that Intel did not make\n"
    "  --json FILE  one line per case as well, for tests/bench/report.py\n"
    "Environment: PYTHON (python3) runs the peers; OPENBLAS names a library\n"
    "(libopenblas.so.0, else the one inside NumPy).\n";

eg_ctx *bench_cx;
int bench_threads;
bool bench_quick, bench_slow_mkl;
static bool alone;
static int rounds;
static double slice; /* seconds for one contender in one round */
static const char *only_case, *only_group, *only_type, *program;
static FILE *json;
static probe limits;

/* Set in the environment by --processor-time, so that the peers' processes see it, too. */
static const char processor_time[] = "BENCH_PROCESSOR_TIME";
static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
double bench_now(void)
{
    return seconds_of(getenv(processor_time) ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC);
}
const char *bench_self(void) { return program; }
const char *bench_folder(void) { return BENCH_FOLDER; }
const char *bench_python(void)
{
    return getenv("PYTHON") && *getenv("PYTHON") ? getenv("PYTHON") : "python3";
}
bool bench_wanted(const char *group, const char *name, eg_dtype dtype)
{
    return (!only_case || strstr(name, only_case)) && (!only_group || !strcmp(group, only_group)) &&
           (!only_type || !strcmp(only_type, eg_type_name(dtype)));
}

/* -- measuring -------------------------------------------------------------------------------- */
enum { LONG_MS = 100 };
/* Returns the best seconds of a call in this turn; 0: it failed. The first call warms up, and
 * counts only if it takes LONG_MS. */
double bench_turn(const contender *c, double seconds, int64_t *calls)
{
    if (!c->run) {
        char line[128], reply[256];
        double best = 0;
        snprintf(line, sizeof line, "run %s %g", c->name, seconds);
        return bench_ask(c->peer ? c->peer : c->name, line, reply, sizeof reply) &&
                       sscanf(reply, "best %lf", &best) == 1
                   ? best
                   : 0;
    }
    double best = 0, start = bench_now();
    if (!c->run(c->user, 1)) return 0;
    double t = bench_now(), end = t + seconds;
    if (t - start > 1e-3 * LONG_MS) return t - start;
    do {
        double before = t;
        if (!c->run(c->user, *calls)) return 0;
        t = bench_now();
        double each = (t - before) / (double)*calls;
        /* too short for the clock: not counted */
        if (t - before < 2e-4 && *calls < 1 << 20) {
            *calls *= 2;
            continue;
        }
        if (best == 0 || each < best) best = each;
    } while (t < end || best == 0);
    return best;
}

static void print_time(FILE *to, double t)
{
    if (t < 1e-6)
        fprintf(to, "%7.0f ns", t * 1e9);
    else if (t < 1e-3)
        fprintf(to, "%7.2f µs", t * 1e6);
    else if (t < 1)
        fprintf(to, "%7.2f ms", t * 1e3);
    else
        fprintf(to, "%7.2f s ", t);
}
static void head(void)
{
    printf("\n%-70s %10s %8s %6s %6s  %5s %7s %8s %7s %7s  %6s\n", "case", "time", "GFLOP/s",
           "peak", "roof", "plan", "BLIS", "OpenBLAS", "NumPy", "PyTorch", "spread");
}
static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
/* Returns the median of over / under over the turns that both have; 0: there are none. */
static double paired(const double *over, const double *under)
{
    double all[ROUNDS];
    int n = 0;
    for (int q = 0; q < rounds; q++)
        if (over[q] > 0 && under[q] > 0) all[n++] = over[q] / under[q];
    qsort(all, (size_t)n, sizeof *all, ascending);
    return n ? (all[(n - 1) / 2] + all[n / 2]) / 2 : 0;
}
/* the peers with a column of their own */
static const struct {
    const char *name;
    int width;
} columns[] = { { "plan", 5 }, { "BLIS", 7 }, { "OpenBLAS", 8 }, { "NumPy", 7 }, { "PyTorch", 7 } };
enum { COLUMNS = sizeof columns / sizeof *columns };
static void ratio(int count, const contender *c, const result *r, const char *name, int width)
{
    for (int k = 1; k < count; k++)
        if (!strcmp(c[k].name, name) && r[k].best > 0) {
            printf(" %*.2f", width, paired(r[k].turn, r[0].turn));
            return;
        }
    printf(" %*s", width, "-");
}

void bench_case(const report *p, int count, const contender *list)
{
    static result r[CONTENDERS];
    double peaks[ROUNDS] = { 0 }; /* seconds of the case at the peak of each turn */
    int64_t calls[CONTENDERS];
    memset(r, 0, sizeof r);
    count = alone ? 1 : count;
    for (int k = 0; k < count; k++) calls[k] = 1;
    for (int q = 0; q < rounds; q++) {
        if (p->flop > 0) peaks[q] = p->flop / probe_peak(bench_threads, p->dtype == EG_F64);
        for (int k = 0; k < count; k++) {
            if (q > 0 && (r[k].best == 0 || (q > 1 && r[k].best > 0.5 && rounds < 15)))
                continue; /* it failed, or one turn takes long and few are requested */
            double t = bench_turn(&list[k], slice, &calls[k]);
            /* the first call of all gets its memory from the system */
            if (q == 0 && t > 1e-3 * LONG_MS) t = bench_turn(&list[k], slice, &calls[k]);
            r[k].turn[q] = t;
            if (t > 0 && (r[k].best == 0 || t < r[k].best)) r[k].best = t;
            if (t > r[k].worst) r[k].worst = t;
        }
    }
    if (r[0].best == 0) {
        fprintf(stderr, "bench: %s: %s\n", p->name, eg_error(bench_cx));
        exit(1);
    }
    double t = r[0].best, peak = limits.peak[p->dtype == EG_F64];
    double compute = p->flop / peak,
           memory = p->read + p->written > 0 ? probe_moved(&limits, p->read, p->written) : 0;
    const double roof = compute > memory ? compute : memory, share = paired(peaks, r[0].turn);
    printf("%-70.70s ", p->name);
    print_time(stdout, t);
    if (p->flop > 0)
        printf(" %8.2f %5.1f%%", p->flop / t * 1e-9, 100 * share);
    else
        printf(" %8s %6s", "-", "-");
    if (roof > 0)
        printf(" %5.1f%% ", 100 * roof / t);
    else
        printf(" %6s ", "-");
    for (int k = 0; k < COLUMNS; k++) ratio(count, list, r, columns[k].name, columns[k].width);
    printf("  %5.0f%%%s", 100 * (r[0].worst / t - 1), p->note ? " *" : "");
    for (int k = 1, q; k < count; k++) {
        for (q = 0; q < COLUMNS && strcmp(columns[q].name, list[k].name);) q++;
        if (q == COLUMNS && r[k].best > 0)
            printf("  %s %.2f", list[k].name, paired(r[k].turn, r[0].turn));
    }
    putchar('\n');
    fflush(stdout);
    if (!json) return;
    fprintf(json,
            "{\"group\":\"%s\",\"case\":\"%s\",\"type\":\"%s\",\"threads\":%d,\"seconds\":%.4g,"
            "\"spread\":%.3g,"
            "\"flop\":%.6g,\"read\":%.6g,\"written\":%.6g,"
            "\"peak\":%.4g,\"roof\":%.4g,\"memory_bound\":%s,\"note\":\"%s\",\"peers\":{",
            p->group, p->name, eg_type_name(p->dtype), bench_threads, t, r[0].worst / t - 1,
            p->flop, p->read, p->written, share, roof / t, memory > compute ? "true" : "false",
            p->note ? p->note : "");
    for (int k = 1, n = 0; k < count; k++)
        if (r[k].best > 0)
            fprintf(json, "%s\"%s\":{\"seconds\":%.4g,\"spread\":%.3g,\"ratio\":%.4g}",
                    n++ ? "," : "", list[k].name, r[k].best, r[k].worst / r[k].best - 1,
                    paired(r[k].turn, r[0].turn));
    fprintf(json, "}}\n");
    fflush(json);
}

/* -- whole programs --------------------------------------------------------------------------- */
double bench_shell(char *const *argv, char *last, size_t room)
{
    int up[2], status;
    if (pipe(up)) return -1;
    fflush(NULL);
    double t = seconds_of(CLOCK_MONOTONIC);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(up[1], 1), close(up[0]), close(up[1]);
        execvp(argv[0], argv);
        _exit(127);
    }
    close(up[1]);
    FILE *from = fdopen(up[0], "r");
    last[0] = 0;
    for (char line[1024]; from && fgets(line, sizeof line, from);) snprintf(last, room, "%s", line);
    if (from) fclose(from);
    last[strcspn(last, "\n")] = 0;
    bool bad = pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status);
    return bad ? -1 : seconds_of(CLOCK_MONOTONIC) - t;
}
void bench_wall(const char *group, const char *name, double own, double torch, const char *note)
{
    printf("%-70.70s ", name);
    print_time(stdout, own);
    printf(" %8s %6s %6s  %5s %7s %8s %7s", "-", "-", "-", "-", "-", "-", "-");
    if (torch > 0)
        printf(" %7.2f", torch / own);
    else
        printf(" %7s", "-");
    printf("  %s\n", note);
    if (json) {
        fprintf(json,
                "{\"group\":\"%s\",\"case\":\"%s\",\"type\":\"f32\",\"threads\":%d,\"seconds\":%."
                "4g,\"spread\":0,"
                "\"flop\":0,\"read\":0,\"written\":0,\"peak\":0,\"roof\":0,\"memory_bound\":false,"
                "\"note\":\"%s\",\"peers\":{",
                group, name, bench_threads, own, note);
        if (torch > 0) fprintf(json, "\"PyTorch\":{\"seconds\":%.4g,\"spread\":0}", torch);
        fprintf(json, "}}\n");
    }
}

/* -- the run ---------------------------------------------------------------------------------- */
static void processor(char *to, size_t room)
{
    static const char *const name[3] = { "model name\t", "cpu family\t", "model\t" };
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[2048], field[3][128] = { "unknown processor", "-", "-" };
    /* the first processor of the list */
    while (f && fgets(line, sizeof line, f) && *line != '\n')
        for (int k = 0; k < 3; k++)
            if (!strncmp(line, name[k], strlen(name[k])) && strchr(line, ':')) {
                snprintf(field[k], sizeof field[k], "%.120s", strchr(line, ':') + 2);
                field[k][strcspn(field[k], "\n")] = 0;
            }
    if (f) fclose(f);
    snprintf(to, room, "%s, family %s, model %s, %ld processors", field[0], field[1], field[2],
             sysconf(_SC_NPROCESSORS_ONLN));
}
static void limits_print(void)
{
    printf("limits, %d thread%s: f32 %.1f GFLOP/s, f64 %.1f GFLOP/s; copy, read, write in GB/s by "
           "footprint:",
           bench_threads, bench_threads > 1 ? "s" : "", limits.peak[0] * 1e-9,
           limits.peak[1] * 1e-9);
    for (int s = 0; s < LEVELS; s++)
        printf(" %g MB %.0f %.0f %.0f%s", limits.footprint[s] * 1e-6, limits.copy[s] * 1e-9,
               limits.read[s] * 1e-9, limits.write[s] * 1e-9, s < LEVELS - 1 ? ";" : "\n");
    if (!json) return;
    fprintf(json, "{\"limits\":%d,\"f32\":%.5g,\"f64\":%.5g,\"levels\":[", bench_threads,
            limits.peak[0], limits.peak[1]);
    for (int s = 0; s < LEVELS; s++)
        fprintf(json, "%s[%.4g,%.4g,%.4g,%.4g]", s ? "," : "", limits.footprint[s], limits.copy[s],
                limits.read[s], limits.write[s]);
    fprintf(json, "]}\n");
}
static const char *version(const char *peer)
{
    return bench_version(peer) ? bench_version(peer) : "missing";
}
static void introduce(void)
{
    char cpu[512], date[64];
    time_t now = time(NULL);
    processor(cpu, sizeof cpu);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    printf(
        "%s; %s\neingrad %s: %s\npeers: BLIS %s; OpenBLAS: %s; NumPy einsum(optimize=True) %s; "
        "PyTorch %s\n"
        "Best of %d turns; spread: how much worse the worst turn was. Under the peers: the median "
        "over the turns of their time /\n"
        "eingrad's; above 1, eingrad is faster. peak: the median share of the turn's peak. plan: "
        "the same through eg_plan_run into memory that is there already. *: "
        "the strides fit no gemm call, and\n"
        "BLIS or OpenBLAS had packed copies, made before the clock ran.\n"
        "PyTorch's MKL takes %s.%s\n",
        cpu, date, eg_version(), eg_kernel_info(), version("BLIS"), version("OpenBLAS"),
        version("NumPy"), version("PyTorch"), rounds,
        bench_mkl()[0] ? "the kernels that it takes on Intel's processors (tests/bench/mkl.c)"
                       : "the kernels that it chooses",
        getenv(processor_time) ? " Times are processor time." : "");
    if (json)
        fprintf(
            json,
            "{\"machine\":\"%s\",\"date\":\"%s\",\"eingrad\":\"%s\",\"kernel\":\"%s\",\"BLIS\":\"%"
            "s\","
            "\"OpenBLAS\":\"%s\",\"NumPy\":\"%s\",\"PyTorch\":\"%s%s\",\"rounds\":%d,\"quick\":%s}"
            "\n",
            cpu, date, eg_version(), eg_kernel_info(), version("BLIS"), version("OpenBLAS"),
            version("NumPy"), version("PyTorch"),
            bench_mkl()[0] ? ", MKL with the kernels for Intel's processors" : "", rounds,
            bench_quick ? "true" : "false");
}

/* An environment for reproducible results slows the peers down: OPENBLAS_CORETYPE=Haswell halved
 * the speed of OpenBLAS and NumPy. */
static const char *const held_back[] = {
    "OPENBLAS_CORETYPE",  "OPENBLAS_L2_SIZE", "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS",
    "MKL_DEBUG_CPU_TYPE", "MKL_CBWR",         "NPY_DISABLE_CPU_FEATURES",
    "OMP_WAIT_POLICY",    "GOMP_SPINCOUNT",   "KMP_BLOCKTIME",
};
static const char *value(int argc, char **argv, int *k)
{
    if (*k + 1 < argc) return argv[++*k];
    fprintf(stderr, "bench: %s needs a value\n%s", argv[*k], usage);
    exit(2);
}
int main(int argc, char **argv)
{
    int only_threads = 0;
    program = argv[0];
    if (argc == 4 && !strcmp(argv[1], "--to-goal"))
        return model_to_goal(atoi(argv[2]), atoi(argv[3]));
    if (argc == 5 && !strcmp(argv[1], "--serve"))
        return einsum_serve(argv[2], atoi(argv[3]), argv[4]);
    for (int k = 1; k < argc; k++) {
        const char *word = argv[k];
        if (!strcmp(word, "--quick"))
            bench_quick = true;
        else if (!strcmp(word, "--alone"))
            alone = true;
        else if (!strcmp(word, "--slow-mkl"))
            bench_slow_mkl = true;
        else if (!strcmp(word, "--processor-time"))
            setenv(processor_time, "1", 1);
        else if (!strcmp(word, "--case"))
            only_case = value(argc, argv, &k);
        else if (!strcmp(word, "--group"))
            only_group = value(argc, argv, &k);
        else if (!strcmp(word, "--type"))
            only_type = value(argc, argv, &k);
        else if (!strcmp(word, "--threads"))
            only_threads = atoi(value(argc, argv, &k));
        else if (!strcmp(word, "--rounds"))
            rounds = atoi(value(argc, argv, &k));
        else if (!strcmp(word, "--json")) {
            const char *path = value(argc, argv, &k);
            if (!(json = fopen(path, "w"))) {
                fprintf(stderr, "bench: %s cannot be written\n", path);
                return 1;
            }
        } else {
            bool help = !strcmp(word, "--help") || !strcmp(word, "-h");
            if (!help) fprintf(stderr, "bench: there is no option '%s'\n", word);
            fputs(usage, help ? stdout : stderr);
            return help ? 0 : 2;
        }
    }
    if (getenv(processor_time) && only_threads != 1) {
        fprintf(stderr, "bench: --processor-time adds the time of all threads: give --threads 1\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    for (size_t k = 0; k < sizeof held_back / sizeof *held_back; k++)
        if (getenv(held_back[k])) {
            printf("%s=%s is not passed on: the peers choose for themselves\n", held_back[k],
                   getenv(held_back[k]));
            unsetenv(held_back[k]);
        }
    rounds = rounds > ROUNDS ? ROUNDS : rounds > 0 ? rounds : bench_quick ? 2 : 5;
    slice = bench_quick ? 4e-3 : 3e-2;
    int first = only_threads ? only_threads : 1, last = only_threads ? only_threads : 2;
    for (bench_threads = first; bench_threads <= last; bench_threads++) {
        if (!alone) bench_peers_open(bench_threads);
        if (bench_threads == first) introduce();
        limits = (probe){ .peak = { 0 } };
        probe_run(&limits, bench_threads), probe_run(&limits, bench_threads);
        for (int d = 0; d < 2; d++) {
            eg_dtype dtype = d ? EG_F64 : EG_F32;
            if (only_type && strcmp(only_type, eg_type_name(dtype))) continue;
            bench_cx = eg_open(.threads = bench_threads, .dtype = dtype);
            eg_nograd(bench_cx, true);
            limits_print();
            printf("\n%s, %d thread%s", eg_type_name(dtype), bench_threads,
                   bench_threads > 1 ? "s" : "");
            head();
            einsum_cases(dtype);
            eg_nograd(bench_cx, false);
            if (dtype == EG_F32)
                attention_cases(), score_cases(), module_cases(), capture_cases(), model_cases();
            eg_close(bench_cx);
        }
        bench_peers_close();
    }
    if (json && fclose(json)) {
        fprintf(stderr, "bench: the JSON file could not be written\n");
        return 1;
    }
    return 0;
}
