/* zip.c: the directory of an archive in memory, and the bytes of its members. Nothing is unpacked
 * before sizes were compared: one deflated byte gives at most 1032 bytes. */
#include "zip.h"
#include <eingrad/io.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { EXPANSION_MOST = 1032, COMMENT_MOST = 65535 };

static uint64_t zip_number(const uint8_t *at, int bytes)
{
    uint64_t n = 0;
    while (bytes--) n = n << 8 | at[bytes];
    return n;
}
static uint16_t number16(const uint8_t *at) { return (uint16_t)zip_number(at, 2); }
static uint32_t number32(const uint8_t *at) { return (uint32_t)zip_number(at, 4); }

/* -- the directory ---------------------------------------------------------------------------- */
typedef struct directory {
    uint64_t count, at, bytes;
} directory;

/* Finds the end record: the last one whose comment extends to the end of the archive. */
static bool find_end(const eg__input *in, size_t *at)
{
    const size_t n = in->left;
    for (size_t k = EG_ZIP_END_SIZE; k <= n && k <= EG_ZIP_END_SIZE + COMMENT_MOST; k++) {
        const uint8_t *end = in->bytes + n - k;
        if (number32(end) != EG_ZIP_END || number16(end + 20) != k - EG_ZIP_END_SIZE) continue;
        *at = n - k;
        return true;
    }
    if (n >= 6 && !memcmp(in->bytes, "\x93NUMPY", 6))
        return eg__file_refuse(in, "is a .npy file, not a .npz file; eg_npy_load reads it");
    return eg__file_refuse(in, "is not a .npz file, or is cut short: a zip archive has its "
                               "directory at the end");
}

/* Reads the end record, and that of ZIP64 before it if the numbers do not fit the first. */
static bool read_end(const eg__input *in, directory *d)
{
    size_t at = 0;
    if (!find_end(in, &at)) return false;
    const uint8_t *end = in->bytes + at;
    *d = (directory){ number16(end + 10), number32(end + 16), number32(end + 12) };
    uint32_t disks = (uint32_t)number16(end + 4) + number16(end + 6);
    uint64_t here = number16(end + 8);
    size_t limit = at;
    if (at >= EG_ZIP_LOCATOR_SIZE && number32(end - EG_ZIP_LOCATOR_SIZE) == EG_ZIP_LOCATOR) {
        uint64_t wide = zip_number(end - EG_ZIP_LOCATOR_SIZE + 8, 8);
        if (at < EG_ZIP_LOCATOR_SIZE + EG_ZIP_END_64_SIZE ||
            wide > at - EG_ZIP_LOCATOR_SIZE - EG_ZIP_END_64_SIZE ||
            number32(in->bytes + wide) != EG_ZIP_END_64)
            return eg__file_refuse(
                in, "has no ZIP64 directory at byte %" PRIu64 ", where it should be", wide);
        end = in->bytes + wide;
        limit = (size_t)wide;
        disks = number32(end + 16) + number32(end + 20);
        here = zip_number(end + 24, 8);
        *d = (directory){ zip_number(end + 32, 8), zip_number(end + 48, 8),
                          zip_number(end + 40, 8) };
    }
    if (disks || here != d->count)
        return eg__file_refuse(in, "is a part of an archive on several disks");
    if (d->bytes > limit || d->at > limit - d->bytes || d->count > d->bytes / EG_ZIP_CENTRAL_SIZE)
        return eg__file_refuse(in,
                               "has a directory of %" PRIu64 " members in %" PRIu64
                               " bytes at byte %" PRIu64 ", which does not fit into it",
                               d->count, d->bytes, d->at);
    return true;
}

/* Reads the sizes and the offset that did not fit 32 bits from the extra field of ZIP64. */
static bool widen_sizes(const uint8_t *extra, size_t length, uint64_t *const *value)
{
    static const uint64_t small = UINT32_MAX;
    bool wide = false;
    for (int k = 0; k < 3; k++) wide |= *value[k] == small;
    for (size_t at = 0; wide && at + 4 <= length;) {
        const size_t n = number16(extra + at + 2);
        const uint8_t *field = extra + at + 4;
        if (n > length - at - 4) return false;
        if (number16(extra + at) == 1) {
            size_t from = 0;
            for (int k = 0; k < 3; k++) {
                if (*value[k] != small) continue;
                if (from + 8 > n) return false;
                *value[k] = zip_number(field + from, 8);
                from += 8;
            }
            return true;
        }
        at += 4 + n;
    }
    return !wide;
}

/* Compares the directory's entry of a member with its local header and with the archive. */
static bool check_member(const eg__input *in, const directory *d, eg__zip_member *m, uint64_t local,
                         uint64_t packed, uint64_t size)
{
    const int n = (int)m->length;
    if (local > d->at || d->at - local < EG_ZIP_LOCAL_SIZE)
        return eg__file_refuse(in, "member '%.*s' is outside of the file", n, m->name);
    const uint8_t *head = in->bytes + local;
    if (number32(head) != EG_ZIP_LOCAL || number16(head + 26) != m->length ||
        d->at - local - EG_ZIP_LOCAL_SIZE < m->length ||
        memcmp(head + EG_ZIP_LOCAL_SIZE, m->name, m->length))
        return eg__file_refuse(in,
                               "member '%.*s' has another header before its data than in the "
                               "directory",
                               n, m->name);
    const uint64_t at = local + EG_ZIP_LOCAL_SIZE + m->length + number16(head + 28);
    if (at > d->at || packed > d->at - at)
        return eg__file_refuse(in,
                               "member '%.*s' is cut short: it has %" PRIu64
                               " bytes from byte %" PRIu64
                               " on, and the directory begins at %" PRIu64,
                               n, m->name, packed, at, d->at);
    if (!m->deflated && packed != size)
        return eg__file_refuse(in,
                               "member '%.*s' is stored, but has %" PRIu64
                               " bytes packed and %" PRIu64 " unpacked",
                               n, m->name, packed, size);
    if (m->deflated && size / EXPANSION_MOST > packed)
        return eg__file_refuse(in,
                               "member '%.*s' cannot unpack from %" PRIu64 " bytes to the %" PRIu64
                               " that the directory gives",
                               n, m->name, packed, size);
    m->local = (size_t)local, m->at = (size_t)at;
    m->packed = (size_t)packed, m->size = (size_t)size;
    return true;
}

/* Reads the entry at *at of the directory, and advances *at. */
static bool read_member(const eg__input *in, const directory *d, uint64_t *at, eg__zip_member *m)
{
    const uint8_t *entry = in->bytes + *at;
    const uint64_t left = d->at + d->bytes - *at;
    if (left < EG_ZIP_CENTRAL_SIZE || number32(entry) != EG_ZIP_CENTRAL)
        return eg__file_refuse(in, "has no entry of its directory at byte %" PRIu64, *at);
    const size_t name = number16(entry + 28), extra = number16(entry + 30),
                 whole = EG_ZIP_CENTRAL_SIZE + name + extra + number16(entry + 32);
    if (whole > left)
        return eg__file_refuse(in, "its directory is cut short at byte %" PRIu64, *at);
    const int flags = number16(entry + 8), method = number16(entry + 10);
    *m = (eg__zip_member){ .name = (const char *)entry + EG_ZIP_CENTRAL_SIZE,
                           .length = name,
                           .crc = number32(entry + 16),
                           .deflated = method == EG_ZIP_DEFLATED };
    for (size_t k = 0, step; k < name; k += (size_t)step) {
        step = m->name[k] ? (size_t)eg_utf8(m->name + k, name - k, NULL) : 0;
        if (!step)
            return eg__file_refuse(in, "the name of the member at byte %" PRIu64 " is not UTF-8",
                                   *at);
    }
    if (flags & EG_ZIP_ENCRYPTED)
        return eg__file_refuse(in, "member '%.*s' is encrypted", (int)name, m->name);
    if (method != EG_ZIP_STORED && method != EG_ZIP_DEFLATED)
        return eg__file_refuse(in,
                               "member '%.*s' is packed with method %d; stored (0) and deflated "
                               "(8) can be read",
                               (int)name, m->name, method);
    uint64_t size = number32(entry + 24), packed = number32(entry + 20),
             local = number32(entry + 42), *const values[] = { &size, &packed, &local };
    if (!widen_sizes(entry + EG_ZIP_CENTRAL_SIZE + name, extra, values))
        return eg__file_refuse(in, "the ZIP64 sizes of member '%.*s' are damaged", (int)name,
                               m->name);
    *at += whole;
    return check_member(in, d, m, local, packed, size);
}

static int zip_by_place(const void *a, const void *b)
{
    const size_t x = ((const eg__zip_member *)a)->local, y = ((const eg__zip_member *)b)->local;
    return x < y ? -1 : x > y;
}

eg__zip_member *eg__zip_open(const eg__input *in, size_t *count)
{
    directory d;
    if (!read_end(in, &d)) return NULL;
    eg__zip_member *all = malloc((size_t)(d.count + 1) * sizeof *all);
    bool good = all || eg__file_no_memory(in);
    uint64_t at = d.at;
    for (uint64_t k = 0; good && k < d.count; k++) good = read_member(in, &d, &at, &all[k]);
    if (good && at != d.at + d.bytes)
        good = eg__file_refuse(in, "its directory goes on after its %" PRIu64 " members", d.count);
    *count = (size_t)d.count;
    if (good && d.count) qsort(all, *count, sizeof *all, zip_by_place);
    for (size_t k = 1; good && k < *count; k++)
        if (all[k - 1].at + all[k - 1].packed > all[k].local)
            good = eg__file_refuse(in, "members '%.*s' and '%.*s' overlap", (int)all[k - 1].length,
                                   all[k - 1].name, (int)all[k].length, all[k].name);
    if (good) return all;
    free(all);
    return NULL;
}

/* -- a member --------------------------------------------------------------------------------- */
static void *zip_alloc(void *user, unsigned items, unsigned size)
{
    (void)user;
    return calloc(items, size);
}
static void zip_free(void *user, void *p)
{
    (void)user;
    free(p);
}
enum { GULP = 1 << 30 }; /* zlib counts in unsigned int */

/* Copies the next `count` bytes, unpacked; the caller knows that there are as many. */
static bool zip_pull(eg__input *in, void *out, size_t count)
{
    eg__zip_input *m = (eg__zip_input *)in;
    z_stream *z = &m->z;
    z->next_out = out;
    for (size_t left = count; left;) {
        const unsigned most = left < GULP ? (unsigned)left : GULP;
        if (!z->avail_in) {
            z->avail_in = m->packed < GULP ? (unsigned)m->packed : GULP;
            m->packed -= z->avail_in;
        }
        z->avail_out = most;
        const int r = inflate(z, Z_NO_FLUSH);
        left -= most - z->avail_out;
        if (r == Z_MEM_ERROR) return eg__file_no_memory(in);
        if (r == Z_OK || (r == Z_STREAM_END && !left)) continue;
        if (r == Z_STREAM_END || r == Z_BUF_ERROR)
            return eg__file_refuse(in,
                                   "is cut short: it unpacks to fewer bytes than the %zu that "
                                   "the directory gives",
                                   m->member->size);
        return eg__file_refuse(in, "is damaged: %s", z->msg ? z->msg : "not deflated");
    }
    m->crc = (uint32_t)crc32_z(m->crc, out, count);
    return true;
}

bool eg__zip_begin(eg__zip_input *m, const eg__input *archive, const eg__zip_member *member,
                   const char *path)
{
    const uint8_t *data = archive->bytes + member->at;
    *m = (eg__zip_input){ .in = { .cx = archive->cx,
                                  .format = archive->format,
                                  .path = path,
                                  .bytes = data,
                                  .as_stored = archive->as_stored,
                                  .map = member->deflated ? NULL : archive->map,
                                  .left = member->size },
                          .member = member,
                          .packed = member->packed };
    if (!member->deflated) return true;
    m->z = (z_stream){ .zalloc = zip_alloc, .zfree = zip_free };
    m->z.next_in = (Bytef *)(uintptr_t)data; /* zlib does not write to it */
    m->in.pull = zip_pull;
    if (inflateInit2(&m->z, -15) == Z_OK) return true;
    m->in.pull = NULL;
    return eg__file_no_memory(&m->in);
}

/* A member that was unpacked must end exactly at its size. */
bool eg__zip_finish(eg__zip_input *m)
{
    const eg__zip_member *member = m->member;
    uint8_t more;
    if (m->in.left)
        return eg__file_refuse(&m->in, "has %zu byte%s after its array", m->in.left,
                               m->in.left == 1 ? "" : "s");
    if (member->deflated) {
        m->z.next_out = &more;
        m->z.avail_out = 1;
        if (!m->z.avail_in) m->z.avail_in = m->packed < GULP ? (unsigned)m->packed : GULP;
        const int r = inflate(&m->z, Z_FINISH);
        if (r != Z_STREAM_END || !m->z.avail_out)
            return eg__file_refuse(&m->in,
                                   "unpacks to more bytes than the %zu that the directory "
                                   "gives",
                                   member->size);
    } else if (!m->in.in_place)
        m->crc = (uint32_t)crc32_z(0, m->in.bytes - member->size, member->size);
    else
        m->crc = member->crc;
    return m->crc == member->crc ||
           eg__file_refuse(&m->in, "is damaged: its checksum is %08" PRIx32 ", not %08" PRIx32,
                           m->crc, member->crc);
}

void eg__zip_end(eg__zip_input *m)
{
    if (m->in.pull) inflateEnd(&m->z);
    m->in.pull = NULL;
}
