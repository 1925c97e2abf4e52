/* bench.c: options, rounds, the peers' process, the table and the JSON lines. See bench.h. */
#include "bench.h"
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "usage: bench [--quick] [--case WORD] [--group WORD] [--type f32|f64] [--threads N] [--rounds N] [--alone]\n"
    "             [--json FILE]\n"
    "\n"
    "Contraction, small operations, rows and training, each beside this machine's limits and beside BLIS, OpenBLAS, NumPy\n"
    "and PyTorch where they are, everybody in turn.\n"
    "Groups: attention projection batch square thin tccg move reduce network sdpa tape rows train.\n"
    "  --quick      short rounds, two minutes at most\n"
    "  --case WORD  only cases whose name contains WORD; --group, --type, --threads: only these\n"
    "  --rounds N   turns for everybody (5; quick: 2)\n"
    "  --alone      eingrad only, for a profiler\n"
    "  --json FILE  one line per case as well, for tests/bench/report.py\n"
    "Environment: PYTHON (python3) runs the peers; OPENBLAS names a library (libopenblas.so.0, else the one inside NumPy).\n";

eg_ctx *bench_cx;
int  bench_threads;
bool bench_quick;
static bool alone;
static int rounds;
static double slice;                            /* seconds of one contender in one round */
static const char *only_case, *only_group, *only_type, *program;
static FILE *json;
static probe limits;

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static void rest(double seconds)
{
    struct timespec t = { 0, (long)(seconds * 1e9) };
    if (seconds > 0) nanosleep(&t, NULL);
}
const char *bench_self(void) { return program; }
const char *bench_folder(void) { return BENCH_FOLDER; }
const char *bench_python(void) { return getenv("PYTHON") && *getenv("PYTHON") ? getenv("PYTHON") : "python3"; }
bool bench_wanted(const char *group, const char *name, eg_dtype dtype)
{
    return (!only_case || strstr(name, only_case)) && (!only_group || !strcmp(group, only_group)) &&
           (!only_type || !strcmp(only_type, eg_type_name(dtype)));
}

/* -- the peers: one process per number of threads, which answers each line with one ---------------------------------------- */
static struct { FILE *to, *from; pid_t pid; char hello[4096]; } peers;

static void peers_close(void)
{
    if (peers.to) fclose(peers.to);
    if (peers.from) fclose(peers.from);
    if (peers.pid > 0) waitpid(peers.pid, NULL, 0);
    peers.to = peers.from = NULL, peers.pid = 0;
}
static void peers_open(int threads)
{
    int down[2], up[2];
    char path[4096], number[16];
    peers.hello[0] = 0;
    snprintf(path, sizeof path, "%s/peers.py", bench_folder());
    snprintf(number, sizeof number, "%d", threads);
    if (pipe(down) || pipe(up)) return;
    fflush(NULL);
    peers.pid = fork();
    if (peers.pid == 0) {
        dup2(down[0], 0), dup2(up[1], 1);
        close(down[0]), close(down[1]), close(up[0]), close(up[1]);
        setenv("OMP_NUM_THREADS", number, 1), setenv("OPENBLAS_NUM_THREADS", number, 1), setenv("MKL_NUM_THREADS", number, 1);
        execlp(bench_python(), bench_python(), path, number, (char *)NULL);
        _exit(127);
    }
    close(down[0]), close(up[1]);
    peers.to = fdopen(down[1], "w"), peers.from = fdopen(up[0], "r");
    if (peers.pid < 0 || !bench_ask("hello", peers.hello, sizeof peers.hello)) peers.hello[0] = 0, peers_close();
}
bool bench_ask(const char *line, char *reply, size_t room)
{
    if (!peers.to || fprintf(peers.to, "%s\n", line) < 0 || fflush(peers.to) || !fgets(reply, (int)room, peers.from))
        return false;
    reply[strcspn(reply, "\n")] = 0;
    return true;
}
/* hello: "numpy 2.4 torch 2.15 openblas /path", "-" where missing */
bool bench_peers_file(const char *name, char *path, size_t room)
{
    char all[sizeof peers.hello], *at = NULL;
    memcpy(all, peers.hello, sizeof all);
    for (char *word = strtok_r(all, " ", &at); word; word = strtok_r(NULL, " ", &at)) {
        char *value = strtok_r(NULL, " ", &at);
        if (value && !strcmp(word, name) && strcmp(value, "-")) return snprintf(path, room, "%s", value) < (int)room;
    }
    return false;
}
bool bench_has(const char *peer)
{
    char version[256];
    return bench_peers_file(peer, version, sizeof version);
}

/* -- measuring ------------------------------------------------------------------------------------------------------------- */
static double turn(const contender *c, double seconds, int64_t *calls)     /* best seconds of a call in this turn; 0: it failed */
{
    if (!c->run) {
        char line[128], reply[256];
        double best = 0;
        snprintf(line, sizeof line, "run %s %g", c->name, seconds);
        return bench_ask(line, reply, sizeof reply) && sscanf(reply, "best %lf", &best) == 1 ? best : 0;
    }
    double best = 0, start = bench_now(), t = start;
    do {
        double before = t;
        if (!c->run(c->user, *calls)) return 0;
        t = bench_now();
        double each = (t - before) / (double)*calls;
        if (t - before < 2e-4 && *calls < 1 << 20) { *calls *= 2; continue; }   /* too short for the clock: not counted */
        if (best == 0 || each < best) best = each;
    } while (t - start < seconds || best == 0);
    return best;
}

static void print_time(FILE *to, double t)
{
    if (t < 1e-6) fprintf(to, "%7.0f ns", t * 1e9);
    else if (t < 1e-3) fprintf(to, "%7.2f µs", t * 1e6);
    else if (t < 1) fprintf(to, "%7.2f ms", t * 1e3);
    else fprintf(to, "%7.2f s ", t);
}
static void head(void)
{
    printf("\n%-70s %10s %8s %6s %6s  %5s %7s %8s %7s %7s  %6s\n", "case", "time", "GFLOP/s", "peak", "roof", "plan", "BLIS",
           "OpenBLAS", "NumPy", "PyTorch", "spread");
}
static void ratio(int count, const contender *c, const result *r, const char *name, int width)
{
    for (int k = 1; k < count; k++)
        if (!strcmp(c[k].name, name) && r[k].best > 0 && r[0].best > 0) {
            printf(" %*.2f", width, r[k].best / r[0].best);
            return;
        }
    printf(" %*s", width, "-");
}

void bench_case(const report *p, int count, const contender *list)
{
    result r[CONTENDERS] = { { 0, 0 } };
    int64_t calls[CONTENDERS];
    count = alone ? 1 : count;
    for (int k = 0; k < count; k++) calls[k] = 1;
    for (int q = 0; q < rounds; q++)
        for (int k = 0; k < count; k++) {
            if (q > 0 && (r[k].best == 0 || (q > 1 && r[k].best > 0.5)))
                continue; /* failed, or so slow that a third look adds nothing */
            double t = turn(&list[k], slice, &calls[k]);
            if (bench_threads > 1) rest(list[k].rest);
            if (t > 0 && (r[k].best == 0 || t < r[k].best)) r[k].best = t;
            if (t > r[k].worst) r[k].worst = t;
        }
    if (r[0].best == 0) { fprintf(stderr, "bench: %s: %s\n", p->name, eg_error(bench_cx)); exit(1); }
    double t = r[0].best, peak = limits.peak[p->dtype == EG_F64];
    double compute = p->flop / peak, memory = p->read + p->written > 0 ? probe_moved(&limits, p->read, p->written) : 0;
    double roof = compute > memory ? compute : memory;
    printf("%-70.70s ", p->name);
    print_time(stdout, t);
    if (p->flop > 0) printf(" %8.2f %5.1f%%", p->flop / t * 1e-9, 100 * compute / t); else printf(" %8s %6s", "-", "-");
    if (roof > 0) printf(" %5.1f%% ", 100 * roof / t); else printf(" %6s ", "-");
    ratio(count, list, r, "plan", 5), ratio(count, list, r, "BLIS", 7), ratio(count, list, r, "OpenBLAS", 8),
        ratio(count, list, r, "NumPy", 7), ratio(count, list, r, "PyTorch", 7);
    printf("  %5.0f%%%s\n", 100 * (r[0].worst / t - 1), p->note ? " *" : "");
    fflush(stdout);
    if (!json) return;
    fprintf(json,
            "{\"group\":\"%s\",\"case\":\"%s\",\"type\":\"%s\",\"threads\":%d,\"seconds\":%.4g,\"spread\":%.3g,"
            "\"flop\":%.6g,\"read\":%.6g,\"written\":%.6g,"
            "\"peak\":%.4g,\"roof\":%.4g,\"memory_bound\":%s,\"note\":\"%s\",\"peers\":{",
            p->group, p->name, eg_type_name(p->dtype), bench_threads, t, r[0].worst / t - 1, p->flop, p->read, p->written,
            compute / t, roof / t, memory > compute ? "true" : "false", p->note ? p->note : "");
    for (int k = 1, n = 0; k < count; k++)
        if (r[k].best > 0)
            fprintf(json, "%s\"%s\":{\"seconds\":%.4g,\"spread\":%.3g}", n++ ? "," : "", list[k].name, r[k].best,
                    r[k].worst / r[k].best - 1);
    fprintf(json, "}}\n");
    fflush(json);
}

/* -- whole programs -------------------------------------------------------------------------------------------------------- */
double bench_shell(char *const *argv, char *last, size_t room)
{
    int up[2], status;
    if (pipe(up)) return -1;
    fflush(NULL);
    double t = bench_now();
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
    return bad ? -1 : bench_now() - t;
}
void bench_wall(const char *group, const char *name, double own, double torch, const char *note)
{
    printf("%-70.70s ", name);
    print_time(stdout, own);
    printf(" %8s %6s %6s  %5s %7s %8s %7s", "-", "-", "-", "-", "-", "-", "-");
    if (torch > 0) printf(" %7.2f", torch / own); else printf(" %7s", "-");
    printf("  %s\n", note);
    if (json) {
        fprintf(json,
            "{\"group\":\"%s\",\"case\":\"%s\",\"type\":\"f32\",\"threads\":%d,\"seconds\":%.4g,\"spread\":0,"
            "\"flop\":0,\"read\":0,\"written\":0,\"peak\":0,\"roof\":0,\"memory_bound\":false,\"note\":\"%s\",\"peers\":{",
            group, name, bench_threads, own, note);
        if (torch > 0) fprintf(json, "\"PyTorch\":{\"seconds\":%.4g,\"spread\":0}", torch);
        fprintf(json, "}}\n");
    }
}

/* -- the run --------------------------------------------------------------------------------------------------------------- */
static void processor(char *to, size_t room)
{
    static const char *const name[3] = { "model name\t", "cpu family\t", "model\t" };
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[2048], field[3][128] = { "unknown processor", "-", "-" };
    while (f && fgets(line, sizeof line, f) && *line != '\n')  /* the first processor speaks for all */
        for (int k = 0; k < 3; k++)
            if (!strncmp(line, name[k], strlen(name[k])) && strchr(line, ':')) {
                snprintf(field[k], sizeof field[k], "%.120s", strchr(line, ':') + 2);
                field[k][strcspn(field[k], "\n")] = 0;
            }
    if (f) fclose(f);
    snprintf(to, room, "%s, family %s, model %s, %ld processors", field[0], field[1], field[2], sysconf(_SC_NPROCESSORS_ONLN));
}
static void limits_print(void)
{
    printf("limits, %d thread%s: f32 %.1f GFLOP/s, f64 %.1f GFLOP/s; copy, read, write in GB/s by footprint:", bench_threads,
           bench_threads > 1 ? "s" : "", limits.peak[0] * 1e-9, limits.peak[1] * 1e-9);
    for (int s = 0; s < LEVELS; s++)
        printf(" %g MB %.0f %.0f %.0f%s", limits.footprint[s] * 1e-6, limits.copy[s] * 1e-9, limits.read[s] * 1e-9,
               limits.write[s] * 1e-9, s < LEVELS - 1 ? ";" : "\n");
    if (!json) return;
    fprintf(json, "{\"limits\":%d,\"f32\":%.5g,\"f64\":%.5g,\"levels\":[", bench_threads, limits.peak[0], limits.peak[1]);
    for (int s = 0; s < LEVELS; s++)
        fprintf(json, "%s[%.4g,%.4g,%.4g,%.4g]", s ? "," : "", limits.footprint[s], limits.copy[s], limits.read[s],
                limits.write[s]);
    fprintf(json, "]}\n");
}
static void introduce(bool first)
{
    char cpu[512], numpy[256] = "missing", torch[256] = "missing", date[64];
    const char *openblas = gemm_openblas_version();
    time_t now = time(NULL);
    processor(cpu, sizeof cpu);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    bench_peers_file("numpy", numpy, sizeof numpy), bench_peers_file("torch", torch, sizeof torch);
    if (!first) return;
    openblas = openblas ? openblas : "missing";
    printf("%s; %s\neingrad %s: %s\npeers: BLIS %s; OpenBLAS: %s; NumPy einsum(optimize=True) %s; PyTorch %s\n"
           "Best of %d turns; spread: how much worse the worst turn was. Under the peers: their time / eingrad's; above 1, eingrad\n"
           "is faster. plan: the same through eg_plan_run into memory that is there already. *: the strides fit no gemm call, and\n"
           "BLIS or OpenBLAS had packed copies, made before the clock ran.\n",
           cpu, date, eg_version(), eg_kernel_info(), gemm_blis_version(), openblas, numpy, torch, rounds);
    if (json)
        fprintf(json,
                "{\"machine\":\"%s\",\"date\":\"%s\",\"eingrad\":\"%s\",\"kernel\":\"%s\",\"BLIS\":\"%s\","
                "\"OpenBLAS\":\"%s\",\"NumPy\":\"%s\",\"PyTorch\":\"%s\",\"rounds\":%d,\"quick\":%s}\n",
                cpu, date, eg_version(), eg_kernel_info(), gemm_blis_version(), openblas, numpy, torch, rounds,
                bench_quick ? "true" : "false");
}

/* An environment made for reproducible results holds the peers back: OPENBLAS_CORETYPE=Haswell halved OpenBLAS and NumPy. */
static const char *const held_back[] = {
    "OPENBLAS_CORETYPE",        "OPENBLAS_L2_SIZE",        "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",         "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE",  "MKL_CBWR",
    "NPY_DISABLE_CPU_FEATURES", "OMP_WAIT_POLICY",         "GOMP_SPINCOUNT",      "KMP_BLOCKTIME",
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
    if (argc == 3 && !strcmp(argv[1], "--to-goal")) return model_to_goal(atoi(argv[2]));
    for (int k = 1; k < argc; k++) {
        const char *word = argv[k];
        if (!strcmp(word, "--quick")) bench_quick = true;
        else if (!strcmp(word, "--alone")) alone = true;
        else if (!strcmp(word, "--case")) only_case = value(argc, argv, &k);
        else if (!strcmp(word, "--group")) only_group = value(argc, argv, &k);
        else if (!strcmp(word, "--type")) only_type = value(argc, argv, &k);
        else if (!strcmp(word, "--threads")) only_threads = atoi(value(argc, argv, &k));
        else if (!strcmp(word, "--rounds")) rounds = atoi(value(argc, argv, &k));
        else if (!strcmp(word, "--json")) {
            const char *path = value(argc, argv, &k);
            if (!(json = fopen(path, "w"))) { fprintf(stderr, "bench: %s cannot be written\n", path); return 1; }
        } else {
            bool help = !strcmp(word, "--help") || !strcmp(word, "-h");
            if (!help) fprintf(stderr, "bench: there is no option '%s'\n", word);
            fputs(usage, help ? stdout : stderr);
            return help ? 0 : 2;
        }
    }
    signal(SIGPIPE, SIG_IGN);
    for (size_t k = 0; k < sizeof held_back / sizeof *held_back; k++)
        if (getenv(held_back[k])) {
            printf("%s=%s is not passed on: the peers choose for themselves\n", held_back[k], getenv(held_back[k]));
            unsetenv(held_back[k]);
        }
    rounds = rounds > 0 ? rounds : bench_quick ? 2 : 5;
    slice = bench_quick ? 4e-3 : 3e-2;
    eg_kernel_info();                           /* before any other use of BLIS, which would choose for itself */
    int first = only_threads ? only_threads : 1, last = only_threads ? only_threads : 2;
    for (bench_threads = first; bench_threads <= last; bench_threads++) {
        if (!alone) peers_open(bench_threads);
        introduce(bench_threads == first);
        gemm_threads(bench_threads);
        limits = (probe){ .peak = { 0 } };
        probe_run(&limits, bench_threads), probe_run(&limits, bench_threads);
        for (int d = 0; d < 2; d++) {
            eg_dtype dtype = d ? EG_F64 : EG_F32;
            if (only_type && strcmp(only_type, eg_type_name(dtype))) continue;
            bench_cx = eg_open(.threads = bench_threads, .dtype = dtype);
            eg_nograd(bench_cx, true);
            limits_print();
            printf("\n%s, %d thread%s", eg_type_name(dtype), bench_threads, bench_threads > 1 ? "s" : "");
            head();
            einsum_cases(dtype);
            eg_nograd(bench_cx, false);
            if (dtype == EG_F32) attention_cases(), module_cases(), model_cases();
            eg_close(bench_cx);
        }
        peers_close();
    }
    if (json && fclose(json)) { fprintf(stderr, "bench: the JSON file could not be written\n"); return 1; }
    return 0;
}
