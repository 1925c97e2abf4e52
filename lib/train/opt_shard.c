/* opt_shard.c: an optimiser whose moments are divided among ranks (ZeRO stage 1). A rank stores
 * the moments of its range of chunks and updates the parameters there; then all ranks gather the
 * parameters. */
#include "data.h"
#include "opt.h"
#include <stdio.h>
#include <string.h>

/* -- what ranks compare ------------------------------------------------------------------------ */
static uint64_t shard_hash(uint64_t h, eg_tensor *x)
{
    const void *bytes = eg_raw(x, NULL);
    const size_t width = eg_type(x) == EG_F32 ? sizeof(float) : sizeof(double);
    return bytes ? eg_hash(h, bytes, width * (size_t)eg_size(x)) : h;
}
/* Returns a hash of all parameters and moments. */
static uint64_t shard_values(const eg_opt *op)
{
    uint64_t h = EG_HASH_START;
    for (int k = 0; k < op->count; k++) h = shard_hash(h, op->x[k]);
    for (int k = 0; k < op->states; k++) h = shard_hash(h, op->state[k].x);
    return h;
}
void eg__opt_text(const eg_opt *op, bool values, char out[EG__OPT_TEXT])
{
    const eg_opt_args *o = &op->o;
    const eg_schedule *s = &o->schedule;
    const struct {
        const char *name;
        double value;
    } of[] = {
        { "weight_decay", o->weight_decay },
        { "clip_norm", o->clip_norm },
        { "norm_type", o->norm_type },
        { "clip_value", o->clip_value },
        { "eps", o->eps },
        { "momentum", o->momentum },
        { "dampening", o->dampening },
        { "nesterov", o->nesterov },
        { "beta1", o->beta1 },
        { "beta2", o->beta2 },
        { "amsgrad", o->amsgrad },
        { "alpha", o->alpha },
        { "centered", o->centered },
        { "lr_decay", o->lr_decay },
        { "initial_accumulator_value", o->initial_accumulator_value },
        { "schedule.decay", s->decay },
        { "schedule.warmup", (double)s->warmup },
        { "schedule.steps", (double)s->steps },
        { "schedule.last", s->last },
        { "schedule.decay_steps", (double)s->decay_steps },
        { "schedule.gamma", s->gamma },
        { "schedule.step_size", (double)s->step_size },
    };
    const eg_opt_report now = eg_opt_report_of(op);
    const uint64_t marks = eg_hash(EG_HASH_START, s->milestones, sizeof s->milestones),
                   groups = eg_hash(EG_HASH_START, op->of, (size_t)op->count * sizeof *op->of),
                   own = eg_hash(EG_HASH_START, op->own, (size_t)op->count * sizeof *op->own);
    int n = snprintf(out, EG__OPT_TEXT,
                     "%s, %lld steps done, lr %.9g, parameters %08x, groups %08x, milestones %08x",
                     op->kind->name, (long long)now.steps, now.lr, (unsigned)own, (unsigned)groups,
                     (unsigned)marks);
    if (values)
        n += snprintf(out + n, EG__OPT_TEXT - (size_t)n, ", values of parameters and moments %08x",
                      (unsigned)shard_values(op));
    if (op->kind->rule) {
        eg_owner *owner = eg_owner_open(op->cx);
        const char *text = owner ? eg__rule_config(op->cx, op->kind->rule, owner) : NULL;
        n += snprintf(out + n, EG__OPT_TEXT - (size_t)n, ", rule %08x",
                      text ? (unsigned)eg_hash(EG_HASH_START, text, strlen(text)) : 0);
        eg_owner_close(owner);
    }
    for (size_t k = 0; k < sizeof of / sizeof *of && n < EG__OPT_TEXT; k++)
        n += snprintf(out + n, EG__OPT_TEXT - (size_t)n, ", %s %.9g", of[k].name, of[k].value);
}

/* The bytes of a tensor, as a hash; 0 of NULL. */
static uint64_t shard_hash_of(eg_tensor *x)
{
    return x ? shard_hash(EG_HASH_START, eg_contiguous(x)) : 0;
}
/* True if no rank has other hashes than rank 0, of all parameters, then of their gradients: `all`
 * has those of each rank. Else records an error. */
static bool shard_same(const eg_opt *op, int ranks, const uint64_t *all)
{
    const bool together = op->loss && eg_ranks_of(op->loss);
    const int64_t n = 2 * (int64_t)op->count;
    for (int64_t k = 0; k < n; k++)
        for (int64_t of = 1; of < ranks; of++) {
            if (all[n * of + k] == all[k]) continue;
            eg_fail_as(op->cx, EG_ERROR_MISUSE,
                       k < op->count ? "%s: \"%s\" is not the same on ranks 0 and %lld; each rank "
                                       "starts from the same seed or file"
                       : together    ? "%s: the gradient of \"%s\" is not the same on ranks 0 and "
                                       "%lld; a layer beside modules with .ranks reads its "
                                       "parameters by eg_ranks_shared"
                                     : "%s: the gradient of \"%s\" is not the same on ranks 0 and "
                                       "%lld; each rank gives that of the whole loss",
                       op->kind->name, op->name[k % op->count], (long long)of);
            return false;
        }
    return true;
}
/* The hashes of each parameter and its gradient are compared in the first step of the group in
 * which it has a gradient on some rank: later steps with equal gradients keep equal values. A step
 * in which all parameters were compared before sends nothing. */
bool eg__opt_alike(eg_opt *op, eg_ranks *r, bool good)
{
    const int ranks = eg_ranks_count(r);
    const size_t n = 2 * (size_t)op->count;
    if (ranks == 1 || op->each) return good;
    if (!op->compared) op->compared = eg_params_alloc(op->o.params, n / 2 * sizeof *op->compared);
    for (size_t k = 0; op->compared && op->alike != r && k < n / 2; k++) op->compared[k] = false;
    bool open = op->alike != r, fresh = open, any = false;
    for (size_t k = 0; op->compared && k < n / 2; k++) {
        open |= !op->compared[k];
        fresh |= good && op->g[k] && !op->compared[k];
    }
    if (op->compared && !open) return good;
    uint64_t *mine = eg_scope_alloc(op->cx, n * (size_t)(ranks + 1) * sizeof *mine);
    bool *all = eg_scope_alloc(op->cx, (size_t)ranks * sizeof *all);
    if (eg_ranks_barrier(r) || eg_ranks_gather(r, &fresh, sizeof fresh, all)) return false;
    for (int k = 0; k < ranks; k++) any |= all[k];
    if (!any) return good;
    char text[64];
    for (size_t k = 0; k < n; k++)
        mine[k] =
            op->compared[k % (n / 2)] ? 0 : shard_hash_of(k < n / 2 ? op->x[k] : op->g[k - n / 2]);
    snprintf(text, sizeof text, "%s, %d parameter%s", op->kind->name, op->count,
             op->count == 1 ? "" : "s");
    if (eg_ranks_barrier(r) || eg_ranks_agree(r, "the optimisers", text) ||
        eg_ranks_gather(r, mine, n * sizeof *mine, mine + n) || !shard_same(op, ranks, mine + n))
        return false;
    for (size_t k = 0; k < n / 2; k++) op->compared[k] |= op->g[k] != NULL;
    op->alike = r;
    return true;
}

/* -- the part of this rank -------------------------------------------------------------------- */
eg_span eg__opt_chunks(const eg_opt *op)
{
    return op->ranks ? op->range[eg_ranks_rank(op->ranks)] : (eg_span){ 0, op->first[op->count] };
}
/* Returns the elements of parameter k that are in a range of chunks. */
static eg_span shard_own(const eg_opt *op, int k, eg_span chunks)
{
    const int64_t n = op->size[k], end = op->first[k + 1],
                  from = chunks.from > op->first[k] ? chunks.from : op->first[k],
                  to = chunks.to < end ? chunks.to : end;
    if (from >= to) return (eg_span){ 0, 0 };
    return (eg_span){ (from - op->first[k]) * EG__CHUNK,
                      to == end ? n : (to - op->first[k]) * EG__CHUNK };
}
eg_span eg__opt_own(const eg_opt *op, int k)
{
    return op->ranks ? shard_own(op, k, eg__opt_chunks(op)) : (eg_span){ 0, op->size[k] };
}
bool eg__opt_agree(const eg_opt *op, bool good)
{
    return op->ranks ? !eg_ranks_barrier(op->ranks) && good : good;
}
bool eg__opt_statistic(eg_opt *op, double *value)
{
    return !op->ranks || !eg_ranks_tree_statistics(op->tree, value);
}

/* -- gathering values and moments -------------------------------------------------------------- */
static size_t shard_width(const eg_opt *op)
{
    return eg_type(op->x[0]) == EG_F64 ? sizeof(double) : sizeof(float);
}
static char *shard_data(eg_tensor *x) { return eg__opt_numbers(x); }
/* Copies this rank's elements of each parameter to their offsets in memory, gathers there, and
 * copies everything to `whole`. They are read from `part`, which has only these elements, or is
 * `whole`. False after an error. */
static bool shard_gather(eg_opt *op, eg_tensor *const *part, eg_tensor *const *whole, char *memory)
{
    const size_t width = shard_width(op);
    char *at = memory;
    for (int k = 0; k < op->count; k++) {
        const eg_span own = eg__opt_own(op, k);
        const size_t from = (size_t)own.from * width, bytes = (size_t)(own.to - own.from) * width;
        if (bytes) memcpy(at + from, shard_data(part[k]) + (part == whole ? from : 0), bytes);
        at += (size_t)eg_size(op->x[k]) * width;
    }
    if (eg_ranks_tree_gather(op->tree, memory)) return false;
    at = memory;
    for (int k = 0; k < op->count; k++) {
        const size_t bytes = (size_t)eg_size(op->x[k]) * width;
        if (bytes) memcpy(shard_data(whole[k]), at, bytes);
        at += bytes;
    }
    return true;
}
bool eg__opt_gather(eg_opt *op, void *memory)
{
    return !op->ranks || shard_gather(op, op->x, op->x, memory);
}

/* Sends this rank's elements of a moment of parameter k to rank 0, which writes them to `whole`.
 * False after an error. */
static bool shard_send(eg_opt *op, int k, eg_tensor *part, eg_tensor *whole)
{
    const size_t width = shard_width(op);
    const eg_span own = eg__opt_own(op, k);
    const size_t bytes = (size_t)(own.to - own.from) * width;
    const int ranks = eg_ranks_count(op->ranks), me = eg_ranks_rank(op->ranks);
    if (me) return !eg_ranks_exchange(op->ranks, 0, shard_data(part), bytes, -1, NULL, 0);
    char *to = shard_data(whole);
    if (bytes) memcpy(to + (size_t)own.from * width, shard_data(part), bytes);
    for (int r = 1; r < ranks; r++) {
        const eg_span of = shard_own(op, k, op->range[r]);
        if (eg_ranks_exchange(op->ranks, -1, NULL, 0, r, to + (size_t)of.from * width,
                              (size_t)(of.to - of.from) * width))
            return false;
    }
    return true;
}
eg_tensor *eg_opt_gather_state(eg_opt *op, int k)
{
    if (!op || k < 0 || k >= op->states) return NULL;
    eg_tensor *x = op->state[k].x, *whole = x;
    if (!op->ranks) return x;
    for (int m = 0; m < EG__MOMENTS; m++)
        for (int i = 0; i < op->count; i++) {
            if (!op->moment[m][i] || op->moment[m][i] != x) continue;
            if (!eg_ranks_rank(op->ranks)) whole = eg_zeros_like(op->x[i]);
            return !eg_ranks_barrier(op->ranks) && shard_send(op, i, x, whole) ? whole : NULL;
        }
    return x; /* counts are the same on every rank */
}

/* -- dividing --------------------------------------------------------------------------------- */
eg_ranks_tree *eg__opt_tree(eg_opt *op, eg_ranks *r, char **memory)
{
    int64_t *counts = eg_scope_alloc(op->cx, (size_t)op->count * sizeof *counts), all = 0;
    for (int k = 0; counts && k < op->count; k++) all += counts[k] = eg_size(op->x[k]);
    *memory = counts ? eg_scope_alloc(op->cx, (size_t)all * shard_width(op) + 1) : NULL;
    return *memory ? eg_ranks_tree_open(.ranks = r, .dtype = eg_type(op->x[0]), .parts = op->count,
                                        .counts = counts, .chunk = EG__CHUNK)
                   : NULL;
}
/* Makes a new tensor for each moment of the optimiser, all in one new owner: of the size of a range
 * of chunks, or of the complete moment if `range` is NULL. Returns the owner; NULL after an
 * error. */
static eg_owner *shard_make(eg_opt *op, const eg_span *range, eg_tensor **to[EG__MOMENTS])
{
    eg_owner *owner = eg_owner_sibling(op->moment_owner);
    for (int m = 0; m < EG__MOMENTS && owner; m++) {
        to[m] = eg_owner_alloc(owner, (size_t)op->count * sizeof *to[m]);
        for (int k = 0; to[m] && k < op->count; k++) {
            const eg_tensor *x = op->x[k];
            if (!op->moment[m][k]) continue;
            const eg_span own = range ? shard_own(op, k, *range) : (eg_span){ 0, 0 };
            to[m][k] = range
                           ? eg_owner_tensor(owner, eg_type(x), 1, &(int64_t){ own.to - own.from })
                           : eg_owner_tensor(owner, eg_type(x), eg_rank(x), eg_dims(x));
        }
    }
    if (owner && !eg_error(op->cx)) return owner;
    eg_owner_close(owner);
    return NULL;
}
/* Replaces the moments by those of another owner, and closes the owner of the old ones. */
static void shard_replace(eg_opt *op, eg_owner *owner, eg_tensor **const with[EG__MOMENTS])
{
    for (int m = 0; m < EG__MOMENTS; m++)
        for (int k = 0; k < op->count; k++) {
            if (!op->moment[m][k]) continue;
            for (int s = 0; s < op->states; s++)
                if (op->state[s].x == op->moment[m][k]) op->state[s].x = with[m][k];
            op->moment[m][k] = with[m][k];
        }
    eg_owner_close(op->moment_owner);
    op->moment_owner = owner;
}
/* Gathers all moments on every rank again. False after an error. */
static bool shard_undo(eg_opt *op)
{
    char *memory = NULL;
    eg_tensor **whole[EG__MOMENTS] = { NULL };
    eg_owner *owner = shard_make(op, NULL, whole);
    const eg_mark m = eg_push(op->cx);
    op->tree = eg__opt_tree(op, op->ranks, &memory);
    bool good = !eg_ranks_barrier(op->ranks);
    for (int k = 0; k < EG__MOMENTS && good; k++)
        if (op->moment[k][0]) good = shard_gather(op, op->moment[k], whole[k], memory);
    eg_ranks_tree_close(op->tree);
    eg_pop(op->cx, m);
    op->tree = NULL;
    if (good)
        shard_replace(op, owner, whole);
    else
        eg_owner_close(owner);
    if (good) op->ranks = NULL, op->range = NULL;
    return good;
}

/* True if options, parameters and moments are the same on all ranks; else records an error. */
static bool shard_agree(eg_opt *op, eg_ranks *r)
{
    char text[64], options[EG__OPT_TEXT];
    eg__opt_text(op, false, options);
    for (char *one = options, *next; one; one = next) {
        if ((next = strstr(one, ", "))) *next = 0, next += 2;
        if (eg_ranks_agree(r, "the options", one)) return false;
    }
    const uint64_t h = shard_values(op);
    snprintf(text, sizeof text, "%d parameter%s, %016llx", op->count, op->count == 1 ? "" : "s",
             (unsigned long long)h);
    return !eg_ranks_agree(r, "the parameters and moments", text);
}

/* Everything that can fail is allocated before the ranks agree; afterwards each rank copies its
 * range of the moments and frees the rest. */
int eg_opt_shard(eg_opt *op, eg_ranks *r)
{
    if (!eg__opt_there("opt_shard", op)) return -1;
    if (op->each && r && !eg_error(op->cx)) {
        eg_fail_as(op->cx, EG_ERROR_UNSUPPORTED, "optimiser: ranks do not divide copies");
        return -1;
    }
    if (op->ranks && !shard_undo(op)) return -1;
    op->together = NULL;
    if (!r || eg_ranks_count(r) == 1) return eg_error(op->cx) ? -1 : 0;
    if (eg_ranks_context(r) != op->cx) {
        eg_fail_as(op->cx, EG_ERROR_MISUSE, "optimiser: the ranks belong to another context");
        return -1;
    }
    if (eg_ranks_barrier(r) || !shard_agree(op, r)) return -1;
    if (op->kind->rule && !op->kind->rule->elementwise) return op->together = r, 0;
    char *memory = NULL;
    const int ranks = eg_ranks_count(r);
    eg_tensor **part[EG__MOMENTS] = { NULL };
    eg_owner *owner = NULL;
    const eg_mark scope = eg_push(op->cx);
    eg_ranks_tree *tree = eg__opt_tree(op, r, &memory);
    const eg_span own = eg_ranks_tree_range(tree);
    if (tree) owner = shard_make(op, &own, part);
    eg_span *range = owner ? eg_owner_alloc(owner, (size_t)ranks * sizeof *range) : NULL;
    for (int k = 0; range && k < ranks; k++) range[k] = eg_ranks_tree_range_of(tree, k);
    eg_ranks_tree_close(tree);
    eg_pop(op->cx, scope);
    if (eg_ranks_barrier(r)) {
        eg_owner_close(owner);
        return -1;
    }
    const size_t width = shard_width(op);
    for (int m = 0; m < EG__MOMENTS; m++)
        for (int k = 0; k < op->count && op->moment[m][0]; k++) {
            const eg_span of = shard_own(op, k, own);
            if (of.from < of.to)
                memcpy(shard_data(part[m][k]),
                       shard_data(op->moment[m][k]) + (size_t)of.from * width,
                       (size_t)(of.to - of.from) * width);
        }
    shard_replace(op, owner, part);
    op->ranks = r, op->range = range;
    return 0;
}
