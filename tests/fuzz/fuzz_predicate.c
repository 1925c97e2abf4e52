/* fuzz_predicate.c: any bytes are a predicate over three axes and two tensors, doc[i] of integers
 * and keep[j] of bools; nothing may crash, leak, loop, read outside of memory, or fail without an
 * error message, and blocks and bounds must agree with single elements. Input: one byte for the
 * sizes of i, j, key, which are 1 … 8, 1 … 8, 1 … 4, and for the tensors' values; then the string.
 * Built as fuzz_npy.c says. */
#include <notation/notation.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
static eg_ctx *cx;

enum { MOST = 8 };
typedef struct predicate {
    eg_expression *e;
    eg_source source[2];
} predicate;

/* Writes the values at all indices low … high to out, whose rows have MOST lanes. */
static void truths(const predicate *p, const int64_t *low, const int64_t *high, uint8_t *out)
{
    const int rows = (int)(high[1] - low[1]), lanes = (int)(high[2] - low[2]);
    eg_block_plan plan;
    eg__block_plan(&plan, p->e, p->e->root, false, rows, lanes, 2, 4, 0);
    void *work = aligned_alloc(EG_ALIGN, plan.bytes);
    if (!work) abort();
    for (int64_t i = low[0]; i < high[0]; i++) {
        const eg_letter_values letter[] = { { i, NULL }, { low[1], NULL }, { low[2], NULL } };
        eg__block_values(&plan,
                         &(eg_block_data){ .rows = rows,
                                           .lanes = lanes,
                                           .letter = letter,
                                           .source = p->source,
                                           .out = out + (i - low[0]) * MOST * MOST,
                                           .out_step = MOST },
                         work);
    }
    free(work);
}
/* Compares the values in a box with those of single elements and with its cover. */
static void compare(const predicate *p, const eg_box *box)
{
    static uint8_t all[MOST * MOST * MOST];
    bool any = false, every = true;
    const int64_t *low = box->low, *high = box->high;
    eg_interval range[EG_NODES_MAX];
    const eg_cover three = eg__expression_cover(p->e, box, range);
    truths(p, low, high, all);
    for (int64_t i = low[0]; i < high[0]; i++)
        for (int64_t j = low[1]; j < high[1]; j++)
            for (int64_t k = low[2]; k < high[2]; k++) {
                uint8_t one;
                truths(p, (int64_t[]){ i, j, k }, (int64_t[]){ i + 1, j + 1, k + 1 }, &one);
                const uint8_t is = all[((i - low[0]) * MOST + j - low[1]) * MOST + k - low[2]];
                if (is != one || is > 1) abort();
                any |= is, every &= is;
            }
    if ((three == EG_COVER_NONE && any) || (three == EG_COVER_ALL && !every)) abort();
}
static void where_bytes(const uint8_t *data, size_t size)
{
    const int64_t sizes[3] = { 1 + (data[0] & 7), 1 + (data[0] >> 3 & 7), 1 + (data[0] >> 6) },
                  zero[3] = { 0 }, one = 1, block[3] = { 2, 3, 1 };
    const eg_axis_name i = { "i", 1, sizes[0], 0 }, j = { "j", 1, sizes[1], 0 },
                       key = { "key", 3, sizes[2], 0 };
    int64_t doc[MOST];
    uint8_t keep[MOST];
    eg_interval table[2 * MOST];
    for (int k = 0; k < MOST; k++) doc[k] = k * (data[0] % 5) / 3 - 1, keep[k] = data[0] >> k & 1;
    const eg_readable readable[] = { { "doc", EG_I64, 1, &sizes[0], -1, 9 },
                                     { "keep", EG_BOOL, 1, &sizes[1], 0, 1 } };
    char *text = malloc(size);
    if (!text) return;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    const eg_expression_source s = { .who = "fuzz",
                                     .text = text,
                                     .noun = "predicate",
                                     .letters = 3,
                                     .letter = (const eg_axis_name *const[]){ &i, &j, &key },
                                     .given = 2,
                                     .readable = readable,
                                     .predicate = true };
    predicate p = { .e = eg__expression_parse(cx, &s),
                    .source = { { doc, &one, EG_I64, &sizes[0] },
                                { keep, &one, EG_BOOL, &sizes[1] } } };
    eg_box box = { .low = zero, .high = sizes, .size = sizes, .least = { -1 }, .most = { 9, 1 } };
    const bool fits = p.e && eg__expression_fits(cx, &s, p.e, &box);
    free(text);
    if (!fits) {
        if (!eg_error(cx)) abort();
        return;
    }
    compare(&p, &box);
    eg_bounds bounds;
    eg__bounds_plan(&bounds, p.e, p.source, block);
    eg__bounds_fill(&bounds, p.source, table);
    box.bounds = &bounds;
    compare(&p, &box);
    for (int k = 0; k < 3; k++) {
        int64_t low[3] = { 0 }, high[3];
        memcpy(high, sizes, sizeof high);
        low[k] = sizes[k] / 2, high[k] = low[k] + 1;
        box.low = low, box.high = high;
        compare(&p, &box);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!cx) cx = eg_open_with(&(eg_open_args){ .size = sizeof(eg_open_args), .threads = 1 });
    if (size < 1 || !cx) return 0;
    const eg_mark mark = eg_push(cx);
    where_bytes(data, size);
    eg_clear(cx);
    eg_pop(cx, mark);
    return 0;
}
