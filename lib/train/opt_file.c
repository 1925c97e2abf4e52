/* opt_file.c: reads and writes parameters and an optimiser's state. */
#include "opt.h"
#include <eingrad/io.h>
#include <eingrad/network.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The state of a divided optimiser is gathered from all ranks; rank 0 has it until it is
 * written. */
int eg__opt_write(eg_opt *op, const char *who, const char *path, const char *const *metadata,
                  bool good)
{
    eg_ctx *cx = op->cx;
    eg_ranks *ranks = eg__opt_group(op);
    const bool failed = eg_error(cx), writes = eg_ranks_rank(ranks) == 0;
    if (writes && !path) eg_fail_as(cx, EG_ERROR_MISUSE, "%s: the path is NULL", who);
    const int count = eg_params_count(op->o.params), all = count + op->states;
    const eg_mark m = eg_push(cx);
    eg_owner *owner = eg_owner_open(cx);
    const char **names = owner ? eg_owner_alloc(owner, (size_t)all * sizeof *names) : NULL;
    eg_tensor **xs = names ? eg_owner_alloc(owner, (size_t)all * sizeof *xs) : NULL;
    good = good && xs && (path || !writes);
    bool bad = ranks ? eg_ranks_barrier(ranks) : !good;
    for (int k = 0; k < all && !bad; k++) {
        const eg_named *one = k < count ? eg_params_at(op->o.params, k) : &op->state[k - count];
        names[k] = one->name;
        xs[k] = k < count ? one->x : eg_opt_gather_state(op, k - count);
        bad = !xs[k];
    }
    if (!bad && writes) bad = eg_safetensors_save(cx, path, all, names, xs, metadata);
    eg_pop(cx, m);
    if (bad && !failed) eg_name_memory_error(cx, who);
    return bad ? -1 : 0;
}

static bool state_fits(const eg_named *one, const eg_tensor *x)
{
    bool same = eg_ok(x) && eg_type(x) == eg_type(one->x) && eg_rank(x) == eg_rank(one->x);
    for (int k = 0; same && k < eg_rank(x); k++) same = eg_dim(x, k) == eg_dim(one->x, k);
    return same;
}

/* True for a moment that is a sum or mean of squares: v of Adam, RMSprop and Adagrad, Adam's
 * vmax. */
static bool state_of_squares(const eg_opt *op, const eg_named *one)
{
    if (!op->kind->squares) return false;
    return !strncmp(one->name, "opt.v.", 6) || !strncmp(one->name, "opt.vmax.", 9);
}

/* True if a tensor of the state has values that can occur; else records an error. The first of
 * opt.counts is the number of steps, at most 2^53, which is also written to *steps; no other count,
 * and none of opt.skipped, is negative or larger than it; the learning rate is one that
 * eg_opt_set_lr accepts; moments are finite, and those of squares not negative. */
static bool state_sound(const eg_opt *op, const eg_named *one, eg_tensor *x, const char *path,
                        int64_t *steps)
{
    eg_ctx *cx = op->cx;
    const eg_mark m = eg_push(cx);
    if (one->x == op->counts || one->x == op->skipped) {
        const int64_t *count = eg_i64(eg_contiguous(x));
        if (count && one->x == op->counts) *steps = count[COUNT_STEPS];
        for (int64_t k = 0; count && k < eg_size(x); k++) {
            const int64_t most = one->x == op->counts && k == COUNT_STEPS ? STEP_MOST : *steps;
            if (count[k] < 0 || count[k] > most)
                eg_fail_as(cx, EG_ERROR_FILE,
                           "%s: tensor \"%s\" has a count of %lld, not within 0 and %lld", path,
                           one->name, (long long)count[k], (long long)most);
        }
    } else if (one->x == op->lr) {
        if (!(eg_item(x) >= 0 && isfinite(eg_item(x))))
            eg_fail_as(cx, EG_ERROR_FILE,
                       "%s: tensor \"%s\" is %g, but a learning rate is not negative or infinite",
                       path, one->name, eg_item(x));
    } else if (eg_first_nonfinite(x))
        eg_fail_as(cx, EG_ERROR_FILE, "%s: tensor \"%s\" has a NaN or an infinity", path,
                   one->name);
    else if (state_of_squares(op, one) && eg_size(x) && eg_item(eg_min(NULL, x)) < 0)
        eg_fail_as(cx, EG_ERROR_FILE,
                   "%s: tensor \"%s\" contains squares, but has a negative element, %g", path,
                   one->name, eg_item(eg_min(NULL, x)));
    eg_pop(cx, m);
    return !eg_error(cx);
}

/* Returns the file's tensor for an entry of the state; NULL if an older file has none. */
static eg_tensor *state_at(const eg_safetensors *file, const eg_named *one)
{
    const int at = eg_safetensors_find(file, one->name);
    return at < 0 ? NULL : eg_safetensors_at(file, at);
}
/* Older files do not have it, since no step left out a parameter then. */
static bool state_may_lack(const eg_named *one) { return !strcmp(one->name, "opt.skipped"); }

/* "f32 of rank 1 and 4 numbers" */
static const char *numbers_text(const eg_tensor *x, char *text, size_t size)
{
    snprintf(text, size, "%s of rank %d and %lld number%s", eg_type_name(eg_type(x)), eg_rank(x),
             (long long)eg_size(x), eg_size(x) == 1 ? "" : "s");
    return text;
}
/* True if each tensor of the file that is named as state belongs to this optimiser. Else records an
 * error that names the first that does not: the run of another optimiser would continue without its
 * state. The optimiser's names are looked up in the file, whose names are
 * sorted. */
static bool state_is_own(const eg_opt *op, const eg_safetensors *file, const char *path)
{
    const int count = eg_safetensors_count(file);
    const eg_mark m = eg_push(op->cx);
    bool *own = eg_scope_alloc(op->cx, (size_t)count + 1), good = own;
    for (int i = 0; good && i < op->states + op->count; i++) {
        const int at = eg_safetensors_find(file, i < op->states ? op->state[i].name
                                                                : op->name[i - op->states]);
        if (at >= 0) own[at] = true;
    }
    for (int k = 0; good && k < count; k++) {
        const char *name = eg_safetensors_name(file, k);
        good = own[k] || strncmp(name, "opt.", 4) != 0;
        if (!good)
            eg_fail_as(op->cx, EG_ERROR_FILE,
                       "%s: tensor \"%s\" is not part of the state of %s with these options", path,
                       name, op->kind->name);
    }
    eg_pop(op->cx, m);
    return good;
}

/* True if the file has all parameters, in their sizes; else records an error. */
static bool params_fit(const eg_params *p, const eg_safetensors *file, const char *path)
{
    const eg_named *one;
    for (int k = 0; (one = eg_params_at(p, k)); k++)
        if (!eg_ok(eg_safetensors_need(file, path, one->name, one->name, eg_rank(one->x),
                                       eg_dims(one->x))))
            return false;
    return true;
}
/* True if dtype, shape and values of every entry are those of a state of this optimiser; else
 * records an error. */
static bool opt_file_fits(const eg_opt *op, const eg_safetensors *file, const char *path)
{
    const eg_named *one;
    int64_t steps = 0;
    if (!state_is_own(op, file, path)) return false;
    for (int k = 0; (one = eg_opt_state(op, k)); k++) {
        eg_tensor *x = state_at(file, one);
        if (!x && state_may_lack(one)) continue;
        bool real = eg_type(one->x) == eg_params_type(op->o.params);
        if (real && !eg_ok(eg_safetensors_need(file, path, one->name, one->name, eg_rank(one->x),
                                               eg_dims(one->x))))
            return false;
        if (!x || !state_fits(one, x)) {
            char is[80] = "missing", must[80];
            if (x) numbers_text(x, is, sizeof is);
            eg_fail_as(op->cx, EG_ERROR_FILE, "%s: tensor \"%s\" is %s; it must be %s", path,
                       one->name, is, numbers_text(one->x, must, sizeof must));
            return false;
        }
        if (!state_sound(op, one, x, path, &steps)) return false;
    }
    return true;
}

/* Lists the file's tensors of the state, and zeros for one that an older file lacks; NULL after an
 * error. */
static eg_tensor **state_in_file(const eg_opt *op, const eg_safetensors *file, eg_owner *owner)
{
    eg_tensor **values = owner ? eg_owner_alloc(owner, (size_t)op->states * sizeof *values) : NULL;
    for (int k = 0; values && k < op->states; k++) {
        values[k] = state_at(file, &op->state[k]);
        if (!values[k]) values[k] = eg_zeros_like(op->state[k].x);
    }
    return values && !eg_error(op->cx) ? values : NULL;
}
bool eg__opt_read(eg_opt *op, eg_params *p, const eg_safetensors *file, const char *path)
{
    if ((p && !params_fit(p, file, path)) || !opt_file_fits(op, file, path)) return false;
    const eg_mark m = eg_push(op->cx);
    const bool was = eg_nograd(op->cx, true);
    eg_tensor **values = state_in_file(op, file, eg_owner_open(op->cx));
    const bool good = values && (!p || !eg_params_read(p, file, path));
    /* cannot fail: dtypes and sizes have been compared, and the file is other memory */
    for (int k = 0; good && k < op->states; k++) eg_assign(op->state[k].x, values[k]);
    eg_nograd(op->cx, was);
    eg_pop(op->cx, m);
    return good && !eg_error(op->cx);
}

/* True, after an error, if the parameters have copies, each of which is saved in a separate
 * file. */
static bool opt_has_copies(eg_opt *op, const char *who)
{
    if (op->each)
        eg_fail_as(op->cx, EG_ERROR_UNSUPPORTED,
                   "%s: the parameters have copies; eg_opt_of_copy gives the optimiser of one",
                   who);
    return op->each != NULL;
}
int eg_opt_save(eg_opt *op, const char *path)
{
    char seed[24], shared[24], draws[24];
    if (!eg__opt_there("opt_save", op) || (eg_error(op->cx) && !eg__opt_group(op)) ||
        opt_has_copies(op, "opt_save") || eg_refuse_capture(op->cx, "opt_save"))
        return -1;
    snprintf(shared, sizeof shared, "%llu", (unsigned long long)eg_seed_of(op->cx));
    snprintf(seed, sizeof seed, "%llu",
             (unsigned long long)(op->of_copy ? op->seed : eg_seed_of(op->cx)));
    snprintf(draws, sizeof draws, "%llu", (unsigned long long)eg_draws(op->cx));
    return eg__opt_write(op, "opt_save", path,
                         (const char *const[]){ "format", "eingrad run 1", "seed", seed, "draws",
                                                draws, op->of_copy ? "context seed" : NULL, shared,
                                                NULL },
                         true);
}

/* Reads a decimal number of 64 bits. False if the text is NULL or something else. */
static bool read_number(const char *text, uint64_t *number)
{
    char *end = NULL;
    errno = 0;
    *number = text && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    return end && !*end && !errno;
}

/* True if a file of a copy, which has the copy's seed, can be continued by op. A copy's seed is
 * that of its list, so another one would draw other numbers than the saved run. */
static bool copy_seed_fits(const eg_opt *op, const eg_safetensors *file, const char *path)
{
    uint64_t seed = 0;
    if (!read_number(eg_safetensors_metadata(file, "seed"), &seed) || seed == op->seed) return true;
    eg_fail_as(op->cx, EG_ERROR_MISUSE,
               "%s: the seed of the saved copy is %llu, but that of this copy is %llu; .seeds of "
               "eg_params_open sets it",
               path, (unsigned long long)seed, (unsigned long long)op->seed);
    return false;
}

/* All parameters and the complete state are compared with the file before any value changes. */
int64_t eg_opt_resume(eg_opt *op, const char *path)
{
    if (!eg__opt_there("opt_resume", op) || eg_error(op->cx) || opt_has_copies(op, "opt_resume") ||
        eg_refuse_capture(op->cx, "opt_resume"))
        return -1;
    eg_ctx *cx = op->cx;
    if (eg__opt_group(op))
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "opt_resume: the optimiser is divided among ranks; resume it before "
                          "eg_opt_shard"),
               -1;
    if (!path) return eg_fail_as(cx, EG_ERROR_MISUSE, "opt_resume: the path is NULL"), -1;
    if (access(path, F_OK) && errno == ENOENT) return 0;
    eg_safetensors *file = eg_safetensors_open(cx, path);
    if (!file) return -1;
    const char *format = eg_safetensors_metadata(file, "format"),
               *shared = op->of_copy ? eg_safetensors_metadata(file, "context seed") : NULL,
               *seeded = shared ? shared : eg_safetensors_metadata(file, "seed");
    uint64_t drawn, seed = 0;
    if (!format || strcmp(format, "eingrad run 1") ||
        !read_number(eg_safetensors_metadata(file, "draws"), &drawn) ||
        (seeded && !read_number(seeded, &seed)))
        eg_fail_as(cx, EG_ERROR_FILE, "%s: not a run that eg_opt_save wrote", path);
    const bool good = !eg_error(cx) && (!shared || copy_seed_fits(op, file, path)) &&
                      eg__opt_read(op, op->o.params, file, path);
    if (!good) eg_fail_in(cx, "opt_resume");
    eg_safetensors_close(file);
    if (good && seeded) eg_seed(cx, seed);
    if (good) eg_set_draws(cx, drawn);
    return good ? eg_opt_report_of(op).steps : -1;
}
