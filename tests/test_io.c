/* test_io.c: files: .npy and safetensors in both directions, malformed ones, writing that is
 * complete or has no effect, heat maps. */
#include <eingrad/io.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <errno.h>
#include "fixtures.h"
#include "folder.h"
#include "tests.h"

static eg_ctx *cx;
static void setup(void)
{
    make_folder();
    cx = eg_open(.threads = 1);
    ck_assert_ptr_nonnull(cx);
}

static void teardown(void)
{
    eg_close(cx);
    remove_folder();
}

static size_t slurp(const char *path, uint8_t *out, size_t room)
{
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s", path);
    size_t n = fread(out, 1, room, f);
    fclose(f);
    return n;
}

static void same_bytes(const char *a, const char *b)
{
    static uint8_t x[8192], y[8192];
    size_t n = slurp(a, x, sizeof x), m = slurp(b, y, sizeof y);
    ck_assert_msg(n == m && !memcmp(x, y, n), "%s (%zu bytes) and %s (%zu bytes) differ", a, n, b,
                  m);
}

static void refused(const char *part)
{
    ck_assert_msg(eg_error(cx) != NULL, "not refused: %s", part);
    ck_assert_msg(strstr(eg_error(cx), part) != NULL, "'%s' lacks '%s'", eg_error(cx), part);
    ck_assert_msg(!strchr(eg_error(cx), '\n'), "'%s' is not one line", eg_error(cx));
    eg_clear(cx);
}

static void fine(void) { ck_assert_msg(!eg_error(cx), "%s", eg_error(cx)); }

/* element k in row-major order is k − 3; unsigned: k; bool: k odd */
static void has_values(eg_tensor *x, eg_dtype dtype, char kind, int rank, const int64_t *dims)
{
    fine();
    ck_assert_int_eq(eg_type(x), dtype);
    ck_assert_int_eq(eg_rank(x), rank);
    for (int k = 0; k < rank; k++) ck_assert_int_eq(eg_dim(x, k), dims[k]);
    for (int64_t k = 0; k < eg_size(x); k++) {
        double v = dtype == EG_F32   ? eg_f32(x)[k]
                   : dtype == EG_F64 ? eg_f64(x)[k]
                   : dtype == EG_I32 ? eg_i32(x)[k]
                   : dtype == EG_I64 ? (double)eg_i64(x)[k]
                                     : eg_bool(x)[k];
        ck_assert_double_eq(v, kind == 'b'   ? (double)(k % 2)
                               : kind == 'u' ? (double)k
                                             : (double)(k - 3));
    }
}

/* -- .npy ------------------------------------------------------------------------------------- */
static const int64_t cube[] = { 2, 3, 4 };
static const struct {
    const char *name;
    eg_dtype dtype;
    bool exact;
} npy[] = {
    { "f4", EG_F32, true },          { "f8", EG_F64, true },
    { "i4", EG_I32, true },          { "i8", EG_I64, true },
    { "b1", EG_BOOL, true },         { "f2", EG_F32, false },
    { "i1", EG_I32, false },         { "u1", EG_I32, false },
    { "i2", EG_I32, false },         { "u2", EG_I32, false },
    { "f4_big", EG_F32, false },     { "f8_big", EG_F64, false },
    { "i4_big", EG_I32, false },     { "i8_big", EG_I64, false },
    { "f2_big", EG_F32, false },     { "i2_big", EG_I32, false },
    { "u2_big", EG_I32, false },     { "f4_fortran", EG_F32, false },
    { "f8_fortran", EG_F64, false }, { "i4_fortran", EG_I32, false },
    { "i8_fortran", EG_I64, false }, { "b1_fortran", EG_BOOL, false },
    { "f2_fortran", EG_F32, false }, { "i1_fortran", EG_I32, false },
    { "u1_fortran", EG_I32, false }, { "i2_fortran", EG_I32, false },
    { "u2_fortran", EG_I32, false }, { "f4_big_fortran", EG_F32, false },
    { "f4_v2", EG_F32, false },      { "f4_v3", EG_F32, false },
};
enum { NPY = sizeof npy / sizeof *npy };

GROUP("io", .setup = setup, .teardown = teardown)

LOOP_TEST(npy_reads_numpy, NPY)
{
    char name[64];
    snprintf(name, sizeof name, "%s.npy", npy[_i].name);
    eg_tensor *x = eg_npy_load(cx, golden_path(name));
    has_values(x, npy[_i].dtype, *name, 3, cube);
    ck_assert(eg_is_row_major(x));
    const char *keep = getenv("EG_IO_KEEP"); /* for tests/reference/io.py check */
    char path[512];
    snprintf(path, sizeof path, "%s/%s", keep ? keep : folder, name);
    ck_assert_int_eq(eg_npy_save(path, x), 0);
    if (npy[_i].exact) same_bytes(golden_path(name), path);
    has_values(eg_npy_load(cx, path), npy[_i].dtype, *name, 3, cube);
}

TEST(npy_shapes)
{
    has_values(eg_npy_load(cx, golden_path("f8_scalar.npy")), EG_F64, 'f', 0, NULL);
    has_values(eg_npy_load(cx, golden_path("f4_empty.npy")), EG_F32, 'f', 3,
               (int64_t[]){ 3, 0, 2 });
    has_values(eg_npy_load(cx, golden_path("f4_row.npy")), EG_F32, 'f', 1, (int64_t[]){ 5 });
    static const char *const exact[] = { "f8_scalar.npy", "f4_empty.npy", "f4_row.npy" };
    for (int k = 0; k < 3; k++) {
        ck_assert_int_eq(eg_npy_save(in_folder(exact[k]), eg_npy_load(cx, golden_path(exact[k]))),
                         0);
        same_bytes(golden_path(exact[k]), in_folder(exact[k]));
    }
    eg_tensor *half = eg_npy_load(cx, golden_path("halves.npy")),
              *single = eg_npy_load(cx, golden_path("halves_f4.npy"));
    fine();
    for (int64_t k = 0; k < eg_size(half); k++) {
        float a = eg_f32(half)[k], b = eg_f32(single)[k];
        ck_assert_msg((isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b)),
                      "half %d: %g, but NumPy has %g", (int)k, a, b);
    }
}

TEST(npy_strided)
{
    eg_tensor *x = eg_npy_load(cx, golden_path("f4.npy")), *y = eg_permute(x, 2, 0, 1);
    ck_assert_int_eq(eg_npy_save(in_folder("y.npy"), y), 0);
    eg_tensor *z = eg_npy_load(cx, in_folder("y.npy"));
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++)
            for (int k = 0; k < 3; k++) ck_assert_double_eq(eg_get(z, i, j, k), eg_get(x, j, k, i));
    FILE *f = tmpfile();
    ck_assert_int_eq(eg_npy_write(f, y), 0);
    rewind(f);
    uint8_t bytes[1024];
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    ck_assert_ptr_eq(eg_context(eg_npy_read(cx, bytes, n)), cx);
    has_values(eg_permute(eg_npy_read(cx, bytes, n), 1, 2, 0), EG_F32, 'f', 3, cube);
    ck_assert_int_eq(eg_npy_save(in_folder("n.npy"), NULL), -1);
    ck_assert_int_eq(access(in_folder("n.npy"), F_OK), -1);
}

#define D "{'descr': '<f4', 'fortran_order': False, 'shape': "
static const struct {
    const char *header;
    int data;
    const char *refusal;
} bad_npy[] = {
    { D "(2,), }", 8, NULL },
    { D "(2,)}   \n", 8, NULL },
    { "{\"descr\": \"<f4\", \"shape\": (1, 2L,), \"fortran_order\": True}", 8, NULL },
    { D "(2,), }", 9, NULL }, /* more than needed */
    { "{'descr': '|b1', 'fortran_order': False, 'shape': (0, 7), }", 0, NULL },
    { D "(2,), }", 7, "needs 8 bytes of data, but 7 follow" },
    { D "(2, 2), }", 0, "shape (2, 2) of <f4 needs 16 bytes" },
    { "", 0, "not a Python dict" },
    { "[1, 2]", 0, "not a Python dict" },
    { D "(2,), ", 8, "a key in the header is not a string" },
    { D "(2,), } x", 8, "continues after its dict" },
    { D "(2)}", 8, "not a tuple" },
    { D "2}", 8, "not a tuple" },
    { D "(2 2)}", 8, "not a tuple of integers" },
    { D "(2.5,)}", 8, "not a tuple of integers" },
    { D "(,)}", 8, "not a tuple of integers" },
    { D "(2, ", 8, "not a tuple of integers" },
    { D "(-2,)}", 8, "size of axis 0 is negative" },
    { D "(1, 99999999999999999999999)}", 8, "size of axis 1 does not fit" },
    { D "(4294967296, 4294967296)}", 8, "too large" },
    { D "(0, 4294967296, 4294967296)}", 8, "too large" },
    { D "(1000000000000,)}", 8, "needs 4000000000000 bytes" },
    { D "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}", 8,
      "more than 32 axes" },
    { "{'descr': '<f4', 'fortran_order': False}", 8, "lacks the key 'shape'" },
    { "{'descr': '<f4', 'shape': (2,)}", 8, "lacks the key 'fortran_order'" },
    { "{}", 8, "lacks the key 'descr'" },
    { D "(2,), 'shape': (2,)}", 8, "'shape' twice" },
    { D "(2,), 'more': 1}", 8, "unknown key 'more'" },
    { D "(2,) 'more': 1}", 8, "lacks ','" },
    { "{'descr' '<f4'}", 8, "lacks ':'" },
    { "{'descr': '<f4", 8, "without end" },
    { "{'descr': '<f\\x34'}", 8, "escapes" },
    { "{'descr': 4}", 8, "'descr' in the header is not a string" },
    { "{'descr': '<f4', 'fortran_order': 0}", 8, "neither True nor False" },
    { "{'descr': '', 'fortran_order': False, 'shape': (2,)}", 8, "dtype '' (unknown)" },
    { "{'descr': '<', 'fortran_order': False, 'shape': (2,)}", 8, "dtype '' (unknown)" },
    { "{'descr': '<f16', 'fortran_order': False, 'shape': (2,)}", 8, "dtype 'f16'" },
    { "{'descr': '<u8', 'fortran_order': False, 'shape': (2,)}", 16, NULL },
    { "{'descr': '<u3', 'fortran_order': False, 'shape': (2,)}", 8, "dtype 'u3' (an unsigned " },
    { "{'descr': '|f4', 'fortran_order': False, 'shape': (2,)}", 8, "no byte order" },
    { "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", 8, "Python objects" },
    { "{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (2,)}", 8, "dates" },
    { "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", 8, "structured" },
};
enum { BAD_NPY = sizeof bad_npy / sizeof *bad_npy };

static size_t make_npy(uint8_t *out, const char *header, int data)
{
    size_t n = strlen(header);
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (uint8_t)(n & 255), out[9] = (uint8_t)(n >> 8);
    memcpy(out + 10, header, n);
    memset(out + 10 + n, 0, (size_t)data);
    return 10 + n + (size_t)data;
}

LOOP_TEST(npy_malformed, BAD_NPY)
{
    uint8_t bytes[1024];
    size_t n = make_npy(bytes, bad_npy[_i].header, bad_npy[_i].data);
    eg_tensor *x = eg_npy_read(cx, bytes, n);
    if (!bad_npy[_i].refusal) {
        fine();
        ck_assert(eg_ok(x));
    } else {
        ck_assert(!eg_ok(x));
        refused(bad_npy[_i].refusal);
    }
}

/* u4 and u8 of either byte order become i64; the numbers of u8 that an i64 has not are refused. */
TEST(npy_unsigned)
{
    static const char header[] = "{'descr': '%cu%d', 'fortran_order': False, 'shape': (2,)}";
    for (int big = 0; big < 2; big++)
        for (int width = 4; width <= 8; width += 4) {
            char text[80];
            uint8_t bytes[256];
            snprintf(text, sizeof text, header, big ? '>' : '<', width);
            const size_t n = make_npy(bytes, text, 2 * width);
            uint8_t *last = bytes + n - width;
            bytes[big ? n - width - 1 : n - 2 * (size_t)width] = 7;
            memset(last, 0xff, (size_t)width);
            if (width == 8) last[big ? 0 : 7] = 0x7f;
            const int64_t *x = eg_i64(eg_npy_read(cx, bytes, n));
            fine();
            ck_assert(x && x[0] == 7 && x[1] == (width == 4 ? UINT32_MAX : INT64_MAX));
            if (width == 4) continue;
            memset(last, 0, 8);
            last[big ? 0 : 7] = 0x80;
            ck_assert(!eg_ok(eg_npy_read(cx, bytes, n)));
            refused("element 1 is 9223372036854775808; an i64 ends at 2^63 - 1");
        }
    ck_assert_int_eq(eg_type(eg_npy_load(cx, golden_path("u4.npy"))), EG_I64);
}

TEST(npy_refuses_other_files_and_types)
{
    static const struct {
        const char *file, *refusal;
    } files[] = {
        { "c16.npy", "npy: " },
        { "c16.npy", "dtype 'c16' (complex) is not supported; f2 f4" },
        { "U3.npy", "dtype 'U3' (text)" },
        { "fields.npy", "structured dtype" },
        { "none.npy", "none.npy: cannot be opened: No such file" },
        { "../data", "is a folder" },
        { "f8.safetensors", "is not a .npy file" },
    };
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        ck_assert(!eg_ok(eg_npy_load(cx, golden_path(files[k].file))));
        refused(files[k].refusal);
    }
    /* without end: not read before its first bytes are looked at */
    ck_assert(!eg_ok(eg_npy_load(cx, "/dev/zero")));
    refused("npy: /dev/zero: is a device");
    uint8_t bytes[1024];
    size_t n = slurp(golden_path("f4.npy"), bytes, sizeof bytes);
    for (size_t k = 0; k < n; k++) { /* cut short anywhere */
        ck_assert(!eg_ok(eg_npy_read(cx, bytes, k)));
        refused(k < 10 ? "too short" : "is cut short");
    }
    bytes[6] = 4;
    ck_assert(!eg_ok(eg_npy_read(cx, bytes, n)));
    refused("version 4.0");
    ck_assert(!eg_ok(eg_npy_load(cx, NULL)));
    refused("NULL");
    ck_assert_ptr_null(eg_npy_load(NULL, "x.npy"));
    ck_assert_str_eq(eg_error(NULL), "there is no context: a NULL was given for it");
    n = make_npy(bytes, "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", 3);
    bytes[n - 2] = 7, bytes[n - 1] = 1;
    eg_tensor *x = eg_npy_read(cx, bytes, n);
    fine();
    ck_assert(!eg_bool(x)[0] && eg_bool(x)[1] && eg_bool(x)[2]);
    ck_assert_int_eq(*(const char *)&eg_bool(x)[1], 1);
}

/* -- safetensors ------------------------------------------------------------------------------ */
TEST(safetensors_reads_python)
{
    eg_safetensors *st = eg_safetensors_open(cx, golden_path("exact.safetensors"));
    fine();
    ck_assert_int_eq(eg_safetensors_count(st), 7);
    has_values(eg_safetensors_get(st, "a_f64"), EG_F64, 'f', 3, cube);
    has_values(eg_safetensors_get(st, "b_f32"), EG_F32, 'f', 3, cube);
    has_values(eg_safetensors_get(st, "c_i64"), EG_I64, 'i', 3, cube);
    has_values(eg_safetensors_get(st, "d_i32"), EG_I32, 'i', 3, cube);
    has_values(eg_safetensors_get(st, "e_bool"), EG_BOOL, 'b', 3, cube);
    has_values(eg_safetensors_get(st, "f_0d"), EG_F64, 'f', 0, NULL);
    has_values(eg_safetensors_get(st, "g_empty"), EG_F32, 'f', 3, (int64_t[]){ 3, 0, 2 });
    ck_assert_str_eq(eg_safetensors_metadata(st, "note"), "a \"quoted\" line\nand \xc3\xbc");
    ck_assert_ptr_null(eg_safetensors_metadata(st, "nothing"));
    ck_assert_str_eq(eg_safetensors_key(st, 0), "note");
    ck_assert_ptr_null(eg_safetensors_key(st, 1));
    ck_assert_int_eq(eg_safetensors_find(st, "nothing"), -1);
    ck_assert_ptr_null(eg_safetensors_name(st, 7));
    ck_assert(!eg_ok(eg_safetensors_get(st, "nothing")));
    refused("no tensor is named 'nothing'");
    /* written again: the same bytes as the reference writes */
    const char *names[7];
    eg_tensor *xs[7];
    for (int k = 0; k < 7; k++)
        names[k] = eg_safetensors_name(st, k), xs[k] = eg_safetensors_at(st, k);
    const char *meta[] = { "note", eg_safetensors_metadata(st, "note"), NULL };
    ck_assert_int_eq(eg_safetensors_save(cx, in_folder("s.safetensors"), 7, names, xs, meta), 0);
    same_bytes(golden_path("exact.safetensors"), in_folder("s.safetensors"));
    eg_safetensors_close(st);
    eg_safetensors_close(NULL);
}

TEST(safetensors_widens)
{
    eg_safetensors *st = eg_safetensors_open(cx, golden_path("wide.safetensors"));
    fine();
    has_values(eg_safetensors_get(st, "i8"), EG_I32, 'i', 3, cube);
    has_values(eg_safetensors_get(st, "u8"), EG_I32, 'u', 3, cube);
    has_values(eg_safetensors_get(st, "i16"), EG_I32, 'i', 3, cube);
    has_values(eg_safetensors_get(st, "f16"), EG_F32, 'f', 3, cube);
    has_values(eg_safetensors_get(st, "bf16"), EG_F32, 'f', 3, cube);
    ck_assert_ptr_null(eg_safetensors_open(cx, golden_path("f8.safetensors")));
    refused("tensor 'f8' has dtype 'F8_E5M2', which is not supported");
}

TEST(safetensors_round_trip)
{
    const char *names[] = { "mask", "W", "none", "step", "größe \"x\"" };
    const char *meta[] = { "b", "2", "a", "", NULL };
    bool bits[] = { true, false, true };
    eg_tensor *W = eg_from(cx, ((float[]){ 1, 2, 3, 4, 5, NAN }), 2, 3);
    eg_tensor *xs[] = { eg_from(cx, bits, 3), eg_transpose(W, 0, 1), eg_zeros(cx, 0, 4),
                        eg_scalar(cx, 7), eg_arange(cx, EG_I64, 0, 5, 1) };
    ck_assert_int_eq(eg_safetensors_save(cx, in_folder("a.safetensors"), 5, names, xs, meta), 0);
    eg_mark m = eg_push(cx);
    eg_safetensors *st = eg_safetensors_open(cx, in_folder("a.safetensors"));
    fine();
    ck_assert_int_eq(eg_safetensors_count(st), 5);
    ck_assert_int_eq(eg_dim(eg_safetensors_get(st, "W"), 0), 3);
    ck_assert_double_eq(eg_get(eg_safetensors_get(st, "W"), 0, 1), 4);
    ck_assert(isnan(eg_get(eg_safetensors_get(st, "W"), 2, 1)));
    ck_assert_double_eq(eg_item(eg_safetensors_get(st, "step")), 7);
    ck_assert_double_eq(eg_get(eg_safetensors_get(st, names[4]), 4), 4);
    ck_assert(eg_bool(eg_safetensors_get(st, "mask"))[2]);
    ck_assert_str_eq(eg_safetensors_name(st, 4), "mask"); /* the narrowest type is last */
    ck_assert_str_eq(eg_safetensors_metadata(st, "a"), "");
    eg_pop(cx, m);
    ck_assert_int_eq(eg_safetensors_save(cx, in_folder("0.safetensors"), 0, NULL, NULL, NULL), 0);
    ck_assert_int_eq(eg_safetensors_count(eg_safetensors_open(cx, in_folder("0.safetensors"))), 0);
    fine();
    xs[1] = NULL;
    ck_assert_int_eq(eg_safetensors_save(cx, in_folder("b.safetensors"), 2, names, xs, NULL), -1);
    refused("no values for tensor 'W'");
    xs[1] = xs[0], names[1] = "mask";
    ck_assert_int_eq(eg_safetensors_save(cx, in_folder("b.safetensors"), 2, names, xs, NULL), -1);
    refused("two tensors have the name 'mask'");
    names[1] = "__metadata__";
    ck_assert_int_eq(eg_safetensors_save(cx, in_folder("b.safetensors"), 2, names, xs, NULL), -1);
    refused("cannot have the name");
    names[1] = "\xff";
    ck_assert_int_eq(eg_safetensors_save(cx, in_folder("b.safetensors"), 2, names, xs, NULL), -1);
    refused("not UTF-8");
    const char *twice[] = { "k", "1", "k", "2", NULL };
    ck_assert_int_eq(eg_safetensors_save(cx, in_folder("b.safetensors"), 1, names, xs, twice), -1);
    refused("twice the key 'k'");
    ck_assert_int_eq(entries(false), 2);
}

#define T(dtype, shape, from, to) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"
static const struct {
    const char *header;
    int data;
    const char *refusal;
} bad_st[] = {
    { "{}", 0, NULL },
    { "{\"a\":" T("F32", "[2]", 0, 8) "}    ", 8, NULL },
    { "{\"a\":" T("F32", "[2]", 0, 8) ",\"e\":" T("F32", "[0]", 8, 8) ",\"b\":" T("BOOL", "[]", 8,
                                                                                  9) "}",
      9, NULL },
    { "{\"a\":" T("F32", "[2]", 0, 8) "}", 7,
      "tensor 'a' ends at byte 8 of the data, but the file has 7" },
    { "{\"a\":" T("F32", "[2]", 0, 8) "}", 9, "the last 1 byte of the data belongs to" },
    { "{\"a\":" T("F32", "[2]", 1, 9) "}", 9, "a gap: the data before tensor 'a', bytes 0 to 1" },
    { "{\"a\":" T("F32", "[2]", 0, 8) ",\"b\":" T("F32", "[1]", 4, 8) "}", 8,
      "'a' and 'b' overlap at byte 4" },
    { "{\"a\":" T("F32", "[2]", 0, 8) ",\"b\":" T("F32", "[0]", 4, 4) "}", 8, "overlap" },
    { "{\"a\":" T("F32", "[2]", 0, 8) ",\"a\":" T("F32", "[1]", 8, 12) "}", 12, "not valid JSON" },
    { "{\"a\":" T("F32", "[3]", 0, 8) "}", 8,
      "tensor 'a', shape (3,) of F32, needs 12 bytes, but its data_offsets span 8" },
    { "{\"a\":" T("F32", "[-1]", 0, 8) "}", 8, "size of axis 0 of tensor 'a'" },
    { "{\"a\":" T("F32", "[1.0]", 0, 4) "}", 4, "size of axis 0 of tensor 'a'" },
    { "{\"a\":" T("F32", "[99999999999999999999]", 0, 4) "}", 4, "not valid JSON" },
    { "{\"a\":" T("F32", "[4294967296,4294967296]", 0, 4) "}", 4, "too large" },
    { "{\"a\":" T("F32", "2", 0, 8) "}", 8, "the entry of tensor 'a'" },
    { "{\"a\":" T("F32", "[2]", 8, 0) "}", 8, "data_offsets of tensor 'a'" },
    { "{\"a\":" T("F32", "[2]", -8, 0) "}", 8, "data_offsets of tensor 'a'" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4,8]}"
      "}",
      8, "data_offsets of tensor 'a'" },
    { "{\"a\":{\"dtype\":\"F32\"}}", 8, "the entry of tensor 'a'" },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8, NULL },
    { "{\"a\":7}", 8, "the entry of tensor 'a'" },
    { "{\"a\":" T("U64", "[1]", 0, 8) "}", 8, NULL },
    { "{\"a\":" T("U128", "[1]", 0, 16) "}", 16, "dtype 'U128'" },
    { "{\"a\":" T("", "[1]", 0, 8) "}", 8, "dtype ''" },
    { "{\"__metadata__\":{\"a\":1}}", 0, "'a' in '__metadata__' is not a string" },
    { "{\"__metadata__\":[]}", 0, "'__metadata__' is not an object" },
    { "{\"a\":", 0, "not valid JSON" },
    { "{\"\xff\":1}", 0, "not valid JSON" },
    { "{\"a\\u0000\":1}", 0, "not valid JSON" },
    { "[]", 0, "does not begin with '{'" },
    { " {}", 0, NULL }, /* blanks before the header, so that the data begin at a page */
    { "   \n\t\r  {\"a\":" T("F32", "[2]", 0, 8) "}", 8, NULL },
    { "    ", 0, "does not begin with '{'" },
    { "{\"__metadata__\":null,\"a\":" T("F32", "[2]", 0, 8) "}", 8, NULL },
    { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "not valid JSON" },
    { "{\"__metadata__\":{\"a\":\"1\",\"b\":\"\",\"a\":\"2\"}}", 0,
      "not valid JSON: '__metadata__' has the key 'a' twice" },
    { "{\"a\":" T("F32", "[2]", 0, 8) ",}", 8, "not valid JSON at byte" },
    { "{\"a\" " T("F32", "[2]", 0, 8) "}", 8, "':' expected" },
    { "{a:" T("F32", "[2]", 0, 8) "}", 8, "a key in quotes expected" },
    { "", 0, "does not begin with '{'" },
    { "{} {}", 0, "not valid JSON" },
    { "{\"a\":" T("BOOL", "[]", 0, 1) "}", 1, NULL }, /* a single scalar */
    /* strings: escapes, surrogates, control characters, UTF-8 */
    { "{\"__metadata__\":{\"\\u0061\":\"1\",\"a\":\"2\"}}", 0, "has the key 'a' twice" },
    { "{\"\\u0061\":" T("F32", "[1]", 0, 4) ",\"a\":" T("F32", "[1]", 4, 8) "}", 8,
      "the key 'a' is there twice" },
    { "{\"__metadata__\":{\"a\":\"\\x\"}}", 0,
      "not valid JSON at byte 21: a string without an end, or" },
    { "{\"__metadata__\":{\"a\":\"\\u12g4\"}}", 0, "not valid JSON at byte 21" },
    { "{\"__metadata__\":{\"a\":\"\\u12\"}}", 0, "not valid JSON at byte 21" },
    { "{\"__metadata__\":{\"a\":\"\\\"}}", 0, "not valid JSON at byte 21" },
    { "{\"__metadata__\":{\"a\":\"\\ud83d\"}}", 0, "an escape \\u that is no character" },
    { "{\"__metadata__\":{\"a\":\"\\ud83d\\u0041\"}}", 0, "an escape \\u that is no character" },
    { "{\"__metadata__\":{\"a\":\"\\ud83dxude00\"}}", 0, "an escape \\u that is no character" },
    { "{\"__metadata__\":{\"a\":\"\\ude00\\ud83d\"}}", 0, "an escape \\u that is no character" },
    { "{\"__metadata__\":{\"a\":\"\\u0000\"}}", 0, "an escape \\u that is no character" },
    { "{\"__metadata__\":{\"a\":\"1\n2\"}}", 0, "a control character in a string" },
    { "{\"__metadata__\":{\"a\":\"\xc3\"}}", 0, "a string is not UTF-8" },
    { "{\"__metadata__\":{\"a\":\"\xed\xa0\x80\"}}", 0, "a string is not UTF-8" },
    { "{\"__metadata__\":{\"a\":'1'}}", 0, "is not a string" },
    { "{\"__metadata__\":{\"a\":\"1\",}}", 0, "a key in quotes expected" },
    { "{\"__metadata__\":{\"a\":\"1\" \"b\":\"2\"}}", 0, "',' or '}' expected" },
    { "{\"__metadata__\":{,}}", 0, "a key in quotes expected" },
    { "{\"__metadata__\":nul}", 0, "neither a number nor true, false or null" },
    { "{\"__metadata__\"::null}", 0, "'__metadata__' is not an object" },
/* numbers and words, arrays, in members that are skipped and in those that are read */
#define X(json) "{\"a\":{\"x\":" json ",\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,2]}}"
    { X("[-0,0.5,1e9,-1.25E-3,10,7e+1,true,false,null,\"s\",{},[],{\"y\":[[{}]]}]"), 2, NULL },
    { X("{\"y\":1,\"y\":2}"), 2, NULL },
    { X("99999999999999999999"), 2, NULL },
    { X("01"), 2, "not valid JSON at byte 10: neither a number nor" },
    { X("-"), 2, "neither a number nor" },
    { X("+1"), 2, "a value expected" },
    { X(".5"), 2, "a value expected" },
    { X("1."), 2, "neither a number nor" },
    { X("1.e2"), 2, "neither a number nor" },
    { X("1e"), 2, "neither a number nor" },
    { X("0x10"), 2, "neither a number nor" },
    { X("1:2"), 2, "neither a number nor" },
    { X("NaN"), 2, "a value expected" },
    { X("tru"), 2, "neither a number nor" },
    { X("truer"), 2, "neither a number nor" },
    { X("[1 2]"), 2, "',' or ']' expected" },
    { X("[1,]"), 2, "a value expected" },
    { X("[,1]"), 2, "a value expected" },
    { X("[1}"), 2, "',' or ']' expected" },
    { X("[:1]"), 2, "a value expected" },
    { X("{\"y\"}"), 2, "':' expected" },
    { X("{\"y\":}"), 2, "a value expected" },
    { X("{\"y\" 1}"), 2, "':' expected" },
    { X("{1:2}"), 2, "a key in quotes expected" },
    { X("{\"y\":1]"), 2, "',' or '}' expected" },
    { X("\"no end"), 2, "not valid JSON" },
    { X(""), 2, "a value expected" },
    { X("1,\"dtype\":\"I8\""), 2, "the entry of tensor 'a' has the key 'dtype' twice" },
    { X("1,\"shape\":[2]"), 2, "the entry of tensor 'a' has the key 'shape' twice" },
    { X("1,\"data_offsets\":[0,2]"), 2,
      "the entry of tensor 'a' has the key 'data_offsets' twice" },
#undef X
    { "{\"a\":" T("I8", "[9223372036854775807]", 0, 4) "}", 4, "too large for any memory" },
    { "{\"a\":" T("I8", "[9223372036854775808]", 0, 4) "}", 4,
      "not valid JSON at byte 28: an integer of more" },
    { "{\"a\":" T("I8", "[-9223372036854775809]", 0, 4) "}", 4,
      "not valid JSON at byte 28: an integer of more" },
    { "{\"a\":" T("I8", "[2,\"2\",[],{},null]", 0, 4) "}", 4, "size of axis 1 of tensor 'a'" },
    { "{\"a\":" T("I8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", 0,
                  1) "}",
      1, "tensor 'a' has more than 32 axes" },
};
enum { BAD_ST = sizeof bad_st / sizeof *bad_st };

LOOP_TEST(safetensors_malformed, BAD_ST)
{
    uint8_t bytes[1024] = { 0 };
    size_t n = strlen(bad_st[_i].header);
    bytes[0] = (uint8_t)(n & 255), bytes[1] = (uint8_t)(n >> 8);
    memcpy(bytes + 8, bad_st[_i].header, n);
    eg_safetensors *st = eg_safetensors_read(cx, bytes, 8 + n + (size_t)bad_st[_i].data);
    ck_assert_int_eq(st == NULL, bad_st[_i].refusal != NULL);
    if (bad_st[_i].refusal) refused(bad_st[_i].refusal);
    fine();
}

/* A name in a file may have control characters, which a terminal would obey, and the length of a
 * message: the message shows them as '?', stays on one line and still says what is wrong. */
TEST(foreign_names_in_messages)
{
    static const char odd[] = "a\\u001b[31m\\n\\u007f\\u0085\\u202ez"; /* escapes of JSON */
    char header[4096], name[1200];
    for (int k = 0; k < 3; k++) {
        for (int at = 0; at < 1197; at += 3) memcpy(name + at, "\xe2\x82\xac", 4);
        const int n = snprintf(header + 8, sizeof header - 8,
                               "{\"%s\":{\"dtype\":\"%s\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                               k < 2 ? odd : name, k ? "F99" : odd);
        memset(header, 0, 8);
        header[0] = (char)(n & 255), header[1] = (char)(n >> 8);
        memcpy(header + 8 + n, "\0\0\0", 4);
        ck_assert_ptr_null(eg_safetensors_read(cx, header, (size_t)n + 12));
        const char *error = eg_error(cx);
        for (const char *s = error; *s; s++) ck_assert((unsigned char)*s >= ' ' && *s != 0x7f);
        ck_assert_ptr_null(strstr(error, "\xc2\x85"));
        ck_assert_ptr_null(strstr(error, "\xe2\x80\xae"));
        if (k < 2) ck_assert_ptr_nonnull(strstr(error, "'a?[31m????z' has dtype"));
        /* the middle of the long name is left out, between two characters */
        if (k == 2) ck_assert_ptr_nonnull(strstr(error, "\xe2\x82\xac\xe2\x80\xa6\xe2\x82\xac"));
        refused(k ? "has dtype 'F99', which is not supported" : "which is not supported");
    }
    memset(name, '/', sizeof name - 1), name[sizeof name - 1] = '\0';
    memcpy(name + sizeof name - 6, "x\ny.z", 5);
    ck_assert(!eg_ok(eg_npy_load(cx, name)));
    refused("x?y.z: cannot be opened: ");
    memset(header, 'x', 1022), strcpy(header + 1022, "\xe2\x82\xac"); /* two bytes too long */
    eg_fail(cx, "%s", header);
    ck_assert_int_eq(strlen(eg_error(cx)), 1023);
    ck_assert_str_eq(eg_error(cx) + 1020, "\xe2\x82\xac");
    ck_assert_ptr_nonnull(strstr(eg_error(cx), "x\xe2\x80\xa6x")); /* the middle is left out */
    eg_clear(cx);
    fine();
}

/* escapes are decoded, in keys too, and written again as they were */
TEST(safetensors_strings)
{
    static const char header[] =
        "{\"__metadata__\":{\"\\\"\\\\\\/\\b\\f\\n\\r\\t\":\"\\u00e9\\u20AC\\uD83D"
        "\\ude00/\",\"\\u0001\":\"\xf0\x9f\x98\x80\"},\"\\u0061 \\\"b\":" T("I32", "[1]", 0, 4) "}";
    static const char *const pairs[] = { "\"\\/\b\f\n\r\t", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80/",
                                         "\x01", "\xf0\x9f\x98\x80", NULL };
    static const char *const name = "a \"b";
    uint8_t bytes[512] = { sizeof header - 1 };
    memcpy(bytes + 8, header, sizeof header - 1);
    bytes[8 + sizeof header - 1] = 7;
    eg_safetensors *st = eg_safetensors_read(cx, bytes, 8 + sizeof header - 1 + 4);
    fine();
    for (int again = 0; again < 2; again++) {
        ck_assert_str_eq(eg_safetensors_name(st, 0), name);
        ck_assert_int_eq((int)eg_item(eg_safetensors_at(st, 0)), 7);
        for (int k = 0; k < 2; k++) {
            ck_assert_str_eq(eg_safetensors_key(st, k), pairs[2 * k]);
            ck_assert_str_eq(eg_safetensors_metadata(st, pairs[2 * k]), pairs[2 * k + 1]);
        }
        eg_tensor *x = eg_safetensors_at(st, 0);
        ck_assert_int_eq(eg_safetensors_save(cx, in_folder("s.safetensors"), 1, &name, &x, pairs),
                         0);
        st = eg_safetensors_open(cx, in_folder("s.safetensors"));
        fine();
    }
    size_t n = slurp(in_folder("s.safetensors"), bytes, sizeof bytes);
    bytes[n < sizeof bytes ? n : sizeof bytes - 1] = 0;
    ck_assert_ptr_nonnull(
        strstr((char *)bytes + 8, "{\"__metadata__\":{\"\\\"\\\\/\\b\\f\\n\\r\\t\":"));
    ck_assert_ptr_nonnull(
        strstr((char *)bytes + 8, "\"\\u0001\":\"\xf0\x9f\x98\x80\"},\"a \\\"b\":{"));
}

/* A header of `count` times `piece` between `before` and `after` is refused with this error; NULL:
 * it is read. */
static void repeated(const char *before, const char *piece, size_t count, const char *after,
                     const char *refusal)
{
    const size_t room = strlen(before) + strlen(piece) * count + strlen(after);
    char *bytes = malloc(8 + room + 1), *end = bytes + 8;
    ck_assert_ptr_nonnull(bytes);
    for (int k = 0; k < 8; k++) bytes[k] = (char)((uint64_t)room >> 8 * k);
    end = stpcpy(end, before);
    for (size_t k = 0; k < count; k++) end = stpcpy(end, piece);
    stpcpy(end, after);
    eg_safetensors *st = eg_safetensors_read(cx, bytes, 8 + room);
    free(bytes);
    ck_assert_int_eq(st == NULL, refusal != NULL);
    if (refusal) refused(refusal);
    fine();
}

TEST(files_of_another_kind)
{
    static const char zip[16] = "PK\3\4\24", array[16] = "\x93NUMPY\1", other[16] = "GGUF\3zzzz";
    ck_assert_ptr_null(eg_safetensors_read(cx, zip, sizeof zip));
    refused("is a zip archive, as .npz files and those of torch.save are, and not a safetensors");
    ck_assert_ptr_null(eg_safetensors_read(cx, array, sizeof array));
    refused("is a .npy file, not a safetensors file");
    ck_assert_ptr_null(eg_safetensors_read(cx, other, sizeof other));
    refused("is not a safetensors file: its first 8 bytes give a header of");
    ck_assert(!eg_ok(eg_npy_read(cx, zip, sizeof zip)));
    refused("is a zip archive, as .npz files are, and not a .npy file");
    ck_assert_ptr_null(eg_npz_read(cx, array, sizeof array));
    refused("is a .npy file, not a .npz file");
}

TEST(safetensors_deep_and_long)
{
    static const char more[] = ",\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[0,0]}}";
    char after[400];
    /* the header and the entry are two more levels */
    for (int depth = 126; depth <= 127; depth++) {
        memset(after, ']', (size_t)depth);
        strcpy(after + depth, more);
        repeated("{\"a\":{\"x\":", "[", (size_t)depth, after,
                 depth == 126 ? NULL : "nested deeper than 128 levels");
    }
    repeated("{\"a\":{\"x\":", "[", 1000000, "", "nested deeper than 128 levels");
    snprintf(after, sizeof after, "0]%s", more);
    repeated("{\"a\":{\"x\":[", "[],", 21000, after, NULL);
    repeated("{\"a\":{\"x\":[", "[],", 23000, after,
             "the entry of tensor 'a' is longer than 65536 bytes");
    repeated("{\"__metadata__\":{\"a\":\"", "\\u20ac", 1000000, "\"}}", NULL);
    repeated("{\"__metadata__\":{\"a\":\"", "\\", 1000001, "\"}}", "not valid JSON at byte 21");
}

TEST(safetensors_cut)
{
    uint8_t bytes[2048];
    size_t n = slurp(golden_path("exact.safetensors"), bytes, sizeof bytes);
    for (size_t k = 0; k < n; k++) {
        ck_assert_ptr_null(eg_safetensors_read(cx, bytes, k));
        refused(k < 8 ? "too short" : k < 512 ? "is cut short" : "ends at byte");
    }
    memset(bytes, 255, 8);
    ck_assert_ptr_null(eg_safetensors_read(cx, bytes, n));
    refused("not a safetensors file");
    ck_assert_ptr_null(eg_safetensors_open(cx, golden_path("none.safetensors")));
    refused("none.safetensors: cannot be opened: No such file");
}

/* -- complete or unchanged --------------------------------------------------------------------- */
TEST(write_failures)
{
    eg_tensor *x = eg_ones(cx, 1000), *y = eg_zeros(cx, 100000);
    ck_assert_int_eq(eg_npy_save(in_folder("no/such/folder.npy"), x), -1);
    refused("cannot write '");
    ck_assert_int_eq(eg_npy_save(folder, x), -1);
    refused("Is a directory");
    ck_assert_int_eq(eg_npy_save("/dev/full", y), -1);
    refused("npy: cannot write '/dev/full': No space left on device");
    struct stat about;
    ck_assert(stat("/dev/full", &about) == 0 && S_ISCHR(about.st_mode));
    ck_assert_int_eq(eg_npy_save("", x), -1);
    refused("cannot write ''");
    ck_assert_int_eq(eg_npy_save(NULL, x), -1);
    refused("NULL");
    /* the disk is full after 64 kB: the old file is unchanged */
    ck_assert_int_eq(eg_npy_save(in_folder("w.npy"), x), 0);
    ck_assert_int_eq(chmod(in_folder("w.npy"), 0640), 0);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit, small;
    getrlimit(RLIMIT_FSIZE, &limit);
    small = limit, small.rlim_cur = 65536;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    int result = eg_npy_save(in_folder("w.npy"), y);
    setrlimit(RLIMIT_FSIZE, &limit);
    ck_assert_int_eq(result, -1);
    refused("w.npy': File too large");
    ck_assert_int_eq(eg_size(eg_npy_load(cx, in_folder("w.npy"))), 1000);
    ck_assert_int_eq(entries(false), 1);
    if (geteuid() != 0) {
        ck_assert_int_eq(chmod(in_folder("w.npy"), 0440), 0);
        ck_assert_int_eq(eg_npy_save(in_folder("w.npy"), x), -1);
        refused("Permission denied");
        ck_assert_int_eq(chmod(in_folder("w.npy"), 0640), 0);
    }
    /* the mode of the file that is replaced is kept; a link is followed */
    ck_assert_int_eq(symlink("w.npy", in_folder("link.npy")), 0);
    ck_assert_int_eq(eg_npy_save(in_folder("link.npy"), y), 0);
    ck_assert(lstat(in_folder("link.npy"), &about) == 0 && S_ISLNK(about.st_mode));
    ck_assert(stat(in_folder("w.npy"), &about) == 0 && (about.st_mode & 0777) == 0640);
    ck_assert_int_eq(eg_size(eg_npy_load(cx, in_folder("w.npy"))), 100000);
    ck_assert_int_eq(entries(false), 2);
    ck_assert_int_eq(symlink("none.npy", in_folder("nowhere.npy")), 0);
    ck_assert_int_eq(eg_npy_save(in_folder("nowhere.npy"), y), -1);
    refused("nowhere.npy': No such file");
    ck_assert(lstat(in_folder("nowhere.npy"), &about) == 0 && S_ISLNK(about.st_mode));
    ck_assert_int_eq(unlink(in_folder("nowhere.npy")), 0);
    fine();
}

/* -- writers that are killed ------------------------------------------------------------------ */
/* The linker replaces rename and access of the library by these (Makefile.am). */
static int signal_at_rename; /* the signal that a writer gets when the file is complete */
static bool without_unnamed; /* no /proc: the file has a name from the beginning */
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    if (signal_at_rename) raise(signal_at_rename);
    return __real_rename(from, to);
}
int __real_access(const char *path, int mode), __wrap_access(const char *path, int mode);
int __wrap_access(const char *path, int mode)
{
    if (without_unnamed && strcmp(path, "/proc/self/fd") == 0) return errno = ENOENT, -1;
    return __real_access(path, mode);
}

/* A child that writes `value` under the path, and gets the signal before it renames. */
static pid_t writer(const char *path, double value, int signal_number)
{
    pid_t child = fork();
    if (child == 0) {
        signal_at_rename = signal_number;
        eg_npy_save(path, eg_full(cx, value, 3));
        _exit(eg_error(cx) != NULL);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
    ck_assert(signal_number == SIGSTOP ? WIFSTOPPED(status) : WIFSIGNALED(status));
    return child;
}

LOOP_TEST(killed_writers_leave_no_file, 2) /* _i: whether the system has files without a name */
{
    without_unnamed = _i == 0;
    eg_tensor *x = eg_ones(cx, 3);
    ck_assert_int_eq(eg_npy_save(in_folder("x.npy"), x), 0);
    for (int k = 0; k < 3; k++) writer(in_folder("x.npy"), 2, SIGKILL);
    ck_assert_int_le(entries(false), 2);
    ck_assert(eg_item(eg_sum(NULL, eg_npy_load(cx, in_folder("x.npy")))) == 3);
    ck_assert_int_eq(eg_file_check(cx, in_folder("other.npy"), 100), 0);
    /* a check whether a file can be written removes them, too */
    ck_assert_int_eq(entries(false), 1);
    writer(in_folder("x.npy"), 2, SIGKILL);
    ck_assert_int_eq(eg_npy_save(in_folder("y.npy"), x), 0);
    ck_assert_int_eq(entries(false), 2);
    fine();
}

LOOP_TEST(files_of_running_writers_are_kept, 2) /* their temporary files are not removed */
{
    without_unnamed = _i == 0;
    eg_tensor *x = eg_ones(cx, 3);
    pid_t first = writer(in_folder("x.npy"), 2, SIGSTOP);
    pid_t second = writer(in_folder("x.npy"), 4, SIGSTOP);
    ck_assert_int_eq(eg_npy_save(in_folder("x.npy"), x), 0);
    ck_assert_int_eq(entries(false), 3);
    ck_assert_int_eq(kill(first, SIGKILL), 0);
    ck_assert_int_eq(waitpid(first, NULL, 0), first);
    ck_assert_int_eq(eg_npy_save(in_folder("x.npy"), x), 0);
    ck_assert_int_eq(entries(false), 2);
    int status;
    ck_assert_int_eq(kill(second, SIGCONT), 0);
    ck_assert_int_eq(waitpid(second, &status, 0), second);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert_int_eq(entries(false), 1);
    ck_assert(eg_item(eg_sum(NULL, eg_npy_load(cx, in_folder("x.npy")))) == 12);
    fine();
}

TEST(npy_save_n_writes_all_files_or_none) /* all or none */
{
    eg_tensor *xs[] = { eg_ones(cx, 3), eg_zeros(cx, 100000) };
    const char *const paths[] = { in_folder("a.npy"), in_folder("b.npy") };
    ck_assert_int_eq(eg_npy_save_n(2, paths, xs), 0);
    ck_assert_int_eq(entries(true), 2);
    const char *const full[] = { paths[0], "/dev/full" };
    ck_assert_int_eq(eg_npy_save_n(2, full, xs), -1);
    refused("npy: cannot write '/dev/full': No space left on device");
    const char *const lost[] = { paths[0], "/no/such/folder.npy" };
    ck_assert_int_eq(eg_npy_save_n(2, lost, xs), -1);
    refused("npy: cannot write '/no/such/folder.npy': No such file");
    ck_assert_int_eq(entries(false), 0);
    ck_assert_int_eq(eg_npy_save_n(0, NULL, NULL), 0);
    for (int k = 0; k < 4; k++) { /* no paths, no arrays, neither, a negative number */
        const bool thread = k == 1 || k == 2 || k == 3;
        eg_clear(NULL);
        ck_assert_int_eq(eg_npy_save_n(k == 3 ? -2 : 2, k % 2 ? paths : NULL, k ? NULL : xs), -1);
        ck_assert_ptr_nonnull(strstr(eg_error(thread ? NULL : cx), "npy: the number of files is"));
        eg_clear(thread ? NULL : cx);
    }
    fine();
}

TEST(file_check_refuses_what_cannot_be_written)
{
    struct rlimit limit, small;
    ck_assert_int_eq(eg_file_check(cx, in_folder("x"), 1000), 0);
    ck_assert_int_eq(eg_file_check(cx, "/dev/null", 1000), 0);
    ck_assert_int_eq(eg_file_check(cx, "", 1000), -1);
    refused("file: the path is empty");
    char name[301] = "";
    memset(name, 'n', sizeof name - 1);
    ck_assert_int_eq(eg_file_check(cx, in_folder(name), 1000), -1);
    refused("File name too long");
    ck_assert_int_eq(eg_npy_save_n(2, (const char *[]){ in_folder("a"), in_folder("b") },
                                   (eg_tensor *[]){ eg_ones(cx, 1), NULL }),
                     -1);
    refused("npy: operand 2 has no values");
    ck_assert_int_eq(mkfifo(in_folder("p"), 0600), 0);
    ck_assert_int_eq(eg_file_check(cx, in_folder("p"), 1000), 0);
    ck_assert_int_eq(eg_file_check(cx, in_folder("none/x"), 1000), -1);
    refused("none/x': No such file");
    ck_assert_int_eq(eg_file_check(cx, folder, 1000), -1);
    refused("Is a directory");
    ck_assert_int_eq(eg_file_check(cx, NULL, 1000), -1);
    refused("NULL");
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    small = limit, small.rlim_cur = 65536;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    int fits = eg_file_check(cx, in_folder("x"), 65536);
    int exceeds = eg_file_check(cx, in_folder("x"), 65537);
    setrlimit(RLIMIT_FSIZE, &limit);
    ck_assert_int_eq(fits, 0);
    ck_assert_int_eq(exceeds, -1);
    refused("file: cannot write '");
    ck_assert_int_eq(eg_file_check(cx, in_folder("x"), (size_t)1 << 60), -1);
    refused("x': ");
    ck_assert_int_eq(entries(false), 1);
    fine();
}

TEST(arrays_pass_through_pipes)
{
    ck_assert_int_eq(mkfifo(in_folder("p"), 0600), 0);
    pid_t child = fork();
    if (child == 0) {
        eg_npy_save(in_folder("p"), eg_npy_load(cx, golden_path("f8.npy")));
        _exit(eg_error(cx) != NULL);
    }
    has_values(eg_npy_load(cx, in_folder("p")), EG_F64, 'f', 3, cube);
}

static void tick(int number) { (void)number; }
/* In another process: copies one file to another with pauses. */
static pid_t copy_slowly(const char *from, const char *to)
{
    static char bytes[32768];
    const pid_t child = fork();
    if (child) return child;
    usleep(5000);
    const int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT, 0600);
    for (ssize_t n; (n = read(in, bytes, sizeof bytes)) > 0; usleep(5000))
        if (write(out, bytes, (size_t)n) != n) _exit(1);
    _exit(in < 0 || out < 0);
}
/* as a profiler's timer does, whose handler has no SA_RESTART */
TEST(signals_do_not_interrupt_pipes)
{
    const struct sigaction act = { .sa_handler = tick };
    const struct itimerval often = { { 0, 1000 }, { 0, 1000 } }, never = { { 0, 0 }, { 0, 0 } };
    char whole[300], pipe[300], copy[300];
    snprintf(whole, sizeof whole, "%s/x", folder);
    snprintf(pipe, sizeof pipe, "%s/p", folder);
    snprintf(copy, sizeof copy, "%s/y", folder);
    eg_tensor *x = eg_normal(cx, 0, 1, 200, 200);
    ck_assert_int_eq(eg_npy_save(whole, x), 0);
    ck_assert_int_eq(mkfifo(pipe, 0600), 0);
    sigaction(SIGALRM, &act, NULL);
    copy_slowly(whole, pipe);
    setitimer(ITIMER_REAL, &often, NULL);
    eg_tensor *y = eg_npy_load(cx, pipe);
    setitimer(ITIMER_REAL, &never, NULL);
    fine();
    const pid_t reader = copy_slowly(pipe, copy);
    setitimer(ITIMER_REAL, &often, NULL);
    const int saved = eg_npy_save(pipe, x);
    setitimer(ITIMER_REAL, &never, NULL);
    fine();
    ck_assert_int_eq(saved, 0);
    ck_assert_int_eq(waitpid(reader, NULL, 0), reader);
    eg_tensor *z = eg_npy_load(cx, copy);
    fine();
    ck_assert(!memcmp(eg_f32(y), eg_f32(x), sizeof(float) * 40000));
    ck_assert(!memcmp(eg_f32(z), eg_f32(x), sizeof(float) * 40000));
}

/* -- heat maps -------------------------------------------------------------------------------- */
static const char *printed(const eg_heatmap_args *o)
{
    static char text[65536];
    FILE *f = tmpfile();
    int result = eg_heatmap_print_with(f, o);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return result ? NULL : text;
}
#define PRINTED(...) printed(&(eg_heatmap_args){ .size = sizeof(eg_heatmap_args), __VA_ARGS__ })

static const char *const rows[] = { "the", "cat", "<e>" }, *const columns[] = { "le", "chat",
                                                                                "\xe7\x8c\xab",
                                                                                " " };

static eg_tensor *weights(void)
{
    return eg_from(cx, ((float[]){ 0, .25f, .5f, .75f, 1, 0, 0, 0, NAN, INFINITY, -INFINITY, .1f }),
                   3, 4);
}

TEST(heatmap_text)
{
    eg_tensor *w = weights();
    ck_assert_str_eq(PRINTED(w, .rows = rows, .columns = columns, .title = "weights"),
                     "    weights\n"
                     "       c      \n"
                     "       h      \n"
                     "     l a      \n"
                     "     e t \xe7\x8c\xab\xe2\x90\xa3  \n"
                     "the |  ::++##|\n"
                     "cat |@@      |\n"
                     "<e> |\?\?@@  ..|\n"
                     "    0 [ .:-=+*#%@] 1\n");
    eg_tensor *two = eg_stack_axis(0, w, w);
    const char *text = PRINTED(two);
    ck_assert_ptr_nonnull(text);
    ck_assert_ptr_nonnull(strstr(text, "head 0       head 1\n"));
    ck_assert_ptr_nonnull(strstr(text, "0 |  ::++##|   |  ::++##|\n"));
    ck_assert_ptr_nonnull(strstr(PRINTED(two, .width = 20), "head 1\n"));
    ck_assert_ptr_null(strstr(PRINTED(two, .width = 20), "head 0       head 1"));
    text = PRINTED(w, .colour = true);
    ck_assert_ptr_nonnull(strstr(text, "1 \033[48;2;253;231;37m  \033[48;2;68;1;84m  "));
    ck_assert_ptr_nonnull(strstr(text, "2 \033[48;2;170;170;170m  "));
    const char *const nasty[] = { "\033[2J", "\xff\xfe", NULL };
    text = PRINTED(w, .rows = nasty);
    ck_assert_ptr_nonnull(text);
    ck_assert_ptr_null(strchr(text, 27));
}

static bool draws_png(void) { return strstr(eg_io_info(), "fontconfig") != NULL; }

static const char *saved_curve(double low, double high, bool logarithmic)
{
    static char text[1 << 16];
    const double x[] = { 1, 700 }, y[] = { high, low };
    ck_assert_int_eq(eg_curves_save(in_folder("c.svg"), cx, 1,
                                    &(eg_curve){ .name = "training", .count = 2, .x = x, .y = y },
                                    .x_name = "step", .y_name = "loss", .logarithmic = logarithmic),
                     0);
    text[slurp(in_folder("c.svg"), (uint8_t *)text, sizeof text - 1)] = 0;
    unlink(in_folder("c.svg"));
    return text;
}
TEST(ticks_are_round)
{
    static const struct {
        double low, high;
        bool logarithmic;
        const char *has[8];
    } ranges[] = {
        { 1.08, 4.09, true, { "1.5", "2", "4", "100", "700" } },
        { 0.0003, 4.09, true, { "0.001", "0.01", "0.1", "1" } },
        { 0, 1, false, { "0", "0.2", "0.4", "1" } },
        { -3, 70.8, false, { "0", "20", "60" } },
        { 2, 2, false, { "2", "100" } },
        { 1e-300, 1e300, true, { "100" } },
        { 5e9, 6e9, false, { "5.2e+09", "6e+09" } },
        /* numbers of one axis differ from one another, and integers are written alike */
        { 1 + 1e-9, 1 + 49e-9, false, { "1.00000001", "1.00000002", "1.00000004" } },
        { 1000.001, 1000.0015, true, { "1000.0011", "1000.0012" } },
        { 0.5, 1e6, false, { "200000", "800000", "1000000" } },
        { 2, 2e7, true, { "10", "10000", "10000000" } },
    };
    for (size_t k = 0; k < sizeof ranges / sizeof *ranges; k++) {
        const char *svg = saved_curve(ranges[k].low, ranges[k].high, ranges[k].logarithmic);
        for (int n = 0; n < 8 && ranges[k].has[n]; n++) {
            char want[32];
            snprintf(want, sizeof want, ">%s</text>", ranges[k].has[n]);
            ck_assert_msg(strstr(svg, want) != NULL, "%g to %g: no tick %s", ranges[k].low,
                          ranges[k].high, ranges[k].has[n]);
        }
        int texts = 0;
        for (const char *at = svg; (at = strstr(at, "<text")); at++) texts++;
        ck_assert_msg(texts <= 3 + 2 * 8 && texts > 3 + 3, "%g to %g: %d texts", ranges[k].low,
                      ranges[k].high, texts);
        ck_assert_ptr_null(strstr(svg, ">70.8<"));
        ck_assert_ptr_null(strstr(svg, ">1.08<"));
    }
}

TEST(heatmap_refuses)
{
    ck_assert_ptr_null(PRINTED(eg_zeros(cx, 3)));
    refused("heatmap: operand 1 is (3,), but a heat map is (rows, columns)");
    ck_assert_ptr_null(PRINTED(eg_zeros(cx, 3, 0)));
    refused("nothing to show");
    ck_assert_ptr_null(PRINTED(NULL));
    ck_assert_int_eq(eg_picture_save(in_folder("x.jpg"), eg_ones(cx, 2, 2)), -1);
    refused("ends neither in .png nor in .svg");
    ck_assert_int_eq(eg_picture_save(in_folder("png"), eg_ones(cx, 2, 2)), -1);
    refused("ends neither");
    ck_assert_int_eq(eg_picture_save(in_folder("x.png"), eg_zeros(cx, 1000, 64, 64)), -1);
    refused("1000 panels of 64 rows and 64 columns need");
    ck_assert_int_eq(
        eg_picture_save(in_folder("x.png"), eg_expand(eg_zeros(cx, 1, 1, 1), 64, 4000, 4000)), -1);
    refused("at most 67108864 entries");
    ck_assert_int_eq(entries(false), 0);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit, small;
    getrlimit(RLIMIT_FSIZE, &limit);
    small = limit, small.rlim_cur = 512;
    setrlimit(RLIMIT_FSIZE, &small);
    const int svg = eg_picture_save(in_folder("x.svg"), eg_uniform(cx, 0, 1, 30, 30));
    ck_assert_int_eq(svg, -1);
    refused("x.svg': File too large");
    const int png = eg_picture_save(in_folder("x.png"), eg_uniform(cx, 0, 1, 30, 30));
    setrlimit(RLIMIT_FSIZE, &limit);
    ck_assert_int_eq(png, -1);
    refused(draws_png() ? "x.png': File too large"
                        : "built without cairo, so its pictures are .svg");
    ck_assert_int_eq(entries(false), 0);
    ck_assert_int_eq(eg_heatmap_print(NULL, eg_ones(cx, 2, 2)), -1);
    refused("heatmap: the file is NULL");
    FILE *null = fopen("/dev/null", "w");
    ck_assert_int_eq(eg_heatmap_print(null, eg_ones(cx, 2, 2), .width = INT32_MAX), 0);
    fclose(null);
}

/* No two rows and no two columns of labels in an SVG overlap, whatever the number of tokens. */
static void spaced(const char *svg, int n)
{
    int last = -1000, labels = 0;
    for (const char *at = svg; (at = strstr(at, "text-anchor=\"end\"")); at++) {
        const char *y = at;
        while (strncmp(y, " y=\"", 4)) y--;
        int now = atoi(y + 4);
        ck_assert_msg(now - last >= 16, "rows of %d tokens are %d points apart", n, now - last);
        last = now, labels++;
    }
    ck_assert_int_eq(labels, n);
    last = -1000;
    for (const char *at = svg; (at = strstr(at, "translate(")); at++) {
        int now = atoi(at + 10);
        ck_assert_msg(now - last >= 16, "columns of %d tokens are %d points apart", n, now - last);
        last = now;
    }
}

TEST(pictures_have_the_size_and_the_texts_of_their_map)
{
    static char text[1 << 20];
    uint8_t start[24];
    for (int n = 1; n <= 64; n += n < 8 ? 1 : 7) {
        eg_mark m = eg_push(cx);
        eg_tensor *x = eg_uniform(cx, 0, 1, n, n);
        ck_assert_int_eq(eg_picture_save(in_folder("m.svg"), x), 0);
        text[slurp(in_folder("m.svg"), (uint8_t *)text, sizeof text - 1)] = 0;
        spaced(text, n);
        int w = 0, h = 0;
        ck_assert_int_eq(
            sscanf(strstr(text, "<svg"),
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\"", &w, &h),
            2);
        if (draws_png()) { /* two pixels per point */
            ck_assert_int_eq(eg_picture_save(in_folder("m.png"), x), 0);
            ck_assert_uint_ge(slurp(in_folder("m.png"), start, sizeof start), 24);
            ck_assert(!memcmp(start, "\x89PNG\r\n\x1a\n", 8));
            ck_assert_int_eq(start[18] << 8 | start[19], 2 * w);
            ck_assert_int_eq(start[22] << 8 | start[23], 2 * h);
        }
        eg_pop(cx, m);
    }
    ck_assert_int_eq(eg_picture_save(in_folder("m.SVG"), weights(), .rows = rows,
                                     .columns = columns, .title = "a & b"),
                     0);
    text[slurp(in_folder("m.SVG"), (uint8_t *)text, sizeof text - 1)] = 0;
    ck_assert_ptr_nonnull(strstr(text, ">a &amp; b</text>"));
    ck_assert_ptr_nonnull(strstr(text, ">&lt;e&gt;</text>"));
    ck_assert_ptr_nonnull(strstr(text, "#aaaaaa"));
    fine();
}

/* Writes the bytes of a map of one cell with this title. */
static size_t titled(const char *title, uint8_t *out, size_t room)
{
    ck_assert_int_eq(eg_picture_save(in_folder("t.png"), eg_ones(cx, 1, 1), .title = title), 0);
    fine();
    return slurp(in_folder("t.png"), out, room);
}

/* Letters that a font of this machine has are drawn differently; those of Arabic have the form that
 * their neighbours require, and are ordered from right to left; a mark is drawn on its letter. */
TEST(pictures_draw_every_letter)
{
    static const char *const pairs[][2] = {
        { "a", "b" },
        { "\xd0\x96", "\xd0\x97" },                             /* Cyrillic */
        { "\xd7\x90\xd7\x91", "\xd7\x91\xd7\x90" },             /* Hebrew, and in the other order */
        { "e\xcc\x81", "e" },                                   /* e and an acute accent */
        { "\xd8\xa8\xd8\xa8", "\xd8\xa8\xe2\x80\x8c\xd8\xa8" }, /* Arabic, joined and not */
        { "\xe2\x88\x87", "\xe2\x88\x82" },                     /* nabla, partial */
        { "\xe2\x96\xa0", "\xe2\x90\xa3" },                     /* end and blank */
        /* of the supplementary private use area, which fonts lack: boxes with different numbers */
        { "\xf3\xb0\x84\xa3", "\xf3\xb0\x84\xa4" },
        { "\xee\x84\xa3", "\xee\x84\xa4" },
    };
    static uint8_t a[1 << 16], b[1 << 16];
    for (size_t k = 0; draws_png() && k < sizeof pairs / sizeof *pairs; k++) {
        const size_t n = titled(pairs[k][0], a, sizeof a), m = titled(pairs[k][1], b, sizeof b);
        ck_assert_msg(n != m || memcmp(a, b, n), "'%s' is drawn as '%s'", pairs[k][0], pairs[k][1]);
        ck_assert_uint_eq(titled(pairs[k][0], b, sizeof b), n);
        ck_assert(!memcmp(a, b, n));
    }
    if (!draws_png()) return;
    /* a variation selector is invisible, whether or not a font has it */
    const size_t n = titled("a", a, sizeof a), m = titled("a\xef\xb8\x80", b, sizeof b);
    ck_assert(n == m && !memcmp(a, b, n));
}

/* Three maps of each head, x, against and the difference, each with its colours and its scale. */
TEST(maps_side_by_side)
{
    static char text[1 << 16];
    eg_tensor *x = eg_from(cx, ((float[]){ 0, .5f, 1, NAN }), 1, 2, 2),
              *y = eg_from(cx, ((float[]){ 0, .2f, 0, 1 }), 1, 2, 2);
    ck_assert_int_eq(eg_picture_save(in_folder("d.svg"), x, .against = y, .name = "step 100",
                                     .against_name = "step 200", .value_axis = "weight",
                                     .row_axis = "token", .column_axis = "looks at", .high = 1),
                     0);
    text[slurp(in_folder("d.svg"), (uint8_t *)text, sizeof text - 1)] = 0;
    static const char *const parts[] = { ">head 0: step 100<", ">head 0: step 200<",
                                         ">head 0: difference<", ">weight<", ">difference<",
                                         ">token<", ">looks at<", ">-1<", ">0.5<",
                                         /* 0: white; −1: blue; −0.3: between them */
                                         "#f7f7f7", "#2166ac", "#aaaaaa" };
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
        ck_assert_msg(strstr(text, parts[k]) != NULL, "%s is not in the picture", parts[k]);
    ck_assert_str_eq(PRINTED(x, .against = y, .high = 1),
                     "  head 0: x            head 0: against      head 0: difference\n"
                     "   0 1                  0 1                  0 1  \n"
                     "0 |  ++|               |  ::|               |  -3|\n"
                     "1 |@@\?\?|               |  @@|               |-9\?\?|\n"
                     "  0 [ .:-=+*#%@] 1\n"
                     "  -1 [-9 ... +9] 1 difference\n");
    ck_assert_ptr_nonnull(
        strstr(PRINTED(x, .against = y, .colour = true), "\033[48;2;33;102;172m"));
    ck_assert_ptr_null(PRINTED(x, .against = eg_ones(cx, 2, 2)));
    refused("heatmap: .against is (2, 2), but operand 1 is (1, 2, 2)");
    ck_assert_int_eq(eg_picture_save(in_folder("d.svg"), x, .against = eg_ones(cx, 1, 2, 3)), -1);
    refused("picture: .against is (1, 2, 3), but operand 1 is (1, 2, 2)");
}

/* -- JSON -------------------------------------------------------------------------------------- */
static const eg_json *json(const char *text) { return eg_json_read(cx, text, strlen(text)); }

TEST(json_is_decoded_as_written)
{
    setlocale(LC_NUMERIC, "de_DE.UTF-8"); /* if this locale exists, its decimal point is a comma */
    const eg_json *x =
        json(" {\"a\": [1, -2.5e-1, 1e-05, [], {}], \"b\\u00e9\": \"\\u20ac\\n\", \"c\": "
             "{\"d\": null, \"e\": true}, \"f\":false, \"a2\":0, \"a2\": 9007199254740993}\n");
    setlocale(LC_NUMERIC, "C");
    fine();
    ck_assert(x && x->kind == EG_JSON_OBJECT && !x->key && !x->next);
    const eg_json *a = eg_json_find(x, "a"), *item = a->first;
    ck_assert(a->kind == EG_JSON_ARRAY && !strcmp(a->key, "a") && item->number == 1);
    ck_assert(!item->key && (item = item->next)->number == -0.25);
    ck_assert((item = item->next)->number == 1e-5 && item->kind == EG_JSON_NUMBER);
    ck_assert((item = item->next)->kind == EG_JSON_ARRAY && !item->first);
    ck_assert((item = item->next)->kind == EG_JSON_OBJECT && !item->first && !item->next);
    ck_assert_str_eq(eg_json_find(x, "b\xc3\xa9")->text, "\xe2\x82\xac\n");
    const eg_json *c = eg_json_find(x, "c");
    ck_assert(eg_json_find(c, "d")->kind == EG_JSON_NULL);
    ck_assert(eg_json_find(c, "e")->kind == EG_JSON_BOOL && eg_json_find(c, "e")->number == 1);
    ck_assert(eg_json_find(x, "f")->kind == EG_JSON_BOOL && eg_json_find(x, "f")->number == 0);
    /* rounded to the last integer that a double represents */
    ck_assert(eg_json_find(x, "a2")->number == 9007199254740992.0);
    ck_assert(!eg_json_find(x, "g") && !eg_json_find(a, "a") && !eg_json_find(NULL, "a"));
    ck_assert(!eg_json_find(x, NULL));
}

static const struct {
    const char *text, *refusal;
} bad_json[] = {
    { "", "json: contains neither an object nor an array" },
    { " 12", "json: contains neither an object nor an array" },
    { "{\"a\": 1,}", "a key in quotes expected" },
    { "[1 2]", "',' or ']' expected" },
    { "[1, NaN]", "json: its text is not valid JSON at byte 4: a value expected" },
    { "[Infinity]", "at byte 1: a value expected" },
    { "[-1e999]", "at byte 1: a number that is too large for a double" },
    { "[01]", "at byte 1: neither a number nor true, false or null" },
    { "{} {}", "at byte 3: end of file expected" },
    { "[\"\\u0000\"]", "an escape \\u that is no character" },
    { "[\"\xff\"]", "a string is not UTF-8" },
    { "{\"a\": \"", "a string without an end" },
};

LOOP_TEST(json_refused, sizeof bad_json / sizeof *bad_json)
{
    ck_assert_ptr_null(json(bad_json[_i].text));
    refused(bad_json[_i].refusal);
}

TEST(json_from_files)
{
    char deep[300];
    memset(deep, '[', 129), memset(deep + 129, ']', 129), deep[258] = 0;
    ck_assert_ptr_null(json(deep));
    refused("nested deeper than 128 levels");
    deep[257] = 0;
    ck_assert_ptr_nonnull(json(deep + 1));
    FILE *f = fopen(in_folder("config.json"), "w");
    ck_assert(f && fputs("{\"hidden_size\": 16,\n", f) >= 0 && !fclose(f));
    ck_assert_ptr_null(eg_json_load(cx, in_folder("config.json")));
    refused("config.json: its text is not valid JSON at byte 20: a key in quotes expected");
    f = fopen(in_folder("config.json"), "a");
    ck_assert(f && fputs("\"n\": 2}\n", f) >= 0 && !fclose(f));
    const eg_json *x = eg_json_load(cx, in_folder("config.json"));
    fine();
    ck_assert_double_eq(eg_json_find(x, "hidden_size")->number, 16);
    ck_assert_ptr_null(eg_json_load(cx, in_folder("nothing.json")));
    refused("nothing.json: cannot be opened");
    ck_assert_ptr_null(eg_json_load(cx, NULL));
    refused("json: the path is NULL");
    ck_assert_ptr_null(eg_json_read(NULL, "1", 1));
}

/* -- every allocation of a context fails in turn ---------------------------------------------- */
static long countdown;
static void *fails_once(void *user, void *p, size_t old, size_t size)
{
    (void)user, (void)old;
    if (!size) {
        free(p);
        return NULL;
    }
    return countdown-- == 0 ? NULL : realloc(p, size);
}

TEST(each_allocation_may_fail)
{
    bool done = false;
    for (long k = 0; !done && k < 1000; k++) {
        countdown = k;
        eg_ctx *c = eg_open(.threads = 1, .realloc = fails_once);
        if (!c) continue;
        eg_tensor *x = eg_npy_load(c, golden_path("f4_fortran.npy")),
                  *xs[] = { eg_permute(x, 2, 1, 0), eg_full(c, 3, 70000) };
        const char *names[] = { "x", "y" }, *meta[] = { "k", "v", NULL };
        eg_safetensors_save(c, in_folder("m.safetensors"), 2, names, xs, meta);
        eg_tensor *y = eg_safetensors_get(eg_safetensors_open(c, in_folder("m.safetensors")), "x");
        eg_picture_save(in_folder("m.svg"), y);
        const eg_json *settings = eg_json_read(c, "{\"a\": [\"b\", 1]}", 15);
        ck_assert(!settings == !!eg_error(c));
        done = !eg_error(c);
        if (done)
            ck_assert_int_eq(eg_dim(y, 0), 4);
        else
            ck_assert_msg(strstr(eg_error(c), "memory") != NULL, "%s", eg_error(c));
        eg_close(c);
    }
    ck_assert(done);
    ck_assert_int_eq(entries(false), 2);
}
