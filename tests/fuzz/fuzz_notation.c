/* fuzz_notation.c: any bytes are a spec; nothing may crash, leak, loop, or fail without an error
 * message. Input: one byte of flags, one of operands, one nibble of rank and two bits of size for
 * each axis, then the string. clang: -fsanitize=fuzzer,address,undefined with the static library.
 * Without libFuzzer: -DFUZZ_MAIN reads files, or N random inputs. */
#include <notation/notation.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
static eg_ctx *cx;

static void bind_bytes(const uint8_t *data, size_t size)
{
    const int flags = data[0] & 31, n = data[1] % 5, names_only = data[1] >> 5;
    eg_tensor *x[5] = { NULL };
    data += 2, size -= 2;
    for (int k = 0; k < n; k++) {
        int64_t dim[8];
        const int rank = size ? *data & 7 : 0;
        if (size) data++, size--;
        for (int r = 0; r < rank; r++)
            dim[r] = size ? *data & 7 : 2, data += size > 0, size -= size > 0;
        x[k] = eg_full_n(cx, EG_F32, 0, rank, dim);
    }
    if (n > 1 && names_only == 7) x[n - 1] = NULL;
    char *spec = malloc(size + 1); /* a separate block, so that a read beyond it is detected */
    if (!spec) return;
    memcpy(spec, data, size);
    spec[size] = 0;
    const eg_sized given = { "h", 1, 2 };
    const eg_bound *b =
        eg__bind("fuzz", spec, flags, n, x, flags & 1 && strchr(spec, 'h') != NULL, &given);
    free(spec); /* a bound spec does not refer to the caller's string */
    if (!b && n && !eg_error(cx)) abort();
    if (b) {
        for (int k = 0; k <= b->terms; k++) {
            if (k == b->terms && !b->arrow) break;
            const eg_bound_term *t = k < b->terms ? &b->term[k] : &b->out;
            int m = 0;
            for (int r = 0; r < t->rank; r++) {
                if (t->first[r] != m || t->last[r] < m) abort();
                m = t->last[r];
            }
            if (m != t->items || m > EG_RANK_MAX) abort();
            for (int i = 0; i < m; i++) {
                if (t->item[i].axis >= b->axes || b->axis[t->item[i].axis].size < 0) abort();
                if (t->x && eg_dim(t->x, i) != b->axis[t->item[i].axis].size) abort();
            }
            if (t->x && eg_rank(t->x) != m) abort();
            if (m) eg__refuse(b, k, m - 1, "looked at");
        }
        eg__refuse(b, b->terms, -1, "looked at");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!cx) cx = eg_open_with(&(eg_open_args){ .size = sizeof(eg_open_args), .threads = 1 });
    if (size < 2 || !cx) return 0;
    const eg_mark mark = eg_push(cx);
    bind_bytes(data, size);
    eg_clear(cx);
    eg_pop(cx, mark);
    return 0;
}

#ifdef FUZZ_MAIN
int main(int argc, char **argv)
{
    static const char *const piece[] = { "i",
                                         "j",
                                         "ij",
                                         "h",
                                         "d",
                                         "batch",
                                         "batc",
                                         " ",
                                         " ",
                                         ",",
                                         "->",
                                         "(",
                                         ")",
                                         "[",
                                         "]",
                                         "...",
                                         "1",
                                         "=2",
                                         "h=2",
                                         "<",
                                         "<=",
                                         "==",
                                         "|i|",
                                         "|",
                                         "&",
                                         "!",
                                         "+",
                                         "-",
                                         "*",
                                         "/",
                                         "%",
                                         "3",
                                         "64",
                                         "i",
                                         "j",
                                         "key",
                                         "9223372036854775807",
                                         "\xc3",
                                         "-1" };
    uint64_t state = 1, count = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
    for (uint64_t k = 0; k < count; k++) {
        uint8_t input[512];
        size_t n = 0;
#define DRAW (state = state * 6364136223846793005u + 1442695040888963407u, (unsigned)(state >> 33))
        const unsigned head = 2 + DRAW % 8, pieces = DRAW % 24;
        for (unsigned i = 0; i < head; i++) input[n++] = (uint8_t)DRAW;
        for (unsigned i = 0; i < pieces; i++) {
            const char *s = piece[DRAW % (sizeof piece / sizeof *piece)];
            memcpy(input + n, s, strlen(s)), n += strlen(s);
        }
        LLVMFuzzerTestOneInput(input, n);
    }
    eg_close(cx);
    return 0;
}
#endif
