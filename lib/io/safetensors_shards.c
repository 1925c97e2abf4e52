/* safetensors_shards.c: a model in several files, which an index names:
 * { "metadata": …, "weight_map": { tensor: file, … } }. */
#include "safetensors.h"
#include "json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads a member of "weight_map": a tensor and its file. */
static bool st_row(eg__json *j, void *user, char *key)
{
    eg__st_reader *r = user;
    const bool string = eg__json_peek(j) == '"';
    char *file = string ? eg__json_string(j) : NULL;
    if (string && !file) return false;
    if (!file || !*file || strchr(file, '/') || strchr(file, '\\'))
        return eg__file_refuse(
            r->in, "the file of tensor '%s' is not the name of a file in the same folder", key);
    eg__st_row *one = eg__st_more(r, &r->rows, 1);
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
    const eg__st_row *x = a, *y = b;
    int c = strcmp(x->file, y->file);
    return c ? c : strcmp(x->name, y->name);
}

/* True if each tensor of the index is in the shard that the index names; else records an error. */
static bool st_agree(const eg__st_reader *r, const eg__input *index)
{
    const eg__st_row *rows = r->rows.item;
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

/* Reads the index, then each file that it names, once, in the order of their names. */
bool eg__st_shards(eg__st_reader *r)
{
    eg__input *index = r->in, shard;
    const char *path = index->path, *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash + 1 - path) : 0;
    size_t length = index->left;
    if (length > EG_ST_HEADER_MAX)
        return eg__file_refuse(index, "is an index of %zu bytes, more than %d", length,
                               EG_ST_HEADER_MAX);
    char *text = eg__st_json(r, length);
    eg__json j = { index, "index", text, 0, length, 0 };
    bool good = text && eg__json_object(&j, st_index_member, r) && eg__json_end(&j);
    if (good && !r->rows.count)
        good = eg__file_refuse(index, "is an index without \"weight_map\": it names no file");
    const eg__st_row *rows = r->rows.item;
    if (good) qsort(r->rows.item, r->rows.count, sizeof *rows, st_order_of_files);
    for (size_t k = 0; k < r->rows.count && good; k++) {
        if (k && !strcmp(rows[k].file, rows[k - 1].file)) continue;
        size_t size = (size_t)folder + strlen(rows[k].file) + 1;
        char *name = eg_owner_alloc(r->st->owner, size);
        const char **files =
            eg_owner_alloc(r->st->owner, (size_t)(r->st->files + 1) * sizeof *files);
        if (!name || !files) return false;
        snprintf(name, size, "%.*s%s", folder, path, rows[k].file);
        if (r->st->files) memcpy(files, r->st->file, (size_t)r->st->files * sizeof *files);
        files[r->st->files] = name, r->st->file = files;
        if (!eg__file_open(&shard, index->cx, "safetensors", name)) return false;
        r->in = &shard;
        good = eg__st_file(r);
        eg__file_close(&shard);
        r->in = index;
    }
    return good && eg__st_names(r) && st_agree(r, index);
}
