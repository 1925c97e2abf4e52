/* eingrad evaluate: the loss and the right answers of a trained model on its test set, with all
 * heads or without some of them. */
#include "tools.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct evaluate {
    const char *text, *off;
    bool each;
    int64_t threads;
} evaluate;
#define AT(member) offsetof(evaluate, member), 0, 0, false
static const option options[] = {
    { 0, "heads-off", TEXT, "L.H[,L.H...]",
      "heads whose result is 0: layer and head, from 0; of seq2seq e0.1 d0.1 c0.1 (default: none)",
      AT(off) },
    { 0, "each-head", FLAG, NULL, "also print the score with each head switched off in turn",
      AT(each) },
    { 0, "text", INPUT, "FILE",
      "the text that the model was trained on, if it was moved (default: where it was)", AT(text) },
    { 0, "threads", INTEGER, "N", "cores to use (default: all)", offsetof(evaluate, threads), 1,
      1024, false },
    { 0 }
};

/* Reads "LAYER.HEAD", n bytes at s. False if the model has no such head. */
static bool read_head(const eg_trainer *t, const char *s, size_t n, eg_head_at *head)
{
    const char *dot = memchr(s, '.', n);
    char number[16];
    int64_t h;
    if (!dot || n - (size_t)(dot - s) - 1 >= sizeof number) return false;
    snprintf(number, sizeof number, "%.*s", (int)(n - (size_t)(dot - s) - 1), dot + 1);
    for (int k = 0; eg_trainer_attention(t, k); k++) {
        const char *name = eg_trainer_attention(t, k);
        if (strlen(name) == (size_t)(dot - s) && !strncmp(name, s, strlen(name))) {
            if (!read_integer(number, &h) || h < 0 || h >= eg_trainer_config(t)->heads)
                return false;
            *head = (eg_head_at){ k, (int)h };
            return true;
        }
    }
    return false;
}

/* Switches the heads "L.H,L.H" off. False after printing which head does not exist. */
bool switch_heads_off(eg_trainer *t, const char *names)
{
    eg_head_at *heads = calloc(strlen(names) / 2 + 1, sizeof *heads);
    int count = 0, last = eg_trainer_attentions(t) - 1;
    bool good = heads != NULL;
    if (!heads) print_error("out of memory");
    for (const char *s = names; good; s++) {
        size_t n = strcspn(s, ",");
        good = read_head(t, s, n, &heads[count++]);
        if (!good)
            print_error("--heads-off: there is no head \"%.*s\"; the model has %s.0 to %s.%lld",
                        (int)n, s, eg_trainer_attention(t, 0), eg_trainer_attention(t, last),
                        (long long)eg_trainer_config(t)->heads - 1);
        s += n;
        if (!*s) break;
    }
    if (good && eg_trainer_heads_off(t, count, heads))
        good = false, print_context_error(eg_params_context(eg_trainer_params(t)), NULL);
    free(heads);
    return good;
}

static void print_score(const eg_score *s, bool text, const char *unit)
{
    if (text)
        printf("%.4f bits a %s, perplexity %.3f; %lld of %lld %ss predicted (%.1f %%)\n",
               s->loss / log(2), unit, exp(s->loss), (long long)s->right, (long long)s->tokens,
               unit, 100 * (double)s->right / (double)s->tokens);
    else
        printf(
            "%lld of %lld sequence%s exactly right (%.1f %%), %.1f %% of the tokens, loss %.4f\n",
            (long long)s->exact, (long long)s->sequences, s->sequences == 1 ? "" : "s",
            100 * (double)s->exact / (double)s->sequences,
            100 * (double)s->right / (double)s->tokens, s->loss);
}

static int print_loss_error(double loss)
{
    return print_error("the loss is %g: the model's parameters are not finite", loss);
}

/* Evaluates the model with each head off in turn. Returns the exit status. */
static int evaluate_each_head(eg_trainer *t, const eg_score *all, bool text)
{
    eg_score s;
    const double unit = text ? log(2) : 1;
    printf("\nwithout    %s   %s      more than with it\n", text ? " correct" : "   exact",
           text ? "bits" : "loss");
    for (int k = 0; eg_trainer_attention(t, k); k++)
        for (int h = 0; h < eg_trainer_config(t)->heads; h++) {
            char name[48];
            if (eg_trainer_heads_off(t, 1, &(eg_head_at){ k, h }) || eg_trainer_evaluate(t, &s))
                return print_context_error(eg_params_context(eg_trainer_params(t)), NULL);
            if (!isfinite(s.loss)) return print_loss_error(s.loss);
            snprintf(name, sizeof name, "%s.%d", eg_trainer_attention(t, k), h);
            double share =
                text ? (double)s.right / (double)s.tokens : (double)s.exact / (double)s.sequences;
            printf("%-8s  %7.1f %%   %-8.4f  %+.4f\n", name, 100 * share, s.loss / unit,
                   (s.loss - all->loss) / unit);
            fflush(stdout);
        }
    return EXIT_SUCCESS;
}

static int run(const command *c, int count, char **word)
{
    evaluate o = { 0 };
    words w;
    parsed p = read_options(c, count, word, &o, &w);
    if (p != PARSED) return p == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    if (w.count < 1)
        return print_error(
            "evaluate needs a model, such as reverse.safetensors from %s train reverse", program());
    if (w.count > 1)
        return print_error("evaluate takes one model, and there is \"%s\" too", w.word[1]);
    if (o.off && o.each) return print_error("--heads-off and --each-head exclude each other");
    eg_ctx *cx = eg_open(.threads = (int)o.threads);
    eg_data *data = o.text ? text_data(cx, o.text) : NULL;
    if (o.text && !data) {
        print_context_error(cx, NULL);
        eg_close(cx);
        return EXIT_FAILURE;
    }
    eg_trainer *t = load_model(cx, &(eg_trainer_load_args){ .path = w.word[0], .data = data });
    int status = t ? EXIT_SUCCESS : EXIT_FAILURE;
    if (t && o.off && !switch_heads_off(t, o.off)) status = EXIT_FAILURE;
    eg_score s;
    bool text = t && eg_data_is_text(eg_trainer_data(t));
    if (!status && eg_trainer_evaluate(t, &s)) status = print_context_error(cx, NULL);
    if (!status && !isfinite(s.loss)) status = print_loss_error(s.loss);
    if (!status) print_score(&s, text, eg_data_unit(eg_trainer_data(t)));
    if (!status && o.each) status = evaluate_each_head(t, &s, text);
    eg_close(cx);
    return status;
}

const command evaluate_command = {
    .name = "evaluate",
    .usage = "MODEL [OPTION...]",
    .about = "score a trained model on held-out data, also with heads switched off",
    .more = "  evaluate reverse.safetensors\n"
            "  evaluate reverse.safetensors --each-head\n"
            "  evaluate reverse.safetensors --heads-off 0.1,1.3\n",
    .options = options,
    .run = run,
    .input = "the model",
    .input_count = 1,
};
