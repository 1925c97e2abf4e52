/* text.h: UTF-8 in labels. */
#ifndef EG_IO_TEXT_H
#define EG_IO_TEXT_H
#include <stdbool.h>
#include <stdint.h>

bool eg__text_valid(const char *text); /* true if it is UTF-8 */

/* A line of text to be drawn: control characters and invalid bytes are U+FFFD; text that is too
 * long ends in '…'. */
enum { EG_LABEL_CODES = 160 };
typedef struct eg__label {
    int count, width; /* number of code points, and of the columns that they take on a terminal */
    uint32_t code[EG_LABEL_CODES];
} eg__label;
/* at most `columns` (< EG_LABEL_CODES / 2) columns wide */
void eg__text_label(eg__label *, const char *text, int columns);
int eg__text_width(uint32_t code); /* 0 combining, 2 wide (East Asian, emoji), else 1 */
/* writes its bytes and a zero byte; returns their number */
int eg__text_utf8(uint32_t code, char out[5]);
#endif
