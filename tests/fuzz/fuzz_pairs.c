/* fuzz_pairs.c: any bytes are a file of pairs, and a text. Of what is accepted every example is
 * read, and its vocabulary is written and read again. Built as fuzz_npy.c says. */
#include <eingrad/train.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void ask(eg_ctx *cx, const eg_data *d)
{
    if (!d != !!eg_error(cx)) abort();
    eg_example e;
    for (int64_t k = 0; d && !eg_data_is_text(d) && k < eg_data_size(d); k++) {
        char text[EG_EXAMPLE_MAX * 64];
        int32_t again[EG_EXAMPLE_MAX];
        if (eg_data_example(d, 7, (uint64_t)k, &e) || e.inputs < 1 || e.outputs < 1 ||
            e.inputs > EG_EXAMPLE_MAX || e.outputs > EG_EXAMPLE_MAX)
            abort();
        eg_data_held_out(d, &e);
        size_t n = eg_data_decode(d, e.inputs, e.input, text, sizeof text);
        if (n < sizeof text && (eg_data_encode(d, text, EG_EXAMPLE_MAX, again) != e.inputs ||
                                memcmp(again, e.input, (size_t)e.inputs * sizeof *again)))
            abort();
    }
    for (int k = 0; d && k < eg_data_symbols(d); k++)
        if (!eg_data_symbol(d, k)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    eg_ctx *cx = eg_open(.threads = 1);
    char *text = malloc(count + 1);
    if (!text) return 0;
    memcpy(text, bytes, count);
    text[count] = 0;
    ask(cx, eg_data_parse(cx, text, "pairs"));
    eg_clear(cx);
    ask(cx, eg_data_corpus_of(cx, text, count, "text"));
    eg_close(cx);
    free(text);
    return 0;
}
