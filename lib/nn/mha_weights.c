/* mha_weights.c: the logical weights of an attention module, which do not depend on the form in
 * which they are stored; copying them to a module of another form. */
#include "nn.h"

const char *eg__mha_which(int part, bool bias)
{
    static const char *const names[2][4] = { { "W_q", "W_k", "W_v", "W_o" },
                                             { "b_q", "b_k", "b_v", "b_o" } };
    return names[bias][part];
}

eg_tensor *eg__mha_part(const eg_mha *m, int part, bool bias)
{
    eg_tensor *const one[2][4] = { { m->W_q, m->W_k, m->W_v, m->W_o },
                                   { m->b_q, m->b_k, m->b_v, m->b_o } };
    if (one[bias][part]) return one[bias][part];
    if (m->form == EG_PACKED && part != EG_O) {
        eg_tensor *all = bias ? m->b_qkv : m->W_qkv;
        return all ? eg_select_axis(all, bias ? 0 : 1, part) : NULL;
    }
    eg_tensor *const *each = !bias ? m->W_each[part] : part != EG_O ? m->b_each[part] : NULL;
    int axis = bias || part == EG_O ? 0 : 1;
    return !each         ? NULL
           : m->d_k_each ? eg_concat_axis_n(axis, (int)m->heads, each)
                         : eg_stack_axis_n(axis, (int)m->heads, each);
}

static bool mha_find(const char *which, int *part, bool *bias)
{
    for (int k = 0; which && k < 8; k++)
        if (!strcmp(which, eg__mha_which(k % 4, k > 3))) return *part = k % 4, *bias = k > 3, true;
    return false;
}

eg_tensor *eg_mha_weight(const eg_mha *m, const char *which)
{
    int part;
    bool bias;
    return m && mha_find(which, &part, &bias) ? eg__mha_part(m, part, bias) : NULL;
}

/* Sets *xs to the tensors that hold a part of the weights. Returns their number: none, one, or one
 * for each head. */
static int holders(eg_mha *m, int part, bool bias, eg_tensor **one, eg_tensor *const **xs)
{
    eg_tensor *const *each = !bias ? m->W_each[part] : part != EG_O ? m->b_each[part] : NULL;
    if (each) return *xs = each, (int)m->heads;
    *one = eg__mha_part(m, part, bias);
    return *xs = one, *one ? 1 : 0;
}

/* Adds to w that x is written to the tensors that hold a part of the weights. */
static void mha_put(eg_mha *to, int part, bool bias, eg_tensor *x, eg__nn_writes *w)
{
    eg_tensor *one, *const *xs;
    const int count = holders(to, part, bias, &one, &xs);
    int64_t at = 0;
    for (int h = 0; h < count; h++) {
        int axis = bias || part == EG_O ? 0 : 1;
        eg_tensor *piece = x;
        if (to->d_k_each && xs != &one) {
            piece = eg_slice_axis(x, axis, at, at + eg_dim(xs[h], axis), 1);
            at += eg_dim(xs[h], axis);
        } else if (xs != &one)
            piece = eg_select_axis(x, axis, h);
        eg__nn_write(w, xs[h], piece);
    }
}

/* Returns the k-th parameter that is the same in every form of the weights; NULL if there is
 * none. */
enum { ADDED = 8 };
static eg_tensor *mha_added_at(const eg_mha *m, int k, const char **name)
{
    static const char *const names[ADDED] = { "norm_q.gain", "norm_k.gain", "norm_q.bias",
                                              "norm_k.bias", "bias_k",      "bias_v",
                                              "sink",        "temperature" };
    eg_tensor *const all[ADDED] = { m->norm_q ? m->norm_q->gain : NULL,
                                    m->norm_k ? m->norm_k->gain : NULL,
                                    m->norm_q ? m->norm_q->bias : NULL,
                                    m->norm_k ? m->norm_k->bias : NULL,
                                    m->bias_k,
                                    m->bias_v,
                                    m->sink,
                                    m->temperature };
    *name = names[k];
    return all[k];
}

/* True if both modules have the parameter, or neither; else records an error. */
static bool mha_both(eg_ctx *cx, const eg_mha *to, const eg_mha *from, const char *name,
                     const eg_tensor *y, const eg_tensor *x)
{
    if (!x == !y) return true;
    return eg_fail_as(cx, EG_ERROR_MISUSE, "mha_copy: \"%s\" has %s %s, \"%s\" has %s", to->name,
                      y ? "a" : "no", name, from->name, x ? "one" : "none"),
           false;
}

/* Sizes must agree; then the logical weights are copied, so that the two modules may have different
 * forms of weights. */
int eg_mha_copy(eg_mha *to, const eg_mha *from)
{
    const eg_mha *const there = to ? to : from;
    eg_ctx *cx = there ? eg_context(there->W_o ? there->W_o : there->W_each[EG_O][0]) : NULL;
    if (!to || !from) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "mha_copy: the module to copy %s is NULL",
                   to ? "from" : "to");
        return -1;
    }
    const struct {
        const char *name;
        int64_t to, from;
    } same[] = {
        { "heads", to->heads, from->heads }, { "kv_heads", to->kv_heads, from->kv_heads },
        { "d_k", to->d_k, from->d_k },       { "d_v", to->d_v, from->d_v },
        { "qdim", to->qdim, from->qdim },    { "kdim", to->kdim, from->kdim },
        { "vdim", to->vdim, from->vdim },    { "d_out", to->d_out, from->d_out },
    };
    for (size_t k = 0; k < sizeof same / sizeof *same; k++)
        if (same[k].to != same[k].from) {
            eg_fail_as(cx, EG_ERROR_SHAPE, "mha_copy: %s is %lld in \"%s\" but %lld in \"%s\"",
                       same[k].name, (long long)same[k].to, to->name, (long long)same[k].from,
                       from->name);
            return -1;
        }
    for (int64_t h = 0; h < to->heads; h++) {
        if (!to->d_k_each && !from->d_k_each) break;
        if (to->d_k_each && from->d_k_each && to->d_k_each[h] == from->d_k_each[h] &&
            to->d_v_each[h] == from->d_v_each[h])
            continue;
        eg_fail_as(cx, EG_ERROR_SHAPE,
                   "mha_copy: head %lld does not have the same width in \"%s\" and \"%s\"",
                   (long long)h, to->name, from->name);
        return -1;
    }
    if (eg_refuse_capture(cx, "mha_copy")) return -1;
    eg_mark mark = eg_push(cx);
    bool was = eg_nograd(cx, true);
    eg__nn_writes w = { .owner = eg_owner_open(cx) };
    for (int k = 0; k < 8 && !eg_error(cx); k++) {
        eg_tensor *x = eg__mha_part(from, k % 4, k > 3), *y = eg__mha_part(to, k % 4, k > 3);
        if (mha_both(cx, to, from, eg__mha_which(k % 4, k > 3), y, x) && x)
            mha_put(to, k % 4, k > 3, x, &w);
    }
    for (int k = 0; k < ADDED && !eg_error(cx); k++) {
        const char *name;
        eg_tensor *y = mha_added_at(to, k, &name), *x = mha_added_at(from, k, &name);
        if (mha_both(cx, to, from, name, y, x) && y) eg__nn_write(&w, y, x);
    }
    const int bad = eg__nn_written(cx, &w);
    eg_nograd(cx, was);
    eg_pop(cx, mark);
    return bad;
}
