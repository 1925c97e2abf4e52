/* fonts.c: text in the fonts of the machine: FriBidi orders the letters and joins them, fontconfig
 * finds a font for each, cairo draws. */
#include <config.h>
#include <eingrad/io.h>
#if HAVE_CAIRO
#include "fonts.h"
#include <dlfcn.h>
#include "heatmap.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Writes the address of the named function of a library to *function; false if there is none. */
static bool fonts_find(void *so, const char *name, void *function)
{
    void *p = so ? dlsym(so, name) : NULL;
    memcpy(function, &p, sizeof p);
    return p != NULL;
}

/* Fills the table of functions. NULL if all are found; else the name of the missing library, or ""
 * if memory ran out. */
static const char *fonts_load(eg__fonts *f)
{
    static const char *const name[] = { "libcairo.so.2", "libfontconfig.so.1", "libfribidi.so.0" };
    bool all[3] = { true, true, true };
    void *so[3];
    for (int k = 0; k < 3; k++) {
        errno = 0;
        so[k] = dlopen(name[k], RTLD_NOW | RTLD_LOCAL);
        if (!so[k]) return errno == ENOMEM ? "" : name[k];
    }
#define FIND_CAIRO(what)      all[0] = fonts_find(so[0], #what, &f->what) && all[0];
#define FIND_FONTCONFIG(what) all[1] = fonts_find(so[1], #what, &f->what) && all[1];
#define FIND_FRIBIDI(what)    all[2] = fonts_find(so[2], #what, &f->what) && all[2];
    EG_CAIRO_FUNCTIONS(FIND_CAIRO)
    EG_FONTCONFIG_FUNCTIONS(FIND_FONTCONFIG)
    EG_FRIBIDI_FUNCTIONS(FIND_FRIBIDI)
    for (int k = 0; k < 3; k++)
        if (!all[k]) return name[k];
    return NULL;
}

/* An error says which Debian packages are missing, and that SVG needs none. */
bool eg__fonts_open(eg__fonts *f, eg_ctx *cx, const char *path)
{
    FcResult result;
    *f = (eg__fonts){ .pattern = NULL };
    const char *missing = fonts_load(f);
    if (missing && !*missing)
        eg_fail_as(cx, EG_ERROR_MEMORY, "picture: '%s': out of memory", path);
    else if (missing)
        eg_fail_as(cx, EG_ERROR_FILE,
                   "picture: '%s': PNG is drawn by %s, which cannot be loaded (on Debian: apt-get "
                   "install libcairo2 libfribidi0); .svg needs no library",
                   path, missing);
    /* a separate configuration: without memory, fontconfig's common one waits for ever */
    if (!missing) f->config = f->FcInitLoadConfigAndFonts();
    if (f->config) f->pattern = f->FcPatternCreate();
    if (f->pattern && f->FcPatternAddString(f->pattern, FC_FAMILY, (const FcChar8 *)"sans-serif") &&
        f->FcConfigSubstitute(f->config, f->pattern, FcMatchPattern)) {
        f->FcDefaultSubstitute(f->pattern);
        f->set = f->FcFontSort(f->config, f->pattern, FcTrue, NULL, &result);
        if (f->set) f->face = calloc((size_t)f->set->nfont + 1, sizeof(cairo_font_face_t *));
    }
    if (f->set && !f->face)
        eg_fail_as(cx, EG_ERROR_MEMORY, "picture: '%s': out of memory", path);
    else if (!missing && (!f->set || f->set->nfont == 0))
        eg_fail_as(cx, EG_ERROR_FILE,
                   "picture: '%s': fontconfig finds no font, which PNG needs (on Debian: apt-get "
                   "install fonts-dejavu-core); .svg needs none",
                   path);
    return !eg_error(cx);
}

static bool fonts_has(const eg__fonts *f, int font, uint32_t code)
{
    FcCharSet *set = NULL;
    return f->FcPatternGetCharSet(f->set->fonts[font], FC_CHARSET, 0, &set) == FcResultMatch &&
           f->FcCharSetHasChar(set, code);
}

enum { NO_FONT = -1, UNSEEN = -2 };
/* True for characters that are drawn as nothing where no font has them: joiners, marks of
 * direction, variation selectors (Unicode's Default_Ignorable_Code_Point). */
static bool fonts_unseen(uint32_t code)
{
    return code == 0xAD || code == 0x34F || code == 0x61C || (code >= 0x200B && code <= 0x200F) ||
           (code >= 0x2060 && code <= 0x206F) || (code >= 0xFE00 && code <= 0xFE0F) ||
           code == 0xFEFF || (code >= 0xE0000 && code <= 0xE0FFF);
}
/* Returns the index of the font for a character: `now`, that of the previous character, for marks
 * that combine with it and for blanks; else the first font that has the character; NO_FONT or
 * UNSEEN if none has. */
static int fonts_pick(const eg__fonts *f, uint32_t code, int now)
{
    if (now >= 0 && (!eg__text_width(code) || code == ' ') && fonts_has(f, now, code)) return now;
    for (int k = 0; k < f->set->nfont; k++)
        if (fonts_has(f, k, code)) return k;
    return fonts_unseen(code) ? UNSEEN : NO_FONT;
}

static void fonts_choose(eg__fonts *f, cairo_t *cr, int font)
{
    if (!f->face[font]) {
        FcPattern *full = f->FcFontRenderPrepare(f->config, f->pattern, f->set->fonts[font]);
        if (!full) return; /* the previous font is used */
        f->face[font] = f->cairo_ft_font_face_create_for_pattern(full);
    }
    f->cairo_set_font_face(cr, f->face[font]);
}

/* Copies the label to `text` in visual order, from left to right, with Arabic letters in the forms
 * that their neighbours require. Returns the number of characters; −1 if memory ran out. */
static int fonts_order(const eg__fonts *f, const eg__label *label, FriBidiChar *text)
{
    const FriBidiStrIndex n = label->count;
    FriBidiCharType type[EG_LABEL_CODES];
    FriBidiBracketType bracket[EG_LABEL_CODES];
    FriBidiLevel level[EG_LABEL_CODES];
    FriBidiJoiningType joining[EG_LABEL_CODES];
    FriBidiParType base = FRIBIDI_PAR_ON;
    const FriBidiFlags flags = FRIBIDI_FLAGS_DEFAULT | FRIBIDI_FLAGS_ARABIC;
    int kept = 0;
    memcpy(text, label->code, (size_t)n * sizeof *text);
    f->fribidi_get_bidi_types(text, n, type);
    f->fribidi_get_bracket_types(text, n, type, bracket);
    if (!f->fribidi_get_par_embedding_levels_ex(type, bracket, n, &base, level)) return -1;
    f->fribidi_get_joining_types(text, n, joining);
    f->fribidi_join_arabic(type, n, level, joining);
    f->fribidi_shape(flags, level, n, joining, text);
    if (!f->fribidi_reorder_line(flags, type, n, 0, base, level, text, NULL)) return -1;
    for (int k = 0; k < n; k++)
        if (text[k] != FRIBIDI_CHAR_FILL) text[kept++] = text[k]; /* the rest of a ligature */
    return kept;
}

/* Draws a box with the number of a character in hexadecimal digits, in two lines, as Firefox and
 * GNU Unifont do. Returns its width. */
static double fonts_hex(eg__fonts *f, cairo_t *cr, uint32_t code, double x, bool draw)
{
    const double width = EG_ADVANCE * (code > 0xFFFF ? 2 : 1.5), side = width - 2;
    char digits[16], line[8];
    const int n = snprintf(digits, sizeof digits, "%04X", (unsigned)code), first = (n + 1) / 2;
    if (!draw) return width;
    f->cairo_save(cr);
    f->cairo_set_line_width(cr, 1);
    f->cairo_rectangle(cr, x + 1, -EG_HEIGHT, side, EG_HEIGHT + 2);
    f->cairo_stroke(cr);
    f->cairo_set_font_size(cr, EG_FONT * 0.45);
    fonts_choose(f, cr, 0);
    for (int k = 0; k < 2; k++) {
        cairo_text_extents_t e = { .x_advance = 0 };
        snprintf(line, sizeof line, "%.*s", k ? n - first : first, digits + (k ? first : 0));
        f->cairo_text_extents(cr, line, &e);
        f->cairo_move_to(cr, x + 1 + (side - e.x_advance) / 2, k ? 0.5 : -EG_HEIGHT / 2.0 - 0.5);
        f->cairo_show_text(cr, line);
    }
    f->cairo_restore(cr);
    return width;
}

/* Measures or draws the text: runs of characters of one font, each beginning where the last one
 * ended. */
static double fonts_runs(eg__fonts *f, cairo_t *cr, const FriBidiChar *code, int count, bool draw)
{
    char run[EG_LABEL_CODES * 4 + 1];
    double x = 0;
    for (int k = 0, font = 0, next; k < count; k = next) {
        int length = 0;
        cairo_text_extents_t e = { .x_advance = 0 };
        font = fonts_pick(f, code[k], font);
        if (font < 0) {
            x += font == NO_FONT ? fonts_hex(f, cr, code[k], x, draw) : 0;
            next = k + 1;
            continue;
        }
        for (next = k; next < count && fonts_pick(f, code[next], font) == font; next++)
            length += eg__text_utf8(code[next], run + length);
        run[length] = 0;
        fonts_choose(f, cr, font);
        f->cairo_text_extents(cr, run, &e);
        if (draw) {
            f->cairo_move_to(cr, x, 0);
            f->cairo_show_text(cr, run);
        }
        x += e.x_advance;
    }
    return x;
}

double eg__fonts_draw(eg__fonts *f, cairo_t *cr, const eg__label *label, double limit, bool measure)
{
    FriBidiChar code[EG_LABEL_CODES];
    const int n = label->count ? fonts_order(f, label, code) : 0;
    if (n <= 0) return n;
    const double width = fonts_runs(f, cr, code, n, false),
                 scale = width > limit ? limit / width : 1;
    if (measure) return scale * width;
    f->cairo_save(cr);
    f->cairo_scale(cr, scale, 1);
    fonts_runs(f, cr, code, n, true);
    f->cairo_restore(cr);
    return scale * width;
}
#endif
