/* test_shard.c: optimisers and trainers whose moments are divided among ranks, which are threads
 * here: the bits are those of one process; memory, files, and errors. */
#include <eingrad/ranks.h>
#include <eingrad/train.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "fixtures.h"
#include "tests.h"

enum { MOST = 5, ROWS = 70, COLUMNS = 130, EXAMPLES = 24, STEPS = 6 };

static eg_ctx *cx;
static void open_cx(void) { cx = eg_open(); }
static void close_cx(void)
{
    ck_assert_msg(!eg_error(cx), "%s", eg_error(cx));
    eg_close(cx);
}

/* -- optimisers -------------------------------------------------------------------------------- */
static eg_opt *make(int kind, eg_params *p)
{
    switch (kind) {
    case 0: return eg_adam(p, .lr = 1e-2, .amsgrad = true, .clip_norm = 0.5);
    case 1: return eg_adamw(p, .lr = 1e-2, .clip_norm = 0.1, .norm_type = INFINITY);
    case 2: return eg_sgd(p, .lr = 1e-2, .momentum = 0.9, .nesterov = true, .clip_norm = 1);
    case 3: return eg_rmsprop(p, .momentum = 0.5, .centered = true, .clip_value = 0.01);
    case 4: return eg_adagrad(p, .initial_accumulator_value = 0.25, .weight_decay = 0.1);
    default: return eg_sgd(p, .lr = 1e-2);
    }
}
enum { KINDS = 6 };
static const int moments_of[KINDS] = { 3, 2, 1, 3, 1, 0 };

typedef struct shard_case {
    int kind, threads;
    eg_dtype dtype;
    bool alone; /* one rank, not divided */
    /* by rank */
    uint64_t values[MOST], moments[MOST], undone[MOST];
    int64_t kept[MOST]; /* number of elements of moments */
    size_t freed[MOST];
    double norm[MOST];
    char message[MOST][300];
    /* of a refusal */
    int bad_rank; /* whose gradient is wrong; −1: none */
    bool not_finite, differs;
    bool changed[MOST];
} shard_case;
typedef struct model {
    eg_tensor *w, *b;
} model;
static eg_tensor *loss_of(const model *m, eg_ctx *own, int64_t from, int64_t to)
{
    eg_tensor *x = eg_full_n(
        own, EG_F64, 0, 2, (int64_t[]) { to - from, ROWS });
    double *p = eg_mut_f64(x);
    for (int64_t k = 0; p && k < eg_size(x); k++) p[k] = sin(0.37 * (double)(from * ROWS + k));
    eg_tensor *y = eg_add(eg_einsum("ni,ij->nj", eg_cast(x, eg_type(m->w)), m->w), m->b);
    return eg_sum(NULL, eg_mul(y, eg_tanh(y)));
}
static eg_tensor *block_loss(void *user, eg_ctx *own, int64_t from, int64_t to, int64_t *count)
{
    *count = to - from;
    return loss_of(user, own, from, to);
}
/* One step of three kinds: over blocks, with given gradients, of a loss. */
static int step(int k, eg_opt *op, const model *m, eg_ctx *own, bool divided, eg_ranks *r)
{
    model copy = *m;
    if (k % 3 == 0)
        return eg_step_over(op, block_loss, &copy, EXAMPLES, .block = 5,
                            .ranks = divided || k ? NULL : r);
    eg_tensor *loss = loss_of(m, own, k, k + 3), *g[3] = { NULL };
    if (k % 3 == 1) return eg_step(op, loss);
    eg_grad(loss, NULL, 2, (eg_tensor *[]){ m->w, m->b }, g);
    return eg_step_by(op, g);
}
static int shard_case_body(void *user, const eg_ranks_table *table)
{
    shard_case *l = user;
    const int me = table->rank;
    eg_ctx *own = eg_open(.threads = l->threads, .seed = 3, .dtype = l->dtype);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    eg_params *p = eg_params_open(own);
    model m = { eg_param(p, "w", "ij", ROWS, COLUMNS), eg_param(p, "b", "j", COLUMNS) };
    eg_param(p, "unreached", "k", 3);
    randomise(p, 0.1);
    eg_opt *op = make(l->kind, p);
    const size_t used = eg_stats(own).used;
    const eg_mark scope = eg_push(own); /* moments outlive this scope */
    if (!l->alone) eg_opt_shard(op, r);
    eg_pop(own, scope);
    l->freed[me] = used - eg_stats(own).used;
    for (int k = 3; eg_opt_state(op, k); k++) l->kept[me] += eg_size(eg_opt_state(op, k)->x);
    for (int k = 0; k < STEPS && !eg_error(own); k++) {
        const eg_mark s = eg_push(own);
        step(k, op, &m, own, !l->alone, r);
        eg_pop(own, s);
    }
    l->norm[me] = eg_opt_report_of(op).norm;
    l->values[me] = l->moments[me] = l->undone[me] = EG_HASH_START;
    l->values[me] = hash_params(l->values[me], p);
    for (int k = 0; eg_opt_state(op, k); k++) {
        eg_tensor *x = eg_opt_gather_state(op, k);
        if (x && !me) l->moments[me] = hash_tensor(l->moments[me], x);
    }
    if (!l->alone) eg_opt_shard(op, NULL);
    l->undone[me] = hash_states(l->undone[me], op);
    if (eg_error(own)) snprintf(l->message[me], sizeof *l->message, "%s", eg_error(own));
    const int bad = eg_error(own) != NULL;
    eg_ranks_close(r);
    eg_close(own);
    return bad;
}

GROUP("optimisers", .setup = open_cx, .teardown = close_cx, .timeout = 120)

/* Six kinds of optimiser, f32 and f64, steps of three kinds with a norm that is clipped: values and
 * moments have the bits of one process, and a rank has 1/ranks of the moments. */
LOOP_TEST(divided_moments_give_the_bits_of_one_process, 2 * KINDS)
{
    static shard_case one, more;
    const int moments = moments_of[_i / 2];
    const int64_t numbers = ROWS
    *COLUMNS + COLUMNS + 3;
    one = (shard_case){
        .kind = _i / 2, .threads = 1, .dtype = _i % 2 ? EG_F64 : EG_F32, .alone = true
    };
    eg_ranks_simulate(cx, 1, shard_case_body, &one);
    ck_assert_msg(!one.message[0][0], "%s", one.message[0]);
    ck_assert_int_eq(one.kept[0], moments * numbers);
    for (int ranks = 1; ranks <= MOST; ranks++)
        for (int threads = 1; threads <= 2; threads++) {
            more = (shard_case){ .kind = one.kind, .threads = threads, .dtype = one.dtype };
            eg_ranks_simulate(cx, ranks, shard_case_body, &more);
            int64_t kept = 0, most = 0;
            for (int r = 0; r < ranks; r++) {
                ck_assert_msg(!more.message[r][0], "rank %d of %d: %s", r, ranks, more.message[r]);
                ck_assert_msg(more.values[r] == one.values[0], "%d ranks: other values", ranks);
                ck_assert_msg(more.undone[r] == one.undone[0], "%d ranks: other moments", ranks);
                ck_assert(memcmp(&more.norm[r], &one.norm[0], sizeof(double)) == 0);
                kept += more.kept[r], most = more.kept[r] > most ? more.kept[r] : most;
            }
            ck_assert_msg(more.moments[0] == one.moments[0], "%d ranks: others are saved", ranks);
            ck_assert_int_eq(kept, moments * numbers);
            ck_assert(ranks == 1 || most <= moments * (numbers / ranks + 2 * EG_RANKS_CHUNK));
#if !EG_DEBUG_ALLOC
            const size_t width = one.dtype == EG_F64 ? 8 : 4;
            for (int r = 0; r < ranks && ranks > 1; r++)
                ck_assert_msg(more.freed[r] + 8192 >=
                                  (size_t)(moments * numbers - more.kept[r]) * width,
                              "rank %d of %d gave back %zu bytes", r, ranks, more.freed[r]);
#endif
        }
}

/* -- bytes ------------------------------------------------------------------------------------- */
typedef struct counting {
    uint64_t sent[9], formula[9]; /* by rank, of the second step */
    char message[9][300];
} counting;
static int counting_body(void *user, const eg_ranks_table *table)
{
    counting *c = user;
    const uint64_t others = (uint64_t)table->ranks - 1;
    eg_ctx *own = eg_open(.threads = 1);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    eg_params *p = eg_params_open(own);
    model m = { eg_param(p, "w", "i j", ROWS, COLUMNS), eg_param(p, "b", "j", COLUMNS) };
    eg_opt *op = eg_adam(p, .clip_norm = 0.5);
    uint64_t before = 0;
    eg_opt_shard(op, r);
    for (int k = 0; k < 2; k++) {
        before = eg_ranks_traffic(r).sent;
        eg_step_over(op, block_loss, &m, EXAMPLES, .block = 2); /* 12 leaves */
    }
    c->sent[table->rank] = eg_ranks_traffic(r).sent - before;
    const int64_t counts[] = { ROWS * COLUMNS, COLUMNS };
    eg_ranks_tree *t =
        eg_ranks_tree_open(.ranks = r, .leaves = EXAMPLES / 2, .parts = 2, .counts = counts);
    const eg_ranks_tree_bytes b = eg_ranks_tree_predict(t);
    int32_t have = eg_ranks_tree_subtrees(t), all[9] = { 0 }, most = 0;
    eg_ranks_gather(r, &have, sizeof have, all);
    for (int k = 0; k < table->ranks; k++) most = all[k] > most ? all[k] : most;
    c->formula[table->rank] =
        b.sum + b.gather + 2 * b.statistics + others * (16 * (uint64_t)most + 2 + 3 * 8);
    if (eg_error(own)) snprintf(c->message[table->rank], sizeof c->message[0], "%s", eg_error(own));
    eg_ranks_close(r);
    eg_close(own);
    return 0;
}
/* docs/distributed.md: what each rank sends in a step. */
LOOP_TEST(a_step_sends_the_bytes_of_the_formula, 8)
{
    static counting c;
    const int ranks = _i + 2;
    c = (counting){ .sent = { 0 } };
    eg_ranks_simulate(cx, ranks, counting_body, &c);
    for (int r = 0; r < ranks; r++) {
        ck_assert_msg(!c.message[r][0], "%s", c.message[r]);
        ck_assert_uint_eq(c.sent[r], c.formula[r]);
    }
}

/* One rank's gradient is not finite in a range that another rank owns, is missing, or differs. */
static int refused_body(void *user, const eg_ranks_table *table)
{
    shard_case *l = user;
    const int me = table->rank;
    eg_ctx *own = eg_open(.threads = 1);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    eg_params *p = eg_params_open(own);
    eg_tensor *w = eg_param(p, "w", "ij", ROWS, COLUMNS);
    eg_opt *op = eg_adam(p);
    eg_opt_shard(op, r);
    eg_tensor *g = eg_full_n(
        own, EG_F32, 1, 2, (int64_t[]) {
            ROWS
            , COLUMNS
        });
    if (l->not_finite) /* the same gradient on all ranks, a NaN in the last chunk */
        eg_mut_f32(g)[ROWS * COLUMNS - 1] = NAN;
    if (l->differs && me == 2) eg_mut_f32(g)[1] = 2;
    const uint64_t before = hash_tensor(1, w);
    eg_tensor *const gs[] = { g };
    eg_step_by(op, me == l->bad_rank ? NULL : gs);
    snprintf(l->message[me], sizeof *l->message, "%s", eg_error(own) ? eg_error(own) : "");
    eg_clear(own);
    l->changed[me] = hash_tensor(1, w) != before || eg_opt_report_of(op).steps;
    eg_ranks_close(r);
    eg_close(own);
    return 0;
}
LOOP_TEST(a_step_that_one_rank_refuses_is_done_by_none, 3)
{
    static const char *const message[] = {
        "adam: the gradient of \"w\" has a nan", "adam: the list of gradients is NULL",
        "adam: the gradient of \"w\" is not the same on ranks 0 and 2; each rank gives that of"
    };
    static shard_case l;
    l = (shard_case){ .bad_rank = _i == 1 ? 1 : -1, .not_finite = !_i, .differs = _i == 2 };
    ck_assert_int_eq(eg_ranks_simulate(cx, 3, refused_body, &l), 0);
    for (int r = 0; r < 3; r++) {
        ck_assert_msg(strstr(l.message[r], message[_i]), "rank %d says: %s", r, l.message[r]);
        ck_assert(!l.changed[r]);
    }
}

/* -- ranks whose options differ ---------------------------------------------------------------- */
/* Rank 1 of 2 has one option that differs, and the name of it is in what all ranks say. */
static const struct {
    const char *what, *message[2]; /* of a loop with .ranks; of a divided optimiser */
} unlike[] = {
    { "block", { "step_over: rank 0 has block 5, but rank 1 has block 4", NULL } },
    { "leaves", { "step_over: rank 0 has leaves 16, but rank 1 has leaves 4", NULL } },
    { "examples", { "step_over: rank 0 has examples 24, but rank 1 has examples 20", NULL } },
    { "eval", { "step_over: rank 0 has eg_train, but rank 1 has eg_eval", NULL } },
    { "draw", { "step_over: rank 0 has 1 random draws, but rank 1 has 2 random draws", NULL } },
    { "seed", { "step_over: rank 0 has seed 3, but rank 1 has seed 4", NULL } },
    { "kind",
      { "step_over: rank 0 has adam, but rank 1 has rmsprop",
        "the options of rank 0 are \"adam\", but those of rank 1 \"rmsprop" } },
    { "lr",
      { "step_over: rank 0 has lr 0.01, but rank 1 has lr 0.02",
        "the options of rank 0 are \"lr 0.01\", but those of rank 1 \"lr 0.02" } },
    { "later", { "step_over: rank 0 has lr 0.01, but rank 1 has lr 0.5", NULL } },
    { "clip",
      { "step_over: rank 0 has clip_norm 1, but rank 1 has clip_norm 0",
        "the options of rank 0 are \"clip_norm 1\", but those of rank 1 \"clip_norm 0" } },
    { "group", { "step_over: rank 0 has groups ", "the options of rank 0 are \"groups " } },
    { "value",
      { "step_over: rank 0 has values of parameters and moments ", "the parameters and moments" } },
};
enum { UNLIKE = sizeof unlike / sizeof *unlike };
typedef struct differing {
    int what;
    bool divided;
    char message[2][300];
} differing;
static int unlike_body(void *user, const eg_ranks_table *table)
{
    differing *d = user;
    const int me = table->rank;
    const char *what = me ? unlike[d->what].what : "";
#define IS(name) !strcmp(what, name)
    eg_ctx *own = eg_open(.threads = 1, .seed = 3);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    eg_params *p = eg_params_open(own);
    model m = { eg_param(p, "w", "ij", ROWS, COLUMNS), eg_param(p, "b", "j", COLUMNS) };
    const eg_opt_group groups[] = { { .names = "b", .lr_factor = 2 }, { 0 } };
    eg_opt *op =
        IS("kind") ? eg_rmsprop(p, .lr = 0.01)
                   : eg_adam(p, .lr = IS("lr") ? 0.02 : 0.01, .clip_norm = IS("clip") ? EG_OFF : 1,
                             .groups = IS("group") ? groups : NULL);
    if (IS("value")) eg_fill(m.b, 1);
    if (d->divided) eg_opt_shard(op, r);
    if (IS("draw")) eg_uniform(own, 0, 1, 2);
    if (IS("seed")) eg_seed(own, 4), eg_set_draws(own, 1);
    if (IS("eval")) eg_eval(own);
    for (int k = 0; k < 3; k++) {
        if (k == 1 && IS("later")) eg_opt_set_lr(op, 0.5);
        if (eg_step_over(op, block_loss, &m, IS("examples") ? 20 : 24, .block = IS("block") ? 4 : 5,
                         .leaves = IS("leaves") ? 4 : 16, .ranks = r))
            break;
    }
#undef IS
    snprintf(d->message[me], sizeof *d->message, "%s", eg_error(own) ? eg_error(own) : "nothing");
    eg_ranks_close(r);
    eg_close(own);
    return 0;
}
LOOP_TEST(ranks_whose_options_differ_are_refused, 2 * UNLIKE)
{
    static differing d;
    d = (differing){ .what = _i / 2, .divided = _i % 2 };
    const char *const *message = unlike[d.what].message;
    ck_assert_int_eq(eg_ranks_simulate(cx, 2, unlike_body, &d), 0);
    for (int k = 0; k < 2; k++)
        ck_assert_msg(strstr(d.message[k], d.divided && message[1] ? message[1] : message[0]),
                      "%s%s: rank %d says: %s", unlike[d.what].what, d.divided ? ", divided" : "",
                      k, d.message[k]);
}

/* -- trainers ---------------------------------------------------------------------------------- */
typedef struct trainer_run {
    int threads;
    int64_t save_at, steps;
    const char *from, *during, *best, *at_end; /* files: to load, and to write */
    const char *model;                         /* NULL: the task's */
    double diversity;
    char message[MOST][300];
    int64_t kept[MOST];
} trainer_run;
/* Rank 0 saves in `watch`, where the others do nothing. */
static bool saves(void *user, eg_trainer *t, const eg_progress *p)
{
    const trainer_run *c = user;
    if (p->step == c->save_at) eg_trainer_save(t, c->during);
    return false;
}
/* 150 words of three letters and the same reversed; some 15 are held out, so that an evaluation is
 * short. */
static eg_data *words(eg_ctx *own)
{
    char text[150 * 8 + 1], *end = text;
    for (int k = 0; k < 150; k++) {
        const char a = (char)('a' + k % 6), b = (char)('a' + k / 6 % 6), c = (char)('a' + k / 36);
        end += sprintf(end, "%c%c%c\t%c%c%c\n", a, b, c, c, b, a);
    }
    return eg_data_parse(own, text, "words");
}
static int trainer_run_body(void *user, const eg_ranks_table *table)
{
    trainer_run *c = user;
    const int me = table->rank;
    eg_ctx *own = eg_open(.threads = c->threads);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    eg_trainer *t = c->from
                        ? eg_trainer_load(own, c->from)
                        : eg_trainer_new(words(own), .layers = 1, .d_model = 48, .heads = 2,
                                         .batch = 13, .block = 2, .dropout = 0.1, .clip_norm = 0.5,
                                         .goal = EG_OFF, .steps = c->steps, .evaluate = 4,
                                         .model = c->model, .diversity = c->diversity);
    eg_trainer_distribute(t, r);
    for (int k = 3; t && eg_opt_state(eg_trainer_opt(t), k); k++)
        c->kept[me] += eg_size(eg_opt_state(eg_trainer_opt(t), k)->x);
    eg_trainer_keep_best(t, c->best);
    if (!eg_trainer_run(t, me ? NULL : saves, c, NULL)) eg_trainer_save(t, me ? "" : c->at_end);
    if (eg_error(own)) snprintf(c->message[me], sizeof *c->message, "%s", eg_error(own));
    const int bad = eg_error(own) != NULL;
    eg_ranks_close(r);
    eg_close(own);
    return bad;
}
/* Rank 1 of 2 has one option that differs. */
static const char *const others[][2] = {
    { "optimiser sgd", "optimiser adamw" }, { "weight_decay 0", "weight_decay 0.1" },
    { "momentum 0", "momentum 0.9" },       { "diversity 0", "diversity 0.1" },
    { "smoothing 0", "smoothing 0.1" },     { "config ", "config norm rms" },
    { "config ", "config kv_heads 1" },     { "steps 8", "steps 9" },
    { "groups ", "groups *.gain: frozen" }
};
enum { OTHERS = sizeof others / sizeof *others };
static const eg_mha_args one_key_head = { .kv_heads = 1 };
static int other_body(void *user, const eg_ranks_table *table)
{
    trainer_run *c = user;
    const int me = table->rank, what = me ? (int)c->steps : -1;
    eg_ctx *own = eg_open(.threads = 1);
    eg_ranks *r = eg_ranks_open(.cx = own, .table = table);
    eg_trainer *t = eg_trainer_new(
        eg_data_task(own, eg_task_find("copy")), .layers = 1, .d_model = 16, .heads = 2, .batch = 8,
        .optimiser = what == 0 ? "adamw" : "sgd", .weight_decay = what == 1 ? 0.1 : 0,
        .momentum = what == 2 ? 0.9 : 0, .diversity = what == 3 ? 0.1 : 0,
        .smoothing = what == 4 ? 0.1 : 0, .norm = what == 5 ? "rms" : "pre",
        .attention = what == 6 ? &one_key_head : NULL, .steps = what == 7 ? 9 : 8,
        .groups = what == 8 ? (eg_opt_group[]){ { "*.gain", .frozen = true }, { 0 } } : NULL);
    eg_trainer_distribute(t, r);
    snprintf(c->message[me], sizeof *c->message, "%s", eg_error(own) ? eg_error(own) : "");
    eg_ranks_close(r);
    eg_close(own);
    return 0;
}
LOOP_TEST(trainers_of_other_options_are_refused, OTHERS + 1)
{
    static trainer_run c;
    c = (trainer_run){ .steps = _i };
    ck_assert_int_eq(eg_ranks_simulate(cx, 2, other_body, &c), 0);
    char message[200] = "";
    if (_i < OTHERS)
        snprintf(message, sizeof message,
                 "ranks: the options of rank 0 are \"%s\", but those of rank 1 \"%s\"",
                 others[_i][0], others[_i][1]);
    for (int r = 0; r < 2; r++)
        ck_assert_msg(!strcmp(c.message[r], message), "option %d: rank %d says: %s", _i, r,
                      c.message[r]);
}
enum { DURING, BEST, AT_END, RESUMED, FILES };
static char path[2][FILES][40];
static void open_files(void)
{
    open_cx();
    for (int a = 0; a < 2; a++)
        for (int k = 0; k < FILES; k++) {
            strcpy(path[a][k], "/tmp/eg_divide_XXXXXX");
            close(mkstemp(path[a][k]));
        }
}
static void close_files(void)
{
    for (int k = 0; k < 2 * FILES; k++) unlink(path[k / FILES][k % FILES]);
    close_cx();
}
static void trainer_run_on(trainer_run *c, int ranks)
{
    eg_ranks_simulate(cx, ranks, trainer_run_body, c);
    for (int r = 0; r < ranks; r++)
        ck_assert_msg(!c->message[r][0], "rank %d of %d says: %s", r, ranks, c->message[r]);
}
static void same_files(int k, int ranks, int threads)
{
    long n, m;
    char *a = bytes_of(path[0][k], &n), *b = bytes_of(path[1][k], &m);
    ck_assert_msg(n == m && !memcmp(a, b, (size_t)n), "%d ranks, %d threads: file %d differs",
                  ranks, threads, k);
    free(a), free(b);
}

GROUP("trainers", .setup = open_files, .teardown = close_files, .timeout = 240)

/* What rank 0 writes in watch, for the best loss and at the end has the bytes of one process; a run
 * continues with another number of ranks. */
LOOP_TEST(a_divided_trainer_writes_the_files_of_one_process, 4)
{
    static trainer_run c;
    int64_t whole = 0;
    const int ranks = _i + 1;
    for (int turn = 0; turn < 3; turn++) { /* one process; ranks of one thread, of two */
        const int many = turn > 0, threads = turn > 1 ? 2 : 1;
        c = (trainer_run){ .threads = threads,
                           .steps = 9,
                           .save_at = 5,
                           .during = path[many][DURING],
                           .best = path[many][BEST],
                           .at_end = path[many][AT_END] };
        trainer_run_on(&c, many ? ranks : 1);
        if (!many) whole = c.kept[0];
        for (int r = 0; many && ranks > 1 && r < ranks; r++)
            ck_assert(c.kept[r] <= whole / ranks + 2 * EG_RANKS_CHUNK);
        c = (trainer_run){ .threads = threads,
                           .from = path[many][DURING],
                           .at_end = path[many][RESUMED] };
        trainer_run_on(&c, many ? 5 - ranks : 1);
        for (int k = 0; many && k < FILES; k++) same_files(k, ranks, threads);
    }
    long n, m;
    char *a = bytes_of(path[1][AT_END], &n), *b = bytes_of(path[1][RESUMED], &m);
    ck_assert(n == m && !memcmp(a, b, (size_t)n));
    free(a), free(b);
}
/* The loss for similar heads is divided together with the rest. */
LOOP_TEST(with_diversity_too_the_file_is_that_of_one_process, 3)
{
    static const char *const kinds[] = { "encoder", "decoder", "seq2seq" };
    static trainer_run c;
    for (int ranks = 1; ranks <= 3; ranks++) {
        c = (trainer_run){ .threads = ranks % 2 + 1,
                           .steps = 4,
                           .model = kinds[_i],
                           .diversity = 0.5,
                           .at_end = path[ranks > 1][AT_END] };
        trainer_run_on(&c, ranks);
        if (ranks > 1) same_files(AT_END, ranks, c.threads);
    }
}

/* In watch, for the best loss, at the end: all ranks get rank 0's error, and none waits. */
LOOP_TEST(a_file_that_rank_0_cannot_write_is_an_error_of_all, 3)
{
    static trainer_run c;
    const char *nowhere = "/nowhere/at.all";
    c = (trainer_run){ .threads = 1,
                       .steps = 6,
                       .save_at = 3,
                       .during = _i ? path[0][DURING] : nowhere,
                       .best = _i == 1 ? nowhere : path[0][BEST],
                       .at_end = _i == 2 ? nowhere : path[0][AT_END] };
    ck_assert_int_eq(eg_ranks_simulate(cx, 3, trainer_run_body, &c), -1);
    eg_clear(cx);
    for (int r = 0; r < 3; r++)
        ck_assert_msg(strstr(c.message[r], nowhere), "rank %d says: %s", r, c.message[r]);
}
