/* 14: a character model. It is trained on a text, and then continues the text. */
#include <eingrad.h>
#include <stdlib.h>
#include <string.h>

static const char *const small[] = { "zero", "one",   "two",   "three", "four", "five",
                                     "six",  "seven", "eight", "nine",  "ten",  "eleven" };

static bool watch(void *user, eg_trainer *t, const eg_progress *p)
{
    (void)user, (void)t;
    if (p->step % 100 == 0)
        printf("step %lld  %.2f bits a character\n", (long long)p->step, p->loss / 0.693147);
    return false;
}

int main(void)
{
    static char text[40000];
    for (size_t n = 0; n < sizeof text - 64; n += strlen(text + n)) {
        int a = 1 + rand() % 10, after = rand() % 2;
        snprintf(text + n, sizeof text - n, "%s %s comes %s\n", after ? "after" : "before",
                 small[a], small[after ? a + 1 : a - 1]);
    }
    eg_ctx *cx = eg_open();
    eg_data *d = eg_data_corpus_of(cx, text, strlen(text), "numbers");
    eg_trainer *t = eg_trainer_new(d, .layers = 2, .d_model = 64, .heads = 4, .context = 48,
                                   .batch = 16, .steps = 600, .lr = 4e-3);
    eg_progress now = { .loss = 0 };
    eg_score s = { .loss = 99 };
    eg_trainer_run(t, watch, NULL, &now);
    eg_trainer_evaluate(t, &s);
    printf("held out: %.2f bits a character\n", s.loss / 0.693147);
    bool knows = true;
    for (int k = 0; k < 2; k++) {
        const char *said = eg_trainer_generate(t, .prompt = "after seven comes ", .length = 100,
                                               .temperature = k ? 0.5 : EG_OFF, .seed = 1);
        printf("%s\nafter seven comes %s\n",
               k ? "-- drawn:" : "-- the likeliest:", said ? said : "");
        if (!k) knows = said && strncmp(said, "eight\n", 6) == 0;
    }
    if (eg_error(cx)) fprintf(stderr, "%s\n", eg_error(cx));
    bool good = !eg_error(cx) && knows && s.loss < 0.3;
    eg_close(cx);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
