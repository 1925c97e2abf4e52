/* eingrad attend: where each head of a trained model looks. */
#include "tools.h"
#include <stdlib.h>
#include <string.h>

typedef struct attend {
    const char *out, *part;
    int64_t threads;
} attend;
#define AT(member) offsetof(attend, member), 0, 0, false
static const option options[] = {
    { 'o', "out", OUTPUT, "FILE", "a picture, .png or .svg (default: heat maps in the terminal)",
      AT(out) },
    { 0, "part", CHOICE, "cross|encoder|decoder", "of a seq2seq model (default: cross)", AT(part) },
    { 0, "threads", WHOLE, "N", "cores to use (default: all)", offsetof(attend, threads), 1, 1024,
      false },
    { 0 }
};

/* Draws every head's weights on the input, to a file or the terminal; the exit status. */
static int draw(eg_ctx *cx, eg_trainer *t, const attend *o, const char *input)
{
    const char *const *rows, *const *columns;
    eg_tensor *w = eg_trainer_look(t, input, o->part, &rows, &columns); /* layer h i j */
    if (!w) return say_error(cx, NULL);
    if (!all_finite(w)) return say("attend: a weight of the model is NaN on this input");
    const char *model = eg_trainer_config(t)->model, *part = o->part                    ? o->part
                                                             : strcmp(model, "seq2seq") ? model
                                                                                        : "cross";
    const bool apart = !strcmp(part, "cross");
    char title[512];
    snprintf(title, sizeof title, "%s: %s", apart ? "cross attention" : part, input);
    int64_t layers = eg_dim(w, 0), heads = eg_dim(w, 1), n = layers * heads;
    enum { ROOM = 64 };
    char(*name)[ROOM] = calloc((size_t)n, sizeof *name);
    const char **panel = calloc((size_t)n, sizeof *panel);
    int status = name && panel ? EXIT_SUCCESS : say("out of memory");
    for (int64_t k = 0; k < n && !status; k++) {
        snprintf(name[k], ROOM, "layer %lld, head %lld", (long long)(k / heads),
                 (long long)(k % heads));
        panel[k] = name[k];
    }
    eg_tensor *x = eg_reshape(w, n, eg_dim(w, 2), eg_dim(w, 3));
    if (status)
        ;
    else if (o->out) {
        if (eg_picture_save(o->out, x, .rows = rows, .columns = columns, .title = title,
                            .panels = panel, .low = EG_OFF, .high = 1,
                            .row_axis = apart ? "token written" : "token",
                            .column_axis = "looks at", .value_axis = "weight"))
            status = say_error(cx, NULL);
        else
            printf("%s: %lld layers of %lld heads, %lld tokens\n", o->out, (long long)layers,
                   (long long)heads, (long long)eg_dim(w, -1));
    } else {
        bool text = eg_data_is_text(eg_trainer_data(t));
        const char *answer = text ? "" : eg_trainer_predict(t, input);
        if (answer)
            printf("%s%s%s\n%s: rows look at columns\n\n", input, text ? "" : " -> ", answer,
                   apart ? "cross attention" : part);
        if (!answer || eg_heatmap_print(stdout, x, .rows = rows, .columns = columns,
                                        .panels = panel, .low = EG_OFF, .high = 1,
                                        .colour = in_colour(stdout), .width = terminal_width()))
            status = say_error(cx, NULL);
        else
            print_heads(w, apart);
        if (!status && eg_error(cx)) status = say_error(cx, NULL);
    }
    free(name);
    free(panel);
    return status;
}

static int run(const command *c, int count, char **word)
{
    attend o = { 0 };
    words w;
    parsed p = read_options(c, count, word, &o, &w);
    if (p != PARSED) return p == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    if (w.count != 2)
        return say("attend needs a model and one input, in quotes if it has blanks: %s attend "
                   "copy.safetensors hello",
                   program());
    if (o.out && !is_picture(o.out)) return say("-o must end in .png or .svg, not \"%s\"", o.out);
    eg_ctx *cx = eg_open(.threads = (int)o.threads);
    eg_trainer *t =
        load_model(cx, &(eg_trainer_load_args){ .path = w.word[0], .inference_only = true });
    int status = t ? draw(cx, t, &o, w.word[1]) : EXIT_FAILURE;
    eg_close(cx);
    return status;
}

const command attend_command = {
    .name = "attend",
    .usage = "MODEL INPUT [-o FILE.png|.svg]",
    .about = "every head of a trained model as a heat map, tokens on the axes, and in numbers",
    .more = "A decoder's tokens are the input, a separator and its own answer; of a seq2seq "
            "model's cross attention,\n"
            "rows are the symbols that it writes, columns those of the input. After -- comes an "
            "input that begins with -.\n",
    .options = options,
    .run = run,
    .input = "the model",
    .input_count = 1,
};
