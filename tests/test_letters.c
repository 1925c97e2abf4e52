/* test_letters.c: operations along one axis that is given by a letter: each equals its form by
 * number, value and gradients to second order, bit for bit, on every layout; refusals; and the
 * alignment of any number of operands. */
#include <eingrad/check.h>
#include <string.h>
#include "gradcheck/gradcheck.h"
#include "tests.h"

static eg_tensor *ramp(eg_ctx *cx, int rank, const int64_t *dims)
{
    return eg_reshape_n(eg_arange(cx, EG_F64, 0, (double)eg__count(rank, dims), 1), rank, dims);
}
#define RAMP(cx, ...) ramp((cx), EG_DIMS_(__VA_ARGS__))

/* The same bytes and shape. */
static void same(eg_tensor *a, eg_tensor *b, const char *what)
{
    ck_assert_msg(eg_ok(a) && eg_ok(b), "%s: %s", what, eg_error(eg_context(a)));
    ck_assert_msg(eg__same_shape(a, b), "%s: the shapes differ", what);
    ck_assert_msg(!memcmp(eg_f64(a), eg_f64(b), (size_t)eg_size(a) * sizeof(double)),
                  "%s: the values differ", what);
}

/* -- by letters and by number ----------------------------------------------------------------- */
typedef struct form {
    const char *what;
    const char *spec[3]; /* the axis 0, 1, 2 in brackets */
    eg_tensor *(*letters)(const char *spec, eg_tensor *x);
    eg_tensor *(*number)(eg_tensor *x, int axis);
} form;
static eg_tensor *slice_l(const char *s, eg_tensor *x) { return eg_slice(s, x, 1, EG_END, 2); }
static eg_tensor *slice_n(eg_tensor *x, int r) { return eg_slice_axis(x, r, 1, EG_END, 2); }
static eg_tensor *back_l(const char *s, eg_tensor *x) { return eg_slice(s, x, -1, 0, -2); }
static eg_tensor *back_n(eg_tensor *x, int r) { return eg_slice_axis(x, r, -1, 0, -2); }
static eg_tensor *roll_l(const char *s, eg_tensor *x) { return eg_roll(s, x, -2); }
static eg_tensor *roll_n(eg_tensor *x, int r) { return eg_roll_axis(x, r, -2); }
static eg_tensor *select_l(const char *s, eg_tensor *x) { return eg_select(s, x, -2); }
static eg_tensor *select_n(eg_tensor *x, int r) { return eg_select_axis(x, r, -2); }
static eg_tensor *unfold_l(const char *s, eg_tensor *x) { return eg_unfold(s, x, 2, 1); }
static eg_tensor *unfold_n(eg_tensor *x, int r) { return eg_unfold_axis(x, r, 2, 1); }
static eg_tensor *pad_l(const char *s, eg_tensor *x) { return eg_pad(s, x, 2, 1, -1.5); }
static eg_tensor *pad_n(eg_tensor *x, int r) { return eg_pad_axis(x, r, 2, 1, -1.5); }
static const int64_t parts_of[] = { 1, -1 };
static eg_tensor *split_l(const char *s, eg_tensor *x)
{
    const int64_t n = eg_dim(x, strchr(s, '[') == s ? 0 : s[2] == '[' ? 1 : 2);
    eg_tensor *part[2];
    eg_split(s, x, 2, (int64_t[]){ parts_of[0], n + parts_of[1] }, part);
    return part[1];
}
static eg_tensor *split_n(eg_tensor *x, int r)
{
    eg_tensor *part[2];
    eg_split_axis(x, r, 2, (int64_t[]){ parts_of[0], eg_dim(x, r) + parts_of[1] }, part);
    return part[1];
}
/* y = Σ_k (k + 1) x_k², of the parts */
static eg_tensor *weighted(int bad, int64_t n, eg_tensor **part)
{
    if (bad) return NULL;
    for (int64_t k = 0; k < n; k++) part[k] = eg_scale(eg_square(part[k]), (double)(k + 1));
    for (int64_t k = 1; k < n; k++) part[0] = eg_add(part[0], part[k]);
    return part[0];
}
static eg_tensor *unbind_l(const char *s, eg_tensor *x)
{
    const int64_t n = eg_dim(x, strchr(s, '[') == s ? 0 : s[2] == '[' ? 1 : 2);
    eg_tensor *part[5];
    return weighted(eg_unbind(s, x, (int)n, part), n, part);
}
static eg_tensor *unbind_n(eg_tensor *x, int r)
{
    eg_tensor *part[5];
    return weighted(eg_unbind_axis(x, r, (int)eg_dim(x, r), part), eg_dim(x, r), part);
}
static eg_tensor *concat_l(const char *s, eg_tensor *x) { return eg_concat(s, x, eg_exp(x), x); }
static eg_tensor *concat_n(eg_tensor *x, int r) { return eg_concat_axis(r, x, eg_exp(x), x); }
static eg_tensor *stack_l(const char *s, eg_tensor *x) { return eg_stack(s, x, eg_exp(x)); }
static eg_tensor *stack_n(eg_tensor *x, int r) { return eg_stack_axis(r, x, eg_exp(x)); }
#define EACH                            \
    {                                   \
        "[a] b c", "a [b] c", "a b [c]" \
    }
#define NEW                                   \
    {                                         \
        "[n] a b c", "a [n] b c", "a b [n] c" \
    }
#define DOTS                              \
    {                                     \
        "[a] ...", "a [b] ...", "... [c]" \
    }
#define NEW_DOTS                            \
    {                                       \
        "[n] ...", "a [n] ...", "... [n] c" \
    }
#define NAMES                                                                          \
    {                                                                                  \
        "names: [batch] length dim", "names: batch [length] dim", "batch length [dim]" \
    }
#define WINDOWS                                                          \
    {                                                                    \
        "[a] b c -> a b c w", "a [b] c -> a b c w", "a b [c] -> a b c w" \
    }
static const form forms[] = {
    { "slice", EACH, slice_l, slice_n },
    { "slice back", EACH, back_l, back_n },
    { "slice ...", DOTS, slice_l, slice_n },
    { "flip", EACH, eg_flip, eg_flip_axis },
    { "flip names", NAMES, eg_flip, eg_flip_axis },
    { "roll", EACH, roll_l, roll_n },
    { "roll ...", DOTS, roll_l, roll_n },
    { "select", EACH, select_l, select_n },
    { "select ...", DOTS, select_l, select_n },
    { "unfold", WINDOWS, unfold_l, unfold_n },
    { "pad", EACH, pad_l, pad_n },
    { "pad names", NAMES, pad_l, pad_n },
    { "split", EACH, split_l, split_n },
    { "unbind", EACH, unbind_l, unbind_n },
    { "concat", EACH, concat_l, concat_n },
    { "concat ...", DOTS, concat_l, concat_n },
    { "stack", NEW, stack_l, stack_n },
    { "stack ...", NEW_DOTS, stack_l, stack_n },
};
enum { FORMS = sizeof forms / sizeof *forms, LAYOUTS = 5 };

/* (3, 4, 5) as a view of `leaf` */
static eg_tensor *laid_out(eg_tensor *leaf, int layout)
{
    switch (layout) {
    case 1: return eg_permute(eg_view(leaf, 5, 3, 4), 1, 2, 0);
    case 2: return eg_slice_axis(eg_view(leaf, 3, 4, 5), 1, EG_END, EG_END, -1);
    case 3: return eg_expand(eg_slice_axis(eg_view(leaf, 3, 4, 5), 1, 2, 3, 1), 3, 4, 5);
    case 4:
        return eg_permute(eg_slice_axis(eg_view(leaf, 3, 5, 4), 0, EG_END, EG_END, -1), 0, 2, 1);
    default: return eg_view(leaf, 3, 4, 5);
    }
}

/* y = f(x), d Σ w y³, and the gradient of its square */
static void orders(const form *f, int axis, bool letters, int layout, eg_tensor *leaf,
                   eg_tensor **out)
{
    eg_tensor *x = laid_out(leaf, layout),
              *y = letters ? f->letters(f->spec[axis], x) : f->number(x, axis);
    if (strchr(f->spec[axis], '>') && !letters) ck_assert_int_eq(eg_rank(y), 4);
    out[0] = y;
    eg_tensor *w = eg_shift(eg_scale(eg_detach(y), .25), 1);
    eg_grad(eg_sum(NULL, eg_mul(w, eg_mul(y, eg_square(y)))), NULL, 1, &leaf, &out[1]);
    eg_grad(eg_sum(NULL, eg_square(out[1])), NULL, 1, &leaf, &out[2]);
}

LOOP_TEST(letters_are_the_number, FORMS)
{
    const form *f = &forms[_i];
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 3);
    for (int layout = 0; layout < LAYOUTS; layout++)
        for (int axis = 0; axis < 3; axis++) {
            eg_tensor *leaf = eg_normal(cx, 0, 1, 60), *a[3], *b[3];
            orders(f, axis, true, layout, leaf, a);
            orders(f, axis, false, layout, leaf, b);
            char what[64];
            for (int k = 0; k < 3; k++) {
                snprintf(what, sizeof what, "%s, axis %d, layout %d, order %d", f->what, axis,
                         layout, k);
                same(a[k], b[k], what);
            }
            /* the same operation on the same operand, and no copy unless the form by number makes
             * one */
            ck_assert_ptr_eq(eg_op_of(a[0]), eg_op_of(b[0]));
            ck_assert_msg(a[0]->st == b[0]->st || a[0]->st == &a[0]->own, "%s copied", f->what);
        }
    eg_assert_ok(cx);
    eg_close(cx);
}

TEST(forms_are_functions)
{
    eg_tensor *(*const of_spec[])(const char *, eg_tensor *) = { eg_flip, eg_sum };
    eg_tensor *(*slice)(const char *, eg_tensor *, int64_t, int64_t, int64_t) = eg_slice;
    eg_tensor *(*select)(const char *, eg_tensor *, int64_t) = eg_select;
    eg_tensor *(*unfold)(const char *, eg_tensor *, int64_t, int64_t) = eg_unfold;
    eg_tensor *(*pad)(const char *, eg_tensor *, int64_t, int64_t, double) = eg_pad;
    eg_tensor *(*const join[])(const char *, int, eg_tensor *const *) = { eg_concat_n, eg_stack_n };
    int (*split)(const char *, eg_tensor *, int, const int64_t *, eg_tensor **) = eg_split;
    int (*align)(const char *, int, eg_tensor *const *, eg_tensor **) = eg_align_n;
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = RAMP(cx, 2, 3), *xs[] = { x, x }, *out[2];
    ck_assert_double_eq(eg_get(of_spec[0]("i [j]", x), 0, 0), 2);
    ck_assert_double_eq(eg_get(slice("i [j]", x, 1, 3, 1), 1, 0), 4);
    ck_assert_double_eq(eg_get(select("[i] j", x, 1), 2), 5);
    ck_assert_double_eq(eg_get(unfold("i [j] -> w j i", x, 2, 1), 1, 0, 1), 4);
    ck_assert_double_eq(eg_get(pad("i [j]", x, 1, 0, 7), 1, 0), 7);
    ck_assert_int_eq(eg_dim(join[0]("i [j]", 2, xs), 1), 6);
    ck_assert_int_eq(eg_rank(join[1]("i [n] j", 2, xs)), 3);
    ck_assert_int_eq(split("[i] j", x, 2, NULL, out), 0);
    ck_assert_int_eq(align("i j, j i", 2, (eg_tensor *[]){ x, eg_transpose(x, 0, 1) }, out), 0);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* -- what only letters can express ------------------------------------------------------------- */
TEST(brackets_inside_groups_and_beside_ones)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = RAMP(cx, 2, 6), *h = eg_view(x, 2, 2, 3), *part[2];
    same(eg_select("b ([h=2] d)", x, 1), eg_select_axis(h, 1, 1), "select h");
    same(eg_select("b (h=2 [d])", x, 1), eg_select_axis(h, 2, 1), "select d");
    same(eg_select("b ([h=2] d) -> d b", x, 1), eg_transpose(eg_select_axis(h, 1, 1), 0, 1),
         "select h, d first");
    same(eg_slice("b (h=2 [d])", x, 1, 3, 1), eg_reshape(eg_slice_axis(h, 2, 1, 3, 1), 2, 4),
         "slice d");
    same(eg_flip("b ([h=2] d)", x), eg_reshape(eg_flip_axis(h, 1), 2, 6), "flip h");
    same(eg_flip("[b h] d", h), eg_flip_axis(eg_flip_axis(h, 0), 1), "flip two");
    same(eg_flip("[...]", h), eg_flip_axis(eg_flip_axis(eg_flip_axis(h, 0), 1), 2), "flip all");
    same(eg_pad("b (h=2 [d])", x, 1, 0, 9), eg_reshape(eg_pad_axis(h, 2, 1, 0, 9), 2, 8), "pad d");
    same(eg_concat("b ([h=2] d)", x, x), eg_reshape(eg_concat_axis(1, h, h), 2, 12), "concat h");
    same(eg_unfold("b ([l=3] d) -> w b (l d)", x, 2, 1),
         eg_reshape(eg_permute(eg_unfold_axis(eg_view(x, 2, 3, 2), 1, 2, 1), 3, 0, 1, 2), 2, 2, 4),
         "unfold l");
    ck_assert_int_eq(eg_split("b ([h=2] d)", x, 2, NULL, part), 0);
    same(part[1], eg_slice_axis(x, 1, 3, 6, 1), "split h");
    ck_assert_int_eq(eg_unbind("b ([h=2] d)", x, 2, part), 0);
    same(part[1], eg_slice_axis(x, 1, 3, 6, 1), "unbind h");
    ck_assert_int_eq(eg_unbind("b ([h] d=3) -> d b", x, 2, part), 0);
    same(part[0], eg_transpose(eg_slice_axis(x, 1, 0, 3, 1), 0, 1), "unbind h, d in front");
    eg_tensor *one = eg_view(x, 2, 1, 6);
    same(eg_slice("b 1 [d]", one, 0, 2, 1), eg_slice_axis(one, 2, 0, 2, 1), "slice beside a one");
    same(eg_select("b 1 [d]", one, 0), eg_select_axis(one, 2, 0), "select beside a one");
    same(eg_stack("b [n] (h=2 d)", x, x), eg_stack_axis(1, x, x), "stack beside a group");
    same(eg_stack("b (h=2 d) [n]", x, x), eg_stack_axis(-1, x, x), "stack behind a group");
    same(eg_stack("(h=2 d) [n]", eg_select_axis(x, 0, 0)),
         eg_view(x, 2, 6, 1) ? eg_stack_axis(1, eg_select_axis(x, 0, 0)) : NULL, "stack of one");
    same(eg_concat("b [d]", x, eg_slice_axis(x, 1, 0, 1, 1)),
         eg_concat_axis(1, x, eg_slice_axis(x, 1, 0, 1, 1)), "concat of two sizes");
    eg_tensor *none = eg_zeros(cx, 0, 3);
    ck_assert_int_eq(eg_size(eg_flip("b [d]", none)), 0);
    ck_assert_int_eq(eg_size(eg_concat("[b] d", none, none)), 0);
    eg_assert_ok(cx);
    eg_close(cx);
}

/* y[i] = x[(i − shift) mod n]; the gradient and the tangent are rolled too, and a gradient of the
 * gradient is rolled back. */
static void rolls(eg_ctx *cx, int64_t n, int64_t shift)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 3, n), *w = eg_normal(cx, 0, 1, 3, n), *g,
              *y = eg_roll("b [l]", x, shift), *t = eg_jvp(y, 1, &x, &w);
    eg_grad(eg_sum(NULL, eg_mul(w, eg_square(y))), NULL, 1, &x, &g);
    eg_tensor *product;
    eg_hvp(eg_sum(NULL, eg_mul(w, eg_square(y))), 1, &x, &w, &product);
    for (int64_t b = 0; b < 3; b++)
        for (int64_t i = 0; i < n; i++) {
            const int64_t from = ((i - shift) % n + n) % n;
            ck_assert_double_eq(eg_get(y, b, i), eg_get(x, b, from));
            ck_assert_double_eq(eg_get(t, b, i), eg_get(w, b, from));
            ck_assert_double_eq_tol(eg_get(g, b, from), 2 * eg_get(w, b, i) * eg_get(y, b, i),
                                    1e-14);
            ck_assert_double_eq_tol(eg_get(product, b, from),
                                    2 * eg_get(w, b, i) * eg_get(w, b, from), 1e-14);
        }
    ck_assert(y->st != x->st && eg_is_row_major(y));
    eg_assert_ok(cx);
}
TEST(rolled_elements_enter_at_the_other_end)
{
    static const int64_t far[] = { INT64_MAX, INT64_MIN, -1000000007, 1LL << 40 };
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 5);
    for (int64_t shift = -12; shift <= 12; shift++) rolls(cx, 5, shift);
    for (int64_t shift = -2; shift <= 2; shift++) rolls(cx, 1, shift);
    eg_tensor *x = RAMP(cx, 2, 6), *h = eg_view(x, 2, 2, 3), *none = eg_zeros(cx, 3, 0);
    for (size_t k = 0; k < sizeof far / sizeof *far; k++)
        same(eg_roll("b [l]", x, far[k]), eg_roll("b [l]", x, far[k] % 6), "far");
    same(eg_roll("b ([h=2] d)", x, 1), eg_reshape(eg_roll_axis(h, 1, 1), 2, 6), "roll h");
    same(eg_roll("[b] l", x, 1), eg_flip("[b] l", x), "roll of two");
    ck_assert_int_eq(eg_size(eg_roll("b [l]", none, 4)), 0);
    ck_assert_int_eq(eg_type(eg_roll("[l]", eg_from(cx, (int8_t[]){ 1, 2 }, 2), 1)), EG_I8);
    ck_assert_ptr_null(eg_roll("[l]", NULL, 1));
    eg_assert_ok(cx);
    eg_close(cx);
}

/* -- refusals --------------------------------------------------------------------------------- */
#define REFUSED(call, kind, text)                                                         \
    do {                                                                                  \
        eg_tensor *y_ = (call);                                                           \
        ck_assert_msg(!eg_ok(y_), "not refused: %s", #call);                              \
        ck_assert_msg(eg_error_code(cx) == (kind), "code %d: %s", (int)eg_error_code(cx), \
                      eg_error(cx));                                                      \
        eg_assert_error(cx, text);                                                        \
    } while (0)
TEST(refusals_name_the_letter)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = RAMP(cx, 2, 5), *y = RAMP(cx, 3, 5), *part[2];
    REFUSED(eg_select("b [l]", x, 7), EG_ERROR_INDEX,
            "select: index 7 is out of range for axis 'l' of size 5\n"
            "  b [l]\n"
            "     ^   operand 1 is (2, 5)");
    REFUSED(eg_select("names: b [length]", x, -6), EG_ERROR_INDEX, "axis 'length' of size 5");
    REFUSED(eg_select("b l", x, 0), EG_ERROR_NOTATION, "no index is in brackets");
    REFUSED(eg_roll("[b l]", x, 1), EG_ERROR_NOTATION, "roll: ");
    REFUSED(eg_roll_axis(x, 2, 1), EG_ERROR_INDEX, "roll: ");
    REFUSED(eg_select("[b l]", x, 0), EG_ERROR_NOTATION, "the second one in brackets");
    REFUSED(eg_select("[b] [l]", x, 0), EG_ERROR_NOTATION, "the second one in brackets");
    REFUSED(eg_select("b [l] d", x, 0), EG_ERROR_SHAPE, "operand 1 has rank 2");
    REFUSED(eg_select("l [l]", eg_view(y, 15, 1), 0), EG_ERROR_SHAPE, "index 'l' is 15");
    REFUSED(eg_select("l [l]", RAMP(cx, 2, 2), 0), EG_ERROR_NOTATION, "occurs twice");
    REFUSED(eg_select("b [l] -> l", x, 0), EG_ERROR_NOTATION, "no axis of the result");
    REFUSED(eg_select("b [l] -> q", x, 0), EG_ERROR_NOTATION, "q");
    REFUSED(eg_select("b [l", x, 0), EG_ERROR_NOTATION, "'[' is not closed");
    REFUSED(eg_select("b [1]", x, 0), EG_ERROR_SHAPE, "axis 1");
    REFUSED(eg_select(NULL, x, 0), EG_ERROR_MISUSE, "select: no string was given");
    REFUSED(eg_slice(NULL, x, 0, 1, 1), EG_ERROR_MISUSE, "slice: no string was given");
    REFUSED(eg_flip(NULL, x), EG_ERROR_MISUSE, "flip: no string was given");
    REFUSED(eg_pad(NULL, x, 0, 1, 1), EG_ERROR_MISUSE, "pad: no string was given");
    REFUSED(eg_unfold(NULL, x, 1, 1), EG_ERROR_MISUSE, "unfold: no string was given");
    REFUSED(eg_concat(NULL, x, x), EG_ERROR_MISUSE, "concat: no string was given");
    REFUSED(eg_stack(NULL, x, x), EG_ERROR_MISUSE, "stack: no string was given");
    REFUSED(eg_slice("[b] l", x, 0, 1, 0), EG_ERROR_MISUSE,
            "slice: the step along axis 'b' of size 2 is 0\n  [b] l\n   ^");
    REFUSED(eg_slice("[b] l -> l b", x, 0, 1, 1), EG_ERROR_NOTATION, "it takes no output");
    REFUSED(eg_flip("[b] l -> l b", x), EG_ERROR_NOTATION, "it takes no output");
    REFUSED(eg_pad("[b] l", x, -1, 0, 0), EG_ERROR_MISUSE,
            "pad: the margins -1 and 0 of axis 'b' of size 2 must not be negative\n  [b] l\n   ^");
    REFUSED(eg_unfold("b [l] -> b l w", x, 6, 1), EG_ERROR_SHAPE,
            "unfold: a window of 6 does not fit into axis 'l' of size 5\n  b [l] -> b l w\n     ^");
    REFUSED(eg_unfold("b [l] -> b l w", x, 0, 1), EG_ERROR_SHAPE, "a window of 0 does not fit");
    REFUSED(eg_unfold("b [l] -> b l w", x, 2, 0), EG_ERROR_MISUSE, "axis 'l' of size 5 is 0");
    REFUSED(eg_unfold("b [l]", x, 2, 1), EG_ERROR_NOTATION, "the output is missing");
    REFUSED(eg_unfold("b [l] -> b l", x, 2, 1), EG_ERROR_NOTATION, "the output has no new index");
    REFUSED(eg_unfold("b [l] -> l w", x, 2, 1), EG_ERROR_NOTATION, "'b' is not in the output");
    REFUSED(eg_unfold("b [l] -> b n w", x, 2, 1), EG_ERROR_NOTATION,
            "unfold: output index 'w' is in no operand and has no size\n  b [l] -> b n w\n"
            "               ^\n  the output lacks 'l' of the operand");
    REFUSED(eg_unfold("b [l] -> b l v w", x, 2, 1), EG_ERROR_NOTATION, "unfold: ");
    REFUSED(eg_unfold("b [l] -> b l w w", x, 2, 1), EG_ERROR_NOTATION, "occurs twice");
    ck_assert_int_eq(eg_split("b [l]", x, 2, NULL, part), -1);
    ck_assert_int_eq(eg_error_code(cx), EG_ERROR_SHAPE);
    eg_assert_error(cx, "split: axis 'l' of size 5 does not split into 2 equal parts\n  b [l]\n");
    ck_assert(!eg_ok(part[0]) && !eg_ok(part[1]));
    ck_assert_int_eq(eg_split("b [l]", x, 2, (int64_t[]){ 2, 9 }, part), -1);
    eg_assert_error(cx, "split: part 2 of size 9 does not fit into axis 'l' of size 5 after 2");
    ck_assert_int_eq(eg_split(NULL, x, 2, NULL, part), -1);
    eg_assert_error(cx, "split: no string was given");
    ck_assert_int_eq(eg_unbind("b [l]", x, 2, part), -1);
    eg_assert_error(cx, "unbind: axis 'l' of size 5 does not match the count 2\n  b [l]\n     ^");
    ck_assert(!eg_ok(part[0]) && !eg_ok(part[1]));
    ck_assert_int_eq(eg_unbind_axis(x, 1, 2, part), -1);
    eg_assert_error(cx, "unbind: axis 1 of (2, 5) does not match the count 2");
    ck_assert_int_eq(eg_unbind_axis(x, 2, 2, part), -1);
    eg_assert_error(cx, "unbind: axis 2 is out of range");
    ck_assert(!eg_ok(part[0]) && !eg_ok(part[1]));
    ck_assert_int_eq(eg_unbind("b l", x, 2, part), -1);
    eg_assert_error(cx, "unbind: no index is in brackets");
    ck_assert_int_eq(eg_unbind("[b l]", x, 2, part), -1);
    eg_assert_error(cx, "unbind: ");
    ck_assert_int_eq(eg_unbind(NULL, x, 2, part), -1);
    eg_assert_error(cx, "unbind: no string was given");
    ck_assert_int_eq(eg_unbind("[b] l", x, 2, NULL), -1);
    eg_assert_error(cx, "unbind: the array for the parts is NULL");
    ck_assert_int_eq(eg_split("b [l]", x, 5, NULL, NULL), -1);
    ck_assert_int_eq(eg_error_code(cx), EG_ERROR_MISUSE);
    eg_clear(cx);
    eg_close(cx);
}

TEST(refused_joins_name_the_operand)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64);
    eg_tensor *x = RAMP(cx, 2, 5), *y = RAMP(cx, 3, 5);
    REFUSED(eg_concat("b [d]", x, y), EG_ERROR_SHAPE,
            "concat: index 'b' is 2 in operand 1 but 3 in operand 2; only the bracketed one may "
            "differ\n"
            "  b [d]\n"
            "  ^      operand 2 is (3, 5)");
    REFUSED(eg_concat("... [d]", x, eg_unsqueeze(y, 0)), EG_ERROR_SHAPE,
            "concat: under '...' operand 2 has 3 axes, operand 1 2");
    REFUSED(eg_concat("b [d]", x, eg_unsqueeze(y, 0)), EG_ERROR_SHAPE, "operand 2 has rank 3");
    REFUSED(eg_concat("b [d]", x, eg_cast(x, EG_F32)), EG_ERROR_DTYPE, "operand 2 is f32");
    REFUSED(eg_concat("b [d], b [d]", x, x), EG_ERROR_NOTATION, "2 operands");
    REFUSED(eg_concat("b d", x, x), EG_ERROR_NOTATION, "no index is in brackets");
    REFUSED(eg_concat("[b d]", x, x), EG_ERROR_NOTATION, "the second one in brackets");
    REFUSED(eg_concat("b [d] -> d b", x, x), EG_ERROR_NOTATION, "it takes no output");
    REFUSED(eg_concat("b [d]", x, NULL), EG_ERROR_MISUSE, "concat: operand 2 is NULL");
    REFUSED(eg_stack("b [n] d", x, y), EG_ERROR_SHAPE,
            "stack: index 'b' is 2 in operand 1 but 3 in operand 2");
    REFUSED(
        eg_stack("b [n] d", x, eg_unsqueeze(y, 0)), EG_ERROR_SHAPE,
        "stack: operand 2 has rank 3: (1, 3, 5), but the string names 2 axes besides the new one\n"
        "  b [n] d\n"
        "     ^");
    REFUSED(eg_stack("b [n] d ...", x, eg_select_axis(y, 0, 0)), EG_ERROR_SHAPE,
            "operand 2 has rank 1: (5,), but the string names at least 2 axes");
    REFUSED(eg_stack("b n d", x, x), EG_ERROR_NOTATION, "the new axis is one index in brackets");
    REFUSED(eg_stack("[b n] d", x, x), EG_ERROR_NOTATION, "the new axis is one index in brackets");
    REFUSED(eg_stack("b ([n] d)", x, x), EG_ERROR_NOTATION,
            "the new axis is one index in brackets");
    REFUSED(eg_stack("b [n=2] d", x, x), EG_ERROR_NOTATION,
            "the new axis is one index in brackets");
    REFUSED(eg_stack("b [...] d", x, x), EG_ERROR_NOTATION,
            "the new axis is one index in brackets");
    REFUSED(eg_stack("b [1] d", x, x), EG_ERROR_NOTATION, "the new axis is one index in brackets");
    REFUSED(eg_stack("n [n] d", x, x), EG_ERROR_SHAPE, "index 'n' is 2 and 1");
    REFUSED(eg_stack("b [n] d, b [n] d", x, x), EG_ERROR_NOTATION, "2 operands");
    REFUSED(eg_stack("", x, x), EG_ERROR_NOTATION, "the new axis is one index in brackets");
    eg_close(cx);
}

TEST(operations_by_letters_refuse_null)
{
    eg_clear(NULL);
    ck_assert_ptr_null(eg_select("[l]", NULL, 0));
    ck_assert_ptr_nonnull(strstr(eg_error(NULL), "select: there is no tensor"));
    eg_clear(NULL);
    ck_assert_ptr_null(eg_concat_n("[l]", 0, NULL));
    ck_assert_ptr_null(eg_stack_n("[l]", 1, (eg_tensor *[]){ NULL }));
    ck_assert_ptr_null(eg_flip("[l]", NULL));
    ck_assert_ptr_null(eg_pad("[l]", NULL, 0, 0, 0));
    ck_assert_ptr_null(eg_slice("[l]", NULL, 0, 0, 1));
    ck_assert_ptr_null(eg_unfold("[l] -> l w", NULL, 1, 1));
    eg_tensor *part[1];
    ck_assert_int_eq(eg_split("[l]", NULL, 1, NULL, part), -1);
    ck_assert_ptr_null(part[0]);
    ck_assert_int_eq(eg_unbind("[l]", NULL, 1, part), -1);
    ck_assert_int_eq(eg_unbind_axis(NULL, 0, 1, part), -1);
    ck_assert_ptr_null(part[0]);
    ck_assert_int_eq(eg_align_n("l", 0, NULL, part), -1);
    eg_clear(NULL);
}

/* -- aligned operands ------------------------------------------------------------------------- */
TEST(aligned_operands_have_the_output)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 5);
    eg_tensor *keep = eg_gt(eg_normal(cx, 0, 1, 2, 4), eg_zeros(cx, 1)),
              *a = eg_normal(cx, 0, 1, 4, 3, 2), *b = eg_normal(cx, 0, 1, 3), *v[3];
    eg_tensor *const xs[] = { keep, a, b };
    ck_assert_int_eq(eg_align_n("b j, j i b, i -> b i j", 3, xs, v), 0);
    for (int k = 0; k < 3; k++) ck_assert(eg_axes("b i j", v[k]) && eg_dim(v[k], 1) == 3);
    ck_assert_ptr_eq(v[1]->st, a->st);
    eg_tensor *y = eg_where(v[0], v[1], v[2]);
    for (int i = 0; i < 24; i++) {
        const int64_t at[] = { i / 12, i / 4 % 3, i % 4 };
        ck_assert_double_eq(eg_get(y, at[0], at[1], at[2]), eg_get(keep, at[0], at[2])
                                                                ? eg_get(a, at[2], at[1], at[0])
                                                                : eg_get(b, at[1]));
    }
    /* for two operands this is eg_on; groups of the output are merged */
    eg_tensor *const two[] = { eg_normal(cx, 0, 1, 2, 6), eg_normal(cx, 0, 1, 3) };
    ck_assert_int_eq(eg_align_n("b (h d), d -> b (h d)", 2, two, v), 0);
    same(eg_mul(v[0], v[1]), eg_on("b (h d), d -> b (h d)", eg_mul, two[0], two[1]), "groups");
    ck_assert_int_eq(eg_align_n("b (h d), d", 2, two, v), 0);
    same(eg_mul(v[0], v[1]), eg_on("b (h d), d", eg_mul, two[0], two[1]), "without ->");
    eg_assert_ok(cx);
    ck_assert_int_eq(eg_align_n("b j, j i b, i -> b i", 3, xs, v), -1);
    eg_assert_error(cx, "align: index 'j' is not in the output");
    ck_assert(!eg_ok(v[0]) && !eg_ok(v[2]));
    ck_assert_int_eq(eg_align_n("b j, j i b", 3, xs, v), -1);
    eg_assert_error(cx, "align: the string has 2 operands but 3 were given");
    ck_assert_int_eq(eg_align_n("b j, j i b, j", 3, xs, v), -1);
    eg_assert_error(cx, "align: index 'j' is 4 in operand 1 but 3 in operand 3");
    ck_assert_int_eq(eg_align_n(NULL, 3, xs, v), -1);
    eg_assert_error(cx, "align: no string was given");
    ck_assert_int_eq(eg_align_n("b j, j i b, i", 3, xs, NULL), -1);
    eg_assert_error(cx, "align: out is NULL");
    eg_close(cx);
}
