/* safetensors_find.c: tensors and metadata of a file by number and by name. */
#include "safetensors.h"
#include <stdlib.h>
#include <string.h>

static const eg__st_tensor *st_at(const eg_safetensors *st, int k)
{
    return st && k >= 0 && k < st->count ? &st->tensors[k] : NULL;
}

int eg_safetensors_count(const eg_safetensors *st) { return st ? st->count : 0; }
const char *eg_safetensors_name(const eg_safetensors *st, int k)
{
    return st_at(st, k) ? st_at(st, k)->name : NULL;
}
eg_tensor *eg_safetensors_at(const eg_safetensors *st, int k)
{
    return st_at(st, k) ? st_at(st, k)->x : NULL;
}
const char *eg_safetensors_file(const eg_safetensors *st, int k)
{
    return st_at(st, k) ? st->file[st_at(st, k)->file] : NULL;
}

const char *eg_safetensors_key(const eg_safetensors *st, int k)
{
    return st && k >= 0 && k < st->pairs ? st->metadata[2 * k] : NULL;
}

int eg_safetensors_find(const eg_safetensors *st, const char *name)
{
    const eg__st_tensor key = { .name = name }, *k = &key, *const *found = NULL;
    if (st && name && st->count)
        found =
            bsearch(&k, st->by_name, (size_t)st->count, sizeof *st->by_name, eg__st_order_of_names);
    return found ? (int)(*found - st->tensors) : -1;
}

/* Levenshtein's distance of two names, both cut to LENGTH; `most` + 1 if it is larger than
 * `most`. */
static int st_distance(const char *a, const char *b, int most)
{
    enum { LENGTH = 128 };
    int n = (int)strnlen(a, LENGTH), m = (int)strnlen(b, LENGTH), row_of[LENGTH + 1];
    if (abs(n - m) > most) return most + 1;
    for (int k = 0; k <= m; k++) row_of[k] = k;
    for (int i = 1; i <= n; i++) {
        int corner = row_of[0], least = row_of[0] = i;
        for (int k = 1; k <= m; k++) {
            int change = corner + (a[i - 1] != b[k - 1]),
                step = (row_of[k] < row_of[k - 1] ? row_of[k] : row_of[k - 1]) + 1;
            corner = row_of[k];
            row_of[k] = change < step ? change : step;
            least = row_of[k] < least ? row_of[k] : least;
        }
        if (least > most) return most + 1;
    }
    return row_of[m];
}

const char *eg_safetensors_nearest(const eg_safetensors *st, const char *name)
{
    const char *nearest = NULL;
    int most = name ? (int)strnlen(name, 128) / 2 : 0;
    for (int k = 0; st && name && k < st->count && most >= 0; k++) {
        int d = st_distance(name, st->tensors[k].name, most);
        if (d <= most) nearest = st->tensors[k].name, most = d - 1;
    }
    return nearest;
}

eg_tensor *eg_safetensors_get(const eg_safetensors *st, const char *name)
{
    int k = eg_safetensors_find(st, name);
    const char *near = k < 0 ? eg_safetensors_nearest(st, name) : NULL;
    if (k < 0 && st)
        return eg_fail_as(eg_owner_context(st->owner), EG_ERROR_FILE,
                          "safetensors: %s%sno tensor is named '%s'%s%s%s", st->path,
                          *st->path ? ": " : "", name ? name : "(NULL)",
                          near ? "; the nearest name is '" : "", near ? near : "", near ? "'" : "");
    return eg_safetensors_at(st, k);
}

/* The error names the tensor that is missing, with the name nearest to it, or that has other
 * sizes. */
eg_tensor *eg_safetensors_need(const eg_safetensors *st, const char *path, const char *name,
                               const char *whose, int rank, const int64_t *dims)
{
    if (st && (!name || !whose || (rank > 0 && !dims)))
        return eg_fail_as(eg_owner_context(st->owner), EG_ERROR_MISUSE,
                          "safetensors_need: name, whose or dims is NULL");
    int k = eg_safetensors_find(st, name);
    eg_tensor *x = eg_safetensors_at(st, k);
    bool same = k >= 0 && eg_rank(x) == rank;
    for (int d = 0; same && d < rank; d++) same = eg_dim(x, d) == dims[d];
    bool real = k >= 0 && (eg_type(x) == EG_F32 || eg_type(x) == EG_F64);
    if (!st || (same && real)) return x;
    char have[EG_RANK_MAX * 22], need[EG_RANK_MAX * 22];
    eg_ctx *cx = eg_owner_context(st->owner);
    const char *file = st->files > 1 && k >= 0 ? eg_safetensors_file(st, k)
                       : path                  ? path
                                               : st->path;
    const char *near = k < 0 ? eg_safetensors_nearest(st, name) : NULL;
    eg__encoding_dims(rank, dims, need, sizeof need);
    if (k >= 0) eg__encoding_dims(eg_rank(x), eg_dims(x), have, sizeof have);
    /* which parameter wants it, unless it has the same name */
    char needs[300];
    if (strcmp(name, whose))
        snprintf(needs, sizeof needs, "%s \"%.256s\" needs", k < 0 ? "of which" : "but", whose);
    else
        snprintf(needs, sizeof needs, k < 0 ? "which must be" : "not");
    if (k < 0)
        return eg_fail_as(cx, EG_ERROR_FILE, "%s: no tensor \"%s\", %s %s%s%s%s", file, name, needs,
                          need, near ? "; the nearest name is \"" : "", near ? near : "",
                          near ? "\"" : "");
    if (!same)
        return eg_fail_as(cx, EG_ERROR_FILE, "%s: tensor \"%s\" is %s, %s %s", file, name, have,
                          needs, need);
    return eg_fail_as(cx, EG_ERROR_DTYPE, "%s: tensor \"%s\" is %s, %s f32 or f64", file, name,
                      eg_type_name(eg_type(x)), needs);
}

const char *eg_safetensors_metadata(const eg_safetensors *st, const char *key)
{
    for (int k = 0; st && key && k < st->pairs; k++)
        if (!strcmp(st->metadata[2 * k], key)) return st->metadata[2 * k + 1];
    return NULL;
}
