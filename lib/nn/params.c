/* params.c: a list of named tensors: making it, adding to it, finding by name, copying by name. */
#include "nn.h"
#include <eingrad/grad.h>
#include <stdio.h>
#include <string.h>

/* A parameter, and the number of the context's next draw before it was made. */
typedef struct listed {
    eg_named named;
    uint64_t draws;
} listed;
typedef struct list {
    eg_owner *owner;
    eg_dtype dtype;
    int count, capacity;
    int64_t numbers;
    eg_named **item;   /* each is the first member of a `listed` */
    int *table, slots; /* hash table of names: index in `item` + 1; 0: free */
    const eg_safetensors *expected;
    const char *path;
    bool zero_init; /* new values remain 0 */
    const eg_params *shared;
    const eg_named *values;
    const eg_copies *copies;
    struct eg_params **of_copy; /* by copy; NULL entries: not made yet */
} list;

struct eg_params {
    list *all;
    const char *prefix; /* "" or "name." */
};

bool eg__nn_half(eg_dtype t) { return t == EG_F16 || t == EG_BF16; }
/* The dtype of a parameter of this rank. If matrices are f16 or bf16, which einsum and affine read,
 * other parameters and constants have the dtype of computations, the context's. */
static eg_dtype params_dtype(const list *all, int rank)
{
    return rank > 1 || !eg__nn_half(all->dtype) ? all->dtype
                                                : eg_default_type(eg_owner_context(all->owner));
}
eg_tensor *eg__nn_float(eg_tensor *x)
{
    return eg_ok(x) && eg__nn_half(eg_type(x)) ? eg_cast(x, eg_default_type(eg_context(x))) : x;
}

eg_params *eg_params_open_with(const eg_params_args *given)
{
    OPTIONS(eg_params_args, a, given);
    const eg_dtype usual = a->shared ? eg_params_type(a->shared) : eg_default_type(a->cx),
                   dtype = a->dtype ? a->dtype : usual;
    if (eg_error(a->cx)) return NULL;
    if (dtype != EG_F32 && dtype != EG_F64 && !eg__nn_half(dtype)) {
        eg_fail_as(a->cx, EG_ERROR_DTYPE, "params: parameters are f32, f64, f16 or bf16, not %s",
                   eg_type_name(dtype));
        return NULL;
    }
    if (a->copies < 0 || (a->seeds && !a->copies)) {
        eg_fail_as(a->cx, EG_ERROR_MISUSE,
                   a->copies < 0 ? "params: there must be at least 1 copy, not %lld"
                                 : "params: .seeds are those of copies, and .copies is %lld",
                   (long long)a->copies);
        return NULL;
    }
    if (a->values && (a->shared || a->copies || a->expected)) {
        eg_fail_as(a->cx, EG_ERROR_MISUSE, "params: .values and %s exclude each other",
                   a->shared   ? ".shared"
                   : a->copies ? ".copies"
                               : ".expected");
        return NULL;
    }
    if (a->shared && (a->copies || eg_params_copies(a->shared) || a->expected || dtype != usual)) {
        eg_fail_as(a->cx, EG_ERROR_MISUSE,
                   "params: a list that shares the memory of another one has its dtype, %s, and "
                   "neither has copies or an expected file",
                   eg_type_name(usual));
        return NULL;
    }
    if (eg_refuse_capture(a->cx, "params")) return NULL;
    eg_owner *owner = eg_owner_open(a->cx);
    eg_params *p = owner ? eg_owner_alloc(owner, sizeof *p) : NULL;
    list *all = p ? eg_owner_alloc(owner, sizeof *all) : NULL;
    if (!all) {
        if (eg_error_code(a->cx) == EG_ERROR_MEMORY) eg_fail_in(a->cx, "params");
        eg_owner_close(owner);
        return NULL;
    }
    *all = (list){ .owner = owner,
                   .dtype = dtype,
                   .expected = a->expected,
                   .path = a->path,
                   .zero_init = a->zero_init || a->shared || a->values,
                   .shared = a->shared,
                   .values = a->values };
    *p = (eg_params){ all, "" };
    if (a->copies) all->copies = eg_copies_open(owner, a->copies, a->seeds);
    if (all->copies) all->of_copy = eg_owner_alloc(owner, (size_t)a->copies * sizeof *all->of_copy);
    if (!a->copies || all->of_copy) return p;
    eg_owner_close(owner);
    return NULL;
}

void eg_params_close(eg_params *p)
{
    if (p) eg_owner_close(p->all->owner);
}

eg_ctx *eg_params_context(const eg_params *p) { return p ? eg_owner_context(p->all->owner) : NULL; }
eg_dtype eg_params_type(const eg_params *p) { return p ? p->all->dtype : EG_DEFAULT; }
const eg_copies *eg_params_copies(const eg_params *p) { return p ? p->all->copies : NULL; }
/* Memory for the list itself; an error names the parameter later. */
static void *params_memory(eg_params *p, size_t bytes)
{
    return p ? eg_owner_alloc(p->all->owner, bytes) : NULL;
}
void *eg_params_alloc(eg_params *p, size_t bytes)
{
    eg_ctx *cx = eg_params_context(p);
    const bool failed = eg_error(cx);
    void *memory = params_memory(p, bytes);
    if (p && !failed && eg_error_code(cx) == EG_ERROR_MEMORY)
        *p->prefix ? eg_fail_in(cx, "\"%.*s\"", (int)strlen(p->prefix) - 1, p->prefix)
                   : eg_fail_in(cx, "params");
    return memory;
}
eg_owner *eg_params_owner(eg_params *p) { return p ? p->all->owner : NULL; }
int eg_params_count(const eg_params *p) { return p ? p->all->count : 0; }
int64_t eg_params_size(const eg_params *p) { return p ? p->all->numbers : 0; }
const eg_named *eg_params_at(const eg_params *p, int k)
{
    return p && k >= 0 && k < p->all->count ? p->all->item[k] : NULL;
}

static char *params_joined(eg_params *p, const char *name, const char *end)
{
    size_t size = strlen(p->prefix) + strlen(name) + strlen(end) + 1;
    char *text = params_memory(p, size);
    if (text) snprintf(text, size, "%s%s%s", p->prefix, name, end);
    return text;
}

const char *eg_params_prefix(const eg_params *p) { return p ? p->prefix : ""; }
char *eg__nn_name(eg_params *p, const char *name)
{
    return p ? params_joined(p, name ? name : "", "") : NULL;
}

eg_params *eg_params_under(eg_params *p, const char *name)
{
    if (!p || !name || !*name) return p;
    eg_params *in = params_memory(p, sizeof *in);
    char *prefix = in ? params_joined(p, name, ".") : NULL;
    if (!prefix) return NULL;
    *in = (eg_params){ p->all, prefix };
    return in;
}

/* Returns a hash of prefix and name. */
static uint64_t params_hash(const char *prefix, const char *name)
{
    const uint64_t h = eg_hash(eg_hash(EG_HASH_START, prefix, strlen(prefix)), name, strlen(name));
    return h ^ h >> 32;
}

/* Returns the slot of the name in the table, or the free slot for it; NULL if there is no table
 * yet. */
static int *params_slot(const list *all, const char *prefix, const char *name)
{
    size_t first = strlen(prefix), slots = (size_t)all->slots;
    for (size_t at = slots ? params_hash(prefix, name) % slots : 0; slots; at = (at + 1) % slots) {
        const char *full = all->table[at] ? all->item[all->table[at] - 1]->name : NULL;
        if (!full || (!strncmp(full, prefix, first) && !strcmp(full + first, name)))
            return &all->table[at];
    }
    return NULL;
}

static const eg_named *params_find(const list *all, const char *prefix, const char *name)
{
    const int *at = params_slot(all, prefix, name);
    return at && *at ? all->item[*at - 1] : NULL;
}

const eg_named *eg__nn_named(const eg_params *p, const char *full)
{
    return p ? params_find(p->all, "", full) : NULL;
}
void eg__nn_read(eg_params *p) { p->all->expected = NULL; }

bool eg__nn_zero_init(eg_params *p, bool on)
{
    const bool was = p->all->zero_init;
    p->all->zero_init = on;
    return was;
}

eg_tensor *eg__nn_normal(const eg_params *p, eg_tensor *w, double deviation)
{
    if (p->all->zero_init || !eg_ok(w)) return w;
    eg_tensor *drawn = eg_init_normal(w, deviation);
    return eg_ok(drawn) ? drawn : eg_fail_in(eg_context(w), "param \"%s\"", eg_name_of(w));
}

eg_tensor *eg__nn_xavier(const eg_params *p, eg_tensor *w, int64_t fan_in, int64_t fan_out)
{
    return p->all->zero_init ? w : eg_init_xavier(w, fan_in, fan_out);
}

eg_tensor *eg__nn_constant(const eg_params *p, eg_tensor *w, double value)
{
    return p->all->shared || p->all->values ? w : eg_init_constant(w, value);
}

eg_tensor *eg_params_find(const eg_params *p, const char *name)
{
    const eg_named *at = p && name ? params_find(p->all, p->prefix, name) : NULL;
    return at ? at->x : NULL;
}

/* Returns the number of axes that the string names; −1 after an error: it is not one term, or an
 * index occurs twice in it. */
static int params_axes(eg_params *p, const char *name, const char *axes)
{
    eg_ctx *cx = eg_params_context(p);
    char who[160];
    snprintf(who, sizeof who, "param \"%.70s%.70s\"", p->prefix, name);
    eg_mark m = eg_push(cx); /* the spec is needed only to count the axes */
    const eg_spec *s = eg_spec_parse(cx, who, axes);
    if (s && (s->terms != 1 || s->arrow))
        eg_spec_fail(s, EG_ERROR_NOTATION, s->terms - 1, -1, "the axes are one term");
    const bool one = s && s->terms == 1 && !s->arrow;
    const int count = one && eg__nn_indices_differ(s, 0) ? s->term[0].axes : -1;
    eg_pop(cx, m);
    return count;
}

/* Names are unique; list and hash table are doubled when they are full. draws: of the context
 * before x was made. */
static bool params_add(eg_params *p, const char *name, const char *axes, eg_tensor *x,
                       uint64_t draws)
{
    list *all = p->all;
    if (all->count == all->capacity) {
        int capacity = all->capacity ? 2 * all->capacity : 32;
        eg_named **item = params_memory(p, (size_t)capacity * sizeof *item);
        if (!item) return false;
        if (all->count) memcpy(item, all->item, (size_t)all->count * sizeof *item);
        int *table = params_memory(p, 2 * (size_t)capacity * sizeof *table);
        if (!table) return false;
        all->item = item, all->capacity = capacity, all->table = table, all->slots = 2 * capacity;
        for (int k = 0; k < all->count; k++) *params_slot(all, "", item[k]->name) = k + 1;
    }
    listed *one = params_memory(p, sizeof *one);
    char *letters = one ? params_memory(p, strlen(axes) + 1) : NULL,
         *full = letters ? params_joined(p, name, "") : NULL;
    /* a tensor of .values keeps its name; in a block one of the parent may not be given another */
    const bool named = all->values && eg_name_of(x);
    if (!full || (!named && !eg_ok(eg_name(x, full)))) return false;
    memcpy(letters, axes, strlen(axes) + 1);
    *one = (listed){ { full, letters, x }, draws };
    *params_slot(all, "", full) = all->count + 1;
    all->item[all->count++] = &one->named;
    all->numbers += eg_size(x);
    return true;
}

/* A tensor of this context in the memory of x, which belongs to any context: read-only, in the open
 * scope or that of the owner. */
static eg_tensor *params_borrowed(eg_ctx *cx, eg_tensor *x, eg_owner *owner)
{
    int64_t strides[EG_RANK_MAX];
    const void *numbers = eg_raw(x, strides);
    return eg_from_memory(cx, eg_type(x), numbers, eg_rank(x), eg_dims(x), .strides = strides,
                          .owner = owner);
}
/* The parameter of that name among .values, or in the memory of the list that p shares; records an
 * error if there is none, or one of other sizes. */
static eg_tensor *params_given(eg_params *p, const char *name, int rank, const int64_t *dims)
{
    eg_ctx *cx = eg_params_context(p);
    const eg_named *value = p->all->values;
    const char *full = params_joined(p, name, ""),
               *where = value ? ".values" : "the list whose memory is shared";
    if (!full) return NULL;
    while (value && value->name && strcmp(value->name, full) != 0) value++;
    eg_tensor *x = value ? value->x : eg_params_find(p->all->shared, full);
    int k = 0;
    if (value ? !value->name : !x)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "param \"%s\": %s has none of this name", full,
                          where);
    if (!eg_ok(x))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "param \"%s\": its tensor in %s is NULL", full,
                          where);
    if (value && (eg_context(x) != cx || eg_type(x) != params_dtype(p->all, rank)))
        return eg_fail_as(cx, EG_ERROR_DTYPE,
                          "param \"%s\": its tensor in .values is %s and not %s of this context",
                          full, eg_type_name(eg_type(x)), eg_type_name(params_dtype(p->all, rank)));
    if (eg_rank(x) != rank)
        return eg_fail_as(cx, EG_ERROR_SHAPE, "param \"%s\" has rank %d, in %s rank %d", full, rank,
                          where, eg_rank(x));
    while (k < rank && eg_dim(x, k) == dims[k]) k++;
    if (k < rank)
        return eg_fail_as(cx, EG_ERROR_SHAPE, "param \"%s\": axis %d has size %lld, in %s %lld",
                          full, k, (long long)dims[k], where, (long long)eg_dim(x, k));
    return value ? x : params_borrowed(cx, x, p->all->owner);
}

/* Checks name, axes and sizes, then compares with the file that is to be read, before memory is
 * allocated. */
eg_tensor *eg_param_n(eg_params *p, const char *name, const char *axes, int rank,
                      const int64_t *dims)
{
    eg_ctx *cx = eg_params_context(p);
    if (!p || eg_error(cx))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "param: the list of parameters is NULL");
    if (!name || !*name || !axes)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "param: a parameter needs a name and letters");
    if (!strncmp(*p->prefix ? p->prefix : name, "opt.", 4) ||
        (!*p->prefix && !strcmp(name, "__metadata__")))
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "param: the name \"%s%s\" is reserved for other entries of files",
                          p->prefix, name);
    if (params_find(p->all, p->prefix, name))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "param: the name \"%s%s\" is taken", p->prefix,
                          name);
    const int named = params_axes(p, name, axes);
    if (named < 0) return eg__nn_poison(cx);
    if (named != rank)
        return eg_fail_as(cx, EG_ERROR_SHAPE,
                          "param \"%s%s\": \"%s\" names %d ax%s, but %d size%s %s given", p->prefix,
                          name, axes, named, named == 1 ? "is" : "es", rank, rank == 1 ? "" : "s",
                          rank == 1 ? "is" : "are");
    if (rank && !dims)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "param \"%s%s\": the sizes are NULL", p->prefix,
                          name);
    int64_t others = 1;
    for (int k = 0; k < rank; k++) {
        if (dims[k] < 1)
            return eg_fail_as(cx, EG_ERROR_MISUSE,
                              "param \"%s%s\": size %lld of axis %d is not positive", p->prefix,
                              name, (long long)dims[k], k);
        if (k && __builtin_mul_overflow(others, dims[k], &others))
            return eg_fail_as(cx, EG_ERROR_SHAPE,
                              "param \"%s%s\": the sizes up to axis %d make more than 2^63 numbers",
                              p->prefix, name, k);
    }
    if (p->all->expected) {
        char *full = params_joined(p, name, "");
        if (!full ||
            !eg_ok(eg_safetensors_need(p->all->expected, p->all->path, full, full, rank, dims)))
            return eg_fail_as(cx, EG_ERROR_FILE, "param \"%s%s\": the file has no tensor for it",
                              p->prefix, name);
    }
    const uint64_t draws = eg_draws(cx);
    if (p->all->shared || p->all->values) {
        eg_tensor *x = params_given(p, name, rank, dims);
        return eg_ok(x) && params_add(p, name, axes, x, draws)
                   ? x
                   : eg_fail_as(cx, EG_ERROR_MEMORY, "param \"%s%s\": out of memory", p->prefix,
                                name);
    }
    eg_tensor *x =
        eg_owner_copies(p->all->owner, p->all->copies, params_dtype(p->all, rank), rank, dims);
    const bool drawn = rank > 1 && !p->all->zero_init;
    if (eg_ok(x) && (!drawn || eg_ok(eg_init_xavier(x, dims[0], others))) &&
        params_add(p, name, axes, x, draws))
        return x;
    eg_set_draws(cx, draws);
    return eg_fail_in(cx, "param \"%s%s\"", p->prefix, name);
}

/* Returns copy k of x as a tensor in the same memory, which is valid as long as the list; NULL
 * after an error. */
static eg_tensor *params_alias(list *all, eg_tensor *x, int64_t k)
{
    eg_ctx *cx = eg_context(x);
    const eg_mark m = eg_push(cx);
    const bool was = eg_nograd(cx, true);
    const void *data = eg_raw(eg_copy_at(x, k), NULL);
    eg_nograd(cx, was);
    eg_pop(cx, m);
    eg_tensor *y = data ? eg_from_memory(cx, eg_type(x), data, eg_rank(x), eg_dims(x),
                                         .writable = true, .owner = all->owner)
                        : NULL;
    return eg_ok(y) ? y : NULL;
}
/* The list of one copy has tensors of its own in the same memory. The first call makes it, and each
 * call adds those of the parameters that the list of all copies has got since. */
eg_params *eg_params_of_copy(eg_params *p, int64_t k)
{
    list *all = p ? p->all : NULL;
    eg_ctx *cx = eg_params_context(p);
    if (!p || k < 0 || k >= eg_copies_count(all->copies)) {
        eg_fail_as(
            cx, p ? EG_ERROR_INDEX : EG_ERROR_MISUSE,
            p ? "params_of_copy: there is no copy %lld; the parameters have %lld, counted from 0"
              : "params_of_copy: the list of parameters is NULL",
            (long long)k, (long long)(p ? eg_copies_count(all->copies) : 0));
        return NULL;
    }
    if (!all->of_copy[k]) {
        eg_params *one = params_memory(p, sizeof *one);
        list *own = one ? params_memory(p, sizeof *own) : NULL;
        if (!own) return NULL;
        *own = (list){ .owner = all->owner, .dtype = all->dtype, .zero_init = true };
        *one = (eg_params){ own, "" };
        all->of_copy[k] = one;
    }
    eg_params *one = all->of_copy[k];
    for (int n = one->all->count; n < all->count; n++) {
        eg_tensor *x = params_alias(all, all->item[n]->x, k);
        if (!x || !params_add(one, all->item[n]->name, all->item[n]->axes, x, eg_draws(cx)))
            return NULL;
    }
    return one;
}

eg_tensor *eg_constant_n(eg_params *p, int rank, const int64_t *dims)
{
    if (!p) return NULL;
    const bool before = eg_error(eg_params_context(p));
    eg_tensor *x = eg_owner_tensor(p->all->owner, params_dtype(p->all, 0), rank, dims);
    return before || eg_ok(x) ? x : eg_fail_in(eg_params_context(p), "constant");
}

/* -- writing values --------------------------------------------------------------------------- */
void eg__nn_write(eg__nn_writes *w, eg_tensor *to, eg_tensor *value)
{
    if (w->count == w->capacity) {
        const int capacity = w->capacity ? 2 * w->capacity : 32;
        eg_tensor **both =
            w->owner ? eg_owner_alloc(w->owner, 2 * (size_t)capacity * sizeof *both) : NULL;
        if (!both) return; /* the error is recorded */
        if (w->count) {
            memcpy(both, w->to, (size_t)w->count * sizeof *both);
            memcpy(both + capacity, w->value, (size_t)w->count * sizeof *both);
        }
        w->to = both, w->value = both + capacity, w->capacity = capacity;
    }
    w->to[w->count] = to;
    w->value[w->count++] = value;
}
int eg__nn_written(eg_ctx *cx, const eg__nn_writes *w)
{
    if (eg_error(cx)) return -1;
    const bool was = eg_nograd(cx, true);
    const int bad = eg_assign_all(w->count, w->to, w->value);
    eg_nograd(cx, was);
    return bad;
}

int eg_params_copy(eg_params *to, const eg_params *from)
{
    eg_ctx *cx = eg_params_context(to);
    if (eg_refuse_capture(cx, "params_copy") || eg_error(cx)) return -1;
    const eg_mark m = eg_push(cx);
    eg__nn_writes w = { .owner = to ? eg_owner_open(cx) : NULL };
    const size_t above = strlen(eg_params_prefix(to));
    for (int k = 0; k < eg_params_count(to) && !eg_error(cx); k++) {
        const eg_named *one = to->all->item[k];
        if (strncmp(one->name, to->prefix, above)) continue;
        const char *name = one->name + above;
        const eg_named *other = from ? params_find(from->all, from->prefix, name) : NULL;
        if (!other)
            eg_fail_as(cx, EG_ERROR_MISUSE, "params_copy: no parameter \"%s%s\" in the source",
                       eg_params_prefix(from), name);
        else
            eg__nn_write(&w, one->x,
                         eg_context(other->x) == cx ? other->x
                                                    : params_borrowed(cx, other->x, NULL));
    }
    if (above && !w.count)
        eg_fail_as(cx, EG_ERROR_MISUSE, "params_copy: the list has no parameter below \"%.*s\"",
                   (int)above - 1, to->prefix);
    const int bad = eg__nn_written(cx, &w);
    eg_pop(cx, m);
    if (bad) eg_name_memory_error(cx, "params_copy");
    return bad;
}

/* After an error, removes the parameters from number `before` on, and sets the number of the next
 * draw to what it was before them. They are removed from the last one on, since the search for a
 * free slot of the table depends on the names that were added earlier. The tensors' memory belongs
 * to the owner and remains until the list is closed. */
void *eg__nn_made(eg_params *p, int before, void *m)
{
    list *all = p->all;
    if (!eg_error(eg_params_context(p)) && m) return m;
    if (all->count > before) /* the first member of a struct has its address */
        eg_set_draws(eg_params_context(p),
                     ((const listed *)(const void *)all->item[before])->draws);
    while (all->count > before) {
        const eg_named *last = all->item[all->count - 1];
        *params_slot(all, "", last->name) = 0;
        all->numbers -= eg_size(last->x);
        all->item[--all->count] = NULL;
    }
    return NULL;
}
