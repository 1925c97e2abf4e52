/* blocks_batch.c: the tensors of `.batch`, of which every block reads its own examples. A block
 * gets a copy of its rows (eg_from_call), made again in each run of a captured block; the tensors
 * may therefore be others in each call. */
#include "autograd/blocks.h"
#include <string.h>

int64_t eg__batch_examples(const eg_given *given)
{
    bool any = false;
    for (int k = 0; k < BATCH_MOST && given[k].name; k++) {
        const eg_tensor *x = given[k].x;
        if (!x || x->live != EG_LIVE) return 0;
        if (x->rank) return x->dim[0];
        any = true;
    }
    return any; /* a scalar is refused by batch_fits */
}
/* True if the k-th tensor can be divided into examples; else records an error. */
static bool batch_fits(eg_ctx *cx, const char *who, const eg_given *given, int k, int64_t examples,
                       bool more, const eg_copies *copies)
{
    char dims[256];
    const char *name = given[k].name;
    eg_tensor *x = given[k].x;
    for (int i = 0; i < k; i++)
        if (!strcmp(given[i].name, name))
            return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: two tensors of .batch are called \"%s\"",
                              who, name),
                   false;
    if (!x)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "%s: \"%s\" of .batch is NULL", who, name), false;
    if (x->cx != cx && x->cx != cx->parent)
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: \"%s\" of .batch belongs to another context", who,
                   name);
    else if (!eg__check_option(cx, who, ".batch", name, EG_TAKES_ALL, x))
        return false;
    else if (x->copies && x->copies != copies)
        eg_fail_as(cx, EG_ERROR_UNSUPPORTED, "%s: \"%s\" of .batch has copies%s", who, name,
                   copies ? " of another group" : "");
    else if (!x->rank || (more ? x->dim[0] < examples : x->dim[0] != examples))
        eg_fail_as(cx, EG_ERROR_SHAPE,
                   "%s: \"%s\" of .batch is %s, but its first axis must have the %lld examples",
                   who, name, eg__dims_text(x, dims, sizeof dims), (long long)examples);
    return !cx->failed;
}
bool eg__batch_fit(eg_ctx *cx, const char *who, const eg_given given[BATCH_MOST], int64_t examples,
                   bool more, const eg_copies *copies, eg__block_batch *to)
{
    *to = (eg__block_batch){ .count = 0 };
    for (int k = 0; k < BATCH_MOST && given[k].name; k++) {
        if (!batch_fits(cx, who, given, k, examples, more, copies)) return false;
        const bool was = eg_nograd(cx, true);
        const eg_tensor *x = eg_contiguous(given[k].x);
        eg_nograd(cx, was);
        if (cx->failed) return false;
        const int64_t of[] = { x->dtype, x->rank, (int64_t)strlen(given[k].name) };
        to->form = eg_hash(to->form + 1, of, sizeof of);
        to->form = eg_hash(to->form, given[k].name, (size_t)of[2]);
        to->form = eg_hash(to->form, x->dim + 1, (size_t)(x->rank - 1) * sizeof *x->dim) | 1;
        to->name[k] = given[k].name;
        to->x[k] = x;
        to->count = k + 1;
    }
    return true;
}

/* -- inside a block --------------------------------------------------------------------------- */
/* The arguments of the function that copies the rows of a block. */
typedef struct block_rows {
    eg_ctx *cx;
    int k;
} block_rows;
/* Blocks that run one captured step have batches of one form, so x has the k-th dtype and sizes of
 * the block that was captured. */
static int block_rows_read(void *args, void *to, int64_t n)
{
    const block_rows *r = args;
    const eg_ctx *cx = eg__here(r->cx);
    const eg_tensor *x = cx->block.batch->x[r->k];
    const size_t bytes = (size_t)n * eg__width[x->dtype],
                 row = bytes / (size_t)(cx->block.to - cx->block.from);
    if (bytes) memcpy(to, eg__copy_data(x, cx->block.copy) + (size_t)cx->block.from * row, bytes);
    return 0;
}
eg_tensor *eg_block_rows(eg_ctx *cx, const char *name)
{
    cx = eg__here(cx);
    if (eg__failed(cx)) return eg__poison(cx);
    const eg__block_batch *batch = cx->block.batch;
    if (!cx->block.to || !name)
        return eg_fail_as(cx, EG_ERROR_MISUSE, "block_rows: %s",
                          name ? "outside of a block" : "the name is NULL");
    int k = 0;
    while (batch && k < batch->count && strcmp(batch->name[k], name)) k++;
    if (!batch || k == batch->count) {
        char names[256] = "no tensors";
        for (int i = 0, at = 0; batch && i < batch->count && at < (int)sizeof names; i++)
            at += snprintf(names + at, sizeof names - (size_t)at, "%s\"%s\"", i ? ", " : "",
                           batch->name[i]);
        return eg_fail_as(cx, EG_ERROR_MISUSE, "block_rows: .batch has no \"%s\"; it has %s", name,
                          names);
    }
    const eg_tensor *x = batch->x[k];
    int64_t dims[EG_RANK_MAX];
    memcpy(dims, x->dim, (size_t)x->rank * sizeof *dims);
    dims[0] = cx->block.to - cx->block.from;
    return eg_from_call(cx, x->dtype, x->rank, dims, block_rows_read, &(block_rows){ cx, k },
                        sizeof(block_rows));
}
/* Adds up the elements of xs[0]; *args points to the count. */
static int block_counts(void *args, int count, eg_tensor *const *xs)
{
    const eg_tensor *sum = eg_sum(NULL, xs[0]);
    (void)count;
    if (!eg_ok(sum)) return -1;
    memcpy(*(int64_t **)args, sum->data, sizeof(int64_t));
    return 0;
}
int eg_block_count(int64_t *count, eg_tensor *x)
{
    if (!eg__check("block_count", x)) return -1;
    if (count && !eg__is_float(x->dtype) && !x->copies)
        return eg_host_call(x->cx, block_counts, &count, sizeof count, 1, &x);
    eg_fail_as(x->cx, count ? EG_ERROR_DTYPE : EG_ERROR_MISUSE,
               !count      ? "block_count: the count is NULL"
               : x->copies ? "block_count: x has copies"
                           : "block_count: x is %s, but a count is a sum of integers or bools",
               eg_type_name(x->dtype));
    return -1;
}
