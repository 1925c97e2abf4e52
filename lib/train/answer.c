/* answer.c: the answers of a trained model (eg_trainer_predict, eg_trainer_generate), and its
 * attention weights. */
#include "trainer.h"
#include <eingrad/heads.h>
#include <math.h>
#include <string.h>

/* -- inputs ------------------------------------------------------------------------------------ */
/* An input as tokens. */
typedef struct question {
    int32_t *source; /* the source, for a model with encoder and decoder */
    int32_t *tokens; /* the tokens that the model reads; answers are appended */
    int64_t sources; /* number of tokens in source */
    int64_t count;   /* number of tokens; −1 after an error */
} question;

/* Returns the largest number of tokens of an input. */
static int64_t input_most(const eg_trainer *t)
{
    int64_t most = t->network->source ? t->batches->source_longest
                                      : t->batches->longest - t->batches->separator;
    return t->data->free_text || most < EG_EXAMPLE_MAX ? most : EG_EXAMPLE_MAX;
}

/* Returns the question for an input: input SEP; or SEP, with the input as source; or the prompt of
 * a text as it is, with the end of a line for an empty prompt. `tokens` has room for all of it. */
static question answer_prompt(eg_trainer *t, const char *input, int32_t *tokens, int64_t most)
{
    bool text = t->data->free_text;
    question q = { tokens, tokens, 0, 0 };
    int64_t n = text && (!input || !*input) ? 0 : eg_data_encode(t->data, input, (int)most, tokens);
    if (n == 0 && text && (n = eg_data_encode(t->data, "\n", 1, tokens)) < 0) {
        eg_clear(t->cx);
        tokens[0] = EG_FIRST, n = 1;
    }
    if (n == 0) eg_fail_as(t->cx, EG_ERROR_MISUSE, "%s: the input is empty", eg_data_name(t->data));
    if (t->network->source) q.tokens = tokens + n, q.sources = n;
    q.count = t->network->source ? 0 : n;
    if (n > 0 && t->batches->separator) q.tokens[q.count++] = EG_SEP;
    if (n <= 0) q.count = -1;
    return q;
}

static eg_batch batch_of(const question *q, int64_t count)
{
    return (eg_batch){ .rows = 1,
                       .length = count,
                       .source_length = q->sources,
                       .tokens = q->tokens,
                       .source = q->source };
}

/* -- decoding --------------------------------------------------------------------------------- */
/* Returns how many of the last n tokens of a text the model reads: all n up to its context. After
 * that the window starts again at half the context and grows to all of it, again and again, so that
 * most steps add one position to those in the cache. */
static int64_t answer_window(int64_t n, int64_t context)
{
    int64_t half = context / 2;
    return n <= context ? n : half + 1 + (n - context - 1) % (context - half);
}

/* The user data of the step function of decoding. */
typedef struct asking {
    eg_trainer *t;
    eg_cache *cache;   /* NULL if the network uses none */
    eg_tensor *memory; /* the encoder's result for the source; NULL: there is none */
    int64_t rows;      /* largest number of prefixes */
    int64_t sources;   /* number of tokens of the source */
    int32_t *source;   /* repeated for each prefix if there is no memory; else NULL */
    int32_t *window;   /* the tokens that the model has not read yet */
} asking;

/* Brings the cache into the order of the prefixes. Returns how many of the n tokens that the model
 * reads are not in it; −1 after an error. */
static int64_t answer_uncached(const asking *a, const eg_prefixes *p, int64_t n)
{
    const int64_t cached = a->cache ? eg_cache_length(a->cache) : 0;
    if (!a->cache) return n;
    if (!p->from || cached + 1 != n) return cached && eg_cache_truncate(a->cache, 0) ? -1 : n;
    if (a->rows > 1 && eg_cache_select(a->cache, eg_from_n(a->t->cx, EG_I64, p->from, 1, &p->rows)))
        return -1;
    return n - cached;
}

/* Returns the memory of the source, repeated for each prefix. */
static eg_tensor *answer_memory(const asking *a, int64_t rows)
{
    int64_t dims[EG_RANK_MAX] = { rows };
    if (!a->memory) return NULL;
    for (int k = 1; k < eg_rank(a->memory); k++) dims[k] = -1;
    return eg_expand_n(a->memory, eg_rank(a->memory), dims);
}

/* The step function of decoding: runs the model on the tokens that are not in the cache. In most
 * steps that is one token of each prefix; after the window has moved it is all of them. */
static eg_tensor *answer_next(void *user, const eg_prefixes *p)
{
    const asking *a = user;
    const eg_trainer *t = a->t;
    const int64_t fresh = answer_uncached(a, p, answer_window(p->length, t->batches->longest));
    if (fresh < 0) return NULL;
    for (int64_t r = 0; r < p->rows; r++)
        memcpy(a->window + r * fresh, p->tokens + (r + 1) * p->length - fresh,
               (size_t)fresh * sizeof *a->window);
    const eg_batch b = { .rows = p->rows,
                         .length = fresh,
                         .tokens = a->window,
                         .source_length = a->sources,
                         .source = a->source,
                         .memory = answer_memory(a, p->rows),
                         .cache = a->cache };
    eg_tensor *logits = eg__network_logits(t, t->cx, &b, NULL);
    return eg__batch_logits_fit(t->cx, t->batches, t->network->name, &b, logits)
               ? eg_select_axis(logits, 1, fresh - 1)
               : NULL;
}

/* Allocates what a search with a->rows prefixes needs, opens the cache, and runs the encoder on the
 * source. False after an error. */
static bool answer_prepare(asking *a, const question *q)
{
    eg_trainer *t = a->t;
    eg_owner *owner = eg_owner_open(t->cx);
    const size_t rows = (size_t)a->rows, sources = (size_t)q->sources;
    a->window = owner
                    ? eg_owner_alloc(owner, rows * (size_t)t->batches->longest * sizeof *a->window)
                    : NULL;
    a->cache = owner && t->network->cached ? eg_cache_new(owner, t->batches->longest) : NULL;
    if (!a->window || (t->network->cached && !a->cache)) return false;
    if (!t->network->source) return true;
    a->sources = q->sources;
    if (t->network->memory) {
        eg_batch b = batch_of(q, 1);
        a->memory = t->network->memory(t->net, t->cx,
                                       &(eg_batch){ .rows = 1,
                                                    .source_length = b.source_length,
                                                    .source = b.source,
                                                    .gain = t->gain_now });
        return eg_ok(a->memory) && !eg_error(t->cx);
    }
    a->source = eg_owner_alloc(owner, rows * sources * sizeof *a->source);
    for (size_t r = 0; a->source && r < rows; r++)
        memcpy(a->source + r * sources, q->source, sources * sizeof *a->source);
    return a->source != NULL;
}

/* Returns the sequences that decoding finds after a question, in the open scope; NULL after an
 * error. */
static const eg_decoded *answer_decode(eg_trainer *t, const question *q, const eg_generate_args *o)
{
    bool text = t->data->free_text,
         plain = o->temperature == 0 && !o->top_k && o->top_p == 0 && o->beam <= 1;
    int64_t most = text ? INT32_MAX / 2 : t->batches->longest - q->count + 1,
            longest = o->length ? o->length
                      : text    ? 200
                                : most;
    asking a = { .t = t, .rows = o->beam > 1 ? o->beam : 1 };
    if (longest < 1 || longest > INT32_MAX / 2)
        eg_fail_as(t->cx, EG_ERROR_MISUSE, "generate: the length must be from 1 to 2^30, not %lld",
                   (long long)longest);
    if (o->beam < 0 || o->beam > 4096)
        eg_fail_as(t->cx, EG_ERROR_MISUSE, "generate: beam must be from 1 to 4096, not %lld",
                   (long long)o->beam);
    if (eg_error(t->cx) || !answer_prepare(&a, q)) return NULL;
    return eg_decode(.cx = t->cx, .next = answer_next, .user = &a, .prompt = q->tokens,
                     .prompt_length = q->count, .max_new_tokens = longest < most ? longest : most,
                     .min_token = EG_FIRST, .end = text ? 0 : EG_STOP,
                     .temperature = text && plain ? 1 : o->temperature, .top_k = o->top_k,
                     .top_p = o->top_p, .seed = o->seed, .beam = o->beam,
                     .length_power = o->length_power);
}

/* Returns the tokens as text in t->answer, which grows as needed; sets *bytes to its length. NULL
 * without memory. */
static const char *answer_text(eg_trainer *t, const int32_t *tokens, int64_t count, size_t *bytes)
{
    size_t n = eg_data_decode(t->data, (int)count, tokens, NULL, 0);
    if (n + 1 > t->answer_capacity) {
        t->answer = eg_owner_alloc(t->owner, 2 * (n + 1));
        t->answer_capacity = t->answer ? 2 * (n + 1) : 0;
    }
    if (t->answer) eg_data_decode(t->data, (int)count, tokens, t->answer, t->answer_capacity);
    if (bytes) *bytes = n;
    return t->answer;
}

/* Decodes the prompt's question in evaluation mode and returns the text. */
const char *eg_trainer_generate_with(const eg_generate_args *given)
{
    eg_generate_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg_trainer *t = o.trainer;
    if (!eg__trainer_ready("trainer_generate", t)) return NULL;
    if (t->network->encoder) {
        eg_fail_as(t->cx, EG_ERROR_MISUSE,
                   "generate: an encoder computes all positions at once and cannot continue a "
                   "text; predict gives its answer");
        return NULL;
    }
    if (!o.prompt && !t->data->free_text) {
        eg_fail_as(t->cx, EG_ERROR_MISUSE, "generate: the prompt is NULL");
        return NULL;
    }
    const char *answer = NULL;
    eg__evaluation e = eg__evaluation_begin(t->cx);
    eg_mark m = eg_push(t->cx);
    eg_owner *owner = eg_owner_open(t->cx);
    size_t most = o.prompt && t->data->free_text ? strlen(o.prompt) : (size_t)input_most(t);
    int32_t *tokens = owner ? eg_owner_alloc(owner, (most + 2) * sizeof *tokens) : NULL;
    question ahead =
        tokens ? answer_prompt(t, o.prompt, tokens, (int64_t)most) : (question){ .count = -1 };
    const eg_decoded *d = ahead.count < 0 ? NULL : answer_decode(t, &ahead, &o);
    if (d) answer = answer_text(t, d->sequence->tokens, d->sequence->count, o.bytes);
    eg_pop(t->cx, m);
    eg__evaluation_end(t->cx, e);
    return answer;
}

/* -- the most probable answer ------------------------------------------------------------------ */
typedef struct answer {
    question q;
    int64_t first, count; /* the answer is q.tokens[first … first + count); count −1: an error */
    bool ended;           /* the answer ended with EG_STOP */
} answer;

/* Returns the greedy answer: token by token, or for an encoder all positions at once. */
static answer answer_greedy(eg_trainer *t, const char *input)
{
    answer a = { .q = answer_prompt(t, input, t->question, input_most(t)), .count = -1 };
    a.first = a.q.count;
    if (a.first < 0) return a;
    eg__evaluation e = eg__evaluation_begin(t->cx);
    eg_mark m = eg_push(t->cx);
    int32_t *to = a.q.tokens + a.first;
    if (!t->network->encoder) {
        const eg_decoded *d = answer_decode(t, &a.q, &(eg_generate_args){ .temperature = EG_OFF });
        if (d) {
            memcpy(to, d->sequence->tokens, (size_t)d->sequence->count * sizeof *to);
            a.count = d->sequence->count, a.ended = d->sequence->ended;
        }
    } else {
        eg_batch b = batch_of(&a.q, a.first);
        eg_tensor *logits = eg__network_logits(t, t->cx, &b, NULL);
        if (isnan(eg_item(eg_sum(NULL, eg_scale(logits, 0))))) /* 0 · x is NaN unless x is finite */
            eg_fail_as(t->cx, EG_ERROR_MISUSE, "predict: a logit of the model is not finite");
        const int64_t *best =
            eg_i64(eg_argmax("b l [v]", eg_slice_axis(logits, 2, t->batches->least, EG_END, 1)));
        for (int64_t k = 0; best && k < a.first; k++) to[k] = (int32_t)best[k] + t->batches->least;
        a.count = a.first;
    }
    eg_pop(t->cx, m);
    eg__evaluation_end(t->cx, e);
    a.count = eg_error(t->cx) ? -1 : a.count;
    return a;
}

const char *eg_trainer_predict(eg_trainer *t, const char *input)
{
    if (!eg__trainer_ready("trainer_predict", t)) return NULL;
    if (t->data->free_text) {
        eg_fail_as(t->cx, EG_ERROR_MISUSE,
                   "%s: a model of a text gives no answers; generate continues the text",
                   eg_data_name(t->data));
        return NULL;
    }
    answer a = answer_greedy(t, input);
    return a.count < 0 ? NULL : answer_text(t, a.q.tokens + a.first, a.count, NULL);
}

/* -- attention weights ------------------------------------------------------------------------ */
/* Returns the number of the part of that name, with NULL that of the last part; −1 after an
 * error. */
static int answer_part_of(eg_trainer *t, const char *name)
{
    int parts = eg__network_parts(t->network);
    if (!parts)
        return eg_fail_as(t->cx, EG_ERROR_MISUSE,
                          "attend: the network \"%s\" names no part that attends",
                          t->network->name),
               -1;
    for (int k = 0; name && k < parts; k++)
        if (!strcmp(t->network->part[k], name)) return k;
    if (name)
        eg_fail_as(t->cx, EG_ERROR_MISUSE, "attend: there is no part \"%s\" in a model \"%s\"",
                   name, t->network->name);
    return name ? -1 : parts - 1;
}

/* Sets the labels of an axis to the symbols of tokens. */
static void label(const eg_trainer *t, const char **to, int64_t count, const int32_t *tokens)
{
    for (int64_t k = 0; k < count; k++) to[k] = eg_data_symbol(t->data, tokens[k]);
}

/* Runs the model on this batch. True if it then has attention weights, in t->weights; else records
 * an error. */
static bool answer_weights(eg_trainer *t, const char *who, const eg_batch *b)
{
    const int count = eg_trainer_attentions(t);
    if (!count)
        eg_fail_as(t->cx, EG_ERROR_MISUSE, "%s: the network \"%s\" names no part that attends", who,
                   t->network->name);
    for (int k = 0; k < count; k++) t->weights[k] = NULL;
    if (count) eg__network_logits(t, t->cx, b, t->weights);
    for (int k = 0; k < count && !eg_error(t->cx); k++) {
        const eg_tensor *w = t->weights[k];
        char sizes[128] = "";
        if (eg_ok(w) && eg_rank(w) == 4 && eg_dim(w, 0) == b->rows && eg_dim(w, 1) == t->o.heads)
            continue;
        for (int r = 0, n = 0; eg_ok(w) && r < eg_rank(w) && n < 100; r++)
            n += snprintf(sizes + n, sizeof sizes - (size_t)n, "%s%lld",
                          r ? ", " : ", but weights (", (long long)eg_dim(w, r));
        eg_fail_as(t->cx, EG_ERROR_SHAPE,
                   "%s: the network \"%s\" gave no weights (b h i j) of %lld row%s and %lld "
                   "head%s for attention %s%s%s",
                   who, t->network->name, (long long)b->rows, b->rows == 1 ? "" : "s",
                   (long long)t->o.heads, t->o.heads == 1 ? "" : "s", t->attention[k], sizes,
                   *sizes ? "); .weights_axes gives their order" : "");
    }
    return !eg_error(t->cx);
}

/* Runs the model on the input, a decoder also on its own answer, and stacks the weights of the
 * part. */
eg_tensor *eg_trainer_attention_weights(eg_trainer *t, const char *input, const char *name,
                                        const char *const **rows, const char *const **columns)
{
    int part = eg__trainer_ready("trainer_attention_weights", t) ? answer_part_of(t, name) : -1;
    if (part < 0) return NULL;
    answer a = { .q = answer_prompt(t, input, t->question, input_most(t)) };
    if (!t->network->encoder && !t->data->free_text && a.q.count > 0) a = answer_greedy(t, input);
    if (a.q.count < 0 || a.count < 0) return NULL;
    int64_t n = a.q.count + a.count, layers = t->o.layers;
    n = n < t->batches->longest
            ? n
            : t->batches->longest; /* an answer without EG_STOP uses all positions */
    eg__evaluation e = eg__evaluation_begin(t->cx);
    eg_batch b = batch_of(&a.q, n);
    eg_tensor *all = NULL; /* axes l b h i j, with b = 1 */
    if (answer_weights(t, "attend", &b))
        all = eg_contiguous(
            eg_squeeze(eg_stack_axis_n(0, (int)layers, t->weights + part * layers), 1));
    eg__evaluation_end(t->cx, e);
    if (!all) return NULL;
    char letter = t->network->source ? *t->network->part[part] : 'd';
    if (n == a.q.count + a.count) /* the token that is predicted at the last position */
        a.q.tokens[n] = a.ended ? EG_STOP : EG_PAD;
    label(t, t->label[0], letter == 'e' ? a.q.sources : n,
          letter == 'e' ? a.q.source : a.q.tokens + (letter == 'c'));
    label(t, t->label[1], letter == 'd' ? n : a.q.sources, letter == 'd' ? a.q.tokens : a.q.source);
    if (rows) *rows = t->label[0];
    if (columns) *columns = t->label[1];
    return eg_error(t->cx) ? NULL : all;
}

eg_tensor *eg_trainer_self_attention_weights(eg_trainer *t, const char *input,
                                             const char *const **labels)
{
    if (!eg__trainer_ready("trainer_self_attention_weights", t)) return NULL;
    if (t->network->source)
        eg_fail_as(t->cx, EG_ERROR_MISUSE,
                   "attend: rows and columns of a model \"%s\" have tokens of their own; "
                   "eg_trainer_attention_weights gives both",
                   t->network->name);
    return eg_trainer_attention_weights(t, input, NULL, labels, NULL);
}

/* -- saturation ------------------------------------------------------------------------------- */
/* Returns the weights of attention k, with rows of zeros for positions with padding, which eg_heads
 * leaves out. */
static eg_tensor *answer_unpadded_weights(const eg_trainer *t, const eg_batch *b, int k)
{
    bool source = t->network->source && *t->network->part[k / (int)t->o.layers] == 'e';
    int64_t dim[] = { b->rows, 1, source ? b->source_length : b->length, 1 };
    eg_tensor *keep = eg_from_n(t->cx, EG_BOOL, source ? b->source_keep : b->keep, 4, dim);
    return eg_mul(t->weights[k], eg_cast(keep, eg_params_type(t->params)));
}

/* Computes eg_heads for each attention. Returns 0; −1 after an error. */
static int answer_heads(eg_trainer *t, const char *who, eg_head *out)
{
    const int64_t tests = t->batches->tests;
    eg__evaluation e = eg__evaluation_begin(t->cx);
    eg_mark m = eg_push(t->cx);
    eg_batch b = eg__batches_tested(t->batches, 0, tests < t->o.batch ? tests : t->o.batch);
    const bool shown = b.rows && answer_weights(t, who, &b);
    for (int k = 0; shown && k < eg_trainer_attentions(t); k++) {
        const eg_head *head =
            eg_heads(answer_unpadded_weights(t, &b, k), .spec = "b [h] i j", .top = 1);
        if (head) memcpy(out + k * t->o.heads, head, (size_t)t->o.heads * sizeof *out);
    }
    eg_pop(t->cx, m);
    eg__evaluation_end(t->cx, e);
    return eg_error(t->cx) ? -1 : 0;
}

int eg_trainer_heads(eg_trainer *t, eg_head *out)
{
    if (!eg__trainer_ready("trainer_heads", t)) return -1;
    if (!out) return eg_fail_as(t->cx, EG_ERROR_MISUSE, "trainer_heads: the result is NULL"), -1;
    return answer_heads(t, "trainer_heads", out);
}

int eg_trainer_saturation(eg_trainer *t, double *largest)
{
    if (!eg__trainer_ready("trainer_saturation", t)) return -1;
    const size_t count = (size_t)(eg_trainer_attentions(t) * t->o.heads);
    if (!largest) return eg_fail_as(t->cx, EG_ERROR_MISUSE, "saturation: the result is NULL"), -1;
    eg_mark m = eg_push(t->cx);
    eg_owner *owner = eg_owner_open(t->cx);
    eg_head *head = owner ? eg_owner_alloc(owner, (count + 1) * sizeof *head) : NULL;
    const int bad = head ? answer_heads(t, "saturation", head) : -1;
    for (size_t k = 0; !bad && k < count; k++) largest[k] = head[k].rows ? head[k].top : 0;
    eg_pop(t->cx, m);
    return bad;
}
