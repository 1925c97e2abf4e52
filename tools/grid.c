/* eingrad grid: runs `train` with several seeds and values of options, several runs at a time, each
 * in a separate process, and prints a table of their results. The folder of the grid holds a
 * checkpoint and a log for each run, named by its values. The result of a finished run is read from
 * its log; an interrupted run continues from its checkpoint. */
#include "grid.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

typedef struct grid {
    const char *seeds, *out;
    int64_t jobs;
    bool runs;
} grid;
#define AT(member) offsetof(grid, member)
static const option options[] = {
    { 0, "seeds", TEXT, "N|N,N,...", "number of seeds from 0 on, or a list of seeds (default 5)",
      AT(seeds), 0, 0, false },
    { 0, "out", TEXT, "FOLDER", "for checkpoints and logs, created if missing (default TASK-grid)",
      AT(out), 0, 0, false },
    { 0, "jobs", INTEGER, "N", "runs at the same time (default: as many as cores)", AT(jobs), 1,
      1024, false },
    { 0, "runs", FLAG, NULL, "print a line for each run in the table, not for each setting",
      AT(runs), 0, 0, false },
    { 0 }
};

/* -- processes --------------------------------------------------------------------------------- */
/* Composes the words of `train` for a run, those of its files last. Returns their number. */
static int train_words(const plan *p, const grid_run *r, int threads, char (*text)[4096],
                       char **word)
{
    int n = 0, t = 0;
    if (p->task) word[n++] = (char *)p->task;
    for (int k = 0; k < p->fixeds; k++) word[n++] = p->fixed[k];
    for (int k = 0; k < p->axes; k++) {
        snprintf(text[t], sizeof text[t], "--%s=%s", p->axis[k].o->name,
                 p->axis[k].given[plan_value(p, r->setting, k)]);
        word[n++] = text[t++];
    }
    snprintf(text[t], sizeof text[t], "--seed=%lld", (long long)p->seed[r->seed]);
    word[n++] = text[t++];
    snprintf(text[t], sizeof text[t], "--threads=%d", threads);
    word[n++] = text[t++];
    memcpy(text[t], "--out=", 6);
    plan_path(p, r, "safetensors", text[t] + 6, sizeof text[t] - 6);
    word[n++] = text[t++];
    memcpy(text[t], "--log=", 6);
    plan_path(p, r, "jsonl", text[t] + 6, sizeof text[t] - 6);
    word[n++] = text[t++];
    if (r->begun) word[n++] = "--resume";
    return n;
}

/* the signal that stopped the grid, and how many such signals there were */
static volatile sig_atomic_t stopped, stops;
static void stop(int number) { stopped = number, stops++; }
static void wake(int number) { (void)number; }

/* The signals that end the wait for a run are blocked except during the wait (next_ended), so that
 * none is lost before it. `unblocked` is the mask without them. */
static sigset_t unblocked;
static void block_signals(void)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGCHLD };
    sigset_t some;
    sigemptyset(&some);
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        struct sigaction act = { .sa_handler = numbers[k] == SIGCHLD ? wake : stop };
        sigaction(numbers[k], &act, NULL);
        sigaddset(&some, numbers[k]);
    }
    sigprocmask(SIG_BLOCK, &some, &unblocked);
}

/* What a process does with a run: it checks whether its options are possible or whether its
 * checkpoint belongs to it, or it trains. */
typedef enum child_task { OPTIONS, CHECKPOINT, TRAINING } child_task;

static pid_t parent; /* the process of the grid */
/* In a separate process: the end of the grid's process, even by SIGKILL, ends this one by
 * SIGTERM. */
static void end_with_parent(void)
{
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) raise(SIGTERM); /* it ended before the call */
#endif
}

/* Does this in the separate process. Does not return. */
static void run_child(const plan *p, const grid_run *r, int threads, child_task what)
{
    char text[AXES_MOST + 4][4096], *word[2 * WORDS_MOST];
    const int n = train_words(p, r, threads, text, word), files = 2 + r->begun;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    if (what == TRAINING) sigprocmask(SIG_SETMASK, &unblocked, NULL);
    end_with_parent();
    if (!freopen("/dev/null", "w", stdout)) _exit(EXIT_FAILURE);
    const int status = what == TRAINING
                           ? train_command.run(&train_command, n, word)
                           : train_check(n - (what == OPTIONS ? files : r->begun), word);
    fflush(NULL);
    _exit(status);
}

/* Checks the options of the first run of each setting, or each checkpoint that exists. False after
 * printing the first error. */
static bool all_possible(const plan *p, child_task what)
{
    for (int k = 0; k < p->runs; k++) {
        if (what == OPTIONS ? p->run[k].seed > 0 : !p->run[k].begun) continue;
        int status = -1;
        fflush(NULL);
        const pid_t process = fork();
        if (process == 0) run_child(p, &p->run[k], 1, what);
        while (process > 0 && waitpid(process, &status, 0) < 0 && errno == EINTR) continue;
        if (process < 0)
            return print_error("no process can be started: %s", strerror(errno)), false;
        if (!WIFEXITED(status)) return print_error("grid: a process was ended by a signal"), false;
        if (WEXITSTATUS(status)) return false;
    }
    return true;
}

/* Starts a process for the run, whose standard error is read through a pipe. */
static bool run_begin(const plan *p, grid_run *r, int threads) /* false after an error message */
{
    int ends[2];
    if (pipe(ends)) return print_error("no pipe can be opened: %s", strerror(errno)), false;
    fflush(NULL);
    r->process = fork();
    if (r->process == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        run_child(p, r, threads, TRAINING);
    }
    close(ends[1]);
    r->said = ends[0];
    if (r->process > 0) return true;
    close(ends[0]);
    return print_error("no process can be started: %s", strerror(errno)), false;
}

static void print_run(const grid_run *r)
{
    const outcome *o = &r->result;
    if (o->reached)
        printf("%s: the goal after %.0f steps, %.1f s\n", r->name, o->step, o->seconds);
    else
        printf("%s: %.0f steps, %.1f s, unseen loss %.4g%s\n", r->name, o->step, o->seconds,
               o->unseen, o->finished ? "" : ", unfinished");
    fflush(stdout);
}

/* Stores the exit status of a process and prints its messages. */
static void run_ended(eg_ctx *cx, const plan *p, grid_run *r, int status)
{
    char text[2048];
    ssize_t n = read(r->said, text, sizeof text - 1);
    close(r->said);
    r->process = 0;
    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    r->begun = true;
    const bool good = WIFEXITED(status) && !WEXITSTATUS(status),
               unreadable = good && !grid_read_log(cx, p, r); /* it has said why */
    if (good && !unreadable && r->result.finished) {
        print_run(r);
        return;
    }
    if (stopped) return;
    r->failed = true;
    if (unreadable) return;
    const char *why = strncmp(text, "eingrad: ", 9) ? text : text + 9;
    if (WIFSIGNALED(status))
        print_error("%s: ended by signal %d", r->name, WTERMSIG(status));
    else
        print_error("%s: %s", r->name, *why ? why : "it ended without a result");
}

/* Waits until a run ends; returns its process, −1 without one. A terminal sends a signal to all
 * processes; a signal to this process alone is passed on, each once, since train saves a checkpoint
 * at the first and ends at the second. */
static pid_t next_ended(const plan *p, int *status)
{
    static sig_atomic_t passed;
    for (;;) {
        const pid_t process = waitpid(-1, status, WNOHANG);
        if (process) return process;
        sigsuspend(&unblocked);
        for (int k = 0; passed != stops && k < p->runs; k++)
            if (p->run[k].process > 0) kill(p->run[k].process, SIGTERM);
        passed = stops;
    }
}

/* Runs all runs that are not finished, `jobs` at a time. False after an error that ends the
 * grid. */
static bool run_all(eg_ctx *cx, plan *p, int jobs, int threads)
{
    int next = 0, busy = 0;
    bool good = true;
    while (busy || (good && !stopped && next < p->runs)) {
        if (good && !stopped && busy < jobs && next < p->runs) {
            grid_run *r = &p->run[next++];
            if (r->result.finished) continue;
            good = run_begin(p, r, threads);
            busy += good;
            continue;
        }
        int status;
        const pid_t process = next_ended(p, &status);
        if (process < 0) break;
        for (int k = 0; k < p->runs; k++)
            if (p->run[k].process == process) run_ended(cx, p, &p->run[k], status), busy--;
    }
    return good;
}

/* -- the command ------------------------------------------------------------------------------- */
/* False after an error message. */
static bool make_folder(const plan *p)
{
    struct stat s;
    if (mkdir(p->folder, 0777) && errno != EEXIST)
        return print_error("--out %s: %s", p->folder, strerror(errno)), false;
    if (stat(p->folder, &s) || !S_ISDIR(s.st_mode))
        return print_error("--out %s is no folder", p->folder), false;
    return true;
}

/* Options and checkpoints of all runs are checked before the first one starts. */
static int run_grid(eg_ctx *cx, plan *p, const grid *o)
{
    int left = 0, failed = 0;
    parent = getpid();
    signal(SIGCHLD, SIG_DFL); /* processes whose end the caller ignores cannot be waited for */
    if (!all_possible(p, OPTIONS) || !make_folder(p)) return EXIT_FAILURE;
    for (int k = 0; k < p->runs; k++)
        if (!grid_read_log(cx, p, &p->run[k])) return EXIT_FAILURE;
    if (!all_possible(p, CHECKPOINT)) return EXIT_FAILURE;
    for (int k = 0; k < p->runs; k++) left += !p->run[k].result.finished;
    const int cores = (int)sysconf(_SC_NPROCESSORS_ONLN), most = o->jobs ? (int)o->jobs : cores,
              jobs = left < most ? left : most, threads = jobs && jobs < cores ? cores / jobs : 1;
    printf("%d run%s in %s, %d of them finished", p->runs, p->runs == 1 ? "" : "s", p->folder,
           p->runs - left);
    if (left) printf("; %d at a time", jobs);
    printf("\n");
    fflush(stdout);
    block_signals();
    const bool good = run_all(cx, p, jobs, threads);
    sigprocmask(SIG_SETMASK, &unblocked, NULL);
    for (int k = 0; k < p->runs; k++) failed += p->run[k].failed;
    if (stopped) {
        printf("stopped; the same command continues\n");
        return 128 + stopped;
    }
    putchar('\n');
    if (!good || !grid_table(p, o->runs)) return EXIT_FAILURE;
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* True unless mpirun or the like has started several processes; then the first prints a message. */
static bool alone(void)
{
    int rank;
    if (eg_ranks_launched(&rank) == 1) return true;
    if (rank == 0)
        print_error("grid starts a process for each run (--jobs); start it once, without mpirun");
    return false;
}
static int run(const command *c, int count, char **word)
{
    grid o = { 0 };
    words w;
    static plan p;
    char **own = calloc((size_t)count + 1, sizeof *own);
    int owns = 0, status = EXIT_FAILURE;
    if (!own) return print_error("out of memory");
    const bool sorted = plan_words(&p, count, word, own, &owns);
    const parsed parse = sorted ? read_options(c, owns, own, &o, &w) : REFUSED;
    if (parse == HELPED) status = EXIT_SUCCESS;
    if (parse == PARSED && w.count > 1)
        print_error("grid takes one task, and there is \"%s\" too", w.word[1]);
    if (parse == PARSED && w.count <= 1 && plan_seeds(&p, o.seeds)) {
        p.task = w.count ? w.word[0] : NULL;
        plan_folder(&p, o.out);
        eg_ctx *cx = eg_open(.threads = 1);
        if (!cx)
            print_context_error(cx, NULL);
        else if (alone() && plan_runs(&p))
            status = run_grid(cx, &p, &o);
        eg_close(cx);
    }
    free(p.run);
    free(own);
    return status;
}

const command grid_command = {
    .name = "grid",
    .usage = "TASK | --pairs FILE | --text FILE [OPTION VALUE,VALUE...]",
    .about = "train with several seeds and values of options, side by side: a table of medians",
    .more =
        "Takes the options of train; one that is a number or a choice may have several values.\n"
        "Each run has the bits that train alone gives it. The same command, given again, does the\n"
        "runs that are not finished and prints the table: the median (smallest-largest) of steps\n"
        "and seconds, over the runs that reached the goal (over all if none did).\n\n"
        "  grid reverse --seeds 8 --lr 1e-3,3e-3 --heads 2,4\n",
    .options = options,
    .run = run,
};
