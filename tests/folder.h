/* folder.h: a temporary folder for the tests of a file. */
#ifndef FOLDER_H
#define FOLDER_H
#include "asserts.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[256];

static inline void make_folder(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/eingrad-test-XXXXXX",
             base && strlen(base) < 200 ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}
/* Returns the number of files in the folder; sweep: removes them. */
static inline int entries(bool sweep)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) {
            n++;
            if (sweep) unlinkat(dirfd(d), e->d_name, 0);
        }
    if (d) closedir(d);
    return n;
}
static inline void remove_folder(void)
{
    entries(true);
    ck_assert_int_eq(rmdir(folder), 0);
}
/* Returns the path of a file of the folder; valid until the second call after this one. */
static inline const char *in_folder(const char *name)
{
    static char path[2][512];
    static int k;
    k ^= 1;
    snprintf(path[k], sizeof path[k], "%s/%s", folder, name);
    return path[k];
}
#endif
