/* libFuzzer target for safetensors; built as fuzz_npy.c says. The first two bytes of the input are the header's length, so that a mutation
 * seldom breaks it. */
#include <eingrad/io.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count < 2)
        return 0;
    uint8_t *file = calloc(1, count + 6);
    if (!file)
        return 0;
    memcpy(file, bytes, 2);
    memcpy(file + 8, bytes + 2, count - 2);
    eg_ctx *cx = eg_open(.threads = 1);
    eg_safetensors *st = eg_safetensors_read(cx, file, count + 6);
    if (!st == !eg_error(cx))
        abort();
    double sum = 0;
    for (int k = 0; k < eg_safetensors_count(st); k++) {
        eg_tensor *x = eg_safetensors_at(st, k);
        if (!eg_ok(x) || eg_safetensors_find(st, eg_safetensors_name(st, k)) != k)
            abort();
        for (int64_t i = 0; eg_type(x) == EG_F32 && i < eg_size(x); i++)
            sum += eg_f32(x)[i];
    }
    for (int k = 0; eg_safetensors_key(st, k); k++)
        sum += (double)strlen(eg_safetensors_metadata(st, eg_safetensors_key(st, k)));
    volatile double sink = sum;
    (void)sink;
    eg_safetensors_close(st);
    eg_close(cx);
    free(file);
    return 0;
}
