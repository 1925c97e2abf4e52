/* svg.c: writes a canvas as rectangles, lines and text elements of SVG 1.1. */
#include "heatmap.h"
#include <string.h>

typedef struct svg {
    eg__output *out;
    uint8_t palette[EG_COLOURS][3];
} svg;

static void svg_rectangle(eg__canvas *c, int x, int y, int width, int height, int colour)
{
    svg *s = c->state;
    const uint8_t *rgb = s->palette[colour];
    eg__file_print(s->out,
                   "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#%02x%02x%02x\"/>\n",
                   x, y, width, height, rgb[0], rgb[1], rgb[2]);
}

/* Writes one character, as an entity where XML requires it. */
static void svg_put(eg__output *out, uint32_t code)
{
    static const struct {
        uint32_t code;
        const char *entity;
    } entities[] = { { '&', "&amp;" }, { '<', "&lt;" }, { '>', "&gt;" } };
    char bytes[5];
    for (size_t k = 0; k < sizeof entities / sizeof *entities; k++)
        if (code == entities[k].code) {
            eg__file_put(out, entities[k].entity, strlen(entities[k].entity));
            return;
        }
    if (code == 0xFFFE || code == 0xFFFF) /* not allowed in XML */
        code = 0xFFFD;
    eg__file_put(out, bytes, (size_t)eg__text_utf8(code, bytes));
}

/* Coordinates in tenths of a point. */
static void svg_line(eg__canvas *c, int count, const eg__point *point, int colour, int dash)
{
    svg *s = c->state;
    const uint8_t *rgb = s->palette[colour];
    eg__file_print(s->out,
                   "<polyline fill=\"none\" stroke=\"#%02x%02x%02x\" stroke-width=\"%g\" "
                   "stroke-linejoin=\"round\" stroke-linecap=\"%s\"",
                   rgb[0], rgb[1], rgb[2], EG_LINE_WIDTH, dash ? "butt" : "round");
    for (int k = 0; k < eg__dash[dash].count; k++)
        eg__file_print(s->out, "%s%g", k ? " " : " stroke-dasharray=\"", eg__dash[dash].length[k]);
    if (eg__dash[dash].count) eg__file_print(s->out, "\"");
    eg__file_print(s->out, " shape-rendering=\"geometricPrecision\" points=\"");
    for (int k = 0; k < count; k++)
        eg__file_print(s->out, "%s%.1f,%.1f", k ? " " : "", point[k].x, point[k].y);
    eg__file_print(s->out, "\"/>\n");
}

/* y is the upper edge of the letters; SVG needs their base line, which is EG_HEIGHT below. */
static void svg_text(eg__canvas *c, int x, int y, eg__anchor anchor, const eg__label *label)
{
    static const char *const anchors[] = { [EG_FROM_LEFT] = "",
                                           [EG_FROM_RIGHT] = " text-anchor=\"end\"",
                                           [EG_CENTRED] = " text-anchor=\"middle\"",
                                           [EG_UPWARD] = "",
                                           [EG_UPWARD_CENTRED] = " text-anchor=\"middle\"" };
    svg *s = c->state;
    if (!label->count) return;
    if (anchor == EG_UPWARD || anchor == EG_UPWARD_CENTRED)
        eg__file_print(s->out, "<text transform=\"translate(%d %d) rotate(-90)\"%s>", x + EG_HEIGHT,
                       y, anchors[anchor]);
    else
        eg__file_print(s->out, "<text x=\"%d\" y=\"%d\"%s>", x, y + EG_HEIGHT, anchors[anchor]);
    for (int k = 0; k < label->count; k++) svg_put(s->out, label->code[k]);
    eg__file_print(s->out, "</text>\n");
}

/* The canvas as rectangles, lines and text elements, in points. */
int eg__svg_write(eg__output *out, eg__canvas *c, eg__draw *draw, const void *picture)
{
    svg s = { .out = out };
    eg__picture_palette(s.palette);
    c->state = &s, c->rectangle = svg_rectangle, c->line = svg_line, c->text = svg_text;
    eg__file_print(out,
                   "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                   "viewBox=\"0 0 %d %d\" shape-rendering=\"crispEdges\" "
                   "font-family=\"Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', "
                   "sans-serif\" font-size=\"%d\" fill=\"#222222\" xml:space=\"preserve\">\n",
                   c->width, c->height, c->width, c->height, EG_FONT);
    svg_rectangle(c, 0, 0, c->width, c->height, EG_WHITE);
    draw(c, picture);
    eg__file_print(out, "</svg>\n");
    return eg__file_finish(out);
}
