/* libFuzzer target for safetensors; built as fuzz_npy.c says. The input is a complete file;
 * mutations keep the length of its header correct. */
#include <eingrad/io.h>
#include <stdlib.h>
#include <string.h>
#include "header.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

/* Half of the mutations are libFuzzer's own, of the header or of the whole. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    uint64_t state = seed;
    size_t length = header_length(data, size), rest = size - (size < 8 ? size : 8 + length);
    if (size < 9 || header_draw(&state) % 8 == 0) return LLVMFuzzerMutate(data, size, most);
    if (header_draw(&state) % 2) return header_change(data, size, most, &state);
    uint8_t *tail = malloc(rest + 1);
    if (!tail) return size;
    memcpy(tail, data + 8 + length, rest);
    size_t header = LLVMFuzzerMutate(data + 8, length, most - 8 - rest);
    memcpy(data + 8 + header, tail, rest);
    header_set_length(data, header);
    free(tail);
    return 8 + header + rest;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_safetensors *st = eg_safetensors_read(cx, bytes, count);
    if (!st == !eg_error(cx)) abort();
    double sum = 0;
    for (int k = 0; k < eg_safetensors_count(st); k++) {
        eg_tensor *x = eg_safetensors_at(st, k);
        const char *name = eg_safetensors_name(st, k);
        if (!eg_ok(x) || eg_safetensors_find(st, name) != k || !eg_safetensors_file(st, k) ||
            !eg_safetensors_nearest(st, name))
            abort();
        for (int64_t i = 0; eg_type(x) == EG_F32 && i < eg_size(x); i++) sum += eg_f32(x)[i];
    }
    for (int k = 0; eg_safetensors_key(st, k); k++)
        sum += (double)strlen(eg_safetensors_metadata(st, eg_safetensors_key(st, k)));
    volatile double sink = sum;
    (void)sink;
    eg_safetensors_close(st);
    eg_close(cx);
    return 0;
}
