/* eingrad/io.h: files. .npy (NumPy), safetensors, heat maps in the terminal and as PNG or SVG.
 * What is read is checked: a malformed file is refused with one sentence and nothing is made of it.
 * What is written under a path appears there whole or not at all: it is written to a file without a
 * name in the same folder (O_TMPFILE; else to a temporary one), flushed to the disk, named
 * .eingrad-K.tmp and renamed. A temporary name is locked (flock) while its writer lives; those of
 * killed writers are removed by whoever next writes into the folder. Links are followed, one to
 * nowhere is refused; devices and pipes are written to.
 * int results: 0, or −1 after recording the failure in the context. */
#ifndef EINGRAD_IO_H
#define EINGRAD_IO_H
#include <eingrad/core.h>
#include <eingrad/ops.h>
#ifdef __cplusplus
extern "C" {
#endif

EG_API const char *eg_io_info(void); /* "libpng 1.6.39" */
/* Returns the length, 1 to 4 bytes, of the UTF-8 character (RFC 3629: no surrogates, no overlong
 * forms) that the `count` bytes at s begin with; 0 if they begin with none. *code, unless code is
 * NULL, receives the code point. */
EG_API int eg_utf8(const char *s, size_t count, uint32_t *code);
/* 0 if a file of so many bytes could be written under path now; else −1 after recording why. Makes
 * no file and writes no byte: room is reserved (fallocate) in a file without a name and given back,
 * where the file system can. Of devices and pipes only the permission is looked at. */
EG_API int eg_file_check(eg_ctx *, const char *path, size_t bytes);

/* -- .npy: one array
 * Reads versions 1.0 to 3.0, C and Fortran order, both byte orders, 0-d and empty; bytes after the
 * data are ignored. f4 f8 i4 i8 b1 as they are (a bool byte other than 0 is true);  f2 → f32;  i1
 * u1 i2 u2 → i32;  other types are refused by name. Writes version 1.0, row-major, little-endian:
 * byte for byte what numpy.save (2.x) writes. */
EG_API eg_tensor *eg_npy_load(eg_ctx *, const char *path); /* in the open scope, row-major */
/* the same from memory */
EG_API eg_tensor *eg_npy_read(eg_ctx *, const void *bytes, size_t count);
EG_API int eg_npy_save(const char *path, eg_tensor *x);
/* Several files, all of them or none: the first gets its name when the last one is on the disk. */
EG_API int eg_npy_save_n(int count, const char *const *paths, eg_tensor *const *xs);
EG_API int eg_npy_write(FILE *, eg_tensor *x); /* the same into an open stream */

/* -- safetensors: named arrays and strings
 * Reads F32 F64 I32 I64 BOOL as they are, F16 BF16 → f32, I8 U8 I16 U16 → i32; other types are
 * refused by name. Refused too: a header over 100 MB or over the file, an entry over 64 KB, a
 * duplicate key, offsets out of bounds, holes, overlaps, sizes that disagree with dtype and shape.
 * Blanks before the header's '{' and other members of an entry than dtype, shape and data_offsets
 * are passed over if they are JSON of at most 128 levels. Writes wide types before narrow ones
 * (each array is then aligned), else in the order given: equal input gives equal bytes. */
typedef struct eg_safetensors eg_safetensors;
/* lives, as its tensors, in the open scope; NULL after an error */
EG_API eg_safetensors *eg_safetensors_open(eg_ctx *, const char *path);
/* Shards: PATH is an index (a name that ends in .json: { "weight_map": { tensor: file in the same
 * folder } }), or where no file PATH is, PATH.index.json, PATH.safetensors or
 * PATH.safetensors.index.json. All tensors of all shards are read; refused: a shard that lacks a
 * tensor of the index, a name in two shards. The metadata are those of all shards, in turn. */
EG_API eg_safetensors *eg_safetensors_read(eg_ctx *, const void *bytes, size_t count);
/* early end, of its tensors too; NULL is fine */
EG_API void eg_safetensors_close(eg_safetensors *);
EG_API int eg_safetensors_count(const eg_safetensors *);
/* in the order of the data; NULL past the end */
EG_API const char *eg_safetensors_name(const eg_safetensors *, int k);
/* the file it is in: of shards, its own; NULL past the end */
EG_API const char *eg_safetensors_file(const eg_safetensors *, int k);
EG_API eg_tensor *eg_safetensors_at(const eg_safetensors *, int k); /* NULL past the end */
/* its k, or −1 */
EG_API int eg_safetensors_find(const eg_safetensors *, const char *name);
/* an absent name is an error */
EG_API eg_tensor *eg_safetensors_get(const eg_safetensors *, const char *name);
EG_API const char *eg_safetensors_nearest(
    const eg_safetensors *, const char *name); /* the name of the fewest changes, at most half
                                                * of its letters; NULL: none is so near */
/* The tensor `name`, f32 or f64, of these sizes; else NULL or poison, after recording path, name,
 * `whose` (what it is read for), both sizes, or the nearest name. path: for messages; NULL: the
 * file's own. */
EG_API eg_tensor *eg_safetensors_need(const eg_safetensors *, const char *path, const char *name,
                                      const char *whose, int rank, const int64_t *dims);
/* NULL if there is none */
EG_API const char *eg_safetensors_metadata(const eg_safetensors *, const char *key);
/* of the metadata; NULL past the end */
EG_API const char *eg_safetensors_key(const eg_safetensors *, int k);
EG_API int eg_safetensors_save(eg_ctx *, const char *path, int count, const char *const *names,
                               eg_tensor *const *xs,
                               /* key, value, key, value … NULL; or NULL */
                               const char *const *metadata);

/* -- heat maps: rows are queries, columns are keys; a third axis in front gives one panel a head
 * Colours run from low to high, beyond them they stay; NaN is grey ('?' without colour). */
typedef struct eg_heatmap_args {
    size_t size;
    eg_tensor *x; /* (rows, columns) or (heads, rows, columns), any dtype */
    /* one UTF-8 token for each row, each column; NULL: their numbers */
    const char *const *rows, *const *columns;
    const char *title;
    const char *const *panels; /* one title for each panel; NULL: "head 0", "head 1" … */
    /* ends of the scale; 0 or the smallest entry below it, the largest entry */
    double low, high;
    bool colour; /* terminal: 24-bit colours instead of the shades " .:-=+*#%@" */
    int width;   /* terminal: columns that panels may fill side by side; 80 */
    const char *row_axis, *column_axis; /* names of the axes; NULL: none */
} eg_heatmap_args;
EG_API int eg_heatmap_print_with(FILE *, const eg_heatmap_args *); /* as text */
/* by the name's end: .png or .svg */
EG_API int eg_picture_save_with(const char *path, const eg_heatmap_args *);

/* -- curves: y over x as lines, .png or .svg; a y that is not finite is a gap ----------------- */
typedef struct eg_curve {
    const char *name;
    int64_t count;
    const double *x, *y;
} eg_curve;
typedef struct eg_curves_args {
    size_t size;
    eg_ctx *cx;
    int count;
    const eg_curve *curve; /* 1 … 8 */
    const char *title, *x_name, *y_name;
    bool logarithmic; /* the scale of y; values of 0 and below are gaps */
} eg_curves_args;
EG_API int eg_curves_save_with(const char *path, const eg_curves_args *);

#ifndef __cplusplus
#define eg_curves_save(path, ...) \
    eg_curves_save_with(          \
        (path),                   \
        EG_ARGS_(eg_curves_args, __VA_ARGS__)) /* ("loss.svg", cx, 2, curves, .title = …) */
#define eg_heatmap_print(file, ...) \
    eg_heatmap_print_with(          \
        (file), EG_ARGS_(eg_heatmap_args, __VA_ARGS__)) /* (stdout, x, .rows = tokens) */
#define eg_picture_save(path, ...) \
    eg_picture_save_with((path),   \
                         EG_ARGS_(eg_heatmap_args, __VA_ARGS__)) /* ("map.svg", x, .title = …) */
#endif

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_IO_
#include <eingrad/cxx.h>
#endif
#endif
