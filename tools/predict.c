/* eingrad predict: prints the answers of a trained model. */
#include "tools.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct predict {
    const char *off;
    int64_t threads;
} predict;
static const option options[] = {
    { 0, "heads-off", TEXT, "L.H[,L.H...]",
      "heads whose result is 0: layer and head, from 0; of seq2seq e0.1 d0.1 c0.1 (default: none)",
      offsetof(predict, off), 0, 0, false },
    { 0, "threads", WHOLE, "N", "cores to use (default: all)", offsetof(predict, threads), 1, 1024,
      false },
    { 0 }
};

static bool answer(eg_trainer *t, const char *input)
{
    const char *out = eg_trainer_predict(t, input);
    if (out) puts(out);
    return out != NULL;
}

/* Answers each line of standard input; the exit status. */
static int answer_lines(eg_ctx *cx, eg_trainer *t)
{
    char *line = NULL, where[32];
    size_t room = 0;
    ssize_t n;
    int status = EXIT_SUCCESS;
    errno = 0;
    for (long long number = 1; !status && (n = getline(&line, &room, stdin)) >= 0; number++) {
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = 0;
        snprintf(where, sizeof where, "line %lld", number);
        if (strlen(line) != (size_t)n)
            status = say("%s: a zero byte", where);
        else if (!answer(t, line))
            status = say_error(cx, where);
        fflush(stdout);
    }
    if (!status && ferror(stdin)) status = say("standard input: %s", strerror(errno));
    free(line);
    return status;
}

static int run(const command *c, int count, char **word)
{
    predict o = { 0 };
    words w;
    parsed p = read_options(c, count, word, &o, &w);
    if (p != PARSED) return p == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    if (w.count < 1)
        return say("predict needs a model, such as reverse.safetensors from %s train reverse",
                   program());
    if (w.count == 1 && !use_stream("standard input", STDIN_FILENO, false)) return EXIT_FAILURE;
    eg_ctx *cx = eg_open(.threads = (int)o.threads);
    eg_trainer *t =
        load_model(cx, &(eg_trainer_load_args){ .path = w.word[0], .inference_only = true });
    int status = t ? EXIT_SUCCESS : EXIT_FAILURE;
    if (t && o.off && !heads_off(t, o.off)) status = EXIT_FAILURE;
    if (t && !status && w.count == 1) status = answer_lines(cx, t);
    for (int k = 1; t && !status && k < w.count; k++) {
        char which[32];
        snprintf(which, sizeof which, "input %d", k);
        if (!answer(t, w.word[k])) status = say_error(cx, w.count > 2 ? which : NULL);
    }
    eg_close(cx);
    return status;
}

const command predict_command = {
    .name = "predict",
    .usage = "MODEL [INPUT...]",
    .about = "what a trained model answers; without INPUT, to each line of standard input",
    .more = "After -- come inputs that begin with -.\n\n"
            "  predict dates.safetensors \"March 5, 1998\"\n"
            "  predict dates.safetensors <questions.txt >answers.txt\n",
    .options = options,
    .run = run,
    .input = "the model",
    .input_count = 1,
};
