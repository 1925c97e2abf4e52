/* test_score.c: the expressions of attention: .where, .score and .with compared with the same texts
 * computed by eg_expr over scores in memory, in both forms: values, all gradients, layouts,
 * offsets, the sink, weights without a softmax, bits, refusals, memory. */
#include "tests.h"
#include "stored_values.h"

/* -- a call and its operands ------------------------------------------------------------------ */
enum { B = 2, H = 3, Q = 70, K = 90, D = 5, E = 4, FLOATS = 6, MOST = 10 };
/* Operands by the letters b h i j: q, k, v; then the tensors for .with. */
typedef struct operands {
    eg_tensor *q, *k, *v, *sink;
    eg_tensor *r, *c, *u, *t, *doc, *far, *keep, *cd; /* r[h,40] c[b,h,j] u[h] t[i,j] cd[j,b] */
} operands;
static eg_tensor *drawn(eg_ctx *cx, eg_dtype type, double size, int rank, const int64_t *dim)
{
    return eg_cast(eg_normal_n(cx, EG_F64, 0, size, rank, dim), type);
}
#define DRAWN(size, ...)                                                               \
    drawn(cx, type, size, (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), \
          (int64_t[]){ __VA_ARGS__ })
static void draw_operands(operands *o, eg_ctx *cx, eg_dtype type, int queries, int keys)
{
    *o = (operands){ .q = DRAWN(1.2, B, queries, H, D),
                     .k = DRAWN(1.2, B, keys, H, D),
                     .v = DRAWN(1, B, keys, H, E),
                     .sink = DRAWN(1, H),
                     .r = DRAWN(.5, H, 40),
                     .c = DRAWN(.5, B, H, keys),
                     .u = DRAWN(.5, H),
                     .t = DRAWN(.5, queries, keys),
                     .cd = DRAWN(.5, keys, B) };
    int64_t *doc = malloc((size_t)(B * keys) * sizeof *doc);
    for (int b = 0; b < B; b++)
        for (int j = 0; j < keys; j++) doc[b * keys + j] = j / (17 + 6 * b);
    o->doc = eg_from(cx, doc, B, keys);
    free(doc);
    o->far = eg_randint(cx, 0, 40, 60);
    o->keep = eg_gt(eg_uniform(cx, 0, 1, B, keys), eg_full_n(cx, eg_default_type(cx), .3, 0, NULL));
}
/* The tensors that the texts name, for .with; and those of them that are floats. */
static int named(const operands *o, const char *where, const char *score, eg_given *with,
                 eg_tensor **floats)
{
    const eg_given all[] = { { "r", o->r },     { "c", o->c },      { "u", o->u },
                             { "t", o->t },     { "cd", o->cd },    { "doc", o->doc },
                             { "far", o->far }, { "keep", o->keep } };
    int n = 0, m = 0;
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        char read[16];
        snprintf(read, sizeof read, "%s[", all[k].name);
        bool there = false;
        for (int w = 0; w < 2; w++) {
            const char *text = w ? score : where;
            for (const char *s = text; s && (s = strstr(s, read)); s++)
                there |= s == text || !strchr("abcdefghijklmnopqrstuvwxyz", s[-1]);
        }
        if (!there) continue;
        with[n++] = all[k];
        if (eg_type(all[k].x) == eg_type(o->q) && floats) floats[m++] = all[k].x;
    }
    return m;
}
typedef struct text_case {
    const char *name, *where, *score;
    bool sink, no_softmax;
} text_case;
/* clang-format off */
static const text_case cases[] = {
    { "soft cap", "j <= i", "3 * tanh(score / 3)", false, false },
    { "table of distances", "j <= i", "score + r[h, clip(i - j, 0, 39)]", false, false },
    { "table, no mask", NULL, "score + r[h, clip(i - j + 20, 0, 39)]", false, false },
    { "a table that forbidden pairs would leave", "i - 40 < j <= i", "score + r[h, i - j]", false,
      false },
    { "T5 and cap", "j <= i", "3 * tanh((score + r[h, far[clip(i - j, 0, 59)]]) / 3)",
      false, false },
    { "learned alibi", "j <= i", "score - exp(u[h]) * abs(i - j)", false, false },
    { "forgetting", "j <= i", "score + c[b, h, i] - c[b, h, j]", false, false },
    { "documents", "j <= i & doc[b, i] == doc[b, j]", NULL, false, false },
    { "documents, both ways", "doc[b, i] == doc[b, j]", "score * 2", false, false },
    { "documents and positions", "doc[b, i] == doc[b, j] & j <= i", "score + t[i, j]",
      false, false },
    { "bias of pairs", NULL, "score + t[i, j]", false, false },
    { "padding", "keep[b, j] & j <= i", NULL, false, false },
    { "padding or window", "keep[b, j] | i - 8 < j <= i", "score * u[h]", false, false },
    { "sigmoid", "j <= i", "sigmoid(score + u[h])", false, true },
    { "retention", "j <= i", "score * pow(0.9 + 0.05 * u[h] * u[h], i - j)", false, true },
    { "no softmax, nothing else", NULL, NULL, false, true },
    { "squares", "i - 20 < j <= i", "score * score / |j|", false, true },
    { "a quotient, whose slope reads its value", NULL, "score / (1 + u[h] * u[h])", false, false },
    { "a power of e, whose slope reads its value", NULL, "exp(0.3 * score)", false, true },
    { "sink", "j <= i", NULL, true, false },
    { "sink, rows of nothing", "j < i - 30", "score + u[h]", true, false },
    { "sizes", "j - |j| <= i - |i|", "score / sqrt(|j|) + r[h, i % 40]", false, false },
    { "chosen", NULL, "(i - j) % 3 == 0 ? score : doc[b, i] * 0.1 - abs(score)", false, false },
    { "no score", "j <= i", "r[h, clip(i - j, 0, 39)] * cd[j, b]", false, false },
    { "no number of any tensor", NULL, "-0.1 * abs(i - j)", false, false },
    { "a step", "j <= i", "score > 0 ? 1.0 : 0.5", false, false },
    { "keys alone", "j != 5", "score + cd[j, b]", true, false },
    { "derivatives that are infinite where it is forbidden", "j <= i",
      "score / (1 + i - j)", false, false },
    { "values that are infinite where it is forbidden", "j < i",
      "score + log(i - j) * u[h]", false, false },
};
/* clang-format on */
enum { CASES = sizeof cases / sizeof *cases };

static eg_tensor *attended(const operands *o, const text_case *c, eg_form form, eg_tensor **lse)
{
    eg_attention_args a = { .size = sizeof a,
                            .spec = "bihd,bjhd,bjhe->bihe",
                            .q = o->q,
                            .k = o->k,
                            .v = o->v,
                            .where = c->where,
                            .score = c->score,
                            .no_softmax = c->no_softmax,
                            .lse = lse,
                            .form = form };
    if (c->sink) a.sink = (eg_masked){ "h", o->sink };
    named(o, c->where, c->score, a.with, NULL);
    return eg_attention_with(&a);
}
/* The definition of a call: eg_expr over the scores in memory. Forbidden pairs read, in an allowed
 * expression, the score's value at the diagonal instead of their own. */
static eg_tensor *meant(const operands *o, const text_case *c)
{
    eg_ctx *cx = eg_context(o->q);
    eg_tensor *s = eg_scale(eg_einsum("bihd,bjhd->bhij", o->q, o->k), 1 / sqrt(D)), *mask = NULL;
    if (c->where) {
        eg_expr_args m = { .size = sizeof m, .axes = "b=2 h=3 i j", .text = c->where };
        char axes[64];
        snprintf(axes, sizeof axes, "b=%d h=%d i=%d j=%d", B, H, (int)eg_dim(o->q, 1),
                 (int)eg_dim(o->k, 1));
        m.axes = axes;
        char text[200];
        snprintf(text, sizeof text, "(%s) & (0 * zero < 1)", c->where);
        m.text = text;
        eg_given with[9] = { { NULL, NULL } };
        named(o, c->where, NULL, with, NULL);
        int n = 0;
        while (with[n].name) m.with[n] = with[n], n++;
        m.with[n] = (eg_given){ "zero", eg_detach(s) };
        mask = eg_expr_with(&m);
    }
    if (c->score) {
        eg_expr_args f = { .size = sizeof f, .axes = "b h i j" };
        char text[400];
        eg_given with[9] = { { NULL, NULL } };
        named(o, NULL, c->score, with, NULL);
        int n = 0;
        while (with[n].name) f.with[n] = with[n], n++;
        if (strstr(c->score, "score")) {
            snprintf(text, sizeof text, "%s", c->score);
            f.with[n] = (eg_given){ "score", s };
        } else {
            snprintf(text, sizeof text, "%s + 0 * score", c->score);
            f.with[n] = (eg_given){ "score", eg_detach(s) };
        }
        f.text = text;
        s = eg_expr_with(&f);
    }
    eg_tensor *zero = eg_full_n(cx, eg_type(s), 0, 0, NULL), *w;
    if (c->no_softmax)
        w = mask ? eg_where(mask, s, zero) : s;
    else if (c->sink) { /* an additional key without a value */
        eg_tensor *low = eg_full_n(cx, eg_type(s), -1e30, 0, NULL);
        eg_tensor *masked = mask ? eg_where(mask, s, low) : s;
        eg_tensor *z = eg_expand(eg_reshape(o->sink, 1, H, 1, 1), B, H, eg_dim(o->q, 1), 1);
        w = eg_slice_axis(eg_softmax("b h i [j]", eg_concat_axis(3, masked, z)), 3, 0,
                          eg_dim(o->k, 1), 1);
    } else
        w = mask ? eg_softmax("b h i [j]", s, .keep = { "b h i j", mask })
                 : eg_softmax("b h i [j]", s);
    return eg_einsum("bhij,bjhe->bihe", w, o->v);
}
static void near(const char *name, const char *what, eg_tensor *a, eg_tensor *b, double tolerance)
{
    ck_assert_msg(eg_ok(a) && eg_ok(b), "%s: %s: %s", name, what, eg_error(eg_context(a)));
    const double size = eg_item(eg_max(NULL, eg_abs(b))),
                 off = eg_item(eg_max(NULL, eg_abs(eg_sub(a, b))));
    ck_assert_msg(off <= tolerance * fmax(size, 1), "%s: %s is off by %g of %g", name, what, off,
                  size);
}
/* y and the cotangents of q, k, v, the floats of .with and the sink. */
static int all_gradients(const operands *o, const text_case *c, eg_tensor *y, eg_tensor **x,
                         eg_tensor **d)
{
    eg_given with[9] = { { NULL, NULL } };
    x[0] = o->q, x[1] = o->k, x[2] = o->v;
    int n = 3 + named(o, c->where, c->score, with, x + 3);
    if (c->sink) x[n++] = o->sink;
    eg_tensor *g = eg_zeros_like(y);
    for (int64_t k = 0; k < eg_size(g); k++)
        if (eg_type(g) == EG_F64)
            eg_mut_f64(g)[k] = cos(.3 * (double)k);
        else
            eg_mut_f32(g)[k] = (float)cos(.3 * (double)k);
    for (int k = 0; k < n; k++) d[k] = NULL;
    ck_assert_msg(!eg_grad(y, g, n, x, d), "%s: %s", c->name, eg_error(eg_context(y)));
    return n;
}
/* If derivatives of forbidden pairs are infinite, eg_expr over all pairs has NaN: then only the
 * unfused form and the fused one are compared. */
static bool wild(const text_case *c) { return strstr(c->name, "forbidden") != NULL; }
static void as_meant(const text_case *c, eg_dtype type, double tolerance)
{
    eg_ctx *cx = eg_open(.dtype = type);
    operands o;
    draw_operands(&o, cx, type, Q, strstr(c->name, "rows of") ? Q : K);
    if (c->score && strstr(c->score, "c[b, h, i]"))
        o.c = drawn(cx, type, .5, 3, (int64_t[]){ B, H, K });
    eg_tensor *x[MOST], *d[3][MOST], *y[3];
    for (int f = 0; f < 3; f++) {
        if (f == 0 && wild(c)) continue;
        y[f] = f == 0 ? meant(&o, c) : attended(&o, c, f == 1 ? EG_UNFUSED : EG_FUSED, NULL);
        ck_assert_msg(!eg_error(cx), "%s: %s", c->name, eg_error(cx));
        const int n = all_gradients(&o, c, y[f], x, d[f]);
        const int base = wild(c) ? 1 : 0;
        if (f == base) continue;
        near(c->name, f == 1 ? "y" : "fused y", y[f], y[base], tolerance);
        for (int k = 0; k < n; k++) {
            char what[40];
            snprintf(what, sizeof what, "%scotangent %d", f == 1 ? "" : "fused ", k);
            near(c->name, what, d[f][k], d[base][k], tolerance * 4);
        }
    }
    ck_assert_str_eq(eg_op_of(y[2])->name, "attention");
    eg_assert_ok(cx);
    eg_close(cx);
}
GROUP("meaning", .timeout = 60)
LOOP_TEST(expressions_in_f64_equal_their_c_functions, CASES)
{
    as_meant(&cases[_i], EG_F64, 1e-12);
}
LOOP_TEST(expressions_in_f32_equal_their_c_functions, CASES) { as_meant(&cases[_i], EG_F32, 3e-5); }

/* -- random texts ----------------------------------------------------------------------------- */
typedef struct writer {
    uint64_t state;
    char text[600];
    size_t n;
} writer;
static unsigned pick(writer *w, unsigned n)
{
    w->state = w->state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(w->state >> 33) % n;
}
static void say(writer *w, const char *s)
{
    w->n += (size_t)snprintf(w->text + w->n, sizeof w->text - w->n, "%s", s);
}
static void say_number(writer *w, int depth)
{
    static const char *const leaf[] = {
        "score", "u[h]", "cd[j, b]", "t[i, j]", "c[b, h, j]", "0.5", "r[h, abs(i - j) % 40]",
        "score"
    };
    static const char *const one[] = { "tanh(", "sigmoid(", "0.1 * abs(",
                                       "sin(",  "-(",       "0.2 * softplus(" };
    static const char *const two[] = { " + ", " - ", " * " };
    const unsigned way = depth == 3 ? 2 + pick(w, 5) : depth ? pick(w, 7) : 0;
    if (way < 2) {
        say(w, leaf[pick(w, 8)]);
    } else if (way < 4) {
        say(w, one[pick(w, 6)]);
        say_number(w, depth - 1);
        say(w, ")");
    } else if (way < 6) {
        say(w, "(");
        say_number(w, depth - 1);
        say(w, two[pick(w, 3)]);
        say_number(w, depth - 1);
        say(w, ")");
    } else {
        say(w, pick(w, 2) ? "((i + j) % 3 == 0 ? " : "(doc[b, i] == doc[b, j] ? ");
        say_number(w, depth - 1);
        say(w, " : ");
        say_number(w, depth - 1);
        say(w, ")");
    }
}
static void say_mask(writer *w)
{
    static const char *const some[] = {
        "j <= i",     "keep[b, j]",           "doc[b, i] == doc[b, j]",
        "i - 30 < j", "(i + h) % 2 == j % 2", "far[j / 2] > 9"
    };
    say(w, some[pick(w, 6)]);
    if (pick(w, 2)) say(w, pick(w, 2) ? " & " : " | "), say(w, some[pick(w, 6)]);
}
LOOP_TEST(random_expressions, 40 / SLOWER)
{
    writer score = { .state = (uint64_t)_i * 77 + 5 }, where = { .state = (uint64_t)_i * 31 + 1 };
    const char *all = getenv("EG_EXPRESSIONS");
    const int64_t count = all ? strtoll(all, NULL, 10) / 40 + 1 : 1;
    for (int64_t k = 0; k < count; k++) {
        score.n = where.n = 0;
        score.text[0] = where.text[0] = 0;
        say_number(&score, 3);
        if (pick(&where, 4)) say_mask(&where);
        text_case c = { "random", where.n ? where.text : NULL, score.text, false,
                        pick(&where, 4) == 0 };
        c.sink = !c.no_softmax && pick(&where, 3) == 0;
        char name[1300];
        snprintf(name, sizeof name, "\"%s\" where \"%s\"", score.text, where.text);
        c.name = name;
        as_meant(&c, EG_F64, 1e-11);
    }
}

/* -- bits ------------------------------------------------------------------------------------- */
GROUP("bits", .timeout = 60)
TEST(strides_change_no_bit)
{
    static const text_case c = { "strides", "j <= i & doc[b, i] == doc[b, j]",
                                 "score * u[h] + r[h, clip(i - j, 0, 39)] + c[b, h, j] + t[i, j]",
                                 true, false };
    eg_ctx *cx = eg_open();
    operands o, p;
    draw_operands(&o, cx, EG_F32, K, K);
    p = o;
    p.q = eg_transpose(eg_copy(eg_transpose(o.q, 1, 3)), 1, 3);
    p.r = eg_flip_axis(eg_copy(eg_flip_axis(o.r, 1)), 1);
    p.c = eg_transpose(eg_copy(eg_transpose(o.c, 0, 2)), 0, 2);
    p.t = eg_slice_axis(eg_concat_axis(1, o.t, o.t), 1, 0, K, 1);
    p.doc = eg_transpose(eg_copy(eg_transpose(o.doc, 0, 1)), 0, 1);
    for (int form = EG_FUSED; form <= EG_UNFUSED; form++) {
        eg_tensor *x[MOST], *d[2][MOST], *y[2];
        for (int k = 0; k < 2; k++) y[k] = attended(k ? &p : &o, &c, (eg_form)form, NULL);
        const int n = all_gradients(&o, &c, y[0], x, d[0]);
        all_gradients(&p, &c, y[1], x, d[1]);
        ck_assert(same_bits(y[0], y[1]));
        for (int k = 0; k < n; k++)
            ck_assert_msg(same_bits(d[0][k], d[1][k]), "form %d, cotangent %d", form, k);
    }
    eg_tensor *one = eg_ones(cx, 1), *many = eg_expand(one, H), *x[MOST], *d[MOST];
    o.u = many;
    all_gradients(&o, &c, attended(&o, &c, EG_FUSED, NULL), x, d);
    eg_assert_ok(cx);
    eg_close(cx);
}
TEST(threads_and_recording_change_no_bit)
{
    eg_tensor *first[MOST + 1];
    eg_ctx *base = eg_open(.threads = 1);
    for (size_t c = 0; c < CASES; c++)
        for (int way = 0; way < 3; way++) { /* one thread, two, five */
            eg_ctx *cx = eg_open(.threads = way == 0 ? 1 : way == 1 ? 2 : 5);
            operands o;
            eg_tensor *x[MOST], *d[MOST], *lse;
            eg_seed(cx, 5);
            draw_operands(&o, cx, EG_F32, 300, 300);
            eg_tensor *y = attended(&o, &cases[c], EG_FUSED, NULL);
            const int n = all_gradients(&o, &cases[c], y, x, d);
            d[n] = y;
            for (int k = 0; k <= n; k++)
                if (way == 0)
                    first[k] = eg_from_n(base, EG_F32, eg_raw(eg_contiguous(d[k]), NULL),
                                         eg_rank(d[k]), eg_dims(d[k]));
                else
                    ck_assert_msg(same_bits(d[k], first[k]), "%s: %d threads, %d of %d",
                                  cases[c].name, way, k, n);
            eg_nograd(cx, true);
            ck_assert(same_bits(y, attended(&o, &cases[c], EG_FUSED, NULL)));
            eg_nograd(cx, false);
            if (!cases[c].no_softmax)
                ck_assert(same_bits(y, attended(&o, &cases[c], EG_FUSED, &lse)));
            eg_assert_ok(cx);
            eg_close(cx);
        }
    eg_close(base);
}
/* A document attends only to itself. */
TEST(documents_do_not_attend_to_each_other)
{
    static const text_case c = { "documents", "j <= i & doc[b, i] == doc[b, j]",
                                 "score + r[h, clip(i - j, 0, 39)]", false, false };
    for (int form = EG_FUSED; form <= EG_UNFUSED; form++) {
        eg_ctx *cx = eg_open();
        operands o;
        eg_tensor *x[MOST], *d[2][MOST], *y[2];
        draw_operands(&o, cx, EG_F32, 300, 300);
        for (int k = 0; k < 2; k++) {
            if (k) { /* document 3 of batch element 0 has other keys and values, one of them NaN */
                o.k = eg_copy(o.k), o.v = eg_copy(o.v);
                for (int j = 51; j < 68; j++)
                    for (int h = 0; h < H; h++) {
                        put_n(o.k, j == 60 ? NAN : 3. * h - j, 4, (int[]){ 0, j, h, 1 });
                        put_n(o.v, j == 59 ? INFINITY : j, 4, (int[]){ 0, j, h, 2 });
                    }
            }
            y[k] = attended(&o, &c, (eg_form)form, NULL);
            all_gradients(&o, &c, y[k], x, d[k]);
        }
        eg_assert_ok(cx);
        for (int part = 0; part < 2; part++) {
            const int64_t from = part ? 68 : 0, to = part ? 300 : 51;
            ck_assert(same_bits(eg_slice_axis(y[0], 1, from, to, 1),
                                eg_slice_axis(y[1], 1, from, to, 1)));
            for (int k = 0; k < 3; k++)
                ck_assert(same_bits(eg_slice_axis(d[0][k], 1, from, to, 1),
                                    eg_slice_axis(d[1][k], 1, from, to, 1)));
        }
        eg_close(cx);
    }
}

/* -- offsets: one row at a time equals one call ------------------------------------------------ */
GROUP("options", .timeout = 60)
TEST(decoding_gives_the_whole_pass)
{
    static const char *const where[] = { "j <= i", "i - 9 < j <= i & doc[b, i] == doc[b, j]",
                                         "j - |j| <= i - |i|" };
    static const char *const score[] = { "score + r[h, clip(i - j, 0, 39)]",
                                         "3 * tanh(score / 3) + c[b, h, i] - c[b, h, j]",
                                         "score * (1 + i) / |i|" };
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    operands o;
    draw_operands(&o, cx, EG_F64, K, K);
    eg_tensor *slopes = eg_scale(eg_ones(cx, H), .25),
              *bias = drawn(cx, EG_F64, 1, 2, (int64_t[]){ K, K });
    for (int t = 0; t < 3; t++)
        for (int form = EG_FUSED; form <= EG_UNFUSED; form++) {
            eg_attention_args a = { .size = sizeof a,
                                    .spec = "bihd,bjhd,bjhe->bihe",
                                    .q = o.q,
                                    .k = o.k,
                                    .v = o.v,
                                    .where = where[t],
                                    .score = score[t],
                                    .alibi = { "h", slopes },
                                    .bias = { "ij", bias },
                                    .form = (eg_form)form };
            named(&o, where[t], score[t], a.with, NULL);
            eg_tensor *all = eg_attention_with(&a);
            eg_assert_ok(cx);
            for (int i = 0; i < K; i += 13) {
                a.q = eg_slice_axis(o.q, 1, i, i + 1, 1);
                a.bias.x = eg_slice_axis(bias, 0, i, i + 1, 1);
                a.offset = i;
                if (t == 2) { /* |i| is the number of queries so far, and so is |j| */
                    a.k = eg_slice_axis(o.k, 1, 0, i + 1, 1),
                    a.v = eg_slice_axis(o.v, 1, 0, i + 1, 1);
                    continue; /* |j| differs then, so the text has another meaning */
                }
                eg_tensor *row = eg_attention_with(&a);
                eg_assert_ok(cx);
                eg_assert_close(row, eg_slice_axis(all, 1, i, i + 1, 1), 1e-13);
            }
        }
    eg_close(cx);
}
TEST(several_letters_of_queries_and_keys)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    const eg_dtype type = EG_F64;
    for (int grid = 0; grid < 2; grid++) { /* of queries, of keys */
        eg_tensor *x[] = { grid ? DRAWN(1, 40, D) : DRAWN(1, 6, 7, D),
                           grid ? DRAWN(1, 9, 11, D) : DRAWN(1, 80, D),
                           grid ? DRAWN(1, 9, 11, E) : DRAWN(1, 80, E),
                           DRAWN(1, 20),
                           grid ? DRAWN(1, 40, 11) : DRAWN(1, 80, 6),
                           grid ? DRAWN(1, 40, 9, 11) : DRAWN(1, 6, 80, 7) };
        eg_tensor *y[2], *d[2][6];
        for (int f = 0; f < 2; f++) {
            y[f] = eg_attention(
                grid ? "i d, s t d, s t e -> i e" : "x y d, j d, j e -> y x e", x[0], x[1], x[2],
                .where = grid ? "abs(i / 4 - s) + t < 12" : "abs(x - j / 9) + y < 9",
                .score = grid ? "score * r[abs(i % 7 - s) + t] + p[i, t]"
                              : "score * r[abs(x - j % 9) + y] + p[j, x]",
                .bias = { grid ? "ist" : "xjy", x[5] }, /* each element of which is read once */
                .with = { { "r", x[3] }, { "p", x[4] } }, .form = f ? EG_FUSED : EG_UNFUSED);
            ck_assert_msg(!eg_grad(eg_sum(NULL, eg_square(y[f])), NULL, 6, x, d[f]), "%s",
                          eg_error(cx));
        }
        near("grid", "y", y[1], y[0], 1e-13);
        for (int k = 0; k < 6; k++) near("grid", "cotangent", d[1][k], d[0][k], 1e-12);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}
/* Reads in which several indices vary along a row of a tile: positions relative to each query, on
 * images, by the types of tokens; tables of any strides, and clamped indices. */
typedef struct several_case {
    const char *name, *spec;
    int queries, keys, dims[5], order[5]; /* of the table w: sizes, and of which it is a view */
    const char *where, *score;
} several_case;
#define PLAIN "i h d, j h d, j h e -> i h e"
#define IMAGE "(y=5 x=7) h d, (s=9 t=5) h d, (s=9 t=5) h e -> (y=5 x=7) h e"
static const several_case several[] = {
    { "shaw", PLAIN, 35, 45, { 2, 35, 79 }, { 0, 1, 2 }, NULL, "score + w[h,i,i-j+44]" },
    { "causal", PLAIN, 35, 45, { 2, 35, 35 }, { 2, 0, 1 }, "j <= i", "score + w[h,i,i-j]" },
    { "clipped", PLAIN, 35, 45, { 35, 21, 2 }, { 1, 2, 0 }, NULL, "score * w[i,clip(i-j,0,20),h]" },
    { "types",
      PLAIN,
      35,
      45,
      { 4, 2, 80 },
      { 0, 2, 1 },
      NULL,
      "score + w[n[i],h,i+j] * w[n[j],h,(i*j)%70]" },
    { "wide",
      PLAIN,
      35,
      45,
      { 2, 35, 79 },
      { 1, 0, 2 },
      NULL,
      "score + w[h,(i*4000000000)%35,i-j+44]" },
    { "of lanes", IMAGE, 35, 45, { 5, 7, 2, 5 }, { 0, 1, 2, 3 }, NULL, "score + w[y,x,h,t]" },
    { "image", IMAGE, 35, 45, { 2, 13, 11 }, { 0, 1, 2 }, NULL, "score + w[h,y-s+8,x-t+4]" },
    { "far apart",
      PLAIN,
      35,
      45,
      { 35, 45, 60, 4, 2 },
      { 3, 1, 0, 4, 2 },
      "i + j < 60",
      "score + w[i,j,i+j,n[j],h]" },
};
LOOP_TEST(several_indices_along_a_row, 2 * sizeof several / sizeof *several)
{
    const several_case *c = &several[_i / 2];
    eg_ctx *cx = eg_open(.dtype = _i % 2 ? EG_F32 : EG_F64);
    int64_t type[45], dim[5];
    int rank = 0, back[5];
    for (int k = 0; k < 45; k++) type[k] = k * 7 % 4;
    while (rank < 5 && c->dims[rank]) rank++;
    for (int k = 0; k < rank; k++) dim[k] = c->dims[c->order[k]], back[c->order[k]] = k;
    eg_tensor *x[] = { eg_normal(cx, 0, 1, c->queries, 2, D), eg_normal(cx, 0, 1, c->keys, 2, D),
                       eg_normal(cx, 0, 1, c->keys, 2, E),
                       eg_normal_n(cx, EG_DEFAULT, 0, 1, rank, dim) },
              *t = eg_permute_n(x[3], rank, back), *y[2], *d[2][4];
    const eg_given n = strstr(c->score, "n[") ? (eg_given){ "n", eg_from(cx, type, 45) }
                                              : (eg_given){ NULL, NULL };
    for (int f = 0; f < 2; f++) {
        y[f] = eg_attention(c->spec, x[0], x[1], x[2], .where = c->where, .score = c->score,
                            .with = { { "w", t }, n }, .form = f ? EG_FUSED : EG_UNFUSED);
        ck_assert_msg(!eg_grad(eg_sum(NULL, eg_square(y[f])), NULL, 4, x, d[f]), "%s: %s", c->name,
                      eg_error(cx));
    }
    near(c->name, "y", y[1], y[0], _i % 2 ? 3e-5 : 1e-12);
    for (int k = 0; k < 4; k++) near(c->name, "cotangent", d[1][k], d[0][k], _i % 2 ? 3e-5 : 1e-12);
    eg_close(cx);
}
/* The limits of indices that follow from the predicate apply to the score. */
TEST(indices_out_of_a_table_are_accepted_where_the_pair_is_forbidden)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[] = { wave(cx, 0, 9, 3), wave(cx, 1, 9, 3), wave(cx, 2, 9, 2), wave(cx, 3, 9) },
              *y[2], *d[2][4];
    for (int form = EG_FUSED; form <= EG_UNFUSED; form++) {
        for (int k = 0; k < 2; k++) {
            y[k] = eg_attention("id,jd,je->ie", x[0], x[1], x[2], .where = "j <= i",
                                .score = k ? "score + r[clip(i - j, 0, 8)]" : "score + r[i - j]",
                                .with = { { "r", x[3] } }, .form = (eg_form)form);
            ck_assert_msg(!eg_grad(eg_sum(NULL, eg_square(y[k])), NULL, 4, x, d[k]), "%s",
                          eg_error(cx));
        }
        ck_assert(same_bits(y[0], y[1]));
        for (int k = 0; k < 4; k++) ck_assert(same_bits(d[0][k], d[1][k]));
    }
    eg_attention("id,jd,je->ie", x[0], x[1], x[2], .where = "j < i + 2",
                 .score = "score + r[i - j]", .with = { { "r", x[3] } });
    eg_assert_error(cx, "goes from -1 to 8, but that axis is 9");
    eg_close(cx);
}
/* The same text and shapes with other elements of an integer tensor. */
TEST(integer_values_are_read_in_every_call)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *q = wave(cx, 0, 6, 3), *k = wave(cx, 1, 8, 3), *v = wave(cx, 2, 8, 2),
              *r = wave(cx, 3, 4);
    for (int round = 0; round < 3; round++)
        for (int form = EG_FUSED; form <= EG_UNFUSED; form++) {
            eg_tensor *b = eg_from(cx, ((int[]){ 0, 3, 1, round ? 2 : 0, 0, 0, 2, 1 }), 8);
            eg_tensor *y = eg_attention("id,jd,je->ie", q, k, v, .score = "score + r[b[j]]",
                                        .with = { { "r", r }, { "b", b } }, .form = (eg_form)form);
            eg_tensor *z =
                eg_attention("id,jd,je->ie", q, k, v, .bias = { "j", eg_at("[r], j -> j", r, b) },
                             .form = (eg_form)form);
            eg_assert_close(y, z, 1e-14);
        }
    eg_assert_ok(cx);
    eg_attention(
        "id,jd,je->ie", q, k, v, .score = "score + r[b[j]]",
        .with = { { "r", r }, { "b", eg_from(cx, ((int[]){ 0, 3, 4, 0, 0, 0, 2, 1 }), 8) } });
    eg_assert_error(cx,
                    "attention: the index of axis 0 of 'r' goes from 0 to 4, but that axis is 4: "
                    "'j' is 8\n  score + r[b[j]]\n            ^^^^");
    eg_close(cx);
}
static eg_tensor *scored_text(void *form, eg_tensor *const *x)
{
    return eg_attention("ihd,jhd,jhe->ihe", x[0], x[1], x[2], .where = "j <= i + 1",
                        .score = "2 * tanh((score * u[h] + r[h, clip(i - j, 0, 3)]) / 2)",
                        .with = { { "r", x[3] }, { "u", x[4] } }, .sink = { "h", x[5] },
                        .form = *(eg_form *)form);
}
static eg_tensor *unnormalised(void *form, eg_tensor *const *x)
{
    return eg_attention("ihd,jhd,jhe->ihe", x[0], x[1], x[2], .where = "j <= i + 1",
                        .score = "sigmoid(score + u[h])", .with = { { "u", x[3] } },
                        .no_softmax = true, .form = *(eg_form *)form);
}
TEST(second_derivatives)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    for (eg_form form = EG_FUSED; form <= EG_UNFUSED; form++) {
        eg_assert_grad2(scored_text, &form, wave(cx, 0, 4, 2, 3), wave(cx, 1, 5, 2, 3),
                        wave(cx, 2, 5, 2, 2), wave(cx, 3, 2, 4), wave(cx, 4, 2), wave(cx, 5, 2));
        eg_assert_grad2(unnormalised, &form, wave(cx, 0, 4, 2, 3), wave(cx, 1, 5, 2, 3),
                        wave(cx, 2, 5, 2, 2), wave(cx, 4, 2));
    }
    eg_assert_ok(cx);
    eg_close(cx);
}
TEST(a_sink_is_a_key_without_a_value)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    operands o;
    draw_operands(&o, cx, EG_F64, 40, 40);
    for (int form = EG_FUSED; form <= EG_UNFUSED; form++) {
        eg_tensor *w, *lse;
        int64_t empty = -1;
        eg_tensor *y = eg_attention("bihd,bjhd,bjhe->bihe", o.q, o.k, o.v, .where = "j < i",
                                    .sink = { "h", o.sink }, .weights = &w, .lse = &lse,
                                    .empty = &empty, .form = (eg_form)form);
        eg_assert_ok(cx);
        ck_assert_int_eq(empty, 0);
        /* Σ w + e^(z − lse) = 1, and a row without keys is 0 with the log-sum-exp z */
        eg_tensor *rest = eg_on("bih,h", eg_sub, lse, o.sink);
        eg_assert_close(eg_add(eg_sum("b i h [j]", w), eg_exp(eg_neg(rest))), eg_ones_like(lse),
                        1e-13);
        ck_assert_double_eq(eg_item(eg_max(NULL, eg_abs(eg_slice_axis(y, 1, 0, 1, 1)))), 0);
        eg_assert_close(eg_reshape(eg_slice_axis(eg_slice_axis(lse, 0, 0, 1, 1), 1, 0, 1, 1), H),
                        o.sink, 1e-14);
        eg_tensor *dz, *by_lse[1];
        ck_assert(!eg_grad(eg_sum(NULL, lse), NULL, 1, &o.sink, by_lse));
        eg_assert_close(by_lse[0], eg_einsum("bih->h", eg_exp(eg_neg(rest))), 1e-12);
        (void)dz;
    }
    eg_close(cx);
}
/* Sets d[] to the gradients of Σ g y + Σ h lse, and dd[] to those of Σ cos(d) d. Returns the number
 * of operands, listed in x. */
static int slopes_of_both(const operands *o, const text_case *c, eg_form form, eg_tensor **x,
                          eg_tensor **d, eg_tensor **dd)
{
    eg_given with[9] = { { NULL, NULL } };
    eg_tensor *lse, *y = attended(o, c, form, &lse), *all = NULL;
    x[0] = o->q, x[1] = o->k, x[2] = o->v;
    int n = 3 + named(o, c->where, c->score, with, x + 3);
    if (c->sink) x[n++] = o->sink;
    eg_ctx *cx = eg_context(y);
    eg_tensor *g = eg_cast(wave(cx, .3, B, eg_dim(y, 1), H, E), eg_type(y)),
              *h = eg_cast(wave(cx, .7, B, eg_dim(y, 1), H), eg_type(y));
    eg_tensor *loss = eg_add(eg_sum(NULL, eg_mul(y, g)), eg_sum(NULL, eg_mul(lse, h)));
    ck_assert_msg(!eg_grad(loss, NULL, n, x, d), "%s: %s", c->name, eg_error(cx));
    for (int k = 0; k < n; k++) {
        eg_tensor *part = eg_sum(NULL, eg_mul(eg_cos(d[k]), d[k]));
        all = all ? eg_add(all, part) : part;
    }
    ck_assert_msg(!eg_grad(all, NULL, n, x, dd), "%s: %s", c->name, eg_error(cx));
    return n;
}
/* A loss of y and of the log-sum-exp has one backward pass: its gradients are views of one node. */
LOOP_TEST(y_and_log_sum_exp_have_one_backward_pass, CASES)
{
    const text_case *c = &cases[_i];
    for (int type = EG_F32; type <= EG_F64 && !c->no_softmax; type++) {
        eg_ctx *cx = eg_open(.dtype = (eg_dtype)type);
        const double tolerance = type == EG_F64 ? 1e-12 : 1e-4;
        operands o;
        draw_operands(&o, cx, (eg_dtype)type, 37, 37);
        eg_tensor *x[MOST], *d[2][MOST], *dd[2][MOST];
        slopes_of_both(&o, c, EG_UNFUSED, x, d[0], dd[0]);
        const int n = slopes_of_both(&o, c, EG_FUSED, x, d[1], dd[1]);
        for (int k = 0; k < n; k++) {
            char what[40];
            snprintf(what, sizeof what, "cotangent %d of both", k);
            near(c->name, what, d[1][k], d[0][k], tolerance);
            snprintf(what, sizeof what, "second derivative %d of both", k);
            if (!wild(c)) near(c->name, what, dd[1][k], dd[0][k], tolerance * 10);
            const eg_tensor *of = d[1][k];
            while (eg_operands(of) == 1) of = eg_operand(of, 0);
            if (k < 3) ck_assert_str_eq(eg_op_of(of)->name, "attention_gradient");
        }
        eg_assert_ok(cx);
        eg_close(cx);
    }
}
/* Constant factors of the score are part of the scale, with the same bits; a score that is read
 * elsewhere too, and a factor that is too large for floats, stay in the expression. */
TEST(constant_factors_are_part_of_the_scale)
{
    static const struct {
        const char *text, *rest; /* the same, without the factor */
        double factor;
    } same[] = { { "score / 30", NULL, 1 / 30. },
                 { "0.25 * score", NULL, .25 },
                 { "(score * -3) / 8", NULL, -3 * .125 },
                 { "30 * tanh(score / 30)", "30 * tanh(score)", 1 / 30. },
                 { "2 * score - u[h]", "score - u[h]", 2 },
                 { "score * score", "score * score", 1 },
                 { "score / 2 + tanh(score)", "tanh(score) + score * 0.5", 1 } };
    eg_ctx *cx = eg_open(.threads = 1, .seed = 8);
    operands o;
    draw_operands(&o, cx, EG_F32, Q, K);
    for (size_t c = 0; c < sizeof same / sizeof *same; c++)
        for (int form = EG_FUSED; form <= EG_UNFUSED; form++) {
            const eg_mark m = eg_push(cx);
            eg_tensor *x[] = { o.q, o.k, o.v }, *y[2], *d[2][3];
            const eg_given u = { strstr(same[c].text, "u[") ? "u" : NULL, o.u };
            for (int k = 0; k < 2; k++) {
                y[k] = eg_attention("bihd,bjhd,bjhe->bihe", o.q, o.k, o.v, .where = "j <= i + 20",
                                    .score = k ? same[c].rest : same[c].text, .with = { u },
                                    .scale = 1 / sqrt(D) * (k ? same[c].factor : 1), .form = form);
                ck_assert_int_eq(eg_grad(y[k], eg_ones_like(y[k]), 3, x, d[k]), 0);
            }
            eg_assert_ok(cx);
            ck_assert_msg(same_bits(y[0], y[1]), "%s, form %d", same[c].text, form);
            for (int k = 0; k < 3; k++)
                ck_assert_msg(same_bits(d[0][k], d[1][k]), "%s, form %d, cotangent %d",
                              same[c].text, form, k);
            eg_pop(cx, m);
        }
    eg_tensor *y =
        eg_attention("bihd,bjhd,bjhe->bihe", o.q, o.k, o.v, .score = "clip(score * 3e38, -1, 1)");
    ck_assert(isfinite(eg_item(eg_sum(NULL, y))));
    eg_close(cx);
}

/* One backward pass of y and the log-sum-exp where these have no axes. */
TEST(one_query_without_axes)
{
    for (int form = EG_FUSED; form <= EG_UNFUSED; form++) {
        eg_ctx *cx = eg_open(.dtype = EG_F64);
        eg_tensor *q = wave(cx, .3, 4), *k = wave(cx, .5, 7, 4), *v = wave(cx, .9, 7), *lse,
                  *y = eg_attention("d,jd,j->", q, k, v, .lse = &lse, .form = (eg_form)form),
                  *p = eg_softmax("[j]", eg_scale(eg_einsum("d,jd->j", q, k), .5)), *d[3];
        ck_assert(!eg_grad(eg_add(y, lse), NULL, 3, (eg_tensor *[]){ q, k, v }, d));
        eg_assert_close(y, eg_einsum("j,j->", p, v), 1e-14);
        eg_assert_close(lse, eg_logsumexp("[j]", eg_scale(eg_einsum("d,jd->j", q, k), .5)), 1e-14);
        eg_assert_close(d[2], p, 1e-14);
        eg_tensor *ds =
            eg_mul(p, eg_add(eg_sub(v, eg_expand(eg_reshape(y, 1), 7)), eg_ones_like(v)));
        eg_assert_close(d[0], eg_scale(eg_einsum("j,jd->d", ds, k), .5), 1e-14);
        eg_close(cx);
    }
}
/* a tensor may have as many axes as the scores, whatever the form */
LOOP_TEST(scores_of_many_letters, 2)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *q = eg_normal(cx, 0, 1, 2, 1, 2, 1, 2, 1, 2, 3, 2, 3), *g[2][5], *h[2][5],
              *k = eg_normal(cx, 0, 1, 2, 1, 2, 1, 2, 1, 2, 4, 2, 3),
              *v = eg_normal(cx, 0, 1, 2, 1, 2, 1, 2, 1, 2, 4, 2, 3), *u = eg_normal(cx, 0, 1, 2),
              *r = eg_normal(cx, 0, 1, 2, 1, 2, 1, 2, 1, 2, 3, 2, 4), *few[5],
              *xs[] = { q, k, v, r, u }, *w,
              *keep = eg_gt(eg_uniform(cx, 0, 1, 2, 1, 2, 1, 2, 1, 2, 2, 4), eg_scalar(cx, .3));
    const eg_form form = _i ? EG_FUSED : EG_UNFUSED;
    eg_tensor *y = eg_attention("abcdefgihx,abcdefgjhx,abcdefgjhy->abcdefgihy", q, k, v,
                                .where = "j <= i + h", .score = "tanh(score + u[g] * (i - j))",
                                .with = { { "u", u } }, .bias = { "abcdefgihj", r },
                                .keep = { "abcdefghj", keep }, .weights = &w, .form = form);
    eg_assert_ok(cx);
    for (int x = 0; x < 4; x++)
        few[x] = eg_reshape(xs[x], 8, 2, x == 1 || x == 2 ? 4 : 3, 2, x == 3 ? 4 : 3);
    eg_tensor *same = eg_attention("bgihx,bgjhx,bgjhy->bgihy", few[0], few[1], few[2],
                                   .where = "j <= i + h", .score = "tanh(score + u[g] * (i - j))",
                                   .with = { { "u", u } }, .bias = { "bgihj", few[3] },
                                   .keep = { "bghj", eg_reshape(keep, 8, 2, 2, 4) }, .form = form);
    eg_tensor *seed = eg_normal(cx, 0, 1, 8, 2, 3, 2, 3);
    eg_assert_close(eg_reshape(y, 8, 2, 3, 2, 3), same, 1e-13);
    ck_assert(!eg_grad(eg_reshape(y, 8, 2, 3, 2, 3), seed, 5, xs, g[0]));
    ck_assert(!eg_grad(same, seed, 5, xs, g[1]));
    for (int x = 0; x < 5; x++) eg_assert_close(g[0][x], g[1][x], 1e-12);
    for (int f = 0; f < 2; f++) ck_assert(!eg_grad(g[f][3], g[f][3], 5, xs, h[f]));
    for (int x = 0; x < 5; x++) eg_assert_close(h[0][x], h[1][x], 1e-12);
    eg_assert_close(eg_expr("a b c d e f g i h j", "r[a,b,c,d,e,f,g,i,h,j] * u[g]",
                            .with = { { "r", r }, { "u", u } }),
                    eg_on("abcdefgihj,g->abcdefgihj", eg_mul, r, u), 1e-15);
    eg_close(cx);
}
/* The length of a text is limited by the form that needs more nodes, so the choice of the form
 * refuses nothing. */
TEST(the_longest_score_is_one_for_both_forms)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *q = eg_normal(cx, 0, 1, 3, 2), *y;
    int longest[2] = { 0, 0 };
    for (int form = 0; form < 2; form++)
        for (int parts = 100; parts < 140; parts++) {
            char text[2000] = "score";
            for (int k = 0; k < parts; k++)
                snprintf(text + strlen(text), sizeof text - strlen(text), "+%d.5", k);
            y = eg_attention("id,jd,je->ie", q, q, q, .score = text,
                             .form = form ? EG_FUSED : EG_UNFUSED);
            if (eg_ok(y)) longest[form] = parts;
            if (!eg_ok(y)) eg_assert_error(cx, "attention: the score is too long");
        }
    ck_assert_int_eq(longest[0], longest[1]);
    ck_assert_int_gt(longest[0], 110);
    eg_close(cx);
}
/* lengths that are also read by name have separate bounds */
TEST(lengths_that_a_text_reads)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *q = eg_normal(cx, 0, 1, 2, 5, 3), *n = eg_from(cx, ((int[]){ 2, 3 }), 2),
              *r = eg_normal(cx, 0, 1, 4);
    for (int late = 0; late < 2; late++) {
        eg_tensor *y = eg_attention("bid,bjd,bje->bie", q, q, q, .lengths = { "b", n },
                                    .score = "score + r[n[b]] * j",
                                    .with = { { "n", n }, { "r", r } }),
                  *z = eg_attention("bid,bjd,bje->bie", q, q, q, .where = "j < n[b]",
                                    .score = "score + r[n[b]] * j",
                                    .with = { { "n", n }, { "r", r } });
        eg_assert_ok(cx);
        eg_assert_close(y, z, 1e-14);
        eg_fill(n, 3); /* found in the cache of plans */
    }
    eg_fill(n, 4);
    eg_attention("bid,bjd,bje->bie", q, q, q, .lengths = { "b", n }, .score = "score + r[n[b]] * j",
                 .with = { { "n", n }, { "r", r } });
    eg_assert_error(cx, "the index of axis 0 of 'r' goes from 4 to 4, but that axis is 4");
    eg_close(cx);
}
/* a sink of −∞ has no effect, one of ∞ takes all the weight, one of NaN makes rows NaN; a bias of ∞
 * divides the weight among its pairs; both forms alike, gradients too */
LOOP_TEST(sinks_and_biases_that_are_infinite, 9)
{
    const double values[] = { -INFINITY, INFINITY, NAN }, value = values[_i % 3];
    const bool is_sink = _i % 6 < 3, empty = _i >= 6; /* some rows have no keys */
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    operands o;
    draw_operands(&o, cx, EG_F64, 40, 40);
    eg_tensor *t = is_sink ? eg_normal(cx, 0, 1, H) : eg_normal(cx, 0, 1, 40), *y[2], *d[2][4],
              *xs[] = { o.q, o.k, o.v, t }, *plain, *seed = eg_normal(cx, 0, 1, B, 40, H, E), *lse;
    eg_fill(eg_slice_axis(t, 0, 0, 1, 1), value);
    for (int form = 0; form < 2; form++) {
        eg_attention_args a = { .size = sizeof a,
                                .spec = "bihd,bjhd,bjhe->bihe",
                                .q = o.q,
                                .k = o.k,
                                .v = o.v,
                                .where = empty ? "j <= i - 3" : NULL,
                                .lse = &lse,
                                .form = form ? EG_UNFUSED : EG_FUSED };
        *(is_sink ? &a.sink : &a.bias) = (eg_masked){ is_sink ? "h" : "j", t };
        y[form] = eg_attention_with(&a);
        eg_assert_ok(cx);
        ck_assert(!eg_grad(y[form], seed, 4, xs, d[form]));
    }
    const double *a = eg_f64(y[0]), *b = eg_f64(y[1]);
    for (int64_t k = 0; k < eg_size(y[0]); k++)
        ck_assert(isnan(a[k]) == isnan(b[k]) && !(fabs(a[k] - b[k]) > 1e-12));
    for (int x = 0; x < 4; x++) {
        a = eg_f64(d[0][x]), b = eg_f64(d[1][x]);
        for (int64_t k = 0; k < eg_size(xs[x]); k++)
            ck_assert_msg(isnan(a[k]) == isnan(b[k]) && !(fabs(a[k] - b[k]) > 1e-11),
                          "cotangent %d at %d: %g and %g", x, (int)k, a[k], b[k]);
    }
    eg_tensor *first = eg_select_axis(y[0], is_sink ? 2 : 1, 0);
    if (isnan(value)) {
        ck_assert(isnan(eg_get(first, 0, empty ? 3 : 0, 0)));
        if (empty) ck_assert_double_eq(eg_get(first, 0, 2, 0), 0); /* it has no keys */
        ck_assert(isnan(eg_get(y[0], 0, 1, is_sink ? 1 : 0, 0)) == !is_sink);
    } else if (is_sink) {
        plain = value < 0 ? eg_select_axis(eg_attention("bihd,bjhd,bjhe->bihe", o.q, o.k, o.v,
                                                        .where = empty ? "j <= i - 3" : NULL),
                                           2, 0)
                          : eg_zeros_like(first);
        eg_assert_close(eg_contiguous(first), eg_contiguous(plain), 1e-13);
        ck_assert(!any_nan(d[0][0]) && !any_nan(d[0][3]));
    } else if (value > 0) {
        eg_assert_close(eg_contiguous(first), eg_contiguous(eg_select_axis(o.v, 1, 0)), 1e-13);
    }
    eg_close(cx);
}
/* The sink is an additional key: with n scores of ∞ and a sink of ∞ each has 1/(n + 1) of the
 * weight. */
LOOP_TEST(infinite_scores_share_with_an_infinite_sink, 8)
{
    const eg_dtype type = _i & 1 ? EG_F32 : EG_F64;
    const bool masked = _i & 2, scored = _i & 4;
    const double tolerance = type == EG_F32 ? 1e-6 : 1e-14;
    eg_ctx *cx = eg_open(.dtype = type);
    eg_tensor *x[] = { DRAWN(1, 40, 3), DRAWN(1, 50, 3), DRAWN(1, 50, 2), DRAWN(1, 50),
                       DRAWN(1, 40) },
              *seed = DRAWN(1, 40, 2), *y[2], *w[2], *lse[2], *d[2][5];
    for (int j = 4; j < 50; j += 9) put(x[3], INFINITY, j);
    for (int i = 0; i < 40; i += 3) put(x[4], INFINITY, i);
    for (int form = 0; form < 2; form++) {
        eg_attention_args a = { .size = sizeof a,
                                .spec = "id,jd,je->ie",
                                .q = x[0],
                                .k = x[1],
                                .v = x[2],
                                .where = masked ? "j <= i" : NULL,
                                .sink = { "i", x[4] },
                                .weights = &w[form],
                                .lse = &lse[form],
                                .form = form ? EG_UNFUSED : EG_FUSED };
        if (scored)
            a.score = "score + r[j]", a.with[0] = (eg_given){ "r", x[3] };
        else
            a.bias = (eg_masked){ "j", x[3] };
        y[form] = eg_attention_with(&a);
        ck_assert_msg(!eg_grad(y[form], seed, 5, x, d[form]), "%s", eg_error(cx));
    }
    for (int i = 0; i < 40; i += 3) {
        int n = 0;
        double sum = 0;
        for (int j = 4; j <= (masked ? i : 49); j += 9) n++, sum += eg_get(x[2], j, 0);
        for (int form = 0; form < 2; form++) {
            ck_assert_double_eq_tol(eg_get(y[form], i, 0), sum / (n + 1), tolerance);
            if (n) ck_assert_double_eq_tol(eg_get(w[form], i, 4), 1. / (n + 1), tolerance);
            ck_assert(eg_get(lse[form], i) == INFINITY);
        }
    }
    eg_assert_close(y[0], y[1], tolerance);
    for (int k = 0; k < 5; k++) eg_assert_close(d[0][k], d[1][k], 20 * tolerance);
    eg_close(cx);
}
/* What no allowed pair reads has the cotangent 0, also where its derivative is infinite or NaN: for
 * keys, for queries, and for both. */
LOOP_TEST(derivatives_of_what_no_allowed_pair_reads, 2)
{
    static const struct {
        const char *where, *score;
    } texts[] = { { "j < 40", "score + log(u[j])" },
                  { "i > 0", "score + log(w[i])" },
                  { "j < 40 & i > 0", "score * sqrt(u[j]) + log(w[i]) * log(u[j])" },
                  { "j < 40 & i > 0", "score + log(u[j]) * log(w[i]) + pow(w[i], 0.5) * u[i]" } };
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *q = eg_normal(cx, 0, 1, 40, 3), *k = eg_normal(cx, 0, 1, 50, 3), *d[6],
              *u = eg_ones(cx, 50), *w = eg_ones(cx, 40), *x[] = { q, k, k, u, w };
    for (int j = 40; j < 50; j++) put(u, 0, j);
    put(w, 0, 0);
    for (int t = 0; t < 4; t++) {
        eg_attention_args a = { .size = sizeof a,
                                .spec = "id,jd,je->ie",
                                .q = q,
                                .k = k,
                                .v = k,
                                .where = texts[t].where,
                                .score = texts[t].score,
                                .form = _i ? EG_FUSED : EG_UNFUSED };
        int n = 0;
        if (strstr(a.score, "u[")) a.with[n++] = (eg_given){ "u", u };
        if (strstr(a.score, "w[")) a.with[n++] = (eg_given){ "w", w };
        ck_assert_msg(!eg_grad(eg_sum(NULL, eg_square(eg_attention_with(&a))), NULL, 5, x, d), "%s",
                      eg_error(cx));
        for (int p = 0; p < 5; p++) ck_assert_msg(!any_nan(d[p]), "%s: cotangent %d", a.score, p);
        for (int j = 40; j < 50; j++) ck_assert_double_eq(eg_get(d[3], j), 0);
    }
    /* no pair is allowed */
    eg_tensor *z = eg_full_n(cx, EG_F64, 0, 0, NULL);
    ck_assert(
        !eg_grad(eg_sum(NULL, eg_attention("id,jd,je->ie", q, k, k, .where = "i < 0",
                                           .score = "score + log(z[])", .with = { { "z", z } },
                                           .form = _i ? EG_FUSED : EG_UNFUSED)),
                 NULL, 1, &z, d));
    ck_assert_double_eq(eg_item(d[0]), 0);
    eg_close(cx);
}
static eg_tensor *mixed(void *m, eg_tensor *s) { return eg_einsum("bihj,hg->bigj", s, m); }
typedef struct heads_mixed {
    eg_tensor *before, *after;
} heads_mixed;
static eg_tensor *mixed_before(void *m, eg_tensor *s)
{
    return mixed(((heads_mixed *)m)->before, s);
}
static eg_tensor *mixed_after(void *m, eg_tensor *w) { return mixed(((heads_mixed *)m)->after, w); }
TEST(talking_heads_in_one_call)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    operands o;
    draw_operands(&o, cx, EG_F64, 12, 14);
    heads_mixed m = { wave(cx, 0, H, H), wave(cx, 1, H, H) };
    eg_tensor *w, *y = eg_attention("bihd,bjhd,bjhe->bihe", o.q, o.k, o.v, .where = "j <= i",
                                    .score_fn = mixed_before, .weights_fn = mixed_after, .user = &m,
                                    .weights_axes = "bihj", .weights = &w);
    eg_tensor *s = mixed(m.before, eg_scale(eg_einsum("bihd,bjhd->bihj", o.q, o.k), 1 / sqrt(D)));
    eg_tensor *v = mixed(m.after, eg_softmax("b i h [j]", s, .where = "j <= i"));
    eg_assert_close(w, v, 1e-14);
    eg_assert_close(y, eg_einsum("bihj,bjhe->bihe", v, o.v), 1e-14);
    eg_attention("bihd,bjhd,bjhe->bihe", o.q, o.k, o.v, .weights_fn = mixed_after, .user = &m,
                 .form = EG_FUSED);
    eg_assert_error(cx, "attention: .form is EG_FUSED, but .weights_fn works on weights in memory");
    eg_close(cx);
}

/* -- refusals --------------------------------------------------------------------------------- */
GROUP("refusals")
/* an index of the values alone is none of the scores: the message says how it becomes one */
TEST(an_index_of_the_values_alone)
{
    eg_ctx *cx = eg_open();
    eg_tensor *q = eg_ones(cx, 2, 4, 3), *k = eg_ones(cx, 2, 5, 3), *v = eg_ones(cx, 2, 5, 4, 6),
              *r = eg_ones(cx, 4);
    ck_assert(!eg_ok(eg_attention("bid,bjd,bjhe->bihe", q, k, v, .score = "score * r[h]",
                                  .with = { { "r", r } })));
    eg_assert_error(cx,
                    "attention: the score's name 'h' is not one of 'b', 'i', 'j', 'r'\n  score * "
                    "r[h]\n            ^\n  only the values have it: repeat the query over it "
                    "(eg_rearrange) for scores of its own");
    ck_assert(!eg_ok(eg_attention("bid,bjd,bjhe->bihe", q, k, v, .where = "j <= h")));
    eg_assert_error(cx, "'h' is not one of 'b', 'i', 'j'\n  j <= h\n       ^\n  only the values");
    /* … for every option with letters, and for no index that query and key have */
    eg_tensor *y;
#define REFUSED(says, ...)                                        \
    y = eg_attention("bid,bjd,bjhe->bihe", q, k, v, __VA_ARGS__); \
    ck_assert(!eg_ok(y) && strstr(eg_error(cx), says)), eg_clear(cx)
    REFUSED("'h' of .bias is not an index of the scores; only the values have it: repeat the "
            "query over it (eg_rearrange)",
            .bias = { "h", r });
    REFUSED("'h' of .alibi is not an index of the scores; only the values", .alibi = { "h", r });
    REFUSED("'h' of .sink is not an index of the scores; only the values", .sink = { "h", r });
    REFUSED("'h' of .keep is not an index of the scores; only the values",
            .keep = { "h", eg_gt(r, r) });
    REFUSED("'h' of .lengths is not an index of the scores; only the values",
            .lengths = { "h", eg_cast(r, EG_I64) });
    REFUSED("'d' of .bias is not an index of the scores\n", .bias = { "d", eg_ones(cx, 3) });
    REFUSED("index 'h' of .weights_axes is not an index of the weights", .weights = &y,
            .weights_axes = "b i j h");
#undef REFUSED
    eg_close(cx);
}
TEST(malformed_expressions_are_refused)
{
    eg_ctx *cx = eg_open();
    eg_tensor *q = eg_ones(cx, 2, 4, 3), *k = eg_ones(cx, 2, 5, 3), *v = eg_ones(cx, 2, 5, 6),
              *r = eg_ones(cx, 4), *n = eg_from(cx, ((int[]){ 0, 1, 2, 3, 4 }), 5);
#define REFUSED(says, ...)                                                     \
    ck_assert(!eg_ok(eg_attention("bid,bjd,bje->bie", q, k, v, __VA_ARGS__))); \
    eg_assert_error(cx, says)
    REFUSED(
        "attention: the score's index 'd' is not one of 'b', 'i', 'j'\n  score * d\n          ^",
        .score = "score * d");
    REFUSED("is 'score' meant?", .score = "scor * 2");
    REFUSED("\n  scor * 2\n  ^^^^", .score = "scor * 2");
    REFUSED("is 'doc' meant?", .where = "dc[j] < 2", .with = { { "doc", n } });
    REFUSED("give the tensor in .with", .score = "ex[i] + r[i]", .with = { { "r", r } });
    REFUSED("the score is a condition, not a number", .score = "j <= i");
    REFUSED("the predicate is a number, not a condition", .where = "j - i");
    REFUSED(
        "attention: the index of axis 0 of 'r' goes from -4 to 3, but that axis is 4: 'i' is 4, "
        "'j' is 5\n  score + r[i - j]\n            ^^^^^",
        .score = "score + r[i - j]", .with = { { "r", r } });
    /* r is long enough for the pairs that the predicate allows, z is not */
    REFUSED("attention: the index of axis 0 of 'z' goes from 0 to 3, but that axis is 3: 'i' is 4, "
            "'j' is 5\n  score + r[i - j] + z[i - j]\n                     ^^^^^^^^",
            .score = "score + r[i - j] + z[i - j]", .where = "j <= i",
            .with = { { "r", r }, { "z", eg_ones(cx, 3) } });
    REFUSED("'r' is f32, and a predicate reads integers and booleans", .where = "r[i] < 2",
            .with = { { "r", r } });
    REFUSED("attention: 'n' of .with is not used in .where or .score", .score = "score * 2",
            .with = { { "n", n } });
    REFUSED("attention: 'j' is a letter and cannot be a tensor's name too\n  j <= i\n  ^",
            .where = "j <= i", .with = { { "j", n } });
    REFUSED("attention: 'n' of .with is NULL", .where = "n[j] <= i", .with = { { "n", NULL } });
    REFUSED("attention: the query is f32 but 'r' of .with is f64; eg_cast one of them\n"
            "  score + r[i]\n          ^",
            .score = "score + r[i]", .with = { { "r", eg_cast(r, EG_F64) } });
    REFUSED("attention: .lse needs a softmax, but .no_softmax is given", .no_softmax = true,
            .lse = &(eg_tensor *){ NULL });
    REFUSED("attention: .sink needs a softmax", .no_softmax = true,
            .sink = { "b", eg_ones(cx, 2) });
    REFUSED("the sink is one more key of each query and has no index 'j'",
            .sink = { "j", eg_ones(cx, 5) });
    REFUSED("attention: .sink is f64 but the scores are f32",
            .sink = { "b", eg_cast(eg_ones(cx, 2), EG_F64) });
    REFUSED("goes from 2 to 5, but that axis is 4: 'i' is 4, .offset is 2\n",
            .score = "score + r[i]", .with = { { "r", r } }, .offset = 2);
    REFUSED("attention: the score is empty", .score = "");
    REFUSED("attention: the score is empty", .score = " \t");
    /* a table of positions may be longer than the call; a batch that is never read is a mistake */
    REFUSED("attention: axis 0 of 'r' is 4, but index 'b' is 2\n  score + r[b]\n          ^^^^",
            .score = "score + r[b]", .with = { { "r", r } });
    REFUSED("attention: axis 0 of 'n' is 5, but index 'b' is 2", .where = "n[b] < j",
            .with = { { "n", n } });
    ck_assert(eg_ok(eg_attention("bid,bjd,bje->bie", q, k, v, .where = "n[i] >= j",
                                 .score = "score + r[b + 1]", .with = { { "n", n }, { "r", r } })));
    eg_tensor *none = eg_ones(cx, 2, 4, 0);
    for (int form = EG_FORM_BY_SIZE; form <= EG_UNFUSED; form++) {
        ck_assert(!eg_ok(eg_attention("bid,bjd,bje->bie", none, none, q, .form = (eg_form)form)));
        eg_assert_error(
            cx, "attention: 'd' is 0, so the default scale 1/√0 is not finite; give .scale");
        eg_assert_close(eg_attention("bid,bjd,bje->bie", none, none, q, .scale = 1), q, 1e-6);
    }
    /* a tensor of .with is called by its name */
    eg_ctx *elsewhere = eg_open();
    REFUSED("attention: 'r' of .with belongs to another context", .score = "score + r[i]",
            .with = { { "r", eg_ones(elsewhere, 4) } });
    eg_close(elsewhere);
    REFUSED("attention: 'r' is a tensor, and its indices are missing\n  score + r\n          ^\n  "
            "write r[…]",
            .score = "score + r", .with = { { "r", r } });
    REFUSED("write r[]", .score = "score + r", .with = { { "r", eg_scalar(cx, 1) } });
    REFUSED("a predicate does not depend on scores", .where = "score > 0");
    REFUSED("eg_expr makes a bool tensor of a condition on floats", .where = "r[i] < 2",
            .with = { { "r", r } });
    REFUSED("no expression has an index that it could move", .offset = 3);
    q = eg_cast(q, EG_I32);
    REFUSED("attention: the query is i32; cast it to f32 or f64 first", .no_softmax = true);
    eg_close(cx);
}

/* Neighbours in windows that stay inside of the sequence: |i − j| follows from a clip. */
TEST(a_predicate_with_clip_bounds_an_index_of_the_score)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_tensor *x = eg_normal(cx, 0, 1, 2, 12, 4), *r = eg_normal(cx, 0, 1, 9), *y[2];
    const char *scores[] = { "score + r[i - j + 4]", "score + r[clip(i - j + 4, 0, 8)]" };
    for (int k = 0; k < 2; k++)
        y[k] =
            eg_attention("bid,bjd,bje->bie", x, x, x, .where = "abs(clip(i, 2, |i| - 3) - j) <= 2",
                         .score = scores[k], .with = { { "r", r } });
    eg_assert_ok(cx);
    eg_assert_close(y[0], y[1], 0);
    eg_close(cx);
}
/* A network of the distance and the query's position (FIRE, Li et al. 2023) and an additive score
 * (Bahdanau et al. 2015; GATv2) are sums over a letter that is neither a query's nor a key's. They
 * are compared with scores in memory, in both forms, with a mask by a list of blocks (BigBird). */
TEST(scores_that_sum_over_a_letter)
{
    enum { N = 40, F = 5 };
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    eg_tensor *x[7] = { eg_normal(cx, 0, 1, N, 2, 3), eg_normal(cx, 0, 1, N, 2, 3),
                        eg_normal(cx, 0, 1, N, 2, 3), eg_normal(cx, 0, 1, F),
                        eg_normal(cx, 0, 1, F),       eg_normal(cx, 0, 1, 2, F),
                        eg_normal(cx, 0, 1, 2, 3) };
    eg_tensor *block = eg_randint(cx, 0, 5, 5, 2), *want[7], *got[7];
    eg_tensor *hidden =
        eg_expr("i=40 j=40 f", "max(w[f] * log(1 + max(i - j, 0)) / log(2 + i) + a[f], 0)",
                .with = { { "w", x[3] }, { "a", x[4] } });
    eg_tensor *fire = eg_einsum("ijf,hf->hij", hidden, x[5]);
    eg_tensor *sum = eg_expr("h i j d", "tanh(q[i, h, d] + k[j, h, d])",
                             .with = { { "q", x[0] }, { "k", x[1] } });
    eg_tensor *bias = eg_add(fire, eg_einsum("hijd,hd->hij", sum, x[6]));
    eg_tensor *g = eg_normal(cx, 0, 1, N, 2, 3);
    eg_tensor *y =
        eg_attention("ihd,jhd,jhe->ihe", x[0], x[1], x[2], .bias = { "hij", bias },
                     .where = "j <= i & (j/8 == r[i/8, 0] | j/8 == r[i/8, 1] | i/8 == j/8)",
                     .with = { { "r", block } }, .form = EG_UNFUSED);
    ck_assert_int_eq(eg_grad(y, g, 7, x, want), 0);
    for (int form = EG_FUSED; form <= EG_UNFUSED; form++) {
        eg_tensor *z = eg_attention(
            "ihd,jhd,jhe->ihe", x[0], x[1], x[2], .form = (eg_form)form,
            .where = "j <= i & (any(n, j/8 == r[i/8, n]) | i/8 == j/8)",
            .score = "score + sum(f, u[h,f] * max(w[f] * log(1 + i - j) / log(2 + i) + a[f], 0)) "
                     "+ sum(d, v[h,d] * tanh(x[i,h,d] + y[j,h,d]))",
            .with = { { "r", block },
                      { "w", x[3] },
                      { "a", x[4] },
                      { "u", x[5] },
                      { "v", x[6] },
                      { "x", x[0] },
                      { "y", x[1] } });
        eg_assert_close(z, y, 1e-12);
        ck_assert_int_eq(eg_grad(z, g, 7, x, got), 0);
        for (int k = 0; k < 7; k++) eg_assert_close(got[k], want[k], 1e-11);
    }
    eg_assert_ok(cx);
    eg_close(cx);
}

/* -- memory ----------------------------------------------------------------------------------- */
GROUP("memory", .timeout = 120)
TEST(each_allocation_may_fail)
{
    int left = 0;
    for (int most = 0, done = 0; !done; most++) {
        left = most;
        eg_ctx *cx = eg_open(.realloc = failing, .user = &left, .threads = 1, .dtype = EG_F64);
        if (!cx) continue;
        eg_tensor *x[] = { eg_ones(cx, 40, 2, 4), eg_ones(cx, 60, 2, 4), eg_ones(cx, 60, 2, 4),
                           eg_ones(cx, 2, 8), eg_ones(cx, 2) },
                  *d[5], *dd[5];
        eg_tensor *n = eg_randint(cx, 0, 3, 60);
        eg_tensor *y = eg_attention(
            "ihd,jhd,jhe->ihe", x[0], x[1], x[2], .where = "j <= i & n[i] == n[j]",
            .score = "tanh(score + r[h, clip(i - j, 0, 7)])", .with = { { "n", n }, { "r", x[3] } },
            .sink = { "h", x[4] }, .form = EG_FUSED);
        const int failed = eg_grad(y, y, 5, x, d) || eg_grad(d[3], d[3], 5, x, dd);
        done = !failed && !eg_error(cx);
        if (!done)
            ck_assert_msg(eg_error(cx) && strstr(eg_error(cx), "memory"), "%s", eg_error(cx));
        left = 1 << 30;
        eg_close(cx);
        ck_assert_int_lt(most, 6000); /* with a malloc for each tensor there are more */
    }
}
/* The cotangent of a table of positions and distances (Transformer-XL) is added up in place: no
 * sums in f64 are as large as the table. It is that of the unfused form, for any number of threads.
 */
TEST(a_table_of_positions_and_distances_is_summed_in_place)
{
    enum { N = 1024 };
    eg_tensor *dr[3];
    eg_ctx *cx[3];
    for (int k = 0; k < 3; k++) {
        cx[k] = eg_open(.threads = k + 1, .seed = 2);
        eg_tensor *q = eg_normal(cx[k], 0, 1, N, 8), *r = eg_normal(cx[k], 0, 1, N, N),
                  *y = eg_attention("id,jd,je->ie", q, q, q, .where = "j <= i",
                                    .score = "score + r[i, i - j]", .with = { { "r", r } },
                                    .form = k ? EG_FUSED : EG_UNFUSED);
        const size_t before = eg_stats(cx[k]).bytes;
        ck_assert_int_eq(eg_grad(y, eg_ones_like(y), 1, &r, &dr[k]), 0);
        if (k) ck_assert_uint_lt(eg_stats(cx[k]).peak - before, 2 * N * N * sizeof(float));
        eg_assert_close(eg_from(cx[0], eg_f32(dr[k]), N, N), dr[0], k ? 1e-5 : 0);
        if (k == 2) eg_assert_close(eg_from(cx[1], eg_f32(dr[2]), N, N), dr[1], 0);
    }
    for (int k = 0; k < 3; k++) eg_close(cx[k]);
}
/* Except for operands and results no memory grows with queries × keys. */
TEST(memory_grows_with_the_length_alone)
{
    static const int which[] = { 0, 1, 4, 5, 6, 7, 13, 17 };
    for (size_t w = 0; w < sizeof which / sizeof *which; w++) {
        const text_case *c = &cases[which[w]];
        size_t peak[2];
        for (int big = 0; big < 2; big++) {
            const int n = big ? 1024 : 512;
            eg_ctx *cx = eg_open(.threads = 1);
            operands o;
            eg_tensor *x[MOST], *d[MOST];
            draw_operands(&o, cx, EG_F32, n, n);
            o.t = NULL;
            eg_stats_reset(cx);
            const size_t before = eg_stats(cx).used;
            all_gradients(&o, c, attended(&o, c, EG_FUSED, NULL), x, d);
            eg_assert_ok(cx);
            peak[big] = eg_stats(cx).used_peak - before;
            eg_close(cx);
        }
        ck_assert_msg(peak[1] < 2.5 * (double)peak[0] + 1e5, "%s: %zu, then %zu bytes", c->name,
                      peak[0], peak[1]);
    }
}
