/* eingrad generate: continues a text with a trained model, or answers a question by draws or beam
 * search. */
#include "tools.h"
#include <stdlib.h>
#include <string.h>

typedef struct generate {
    eg_generate_args how;
    int64_t seed, threads;
} generate;
#define HOW(member) offsetof(generate, how.member)
static const option options[] = {
    { 0, "prompt", TEXT, "TEXT", "the beginning of the text (default: a new line)", HOW(prompt), 0,
      0, false },
    { 0, "length", INTEGER, "N", "characters at most (default 200; an answer ends by itself)",
      HOW(length), 1, 1e8, false },
    { 0, "temperature", REAL, "T",
      "temperature of sampling; 0: always the likeliest (default: of a text 1, else 0)",
      HOW(temperature), 0, 1000, false },
    { 0, "top-k", INTEGER, "K", "draw from the K likeliest characters only (default: from all)",
      HOW(top_k), 1, 1e9, false },
    { 0, "top-p", REAL, "P",
      "draw from the fewest likeliest with total probability P (default 1: all)", HOW(top_p), 1e-9,
      1, false },
    { 0, "beam", INTEGER, "B", "beam search with B prefixes, without sampling (default 1: none)",
      HOW(beam), 1, 4096, false },
    { 0, "length-power", REAL, "A",
      "beam search ranks by the sum of ln p over length^A (default 1)", HOW(length_power), 0, 100,
      false },
    { 0, "seed", INTEGER, "N", "seed of sampling; another seed gives another text (default 0)",
      offsetof(generate, seed), 0, 9e15, false },
    { 0, "threads", INTEGER, "N", "cores to use (default: all)", offsetof(generate, threads), 1,
      1024, false },
    { 0 }
};

/* Options that contradict each other are refused before the model is loaded. */
static int run(const command *c, int count, char **word)
{
    generate o = { 0 };
    words w;
    parsed p = read_options(c, count, word, &o, &w);
    if (p != PARSED) return p == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    if (w.count < 1)
        return print_error(
            "generate needs a model, such as poems.safetensors from %s train --text poems.txt",
            program());
    if (w.count > 1)
        return print_error(
            "generate takes one model, and there is \"%s\" too; a prompt comes after --prompt",
            w.word[1]);
    if (was_given(&w, c, "temperature") && o.how.temperature == 0) o.how.temperature = EG_OFF;
    if (was_given(&w, c, "length-power") && o.how.length_power == 0) o.how.length_power = EG_OFF;
    const bool sampling = was_given(&w, c, "seed") || o.how.top_k || o.how.top_p > 0;
    if (o.how.beam > 1 && (was_given(&w, c, "temperature") || sampling))
        return print_error(
            "--beam does not sample; omit --temperature, --top-k, --top-p and --seed");
    if (o.how.temperature == EG_OFF && sampling)
        return print_error("--temperature 0 does not sample; omit --top-k, --top-p and --seed");
    if (o.how.beam <= 1 && was_given(&w, c, "length-power"))
        return print_error("--length-power belongs to --beam");
    eg_ctx *cx = eg_open(.threads = (int)o.threads);
    eg_trainer *t =
        load_model(cx, &(eg_trainer_load_args){ .path = w.word[0], .inference_only = true });
    size_t bytes = 0;
    o.how.size = sizeof o.how, o.how.trainer = t, o.how.seed = (uint64_t)o.seed,
    o.how.bytes = &bytes;
    if (t && !o.how.prompt && !eg_data_is_text(eg_trainer_data(t))) {
        eg_close(cx);
        return print_error("generate needs --prompt TEXT: %s was trained to answer", w.word[0]);
    }
    if (t && was_given(&w, c, "seed") && !o.how.temperature && !o.how.top_k && !(o.how.top_p > 0) &&
        !eg_data_is_text(eg_trainer_data(t))) {
        eg_close(cx);
        return print_error(
            "--seed without --temperature: %s was trained to answer, and does not sample",
            w.word[0]);
    }
    const char *text = t ? eg_trainer_generate_with(&o.how) : NULL;
    int status = text ? EXIT_SUCCESS : t ? print_context_error(cx, NULL) : EXIT_FAILURE;
    if (text) {
        const eg_data *data = eg_trainer_data(t);
        const char *prompt = eg_data_is_text(data) && o.how.prompt ? o.how.prompt : "";
        const bool tokens = !strcmp(eg_data_unit(data), "token") && *prompt;
        printf("%s%s", prompt, tokens && prompt[strlen(prompt) - 1] != ' ' ? " " : "");
        fwrite(text, 1, bytes, stdout);
        putchar('\n');
    }
    eg_close(cx);
    return status;
}

const command generate_command = {
    .name = "generate",
    .usage = "MODEL [OPTION...]",
    .about = "continue a text, or answer, with a trained model, by sampling or beam search",
    .more = "  generate poems.safetensors --length 500 --temperature 0.8 --seed 1\n"
            "  generate poems.safetensors --prompt \"The \" --beam 8\n",
    .options = options,
    .run = run,
    .input = "the model",
    .input_count = 1,
};
