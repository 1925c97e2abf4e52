/* test_captured_blocks.c: blocks of steps that are captured, and run again
 * (eg_captured_blocks_open). */
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
typedef struct training {
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
} training;
static void training_open(training *s, int threads, double dropout, bool captured)
{
    *s = (training){ .cx = eg_open(.threads = threads, .seed = 5), .length = LENGTH };
    s->params = eg_params_open(s->cx);
    s->net = eg_transformer_new(.params = s->params, .vocabulary = CLASSES, .length = LENGTH,
                                .layers = 2, .d_model = WIDE, .heads = 2, .dropout = dropout);
    s->idle = eg_param(s->params, "idle", "k", 3);
    s->opt = eg_adam(s->params, .lr = 1e-2);
    if (captured) s->captured = eg_captured_blocks_open(s->cx);
    eg_assert_ok(s->cx);
}
static void training_data(training *s, int step)
{
    uint32_t r = (uint32_t)step + 1;
    s->length = step % 3 == 2 ? LENGTH - 2 : LENGTH;
    for (int k = 0; k < EXAMPLES * LENGTH; k++) {
        r = r * 1664525 + 1013904223;
        s->token[k] = (int32_t)(r >> 16) % CLASSES;
        s->target[k] = r >> 30 ? (int32_t)(r >> 8) % CLASSES : -1;
    }
}
typedef struct training_rows {
    const training *s;
    eg_ctx *cx;
    bool target;
} training_rows;
static int read_rows(void *args, void *to, int64_t n)
{
    const training_rows *a = args;
    int64_t from = 0, end;
    eg_block_range(a->cx, &from, &end); /* outside of blocks all examples from 0 on are used */
    const int32_t *all = a->target ? a->s->target : a->s->token;
    memcpy(to, all + from * a->s->length, (size_t)n * sizeof *all);
    return 0;
}
typedef struct training_count {
    const training *s;
    eg_ctx *cx;
    int64_t *count;
} training_count;
static int count_rows(void *args, int count, eg_tensor *const *xs)
{
    const training_count *a = args;
    const int32_t *target = eg_i32(xs[0]);
    (void)count;
    *a->count = 0;
    for (int64_t k = 0; target && k < eg_size(xs[0]); k++) *a->count += target[k] >= 0;
    return target ? 0 : -1;
}
static eg_tensor *training_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    training *s = user;
    const int64_t dims[] = { to - from, s->length };
    const training_rows tokens = { s, cx, false }, targets = { s, cx, true };
    atomic_fetch_add(&s->calls, 1);
    eg_tensor *target = eg_from_call(cx, EG_I32, 2, dims, read_rows, &targets, sizeof targets),
              *token = eg_from_call(cx, EG_I32, 2, dims, read_rows, &tokens, sizeof tokens);
    eg_host_call(cx, count_rows, &(training_count){ s, cx, count }, sizeof(training_count), 1,
                 &target);
    eg_tensor *logits =
        eg_transformer_run(.transformer = s->net, .index = token, .where = "j <= i");
    if (s->reads == 1) eg_item(eg_sum(NULL, logits));
    if (s->reads == 2) eg_from(cx, ((float[]){ 1, 2 }), 2);
    eg_tensor *one = eg_cross_entropy("b l [v]", logits, target, .ignore = -1, .each = true);
    return eg_sum(NULL, one);
}
static void training_kind(void *user, int64_t from, int64_t to, int64_t kind[EG_KIND_NUMBERS])
{
    const training *s = user;
    (void)from;
    (void)to;
    kind[0] = s->length;
}
typedef struct division {
    int threads;
    int64_t block;
    int leaves;
    bool serial;
} division;
/* Hash of losses and parameters after some steps. */
static uint64_t training_hash(training *s, const division *c, int steps)
{
    uint64_t h = 1;
    for (int k = 0; k < steps; k++) {
        double mean = 0;
        int64_t counted = 0;
        training_data(s, k);
        eg_step_over(s->opt, training_loss, s, EXAMPLES, .block = c->block, .leaves = c->leaves,
                     .serial = c->serial, .mean = &mean, .counted = &counted,
                     .captured = s->captured, .kind = training_kind);
        eg_assert_ok(s->cx);
        h = eg_hash(eg_hash(h, &mean, sizeof mean), &counted, sizeof counted);
    }
    return hash_params(h, s->params);
}
static const division divisions[] = {
    { 1, 4, 16, false }, /* a leaf is a block, the last of which is shorter */
    { 1, 2, 4, false },  /* … or several: the first one writes, the others add */
    { 3, 2, 5, false },  /* any thread may compute any leaf */
    { 2, 8, 16, true },  /* one thread calls, two compute */
};
enum { COURSES = sizeof divisions / sizeof *divisions };
LOOP_TEST(captured_blocks_have_the_bits_of_others, COURSES)
{
    training a, b;
    const division *c = &divisions[_i];
    training_open(&a, c->threads, 0.2, false);
    training_open(&b, c->threads, 0.2, true);
    ck_assert(training_hash(&a, c, 12) == training_hash(&b, c, 12));
    const int blocks = (int)((EXAMPLES + c->block - 1) / c->block);
    ck_assert_int_ge(a.calls, 12 * blocks);
    /* for either length a thread calls the loss for some full blocks and some last ones, first and
     * later ones of a leaf: at first, while capturing, for other examples, and in runs 1, 2, 4 …
     * 128 and 192; and the test whether the loss is a sum calls it three times */
    ck_assert_int_le(b.calls, 3 + c->threads * 2 * 2 * 2 * (2 + 1 + 9));
    ck_assert_uint_gt(eg_captured_blocks_bytes(b.captured), 1000);
    ck_assert_uint_eq(eg_captured_blocks_bytes(NULL), 0);
    eg_captured_blocks_free(b.captured);
#if !EG_DEBUG_ALLOC /* otherwise their memory is freed */
    ck_assert_uint_eq(eg_captured_blocks_bytes(b.captured), 0);
    eg_captured_blocks_free(b.captured);
    eg_assert_error(b.cx, "captured_blocks_free: the captured blocks ended before");
    ck_assert_int_eq(eg_step_over(b.opt, training_loss, &b, EXAMPLES, .captured = b.captured), -1);
    eg_assert_error(b.cx, "step_over: the captured blocks ended before");
#endif
    eg_close(a.cx);
    eg_close(b.cx);
}

/* If the loss cannot be captured, it is called for each block, with the same bits. */
LOOP_TEST(a_loss_that_cannot_be_captured_is_called, 2)
{
    training a, b;
    const division *c = &divisions[2];
    training_open(&a, c->threads, 0.2, false);
    training_open(&b, c->threads, 0.2, true);
    a.reads = b.reads = _i + 1;
    ck_assert(training_hash(&a, c, 5) == training_hash(&b, c, 5));
    ck_assert_int_ge(b.calls, a.calls);
    eg_close(a.cx);
    eg_close(b.cx);
}

/* A loss that computes gradients itself, y + |∂y/∂x|²: the call that is compared with the first run
 * has a history too. late: the loss turns recording on, but only after x was read, so that without
 * a history ∂y/∂x is 0 instead of an error. */
typedef struct penalised {
    eg_ctx *cx;
    eg_tensor *w;
    bool late;
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
    eg_tensor *y = eg_einsum("ei,ij->ej", x, p->w);
    const bool was = p->late ? eg_nograd(cx, false) : false;
    y = eg_sum(NULL, eg_tanh(y));
    const int bad = eg_grad(y, NULL, 1, &x, &g);
    if (p->late) eg_nograd(cx, was);
    return bad ? NULL : eg_add(y, eg_sum(NULL, eg_square(g)));
}
LOOP_TEST(a_loss_that_computes_gradients_is_captured, 2)
{
    float w[4][12];
    for (int k = 0; k < 4; k++) { /* captured with 1 … 3 threads; not captured */
        penalised p = { .cx = eg_open(.threads = k + 1, .seed = 3), .late = _i };
        eg_params *params = eg_params_open(p.cx);
        p.w = eg_param(params, "w", "ij", 4, 3);
        eg_opt *opt = eg_adam(params, .lr = 0.01);
        eg_captured_blocks *blocks = k < 3 ? eg_captured_blocks_open(p.cx) : NULL;
        for (int step = 0; step < 5; step++)
            eg_step_over(opt, penalised_loss, &p, 32, .block = 2, .captured = blocks);
        eg_assert_ok(p.cx);
        memcpy(w[k], eg_f32(p.w), sizeof w[k]);
        ck_assert_int_eq(memcmp(w[k], w[0], sizeof w[k]), 0);
        /* of 80 blocks; each thread captures and compares its own, so that the number depends on
         * how many blocks each of them takes */
        ck_assert_int_le(p.calls, k < 3 ? 60 : 90);
        eg_close(p.cx);
    }
}

/* The same captured blocks for other losses, sizes, states: each begins again or is another
 * kind. */
TEST(another_step_is_captured_anew)
{
    training a, b;
    training_open(&a, 2, 0.2, false);
    training_open(&b, 2, 0.2, true);
    uint64_t h[2] = { 1, 1 };
    for (int k = 0; k < 40; k++) {
        const division c = { 2, 1 + k % 20, 1 + k % 7, false }; /* more kinds than are stored */
        training *const s[] = { &a, &b };
        for (int i = 0; i < 2; i++) {
            if (k % 5 == 4) eg_eval(s[i]->cx);
            h[i] ^= training_hash(s[i], &c, 2);
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

#if !EG_DEBUG_ALLOC /* there a sanitizer reports that the header of a freed tensor is read */
/* Σ (x v w)², where v is a view of a tensor that an owner has */
typedef struct viewing {
    eg_tensor *v, *w;
} viewing;
static eg_tensor *viewing_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    const viewing *s = user;
    (void)from, (void)to, (void)count;
    eg_tensor *y = eg_einsum("bi,ij,j->b", eg_block_rows(cx, "x"), s->v, s->w);
    return eg_sum(NULL, eg_square(y));
}
TEST(blocks_refuse_a_view_whose_tensor_is_gone)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_owner *o = eg_owner_open(cx);
    eg_tensor *v = eg_slice_axis(eg_keep_in(o, eg_ones(cx, 3, 4)), 1, 0, 3, 1), *dw;
    viewing s = { v, eg_ones(cx, 3) };
    eg_tensor *x = eg_ones(cx, EXAMPLES, 3);
    eg_captured_blocks *captured = eg_captured_blocks_open(cx);
    for (int step = 0; step < 4; step++) {
        if (step == 3) eg_owner_close(o);
        const int bad = eg_grad_over(cx, viewing_loss, &s, 0, 1, &s.w, &dw, .block = 5,
                                     .batch = { { "x", x } }, .captured = captured);
        ck_assert_int_eq(bad, step == 3 ? -1 : 0);
    }
    eg_assert_error(cx, "grad_over: block 0 (examples 0 to 4): einsum: operand 2 is a view of a");
    eg_close(cx);
}
#endif

/* -- tensors that no longer exist, and values that need other operations ----------------------- */
typedef struct masked_rows {
    eg_tensor *w, *factor;
    const float *x;
    atomic_int calls;
} masked_rows;
static int read_x(void *args, void *to, int64_t n)
{
    const training_rows *a = args;
    int64_t from = 0, end;
    eg_block_range(a->cx, &from, &end);
    memcpy(to, ((const masked_rows *)(const void *)a->s)->x + 3 * from, (size_t)n * sizeof(float));
    return 0;
}
static eg_tensor *masked_rows_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    masked_rows *l = user;
    const training_rows at = { user, cx, false };
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
TEST(freed_tensors_are_captured_again)
{
    float x[36];
    for (int k = 0; k < 36; k++) x[k] = (float)(k % 5) - 2;
    uint64_t h[2] = { 1, 1 };
    for (int i = 0; i < 2; i++) {
        eg_ctx *cx = eg_open(.threads = 2);
        masked_rows l = { .x = x, .w = eg_full(cx, 0.5, 3) };
        eg_captured_blocks *c = i ? eg_captured_blocks_open(cx) : NULL;
        for (int k = 0; k < 80; k++) {
            const eg_mark m = eg_push(cx);
            for (int n = 0; n < k % 3; n++) eg_full(cx, 9, 100);
            l.factor = eg_full(cx, k + 1, 3);
            eg_tensor *g;
            double mean;
            ck_assert_msg(!eg_grad_over(cx, masked_rows_loss, &l, 12, 1, &l.w, &g, .block = 3,
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
TEST(captured_blocks_compute_inputs_with_infinities_as_called_ones)
{
    float x[36];
    uint64_t h[2] = { 1, 1 };
    for (int i = 0; i < 2; i++) {
        eg_ctx *cx = eg_open(.threads = 2);
        masked_rows l = { .x = x, .w = eg_full(cx, 0.5, 3), .factor = eg_full(cx, 2, 3) };
        eg_captured_blocks *c = i ? eg_captured_blocks_open(cx) : NULL;
        for (int k = 0; k < 12; k++) {
            for (int n = 0; n < 36; n++) x[n] = (float)(n % 7) - 2;
            if (k % 4 == 3) x[5] = k == 3 ? -INFINITY : 3e38f;
            eg_tensor *g;
            double mean = 0;
            const int bad = eg_grad_over(cx, masked_rows_loss, &l, 12, 1, &l.w, &g, .block = 3,
                                         .leaves = 2, .mean = &mean, .captured = c);
            char message[300];
            snprintf(message, sizeof message, "%s", bad ? eg_error(cx) : "");
            h[i] = eg_hash(h[i], message, strlen(message));
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
    h = hash_params(h, eg_trainer_params(t));
    eg_close(cx);
    return h;
}
static const char poem[] = "one two three four five six seven eight nine ten eleven twelve "
                           "thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty ";
static const struct training_trainer {
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
    eg_assert_error(cx, "captured_blocks_open: inside of a block");
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
    int64_t from = 0;
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
        /* for each of three kinds two calls, and others to compare runs 1, 2, 4 and 8 */
        static const int calls[] = { 12, 3, 3, 0 };
        ck_assert_int_eq(called, calls[turn]);
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
        eg_assert_error(cx, "must be in .batch or come from eg_from_call, or .kind must");
        for (int turn = bad = 0; turn < 3 && !bad; turn++)
            bad =
                eg_grad_over(cx, counting_loss, &c, 12, 1, &c.w, &d, .block = 1, .captured = kept);
        eg_assert_error(cx, "does not repeat an assignment to *count, but calls of eg_block_count");
        ck_assert(!eg_grad_over(cx, sliced_loss, &c, 12, 1, &c.w, &d, .block = 1));
        eg_close(cx);
    }
}
/* A number of the program that changes after many runs is found within 64 of them. */
typedef struct factor {
    eg_tensor *w;
    double by;
} factor;
static eg_tensor *factor_loss(void *user, eg_ctx *c, int64_t from, int64_t to, int64_t *count)
{
    const factor *f = user;
    (void)c, (void)from, (void)to, (void)count;
    return eg_scale(eg_sum(NULL, eg_square(f->w)), f->by);
}
TEST(a_number_that_changes_late_is_found)
{
    eg_ctx *cx = eg_open(.threads = 1);
    factor f = { eg_ones(cx, 2), 1 };
    eg_captured_blocks *kept = eg_captured_blocks_open(cx);
    eg_tensor *d;
    int step = 0;
    for (int bad = 0; !bad && step < 300; step++) {
        const eg_mark m = eg_push(cx);
        if (step == 140) f.by = 2;
        bad = eg_grad_over(cx, factor_loss, &f, 1, 1, &f.w, &d, .captured = kept);
        eg_pop(cx, m);
    }
    eg_assert_error(cx, "the operations that were captured for another block give a loss of 2");
    ck_assert_int_le(step, 140 + 64 + 1);
    eg_close(cx);
}
#if !EG_DEBUG_ALLOC
TEST(warm_steps_call_no_allocator)
{
    training s;
    training_open(&s, 2, 0.1, true);
    eg_usage had = { 0 }, has;
    int same = 0;
    for (int k = 0; k < 500 && same < 30; k++, had = has) {
        training_data(&s, k);
        ck_assert_int_eq(eg_step_over(s.opt, training_loss, &s, EXAMPLES, .block = 4,
                                      .captured = s.captured, .kind = training_kind),
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
    masked_rows l = { .x = x, .w = eg_full(cx, 0.5, 3), .factor = eg_full(cx, 2, 3) };
    eg_captured_blocks *c = eg_captured_blocks_open(cx);
    bool good = c != NULL;
    for (int k = 0; k < 4 && good; k++) {
        eg_tensor *g;
        good = !eg_grad_over(cx, masked_rows_loss, &l, 12, 1, &l.w, &g, .block = 3, .leaves = 2,
                             .captured = c);
    }
    return good;
}
TEST(each_allocation_may_fail) { memory_ends_in_turn(captured_life, 400); }

/* -- the tensors of a batch (.batch, eg_block_rows) -------------------------------------------- */
typedef struct scaled_training {
    training s;
    eg_tensor *factor; /* without axes, read through `user` */
    double number;     /* of the program */
} scaled_training;
static void scaled_training_open(scaled_training *p, int threads)
{
    *p = (scaled_training){ .number = 1 };
    training_open(&p->s, threads, 0.2, false);
    p->factor = eg_full_n(p->s.cx, EG_F32, 1, 0, NULL);
    eg_assert_ok(p->s.cx);
}
static eg_tensor *scaled_training_loss(void *user, eg_ctx *cx, int64_t from, int64_t to,
                                       int64_t *count)
{
    scaled_training *p = user;
    (void)from, (void)to;
    atomic_fetch_add(&p->s.calls, 1);
    eg_tensor *token = eg_block_rows(cx, "token"), *target = eg_block_rows(cx, "target");
    eg_block_count(count, eg_ge(target, eg_zeros_like(target)));
    eg_tensor *logits = eg_transformer_run(p->s.net, token, .where = "j <= i");
    eg_tensor *one = eg_cross_entropy("b l [v]", logits, target, .ignore = -1, .each = true);
    return eg_scale(eg_mul(eg_sum(NULL, one), p->factor), p->number);
}
/* One step on new tensors, in a scope of its own. */
static int scaled_training_step(scaled_training *p, int step, const division *c, eg_ranks *ranks,
                                bool eager, double *mean, int64_t *counted)
{
    training *s = &p->s;
    const eg_mark m = eg_push(s->cx);
    training_data(s, step);
    for (int k = 0; k < step % 4; k++) eg_full(s->cx, 9, 100); /* other addresses */
    const int64_t dims[] = { EXAMPLES, s->length }, turned[] = { s->length, EXAMPLES };
    /* a view whose rows are not contiguous, in some steps */
    eg_tensor *token = eg_from_n(s->cx, EG_I32, s->token, 2, step % 4 == 1 ? turned : dims),
              *target = eg_from_n(s->cx, EG_I32, s->target, 2, dims);
    if (step % 4 == 1) token = eg_transpose(token, 0, 1);
    const int bad =
        eg_step_over(s->opt, scaled_training_loss, p, .block = c->block, .leaves = c->leaves,
                     .serial = c->serial, .ranks = ranks, .mean = mean, .counted = counted,
                     .capture = !eager, .batch = { { "token", token }, { "target", target } });
    eg_pop(s->cx, m);
    return bad;
}
static uint64_t scaled_training_hash(scaled_training *p, const division *c, eg_ranks *ranks,
                                     bool eager, int steps)
{
    uint64_t h = 1;
    for (int k = 0; k < steps; k++) {
        double mean = 0;
        int64_t counted = 0;
        eg_fill(p->factor, 1 + 0.1 * k);
        scaled_training_step(p, k, c, ranks, eager, &mean, &counted);
        eg_assert_ok(p->s.cx);
        h = eg_hash(eg_hash(h, &mean, sizeof mean), &counted, sizeof counted);
    }
    return hash_params(h, p->s.params);
}
/* New tensors in each step, of two lengths, some of them views; a factor that is written between
 * steps; dropout; a last block that is shorter: the bits are those of blocks that are called, on
 * any number of threads, and the loss is called a few times only. */
LOOP_TEST(a_batch_has_the_bits_of_blocks_that_are_called, COURSES)
{
    enum { STEPS = SLOWER > 1 ? 20 : 40 };
    const division *c = &divisions[_i];
    scaled_training p;
    scaled_training_open(&p, 1);
    const uint64_t called = scaled_training_hash(&p, c, NULL, true, STEPS);
    const int blocks = (int)((EXAMPLES + c->block - 1) / c->block);
    ck_assert_int_ge(p.s.calls, STEPS * blocks);
    eg_close(p.s.cx);
    for (int threads = 1; threads <= 3; threads++) {
        scaled_training_open(&p, threads);
        ck_assert_msg(scaled_training_hash(&p, c, NULL, false, STEPS) == called, "%d threads",
                      threads);
        /* by thread, for each of two lengths, full and last blocks, first and later ones of a leaf:
         * called, captured, compared once for other examples and for run 1, 2, 4, … 512 */
        ck_assert_int_le(p.s.calls, 3 + threads * 2 * 2 * 2 * (2 + 1 + 10));
        eg_close(p.s.cx);
    }
}
typedef struct results_on_ranks {
    uint64_t hash[3];
    int calls;
} results_on_ranks;
static int scaled_training_rank(void *user, const eg_ranks_table *table)
{
    results_on_ranks *of = user;
    scaled_training p;
    scaled_training_open(&p, 1);
    eg_ranks *r = eg_ranks_open(.cx = p.s.cx, .table = table);
    of->hash[table->rank] = scaled_training_hash(&p, &divisions[0], r, false, 12);
    eg_ranks_close(r);
    eg_close(p.s.cx);
    return 0;
}
TEST(a_batch_on_ranks_has_the_same_bits)
{
    scaled_training p;
    scaled_training_open(&p, 2);
    const uint64_t alone = scaled_training_hash(&p, &divisions[0], NULL, true, 12);
    eg_close(p.s.cx);
    eg_ctx *cx = eg_open(.threads = 1);
    for (int ranks = 2; ranks <= 3; ranks++) {
        results_on_ranks of = { .calls = 0 };
        ck_assert_int_eq(eg_ranks_simulate(cx, ranks, scaled_training_rank, &of), 0);
        for (int k = 0; k < ranks; k++) ck_assert(of.hash[k] == alone);
    }
    eg_close(cx);
}
/* A number of the program that changes is a constant of the captured block: the next comparison
 * finds it, no parameter changes, and the steps afterwards are those of blocks that are called. */
TEST(a_number_that_changes_is_found)
{
    static const division c = { 2, 4, 16, false };
    for (int first = 3; first < 7; first++) {
        scaled_training p;
        scaled_training_open(&p, 2);
        double mean[2] = { 0 };
        int64_t counted;
        int bad = 0, step = 0;
        for (; !bad && step < 100; step++) {
            if (step >= first) p.number = 1 + 0.01 * step;
            bad = scaled_training_step(&p, 3 * step, &c, NULL, false, mean, &counted);
        }
        ck_assert_int_le(step, 2 * first + 2);
        ck_assert_int_gt(step, first);
        eg_assert_error(p.s.cx, "what differs between blocks and calls must be in .batch or come ");
        for (int k = 0; k < 2; k++) { /* captured anew, and called */
            eg_set_draws(p.s.cx, 1000);
            eg_opt_set_lr(p.s.opt, 0);
            for (step = 0; step < 2; step++) {
                scaled_training_step(&p, step, &c, NULL, k, &mean[k], &counted);
                eg_assert_ok(p.s.cx);
            }
        }
        ck_assert(mean[0] == mean[1]);
        eg_close(p.s.cx);
    }
}
/* The error of a block is that of one that is called, and leaves parameters and draws as it does;
 * the same steps work again afterwards. */
static void scaled_training_run(scaled_training *p, bool eager, uint64_t *h)
{
    static const division c = { 2, 4, 16, false };
    for (int k = 0; k < 8; k++) {
        double mean = 0;
        int64_t counted = 0;
        eg_fill(p->factor, k == 4 ? NAN : k == 6 ? INFINITY : 1);
        const int bad = scaled_training_step(p, k, &c, NULL, eager, &mean, &counted);
        ck_assert_int_eq(bad != 0, k == 4 || k == 6);
        const char *message = eg_error(p->s.cx) ? eg_error(p->s.cx) : "";
        *h = eg_hash(*h, message, strcspn(message, "("));
        eg_clear(p->s.cx);
        const uint64_t draws = eg_draws(p->s.cx);
        *h = eg_hash(eg_hash(*h, &mean, sizeof mean), &draws, sizeof draws);
        for (int i = 0; i < eg_params_count(p->s.params); i++)
            *h = hash_tensor(*h, eg_params_at(p->s.params, i)->x);
    }
}
TEST(an_error_in_a_block_is_that_of_one_that_is_called)
{
    uint64_t h[2] = { 1, 1 };
    for (int eager = 0; eager < 2; eager++) {
        scaled_training p;
        scaled_training_open(&p, 3);
        scaled_training_run(&p, eager, &h[eager]);
        eg_close(p.s.cx);
    }
    ck_assert(h[0] == h[1]);
}
/* Two losses in turn: after many changes the blocks of one are called, with the same bits. */
static eg_tensor *scaled_training_other(void *user, eg_ctx *cx, int64_t from, int64_t to,
                                        int64_t *count)
{
    return eg_scale(scaled_training_loss(user, cx, from, to, count), 0.5);
}
TEST(two_losses_in_turn)
{
    uint64_t h[2] = { 1, 1 };
    for (int eager = 0; eager < 2; eager++) {
        scaled_training p;
        scaled_training_open(&p, 1);
        training_data(&p.s, 0);
        const int64_t dims[] = { EXAMPLES, LENGTH };
        eg_tensor *token = eg_from_n(p.s.cx, EG_I32, p.s.token, 2, dims),
                  *target = eg_from_n(p.s.cx, EG_I32, p.s.target, 2, dims);
        int before = 0;
        for (int k = 0; k < 160; k++) {
            if (k == 120) before = p.s.calls;
            double mean = 0;
            eg_step_over(p.s.opt, k % 2 ? scaled_training_loss : scaled_training_other, &p,
                         EXAMPLES, .block = 15, .leaves = 2, .mean = &mean, .capture = !eager,
                         .batch = { { "token", token }, { "target", target } });
            eg_assert_ok(p.s.cx);
            h[eager] = eg_hash(h[eager], &mean, sizeof mean);
        }
        /* 40 steps of three blocks: all are called, or those of one loss; both losses were tested
         * in their first step */
        const int calls = p.s.calls - before;
        ck_assert_msg(eager ? calls == 120 : calls >= 60 && calls < 70, "%d calls", calls);
        eg_close(p.s.cx);
    }
    ck_assert(h[0] == h[1]);
}

/* Each dtype, a number for each example and axes of size 0. */
typedef struct byte_rows {
    eg_tensor *w;
    const char *name;
    int64_t size; /* bytes of an example */
    const char *all;
    atomic_int wrong;
} byte_rows;
static eg_tensor *byte_rows_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    byte_rows *u = user;
    (void)count;
    eg_tensor *x = eg_block_rows(cx, u->name);
    const size_t bytes = (size_t)((to - from) * u->size);
    const void *at = eg_raw(x, NULL);
    if (eg_dim(x, 0) != to - from || (bytes && memcmp(at, u->all + from * u->size, bytes)))
        atomic_fetch_add(&u->wrong, 1);
    return eg_sum(NULL, eg_mul(u->w, eg_full(cx, (double)(to - from), 2)));
}
TEST(rows_of_every_dtype)
{
    eg_ctx *cx = eg_open(.threads = 2);
    for (int dtype = EG_F32; dtype <= EG_U8; dtype++)
        for (int rank = 1; rank <= 3; rank++) {
            const eg_mark m = eg_push(cx);
            eg_tensor *x = eg_cast(eg_randint(cx, 0, 2, 7, 3, rank == 3 ? 0 : 2), (eg_dtype)dtype);
            if (rank == 1) x = eg_contiguous(eg_select_axis(eg_select_axis(x, 2, 1), 1, 1));
            if (!eg_ok(x)) { /* a dtype to which eg_cast does not convert integers */
                eg_clear(cx);
                eg_pop(cx, m);
                continue;
            }
            static const int width[] = {
                [EG_F32] = 4,   [EG_F64] = 8, [EG_I32] = 4,  [EG_I64] = 8, [EG_BOOL] = 1,
                [EG_C128] = 16, [EG_F16] = 2, [EG_BF16] = 2, [EG_I8] = 1,  [EG_U8] = 1
            };
            byte_rows u = { .w = eg_ones(cx, 2), .name = "x", .all = eg_raw(x, NULL) };
            u.size = eg_size(x) / 7 * width[dtype];
            eg_tensor *d;
            ck_assert_int_eq(eg_grad_over(cx, byte_rows_loss, &u, 0, 1, &u.w, &d, .block = 2,
                                          .batch = { { "x", x } }),
                             0);
            ck_assert_int_eq(u.wrong, 0);
            eg_pop(cx, m);
        }
    eg_close(cx);
}
static eg_tensor *counts_wrong(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    const int what = *(int *)user;
    (void)from, (void)to;
    if (what == 0) eg_block_rows(cx, NULL);
    if (what == 1) eg_block_rows(cx, "y");
    if (what == 2) eg_block_count(count, eg_full(cx, 1, 1));
    if (what == 3) eg_block_count(NULL, eg_randint(cx, 0, 9, 2));
    return eg_full(cx, 1, 1);
}
static int calls_a_block(void *user, eg_tensor **out)
{
    *out = eg_block_call(eg_context(user), byte_rows_loss, NULL, 0, 2, NULL,
                         .batch = { { "x", user } });
    return *out ? 0 : -1;
}
#if !EG_DEBUG_ALLOC /* otherwise a dead tensor is memory that was freed */
TEST(a_batch_whose_scope_was_popped_is_named)
{
    eg_ctx *cx = eg_open(), *other = eg_open();
    eg_params *p = eg_params_open(cx);
    byte_rows u = { .w = eg_param(p, "w", "k", 2), .name = "x" };
    eg_opt *opt = eg_sgd(p, .lr = 1);
    for (int k = 0; k < 2; k++) {
        const eg_mark m = eg_push(k ? other : cx);
        eg_tensor *gone = eg_full(k ? other : cx, 1, 6);
        eg_pop(k ? other : cx, m);
        ck_assert_int_eq(eg_step_over(opt, byte_rows_loss, &u, 6, .batch = { { "x", gone } }), -1);
        eg_assert_error(cx, k ? "step_over: \"x\" of .batch belongs to another context"
                              : "step_over: 'x' of .batch was used after the scope that held it");
        ck_assert_ptr_null(eg_error(other));
    }
    eg_close(cx);
    eg_close(other);
}
#endif
TEST(what_a_batch_refuses)
{
    eg_ctx *cx = eg_open(.threads = 1), *other = eg_open(.threads = 1);
    eg_params *params = eg_params_open(cx);
    eg_tensor *w = eg_param(params, "w", "k", 6), *x = eg_full(cx, 1, 6), *dw;
    eg_opt *opt = eg_adam(params);
    eg_owner *owner = eg_owner_open(cx);
    const eg_copies *copies = eg_copies_open(owner, 6, NULL);
    const struct {
        eg_given batch[2];
        const char *says;
    } table[] = {
        { { { "x", NULL } }, "step_over: \"x\" of .batch is NULL" },
        { { { "x", x }, { "x", x } }, "step_over: two tensors of .batch are called \"x\"" },
        { { { "x", eg_full_n(cx, EG_F32, 1, 0, NULL) } },
          "step_over: \"x\" of .batch is (), but its first axis must have the 6 examples" },
        { { { "x", x }, { "y", eg_full(cx, 1, 5, 2) } },
          "step_over: \"y\" of .batch is (5, 2), but its first axis must have the 6 examples" },
        { { { "x", w } },
          "step_over: \"x\" of .batch is an x, and the gradient through it would be missing" },
        { { { "x", eg_square(w) } },
          "step_over: \"x\" of .batch was computed from an x outside of the blocks, and" },
        { { { "x", eg_full(other, 1, 6) } }, "step_over: \"x\" of .batch belongs to another" },
        { { { "x", eg_copies_unstack(copies, eg_full(cx, 1, 6, 6)) } },
          "step_over: \"x\" of .batch has copies" },
    };
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        eg_step_over_args o = {
            .size = sizeof o, .opt = opt, .loss = byte_rows_loss, .examples = 6
        };
        byte_rows u = {
            .w = w, .name = "x", .all = (const char *)eg_f32(x), .size = sizeof(float)
        };
        o.user = &u;
        memcpy(o.batch, table[k].batch, sizeof table[k].batch);
        ck_assert_int_eq(eg_step_over_with(&o), -1);
        eg_assert_error(cx, table[k].says);
        eg_clear(other);
    }
    /* without .examples their number is that of the first tensor that has axes */
    eg_tensor *scalar = eg_full_n(cx, EG_F32, 1, 0, NULL);
    ck_assert_int_eq(eg_step_over(opt, byte_rows_loss, .batch = { { "s", scalar }, { "x", x } }),
                     -1);
    eg_assert_error(cx, "step_over: \"s\" of .batch is (), but its first axis must have the 6");
    static const char *const says[] = { "block_rows: the name is NULL",
                                        "block_rows: .batch has no \"y\"; it has \"x\", \"z\"",
                                        "block_count: x is f32, but a count is a sum of integers",
                                        "block_count: the count is NULL" };
    for (int k = 0; k < 4; k++) {
        ck_assert_int_eq(
            eg_grad_over(cx, counts_wrong, &k, 6, 1, &w, &dw, .batch = { { "x", x }, { "z", x } }),
            -1);
        eg_assert_error(cx, says[k]);
    }
    ck_assert_int_eq(eg_grad_over(cx, counts_wrong, &(int){ 1 }, 6, 1, &w, &dw), -1);
    eg_assert_error(cx, "block_rows: .batch has no \"y\"; it has no tensors");
    ck_assert(!eg_ok(eg_block_rows(cx, "x")));
    eg_assert_error(cx, "block_rows: outside of a block");
    byte_rows u = {
        .w = eg_ones(cx, 2), .name = "x", .all = (const char *)eg_f32(x), .size = sizeof(float)
    };
    int64_t count = 0;
    ck_assert(eg_ok(eg_block_call(cx, byte_rows_loss, &u, 2, 5, &count,
                                  .batch = { { "x", eg_full(cx, 1, 7) } })));
    ck_assert_int_eq(count, 3);
    ck_assert_ptr_null(
        eg_block_call(cx, byte_rows_loss, &u, 2, 8, &count, .batch = { { "x", x } }));
    eg_assert_error(cx, "block_call: \"x\" of .batch is (6,), but its first axis must have the 8 ");
    ck_assert_ptr_null(eg_capture(cx, calls_a_block, x, 1));
    eg_assert_error(cx,
                    "block_call: not possible in a captured step: its batch ends with the call");
    ck_assert_ptr_null(eg_captured_blocks_open_in(NULL));
    ck_assert_ptr_null(eg_captured_blocks_refused(NULL));
    eg_close(cx);
    eg_close(other);
}
/* Why blocks are not captured. */
TEST(the_reason_for_which_nothing_is_captured)
{
    training s;
    training_open(&s, 2, 0.2, true);
    ck_assert_ptr_null(eg_captured_blocks_refused(s.captured));
    s.reads = 2;
    training_hash(&s, &divisions[0], 5);
    const char *why = eg_captured_blocks_refused(s.captured);
    ck_assert_msg(why && strstr(why, "from: not possible in a captured step"), "%s", why);
    eg_close(s.cx);
}
/* A loss that leaves a scope open in its later blocks, when a captured block has added to the sums
 * before: it is called, as without .capture. */
static eg_tensor *open_scope_loss(void *w, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    (void)to, (void)count;
    if (from >= 12) eg_push(cx);
    return eg_sum(NULL, eg_square(eg_mul(eg_block_rows(cx, "x"), w)));
}
TEST(a_loss_that_leaves_a_scope_open_is_called)
{
    float w[2];
    for (int capture = 0; capture < 2; capture++) {
        eg_ctx *own = eg_open(.threads = 1, .seed = 3);
        eg_params *p = eg_params_open(own);
        eg_tensor *x = eg_uniform(own, 0, 1, 24), *scale = eg_param(p, "w", "k", 1);
        eg_fill(scale, 1);
        ck_assert_int_eq(eg_step_over(eg_sgd(p, .lr = 1e-2), open_scope_loss, scale, .block = 4,
                                      .leaves = 3, .capture = capture, .batch = { { "x", x } }),
                         0);
        eg_assert_ok(own);
        w[capture] = *eg_f32(scale);
        eg_close(own);
    }
    ck_assert_int_eq(memcmp(&w[0], &w[1], sizeof *w), 0);
}
static eg_tensor *life_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    eg_tensor *x = eg_block_rows(cx, "x");
    (void)from, (void)to;
    eg_block_count(count, eg_ge(x, eg_full(cx, -2, 1)));
    return eg_sum(NULL, eg_square(eg_linear_run(user, x)));
}
static bool batch_life(eg_ctx *cx, const char *path)
{
    eg_params *params = eg_params_open(cx);
    eg_linear *net = eg_linear_new(params, "net", .in = 3, .out = 1);
    eg_opt *opt = params ? eg_sgd(params, .lr = 1e-2) : NULL;
    bool good = net && opt;
    (void)path;
    for (int k = 0; k < 4 && good; k++) {
        const eg_mark m = eg_push(cx);
        eg_tensor *x = eg_transpose(eg_uniform(cx, -1, 1, 3, 12), 0, 1);
        good = !eg_step_over(opt, life_loss, net, .block = 3, .leaves = 2, .capture = true,
                             .batch = { { "x", x } });
        eg_pop(cx, m);
    }
    return good;
}
TEST(each_allocation_of_a_batch_may_fail) { memory_ends_in_turn(batch_life, 600); }
