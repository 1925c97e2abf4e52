/* test_switches.c: functions of a program that leave a switch of the context changed (eg_train,
 * eg_nograd, eg_flush, eg_trace), or fail while it is changed: afterwards it is as it was. */
#include <eingrad.h>
#include <eingrad/check.h>
#include <string.h>
#include "tests.h"

static void change(eg_ctx *cx, int which)
{
    if (which == 0) eg_eval(cx);
    if (which == 1) eg_nograd(cx, true);
    if (which == 2) eg_flush(cx, true);
    if (which == 3) eg_trace(cx, true);
}
static const char *const changed[] = { "eg_eval", "eg_nograd", "eg_flush", "eg_trace" };

/* A program whose functions change switch `which`, and then fail or not. */
typedef struct leaving {
    eg_ctx *cx;
    eg_tensor *x;
    int which;
    bool fails;
    bool changes;
} leaving;
static eg_tensor *left(leaving *u, eg_tensor *y)
{
    if (u->changes) change(u->cx, u->which);
    return u->fails ? eg_fail(u->cx, "a failure of the program") : y;
}
static int leaving_step(void *user, eg_tensor **out)
{
    leaving *u = user;
    out[0] = left(u, eg_tanh(u->x));
    return eg_ok(out[0]) ? 0 : -1;
}
static eg_tensor *leaving_part(void *user, eg_tensor *const *x) { return left(user, eg_tanh(*x)); }
static eg_tensor *leaving_scores(void *user, eg_tensor *s) { return left(user, eg_scale(s, 2)); }
static eg_tensor *leaving_layer(void *user, int64_t layer, eg_tensor *x)
{
    return layer ? x : left(user, x);
}
static eg_tensor *leaving_hook(void *user, eg_tensor *x, eg_tensor *g)
{
    (void)x;
    return left(user, g);
}
static int leaving_host(void *args, int count, eg_tensor *const *x)
{
    leaving *u;
    (void)count, (void)x;
    memcpy(&u, args, sizeof u);
    return eg_ok(left(u, u->x)) ? 0 : -1;
}
static eg_tensor *leaving_next(void *user, const eg_prefixes *p)
{
    leaving *u = user;
    return left(u, eg_zeros(u->cx, p->rows, 5));
}

/* -- the calls -------------------------------------------------------------------------------- */
static void call_capture(leaving *u) { eg_capture(u->cx, leaving_step, u, 1); }
static void call_checkpoint(leaving *u) { eg_checkpoint(leaving_part, u, 1, &u->x); }
static void call_again(leaving *u) /* the second call, of the backward pass */
{
    eg_tensor *g;
    u->changes = false;
    const bool fails = u->fails;
    u->fails = false;
    eg_tensor *y = eg_sum(NULL, eg_checkpoint(leaving_part, u, 1, &u->x));
    u->changes = true, u->fails = fails;
    eg_grad(y, NULL, 1, &u->x, &g);
}
static void call_score_fn(leaving *u)
{
    eg_attention("id,jd,je->ie", u->x, u->x, u->x, .score_fn = leaving_scores, .user = u);
}
static void call_weights_fn(leaving *u)
{
    eg_attention("id,jd,je->ie", u->x, u->x, u->x, .weights_fn = leaving_scores, .user = u);
}
static void call_module_score_fn(leaving *u)
{
    eg_mha *at = eg_mha_new(eg_params_open(u->cx), "at", .d_model = 4, .heads = 2,
                            .score_fn = leaving_scores, .user = u);
    eg_mha_run(at, eg_zeros(u->cx, 1, 3, 4));
}
static void call_layer_fn(leaving *u)
{
    eg_transformer *net = eg_transformer_new(eg_params_open(u->cx), "net", .vocabulary = 7,
                                             .length = 9, .d_model = 8, .heads = 2, .layers = 1);
    eg_transformer_run(net, eg_randint(u->cx, 0, 7, 1, 9), .layer_fn = leaving_layer, .user = u);
}
static void call_hook(leaving *u)
{
    eg_tensor *y = eg_tanh(u->x), *g;
    eg_hook(y, leaving_hook, u);
    eg_grad(eg_sum(NULL, y), NULL, 1, &u->x, &g);
}
static void call_host(leaving *u) { eg_host_call(u->cx, leaving_host, &u, sizeof u, 0, NULL); }
/* An operation one of whose functions changes the switch. */
static leaving *of_op;
static enum { IN_FORWARD, IN_RULE, IN_JVP } of_op_in; /* which one */
static bool leaving_shape(eg_tensor *y)
{
    eg_tensor *x = eg_operand(y, 0);
    return eg_result(y, eg_type(x), eg_rank(x), eg_dims(x));
}
static bool leaving_forward(eg_tensor *y)
{
    if (of_op_in == IN_FORWARD) left(of_op, y);
    return !eg_assign(y, eg_tanh(eg_detach(eg_operand(y, 0))));
}
static eg_tensor *leaving_rule(eg_tensor *y, eg_tensor *g, int i)
{
    (void)y, (void)i;
    return of_op_in == IN_RULE ? left(of_op, g) : g;
}
static eg_tensor *leaving_jvp(eg_tensor *y, eg_tensor *const *dx)
{
    (void)y;
    return of_op_in == IN_JVP ? left(of_op, dx[0]) : dx[0];
}
static const eg_op leaving_op = { .name = "leaving",
                                  .arity = 1,
                                  .shape = leaving_shape,
                                  .forward = leaving_forward,
                                  .rule = leaving_rule,
                                  .jvp = leaving_jvp };
static eg_tensor *leaving_applied(leaving *u, int in)
{
    of_op = u;
    of_op_in = in;
    return eg_apply(&leaving_op, NULL, 0, 1, &u->x);
}
static void call_forward(leaving *u) { leaving_applied(u, IN_FORWARD); }
static void call_rule(leaving *u)
{
    eg_tensor *g;
    eg_grad(eg_sum(NULL, leaving_applied(u, IN_RULE)), NULL, 1, &u->x, &g);
}
static void call_jvp(leaving *u) { eg_jvp(leaving_applied(u, IN_JVP), 1, &u->x, &u->x); }
static eg_tensor *leaving_f(void *user, eg_tensor *const *x)
{
    leaving *u = user, own = *u;
    own.x = x[0];
    eg_tensor *y = leaving_applied(&own, IN_RULE);
    of_op = u;
    return y;
}
static void call_gradcheck(leaving *u) { eg_gradcheck(leaving_f, u, 1, &u->x); }
static void call_decode(leaving *u)
{
    eg_decode(.cx = u->cx, .next = leaving_next, .user = u, .prompt = (int32_t[]){ 1 },
              .prompt_length = 1, .max_new_tokens = 3, .end = 4);
}
static const struct {
    void (*call)(leaving *);
    const char *says; /* followed by the switch and "was called in"; NULL: not refused */
    const char *where;
} calls[] = {
    { call_capture, NULL, NULL },
    { call_host, NULL, NULL },
    { call_decode, NULL, NULL },
    { call_checkpoint, "checkpoint", "f" },
    { call_again, "checkpoint", "f" },
    { call_score_fn, "attention", ".score_fn" },
    { call_weights_fn, "attention", ".weights_fn" },
    { call_module_score_fn, "mha \"at\": attention", ".score_fn" },
    { call_layer_fn, "transformer \"net\"", ".layer_fn" },
    { call_hook, "grad", "a hook" },
    { call_forward, "leaving", "its shape() or forward()" },
    { call_rule, "leaving", "its rule" },
    { call_jvp, "leaving", "its jvp" },
    { call_gradcheck, "leaving", "its rule" },
};
enum { CALLS = sizeof calls / sizeof *calls };

static bool as_opened(eg_ctx *cx)
{
    const bool nograd = eg_nograd(cx, false), trace = eg_trace(cx, false);
    return eg_training(cx) && !eg_flushes(cx) && !nograd && !trace;
}
LOOP_TEST(functions_of_the_program_leave_the_switches_as_they_were, 4 * CALLS)
{
    const int k = _i / 4;
    leaving u = { .which = _i % 4, .changes = true };
    u.cx = eg_open(.threads = 1, .dtype = EG_F64);
    u.x = eg_uniform(u.cx, -1, 1, 3, 4);
    calls[k].call(&u);
    if (calls[k].says) {
        char says[160];
        snprintf(says, sizeof says, "%s: %s was called in %s and not undone", calls[k].says,
                 changed[u.which], calls[k].where);
        ck_assert_int_eq(eg_error_code(u.cx), EG_ERROR_MISUSE);
        eg_assert_error(u.cx, says);
    }
    eg_assert_ok(u.cx);
    ck_assert(as_opened(u.cx));
    u.fails = true;
    calls[k].call(&u);
    eg_assert_error(u.cx, "a failure of the program");
    ck_assert(as_opened(u.cx));
    eg_close(u.cx);
}

/* A switch that a function changes and undoes is no error. */
static eg_tensor *undoing(void *user, eg_tensor *s)
{
    eg_ctx *cx = user;
    const eg_switches was = eg_switches_of(cx);
    for (int k = 0; k < 4; k++) change(cx, k);
    ck_assert_str_eq(eg_switches_restore(cx, was), "eg_eval");
    ck_assert_ptr_null(eg_switches_restore(cx, was));
    return s;
}
TEST(switches_that_are_restored_are_no_error)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_tensor *x = eg_uniform(cx, -1, 1, 3, 4);
    eg_attention("id,jd,je->ie", x, x, x, .score_fn = undoing, .user = cx);
    eg_assert_ok(cx);
    ck_assert(as_opened(cx));
    ck_assert_ptr_null(eg_switches_restore(NULL, eg_switches_of(NULL)));
    eg_close(cx);
}
