/* on_ranks.c: the program that tests/ranks.sh starts with mpirun; its first argument is the test.
 * Only rank 0 prints. */
#if HAVE_CONFIG_H
#include <config.h> /* EG_DEBUG_ALLOC */
#endif
#if EG_DEBUG_ALLOC
enum { EACH_ALLOCATED = 1 }; /* each tensor is an allocation */
#else
enum { EACH_ALLOCATED = 0 };
#endif
#include <eingrad.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEAVES = 16, PARTS = 2, N = 3000 + 5192 };

/* Elements of many magnitudes, the same on every rank, so that the order of their sum matters. */
static void fill(float *x, int64_t leaf)
{
    uint32_t z = 2654435769u * (uint32_t)(leaf + 1);
    for (int k = 0; k < N; k++) {
        z ^= z << 13, z ^= z >> 17, z ^= z << 5;
        x[k] = (float)((int)(z >> 8) - (1 << 23)) * (float)(1 << (z % 16));
    }
}
static void sum_leaves(eg_span node, float *x)
{
    if (node.to - node.from == 1) {
        fill(x, node.from);
        return;
    }
    const int64_t middle = eg_ranks_tree_middle(node);
    float *y = calloc(N, sizeof *y);
    sum_leaves((eg_span){ node.from, middle }, x);
    sum_leaves((eg_span){ middle, node.to }, y);
    for (int k = 0; k < N; k++) x[k] += y[k];
    free(y);
}

/* A sum, its norm and the gathering: the bits are those of one process, the bytes those of the
 * formula. */
static int sum(eg_ranks *r)
{
    static float want[N], got[N], own[8][N];
    const int64_t counts[PARTS] = { 3000, N - 3000 };
    const int ranks = eg_ranks_count(r);
    eg_ranks_tree *t = eg_ranks_tree_open(.ranks = r, .leaves = LEAVES, .parts = PARTS,
                                          .counts = counts, .chunk = 8);
    if (!t) return -1;
    void *subtree[8];
    double *square = calloc((size_t)eg_ranks_tree_chunks(t), sizeof *square), norm[2] = { 0 };
    sum_leaves((eg_span){ 0, LEAVES }, want);
    for (int k = 0; k < eg_ranks_tree_subtrees(t); k++)
        sum_leaves(eg_ranks_tree_subtree(t, k), subtree[k] = own[k]);
    const uint64_t before = eg_ranks_traffic(r).sent;
    const eg_ranks_tree_bytes b = eg_ranks_tree_predict(t);
    int bad = eg_ranks_tree_sum(t, subtree, got) || eg_ranks_tree_squares(t, got, square) ||
              eg_ranks_tree_gather(t, got);
    const uint64_t sent = eg_ranks_traffic(r).sent - before;
    const eg_span all = { 0, eg_ranks_tree_chunks(t) };
    norm[0] = eg_ranks_tree_total(square, all);
    for (int64_t c = all.from; c < all.to; c++) {
        square[c] = 0;
        const eg_span s = eg_ranks_tree_chunk(t, c);
        double lane[8] = { 0 };
        for (int64_t k = s.from; k < s.to; k++)
            lane[k - s.from] = (double)want[k] * (double)want[k];
        square[c] = ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
                    ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    }
    norm[1] = eg_ranks_tree_total(square, all);
    if (!bad && memcmp(got, want, sizeof got) != 0)
        bad = !!eg_fail(eg_ranks_context(r), "the sum has other bits");
    if (!bad && memcmp(&norm[0], &norm[1], sizeof *norm) != 0)
        bad = !!eg_fail(eg_ranks_context(r), "the norm has other bits");
    const uint64_t least = (uint64_t)(4 * N / ranks * (ranks - 1));
    if (!bad && (sent != b.sum + b.gather + b.statistics ||
                 ((ranks & (ranks - 1)) == 0 && (b.sum != least || b.gather != least))))
        bad = !!eg_fail(eg_ranks_context(r), "sent %llu bytes", (unsigned long long)sent);
    free(square);
    eg_ranks_tree_close(t);
    bad |= eg_ranks_barrier(r);
    if (!bad && eg_ranks_rank(r) == 0)
        printf("%d ranks: the bits of one; %llu bytes sent by rank 0\n", ranks,
               (unsigned long long)sent);
    return bad;
}

/* A transformer over a divided length, with dropout: rank 0 prints the bits of all logits, which do
 * not depend on the number of ranks. The gradients have the same bits on every rank. */
static int model(eg_ranks *r)
{
    enum { LENGTH = 41, V = 7, BLOCK = 3, MOST = 64 };
    eg_ctx *cx = eg_ranks_context(r);
    eg_params *p = eg_params_open(cx);
    eg_transformer *net = eg_transformer_new(
        p, "net", .vocabulary = V, .length = LENGTH, .d_model = 16, .heads = 4, .layers = 2,
        .dropout = 0.1, .mha = &(eg_mha_args){ .kv_heads = 2, .rotary = 100, .alibi = true });
    eg_tensor *all = eg_randint(cx, 0, V, 1, LENGTH), *part[2], *d[MOST];
    eg_span run[2];
    const int runs = eg_attention_positions(r, LENGTH, BLOCK, true, run), n = eg_params_count(p);
    for (int k = 0; k < runs; k++) part[k] = eg_slice_axis(all, 1, run[k].from, run[k].to, 1);
    eg_tensor *own = eg_concat_axis_n(1, runs, part),
              *y = eg_transformer_run(net, own, .where = "j <= i", .ranks = r, .ranks_block = BLOCK,
                                      .zigzag = true),
              *loss = eg_sum(NULL, eg_square(y));
    const float *x = eg_f32(y);
    uint64_t place[LENGTH] = { 0 }, *of = calloc((size_t)eg_ranks_count(r), sizeof place), h = 0;
    for (int k = 0, at = 0; x && k < runs; k++)
        for (int64_t i = run[k].from; i < run[k].to; i++, at++)
            place[i] = eg_hash(EG_HASH_START, x + at * V, V * sizeof *x);
    if (of && !eg_ranks_gather(r, place, sizeof place, of))
        for (int k = 0; k < eg_ranks_count(r) * LENGTH; k++)
            h += of[k] * (uint64_t)(k % LENGTH + 1);
    free(of);
    for (int k = 0; k < n && k < MOST; k++) d[k] = eg_params_at(p, k)->x;
    if (n > MOST || eg_grad(loss, NULL, n, d, d)) return -1;
    char text[32];
    for (int k = 0; k < n && !eg_error(cx); k++) {
        const size_t bytes = (size_t)eg_size(d[k]) * sizeof(float);
        const float *g = eg_f32(d[k]);
        snprintf(text, sizeof text, "%016llx",
                 (unsigned long long)(g ? eg_hash(EG_HASH_START, g, bytes) : 0));
        eg_ranks_agree(r, "the gradients", text);
    }
    const double total = eg_item(eg_ranks_sum(r, loss));
    if (eg_ranks_barrier(r)) return -1;
    if (eg_ranks_rank(r) == 0) printf("logits %016llx, loss %.4g\n", (unsigned long long)h, total);
    return 0;
}

/* -- warm steps ------------------------------------------------------------------------------- */
enum { WIDTH = 12, KINDS = 4, STEPS = 50, WARM = 10 };
typedef struct warm {
    eg_ranks *ranks;
    eg_tensor *w;
    eg_mha *mha;
} warm;
static eg_tensor *warm_loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    const warm *s = user;
    *count = to - from;
    eg_tensor *x = eg_sin(eg_arange(cx, EG_F32, (double)from * WIDTH, (double)to * WIDTH, 1)),
              *y = eg_einsum("ni,ij->nj", eg_reshape(x, to - from, WIDTH), s->w);
    return eg_sum(NULL, eg_mul(y, eg_tanh(y)));
}
/* Attention over a length that is divided among the ranks. */
static eg_tensor *warm_attention(const warm *s, int64_t length)
{
    enum { BLOCK = 3 };
    eg_span run[2];
    const int runs = eg_attention_positions(s->ranks, length, BLOCK, true, run);
    int64_t own = 0;
    for (int k = 0; k < runs; k++) own += run[k].to - run[k].from;
    eg_tensor *x = eg_sin(eg_arange(eg_context(s->w), EG_F32, 0, (double)(own * WIDTH), 1));
    x = eg_reshape(x, 1, own, WIDTH);
    return eg_sum(NULL, eg_square(eg_mha_run(s->mha, x, x, x, .where = "j <= i", .ranks = s->ranks,
                                             .ranks_block = BLOCK, .zigzag = true)));
}
/* A warm step calls no allocator, neither over blocks nor of attention over a divided length: steps
 * of one size with divided moments, then steps of two sizes in turns. */
static int warm_steps(eg_ranks *r)
{
    eg_ctx *cx = eg_ranks_context(r);
    for (int kind = 0; kind < KINDS && !eg_error(cx); kind++) {
        const eg_mark all = eg_push(cx);
        eg_params *p = eg_params_open(cx);
        warm s = { .ranks = r, .w = eg_param(p, "w", "ij", WIDTH, WIDTH) };
        if (kind % 2) s.mha = eg_mha_new(p, "mha", .d_model = WIDTH, .heads = 2, .alibi = true);
        eg_opt *op = eg_adam(p, .lr = 1e-3, .clip_norm = 1);
        if (kind < 2) eg_opt_shard(op, r);
        uint64_t calls = 0;
        for (int k = 0; k < STEPS && !eg_error(cx); k++) {
            const bool small = kind > 1 && k % 2;
            const eg_mark m = eg_push(cx);
            if (s.mha)
                eg_step(op, warm_attention(&s, small ? 13 : 22));
            else
                eg_step_over(op, warm_loss, &s, small ? 26 : 64, .block = 2, .ranks = r);
            eg_pop(cx, m);
            const uint64_t now = eg_stats(cx).mallocs;
            if (!EACH_ALLOCATED && k >= STEPS - WARM && now != calls)
                eg_fail(cx, "kind %d, step %d: %d allocations", kind, k, (int)(now - calls));
            calls = now;
        }
        eg_ranks_barrier(r);
        eg_pop(cx, all);
    }
    if (!eg_error(cx) && eg_ranks_rank(r) == 0) puts("warm steps call no allocator");
    return eg_error(cx) ? -1 : 0;
}

/* -- an error of one rank ---------------------------------------------------------------------- */
enum { FAILURES = 7 };
/* What fails, on rank `on`: the hook of a tensor of the backward pass. */
typedef struct failing {
    eg_ranks *ranks;
    eg_mha *mha[2];
    eg_tensor *x;
    int on;
} failing;
static eg_tensor *failing_hook(void *user, eg_tensor *x, eg_tensor *g)
{
    const failing *s = user;
    (void)g;
    return eg_ranks_rank(s->ranks) == s->on ? eg_fail(eg_context(x), "refused here") : NULL;
}
static eg_tensor *failing_layer(const failing *s, int k, eg_tensor *x)
{
    return eg_mha_run(s->mha[k], x, x, x, .where = "j <= i", .ranks = s->ranks, .ranks_block = 2);
}
static eg_tensor *failing_segment(void *user, eg_tensor *const *x)
{
    eg_tensor *y = failing_layer(user, 0, x[0]);
    eg_hook(y, failing_hook, user);
    return y;
}
/* Two attentions, and a rank that fails: in the backward pass between the attentions (0), before
 * the first (1), inside a checkpoint (2), in the loss (3), which a step (4) also gets, with
 * checkpoints too (5), and in the backward pass of a step (6). Returns 0 without an error. */
static int failing_pass(failing *s, eg_opt *op, int how)
{
    eg_ctx *cx = eg_ranks_context(s->ranks);
    const bool again = how == 2 || how == 5;
    eg_tensor *x = s->x, *d,
              *y = again ? eg_checkpoint(failing_segment, s, 1, &x) : failing_layer(s, 0, x),
              *z = eg_tanh(y),
              *last = how == 5 ? eg_checkpoint(failing_segment, s, 1, &z) : failing_layer(s, 1, z),
              *sine = eg_sin(last), *loss = eg_sum(NULL, eg_square(sine));
    if (how == 0 || how == 6) eg_hook(z, failing_hook, s);
    if (how == 1) eg_hook(sine, failing_hook, s);
    if (how > 2 && how < 6 && eg_ranks_rank(s->ranks) == s->on)
        loss = eg_sum(NULL, eg_add(sine, eg_zeros(cx, 2, 3, 5)));
    return how > 3 ? eg_step(op, loss) : eg_grad(loss, NULL, 1, &x, &d);
}
/* If one rank fails, every rank has its error, and the ranks can compute together afterwards. */
static int failures(eg_ranks *r)
{
    const char *const want[FAILURES] = { "refused", "refused", "refused", "add",
                                         "add",     "add",     "refused" };
    eg_ctx *cx = eg_ranks_context(r);
    eg_params *p = eg_params_open(cx);
    failing s = { .ranks = r, .on = -1 };
    for (int k = 0; k < 2; k++) s.mha[k] = eg_mha_new(p, k ? "b" : "a", .d_model = 8, .heads = 2);
    eg_opt *op = eg_adam(p, .lr = 1e-3);
    const int ranks = eg_ranks_count(r), me = eg_ranks_rank(r);
    for (int k = 0; k < 2 * FAILURES * (ranks + 1) && !eg_error(cx); k++) {
        const int how = k / 2 % FAILURES;
        const eg_mark m = eg_push(cx);
        eg_span run[2];
        eg_attention_positions(r, 12, 2, false, run);
        s.x = eg_sin(eg_arange(cx, EG_F32, 0, (double)(8 * (run[0].to - run[0].from)), 1));
        s.x = eg_reshape(s.x, 1, run[0].to - run[0].from, 8);
        s.on = k % 2 ? -1 : k / 2 / FAILURES; /* `ranks`: none of them */
        const int bad = failing_pass(&s, op, how), fails = s.on >= 0 && s.on < ranks;
        char text[1024];
        snprintf(text, sizeof text, "%s", eg_error(cx) ? eg_error(cx) : "");
        eg_clear(cx);
        char from[32] = "";
        if (fails && s.on != me) snprintf(from, sizeof from, "rank %d: ", s.on);
        if (!bad != !fails || !*text != !fails || (fails && !strstr(text, want[how])) ||
            !strstr(text, from))
            eg_fail(cx, "failure %d of rank %d: \"%s\"", how, s.on, text);
        if (eg_item(eg_ranks_sum(r, eg_full(cx, EG_F32, 1))) != ranks)
            eg_fail(cx, "failure %d of rank %d: the sum", how, s.on);
        eg_ranks_barrier(r);
        eg_pop(cx, m);
    }
    if (!eg_error(cx) && me == 0) puts("every rank has the error of one");
    return eg_error(cx) ? -1 : 0;
}

/* Passes a message from rank to rank in turn, until rank 1 does `end`. */
static int round_trip(eg_ranks *r, const char *end)
{
    const int me = eg_ranks_rank(r), ranks = eg_ranks_count(r);
    int64_t x = me;
    for (int k = 0; k < 1000; k++) {
        if (me == 1 && k == 3) {
            if (!strcmp(end, "killed")) raise(SIGKILL);
            if (!strcmp(end, "exits")) _exit(0);
            if (!strcmp(end, "closes")) return 0;
            eg_fail(eg_ranks_context(r), "an error of one rank");
            if (!strcmp(end, "leaves")) return -1;
        }
        if (!strcmp(end, "tells") && eg_ranks_barrier(r)) return -1;
        if (eg_ranks_exchange(r, (me + 1) % ranks, &x, sizeof x, (me + ranks - 1) % ranks, &x,
                              sizeof x))
            return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int number = 0;
    eg_ranks_launched(&number);
    const bool flush = !strcmp(what, "differs") && number == 1;
    eg_ctx *cx = eg_open(.threads = 1, .flush = flush);
    eg_ranks *r = eg_ranks_open(.cx = cx);
    int bad = !r;
    if (r)
        bad = !strcmp(what, "sum")     ? sum(r)
              : !strcmp(what, "model") ? model(r)
              : !strcmp(what, "warm")  ? warm_steps(r)
              : !strcmp(what, "fails") ? failures(r)
                                       : round_trip(r, what);
    if (eg_error(cx) && number == 0) printf("%s\n", eg_error(cx));
    fflush(stdout);
    eg_ranks_close(r);
    eg_close(cx);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}
