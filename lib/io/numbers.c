/* numbers.c: numbers as text with a decimal point, whatever the locale of the program is: files
 * that were written under one locale are read under any other. */
#include "io/file.h"
#include <eingrad/io.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

locale_t eg__locale_plain(void)
{
    /* the C locale needs no memory, and is not freed */
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return plain ? uselocale(plain) : (locale_t)0;
}
void eg__locale_back(locale_t before)
{
    if (before) uselocale(before);
}
int eg_number_text(char *text, size_t size, int digits, double x)
{
    /* no double has more significant digits than 767, and %g writes no zeros after them */
    enum { DIGITS_MOST = 800 };
    const locale_t before = eg__locale_plain();
    const int length =
        snprintf(text, text ? size : 0, "%.*g", digits < DIGITS_MOST ? digits : DIGITS_MOST, x);
    eg__locale_back(before);
    return length;
}
double eg_number_read(const char *text, char **end)
{
    if (!text) {
        if (end) *end = NULL;
        return 0;
    }
    const locale_t before = eg__locale_plain();
    const double x = strtod(text, end);
    eg__locale_back(before);
    return x;
}
