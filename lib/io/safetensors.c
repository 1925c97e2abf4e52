/* safetensors.c: huggingface/safetensors, format of 2023: length of the header (8 bytes,
 * little-endian), the header (JSON: name → { dtype, shape, data_offsets }, and "__metadata__":
 * string → string), and the data, little-endian, row-major, without holes. */
#include <eingrad/io.h>
#include "file.h"
#include "json.h"
#include "text.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADER_MAX = 100000000 };
static const char metadata_key[] = "__metadata__";

typedef struct entry { /* of a header */
    const char *name;
    eg_tensor *x;
    const eg__encoding *encoding;
    int rank, file;
    size_t at, begin, end; /* of its sizes among all; of its data */
} entry;
typedef struct named {
    const char *name;
    eg_tensor *x;
    int file;
} named;

struct eg_safetensors {
    eg_owner *owner;
    const char *path; /* "" of memory */
    int files, count, pairs;
    const char **file;         /* path, or those of the shards */
    named *tensors, **by_name; /* in the order of the data; in the order of the names */
    char **metadata;           /* key, value, key, value */
};

/* -- reading: lists that grow, texts ---------------------------------------------------------- */
typedef struct list {
    void *item;
    size_t count, room, width;
} list;

/* What is known while files are read. The order of the entries is that of the files' names, then of
 * the data. */
typedef struct reader {
    eg_safetensors *st;
    eg__input *in; /* the file that is being read */
    size_t room;   /* bytes of its data */
    bool has_metadata;
    list entries, dims, pairs, rows;
} reader;

/* Room for n ≥ 0 more items at the end; NULL after recording "out of memory". */
static void *st_more(reader *r, list *l, size_t n)
{
    if (l->count + n > l->room || !l->item) {
        size_t room = 2 * l->room > l->count + n ? 2 * l->room : l->count + n + 16;
        void *item = realloc(l->item, room * l->width);
        if (!item) {
            eg__file_refuse(r->in, "out of memory");
            return NULL;
        }
        l->item = item, l->room = room;
    }
    l->count += n;
    return (char *)l->item + (l->count - n) * l->width;
}

/* -- reading: the header ---------------------------------------------------------------------- */
static bool st_pair(eg__json *j, void *user, char *key)
{
    reader *r = user;
    if (eg__json_peek(j) != '"')
        return eg__file_refuse(r->in, "'%s' in '%s' is not a string", key, metadata_key);
    char *value = eg__json_string(j), **pair = value ? st_more(r, &r->pairs, 2) : NULL;
    if (pair) pair[0] = key, pair[1] = value;
    return pair != NULL;
}

/* The members of an entry, as they are read. */
typedef struct fields {
    const reader *r;
    const char *name, *dtype;
    bool has_shape, has_offsets;
    size_t rank, ends;                 /* items in the file, maybe more than have room */
    int64_t dims[EG_RANK_MAX], end[2]; /* −1: not a whole number from 0 on */
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

/* Members other than dtype, shape and data_offsets are passed over, as the format's own reader
 * does. */
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

static bool st_entry(reader *r, entry *e, const fields *f)
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
                               "F16 BF16 F32 F64 I8 U8 I16 U16 I32 I64 BOOL are",
                               name, type);
    if (f->rank > EG_RANK_MAX)
        return eg__file_refuse(in, "tensor '%s' has more than %d axes", name, EG_RANK_MAX);
    e->rank = (int)f->rank;
    e->at = r->dims.count;
    int64_t begin = f->end[0], end = f->end[1], *dims = st_more(r, &r->dims, f->rank);
    if (!dims) return false;
    memcpy(dims, f->dims, f->rank * sizeof *dims);
    for (int k = 0; k < e->rank; k++)
        if (dims[k] < 0)
            return eg__file_refuse(
                in, "the size of axis %d of tensor '%s' is not a whole number from 0 on", k, name);
    if (f->ends != 2 || begin < 0 || begin > end)
        return eg__file_refuse(in, "the data_offsets of tensor '%s' are not [begin, end]", name);
    if ((uint64_t)end > r->room)
        return eg__file_refuse(in,
                               "tensor '%s' ends at byte %" PRId64
                               " of the data, but the file has %zu bytes of data",
                               name, end, r->room);
    e->begin = (size_t)begin, e->end = (size_t)end;
    size_t bytes;
    char text[EG_RANK_MAX * 22];
    eg__encoding_dims(e->rank, dims, text, sizeof text);
    if (!eg__encoding_size(e->encoding, e->rank, dims, &bytes))
        return eg__file_refuse(in, "the shape %s of tensor '%s' is too large for any memory", text,
                               name);
    if (bytes != e->end - e->begin)
        return eg__file_refuse(
            in, "tensor '%s', shape %s of %s, needs %zu bytes, but its data_offsets span %zu", name,
            text, type, bytes, e->end - e->begin);
    return true;
}

static bool st_member(eg__json *j, void *user, char *key)
{
    enum { ENTRY_MOST = 1 << 16 }; /* an entry of 32 axes takes less than a kilobyte */
    reader *r = user;
    char next = eg__json_peek(j);
    if (!strcmp(key, metadata_key)) {
        if (r->has_metadata)
            return eg__file_refuse(r->in, "its header is not valid JSON: '%s' is there twice", key);
        if (next != '{' && next != 'n') return eg__file_refuse(r->in, "'%s' is not an object", key);
        r->has_metadata = true;
        return next == '{' ? eg__json_object(j, st_pair, r) : eg__json_skip(j);
    }
    entry *e = st_more(r, &r->entries, 1);
    fields f = { .r = r, .name = key };
    size_t at = j->at;
    if (!e || !(next == '{' ? eg__json_object(j, st_field, &f) : eg__json_skip(j))) return false;
    if (j->at - at > ENTRY_MOST)
        return eg__file_refuse(r->in, "the entry of tensor '%s' is longer than %d bytes", key,
                               ENTRY_MOST);
    *e = (entry){ .name = key };
    return st_entry(r, e, &f);
}

static int st_order_of_data(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name); /* empty tensors at one place */
}

/* True if the entries from `first` on cover the data without holes and overlaps. */
static bool st_cover(const reader *r, size_t first)
{
    entry *all = r->entries.item;
    size_t at = 0;
    if (r->entries.count > first)
        qsort(all + first, r->entries.count - first, sizeof *all, st_order_of_data);
    for (size_t k = first; k < r->entries.count; k++) {
        const entry *e = &all[k];
        if (e->begin > at)
            return eg__file_refuse(
                r->in, "a hole: the data before tensor '%s', bytes %zu to %zu, belong to no tensor",
                e->name, at, e->begin);
        if (e->begin < at)
            return eg__file_refuse(r->in, "tensors '%s' and '%s' overlap at byte %zu of the data",
                                   all[k - 1].name, e->name, e->begin);
        at = e->end;
    }
    return at == r->room ||
           eg__file_refuse(r->in, "a hole: the last %zu bytes of the data belong to no tensor",
                           r->room - at);
}

/* The text of a file's JSON, `length` bytes and a 0: it lasts as long as the file, whose texts are
 * in it. NULL after an error. */
static char *st_json(reader *r, size_t length)
{
    char *text = eg_owner_alloc(r->st->owner, length + 1);
    if (!text || !eg__file_take(r->in, text, length)) return NULL;
    text[length] = 0;
    return text;
}

static bool st_header(reader *r)
{
    eg__input *in = r->in;
    uint8_t start[8];
    uint64_t length = 0;
    if (in->left < 8)
        return eg__file_refuse(in, "is %zu bytes long, too short for a safetensors file", in->left);
    if (!eg__file_take(in, start, 8)) return false;
    for (int k = 8; k--;) length = length << 8 | start[k];
    if (length > HEADER_MAX)
        return eg__file_refuse(
            in,
            "is not a safetensors file: its first 8 bytes give a header of %" PRIu64
            " bytes, more than %d",
            length, HEADER_MAX);
    if (length > in->left)
        return eg__file_refuse(
            in, "is cut short: its header has %" PRIu64 " bytes, but only %zu follow", length,
            in->left);
    char *text = st_json(r, (size_t)length);
    eg__json j = { in, "header", text, 0, (size_t)length, 0 };
    r->room = in->left, r->has_metadata = false;
    bool good =
        text &&
        (eg__json_peek(&j) == '{' ||
         eg__file_refuse(in, "is not a safetensors file: its header does not begin with '{'"));
    return good && eg__json_object(&j, st_member, r) && eg__json_end(&j);
}

/* -- reading: one file ------------------------------------------------------------------------ */
static bool st_file(reader *r)
{
    size_t first = r->entries.count;
    bool good = st_header(r) && st_cover(r, first);
    for (size_t k = first; k < r->entries.count && good; k++) {
        entry *e = (entry *)r->entries.item + k;
        e->file = r->st->files;
        e->x = eg_owner_tensor(r->st->owner, e->encoding->dtype, e->rank,
                               (int64_t *)r->dims.item + e->at);
        good = eg__encoding_take(r->in, e->encoding, !eg__encoding_little(), e->x);
    }
    r->st->files++;
    r->dims.count = 0;
    return good;
}

/* -- reading: shards, named by an index: { "metadata": …, "weight_map": { tensor: file, … } } */
typedef struct row {
    const char *name, *file;
} row;

static bool st_row(eg__json *j, void *user, char *key)
{
    reader *r = user;
    const bool string = eg__json_peek(j) == '"';
    char *file = string ? eg__json_string(j) : NULL;
    if (string && !file) return false;
    if (!file || !*file || strchr(file, '/') || strchr(file, '\\'))
        return eg__file_refuse(
            r->in, "the file of tensor '%s' is not the name of a file in the same folder", key);
    row *one = st_more(r, &r->rows, 1);
    if (one) one->name = key, one->file = file;
    return one != NULL;
}

static bool st_index_member(eg__json *j, void *user, char *key)
{
    if (!strcmp(key, "weight_map") && eg__json_peek(j) == '{')
        return eg__json_object(j, st_row, user);
    return eg__json_skip(j);
}

static int st_order_of_files(const void *a, const void *b)
{
    const row *x = a, *y = b;
    int c = strcmp(x->file, y->file);
    return c ? c : strcmp(x->name, y->name);
}

static bool st_names(reader *r);

/* Each tensor of the index is in the shard that the index names. */
static bool st_agree(const reader *r, const eg__input *index)
{
    const row *rows = r->rows.item;
    for (size_t k = 0; k < r->rows.count; k++) {
        int at = eg_safetensors_find(r->st, rows[k].name);
        const char *file = eg_safetensors_file(r->st, at),
                   *slash = file ? strrchr(file, '/') : NULL;
        if (!file || strcmp(slash ? slash + 1 : file, rows[k].file))
            return eg__file_refuse(index, "tensor '%s' is in %s, not in %s", rows[k].name,
                                   file ? file : "none of the shards", rows[k].file);
    }
    return true;
}

static bool st_shards(reader *r)
{
    eg__input *index = r->in, shard;
    const char *path = index->path, *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash + 1 - path) : 0;
    size_t length = index->left;
    if (length > HEADER_MAX)
        return eg__file_refuse(index, "is an index of %zu bytes, more than %d", length, HEADER_MAX);
    char *text = st_json(r, length);
    eg__json j = { index, "index", text, 0, length, 0 };
    bool good = text && eg__json_object(&j, st_index_member, r) && eg__json_end(&j);
    if (good && !r->rows.count)
        good = eg__file_refuse(index, "is an index without \"weight_map\": it names no file");
    const row *rows = r->rows.item;
    if (good) qsort(r->rows.item, r->rows.count, sizeof *rows, st_order_of_files);
    for (size_t k = 0; k < r->rows.count && good; k++) {
        if (k && !strcmp(rows[k].file, rows[k - 1].file)) continue;
        size_t room = (size_t)folder + strlen(rows[k].file) + 1;
        char *name = eg_owner_alloc(r->st->owner, room);
        const char **files =
            eg_owner_alloc(r->st->owner, (size_t)(r->st->files + 1) * sizeof *files);
        if (!name || !files) return false;
        snprintf(name, room, "%.*s%s", folder, path, rows[k].file);
        if (r->st->files) memcpy(files, r->st->file, (size_t)r->st->files * sizeof *files);
        files[r->st->files] = name, r->st->file = files;
        if (!eg__file_open(&shard, index->cx, "safetensors", name)) return false;
        r->in = &shard;
        good = st_file(r);
        eg__file_close(&shard);
        r->in = index;
    }
    return good && st_names(r) && st_agree(r, index);
}

/* -- reading: all ----------------------------------------------------------------------------- */
static int st_order_of_names(const void *a, const void *b)
{
    return strcmp((*(const named *const *)a)->name, (*(const named *const *)b)->name);
}

static int st_order_of_keys(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Lists that last as long as the file, and the names in order. */
static bool st_names(reader *r)
{
    eg_safetensors *st = r->st;
    const entry *all = r->entries.item;
    size_t count = r->entries.count, pairs = r->pairs.count;
    st->tensors = eg_owner_alloc(st->owner, (count + 1) * sizeof *st->tensors);
    st->by_name = eg_owner_alloc(st->owner, (count + 1) * sizeof *st->by_name);
    st->metadata = eg_owner_alloc(st->owner, (pairs + 1) * sizeof *st->metadata);
    if (!st->tensors || !st->by_name || !st->metadata) return false;
    for (size_t k = 0; k < count; k++) {
        st->tensors[k] = (named){ all[k].name, all[k].x, all[k].file };
        st->by_name[k] = &st->tensors[k];
    }
    if (count) qsort(st->by_name, count, sizeof *st->by_name, st_order_of_names);
    for (size_t k = 1; k < count; k++)
        if (!strcmp(st->by_name[k]->name, st->by_name[k - 1]->name))
            return eg__file_refuse(
                r->in,
                st->files > 1 ? "two of its shards have a tensor '%s'"
                              : "its header is not valid JSON: the key '%s' is there twice",
                st->by_name[k]->name);
    if (pairs) {
        memcpy(st->metadata, r->pairs.item, pairs * sizeof *st->metadata);
        qsort(r->pairs.item, pairs / 2, 2 * sizeof(char *), st_order_of_keys);
    }
    for (size_t k = 2; k < pairs && st->files == 1; k += 2)
        if (!strcmp(((char **)r->pairs.item)[k], ((char **)r->pairs.item)[k - 2]))
            return eg__file_refuse(r->in,
                                   "its header is not valid JSON: '%s' has the key '%s' twice",
                                   metadata_key, ((char **)r->pairs.item)[k]);
    st->count = (int)count, st->pairs = (int)(pairs / 2);
    return true;
}

static bool st_is_index(const char *path)
{
    static const char end[] = ".json";
    size_t n = path ? strlen(path) : 0;
    return n >= sizeof end && !strcmp(path + n - (sizeof end - 1), end);
}

static eg_safetensors *st_finish(eg__input *in, bool open)
{
    eg_owner *owner = open ? eg_owner_open(in->cx) : NULL;
    eg_safetensors *st = owner ? eg_owner_alloc(owner, sizeof *st) : NULL;
    size_t room = strlen(in->path ? in->path : "") + 1;
    char *path = st ? eg_owner_alloc(owner, room) : NULL;
    const char **file = path ? eg_owner_alloc(owner, sizeof *file) : NULL;
    bool good = false;
    if (file) {
        reader r = { .st = st,
                     .in = in,
                     .entries.width = sizeof(entry),
                     .dims.width = sizeof(int64_t),
                     .pairs.width = sizeof(char *),
                     .rows.width = sizeof(row) };
        memcpy(path, in->path ? in->path : "", room);
        file[0] = path;
        *st = (eg_safetensors){ .owner = owner, .path = path, .file = file };
        good = st_is_index(in->path) ? st_shards(&r) : st_file(&r) && st_names(&r);
        void *const lists[] = { r.entries.item, r.dims.item, r.pairs.item, r.rows.item };
        for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) free(lists[k]);
    }
    if (!good) eg_owner_close(owner);
    if (open) eg__file_close(in);
    return good ? st : NULL;
}

/* The path itself; if nothing is there, the index of its shards, or what it is the stem of. */
static char *st_found(const char *path)
{
    static const char *const ends[] = { "", ".index.json", ".safetensors",
                                        ".safetensors.index.json" };
    size_t room = strlen(path) + 32;
    char *found = malloc(room);
    for (size_t k = 0; found && k < sizeof ends / sizeof *ends; k++) {
        snprintf(found, room, "%s%s", path, ends[k]);
        if (!access(found, F_OK)) return found;
    }
    if (found) strcpy(found, path); /* opening it says why it cannot be read */
    return found;
}

eg_safetensors *eg_safetensors_open(eg_ctx *cx, const char *path)
{
    eg__input in = { .cx = cx, .format = "safetensors", .path = path };
    char *found = path ? st_found(path) : NULL;
    bool open = path && !found ? eg__file_refuse(&in, "out of memory")
                               : eg__file_open(&in, cx, "safetensors", found);
    eg_safetensors *st = st_finish(&in, open);
    free(found);
    return st;
}

eg_safetensors *eg_safetensors_read(eg_ctx *cx, const void *bytes, size_t count)
{
    eg__input in;
    bool open = eg__file_open_bytes(&in, cx, "safetensors", bytes, count);
    return st_finish(&in, open);
}

void eg_safetensors_close(eg_safetensors *st)
{
    if (st) eg_owner_close(st->owner);
}

/* -- asking ----------------------------------------------------------------------------------- */
static const named *st_at(const eg_safetensors *st, int k)
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
    const named key = { .name = name }, *k = &key, *const *found = NULL;
    if (st && name && st->count)
        found = bsearch(&k, st->by_name, (size_t)st->count, sizeof *st->by_name, st_order_of_names);
    return found ? (int)(*found - st->tensors) : -1;
}

/* Levenshtein's distance of two names, both cut to LENGTH; `most` + 1 if it is larger than `most`.
 */
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

eg_tensor *eg_safetensors_need(const eg_safetensors *st, const char *path, const char *name,
                               const char *whose, int rank, const int64_t *dims)
{
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
    if (k < 0)
        return eg_fail_as(cx, EG_ERROR_FILE, "%s: no tensor \"%s\", of which \"%s\" needs %s%s%s%s",
                          file, name, whose, need, near ? "; the nearest name is \"" : "",
                          near ? near : "", near ? "\"" : "");
    if (!same)
        return eg_fail_as(cx, EG_ERROR_FILE, "%s: tensor \"%s\" is %s, but \"%s\" needs %s", file,
                          name, have, whose, need);
    return eg_fail_as(cx, EG_ERROR_DTYPE, "%s: tensor \"%s\" is %s, but \"%s\" needs f32 or f64",
                      file, name, eg_type_name(eg_type(x)), whose);
}

const char *eg_safetensors_metadata(const eg_safetensors *st, const char *key)
{
    for (int k = 0; st && key && k < st->pairs; k++)
        if (!strcmp(st->metadata[2 * k], key)) return st->metadata[2 * k + 1];
    return NULL;
}

/* -- writing ---------------------------------------------------------------------------------- */
static bool refuse(eg_ctx *cx, const char *path, const char *what, const char *name)
{
    eg_fail_as(cx, EG_ERROR_FILE, "safetensors: %s: %s%s%s%s", path ? path : "(NULL)", what,
               name ? " '" : "", name ? name : "", name ? "'" : "");
    return false;
}

/* The first of count names that is among them twice; NULL: none is. `sorted` has room for all. */
static const char *st_twice(size_t count, const char *const *names, size_t step,
                            const char **sorted)
{
    for (size_t k = 0; k < count; k++) sorted[k] = names[k * step];
    if (count) qsort(sorted, count, sizeof *sorted, st_order_of_keys);
    for (size_t k = 1; k < count; k++)
        if (!strcmp(sorted[k], sorted[k - 1])) return sorted[k];
    return NULL;
}

static bool check_names(eg_ctx *cx, const char *path, size_t count, const char *const *names,
                        size_t pairs, const char *const *metadata)
{
    for (size_t k = 0; k < pairs; k++) {
        const char *const *pair = metadata + 2 * k;
        if (!eg__text_valid(pair[0]) || !eg__text_valid(pair[1]))
            return refuse(cx, path, "not UTF-8: the metadata's key or value of", pair[0]);
    }
    for (size_t k = 0; k < count; k++) {
        if (!strcmp(names[k], metadata_key))
            return refuse(cx, path, "a tensor cannot have the name", names[k]);
        if (!eg__text_valid(names[k])) return refuse(cx, path, "not UTF-8: the name", names[k]);
    }
    const char **sorted = malloc(((count > pairs ? count : pairs) + 1) * sizeof *sorted);
    if (!sorted) return refuse(cx, path, "out of memory", NULL);
    const char *key = st_twice(pairs, metadata, 2, sorted);
    const char *name = key ? NULL : st_twice(count, names, 1, sorted);
    free(sorted);
    if (key) return refuse(cx, path, "the metadata have twice the key", key);
    return !name || refuse(cx, path, "two tensors have the name", name);
}

/* A text that is measured first (NULL) and then written into that much room. */
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

static void draft_header(draft *d, int count, const char *const *names, eg_tensor *const *xs,
                         const int *order, size_t pairs, const char *const *metadata)
{
    size_t offset = 0;
    d->length = 0;
    draft_add(d, "{");
    if (pairs) {
        draft_quote(d, metadata_key);
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

/* Header of the tensors, the widest type first, and the order that makes; NULL after an error. */
static char *make_header(eg_ctx *cx, const char *path, int count, const char *const *names,
                         eg_tensor *const *xs, const char *const *metadata, int *order)
{
    size_t pairs = 0;
    int n = 0;
    for (; metadata && metadata[2 * pairs]; pairs++)
        if (!metadata[2 * pairs + 1]) {
            refuse(cx, path, "there is no value for the metadata's key", metadata[2 * pairs]);
            return NULL;
        }
    if (!check_names(cx, path, (size_t)count, names, pairs, metadata)) return NULL;
    draft d = { NULL, 0 };
    for (size_t width = 8; width; width /= 2)
        for (int k = 0; k < count; k++)
            if (eg__encoding_of(eg_type(xs[k]))->width == width) order[n++] = k;
    draft_header(&d, count, names, xs, order, pairs, metadata);
    if (d.length > HEADER_MAX - 8) {
        refuse(cx, path, "its header would be longer than 100 MB", NULL);
        return NULL;
    }
    d.text = malloc(d.length + 1);
    if (!d.text) {
        refuse(cx, path, "out of memory", NULL);
        return NULL;
    }
    draft_header(&d, count, names, xs, order, pairs, metadata);
    d.text[d.length] = 0;
    return d.text;
}

static bool check(eg_ctx *cx, const char *path, int count, const char *const *names,
                  eg_tensor *const *xs)
{
    if (eg_error(cx)) return false;
    if (count < 0 || (count && (!names || !xs)))
        return refuse(cx, path,
                      "the number of tensors is negative, or their names or values are NULL", NULL);
    for (int k = 0; k < count; k++) {
        if (!names[k]) return refuse(cx, path, "the name of a tensor is NULL", NULL);
        if (!eg_ok(xs[k])) return refuse(cx, path, "there are no values for tensor", names[k]);
        if (eg_context(xs[k]) != cx)
            return refuse(cx, path, "another context owns tensor", names[k]);
        if (!eg__encoding_of(eg_type(xs[k]))->dtype)
            return refuse(cx, path, "c128 is not written; save eg_real and eg_imag of tensor",
                          names[k]);
    }
    return true;
}

int eg_safetensors_save(eg_ctx *cx, const char *path, int count, const char *const *names,
                        eg_tensor *const *xs, const char *const *metadata)
{
    if (!check(cx, path, count, names, xs)) return -1;
    int *order = malloc(((size_t)count + 1) * sizeof *order), result = -1;
    char *header = order ? make_header(cx, path, count, names, xs, metadata, order)
                         : (refuse(cx, path, "out of memory", NULL), NULL);
    eg__output out;
    if (header && eg__file_create(&out, cx, "safetensors", path)) {
        /* blanks: the data begin at a multiple of 8 */
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
