/* curve.c: curves of y over x, on the canvas of the heat maps. */
#include "heatmap.h"
#include <math.h>
#include <string.h>

enum {
    LEFT = 120, /* of the axis, at least */
    NAME = 40,  /* room for the name of the axis there */
    RIGHT = 30,
    TOP = 56,
    BOTTOM = 70,
    WIDE = 720,
    HIGH = 430,
    TICKS = 8,
    CURVES = 32,
    WORD = 60,
    LEGEND = 40,
    SAMPLE = 34, /* length of a line in the legend, in points */
    ENTRY = 22,
    TICK = 6,
    PEN = 512,
    DIGITS = 6 /* of a number at an axis, at least */
};

typedef struct axis {
    double low, high;
    bool logarithmic;
} axis;
typedef struct plot {
    const eg_curves_args *o;
    axis x, y;
    int left; /* of the axis, wide enough for its numbers */
} plot;

/* Returns the position of v between the ends of the axis, in [0, 1]; NaN for a gap. */
static double position_on_axis(const axis *a, double v)
{
    if (!isfinite(v) || (a->logarithmic && v <= 0)) return NAN;
    double low = a->low, high = a->high;
    if (a->logarithmic) v = log(v), low = log(low), high = log(high);
    return high > low ? (v - low) / (high - low) : 0.5;
}

static void widen(axis *a, double v)
{
    if (isfinite(v) && (!a->logarithmic || v > 0)) {
        a->low = v < a->low ? v : a->low;
        a->high = v > a->high ? v : a->high;
    }
}

/* -- the pen, which converts the points of a curve to lines --
 *
 * Of the points in one column of the picture only four are drawn, the first, lowest, highest and
 * last, so that a curve of millions of points makes a small picture. */
typedef struct pen {
    eg__canvas *c;
    int colour, dash;
    int count, here; /* points of the line; points in the present column */
    eg__point line[PEN], first, low, high, last;
} pen;

static void pen_put(pen *p, eg__point to)
{
    if (p->count == PEN) {
        p->c->line(p->c, PEN, p->line, p->colour, p->dash);
        p->line[0] = p->line[PEN - 1], p->count = 1;
    }
    p->line[p->count++] = to;
}

/* Ends the column. */
static void pen_column(pen *p)
{
    if (p->here > 0) pen_put(p, p->first);
    if (p->here > 2) pen_put(p, p->low), pen_put(p, p->high);
    if (p->here > 1) pen_put(p, p->last);
    p->here = 0;
}

static void pen_move(pen *p, eg__point to)
{
    if (p->here && lround(to.x) != lround(p->first.x)) pen_column(p);
    if (!p->here++) p->first = p->low = p->high = to;
    p->low = to.y < p->low.y ? to : p->low;
    p->high = to.y > p->high.y ? to : p->high;
    p->last = to;
}

/* True if all points of the line are the same pixel. */
static bool pen_at_one_pixel(const pen *p)
{
    bool same = p->count > 0;
    for (int k = 1; same && k < p->count; k++)
        same = lround(p->line[k].x) == lround(p->line->x) &&
               lround(p->line[k].y) == lround(p->line->y);
    return same;
}

static void pen_lift(pen *p)
{
    pen_column(p);
    if (pen_at_one_pixel(p)) /* a line of length 0 would be invisible */
        p->c->rectangle(p->c, (int)lround(p->line->x) - 2, (int)lround(p->line->y) - 2, 4, 4,
                        p->colour);
    else if (p->count > 1)
        p->c->line(p->c, p->count, p->line, p->colour, p->dash);
    p->count = 0;
}

/* -- the picture ------------------------------------------------------------------------------ */
static void curve_word(eg__canvas *c, int x, int y, eg__anchor anchor, const char *text)
{
    eg__label label;
    eg__text_label(&label, text ? text : "", WORD);
    c->text(c, x, y, anchor, &label);
}
/* Draws the title, which may be as long as the picture is wide. */
static void curve_title(eg__canvas *c, int x, const char *text)
{
    const int columns = (c->width - x) / EG_ADVANCE, most = EG_LABEL_CODES / 2 - 1;
    eg__label label;
    eg__text_label(&label, text ? text : "", columns < most ? columns : most);
    c->text(c, x, 20, EG_FROM_LEFT, &label);
}

/* Draws lines and numbers at round values of y, ticks and numbers at those of x, and the two
 * axes. */
static void grid(const plot *p, eg__canvas *c)
{
    char text[EG_TICK_TEXT];
    double at[EG_TICKS_MOST];
    for (int k = 0, n = eg__ticks(p->y.low, p->y.high, p->y.logarithmic, TICKS, at); k < n; k++) {
        int y = TOP + HIGH - (int)lround(position_on_axis(&p->y, at[k]) * HIGH);
        c->rectangle(c, p->left, y, WIDE, 1, EG_PALE);
        eg__tick_text(n, at, k, DIGITS, text);
        curve_word(c, p->left - TICK - 2, y - EG_HEIGHT / 2, EG_FROM_RIGHT, text);
    }
    for (int k = 0, n = eg__ticks(p->x.low, p->x.high, p->x.logarithmic, TICKS, at); k < n; k++) {
        int x = p->left + (int)lround(position_on_axis(&p->x, at[k]) * WIDE);
        c->rectangle(c, x, TOP + HIGH, 1, TICK, EG_INK);
        eg__tick_text(n, at, k, DIGITS, text);
        curve_word(c, x, TOP + HIGH + TICK + 4, EG_CENTRED, text);
    }
    c->rectangle(c, p->left, TOP, 1, HIGH, EG_INK);
    c->rectangle(c, p->left, TOP + HIGH, WIDE, 1, EG_INK);
}

static pen pen_of(eg__canvas *c, const eg_curve *one, int k)
{
    return (pen){ .c = c,
                  .colour = EG_CURVE + (one->colour ? one->colour - 1 : k % EG_CURVE_COLOURS),
                  .dash = one->colour || one->dash ? one->dash : k / EG_CURVE_COLOURS % EG_DASHES };
}

/* Draws the grid, the titles, each curve, and the legend on the right. */
static void curve_draw(eg__canvas *c, const void *picture)
{
    const plot *p = picture;
    int entries = 0;
    grid(p, c);
    curve_title(c, p->left, p->o->title);
    curve_word(c, p->left + WIDE / 2, TOP + HIGH + 42, EG_CENTRED, p->o->x_name);
    curve_word(c, 16, TOP + HIGH / 2, EG_UPWARD_CENTRED, p->o->y_name);
    for (int k = 0; k < p->o->count; k++) {
        const eg_curve *one = &p->o->curve[k];
        pen line = pen_of(c, one, k), sample = line;
        for (int64_t i = 0; i < one->count; i++) {
            double u = position_on_axis(&p->x, one->x[i]), v = position_on_axis(&p->y, one->y[i]);
            if (isnan(u) || isnan(v))
                pen_lift(&line);
            else
                pen_move(&line, (eg__point){ p->left + u * WIDE, TOP + HIGH - v * HIGH });
        }
        pen_lift(&line);
        if (!one->name || !*one->name) continue;
        const int x = p->left + WIDE + RIGHT, y = TOP + entries++ * ENTRY;
        pen_move(&sample, (eg__point){ x, y + EG_HEIGHT / 2.0 });
        pen_move(&sample, (eg__point){ x + SAMPLE, y + EG_HEIGHT / 2.0 });
        pen_lift(&sample);
        eg__label label;
        eg__text_label(&label, one->name, LEGEND);
        c->text(c, x + SAMPLE + 8, y, EG_FROM_LEFT, &label);
    }
}

/* Returns the place of the axis of y, right of its name and of its numbers. */
static int curve_left(const axis *y)
{
    char text[EG_TICK_TEXT];
    double at[EG_TICKS_MOST];
    int left = LEFT;
    for (int k = 0, n = eg__ticks(y->low, y->high, y->logarithmic, TICKS, at); k < n; k++) {
        eg__tick_text(n, at, k, DIGITS, text);
        const int room = NAME + (int)strlen(text) * EG_ADVANCE + TICK + 2;
        left = room > left ? room : left;
    }
    return left;
}

/* Returns a canvas with room for the axes and, to their right, for the legend. */
static eg__canvas curve_canvas(const plot *p)
{
    const eg_curves_args *o = p->o;
    int widest = 0, entries = 0;
    for (int k = 0; k < o->count; k++) {
        eg__label label;
        if (!o->curve[k].name || !*o->curve[k].name) continue;
        eg__text_label(&label, o->curve[k].name, LEGEND);
        widest = label.width > widest ? label.width : widest;
        entries++;
    }
    const int legend = entries ? SAMPLE + 8 + widest * EG_ADVANCE + RIGHT : 0,
              high = entries * ENTRY > HIGH ? entries * ENTRY : HIGH;
    return (eg__canvas){ .width = p->left + WIDE + RIGHT + legend, .height = TOP + high + BOTTOM };
}

static bool curve_refuse(eg_ctx *cx, const char *sentence, int a, int b)
{
    eg_fail_as(cx, EG_ERROR_MISUSE, sentence, a, b);
    return false;
}

/* True if the options are valid; else records an error. */
static bool curve_check(const eg_curves_args *o)
{
    if (o->count < 1 || o->count > CURVES || !o->curve)
        return curve_refuse(o->cx, "curves: from 1 to %d curves fit in one picture, not %d", CURVES,
                            o->curve ? o->count : 0);
    for (int k = 0; k < o->count; k++) {
        const eg_curve *one = &o->curve[k];
        if (one->colour < 0 || one->colour > EG_CURVE_COLOURS)
            return curve_refuse(o->cx, "curves: curve %d has .colour %d, not one of 0 to 8", k,
                                one->colour);
        if (one->dash < 0 || one->dash >= EG_DASHES)
            return curve_refuse(o->cx, "curves: curve %d has .dash %d, not one of 0 to 7", k,
                                one->dash);
        if (one->count > 0 && (!one->x || !one->y))
            return curve_refuse(o->cx, "curves: curve %d has points, but its .%c is NULL", k,
                                one->x ? 'y' : 'x');
    }
    return true;
}

/* The scales include all points that can be drawn. */
int eg_curves_save_with(const char *path, const eg_curves_args *given)
{
    eg_curves_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    if (!o.cx) eg_fail_as(NULL, EG_ERROR_MISUSE, "curves: the context is NULL");
    if (eg_error(o.cx) || !curve_check(&o)) return -1;
    plot p = { &o, { INFINITY, -INFINITY, false }, { INFINITY, -INFINITY, o.logarithmic }, LEFT };
    for (int k = 0; k < o.count; k++)
        for (int64_t i = 0; i < o.curve[k].count; i++)
            if (!isnan(position_on_axis(&(axis){ 1, 2, o.logarithmic }, o.curve[k].y[i]))) {
                widen(&p.x, o.curve[k].x[i]);
                widen(&p.y, o.curve[k].y[i]);
            }
    if (!(p.x.low <= p.x.high) || !(p.y.low <= p.y.high)) {
        eg_fail_as(o.cx, EG_ERROR_MISUSE, "curves: there is no point to draw%s",
                   o.logarithmic ? ": a logarithmic axis has only numbers above 0" : "");
        return -1;
    }
    p.left = curve_left(&p.y);
    eg__canvas canvas = curve_canvas(&p);
    return eg__picture_write(o.cx, path, &canvas, curve_draw, &p);
}
