/* curve.c: curves of y over x, on the canvas of the heat maps. */
#include "heatmap.h"
#include <math.h>
#include <string.h>

enum {
    LEFT = 110,
    RIGHT = 30,
    TOP = 60,
    BOTTOM = 70,
    WIDE = 800,
    HIGH = 420,
    TICKS = 8,
    CURVES = 8,
    WORD = 60,
    TICK = 6
};

typedef struct axis {
    double low, high;
    bool logarithmic;
} axis;
typedef struct plot {
    const eg_curves_args *o;
    axis x, y;
} plot;

/* Where v lies between the ends of the axis, in [0, 1]; NaN for a gap. */
static double on(const axis *a, double v)
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

/* Colours of the scale, neighbouring curves far apart. */
static int curve_colour(int curve) { return (curve * 157 + 30) % (EG_LEVELS - 30); }

/* A line from (x0, y0) to (x1, y1), x0 ≤ x1: one vertical stroke for each column of points, so that
 * steep lines have no gaps. */
static void curve_line(eg__canvas *c, int x0, int y0, int x1, int y1, int shade)
{
    for (int x = x0; x <= x1; x++) {
        double from = x1 > x0 ? (x - 0.5 - x0) / (x1 - x0) : 0,
               to = x1 > x0 ? (x + 0.5 - x0) / (x1 - x0) : 1;
        int a = y0 + (int)lround((from < 0 ? 0 : from) * (y1 - y0)),
            b = y0 + (int)lround((to > 1 ? 1 : to) * (y1 - y0));
        c->rectangle(c, x, a < b ? a : b, 2, (a < b ? b - a : a - b) + 2, shade);
    }
}

static void curve_word(eg__canvas *c, int x, int y, int direction, const char *text)
{
    eg__label label;
    eg__text_label(&label, text ? text : "", WORD);
    c->text(c, x, y, direction, &label);
}

/* Lines and numbers at round values of y, ticks and numbers at those of x, and the two axes. */
static void grid(const plot *p, eg__canvas *c)
{
    char text[32];
    double at[EG_TICKS_MOST];
    for (int k = 0, n = eg__ticks(p->y.low, p->y.high, p->y.logarithmic, TICKS, at); k < n; k++) {
        int y = TOP + HIGH - (int)lround(on(&p->y, at[k]) * HIGH);
        c->rectangle(c, LEFT, y, WIDE, 1, EG_GREY);
        snprintf(text, sizeof text, "%.6g", at[k]);
        curve_word(c, LEFT - TICK, y - EG_HEIGHT / 2, EG_FROM_RIGHT, text);
    }
    for (int k = 0, n = eg__ticks(p->x.low, p->x.high, p->x.logarithmic, TICKS, at); k < n; k++) {
        int x = LEFT + (int)lround(on(&p->x, at[k]) * WIDE);
        c->rectangle(c, x, TOP + HIGH, 1, TICK, EG_INK);
        snprintf(text, sizeof text, "%.6g", at[k]);
        curve_word(c, x + (int)strlen(text) * EG_ADVANCE / 2, TOP + HIGH + TICK + 4, EG_FROM_RIGHT,
                   text);
    }
    c->rectangle(c, LEFT, TOP, 1, HIGH, EG_INK);
    c->rectangle(c, LEFT, TOP + HIGH, WIDE, 1, EG_INK);
}

/* The grid, titles, each curve as strokes from point to point, and the legend. */
static void curve_draw(eg__canvas *c, const void *picture)
{
    const plot *p = picture;
    grid(p, c);
    curve_word(c, LEFT, 14, EG_FROM_LEFT, p->o->title);
    curve_word(c, LEFT + WIDE, TOP + HIGH + 40, EG_FROM_RIGHT, p->o->x_name);
    /* above the axis and its highest tick */
    curve_word(c, 4, TOP - EG_HEIGHT - EG_HEIGHT / 2 - 4, EG_FROM_LEFT, p->o->y_name);
    for (int k = 0; k < p->o->count; k++) {
        const eg_curve *one = &p->o->curve[k];
        int before_x = 0, before_y = 0;
        bool before = false;
        for (int64_t i = 0; i < one->count; i++) {
            double u = on(&p->x, one->x[i]), v = on(&p->y, one->y[i]);
            if (isnan(u) || isnan(v)) {
                before = false;
                continue;
            }
            int x = LEFT + (int)lround(u * WIDE), y = TOP + HIGH - (int)lround(v * HIGH);
            if (before && x < before_x)
                curve_line(c, x, y, before_x, before_y, curve_colour(k));
            else
                curve_line(c, before ? before_x : x, before ? before_y : y, x, y, curve_colour(k));
            before = true, before_x = x, before_y = y;
        }
        c->rectangle(c, LEFT + WIDE - 280, TOP + 10 + k * (EG_HEIGHT + 8), 30, EG_HEIGHT,
                     curve_colour(k));
        curve_word(c, LEFT + WIDE - 240, TOP + 10 + k * (EG_HEIGHT + 8), EG_FROM_LEFT, one->name);
    }
}

/* The scales reach over all points that can be drawn. */
int eg_curves_save_with(const char *path, const eg_curves_args *given)
{
    eg_curves_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    if (!o.cx || eg_error(o.cx)) return -1;
    plot p = { &o, { INFINITY, -INFINITY, false }, { INFINITY, -INFINITY, o.logarithmic } };
    if (o.count < 1 || o.count > CURVES || !o.curve) {
        eg_fail_as(o.cx, EG_ERROR_MISUSE, "curves: from 1 to %d curves fit in one picture, not %d",
                   CURVES, o.curve ? o.count : 0);
        return -1;
    }
    for (int k = 0; k < o.count; k++)
        for (int64_t i = 0; i < o.curve[k].count; i++)
            if (!isnan(on(&(axis){ 1, 2, o.logarithmic }, o.curve[k].y[i]))) {
                widen(&p.x, o.curve[k].x[i]);
                widen(&p.y, o.curve[k].y[i]);
            }
    if (!(p.x.low <= p.x.high) || !(p.y.low <= p.y.high)) {
        eg_fail_as(o.cx, EG_ERROR_MISUSE, "curves: there is no point to draw");
        return -1;
    }
    eg__canvas canvas = { .width = LEFT + WIDE + RIGHT, .height = TOP + HIGH + BOTTOM };
    return eg__picture_write(o.cx, path, &canvas, curve_draw, &p);
}
