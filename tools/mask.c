/* eingrad mask: prints a predicate of attention as a grid of allowed pairs. */
#include "tools.h"
#include <stdlib.h>
#include <string.h>

typedef struct mask {
    int64_t offset;
} mask;
static const option options[] = {
    { 0, "offset", INTEGER, "N",
      "positions before the first query, such as keys in a cache (default 0)",
      offsetof(mask, offset), 0, 1e15, false },
    { 0 }
};
enum { AXES = 8, ENTRIES = 1 << 22 };

static void grid(const bool *at, int64_t rows, int64_t width)
{
    for (int64_t i = 0; i < rows; i++, at += width) {
        for (int64_t j = 0; j < width; j++) printf(j ? " %c" : "%c", at[j] ? '#' : '.');
        putchar('\n');
    }
}

/* Prints the last two axes as a grid, one for each index of the others, and the number of true
 * elements. The elements of x begin at `at`. */
static void print(eg_tensor *x, const bool *at, char *const *size)
{
    int rank = eg_rank(x);
    const int64_t *dim = eg_dims(x);
    int64_t width = rank ? dim[rank - 1] : 1, rows = rank > 1 ? dim[rank - 2] : 1, on = 0;
    int64_t grids = width > 0 && rows > 0 ? eg_size(x) / (width * rows) : 0;
    if (rank > 1) printf("rows %s, columns %s\n", size[rank - 2], size[rank - 1]);
    for (int64_t g = 0; g < grids; g++, at += rows * width) {
        int64_t rest = g, index[AXES];
        for (int a = rank - 2; a-- > 0; rest /= dim[a]) index[a] = rest % dim[a];
        for (int a = 0; a < rank - 2; a++)
            printf("%s%.*s=%lld", a ? " " : "", (int)strcspn(size[a], "="), size[a],
                   (long long)index[a]);
        if (rank > 2) putchar('\n');
        grid(at, rows, width);
        for (int64_t k = 0; k < rows * width; k++) on += at[k];
    }
    int64_t n = eg_size(x);
    printf("%lld of %lld", (long long)on, (long long)n);
    if (n) printf(" (%.1f %%)", 100.0 * (double)on / (double)n);
    putchar('\n');
}

/* Letters and sizes are words such as i=8; the string of axes is composed from them. */
static int run(const command *c, int count, char **word)
{
    mask o = { 0 };
    words w;
    parsed p = read_options(c, count, word, &o, &w);
    if (p != PARSED) return p == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    const int n = w.count - 1;
    if (n < 1)
        return print_error(
            "mask needs a predicate and the size of each letter, as in: %s mask \"j <= i\" i=8 j=8",
            program());
    if (n > AXES) return print_error("mask shows at most %d letters, not %d", AXES, n);
    char axes[1024] = "";
    int64_t size[AXES], entries = 1;
    for (int k = 0; k < n; k++) {
        const char *text = w.word[k + 1], *equals = strchr(text, '=');
        if (!equals || equals == text || !read_integer(equals + 1, &size[k]) || size[k] < 0)
            return print_error("mask: \"%s\" is not a letter and its size, as in i=8", text);
        size_t used = strlen(axes), bytes = sizeof axes - used;
        if (snprintf(axes + used, bytes, k ? " %.*s" : "%.*s", (int)(equals - text), text) >=
            (int)bytes)
            return print_error("mask: the names are too long");
        if (size[k] && entries > ENTRIES / size[k])
            return print_error("mask: more than %d entries are too many to print", ENTRIES);
        entries *= size[k] ? size[k] : 1;
    }
    eg_ctx *cx = eg_open(.threads = 1);
    eg_tensor *x = eg_where_mask(cx, w.word[0], axes, o.offset, size);
    const bool *at = eg_bool(x); /* NULL after an error, since a contiguous copy may be needed */
    int status = at ? EXIT_SUCCESS : print_context_error(cx, NULL);
    if (at) print(x, at, w.word + 1);
    eg_close(cx);
    return status;
}

const command mask_command = {
    .name = "mask",
    .usage = "PREDICATE LETTER=SIZE... [--offset N]",
    .about = "print the mask of a predicate such as \"j <= i\"",
    .more = "  mask \"j <= i\" i=8 j=8                      causal\n"
            "  mask \"i - 3 < j <= i\" i=8 j=8              a window of 3\n"
            "  mask \"j - |j| <= i - |i|\" i=4 j=8          causal, the last row attends to all\n"
            "  mask \"(i - j) % 2 == 0 | j < 2\" i=8 j=8    dilated, with a prefix\n",
    .options = options,
    .first = "PREDICATE",
    .run = run,
};
