/* png.c: a canvas of points with a palette, written by libpng. */
#include "heatmap.h"
#include <errno.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>

static void png_rectangle(eg__canvas *c, int x, int y, int width, int height, int colour)
{
    uint8_t *point = c->state;
    int right = x + width < c->width ? x + width : c->width,
        bottom = y + height < c->height ? y + height : c->height;
    x = x < 0 ? 0 : x;
    for (y = y < 0 ? 0 : y; y < bottom && x < right; y++)
        memset(point + (size_t)y * (size_t)c->width + x, colour, (size_t)(right - x));
}

/* The font doubled: a point is 2 × 2. */
static void png_draw_text(eg__canvas *c, int x, int y, int direction, const eg__label *label)
{
    if (direction == EG_FROM_RIGHT) x -= label->width * EG_ADVANCE - 2;
    for (int k = 0, at = 0; k < label->count; at += eg__text_width(label->code[k++]) * EG_ADVANCE) {
        eg__glyph g = eg__font_glyph(label->code[k]);
        for (int v = 0; v < 7 && eg__text_width(label->code[k]); v++)
            for (int u = 0; u < 5; u++)
                if (g.row[v] >> (4 - u) & 1) {
                    if (direction == EG_UPWARD)
                        png_rectangle(c, x + 2 * v, y - at - 2 * u - 2, 2, 2, EG_INK);
                    else
                        png_rectangle(c, x + at + 2 * u, y + 2 * v, 2, 2, EG_INK);
                }
    }
}

/* Draws on an array of palette indices, which libpng writes. */
int eg__png_write(eg__output *out, eg__canvas *c, eg__draw *draw, const void *picture)
{
    uint8_t palette[EG_COLOURS][3];
    png_image image = { .version = PNG_IMAGE_VERSION,
                        .width = (png_uint_32)c->width,
                        .height = (png_uint_32)c->height,
                        .format = PNG_FORMAT_RGB_COLORMAP,
                        .colormap_entries = EG_COLOURS };
    c->state = malloc((size_t)c->width * (size_t)c->height);
    if (!c->state) {
        eg_fail_as(out->cx, EG_ERROR_MEMORY, "picture: out of memory");
        eg__file_abandon(out);
        return -1;
    }
    c->rectangle = png_rectangle, c->text = png_draw_text;
    png_rectangle(c, 0, 0, c->width, c->height, EG_WHITE);
    draw(c, picture);
    eg__picture_palette(palette);
    errno = 0;
    int good = png_image_write_to_stdio(&image, out->file, 0, c->state, 0, palette), error = errno;
    free(c->state);
    if (!good && !error) {
        eg_fail_as(out->cx, EG_ERROR_FILE, "picture: libpng cannot write '%s': %s", out->path,
                   image.message);
        eg__file_abandon(out);
        return -1;
    }
    out->error = good ? out->error : error;
    return eg__file_finish(out);
}
