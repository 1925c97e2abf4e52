/* look.c: what a trained model says, where it looks, and whether its gradients are right. */
#include "trainer.h"
#include <eingrad/grad.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Evaluation as a scope: no history, no dropout, draws put back. */
typedef struct quiet { bool training, nograd; uint64_t draws; } quiet;
static quiet quiet_begin(eg_ctx *cx)
{
    quiet q = { eg_training(cx), eg_nograd(cx, true), eg_draws(cx) };
    eg_eval(cx);
    return q;
}
static void quiet_end(eg_ctx *cx, quiet q)
{
    eg_set_draws(cx, q.draws);
    eg_nograd(cx, q.nograd);
    if (q.training)
        eg_train(cx);
}

/* -- predict ---------------------------------------------------------------------------------------------------------------------- */
static int64_t prompt_of(eg_trainer *t, const char *input, int32_t *tokens)       /* input, SEP; −1 after an error   */
{
    int64_t room = t->decoder ? t->longest - t->separator : t->longest, n;
    if ((n = eg_data_read(t->data, input, (int)(room < EG_LONGEST ? room : EG_LONGEST), tokens)) < 0)
        return -1;
    if (n == 0) {
        eg_fail(t->cx, "%s: the input is empty", eg_data_name(t->data));
        return -1;
    }
    if (t->separator)
        tokens[n++] = EG_SEP;
    return n;
}

static eg_tensor *logits_of(eg_trainer *t, int64_t length, const int32_t *tokens, eg_tensor **weights)
{
    return eg_transformer_run(t->net, eg_from_n(t->cx, EG_I32, tokens, 2, (int64_t[]){ 1, length }), .where = t->decoder ? "j <= i" : NULL,
                              .weights = weights);
}

/* tokens: the prompt (its number of tokens in *prompt), then the answer; returns how many in all, -1 after an error */
static int64_t answer(eg_trainer *t, const char *input, int32_t *tokens, int64_t *prompt)
{
    int64_t n = prompt_of(t, input, tokens), first = n;
    bool more = n > 0;
    quiet q = quiet_begin(t->cx);
    while (more && !eg_error(t->cx)) {
        eg_mark m = eg_push(t->cx);
        eg_tensor *logits = logits_of(t, t->decoder ? n : first, tokens, NULL);
        int32_t next = eg__trainer_best(t, logits, t->decoder ? n - 1 : n - first);
        for (; !t->decoder && n < 2 * first - 1; next = eg__trainer_best(t, logits, n - first))
            tokens[n++] = next;
        more = t->decoder && next != EG_STOP && n < t->longest;
        if (next != EG_STOP)
            tokens[n++] = next;
        eg_pop(t->cx, m);
    }
    quiet_end(t->cx, q);
    *prompt = first;
    return eg_error(t->cx) ? -1 : n;
}

const char *eg_trainer_predict(eg_trainer *t, const char *input)
{
    int32_t tokens[3 * EG_LONGEST];
    int64_t prompt, n = t && !eg_error(t->cx) ? answer(t, input, tokens, &prompt) : -1;
    if (n < 0)
        return NULL;
    size_t room = eg_data_write(t->data, (int)(n - prompt), tokens + prompt, NULL, 0) + 1;
    if (room > t->answer_room) {
        t->answer = eg_owner_alloc(t->owner, 2 * room);
        t->answer_room = t->answer ? 2 * room : 0;
    }
    if (t->answer)
        eg_data_write(t->data, (int)(n - prompt), tokens + prompt, t->answer, t->answer_room);
    return t->answer;
}

/* -- attend ------------------------------------------------------------------------------------------------------------------------ */
eg_tensor *eg_trainer_attend(eg_trainer *t, const char *input, const char *const **labels)
{
    int32_t tokens[3 * EG_LONGEST];
    if (!t || eg_error(t->cx))
        return NULL;
    int64_t prompt, n = t->decoder ? answer(t, input, tokens, &prompt) : prompt_of(t, input, tokens);
    if (n < 0)
        return NULL;
    n = n < t->longest ? n : t->longest;            /* an answer that never stops                                  */
    quiet q = quiet_begin(t->cx);
    logits_of(t, n, tokens, t->weights);
    eg_tensor *all = eg_contiguous(eg_squeeze(eg_stack_n(0, (int)t->net->layers, t->weights), 1));      /* l b h i j, b = 1 */
    quiet_end(t->cx, q);
    for (int64_t k = 0; k < n; k++)
        t->label[k] = eg_data_symbol(t->data, tokens[k]);
    if (labels)
        *labels = t->label;
    return eg_error(t->cx) ? NULL : all;
}

/* -- gradients ---------------------------------------------------------------------------------------------------------------------- */
enum { ROWS = 8, DIRECTIONS = 3 };
typedef struct probe { eg_trainer *t; eg_transformer *net; eg_params *params; eg__batch batch; } probe;

static eg_tensor *loss_of(const probe *p)
{
    eg_tensor *target, *logits = eg__trainer_logits(p->t, p->net, p->batch, &target, NULL);
    return eg_cross_entropy("b l [v]", logits, target, .ignore = EG_OFF);
}

/* θ ← θ₀ + step · sign / √n, and the loss there */
static double loss_at(const probe *p, eg_tensor *x, const double *from, const double *sign, double step)
{
    double *at = eg_mut_f64(x);
    for (int64_t k = 0, n = eg_size(x); at && k < n; k++)
        at[k] = from[k] + step * sign[k];
    eg_mark m = eg_push(p->t->cx);
    bool was = eg_nograd(p->t->cx, true);
    double loss = eg_item(loss_of(p));
    eg_nograd(p->t->cx, was);
    eg_pop(p->t->cx, m);
    return loss;
}

/* (4 D(δ) − D(2δ))/3 with D(δ) = (f(δ) − f(−δ))/2δ: error O(δ⁴). Richardson 1911 */
static double slope(const probe *p, eg_tensor *x, const double *from, const double *sign)
{
    const double d = 1e-3;
    double near = loss_at(p, x, from, sign, d) - loss_at(p, x, from, sign, -d);
    double far = loss_at(p, x, from, sign, 2 * d) - loss_at(p, x, from, sign, -2 * d);
    return (4 * near / (2 * d) - far / (4 * d)) / 3;
}

static bool compare(const probe *p, eg_tensor **g, double (*pair)[2])      /* for each tensor and direction: analytic, numeric */
{
    int count = eg_params_count(p->params);
    for (int k = 0; k < count; k++) {
        eg_mark m = eg_push(p->t->cx);
        eg_tensor *x = eg_params_at(p->params, k)->x;
        int64_t n = eg_size(x);
        const double *a = eg_f64(g[k]), *from = eg_f64(eg_copy(x));
        double *sign = eg_mut_f64(eg_zeros_like(x));
        for (int r = 0; r < DIRECTIONS && sign && from && a; r++) {
            double sum = 0;
            eg_dice dice = { 1, (uint64_t)(k * DIRECTIONS + r), 0 };
            for (int64_t i = 0; i < n; i++) {
                sign[i] = (eg_roll(&dice, 2) ? 1 : -1) / sqrt((double)n);
                sum += a[i] * sign[i];
            }
            pair[k * DIRECTIONS + r][0] = sum;
            pair[k * DIRECTIONS + r][1] = slope(p, x, from, sign);
        }
        if (from && sign)
            loss_at(p, x, from, sign, 0);           /* puts θ₀ back                                                */
        eg_pop(p->t->cx, m);
        if (eg_error(p->t->cx))
            return false;
    }
    return true;
}

static bool twin(probe *p)                          /* the model in f64, with its numbers                          */
{
    eg_trainer *t = p->t;
    p->params = eg_params_open(t->cx, .dtype = EG_F64);
    p->net = eg_transformer_new(p->params, "", .vocabulary = t->vocabulary, .length = t->longest, .d_model = t->o.d_model,
                                .heads = t->o.heads, .layers = t->o.layers, .width = t->o.width);
    int64_t rows = t->tests < ROWS ? t->tests : ROWS;
    p->batch = eg__trainer_fill(t, 0, rows < t->o.batch ? rows : t->o.batch, eg__trainer_test);
    return p->net && p->batch.rows && !eg_params_copy(p->params, t->params);
}

int eg_trainer_check(eg_trainer *t, eg_trainer_check_report *out)
{
    if (!t || eg_error(t->cx))
        return -1;
    uint64_t draws = eg_draws(t->cx);
    bool training = eg_training(t->cx), was = eg_nograd(t->cx, false);
    eg_eval(t->cx);
    eg_mark m = eg_push(t->cx);
    probe p = { .t = t };
    eg_trainer_check_report r = { 0 };
    eg_owner *owner = eg_owner_open(t->cx);
    int count = eg_params_count(t->params);
    eg_tensor **x = owner ? eg_owner_alloc(owner, 2 * (size_t)count * sizeof *x) : NULL, **g = x ? x + count : NULL;
    double (*pair)[2] = x ? eg_owner_alloc(owner, (size_t)count * DIRECTIONS * sizeof *pair) : NULL;
    if (pair && twin(&p)) {
        for (int k = 0; k < count; k++)
            x[k] = eg_params_at(p.params, k)->x;
        double largest = 0;
        bool done = !eg_grad(loss_of(&p), NULL, count, x, g) && compare(&p, g, pair);
        for (int k = 0; done && k < count * DIRECTIONS; k++)
            largest = fmax(largest, fabs(pair[k][1]));
        for (int k = 0; done && k < count; k++) {
            bool right = true;
            for (int d = 0; d < DIRECTIONS; d++) {
                const double *one = pair[k * DIRECTIONS + d];
                double error = largest > 0 ? fabs(one[0] - one[1]) / largest : fabs(one[0]);
                right &= error <= 1e-6;
                if (!(error <= r.worst)) {
                    r.worst = error;
                    r.worst_name = eg_params_at(t->params, k)->name;
                }
            }
            r.entries += eg_size(x[k]);
            r.right += right ? eg_size(x[k]) : 0;
        }
    }
    eg_pop(t->cx, m);
    eg_nograd(t->cx, was);
    if (training)
        eg_train(t->cx);
    eg_set_draws(t->cx, draws);
    if (out)
        *out = r;
    return eg_error(t->cx) ? -1 : 0;
}
