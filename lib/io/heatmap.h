/* heatmap.h: a heat map's values, scale and labels, and the canvas on which pictures are drawn. */
#ifndef EG_IO_HEATMAP_H
#define EG_IO_HEATMAP_H
#include <eingrad/io.h>
#include "file.h"
#include "text.h"

/* -- heatmap.c -------------------------------------------------------------------------------- */
typedef struct eg__heatmap {
    eg_heatmap_args o;
    eg_ctx *cx;
    eg_mark mark;          /* the scope of its values */
    const double *value;   /* heads × rows × columns */
    const double *against; /* as `value`; NULL: one map for each head */
    int panels;            /* number of heads, or three for each: x, against, difference */
    int rows, columns;
    double low, high;
    double most; /* the scale of differences is from −most to most */
} eg__heatmap;
bool eg__heatmap_is_difference(const eg__heatmap *, int panel);
/* false after an error */
bool eg__heatmap_open(eg__heatmap *, const eg_heatmap_args *, const char *who);
void eg__heatmap_close(eg__heatmap *);
/* in [0, 1]; 0.5 is a difference of 0; NaN for NaN */
double eg__heatmap_level(const eg__heatmap *, int panel, int row, int column);
/* tokens[k], or the number k */
void eg__heatmap_label(const char *const *tokens, int k, int columns, eg__label *);
void eg__heatmap_title(const eg__heatmap *, int panel, int columns, eg__label *);
/* Writes at most `most` round numbers in [low, high]: multiples of 1, 2 or 5 times a power of ten;
 * if the axis is logarithmic and the range wide, 1, 2 and 5 times powers of ten. Returns their
 * number, at least 1. */
enum { EG_TICKS_MOST = 16 };
int eg__ticks(double low, double high, bool logarithmic, int most, double tick[EG_TICKS_MOST]);
/* Writes the text of tick[k] with at least as many digits as given, and more where two of the ticks
 * would otherwise have the same text; integers below 10^9 without an exponent. */
enum { EG_TICK_TEXT = 32 };
void eg__tick_text(int count, const double *tick, int k, int digits, char text[EG_TICK_TEXT]);
/* The colour of a level in [0, 1]: viridis, or of a difference blue, white, red; grey for NaN. */
void eg__heatmap_colour(double level, bool difference, uint8_t rgb[3]);

/* -- the canvas: picture.c and curve.c draw on it, png.c and svg.c write it to a file ---------- */
/* The palette: the levels of both scales (an odd number, so that the middle one is white for
 * differences), then greys, white, ink and the colours of curves. */
enum { EG_LEVELS = 251, EG_CURVE_COLOURS = 8, EG_DASHES = 8 };
enum {
    EG_DIFFERENCES = EG_LEVELS,
    EG_GREY = 2 * EG_LEVELS,
    EG_PALE,
    EG_WHITE,
    EG_INK,
    EG_CURVE,
    EG_COLOURS = EG_CURVE + EG_CURVE_COLOURS
};
/* In points: the size of letters, the height of capitals, and the largest width of a column of
 * text. */
enum { EG_FONT = 16, EG_HEIGHT = 12, EG_ADVANCE = 10 };
#define EG_LINE_WIDTH 1.75
/* The position of text relative to its x or, if it is read upwards, to its y. */
typedef enum eg__anchor {
    EG_FROM_LEFT,
    EG_FROM_RIGHT,
    EG_CENTRED,
    EG_UPWARD,
    EG_UPWARD_CENTRED
} eg__anchor;
typedef struct eg__point {
    double x, y;
} eg__point;
/* A kind of dashes: the lengths of dash, gap, dash, gap … in points; count 0: a solid line. */
typedef struct eg__dashes {
    int count;
    double length[6];
} eg__dashes;
extern const eg__dashes eg__dash[EG_DASHES];
typedef struct eg__canvas eg__canvas;
struct eg__canvas {
    int width, height;
    void (*rectangle)(eg__canvas *, int x, int y, int width, int height, int colour);
    /* through count ≥ 2 points */
    void (*line)(eg__canvas *, int count, const eg__point *, int colour, int dash);
    /* (x, y): the upper edge of the letters or, if they are read upwards, their left edge */
    void (*text)(eg__canvas *, int x, int y, eg__anchor, const eg__label *);
    void *state;
};
void eg__picture_palette(uint8_t rgb[EG_COLOURS][3]);
typedef void eg__draw(eg__canvas *, const void *picture);
/* the format depends on the ending of the path; 0, or −1 after an error */
int eg__picture_write(eg_ctx *, const char *path, eg__canvas *, eg__draw *, const void *picture);
/* 0, or −1 after an error */
int eg__png_write(eg__output *, eg__canvas *, eg__draw *, const void *picture);
int eg__svg_write(eg__output *, eg__canvas *, eg__draw *, const void *picture);
#endif
