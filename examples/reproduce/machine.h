/* A transformer whose weights are set one by one, for rasp.c. The residual stream is a list of
 * named quantities (channels). A head selects with scores of 0 and of C, whose softmax is uniform
 * over what is selected; a ReLU layer computes any function of finitely many values, by linear
 * interpolation. There are no norms. */
#ifndef MACHINE_H
#define MACHINE_H
#include "reproduce.h"

enum { LONGEST = 8, LETTERS = 4, C = 60, KEYS = LONGEST * LONGEST, DV = 4, FF = 128, LAYERS = 3 };
enum { ONE, BOS, INDEX, SQUARE, LETTER, U = LETTER + LETTERS, V, N, N2, OUT, STEP = OUT + 4 };
enum { M = STEP + KEYS };
typedef struct layer {
    eg_mha *at;
    eg_ffn *ff;
    int slots, values, neurons; /* numbers of those in use */
    bool used;
} layer;
typedef struct machine {
    eg_params *p;
    eg_embedding *letters; /* row LETTERS is BOS */
    eg_positions *positions;
    layer layer[LAYERS];
} machine;

static inline machine build(eg_ctx *cx)
{
    machine m = { .p = eg_params_open(cx, .dtype = EG_F64) };
    m.letters = eg_embedding_new(m.p, "letters", .count = LETTERS + 1, .d_model = M);
    m.positions = eg_positions_new(m.p, "places", .length = LONGEST + 1, .d_model = M);
    for (int k = 0; k < LAYERS; k++) {
        eg_params *p = eg_params_under(m.p, (const char *[]){ "0", "1", "2" }[k]);
        m.layer[k].at = eg_mha_new(p, "at", .d_model = M, .heads = 1, .d_k = KEYS, .d_v = DV,
                                   .scale = 1, .no_bias = true);
        m.layer[k].ff = eg_ffn_new(p, "ff", .d_model = M, .width = FF, .activation = eg_relu);
    }
    for (int k = 0; k < eg_params_count(m.p); k++) eg_fill(eg_params_at(m.p, k)->x, 0);
    if (eg_error(cx)) return m;
    double *e = eg_mut_f64(m.letters->table), *s = eg_mut_f64(m.positions->table);
    for (int v = 0; v < LETTERS; v++) e[v * M + LETTER + v] = 1;
    e[LETTERS * M + BOS] = 1;
    for (int i = 0; i <= LONGEST; i++) { /* letters are counted from 0; BOS has index −1 */
        s[i * M + ONE] = 1;
        s[i * M + INDEX] = i - 1;
        s[i * M + SQUARE] = (i - 1) * (i - 1);
    }
    return m;
}

/* Adds by · (channel q of the query) · (channel k of the key) to the scores. A slot is one product
 * of two sums; with the slot of the last call, terms are added to both sums. */
static inline void score(layer *l, bool new_slot, int q, double by_q, int k, double by_k)
{
    const int64_t slot = (l->slots += new_slot) - 1;
    if (q >= 0) eg_mut_f64(l->at->W_q)[q * KEYS + slot] += by_q;
    if (k >= 0) eg_mut_f64(l->at->W_k)[k * KEYS + slot] += by_k;
}

/* Adds the mean of a channel over what is selected to another one. */
static inline void copy(layer *l, int from, double by, int to)
{
    l->used = true;
    eg_mut_f64(l->at->W_v)[from * DV + l->values] = by;
    eg_mut_f64(l->at->W_o)[l->values++ * M + to] = 1;
}

/* Adds to `to` the function of Σ by[k] · channel from[k] that has value[n] at ascending at[n] and
 * is linear in between; below the first point it is constant. */
static inline void map(layer *l, int terms, const int *from, const double *by, int points,
                       const double *at, const double *value, int to)
{
    double *up = eg_mut_f64(l->ff->up->weight), *bias = eg_mut_f64(l->ff->up->bias);
    double *down = eg_mut_f64(l->ff->down->weight), slope = 0;
    eg_mut_f64(l->ff->down->bias)[to] += value[0];
    for (int n = 0; n + 1 < points; n++) {
        const double next = (value[n + 1] - value[n]) / (at[n + 1] - at[n]);
        if (next == slope) continue;
        for (int k = 0; k < terms; k++) up[from[k] * FF + l->neurons] = by[k];
        bias[l->neurons] = -at[n];
        down[l->neurons++ * M + to] = next - slope;
        slope = next;
    }
}

/* to += f(1/u − 1), where u = 1/9 … 1 is in channel `from` */
static inline void count(layer *l, int from, double (*f)(double), int to)
{
    double at[LONGEST + 1], value[LONGEST + 1];
    for (int n = 0; n <= LONGEST; n++) at[n] = 1.0 / (LONGEST + 1 - n), value[n] = f(LONGEST - n);
    map(l, 1, &from, (double[]){ 1 }, LONGEST + 1, at, value, to);
}
static inline double itself(double n) { return n; }
static inline double squared(double n) { return n * n; }

/* aggregate(select(a, b, ==), letters): scores −C (a − b)² without the term that only depends on
 * the query, for b and b² of the key in two channels; terms of a are added by the caller. */
static inline void fetch(layer *l, int b, int b2)
{
    score(l, true, ONE, 1, b2, -C);
    score(l, false, -1, 0, BOS, -100 * C); /* BOS is not a letter */
    score(l, true, -1, 0, b, 2 * C);
    for (int v = 0; v < LETTERS; v++) copy(l, LETTER + v, 1, OUT + v);
}

/* selector_width(select(letters, letters, ==)) as u; BOS selects only itself */
static inline void equal_letters(layer *l)
{
    for (int v = 0; v < LETTERS; v++) {
        score(l, true, LETTER + v, 1, LETTER + v, C);
        score(l, false, -1, 0, BOS, C);
    }
    score(l, true, BOS, 1, BOS, C);
    copy(l, BOS, 1, U);
}

/* Returns channels OUT … OUT + 3 at all positions: x + attention, then x + feed-forward, layer by
 * layer. */
static inline eg_tensor *compute(const machine *m, eg_tensor *letters, const char *where)
{
    eg_tensor *x = eg_positions_run(m->positions, eg_embedding_run(m->letters, letters));
    for (int k = 0; k < LAYERS && m->layer[k].used; k++) {
        x = eg_add(x, eg_mha_run(m->layer[k].at, x, .where = where));
        x = eg_add(x, eg_ffn_run(m->layer[k].ff, x));
    }
    return eg_slice("b l [m]", x, OUT, OUT + 4, 1);
}

/* Writes the inputs of n letters with the numbers first … first + count − 1, each after BOS. */
static inline void list(int letters, int n, int first, int count, int (*x)[LONGEST + 1])
{
    for (int b = 0; b < count; b++) {
        int number = first + b;
        x[b][0] = LETTERS;
        for (int i = 1; i <= n; i++, number /= letters) x[b][i] = number % letters;
    }
}
#endif
