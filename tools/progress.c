/* progress.c: shows and logs the progress of training: a bar on a terminal, lines elsewhere, JSON
 * lines in a file. */
#include "tools.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

double seconds(void)
{
    struct timespec t = { .tv_sec = 0 };
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* -- the log: one JSON object a line ---------------------------------------------------------- */
static void json_text(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            fprintf(f, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            fprintf(f, "\\u%04x", (unsigned)*s);
        else
            fputc(*s, f);
    }
    fputc('"', f);
}

static void log_field(const progress *g, const char *name, double x)
{
    if (isfinite(x))
        fprintf(g->log, ", \"%s\": %.16g", name, x);
    else
        fprintf(g->log, ", \"%s\": null", name); /* JSON has no NaN */
}

/* Flushes the log. False after a message that it cannot be written. */
static bool log_written(progress *g)
{
    if (!g->log) return true;
    errno = 0;
    if (!fflush(g->log) && !ferror(g->log)) return true;
    progress_clear(g);
    print_error("--log %s: %s", g->log_path,
                errno ? strerror(errno) : "not everything could be written");
    fclose(g->log);
    g->log = NULL;
    return false;
}

/* Opens the log to append to it. If it ends in half a line of a log, which a process wrote when it
 * was killed or the disk was full, that is removed first; if only the end of the line is missing,
 * that is added. NULL, with errno, after an error. */
static FILE *log_continued(const char *path)
{
    struct stat s;
    FILE *f = stat(path, &s) == 0 && S_ISREG(s.st_mode) ? fopen(path, "a+") : NULL;
    if (!f) return fopen(path, "a");
    int first = '\n', c = 0, open = 0; /* of the last line: its first byte, braces not closed */
    const long end = !fseek(f, 0, SEEK_END) ? ftell(f) : 0;
    long from = end;
    for (; from > 0; from--, first = c) {
        c = fseek(f, from - 1, SEEK_SET) ? EOF : fgetc(f);
        if (c == '\n' || c == EOF) break;
        open += (c == '{') - (c == '}');
    }
    const bool line = from < end && c != EOF && first == '{';
    fseek(f, 0, SEEK_END);
    if (line && !open)
        fputc('\n', f);
    else if (line && ftruncate(fileno(f), from) == 0)
        printf("%s ended in half a line, which is removed\n", path);
    return f;
}
/* Opens an empty log. If a file is there that may be written, the new one is made beside it and
 * takes its place when its first line is written (log_begun), so that the old one remains on a full
 * disk. NULL, with errno, after an error. */
static FILE *log_new(progress *g)
{
    struct stat s;
    if (stat(g->log_path, &s) || !S_ISREG(s.st_mode) || access(g->log_path, W_OK) ||
        !realpath(g->log_path, g->log_place))
        return fopen(g->log_path, "w");
    snprintf(g->log_beside, sizeof g->log_beside, "%s.XXXXXX", g->log_place);
    const int fd = mkstemp(g->log_beside);
    FILE *f = fd >= 0 && !fchmod(fd, s.st_mode & 0777) ? fdopen(fd, "w") : NULL;
    if (f) return f;
    const int error = errno;
    if (fd >= 0) close(fd), unlink(g->log_beside);
    *g->log_beside = 0;
    errno = error; /* the disk may be full, or the folder is one in which no file may be made */
    return error == ENOSPC || error == EDQUOT ? NULL : fopen(g->log_path, "w");
}
/* Flushes the first line. If it cannot be written, a log that is new is removed. False after a
 * message. */
static bool log_begun(progress *g, bool append)
{
    struct stat s;
    bool good = log_written(g);
    if (*g->log_beside) {
        if (good && rename(g->log_beside, g->log_place)) {
            print_error("--log %s: %s", g->log_path, strerror(errno));
            good = false;
        }
        if (!good) unlink(g->log_beside);
    } else if (!good && !append && stat(g->log_path, &s) == 0 && S_ISREG(s.st_mode)) {
        remove(g->log_path);
    }
    return good;
}
/* Writes the first line of the log, the run's options. */
static void log_options(const progress *g, eg_trainer *t, int64_t step)
{
    const eg_trainer_args *o = eg_trainer_config(t);
    fputs(LOG_BEGINS, g->log);
    json_text(g->log, eg_data_name(eg_trainer_data(t)));
    fputs(", \"model\": ", g->log);
    json_text(g->log, o->model);
    fputs(", \"config\": ", g->log);
    const char *config = eg_trainer_config_text(t);
    json_text(g->log, config ? config : "");
    fputs(", \"optimiser\": ", g->log);
    json_text(g->log, o->optimiser);
    char groups[GROUPS_SIZE];
    eg_opt_groups_write(o->groups, groups, sizeof groups);
    fputs(", \"groups\": ", g->log);
    json_text(g->log, groups);
    fputs(", \"text\": ", g->log);
    json_text(g->log, g->text ? g->unit : "");
    const struct {
        const char *name;
        double value;
    } fields[] = {
        { "layers", (double)o->layers },
        { "d_model", (double)o->d_model },
        { "heads", (double)o->heads },
        { "width", (double)o->width },
        { "dropout", o->dropout },
        { "lr", o->lr },
        { "batch", (double)o->batch },
        { "steps", (double)o->steps },
        { "seed", (double)o->seed },
        { "goal", o->goal },
        { "context", (double)o->context },
        { "block", (double)o->block },
        { "label_smoothing", o->smoothing },
        { "early_stop", (double)o->early_stop },
        { "parameters", (double)eg_params_size(eg_trainer_params(t)) },
        { "step", (double)step },
    };
    for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
        log_field(g, fields[k].name, fields[k].value);
    fputs("}\n", g->log);
}
bool progress_open(progress *g, eg_trainer *t, const char *log_path, bool append)
{
    const eg_trainer_args *o = eg_trainer_config(t);
    eg_progress now = eg_trainer_progress(t);
    *g = (progress){ .bar = is_terminal(stdout),
                     .log_path = log_path,
                     .first = now.step,
                     .goal = o->goal,
                     .start = seconds(),
                     .text = eg_data_is_text(eg_trainer_data(t)),
                     .unit = eg_data_unit(eg_trainer_data(t)) };
    g->sequences = -1;
    g->guess = log(eg_data_symbols(eg_trainer_data(t)));
    g->smooth = g->lowest = NAN;
    if (!log_path) return true;
    g->log = append ? log_continued(log_path) : log_new(g);
    if (!g->log) {
        print_error("--log %s: %s", log_path, strerror(errno));
        return false;
    }
    log_options(g, t, now.step);
    return log_begun(g, append);
}

/* Ends the log with the result on the test set, unless s is NULL. False after a message that it
 * cannot be written. */
bool progress_close(progress *g, const eg_score *s, const eg_progress *p)
{
    if (!g->log) return true;
    if (s) {
        fprintf(g->log, "{\"step\": %lld", (long long)p->step);
        log_field(g, "seconds", p->seconds);
        log_field(g, "unseen_sequences", (double)s->sequences);
        log_field(g, "exact", (double)s->exact);
        log_field(g, "unseen_tokens", (double)s->tokens);
        log_field(g, "right", (double)s->right);
        log_field(g, "unseen_loss", s->loss);
        fputs("}\n", g->log);
    }
    bool good = log_written(g);
    if (g->log && fclose(g->log) && good) {
        print_error("--log %s: %s", g->log_path, strerror(errno));
        good = false;
    }
    g->log = NULL;
    return good;
}

/* -- the screen ------------------------------------------------------------------------------- */
static void short_number(char *out, size_t size, double x) /* 41k */
{
    snprintf(out, size,
             x >= 1e6   ? "%.1fM"
             : x >= 1e3 ? "%.0fk"
                        : "%.0f",
             x >= 1e6   ? x / 1e6
             : x >= 1e3 ? x / 1e3
                        : x);
}

static void time_left(char *out, size_t size, double s)
{
    if (s < 100)
        snprintf(out, size, "%.0f s", ceil(s));
    else if (s < 6000)
        snprintf(out, size, "%.0f min", ceil(s / 60));
    else
        snprintf(out, size, "%.1f h", s / 3600);
}

/* Writes a line about a step. With the bar, the step itself is left out, so that the line fits 80
 * columns. */
static int write_step(const progress *g, const eg_progress *p, char *out, size_t size)
{
    char rate[16], left[16];
    double took = seconds() - g->start;
    short_number(rate, sizeof rate, p->tokens_per_second);
    time_left(left, sizeof left,
              took / (double)(p->step - g->first) * (double)(p->steps - p->step));
    if (g->text) {
        char unseen[32] = "";
        if (p->held_out_loss >= 0)
            snprintf(unseen, sizeof unseen, ", unseen %.3f", p->held_out_loss / log(2));
        return snprintf(out, size, "step %4lld  %.3f bits a %s%s  %s %ss/s  at most %s left",
                        (long long)p->step, p->loss / log(2), g->unit, unseen, rate, g->unit, left);
    }
    if (g->bar)
        return snprintf(out, size, "loss %.4f tokens %.1f%% sequences %.1f%% %s tokens/s <%s left",
                        p->loss, 100 * p->accuracy, 100 * g->sequences, rate, left);
    return snprintf(
        out, size,
        "step %4lld  loss %.4f  tokens %5.1f %%  sequences %5.1f %%  %s tokens/s  at most %s left",
        (long long)p->step, p->loss, 100 * p->accuracy, 100 * g->sequences, rate, left);
}

void progress_clear(const progress *g)
{
    if (g->bar && g->shown > 0) {
        fputs("\r\033[K", stdout);
        fflush(stdout);
    }
}

/* Draws the bar over the previous one: the share of the goal, or of the steps, that is reached. */
static void draw_bar(progress *g, const eg_progress *p, bool last)
{
    char text[256];
    int n = write_step(g, p, text, sizeof text), width = terminal_width(),
        columns_left = width - n - 4;
    double done = g->goal > 0 ? g->sequences / g->goal : (double)p->step / (double)p->steps;
    fputs("\r\033[K", stdout);
    if (columns_left >= 5) {
        columns_left = columns_left > 40 ? 40 : columns_left;
        int full = (int)(done >= 1 ? columns_left : done * columns_left);
        fputc('[', stdout);
        for (int k = 0; k < columns_left; k++) fputc(k < full ? '#' : '.', stdout);
        fputs("] ", stdout);
    }
    printf("%.*s%s", width - 1, text, last ? "\n" : "");
    fflush(stdout);
}

/* -- alarm: a loss or a gradient norm far above the mean of about the last 20 steps ------------ */
/* Mean and variance are weighted exponentially. A loss is unusual if it exceeds the mean by 8
 * deviations and by half the mean; a norm, which varies more, if it exceeds it by 8 deviations and
 * by three times the mean. */
enum { ALARM_AFTER = 30, ALARM_LINES = 5 };
/* True if x is unusual; afterwards x is part of the mean and variance. */
static bool is_unusual(moving_mean *u, double x, double least)
{
    double above = x - u->mean, share = u->count < 20 ? 1.0 / (double)(u->count + 1) : 0.05;
    bool yes =
        u->count >= ALARM_AFTER && above > 8 * sqrt(u->variance) && above > least * fabs(u->mean);
    u->was = u->mean, u->deviation = sqrt(u->variance);
    u->mean += share * above;
    u->variance = (1 - share) * (u->variance + share * above * above);
    u->count++;
    return yes;
}

static void print_alarm(progress *g, const eg_progress *p, const char *name, moving_mean *u,
                        double x, double least)
{
    if (!is_unusual(u, x, least)) return;
    if (g->log)
        fprintf(g->log, "{\"step\": %lld, \"alarm\": \"%s\", \"value\": %.16g, \"usual\": %.16g}\n",
                (long long)p->step, name, x, u->was);
    if (g->alarms++ >= ALARM_LINES) return;
    progress_clear(g);
    printf("step %4lld  ALARM: %s %.4g, where %.4g ± %.2g was usual%s\n", (long long)p->step, name,
           x, u->was, u->deviation, g->alarms == ALARM_LINES ? "; further ones are not shown" : "");
}

/* -- divergence ------------------------------------------------------------------------------- */
/* Raises an alarm if the mean loss of about the last 5 steps is above the lowest one by a quarter
 * of the improvement over a uniform guess plus a tenth of the loss of that guess; once for each
 * rise. */
static void print_divergence(progress *g, const eg_progress *p)
{
    g->smooth = isnan(g->smooth) ? p->loss : g->smooth + 0.2 * (p->loss - g->smooth);
    g->lowest = g->smooth >= g->lowest ? g->lowest : g->smooth;
    double margin = 0.25 * fmax(0, g->guess - g->lowest) + 0.1 * g->guess,
           above = g->smooth - g->lowest;
    bool was = g->risen;
    g->risen = above > (was ? margin / 2 : margin);
    if (was || !g->risen) return;
    if (g->log)
        fprintf(g->log,
                "{\"step\": %lld, \"alarm\": \"divergence\", \"value\": %.16g, \"usual\": %.16g}\n",
                (long long)p->step, g->smooth, g->lowest);
    progress_clear(g);
    printf(
        "step %4lld  ALARM: the loss rises: %.4g, after %.4g; a smaller --lr, a longer --warm-up "
        "or --clip may help\n",
        (long long)p->step, g->smooth, g->lowest);
}

/* -- heads and parameters, when the model is evaluated ---------------------------------------- */
/* A head is saturated if its mean largest weight is above 0.95, and dead if its weights are all
 * alike, as those of a head that has learnt nothing, or if no key is allowed. All such heads are
 * written to the log, the first of each kind is printed once. */
static const double SATURATED = 0.95, ALIKE = 0.9999;
/* Logs "heads", the measures of each head, and "parameters", the norms of each parameter and of its
 * last gradient. */
static void log_measures(progress *g, eg_trainer *t, const eg_head *head, int count)
{
    const eg_params *params = eg_trainer_params(t);
    const int heads = (int)eg_trainer_config(t)->heads;
    fputs(", \"heads\": {", g->log);
    for (int k = 0; k < count; k++) {
        fprintf(g->log, "%s\"%s.%d\": {\"rows\": %lld", k ? ", " : "",
                eg_trainer_attention(t, k / heads), k % heads, (long long)head[k].rows);
        log_field(g, "entropy", head[k].entropy);
        log_field(g, "largest", head[k].top);
        log_field(g, "previous", head[k].previous);
        log_field(g, "self", head[k].self);
        log_field(g, "first", head[k].first);
        fputc('}', g->log);
    }
    fputs("}, \"parameters\": {", g->log);
    for (int k = 0; eg_params_at(params, k); k++) {
        const eg_named *one = eg_params_at(params, k);
        eg_ctx *cx = eg_context(one->x);
        const eg_mark m = eg_push(cx);
        const bool was = eg_nograd(cx, true);
        const double norm = sqrt(eg_item(eg_sum(NULL, eg_square(one->x))));
        eg_nograd(cx, was);
        eg_pop(cx, m);
        fputs(k ? ", " : "", g->log);
        json_text(g->log, one->name);
        fprintf(g->log, ": {\"norm\": %.16g", norm);
        log_field(g, "gradient", eg_opt_norm_of(eg_trainer_opt(t), k)); /* NaN: it is frozen */
        fputc('}', g->log);
    }
    fputc('}', g->log);
}

/* The heads that an alarm is about. */
typedef struct head_alarm {
    const char *kind, *what; /* "saturated", and what such a head does */
    const char *value_name;  /* what .value is */
    double value;            /* of the first of them */
    int first, count;        /* the first; how many */
} head_alarm;
/* Prints the first head of an alarm, and the number of others. */
static void print_head_alarm(const progress *g, eg_trainer *t, const eg_progress *p,
                             const head_alarm *a)
{
    const int heads = (int)eg_trainer_config(t)->heads, others = a->count - 1;
    progress_clear(g);
    printf("step %4lld  %s: head %s.%d %s (%s %.3f)", (long long)p->step, a->kind,
           eg_trainer_attention(t, a->first / heads), a->first % heads, a->what, a->value_name,
           a->value);
    if (others)
        printf("; so do%s %d other%s", others == 1 ? "es" : "", others, others == 1 ? "" : "s");
    putchar('\n');
}

/* Returns the measures of each head, in memory that the caller frees; NULL if there are no heads,
 * and after an error, which the context has. */
static eg_head *measure_heads(eg_trainer *t, int *count)
{
    const int all = eg_trainer_attentions(t) * (int)eg_trainer_config(t)->heads;
    eg_head *head = all ? calloc((size_t)all, sizeof *head) : NULL;
    if (all && !head)
        eg_fail_as(eg_params_context(eg_trainer_params(t)), EG_ERROR_MEMORY,
                   "out of memory: no room for the measures of %d heads", all);
    *count = all;
    if (!head || !eg_trainer_heads(t, head)) return head;
    free(head);
    return NULL;
}

/* Logs each head that is saturated or dead, and prints the first of each kind once. */
static void report_heads(progress *g, eg_trainer *t, const eg_progress *p, const eg_head *head,
                         int count)
{
    const int heads = (int)eg_trainer_config(t)->heads;
    head_alarm
        saturated = { "saturated", "attends to one position", "mean largest weight", 0, 0, 0 },
        dead = { "dead", "attends to all positions alike", "spread", 0, 0, 0 };
    for (int k = 0; k < count; k++) {
        const bool alike = !head[k].rows || head[k].spread > ALIKE, one = head[k].top > SATURATED;
        if (one && !saturated.count++) saturated.first = k, saturated.value = head[k].top;
        if (alike && !dead.count++) {
            dead.first = k, dead.value = head[k].spread;
            if (!head[k].rows) dead.what = "attends to nothing, since no key is allowed";
        }
        if (g->log && (one || alike))
            fprintf(g->log, "{\"step\": %lld, \"%s\": \"%s.%d\", \"value\": %.16g}\n",
                    (long long)p->step, one ? "saturated" : "dead",
                    eg_trainer_attention(t, k / heads), k % heads,
                    one ? head[k].top : head[k].spread);
    }
    if (saturated.count && !g->saturated_printed) print_head_alarm(g, t, p, &saturated);
    if (dead.count && !g->dead_printed) print_head_alarm(g, t, p, &dead);
    g->saturated_printed = g->saturated_printed || saturated.count,
    g->dead_printed = g->dead_printed || dead.count;
}

/* -- the curve -------------------------------------------------------------------------------- */
/* True if eg_trainer_run evaluated the model after this step (train.h). The losses do not show it:
 * that of a model that does not change is equal to the last one. */
static bool was_evaluated(eg_trainer *t, const eg_progress *p)
{
    const eg_trainer_args *o = eg_trainer_config(t);
    if (p->step == p->steps) return true;
    if (o->evaluate) return p->step % o->evaluate == 0;
    return o->goal > 0 && p->step % 25 == 0 && p->sequence_accuracy >= o->goal - 0.05;
}

/* Stores step, loss and held-out loss for the curve. */
static void store_point(progress *g, const eg_progress *p, bool evaluated)
{
    if (!g->curve) return;
    if (g->points == g->capacity) {
        int64_t capacity = g->capacity ? 2 * g->capacity : 1024;
        double *more = realloc(g->point, (size_t)capacity * 3 * sizeof *more);
        if (!more) return; /* without memory the curve ends here */
        g->point = more, g->capacity = capacity;
    }
    double *at = g->point + 3 * g->points++;
    at[0] = (double)p->step, at[1] = p->loss, at[2] = evaluated ? p->held_out_loss : NAN;
}

const char *loss_name(const char *unit)
{
    static char name[64];
    if (!unit) return "loss (nats a token)";
    snprintf(name, sizeof name, "loss (bits a %s)", unit);
    return name;
}

/* Writes the picture of the losses, if requested; for a text in bits. */
bool progress_curve(const progress *g, eg_trainer *t)
{
    eg_ctx *cx = eg_params_context(eg_trainer_params(t));
    if (!g->curve || !g->points) return true;
    const double unit = g->text ? log(2) : 1; /* losses of a text are printed in bits */
    int64_t n = g->points, evaluations = 0;
    double *column = calloc((size_t)n * 4, sizeof *column), *x = column, *y = column + n,
           *u = column + 2 * n, *v = column + 3 * n;
    if (!column) {
        print_error("out of memory");
        return false;
    }
    for (int64_t k = 0; k < n; k++) {
        x[k] = g->point[3 * k], y[k] = g->point[3 * k + 1] / unit;
        if (!isnan(g->point[3 * k + 2]))
            u[evaluations] = x[k], v[evaluations++] = g->point[3 * k + 2] / unit;
    }
    const eg_curve curves[] = { { .name = "training", .count = n, .x = x, .y = y },
                                { .name = "unseen", .count = evaluations, .x = u, .y = v } };
    int bad = eg_curves_save(g->curve, cx, evaluations ? 2 : 1, curves,
                             .title = eg_data_name(eg_trainer_data(t)), .x_name = "step",
                             .y_name = loss_name(g->text ? g->unit : NULL), .logarithmic = true);
    free(column);
    if (bad) print_context_error(cx, NULL);
    return !bad;
}

/* Writes the line of a step: its loss and, if the model was evaluated (measured), the results on
 * unseen data, heads and parameters. */
static void log_step(progress *g, eg_trainer *t, const eg_progress *p, bool measured,
                     const eg_head *head, int heads)
{
    fprintf(g->log, "{\"step\": %lld", (long long)p->step);
    log_field(g, "loss", p->loss);
    log_field(g, "tokens", p->accuracy);
    log_field(g, "sequences", p->sequence_accuracy);
    if (measured && p->exact >= 0) log_field(g, "unseen", p->exact);
    log_field(g, "tokens_per_second", p->tokens_per_second);
    log_field(g, "seconds", p->seconds);
    log_field(g, "lr", p->lr);
    log_field(g, "norm", p->norm);
    log_field(g, "bytes", (double)eg_stats(eg_params_context(eg_trainer_params(t))).bytes);
    if (measured) {
        log_field(g, "unseen_loss", p->held_out_loss);
        log_measures(g, t, head, heads);
    }
    fputs("}\n", g->log);
}

/* Prints a line at the first and the last step, every 50 steps, and every 5 seconds if steps are
 * slow. */
bool progress_step(progress *g, eg_trainer *t, const eg_progress *p)
{
    g->sequences = g->sequences < 0 ? p->sequence_accuracy
                                    : g->sequences + (p->sequence_accuracy - g->sequences) * 0.2;
    int heads = 0;
    const bool evaluated = was_evaluated(t, p);
    eg_head *head = evaluated ? measure_heads(t, &heads) : NULL;
    if (heads && !head) return false;
    if (g->log) log_step(g, t, p, evaluated, head, heads);
    store_point(g, p, evaluated);
    print_divergence(g, p);
    report_heads(g, t, p, head, heads);
    free(head);
    print_alarm(g, p, "loss", &g->loss, p->loss, 0.5);
    print_alarm(g, p, "gradient", &g->norm, p->norm, 3);
    double now = seconds();
    bool last = p->step == p->steps || (g->goal > 0 && p->exact >= g->goal);
    if (g->bar ? last || now - g->shown >= 0.1
               : last || p->step == g->first + 1 || p->step % 50 == 0 || now - g->shown >= 5) {
        g->shown = now;
        if (g->bar)
            draw_bar(g, p, last);
        else {
            char text[256];
            write_step(g, p, text, sizeof text);
            puts(text);
            fflush(stdout);
        }
    }
    return log_written(g);
}
