/* zip_write.c: writes an archive without seeking back. A stored member is written twice, the first
 * time for its checksum; after a deflated one there is a record with checksum and sizes. Times are
 * 1980-01-01, so that equal input gives equal bytes. */
#include "zip.h"
#include <stdlib.h>
#include <string.h>

enum {
    ZIP_ALIGN = 64,
    VERSION_DEFLATE = 20,
    VERSION_ZIP64 = 45,
    DATE = 1 << 5 | 1,   /* 1980-01-01 */
    PADDING_ID = 0xd935, /* an extra field that only serves as padding */
    WIDE_FIELD = 4 + 16  /* of a local header: both sizes */
};
/* The smallest integer that is stored in 64 bits; at most the largest that fits 32. */
static uint64_t wide_number(const eg__output *out) { return out->wide ? out->wide : UINT32_MAX; }
/* The smallest size of a member that is stored in 64 bits: packed data may be a little longer than
 * the data. */
static uint64_t wide_size(const eg__output *out)
{
    return out->wide ? out->wide : UINT32_MAX - (1 << 24);
}

/* -- numbers ---------------------------------------------------------------------------------- */
typedef struct record {
    uint8_t bytes[128];
    size_t n;
} record;
static void add(record *r, uint64_t value, int bytes)
{
    for (; bytes--; value >>= 8) r->bytes[r->n++] = (uint8_t)value;
}
static void add_small(record *r, const eg__output *out, uint64_t value)
{
    add(r, value < wide_number(out) ? value : UINT32_MAX, 4);
}

/* -- what is written to a member --------------------------------------------------------------- */
typedef struct sink {
    uint32_t crc;
    uint64_t packed;
    z_stream z;
    uint8_t part[16384];
} sink;

/* Computes the checksum of the bytes, and writes nothing. */
static void sink_sum(eg__output *out, const void *bytes, size_t count)
{
    sink *s = out->sink;
    s->crc = (uint32_t)crc32_z(s->crc, bytes, count);
}

/* Packs the bytes and writes the result; flush: Z_FINISH at the end. */
static void sink_pack(eg__output *out, const void *bytes, size_t count, int flush)
{
    sink *s = out->sink;
    enum { GULP = 1 << 30 };
    s->z.next_in = (Bytef *)(uintptr_t)bytes; /* zlib does not write to it */
    do {
        const unsigned part = count < GULP ? (unsigned)count : GULP;
        s->z.avail_in = part;
        do {
            s->z.next_out = s->part;
            s->z.avail_out = sizeof s->part;
            deflate(&s->z, flush);
            const size_t n = sizeof s->part - s->z.avail_out;
            out->push = NULL;
            eg__file_put(out, s->part, n);
            s->packed += n;
        } while (!s->z.avail_out);
        count -= part;
    } while (count);
}
static void sink_deflate(eg__output *out, const void *bytes, size_t count)
{
    sink_sum(out, bytes, count);
    sink_pack(out, bytes, count, Z_NO_FLUSH);
    out->push = sink_deflate;
}
static void *sink_alloc(void *user, unsigned items, unsigned size)
{
    (void)user;
    return calloc(items, size);
}
static void sink_free(void *user, void *p)
{
    (void)user;
    free(p);
}

/* -- a member --------------------------------------------------------------------------------- */
/* Writes the local header, whose extra field pads the header of stored data to a multiple of
 * ZIP_ALIGN. */
static void put_local(eg__output *out, uint64_t *at, const eg__zip_entry *e, const char *name,
                      bool deflated)
{
    record r = { .n = 0 };
    const size_t length = strlen(name);
    const bool wide = e->size >= wide_size(out), described = e->flags & EG_ZIP_DESCRIBED;
    const uint64_t size = described ? 0 : e->size;
    size_t fill = 0, extra = wide ? WIDE_FIELD : 0;
    if (!deflated) {
        fill = (size_t)(-(*at + EG_ZIP_LOCAL_SIZE + length + extra) % ZIP_ALIGN);
        if (fill && fill < 4) fill += ZIP_ALIGN;
    }
    add(&r, EG_ZIP_LOCAL, 4);
    add(&r, wide ? VERSION_ZIP64 : VERSION_DEFLATE, 2);
    add(&r, e->flags, 2);
    add(&r, deflated ? EG_ZIP_DEFLATED : EG_ZIP_STORED, 2);
    add(&r, 0, 2);
    add(&r, DATE, 2);
    add(&r, described ? 0 : e->crc, 4);
    add(&r, wide ? UINT32_MAX : size, 4);
    add(&r, wide ? UINT32_MAX : size, 4);
    add(&r, length, 2);
    add(&r, extra + fill, 2);
    eg__file_put(out, r.bytes, r.n);
    eg__file_put(out, name, length);
    *at += r.n + length + extra + fill;
    r.n = 0;
    if (wide) {
        add(&r, 1, 2);
        add(&r, 16, 2);
        add(&r, size, 8);
        add(&r, size, 8);
    }
    if (fill) {
        add(&r, PADDING_ID, 2);
        add(&r, fill - 4, 2);
        for (size_t k = 4; k < fill; k++) add(&r, 0, 1);
    }
    eg__file_put(out, r.bytes, r.n);
}

/* Packs the member's data into the archive; false without memory. */
static bool put_deflated(eg__output *out, sink *s, void (*put)(eg__output *, void *user),
                         void *user)
{
    s->z = (z_stream){ .zalloc = sink_alloc, .zfree = sink_free };
    if (deflateInit2(&s->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return false;
    out->push = sink_deflate;
    put(out, user);
    sink_pack(out, NULL, 0, Z_FINISH);
    out->push = NULL;
    deflateEnd(&s->z);
    return true;
}

/* out->push receives the member's bytes: to compute the checksum of a stored member, or to pack
 * them. */
bool eg__zip_put(eg__output *out, uint64_t *at, eg__zip_entry *e, const char *name, uint64_t size,
                 bool deflated, void (*put)(eg__output *, void *user), void *user)
{
    sink s = { .crc = 0 };
    bool ascii = true, good = true;
    for (const char *c = name; *c; c++) ascii &= (unsigned char)*c < 128;
    *e = (eg__zip_entry){ .local = *at,
                          .size = size,
                          .packed = size,
                          .flags = (uint16_t)((ascii ? 0 : EG_ZIP_UTF8) |
                                              (deflated ? EG_ZIP_DESCRIBED : 0)) };
    out->sink = &s;
    if (!deflated) {
        out->push = sink_sum;
        put(out, user);
        out->push = NULL;
        e->crc = s.crc;
    }
    put_local(out, at, e, name, deflated);
    if (!deflated)
        put(out, user);
    else if ((good = put_deflated(out, &s, put, user))) {
        record r = { .n = 0 };
        const int wide = size >= wide_size(out) ? 8 : 4;
        e->crc = s.crc, e->packed = s.packed;
        add(&r, EG_ZIP_DESCRIPTOR, 4);
        add(&r, s.crc, 4);
        add(&r, s.packed, wide);
        add(&r, size, wide);
        eg__file_put(out, r.bytes, r.n);
        *at += r.n;
    }
    *at += e->packed;
    out->sink = NULL;
    return good;
}

/* -- the directory ---------------------------------------------------------------------------- */
/* An integer that does not fit 32 bits is stored in the extra field of ZIP64. */
static void put_entry(eg__output *out, uint64_t *at, const eg__zip_entry *e, const char *name,
                      bool deflated)
{
    record r = { .n = 0 }, wide = { .n = 0 };
    const size_t length = strlen(name);
    const uint64_t values[] = { e->size, e->packed, e->local };
    add(&wide, 1, 2);
    add(&wide, 0, 2);
    for (int k = 0; k < 3; k++)
        if (values[k] >= wide_number(out)) add(&wide, values[k], 8);
    wide.bytes[2] = (uint8_t)(wide.n - 4);
    if (wide.n == 4) wide.n = 0;
    const int version = wide.n || e->size >= wide_size(out) ? VERSION_ZIP64 : VERSION_DEFLATE;
    add(&r, EG_ZIP_CENTRAL, 4);
    add(&r, 3 << 8 | (unsigned)version, 2); /* written on Unix, to which the modes below refer */
    add(&r, (unsigned)version, 2);
    add(&r, e->flags, 2);
    add(&r, deflated ? EG_ZIP_DEFLATED : EG_ZIP_STORED, 2);
    add(&r, 0, 2);
    add(&r, DATE, 2);
    add(&r, e->crc, 4);
    add_small(&r, out, e->packed);
    add_small(&r, out, e->size);
    add(&r, length, 2);
    add(&r, wide.n, 2);
    add(&r, 0, 2 + 2 + 2);
    add(&r, 0600u << 16, 4);
    add_small(&r, out, e->local);
    eg__file_put(out, r.bytes, r.n);
    eg__file_put(out, name, length);
    eg__file_put(out, wide.bytes, wide.n);
    *at += r.n + length + wide.n;
}

/* Writes the entries and the end record; before it that of ZIP64 if a number is too large for
 * it. */
void eg__zip_put_directory(eg__output *out, uint64_t at, size_t count, const eg__zip_entry *e,
                           char *const *names, bool deflated)
{
    const uint64_t begin = at;
    record r = { .n = 0 };
    for (size_t k = 0; k < count; k++) put_entry(out, &at, &e[k], names[k], deflated);
    const uint64_t bytes = at - begin;
    if (count >= UINT16_MAX || begin >= wide_number(out) || bytes >= wide_number(out)) {
        add(&r, EG_ZIP_END_64, 4);
        add(&r, EG_ZIP_END_64_SIZE - 12, 8);
        add(&r, 3 << 8 | VERSION_ZIP64, 2);
        add(&r, VERSION_ZIP64, 2);
        add(&r, 0, 4 + 4);
        add(&r, count, 8);
        add(&r, count, 8);
        add(&r, bytes, 8);
        add(&r, begin, 8);
        add(&r, EG_ZIP_LOCATOR, 4);
        add(&r, 0, 4);
        add(&r, at, 8);
        add(&r, 1, 4);
    }
    add(&r, EG_ZIP_END, 4);
    add(&r, 0, 2 + 2);
    add(&r, count < UINT16_MAX ? count : UINT16_MAX, 2);
    add(&r, count < UINT16_MAX ? count : UINT16_MAX, 2);
    add_small(&r, out, bytes);
    add_small(&r, out, begin);
    add(&r, 0, 2);
    eg__file_put(out, r.bytes, r.n);
}
