/* test_explain.c: what eg_explain reports is what einsum does. */
#include <eingrad.h>
#include <eingrad/check.h>
#include "tests.h"

static eg_ctx *cx;
static void setup(void) { cx = eg_open(.dtype = EG_F64, .seed = 5); }
static void teardown(void)
{
    eg_assert_ok(cx);
    eg_close(cx);
}

GROUP("explain", .setup = setup, .teardown = teardown)

TEST(roles_and_gemm)
{
    const eg_explained *e =
        eg_explain("ibhd,jbhd->ijbh", eg_ones(cx, 2, 1, 2, 4), eg_ones(cx, 3, 1, 2, 4));
    ck_assert_ptr_nonnull(e);
    ck_assert_msg(strstr(e->text, "batch b h, free i j, summed d; GEMM m=2 n=3 k=4 × 2"), "%s",
                  e->text);
    ck_assert_int_eq(e->steps, 1);
    ck_assert(e->step[0].m == 2 && e->step[0].n == 3 && e->step[0].k == 4 && e->step[0].batch == 2);
    /* without AVX2 there are no direct kernels: everything is packed */
    ck_assert_str_eq(e->step[0].copies, strstr(e->step[0].kernel, "packed")
                                            ? "blocks packed into panels"
                                            : "strips of an operand");
    ck_assert(e->multiplications == 48 && e->additions == 0 && e->largest == 0 &&
              e->bytes == 8 * (16 + 24 + 12));
    ck_assert_int_eq(e->letters, 5);
    ck_assert(e->letter[0].role == EG_FREE && e->letter[0].operands == 1 &&
              e->letter[0].size == 2 && *e->letter[0].name == 'i');
    ck_assert(e->letter[1].role == EG_BATCH && e->letter[1].operands == 3 &&
              e->letter[3].role == EG_SUMMED && e->letter[4].operands == 2);
    ck_assert_str_eq(e->gradient[0], "d1: ijbh,jbhd->ibhd");
    ck_assert_str_eq(e->gradient[1], "d2: ijbh,ibhd->jbhd");
}

/* The worked example of test_textbook.c, n tokens of width d in 2 heads: three projections, QKᵀ, AV
 * and the output. */
static double multiplications(int64_t n, int64_t d)
{
    eg_tensor *x = eg_ones(cx, n, d), *w = eg_ones(cx, d, 2, d / 2), *q = eg_ones(cx, n, 2, d / 2),
              *a = eg_ones(cx, 2, n, n), *o = eg_ones(cx, 2, d / 2, d);
    return 3 * eg_explain("id,dhk->ihk", x, w)->multiplications +
           eg_explain("ihk,jhk->hij", q, q)->multiplications +
           eg_explain("hij,jhk->ihk", a, q)->multiplications +
           eg_explain("ihk,hkd->id", q, o)->multiplications;
}
TEST(the_example_takes_1280_multiplications) { ck_assert(multiplications(4, 8) == 1280); }

TEST(the_cost_is_4ndd_2nnd)
{
    for (int64_t n = 1; n < 40; n += 7)
        for (int64_t d = 2; d < 40; d += 6)
            ck_assert(multiplications(n, d) ==
                      4.0 * (double)(n * d * d) + 2.0 * (double)(n * n * d));
}

/* Every gradient string, computed as an einsum of the cotangent and the other operands, is the
 * gradient. */
TEST(gradient_strings_are_the_gradient)
{
    static const struct {
        const char *spec;
        int count;
        int64_t dim[4][4];
        int rank[4];
    } cases[] = {
        { "ij,jk->ik", 2, { { 2, 3 }, { 3, 4 } }, { 2, 2 } },
        { "ibhd,jbhd->ijbh", 2, { { 2, 1, 2, 4 }, { 3, 1, 2, 4 } }, { 4, 4 } },
        { "ii->i", 1, { { 3, 3 } }, { 2 } },
        { "ia,ib,ic->abc", 3, { { 3, 2 }, { 3, 4 }, { 3, 2 } }, { 2, 2, 2 } },
        { "i,j", 2, { { 2 }, { 3 } }, { 1, 1 } },
        { "...ij,...jk->...ik", 2, { { 5, 2, 3 }, { 5, 3, 4 } }, { 3, 3 } },
        { "row col, col -> row", 2, { { 2, 3 }, { 3 } }, { 2, 1 } },
        { "ab,bc,cd,->ad", 4, { { 2, 3 }, { 3, 4 }, { 4, 2 }, { 0 } }, { 2, 2, 2, 0 } },
        { "ijk->jik", 1, { { 2, 3, 4 } }, { 3 } },
        { "b l (h=2 d), h d e -> b l e", 2, { { 2, 3, 8 }, { 2, 4, 5 } }, { 3, 3 } },
        { "b l (h=2 d), h d e -> (b l) e", 2, { { 2, 3, 8 }, { 2, 4, 5 } }, { 3, 3 } },
        { "(a=2 b) c, (a b) d -> (c d) a", 2, { { 6, 4 }, { 6, 5 } }, { 2, 2 } },
        { "b 1 d, d e -> b 1 e", 2, { { 2, 1, 4 }, { 4, 5 } }, { 3, 2 } },
        { "nhsd->ns(hd)", 1, { { 2, 3, 4, 5 } }, { 4 } },
        { "... (h=2 d), h d -> ... h", 2, { { 3, 2, 6 }, { 2, 3 } }, { 3, 2 } },
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        eg_tensor *x[4], *dx[4], *operand[4];
        for (int k = 0; k < cases[c].count; k++)
            x[k] = eg_normal_n(cx, EG_F64, 0, 1, cases[c].rank[k], cases[c].dim[k]);
        const eg_explained *e = eg_explain_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                                                   .spec = cases[c].spec,
                                                                   .count = cases[c].count,
                                                                   .operands = x });
        eg_tensor *y = eg_einsum_n(cases[c].spec, cases[c].count, x),
                  *g = eg_normal_n(cx, EG_F64, 0, 1, eg_rank(y), eg_dims(y));
        ck_assert_int_eq(eg_grad(y, g, cases[c].count, x, dx), 0);
        for (int k = 0; k < cases[c].count; k++) {
            int n = 0;
            operand[n++] = g;
            for (int j = 0; j < cases[c].count; j++)
                if (j != k) operand[n++] = x[j];
            eg_assert_close(eg_einsum_n(strchr(e->gradient[k], ':') + 1, n, operand), dx[k], 1e-13);
        }
    }
    const eg_explained *e = eg_explain("ijj,k->i", eg_ones(cx, 2, 3, 3), eg_ones(cx, 4));
    ck_assert_str_eq(e->gradient[0], "d1: i,k->i, repeated along j, on the diagonal of ijj");
    ck_assert_str_eq(e->gradient[1], "d2: i,ijj->, repeated along k");
    ck_assert(e->multiplications == 2 && e->additions == 2 * 3 + 4);
}

/* Operands of integers have their own width; three and more of them are cast to i64 first. */
TEST(integers_are_counted_as_they_are_read)
{
    static const eg_dtype types[] = { EG_I32, EG_I64, EG_BOOL };
    static const double width[] = { 4, 8, 1 };
    for (int k = 0; k < 3; k++) {
        eg_tensor *a = eg_cast(eg_ones(cx, 2, 3), types[k]),
                  *b = eg_cast(eg_ones(cx, 3, 4), types[k]),
                  *c = eg_cast(eg_ones(cx, 4, 5), types[k]);
        ck_assert(eg_explain("ij,jk->ik", a, b)->bytes == width[k] * (6 + 12) + 8 * 8);
        const eg_explained *e = eg_explain("ij,jk,kl->il", a, b, c);
        ck_assert(e->bytes == 8 * (6 + 12 + 8 + 8 + 20 + 10) && e->largest == 8 * 8);
        /* the result, the intermediate in whole cache lines, and the casts */
        ck_assert(e->memory == 8 * 10 + 64 + (k == 1 ? 0 : 8 * (6 + 12 + 20)));
    }
}

/* Where a sum has no terms nothing is computed, as eg_usage counts it. */
TEST(sums_over_nothing_cost_nothing)
{
    static const struct {
        const char *spec;
        int count;
        int64_t dim[3][2];
        int rank[3];
    } cases[] = {
        { "ij,kl->i", 2, { { 3, 0 }, { 2, 4 } }, { 2, 2 } },
        { "ij,kl->i", 2, { { 3, 2 }, { 0, 4 } }, { 2, 2 } },
        { "ij,kl,m->i", 3, { { 3, 2 }, { 0, 4 }, { 3 } }, { 2, 2, 1 } },
        { "ij,jk,kl->il", 3, { { 2, 3 }, { 3, 0 }, { 0, 5 } }, { 2, 2, 2 } },
        { "ij,jk->ik", 2, { { 0, 3 }, { 3, 4 } }, { 2, 2 } },
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        eg_tensor *x[3], *dx[3];
        for (int k = 0; k < cases[c].count; k++)
            x[k] = eg_normal_n(cx, EG_F32, 0, 1, cases[c].rank[k], cases[c].dim[k]);
        const eg_explained *e = eg_explain_with(&(eg_einsum_args){ .size = sizeof(eg_einsum_args),
                                                                   .spec = cases[c].spec,
                                                                   .count = cases[c].count,
                                                                   .operands = x });
        const double before = (double)eg_stats(cx).multiply_adds;
        eg_tensor *y = eg_einsum_n(cases[c].spec, cases[c].count, x),
                  *g = eg_normal_n(cx, EG_F32, 0, 1, eg_rank(y), eg_dims(y));
        const double value = (double)eg_stats(cx).multiply_adds;
        ck_assert_int_eq(eg_grad(y, g, cases[c].count, x, dx), 0);
        const double all = (double)eg_stats(cx).multiply_adds;
        ck_assert_msg(e->forward == value - before &&
                          e->forward == e->multiplications + e->additions,
                      "%s: %g", cases[c].spec, e->forward);
        /* a gradient of three operands may be made along another tree */
        ck_assert_msg(cases[c].count > 2 || e->backward == all - value, "%s: %g, not %g",
                      cases[c].spec, e->backward, all - value);
    }
}

TEST(steps_and_totals)
{
    eg_tensor *x[] = { eg_ones(cx, 10, 100), eg_ones(cx, 100, 10), eg_ones(cx, 10, 100),
                       eg_ones(cx, 100, 10) };
    eg_einsum_args o = { .size = sizeof o, .spec = "ab,bc,cd,de->ae", .count = 4, .operands = x };
    const eg_explained *e = eg_explain_with(&o);
    ck_assert(e->steps == 3 && e->multiplications == 21000 && e->largest == 800);
    ck_assert_str_eq(e->step[2].spec, "ac,ce->ae");
    ck_assert(e->step[2].a > 4 && e->step[2].b > 4);
    const int path[3][2] = { { 1, 2 }, { 0, 2 }, { 0, 1 } };
    o.path = path;
    o.steps = 3;
    const eg_explained *p = eg_explain_with(&o);
    ck_assert(p->multiplications == 100000 + 100000 + 10000 && p->largest == 80000);
    ck_assert(strstr(p->text, "#1"));
    /* strides determine what is copied */
    eg_tensor *big = eg_ones(cx, 300, 300), *thin = eg_ones(cx, 300);
    ck_assert_str_eq(eg_explain("ij,jk->ik", big, big)->step[0].copies,
                     "blocks packed into panels");
    eg_tensor *scores = eg_zeros(cx, 20, 20, 4, 8), *values = eg_zeros(cx, 20, 4, 8, 3);
    const eg_explained_step *apart = eg_explain("ijbh,jbhd->ibhd", scores, values)->step;
    ck_assert_str_eq(apart->kernel, "products of one batch at a time");
    ck_assert_str_eq(apart->copies, "blocks transposed, batch by batch");
    ck_assert_str_eq(eg_explain("ij,j->i", big, thin)->step[0].kernel, "dots and row sums");
    ck_assert_str_eq(eg_explain("ij,ij->ij", big, big)->step[0].kernel, "elementwise loop");
    ck_assert_str_eq(
        eg_explain("ij,jk->ik", eg_zeros(cx, 2, 0), eg_zeros(cx, 0, 3))->step[0].kernel,
        "zeros: a sum over nothing");
    ck_assert(eg_explain("ij->", big)->additions == 90000 &&
              eg_explain("ij->", big)->multiplications == 0);
    ck_assert(eg_explain("ij->", eg_cast(big, EG_I32))->gradients == 0);
}

/* The joint plan is what is computed: counted, and kept. */
TEST(strings_of_steps_can_be_computed)
{
    static const char *const spec = "names: key, value, key query, query -> value";
    eg_tensor *x[8] = { eg_normal(cx, 0, 1, 3), eg_normal(cx, 0, 1, 2), eg_normal(cx, 0, 1, 3, 4),
                        eg_normal(cx, 0, 1, 4) };
    const eg_explained *e = eg_explain(spec, x[0], x[1], x[2], x[3]);
    for (int s = 0; e && s < e->steps; s++)
        x[4 + s] = eg_einsum(e->step[s].spec, x[e->step[s].a - 1], x[e->step[s].b - 1]);
    eg_assert_close(x[6], eg_einsum_n(spec, 4, x), 1e-12);
}

TEST(the_joint_plan_is_what_happens)
{
    static const struct {
        const char *spec;
        int count;
        int64_t dim[5][2], keep_limit;
    } cases[] = {
        { "ab,bc->ac", 2, { { 7, 8 }, { 8, 9 } }, 0 },
        { "ab,bc,cd,de,ef->af", 5, { { 9, 7 }, { 7, 5 }, { 5, 8 }, { 8, 6 }, { 6, 10 } }, 0 },
        { "ab,bc,cd,de,ef->af", 5, { { 9, 7 }, { 7, 5 }, { 5, 8 }, { 8, 6 }, { 6, 10 } }, 500 },
        { "ab,bc,cd,de,ef->af", 5, { { 9, 7 }, { 7, 5 }, { 5, 8 }, { 8, 6 }, { 6, 10 } }, EG_OFF },
        { "ab,bc,ca->", 3, { { 9, 7 }, { 7, 5 }, { 5, 9 } }, 0 },
        { "za,zb,zc->z", 3, { { 9, 7 }, { 9, 5 }, { 9, 4 } }, 0 },
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        eg_tensor *x[5], *dx[5];
        for (int k = 0; k < cases[c].count; k++)
            x[k] = eg_normal_n(cx, EG_F64, 0, 1, 2, cases[c].dim[k]);
        const eg_einsum_args o = { .size = sizeof o,
                                   .spec = cases[c].spec,
                                   .count = cases[c].count,
                                   .operands = x,
                                   .keep_limit = cases[c].keep_limit };
        const eg_explained *e = eg_explain_with(&o);
        uint64_t start = eg_stats(cx).multiply_adds;
        eg_tensor *y = eg_einsum_with(&o), *g = eg_ones_like(y);
        ck_assert_double_eq((double)(eg_stats(cx).multiply_adds - start), e->forward);
        start = eg_stats(cx).multiply_adds;
        ck_assert_int_eq(eg_grad(y, g, o.count, x, dx), 0);
        ck_assert_double_eq((double)(eg_stats(cx).multiply_adds - start), e->backward);
        ck_assert(e->forward == e->multiplications + e->additions);
        ck_assert(e->memory >= e->kept && e->gradient_memory > e->memory);
        const int64_t limit = o.keep_limit;
        ck_assert(limit == EG_OFF ? e->kept == 0 : limit ? e->kept <= (double)limit : true);
        ck_assert(o.count < 3 || (e->step[0].kept == (e->kept > 0 && limit == 0)) || limit > 0);
        ck_assert((strstr(e->text, "kept for the gradient\n") != NULL) == (e->kept > 0));
        const eg_explained_graph *all = eg_explain_graph(y);
        ck_assert(all && all->multiply_adds == e->forward && all->nodes == 1);
        ck_assert_double_eq(all->bytes, 8 * (double)eg_size(y) + e->kept);
    }
}
/* The cotangent of an operand is expanded along a letter that no other operand and no result has,
 * except if the operand is read along a diagonal. */
TEST(gradient_memory_is_what_the_gradients_take)
{
    static const char *const spec[] = { "az,ab,bc->c", "aaz,ab,bc->c", "az,ab,bc->cz", "az,bz->a" };
    for (int k = 0; k < 4; k++) {
        const eg_mark m = eg_push(cx);
        eg_tensor *x[3], *dx[3];
        int n = 0;
        for (const char *s = spec[k]; *s != '-'; s += *s == ',', n++) {
            int64_t dim[3];
            int rank = 0;
            for (; *s >= 'a'; s++) dim[rank++] = *s == 'z' ? 600 : 30 + *s - 'a';
            x[n] = eg_uniform_n(cx, EG_F64, -1, 1, rank, dim);
        }
        const double start = (double)eg_stats(cx).used;
        eg_tensor *y = eg_einsum_n(spec[k], n, x), *g = eg_contiguous(eg_ones_like(y));
        ck_assert_int_eq(eg_grad(y, g, n, x, dx), 0);
        const double taken = (double)eg_stats(cx).used - start;
        const eg_explained *e = eg_explain_with(&(eg_einsum_args){
            .size = sizeof(eg_einsum_args), .spec = spec[k], .count = n, .operands = x });
        ck_assert_ptr_nonnull(e);
        ck_assert_msg(e->gradient_memory <= taken && taken <= e->gradient_memory + 16384,
                      "%s: %g bytes predicted, %g taken", spec[k], e->gradient_memory, taken);
        eg_pop(cx, m);
    }
}
/* An axis along which an operand is expanded (stride 0) is not a term of a sum of that operand: the
 * other operand's terms are added first. */
TEST(expanded_operands_count_what_is_done)
{
    static const char *const spec[] = { "ca,ca->", "c,acda->", "d,c,eb,ca->", "ab,bc,cd->ad" };
    for (int k = 0; k < 4; k++) {
        eg_tensor *x[4] = { NULL };
        int n = 0;
        for (const char *s = spec[k]; *s != '-'; s += *s == ',', n++) {
            int64_t small[4], dim[4];
            int rank = 0;
            for (; *s >= 'a'; s++, rank++) small[rank] = dim[rank] = 3 + (*s - 'a') % 3;
            if (n != 1) small[0] = 1;
            x[n] = eg_expand_n(eg_uniform_n(cx, EG_F64, -1, 1, rank, small), rank, dim);
        }
        const uint64_t start = eg_stats(cx).multiply_adds;
        eg_einsum_n(spec[k], n, x);
        const double done = (double)(eg_stats(cx).multiply_adds - start);
        const eg_explained *e = eg_explain_with(&(eg_einsum_args){
            .size = sizeof(eg_einsum_args), .spec = spec[k], .count = n, .operands = x });
        ck_assert_ptr_nonnull(e);
        ck_assert_double_eq(e->forward, done);
        ck_assert_double_eq(e->multiplications + e->additions, done);
    }
}

/* A sum over an axis of size 0 is zeros, and nothing is multiplied or added for it. */
TEST(empty_sums_count_as_nothing)
{
    static const char *const spec[] = { "az,zc->ac", "az,zcb,cd->ad", "zb,bc,cd->d" };
    for (int k = 0; k < 3; k++) {
        eg_tensor *x[3] = { NULL };
        int n = 0;
        for (const char *s = spec[k]; *s != '-'; s += *s == ',', n++) {
            int64_t dim[3];
            int rank = 0;
            for (; *s >= 'a'; s++) dim[rank++] = *s == 'z' ? 0 : 3;
            x[n] = eg_full_n(cx, EG_F64, 1, rank, dim);
        }
        const uint64_t start = eg_stats(cx).multiply_adds;
        eg_einsum_n(spec[k], n, x);
        const double done = (double)(eg_stats(cx).multiply_adds - start);
        const eg_explained *e = eg_explain_with(&(eg_einsum_args){
            .size = sizeof(eg_einsum_args), .spec = spec[k], .count = n, .operands = x });
        ck_assert_ptr_nonnull(e);
        ck_assert_double_eq(e->forward, done);
        ck_assert_double_eq(e->multiplications + e->additions, done);
    }
}
TEST(the_text_says_that_groups_need_a_copy)
{
    eg_tensor *x = eg_ones(cx, 2, 3, 4, 5);
    ck_assert(strstr(eg_explain("nhsd->ns(hd)", x)->text, "the result, whose groups have no view"));
    ck_assert(!strstr(eg_explain("nhsd->nh(sd)", x)->text, "groups"));
}
/* Two linear layers and fused attention: the parameters are tensors of an owner. */
TEST(explain_graph_adds_up_parameters_multiplications_and_bytes)
{
    eg_owner *o = eg_owner_open(cx);
    eg_tensor *W = eg_owner_tensor(o, EG_F64, 2, (int64_t[]){ 8, 4 }),
              *b = eg_owner_tensor(o, EG_F64, 1, (int64_t[]){ 4 }), *x = eg_ones(cx, 3, 8);
    eg_tensor *y = eg_sum(NULL, eg_tanh(eg_affine("ij,jk->ik", x, W, b)));
    const eg_explained_graph *e = eg_explain_graph(y);
    ck_assert(e && e->nodes == 3 && e->leaves == 3 && e->parameters == 36 && e->inputs == 24);
    ck_assert_double_eq(e->multiply_adds, 3 * 8 * 4 + 12); /* and the terms of the sum */
    ck_assert_double_eq(e->bytes, 8 * (12 + 12 + 1));
    ck_assert(strstr(e->text, "36 numbers in parameters"));
    ck_assert(e->narrowest == EG_F64 && eg_explain_graph(x)->narrowest == EG_DEFAULT);
    eg_tensor *narrow = eg_cast(eg_cast(y, EG_F32), EG_F64);
    ck_assert_int_eq(eg_explain_graph(narrow)->narrowest, EG_F32);
    ck_assert_int_eq(eg_explain_graph(eg_sum(NULL, eg_ones(cx, 2) /* f64 */))->narrowest, EG_F64);
    eg_tensor *gain = eg_ones(cx, 32);
    for (int rows = 3; rows < 6; rows++) { /* long rows keep two numbers each, short ones none */
        e = eg_explain_graph(eg_rmsnorm("b [v]", eg_ones(cx, rows, 32), .gain = gain));
        ck_assert(e && e->bytes == 8 * (rows * 32 + 2 * rows));
        e = eg_explain_graph(eg_rmsnorm("b [v] c", eg_ones(cx, rows, 32, 2), .gain = gain));
        ck_assert(e && e->bytes == 8 * rows * 64);
    }
    eg_tensor *q = eg_ones(cx, 2, 5, 3, 4), *v = eg_ones(cx, 2, 6, 3, 7),
              *k = eg_ones(cx, 2, 6, 3, 4);
    for (int fused = 0; fused < 2; fused++) {
        y = eg_attention("bihd,bjhd,bjhe->bihe", q, k, v, .form = fused ? EG_FUSED : EG_UNFUSED);
        eg_assert_ok(cx);
        ck_assert_double_eq(eg_explain_graph(y)->multiply_adds, 2 * 5 * 6 * 3 * (4 + 7));
    }
    /* the worked example, four tokens of width 8 in 2 heads, in one call */
    eg_tensor *t = eg_ones(cx, 4, 8), *w = eg_ones(cx, 8, 2, 4);
    eg_tensor *heads = eg_einsum("id,dhk->ihk", t, w);
    y = eg_attention("ihk,jhk,jhe->ihe", heads, eg_einsum("id,dhk->ihk", t, w),
                     eg_einsum("id,dhk->ihk", t, w));
    y = eg_einsum("ihk,hkd->id", y, eg_ones(cx, 2, 4, 8));
    ck_assert_double_eq(eg_explain_graph(y)->multiply_adds, 1280);
    ck_assert_ptr_null(eg_explain_graph(NULL));
    eg_owner_close(o);
}

TEST(shapes_without_tensors)
{
    const int64_t huge[] = { 1 << 29, 1 << 29 }, one[] = { 1, 4 }, three[] = { 3, 4 };
    const size_t before = eg_stats(cx).used;
    const eg_explained *e = eg_explain_shapes(
        cx, .spec = "ij,jk->ik", .count = 2,
        .shapes = (eg_shape[]){ { EG_F32, 2, huge, NULL }, { EG_F32, 2, huge, NULL } });
    ck_assert(e && e->multiplications == 0x1p87);
    ck_assert_uint_lt(eg_stats(cx).used - before, 1 << 16);
    static const char *const specs[] = { "->", "", " ", "->", NULL };
    for (int k = 0; specs[k]; k++)
        ck_assert_ptr_nonnull(eg_explain_shapes(cx, .spec = specs[k], .count = 1,
                                                .shapes = &(eg_shape){ .dtype = EG_F32 }));
    const eg_shape stretch[] = { { EG_F32, 2, one, NULL }, { EG_F32, 2, three, NULL } };
    ck_assert_str_eq(
        eg_explain_shapes(cx, .spec = "ij,ij->ij", .broadcast = true, .count = 2, .shapes = stretch)
            ->gradient[0],
        "d1: ij,ij->j");
    ck_assert_ptr_null(eg_explain_shapes(cx, .spec = "ij,ij->ij", .count = 2, .shapes = stretch));
    eg_assert_error(cx, "index 'i' is 1 in operand 1 but 3 in operand 2");
    ck_assert_ptr_null(eg_explain_shapes(cx, .spec = "ij,ij->ij", .count = 2, .shapes = NULL));
    eg_assert_error(cx, "einsum: the shapes are NULL");
    ck_assert_ptr_null(eg_explain_shapes(cx, .spec = "ij", .count = 0, .shapes = stretch));
    eg_assert_error(cx, "0 operands");
    ck_assert_ptr_null(eg_explain_with(NULL));
}
