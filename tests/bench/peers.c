/* peers.c: the peers, each in a process that answers every line with one, and that is stopped
 * between its turns. Threads that spin between two products (OpenBLAS's for 30 ms, libgomp's for 5)
 * would otherwise take a core from the next peer's turn: on two cores and two threads the time of
 * the same product then varied by a factor of 0.5 to 2 from run to run. */
#include "bench.h"
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

typedef struct peer {
    const char *name;
    bool python;
    FILE *to, *from;
    pid_t pid;
    char version[512];
} peer;
static peer peers[] = { { .name = "NumPy", .python = true },
                        { .name = "PyTorch", .python = true },
                        { .name = "BLIS" },
                        { .name = "OpenBLAS" } };
enum { PEERS = sizeof peers / sizeof *peers };

const char *bench_mkl(void)
{
    static const char library[] = BENCH_BUILT "/mkl.so";
#if defined(__x86_64__)
    if (!bench_slow_mkl && !__builtin_cpu_is("intel") && !access(library, R_OK)) return library;
#endif
    return "";
}

static peer *find(const char *name)
{
    for (int k = 0; k < PEERS; k++)
        if (!strcmp(peers[k].name, name)) return &peers[k];
    return NULL;
}
const char *bench_version(const char *name)
{
    return find(name)->pid > 0 ? find(name)->version : NULL;
}

bool bench_ask(const char *name, const char *line, char *reply, size_t room)
{
    peer *p = find(name);
    if (p->pid <= 0) return false;
    kill(p->pid, SIGCONT);
    const bool good =
        fprintf(p->to, "%s\n", line) > 0 && !fflush(p->to) && fgets(reply, (int)room, p->from);
    kill(p->pid, SIGSTOP);
    if (good) reply[strcspn(reply, "\n")] = 0;
    return good;
}

static void close_one(peer *p)
{
    if (p->pid <= 0) return;
    kill(p->pid, SIGCONT);
    fclose(p->to), fclose(p->from);
    waitpid(p->pid, NULL, 0);
    p->pid = 0;
}
void bench_peers_close(void)
{
    for (int k = 0; k < PEERS; k++) close_one(&peers[k]);
}

static void open_one(peer *p, int threads, const char *library)
{
    int down[2], up[2];
    char path[4096], number[16];
    snprintf(path, sizeof path, "%s/peers.py", bench_folder());
    snprintf(number, sizeof number, "%d", threads);
    if (pipe(down) || pipe(up)) return;
    for (int k = 0; k < 2; k++)
        fcntl(down[k], F_SETFD, FD_CLOEXEC), fcntl(up[k], F_SETFD, FD_CLOEXEC);
    fflush(NULL);
    p->pid = fork();
    if (p->pid == 0) {
#if defined(__linux__)
        /* a process that is stopped does not see the end of its pipe */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
        dup2(down[0], 0), dup2(up[1], 1);
        setenv("OMP_NUM_THREADS", number, 1), setenv("OPENBLAS_NUM_THREADS", number, 1),
            setenv("MKL_NUM_THREADS", number, 1);
        if (p->python && *bench_mkl()) setenv("LD_PRELOAD", bench_mkl(), 1);
        if (p->python)
            execlp(bench_python(), bench_python(), path, p->name, number, (char *)NULL);
        else
            execl("/proc/self/exe", bench_self(), "--serve", p->name, number, library,
                  (char *)NULL);
        _exit(127);
    }
    close(down[0]), close(up[1]);
    p->to = fdopen(down[1], "w"), p->from = fdopen(up[0], "r");
    if (p->pid > 0 &&
        (!bench_ask(p->name, "hello", p->version, sizeof p->version) || !strcmp(p->version, "-")))
        close_one(p);
}
void bench_peers_open(int threads)
{
    char library[4096] = "-";
    for (int k = 0; k < PEERS; k++) {
        open_one(&peers[k], threads, library);
        if (k == 0) bench_ask("NumPy", "openblas", library, sizeof library);
    }
}
