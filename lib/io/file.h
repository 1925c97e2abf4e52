/* file.h: functions that the files of lib/io share: reading bytes, writing bytes, and the encodings
 * of elements. */
#ifndef EG_IO_FILE_H
#define EG_IO_FILE_H
#include <eingrad/core.h>
#include <locale.h>
#if defined(__GNUC__)
#define EG_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define EG_PRINTF(text, first)
#endif

/* -- file.c: input from a file or from memory, with `left` bytes left -------------------------- */
typedef struct eg__input {
    eg_ctx *cx;
    const char *format, *path; /* the beginning of error messages: "npy", and "x.npy" or NULL */
    FILE *file;                /* NULL: the input is `bytes` */
    const uint8_t *bytes;
    uint8_t *owned;      /* all bytes of a pipe */
    struct eg__map *map; /* the mapped file that contains `bytes` */
    size_t left;
    bool as_stored; /* f16, bf16, i8 and u8 are not converted */
    bool in_place;  /* a tensor is a view of the map */
    /* for compressed input: unpacks the next bytes; `bytes` is then not used */
    bool (*pull)(struct eg__input *, void *out, size_t count);
} eg__input;
/* Opens a file; a pipe is read to its end. False after an error, such as a folder or a device;
 * there is nothing to be closed then. */
bool eg__file_open(eg__input *, eg_ctx *, const char *format, const char *path);
/* The same for bytes in memory, which must stay there. False if the context has an error. */
bool eg__file_open_bytes(eg__input *, eg_ctx *, const char *format, const void *bytes,
                         size_t count);
/* Maps the rest of a regular file of at least EG_MAP_LEAST bytes, so that `bytes` points to it. If
 * it cannot be mapped, the input is unchanged and is read. */
enum { EG_MAP_LEAST = 1 << 20 };
void eg__file_map(eg__input *);
/* Makes the whole file available in `bytes`: mapped, or read if `copy` or if it cannot be mapped.
 * False after an error. */
bool eg__file_read_all(eg__input *, bool copy);
void eg__map_share(struct eg__map *); /* adds a holder */
void eg__map_end(void *map);          /* ends a holder's use; the last one unmaps the file */
/* Copies the next `count` bytes to out. False, after an error, if fewer are left. */
bool eg__file_take(eg__input *, void *out, size_t count);
/* Records "format: path: sentence" as an error. Returns false. */
bool eg__file_refuse(const eg__input *, const char *sentence, ...) EG_PRINTF(2, 3);
/* records "format: path: out of memory"; returns false */
bool eg__file_no_memory(const eg__input *);
void eg__file_close(eg__input *);

/* -- file.c: output that appears in the folder when it is complete; after the first error nothing
 * is written -- */
typedef struct eg__output {
    eg_ctx *cx;
    const char *format, *path;
    FILE *file;
    /* the path with links resolved; NULL for a device, and if the caller gave the stream */
    char *target, *temporary;
    bool unnamed; /* the file has no name yet */
    /* for a member of an archive: receives all bytes that are written */
    void (*push)(struct eg__output *, const void *bytes, size_t count);
    void *sink; /* data of push */
    /* integers of an archive that are at least this are stored in 64 bits; 0: those that do not fit
     * 32 */
    uint64_t wide;
    int error; /* errno of the first failure */
} eg__output;
/* Begins a file that eg__file_finish gives its name; a device or pipe is written at once. False
 * after an error, such as a folder or no permission; eg__file_abandon is then not needed. */
bool eg__file_create(eg__output *, eg_ctx *, const char *format, const char *path);
void eg__file_stream(eg__output *, eg_ctx *, const char *format, FILE *); /* stays open */
/* Writes bytes. An error is kept in `error`, for eg__file_finish to report. */
void eg__file_put(eg__output *, const void *bytes, size_t count);
void eg__file_print(eg__output *, const char *text, ...) EG_PRINTF(2, 3); /* in the C locale */
/* Makes the C locale that of the thread, and returns the previous one, for eg__locale_back.
 * (numbers.c) */
locale_t eg__locale_plain(void);
void eg__locale_back(locale_t before);
int eg__file_finish(eg__output *); /* 0; −1 after an error */
/* As eg__file_finish, for several files: all are on the disk before the first one is renamed. */
int eg__file_finish_all(int count, eg__output *);
void eg__file_abandon(eg__output *); /* keeps the file that existed before */

/* -- npy.c ------------------------------------------------------------------------------------ */
/* Returns the array that begins at the input's position, in the owner, or in the open scope if
 * owner is NULL; NULL after an error. */
eg_tensor *eg__npy_array(eg__input *, eg_owner *);
/* Writes x as a whole file of eg__npy_size bytes. */
void eg__npy_put(eg__output *, eg_tensor *x);
size_t eg__npy_size(eg_tensor *x);

/* -- encoding.c: elements as they are stored in files ------------------------------------------ */
typedef struct eg__encoding {
    const char *npy, *safetensors;                         /* "f4", "F32" */
    eg_dtype dtype;                                        /* the dtype of the tensor */
    size_t width;                                          /* bytes in the file */
    void (*widen)(const uint8_t *in, void *out, size_t n); /* NULL: the bytes are the same */
} eg__encoding;
/* The list ends with an entry without dtype; the entry of a dtype's own encoding is before those
 * that are converted to it. */
extern const eg__encoding eg__encodings[];
const eg__encoding *eg__encoding_of(eg_dtype);
/* Returns e or, if the input is as_stored, the encoding of the same name that converts nothing. */
const eg__encoding *eg__encoding_wanted(const eg__input *, const eg__encoding *e);
bool eg__encoding_little(void); /* true if this machine is little-endian */
/* Returns the next elements as a tensor: a view of the mapped file if possible, else in memory of
 * the owner, or of the open scope if owner is NULL. NULL after an error. */
eg_tensor *eg__encoding_tensor(eg__input *, const eg__encoding *, bool swap, eg_owner *, int rank,
                               const int64_t *dims);
/* Reads the elements of x, which is row-major. False after an error. */
bool eg__encoding_take(eg__input *, const eg__encoding *, bool swap, eg_tensor *x);
void eg__encoding_put(eg__output *, eg_tensor *x); /* row-major, little-endian */
/* Sets *bytes to the size; false if that overflows. */
bool eg__encoding_size(const eg__encoding *, int rank, const int64_t *dims, size_t *bytes);
/* Writes "(3,)", like Python's tuples; returns text. */
char *eg__encoding_dims(int rank, const int64_t *dims, char *text, size_t size);
#endif
