/* safetensors_header.c: the header of a safetensors file: JSON that is converted to entries, each
 * of which is checked against the data that follow. */
#include "safetensors.h"
#include "json.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One pair of "__metadata__". */
static bool st_pair(eg__json *j, void *user, char *key)
{
    eg__st_reader *r = user;
    if (eg__json_peek(j) != '"')
        return eg__file_refuse(r->in, "'%s' in '%s' is not a string", key, eg__st_metadata_key);
    char *value = eg__json_string(j), **pair = value ? eg__st_more(r, &r->pairs, 2) : NULL;
    if (pair) pair[0] = key, pair[1] = value;
    return pair != NULL;
}

/* The members of an entry, as they are read; a member that is missing is NULL or false. */
typedef struct fields {
    const eg__st_reader *r;
    const char *name, *dtype;
    bool has_shape, has_offsets;
    size_t rank;               /* number of sizes in the file, possibly more than EG_RANK_MAX */
    size_t ends;               /* number of offsets in the file, possibly more than 2 */
    int64_t dims[EG_RANK_MAX]; /* −1: not an integer ≥ 0 */
    int64_t end[2];            /* begin and end of the data; −1: not an integer ≥ 0 */
} fields;

static bool st_size(eg__json *j, void *user)
{
    fields *f = user;
    int64_t n;
    if (!eg__json_natural(j, &n)) return false;
    if (f->rank < EG_RANK_MAX) f->dims[f->rank] = n;
    f->rank++;
    return true;
}

static bool st_offset(eg__json *j, void *user)
{
    fields *f = user;
    int64_t n;
    if (!eg__json_natural(j, &n)) return false;
    if (f->ends < 2) f->end[f->ends] = n;
    f->ends++;
    return true;
}

/* Members other than dtype, shape and data_offsets are skipped, as in the format's own reader. */
static bool st_field(eg__json *j, void *user, char *key)
{
    fields *f = user;
    const bool dtype = !strcmp(key, "dtype"), shape = !strcmp(key, "shape"),
               offsets = !strcmp(key, "data_offsets");
    if ((dtype && f->dtype) || (shape && f->has_shape) || (offsets && f->has_offsets))
        return eg__file_refuse(f->r->in,
                               "its header is not valid JSON: the entry of tensor '%s' has the "
                               "key '%s' twice",
                               f->name, key);
    char next = eg__json_peek(j);
    if (dtype && next == '"') return (f->dtype = eg__json_string(j)) != NULL;
    if (shape && next == '[') return f->has_shape = true, eg__json_array(j, st_size, f);
    if (offsets && next == '[') return f->has_offsets = true, eg__json_array(j, st_offset, f);
    return eg__json_skip(j);
}

/* Fills *e from the members of its entry, which are checked against each other and against the size
 * of the data. False after an error that names the wrong member. */
static bool st_entry(eg__st_reader *r, eg__st_entry *e, const fields *f)
{
    const eg__input *in = r->in;
    const char *name = e->name, *type = f->dtype;
    if (!type || !f->has_shape || !f->has_offsets)
        return eg__file_refuse(in, "the entry of tensor '%s' is not { dtype, shape, data_offsets }",
                               name);
    e->encoding = eg__encodings;
    while (e->encoding->dtype && strcmp(e->encoding->safetensors, type)) e->encoding++;
    if (!e->encoding->dtype)
        return eg__file_refuse(in,
                               "tensor '%s' has dtype '%s', which is not supported; "
                               "F16 BF16 F32 F64 I8 U8 I16 U16 I32 U32 I64 U64 BOOL are",
                               name, type);
    e->encoding = eg__encoding_wanted(in, e->encoding);
    if (f->rank > EG_RANK_MAX)
        return eg__file_refuse(in, "tensor '%s' has more than %d axes", name, EG_RANK_MAX);
    e->rank = (int)f->rank;
    e->at = r->dims.count;
    int64_t begin = f->end[0], end = f->end[1], *dims = eg__st_more(r, &r->dims, f->rank);
    if (!dims) return false;
    memcpy(dims, f->dims, f->rank * sizeof *dims);
    for (int k = 0; k < e->rank; k++)
        if (dims[k] < 0)
            return eg__file_refuse(in, "the size of axis %d of tensor '%s' is not an integer >= 0",
                                   k, name);
    if (f->ends != 2 || begin < 0 || begin > end)
        return eg__file_refuse(in, "the data_offsets of tensor '%s' are not [begin, end]", name);
    if ((uint64_t)end > r->data_bytes)
        return eg__file_refuse(in,
                               "tensor '%s' ends at byte %" PRId64
                               " of the data, but the file has %zu byte%s of data",
                               name, end, r->data_bytes, r->data_bytes == 1 ? "" : "s");
    e->begin = (size_t)begin, e->end = (size_t)end;
    size_t bytes;
    char text[EG_RANK_MAX * 22];
    eg__encoding_dims(e->rank, dims, text, sizeof text);
    if (!eg__encoding_size(e->encoding, e->rank, dims, &bytes))
        return eg__file_refuse(in, "the shape %s of tensor '%s' is too large for any memory", text,
                               name);
    if (bytes != e->end - e->begin)
        return eg__file_refuse(
            in, "tensor '%s', shape %s of %s, needs %zu byte%s, but its data_offsets span %zu",
            name, text, type, bytes, bytes == 1 ? "" : "s", e->end - e->begin);
    return true;
}

/* Reads a member of the header: "__metadata__", or a tensor's entry. */
static bool st_member(eg__json *j, void *user, char *key)
{
    enum { ENTRY_MOST = 1 << 16 }; /* an entry of 32 axes takes less than a kilobyte */
    eg__st_reader *r = user;
    char next = eg__json_peek(j);
    if (!strcmp(key, eg__st_metadata_key)) {
        if (r->has_metadata)
            return eg__file_refuse(r->in, "its header is not valid JSON: '%s' is there twice", key);
        if (next != '{' && next != 'n') return eg__file_refuse(r->in, "'%s' is not an object", key);
        r->has_metadata = true;
        return next == '{' ? eg__json_object(j, st_pair, r) : eg__json_skip(j);
    }
    eg__st_entry *e = eg__st_more(r, &r->entries, 1);
    fields f = { .r = r, .name = key };
    size_t at = j->at;
    if (!e || !(next == '{' ? eg__json_object(j, st_field, &f) : eg__json_skip(j))) return false;
    if (j->at - at > ENTRY_MOST)
        return eg__file_refuse(r->in, "the entry of tensor '%s' is longer than %d bytes", key,
                               ENTRY_MOST);
    *e = (eg__st_entry){ .name = key };
    return st_entry(r, e, &f);
}

static int st_order_of_data(const void *a, const void *b)
{
    const eg__st_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name); /* empty tensors at the same offset */
}

/* True if the entries from `first` on cover the data without gaps and overlaps. */
static bool st_cover(const eg__st_reader *r, size_t first)
{
    eg__st_entry *all = r->entries.item;
    size_t at = 0;
    if (r->entries.count > first)
        qsort(all + first, r->entries.count - first, sizeof *all, st_order_of_data);
    for (size_t k = first; k < r->entries.count; k++) {
        const eg__st_entry *e = &all[k];
        if (e->begin > at)
            return eg__file_refuse(
                r->in, "a gap: the data before tensor '%s', bytes %zu to %zu, belong to no tensor",
                e->name, at, e->begin);
        if (e->begin < at)
            return eg__file_refuse(r->in, "tensors '%s' and '%s' overlap at byte %zu of the data",
                                   all[k - 1].name, e->name, e->begin);
        at = e->end;
    }
    return at == r->data_bytes ||
           eg__file_refuse(r->in, "a gap: the last %zu byte%s of the data belong%s to no tensor",
                           r->data_bytes - at, r->data_bytes - at == 1 ? "" : "s",
                           r->data_bytes - at == 1 ? "s" : "");
}

/* Reads the length and the JSON, and checks that its entries cover the data. */
bool eg__st_header(eg__st_reader *r)
{
    eg__input *in = r->in;
    const size_t first = r->entries.count;
    uint8_t start[8];
    uint64_t length = 0;
    if (in->left < 8)
        return eg__file_refuse(in, "is %zu byte%s long, too short for a safetensors file", in->left,
                               in->left == 1 ? "" : "s");
    if (!eg__file_take(in, start, 8)) return false;
    for (int k = 8; k--;) length = length << 8 | start[k];
    if (!memcmp(start, "PK\3\4", 4))
        return eg__file_refuse(in,
                               "is a zip archive, as .npz files and those of torch.save are, and "
                               "not a safetensors file");
    if (!memcmp(start, "\x93NUMPY", 6))
        return eg__file_refuse(in, "is a .npy file, not a safetensors file");
    if (length > EG_ST_HEADER_MAX)
        return eg__file_refuse(
            in,
            "is not a safetensors file: its first 8 bytes give a header of %" PRIu64
            " bytes, more than %d",
            length, EG_ST_HEADER_MAX);
    if (length > in->left)
        return eg__file_refuse(
            in, "is cut short: its header has %" PRIu64 " bytes, but only %zu follow", length,
            in->left);
    char *text = eg__st_json(r, (size_t)length);
    eg__json j = { in, "header", text, 0, (size_t)length, 0 };
    r->data_bytes = in->left, r->has_metadata = false;
    bool good =
        text &&
        (eg__json_peek(&j) == '{' ||
         eg__file_refuse(in, "is not a safetensors file: its header does not begin with '{'"));
    return good && eg__json_object(&j, st_member, r) && eg__json_end(&j) && st_cover(r, first);
}
