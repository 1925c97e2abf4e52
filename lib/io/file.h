/* file.h: what the files of lib/io share: bytes in, bytes out, and the encodings of elements. */
#ifndef EG_IO_FILE_H
#define EG_IO_FILE_H
#include <eingrad/core.h>
#if defined(__GNUC__)
#define EG_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define EG_PRINTF(text, first)
#endif

/* -- file.c: input from a file or from memory; `left` bytes are known to follow --------------- */
typedef struct eg__input {
    eg_ctx *cx;
    const char *format, *path; /* what messages begin with: "npy", "x.npy" or NULL */
    FILE *file;                /* NULL: `bytes` */
    const uint8_t *bytes;
    uint8_t *owned;      /* of a pipe: all that came out of it */
    struct eg__map *map; /* of a mapped file: what `bytes` lies in */
    size_t left;
    bool as_stored; /* f16, bf16, i8 and u8 are not widened */
    bool in_place;  /* a tensor uses bytes of the map */
    /* of what has to be unpacked: gives the next bytes; `bytes` are then not its own */
    bool (*pull)(struct eg__input *, void *out, size_t count);
} eg__input;
/* false after recording why */
bool eg__file_open(eg__input *, eg_ctx *, const char *format, const char *path);
bool eg__file_open_bytes(eg__input *, eg_ctx *, const char *format, const void *bytes,
                         size_t count);
/* Maps what is left of a regular file of EG_MAP_LEAST bytes and more, so that `bytes` are its own;
 * where it cannot be mapped it stays as it is, to be read. */
enum { EG_MAP_LEAST = 1 << 20 };
void eg__file_map(eg__input *);
/* All of a file in memory: mapped, or read (`copy`, or where it cannot be mapped). */
bool eg__file_whole(eg__input *, bool copy);
void eg__map_share(struct eg__map *); /* one holder more */
void eg__map_end(void *map);          /* one less; the last one unmaps the file */
bool eg__file_take(eg__input *, void *out, size_t count);
/* records "format: path: sentence"; false */
bool eg__file_refuse(const eg__input *, const char *sentence, ...) EG_PRINTF(2, 3);
bool eg__file_no_memory(const eg__input *); /* records "format: path: out of memory"; false */
void eg__file_close(eg__input *);

/* -- file.c: output that appears whole or not at all; after the first failure the rest does
 * nothing */
typedef struct eg__output {
    eg_ctx *cx;
    const char *format, *path;
    FILE *file;
    /* path with links followed; NULL where the path is a device or the stream is given */
    char *target, *temporary;
    bool unnamed; /* the file has no name yet */
    /* what is put goes through here: a member of an archive */
    void (*push)(struct eg__output *, const void *bytes, size_t count);
    void *sink; /* push's */
    /* numbers of an archive from this one on take 64 bits; 0: those that 32 cannot hold */
    uint64_t wide;
    int error; /* errno of the first failure */
} eg__output;
bool eg__file_create(eg__output *, eg_ctx *, const char *format, const char *path);
void eg__file_stream(eg__output *, eg_ctx *, const char *format, FILE *);
void eg__file_put(eg__output *, const void *bytes, size_t count);
void eg__file_print(eg__output *, const char *text, ...) EG_PRINTF(2, 3);
int eg__file_finish(eg__output *); /* 0, or −1 after recording why */
/* The same for several: all are whole on the disk before the first one gets its name. */
int eg__file_finish_all(int count, eg__output *);
void eg__file_abandon(eg__output *); /* leaves what was there before */

/* -- npy.c ------------------------------------------------------------------------------------ */
/* The array that begins at the input's place, in the owner, or the open scope if that is NULL; NULL
 * after an error. */
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
/* ended by a row without dtype; a dtype's own row comes first */
extern const eg__encoding eg__encodings[];
const eg__encoding *eg__encoding_of(eg_dtype);
/* e, or the encoding of the same name that changes nothing if the input is to be as_stored */
const eg__encoding *eg__encoding_wanted(const eg__input *, const eg__encoding *e);
bool eg__encoding_little(void); /* this machine's byte order */
/* Returns the next elements as a tensor: in place where the file is mapped and they are what a
 * tensor has, else read. In the owner, or the open scope if that is NULL. NULL after an error. */
eg_tensor *eg__encoding_tensor(eg__input *, const eg__encoding *, bool swap, eg_owner *, int rank,
                               const int64_t *dims);
/* fills x, which is row-major */
bool eg__encoding_take(eg__input *, const eg__encoding *, bool swap, eg_tensor *x);
void eg__encoding_put(eg__output *, eg_tensor *x); /* row-major, little-endian */
/* false: too large for any memory */
bool eg__encoding_size(const eg__encoding *, int rank, const int64_t *dims, size_t *bytes);
/* "(3,)", as Python writes a tuple */
char *eg__encoding_dims(int rank, const int64_t *dims, char *text, size_t room);
#endif
