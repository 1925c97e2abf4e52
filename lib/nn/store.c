/* store.c: saves, loads and reads parameters as one safetensors file, by their names. */
#include "nn.h"

int eg_params_save(const eg_params *p, const char *path)
{
    eg_ctx *cx = eg_params_context(p);
    int count = eg_params_count(p), bad = -1;
    if (!eg__params_single("params_save", p) || eg_error(cx) ||
        eg_refuse_capture(cx, "params_save") || !eg__nn_path(p, "params_save", path))
        return -1;
    eg_mark m = eg_push(cx);
    eg_owner *owner = eg_owner_open(cx);
    const char **names = owner ? eg_owner_alloc(owner, (size_t)(count + 1) * sizeof *names) : NULL;
    eg_tensor **xs = names ? eg_owner_alloc(owner, (size_t)(count + 1) * sizeof *xs) : NULL;
    if (xs) {
        for (int k = 0; k < count; k++) {
            names[k] = eg_params_at(p, k)->name;
            xs[k] = eg_params_at(p, k)->x;
        }
        bad = eg_safetensors_save(cx, path, count, names, xs, NULL);
    }
    eg_pop(cx, m);
    if (bad) eg_name_memory_error(cx, "params_save");
    return bad;
}

/* All tensors are compared with the parameters before the first value changes. */
static int store_read(const char *who, eg_params *p, const eg_safetensors *file, const char *path)
{
    eg_ctx *cx = eg_params_context(p);
    if (p && !file) eg_fail_as(cx, EG_ERROR_MISUSE, "%s: the file is NULL", who);
    if (!eg__params_there(who, p) || eg_error(cx) || eg_refuse_capture(cx, who)) return -1;
    for (int k = 0; k < eg_params_count(p); k++) {
        const eg_named *one = eg_params_at(p, k);
        if (!eg_ok(eg_safetensors_need(file, path, one->name, one->name, eg_rank(one->x),
                                       eg_dims(one->x))))
            return -1;
    }
    /* a checkpoint also has the state of an optimiser, "opt.…" */
    for (int k = 0; k < eg_safetensors_count(file); k++) {
        const char *name = eg_safetensors_name(file, k);
        if (strncmp(name, "opt.", 4) && !eg__nn_named(p, name)) {
            eg_fail_as(cx, EG_ERROR_FILE, "%s: tensor \"%s\" belongs to no parameter",
                       path ? path : eg_safetensors_file(file, k), name);
            return -1;
        }
    }
    const eg_mark m = eg_push(cx);
    eg__nn_writes w = { .owner = eg_owner_open(cx) };
    for (int k = 0; k < eg_params_count(p); k++) {
        const eg_named *one = eg_params_at(p, k);
        eg__nn_write(&w, one->x, eg_safetensors_at(file, eg_safetensors_find(file, one->name)));
    }
    const int bad = eg__nn_written(cx, &w);
    eg_pop(cx, m);
    if (bad)
        eg_name_memory_error(cx, who);
    else
        eg__nn_read(p);
    return bad;
}

int eg_params_read(eg_params *p, const eg_safetensors *file, const char *path)
{
    return store_read("params_read", p, file, path);
}

int eg_params_load(eg_params *p, const char *path)
{
    eg_ctx *cx = eg_params_context(p);
    if (!eg__params_there("params_load", p) || eg_error(cx) ||
        eg_refuse_capture(cx, "params_load") || !eg__nn_path(p, "params_load", path))
        return -1;
    eg_mark m = eg_push(cx);
    int bad = store_read("params_load", p, eg_safetensors_open(cx, path), path);
    eg_pop(cx, m);
    return bad;
}
