/* test_ring_modules.c: attention modules, blocks and models over a length that is divided among
 * ranks (.ranks of eg_mha_run, eg_block_run, eg_transformer_run), compared with one process. */
#include <eingrad/ranks.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"

enum { B = 2, M = 8, V = 11, RANKS = 8, ROOM = 1 << 14 };
/* A case, and the results of all ranks together. */
typedef struct module_case {
    enum { ATTENTION, BLOCK, MODEL } what;
    const char *layout; /* NULL: "b i m" */
    eg_mha_args mha;    /* params and sizes are set by the test */
    eg_mha_run_args run;
    int64_t length, memory, block; /* memory: length of separate keys; 0: none */
    bool zigzag, learned, keep, bias, table, sink, row_sink, gain, add, lengths, positions;
    eg_block_args of_block;
    eg_transformer_args model;
    eg_dtype dtype;
    bool plain; /* without .ranks */
    /* out */
    double y[ROOM], dx[ROOM], dk[ROOM], whole[RANKS][ROOM];
    int64_t count, wholes;
    uint64_t draws[RANKS];
    char message[256];
} module_case;

/* Returns the positions of this rank in a complete tensor, along an axis. */
static eg_tensor *mine(eg_tensor *x, int axis, int runs, const eg_span *run)
{
    eg_tensor *part[2];
    for (int k = 0; k < runs; k++) part[k] = eg_slice_axis(x, axis, run[k].from, run[k].to, 1);
    return eg_copy(runs == 1 ? part[0] : eg_concat_axis_n(axis, 2, part));
}
/* Writes x, the positions of this rank along an axis, to their positions in the complete tensor. */
static void put(double *to, int64_t length, eg_tensor *x, int axis, int runs, const eg_span *run)
{
    const double *v = eg_f64(eg_cast(x, EG_F64));
    int64_t outer = 1, inner = 1, at = 0;
    for (int a = 0; a < eg_rank(x); a++) *(a < axis ? &outer : &inner) *= eg_dim(x, a);
    const int64_t n = eg_dim(x, axis);
    inner = n ? inner / n : 0;
    ck_assert_int_le(outer * length * inner, ROOM);
    for (int k = 0; v && k < runs; k++)
        for (int64_t p = run[k].from; p < run[k].to; p++, at++)
            for (int64_t o = 0; o < outer; o++)
                memcpy(to + (o * length + p) * inner, v + (o * n + at) * inner,
                       (size_t)inner * sizeof *v);
}
/* A random tensor with i for the letters of the module_case's layout. */
static eg_tensor *drawn(const module_case *s, eg_ctx *cx, int64_t positions)
{
    const bool first = s->layout && s->layout[0] == 'i';
    return first ? eg_normal(cx, 0, 1, positions, B, M) : eg_normal(cx, 0, 1, B, positions, M);
}

/* The state of one rank during a module_case. */
typedef struct rank_state {
    module_case *s;
    eg_ctx *cx;
    eg_ranks *r;
    eg_params *p;
    int axis, runs, key_runs;
    eg_span run[2], key_run[2];
    int xs; /* tensors that every rank has completely, with gradients */
    eg_tensor *x[40];
    eg_tensor *query, *key, *y;
} rank_state;

/* The other tensors of a run: the same draws on every rank, complete except for those with the
 * query's positions. */
static void masks(rank_state *t, eg_mha_run_args *o)
{
    const module_case *s = t->s;
    eg_ctx *cx = t->cx;
    const int64_t n = s->length, j = s->memory ? s->memory : n, h = s->mha.heads;
    eg_tensor *bias = eg_normal(cx, 0, 1, h, n, j), *table = eg_normal(cx, 0, 1, h, 8),
              *sink = eg_normal(cx, 0, 1, h), *gain = eg_normal(cx, 1, 0.2, h),
              *keep = eg_randint(cx, 0, 4, B, j), *rows = eg_normal(cx, 0, 1, B, h, n),
              *positions = eg_randint(cx, 0, 50, n);
    const int64_t lengths[] = { j / 2 + 1, j };
    if (s->keep) o->keep = (eg_masked){ "bj", keep };
    if (s->bias) o->bias = (eg_masked){ "hij", t->x[t->xs++] = bias };
    if (s->table) o->with[0] = (eg_given){ "r", t->x[t->xs++] = table };
    if (s->sink) o->sink = (eg_masked){ "h", t->x[t->xs++] = sink };
    if (s->row_sink) o->sink = (eg_masked){ "bhi", mine(rows, 2, t->runs, t->run) };
    if (s->gain) o->gain = t->x[t->xs++] = gain;
    if (s->lengths) o->lengths = (eg_masked){ "b", eg_from(cx, lengths, 2) };
    if (s->positions) o->positions = (eg_masked){ "i", mine(positions, 0, t->runs, t->run) };
    o->ranks = t->r, o->ranks_block = s->block, o->zigzag = s->zigzag;
}
static void attention(rank_state *t)
{
    module_case *s = t->s;
    eg_mha_args a = s->mha;
    eg_mha_run_args o = s->run;
    if (s->learned)
        a.rotary_frequencies = eg_init_constant(eg_param(t->p, "f", "f", 2), 0.3), a.rotary = 0;
    a.size = sizeof a, a.params = t->p, a.name = "mha", a.layout = s->layout;
    o.size = sizeof o, o.mha = eg_mha_new_with(&a);
    masks(t, &o);
    if (s->add) o.add = eg_tanh(t->query);
    o.query = t->query, o.key = t->key;
    t->y = eg_mha_run_with(&o);
}
static void block(rank_state *t)
{
    eg_block_args a = t->s->of_block;
    eg_mha_run_args o = { .size = sizeof o };
    a.size = sizeof a, a.params = t->p, a.name = "block", a.mha = &t->s->mha;
    a.d_model = t->s->mha.d_model, a.heads = t->s->mha.heads, a.cross = t->key != NULL;
    masks(t, &o);
    t->y = eg_block_run(eg_block_new_with(&a), t->query, .where = t->s->run.where, .keep = o.keep,
                        .bias = o.bias, .gain = o.gain, .memory = t->key, .ranks = t->r,
                        .ranks_block = t->s->block, .zigzag = t->s->zigzag);
}
static void model(rank_state *t)
{
    module_case *s = t->s;
    eg_transformer_args a = s->model;
    eg_mha_run_args o = { .size = sizeof o };
    a.size = sizeof a, a.params = t->p, a.name = "net", a.mha = &s->mha, a.vocabulary = V;
    a.length = s->length, a.d_model = s->mha.d_model, a.heads = s->mha.heads, a.layers = 2;
    eg_tensor *index = mine(eg_randint(t->cx, 0, V, B, s->length), 1, t->runs, t->run),
              *types = mine(eg_randint(t->cx, 0, 2, B, s->length), 1, t->runs, t->run);
    masks(t, &o);
    t->y = eg_transformer_run(eg_transformer_new_with(&a), index, .where = s->run.where,
                              .keep = o.keep, .types = a.types ? types : NULL, .ranks = t->r,
                              .ranks_block = s->block, .zigzag = s->zigzag);
}
static int modules_body(void *user, const eg_ranks_table *table)
{
    module_case *s = user;
    eg_ctx *cx = eg_open(.threads = 1, .dtype = s->dtype, .seed = 5);
    rank_state t = { .s = s, .cx = cx, .p = eg_params_open(cx) };
    t.r = s->plain ? NULL : eg_ranks_open(.cx = cx, .table = table);
    t.axis = s->layout && s->layout[0] == 'i' ? 0 : 1;
    t.runs = eg_attention_positions(t.r, s->length, s->block, s->zigzag, t.run);
    t.key_runs = eg_attention_positions(t.r, s->memory, s->block, s->zigzag, t.key_run);
    t.query = mine(drawn(s, cx, s->length), t.axis, t.runs, t.run);
    if (s->memory) t.key = mine(drawn(s, cx, s->memory), t.axis, t.key_runs, t.key_run);
    (s->what == ATTENTION ? attention : s->what == BLOCK ? block : model)(&t);
    s->draws[table->rank] = eg_draws(cx);
    /* the same g for every division */
    eg_tensor *y = t.y;
    if (eg_ok(y)) {
        int64_t dims[EG_RANK_MAX];
        memcpy(dims, eg_dims(y), (size_t)eg_rank(y) * sizeof *dims), dims[t.axis] = s->length;
        eg_set_draws(cx, 1 << 20);
        eg_tensor *g = mine(eg_normal_n(cx, EG_DEFAULT, 0, 1, eg_rank(y), dims), t.axis, t.runs,
                            t.run),
                  *x[64], *d[64];
        int n = 0;
        for (int k = 0; k < eg_params_count(t.p); k++) x[n++] = eg_params_at(t.p, k)->x;
        for (int k = 0; k < t.xs; k++) x[n++] = t.x[k];
        x[n] = t.query, x[n + 1] = t.key;
        const int own = s->what == MODEL ? 0 : t.key ? 2 : 1;
        ck_assert_int_le(n + 2, 64);
        eg_grad_or_null(eg_sum(NULL, eg_mul(y, g)), NULL, n + own, x, d);
        put(s->y, s->length, y, t.axis, t.runs, t.run);
        if (own > 0) put(s->dx, s->length, d[n], t.axis, t.runs, t.run);
        if (own > 1) put(s->dk, s->memory, d[n + 1], t.axis, t.key_runs, t.key_run);
        if (!table->rank)
            s->count = eg_size(y) / (eg_dim(y, t.axis) ? eg_dim(y, t.axis) : 1) * s->length;
        int64_t at = 0;
        for (int k = 0; k < n; k++) {
            const double *from = d[k] ? eg_f64(eg_cast(d[k], EG_F64)) : NULL;
            for (int64_t e = 0; from && e < eg_size(d[k]) && at < ROOM; e++)
                s->whole[table->rank][at++] = from[e];
        }
        if (!table->rank) s->wholes = at;
    }
    const bool bad = eg_error(cx) != NULL;
    if (bad) snprintf(s->message, sizeof s->message, "%s", eg_error(cx));
    eg_ranks_close(t.r);
    eg_close(cx);
    return bad;
}
static eg_ctx *cx;
static void open_cx(void) { cx = eg_open(); }
static void close_cx(void) { eg_close(cx); }
static void simulate(module_case *s, int ranks)
{
    s->message[0] = 0;
    eg_ranks_simulate(cx, ranks, modules_body, s);
    ck_assert_msg(!s->message[0], "%s", s->message);
    ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
}
static double distance(int64_t n, const double *a, const double *b)
{
    double most = 0;
    for (int64_t k = 0; k < n; k++)
        if (!(fabs(a[k] - b[k]) <= most)) most = fabs(a[k] - b[k]);
    return most;
}

GROUP("ring_modules", .setup = open_cx, .teardown = close_cx)

#define HEADS(h) .d_model = M, .heads = h
static eg_tensor *squared(eg_tensor *x) { return eg_square(x); }
static const module_case module_cases[] = {
    { .length = 24, .block = 3, .mha = { HEADS(2) }, .gain = true, .add = true },
    { .length = 24,
      .block = 2,
      .zigzag = true,
      .layout = "i b m",
      .mha = { HEADS(4), .kv_heads = 2, .rotary = 100, .alibi = true, .sink = true },
      .run = { .where = "j <= i & h * 0 + i < |i|" },
      .bias = true,
      .keep = true },
    { .length = 23,
      .block = 4,
      .mha = { HEADS(2), .form = EG_PACKED, .bias_kv = true, .zero_attn = true, .rotary = 100,
               .interleaved = true },
      .run = { .where = "j <= i", .score = "score + r[h, clip(i - j, 0, 7)]" },
      .table = true,
      .sink = true },
    { .length = 20,
      .block = 2,
      .zigzag = true,
      .mha = { HEADS(2), .form = EG_PER_HEAD, .qk_norm = EG_QK_RMS, .temperature = 0.7 },
      .learned = true,
      .run = { .where = "j <= i", .offset = 3 },
      .lengths = true },
    { .length = 16,
      .memory = 28,
      .block = 2,
      .mha = { HEADS(2), .qk_norm = EG_QK_LAYER, .rotary = 30 },
      .run = { .where = "j < 2 * i + 4" },
      .row_sink = true },
    { .length = 18,
      .block = 1,
      .mha = { HEADS(2), .rotary = 100, .rotary_width = 2, .no_bias = true },
      .positions = true,
      .keep = true },
    { .what = BLOCK,
      .length = 24,
      .block = 3,
      .zigzag = true,
      .mha = { HEADS(2), .rotary = 100 },
      .of_block = { .gated = true, .rms = true, .activation = eg_silu },
      .run = { .where = "j <= i" } },
    { .what = BLOCK,
      .length = 24,
      .memory = 16,
      .block = 2,
      .mha = { HEADS(2), .alibi = true },
      .of_block = { .post_norm = true, .activation = squared },
      .run = { .where = "j <= i" },
      .gain = true },
    { .what = BLOCK,
      .length = 24,
      .block = 2,
      .mha = { HEADS(2), .rotary = 100 },
      .of_block = { .parallel = true, .shared_norm = true, .sandwich = true },
      .run = { .where = "j <= i" } },
    { .what = MODEL,
      .length = 24,
      .block = 2,
      .zigzag = true,
      .mha = { HEADS(2), .qk_norm = EG_QK_RMS_ALL },
      .model = { .first_position = 2,
                 .embedding_scale = 3,
                 .logits_cap = 2,
                 .rms = true,
                 .branch_norm = true },
      .run = { .where = "j <= i" } },
    { .what = MODEL,
      .length = 24,
      .block = 2,
      .zigzag = true,
      .mha = { HEADS(2) },
      .model = { .types = 2, .embedding_norm = true },
      .run = { .where = "j <= i" } },
    { .what = MODEL,
      .length = 22,
      .block = 4,
      .mha = { HEADS(2), .kv_heads = 1, .rotary = 100 },
      .model = { .tied = true, .no_positions = true, .rms = true, .post_norm = true },
      .run = { .where = "j <= i" },
      .keep = true },
};
enum { SCENES = sizeof module_cases / sizeof *module_cases };

/* Results, gradients of x and of all complete tensors, on every rank, in f64. */
LOOP_TEST(parts_are_those_of_the_whole, 2 * SCENES)
{
    static module_case whole, parts;
    const int ranks = _i % 2 ? 3 : 4;
    whole = parts = module_cases[_i / 2];
    whole.dtype = parts.dtype = EG_F64;
    whole.plain = true;
    simulate(&whole, 1);
    simulate(&parts, ranks);
    ck_assert_int_gt(whole.wholes, 100);
    ck_assert_int_eq(whole.wholes, parts.wholes);
    ck_assert_double_gt(distance(ROOM, whole.y, (double[ROOM]){ 0 }), 0.1);
    ck_assert_double_lt(distance(ROOM, whole.y, parts.y), 1e-11);
    ck_assert_double_lt(distance(ROOM, whole.dx, parts.dx), 1e-10);
    ck_assert_double_lt(distance(ROOM, whole.dk, parts.dk), 1e-10);
    for (int k = 0; k < ranks; k++) {
        ck_assert_double_lt(distance(ROOM, whole.whole[0], parts.whole[k]), 1e-9);
        ck_assert_double_eq(distance(ROOM, parts.whole[0], parts.whole[k]), 0); /* to the bit */
    }
}
/* Also for one rank, with dropout. */
LOOP_TEST(bits_are_those_of_one_rank, SCENES)
{
    static module_case one, parts;
    static const int ranks[] = { 2, 3, 4, 8 };
    one = module_cases[_i];
    one.dtype = EG_F32;
    one.mha.dropout = one.of_block.dropout = one.model.dropout = 0.25;
    parts = one;
    simulate(&one, 1);
    for (size_t p = 0; p < sizeof ranks / sizeof *ranks; p++) {
        simulate(&parts, ranks[p]);
        ck_assert_msg(distance(ROOM, one.y, parts.y) == 0, "%d ranks", ranks[p]);
        ck_assert_msg(distance(ROOM, one.dx, parts.dx) == 0, "%d ranks", ranks[p]);
        ck_assert_msg(distance(ROOM, one.dk, parts.dk) == 0, "%d ranks", ranks[p]);
        ck_assert_double_lt(distance(ROOM, one.whole[0], parts.whole[0]), 1e-3);
        ck_assert_uint_eq(one.draws[0], parts.draws[0]);
    }
}

/* -- what is refused --------------------------------------------------------------------------- */
TEST(what_has_no_parts_is_refused)
{
    eg_ranks *r = eg_ranks_open(.cx = cx);
    eg_params *p = eg_params_open(cx);
    eg_tensor *x = eg_normal(cx, 0, 1, 1, 6, M), *w;
    eg_mha *m = eg_mha_new(p, "mha", HEADS(2)),
           *linear = eg_mha_new(p, "linear", HEADS(2), .linear = &(eg_linear_attention_args){ 0 }),
           *none = eg_mha_new(p, "none", HEADS(2), .no_softmax = true),
           *core = eg_mha_new(p, "core", HEADS(2), .core = eg_attention_with),
           *fn = eg_mha_new(p, "fn", HEADS(2), .score_fn = NULL);
    eg_transformer *net = eg_transformer_new(p, "net", .vocabulary = V, .length = 4, .d_model = M,
                                             .heads = 2, .layers = 1);
    eg_owner *owner = eg_owner_open(cx);
    eg_cache *cache = eg_cache_new(owner, 6);
    fn->score_fn = NULL;
#define REFUSED(text, call)                                                            \
    do {                                                                               \
        (void)(call);                                                                  \
        ck_assert_msg(eg_error(cx) && strstr(eg_error(cx), text), "%s", eg_error(cx)); \
        eg_clear(cx);                                                                  \
    } while (0)
    REFUSED("mha \"mha\": .ranks: .weights is not supported with a divided sequence",
            eg_mha_run(m, x, .ranks = r, .weights = &w));
    REFUSED(".ranks: .cache is not divided among ranks",
            eg_mha_run(m, x, .ranks = r, .cache = cache));
    REFUSED(".ranks: .fill changes scores", eg_mha_run(m, x, .ranks = r, .fill = -1e9));
    REFUSED(".ranks: .linear has no softmax", eg_mha_run(linear, x, .ranks = r));
    REFUSED(".ranks: .no_softmax has no softmax", eg_mha_run(none, x, .ranks = r));
    REFUSED(".ranks: .core may not know of ranks", eg_mha_run(core, x, .ranks = r));
    REFUSED(".ranks_block is -1", eg_mha_run(m, x, .ranks = r, .ranks_block = -1));
    REFUSED("'m' is 8 in the module but 5 in the query",
            eg_mha_run(m, eg_ones(cx, 1, 6, 5), .ranks = r));
    REFUSED("'l' goes to 6, but the table ends at 4",
            eg_transformer_run(net, eg_randint(cx, 0, V, 1, 6), .ranks = r));
    REFUSED(".ranks: .cache",
            eg_transformer_run(net, eg_randint(cx, 0, V, 1, 3), .ranks = r, .cache = cache));
    REFUSED("the query is NULL", eg_mha_run(m, NULL, .ranks = r));
    REFUSED(".offset is 1, but .position_ids gives every position already",
            eg_positions_run(net->positions, x, .offset = 1,
                             .position_ids = eg_arange(cx, EG_I64, 0, 6, 1)));
    eg_ctx *other = eg_open();
    eg_ranks *elsewhere = eg_ranks_open(.cx = other);
    REFUSED(".ranks belongs to another context", eg_mha_run(m, x, .ranks = elsewhere));
    eg_ranks_close(elsewhere);
    eg_close(other);
    eg_owner_close(owner);
    eg_ranks_close(r);
}
/* An error of only one rank is reported to the others. */
static int alone_body(void *user, const eg_ranks_table *table)
{
    char(*message)[256] = user;
    eg_ctx *own = eg_open(.threads = 1);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    eg_transformer *net = eg_transformer_new(eg_params_open(own), "net", .vocabulary = V,
                                             .length = 64, .d_model = M, .heads = 2, .layers = 2);
    eg_tensor *index = eg_full_n(own, EG_I64, table->rank == 1 ? V : 0, 2, (int64_t[]){ 1, 4 });
    eg_transformer_run(net, index, .ranks = r, .ranks_block = 2);
    return end_rank(message[table->rank], own, r);
}
/* Dropout draws for this rank's positions, whose axis x must have. */
static int flat_body(void *user, const eg_ranks_table *table)
{
    char(*message)[256] = user;
    eg_ctx *own = eg_open(.threads = 1);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    eg_block *b =
        eg_block_new(eg_params_open(own), "block", .d_model = M, .heads = 2, .dropout = 0.5);
    eg_train(own);
    eg_block_run(b, eg_zeros(own, M), .ranks = r, .ranks_block = 2);
    return end_rank(message[table->rank], own, r);
}
TEST(a_block_without_an_axis_of_positions_is_refused)
{
    char message[2][256] = { "" };
    ck_assert_int_eq(eg_ranks_simulate(cx, 2, flat_body, message), 0);
    for (int k = 0; k < 2; k++)
        ck_assert_msg(strstr(message[k], "block \"block\": x has no axis 1, that of the positions"),
                      "%s", message[k]);
}
TEST(an_error_of_one_rank_is_one_of_all)
{
    char message[3][256] = { "" };
    ck_assert_int_eq(eg_ranks_simulate(cx, 3, alone_body, message), 0);
    for (int k = 0; k < 3; k++)
        ck_assert_msg(strstr(message[k], "index") && !strstr(message[k], "rank 1:") == (k == 1),
                      "%s", message[k]);
}

/* -- a custom layer beside a block with .ranks ------------------------------------------------- */
enum {
    CUSTOM_RIGHT,
    CUSTOM_ON_ALL,
    CUSTOM_UNSHARED,
    CUSTOM_SEEDS,
    CUSTOM_NAN,
    CUSTOM_LATER,
    CUSTOM_KINDS
};
typedef struct custom {
    int kind;
    bool found[3];
    double value[3];
    char message[3][256];
} custom;
/* Two steps of a block and a linear layer, whose parameters the rank passes to eg_ranks_shared, but
 * for W if CUSTOM_UNSHARED; if CUSTOM_ON_ALL, W is also read by a penalty that all ranks have. If
 * CUSTOM_LATER, W is not shared, and has its first gradient in the second step. */
static int custom_body(void *user, const eg_ranks_table *table)
{
    custom *c = user;
    const int me = table->rank;
    eg_ctx *own = eg_open(.threads = 1, .dtype = EG_F64,
                          .seed = c->kind == CUSTOM_SEEDS ? 1 + (uint64_t)me : 1);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    eg_params *p = eg_params_open(own);
    eg_block *b = eg_block_new(p, "b", .d_model = 4, .heads = 2, .width = 4);
    eg_linear *l = eg_linear_new(p, "own", .in = 4, .out = 4);
    eg_opt *op = eg_adam(p, .lr = 1e-2);
    eg_span at[2];
    eg_attention_positions(r, 12, 2, false, at);
    for (int step = 0; step < 2; step++) {
        eg_seed(own, 7 + (uint64_t)step);
        eg_tensor *x = eg_slice_axis(eg_normal(own, 0, 1, 2, 12, 4), 1, at[0].from, at[0].to, 1),
                  *W = c->kind == CUSTOM_UNSHARED ? l->weight
                       : c->kind != CUSTOM_LATER  ? eg_ranks_shared(r, l->weight)
                       : step                     ? l->weight
                                                  : eg_detach(l->weight),
                  *y =
                      eg_affine("blm,mo->blo",
                                eg_block_run(b, x, .where = "j <= i", .ranks = r, .ranks_block = 2),
                                W, eg_ranks_shared(r, l->bias)),
                  *loss = eg_sum(NULL, eg_square(y));
        c->found[me] |= eg_ranks_of(loss) == r && !eg_ranks_of(l->weight) && !eg_ranks_of(x);
        if (c->kind == CUSTOM_NAN && step && me == 1) loss = eg_scale(loss, NAN);
        if (c->kind == CUSTOM_ON_ALL) loss = eg_add(loss, eg_sum(NULL, eg_square(l->weight)));
        eg_step(op, loss);
    }
    c->value[me] = eg_item(eg_sum(NULL, l->weight));
    return end_rank(c->message[me], own, r);
}
LOOP_TEST(a_step_of_ranks_with_a_custom_layer, CUSTOM_KINDS)
{
    static const char *const why[] = {
        NULL,
        NULL,
        "adam: the gradient of \"own.W\" is not the same on ranks 0 and 1; a layer beside modules "
        "with .ranks reads its parameters by eg_ranks_shared",
        "adam: \"b.self.W_q\" is not the same on ranks 0 and 1; each rank starts from the same "
        "seed "
        "or file",
        "adam: the loss is nan",
        "adam: the gradient of \"own.W\" is not the same on ranks 0 and 1; a layer beside modules "
        "with .ranks reads its parameters by eg_ranks_shared"
    };
    custom c = { .kind = _i }, one = { .kind = _i };
    ck_assert_int_eq(eg_ranks_simulate(cx, 1, custom_body, &one), 0);
    ck_assert_int_eq(eg_ranks_simulate(cx, 3, custom_body, &c), 0);
    ck_assert(c.found[0] && c.found[1] && c.found[2] && !one.message[0][0]);
    for (int r = 0; r < 3; r++)
        if (why[_i])
            ck_assert_msg(strstr(c.message[r], why[_i]), "rank %d: \"%s\"", r, c.message[r]);
        else
            ck_assert_msg(!c.message[r][0] && c.value[r] == c.value[0] &&
                              fabs(c.value[r] - one.value[0]) < 1e-12,
                          "rank %d: %.17g, %s", r, c.value[r], c.message[r]);
}

/* -- tensors that all ranks read, and sums over them ------------------------------------------- */
typedef struct shares {
    double sum[RANKS], loss[RANKS], dx[RANKS][6], dw[RANKS][6], ddw[RANKS][6];
    uint64_t sent[RANKS];
    char message[RANKS][256];
    bool uneven;
} shares;
/* L = Σ_r Σ_k x_r w² + (Σ_r Σ_k x_r w)²/2, x_r = r + 1. */
static int shares_body(void *user, const eg_ranks_table *table)
{
    shares *s = user;
    const int me = table->rank;
    eg_ctx *own = eg_open(.threads = 1, .dtype = EG_F64);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    eg_tensor *w = eg_arange(own, EG_F64, 1, 7, 1), *xs[2], *d[2], *dd,
              *x = eg_full(own, me + 1, s->uneven && me == 1 ? 5 : 6);
    xs[0] = x, xs[1] = w;
    eg_tensor *v = eg_ranks_shared(r, w);
    const uint64_t before = eg_ranks_traffic(r).sent;
    eg_tensor *sum = eg_ranks_sum(r, eg_mul(x, v));
    s->sent[me] = eg_ranks_traffic(r).sent - before;
    /* a term of this rank only, and one of a complete tensor, read by each rank once */
    eg_tensor *part = eg_sum(NULL, eg_mul(x, eg_square(v))),
              *whole = eg_scale(eg_square(eg_sum(NULL, sum)), 0.5),
              *loss = eg_add(eg_ranks_sum(r, part), whole);
    s->loss[me] = eg_item(loss);
    eg_grad(loss, NULL, 2, xs, d);
    eg_grad(eg_sum(NULL, eg_square(d[1])), NULL, 1, &w, &dd);
    for (int k = 0; eg_ok(dd) && k < 6; k++)
        s->dx[me][k] = eg_f64(d[0])[k], s->dw[me][k] = eg_f64(d[1])[k],
        s->ddw[me][k] = eg_f64(dd)[k];
    if (eg_error(own)) snprintf(s->message[me], sizeof *s->message, "%s", eg_error(own));
    eg_ranks_close(r);
    eg_close(own);
    return 0;
}
LOOP_TEST(sums_over_ranks_and_their_gradients, 5)
{
    static shares s;
    const int p = _i + 1;
    memset(&s, 0, sizeof s);
    ck_assert_int_eq(eg_ranks_simulate(cx, p, shares_body, &s), 0);
    /* X = Σ_r (r + 1): L = X Σ w² + (X Σ w)²/2, with w = 1 … 6 */
    const double X = p * (p + 1) / 2., sw = 21, sww = 91;
    for (int r = 0; r < p; r++) {
        ck_assert_msg(!s.message[r][0], "%s", s.message[r]);
        ck_assert_double_eq_tol(s.loss[r], X * sww + X * X * sw * sw / 2, 1e-9);
        double c = 0; /* Σ dw */
        for (int k = 0; k < 6; k++) c += 2 * X * (k + 1) + X * X * sw;
        for (int k = 0; k < 6; k++) {
            const double w = k + 1, dw = 2 * X * w + X * X * sw;
            ck_assert_double_eq_tol(s.dx[r][k], w * w + X * sw * w, 1e-9);
            ck_assert_double_eq_tol(s.dw[r][k], dw, 1e-9);
            ck_assert_double_eq_tol(s.ddw[r][k], 2 * (2 * X * dw + X * X * c), 1e-6);
        }
        if ((p & (p - 1)) == 0 && p <= 2)
            ck_assert_uint_eq(s.sent[r], (uint64_t)(p - 1) * (2 * 8 * 6 / (uint64_t)p + 32));
    }
}
TEST(sums_of_other_sizes_are_refused_on_every_rank)
{
    static shares s = { .uneven = true };
    ck_assert_int_eq(eg_ranks_simulate(cx, 3, shares_body, &s), 0);
    for (int r = 0; r < 3; r++) ck_assert_msg(s.message[r][0], "rank %d", r);
}
static int odd_body(void *user, const eg_ranks_table *table)
{
    char(*message)[256] = user;
    const bool odd = table->rank == 1;
    eg_ctx *own = eg_open(.threads = 1);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    eg_ranks_sum(r, eg_full_n(own, odd ? EG_F32 : EG_F64, 1, 1, (int64_t[]){ odd ? 5 : 6 }));
    return end_rank(message[table->rank], own, r);
}
TEST(a_sum_of_tensors_that_differ_is_refused_on_every_rank)
{
    char message[3][256] = { "" };
    ck_assert_int_eq(eg_ranks_simulate(cx, 3, odd_body, message), 0);
    for (int k = 0; k < 3; k++)
        ck_assert_msg(strstr(message[k],
                             "ranks_sum: the tensor has 6 numbers of f64 on rank 0, but 5 "
                             "of f32 on rank 1"),
                      "%s", message[k]);
}
