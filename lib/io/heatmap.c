/* heatmap.c: values, scale and labels of a heat map, and its form as text. */
#include "heatmap.h"
#include <eingrad/capture.h>
#include <eingrad/copies.h>
#include <math.h>
#include <string.h>

/* -- values, scale, labels -------------------------------------------------------------------- */
static bool heatmap_refuse(eg_ctx *cx, const char *who, const char *what, const eg_tensor *x)
{
    char dims[EG_RANK_MAX * 22];
    eg_fail_as(cx, EG_ERROR_SHAPE, "%s: operand 1 is %s, but %s", who,
               eg__encoding_dims(eg_rank(x), eg_dims(x), dims, sizeof dims), what);
    return false;
}

/* Returns the values of a tensor as f64, in the open scope; extends *least and *most by the finite
 * ones. */
static const double *heatmap_values(eg_tensor *x, double *least, double *most)
{
    const double *value = eg_f64(eg_cast(x, EG_F64));
    for (int64_t k = 0, n = value ? eg_size(x) : 0; k < n; k++)
        if (isfinite(value[k])) {
            *least = fmin(*least, value[k]);
            *most = fmax(*most, value[k]);
        }
    return value;
}

/* True if x can be shown; else records an error. */
static bool heatmap_fits(eg_ctx *cx, const char *who, const eg_tensor *x)
{
    const int rank = eg_rank(x);
    if (eg_refuse_capture(cx, who)) return false;
    if (eg_type(x) == EG_C128)
        return heatmap_refuse(cx, who, "it is c128; eg_real and eg_imag take the parts", x);
    if (eg_copies_of(x))
        return heatmap_refuse(cx, who,
                              "it has copies; eg_copies_stack shows them all, eg_copy_at one", x);
    if (rank != 2 && rank != 3)
        return heatmap_refuse(cx, who, "a heat map is (rows, columns) or (heads, rows, columns)",
                              x);
    for (int k = 0; k < rank; k++)
        if (eg_dim(x, k) > 4096)
            return heatmap_refuse(cx, who, "a heat map has at most 4096 rows, columns and heads",
                                  x);
    if (eg_size(x) == 0) return heatmap_refuse(cx, who, "there is nothing to show", x);
    return eg_size(x) <= 1 << 26 ||
           heatmap_refuse(cx, who, "a heat map has at most 67108864 entries", x);
}

/* True if `against` can be compared with x; else records an error. */
static bool heatmap_matches(eg_ctx *cx, const char *who, const eg_tensor *x,
                            const eg_tensor *against)
{
    char a[EG_RANK_MAX * 22], b[EG_RANK_MAX * 22];
    if (eg_context(against) != cx || !eg_ok(against)) {
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: .against has no values: it failed, its scope was popped, or it is of "
                   "another context",
                   who);
        return false;
    }
    bool same = eg_rank(x) == eg_rank(against);
    for (int k = 0; same && k < eg_rank(x); k++) same = eg_dim(x, k) == eg_dim(against, k);
    if (!same)
        eg_fail_as(cx, EG_ERROR_SHAPE, "%s: .against is %s, but operand 1 is %s", who,
                   eg__encoding_dims(eg_rank(against), eg_dims(against), a, sizeof a),
                   eg__encoding_dims(eg_rank(x), eg_dims(x), b, sizeof b));
    return same;
}

/* True if the ends of the scale and the width can be used; else records why not. */
static bool heatmap_numbers(const eg__heatmap *map, const char *who)
{
    const eg_heatmap_args *o = &map->o;
    if (!isfinite(o->low) || !isfinite(o->high) ||
        (o->low != 0 && o->high != 0 && !(eg_option(o->high, 0) > eg_option(o->low, 0))))
        eg_fail_as(map->cx, EG_ERROR_MISUSE, "%s: no scale goes from .low %g to .high %g", who,
                   eg_option(o->low, 0), eg_option(o->high, 0));
    else if (o->width < 0)
        eg_fail_as(map->cx, EG_ERROR_MISUSE, "%s: .width is %d; it must not be negative", who,
                   o->width);
    return !eg_error(map->cx);
}

/* The end of the differences' scale: the largest one, rounded up to 1, 2 or 5 times a power of ten;
 * where all are 0, the length of the other scale. */
static double heatmap_most(const eg__heatmap *map, int64_t n)
{
    double most = 0;
    for (int64_t k = 0; k < n; k++) {
        const double d = fabs(map->against[k] - map->value[k]);
        if (isfinite(d)) most = fmax(most, d);
    }
    if (!(most > 0)) return map->high - map->low;
    const double power = pow(10, floor(log10(most)));
    return power * (most <= power ? 1 : most <= 2 * power ? 2 : most <= 5 * power ? 5 : 10);
}

/* Checks the tensors, copies them to f64 in a separate scope, and finds the ends of the scales.
 * False after an error. */
bool eg__heatmap_open(eg__heatmap *map, const eg_heatmap_args *given, const char *who)
{
    *map = (eg__heatmap){ .rows = 0 };
    eg_options(&map->o, sizeof map->o, given);
    eg_tensor *x = map->o.x, *against = map->o.against;
    eg_ctx *cx = map->cx = eg_context(x);
    if (!eg_ok(x))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: operand 1 has no values: it failed, or its scope was popped", who);
    if (!eg_ok(x) || eg_error(cx) || !heatmap_fits(cx, who, x) || !heatmap_numbers(map, who))
        return false;
    if (against && !heatmap_matches(cx, who, x, against)) return false;
    map->panels = (eg_rank(x) == 3 ? (int)eg_dim(x, 0) : 1) * (against ? 3 : 1);
    map->rows = (int)eg_dim(x, -2), map->columns = (int)eg_dim(x, -1);
    map->mark = eg_push(cx);
    double least = 0, most = -INFINITY;
    map->value = heatmap_values(x, &least, &most);
    if (against) map->against = heatmap_values(against, &least, &most);
    if (eg_error(cx)) {
        eg_pop(cx, map->mark);
        return false;
    }
    map->low = eg_option(map->o.low, least);
    map->high = eg_option(map->o.high, most);
    /* all values are equal, or none is finite */
    if (!(map->high > map->low)) map->high = map->low + 1;
    if (against) map->most = heatmap_most(map, eg_size(x));
    return true;
}

void eg__heatmap_close(eg__heatmap *map) { eg_pop(map->cx, map->mark); }

bool eg__heatmap_is_difference(const eg__heatmap *map, int panel)
{
    return map->against && panel % 3 == 2;
}

double eg__heatmap_level(const eg__heatmap *map, int panel, int row, int column)
{
    const int head = map->against ? panel / 3 : panel;
    const int64_t k = ((int64_t)head * map->rows + row) * map->columns + column;
    const bool difference = eg__heatmap_is_difference(map, panel);
    const double v = difference                       ? map->against[k] - map->value[k]
                     : map->against && panel % 3 == 1 ? map->against[k]
                                                      : map->value[k],
                 low = difference ? -map->most : map->low,
                 high = difference ? map->most : map->high;
    return isnan(v) ? v : fmin(1, fmax(0, (v - low) / (high - low)));
}

void eg__heatmap_label(const char *const *tokens, int k, int columns, eg__label *label)
{
    char number[16];
    snprintf(number, sizeof number, "%d", k);
    eg__text_label(label, !tokens ? number : tokens[k] ? tokens[k] : "", columns);
}

/* The head's title, followed by which of the three maps this is, if there are three. */
void eg__heatmap_title(const eg__heatmap *map, int panel, int columns, eg__label *label)
{
    const int head = map->against ? panel / 3 : panel;
    char number[32] = "", text[EG_LABEL_CODES * 4];
    if (eg_rank(map->o.x) == 3) snprintf(number, sizeof number, "head %d", head);
    const char *title = !map->o.panels        ? number
                        : map->o.panels[head] ? map->o.panels[head]
                                              : "",
               *name = map->o.name ? map->o.name : "x",
               *against = map->o.against_name ? map->o.against_name : "against",
               *which = !map->against    ? ""
                        : panel % 3 == 0 ? name
                        : panel % 3 == 1 ? against
                                         : "difference";
    snprintf(text, sizeof text, "%s%s%s", title, *title && *which ? ": " : "", which);
    eg__text_label(label, text, columns);
}

/* Writes the multiples of `step` in [low, high] to tick, unless it is NULL. Returns their
 * number. */
static int multiples(double low, double high, double step, double *tick)
{
    const double first = ceil(low / step - 1e-9), last = floor(high / step + 1e-9);
    int n = last - first < 1000 ? (int)(last - first) + 1 : 1000;
    for (int k = 0; tick && k < n; k++) tick[k] = (first + k) * step + 0.0;
    return n > 0 ? n : 0;
}

/* Writes 1, 2 and 5 times powers of ten in [low, high], every `every`-th of them (3: only the
 * powers), to tick, unless it is NULL. Returns their number. */
static int powers_between(double low, double high, int every, double *tick)
{
    static const double lead[] = { 1, 2, 5 };
    int n = 0;
    for (int k = 3 * (int)floor(log10(low)); k <= 3 * (int)ceil(log10(high)); k += every) {
        double v = lead[(k % 3 + 3) % 3] * pow(10, floor(k / 3.0));
        if (v < low * (1 - 1e-9) || v > high * (1 + 1e-9)) continue;
        if (tick) tick[n] = v;
        n++;
    }
    return n;
}

/* The smallest step of 1, 2 or 5 times a power of ten that gives at most `most` ticks. */
int eg__ticks(double low, double high, bool logarithmic, int most, double tick[EG_TICKS_MOST])
{
    most = most < EG_TICKS_MOST ? most : EG_TICKS_MOST;
    tick[0] = low;
    if (!(high > low) || !isfinite(high - low)) return 1;
    if (logarithmic && high / low >= 20)
        for (int every = 1; every < 1000; every = every < 3 ? 3 : every + 3)
            if (powers_between(low, high, every, NULL) <= most)
                return powers_between(low, high, every, tick);
    double power = pow(10, floor(log10((high - low) / most)));
    static const double lead[] = { 1, 2, 5, 10, 20 };
    for (size_t k = 0; k < sizeof lead / sizeof *lead; k++)
        if (multiples(low, high, lead[k] * power, NULL) <= most) {
            const int n = multiples(low, high, lead[k] * power, tick);
            return n > 0 ? n : 1;
        }
    return 1;
}

/* True if %.*g with these digits shows every tick to a thousandth of the distance to the next. */
static bool ticks_shown(int count, const double *tick, int digits)
{
    char text[EG_TICK_TEXT];
    for (int k = 0; k + 1 < count; k++)
        for (int i = k; i < k + 2; i++) {
            eg_number_text(text, sizeof text, digits, tick[i]);
            if (fabs(eg_number_read(text, NULL) - tick[i]) > 1e-3 * (tick[k + 1] - tick[k]))
                return false;
        }
    return true;
}
void eg__tick_text(int count, const double *tick, int k, int digits, char text[EG_TICK_TEXT])
{
    bool integers = true;
    for (int i = 0; i < count; i++) integers &= fabs(tick[i]) < 1e9 && tick[i] == round(tick[i]);
    while (digits < 17 && !ticks_shown(count, tick, digits)) digits++;
    eg_number_text(text, EG_TICK_TEXT, integers ? 10 : digits, tick[k]);
}

/* Linear interpolation between five points of viridis (Smith, van der Walt 2015), whose lightness
 * increases evenly, or of RdBu (Brewer 2003), blue below and red above. */
void eg__heatmap_colour(double level, bool difference, uint8_t rgb[3])
{
    static const uint8_t points[2][5][3] = {
        { { 68, 1, 84 }, { 59, 82, 139 }, { 33, 145, 140 }, { 94, 201, 98 }, { 253, 231, 37 } },
        { { 33, 102, 172 },
          { 146, 197, 222 },
          { 247, 247, 247 },
          { 244, 165, 130 },
          { 178, 24, 43 } }
    };
    enum { LAST = 4 };
    const uint8_t(*point)[3] = points[difference];
    if (isnan(level)) {
        memset(rgb, 170, 3);
        return;
    }
    int k = level >= 1 ? LAST - 1 : (int)(level * LAST);
    double t = level * LAST - k;
    for (int c = 0; c < 3; c++)
        rgb[c] = (uint8_t)lround(point[k][c] + t * (point[k + 1][c] - point[k][c]));
}

/* -- as text: cells of two columns, row labels at the left, column labels upwards -------------- */
enum { LABEL = 16, GAP = 3 };
static const char shades[] = " .:-=+*#%@";

typedef struct page {
    eg__output out;
    const eg__heatmap *map;
    int left, above, panel_width;
} page;

static void put_label(page *p, const eg__label *label, int first, int count)
{
    char bytes[5];
    for (int k = first; k < first + count; k++)
        eg__file_put(&p->out, bytes, (size_t)eg__text_utf8(label->code[k], bytes));
}

static void put_blanks(page *p, int n) { eg__file_print(&p->out, "%*s", n > 0 ? n : 0, ""); }

static void put_cell(page *p, double level, bool difference)
{
    const int ninths = isnan(level) ? 0 : (int)lround(18 * level - 9);
    if (p->map->o.colour) {
        uint8_t c[3];
        eg__heatmap_colour(level, difference, c);
        eg__file_print(&p->out, "\033[48;2;%d;%d;%dm  ", c[0], c[1], c[2]);
    } else if (difference && !isnan(level)) {
        eg__file_print(&p->out, ninths ? "%+d" : "  ", ninths);
    } else {
        char shade = isnan(level) ? '?' : shades[(int)lround(level * (sizeof shades - 2))];
        eg__file_put(&p->out, (char[]){ shade, shade }, 2);
    }
}

/* Writes one letter of a vertical label on the line `up` lines above the map, with the marks that
 * combine with it. */
static void put_letter(page *p, const eg__label *label, int up)
{
    int letters = 0, k = 0, at = 0;
    for (int i = 0; i < label->count; i++) letters += eg__text_width(label->code[i]) > 0;
    while (k < label->count && at < letters - up) at += eg__text_width(label->code[k++]) > 0;
    if (up >= letters) {
        put_blanks(p, 2);
        return;
    }
    int first = k - 1, count = 1;
    while (first + count < label->count && !eg__text_width(label->code[first + count])) count++;
    put_label(p, label, first, count);
    put_blanks(p, 2 - eg__text_width(label->code[first]));
}

/* Prints one line of panel k between its frame: the cells of a row (row ≥ 0), or the letters of the
 * column labels that are −row − 1 lines above the first row. */
static void put_panel_line(page *p, int k, int row)
{
    const eg__heatmap *map = p->map;
    const bool frame = !map->o.colour;
    eg__label label;
    if (frame) eg__file_put(&p->out, row >= 0 ? "|" : " ", 1);
    for (int j = 0; j < map->columns; j++)
        if (row >= 0) {
            put_cell(p, eg__heatmap_level(map, k, row, j), eg__heatmap_is_difference(map, k));
        } else {
            eg__heatmap_label(map->o.columns, j, LABEL, &label);
            put_letter(p, &label, -row - 1);
        }
    if (!frame && row >= 0) eg__file_print(&p->out, "\033[0m");
    if (frame) eg__file_put(&p->out, row >= 0 ? "|" : " ", 1);
}
/* Prints one row of panels: their titles, the column labels, and line by line the rows of each. */
static void put_band(page *p, int first, int panels)
{
    const eg__heatmap *map = p->map;
    eg__label label;
    bool frame = !map->o.colour, titles = false;
    for (int k = first; k < first + panels; k++) {
        eg__heatmap_title(map, k, p->panel_width, &label);
        titles |= label.count > 0;
    }
    for (int line = titles ? -1 : 0; line < p->above + map->rows; line++) {
        int row = line - p->above;
        if (row >= 0) {
            eg__heatmap_label(map->o.rows, row, LABEL, &label);
            put_blanks(p, p->left - label.width);
            put_label(p, &label, 0, label.count);
            put_blanks(p, 1);
        } else {
            put_blanks(p, p->left + 1);
        }
        for (int k = first; k < first + panels; k++) {
            int drawn = 2 * map->columns + 2 * frame;
            if (line < 0) {
                eg__heatmap_title(map, k, p->panel_width, &label);
                put_label(p, &label, 0, label.count);
                drawn = label.width;
            } else {
                put_panel_line(p, k, row);
            }
            if (k + 1 < first + panels) put_blanks(p, p->panel_width - drawn + GAP);
        }
        eg__file_put(&p->out, "\n", 1);
    }
}

/* Prints a scale: its ends, and the shades or colours between them. */
static void put_scale(page *p, double low, double high, const char *name, bool difference)
{
    eg__label label;
    put_blanks(p, p->left + 1);
    eg__file_print(&p->out, "%.3g ", low);
    if (!p->map->o.colour) eg__file_print(&p->out, "[%s]", difference ? "-9 ... +9" : shades);
    for (int k = 0; k < 12 && p->map->o.colour; k++) put_cell(p, k / 11.0, difference);
    eg__file_print(&p->out, "%s %.3g%s", p->map->o.colour ? "\033[0m" : "", high, name ? " " : "");
    eg__text_label(&label, name ? name : "", EG_LABEL_CODES / 2 - 1);
    put_label(p, &label, 0, label.count);
    eg__file_put(&p->out, "\n", 1);
}

/* Prints the title and the names of the axes. */
static void put_heading(page *p)
{
    const eg_heatmap_args *o = &p->map->o;
    eg__label label;
    if (o->title) {
        eg__text_label(&label, o->title, EG_LABEL_CODES / 2 - 1);
        put_blanks(p, p->left + 1);
        put_label(p, &label, 0, label.count);
        eg__file_put(&p->out, "\n", 1);
    }
    if (o->row_axis || o->column_axis) {
        put_blanks(p, p->left + 1);
        eg__text_label(&label, o->row_axis ? o->row_axis : "", EG_LABEL_CODES / 2 - 1);
        eg__file_print(&p->out, "rows: ");
        put_label(p, &label, 0, label.count);
        eg__text_label(&label, o->column_axis ? o->column_axis : "", EG_LABEL_CODES / 2 - 1);
        eg__file_print(&p->out, ", columns: ");
        put_label(p, &label, 0, label.count);
        eg__file_put(&p->out, "\n", 1);
    }
}

/* Finds the widths of labels and panels, then prints titles, panels in rows that fit, and the
 * scale. */
int eg_heatmap_print_with(FILE *file, const eg_heatmap_args *given)
{
    eg__heatmap map;
    eg__label label;
    if (!file && given)
        eg_fail_as(eg_context(given->x), EG_ERROR_MISUSE, "heatmap: the file is NULL");
    if (!file || !eg__heatmap_open(&map, given, "heatmap")) return -1;
    page p = { .map = &map };
    eg__file_stream(&p.out, map.cx, "heatmap", file);
    for (int k = 0; k < map.rows; k++) {
        eg__heatmap_label(map.o.rows, k, LABEL, &label);
        p.left = label.width > p.left ? label.width : p.left;
    }
    for (int k = 0; k < map.columns; k++) {
        eg__heatmap_label(map.o.columns, k, LABEL, &label);
        int letters = 0;
        for (int i = 0; i < label.count; i++) letters += eg__text_width(label.code[i]) > 0;
        p.above = letters > p.above ? letters : p.above;
    }
    p.panel_width = 2 * map.columns + (map.o.colour ? 0 : 2);
    for (int k = 0; k < map.panels; k++) {
        eg__heatmap_title(&map, k, map.against ? 2 * LABEL : LABEL, &label);
        p.panel_width = label.width > p.panel_width ? label.width : p.panel_width;
    }
    int64_t width = map.o.width > 0 ? map.o.width : 80;
    int across = (int)((width - p.left - 1 + GAP) / (p.panel_width + GAP));
    /* three maps of one head are side by side, or each below the other */
    if (map.against) across = across < 3 ? 1 : across - across % 3;
    across = across < 1 ? 1 : across;
    put_heading(&p);
    for (int k = 0; k < map.panels && !p.out.error; k += across) {
        put_band(&p, k, map.panels - k < across ? map.panels - k : across);
        eg__file_put(&p.out, "\n", map.panels > across);
    }
    put_scale(&p, map.low, map.high, map.o.value_axis, false);
    if (map.against) put_scale(&p, -map.most, map.most, "difference", true);
    int result = eg__file_finish(&p.out);
    eg__heatmap_close(&map);
    return result;
}
