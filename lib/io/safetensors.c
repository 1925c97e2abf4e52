/* safetensors.c: opens a file, or several that an index names, and reads everything in them. */
#include "safetensors.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *eg__st_more(eg__st_reader *r, eg__st_list *l, size_t n)
{
    if (l->count + n > l->capacity || !l->item) {
        size_t capacity = 2 * l->capacity > l->count + n ? 2 * l->capacity : l->count + n + 16;
        void *item = realloc(l->item, capacity * l->width);
        if (!item) {
            eg__file_no_memory(r->in);
            return NULL;
        }
        l->item = item, l->capacity = capacity;
    }
    l->count += n;
    return (char *)l->item + (l->count - n) * l->width;
}

/* The strings of a file's JSON are decoded in place, so the text is kept as long as the file. */
char *eg__st_json(eg__st_reader *r, size_t length)
{
    char *text = eg_owner_alloc(r->st->owner, length + 1);
    if (!text || !eg__file_take(r->in, text, length)) return NULL;
    text[length] = 0;
    return text;
}

bool eg__st_file(eg__st_reader *r)
{
    size_t first = r->entries.count;
    r->in->as_stored = r->how->as_stored;
    if (!r->how->copy) eg__file_map(r->in);
    bool good = eg__st_header(r);
    for (size_t k = first; k < r->entries.count && good; k++) {
        eg__st_entry *e = (eg__st_entry *)r->entries.item + k;
        e->file = r->st->files;
        e->x = eg__encoding_tensor(r->in, e->encoding, !eg__encoding_little(), r->st->owner,
                                   e->rank, (int64_t *)r->dims.item + e->at);
        good = e->x != NULL;
    }
    r->st->files++;
    r->dims.count = 0;
    return good;
}

int eg__st_order_of_names(const void *a, const void *b)
{
    return strcmp((*(const eg__st_tensor *const *)a)->name,
                  (*(const eg__st_tensor *const *)b)->name);
}

int eg__st_order_of_keys(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Copies the reader's lists to those of the file, and sorts the names. False, after an error, if a
 * name occurs twice. The same key of metadata may occur in several shards. */
bool eg__st_names(eg__st_reader *r)
{
    eg_safetensors *st = r->st;
    const eg__st_entry *all = r->entries.item;
    size_t count = r->entries.count, pairs = r->pairs.count;
    st->tensors = eg_owner_alloc(st->owner, (count + 1) * sizeof *st->tensors);
    st->by_name = eg_owner_alloc(st->owner, (count + 1) * sizeof *st->by_name);
    st->metadata = eg_owner_alloc(st->owner, (pairs + 1) * sizeof *st->metadata);
    if (!st->tensors || !st->by_name || !st->metadata) return false;
    for (size_t k = 0; k < count; k++) {
        st->tensors[k] = (eg__st_tensor){ all[k].name, all[k].x, all[k].file };
        st->by_name[k] = &st->tensors[k];
    }
    if (count) qsort(st->by_name, count, sizeof *st->by_name, eg__st_order_of_names);
    for (size_t k = 1; k < count; k++)
        if (!strcmp(st->by_name[k]->name, st->by_name[k - 1]->name))
            return eg__file_refuse(
                r->in,
                st->files > 1 ? "two of its shards have a tensor '%s'"
                              : "its header is not valid JSON: the key '%s' is there twice",
                st->by_name[k]->name);
    if (pairs) {
        memcpy(st->metadata, r->pairs.item, pairs * sizeof *st->metadata);
        qsort(r->pairs.item, pairs / 2, 2 * sizeof(char *), eg__st_order_of_keys);
    }
    for (size_t k = 2; k < pairs && st->files == 1; k += 2)
        if (!strcmp(((char **)r->pairs.item)[k], ((char **)r->pairs.item)[k - 2]))
            return eg__file_refuse(r->in,
                                   "its header is not valid JSON: '%s' has the key '%s' twice",
                                   eg__st_metadata_key, ((char **)r->pairs.item)[k]);
    st->count = (int)count, st->pairs = (int)(pairs / 2);
    return true;
}

static bool st_is_index(const char *path)
{
    static const char end[] = ".json";
    size_t n = path ? strlen(path) : 0;
    return n >= sizeof end && !strcmp(path + n - (sizeof end - 1), end);
}

/* Reads the open input, an index or a file of tensors, and closes it. Returns NULL after an error,
 * with all memory freed. open: false if the input could not be opened; that error is already
 * recorded. */
static eg_safetensors *st_read(eg__input *in, bool open, const eg_load_args *how)
{
    eg_owner *owner = open ? eg_owner_open(in->cx) : NULL;
    eg_safetensors *st = owner ? eg_owner_alloc(owner, sizeof *st) : NULL;
    size_t size = strlen(in->path ? in->path : "") + 1;
    char *path = st ? eg_owner_alloc(owner, size) : NULL;
    const char **file = path ? eg_owner_alloc(owner, sizeof *file) : NULL;
    bool good = false;
    if (file) {
        eg__st_reader r = { .st = st,
                            .in = in,
                            .how = how,
                            .entries.width = sizeof(eg__st_entry),
                            .dims.width = sizeof(int64_t),
                            .pairs.width = sizeof(char *),
                            .rows.width = sizeof(eg__st_row) };
        memcpy(path, in->path ? in->path : "", size);
        file[0] = path;
        *st = (eg_safetensors){ .owner = owner, .path = path, .file = file };
        good = st_is_index(in->path) ? eg__st_shards(&r) : eg__st_file(&r) && eg__st_names(&r);
        void *const lists[] = { r.entries.item, r.dims.item, r.pairs.item, r.rows.item };
        for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) free(lists[k]);
    }
    if (!good) eg_owner_close(owner);
    if (open && !good) eg_name_memory_error(in->cx, in->format);
    if (open) eg__file_close(in);
    return good ? st : NULL;
}

/* Returns the path itself if a file is there; else that of the index of its shards, or of the file
 * or index whose name begins with it. The caller frees it; NULL without memory. */
static char *st_found(const char *path)
{
    static const char *const ends[] = { "", ".index.json", ".safetensors",
                                        ".safetensors.index.json" };
    size_t size = strlen(path) + 32;
    char *found = malloc(size);
    for (size_t k = 0; found && k < sizeof ends / sizeof *ends; k++) {
        snprintf(found, size, "%s%s", path, ends[k]);
        if (!access(found, F_OK)) return found;
    }
    if (found) strcpy(found, path); /* opening it records the reason why it cannot be read */
    return found;
}

eg_safetensors *eg_safetensors_open_with(const eg_load_args *given)
{
    eg_load_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg_ctx *cx = o.cx;
    const char *path = o.path;
    eg__input in = { .cx = cx, .format = "safetensors", .path = path };
    char *found = path ? st_found(path) : NULL;
    bool open =
        path && !found ? eg__file_no_memory(&in) : eg__file_open(&in, cx, "safetensors", found);
    eg_safetensors *st = st_read(&in, open, &o);
    free(found);
    return st;
}

eg_safetensors *eg_safetensors_read(eg_ctx *cx, const void *bytes, size_t count)
{
    eg__input in;
    bool open = eg__file_open_bytes(&in, cx, "safetensors", bytes, count);
    return st_read(&in, open, &(eg_load_args){ .copy = true });
}

void eg_safetensors_close(eg_safetensors *st)
{
    if (st) eg_owner_close(st->owner);
}
