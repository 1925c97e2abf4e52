/* text.c: UTF-8 (eg_utf8), and how wide its characters are on a terminal. */
#include "text.h"
#include <eingrad/io.h>
#include <string.h>

enum { BROKEN = 0xFFFD, ELLIPSIS = 0x2026, OPEN_BOX = 0x2423 };

/* The first byte determines the length; the bits of the following bytes must make a code point that
 * needs this length. */
int eg_utf8(const char *s, size_t count, uint32_t *code)
{
    static const struct {
        uint8_t mask, lead;
        uint32_t least;
    } forms[] = {
        { 0x80, 0x00, 0 },
        { 0xE0, 0xC0, 0x80 },
        { 0xF0, 0xE0, 0x800 },
        { 0xF8, 0xF0, 0x10000 },
    };
    const uint8_t *b = (const uint8_t *)s;
    size_t n = 0;
    if (!s) return 0;
    while (count && n < 4 && (b[0] & forms[n].mask) != forms[n].lead) n++;
    if (n >= count || n == 4) return 0;
    uint32_t c = b[0] & (uint8_t)~forms[n].mask;
    for (size_t k = 1; k <= n; k++) {
        if ((b[k] & 0xC0) != 0x80) return 0;
        c = c << 6 | (b[k] & 0x3F);
    }
    if (c < forms[n].least || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return 0;
    if (code) *code = c;
    return (int)n + 1;
}

/* Returns the character at *s, a string that is not at its end, or −1 for a byte that begins none;
 * moves *s past it. The zero byte at the end is not part of a character, so reading 4 bytes is
 * safe. */
static int32_t text_decode(const char **s)
{
    uint32_t code;
    int n = eg_utf8(*s, 4, &code);
    *s += n ? n : 1;
    return n ? (int32_t)code : -1;
}

bool eg__text_valid(const char *text)
{
    while (*text)
        if (text_decode(&text) < 0) return false;
    return true;
}

typedef struct span {
    uint32_t first, last;
} span;

static bool within(const span *spans, int n, uint32_t code)
{
    for (int k = 0; k < n; k++)
        if (code >= spans[k].first && code <= spans[k].last) return true;
    return false;
}

/* The blocks of Unicode that occur in tokens, not the complete table. */
int eg__text_width(uint32_t code)
{
    static const span zero[] = {
        { 0x300, 0x36F },   { 0x483, 0x489 },   { 0x591, 0x5BD },     { 0x610, 0x61A },
        { 0x64B, 0x65F },   { 0x93C, 0x93C },   { 0x941, 0x948 },     { 0x94D, 0x94D },
        { 0xE31, 0xE31 },   { 0xE34, 0xE3A },   { 0xE47, 0xE4E },     { 0x1AB0, 0x1AFF },
        { 0x1DC0, 0x1DFF }, { 0x200B, 0x200F }, { 0x2060, 0x2064 },   { 0x20D0, 0x20FF },
        { 0xFE00, 0xFE0F }, { 0xFE20, 0xFE2F }, { 0x1F3FB, 0x1F3FF }, { 0xE0100, 0xE01EF },
    };
    static const span wide[] = {
        { 0x1100, 0x115F },   { 0x2E80, 0x303E },   { 0x3041, 0xA4CF },   { 0xA960, 0xA97F },
        { 0xAC00, 0xD7A3 },   { 0xF900, 0xFAFF },   { 0xFE30, 0xFE6F },   { 0xFF00, 0xFF60 },
        { 0xFFE0, 0xFFE6 },   { 0x1F300, 0x1F64F }, { 0x1F680, 0x1F6FF }, { 0x1F900, 0x1FAFF },
        { 0x20000, 0x3FFFD },
    };
    return within(zero, sizeof zero / sizeof *zero, code)   ? 0
           : within(wide, sizeof wide / sizeof *wide, code) ? 2
                                                            : 1;
}

/* True for characters that are not shown unchanged: C0, C1, and the marks that change the direction
 * of writing. */
static bool control(int32_t c)
{
    static const span spans[] = {
        { 0, 0x1F }, { 0x7F, 0x9F }, { 0x2028, 0x202E }, { 0x2066, 0x2069 }, { 0xFFF9, 0xFFFB }
    };
    return c < 0 || within(spans, sizeof spans / sizeof *spans, (uint32_t)c);
}

/* Cuts the text at `columns`: the last character is then replaced by '…', together with the marks
 * that combine with it. */
void eg__text_label(eg__label *label, const char *text, int columns)
{
    label->count = label->width = 0;
    if (!strcmp(text, " ")) { /* a single blank would be invisible */
        label->code[label->count++] = OPEN_BOX;
        label->width = 1;
        return;
    }
    while (*text) {
        int32_t c = text_decode(&text);
        uint32_t code = control(c) ? BROKEN : (uint32_t)c;
        int width = eg__text_width(code);
        if (!width && (!label->count || label->count + columns + 2 > EG_LABEL_CODES)) continue;
        if (label->width + width > columns) {
            while (label->count &&
                   (label->width + 1 > columns || !eg__text_width(label->code[label->count - 1])))
                label->width -= eg__text_width(label->code[--label->count]);
            label->code[label->count++] = ELLIPSIS;
            label->width++;
            return;
        }
        label->code[label->count++] = code;
        label->width += width;
    }
}

int eg__text_utf8(uint32_t code, char out[5])
{
    int n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    for (int k = n - 1; k > 0; k--, code >>= 6) out[k] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(lead[n] | code);
    out[n] = 0;
    return n;
}
