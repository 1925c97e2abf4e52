/* file.h: functions that the files of lib/io share: reading bytes, writing bytes, and the encodings
 * of elements. */
#ifndef EG_IO_FILE_H
#define EG_IO_FILE_H
#include <eingrad/core.h>
#if defined(__GNUC__)
#define EG_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define EG_PRINTF(text, first)
#endif

/* -- file.c: input from a file or from memory, of which `left` bytes remain -------------------- */
typedef struct eg__input {
    eg_ctx *cx;
    const char *format, *path; /* the beginning of messages: "npy", and "x.npy" or NULL */
    FILE *file;                /* NULL: input from `bytes` */
    const uint8_t *bytes;
    uint8_t *owned;      /* all bytes of a pipe */
    struct eg__map *map; /* the mapped file that contains `bytes` */
    size_t left;
    bool as_stored; /* f16, bf16, i8 and u8 are not widened */
    bool in_place;  /* a tensor lies in the map */
    /* for compressed input: unpacks the next bytes, and `bytes` is not used */
    bool (*pull)(struct eg__input *, void *out, size_t count);
} eg__input;
/* True; false after an error. */
bool eg__file_open(eg__input *, eg_ctx *, const char *format, const char *path);
bool eg__file_open_bytes(eg__input *, eg_ctx *, const char *format, const void *bytes,
                         size_t count);
/* Maps the rest of a regular file of at least EG_MAP_LEAST bytes, so that `bytes` points to it. If
 * it cannot be mapped, the input stays as it is, to be read. */
enum { EG_MAP_LEAST = 1 << 20 };
void eg__file_map(eg__input *);
/* Brings the whole file into memory: mapped, or read if `copy` or if it cannot be mapped. False
 * after an error. */
bool eg__file_read_all(eg__input *, bool copy);
void eg__map_share(struct eg__map *); /* one more holder */
void eg__map_end(void *map);          /* one holder less; the last one unmaps the file */
bool eg__file_take(eg__input *, void *out, size_t count);
/* Records "format: path: sentence" as an error. Returns false. */
bool eg__file_refuse(const eg__input *, const char *sentence, ...) EG_PRINTF(2, 3);
bool eg__file_no_memory(const eg__input *); /* records "format: path: out of memory"; false */
void eg__file_close(eg__input *);

/* -- file.c: output that appears completely or not at all; after the first error nothing is
 * written */
typedef struct eg__output {
    eg_ctx *cx;
    const char *format, *path;
    FILE *file;
    /* the path with links resolved; NULL for a device, and if the caller gave the stream */
    char *target, *temporary;
    bool unnamed; /* the file has no name yet */
    /* receives all bytes that are written: a member of an archive */
    void (*push)(struct eg__output *, const void *bytes, size_t count);
    void *sink; /* push's */
    /* numbers of an archive from this one on are stored in 64 bits; 0: those that do not fit 32 */
    uint64_t wide;
    int error; /* errno of the first failure */
} eg__output;
bool eg__file_create(eg__output *, eg_ctx *, const char *format, const char *path);
void eg__file_stream(eg__output *, eg_ctx *, const char *format, FILE *);
void eg__file_put(eg__output *, const void *bytes, size_t count);
void eg__file_print(eg__output *, const char *text, ...) EG_PRINTF(2, 3);
int eg__file_finish(eg__output *); /* 0; −1 after an error */
/* The same for several files: all are on the disk before the first one gets its name. */
int eg__file_finish_all(int count, eg__output *);
void eg__file_abandon(eg__output *); /* keeps the file that was there before */

/* -- npy.c ------------------------------------------------------------------------------------ */
/* Returns the array that begins at the input's position, in the owner, or in the open scope if
 * owner is NULL; NULL after an error. */
eg_tensor *eg__npy_array(eg__input *, eg_owner *);
/* Writes x as a whole file of eg__npy_size bytes. */
void eg__npy_put(eg__output *, eg_tensor *x);
size_t eg__npy_size(eg_tensor *x);

/* -- encoding.c: elements as files have them -------------------------------------------------- */
typedef struct eg__encoding {
    const char *npy, *safetensors;                         /* "f4", "F32" */
    eg_dtype dtype;                                        /* what they become */
    size_t width;                                          /* bytes in the file */
    void (*widen)(const uint8_t *in, void *out, size_t n); /* NULL: the same bytes */
} eg__encoding;
/* The list ends with a row without dtype; the row of a dtype's own encoding comes first. */
extern const eg__encoding eg__encodings[];
const eg__encoding *eg__encoding_of(eg_dtype);
/* Returns e; if the input is to be as_stored, the encoding of the same name that converts
 * nothing. */
const eg__encoding *eg__encoding_wanted(const eg__input *, const eg__encoding *e);
bool eg__encoding_little(void); /* this machine's byte order */
/* Returns the next elements as a tensor: in the mapped file if its elements are those of a tensor,
 * else in memory of the owner, or of the open scope if owner is NULL. NULL after an error. */
eg_tensor *eg__encoding_tensor(eg__input *, const eg__encoding *, bool swap, eg_owner *, int rank,
                               const int64_t *dims);
/* Reads the elements of x, which is row-major. False after an error. */
bool eg__encoding_take(eg__input *, const eg__encoding *, bool swap, eg_tensor *x);
void eg__encoding_put(eg__output *, eg_tensor *x); /* row-major, little-endian */
/* Sets *bytes to the size; false if that is too large for any memory. */
bool eg__encoding_size(const eg__encoding *, int rank, const int64_t *dims, size_t *bytes);
/* Writes "(3,)", as Python prints a tuple; returns text. */
char *eg__encoding_dims(int rank, const int64_t *dims, char *text, size_t room);
#endif
