/* test_pieces.c: gradients that are sent between ranks while a rank's last block is still being
 * computed (lib/ranks/pieces.c). Ranks are threads. The tests have their own table of functions,
 * which records what is started when, and holds back what is started until the rank waits for it,
 * so that a write to the buffer in between is detected. */
#include <eingrad/ops.h>
#include <eingrad/ranks.h>
#include <eingrad/train.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"

enum { LAYERS = 6, WIDE = 8, EXAMPLES = 64, STEPS = 6, MOST = 8, PARTS = 2 * LAYERS };
static eg_ctx *cx;
static void open_cx(void) { cx = eg_open(); }
static void close_cx(void)
{
    ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
    eg_close(cx);
}

/* -- a table that records ---------------------------------------------------------------------- */
typedef struct posted {
    int to, from;
    const void *out;
    void *in;
    size_t out_bytes, in_bytes;
    uint64_t hash;
} posted;
typedef struct recorder {
    const eg_ranks_table *inner;
    posted list[64];
    int count;
    _Atomic int starts; /* messages that were started in this step */
    bool fails;
    char misuse[128];
} recorder;
static const char *noted_start(void *user, int to, const void *out, size_t out_bytes, int from,
                               void *in, size_t in_bytes)
{
    recorder *r = user;
    if (to < 0 && from < 0) return NULL;
    if (r->fails) return "a start that fails";
    r->list[r->count++] =
        (posted){ to, from, out, in, out_bytes, in_bytes, eg_hash(1, out, to < 0 ? 0 : out_bytes) };
    r->starts++;
    return NULL;
}
static const char *noted_finish(void *user)
{
    recorder *r = user;
    const char *bad = NULL;
    for (int k = 0; k < r->count && !bad; k++) {
        const posted *p = &r->list[k];
        if (p->to >= 0 && p->hash != eg_hash(1, p->out, p->out_bytes))
            snprintf(r->misuse, sizeof r->misuse, "message %d was written to on its way", k);
        bad = r->inner->exchange(r->inner->user, p->to, p->out, p->out_bytes, p->from, p->in,
                                 p->in_bytes);
    }
    r->count = 0;
    return bad;
}
static const char *noted_exchange(void *user, int to, const void *out, size_t out_bytes, int from,
                                  void *in, size_t in_bytes)
{
    recorder *r = user;
    if (r->count) snprintf(r->misuse, sizeof r->misuse, "an exchange before the wait");
    return r->inner->exchange(r->inner->user, to, out, out_bytes, from, in, in_bytes);
}

/* -- a model whose first layer observes the messages ------------------------------------------- */
typedef enum table_kind { PLAIN, NOTED, MIXED, TABLES } table_kind; /* MIXED: odd ranks PLAIN */
/* what happens in the last block of one rank, in step BAD_STEP */
typedef enum event { NOTHING, DATA, LOSS, SWEEP, GRADIENT, OTHER_WAY, START, MEMORY } event;
enum { BAD_STEP = 4 };
typedef struct run_case {
    int ranks, threads, leaves;
    int64_t block;
    bool serial, captured, divided;
    table_kind table;
    event event;
    int bad_rank, left; /* MEMORY: number of allocations that succeed from the first step on */
    /* by rank */
    uint64_t hash[MOST], sent[MOST], messages[MOST], predicted[MOST], before[MOST], after[MOST];
    /* number of started messages when the pass reached the first layer */
    int first_seen[MOST], last_seen[MOST];
    int other_ways[MOST];
    char message[MOST][300], misuse[MOST][128];
} run_case;
typedef struct rank_state {
    run_case *c;
    int rank, step, left;
    bool armed;
    int ways;
    recorder note;
    eg_tensor *w[LAYERS], *b[LAYERS];
} rank_state;
/* True in the block and step of the event. */
static bool happens(const rank_state *p, eg_ctx *own, event e)
{
    const run_case *c = p->c;
    int64_t from = 0, to = 0;
    return c->event == e && p->rank == c->bad_rank && p->step == BAD_STEP &&
           !eg_block_range(own, &from, &to) && to == (int64_t)EXAMPLES * (p->rank + 1) / c->ranks;
}
static bool same_shape(eg_tensor *y)
{
    const eg_tensor *x = eg_operand(y, 0);
    return eg_result(y, eg_type(x), eg_rank(x), eg_dims(x));
}
static rank_state *rank_state_of(const eg_tensor *y) { return *(rank_state *const *)eg_attr(y); }
static bool look_back(eg_tensor *y)
{
    rank_state *p = rank_state_of(y);
    run_case *c = p->c;
    eg_ctx *own = eg_context(y);
    int64_t from = 0, to = 0;
    eg_block_range(own, &from, &to);
    if (to == (int64_t)EXAMPLES * (p->rank + 1) / c->ranks)
        c->last_seen[p->rank] = p->note.starts;
    else if (c->first_seen[p->rank] < p->note.starts)
        c->first_seen[p->rank] = p->note.starts;
    if (happens(p, own, SWEEP)) return !!eg_fail(own, "the first layer has no gradient");
    if (happens(p, own, OTHER_WAY)) return !!eg_fail(own, "the operations are others");
    if (happens(p, own, GRADIENT)) return !eg_fill(y, INFINITY);
    return !eg_assign(y, eg_operand(y, 0));
}
static const eg_op back_op = { .name = "look back",
                               .equation = "y = x",
                               .arity = 1,
                               .shape = same_shape,
                               .forward = look_back,
                               .uses = EG_USES_NOTHING };
static eg_tensor *look_rule(eg_tensor *y, eg_tensor *g, int i)
{
    rank_state *p = rank_state_of(y);
    (void)i;
    if (happens(p, eg_context(y), OTHER_WAY)) return p->ways++, eg_neg(eg_neg(g));
    return eg_apply(&back_op, &p, sizeof p, 1, &g);
}
static bool look(eg_tensor *y) { return !eg_assign(y, eg_operand(y, 0)); }
static const eg_op look_op = { .name = "look",
                               .equation = "y = x",
                               .arity = 1,
                               .shape = same_shape,
                               .forward = look,
                               .rule = look_rule,
                               .uses = EG_USES_NOTHING };

typedef struct rows {
    const rank_state *p;
    eg_ctx *own;
} rows;
static int read_rows(void *args, void *to, int64_t n)
{
    const rows *a = args;
    float *x = to;
    int64_t from = 0, end;
    eg_block_range(a->own, &from, &end);
    for (int64_t k = 0; k < n; k++)
        x[k] = sinf(0.37f * (float)(from * WIDE + k + 100 * a->p->step));
    if (happens(a->p, a->own, DATA)) return eg_fail(a->own, "no data"), -1;
    if (happens(a->p, a->own, LOSS)) x[0] = NAN;
    return 0;
}
static eg_tensor *loss_of(void *user, eg_ctx *own, int64_t from, int64_t to, int64_t *count)
{
    rank_state *p = user;
    const rows of = { p, own };
    *count = to - from;
    eg_tensor *h =
        eg_from_call(own, EG_F32, 2, (int64_t[]){ to - from, WIDE }, read_rows, &of, sizeof of);
    for (int k = 0; k < LAYERS; k++) {
        h = eg_tanh(eg_affine("ni,io->no", h, p->w[k], p->b[k]));
        if (k == 0) h = eg_apply(&look_op, &p, sizeof p, 1, &h);
    }
    return eg_sum(NULL, eg_square(h));
}
static uint64_t hash_of(const rank_state *p)
{
    uint64_t h = 1;
    for (int k = 0; k < LAYERS; k++) h = hash_tensor(hash_tensor(h, p->w[k]), p->b[k]);
    return h;
}
/* An allocator that fails once it is armed. */
static void *poor(void *user, void *x, size_t old_size, size_t new_size)
{
    rank_state *p = user;
    (void)old_size;
    if (!new_size) free(x);
    if (!new_size || (p->armed && p->left-- <= 0)) return NULL;
    return realloc(x, new_size);
}
/* The bytes that a step sends, by the formula of the tree: gradients and values, and in addition a
 * loss and a count of each rank, a byte for each parameter, and three agreements of 8 bytes. */
static uint64_t predicted(eg_ranks *r, const run_case *c)
{
    int64_t counts[PARTS];
    for (int k = 0; k < PARTS; k++) counts[k] = k % 2 ? WIDE : WIDE * WIDE;
    eg_ranks_tree *t =
        eg_ranks_tree_open(.ranks = r, .leaves = c->leaves, .parts = PARTS, .counts = counts);
    const eg_ranks_tree_bytes b = eg_ranks_tree_predict(t);
    eg_ranks_tree_close(t);
    return b.sum + b.gather + (uint64_t)(c->ranks - 1) * (16 + PARTS + 3 * 8);
}
static void steps(rank_state *p, eg_ctx *own, eg_ranks *r, eg_opt *opt,
                  eg_captured_blocks *captured)
{
    run_case *c = p->c;
    const int me = p->rank;
    for (; p->step < STEPS; p->step++) {
        const eg_traffic had = eg_ranks_traffic(r);
        double mean = 0;
        p->note.starts = 0;
        p->note.fails = c->event == START && me == c->bad_rank && p->step == BAD_STEP;
        c->before[me] = hash_of(p);
        eg_step_over(opt, loss_of, p, EXAMPLES, .block = c->block, .leaves = c->leaves,
                     .serial = c->serial, .ranks = c->divided ? NULL : r, .mean = &mean,
                     .captured = captured);
        c->sent[me] = eg_ranks_traffic(r).sent - had.sent;
        c->messages[me] = eg_ranks_traffic(r).messages - had.messages;
        c->hash[me] = eg_hash(c->hash[me], &mean, sizeof mean);
        snprintf(c->message[me], sizeof *c->message, "%s", eg_error(own) ? eg_error(own) : "");
        eg_clear(own); /* so that the parameters can be compared */
        c->after[me] = hash_of(p);
        if (c->message[me][0]) return;
    }
}
static int run_case_body(void *user, const eg_ranks_table *table)
{
    run_case *c = user;
    const int me = table->rank;
    rank_state p = { .c = c, .rank = me, .left = c->left, .note = { .inner = table } };
    const eg_ranks_table noted = { .size = sizeof noted,
                                   .user = &p.note,
                                   .rank = me,
                                   .ranks = table->ranks,
                                   .exchange = noted_exchange,
                                   .start = noted_start,
                                   .finish = noted_finish };
    eg_ctx *own = eg_open(.threads = c->threads, .seed = 5, .realloc = poor, .user = &p);
    eg_ranks *r =
        eg_ranks_open(.cx = own, .table = c->table == NOTED || (c->table == MIXED && !(me % 2))
                                              ? &noted
                                              : table);
    eg_params *params = eg_params_open(own);
    for (int k = 0; k < LAYERS; k++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", k);
        p.w[k] = eg_param(params, name, "io", WIDE, WIDE);
        name[0] = 'b';
        p.b[k] = eg_param(params, name, "o", WIDE);
    }
    randomise(params, 0.5);
    eg_opt *opt = eg_sgd(params, .lr = 1e-2);
    if (c->divided) eg_opt_shard(opt, r);
    c->predicted[me] = predicted(r, c);
    c->hash[me] = 1;
    eg_captured_blocks *captured = c->captured ? eg_captured_blocks_open(own) : NULL;
    p.armed = c->event == MEMORY && me == c->bad_rank;
    steps(&p, own, r, opt, captured);
    p.armed = false;
    c->hash[me] = eg_hash(c->hash[me], &c->after[me], sizeof c->after[me]);
    c->other_ways[me] = p.ways;
    snprintf(c->misuse[me], sizeof c->misuse[me], "%s", p.note.misuse);
    const int bad = c->message[me][0] != 0;
    eg_ranks_close(r);
    eg_close(own);
    return bad;
}
/* Runs it; without an event, or with one that is not an error, there is no error. */
static void run(run_case *c)
{
    const int bad = eg_ranks_simulate(cx, c->ranks, run_case_body, c);
    const bool well = c->event == NOTHING || c->event == OTHER_WAY;
    if (!well) eg_clear(cx);
    for (int k = 0; k < c->ranks; k++) {
        ck_assert_msg(!c->misuse[k][0], "rank %d: %s", k, c->misuse[k]);
        if (well) ck_assert_msg(!c->message[k][0], "rank %d: %s", k, c->message[k]);
    }
    ck_assert(bad == 0 || !well);
}
/* The bits of one rank that captures nothing. */
static uint64_t alone(int64_t block, int leaves)
{
    static run_case one;
    one = (run_case){ .ranks = 1, .threads = 1, .block = block, .leaves = leaves };
    run(&one);
    return one.hash[0];
}

GROUP("overlap", .setup = open_cx, .teardown = close_cx, .timeout = 120)

/* Halving (16 leaves, 2 blocks each, on 1 … 8 ranks), subtrees (3 ranks; 13 leaves): the bits are
 * those of one rank, and the bytes those of the formula. Neither depends on whether messages are
 * started early. */
LOOP_TEST(bits_and_bytes_are_those_of_sums_that_wait, 2)
{
    static const int ranks[] = { 1, 2, 3, 4, 8 };
    const int leaves = _i ? 13 : 16;
    const uint64_t want = alone(2, leaves);
    for (int k = 0; k < 5; k++)
        for (int way = k % SLOWER; way < 3 * 2 * TABLES; way += SLOWER) {
            static run_case c;
            c = (run_case){ .ranks = ranks[k],
                            .threads = way % 3 ? 2 : 1,
                            .serial = way % 3 == 2,
                            .captured = way / 3 % 2,
                            .table = (table_kind)(way / 6),
                            .block = 2,
                            .leaves = leaves };
            run(&c);
            for (int r = 0; r < ranks[k]; r++) {
                ck_assert_msg(c.hash[r] == want, "%d ranks, way %d", ranks[k], way);
                if (ranks[k] > 1 && !_i && ranks[k] != 3)
                    ck_assert_uint_eq(c.sent[r], c.predicted[r]);
            }
        }
}
/* The number of messages of a step does not depend on whether they are started early. */
TEST(the_number_of_messages_does_not_depend_on_when_they_start)
{
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        static run_case c[TABLES];
        for (int k = 0; k < TABLES; k++) {
            c[k] = (run_case){
                .ranks = ranks, .threads = 1, .block = 2, .leaves = 16, .table = (table_kind)k
            };
            run(&c[k]);
            for (int r = 0; r < ranks; r++) ck_assert_uint_eq(c[k].messages[r], c[0].messages[r]);
        }
    }
}
/* The gradients of layers 1 to 5 have been started when the backward pass of the last block reaches
 * the first layer; in the blocks before nothing was started. A piece is a layer: a twelfth of the
 * elements is too few, a sixth suffices. */
LOOP_TEST(gradients_of_last_layers_are_sent_during_the_backward_pass, 8)
{
    static run_case c;
    c = (run_case){ .ranks = 2 << _i % 2,
                    .threads = _i & 4 ? 2 : 1,
                    .serial = _i & 4,
                    .captured = _i & 2,
                    .table = NOTED,
                    .block = 2,
                    .leaves = 16 };
    run(&c);
    for (int r = 0; r < c.ranks; r++) {
        ck_assert_int_eq(c.first_seen[r], 0);
        ck_assert_int_eq(c.last_seen[r], LAYERS - 1);
    }
}
/* Ranks whose leaves are divided among threads start complete gradients once only one leaf is left,
 * and all of them by the end. */
TEST(threads_of_a_rank_start_the_same_messages)
{
    const uint64_t want = alone(2, 16);
    static run_case c;
    for (int k = 0; k < 10; k++) {
        c = (run_case){
            .ranks = 2, .threads = 3, .captured = k % 2, .table = NOTED, .block = 2, .leaves = 16
        };
        run(&c);
        ck_assert(c.hash[0] == want && c.hash[1] == want);
        ck_assert_uint_eq(c.messages[0], c.messages[1]);
        ck_assert_uint_eq(c.sent[0], c.predicted[0]);
    }
}

/* -- errors ------------------------------------------------------------------------------------ */
/* Missing data, a loss that is not finite, a rule that fails after pieces were sent: in the last
 * block of one rank, an error of all, and nothing is updated. */
LOOP_TEST(an_error_in_the_last_block_ends_all_ranks, 3 * 2 * 4)
{
    static const char *const why[] = { "no data", "the loss is nan",
                                       "the first layer has no gradient" };
    static run_case c;
    c = (run_case){ .event = (event)(DATA + _i % 3),
                    .captured = _i / 3 % 2,
                    .ranks = _i & 8 ? 4 : 2,
                    .threads = _i < 12 ? 1 : 2,
                    .serial = _i % 2,
                    .bad_rank = _i & 8 ? 2 : 1,
                    .table = (table_kind)(_i % TABLES),
                    .block = 2,
                    .leaves = 16 };
    run(&c);
    for (int r = 0; r < c.ranks; r++) {
        char from[40] = "";
        if (r != c.bad_rank) snprintf(from, sizeof from, "rank %d: step_over: block ", c.bad_rank);
        ck_assert_msg(strstr(c.message[r], why[_i % 3]) &&
                          strstr(c.message[r], from) == c.message[r],
                      "rank %d says: %s", r, c.message[r]);
        ck_assert(c.before[r] == c.after[r]);
    }
}
/* An infinite gradient of one rank's first layer: every rank detects it before it updates
 * anything. */
LOOP_TEST(a_gradient_that_is_not_finite_stops_all_ranks, 2 * TABLES)
{
    static run_case c;
    c = (run_case){ .event = GRADIENT,
                    .divided = true,
                    .captured = _i % 2,
                    .ranks = 4,
                    .bad_rank = 3,
                    .threads = 1,
                    .table = (table_kind)(_i / 2),
                    .block = 2,
                    .leaves = 16 };
    run(&c);
    for (int r = 0; r < 4; r++) {
        ck_assert_msg(strstr(c.message[r], "has a nan"), "rank %d says: %s", r, c.message[r]);
        ck_assert(c.before[r] == c.after[r]);
    }
}
/* Captured operations that do not fit the values, which is detected after pieces were sent: the
 * block is computed again by the loss, and nothing is sent twice. */
LOOP_TEST(a_block_that_is_computed_again_sends_once, TABLES)
{
    const uint64_t want = alone(4, 16);
    static run_case c;
    c = (run_case){ .event = OTHER_WAY,
                    .captured = true,
                    .ranks = 4,
                    .bad_rank = 2,
                    .threads = 1,
                    .table = (table_kind)_i,
                    .block = 4,
                    .leaves = 16 };
    run(&c);
    for (int r = 0; r < 4; r++) {
        ck_assert(c.hash[r] == want);
        ck_assert_uint_eq(c.sent[r], c.predicted[r]);
    }
    ck_assert_int_eq(c.other_ways[2], 1);
}
TEST(a_start_that_fails_ends_all_ranks)
{
    static run_case c;
    c = (run_case){ .event = START,
                    .ranks = 4,
                    .bad_rank = 1,
                    .threads = 1,
                    .table = NOTED,
                    .block = 2,
                    .leaves = 16 };
    run(&c);
    ck_assert_msg(strstr(c.message[1], "ranks: rank 1 of 4: a start that fails"), "%s",
                  c.message[1]);
    for (int r = 0; r < 4; r++) {
        ck_assert_msg(c.message[r][0] != 0, "rank %d says nothing", r);
        ck_assert(c.before[r] == c.after[r]);
    }
}
/* Memory runs out on one rank, at each allocation of its steps in turn: all ranks end with that
 * error, or none. */
LOOP_TEST(memory_that_ends_on_one_rank_ends_all, 4)
{
    static run_case c;
    int failed = 0;
    for (int n = 0; n < 1 << 20; n += n < 150 ? 1 : n / 8) {
        c = (run_case){ .event = MEMORY,
                        .left = n,
                        .ranks = 2,
                        .bad_rank = _i % 2,
                        .threads = 1,
                        .captured = _i / 2,
                        .table = NOTED,
                        .block = 4,
                        .leaves = 16 };
        run(&c);
        ck_assert_msg(!c.message[0][0] == !c.message[1][0], "%d: \"%s\", \"%s\"", n, c.message[0],
                      c.message[1]);
        if (!c.message[0][0]) break;
        ck_assert_msg(strstr(c.message[0], "out of memory") &&
                          strstr(c.message[1], "out of memory"),
                      "%d: \"%s\", \"%s\"", n, c.message[0], c.message[1]);
        failed++;
    }
    ck_assert_int_gt(failed, 10);
    ck_assert(!c.message[0][0]);
}

/* -- sizes ------------------------------------------------------------------------------------- */
enum { XS = 40 };
typedef struct shapes {
    int count;
    int64_t size[XS];
    eg_dtype dtype;
    bool small; /* sums are subnormal, and flushed */
    uint64_t hash[MOST];
    char message[MOST][300];
    eg_tensor *x[MOST][XS];
} shapes;
typedef struct shape_of {
    const shapes *s;
    int rank;
} shape_of;
static eg_tensor *shapes_loss(void *user, eg_ctx *own, int64_t from, int64_t to, int64_t *count)
{
    const shape_of *of = user;
    eg_tensor *y = eg_full_n(own, EG_F32, 0, 0, NULL);
    *count = to - from;
    for (int k = 0; k < of->s->count; k++) {
        if (k % 5 == 3 && (k == 3 || from < 8)) continue; /* no block reaches it, or some do */
        for (int64_t e = from; e < to; e++) {
            /* small: the two halves of the examples cancel, except for a subnormal value */
            const double wave = sin((double)(e * XS + k)),
                         scale = of->s->small ? (e < 16 ? 1.2e-38 : -1.2e-38) * (1 + 0.01 * wave)
                                              : ldexp(wave, (int)(e * 7 % 23) - 11);
            eg_tensor *x = eg_scale(of->s->x[of->rank][k], scale);
            y = eg_add(y, eg_cast(eg_sum(NULL, x), EG_F32));
        }
    }
    return y;
}
static int shapes_body(void *user, const eg_ranks_table *table)
{
    shapes *s = user;
    const int me = table->rank;
    recorder note = { .inner = table };
    const eg_ranks_table noted = { .size = sizeof noted,
                                   .user = &note,
                                   .rank = me,
                                   .ranks = table->ranks,
                                   .exchange = noted_exchange,
                                   .start = noted_start,
                                   .finish = noted_finish };
    eg_ctx *own = eg_open(.threads = 1, .flush = s->small);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = &noted);
    eg_tensor *dx[XS];
    shape_of of = { s, me };
    for (int k = 0; k < s->count; k++) s->x[me][k] = eg_full_n(own, s->dtype, 1, 1, &s->size[k]);
    const eg_grad_over_args o = { .size = sizeof o,
                                  .cx = own,
                                  .loss = shapes_loss,
                                  .user = &of,
                                  .examples = 32,
                                  .block = 2,
                                  .count = s->count,
                                  .xs = s->x[me],
                                  .dxs = dx };
    const int bad = eg_ranks_grad_over(r, &o);
    uint64_t h = 1;
    for (int k = 0; !bad && k < s->count; k++) h = dx[k] ? hash_tensor(h, dx[k]) : h * 31;
    s->hash[me] = h;
    snprintf(s->message[me], sizeof *s->message, "%s%s", bad ? eg_error(own) : "", note.misuse);
    eg_ranks_close(r);
    eg_close(own);
    return bad;
}
/* The bits are those of one rank on 2, 3, 4 and 8. */
static void any_ranks(shapes *more)
{
    static shapes one;
    one = *more;
    ck_assert_int_eq(eg_ranks_simulate(cx, 1, shapes_body, &one), 0);
    for (int ranks = 2; ranks <= 8; ranks += ranks < 4 ? 1 : 4) {
        ck_assert_int_eq(eg_ranks_simulate(cx, ranks, shapes_body, more), 0);
        for (int r = 0; r < ranks; r++) {
            ck_assert_msg(!more->message[r][0], "%s", more->message[r]);
            ck_assert_msg(more->hash[r] == one.hash[0], "rank %d of %d", r, ranks);
        }
    }
}
/* Parts of 0 and 1 elements, fewer elements than pieces, parts of several chunks, one part. */
LOOP_TEST(parts_of_any_size, 5 * 2)
{
    static const struct {
        int count;
        int64_t size[3];
    } of[] = { { 1, { 1 } },
               { 3, { 0, 5, 0 } },
               { 2, { 100000, 3 } },
               { 3, { 3, 4097, 70000 } },
               { XS, { 0 } } };
    static shapes s;
    s = (shapes){ .count = of[_i / 2].count, .dtype = _i % 2 ? EG_F64 : EG_F32 };
    for (int k = 0; k < s.count; k++) s.size[k] = s.count == XS ? k % 3 : of[_i / 2].size[k];
    any_ranks(&s);
}
/* With eg_flush a sum between ranks flushes as one within a rank. */
TEST(sums_that_are_flushed)
{
    static shapes s;
    s = (shapes){ .count = 2, .dtype = EG_F32, .small = true, .size = { 7, 5 } };
    any_ranks(&s);
}
