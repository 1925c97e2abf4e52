/* json.h: reads JSON in place with one cursor and without an allocation: strings are decoded where
 * they are. */
#ifndef EG_IO_JSON_H
#define EG_IO_JSON_H
#include <eingrad/io.h>
#include "file.h"

typedef struct eg__json {
    const eg__input *in; /* the file that messages are about */
    const char *what;    /* the part of the file that the text is: "header", "index" */
    char *text;          /* changed by reading: strings lose quotes and escapes; text[length] = 0 */
    size_t at, length;
    int depth; /* number of objects and arrays that enclose `at` */
} eg__json;

char eg__json_peek(eg__json *); /* the next byte that is not blank; 0 at the end */
/* Read the next value; false or NULL after an error: it is not valid JSON. eg__json_object calls
 * `member` after each key and its colon, eg__json_array calls `item` before each value; both must
 * read the value. Keys and strings are UTF-8 without 0 and are valid as long as the text. */
bool eg__json_object(eg__json *, bool (*member)(eg__json *, void *, char *key), void *user);
bool eg__json_array(eg__json *, bool (*item)(eg__json *, void *), void *user);
char *eg__json_string(eg__json *);
/* The next value as an integer ≥ 0; −1 for any other value. A number that does not fit int64_t is
 * an error. */
bool eg__json_natural(eg__json *, int64_t *);
/* The next value, which is not a string, array or object, with its kind; 0 and 1 for false and
 * true, 0 for null. A number that is too large for a double is an error. */
bool eg__json_scalar(eg__json *, eg_json_kind *, double *);
bool eg__json_skip(eg__json *); /* reads a value of any kind */
bool eg__json_end(eg__json *);  /* true if only blanks follow; else records an error */

/* Writes s in quotes and with escapes to `out`, unless NULL. Returns the number of bytes. */
size_t eg__json_quote(const char *s, char *out);
#endif
