/* 13: an encoder and a decoder that translate dates, "March 5, 1998" -> "1998-03-05", and the cross
 * attention of the decoder: the year is read at the end of the input, month and day at its
 * beginning. Vaswani et al. 2017, fig. 1 */
#include <eingrad.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 32, IN = 18, OUT = 10, PAD = 0, START = 1 };
static const char symbols[] = "__0123456789-, ADFJMNOSabceghilmnoprstuvy";
static const char *const month[] = { "January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December" };
typedef struct pair {
    char in[32], out[16];
} pair;
typedef struct batch {
    eg_tensor *source, *keep, *so_far, *next;
} batch;

static pair date(void)
{
    int y = 1900 + rand() % 200, m = rand() % 12, d = 1 + rand() % 28;
    pair p;
    snprintf(p.in, sizeof p.in, rand() % 2 ? "%s %d, %d" : "%s %d %d", month[m], d, y);
    snprintf(p.out, sizeof p.out, "%d-%02d-%02d", y, m + 1, d);
    return p;
}
static int token(char c) { return c ? (int)(strchr(symbols + 2, c) - symbols) : PAD; }

static batch make(eg_ctx *cx, int n, const pair *p)
{
    int source[BATCH][IN] = { { 0 } }, so_far[BATCH][OUT], next[BATCH][OUT];
    for (int b = 0; b < n; b++) {
        for (int j = 0; p[b].in[j]; j++) source[b][j] = token(p[b].in[j]);
        for (int i = 0; i < OUT; i++) {
            next[b][i] = token(p[b].out[i]);
            so_far[b][i] = i ? next[b][i - 1] : START;
        }
    }
    eg_tensor *s = eg_from(cx, &source[0][0], n, IN);
    return (batch){ s, eg_ne(s, eg_zeros_like(s)), eg_from(cx, &so_far[0][0], n, OUT),
                    eg_from(cx, &next[0][0], n, OUT) };
}

int main(void)
{
    eg_ctx *cx = eg_open(.seed = 2);
    eg_params *p = eg_params_open(cx);
    eg_seq2seq *net =
        eg_seq2seq_new(p, "net", .vocabulary = sizeof symbols, .length = OUT, .source_length = IN,
                       .d_model = 64, .heads = 4, .layers = 1, .shared = true);
    eg_opt *op = eg_adam(p, .lr = 2e-3, .clip_norm = 1);
    pair some[BATCH], one = { "March 5, 1998", "1998-03-05" };
    for (int step = 0; step < 200 && !eg_error(cx); step++) {
        for (int b = 0; b < BATCH; b++) some[b] = date();
        eg_mark m = eg_push(cx);
        batch t = make(cx, BATCH, some);
        eg_tensor *loss = eg_cross_entropy(
            "b i [v]", eg_seq2seq_run(net, t.source, t.so_far, .source_keep = { "bj", t.keep }),
            t.next);
        eg_step(op, loss);
        if (step % 50 == 49) printf("step %d  loss %.3f\n", step + 1, eg_item(loss));
        eg_pop(cx, m);
    }
    eg_nograd(cx, true);
    for (int b = 0; b < BATCH; b++) some[b] = date();
    /* with the right answer as input, all next symbols are predicted in one call */
    batch t = make(cx, BATCH, some);
    eg_tensor *logits = eg_seq2seq_run(net, t.source, t.so_far, .source_keep = { "bj", t.keep }),
              *w[1];
    double right =
        eg_item(eg_mean(NULL, eg_cast(eg_eq(eg_argmax("b i [v]", logits), t.next), EG_F32)));
    t = make(cx, 1, &one);
    eg_seq2seq_run(net, t.source, t.so_far, .source_keep = { "bj", t.keep }, .memory_weights = w);
    const char *row[OUT], *column[IN];
    static char letter[OUT + IN][2];
    for (int k = 0; k < OUT; k++) {
        letter[k][0] = one.out[k];
        row[k] = letter[k];
    }
    for (int k = 0; k < (int)strlen(one.in); k++) {
        letter[OUT + k][0] = one.in[k];
        column[k] = letter[OUT + k];
    }
    if (!eg_error(cx))
        eg_heatmap_print(stdout,
                         eg_mean("[h] i j", eg_slice("h i [j]", eg_select("[b] h i j", w[0], 0), 0,
                                                     (int64_t)strlen(one.in), 1)),
                         .rows = row, .columns = column);
    printf("%.1f %% of the symbols of unseen dates are right\n", 100 * right);
    if (eg_error(cx)) fprintf(stderr, "%s\n", eg_error(cx));
    bool good = !eg_error(cx) && right > 0.9;
    eg_close(cx);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
