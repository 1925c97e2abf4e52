/* config.h: settings of other programs in a config.json. A key whose value is null counts as
 * missing. After a value of another kind than expected, an error is recorded in the context and a
 * value of the expected kind is returned, so that one test at the end suffices. */
#ifndef EG_NN_CONFIG_H
#define EG_NN_CONFIG_H
#include <eingrad/pretrained.h>

typedef struct eg__config {
    eg_ctx *cx;
    eg_owner *owner; /* owner of what is made from the settings */
    const char *path;
    const eg_json *all;
} eg__config;

/* Records "path: "key" is VALUE, why". */
void eg__config_refuse(const eg__config *, eg_code, const eg_json *, const char *key,
                       const char *why);
/* NULL if it is missing or null */
const eg_json *eg__config_find(const eg_json *object, const char *key);
/* Returns an integer from 1 to `most`; if the key is missing, `otherwise`, where 0 means that the
 * key is required. */
int64_t eg__config_count(const eg__config *, const char *key, int64_t otherwise, int64_t most);
/* eg__config_count with 2^30 as the maximum. */
int64_t eg__config_size(const eg__config *, const char *key, int64_t otherwise);
/* Returns a number that is not negative. */
double eg__config_real(const eg__config *, const eg_json *object, const char *key,
                       double otherwise);
bool eg__config_flag(const eg__config *, const eg_json *object, const char *key, bool otherwise);
const char *eg__config_word(const eg__config *, const eg_json *object, const char *key,
                            const char *otherwise);
bool eg__config_set(const eg_json *); /* true if it is present and not false, 0, null or empty */

/* -- rope.c: rotary positions -- */
/* Names and defaults of a family; 0 and NULL: those of Llama. */
typedef struct eg__rope {
    double base;          /* 10000 */
    const char *base_key; /* outside of the object: "rope_theta" */
    double part;          /* share of a head that is rotated: 1 */
    const char *part_key; /* outside of the object: "partial_rotary_factor" */
    bool given;           /* the object is `with`, which is NULL if there is none */
    const eg_json *with;
} eg__rope;
/* The object that describes the rotary positions; NULL if there is none. */
const eg_json *eg__config_rope_object(const eg__config *);
/* Sets the options of an attention; d: width of a head. A scale that is set already is multiplied,
 * where the rope type multiplies the scores. */
void eg__config_rope(const eg__config *, eg__rope, int64_t d, eg_mha_args *);

/* -- families.c -- */
typedef struct eg__model_family {
    const char *family, *style; /* model_type; style of eg_aliases */
    void (*options)(const eg__config *, eg_pretrained *);
} eg__model_family;
const eg__model_family *eg__model_family_at(int k); /* NULL past the end */
/* Refuses settings of the family that the options cannot express. */
void eg__model_family_limits(const eg__config *, const char *family);
#endif
