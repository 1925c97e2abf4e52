/* picture.c: the layout of a heat map as a picture, for both PNG and SVG: title, panels in a grid
 * with tokens on both axes, the scale. */
#include "heatmap.h"
#include <math.h>
#include <string.h>
#include <strings.h>

enum {
    MARGIN = 20,
    SPACE = 24,
    PAD = 8,
    LINE = EG_HEIGHT + 6,
    BAR = 18,
    BAR_LEAST = 120,
    BAR_MOST = 400,
    TICKS = 6,
    TICK = 11,
    TOKEN = 24,
    TITLE = 60,
    SIDE_MOST = 30000,
    POINTS_MOST = 1 << 26
};

typedef struct layout {
    const eg__heatmap *map;
    int cell, every;        /* size of a cell in points; every how many cells have a label */
    bool upward;            /* column labels are vertical */
    int left, above, title; /* space for row labels, column labels, panel titles */
    int panel_width, panel_height, across, down;
    int top, bar_height;
    /* width of the scales of values and of differences, with their numbers and names */
    int bar_width[2];
    /* space for the axes' names: that of the rows at the left, that of the columns below */
    int side, below;
    eg__canvas canvas;
} layout;

static int points(const eg__label *label) { return label->width * EG_ADVANCE; }
static int picture_most(int a, int b) { return a > b ? a : b; }

/* Returns the size of a cell in points: enough for a line of text if there are at most 64 rows and
 * columns. */
static int cell_size(int n)
{
    static const struct {
        int upto, size;
    } sizes[] = { { 8, 36 }, { 16, 28 }, { 32, 20 }, { 64, LINE } };
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        if (n <= sizes[k].upto) return sizes[k].size;
    return picture_most(1, 1024 / n);
}

/* Computes the sizes of cells, labels and panels, and the grid of panels whose shape is nearest to
 * 3 : 2. */
static void arrange(layout *l)
{
    const eg__heatmap *map = l->map;
    eg__label label;
    int wide = 0, title_width = 0;
    l->cell = cell_size(picture_most(map->rows, map->columns));
    l->every = (LINE + l->cell - 1) / l->cell;
    for (int k = 0; k < map->rows; k += l->every) {
        eg__heatmap_label(map->o.rows, k, TOKEN, &label);
        l->left = picture_most(l->left, points(&label));
    }
    for (int k = 0; k < map->columns; k += l->every) {
        eg__heatmap_label(map->o.columns, k, TOKEN, &label);
        wide = picture_most(wide, points(&label));
    }
    for (int k = 0; k < map->panels; k++) {
        eg__heatmap_title(map, k, TITLE, &label);
        title_width = picture_most(title_width, points(&label));
    }
    l->upward = wide + 4 > l->cell * l->every;
    l->left += PAD;
    l->above = (l->upward ? wide : EG_HEIGHT) + PAD;
    l->title = title_width ? LINE + PAD : 0;
    l->panel_width = l->left + picture_most(map->columns * l->cell, title_width);
    l->panel_height = l->title + l->above + map->rows * l->cell;
    double best = INFINITY; /* the grid whose shape is nearest to 3 : 2, with few gaps */
    const int step = map->against ? 3 : 1; /* three maps of one head are side by side */
    for (int across = step; across <= map->panels; across += step) {
        int down = (map->panels + across - 1) / across;
        double shape =
            (double)across * (l->panel_width + SPACE) / ((double)down * (l->panel_height + SPACE));
        double cost = fabs(log(shape / 1.5)) + 0.3 * (across * down - map->panels);
        if (cost < best) best = cost, l->across = across, l->down = down;
    }
}

static void tick(int count, const double *at, int k, eg__label *label)
{
    char text[EG_TICK_TEXT];
    eg__tick_text(count, at, k, 4, text);
    eg__text_label(label, text, TITLE);
}

/* Returns the width of a scale: the bar, its numbers and its name. */
static int scale_width(double low, double high, const char *name)
{
    eg__label label;
    double at[EG_TICKS_MOST];
    int ticks = 0;
    for (int k = 0, n = eg__ticks(low, high, false, TICKS, at); k < n; k++) {
        tick(n, at, k, &label);
        ticks = picture_most(ticks, points(&label));
    }
    return BAR + TICK + ticks + (name ? LINE + PAD : 0);
}

/* Computes the canvas around the panels, the scales and the titles. False if it would be too
 * large. */
static bool size(layout *l)
{
    const eg__heatmap *map = l->map;
    eg__label label;
    int title = 0;
    l->bar_width[0] = scale_width(map->low, map->high, map->o.value_axis);
    if (map->against) l->bar_width[1] = SPACE + scale_width(-map->most, map->most, "difference");
    if (map->o.title) {
        eg__text_label(&label, map->o.title, TITLE);
        title = points(&label);
        l->top = title ? LINE + SPACE / 2 : 0;
    }
    l->side = map->o.row_axis ? LINE + PAD : 0, l->below = map->o.column_axis ? LINE + PAD : 0;
    double width =
        l->side + (double)l->across * (l->panel_width + SPACE) + l->bar_width[0] + l->bar_width[1];
    double height = (double)l->down * (l->panel_height + SPACE) - SPACE;
    double grid = height - l->title - l->above;
    l->bar_height = grid < BAR_LEAST ? BAR_LEAST : grid > BAR_MOST ? BAR_MOST : (int)grid;
    height = fmax(height, l->title + l->above + l->bar_height + EG_HEIGHT / 2);
    width = fmax(width, title) + 2 * MARGIN, height += l->top + l->below + 2 * MARGIN;
    if (width > SIDE_MOST || height > SIDE_MOST || width * height > POINTS_MOST) {
        eg_fail_as(
            map->cx, EG_ERROR_SHAPE,
            "picture: %d panel%s of %d row%s and %d column%s need %.0f x %.0f points, more than "
            "fit in one picture",
            map->panels, map->panels == 1 ? "" : "s", map->rows, map->rows == 1 ? "" : "s",
            map->columns, map->columns == 1 ? "" : "s", width, height);
        return false;
    }
    l->canvas.width = (int)width, l->canvas.height = (int)height;
    return true;
}

static int picture_colour(const eg__heatmap *map, int panel, int row, int column)
{
    const double level = eg__heatmap_level(map, panel, row, column);
    const int first = eg__heatmap_is_difference(map, panel) ? EG_DIFFERENCES : 0;
    return isnan(level) ? EG_GREY : first + (int)lround(level * (EG_LEVELS - 1));
}

/* Draws the cells from the corner (x0, y0) on. Neighbours of one colour in a row are one rectangle;
 * large cells are drawn separately, with a gap of one point. */
static void draw_cells(const layout *l, eg__canvas *c, int panel, int x0, int y0)
{
    const eg__heatmap *map = l->map;
    int seam = l->cell >= LINE;
    for (int i = 0; i < map->rows; i++)
        for (int j = 0, next; j < map->columns; j = next) {
            int shade = picture_colour(map, panel, i, j);
            next = j + 1;
            while (!seam && next < map->columns && picture_colour(map, panel, i, next) == shade)
                next++;
            c->rectangle(c, x0 + j * l->cell, y0 + i * l->cell, (next - j) * l->cell - seam,
                         l->cell - seam, shade);
        }
}

/* Draws a panel: its title, the cells, the row labels at the left, the column labels above. */
static void draw_panel(const layout *l, eg__canvas *c, int panel)
{
    const eg__heatmap *map = l->map;
    eg__label label;
    int x = MARGIN + l->side + panel % l->across * (l->panel_width + SPACE) + l->left;
    int y = MARGIN + l->top + panel / l->across * (l->panel_height + SPACE);
    eg__heatmap_title(map, panel, TITLE, &label);
    c->text(c, x, y, EG_FROM_LEFT, &label);
    y += l->title + l->above;
    draw_cells(l, c, panel, x, y);
    for (int i = 0; i < map->rows; i += l->every) {
        eg__heatmap_label(map->o.rows, i, TOKEN, &label);
        c->text(c, x - PAD, y + i * l->cell + (l->every > 1 ? 0 : (l->cell - EG_HEIGHT) / 2),
                EG_FROM_RIGHT, &label);
    }
    for (int j = 0; j < map->columns; j += l->every) {
        eg__heatmap_label(map->o.columns, j, TOKEN, &label);
        int at = x + j * l->cell, height = l->every > 1 ? LINE : l->cell;
        if (l->upward)
            c->text(c, at + (height - EG_HEIGHT) / 2, y - PAD, EG_UPWARD, &label);
        else
            c->text(c, at + (l->every > 1 ? 0 : l->cell / 2), y - PAD - EG_HEIGHT,
                    l->every > 1 ? EG_FROM_LEFT : EG_CENTRED, &label);
    }
}

/* Draws a bar of colours, from `first` on, with numbers at round values and its name; x is its left
 * edge. */
static void draw_scale(const layout *l, eg__canvas *c, int x, double low, double high, int first,
                       const char *name)
{
    eg__label label;
    int y = MARGIN + l->top + l->title + l->above, n = l->bar_height, widest = 0;
    for (int k = 0; k < n; k++)
        c->rectangle(c, x, y + n - 1 - k, BAR, 1,
                     first + (int)lround((double)k / (n - 1) * (EG_LEVELS - 1)));
    double value[EG_TICKS_MOST];
    for (int k = 0, ticks = eg__ticks(low, high, false, TICKS, value); k < ticks; k++) {
        int at = y + (int)lround((n - 1) * (high - value[k]) / (high - low));
        tick(ticks, value, k, &label);
        widest = picture_most(widest, points(&label));
        c->rectangle(c, x + BAR, at, 4, 1, EG_INK);
        c->text(c, x + BAR + TICK, at - EG_HEIGHT / 2, EG_FROM_LEFT, &label);
    }
    eg__text_label(&label, name ? name : "", TITLE);
    c->text(c, x + BAR + TICK + widest + PAD, y + n / 2, EG_UPWARD_CENTRED, &label);
}

/* Draws the names of both axes, once for all panels: at the left of the first one, and below the
 * last row of panels. */
static void draw_axes(const layout *l, eg__canvas *c)
{
    const eg_heatmap_args *o = &l->map->o;
    eg__label label;
    const int top = MARGIN + l->top + l->title + l->above, left = MARGIN + l->side + l->left;
    if (o->row_axis) {
        eg__text_label(&label, o->row_axis, TITLE);
        c->text(c, MARGIN, top + picture_most(l->map->rows * l->cell, points(&label)) / 2,
                EG_UPWARD_CENTRED, &label);
    }
    if (o->column_axis) {
        eg__text_label(&label, o->column_axis, TITLE);
        c->text(c, left + picture_most(l->map->columns * l->cell, points(&label)) / 2,
                l->canvas.height - MARGIN - EG_HEIGHT, EG_CENTRED, &label);
    }
}

/* Draws title, axes, panels and scales. */
static void picture_draw(eg__canvas *c, const void *picture)
{
    const layout *l = picture;
    if (l->top) {
        eg__label label;
        eg__text_label(&label, l->map->o.title, TITLE);
        c->text(c, MARGIN, MARGIN, EG_FROM_LEFT, &label);
    }
    draw_axes(l, c);
    for (int k = 0; k < l->map->panels; k++) draw_panel(l, c, k);
    const int x = MARGIN + l->side + l->across * (l->panel_width + SPACE);
    draw_scale(l, c, x, l->map->low, l->map->high, 0, l->map->o.value_axis);
    if (l->map->against)
        draw_scale(l, c, x + l->bar_width[0] + SPACE, -l->map->most, l->map->most, EG_DIFFERENCES,
                   "difference");
}

/* The colours of curves are those of Okabe and Ito 2008, which colour-blind readers can
 * distinguish, in the order of their contrast with white, with grey instead of yellow. */
void eg__picture_palette(uint8_t rgb[EG_COLOURS][3])
{
    static const uint8_t curve[EG_CURVE_COLOURS][3] = {
        { 0, 114, 178 }, { 213, 94, 0 },   { 0, 158, 115 }, { 204, 121, 167 },
        { 230, 159, 0 }, { 86, 180, 233 }, { 0, 0, 0 },     { 136, 136, 136 },
    };
    for (int k = 0; k < EG_LEVELS; k++) {
        eg__heatmap_colour((double)k / (EG_LEVELS - 1), false, rgb[k]);
        eg__heatmap_colour((double)k / (EG_LEVELS - 1), true, rgb[EG_DIFFERENCES + k]);
    }
    eg__heatmap_colour(NAN, false, rgb[EG_GREY]);
    memset(rgb[EG_PALE], 221, 3);
    memset(rgb[EG_WHITE], 255, 3);
    memset(rgb[EG_INK], 34, 3);
    memcpy(rgb[EG_CURVE], curve, sizeof curve);
}

/* Each has fewer than 30 points, so that a sample in the legend shows all of it. */
const eg__dashes eg__dash[EG_DASHES] = {
    { 0, { 0 } },           { 2, { 7, 4 } },       { 2, { 2, 3 } },
    { 2, { 12, 4 } },       { 4, { 8, 3, 2, 3 } }, { 6, { 10, 3, 2, 3, 2, 3 } },
    { 4, { 12, 3, 5, 3 } }, { 2, { 3, 8 } },
};

static const struct {
    const char *end;
    int (*write)(eg__output *, eg__canvas *, eg__draw *, const void *);
} formats[] = {
    { ".png", eg__png_write },
    { ".svg", eg__svg_write },
};

int eg__picture_write(eg_ctx *cx, const char *path, eg__canvas *canvas, eg__draw *drawing,
                      const void *picture)
{
    const char *end = path ? strrchr(path, '.') : NULL;
    eg__output out;
    for (size_t k = 0; end && k < sizeof formats / sizeof *formats; k++)
        if (!strcasecmp(end, formats[k].end))
            return eg__file_create(&out, cx, "picture", path)
                       ? formats[k].write(&out, canvas, drawing, picture)
                       : -1;
    eg_fail_as(cx, EG_ERROR_MISUSE, "picture: the name '%s' ends neither in .png nor in .svg",
               path ? path : "(NULL)");
    return -1;
}

int eg_picture_save_with(const char *path, const eg_heatmap_args *given)
{
    eg__heatmap map;
    if (!eg__heatmap_open(&map, given, "picture")) return -1;
    layout l = { .map = &map };
    arrange(&l);
    int result = size(&l) ? eg__picture_write(map.cx, path, &l.canvas, picture_draw, &l) : -1;
    eg__heatmap_close(&map);
    return result;
}
