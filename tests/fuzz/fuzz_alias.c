/* fuzz_alias.c: any bytes are an alias table, one entry per line: ours TAB theirs TAB axes TAB part
 * TAB parts. With it parameters are read from a file with tensors of its names, and written. Built
 * as fuzz_npy.c says. */
#include <eingrad/mha.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
enum { ROWS = 32 };

static char *field(char **at) /* up to the next tab */
{
    char *start = *at, *tab = start + strcspn(start, "\t");
    *at = *tab ? tab + 1 : tab;
    *tab = 0;
    return start;
}

static eg_safetensors *their_file(eg_ctx *cx)
{
    static char path[64];
    static const char *const names[] = { "qkv.weight", "qkv.bias",   "o.weight", "o.bias",
                                         "q.0.weight", "q.1.weight", "mask",     "layers.0.w" };
    eg_tensor *xs[] = { eg_full(cx, 1, 16, 8), eg_full(cx, 1, 16),   eg_full(cx, 1, 8, 8),
                        eg_full(cx, 1, 8),     eg_full(cx, 1, 2, 8), eg_full(cx, 1, 2, 8),
                        eg_full(cx, 1, 2, 2),  eg_full(cx, 1, 8, 2) };
    if (!*path) {
        snprintf(path, sizeof path, "/tmp/eg_fuzz_alias_%ld", (long)getpid());
        if (eg_safetensors_save(cx, path, (int)(sizeof xs / sizeof *xs), names, xs, NULL)) abort();
    }
    return eg_safetensors_open(cx, path);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    eg_alias rows[ROWS + 1] = { { 0 } };
    char *text = malloc(count + 1);
    int n = 0;
    if (!text) return 0;
    memcpy(text, bytes, count);
    text[count] = 0;
    for (char *line = text, *next; *line && n < ROWS; line = next, n++) {
        next = line + strcspn(line, "\n");
        next += *next ? (*next = 0, 1) : 0;
        rows[n].ours = field(&line), rows[n].theirs = field(&line), rows[n].axes = field(&line);
        rows[n].part = (int)strtol(field(&line), NULL, 10),
        rows[n].parts = (int)strtol(field(&line), NULL, 10);
    }
    eg_ctx *cx = eg_open(.threads = 1);
    eg_safetensors *file = their_file(cx);
    eg_params *p = eg_params_open(cx);
    eg_mha_new(p, "", .d_model = 8, .heads = 4, .kv_heads = 2);
    if (!file || eg_error(cx)) abort();
    if (!eg_params_read_as(p, file, "file", "", rows) != !eg_error(cx)) abort();
    eg_clear(cx);
    if (!eg_params_save_as(p, "/dev/null", "", rows) != !eg_error(cx)) abort();
    eg_close(cx);
    free(text);
    return 0;
}
