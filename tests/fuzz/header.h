/* header.h: mutations of a file that begins with the length of its header, 8 bytes little-endian,
 * as safetensors do. The length is corrected after each of them, so that the changed part is
 * read. */
#ifndef EG_FUZZ_HEADER_H
#define EG_FUZZ_HEADER_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static uint32_t header_draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Returns the header's length in the file, at most what follows; 0 if the file is too short. */
static size_t header_length(const uint8_t *file, size_t n)
{
    uint64_t length = 0;
    for (int k = 8; n >= 8 && k--;) length = length << 8 | file[k];
    return n < 8 ? 0 : length < n - 8 ? (size_t)length : n - 8;
}

static void header_set_length(uint8_t *file, size_t length)
{
    for (int k = 0; k < 8; k++) file[k] = (uint8_t)((uint64_t)length >> 8 * k);
}

/* Replaces the bytes [from, to) of the file by `text`. Returns the new size, or the old one if the
 * result has more than `most` bytes. */
static size_t header_splice(uint8_t *file, size_t n, size_t most, size_t from, size_t to,
                            const char *text, size_t length)
{
    if (to > n || from > to || n - (to - from) + length > most) return n;
    memmove(file + from + length, file + to, n - to);
    memcpy(file + from, text, length);
    return n - (to - from) + length;
}

/* Replaces one number in the header by another. */
static size_t header_number(uint8_t *file, size_t n, size_t most, uint64_t *state)
{
    static const char *const extreme[] = {
        "0",
        "1",
        "-1",
        "2",
        "3",
        "7",
        "8",
        "9",
        "16",
        "64",
        "255",
        "4096",
        "5000",
        "65536",
        "1048576",
        "1048577",
        "2147483647",
        "2147483648",
        "4294967296",
        "9007199254740992",
        "9007199254740993",
        "4611686018427387904",
        "4611686018427387905",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "18446744073709551615",
        "1e308",
        "nan",
        "inf",
        "0.5",
        "",
    };
    size_t end = 8 + header_length(file, n),
           first = 8 + header_draw(state) % (end - 8 ? end - 8 : 1), at = first;
    while (at < end && (file[at] < '0' || file[at] > '9')) at++;
    size_t to = at;
    while (to < end && file[to] >= '0' && file[to] <= '9') to++;
    char near[32];
    unsigned long long value = 0;
    for (size_t k = at; k < to && k < at + 18; k++) value = 10 * value + (unsigned)(file[k] - '0');
    snprintf(near, sizeof near, "%lld", (long long)value + (header_draw(state) % 2 ? 1 : -1));
    const char *text = header_draw(state) % 4
                           ? extreme[header_draw(state) % (sizeof extreme / sizeof *extreme)]
                           : near;
    size_t length = strlen(text),
           m = at < end ? header_splice(file, n, most, at, to, text, length) : n;
    if (at < end && m == n - (to - at) + length)
        header_set_length(file, end - 8 - (to - at) + length);
    return m;
}

/* One change: of a number, a byte, a piece of the header, the data, the end. */
static size_t header_change(uint8_t *file, size_t n, size_t most, uint64_t *state)
{
    size_t length = header_length(file, n), data = 8 + length, at, m = n;
    if (n < 9) return n;
    switch (header_draw(state) % 12) {
    case 0: /* a byte of the header */
        file[8 + header_draw(state) % (length ? length : 1)] = (uint8_t)header_draw(state);
        return n;
    case 1: /* a piece of the header is removed or repeated */
        at = 8 + header_draw(state) % (length ? length : 1);
        {
            size_t piece = header_draw(state) % 64, room = data - at;
            piece = piece < room ? piece : room;
            char copy[64];
            memcpy(copy, file + at, piece);
            bool twice = header_draw(state) % 2;
            m = header_splice(file, n, most, at, at + (twice ? 0 : piece), copy, twice ? piece : 0);
        }
        header_set_length(file, length + m - n);
        return m;
    case 2:
    case 3: /* numbers of the data */
        for (int k = header_draw(state) % 16; k >= 0 && data < n; k--) {
            static const uint8_t bytes[] = { 0, 0x7f, 0x80, 0xff };
            uint32_t which = header_draw(state);
            file[data + header_draw(state) % (n - data)] =
                which % 2 ? (uint8_t)which : bytes[which / 2 % 4];
        }
        return n;
    case 4: /* cut short, or extended */
        if (header_draw(state) % 2) return header_draw(state) % n;
        return header_splice(file, n, most, n, n, "eight...", 8);
    case 5: /* the length itself */
        file[header_draw(state) % 8] = (uint8_t)header_draw(state);
        return n;
    default: return header_number(file, n, most, state);
    }
}
#endif
