/* test_recapture.c: blocks of steps that are captured, and run again (eg_captured_blocks_open). */
#if HAVE_CONFIG_H
#include <config.h> /* EG_DEBUG_ALLOC */
#endif
#include <eingrad.h>
#include <eingrad/check.h>
#include <eingrad/network.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"

enum { EXAMPLES = 45, LENGTH = 6, CLASSES = 7, WIDE = 16 };

/* -- a custom loop on data that change from step to step --------------------------------------- */
typedef struct school {
    eg_ctx *cx;
    eg_params *params;
    eg_transformer *net;
    eg_tensor *idle; /* a parameter on which no loss depends */
    eg_opt *opt;
    eg_captured_blocks *captured;
    int64_t length;   /* length of this step's examples */
    int reads;        /* which call of the loss cannot be captured */
    atomic_int calls; /* of the loss */
    int32_t token[EXAMPLES * LENGTH], target[EXAMPLES * LENGTH];
} school;
static void school_open(school *s, int threads, double dropout, bool captured)
{
    *s = (school){ .cx = eg_open(.threads = threads, .seed = 5), .length = LENGTH };
    s->params = eg_params_open(s->cx);
    s->net = eg_transformer_new(.params = s->params, .vocabulary = CLASSES, .length = LENGTH,
                                .layers = 2, .d_model = WIDE, .heads = 2, .dropout = dropout);
    s->idle = eg_param(s->params, "idle", "k", 3);
    s->opt = eg_adam(s->params, .lr = 1e-2);
    if (captured) s->captured = eg_captured_blocks_open(s->cx);
    eg_assert_ok(s->cx);
}
static void school_data(school *s, int step)
{
    uint32_t r = (uint32_t)step + 1;
    s->length = step % 3 == 2 ? LENGTH - 2 : LENGTH;
    for (int k = 0; k < EXAMPLES * LENGTH; k++) {
        r = r * 1664525 + 1013904223;
        s->token[k] = (int32_t)(r >> 16) % CLASSES;
        s->target[k] = r >> 30 ? (int32_t)(r >> 8) % CLASSES : -1;
    }
}
typedef struct school_rows {
    const school *s;
    eg_ctx *cx;
    bool target;
} school_rows;
static int read_rows(void *args, void *to, int64_t n)
{
    const school_rows *a = args;
    int64_t from = 0, end;
    eg_block_range(a->cx, &from, &end); /* outside of blocks all examples from 0 on are used */
    const int32_t *all = a->target ? a->s->target : a->s->token;
    memcpy(to, all + from * a->s->length, (size_t)n * sizeof *all);
    return 0;
}
typedef struct school_count {
    const school *s;
    eg_ctx *cx;
    int64_t *count;
} school_count;
static int count_rows(void *args, int count, eg_tensor *const *xs)
{
    const school_count *a = args;
    const int32_t *target = eg_i32(xs[0]);
    (void)count;
    *a->count = 0;
    for (int64_t k = 0; target && k < eg_size(xs[0]); k++) *a->count += target[k] >= 0;
    return target ? 0 : -1;
}
static eg_tensor *school_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    school *s = user;
    const int64_t dims[] = { to - from, s->length };
    const school_rows tokens = { s, cx, false }, targets = { s, cx, true };
    atomic_fetch_add(&s->calls, 1);
    eg_tensor *target = eg_from_call(cx, EG_I32, 2, dims, read_rows, &targets, sizeof targets),
              *token = eg_from_call(cx, EG_I32, 2, dims, read_rows, &tokens, sizeof tokens);
    eg_host_call(cx, count_rows, &(school_count){ s, cx, count }, sizeof(school_count), 1, &target);
    eg_tensor *logits =
        eg_transformer_run(.transformer = s->net, .index = token, .where = "j <= i");
    if (s->reads == 1) eg_item(eg_sum(NULL, logits));
    if (s->reads == 2) eg_from(cx, ((float[]){ 1, 2 }), 2);
    eg_tensor *one = eg_cross_entropy("b l [v]", logits, target, .ignore = -1, .each = true);
    return eg_sum(NULL, one);
}
static void school_kind(void *user, int64_t from, int64_t to, int64_t kind[EG_KIND_NUMBERS])
{
    const school *s = user;
    (void)from;
    (void)to;
    kind[0] = s->length;
}
typedef struct course {
    int threads;
    int64_t block;
    int leaves;
    bool serial;
} course;
/* Hash of losses and parameters after some steps. */
static uint64_t school_hash(school *s, const course *c, int steps)
{
    uint64_t h = 1;
    for (int k = 0; k < steps; k++) {
        double mean = 0;
        int64_t counted = 0;
        school_data(s, k);
        eg_step_over(s->opt, school_loss, s, EXAMPLES, .block = c->block, .leaves = c->leaves,
                     .serial = c->serial, .mean = &mean, .counted = &counted,
                     .captured = s->captured, .kind = school_kind);
        eg_assert_ok(s->cx);
        h = eg_hash(eg_hash(h, &mean, sizeof mean), &counted, sizeof counted);
    }
    for (int k = 0; k < eg_params_count(s->params); k++)
        h = hash_tensor(h, eg_params_at(s->params, k)->x);
    return h;
}
static const course courses[] = {
    { 1, 4, 16, false }, /* a leaf is a block, the last of which is shorter */
    { 1, 2, 4, false },  /* … or several: the first one writes, the others add */
    { 3, 2, 5, false },  /* any thread may compute any leaf */
    { 2, 8, 16, true },  /* one thread calls, two compute */
};
enum { COURSES = sizeof courses / sizeof *courses };
LOOP_TEST(captured_blocks_have_the_bits_of_others, COURSES)
{
    school a, b;
    const course *c = &courses[_i];
    school_open(&a, c->threads, 0.2, false);
    school_open(&b, c->threads, 0.2, true);
    ck_assert(school_hash(&a, c, 12) == school_hash(&b, c, 12));
    const int blocks = (int)((EXAMPLES + c->block - 1) / c->block);
    ck_assert_int_ge(a.calls, 12 * blocks);
    /* for either length a thread calls the loss for some full blocks and some last ones, first and
     * later ones of a leaf; and the test whether the loss is a sum calls it three times */
    ck_assert_int_le(b.calls, 3 + c->threads * 2 * 3 * 4);
    ck_assert_uint_gt(eg_captured_blocks_bytes(b.captured), 1000);
    ck_assert_uint_eq(eg_captured_blocks_bytes(NULL), 0);
    eg_captured_blocks_free(b.captured);
    eg_close(a.cx);
    eg_close(b.cx);
}

/* If the loss cannot be captured, it is called for each block, with the same bits. */
LOOP_TEST(a_loss_that_cannot_be_captured_is_called, 2)
{
    school a, b;
    const course *c = &courses[2];
    school_open(&a, c->threads, 0.2, false);
    school_open(&b, c->threads, 0.2, true);
    a.reads = b.reads = _i + 1;
    ck_assert(school_hash(&a, c, 5) == school_hash(&b, c, 5));
    ck_assert_int_ge(b.calls, a.calls);
    eg_close(a.cx);
    eg_close(b.cx);
}

/* The same captured blocks for other losses, sizes, states: each begins again or is another
 * kind. */
/* A loss that computes gradients itself, y + |∂y/∂x|²: the call that is compared with the first run
 * has a history too. */
typedef struct penalised {
    eg_ctx *cx;
    eg_tensor *w;
    atomic_int calls;
} penalised;
static int penalised_rows(void *args, void *to, int64_t n)
{
    const penalised *p = *(penalised **)args;
    float *x = to;
    int64_t from = 0;
    eg_block_range(p->cx, &from, NULL);
    for (int64_t k = 0; k < n; k++) x[k] = sinf(0.7f * (float)(from * 4 + k));
    return 0;
}
static eg_tensor *penalised_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    penalised *p = user;
    const int64_t dims[] = { to - from, 4 };
    eg_tensor *x = eg_from_call(cx, EG_F32, 2, dims, penalised_rows, &p, sizeof p), *g;
    (void)count;
    atomic_fetch_add(&p->calls, 1);
    eg_tensor *y = eg_sum(NULL, eg_tanh(eg_einsum("ei,ij->ej", x, p->w)));
    return eg_grad(y, NULL, 1, &x, &g) ? NULL : eg_add(y, eg_sum(NULL, eg_square(g)));
}
TEST(a_loss_that_computes_gradients_is_captured)
{
    float w[4][12];
    for (int k = 0; k < 4; k++) { /* captured with 1 … 3 threads; not captured */
        penalised p = { .cx = eg_open(.threads = k + 1, .seed = 3) };
        eg_params *params = eg_params_open(p.cx);
        p.w = eg_param(params, "w", "ij", 4, 3);
        eg_opt *opt = eg_adam(params, .lr = 0.01);
        eg_captured_blocks *blocks = k < 3 ? eg_captured_blocks_open(p.cx) : NULL;
        for (int step = 0; step < 5; step++)
            eg_step_over(opt, penalised_loss, &p, 32, .block = 2, .captured = blocks);
        eg_assert_ok(p.cx);
        memcpy(w[k], eg_f32(p.w), sizeof w[k]);
        ck_assert_int_eq(memcmp(w[k], w[0], sizeof w[k]), 0);
        /* of 80 blocks */
        ck_assert_int_le(p.calls, k < 3 ? 40 : 90);
        eg_close(p.cx);
    }
}

TEST(another_step_is_captured_anew)
{
    school a, b;
    school_open(&a, 2, 0.2, false);
    school_open(&b, 2, 0.2, true);
    uint64_t h[2] = { 1, 1 };
    for (int k = 0; k < 40; k++) {
        const course c = { 2, 1 + k % 20, 1 + k % 7, false }; /* more kinds than are stored */
        school *const s[] = { &a, &b };
        for (int i = 0; i < 2; i++) {
            if (k % 5 == 4) eg_eval(s[i]->cx);
            h[i] ^= school_hash(s[i], &c, 2);
            eg_train(s[i]->cx);
            if (k == 20) { /* other xs */
                s[i]->opt = eg_sgd(s[i]->params, .lr = 1e-3);
                ck_assert(s[i]->opt != NULL);
            }
        }
        ck_assert(h[0] == h[1]);
    }
    eg_close(a.cx);
    eg_close(b.cx);
}

/* -- tensors that no longer exist, and values that need other operations ----------------------- */
typedef struct lecture {
    eg_tensor *w, *factor;
    const float *x;
    atomic_int calls;
} lecture;
static int read_x(void *args, void *to, int64_t n)
{
    const school_rows *a = args;
    int64_t from = 0, end;
    eg_block_range(a->cx, &from, &end);
    memcpy(to, ((const lecture *)(const void *)a->s)->x + 3 * from, (size_t)n * sizeof(float));
    return 0;
}
static eg_tensor *lecture_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    lecture *l = user;
    const school_rows at = { user, cx, false };
    const int64_t dims[] = { to - from, 3 };
    atomic_fetch_add(&l->calls, 1);
    *count = to - from;
    eg_tensor *x = eg_from_call(cx, EG_F32, 2, dims, read_x, &at, sizeof at);
    /* what is masked may be infinite, which takes another operation */
    eg_tensor *p = eg_softmax("b [d]", eg_mul(x, l->w), .where = "d <= b");
    return eg_sum(NULL, eg_mul(eg_mul(p, x), l->factor));
}
#if !EG_DEBUG_ALLOC /* there a sanitizer reports that the header of a freed tensor is read */
/* A parent's tensor that lives for one step; in the next step another one with its bits has another
 * address. */
TEST(tensors_that_are_gone_begin_anew)
{
    float x[36];
    for (int k = 0; k < 36; k++) x[k] = (float)(k % 5) - 2;
    uint64_t h[2] = { 1, 1 };
    for (int i = 0; i < 2; i++) {
        eg_ctx *cx = eg_open(.threads = 2);
        lecture l = { .x = x, .w = eg_full(cx, 0.5, 3) };
        eg_captured_blocks *c = i ? eg_captured_blocks_open(cx) : NULL;
        for (int k = 0; k < 80; k++) {
            const eg_mark m = eg_push(cx);
            for (int n = 0; n < k % 3; n++) eg_full(cx, 9, 100);
            l.factor = eg_full(cx, k + 1, 3);
            eg_tensor *g;
            double mean;
            ck_assert_msg(!eg_grad_over(cx, lecture_loss, &l, 12, 1, &l.w, &g, .block = 3,
                                        .mean = &mean, .captured = c),
                          "%s", eg_error(cx));
            h[i] = hash_tensor(eg_hash(h[i], &mean, sizeof mean), g);
            eg_pop(cx, m);
        }
        eg_close(cx);
    }
    ck_assert(h[0] == h[1]);
}
#endif
TEST(numbers_that_need_other_operations)
{
    float x[36];
    uint64_t h[2] = { 1, 1 };
    for (int i = 0; i < 2; i++) {
        eg_ctx *cx = eg_open(.threads = 2);
        lecture l = { .x = x, .w = eg_full(cx, 0.5, 3), .factor = eg_full(cx, 2, 3) };
        eg_captured_blocks *c = i ? eg_captured_blocks_open(cx) : NULL;
        for (int k = 0; k < 12; k++) {
            for (int n = 0; n < 36; n++) x[n] = (float)(n % 7) - 2;
            if (k % 4 == 3) x[5] = k == 3 ? -INFINITY : 3e38f;
            eg_tensor *g;
            double mean = 0;
            const int bad = eg_grad_over(cx, lecture_loss, &l, 12, 1, &l.w, &g, .block = 3,
                                         .leaves = 2, .mean = &mean, .captured = c);
            char said[300];
            snprintf(said, sizeof said, "%s", bad ? eg_error(cx) : "");
            h[i] = eg_hash(h[i], said, strlen(said));
            if (!bad) h[i] = hash_tensor(eg_hash(h[i], &mean, sizeof mean), g);
            eg_clear(cx);
        }
        eg_close(cx);
    }
    ck_assert(h[0] == h[1]);
}

/* -- trainers ---------------------------------------------------------------------------------- */
static uint64_t trainer_hash(const eg_trainer_args *o, int threads, const char *task, int steps,
                             bool heads)
{
    eg_ctx *cx = eg_open(.threads = threads);
    eg_trainer_args a = *o;
    a.size = sizeof a;
    a.data = strchr(task, ' ') ? eg_data_corpus_of(cx, task, strlen(task), "a text")
                               : eg_data_task(cx, eg_task_find(task));
    eg_trainer *t = eg_trainer_new_with(&a);
    uint64_t h = 1;
    for (int k = 0; k < steps; k++) {
        eg_progress p;
        if (heads && k % 3 == 1)
            eg_trainer_heads_off(t, 1, &(eg_head_at){ .attention = 0, .head = k % 2 });
        if (heads && k % 3 == 0) eg_trainer_heads_off(t, 0, NULL);
        ck_assert_msg(!eg_trainer_step(t, &p), "%s", eg_error(cx));
        const double told[] = { p.loss, p.accuracy, p.sequence_accuracy, p.norm };
        h = eg_hash(h, told, sizeof told);
    }
    for (int k = 0; k < eg_params_count(eg_trainer_params(t)); k++)
        h = hash_tensor(h, eg_params_at(eg_trainer_params(t), k)->x);
    eg_close(cx);
    return h;
}
static const char poem[] = "one two three four five six seven eight nine ten eleven twelve "
                           "thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty ";
static const struct school_trainer {
    const char *task;
    eg_trainer_args o;
    eg_mha_args mha;
    bool heads;
} trained[] = {
    { "reverse", { .dropout = 0.1 }, { 0 }, false },
    { "copy", { .model = "decoder", .smoothing = 0.1 }, { 0 }, true },
    { "sort", { .model = "seq2seq", .dropout = 0.2 }, { 0 }, true },
    { "reverse", { .norm = "rms", .ffn = "swiglu" }, { .kv_heads = 1, .rotary = 1e4 }, false },
    { "copy", { .model = "decoder" }, { .score = "20 * tanh(score / 20)", .sink = true }, false },
    { "copy",
      { .model = "decoder" },
      { .linear = &(eg_linear_attention_args){ .size = 0 } },
      false },
    { "reverse",
      { .norm = "post", .dropout = 0.1 },
      { .where = "i - j < 5", .alibi = true },
      false },
    { "reverse", { .diversity = 0.5 }, { 0 }, false },
    { poem, { .context = 8, .batch = 12 }, { 0 }, false },
};
LOOP_TEST(a_trainer_has_the_bits_of_one_that_captures_nothing, sizeof trained / sizeof *trained)
{
    eg_trainer_args o = trained[_i].o;
    o.attention = &trained[_i].mha;
    o.layers = 2, o.d_model = WIDE, o.heads = 2, o.lr = 1e-2;
    if (!o.batch) o.batch = 24;
    const bool heads = trained[_i].heads;
    const uint64_t captured = trainer_hash(&o, 1, trained[_i].task, 10, heads);
    ck_assert(captured == trainer_hash(&o, 3, trained[_i].task, 10, heads));
    o.eager = true;
    ck_assert(captured == trainer_hash(&o, 2, trained[_i].task, 10, heads));
}

/* -- refusals, memory -------------------------------------------------------------------------- */
static eg_tensor *loss_inside(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    (void)from, (void)to, (void)count;
    eg_captured_blocks_open(cx);
    return eg_sum(NULL, user);
}
TEST(what_is_refused)
{
    eg_ctx *cx = eg_open(.threads = 1), *other = eg_open(.threads = 1);
    eg_tensor *x = eg_full(cx, 1, 4), *g;
    eg_captured_blocks *c = eg_captured_blocks_open(other);
    ck_assert(eg_grad_over(cx, loss_inside, x, 4, 1, &x, &g, .captured = c));
    eg_assert_error(cx, "grad_over: the captured blocks belong to another context");
    ck_assert(eg_grad_over(cx, loss_inside, x, 4, 1, &x, &g));
    eg_assert_error(cx, "capture_blocks: inside of a block");
    ck_assert_int_eq(eg_block_range(cx, NULL, NULL), -1);
    ck_assert_int_eq(eg_block_range(NULL, NULL, NULL), -1);
    ck_assert(!eg_error(cx));
    ck_assert_ptr_null(eg_captured_blocks_open(NULL));
    eg_captured_blocks_free(NULL);
    ck_assert(!eg_ok(eg_from_call(cx, EG_F32, 1, (int64_t[]){ 2 }, NULL, NULL, 0)));
    eg_assert_error(cx, "from_call: the function is NULL");
    ck_assert(!eg_ok(eg_from_call(cx, EG_F32, 1, (int64_t[]){ 2 }, read_x, NULL, 8)));
    eg_assert_error(cx, "from_call: arguments are NULL");
    ck_assert(!eg_ok(eg_from_call(cx, EG_F32, 1, (int64_t[]){ -2 }, read_x, NULL, 0)));
    eg_assert_error(cx, "from_call: size -2 of axis 0 is negative");
    eg_close(cx);
    eg_close(other);
}
static int fails(void *args, void *to, int64_t n)
{
    (void)args, (void)to;
    return n > 0;
}
static int says(void *args, void *to, int64_t n)
{
    (void)to;
    eg_fail_as(*(eg_ctx **)args, EG_ERROR_FILE, "no numbers for %d elements", (int)n);
    return -1;
}
TEST(a_function_that_fails)
{
    eg_ctx *cx = eg_open(.threads = 1);
    ck_assert(!eg_ok(eg_from_call(cx, EG_F64, 1, (int64_t[]){ 2 }, fails, NULL, 0)));
    eg_assert_error(cx, "from_call: the function failed without recording an error");
    ck_assert(!eg_ok(eg_from_call(cx, EG_F64, 1, (int64_t[]){ 2 }, says, &cx, sizeof cx)));
    eg_assert_error(cx, "no numbers for 2 elements");
    ck_assert(eg_ok(eg_from_call(cx, EG_BOOL, 1, (int64_t[]){ 0 }, fails, NULL, 0)));
    eg_close(cx);
}
/* Blocks of one call with different shapes: block k sums the first 1 + k % 3 columns. */
typedef struct columns {
    eg_tensor *x, *w;
    atomic_int calls;
} columns;
static void columns_kind(void *user, int64_t from, int64_t to, int64_t kind[EG_KIND_NUMBERS])
{
    (void)user;
    (void)to;
    kind[EG_KIND_NUMBERS - 1] = from % 3;
}
static int columns_read(void *args, void *to, int64_t n)
{
    const columns *c = *(columns **)args;
    int64_t from;
    eg_block_range(eg_context(c->x), &from, NULL);
    for (int64_t k = 0; k < n; k++) ((double *)to)[k] = (double)(from + k + 1);
    return 0;
}
static eg_tensor *columns_loss(void *user, eg_ctx *c, int64_t from, int64_t to, int64_t *count)
{
    columns *u = user;
    (void)to, (void)count;
    atomic_fetch_add(&u->calls, 1);
    const int64_t n = 1 + from % 3;
    eg_tensor *a = eg_from_call(c, EG_F64, 1, &n, columns_read, &u, sizeof u);
    return eg_sum(NULL, eg_mul(eg_square(a), eg_slice_axis(u->w, 0, 0, n, 1)));
}
TEST(blocks_of_one_call_have_kinds)
{
    eg_ctx *cx = eg_open(.threads = 1, .dtype = EG_F64);
    columns c = { .x = eg_ones(cx, 1), .w = eg_ones(cx, 3) };
    eg_captured_blocks *kept = eg_captured_blocks_open(cx);
    eg_tensor *plain, *d;
    for (int turn = 0; turn < 4; turn++) {
        eg_mark m = eg_push(cx);
        const int before = atomic_load(&c.calls);
        ck_assert(!eg_grad_over(cx, columns_loss, &c, 12, 1, &c.w, &d, .block = 1, .captured = kept,
                                .kind = columns_kind));
        const int called = atomic_load(&c.calls) - before;
        ck_assert(!eg_grad_over(cx, columns_loss, &c, 12, 1, &c.w, &plain, .block = 1));
        ck_assert(!memcmp(eg_f64(d), eg_f64(plain), 3 * sizeof(double)));
        /* for each of three kinds two calls, and one to compare the first run; later none */
        ck_assert_int_eq(called, turn ? 0 : 9);
        eg_pop(cx, m);
    }
    eg_close(cx);
}
/* A loss that takes its examples by `from`, or does not set its count in each run: a captured run
 * would compute the examples of another block. */
static eg_tensor *sliced_loss(void *user, eg_ctx *c, int64_t from, int64_t to, int64_t *count)
{
    columns *u = user;
    (void)c, (void)count;
    return eg_sum(NULL, eg_mul(eg_slice_axis(u->x, 0, from, to, 1), u->w));
}
static eg_tensor *counting_loss(void *user, eg_ctx *c, int64_t from, int64_t to, int64_t *count)
{
    columns *u = user;
    (void)c, (void)to;
    *count = 1 + from;
    return eg_sum(NULL, eg_square(u->w));
}
TEST(blocks_that_read_what_is_not_their_own_are_refused)
{
    for (int threads = 1; threads <= 2; threads++) {
        eg_ctx *cx = eg_open(.threads = threads, .dtype = EG_F64, .seed = 3);
        columns c = { .x = eg_normal(cx, 0, 1, 12), .w = eg_ones(cx, 1) };
        eg_captured_blocks *kept = eg_captured_blocks_open(cx);
        eg_tensor *d;
        int bad = 0;
        for (int turn = 0; turn < 3 && !bad; turn++)
            bad = eg_grad_over(cx, sliced_loss, &c, 12, 1, &c.w, &d, .block = 1, .captured = kept);
        eg_assert_error(cx, "the operations that were captured for another block give a loss of ");
        for (int turn = bad = 0; turn < 3 && !bad; turn++)
            bad =
                eg_grad_over(cx, counting_loss, &c, 12, 1, &c.w, &d, .block = 1, .captured = kept);
        eg_assert_error(cx, "data of a block must come from eg_from_call, or .kind must");
        ck_assert(!eg_grad_over(cx, sliced_loss, &c, 12, 1, &c.w, &d, .block = 1));
        eg_close(cx);
    }
}
#if !EG_DEBUG_ALLOC
TEST(warm_steps_call_no_allocator)
{
    school s;
    school_open(&s, 2, 0.1, true);
    eg_usage had = { 0 }, has;
    int same = 0;
    for (int k = 0; k < 500 && same < 30; k++, had = has) {
        school_data(&s, k);
        ck_assert_int_eq(eg_step_over(s.opt, school_loss, &s, EXAMPLES, .block = 4,
                                      .captured = s.captured, .kind = school_kind),
                         0);
        has = eg_stats(s.cx);
        const bool equal = has.mallocs == had.mallocs && has.used == had.used;
        same = equal ? same + 1 : 0;
    }
    ck_assert_int_eq(same, 30);
    eg_close(s.cx);
}
#endif
static bool captured_life(eg_ctx *cx, const char *path)
{
    float x[36] = { 1, 2, -1 };
    (void)path;
    lecture l = { .x = x, .w = eg_full(cx, 0.5, 3), .factor = eg_full(cx, 2, 3) };
    eg_captured_blocks *c = eg_captured_blocks_open(cx);
    bool good = c != NULL;
    for (int k = 0; k < 4 && good; k++) {
        eg_tensor *g;
        good = !eg_grad_over(cx, lecture_loss, &l, 12, 1, &l.w, &g, .block = 3, .leaves = 2,
                             .captured = c);
    }
    return good;
}
TEST(each_allocation_may_fail) { memory_ends_in_turn(captured_life, 400); }
