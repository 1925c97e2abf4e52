/* test_npz.c: .npz archives in both directions, damaged ones, and files that are mapped. */
#include <eingrad/dlpack.h>
#include <eingrad/io.h>
#include <eingrad/check.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>
#include "fixtures.h"
#include "folder.h"
#include "io/zip.h"
#include "tests.h"

static eg_ctx *cx;
static void npz_setup(void)
{
    make_folder();
    cx = eg_open(.threads = 1);
}
static void npz_teardown(void)
{
    eg_close(cx);
    remove_folder();
}
static void counts_up(eg_tensor *x, eg_dtype dtype, int rank)
{
    eg_assert_ok(cx);
    ck_assert_int_eq(eg_type(x), dtype);
    ck_assert_int_eq(eg_rank(x), rank);
    const double *v = eg_f64(eg_cast(x, EG_F64));
    for (int64_t k = 0; k < eg_size(x); k++)
        ck_assert_double_eq(v[k], dtype == EG_BOOL ? (double)(k % 2) : (double)(k - 3));
}

/* -- reading ---------------------------------------------------------------------------------- */
GROUP("npz", .setup = npz_setup, .teardown = npz_teardown)

LOOP_TEST(npz_reads_numpy, 4) /* _i & 1: deflated; _i & 2: .copy */
{
    eg_npz *z =
        eg_npz_open(cx, golden_path(_i & 1 ? "deflated.npz" : "stored.npz"), .copy = _i & 2);
    eg_assert_ok(cx);
    ck_assert_int_eq(eg_npz_count(z), 6 + (_i & 1));
    ck_assert_str_eq(eg_npz_name(z, 0), "x");
    ck_assert_int_eq(eg_npz_find(z, "half"), 3);
    ck_assert_int_eq(eg_npz_find(z, "half.npy"), -1);
    counts_up(eg_npz_get(z, "x"), EG_F32, 3);
    counts_up(eg_npz_get(z, "y"), EG_I64, 3);
    counts_up(eg_npz_get(z, "mask"), EG_BOOL, 3);
    counts_up(eg_npz_get(z, "half"), EG_F32, 3);
    counts_up(eg_npz_get(z, "scalar"), EG_F64, 0);
    counts_up(eg_npz_get(z, "none"), EG_F32, 3);
    ck_assert_int_eq(eg_dim(eg_npz_get(z, "none"), 0), 3);
    if (_i & 1) ck_assert_int_eq(eg_dim(eg_npz_get(z, "zeros"), 0), 5000);
    ck_assert(!eg_ok(eg_npz_get(z, "absent")));
    eg_assert_error(cx, "no array is named 'absent'");
    ck_assert_ptr_null(eg_npz_at(z, 7));
    ck_assert_ptr_null(eg_npz_name(z, -1));
    eg_npz_close(z);
    eg_npz_close(NULL);
    ck_assert_int_eq(eg_npz_count(NULL), 0);
}

/* ZIP64 in every record, a comment, a name that is not ASCII, a member that is not an array */
TEST(npz_reads_zip64)
{
    eg_npz *z = eg_npz_open(cx, golden_path("zip64.npz"));
    eg_assert_ok(cx);
    ck_assert_int_eq(eg_npz_count(z), 2);
    counts_up(eg_npz_get(z, "x"), EG_F32, 3);
    counts_up(eg_npz_get(z, "größe"), EG_F64, 0);
}

/* Writes members as if they had 4 GB and more, with a lower limit: sizes in the local header or
 * after the data, in the directory, and the end records of ZIP64. */
static void put_array(eg__output *out, void *x) { eg__npy_put(out, x); }
LOOP_TEST(npz_writes_zip64, 8) /* _i & 1: deflated; _i / 2: which numbers are stored in 64 bits */
{
    static const uint64_t from[] = { 1, 100, 1000, 0 };
    static char *const names[] = { "small.npy", "large.npy", "last.npy" };
    eg_tensor *x[] = { eg_arange(cx, EG_F32, -3, 2, 1),
                       eg_shift(eg_reshape(eg_arange(cx, EG_F64, 0, 900, 1), 30, 30), -3),
                       eg_cast(eg_shift(eg_arange(cx, EG_F64, 0, 40, 1), -3), EG_I64) };
    char path[300];
    eg__output out;
    eg__zip_entry e[3];
    uint64_t at = 0;
    snprintf(path, sizeof path, "%s", in_folder("wide.npz"));
    ck_assert(eg__file_create(&out, cx, "npz", path));
    out.wide = from[_i / 2];
    for (int k = 0; k < 3; k++)
        ck_assert(
            eg__zip_put(&out, &at, &e[k], names[k], eg__npy_size(x[k]), _i & 1, put_array, x[k]));
    eg__zip_put_directory(&out, at, 3, e, names, _i & 1);
    ck_assert_int_eq(eg__file_finish(&out), 0);
    long size;
    char *bytes = bytes_of(path, &size);
    const unsigned char locator[] = { 'P', 'K', 6, 7 };
    int located = 0;
    for (long k = 0; k + 4 <= size; k++) located += !memcmp(bytes + k, locator, 4);
    free(bytes);
    ck_assert_int_eq(located, from[_i / 2] != 0);
    eg_npz *z = eg_npz_open(cx, path);
    eg_assert_ok(cx);
    ck_assert_int_eq(eg_npz_count(z), 3);
    counts_up(eg_npz_get(z, "small"), EG_F32, 1);
    counts_up(eg_npz_get(z, "large"), EG_F64, 2);
    counts_up(eg_npz_get(z, "last"), EG_I64, 1);
    eg_npz_close(z);
}

/* -- writing ---------------------------------------------------------------------------------- */
LOOP_TEST(npz_is_read_as_it_was_written, 2)
{
    eg_tensor *x = eg_normal(cx, 0, 1, 30, 40, 50), *back;
    eg_tensor *xs[] = { x,
                        eg_permute(x, 2, 0, 1),
                        eg_cast(x, EG_F64),
                        eg_cast(x, EG_I32),
                        eg_cast(x, EG_I64),
                        eg_cast(x, EG_BOOL),
                        eg_scalar(cx, 2),
                        eg_zeros(cx, 0, 3) };
    const char *names[] = { "x", "a/turned", "größe", "i", "j", "mask", "s", "none" };
    enum { N = sizeof xs / sizeof *xs };
    long n[2];
    char path[2][300];
    for (int k = 0; k < 2; k++) {
        snprintf(path[k], sizeof *path, "%s", in_folder(k ? "a.npz" : "b.npz"));
        ck_assert_int_eq(eg_npz_save(cx, path[k], N, names, xs, .deflate = _i), 0);
    }
    struct stat about;
    stat(path[0], &about);
    uint8_t *bytes = malloc((size_t)about.st_size), *again = malloc((size_t)about.st_size);
    for (int k = 0; k < 2; k++) {
        FILE *f = fopen(path[k], "rb");
        n[k] = (long)fread(k ? again : bytes, 1, (size_t)about.st_size, f);
        fclose(f);
    }
    ck_assert_int_eq(n[0], n[1]);
    ck_assert_int_eq(memcmp(bytes, again, (size_t)n[0]), 0);
    for (int from = 0; from < 3; from++) { /* mapped, read, from memory */
        eg_npz *z = from == 2 ? eg_npz_read(cx, bytes, (size_t)n[0])
                              : eg_npz_open(cx, path[0], .copy = from);
        eg_assert_ok(cx);
        ck_assert_int_eq(eg_npz_count(z), N);
        for (int k = 0; k < N; k++) {
            back = eg_npz_get(z, names[k]);
            ck_assert_int_eq(eg_type(back), eg_type(xs[k]));
            const size_t width[] = { 0, 4, 8, 4, 8, 1 };
            eg_tensor *want = eg_contiguous(xs[k]);
            if (eg_size(want))
                ck_assert_int_eq(memcmp(eg_raw(back, NULL), eg_raw(want, NULL),
                                        width[eg_type(want)] * (size_t)eg_size(want)),
                                 0);
            if (!_i && !from && k < 5) /* stored: a view of the map, aligned for any kernel */
                ck_assert_uint_eq((uintptr_t)eg_raw(back, NULL) % 64, 0);
        }
        eg_npz_close(z);
    }
    free(bytes);
    free(again);
}

TEST(npz_save_refuses)
{
    eg_tensor *x = eg_ones(cx, 2), *xs[] = { x, x }, *complex[] = { eg_cast(x, EG_C128) };
    const struct {
        const char *names[2], *says;
        eg_tensor *const *xs;
        int count;
    } bad[] = {
        { { "a", "a" }, "two arrays have the name of member 'a.npy'", xs, 2 },
        { { "a", NULL }, "the name of an array is NULL, empty", xs, 2 },
        { { "a", "" }, "the name of an array is NULL, empty", xs, 2 },
        { { "a", "\xff" }, "not UTF-8", xs, 2 },
        { { "a" }, "c128 is not written", complex, 1 },
        { { "a" }, "there are no values for array 'a'", (eg_tensor *const[]){ NULL }, 1 },
        { { "a" }, "the number of arrays is negative", xs, -1 },
        { { "a" }, "their names or values are NULL", NULL, 1 },
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        ck_assert_int_eq(eg_npz_save(cx, in_folder("n.npz"), bad[k].count, bad[k].names, bad[k].xs),
                         -1);
        eg_assert_error(cx, bad[k].says);
    }
    ck_assert_int_eq(entries(false), 0);
    ck_assert_int_eq(eg_npz_save(cx, "/nowhere/n.npz", 1, bad[0].names, xs), -1);
    eg_assert_error(cx, "npz: cannot write '/nowhere/n.npz'");
    ck_assert_int_eq(eg_npz_save(cx, in_folder("n.npz"), 0, NULL, NULL), 0);
    ck_assert_int_eq(eg_npz_count(eg_npz_open(cx, in_folder("n.npz"))), 0);
    eg_assert_ok(cx);
}

/* -- damaged archives ------------------------------------------------------------------------- */
static uint8_t *read_golden(const char *name, long *n)
{
    return (uint8_t *)bytes_of(golden_path(name), n);
}
static void put(uint8_t *at, uint64_t value, int bytes)
{
    for (; bytes--; value >>= 8) *at++ = (uint8_t)value;
}
static uint64_t get(const uint8_t *at, int bytes)
{
    uint64_t v = 0;
    while (bytes--) v = v << 8 | at[bytes];
    return v;
}
/* Returns the entry of the directory for member k; member −1: the end record. */
static uint8_t *entry_of(uint8_t *zip, long n, int k)
{
    uint8_t *end = zip + n - 22, *at = zip + get(end + 16, 4);
    for (; k > 0; k--) at += 46 + get(at + 28, 2) + get(at + 30, 2) + get(at + 32, 2);
    return k < 0 ? end : at;
}

/* Changes a number of an entry. `at`: its offset in the entry, of `bytes` bytes. */
static const struct damage {
    const char *file, *says;
    int member, at, bytes;
    uint64_t value;
} damages[] = {
    { "deflated.npz", "cannot unpack from", 4, 24, 4, 0xfffffffe }, /* the size of a zip bomb */
    { "deflated.npz", "zeros.npy: has 1 byte after its array", 4, 24, 4, 40129 },
    { "deflated.npz", "zeros.npy: is cut short: it unpacks to fewer bytes than the 40128", 4, 20, 4,
      100 },
    { "deflated.npz", "zeros.npy: is cut short: shape (5000,) of <f8 needs 40000 bytes", 4, 24, 4,
      40127 },
    { "deflated.npz", "is damaged", 0, 16, 4, 1 },
    { "stored.npz", "is damaged: its checksum is", 0, 16, 4, 1 },
    { "stored.npz", "is stored, but has", 0, 24, 4, 1 << 30 },
    { "stored.npz", "is cut short: it has", 0, 20, 4, 1 << 30 },
    { "stored.npz", "has another header", 1, 42, 4, 0 },
    { "stored.npz", "is outside of the file", 1, 42, 4, 0x7fffffff },
    { "stored.npz", "'x.npy' is packed with method 12", 0, 10, 2, 12 },
    { "stored.npz", "'x.npy' is encrypted", 0, 8, 2, 1 },
    { "stored.npz", "has no entry of its directory", 0, 0, 4, 0 },
    { "stored.npz", "its directory is cut short", 0, 28, 2, 60000 },
    { "stored.npz", "the ZIP64 sizes of member 'x.npy' are damaged", 0, 20, 4, UINT32_MAX },
    { "stored.npz", "directory of 7 members", -1, 8, 4, 7 << 16 | 7 },
    { "stored.npz", "its directory goes on", -1, 8, 4, 2 << 16 | 2 },
    { "stored.npz", "several disks", -1, 4, 2, 1 },
    { "stored.npz", "does not fit into it", -1, 16, 4, 0x7fffffff },
};
LOOP_TEST(npz_damaged, sizeof damages / sizeof *damages)
{
    const struct damage *d = &damages[_i];
    long n;
    uint8_t *zip = read_golden(d->file, &n);
    if (strstr(d->says, "7 members")) put(entry_of(zip, n, -1) + 12, 300, 4);
    put(entry_of(zip, n, d->member) + d->at, d->value, d->bytes);
    const size_t before = eg_stats(cx).peak;
    ck_assert_ptr_null(eg_npz_read(cx, zip, (size_t)n));
    ck_assert_msg(eg_error(cx) && strstr(eg_error(cx), d->says), "%s", eg_error(cx));
    ck_assert_ptr_null(strchr(eg_error(cx), '\n'));
    eg_clear(cx);
    /* nothing of a claimed size was allocated */
    ck_assert_uint_lt(eg_stats(cx).peak - before, 1 << 20);
    free(zip);
}

/* Two entries of the directory with the same member, as in zip bombs. */
TEST(npz_members_overlap)
{
    long n;
    uint8_t *zip = read_golden("stored.npz", &n), *first = entry_of(zip, n, 0);
    const uint64_t length = get(first + 28, 2) + get(first + 30, 2) + 46,
                   begin = get(entry_of(zip, n, -1) + 16, 4);
    uint8_t *twice = malloc((size_t)n + length), *end;
    memcpy(twice, zip, begin);
    memcpy(twice + begin, first, length);
    memcpy(twice + begin + length, first, (size_t)n - begin);
    end = twice + (size_t)n + length - 22;
    put(end + 8, get(end + 8, 2) + 1, 2);
    put(end + 10, get(end + 10, 2) + 1, 2);
    put(end + 12, get(end + 12, 4) + length, 4);
    ck_assert_ptr_null(eg_npz_read(cx, twice, (size_t)n + length));
    eg_assert_error(cx, "npz: members 'x.npy' and 'x.npy' overlap");
    free(twice);
    free(zip);
}

/* Cut short at any byte, and any byte changed: an error, or complete arrays. */
LOOP_TEST(npz_cut_and_changed, 3)
{
    static const char *const files[] = { "stored.npz", "deflated.npz", "zip64.npz" };
    long n;
    uint8_t *zip = read_golden(files[_i], &n);
    for (long k = 0; k < n; k++) {
        ck_assert_ptr_null(eg_npz_read(cx, zip, (size_t)k));
        ck_assert_ptr_nonnull(eg_error(cx));
        eg_clear(cx);
    }
    for (long k = 0; k < n; k++)
        for (int bit = 0; bit < 8; bit += 3) {
            zip[k] ^= (uint8_t)(1 << bit);
            eg_mark m = eg_push(cx);
            eg_npz *z = eg_npz_read(cx, zip, (size_t)n);
            ck_assert(!z == !!eg_error(cx));
            for (int i = 0; i < eg_npz_count(z); i++) ck_assert(eg_ok(eg_npz_at(z, i)));
            eg_clear(cx);
            eg_pop(cx, m);
            zip[k] ^= (uint8_t)(1 << bit);
        }
    free(zip);
}

TEST(npz_names_twice)
{
    long n;
    uint8_t *zip = read_golden("stored.npz", &n);
    for (int k = 0; k < 2; k++) { /* x.npy and y.npy */
        uint8_t *entry = entry_of(zip, n, k), *local = zip + get(entry + 42, 4);
        memcpy(entry + 46, "z.npy", 5);
        memcpy(local + 30, "z.npy", 5);
    }
    ck_assert_ptr_null(eg_npz_read(cx, zip, (size_t)n));
    eg_assert_error(cx, "npz: two arrays have the name 'z'");
    ck_assert_ptr_null(eg_npz_open(cx, golden_path("f4.npy/absent.npz")));
    eg_assert_error(cx, "cannot be opened");
    ck_assert_ptr_null(eg_npz_open(cx, NULL));
    eg_assert_error(cx, "npz: the path is NULL");
    ck_assert_ptr_null(eg_npz_read(cx, NULL, 10));
    eg_assert_error(cx, "is not a .npz file");
    free(zip);
}

/* -- mapped files ----------------------------------------------------------------------------- */
/* Makes a file of `bytes` bytes with only a header, without disk blocks for the rest. */
static void sparse(const char *path, const void *header, size_t n, off_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, header, n), (ssize_t)n);
    ck_assert_int_eq(ftruncate(fd, bytes), 0);
    close(fd);
}
LOOP_TEST(ten_gigabytes_open_at_once, 2) /* .npy, safetensors */
{
    const int64_t count = (int64_t)10 << 28; /* of f32 */
    char head[256] = "\x93NUMPY\x01", dict[160], path[300];
    size_t n = 128;
    snprintf(path, sizeof path, "%s", in_folder("large"));
    if (_i) {
        snprintf(dict, sizeof dict,
                 "{\"x\":{\"dtype\":\"F32\",\"shape\":[%lld],\"data_offsets\":[0,%lld]}}",
                 (long long)count, (long long)count * 4);
        snprintf(head + 8, sizeof head - 8, "%-120s", dict);
        memset(head, 0, 8);
        head[0] = 120;
    } else {
        snprintf(dict, sizeof dict, "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld,), }",
                 (long long)count);
        snprintf(head + 10, sizeof head - 10, "%-117s\n", dict);
        head[8] = 118, head[9] = 0;
    }
    sparse(path, head, n, (off_t)n + count * 4);
    const size_t before = eg_stats(cx).bytes;
    eg_tensor *x = _i ? eg_safetensors_get(eg_safetensors_open(cx, path), "x") : eg_npz_at(NULL, 0);
    if (!_i) x = eg_npy_load(cx, path);
    eg_assert_ok(cx);
    ck_assert_int_eq(eg_size(x), count);
    ck_assert_uint_lt(eg_stats(cx).bytes - before, 1 << 20);
    /* it is a tensor like others: read, viewed, and written to, which does not change the file */
    eg_tensor *rows = eg_slice_axis(x, 0, count - 5, count, 1);
    SHOWS(rows, 0, 0, 0, 0, 0);
    ck_assert_int_eq(eg_fill(rows, 2), 0);
    SHOWS(eg_einsum("i, i -> ", rows, rows), 20);
    float last = 1;
    int fd = open(path, O_RDONLY);
    ck_assert_int_eq(pread(fd, &last, sizeof last, (off_t)n + count * 4 - 4), 4);
    ck_assert_float_eq(last, 0);
    close(fd);
}

/* A mapped tensor is that of the file that was opened, whatever file gets its path, as long as it
 * is used; with .copy nothing of the file is used. */
TEST(mapped_tensors_outlive_the_path)
{
    enum { SIZE = 1 << 19 };
    char path[300];
    snprintf(path, sizeof path, "%s", in_folder("x.npy"));
    DLManagedTensorVersioned *m;
    eg_mark mark = eg_push(cx);
    ck_assert_int_eq(eg_npy_save(path, eg_full(cx, 3, SIZE)), 0);
    eg_tensor *x = eg_npy_load(cx, path), *y = eg_npy_load(cx, path, .copy = true);
    ck_assert_int_eq(eg_npy_save(path, eg_full(cx, 4, SIZE)), 0);
    ck_assert_double_eq(eg_get(x, SIZE - 1), 3);
    ck_assert_double_eq(eg_get(eg_npy_load(cx, path), SIZE - 1), 4);
    m = eg_to_dlpack(x);
    eg_tensor *z = eg_npy_load(cx, path, .copy = true);
    ck_assert_int_eq(truncate(path, 100), 0); /* no effect on a file that was read */
    ck_assert_double_eq(eg_get(y, SIZE - 1), 3);
    ck_assert_double_eq(eg_get(z, SIZE - 1), 4);
    eg_assert_ok(cx);
    eg_pop(cx, mark);
    ck_assert_float_eq(((const float *)m->dl_tensor.data)[SIZE - 1], 3);
    m->deleter(m);
}

/* Data that are not stored as in a tensor are read, mapped or not: of other widths, orders,
 * bools. */
TEST(mapped_files_of_other_types)
{
    enum { SIZE = 1 << 19 };
    eg_tensor *x = eg_reshape(eg_arange(cx, EG_F64, 0, SIZE, 1), SIZE / 2, 2),
              *xs[] = { eg_cast(eg_shift(x, -5), EG_BOOL), x };
    const char *names[] = { "mask", "x" };
    char path[300];
    snprintf(path, sizeof path, "%s", in_folder("m.safetensors"));
    ck_assert_int_eq(eg_safetensors_save(cx, path, 2, names, xs, NULL), 0);
    eg_safetensors *st = eg_safetensors_open(cx, path);
    eg_assert_ok(cx);
    ck_assert_double_eq(eg_get(eg_safetensors_get(st, "x"), SIZE / 2 - 1, 1), SIZE - 1);
    ck_assert_double_eq(eg_get(eg_safetensors_get(st, "mask"), 2, 1), 0);
    ck_assert_double_eq(eg_get(eg_safetensors_get(st, "mask"), 2, 0), 1);
    eg_safetensors_close(st);
    /* a header of odd length: the elements are not aligned, and are read */
    FILE *in = fopen(path, "rb"), *out = fopen(in_folder("odd.safetensors"), "wb");
    uint8_t start[8];
    ck_assert_uint_eq(fread(start, 1, 8, in), 8);
    put(start, get(start, 8) + 1, 8);
    fwrite(start, 1, 8, out);
    fputc(' ', out);
    for (int c; (c = fgetc(in)) != EOF;) fputc(c, out);
    fclose(in);
    fclose(out);
    st = eg_safetensors_open(cx, in_folder("odd.safetensors"));
    eg_assert_ok(cx);
    ck_assert_double_eq(eg_get(eg_safetensors_get(st, "x"), SIZE / 2 - 1, 1), SIZE - 1);
}
