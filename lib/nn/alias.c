/* alias.c: reads and writes parameters in files that use other names and another order of axes. An
 * entry of a style (eg_alias) gives the axes of the file's tensor in the letters of the parameter,
 * and eg_rearrange converts: "(c h d) m" is read as c m h d, of which part c is W_q (m h d). */
#include "nn.h"
#include <stdio.h>

enum { NAME = 256 };

static size_t alias_digits(const char *s) { return strspn(s, "0123456789"); }

/* Returns the number of parts of the entry's tensor; 0 if it is not divided. */
static int alias_parts(const eg_alias *a) { return a->parts > 0 ? a->parts : 0; }

/* True if `ours` is a name that the entry describes; sets *digits and *count to the number that '*'
 * matches. */
static bool alias_ours(const eg_alias *a, const char *ours, const char **digits, size_t *count)
{
    const char *star = strchr(a->ours, '*');
    size_t lead = star ? (size_t)(star - a->ours) : 0;
    *digits = star ? ours + lead : "", *count = 0;
    if (!star) return !strcmp(ours, a->ours);
    if (strncmp(ours, a->ours, lead)) return false;
    *count = alias_digits(*digits);
    return *count && !strcmp(*digits + *count, star + 1);
}

/* Writes the file's name of the parameter `ours` to out: '*' becomes the number that the entry's
 * '*' matches in ours, '#' becomes `head` unless that is negative; bare: without the text before
 * '?'. False if the entry describes other parameters, or the name is too long. */
static bool alias_file_name(const eg_alias *a, const char *ours, const char *under, int64_t head,
                            bool bare, char *out)
{
    const char *digits, *mark = bare ? strchr(a->theirs, '?') : NULL;
    size_t count, n = strlen(under), stars = 0;
    if (!alias_ours(a, ours, &digits, &count)) return false;
    for (const char *c = a->theirs; *c; c++) stars += *c == '*' || *c == '#';
    if (n + strlen(a->theirs) + stars * (count + 24) >= NAME) return false;
    memcpy(out, under, n);
    for (const char *c = mark ? mark : a->theirs; *c; c++)
        if (*c == '?') {
            continue;
        } else if (*c == '*') {
            memcpy(out + n, digits, count);
            n += count;
        } else if (*c == '#' && head >= 0)
            n += (size_t)snprintf(out + n, NAME - n, "%lld", (long long)head);
        else
            out[n++] = *c;
    out[n] = 0;
    return true;
}

/* True if name begins with the first `length` bytes of theirs, in which '*' and '#' match any
 * number; then moves *name past them. */
static bool alias_matches(const char **name, const char *theirs, size_t length)
{
    const char *s = *name;
    for (size_t k = 0; k < length; k++) {
        size_t n = theirs[k] == '*' || theirs[k] == '#' ? alias_digits(s) : theirs[k] == *s;
        if (!n) return false;
        s += n;
    }
    *name = s;
    return true;
}

/* True if an entry { "", theirs } says that the tensor `name`, given without `under`, is no
 * parameter. */
static bool alias_leaves_out(const eg_alias *list, const char *name)
{
    for (const eg_alias *a = list; a->ours; a++) {
        const char *s = name, *mark = strchr(a->theirs, '?'), *rest = mark ? mark + 1 : a->theirs;
        if (*a->ours) continue;
        if (mark) alias_matches(&s, a->theirs, (size_t)(mark - a->theirs));
        if (alias_matches(&s, rest, strlen(rest)) && !*s) return true;
    }
    return false;
}

/* -- sizes by letter -------------------------------------------------------------------------- */
/* How entry `a` stores the parameter `one`: the shape of the tensor in the file; the specs that
 * convert it to the parameter and back (in the open scope); and the axis of the parameter that '#'
 * counts. If several parts are consecutive along one axis of the tensor, `joined` is that axis, and
 * shape and specs are those of this part alone; else it is −1. */
typedef struct plan {
    int rank;
    int64_t dims[EG_RANK_MAX];
    const char *read, *write;
    int counted, joined;
    bool heads;
} plan;

/* Sets the shape of the file's tensor from the sizes of the parameter's letters. False if it has
 * another letter, or is too large. */
static bool alias_dims(const eg_named *one, const eg_spec *ours, const eg_alias *a,
                       const eg_spec *theirs, plan *p)
{
    const eg_spec_term *t = &theirs->term[0];
    p->rank = t->axes;
    for (int k = 0; k < t->axes; k++) p->dims[k] = 1;
    for (int k = 0; k < t->items; k++) {
        if (t->item[k].index == EG_INDEX_REST) return false;
        if (t->item[k].index == EG_INDEX_ONE) continue;
        const char *name = theirs->index[t->item[k].index].name;
        const int axis = eg_spec_axis(ours, 0, name);
        const int64_t size = axis >= 0           ? eg_dim(one->x, axis)
                             : strcmp(name, "c") ? 0
                                                 : alias_parts(a);
        int64_t *dim = &p->dims[t->item[k].axis];
        if (!size || __builtin_mul_overflow(*dim, size, dim)) return false;
    }
    return true;
}

/* Returns `theirs` with the size of each letter that `ours` has: "h=8". */
static const eg_spec *alias_sized(const eg_named *one, const eg_spec *ours, const eg_spec *theirs)
{
    const eg_spec *sized = theirs;
    for (int k = 0; k < theirs->indices; k++) {
        char text[NAME];
        const char *name = theirs->index[k].name;
        const int axis = eg_spec_axis(ours, 0, name);
        if (axis < 0 || theirs->index[k].fixed) continue;
        snprintf(text, sizeof text, "%s=%lld", name, (long long)eg_dim(one->x, axis));
        sized = eg_spec_replace(sized, 0, name, text);
    }
    return sized;
}

/* Fills in the plan. False if the entry cannot store the parameter, and after an error: the axes
 * cannot be read. */
static bool alias_planned(const eg_named *one, const eg_alias *a, plan *p)
{
    eg_ctx *cx = eg_context(one->x);
    const eg_spec *ours = eg_spec_parse(cx, one->name, one->axes),
                  *theirs = eg_spec_parse(cx, a->theirs, a->axes), *target = ours;
    *p = (plan){ .counted = -1, .joined = -1, .heads = strchr(a->theirs, '#') != NULL };
    if (!theirs || !ours || theirs->terms != 1 || theirs->arrow || ours->names != theirs->names ||
        ours->term[0].axes != eg_rank(one->x))
        return false;
    const int part = alias_parts(a) ? eg_spec_find_item(theirs, 0, "c") : -1;
    const eg_spec_item *item = theirs->term[0].item;
    if (part >= 0 && item[part].group && (!part || item[part - 1].group != item[part].group)) {
        p->joined = item[part].axis;
        theirs = eg_spec_replace(theirs, 0, "c", "");
    }
    if (!theirs || !alias_dims(one, ours, a, theirs, p)) return false;
    for (int k = 0; k < ours->indices; k++) {
        const char *name = ours->index[k].name;
        if (eg_spec_find_item(theirs, 0, name) >= 0) continue;
        if (!p->heads || p->counted >= 0) return false;
        p->counted = eg_spec_axis(ours, 0, name);
        target = eg_spec_replace(target, 0, name, "");
    }
    if (alias_parts(a) && p->joined < 0) target = eg_spec_insert(target, 0, 0, "c");
    p->read = eg__nn_joined(alias_sized(one, ours, theirs), NULL, target);
    p->write = eg__nn_joined(target, NULL, theirs);
    return (!p->heads || p->counted >= 0) && !eg_error(cx);
}

enum { PARTS = 8 }; /* largest number of parts of a tensor */
/* True if the list is not NULL and each entry has a valid part; else records an error. */
static bool alias_list_fits(eg_ctx *cx, const char *who, const eg_alias *list)
{
    if (!list)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: the list of names is NULL, as eg_aliases returns it for an unknown style",
                   who);
    for (const eg_alias *a = list; a && a->ours; a++) {
        const int most = alias_parts(a) ? a->parts : 1;
        if (a->parts >= EG_ALIAS_LESS_ONE && a->part >= 0 && a->part < most && most <= PARTS)
            continue;
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: row \"%s\" is part %d of %d; a tensor has at most %d parts, counted from 0",
                   who, a->ours, a->part, a->parts, PARTS);
    }
    return !eg_error(cx);
}

/* Returns the parameter's name without the prefix of p; NULL if it does not begin with that
 * prefix. */
static const char *alias_own_name(const eg_params *p, const eg_named *one)
{
    const char *prefix = eg_params_prefix(p);
    size_t n = strlen(prefix);
    return strncmp(one->name, prefix, n) ? NULL : one->name + n;
}

/* For an entry `a` that stores the parameter `name` as one part of a tensor: returns the parameter
 * that is part `part` of the same tensor, and sets its plan; NULL if there is none, or if it has
 * another shape. */
static const eg_named *alias_part(const eg_params *p, const eg_alias *list, const eg_alias *a,
                                  const char *name, int part, plan *q)
{
    const char *digits, *prefix = eg_params_prefix(p);
    size_t count;
    alias_ours(a, name, &digits, &count);
    for (const eg_alias *b = list; b->ours; b++) {
        const char *star = strchr(b->ours, '*');
        char full[NAME];
        if (b->parts != a->parts || b->part != part || strcmp(b->theirs, a->theirs) ||
            strlen(prefix) + strlen(b->ours) + count >= NAME)
            continue;
        snprintf(full, sizeof full, "%s%.*s%.*s%s", prefix,
                 star ? (int)(star - b->ours) : (int)strlen(b->ours), b->ours,
                 star ? (int)count : 0, digits, star ? star + 1 : "");
        const eg_named *one = eg__nn_named(p, full);
        if (one && alias_planned(one, b, q)) return one;
    }
    return NULL;
}

/* -- reading ---------------------------------------------------------------------------------- */
typedef struct source { /* a file from which parameters are read */
    eg_ctx *cx;
    const eg_params *p;
    const eg_safetensors *file;
    const char *path, *under;
    const eg_alias *list;
    bool *used;      /* by tensor of the file: a parameter was read from it */
    eg__nn_writes w; /* what is written once all is read */
    bool bare; /* the name of the last tensor that was found does not have the text before '?' */
} source;

/* For parts that are consecutive along an axis: returns the offset at which part a->part begins,
 * the sum of the sizes of the parts before it, and sets `whole` to the plan of the complete tensor.
 * A part for which the model has no parameter (such as a bias) is assumed to have this part's
 * size. */
static int64_t alias_offset(const source *s, const eg_alias *a, const char *name, const plan *p,
                            plan *whole)
{
    int64_t before = 0, all = 0;
    for (int part = 0; part < a->parts; part++) {
        plan q;
        const eg_named *one = alias_part(s->p, s->list, a, name, part, &q);
        int64_t size = (one && q.joined == p->joined ? &q : p)->dims[p->joined];
        before = part == a->part ? all : before;
        if (__builtin_add_overflow(all, size, &all)) all = INT64_MAX;
    }
    *whole = *p;
    whole->dims[p->joined] = all;
    return before;
}

/* Returns x + c; of bf16 and f16 in f32. */
static eg_tensor *alias_plus(eg_tensor *x, double c)
{
    return eg_shift(eg_type(x) == EG_F64 ? x : eg_cast(x, EG_F32), c);
}

/* Returns the parameter's elements in the tensor `theirs`, with the parameter's order of axes. */
static eg_tensor *alias_value(const source *s, const eg_named *one, const char *name,
                              const eg_alias *a, const plan *p, const char *theirs)
{
    plan whole = *p;
    int64_t at = p->joined < 0 ? 0 : alias_offset(s, a, name, p, &whole);
    eg_tensor *in =
        eg_safetensors_need(s->file, s->path, theirs, one->name, whole.rank, whole.dims);
    if (!eg_ok(in)) return in;
    if (p->joined >= 0) in = eg_slice_axis(in, p->joined, at, at + p->dims[p->joined], 1);
    in = eg_rearrange(p->read, in);
    if (alias_parts(a) && p->joined < 0) in = eg_select_axis(in, 0, a->part);
    if (a->parts == EG_ALIAS_LESS_ONE) in = alias_plus(in, 1);
    return in;
}

static int read_one(source *s, const eg_named *one, const char *name, const eg_alias *a,
                    const plan *p, int64_t head, const char *theirs)
{
    eg_tensor *in = alias_value(s, one, name, a, p, theirs),
              *to = p->heads ? eg_select_axis(one->x, p->counted, head) : one->x;
    if (!eg_ok(in)) return -1;
    s->used[eg_safetensors_find(s->file, theirs)] = true;
    eg__nn_write(&s->w, to, in);
    return eg_ok(to) ? 0 : -1;
}

/* True if the entry's tensor is in the file, with or without the text before '?' in its name;
 * writes the name to theirs. */
static bool alias_found(source *s, const eg_alias *a, const char *name, char *theirs)
{
    const int forms = strchr(a->theirs, '?') ? 2 : 1;
    const int64_t head = strchr(a->theirs, '#') ? 0 : -1;
    for (int k = 0; k < forms; k++) {
        const bool bare = s->bare != (k > 0);
        if (!alias_file_name(a, name, s->under, head, bare, theirs)) return false;
        if (eg_safetensors_find(s->file, theirs) < 0) continue;
        s->bare = forms > 1 ? bare : s->bare;
        return true;
    }
    return false;
}

/* Returns the entry by which a parameter is read, and sets its plan: the first one whose tensor is
 * in the file, else the first that can store the parameter; or an entry that leaves it out. NULL,
 * after an error, if there is none. */
static const eg_alias *alias_row(source *s, const eg_named *one, const char *name, plan *p)
{
    char theirs[NAME];
    const eg_alias *first = NULL;
    for (const eg_alias *a = s->list; a->ours; a++) {
        const bool heads = strchr(a->theirs, '#') != NULL;
        if (a->parts == EG_ALIAS_COPY ||
            !alias_file_name(a, name, s->under, heads ? 0 : -1, s->bare, theirs))
            continue;
        if (!*a->theirs) return a;
        if (!alias_planned(one, a, p)) continue;
        if (alias_found(s, a, name, theirs)) return a;
        first = first ? first : a;
    }
    if (first) return alias_planned(one, first, p) ? first : NULL;
    eg_fail_as(s->cx, EG_ERROR_NOTATION, "%s: this style has no name for the parameter \"%s\"",
               s->path, one->name);
    return NULL;
}

/* Reads a parameter. Returns 0; −1 after an error, such as a tensor that is not in the file. */
static int read_param(source *s, const eg_named *one, const char *name)
{
    char theirs[NAME];
    plan p;
    const eg_alias *a = alias_row(s, one, name, &p);
    if (!a || !*a->theirs) return a ? 0 : -1;
    for (int64_t h = 0, count = p.heads ? eg_dim(one->x, p.counted) : 1; h < count; h++)
        if (!alias_file_name(a, name, s->under, p.heads ? h : -1, s->bare, theirs) ||
            read_one(s, one, name, a, &p, h, theirs))
            return -1;
    return 0;
}

/* -- copies ----------------------------------------------------------------------------------- */
/* True if, by the entry, the tensor `tensor` is a copy of the parameter. */
static bool alias_names(const source *s, const eg_alias *a, const char *name, const char *tensor)
{
    char theirs[NAME];
    for (int bare = 0; a->parts == EG_ALIAS_COPY && bare < 2; bare++)
        if (alias_file_name(a, name, s->under, -1, bare, theirs) && !strcmp(theirs, tensor))
            return true;
    return false;
}

/* Compares a copy with the tensor from which the parameter is read. Returns 1 if they are equal;
 * −1, after an error, if they differ. */
static int alias_compare(source *s, const eg_named *one, const char *name, const eg_alias *copy,
                         const char *tensor)
{
    char theirs[NAME];
    plan p, q;
    const eg_alias *a = alias_row(s, one, name, &p);
    if (!a || !alias_file_name(a, name, s->under, -1, s->bare, theirs) ||
        !alias_planned(one, copy, &q))
        return -1;
    eg_tensor *x = alias_value(s, one, name, a, &p, theirs),
              *y = alias_value(s, one, name, copy, &q, tensor);
    eg_tensor *same = eg_all(NULL, eg_eq(eg_cast(x, eg_type(one->x)), eg_cast(y, eg_type(one->x))));
    if (eg_ok(same) && eg_item(same) == 1) return 1;
    eg_fail_as(s->cx, EG_ERROR_FILE,
               "%s: tensors \"%s\" and \"%s\" differ, but the model has one parameter for both, "
               "\"%s\"",
               s->path, theirs, tensor, one->name);
    return -1;
}

/* Compares a tensor from which no parameter was read with the one that it is a copy of. Returns 1
 * if they are equal, 0 if no entry calls it a copy; −1, after an error, if they differ. */
static int alias_copy(source *s, const char *tensor)
{
    for (const eg_alias *a = s->list; a->ours; a++)
        for (int k = 0; a->parts == EG_ALIAS_COPY && eg_params_at(s->p, k); k++) {
            const eg_named *one = eg_params_at(s->p, k);
            const char *name = alias_own_name(s->p, one);
            if (!name || !alias_names(s, a, name, tensor)) continue;
            eg_mark m = eg_push(s->cx);
            const int same = alias_compare(s, one, name, a, tensor);
            eg_pop(s->cx, m);
            return same;
        }
    return 0;
}

/* Reads each parameter of the list. Returns 0; −1 after an error. */
static int read_params(source *s)
{
    int bad = 0;
    for (int k = 0; !bad && eg_params_at(s->p, k); k++) {
        const char *name = alias_own_name(s->p, eg_params_at(s->p, k));
        bad = name ? read_param(s, eg_params_at(s->p, k), name) : 0;
    }
    return bad;
}

/* All values are read and checked, and the tensors that are used are marked, before one is
 * written. */
static int alias_read(const char *who, eg_params *p, const eg_safetensors *file, const char *path,
                      const char *under, const eg_alias *list)
{
    eg_ctx *cx = eg_params_context(p);
    if (p && !file) eg_fail_as(cx, EG_ERROR_MISUSE, "%s: the file is NULL", who);
    if (!eg__params_there(who, p) || eg_error(cx) || eg_refuse_capture(cx, who)) return -1;
    under = under ? under : "";
    if (!alias_list_fits(cx, path ? path : who, list)) return -1;
    eg_mark m = eg_push(cx);
    eg_owner *owner = eg_owner_open(cx);
    bool *used = owner ? eg_owner_alloc(owner, (size_t)eg_safetensors_count(file) + 1) : NULL,
         was = eg_nograd(cx, true);
    int bad = used ? 0 : -1;
    source s = { cx, p, file, path ? path : "", under, list, used, { .owner = owner }, false };
    bad = bad ? bad : read_params(&s);
    for (int k = 0; !bad && k < eg_safetensors_count(file); k++) {
        const char *name = eg_safetensors_name(file, k);
        if (used[k] || strncmp(name, under, strlen(under)) ||
            alias_leaves_out(list, name + strlen(under)))
            continue;
        const int copy = alias_copy(&s, name);
        bad = copy < 0 ? -1 : 0;
        if (copy) continue;
        eg_fail_as(
            cx, EG_ERROR_NOTATION,
            "%s: tensor \"%s\" belongs to no parameter; a row { \"\", \"%s\", \"\" } leaves it out",
            s.path, name, name + strlen(under));
        bad = -1;
    }
    bad = bad ? bad : eg__nn_written(cx, &s.w);
    eg_nograd(cx, was);
    eg_pop(cx, m);
    if (bad && eg_error_code(cx) == EG_ERROR_MEMORY) eg_fail_in(cx, "%s", who);
    return bad;
}
int eg_params_read_as(eg_params *p, const eg_safetensors *file, const char *path, const char *under,
                      const eg_alias *list)
{
    return alias_read("params_read_as", p, file, path, under, list);
}

int eg_params_load_as(eg_params *p, const char *path, const char *under, const eg_alias *list)
{
    eg_ctx *cx = eg_params_context(p);
    if (!eg__params_there("params_load_as", p) || eg_error(cx) ||
        eg_refuse_capture(cx, "params_load_as") || !eg__nn_path(p, "params_load_as", path))
        return -1;
    eg_mark m = eg_push(cx);
    int bad = alias_read("params_load_as", p, eg_safetensors_open(cx, path), path, under, list);
    eg_pop(cx, m);
    return bad;
}

/* -- writing ---------------------------------------------------------------------------------- */
typedef struct out {
    int count, capacity;
    const char **names;
    eg_tensor **xs;
    eg_owner *owner;
} out;

static bool out_reserve(out *o)
{
    if (o->count < o->capacity) return true;
    int capacity = o->capacity ? 2 * o->capacity : 64;
    const char **names = eg_owner_alloc(o->owner, (size_t)capacity * sizeof *names);
    eg_tensor **xs = names ? eg_owner_alloc(o->owner, (size_t)capacity * sizeof *xs) : NULL;
    if (!xs) return false;
    if (o->count) {
        memcpy(names, o->names, (size_t)o->count * sizeof *names);
        memcpy(xs, o->xs, (size_t)o->count * sizeof *xs);
    }
    o->names = names, o->xs = xs, o->capacity = capacity;
    return true;
}

static bool alias_emit(out *o, const char *name, eg_tensor *x)
{
    char *kept = out_reserve(o) && eg_ok(x) ? eg_owner_alloc(o->owner, strlen(name) + 1) : NULL;
    if (!kept) return false;
    memcpy(kept, name, strlen(name) + 1);
    o->names[o->count] = kept;
    o->xs[o->count++] = eg_contiguous(x);
    return true;
}

/* Lists the parts of a tensor of the file, in their order. False if a part is missing or does not
 * fit the first. uneven: parts that are consecutive may differ in size. */
static bool alias_gather(const eg_params *p, const eg_alias *list, const eg_alias *a,
                         const char *name, bool uneven, eg_tensor **xs)
{
    plan first = { 0 }, q = { 0 };
    for (int part = 0; part < a->parts; part++) {
        const eg_named *one = alias_part(p, list, a, name, part, &q);
        first = part ? first : q;
        if (!one || q.rank != first.rank || q.joined != first.joined) return false;
        for (int d = 0; d < q.rank; d++)
            if (q.dims[d] != first.dims[d] && !(uneven && d == q.joined)) return false;
        if (a->part) continue; /* the first part is written together with all others */
        xs[part] = q.joined < 0 ? one->x : eg_rearrange(q.write, one->x);
    }
    return true;
}

static bool same_sizes(int count, eg_tensor *const *xs)
{
    for (int k = 1; k < count; k++)
        for (int d = 0; d < eg_rank(xs[0]); d++)
            if (eg_rank(xs[k]) != eg_rank(xs[0]) || eg_dim(xs[k], d) != eg_dim(xs[0], d))
                return false;
    return true;
}

/* Returns 1 if the parameter was written, or is part of a tensor that was; 0 if no entry can store
 * it; −1 after an error. */
static int write_param(const eg_params *p, const eg_named *one, const char *name, const char *under,
                       const eg_alias *list, bool uneven, out *o)
{
    char theirs[NAME];
    for (const eg_alias *a = list; a->ours; a++) {
        plan q;
        eg_tensor *xs[PARTS] = { 0 };
        if (a->parts == EG_ALIAS_COPY || !alias_file_name(a, name, under, -1, false, theirs))
            continue;
        if (!*a->theirs) return 1;
        if (!alias_planned(one, a, &q)) continue;
        eg_tensor *x = a->parts == EG_ALIAS_LESS_ONE ? alias_plus(one->x, -1) : one->x;
        if (alias_parts(a)) {
            if (!alias_gather(p, list, a, name, uneven, xs) ||
                (q.joined < 0 && !a->part && !same_sizes(a->parts, xs)))
                continue; /* sizes differ: a later entry has a tensor for each */
            eg_tensor *all = a->part ? NULL
                             : q.joined < 0
                                 ? eg_rearrange(q.write, eg_stack_axis_n(0, a->parts, xs))
                                 : eg_concat_axis_n(q.joined, a->parts, xs);
            return a->part || alias_emit(o, theirs, all) ? 1 : -1;
        }
        bool good = q.heads || alias_emit(o, theirs, eg_rearrange(q.write, x));
        for (int64_t h = 0; good && q.heads && h < eg_dim(one->x, q.counted); h++)
            good = alias_file_name(a, name, under, h, false, theirs) &&
                   alias_emit(o, theirs, eg_rearrange(q.write, eg_select_axis(x, q.counted, h)));
        return good ? 1 : -1;
    }
    return 0;
}

/* Parameters that no entry can store with parts of equal sizes are tried with parts of different
 * sizes. */
int eg_params_save_as(const eg_params *p, const char *path, const char *under, const eg_alias *list)
{
    eg_ctx *cx = eg_params_context(p);
    if (!eg__params_single("params_save_as", p) || eg_error(cx) ||
        eg_refuse_capture(cx, "params_save_as") || !eg__nn_path(p, "params_save_as", path))
        return -1;
    if (!alias_list_fits(cx, "params_save_as", list)) return -1;
    eg_mark m = eg_push(cx);
    out o = { .owner = eg_owner_open(cx) };
    bool was = eg_nograd(cx, true), good = o.owner != NULL;
    for (int k = 0; good && eg_params_at(p, k); k++) {
        const char *name = alias_own_name(p, eg_params_at(p, k));
        int wrote =
            name ? write_param(p, eg_params_at(p, k), name, under ? under : "", list, false, &o)
                 : 1;
        wrote = wrote
                    ? wrote
                    : write_param(p, eg_params_at(p, k), name, under ? under : "", list, true, &o);
        if (!wrote)
            eg_fail_as(cx, EG_ERROR_NOTATION,
                       "params_save_as: this style has no name for the parameter \"%s\"",
                       eg_params_at(p, k)->name);
        good = wrote > 0;
    }
    int bad =
        good && !eg_error(cx) ? eg_safetensors_save(cx, path, o.count, o.names, o.xs, NULL) : -1;
    eg_nograd(cx, was);
    eg_pop(cx, m);
    if (bad && eg_error_code(cx) == EG_ERROR_MEMORY) eg_fail_in(cx, "params_save_as");
    return bad;
}
