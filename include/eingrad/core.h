/* eingrad/core.h: contexts and scopes; tensors: making, reading and writing them.
 *
 * Three lifetimes: the context (eg_open … eg_close), an owner (parameters, optimiser moments), and
 * the scope (eg_push … eg_pop). A tensor belongs to the scope that is open when it is made; tensors
 * are not freed one by one. An option that is left out or 0 has its default; EG_OFF sets it to 0.
 *
 * Errors: the context keeps the message of the first error. Every later operation returns the
 * context's poison tensor at once, so calls can be nested, and one check of eg_error() is enough.
 * NULL operands behave like poison. The library never aborts or exits, and prints only when it is
 * asked to. One exception: in a build without BLIS's static library, BLIS aborts if memory runs out
 * while it is initialised. A call that fails without a context (no operand, all operands NULL,
 * eg_open) returns NULL and records its message for the thread: eg_error(NULL) returns the first
 * such message since eg_clear(NULL) or eg_open.
 *
 * Threads: one thread at a time uses a context and its tensors, with one exception: while
 * eg_grad_over (eg_step_over) computes, several threads are inside blocks, each with a context that
 * the library makes, and the given context waits. Inside a block its tensors can be operands but
 * are read-only: eg_fill, eg_assign, eg_mut_…, .out, eg_name and eg_hook refuse them, and its
 * owners (parameters, caches) do not grow. A function that is called with the waiting context uses
 * the block's context instead. A block's tensors are freed with the block; a tensor of another
 * block is refused.
 *
 * Stack: a call takes up to 160 KB of the calling thread's stack. Give threads 256 KB (musl's
 * default of 128 KB is too small). */
#ifndef EINGRAD_CORE_H
#define EINGRAD_CORE_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#define EG_API           __attribute__((visibility("default")))
#define EG_FORMAT_(f, a) __attribute__((format(printf, f, a)))
#else
#define EG_API
#define EG_FORMAT_(f, a)
#endif

typedef struct eg_ctx eg_ctx;
typedef struct eg_tensor eg_tensor;
typedef struct eg_owner eg_owner;
typedef struct eg_copies eg_copies;
/* EG_DEFAULT: the context's dtype. The last four are storage types: their tensors can be made,
 * viewed, moved (by the operations that ops.h lists), copied, cast, filled, printed, saved and
 * exchanged. Other operations refuse them with a message that names eg_cast. There are exceptions:
 * eg_einsum, eg_affine and eg_attention read f16 and bf16; eg_sum, eg_prod, eg_cumsum and
 * eg_cumprod read i8 and u8; eg_any, eg_all, formulas (.with) and masks read all four;
 * eg_checkpoint reads what its function reads. Storage types have no gradients. EG_F16 is IEEE
 * 754's half precision, EG_BF16 the upper half of an f32, both as uint16_t in C. */
typedef enum eg_dtype {
    EG_DEFAULT,
    EG_F32,
    EG_F64,
    EG_I32,
    EG_I64,
    EG_BOOL,
    EG_C128,
    EG_F16,
    EG_BF16,
    EG_I8,
    EG_U8
} eg_dtype;
typedef struct eg_mark {
    void *scope;
    uint64_t serial;
} eg_mark;

#define EG_OFF      (-1073741824) /* sets an option to 0 where 0 means its default */
#define EG_END      INT64_MIN     /* eg_slice: a start or stop that is left out */
#define EG_RANK_MAX 32

/* -- context ---------------------------------------------------------------------------------- */
typedef struct eg_open_args {
    size_t size;
    eg_dtype dtype; /* of tensors made without one; EG_F32 */
    uint64_t seed;  /* 0 */
    int threads;    /* all cores */
    /* in place of malloc, realloc and free: p NULL allocates, new_size 0 frees and returns NULL;
     * NULL when there is no memory, which becomes an error */
    void *(*realloc)(void *user, void *p, size_t old_size, size_t new_size);
    void *user; /* handed to realloc */
    bool flush; /* subnormal numbers become 0: see eg_flush */
} eg_open_args;
/* Returns a context; NULL if there is no memory or an option is wrong, and eg_error(NULL) then says
 * why */
EG_API eg_ctx *eg_open_with(const eg_open_args *);
/* Frees the context and all that lives in it; NULL is fine. Refused: a context that waits for its
 * blocks, and the context of a block (blocks.h) */
EG_API void eg_close(eg_ctx *);
/* Returns the message of the first error; NULL if there is none. For a NULL context: the message of
 * the thread's first error, or else that there is no context; never NULL */
EG_API const char *eg_error(const eg_ctx *);
/* The kind of an error. Later versions may add kinds at the end. */
typedef enum eg_code {
    EG_ERROR_NONE,        /* nothing failed                                                       */
    EG_ERROR_USER,        /* recorded with eg_fail, by an operation or module of a user */
    EG_ERROR_SHAPE,       /* sizes or ranks that do not fit together                              */
    EG_ERROR_INDEX,       /* an axis, an index or a class number outside its range                */
    EG_ERROR_DTYPE,       /* operands of a dtype that the operation does not take                 */
    EG_ERROR_NOTATION,    /* a spec, layout or predicate that cannot be read or does not fit      */
    EG_ERROR_FILE,        /* a file that cannot be read or written, or lacks the wanted content   */
    EG_ERROR_MEMORY,      /* the allocator returned NULL                                          */
    EG_ERROR_MISUSE,      /* a bad option or number, NULL, a tensor whose scope is gone           */
    EG_ERROR_UNSUPPORTED, /* valid, but the library has no rule or form for it                   */
    EG_ERROR_NONFINITE    /* a loss or gradient of a training step is NaN or infinite            */
} eg_code;
/* The kind of eg_error(cx)'s error; of NULL the thread's, or EG_ERROR_MISUSE if there is none */
EG_API eg_code eg_error_code(const eg_ctx *);
EG_API void eg_clear(eg_ctx *); /* removes the error; NULL: that of the thread */
/* Records a failure of the given kind, if none is recorded yet; returns the poison tensor. Control
 * characters in the text become '?', and in that of EG_ERROR_FILE ends of lines, too. */
EG_API eg_tensor *eg_fail_as(eg_ctx *, eg_code, const char *format, ...) EG_FORMAT_(3, 4);
/* As eg_fail_as with the arguments as a list, for a function of your own with a format */
EG_API eg_tensor *eg_vfail_as(eg_ctx *, eg_code, const char *format, va_list) EG_FORMAT_(3, 0);
/* eg_fail_as(cx, EG_ERROR_USER, …): for operations and modules of your own */
EG_API eg_tensor *eg_fail(eg_ctx *, const char *format, ...) EG_FORMAT_(2, 3);
/* Puts this text and ": " before the message of a recorded error; returns the poison tensor: for a
 * module after a failed operation, eg_fail_in(cx, "linear \"%s\"", name). */
EG_API eg_tensor *eg_fail_in(eg_ctx *, const char *format, ...) EG_FORMAT_(2, 3);
/* eg_fail_in(cx, "%s", who) if the error is "out of memory" and names no function yet */
EG_API eg_tensor *eg_name_memory_error(eg_ctx *, const char *who);
EG_API void eg_seed(eg_ctx *, uint64_t seed); /* sets the seed; the next draw is number 0 */
EG_API uint64_t eg_seed_of(const eg_ctx *);   /* the seed of the next draw */
EG_API uint64_t eg_draws(const eg_ctx *);     /* number of the next random draw */
/* Sets the number of the next draw, so that a resumed run draws the same numbers as an
 * uninterrupted one */
EG_API void eg_set_draws(eg_ctx *, uint64_t);
/* FNV-1a: h ← (h xor byte) · 1099511628211 for each of n bytes; the first h is EG_HASH_START */
#define EG_HASH_START ((uint64_t)14695981039346656037u)
EG_API uint64_t eg_hash(uint64_t h, const void *bytes, size_t n);
/* Sets the number of threads (0: leaves it) and returns it. Results have the same bits for any. */
EG_API int eg_threads(eg_ctx *, int threads);
EG_API eg_dtype eg_default_type(const eg_ctx *); /* the dtype of tensors made without one */
/* Sets the dtype of tensors made without one, f32 or f64, and returns the old one. Existing tensors
 * keep their dtype. */
EG_API eg_dtype eg_set_default_type(eg_ctx *, eg_dtype);
EG_API void eg_train(eg_ctx *);          /* dropout draws (the state after eg_open) */
EG_API void eg_eval(eg_ctx *);           /* dropout is the identity */
EG_API bool eg_training(const eg_ctx *); /* true if dropout draws */
/* With `on`, operations are not recorded, so their results have no gradients. Returns the old
 * state. */
EG_API bool eg_nograd(eg_ctx *, bool on);
/* With `on`, operations read subnormal operands as 0 and return 0 for subnormal results, in every
 * thread of the context (FTZ and DAZ of x86-64, FZ of AArch64; no effect elsewhere): a subnormal
 * operand can cost 100 cycles. It is off by default, and while a gradient check runs. The thread's
 * own mode, in which a plan (eg_plan_run) computes, does not change. Returns the old state. */
EG_API bool eg_flush(eg_ctx *, bool on);
EG_API bool eg_flushes(const eg_ctx *); /* true while eg_flush is on */
/* For loops of the caller: between begin and end this thread treats subnormal numbers as the
 * operations of the context do. begin returns the argument of end; pairs may be nested. */
EG_API uint64_t eg_flush_begin(const eg_ctx *);
EG_API void eg_flush_end(uint64_t begun);
/* The switches of a context (eg_train, eg_nograd, eg_flush, eg_trace). A module that calls a
 * function of its user reads them before the call and restores them after it, as the library does.
 * Refused: a loss of a block, a hook, a function of eg_checkpoint, .score_fn, .weights_fn,
 * .layer_fn or a function of an eg_op that returns while a switch is changed */
typedef struct eg_switches { /* the members are the library's own */
    uint64_t on;
    void (*trace)(void);
} eg_switches;
EG_API eg_switches eg_switches_of(const eg_ctx *);
/* Restores the switches. Returns "eg_train", "eg_eval", "eg_nograd", "eg_flush" or "eg_trace", the
 * function by which the first of them had been changed; NULL if none had been */
EG_API const char *eg_switches_restore(eg_ctx *, eg_switches);
/* Calls f(user, k) for k = 0 … pieces − 1 concurrently on the threads of the context, in the
 * caller's floating-point mode, and returns when all are done. ns: about how many nanoseconds all
 * pieces take on one thread. A short loop runs on the calling thread alone; so does one inside a
 * block or inside another such loop. f must not call the library with this context or its
 * tensors. */
typedef void eg_loop_piece(void *user, int64_t k);
EG_API void eg_parallel(eg_ctx *, int64_t pieces, double ns, eg_loop_piece *f, void *user);
typedef struct eg_usage {
    uint64_t mallocs;       /* calls of the allocator so far (a warm training step makes none) */
    size_t bytes, peak;     /* bytes from the allocator: now, and the most so far */
    size_t used, used_peak; /* bytes in tensors: now, and the most since eg_stats_reset */
    uint64_t nodes;         /* operations applied, recorded or not */
    /* of contractions: a multiplication with the addition of its product counts as one, and so does
     * a term that is added without a multiplication */
    uint64_t multiply_adds;
} eg_usage;
EG_API eg_usage eg_stats(const eg_ctx *); /* the counters of cx so far */
EG_API void eg_stats_reset(eg_ctx *);     /* used_peak starts again from now */
EG_API const char *eg_version(void);      /* "0.1.0" */

/* A tensor and the name by which a formula reads it: { "g", gain } for "x * g[h]" */
typedef struct eg_given {
    const char *name;
    eg_tensor *x;
} eg_given;

/* -- reading options as the library does, for custom modules --------------------------------- */
/* Copies the caller's options *given to *own, which holds the defaults. Both are the same type of
 * struct, whose first member is its size; own's type has `size` bytes. A caller that was compiled
 * with an older header has a smaller struct: the members that it lacks keep their defaults. A given
 * size of 0 means the whole struct. Afterwards own's size is `size`. If given is NULL, *own does
 * not change. */
EG_API void eg_options(void *own, size_t size, const void *given);
/* Returns the value that a numeric option stands for: `otherwise` if it is 0 (left out), 0 if it is
 * EG_OFF, else the number itself. */
EG_API double eg_option(double given, double otherwise);

/* -- scopes and owners ------------------------------------------------------------------------ */
EG_API eg_mark eg_push(eg_ctx *); /* opens a scope: tensors made from here on live in it */
/* Closes the scope and those that were opened in it, and frees their tensors. Using one of them
 * later is an error that names the operation; it may go undetected once 2048 other tensors have
 * been freed. Refused: the mark of a scope that is closed */
EG_API void eg_pop(eg_ctx *, eg_mark);
/* A copy of x, without history, in the scope that encloses the open one, or in the outermost scope
 * if that is open */
EG_API eg_tensor *eg_keep(eg_tensor *x);
/* Zeroed memory that lives as long as the open scope, for arrays of a custom module, in a captured
 * step too; NULL after recording "out of memory" */
EG_API void *eg_scope_alloc(eg_ctx *, size_t bytes);
/* An owner that lives as long as the scope that is open now. What is added to it later, inside
 * other scopes, lives as long */
EG_API eg_owner *eg_owner_open(eg_ctx *);
/* an owner with the lifetime of the given one: it lives in the same scope, also if other scopes
 * have been opened since. For memory that replaces other memory of that lifetime */
EG_API eg_owner *eg_owner_sibling(eg_owner *);
/* an owner that is closed with the given one, unless it was closed before; the same holds for its
 * siblings */
EG_API eg_owner *eg_owner_open_in(eg_owner *);
EG_API void eg_owner_close(eg_owner *); /* frees an owner before its scope ends; NULL is fine */
EG_API eg_ctx *eg_owner_context(const eg_owner *); /* the context of the owner */
/* Zeroed memory that lives as long as the owner; NULL after recording "out of memory" */
EG_API void *eg_owner_alloc(eg_owner *, size_t bytes);
/* a copy of x (no history) that lives as long as the owner. An owner takes less than 112 bytes. Of
 * an owner that holds a single tensor, eg_owner_close returns the elements to the allocator; the
 * context keeps the tensor's header, about 500 bytes, for later tensors */
EG_API eg_tensor *eg_keep_in(eg_owner *, eg_tensor *x);
/* zeros that live as long as the owner */
EG_API eg_tensor *eg_owner_tensor(eg_owner *, eg_dtype, int rank, const int64_t *dims);

/* -- leaves: row-major copies of numbers (eg_from_memory: no copy); a size may be 0 ----------- */
/* The numbers at data, which are of this dtype, with sizes dims[0 … rank) */
EG_API eg_tensor *eg_from_n(eg_ctx *, eg_dtype, const void *data, int rank, const int64_t *dims);
/* A tensor whose n elements f writes to `to`, row-major. f gets a copy of the `bytes` bytes at args
 * and returns 0, or another number after an error. In a captured step (eg_capture) each run calls f
 * again, so a captured step can read data of the program that differ from run to run. */
typedef int eg_fill_function(void *args, void *to, int64_t n);
EG_API eg_tensor *eg_from_call(eg_ctx *, eg_dtype, int rank, const int64_t *dims,
                               eg_fill_function *f, const void *args, size_t bytes);
/* eg_from(cx, data, d0, d1, …): a tensor of sizes d0, d1, … with a copy of the numbers at `data`;
 * in the struct, EG_END follows the last size. `data` is an array of float, double, double
 * _Complex, int32_t, int64_t, int8_t, uint8_t or bool, or a compound literal: eg_from(cx,
 * (int64_t[]){ 0, -100 }, 2). In C, an argument `data` that begins with a parenthesis must have a
 * pointer, an array or a type in it. */
typedef struct eg_from_args {
    size_t size;
    eg_ctx *cx;
    eg_dtype dtype;
    const void *data;
    int64_t d0, d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, d11, d12, d13, d14, d15, d16, d17, d18,
        d19, d20, d21, d22, d23, d24, d25, d26, d27, d28, d29, d30, d31, d32;
} eg_from_args;
EG_API eg_tensor *eg_from_with(const eg_from_args *);
/* A tensor in which every element is `value`. For an integer dtype the fraction of `value` is
 * dropped; a bool is true if `value` is not 0. Refused: a value out of the range of an integer
 * dtype, a NaN for one */
EG_API eg_tensor *eg_full_n(eg_ctx *, eg_dtype, double value, int rank, const int64_t *dims);
/* A tensor in memory that is not the library's, without a copy: `rank` sizes of `dims`, element 0
 * at `data` + offset. Every operation takes it; views of it, graphs and exported tensors use that
 * memory. It lives in the open scope or in .owner, and no longer. release(user) is called exactly
 * once: at the end of that scope or owner, also after errors; by the last consumer of an exported
 * tensor (eg_to_dlpack) if that is later; and before the call returns if it fails, whatever the
 * reason. release must not use the context. Refused: memory that is not aligned to its element's C
 * type; NULL, unless a size is 0; sizes and strides that leave the address space. A call that would
 * write to memory that is not .writable is refused as well (eg_mut_…, eg_assign, eg_fill, .out).
 * Every byte of a bool tensor must be 0 or 1. Changes that other code makes to the elements are not
 * detected: a gradient that needs an old value uses the new one. */
typedef struct eg_from_memory_args {
    size_t size;
    eg_ctx *cx;
    eg_dtype dtype;
    const void *data;
    int rank;
    const int64_t *dims;
    const int64_t *strides;      /* in elements; may be negative or 0; NULL: row-major */
    int64_t offset;              /* in elements; 0 */
    bool writable;               /* the library may write to it; false */
    void (*release)(void *user); /* NULL: none */
    void *user;                  /* handed to release */
    eg_owner *owner;             /* of this context; the open scope */
} eg_from_memory_args;
EG_API eg_tensor *eg_from_memory_with(const eg_from_memory_args *);
/* Random numbers, f32 or f64, uniform in [low, high). Refused: low ≥ high; here and in eg_normal_n
 * a number that is not finite or beyond the range of the dtype */
EG_API eg_tensor *eg_uniform_n(eg_ctx *, eg_dtype, double low, double high, int rank,
                               const int64_t *dims);
/* Random numbers, f32 or f64, of a normal distribution. Refused: a deviation below 0 */
EG_API eg_tensor *eg_normal_n(eg_ctx *, eg_dtype, double mean, double deviation, int rank,
                              const int64_t *dims);
/* Random integers (i64), uniform in [low, high). Refused: low ≥ high */
EG_API eg_tensor *eg_randint_n(eg_ctx *, int64_t low, int64_t high, int rank, const int64_t *dims);
/* A tensor of rank 0, of the context's dtype */
EG_API eg_tensor *eg_scalar(eg_ctx *, double value);
/* re + i im as c128, without history; both are f32 or f64, of one shape */
EG_API eg_tensor *eg_complex(eg_tensor *re, eg_tensor *im);
/* y[i] = start + i step, i < ⌈(stop − start)/step⌉. The dtype is f32, f64, i32, i64 or EG_DEFAULT.
 * Refused: a step of 0, numbers that are not finite; for an integer dtype, a start or step with a
 * fraction, and an element that the dtype cannot represent */
EG_API eg_tensor *eg_arange(eg_ctx *, eg_dtype, double start, double stop, double step);
EG_API eg_tensor *eg_zeros_like(const eg_tensor *x); /* zeros in x's shape and dtype */
EG_API eg_tensor *eg_ones_like(const eg_tensor *x);  /* ones in x's shape and dtype */
#ifndef __cplusplus
#define eg_open(...) eg_open_with(&(eg_open_args){ .size = sizeof(eg_open_args), __VA_ARGS__ })
#define EG_DIMS_(...) \
    (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }
#define EG_TYPE_(v)                    \
    _Generic((v), float                \
             : EG_F32, double          \
             : EG_F64, double _Complex \
             : EG_C128, int            \
             : EG_I32, long            \
             : EG_I64, long long       \
             : EG_I64, signed char     \
             : EG_I8, unsigned char    \
             : EG_U8, _Bool            \
             : EG_BOOL)
/* The dtype is that of the C type. Commas in a compound literal's braces separate the macro's
 * arguments, so `data` is only its beginning: if that is (X)…, the type is that of X or of what X
 * points to. */
#define eg_from(context, ...)                                             \
    eg_from_with(&(eg_from_args){ .size = sizeof(eg_from_args),           \
                                  .cx = (context),                        \
                                  .dtype = EG_DATA_TYPE_(__VA_ARGS__, 0), \
                                  .data = __VA_ARGS__,                    \
                                  EG_END })
/* eg_from_memory(cx, EG_F32, data, 2, dims, .strides = …, .release = …) */
#define eg_from_memory(context, type, ...)                                           \
    eg_from_memory_with(&(eg_from_memory_args){ .size = sizeof(eg_from_memory_args), \
                                                .cx = (context),                     \
                                                .dtype = (type),                     \
                                                .data = __VA_ARGS__ })
#define EG_SECOND_(a, b, ...)    b
#define EG_SECOND_OF_(...)       EG_SECOND_(__VA_ARGS__)
#define EG_FIRST_(a, ...)        a
#define EG_FIRST_OF_(...)        EG_FIRST_(__VA_ARGS__)
#define EG_PAREN_(...)           ~, EG_ENCLOSED_TYPE_, /* (…) becomes two arguments */
#define EG_ENCLOSED_(...)        (__VA_ARGS__),
#define EG_DATA_TYPE_(data, ...) EG_SECOND_OF_(EG_PAREN_ data, EG_POINTED_TYPE_, 0)(data)
#define EG_POINTED_TYPE_(data)   EG_TYPE_(*(data))
#define EG_ENCLOSED_TYPE_(data)  EG_ARRAY_TYPE_(EG_FIRST_OF_(EG_ENCLOSED_ data, 0))
#define EG_ARRAY_OF_(T, dtype)   void (*)(T *) : dtype, void(*)(const T *) : dtype
/* clang-format off */
#define EG_ARRAY_TYPE_(X)            _Generic((void (*)(__typeof__ X))0, EG_ARRAY_OF_(float,      \
      EG_F32), EG_ARRAY_OF_(double, EG_F64),                                                      \
                                         EG_ARRAY_OF_(double _Complex, EG_C128),                  \
                                           EG_ARRAY_OF_(int, EG_I32), EG_ARRAY_OF_(long, EG_I64), \
                                         EG_ARRAY_OF_(long long, EG_I64), EG_ARRAY_OF_(signed     \
                                           char, EG_I8), EG_ARRAY_OF_(unsigned char, EG_U8),      \
                                         EG_ARRAY_OF_(_Bool, EG_BOOL))
/* clang-format on */
/* Tensors of equal or random numbers in the context's dtype, with the sizes as arguments:
 * eg_zeros(cx, 2, 3) */
#define eg_zeros(cx, ...)       eg_full_n((cx), EG_DEFAULT, 0, EG_DIMS_(__VA_ARGS__))
#define eg_ones(cx, ...)        eg_full_n((cx), EG_DEFAULT, 1, EG_DIMS_(__VA_ARGS__))
#define eg_full(cx, value, ...) eg_full_n((cx), EG_DEFAULT, (value), EG_DIMS_(__VA_ARGS__))
#define eg_uniform(cx, low, high, ...) \
    eg_uniform_n((cx), EG_DEFAULT, (low), (high), EG_DIMS_(__VA_ARGS__))
#define eg_normal(cx, mean, dev, ...) \
    eg_normal_n((cx), EG_DEFAULT, (mean), (dev), EG_DIMS_(__VA_ARGS__))
#define eg_randint(cx, low, high, ...) eg_randint_n((cx), (low), (high), EG_DIMS_(__VA_ARGS__))
#endif

/* -- properties of tensors
 * A tensor that is not eg_ok has the dtype EG_DEFAULT, rank 0 and size 0; this records no error. */
EG_API eg_ctx *eg_context(const eg_tensor *); /* the context that x belongs to; NULL for NULL */
EG_API eg_dtype eg_type(const eg_tensor *);   /* the dtype of x */
EG_API const char *eg_type_name(eg_dtype);    /* "f32"; "unknown" for another number */
EG_API int eg_rank(const eg_tensor *);        /* the number of axes of x */
/* the size of an axis, of which −1 is the last; 0 after an error. eg_axes("b l d", x, &b, &l, &d)
 * gives the sizes by letters */
EG_API int64_t eg_dim(const eg_tensor *, int axis);
EG_API const int64_t *eg_dims(const eg_tensor *); /* sizes of all axes; zeros if x is not eg_ok */
EG_API int64_t eg_size(const eg_tensor *);        /* number of elements */
EG_API bool eg_ok(const eg_tensor *);             /* neither NULL nor poison nor freed */

/* -- reading elements ------------------------------------------------------------------------- */
/* The numbers of x in row-major order: its memory or, if that has another order, a copy in the open
 * scope, which is returned again until x changes. NULL after an error: x has another dtype. */
EG_API const float *eg_f32(eg_tensor *);
EG_API const double *eg_f64(eg_tensor *);
EG_API const int32_t *eg_i32(eg_tensor *);
EG_API const int64_t *eg_i64(eg_tensor *);
EG_API const bool *eg_bool(eg_tensor *);
/* real and imaginary parts alternately, as in an array of C's double complex */
EG_API const double *eg_c128(eg_tensor *);
EG_API const uint16_t *eg_f16(eg_tensor *);  /* the bits of each number */
EG_API const uint16_t *eg_bf16(eg_tensor *); /* the bits of each number */
EG_API const int8_t *eg_i8(eg_tensor *);     /* as eg_f32, for i8 */
EG_API const uint8_t *eg_u8(eg_tensor *);    /* as eg_f32, for u8 */
/* A pointer to element 0 in the storage itself; NULL after an error. strides receives one stride
 * for each axis, in elements; it may be NULL */
EG_API const void *eg_raw(eg_tensor *, int64_t *strides);
/* The value of one element, of any dtype but c128; NaN after an error. eg_item is for a tensor that
 * has a single element; in eg_get negative indices count from the end */
EG_API double eg_item(eg_tensor *);
EG_API double eg_get_n(eg_tensor *, int rank, const int64_t *index);
#ifndef __cplusplus
#define eg_get(x, ...) eg_get_n((x), EG_DIMS_(__VA_ARGS__)) /* one element, likewise */
#endif
EG_API int eg_print(FILE *, eg_tensor *); /* prints x in NumPy's format; −1 after an error */
/* Writes the text of eg_print to `out`, cut to `capacity` bytes including the final 0. Returns the
 * length of the whole text, as snprintf does; 0 after an error */
EG_API size_t eg_format(eg_tensor *, char *out, size_t capacity);

/* -- writing elements
 * Each of these calls counts as a change of the storage, so that a gradient that still needs the
 * old value is refused. */
/* The numbers of x, to be written; NULL after an error. Refused: a tensor that is not row-major, or
 * of another dtype. eg_assign writes to any view */
EG_API float *eg_mut_f32(eg_tensor *);
EG_API double *eg_mut_f64(eg_tensor *);
EG_API int32_t *eg_mut_i32(eg_tensor *);
EG_API int64_t *eg_mut_i64(eg_tensor *);
EG_API bool *eg_mut_bool(eg_tensor *);
EG_API double *eg_mut_c128(eg_tensor *);
EG_API uint16_t *eg_mut_f16(eg_tensor *);
EG_API uint16_t *eg_mut_bf16(eg_tensor *);
EG_API int8_t *eg_mut_i8(eg_tensor *);
EG_API uint8_t *eg_mut_u8(eg_tensor *);
/* target[…] = value (same shape and dtype, any strides); 0, or −1. Refused, as by eg_assign_all and
 * eg_fill: a target in which two elements share an address (eg_expand, eg_unfold), or that is not
 * writable (eg_is_writable) */
EG_API int eg_assign(eg_tensor *target, eg_tensor *value);
/* targets[k][…] = values[k], cast to the target's dtype, for each k: all of them or, after an
 * error, none. Whatever can fail is done before the first target changes, and every value is read
 * as it was before. Also refused: a c128 value for a target of another dtype. Returns 0, or −1 */
EG_API int eg_assign_all(int count, eg_tensor *const *targets, eg_tensor *const *values);
/* sets every element to `value`, converted as by eg_full_n; 0, or −1 */
EG_API int eg_fill(eg_tensor *target, double value);

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_CORE_
#include <eingrad/cxx.h>
#endif
#endif
