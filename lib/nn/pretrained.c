/* pretrained.c: reads a pretrained model: the options from its config.json (families.c), then its
 * tensors. */
#include "config.h"
#include "nn.h"
#include <stdio.h>

/* Returns the number of a token, or of the first of several; −1 if there is none. */
static int64_t token_of(const eg__config *c, const char *key)
{
    const eg_json *x = eg__config_find(c->all, key);
    x = x && x->kind == EG_JSON_ARRAY ? x->first : x;
    if (!x) return -1;
    if (x->kind == EG_JSON_NUMBER && x->number >= 0 && x->number < 1 << 30)
        return (int64_t)x->number;
    eg__config_refuse(c, EG_ERROR_FILE, x, key, "not the number of a token");
    return -1;
}

/* Returns the model's family; NULL after an error that lists the families. */
static const eg__model_family *pretrained_family(const eg__config *c)
{
    const char *type = eg__config_word(c, c->all, "model_type", "");
    char known[384] = "";
    for (int k = 0, n = 0; eg__model_family_at(k); k++) {
        const eg__model_family *f = eg__model_family_at(k);
        if (!strcmp(f->family, type)) return f;
        if (n < (int)sizeof known)
            n += snprintf(known + n, sizeof known - (size_t)n, "%s%s", k ? ", " : "", f->family);
    }
    eg_fail_as(c->cx, EG_ERROR_UNSUPPORTED, "%s: the model_type \"%.40s\" is none of %s", c->path,
               type, known);
    return NULL;
}

/* -- reading ---------------------------------------------------------------------------------- */
/* "folder/name", kept by the owner; NULL after an error */
static char *in_folder(eg_owner *owner, const char *folder, const char *name)
{
    const size_t n = strlen(folder), size = n + strlen(name) + 2;
    char *path = eg_owner_alloc(owner, size);
    if (path) snprintf(path, size, "%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", name);
    return path;
}

eg_pretrained *eg_pretrained_read(eg_ctx *cx, const char *folder)
{
    if (!cx || eg_error(cx) || eg_refuse_capture(cx, "pretrained")) return NULL;
    if (!folder) return eg_fail_as(cx, EG_ERROR_MISUSE, "pretrained: the folder is NULL"), NULL;
    eg_owner *owner = eg_owner_open(cx);
    eg_pretrained *o = owner ? eg_owner_alloc(owner, sizeof *o) : NULL;
    char *path = o ? in_folder(owner, folder, "config.json") : NULL;
    const eg__config c = { cx, owner, path, path ? eg_json_load(cx, path) : NULL };
    const eg__model_family *f = c.all ? pretrained_family(&c) : NULL;
    if (f) {
        *o = (eg_pretrained){ .family = f->family,
                              .names = eg_aliases(f->style),
                              .begin = token_of(&c, "bos_token_id"),
                              .end = token_of(&c, "eos_token_id") };
        o->model.size = sizeof o->model;
        o->mha.size = o->mha_other.size = sizeof o->mha;
        o->model.mha = &o->mha;
        o->model.vocabulary = eg__config_size(&c, "vocab_size", 0);
        f->options(&c, o);
        eg__model_family_limits(&c, o->family);
    }
    if (f && !eg_error(cx)) return o;
    eg_owner_close(owner);
    return NULL;
}

/* True unless the list has a part of an encoder's predictions whose logits would be x Eᵀ + b,
 * although config.json says that they have a matrix of their own; then records an error. */
static bool predictions_fit(eg_params *p, const eg_pretrained *o, const char *folder)
{
    static const char *const parts[] = { "prediction.dense.W", "prediction.b" };
    if (o->model.tied || !o->model.no_logits || eg_params_find(p, "prediction.W")) return true;
    for (int k = 0; k < 2; k++)
        if (eg_params_find(p, parts[k]))
            return eg_fail_as(eg_params_context(p), EG_ERROR_NOTATION,
                              "%s/config.json: \"tie_word_embeddings\" is false, so that \"%s\" "
                              "needs a parameter \"prediction.W\" (v m) beside it",
                              folder, parts[k]),
                   false;
    return true;
}
/* True unless the sizes of config.json need more elements than the files have, counting only the
 * vectors of tokens and one matrix of each feed-forward part, or two of each attention; then
 * records an error. A model of such sizes could take all memory before its first missing tensor is
 * found. */
static bool sizes_fit(eg_ctx *cx, const eg_safetensors *file, const eg_pretrained *o,
                      const char *folder)
{
    const eg_transformer_args *m = &o->model;
    const double width = m->width ? (double)m->width : 4 * (double)m->d_model,
                 least = ((double)m->vocabulary + (double)m->layers * width) * (double)m->d_model;
    const int64_t d_k = o->mha.d_k || !m->heads ? o->mha.d_k : m->d_model / m->heads;
    const double attentions =
        2 * (double)m->layers * (double)m->heads * (double)d_k * (double)m->d_model;
    double have = 0;
    for (int k = 0; k < eg_safetensors_count(file); k++)
        have += (double)eg_size(eg_safetensors_at(file, k));
    if (least > have)
        eg_fail_as(cx, EG_ERROR_FILE,
                   "%s/config.json: %lld tokens, %lld layers and vectors of %lld need at least "
                   "%.0f elements, but the tensors have %.0f",
                   folder, (long long)m->vocabulary, (long long)m->layers, (long long)m->d_model,
                   least, have);
    else if (attentions > have)
        eg_fail_as(cx, EG_ERROR_FILE,
                   "%s/config.json: %lld layers with %lld heads of %lld and vectors of %lld need "
                   "at least %.0f elements, but the tensors have %.0f",
                   folder, (long long)m->layers, (long long)m->heads, (long long)d_k,
                   (long long)m->d_model, attentions, have);
    return !eg_error(cx);
}
eg_transformer *eg_pretrained_load(eg_params *p, const char *folder)
{
    eg_ctx *cx = eg_params_context(p);
    if (!eg__params_there("pretrained_load", p) || eg_error(cx) ||
        eg_refuse_capture(cx, "pretrained_load"))
        return NULL;
    eg_mark m = eg_push(cx);
    eg_owner *owner = eg_owner_open(cx);
    eg_pretrained *o = owner ? eg_pretrained_read(cx, folder) : NULL;
    char *path = o ? in_folder(owner, folder, "model") : NULL;
    const eg_safetensors *file = path ? eg_safetensors_open(cx, path) : NULL;
    const int before = eg_params_count(p);
    eg_transformer *net = NULL;
    if (file && sizes_fit(cx, file, o, folder)) {
        const bool was = eg__nn_zero_init(p, true);
        o->model.params = p, o->model.name = "";
        net = eg_transformer_new_with(&o->model);
        eg__nn_zero_init(p, was);
    }
    if (net && predictions_fit(p, o, folder)) eg_params_read_as(p, file, path, "", o->names);
    eg_pop(cx, m);
    return eg__nn_made(p, before, net);
}
