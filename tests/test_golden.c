/* test_golden.c: all public functions on tensors compared with PyTorch's values: value, gradient
 * and gradient of the gradient, on contiguous operands and on permuted and sliced ones
 * (tests/reference/goldens.py made the data); derivatives of the third order. Also, headers and
 * table agree: there is no function without a case, and no operation that no function uses. */
#include <eingrad.h>
#include <eingrad/check.h>
#include <stdlib.h>
#include "fixtures.h"
#include "tests.h"

enum { OPERANDS = 3 };
static eg_ctx *cx;
static eg_safetensors *file;
static void open_file(void)
{
    cx = eg_open(.dtype = EG_F64);
    file = eg_safetensors_open(cx, source_path("tests/data/golden.safetensors"));
    eg_assert_ok(cx);
}
static void close_file(void)
{
    eg_safetensors_close(file);
    eg_close(cx);
}

static eg_tensor *exp_product(eg_tensor *a, eg_tensor *b) { return eg_mul(a, eg_exp(b)); }
static eg_tensor *constant(eg_tensor *x, double c)
{
    return eg_full_n(eg_context(x), eg_type(x), c, 0, NULL);
}
#define SQUARE(CALL) eg_square(CALL)

/* X(name, the expression that goldens.py computes) */
/* clang-format off */
#define CASES(X)                                                                                  \
    X(permute,      SQUARE(eg_permute(x[0], 2, 0, 1)))                                            \
    X(transpose,    eg_exp(eg_transpose(x[0], 0, 2)))                                             \
    X(view,         SQUARE(eg_view(eg_contiguous(x[0]), 6, 4)))                                   \
    X(reshape,      SQUARE(eg_reshape(eg_transpose(x[0], 0, 1), 3, 8)))                           \
    X(slice,        SQUARE(eg_slice_axis(eg_slice_axis(x[0], 1, 1, EG_END, 1), 2, 0, EG_END, 2))) \
    X(select,       SQUARE(eg_select_axis(x[0], 1, 2)))                                           \
    X(flip,         eg_mul(SQUARE(eg_flip_axis(x[0], 2)), x[0]))                                  \
    X(expand,       eg_mul(SQUARE(eg_expand(x[0], 3, 4)),                                         \
                    eg_reshape(eg_arange(eg_context(x[0]), EG_F64, 0, 12, 1), 3, 4)))             \
    X(squeeze,      SQUARE(eg_squeeze(x[0], 1)))                                                  \
    X(unsqueeze,    SQUARE(eg_unsqueeze(x[0], 1)))                                                \
    X(diagonal,     SQUARE(eg_diagonal(x[0], 1, 0, 1)))                                           \
    X(unfold,       SQUARE(eg_unfold_axis(x[0], 1, 3, 2)))                                        \
    X(contiguous,   SQUARE(eg_contiguous(eg_transpose(x[0], 0, 1))))                              \
    X(copy,         SQUARE(eg_copy(x[0])))                                                        \
    X(cast,         eg_cast(eg_cast(x[0], EG_F32), EG_F64))                                       \
    X(rearrange,    SQUARE(eg_rearrange("b i (h d) -> b h i d", x[0], .b = 2, .i = 3, .h = 2)))   \
    X(concat,       SQUARE(eg_concat_axis(1, x[0], x[1])))                                        \
    X(stack,        SQUARE(eg_stack_axis(1, x[0], x[1])))                                         \
    X(pad,          SQUARE(eg_pad_axis(x[0], 1, 1, 2, .5)))                                       \
    X(tril,         SQUARE(eg_tril(x[0], 1)))                                                     \
    X(triu,         SQUARE(eg_triu(x[0], -1)))                                                    \
    X(einsum,       eg_einsum("bij,bjk,kk->ik", x[0], x[1], x[2]))                                \
    X(affine,       eg_affine("ibm,mhd->bihd", x[0], x[1], x[2]))                                 \
    X(solve_triangular, eg_solve_triangular("bij,bik->bjk", x[0], x[1], false))                   \
    X(on,           eg_on("bij, bj", exp_product, x[0], x[1]))                                    \
    X(sum,          SQUARE(eg_sum("[i] j [k]", x[0])))                                            \
    X(mean,         SQUARE(eg_mean("i [j] k", x[0])))                                             \
    X(prod,         eg_prod("i [j] k", x[0]))                                                     \
    X(max,          SQUARE(eg_max("i [j] k", x[0])))                                              \
    X(min,          SQUARE(eg_min("[i j] k", x[0])))                                              \
    X(logsumexp,    eg_logsumexp("[i] j [k]", x[0]))                                              \
    X(var,          eg_var("i [j k]", x[0]))                                                      \
    X(std,          eg_std("[i] j [k]", x[0], .correction = EG_OFF))                              \
    X(pnorm,        eg_pnorm("[i] j [k]", x[0], 3))                                               \
    X(argmax,       eg_argmax("i [j] k", x[0]))                                                   \
    X(argmin,       eg_argmin("i j [k]", x[0]))                                                   \
    X(any,          eg_any("i [j]", x[0]))                                                        \
    X(all,          eg_all("[i] j", x[0]))                                                        \
    X(neg,          eg_neg(x[0]))                                                                 \
    X(abs,          eg_abs(x[0]))                                                                 \
    X(sign,         eg_sign(x[0]))                                                                \
    X(exp,          eg_exp(x[0]))                                                                 \
    X(exp2,         eg_exp2(x[0]))                                                                \
    X(expm1,        eg_expm1(x[0]))                                                               \
    X(log,          eg_log(x[0]))                                                                 \
    X(log2,         eg_log2(x[0]))                                                                \
    X(log10,        eg_log10(x[0]))                                                               \
    X(log1p,        eg_log1p(x[0]))                                                               \
    X(sqrt,         eg_sqrt(x[0]))                                                                \
    X(rsqrt,        eg_rsqrt(x[0]))                                                               \
    X(square,       eg_square(x[0]))                                                              \
    X(recip,        eg_recip(x[0]))                                                               \
    X(sin,          eg_sin(x[0]))                                                                 \
    X(cos,          eg_cos(x[0]))                                                                 \
    X(tan,          eg_tan(x[0]))                                                                 \
    X(asin,         eg_asin(x[0]))                                                                \
    X(acos,         eg_acos(x[0]))                                                                \
    X(atan,         eg_atan(x[0]))                                                                \
    X(sinh,         eg_sinh(x[0]))                                                                \
    X(cosh,         eg_cosh(x[0]))                                                                \
    X(asinh,        eg_asinh(x[0]))                                                               \
    X(acosh,        eg_acosh(x[0]))                                                               \
    X(atanh,        eg_atanh(x[0]))                                                               \
    X(tanh,         eg_tanh(x[0]))                                                                \
    X(sigmoid,      eg_sigmoid(x[0]))                                                             \
    X(erf,          eg_erf(x[0]))                                                                 \
    X(relu,         eg_relu(x[0]))                                                                \
    X(gelu,         eg_gelu(x[0]))                                                                \
    X(gelu_tanh,    eg_gelu_tanh(x[0]))                                                           \
    X(silu,         eg_silu(x[0]))                                                                \
    X(softplus,     eg_softplus(x[0]))                                                            \
    X(floor,        eg_floor(x[0]))                                                               \
    X(ceil,         eg_ceil(x[0]))                                                                \
    X(trunc,        eg_trunc(x[0]))                                                               \
    X(round,        eg_round(x[0]))                                                               \
    X(isnan,        eg_isnan(x[0]))                                                               \
    X(leaky_relu,   eg_leaky_relu(x[0], .2))                                                      \
    X(elu,          eg_elu(x[0], .7))                                                             \
    X(scale,        SQUARE(eg_scale(x[0], -1.5)))                                                 \
    X(shift,        SQUARE(eg_shift(x[0], -1.5)))                                                 \
    X(powc,         eg_powc(x[0], 2.5))                                                           \
    X(clip,         SQUARE(eg_clip(x[0], -1, 1)))                                                 \
    X(add,          SQUARE(eg_add(x[0], x[1])))                                                   \
    X(sub,          SQUARE(eg_sub(x[0], x[1])))                                                   \
    X(mul,          eg_mul(x[0], x[1]))                                                           \
    X(div,          eg_div(x[0], x[1]))                                                           \
    X(pow,          eg_pow(x[0], x[1]))                                                           \
    X(atan2,        eg_atan2(x[0], x[1]))                                                         \
    X(hypot,        eg_hypot(x[0], x[1]))                                                         \
    X(logaddexp,    eg_logaddexp(x[0], x[1]))                                                     \
    X(maximum,      SQUARE(eg_maximum(x[0], x[1])))                                               \
    X(minimum,      SQUARE(eg_minimum(x[0], x[1])))                                               \
    X(eq,           eg_eq(x[0], x[1]))                                                            \
    X(ne,           eg_ne(x[0], x[1]))                                                            \
    X(lt,           eg_lt(x[0], x[1]))                                                            \
    X(le,           eg_le(x[0], x[1]))                                                            \
    X(gt,           eg_gt(x[0], x[1]))                                                            \
    X(ge,           eg_ge(x[0], x[1]))                                                            \
    X(and,          eg_and(x[0], x[1]))                                                           \
    X(or,           eg_or(x[0], x[1]))                                                            \
    X(xor,          eg_xor(x[0], x[1]))                                                           \
    X(not,          eg_not(x[0]))                                                                 \
    X(where,        eg_where(x[0], eg_exp(x[1]), eg_square(x[2])))                                \
    X(softmax,      eg_softmax("[s] i [t]", x[0]))                                                \
    X(log_softmax,  eg_log_softmax("b [v] l", x[0]))                                              \
    X(attention,    eg_attention("ibhd,jbhd,jbhe->ibhe", x[0], x[1], x[2], .where = "j <= i",     \
                    .form = EG_FUSED))                                                            \
    X(layernorm,    eg_layernorm("i j [d]", x[0], .gain = x[1], .bias = x[2]))                    \
    X(rmsnorm,      eg_rmsnorm("i j [d]", x[0], .gain = x[1]))                                    \
    X(cross_entropy,eg_cross_entropy("b [v] l", x[0], x[1], .ignore = -100, .smoothing = .1))     \
    X(bce_logits,   eg_bce_logits(x[0], x[1]))                                                    \
    X(mse,          eg_mse(x[0], x[1]))                                                           \
    X(huber,        eg_huber(x[0], x[1], .9))                                                     \
    X(kl_div,       eg_kl_div("b [v]", x[0], x[1]))                                               \
    X(at,           SQUARE(eg_at("[v] m, b l -> b l m", x[0], x[1])))                             \
    X(scatter_add,  SQUARE(eg_scatter_add("[v] m, b l, b l m", x[0], x[1], x[2])))                \
    X(one_hot,      eg_one_hot(x[0], 5))                                                          \
    X(cumsum,       SQUARE(eg_cumsum("b [l] d", x[0])))                                           \
    X(cummax,       SQUARE(eg_cummax("b [l] d", x[0])))                                           \
    X(cummin,       SQUARE(eg_cummin("b [l] d", x[0])))                                           \
    X(logcumsumexp, eg_logcumsumexp("b [l] d", x[0]))                                             \
    X(cumprod,      eg_cumprod("b [l] d", eg_sub(x[0], constant(x[0], eg_get(x[0], 0, 1, 2)))))   \
    X(linear_scan,  eg_linear_scan("b [l] d", x[0], x[1]))                                        \
    X(sort,         SQUARE(eg_sort("b [l] d", x[0], .descending = true)))                         \
    X(argsort,      eg_argsort("b [l] d", x[0]))                                                  \
    X(topk,         SQUARE(eg_topk("b l [d]", x[0], 2)))
/* clang-format on */

#define DEFINE(NAME, CALL) \
    static eg_tensor *NAME##_case(eg_tensor *const *x) { return CALL; }
#define ENTRY(NAME, CALL) { #NAME, NAME##_case },
CASES(DEFINE)
static const struct {
    const char *name;
    eg_tensor *(*call)(eg_tensor *const *x);
} cases[] = { CASES(ENTRY) };
enum { COUNT = sizeof cases / sizeof *cases };

/* NULL if the file has none */
static eg_tensor *stored(const char *name, char kind, int k)
{
    char key[64];
    snprintf(key, sizeof key, k < 0 ? "%s/%c" : "%s/%c%d", name, kind, k);
    eg_tensor *x = eg_safetensors_get(file, key);
    if (eg_ok(x)) return x;
    eg_clear(cx);
    return NULL;
}
static bool floats(const eg_tensor *x) { return eg_type(x) == EG_F64; }
static eg_tensor *comb(eg_tensor *like, double phase) /* cos(0.3 k + phase) */
{
    eg_tensor *t = eg_arange(cx, EG_F64, 0, (double)eg_size(like), 1);
    return eg_reshape_n(eg_cos(eg_shift(eg_scale(t, .3), phase)), eg_rank(like), eg_dims(like));
}

/* -- layouts: the same elements with another order of axes, or with gaps ----------------------- */
static eg_tensor *turned(eg_tensor *x)
{
    int back[8];
    for (int r = 0; r < eg_rank(x); r++) back[r] = eg_rank(x) - 1 - r;
    return eg_permute_n(eg_copy(eg_contiguous(eg_permute_n(x, eg_rank(x), back))), eg_rank(x),
                        back);
}
static eg_tensor *gapped(eg_tensor *x)
{
    if (!eg_rank(x)) return x;
    eg_tensor *wide = eg_stack_axis(-1, x, x); /* every second element */
    int64_t dim[8];
    for (int r = 0; r < eg_rank(x); r++) dim[r] = eg_dim(x, r);
    dim[eg_rank(x) - 1] *= 2;
    return eg_slice_axis(eg_reshape_n(wide, eg_rank(x), dim), -1, 0, EG_END, 2);
}
static eg_tensor *as_is(eg_tensor *x) { return x; }
static eg_tensor *(*const layouts[])(eg_tensor *) = { as_is, turned, gapped };

GROUP("golden", .setup = open_file, .teardown = close_file)

/* -- the operations of a result ---------------------------------------------------------------- */
typedef struct seen {
    const eg_tensor *at[4096];
    int count;
    const eg_op *op[512];
    int ops;
} seen;
static void visit(seen *s, const eg_tensor *t)
{
    for (int k = 0; k < s->count; k++)
        if (s->at[k] == t) return;
    ck_assert_int_lt(s->count, 4096);
    s->at[s->count++] = t;
    const eg_op *op = eg_op_of(t);
    int k = 0;
    while (k < s->ops && s->op[k] != op) k++;
    if (op && k == s->ops) s->op[s->ops++] = op;
    for (int i = 0; i < eg_operands(t); i++) visit(s, eg_operand(t, i));
}
static bool reads(const eg_tensor *y, const eg_tensor *x)
{
    static seen s;
    s.count = s.ops = 0;
    visit(&s, y);
    for (int k = 0; k < s.count; k++)
        if (s.at[k] == x) return true;
    return false;
}

/* -- cases without values of PyTorch ----------------------------------------------------------- */
#define HOW                                                                                   \
    "python3 tests/reference/goldens.py tests/data/golden.safetensors asks PyTorch for them " \
    "(after pip install torch safetensors)"

/* The operands of case c: those of the file or, if it has none, OPERANDS waves of (3, 4). */
static int operands_of(int c, eg_tensor **x)
{
    int n = 0;
    while (n < OPERANDS && (x[n] = stored(cases[c].name, 'x', n))) n++;
    if (n) return n;
    for (; n < OPERANDS; n++) x[n] = wave(cx, n + 1, 3, 4);
    return n;
}
static eg_tensor *call_case(void *user, eg_tensor *const *x)
{
    return cases[*(const int *)user].call(x);
}
/* For an operation that is being written: its gradients compared with differences, to second order.
 * Prints to stderr that this is less than a comparison with PyTorch, and how to get that. */
static void by_differences(int c)
{
    const char *name = cases[c].name;
    eg_tensor *x[OPERANDS];
    int n = operands_of(c, x);
    eg_tensor *y = cases[c].call(x);
    ck_assert_msg(eg_ok(y),
                  "%s: golden.safetensors has no numbers of it, and %d operands of (3, 4) "
                  "do not suit: %s\n" HOW,
                  name, n, eg_error(cx));
    ck_assert_msg(floats(y),
                  "%s: golden.safetensors has no numbers of it, and without a gradient "
                  "nothing else says what is right\n" HOW,
                  name);
    while (n > 1 && !reads(y, x[n - 1])) n--;
    const eg_report *r = eg_gradcheck(call_case, &c, n, x, .order = 2);
    ck_assert_msg(r && r->passed, "%s: %s", name, r ? r->text : eg_error(cx));
    fprintf(stderr,
            "golden: %s: no numbers of PyTorch; gradients compared with differences, values "
            "with nothing\n" HOW "\n",
            name);
}

LOOP_TEST(as_pytorch, COUNT)
{
    const char *name = cases[_i].name;
    if (!stored(name, 'x', 0)) {
        by_differences(_i);
        return;
    }
    for (int layout = 0; layout < 3; layout++) {
        eg_tensor *x[OPERANDS], *w[OPERANDS], *d[OPERANDS], *e[OPERANDS], *third[OPERANDS],
            *s = NULL;
        int count = 0, n = 0;
        for (; count < OPERANDS && (x[count] = stored(name, 'x', count)); count++) {
            x[count] = eg_detach(layouts[layout](x[count]));
            if (floats(x[count])) w[n++] = x[count];
        }
        eg_tensor *y = cases[_i].call(x), *want = stored(name, 'y', -1);
        eg_assert_ok(cx);
        if (eg_type(y) == EG_F64)
            eg_assert_close(y, want, 1e-14 * (double)(8 + eg_size(y)));
        else
            eg_assert_close(eg_cast(y, EG_F64), eg_cast(want, EG_F64), 0);
        /* integers, bools: they have no gradient, and eg_grad says so */
        if (!stored(name, 'd', 0)) {
            ck_assert_msg(!floats(y) || n == 0, "%s: the file has no gradient", name);
            continue;
        }
        ck_assert_msg(!eg_grad(y, comb(y, 0), n, w, d), "%s: %s", name, eg_error(cx));
        for (int k = 0; k < n; k++) {
            eg_assert_close(d[k], stored(name, 'd', k), 1e-13);
            eg_tensor *part = eg_sum(NULL, eg_mul(comb(d[k], k), d[k]));
            s = s ? eg_add(s, part) : part;
        }
        ck_assert_msg(!eg_grad(s, NULL, n, w, e), "%s: second order: %s", name, eg_error(cx));
        for (int k = 0; k < n; k++) {
            eg_assert_close(e[k], stored(name, 'e', k), 2e-13);
            ck_assert_msg(!eg_grad(e[k], comb(e[k], 0), n, w, third), "%s: third order: %s", name,
                          eg_error(cx));
            for (int j = 0; j < n; j++)
                for (int64_t i = 0; i < eg_size(third[j]); i++)
                    ck_assert_msg(isfinite(eg_f64(third[j])[i]),
                                  "%s: the third derivative by operand %d is not finite", name,
                                  j + 1);
        }
        eg_assert_ok(cx);
    }
}

/* -- header and table ------------------------------------------------------------------------- */
/* Functions of tensors that need no case, and the reason. */
static const char *const without_case[][2] = {
    { "fail", "records an error" },
    { "keep", "moves a tensor to another scope" },
    { "zeros_like", "reads a shape" },
    { "ones_like", "reads a shape" },
    { "captured_output", "an output of a captured step: test_capture.c" },
    { "detach", "its gradient is none, by definition" },
    { "complex", "c128 has no gradient" },
    { "real", "c128 has no gradient" },
    { "imag", "c128 has no gradient" },
    { "dropout", "draws: test_loss.c" },
    { "expr", "formulas: test_expr.c" },
    { "convolve", "its definition: test_convolve.c" },
    { "where_mask", "makes a mask" },
    { "mask_ignore", "makes a mask" },
    { "mask_additive", "makes a mask" },
    { "roll", "moves elements: test_letters.c" },
    { "pack", "moves numbers: test_pack.c" },
    { "unpack", "moves numbers: test_pack.c" },
    { "einsum_labels", "the bits of its string: test_einsum.c" },
    { "from", "makes a leaf" },
    { "from_memory", "makes a leaf" },
    { "keep_in", "copies: test_foreign.c" },
    { "copies_unstack", "a view of each copy: test_copies.c" },
    { "copies_stack", "a view of all copies: test_copies.c" },
    { "copy_at", "a view of one copy: test_copies.c" },
    { "owner_copies", "makes a leaf: test_copies.c" },
};
static bool has_case(const char *name)
{
    for (int k = 0; k < COUNT; k++)
        if (!strcmp(cases[k].name, name)) return true;
    for (size_t k = 0; k < sizeof without_case / sizeof *without_case; k++)
        if (!strcmp(without_case[k][0], name)) return true;
    return false;
}
/* Every declaration "EG_API eg_tensor *eg_NAME(…)" with a tensor or options in the brackets; NAME
 * without _n, _with and _axis. */
static int names_in(const char *header)
{
    char path[128], line[2048], name[64];
    int found = 0;
    snprintf(path, sizeof path, "include/eingrad/%s", header);
    FILE *f = fopen(source_path(path), "r");
    ck_assert_msg(f != NULL, "%s cannot be opened", path);
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "EG_API eg_tensor *eg_", 21)) continue;
        for (size_t n; !strchr(line, ';') && (n = strlen(line)) < sizeof line - 1;)
            if (!fgets(line + n, (int)(sizeof line - n), f)) break;
        const char *open = strchr(line, '('), *end = open ? strstr(open, ");") : NULL;
        if (!end) continue;
        const char *tensor = strstr(open, "eg_tensor *"), *options = strstr(open, "_args *");
        if (!(tensor && tensor < end) && !(options && options < end)) continue;
        ck_assert_int_eq(sscanf(line, "EG_API eg_tensor *eg_%63[a-z0-9_]", name), 1);
        static const char *const forms[] = { "_with", "_n", "_axis" };
        for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
            const size_t n = strlen(name), m = strlen(forms[k]);
            if (n > m && !strcmp(name + n - m, forms[k])) name[n - m] = 0;
        }
        ck_assert_msg(has_case(name), "eg_%s of %s has no case here, nor a reason to have none",
                      name, header);
        found++;
    }
    fclose(f);
    return found;
}
TEST(every_function_has_a_case)
{
    ck_assert_int_gt(names_in("core.h"), 5);
    ck_assert_int_gt(names_in("views.h"), 20);
    ck_assert_int_gt(names_in("ops.h"), 80);
    ck_assert_int_gt(names_in("loss.h"), 4);
    ck_assert_int_gt(names_in("scan.h"), 6);
    ck_assert_int_gt(names_in("attention.h"), 1);
}

/* Operations that the cases do not reach, and where they are tested. */
static const char *const elsewhere[][2] = {
    { "sum", "test_reduce.c" }, /* of bytes and bools */
    { "extreme_slope", "test_reduce.c" },
    { "var", "long rows: test_reduce.c" },
    { "prod", "test_reduce.c" },
    { "prod_slope", "test_reduce.c" },
    { "accumulate_products", "large overlapping windows: test_einsum.c" },
    { "affine_activation", "test_affine.c" },
    { "copies_unstack", "test_copies.c" },
    { "copies_stack", "test_copies.c" },
    { "dropout", "test_loss.c" },
    { "pack", "test_pack.c" },
    { "unpack", "test_pack.c" },
    { "detach", "it cuts the path" },
    { "expr", "test_expr.c" },
    { "convolve", "test_convolve.c" },
    { "expr_gradient", "test_expr.c" },
    { "checkpoint", "test_recompute.c" },
    { "attention_product", "NaN that masks forbid: test_fused.c" },
};
TEST(every_operation_is_reached_by_a_stored_case)
{
    static seen s;
    s.ops = 0;
    for (int c = 0; c < COUNT; c++) {
        eg_mark m = eg_push(cx);
        eg_tensor *x[OPERANDS], *w[OPERANDS], *d[OPERANDS], *e[OPERANDS];
        const int count = operands_of(c, x);
        int n = 0;
        for (int k = 0; k < count; k++)
            if (floats(x[k])) w[n++] = x[k];
        s.count = 0;
        eg_tensor *y = cases[c].call(x);
        visit(&s, y);
        if (floats(y) && n && !eg_grad(y, comb(y, 0), n, w, d))
            for (int k = 0; k < n; k++) {
                visit(&s, d[k]);
                if (eg_grad(d[k], comb(d[k], 0), n, w, e)) continue;
                for (int j = 0; j < n; j++) visit(&s, e[j]);
            }
        eg_assert_ok(cx);
        eg_pop(cx, m);
    }
    for (int r = 0; eg_op_at(r); r++) {
        bool reached = false;
        for (int k = 0; k < s.ops; k++) reached |= s.op[k] == eg_op_at(r);
        for (size_t k = 0; k < sizeof elsewhere / sizeof *elsewhere; k++)
            reached |= !strcmp(elsewhere[k][0], eg_op_at(r)->name);
        ck_assert_msg(reached, "no public function with a case here reaches the operation %s",
                      eg_op_at(r)->name);
    }
}
