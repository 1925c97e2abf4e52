/* test_text.c: language models of a text, and options of training besides its steps: parts of a
 * batch, early stop, the best checkpoint. */
#if HAVE_CONFIG_H
#include <config.h> /* EG_DEBUG_ALLOC */
#endif
#include <eingrad.h>
#include <eingrad/check.h>
#include <stdlib.h>
#include <unistd.h>
#include "fixtures.h"
#include "tests.h"
#include "train/data.h" /* eg__corpus_position */

static eg_ctx *cx;
static void open_f32(void) { cx = eg_open(.threads = 2); }
static void close_cx(void) { eg_close(cx); }

static eg_data *repeated(const char *word, int64_t size)
{
    static char text[8000];
    for (int64_t k = 0; k < size; k++) text[k] = word[k % (int64_t)strlen(word)];
    return eg_data_corpus_of(cx, text, (size_t)size, "repeated");
}

static eg_trainer *small(eg_data *d, eg_trainer_args o)
{
    o.size = sizeof o, o.data = d, o.layers = 1, o.d_model = 16, o.heads = 2,
    o.batch = o.batch ? o.batch : 8;
    return eg_trainer_new_with(&o);
}

/* -- the text --------------------------------------------------------------------------------- */
/* 0, a backslash, é, €, half a surrogate */
static const char odd[] =
    "a\0b\n\\x41\xff\xc3\xa9\xe2\x82\xac\xed\xa0\x80\x7f\t\"a\0b\n\\x41\xff\xc3\xa9";

GROUP("text", .setup = open_f32, .teardown = close_cx, .timeout = 600)

TEST(any_bytes_are_a_text)
{
    char path[] = "/tmp/eg_odd_XXXXXX", out[64];
    close(mkstemp(path));
    eg_data *d = eg_data_corpus_of(cx, odd, sizeof odd - 1, "odd");
    eg_assert_ok(cx);
    ck_assert(eg_data_is_text(d) && eg_data_wants_decoder(d) && !eg_data_pairs_text(d));
    /* é and € are one symbol each, the surrogate is three bytes */
    ck_assert_int_eq(eg_data_size(d), 27);
    ck_assert_int_eq(eg_data_symbols(d), EG_FIRST + 17);
    size_t n = eg_data_decode(d, (int)d->count, d->tokens, out, sizeof out);
    ck_assert_uint_eq(n, sizeof odd - 1);
    ck_assert(!memcmp(out, odd, n));
    ck_assert_uint_eq(eg_data_decode(d, (int)d->count, d->tokens, out, 4), n);
    ck_assert(!memcmp(out, "a\0b", 4));
    eg_trainer *t = small(d, (eg_trainer_args){ .context = 1 });
    ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
    ck_assert_int_eq(eg_trainer_save(t, path), 0);
    eg_trainer *again = eg_trainer_load(cx, path, .inference_only = true);
    ck_assert_msg(again != NULL, "%s", eg_error(cx));
    ck_assert_int_eq(eg_data_symbols(eg_trainer_data(again)), EG_FIRST + 17);
    size_t bytes[2];
    char first[800];
    const char *text = eg_trainer_generate(t, .length = 100, .seed = 4, .bytes = &bytes[0]);
    memcpy(first, text, bytes[0]);
    text = eg_trainer_generate(again, .length = 100, .seed = 4, .bytes = &bytes[1]);
    ck_assert(bytes[0] == bytes[1] && bytes[0] >= 100 && !memcmp(first, text, bytes[0]));
    ck_assert_int_eq(eg_trainer_step(again, NULL), -1);
    eg_assert_error(cx, "odd: the text was left out when the model was loaded");
    ck_assert_int_eq(eg_trainer_evaluate(again, NULL), -1);
    eg_assert_error(cx, "odd: the text was left out");
    unlink(path);
}

/* A file from before blocks existed: the block follows from the sizes, with and without the text.
 */
TEST(an_older_model_generates_without_its_text)
{
    char path[] = "/tmp/eg_older_XXXXXX", text[] = "/tmp/eg_older_text_XXXXXX";
    close(mkstemp(path));
    FILE *f = fdopen(mkstemp(text), "w");
    for (int k = 0; k < 300; k++) fputs("abcde fgh\n", f);
    fclose(f);
    eg_trainer *t = small(eg_data_corpus(cx, text), (eg_trainer_args){ .context = 24 });
    ck_assert(!eg_trainer_step(t, NULL) && !eg_trainer_save(t, path));
    without_blocks(path);
    const char *message[2];
    for (int k = 0; k < 2; k++) {
        eg_trainer *again = eg_trainer_load(cx, path, .inference_only = k);
        ck_assert_msg(again != NULL, "%s", eg_error(cx));
        ck_assert_int_eq(eg_trainer_config(again)->block, eg_trainer_config(t)->block);
        message[k] = eg_trainer_generate(again, .length = 20, .seed = 4);
        ck_assert_msg(message[k] != NULL, "%s", eg_error(cx));
    }
    ck_assert_str_eq(message[0], message[1]);
    unlink(path), unlink(text);
}

/* The smallest character of each length, and the one below it, which is shorter. */
TEST(a_character_has_its_shortest_form)
{
    static const char *const smallest[] = { "\xC2\x80", "\xE0\xA0\x80", "\xF0\x90\x80\x80" },
                             *const below[] = { "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF" };
    static const uint32_t codes[] = { 0x80, 0x800, 0x10000 };
    for (int k = 0; k < 3; k++) {
        uint32_t code = 0;
        ck_assert_int_eq(eg_utf8(smallest[k], (size_t)k + 2, &code), k + 2);
        ck_assert_uint_eq(code, codes[k]);
        ck_assert_int_eq(eg_utf8(below[k], (size_t)k + 2, &code), 0);
    }
}

TEST(training_windows_end_before_the_held_out_part)
{
    eg_data *d = repeated("abcdefg", 700);
    int64_t least = 700, most = 0;
    ck_assert_int_eq(d->held_from, 630);
    for (uint64_t k = 0; k < 20000; k++) {
        int64_t at = eg__corpus_position(d, 3, k, 20);
        least = at < least ? at : least;
        most = at > most ? at : most;
    }
    /* the last target is the last symbol before the held-out part */
    ck_assert(least == 0 && most + 20 == d->held_from - 1);
    eg_trainer *t = small(d, (eg_trainer_args){ .context = 20 });
    eg_score s;
    ck_assert_int_eq(eg_trainer_evaluate(t, &s), 0);
    /* 69 targets in windows of 20, 20, 20 and 9 */
    ck_assert(s.sequences == 4 && s.tokens == 69);
    eg_example e;
    ck_assert_int_eq(eg_trainer_test(t, 0, &e), -1);
    ck_assert_int_eq(eg_data_example(d, 0, 0, &e), -1);
    eg_assert_ok(cx);
}

TEST(a_periodic_text_is_learnt) /* to almost 0 bits, and continued beyond the context */
{
    eg_data *d = repeated("abcabd", 1200);
    eg_trainer *t = eg_trainer_new(d, .layers = 1, .d_model = 32, .heads = 2, .batch = 16,
                                   .steps = 150, .context = 12, .lr = 5e-3);
    eg_progress p;
    eg_score s;
    ck_assert_int_eq(eg_trainer_run(t, NULL, NULL, &p), 0);
    ck_assert_int_eq(p.step, 150);
    ck_assert_int_eq(eg_trainer_evaluate(t, &s), 0);
    /* the first positions of a window have no context */
    ck_assert_msg(s.loss < 0.15, "%g", s.loss);
    ck_assert_double_eq(p.held_out_loss, s.loss);
    ck_assert_str_eq(eg_trainer_generate(t, .prompt = "abcab", .length = 31, .temperature = EG_OFF),
                     "dabcabdabcabdabcabdabcabdabcabd");
    ck_assert_str_eq(eg_trainer_generate(t, .prompt = "abcab", .length = 7, .beam = 3), "dabcabd");
    ck_assert_str_eq(
        eg_trainer_generate(t, .prompt = "abcabdabcabdabcabdabcab", .length = 4, .top_k = 1),
        "dabc");
    const char *const *tokens;
    eg_tensor *w = eg_trainer_self_attention_weights(t, "abcabd", &tokens);
    ck_assert(eg_dim(w, 2) == 6 && !strcmp(tokens[5], "d"));
    ck_assert_double_eq(eg_get(w, 0, 0, 2, 3), 0); /* causal */
    eg_trainer_check_report r;
    ck_assert_int_eq(eg_trainer_check(t, &r), 0);
    ck_assert(r.right == r.entries);
}

TEST(a_seed_is_a_text)
{
    eg_trainer *t = small(repeated("abcdefghij", 400), (eg_trainer_args){ .context = 8 });
    char first[64];
    strcpy(first, eg_trainer_generate(t, .length = 40, .seed = 7));
    ck_assert_uint_eq(strlen(first), 40);
    ck_assert_str_eq(eg_trainer_generate(t, .length = 40, .seed = 7), first);
    ck_assert_str_ne(eg_trainer_generate(t, .length = 40, .seed = 8), first);
    ck_assert_str_ne(eg_trainer_generate(t, .length = 40, .seed = 7, .prompt = "j"), first);
    eg_threads(cx, 1);
    ck_assert_str_eq(eg_trainer_generate(t, .length = 40, .seed = 7), first);
}

TEST(texts_refused)
{
    eg_data *d = repeated("abc", 300), *task = eg_data_task(cx, eg_task_find("copy"));
    ck_assert_ptr_null(eg_data_corpus_of(cx, "", 0, "none"));
    eg_assert_error(cx, "none: a text of 0 characters; 20 are needed");
    ck_assert_ptr_null(eg_data_corpus_of(cx, "a", 1, "one"));
    eg_assert_error(cx, "one: a text of 1 character; 20 are needed");
    ck_assert_ptr_null(eg_data_corpus_of(cx, NULL, 1, "null"));
    eg_assert_error(cx, "data: the text of null is NULL");
    ck_assert_ptr_null(eg_data_corpus(cx, "/nowhere/at.all"));
    eg_assert_error(cx, "/nowhere/at.all: No such file");
    ck_assert_ptr_null(eg_data_corpus(cx, "/tmp"));
    eg_assert_error(cx, "/tmp: Is a directory");
    ck_assert_ptr_null(eg_data_corpus(cx, "/dev/zero")); /* it has no end */
    eg_assert_error(cx, "/dev/zero: is a device");
    ck_assert_ptr_null(eg_data_pairs(cx, "/dev/zero"));
    eg_assert_error(cx, "/dev/zero: is a device");
    ck_assert_ptr_null(small(d, (eg_trainer_args){ .context = 30 }));
    eg_assert_error(
        cx, "trainer: context 30 is longer than what is held out of repeated, 29 and one more");
    ck_assert_ptr_null(small(d, (eg_trainer_args){ .context = -1 }));
    eg_assert_error(cx, "trainer: context must be positive, not -1");
    ck_assert_ptr_null(small(task, (eg_trainer_args){ .context = 4 }));
    eg_assert_error(cx, "trainer: context 4, but only a text has one");
    ck_assert_ptr_null(small(d, (eg_trainer_args){ .model = "encoder" }));
    eg_assert_error(cx, "trainer: a text is learnt by a decoder, not by model \"encoder\"");
    ck_assert_ptr_null(small(task, (eg_trainer_args){ .smoothing = 1 }));
    eg_assert_error(cx, "trainer: smoothing must be in [0, 1), not 1");
    ck_assert_ptr_null(small(task, (eg_trainer_args){ .block = -1 }));
    eg_assert_error(cx, "trainer: block must not be negative, not -1");
    ck_assert_ptr_null(small(task, (eg_trainer_args){ .leaves = 5000 }));
    eg_assert_error(cx, "trainer: leaves is at most 4096");
    ck_assert_ptr_null(small(task, (eg_trainer_args){ .early_stop = -1 }));
    eg_assert_error(cx, "trainer: early_stop must not be negative, not -1");
    eg_trainer *t = small(d, (eg_trainer_args){ .context = 8 }),
               *copy = small(task, (eg_trainer_args){ .steps = 5 });
    ck_assert_ptr_null(eg_trainer_predict(t, "abc"));
    eg_assert_error(cx, "repeated: a model of a text gives no answers");
    ck_assert_ptr_null(eg_trainer_generate(t, .prompt = "xyz"));
    eg_assert_error(cx, "the symbol \"x\" is not in the vocabulary of 3");
    ck_assert_ptr_null(eg_trainer_generate(t, .length = -3));
    eg_assert_error(cx, "generate: the length must be from 1");
    ck_assert_ptr_null(eg_trainer_generate(t, .temperature = -1));
    eg_assert_error(cx, "decode: the temperature must be positive, not -1");
    ck_assert_ptr_null(eg_trainer_generate(t, .temperature = NAN));
    eg_assert_error(cx, "decode: the temperature must be positive");
    ck_assert_ptr_null(eg_trainer_generate(t, .beam = -1));
    eg_assert_error(cx, "generate: beam must be from 1");
    ck_assert_ptr_null(eg_trainer_generate(t, .beam = 4, .temperature = 0.5));
    eg_assert_error(cx, "decode: a beam of 4 draws nothing");
    ck_assert_ptr_null(eg_trainer_generate(copy, .prompt = "abc"));
    eg_assert_error(cx, "generate: an encoder computes all positions at once");
    ck_assert_ptr_null(eg_trainer_generate(
        small(eg_data_task(cx, eg_task_find("majority")), (eg_trainer_args){ .steps = 5 })));
    eg_assert_error(cx, "generate: the prompt is NULL");
    ck_assert_ptr_null(eg_trainer_generate_with(NULL));
    eg_assert_ok(cx);
}

/* -- evaluations on the test set --------------------------------------------------------------- */
/* a model that cannot change: the first evaluation sets the minimum, three more do not improve
 * it */
TEST(early_stop_counts_evaluations)
{
    eg_trainer *t =
        small(eg_data_task(cx, eg_task_find("sort")),
              (eg_trainer_args){ .lr = 1e-40, .evaluate = 2, .early_stop = 3, .steps = 40 });
    eg_progress p;
    ck_assert_int_eq(eg_trainer_run(t, NULL, NULL, &p), 0);
    ck_assert(p.step == 8 && p.stopped && p.best_step == 2 && p.best_loss == p.held_out_loss);
    ck_assert_int_eq(eg_trainer_run(t, NULL, NULL, &p), 0);
    ck_assert_int_eq(p.step, 8);
    t = small(eg_data_task(cx, eg_task_find("sort")),
              (eg_trainer_args){ .early_stop = 1, .steps = 40 });
    ck_assert_int_eq(eg_trainer_config(t)->evaluate, 100);
}

TEST(a_loaded_run_may_end_elsewhere)
{
    char path[] = "/tmp/eg_ends_XXXXXX";
    close(mkstemp(path));
    eg_data *data = eg_data_task(cx, eg_task_find("sort"));
    eg_trainer *t =
        small(data, (eg_trainer_args){ .lr = 1e-40, .evaluate = 2, .early_stop = 3, .steps = 12 });
    eg_progress p;
    ck_assert(!eg_trainer_run(t, NULL, NULL, &p) && p.step == 8 && !eg_trainer_save(t, path));
    t = eg_trainer_load(cx, path, .early_stop = 4, .goal = 0.5);
    ck_assert_msg(t && eg_trainer_config(t)->goal == 0.5, "%s", eg_error(cx));
    ck_assert(eg_trainer_saved(t, path).same); /* a run that goes on */
    ck_assert(!eg_trainer_run(t, NULL, NULL, &p) && p.step == 10 && p.stopped);
    ck_assert_int_eq(eg_trainer_save(t, path), 0);
    t = eg_trainer_load(cx, path, .early_stop = EG_OFF, .goal = EG_OFF);
    ck_assert(t && !eg_trainer_run(t, NULL, NULL, &p) && p.step == 12 && !p.stopped);
    ck_assert_double_eq(eg_trainer_config(t)->goal, 0);
    t = eg_trainer_load(cx, path, 0); /* as saved */
    ck_assert(t && eg_trainer_config(t)->early_stop == 4 && eg_trainer_config(t)->goal == 0.5);
    ck_assert_ptr_null(eg_trainer_load(cx, path, .goal = 2));
    eg_assert_error(cx, "goal must be a share of exact sequences, in [0, 1], not 2");
    t = small(data, (eg_trainer_args){ .lr = 1e-40, .evaluate = 2, .early_stop = 3, .steps = 12 });
    ck_assert_str_eq(eg_trainer_saved(t, path).differs, "goal 0.5, not 0.99");
    unlink(path);
}

TEST(the_best_model_is_saved) /* with a learning rate so large that the model gets worse again */
{
    char path[] = "/tmp/eg_best_XXXXXX";
    close(mkstemp(path));
    eg_trainer *t =
        small(repeated("abcdefgh", 400),
              (eg_trainer_args){
                  .context = 8, .evaluate = 1, .steps = 25, .lr = 1, .schedule = { .warmup = 1 } });
    eg_progress p;
    eg_score s;
    ck_assert_int_eq(eg_trainer_keep_best(t, path), 0);
    ck_assert_int_eq(eg_trainer_run(t, NULL, NULL, &p), 0);
    ck_assert(p.best_step < 25 && p.best_loss < p.held_out_loss);
    eg_trainer *best = eg_trainer_load(cx, path, .data = repeated("abcdefgh", 400));
    ck_assert_msg(best != NULL, "%s", eg_error(cx));
    ck_assert_int_eq(eg_trainer_progress(best).step, p.best_step);
    ck_assert_int_eq(eg_trainer_evaluate(best, &s), 0);
    ck_assert_double_eq(s.loss, p.best_loss);
    ck_assert_int_eq(eg_trainer_keep_best(t, "/nowhere/best"), 0);
    ck_assert_int_eq(eg_trainer_keep_best(t, NULL), 0);
    ck_assert_int_eq(eg_trainer_keep_best(NULL, NULL), -1);
    unlink(path);
}

TEST(smoothing_applies_to_the_training_loss_only)
{
    eg_progress p[2];
    eg_score s[2];
    for (int k = 0; k < 2; k++) {
        eg_trainer *t = small(eg_data_task(cx, eg_task_find("copy")),
                              (eg_trainer_args){ .smoothing = 0.3 * k });
        ck_assert_int_eq(eg_trainer_evaluate(t, &s[k]), 0);
        ck_assert_int_eq(eg_trainer_step(t, &p[k]), 0);
    }
    ck_assert_double_eq(s[0].loss, s[1].loss);
    ck_assert(fabs(p[0].loss - p[1].loss) > 1e-3);
}

/* -- the user's own task ---------------------------------------------------------------------- */
static void first_letter(eg_rng *rng, eg_example *e)
{
    e->inputs = e->outputs = 3;
    for (int k = 0; k < 3; k++) e->input[k] = (int)eg_rng_below(rng, 5);
    for (int k = 0; k < 3; k++) e->output[k] = e->input[0];
}
static const eg_task own = {
    "own", "the first letter, three times", "aβc😀\\", 3, 3, false, false, first_letter, 3e-3, 10,
    150
};
static const eg_task another = {
    "own", "the same with other letters", "abcde", 3, 3, false, false, first_letter, 3e-3, 10, 150
};

TEST(a_task_of_the_users_is_loaded)
{
    char path[] = "/tmp/eg_own_XXXXXX";
    close(mkstemp(path));
    eg_data *d = eg_data_task(cx, &own);
    eg_trainer *t = small(d, (eg_trainer_args){ .seed = 3 });
    eg_progress p, q;
    ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
    ck_assert_int_eq(eg_trainer_save(t, path), 0);
    ck_assert_int_eq(eg_trainer_step(t, &p), 0);
    ck_assert_ptr_null(eg_trainer_load(cx, path, 0));
    eg_assert_error(cx, "the task \"own\" is not one of eingrad's; load it with .data");
    ck_assert_ptr_null(eg_trainer_load(cx, path, .data = eg_data_task(cx, eg_task_find("sort"))));
    eg_assert_error(cx, "a model of own, not of sort");
    ck_assert_ptr_null(eg_trainer_load(cx, path, .data = eg_data_task(cx, &another)));
    eg_assert_error(cx, "its vocabulary is not that of own");
    eg_trainer *again = eg_trainer_load(cx, path, .data = d);
    ck_assert_msg(again != NULL, "%s", eg_error(cx));
    ck_assert_int_eq(eg_trainer_step(again, &q), 0);
    ck_assert(p.loss == q.loss && p.step == q.step && p.norm == q.norm);
    unlink(path);
}

/* -- curves ----------------------------------------------------------------------------------- */
/* A title is cut where the picture ends, not where the axis of x does. */
TEST(a_title_is_as_long_as_the_picture)
{
    static const char title[] =
        "two runs with grouped heads and rotary positions, compared over all steps, and more words";
    const eg_curve curve = {
        .name = "two runs", .count = 2, .x = (double[]){ 0, 1 }, .y = (double[]){ 1, 2 }
    };
    char path[] = "/tmp/eg_curve_XXXXXX.svg";
    long n;
    close(mkstemps(path, 4));
    ck_assert_int_eq(eg_curves_save(path, cx, 1, &curve, .title = title), 0);
    char *svg = bytes_of(path, &n);
    svg[n - 1] = 0;
    ck_assert(
        strstr(svg, ">two runs with grouped heads and rotary positions, compared over all ste"));
    ck_assert(strstr(svg, "…</text>") && !strstr(svg, "more words"));
    free(svg);
    unlink(path);
}
TEST(curves_are_drawn)
{
    char path[] = "/tmp/eg_curve_XXXXXX.svg", other[] = "/tmp/eg_curve_XXXXXX.png";
    close(mkstemps(path, 4)), close(mkstemps(other, 4));
    static const double x[] = { 0, 10, 20, 30, 40 }, y[] = { 1, 10, NAN, 100, -5 };
    const eg_curve curves[] = {
        { .name = "up <&>", .count = 5, .x = x, .y = y },
        { .name = "flat", .count = 2, .x = x, .y = (double[]){ 10, 10 } },
        { .count = 2, .x = x, .y = (double[]){ 10, 1 }, .dash = 1 },
        { .count = 2, .x = (double[]){ 20, 20 }, .y = (double[]){ 10, 10 } }
    };
    long n;
    ck_assert_int_eq(eg_curves_save(path, cx, 4, curves, .title = "T", .x_name = "step",
                                    .y_name = "loss", .logarithmic = true),
                     0);
    char *svg = bytes_of(path, &n);
    svg[n - 1] = 0;
    const char *const parts[] = { ">up &lt;&amp;&gt;</text>", ">flat</text>", ">T</text>",
                                  ">step</text>", ">loss</text>", ">100</text>", ">1</text>",
                                  /* (0, 1) is the lower left corner, 20 a gap, (30, 100) a dot */
                                  "points=\"120.0,486.0 360.0,271.0\"",
                                  "<rect x=\"838\" y=\"54\" width=\"4\"",
                                  /* two points at (20, 10): a dot too */
                                  "<rect x=\"598\" y=\"269\" width=\"4\"",
                                  "stroke-dasharray=\"7 4\"" };
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
        ck_assert_msg(strstr(svg, parts[k]) != NULL, "%s", parts[k]);
    int lines = 0;
    for (const char *at = svg; (at = strstr(at, "<polyline")); at++) lines++;
    ck_assert_int_eq(lines, 3 + 2); /* and a sample of each name in the legend */
    free(svg);
    if (strstr(eg_io_info(), "fontconfig")) {
        ck_assert_int_eq(eg_curves_save(other, cx, 1, curves + 1), 0);
        char *png = bytes_of(other, &n);
        ck_assert(!memcmp(png, "\x89PNG", 4));
        free(png);
    }
    ck_assert_int_eq(eg_curves_save("/tmp/x.jpg", cx, 1, curves), -1);
    eg_assert_error(cx, "picture: the name '/tmp/x.jpg' ends neither in .png nor in .svg");
    ck_assert_int_eq(eg_curves_save(path, cx, 33, curves), -1);
    eg_assert_error(cx, "curves: from 1 to 32 curves fit in one picture, not 33");
    ck_assert_int_eq(eg_curves_save(path, cx, 1, NULL), -1);
    eg_assert_error(cx, "curves: from 1 to 32");
    ck_assert_int_eq(
        eg_curves_save(path, cx, 1, &(eg_curve){ .count = 5, .x = x, .y = y, .dash = 8 }), -1);
    eg_assert_error(cx, "curve 0 has .dash 8, not one of 0 to 7");
    ck_assert_int_eq(
        eg_curves_save(path, cx, 1, &(eg_curve){ .count = 5, .x = x, .y = y, .colour = 9 }), -1);
    eg_assert_error(cx, "curve 0 has .colour 9, not one of 0 to 8");
    ck_assert_int_eq(eg_curves_save(path, cx, 1, &(eg_curve){ .count = 5, .x = x }), -1);
    eg_assert_error(cx, "curves: curve 0 has points, but its .y is NULL");
    ck_assert_int_eq(
        eg_curves_save(path, cx, 1, &(eg_curve){ .count = 1, .x = x, .y = (double[]){ NAN } }), -1);
    eg_assert_error(cx, "curves: there is no point to draw");
    ck_assert_int_eq(eg_curves_save(path, cx, 1,
                                    &(eg_curve){ .count = 1, .x = x, .y = (double[]){ -1 } },
                                    .logarithmic = true),
                     -1);
    eg_assert_error(cx, "no point to draw: a logarithmic axis has only numbers above 0");
    ck_assert_int_eq(eg_curves_save("/nowhere/x.svg", cx, 1, curves), -1);
    eg_assert_error(cx, "/nowhere/x.svg");
    unlink(path), unlink(other);
}

/* The extremes of a curve of a million points are in the picture, which is small nevertheless. */
TEST(long_curves_are_small)
{
    enum { N = 1000000 };
    char path[] = "/tmp/eg_curve_XXXXXX.svg";
    close(mkstemps(path, 4));
    double *x = malloc(2 * N * sizeof *x), *y = x + N;
    for (int k = 0; k < N; k++) x[k] = k, y[k] = k % 1000 / 1000.0;
    y[123456] = 5, y[654321] = -5;
    long n;
    ck_assert_int_eq(
        eg_curves_save(path, cx, 1, &(eg_curve){ .name = "", .count = N, .x = x, .y = y }), 0);
    char *svg = bytes_of(path, &n);
    svg[n - 1] = 0;
    ck_assert_int_lt(n, 60000);
    ck_assert_ptr_nonnull(strstr(svg, ",56.0"));  /* 5, at the upper end */
    ck_assert_ptr_nonnull(strstr(svg, ",486.0")); /* −5 */
    free(svg), free(x);
    unlink(path);
}

/* -- resuming --------------------------------------------------------------------------------- */
static bool stops(void *user, eg_trainer *t, const eg_progress *p)
{
    return (void)t, p->step == *(const int64_t *)user;
}

GROUP("contexts", .timeout = 600)

/* one run; another that is stopped at step 7, saved, loaded with other threads and continued; the
 * text in a file */
LOOP_TEST(a_resumed_text_has_the_same_bits, 2)
{
    char text[] = "/tmp/eg_text_XXXXXX", whole[] = "/tmp/eg_whole_XXXXXX",
         parts[] = "/tmp/eg_parts_XXXXXX";
    int fd = mkstemp(text);
    for (int k = 0; k < 100; k++) ck_assert_int_eq(write(fd, "do not go gentle ", 17), 17);
    close(fd), close(mkstemp(whole)), close(mkstemp(parts));
    for (int run = 0; run < 2; run++) {
        cx = eg_open(.threads = run ? 2 : 1);
        eg_trainer *t = small(eg_data_corpus(cx, text), (eg_trainer_args){ .context = 10,
                                                                           .steps = 14,
                                                                           .evaluate = 2,
                                                                           .early_stop = 6,
                                                                           .dropout = 0.1,
                                                                           .block = _i ? 2 : 0,
                                                                           .clip_norm = 0.5,
                                                                           .smoothing = 0.1 });
        ck_assert_int_eq(eg_trainer_run(t, stops, &(int64_t){ run ? 7 : 14 }, NULL), 0);
        if (run) {
            ck_assert_int_eq(eg_trainer_save(t, parts), 0);
            eg_close(cx);
            cx = eg_open(.threads = 1, .seed = 99);
            t = eg_trainer_load(cx, parts, 0);
            ck_assert_msg(t != NULL, "%s", eg_error(cx));
            ck_assert_int_eq(eg_trainer_run(t, NULL, NULL, NULL), 0);
        }
        ck_assert_int_eq(eg_trainer_save(t, run ? parts : whole), 0);
        eg_close(cx);
    }
    long n, m;
    char *a = bytes_of(whole, &n), *b = bytes_of(parts, &m);
    ck_assert(n == m && !memcmp(a, b, (size_t)n));
    free(a), free(b);
    cx = eg_open();
    FILE *f = fopen(text, "a");
    fputs("into that good night", f);
    fclose(f);
    ck_assert_ptr_null(eg_trainer_load(cx, parts, 0));
    eg_assert_error(cx, "when it had 1700 characters; ");
    eg_data *other = eg_data_corpus_of(cx, "do not go gentle", 16, "short");
    ck_assert_ptr_null(other);
    eg_clear(cx);
    ck_assert_ptr_null(eg_trainer_load(cx, parts, .data = eg_data_task(cx, eg_task_find("sort"))));
    eg_assert_error(cx, "a model of ");
    unlink(text);
    ck_assert_ptr_null(eg_trainer_load(cx, parts, 0));
    eg_assert_error(cx, "No such file");
    ck_assert_ptr_nonnull(eg_trainer_load(cx, parts, .inference_only = true));
    eg_close(cx);
    unlink(whole), unlink(parts);
}

/* -- parts of a batch ------------------------------------------------------------------------- */
/* uneven parts, uneven lengths, clipping: the same parameters to rounding */
LOOP_TEST(parts_of_a_batch_are_the_batch, 4)
{
    static const struct {
        eg_dtype type;
        double tolerance;
    } types[] = { { EG_F64, 1e-11 }, { EG_F32, 2e-4 } };
    static const char *const tasks[] = { "reverse", "addition" };
    cx = eg_open(.dtype = types[_i % 2].type, .threads = 2);
    eg_data *d = eg_data_task(cx, eg_task_find(tasks[_i / 2]));
    eg_trainer_args o = { .batch = 11, .clip_norm = 0.7, .smoothing = 0.1, .steps = 50 };
    eg_progress p, q;
    o.block = 11;
    eg_trainer *whole = small(d, o);
    o.block = 3;
    eg_trainer *parts = small(d, o);
    for (int k = 0; k < 6; k++) {
        ck_assert_int_eq(eg_trainer_step(whole, &p), 0);
        ck_assert_int_eq(eg_trainer_step(parts, &q), 0);
        ck_assert_double_eq_tol(p.loss, q.loss, types[_i % 2].tolerance);
        ck_assert_double_eq_tol(p.norm, q.norm, types[_i % 2].tolerance * 10);
        ck_assert(p.clipped == q.clipped && p.clipped > 0 &&
                  p.largest_norm_step == q.largest_norm_step);
    }
    for (int k = 0; eg_params_at(eg_trainer_params(whole), k); k++)
        eg_assert_close(eg_params_at(eg_trainer_params(whole), k)->x,
                        eg_params_at(eg_trainer_params(parts), k)->x, types[_i % 2].tolerance * 50);
    eg_close(cx);
}

#if !EG_DEBUG_ALLOC /* the peak is the arena's */
TEST(parts_take_less_memory)
{
    size_t peak[2];
    for (int k = 0; k < 2; k++) {
        cx = eg_open(.threads = 1);
        eg_trainer *t = small(eg_data_task(cx, eg_task_find("reverse")),
                              (eg_trainer_args){ .batch = 64, .block = k ? 8 : 64 });
        ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
        eg_stats_reset(cx);
        ck_assert_int_eq(eg_trainer_step(t, NULL), 0);
        peak[k] = eg_stats(cx).used_peak;
        eg_close(cx);
    }
    ck_assert_msg(peak[1] < peak[0] * 2 / 3, "%zu and %zu bytes", peak[0], peak[1]);
}
#endif

static bool text_life(eg_ctx *mine, const char *path)
{
    cx = mine;
    eg_trainer *t = small(repeated("abcde", 200), (eg_trainer_args){ .context = 4, .block = 2 });
    return t && !eg_trainer_step(t, NULL) && !eg_trainer_evaluate(t, NULL) &&
           eg_trainer_generate(t, .length = 9) && eg_trainer_generate(t, .length = 9, .beam = 3) &&
           !eg_trainer_save(t, path) && eg_trainer_load(cx, path, .inference_only = true);
}
TEST(each_allocation_may_fail) { memory_ends_in_turn(text_life, 60); }
