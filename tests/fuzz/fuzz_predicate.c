/* fuzz_predicate.c: any bytes are a predicate over three axes; nothing may crash, leak, loop, or
 * fail without a sentence, and rows and tiles say what single places say. Input: one byte of the
 * sizes of i, j, key; the sizes are 1 … 8, 1 … 8, 1 … 4; then the string. Built as fuzz_npy.c says.
 */
#include <notation/notation.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
static eg_ctx *cx;

/* The values at `count` places along the last axis. */
static void values(const eg_expression *p, const int64_t *at, int count, uint8_t *out)
{
    const eg_place place[] = { { at[0], NULL }, { at[1], NULL }, { at[2], NULL } };
    eg_block_plan plan;
    eg__block_plan(&plan, p, p->root, false, 1, count, 0, 4, 0);
    void *room = aligned_alloc(64, (plan.bytes + 63) / 64 * 64);
    if (!room) abort();
    eg__block_values(&plan,
                     &(eg_block_data){
                         .rows = 1, .lanes = count, .place = place, .out = out, .out_step = count },
                     room);
    free(room);
}
static void where_bytes(const uint8_t *data, size_t size)
{
    const int64_t sizes[3] = { 1 + (data[0] & 7), 1 + (data[0] >> 3 & 7), 1 + (data[0] >> 6) },
                  low[3] = { 0, 1, 0 };
    const eg_axis_name i = { "i", 1, sizes[0], 0 }, j = { "j", 1, sizes[1], 0 },
                       key = { "key", 3, sizes[2], 0 };
    char *text = malloc(size);
    if (!text) return;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    const eg_expression_source source = {
        .who = "fuzz",
        .text = text,
        .noun = "predicate",
        .letters = 3,
        .letter = (const eg_axis_name *const[]){ &i, &j, &key },
        .predicate = true,
    };
    eg_expression *p = eg__expression_parse(cx, &source);
    const int64_t high[3] = { 4, 5, 3 };
    const eg_box all_of_it = { .low = low, .high = high, .size = sizes };
    const bool fits = p && eg__expression_fits(cx, &source, p, &all_of_it);
    free(text);
    if (!fits) {
        if (!eg_error(cx)) abort();
        return;
    }
    const eg_cover three = eg__expression_cover(p, &all_of_it);
    bool any = false, all = true;
    for (int64_t a = low[0]; a < high[0]; a++)
        for (int64_t b = low[1]; b < high[1]; b++) {
            uint8_t row[3], is;
            values(p, (int64_t[]){ a, b, 0 }, 3, row);
            for (int64_t c = 0; c < 3; c++) {
                values(p, (int64_t[]){ a, b, c }, 1, &is);
                if (is != row[c]) abort();
                any |= is, all &= is;
            }
        }
    if ((three == EG_COVER_NONE && any) || (three == EG_COVER_ALL && !all)) abort();
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
