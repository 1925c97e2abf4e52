/* stored.c: what a checkpoint stores, in the words of `eingrad train`: its options, and names for
 * what the run has counted and measured. */
#include "train.h"
#include <stdlib.h>
#include <string.h>

/* Returns "label-smoothing" for the key "smoothing"; the key itself if it has no other name. The
 * key "decay_steps" is that of a schedule's end, since files of the first versions had no other. */
const char *stored_name(const char *key, size_t length, char out[STORED_SIZE])
{
    static const char *const names[][2] = {
        { "warmup", "warm-up" },
        { "clip_norm", "clip" },
        { "groups", "group" },
        { "smoothing", "label-smoothing" },
        { "decay", "schedule" },
        { "wsd_steps", "decay-steps" },
        { "decay_steps", "last step of the schedule" },
        { "noam_d_model", "width of noam" },
        { "last", "last factor of the schedule" },
        { "leaves", "leaves of a step" },
        { "vocabulary", "number of symbols" },
        { "longest", "longest sequence" },
        { "characters", "length of the text" },
        { "sum", "hash of the data" },
        { "step", "steps done" },
        { "cursor", "examples made" },
        { "draws", "random draws" },
        { "exact", "share of exact unseen sequences" },
        { "held", "unseen loss" },
        { "best", "smallest unseen loss" },
        { "best_step", "step of the smallest unseen loss" },
        { "waited", "evaluations since then" },
        { "longest_norm", "largest gradient norm" },
        { "longest_step", "step of the largest gradient norm" },
    };
    snprintf(out, STORED_SIZE, "%.*s", (int)length, key);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (!strcmp(out, names[k][0])) return names[k][1];
    for (char *s = out; *s; s++) *s = *s == '_' ? '-' : *s;
    for (const option *o = train_options; o->name; o++)
        if (o->kind != REMOVED && !strcmp(out, o->name)) return out;
    snprintf(out, STORED_SIZE, "%.*s", (int)length, key);
    return out;
}

/* Returns the value as `train` takes or prints it: a number with the fewest digits that are read
 * back as the same, schedules and types by name. NULL if it has several lines. */
const char *stored_value(const char *key, const char *text, char out[STORED_SIZE])
{
    char *end;
    if (!text || strchr(text, '\n')) return NULL;
    const double x = strtod(text, &end);
    if (!*text || *end) return text;
    const char *name = !strcmp(key, "decay")   ? eg_schedule_name((eg_decay)x)
                       : !strcmp(key, "dtype") ? eg_type_name((eg_dtype)x)
                       : x == EG_OFF           ? "none"
                                               : NULL;
    if (name) return name;
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, STORED_SIZE, "%.*g", digits, x);
        if (!(strtod(out, NULL) < x) && !(strtod(out, NULL) > x)) break;
    }
    return out;
}

/* Returns the number of "weight_decay" that the run computes with, which for adamw is 0.01 if the
 * file has 0, the default; other values of metadata as they are. NULL if the file has none. */
const char *stored_metadata(const eg_safetensors *file, const char *key, char out[STORED_SIZE])
{
    const char *text = eg_safetensors_metadata(file, key),
               *optimiser = eg_safetensors_metadata(file, "optimiser");
    char *end;
    if (!text || strcmp(key, "weight_decay") != 0) return text;
    const double x = strtod(text, &end), decay = eg_option(x, train_default_decay(optimiser));
    if (!*text || *end || !(decay < x || decay > x)) return text;
    snprintf(out, STORED_SIZE, "%g", decay);
    return out;
}

/* Writes "300,600" of the keys milestone0, milestone1 …; "none" if they are 0. */
const char *stored_milestones(const eg_safetensors *file, char out[STORED_SIZE])
{
    size_t n = 0;
    for (int k = 0; k < EG_MILESTONES; k++) {
        char key[32];
        snprintf(key, sizeof key, "milestone%d", k);
        const char *text = eg_safetensors_metadata(file, key);
        if (text && strcmp(text, "0") != 0 && n < STORED_SIZE)
            n += (size_t)snprintf(out + n, STORED_SIZE - n, "%s%s", n ? "," : "", text);
    }
    return n ? out : "none";
}

const char *saved_differs(const eg_saved *has, char out[STORED_SIZE])
{
    const size_t word = strcspn(has->differs, " ");
    const char *said = option_of_member(has->differs, word);
    snprintf(out, STORED_SIZE, "%s%s", said ? said : "", has->differs + (said ? word : 0));
    return out;
}
