/* network.c: the networks that a trainer can train: structs of type eg_network, three of them built
 * in, and the functions by which a trainer calls any of them. The trainer's options describe the
 * built-in networks. A decoder is causal, so that padding at the end is never attended to. */
#include "trainer.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* True if the largest matrices of the layers, W_q, W_o (d_model²) and those of the feed-forward
 * part (d_model width), fit into the memory of this machine; else records an error, before hours
 * are spent on drawing them. */
static bool network_fits(eg_params *p, const eg_trainer_args *o)
{
    const double d = (double)o->d_model, least = (double)o->layers * 2 * d * (d + (double)o->width),
                 bytes = least * (eg_params_type(p) == EG_F64 ? 8 : 4),
                 memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (bytes <= memory || memory <= 0) return true;
    eg_fail_as(
        eg_params_context(p), EG_ERROR_MEMORY,
        "trainer: %lld layers of d_model %lld and width %lld have more than %.3g parameters, "
        "%.3g GB, but this machine has %.3g GB of memory",
        (long long)o->layers, (long long)o->d_model, (long long)o->width, least, bytes / 1e9,
        memory / 1e9);
    return false;
}

/* -- encoder only or decoder only: an eg_transformer ------------------------------------------- */
/* Makes the transformer of the trainer's options, with the sizes of the data. */
static void *network_transformer(eg_params *p, const eg_trainer_args *o, const eg_network_sizes *n)
{
    eg_transformer_args a = { .size = sizeof a,
                              .params = p,
                              .name = "",
                              .vocabulary = n->vocabulary,
                              .length = n->length,
                              .d_model = o->d_model,
                              .heads = o->heads,
                              .layers = o->layers,
                              .width = o->width,
                              .dropout = o->dropout };
    if (!network_fits(p, o)) return NULL;
    eg__recipe_block(eg_params_context(p), o, &a);
    return eg_transformer_new_with(&a);
}

static eg_tensor *network_encode(const void *net, eg_ctx *cx, const eg_batch *b)
{
    return eg_transformer_run(net, eg_batch_tokens(cx, b), .lengths = eg_batch_lengths(cx, b),
                              .packed_length = eg_batch_packed_length(b), .weights = b->weights,
                              .gain = b->gain);
}

static eg_tensor *network_decode(const void *net, eg_ctx *cx, const eg_batch *b)
{
    return eg_transformer_run(net, eg_batch_tokens(cx, b), .where = "j <= i", .cache = b->cache,
                              .lengths = eg_batch_lengths(cx, b),
                              .packed_length = eg_batch_packed_length(b), .weights = b->weights,
                              .gain = b->gain);
}

/* -- encoder and decoder: an eg_seq2seq -------------------------------------------------------- */
static void *network_seq2seq(eg_params *p, const eg_trainer_args *o, const eg_network_sizes *n)
{
    eg_transformer_args a = { .size = sizeof a };
    if (!network_fits(p, o)) return NULL;
    eg__recipe_block(eg_params_context(p), o, &a);
    return eg_seq2seq_new(p, "", .vocabulary = n->vocabulary, .source_length = n->source_length,
                          .length = n->length, .d_model = o->d_model, .heads = o->heads,
                          .layers = o->layers, .width = o->width, .dropout = o->dropout,
                          .shared = true, .no_positions = a.no_positions, .post_norm = a.post_norm,
                          .rms = a.rms, .activation = a.activation, .gated = a.gated, .mha = a.mha);
}

/* The gain of an eg_seq2seq alternates self and cross attention of each decoder layer; that of a
 * batch has one part after another. */
static eg_tensor *network_gain(const eg_seq2seq *net, const eg_batch *b)
{
    if (!b->gain) return NULL;
    const int64_t layers = net->layers;
    eg_tensor *rest = eg_slice_axis(b->gain, 0, layers, EG_END, 1);
    return eg_concat("[l] h", eg_slice_axis(b->gain, 0, 0, layers, 1),
                     eg_rearrange("(c=2 l) h -> (l c) h", rest));
}

static eg_tensor *network_memory(const void *net, eg_ctx *cx, const eg_batch *b)
{
    return eg_seq2seq_encode(net, eg_batch_source(cx, b), .gain = network_gain(net, b),
                             .source_keep = eg_batch_source_keep(cx, b));
}

static eg_tensor *network_translate(const void *net, eg_ctx *cx, const eg_batch *b)
{
    const eg_seq2seq *n = net;
    if (b->memory)
        return eg_seq2seq_decode(n, eg_batch_tokens(cx, b), b->memory, .cache = b->cache,
                                 .gain = network_gain(n, b));
    return eg_seq2seq_run(n, eg_batch_source(cx, b), eg_batch_tokens(cx, b),
                          .source_lengths = eg_batch_source_lengths(cx, b),
                          .packed_source_length = eg_batch_packed_source_length(b),
                          .lengths = eg_batch_lengths(cx, b),
                          .packed_length = eg_batch_packed_length(b), .gain = network_gain(n, b),
                          .source_weights = b->weights,
                          .weights = b->weights ? b->weights + n->layers : NULL,
                          .memory_weights = b->weights ? b->weights + 2 * n->layers : NULL);
}

/* -- the built-in networks --------------------------------------------------------------------- */
static const eg_network networks[] = {
    { .name = "encoder",
      .encoder = true,
      .captures = true,
      .make = network_transformer,
      .logits = network_encode,
      .part = { "encoder" },
      .config = eg__recipe_print },
    { .name = "decoder",
      .cached = true,
      .captures = true,
      .make = network_transformer,
      .logits = network_decode,
      .part = { "decoder" },
      .config = eg__recipe_print },
    { .name = "seq2seq",
      .source = true,
      .cached = true,
      .captures = true,
      .make = network_seq2seq,
      .logits = network_translate,
      .memory = network_memory,
      .part = { "encoder", "decoder", "cross" },
      .config = eg__recipe_print },
};

const eg_network *eg__network_find(const char *name)
{
    for (size_t k = 0; k < sizeof networks / sizeof *networks; k++)
        if (!strcmp(networks[k].name, name)) return &networks[k];
    return NULL;
}

int eg__network_parts(const eg_network *n)
{
    int count = 0;
    while (count < EG_NETWORK_PARTS && n->part[count]) count++;
    return count;
}

/* A name that a built-in network has is allowed only for that network, since checkpoints name
 * it. */
bool eg__network_sound(eg_ctx *cx, const eg_network *n)
{
    const eg_network *same = n->name ? eg__network_find(n->name) : NULL;
    const int parts = eg__network_parts(n);
    if (!n->name || !*n->name || !n->make || !n->logits)
        eg_fail_as(cx, EG_ERROR_MISUSE, "trainer: a network needs %s",
                   !n->name || !*n->name ? "a name"
                   : n->make             ? "logits"
                                         : "make");
    else if (same && (same->make != n->make || same->logits != n->logits))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "trainer: \"%s\" is a model of eingrad; a custom network needs another "
                   "name",
                   n->name);
    else if (n->source && n->encoder)
        eg_fail_as(
            cx, EG_ERROR_MISUSE,
            "trainer: network \"%s\" is an encoder, which has no source in addition to its tokens",
            n->name);
    else if (n->memory && !n->source)
        eg_fail_as(cx, EG_ERROR_MISUSE, "trainer: network \"%s\" has a memory, but no source",
                   n->name);
    for (int k = 0; k < parts && n->source; k++)
        if (strcmp(n->part[k], "encoder") && strcmp(n->part[k], "decoder") &&
            strcmp(n->part[k], "cross"))
            eg_fail_as(cx, EG_ERROR_MISUSE,
                       "trainer: network \"%s\": a part beside a source is encoder, decoder or "
                       "cross, not \"%s\"",
                       n->name, n->part[k]);
    return !eg_error(cx);
}

/* -- the functions by which a trainer calls a network ------------------------------------------ */
void *eg__network_make(const eg_trainer *t, eg_params *p)
{
    const eg_network_sizes sizes = eg_batches_sizes(t->batches);
    const eg_switches was = eg_switches_of(t->cx);
    void *net = eg_error(t->cx) ? NULL : t->network->make(p, &t->o, &sizes);
    eg_switches_restore(t->cx, was);
    if (!eg_error(t->cx) && (!net || !eg_params_count(p)))
        eg_fail_as(t->cx, EG_ERROR_MISUSE, "trainer: network \"%s\"%s", t->network->name,
                   net ? " has no parameters" : ": its make() returned NULL");
    return eg_error(t->cx) ? NULL : net;
}

/* A call of logits() in this thread, and the one around it: a network may call another trainer,
 * such as a teacher's, but not its own. */
typedef struct network_call {
    const eg_params *params; /* the trainer's, which no other trainer has */
    const struct network_call *outer;
} network_call;
static _Thread_local const network_call *network_calls;
eg_tensor *eg__network_logits(const eg_trainer *t, eg_ctx *cx, const eg_batch *given,
                              eg_tensor **weights)
{
    for (const network_call *c = network_calls; c; c = c->outer)
        if (c->params == t->params)
            return eg_fail_as(cx, EG_ERROR_MISUSE,
                              "trainer: the logits of network \"%s\" are computed by a call of its "
                              "own trainer, without end",
                              t->network->name);
    const network_call call = { t->params, network_calls };
    network_calls = &call;
    eg_batch b = *given;
    b.gain = t->gain_now, b.weights = weights;
    eg_tensor *y = t->network->logits(t->net, cx, &b);
    network_calls = call.outer;
    return y;
}

eg_tensor *eg__network_loss(const eg_trainer *t, eg_ctx *cx, const eg_batch *b, eg_tensor *logits,
                            double smoothing)
{
    eg_tensor *loss = eg_batch_loss(cx, b, logits, smoothing),
              *extra = b->auxiliary_loss ? *b->auxiliary_loss : NULL;
    if (!extra) return loss;
    if (eg_ok(extra) && eg_rank(extra))
        return eg_fail_as(cx, EG_ERROR_SHAPE,
                          "trainer: network \"%s\": the auxiliary loss has %d %s, but must be a "
                          "scalar, the sum over the examples",
                          t->network->name, eg_rank(extra), eg_rank(extra) == 1 ? "axis" : "axes");
    return eg_add(loss, extra);
}

const char *eg__network_config(const eg_trainer *t, eg_owner *owner)
{
    char none[1] = "";
    const int n = t->network->config ? t->network->config(&t->o, none, sizeof none) : 0;
    char *text = n < 0 ? NULL : eg_owner_alloc(owner, (size_t)n + 1);
    if (n < 0)
        eg_fail_as(t->cx, EG_ERROR_MISUSE, "trainer: network \"%s\" gave no configuration",
                   t->network->name);
    if (text && n) t->network->config(&t->o, text, (size_t)n + 1);
    return text;
}

/* -- heads ------------------------------------------------------------------------------------ */
int eg_trainer_attentions(const eg_trainer *t)
{
    return t ? eg__network_parts(t->network) * (int)t->o.layers : 0;
}

const char *eg_trainer_attention(const eg_trainer *t, int k)
{
    return k >= 0 && k < eg_trainer_attentions(t) ? t->attention[k] : NULL;
}

/* Names the attentions "0", "1" … in a model of one part; else with the part's letter before the
 * number. False without memory. */
bool eg__attention_names(eg_trainer *t)
{
    int count = eg_trainer_attentions(t), layers = (int)t->o.layers;
    bool plain = eg__network_parts(t->network) == 1;
    t->attention = eg_owner_alloc(t->owner, (size_t)count * sizeof *t->attention);
    for (int k = 0; t->attention && k < count; k++)
        snprintf(t->attention[k], sizeof *t->attention, plain ? "%.0s%d" : "%.1s%d",
                 t->network->part[k / layers], k % layers);
    return t->attention != NULL;
}

/* The factors of the heads: 1, or 0 for those that are switched off. */
int eg_trainer_heads_off(eg_trainer *t, int count, const eg_head_at *heads)
{
    if (!eg__trainer_ready("trainer_heads_off", t)) return -1;
    int attentions = eg_trainer_attentions(t);
    if (count < 0 || (count && !heads)) {
        eg_fail_as(t->cx, EG_ERROR_MISUSE, "heads off: the list has %d heads%s", count,
                   count > 0 ? ", but it is NULL" : "");
        return -1;
    }
    for (int k = 0; k < count; k++)
        if (heads[k].attention < 0 || heads[k].attention >= attentions || heads[k].head < 0 ||
            heads[k].head >= t->o.heads) {
            eg_fail_as(
                t->cx, EG_ERROR_INDEX,
                "heads off: there is no head %d of attention %d; the model has %d of %lld head%s",
                heads[k].head, heads[k].attention, attentions, (long long)t->o.heads,
                t->o.heads == 1 ? "" : "s");
            return -1;
        }
    t->gain_now = NULL;
    if (count < 1) return 0;
    if (!t->gain) {
        eg_tensor *gain = eg_owner_tensor(t->owner, eg_params_type(t->params), 2,
                                          (int64_t[]){ attentions, t->o.heads });
        if (!eg_ok(gain)) return -1;
        t->gain = gain;
    }
    if (!t->reads_gain) {
        t->gain_now = t->gain;
        t->reads_gain = !eg_fill(t->gain, 0) && eg__network_probe_gain(t);
        t->gain_now = NULL;
        if (!t->reads_gain) return -1;
    }
    if (eg_fill(t->gain, 1)) return -1;
    for (int k = 0; k < count; k++)
        eg_fill(eg_select_axis(eg_select_axis(t->gain, 0, heads[k].attention), 0, heads[k].head),
                0);
    if (eg_error(t->cx)) return -1;
    t->gain_now = t->gain;
    return 0;
}
