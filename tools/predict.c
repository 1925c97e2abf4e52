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
    { 0, "threads", INTEGER, "N", "cores to use (default: all)", offsetof(predict, threads), 1,
      1024, false },
    { 0 }
};

/* Prints the answer to an input; else an error message. `where` names one input of several: then an
 * empty line is printed instead, so that the line numbers of answers are those of the inputs. */
static bool answer(eg_ctx *cx, eg_trainer *t, const char *input, const char *where)
{
    const char *out = eg_trainer_predict(t, input);
    if (out) return puts(out), true;
    print_context_error(cx, where);
    eg_clear(cx); /* the next input may be answered */
    if (where) putchar('\n');
    return false;
}

enum { LINE_MOST = 1 << 16 }; /* bytes of a line; an input has at most EG_EXAMPLE_MAX symbols */
/* Reads a line of standard input into line[LINE_MOST + 1], without its end. False after the last
 * one. A line that is too long or has a zero byte is refused at that byte, and skipped. */
static bool read_line(char *line, const char *where, bool *refused)
{
    int n = 0, c;
    *refused = false;
    while ((c = getchar()) != EOF && c != '\n') {
        if (*refused) continue;
        if (c && n < LINE_MOST) {
            line[n++] = (char)c;
        } else {
            *refused = true;
            if (c)
                print_error("%s: more than %d bytes", where, LINE_MOST);
            else
                print_error("%s: a zero byte", where);
        }
    }
    while (n > 0 && line[n - 1] == '\r') n--;
    line[n] = 0;
    return c != EOF || n > 0 || *refused;
}
/* Answers each line of standard input. Returns the exit status. */
static int answer_lines(eg_ctx *cx, eg_trainer *t)
{
    static char line[LINE_MOST + 1];
    char where[32] = "line 1";
    bool good = true, refused;
    errno = 0;
    for (long long number = 1; read_line(line, where, &refused);) {
        if (refused) putchar('\n');
        good &= !refused && answer(cx, t, line, where);
        fflush(stdout);
        snprintf(where, sizeof where, "line %lld", ++number);
    }
    if (ferror(stdin)) {
        print_error("standard input: %s", strerror(errno));
        good = false;
    }
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Answers the words or, if there are none, the lines of standard input. Returns the exit status. */
static int answer_all(eg_ctx *cx, eg_trainer *t, int count, char *const *input)
{
    bool good = true;
    if (eg_data_is_text(eg_trainer_data(t))) { /* the error would be the same for every input */
        eg_trainer_predict(t, "");
        return print_context_error(cx, NULL);
    }
    if (!count) return answer_lines(cx, t);
    for (int k = 0; k < count; k++) {
        char which[32];
        snprintf(which, sizeof which, "input %d", k + 1);
        good &= answer(cx, t, input[k], count > 1 ? which : NULL);
    }
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int run(const command *c, int count, char **word)
{
    predict o = { 0 };
    words w;
    parsed p = read_options(c, count, word, &o, &w);
    if (p != PARSED) return p == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    if (w.count < 1)
        return print_error(
            "predict needs a model, such as reverse.safetensors from %s train reverse", program());
    if (w.count == 1 && !use_stream("standard input", STDIN_FILENO, false)) return EXIT_FAILURE;
    eg_ctx *cx = eg_open(.threads = (int)o.threads);
    eg_trainer *t =
        load_model(cx, &(eg_trainer_load_args){ .path = w.word[0], .inference_only = true });
    int status = EXIT_FAILURE;
    /* answer_all refuses a model of a text */
    if (t && (!o.off || eg_data_is_text(eg_trainer_data(t)) || switch_heads_off(t, o.off)))
        status = answer_all(cx, t, w.count - 1, w.word + 1);
    eg_close(cx);
    return status;
}

const command predict_command = {
    .name = "predict",
    .usage = "MODEL [INPUT...]",
    .about = "print a trained model's answers to inputs, or to each line of standard input",
    .more = "After -- come inputs that begin with -. An input that cannot be answered is named on\n"
            "standard error, an empty line stands for its answer, and the exit status is 1.\n\n"
            "  predict dates.safetensors \"March 5, 1998\"\n"
            "  predict dates.safetensors <questions.txt >answers.txt\n",
    .options = options,
    .run = run,
    .input = "the model",
    .input_count = 1,
};
