/* test_combine.c: which features can be used together. docs/combinations.md has a table of all
 * pairs; each of its cells is compared here with what the library does. */
#include <eingrad.h>
#include <string.h>
#include "fixtures.h"
#include "tests.h"

/* The features, in the order of the table's rows and columns. */
enum {
    CAPTURED,
    COPIES,
    BLOCKS,
    RANKS,
    CHECKPOINT,
    TANGENT,
    HOOK,
    COMPLEX,
    HALVES,
    SCORE_FN,
    LINEAR,
    CACHE,
    FEATURES
};
static const char *const name_of[FEATURES] = {
    "captured step", "copies", "blocks",    "ranks",     "checkpoint",       "eg_jvp",
    "hooks",         "c128",   "f16, bf16", ".score_fn", "linear attention", "cache"
};
enum { B = 2, L = 8, M = 6, H = 2, D = 3, W_SIZE = M * H * D };

/* One computation with some of the features, and its results. */
typedef struct use {
    unsigned with; /* a bit for each feature */
    bool plain;    /* the same numbers by other means: the reference */
    eg_ctx *cx;
    eg_ranks *ranks;
    eg_tensor *x, *W, *V, *keys; /* V: the direction of TANGENT; keys: of HALVES */
    eg_form form;                /* of eg_attention */
    eg_mha *module;              /* NULL: eg_attention or eg_linear_attention */
    eg_cache *cache;
    int hooks; /* how often the hook was called */
    /* results */
    bool has_gradient;
    double value, gradient[W_SIZE];
    char message[512]; /* the first error; "": none */
} use;

static bool has(const use *u, int feature) { return u->with >> feature & 1; }
static eg_tensor *halved(void *user, eg_tensor *scores)
{
    (void)user;
    return eg_scale(scores, 0.5);
}
static eg_tensor *doubled(void *user, eg_tensor *x, eg_tensor *g)
{
    (void)x;
    ++*(int *)user;
    return eg_scale(g, 2);
}

/* The module's result: all positions at once, or with a cache one after the other. */
static eg_tensor *module_loss(use *u, eg_tensor *x)
{
    const int64_t n = u->cache ? L : 1, size = eg_dim(x, 1) / n;
    eg_tensor *sum = NULL;
    for (int64_t k = 0; k < n; k++) {
        eg_tensor *y = eg_mha_run(u->module, eg_slice_axis(x, 1, k * size, (k + 1) * size, 1),
                                  .where = "j <= i", .cache = u->cache,
                                  .ranks = has(u, BLOCKS) ? NULL : u->ranks, .ranks_block = 2),
                  *one = eg_sum(NULL, eg_mul(y, y));
        sum = sum ? eg_add(sum, one) : one;
    }
    return sum;
}
/* The loss of x (b i m) and W (m h d), one number. */
static eg_tensor *loss_of(void *user, eg_tensor *const *xs)
{
    use *u = user;
    eg_ranks *r = has(u, BLOCKS) ? NULL : u->ranks;
    eg_tensor *W = r ? eg_ranks_shared(r, xs[1]) : xs[1];
    if (u->module) return module_loss(u, xs[0]);
    if (has(u, HOOK) && !u->plain) {
        W = eg_scale(W, 1);
        eg_hook(W, doubled, &u->hooks);
    }
    eg_tensor *q = eg_einsum("bim,mhd->bihd", xs[0], W), *k = q, *y;
    if (has(u, HALVES))
        k = has(u, BLOCKS) && !u->plain ? eg_block_rows(eg_context(xs[0]), "keys") : u->keys;
    const double scale = u->plain && has(u, SCORE_FN) ? 0.5 / sqrt(D) : 0;
    if (has(u, LINEAR))
        y = eg_linear_attention("bihd,bjhd,bjhe->bihe", q, k, k, .where = "j <= i",
                                .chunk = u->plain ? 1 : 0);
    else
        y = eg_attention("bihd,bjhd,bjhe->bihe", q, k, k, .where = "j <= i", .scale = scale,
                         .score_fn = has(u, SCORE_FN) && !u->plain ? halved : NULL, .ranks = r,
                         .ranks_block = 2, .form = u->form);
    return eg_sum(NULL, eg_mul(y, y));
}
static eg_tensor *loss(use *u, eg_tensor *x, eg_tensor *W)
{
    eg_tensor *xs[] = { x, W };
    eg_tensor *y =
        has(u, CHECKPOINT) && !u->plain ? eg_checkpoint(loss_of, u, 2, xs) : loss_of(u, xs);
    return has(u, TANGENT) ? eg_jvp(y, 1, &W, &u->V) : y;
}
static int step(void *user, eg_tensor **out)
{
    use *u = user;
    out[0] = loss(u, u->x, u->W);
    if (u->has_gradient) eg_grad(out[0], NULL, 1, &u->W, &out[1]);
    return 0;
}
static eg_tensor *block(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    use *u = user;
    (void)from, (void)to, (void)count;
    return loss(u, eg_block_rows(cx, "x"), u->W);
}

/* Stores value and gradient (NULL: none), of the first of the copies. */
static void store(use *u, eg_tensor *y, eg_tensor *g)
{
    if (y && eg_copies_of(y)) y = eg_copy_at(y, 0);
    if (g && eg_copies_of(g)) g = eg_copy_at(g, 0);
    if (y && eg_type(y) == EG_C128) y = eg_real(y);
    if (y) u->value = eg_item(y);
    const double *v = g ? eg_f64(eg_contiguous(g)) : NULL;
    for (int64_t k = 0; v && k < eg_size(g) && k < W_SIZE; k++) u->gradient[k] = v[k];
}
static void run_blocks(use *u)
{
    eg_tensor *g = NULL;
    double mean = 0, each[2];
    eg_captured_blocks *kept = has(u, CAPTURED) ? eg_captured_blocks_open(u->cx) : NULL;
    const eg_grad_over_args o = { .size = sizeof o,
                                  .cx = u->cx,
                                  .loss = block,
                                  .user = u,
                                  .examples = B,
                                  .count = u->has_gradient,
                                  .xs = u->has_gradient ? &u->W : NULL,
                                  .dxs = u->has_gradient ? &g : NULL,
                                  .block = 1,
                                  .mean = &mean,
                                  .mean_each = each,
                                  .captured = kept,
                                  .batch = { { "x", u->x },
                                             { u->keys ? "keys" : NULL, u->keys } } };
    for (int k = 0; k < (kept ? 3 : 1); k++) {
        if (u->ranks)
            eg_ranks_grad_over(u->ranks, &o);
        else
            eg_grad_over_with(&o);
    }
    u->value = (has(u, COPIES) ? each[0] : mean) * B;
    if (kept && eg_captured_blocks_refused(kept))
        snprintf(u->message, sizeof u->message, "%s", eg_captured_blocks_refused(kept));
    store(u, NULL, g ? eg_scale(g, B) : NULL);
}
/* Captures the step while W is twice as large, and runs it with W. */
static void run_captured(use *u)
{
    eg_tensor *W = eg_copy(u->W);
    eg_assign(u->W, eg_add(W, W));
    eg_captured *c = eg_capture(u->cx, step, u, u->has_gradient ? 2 : 1);
    eg_assign(u->W, W);
    eg_captured_run(c);
    if (c) store(u, eg_captured_output(c, 0), u->has_gradient ? eg_captured_output(c, 1) : NULL);
}
static void make_module(use *u)
{
    eg_params *p =
        eg_params_open(u->cx, .copies = has(u, COPIES) && !u->plain ? 2 : 0, .seeds = NULL);
    static const eg_linear_attention_args linear = { .size = sizeof linear };
    u->module =
        eg_mha_new(p, "at", .d_model = M, .heads = H, .linear = has(u, LINEAR) ? &linear : NULL,
                   .score_fn = has(u, SCORE_FN) ? halved : NULL);
    if (has(u, CACHE) && !u->plain)
        u->cache = eg_cache_new(eg_params_owner(p), L,
                                .dtype = has(u, HALVES)    ? EG_F16
                                         : has(u, COMPLEX) ? EG_C128
                                                           : EG_DEFAULT);
    const bool gradients = has(u, TANGENT) || has(u, HOOK) || has(u, BLOCKS);
    if (has(u, CACHE) && (!gradients || u->plain)) eg_nograd(u->cx, true);
    u->has_gradient = u->has_gradient && gradients;
}
/* Makes the tensors in u->cx, computes, and stores the results in *u. */
static void run(use *u)
{
    eg_ctx *cx = u->cx;
    eg_tensor *x = eg_normal(cx, 0, 1, B, L, M), *W = eg_normal(cx, 0, 1, M, H, D),
              *V = eg_normal(cx, 0, 1, M, H, D),
              *keys = eg_cast(eg_normal(cx, 0, 1, B, L, H, D), EG_F16);
    if (u->plain) keys = eg_cast(keys, EG_F64);
    if (u->ranks && !has(u, BLOCKS)) {
        eg_span run[2];
        eg_attention_positions(u->ranks, L, 2, false, run);
        x = eg_copy(eg_slice_axis(x, 1, run[0].from, run[0].to, 1));
        keys = eg_slice_axis(keys, 1, run[0].from, run[0].to, 1);
    }
    if (has(u, COPIES) && !u->plain) {
        const eg_copies *c = eg_copies_open(eg_owner_open(cx), 2, NULL);
        eg_tensor *both[] = { W, eg_scale(W, 2) };
        W = eg_copies_unstack(c, eg_stack_axis_n(0, 2, both));
    }
    if (has(u, COMPLEX) && !u->plain) x = eg_cast(x, EG_C128), W = eg_cast(W, EG_C128);
    u->x = x, u->W = W, u->V = V, u->keys = has(u, HALVES) ? keys : NULL;
    u->has_gradient = !has(u, COMPLEX);
    if (has(u, CACHE) || (has(u, LINEAR) && (has(u, RANKS) || has(u, SCORE_FN)))) make_module(u);
    eg_tensor *out[2] = { NULL, NULL };
    if (has(u, BLOCKS) && !u->plain) {
        run_blocks(u);
    } else if (has(u, CAPTURED) && !u->plain) {
        run_captured(u);
    } else {
        step(u, out);
        if (u->ranks) out[0] = eg_ranks_sum(u->ranks, out[0]);
        store(u, out[0], out[1]);
    }
    if (eg_error(cx) && !*u->message) snprintf(u->message, sizeof u->message, "%s", eg_error(cx));
}
static int rank_body(void *user, const eg_ranks_table *table)
{
    use *u = user, own = *u;
    own.cx = eg_open(.dtype = EG_F64, .seed = 1, .threads = 1);
    own.ranks = eg_ranks_open(.cx = own.cx, .table = table);
    run(&own);
    eg_ranks_close(own.ranks);
    eg_close(own.cx);
    own.cx = NULL, own.ranks = NULL;
    if (table->rank == 0) *u = own;
    return 0;
}
static void run_alone(use *u)
{
    eg_ctx *cx = eg_open(.dtype = EG_F64, .seed = 1, .threads = 1);
    if (has(u, RANKS) && !u->plain) {
        eg_ranks_simulate(cx, 2, rank_body, u);
        if (eg_error(cx) && !*u->message)
            snprintf(u->message, sizeof u->message, "%s", eg_error(cx));
    } else {
        u->cx = cx;
        run(u);
    }
    eg_close(cx);
}

/* Returns the cell of the table of docs/combinations.md in the row of feature a and the column of
 * feature b, without blanks. */
static const char *cell_of(const char *page, int a, int b)
{
    static char cell[64];
    char row[64];
    snprintf(row, sizeof row, "\n| **%s** |", name_of[a]);
    const char *at = strstr(page, row), *end;
    ck_assert_msg(at != NULL, "the table has no row '%s'", name_of[a]);
    at += strlen(row);
    for (int k = 0; k < b; k++) at = strchr(at, '|') + 1;
    end = strchr(at, '|');
    snprintf(cell, sizeof cell, "%.*s", (int)strcspn(at + 1, " |"), at + 1);
    ck_assert(end && end - at < 60);
    return cell;
}
/* yes, if, –: computes the same as without the feature (two features that only change how it is
 * computed), or as the reference does. no: the error is in the second table of the page. */
LOOP_TEST(a_pair_is_as_the_table_says, FEATURES *FEATURES)
{
    const int a = _i / FEATURES, b = _i % FEATURES;
    long size;
    char *page = bytes_of(source_path("docs/combinations.md"), &size);
    page[size - 1] = 0;
    const char *cell = cell_of(page, a, b);
    const bool no = !strcmp(cell, "no");
    ck_assert_msg(no || !strcmp(cell, "yes") || !strcmp(cell, "if") || !strcmp(cell, "–"), "%s",
                  cell);
    for (int form = 0; form < (a == SCORE_FN || b == SCORE_FN || a == b ? 1 : 2); form++) {
        use u = { .with = 1u << a | 1u << b, .form = form ? EG_FUSED : EG_UNFUSED }, p = u;
        p.plain = true;
        run_alone(&p);
        run_alone(&u);
        ck_assert_msg(no == (*u.message != 0), "%s, %s: '%s', but the table says '%s'", name_of[a],
                      name_of[b], u.message, cell);
        ck_assert_msg(!no || strstr(page, u.message), "the page lacks: %s", u.message);
        if (no) continue;
        const double near = has(&u, HALVES) && has(&u, CACHE) ? 1e-3 : 1e-11,
                     factor = has(&u, HOOK) ? 2 : 1;
        ck_assert_msg(!*p.message, "%s", p.message);
        ck_assert_msg(fabs(u.value - p.value) <= near * fabs(p.value), "%s, %s: %.17g, not %.17g",
                      name_of[a], name_of[b], u.value, p.value);
        ck_assert(u.has_gradient == p.has_gradient);
        for (int k = 0; u.has_gradient && k < W_SIZE; k++)
            ck_assert_msg(fabs(u.gradient[k] - factor * p.gradient[k]) <= 1e-10,
                          "%s, %s: element %d of the gradient is %.17g, not %.17g", name_of[a],
                          name_of[b], k, u.gradient[k], factor * p.gradient[k]);
        if (has(&u, HOOK) && !has(&u, BLOCKS)) ck_assert_int_eq(u.hooks, 1);
    }
    free(page);
}
