/* embedding.c: vectors of tokens, and of positions. */
#include "nn.h"
#include <math.h>

eg_embedding *eg_embedding_new_with(const eg_embedding_args *given)
{
    OPTIONS(eg_embedding_args, a, given);
    eg_params *p = eg__nn_under(a->params, "embedding", a->name);
    if (!p || !eg__nn_positive(p, "embedding", "count", a->count) ||
        !eg__nn_positive(p, "embedding", "d_model", a->d_model))
        return NULL;
    if (!isfinite(a->scale)) {
        eg__nn_refuse(p, EG_ERROR_MISUSE, "embedding", "scale is %g, not a finite number",
                      a->scale);
        return NULL;
    }
    eg_embedding *m = eg_params_alloc(p, sizeof *m);
    if (!m) return NULL;
    const int before = eg_params_count(p);
    *m = (eg_embedding){ .name = eg__nn_name(a->params, a->name),
                         .count = a->count,
                         .d_model = a->d_model,
                         .scale = a->scale };
    m->table = eg__nn_normal(p, eg_param(p, "E", "v m", a->count, a->d_model),
                             eg_option(a->deviation, 0.5));
    return eg__nn_made(p, before, m);
}

eg_tensor *eg_embedding_run(const eg_embedding *m, eg_tensor *index)
{
    const bool before = failed(index);
    if (!m) return eg__nn_absent("embedding", index);
    if (!index) return eg__nn_missing("embedding", m->name, "the index", index);
    eg_tensor *y = eg__nn_float(eg_at("[v] m, ... -> ... m", m->table, index));
    return eg__nn_error_in("embedding", m->name, index, before,
                           m->scale ? eg_scale(y, eg_option(m->scale, 1)) : y);
}

/* -- positions -------------------------------------------------------------------------------- */
/* Fills the table with sines and cosines, in f64. */
static bool sinusoid(eg_tensor *table)
{
    eg_mark m = eg_push(eg_context(table));
    int64_t length = eg_dim(table, 0), width = eg_dim(table, 1);
    eg_tensor *exact = eg_full_n(eg_context(table), EG_F64, 0, 2, eg_dims(table));
    double *x = eg_mut_f64(exact);
    for (int64_t l = 0; x && l < length; l++)
        for (int64_t k = 0; k < width; k++) {
            double angle = (double)l / pow(10000, (double)(k / 2 * 2) / (double)width);
            x[l * width + k] = k % 2 ? cos(angle) : sin(angle);
        }
    int bad = eg_assign(table, eg_cast(exact, eg_type(table)));
    eg_pop(eg_context(table), m);
    return !bad;
}

eg_positions *eg_positions_new_with(const eg_positions_args *given)
{
    OPTIONS(eg_positions_args, a, given);
    eg_params *p = eg__nn_under(a->params, "positions", a->name);
    if (!p || !eg__nn_positive(p, "positions", "length", a->length) ||
        !eg__nn_positive(p, "positions", "d_model", a->d_model))
        return NULL;
    if (a->sinusoid && a->deviation != 0) {
        eg__nn_refuse(p, EG_ERROR_MISUSE, "positions",
                      "deviation is %g, but a sinusoid has no learned table", a->deviation);
        return NULL;
    }
    if (a->first < 0 || (a->sinusoid && a->first) || a->first > INT64_MAX - a->length) {
        eg__nn_refuse(p, EG_ERROR_MISUSE, "positions", "first is %lld, %s", (long long)a->first,
                      a->first < 0  ? "but must not be negative"
                      : a->sinusoid ? "but a sinusoid has no learned table"
                                    : "which is too large");
        return NULL;
    }
    eg_positions *m = eg_params_alloc(p, sizeof *m);
    if (!m) return NULL;
    const int before = eg_params_count(p);
    *m = (eg_positions){ .name = eg__nn_name(a->params, a->name),
                         .length = a->length,
                         .first = a->first,
                         .d_model = a->d_model };
    if (a->sinusoid) {
        m->table = eg_constant_n(p, 2, (int64_t[]){ a->length, a->d_model });
        if (!eg_ok(m->table) || !sinusoid(m->table)) return NULL;
    } else {
        m->table = eg__nn_normal(p, eg_param(p, "P", "l m", a->first + a->length, a->d_model),
                                 eg_option(a->deviation, 0.5));
    }
    return eg__nn_made(p, before, m);
}

/* The vectors are the rows of the table that .position_ids names, or consecutive ones from .offset
 * on. */
eg_tensor *eg_positions_run_with(const eg_positions_run_args *given)
{
    OPTIONS(eg_positions_run_args, a, given);
    const eg_positions *m = a->positions;
    int64_t b, l, width;
    if (!m) return eg__nn_absent("positions", a->x);
    const bool before = failed(a->x);
    if (!eg__nn_width_fits("positions", m->name, 'm', a->x, m->d_model))
        return eg__nn_missing("positions", m->name, "x", a->x);
    if (!eg_axes("b l m", a->x, &b, &l, &width))
        return eg__nn_error_in("positions", m->name, a->x, before, NULL);
    if (a->position_ids) {
        if (a->offset)
            return eg_fail_as(
                eg_context(a->x), EG_ERROR_MISUSE,
                "positions \"%s\": .offset is %lld, but .position_ids gives every position already",
                m->name, (long long)a->offset);
        eg_tensor *table = m->first ? eg_slice_axis(m->table, 0, m->first, m->first + m->length, 1)
                                    : m->table,
                  *rows = eg__nn_float(eg_at("[v] m, l -> l m", table, a->position_ids));
        return eg__nn_error_in("positions", m->name, a->x, before,
                               eg_on("b l m, l m", eg_add, a->x, rows));
    }
    if (a->offset < 0)
        return eg_fail_as(eg_context(a->x), EG_ERROR_INDEX,
                          "positions \"%s\": .offset is %lld, but must not be negative", m->name,
                          (long long)a->offset);
    int64_t end = a->offset > INT64_MAX - l ? INT64_MAX : a->offset + l;
    if (end > m->length)
        return eg_fail_as(eg_context(a->x), EG_ERROR_INDEX,
                          "positions \"%s\": 'l' goes to %lld, but the table ends at %lld", m->name,
                          (long long)end, (long long)m->length);
    const int64_t from = m->first + a->offset;
    eg_tensor *rows = eg__nn_float(eg_slice_axis(m->table, 0, from, from + l, 1)),
              *y = eg_on("b l m, l m", eg_add, a->x, rows);
    return eg__nn_error_in("positions", m->name, a->x, before, y);
}
