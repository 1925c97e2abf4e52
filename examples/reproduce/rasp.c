/* Four RASP programs (Weiss, Goldberg, Yahav 2021; Tracr: Lindner et al. 2023) as transformers
 * whose weights are set by hand: reverse, histogram, sort by frequency, balanced brackets. Each is
 * run on every input of up to 8 letters. */
#include "machine.h"

static void reverse(machine *m)
{
    copy(&m->layer[0], BOS, 1, U); /* all positions are selected */
    count(&m->layer[0], U, itself, N);
    fetch(&m->layer[1], INDEX, SQUARE);
    const int terms[] = { N, ONE, INDEX }; /* length − 1 − index */
    for (int k = 0; k < 3; k++) score(&m->layer[1], false, terms[k], k ? -1 : 1, -1, 0);
}

static void histogram(machine *m)
{
    equal_letters(&m->layer[0]);
    count(&m->layer[0], U, itself, OUT);
}

/* By the key 576 u + index: u falls with the frequency, and two of its values are at least 1/72
 * apart. A channel for each possible key says whether that of the place is at least as large. */
static void sort_by_frequency(machine *m)
{
    double key[KEYS];
    for (int k = 0; k < KEYS; k++) key[k] = 576.0 / (LONGEST + 1 - k / LONGEST) + k % LONGEST;
    equal_letters(&m->layer[0]);
    for (int k = 1; k < KEYS; k++)
        map(&m->layer[0], 2, (int[]){ U, INDEX }, (double[]){ 576, 1 }, 3,
            (double[]){ key[k - 1], key[k], 1e9 }, (double[]){ 0, 1, 1 }, STEP + k);
    for (int k = 0; k < KEYS; k++) { /* C where the query has key[k] and the other a smaller one */
        score(&m->layer[1], true, k ? STEP + k : ONE, 1, BOS, C);
        if (k + 1 < KEYS) score(&m->layer[1], false, STEP + k + 1, -1, -1, 0);
        if (!k) continue;
        score(&m->layer[1], false, -1, 0, ONE, C);
        score(&m->layer[1], false, -1, 0, STEP + k, -C);
    }
    copy(&m->layer[1], BOS, 1, V);
    count(&m->layer[1], V, itself, N);
    count(&m->layer[1], V, squared, N2);
    fetch(&m->layer[2], N, N2);
    score(&m->layer[2], false, INDEX, 1, -1, 0);
}

/* Causal. b = (opened − closed)/positions so far; a prefix has failed if b was below 0 anywhere. */
static void brackets(machine *m)
{
    copy(&m->layer[0], LETTER, 1, U);
    copy(&m->layer[0], LETTER + 1, -1, U);
    const double ninth = 1.0 / (LONGEST + 1), at[] = { -1, -ninth, 0, ninth, 1 };
    map(&m->layer[0], 1, (int[]){ U }, (double[]){ 1 }, 5, at, (double[]){ 1, 1, 0, 0, 0 }, N);
    map(&m->layer[0], 1, (int[]){ U }, (double[]){ 1 }, 5, at, (double[]){ 0, 0, 1, 0, 0 }, N2);
    score(&m->layer[1], true, ONE, 1, N, C);
    copy(&m->layer[1], N, 1, V); /* 1 or 0 */
    const int both[] = { N2, V };
    const double whole[] = { -1, 0, 1, 2 };
    map(&m->layer[1], 2, both, (double[]){ 1, -1 }, 3, whole, (double[]){ 0, 0, 1 }, OUT);
    map(&m->layer[1], 2, both, (double[]){ 0, 1 }, 2, whole + 1, (double[]){ 0, 1 }, OUT + 1);
    map(&m->layer[1], 2, both, (double[]){ 1, 1 }, 3, whole + 1, (double[]){ 1, 0, 0 }, OUT + 2);
}

/* What OUT … have to hold at each letter of x: a letter or a verdict as one 1, or a count. */
static void expect(const char *name, int n, const int *x, double (*out)[4])
{
    int often[LONGEST] = { 0 }, depth = 0, failed = 0;
    memset(out, 0, sizeof *out * (size_t)n);
    for (int k = 0; k < n * n; k++) often[k / n] += x[k / n] == x[k % n];
    for (int i = 0; i < n; i++) {
        int before = 0;
        for (int j = 0; j < n; j++) /* in the order by frequency */
            before += often[j] > often[i] || (often[j] == often[i] && j < i);
        depth += x[i] ? -1 : 1;
        failed |= depth < 0;
        double *at = *name == 'r'   ? &out[n - 1 - i][x[i]]
                     : *name == 'h' ? out[i]
                     : *name == 's' ? &out[before][x[i]]
                                    : &out[i][failed  ? 1
                                              : depth ? 2
                                                      : 0];
        *at = *name == 'h' ? often[i] : 1;
    }
}

typedef struct program {
    const char *name;
    void (*write)(machine *);
    int letters; /* in the alphabet */
    const char *where;
} program;
static const program programs[] = {
    { "reverse", reverse, 4, NULL },
    { "histogram", histogram, 4, NULL },
    { "sort by frequency", sort_by_frequency, 3, NULL },
    { "balanced brackets", brackets, 2, "j <= i" },
};

/* Returns how many inputs of n letters have an output that is off by more than 1e-6. */
static int wrong(eg_ctx *cx, const machine *m, const program *g, int n, int *inputs)
{
    const int all = (int)lround(pow(g->letters, n));
    int bad = 0;
    *inputs += all;
    for (int first = 0; first < all && !eg_error(cx); first += 1024) {
        const int count = all - first < 1024 ? all - first : 1024;
        static int x[1024][LONGEST + 1];
        list(g->letters, n, first, count, x);
        eg_mark mark = eg_push(cx);
        eg_tensor *in = eg_slice("b [l]", eg_from(cx, &x[0][0], count, LONGEST + 1), 0, n + 1, 1);
        const double *y = eg_f64(compute(m, in, g->where));
        for (int b = 0; y && b < count; b++) {
            double want[LONGEST][4], off = 0;
            expect(g->name, n, x[b] + 1, want);
            for (int k = 0; k < 4 * n; k++)
                off = fmax(off, fabs(y[(b * (n + 1) + 1) * 4 + k] - want[0][k]));
            bad += !(off < 1e-6);
        }
        eg_pop(cx, mark);
    }
    return bad;
}

static double run(const setting *s)
{
    int bad = 0, inputs = 0, off = 0;
    eg_ctx *cx = eg_open(.dtype = EG_F64, .threads = s->threads);
    eg_nograd(cx, true);
    for (int k = 0; k < 4 && !eg_error(cx); k++) {
        eg_mark mark = eg_push(cx);
        machine m = build(cx);
        if (!eg_error(cx)) programs[k].write(&m);
        inputs = off = 0;
        for (int n = 1; n <= (s->small ? 5 : LONGEST); n++)
            off += wrong(cx, &m, &programs[k], n, &inputs);
        printf("%s: %d of %d inputs wrong\n", programs[k].name, off, inputs);
        bad += off;
        eg_pop(cx, mark);
    }
    return close_with(cx, bad);
}

int main(int argc, char **argv)
{
    const study y = { .name = "rasp",
                      .published = "RASP programs compile to weights that compute them exactly",
                      .source = "Weiss et al. 2021; Lindner et al. 2023",
                      .measure = "inputs with a wrong output",
                      .no_seeds = true,
                      .run = run };
    return reproduce(&y, argc, argv);
}
