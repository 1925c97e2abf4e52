/* config.h: settings of other programs, as config.json has them. A key whose value is null counts
 * as missing. What has another kind than asked for is refused in the context, and something of the
 * right kind returned, so that one look at the end is enough. */
#ifndef EG_NN_CONFIG_H
#define EG_NN_CONFIG_H
#include <eingrad/pretrained.h>

typedef struct eg__config {
    eg_ctx *cx;
    eg_owner *owner; /* of what is made from the settings */
    const char *path;
    const eg_json *all;
} eg__config;

/* Records "path: "key" is VALUE, why". */
void eg__config_refuse(const eg__config *, eg_code, const eg_json *, const char *key,
                       const char *why);
const eg_json *eg__config_find(const eg_json *object, const char *key); /* NULL: none, or null */
/* from 1 to `most`; otherwise 0: the key is needed */
int64_t eg__config_count(const eg__config *, const char *key, int64_t otherwise, int64_t most);
/* the same up to 2^30 */
int64_t eg__config_size(const eg__config *, const char *key, int64_t otherwise);
/* 0 and above */
double eg__config_real(const eg__config *, const eg_json *object, const char *key,
                       double otherwise);
bool eg__config_flag(const eg__config *, const eg_json *object, const char *key, bool otherwise);
const char *eg__config_word(const eg__config *, const eg_json *object, const char *key,
                            const char *otherwise);
bool eg__config_set(const eg_json *); /* it is there, and not false, 0, null or empty */

/* -- rope.c: what config.json says of rotary positions, as options of an attention; d: width of a
 * head */
void eg__config_rope(const eg__config *, int64_t d, eg_mha_args *);
#endif
