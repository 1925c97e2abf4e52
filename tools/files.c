/* files.c: checks the files of a command: a file that is written must not also be read, nor be
 * written twice, even under different names. Files are compared by device and inode, a file that
 * does not exist yet by its folder and name. */
#include "tools.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

typedef struct file_id {
    dev_t device;
    ino_t inode;
    mode_t mode;             /* mode of the file; 0: it does not exist yet */
    char name[NAME_MAX + 1]; /* empty, or the name in the folder that device and inode identify */
} file_id;
typedef struct file_use {
    char part[40];    /* "--out" */
    const char *path; /* "": a stream of the process */
    bool written;
    file_id id;
} file_use;
enum { FILES_MOST = 256 };
static file_use used[FILES_MOST];
static int used_count;

static bool id_equal(const file_id *a, const file_id *b)
{
    return a->device == b->device && a->inode == b->inode && strcmp(a->name, b->name) == 0;
}

/* Finds the folder of a path at which there is no file yet. Returns 0, or errno if there is no such
 * folder. */
static int id_of_new(const char *path, file_id *id, char *folder, size_t size)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n = slash == path ? 1 : slash ? (size_t)(slash - path) : 0;
    struct stat s;
    if (n >= size || strlen(name) > NAME_MAX) return ENAMETOOLONG;
    if (!*name) return EISDIR;
    snprintf(folder, size, "%.*s", n ? (int)n : 1, n ? path : ".");
    if (stat(folder, &s)) return errno;
    if (!S_ISDIR(s.st_mode)) return ENOTDIR;
    *id = (file_id){ .device = s.st_dev, .inode = s.st_ino };
    snprintf(id->name, sizeof id->name, "%s", name);
    return 0;
}

/* False, with errno set, if there is no such file and none can be made. */
static bool id_of(const char *path, file_id *id)
{
    struct stat s;
    char folder[PATH_MAX];
    if (stat(path, &s))
        return errno == ENOENT && (errno = id_of_new(path, id, folder, sizeof folder)) == 0;
    *id = (file_id){ .device = s.st_dev, .inode = s.st_ino, .mode = s.st_mode };
    return true;
}

bool same_file(const char *a, const char *b)
{
    file_id x, y;
    return strcmp(a, b) == 0 || (id_of(a, &x) && id_of(b, &y) && id_equal(&x, &y));
}

/* True if a file can be made or replaced at path; else prints why not. */
static bool may_be_written(const char *part, const char *path)
{
    file_id id;
    struct stat s;
    char folder[PATH_MAX] = "";
    bool there = stat(path, &s) == 0;
    int error = there ? 0 : errno;
    const char *why = !there                ? NULL
                      : S_ISDIR(s.st_mode)  ? "is a directory"
                      : S_ISBLK(s.st_mode)  ? "is a disk, not a file on one"
                      : S_ISSOCK(s.st_mode) ? "is a socket"
                                            : NULL;
    if (!there && lstat(path, &s) == 0 && S_ISLNK(s.st_mode)) why = "is a link to nowhere";
    if (why) print_error("%s %s %s", part, path, why);
    if (there || why) return !why;
    if (error == ENOENT) error = id_of_new(path, &id, folder, sizeof folder);
    if (error && *folder)
        print_error("%s %s: the folder %s: %s", part, path, folder, strerror(error));
    else if (error)
        print_error("%s %s: %s", part, path, strerror(error));
    return !error;
}

/* True if both uses concern the same file and at least one of them writes. */
static bool uses_clash(const file_use *a, const file_use *b)
{
    bool streams = !*a->path && !*b->path, named = *a->path && *b->path;
    if (!a->written && !b->written) return false;
    if (streams && a->written == b->written) return false;
    /* writing to a device and reading from it do not conflict */
    if (named && S_ISCHR(a->id.mode)) return false;
    return id_equal(&a->id, &b->id);
}

/* Adds a use. False after printing with which other use it conflicts. */
static bool use(const char *part, const char *path, bool written, const file_id *id)
{
    file_use u = { .path = path, .written = written, .id = *id };
    snprintf(u.part, sizeof u.part, "%s", part);
    for (int k = 0; k < used_count; k++) {
        const file_use *was = &used[k];
        if (!uses_clash(was, &u)) continue;
        print_error("%s%s%s and %s%s%s are one file; nothing was done", was->part,
                    *was->path ? " " : "", was->path, part, *path ? " " : "", path);
        return false;
    }
    if (used_count == FILES_MOST)
        return print_error("a command takes at most %d files", FILES_MOST), false;
    used[used_count++] = u;
    return true;
}

bool has_end(const char *part, const char *path)
{
    struct stat s;
    if (stat(path, &s) || !S_ISCHR(s.st_mode) || same_file(path, "/dev/null")) return true;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    const bool terminal = fd < 0 || isatty(fd);
    if (fd >= 0) close(fd);
    return terminal || (print_error("%s %s is a device, and may have no end", part, path), false);
}

bool use_file(const char *part, const char *path, bool written)
{
    file_id id;
    if (!path) return true;
    if (strcmp(path, "-") == 0) {
        print_error("%s is -; a file of that name is ./-, a stream /dev/std%s", part,
                    written ? "out" : "in");
        return false;
    }
    if (written && !may_be_written(part, path)) return false;
    if (!written && !has_end(part, path)) return false;
    return !id_of(path, &id) || use(part, path, written, &id); /* readers say what is missing */
}

/* A claim is a socket with a name in the kernel's abstract name space, which is made from the
 * folder and the name of the file, since a checkpoint is another file each time it is replaced. It
 * ends with the process, however that ends. Without such sockets nothing is claimed. */
bool claim_file(const char *part, const char *path)
{
#ifdef __linux__
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    char target[PATH_MAX], folder[PATH_MAX];
    file_id id;
    struct stat s;
    if (stat(path, &s) == 0 && !S_ISREG(s.st_mode)) return true;
    if (id_of_new(realpath(path, target) ? target : path, &id, folder, sizeof folder)) return true;
    const uint64_t hash = eg_hash(EG_HASH_START, id.name, strlen(id.name));
    const int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "eingrad writes %llx %llx %llx",
                           (unsigned long long)id.device, (unsigned long long)id.inode,
                           (unsigned long long)hash);
    const int claim = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    if (claim < 0 || !bind(claim, (struct sockaddr *)&a, size)) return true;
    const int error = errno;
    close(claim);
    if (error == EADDRINUSE)
        return print_error("%s %s is being written by another process", part, path), false;
#else
    (void)part, (void)path;
#endif
    return true;
}

/* Text that is printed would mix with data that are written to the same pipe or terminal. Standard
 * error only gets a sentence now and then, which does harm only in a file. */
bool use_stream(const char *part, int descriptor, bool written)
{
    struct stat s;
    if (fstat(descriptor, &s)) return true;
    bool file = S_ISREG(s.st_mode), mixes = S_ISFIFO(s.st_mode) || S_ISSOCK(s.st_mode);
    if (!file && (descriptor != STDOUT_FILENO || !(mixes || isatty(descriptor)))) return true;
    file_id id = { .device = s.st_dev, .inode = s.st_ino, .mode = s.st_mode };
    return use(part, "", written, &id);
}

/* -- the three streams of a process ----------------------------------------------------------- */
/* If the caller has closed a stream, the next file that is opened would get its number, and printed
 * text would be written to that file. The number is therefore given to a descriptor that is open
 * for the other direction: using the stream is still an error (EBADF). */
bool hold_streams(void)
{
    struct stat s;
    for (int k = STDIN_FILENO; k <= STDERR_FILENO; k++) {
        if (fstat(k, &s) == 0 || errno != EBADF) continue;
        if (open("/dev/null", k == STDIN_FILENO ? O_WRONLY : O_RDONLY) != k) return false;
    }
    return true;
}
