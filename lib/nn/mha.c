/* mha.c: multi-head attention: its options and parameters. Heads are letters of the weights, so
 * that einsum splits and merges them without a reshape. Vaswani et al. 2017, §3.2.2 */
#include "nn.h"
#include <math.h>
#include <stdio.h>

/* -- sizes ------------------------------------------------------------------------------------ */
static bool divides(eg_mha *m, const eg_mha_args *a, const eg_params *p)
{
    if (!a->d_k_each && (!a->d_k || !a->d_v) && a->d_model % a->heads)
        eg__nn_refuse(p, EG_ERROR_SHAPE, "mha", "d_model must be divisible by heads: %lld / %lld",
                      (long long)a->d_model, (long long)a->heads);
    else if (m->heads % m->kv_heads)
        eg__nn_refuse(p, EG_ERROR_SHAPE, "mha", "heads must be divisible by kv_heads: %lld / %lld",
                      (long long)m->heads, (long long)m->kv_heads);
    else
        return true;
    return false;
}

/* True if the form of the weights allows these heads; else records an error. */
static bool mha_fits(const eg_mha *m, const eg_mha_args *a, const eg_params *p)
{
    if (m->form == EG_PACKED && (m->kdim != m->qdim || m->vdim != m->qdim))
        eg__nn_refuse(p, EG_ERROR_SHAPE, "mha",
                      "packed weights need one width, but qdim is %lld, kdim %lld and vdim %lld",
                      (long long)m->qdim, (long long)m->kdim, (long long)m->vdim);
    else if (m->form == EG_PACKED && m->d_k != m->d_v)
        eg__nn_refuse(p, EG_ERROR_MISUSE, "mha", "packed weights need d_k = d_v, not %lld and %lld",
                      (long long)m->d_k, (long long)m->d_v);
    else if (m->form != EG_SEPARATE && m->kv_heads != m->heads)
        eg__nn_refuse(p, EG_ERROR_UNSUPPORTED, "mha",
                      "%lld heads on %lld kv_heads need the separate form", (long long)m->heads,
                      (long long)m->kv_heads);
    else if (m->form == EG_PACKED && (a->no_q_bias || a->no_k_bias || a->no_v_bias) &&
             !(a->no_q_bias && a->no_k_bias && a->no_v_bias) && !a->no_bias)
        eg__nn_refuse(p, EG_ERROR_MISUSE, "mha",
                      "packed weights have a bias for query, key and value, or for none of them");
    else if (m->d_k_each && m->form != EG_PER_HEAD)
        eg__nn_refuse(p, EG_ERROR_UNSUPPORTED, "mha",
                      "heads of different widths need .form = EG_PER_HEAD");
    else
        return true;
    return false;
}

/* True if the options of rotary positions can be combined; else records an error. */
static bool mha_rotary_fits(eg_mha *m, const eg_mha_args *a, const eg_params *p)
{
    const eg_tensor *f = a->rotary_frequencies;
    const int64_t width = width_or(m->rotary_width, m->d_k);
    m->has_rotary = m->rotary != 0 || f;
    if (f && !eg_ok(f)) return false;
    if (!m->has_rotary && (a->rotary_width || a->rotary_factor))
        eg__nn_refuse(p, EG_ERROR_MISUSE, "mha",
                      ".rotary_width and .rotary_factor need .rotary or .rotary_frequencies");
    else if (m->has_rotary && m->d_k_each)
        eg__nn_refuse(p, EG_ERROR_UNSUPPORTED, "mha", "rotary positions need heads of one width");
    else if (m->has_rotary && (width < 0 || width > m->d_k))
        eg__nn_refuse(p, EG_ERROR_SHAPE, "mha", "rotary_width is %lld, but d_k is %lld",
                      (long long)width, (long long)m->d_k);
    else if (m->has_rotary && width % 2)
        eg__nn_refuse(p, EG_ERROR_SHAPE, "mha",
                      "rotary positions rotate pairs of elements, but %s is %lld",
                      m->rotary_width ? "rotary_width" : "d_k", (long long)width);
    else if (m->rotary < 0 || !(m->rotary < 1e300))
        eg__nn_refuse(p, EG_ERROR_MISUSE, "mha",
                      "the base of rotary positions is %g; it must be finite and not negative",
                      m->rotary);
    else if (a->rotary_factor && !(m->rotary_factor > 0 && m->rotary_factor < 1e300))
        eg__nn_refuse(p, EG_ERROR_MISUSE, "mha",
                      "rotary_factor is %g; it must be finite and positive", m->rotary_factor);
    else if (f && (eg_rank(f) != 1 || eg_dim(f, 0) != width / 2))
        eg__nn_refuse(p, EG_ERROR_SHAPE, "mha",
                      "rotary_frequencies has %lld number%s in %d ax%s, but needs one for each of "
                      "%lld pair%s of elements, in one axis",
                      (long long)eg_size(f), eg_size(f) == 1 ? "" : "s", eg_rank(f),
                      eg_rank(f) == 1 ? "is" : "es", (long long)(width / 2),
                      (width / 2) == 1 ? "" : "s");
    else
        return true;
    return false;
}

/* True if each given option is read together with the others; else records an error. */
static bool mha_reads(const eg_mha *m, const eg_mha_args *a, const eg_params *p)
{
    const bool packed = m->form == EG_PACKED;
    const struct {
        bool refused;
        const char *why;
    } rules[] = {
        { a->interleaved && !m->has_rotary,
          ".interleaved is read with .rotary or .rotary_frequencies only" },
        { a->d_v_each && !a->d_k_each, ".d_v_each is read with .d_k_each only" },
        { !packed && (a->W_qkv || a->b_qkv),
          ".W_qkv and .b_qkv are names of .form = EG_PACKED, which is not set" },
        { packed && (a->W_q || a->W_k || a->W_v || a->b_q || a->b_k || a->b_v),
          "with .form = EG_PACKED the names are .W_qkv and .b_qkv, not those of query, key and "
          "value" },
    };
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++)
        if (rules[k].refused)
            return eg__nn_refuse(p, EG_ERROR_MISUSE, "mha", "%s", rules[k].why), false;
    return true;
}

/* Returns the name of the first option that is given and requires a softmax; NULL if there is
 * none. */
static const char *mha_of_softmax(const eg_mha_args *a)
{
    return a->bias_kv       ? ".bias_kv"
           : a->zero_attn   ? ".zero_attn"
           : a->sink        ? ".sink"
           : a->alibi       ? ".alibi"
           : a->score       ? ".score"
           : a->score_fn    ? ".score_fn"
           : a->dropout > 0 ? ".dropout"
                            : NULL;
}

/* True if the options of norms, extra keys and the core can be combined; else records an error. */
static bool mha_extras(const eg_mha_args *a, const eg_params *p)
{
    const bool unit = a->qk_norm == EG_QK_UNIT, more = a->bias_kv || a->zero_attn || a->sink;
    const double eps = eg_option(a->qk_eps, unit ? 0 : 1e-5), first = eg_option(a->temperature, 0);
    if (a->d_k_each && (a->qk_norm || a->temperature || more))
        eg__nn_refuse(
            p, EG_ERROR_UNSUPPORTED, "mha",
            ".qk_norm, .temperature, .bias_kv, .zero_attn and .sink need heads of one width");
    else if (a->qk_norm < EG_QK_AS_IS || a->qk_norm > EG_QK_RMS_ALL)
        eg__nn_refuse(p, EG_ERROR_MISUSE, "mha", "qk_norm is %d, which is not an eg_qk_norm",
                      (int)a->qk_norm);
    else if (a->form < EG_SEPARATE || a->form > EG_PER_HEAD)
        eg__nn_refuse(p, EG_ERROR_MISUSE, "mha", "form is %d, which is no form of weights",
                      (int)a->form);
    else if (a->qk_eps && !a->qk_norm)
        eg__nn_refuse(p, EG_ERROR_MISUSE, "mha", ".qk_eps is read with .qk_norm only");
    else if (!(eps >= 0 && eps < 1e300))
        eg__nn_refuse(p, EG_ERROR_MISUSE, "mha", "qk_eps is %g; it must be finite and not negative",
                      a->qk_eps);
    else if (!(first >= 0 && first < 1e300))
        eg__nn_refuse(p, EG_ERROR_MISUSE, "mha",
                      "temperature is %g; it must be finite and not negative", a->temperature);
    else if (a->no_softmax && a->linear)
        eg__nn_refuse(p, EG_ERROR_UNSUPPORTED, "mha",
                      ".linear has no softmax that .no_softmax could leave out");
    else if (a->no_softmax && more)
        eg__nn_refuse(p, EG_ERROR_UNSUPPORTED, "mha",
                      "%s joins the sum of a softmax, which .no_softmax leaves out",
                      mha_of_softmax(a));
    else if (a->linear && a->core)
        eg__nn_refuse(p, EG_ERROR_MISUSE, "mha",
                      ".linear and .core are two attentions; leave one out");
    else if (a->linear && mha_of_softmax(a))
        eg__nn_refuse(p, EG_ERROR_UNSUPPORTED, "mha",
                      "%s belongs to a softmax, which .linear has not", mha_of_softmax(a));
    else
        return true;
    return false;
}

/* Sets all sizes and options of m from the arguments, with defaults where they are 0. False after
 * an error: a size that is not positive or does not fit the others. */
static bool mha_sizes(eg_mha *m, const eg_mha_args *a, eg_params *p)
{
    if (!eg__nn_positive(p, "mha", "heads", a->heads) || !eg__nn_dropout_fits(p, "mha", a->dropout))
        return false;
    bool all = a->qdim && a->kdim && a->vdim && a->d_out && ((a->d_k && a->d_v) || a->d_k_each);
    if ((!all || a->d_model) && !eg__nn_positive(p, "mha", "d_model", a->d_model)) return false;
    *m = (eg_mha){
        .name = eg__nn_name(a->params, a->name),
        .form = a->form,
        .d_model = a->d_model,
        .heads = a->heads,
        .kv_heads = width_or(a->kv_heads, a->heads),
        .d_k = width_or(a->d_k, a->d_model / a->heads),
        .d_v = width_or(a->d_v, a->d_model / a->heads),
        .qdim = width_or(a->qdim, a->d_model),
        .kdim = width_or(a->kdim, a->d_model),
        .vdim = width_or(a->vdim, a->d_model),
        .d_out = width_or(a->d_out, a->d_model),
        .dropout = a->dropout,
        .scale = a->scale || a->qk_norm != EG_QK_UNIT ? a->scale : 1,
        .qk_norm = a->qk_norm,
        .qk_eps = a->qk_eps,
        .rotary = eg_option(a->rotary, 0),
        .rotary_factor = eg_option(a->rotary_factor, 1),
        .rotary_width = a->rotary_width,
        .interleaved = a->interleaved,
        .zero_attn = a->zero_attn,
        .no_softmax = a->no_softmax,
        .core = a->core,
        .score_fn = a->score_fn,
        .user = a->user,
    };
    if (!eg__nn_positive(p, "mha", "kv_heads", m->kv_heads) || !divides(m, a, p)) return false;
    if (a->d_k_each) {
        int64_t *each = eg_params_alloc(p, (size_t)(2 * a->heads) * sizeof *each);
        if (!each) return false;
        m->d_k = m->d_v = 0;
        for (int64_t h = 0; h < a->heads; h++) {
            each[h] = a->d_k_each[h];
            each[a->heads + h] = a->d_v_each ? a->d_v_each[h] : a->d_k_each[h];
            if (!eg__nn_positive(p, "mha", "d_k_each", each[h]) ||
                !eg__nn_positive(p, "mha", "d_v_each", each[a->heads + h]))
                return false;
            m->d_k += each[h], m->d_v += each[a->heads + h];
        }
        m->d_k_each = each, m->d_v_each = each + a->heads;
    }
    const struct {
        const char *name;
        int64_t size;
    } widths[] = { { "d_k", m->d_k },   { "d_v", m->d_v },   { "qdim", m->qdim },
                   { "kdim", m->kdim }, { "vdim", m->vdim }, { "d_out", m->d_out } };
    for (size_t k = 0; k < sizeof widths / sizeof *widths; k++)
        if (!eg__nn_positive(p, "mha", widths[k].name, widths[k].size)) return false;
    if (!isfinite(a->scale)) {
        eg__nn_refuse(p, EG_ERROR_MISUSE, "mha", "scale is %g, not a finite number", a->scale);
        return false;
    }
    return mha_fits(m, a, p) && mha_rotary_fits(m, a, p) && mha_extras(a, p) && mha_reads(m, a, p);
}

/* -- .where, .score and .with ------------------------------------------------------------------ */
/* Stores .where, .score and .with. False after an error: a text that is wrong for every run.
 * Tensors of .with that are missing may be given with a run. */
static bool mha_texts(eg_mha *m, const eg_mha_args *a, eg_params *p)
{
    eg_ctx *cx = eg_params_context(p);
    const char *who = m->specs->who;
    m->where = a->where ? eg__nn_text(p, "%s", a->where) : NULL;
    m->score = a->score ? eg__nn_text(p, "%s", a->score) : NULL;
    for (int k = 0; k < 8 && a->with[k].name; k++)
        m->with[k] = (eg_given){ eg__nn_text(p, "%s", a->with[k].name), a->with[k].x };
    eg_mark mark = eg_push(cx);
    if (m->where)
        eg__mha_formula(m, cx, eg__nn_text(p, "%s: .where", who), false, m->where, m->with, true);
    if (m->score)
        eg__mha_formula(m, cx, eg__nn_text(p, "%s: .score", who), true, m->score, m->with, true);
    eg_pop(cx, mark);
    return !eg_error(cx);
}

/* -- parameters ------------------------------------------------------------------------------- */
typedef struct row { /* describes one logical weight or bias */
    eg_tensor **one, ***each;
    const char *name, *axes, *axes_each;
    bool off;
    int rank;
    int64_t dims[3], fan_in, fan_out; /* fan_in 0: a bias */
    int heads;                        /* the axis of heads; −1: none */
} row;

static eg_tensor *mha_first(eg_params *p, eg_tensor *x, const row *r, double init)
{
    return !r->fan_in ? eg__nn_constant(p, x, 0)
           : init     ? eg__nn_normal(p, x, eg_option(init, 0))
                      : eg__nn_xavier(p, x, r->fan_in, r->fan_out);
}

/* Makes a projection of heads with different widths: one parameter for each head, named "name.h".
 * False after an error. */
static bool per_head(const eg_mha *m, eg_params *p, const row *r, double init)
{
    eg_tensor **each = eg_params_alloc(p, (size_t)m->heads * sizeof *each);
    if (!each) return false;
    *r->each = each;
    for (int64_t h = 0; h < m->heads; h++) {
        char name[160];
        int64_t dims[2];
        int n = 0, width = r->heads + 1; /* the axis of the width is after that of the heads */
        for (int k = 0; k < r->rank; k++)
            if (k != r->heads)
                dims[n++] = k == width && m->d_k_each
                                ? (strchr(r->axes, 'e') ? m->d_v_each : m->d_k_each)[h]
                                : r->dims[k];
        snprintf(name, sizeof name, "%s.%lld", r->name, (long long)h);
        each[h] = mha_first(p, eg_param_n(p, name, r->axes_each, n, dims), r, init);
    }
    return true;
}

static void packed(eg_mha *m, const eg_mha_args *a, eg_params *p)
{
    m->W_qkv = eg_param(p, a->W_qkv ? a->W_qkv : "W_qkv", "m c h d", m->qdim, 3, m->heads, m->d_k);
    const row weight = { .fan_in = m->qdim, .fan_out = m->heads * m->d_k };
    mha_first(p, m->W_qkv, &weight, a->init);
    if (!a->no_bias && !a->no_q_bias)
        m->b_qkv = eg__nn_constant(
            p, eg_param(p, a->b_qkv ? a->b_qkv : "b_qkv", "c h d", 3, m->heads, m->d_k), 0);
}

static bool slopes(eg_mha *m, eg_params *p) /* constants, not parameters */
{
    eg_ctx *cx = eg_params_context(p);
    eg_mark mark = eg_push(cx);
    m->alibi = eg_constant_n(p, 1, &m->heads);
    bool bad = !eg_ok(m->alibi) ||
               eg_assign(m->alibi, eg_cast(eg_alibi_slopes(cx, m->heads), eg_type(m->alibi)));
    eg_pop(cx, mark);
    return !bad;
}

/* Sets the frequencies of rotary positions: a parameter of the list itself, which may be trained,
 * or a copy that is valid as long as the module. False after an error. */
static bool frequencies(eg_mha *m, eg_tensor *given, eg_params *p)
{
    const eg_named *one = NULL;
    for (int k = 0; given && (one = eg_params_at(p, k)) && one->x != given; k++) continue;
    m->rotary_frequencies = given;
    if (!given || one) return true;
    m->rotary_frequencies = eg_owner_tensor(eg_params_owner(p), eg_type(given), 1, eg_dims(given));
    return eg_ok(m->rotary_frequencies) && !eg_assign(m->rotary_frequencies, given);
}

/* Makes the parameters that options add: norms of query and key, the extra key and its value, the
 * sink and the temperature of each head. */
static void mha_added(eg_mha *m, const eg_mha_args *a, eg_params *p)
{
    const bool unit = a->qk_norm == EG_QK_UNIT, all = a->qk_norm == EG_QK_RMS_ALL;
    const int64_t g = m->kv_heads, h = m->heads;
    if (a->qk_norm && !unit) {
        eg_norm_new_args o = { .size = sizeof o,
                               .params = p,
                               .name = "norm_q",
                               .d_model = all ? h * m->d_k : m->d_k,
                               .rms = all || a->qk_norm == EG_QK_RMS,
                               .no_bias = a->no_bias,
                               .eps = a->qk_eps };
        m->norm_q = eg_norm_new_with(&o);
        o.name = "norm_k", o.d_model = all ? g * m->d_k : m->d_k;
        m->norm_k = eg_norm_new_with(&o);
    }
    if (a->bias_kv) {
        const row k = { .fan_in = g * m->d_k, .fan_out = g * m->d_k },
                  v = { .fan_in = g * m->d_v, .fan_out = g * m->d_v };
        m->bias_k = mha_first(p, eg_param(p, "bias_k", "h d", g, m->d_k), &k, a->init);
        m->bias_v = mha_first(p, eg_param(p, "bias_v", "h e", g, m->d_v), &v, a->init);
    }
    if (a->sink) m->sink = eg__nn_constant(p, eg_param(p, "sink", "h", h), 0);
    if (eg_option(a->temperature, 0) != 0)
        m->temperature = eg__nn_constant(p, eg_param(p, "temperature", "h", h), a->temperature);
}

/* True if φ can be read and is a number; else records an error. It is computed for one number. */
static bool mha_phi(const eg_mha *m, const eg_params *p, const char *phi)
{
    eg_ctx *cx = eg_params_context(p);
    const char *who = m->specs->who;
    const eg_mark mark = eg_push(cx);
    eg_tensor *x = eg_full_n(cx, eg_params_type(p), 1, 0, NULL),
              *y = eg_expr("", phi, .with = { { "x", x } });
    if (eg_error(cx))
        eg_fail_in(cx, "%s: .phi", who);
    else if (eg_type(y) != eg_type(x))
        eg_fail_as(cx, EG_ERROR_DTYPE, "%s: .phi gives %s, not %s: \"%s\"", who,
                   eg_type_name(eg_type(y)), eg_type_name(eg_type(x)), phi);
    eg_pop(cx, mark);
    return !eg_error(cx);
}
/* Copies the options of .linear to the module. False after an error. */
static bool mha_linear(eg_mha *m, const eg_mha_args *a, eg_params *p)
{
    if (!a->linear) return true;
    eg_linear_attention_args *o = eg_params_alloc(p, sizeof *o), given = { .size = sizeof given };
    eg_options(&given, sizeof given, a->linear);
    if (given.chunk < 0)
        eg__nn_refuse(p, EG_ERROR_MISUSE, "mha", "linear.chunk is %lld, but must not be negative",
                      (long long)given.chunk);
    if (!o) return false;
    *o = (eg_linear_attention_args){ .size = sizeof *o,
                                     .no_norm = given.no_norm,
                                     .decay = given.decay,
                                     .beta = given.beta,
                                     .chunk = given.chunk };
    if (given.phi && !mha_phi(m, p, given.phi)) return false;
    if (given.phi) o->phi = eg__nn_text(p, "%s", given.phi);
    if (given.decay.axes) o->decay.axes = eg__nn_text(p, "%s", given.decay.axes);
    if (given.beta.axes) o->beta.axes = eg__nn_text(p, "%s", given.beta.axes);
    m->linear = o;
    return !eg_error(eg_params_context(p));
}

/* Sets everything in m but its tensors. False after an error. */
static bool mha_options(eg_mha *m, const eg_mha_args *a, eg_params *p)
{
    const bool good = mha_sizes(m, a, p) && eg__mha_layout(m, a->layout, p) && mha_texts(m, a, p) &&
                      (!a->alibi || slopes(m, p)) && mha_linear(m, a, p) &&
                      frequencies(m, a->rotary_frequencies, p);
    if (!good) eg_name_memory_error(eg_params_context(p), "mha");
    return good;
}
/* The table has one entry for each weight and bias: where the tensor is stored in the module, its
 * name and axes, whether an option switches it off, its sizes, fan-in and fan-out. */
eg_mha *eg_mha_new_with(const eg_mha_args *given)
{
    OPTIONS(eg_mha_args, a, given);
    eg_params *p = eg__nn_under(a->params, "mha", a->name);
    const int before = eg_params_count(p);
    eg_mha *m = p ? eg_params_alloc(p, sizeof *m) : NULL;
    if (!m || !mha_options(m, a, p)) return NULL;
    const int64_t h = m->heads, g = m->kv_heads, d = m->d_k, e = m->d_v;
    const int64_t hd = m->d_k_each ? d : h * d, he = m->d_k_each ? e : h * e,
                  gd = g == h ? hd : g * d, ge = g == h ? he : g * e;
    const int64_t q = m->qdim, k = m->kdim, v = m->vdim, o = m->d_out;
    eg_tensor ***W = m->W_each, ***b = m->b_each;
    /* clang-format off */
    const row rows[] = {
        { &m->W_q, W + EG_Q, a->W_q, "m h d", "m d", false,        3, { q, h, d }, q,  hd, 1 },
        { &m->W_k, W + EG_K, a->W_k, "m h d", "m d", false,        3, { k, g, d }, k,  gd, 1 },
        { &m->W_v, W + EG_V, a->W_v, "m h e", "m e", false,        3, { v, g, e }, v,  ge, 1 },
        { &m->W_o, W + EG_O, a->W_o, "h e m", "e m", false,        3, { h, e, o }, he, o,  0 },
        { &m->b_q, b + EG_Q, a->b_q, "h d",   "d",   a->no_q_bias, 2, { h, d },    0,  0,  0 },
        { &m->b_k, b + EG_K, a->b_k, "h d",   "d",   a->no_k_bias, 2, { g, d },    0,  0,  0 },
        { &m->b_v, b + EG_V, a->b_v, "h e",   "e",   a->no_v_bias, 2, { g, e },    0,  0,  0 },
        { &m->b_o, NULL,     a->b_o, "m",     NULL,  a->no_o_bias, 1, { o },       0,  0, -1 },
    };
    /* clang-format on */
    if (m->form == EG_PACKED) packed(m, a, p);
    for (int n = 0; n < 8; n++) {
        row r = rows[n];
        const bool bias = n > 3;
        r.name = r.name ? r.name : eg__mha_which(n % 4, bias);
        if ((bias && (r.off || a->no_bias)) || (m->form == EG_PACKED && n % 4 != EG_O)) continue;
        if (m->form == EG_PER_HEAD && r.each) {
            if (!per_head(m, p, &r, a->init)) return eg__nn_made(p, before, NULL);
        } else {
            *r.one = mha_first(p, eg_param_n(p, r.name, r.axes, r.rank, r.dims), &r, a->init);
        }
    }
    mha_added(m, a, p);
    return eg__nn_made(p, before, m);
}
