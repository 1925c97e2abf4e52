/* text.h: UTF-8 in labels. */
#ifndef EG_IO_TEXT_H
#define EG_IO_TEXT_H
#include <stdbool.h>
#include <stdint.h>

bool eg__text_valid(const char *text); /* true if it is UTF-8 */

/* A line of text to be drawn: control characters and broken bytes are U+FFFD, what is too long ends
 * in '…'. */
enum { EG_LABEL_MAX = 160 };
typedef struct eg__label {
    int count, width; /* code points, and the columns of a terminal that they take */
    uint32_t code[EG_LABEL_MAX];
} eg__label;
/* at most `columns` (< EG_LABEL_MAX / 2) wide */
void eg__text_label(eg__label *, const char *text, int columns);
int eg__text_width(uint32_t code);             /* 0 combining, 2 wide (East Asian, emoji), else 1 */
int eg__text_utf8(uint32_t code, char out[5]); /* its bytes, ended by 0; their number */
#endif
