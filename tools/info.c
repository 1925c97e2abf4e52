/* eingrad info: what this build computes with. */
#include "tools.h"
#include <stdlib.h>

static int run(const command *c, int count, char **word)
{
    words w;
    parsed p = read_options(c, count, word, NULL, &w);
    if (p != PARSED) return p == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    if (w.count) return say("info takes no words, and there is \"%s\"", w.word[0]);
    eg_ctx *cx = eg_open();
    if (!cx) return say_error(cx, NULL);
    printf("eingrad    %s\n", eg_version());
    printf("kernel     %s\n", eg_kernel_info());
    printf("threads    %d\n", eg_threads(cx, 0));
    printf("types     ");
    for (eg_dtype t = EG_F32; t <= EG_U8; t++)
        printf("%s %s", t == EG_F16 ? "; stored:" : "", eg_type_name(t));
    printf(" (default %s; c128 has no gradients)\n", eg_type_name(eg_default_type(cx)));
    printf("libraries  %s\n", eg_io_info());
    eg_close(cx);
    return EXIT_SUCCESS;
}

const command info_command = {
    .name = "info",
    .usage = "",
    .about = "version, BLIS kernel and why, threads, types, libraries",
    .more = "  info\n",
    .run = run,
};
