/* eingrad/check.h: assertions for the Check library (https://libcheck.github.io/check/). Header
 * only; link with -lcheck.
 *
 *     START_TEST(product) { eg_assert_grad(f, NULL, A, B); } END_TEST
 *
 * The failure text is the report of the gradient check, in which the inputs have the names A and B.
 * If the context has an error already, each assertion fails with the text of that error. */
#ifndef EINGRAD_CHECK_H
#define EINGRAD_CHECK_H
#include <check.h>
#include <eingrad/grad.h>
#include <math.h>
#include <string.h>

/* eg_assert_grad(f, user, xs…) passes if the gradient of f(user, {xs…}) agrees with differences in
 * every entry and every input was tested; see docs/gradcheck.md. eg_assert_grad2 checks the second
 * derivatives, too. eg_assert_gradcheck takes the arguments of eg_gradcheck: (f, user, count, xs,
 * .full = true). A failure is reported with the file and line of the assertion. */
#ifndef __cplusplus
#define eg_assert_grad(f, user, ...) \
    eg_assert_grad_((f), (user), #__VA_ARGS__, EG_XS_(__VA_ARGS__), 1, __FILE__, __LINE__)
#define eg_assert_grad2(f, user, ...) \
    eg_assert_grad_((f), (user), #__VA_ARGS__, EG_XS_(__VA_ARGS__), 2, __FILE__, __LINE__)
#define eg_assert_gradcheck(...) \
    eg_assert_passed_(EG_ARGS_(eg_gradcheck_args, __VA_ARGS__), __FILE__, __LINE__)
#else
#define eg_assert_grad(f, user, ...) \
    eg_assert_grad_of_((f), (user), #__VA_ARGS__, 1, __FILE__, __LINE__, __VA_ARGS__)
#define eg_assert_grad2(f, user, ...) \
    eg_assert_grad_of_((f), (user), #__VA_ARGS__, 2, __FILE__, __LINE__, __VA_ARGS__)
#define eg_assert_gradcheck(...) eg_assert_gradcheck_of_(__FILE__, __LINE__, __VA_ARGS__)
#endif
/* Passes if an operation (eg_op) of yours fulfils the contracts of operations and its gradient is
 * right, at each of its samples. */
#define eg_assert_op(op) eg_assert_op_((op), __FILE__, __LINE__)
/* Passes if a and b have the same shape and dtype and |a − b| ≤ tolerance · max(1, largest |b|) in
 * every element; NaN equals NaN. */
#define eg_assert_close(a, b, tolerance) \
    eg_assert_close_((a), (b), (tolerance), #a, #b, __FILE__, __LINE__)
/* Passes if a tensor has the axes that a string describes; the arguments are those of eg_axes. */
#ifndef __cplusplus
#define eg_assert_axes(...)                                                             \
    do {                                                                                \
        if (!eg_axes(__VA_ARGS__))                                                      \
            ck_abort_msg("%s", eg_assert_why_(EG_ARGS_(eg_axes_args, __VA_ARGS__)->x)); \
    } while (0)
#else
#define eg_assert_axes(...) eg_assert_axes_of_(__VA_ARGS__)
#endif
/* Passes if the context has an error whose text contains `substring`, and clears the error. */
#define eg_assert_error(cx, substring)                                                    \
    do {                                                                                  \
        const char *eg_said_ = eg_error(cx);                                              \
        ck_assert_msg(eg_said_ != NULL, "no error; expected one with '%s'", (substring)); \
        ck_assert_msg(strstr(eg_said_, (substring)) != NULL,                              \
                      "the error is '%s'; expected '%s' in it", eg_said_, (substring));   \
        eg_clear(cx);                                                                     \
    } while (0)
/* Passes if the context has no error. */
#define eg_assert_ok(cx) ck_assert_msg(!eg_error(cx), "%s", eg_error(cx))

/* -- what the macros call; names that end in _ are not for use in programs -------------------- */
static inline const char *eg_assert_why_(const eg_tensor *x)
{
    const char *e = x ? eg_error(eg_context(x)) : NULL;
    return e ? e : "the tensor is NULL";
}

static inline void eg_assert_passed_(const eg_gradcheck_args *o, const char *file, int line)
{
    const eg_report *r = eg_gradcheck_with(o);
    _mark_point(file, line);
    if (!r)
        _ck_assert_failed(file, line, "gradient check", "%s",
                          eg_assert_why_(o->count > 0 && o->xs ? o->xs[0] : NULL));
    else if (!r->passed)
        _ck_assert_failed(file, line, "gradient check", "%s", r->text);
}

static inline void eg_assert_op_(const eg_op *op, const char *file, int line)
{
    eg_ctx *cx = eg_open_with(NULL);
    const eg_report *r = cx ? eg_gradcheck_op(cx, op) : NULL;
    _mark_point(file, line);
    if (!r)
        _ck_assert_failed(file, line, "op", "%s", eg_error(cx));
    else if (!r->passed)
        _ck_assert_failed(file, line, "op", "%s", r->text);
    eg_close(cx);
}

static inline void eg_assert_grad_(eg_function *f, void *user, const char *names, int count,
                                   eg_tensor *const *xs, int order, const char *file, int line)
{
    eg_gradcheck_args o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o;
    o.f = f;
    o.user = user;
    o.count = count;
    o.xs = xs;
    o.names = names;
    o.order = order;
    eg_assert_passed_(&o, file, line);
}
#ifdef __cplusplus
template <class... P_> inline void eg_assert_axes_of_(const char *spec, eg_tensor *x, P_... out)
{
    if (!eg_axes(spec, x, out...)) ck_abort_msg("%s", eg_assert_why_(x));
}
template <class... X_>
inline void eg_assert_grad_of_(eg_function *f, void *user, const char *names, int order,
                               const char *file, int line, X_... x)
{
    eg_tensor *const xs[] = { x... };
    eg_assert_grad_(f, user, names, int(sizeof...(x)), xs, order, file, line);
}
inline void eg_assert_gradcheck_of_(const char *file, int line, eg_function *f, void *user,
                                    int count, eg_tensor *const *xs,
                                    eg_gradcheck_args o = eg_gradcheck_args())
{
    o.size = sizeof o, o.f = f, o.user = user, o.count = count, o.xs = xs;
    eg_assert_passed_(&o, file, line);
}
#endif

/* Element n of x, in row-major order; f32 and f64 are read from memory. */
static inline double eg_assert_number_(eg_tensor *x, const float *f32, const double *f64, int64_t n)
{
    int64_t index[EG_RANK_MAX] = { 0 };
    if (f32) return (double)f32[n];
    if (f64) return f64[n];
    for (int k = eg_rank(x); k-- > 0; n /= eg_dim(x, k)) index[k] = n % eg_dim(x, k);
    return eg_get_n(x, eg_rank(x), index);
}
static inline void eg_assert_close_(eg_tensor *a, eg_tensor *b, double tolerance,
                                    const char *a_text, const char *b_text, const char *file,
                                    int line)
{
    ck_assert_msg(eg_ok(a), "%s:%d: %s: %s", file, line, a_text, eg_assert_why_(a));
    ck_assert_msg(eg_ok(b), "%s:%d: %s: %s", file, line, b_text, eg_assert_why_(b));
    ck_assert_msg(eg_type(a) == eg_type(b), "%s:%d: %s is %s, %s is %s", file, line, a_text,
                  eg_type_name(eg_type(a)), b_text, eg_type_name(eg_type(b)));
    ck_assert_msg(eg_rank(a) == eg_rank(b), "%s:%d: %s has rank %d, %s has rank %d", file, line,
                  a_text, eg_rank(a), b_text, eg_rank(b));
    /* eg_get_n reads real numbers: compare the real parts, then the imaginary parts */
    if (eg_type(a) == EG_C128) {
        eg_assert_close_(eg_real(a), eg_real(b), tolerance, a_text, b_text, file, line);
        eg_assert_close_(eg_imag(a), eg_imag(b), tolerance, a_text, b_text, file, line);
        return;
    }
    int64_t index[EG_RANK_MAX] = { 0 }, size = eg_size(a), first = -1, worst = -1;
    double largest = 1, apart = 0;
    for (int k = 0; k < eg_rank(a); k++)
        ck_assert_msg(eg_dim(a, k) == eg_dim(b, k),
                      "%s:%d: axis %d of %s has size %lld, of %s %lld", file, line, k, a_text,
                      (long long)eg_dim(a, k), b_text, (long long)eg_dim(b, k));
    const float *a32 = eg_type(a) == EG_F32 ? eg_f32(a) : NULL,
                *b32 = eg_type(b) == EG_F32 ? eg_f32(b) : NULL;
    const double *a64 = eg_type(a) == EG_F64 ? eg_f64(a) : NULL,
                 *b64 = eg_type(b) == EG_F64 ? eg_f64(b) : NULL;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t n = 0; n < size; n++) {
            double p = eg_assert_number_(a, a32, a64, n), q = eg_assert_number_(b, b32, b64, n),
                   d = fabs(p - q);
            if (pass == 0) {
                if (isfinite(q) && fabs(q) > largest) largest = fabs(q);
                continue;
            }
            if (p == q || (isnan(p) && isnan(q)) || d <= tolerance * largest) continue;
            if (first < 0) first = n;
            if (worst < 0 || !(d <= apart)) {
                worst = n;
                apart = d;
            }
        }
    if (first < 0) return;
    char text[2][160];
    for (int t = 0; t < 2; t++) {
        int64_t rest = t ? worst : first;
        size_t w = 0;
        for (int k = eg_rank(a); k-- > 0;) {
            index[k] = rest % eg_dim(a, k);
            rest /= eg_dim(a, k);
        }
        text[t][0] = 0;
        for (int k = 0; k < eg_rank(a) && w < sizeof text[t]; k++)
            w += (size_t)snprintf(text[t] + w, sizeof text[t] - w, k ? ", %lld" : "[%lld",
                                  (long long)index[k]);
        if (w < sizeof text[t])
            snprintf(text[t] + w, sizeof text[t] - w, "%s is %.9g, not %.9g",
                     eg_rank(a) ? "]" : "the value", eg_get_n(a, eg_rank(a), index),
                     eg_get_n(b, eg_rank(b), index));
    }
    ck_abort_msg("%s:%d: %s differs from %s beyond %g: first %s; worst %s", file, line, a_text,
                 b_text, tolerance, text[0], text[1]);
}
#endif
