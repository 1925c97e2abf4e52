/* look.c: what a trained model says, and where it looks. */
#include "trainer.h"
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

/* -- asking ------------------------------------------------------------------------------------------------------------------------- */
/* The tokens that an answer follows: input SEP, or of a text the prompt as it is. Their number; −1 after an error. */
static int64_t prompt_of(eg_trainer *t, const char *input, int32_t *tokens, int64_t room)
{
    bool text = t->data->free_text;
    int64_t n = text && (!input || !*input) ? 0 : eg_data_read(t->data, input, (int)room, tokens);
    if (n == 0 && text && (n = eg_data_read(t->data, "\n", 1, tokens)) < 0) {      /* as after a line's end */
        eg_clear(t->cx);
        tokens[0] = EG_FIRST, n = 1;
    }
    if (n == 0)
        eg_fail(t->cx, "%s: the input is empty", eg_data_name(t->data));
    if (n > 0 && t->separator)
        tokens[n++] = EG_SEP;
    return n > 0 ? n : -1;
}

static int64_t input_room(const eg_trainer *t)
{
    int64_t room = t->longest - t->separator;
    return t->data->free_text || room < EG_LONGEST ? room : EG_LONGEST;
}

static eg_tensor *logits_of(eg_trainer *t, int64_t rows, int64_t length, const int32_t *tokens, eg_tensor **weights)
{
    return t->kind->logits(&t->net, t->cx, &(eg__batch){ .rows = rows, .length = length, .tokens = tokens }, weights);
}

/* -- decoding ------------------------------------------------------------------------------------------------------------------------ */
/* How many of n tokens of a text the model sees: all up to its context, then from half of it up to all of it again, so that most steps add
 * one place behind those that a cache holds. */
static int64_t seen(int64_t n, int64_t context)
{
    int64_t half = context / 2;
    return n <= context ? n : half + 1 + (n - context - 1) % (context - half);
}

typedef struct asking { eg_trainer *t; int32_t *window; } asking;
static eg_tensor *next(void *user, const eg_prefixes *p)
{
    const asking *a = user;
    int64_t n = seen(p->length, a->t->longest);
    for (int64_t r = 0; r < p->rows; r++)
        memcpy(a->window + r * n, p->tokens + (r + 1) * p->length - n, (size_t)n * sizeof *a->window);
    return eg_select(logits_of(a->t, p->rows, n, a->window, NULL), 1, n - 1);
}

/* in the open scope; NULL after an error */
static const eg_decoded *decoded(eg_trainer *t, const int32_t *tokens, int64_t n, const eg_generate_args *o)
{
    bool text = t->data->free_text, plain = o->temperature == 0 && !o->top_k && o->top_p == 0 && o->beam <= 1;
    int64_t most = text ? INT32_MAX / 2 : t->longest - n + 1, longest = o->length ? o->length : text ? 200 : most;
    eg_owner *owner = eg_owner_open(t->cx);
    asking a = { t, NULL };
    if (longest < 1 || longest > INT32_MAX / 2)
        eg_fail(t->cx, "generate: the length must be from 1 to 2^30, not %lld", (long long)longest);
    if (o->beam < 0 || o->beam > 4096)
        eg_fail(t->cx, "generate: beam must be from 1 to 4096, not %lld", (long long)o->beam);
    if (owner && !eg_error(t->cx))
        a.window = eg_owner_alloc(owner, (size_t)(o->beam > 1 ? o->beam : 1) * (size_t)t->longest * sizeof *a.window);
    if (!a.window)
        return NULL;
    return eg_decode(.cx = t->cx, .next = next, .user = &a, .prompt = tokens, .prompts = n, .longest = longest < most ? longest : most,
                     .least = EG_FIRST, .end = text ? 0 : EG_STOP, .temperature = text && plain ? 1 : o->temperature, .top_k = o->top_k,
                     .top_p = o->top_p, .seed = o->seed, .beam = o->beam, .length_power = o->length_power);
}

static const char *written(eg_trainer *t, const int32_t *tokens, int64_t count, size_t *bytes)
{
    size_t n = eg_data_write(t->data, (int)count, tokens, NULL, 0);
    if (n + 1 > t->answer_room) {
        t->answer = eg_owner_alloc(t->owner, 2 * (n + 1));
        t->answer_room = t->answer ? 2 * (n + 1) : 0;
    }
    if (t->answer)
        eg_data_write(t->data, (int)count, tokens, t->answer, t->answer_room);
    if (bytes)
        *bytes = n;
    return t->answer;
}

const char *eg_trainer_generate_with(const eg_generate_args *given)
{
    eg_generate_args o = { .size = sizeof o };
    if (given)
        memcpy(&o, given, given->size < sizeof o ? given->size : sizeof o);
    eg_trainer *t = o.trainer;
    if (!t || eg_error(t->cx))
        return NULL;
    if (!t->kind->writes) {
        eg_fail(t->cx, "generate: an encoder answers all places at once; ask it with eg_trainer_predict");
        return NULL;
    }
    if (!o.prompt && !t->data->free_text) {
        eg_fail(t->cx, "generate: the prompt is NULL");
        return NULL;
    }
    const char *answer = NULL;
    quiet q = quiet_begin(t->cx);
    eg_mark m = eg_push(t->cx);
    eg_owner *owner = eg_owner_open(t->cx);
    size_t room = o.prompt && t->data->free_text ? strlen(o.prompt) : (size_t)input_room(t);
    int32_t *tokens = owner ? eg_owner_alloc(owner, (room + 2) * sizeof *tokens) : NULL;
    int64_t n = tokens ? prompt_of(t, o.prompt, tokens, (int64_t)room) : -1;
    const eg_decoded *d = n < 0 ? NULL : decoded(t, tokens, n, &o);
    if (d)
        answer = written(t, d->sequence->tokens, d->sequence->count, o.bytes);
    eg_pop(t->cx, m);
    quiet_end(t->cx, q);
    return answer;
}

/* -- the likeliest answer ------------------------------------------------------------------------------------------------------------- */
/* tokens: the prompt (its number of tokens in *prompt), then the answer; returns how many in all, −1 after an error */
static int64_t answer(eg_trainer *t, const char *input, int32_t *tokens, int64_t *prompt)
{
    int64_t n = *prompt = prompt_of(t, input, tokens, input_room(t));
    if (n < 0)
        return -1;
    quiet q = quiet_begin(t->cx);
    eg_mark m = eg_push(t->cx);
    if (t->kind->writes) {
        const eg_decoded *d = decoded(t, tokens, n, &(eg_generate_args){ .temperature = EG_OFF });
        for (int64_t k = 0; d && k < d->sequence->count; k++)
            tokens[n++] = d->sequence->tokens[k];
    } else {
        const int64_t *best = eg_i64(eg_argmax("b l [v]", eg_slice(logits_of(t, 1, n, tokens, NULL), 2, t->least, EG_END, 1)));
        for (int64_t k = 0; best && k < *prompt; k++)
            tokens[n++] = (int32_t)best[k] + t->least;
    }
    eg_pop(t->cx, m);
    quiet_end(t->cx, q);
    return eg_error(t->cx) ? -1 : n;
}

const char *eg_trainer_predict(eg_trainer *t, const char *input)
{
    if (!t || eg_error(t->cx))
        return NULL;
    if (t->data->free_text) {
        eg_fail(t->cx, "%s: a text has no answers; go on with it by eg_trainer_generate", eg_data_name(t->data));
        return NULL;
    }
    int64_t prompt, n = answer(t, input, t->asked, &prompt);
    return n < 0 ? NULL : written(t, t->asked + prompt, n - prompt, NULL);
}

/* -- attend ------------------------------------------------------------------------------------------------------------------------ */
eg_tensor *eg_trainer_attend(eg_trainer *t, const char *input, const char *const **labels)
{
    if (!t || eg_error(t->cx))
        return NULL;
    int64_t prompt, n = t->kind->writes && !t->data->free_text ? answer(t, input, t->asked, &prompt) : prompt_of(t, input, t->asked, input_room(t));
    if (n < 0)
        return NULL;
    n = n < t->longest ? n : t->longest;            /* an answer that never stops                                  */
    quiet q = quiet_begin(t->cx);
    logits_of(t, 1, n, t->asked, t->weights);
    eg_tensor *all = eg_contiguous(eg_squeeze(eg_stack_n(0, (int)t->o.layers, t->weights), 1));      /* l b h i j, b = 1 */
    quiet_end(t->cx, q);
    for (int64_t k = 0; k < n; k++)
        t->label[k] = eg_data_symbol(t->data, t->asked[k]);
    if (labels)
        *labels = t->label;
    return eg_error(t->cx) ? NULL : all;
}
