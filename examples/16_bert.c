/* 16: BERT from a folder with its config.json and model.safetensors. Reads numbers of tokens, and
 * prints their hidden states and the mean of these.
 *     16_bert FOLDER TOKEN… */
#include <eingrad.h>
#include <stdlib.h>

int main(int count, char **given)
{
    int32_t tokens[64], n = 0;
    for (; n < 64 && n + 2 < count; n++) tokens[n] = atoi(given[n + 2]);
    eg_ctx *cx = eg_open();
    eg_params *p = eg_params_open(cx);
    eg_transformer *net = eg_pretrained_load(p, count > 1 ? given[1] : NULL);
    eg_nograd(cx, true);
    eg_tensor *hidden = eg_transformer_run(net, eg_from(cx, tokens, 1, n)); /* (b l m) */
    eg_print(stdout, hidden);
    eg_print(stdout, eg_mean("b [l] m", hidden));
    puts(eg_error(cx) ? eg_error(cx) : "");
    const int status = eg_error(cx) ? EXIT_FAILURE : EXIT_SUCCESS;
    eg_close(cx);
    return status;
}
