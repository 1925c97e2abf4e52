/* heads.c: measures of each head's attention weights, and of the similarity of heads. */
#include <eingrad/capture.h>
#include <eingrad/heads.h>
#include "nn.h"
#include <math.h>
#include <stdlib.h>

/* -- the axes of the head, the query and the key in a string such as "b [h] i j" --------------- */
typedef struct form {
    const eg_spec *spec;
    /* number of axes of the tensor; the axes of head, query and key; query −1: there is none */
    int axes, head, query, key;
} form;
static const char *form_name(const form *f, int axis)
{
    return f->spec->index[f->spec->term[0].item[axis].index].name;
}

/* Reads the spec of x into f. False after an error, which begins with `who`. */
static bool read_form(const char *who, const char *spec, eg_tensor *x, form *f)
{
    const eg_spec *s = eg_spec_parse(eg_context(x), who, spec);
    *f = (form){ .spec = s, .head = -1, .query = -1, .key = -1 };
    if (!eg__nn_only_indices(
            s, 1, false, "one term of letters or names is needed, without groups, 1 and '...'") ||
        !eg__nn_indices_differ(s, 0))
        return false;
    const eg_spec_item *item = s->term[0].item;
    int bracketed = 0;
    f->axes = s->term[0].axes;
    for (int k = 0; k < f->axes; k++)
        if (item[k].bracket) f->head = k, bracketed++;
    if (bracketed != 1)
        return eg_spec_fail(s, EG_ERROR_NOTATION, 0, -1,
                            "one index, the head's, must be in brackets, as in \"b [h] i j\""),
               false;
    if (f->axes != eg_rank(x))
        return eg_spec_fail(s, EG_ERROR_SHAPE, 0, -1,
                            "the string names %d ax%s, but the tensor has %d", f->axes,
                            f->axes == 1 ? "is" : "es", eg_rank(x)),
               false;
    for (int k = f->axes; k-- > 0;) {
        if (k == f->head) continue;
        if (f->key < 0)
            f->key = k;
        else if (f->query < 0)
            f->query = k;
    }
    if (f->key < 0)
        return eg_spec_fail(s, EG_ERROR_NOTATION, 0, -1, "there is no index other than the head's"),
               false;
    if (eg_type(x) == EG_F32 || eg_type(x) == EG_F64) return true;
    eg_fail_as(eg_context(x), EG_ERROR_DTYPE, "%s: the tensor is %s, not a float", who,
               eg_type_name(eg_type(x)));
    return false;
}

/* -- the measures of one head ------------------------------------------------------------------ */
typedef struct sums {
    eg_head h;
    int64_t spread; /* number of rows of weights whose spread is defined */
} sums;

static int heads_falling(const void *p, const void *q)
{
    const double a = *(const double *)p, b = *(const double *)q;
    return (a < b) - (a > b);
}

/* Adds the weights a[0 … n) of one query to the sums; `at` is the position of the query among the
 * keys. Sorts a. */
static void add_row(sums *s, double *a, int64_t n, int64_t at, int64_t top)
{
    double mass = 0, entropy = 0, distance = 0, most = 0;
    int64_t keys = 0;
    for (int64_t j = 0; j < n; j++) {
        if (!(a[j] != 0)) continue;
        keys++;
        mass += a[j];
        entropy -= a[j] * log(a[j]);
        distance += a[j] * (double)llabs((long long)(at - j));
        if (a[j] > most) most = a[j];
    }
    if (mass == 0) {
        s->h.empty++;
        return;
    }
    s->h.rows++;
    s->h.entropy += entropy;
    s->h.distance += distance;
    if (keys > 1) {
        s->h.spread += entropy / log((double)keys);
        s->spread++;
    }
    if (at >= 0 && at < n) s->h.self += a[at];
    if (at >= 1 && at <= n) s->h.previous += a[at - 1];
    if (at >= -1 && at < n - 1) s->h.next += a[at + 1];
    s->h.first += a[0];
    s->h.saturated += most > 0.99;
    qsort(a, (size_t)n, sizeof *a, heads_falling);
    for (int64_t j = 0; j < n && j < top; j++) s->h.top += a[j];
}

static eg_head mean_of(const sums *s)
{
    eg_head h = s->h;
    double *const mean[] = { &h.entropy, &h.distance, &h.self, &h.previous,
                             &h.next,    &h.first,    &h.top,  &h.saturated };
    for (size_t k = 0; k < sizeof mean / sizeof *mean; k++) *mean[k] /= h.rows ? (double)h.rows : 1;
    h.spread = s->spread ? h.spread / (double)s->spread : 0;
    h.label = !h.rows                               ? "empty"
              : s->spread && h.spread >= 0.95       ? "uniform"
              : h.previous + h.self + h.next >= 0.5 ? "local"
              : h.top >= 0.75                       ? "sparse"
                                                    : "global";
    return h;
}

static const int64_t OFFSET_MOST = (int64_t)1 << 53;

/* Checks the options, and reads the string into f. False after an error. */
static bool heads_fit(eg_ctx *cx, const eg_heads_args *o, form *f)
{
    eg_tensor *w = o->weights;
    if (!eg_ok(w)) {
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "heads: .weights are NULL, failed or gone with their scope");
        return false;
    }
    if (eg_error(cx) || eg_refuse_capture(cx, "heads")) return false;
    if (eg_copies_of(w)) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "heads: .weights have %lld copies; eg_copy_at shows one",
                   (long long)eg_copies_count(eg_copies_of(w)));
        return false;
    }
    if (!o->spec) {
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "heads: .spec is missing: weights of %d ax%s may be \"b [h] i j\", as a module "
                   "gives them, or \"b i [h] j\", as "
                   "eg_attention does; it brackets the head's letter",
                   eg_rank(w), eg_rank(w) == 1 ? "is" : "es");
        return false;
    }
    if (!read_form("heads", o->spec, w, f)) return false;
    if (f->query < 0) {
        eg_spec_fail(f->spec, EG_ERROR_NOTATION, 0, -1, "there is no index for the query");
        return false;
    }
    if (o->top < 0) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "heads: .top is %lld", (long long)o->top);
        return false;
    }
    /* then sums with it do not overflow and are exact as doubles */
    if (o->offset < -OFFSET_MOST || o->offset > OFFSET_MOST) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "heads: .offset is %lld, not within ±2^53",
                   (long long)o->offset);
        return false;
    }
    return true;
}
/* Returns the weights in f64 with the axes in the order head, batches, query, key. */
static eg_tensor *by_heads(eg_tensor *w, const form *f)
{
    int order[EG_RANK_MAX], n = 0;
    order[n++] = f->head;
    for (int k = 0; k < f->axes; k++)
        if (k != f->head && k != f->query && k != f->key) order[n++] = k;
    order[n++] = f->query;
    order[n++] = f->key;
    return eg_cast(eg_permute_n(w, n, order), EG_F64);
}
/* Each query's row of weights is copied, since it is sorted, and measured. */
const eg_head *eg_heads_with(const eg_heads_args *given)
{
    OPTIONS(eg_heads_args, o, given);
    eg_tensor *w = o->weights;
    eg_ctx *cx = w ? eg_context(w) : NULL;
    form f;
    if (!heads_fit(cx, o, &f)) return NULL;
    const int64_t heads = eg_dim(w, f.head), queries = eg_dim(w, f.query), keys = eg_dim(w, f.key),
                  top = o->top ? o->top : 3;
    eg_owner *keep = eg_owner_open(cx);
    eg_head *out = keep ? eg_owner_alloc(keep, (size_t)(heads + 1) * sizeof *out) : NULL;
    if (!out) return NULL;
    const eg_mark m = eg_push(cx);
    const bool was = eg_nograd(cx, true);
    eg_tensor *row = eg_full_n(cx, EG_F64, 0, 1, &keys), *all = by_heads(w, &f);
    const double *a = eg_f64(all);
    double *r = eg_mut_f64(row);
    const int64_t rows = heads ? eg_size(w) / heads / (keys ? keys : 1) : 0;
    for (int64_t h = 0; a && r && h < heads; h++) {
        sums s = { .spread = 0 };
        for (int64_t k = 0; k < rows; k++) {
            memcpy(r, a + (h * rows + k) * keys, (size_t)keys * sizeof *r);
            add_row(&s, r, keys, k % queries + o->offset, top);
        }
        out[h] = mean_of(&s);
    }
    eg_nograd(cx, was);
    eg_pop(cx, m);
    return eg_error(cx) ? NULL : out;
}

/* -- similarity -------------------------------------------------------------------------------- */
/* Returns x / |x| along the last index; zeros remain zeros. */
static eg_tensor *heads_unit(eg_tensor *x, const form *f)
{
    const char *const key[] = { form_name(f, f->key) };
    eg_tensor *n = eg_unsqueeze(
                  eg_sum(eg__nn_spec(eg_spec_bracket(f->spec, 0, 1, key)), eg_square(x)), f->key),
              *some = eg_gt(n, eg_zeros_like(n));
    return eg_mul(x,
                  eg_where(some, eg_rsqrt(eg_where(some, n, eg_ones_like(n))), eg_zeros_like(n)));
}

/* Returns "b h i j, b g i j -> h g" of the unit vectors, divided by the number of vectors of a
 * head. */
static eg_tensor *similarity(const char *who, const char *spec, eg_tensor *x)
{
    form f;
    if (!eg_ok(x) || eg_error(eg_context(x)) || !read_form(who, spec, x, &f))
        return eg_fail_as(eg_context(x), EG_ERROR_MISUSE, "%s: x is NULL", who);
    const char *head = form_name(&f, f.head),
               *other = eg_spec_unused(f.spec, f.spec->names ? "other_head" : "g");
    const eg_spec *one = eg_spec_bracket(f.spec, 0, 0, NULL),
                  *two = eg_spec_rename(one, head, other),
                  *out = eg_spec_insert(eg_spec_like(one, head), 0, -1, other);
    const char *text = eg__nn_joined(one, two, out);
    const double vectors = (double)eg_size(x) / (double)(eg_dim(x, f.head) * eg_dim(x, f.key));
    eg_tensor *u = heads_unit(x, &f);
    return vectors > 0 ? eg_scale(eg_einsum(text, u, u), 1 / vectors) : eg_einsum(text, u, u);
}
eg_tensor *eg_head_similarity(const char *spec, eg_tensor *x)
{
    return similarity("head_similarity", spec, x);
}

eg_tensor *eg_head_diversity(const char *spec, eg_tensor *x)
{
    eg_tensor *s = similarity("head_diversity", spec, x);
    const double heads = (double)eg_dim(s, 0);
    eg_tensor *apart = eg_sub(eg_sum(NULL, s), eg_einsum("hh->", s));
    return heads > 1 ? eg_scale(apart, 1 / (heads * (heads - 1))) : eg_scale(apart, 0);
}
