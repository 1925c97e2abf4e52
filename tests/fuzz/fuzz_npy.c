/* libFuzzer target for .npy:
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Ilib -D_GNU_SOURCE
 * tests/fuzz/fuzz_npy.c (all sources of lib/) -lblis -lm
 *   ./fuzz_npy -max_len=512 corpus tests/data          What is read must survive being written and
 * read again. */
#include <eingrad/io.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_tensor *x = eg_npy_read(cx, bytes, count);
    if (eg_ok(x) == (eg_error(cx) != NULL)) abort();
    if (eg_ok(x)) {
        char *text = NULL;
        size_t n = 0;
        FILE *f = open_memstream(&text, &n);
        if (!f || eg_npy_write(f, x)) abort();
        fclose(f);
        eg_tensor *y = eg_npy_read(cx, text, n);
        if (!eg_ok(y) || eg_type(x) != eg_type(y) || eg_size(x) != eg_size(y) ||
            eg_rank(x) != eg_rank(y))
            abort();
        size_t bytes_each = eg_type(x) == EG_BOOL                          ? 1
                            : eg_type(x) == EG_F64 || eg_type(x) == EG_I64 ? 8
                                                                           : 4;
        if (eg_size(x) && memcmp(eg_raw(x, NULL), eg_raw(y, NULL), bytes_each * (size_t)eg_size(x)))
            abort();
        free(text);
    }
    eg_close(cx);
    return 0;
}
