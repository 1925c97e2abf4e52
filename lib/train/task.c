/* task.c: sequence tasks, one row each. An example is a pure function of (seed, number), so that a
 * run can start anywhere in the stream. */
#include <eingrad/train.h>
#include "data.h"
#include <string.h>

/* -- rng: a counter-based hash, Stafford's variant 13 of the murmur finaliser (as in SplitMix64,
 * Steele et al. 2014) */
uint64_t eg__train_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Lemire 2019: the high half of bits × below; the (2³² mod below) smallest low halves are
 * rejected. */
uint32_t eg_rng_below(eg_rng *rng, uint32_t below)
{
    while (rng) {
        uint64_t bits =
            eg__train_mix(eg__train_mix(eg__train_mix(rng->seed) + rng->number) + rng->count++);
        uint64_t wide = (bits >> 32) * below;
        if (below == 0 || (uint32_t)wide >= -below % below) return (uint32_t)(wide >> 32);
    }
    return 0;
}

static int roll(eg_rng *rng, int below) { return (int)eg_rng_below(rng, (uint32_t)below); }

static void shuffle(eg_rng *rng, int count, int *x)
{
    for (int k = count - 1; k > 0; k--) {
        int other = roll(rng, k + 1), t = x[k];
        x[k] = x[other];
        x[other] = t;
    }
}

static void random_input(eg_rng *rng, eg_example *e, int length, int symbols)
{
    e->inputs = length;
    for (int k = 0; k < length; k++) e->input[k] = roll(rng, symbols);
}

/* -- the tasks -------------------------------------------------------------------------------- */
static void copy(eg_rng *rng, eg_example *e)
{
    random_input(rng, e, 4 + roll(rng, 13), 26);
    e->outputs = e->inputs;
    memcpy(e->output, e->input, sizeof e->input);
}

static void reverse(eg_rng *rng, eg_example *e)
{
    random_input(rng, e, 4 + roll(rng, 13), 26);
    e->outputs = e->inputs;
    for (int k = 0; k < e->inputs; k++) e->output[k] = e->input[e->inputs - 1 - k];
}

static void task_sort(eg_rng *rng, eg_example *e)
{
    int count[10] = { 0 };
    random_input(rng, e, 10, 10);
    for (int k = 0; k < 10; k++) count[e->input[k]]++;
    e->outputs = 0;
    for (int s = 0; s < 10; s++)
        while (count[s]-- > 0) e->output[e->outputs++] = s;
}

static void addition(eg_rng *rng, eg_example *e)
{
    int a = roll(rng, 1000), b = roll(rng, 1000), sum = a + b;
    const int32_t in[] = { a / 100, a / 10 % 10, a % 10, 10, b / 100, b / 10 % 10, b % 10 };
    e->inputs = 7;
    memcpy(e->input, in, sizeof in);
    for (e->outputs = 0; e->outputs < 4; sum /= 10) e->output[e->outputs++] = sum % 10;
}

static void parity(eg_rng *rng, eg_example *e)
{
    random_input(rng, e, 16, 2);
    e->outputs = 16;
    for (int k = 0, odd = 0; k < 16; k++) e->output[k] = odd ^= e->input[k];
}

enum { PAIRS = 6, KEYS = 13, VALUES = 10 };
/* recall: 6 pairs of a key and a value, then one of the keys. */
static void recall(eg_rng *rng, eg_example *e)
{
    int key[KEYS];
    for (int k = 0; k < KEYS; k++) key[k] = k;
    shuffle(rng, KEYS, key);
    for (int k = 0; k < PAIRS; k++) {
        e->input[2 * k] = key[k];
        e->input[2 * k + 1] = KEYS + roll(rng, VALUES);
    }
    int asked = roll(rng, PAIRS);
    e->input[2 * PAIRS] = key[asked];
    e->output[0] = e->input[2 * asked + 1];
    e->inputs = 2 * PAIRS + 1;
    e->outputs = 1;
}

static int times(const eg_example *e, int length, int symbol)
{
    int n = 0;
    for (int k = 0; k < length; k++) n += e->input[k] == symbol;
    return n;
}

enum { INDUCTION = 32 };
/* induction: the last symbol occurred exactly once before; the answer is the symbol after it
 * there. */
static void induction(eg_rng *rng, eg_example *e)
{
    int once[INDUCTION], count;
    do { /* positions, before the last two, of symbols that occur once */
        random_input(rng, e, INDUCTION, 16);
        count = 0;
        for (int k = 0; k < INDUCTION - 2; k++)
            if (times(e, INDUCTION - 1, e->input[k]) == 1) once[count++] = k;
    } while (!count);
    int at = once[roll(rng, count)];
    e->input[INDUCTION - 1] = e->input[at];
    e->output[0] = e->input[at + 1];
    e->outputs = 1;
}

static void majority(eg_rng *rng, eg_example *e)
{
    for (;;) {
        int most = 0, ties = 0, count[4];
        random_input(rng, e, 16, 4);
        for (int s = 0; s < 4; s++) count[s] = times(e, 16, s);
        for (int s = 1; s < 4; s++) most = count[s] > count[most] ? s : most;
        for (int s = 0; s < 4; s++) ties += count[s] == count[most];
        e->output[0] = most;
        e->outputs = 1;
        if (ties == 1) return;
    }
}

#define LETTERS "abcdefghijklmnopqrstuvwxyz"
static const eg_task tasks[] = {
    { "reverse", "4 to 16 letters backwards", LETTERS, 16, 16, false, false, reverse, 3e-3, 50,
      600 },
    { "copy", "4 to 16 letters as they are", LETTERS, 16, 16, false, false, copy, 2e-3, 20, 300 },
    { "sort", "10 digits in order", "0123456789", 10, 10, false, false, task_sort, 3e-3, 50, 500 },
    { "addition", "123+456: two numbers of 3 digits; the sum has 4, lowest digit first: 9750",
      "0123456789+", 7, 4, true, false, addition, 3e-3, 100, 2000 },
    { "parity", "16 bits; after each, is the number of ones so far odd?", "01", 16, 16, true, false,
      parity, 2e-3, 50, 600 },
    { "recall", "6 pairs of a letter and a digit, then a letter: its digit",
      "abcdefghijklm0123456789", 2 * PAIRS + 1, 1, true, true, recall, 2e-3, 50, 1500 },
    { "induction", "32 of 16 letters; the last one occurred once before: what came after it?",
      "abcdefghijklmnop", INDUCTION, 1, true, true, induction, 3e-3, 100, 2000 },
    { "majority", "16 of 4 letters: the most frequent one (no ties)", "abcd", 16, 1, true, false,
      majority, 2e-3, 20, 300 },
};
enum { TASKS = sizeof tasks / sizeof *tasks };

const eg_task *eg_task_at(int k) { return k >= 0 && k < TASKS ? &tasks[k] : NULL; }

const eg_task *eg_task_find(const char *name)
{
    for (int k = 0; name && k < TASKS; k++)
        if (!strcmp(name, tasks[k].name)) return &tasks[k];
    return NULL;
}
