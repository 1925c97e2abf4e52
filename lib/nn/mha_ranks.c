/* mha_ranks.c: multi-head attention over a sequence that is divided among ranks. */
#include "nn.h"

/* True if the options and the module can be used with .ranks; else records an error. */
static bool parts_fit(const eg_mha *m, const eg_mha_run_args *a)
{
    static const char whole[] = "is not supported with a divided sequence";
    const struct {
        const char *option, *why;
        bool given;
    } none[] = {
        { ".cache", "is not divided among ranks; decode on one rank", a->cache },
        { ".memory", "belongs to a cache", a->memory },
        { ".fill", "changes scores in memory", a->fill != 0 },
        { ".score_fn", whole, a->score_fn || m->score_fn },
        { ".weights", whole, a->weights },
        { ".dropped", whole, a->dropped },
        { ".scores", whole, a->scores },
        { ".linear", "has no softmax whose parts could be merged", m->linear },
        { ".no_softmax", "has no softmax whose parts could be merged", m->no_softmax },
        { ".core", "may not know of ranks", m->core },
    };
    for (size_t k = 0; k < sizeof none / sizeof *none; k++)
        if (none[k].given)
            return eg_fail_as(eg_context(a->query), EG_ERROR_UNSUPPORTED, ".ranks: %s %s",
                              none[k].option, none[k].why),
                   false;
    if (eg_ranks_context(a->ranks) == eg_context(a->query)) return true;
    return eg_fail_as(eg_context(a->query), EG_ERROR_MISUSE, ".ranks belongs to another context"),
           false;
}
/* Sets the positions of query and key for rotary positions if the caller gives none, and *part if
 * an option needs it. False after an error, on every rank. */
static bool parts_placed(const eg_mha *m, eg_mha_run_args *a, eg__part *part)
{
    const int axis = m->specs->position_axis;
    const bool self = !a->key || a->key == a->query, turns = m->has_rotary && !a->positions.x,
               keys = m->has_rotary && !eg__mha_key_positions(a).x,
               drops = m->bias_k && m->dropout && eg_training(eg_context(a->query));
    eg__part of_key;
    if ((turns || drops || (keys && self)) &&
        !eg__part_find(part, a->ranks, eg_dim(a->query, axis), a->ranks_block, a->zigzag))
        return false;
    if (keys && !self &&
        !eg__part_find(&of_key, a->ranks, eg_dim(a->key, axis), a->ranks_block, a->zigzag))
        return false;
    if (turns) a->positions = (eg_masked){ "i", eg__part_positions(part, a->offset) };
    if (keys) a->key_positions = (eg_masked){ "j", eg__part_positions(self ? part : &of_key, 0) };
    return true;
}
/* The module is copied with each of its tensors shared by the ranks, so that their gradients are
 * the sums over all ranks; the run is then the usual one. */
eg_tensor *eg__mha_run_ranks(const eg_mha *m, const eg_mha_run_args *given)
{
    eg_mha_run_args all = *given, *a = &all;
    eg_mha own = *m;
    eg_norm norm[2];
    eg_ranks *r = a->ranks;
    eg__part part = { .ranks = r };
    const bool good = parts_fit(m, a) && eg__mha_run_allowed(m, a);
    /* ranks exchange errors before they wait for each other's keys */
    if (eg_ranks_barrier(r) || !good || !parts_placed(m, a, &part))
        return eg_fail_as(eg_context(a->query), EG_ERROR_MISUSE, "an option is refused");
    eg_tensor **const logical[2][4] = { { &own.W_q, &own.W_k, &own.W_v, &own.W_o },
                                        { &own.b_q, &own.b_k, &own.b_v, &own.b_o } };
    for (int k = 0; k < 8; k++) {
        eg_tensor *x = eg__mha_part(m, k % 4, k > 3);
        *logical[k > 3][k % 4] = x ? eg_ranks_shared(r, x) : NULL;
    }
    eg_tensor **const more[] = { &own.bias_k, &own.bias_v, &own.temperature,
                                 &own.rotary_frequencies, &a->gain };
    for (size_t k = 0; k < sizeof more / sizeof *more; k++)
        if (*more[k]) *more[k] = eg_ranks_shared(r, *more[k]);
    own.norm_q = eg__part_norm(r, m->norm_q, &norm[0]);
    own.norm_k = eg__part_norm(r, m->norm_k, &norm[1]);
    return eg__mha_run_part(&own, a, &part);
}
