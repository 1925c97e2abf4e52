/* fixtures.h: functions that tests of several files share. */
#ifndef FIXTURES_H
#define FIXTURES_H
#include "asserts.h"
#include <eingrad.h>
#include <eingrad/ranks.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns the path of a file of this repository; valid until the next call. EG_SRCDIR is its top
 * folder (default: the current folder). */
static inline const char *source_path(const char *name)
{
    static char path[4096];
    const char *top = getenv("EG_SRCDIR");
    snprintf(path, sizeof path, "%s/%s", top ? top : ".", name);
    return path;
}
/* Returns the path of a file of tests/data; valid until the next call. */
static inline const char *golden_path(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "tests/data/%s", name);
    return source_path(path);
}

/* Returns the bytes of a file of less than a megabyte; the caller frees them. */
static inline char *bytes_of(const char *path, long *size)
{
    static const long room = 1 << 20;
    FILE *f = fopen(path, "rb");
    char *bytes = malloc((size_t)room);
    ck_assert_msg(f != NULL, "%s cannot be opened", path);
    *size = (long)fread(bytes, 1, (size_t)room, f);
    ck_assert(*size > 0 && *size < room);
    fclose(f);
    return bytes;
}

/* Overwrites the block and the leaves in a checkpoint's metadata by blanks: those of versions
 * without blocks lack these numbers. */
static inline void without_blocks(const char *path)
{
    static const char *const key[] = { "\"block\":\"", "\"leaves\":\"" };
    long n;
    char *bytes = bytes_of(path, &n);
    for (int k = 0; k < 2; k++) {
        char *at = memmem(bytes, (size_t)n, key[k], strlen(key[k]));
        ck_assert(at != NULL);
        memset(at, ' ', (size_t)(strchr(at, ',') + 1 - at));
    }
    FILE *f = fopen(path, "wb");
    fwrite(bytes, 1, (size_t)n, f);
    fclose(f), free(bytes);
}

/* The shape of an operation whose result has the type and sizes of its first operand. */
static inline bool like_first(eg_tensor *y)
{
    eg_tensor *x = eg_operand(y, 0);
    return eg_result(y, eg_type(x), eg_rank(x), eg_dims(x));
}
/* y = f(x), element by element in f64 and without a history, for operations with a rule of their
 * own. False after an error. */
static inline bool map_values(eg_tensor *y, eg_tensor *x, double (*f)(double))
{
    eg_tensor *of = eg_cast(eg_contiguous(eg_detach(x)), EG_F64);
    const double *v = eg_f64(of);
    eg_tensor *result = v ? eg_zeros_like(of) : NULL;
    double *to = result ? eg_mut_f64(result) : NULL;
    for (int64_t k = 0; to && k < eg_size(x); k++) to[k] = f(v[k]);
    return to && eg_assign(y, eg_cast(result, eg_type(y))) == 0;
}

/* An allocator that succeeds `*user` times (an int) and then fails: eg_open(.realloc = failing,
 * .user = &left). */
static inline void *failing(void *user, void *p, size_t old_size, size_t new_size)
{
    int *left = user;
    (void)old_size;
    if (!new_size) free(p);
    return new_size && (*left)-- > 0 ? realloc(p, new_size) : NULL;
}

/* Lets memory run out at each of the first `each` allocations of life(), then at some later ones,
 * until life() reaches its end: it must then be true, and must be false with an error before. It
 * may write to the file. */
static inline void memory_ends_in_turn(bool (*life)(eg_ctx *, const char *path), int each)
{
    char path[] = "/tmp/eg_oom_XXXXXX";
    close(mkstemp(path));
    int n = 0;
    for (bool good = false; !good; n += n < each ? 1 : n / 10) {
        int left = n;
        eg_ctx *cx = eg_open(.threads = 1, .realloc = failing, .user = &left);
        good = cx && life(cx, path);
        ck_assert_msg(!cx || good == !eg_error(cx), "allocation %d: %s", n, eg_error(cx));
        if (cx && !good)
            ck_assert_msg(strstr(eg_error(cx), "out of memory") != NULL, "allocation %d: %s", n,
                          eg_error(cx));
        eg_close(cx);
    }
    ck_assert_int_gt(n, 5);
    unlink(path);
}

/* Element k is k. f64. */
static inline eg_tensor *ramp_n(eg_ctx *cx, int rank, const int64_t *dims)
{
    eg_tensor *x = eg_full_n(cx, EG_F64, 0, rank, dims);
    double *p = eg_mut_f64(x);
    for (int64_t k = 0; p && k < eg_size(x); k++) p[k] = (double)k;
    return x;
}
#define RAMP(cx, ...) ramp_n((cx), EG_DIMS_(__VA_ARGS__))

/* Asserts the elements of x, of any dtype, in row-major order; NaN equals NaN. */
#define SHOWS(x, ...)                                                                       \
    do {                                                                                    \
        const double want_[] = { __VA_ARGS__ }, *have_ = eg_f64(eg_cast((x), EG_F64));      \
        ck_assert_msg(have_ != NULL, "%s", eg_error(eg_context(x)));                        \
        ck_assert_int_eq(eg_size(x), (int64_t)(sizeof want_ / sizeof *want_));              \
        for (int64_t k_ = 0; k_ < eg_size(x); k_++)                                         \
            ck_assert_msg(have_[k_] == want_[k_] || (isnan(have_[k_]) && isnan(want_[k_])), \
                          "%s: entry %d is %g, not %g", #x, (int)k_, have_[k_], want_[k_]); \
    } while (0)

/* Element k is 2 sin(0.7 k + s): the operands of tests/reference. f64. */
static inline eg_tensor *wave_n(eg_ctx *cx, double s, int rank, const int64_t *dims)
{
    eg_tensor *x = eg_full_n(cx, EG_F64, 0, rank, dims);
    double *p = eg_mut_f64(x);
    for (int64_t k = 0; p && k < eg_size(x); k++) p[k] = 2 * sin(0.7 * (double)k + s);
    return x;
}
#define wave(cx, s, ...) wave_n((cx), (s), EG_DIMS_(__VA_ARGS__))

/* Draws every parameter from a normal distribution, biases and gains too. */
static inline void randomise(eg_params *p, double deviation)
{
    for (int k = 0; eg_params_at(p, k); k++) eg_init_normal(eg_params_at(p, k)->x, deviation);
}

/* bytes of an element */
static inline size_t width_of(const eg_tensor *x)
{
    static const size_t width[] = {
        [EG_F32] = 4,   [EG_F64] = 8, [EG_I32] = 4,  [EG_I64] = 8, [EG_BOOL] = 1,
        [EG_C128] = 16, [EG_F16] = 2, [EG_BF16] = 2, [EG_I8] = 1,  [EG_U8] = 1
    };
    return width[eg_type(x)];
}
/* True if both have the same dtype, sizes and bits. */
static inline bool same_bits(eg_tensor *a, eg_tensor *b)
{
    if (!eg_ok(a) || !eg_ok(b) || eg_type(a) != eg_type(b) || eg_rank(a) != eg_rank(b) ||
        memcmp(eg_dims(a), eg_dims(b), (size_t)eg_rank(a) * sizeof(int64_t)))
        return false;
    return !memcmp(eg_raw(eg_contiguous(a), NULL), eg_raw(eg_contiguous(b), NULL),
                   (size_t)eg_size(a) * width_of(a));
}
/* Returns the elements of x as every second one of a row-major tensor: none is next to another. */
static inline eg_tensor *strided_by_two(eg_tensor *x)
{
    const int r = eg_rank(x);
    return eg_select_axis(eg_pad_axis(eg_unsqueeze(x, r), r, 0, 1, 0), r, 0);
}
static inline uint64_t hash_tensor(uint64_t h, eg_tensor *x)
{
    const void *bytes = eg_raw(x, NULL); /* of a row-major tensor */
    ck_assert(bytes != NULL);
    return eg_hash(h, bytes, (size_t)eg_size(x) * width_of(x));
}

static inline uint64_t hash_params(uint64_t h, const eg_params *p)
{
    for (int k = 0; k < eg_params_count(p); k++) h = hash_tensor(h, eg_params_at(p, k)->x);
    return h;
}
static inline uint64_t hash_states(uint64_t h, eg_opt *op) /* of an optimiser that is not sharded */
{
    for (int k = 0; eg_opt_state(op, k); k++) h = hash_tensor(h, eg_opt_state(op, k)->x);
    return h;
}

enum { MESSAGE_SIZE = 256 };
/* Ends the body of a simulated rank: its context's error, if it has one, is copied to `message`
 * (MESSAGE_SIZE bytes). Returns 0. */
static inline int end_rank(char *message, eg_ctx *cx, eg_ranks *r)
{
    if (eg_error(cx)) snprintf(message, MESSAGE_SIZE, "%s", eg_error(cx));
    eg_ranks_close(r);
    eg_close(cx);
    return 0;
}

static inline bool same_number(double a, double b) { return a == b || (isnan(a) && isnan(b)); }
static inline bool any_nan(eg_tensor *x) { return eg_item(eg_sum(NULL, eg_isnan(x))) > 0; }
static inline double largest_difference(eg_tensor *a, eg_tensor *b)
{
    return eg_item(eg_max(NULL, eg_abs(eg_sub(a, b))));
}
#endif
