/* fuzz_notation.c: any bytes are a spec or a predicate; nothing may crash, leak, loop, or fail without a sentence.
 *
 * Input: one byte of flags, one of operands, one nibble of rank and two bits of size an axis, then the string.
 * clang: -fsanitize=fuzzer,address,undefined with the static library. Without libFuzzer: -DFUZZ_MAIN reads files, or N random inputs. */
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
        for (int r = 0; r < rank; r++) dim[r] = size ? *data & 7 : 2, data += size > 0, size -= size > 0;
        x[k] = eg_full_n(cx, EG_F32, 0, rank, dim);
    }
    if (n > 1 && names_only == 7) x[n - 1] = NULL;
    char *spec = malloc(size + 1);      /* of its own length, so that a read beyond it is seen          */
    if (!spec) return;
    memcpy(spec, data, size);
    spec[size] = 0;
    const eg_given given = { "h", 1, 2 };
    const eg_bound *b = eg__bind("fuzz", spec, flags, n, x, flags & 1 && strchr(spec, 'h') != NULL, &given);
    free(spec);                         /* what is bound does not look at the caller's string           */
    if (!b && n && !eg_error(cx)) abort();
    if (b) {
        for (int k = 0; k <= b->terms; k++) {
            if (k == b->terms && !b->arrow) break;
            const eg_bound_term *t = k < b->terms ? &b->term[k] : &b->out;
            int m = 0;
            for (int r = 0; r < t->rank; r++) { if (t->first[r] != m || t->last[r] < m) abort(); m = t->last[r]; }
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

static void where_bytes(const uint8_t *data, size_t size)
{
    const int64_t sizes[3] = { data[1] & 7, data[1] >> 3 & 7, 1 + (data[1] >> 6) }, low[3] = { 0, 1, 0 };
    const eg_axis_name i = { "i", 1, sizes[0], 0 }, j = { "j", 1, sizes[1], 0 }, key = { "key", 3, sizes[2], 0 };
    char *text = malloc(size - 1);
    if (!text) return;
    memcpy(text, data + 2, size - 2);
    text[size - 2] = 0;
    const eg_predicate *p = eg__where_parse(cx, "fuzz", text, 3, (const eg_axis_name *const[]){ &i, &j, &key });
    free(text);
    if (!p) { if (!eg_error(cx)) abort(); return; }
    const int64_t high[3] = { 4, 5, 3 };
    const eg_three three = eg__where_tile(p, low, high, sizes);
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
    if ((three == EG_NONE && any) || (three == EG_EVERY && !all)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!cx) cx = eg_open_with(&(eg_open_args){ .size = sizeof(eg_open_args), .threads = 1 });
    if (size < 2 || !cx) return 0;
    const eg_mark mark = eg_push(cx);
    if (data[0] & 128) where_bytes(data, size); else bind_bytes(data, size);
    eg_clear(cx);
    eg_pop(cx, mark);
    return 0;
}

#ifdef FUZZ_MAIN
int main(int argc, char **argv)
{
    static const char *const piece[] = { "i", "j", "ij", "h", "d", "batch", "batc", " ", " ", ",", "->", "(", ")", "[", "]", "...", "1", "=2", "h=2", "<", "<=", "==", "|i|", "|", "&", "!",
        "+", "-", "*", "/", "%", "3", "64", "i", "j", "key", "9223372036854775807", "\xc3", "-1" };
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
