/* file.c: reads bytes from files and memory, and writes files that appear in the folder when they
 * are complete. */
#include "file.h"
#include <eingrad/capture.h>
#include <eingrad/io.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* -- input ------------------------------------------------------------------------------------ */
/* Returns the number of bytes at the beginning of s, at most `most`, that are whole characters. */
static size_t whole_characters(const char *s, size_t most)
{
    while (most && ((unsigned char)s[most] & 0xc0) == 0x80) most--;
    return most;
}
/* Copies s to `out` of `size` bytes. If it is longer, its beginning and its end are copied, since
 * it may consist of a long name and the reason after it. Ends of lines, which a name in a file may
 * have, are shown as '?'. */
static void file_excerpt(char *out, size_t size, const char *s)
{
    static const char gap[] = "\xe2\x80\xa6";
    const size_t length = strlen(s), end = size / 2;
    if (length < size) {
        memcpy(out, s, length + 1);
    } else {
        const size_t head = whole_characters(s, size - end - sizeof gap);
        const char *tail = s + length - end;
        while (((unsigned char)*tail & 0xc0) == 0x80) tail++;
        memcpy(out, s, head);
        memcpy(out + head, gap, sizeof gap - 1);
        memcpy(out + head + sizeof gap - 1, tail, strlen(tail) + 1);
    }
    for (; *out; out++)
        if (*out == '\n' || *out == '\r') *out = '?';
}
bool eg__file_refuse(const eg__input *in, const char *sentence, ...)
{
    enum { PATH = 400, TEXT = 560 }; /* with the format they fit in a message */
    char path[PATH], text[TEXT], *whole = NULL;
    va_list list, again;
    va_start(list, sentence);
    va_copy(again, list);
    const locale_t before = eg__locale_plain();
    const int n = vsnprintf(text, sizeof text, sentence, list);
    if (n >= TEXT && (whole = malloc((size_t)n + 1)) != NULL)
        vsnprintf(whole, (size_t)n + 1, sentence, again);
    eg__locale_back(before);
    va_end(again);
    va_end(list);
    char shown[TEXT];
    file_excerpt(shown, sizeof shown, whole ? whole : text);
    file_excerpt(path, sizeof path, in->path ? in->path : "");
    free(whole);
    eg_fail_as(in->cx, EG_ERROR_FILE, "%s: %s%s%s", in->format, path, in->path ? ": " : "", shown);
    return false;
}

bool eg__file_no_memory(const eg__input *in)
{
    eg_fail_as(in->cx, EG_ERROR_MEMORY, "%s: %s%sout of memory", in->format,
               in->path ? in->path : "", in->path ? ": " : "");
    eg_name_memory_error(in->cx, in->format); /* if the allocation has recorded an error itself */
    return false;
}

bool eg__file_open_bytes(eg__input *in, eg_ctx *cx, const char *format, const void *bytes,
                         size_t count)
{
    *in = (eg__input){ .cx = cx, .format = format, .bytes = bytes, .left = bytes ? count : 0 };
    return !eg_error(cx) && !eg_refuse_capture(cx, format);
}

/* A signal that has a handler without SA_RESTART, such as that of a timer, interrupts the opening,
 * reading and writing of a pipe (EINTR), which is then repeated. */
static FILE *file_open_to_read(const char *path)
{
    FILE *file;
    do file = fopen(path, "rbe");
    while (!file && errno == EINTR);
    return file;
}
/* Reads a pipe, whose length is unknown, into memory up to its end. False after an error. */
static bool file_read_pipe(eg__input *in)
{
    size_t capacity = 0, count = 0;
    for (;;) {
        if (count == capacity) {
            capacity = capacity ? 2 * capacity : 65536;
            uint8_t *more = capacity > count ? realloc(in->owned, capacity) : NULL;
            if (!more) return eg__file_no_memory(in);
            in->owned = more;
        }
        size_t got = fread(in->owned + count, 1, capacity - count, in->file);
        count += got;
        if (ferror(in->file) && errno == EINTR)
            clearerr(in->file);
        else if (!got)
            break;
    }
    if (ferror(in->file)) return eg__file_refuse(in, "cannot be read: %s", strerror(errno));
    fclose(in->file);
    in->file = NULL, in->bytes = in->owned, in->left = count;
    return true;
}

/* The length of a regular file is known; anything else is read to its end. */
bool eg__file_open(eg__input *in, eg_ctx *cx, const char *format, const char *path)
{
    *in = (eg__input){ .cx = cx, .format = format, .path = path };
    if (eg_error(cx) || eg_refuse_capture(cx, format)) return false;
    if (!path) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: the path is NULL", format);
        return false;
    }
    in->file = file_open_to_read(path);
    if (!in->file && errno == ENOMEM) return eg__file_no_memory(in);
    if (!in->file) return eg__file_refuse(in, "cannot be opened: %s", strerror(errno));
    struct stat about;
    bool good = fstat(fileno(in->file), &about) == 0;
    if (!good)
        eg__file_refuse(in, "cannot be read: %s", strerror(errno));
    else if (S_ISDIR(about.st_mode))
        good = eg__file_refuse(in, "is a folder");
    else if (S_ISCHR(about.st_mode) || S_ISBLK(about.st_mode)) /* may have no end */
        good = eg__file_refuse(in, "is a device");
    else if (S_ISREG(about.st_mode))
        in->left = (size_t)about.st_size;
    else
        good = file_read_pipe(in);
    if (!good) eg__file_close(in);
    return good;
}

/* A mapped file. Its holders are its input and each tensor in it; the last one, which unmaps it,
 * may be in another thread. */
struct eg__map {
    atomic_long holders;
    void *at;
    size_t bytes;
};
/* Pages that are written to become private to the process (MAP_PRIVATE), so that tensors can be
 * changed without changing the file. */
void eg__file_map(eg__input *in)
{
    if (!in->file || in->left < EG_MAP_LEAST || ftell(in->file)) return;
    struct eg__map *map = malloc(sizeof *map);
    void *at = map ? mmap(NULL, in->left, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                          fileno(in->file), 0)
                   : MAP_FAILED;
    if (at == MAP_FAILED) {
        free(map);
        return;
    }
    *map = (struct eg__map){ .holders = 1, .at = at, .bytes = in->left };
    fclose(in->file);
    in->file = NULL, in->map = map, in->bytes = at;
}
bool eg__file_read_all(eg__input *in, bool copy)
{
    if (in->file && !copy) eg__file_map(in);
    if (!in->file) return true;
    const size_t bytes = in->left;
    uint8_t *all = malloc(bytes + 1);
    if (!all) return eg__file_no_memory(in);
    in->owned = all;
    if (!eg__file_take(in, all, bytes)) return false;
    fclose(in->file);
    in->file = NULL, in->bytes = all, in->left = bytes;
    return true;
}
void eg__map_share(struct eg__map *map) { atomic_fetch_add(&map->holders, 1); }
void eg__map_end(void *user)
{
    struct eg__map *map = user;
    if (atomic_fetch_sub(&map->holders, 1) != 1) return;
    munmap(map->at, map->bytes);
    free(map);
}

/* Copies the next `count` bytes to out. False, after an error, if fewer are left. */
bool eg__file_take(eg__input *in, void *out, size_t count)
{
    if (!count) return true;
    if (count > in->left)
        return eg__file_refuse(in, "is cut short: %zu byte%s missing", count - in->left,
                               count - in->left == 1 ? " is" : "s are");
    if (in->pull) {
        if (!in->pull(in, out, count)) return false;
    } else if (in->file) {
        errno = 0;
        size_t got = fread(out, 1, count, in->file);
        if (got < count)
            return eg__file_refuse(in, "cannot be read: %s",
                                   errno ? strerror(errno) : "it became shorter meanwhile");
    } else {
        memcpy(out, in->bytes, count);
        in->bytes += count;
    }
    in->left -= count;
    return true;
}

void eg__file_close(eg__input *in)
{
    if (in->file) fclose(in->file);
    if (in->map) eg__map_end(in->map);
    free(in->owned);
    in->file = NULL, in->owned = NULL, in->map = NULL;
}

/* -- output ----------------------------------------------------------------------------------- */
/* Stores errno if this is the first error of the output. */
static void note(eg__output *out)
{
    if (!out->error) out->error = errno ? errno : EIO;
}

/* Records the output's error. Returns −1. */
static int report(eg__output *out)
{
    if (out->path)
        eg_fail_as(out->cx, EG_ERROR_FILE, "%s: cannot write '%s': %s", out->format, out->path,
                   strerror(out->error));
    else
        eg_fail_as(out->cx, EG_ERROR_FILE, "%s: cannot write: %s", out->format,
                   strerror(out->error));
    return -1;
}

/* A file that is being written has the name ".eingrad-K.tmp" in the target's folder, so that
 * renaming stays within one file system. Its writer holds a lock (flock) on it until it is renamed.
 * A temporary file without a lock was left by a writer that was killed; the next writer in the
 * folder removes it. On file systems without locks nothing is removed. */
enum { FILE_NAMES = 1000, FILE_GAP = 8 };

/* the length of the path of its folder, including the slash */
static int file_folder(const char *target)
{
    const char *slash = strrchr(target, '/');
    return slash ? (int)(slash - target) + 1 : 0;
}

static bool file_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Locks the file; false if another writer holds the lock. The lock ends when the last descriptor of
 * the open file is closed, at the latest at the end of the process. */
static bool file_lock(int fd) { return flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

/* Removes the file of that name if its writer is dead. False if there is no such file. While the
 * lock is held, no other writer can give the name to another file, so the file that was compared is
 * the one that is removed. */
static bool file_sweep_name(const char *name)
{
    struct stat opened, named;
    int fd = open(name, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno != ENOENT;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &opened) == 0 && S_ISREG(opened.st_mode) &&
        lstat(name, &named) == 0 && file_same(&opened, &named))
        unlink(name);
    close(fd);
    return true;
}

/* Removes the temporary files of dead writers in the folder. Writers take the lowest free name;
 * writers at the same time can have left a gap of some names. */
static void file_sweep(const char *target)
{
    int folder = file_folder(target);
    size_t size = (size_t)folder + 64;
    char *name = malloc(size);
    for (int k = 0, gap = 0; name && k < FILE_NAMES && gap < FILE_GAP; k++) {
        snprintf(name, size, "%.*s.eingrad-%d.tmp", folder, target, k);
        gap = file_sweep_name(name) ? 0 : gap + 1;
    }
    free(name);
}

/* Gives the output the first temporary name in its folder that `take` can create: a new file, or a
 * link to an unnamed one. False, with errno set, if there is none. */
static bool file_take_name(eg__output *out, bool (*take)(eg__output *, int *fd), int *fd)
{
    int folder = file_folder(out->target);
    size_t size = (size_t)folder + 64;
    bool good = false;
    out->temporary = malloc(size);
    for (int k = 0; out->temporary && !good && k < FILE_NAMES; k++) {
        snprintf(out->temporary, size, "%.*s.eingrad-%d.tmp", folder, out->target, k);
        good = take(out, fd);
        if (!good && errno != EEXIST) break;
    }
    if (!good) {
        free(out->temporary);
        out->temporary = NULL;
    }
    return good;
}

/* Creates the file and locks it. False if another writer has removed it in between. */
static bool take_new(eg__output *out, int *fd)
{
    struct stat opened, named;
    *fd = open(out->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (*fd < 0) return false;
    if (file_lock(*fd) && fstat(*fd, &opened) == 0 && lstat(out->temporary, &named) == 0 &&
        file_same(&opened, &named))
        return true;
    close(*fd);
    errno = EEXIST;
    return false;
}

/* Gives the unnamed file a name. */
static bool take_link(eg__output *out, int *fd)
{
    char open_file[48];
    snprintf(open_file, sizeof open_file, "/proc/self/fd/%d", *fd);
    return linkat(AT_FDCWD, open_file, AT_FDCWD, out->temporary, AT_SYMLINK_FOLLOW) == 0;
}

/* Opens a file without a name if the system can: a process that is killed while it writes then
 * leaves no file. The file is locked before it gets a name. Returns the descriptor; −1 if the
 * system cannot. */
static int open_unnamed(const eg__output *out)
{
#ifdef O_TMPFILE
    if (access("/proc/self/fd", X_OK)) return -1;
    char *folder = strdup(out->target), *slash = folder ? strrchr(folder, '/') : NULL;
    if (slash) slash[slash == folder] = 0;
    int fd = folder ? open(slash ? folder : ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666) : -1;
    free(folder);
    if (fd >= 0) file_lock(fd);
    return fd;
#else
    return (void)out, -1;
#endif
}

static FILE *make_temporary(eg__output *out)
{
    file_sweep(out->target);
    int fd = open_unnamed(out);
    out->unnamed = fd >= 0;
    if (fd < 0 && !file_take_name(out, take_new, &fd)) return NULL;
    FILE *file = fdopen(fd, "wb");
    if (!file) note(out), close(fd);
    return file;
}

#ifdef __linux__
/* Writes all bytes, however often a signal interrupts it; 0 after an error, as stdio expects. */
static ssize_t device_write(void *fd, const char *bytes, size_t count)
{
    size_t done = 0;
    while (done < count) {
        const ssize_t n = write((int)(intptr_t)fd, bytes + done, count - done);
        if (n < 0 && errno != EINTR) return 0;
        if (n > 0) done += (size_t)n;
    }
    return (ssize_t)done;
}
static int device_close(void *fd) { return close((int)(intptr_t)fd); }
static FILE *device_open(const char *path)
{
    int fd;
    do fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return NULL;
    FILE *file =
        fopencookie((void *)(intptr_t)fd, "wb",
                    (cookie_io_functions_t){ .write = device_write, .close = device_close });
    if (!file) close(fd);
    return file;
}
#else
static FILE *device_open(const char *path) { return fopen(path, "wbe"); }
#endif

/* A regular file is written under a temporary name; a device or a pipe is opened itself. Folders,
 * dangling links, and files without permission to write are refused. */
bool eg__file_create(eg__output *out, eg_ctx *cx, const char *format, const char *path)
{
    *out = (eg__output){ .cx = cx, .format = format, .path = path };
    if (eg_error(cx)) return false;
    if (!path) {
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: the path is NULL", format);
        return false;
    }
    struct stat about;
    errno = 0;
    bool there = stat(path, &about) == 0;
    const int missing = errno;
    if (there && S_ISDIR(about.st_mode)) {
        errno = EISDIR;
    } else if (!there && lstat(path, &about) == 0) {
        errno = ENOENT; /* renaming would replace a dangling link */
    } else if (!there && missing != ENOENT) {
        errno = missing; /* such as a name that is too long, which an unnamed file would not have */
    } else if (there && !S_ISREG(about.st_mode)) {
        out->file = device_open(path); /* a file must not replace a device or pipe */
    } else if (!there || access(path, W_OK) == 0) {
        out->target = there ? realpath(path, NULL) : strdup(path);
        if (out->target) out->file = make_temporary(out);
        if (out->file && there && fchmod(fileno(out->file), about.st_mode & 07777)) note(out);
    }
    if (out->file && !out->error) return true;
    note(out);
    int error = out->error;
    eg__file_abandon(out);
    out->error = error;
    report(out);
    return false;
}

void eg__file_stream(eg__output *out, eg_ctx *cx, const char *format, FILE *file)
{
    *out = (eg__output){ .cx = cx, .format = format, .file = file };
}

void eg__file_put(eg__output *out, const void *bytes, size_t count)
{
    if (out->push) {
        out->push(out, bytes, count);
        return;
    }
    errno = 0;
    if (count && !out->error && fwrite(bytes, 1, count, out->file) < count) note(out);
}

void eg__file_print(eg__output *out, const char *text, ...)
{
    va_list list;
    va_start(list, text);
    errno = 0;
    const locale_t before = eg__locale_plain();
    if (!out->error && vfprintf(out->file, text, list) < 0) note(out);
    eg__locale_back(before);
    va_end(list);
}

/* A rename is on the disk only when its folder is flushed. File systems that cannot flush a folder
 * report EINVAL. */
static void flush_folder(eg__output *out)
{
    char *slash = strrchr(out->target, '/');
    if (slash) slash[slash == out->target] = 0;
    int fd = open(slash ? out->target : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return; /* the folder may be written but not read */
    if (fsync(fd) && errno != EINVAL) note(out);
    close(fd);
}

/* Flushes all bytes to the disk under the temporary name; closes a device. */
static void file_flush(eg__output *out)
{
    errno = 0;
    if (!out->error && fflush(out->file)) note(out);
    if (!out->error && out->target && fsync(fileno(out->file))) note(out);
    int fd = out->file ? fileno(out->file) : -1;
    if (!out->error && out->unnamed && !file_take_name(out, take_link, &fd)) note(out);
    if (out->path && !out->target && out->file) {
        if (fclose(out->file)) note(out);
        out->file = NULL;
    }
}

/* Renames the file to its target. It is open and locked until then. */
static void file_place(eg__output *out)
{
    errno = 0;
    if (rename(out->temporary, out->target)) {
        note(out);
        return;
    }
    free(out->temporary);
    out->temporary = NULL;
    flush_folder(out);
}

/* Flushes all files to the disk, then renames them, and closes them in any case. Records the first
 * error. Returns 0; −1 after an error. */
int eg__file_finish_all(int count, eg__output *outs)
{
    int failed = -1;
    for (int k = 0; k < count && failed < 0; k++) {
        file_flush(&outs[k]);
        failed = outs[k].error ? k : -1;
    }
    for (int k = 0; k < count && failed < 0; k++) {
        if (outs[k].temporary) file_place(&outs[k]);
        failed = outs[k].error ? k : -1;
    }
    for (int k = 0; k < count; k++) {
        int error = outs[k].error;
        eg__file_abandon(&outs[k]);
        outs[k].error = error;
    }
    return failed < 0 ? 0 : report(&outs[failed]);
}

int eg__file_finish(eg__output *out) { return eg__file_finish_all(1, out); }

/* The temporary name is removed while the lock is held; without the lock it could be another
 * writer's. */
void eg__file_abandon(eg__output *out)
{
    if (out->temporary) unlink(out->temporary);
    if (out->path && out->file) fclose(out->file);
    free(out->temporary);
    free(out->target);
    *out = (eg__output){ .cx = out->cx, .format = out->format, .path = out->path };
}

/* -- a check before anything is computed ------------------------------------------------------- */
/* Reserves space on the disk for the temporary file without writing, so that limits of disk and
 * process are found here. A file system that cannot reserve is assumed to have enough space. */
static void file_reserve(eg__output *out, size_t bytes)
{
#ifdef __linux__
    errno = 0;
    if (bytes && bytes <= INT64_MAX && fallocate(fileno(out->file), 0, 0, (off_t)bytes) &&
        (errno == ENOSPC || errno == EFBIG || errno == EDQUOT))
        note(out);
#else
    (void)out, (void)bytes;
#endif
}

/* Does what eg__file_create does, and abandons the file before anything is written. */
int eg_file_check(eg_ctx *cx, const char *path, size_t bytes)
{
    eg__output out = { .cx = cx, .format = "file", .path = path };
    struct stat about;
    if (!cx || eg_error(cx)) return -1;
    if (path && !*path) {
        eg_fail_as(cx, EG_ERROR_FILE, "file: the path is empty");
        return -1;
    }
    if (path && stat(path, &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode)) {
        errno = 0;
        if (access(path, W_OK) == 0) /* opening a pipe would block until it has a reader */
            return 0;
        note(&out);
        return report(&out);
    }
    if (!eg__file_create(&out, cx, "file", path)) return -1;
    file_reserve(&out, bytes);
    int error = out.error;
    eg__file_abandon(&out);
    out.error = error;
    return error ? report(&out) : 0;
}
