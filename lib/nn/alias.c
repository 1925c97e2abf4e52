/* alias.c: parameters from and to files that name them and lay them out in their own way. The axes of theirs are written in the letters of
 * ours, so that eg_rearrange does the work: "(c h d) m" is read as c m h d, of which part c is W_q (m h d). */
#include "nn.h"
#include <ctype.h>
#include <stdio.h>

enum { NAME = 256 };

/* theirs of a parameter: '*' in ours stands for a number, which '*' in theirs repeats; '#' is `head`, if that is not negative */
static bool named(const eg_alias *a, const char *ours, const char *under, int64_t head, char *out)
{
    const char *star = strchr(a->ours, '*'), *digits = "";
    size_t lead = star ? (size_t)(star - a->ours) : 0, count = 0;
    if (star) {
        if (strncmp(ours, a->ours, lead))
            return false;
        digits = ours + lead;
        count = strspn(digits, "0123456789");
        if (!count || strcmp(digits + count, star + 1))
            return false;
    } else if (strcmp(ours, a->ours))
        return false;
    size_t n = strlen(under);
    if (n + strlen(a->theirs) + count + 24 >= NAME)
        return false;
    memcpy(out, under, n);
    for (const char *c = a->theirs; *c; c++)
        if (*c == '*') {
            memcpy(out + n, digits, count);
            n += count;
        } else if (*c == '#' && head >= 0)
            n += (size_t)snprintf(out + n, NAME - n, "%lld", (long long)head);
        else
            out[n++] = *c;
    out[n] = 0;
    return true;
}

/* -- sizes by letter ----------------------------------------------------------------------------------------------------------------- */
/* theirs of `one` through `a`: its shape, the spec that turns it into ours, and the axis that '#' counts */
typedef struct plan { int rank; int64_t dims[8]; char read[128], write[128]; int counted; bool heads; } plan;

static int letters(const char *axes, char *out)
{
    int n = 0;
    for (const char *c = axes; *c && n < 8; c++)
        if (isalpha((unsigned char)*c))
            out[n++] = *c;
    return n;
}

static bool planned(const eg_named *one, const eg_alias *a, plan *p)
{
    char ours[8] = "", theirs[64] = "", target[32] = "";
    int count = letters(one->axes, ours), n = 0, t = 0;
    bool group = false;
    *p = (plan){ .counted = -1, .heads = strchr(a->theirs, '#') != NULL };
    if (count != eg_rank(one->x))
        return false;
    for (const char *c = a->axes; *c; c++) {
        int k = 0;
        while (k < count && ours[k] != *c)
            k++;
        int64_t size = k < count ? eg_dim(one->x, k) : *c == 'c' && a->parts ? a->parts : 0;
        group = *c == '(' || (group && *c != ')');
        if (*c == '(')
            p->dims[p->rank++] = 1;
        if (!isalpha((unsigned char)*c)) {
            theirs[n++] = *c;
            continue;
        }
        if (!size || n > 32 || p->rank > 6)
            return false;
        if (group)
            p->dims[p->rank - 1] *= size;
        else
            p->dims[p->rank++] = size;
        n += snprintf(theirs + n, sizeof theirs - (size_t)n, "%c=%lld", *c, (long long)size);
        if (isalpha((unsigned char)c[1]))
            theirs[n++] = ' ';
    }
    if (a->parts)
        target[t++] = 'c', target[t++] = ' ';
    for (int k = 0; k < count; k++)
        if (strchr(a->axes, ours[k]))
            target[t++] = ours[k], target[t++] = ' ';
        else if (p->heads && p->counted < 0)
            p->counted = k;
        else
            return false;
    snprintf(p->read, sizeof p->read, "%s -> %s", theirs, target);
    snprintf(p->write, sizeof p->write, "%s -> %s", target, a->axes);
    return !p->heads || p->counted >= 0;
}

static void shape_text(int rank, const int64_t *dims, char *out, size_t room)
{
    size_t at = (size_t)snprintf(out, room, "(");
    for (int k = 0; k < rank && at < room; k++)
        at += (size_t)snprintf(out + at, room - at, k ? ", %lld" : "%lld", (long long)dims[k]);
    if (at < room)
        snprintf(out + at, room - at, ")");
}

/* -- reading ------------------------------------------------------------------------------------------------------------------------- */
static const char *relative(const eg_params *p, const eg_named *one)   /* its name under p, or NULL */
{
    const char *prefix = eg__nn_prefix(p);
    size_t n = strlen(prefix);
    return strncmp(one->name, prefix, n) ? NULL : one->name + n;
}

static int read_one(eg_ctx *cx, const eg_named *one, const eg_alias *a, const plan *p, eg_tensor *x, int64_t head, const char *theirs,
                    const char *path)
{
    char have[96], need[96];
    bool same = eg_rank(x) == p->rank;
    for (int k = 0; same && k < p->rank; k++)
        same = eg_dim(x, k) == p->dims[k];
    shape_text(eg_rank(x), eg_dims(x), have, sizeof have);
    shape_text(p->rank, p->dims, need, sizeof need);
    if (!same)
        eg_fail(cx, "%s: tensor \"%s\" is %s, but \"%s\" needs %s", path, theirs, have, one->name, need);
    else if (eg_type(x) != EG_F32 && eg_type(x) != EG_F64)
        eg_fail(cx, "%s: tensor \"%s\" is %s, but parameters are f32 or f64", path, theirs, eg_type_name(eg_type(x)));
    if (eg_error(cx))
        return -1;
    eg_tensor *in = eg_rearrange(p->read, x);
    if (a->parts)
        in = eg_select(in, 0, a->part);
    return eg_assign(p->heads ? eg_select(one->x, p->counted, head) : one->x, eg_cast(in, eg_type(one->x)));
}

/* the first of the list whose tensor is in the file */
static int read_param(eg_ctx *cx, const eg_named *one, const char *name, const eg_safetensors *file, const char *path, const char *under,
                      const eg_alias *list, bool *used)
{
    char theirs[NAME], first[NAME] = "";
    for (const eg_alias *a = list; a->ours; a++) {
        plan p;
        bool heads = strchr(a->theirs, '#') != NULL;
        if (!named(a, name, under, heads ? 0 : -1, theirs) || !planned(one, a, &p))
            continue;
        if (!*first)
            snprintf(first, sizeof first, "%s", theirs);
        if (eg_safetensors_find(file, theirs) < 0)
            continue;
        int64_t count = heads ? eg_dim(one->x, p.counted) : 1;
        for (int64_t h = 0; h < count; h++) {
            named(a, name, under, heads ? h : -1, theirs);
            int at = eg_safetensors_find(file, theirs);
            if (at < 0) {
                eg_fail(cx, "%s: no tensor \"%s\", head %lld of \"%s\"", path, theirs, (long long)h, one->name);
                return -1;
            }
            used[at] = true;
            if (read_one(cx, one, a, &p, eg_safetensors_at(file, at), h, theirs, path))
                return -1;
        }
        return 0;
    }
    if (*first)
        eg_fail(cx, "%s: no tensor \"%s\" for \"%s\"", path, first, one->name);
    else
        eg_fail(cx, "%s: this style has no name for the parameter \"%s\"", path, one->name);
    return -1;
}

int eg_params_read_as(eg_params *p, const eg_safetensors *file, const char *path, const char *under, const eg_alias *list)
{
    eg_ctx *cx = eg_params_context(p);
    if (!p || !file || eg_error(cx))
        return -1;
    under = under ? under : "";
    if (!list) {
        eg_fail(cx, "%s: the list of names is NULL", path);
        return -1;
    }
    eg_mark m = eg_push(cx);
    eg_owner *owner = eg_owner_open(cx);
    bool *used = owner ? eg_owner_alloc(owner, (size_t)eg_safetensors_count(file) + 1) : NULL, was = eg_nograd(cx, true);
    int bad = used ? 0 : -1;
    for (int k = 0; !bad && eg_params_at(p, k); k++) {
        const char *name = relative(p, eg_params_at(p, k));
        eg_mark inner = eg_push(cx);
        bad = name ? read_param(cx, eg_params_at(p, k), name, file, path, under, list, used) : 0;
        eg_pop(cx, inner);
    }
    for (int k = 0; !bad && k < eg_safetensors_count(file); k++)
        if (!used[k] && !strncmp(eg_safetensors_name(file, k), under, strlen(under))) {
            eg_fail(cx, "%s: tensor \"%s\" belongs to no parameter", path, eg_safetensors_name(file, k));
            bad = -1;
        }
    eg_nograd(cx, was);
    eg_pop(cx, m);
    return bad;
}

int eg_params_load_as(eg_params *p, const char *path, const char *under, const eg_alias *list)
{
    eg_ctx *cx = eg_params_context(p);
    if (!p || eg_error(cx))
        return -1;
    eg_mark m = eg_push(cx);
    int bad = eg_params_read_as(p, eg_safetensors_open(cx, path), path, under, list);
    eg_pop(cx, m);
    return bad;
}

/* -- writing -------------------------------------------------------------------------------------------------------------------------- */
typedef struct out { int count, room; const char **names; eg_tensor **xs; eg_owner *owner; } out;

static bool roomy(out *o)
{
    if (o->count < o->room)
        return true;
    int room = o->room ? 2 * o->room : 64;
    const char **names = eg_owner_alloc(o->owner, (size_t)room * sizeof *names);
    eg_tensor **xs = names ? eg_owner_alloc(o->owner, (size_t)room * sizeof *xs) : NULL;
    if (!xs)
        return false;
    if (o->count) {
        memcpy(names, o->names, (size_t)o->count * sizeof *names);
        memcpy(xs, o->xs, (size_t)o->count * sizeof *xs);
    }
    o->names = names, o->xs = xs, o->room = room;
    return true;
}

static bool emit(out *o, const char *name, eg_tensor *x)
{
    char *kept = roomy(o) && eg_ok(x) ? eg_owner_alloc(o->owner, strlen(name) + 1) : NULL;
    if (!kept)
        return false;
    memcpy(kept, name, strlen(name) + 1);
    o->names[o->count] = kept;
    o->xs[o->count++] = eg_contiguous(x);
    return true;
}

/* all the parts of a tensor of theirs, in their order; false if one is missing or has another shape */
static bool gathered(const eg_params *p, const eg_alias *list, const char *under, const char *theirs, int parts, const plan *first,
                     eg_tensor **xs)
{
    int found = 0;
    for (const eg_alias *a = list; a->ours; a++)
        for (int k = 0; eg_params_at(p, k); k++) {
            const char *name = relative(p, eg_params_at(p, k));
            char other[NAME];
            plan q;
            if (!name || a->parts != parts || !named(a, name, under, -1, other) || strcmp(other, theirs) ||
                !planned(eg_params_at(p, k), a, &q))
                continue;
            if (q.rank != first->rank || memcmp(q.dims, first->dims, sizeof q.dims) || a->part >= parts)
                return false;
            xs[a->part] = eg_params_at(p, k)->x;
            found++;
        }
    return found == parts;
}

static bool same_sizes(int count, eg_tensor *const *xs)
{
    for (int k = 1; k < count; k++)
        for (int d = 0; d < eg_rank(xs[0]); d++)
            if (eg_rank(xs[k]) != eg_rank(xs[0]) || eg_dim(xs[k], d) != eg_dim(xs[0], d))
                return false;
    return true;
}

static bool write_param(const eg_params *p, const eg_named *one, const char *name, const char *under, const eg_alias *list, out *o)
{
    enum { PARTS = 8 };
    char theirs[NAME];
    for (const eg_alias *a = list; a->ours; a++) {
        plan q;
        eg_tensor *xs[PARTS] = { 0 };
        bool heads = strchr(a->theirs, '#') != NULL;
        if (a->parts > PARTS || !named(a, name, under, -1, theirs) || !planned(one, a, &q))
            continue;
        if (a->parts) {
            if (!gathered(p, list, under, theirs, a->parts, &q, xs) || !same_sizes(a->parts, xs))
                continue;                               /* one matrix cannot hold them: the next name has its own  */
            return a->part || emit(o, theirs, eg_rearrange(q.write, eg_stack_n(0, a->parts, xs)));
        }
        if (!heads)
            return emit(o, theirs, eg_rearrange(q.write, one->x));
        bool good = true;
        for (int64_t h = 0; good && h < eg_dim(one->x, q.counted); h++)
            good = named(a, name, under, h, theirs) && emit(o, theirs, eg_rearrange(q.write, eg_select(one->x, q.counted, h)));
        return good;
    }
    eg_fail(eg_params_context(p), "params_save_as: this style has no name for the parameter \"%s\"", one->name);
    return false;
}

int eg_params_save_as(const eg_params *p, const char *path, const char *under, const eg_alias *list)
{
    eg_ctx *cx = eg_params_context(p);
    if (!p || eg_error(cx))
        return -1;
    if (!list) {
        eg_fail(cx, "params_save_as: the list of names is NULL");
        return -1;
    }
    eg_mark m = eg_push(cx);
    out o = { .owner = eg_owner_open(cx) };
    bool was = eg_nograd(cx, true), good = o.owner != NULL;
    for (int k = 0; good && eg_params_at(p, k); k++) {
        const char *name = relative(p, eg_params_at(p, k));
        good = !name || write_param(p, eg_params_at(p, k), name, under ? under : "", list, &o);
    }
    int bad = good && !eg_error(cx) ? eg_safetensors_save(cx, path, o.count, o.names, o.xs, NULL) : -1;
    eg_nograd(cx, was);
    eg_pop(cx, m);
    return bad;
}
