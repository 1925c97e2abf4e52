/* npz.c: NumPy's .npz: a zip archive with a .npy for each array (numpy.savez). */
#include <eingrad/copies.h>
#include <eingrad/io.h>
#include "text.h"
#include "zip.h"
#include <stdlib.h>
#include <string.h>

static const char npz_end[] = ".npy";
enum { END = sizeof npz_end - 1, NAME_MOST = 65535 - END };

typedef struct npz_array {
    const char *name;
    eg_tensor *x;
} npz_array;
struct eg_npz {
    eg_owner *owner;
    const char *path; /* as the caller gave it; "" if the archive was read from memory */
    int count;
    npz_array *arrays;   /* in the order of their offsets */
    npz_array **by_name; /* in the order of their names */
};

static int npz_order(const void *a, const void *b)
{
    return strcmp((*(npz_array *const *)a)->name, (*(npz_array *const *)b)->name);
}

/* -- reading ---------------------------------------------------------------------------------- */
/* Reads one array; in messages its name follows the path. */
static bool npz_take(eg_npz *z, const eg__input *archive, const eg__zip_member *m)
{
    const size_t length = m->length - END, size = strlen(z->path) + m->length + 3;
    char *name = eg_owner_alloc(z->owner, length + 1), *where = name ? malloc(size) : NULL;
    if (!where) return eg__file_no_memory(archive);
    memcpy(name, m->name, length);
    snprintf(where, size, "%s%s%.*s", z->path, *z->path ? ": " : "", (int)m->length, m->name);
    eg__zip_input in;
    bool good = eg__zip_begin(&in, archive, m, where);
    npz_array *a = &z->arrays[z->count];
    *a = (npz_array){ name, good ? eg__npy_array(&in.in, z->owner) : NULL };
    good = a->x && eg__zip_finish(&in);
    eg__zip_end(&in);
    free(where);
    z->count += good;
    return good;
}

/* Reads all members that are arrays; others are skipped. */
static bool npz_read_all(eg_npz *z, const eg__input *in)
{
    size_t count;
    eg__zip_member *all = eg__zip_open(in, &count);
    if (!all) return false;
    z->arrays = eg_owner_alloc(z->owner, (count + 1) * sizeof *z->arrays);
    z->by_name = z->arrays ? eg_owner_alloc(z->owner, (count + 1) * sizeof *z->by_name) : NULL;
    bool good = z->by_name || eg__file_no_memory(in);
    for (size_t k = 0; good && k < count; k++)
        if (all[k].length >= END && !memcmp(all[k].name + all[k].length - END, npz_end, END))
            good = npz_take(z, in, &all[k]);
    free(all);
    for (int k = 0; good && k < z->count; k++) z->by_name[k] = &z->arrays[k];
    if (good && z->count) qsort(z->by_name, (size_t)z->count, sizeof *z->by_name, npz_order);
    for (int k = 1; good && k < z->count; k++)
        if (!strcmp(z->by_name[k]->name, z->by_name[k - 1]->name))
            good = eg__file_refuse(in, "two arrays have the name '%s'", z->by_name[k]->name);
    return good;
}

/* Reads the open input and closes it. Returns NULL after an error, with all memory freed. open:
 * false if the input could not be opened; that error is already recorded. */
static eg_npz *npz_read(eg__input *in, bool open, bool copy)
{
    eg_owner *owner = open ? eg_owner_open(in->cx) : NULL;
    eg_npz *z = owner ? eg_owner_alloc(owner, sizeof *z) : NULL;
    const size_t size = strlen(in->path ? in->path : "") + 1;
    char *path = z ? eg_owner_alloc(owner, size) : NULL;
    bool good = path != NULL;
    if (good) {
        *z = (eg_npz){ .owner = owner, .path = memcpy(path, in->path ? in->path : "", size) };
        good = eg__file_read_all(in, copy) && npz_read_all(z, in);
    }
    if (!good) eg_owner_close(owner);
    if (open && !good) eg_name_memory_error(in->cx, in->format);
    if (open) eg__file_close(in);
    return good ? z : NULL;
}
eg_npz *eg_npz_open_with(const eg_load_args *given)
{
    eg_load_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg__input in = { .cx = o.cx, .format = "npz", .path = o.path };
    bool open = eg__file_open(&in, o.cx, "npz", o.path);
    in.as_stored = o.as_stored;
    return npz_read(&in, open, o.copy);
}
eg_npz *eg_npz_read(eg_ctx *cx, const void *bytes, size_t count)
{
    eg__input in;
    bool open = eg__file_open_bytes(&in, cx, "npz", bytes, count);
    return npz_read(&in, open, true);
}
void eg_npz_close(eg_npz *z)
{
    if (z) eg_owner_close(z->owner);
}

/* -- by number and by name -------------------------------------------------------------------- */
int eg_npz_count(const eg_npz *z) { return z ? z->count : 0; }
static const npz_array *npz_array_at(const eg_npz *z, int k)
{
    return z && k >= 0 && k < z->count ? &z->arrays[k] : NULL;
}
const char *eg_npz_name(const eg_npz *z, int k)
{
    const npz_array *a = npz_array_at(z, k);
    return a ? a->name : NULL;
}
eg_tensor *eg_npz_at(const eg_npz *z, int k)
{
    const npz_array *a = npz_array_at(z, k);
    return a ? a->x : NULL;
}
int eg_npz_find(const eg_npz *z, const char *name)
{
    npz_array key = { .name = name }, *k = &key, **found = NULL;
    if (z && name && z->count)
        found = bsearch(&k, z->by_name, (size_t)z->count, sizeof *z->by_name, npz_order);
    return found ? (int)(*found - z->arrays) : -1;
}
eg_tensor *eg_npz_get(const eg_npz *z, const char *name)
{
    const int k = eg_npz_find(z, name);
    if (k < 0 && z)
        eg_fail_as(eg_owner_context(z->owner), EG_ERROR_FILE, "npz: %s%sno array is named '%s'",
                   z->path, *z->path ? ": " : "", name ? name : "(NULL)");
    return eg_npz_at(z, k);
}

/* -- writing ---------------------------------------------------------------------------------- */
static bool npz_refuse(const eg_npz_save_args *o, eg_code code, const char *what, const char *name)
{
    eg_fail_as(o->cx, code, "npz: %s: %s%s%s%s", o->path ? o->path : "(NULL)", what,
               name ? " '" : "", name ? name : "", name ? "'" : "");
    return false;
}
/* True if each array has a name and elements that can be written; else records an error. */
static bool npz_check(const eg_npz_save_args *o)
{
    if (!o->cx) eg_fail_as(NULL, EG_ERROR_MISUSE, "npz: the context is NULL");
    if (eg_error(o->cx)) return false;
    if (o->count < 0 || (o->count && (!o->names || !o->xs)))
        return npz_refuse(o, EG_ERROR_MISUSE,
                          "the number of arrays is negative, or their names or values are NULL",
                          NULL);
    for (int k = 0; k < o->count; k++) {
        const char *name = o->names[k];
        eg_tensor *x = o->xs[k];
        if (!name || !*name || strlen(name) > NAME_MOST)
            return npz_refuse(o, EG_ERROR_MISUSE,
                              "the name of an array is NULL, empty or longer than 65531 bytes",
                              NULL);
        if (!eg__text_valid(name))
            return npz_refuse(o, EG_ERROR_MISUSE, "not UTF-8: the name", name);
        if (!eg_ok(x)) return npz_refuse(o, EG_ERROR_MISUSE, "there are no values for array", name);
        if (eg_context(x) != o->cx)
            return npz_refuse(o, EG_ERROR_MISUSE, "another context owns array", name);
        if (eg_copies_of(x))
            return npz_refuse(o, EG_ERROR_MISUSE,
                              "copies are not written; save eg_copies_stack of array", name);
        if (!eg__encoding_of(eg_type(x))->dtype)
            return npz_refuse(o, EG_ERROR_DTYPE,
                              "c128 is not written; save eg_real and eg_imag of array", name);
        if (!*eg__encoding_of(eg_type(x))->npy)
            return npz_refuse(o, EG_ERROR_DTYPE,
                              "bf16 is no type of .npy; eg_cast it, or write safetensors: array",
                              name);
    }
    return true;
}
static int npz_order_of_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Returns the names of the members, in a block that the caller frees; NULL after an error, also if
 * a name occurs twice. */
static char **npz_members(const eg_npz_save_args *o)
{
    const size_t count = (size_t)o->count;
    size_t size = 2 * (count + 1) * sizeof(char *);
    for (size_t k = 0; k < count; k++) size += strlen(o->names[k]) + END + 1;
    char **names = malloc(size);
    if (!names) return npz_refuse(o, EG_ERROR_MEMORY, "out of memory", NULL), NULL;
    char **sorted = names + count + 1, *text = (char *)(sorted + count + 1);
    for (size_t k = 0; k < count; k++) {
        names[k] = sorted[k] = text;
        text += sprintf(text, "%s%s", o->names[k], npz_end) + 1;
    }
    if (count) qsort(sorted, count, sizeof *sorted, npz_order_of_names);
    for (size_t k = 1; k < count; k++)
        if (!strcmp(sorted[k], sorted[k - 1])) {
            npz_refuse(o, EG_ERROR_MISUSE, "two arrays have the name of member", sorted[k]);
            free(names);
            return NULL;
        }
    return names;
}

static void npz_put(eg__output *out, void *x) { eg__npy_put(out, x); }

/* Writes the members, then the directory. */
int eg_npz_save_with(const eg_npz_save_args *given)
{
    eg_npz_save_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    char **names = npz_check(&o) ? npz_members(&o) : NULL;
    eg__zip_entry *entries = names ? malloc(((size_t)o.count + 1) * sizeof *entries) : NULL;
    if (names && !entries) npz_refuse(&o, EG_ERROR_MEMORY, "out of memory", NULL);
    eg__output out;
    int result = -1;
    if (entries && eg__file_create(&out, o.cx, "npz", o.path)) {
        uint64_t at = 0;
        for (int k = 0; k < o.count && !eg_error(o.cx); k++)
            if (!eg__zip_put(&out, &at, &entries[k], names[k], eg__npy_size(o.xs[k]), o.deflate,
                             npz_put, o.xs[k]))
                npz_refuse(&o, EG_ERROR_MEMORY, "out of memory", NULL);
        eg__zip_put_directory(&out, at, (size_t)o.count, entries, names, o.deflate);
        if (eg_error(o.cx))
            eg__file_abandon(&out);
        else
            result = eg__file_finish(&out);
    }
    free(entries);
    free(names);
    return result;
}
