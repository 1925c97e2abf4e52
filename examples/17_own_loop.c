/* 17: a custom training loop on all cores. A small attention model learns which of two letters a
 * word has more of; eg_step_over divides each batch into blocks of words, which threads compute at
 * the same time. Each thread captures the operations of a block and runs them again for others. The
 * result has the same bits for any number of threads. */
#include <eingrad.h>
#include <stdlib.h>

enum { WORDS = 256, LENGTH = 9, LETTERS = 5, D = 16 };

typedef struct task {
    eg_embedding *letters;
    eg_block *block;
    eg_linear *logits;
    int32_t word[WORDS][LENGTH];
    int32_t label[WORDS]; /* 1: the word has more of letter 1 than of letter 0 */
} task;

static void draw_words(task *t)
{
    for (int w = 0; w < WORDS; w++) {
        int ones = 0;
        for (int k = 0; k < LENGTH; k++) {
            t->word[w][k] = rand() % LETTERS;
            ones += (t->word[w][k] == 1) - (t->word[w][k] == 0);
        }
        if (!ones) { /* equally many: the first letter becomes another one */
            ones = t->word[w][0] == 1 ? -1 : 1;
            t->word[w][0] = t->word[w][0] == 1 ? 2 : 1;
        }
        t->label[w] = ones > 0;
    }
}

/* Returns logits (w c) of words (w l), c = 2 classes: a transformer block, the mean of its result
 * over the positions, then a linear map. */
static eg_tensor *classify(const task *t, eg_tensor *words)
{
    eg_tensor *x = eg_block_run(t->block, eg_embedding_run(t->letters, words));
    return eg_linear_run(t->logits, eg_mean("w [l] d", x));
}

/* The loss of a block of words, as a sum. Several threads call this at the same time, so it only
 * reads `user`; cx is the context of this call. eg_block_rows gives the words [from, to) of the
 * batch. *count is to − from unless it is set. */
static eg_tensor *loss(void *user, eg_ctx *cx, int64_t from, int64_t to, int64_t *count)
{
    eg_tensor *logits = classify(user, eg_block_rows(cx, "words"));
    (void)from, (void)to, (void)count;
    return eg_sum(NULL,
                  eg_cross_entropy("w [c]", logits, eg_block_rows(cx, "labels"), .each = true));
}

/* Trains on this number of threads; returns the last loss. */
static double train(int threads, double *right)
{
    static task t;
    double mean = 99;
    eg_ctx *cx = eg_open(.threads = threads, .seed = 1);
    eg_params *p = eg_params_open(cx);
    t.letters = eg_embedding_new(p, "letters", .count = LETTERS, .d_model = D);
    t.block = eg_block_new(p, "block", .d_model = D, .heads = 2, .dropout = 0.05);
    t.logits = eg_linear_new(p, "logits", .in = D, .out = 2);
    eg_opt *opt = eg_adam(p, .lr = 5e-3, .clip_norm = 1);
    srand(1);
    for (int step = 1; step <= 120 && !eg_error(cx); step++) {
        draw_words(&t);
        eg_mark m = eg_push(cx);
        eg_step_over(opt, loss, &t, WORDS, .block = 32, .mean = &mean, .capture = true,
                     .batch = { { "words", eg_from(cx, t.word[0], WORDS, LENGTH) },
                                { "labels", eg_from(cx, t.label, WORDS) } });
        eg_pop(cx, m);
        if (step % 40 == 0) printf("%d threads, step %3d: loss %.4f\n", threads, step, mean);
    }
    draw_words(&t); /* words that it was not trained on */
    eg_eval(cx);
    const int64_t *predicted =
        eg_i64(eg_argmax("w [c]", classify(&t, eg_from(cx, t.word[0], WORDS, LENGTH))));
    *right = 0;
    for (int w = 0; predicted && w < WORDS; w++) *right += predicted[w] == t.label[w];
    *right /= WORDS;
    if (eg_error(cx)) fprintf(stderr, "%s\n", eg_error(cx));
    eg_close(cx);
    return mean;
}

int main(void)
{
    double right[2];
    const double one = train(1, &right[0]), three = train(3, &right[1]);
    printf("%.1f %% of unseen words; the losses are %s\n", 100 * right[0],
           one == three ? "equal to the last bit" : "different");
    return one == three && right[0] == right[1] && right[0] > 0.9 ? EXIT_SUCCESS : EXIT_FAILURE;
}
