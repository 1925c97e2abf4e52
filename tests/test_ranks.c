/* test_ranks.c: groups of ranks and sums along a tree, with ranks that are threads. Tests that need
 * mpirun are in tests/ranks.sh. */
#include <eingrad/ranks.h>
#include <eingrad/train.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"

/* -- elements that every rank can compute ------------------------------------------------------ */
/* Element k of a leaf; the sizes are so different that each order of addition has other bits. */
static double number(int64_t leaf, int64_t k)
{
    uint64_t z = (uint64_t)leaf * 1000003u + (uint64_t)k + 1;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return ldexp((double)(z >> 11) * 0x1p-52 - 1, (int)(z % 23) - 11);
}
static void set(eg_dtype dtype, void *x, int64_t k, double value)
{
    if (dtype == EG_F64)
        ((double *)x)[k] = value;
    else
        ((float *)x)[k] = (float)value;
}
static void add(eg_dtype dtype, void *x, const void *y, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        if (dtype == EG_F64)
            ((double *)x)[k] += ((const double *)y)[k];
        else
            ((float *)x)[k] += ((const float *)y)[k];
}
/* The sum of the leaves of a node, along the tree. */
static void *sum_of(eg_dtype dtype, eg_span node, int64_t n)
{
    void *x = malloc((size_t)n * 8 + 8);
    if (node.to - node.from == 1) {
        for (int64_t k = 0; k < n; k++) set(dtype, x, k, number(node.from, k));
        return x;
    }
    const int64_t middle = eg_ranks_tree_middle(node);
    void *a = sum_of(dtype, (eg_span){ node.from, middle }, n),
         *b = sum_of(dtype, (eg_span){ middle, node.to }, n);
    add(dtype, a, b, n);
    memcpy(x, a, (size_t)n * (dtype == EG_F64 ? 8 : 4));
    free(a), free(b);
    return x;
}

/* -- one sum on simulated ranks ---------------------------------------------------------------- */
enum { MOST = 256, PARTS = 3 };
typedef struct sums {
    eg_dtype dtype;
    int64_t leaves, chunk, n, counts[PARTS];
    const void *want;
    int64_t poison; /* the element that becomes infinite in leaf 0; −1: none */
    /* by rank */
    eg_traffic sum, gather, statistics;
    struct {
        eg_traffic sum, gather, statistics;
        eg_ranks_tree_bytes predicted;
        eg_span leaves;
        int subtrees;
        int64_t owned;
        double norm;
        uint64_t mallocs;
        char message[512];
    } of[MOST];
} sums;

static eg_traffic since(const eg_ranks *r, eg_traffic before)
{
    const eg_traffic now = eg_ranks_traffic(r);
    return (eg_traffic){ now.sent - before.sent, now.received - before.received,
                         now.messages - before.messages };
}
/* The body of a rank: its subtrees, their sum, the norm, an "update", the gathering. */
static int sum_body(void *user, const eg_ranks_table *table)
{
    sums *s = user;
    const int me = table->rank;
    const size_t width = s->dtype == EG_F64 ? 8 : 4;
    eg_ctx *cx = eg_open(.threads = 1);
    eg_ranks *r = eg_ranks_open(.cx = cx, .table = table);
    eg_ranks_tree *t = eg_ranks_tree_open(.ranks = r, .dtype = s->dtype, .leaves = s->leaves,
                                          .parts = PARTS, .counts = s->counts, .chunk = s->chunk);
    int bad = !t;
    if (t) {
        void *subtree[64] = { NULL }, *sum = calloc((size_t)s->n + 1, 8);
        double *square = calloc((size_t)eg_ranks_tree_chunks(t) + 1, sizeof *square);
        for (int k = 0; k < eg_ranks_tree_subtrees(t); k++) {
            subtree[k] = sum_of(s->dtype, eg_ranks_tree_subtree(t, k), s->n);
            if (s->poison >= 0 && eg_ranks_tree_subtree(t, k).from == 0)
                set(s->dtype, subtree[k], s->poison, INFINITY);
        }
        const uint64_t mallocs = eg_stats(cx).mallocs;
        eg_traffic before = eg_ranks_traffic(r);
        bad |= eg_ranks_tree_sum(t, subtree, sum);
        s->of[me].sum = since(r, before), before = eg_ranks_traffic(r);
        bad |= eg_ranks_tree_squares(t, sum, square);
        s->of[me].statistics = since(r, before), before = eg_ranks_traffic(r);
        const eg_span own = eg_ranks_tree_range(t), all = { 0, eg_ranks_tree_chunks(t) };
        s->of[me].norm = eg_ranks_tree_total(square, all);
        bad |= eg_ranks_tree_gather(t, sum);
        s->of[me].gather = since(r, before);
        s->of[me].mallocs = eg_stats(cx).mallocs - mallocs;
        s->of[me].predicted = eg_ranks_tree_predict(t);
        s->of[me].leaves = eg_ranks_tree_leaves(t);
        s->of[me].subtrees = eg_ranks_tree_subtrees(t);
        for (int64_t c = own.from; c < own.to; c++)
            s->of[me].owned += eg_ranks_tree_chunk(t, c).to - eg_ranks_tree_chunk(t, c).from;
        /* the chunks of a part contain its elements, and follow those of the part before */
        int64_t chunk = 0;
        for (int part = 0; part < PARTS; part++) {
            const eg_span of = eg_ranks_tree_part(t, part);
            int64_t n = 0;
            bad |= of.from != chunk;
            for (; chunk < of.to; chunk++)
                n += eg_ranks_tree_chunk(t, chunk).to - eg_ranks_tree_chunk(t, chunk).from;
            bad |= n != s->counts[part];
        }
        bad |= chunk != all.to;
        bad |= s->want && memcmp(sum, s->want, (size_t)s->n * width) != 0;
        for (int k = 0; k < eg_ranks_tree_subtrees(t); k++) free(subtree[k]);
        free(sum), free(square);
    }
    if (eg_error(cx)) snprintf(s->of[me].message, sizeof s->of[me].message, "%s", eg_error(cx));
    eg_ranks_tree_close(t);
    eg_ranks_close(r);
    eg_close(cx);
    return bad;
}
static eg_ctx *cx;
static void open_cx(void) { cx = eg_open(); }
static void close_cx(void)
{
    ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
    eg_close(cx);
}
/* Runs it on that many ranks, and checks the results of each of them. */
static void run(sums *s, int ranks)
{
    memset(s->of, 0, sizeof s->of);
    s->n = s->counts[0] + s->counts[1] + s->counts[2];
    eg_ranks_simulate(cx, ranks, sum_body, s);
    for (int k = 0; k < ranks; k++) ck_assert_msg(!s->of[k].message[0], "%s", s->of[k].message);
    ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
    int64_t leaves = 0, owned = 0;
    for (int k = 0; k < ranks; k++) {
        ck_assert_int_eq(s->of[k].leaves.from, leaves);
        leaves = s->of[k].leaves.to, owned += s->of[k].owned;
        ck_assert_uint_eq(s->of[k].sum.sent, s->of[k].predicted.sum);
        ck_assert_uint_eq(s->of[k].gather.sent, s->of[k].predicted.gather);
        ck_assert_uint_eq(s->of[k].statistics.sent, s->of[k].predicted.statistics);
        ck_assert_uint_eq(s->of[k].mallocs, 0);
        ck_assert(memcmp(&s->of[k].norm, &s->of[0].norm, sizeof(double)) == 0);
    }
    ck_assert_int_eq(leaves, s->leaves);
    ck_assert_int_eq(owned, s->n);
}

GROUP("sums", .setup = open_cx, .teardown = close_cx)

/* The tree is ((0 1)(2 3)) ((4 5) 6). */
TEST(a_node_is_cut_at_the_largest_power_of_two)
{
    const int64_t middle[] = { 1, 2, 2, 4, 4, 4, 4, 8, 8 };
    for (int64_t n = 2; n <= 10; n++)
        ck_assert_int_eq(eg_ranks_tree_middle((eg_span){ 16, 16 + n }), 16 + middle[n - 2]);
}

/* For each number of leaves the sum on 1 … 8 and 13 ranks is the sum along the tree, to the bit,
 * though another order has other bits; so is the norm. */
LOOP_TEST(a_sum_has_the_same_bits_on_any_number_of_ranks, 2)
{
    const int leaves[] = { 1, 2, 3, 7, 8, 16, 24 }, ranks[] = { 1, 2, 3, 4, 5, 6, 7, 8, 13 };
    sums s = { .dtype = _i ? EG_F64 : EG_F32, .chunk = 16, .counts = { 100, 1, 57 }, .poison = -1 };
    int different = 0;
    for (size_t l = 0; l < sizeof leaves / sizeof *leaves; l++) {
        s.leaves = leaves[l];
        void *want = sum_of(s.dtype, (eg_span){ 0, s.leaves }, 158);
        void *other = sum_of(s.dtype, (eg_span){ 0, 1 }, 158);
        for (int64_t k = 1; k < s.leaves; k++) {
            void *leaf = sum_of(s.dtype, (eg_span){ k, k + 1 }, 158);
            add(s.dtype, other, leaf, 158);
            free(leaf);
        }
        different += memcmp(want, other, 158 * (_i ? 8 : 4)) != 0;
        s.want = want;
        double norm = 0;
        for (size_t p = 0; p < sizeof ranks / sizeof *ranks; p++) {
            run(&s, ranks[p]);
            if (p) ck_assert(memcmp(&s.of[0].norm, &norm, sizeof norm) == 0);
            norm = s.of[0].norm;
        }
        free(want), free(other);
    }
    /* 7, 8, 16, 24: adding one leaf after another is another order */
    ck_assert_int_eq(different, 4);
}

/* The lower bound: each rank sends N(P − 1)/P words twice. */
TEST(halving_sends_the_least_possible_number_of_bytes)
{
    for (int p = 1; p <= 256; p *= 2) {
        sums s = {
            .dtype = EG_F32, .leaves = 256, .chunk = 4, .counts = { 1024, 512, 512 }, .poison = -1
        };
        run(&s, p);
        for (int k = 0; k < p; k++) {
            ck_assert_uint_eq(s.of[k].sum.sent, (uint64_t)(4 * 2048 * (p - 1) / p));
            ck_assert_uint_eq(s.of[k].gather.sent, (uint64_t)(4 * 2048 * (p - 1) / p));
            ck_assert_uint_eq(s.of[k].sum.received, s.of[k].sum.sent);
            ck_assert_uint_eq(1u << s.of[k].sum.messages, p);
        }
    }
}
/* Three ranks of 16 leaves have [0,5) [5,10) [10,16): 2, 3 and 2 complete subtrees. */
TEST(other_numbers_of_ranks_send_their_whole_subtrees)
{
    sums s = { .dtype = EG_F64, .leaves = 16, .chunk = 1, .counts = { 10, 10, 10 }, .poison = -1 };
    run(&s, 3);
    const int subtrees[] = { 2, 3, 2 };
    for (int k = 0; k < 3; k++) {
        ck_assert_int_eq(s.of[k].subtrees, subtrees[k]);
        ck_assert_uint_eq(s.of[k].sum.sent, (uint64_t)(8 * subtrees[k] * 20));
        ck_assert_uint_eq(s.of[k].gather.sent, 8 * 2 * 10);
    }
}
TEST(ranks_without_leaves_own_a_range_of_the_sum)
{
    sums s = { .dtype = EG_F32, .leaves = 2, .chunk = 1, .counts = { 9, 1, 0 }, .poison = -1 };
    void *want = sum_of(EG_F32, (eg_span){ 0, 2 }, 10);
    s.want = want;
    run(&s, 5);
    int idle = 0;
    for (int k = 0; k < 5; k++) {
        idle += s.of[k].subtrees == 0;
        ck_assert_int_eq(s.of[k].owned, 2);
    }
    ck_assert_int_eq(idle, 3);
    free(want);
}
LOOP_TEST(a_number_that_is_not_finite_is_refused_on_every_rank, 2)
{
    const int ranks = _i ? 3 : 4;
    sums s = {
        .dtype = EG_F32, .leaves = 8, .chunk = 8, .n = 60, .counts = { 20, 20, 20 }, .poison = 33
    };
    ck_assert_int_eq(eg_ranks_simulate(cx, ranks, sum_body, &s), -1);
    eg_clear(cx);
    for (int k = 0; k < ranks; k++)
        ck_assert_msg(strstr(s.of[k].message, "not finite: in part 1, among its elements 8 to 15"),
                      "rank %d says: %s", k, s.of[k].message);
}
TEST(each_allocation_may_fail)
{
    const int64_t counts[] = { 1 << 20, 1 << 21 };
    int made = 0;
    for (int most = 0; most < 40 && !made; most++) {
        int left = most;
        eg_ctx *poor = eg_open(.realloc = failing, .user = &left);
        eg_ranks *r = poor ? eg_ranks_open(.cx = poor) : NULL;
        eg_ranks_tree *t = eg_ranks_tree_open(.ranks = r, .leaves = 1 << 20, .parts = 2,
                                              .counts = counts, .chunk = 8);
        ck_assert(!poor || !t == (eg_error_code(poor) == EG_ERROR_MEMORY));
        made = t != NULL;
        eg_ranks_tree_close(t);
        eg_ranks_close(r);
        eg_close(poor);
    }
    ck_assert(made);
}
TEST(a_tree_refuses_what_makes_none)
{
    eg_ranks *r = eg_ranks_open(.cx = cx);
    const int64_t ten = 10, less = -1;
#define REFUSED(text, ...)                                               \
    do {                                                                 \
        ck_assert_ptr_null(eg_ranks_tree_open(.ranks = r, __VA_ARGS__)); \
        ck_assert_msg(strstr(eg_error(cx), text), "%s", eg_error(cx));   \
        eg_clear(cx);                                                    \
    } while (0)
    REFUSED("f32 or f64, not i32", .leaves = 2, .parts = 1, .counts = &ten, .dtype = EG_I32);
    REFUSED("1 to 2^30 leaves, or 0 to sum nothing, not -1", .parts = 1, .counts = &ten,
            .leaves = -1);
    REFUSED("chunk must be positive, not -4", .leaves = 1, .parts = 1, .counts = &ten, .chunk = -4);
    REFUSED("at least one part, not 0", .leaves = 1, .counts = &ten);
    REFUSED("part 0 of a buffer cannot have -1", .leaves = 1, .parts = 1, .counts = &less);
    eg_ranks_tree *none = eg_ranks_tree_open(.ranks = r, .parts = 1, .counts = &ten);
    float x[10] = { 0 };
    ck_assert_int_eq(eg_ranks_tree_gather(none, x), 0);
    ck_assert_int_eq(eg_ranks_tree_sum(none, (void *[]){ x }, x), -1);
    ck_assert_ptr_nonnull(strstr(eg_error(cx), "a tree without leaves has no sum"));
    eg_clear(cx);
    eg_ranks_tree_close(none);
    eg_ranks_close(r);
}

GROUP("groups", .setup = open_cx, .teardown = close_cx)

TEST(messages_and_sums_at_null)
{
    eg_ranks *r = eg_ranks_open(.cx = cx);
    eg_ranks_tree *t =
        eg_ranks_tree_open(.ranks = r, .leaves = 1, .parts = 1, .counts = &(int64_t){ 3 });
    float x[3] = { 1, 2, 3 };
    double square[1];
    void *part = x;
#define AT_NULL(call, text)               \
    ck_assert_int_eq(call, -1);           \
    ck_assert_str_eq(eg_error(cx), text); \
    eg_clear(cx)
    AT_NULL(eg_ranks_gather(r, NULL, 4, x), "ranks: gather: the bytes of this rank are NULL");
    AT_NULL(eg_ranks_gather(r, x, 4, NULL), "ranks: gather: the memory for all ranks is NULL");
    AT_NULL(eg_ranks_exchange(r, 0, NULL, 4, 0, x, 4),
            "ranks: exchange: the bytes to send are NULL");
    AT_NULL(eg_ranks_exchange(r, 0, x, 4, 0, NULL, 4),
            "ranks: exchange: the memory to receive in is NULL");
    AT_NULL(eg_ranks_tree_sum(t, NULL, x), "ranks: sum: a subtree is NULL");
    AT_NULL(eg_ranks_tree_sum(t, &(void *){ NULL }, x), "ranks: sum: a subtree is NULL");
    AT_NULL(eg_ranks_tree_sum(t, &part, NULL), "ranks: sum: the sum is NULL");
    AT_NULL(eg_ranks_tree_gather(t, NULL), "ranks: gather: the values are NULL");
    AT_NULL(eg_ranks_tree_statistics(t, NULL), "ranks: statistics: the values are NULL");
    AT_NULL(eg_ranks_tree_squares(t, NULL, square), "ranks: squares: the numbers are NULL");
    AT_NULL(eg_ranks_tree_squares(t, x, NULL), "ranks: squares: the results are NULL");
#undef AT_NULL
    ck_assert_int_eq(eg_ranks_gather(r, NULL, 0, NULL), 0);
    ck_assert_int_eq(eg_ranks_tree_sum(t, &part, x), 0);
    ck_assert(eg_ranks_tree_middle((eg_span){ 0, INT64_MAX }) == INT64_C(1) << 62);
    eg_ranks_tree_close(t);
    eg_ranks_close(r);
}
TEST(a_single_process_is_rank_0_of_1)
{
    eg_ranks *r = eg_ranks_open(.cx = cx);
    ck_assert_int_eq(eg_ranks_rank(r), 0);
    ck_assert_int_eq(eg_ranks_count(r), 1);
    int32_t out = 7, in = 0, all = 0;
    ck_assert_int_eq(eg_ranks_exchange(r, 0, &out, sizeof out, 0, &in, sizeof in), 0);
    ck_assert_int_eq(eg_ranks_gather(r, &out, sizeof out, &all), 0);
    ck_assert(in == 7 && all == 7);
    ck_assert_int_eq(eg_ranks_agree(r, "the data", "x"), 0);
    ck_assert_int_eq(eg_ranks_barrier(r), 0);
    ck_assert_uint_eq(eg_ranks_traffic(r).sent, 0);
    eg_ranks_close(r);
}

typedef struct talk {
    int kind;
    char message[MOST][256];
    int codes[MOST];
    uint64_t sent[MOST];
} talk;
enum { FLUSH, DATA, FAILS, LEAVES, LENGTH, GATHERS, WAITS };
/* One rank does what another one does not. */
static int talk_body(void *user, const eg_ranks_table *table)
{
    talk *t = user;
    const int me = table->rank, ranks = table->ranks;
    eg_ctx *own = eg_open(.threads = 1, .flush = t->kind == FLUSH && me == 2);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    int64_t x = me, all[MOST] = { 0 };
    int bad = !r;
    if (t->kind == DATA) bad |= eg_ranks_agree(r, "the data", me == 1 ? "b" : "a");
    if (t->kind == FAILS) {
        if (me == 2) eg_reshape(eg_ones(own, 3), 2);
        bad |= eg_ranks_barrier(r);
    }
    if (t->kind == LEAVES && me != 1)
        bad |= eg_ranks_exchange(r, (me + 1) % ranks, &x, sizeof x, (me + ranks - 1) % ranks, &x,
                                 sizeof x);
    if (t->kind == WAITS) /* each receives first */
        bad |= eg_ranks_exchange(r, -1, NULL, 0, (me + 1) % ranks, &x, sizeof x);
    if (t->kind == LENGTH) bad |= eg_ranks_gather(r, all, me == 0 ? 16 : 8, all);
    if (t->kind == GATHERS) {
        bad |= eg_ranks_gather(r, &x, sizeof x, all);
        for (int k = 0; k < ranks; k++) bad |= all[k] != k;
    }
    if (eg_error(own)) snprintf(t->message[me], sizeof t->message[me], "%s", eg_error(own));
    t->codes[me] = (int)eg_error_code(own);
    t->sent[me] = eg_ranks_traffic(r).sent;
    eg_ranks_close(r);
    eg_close(own);
    return bad;
}
static void says(const talk *t, int rank, const char *text)
{
    ck_assert_msg(strstr(t->message[rank], text), "rank %d says: %s", rank, t->message[rank]);
}
TEST(ranks_that_differ_are_named_and_refused)
{
    static talk t;
    t.kind = FLUSH;
    ck_assert_int_eq(eg_ranks_simulate(cx, 4, talk_body, &t), -1);
    eg_clear(cx);
    for (int k = 0; k < 4; k++)
        says(&t, k, "the options eg_flush of rank 0 are \"off\", but those of rank 2 \"on\"");
    t = (talk){ .kind = DATA };
    ck_assert_int_eq(eg_ranks_simulate(cx, 3, talk_body, &t), -1);
    eg_clear(cx);
    for (int k = 0; k < 3; k++)
        says(&t, k, "the data of rank 0 are \"a\", but those of rank 1 \"b\"");
}
/* A table of functions in which rank 1 sends what rank 0 sends, except for some text: a rank on
 * another kind of processor, or with another library. */
typedef struct faked {
    const char *find, *put; /* find NULL: a number of 16 digits, which the test does not know */
} faked;
static const char *faked_exchange(void *user, int to, const void *out, size_t out_bytes, int from,
                                  void *in, size_t in_bytes)
{
    (void)user, (void)to, (void)from;
    if (in_bytes == out_bytes) memcpy(in, out, in_bytes);
    return NULL;
}
static const char *faked_gather(void *user, const void *mine, size_t bytes, void *all)
{
    const faked *f = user;
    char *other = (char *)all + bytes;
    memcpy(all, mine, bytes);
    memcpy(other, mine, bytes);
    const bool found = bytes == 128 && (f->find ? !strcmp(other, f->find)
                                                : strspn(other, "0123456789abcdef") == 16);
    if (found) snprintf(other, bytes, "%s", f->put);
    return NULL;
}
LOOP_TEST(ranks_of_another_kind_are_named_and_refused, 5)
{
    const struct {
        const char *find, *put, *what;
    } row[] = { { eg_version(), "9.9", "the versions of eingrad" },
                { eg_kernel_info(), "mips of BLIS 7", "the kernels" },
                { "off", "on", "the options eg_flush" },
                { NULL, "0123456789abcdef", "the bits of the vector mathematics" },
                { "neither", "", "" } };
    faked f = { .find = row[_i].find, .put = row[_i].put };
    eg_ranks_table table = { .size = sizeof table,
                             .user = &f,
                             .ranks = 2,
                             .exchange = faked_exchange,
                             .gather = faked_gather };
    eg_ranks *r = eg_ranks_open(.cx = cx, .table = &table);
    if (_i == 4) { /* nothing is replaced: a group */
        ck_assert_int_eq(eg_ranks_count(r), 2);
        eg_ranks_close(r);
        return;
    }
    char want[160];
    snprintf(want, sizeof want, "ranks: %s of rank 0 are ", row[_i].what);
    ck_assert_msg(eg_error(cx) && strstr(eg_error(cx), want), "%s", eg_error(cx));
    snprintf(want, sizeof want, ", but those of rank 1 \"%s\"", row[_i].put);
    ck_assert_msg(strstr(eg_error(cx), want) != NULL, "%s", eg_error(cx));
    ck_assert_ptr_null(r);
    eg_clear(cx);
}
TEST(an_error_of_one_rank_is_recorded_on_all)
{
    static talk t;
    t.kind = FAILS;
    ck_assert_int_eq(eg_ranks_simulate(cx, 5, talk_body, &t), -1);
    eg_clear(cx);
    for (int k = 0; k < 5; k++) {
        says(&t, k, k == 2 ? "reshape: " : "rank 2: reshape: ");
        ck_assert_int_eq(t.codes[k], EG_ERROR_SHAPE);
    }
}
TEST(a_rank_that_ended_is_an_error_of_those_that_wait_for_it)
{
    static talk t;
    t.kind = LEAVES;
    ck_assert_int_eq(eg_ranks_simulate(cx, 3, talk_body, &t), -1);
    eg_clear(cx);
    says(&t, 0, " ended before it ");
    says(&t, 2, "rank 1 ended before it sent a message");
}
/* as after calls in different orders; a rank may also find that another one has ended by then */
LOOP_TEST(ranks_that_wait_for_each_other_are_an_error, 3)
{
    static talk t;
    bool message = false;
    t.kind = WAITS;
    ck_assert_int_eq(eg_ranks_simulate(cx, 2 + 2 * _i, talk_body, &t), -1);
    eg_clear(cx);
    for (int k = 0; k < 2 + 2 * _i; k++) {
        const bool waits = strstr(t.message[k], "every rank waits for another one, here for rank ");
        if (!waits) says(&t, k, " ended before it sent a message");
        message |= waits;
    }
    ck_assert(message);
}
TEST(a_message_of_another_length_is_an_error)
{
    static talk t;
    t.kind = LENGTH;
    ck_assert_int_eq(eg_ranks_simulate(cx, 2, talk_body, &t), -1);
    eg_clear(cx);
    /* the first rank that detects it reports it; the other one may find that this rank has ended */
    ck_assert_msg(strstr(t.message[1], "rank 0 sent 16 bytes, not 8") ||
                      strstr(t.message[0], "rank 1 sent 8 bytes, not 16"),
                  "%s; %s", t.message[0], t.message[1]);
}
TEST(a_gather_is_counted_as_what_the_others_need)
{
    static talk t;
    t.kind = GATHERS;
    ck_assert_int_eq(eg_ranks_simulate(cx, 7, talk_body, &t), 0);
    for (int k = 0; k < 7; k++) ck_assert_uint_eq(t.sent[k], 6 * sizeof(int64_t));
}
TEST(a_group_refuses_what_is_none)
{
    const eg_ranks_table none = { .size = sizeof none, .rank = 2, .ranks = 2 };
    ck_assert_ptr_null(eg_ranks_open(.cx = cx, .table = &none));
    ck_assert_ptr_nonnull(strstr(eg_error(cx), "rank 2 of 2"));
    eg_clear(cx);
    eg_ranks *r = eg_ranks_open(.cx = cx);
    char x = 0;
    ck_assert_int_eq(eg_ranks_exchange(r, 1, &x, 1, 1, &x, 1), -1);
    ck_assert_ptr_nonnull(strstr(eg_error(cx), "cannot send to rank 1"));
    eg_clear(cx);
    ck_assert_int_eq(eg_ranks_simulate(cx, 257, sum_body, NULL), -1);
    ck_assert_ptr_nonnull(strstr(eg_error(cx), "257 ranks cannot be simulated; 1 to 256 can"));
    eg_clear(cx);
    eg_ranks_close(r);
}
/* eg_ranks_open reads the environment: a launcher without the module is an error, not a run of one
 * process, since the processes would write the same files. */
TEST(a_launcher_without_mpi_is_refused)
{
    setenv("EINGRAD_MODULES", "/nonexistent", 1);
    setenv("OMPI_COMM_WORLD_RANK", "1", 1), setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    ck_assert_ptr_null(eg_ranks_open(.cx = cx));
    ck_assert_msg(strstr(eg_error(cx),
                         "mpirun of Open MPI started 4 processes, but there is no MPI "
                         "for them: libeingrad-mpi.so is not in /nonexistent"),
                  "%s", eg_error(cx));
    ck_assert_int_eq(eg_error_code(cx), EG_ERROR_UNSUPPORTED);
    eg_clear(cx);
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1), setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    eg_ranks *r = eg_ranks_open(.cx = cx); /* one process needs no MPI */
    ck_assert_int_eq(eg_ranks_count(r), 1);
    eg_ranks_close(r);
}

/* -- steps of a model -------------------------------------------------------------------------- */
enum { EXAMPLES = 45, PLACES = 5, CLASSES = 7, STEPS = 3 };
typedef struct training {
    int threads, leaves, ranks;
    bool fails;        /* block 9 fails */
    uint64_t hash[13]; /* hash of parameters and losses, by rank */
    int64_t counted[13];
    char message[13][256];
    _Atomic int blocks; /* number of blocks that all ranks computed */
    eg_transformer *net[13];
} training;
typedef struct rank_of_training {
    training *l;
    int rank;
} rank_of_training;
static eg_tensor *training_loss(void *user, eg_ctx *own, int64_t from, int64_t to, int64_t *count)
{
    const rank_of_training *p = user;
    int32_t token[EXAMPLES * PLACES], target[EXAMPLES * PLACES];
    const int64_t n = (to - from) * PLACES, dims[] = { to - from, PLACES };
    p->l->blocks++;
    if (p->l->fails && from == 27) return eg_fail(own, "a sentence of block 9");
    *count = 0;
    for (int64_t k = 0; k < n; k++) {
        token[k] =
            (int32_t)((uint64_t)(from * PLACES + k) * 2654435769u % 4294967296u >> 20) % CLASSES;
        target[k] = (from * PLACES + k) % 7 == 3 ? -1 : (token[k] + 1) % CLASSES;
        *count += target[k] >= 0;
    }
    eg_tensor *logits =
        eg_transformer_run(.transformer = p->l->net[p->rank],
                           .index = eg_from_n(own, EG_I32, token, 2, dims), .where = "j <= i");
    return eg_sum(NULL, eg_cross_entropy("b l [v]", logits, eg_from_n(own, EG_I32, target, 2, dims),
                                         .ignore = -1, .each = true));
}
static int training_body(void *user, const eg_ranks_table *table)
{
    training *l = user;
    rank_of_training p = { l, table->rank };
    eg_ctx *own = eg_open(.threads = l->threads, .seed = 5);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    eg_params *params = eg_params_open(own);
    l->net[p.rank] = eg_transformer_new(.params = params, .vocabulary = CLASSES, .length = PLACES,
                                        .layers = 1, .d_model = 16, .heads = 2, .dropout = 0.2);
    eg_opt *opt = eg_adam(params, .lr = 1e-2, .clip_norm = 0.5);
    uint64_t h = EG_HASH_START;
    for (int k = 0; k < STEPS && !eg_error(own); k++) {
        double mean = 0;
        eg_step_over(opt, training_loss, &p, EXAMPLES, .block = 3, .leaves = l->leaves, .ranks = r,
                     .mean = &mean, .counted = &l->counted[p.rank]);
        h = eg_hash(h, &mean, sizeof mean);
    }
    for (int k = 0; k < eg_params_count(params) && !eg_error(own); k++) {
        eg_tensor *x = eg_params_at(params, k)->x;
        h = eg_hash(h, eg_f32(x), sizeof(float) * (size_t)eg_size(x));
    }
    l->hash[p.rank] = h;
    if (eg_error(own)) snprintf(l->message[p.rank], sizeof *l->message, "%s", eg_error(own));
    const int bad = eg_error(own) != NULL;
    eg_ranks_close(r);
    eg_close(own);
    return bad;
}

GROUP("steps", .setup = open_cx, .teardown = close_cx, .timeout = 120)

/* 15 blocks in 16, 5 and 3 leaves, dropout, a clipped norm, targets that do not count. */
LOOP_TEST(steps_have_the_same_bits_on_any_number_of_ranks_and_threads, 3)
{
    static const int leaves[] = { 0, 5, 3 }, ranks[] = { 2, 3, 4, 8 };
    static training one, more;
    one = (training){ .threads = 1, .leaves = leaves[_i] };
    eg_ranks_simulate(cx, 1, training_body, &one);
    ck_assert_msg(!one.message[0][0], "%s", one.message[0]);
    for (int k = 0; k < 4; k++)
        for (int threads = 1; threads <= 2; threads++) {
            more = (training){ .threads = threads, .leaves = leaves[_i] };
            eg_ranks_simulate(cx, ranks[k], training_body, &more);
            for (int r = 0; r < ranks[k]; r++) {
                ck_assert_msg(!more.message[r][0], "%s", more.message[r]);
                ck_assert_msg(more.hash[r] == one.hash[0], "%d ranks, %d threads", ranks[k],
                              threads);
                ck_assert_int_eq(more.counted[r], one.counted[0]);
            }
            /* each block once per step; the test whether the loss is a sum calls it on each rank
             * once in training, where it draws, and three times in evaluation mode */
            ck_assert_int_eq(more.blocks, 15 * STEPS + 4 * ranks[k]);
        }
}
TEST(a_block_that_fails_on_one_rank_is_an_error_of_all)
{
    static training l;
    l = (training){ .threads = 1, .fails = true };
    ck_assert_int_eq(eg_ranks_simulate(cx, 4, training_body, &l), -1);
    eg_clear(cx);
    for (int r = 0; r < 4; r++)
        ck_assert_msg(strstr(l.message[r], "block 9 (examples 27 to 29): a sentence of block 9"),
                      "rank %d says: %s", r, l.message[r]);
    ck_assert_ptr_nonnull(strstr(l.message[0], "rank 2: step_over: block 9"));
}
