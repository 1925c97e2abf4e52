/* network.c: the models that a trainer trains, a row each.
 *
 * encoder  tokens = input;  the logits at a place are for the output there; padding is masked by
 *          .keep
 * decoder  tokens = input SEP output;  the logits at a place are for the next token; targets, from
 *          the end of `input SEP` on, are output STOP. Causal, so that padding at the end is never
 *          attended to. Of a text, tokens are a window and targets what follows each.
 * seq2seq  source = input;  tokens = SEP output;  targets output STOP. The decoder attends to the
 *          encoder's memory of the source. */
#include "trainer.h"
#include <stdio.h>
#include <string.h>

static eg_tensor *indices(eg_ctx *cx, int64_t rows, int64_t length, const int32_t *tokens)
{
    return eg_from_n(cx, EG_I32, tokens, 2, (int64_t[]){ rows, length });
}

static eg_masked network_kept(eg_ctx *cx, bool padded, int64_t rows, int64_t length,
                              const bool *keep)
{
    return padded
               ? (eg_masked){ "bj", eg_from_n(cx, EG_BOOL, keep, 2, (int64_t[]){ rows, length }) }
               : (eg_masked){ 0 };
}

/* -- encoder ---------------------------------------------------------------------------------- */
static bool make_one(eg__network *n, eg_params *p, const eg_trainer *t, double dropout)
{
    return (n->one = eg_transformer_new(p, "", .vocabulary = t->vocabulary, .length = t->longest,
                                        .d_model = t->o.d_model, .heads = t->o.heads,
                                        .layers = t->o.layers, .width = t->o.width,
                                        .dropout = dropout)) != NULL;
}

static eg_tensor *encode(const eg__network *n, eg_ctx *cx, const eg__batch *b, eg_tensor **weights)
{
    return eg_transformer_run(n->one, indices(cx, b->rows, b->length, b->tokens),
                              .keep = network_kept(cx, b->padded, b->rows, b->length, b->keep),
                              .weights = weights, .gain = n->gain);
}

/* -- decoder ---------------------------------------------------------------------------------- */
static eg_tensor *network_decode(const eg__network *n, eg_ctx *cx, const eg__batch *b,
                                 eg_tensor **weights)
{
    return eg_transformer_run(n->one, indices(cx, b->rows, b->length, b->tokens), .where = "j <= i",
                              .weights = weights, .gain = n->gain);
}

static eg_tensor *more_of_one(const eg__network *n, eg_ctx *cx, const eg__batch *b,
                              eg_tensor *memory, eg_cache *cache)
{
    (void)memory;
    return eg_transformer_run(n->one, indices(cx, b->rows, b->length, b->tokens), .where = "j <= i",
                              .cache = cache, .gain = n->gain);
}

/* -- encoder and decoder ---------------------------------------------------------------------- */
static bool make_two(eg__network *n, eg_params *p, const eg_trainer *t, double dropout)
{
    return (n->two =
                eg_seq2seq_new(p, "", .vocabulary = t->vocabulary,
                               .source_length = t->source_longest, .length = t->longest,
                               .d_model = t->o.d_model, .heads = t->o.heads, .layers = t->o.layers,
                               .width = t->o.width, .dropout = dropout, .shared = true)) != NULL;
}

static eg_tensor *memory_of(const eg__network *n, eg_ctx *cx, const eg__batch *b)
{
    return eg_seq2seq_encode(
        n->two, indices(cx, b->rows, b->sources, b->source), .gain = n->gain,
        .source_keep = network_kept(cx, b->source_padded, b->rows, b->sources, b->source_keep));
}

static eg_tensor *translate(const eg__network *n, eg_ctx *cx, const eg__batch *b,
                            eg_tensor **weights)
{
    int64_t layers = n->two->layers;
    return eg_seq2seq_run(
        n->two, indices(cx, b->rows, b->sources, b->source),
        indices(cx, b->rows, b->length, b->tokens),
        .source_keep = network_kept(cx, b->source_padded, b->rows, b->sources, b->source_keep),
        .gain = n->gain, .source_weights = weights, .weights = weights ? weights + layers : NULL,
        .memory_weights = weights ? weights + 2 * layers : NULL);
}

static eg_tensor *more_of_two(const eg__network *n, eg_ctx *cx, const eg__batch *b,
                              eg_tensor *memory, eg_cache *cache)
{
    return eg_seq2seq_decode(n->two, indices(cx, b->rows, b->length, b->tokens), memory,
                             .cache = cache, .gain = n->gain);
}

/* -- the rows: parts stand in the order of the weights, gains in that of the module ------------ */
static const eg__kind kinds[] = {
    { "encoder", false, false, make_one, encode, NULL, NULL, { { "encoder", 'e', 1, 0 } } },
    { "decoder",
      true,
      false,
      make_one,
      network_decode,
      NULL,
      more_of_one,
      { { "decoder", 'd', 1, 0 } } },
    { "seq2seq",
      true,
      true,
      make_two,
      translate,
      memory_of,
      more_of_two,
      { { "encoder", 'e', 1, 0 }, { "decoder", 'd', 2, 0 }, { "cross", 'c', 2, 1 } } },
};

const eg__kind *eg__kind_find(const char *name)
{
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (!strcmp(kinds[k].name, name)) return &kinds[k];
    return NULL;
}

bool eg__network_make(eg__network *n, const eg__kind *kind, eg_params *p, const eg_trainer *t,
                      double dropout)
{
    *n = (eg__network){ .kind = kind };
    return kind->make(n, p, t, dropout) && !eg_error(t->cx);
}

int eg__kind_parts(const eg__kind *kind)
{
    int n = 0;
    while (n < PARTS && kind->part[n].name) n++;
    return n;
}

/* -- heads ------------------------------------------------------------------------------------ */
int eg_trainer_attentions(const eg_trainer *t)
{
    return t ? eg__kind_parts(t->kind) * (int)t->o.layers : 0;
}

const char *eg_trainer_attention(const eg_trainer *t, int k)
{
    return k >= 0 && k < eg_trainer_attentions(t) ? t->attention[k] : NULL;
}

/* "0", "1" … of a model of one part; else with the part's letter in front. */
bool eg__attention_names(eg_trainer *t)
{
    int count = eg_trainer_attentions(t), layers = (int)t->o.layers;
    bool plain = eg__kind_parts(t->kind) == 1;
    t->attention = eg_owner_alloc(t->owner, (size_t)count * sizeof *t->attention);
    for (int k = 0; t->attention && k < count; k++)
        snprintf(t->attention[k], sizeof *t->attention, plain ? "%.0s%d" : "%.1s%d",
                 (char[]){ t->kind->part[k / layers].letter, 0 }, k % layers);
    return t->attention != NULL;
}

/* The heads' factors: 1, and 0 for those that are off. */
int eg_trainer_heads_off(eg_trainer *t, int count, const eg_head_at *heads)
{
    if (!t || eg_error(t->cx)) return -1;
    int attentions = eg_trainer_attentions(t), layers = (int)t->o.layers;
    for (int k = 0; k < count; k++)
        if (!heads || heads[k].attention < 0 || heads[k].attention >= attentions ||
            heads[k].head < 0 || heads[k].head >= t->o.heads) {
            eg_fail_as(
                t->cx, EG_ERROR_INDEX,
                "heads off: there is no head %d of attention %d; the model has %d of %lld heads",
                heads ? heads[k].head : 0, heads ? heads[k].attention : 0, attentions,
                (long long)t->o.heads);
            return -1;
        }
    t->net.gain = NULL;
    if (count < 1) return 0;
    if (!t->gain)
        t->gain = eg_owner_tensor(t->owner, eg_params_type(t->params), 2,
                                  (int64_t[]){ attentions, t->o.heads });
    if (!eg_ok(t->gain) || eg_fill(t->gain, 1)) return -1;
    for (int k = 0; k < count; k++) {
        const eg__part *part = &t->kind->part[heads[k].attention / layers];
        int row = (part->letter == 'e' || !t->kind->has_source ? 0 : layers) +
                  heads[k].attention % layers * part->stride + part->first;
        eg_fill(eg_select_axis(eg_select_axis(t->gain, 0, row), 0, heads[k].head), 0);
    }
    t->net.gain = t->gain;
    return eg_error(t->cx) ? -1 : 0;
}
