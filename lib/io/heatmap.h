/* heatmap.h: a heat map's values, scale and labels, and the canvas that pictures are drawn on. */
#ifndef EG_IO_HEATMAP_H
#define EG_IO_HEATMAP_H
#include <eingrad/io.h>
#include "file.h"
#include "text.h"

/* -- heatmap.c -------------------------------------------------------------------------------- */
typedef struct eg__heatmap {
    eg_heatmap_args o;
    eg_ctx *cx;
    eg_mark mark;        /* the scope of its values */
    const double *value; /* panels × rows × columns */
    int panels, rows, columns;
    double low, high;
} eg__heatmap;
/* false after recording why */
bool eg__heatmap_open(eg__heatmap *, const eg_heatmap_args *, const char *who);
void eg__heatmap_close(eg__heatmap *);
/* in [0, 1]; NaN for NaN */
double eg__heatmap_level(const eg__heatmap *, int panel, int row, int column);
/* tokens[k], or the number k */
void eg__heatmap_label(const char *const *tokens, int k, int columns, eg__label *);
void eg__heatmap_title(const eg__heatmap *, int panel, int columns, eg__label *);
/* Round numbers in [low, high], at most `most`: multiples of 1, 2 or 5 times a power of ten;
 * logarithmic over a wide range: such numbers themselves. The number of them, at least 1. */
enum { EG_TICKS_MOST = 16 };
int eg__ticks(double low, double high, bool logarithmic, int most, double tick[EG_TICKS_MOST]);
/* of a level in [0, 1], grey for NaN */
void eg__heatmap_colour(double level, uint8_t rgb[3]);

/* -- the canvas: picture.c draws on it, png.c and svg.c make it a file ------------------------ */
/* a palette: levels of the scale, then these */
enum { EG_LEVELS = 250, EG_GREY = EG_LEVELS, EG_WHITE, EG_INK, EG_COLOURS };
enum { EG_ADVANCE = 12, EG_HEIGHT = 14 }; /* of a letter, in points: the font doubled */
/* text begins at x, ends at x, or stands on y and is read upwards */
enum { EG_FROM_LEFT, EG_FROM_RIGHT, EG_UPWARD };
typedef struct eg__canvas eg__canvas;
struct eg__canvas {
    int width, height;
    void (*rectangle)(eg__canvas *, int x, int y, int width, int height, int colour);
    /* (x, y): its upper corner */
    void (*text)(eg__canvas *, int x, int y, int direction, const eg__label *);
    void *state;
};
void eg__picture_palette(uint8_t rgb[EG_COLOURS][3]);
typedef void eg__draw(eg__canvas *, const void *picture);
/* by the name's end; 0, or −1 after recording why */
int eg__picture_write(eg_ctx *, const char *path, eg__canvas *, eg__draw *, const void *picture);
/* 0, or −1 after recording why */
int eg__png_write(eg__output *, eg__canvas *, eg__draw *, const void *picture);
int eg__svg_write(eg__output *, eg__canvas *, eg__draw *, const void *picture);
#endif
