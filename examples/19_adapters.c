/* 19: fine-tuning a saved model by adapters (LoRA). The weights W_q and W_v of every attention
 * become W + A B with narrow matrices A and B, which alone are trained; the file's weights stay as
 * they are. A list with .values makes the model of these sums; at the end the sums are saved as a
 * model. Hu et al. 2021 */
#include <eingrad.h>
#include <stdlib.h>
#include <string.h>

enum { LETTERS = 12, LENGTH = 8, BATCH = 32, D = 32, HEADS = 4, RANK = 4, MOST = 64 };

static eg_transformer *make(eg_params *p)
{
    return eg_transformer_new(p, "", .vocabulary = LETTERS, .length = LENGTH, .d_model = D,
                              .heads = HEADS, .layers = 2);
}

/* The loss on new words: the model reverses each, or after fine-tuning moves its letters by one. */
static eg_tensor *loss_on_words(const eg_transformer *net, eg_ctx *cx, bool moved)
{
    eg_tensor *words = eg_randint(cx, 0, LETTERS, BATCH, LENGTH),
              *next = eg_concat("b [l]", eg_slice("b [l]", words, 1, EG_END, 1),
                                eg_slice("b [l]", words, 0, 1, 1));
    return eg_cross_entropy("b l [v]", eg_transformer_run(net, words),
                            moved ? next : eg_flip("b [l]", words));
}

/* Trains a model to reverse words, and saves it. */
static void train_base(eg_ctx *cx, const char *path)
{
    eg_params *p = eg_params_open(cx);
    eg_transformer *net = make(p);
    eg_opt *op = eg_adam(p, .lr = 3e-3);
    for (int step = 0; step < 300 && !eg_error(cx); step++) {
        eg_mark m = eg_push(cx);
        eg_step(op, loss_on_words(net, cx, false));
        eg_pop(cx, m);
    }
    eg_params_save(p, path);
}

static bool is_adapted(const char *name) { return strstr(name, ".W_q") || strstr(name, ".W_v"); }

/* Adds A (m r), drawn, and B (r h d), zeros, for each adapted weight: at first A B is 0. */
static eg_params *adapters_of(const eg_params *base)
{
    eg_params *p = eg_params_open(eg_params_context(base));
    const eg_named *w;
    for (int k = 0; (w = eg_params_at(base, k)); k++) {
        if (!is_adapted(w->name)) continue;
        eg_params *here = eg_params_under(p, w->name);
        eg_init_normal(eg_param(here, "A", "m r", D, RANK), 0.1);
        eg_init_constant(eg_param(here, "B", "r h d", RANK, HEADS, D / HEADS), 0);
    }
    return p;
}

/* The weights of the base, and in place of an adapted one W + A B. The sums are recorded, so that
 * gradients reach A and B, and made anew in each step. */
static void add_adapters(eg_named sum[MOST + 1], const eg_params *base, const eg_params *adapters)
{
    const int n = eg_params_count(base);
    for (int k = 0; k < n && k < MOST; k++) {
        char A[64], B[64];
        sum[k] = *eg_params_at(base, k);
        if (!is_adapted(sum[k].name)) continue;
        snprintf(A, sizeof A, "%s.A", sum[k].name), snprintf(B, sizeof B, "%s.B", sum[k].name);
        sum[k].x = eg_add(sum[k].x, eg_einsum("mr,rhd->mhd", eg_params_find(adapters, A),
                                              eg_params_find(adapters, B)));
    }
    sum[n < MOST ? n : MOST] = (eg_named){ 0 };
}

int main(void)
{
    eg_ctx *cx = eg_open(.seed = 1);
    train_base(cx, "base.safetensors");
    eg_params *base = eg_params_open(cx, .zero_init = true);
    make(base);
    eg_params_load(base, "base.safetensors");
    eg_params *adapters = adapters_of(base);
    printf("%lld parameters, of adapters %lld\n", (long long)eg_params_size(base),
           (long long)eg_params_size(adapters));

    eg_opt *op = eg_adamw(adapters, .lr = 1e-2,
                          .groups = (eg_opt_group[]){ { "*.B", .weight_decay = EG_OFF }, { 0 } });
    eg_named sum[MOST + 1];
    double loss = 0;
    for (int step = 0; step <= 400 && !eg_error(cx); step++) {
        eg_mark m = eg_push(cx);
        add_adapters(sum, base, adapters);
        eg_tensor *y = loss_on_words(make(eg_params_open(cx, .values = sum)), cx, true);
        eg_step(op, y);
        loss = eg_item(y);
        if (step % 100 == 0) printf("step %3d: loss %.4f\n", step, loss);
        eg_pop(cx, m);
    }

    /* one model again, without adapters */
    eg_params *merged = eg_params_open(cx, .zero_init = true);
    eg_transformer *net = make(merged);
    eg_nograd(cx, true);
    add_adapters(sum, base, adapters);
    eg_params *values = eg_params_open(cx, .values = sum);
    make(values);
    eg_params_copy(merged, values);
    eg_params_save(merged, "moved.safetensors");
    loss = eg_item(loss_on_words(net, cx, true));
    printf("the merged model: loss %.4f\n", loss);
    remove("base.safetensors"), remove("moved.safetensors");
    if (eg_error(cx)) fprintf(stderr, "%s\n", eg_error(cx));
    const bool good = !eg_error(cx) && loss < 0.1;
    eg_close(cx);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
