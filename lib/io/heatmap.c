/* heatmap.c: values, scale and labels of a heat map, and its form as text. */
#include "heatmap.h"
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

/* Checks the tensor, copies it to f64 in a scope of its own, and finds the ends of the scale.
 * False after recording why. */
bool eg__heatmap_open(eg__heatmap *map, const eg_heatmap_args *given, const char *who)
{
    *map = (eg__heatmap){ .rows = 0 };
    eg_options(&map->o, sizeof map->o, given);
    eg_tensor *x = map->o.x;
    eg_ctx *cx = map->cx = eg_context(x);
    int rank = eg_rank(x);
    if (!eg_ok(x))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: operand 1 has no values: it failed, or its scope was popped", who);
    if (!eg_ok(x) || eg_error(cx)) return false;
    if (rank != 2 && rank != 3)
        return heatmap_refuse(cx, who, "a heat map is (rows, columns) or (heads, rows, columns)",
                              x);
    for (int k = 0; k < rank; k++)
        if (eg_dim(x, k) > 4096)
            return heatmap_refuse(cx, who, "a heat map has at most 4096 rows, columns and heads",
                                  x);
    map->panels = rank == 3 ? (int)eg_dim(x, 0) : 1, map->rows = (int)eg_dim(x, -2),
    map->columns = (int)eg_dim(x, -1);
    int64_t n = eg_size(x);
    if (n == 0) return heatmap_refuse(cx, who, "there is nothing to show", x);
    if (n > 1 << 26) return heatmap_refuse(cx, who, "a heat map has at most 67108864 entries", x);
    map->mark = eg_push(cx);
    map->value = eg_f64(eg_cast(x, EG_F64));
    if (!map->value) {
        eg_pop(cx, map->mark);
        return false;
    }
    double least = 0, most = -INFINITY;
    for (int64_t k = 0; k < n; k++)
        if (isfinite(map->value[k])) {
            least = fmin(least, map->value[k]);
            most = fmax(most, map->value[k]);
        }
    map->low = eg_option(map->o.low, least);
    map->high = eg_option(map->o.high, most);
    if (!(map->high > map->low)) map->high = map->low + 1; /* all the same, or nothing finite */
    return true;
}

void eg__heatmap_close(eg__heatmap *map) { eg_pop(map->cx, map->mark); }

double eg__heatmap_level(const eg__heatmap *map, int panel, int row, int column)
{
    double v = map->value[((int64_t)panel * map->rows + row) * map->columns + column];
    return isnan(v) ? v : fmin(1, fmax(0, (v - map->low) / (map->high - map->low)));
}

void eg__heatmap_label(const char *const *tokens, int k, int columns, eg__label *label)
{
    char number[16];
    snprintf(number, sizeof number, "%d", k);
    eg__text_label(label, !tokens ? number : tokens[k] ? tokens[k] : "", columns);
}

void eg__heatmap_title(const eg__heatmap *map, int panel, int columns, eg__label *label)
{
    char text[32] = "";
    if (eg_rank(map->o.x) == 3) snprintf(text, sizeof text, "head %d", panel);
    eg__text_label(label,
                   !map->o.panels         ? text
                   : map->o.panels[panel] ? map->o.panels[panel]
                                          : "",
                   columns);
}

/* The multiples of `step` in [low, high], to tick unless it is NULL; their number. */
static int multiples(double low, double high, double step, double *tick)
{
    const double first = ceil(low / step - 1e-9), last = floor(high / step + 1e-9);
    int n = last - first < 1000 ? (int)(last - first) + 1 : 1000;
    for (int k = 0; tick && k < n; k++) tick[k] = (first + k) * step + 0.0;
    return n > 0 ? n : 0;
}

/* 1, 2 and 5 times powers of ten in [low, high], every `every`-th of them (3: the powers alone), to
 * tick unless it is NULL; their number. */
static int powers(double low, double high, int every, double *tick)
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

int eg__ticks(double low, double high, bool logarithmic, int most, double tick[EG_TICKS_MOST])
{
    most = most < EG_TICKS_MOST ? most : EG_TICKS_MOST;
    tick[0] = low;
    if (!(high > low) || !isfinite(high - low)) return 1;
    if (logarithmic && high / low >= 20)
        for (int every = 1; every < 1000; every = every < 3 ? 3 : every + 3)
            if (powers(low, high, every, NULL) <= most) return powers(low, high, every, tick);
    double power = pow(10, floor(log10((high - low) / most)));
    static const double lead[] = { 1, 2, 5, 10, 20 };
    for (size_t k = 0; k < sizeof lead / sizeof *lead; k++)
        if (multiples(low, high, lead[k] * power, NULL) <= most) {
            const int n = multiples(low, high, lead[k] * power, tick);
            return n > 0 ? n : 1;
        }
    return 1;
}

/* Linear between five points of viridis (Smith, van der Walt 2015), whose lightness rises
 * evenly. */
void eg__heatmap_colour(double level, uint8_t rgb[3])
{
    static const uint8_t point[][3] = {
        { 68, 1, 84 }, { 59, 82, 139 }, { 33, 145, 140 }, { 94, 201, 98 }, { 253, 231, 37 }
    };
    enum { LAST = sizeof point / sizeof *point - 1 };
    if (isnan(level)) {
        memset(rgb, 170, 3);
        return;
    }
    int k = level >= 1 ? LAST - 1 : (int)(level * LAST);
    double t = level * LAST - k;
    for (int c = 0; c < 3; c++)
        rgb[c] = (uint8_t)lround(point[k][c] + t * (point[k + 1][c] - point[k][c]));
}

/* -- as text: cells of two columns, row labels at the left, column labels written upward ------- */
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

static void put_cell(page *p, double level)
{
    if (p->map->o.colour) {
        uint8_t c[3];
        eg__heatmap_colour(level, c);
        eg__file_print(&p->out, "\033[48;2;%d;%d;%dm  ", c[0], c[1], c[2]);
    } else {
        char shade = isnan(level) ? '?' : shades[(int)lround(level * (sizeof shades - 2))];
        eg__file_put(&p->out, (char[]){ shade, shade }, 2);
    }
}

/* Writes the letter of a vertical label on the line `up` lines above the map, with the marks that
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

/* One row of panels: their titles, the column labels, and line by line the rows of each. */
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
            if (frame) eg__file_put(&p->out, row >= 0 ? "|" : " ", line >= 0);
            if (line < 0) {
                eg__heatmap_title(map, k, p->panel_width, &label);
                put_label(p, &label, 0, label.count);
                drawn = label.width;
            } else {
                for (int j = 0; j < map->columns; j++)
                    if (row >= 0) {
                        put_cell(p, eg__heatmap_level(map, k, row, j));
                    } else {
                        eg__heatmap_label(map->o.columns, j, LABEL, &label);
                        put_letter(p, &label, -row - 1);
                    }
                if (!frame && row >= 0) eg__file_print(&p->out, "\033[0m");
                if (frame) eg__file_put(&p->out, row >= 0 ? "|" : " ", 1);
            }
            if (k + 1 < first + panels) put_blanks(p, p->panel_width - drawn + GAP);
        }
        eg__file_put(&p->out, "\n", 1);
    }
}

static void put_scale(page *p)
{
    put_blanks(p, p->left + 1);
    eg__file_print(&p->out, "%.3g ", p->map->low);
    if (!p->map->o.colour) eg__file_print(&p->out, "[%s]", shades);
    for (int k = 0; k < 12 && p->map->o.colour; k++) put_cell(p, k / 11.0);
    eg__file_print(&p->out, "%s %.3g\n", p->map->o.colour ? "\033[0m" : "", p->map->high);
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
        eg__heatmap_title(&map, k, LABEL, &label);
        p.panel_width = label.width > p.panel_width ? label.width : p.panel_width;
    }
    int64_t width = map.o.width > 0 ? map.o.width : 80;
    int across = (int)((width - p.left - 1 + GAP) / (p.panel_width + GAP));
    across = across < 1 ? 1 : across;
    if (map.o.title) {
        eg__text_label(&label, map.o.title, EG_LABEL_MAX / 2 - 1);
        put_blanks(&p, p.left + 1);
        put_label(&p, &label, 0, label.count);
        eg__file_put(&p.out, "\n", 1);
    }
    if (map.o.row_axis || map.o.column_axis) {
        put_blanks(&p, p.left + 1);
        eg__text_label(&label, map.o.row_axis ? map.o.row_axis : "", EG_LABEL_MAX / 2 - 1);
        eg__file_print(&p.out, "rows: ");
        put_label(&p, &label, 0, label.count);
        eg__text_label(&label, map.o.column_axis ? map.o.column_axis : "", EG_LABEL_MAX / 2 - 1);
        eg__file_print(&p.out, ", columns: ");
        put_label(&p, &label, 0, label.count);
        eg__file_put(&p.out, "\n", 1);
    }
    for (int k = 0; k < map.panels && !p.out.error; k += across) {
        put_band(&p, k, map.panels - k < across ? map.panels - k : across);
        eg__file_put(&p.out, "\n", map.panels > across);
    }
    put_scale(&p);
    int result = eg__file_finish(&p.out);
    eg__heatmap_close(&map);
    return result;
}
