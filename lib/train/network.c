/* network.c: what a trainer trains, a row each.
 *
 * encoder   tokens = input;  logits at each place are for the output there; padding is masked by .keep
 * decoder   tokens = input SEP output;  logits at a place are for the next token; targets from the end of `input SEP` on: output STOP.
 *           Causal, so that padding at the end is never seen. Of a corpus, tokens are a window and targets what follows each. */
#include "trainer.h"
#include <string.h>

static eg_transformer *transformer(eg_params *p, const eg_trainer *t, double dropout)
{
    return eg_transformer_new(p, "", .vocabulary = t->vocabulary, .length = t->longest, .d_model = t->o.d_model, .heads = t->o.heads,
                              .layers = t->o.layers, .width = t->o.width, .dropout = dropout);
}

static bool make_one(eg__network *n, eg_params *p, const eg_trainer *t, double dropout) { return (n->one = transformer(p, t, dropout)) != NULL; }

static eg_tensor *run_one(const eg__network *n, eg_ctx *cx, const eg__batch *b, const char *where, eg_tensor **weights)
{
    const int64_t dims[] = { b->rows, b->length };
    eg_masked keep = { b->padded ? "bj" : NULL, b->padded ? eg_from_n(cx, EG_BOOL, b->keep, 2, dims) : NULL };
    return eg_transformer_run(n->one, eg_from_n(cx, EG_I32, b->tokens, 2, dims), .where = where, .keep = keep, .weights = weights);
}

/* -- encoder ----------------------------------------------------------------------------------------------------------------------- */
static eg_tensor *encode(const eg__network *n, eg_ctx *cx, const eg__batch *b, eg_tensor **weights) { return run_one(n, cx, b, NULL, weights); }
static const eg__kind encoder = { "encoder", false, make_one, encode };

/* -- decoder ----------------------------------------------------------------------------------------------------------------------- */
static eg_tensor *decode(const eg__network *n, eg_ctx *cx, const eg__batch *b, eg_tensor **weights) { return run_one(n, cx, b, "j <= i", weights); }
static const eg__kind decoder = { "decoder", true, make_one, decode };

static const eg__kind *const kinds[] = { &encoder, &decoder };

const eg__kind *eg__kind_find(const char *name)
{
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (!strcmp(kinds[k]->name, name))
            return kinds[k];
    return NULL;
}

bool eg__network_make(eg__network *n, const eg__kind *kind, eg_params *p, const eg_trainer *t, double dropout)
{
    *n = (eg__network){ .kind = kind };
    return kind->make(n, p, t, dropout) && !eg_error(t->cx);
}
