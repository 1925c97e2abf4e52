/* checkpoint.c: a trainer as one safetensors file. Numbers are written so that reading them gives
 * the same bits. */
#include "trainer.h"
#include <eingrad/grad.h>
#include <eingrad/io.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* -- the numbers in __metadata__ -------------------------------------------------------------- */
/* The numbers of a run in a checkpoint: its options, its progress, and others. */
typedef struct saved {
    eg_trainer_args o;
    eg_progress now;
    int64_t vocabulary; /* number of the model's tokens */
    int64_t longest;    /* number of the model's positions */
    int64_t dtype;      /* dtype of the parameters, an eg_dtype */
    uint64_t cursor;    /* number of the next training example */
    uint64_t draws;     /* number of the context's next random draw */
    int64_t waited;     /* number of evaluations without a smaller held-out loss */
    int64_t characters; /* number of symbols of a text; 0 for other data */
    uint64_t sum;       /* hash of a text's bytes */
} saved;

/* One number: its offset in `saved`, and the values that are valid in a file. */
typedef enum field_kind { INTEGER, REAL, ENUM } field_kind; /* int64_t, double, an enum */
typedef struct field {
    const char *key;
    size_t at;
    field_kind kind;
    int64_t low, high; /* inclusive bounds for INTEGER and ENUM */
    bool moves;        /* it changes during the run; the others identify the run */
    bool late;         /* older files do not have it; its value is then 0 */
} field;

/* Steps and examples increase by less than 2^20 at a time; the number of a text's symbols is
 * multiplied by 2^16. */
#define ANY        INT64_MIN, INT64_MAX
#define SIZE       1, SIZE_MOST
#define STEPS      0, (int64_t)1 << 53
#define AT(member) offsetof(saved, member)
#define MARK(k)                                                                   \
    {                                                                             \
        "milestone" #k, AT(o.schedule.milestones[k]), INTEGER, STEPS, false, true \
    }
/* clang-format off */
static const field fields[] = {
    { "layers",        AT(o.layers),               INTEGER,  SIZE,         false, false },
    { "d_model",       AT(o.d_model),              INTEGER,  SIZE,         false, false },
    { "heads",         AT(o.heads),                INTEGER,  SIZE,         false, false },
    { "width",         AT(o.width),                INTEGER,  SIZE,         false, false },
    { "batch",         AT(o.batch),                INTEGER,  SIZE,         false, false },
    /* A run may be continued with more steps, since the decay of the learning rate depends on
     * decay_steps. */
    { "steps",         AT(o.steps),                INTEGER,  1, (int64_t)1 << 53, true, false },
    { "seed",          AT(o.seed),                 INTEGER,  ANY,          false, false },
    { "decay",         AT(o.schedule.decay),       ENUM, 0, EG_WSD_SQRT, false, false },
    { "warmup",        AT(o.schedule.warmup),      INTEGER,  STEPS,        false, false },
    { "decay_steps",   AT(o.schedule.steps),       INTEGER,  STEPS,        false, false },
    /* a number of tokens is an int */
    { "vocabulary",    AT(vocabulary),             INTEGER,  1, INT32_MAX, false, false },
    { "longest",       AT(longest),                INTEGER,  SIZE,         false, false },
    { "step",          AT(now.step),               INTEGER,  STEPS,        true,  false },
    { "cursor",        AT(cursor),                 INTEGER,  0, (int64_t)1 << 62, true, false },
    { "draws",         AT(draws),                  INTEGER,  ANY,          true,  false },
    { "dtype",         AT(dtype),                  INTEGER,  EG_F32, EG_F64, false, false },
    { "dropout",       AT(o.dropout),              REAL,   0, 0,         false, false },
    { "lr",            AT(o.lr),                   REAL,   0, 0,         false, false },
    { "clip_norm",     AT(o.clip_norm),            REAL,   0, 0,         false, false },
    { "last",          AT(o.schedule.last),        REAL,   0, 0,         false, false },
    { "goal",          AT(o.goal),                 REAL,   0, 0,         false, false },
    { "exact",         AT(now.exact),              REAL,   0, 0,         true,  false },
    { "context",       AT(o.context),              INTEGER,  0, SIZE_MOST, false, false },
    { "block",         AT(o.block),                INTEGER,  SIZE,         false, true },
    { "leaves",        AT(o.leaves),               INTEGER,  1, EG_LEAVES_MAX, false, true },
    { "evaluate",      AT(o.evaluate),             INTEGER,  STEPS,        false, false },
    { "early_stop",    AT(o.early_stop),           INTEGER,  STEPS,        false, false },
    { "waited",        AT(waited),                 INTEGER,  STEPS,        true,  false },
    { "best_step",     AT(now.best_step),          INTEGER,  STEPS,        true,  false },
    { "longest_step",  AT(now.largest_norm_step),  INTEGER,  STEPS,        true,  false },
    { "characters",    AT(characters),             INTEGER,  0, (int64_t)1 << 44, false, false },
    { "sum",           AT(sum),                    INTEGER,  ANY,          false, false },
    { "smoothing",     AT(o.smoothing),            REAL,   0, 0,         false, false },
    { "held",          AT(now.held_out_loss),      REAL,   0, 0,         true,  false },
    { "best",          AT(now.best_loss),          REAL,   0, 0,         true,  false },
    { "longest_norm",  AT(now.largest_norm),       REAL,   0, 0,         true,  false },
    { "weight_decay",  AT(o.weight_decay),         REAL,   0, 0,         false, true },
    { "momentum",      AT(o.momentum),             REAL,   0, 0,         false, true },
    { "diversity",     AT(o.diversity),            REAL,   0, 0,         false, true },
    { "gamma",         AT(o.schedule.gamma),       REAL,   0, 0,         false, true },
    { "step_size",     AT(o.schedule.step_size),   INTEGER,  STEPS,        false, true },
    { "noam_d_model",  AT(o.schedule.d_model),     INTEGER,  STEPS,        false, true },
    { "wsd_steps",     AT(o.schedule.decay_steps), INTEGER,  STEPS,        false, true },
    MARK(0), MARK(1), MARK(2), MARK(3), MARK(4), MARK(5), MARK(6), MARK(7),
};
/* clang-format on */
#undef ANY
#undef SIZE
#undef STEPS
#undef AT
#undef MARK
enum { FIELDS = sizeof fields / sizeof *fields, TEXT = 40 };

/* Returns the user's name of an option whose key in the file is different because a schedule has an
 * option of that name, too. */
static const char *checkpoint_option(const char *key)
{
    static const char *const other[][2] = { { "decay_steps", "steps" },
                                            { "wsd_steps", "decay_steps" },
                                            { "noam_d_model", "d_model" } };
    for (size_t k = 0; k < sizeof other / sizeof *other; k++)
        if (!strcmp(key, other[k][0])) return other[k][1];
    return key;
}

/* Prints the number; "%.17g" is read back as the same double. */
static void field_print(const field *f, const saved *s, char out[TEXT])
{
    const void *at = (const char *)s + f->at;
    if (f->kind == REAL)
        eg_number_text(out, TEXT, 17, *(const double *)at);
    else
        snprintf(out, TEXT, "%lld",
                 f->kind == ENUM ? (long long)*(const int *)at : (long long)*(const int64_t *)at);
}

/* Returns the text of a number for a message. */
static const char *saved_shown(const field *f, const char *text, char out[TEXT])
{
    const double x = eg_number_read(text, NULL);
    if (f->kind == REAL && x == EG_OFF) return "none";
    return f->kind == REAL && isfinite(x) ? eg__shortest(x, out) : text;
}

/* Sets the member of *s from its text. True if the text is a number within its bounds; else records
 * an error. */
static bool field_read(const field *f, saved *s, const char *text, eg_ctx *cx, const char *path)
{
    void *at = (char *)s + f->at;
    char *end = NULL;
    int64_t value = 0;
    if (!text && f->late) return true;
    errno = 0;
    if (!text || !*text || isspace((unsigned char)*text))
        eg_fail_as(cx, EG_ERROR_FILE, "%s: the metadata lacks a number for \"%s\"", path, f->key);
    else if (f->kind == REAL)
        *(double *)at = eg_number_read(text, &end);
    else {
        value = strtoll(text, &end, 10);
        if (!*end && (errno || value < f->low || value > f->high))
            eg_fail_as(cx, EG_ERROR_FILE,
                       "%s: the metadata's \"%s\" is %.40s, not within %lld and %lld", path, f->key,
                       text, (long long)f->low, (long long)f->high);
    }
    if (end && (*end || end == text))
        eg_fail_as(cx, EG_ERROR_FILE, "%s: the metadata's \"%s\" is \"%.40s\", not a number", path,
                   f->key, text);
    if (f->kind == INTEGER) *(int64_t *)at = value;
    if (f->kind == ENUM) *(int *)at = (int)value;
    return !eg_error(cx);
}

/* Returns the groups of parameters as a text, "" if there are none; NULL without memory. */
static const char *checkpoint_groups(const eg_trainer *t, eg_owner *owner)
{
    const size_t size = eg_opt_groups_write(t->o.groups, NULL, 0) + 1;
    char *text = eg_owner_alloc(owner, size);
    if (text) eg_opt_groups_write(t->o.groups, text, size);
    return text;
}

static saved checkpoint_of(const eg_trainer *t)
{
    return (saved){ .o = t->o,
                    .now = t->now,
                    .vocabulary = t->batches->vocabulary,
                    .longest = t->batches->longest,
                    .dtype = eg_params_type(t->params),
                    .cursor = t->batches->cursor,
                    .draws = eg_draws(t->cx),
                    .waited = t->waited,
                    .characters = t->data->free_text ? t->data->count : 0,
                    .sum = t->data->sum };
}

/* True if a text of any length is the same on all ranks: its beginning and its hash are compared.
 */
static bool agree_text(eg_ranks *r, const char *name, const char *text)
{
    char shown[120];
    snprintf(shown, sizeof shown, "%s %.60s%s", name, text, strlen(text) > 60 ? "..." : "");
    for (char *c = shown; *c; c++) *c = *c == '\n' ? ',' : *c;
    if (strlen(text) > 60)
        snprintf(shown + strlen(shown), sizeof shown - strlen(shown), " %016llx",
                 (unsigned long long)eg_hash(EG_HASH_START, text, strlen(text)));
    return !eg_ranks_agree(r, "the options", shown);
}
/* Memory is allocated before the ranks compare the first option. */
bool eg__trainer_agree(const eg_trainer *t, eg_ranks *r, eg_owner *owner)
{
    const char *config = owner ? eg__network_config(t, owner) : NULL,
               *groups = owner ? checkpoint_groups(t, owner) : NULL,
               *rule = owner ? eg__rule_config(t->cx, t->o.rule, owner) : NULL;
    const saved s = checkpoint_of(t);
    char text[TEXT], shown[TEXT];
    if (eg_ranks_barrier(r) || !agree_text(r, "model", t->o.model) ||
        !agree_text(r, "optimiser", t->o.optimiser) || !agree_text(r, "rule", rule ? rule : "") ||
        !agree_text(r, "config", config ? config : "") ||
        !agree_text(r, "groups", groups ? groups : ""))
        return false;
    for (int k = 0; k < FIELDS; k++) {
        field_print(&fields[k], &s, text);
        if (!agree_text(r, checkpoint_option(fields[k].key), saved_shown(&fields[k], text, shown)))
            return false;
    }
    return true;
}

/* -- save ------------------------------------------------------------------------------------- */
/* Writes parameters, optimiser state and metadata. `owner` holds temporary memory. The state of a
 * divided optimiser is gathered from all ranks on rank 0. Returns 0; −1 after an error. */
static int checkpoint_save(eg_trainer *t, const char *path, eg_owner *owner)
{
    int n = 0;
    char(*text)[TEXT] = eg_owner_alloc(owner, FIELDS * sizeof *text),
    *vocabulary = eg__data_symbols_text(t->data, owner);
    const char *config = eg__network_config(t, owner), *groups = checkpoint_groups(t, owner),
               *rule = eg__rule_config(t->cx, t->o.rule, owner);
    const char *pairs = eg_data_pairs_text(t->data), *metadata[2 * (FIELDS + 9) + 1];
    if (!text || !vocabulary || !config || !groups || !rule)
        return eg__opt_write(t->opt, "trainer_save", path, NULL, false);
    saved s = checkpoint_of(t);
    const char *const texts[] = { "format",
                                  "eingrad trainer 2",
                                  pairs                      ? "name"
                                  : eg_data_is_text(t->data) ? t->data->words ? "tokens" : "corpus"
                                                             : "task",
                                  eg_data_name(t->data),
                                  "model",
                                  t->o.model,
                                  "symbols",
                                  vocabulary,
                                  *config ? "config" : NULL,
                                  config,
                                  strcmp(t->o.optimiser, "adam") ? "optimiser" : NULL,
                                  t->o.optimiser,
                                  *rule ? "rule" : NULL,
                                  rule,
                                  *groups ? "groups" : NULL,
                                  groups,
                                  pairs ? "pairs" : NULL,
                                  pairs };
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k += 2)
        if (texts[k]) metadata[n++] = texts[k], metadata[n++] = texts[k + 1];
    for (int k = 0; k < FIELDS; k++) {
        field_print(&fields[k], &s, text[k]);
        metadata[n++] = fields[k].key;
        metadata[n++] = text[k];
    }
    metadata[n] = NULL;
    return eg__opt_write(t->opt, "trainer_save", path, metadata, true);
}

int eg__trainer_collect(eg_trainer *t, const char *path)
{
    const bool failed = eg_error(t->cx);
    eg_mark m = eg_push(t->cx);
    eg_owner *owner = eg_owner_open(t->cx);
    const int bad = checkpoint_save(t, path, owner);
    eg_pop(t->cx, m);
    if (bad && !failed) eg_name_memory_error(t->cx, "trainer_save");
    return t->ranks ? eg_ranks_barrier(t->ranks) : bad;
}
int eg_trainer_save(eg_trainer *t, const char *path)
{
    if (!eg__trainer_there("trainer_save", t) || (eg_error(t->cx) && !t->ranks) ||
        !eg__trainer_has_rule("trainer_save", t))
        return -1;
    if (t->watching && t->ranks) {
        /* the others wait in run_ends for rank 0's request */
        if (eg_ranks_rank(t->ranks)) return 0;
        if (eg_error(t->cx) || eg__trainer_broadcast(t, EG__COMMAND_SAVE) < 0) return -1;
    }
    return eg__trainer_collect(t, path);
}

/* -- comparison of a run with the file that it would replace ----------------------------------- */
/* Compares a number of the options, which differs between different runs. Both runs have the same
 * optimiser, so a weight decay of 0 means the same default: for adamw 0.01, which may also be
 * given. */
static void saved_compare_number(const field *f, const saved *own, const eg_safetensors *file,
                                 eg_saved *out)
{
    const char *has = eg_safetensors_metadata(file, f->key);
    char text[TEXT], shown[2][TEXT], decay[TEXT];
    field_print(f, own, text);
    if (f->at == offsetof(saved, o.weight_decay)) {
        const double by_default = eg__opt_default_decay(own->o.optimiser);
        eg_number_text(text, TEXT, 17, eg_option(own->o.weight_decay, by_default));
        if (has) eg_number_text(decay, TEXT, 17, eg_option(eg_number_read(has, NULL), by_default));
        has = has ? decay : NULL;
    }
    const bool same = has ? !strcmp(has, text) : f->late && !strcmp(text, "0");
    if (!*out->differs && !f->moves && !same)
        snprintf(out->differs, sizeof out->differs, "%s %.40s, not %s", checkpoint_option(f->key),
                 has ? saved_shown(f, has, shown[0]) : "unknown", saved_shown(f, text, shown[1]));
}

/* The line "NAME VALUE" of that name in a configuration; NULL if there is none. */
static const char *config_line(const char *text, const char *name, size_t length)
{
    for (const char *s = text; *s; s += strcspn(s, "\n"), s += *s == '\n')
        if (!strncmp(s, name, length) && s[length] == ' ') return s;
    return NULL;
}
/* Compares the configurations of a built-in model line by line, and sets out->differs to the first
 * option that differs. */
static void saved_compare_config(const char *has, const char *is, eg_saved *out)
{
    for (const char *s = has, *next; *s && !*out->differs; s = next) {
        const int name = (int)strcspn(s, " \n"), whole = (int)strcspn(s, "\n");
        const char *own = config_line(is, s, (size_t)name);
        const int n = own ? (int)strcspn(own, "\n") : 0;
        next = s + whole + (s[whole] == '\n');
        if (!own)
            snprintf(out->differs, sizeof out->differs, "%.*s, which this run lacks",
                     whole < TEXT ? whole : TEXT, s);
        else if (n != whole || strncmp(s, own, (size_t)n) != 0)
            snprintf(out->differs, sizeof out->differs, "%.*s, not %.*s",
                     whole < TEXT ? whole : TEXT, s, n < TEXT ? n - name - 1 : TEXT,
                     own + name + 1);
    }
    for (const char *s = is, *next; *s && !*out->differs; s = next) {
        const int name = (int)strcspn(s, " \n"), whole = (int)strcspn(s, "\n");
        next = s + whole + (s[whole] == '\n');
        if (!config_line(has, s, (size_t)name))
            snprintf(out->differs, sizeof out->differs, "%.*s, which the file lacks",
                     whole < TEXT ? whole : TEXT, s);
    }
}
/* Compares the kinds of schedule, by name. They come before all that only one of them has. */
static void saved_compare_schedule(const saved *own, const eg_safetensors *file, eg_saved *out)
{
    const char *text = eg_safetensors_metadata(file, "decay"),
               *is = eg_schedule_name(own->o.schedule.decay);
    const long number = text ? strtol(text, NULL, 10) : -1;
    const char *has =
        number < 0 || number > EG_WSD_SQRT ? NULL : eg_schedule_name((eg_decay)number);
    if (*out->differs || !is || has == is) return;
    snprintf(out->differs, sizeof out->differs, "schedule %s, not %s", has ? has : "unknown", is);
}

/* Sets out->differs if the file contains another run. For pairs and texts the name in the metadata
 * is a path, which may have changed, so their contents are compared. */
static void saved_compare(eg_trainer *t, const eg_safetensors *file, eg_owner *owner, eg_saved *out)
{
    saved own = checkpoint_of(t);
    const char *config = eg__network_config(t, owner), *groups = checkpoint_groups(t, owner),
               *rule = eg__rule_config(t->cx, t->o.rule, owner);
    const struct {
        const char *key, *own;
        const char *otherwise; /* the value for a file without the key */
        bool shown;
    } texts[] = {
        { "model", t->o.model, NULL, true },
        { "config", config && *config ? config : NULL, NULL, true },
        { "optimiser", t->o.optimiser, "adam", true },
        { "rule", rule && *rule ? rule : NULL, NULL, true },
        { "groups", groups && *groups ? groups : NULL, NULL, true },
        { "task", t->data->task ? eg_data_name(t->data) : NULL, NULL, true },
        { "pairs", eg_data_pairs_text(t->data), NULL, false },
        { "symbols", eg__data_symbols_text(t->data, owner), NULL, false },
    };
    for (size_t k = 0; k < sizeof texts / sizeof *texts && !*out->differs; k++) {
        const char *key = texts[k].key, *is = texts[k].own;
        const char *has = eg_safetensors_metadata(file, key);
        if (!has) has = texts[k].otherwise;
        if (!strcmp(key, "config") && eg__network_find(t->o.model)) {
            saved_compare_config(has ? has : "", is ? is : "", out);
            continue;
        }
        if (has && is ? strcmp(has, is) == 0 : has == is) continue;
        if (texts[k].shown && has && is)
            snprintf(out->differs, sizeof out->differs, "%s %.40s, not %.40s", key, has, is);
        else
            snprintf(out->differs, sizeof out->differs, "%s %s", is ? "other" : "with", key);
    }
    saved_compare_schedule(&own, file, out);
    /* the end of the schedule first, since defaults of other options depend on it */
    for (int k = 0; k < FIELDS; k++)
        if (fields[k].at == offsetof(saved, o.schedule.steps))
            saved_compare_number(&fields[k], &own, file, out);
    for (int k = 0; k < FIELDS; k++) {
        const size_t at = fields[k].at;
        const bool ends = at == offsetof(saved, o.goal) || at == offsetof(saved, o.early_stop);
        if (!t->loaded || !ends) saved_compare_number(&fields[k], &own, file, out);
    }
    const char *step = eg_safetensors_metadata(file, "step");
    out->step = step ? strtoll(step, NULL, 10) : 0;
}

/* A file that exists but is not a readable checkpoint is reported in the result, not as an error.
 */
eg_saved eg_trainer_saved(eg_trainer *t, const char *path)
{
    eg_saved out = { .step = 0 };
    if (!t || !path || eg_error(t->cx)) return out;
    struct stat there;
    const bool known = !stat(path, &there);
    if (!known && (errno == ENOENT || errno == ENOTDIR)) return out;
    if (known && !S_ISREG(there.st_mode)) return (eg_saved){ .exists = true }; /* a pipe waits */
    eg_mark m = eg_push(t->cx);
    eg_owner *owner = eg_owner_open(t->cx);
    eg_safetensors *file = eg_safetensors_open(t->cx, path);
    const char *format = file ? eg_safetensors_metadata(file, "format") : NULL;
    out.exists = true;
    out.checkpoint = format && strncmp(format, "eingrad trainer", 15) == 0;
    if (out.checkpoint && owner) saved_compare(t, file, owner, &out);
    out.same = out.checkpoint && owner && !*out.differs && !eg_error(t->cx);
    eg_safetensors_close(file);
    /* A file that cannot be read is not a checkpoint; this is no error. Without memory it is not
     * known what the file is. */
    if (eg_error_code(t->cx) != EG_ERROR_MEMORY) eg_clear(t->cx);
    eg_pop(t->cx, m);
    return out;
}

/* -- load ------------------------------------------------------------------------------------- */
/* True if the file has no metadata that a checkpoint does not have; else records an error. A key
 * that is damaged would otherwise count as one that an older file lacks. */
static bool keys_known(eg_ctx *cx, const eg_safetensors *file, const char *path)
{
    static const char
        *const others[] = { "format", "name",    "tokens",       "corpus",    "task",
                            "model",  "symbols", "config",       "optimiser", "rule",
                            "groups", "pairs",   "micro_batches" /* `block` of older files */ };
    const char *key;
    for (int n = 0; (key = eg_safetensors_key(file, n)); n++) {
        bool known = false;
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            known |= !strcmp(key, others[k]);
        for (int k = 0; k < FIELDS; k++) known |= !strcmp(key, fields[k].key);
        if (!known)
            eg_fail_as(cx, EG_ERROR_FILE,
                       "%s: the metadata have \"%.40s\", which no checkpoint of this version has",
                       path, key);
    }
    return !eg_error(cx);
}
/* True if d is the data that the checkpoint was trained on: pairs and tasks are compared by name, a
 * text by length and hash. Else records an error. */
static bool same_data(const eg_data *d, const char *name, bool text, const saved *s,
                      const char *path)
{
    if (d->free_text != text || (!text && strcmp(d->name, name)))
        eg_fail_as(d->cx, EG_ERROR_FILE, "%s: a model of %s, not of %s", path, name, d->name);
    else if (text && (d->sum != s->sum || d->count != s->characters))
        eg_fail_as(d->cx, EG_ERROR_FILE,
                   "%s: trained on %s when it had %lld characters; %s has %lld and %s", path, name,
                   (long long)s->characters, d->name, (long long)d->count,
                   d->count == s->characters ? "others" : "is another text");
    return !eg_error(d->cx);
}

/* True if the path in a checkpoint is that of a file whose size fits this number of characters of
 * one to four bytes; else records an error. */
static bool is_text_of(eg_ctx *cx, const char *corpus, const saved *s, const char *path)
{
    struct stat about;
    if (stat(corpus, &about))
        eg_fail_as(cx, EG_ERROR_FILE, "%s: %s", corpus, strerror(errno));
    else if (!S_ISREG(about.st_mode) || about.st_size > 4 * s->characters)
        eg_fail_as(cx, EG_ERROR_FILE,
                   "%s: %s is not the text that it was trained on: no file of at most %lld bytes",
                   path, corpus, 4 * (long long)s->characters);
    return !eg_error(cx);
}

/* Returns the data of the checkpoint: those of the caller if given; else pairs from the metadata, a
 * text from its path, or a task of the table. NULL after an error. */
static eg_data *data_of(const eg_trainer_load_args *o, const eg_safetensors *file, const saved *s)
{
    const char *task = eg_safetensors_metadata(file, "task"),
               *pairs = eg_safetensors_metadata(file, "pairs");
    const char *name = eg_safetensors_metadata(file, "name"),
               *tokens = eg_safetensors_metadata(file, "tokens"),
               *corpus = tokens ? tokens : eg_safetensors_metadata(file, "corpus");
    const char *symbols = eg_safetensors_metadata(file, "symbols"), *called = corpus  ? corpus
                                                                              : pairs ? name
                                                                                      : task;
    eg_data *d = o->data;
    if (d && !same_data(d, called ? called : o->path, corpus, s, o->path)) return NULL;
    if (d) return d;
    if (pairs) return eg_data_parse(o->cx, pairs, name ? name : o->path);
    if (corpus && o->inference_only)
        return eg__corpus_closed(o->cx, corpus, symbols ? symbols : "", tokens, s->sum,
                                 s->characters);
    if (corpus) {
        d = tokens                                  ? eg_data_tokens(o->cx, corpus)
            : is_text_of(o->cx, corpus, s, o->path) ? eg_data_corpus(o->cx, corpus)
                                                    : NULL;
        return d && same_data(d, corpus, true, s, o->path) ? d : NULL;
    }
    if (!task || !eg_task_find(task)) {
        eg_fail_as(
            o->cx, EG_ERROR_FILE,
            "%s: the task \"%s\" is not one of eingrad's; load it with .data, the task that it "
            "was trained on",
            o->path, task ? task : "");
        return NULL;
    }
    return eg_data_task(o->cx, eg_task_find(task));
}

/* True if the context has the parameters' dtype and the counts are consistent; else records an
 * error. */
static bool dtype_and_counts(eg_ctx *cx, const saved *s, const char *path)
{
    if (s->dtype != (int64_t)eg_default_type(cx))
        eg_fail_as(cx, EG_ERROR_FILE, "%s: a model in %s, but the context is in %s", path,
                   s->dtype == EG_F64 ? "f64" : "f32", eg_type_name(eg_default_type(cx)));
    if (s->waited > s->now.step)
        eg_fail_as(cx, EG_ERROR_FILE,
                   "%s: the metadata's \"waited\" is %lld evaluation%s after only %lld step%s",
                   path, (long long)s->waited, s->waited == 1 ? "" : "s", (long long)s->now.step,
                   s->now.step == 1 ? "" : "s");
    return !eg_error(cx);
}

/* True if a user's own network has the configuration that is in the file; else records an error. */
static bool same_config(eg_trainer *t, const char *has, const char *path)
{
    const char *own = eg__network_config(t, t->owner);
    if (own && strcmp(own, has ? has : ""))
        eg_fail_as(t->cx, EG_ERROR_FILE,
                   "%s: the file has a network \"%s\" with the configuration \"%s\", not \"%s\"",
                   path, t->o.model, has ? has : "", own);
    return !eg_error(t->cx);
}

/* True if the custom optimiser of the trainer has the configuration that is in the file; else
 * records an error. */
static bool same_rule(eg_trainer *t, const char *has, const char *path)
{
    const char *own = eg__rule_config(t->cx, t->o.rule, t->owner);
    if (own && strcmp(own, has ? has : ""))
        eg_fail_as(t->cx, EG_ERROR_FILE,
                   "%s: the file has an optimiser \"%s\" with the configuration \"%s\", not \"%s\"",
                   path, t->o.optimiser, has ? has : "", own);
    return !eg_error(t->cx);
}

static bool same_vocabulary(eg_trainer *t, const char *text, const char *path)
{
    const char *own = eg__data_symbols_text(t->data, t->owner);
    if (own && (!text || strcmp(own, text) || t->batches->vocabulary != eg_data_symbols(t->data)))
        eg_fail_as(t->cx, EG_ERROR_FILE, "%s: its vocabulary is not that of %s", path,
                   eg_data_name(t->data));
    return !eg_error(t->cx);
}

/* 0 in a file means 0, but in the options it would mean the default: returns EG_OFF for it. */
static double given_or_off(double x) { return x == 0 ? EG_OFF : x; }

/* The rule of a run whose custom optimiser is not given. */
static int rule_missing(const void *user, const eg_opt_rule_step *s)
{
    (void)user, (void)s;
    return -1;
}
/* Sets o->optimiser to that of the file, and o->rule to its rule: `missing`, which has no moments,
 * if the file has a custom optimiser and the caller gave no rule. False after an error. */
static bool restore_rule(const eg_trainer_load_args *l, const eg_safetensors *file,
                         eg_trainer_args *o, eg_opt_rule *missing)
{
    o->optimiser = eg_safetensors_metadata(file, "optimiser");
    o->rule = l->rule;
    const char *has = o->optimiser ? o->optimiser : "adam";
    const eg_opt_rule own = l->rule ? eg__rule_whole(l->rule) : (eg_opt_rule){ 0 };
    if (l->rule && own.name && strcmp(own.name, has))
        eg_fail_as(l->cx, EG_ERROR_FILE, "%s: the file has an optimiser \"%s\", not \"%s\"",
                   l->path, has, own.name);
    if (l->rule || eg__opt_built_in(has)) return !eg_error(l->cx);
    *missing = (eg_opt_rule){ .size = sizeof *missing, .name = has, .update = rule_missing };
    o->rule = missing;
    return true;
}

/* Sets *o to the options of the file, and checks all that does not depend on the data, which may be
 * a long text that is not read yet. `missing`: as in restore_rule. False after an error. */
static bool restore_options(const eg_trainer_load_args *l, const eg_safetensors *file,
                            const saved *s, eg_trainer_args *o, eg_opt_rule *missing)
{
    *o = s->o;
    o->size = sizeof *o, o->model = eg_safetensors_metadata(file, "model");
    o->steps = l->steps ? l->steps : o->steps;
    o->lr = given_or_off(o->lr), o->goal = given_or_off(l->goal != 0 ? l->goal : o->goal);
    if (l->early_stop) o->early_stop = l->early_stop == EG_OFF ? 0 : l->early_stop;
    o->network = l->network, o->user = l->user;
    if (!restore_rule(l, file, o, missing)) return false;
    eg_owner *owner = eg_owner_open(l->cx);
    const char *groups = eg_safetensors_metadata(file, "groups");
    if (groups && !(o->groups = eg_opt_groups_read(l->cx, groups))) return false;
    if (!owner ||
        (o->model && eg__network_find(o->model) &&
         !eg__recipe_read(l->cx, owner, eg_safetensors_metadata(file, "config"), o, l->path)))
        return false;
    if (!o->model)
        eg_fail_as(l->cx, EG_ERROR_FILE, "%s: the metadata names no model", l->path);
    else if (o->network && o->network->name && strcmp(o->network->name, o->model))
        eg_fail_as(l->cx, EG_ERROR_FILE, "%s: the file has a model \"%s\", not \"%s\"", l->path,
                   o->model, o->network->name);
    else if (!o->network && !eg__network_find(o->model))
        eg_fail_as(l->cx, EG_ERROR_FILE,
                   "%s: the network \"%s\" is not one of eingrad's; load it with .network, the "
                   "struct that it was trained with",
                   l->path, o->model);
    if (l->steps && l->steps < s->now.step)
        eg_fail_as(l->cx, EG_ERROR_MISUSE, "trainer_load: .steps is %lld, but %s has done %lld",
                   (long long)l->steps, l->path, (long long)s->now.step);
    return !eg_error(l->cx);
}

/* Makes a trainer with these options of the file, then loads its parameters, its optimiser's state
 * and its progress. NULL after an error. */
static eg_trainer *restore(const eg_trainer_load_args *l, const eg_safetensors *file,
                           const saved *s, const eg_trainer_args *o, bool rule_is_missing)
{
    eg_trainer *t =
        eg__trainer_make(o, &(eg__restored){ s->vocabulary, s->longest, file, l->path });
    if (!t || !same_config(t, eg_safetensors_metadata(file, "config"), l->path) ||
        !same_vocabulary(t, eg_safetensors_metadata(file, "symbols"), l->path) ||
        eg_params_read(t->params, file, l->path))
        return NULL;
    t->rule_missing = rule_is_missing, t->loaded = true;
    if (!t->rule_missing && (!same_rule(t, eg_safetensors_metadata(file, "rule"), l->path) ||
                             !eg__opt_read(t->opt, NULL, file, l->path)))
        return NULL;
    const int64_t steps = t->now.steps;
    t->now = s->now;
    t->now.steps = steps, t->now.clipped = eg_opt_report_of(t->opt).norm_clipped;
    t->batches->cursor = s->cursor, t->waited = s->waited;
    t->now.stopped = t->o.early_stop && t->waited >= t->o.early_stop;
    eg_set_draws(l->cx, s->draws);
    return t;
}

/* Prepends the path of the file to the recorded error, which is about a number in the file. */
static void blame_file(eg_ctx *cx, const char *path)
{
    char message[900];
    const eg_code code = eg_error_code(cx);
    if (!eg_error(cx) || code == EG_ERROR_MEMORY || code == EG_ERROR_FILE) return;
    snprintf(message, sizeof message, "%s", eg_error(cx));
    eg_clear(cx);
    eg_fail_as(cx, EG_ERROR_FILE, "%s: %s", path, message);
}

/* All numbers are read and checked before data, model and optimiser are made. */
eg_trainer *eg_trainer_load_with(const eg_trainer_load_args *given)
{
    eg_trainer_load_args o = { .size = sizeof o };
    eg_options(&o, sizeof o, given);
    if (!o.cx || eg_error(o.cx) || eg_refuse_capture(o.cx, "trainer_load")) return NULL;
    if (!o.path) return eg_fail_as(o.cx, EG_ERROR_MISUSE, "trainer_load: the path is NULL"), NULL;
    eg_safetensors *file = eg_safetensors_open(o.cx, o.path);
    if (!file) return NULL;
    saved s = { 0 };
    const uint64_t seed = eg_seed_of(o.cx), draws = eg_draws(o.cx);
    const char *format = eg_safetensors_metadata(file, "format");
    if (!format || strncmp(format, "eingrad trainer", 15))
        eg_fail_as(o.cx, EG_ERROR_FILE, "%s: not a model that eingrad trained", o.path);
    else if (strcmp(format, "eingrad trainer 2"))
        eg_fail_as(o.cx, EG_ERROR_FILE,
                   "%s: the file has a model of another version, in the format \"%s\"", o.path,
                   format);
    if (!eg_error(o.cx)) keys_known(o.cx, file, o.path);
    for (int k = 0; k < FIELDS && !eg_error(o.cx); k++)
        field_read(&fields[k], &s, eg_safetensors_metadata(file, fields[k].key), o.cx, o.path);
    eg_trainer_args options = { .size = sizeof options };
    eg_opt_rule missing = { 0 };
    const bool good = !eg_error(o.cx) && dtype_and_counts(o.cx, &s, o.path) &&
                      restore_options(&o, file, &s, &options, &missing);
    options.data = good ? data_of(&o, file, &s) : NULL;
    eg_trainer *t = options.data ? restore(&o, file, &s, &options, missing.update != NULL) : NULL;
    if (!o.network) blame_file(o.cx, o.path);
    eg_safetensors_close(file);
    if (!t) eg_seed(o.cx, seed), eg_set_draws(o.cx, draws);
    return t;
}
