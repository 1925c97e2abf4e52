/* json.h: JSON that is read as it stands, by one cursor and without an allocation: strings are
 * decoded in their own place. */
#ifndef EG_IO_JSON_H
#define EG_IO_JSON_H
#include <eingrad/io.h>
#include "file.h"

typedef struct eg__json {
    const eg__input *in; /* what messages are about */
    const char *what;    /* "header", "index": what the text is in the file */
    char *text;          /* changed by reading: strings lose quotes and escapes; text[length] = 0 */
    size_t at, length;
    int depth; /* of the objects and arrays around `at` */
} eg__json;

char eg__json_peek(eg__json *); /* the next byte that is not blank; 0 at the end */
/* Read the next value; false or NULL after an error: it is not valid JSON. eg__json_object calls
 * `member` after each key and its colon, eg__json_array calls `item` before each value; both must
 * read the value. Keys and strings are UTF-8 without 0 and last as long as the text. */
bool eg__json_object(eg__json *, bool (*member)(eg__json *, void *, char *key), void *user);
bool eg__json_array(eg__json *, bool (*item)(eg__json *, void *), void *user);
char *eg__json_string(eg__json *);
/* The next value as a whole number ≥ 0; −1 for any other value. Refused: beyond int64_t. */
bool eg__json_natural(eg__json *, int64_t *);
/* The next value, which is no string, array or object, with its kind; 0 and 1 for false and true, 0
 * for null. Refused: a number beyond double. */
bool eg__json_scalar(eg__json *, eg_json_kind *, double *);
bool eg__json_skip(eg__json *); /* a value of any kind */
bool eg__json_end(eg__json *);  /* True if only blanks follow; else recorded */

/* Writes s in quotes and with escapes to `out`, unless NULL; the number of its bytes. */
size_t eg__json_quote(const char *s, char *out);
#endif
