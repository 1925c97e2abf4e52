/* libFuzzer target for .npz: tests/fuzz.sh builds and runs it. What is read must survive being
 * written and read again, stored and deflated. With FUZZ_MAIN it has a main of its own:
 *   fuzz_npz COUNT FILE...   reads COUNT archives, each one of the files with changes by number */
#include <eingrad/io.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *path(void)
{
    static char name[64];
    snprintf(name, sizeof name, "/tmp/fuzz_npz.%d.npz", (int)getpid());
    return name;
}
static void again(eg_ctx *cx, const eg_npz *z, bool deflate)
{
    const int n = eg_npz_count(z);
    const char **names = calloc((size_t)n + 1, sizeof *names);
    eg_tensor **xs = calloc((size_t)n + 1, sizeof *xs);
    for (int k = 0; k < n; k++) names[k] = eg_npz_name(z, k), xs[k] = eg_npz_at(z, k);
    /* a member may have the name ".npy", that is, an array without a name, which is not written */
    if (eg_npz_find(z, "") < 0) {
        if (eg_npz_save(cx, path(), n, names, xs, .deflate = deflate)) abort();
        eg_npz *back = eg_npz_open(cx, path());
        if (!back || eg_npz_count(back) != n) abort();
        for (int k = 0; k < n; k++) {
            eg_tensor *x = xs[k], *y = eg_npz_get(back, names[k]);
            if (!eg_ok(y) || eg_type(x) != eg_type(y) || eg_size(x) != eg_size(y)) abort();
            const size_t width[] = { 0, 4, 8, 4, 8, 1, 16, 2, 2, 1, 1 };
            if (eg_size(x) &&
                memcmp(eg_raw(x, NULL), eg_raw(y, NULL), width[eg_type(x)] * (size_t)eg_size(x)))
                abort();
        }
    }
    free(names);
    free(xs);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    eg_ctx *cx = eg_open(.threads = 1);
    eg_npz *z = eg_npz_read(cx, bytes, count);
    if (!z == !eg_error(cx)) abort();
    for (int deflate = 0; z && deflate < 2; deflate++) again(cx, z, deflate);
    eg_close(cx);
    return 0;
}

#ifdef FUZZ_MAIN
static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}
/* One to four changes: a byte, a bit, a number of a record, a piece moved, the end cut off. */
static size_t change(uint8_t *zip, size_t n, uint64_t *state)
{
    for (int k = 1 + (int)(draw(state) % 4); k-- && n > 30;) {
        static const uint8_t special[] = { 0, 1, 0x7f, 0x80, 0xff, 'P', 'K' };
        const size_t at = draw(state) % n, to = draw(state) % n, length = 1 + draw(state) % 16;
        switch (draw(state) % 6) {
        case 0: zip[at] = special[draw(state) % sizeof special]; break;
        case 1: zip[at] ^= (uint8_t)(1 << draw(state) % 8); break;
        case 2: zip[n - 1 - at % 120] = special[draw(state) % sizeof special]; break;
        case 3: memset(zip + at, draw(state) % 2 ? 255 : 0, n - at < 4 ? n - at : 4); break;
        case 4:
            if (at + length < n && to + length < n) memmove(zip + to, zip + at, length);
            break;
        default:
            if (draw(state) % 8 == 0) n = at;
        }
    }
    return n;
}
int main(int argc, char **argv)
{
    long read = 0;
    for (long k = 0; argc > 2 && k < atol(argv[1]); k++) {
        static uint8_t zip[1 << 16];
        uint64_t state = (uint64_t)k * 0x9e3779b97f4a7c15u;
        FILE *f = fopen(argv[2 + k % (argc - 2)], "rb");
        if (!f) return 1;
        size_t n = fread(zip, 1, sizeof zip, f);
        fclose(f);
        LLVMFuzzerTestOneInput(zip, change(zip, n, &state));
        read++;
    }
    unlink(path());
    printf("%ld archives read\n", read);
    return 0;
}
#endif
