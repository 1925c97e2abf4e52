/* png.c: draws a canvas with cairo and writes it as PNG, in the fonts of the machine. This is done
 * in a separate process: without memory the libraries of fonts and graphics end the process that
 * they run in, and the user's process must not end. */
#include <config.h>
#include "heatmap.h"
#include <errno.h>
#if HAVE_CAIRO
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fonts.h"

enum { POINTS_DOUBLED = 1 << 23, PNG_SIDE_MOST = 32000 };

typedef struct png {
    eg__fonts f;
    cairo_surface_t *surface;
    cairo_t *cr;
    uint8_t palette[EG_COLOURS][3];
    bool failed; /* FriBidi ran out of memory */
} png;

static void png_colour(png *p, int colour)
{
    const uint8_t *rgb = p->palette[colour];
    p->f.cairo_set_source_rgb(p->cr, rgb[0] / 255.0, rgb[1] / 255.0, rgb[2] / 255.0);
}

static void png_rectangle(eg__canvas *c, int x, int y, int width, int height, int colour)
{
    png *p = c->state;
    png_colour(p, colour);
    p->f.cairo_rectangle(p->cr, x, y, width, height);
    p->f.cairo_fill(p->cr);
}

/* Joins and ends are round; those of dashes are not, so that the gaps remain. */
static void png_line(eg__canvas *c, int count, const eg__point *point, int colour, int dash)
{
    png *p = c->state;
    png_colour(p, colour);
    p->f.cairo_set_line_width(p->cr, EG_LINE_WIDTH);
    p->f.cairo_set_line_join(p->cr, CAIRO_LINE_JOIN_ROUND);
    p->f.cairo_set_line_cap(p->cr, dash ? CAIRO_LINE_CAP_BUTT : CAIRO_LINE_CAP_ROUND);
    p->f.cairo_set_dash(p->cr, eg__dash[dash].length, eg__dash[dash].count, 0);
    p->f.cairo_move_to(p->cr, point[0].x, point[0].y);
    for (int k = 1; k < count; k++) p->f.cairo_line_to(p->cr, point[k].x, point[k].y);
    p->f.cairo_stroke(p->cr);
}

/* The anchor moves text by its drawn width; the base line of the letters is EG_HEIGHT below y, or
 * right of x. */
static void png_text(eg__canvas *c, int x, int y, eg__anchor anchor, const eg__label *label)
{
    png *p = c->state;
    const double limit = label->width * EG_ADVANCE;
    const bool upward = anchor == EG_UPWARD || anchor == EG_UPWARD_CENTRED;
    if (!label->count) return;
    png_colour(p, EG_INK);
    p->f.cairo_save(p->cr);
    p->f.cairo_set_font_size(p->cr, EG_FONT);
    const double width = eg__fonts_draw(&p->f, p->cr, label, limit, true),
                 before = anchor == EG_FROM_RIGHT                               ? width
                          : anchor == EG_CENTRED || anchor == EG_UPWARD_CENTRED ? width / 2
                                                                                : 0;
    p->f.cairo_translate(p->cr, upward ? x + EG_HEIGHT : x, upward ? y : y + EG_HEIGHT);
    if (upward) p->f.cairo_rotate(p->cr, -1.57079632679489662);
    p->f.cairo_translate(p->cr, -before, 0);
    if (width < 0 || eg__fonts_draw(&p->f, p->cr, label, limit, false) < 0) p->failed = true;
    p->f.cairo_restore(p->cr);
}

static cairo_status_t png_put(void *out, const unsigned char *bytes, unsigned count)
{
    eg__file_put(out, bytes, count);
    return ((eg__output *)out)->error ? CAIRO_STATUS_WRITE_ERROR : CAIRO_STATUS_SUCCESS;
}

/* Two pixels per point, for print; one if the picture would otherwise be very large. */
static cairo_status_t png_draw(png *p, eg__output *out, eg__canvas *c, eg__draw *draw,
                               const void *picture)
{
    const int side = c->width > c->height ? c->width : c->height;
    const int scale =
        2 * side <= PNG_SIDE_MOST && (int64_t)c->width * c->height <= POINTS_DOUBLED ? 2 : 1;
    p->surface =
        p->f.cairo_image_surface_create(CAIRO_FORMAT_RGB24, scale * c->width, scale * c->height);
    p->cr = p->f.cairo_create(p->surface);
    p->f.cairo_scale(p->cr, scale, scale);
    c->state = p, c->rectangle = png_rectangle, c->line = png_line, c->text = png_text;
    png_rectangle(c, 0, 0, c->width, c->height, EG_WHITE);
    draw(c, picture);
    cairo_status_t status = p->f.cairo_status(p->cr);
    if (p->failed) status = CAIRO_STATUS_NO_MEMORY;
    if (!status) status = p->f.cairo_surface_write_to_png_stream(p->surface, png_put, out);
    return status;
}

/* The report of the process that draws to the one that waits, in memory that both share. */
typedef struct verdict {
    bool done; /* all other members are valid */
    int error; /* errno of an error in writing */
    eg_code code;
    char sentence[600]; /* the sentence of any other error; "": none */
} verdict;

/* Draws, in the separate process. */
static void png_child(verdict *v, eg__output *out, eg__canvas *c, eg__draw *draw,
                      const void *picture)
{
    static const int fatal[] = { SIGSEGV, SIGBUS, SIGABRT, SIGTRAP, SIGFPE, SIGILL };
    png p = { .surface = NULL };
    for (size_t k = 0; k < sizeof fatal / sizeof *fatal; k++) signal(fatal[k], SIG_DFL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
    const int null = open("/dev/null", O_WRONLY); /* fontconfig prints warnings */
    if (null >= 0) dup2(null, STDERR_FILENO);
    eg__picture_palette(p.palette);
    if (eg__fonts_open(&p.f, out->cx, out->path)) {
        const cairo_status_t status = png_draw(&p, out, c, draw, picture);
        errno = 0;
        if (fflush(out->file) && !out->error) out->error = errno;
        if (status && !out->error)
            eg_fail_as(out->cx, status == CAIRO_STATUS_NO_MEMORY ? EG_ERROR_MEMORY : EG_ERROR_FILE,
                       "picture: cairo cannot draw '%s': %s", out->path,
                       p.f.cairo_status_to_string(status));
    }
    v->error = out->error;
    if (eg_error(out->cx)) {
        v->code = eg_error_code(out->cx);
        snprintf(v->sentence, sizeof v->sentence, "%s", eg_error(out->cx));
    }
    v->done = true;
}

/* Waits for the process; records an error if it ended before it was done. */
static void png_wait(pid_t child, verdict *v, const eg__output *out)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (!v->done)
        eg_fail_as(out->cx, EG_ERROR_FILE,
                   "picture: '%s': the process that draws it ended with %s %d, as it does if "
                   "memory runs out; .svg needs no process",
                   out->path, WIFSIGNALED(status) ? "signal" : "status",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    else if (*v->sentence)
        eg_fail_as(out->cx, v->code, "%s", v->sentence);
}

/* The parent waits for the child; out->error is the errno of an error in writing that the child
 * had. */
int eg__png_write(eg__output *out, eg__canvas *c, eg__draw *draw, const void *picture)
{
    verdict *v = mmap(NULL, sizeof *v, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const pid_t child = v == MAP_FAILED ? -1 : fork();
    if (child == 0) {
        png_child(v, out, c, draw, picture);
        _exit(0);
    }
    if (child < 0)
        eg_fail_as(out->cx, EG_ERROR_MEMORY,
                   "picture: '%s': no process can be started to draw it: %s", out->path,
                   errno == ENOMEM ? "out of memory" : strerror(errno));
    else
        png_wait(child, v, out);
    if (v != MAP_FAILED) {
        out->error = v->error;
        munmap(v, sizeof *v);
    }
    if (!eg_error(out->cx)) return eg__file_finish(out);
    eg__file_abandon(out);
    return -1;
}
#else
int eg__png_write(eg__output *out, eg__canvas *c, eg__draw *draw, const void *picture)
{
    (void)c, (void)draw, (void)picture;
    eg_fail_as(out->cx, EG_ERROR_MISUSE,
               "picture: '%s': this eingrad was built without cairo, so its pictures are .svg "
               "(with PNG on Debian: apt-get install libcairo2-dev libfribidi-dev, then configure)",
               out->path);
    eg__file_abandon(out);
    return -1;
}
#endif
