/* eingrad/io.h: files: .npy and .npz (NumPy), safetensors, JSON, heat maps in the terminal and as
 * PNG or SVG, curves. Files are checked when they are read: a malformed one is refused, and no
 * tensor is made from it. Writing is atomic: the bytes are written to an unnamed file in the same
 * folder (O_TMPFILE; else to a temporary one), flushed to the disk, named .eingrad-K.tmp and
 * renamed. A temporary name is locked (flock) while its writer runs; those of killed writers are
 * removed by the next writer in the folder. Symbolic links are followed, and a dangling one is
 * refused; devices and pipes are written to directly. int results are 0, or −1 after recording the
 * failure in the context. */
#ifndef EINGRAD_IO_H
#define EINGRAD_IO_H
#include <eingrad/core.h>
#include <eingrad/ops.h>
#ifdef __cplusplus
extern "C" {
#endif

/* The libraries that read, write and draw: "zlib 1.2.13, cairo 1.16.0, fontconfig 2.14.1, FriBidi
 * 1.0.8"; "no cairo" if only SVG pictures can be drawn. */
EG_API const char *eg_io_info(void);
/* Returns the length, 1 to 4 bytes, of the UTF-8 character (RFC 3629: no surrogates, no overlong
 * forms) that the `count` bytes at s begin with; 0 if they begin with none. *code, unless code is
 * NULL, receives the code point. */
EG_API int eg_utf8(const char *s, size_t count, uint32_t *code);
/* printf's "%.*g" and strtod with a decimal point, whatever the locale of the program is, as all
 * files of the library have them. eg_number_text writes at most `size` bytes, with a final 0, and
 * returns the length of the whole text; 17 digits read back as the same double. */
EG_API int eg_number_text(char *text, size_t size, int digits, double x);
EG_API double eg_number_read(const char *text, char **end);
/* Returns 0 if a file of this size could be written at path now; else −1 after recording the
 * reason. It creates no file: the space is reserved (fallocate) in an unnamed file and released, if
 * the file system supports this. For devices and pipes only the permission is checked. */
EG_API int eg_file_check(eg_ctx *, const char *path, size_t bytes);

/* -- files of arrays: options of the functions that read them
 * A regular file of 1 MB and more is mapped into memory: opening takes the same time for any size,
 * and only the pages that are used are read. Elements are used in place if they are stored as in a
 * tensor (dtype, byte order, row-major, aligned); others are copied. Tensors can be written to, and
 * the file does not change (MAP_PRIVATE). As with all mapped files, if another program truncates
 * the file, the process gets SIGBUS, and what another program writes into the file appears in the
 * tensors. Functions that replace a file, as those of this header do, do not change the mapped one.
 * .copy reads the file instead of mapping it. */
typedef struct eg_load_args {
    size_t size;
    eg_ctx *cx;
    const char *path;
    bool copy;      /* the file is read, and may change afterwards; false */
    bool as_stored; /* f16, bf16, i8 and u8 become tensors of these dtypes; false: f32 and i32 */
} eg_load_args;

/* -- .npy: one array
 * Reads versions 1.0 to 3.0, C and Fortran order, both byte orders, 0-d and empty; bytes after the
 * data are ignored. f4 f8 i4 i8 b1 as they are (a bool byte other than 0 is true);  f2 → f32;  i1
 * u1 i2 u2 → i32;  u4 u8 → i64, where a number above 2^63 − 1 is refused (.as_stored: f2 i1 u1 as
 * they are);  other types are refused by name. Writes version 1.0, row-major, little-endian: byte
 * for byte what numpy.save (2.x) writes. c128 and bf16 are not written. */
/* eg_npy_load(cx, path), eg_npy_load(cx, path, .copy = true): the array, row-major, in the open
 * scope. */
EG_API eg_tensor *eg_npy_load_with(const eg_load_args *);
/* Reads a .npy file in memory, without .as_stored: f16 becomes f32, small integers i32. */
EG_API eg_tensor *eg_npy_read(eg_ctx *, const void *bytes, size_t count);
EG_API int eg_npy_save(const char *path, eg_tensor *x); /* writes x as the file `path` */
/* Writes several files, all or none: the first is renamed after the last one is on the disk. */
EG_API int eg_npy_save_n(int count, const char *const *paths, eg_tensor *const *xs);
/* Writes x to an open stream, as eg_npy_save to a file. */
EG_API int eg_npy_write(FILE *, eg_tensor *x);

/* -- .npz: named arrays in a zip archive
 * Reads what numpy.savez and savez_compressed write, and other archives of .npy members that are
 * stored or deflated, with ZIP64; members with other names are ignored. Element types are those of
 * .npy. Sizes are checked before anything is unpacked. Refused: members that overlap or are outside
 * of the file, a size above 1032 times that of the deflated bytes, a member whose length is not
 * that of its array, duplicate names, encryption, other methods. Checksums are compared, except
 * those of arrays that are used in place. Writes stored members, whose numbers begin at a multiple
 * of 64 bytes (so they can be mapped), or with .deflate deflated ones; equal input gives equal
 * bytes. */
typedef struct eg_npz eg_npz;
/* eg_npz_open(cx, path), eg_npz_open(cx, path, .copy = true): all its arrays, in the open scope;
 * NULL after an error. */
EG_API eg_npz *eg_npz_open_with(const eg_load_args *);
/* Reads an archive in memory, without .as_stored. */
EG_API eg_npz *eg_npz_read(eg_ctx *, const void *bytes, size_t count);
/* Frees the file and its arrays before the end of their scope; NULL is allowed. */
EG_API void eg_npz_close(eg_npz *);
/* Arrays are numbered in the order of the file; past the end each of these functions returns
 * NULL. */
EG_API int eg_npz_count(const eg_npz *);
EG_API const char *eg_npz_name(const eg_npz *, int k); /* the name of array k: "x" of x.npy */
EG_API eg_tensor *eg_npz_at(const eg_npz *, int k);    /* the k-th array */
/* The number of the array of that name; −1 if there is none (no error). */
EG_API int eg_npz_find(const eg_npz *, const char *name);
/* The array of that name; NULL after recording that there is none. */
EG_API eg_tensor *eg_npz_get(const eg_npz *, const char *name);
/* eg_npz_save(cx, path, count, names, xs, .deflate = true) */
typedef struct eg_npz_save_args {
    size_t size;
    eg_ctx *cx;
    const char *path;
    int count;                /* of arrays */
    const char *const *names; /* count of them */
    eg_tensor *const *xs;     /* count of them */
    bool deflate;             /* smaller and slower; false */
} eg_npz_save_args;
EG_API int eg_npz_save_with(const eg_npz_save_args *);

/* -- safetensors: named arrays and strings
 * Reads F32 F64 I32 I64 BOOL as they are, F16 BF16 → f32, I8 U8 I16 U16 → i32, U32 U64 → i64
 * (.as_stored: F16 BF16 I8 U8 as they are); other types are refused by name. Refused too: a number
 * of U64 above 2^63 − 1, a header over 100 MB or longer than the file, an entry over 64 KB, a
 * duplicate key, offsets out of bounds, holes, overlaps, sizes that disagree with dtype and shape.
 * Blanks before the header's '{' are skipped, and so are other members of an entry than dtype,
 * shape and data_offsets, if they are JSON of at most 128 levels. Writes wide types before narrow
 * ones (each array is then aligned), else in the order given: equal input gives equal bytes. c128
 * is not written. */
typedef struct eg_safetensors eg_safetensors;
/* eg_safetensors_open(cx, path): all tensors of a file, or of the shards that an index names. If
 * the name ends in .json, the file is an index: { "weight_map": { tensor: file in the same folder
 * } }. If there is no file of this name, the first one that exists of NAME.index.json,
 * NAME.safetensors and NAME.safetensors.index.json is read. Refused: a shard that lacks a tensor of
 * the index, a name in two shards. The metadata are those of all shards, one after the other. The
 * result and its tensors live in the open scope. */
EG_API eg_safetensors *eg_safetensors_open_with(const eg_load_args *);
/* Reads one safetensors file in memory, without .as_stored. */
EG_API eg_safetensors *eg_safetensors_read(eg_ctx *, const void *bytes, size_t count);
/* Frees the file and its tensors before the end of their scope; NULL is allowed. */
EG_API void eg_safetensors_close(eg_safetensors *);
/* Tensors are numbered in the order of their data; past the end each of these functions returns
 * NULL. */
EG_API int eg_safetensors_count(const eg_safetensors *);
EG_API const char *eg_safetensors_name(const eg_safetensors *, int k);
/* The path of the file of tensor k: one of the shards, if there are several. */
EG_API const char *eg_safetensors_file(const eg_safetensors *, int k);
EG_API eg_tensor *eg_safetensors_at(const eg_safetensors *, int k); /* the k-th tensor */
/* The number of the tensor of that name; −1 if there is none (no error). */
EG_API int eg_safetensors_find(const eg_safetensors *, const char *name);
/* The tensor of that name; NULL after recording that there is none. */
EG_API eg_tensor *eg_safetensors_get(const eg_safetensors *, const char *name);
/* The name that differs from `name` by the fewest letters, at most half of them; NULL: there is
 * none. */
EG_API const char *eg_safetensors_nearest(const eg_safetensors *, const char *name);
/* The tensor `name` if it is f32 or f64 and has these sizes; else NULL or poison, after recording
 * an error with path, name, `whose` (what it is read for), and both sizes or the most similar name.
 * path: for messages; NULL: the file's own. */
EG_API eg_tensor *eg_safetensors_need(const eg_safetensors *, const char *path, const char *name,
                                      const char *whose, int rank, const int64_t *dims);
/* The string stored under that key in the metadata; NULL if there is none (no error). */
EG_API const char *eg_safetensors_metadata(const eg_safetensors *, const char *key);
/* The k-th key of the metadata; NULL past the end. */
EG_API const char *eg_safetensors_key(const eg_safetensors *, int k);
/* Writes `count` tensors. metadata: key, value, key, value … NULL; or NULL. */
EG_API int eg_safetensors_save(eg_ctx *, const char *path, int count, const char *const *names,
                               eg_tensor *const *xs, const char *const *metadata);

/* -- JSON, such as the config.json of a model ------------------------------------------------- */
typedef enum eg_json_kind {
    EG_JSON_NULL,
    EG_JSON_BOOL,
    EG_JSON_NUMBER,
    EG_JSON_STRING,
    EG_JSON_ARRAY,
    EG_JSON_OBJECT
} eg_json_kind;
typedef struct eg_json { /* a value */
    eg_json_kind kind;
    const char *key;             /* of a member of an object; else NULL */
    const char *text;            /* of a string: UTF-8, which ends at a 0 byte; else NULL */
    double number;               /* of a number; 1 of true, else 0 */
    const struct eg_json *first; /* of an array or object: its first value; NULL: it is empty */
    const struct eg_json *next;  /* the next value in the same array or object */
} eg_json;
/* Reads RFC 8259: an object or array, which lives in the open scope; NULL after an error. Refused:
 * what is not JSON, with the byte; more than 128 levels or 100 MB; a number beyond double;
 * \u0000. */
EG_API const eg_json *eg_json_load(eg_ctx *, const char *path);
EG_API const eg_json *eg_json_read(eg_ctx *, const void *bytes, size_t count);
/* The member of that key, the last of several; NULL if there is none or it is no object (no
 * error). */
EG_API const eg_json *eg_json_find(const eg_json *, const char *key);

/* -- heat maps
 * Rows are queries, columns are keys; a third axis in front gives one panel per head. A value
 * beyond an end of the scale has the colour of that end; NaN is grey ('?' without colour). */
typedef struct eg_heatmap_args {
    size_t size;
    eg_tensor *x; /* (rows, columns) or (heads, rows, columns), any dtype */
    /* of the same sizes: each map becomes three, x, against and the difference against − x, which
     * has a separate scale that is symmetric about 0; NULL: none */
    eg_tensor *against;
    const char *name, *against_name;    /* of the two: "x", "against" */
    const char *const *rows;            /* one UTF-8 token for each row; NULL: their numbers */
    const char *const *columns;         /* the same for the columns */
    const char *row_axis, *column_axis; /* names of the axes; NULL: none */
    const char *value_axis;             /* name and unit of the scale; NULL: none */
    const char *title;                  /* NULL: none */
    const char *const *panels;          /* a title for each head; NULL: "head 0", "head 1" … */
    double low, high;                   /* ends of the scale, low < high. Defaults: 0, or the
                                         * smallest entry if it is below 0; the largest entry */
    bool colour;                        /* terminal: 24-bit colours, not the shades " .:-=+*#%@";
                                         * a difference in ninths of its scale, "+3" */
    int width;                          /* terminal: columns for panels side by side: 80 */
} eg_heatmap_args;
EG_API int eg_heatmap_print_with(FILE *, const eg_heatmap_args *); /* the maps, as text */
/* Saves the maps as a picture, PNG or SVG by the end of its name. SVG leaves the choice of fonts to
 * whoever shows it. PNG has two pixels per point of the SVG (one, if it is very large) and is drawn
 * in the fonts of this machine by cairo, fontconfig and FriBidi, which are loaded then; refused
 * where they are missing. */
EG_API int eg_picture_save_with(const char *path, const eg_heatmap_args *);

/* -- curves: y over x as lines, .png or .svg; a y that is not finite is a gap ----------------- */
typedef struct eg_curve {
    const char *name; /* in the legend; NULL or "": no entry */
    int64_t count;    /* points */
    const double *x, *y;
    int colour; /* 1 … 8; 0: by its place in the list, from the ninth curve on with dashes */
    int dash;   /* 0: a whole line; 1 … 7: kinds of dashes */
} eg_curve;
typedef struct eg_curves_args {
    size_t size;
    eg_ctx *cx;
    int count; /* of curves: 1 … 32 */
    const eg_curve *curve;
    const char *title;           /* NULL: none */
    const char *x_name, *y_name; /* names and units of the axes; NULL: none */
    bool logarithmic;            /* the scale of y; values of 0 and below are gaps */
} eg_curves_args;
EG_API int eg_curves_save_with(const char *path, const eg_curves_args *);

#ifndef __cplusplus
#define eg_npy_load(...)         eg_npy_load_with(EG_ARGS_(eg_load_args, __VA_ARGS__))
#define eg_npz_open(...)         eg_npz_open_with(EG_ARGS_(eg_load_args, __VA_ARGS__))
#define eg_npz_save(...)         eg_npz_save_with(EG_ARGS_(eg_npz_save_args, __VA_ARGS__))
#define eg_safetensors_open(...) eg_safetensors_open_with(EG_ARGS_(eg_load_args, __VA_ARGS__))
/* eg_curves_save("loss.svg", cx, 2, curves, .title = …) */
#define eg_curves_save(path, ...) eg_curves_save_with((path), EG_ARGS_(eg_curves_args, __VA_ARGS__))
/* eg_heatmap_print(stdout, x, .rows = tokens) */
#define eg_heatmap_print(file, ...) \
    eg_heatmap_print_with((file), EG_ARGS_(eg_heatmap_args, __VA_ARGS__))
/* eg_picture_save("map.svg", x, .title = …) */
#define eg_picture_save(path, ...) \
    eg_picture_save_with((path), EG_ARGS_(eg_heatmap_args, __VA_ARGS__))
#endif

#ifdef __cplusplus
} /* extern "C" */
/* -- the C++ interface: cxx.h ----------------------------------------------------------------- */
#define EG_CXX_LOAD_(result, name)                                                     \
    inline result *name(eg_ctx *cx, const char *path, eg_load_args o = eg_load_args()) \
    {                                                                                  \
        o.size = sizeof o, o.cx = cx, o.path = path;                                   \
        return name##_with(&o);                                                        \
    }
EG_CXX_LOAD_(eg_tensor, eg_npy_load)
EG_CXX_LOAD_(eg_npz, eg_npz_open)
EG_CXX_LOAD_(eg_safetensors, eg_safetensors_open)
inline int eg_npz_save(eg_ctx *cx, const char *path, int count, const char *const *names,
                       eg_tensor *const *xs, eg_npz_save_args o = eg_npz_save_args())
{
    o.size = sizeof o, o.cx = cx, o.path = path, o.count = count, o.names = names, o.xs = xs;
    return eg_npz_save_with(&o);
}
inline int eg_curves_save(const char *path, eg_ctx *cx, int count, const eg_curve *curve,
                          eg_curves_args o = eg_curves_args())
{
    o.size = sizeof o, o.cx = cx, o.count = count, o.curve = curve;
    return eg_curves_save_with(path, &o);
}
inline int eg_heatmap_print(FILE *file, eg_tensor *x, eg_heatmap_args o = eg_heatmap_args())
{
    o.size = sizeof o, o.x = x;
    return eg_heatmap_print_with(file, &o);
}
inline int eg_picture_save(const char *path, eg_tensor *x, eg_heatmap_args o = eg_heatmap_args())
{
    o.size = sizeof o, o.x = x;
    return eg_picture_save_with(path, &o);
}
#undef EG_CXX_LOAD_
#endif
#endif
