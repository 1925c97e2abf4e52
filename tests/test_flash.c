/* test_flash.c: fused attention against the composed form: values and all gradients for every kind of mask, layout and width, across the
 * edges of blocks and panels; the same bits for any number of threads; memory. */
#include "tests.h"
#include "wave.h"

/* -- cases ------------------------------------------------------------------------------------------------------------------------ */
typedef struct made { eg_tensor *x[4], *keep, *lengths; } made;         /* q k v; bias or slopes                                        */
typedef struct flash_case {
    const char *name, *spec, *shape[4];                                 /* letters with sizes: "b=2 i=70 d=5", or NULL: no bias         */
    const char *bias, *alibi, *keep, *lengths, *where;                  /* letters                                                     */
    int64_t offset;
    double scale, dropout;
} flash_case;
static const flash_case cases[] = {
    { "plain", "id,jd,je->ie", { "70 5", "131 5", "131 3" }, .scale = 0 },
    { "one query", "id,jd,je->ie", { "1 5", "300 5", "300 3" }, .where = "j <= i", .offset = 290 },
    { "one key", "id,jd,je->ie", { "300 5", "1 5", "1 3" }, .where = "j <= i" },
    { "width 1", "id,jd,je->ie", { "33 1", "40 1", "40 1" }, .scale = 0 },
    { "no width of value", "id,jd,j->i", { "33 4", "40 4", "40" }, .scale = 0 },
    { "wide", "id,jd,je->ie", { "40 300", "50 300", "50 290" }, .scale = 0 },
    { "causal, several blocks", "bhid,bhjd,bhje->bhie", { "1 2 600 8", "1 2 600 8", "1 2 600 6" }, .where = "j <= i" },
    { "causal, aligned at the end", "ibhd,jbhd,jbhe->ibhe", { "90 2 2 4", "400 2 2 4", "400 2 2 5" }, .where = "j - |j| <= i - |i|" },
    { "window", "bihd,bjhd,bjhe->bihe", { "1 700 2 4", "1 700 2 4", "1 700 2 5" }, .where = "i - 100 < j <= i" },
    { "dilated", "id,jd,je->ie", { "280 4", "300 4", "300 4" }, .where = "(i - j) % 3 == 0" },
    { "blocks", "id,jd,je->ie", { "280 4", "300 4", "300 4" }, .where = "i/64 == j/64" },
    { "prefix", "id,jd,je->ie", { "280 4", "300 4", "300 4" }, .where = "j <= i | j < 10" },
    { "two stripes", "id,jd,je->ie", { "280 4", "600 4", "600 4" }, .where = "j < 20 | 400 <= j < 420 & i != 7" },
    { "nothing at all", "id,jd,je->ie", { "40 4", "50 4", "50 4" }, .where = "j < 0" },
    { "empty rows", "id,jd,je->ie", { "300 4", "280 4", "280 4" }, .where = "j < i - 20" },
    { "heads differ", "bhid,bhjd,bhje->bhie", { "2 3 40 4", "2 3 50 4", "2 3 50 4" }, .where = "h == 0 & j <= i | h == 1 | h == 2 & b == 1" },
    { "keep b j", "bihd,bjhd,bjhe->bihe", { "2 60 2 4", "2 270 2 4", "2 270 2 5" }, .keep = "bj" },
    { "keep i j, bias h i j", "bihd,bjhd,bjhe->bihe", { "2 60 2 4", "2 270 2 4", "2 270 2 5", "2 60 270" }, .keep = "ij", .bias = "hij" },
    { "bias j", "bihd,bjhd,bjhe->bihe", { "2 60 2 4", "2 70 2 4", "2 70 2 5", "70" }, .bias = "j" },
    { "bias of all", "bihd,bjhd,bjhe->bihe", { "2 60 2 4", "2 70 2 4", "2 70 2 5", "70 2 60 2" }, .bias = "jbih", .where = "j <= i" },
    { "lengths", "bihd,bjhd,bjhe->bihe", { "3 60 2 4", "3 270 2 4", "3 270 2 5" }, .lengths = "b", .where = "j <= i + 100" },
    { "lengths and keep", "bihd,bjhd,bjhe->bihe", { "3 60 2 4", "3 70 2 4", "3 70 2 5" }, .lengths = "b", .keep = "ij" },
    { "grouped heads", "b i g r d, b j g d, b j g e -> b i g r e", { "2 50 2 3 4", "2 60 2 4", "2 60 2 5" }, .where = "j <= i" },
    { "grouped heads, r outside", "b g r i d, b g j d, b g j e -> b g r i e", { "2 2 3 50 4", "2 2 60 4", "2 2 60 5" }, .where = "j <= i" },
    { "one key head", "bhid,bjd,bje->bhie", { "2 3 40 4", "2 50 4", "2 50 5" }, .where = "j <= i" },
    { "heads in key alone", "bid,bhjd,bhje->bhie", { "2 40 4", "2 3 50 4", "2 3 50 5" }, .where = "j <= i" },
    { "values alike for all heads", "bhid,bhjd,bje->bhie", { "2 3 40 4", "2 3 50 4", "2 50 5" }, .scale = .3 },
    { "heads summed", "bhid,bhjd,bhje->bie", { "2 3 40 4", "2 3 50 4", "2 3 50 5" }, .scale = .3 },
    { "queries on a grid", "x y d, j d, j e -> y x e", { "9 11 4", "80 4", "80 3" }, .where = "x + y <= j" },
    { "keys on a grid", "b i d, b s t d, b s t e -> b e i", { "2 40 4", "2 15 11 4", "2 15 11 3" }, .where = "s + t <= i" },
    { "two widths", "i a c, c j a, j e f -> f i e", { "40 3 2", "2 50 3", "50 2 4" }, .where = "j <= i" },
    { "diagonals", "i i d, j d, j e e -> i e", { "40 40 4", "50 4", "50 3 3" }, .where = "j <= i" },
    { "alibi", "bihd,bjhd,bjhe->bihe", { "2 60 3 4", "2 270 3 4", "2 270 3 5", "3" }, .alibi = "h" },
    { "alibi of grouped heads, causal, moved", "b i g r d, b j g d, b j g e -> b i g r e", { "2 50 2 3 4", "2 60 2 4", "2 60 2 5", "3 2" }, .alibi = "rg", .where = "j <= i", .offset = 9 },
    { "one alibi", "id,jd,je->ie", { "50 4", "60 4", "60 5", "" }, .alibi = "" },
    { "dropout", "bihd,bjhd,bjhe->bihe", { "2 60 2 4", "2 270 2 4", "2 270 2 5" }, .dropout = .3, .where = "j <= i + 9" },
};
enum { CASES = sizeof cases / sizeof *cases };

static eg_tensor *parsed(eg_ctx *cx, eg_dtype type, const char *sizes, int which)
{
    int64_t dim[8];
    int rank = 0;
    for (char *at = (char *)sizes; *at; ) dim[rank++] = strtoll(at, &at, 10);
    return eg_cast(eg_normal_n(cx, EG_F64, 0, which < 2 ? 1.5 : 1, rank, dim), type);
}
static int64_t size_of(const flash_case *c, const made *m, char letter)    /* in the query or the key */
{
    int term = 0, axis = 0;
    for (const char *s = c->spec; *s != '-'; s++) {
        if (*s == ',') { term++; axis = 0; }
        else if (*s != ' ' && *s == letter) return eg_dim(m->x[term], axis);
        else axis += *s != ' ';
    }
    ck_abort_msg("%s: no %c", c->name, letter);
    return 0;
}
static void make(eg_ctx *cx, eg_dtype type, const flash_case *c, made *m)
{
    *m = (made){ 0 };
    for (int k = 0; k < 4; k++) m->x[k] = c->shape[k] ? parsed(cx, type, c->shape[k], k) : NULL;
    int64_t dim[8];
    int rank = 0;
    for (const char *s = c->keep; s && *s; s++) dim[rank++] = size_of(c, m, *s);
    if (c->keep) m->keep = eg_gt(eg_uniform_n(cx, EG_F32, 0, 1, rank, dim), eg_full_n(cx, EG_F32, .4, 0, NULL));
    rank = 0;
    for (const char *s = c->lengths; s && *s; s++) dim[rank++] = size_of(c, m, *s);
    if (c->lengths) m->lengths = eg_randint_n(cx, 0, size_of(c, m, 'j') + 1, rank, dim);
}
static eg_tensor *attend(const flash_case *c, const made *m, eg_form form, eg_tensor **weights)
{
    return eg_attention(c->spec, m->x[0], m->x[1], m->x[2], .where = c->where, .offset = c->offset, .scale = c->scale, .dropout = c->dropout, .form = form,
                        .bias = { c->bias, c->bias ? m->x[3] : NULL }, .alibi = { c->alibi, c->alibi ? m->x[3] : NULL }, .keep = { c->keep, m->keep }, .lengths = { c->lengths, m->lengths }, .weights = weights);
}
static void close_to(const flash_case *c, const char *what, eg_tensor *a, eg_tensor *b, double tolerance)
{
    const double size = eg_item(eg_max(NULL, eg_abs(b))), off = eg_item(eg_max(NULL, eg_abs(eg_sub(a, b))));
    ck_assert_msg(eg_ok(a) && eg_ok(b) && off <= tolerance * fmax(size, 1), "%s: %s is off by %g of %g", c->name, what, off, size);
}
static void fused_is_unfused(const flash_case *c, eg_dtype type, double tolerance)
{
    static const char *const name[] = { "dq", "dk", "dv", "dbias" };
    eg_ctx *cx = eg_open(.dtype = type);
    made m;
    make(cx, type, c, &m);
    const int n = m.x[3] ? 4 : 3;
    const uint64_t draw = eg_draws(cx);
    eg_tensor *y = attend(c, &m, EG_UNFUSED, NULL), *d[4], *e[4], *w;
    eg_set_draws(cx, draw);
    eg_tensor *z = attend(c, &m, EG_FUSED, NULL);
    eg_assert_ok(cx);
    ck_assert_str_eq(eg_op_of(y)->name, "einsum");
    close_to(c, "y", z, y, tolerance);
    eg_set_draws(cx, draw);
    ck_assert_msg(same_bits(z, attend(c, &m, EG_FUSED, &w)), "%s: asking for the weights changes the result", c->name);
    eg_tensor *g = eg_cast(eg_normal_n(cx, EG_F64, 0, 1, eg_rank(y), eg_dims(y)), type);
    ck_assert(!eg_grad(y, g, n, m.x, d) && !eg_grad(z, g, n, m.x, e));
    for (int k = 0; k < n; k++) close_to(c, name[k], e[k], d[k], tolerance);
    eg_assert_ok(cx);
    eg_close(cx);
}
START_TEST(fused_is_unfused_in_f64) { fused_is_unfused(&cases[_i], EG_F64, 1e-12); } END_TEST
START_TEST(fused_is_unfused_in_f32) { fused_is_unfused(&cases[_i], EG_F32, 2e-5); } END_TEST

/* -- the same bits, whatever the number of threads: several batches, and one whose keys are split ---------------------------------------- */
START_TEST(threads_do_not_change_bits)
{
    static const flash_case wide = { "split", "id,jd,je->ie", { "1100 24", "1500 24", "1500 24" }, .where = "j <= i + 300" };
    static const flash_case many = { "batches", "bihd,bjhd,bjhe->bihe", { "3 300 3 24", "3 300 3 24", "3 300 3 24" }, .where = "j <= i" };
    const flash_case *both[] = { &wide, &many };
    for (int c = 0; c < 2; c++) {
        eg_tensor *y[3], *d[3][3];
        eg_ctx *cx[3];
        for (int k = 0; k < 3; k++) {
            made m;
            cx[k] = eg_open(.threads = (int[]){ 1, 2, 5 }[k]);
            make(cx[k], EG_F32, both[c], &m);
            y[k] = attend(both[c], &m, EG_FUSED, NULL);
            eg_grad(y[k], y[k], 3, m.x, d[k]);
            eg_assert_ok(cx[k]);
        }
        for (int k = 1; k < 3; k++) {
            ck_assert(same_bits(y[0], y[k]));
            for (int n = 0; n < 3; n++) ck_assert(same_bits(d[0][n], d[k][n]));
        }
        for (int k = 0; k < 3; k++) eg_close(cx[k]);
    }
}
END_TEST

Suite *suite_flash(void)
{
    Suite *s = suite_create("flash");
    TCase *t = tcase_create("flash");
    tcase_add_loop_test(t, fused_is_unfused_in_f64, 0, CASES);
    tcase_add_loop_test(t, fused_is_unfused_in_f32, 0, CASES);
    tcase_add_test(t, threads_do_not_change_bits);
    suite_add_tcase(s, t);
    return s;
}
