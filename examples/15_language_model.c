/* 15: GPT-2, Llama, Mistral or Qwen from a folder with config.json and model.safetensors. Reads and
 * prints numbers of tokens: 15_language_model FOLDER TOKEN… */
#include <eingrad.h>
#include <stdlib.h>

int main(int count, char **given)
{
    int32_t tokens[64], n = 0;
    for (; n < 64 && n + 2 < count; n++) tokens[n] = atoi(given[n + 2]);
    eg_ctx *cx = eg_open();
    eg_params *p = eg_params_open(cx);
    eg_transformer *net = eg_pretrained_load(p, count > 1 ? given[1] : NULL);
    if (net && net->no_logits) eg_fail(cx, "%s has no logits: see example 16", given[1]);
    eg_nograd(cx, true);
    eg_cache *seen = eg_cache_new(eg_params_owner(p), n + 8);
    eg_tensor *next = eg_from(cx, tokens, 1, n);
    for (int k = 0; k < 8 && !eg_error(cx); k++) {
        eg_tensor *logits = eg_transformer_run(net, next, .cache = seen); /* (b l v) */
        next = eg_argmax("b l [v]", eg_slice_axis(logits, 1, -1, eg_dim(logits, 1), 1));
        if (eg_ok(next)) printf("%s%d", k ? " " : "", (int)eg_get(next, 0, 0));
    }
    puts(eg_error(cx) ? eg_error(cx) : "");
    const int status = eg_error(cx) ? EXIT_FAILURE : EXIT_SUCCESS;
    eg_close(cx);
    return status;
}
