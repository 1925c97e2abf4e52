/* mha_run.c: the forward pass of multi-head attention: project, rotate, append to the cache,
 * attend, project. All errors begin with the module's name, whichever function records them. */
#include "nn.h"
#include <math.h>

/* Records that x has another rank than the layout. */
static eg_tensor *refuse_rank(const eg_mha *m, const char *which, char letter, eg_tensor *x)
{
    const struct eg__mha_specs *s = m->specs;
    char text[EG_RANK_MAX * 2 + 1];
    int n = 0;
    for (int k = 0; k < s->axes; k++) {
        text[n++] = s->letter[k] == 'i' ? letter : s->letter[k] ? s->letter[k] : '*';
        text[n++] = ' ';
    }
    text[n - 1] = 0;
    return eg_fail_as(
        eg_context(x), EG_ERROR_SHAPE, "the %s has %d ax%s, but the layout \"%s\" needs %d%s",
        which, eg_rank(x), eg_rank(x) == 1 ? "is" : "es", text, s->axes,
        eg_rank(x) == 2 && s->axes == 3 ? "; .layout = \"i m\" takes one sequence" : "");
}

/* True if an operand has the axes, the dtype and the width of the layout; else records an error. */
static bool mha_run_operand(const eg_mha *m, const char *which, char letter, eg_tensor *x,
                            int64_t width)
{
    const eg_tensor *const W = m->W_o ? m->W_o : m->W_each[EG_O][0];
    if (!eg_ok(x))
        return eg_fail_as(eg_context(W), EG_ERROR_MISUSE, "the %s is %s", which,
                          x ? "failed or gone with its scope" : "NULL"),
               false;
    const eg_dtype type = eg_type(W);
    if (eg_rank(x) != m->specs->axes) return refuse_rank(m, which, letter, x), false;
    if (eg_type(x) != type &&
        !(eg__nn_half(type) && (eg_type(x) == EG_F32 || eg_type(x) == EG_F64)))
        return eg_fail_as(eg_context(x), EG_ERROR_DTYPE,
                          "the %s is %s but the module's parameters are %s; eg_cast one of them",
                          which, eg_type_name(eg_type(x)), eg_type_name(type)),
               false;
    for (int k = 0; k < m->specs->axes; k++)
        if (m->specs->letter[k] == 'm' && eg_dim(x, k) != width) {
            eg_fail_as(eg_context(x), EG_ERROR_SHAPE,
                       "'m' is %lld in the module but %lld in the %s", (long long)width,
                       (long long)eg_dim(x, k), which);
            return false;
        }
    return true;
}

/* True if two operands have the same sizes along the axes that they share: batch letters, and the
 * positions of key and value; else records an error. pa, pb: how they are packed. */
static bool operands_agree(const eg_mha *m, const char *a_is, eg_tensor *a, const eg_packed *pa,
                           const char *b_is, eg_tensor *b, const eg_packed *pb, bool positions)
{
    for (int k = 0; k < m->specs->axes; k++) {
        const char c = m->specs->letter[k];
        const bool batch = c != 'i';
        if (!c || c == 'm' || (!batch && !positions)) continue;
        const int64_t have = batch && pa->lengths ? eg_dim(pa->lengths, 0) : eg_dim(a, k),
                      want = batch && pb->lengths ? eg_dim(pb->lengths, 0) : eg_dim(b, k);
        if (have == want) continue;
        eg_fail_as(eg_context(a), EG_ERROR_SHAPE, "%s '%c' is %lld in the %s but %lld in the %s",
                   batch ? "batch" : "length", batch ? c : 'j', (long long)have, a_is,
                   (long long)want, b_is);
        return false;
    }
    return true;
}

/* -- operands that are packed ----------------------------------------------------------------- */
/* Returns how the keys are packed. */
static const eg_packed *key_packed(const eg_mha_run_args *a)
{
    return a->key && a->key != a->query ? &a->key_packed : &a->packed;
}
/* True if the operand can be packed in this way; else records an error. */
static bool packed_fits(const char *which, const eg_packed *p, eg_tensor *x)
{
    eg_ctx *cx = eg_context(x);
    if (!p->lengths) return true;
    if (!eg_ok(p->lengths) || eg_rank(p->lengths) != 1)
        eg_fail_as(cx, EG_ERROR_SHAPE, "the lengths of the packed %s have %d axes, not one", which,
                   eg_rank(p->lengths));
    else if (p->max_length < 0)
        eg_fail_as(cx, EG_ERROR_SHAPE, "the packed %s has a longest sequence of %lld", which,
                   (long long)p->max_length);
    else if (eg_dim(x, 0) != 1)
        eg_fail_as(cx, EG_ERROR_SHAPE, "a packed %s is (1 p m), but 'b' is %lld", which,
                   (long long)eg_dim(x, 0));
    else
        return true;
    return false;
}
/* True if .packed and .key_packed can be used with the module and the other options; else records
 * an error. */
static bool mha_run_packs(const eg_mha *m, const eg_mha_run_args *a)
{
    const struct eg__mha_specs *s = m->specs;
    eg_ctx *cx = eg_context(a->query);
    const bool own = a->packed.lengths, keys = a->key_packed.lengths;
    if (!own && !keys) return true;
    if (own && eg_ok(a->query) && eg_rank(a->query) == 2)
        return eg_fail_as(cx, EG_ERROR_SHAPE,
                          "a packed query is (1 p m), but has 2 axes; eg_unsqueeze(x, 0) adds one"),
               false;
    const char *with = a->cache                          ? ".cache"
                       : a->ranks                        ? ".ranks"
                       : a->lengths.x || a->lengths.axes ? ".lengths"
                       : m->linear && a->keep.x          ? ".keep in a linear attention"
                                                         : NULL;
    if (with)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED, "%s cannot be used beside %s",
                   own ? ".packed" : ".key_packed", with);
    else if (s->axes != 3 || s->batch != 1 || s->letter[1] != 'i' || s->letter[2] != 'm')
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED, "%s needs a module of the layout \"b i m\"",
                   own ? ".packed" : ".key_packed");
    else if (keys && (!a->key || a->key == a->query))
        eg_fail_as(cx, EG_ERROR_MISUSE, ".key_packed is of keys that are not the query");
    else
        return true;
    return false;
}
/* Returns x (1 p …) as (b l …), or x itself if it is not packed. */
static eg_tensor *mha_unpacked(const eg_packed *p, eg_tensor *x)
{
    const bool before = failed(x);
    if (!p->lengths) return x;
    eg_tensor *y = eg_unpack(eg_select_axis(x, 0, 0), p->lengths, p->max_length);
    return eg_ok(y) || before ? y
                              : eg_fail_in(eg_context(x), "packed, the longest of %lld positions",
                                           (long long)p->max_length);
}
/* Returns x (b l …) as (1 p …), packed like the operand y, or x itself if y is not packed. */
static eg_tensor *mha_packed(const eg_packed *p, eg_tensor *x, eg_tensor *y)
{
    return p->lengths ? eg_unsqueeze(eg_pack(x, p->lengths, eg_dim(y, 1)), 0) : x;
}
/* Masks the keys after the end of their sequence. */
static void hide_padding(const eg_mha *m, const eg_packed *keys, eg_attention_args *o)
{
    eg_tensor *t = keys->lengths;
    if (t && m->linear) /* j < t[b]; the lengths may have copies, unlike those of eg_where_mask */
        o->keep =
            (eg_masked){ m->specs->keys,
                         eg_on("j, b -> b j", eg_lt,
                               eg_arange(eg_context(t), eg_type(t), 0, (double)keys->max_length, 1),
                               t) };
    else if (t)
        o->lengths = (eg_masked){ m->batch, t };
}

static eg_tensor *projected(const eg_mha *m, int part, eg_tensor *x)
{
    static const char *const of[] = { "query", "key", "value" };
    const bool before = failed(x);
    eg_tensor *y = eg_affine(m->specs->project[part], x, eg__mha_part(m, part, false),
                             eg__mha_part(m, part, true));
    return eg_ok(y) || before
               ? y
               : eg_fail_in(eg_context(x), "the %s times %s", of[part], eg__mha_which(part, false));
}

/* Returns query or key (… h d) with the module's norm over each head, or over all of them. */
static eg_tensor *with_head_norm(const eg_mha *m, const eg_norm *norm, eg_tensor *x)
{
    if (m->qk_norm == EG_QK_RMS_ALL && eg_ok(x)) {
        int64_t dims[EG_RANK_MAX];
        const int rank = eg_rank(x);
        memcpy(dims, eg_dims(x), (size_t)rank * sizeof *dims);
        dims[rank - 2] *= dims[rank - 1];
        return eg_reshape_n(eg_norm_run(norm, eg_reshape_n(x, rank - 1, dims)), rank, eg_dims(x));
    }
    if (norm) return eg_norm_run(norm, x);
    if (m->qk_norm != EG_QK_UNIT) return x;
    const double eps = m->qk_eps ? m->qk_eps : EG_OFF; /* the divisor is √(|x|² + d eps) */
    return eg_scale(eg_rmsnorm("... [d]", x, .eps = eps), 1 / sqrt((double)m->d_k));
}

/* Returns query or key rotated by its positions: the given ones, else `before`, `before` + 1, …. */
static eg_tensor *with_rotation(const eg_mha *m, const char *spec, eg_tensor *x, int64_t before,
                                eg_masked positions)
{
    return !m->has_rotary
               ? x
               : eg_rotary(spec, x, .base = m->rotary, .frequencies = m->rotary_frequencies,
                           .factor = m->rotary_factor, .width = m->rotary_width,
                           .interleaved = m->interleaved, .positions = positions,
                           .offset = positions.x ? 0 : before);
}

eg_masked eg__mha_key_positions(const eg_mha_run_args *a)
{
    if ((a->key && a->key != a->query) || a->key_positions.x || !a->positions.x)
        return a->key_positions;
    const eg_spec *s = eg_spec_parse(eg_context(a->query), ".positions", a->positions.axes);
    if (eg_spec_find_item(s, 0, "i") >= 0) s = eg_spec_rename(s, "i", "j");
    return (eg_masked){ eg_spec_items(s, 0), a->positions.x };
}

/* True if a memory's key that is given again has the sizes of the one in the cache; else records an
 * error. */
static bool memory_key_fits(const eg_mha *m, eg_tensor *key, const eg_tensor *k)
{
    if (!mha_run_operand(m, "key", 'j', key, m->kdim)) return false;
    for (int axis = 0; axis < m->specs->axes; axis++) {
        const char c = m->specs->letter[axis];
        const int at = c == 'i'        ? m->specs->batch
                       : c && c != 'm' ? (int)(strchr(m->batch, c) - m->batch)
                                       : -1;
        if (at < 0 || eg_dim(key, axis) == eg_dim(k, at)) continue;
        eg_fail_as(eg_context(key), EG_ERROR_SHAPE,
                   "%s '%c' is %lld in the memory that the cache holds but %lld in the key",
                   c == 'i' ? "length" : "batch", c == 'i' ? 'j' : c, (long long)eg_dim(k, at),
                   (long long)eg_dim(key, axis));
        return false;
    }
    return true;
}

/* Sets *k and *v to the projected keys and values: those of the operands, appended to the older
 * ones of the cache; or those of a memory that is already in the cache. False after an error. */
static bool keys_and_values(const eg_mha *m, const eg_mha_run_args *a, int64_t before,
                            eg_tensor **k, eg_tensor **v)
{
    eg_tensor *key = a->key ? a->key : a->query, *value = a->value ? a->value : key;
    if (a->cache && a->memory && eg__cache_filled(a->cache, a->slot)) {
        *k = *v = NULL;
        return eg__cache_append(a->cache, a->slot, true, m->specs->batch, k, v) &&
               (!a->key || memory_key_fits(m, a->key, *k));
    }
    if (!mha_run_operand(m, "key", 'j', key, m->kdim) ||
        !mha_run_operand(m, "value", 'j', value, m->vdim))
        return false;
    const eg_packed *packed = key_packed(a);
    if (!packed_fits("key", packed, key) || !packed_fits("value", packed, value) ||
        !operands_agree(m, "query", a->query, &a->packed, "key", key, packed, false) ||
        !operands_agree(m, "key", key, packed, "value", value, packed, true))
        return false;
    *k = mha_unpacked(packed, projected(m, EG_K, key));
    *v = mha_unpacked(packed, projected(m, EG_V, value));
    *k = with_rotation(m, m->specs->rotate_k, with_head_norm(m, m->norm_k, *k), before,
                       eg__mha_key_positions(a));
    return !a->cache || eg__cache_append(a->cache, a->slot, a->memory, m->specs->batch, k, v);
}

/* True if the numbers and the gain can be used; else records an error. */
static bool mha_run_numbers(const eg_mha *m, const eg_mha_run_args *a)
{
    eg_ctx *cx = eg_context(a->query);
    if (!eg__nn_offset_fits(cx, "", a->offset)) return false;
    if (a->offset > INT64_MAX / 2)
        eg_fail_as(cx, EG_ERROR_MISUSE, "the offset %lld is too large", (long long)a->offset);
    else if (!(a->fill <= 0 && isfinite(a->fill)))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   ".fill is %g; it must be finite and negative, or 0 for -inf", a->fill);
    else if (a->slot < 0 || a->ranks_block < 0)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s is %lld; it must not be negative",
                   a->slot < 0 ? ".slot" : ".ranks_block",
                   a->slot < 0 ? (long long)a->slot : (long long)a->ranks_block);
    else if (a->gain &&
             (!eg_ok(a->gain) || eg_rank(a->gain) != 1 || eg_dim(a->gain, 0) != m->heads))
        eg_fail_as(cx, EG_ERROR_SHAPE, "the gain has %lld number%s for %lld head%s",
                   (long long)eg_size(a->gain), eg_size(a->gain) == 1 ? "" : "s",
                   (long long)m->heads, m->heads == 1 ? "" : "s");
    else
        return true;
    return false;
}

/* True if the options can be combined, and used with this module; else records an error. */
static bool mha_run_fits(const eg_mha *m, const eg_mha_run_args *a)
{
    eg_ctx *cx = eg_context(a->query);
    const bool fused = a->form == EG_FUSED, sink = a->sink.x || a->sink.axes,
               positions = a->positions.x || a->positions.axes,
               key_positions = a->key_positions.x || a->key_positions.axes,
               decay = a->decay.x || a->decay.axes, beta = a->beta.x || a->beta.axes;
    if (a->fill && fused)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   ".fill changes scores in memory, which the form EG_FUSED does not have; "
                   "leave one of them out");
    else if (a->score_fn && fused)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   ".score_fn works on scores in memory, which the form EG_FUSED does not "
                   "have; leave one of them out");
    else if (m->score_fn && fused)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "the module's .score_fn works on scores in memory, which the form "
                   "EG_FUSED does not have");
    else if ((positions || key_positions) && !m->has_rotary)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s is read by rotary positions, which the module does not have",
                   positions ? ".positions" : ".key_positions");
    else if ((positions && !eg_ok(a->positions.x)) || (key_positions && !eg_ok(a->key_positions.x)))
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s is NULL",
                   positions && !eg_ok(a->positions.x) ? ".positions" : ".key_positions");
    else if (sink && !eg_ok(a->sink.x))
        eg_fail_as(cx, EG_ERROR_MISUSE, ".sink is NULL");
    else if (sink && m->d_k_each)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED, ".sink needs heads of one width");
    else if ((m->linear || m->no_softmax) && (a->fill || sink))
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED, "%s belongs to a softmax, which %s",
                   sink ? ".sink" : ".fill",
                   m->linear ? ".linear has not" : ".no_softmax leaves out");
    else if (!m->linear && (decay || beta || a->read))
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED,
                   "%s belongs to a linear attention; the module was made without .linear",
                   decay  ? ".decay"
                   : beta ? ".beta"
                          : ".read");
    else
        return true;
    return false;
}

bool eg__mha_run_allowed(const eg_mha *m, const eg_mha_run_args *a)
{
    return mha_run_packs(m, a) && mha_run_operand(m, "query", 'i', a->query, m->qdim) &&
           mha_run_numbers(m, a) && mha_run_fits(m, a) &&
           packed_fits("query", &a->packed, a->query) &&
           (!a->key || mha_run_operand(m, "key", 'j', a->key, m->kdim));
}

/* Returns y + r, where r must have y's shape. */
static eg_tensor *mha_run_sum(eg_tensor *y, eg_tensor *r)
{
    bool same = eg_ok(r) && eg_rank(r) == eg_rank(y);
    for (int k = 0; same && k < eg_rank(y); k++) same = eg_dim(r, k) == eg_dim(y, k);
    return same ? eg_add(y, r)
                : eg_fail_as(eg_context(y), EG_ERROR_SHAPE,
                             ".add has another shape than the result, of %lld number%s",
                             (long long)eg_size(y), eg_size(y) == 1 ? "" : "s");
}
/* The bias of the output projection and .add are part of its product if the width is the last axis;
 * else they are added afterwards. */
eg_tensor *eg__mha_run_part(const eg_mha *m, const eg_mha_run_args *a, const eg__part *part)
{
    eg_ctx *cx = eg_context(a->query);
    if (!eg__mha_run_allowed(m, a)) return eg__nn_poison(cx);
    const eg_cache *const own = a->memory ? NULL : a->cache;
    const int64_t before = eg__cache_taken(own, a->slot), seen = eg__cache_position(own, a->slot);
    eg_attention_args o = { .size = sizeof o,
                            .keep = a->keep,
                            .bias = a->bias,
                            .offset = a->offset + before,
                            .dropout = m->dropout,
                            .weights = a->weights,
                            .dropped = a->dropped,
                            .scores = a->scores,
                            .lse = a->lse,
                            .max_scores = a->max_scores,
                            .empty = a->empty,
                            .lengths = a->lengths,
                            .form = a->form,
                            .alibi = a->alibi,
                            .no_softmax = m->no_softmax,
                            .ranks = a->ranks,
                            .ranks_block = a->ranks_block,
                            .zigzag = a->zigzag };
    if (m->alibi && !o.alibi.x) o.alibi = (eg_masked){ "h", m->alibi };
    if (!keys_and_values(m, a, seen, &o.k, &o.v))
        return eg_fail_as(cx, EG_ERROR_MISUSE, "there are no keys");
    hide_padding(m, key_packed(a), &o);
    eg_tensor *q =
        with_head_norm(m, m->norm_q, mha_unpacked(&a->packed, projected(m, EG_Q, a->query)));
    if (m->temperature) q = eg_on(m->specs->per_head, eg_mul, q, m->temperature);
    o.q = with_rotation(m, m->specs->rotate_q, q, a->offset + seen, a->positions);
    eg_tensor *y = mha_packed(&a->packed, eg__mha_core(m, a, part, &o, q), a->query);
    const bool whole = !m->b_o || m->specs->last;
    y = eg_affine(m->specs->out, y, eg__mha_part(m, EG_O, false), whole ? m->b_o : NULL,
                  .add = whole ? a->add : NULL);
    if (whole || !eg_ok(y)) return y;
    y = eg_on(m->specs->out_bias, eg_add, y, m->b_o);
    return a->add ? mha_run_sum(y, a->add) : y;
}

/* With .ranks, a rank whose call is refused at once still takes part in the agreement that the
 * others wait for. */
eg_tensor *eg_mha_run_with(const eg_mha_run_args *given)
{
    OPTIONS(eg_mha_run_args, a, given);
    eg_tensor **const handed[] = { a->weights, a->dropped, a->scores, a->lse, a->max_scores };
    const bool before = failed(a->query);
    for (size_t k = 0; k < sizeof handed / sizeof *handed; k++)
        if (handed[k]) *handed[k] = NULL;
    if (a->ranks && (!a->mha || !a->query)) {
        eg_fail_as(eg_ranks_context(a->ranks), EG_ERROR_MISUSE, "mha: %s is NULL",
                   a->mha ? "the query" : "the module");
        eg_ranks_barrier(a->ranks);
    }
    if (!a->mha) return eg__nn_absent("mha", a->query);
    if (!a->query) return eg__nn_missing("mha", a->mha->name, "the query", a->query);
    const int64_t seen = eg__cache_position(a->cache, a->slot);
    eg_tensor *y = a->ranks ? eg__mha_run_ranks(a->mha, a)
                            : eg__mha_run_part(a->mha, a, &(eg__part){ .ranks = NULL });
    return eg__nn_error_in("mha", a->mha->name, a->query, before,
                           eg__cache_roll_back(a->cache, y, a->slot, 1, 1, seen));
}
