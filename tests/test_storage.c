/* test_storage.c: f16, bf16, i8, u8: dtypes for storage. */
#include <eingrad/check.h>
#include <eingrad/dlpack.h>
#include <string.h>
#include "fixtures.h"
#include "folder.h"
#include "tests.h"

static eg_ctx *cx;
static void held_setup(void)
{
    make_folder();
    cx = eg_open(.threads = 1);
}
static void held_teardown(void)
{
    eg_close(cx);
    remove_folder();
}
static const eg_dtype held[] = { EG_F16, EG_BF16, EG_I8, EG_U8 };
enum { HELD = sizeof held / sizeof *held };

GROUP("held", .setup = held_setup, .teardown = held_teardown)

/* The value of the bits of a float with that many bits of exponent and fraction, by the definition;
 * NAN for NaN. */
static double meaning(unsigned bits, int exponent, int fraction)
{
    const int e = bits >> fraction & ((1 << exponent) - 1), bias = (1 << (exponent - 1)) - 1;
    const unsigned f = bits & ((1u << fraction) - 1);
    const double sign = bits >> 15 ? -1 : 1;
    if (e == (1 << exponent) - 1) return f ? (double)NAN : sign * (double)INFINITY;
    return e ? sign * ldexp(1 + ldexp(f, -fraction), e - bias)
             : sign * ldexp(f, 1 - bias - fraction);
}
/* Every value of the type is that of its bits, is unchanged by a conversion to f32 or f64 and back,
 * and is the nearest to values within half a step; of two equally near ones the even one is
 * taken. */
LOOP_TEST(every_half_is_rounded_once, 2)
{
    enum { ALL = 1 << 16 };
    const int exponent = _i ? 8 : 5, fraction = _i ? 7 : 10;
    const eg_dtype type = held[_i];
    eg_tensor *x = eg_full_n(cx, type, 0, 1, (int64_t[]){ ALL });
    uint16_t *bits = _i ? eg_mut_bf16(x) : eg_mut_f16(x);
    for (unsigned k = 0; k < ALL; k++) bits[k] = (uint16_t)k;
    const double *v = eg_f64(eg_cast(x, EG_F64));
    for (unsigned k = 0; k < ALL; k++) {
        const double want = meaning(k, exponent, fraction);
        ck_assert_msg(same_number(v[k], want) && (isnan(want) || !signbit(v[k]) == !signbit(want)),
                      "%04x is %g, not %g", k, v[k], want);
    }
    for (int wide = 0; wide < 2; wide++) {
        eg_tensor *y = eg_cast(eg_cast(x, wide ? EG_F64 : EG_F32), type);
        const uint16_t *back = _i ? eg_bf16(y) : eg_f16(y);
        for (unsigned k = 0; k < ALL; k++)
            ck_assert_msg(back[k] == k ||
                              (isnan(v[k]) && isnan(meaning(back[k], exponent, fraction))),
                          "%04x comes back as %04x", k, back[k]);
    }
    /* between neighbours: just below, at, and just above the middle, by steps of f32 and of f64;
     * the largest value has the middle that a larger exponent would give */
    const unsigned infinite = (unsigned)((1 << exponent) - 1) << fraction;
    for (int wide = 0; wide < 2; wide++) {
        eg_tensor *z = eg_full_n(cx, EG_F64, 0, 2, (int64_t[]){ infinite, 6 });
        double *middle = eg_mut_f64(z);
        for (unsigned k = 0; k < infinite; k++) {
            const double a = v[k], b = k + 1 < infinite ? v[k + 1] : 2 * v[k] - v[k - 1],
                         m = a + (b - a) / 2;
            for (int s = 0; s < 2; s++) {
                double *to = middle + 6 * k + 3 * s;
                to[0] = wide ? nextafter(m, 0) : (double)nextafterf((float)m, 0);
                to[1] = m;
                to[2] = wide ? nextafter(m, INFINITY) : (double)nextafterf((float)m, INFINITY);
                for (int q = 0; q < 3; q++) to[q] *= s ? -1 : 1;
            }
        }
        eg_tensor *r = eg_cast(wide ? z : eg_cast(z, EG_F32), type);
        const uint16_t *near = _i ? eg_bf16(r) : eg_f16(r);
        for (unsigned k = 0; k < infinite; k++)
            for (unsigned s = 0; s < 2; s++) {
                const uint16_t *n = near + 6 * k + 3 * s;
                ck_assert_uint_eq(n[0], s << 15 | k);
                ck_assert_uint_eq(n[1], s << 15 | (k + (k & 1)));
                ck_assert_uint_eq(n[2], s << 15 | (k + 1));
            }
    }
}

/* Integers of 64 bits are rounded once, too; floats are converted to bytes as to wider integers:
 * NaN to 0, too large values to the nearest; integers wrap as in C. */
TEST(integers_to_and_from_what_holds)
{
    const int64_t whole[] = {
        ((int64_t)0x81 << 55) + 1, -(((int64_t)0x81 << 55) + 1), 257, -129, 65519, 65520, INT64_MAX
    };
    eg_tensor *x = eg_from_n(cx, EG_I64, whole, 1, (int64_t[]){ 7 });
    const uint16_t *b = eg_bf16(eg_cast(x, EG_BF16)), *h = eg_f16(eg_cast(x, EG_F16));
    /* 129 2^55 + 1 is above the middle of 128 2^55 and 130 2^55, which a double cannot represent */
    ck_assert_uint_eq(b[0], 0x5e81);
    ck_assert_uint_eq(b[1], 0xde81);
    ck_assert_uint_eq(h[4], 0x7bff);
    ck_assert_uint_eq(h[5], 0x7c00);
    SHOWS(eg_cast(x, EG_I8), 1, -1, 1, 127, -17, -16, -1);
    SHOWS(eg_cast(x, EG_U8), 1, 255, 1, 127, 239, 240, 255);
    eg_tensor *y = eg_from(cx, ((double[]){ -1.5, 300, -300, NAN, INFINITY, 127.9, 255.5 }), 7);
    SHOWS(eg_cast(y, EG_I8), -1, 127, -128, 0, 127, 127, 127);
    SHOWS(eg_cast(y, EG_U8), 0, 255, 0, 0, 255, 127, 255);
    SHOWS(eg_cast(eg_cast(y, EG_I8), EG_F16), -1, 127, -128, 0, 127, 127, 127);
    SHOWS(eg_cast(eg_cast(y, EG_F16), EG_BF16), -1.5, 300, -300, NAN, INFINITY, 128, 255.5 + .5);
    SHOWS(eg_cast(eg_cast(y, EG_F16), EG_BOOL), 1, 1, 1, 1, 1, 1, 1);
    SHOWS(eg_cast(eg_cast(y, EG_BOOL), EG_U8), 1, 1, 1, 1, 1, 1, 1);
    ck_assert_double_eq(eg_get(eg_real(eg_cast(eg_cast(y, EG_F16), EG_C128)), 1), 300);
}

/* Every conversion is the same with any strides, and by way of f64. */
TEST(bytes_are_read_and_written_in_place)
{
    eg_tensor *i = eg_from(cx, ((int8_t[]){ -128, 0, 127 }), 3),
              *u = eg_from(cx, ((uint8_t[]){ 0, 128, 255 }), 3);
    eg_mut_i8(i)[1] = -7;
    eg_mut_u8(u)[0] = 9;
    SHOWS(i, -128, -7, 127);
    SHOWS(u, 9, 128, 255);
    ck_assert_int_eq(eg_i8(i)[0], -128);
    ck_assert_int_eq(eg_u8(u)[2], 255);
    eg_assert_ok(cx);
    ck_assert(!eg_i8(u) && !eg_u8(i));
    eg_assert_error(cx, "i8");
}
TEST(every_pair_of_dtypes_converts)
{
    eg_tensor *numbers = eg_reshape(eg_arange(cx, EG_F64, -60, 60, 1), 10, 12);
    for (int from = EG_F32; from <= EG_U8; from++)
        for (int to = EG_F32; to <= EG_U8; to++) {
            if (from == EG_C128) continue; /* imaginary parts would be dropped */
            eg_tensor *x = eg_cast(eg_clip(numbers, to == EG_U8 || from == EG_U8 ? 0 : -60, 60),
                                   (eg_dtype)from);
            eg_tensor *y = eg_cast(x, (eg_dtype)to),
                      *strided = eg_cast(eg_flip_axis(eg_transpose(x, 0, 1), 0), (eg_dtype)to),
                      *again = eg_transpose(eg_flip_axis(strided, 0), 0, 1);
            eg_assert_ok(cx);
            if (to == EG_C128) y = eg_real(y), again = eg_real(again);
            const double *a = eg_f64(eg_cast(y, EG_F64)), *b = eg_f64(eg_cast(again, EG_F64)),
                         *v = eg_f64(eg_cast(x, EG_F64));
            for (int k = 0; k < 120; k++) {
                ck_assert_double_eq(a[k], to == EG_BOOL ? (double)(v[k] != 0) : v[k]);
                ck_assert_double_eq(a[k], b[k]);
            }
        }
}

/* Stored, viewed, copied, filled, assigned, read, printed, kept, exported. */
LOOP_TEST(what_holds_is_a_tensor, HELD)
{
    const eg_dtype type = held[_i];
    eg_tensor *x = eg_cast(eg_reshape(eg_arange(cx, EG_F32, 0, 24, 1), 2, 3, 4), type), *y;
    ck_assert_int_eq(eg_type(x), type);
    SHOWS(eg_select("b [i] j", x, 1), 4, 5, 6, 7, 16, 17, 18, 19);
    SHOWS(eg_rearrange("b i j -> j (i b)", eg_slice_axis(x, 2, 0, 2, 1)), 0, 12, 4, 16, 8, 20, 1,
          13, 5, 17, 9, 21);
    SHOWS(eg_copy(eg_permute(eg_slice_axis(x, 0, 1, 2, 1), 2, 1, 0)), 12, 16, 20, 13, 17, 21, 14,
          18, 22, 15, 19, 23);
    SHOWS(eg_reshape(
              eg_transpose(eg_slice_axis(eg_squeeze(eg_slice_axis(x, 0, 0, 1, 1), 0), 1, 0, 2, 1),
                           0, 1),
              6),
          0, 4, 8, 1, 5, 9);
    SHOWS(eg_expand(eg_slice_axis(eg_slice_axis(x, 0, 0, 1, 1), 2, 0, 1, 1), 2, 3, 1), 0, 4, 8, 0,
          4, 8);
    y = eg_zeros_like(x);
    ck_assert_int_eq(eg_assign(eg_slice_axis(y, 2, 0, 4, 2), eg_slice_axis(x, 2, 1, 4, 2)), 0);
    ck_assert_int_eq(eg_fill(eg_slice_axis(y, 0, 0, 1, 1), 3), 0);
    ck_assert_double_eq(eg_get(y, 1, 0, 2), 15);
    ck_assert_double_eq(eg_get(y, 0, 2, 3), 3);
    ck_assert_double_eq(eg_item(eg_full_n(cx, type, 7, 0, NULL)), 7);
    eg_owner *o = eg_owner_open(cx);
    SHOWS(eg_keep_in(o, eg_slice_axis(x, 0, 1, 2, 2)), 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
          23);
    char text[300];
    eg_format(eg_select_axis(eg_select_axis(x, 0, 0), 0, 1), text, sizeof text);
    ck_assert_str_eq(text, _i < 2 ? "[4. 5. 6. 7.]" : "[4 5 6 7]");
    eg_tensor *back = eg_from_dlpack(cx, eg_to_dlpack(x), NULL);
    ck_assert_int_eq(eg_type(back), type);
    ck_assert_ptr_eq(eg_raw(back, NULL), eg_raw(x, NULL));
    ck_assert_ptr_null(eg_f32(x));
    eg_assert_error(cx, "f32: the tensor is ");
    eg_format(eg_cast(eg_full_n(cx, EG_F64, 0.1, 1, (int64_t[]){ 1 }), type), text, sizeof text);
    ck_assert_str_eq(text, _i < 2 ? "[0.1]" : "[0]"); /* the fewest digits that read back */
}

/* Every operation, with every sample, on operands of storage dtypes: it is done if it only moves
 * elements, or refused with an error that names eg_cast. Nothing crashes. */
LOOP_TEST(what_computes_names_eg_cast, HELD)
{
    int refused = 0, moved = 0;
    for (const eg_op *op; (op = eg_op_at(refused + moved));) {
        bool any = false;
        const bool casts = !strcmp(op->name, "cast") || !strcmp(op->name, "expr");
        for (const eg_sample *s = op->samples; s && s->call && !any; s++) {
            eg_mark m = eg_push(cx);
            eg_tensor *x[8];
            int n = 0;
            const char *at = s->shapes;
            for (; *at && n < 8; n++) { /* "3x4, 4:i9" */
                int64_t dim[8];
                int rank = 0;
                for (; *at >= '0' && *at <= '9'; at += *at == 'x') {
                    char *end;
                    dim[rank++] = strtoll(at, &end, 10);
                    at = end;
                }
                at += strcspn(at, ",");
                at += strspn(at, ", ");
                x[n] = eg_full_n(cx, held[_i], 1, rank, dim);
            }
            eg_tensor *y = s->call(x);
            if (!eg_error(cx))
                ck_assert_msg(eg_type(y) == held[_i] || casts ||
                                  /* products and sums are f32, or i64 */
                                  (_i < 2 ? eg_type(y) == EG_F32 : eg_type(y) == EG_I64) ||
                                  /* converts by itself */ eg_type(y) == EG_BOOL,
                              "%s", op->name);
            else
                any = true;
            if (any)
                ck_assert_msg(casts || strstr(eg_error(cx), "eg_cast") ||
                                  strstr(eg_error(cx), "only holds") ||
                                  eg_error_code(cx) == EG_ERROR_DTYPE,
                              "%s: %s", op->name, eg_error(cx));
            eg_clear(cx);
            eg_pop(cx, m);
        }
        *(any ? &refused : &moved) += 1;
    }
    ck_assert_int_gt(moved, 8);
    ck_assert_int_gt(refused, 60);
    eg_tensor *x = eg_full_n(cx, held[_i], 1, 2, (int64_t[]){ 2, 2 });
    ck_assert(!eg_ok(eg_mul(x, x)));
    eg_assert_error(cx, _i < 2 ? "which is a storage type; eg_cast it to f32 first"
                               : "which is a storage type; eg_cast it to i32 or f32 first");
    ck_assert_int_eq(eg_ok(eg_einsum("i j, j k -> i k", x, x)), _i < 2);
    eg_clear(cx);
    ck_assert(!eg_ok(eg_softmax("i [j]", x)));
    eg_assert_error(cx, "softmax: operand 1 is ");
}

/* Reductions and scans that are composed of other operations, and therefore not in the table above:
 * of each dtype the numbers are those of f64, or the operation refuses it by its own name. */
static eg_tensor *reduced(int which, eg_tensor *x)
{
    switch (which) {
    case 0: return eg_sum("i [j]", x);
    case 1: return eg_prod("i [j]", x);
    case 2: return eg_cumsum("i [j]", x);
    case 3: return eg_cumprod("i [j]", x);
    case 4: return eg_linear_scan("i [j]", x, x);
    case 5: return eg_mean("i [j]", x);
    case 6: return eg_max("i [j]", x);
    case 7: return eg_min("i [j]", x);
    case 8: return eg_var("i [j]", x);
    case 9: return eg_std("i [j]", x);
    case 10: return eg_logsumexp("i [j]", x);
    case 11: return eg_pnorm("i [j]", x, 2);
    case 12: return eg_sort("i [j]", x);
    case 13: return eg_topk("i [j]", x, .k = 2);
    case 14: return eg_argmax("i [j]", x);
    default: return NULL;
    }
}
TEST(reductions_have_the_numbers_of_f64_or_refuse)
{
    static const char *const names[] = { "sum",       "prod",  "cumsum", "cumprod", "linear_scan",
                                         "mean",      "max",   "min",    "var",     "std",
                                         "logsumexp", "pnorm", "sort",   "topk",    "argmax" };
    int computed = 0, refused = 0;
    for (int type = EG_F32; type <= EG_U8; type++) {
        if (type == EG_C128) continue;
        for (int which = 0; which < 15; which++) {
            eg_tensor *x = eg_cast(eg_from(cx, ((double[]){ 1, 2, 1, 3, 2, 2.5 }), 2, 3), EG_F64);
            if (type != EG_F32 && type != EG_F16 && type != EG_BF16) x = eg_floor(x);
            x = eg_cast(x, (eg_dtype)type);
            eg_tensor *y = reduced(which, x);
            char begin[40];
            snprintf(begin, sizeof begin, "%s: operand", names[which]);
            if (eg_error(cx)) {
                ck_assert_msg(!strncmp(eg_error(cx), begin, strlen(begin)), "%s of %s: %s",
                              names[which], eg_type_name((eg_dtype)type), eg_error(cx));
                refused++;
            } else {
                eg_assert_close(eg_cast(y, EG_F64),
                                eg_cast(reduced(which, eg_cast(x, EG_F64)), EG_F64), 1e-6);
                computed++;
            }
            eg_clear(cx);
        }
    }
    ck_assert_int_gt(computed, 60);
    ck_assert_int_gt(refused, 30);
}

/* Operations that only move elements do so for every dtype: the elements are those that they move
 * as f64, from any layout. */
static eg_tensor *moves(int which, eg_tensor *x, eg_tensor *index, eg_tensor *yes)
{
    switch (which) {
    case 0: return eg_at("[v] b, i -> i b", x, index);
    case 1: return eg_at("a [v], a i -> a i", x, eg_view(index, eg_dim(x, 0), 2));
    case 2: return eg_concat("a [b]", x, x);
    case 3: return eg_concat_axis(0, x, eg_flip_axis(x, 0));
    case 4: return eg_stack("a [n] b", x, x);
    case 5: return eg_stack_axis(-1, x, eg_flip_axis(x, 1), x);
    case 6: return eg_pad("a [b]", x, 2, 1, 3);
    case 7: return eg_pad_axis(x, 0, 0, 5, 1.75);
    case 8: return eg_where(yes, x, eg_flip_axis(x, 0));
    case 9: return eg_where(yes, x, eg_slice_axis(x, 0, 1, 2, 1));
    case 10: return eg_tril(x, 0);
    default: return eg_triu(x, 1);
    }
}
LOOP_TEST(what_moves_takes_every_dtype, HELD)
{
    eg_tensor *wide = eg_cast(eg_reshape(eg_arange(cx, EG_F32, 1, 21, 1), 4, 5), EG_F64),
              *index = eg_from(cx, ((int[]){ 3, 0, 1, 1, 2, 3, 0, 0 }), 8),
              *yes = eg_gt(eg_sin(wide), eg_zeros_like(wide));
    for (int which = 0; which < 12; which++)
        for (int how = 0; how < 3; how++) {
            eg_tensor *w = how == 1   ? eg_flip_axis(wide, 1)
                           : how == 2 ? eg_transpose(eg_copy(eg_transpose(wide, 0, 1)), 0, 1)
                                      : wide,
                      *x = eg_cast(wide, held[_i]);
            if (how == 1) x = eg_flip_axis(x, 1);
            if (how == 2) x = eg_transpose(eg_copy(eg_transpose(x, 0, 1)), 0, 1);
            eg_tensor *y = moves(which, x, index, yes), *want = moves(which, w, index, yes);
            eg_assert_ok(cx);
            ck_assert_int_eq(eg_type(y), held[_i]);
            eg_assert_close(eg_cast(y, EG_F64), eg_cast(eg_cast(want, held[_i]), EG_F64), 0);
        }
    ck_assert(!eg_ok(eg_concat_axis(0, eg_cast(wide, held[_i]), wide)));
    eg_assert_error(cx, "concat: operand 2 is f64, operand 1 is ");
    ck_assert(!eg_ok(eg_at("[v] b, i -> i b", wide, eg_cast(index, held[_i]))));
    eg_assert_error(cx, "but an index is i32 or i64");
}

/* Files: read as stored if requested, otherwise converted. */
LOOP_TEST(held_in_files, 3) /* .npy, .npz, safetensors */
{
    for (int k = 0; k < HELD; k++) {
        eg_tensor *x = eg_cast(eg_arange(cx, EG_F32, 0, 100, 1), held[k]), *y = NULL, *wide = NULL;
        const char *name = "x";
        char path[300];
        snprintf(path, sizeof path, "%s", in_folder("x"));
        if (_i < 2 && held[k] == EG_BF16) {
            ck_assert_int_eq(_i ? eg_npz_save(cx, path, 1, &name, &x) : eg_npy_save(path, x), -1);
            eg_assert_error(cx, "eg_cast it");
            continue;
        }
        ck_assert_int_eq(_i == 0   ? eg_npy_save(path, x)
                         : _i == 1 ? eg_npz_save(cx, path, 1, &name, &x)
                                   : eg_safetensors_save(cx, path, 1, &name, &x, NULL),
                         0);
        for (int stored = 0; stored < 2; stored++)
            *(stored ? &y : &wide) =
                _i == 0 ? eg_npy_load(cx, path, .as_stored = stored)
                : _i == 1
                    ? eg_npz_at(eg_npz_open(cx, path, .as_stored = stored), 0)
                    : eg_safetensors_at(eg_safetensors_open(cx, path, .as_stored = stored), 0);
        eg_assert_ok(cx);
        ck_assert_int_eq(eg_type(y), held[k]);
        ck_assert_int_eq(eg_type(wide), k < 2 ? EG_F32 : EG_I32);
        for (int n = 0; n < 100; n++) {
            ck_assert_double_eq(eg_get(y, n), n);
            ck_assert_double_eq(eg_get(wide, n), n);
        }
    }
}
