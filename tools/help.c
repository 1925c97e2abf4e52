/* eingrad help: the man page of a command, a function or a header, on this terminal. */
#include "tools.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef MANDIR
#define MANDIR "/usr/local/share/man"
#endif
static const char *pages(void)
{
    const char *own = getenv("EINGRAD_MAN");
    return own ? own : MANDIR;
}

/* The names of pages whose names a topic may mean: prefix, section. */
static const struct {
    const char *prefix;
    int section;
} kinds[] = { { "eingrad-", 1 }, { "", 3 }, { "eg_", 3 }, { "eingrad-", 7 }, { "", 1 } };
enum { KINDS = sizeof kinds / sizeof *kinds, LISTED = 2048 };

/* Writes the path of the page of topic; false if there is none. Distributions compress pages. */
static bool find_page(const char *topic, char *path, size_t room)
{
    for (int k = 0; k < KINDS; k++)
        for (int packed = 0; packed < 2; packed++) {
            snprintf(path, room, "%s/man%d/%s%s.%d%s", pages(), kinds[k].section, kinds[k].prefix,
                     topic, kinds[k].section, packed ? ".gz" : "");
            if (!strchr(topic, '/') && access(path, R_OK) == 0) return true;
        }
    return false;
}

static char *listed[LISTED + 1];
static const char *listed_name(int k) { return listed[k]; }
/* Lists the functions that have a page. */
static void list_functions(void)
{
    char folder[512];
    int n = 0;
    snprintf(folder, sizeof folder, "%s/man3", pages());
    DIR *d = opendir(folder);
    for (struct dirent *e; n < LISTED && d && (e = readdir(d));)
        if (strncmp(e->d_name, "eg_", 3) == 0 && (listed[n] = strdup(e->d_name)) != NULL)
            *strchr(listed[n++], '.') = 0;
    if (d) closedir(d);
}

static int run(const command *c, int count, char **word)
{
    char path[1024];
    words w;
    parsed p = read_options(c, count, word, NULL, &w);
    if (p != PARSED) return p == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    if (w.count != 1) return say("help takes one topic, and there are %d", w.count);
    const char *topic = w.word[0];
    if (find_page(topic, path, sizeof path)) {
        execlp("man", "man", "-l", path, (char *)NULL);
        return say("man: %s; the page is %s", strerror(errno), path);
    }
    list_functions();
    snprintf(path, sizeof path, "%s%s", strncmp(topic, "eg_", 3) == 0 ? "" : "eg_", topic);
    const char *near = nearest(path, listed_name);
    int status = near ? say("there is no page \"%s\" in %s; is it %s?", topic, pages(), near)
                      : say("there is no page \"%s\" in %s", topic, pages());
    for (int k = 0; listed[k]; k++) free(listed[k]);
    return status;
}

const command help_command = {
    .name = "help",
    .usage = "TOPIC",
    .about = "the page of a command, a function or a header: help train, help eg_einsum, help ops",
    .run = run,
};
