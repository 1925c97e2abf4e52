/* rope.c: rotary positions as config.json describes them: a base and, for sequences longer than
 * those of the training, scaled frequencies. */
#include "config.h"
#include "nn.h"
#include <math.h>

static const double two_pi = 6.283185307179586;

/* A method of scaling: it changes the `pairs` frequencies f, f[k] = base^(−k/pairs), and returns a
 * factor for sines and cosines. */
typedef struct rope {
    const eg__config *c;
    const eg_json *with; /* the object "rope_parameters" or "rope_scaling" */
    double base;
    int64_t pairs;
    double *f;
} rope;

/* Returns a number that must be present and above 0; else records an error. */
static double rope_needed(const rope *r, const char *key)
{
    double x = eg__config_real(r->c, r->with, key, 0);
    if (x > 0) return x;
    eg__config_refuse(r->c, EG_ERROR_FILE, eg_json_find(r->with, key), key,
                      "but the rope type needs a number above 0");
    return 1;
}

/* Returns the length of sequences that the model was trained with before the scaling. */
static double rope_trained(const rope *r)
{
    static const char key[] = "original_max_position_embeddings";
    double x = eg__config_real(r->c, r->c->all, key, eg__config_real(r->c, r->with, key, 0));
    return x > 0 ? x : (double)eg__config_size(r->c, "max_position_embeddings", 0);
}

static double rope_default(const rope *r) { return (void)r, 1; }

/* θ / factor: positions are interpolated. Chen et al. 2023 */
static double rope_linear(const rope *r)
{
    const double factor = rope_needed(r, "factor");
    for (int64_t k = 0; k < r->pairs; k++) r->f[k] /= factor;
    return 1;
}

/* Pairs with wavelengths above trained / low are scaled, those below trained / high are not, those
 * between in part. Dubey et al. 2024 (Llama 3.1) */
static double rope_llama3(const rope *r)
{
    const double factor = rope_needed(r, "factor"), low = rope_needed(r, "low_freq_factor"),
                 high = rope_needed(r, "high_freq_factor"), trained = rope_trained(r);
    if (!(high > low))
        eg__config_refuse(r->c, EG_ERROR_FILE, eg_json_find(r->with, "high_freq_factor"),
                          "high_freq_factor", "not above \"low_freq_factor\"");
    for (int64_t k = 0; k < r->pairs; k++) {
        const double turns = trained * r->f[k] / two_pi,
                     kept = fmin(fmax((turns - low) / (high - low), 0), 1);
        r->f[k] *= kept + (1 - kept) / factor;
    }
    return 1;
}

/* Returns the k of the pair that makes `turns` full rotations over the trained length. */
static double rope_pair(const rope *r, double trained, double turns)
{
    return (double)r->pairs * log(trained / (turns * two_pi)) / log(r->base);
}

/* Fast pairs keep their frequency, slow ones are scaled, with a ramp over k between them; the
 * factor also sets the temperature of the softmax. Peng et al. 2023 (YaRN), eq. 19–25 */
static double rope_yarn(const rope *r)
{
    const eg_json *w = r->with;
    const double trained = rope_trained(r), factor = rope_needed(r, "factor"),
                 fast = eg__config_real(r->c, w, "beta_fast", 32),
                 slow = eg__config_real(r->c, w, "beta_slow", 1),
                 some = eg__config_real(r->c, w, "mscale", 0),
                 all = eg__config_real(r->c, w, "mscale_all_dim", 0);
    double from = rope_pair(r, trained, fast > 0 ? fast : 32),
           to = rope_pair(r, trained, slow > 0 ? slow : 1);
    if (eg__config_flag(r->c, w, "truncate", true)) from = floor(from), to = ceil(to);
    from = fmax(from, 0), to = fmin(to, (double)(2 * r->pairs - 1));
    to += from == to ? 0.001 : 0;
    for (int64_t k = 0; k < r->pairs; k++) {
        const double stretched = fmin(fmax(((double)k - from) / (to - from), 0), 1);
        r->f[k] *= 1 - stretched + stretched / factor;
    }
    const double by = factor > 1 ? 0.1 * log(factor) : 0;
    return eg__config_real(r->c, w, "attention_factor",
                           some > 0 && all > 0 ? (some * by + 1) / (all * by + 1) : by + 1);
}

static const struct {
    const char *type;
    double (*scale)(const rope *);
} ropes[] = {
    { "default", rope_default },
    { "linear", rope_linear },
    { "llama3", rope_llama3 },
    { "yarn", rope_yarn },
};
enum { ROPES = sizeof ropes / sizeof *ropes };

/* Returns the index of the type; −1 after an error that lists the types. */
static int rope_row(const rope *r)
{
    const char *type = eg__config_word(r->c, r->with, "rope_type",
                                       eg__config_word(r->c, r->with, "type", "default"));
    for (int k = 0; k < ROPES; k++)
        if (!strcmp(ropes[k].type, type)) return k;
    eg_fail_as(r->c->cx, EG_ERROR_UNSUPPORTED,
               "%s: the rope type \"%.40s\" is none of default, linear, llama3, yarn", r->c->path,
               type);
    return -1;
}

/* As in transformers 5: rope_scaling, if it is set, else rope_parameters. */
const eg_json *eg__config_rope_object(const eg__config *c)
{
    const eg_json *old = eg__config_find(c->all, "rope_scaling");
    return eg__config_set(old) ? old : eg__config_find(c->all, "rope_parameters");
}

/* Returns the number of elements of a head that are rotated. */
static int64_t rope_width(const eg__config *c, const eg__rope *how, const eg_json *with, int64_t d)
{
    static const char part[] = "partial_rotary_factor";
    const char *other = how->part_key ? how->part_key : part;
    const double share = eg__config_real(
        c, with, part, eg__config_real(c, c->all, other, how->part > 0 ? how->part : 1));
    const int64_t width = share <= 1 ? (int64_t)((double)d * share) : 0;
    if (width > 0 && width % 2 == 0) return width;
    eg_fail_as(c->cx, EG_ERROR_FILE,
               "%s: \"%s\" is %g, which is not an even number of the %lld elements of a head",
               c->path, part, share, (long long)d);
    return d;
}

void eg__config_rope(const eg__config *c, eg__rope how, int64_t d, eg_mha_args *mha)
{
    const eg_json *with = how.given ? how.with : eg__config_rope_object(c);
    if (with && with->kind != EG_JSON_OBJECT) {
        eg__config_refuse(c, EG_ERROR_FILE, with, with->key ? with->key : "rope_parameters",
                          "not an object");
        return;
    }
    const int64_t width = rope_width(c, &how, with, d);
    const char *base_key = how.base_key ? how.base_key : "rope_theta";
    rope r = { .c = c, .with = with, .pairs = width / 2 };
    for (const eg_json *x = with ? with->first : NULL; x; x = x->next)
        if (x->kind == EG_JSON_OBJECT)
            eg__config_refuse(c, EG_ERROR_UNSUPPORTED, x, x->key ? x->key : "rope_parameters",
                              "but positions of layers that differ are not supported");
    r.base = eg__config_real(c, with, "rope_theta",
                             eg__config_real(c, c->all, base_key, how.base > 0 ? how.base : 10000));
    const int row = rope_row(&r);
    if (!(r.base > 1))
        eg__config_refuse(c, EG_ERROR_FILE, eg_json_find(with, "rope_theta"), "rope_theta",
                          "not above 1");
    if (row < 0 || eg_error(c->cx)) return;
    mha->rotary = r.base, mha->rotary_width = width < d ? width : 0;
    if (!row) return;
    eg_tensor *f = eg_owner_tensor(c->owner, EG_F64, 1, &r.pairs);
    r.f = eg_mut_f64(f);
    for (int64_t k = 0; r.f && k < r.pairs; k++) r.f[k] = pow(r.base, -(double)k / (double)r.pairs);
    const double by = r.f ? ropes[row].scale(&r) : 1;
    if (by != 1 && width < d)
        eg__config_refuse(c, EG_ERROR_UNSUPPORTED, eg_json_find(with, "rope_type"), "rope_type",
                          "but only whole heads can be scaled");
    mha->scale = by * by * (mha->scale > 0 ? mha->scale : 1 / sqrt((double)d));
    mha->rotary_frequencies = f;
}
