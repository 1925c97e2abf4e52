/* Sums of two numbers of ten digits by at most 456 parameters (AdderBoard, 2026). Digits stand
 * lowest first: ten of a, +, ten of b, =, eleven of the sum, so that digits of one place are 11
 * apart. One layer with two heads, whose scores have a learned number for each distance modulo 11,
 * is trained on random sums and writes the 10010 of AdderBoard's verify.py digit by digit: ten edge
 * cases and 10000 pairs of Python's random.Random(2025). */
#include "python_random.h"
#include "reproduce.h"

enum { DIGITS = 10, ASKED = 2 * DIGITS + 2, ANSWER = DIGITS + 1, L = ASKED + ANSWER };
enum { PLUS = 10, EQUALS, TOKENS, D = 6, HEADS = 2, WIDTH = 14, EDGES = 10, TEST = 10000 + EDGES };
typedef struct model {
    eg_tensor *E, *distance;
    eg_mha *attention;
    eg_ffn *ff;
    eg_norm *norm[3];
} model;

static void write_sum(int32_t *row, int64_t a, int64_t b)
{
    const int64_t c = a + b;
    row[DIGITS] = PLUS, row[ASKED - 1] = EQUALS;
    for (int64_t k = 0, ten = 1; k < ANSWER; k++, ten *= 10) {
        if (k < DIGITS) row[k] = (int32_t)(a / ten % 10);
        if (k < DIGITS) row[DIGITS + 1 + k] = (int32_t)(b / ten % 10);
        row[ASKED + k] = (int32_t)(c / ten % 10);
    }
}

/* Sums for training. In three places of ten, and in others by chance, the digits add up
 * to 9, so that carries go far. */
static void draw(int32_t (*x)[L], uint64_t seed, uint64_t step, int count)
{
    for (int b = 0; b < count; b++) {
        eg_rng rng = { .seed = seed, .number = step * (uint64_t)count + (uint64_t)b };
        int64_t number[2] = { 0, 0 };
        const int digits = 1 + (int)eg_rng_below(&rng, DIGITS);
        for (int k = 0; k < 2 * digits; k++) {
            int digit = (int)eg_rng_below(&rng, 10);
            if (k % 2 && eg_rng_below(&rng, 100) < 30) digit = 9 - (int)(number[0] % 10);
            number[k % 2] = number[k % 2] * 10 + digit;
        }
        write_sum(x[b], number[0], number[1]);
    }
}

static eg_tensor *run_model(const model *m, eg_tensor *tokens)
{
    eg_tensor *x = eg_at("[v] m, b l -> b l m", m->E, tokens);
    x = eg_add(x,
               eg_mha_run(m->attention, eg_norm_run(m->norm[0], x), .where = "j <= i",
                          .score = "score + r[h, (i - j) % 11]", .with = { { "r", m->distance } }));
    x = eg_add(x, eg_ffn_run(m->ff, eg_norm_run(m->norm[1], x)));
    return eg_einsum("blm,vm->blv", eg_norm_run(m->norm[2], x), m->E);
}

/* How many of AdderBoard's sums from `first` on are written without an error. */
static int right(eg_ctx *cx, const model *m, int32_t (*truth)[L], int count)
{
    static int32_t x[TEST][L];
    memcpy(x, truth, sizeof *x * (size_t)count);
    eg_nograd(cx, true);
    for (int l = ASKED; l < L && !eg_error(cx); l++) {
        eg_mark mark = eg_push(cx);
        eg_tensor *so_far = eg_slice("b [l]", eg_from(cx, &x[0][0], count, L), 0, l, 1);
        const int64_t *y =
            eg_i64(eg_argmax("b [v]", eg_select("b [l] v", run_model(m, so_far), -1)));
        for (int b = 0; y && b < count; b++) x[b][l] = (int32_t)y[b];
        eg_pop(cx, mark);
    }
    eg_nograd(cx, false);
    int n = 0;
    for (int b = 0; b < count; b++) n += !memcmp(x[b], truth[b], sizeof *x);
    return n;
}

static double run(const setting *s)
{
    enum { SIZE = 64 };
    static int32_t x[SIZE][L], test[TEST][L];
    static const int64_t nines = 9999999999, edge[EDGES][2] = { { 0, 0 },
                                                                { 0, 1 },
                                                                { nines, 0 },
                                                                { nines, 1 },
                                                                { nines, nines },
                                                                { 5000000000, 5000000000 },
                                                                { 1111111111, 8888888889 },
                                                                { 1234567890, 9876543210 },
                                                                { nines, nines },
                                                                { 1, nines } };
    twister(true);
    for (int k = 0; k < TEST; k++) {
        const int64_t a = k < EDGES ? edge[k][0] : addend();
        write_sum(test[k], a, k < EDGES ? edge[k][1] : addend());
    }
    eg_ctx *cx = open_for(s);
    eg_params *p = eg_params_open(cx);
    model m = { .E = eg_init_normal(eg_param(p, "E", "v m", TOKENS, D), 1 / sqrt(D)),
                .distance = eg_init_constant(eg_param(p, "distance", "h l", HEADS, 11), 0),
                .attention =
                    eg_mha_new(p, "attention", .d_model = D, .heads = HEADS, .no_bias = true),
                .ff = eg_ffn_new(p, "ff", .d_model = D, .width = WIDTH) };
    for (int k = 0; k < 3; k++)
        m.norm[k] = eg_norm_new(p, (const char *[]){ "norm_0", "norm_1", "norm_2" }[k],
                                .d_model = D, .rms = true);
    const int steps = s->small ? 1000 : 6000;
    eg_opt *opt =
        eg_adamw(p, .lr = 2e-2, .clip_norm = 1,
                 .schedule = { .decay = EG_COSINE, .warmup = 100, .steps = steps, .last = 0.05 });
    for (int step = 0; step < steps && !eg_error(cx); step++) {
        eg_mark mark = eg_push(cx);
        draw(x, s->seed, (uint64_t)step, SIZE);
        eg_tensor *t = eg_from(cx, &x[0][0], SIZE, L);
        eg_tensor *y =
            eg_slice("b [l] v", run_model(&m, eg_slice("b [l]", t, 0, L - 1, 1)), ASKED - 1, L, 1);
        eg_tensor *loss = eg_cross_entropy("b l [v]", y, eg_slice("b [l]", t, ASKED, L, 1));
        eg_step(opt, loss);
        if (step % 1000 == 0)
            printf("step %5d: loss %.4f, %d of 500\n", step, eg_item(loss),
                   right(cx, &m, test + EDGES, 500));
        eg_pop(cx, mark);
    }
    const int tested = s->small ? 1000 : TEST, n = right(cx, &m, test, tested);
    printf("%lld parameters: %d of %d\n", (long long)eg_params_size(p), n, tested);
    return close_with(cx, eg_params_size(p) <= 456 ? (double)n / tested : 0);
}

int main(int argc, char **argv)
{
    const study y = { .name = "adder",
                      .published = "100 % by 456 parameters; 99 % qualifies",
                      .source = "AdderBoard, github.com/anadim/AdderBoard",
                      .measure = "share of its 10010 sums right",
                      .bound = 0.99,
                      .small_bound = 0.5,
                      .at_least = true,
                      .run = run };
    return reproduce(&y, argc, argv);
}
