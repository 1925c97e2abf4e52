/* heads.c: the measures of a model's heads in a table, under their heat maps. */
#include "tools.h"

enum { WIDEST = 16 }; /* the largest number of heads whose similarity is printed */

/* Prints the table if queries and keys are two sequences: a query then has no position among the
 * keys, no neighbours and no distance. */
static void table_apart(const eg_head *h, int64_t layer, int64_t heads)
{
    for (int64_t k = 0; k < heads; k++, h++)
        printf("%5lld %4lld %7.3f %6.2f %5.0f%% %5.0f%% %9.0f%%\n", (long long)layer, (long long)k,
               h->entropy, h->spread, 100 * h->first, 100 * h->top, 100 * h->saturated);
}

static void table(const eg_head *h, int64_t layer, int64_t heads)
{
    for (int64_t k = 0; k < heads; k++, h++)
        printf(
            "%5lld %4lld  %-8s %7.3f %6.2f %8.2f %8.0f%% %5.0f%% %5.0f%% %5.0f%% %5.0f%% %9.0f%%\n",
            (long long)layer, (long long)k, h->label, h->entropy, h->spread, h->distance,
            100 * h->previous, 100 * h->self, 100 * h->next, 100 * h->first, 100 * h->top,
            100 * h->saturated);
}

/* Prints the matrix of the heads' similarity. */
static void print_similarity(eg_tensor *w, int64_t layer, int64_t heads)
{
    eg_tensor *s = eg_head_similarity("[h] i j", w), *mean = eg_head_diversity("[h] i j", w);
    if (!eg_ok(s) || !eg_ok(mean)) return;
    printf("layer %lld", (long long)layer);
    for (int64_t k = 0; k < heads; k++) printf(" %6lld", (long long)k);
    putchar('\n');
    for (int64_t k = 0; k < heads; k++) {
        printf("%7lld", (long long)k);
        for (int64_t g = 0; g < heads; g++) printf(" %6.2f", eg_get(s, k, g));
        putchar('\n');
    }
    printf("mean over pairs of heads: %.2f\n", eg_item(mean));
}

/* w: layer h i j. Query i has the position of key i, in a decoder and in an encoder. */
void print_heads(eg_tensor *w, bool apart)
{
    const int64_t layers = eg_dim(w, 0), heads = eg_dim(w, 1);
    printf("\nmeans over the rows above; entropy in nats, spread is 0 for one key and 1 for equal "
           "weights%s\n",
           apart ? "" : ", distance in tokens");
    puts(apart ? "layer head entropy spread first top-3 saturated"
               : "layer head  label    entropy spread distance previous  self  next first top-3 "
                 "saturated");
    for (int64_t l = 0; l < layers; l++) {
        const eg_head *h = eg_heads(eg_select("[l] h i j", w, l), .spec = "[h] i j");
        if (!h) return;
        if (apart)
            table_apart(h, l, heads);
        else
            table(h, l, heads);
    }
    if (heads < 2 || heads > WIDEST) return;
    printf("\nsimilarity of heads: 1 if their rows are equal, 0 if they share no key\n");
    for (int64_t l = 0; l < layers; l++) print_similarity(eg_select("[l] h i j", w, l), l, heads);
}
