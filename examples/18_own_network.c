/* 18: a custom network in the trainer. A struct eg_network has functions that make the network and
 * compute its logits; the trainer provides data, batches on all threads, evaluation on held-out
 * examples, checkpoints, resuming with the same bits, answers, attention weights and scores. This
 * network has grouped heads, ALiBi instead of positions, and a soft cap on its scores. */
#include <eingrad.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2 };
typedef struct options {
    int64_t kv_heads;
    double cap;
} options;
typedef struct net {
    eg_embedding *tokens;
    eg_norm *first[LAYERS], *second[LAYERS];
    eg_mha *attention[LAYERS];
    eg_ffn *ffn[LAYERS];
    eg_linear *logits;
} net;

static void *make(eg_params *p, const eg_trainer_args *o, const eg_network_sizes *n)
{
    const options *mine = o->user;
    net *m = eg_params_alloc(p, sizeof *m);
    char score[64];
    if (!m) return NULL;
    snprintf(score, sizeof score, "%g * tanh(score / %g)", mine->cap, mine->cap);
    m->tokens = eg_embedding_new(p, "tokens", .count = n->vocabulary, .d_model = o->d_model);
    for (int k = 0; k < LAYERS; k++) {
        eg_params *layer = eg_params_under(p, k ? "1" : "0");
        m->first[k] = eg_norm_new(layer, "first", .d_model = o->d_model, .rms = true);
        m->attention[k] = eg_mha_new(layer, "attention", .d_model = o->d_model, .heads = o->heads,
                                     .kv_heads = mine->kv_heads, .alibi = true, .score = score,
                                     .where = "j <= i", .dropout = o->dropout);
        m->second[k] = eg_norm_new(layer, "second", .d_model = o->d_model, .rms = true);
        m->ffn[k] = eg_ffn_new(layer, "ffn", .d_model = o->d_model, .gated = true,
                               .activation = eg_silu, .dropout = o->dropout);
    }
    m->logits = eg_linear_new(p, "logits", .in = o->d_model, .out = n->vocabulary);
    return m;
}

/* Tokens (b l) to logits (b l v). The batch also has the cache that is continued, the factors of
 * heads that are off, and the weights that are requested, or NULL for each. */
static eg_tensor *logits(const void *network, eg_ctx *cx, const eg_batch *b)
{
    const net *m = network;
    eg_tensor *x = eg_embedding_run(m->tokens, eg_batch_tokens(cx, b));
    for (int k = 0; k < LAYERS; k++) {
        eg_tensor *seen =
            eg_mha_run(m->attention[k], eg_norm_run(m->first[k], x), .cache = b->cache, .slot = k,
                       .gain = b->gain ? eg_select("[k] h", b->gain, k) : NULL,
                       .weights = b->weights ? &b->weights[k] : NULL);
        x = eg_add(x, seen);
        x = eg_add(x, eg_ffn_run(m->ffn[k], eg_norm_run(m->second[k], x)));
    }
    return eg_linear_run(m->logits, x);
}

/* The options on which results depend, in addition to those of the trainer: a checkpoint stores
 * this text, and is refused for a network with other options. */
static int config(const eg_trainer_args *o, char *out, size_t size)
{
    const options *mine = o->user;
    return snprintf(out, size, "kv_heads %lld, cap %g", (long long)mine->kv_heads, mine->cap);
}

static const eg_network row = { .name = "capped",
                                .cached = true,
                                .make = make,
                                .logits = logits,
                                .part = { "decoder" },
                                .config = config };

/* Two custom tasks: the largest of 8 digits, and how many of 8 letters are an a. */
static void make_largest(eg_rng *rng, eg_example *e)
{
    e->inputs = 8, e->outputs = 1;
    for (int k = 0; k < 8; k++) {
        e->input[k] = (int32_t)eg_rng_below(rng, 10);
        if (e->input[k] > e->output[0]) e->output[0] = e->input[k];
    }
}
static void make_count(eg_rng *rng, eg_example *e)
{
    e->inputs = 8, e->outputs = 1;
    for (int k = 0; k < 8; k++) {
        e->input[k] = 9 + (int32_t)eg_rng_below(rng, 2);
        e->output[0] += e->input[k] == 9;
    }
}
static const eg_task largest = {
    "largest",          "the largest of 8 digits", "0123456789",
    .longest_input = 8, .longest_output = 1,       .make = make_largest
};
static const eg_task count = { "count",
                               "how many of 8 letters are an a",
                               "012345678ab",
                               .longest_input = 8,
                               .longest_output = 1,
                               .make = make_count };

static bool show_progress(void *user, eg_trainer *t, const eg_progress *p)
{
    (void)t;
    if (p->step % 50 == 0)
        printf("  step %4lld  loss %.4f  unseen %5.1f %%\n", (long long)p->step, p->loss,
               100 * p->exact);
    return p->step == *(const int64_t *)user; /* true ends the run */
}

/* Trains on a task, with an interruption after 50 steps; returns the share of exact answers. */
static double learn(eg_ctx *cx, const eg_task *task, const char *question)
{
    static options mine = { .kv_heads = 2, .cap = 30 };
    const char *path = "capped.safetensors";
    int64_t interrupted = 50, never = -1;
    eg_data *data = eg_data_task(cx, task);
    eg_score score = { .sequences = 1 };
    printf("%s: %s\n", task->name, task->about);
    eg_trainer *t =
        eg_trainer_new(data, .network = &row, .user = &mine, .layers = LAYERS, .d_model = 32,
                       .batch = 32, .lr = 3e-3, .steps = 300, .evaluate = 50, .seed = 1);
    eg_trainer_run(t, show_progress, &interrupted, NULL);
    eg_trainer_save(t, path);
    t = eg_trainer_load(cx, path, .network = &row, .user = &mine, .data = data);
    eg_trainer_run(t, show_progress, &never, NULL);
    eg_trainer_evaluate(t, &score);
    const char *answer = eg_trainer_predict(t, question);
    printf("  %s -> %s; %lld of %lld unseen ones are exact\n", question, answer ? answer : "",
           (long long)score.exact, (long long)score.sequences);
    const eg_head *head = eg_heads(
        eg_select("[k] h i j", eg_trainer_self_attention_weights(t, question, NULL), LAYERS - 1),
        .spec = "[h] i j");
    for (int k = 0; head && k < 4; k++) printf("  head 1.%d is %s\n", k, head[k].label);
    remove(path);
    return (double)score.exact / (double)score.sequences;
}

int main(void)
{
    eg_ctx *cx = eg_open();
    const double a = learn(cx, eg_task_find("majority"), "aababab"),
                 b = learn(cx, &largest, "31415926"), c = learn(cx, &count, "abaabbab");
    const bool good = !eg_error(cx) && a > 0.9 && b > 0.9 && c > 0.9;
    if (eg_error(cx)) fprintf(stderr, "%s\n", eg_error(cx));
    eg_close(cx);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
