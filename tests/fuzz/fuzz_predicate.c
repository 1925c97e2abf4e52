/* fuzz_predicate.c: any bytes are a predicate over three axes; nothing may crash, leak, loop, or
 * fail without a sentence, and rows and tiles say what single places say. Input: one byte of the
 * sizes of i, j, key; the sizes are 1 … 8, 1 … 8, 1 … 4; then the string. Built as fuzz_npy.c says.
 */
#include <notation/notation.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
static eg_ctx *cx;

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
    const eg_predicate *p =
        eg__where_parse(cx, "fuzz", text, 3, (const eg_axis_name *const[]){ &i, &j, &key });
    free(text);
    if (!p) {
        if (!eg_error(cx)) abort();
        return;
    }
    const int64_t high[3] = { 4, 5, 3 };
    const eg_cover three = eg__where_tile(p, low, high, sizes);
    bool any = false, all = true;
    for (int64_t a = low[0]; a < high[0]; a++)
        for (int64_t b = low[1]; b < high[1]; b++) {
            uint8_t row[3];
            eg__where_row(p, 2, 3, (int64_t[]){ a, b, 0 }, sizes, row);
            for (int64_t c = 0; c < 3; c++) {
                const bool is = eg__where_test(p, (int64_t[]){ a, b, c }, sizes);
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
