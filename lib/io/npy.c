/* npy.c: NumPy's .npy (NEP 1, numpy/lib/format.py): "\x93NUMPY", version (2 bytes), header length
 * (2 bytes, from version 2 on 4; little-endian), a header that is a Python dict of exactly 'descr',
 * 'fortran_order' and 'shape', and the elements. */
#include <eingrad/capture.h>
#include <eingrad/copies.h>
#include <eingrad/io.h>
#include "file.h"
#include <stdlib.h>
#include <string.h>

static const char magic[] = "\x93NUMPY";
enum { MAGIC = 6, HEADER_MAX = 1 << 20 };

/* -- the header: a strict parser for one dict -------------------------------------------------- */
typedef struct header {
    char descr[16];
    bool fortran;
    int rank;
    int64_t dims[EG_RANK_MAX];
} header;

typedef struct cursor {
    const eg__input *in;
    const char *at, *end;
} cursor;

static void skip(cursor *c)
{
    while (c->at < c->end && memchr(" \t\r\n", *c->at, 4)) c->at++;
}

static bool accept(cursor *c, const char *word)
{
    size_t n = strlen(word);
    skip(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n)) return false;
    c->at += n;
    return true;
}

static bool expect(cursor *c, const char *word, const char *place)
{
    return accept(c, word) || eg__file_refuse(c->in, "the header lacks '%s' %s", word, place);
}

/* Reads 'text' or "text". Escapes, which no known name has, are refused. A text that is too long is
 * cut, and then equals no name. */
static bool string(cursor *c, char *out, size_t size, const char *what)
{
    char quote = accept(c, "'") ? '\'' : accept(c, "\"") ? '"' : 0;
    if (!quote) return eg__file_refuse(c->in, "%s in the header is not a string", what);
    size_t n = 0;
    for (; c->at < c->end && *c->at != quote; c->at++, n++)
        if (*c->at == '\\' || (unsigned char)*c->at < ' ')
            return eg__file_refuse(c->in, "%s in the header is a string with escapes", what);
        else if (n + 1 < size)
            out[n] = *c->at;
    out[n + 1 < size ? n : size - 1] = 0;
    if (c->at == c->end)
        return eg__file_refuse(c->in, "%s in the header is a string without end", what);
    c->at++;
    return true;
}

static bool parse_descr(cursor *c, header *h)
{
    if (accept(c, "["))
        return eg__file_refuse(c->in, "a structured dtype (a list of fields) is not supported; "
                                      "save each field as its own array");
    return string(c, h->descr, sizeof h->descr, "'descr'");
}

static bool parse_order(cursor *c, header *h)
{
    h->fortran = accept(c, "True");
    return h->fortran || accept(c, "False") ||
           eg__file_refuse(c->in, "'fortran_order' in the header is neither True nor False");
}

/* () or (3,) or (3, 4) or (3, 4,); Python 2 wrote 3L. */
static bool parse_shape(cursor *c, header *h)
{
    if (!accept(c, "(")) return eg__file_refuse(c->in, "'shape' in the header is not a tuple");
    bool comma = true;
    for (h->rank = 0; !accept(c, ")"); h->rank++) {
        if (!comma)
            return eg__file_refuse(c->in, "'shape' in the header is not a tuple of integers");
        if (h->rank == EG_RANK_MAX)
            return eg__file_refuse(c->in, "the array has more than %d axes", EG_RANK_MAX);
        if (accept(c, "-"))
            return eg__file_refuse(c->in, "the size of axis %d is negative", h->rank);
        skip(c);
        int64_t size = 0;
        const char *digits = c->at;
        for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
            if (size > (INT64_MAX - 9) / 10)
                return eg__file_refuse(c->in, "the size of axis %d does not fit 64 bits", h->rank);
            size = 10 * size + (*c->at - '0');
        }
        if (c->at == digits)
            return eg__file_refuse(c->in, "'shape' in the header is not a tuple of integers");
        if (c->at < c->end && *c->at == 'L') c->at++;
        h->dims[h->rank] = size;
        comma = accept(c, ",");
    }
    if (h->rank == 1 && !comma)
        return eg__file_refuse(c->in,
                               "'shape' in the header is a number in parentheses, not a tuple");
    return true;
}

static const struct {
    const char *name;
    bool (*parse)(cursor *, header *);
} fields[] = {
    { "descr", parse_descr },
    { "fortran_order", parse_order },
    { "shape", parse_shape },
};
enum { FIELDS = sizeof fields / sizeof *fields };

/* Reads the dict "{'descr': …, 'fortran_order': …, 'shape': …}": each key once, in any order. */
static bool npy_parse(const eg__input *in, const char *text, size_t n, header *h)
{
    cursor c = { in, text, text + n };
    bool seen[FIELDS] = { false }, comma = true;
    if (!accept(&c, "{"))
        return eg__file_refuse(in, "the header is not a Python dict: it does not begin with '{'");
    while (!accept(&c, "}")) {
        char key[24];
        if (!comma) return eg__file_refuse(in, "the header lacks ',' between two entries");
        if (!string(&c, key, sizeof key, "a key") || !expect(&c, ":", "after a key")) return false;
        int k = 0;
        while (k < FIELDS && strcmp(key, fields[k].name)) k++;
        if (k == FIELDS) return eg__file_refuse(in, "the header has an unknown key '%s'", key);
        if (seen[k]) return eg__file_refuse(in, "the header has the key '%s' twice", key);
        seen[k] = true;
        if (!fields[k].parse(&c, h)) return false;
        comma = accept(&c, ",");
    }
    for (int k = 0; k < FIELDS; k++)
        if (!seen[k]) return eg__file_refuse(in, "the header lacks the key '%s'", fields[k].name);
    skip(&c);
    return c.at == c.end || eg__file_refuse(in, "the header continues after its dict");
}

/* Reads the magic string, the version, the length and the dict. False after an error. */
static bool read_header(eg__input *in, header *h)
{
    uint8_t start[MAGIC + 6];
    if (in->left < MAGIC + 4)
        return eg__file_refuse(in, "is %zu byte%s long, too short for a .npy file", in->left,
                               in->left == 1 ? "" : "s");
    eg__file_take(in, start, MAGIC + 2);
    if (!memcmp(start, "PK\3\4", 4))
        return eg__file_refuse(in, "is a zip archive, as .npz files are, and not a .npy file; "
                                   "eg_npz_open reads those");
    if (memcmp(start, magic, MAGIC))
        return eg__file_refuse(in, "is not a .npy file: it does not begin with \\x93NUMPY");
    int version = start[MAGIC], minor = start[MAGIC + 1];
    if (version < 1 || version > 3 || minor)
        return eg__file_refuse(
            in, "has format version %d.%d; versions 1.0, 2.0 and 3.0 can be read", version, minor);
    size_t wide = version == 1 ? 2 : 4, length = 0;
    if (!eg__file_take(in, start, wide)) return false;
    for (size_t k = wide; k--;) length = length << 8 | start[k];
    if (length > in->left)
        return eg__file_refuse(in, "is cut short: its header has %zu byte%s, but only %zu follow",
                               length, length == 1 ? "" : "s", in->left);
    if (length > HEADER_MAX)
        return eg__file_refuse(in, "has a header of %zu bytes, more than the %d that are read",
                               length, HEADER_MAX);
    char *text = malloc(length + 1);
    if (!text) return eg__file_no_memory(in);
    bool good = eg__file_take(in, text, length) && npy_parse(in, text, length, h);
    free(text);
    return good;
}

/* -- element types ---------------------------------------------------------------------------- */
static const struct {
    char kind;
    const char *words;
} kinds[] = {
    { 'f', "a float of this width" },
    { 'g', "long double" },
    { 'c', "complex" },
    { 'i', "an integer of this width" },
    { 'u', "an unsigned integer of this width" },
    { 'b', "a bool of this width" },
    { 'S', "text" },
    { 'a', "text" },
    { 'U', "text" },
    { 'O', "Python objects" },
    { 'V', "raw bytes" },
    { 'M', "dates" },
    { 'm', "time spans" },
    { 0, "unknown" },
};

/* Returns the element type of a descr such as "<f4"; *swap: its byte order is not this machine's.
 * NULL after an error that names it. */
static const eg__encoding *encoding(const eg__input *in, const char *descr, bool *swap)
{
    char order = *descr && strchr("<>=|", *descr) ? *descr : 0;
    const char *name = descr + (order != 0);
    for (const eg__encoding *e = eg__encodings; e->dtype; e++)
        if (*name && !strcmp(e->npy, name)) {
            *swap =
                e->width > 1 && order != '=' && order && (order == '<') != eg__encoding_little();
            if (e->width > 1 && order == '|') {
                eg__file_refuse(in, "dtype '%s' has no byte order", descr);
                return NULL;
            }
            return eg__encoding_wanted(in, e);
        }
    int k = 0;
    while (kinds[k].kind && kinds[k].kind != *name) k++;
    eg__file_refuse(in, "dtype '%s' (%s) is not supported; f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1 are",
                    name, kinds[k].words);
    return NULL;
}

/* -- reading ---------------------------------------------------------------------------------- */
/* Fortran order is read as the row-major order of the reversed axes, then transposed. */
eg_tensor *eg__npy_array(eg__input *in, eg_owner *owner)
{
    header h;
    bool swap = false;
    size_t bytes;
    char text[EG_RANK_MAX * 22];
    eg_ctx *cx = in->cx;
    const eg__encoding *e = read_header(in, &h) ? encoding(in, h.descr, &swap) : NULL;
    if (!e) return NULL;
    eg__encoding_dims(h.rank, h.dims, text, sizeof text);
    if (!eg__encoding_size(e, h.rank, h.dims, &bytes)) {
        eg__file_refuse(in, "the shape %s is too large for any memory", text);
        return NULL;
    }
    if (bytes > in->left) {
        eg__file_refuse(
            in, "is cut short: shape %s of %s needs %zu bytes of data, but %zu follow the header",
            text, h.descr, bytes, in->left);
        return NULL;
    }
    if (!h.fortran || h.rank < 2) return eg__encoding_tensor(in, e, swap, owner, h.rank, h.dims);
    eg_tensor *y = owner ? eg_owner_tensor(owner, e->dtype, h.rank, h.dims)
                         : eg_full_n(cx, e->dtype, 0, h.rank, h.dims);
    int64_t dims[EG_RANK_MAX]; /* in Fortran order, the row-major order of the reversed axes */
    int axes[EG_RANK_MAX];
    for (int k = 0; k < h.rank; k++) dims[k] = h.dims[h.rank - 1 - k], axes[k] = h.rank - 1 - k;
    eg_mark mark = eg_push(cx);
    eg_tensor *x = eg_full_n(cx, e->dtype, 0, h.rank, dims);
    bool good =
        eg__encoding_take(in, e, swap, x) && eg_assign(y, eg_permute_n(x, h.rank, axes)) == 0;
    eg_pop(cx, mark);
    return good ? y : NULL;
}

static eg_tensor *npy_finish(eg__input *in, bool open)
{
    eg_tensor *y = open ? eg__npy_array(in, NULL) : NULL;
    eg__file_close(in);
    return y || !in->cx ? y : eg_fail_as(in->cx, EG_ERROR_FILE, "npy: cannot be read");
}

eg_tensor *eg_npy_load_with(const eg_load_args *given)
{
    eg_load_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    eg__input in;
    bool open = eg__file_open(&in, o.cx, "npy", o.path);
    in.as_stored = o.as_stored;
    if (open && !o.copy) eg__file_map(&in);
    return npy_finish(&in, open);
}

eg_tensor *eg_npy_read(eg_ctx *cx, const void *bytes, size_t count)
{
    eg__input in;
    bool open = eg__file_open_bytes(&in, cx, "npy", bytes, count);
    return npy_finish(&in, open);
}

/* -- writing ---------------------------------------------------------------------------------- */
/* The dict: as numpy.save does, it leaves room for the first size to grow to 21 digits, and is then
 * padded to a multiple of 64 bytes. Returns its length. */
enum { NPY_DICT = EG_RANK_MAX * 22 + 256 };
static int npy_dict(eg_tensor *x, char *text)
{
    enum { ALIGN = 64, GROWTH = 21 };
    char dims[EG_RANK_MAX * 22], first[24];
    int rank = eg_rank(x);
    const eg__encoding *e = eg__encoding_of(eg_type(x));
    eg__encoding_dims(rank, eg_dims(x), dims, sizeof dims);
    int blanks = rank ? GROWTH - snprintf(first, sizeof first, "%lld", (long long)eg_dim(x, 0)) : 0;
    int n = snprintf(text, NPY_DICT, "{'descr': '%c%s', 'fortran_order': False, 'shape': %s, }%*s",
                     e->width > 1 ? '<' : '|', e->npy, dims, blanks, "");
    int fill = ALIGN - (MAGIC + 4 + n + 1) % ALIGN;
    return n + snprintf(text + n, NPY_DICT - (size_t)n, "%*s\n", fill, "");
}
void eg__npy_put(eg__output *out, eg_tensor *x)
{
    char text[NPY_DICT];
    const int n = npy_dict(x, text);
    const uint8_t start[] = { 1, 0, (uint8_t)(n & 255), (uint8_t)(n >> 8) };
    eg__file_put(out, magic, MAGIC);
    eg__file_put(out, start, sizeof start);
    eg__file_put(out, text, (size_t)n);
    eg__encoding_put(out, x);
}
size_t eg__npy_size(eg_tensor *x)
{
    char text[NPY_DICT];
    return MAGIC + 4 + (size_t)npy_dict(x, text) +
           (size_t)eg_size(x) * eg__encoding_of(eg_type(x))->width;
}

/* True if x, operand number `operand`, can be written; else records an error. */
static bool npy_usable(eg_ctx *cx, eg_tensor *x, int operand)
{
    if (!eg_ok(x))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "npy: operand %d has no values: it failed, or its scope was popped", operand);
    else if (eg_copies_of(x))
        eg_fail_as(
            cx, EG_ERROR_MISUSE,
            "npy: operand %d has %lld copies; eg_copies_stack shows them all, eg_copy_at one",
            operand, (long long)eg_copies_count(eg_copies_of(x)));
    else if (!eg__encoding_of(eg_type(x))->dtype)
        eg_fail_as(cx, EG_ERROR_DTYPE,
                   "npy: operand %d is %s, which is not written; save its eg_real and eg_imag",
                   operand, eg_type_name(eg_type(x)));
    else if (!*eg__encoding_of(eg_type(x))->npy)
        eg_fail_as(cx, EG_ERROR_DTYPE,
                   "npy: operand %d is %s, which .npy has no type for; eg_cast it, or write "
                   "safetensors",
                   operand, eg_type_name(eg_type(x)));
    return eg_ok(x) && !eg_error(cx) && !eg_refuse_capture(cx, "npy");
}

int eg_npy_write(FILE *file, eg_tensor *x)
{
    eg__output out;
    if (!npy_usable(eg_context(x), x, 1)) return -1;
    if (!file) {
        eg_fail_as(eg_context(x), EG_ERROR_MISUSE, "npy: the stream is NULL");
        return -1;
    }
    eg__file_stream(&out, eg_context(x), "npy", file);
    eg__npy_put(&out, x);
    return eg__file_finish(&out) || eg_error(out.cx) ? -1 : 0;
}

static bool npy_put_file(eg__output *out, const char *path, eg_tensor *x)
{
    if (!eg__file_create(out, eg_context(x), "npy", path)) return false;
    eg__npy_put(out, x);
    if (!eg_error(out->cx)) return true;
    eg__file_abandon(out); /* there was no memory for a row-major copy */
    return false;
}

int eg_npy_save_n(int count, const char *const *paths, eg_tensor *const *xs)
{
    int made = 0;
    eg_ctx *cx = NULL;
    for (int k = 0; xs && k < count && !cx; k++) cx = eg_context(xs[k]);
    if (count < 0 || (count && (!paths || !xs))) {
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "npy: the number of files is negative, or their paths or arrays are NULL");
        return -1;
    }
    for (int k = 0; k < count; k++)
        if (!npy_usable(cx, xs[k], k + 1)) return -1;
    if (!count) return 0;
    eg__output *outs = calloc((size_t)count, sizeof *outs);
    if (!outs) {
        eg_fail_as(eg_context(xs[0]), EG_ERROR_MEMORY, "npy: out of memory");
        return -1;
    }
    while (made < count && npy_put_file(&outs[made], paths[made], xs[made])) made++;
    for (int k = 0; k < made && made < count; k++) eg__file_abandon(&outs[k]);
    int status = made == count ? eg__file_finish_all(count, outs) : -1;
    free(outs);
    return status;
}

int eg_npy_save(const char *path, eg_tensor *x) { return eg_npy_save_n(1, &path, &x); }
