/* fuzz_config.c: any bytes are the config.json of a model: JSON, and the settings of every family.
 * Built as fuzz_npy.c says. */
#include <eingrad/pretrained.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static char folder[64], path[96];
    if (!*folder) {
        snprintf(folder, sizeof folder, "/tmp/eg_fuzz_config_%ld", (long)getpid());
        snprintf(path, sizeof path, "%s/config.json", folder);
        if (mkdir(folder, 0700)) abort();
    }
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, count, f) != count || fclose(f)) abort();
    eg_ctx *cx = eg_open(.threads = 1);
    const eg_json *x = eg_json_read(cx, bytes, count);
    if (!x != !!eg_error(cx)) abort();
    eg_clear(cx);
    const eg_pretrained *o = eg_pretrained_read(cx, folder);
    if (!o != !!eg_error(cx) || (o && (!x || !o->names || o->model.layers < 1))) abort();
    eg_close(cx);
    return 0;
}
