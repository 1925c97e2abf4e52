/* show.c: the output of `train` at its end: answers, a heat map, a check of the gradients, and
 * further commands. */
#include "tools.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* listing: the function of examples/04_attention.c, written by the Makefile */
#include "tools/listing.h"

enum { EXAMPLES = 5, EXAMINED = 16, TEXT_SIZE = 8 * EG_EXAMPLE_MAX };

/* Writes the k-th example of the test set as text. False after the last one. */
static bool example(eg_trainer *t, int k, char *input, char *truth, eg_example *e)
{
    if (eg_trainer_test(t, k, e)) return false;
    eg_data_decode(eg_trainer_data(t), e->inputs, e->input, input, TEXT_SIZE);
    eg_data_decode(eg_trainer_data(t), e->outputs, e->output, truth, TEXT_SIZE);
    return true;
}

/* -- five predictions ------------------------------------------------------------------------- */
/* A table of some test inputs, the model's answers and the truth. */
static bool print_predictions(eg_trainer *t)
{
    char cell[EXAMPLES + 1][3][TEXT_SIZE] = { { "input", "answer", "truth" } };
    int rows = 1, wide[3] = { 0 };
    eg_example e;
    for (int k = 0; k < EXAMPLES && example(t, k, cell[rows][0], cell[rows][2], &e); k++, rows++) {
        const char *answer = eg_trainer_predict(t, cell[rows][0]);
        if (!answer) return false;
        snprintf(cell[rows][1], TEXT_SIZE, "%s", answer);
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < 3; j++)
            if (columns(cell[r][j]) > wide[j]) wide[j] = columns(cell[r][j]);
    putchar('\n');
    for (int r = 0; r < rows; r++) {
        for (int j = 0; j < 3; j++) {
            pad(stdout, cell[r][j], wide[j]);
            fputs("   ", stdout);
        }
        puts(r == 0 ? "" : strcmp(cell[r][1], cell[r][2]) == 0 ? "right" : "WRONG");
    }
    return true;
}

/* -- what an answer attends to: a row for each symbol of the answer, with the weights at the
 * position where it is generated; a column for each position that is attended to -- */
typedef struct view {
    eg_tensor *w;
    int rows, columns;
    const char *row[EG_EXAMPLE_MAX];
    const char *const *column;
} view;

/* Finds rows and columns of the map for an input: for a decoder the part of the weights whose
 * queries generate the answer. */
static bool find_map(eg_trainer *t, const char *input, view *v)
{
    eg_data *d = eg_trainer_data(t);
    const char *model = eg_trainer_config(t)->model;
    bool decoder = strcmp(model, "decoder") == 0, apart = strcmp(model, "seq2seq") == 0;
    int32_t token[EG_EXAMPLE_MAX];
    int inputs = eg_data_encode(d, input, EG_EXAMPLE_MAX, token);
    const char *const *row;
    /* layer h i j */
    eg_tensor *w =
        inputs < 0 ? NULL : eg_trainer_attention_weights(t, input, NULL, &row, &v->column);
    if (!w) return false;
    int n = (int)eg_dim(w, -1), first = 0;
    if (apart) { /* rows are named after the symbols that are generated */
        v->rows = (int)eg_dim(w, 2);
        v->columns = n;
        for (int k = 0; k < v->rows; k++) v->row[k] = row[k];
    } else if (decoder) { /* a symbol is generated at the position before it */
        first = inputs < n && strcmp(v->column[inputs], eg_data_symbol(d, EG_SEP)) == 0
                    ? inputs
                    : inputs - 1;
        v->rows = n - 1 - first;
        v->columns = n - 1;
        for (int k = 0; k < v->rows; k++) v->row[k] = v->column[first + 1 + k];
    } else {
        const char *answer = eg_trainer_predict(t, input);
        v->rows = v->columns = answer ? eg_data_encode(d, answer, EG_EXAMPLE_MAX, token) : 0;
        for (int k = 0; k < v->rows; k++) v->row[k] = eg_data_symbol(d, token[k]);
    }
    if (v->rows < 1) return false; /* the answer has no symbols */
    v->w = eg_slice("l h [i] j", w, first, first + v->rows, 1);
    v->w = eg_slice("l h i [j]", v->w, 0, v->columns, 1);
    return eg_ok(v->w);
}

/* Returns the mean weight on symbols that equal the one being generated, for one head of a view. */
static double weight_on_own_symbol(view *v, int64_t layer, int64_t head)
{
    double sum = 0;
    for (int i = 0; i < v->rows; i++)
        for (int j = 0; j < v->columns; j++)
            if (strcmp(v->row[i], v->column[j]) == 0) sum += eg_get(v->w, layer, head, i, j);
    return sum / v->rows;
}

/* a map is easy to read if the input is short and, in a task, no symbol is repeated */
static bool easy_to_read(const eg_example *e, bool pairs)
{
    bool good = e->inputs >= 6 && e->inputs <= 16;
    for (int k = 0; good && !pairs && k < e->inputs; k++)
        for (int j = 0; j < k; j++) good = good && e->input[j] != e->input[k];
    return good;
}

static bool answers_right(eg_trainer *t, const char *input, const char *truth)
{
    const char *answer = eg_trainer_predict(t, input);
    return answer && strcmp(answer, truth) == 0;
}

/* Prints the map of the head with the largest mean weight on symbols that equal the generated one,
 * for an input that is answered correctly and easy to read. */
static bool print_best_map(eg_trainer *t, char *shown_input)
{
    eg_ctx *cx = eg_context(eg_params_at(eg_trainer_params(t), 0)->x);
    int64_t layers = eg_trainer_config(t)->layers, heads = eg_trainer_config(t)->heads;
    double *mass = calloc((size_t)(layers * heads), sizeof *mass);
    char input[TEXT_SIZE], truth[TEXT_SIZE];
    eg_example e;
    view v;
    int seen = 0, chosen = -1;
    for (int k = 0; mass && k < EXAMINED && example(t, k, input, truth, &e); k++) {
        eg_mark m = eg_push(cx);
        if (find_map(t, input, &v)) {
            for (int64_t n = 0; n < layers * heads; n++)
                mass[n] += weight_on_own_symbol(&v, n / heads, n % heads);
            seen++;
            if (chosen < 0) chosen = k;
        }
        eg_pop(cx, m);
    }
    for (int k = 0; k < 200 && seen && example(t, k, input, truth, &e); k++)
        if (easy_to_read(&e, eg_data_pairs_text(eg_trainer_data(t)) != NULL) &&
            answers_right(t, input, truth)) {
            chosen = k;
            break;
        }
    int64_t best = 0;
    for (int64_t n = 1; seen && n < layers * heads; n++)
        if (mass[n] > mass[best]) best = n;
    eg_mark m = eg_push(cx);
    if (seen && example(t, chosen, shown_input, truth, &e) && find_map(t, shown_input, &v)) {
        bool apart = strcmp(eg_trainer_config(t)->model, "seq2seq") == 0;
        printf("\n%slayer %lld, head %lld, for the input %s: a row is an output symbol, the "
               "columns are the symbols that it attends to\n"
               "(%.0f %% of its weight is on an equal symbol, the most of all heads)\n\n",
               apart ? "cross attention, " : "", (long long)(best / heads),
               (long long)(best % heads), shown_input, 100 * mass[best] / seen);
        eg_heatmap_print(
            stdout, eg_select("[h] i j", eg_select("[l] h i j", v.w, best / heads), best % heads),
            .rows = v.row, .columns = v.column, .colour = in_colour(stdout),
            .width = terminal_width());
    } else if (!eg_error(cx))
        example(t, 0, shown_input, truth, &e);
    eg_pop(cx, m);
    free(mass);
    return !eg_error(cx);
}

/* -- further commands -------------------------------------------------------------------------- */
/* Prints commands that can be tried next. */
static void print_next(eg_trainer *t, const char *path, const char *input)
{
    static const char data[] = "examples/data/dates.tsv";
    const char *name = eg_data_name(eg_trainer_data(t));
    int k = 0;
    while (eg_task_at(k) && strcmp(eg_task_at(k)->name, name) != 0) k++;
    const eg_task *other = eg_task_at(k) && eg_task_at(k + 1) ? eg_task_at(k + 1) : eg_task_at(0);
    printf("\nNext:\n  %s attend ", program());
    print_quoted(path);
    putchar(' ');
    if (*input == '-') fputs("-- ", stdout);
    print_quoted(input);
    bool here = access(data, R_OK) == 0 && strcmp(name, data) != 0;
    printf("   # every head, on an input of your own\n");
    printf("  %s train --pairs %s   # %s: input TAB output, one a line\n", program(),
           here ? data : "FILE",
           here ? "dates in ten ways, or a file of your own" : "a file of your own");
    printf("  %s train %s   # %s\n", program(), other->name, other->about);
}

bool holds_step(eg_trainer *t, const char *path, int64_t step)
{
    const eg_saved has = eg_trainer_saved(t, path);
    return has.exists && has.same && has.step == step;
}
/* Prints how often the gradient was clipped, and at which step the held-out loss was smallest. */
static void print_clipping(eg_trainer *t, const eg_progress *p, const char *path, const char *best)
{
    double limit = eg_trainer_config(t)->clip_norm;
    if (limit > 0)
        printf("gradient clipped to %g in %lld of %lld step%s", limit, (long long)p->clipped,
               (long long)p->step, p->step == 1 ? "" : "s");
    else
        printf("no gradient was clipped");
    printf("; the largest norm was %.4g, at step %lld\n", p->largest_norm,
           (long long)p->largest_norm_step);
    if (p->best_loss < 0 || p->best_step == p->step) return;
    const bool text = eg_data_is_text(eg_trainer_data(t));
    printf("unseen loss was smallest at step %lld, %.4f%s%s%s\n", (long long)p->best_step,
           text ? p->best_loss / log(2) : p->best_loss, text ? " bits a " : "",
           text ? eg_data_unit(eg_trainer_data(t)) : "", p->stopped ? "; stopped early" : "");
    if (best && holds_step(t, best, p->best_step))
        printf("that model is saved in %s; %s has the last one\n", best, path);
    else if (best)
        printf(
            "%s does not have that model, since the run had another --best then, or none; %s has "
            "the last one\n",
            best, path);
    else
        printf("%s has the last model, not that one: --best FILE keeps it\n", path);
}

static void print_saved(const eg_progress *p, const progress *g, const char *path)
{
    printf("%lld step%s, %.1f s of training, %.1f s in all; saved in %s\n", (long long)p->step,
           p->step == 1 ? "" : "s", p->seconds, seconds() - g->start, path);
}

/* -- a text: how well it is predicted, and a continuation -------------------------------------- */
/* The end of `train --text`: bits per character, a text that the model generates, further
 * commands. */
static int print_text_result(eg_trainer *t, const char *path, const char *best, const eg_score *s,
                             const eg_progress *p, const progress *g)
{
    eg_ctx *cx = eg_context(eg_params_at(eg_trainer_params(t), 0)->x);
    size_t bytes;
    printf("%.3f bits a %s on %lld unseen ones, perplexity %.3f; %.1f %% predicted exactly\n",
           s->loss / log(2), eg_data_unit(eg_trainer_data(t)), (long long)s->tokens, exp(s->loss),
           100 * (double)s->right / (double)s->tokens);
    const char *text = eg_trainer_generate(t, .length = 300, .temperature = 0.8, .bytes = &bytes);
    if (!text) return print_context_error(cx, NULL);
    puts("\nA generated text (temperature 0.8):\n");
    fwrite(text, 1, bytes, stdout);
    puts("\n");
    print_clipping(t, p, path, best);
    print_saved(p, g, path);
    /* the best model, if it is another one and was kept */
    const bool last = p->best_loss < 0 || p->best_step == p->step;
    printf("\nNext:\n  %s generate ", program());
    print_quoted(!last && best && holds_step(t, best, p->best_step) ? best : path);
    puts(
        " --length 1000 --temperature 0.8   # --prompt TEXT: how it begins; --seed N: another one");
    /* with more steps only the loss on the seen text would decrease */
    if (!last) return EXIT_SUCCESS;
    printf("  %s train --resume ", program());
    print_quoted(path);
    printf(" --steps %lld   # go on\n", (long long)(2 * p->steps));
    return EXIT_SUCCESS;
}

/* The listing is causal; an encoder's attention and the cross attention are not. */
static void print_listing(const char *model)
{
    static const char causal[] = ".where = \"j <= i\", ";
    const char *at = strstr(listing, causal);
    const bool encoder = !strcmp(model, "encoder"), both = !strcmp(model, "seq2seq");
    printf("\nThe attention that was trained, in eingrad (examples/04_attention.c%s):\n\n",
           encoder ? ", without its causal mask"
           : both  ? "; .where in the decoder's attention to itself alone"
                   : "");
    if (encoder && at)
        printf("%.*s%s", (int)(at - listing), listing, at + strlen(causal));
    else
        fputs(listing, stdout);
}

int print_result(eg_trainer *t, const char *path, const char *best, const eg_score *s,
                 const eg_progress *p, const progress *g)
{
    eg_ctx *cx = eg_context(eg_params_at(eg_trainer_params(t), 0)->x);
    char input[TEXT_SIZE] = "";
    eg_trainer_check_report r;
    if (g->text) return print_text_result(t, path, best, s, p, g);
    printf("%lld of %lld unseen sequence%s exactly right (%.1f %%)\n", (long long)s->exact,
           (long long)s->sequences, s->sequences == 1 ? "" : "s",
           100 * (double)s->exact / (double)s->sequences);
    if (g->goal > 0 && (double)s->exact < g->goal * (double)s->sequences) {
        printf("The goal was %.4g %%. More steps may reach it: %s train --resume ", 100 * g->goal,
               program());
        print_quoted(path);
        printf(" --steps %lld\n", (long long)(2 * p->steps));
    }
    if (!print_predictions(t) || !print_best_map(t, input) || eg_trainer_check(t, &r))
        return print_context_error(cx, NULL);
    printf("\ngradients checked: %lld of %lld parameters, worst %.1e (%s)\n", (long long)r.right,
           (long long)r.entries, r.worst, r.worst_name ? r.worst_name : "none");
    print_clipping(t, p, path, best);
    print_saved(p, g, path);
    /* with other options of the attention the listing does not show the attention that was
     * trained */
    if (!eg_trainer_config(t)->attention) print_listing(eg_trainer_config(t)->model);
    print_next(t, path, input);
    return EXIT_SUCCESS;
}
