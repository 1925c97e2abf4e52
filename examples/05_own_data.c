/* 05: train a task on your own data. A task is a struct: symbols, lengths, and a function that
 * makes one example from random numbers. For a file of pairs use eg_data_pairs, or `eingrad train
 * --pairs FILE`. This task: shift each letter of a word by one and reverse the word. */
#include <eingrad.h>
#include <stdlib.h>

static void make(eg_rng *rng, eg_example *e)
{
    e->inputs = e->outputs = 3 + (int)eg_rng_below(rng, 6); /* 3 to 8 letters */
    for (int k = 0; k < e->inputs; k++) e->input[k] = (int32_t)eg_rng_below(rng, 10);
    for (int k = 0; k < e->inputs; k++) e->output[k] = (e->input[e->inputs - 1 - k] + 1) % 10;
}
static const eg_task task = {
    .name = "shift and turn",
    .about = "abc -> dcb",
    .symbols = "abcdefghij",
    .longest_input = 8,
    .longest_output = 8,
    .make = make,
    .lr = 2e-3,
    .warmup = 20,
    .steps = 600,
};

static bool watch(void *user, eg_trainer *t, const eg_progress *p)
{
    (void)user;
    (void)t;
    if (p->step % 50 == 0)
        printf("step %3d  loss %.4f  right tokens %5.1f %%\n", (int)p->step, p->loss,
               100 * p->accuracy);
    return false; /* true would end the training */
}

int main(void)
{
    eg_ctx *cx = eg_open(.seed = 5);
    eg_trainer *t = eg_trainer_new(eg_data_task(cx, &task), .layers = 2, .d_model = 32, .heads = 4,
                                   .batch = 32);
    eg_progress p = { 0 };
    eg_score score = { 0 };
    eg_trainer_run(t, watch, NULL, &p);
    eg_trainer_evaluate(t, &score);
    printf("%d of %d unseen sequences exact after %d steps\n", (int)score.exact,
           (int)score.sequences, (int)p.step);

    const char *answer = eg_trainer_predict(t, "badge");
    printf("badge -> %s\n", answer ? answer : "?");
    const char *const *tokens;
    eg_tensor *w =
        eg_trainer_self_attention_weights(t, "badge", &tokens); /* l h i j, where l is the layer */
    eg_heatmap_print(stdout, eg_select("[l] h i j", w, 0), .rows = tokens, .columns = tokens,
                     .title = "attention weights of layer 0");

    if (eg_error(cx)) fprintf(stderr, "%s\n", eg_error(cx));
    bool good = !eg_error(cx) && score.exact >= 0.9 * (double)score.sequences;
    eg_close(cx);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
