/* progress.c: a run as it goes: a bar on a terminal, lines elsewhere, JSON lines in a file. */
#include "tools.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* -- the log: one JSON object a line -------------------------------------------------------------------------------------------------- */
static void json_text(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') fprintf(f, "\\%c", *s);
        else if ((unsigned char)*s < 0x20) fprintf(f, "\\u%04x", (unsigned)*s);
        else fputc(*s, f);
    }
    fputc('"', f);
}

static bool logged(progress *g)
{
    if (!g->log) return true;
    errno = 0;
    if (!fflush(g->log) && !ferror(g->log)) return true;
    progress_clear(g);
    say("--log %s: %s", g->log_path, errno ? strerror(errno) : "not everything could be written");
    fclose(g->log);
    g->log = NULL;
    return false;
}

bool progress_open(progress *g, eg_trainer *t, const char *log_path, bool append)
{
    const eg_trainer_args *o = eg_trainer_config(t);
    eg_progress now = eg_trainer_now(t);
    *g = (progress){ .bar = is_terminal(stdout), .log_path = log_path, .first = now.step, .goal = o->goal, .start = seconds(), .whole = -1 };
    if (!log_path) return true;
    g->log = fopen(log_path, append ? "a" : "w");
    if (!g->log) { say("--log %s: %s", log_path, strerror(errno)); return false; }
    fputs("{\"data\": ", g->log);
    json_text(g->log, eg_data_name(eg_trainer_data(t)));
    fprintf(g->log, ", \"model\": \"%s\", \"layers\": %lld, \"d_model\": %lld, \"heads\": %lld, \"width\": %lld, \"dropout\": %g, \"lr\": %g, \"batch\": %lld, "
            "\"steps\": %lld, \"seed\": %llu, \"goal\": %g, \"parameters\": %lld, \"step\": %lld}\n",
            o->model, (long long)o->layers, (long long)o->d_model, (long long)o->heads, (long long)o->width, o->dropout, o->lr, (long long)o->batch,
            (long long)o->steps, (unsigned long long)o->seed, o->goal, (long long)eg_params_size(eg_trainer_params(t)), (long long)now.step);
    return logged(g);
}

static void log_step(progress *g, const eg_progress *p)
{
    char unseen[32] = "null";
    if (p->exact >= 0) snprintf(unseen, sizeof unseen, "%.6g", p->exact);
    fprintf(g->log, "{\"step\": %lld, \"loss\": %.9g, \"tokens\": %.6g, \"sequences\": %.6g, \"unseen\": %s, \"tokens_per_second\": %.6g, "
            "\"seconds\": %.6g, \"lr\": %.6g}\n",
            (long long)p->step, p->loss, p->accuracy, p->whole, unseen, p->rate, p->seconds, p->lr);
}

bool progress_close(progress *g, const eg_score *s, const eg_progress *p)
{
    if (!g->log) return true;
    if (s) fprintf(g->log, "{\"step\": %lld, \"unseen_sequences\": %lld, \"exact\": %lld, \"unseen_tokens\": %lld, \"right\": %lld, \"seconds\": %.6g}\n",
                   (long long)p->step, (long long)s->sequences, (long long)s->exact, (long long)s->tokens, (long long)s->right, p->seconds);
    bool good = logged(g);
    if (g->log && fclose(g->log) && good) { say("--log %s: %s", g->log_path, strerror(errno)); good = false; }
    g->log = NULL;
    return good;
}

/* -- the screen ------------------------------------------------------------------------------------------------------------------------- */
static void short_number(char *out, size_t room, double x)      /* 41k */
{
    snprintf(out, room, x >= 1e6 ? "%.1fM" : x >= 1e3 ? "%.0fk" : "%.0f", x >= 1e6 ? x / 1e6 : x >= 1e3 ? x / 1e3 : x);
}

static void time_left(char *out, size_t room, double s)
{
    if (s < 100) snprintf(out, room, "%.0f s", ceil(s));
    else if (s < 6000) snprintf(out, room, "%.0f min", ceil(s / 60));
    else snprintf(out, room, "%.1f h", s / 3600);
}

/* The bar leaves its own step out: it has 80 columns. */
static int describe(const progress *g, const eg_progress *p, char *out, size_t room)
{
    char rate[16], left[16];
    double took = seconds() - g->start;
    short_number(rate, sizeof rate, p->rate);
    time_left(left, sizeof left, took / (double)(p->step - g->first) * (double)(p->steps - p->step));
    if (g->bar)
        return snprintf(out, room, "loss %.4f tokens %.1f%% sequences %.1f%% %s tokens/s <%s left", p->loss, 100 * p->accuracy, 100 * g->whole, rate, left);
    return snprintf(out, room, "step %4lld  loss %.4f  tokens %5.1f %%  sequences %5.1f %%  %s tokens/s  at most %s left", (long long)p->step, p->loss,
                    100 * p->accuracy, 100 * g->whole, rate, left);
}

void progress_clear(const progress *g)
{
    if (g->bar && g->shown > 0) {
        fputs("\r\033[K", stdout);
        fflush(stdout);
    }
}

static void draw(progress *g, const eg_progress *p, bool last)
{
    char text[256];
    int n = describe(g, p, text, sizeof text), width = terminal_width(), room = width - n - 4;
    double done = g->goal > 0 ? g->whole / g->goal : (double)p->step / (double)p->steps;
    fputs("\r\033[K", stdout);
    if (room >= 5) {
        room = room > 40 ? 40 : room;
        int full = (int)(done >= 1 ? room : done * room);
        fputc('[', stdout);
        for (int k = 0; k < room; k++) fputc(k < full ? '#' : '.', stdout);
        fputs("] ", stdout);
    }
    printf("%.*s%s", width - 1, text, last ? "\n" : "");
    fflush(stdout);
}

/* A line now and then: at the first and the last step, every 50, and every 5 seconds when steps are slow. */
bool progress_step(progress *g, const eg_progress *p)
{
    g->whole = g->whole < 0 ? p->whole : g->whole + (p->whole - g->whole) * 0.2;
    if (g->log) log_step(g, p);
    double now = seconds();
    bool last = p->step == p->steps || (g->goal > 0 && p->exact >= g->goal);
    if (g->bar ? last || now - g->shown >= 0.1 : last || p->step == g->first + 1 || p->step % 50 == 0 || now - g->shown >= 5) {
        g->shown = now;
        if (g->bar) draw(g, p, last);
        else {
            char text[256];
            describe(g, p, text, sizeof text);
            puts(text);
            fflush(stdout);
        }
    }
    return logged(g);
}
