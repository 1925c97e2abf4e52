/* test_gradcheck_rare.c: gradients that are wrong only for some values, layouts, sizes and orders,
 * most of which are not those of the point that is checked; each must fail with the default options
 * and the name of the operation. Also operations and functions that are right but unusual. */
#include <eingrad.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"

/* -- operations of one operand: y = sin(x) ⊙ 2, element by element; the rule is wrong under a
 * condition -- */
typedef enum rare {
    NONE,
    /* by value: the point has no such value */
    NEGATIVE,
    NEGATIVE_ZERO,
    ZERO_EXACT,
    ONE_EXACT,
    INTEGER,
    ABOVE_FOUR,
    ABOVE_FORTY,
    ABOVE_THOUSAND,
    BELOW_HUNDREDTH,
    BELOW_TEN_THOUSANDTH,
    DENORMAL,
    EQUAL_NEIGHBOURS,
    ALL_EQUAL,
    ASCENDING,
    DESCENDING,
    LARGEST_FIRST,
    MEAN_NEGATIVE,
    MIXED_SIGNS,
    ALL_ZERO,
    ZERO_ROW,
    ZERO_COLUMN,
    OF_MANY_MAGNITUDES,
    /* by size */
    SIZE_ONE,
    TWO_ROWS,
    ODD_SIZE,
    LAST_OF_FOUR,
    LAST_ELEMENT_OF_SEVEN,
    ABOVE_100,
    ABOVE_1000,
    ABOVE_FULL_BLOCK,
    /* by layout of the operand or of g */
    PADDED_ROWS,
    FLIPPED_ROWS,
    FLIPPED_COLUMNS,
    PADDED_G,
    FLIPPED_G,
    ROWS_OF_G_EQUAL, /* g is expanded along its last axis */
    G_ONES,
    G_EQUAL,
    G_NEGATIVE_ZERO,
    G_INTEGER,
    /* by history and order of calls */
    LEAF_ONLY,
    THIRD_CALL,
    DRAWS,
    EVAL_MODE,
    ADDRESS,
    THREADS,
    /* of the gradient of the gradient */
    HALF_DETACHED_G,
    SECOND_FACTOR,
    SECOND_NOGRAD,
    SECOND_ABOVE_FOUR,
    SECOND_OF_VIEW,
    /* in f32 */
    SINGLE,
    SINGLE_BY_A_THOUSANDTH
} rare;
static struct {
    rare m;
    int calls;
} now;

/* y = 2 sin x, in f64 or f32 */
static bool rare_forward(eg_tensor *y)
{
    return eg_assign(y, eg_scale(eg_sin(eg_operand(y, 0)), 2)) == 0;
}
/* Properties of the elements of x: the row-major values, a mean, whether they are sorted. */
typedef struct facts {
    const double *v;
    int64_t n;
    double mean, most, least;
    bool ascending, descending, equal, neighbours;
    int64_t at;
} facts;
static facts facts_of(eg_tensor *x)
{
    facts f = { .v = eg_f64(eg_contiguous(eg_detach(eg_cast(x, EG_F64)))),
                .n = eg_size(x),
                .ascending = true,
                .descending = true,
                .equal = true,
                .least = INFINITY,
                .most = -INFINITY };
    for (int64_t k = 0; f.v && k < f.n; k++) {
        f.mean += f.v[k] / (double)f.n;
        if (f.v[k] > f.most) f.most = f.v[k], f.at = k;
        f.least = fmin(f.least, f.v[k]);
        f.ascending &= k == 0 || f.v[k] >= f.v[k - 1];
        f.descending &= k == 0 || f.v[k] <= f.v[k - 1];
        f.equal &= f.v[k] == f.v[0];
        f.neighbours |= k && f.v[k] == f.v[k - 1];
    }
    return f;
}
static bool value_is_wrong(rare m, double v)
{
    switch (m) {
    case NEGATIVE: return v < 0;
    case NEGATIVE_ZERO: return v == 0 && signbit(v);
    case ZERO_EXACT: return v == 0;
    case ONE_EXACT: return v == 1;
    case INTEGER: return v == round(v) && v != 0;
    case ABOVE_FOUR: return fabs(v) > 4;
    case ABOVE_FORTY: return fabs(v) > 40;
    case ABOVE_THOUSAND: return fabs(v) > 1000;
    case BELOW_HUNDREDTH: return fabs(v) < 0.01;
    case BELOW_TEN_THOUSANDTH: return fabs(v) < 1e-4 && fabs(v) > 1e-300;
    case DENORMAL: return v != 0 && fabs(v) < 2.3e-308;
    default: return false;
    }
}
/* True if the first row, or column, of x is 0, and not all of x. */
static bool zero_line(eg_tensor *x, const facts *f, bool column)
{
    const int64_t n = eg_rank(x) == 2 ? eg_dim(x, 1) : 1;
    bool zero = n > 1 && n < f->n && f->most != f->least;
    for (int64_t k = 0; zero && k < f->n; k++) zero = f->v[k] == 0 || (column ? k % n : k / n) != 0;
    return zero;
}
/* True if magnitudes of elements, none of which is 0, differ by a factor of 1000 and more. */
static bool many_magnitudes(const facts *f)
{
    double least = INFINITY, most = 0;
    for (int64_t k = 0; k < f->n; k++) {
        least = fmin(least, fabs(f->v[k]));
        most = fmax(most, fabs(f->v[k]));
    }
    return least > 1e-300 && most > 1000 * least;
}
/* True if the complete cotangent is wrong. */
static bool all_wrong(eg_tensor *y, eg_tensor *g, const facts *f)
{
    eg_tensor *x = eg_operand(y, 0);
    const int r = eg_rank(x);
    int64_t s[8], sg[8];
    const int64_t *d = eg_dims(x);
    eg_raw(x, s), eg_raw(g, sg);
    const facts of = now.m >= G_ONES && now.m <= G_INTEGER ? facts_of(g) : (facts){ 0 };
    bool integers = true, negative_zero = false;
    for (int64_t k = 0; of.v && k < of.n; k++) {
        integers &= of.v[k] == round(of.v[k]);
        negative_zero |= of.v[k] == 0 && signbit(of.v[k]);
    }
    switch (now.m) {
    case EQUAL_NEIGHBOURS: return f->neighbours;
    case ALL_EQUAL: return f->n > 1 && f->equal;
    case ASCENDING: return f->n > 1 && f->ascending;
    case DESCENDING: return f->n > 1 && f->descending;
    case LARGEST_FIRST: return f->n > 1 && f->at == 0;
    case MEAN_NEGATIVE: return f->mean < 0;
    case MIXED_SIGNS: return f->least < 0 && f->most > 0;
    case ALL_ZERO: return f->n > 1 && f->equal && f->v[0] == 0;
    case ZERO_ROW: return zero_line(x, f, false);
    case ZERO_COLUMN: return zero_line(x, f, true);
    case OF_MANY_MAGNITUDES: return many_magnitudes(f);
    case SIZE_ONE: return f->n == 1;
    case TWO_ROWS: return r == 2 && d[0] == 2;
    case ODD_SIZE: return f->n % 2 == 1 && f->n > 1;
    case ABOVE_100: return f->n > 100;
    case ABOVE_1000: return f->n > 1000;
    case PADDED_ROWS: return r == 2 && s[1] == 1 && s[0] > d[1];
    case FLIPPED_ROWS: return r == 2 && s[0] < 0 && s[1] == 1;
    case FLIPPED_COLUMNS: return r == 2 && s[1] == -1 && s[0] > 0;
    case PADDED_G: return r == 2 && sg[1] == 1 && sg[0] > d[1];
    case FLIPPED_G: return r == 2 && sg[0] < 0 && sg[1] == 1;
    case ROWS_OF_G_EQUAL: return r == 2 && d[1] > 1 && sg[1] == 0;
    case THREADS: return eg_threads(eg_context(x), 0) != 2;
    case G_ONES: return of.n > 1 && of.equal && of.v[0] == 1;
    case G_EQUAL: return of.n > 1 && of.equal && of.v[0] != 0;
    case G_NEGATIVE_ZERO: return negative_zero;
    case G_INTEGER: return integers && !of.equal && of.n > 1 && of.most > 1;
    case LEAF_ONLY: return eg_op_of(x) == NULL;
    case THIRD_CALL: return ++now.calls > 3;
    case SINGLE: return eg_type(x) == EG_F32;
    default: return false;
    }
}
static eg_tensor *rare_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = eg_operand(y, i), *d = eg_scale(eg_cos(x), 2), *factor;
    const facts f = facts_of(x);
    double *w;
    if (!f.v) return eg_mul(g, d);
    factor = eg_detach(eg_ones_like(eg_cast(x, EG_F64)));
    if (!(w = eg_mut_f64(factor))) return factor;
    for (int64_t k = 0; k < f.n; k++) {
        if (value_is_wrong(now.m, f.v[k])) w[k] = 1.5;
        if (now.m == LAST_OF_FOUR && f.n % 4 && k == f.n - 1) w[k] = 1.5;
        if (now.m == LAST_ELEMENT_OF_SEVEN && f.n % 8 == 7 && k == f.n - 1) w[k] = 1.5;
        if (now.m == ABOVE_FULL_BLOCK && f.n > 64 && k % 64 == 63) w[k] = 0;
        if (all_wrong(y, g, &f)) w[k] = 1.5;
        if (now.m == DRAWS) w[k] = 1 + 1e-3 * eg_item(eg_uniform(eg_context(x), 0, 1, 1));
        if (now.m == ADDRESS && (uintptr_t)y % 128 >= 64) w[k] = 1.25;
    }
    factor = eg_cast(factor, eg_type(x));
    if (now.m == EVAL_MODE && !eg_training(eg_context(x))) return eg_scale(eg_mul(g, d), 1.5);
    if (now.m == HALF_DETACHED_G)
        return eg_mul(eg_add(eg_scale(g, 0.5), eg_scale(eg_detach(g), 0.5)), d);
    if (now.m == SECOND_ABOVE_FOUR && fmax(f.most, -f.least) > 4) return eg_mul(g, eg_detach(d));
    if (now.m == SECOND_OF_VIEW && !eg_is_row_major(x)) return eg_mul(g, eg_detach(d));
    if (now.m == SINGLE_BY_A_THOUSANDTH && eg_type(x) == EG_F32) d = eg_scale(d, 1.001);
    if (now.m == SECOND_FACTOR) return eg_mul(g, eg_add(d, eg_scale(eg_sub(d, eg_detach(d)), 1)));
    return eg_mul(eg_mul(g, d), factor);
}
static const eg_op rare_op = { .name = "rare",
                               .arity = 1,
                               .shape = like_first,
                               .forward = rare_forward,
                               .rule = rare_rule,
                               .uses = EG_USES_OPERANDS };
static eg_tensor *rare_f(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_apply(&rare_op, NULL, 0, 1, x);
}
static eg_tensor *rare_of_sum(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_square(eg_apply(&rare_op, NULL, 0, 1, ((eg_tensor *[]){ eg_shift(x[0], 0.1) })));
}

static const struct {
    const char *name;
    rare m;
    bool single; /* inputs in f32 */
} plants[] = {
#define P(m) { #m, m, false },
    P(NEGATIVE) P(NEGATIVE_ZERO) P(ZERO_EXACT) P(ONE_EXACT) P(INTEGER) P(ABOVE_FOUR) P(ABOVE_FORTY)
        P(BELOW_HUNDREDTH) P(DENORMAL) P(EQUAL_NEIGHBOURS) P(ALL_EQUAL) P(ASCENDING) P(DESCENDING)
            P(LARGEST_FIRST) P(MEAN_NEGATIVE) P(MIXED_SIGNS) P(SIZE_ONE) P(ODD_SIZE) P(LAST_OF_FOUR)
                P(LAST_ELEMENT_OF_SEVEN) P(ABOVE_100) P(ABOVE_FULL_BLOCK) P(PADDED_ROWS)
                    P(FLIPPED_ROWS) P(FLIPPED_COLUMNS) P(PADDED_G) P(FLIPPED_G) P(G_ONES) P(G_EQUAL)
                        P(G_NEGATIVE_ZERO) P(G_INTEGER) P(LEAF_ONLY) P(THIRD_CALL) P(DRAWS)
                            P(HALF_DETACHED_G) P(SECOND_FACTOR) P(ABOVE_THOUSAND)
                                P(BELOW_TEN_THOUSANDTH) P(ABOVE_1000) P(ROWS_OF_G_EQUAL) P(THREADS)
                                    P(SECOND_ABOVE_FOUR) P(ALL_ZERO) P(ZERO_ROW) P(ZERO_COLUMN)
                                        P(OF_MANY_MAGNITUDES) P(TWO_ROWS)
                                            P(SECOND_OF_VIEW){ "SINGLE", SINGLE, true },
    { "SINGLE_BY_A_THOUSANDTH", SINGLE_BY_A_THOUSANDTH, true },
};
enum { PLANTS = (int)(sizeof plants / sizeof *plants) };

GROUP("plants")
LOOP_TEST(a_rare_mistake_does_not_pass, 2 * PLANTS)
{
    memset(&now, 0, sizeof now);
    now.m = plants[_i / 2].m;
    eg_ctx *cx = eg_open(.dtype = plants[_i / 2].single ? EG_F32 : EG_F64, .seed = (uint64_t)_i,
                         .threads = 2);
    eg_tensor *x = eg_uniform(cx, 0.3, 0.9, 4, 2);
    const eg_report *r = eg_gradcheck(_i % 2 ? rare_of_sum : rare_f, NULL, 1, &x);
    ck_assert_msg(r != NULL, "%s: %s", plants[_i / 2].name, eg_error(cx));
    ck_assert_msg(!r->passed, "%s passed: %s", plants[_i / 2].name, r->text);
    ck_assert_msg(strstr(r->text, "rare") != NULL, "%s: %s", plants[_i / 2].name, r->text);
    eg_close(cx);
}

/* -- two operands, jvp and masks: y = sin a sin b where m, else 0 ------------------------------ */
typedef enum pair_mistake {
    BOTH_LARGE,
    BOTH_SMALL,
    NEGATED,
    LAST_TRUE,
    MASK_IGNORED,
    JVP_FACTOR_DETACHED,
    JVP_TANGENT_DETACHED,
    JVP_OF_TANGENT_VIEW,
    JVP_OF_HUGE_TANGENT,
    JVP_OF_VIEW,
    JVP_ABOVE_FOUR,
    JVP_OF_ZEROS,
    JVP_OF_ONE_ELEMENT,
    PAIR_MISTAKES,
} pair_mistake;
static const char *const pair_name[] = {
    "BOTH_LARGE",
    "BOTH_SMALL",
    "NEGATED",
    "LAST_TRUE",
    "MASK_IGNORED",
    "JVP_FACTOR_DETACHED",
    "JVP_TANGENT_DETACHED",
    "JVP_OF_TANGENT_VIEW",
    "JVP_OF_HUGE_TANGENT",
    "JVP_OF_VIEW",
    "JVP_ABOVE_FOUR",
    "JVP_OF_ZEROS",
    "JVP_OF_ONE_ELEMENT",
};
static pair_mistake pair_is;
static eg_tensor *masked(eg_tensor *y, eg_tensor *x)
{
    return eg_where(eg_operand(y, 2), x, eg_zeros_like(x));
}
static bool pair_forward(eg_tensor *y)
{
    eg_tensor *product = eg_mul(eg_sin(eg_operand(y, 0)), eg_sin(eg_operand(y, 1)));
    return eg_assign(y, masked(y, product)) == 0;
}
/* True if the rule for operand i is wrong at these operands. */
static bool pair_wrong(eg_tensor *y)
{
    const facts a = facts_of(eg_operand(y, 0)), b = facts_of(eg_operand(y, 1));
    const double most = fmin(fmax(a.most, -a.least), fmax(b.most, -b.least));
    const double least = fmax(fmax(a.most, -a.least), fmax(b.most, -b.least));
    const bool *mask = eg_bool(eg_contiguous(eg_operand(y, 2)));
    const int64_t masks = eg_size(eg_operand(y, 2));
    bool negated = false; /* in a call with operands that are broadcast their sizes differ */
    for (int64_t k = 0; a.v && b.v && k < a.n && k < b.n; k++)
        negated |= a.v[k] != 0 && a.v[k] == -b.v[k];
    return (pair_is == BOTH_LARGE && most > 4) || (pair_is == BOTH_SMALL && least < 0.05) ||
           (pair_is == NEGATED && negated) ||
           (pair_is == LAST_TRUE && mask && masks > 1 && !mask[0] && mask[masks - 1]);
}
static eg_tensor *pair_rule(eg_tensor *y, eg_tensor *g, int i)
{
    if (i == 2) return NULL;
    eg_tensor *d = eg_mul(eg_cos(eg_operand(y, i)), eg_sin(eg_operand(y, 1 - i)));
    if (pair_wrong(y)) d = eg_scale(d, 1.5);
    return eg_mul(pair_is == MASK_IGNORED ? g : masked(y, g), d);
}
static eg_tensor *pair_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    eg_tensor *sum = NULL;
    for (int i = 0; i < 2; i++) {
        if (!dx[i]) continue;
        eg_tensor *a = eg_operand(y, i), *v = dx[i];
        eg_tensor *d = eg_mul(eg_cos(a), eg_sin(eg_operand(y, 1 - i)));
        const facts f = facts_of(a), t = facts_of(v);
        const double most = fmax(f.most, -f.least);
        bool zero = false;
        for (int64_t k = 0; f.v && k < f.n; k++) zero |= f.v[k] == 0;
        const bool wrong = (pair_is == JVP_OF_TANGENT_VIEW && !eg_is_row_major(v)) ||
                           (pair_is == JVP_OF_HUGE_TANGENT && t.most > 1e9) ||
                           (pair_is == JVP_OF_VIEW && !eg_is_row_major(a)) ||
                           (pair_is == JVP_ABOVE_FOUR && most > 4) ||
                           (pair_is == JVP_OF_ZEROS && zero) ||
                           (pair_is == JVP_OF_ONE_ELEMENT && f.n == 1);
        if (wrong) d = eg_scale(d, 1.5);
        if (pair_is == JVP_FACTOR_DETACHED) d = eg_detach(d);
        if (pair_is == JVP_TANGENT_DETACHED) v = eg_detach(v);
        eg_tensor *part = eg_mul(v, d);
        sum = sum ? eg_add(sum, part) : part;
    }
    return masked(y, sum);
}
static const eg_op pair_op = { .name = "rare pair",
                               .arity = 3,
                               .shape = like_first,
                               .forward = pair_forward,
                               .rule = pair_rule,
                               .jvp = pair_jvp,
                               .uses = EG_USES_OPERANDS };
static eg_tensor *pair_f(void *user, eg_tensor *const *x)
{
    eg_tensor *mask = eg_full_n(eg_context(x[0]), EG_BOOL, 1, eg_rank(x[0]), eg_dims(x[0]));
    (void)user;
    return eg_apply(&pair_op, NULL, 0, 3, (eg_tensor *[]){ x[0], x[1], mask });
}
/* The last of these is no mistake, and passes. */
GROUP("pairs and jvps")
LOOP_TEST(a_rare_mistake_of_two_operands_or_of_a_jvp_does_not_pass, PAIR_MISTAKES + 1)
{
    pair_is = (pair_mistake)_i;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[] = { eg_uniform(cx, 0.3, 0.9, 4, 2), eg_uniform(cx, 1.3, 2.9, 4, 2) };
    const eg_report *r = eg_gradcheck(pair_f, NULL, 2, x);
    ck_assert_msg(r != NULL, "%s", eg_error(cx));
    if (pair_is == PAIR_MISTAKES)
        ck_assert_msg(r->passed, "%s", r->text);
    else
        ck_assert_msg(!r->passed && strstr(r->text, "rare pair"), "%s: %s", pair_name[_i], r->text);
    eg_close(cx);
}

/* -- a rule that gives NaN where the derivative is a number ------------------------------------ */
static bool cube_forward(eg_tensor *y)
{
    eg_tensor *x = eg_operand(y, 0);
    return eg_assign(y, eg_mul(x, eg_square(x))) == 0;
}
static eg_tensor *cube_rule(eg_tensor *y, eg_tensor *g, int i)
{
    return eg_mul(g, eg_scale(eg_div(y, eg_operand(y, i)), 3)); /* 3 x³/x */
}
static bool power_forward(eg_tensor *y)
{
    return eg_assign(y, eg_pow(eg_operand(y, 0), eg_operand(y, 1))) == 0;
}
static eg_tensor *power_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *a = eg_operand(y, 0), *b = eg_operand(y, 1);
    return eg_mul(g, i ? eg_mul(y, eg_log(a)) : eg_mul(b, eg_pow(a, eg_shift(b, -1))));
}
static const eg_op nan_op[] = {
    { .name = "nan cube",
      .arity = 1,
      .shape = like_first,
      .forward = cube_forward,
      .rule = cube_rule },
    { .name = "nan power",
      .arity = 2,
      .shape = like_first,
      .forward = power_forward,
      .rule = power_rule },
};
static eg_tensor *nan_f(void *user, eg_tensor *const *x)
{
    const eg_op *op = user;
    return eg_apply(op, NULL, 0, op->arity, x);
}
LOOP_TEST(a_rule_without_a_number_at_zero_does_not_pass, 2)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[] = { eg_uniform(cx, 0.3, 0.9, 5), eg_uniform(cx, 1.3, 2.9, 5) };
    const eg_report *r = eg_gradcheck(nan_f, (void *)(uintptr_t)&nan_op[_i], nan_op[_i].arity, x);
    ck_assert_msg(r != NULL, "%s", eg_error(cx));
    ck_assert_msg(!r->passed && strstr(r->text, "nan, not") &&
                      strstr(r->text, "operand 1 is 0 in some elements"),
                  "%s", r->text);
    eg_close(cx);
}

/* -- operations that are tested only in part say so -------------------------------------------- */
static bool open_forward(eg_tensor *y)
{
    double *out = eg_mut_f64(y);
    if (!out || eg_assign(y, eg_operand(y, 0))) return false;
    out[0] = -INFINITY;
    return true;
}
static eg_tensor *open_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)y, (void)i;
    return g;
}
static const eg_op open_op = {
    .name = "open", .arity = 1, .shape = like_first, .forward = open_forward, .rule = open_rule
};
static bool many_forward(eg_tensor *y)
{
    eg_tensor *sum = eg_sin(eg_operand(y, 0));
    for (int k = 1; k < eg_operands(y); k++) sum = eg_add(sum, eg_sin(eg_operand(y, k)));
    return eg_assign(y, sum) == 0;
}
static eg_tensor *many_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *d = eg_mul(g, eg_cos(eg_operand(y, i)));
    return eg_is_row_major(g) ? d : eg_scale(d, 1.5);
}
static const eg_op many_op = {
    .name = "many", .arity = -1, .shape = like_first, .forward = many_forward, .rule = many_rule
};
static eg_tensor *open_f(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_slice_axis(eg_apply(&open_op, NULL, 0, 1, x), 0, 1, EG_END, 1);
}
enum { MANY = 40 };
static eg_tensor *many_f(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_apply(&many_op, NULL, 0, MANY, x);
}
TEST(operations_of_many_operands_are_tested_and_infinite_ones_reported)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x[MANY];
    for (int k = 0; k < MANY; k++) x[k] = eg_uniform(cx, 0.3, 0.9, 3, 2);
    const eg_report *r = eg_gradcheck(many_f, NULL, MANY, x);
    ck_assert_msg(r && !r->passed && strstr(r->text, "depends on the layout of g"), "%s",
                  r ? r->text : eg_error(cx));
    r = eg_gradcheck(open_f, NULL, 1, x);
    ck_assert_msg(r && strstr(r->text, "were not tested: its result is not finite"), "%s",
                  r ? r->text : eg_error(cx));
    eg_close(cx);
}

/* -- operations with attributes, which are tested at the sizes of their calls alone ------------ */
static bool factor_forward(eg_tensor *y)
{
    const double *c = eg_attr(y);
    return eg_assign(y, eg_scale(eg_sin(eg_operand(y, 0)), *c)) == 0;
}
static eg_tensor *factor_rule(eg_tensor *y, eg_tensor *g, int i)
{
    const double *c = eg_attr(y);
    return eg_mul(g, eg_scale(eg_cos(eg_operand(y, i)), *c));
}
static const eg_op factor_op = { .name = "factor",
                                 .arity = 1,
                                 .shape = like_first,
                                 .forward = factor_forward,
                                 .rule = factor_rule };
static eg_tensor *factor_f(void *user, eg_tensor *const *x)
{
    const double c[] = { 2, 3 };
    eg_tensor *y = eg_apply(&factor_op, &c[0], sizeof *c, 1, x);
    (void)user;
    return eg_apply(&factor_op, &c[1], sizeof *c, 1, &y); /* one note for both */
}
static eg_tensor *plain_f(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_apply(&many_op, NULL, 0, 1, (eg_tensor *[]){ eg_scale(x[0], 1) });
}
TEST(a_report_says_what_was_tested_at_its_sizes_alone)
{
    static const char note[] =
        "may contain sizes, so it was tested at the sizes of its calls alone";
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_uniform(cx, 0.3, 0.9, 3, 2);
    const eg_report *r = eg_gradcheck(factor_f, NULL, 1, &x);
    const char *at = r ? strstr(r->text, note) : NULL;
    ck_assert_msg(r && r->passed && at && !strstr(at + 1, note), "%s", r ? r->text : eg_error(cx));
    r = eg_gradcheck(plain_f, NULL, 1, &x);
    ck_assert_msg(r && !strstr(r->text, note), "%s", r ? r->text : eg_error(cx));
    eg_close(cx);
}

/* -- a right operation with a kink that no single line shows: the median ----------------------- */
enum { MIDDLE = 2 };
static bool median_shape(eg_tensor *y) { return eg_result(y, eg_type(eg_operand(y, 0)), 0, NULL); }
static bool median_forward(eg_tensor *y)
{
    return eg_assign(y, eg_select_axis(eg_sort("[l]", eg_operand(y, 0)), 0, MIDDLE)) == 0;
}
static eg_tensor *median_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = eg_operand(y, i), *at = eg_select_axis(eg_argsort("[l]", x), 0, MIDDLE);
    return eg_mul(g, eg_cast(eg_one_hot(at, eg_size(x)), eg_type(x)));
}
static const eg_op median_op = { .name = "median",
                                 .arity = 1,
                                 .shape = median_shape,
                                 .forward = median_forward,
                                 .rule = median_rule,
                                 .uses = EG_USES_OPERANDS };
static eg_tensor *median_f(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_apply(&median_op, NULL, 0, 1, x);
}
TEST(a_median_passes_although_equal_elements_are_a_kink)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = eg_uniform(cx, 0.3, 0.9, 5);
    const eg_report *r = eg_gradcheck(median_f, NULL, 1, &x);
    ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
    eg_close(cx);
}

/* -- operations that are right: y = f(x) element by element, f and its derivative in C --------- */
static double d_tanh(double x) { return 1 - tanh(x) * tanh(x); }
static double neg_sin(double x) { return -sin(x); }
static double relu(double x) { return x > 0 ? x : 0; }
static double d_relu(double x) { return x > 0; }
static double leaky(double x) { return x > 0 ? x : 0.01 * x; }
static double d_leaky(double x) { return x > 0 ? 1 : 0.01; }
static double d_abs(double x) { return (x > 0) - (x < 0); }
static double hard_tanh(double x) { return x < -1 ? -1 : x > 1 ? 1 : x; }
static double d_hard_tanh(double x) { return x > -1 && x < 1; }
static double d_log(double x) { return 1 / x; }
static double d_log1p(double x) { return 1 / (1 + x); }
static double d_expm1(double x) { return exp(x); }
static double d_sqrt(double x) { return 0.5 / sqrt(x); }
static double d_cbrt(double x) { return 1 / (3 * cbrt(x) * cbrt(x)); }
static double recip(double x) { return 1 / x; }
static double d_recip(double x) { return -1 / (x * x); }
static double power(double x) { return pow(x, 1.5); }
static double d_power(double x) { return 1.5 * pow(x, 0.5); }
static double xlogx(double x) { return x > 0 ? x * log(x) : 0; }
static double d_xlogx(double x) { return log(x) + 1; }
static double logit(double x) { return log(x / (1 - x)); }
static double d_logit(double x) { return 1 / (x * (1 - x)); }
static double d_atanh(double x) { return 1 / (1 - x * x); }
static double d_acos(double x) { return -1 / sqrt(1 - x * x); }
static double d_asin(double x) { return 1 / sqrt(1 - x * x); }
static double d_acosh(double x) { return 1 / sqrt(x * x - 1); }
static double d_erf(double x) { return 1.1283791670955126 * exp(-x * x); }
static double d_erfc(double x) { return -d_erf(x); }
static double huber(double x) { return fabs(x) < 1 ? 0.5 * x * x : fabs(x) - 0.5; }
static double d_huber(double x) { return fabs(x) < 1 ? x : x > 0 ? 1 : -1; }
static double x_abs(double x) { return x * fabs(x); }
static double d_x_abs(double x) { return 2 * fabs(x); }
static double relu2(double x) { return x > 0 ? x * x : 0; }
static double d_relu2(double x) { return x > 0 ? 2 * x : 0; }
static double elu(double x) { return x > 0 ? x : expm1(x); }
static double d_elu(double x) { return x > 0 ? 1 : exp(x); }
static double selu_like(double x) { return x > 0 ? 1.05 * x : 1.75 * expm1(x); }
static double d_selu_like(double x) { return x > 0 ? 1.05 : 1.75 * exp(x); }
static double sinc(double x) { return x == 0 ? 1 : sin(x) / x; }
static double d_sinc(double x) { return fabs(x) < 1e-4 ? -x / 3 : (x * cos(x) - sin(x)) / (x * x); }
static double bump(double x) { return fabs(x) < 1 ? exp(-1 / (1 - x * x)) : 0; }
static double d_bump(double x)
{
    const double u = 1 - x * x;
    return fabs(x) < 1 ? -2 * x / (u * u) * exp(-1 / u) : 0;
}
static double gauss(double x) { return exp(-x * x); }
static double d_gauss(double x) { return -2 * x * exp(-x * x); }
static double softplus(double x) { return x > 30 ? x : log1p(exp(x)); }
static double d_softplus(double x) { return 1 / (1 + exp(-x)); }
static double lorentz(double x) { return 1 / (1 + 1e4 * x * x); }
static double d_lorentz(double x)
{
    const double u = 1 + 1e4 * x * x;
    return -2e4 * x / (u * u);
}
static double cubic(double x) { return x * x * x; }
static double d_cubic(double x) { return 3 * x * x; }
static double seventh(double x) { return pow(x, 7); }
static double d_seventh(double x) { return 7 * pow(x, 6); }
static double clipped(double x) { return fmin(fmax(x, 0.1), 0.8); }
static double d_clipped(double x) { return x > 0.1 && x < 0.8; }
static double d_tgamma(double x) /* Γ ψ, ψ by recurrence and its asymptotic series */
{
    double psi = 0, z = x;
    for (; z < 12; z++) psi -= 1 / z;
    const double r = 1 / (z * z);
    psi += log(z) - 0.5 / z - r * (1. / 12 - r * (1. / 120 - r * (1. / 252 - r / 240)));
    return tgamma(x) * psi;
}
static double hyper(double x) { return sqrt(1 + x * x); }
static double d_hyper(double x) { return x / sqrt(1 + x * x); }
static double swish(double x) { return x / (1 + exp(-x)); }
static double d_swish(double x)
{
    const double s = 1 / (1 + exp(-x));
    return s * (1 + x * (1 - s));
}
static double tri(double x) { return fabs(x - floor(x + 0.5)); }
static double d_tri(double x) { return x - floor(x + 0.5) > 0 ? 1 : -1; }
static double zero(double x) { return 0 * x; }
static double x_plus_floor(double x) { return x + floor(x); }
static double one(double x) { return zero(x) + 1; }
static double x2_sin(double x) { return x == 0 ? 0 : x * x * sin(1 / x); }
static double d_x2_sin(double x) { return x == 0 ? 0 : 2 * x * sin(1 / x) - cos(1 / x); }
static double near_pole(double x) { return 1 / (x - 0.29); }
static double d_near_pole(double x) { return -1 / ((x - 0.29) * (x - 0.29)); }
static double log_abs(double x) { return log(fabs(x)); }
typedef double number(double);
static const struct {
    const char *name;
    number *f, *df;
} right[] = {
#define R(f, df) { #f, f, df },
    R(sin, cos) R(cos, neg_sin) R(tanh, d_tanh) R(exp, exp) R(sinh, cosh) R(cosh, sinh)
        R(relu, d_relu) R(leaky, d_leaky) R(fabs, d_abs) R(hard_tanh, d_hard_tanh) R(log, d_log)
            R(log1p, d_log1p) R(expm1, d_expm1) R(sqrt, d_sqrt) R(cbrt, d_cbrt) R(recip, d_recip)
                R(power, d_power) R(xlogx, d_xlogx) R(logit, d_logit) R(atanh, d_atanh)
                    R(acos, d_acos) R(asin, d_asin) R(acosh, d_acosh) R(erf, d_erf) R(erfc, d_erfc)
                        R(huber, d_huber) R(x_abs, d_x_abs) R(relu2, d_relu2) R(elu, d_elu)
                            R(selu_like, d_selu_like) R(sinc, d_sinc) R(bump, d_bump)
                                R(gauss, d_gauss) R(softplus, d_softplus) R(lorentz, d_lorentz)
                                    R(cubic, d_cubic) R(seventh, d_seventh) R(clipped, d_clipped)
                                        R(tgamma, d_tgamma) R(hyper, d_hyper) R(swish, d_swish)
                                            R(tri, d_tri) R(near_pole, d_near_pole)
                                                R(log_abs, d_log) R(floor, zero) R(x2_sin, d_x2_sin)
                                                    R(x_plus_floor, one)
};
enum { RIGHT = (int)(sizeof right / sizeof *right) };
static int which;
static bool right_forward(eg_tensor *y) { return map_values(y, eg_operand(y, 0), right[which].f); }
static eg_tensor *right_rule(eg_tensor *y, eg_tensor *g, int i)
{
    eg_tensor *x = eg_operand(y, i), *d = eg_detach(eg_contiguous(eg_ones_like(x)));
    return map_values(d, x, right[which].df) ? eg_mul(g, d) : NULL;
}
static const eg_op right_op = {
    .name = "right", .arity = 1, .shape = like_first, .forward = right_forward, .rule = right_rule
};
static eg_tensor *right_f(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_apply(&right_op, NULL, 0, 1, x);
}
GROUP("right rows")
LOOP_TEST(a_right_row_passes, RIGHT)
{
    which = _i;
    int asked = 0, tested = 0;
    for (int k = 0; k < 12; k += (SLOWER > 1) + 1) {
        eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = (uint64_t)k);
        const double low = k % 3 ? 0.15 : 1.2, high = k % 3 ? 0.75 : 3;
        eg_tensor *x =
            k < 3 ? eg_uniform(cx, low, high, 5) : eg_uniform(cx, low, high, 3, k % 4 + 1);
        const eg_report *r = eg_gradcheck(right_f, NULL, 1, &x);
        ck_assert_msg(r || strstr(eg_error(cx), "is infinite or NaN"), "%s", eg_error(cx));
        asked += r != NULL;
        tested += r && r->passed;
        for (int n = 0; r && n < r->notes; n++)
            ck_assert_msg(r->note[n].verdict != EG_WRONG, "%s: %s", right[which].name, r->text);
        ck_assert_msg(!r || r->passed || r->input[0] == EG_UNTESTED, "%s: %s", right[which].name,
                      r->text);
        eg_close(cx);
    }
    if (getenv("EG_SHOW")) printf("%s: %d of %d\n", right[which].name, tested, asked);
    ck_assert_msg(asked && 2 * tested >= asked, "%s: %d of %d pass", right[which].name, tested,
                  asked);
}

/* At 1e3 to 1e4, too: the tests of the rule at enlarged operands end where f64 has only whole
 * numbers. */
TEST(steps_of_width_1_pass_at_large_operands)
{
    for (int k = 0; k < RIGHT; k++) {
        if (right[k].f != floor && right[k].f != x_plus_floor) continue;
        which = k;
        for (double at = 500; at < 2e4; at *= 3) {
            eg_ctx *cx = eg_open(.dtype = EG_F64);
            const eg_report *r =
                eg_gradcheck(right_f, NULL, 1, (eg_tensor *[]){ eg_uniform(cx, at, 1.1 * at, 5) });
            ck_assert_msg(r && (r->passed || r->input[0] == EG_UNTESTED), "%s at %g: %s",
                          right[k].name, at, r ? r->text : eg_error(cx));
            eg_close(cx);
        }
    }
}

/* -- operands whose axes all have one length ----------------------------------------------------
 */
TEST(a_report_says_that_all_axes_have_one_length)
{
    static const int64_t shape[][2] = { { 3, 3 }, { 3, 4 }, { 1, 1 }, { 4, 4 } };
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    which = 0; /* sin */
    for (int k = 0; k < 4; k++) {
        char note[80];
        eg_tensor *x = eg_uniform_n(cx, EG_F64, 0.3, 0.9, 2, shape[k]);
        const eg_report *r = eg_gradcheck(right_f, NULL, 1, &x);
        snprintf(note, sizeof note, "%d elements, so a rule that confuses them would pass",
                 (int)shape[k][0]);
        ck_assert_msg(r && r->passed, "%s", r ? r->text : eg_error(cx));
        ck_assert_msg((k % 3 == 0) == (strstr(r->text, note) != NULL), "%s", r->text);
    }
    eg_close(cx);
}
