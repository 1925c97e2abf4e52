/* apply.c: applies an operation to operands. Every result refers to its operation and its operands
 * (unless eg_nograd); these references are the tape. Also the functions by which an operation reads
 * its node: eg_op_of, eg_operand, eg_attr, eg_node_saved. */
#include "tensor/tensor.h"
#include <ctype.h>
#include <string.h>

eg_ctx *eg__context_of(const char *who, int count, eg_tensor *const *xs)
{
    for (int k = 0; xs && k < count; k++)
        if (xs[k] && xs[k]->cx) return eg__here(xs[k]->cx);
    if (xs && count > 0)
        eg_fail_as(NULL, EG_ERROR_MISUSE, "%s: there is no tensor to work on: operand%s NULL", who,
                   count > 1 ? "s are all" : " 1 is");
    else
        eg_fail_as(NULL, EG_ERROR_MISUSE, "%s: there is no tensor to work on: %d operands%s", who,
                   count, count > 0 ? " at NULL" : "");
    return NULL;
}

/* True if x is a tensor of cx or of its parent. */
static bool apply_belongs(const eg_ctx *cx, const eg_tensor *x)
{
    return x->cx == cx || (x->cx && x->cx == cx->parent);
}
/* An operand in messages: "einsum: operand 2", with its number k from 0; or, if k is −1,
 * "attention: .keep", and with a name "attention: 'doc' of .with". */
typedef struct operand_id {
    const char *who;
    int k;
    const char *option, *name;
} operand_id;
typedef struct operand_text {
    char s[120];
} operand_text;
static const char *operand_called(operand_text *text, operand_id id)
{
    if (id.k >= 0)
        snprintf(text->s, sizeof text->s, "%s: operand %d", id.who, id.k + 1);
    else if (id.name)
        snprintf(text->s, sizeof text->s, "%s: '%.40s' of %s", id.who, id.name, id.option);
    else
        snprintf(text->s, sizeof text->s, "%s: %s", id.who, id.option);
    return text->s;
}
static bool refuse_storage(eg_ctx *cx, operand_id id, int dtype)
{
    operand_text text;
    eg_fail_as(cx, EG_ERROR_DTYPE, "%s is %s, which is a storage type; eg_cast it to %s first",
               operand_called(&text, id), eg_type_name((eg_dtype)dtype), eg__cast_first(dtype));
    return false;
}
/* True if x has copies, and not of the group of which cx computes one copy for its parent. */
static bool apply_of_another_group(const eg_ctx *cx, const eg_tensor *x)
{
    return x->copies && x->cx != cx && cx->loans.copies && x->copies != cx->loans.copies;
}
/* True if x can be used in cx; else records an error. A context that has failed refuses every
 * operand and records no further error. */
static bool apply_usable(eg_ctx *cx, operand_id id, const eg_tensor *x)
{
    operand_text text;
    const char *why = NULL;
    if (cx->failed) return false;
    if (!x)
        why = "is NULL";
    else if (x->live != EG_LIVE)
        why = "was used after the scope that held it was popped";
    else if (!eg__storage_lives(x))
        why = "is a view of a tensor whose scope was popped, or whose owner or file was closed";
    else if (!apply_belongs(cx, x))
        why = cx->family && x->cx->family == cx->family ? "belongs to another block"
                                                        : "belongs to another context";
    else if (x->poison)
        why = "is the result of an operation that failed";
    else if (x->captured && !cx->replaying && !cx->aside)
        why = "belongs to a captured step, whose runs write over it; make it an output of the step";
    else if (apply_of_another_group(cx, x)) {
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s has %lld cop%s of another group than the %lld that are computed",
                   operand_called(&text, id), (long long)x->copies->count,
                   x->copies->count == 1 ? "y" : "ies", (long long)cx->loans.copies->count);
        return false;
    }
    if (why) eg_fail_as(cx, EG_ERROR_MISUSE, "%s %s", operand_called(&text, id), why);
    return !why;
}
static bool taken_by(eg_takes takes, int dtype)
{
    return !eg__is_storage(dtype) || takes == EG_TAKES_ALL ||
           (takes == EG_TAKES_HALVES && eg__is_half(dtype));
}
static bool apply_is_plain_operand(const eg_ctx *cx, const eg_tensor *x)
{
    return x && x->live == EG_LIVE && eg__storage_lives(x) && apply_belongs(cx, x) && !x->poison &&
           !x->captured && !eg__is_storage(x->dtype) && !apply_of_another_group(cx, x);
}
static bool read_by(eg_ctx *cx, operand_id id, eg_tensor *x, eg_takes takes)
{
    if (!apply_usable(cx, id, x)) return false;
    if (!taken_by(takes, x->dtype)) return refuse_storage(cx, id, x->dtype);
    if (cx->hooks.operand && x->cx == cx) cx->hooks.operand(cx, x);
    return !cx->failed;
}
bool eg__check_usable(const char *who, eg_tensor *x)
{
    eg_ctx *cx = eg__context_of(who, 1, &x);
    return cx && read_by(cx, (operand_id){ .who = who }, x, EG_TAKES_ALL);
}
bool eg__check(const char *who, eg_tensor *x)
{
    eg_ctx *cx = eg__context_of(who, 1, &x);
    return cx && read_by(cx, (operand_id){ .who = who }, x, EG_TAKES_NUMBERS);
}
bool eg__check_option(eg_ctx *cx, const char *who, const char *option, const char *name,
                      eg_takes takes, eg_tensor *x)
{
    return read_by(cx, (operand_id){ who, -1, option, name }, x, takes);
}
static __attribute__((noinline)) bool check_each(eg_ctx *cx, const char *who, eg_takes takes,
                                                 int count, eg_tensor *const *xs)
{
    for (int k = 0; k < count; k++)
        if (!read_by(cx, (operand_id){ .who = who, .k = k }, xs[k], takes)) return false;
    return true;
}
bool eg__check_taken(eg_ctx *cx, const char *who, eg_takes takes, int count, eg_tensor *const *xs)
{
    bool plain = !cx->failed && !cx->hooks.operand; /* the usual case */
    for (int k = 0; plain && k < count; k++) plain = apply_is_plain_operand(cx, xs[k]);
    return plain || check_each(cx, who, takes, count, xs);
}
bool eg__check_all(eg_ctx *cx, const char *who, int count, eg_tensor *const *xs)
{
    return eg__check_taken(cx, who, EG_TAKES_NUMBERS, count, xs);
}

/* True if each element of y is computed only from the elements of the operands at the same
 * indices. */
static bool apply_by_elements(const eg_tensor *y)
{
    return y->op->forward == eg__lanes_forward || y->op == &eg__add_op || eg__only_moves(y->op);
}
static bool apply_is_complex(const eg_tensor *y)
{
    bool is_complex = false;
    for (int k = 0; k < y->count; k++) is_complex |= y->in[k]->dtype == EG_C128;
    return is_complex;
}
/* forward() of a node with copies: calls the operation's forward() for each copy. */
static bool apply_copies(eg_tensor *y)
{
    return eg__copies_forward(y, apply_is_complex(y) ? y->op->forward_c128 : y->op->forward,
                              apply_by_elements(y));
}
/* Makes y copy k of a node that has been computed. False after an error. */
static bool apply_computed(eg_tensor *y)
{
    const eg_tensor *of = y->cx->computed.of;
    const int64_t k = y->cx->computed.k;
    y->cx->computed.of = NULL;
    return eg__shape_view(y, of, of->rank, of->dim, of->stride,
                          k * of->each / eg__width[of->dtype]);
}
/* Computes y: the operation's shape() sets its sizes, and forward() its elements unless y is a
 * view; forward_c128() if the operands are c128. False after an error. */
EG_INLINE bool apply_made(eg_tensor *y, bool is_complex)
{
    if (y->cx->computed.of) return apply_computed(y);
    bool (*forward)(eg_tensor *) = is_complex ? y->op->forward_c128 : y->op->forward;
    if (y->copies && forward) forward = apply_copies;
    /* a view has the copies of its operand, at the same distance */
    if (y->copies && y->count) y->each = y->in[0]->each;
    if (!y->op->shape) {
        eg_fail_as(y->cx, EG_ERROR_MISUSE, "%s: the operation has no shape()", y->op->name);
        return false;
    }
    if (!y->op->shape(y)) return false;
    if (!y->dtype)
        eg_fail_as(y->cx, EG_ERROR_MISUSE, "%s: its shape() declared no result", y->op->name);
    else if (y->data)
        return true;
    else if (forward)
        return eg__give_storage(y) &&
               (eg__capturing(y->cx) ? eg__capture_op(y, forward) : forward(y));
    else if (is_complex)
        eg_fail_as(y->cx, EG_ERROR_UNSUPPORTED,
                   "%s: it has no forward_c128(), so it cannot be applied to c128", y->op->name);
    else
        eg_fail_as(y->cx, EG_ERROR_MISUSE, "%s: it has no forward(), and its result is not a view",
                   y->op->name);
    return false;
}

eg_tensor *eg_apply(const eg_op *op, const void *attr, size_t attr_size, int count,
                    eg_tensor *const *xs)
{
    eg_ctx *cx = eg__context_of(op && op->name ? op->name : "apply", count, xs);
    if (!cx) return NULL;
    if (!op || !op->name)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "apply: the operation %s",
                          op ? "has no name" : "is NULL");
    if (!eg__check_taken(cx, op->name, EG_TAKES_ALL, count, xs)) return &cx->poison;
    if (op->arity >= 0 && op->arity != count)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: takes %d operand%s, was given %d", op->name,
                          op->arity, op->arity == 1 ? "" : "s", count);
    const eg_switches was = eg__switches_in(cx);
    eg_tensor *y = eg__apply(cx, op, attr, attr_size, NULL, count, xs);
    if (eg__switches_are(cx, was)) return y;
    eg__switches_kept(cx, was, op->name, "its shape() or forward()");
    return &cx->poison;
}
/* Prepends the operation's name to an error that does not begin with it: that of a function which
 * its shape() or forward() called, "f64: the tensor is i64". */
static void prepend_name(eg_ctx *cx, const char *name)
{
    const char *error = eg_error(cx);
    const size_t n = strlen(name);
    if (error && (strncmp(error, name, n) || isalnum((unsigned char)error[n]) || error[n] == '_'))
        eg_fail_in(cx, "%s", name);
}
/* As apply_made, for an operation that forward() of another one applies while it computes one of
 * several copies: this one is applied to that copy alone, with the copy's seed for its draws. */
static bool apply_within_copy(eg_tensor *y, bool is_complex)
{
    eg_ctx *cx = y->cx;
    const eg_copies *const of = cx->copy.of;
    const uint64_t *const seed = cx->copy.seed;
    eg_tensor *const all = cx->copy.all;
    const int64_t k = cx->copy.k;
    cx->copy.seed = &of->seed[k];
    cx->copy.of = NULL;
    cx->copy.all = NULL;
    cx->copy.k = 0;
    const bool ok = apply_made(y, is_complex);
    cx->copy.of = of;
    cx->copy.all = all;
    cx->copy.k = k;
    cx->copy.seed = seed;
    return ok;
}
/* Makes the node: one block for operands, their versions, sizes and the attribute; then calls
 * shape() and forward() of the operation. If the context does not record, the references to
 * operation and operands are removed from the result afterwards. Returns poison after an error. */
eg_tensor *eg__apply(eg_ctx *cx, const eg_op *op, const void *attr, size_t attr_size, void *saved,
                     int count, eg_tensor *const *xs)
{
    int rank = 0; /* the largest */
    bool is_complex = false, copies = false;
    for (int k = 0; k < count; k++) {
        const eg_tensor *x = xs[k];
        if (!taken_by(op->takes, x->dtype) && !eg__only_moves(op))
            return refuse_storage(cx, (operand_id){ .who = op->name, .k = k }, x->dtype),
                   &cx->poison;
        if (x->rank > rank) rank = x->rank;
        is_complex |= x->dtype == EG_C128;
        copies |= x->copies != NULL;
    }
    eg__arena *a = eg__top(cx);
    if (cx->parent && !(xs = eg__own_all(cx, count, xs))) return &cx->poison;
    eg_tensor *y = eg__tensor_in(a);
    if (!y) return eg_name_memory_error(cx, op->name);
    /* reserve as many sizes and strides as the operand with most axes has; give_sizes uses this
     * memory if it suffices */
    const size_t sizes = (size_t)count * (sizeof *y->in + sizeof(uint64_t));
    const size_t at = (sizes + 2 * (size_t)rank * sizeof(int64_t) + 15) & -(size_t)16;
    char *m = eg__alloc_in(a, at + attr_size);
    if (!m) return eg_name_memory_error(cx, op->name);
    y->dim = (int64_t *)(void *)(m + sizes);
    y->rank = (uint8_t)rank;
    y->op = op;
    /* the caller is only needed for results that are recorded or observed */
    if (cx->recording || cx->hooks.result)
        y->caller = cx->rule_node ? cx->rule_node->caller : eg__caller(cx);
    y->count = count;
    y->in = (eg_tensor **)(void *)m;
    for (int k = 0; k < count; k++) {
        y->in[k] = xs[k];
        eg__versions(y)[k] = xs[k]->st->version;
    }
    if (attr && attr_size) {
        y->attr = memcpy(m + at, attr, attr_size);
        y->attr_size = (uint32_t)attr_size;
    }
    y->saved = saved;
    if (copies && !eg__copies_of_all(cx, op->name, count, xs, &y->copies)) return &cx->poison;
    cx->use.nodes++;
    const uint64_t begun = eg__fpmode_begin(cx->flush);
    const bool ok =
        cx->copy.of && !y->copies ? apply_within_copy(y, is_complex) : apply_made(y, is_complex);
    eg__fpmode_end(begun);
    if (!ok || (cx->hooks.result && !cx->hooks.result(y))) {
        y->live = EG_DEAD;
        if (!cx->failed)
            eg_fail_as(cx, EG_ERROR_MISUSE, "%s: failed without recording an error", op->name);
        else if (!ok)
            prepend_name(cx, op->name);
        return &cx->poison;
    }
    y->version = y->st->version;
    y->own.assigned.x = NULL; /* what forward() assigned is the value, not a change of it */
    if (!cx->recording) {
        y->op = NULL;
        y->count = 0;
        y->unrecorded = true;
    }
    if (!cx->recording || !cx->hooks.recorded) return y;
    cx->aside++; /* operations of the check itself are not part of a captured step */
    const bool good = cx->hooks.recorded(y);
    cx->aside--;
    return good ? y : &cx->poison;
}
eg_tensor *eg__apply_copy(const eg_tensor *y, int64_t k, eg_tensor *const *operands)
{
    y->cx->computed.of = y;
    y->cx->computed.k = k;
    eg_tensor *copy =
        eg__apply(y->cx, y->op, y->attr, y->attr_size,
                  y->saved_each ? ((void **)y->saved)[k] : y->saved, y->count, operands);
    y->cx->computed.of = NULL;
    return copy;
}

/* The caller has checked the sizes. */
eg_tensor *eg__new_unrecorded(eg_ctx *cx, eg_dtype dtype, int rank, const int64_t *dims,
                              const int64_t *strides)
{
    eg__arena *a = eg__top(cx);
    eg_tensor *y = eg__tensor_in(a);
    const size_t bytes = (size_t)eg__count(rank, dims) * eg__width[dtype];
    if (!y || !(y->dim = eg__tensor_block(a, rank, bytes, &y->data))) return NULL;
    y->dtype = (uint8_t)dtype;
    y->rank = (uint8_t)rank;
    y->stride = y->dim + rank;
    for (int k = 0; k < rank; k++) {
        y->dim[k] = dims[k];
        y->stride[k] = strides[k];
    }
    y->own.bytes = bytes;
    y->each = (int64_t)bytes;
    y->unrecorded = true;
    cx->use.nodes++;
    return y;
}
bool eg__needs_node(const eg_ctx *cx, int count, eg_tensor *const *xs)
{
    if (cx->recording || cx->capture || cx->parent || cx->flush || cx->hooks.result) return true;
    bool copies = cx->copy.of;
    for (int k = 0; k < count; k++) copies |= xs[k]->copies != NULL;
    return copies;
}

/* Calls t's shape() with x in place of t's operand. For a view it sets data, sizes and strides; for
 * an operation that copies it sets no data. False if t is not a view of x. */
bool eg__view_on(const eg_tensor *t, eg_tensor *x, int64_t *dim, int64_t *stride)
{
    int64_t sizes[2 * EG_RANK_MAX];
    if (!t->op || t->count != 1 || t->st == &t->own) return false;
    eg_tensor from = *x, *in = &from;
    eg_tensor y = { .live = EG_LIVE,
                    .cx = t->cx,
                    .op = t->op,
                    .attr = t->attr,
                    .attr_size = t->attr_size,
                    .count = 1,
                    .in = &in,
                    .dim = sizes,
                    .rank = EG_RANK_MAX,
                    .arena = eg__top(t->cx) };
    if (!t->op->shape(&y) || !y.data) return false; /* without data the operation would copy */
    for (int r = 0; r < y.rank; r++) {
        dim[r] = y.dim[r];
        stride[r] = y.stride[r];
    }
    x->data = y.data;
    x->rank = y.rank;
    x->dim = dim;
    x->stride = stride;
    return true;
}

eg_tensor *eg_operand(const eg_tensor *y, int i)
{
    return y && i >= 0 && i < y->count ? y->in[i] : NULL;
}
int eg_operands(const eg_tensor *y) { return y ? y->count : 0; }
const void *eg_attr(const eg_tensor *y) { return y ? y->attr : NULL; }
void *eg__node_save(eg_tensor *y, size_t bytes)
{
    y->saved = eg__alloc_in(y->arena, bytes ? bytes : 1);
    return y->saved ? memset(y->saved, 0, bytes) : NULL;
}
/* The memory of eg_node_save follows its number of bytes. */
typedef struct node_memory {
    _Alignas(EG_ALIGN) size_t bytes;
} node_memory;
void *eg_node_save(eg_tensor *y, size_t bytes)
{
    if (!eg_ok(y)) return NULL;
    y->saved = NULL;
    y->saved_each = false;
    const size_t most = SIZE_MAX - sizeof(node_memory);
    node_memory *m = eg__node_save(y, sizeof *m + (bytes < most ? bytes : most));
    if (!m) return NULL;
    m->bytes = bytes;
    y->saves = true;
    return y->saved = m + 1;
}
void *eg__node_save_again(eg_tensor *y, const void *saved)
{
    const size_t bytes = ((const node_memory *)saved)[-1].bytes;
    void *again = eg_node_save(y, bytes);
    return again ? memcpy(again, saved, bytes) : NULL;
}
void *eg_node_saved(const eg_tensor *y)
{
    return !y ? NULL : y->saved_each ? ((void **)y->saved)[0] : y->saved;
}
const eg_op *eg_op_of(const eg_tensor *y) { return y ? y->op : NULL; }
