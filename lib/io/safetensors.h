/* safetensors.h: what the files that read and write safetensors share. The format is that of
 * huggingface/safetensors, 2023: length of the header (8 bytes, little-endian), the header (JSON:
 * name → { dtype, shape, data_offsets }, and "__metadata__": string → string), and the data,
 * little-endian, row-major, without gaps. */
#ifndef EG_IO_SAFETENSORS_H
#define EG_IO_SAFETENSORS_H
#include <eingrad/io.h>
#include "file.h"

enum { EG_ST_HEADER_MAX = 100000000 }; /* in bytes, as in the format's own reader */
static const char eg__st_metadata_key[] = "__metadata__";

/* -- a file that was read --------------------------------------------------------------------- */
typedef struct eg__st_tensor {
    const char *name;
    eg_tensor *x;
    int file; /* index in eg_safetensors.file */
} eg__st_tensor;

struct eg_safetensors {
    eg_owner *owner;
    const char *path; /* as the caller gave it; "" if it was read from memory */
    int files;        /* 1, or the number of shards */
    const char **file;
    int count;
    eg__st_tensor *tensors;  /* in the order of the data */
    eg__st_tensor **by_name; /* in the order of their names */
    int pairs;
    char **metadata; /* key, value, key, value … */
};

/* Comparisons for qsort and bsearch: of strings, and of tensors by their names. */
int eg__st_order_of_keys(const void *, const void *);
int eg__st_order_of_names(const void *, const void *);

/* -- reading ---------------------------------------------------------------------------------- */
/* An array on the heap that grows at its end. */
typedef struct eg__st_list {
    void *item;
    size_t count, capacity; /* number of items; number of items for which there is memory */
    size_t width;           /* bytes of an item */
} eg__st_list;

/* A tensor as the header describes it. */
typedef struct eg__st_entry {
    const char *name;
    const eg__encoding *encoding;
    int rank;
    size_t at;         /* index of its first size in reader.dims */
    size_t begin, end; /* range of its data in bytes */
    eg_tensor *x;      /* NULL until its data are read */
    int file;
} eg__st_entry;

/* A line of an index: which shard has which tensor. */
typedef struct eg__st_row {
    const char *name, *file;
} eg__st_row;

/* The state while files are read. The entries are in the order of the files' names, then of the
 * data. */
typedef struct eg__st_reader {
    eg_safetensors *st;
    eg__input *in; /* the file that is being read */
    const eg_load_args *how;
    size_t data_bytes;   /* bytes of its data */
    bool has_metadata;   /* its header has a member "__metadata__" */
    eg__st_list entries; /* eg__st_entry */
    eg__st_list dims;    /* int64_t: sizes of the entries of this file, one after another */
    eg__st_list pairs;   /* char *: key, value, key, value … */
    eg__st_list rows;    /* eg__st_row: of an index */
} eg__st_reader;

/* Each returns false (NULL) after an error. */
/* returns memory for n ≥ 0 more items */
void *eg__st_more(eg__st_reader *, eg__st_list *, size_t n);
char *eg__st_json(eg__st_reader *,
                  size_t length);    /* the next bytes as a string that the file owns */
bool eg__st_header(eg__st_reader *); /* safetensors_header.c: adds its entries */
bool eg__st_file(eg__st_reader *);   /* reads the header, then the data */
bool eg__st_names(eg__st_reader *);  /* fills the lists of eg_safetensors */
bool eg__st_shards(eg__st_reader *); /* safetensors_shards.c: reads an index, then its files */
#endif
