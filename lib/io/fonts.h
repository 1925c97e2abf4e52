/* fonts.h: the libraries that draw PNG. They are loaded when a picture is drawn, so that programs
 * that use eingrad need not link them and do not start slower. All functions are called only in the
 * process that draws (png.c), whose end frees everything. */
#ifndef EG_IO_FONTS_H
#define EG_IO_FONTS_H
#include <eingrad/io.h>
#include "text.h"
#include <cairo-ft.h>
#include <fontconfig/fontconfig.h>
#include <fribidi.h>

/* The functions that are used here, by library. */
/* clang-format off */
#define EG_CAIRO_FUNCTIONS(X)                                                              \
    X(cairo_image_surface_create)         \
    X(cairo_surface_write_to_png_stream) X(cairo_status_to_string) X(cairo_create)         \
    X(cairo_status) X(cairo_save) X(cairo_restore) X(cairo_scale)         \
    X(cairo_translate) X(cairo_rotate) X(cairo_set_source_rgb) X(cairo_rectangle)          \
    X(cairo_fill) X(cairo_move_to) X(cairo_line_to) X(cairo_stroke) X(cairo_set_line_width)\
    X(cairo_set_line_join) X(cairo_set_line_cap) X(cairo_set_dash) X(cairo_set_font_size)  \
    X(cairo_set_font_face) X(cairo_text_extents)                \
    X(cairo_show_text) X(cairo_ft_font_face_create_for_pattern)
#define EG_FONTCONFIG_FUNCTIONS(X)                                                         \
    X(FcPatternCreate) X(FcPatternAddString) X(FcConfigSubstitute)     \
    X(FcDefaultSubstitute) X(FcFontSort) X(FcPatternGetCharSet)        \
    X(FcCharSetHasChar) X(FcFontRenderPrepare) X(FcInitLoadConfigAndFonts)
#define EG_FRIBIDI_FUNCTIONS(X)                                                            \
    X(fribidi_get_bidi_types) X(fribidi_get_bracket_types)                                 \
    X(fribidi_get_par_embedding_levels_ex) X(fribidi_get_joining_types)                    \
    X(fribidi_join_arabic) X(fribidi_shape) X(fribidi_reorder_line)
/* clang-format on */
#define EG_FUNCTION_MEMBER(name) __typeof__(name) *name;
typedef struct eg__fonts {
    EG_CAIRO_FUNCTIONS(EG_FUNCTION_MEMBER)
    EG_FONTCONFIG_FUNCTIONS(EG_FUNCTION_MEMBER)
    EG_FRIBIDI_FUNCTIONS(EG_FUNCTION_MEMBER)
    FcConfig *config;
    FcPattern *pattern;       /* sans-serif */
    FcFontSet *set;           /* all fonts, in order of preference */
    cairo_font_face_t **face; /* of each font in the set; NULL: not used yet */
} eg__fonts;

/* Loads the libraries and lists the fonts of this machine. False after an error that says what is
 * missing. */
bool eg__fonts_open(eg__fonts *, eg_ctx *, const char *path);
/* Draws the label from the origin of cr on, in reading order: words of Arabic and Hebrew from right
 * to left, Arabic letters joined. A character is drawn in the first font that has it. If none has
 * it, a box with its number in hexadecimal digits is drawn, or nothing for a character that is
 * never visible, such as a variation selector. A label wider than `limit` units is compressed.
 * Returns its width; −1 if memory ran out. An error of drawing is recorded in cr. */
double eg__fonts_draw(eg__fonts *, cairo_t *cr, const eg__label *, double limit, bool measure);
#endif
