/* eingrad attend: the attention weights of each head of a trained model. */
#include "tools.h"
#include <stdlib.h>
#include <string.h>

typedef struct attend {
    const char *out, *part, *against;
    int64_t threads;
} attend;
#define AT(member) offsetof(attend, member), 0, 0, false
static const option options[] = {
    { 'o', "out", OUTPUT, "FILE",
      "a picture, .png or .svg, or the weights, .npz (default: heat maps in the terminal)",
      AT(out) },
    { 0, "against", INPUT, "MODEL",
      "another model or checkpoint: draw its maps too, and the difference", AT(against) },
    { 0, "part", CHOICE, "cross|encoder|decoder",
      "which attention of a seq2seq model (default: cross)", AT(part) },
    { 0, "threads", INTEGER, "N", "cores to use (default: all)", offsetof(attend, threads), 1, 1024,
      false },
    { 0 }
};

/* The attention maps of a model, and of a second one. */
typedef struct maps {
    eg_trainer *t;
    const char *input, *path;
    const char *const *rows, *const *columns;
    eg_tensor *w, *against; /* layer h i j; against NULL: there is only one model */
    bool apart; /* the positions of queries and keys are those of two different sequences */
    char title[512];
} maps;

static bool is_npz(const char *path)
{
    const size_t n = path ? strlen(path) : 0;
    return n > 4 && strcmp(path + n - 4, ".npz") == 0;
}

/* Returns the number of equal labels at the beginning of two axes. */
static int64_t common_prefix(const char *const *a, int64_t n, const char *const *b, int64_t m)
{
    int64_t k = 0;
    while (k < n && k < m && strcmp(a[k], b[k]) == 0) k++;
    return k;
}

/* Adds the maps of the second model. If the answers differ, both are cut to the tokens at the
 * beginning in which they agree: the weights of a token depend on those before it. False, after an
 * error message, if the maps cannot be shown together. */
static bool add_against(eg_ctx *cx, maps *m, const attend *o)
{
    const char *const *rows, *const *columns;
    eg_trainer *t =
        load_model(cx, &(eg_trainer_load_args){ .path = o->against, .inference_only = true });
    eg_tensor *b = t ? eg_trainer_attention_weights(t, m->input, o->part, &rows, &columns) : NULL,
              *a = m->w;
    if (!b && t) print_context_error(cx, o->against);
    if (!b) return false;
    if (!all_finite(b))
        return print_error("attend: a weight of %s is NaN on this input", o->against), false;
    if (eg_dim(a, 0) != eg_dim(b, 0) || eg_dim(a, 1) != eg_dim(b, 1))
        return print_error("attend: %s has %lld layer%s of %lld head%s, %s has %lld of %lld",
                           m->path, (long long)eg_dim(a, 0), eg_dim(a, 0) == 1 ? "" : "s",
                           (long long)eg_dim(a, 1), eg_dim(a, 1) == 1 ? "" : "s", o->against,
                           (long long)eg_dim(b, 0), (long long)eg_dim(b, 1)),
               false;
    const int64_t i = common_prefix(m->rows, eg_dim(a, 2), rows, eg_dim(b, 2)),
                  j = common_prefix(m->columns, eg_dim(a, 3), columns, eg_dim(b, 3));
    if (!i || !j)
        return print_error(
                   "attend: the tokens of %s and %s differ from the first on, so no map can be "
                   "compared",
                   m->path, o->against),
               false;
    m->w = eg_slice_axis(eg_slice_axis(a, 2, 0, i, 1), 3, 0, j, 1);
    m->against = eg_slice_axis(eg_slice_axis(b, 2, 0, i, 1), 3, 0, j, 1);
    if (!eg_ok(m->w) || !eg_ok(m->against)) return print_context_error(cx, NULL), false;
    return true;
}

/* Writes the arrays weights and, with another model, against and difference. */
static int save_npz(eg_ctx *cx, const maps *m, const attend *o)
{
    static const char *const names[] = { "weights", "against", "difference" };
    eg_tensor *xs[] = { m->w, m->against, m->against ? eg_sub(m->against, m->w) : NULL };
    if (eg_npz_save(.cx = cx, .path = o->out, .count = m->against ? 3 : 1, .names = names,
                    .xs = xs))
        return print_context_error(cx, NULL);
    printf(
        "%s: weights (layer head row column) of %lld layer%s of %lld head%s, %lld x %lld tokens\n",
        o->out, (long long)eg_dim(m->w, 0), eg_dim(m->w, 0) == 1 ? "" : "s",
        (long long)eg_dim(m->w, 1), eg_dim(m->w, 1) == 1 ? "" : "s", (long long)eg_dim(m->w, 2),
        (long long)eg_dim(m->w, 3));
    return EXIT_SUCCESS;
}

/* Writes the maps as a picture. */
static int save_picture(eg_ctx *cx, const maps *m, const attend *o, eg_heatmap_args *a)
{
    a->title = m->title;
    a->row_axis = m->apart ? "token written" : "token", a->column_axis = "attends to";
    if (eg_picture_save_with(o->out, a)) return print_context_error(cx, NULL);
    printf("%s: %lld layer%s of %lld head%s, %lld token%s\n", o->out, (long long)eg_dim(m->w, 0),
           eg_dim(m->w, 0) == 1 ? "" : "s", (long long)eg_dim(m->w, 1),
           eg_dim(m->w, 1) == 1 ? "" : "s", (long long)eg_dim(m->w, -1),
           eg_dim(m->w, -1) == 1 ? "" : "s");
    return EXIT_SUCCESS;
}

/* Prints the maps, and below them the measures of each head. */
static int print(eg_ctx *cx, const maps *m, eg_heatmap_args *a)
{
    bool text = eg_data_is_text(eg_trainer_data(m->t));
    const char *answer = text ? "" : eg_trainer_predict(m->t, m->input),
               *colon = strchr(m->title, ':');
    if (!answer) return print_context_error(cx, NULL);
    printf("%s%s%s\n%.*s: rows attend to columns\n\n", m->input, text ? "" : " -> ", answer,
           (int)(colon - m->title), m->title);
    a->colour = in_colour(stdout), a->width = terminal_width();
    if (eg_heatmap_print_with(stdout, a)) return print_context_error(cx, NULL);
    if (!m->against) print_heads(m->w, m->apart);
    return eg_error(cx) ? print_context_error(cx, NULL) : EXIT_SUCCESS;
}

/* Writes the weights of each head on the input to a file or the terminal. Returns the exit
 * status. */
static int draw(eg_ctx *cx, maps *m, const attend *o)
{
    m->w = eg_trainer_attention_weights(m->t, m->input, o->part, &m->rows, &m->columns);
    if (!m->w) return print_context_error(cx, NULL);
    if (!all_finite(m->w)) return print_error("attend: a weight of the model is NaN on this input");
    if (o->against && !add_against(cx, m, o)) return EXIT_FAILURE;
    if (is_npz(o->out)) return save_npz(cx, m, o);
    const char *model = eg_trainer_config(m->t)->model, *part = o->part ? o->part
                                                                : strcmp(model, "seq2seq")
                                                                    ? model
                                                                    : "cross";
    m->apart = !strcmp(part, "cross");
    snprintf(m->title, sizeof m->title, "%s attention: %s", part, m->input);
    int64_t heads = eg_dim(m->w, 1), n = eg_dim(m->w, 0) * heads;
    enum { TITLE_SIZE = 64 };
    char(*name)[TITLE_SIZE] = calloc((size_t)n, sizeof *name);
    const char **panel = calloc((size_t)n, sizeof *panel);
    int status = name && panel ? EXIT_SUCCESS : print_error("out of memory");
    for (int64_t k = 0; k < n && !status; k++) {
        snprintf(name[k], TITLE_SIZE, "layer %lld, head %lld", (long long)(k / heads),
                 (long long)(k % heads));
        panel[k] = name[k];
    }
    eg_heatmap_args a = { .size = sizeof a,
                          .x = eg_reshape(m->w, n, eg_dim(m->w, 2), eg_dim(m->w, 3)),
                          .rows = m->rows,
                          .columns = m->columns,
                          .panels = panel,
                          .low = EG_OFF,
                          .high = 1,
                          .value_axis = "weight" };
    if (m->against) {
        a.against = eg_reshape(m->against, n, eg_dim(m->w, 2), eg_dim(m->w, 3));
        a.name = m->path, a.against_name = o->against;
    }
    if (!status) status = o->out ? save_picture(cx, m, o, &a) : print(cx, m, &a);
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
        return print_error(
            "attend needs a model and one input, in quotes if it has blanks: %s attend "
            "copy.safetensors hello",
            program());
    if (o.out && !is_picture(o.out) && !is_npz(o.out))
        return print_error("-o must end in .png or .svg, or in .npz, not \"%s\"", o.out);
    eg_ctx *cx = eg_open(.threads = (int)o.threads);
    eg_trainer *t =
        load_model(cx, &(eg_trainer_load_args){ .path = w.word[0], .inference_only = true });
    maps m = { .t = t, .input = w.word[1], .path = w.word[0] };
    int status = t ? draw(cx, &m, &o) : EXIT_FAILURE;
    eg_close(cx);
    return status;
}

const command attend_command = {
    .name = "attend",
    .usage = "MODEL INPUT [--against MODEL] [-o FILE.png|.svg|.npz]",
    .about = "draw every head of a trained model as a heat map, and print its measures",
    .more = "A decoder's tokens are the input, a separator and its own answer; of a seq2seq "
            "model's cross attention,\n"
            "rows are the symbols that it writes, columns those of the input. After -- comes an "
            "input that begins with -.\n\n"
            "  attend reverse.safetensors abcd -o reverse.png\n"
            "  attend dates.safetensors \"3 May 1990\" --part cross -o weights.npz\n"
            "  attend a.safetensors abcd --against b.safetensors\n",
    .options = options,
    .run = run,
    .input = "the model",
    .input_count = 1,
};
