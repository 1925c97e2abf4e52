/* store.c: parameters as one safetensors file, by their names */
#include "nn.h"
#include <stdio.h>
#include <string.h>

int eg_params_save(const eg_params *p, const char *path)
{
    eg_ctx *cx = eg_params_context(p);
    int count = eg_params_count(p), bad = -1;
    if (!p || eg_error(cx))
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
    return bad;
}

static bool same_shape(const eg_tensor *a, const eg_tensor *b)
{
    bool same = eg_rank(a) == eg_rank(b);
    for (int k = 0; same && k < eg_rank(a); k++)
        same = eg_dim(a, k) == eg_dim(b, k);
    return same;
}

static void shape_text(const eg_tensor *x, char *out, size_t room)
{
    size_t at = (size_t)snprintf(out, room, "(");
    for (int k = 0; k < eg_rank(x) && at < room; k++)
        at += (size_t)snprintf(out + at, room - at, k ? ", %lld" : "%lld", (long long)eg_dim(x, k));
    if (at < room)
        snprintf(out + at, room - at, ")");
}

int eg_params_read(eg_params *p, const eg_safetensors *file, const char *path)
{
    eg_ctx *cx = eg_params_context(p);
    if (!p || !file || eg_error(cx))
        return -1;
    for (int k = 0; k < eg_params_count(p); k++) {      /* all is checked before anything changes          */
        const eg_named *one = eg_params_at(p, k);
        int at = eg_safetensors_find(file, one->name);
        char here[96], there[96];
        eg_tensor *x = at < 0 ? NULL : eg_safetensors_at(file, at);
        if (x && same_shape(x, one->x) && (eg_type(x) == EG_F32 || eg_type(x) == EG_F64))
            continue;
        shape_text(one->x, here, sizeof here);
        if (!x)
            eg_fail(cx, "%s: no tensor \"%s\" %s", path, one->name, here);
        else if (!same_shape(x, one->x)) {
            shape_text(x, there, sizeof there);
            eg_fail(cx, "%s: tensor \"%s\" is %s, but the parameter is %s", path, one->name, there, here);
        } else
            eg_fail(cx, "%s: tensor \"%s\" is %s, but parameters are f32 or f64", path, one->name, eg_type_name(eg_type(x)));
        return -1;
    }
    for (int k = 0; k < eg_safetensors_count(file); k++) {  /* a checkpoint has an optimiser's state as well */
        const char *name = eg_safetensors_name(file, k);
        int at = 0;
        while (eg_params_at(p, at) && strcmp(eg_params_at(p, at)->name, name))
            at++;
        if (strncmp(name, "opt.", 4) && !eg_params_at(p, at)) {
            eg_fail(cx, "%s: tensor \"%s\" belongs to no parameter", path, name);
            return -1;
        }
    }
    bool was = eg_nograd(cx, true);
    int bad = 0;
    for (int k = 0; !bad && k < eg_params_count(p); k++) {
        const eg_named *one = eg_params_at(p, k);
        eg_mark m = eg_push(cx);
        bad = eg_assign(one->x, eg_cast(eg_safetensors_at(file, eg_safetensors_find(file, one->name)), eg_type(one->x)));
        eg_pop(cx, m);
    }
    eg_nograd(cx, was);
    return bad;
}

int eg_params_load(eg_params *p, const char *path)
{
    eg_ctx *cx = eg_params_context(p);
    if (!p || eg_error(cx))
        return -1;
    eg_mark m = eg_push(cx);
    int bad = eg_params_read(p, eg_safetensors_open(cx, path), path);
    eg_pop(cx, m);
    return bad;
}
