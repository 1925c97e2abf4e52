/* Sums of two numbers of three digits: "ABC+DEF=" and the four digits of the sum, units first. The
 * published model (TinyGPT: four layers, width 64, 200832 parameters) has 1000 of 1000 unseen sums
 * right after 50 epochs of 10000 examples. Here are two layers of width 32, and 25 epochs. */
#include "reproduce.h"

enum { ASKED = 8, ANSWER = 4, L = ASKED + ANSWER, EXAMPLES = 10000, TEST = 1000 };
enum { PLUS = 10, EQUALS, TOKENS, ALL = EXAMPLES + TEST };
static int32_t sums[ALL][L];

/* Different pairs, in random order: examples first, then those to test. */
static void draw(uint64_t seed)
{
    static bool taken[1000000];
    eg_rng rng = { .seed = seed, .number = 1 };
    memset(taken, 0, sizeof taken);
    for (int n = 0; n < ALL; n++) {
        uint32_t pair;
        do pair = eg_rng_below(&rng, 1000000);
        while (taken[pair]);
        taken[pair] = true;
        const int a = (int)(pair / 1000), b = (int)(pair % 1000), c = a + b;
        const int32_t row[L] = { a / 100, a / 10 % 10, a % 10,       PLUS,
                                 b / 100, b / 10 % 10, b % 10,       EQUALS,
                                 c % 10,  c / 10 % 10, c / 100 % 10, c / 1000 };
        memcpy(sums[n], row, sizeof row);
    }
}

static eg_tensor *run_model(const eg_transformer *net, eg_tensor *x)
{
    return eg_transformer_run(net, x, .where = "j <= i");
}

/* How many of the unseen sums the model writes without an error, digit by digit. */
static int right(eg_ctx *cx, const eg_transformer *net)
{
    static int32_t x[TEST][L];
    memcpy(x, sums[EXAMPLES], sizeof x);
    eg_nograd(cx, true);
    for (int l = ASKED; l < L && !eg_error(cx); l++) {
        eg_mark mark = eg_push(cx);
        eg_tensor *so_far = eg_slice("b [l]", eg_from(cx, &x[0][0], TEST, L), 0, l, 1);
        eg_tensor *logits = eg_select("b [l] v", run_model(net, so_far), -1);
        const int64_t *digit = eg_i64(eg_argmax("b [v]", logits));
        for (int b = 0; digit && b < TEST; b++) x[b][l] = (int32_t)digit[b];
        eg_pop(cx, mark);
    }
    eg_nograd(cx, false);
    int n = 0;
    for (int b = 0; b < TEST; b++) n += !memcmp(x[b], sums[EXAMPLES + b], sizeof *x);
    return n;
}

static double run(const setting *s)
{
    eg_ctx *cx = open_for(s);
    eg_params *p = eg_params_open(cx);
    eg_transformer *net = eg_transformer_new(p, "net", .vocabulary = TOKENS, .length = L,
                                             .d_model = 32, .heads = 4, .layers = 2, .width = 64);
    const int batch = 128, epoch = EXAMPLES / batch, steps = (s->small ? 8 : 25) * epoch;
    eg_opt *opt = eg_adamw(p, .lr = 5e-3, .clip_norm = 1,
                           .schedule = { .decay = EG_COSINE, .warmup = 100, .steps = steps });
    draw(s->seed);
    for (int step = 0; step < steps && !eg_error(cx); step++) {
        eg_mark mark = eg_push(cx);
        eg_tensor *x = eg_from(cx, sums[step % epoch * batch], batch, L);
        eg_tensor *logits = run_model(net, eg_slice("b [l]", x, 0, L - 1, 1));
        eg_tensor *loss = eg_cross_entropy("b l [v]", eg_slice("b [l] v", logits, ASKED - 1, L, 1),
                                           eg_slice("b [l]", x, ASKED, L, 1));
        eg_step(opt, loss);
        if (step % epoch == epoch - 1)
            printf("epoch %2d: loss %.4f, %d of %d right\n", step / epoch + 1, eg_item(loss),
                   right(cx, net), TEST);
        eg_pop(cx, mark);
    }
    printf("%lld parameters\n", (long long)eg_params_size(p));
    return close_with(cx, right(cx, net));
}

int main(int argc, char **argv)
{
    const study y = { .name = "addition",
                      .published = "1000 of 1000 unseen sums of three digits",
                      .source = "TinyGPT, soveshmohapatra.com/projects/tinygpt-benchmark",
                      .measure = "of 1000 unseen sums right",
                      .bound = 1000,
                      .small_bound = 300,
                      .at_least = true,
                      .run = run };
    return reproduce(&y, argc, argv);
}
