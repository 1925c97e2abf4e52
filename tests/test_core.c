/* test_core.c: contexts: lifetimes of tensors, errors, memory, threads. */
#if HAVE_CONFIG_H
#include <config.h> /* EG_DEBUG_ALLOC */
#endif
#include <eingrad/check.h>
#include <eingrad/io.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <eingrad/nn.h>
#include <eingrad/train.h>
#include "fixtures.h"
#include "gradcheck/gradcheck.h"
#include "tests.h"

GROUP("context")

TEST(error_is_sticky_and_the_first_wins)
{
    eg_ctx *cx = eg_open();
    ck_assert_ptr_null(eg_error(cx));
    eg_tensor *a = eg_ones(cx, 2, 3), *b = eg_ones(cx, 4, 5);
    eg_tensor *y = eg_exp(eg_neg(eg_add(a, b)));
    ck_assert_ptr_nonnull(y);
    ck_assert(!eg_ok(y));
    char *first = strdup(eg_error(cx));
    ck_assert_ptr_nonnull(strstr(first, "add"));
    eg_mul(a, eg_ones(cx, 7));
    ck_assert_str_eq(eg_error(cx), first);
    eg_clear(cx);
    ck_assert(eg_ok(eg_add(a, a)));
    eg_exp(y); /* a poison tensor stays poison after eg_clear */
    eg_assert_error(cx, "failed");
    free(first);
    eg_close(cx);
}

/* If no operand has a context, the thread keeps the message: the first since it was cleared, as in
 * a context. */
static void *in_a_thread_of_its_own(void *message)
{
    eg_clear(NULL);
    eg_concat_axis_n(0, 0, NULL);
    snprintf(message, 128, "%s", eg_error(NULL));
    return NULL;
}
TEST(failures_without_a_context_have_their_sentence)
{
    eg_tensor *none[2] = { NULL, NULL }, *d[2];
    eg_clear(NULL);
    ck_assert_str_eq(eg_error(NULL), "there is no context: a NULL was given for it");
#define SAYS(call, text)                                                                    \
    do {                                                                                    \
        eg_clear(NULL);                                                                     \
        (void)(call);                                                                       \
        ck_assert_msg(!strcmp(eg_error(NULL), text), "%s says: %s", #call, eg_error(NULL)); \
    } while (0)
    SAYS(eg_einsum_n("", 0, NULL), "einsum: there is no tensor to work on: 0 operands");
    SAYS(eg_einsum_n("i,i", 2, none),
         "einsum: there is no tensor to work on: operands are all NULL");
    SAYS(eg_einsum_n("i,i", 2, NULL), "einsum: there is no tensor to work on: 2 operands at NULL");
    SAYS(eg_concat_axis_n(0, 0, NULL), "concat: there is no tensor to work on: 0 operands");
    SAYS(eg_stack_axis_n(0, 0, none), "stack: there is no tensor to work on: 0 operands");
    SAYS(eg_exp(NULL), "exp: there is no tensor to work on: operand 1 is NULL");
    SAYS(eg_scale(NULL, 2), "scale: there is no tensor to work on: operand 1 is NULL");
    SAYS(eg_add(NULL, NULL), "add: there is no tensor to work on: operands are all NULL");
    SAYS(eg_sum("[i]", NULL), "sum: there is no tensor to work on: operand 1 is NULL");
    SAYS(eg_softmax("[i]", NULL), "softmax: there is no tensor to work on: operand 1 is NULL");
    SAYS(eg_slice_axis(NULL, 0, 0, 1, 1),
         "slice: there is no tensor to work on: operand 1 is NULL");
    SAYS(eg_rearrange("i j -> j i", NULL),
         "rearrange: there is no tensor to work on: operand 1 is NULL");
    SAYS(eg_at("[v], i -> i", NULL, NULL),
         "at: there is no tensor to work on: operands are all NULL");
    SAYS(eg_cross_entropy("[v]", NULL, NULL),
         "cross_entropy: there is no tensor to work on: operands are all NULL");
    SAYS(eg_attention("id,jd,je->ie", NULL, NULL, NULL),
         "attention: there is no tensor to work on: operands are all NULL");
    SAYS(eg_grad(NULL, NULL, 2, none, d),
         "grad: there is no tensor to work on: operands are all NULL");
    SAYS(eg_jvp(NULL, 0, NULL, NULL), "jvp: there is no tensor to work on: 0 operands");
    SAYS(eg_fail(NULL, "mine: %d", 3), "mine: 3");
    SAYS(eg_open(.threads = -1), "open: .threads is -1");
    SAYS(eg_open(.dtype = EG_I32), "open: .dtype is i32, not f32 or f64");
    SAYS(eg_open(.realloc = failing, .user = &(int){ 0 }), "out of memory: no room for a context");
    eg_clear(NULL);
    eg_exp(NULL);
    eg_einsum_n("", 0, NULL);
    ck_assert_str_eq(eg_error(NULL), "exp: there is no tensor to work on: operand 1 is NULL");
    char message[128];
    pthread_t other;
    ck_assert_int_eq(pthread_create(&other, NULL, in_a_thread_of_its_own, message), 0);
    ck_assert_int_eq(pthread_join(other, NULL), 0);
    ck_assert_str_eq(message, "concat: there is no tensor to work on: 0 operands");
    ck_assert_str_eq(eg_error(NULL), "exp: there is no tensor to work on: operand 1 is NULL");
    eg_ctx *cx = eg_open();
    ck_assert_str_eq(eg_error(NULL), "there is no context: a NULL was given for it");
    eg_assert_ok(cx);
    eg_close(cx);
}

/* Functions that call others name themselves. */
TEST(refusals_name_the_function_that_was_called)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_tensor *z = eg_cast(eg_ones(cx, 2, 3), EG_C128), *x = eg_ones(cx, 2, 3);
    eg_params *p = eg_params_open(cx);
    eg_tensor *w = eg_param(p, "W", "i j", 2, 3);
    eg_owner *o = eg_owner_open(cx);
#if !EG_DEBUG_ALLOC /* a dead tensor is memory that was freed */
    eg_mark m = eg_push(cx);
    eg_tensor *gone = eg_normal(cx, 0, 1, 2, 3);
    eg_pop(cx, m);
    eg_contiguous(gone);
    eg_assert_error(cx, "contiguous: operand 1 was used after");
    eg_init_constant(gone, 1);
    eg_assert_error(cx, "init_constant: w is NULL, failed or gone");
    eg_step_by(eg_adam(p), &gone);
    eg_assert_error(cx, "adam: the gradient of \"W\" failed, or its scope was popped");
#endif
    eg_assert_ok(cx);
    eg_any(NULL, z);
    eg_assert_error(cx, "any: cast: c128 to bool");
    eg_all(NULL, z);
    eg_assert_error(cx, "all: cast: c128 to bool");
    eg_owner_copies(o, eg_copies_open(o, 2, NULL), 99, 0, NULL);
    eg_assert_error(cx, "owner_copies: 99 is not a dtype");
    eg_init_normal(w, -1);
    eg_assert_error(cx, "init_normal: normal: mean 0 and deviation -1");
    eg_linear_attention("id,jd,je->ie", x, eg_scalar(cx, 1), x);
    eg_assert_error(cx, "linear_attention: einsum: operand 2 has rank 0");
    eg_heatmap_print(stdout, z);
    eg_assert_error(cx, "heatmap: operand 1 is (2, 3), but it is c128");
    eg_trainer_self_attention_weights(NULL, NULL, NULL);
    ck_assert_str_eq(eg_error(NULL), "trainer_self_attention_weights: the trainer is NULL");
    eg_clear(NULL);
    eg_close(cx);
}

TEST(a_failure_has_a_code)
{
    eg_ctx *cx = eg_open();
    ck_assert_int_eq(eg_error_code(cx), EG_ERROR_NONE);
    eg_tensor *x = eg_zeros(cx, 2, 3), *n = eg_cast(x, EG_I64);
    static const struct {
        eg_code code;
        const char *what;
    } kinds[] = {
        { EG_ERROR_SHAPE, "reshape" }, { EG_ERROR_INDEX, "select" },
        { EG_ERROR_DTYPE, "add" },     { EG_ERROR_NOTATION, "einsum" },
        { EG_ERROR_FILE, "load" },     { EG_ERROR_MISUSE, "threads" },
        { EG_ERROR_USER, "fail" },
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        switch (kinds[k].code) {
        case EG_ERROR_SHAPE: eg_reshape(x, 7); break;
        case EG_ERROR_INDEX: eg_get(x, 2, 0); break;
        case EG_ERROR_DTYPE: eg_einsum("ij,ij->", x, n); break;
        case EG_ERROR_NOTATION: eg_einsum("ij->ik", x); break;
        case EG_ERROR_FILE: eg_npy_load(cx, "/nowhere/x.npy"); break;
        case EG_ERROR_MISUSE: eg_threads(cx, -1); break;
        default: eg_fail(cx, "a row of one's own");
        }
        ck_assert_msg(eg_error_code(cx) == kinds[k].code, "%s: code %d: %s", kinds[k].what,
                      eg_error_code(cx), eg_error(cx));
        /* the first error is kept, and its code, too */
        eg_fail_as(cx, EG_ERROR_MEMORY, "a later one");
        ck_assert_int_eq(eg_error_code(cx), kinds[k].code);
        eg_clear(cx);
    }
    eg_close(cx);
    eg_clear(NULL);
    ck_assert_int_eq(eg_error_code(NULL), EG_ERROR_MISUSE);
    eg_open(.dtype = EG_I32);
    ck_assert_int_eq(eg_error_code(NULL), EG_ERROR_DTYPE);
    eg_clear(NULL);
}

/* a path or a name may have an end of line; only messages about a string have several lines */
TEST(the_message_of_a_file_has_one_line)
{
    eg_ctx *cx = eg_open();
    ck_assert_ptr_null(eg_data_pairs(cx, "no\nfile"));
    ck_assert_str_eq(eg_error(cx), "no?file: No such file or directory");
    eg_fail_in(cx, "model \"%s\"", "a\nb");
    ck_assert_str_eq(eg_error(cx), "model \"a?b\": no?file: No such file or directory");
    eg_clear(cx);
    eg_fail(cx, "one\ntwo");
    ck_assert_str_eq(eg_error(cx), "one\ntwo");
    eg_close(cx);
}

/* the name of a module, a path or a string may have any length */
TEST(a_long_message_keeps_its_beginning_and_its_end)
{
    eg_ctx *cx = eg_open();
    char name[4000] = "", end[80];
    for (int n = 990; n < 1040; n++) { /* … cut at every byte of a character of 3 bytes */
        memset(name, 'n', (size_t)n);
        for (int k = n; k + 3 < (int)sizeof name; k += 3) memcpy(name + k, "→", 4);
        eg_fail(cx, "first \"%s\": the reason", name);
        eg_fail_in(cx, "second \"%s\"", name);
        const char *says = eg_error(cx);
        const size_t length = strlen(says);
        ck_assert(length > 1000 && length < 1024);
        ck_assert(!strncmp(says, "second \"nnn", 11));
        memcpy(end, says + length - 16, 17);
        ck_assert_str_eq(end, "→\": the reason");
        for (const char *s = says; *s;) {
            uint32_t code;
            const int bytes = eg_utf8(s, strlen(s), &code);
            ck_assert_msg(bytes > 0, "%d: byte %d", n, (int)(s - says));
            s += bytes;
        }
        eg_clear(cx);
        eg_clear(NULL);
        eg_fail(NULL, "first \"%s\": the reason", name);
        ck_assert_ptr_nonnull(strstr(eg_error(NULL), "→\": the reason"));
        eg_clear(NULL);
    }
    eg_params *p = eg_params_open(cx);
    eg_linear_new(p, name, .in = -1, .out = 2);
    eg_assert_error(cx, "\": in must be positive, not -1");
    eg_data_pairs(cx, name);
    eg_assert_error(cx, "→: File name too long");
    eg_close(cx);
}

/* A user's module reads its options as the library does. */
TEST(options_that_are_not_given_keep_their_defaults)
{
    typedef struct options {
        size_t size;
        int width;
        double rate;
    } options;
    const options defaults = { sizeof defaults, 7, 8 };
    options own = defaults, given = { offsetof(options, rate), 1, 2 };
    eg_options(&own, sizeof own, &given); /* from a caller whose struct ended before `rate` */
    ck_assert(own.width == 1 && own.rate == 8);
    eg_options(&own, sizeof own, NULL);
    ck_assert(own.width == 1 && own.rate == 8);
    char newer[2 * sizeof own];
    memset(newer, 0x55, sizeof newer);
    given.size = sizeof newer;
    memcpy(newer, &given, sizeof given);
    struct {
        options own;
        char behind;
    } guarded = { defaults, 'x' };
    eg_options(&guarded.own, sizeof guarded.own, newer);
    ck_assert(guarded.own.width == 1 && guarded.own.rate == 2 && guarded.behind == 'x');
    ck_assert_uint_eq(guarded.own.size, sizeof own);
    own = defaults, given.size = 0; /* the whole struct */
    eg_options(&own, sizeof own, &given);
    ck_assert(own.width == 1 && own.rate == 2 && own.size == sizeof own);
    eg_ctx *cx = eg_open_with(&(eg_open_args){ .dtype = EG_F64 });
    ck_assert_int_eq(eg_default_type(cx), EG_F64);
    eg_close(cx);

    ck_assert(eg_option(0, 3) == 3 && eg_option(EG_OFF, 3) == 0 && eg_option(-5, 3) == -5);
    ck_assert(eg_option(NAN, 3) != eg_option(NAN, 3));
}

TEST(the_default_type_can_be_set)
{
    eg_ctx *cx = eg_open();
    ck_assert_int_eq(eg_set_default_type(cx, EG_F64), EG_F32);
    ck_assert_int_eq(eg_type(eg_zeros(cx, 2)), EG_F64);
    ck_assert_int_eq(eg_set_default_type(cx, EG_I32), EG_F64);
    eg_assert_error(cx, "set_default_type: the dtype is i32, not f32 or f64");
    ck_assert_int_eq(eg_default_type(cx), EG_F64);
    ck_assert_int_eq(eg_set_default_type(NULL, EG_F64), EG_F32);
    eg_close(cx);
}

TEST(operations_on_null_return_null_and_record_an_error)
{
    eg_clear(NULL);
    ck_assert_ptr_null(eg_exp(NULL));
    ck_assert_ptr_null(eg_add(NULL, NULL));
    ck_assert_ptr_null(eg_einsum("ij,jk->ik", NULL, NULL));
    ck_assert_ptr_null(eg_zeros(NULL, 2, 3));
    ck_assert_str_eq(eg_error(NULL), "exp: there is no tensor to work on: operand 1 is NULL");
    ck_assert(isnan(eg_item(NULL)));
    eg_close(NULL);
    eg_owner_close(NULL);
    eg_pop(NULL, eg_push(NULL));
    eg_ctx *cx = eg_open();
    ck_assert(!eg_ok(eg_add(eg_ones(cx, 2), NULL)));
    eg_assert_error(cx, "operand 2 is NULL");
    eg_close(cx);
}

TEST(contexts_do_not_mix)
{
    eg_ctx *one = eg_open(), *two = eg_open();
    eg_add(eg_ones(one, 2), eg_ones(two, 2));
    eg_assert_error(one, "another context");
    eg_close(one);
    eg_close(two);
}

TEST(open_refuses_bad_options)
{
    ck_assert_ptr_null(eg_open(.dtype = EG_I64));
    ck_assert_ptr_null(eg_open(.threads = -1));
    eg_ctx *cx = eg_open(.dtype = EG_F64, .threads = 1, .seed = 7);
    ck_assert_int_eq(eg_type(eg_ones(cx, 1)), EG_F64);
    ck_assert_int_eq(eg_threads(cx, 0), 1);
    eg_close(cx);
}

TEST(scopes_free_tensors_and_keep_copies_outward)
{
    eg_ctx *cx = eg_open();
    eg_mark outer = eg_push(cx);
    eg_mark inner = eg_push(cx);
    eg_tensor *y = eg_keep(eg_full(cx, 3, 2, 2));
    eg_pop(cx, inner);
    ck_assert_double_eq(eg_get(y, 1, 1), 3);
    eg_pop(cx, outer);
    ck_assert_uint_eq(eg_stats(cx).used, 0);
    eg_pop(cx, inner);
    eg_assert_error(cx, "pop");
    eg_mark left = eg_push(cx);
    eg_push(cx);
    eg_ones(cx, 1000);
    eg_pop(cx, left); /* also ends the inner scope */
    ck_assert_uint_eq(eg_stats(cx).used, 0);
    eg_close(cx);
}

#if !EG_DEBUG_ALLOC /* with a malloc for each tensor the sanitizer reports this */
TEST(use_after_pop_is_named)
{
    eg_ctx *cx = eg_open();
    eg_mark m = eg_push(cx);
    eg_tensor *x = eg_ones(cx, 3);
    eg_pop(cx, m);
    ck_assert(!eg_ok(eg_exp(x)));
    eg_assert_error(cx, "exp: operand 1 was used after the scope that held it was popped");
    eg_close(cx);
}

TEST(use_after_pop_is_named_when_others_came_since)
{
    eg_ctx *cx = eg_open();
    for (int between = 0; between < 2000; between = 2 * between + 1) {
        eg_mark m = eg_push(cx);
        eg_tensor *old = eg_ones(cx, 3);
        eg_pop(cx, m);
        m = eg_push(cx);
        for (int k = 0; k < between; k++) {
            eg_tensor *x = eg_full(cx, 2, 3);
            ck_assert_ptr_ne(x, old);
            if (k & 1) {
                eg_pop(cx, m);
                m = eg_push(cx);
            }
        }
        ck_assert(!eg_ok(eg_neg(old)));
        eg_assert_error(cx, "neg: operand 1 was used after the scope that held it was popped");
        eg_pop(cx, m);
    }
    eg_close(cx);
}

TEST(headers_are_reused_in_bounded_memory)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 3);
    uint64_t warm = 0;
    for (int k = 0; k < 20000; k++) {
        eg_mark m = eg_push(cx);
        for (int n = 0; n < 40; n++) eg_neg(x);
        eg_pop(cx, m);
        if (k == 200) warm = eg_stats(cx).mallocs;
    }
    ck_assert_uint_eq(eg_stats(cx).mallocs, warm);
    ck_assert_uint_lt(eg_stats(cx).peak, 2 << 20);
    eg_close(cx);
}

TEST(an_operand_whose_header_was_reused_is_refused)
{
    eg_ctx *cx = eg_open();
    eg_tensor *x = eg_ones(cx, 3), *dx;
    eg_owner *o = eg_owner_open(cx);
    eg_tensor *w = eg_owner_tensor(o, EG_DEFAULT, 1, (int64_t[]){ 3 });
    eg_tensor *y = eg_sum(NULL, eg_add(w, x));
    eg_owner_close(o);
    ck_assert_int_eq(eg_grad(y, NULL, 1, &x, &dx), -1);
    eg_assert_error(cx, "grad: operand 1 of add");
    bool taken = false;
    for (int k = 0; k < 20000 && !taken; k++) { /* as the first header of another owner */
        o = eg_owner_open(cx);
        taken = eg_keep_in(o, x) == w;
        if (!taken) eg_owner_close(o);
    }
    ck_assert(taken); /* w is another tensor now, and alive */
    ck_assert_int_eq(eg_grad(y, NULL, 1, &x, &dx), -1);
    eg_assert_error(cx, "grad: operand 1 of add");
    ck_assert_int_eq(eg_path_to(y, x, NULL), EG_NO_PATH);
    eg_assert_error(cx, "path_to: operand 1 of add");
    ck_assert_int_eq(eg_graph_print(stdout, y), -1);
    eg_assert_error(cx, "graph_print: operand 1 of add");
    eg_close(cx);
}
#endif

#if !EG_DEBUG_ALLOC /* otherwise the memory of an owner is freed when it ends */
TEST(an_owner_that_is_closed_is_refused)
{
    eg_ctx *cx = eg_open();
    for (int popped = 0; popped < 2; popped++) {
        const eg_mark m = eg_push(cx);
        eg_owner *o = eg_owner_open(cx), *p = eg_owner_open(cx);
        eg_owner_close(popped ? p : o);
        if (popped) eg_pop(cx, m);
        eg_owner_close(o);
        eg_assert_error(cx, "owner: it was closed before, by eg_owner_close or with its scope");
        ck_assert_ptr_null(eg_owner_open_in(o));
        eg_assert_error(cx, "owner: it was closed before");
        ck_assert_ptr_null(eg_owner_alloc(o, 8));
        eg_assert_error(cx, "owner: it was closed before");
        if (!popped) eg_pop(cx, m);
    }
    eg_close(cx);
}
#endif
TEST(tensors_of_an_owner_outlive_the_scope)
{
    eg_ctx *cx = eg_open();
    eg_owner *o = eg_owner_open(cx);
    eg_mark m = eg_push(cx);
    eg_tensor *w = eg_owner_tensor(o, EG_DEFAULT, 2, (int64_t[]){ 3, 4 });
    eg_pop(cx, m);
    ck_assert(eg_ok(eg_exp(w)));
    m = eg_push(cx);
    eg_owner *p = eg_owner_open(cx), *q = eg_owner_open(cx);
    ck_assert_ptr_nonnull(eg_owner_alloc(p, 100));
    ck_assert_ptr_nonnull(eg_owner_alloc(q, 100000));
    eg_owner_close(p);
    eg_pop(cx, m); /* closes q */
    eg_owner_close(o);
    eg_close(cx);
}

/* An allocator that counts, and can refuse. */
typedef struct meter {
    long calls, left;
    size_t held;
} meter;
static void *metered(void *user, void *p, size_t old_size, size_t new_size)
{
    meter *m = user;
    m->held -= p ? old_size : 0;
    if (!new_size) {
        free(p);
        return NULL;
    }
    m->calls++;
    if (m->left == 0) {
        m->held += p ? old_size : 0;
        return NULL;
    }
    if (m->left > 0) m->left--;
    m->held += new_size;
    return realloc(p, new_size);
}

static double step(eg_ctx *cx, eg_tensor *w, int rows)
{
    eg_mark m = eg_push(cx);
    eg_tensor *x = eg_normal(cx, 0, 1, rows, 8), *dw;
    eg_tensor *h = eg_tanh(eg_einsum("bi,ij->bj", x, w));
    eg_tensor *s = eg_softmax("b [j]", h);
    eg_tensor *loss = eg_mean(NULL, eg_square(eg_layernorm("b [j]", eg_add(h, s))));
    eg_grad(loss, NULL, 1, &w, &dw);
    double l = eg_item(loss) + eg_item(eg_sum(NULL, dw));
    eg_pop(cx, m);
    return l;
}

#if !EG_DEBUG_ALLOC
TEST(warm_step_calls_no_allocator)
{
    meter m = { .left = -1 };
    eg_ctx *cx = eg_open(.realloc = metered, .user = &m);
    eg_tensor *w = eg_normal(cx, 0, 1, 8, 8);
    /* the second thread is made when the loops that it could have shared add up */
    for (int k = 0; k < 20; k++) step(cx, w, 500);
    long warm = m.calls;
    for (int k = 0; k < 20; k++) step(cx, w, 500);
    eg_assert_ok(cx);
    ck_assert_int_eq(m.calls, warm);
    ck_assert_uint_eq(eg_stats(cx).bytes, m.held);
    eg_close(cx);
    ck_assert_uint_eq(m.held, 0);
}
#endif

TEST(every_allocation_may_fail)
{
    for (long n = 0;; n++) {
        meter m = { .left = n };
        eg_ctx *cx = eg_open(.realloc = metered, .user = &m);
        if (!cx) {
            ck_assert_uint_eq(m.held, 0);
            continue;
        }
        eg_tensor *w = eg_normal(cx, 0, 1, 8, 8);
        step(cx, w, 60);
        bool done = !eg_error(cx);
        if (!done)
            ck_assert_msg(strstr(eg_error(cx), "out of memory") != NULL,
                          "after %ld allocations: %s", n, eg_error(cx));
        eg_close(cx);
        ck_assert_uint_eq(m.held, 0);
        if (done) {
            ck_assert_int_gt(n, 2);
            break;
        }
    }
}

/* Refuses blocks of more than a megabyte. */
static void *no_large_block(void *user, void *p, size_t old_size, size_t new_size)
{
    (void)user, (void)old_size;
    if (new_size) return new_size > 1 << 20 ? NULL : realloc(p, new_size);
    free(p);
    return NULL;
}
TEST(an_allocation_that_fails_names_the_operation)
{
    eg_ctx *cx = eg_open(.realloc = no_large_block, .threads = 1);
    const int64_t n = 1 << 20;
    static const float zero;
    const int64_t none[2] = { 0 };
    eg_tensor *x = eg_from_memory(cx, EG_F32, &zero, 1, &n, .strides = none);
#define NAMED(text, call)                              \
    do {                                               \
        (void)(call);                                  \
        eg_assert_error(cx, text ": out of memory: "); \
    } while (0)
    NAMED("zeros", eg_zeros(cx, n));
    NAMED("full", eg_full(cx, 7, n));
    NAMED("from", eg_from_n(cx, EG_F32, &zero, 1, &n));
    NAMED("uniform", eg_uniform(cx, 0, 1, n));
    NAMED("normal", eg_normal(cx, 0, 1, n));
    NAMED("randint", eg_randint(cx, 0, 9, n));
    NAMED("arange", eg_arange(cx, EG_F32, 0, (double)n, 1));
    NAMED("zeros_like", eg_zeros_like(x));
    NAMED("complex", eg_complex(x, x));
    NAMED("keep", eg_keep(x));
    NAMED("keep_in", eg_keep_in(eg_owner_open(cx), x));
    NAMED("f32", eg_f32(x));
    eg_tensor *v = eg_from_memory(cx, EG_F32, &zero, 2, (int64_t[]){ n, 1 }, .strides = none);
    NAMED("einsum", eg_einsum("ij,kj->ik", v, v));
#undef NAMED
    eg_close(cx);
}

#if !EG_DEBUG_ALLOC /* there headers and scopes, which are not named, are allocations too */
static bool made_mha(eg_params *p) { return eg_mha_new(p, "a", .d_model = 8, .heads = 2); }
static bool made_linear(eg_params *p) { return eg_linear_new(p, "a", 4, 4); }
static bool made_adam(eg_params *p) { return eg_adam(p); }
static bool made_mask(eg_params *p)
{
    return eg_ok(eg_where_mask(eg_params_context(p), "j <= i", "i=8 [j=8]"));
}
static bool made_softmax(eg_params *p)
{
    return eg_ok(eg_softmax("i [j]", eg_params_at(p, 0)->x, .where = "j <= i + 1"));
}
/* Also of the allocations of a few bytes. */
TEST(each_allocation_that_fails_names_the_operation_or_the_module)
{
    static const struct {
        bool (*made)(eg_params *);
        const char *who;
    } calls[] = {
        { made_mha, "mha" },         { made_linear, "linear" },   { made_adam, "adam" },
        { made_mask, "where_mask" }, { made_softmax, "softmax" },
    };
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
        bool good = false;
        for (int n = 0; !good; n++) {
            int left = INT_MAX;
            eg_ctx *cx = eg_open(.threads = 1, .realloc = failing, .user = &left);
            eg_params *p = eg_params_open(cx);
            ck_assert(eg_ok(eg_param(p, "w", "ij", 3, 4)));
            left = n;
            good = calls[k].made(p);
            const char *error = eg_error(cx);
            ck_assert(good == !error);
            ck_assert_msg(good || (strncmp(error, "out of memory", 13) != 0 &&
                                   (strstr(error, calls[k].who) || strstr(error, "\"a"))),
                          "%s, allocation %d: %s", calls[k].who, n, error);
            eg_close(cx);
            ck_assert_int_lt(n, 500);
        }
    }
}
#endif

TEST(many_scopes_take_little_memory)
{
    eg_ctx *cx = eg_open();
    eg_ones(cx, 1 << 20);
    size_t before = eg_stats(cx).bytes;
    for (int k = 0; k < 10000; k++) eg_push(cx);
    eg_assert_ok(cx);
    ck_assert_uint_lt(eg_stats(cx).bytes - before, 10000 * 512);
    eg_close(cx);
}

TEST(owner_tensor_refuses_malformed_types_and_sizes)
{
    eg_ctx *cx = eg_open();
    eg_owner *o = eg_owner_open(cx);
    eg_owner_tensor(o, (eg_dtype)77, 0, NULL);
    eg_assert_error(cx, "77 is not a dtype");
    eg_owner_tensor(o, EG_F32, 1, NULL);
    eg_assert_error(cx, "the sizes are NULL");
    eg_close(cx);
}

TEST(draws_repeat_and_can_be_set)
{
    eg_ctx *cx = eg_open(.seed = 5, .dtype = EG_F64);
    eg_tensor *a = eg_normal(cx, 0, 1, 100), *b = eg_normal(cx, 0, 1, 100);
    uint64_t at = eg_draws(cx);
    eg_tensor *c = eg_uniform(cx, 0, 1, 100);
    eg_seed(cx, 5);
    eg_tensor *a2 = eg_normal(cx, 0, 1, 100);
    eg_set_draws(cx, at);
    eg_tensor *c2 = eg_uniform(cx, 0, 1, 100);
    eg_assert_close(a, a2, 0);
    eg_assert_close(c, c2, 0);
    ck_assert(eg_item(eg_all(NULL, eg_eq(a, b))) == 0);
    eg_close(cx);
}

/* -- threads: each piece once, by a thread of the team, whatever the job before was ------------ */
enum { PIECES = 61 };
typedef struct loop {
    _Atomic int done[PIECES], strangers;
    int team;
} loop;
static void note(void *user, int64_t piece, int thread)
{
    loop *l = user;
    l->done[piece]++;
    l->strangers += thread < 0 || thread >= l->team;
    /* pieces of unequal length */
    for (int64_t k = 0; k < piece * 7 % 50; k++) atomic_signal_fence(memory_order_seq_cst);
}
TEST(each_piece_is_done_once)
{
    eg_ctx *cx = eg_open(.threads = 4);
    for (int round = 0; round < 3000; round++) {
        const int pieces = 2 + round * 17 % (PIECES - 1);
        /* one directly after the other */
        loop l[2] = { { .team = 2 + round % 3 }, { .team = 2 + round % 2 } };
        for (int k = 0; k < 2; k++) eg__parallel(cx, l[k].team, pieces, note, &l[k]);
        for (int k = 0; k < 2; k++) {
            ck_assert_int_eq(l[k].strangers, 0);
            for (int q = 0; q < PIECES; q++) ck_assert_int_eq(l[k].done[q], q < pieces);
        }
    }
    eg_close(cx);
}

/* A loop of the user: each piece once, short or long, with a loop inside it, without a context. */
typedef struct pieces_done {
    eg_ctx *cx;
    _Atomic int done[1000], inner;
} pieces_done;
static void inner_piece(void *user, int64_t k)
{
    pieces_done *p = user;
    p->inner += (int)k;
}
static void own_piece(void *user, int64_t k)
{
    pieces_done *p = user;
    p->done[k]++;
    if (k == 500) eg_parallel(p->cx, 4, 1e9, inner_piece, p);
}
LOOP_TEST(a_loop_of_ones_own_does_each_piece_once, 4)
{
    static pieces_done p;
    eg_ctx *c = _i == 3 ? NULL : eg_open(.threads = 1 + 2 * _i);
    for (int again = 0; again < 20; again++) {
        p = (pieces_done){ .cx = c };
        eg_parallel(c, 1000, again % 2 ? 1e9 : 10, own_piece, &p);
        for (int k = 0; k < 1000; k++) ck_assert_int_eq(p.done[k], 1);
        ck_assert_int_eq(p.inner, 6);
    }
    eg_parallel(c, 0, 1e9, own_piece, &p);
    eg_parallel(c, 3, NAN, NULL, &p);
    ck_assert_int_eq(p.done[0], 1);
    eg_close(c);
}

/* -- a clock that cannot be read -------------------------------------------------------------- */
/* The linker replaces clock_gettime in this program and the library (Makefile.am). */
static _Atomic bool no_clock;
int __real_clock_gettime(clockid_t, struct timespec *),
    __wrap_clock_gettime(clockid_t, struct timespec *);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    if (!no_clock) return __real_clock_gettime(clock, t);
    *t = (struct timespec){ .tv_sec = 1 };
    return -1;
}

/* -- forks ------------------------------------------------------------------------------------ */
#if defined(__SANITIZE_THREAD__)
#define TSAN 1 /* no threads after the fork of a process that had some */
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif
#ifndef TSAN
/* A child that hangs is ended by its alarm, after 20 s times CK_TIMEOUT_MULTIPLIER. It would
 * inherit Check's handler of SIGALRM, which kills a process group: without CK_FORK that of all
 * tests. */
static void end_child_in_time(void)
{
    const char *times = getenv("CK_TIMEOUT_MULTIPLIER");
    const double seconds = 20 * (times ? atof(times) : 1);
    signal(SIGALRM, SIG_DFL);
    alarm(seconds >= 20 && seconds < 1e6 ? (unsigned)seconds : 20);
}
typedef struct meeting {
    _Atomic int came;
    _Atomic bool met;
} meeting;
/* Two pieces, each of which waits for the other: this takes two threads. */
static void meet(void *user, int64_t piece, int thread)
{
    meeting *m = user;
    (void)piece, (void)thread;
    m->came++;
    for (long k = 0; k < 2000000 && m->came < 2; k++) sched_yield();
    if (m->came == 2) m->met = true;
}
static bool has_helpers(eg_ctx *cx)
{
    for (int k = 0; k < 5; k++) { /* a new helper may start late */
        meeting m = { .came = 0 };
        eg__parallel(cx, 2, 2, meet, &m);
        if (m.met) return true;
    }
    return false;
}
static int status_of(pid_t child)
{
    int status = -1;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
TEST(a_child_of_fork_starts_its_own_helpers)
{
    eg_ctx *cx = eg_open(.threads = 2);
    ck_assert(has_helpers(cx));
    const pid_t child = fork();
    if (child == 0) {
        end_child_in_time();
        bool good = has_helpers(cx);
        eg_close(cx);
        _exit(good ? 0 : 1);
    }
    ck_assert_int_eq(status_of(child), 0);
    ck_assert(has_helpers(cx)); /* the parent keeps its helpers */
    eg_close(cx);
}
/* A signal that the program blocks after helpers were started, to wait for it, is not delivered to
 * a helper: SIGUSR1 would end the process. */
TEST(helpers_leave_signals_to_the_program)
{
    const pid_t child = fork();
    if (child == 0) {
        end_child_in_time();
        eg_ctx *cx = eg_open(.threads = 3);
        const bool helped = has_helpers(cx);
        sigset_t one, before;
        sigemptyset(&one);
        sigaddset(&one, SIGUSR1);
        const bool open = !pthread_sigmask(SIG_BLOCK, &one, &before) &&
                          !sigismember(&before, SIGUSR1) && !sigismember(&before, SIGTERM);
        kill(getpid(), SIGUSR1);
        int got = 0;
        const bool waited = !sigwait(&one, &got) && got == SIGUSR1;
        eg_close(cx);
        _exit(helped && open && waited ? 0 : 1);
    }
    ck_assert_int_eq(status_of(child), 0);
}

/* A helper that waits for a job measures the time. Where a process may not read the clock, such as
 * in a sandbox, it sleeps at once; a helper that waited for ever would never end. */
TEST(helpers_end_without_a_clock)
{
    const pid_t child = fork();
    if (child == 0) {
        end_child_in_time();
        no_clock = true;
        eg_ctx *cx = eg_open(.threads = 3);
        const bool helped = has_helpers(cx);
        usleep(1000); /* helpers wait for the next job now */
        eg_close(cx);
        _exit(helped ? 0 : 1);
    }
    ck_assert_int_eq(status_of(child), 0);
}

/* An end of line in a name or a spec does not begin a new line of the message; those of the caret
 * and of messages of the program do. */
TEST(a_refusal_keeps_its_line)
{
    eg_ctx *cx = eg_open();
    eg_params *p = eg_params_open(cx);
    eg_param(p, "a\nb", "i i", 2, 2);
    ck_assert_str_eq(eg_error(cx), "param \"a?b\": index 'i' occurs twice\n  i i\n    ^");
    eg_clear(cx);
    eg_argmax("i\n[j]", eg_ones(cx, 2, 3, 4));
    ck_assert_str_eq(eg_error(cx),
                     "argmax: operand 1 has rank 3: (2, 3, 4), its term 'i?[j]' names 2 "
                     "axes\n  i [j]\n  ^^^^^");
    eg_clear(cx);
    eg_fail(cx, "first\nsecond");
    ck_assert_str_eq(eg_error(cx), "first\nsecond");
    eg_close(cx);
}
static double product(eg_ctx *cx)
{
    eg_mark m = eg_push(cx);
    eg_seed(cx, 3);
    eg_tensor *a = eg_normal(cx, 0, 1, 300, 300), *b = eg_normal(cx, 0, 1, 300, 300);
    double sum = eg_item(eg_sum(NULL, eg_tanh(eg_einsum("ij,jk->ik", a, b))));
    eg_pop(cx, m);
    return sum;
}
static _Atomic bool enough;
static void *compute(void *user)
{
    eg_ctx *cx = eg_open(.threads = 2);
    while (!enough) product(cx);
    eg_close(cx);
    return user;
}
/* True if another thread computes while the process forks: not under the address sanitizer, whose
 * allocator (gcc 12) stays locked in the child if the thread held its lock. */
#ifdef __SANITIZE_ADDRESS__
enum { BESIDE = false };
#else
enum { BESIDE = true };
#endif
TEST(children_compute_while_other_threads_of_the_parent_do)
{
    pthread_t other;
    eg_ctx *cx = eg_open(.threads = 3);
    const double sum = product(cx);
    enough = false;
    if (BESIDE) ck_assert_int_eq(pthread_create(&other, NULL, compute, NULL), 0);
    for (int k = 0; k < 40; k++) {
        product(cx);
        /* helpers sleep 0.2 ms after their last piece: at some forks they are awake, at some
         * asleep */
        usleep((useconds_t)(k * 37 % 400));
        const pid_t child = fork();
        if (child == 0) {
            end_child_in_time();
            eg_ctx *own = eg_open(.threads = 2);
            bool good =
                product(own) == sum && product(cx) == sum && !eg_error(own) && !eg_error(cx);
            eg_close(k % 2 ? own : cx);
            _exit(good ? 0 : 1);
        }
        ck_assert_int_eq(status_of(child), 0);
    }
    enough = true;
    if (BESIDE) pthread_join(other, NULL);
    eg_close(cx);
}
#endif

/* -- subnormal numbers ------------------------------------------------------------------------ */
enum { MANY = 1 << 20 };
#define TINY 1e-30F
/* Returns the number of elements of TINY² (f32) that are not 0, where the threads of cx share the
 * work. */
static int64_t kept(eg_ctx *cx)
{
    eg_mark m = eg_push(cx);
    eg_tensor *x = eg_full(cx, TINY, MANY);
    int64_t n = 0;
    for (int k = 0; k < 4; k++) { /* helpers are made when what they could have done adds up */
        const float *y = eg_f32(eg_mul(x, eg_full(cx, 1e-10, MANY)));
        n = 0;
        for (int64_t i = 0; y && i < MANY; i++) n += y[i] != 0;
    }
    eg_pop(cx, m);
    return n;
}
TEST(a_context_flushes_subnormal_numbers_in_all_its_threads)
{
    if (!EG_FPMODE_FLUSH) return; /* a processor without the mode */
    eg_ctx *cx = eg_open(.flush = true, .threads = 4);
    ck_assert(eg_flushes(cx));
    ck_assert_int_eq(kept(cx), 0);
    ck_assert(eg_flush(cx, false));
    ck_assert_int_eq(kept(cx), MANY); /* by the helpers that flushed before */
    ck_assert(!eg_flush(cx, true));
    ck_assert_int_eq(kept(cx), 0);
    eg_close(cx);
    cx = eg_open(.threads = 4);
    ck_assert(!eg_flushes(cx));
    ck_assert_int_eq(kept(cx), MANY);
    const uint64_t mode = eg__fpmode_word();
    /* the caller's mode applies to the helpers, too */
    eg__fpmode_set(mode | EG_FPMODE_FLUSH);
    ck_assert_int_eq(kept(cx), 0);
    eg__fpmode_set(mode);
    ck_assert_int_eq(kept(cx), MANY);
    eg_close(cx);
}

TEST(the_thread_keeps_its_own_floating_point_mode)
{
    eg_ctx *cx = eg_open(.flush = true, .threads = 2);
    const uint64_t mode = eg__fpmode();
    volatile float tiny = TINY;
    eg_tensor *x = eg_full(cx, TINY, 100), *dx;
    eg_grad(eg_sum(NULL, eg_mul(eg_square(x), eg_einsum("i,i->i", x, x))), NULL, 1, &x, &dx);
    eg_assert_ok(cx);
    ck_assert_uint_eq(eg__fpmode(), mode);
    ck_assert(tiny * 1e-10F != 0);
    eg_add(x, eg_ones(cx, 7));
    eg_assert_error(cx, "add");
    ck_assert_uint_eq(eg__fpmode(), mode);
    eg_clear(cx);
    eg_params *p = eg_params_open(cx);
    eg_tensor *w = eg_param(p, "w", "i", 100);
    ck_assert_int_eq(eg_step(eg_adam(p), eg_sum(NULL, eg_square(w))), 0);
    ck_assert_uint_eq(eg__fpmode(), mode);
    const uint64_t begun = eg_flush_begin(cx), inner = eg_flush_begin(cx);
    ck_assert(!EG_FPMODE_FLUSH || tiny * 1e-10F == 0);
    eg_flush_end(inner);
    ck_assert(!EG_FPMODE_FLUSH || tiny * 1e-10F == 0);
    eg_flush_end(begun);
    ck_assert(tiny * 1e-10F != 0);
    eg_close(cx);
}

static bool flushed_inside;
static eg_tensor *tiny_scale(void *user, eg_tensor *const *xs)
{
    (void)user;
    eg_tensor *y = eg_scale(xs[0], 1e-310);
    flushed_inside |= eg_get(y, 0) == 0;
    return eg_scale(y, 1e300);
}
TEST(a_gradient_check_keeps_subnormal_numbers)
{
    eg_ctx *cx = eg_open(.flush = true, .dtype = EG_F64);
    flushed_inside = false;
    eg_tensor *x = eg_ones(cx, 3);
    const eg_report *r = eg_gradcheck(.f = tiny_scale, .count = 1, .xs = &x);
    eg_assert_ok(cx);
    ck_assert_ptr_nonnull(r);
    ck_assert(!flushed_inside);
    ck_assert(eg_flushes(cx));
    eg_close(cx);
}

/* -- the stack of a call ------------------------------------------------------------------------
 */
static eg_tensor *chain_of_three(void *user, eg_tensor *const *x)
{
    (void)user;
    return eg_einsum("ij,jk,kl->il", x[0], x[0], x[0]);
}
/* Calls that took the most stack, of one dtype, with their gradients. */
static void *many_calls(void *context)
{
    eg_ctx *c = context;
    eg_tensor *x = eg_uniform(c, -1, 1, 8, 8), *big = eg_uniform(c, -1, 1, 16, 64, 48),
              *q = eg_uniform(c, -1, 1, 2, 40, 2, 16), *square = eg_uniform(c, -1, 1, 200, 200), *g;
    eg_tensor *y = eg_sum(
        NULL, eg_einsum("ij,jk,kl,lm,mn,no,op,pq,qr,rs,st->it", x, x, x, x, x, x, x, x, x, x, x));
    eg_grad(y, NULL, 1, &x, &g);
    eg_explain("ij,jk,kl->il", x, x, x);
    y = eg_add(eg_sum(NULL, eg_softmax("a [b] c", big)), eg_sum(NULL, eg_softmax("a b [c]", big)));
    eg_grad(y, NULL, 1, &big, &g);
    for (int form = EG_FUSED; form <= EG_UNFUSED; form++) {
        y = eg_sum(NULL, eg_attention("bihd,bjhd,bjhe->bihe", q, q, q, .where = "j <= i",
                                      .score = "tanh(score)", .form = (eg_form)form));
        eg_grad(y, NULL, 1, &q, &g);
    }
    eg_params *p = eg_params_open(c);
    eg_transformer *net = eg_transformer_new(p, "", .vocabulary = 7, .length = 9, .d_model = 8,
                                             .heads = 2, .layers = 2);
    eg_tensor *logits = eg_transformer_run(net, eg_randint(c, 0, 7, 2, 9), .where = "j <= i");
    eg_step(eg_adam(p), eg_sum(NULL, logits));
    if (eg_default_type(c) == EG_F64) eg_gradcheck(chain_of_three, NULL, 1, &x);
    eg_layernorm("a b [c]", big);
    eg_cumsum("a [b] c", big);
    eg_sort("a [b] c", big);
    eg_einsum("aij,ajk->aik", big, eg_transpose(big, 1, 2));
    eg_einsum("ij,jk->ik", square, square);
    eg_sum("a [b] c", big);
    eg_tensor *wide = eg_uniform(c, .9, 1.1, 3, 4096), *z = eg_complex(wide, wide),
              *of[2] = { wide, z };
    for (int k = 0; k < 2; k++)
        for (int along = 0; along < 2; along++) {
            eg_tensor *v = along ? eg_contiguous(eg_transpose(of[k], 0, 1)) : of[k];
            y = eg_add(eg_sum(NULL, eg_prod(along ? "[i] j" : "i [j]", v)),
                       eg_sum(NULL, eg_cumprod("i [j]", v)));
            if (!k) eg_grad(y, NULL, 1, &v, &g);
        }
    eg_prod("a [b] c", eg_complex(big, big));
    return NULL;
}
/* As include/eingrad/core.h states: 160 KB; a sanitizer's frames are larger. */
TEST(calls_fit_the_stack_that_core_h_states)
{
    for (int k = 0; k < 2; k++) {
        eg_ctx *c = eg_open(.threads = 1, .dtype = k ? EG_F64 : EG_F32);
        pthread_attr_t attributes;
        pthread_t thread;
        ck_assert_int_eq(pthread_attr_init(&attributes), 0);
        ck_assert_int_eq(pthread_attr_setstacksize(&attributes, (SLOWER > 1 ? 1024 : 160) << 10),
                         0);
        /* an assertion allocates, which must not happen beside the thread */
        const int made = pthread_create(&thread, &attributes, many_calls, c),
                  joined = made ? made : pthread_join(thread, NULL);
        ck_assert_int_eq(joined, 0);
        pthread_attr_destroy(&attributes);
        eg_assert_ok(c);
        eg_close(c);
    }
}
