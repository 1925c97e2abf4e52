/* json.h: JSON objects read member by member, so that memory is that of the largest member. */
#ifndef EG_IO_JSON_H
#define EG_IO_JSON_H
#include "file.h"
#include <jansson.h>

typedef struct eg__json {
    const eg__input *in;     /* what messages are about */
    const char *what, *text; /* "header", "index": the text in it */
    size_t at, length;
} eg__json;

/* Reads the text of an object: `member` is called behind each key and its colon, and reads the
 * value. True if the whole object was read; else what is wrong is recorded. */
bool eg__json_object(eg__json *, bool (*member)(eg__json *, void *, const char *key), void *user);
/* The next value, of at most `most` bytes; the caller releases it; NULL after recording why not. */
json_t *eg__json_value(eg__json *, size_t most);
char eg__json_peek(eg__json *); /* the next byte that is not blank; 0 at the end */
bool eg__json_end(eg__json *);  /* True if only blanks follow; else recorded */
#endif
