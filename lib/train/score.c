/* score.c: the tensors of a batch (eg_batch_source, eg_batch_lengths …), its loss, and how many of
 * its targets the logits predict. */
#include "batch.h"
#include <eingrad/grad.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 8 }; /* number of sequences that a thread computes at a time in eg_batches_score */

/* -- tensors ---------------------------------------------------------------------------------- */
/* The arrays of a batch. */
typedef enum batch_array {
    TOKENS,
    TARGETS,
    KEEP,
    LENGTHS,
    SOURCE,
    SOURCE_KEEP,
    SOURCE_LENGTHS
} batch_array;
static const struct {
    const char *name;
    eg_dtype dtype;
    size_t width, at; /* size of an element; offset of the pointer in the batch */
} arrays[] = { [TOKENS] = { "tokens", EG_I32, sizeof(int32_t), offsetof(eg_batch, tokens) },
               [TARGETS] = { "targets", EG_I32, sizeof(int32_t), offsetof(eg_batch, target) },
               [KEEP] = { "mask", EG_BOOL, sizeof(bool), offsetof(eg_batch, keep) },
               [LENGTHS] = { "lengths", EG_I64, sizeof(int64_t), offsetof(eg_batch, lengths) },
               [SOURCE] = { "source", EG_I32, sizeof(int32_t), offsetof(eg_batch, source) },
               [SOURCE_KEEP] = { "mask of the source", EG_BOOL, sizeof(bool),
                                 offsetof(eg_batch, source_keep) },
               [SOURCE_LENGTHS] = { "lengths of the source", EG_I64, sizeof(int64_t),
                                    offsetof(eg_batch, source_lengths) } };
static const void *batch_array_of(const eg_batch *b, batch_array which)
{
    const void *array;
    memcpy(&array, (const char *)b + arrays[which].at, sizeof array);
    return array;
}
/* Arguments of a host call: the rows of the current block, which each run reads from the batch. */
typedef struct batch_rows {
    eg_ctx *cx;
    const eg_batch *full_batch;
    batch_array which;
} batch_rows;
static int batch_read(void *args, void *to, int64_t n)
{
    const batch_rows *r = args;
    int64_t from, end;
    if (eg_block_range(r->cx, &from, &end)) return -1;
    const eg_batch part = eg_batch_part(r->full_batch, from, end);
    const void *at = batch_array_of(&part, r->which);
    if (!at) return -1;
    memcpy(to, at, (size_t)n * arrays[r->which].width);
    return 0;
}
static eg_tensor *batch_tensor(eg_ctx *cx, const eg_batch *b, batch_array which)
{
    if (!b) return eg_fail_as(cx, EG_ERROR_MISUSE, "batch: it is NULL");
    const void *at = batch_array_of(b, which);
    const int64_t length = which < SOURCE ? b->length : b->source_length,
                  dims[] = { b->rows, length };
    const int rank = which == LENGTHS || which == SOURCE_LENGTHS ? 1 : 2;
    if (!at) return eg_fail_as(cx, EG_ERROR_MISUSE, "batch: it has no %s", arrays[which].name);
    if (!b->full_batch || !eg_capturing(cx))
        return eg_from_n(cx, arrays[which].dtype, at, rank, dims);
    return eg_from_call(cx, arrays[which].dtype, rank, dims, batch_read,
                        &(batch_rows){ cx, b->full_batch, which }, sizeof(batch_rows));
}
eg_tensor *eg_batch_tokens(eg_ctx *cx, const eg_batch *b) { return batch_tensor(cx, b, TOKENS); }
eg_tensor *eg_batch_target(eg_ctx *cx, const eg_batch *b) { return batch_tensor(cx, b, TARGETS); }
eg_tensor *eg_batch_source(eg_ctx *cx, const eg_batch *b) { return batch_tensor(cx, b, SOURCE); }
eg_masked eg_batch_keep(eg_ctx *cx, const eg_batch *b)
{
    return !b || b->padded ? (eg_masked){ "bj", batch_tensor(cx, b, KEEP) } : (eg_masked){ 0 };
}
eg_masked eg_batch_source_keep(eg_ctx *cx, const eg_batch *b)
{
    return !b || b->source_padded ? (eg_masked){ "bj", batch_tensor(cx, b, SOURCE_KEEP) }
                                  : (eg_masked){ 0 };
}
/* Returns Σ lengths rounded up, at most rows · longest; 0 if no row is shorter than `longest`. */
static int64_t positions_needed(int64_t rows, int64_t longest, const int64_t *lengths)
{
    const int64_t all = rows * longest;
    int64_t sum = 0;
    for (int64_t k = 0; lengths && k < rows; k++) sum += lengths[k];
    if (!lengths || sum == all) return 0;
    sum = (sum + EG_PACK_ROUND - 1) / EG_PACK_ROUND * EG_PACK_ROUND;
    return sum < all ? sum : all;
}
int64_t eg_batch_packed_length(const eg_batch *b)
{
    return b ? positions_needed(b->rows, b->length, b->lengths) : 0;
}
int64_t eg_batch_packed_source_length(const eg_batch *b)
{
    return b ? positions_needed(b->rows, b->source_length, b->source_lengths) : 0;
}
eg_tensor *eg_batch_lengths(eg_ctx *cx, const eg_batch *b)
{
    return !b || eg_batch_packed_length(b) ? batch_tensor(cx, b, LENGTHS) : NULL;
}
eg_tensor *eg_batch_source_lengths(eg_ctx *cx, const eg_batch *b)
{
    return !b || eg_batch_packed_source_length(b) ? batch_tensor(cx, b, SOURCE_LENGTHS) : NULL;
}

/* -- results ---------------------------------------------------------------------------------- */
int64_t eg_batch_counted(const eg_batch *b)
{
    int64_t n = 0;
    for (int64_t k = 0; b && b->target && k < b->rows * b->length; k++) n += b->target[k] != EG_PAD;
    return n;
}

eg_tensor *eg_batch_loss(eg_ctx *cx, const eg_batch *b, eg_tensor *logits, double smoothing)
{
    eg_tensor *target = eg_batch_target(cx, b);
    if (!eg_ok(target)) return target;
    eg_tensor *y = eg_sum(NULL, eg_cross_entropy("b l [v]", logits, target, .ignore = EG_OFF,
                                                 .smoothing = smoothing, .each = true));
    return eg_ok(y) ? y : eg_fail_in(cx, "batch_loss");
}

/* Greedy decoding of an autoregressive model gives the exact answer if and only if the model is
 * right at each position given the right tokens before it (by induction over positions). One
 * forward pass can therefore count the exact answers. */
eg_score eg__batch_right(const eg_batches *t, const eg_batch *b, eg_tensor *logits)
{
    eg_score s = { .sequences = b->rows };
    const int64_t *best =
        eg_i64(eg_argmax("b l [v]", eg_slice_axis(logits, 2, t->least, EG_END, 1)));
    for (int64_t r = 0; best && r < b->rows; r++) {
        bool all = true;
        for (int64_t k = r * b->length; k < (r + 1) * b->length; k++)
            if (b->target[k] != EG_PAD) {
                bool right = best[k] + t->least == b->target[k];
                s.tokens++;
                s.right += right;
                all &= right;
            }
        s.exact += all;
    }
    return s;
}

/* True if x has the shape and dtype of this batch's logits, and belongs to cx or, if that is the
 * context of a block, to the context of the batches; else records an error. */
bool eg__batch_logits_fit(eg_ctx *cx, const eg_batches *t, const char *who, const eg_batch *b,
                          eg_tensor *x)
{
    if (eg_error(cx)) return false;
    if (!eg_ok(x)) return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: it gave no logits", who), false;
    if (eg_context(x) != cx && eg_context(x) != t->cx)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: the logits belong to another context", who),
               false;
    char is[128] = "";
    for (int k = 0, n = 0; k < eg_rank(x) && n < (int)sizeof is - 24; k++)
        n += snprintf(is + n, sizeof is - (size_t)n, "%s%lld", k ? ", " : "",
                      (long long)eg_dim(x, k));
    const bool real = eg_type(x) == EG_F32 || eg_type(x) == EG_F64;
    const bool same = eg_rank(x) == 3 && eg_dim(x, 0) == b->rows && eg_dim(x, 1) == b->length &&
                      eg_dim(x, 2) == t->vocabulary;
    if (!real || !same)
        eg_fail_as(cx, real ? EG_ERROR_SHAPE : EG_ERROR_DTYPE,
                   "%s: the logits must be floats (b l v) of (%lld, %lld, %lld), not %s of (%s)",
                   who, (long long)b->rows, (long long)b->length, (long long)t->vocabulary,
                   eg_type_name(eg_type(x)), is);
    return real && same;
}

int eg_batch_score(const eg_batches *t, const eg_batch *b, eg_tensor *logits, eg_score *out)
{
    if (!t || !b)
        eg_fail_as(t ? t->cx : NULL, EG_ERROR_MISUSE, "batch_score: %s",
                   t ? "the batch is NULL" : "the batches are NULL");
    if (!t || !b || eg_error(t->cx)) return -1;
    eg_mark m = eg_push(t->cx);
    const bool was = eg_nograd(t->cx, true);
    if (eg__batch_logits_fit(t->cx, t, "batch_score", b, logits)) {
        eg_score s = eg__batch_right(t, b, logits);
        s.loss = eg_item(eg_batch_loss(t->cx, b, logits, 0));
        if (out) *out = s;
    }
    eg_nograd(t->cx, was);
    eg_pop(t->cx, m);
    return eg_error(t->cx) ? -1 : 0;
}

void eg__score_add(eg_score *to, const eg_score *one)
{
    to->sequences += one->sequences, to->exact += one->exact;
    to->tokens += one->tokens, to->right += one->right;
    to->loss += one->loss;
}

int eg_batches_score(eg_batches *t, eg_logits *logits, const void *network, eg_score *out)
{
    if (!t) eg_fail_as(NULL, EG_ERROR_MISUSE, "batches_score: the batches are NULL");
    if (!t || eg_error(t->cx)) return -1;
    if (!logits) {
        eg_fail_as(t->cx, EG_ERROR_MISUSE, "batches_score: the function of the logits is NULL");
        return -1;
    }
    return eg__evaluate(&(eg__evaluating){ .batches = t,
                                           .logits = logits,
                                           .network = network,
                                           .batch = t->at_once,
                                           .block = t->at_once < BLOCK ? t->at_once : BLOCK,
                                           .who = "batches_score" },
                        out);
}
