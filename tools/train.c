/* eingrad train: a model on a task, on the user's pairs or on a text, from the first step or from a
 * checkpoint. */
#include "train.h"
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* -- the run ---------------------------------------------------------------------------------- */
static volatile sig_atomic_t stopped;
static void stop(int signal_number) { stopped = signal_number; }

/* The user data of the training loop's callback. */
typedef struct turn {
    const train *o;
    const char *path; /* of the checkpoint */
    progress g;
    double saved; /* seconds() when it was last saved */
    /* the step of this run that the file already had; a checkpoint of an earlier step does not
     * replace it */
    int64_t kept;
    bool log_failed;
} turn;

/* After each step: prints and logs it, saves if it is time to, and stops after a signal. */
static bool after_step(void *user, eg_trainer *t, const eg_progress *p)
{
    turn *u = user;
    u->log_failed = !progress_step(&u->g, t, p);
    bool due = u->o->every ? p->step % u->o->every == 0 : seconds() - u->saved >= 5;
    if (due && p->step > u->kept) {
        if (eg_trainer_save(t, u->path)) return true;
        u->saved = seconds();
    }
    return stopped || u->log_failed;
}

/* Prints a line with the options that differ from their defaults, if there are any. */
static void print_options(eg_trainer *t)
{
    const eg_trainer_args *o = eg_trainer_config(t);
    const char *text = eg_trainer_config_text(t), *between = "";
    for (; text && *text; text += strcspn(text, "\n"), text += *text == '\n', between = ", ")
        printf("%s%.*s", between, (int)strcspn(text, "\n"), text);
    if (strcmp(o->optimiser, "adam")) printf("%s%s", between, o->optimiser), between = ", ";
    if (o->weight_decay > 0) printf("%sweight decay %g", between, o->weight_decay), between = ", ";
    if (o->momentum > 0) printf("%smomentum %g", between, o->momentum), between = ", ";
    if (o->diversity > 0) printf("%sdiversity %g", between, o->diversity), between = ", ";
    char groups[GROUPS_SIZE];
    if (eg_opt_groups_write(o->groups, groups, sizeof groups))
        printf("%sgroups \"%s\"", between, groups), between = ", ";
    if (*between) putchar('\n');
}

/* Prints that the bytes of an archive of arrays are the symbols, if the text is one. */
static void print_archive(const char *path)
{
    if (has_ending(path, ".npz"))
        printf("%s: an archive, whose bytes are read as a text; tokens are read from a .npy file\n",
               path);
}

/* Prints the model and the data. */
static void print_run(eg_trainer *t, eg_ctx *cx, eg_ranks *r)
{
    const eg_trainer_args *o = eg_trainer_config(t);
    eg_data *d = eg_trainer_data(t);
    const eg_task *task =
        eg_data_pairs_text(d) || eg_data_is_text(d) ? NULL : eg_task_find(eg_data_name(d));
    bool text = eg_data_is_text(d);
    if (task)
        printf("%s: %s\n", task->name, task->about);
    else if (text && !strcmp(eg_data_unit(d), "token"))
        printf("%s: %lld tokens, numbers below %d, the last tenth unseen; context %lld\n",
               eg_data_name(d), (long long)eg_data_size(d), eg_data_symbols(d) - EG_FIRST,
               (long long)o->context);
    else if (text)
        printf("%s: %lld %ss, %d different one%s, the last tenth unseen; context %lld\n",
               eg_data_name(d), (long long)eg_data_size(d), eg_data_unit(d),
               eg_data_symbols(d) - EG_FIRST, eg_data_symbols(d) - EG_FIRST == 1 ? "" : "s",
               (long long)o->context);
    else
        printf("%s: %lld pairs, %d symbol%s\n", eg_data_name(d), (long long)eg_data_size(d),
               eg_data_symbols(d) - EG_FIRST, eg_data_symbols(d) - EG_FIRST == 1 ? "" : "s");
    if (text) print_archive(eg_data_name(d));
    printf("%s, %lld layer%s, d_model %lld, %lld head%s: %lld parameters; ", o->model,
           (long long)o->layers, o->layers == 1 ? "" : "s", (long long)o->d_model,
           (long long)o->heads, o->heads == 1 ? "" : "s",
           (long long)eg_params_size(eg_trainer_params(t)));
    printf("batch %lld, seed %llu, threads %d", (long long)o->batch, (unsigned long long)o->seed,
           eg_threads(cx, 0));
    const int64_t ranks = eg_ranks_count(r), blocks = (o->batch + o->block - 1) / o->block,
                  leaves = o->leaves < blocks ? o->leaves : blocks;
    if (ranks > 1) printf(", ranks %lld", (long long)ranks);
    if (ranks > leaves)
        printf("; %lld of them ha%s nothing to compute: a batch has %lld lea%s",
               (long long)(ranks - leaves), ranks - leaves == 1 ? "s" : "ve", (long long)leaves,
               leaves == 1 ? "f" : "ves");
    putchar('\n');
    print_options(t);
    eg_progress now = eg_trainer_progress(t);
    if (now.step) printf("resumed after step %lld\n", (long long)now.step);
    fflush(stdout);
}

/* A second interrupt ends the process at once (SA_RESETHAND). A terminal that is closed may send
 * SIGHUP twice. SIGHUP and SIGPIPE remain ignored if they were, as under nohup. */
static void on_signals(void (*handler)(int))
{
    static const struct {
        int number, flags;
        bool unless_ignored;
    } signals[] = {
        { SIGINT, (int)SA_RESETHAND, false },
        { SIGTERM, (int)SA_RESETHAND, false },
        { SIGHUP, 0, true },
        { SIGPIPE, 0, true },
    };
    for (size_t k = 0; k < sizeof signals / sizeof *signals; k++) {
        int number = signals[k].number, flags = signals[k].flags | SA_RESTART;
        struct sigaction was, act = { .sa_handler = handler, .sa_flags = flags };
        sigaction(number, NULL, &was);
        if (!signals[k].unless_ignored || was.sa_handler != SIG_IGN) sigaction(number, &act, NULL);
    }
}

/* Prints where the run can be resumed, and the command with the files that were given. */
static void print_resume_command(const turn *u, const eg_progress *p)
{
    const struct {
        const char *name, *value;
    } files[] = { { "best", u->o->best_given ? u->o->best : NULL },
                  { "log", u->o->log },
                  { "curve", u->o->curve } };
    if (p->step < u->kept)
        printf("stopped after step %lld; %s still has step %lld of this run; to go on:\n",
               (long long)p->step, u->path, (long long)u->kept);
    else
        printf("stopped after step %lld, saved in %s; to go on:\n", (long long)p->step, u->path);
    printf("  %s train --resume ", program());
    print_quoted(u->path);
    for (int k = 0; k < 3; k++) {
        if (!files[k].value) continue;
        printf(" --%s ", files[k].name);
        print_quoted(files[k].value);
    }
    if (u->o->every) printf(" --every %lld", (long long)u->o->every);
    putchar('\n');
}
/* When a run is resumed whose best model is not in the file of --best: saves it there if it is the
 * present one, else prints that it is not there. False after an error. */
static bool check_best(eg_trainer *t, const train *o, const eg_progress *p, bool alone)
{
    if (p->best_loss < 0 || !o->best || holds_step(t, o->best, p->best_step)) return true;
    if (p->best_step == p->step && alone) return !eg_trainer_save(t, o->best);
    printf(
        "%s does not have the model of step %lld, whose unseen loss is the smallest so far; only "
        "a smaller one will be saved there\n",
        o->best, (long long)p->best_step);
    return true;
}

/* -- ranks (mpirun) --------------------------------------------------------------------------- */
/* True if no rank has an error; else every rank has one, and rank 0 prints it. */
static bool no_rank_failed(eg_ranks *r, eg_ctx *cx, bool good)
{
    if (!good && !eg_error(cx)) {
        const char *kept = eg_ranks_rank(r) ? keep_errors(true) : NULL;
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s", kept ? kept : "it ended");
    }
    if (!eg_ranks_barrier(r)) return true;
    /* the rank with the error has already printed it */
    if (good && eg_ranks_rank(r) == 0) print_context_error(cx, NULL);
    return false;
}
/* Sets *result on all ranks to the `value` of rank 0. False after an error. */
static bool from_rank_0(eg_ranks *r, eg_ctx *cx, char value, char *result)
{
    char *all = calloc((size_t)eg_ranks_count(r), 1);
    if (!all) eg_fail_as(cx, EG_ERROR_MEMORY, "out of memory");
    const bool good = all && !eg_ranks_gather(r, &value, 1, all);
    *result = good ? all[0] : 0;
    free(all);
    return good;
}
/* The part of the ranks that neither print nor write. They take part in the steps and evaluations
 * of rank 0, and return when it ends. */
static int follow_rank_0(eg_ctx *cx, eg_trainer *t, const train *o, eg_ranks *r)
{
    eg_progress p;
    eg_score s;
    char goes_on, saves;
    if (!no_rank_failed(r, cx, true) || eg_trainer_distribute(t, r)) return EXIT_FAILURE;
    if (o->best && eg_trainer_keep_best(t, o->best)) return EXIT_FAILURE;
    if (!from_rank_0(r, cx, 0, &goes_on)) return EXIT_FAILURE;
    if (goes_on && eg_trainer_run(t, NULL, NULL, &p)) return EXIT_FAILURE;
    if (!no_rank_failed(r, cx, true) || !from_rank_0(r, cx, 0, &saves)) return EXIT_FAILURE;
    if (saves && eg_trainer_save(t, "")) return EXIT_FAILURE;
    if (!no_rank_failed(r, cx, true) || !from_rank_0(r, cx, 0, &goes_on)) return EXIT_FAILURE;
    return goes_on && eg_trainer_evaluate(t, &s) ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Trains, saves, evaluates and prints the result. Returns the exit status. */
static int train_and_show(eg_ctx *cx, eg_trainer *t, const train *o, const char *path,
                          const char *from, eg_ranks *r)
{
    turn u = { .o = o, .path = path };
    eg_data *d = eg_trainer_data(t);
    /* their path may come from the checkpoint only */
    bool of_file = eg_data_pairs_text(d) || eg_data_is_text(d);
    bool good = !from || !of_file || use_file("the data", eg_data_name(d), false);
    good = good && train_try_outputs(cx, t, o, path, from, &u.kept) &&
           progress_open(&u.g, t, o->log, o->resume != NULL);
    if (!no_rank_failed(r, cx, good)) return EXIT_FAILURE;
    if (eg_trainer_distribute(t, r)) return print_context_error(cx, NULL);
    print_run(t, cx, r);
    on_signals(stop);
    u.saved = seconds();
    u.g.curve = o->curve;
    eg_progress p = eg_trainer_progress(t);
    bool done =
        p.step >= p.steps || p.stopped || (u.g.goal > 0 && p.exact >= u.g.goal && !o->model.steps);
    if (done)
        printf("%s has nothing left to do: %s\n", path,
               p.step >= p.steps ? "all its steps are done"
               : p.stopped       ? "it was stopped early"
                                 : "its goal is reached");
    if (o->best && eg_trainer_keep_best(t, o->best)) return print_context_error(cx, NULL);
    const bool alone = eg_ranks_count(r) == 1;
    if (from && !check_best(t, o, &p, alone)) return print_context_error(cx, NULL);
    char goes_on;
    if (!from_rank_0(r, cx, !done, &goes_on)) return print_context_error(cx, NULL);
    int bad = done ? 0 : eg_trainer_run(t, after_step, &u, &p);
    if (bad || u.log_failed || stopped) progress_clear(&u.g);
    bool behind = stopped && p.step < u.kept, saves = !done && !behind;
    /* if --best cannot be written, the last step is saved nevertheless */
    p = eg_trainer_progress(t);
    if (bad && alone && eg_error_code(cx) == EG_ERROR_FILE && p.step > u.kept) {
        print_context_error(cx, NULL);
        eg_clear(cx);
        if (!eg_trainer_save(t, path)) print_resume_command(&u, &p);
    }
    if (!bad && (eg_ranks_barrier(r) || !from_rank_0(r, cx, saves, &goes_on))) bad = -1;
    if (!bad && saves) bad = eg_trainer_save(t, path);
    good = bad || progress_curve(&u.g, t);
    free(u.g.point);
    /* errors of run and save are known to all ranks; errors of what only rank 0 does are sent to
     * them here */
    if (!bad && !no_rank_failed(r, cx, good)) return EXIT_FAILURE;
    if (!bad && !from_rank_0(r, cx, !u.log_failed && !stopped, &goes_on)) bad = -1;
    if (bad) {
        if (eg_error(cx)) print_context_error(cx, NULL);
        progress_close(&u.g, NULL, NULL);
        return EXIT_FAILURE;
    }
    if (u.log_failed || stopped) {
        progress_close(&u.g, NULL, NULL);
        print_resume_command(&u, &p);
        return u.log_failed ? EXIT_FAILURE : 128 + stopped;
    }
    on_signals(SIG_DFL);
    eg_score s;
    if (eg_trainer_evaluate(t, &s)) return print_context_error(cx, NULL);
    if (!progress_close(&u.g, &s, &p)) return EXIT_FAILURE;
    if (!isfinite(s.loss))
        return print_error("the unseen loss is %g: the model's numbers are not finite", s.loss);
    return print_result(t, path, o->best, &s, &p, &u.g);
}

/* The best model of a text is saved: for FILE.safetensors in FILE-best.safetensors, or in the file
 * of --best. False after an error message. */
static bool best_of(eg_trainer *t, train *o, const char *to, char *out, size_t size)
{
    const char *slash = strrchr(to, '/'), *dot = strrchr(to, '.');
    const int stem = dot && dot > (slash ? slash + 1 : to) ? (int)(dot - to) : (int)strlen(to);
    if (o->best || !eg_data_is_text(eg_trainer_data(t)) || same_file(to, "/dev/null")) return true;
    snprintf(out, size, "%.*s-best%s", stem, to, to + stem);
    o->best = out;
    return use_file("--best", out, true);
}

/* Checks the options that depend on each other, then makes the trainer, from a checkpoint or
 * new. */
static int run_with(const command *c, int count, char **word, train *options)
{
    words w;
    parsed parse = read_options(c, count, word, options, &w);
    train o = *options;
    if (parse != PARSED) return parse == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    const char *task = w.count ? w.word[0] : NULL;
    if (w.count > 1) return print_error("train takes one task, and there is \"%s\" too", w.word[1]);
    if ((task != NULL) + (o.pairs != NULL) + (o.text != NULL) > 1)
        return print_error("train takes a task, --pairs or --text, not both %s and %s",
                           task ? task : o.pairs, o.text ? o.text : o.pairs);
    if (!task && !o.pairs && !o.text && o.resume && *o.resume && eg_task_find(o.resume) &&
        access(o.resume, F_OK)) {
        task = o.resume; /* train --resume reverse */
        o.resume = "";
    }
    bool needs_name = !o.resume || !(*o.resume || o.out);
    if (!task && !o.pairs && !o.text && needs_name)
        return print_error(
            "train needs a task or --pairs FILE or --text FILE; %s train --help lists the tasks",
            program());
    if (task && !train_task(task)) return EXIT_FAILURE;
    char path[4096] = "";
    if (task || o.pairs || o.text) train_file(&o, task, path, sizeof path);
    const char *from = !o.resume   ? NULL
                       : *o.resume ? o.resume
                       : o.out     ? o.out
                                   : path,
               *to = o.out  ? o.out
                     : from ? from
                            : path;
    if (!o.out && !use_file("the checkpoint", to, true)) return EXIT_FAILURE;
    if (from && !same_file(from, to) && !use_file("--resume", from, false)) return EXIT_FAILURE;
    if (from && !has_end("--resume", from)) return EXIT_FAILURE;
    if (o.curve && !is_picture(o.curve))
        return print_error("--curve must end in .png or .svg, not \"%s\"", o.curve);
    eg_ctx *cx = eg_open(.threads = (int)o.threads);
    eg_ranks *r = eg_ranks_open(.cx = cx);
    const bool follows = eg_ranks_rank(r) > 0;
    int status = EXIT_FAILURE;
    options->joined = true;
    if (!r) {
        /* all ranks know an error in what they do not agree on; other errors may be only this
         * rank's */
        if (!cx || eg_error_code(cx) != EG_ERROR_MISUSE) keep_errors(false);
        print_context_error(cx, NULL);
    } else {
        if (follows) on_signals(SIG_IGN); /* mpirun passes signals on; rank 0 decides */
        eg_trainer *t =
            from ? train_resumed(cx, &o, task, &w, c, from) : train_fresh(cx, &o, task, &w, c);
        char best[4096 + 8];
        o.best_given = o.best != NULL;
        const bool good = t && best_of(t, &o, to, best, sizeof best);
        if (no_rank_failed(r, cx, good))
            status = follows ? follow_rank_0(cx, t, &o, r) : train_and_show(cx, t, &o, to, from, r);
    }
    eg_ranks_close(r);
    eg_close(cx);
    return status;
}

/* For a rank that does not print and has not joined the group, since its options or files are
 * wrong: joins it, so that rank 0 can say why. If rank 0 has the same error, it has ended: mpirun
 * then ends this process, and under a launcher that does not, SIGALRM does. */
static void send_error_to_rank_0(void)
{
    enum { SECONDS = 20 };
    eg_ctx *cx = eg_open(.threads = 1);
    alarm(SECONDS);
    eg_ranks *r = eg_ranks_open(.cx = cx);
    if (r) no_rank_failed(r, cx, false);
    eg_ranks_close(r);
    eg_close(cx);
}
static int run(const command *c, int count, char **word)
{
    train o = { 0 };
    int rank;
    const int status = run_with(c, count, word, &o);
    eg_ranks_launched(&rank);
    if (status != EXIT_SUCCESS && !o.joined && rank) send_error_to_rank_0();
    free(o.group.item);
    return status;
}

/* Runs the checks of `train` in a process of `grid`, without training. */
int train_check(int count, char **word)
{
    train o = { 0 };
    char text[STORED_SIZE];
    words w;
    if (read_options(&train_command, count, word, &o, &w) != PARSED) return EXIT_FAILURE;
    if (w.count + (o.pairs != NULL) + (o.text != NULL) != 1)
        return print_error(
            "grid takes a task, --pairs FILE or --text FILE, one of them; %s train --help "
            "lists the "
            "tasks",
            program());
    eg_ctx *cx = eg_open(.threads = 1);
    eg_trainer *t = cx ? train_fresh(cx, &o, w.count ? w.word[0] : NULL, &w, &train_command) : NULL;
    const eg_saved has = t && o.out ? eg_trainer_saved(t, o.out) : (eg_saved){ .exists = false };
    const bool known = t && !eg_error(cx); /* else out of memory */
    if (t && !known)
        print_context_error(cx, o.out);
    else if (has.exists && !has.checkpoint)
        print_error("%s is no checkpoint of eingrad; --out FOLDER puts the grid elsewhere", o.out);
    else if (has.exists && !has.same)
        print_error("%s holds another run (%s); --out FOLDER puts the grid elsewhere", o.out,
                    saved_differs(&has, text));
    if (!cx) print_context_error(cx, NULL);
    eg_close(cx);
    free(o.group.item);
    return known && (!has.exists || has.same) ? EXIT_SUCCESS : EXIT_FAILURE;
}

static void list_tasks(FILE *file)
{
    fputs("\ntasks:\n", file);
    for (int k = 0; eg_task_at(k); k++)
        fprintf(file, "  %-10s %s\n", task_name(k), eg_task_at(k)->about);
}

const command train_command = {
    .name = "train",
    .usage = "TASK | --pairs FILE | --text FILE [OPTION...]",
    .about =
        "train a transformer on a task, on your own pairs or on a text, and show what it learnt",
    .more = "The symbols of pairs are characters, or words if blanks occur and most words of the\n"
            "outputs occur more than once.\n"
            "Under mpirun, ranks divide each step; the result is the same.\n"
            "One input in ten is held out; training stops when the goal is met on those. An\n"
            "interrupt saves a checkpoint and ends the run. A run replaces its own checkpoint;\n"
            "--force replaces any other.\n\n"
            "  train reverse --heads 2 --seed 1\n"
            "  train --pairs dates.tsv --model seq2seq --out dates.safetensors\n"
            "  train --text poems.txt --context 128\n"
            "  train --resume poems.safetensors --steps 3000\n",
    .options = train_options,
    .run = run,
    .list = list_tasks,
};
