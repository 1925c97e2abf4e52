/* safetensors.c: huggingface/safetensors, format of 2023: length of the header (8 bytes, little-endian), the header (JSON: name →
 * { dtype, shape, data_offsets }, and "__metadata__": string → string), and the data, little-endian, row-major, without holes. */
#include <eingrad/io.h>
#include "file.h"
#include "text.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_MAX = 100000000 };
static const char metadata_key[] = "__metadata__";

typedef struct entry {
    char    *name;
    eg_tensor *x;
    const eg__encoding *encoding;
    int      rank;
    int64_t *dims;
    size_t   begin, end;
} entry;

struct eg_safetensors {
    eg_owner *owner;
    char     *path;                     /* "" of memory                                              */
    int       count, pairs;
    entry    *entries;                  /* in the order of the data                                  */
    entry   **by_name;
    char    **metadata;                 /* key, value, key, value                                    */
};

/* -- reading: the header -------------------------------------------------------------------------------------------------------- */
static char *keep_text(eg_safetensors *st, const char *text)
{
    char *copy = eg_owner_alloc(st->owner, strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}

static bool read_metadata(const eg__input *in, eg_safetensors *st, json_t *object)
{
    const char *key;
    json_t *value;
    if (!object)
        return true;
    if (!json_is_object(object))
        return eg__file_refuse(in, "'%s' is not an object", metadata_key);
    st->metadata = eg_owner_alloc(st->owner, (2 * json_object_size(object) + 1) * sizeof *st->metadata);
    if (!st->metadata)
        return false;
    json_object_foreach(object, key, value) {
        if (!json_is_string(value))
            return eg__file_refuse(in, "'%s' in '%s' is not a string", key, metadata_key);
        char *k = keep_text(st, key), *v = keep_text(st, json_string_value(value));
        if (!k || !v)
            return false;
        st->metadata[2 * st->pairs] = k, st->metadata[2 * st->pairs + 1] = v;
        st->pairs++;
    }
    return true;
}

/* A whole number ≥ 0. */
static bool natural(json_t *value, int64_t *out)
{
    *out = json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
    return *out >= 0;
}

static bool read_entry(const eg__input *in, eg_safetensors *st, entry *e, const char *name, json_t *value, size_t room)
{
    json_t *dtype = json_object_get(value, "dtype"), *shape = json_object_get(value, "shape");
    json_t *range = json_object_get(value, "data_offsets");
    if (!json_is_string(dtype) || !json_is_array(shape) || !json_is_array(range) || json_object_size(value) != 3)
        return eg__file_refuse(in, "the entry of tensor '%s' is not { dtype, shape, data_offsets }", name);
    const char *type = json_string_value(dtype);
    e->encoding = eg__encodings;
    while (e->encoding->dtype && strcmp(e->encoding->safetensors, type))
        e->encoding++;
    if (!e->encoding->dtype)
        return eg__file_refuse(in, "tensor '%s' has dtype '%s', which is not supported; F16 BF16 F32 F64 I8 U8 I16 U16 I32 I64 BOOL are",
                               name, type);
    if (json_array_size(shape) > EG_RANK_MAX)
        return eg__file_refuse(in, "tensor '%s' has more than %d axes", name, EG_RANK_MAX);
    e->rank = (int)json_array_size(shape);
    e->name = keep_text(st, name);
    e->dims = eg_owner_alloc(st->owner, (size_t)(e->rank + 1) * sizeof *e->dims);
    if (!e->name || !e->dims)
        return false;
    for (int k = 0; k < e->rank; k++)
        if (!natural(json_array_get(shape, (size_t)k), &e->dims[k]))
            return eg__file_refuse(in, "the size of axis %d of tensor '%s' is not a whole number from 0 on", k, name);
    int64_t begin, end;
    if (json_array_size(range) != 2 || !natural(json_array_get(range, 0), &begin) || !natural(json_array_get(range, 1), &end) ||
        begin > end)
        return eg__file_refuse(in, "the data_offsets of tensor '%s' are not [begin, end]", name);
    if ((uint64_t)end > room)
        return eg__file_refuse(in, "tensor '%s' ends at byte %" PRId64 " of the data, but the file has %zu bytes of data", name, end,
                               room);
    e->begin = (size_t)begin, e->end = (size_t)end;
    size_t bytes;
    char text[EG_RANK_MAX * 22];
    eg__encoding_dims(e->rank, e->dims, text, sizeof text);
    if (!eg__encoding_size(e->encoding, e->rank, e->dims, &bytes))
        return eg__file_refuse(in, "the shape %s of tensor '%s' is too large for any memory", text, name);
    if (bytes != e->end - e->begin)
        return eg__file_refuse(in, "tensor '%s', shape %s of %s, needs %zu bytes, but its data_offsets span %zu", name, text, type,
                               bytes, e->end - e->begin);
    return true;
}

static int order_of_data(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);                /* empty tensors at one place                    */
}

static int order_of_names(const void *a, const void *b)
{
    return strcmp((*(entry *const *)a)->name, (*(entry *const *)b)->name);
}

static bool read_entries(eg__input *in, eg_safetensors *st, json_t *root)
{
    const char *key;
    json_t *value;
    size_t room = in->left, at = 0;
    json_t *metadata = json_object_get(root, metadata_key);
    size_t count = json_object_size(root) - (metadata != NULL);
    if (!read_metadata(in, st, metadata))
        return false;
    st->entries = eg_owner_alloc(st->owner, (count + 1) * sizeof *st->entries);
    st->by_name = eg_owner_alloc(st->owner, (count + 1) * sizeof *st->by_name);
    if (!st->entries || !st->by_name)
        return false;
    json_object_foreach(root, key, value)
        if (strcmp(key, metadata_key) && !read_entry(in, st, &st->entries[st->count++], key, value, room))
            return false;
    if (st->count)
        qsort(st->entries, count, sizeof *st->entries, order_of_data);
    for (int k = 0; k < st->count; k++) {
        const entry *e = &st->entries[k];
        if (e->begin > at)
            return eg__file_refuse(in, "a hole: the data before tensor '%s', bytes %zu to %zu, belong to no tensor", e->name, at,
                                   e->begin);
        if (e->begin < at)
            return eg__file_refuse(in, "tensors '%s' and '%s' overlap at byte %zu of the data", st->entries[k - 1].name, e->name,
                                   e->begin);
        at = e->end;
        st->by_name[k] = &st->entries[k];
    }
    if (at != room)
        return eg__file_refuse(in, "a hole: the last %zu bytes of the data belong to no tensor", room - at);
    if (st->count)
        qsort(st->by_name, count, sizeof *st->by_name, order_of_names);
    return true;
}

static json_t *read_json(eg__input *in)
{
    uint8_t start[8];
    uint64_t length = 0;
    json_error_t error;
    if (in->left < 8) {
        eg__file_refuse(in, "is %zu bytes long, too short for a safetensors file", in->left);
        return NULL;
    }
    eg__file_take(in, start, 8);
    for (int k = 8; k--;)
        length = length << 8 | start[k];
    if (length > HEADER_MAX) {
        eg__file_refuse(in, "is not a safetensors file: its first 8 bytes give a header of %" PRIu64 " bytes, more than %d", length,
                        HEADER_MAX);
        return NULL;
    }
    if (length > in->left) {
        eg__file_refuse(in, "is cut short: its header has %" PRIu64 " bytes, but only %zu follow", length, in->left);
        return NULL;
    }
    char *text = malloc((size_t)length + 1);
    json_t *root = NULL;
    if (!text) {
        eg__file_refuse(in, "out of memory");
    } else if (eg__file_take(in, text, (size_t)length)) {
        errno = 0;                                  /* jansson takes a lack of memory for bad syntax … */
        if (!length || *text != '{')
            eg__file_refuse(in, "is not a safetensors file: its header does not begin with '{'");
        else if (!(root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error)) && errno == ENOMEM)
            eg__file_refuse(in, "out of memory");
        else if (!root)
            eg__file_refuse(in, "its header is not valid JSON at byte %d: %s", error.position, error.text);
        /* … and drops a character of a string whose buffer cannot grow (2.14): what is read twice must be the same */
        json_t *again = root ? json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error) : NULL;
        if (root && !json_equal(root, again)) {
            eg__file_refuse(in, "out of memory");
            json_decref(root);
            root = NULL;
        }
        json_decref(again);
    }
    free(text);
    return root;
}

/* -- reading: the data ----------------------------------------------------------------------------------------------------------- */
static bool read_all(eg__input *in, eg_safetensors *st)
{
    json_t *root = read_json(in);
    bool good = root && read_entries(in, st, root);
    json_decref(root);
    for (int k = 0; k < st->count && good; k++) {
        entry *e = &st->entries[k];
        e->x = eg_owner_tensor(st->owner, e->encoding->dtype, e->rank, e->dims);
        good = eg__encoding_take(in, e->encoding, !eg__encoding_little(), e->x);
    }
    return good;
}

static eg_safetensors *finish(eg__input *in, bool open)
{
    eg_owner *owner = open ? eg_owner_open(in->cx) : NULL;
    eg_safetensors *st = owner ? eg_owner_alloc(owner, sizeof *st) : NULL;
    bool good = false;
    if (st) {
        st->owner = owner;
        st->path = keep_text(st, in->path ? in->path : "");
        good = st->path && read_all(in, st);
    }
    if (!good)
        eg_owner_close(owner);
    if (open)
        eg__file_close(in);
    return good ? st : NULL;
}

eg_safetensors *eg_safetensors_open(eg_ctx *cx, const char *path)
{
    eg__input in;
    bool open = eg__file_open(&in, cx, "safetensors", path);
    return finish(&in, open);
}

eg_safetensors *eg_safetensors_read(eg_ctx *cx, const void *bytes, size_t count)
{
    eg__input in;
    bool open = eg__file_open_bytes(&in, cx, "safetensors", bytes, count);
    return finish(&in, open);
}

void eg_safetensors_close(eg_safetensors *st)
{
    if (st)
        eg_owner_close(st->owner);
}

/* -- asking ---------------------------------------------------------------------------------------------------------------------- */
static entry *at(const eg_safetensors *st, int k) { return st && k >= 0 && k < st->count ? &st->entries[k] : NULL; }

int eg_safetensors_count(const eg_safetensors *st) { return st ? st->count : 0; }
const char *eg_safetensors_name(const eg_safetensors *st, int k) { return at(st, k) ? at(st, k)->name : NULL; }
eg_tensor *eg_safetensors_at(const eg_safetensors *st, int k) { return at(st, k) ? at(st, k)->x : NULL; }

const char *eg_safetensors_key(const eg_safetensors *st, int k)
{
    return st && k >= 0 && k < st->pairs ? st->metadata[2 * k] : NULL;
}

int eg_safetensors_find(const eg_safetensors *st, const char *name)
{
    entry key = { .name = (char *)name }, *k = &key, **found = NULL;
    if (st && name && st->count)
        found = bsearch(&k, st->by_name, (size_t)st->count, sizeof *st->by_name, order_of_names);
    return found ? (int)(*found - st->entries) : -1;
}

eg_tensor *eg_safetensors_get(const eg_safetensors *st, const char *name)
{
    int k = eg_safetensors_find(st, name);
    if (k < 0 && st)
        return eg_fail(eg_owner_context(st->owner), "safetensors: %s%sno tensor is named '%s'", st->path, *st->path ? ": " : "",
                       name ? name : "(NULL)");
    return eg_safetensors_at(st, k);
}

const char *eg_safetensors_metadata(const eg_safetensors *st, const char *key)
{
    for (int k = 0; st && key && k < st->pairs; k++)
        if (!strcmp(st->metadata[2 * k], key))
            return st->metadata[2 * k + 1];
    return NULL;
}

/* -- writing --------------------------------------------------------------------------------------------------------------------- */
static bool refuse(eg_ctx *cx, const char *path, const char *what, const char *name)
{
    eg_fail(cx, "safetensors: %s: %s%s%s%s", path ? path : "(NULL)", what, name ? " '" : "", name ? name : "", name ? "'" : "");
    return false;
}

static bool add_metadata(eg_ctx *cx, const char *path, json_t *root, const char *const *pairs)
{
    if (!pairs || !*pairs)
        return true;
    json_t *object = json_object();
    if (json_object_set_new(root, metadata_key, object))    /* takes the object, NULL too */
        return refuse(cx, path, "out of memory", NULL);
    for (; pairs[0]; pairs += 2) {
        if (!pairs[1])
            return refuse(cx, path, "there is no value for the metadata's key", pairs[0]);
        if (!eg__text_valid(pairs[0]) || !eg__text_valid(pairs[1]))
            return refuse(cx, path, "not UTF-8: the metadata's key or value of", pairs[0]);
        if (json_object_get(object, pairs[0]))
            return refuse(cx, path, "the metadata have twice the key", pairs[0]);
        if (json_object_set_new(object, pairs[0], json_string(pairs[1])))
            return refuse(cx, path, "out of memory", NULL);
    }
    return true;
}

static bool add_entry(eg_ctx *cx, const char *path, json_t *root, const char *name, eg_tensor *x, size_t *offset)
{
    const eg__encoding *e = eg__encoding_of(eg_type(x));
    if (!strcmp(name, metadata_key))
        return refuse(cx, path, "a tensor cannot have the name", name);
    if (!eg__text_valid(name))
        return refuse(cx, path, "not UTF-8: the name", name);
    if (json_object_get(root, name))
        return refuse(cx, path, "two tensors have the name", name);
    json_t *shape = json_array();
    bool good = shape != NULL;
    for (int k = 0; k < eg_rank(x) && good; k++)
        good = json_array_append_new(shape, json_integer(eg_dim(x, k))) == 0;
    size_t end = *offset + (size_t)eg_size(x) * e->width;
    json_t *value = good ? json_pack("{s:s, s:O, s:[I, I]}", "dtype", e->safetensors, "shape", shape, "data_offsets",
                                     (json_int_t)*offset, (json_int_t)end) : NULL;
    json_decref(shape);
    *offset = end;
    if (!value || json_object_set_new(root, name, value))
        return refuse(cx, path, "out of memory", NULL);
    return true;
}

/* Into a buffer of the right size: json_dumps loses a key when its own buffer cannot grow (jansson 2.14). */
static char *dump(eg_ctx *cx, const char *path, const json_t *root)
{
    const size_t how = JSON_COMPACT | JSON_PRESERVE_ORDER, n = json_dumpb(root, NULL, 0, how);
    if (n > HEADER_MAX - 8) {
        refuse(cx, path, "its header would be longer than 100 MB", NULL);
        return NULL;
    }
    char *text = n ? malloc(n + 1) : NULL;
    if (!text || json_dumpb(root, text, n, how) != n) {
        free(text);
        refuse(cx, path, "out of memory", NULL);
        return NULL;
    }
    text[n] = 0;
    return text;
}

/* Header of the tensors, the widest type first, and the order that makes; NULL after an error. */
static char *make_header(eg_ctx *cx, const char *path, int count, const char *const *names, eg_tensor *const *xs,
                         const char *const *metadata, int *order)
{
    json_t *root = json_object();
    bool good = root ? add_metadata(cx, path, root, metadata) : refuse(cx, path, "out of memory", NULL);
    size_t offset = 0;
    int n = 0;
    for (size_t width = 8; width && good; width /= 2)
        for (int k = 0; k < count && good; k++)
            if (eg__encoding_of(eg_type(xs[k]))->width == width) {
                order[n++] = k;
                good = add_entry(cx, path, root, names[k], xs[k], &offset);
            }
    char *text = good ? dump(cx, path, root) : NULL;
    json_decref(root);
    return text;
}

static bool check(eg_ctx *cx, const char *path, int count, const char *const *names, eg_tensor *const *xs)
{
    if (eg_error(cx))
        return false;
    if (count < 0 || (count && (!names || !xs)))
        return refuse(cx, path, "the number of tensors is negative, or their names or values are NULL", NULL);
    for (int k = 0; k < count; k++) {
        if (!names[k])
            return refuse(cx, path, "the name of a tensor is NULL", NULL);
        if (!eg_ok(xs[k]))
            return refuse(cx, path, "there are no values for tensor", names[k]);
        if (eg_context(xs[k]) != cx)
            return refuse(cx, path, "another context owns tensor", names[k]);
        if (!eg__encoding_of(eg_type(xs[k]))->dtype)
            return refuse(cx, path, "c128 is not written; save eg_real and eg_imag of tensor", names[k]);
    }
    return true;
}

int eg_safetensors_save(eg_ctx *cx, const char *path, int count, const char *const *names, eg_tensor *const *xs,
                        const char *const *metadata)
{
    if (!check(cx, path, count, names, xs))
        return -1;
    int *order = malloc(((size_t)count + 1) * sizeof *order), result = -1;
    char *header = order ? make_header(cx, path, count, names, xs, metadata, order) : (refuse(cx, path, "out of memory", NULL), NULL);
    eg__output out;
    if (header && eg__file_create(&out, cx, "safetensors", path)) {
        size_t n = strlen(header), padded = (n + 7) / 8 * 8;        /* blanks: the data begin at a multiple of 8 */
        uint8_t start[8];
        for (int k = 0; k < 8; k++)
            start[k] = (uint8_t)((uint64_t)padded >> 8 * k);
        eg__file_put(&out, start, sizeof start);
        eg__file_put(&out, header, n);
        eg__file_put(&out, "        ", padded - n);
        for (int k = 0; k < count; k++)
            eg__encoding_put(&out, xs[order[k]]);
        if (eg_error(cx))
            eg__file_abandon(&out);
        else
            result = eg__file_finish(&out);
    }
    free(header);
    free(order);
    return result;
}
