/* cache.c: keys and values of earlier positions, and states of recurrences. The tensors of a slot
 * with keys have memory for all positions from the start, so that appending copies only the new
 * ones. */
#include <eingrad/copies.h>
#include <eingrad/grad.h>
#include "nn.h"

/* Keys and values of one attention, or the state of one recurrence. */
enum { STATE = -1 };
typedef struct slot {
    eg_tensor *k, *v; /* NULL: nothing was appended yet. A state is in k */
    int axis;         /* the axis of positions; 0: there is no batch axis; STATE: k is a state */
    int64_t taken;    /* number of positions in use */
    int64_t seen;     /* number of positions appended: those in use, and those that eg_cache_keep
                       * dropped. It is the position of the next token */
    int64_t rows;     /* number of batches in use, of the first axis */
    bool memory;      /* keys and values of an encoder, which are stored once and do not change */
} slot;
struct eg_cache {
    eg_owner *owner;
    int64_t capacity;
    eg_dtype dtype; /* of keys and values; EG_DEFAULT: theirs */
    int slots;
    slot *slot;
};

static eg_ctx *context(const eg_cache *c) { return c ? eg_owner_context(c->owner) : NULL; }
/* True if the cache is there and its context has no error; else records that it is NULL. */
static bool cache_there(const eg_cache *c)
{
    if (!c) eg_fail_as(NULL, EG_ERROR_MISUSE, "cache: it is NULL");
    return c && !eg_error(context(c));
}
/* True if the cache and a tensor, which the message calls `what`, are there; else records an
 * error. */
static bool cache_given(const eg_cache *c, const char *what, eg_tensor *x)
{
    if (c && !eg_ok(x))
        eg_fail_as(context(c), EG_ERROR_MISUSE, "cache: %s is %s", what,
                   x ? "failed or gone with its scope" : "NULL");
    return cache_there(c);
}
static const slot *cache_used(const eg_cache *c, int k)
{
    return c && k >= 0 && k < c->slots && c->slot[k].k ? c->slot + k : NULL;
}

eg_cache *eg_cache_new_with(const eg_cache_args *given)
{
    OPTIONS(eg_cache_args, o, given);
    if (!o->owner) return eg_fail_as(NULL, EG_ERROR_MISUSE, "cache: the owner is NULL"), NULL;
    eg_ctx *cx = eg_owner_context(o->owner);
    if (eg_error(cx)) return NULL;
    if (o->capacity < 1)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "cache: the capacity must be positive, not %lld",
                          (long long)o->capacity),
               NULL;
    if (o->dtype && o->dtype != EG_F32 && o->dtype != EG_F64 && o->dtype != EG_F16 &&
        o->dtype != EG_BF16)
        return eg_fail_as(cx, EG_ERROR_DTYPE,
                          "cache: .dtype is %s; it must be f32, f64, f16 or bf16",
                          eg_type_name(o->dtype)),
               NULL;
    eg_cache *c = eg_owner_alloc(o->owner, sizeof *c);
    if (c)
        *c = (eg_cache){ .owner = o->owner, .capacity = o->capacity, .dtype = o->dtype };
    else
        eg_name_memory_error(cx, "cache");
    return c;
}

int64_t eg_cache_capacity(const eg_cache *c) { return c ? c->capacity : 0; }
int64_t eg_cache_length(const eg_cache *c) { return eg__cache_taken(c, 0); }
int64_t eg_cache_position(const eg_cache *c) { return eg__cache_position(c, 0); }
int64_t eg__cache_taken(const eg_cache *c, int k)
{
    return cache_used(c, k) ? c->slot[k].taken : 0;
}
int64_t eg__cache_position(const eg_cache *c, int k)
{
    return cache_used(c, k) ? c->slot[k].seen : 0;
}
bool eg__cache_filled(const eg_cache *c, int k) { return eg__cache_taken(c, k) > 0; }

/* Removes the last positions of a slot, so that the next one is `position`. It remains that of the
 * next token if all positions that eg_cache_keep left are removed. */
static void cache_cut(slot *s, int64_t position)
{
    const int64_t more = s->seen - position;
    if (more <= 0) return;
    s->taken = more < s->taken ? s->taken - more : 0;
    s->seen = position;
}
int eg_cache_truncate(eg_cache *c, int64_t length)
{
    if (!cache_there(c)) return -1;
    if (length < 0 || length > eg_cache_length(c)) {
        eg_fail_as(context(c), EG_ERROR_MISUSE, "cache: cut to %lld position%s, but it holds %lld",
                   (long long)length, length == 1 ? "" : "s", (long long)eg_cache_length(c));
        return -1;
    }
    const int64_t next = length ? eg_cache_position(c) - (eg_cache_length(c) - length) : 0;
    for (int k = 0; k < c->slots && length; k++)
        if (c->slot[k].axis == STATE && c->slot[k].taken > next) {
            eg_fail_as(context(c), EG_ERROR_MISUSE,
                       "cache: slot %d holds the state after %lld positions, which cannot be cut "
                       "to %lld",
                       k, (long long)c->slot[k].taken, (long long)next);
            return -1;
        }
    for (int k = 0; k < c->slots; k++)
        if (!length)
            c->slot[k].taken = c->slot[k].seen = 0;
        else if (!c->slot[k].memory)
            cache_cut(c->slot + k, next);
    return 0;
}

static eg_tensor *cache_made(eg_cache *c, const eg_tensor *like, int axis, int64_t capacity,
                             int64_t rows)
{
    int64_t dims[EG_RANK_MAX];
    for (int k = 0; k < eg_rank(like); k++)
        dims[k] = k == axis ? capacity : k == 0 ? rows : eg_dim(like, k);
    return eg_owner_tensor(c->owner, axis == STATE || !c->dtype ? eg_type(like) : c->dtype,
                           eg_rank(like), dims);
}

/* Returns a view of the batches in use and of positions [from, to). */
static eg_tensor *cache_part(const slot *s, eg_tensor *x, int64_t from, int64_t to)
{
    if (s->axis == STATE) return eg_slice_axis(x, 0, 0, s->rows, 1);
    return eg_slice_axis(s->axis ? eg_slice_axis(x, 0, 0, s->rows, 1) : x, s->axis, from, to, 1);
}

/* True if x has no copies; else records an error. what: the words after `who` in the message, "the
 * new keys have". */
static bool cache_single(const eg_cache *c, const eg_tensor *x, const char *who, const char *what)
{
    const int64_t copies = eg_copies_count(eg_copies_of(x));
    if (copies)
        eg_fail_as(context(c), EG_ERROR_UNSUPPORTED, "%s%s %lld cop%s, but a cache has none", who,
                   what, (long long)copies, copies == 1 ? "y" : "ies");
    return !copies;
}

/* -- other batches or positions --------------------------------------------------------------- */
/* What a slot becomes: *fresh is the slot, and is changed; copies of elements are added to w. */
typedef void cache_pick(eg_cache *, int k, eg_tensor *index, slot *fresh, eg__nn_writes *w);
/* Applies `pick` to the slots in [from, to) that are in use. All of them change, or none. */
static int cache_picked(eg_cache *c, int from, int to, eg_tensor *index, cache_pick *pick)
{
    eg_ctx *cx = context(c);
    const eg_mark m = eg_push(cx);
    const bool was = eg_nograd(cx, true);
    eg__nn_writes w = { .owner = eg_owner_open(cx) };
    slot *fresh = w.owner ? eg_owner_alloc(w.owner, (size_t)c->slots * sizeof *fresh) : NULL;
    if (fresh && c->slots) memcpy(fresh, c->slot, (size_t)c->slots * sizeof *fresh);
    for (int k = from; fresh && k < to && !eg_error(cx); k++)
        if (cache_used(c, k) && c->slot[k].taken) pick(c, k, index, fresh + k, &w);
    const int bad = fresh && !w.count ? 0 : eg__nn_written(cx, &w);
    if (!bad && !eg_error(cx) && c->slots) memcpy(c->slot, fresh, (size_t)c->slots * sizeof *fresh);
    eg_nograd(cx, was);
    eg_pop(cx, m);
    return bad || eg_error(cx) ? -1 : 0;
}

/* True if all numbers are integers from 0 to held − 1, the batches or positions of slot k; else
 * records an error that calls one of them `what`, to be kept or selected as `verb` says. */
static bool cache_has(const eg_cache *c, int k, eg_tensor *numbers, const char *what,
                      const char *verb, int64_t held)
{
    eg_ctx *cx = context(c);
    if (!cache_single(c, numbers, "cache: ", "the numbers have")) return false;
    if (eg_type(numbers) != EG_I64 && eg_type(numbers) != EG_I32) {
        eg_fail_as(cx, EG_ERROR_DTYPE, "cache: a %s to %s is i32 or i64, not %s", what, verb,
                   eg_type_name(eg_type(numbers)));
        return false;
    }
    const double least = eg_item(eg_min(NULL, numbers)), most = eg_item(eg_max(NULL, numbers));
    if (least < 0 || most >= (double)held)
        eg_fail_as(cx, EG_ERROR_INDEX, "cache: %s %.0f to %s, but slot %d holds %lld (0 to %lld)",
                   what, least < 0 ? least : most, verb, k, (long long)held, (long long)held - 1);
    return !eg_error(cx);
}
/* Batch b of the slot becomes the former batch index[b]. If memory for more batches is needed, it
 * is at least doubled: the owner frees nothing before it is closed, so it holds at most three times
 * what is needed. */
static void cache_pick_batches(eg_cache *c, int k, eg_tensor *index, slot *fresh, eg__nn_writes *w)
{
    const slot *s = c->slot + k;
    if (!s->axis) {
        eg_fail_as(context(c), EG_ERROR_MISUSE,
                   "cache: its keys have no batch that could be picked; they come from the layout "
                   "of one sequence");
        return;
    }
    if (!cache_has(c, k, index, "batch", "select", s->rows)) return;
    const int64_t rows = eg_dim(index, 0), held = eg_dim(s->k, 0);
    const int64_t capacity = rows <= held ? held : rows < 2 * held ? 2 * held : rows;
    fresh->rows = rows;
    for (int part = 0; part < 2; part++) {
        eg_tensor *old = part ? s->v : s->k, **now = part ? &fresh->v : &fresh->k;
        if (!old) continue; /* a state has no v */
        eg_tensor *picked = eg_at("[b] ..., c -> c ...", cache_part(s, old, 0, s->taken), index);
        if (capacity > held)
            *now =
                cache_made(c, old, s->axis, s->axis == STATE ? 0 : eg_dim(old, s->axis), capacity);
        eg__nn_write(w, cache_part(fresh, *now, 0, s->taken), picked);
    }
}
int eg_cache_select(eg_cache *c, eg_tensor *index)
{
    eg_ctx *cx = context(c);
    if (!cache_given(c, "the index", index)) return -1;
    if (eg_rank(index) == 1 && eg_size(index) > 0)
        return cache_picked(c, 0, c->slots, index, cache_pick_batches);
    eg_fail_as(cx, EG_ERROR_SHAPE,
               "cache: the index must have one axis and at least one element, but has %d ax%s and "
               "%lld element%s",
               eg_rank(index), eg_rank(index) == 1 ? "is" : "es", (long long)eg_size(index),
               eg_size(index) == 1 ? "" : "s");
    return -1;
}

/* Returns the axis of heads of keys with four axes: neither batch, nor positions, nor the last. */
static int heads_axis(const slot *s) { return s->axis == 1 ? 2 : 1; }
/* Writes the letters of the axes of keys, of the positions that are kept, and of the result:
 * "a b [c] d, a b z -> a b z d" for positions of each batch and head. */
static void keep_spec(const slot *s, int each, char out[160])
{
    const int rank = eg_rank(s->k);
    char keys[64] = "", index[16] = "", kept[64] = "";
    for (int axis = 0; axis < rank; axis++) {
        const char letter = (char)('a' + axis), at = axis == s->axis;
        snprintf(keys + strlen(keys), sizeof keys - strlen(keys), at ? "[%c] " : "%c ", letter);
        snprintf(kept + strlen(kept), sizeof kept - strlen(kept), "%c ", at ? 'z' : letter);
    }
    if (each > 0) strcat(index, "a ");
    if (each > 1) snprintf(index + 2, sizeof index - 2, "%c ", 'a' + heads_axis(s));
    snprintf(out, 160, "%s, %sz -> %s", keys, index, kept);
}
/* True if positions of `each` leading axes (batch, heads) are for this slot, and no more than it
 * holds; else records an error. */
static bool keep_fits(const eg_cache *c, int k, eg_tensor *positions)
{
    const slot *s = c->slot + k;
    const int each = eg_rank(positions) - 1;
    const int64_t n = eg_dim(positions, each);
    if (each > 0 && (s->axis < 1 || (each > 1 && eg_rank(s->k) != 4)))
        eg_fail_as(context(c), EG_ERROR_SHAPE,
                   "cache: positions of each %s, but slot %d holds keys without such an axis",
                   each > 1 ? "batch and head" : "batch", k);
    else if (each > 0 && eg_dim(positions, 0) != s->rows)
        eg_fail_as(context(c), EG_ERROR_SHAPE,
                   "cache: positions of %lld batch%s, but slot %d holds %lld",
                   (long long)eg_dim(positions, 0), eg_dim(positions, 0) == 1 ? "" : "es", k,
                   (long long)s->rows);
    else if (each > 1 && eg_dim(positions, 1) != eg_dim(s->k, heads_axis(s)))
        eg_fail_as(context(c), EG_ERROR_SHAPE,
                   "cache: positions of %lld head%s, but slot %d holds %lld",
                   (long long)eg_dim(positions, 1), eg_dim(positions, 1) == 1 ? "" : "s", k,
                   (long long)eg_dim(s->k, heads_axis(s)));
    else if (n > s->taken)
        eg_fail_as(context(c), EG_ERROR_SHAPE,
                   "cache: %lld positions to keep, but slot %d holds %lld", (long long)n, k,
                   (long long)s->taken);
    else
        return cache_has(c, k, positions, "position", "keep", s->taken);
    return false;
}
static void cache_pick_positions(eg_cache *c, int k, eg_tensor *positions, slot *fresh,
                                 eg__nn_writes *w)
{
    const slot *s = c->slot + k;
    char spec[160];
    if (s->memory || s->axis == STATE || !keep_fits(c, k, positions)) return;
    fresh->taken = eg_dim(positions, eg_rank(positions) - 1);
    keep_spec(s, eg_rank(positions) - 1, spec);
    for (int part = 0; part < 2; part++) {
        eg_tensor *x = part ? s->v : s->k;
        eg__nn_write(w, cache_part(fresh, x, 0, fresh->taken),
                     eg_at(spec, cache_part(s, x, 0, s->taken), positions));
    }
}
int eg_cache_keep(eg_cache *c, int k, eg_tensor *positions)
{
    eg_ctx *cx = context(c);
    if (!cache_given(c, "the tensor of positions", positions)) return -1;
    const int rank = eg_rank(positions);
    if (rank < 1 || rank > 3 || eg_size(positions) < 1)
        eg_fail_as(cx, EG_ERROR_SHAPE,
                   "cache: the positions to keep have %d ax%s and %lld element%s; their axes must "
                   "be n, batch n, or batch heads n, with at least one element",
                   rank, rank == 1 ? "is" : "es", (long long)eg_size(positions),
                   eg_size(positions) == 1 ? "" : "s");
    else if (k >= 0 && !eg__cache_filled(c, k))
        eg_fail_as(cx, EG_ERROR_MISUSE, "cache: slot %d holds no positions", k);
    else if (k >= 0 && (c->slot[k].memory || c->slot[k].axis == STATE))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "cache: slot %d holds %s, of which no positions can be kept", k,
                   c->slot[k].memory ? "a memory" : "a state");
    else
        return cache_picked(c, k < 0 ? 0 : k, k < 0 ? c->slots : k + 1, positions,
                            cache_pick_positions);
    return -1;
}

static slot *cache_at(eg_cache *c, int k)
{
    if (k >= c->slots) {
        int count = k < 16 ? 32 : 2 * k;
        slot *more = eg_owner_alloc(c->owner, (size_t)count * sizeof *more);
        if (!more) return NULL;
        if (c->slots) memcpy(more, c->slot, (size_t)c->slots * sizeof *more);
        c->slot = more;
        c->slots = count;
    }
    return c->slot + k;
}

/* True if x has the sizes of the slot's tensor, except for the number of positions; else records an
 * error. */
static bool cache_fits(eg_cache *c, const eg_tensor *x, const eg_tensor *held, int axis,
                       int64_t rows)
{
    for (int k = 0; k < eg_rank(held); k++)
        if (k != axis &&
            (eg_rank(x) != eg_rank(held) || eg_dim(x, k) != (k ? eg_dim(held, k) : rows))) {
            eg_fail_as(
                context(c), EG_ERROR_SHAPE, "%s is %lld in the cache but %lld in the new keys",
                k < axis ? "the batch" : "the heads' size", (long long)(k ? eg_dim(held, k) : rows),
                (long long)(eg_rank(x) == eg_rank(held) ? eg_dim(x, k) : 0));
            return false;
        }
    return true;
}

/* True if the cache may be written to: it keeps no history and cannot be captured; else records an
 * error. */
static bool cache_writable(eg_cache *c, int k)
{
    eg_ctx *cx = context(c);
    const bool recording = !eg_nograd(cx, true);
    eg_nograd(cx, !recording);
    if (recording)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "a cache keeps no history, so it needs eg_nograd"),
               false;
    if (k < 0 || k > 1 << 20)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "the cache has no slot %d", k), false;
    return !eg_refuse_capture(cx, "cache");
}

/* Copies x, in the cache's dtype, to a part of it. False after an error. */
static bool cache_stored(eg_tensor *part, eg_tensor *x)
{
    return !eg_assign(part, eg_cast(x, eg_type(part)));
}
/* Appends to slot k, s. Its tensors are allocated with its first keys, and again if the memory's
 * length or the number of batches grows. False after an error: the slot is then as before. */
static bool cache_appended(eg_cache *c, int k, slot *s, bool memory, int axis, eg_tensor *key,
                           eg_tensor *value)
{
    eg_ctx *cx = context(c);
    if (!eg_ok(key) || !eg_ok(value) || !cache_single(c, key, "", "the new keys have") ||
        !cache_single(c, value, "", "the new values have"))
        return false;
    slot now = *s;
    int64_t more = eg_dim(key, axis), capacity = memory ? more : c->capacity, rows = eg_dim(key, 0);
    if (!s->k || (memory && eg_dim(s->k, axis) != more) ||
        (!s->taken && axis && rows > eg_dim(s->k, 0))) {
        now = (slot){ cache_made(c, key, axis, capacity, rows),
                      cache_made(c, value, axis, capacity, rows),
                      axis,
                      0,
                      s->seen,
                      rows,
                      memory };
        if (!eg_ok(now.k) || !eg_ok(now.v)) return false;
    }
    if (now.memory != memory)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "slot %d of the cache holds %s", k,
                          now.memory ? "a memory" : "positions, no memory"),
               false;
    if (!now.taken && axis) now.rows = rows;
    capacity = eg_dim(now.k, axis);
    if (!cache_fits(c, key, now.k, axis, now.rows) || !cache_fits(c, value, now.v, axis, now.rows))
        return false;
    if (more > capacity - now.taken)
        return eg_fail_as(
                   cx, EG_ERROR_MISUSE,
                   "the cache has room for %lld position%s; it holds %lld, and %lld more came",
                   (long long)capacity, capacity == 1 ? "" : "s", (long long)now.taken,
                   (long long)more),
               false;
    if (!cache_stored(cache_part(&now, now.k, now.taken, now.taken + more), key) ||
        !cache_stored(cache_part(&now, now.v, now.taken, now.taken + more), value))
        return false;
    now.taken += more;
    now.seen += more;
    *s = now;
    return true;
}
bool eg__cache_append(eg_cache *c, int k, bool memory, int axis, eg_tensor **key, eg_tensor **value)
{
    eg_ctx *cx = context(c);
    slot *s = cache_writable(c, k) ? cache_at(c, k) : NULL;
    if (!s) return false;
    if (s->axis == STATE)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "slot %d of the cache holds a state, no keys", k),
               false;
    if (*key && !cache_appended(c, k, s, memory, axis, *key, *value)) return false;
    *key = cache_part(s, s->k, 0, s->taken);
    *value = cache_part(s, s->v, 0, s->taken);
    return true;
}

/* True if k and v are tensors whose axis `axis` has as many positions in both, and if that is the
 * axis of the slot; else records an error. */
static bool cache_takes_keys(eg_cache *c, int at, int axis, eg_tensor *k, eg_tensor *v)
{
    const slot *s = cache_used(c, at);
    if (!cache_given(c, "the tensor of keys", k) || !cache_given(c, "the tensor of values", v))
        return false;
    if (axis < 0 || axis >= eg_rank(k) || axis >= eg_rank(v))
        eg_fail_as(context(c), EG_ERROR_INDEX,
                   "cache: axis %d is not one of the keys and values, which have %d and %d axes",
                   axis, eg_rank(k), eg_rank(v));
    else if (eg_dim(k, axis) != eg_dim(v, axis))
        eg_fail_as(context(c), EG_ERROR_SHAPE,
                   "cache: axis %d is %lld in the keys but %lld in the values", axis,
                   (long long)eg_dim(k, axis), (long long)eg_dim(v, axis));
    else if (s && s->axis != STATE && s->axis != axis)
        eg_fail_as(context(c), EG_ERROR_SHAPE,
                   "cache: slot %d has positions along axis %d, not along axis %d", at, s->axis,
                   axis);
    return !eg_error(context(c));
}
int eg_cache_append(eg_cache *c, int at, int axis, eg_tensor **k, eg_tensor **v)
{
    const int positions = axis < 0 && k && *k ? axis + eg_rank(*k) : axis;
    if (!k || !v) return cache_given(c, "a pointer to keys and values", NULL), -1;
    if (!cache_takes_keys(c, at, positions, *k, *v)) return -1;
    if (eg__cache_append(c, at, false, positions, k, v)) return 0;
    eg_fail_in(context(c), "cache");
    return -1;
}

eg_tensor *eg__cache_roll_back(eg_cache *c, eg_tensor *y, int first, int step, int64_t count,
                               int64_t seen)
{
    for (int64_t k = 0; k < count && !eg_ok(y); k++) {
        const int64_t n = first + step * k;
        if (!c || n < 0 || n >= c->slots) break;
        slot *s = c->slot + n;
        if (s->axis != STATE) cache_cut(s, seen);
    }
    return y;
}

/* -- states of recurrences -------------------------------------------------------------------- */
eg_tensor *eg_cache_state(eg_cache *c, int k)
{
    const slot *s = cache_used(c, k);
    return s && s->axis == STATE && s->taken ? cache_part(s, s->k, 0, 0) : NULL;
}

/* True if x may be a state after `length` positions in the slot; else records an error. */
static bool cache_takes_state(eg_cache *c, int k, const slot *s, eg_tensor *x, int64_t length)
{
    eg_ctx *cx = context(c);
    if (!cache_single(c, x, "cache: ", "the state has")) return false;
    if (s->k && s->axis != STATE)
        eg_fail_as(cx, EG_ERROR_MISUSE, "slot %d of the cache holds keys, no state", k);
    else if (length < 1 || length > c->capacity)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "cache: a state after %lld position%s, but the capacity is %lld",
                   (long long)length, length == 1 ? "" : "s", (long long)c->capacity);
    else if (eg_rank(x) < 1 || eg_dim(x, 0) < 1)
        eg_fail_as(cx, EG_ERROR_SHAPE, "cache: the first axis of a state is the batch, but it %s",
                   eg_rank(x) ? "has 0 elements" : "has no axes");
    else if (s->taken && (eg_type(x) != eg_type(s->k) || eg_rank(x) != eg_rank(s->k)))
        eg_fail_as(cx, eg_type(x) == eg_type(s->k) ? EG_ERROR_SHAPE : EG_ERROR_DTYPE,
                   "cache: the state of slot %d has %d axes of %s, but the new one has %d of %s", k,
                   eg_rank(s->k), eg_type_name(eg_type(s->k)), eg_rank(x),
                   eg_type_name(eg_type(x)));
    for (int axis = 0; s->taken && !eg_error(cx) && axis < eg_rank(x); axis++) {
        const int64_t held = axis ? eg_dim(s->k, axis) : s->rows;
        if (eg_dim(x, axis) != held)
            eg_fail_as(cx, EG_ERROR_SHAPE,
                       "cache: axis %d of the state of slot %d is %lld, but %lld in the new one",
                       axis, k, (long long)held, (long long)eg_dim(x, axis));
    }
    return !eg_error(cx);
}
/* True if the memory of the slot's last state can hold x. */
static bool cache_has_room(const slot *s, eg_tensor *x)
{
    if (!s->k || eg_type(s->k) != eg_type(x) || eg_rank(s->k) != eg_rank(x)) return false;
    for (int axis = 1; axis < eg_rank(x); axis++)
        if (eg_dim(s->k, axis) != eg_dim(x, axis)) return false;
    return eg_dim(x, 0) <= eg_dim(s->k, 0);
}
int eg_cache_set_state(eg_cache *c, int k, eg_tensor *x, int64_t length)
{
    slot *s = cache_given(c, "the state", x) && cache_writable(c, k) ? cache_at(c, k) : NULL;
    if (!s || !cache_takes_state(c, k, s, x, length)) return -1;
    slot fresh = { s->k, NULL, STATE, length, length, eg_dim(x, 0), false };
    if (!cache_has_room(s, x)) fresh.k = cache_made(c, x, STATE, 0, fresh.rows);
    if (eg_assign(cache_part(&fresh, fresh.k, 0, 0), x)) return -1;
    *s = fresh;
    return 0;
}
