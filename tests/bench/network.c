/* network.c: the cost of the gradients of einsums of many operands, relative to the forward pass:
 * in multiply-adds, counted, and in processor time. "each alone" is one einsum of the cotangent and
 * the other operands for each gradient. Prints the table of docs/measurements.md. */
#include <eingrad.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MOST = 24, TURNS = 15 };
typedef struct net {
    const char *name;
    int n;
    char term[MOST][8], out[4], spec[256], slope[MOST][256];
    int64_t size;
} net;
static void put(char *term, int k)
{
    const size_t n = strlen(term);
    term[n] = (char)(k < 26 ? 'a' + k : 'A' + k - 26);
}

/* chain ab,bc,cd->ad; ring ab,bc,ca->; tree: node k has the edge above it and those below; ladder:
 * two chains with rungs between them */
static void make(net *q, int n)
{
    const char kind = *q->name;
    memset(q->term, 0, sizeof q->term);
    memset(q->out, 0, sizeof q->out);
    q->n = n;
    for (int k = 0; k < n; k++) {
        if (kind == 'c' || kind == 'r') {
            put(q->term[k], k);
            put(q->term[k], kind == 'r' && k == n - 1 ? 0 : k + 1);
        } else if (kind == 't') {
            put(q->term[k], k);
            for (int child = 2 * k + 1; child < 2 * k + 3 && child < n; child++)
                put(q->term[k], child);
        } else {
            if (k > 1) put(q->term[k], k - 2);
            if (k < n - 2) put(q->term[k], k);
            put(q->term[k], 26 + k / 2);
        }
    }
    if (kind == 'c') put(q->out, 0), put(q->out, n);
    if (kind == 't') put(q->out, 0);
    char *s = q->spec;
    for (int k = 0; k < n; k++) s += sprintf(s, "%s%s", k ? "," : "", q->term[k]);
    sprintf(s, "->%s", q->out);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
typedef enum what { FORWARD, ALL, ALONE, WHATS } what;
/* The forward pass, not recorded; the recorded forward pass and all gradients; each gradient
 * alone. */
static void run(eg_ctx *cx, const net *q, eg_tensor *const *x, eg_tensor *g, what w)
{
    eg_tensor *dx[MOST], *in[MOST];
    const eg_mark m = eg_push(cx);
    eg_nograd(cx, w != ALL);
    eg_tensor *y = w == ALONE ? NULL : eg_einsum_n(q->spec, q->n, x);
    eg_nograd(cx, true);
    if (w == ALL) eg_grad(y, g, q->n, x, dx);
    for (int i = 0; i < q->n && w == ALONE; i++) {
        int n = 0;
        in[n++] = g;
        for (int k = 0; k < q->n; k++)
            if (k != i) in[n++] = x[k];
        eg_einsum_n(q->slope[i], n, in);
    }
    eg_nograd(cx, false);
    eg_pop(cx, m);
}

/* Makes a separate context for each, so that none evicts the plans of another one. */
static void prepare(eg_ctx *cx, net *q, eg_tensor **x, eg_tensor **g)
{
    for (int k = 0; k < q->n; k++) {
        int64_t dim[8];
        const int rank = (int)strlen(q->term[k]);
        for (int r = 0; r < rank; r++) dim[r] = q->size;
        x[k] = eg_normal_n(cx, EG_F32, 0, 0.2, rank, dim);
    }
    const eg_explained *e = eg_explain_with(&(eg_einsum_args){
        .size = sizeof(eg_einsum_args), .spec = q->spec, .count = q->n, .operands = x });
    if (!e) return;
    for (int k = 0; k < q->n; k++)
        snprintf(q->slope[k], sizeof *q->slope, "%s", strchr(e->gradient[k], ':') + 1);
    *g = eg_ones_like(eg_einsum_n(q->spec, q->n, x));
}
static void measure(net *q)
{
    eg_ctx *cx[WHATS];
    eg_tensor *x[WHATS][MOST], *g[WHATS];
    double work[WHATS], best[WHATS] = { 1e9, 1e9, 1e9 };
    for (int w = 0; w < WHATS; w++) {
        prepare(cx[w] = eg_open(.threads = 1, .seed = 1), q, x[w], &g[w]);
        run(cx[w], q, x[w], g[w], (what)w);
        const uint64_t start = eg_stats(cx[w]).multiply_adds;
        run(cx[w], q, x[w], g[w], (what)w);
        work[w] = (double)(eg_stats(cx[w]).multiply_adds - start);
    }
    for (int turn = 0; turn < TURNS; turn++)
        for (int w = 0; w < WHATS; w++) {
            const int times = 1 + (int)(4e6 / work[w]);
            const double start = seconds();
            for (int k = 0; k < times; k++) run(cx[w], q, x[w], g[w], (what)w);
            const double each = (seconds() - start) / times;
            if (each < best[w]) best[w] = each;
        }
    printf("| %s | %d | %.0f | %.2f | %.2f | %.1f | %.2f | %.2f |\n", q->name, q->n, work[FORWARD],
           work[ALL] / work[FORWARD] - 1, work[ALONE] / work[FORWARD], 1e6 * best[FORWARD],
           best[ALL] / best[FORWARD] - 1, best[ALONE] / best[FORWARD]);
    fflush(stdout);
    for (int w = 0; w < WHATS; w++) {
        if (eg_error(cx[w])) fprintf(stderr, "%s\n", eg_error(cx[w]));
        eg_close(cx[w]);
    }
}

int main(void)
{
    static net nets[] = { { .name = "chain", .size = 32 },
                          { .name = "ring", .size = 32 },
                          { .name = "tree", .size = 32 },
                          { .name = "ladder", .size = 8 } };
    printf("| network | N | multiply-adds, forward | gradients | each alone | µs, forward | "
           "gradients | each alone |\n|---|---|---|---|---|---|---|---|\n");
    for (size_t k = 0; k < sizeof nets / sizeof *nets; k++)
        for (int n = 4; n <= MOST; n += n < 8 ? 4 : 8) {
            make(&nets[k], n);
            measure(&nets[k]);
        }
    return 0;
}
