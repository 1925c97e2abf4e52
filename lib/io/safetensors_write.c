/* safetensors_write.c: writes tensors and metadata to one file. */
#include "safetensors.h"
#include "json.h"
#include "text.h"
#include <eingrad/copies.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Records "safetensors: PATH: WHAT 'NAME'" and returns false. name: NULL for none. */
static bool st_refuse(eg_ctx *cx, const char *path, eg_code code, const char *what,
                      const char *name)
{
    eg_fail_as(cx, code, "safetensors: %s: %s%s%s%s", path ? path : "(NULL)", what,
               name ? " '" : "", name ? name : "", name ? "'" : "");
    return false;
}

/* Returns the first of count names that occurs twice; NULL if there is none. `sorted` has room for
 * all. */
static const char *st_twice(size_t count, const char *const *names, size_t step,
                            const char **sorted)
{
    for (size_t k = 0; k < count; k++) sorted[k] = names[k * step];
    if (count) qsort(sorted, count, sizeof *sorted, eg__st_order_of_keys);
    for (size_t k = 1; k < count; k++)
        if (!strcmp(sorted[k], sorted[k - 1])) return sorted[k];
    return NULL;
}

/* True if the names of tensors and metadata can be in one JSON object; else records an error: one
 * is not UTF-8, or occurs twice. */
static bool st_check_names(eg_ctx *cx, const char *path, size_t count, const char *const *names,
                           size_t pairs, const char *const *metadata)
{
    for (size_t k = 0; k < pairs; k++) {
        const char *const *pair = metadata + 2 * k;
        if (!eg__text_valid(pair[0]) || !eg__text_valid(pair[1]))
            return st_refuse(cx, path, EG_ERROR_MISUSE, "not UTF-8: the metadata's key or value of",
                             pair[0]);
    }
    for (size_t k = 0; k < count; k++) {
        if (!strcmp(names[k], eg__st_metadata_key))
            return st_refuse(cx, path, EG_ERROR_MISUSE, "a tensor cannot have the name", names[k]);
        if (!eg__text_valid(names[k]))
            return st_refuse(cx, path, EG_ERROR_MISUSE, "not UTF-8: the name", names[k]);
    }
    const char **sorted = malloc(((count > pairs ? count : pairs) + 1) * sizeof *sorted);
    if (!sorted) return st_refuse(cx, path, EG_ERROR_MEMORY, "out of memory", NULL);
    const char *key = st_twice(pairs, metadata, 2, sorted);
    const char *name = key ? NULL : st_twice(count, names, 1, sorted);
    free(sorted);
    if (key) return st_refuse(cx, path, EG_ERROR_MISUSE, "the metadata have twice the key", key);
    return !name || st_refuse(cx, path, EG_ERROR_MISUSE, "two tensors have the name", name);
}

/* A text that is measured first (with NULL) and then written to that much memory. */
typedef struct draft {
    char *text;
    size_t length;
} draft;

static void draft_quote(draft *d, const char *s)
{
    d->length += eg__json_quote(s, d->text ? d->text + d->length : NULL);
}

static void draft_add(draft *d, const char *s)
{
    size_t n = strlen(s);
    if (d->text) memcpy(d->text + d->length, s, n);
    d->length += n;
}

/* Adds the entry of x, whose data begin at *offset, and advances *offset. */
static void draft_entry(draft *d, const char *name, eg_tensor *x, size_t *offset)
{
    const eg__encoding *e = eg__encoding_of(eg_type(x));
    const size_t begin = *offset;
    char number[64];
    *offset += (size_t)eg_size(x) * e->width;
    draft_quote(d, name);
    draft_add(d, ":{\"dtype\":\"");
    draft_add(d, e->safetensors);
    draft_add(d, "\",\"shape\":[");
    for (int k = 0; k < eg_rank(x); k++) {
        snprintf(number, sizeof number, "%s%" PRId64, k ? "," : "", eg_dim(x, k));
        draft_add(d, number);
    }
    snprintf(number, sizeof number, "],\"data_offsets\":[%zu,%zu]}", begin, *offset);
    draft_add(d, number);
}

/* Writes the header, with tensors in the order `order`. */
static void draft_header(draft *d, int count, const char *const *names, eg_tensor *const *xs,
                         const int *order, size_t pairs, const char *const *metadata)
{
    size_t offset = 0;
    d->length = 0;
    draft_add(d, "{");
    if (pairs) {
        draft_quote(d, eg__st_metadata_key);
        for (size_t k = 0; k < 2 * pairs; k++) {
            draft_add(d, k % 2 ? ":" : k ? "," : ":{");
            draft_quote(d, metadata[k]);
        }
        draft_add(d, count ? "}," : "}");
    }
    for (int k = 0; k < count; k++) {
        if (k) draft_add(d, ",");
        draft_entry(d, names[order[k]], xs[order[k]], &offset);
    }
    draft_add(d, "}");
}

/* Returns the header, which the caller frees; NULL after an error. order[0 … count) receives the
 * order of the data: the widest types first, so that each array is aligned. */
static char *st_make_header(eg_ctx *cx, const char *path, int count, const char *const *names,
                            eg_tensor *const *xs, const char *const *metadata, int *order)
{
    size_t pairs = 0;
    int n = 0;
    for (; metadata && metadata[2 * pairs]; pairs++)
        if (!metadata[2 * pairs + 1]) {
            st_refuse(cx, path, EG_ERROR_MISUSE, "there is no value for the metadata's key",
                      metadata[2 * pairs]);
            return NULL;
        }
    if (!st_check_names(cx, path, (size_t)count, names, pairs, metadata)) return NULL;
    draft d = { NULL, 0 };
    for (size_t width = 8; width; width /= 2)
        for (int k = 0; k < count; k++)
            if (eg__encoding_of(eg_type(xs[k]))->width == width) order[n++] = k;
    draft_header(&d, count, names, xs, order, pairs, metadata);
    if (d.length > EG_ST_HEADER_MAX - 8) {
        st_refuse(cx, path, EG_ERROR_MISUSE, "its header would be longer than 100 MB", NULL);
        return NULL;
    }
    d.text = malloc(d.length + 1);
    if (!d.text) {
        st_refuse(cx, path, EG_ERROR_MEMORY, "out of memory", NULL);
        return NULL;
    }
    draft_header(&d, count, names, xs, order, pairs, metadata);
    d.text[d.length] = 0;
    return d.text;
}

/* True if each tensor has a name and elements that can be written; else records an error. */
static bool st_check_tensors(eg_ctx *cx, const char *path, int count, const char *const *names,
                             eg_tensor *const *xs)
{
    if (!cx) eg_fail_as(NULL, EG_ERROR_MISUSE, "safetensors: the context is NULL");
    if (eg_error(cx)) return false;
    if (count < 0 || (count && (!names || !xs)))
        return st_refuse(cx, path, EG_ERROR_MISUSE,
                         "the number of tensors is negative, or their names or values are NULL",
                         NULL);
    for (int k = 0; k < count; k++) {
        if (!names[k])
            return st_refuse(cx, path, EG_ERROR_MISUSE, "the name of a tensor is NULL", NULL);
        if (!eg_ok(xs[k]))
            return st_refuse(cx, path, EG_ERROR_MISUSE, "there are no values for tensor", names[k]);
        if (eg_context(xs[k]) != cx)
            return st_refuse(cx, path, EG_ERROR_MISUSE, "another context owns tensor", names[k]);
        if (eg_copies_of(xs[k]))
            return st_refuse(cx, path, EG_ERROR_MISUSE,
                             "copies are not written; save eg_copies_stack of tensor", names[k]);
        if (!eg__encoding_of(eg_type(xs[k]))->dtype)
            return st_refuse(cx, path, EG_ERROR_DTYPE,
                             "c128 is not written; save eg_real and eg_imag of tensor", names[k]);
    }
    return true;
}

/* The header is padded with blanks so that the data begin at a multiple of 8. */
int eg_safetensors_save(eg_ctx *cx, const char *path, int count, const char *const *names,
                        eg_tensor *const *xs, const char *const *metadata)
{
    if (!st_check_tensors(cx, path, count, names, xs)) return -1;
    int *order = malloc(((size_t)count + 1) * sizeof *order), result = -1;
    char *header = order ? st_make_header(cx, path, count, names, xs, metadata, order)
                         : (st_refuse(cx, path, EG_ERROR_MEMORY, "out of memory", NULL), NULL);
    eg__output out;
    if (header && eg__file_create(&out, cx, "safetensors", path)) {
        size_t n = strlen(header), padded = (n + 7) / 8 * 8;
        uint8_t start[8];
        for (int k = 0; k < 8; k++) start[k] = (uint8_t)((uint64_t)padded >> 8 * k);
        eg__file_put(&out, start, sizeof start);
        eg__file_put(&out, header, n);
        eg__file_put(&out, "        ", padded - n);
        for (int k = 0; k < count; k++) eg__encoding_put(&out, xs[order[k]]);
        if (eg_error(cx))
            eg__file_abandon(&out);
        else
            result = eg__file_finish(&out);
    }
    free(header);
    free(order);
    return result;
}
