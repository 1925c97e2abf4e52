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
/* Returns the folder of the pages: that of EINGRAD_MAN; else the one relative to this program, as
 * in a build or after `make install prefix=FOLDER`; else that of configure. */
static const char *pages(void)
{
    static char folder[1024];
    static const char *const relative[] = { "../share/man", "man" };
    char program_path[900], probe[1040];
    const char *own = getenv("EINGRAD_MAN");
    if (own) return own;
    const ssize_t n = readlink("/proc/self/exe", program_path, sizeof program_path - 1);
    program_path[n > 0 ? n : 0] = 0;
    char *slash = strrchr(program_path, '/');
    for (size_t k = 0; slash && k < sizeof relative / sizeof *relative; k++) {
        snprintf(folder, sizeof folder, "%.*s/%s", (int)(slash - program_path), program_path,
                 relative[k]);
        snprintf(probe, sizeof probe, "%s/man3", folder);
        if (access(probe, R_OK) == 0) return folder;
    }
    return MANDIR;
}

/* The pages that a topic may mean: prefix, section, ending of the topic. */
static const struct {
    const char *prefix;
    int section;
    const char *end;
} kinds[] = { { "eingrad-", 1, "" }, { "", 3, "" }, { "eg_", 3, "" }, { "eingrad-", 7, ".h" },
              { "eingrad-", 7, "" }, { "", 1, "" }, { "", 7, "" } };
enum { KINDS = sizeof kinds / sizeof *kinds, LISTED = 2048 };

/* Writes the path of the page of topic. False if there is none. Distributions compress pages. */
static bool find_page(const char *topic, char *path, size_t size)
{
    const char *slash = strrchr(topic, '/'); /* eingrad/ops.h */
    if (slash && strcmp(slash, "/") != 0 && strncmp(topic, "eingrad/", 8) == 0) topic = slash + 1;
    for (int k = 0; k < KINDS; k++)
        for (int packed = 0; packed < 2; packed++) {
            const size_t end = strlen(kinds[k].end), length = strlen(topic);
            if (length < end || strcmp(topic + length - end, kinds[k].end) != 0) continue;
            snprintf(path, size, "%s/man%d/%s%.*s.%d%s", pages(), kinds[k].section, kinds[k].prefix,
                     (int)(length - end), topic, kinds[k].section, packed ? ".gz" : "");
            if (!strchr(topic, '/') && access(path, R_OK) == 0) return true;
        }
    return false;
}

static char *listed[LISTED + 1];
static const char *listed_name(int k) { return listed[k]; }
/* Lists the commands and functions that have a page: those of man1 without the prefix "eingrad-",
 * those of man3 that begin with "eg_". */
static void list_topics(void)
{
    static const char *const prefix[] = { "eingrad-", "eg_" };
    char folder[512];
    int n = 0;
    for (int k = 0; k < 2; k++) {
        const size_t length = strlen(prefix[k]), skipped = k == 0 ? length : 0;
        snprintf(folder, sizeof folder, "%s/man%d", pages(), k == 0 ? 1 : 3);
        DIR *d = opendir(folder);
        for (struct dirent *e; n < LISTED && d && (e = readdir(d));)
            if (strncmp(e->d_name, prefix[k], length) == 0 &&
                (listed[n] = strdup(e->d_name + skipped)) != NULL)
                *strchr(listed[n++], '.') = 0;
        if (d) closedir(d);
    }
}

static int run(const command *c, int count, char **word)
{
    char path[1024];
    words w;
    parsed p = read_options(c, count, word, NULL, &w);
    if (p != PARSED) return p == HELPED ? EXIT_SUCCESS : EXIT_FAILURE;
    if (w.count != 1) return print_error("help takes one topic, and there are %d", w.count);
    const char *topic = w.word[0];
    if (find_page(topic, path, sizeof path)) {
        /* a page that is another one's, ".so man3/eg_from.3", is read relative to this folder */
        const bool inside = chdir(pages()) == 0;
        execlp("man", "man", "-l", path + (inside ? strlen(pages()) + 1 : 0), (char *)NULL);
        return print_error("man: %s; the page is %s", strerror(errno), path);
    }
    list_topics();
    snprintf(path, sizeof path, "%s%s", strncmp(topic, "eg_", 3) == 0 ? "" : "eg_", topic);
    const char *near = nearest(topic, listed_name);
    if (!near) near = nearest(path, listed_name);
    int status =
        near ? print_error("there is no page \"%s\" in %s; is it %s?", topic, pages(), near)
        : listed[0]
            ? print_error("there is no page \"%s\" in %s", topic, pages())
            : print_error(
                  "there is no page \"%s\" in %s: `make install` puts pages beside the program, "
                  "and EINGRAD_MAN=FOLDER names another folder",
                  topic, pages());
    for (int k = 0; listed[k]; k++) free(listed[k]);
    return status;
}

const command help_command = {
    .name = "help",
    .usage = "TOPIC",
    .about = "show the page of a command, a function or a header",
    .more = "A word that is the name of both a command and a header means the command.\n\n"
            "  help train\n"
            "  help eg_einsum\n"
            "  help softmax\n"
            "  help ops.h\n",
    .run = run,
};
