/* zip.h: archives, as far as .npz needs them (PKWARE's APPNOTE 6.3): members that are stored or
 * deflated, ZIP64, no encryption, one disk. */
#ifndef EG_IO_ZIP_H
#define EG_IO_ZIP_H
#include "file.h"
#include <zlib.h>

enum {
    EG_ZIP_LOCAL = 0x04034b50,
    EG_ZIP_CENTRAL = 0x02014b50,
    EG_ZIP_END = 0x06054b50,
    EG_ZIP_END_64 = 0x06064b50,
    EG_ZIP_LOCATOR = 0x07064b50,
    EG_ZIP_DESCRIPTOR = 0x08074b50,
    EG_ZIP_LOCAL_SIZE = 30,
    EG_ZIP_CENTRAL_SIZE = 46,
    EG_ZIP_END_SIZE = 22,
    EG_ZIP_END_64_SIZE = 56,
    EG_ZIP_LOCATOR_SIZE = 20,
    EG_ZIP_ENCRYPTED = 1 << 0,
    EG_ZIP_DESCRIBED = 1 << 3, /* crc and sizes follow the data */
    EG_ZIP_UTF8 = 1 << 11,
    EG_ZIP_STORED = 0,
    EG_ZIP_DEFLATED = 8
};

/* -- zip.c: reading ---------------------------------------------------------------------------- */
typedef struct eg__zip_member {
    const char *name; /* `length` bytes of the archive, without an end */
    size_t length;
    size_t local, at;    /* bytes from the start: its local header, its data */
    size_t packed, size; /* bytes in the archive, and unpacked */
    uint32_t crc;
    bool deflated;
} eg__zip_member;
/* Reads the directory of an archive in memory (in->bytes, in->left). Returns the members in the
 * order of their positions, which the caller frees; NULL after an error. Sizes have been compared with
 * each other and with the archive: members lie in it, none overlaps another, and none is larger
 * than what its data can unpack to. */
eg__zip_member *eg__zip_open(const eg__input *in, size_t *count);
/* An input of a member's bytes: in place if it is stored, else unpacked while they are taken. */
typedef struct eg__zip_input {
    eg__input in; /* the first member */
    const eg__zip_member *member;
    z_stream z;
    size_t packed; /* bytes that z has not been given yet */
    uint32_t crc;  /* of what was taken */
} eg__zip_input;
bool eg__zip_begin(eg__zip_input *, const eg__input *archive, const eg__zip_member *,
                   const char *path);
/* True if all bytes were taken and have the checksum that the directory gives; else recorded. The
 * checksum of what stays in place of a mapped file is not looked at: that would read it. */
bool eg__zip_finish(eg__zip_input *);
void eg__zip_end(eg__zip_input *);

/* -- zip_write.c ------------------------------------------------------------------------------ */
typedef struct eg__zip_entry { /* of the directory to be written */
    uint64_t local, packed, size;
    uint32_t crc;
    uint16_t flags;
} eg__zip_entry;
/* Writes a member, of which put(out, user) puts `size` bytes, at the archive's byte *at, and moves
 * that on. Stored data begin at a multiple of 64. False without memory. */
bool eg__zip_put(eg__output *, uint64_t *at, eg__zip_entry *, const char *name, uint64_t size,
                 bool deflate, void (*put)(eg__output *, void *user), void *user);
void eg__zip_put_directory(eg__output *, uint64_t at, size_t count, const eg__zip_entry *,
                           char *const *names, bool deflate);
#endif
