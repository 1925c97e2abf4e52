/* recipe.c: options of a built-in model besides its sizes (attention, norm, feed-forward), and the
 * names of the optimisers. This file has their names and defaults, refuses invalid ones, and writes
 * and reads the text that a checkpoint stores: a line "name value" for each option that differs
 * from its default. */
#include "trainer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- names ------------------------------------------------------------------------------------ */
static const struct {
    const char *name;
    bool post, rms;
} norms[] = { { "pre", false, false }, { "post", true, false }, { "rms", false, true } };
static const struct {
    const char *name;
    eg_activation *activation;
    bool gated;
} ffns[] = { { "gelu", eg_gelu, false },
             { "relu", eg_relu, false },
             { "swiglu", eg_silu, true },
             { "geglu", eg_gelu, true } };
static const struct {
    const char *name;
    eg_opt *(*make)(const eg_opt_args *);
    bool momentum; /* has the option momentum */
} optimisers[] = { { "adam", eg_adam_with, false },
                   { "adamw", eg_adamw_with, false },
                   { "sgd", eg_sgd_with, true },
                   { "rmsprop", eg_rmsprop_with, true },
                   { "adagrad", eg_adagrad_with, false } };
enum {
    NORMS = sizeof norms / sizeof *norms,
    FFNS = sizeof ffns / sizeof *ffns,
    OPTIMISERS = sizeof optimisers / sizeof *optimisers
};
static const char *norm_name(int k) { return k < NORMS ? norms[k].name : NULL; }
static const char *ffn_name(int k) { return k < FFNS ? ffns[k].name : NULL; }
static const char *optimiser_name(int k) { return k < OPTIMISERS ? optimisers[k].name : NULL; }

/* Returns the index of a name, 0 for NULL; −1 after an error. */
static int recipe_named(eg_ctx *cx, const char *what, const char *(*name)(int), const char *given)
{
    char all[96] = "";
    for (int k = 0; name(k); k++) {
        if (!given || !strcmp(name(k), given)) return k;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", k ? ", " : "", name(k));
    }
    eg_fail_as(cx, EG_ERROR_MISUSE, "trainer: %s \"%.40s\" is none of %s", what, given, all);
    return -1;
}

/* -- the options of an attention -------------------------------------------------------------- */
typedef struct recipe {
    eg_mha_args mha;
    bool linear; /* mha.linear points to this struct: */
    eg_linear_attention_args line;
} recipe;
typedef enum recipe_kind { COUNT, NUMBER, FLAG, STRING, KIND, NO_COUNT, NO_POINTER } recipe_kind;
#define OF(member)   offsetof(recipe, mha.member)
#define LINE(member) offsetof(recipe, line.member)
/* clang-format off */
static const struct recipe_row {
    const char *name;
    size_t at;
    recipe_kind kind; /* NO_…: a checkpoint cannot store it, or the trainer stores it */
} rows[] = {
    { "kv_heads",       OF(kv_heads),       COUNT },  { "d_k",          OF(d_k),          COUNT },
    { "d_v",            OF(d_v),            COUNT },  { "where",        OF(where),        STRING },
    { "score",          OF(score),          STRING }, { "no_softmax",   OF(no_softmax),   FLAG },
    { "scale",          OF(scale),          NUMBER }, { "qk_norm",      OF(qk_norm),      KIND },
    { "qk_eps",         OF(qk_eps),         NUMBER }, { "temperature",  OF(temperature),  NUMBER },
    { "rotary",         OF(rotary),         NUMBER },
    { "rotary_factor",  OF(rotary_factor),  NUMBER }, { "rotary_width", OF(rotary_width), COUNT },
    { "interleaved",    OF(interleaved),    FLAG },   { "bias_kv",      OF(bias_kv),      FLAG },
    { "zero_attn",      OF(zero_attn),      FLAG },   { "sink",         OF(sink),         FLAG },
    { "alibi",          OF(alibi),          FLAG },   { "form",         OF(form),         KIND },
    { "no_bias",        OF(no_bias),        FLAG },   { "no_q_bias",    OF(no_q_bias),    FLAG },
    { "no_k_bias",      OF(no_k_bias),      FLAG },   { "no_v_bias",    OF(no_v_bias),    FLAG },
    { "no_o_bias",      OF(no_o_bias),      FLAG },   { "init",         OF(init),         NUMBER },
    { "attention.dropout", OF(dropout),     NUMBER },
    { "linear",         offsetof(recipe, linear), FLAG },
    { "linear.phi",     LINE(phi),          STRING }, { "linear.chunk", LINE(chunk),      COUNT },
    { "linear.no_norm", LINE(no_norm),      FLAG },
    { "d_model", OF(d_model), NO_COUNT }, { "heads", OF(heads), NO_COUNT },
    { "qdim", OF(qdim), NO_COUNT }, { "kdim", OF(kdim), NO_COUNT }, { "vdim", OF(vdim), NO_COUNT },
    { "d_out", OF(d_out), NO_COUNT }, { "d_k_each", OF(d_k_each), NO_POINTER },
    { "d_v_each", OF(d_v_each), NO_POINTER }, { "layout", OF(layout), NO_POINTER },
    { "with", OF(with[0].name), NO_POINTER },
    { "rotary_frequencies", OF(rotary_frequencies), NO_POINTER },
    { "score_fn", OF(score_fn), NO_POINTER }, { "user", OF(user), NO_POINTER },
    { "core", OF(core), NO_POINTER },
    { "W_q", OF(W_q), NO_POINTER }, { "W_k", OF(W_k), NO_POINTER },
    { "W_v", OF(W_v), NO_POINTER }, { "W_o", OF(W_o), NO_POINTER }, { "b_q", OF(b_q), NO_POINTER },
    { "b_k", OF(b_k), NO_POINTER }, { "b_v", OF(b_v), NO_POINTER }, { "b_o", OF(b_o), NO_POINTER },
    { "W_qkv", OF(W_qkv), NO_POINTER }, { "b_qkv", OF(b_qkv), NO_POINTER },
    { "linear.decay", LINE(decay.x), NO_POINTER }, { "linear.beta", LINE(beta.x), NO_POINTER },
};
/* clang-format on */
#undef OF
#undef LINE
enum { ROWS = sizeof rows / sizeof *rows };

/* Returns a copy of the options of an attention, with the struct of .linear. */
static recipe recipe_of(const eg_mha_args *given)
{
    recipe r = { .mha = { .size = sizeof r.mha } };
    if (!given) return r;
    eg_options(&r.mha, sizeof r.mha, given);
    const eg_linear_attention_args *l = r.mha.linear;
    if ((r.linear = l != NULL)) {
        r.line = (eg_linear_attention_args){ .size = sizeof r.line };
        eg_options(&r.line, sizeof r.line, l);
    }
    return r;
}

/* Writes the value of an option as text on one line, "" if it is the default. Returns its length,
 * as snprintf does. */
static int recipe_value(const struct recipe_row *row, const recipe *r, char *out, size_t size)
{
    const void *at = (const char *)r + row->at;
    int n = 0;
    if (size) *out = 0;
    switch (row->kind) {
    case COUNT:
        if (*(const int64_t *)at) n = snprintf(out, size, "%lld", (long long)*(const int64_t *)at);
        break;
    case NUMBER:
        if (fabs(*(const double *)at) > 0) n = eg_number_text(out, size, 17, *(const double *)at);
        break;
    case FLAG:
        if (*(const bool *)at) n = snprintf(out, size, "yes");
        break;
    case KIND:
        if (*(const int *)at) n = snprintf(out, size, "%d", *(const int *)at);
        break;
    case STRING:
        if (*(const char *const *)at) n = snprintf(out, size, "%s", *(const char *const *)at);
        for (char *s = out; size && *s; s++) *s = *s == '\n' || *s == '\r' ? ' ' : *s;
        break;
    default: break;
    }
    return n;
}

/* True if the options go with the custom optimiser; else records an error. */
static bool recipe_rule_sound(eg_ctx *cx, const eg_trainer_args *o)
{
    const eg_opt_rule r = eg__rule_whole(o->rule);
    if (!eg__rule_sound(cx, "trainer", &r)) return false;
    if (o->optimiser && strcmp(o->optimiser, r.name))
        eg_fail_as(cx, EG_ERROR_MISUSE, "trainer: .optimiser is \"%.40s\", and .rule \"%s\"",
                   o->optimiser, r.name);
    else if (o->momentum > 0)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "trainer: momentum belongs to the optimisers sgd and rmsprop, not to %s",
                   r.name);
    return !eg_error(cx);
}
bool eg__recipe_sound(eg_ctx *cx, const eg_trainer_args *o)
{
    const recipe r = recipe_of(o->attention);
    for (int k = 0; k < ROWS; k++) {
        const void *at = (const char *)&r + rows[k].at;
        if ((rows[k].kind == NO_COUNT && *(const int64_t *)at) ||
            (rows[k].kind == NO_POINTER && *(void *const *)at))
            eg_fail_as(
                cx, EG_ERROR_MISUSE,
                "trainer: .attention has .%s, which a checkpoint cannot store or the trainer "
                "sets itself; a custom network (.network) may have it",
                rows[k].name);
    }
    recipe_named(cx, "norm", norm_name, o->norm);
    recipe_named(cx, "ffn", ffn_name, o->ffn);
    if (o->rule) return recipe_rule_sound(cx, o) && eg__opt_groups_sound(cx, o->groups);
    const int k = recipe_named(cx, "optimiser", optimiser_name, o->optimiser);
    if (k >= 0 && o->momentum > 0 && !optimisers[k].momentum)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "trainer: momentum belongs to the optimisers sgd and rmsprop, not to %s",
                   optimisers[k].name);
    return eg__opt_groups_sound(cx, o->groups) && !eg_error(cx);
}

/* -- copies ----------------------------------------------------------------------------------- */
static const char *recipe_text(eg_owner *owner, const char *s)
{
    char *copy = s ? eg_owner_alloc(owner, strlen(s) + 1) : NULL;
    return copy ? strcpy(copy, s) : NULL;
}

/* Returns a copy of the options in memory of the owner; NULL without memory. */
static const eg_mha_args *recipe_keep(eg_owner *owner, const recipe *r)
{
    recipe *own = eg_owner_alloc(owner, sizeof *own);
    if (!own) return NULL;
    *own = *r;
    for (int k = 0; k < ROWS; k++)
        if (rows[k].kind == STRING) {
            const char **at = (const char **)(void *)((char *)own + rows[k].at);
            if (*at && !(*at = recipe_text(owner, *at))) return NULL;
        }
    own->mha.linear = own->linear ? &own->line : NULL;
    return &own->mha;
}

bool eg__recipe_copy(eg_owner *owner, eg_ctx *cx, eg_trainer_args *o)
{
    o->norm = norm_name(recipe_named(cx, "norm", norm_name, o->norm));
    o->ffn = ffn_name(recipe_named(cx, "ffn", ffn_name, o->ffn));
    if (o->rule && !(o->rule = eg__rule_copy(owner, o->rule))) return false;
    o->optimiser =
        o->rule ? o->rule->name
                : optimiser_name(recipe_named(cx, "optimiser", optimiser_name, o->optimiser));
    if (o->groups && !(o->groups = eg__opt_groups_copy(owner, o->groups))) return false;
    const recipe r = recipe_of(o->attention);
    return !o->attention || (o->attention = recipe_keep(owner, &r));
}

/* -- applying the options ---------------------------------------------------------------------- */
void eg__recipe_block(eg_ctx *cx, const eg_trainer_args *o, eg_transformer_args *to)
{
    const int norm = recipe_named(cx, "norm", norm_name, o->norm),
              ffn = recipe_named(cx, "ffn", ffn_name, o->ffn);
    if (norm < 0 || ffn < 0) return;
    to->post_norm = norms[norm].post, to->rms = norms[norm].rms;
    to->activation = ffns[ffn].activation, to->gated = ffns[ffn].gated;
    to->mha = o->attention;
    const recipe r = recipe_of(o->attention);
    to->no_positions = r.mha.rotary > 0 || r.mha.alibi;
}

eg_opt *eg__recipe_optimiser(eg_params *p, const eg_trainer_args *o)
{
    const int k =
        o->rule ? -1
                : recipe_named(eg_params_context(p), "optimiser", optimiser_name, o->optimiser);
    if (k < 0 && !o->rule) return NULL;
    return (o->rule ? eg_opt_custom_with
                    : optimisers[k].make)(&(eg_opt_args){ .size = sizeof(eg_opt_args),
                                                          .params = p,
                                                          .lr = o->lr,
                                                          .clip_norm = o->clip_norm,
                                                          .weight_decay = o->weight_decay,
                                                          .momentum = o->momentum,
                                                          .groups = o->groups,
                                                          .rule = o->rule,
                                                          .schedule = o->schedule });
}

/* -- text ------------------------------------------------------------------------------------- */
int eg__recipe_print(const eg_trainer_args *o, char *out, size_t size)
{
    const recipe r = recipe_of(o->attention);
    size_t n = 0;
    const char *const names[][2] = { { "norm", o->norm && strcmp(o->norm, "pre") ? o->norm : NULL },
                                     { "ffn", o->ffn && strcmp(o->ffn, "gelu") ? o->ffn : NULL } };
    for (int k = 0; k < ROWS; k++) {
        const int value = recipe_value(&rows[k], &r, NULL, 0);
        if (value <= 0) continue;
        n += (size_t)snprintf(n < size ? out + n : NULL, n < size ? size - n : 0, "%s%s ",
                              n ? "\n" : "", rows[k].name);
        recipe_value(&rows[k], &r, n < size ? out + n : NULL, n < size ? size - n : 0);
        n += (size_t)value;
    }
    for (int k = 0; k < 2; k++)
        if (names[k][1])
            n += (size_t)snprintf(n < size ? out + n : NULL, n < size ? size - n : 0, "%s%s %s",
                                  n ? "\n" : "", names[k][0], names[k][1]);
    return (int)n;
}

/* Sets one option from its line. False after an error. */
static bool recipe_line(eg_ctx *cx, eg_owner *owner, recipe *r, eg_trainer_args *o,
                        const char *name, const char *value, const char *path)
{
    int k = 0;
    char *end = NULL;
    if (!strcmp(name, "norm")) return (o->norm = recipe_text(owner, value)) != NULL;
    if (!strcmp(name, "ffn")) return (o->ffn = recipe_text(owner, value)) != NULL;
    while (k < ROWS && (strcmp(rows[k].name, name) || rows[k].kind >= NO_COUNT)) k++;
    void *at = k < ROWS
    ? (char *)r + rows[k].at : NULL;
    const long long whole = strtoll(value, &end, 10);
    bool good = at != NULL;
    if (good && rows[k].kind == COUNT) *(int64_t *)at = whole, good = !*end && end != value;
    if (good && rows[k].kind == NUMBER)
        *(double *)at = eg_number_read(value, &end), good = !*end && end != value;
    if (good && rows[k].kind == KIND)
        *(int *)at = (int)whole, good = !*end && end != value && whole >= 0 && whole < 8;
    if (good && rows[k].kind == FLAG) *(bool *)at = true, good = !strcmp(value, "yes");
    if (good && rows[k].kind == STRING)
        return (*(const char **)at = recipe_text(owner, value)) != NULL;
    if (!good)
        eg_fail_as(cx, EG_ERROR_FILE,
                   "%s: the metadata's configuration has \"%.40s %.40s\", which "
                   "is no option of a model",
                   path, name, value);
    return good;
}

bool eg__recipe_read(eg_ctx *cx, eg_owner *owner, const char *text, eg_trainer_args *o,
                     const char *path)
{
    recipe r = recipe_of(NULL);
    char *copy = text ? eg_owner_alloc(owner, strlen(text) + 1) : NULL;
    if (!text || !*text) return true;
    if (!copy) return false;
    strcpy(copy, text);
    for (char *line = copy, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        char *blank = strchr(line, ' ');
        if (blank) *blank++ = 0;
        if (!recipe_line(cx, owner, &r, o, line, blank ? blank : "", path)) return false;
    }
    return (o->attention = recipe_keep(owner, &r)) != NULL;
}
