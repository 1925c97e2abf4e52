/* opt_file.c: parameters and an optimiser's state in a file. */
#include "opt.h"
#include <eingrad/io.h>
#include <eingrad/network.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of a divided optimiser comes from all ranks, and rank 0 holds it whole until it is
 * written. */
int eg__opt_write(eg_opt *op, const char *path, const char *const *metadata, bool good)
{
    eg_ctx *cx = op->cx;
    const int count = op->count, all = count + op->states;
    const eg_mark m = eg_push(cx);
    eg_owner *owner = eg_owner_open(cx);
    const char **names = owner ? eg_owner_alloc(owner, (size_t)all * sizeof *names) : NULL;
    eg_tensor **xs = names ? eg_owner_alloc(owner, (size_t)all * sizeof *xs) : NULL;
    good = good && xs;
    bool bad = op->ranks ? eg_ranks_meet(op->ranks) : !good;
    for (int k = 0; k < all && !bad; k++) {
        names[k] = k < count ? op->name[k] : op->state[k - count].name;
        xs[k] = k < count ? op->x[k] : eg_opt_whole(op, k - count);
        bad = !xs[k];
    }
    if (!bad && eg_ranks_rank(op->ranks) == 0)
        bad = eg_safetensors_save(cx, path, all, names, xs, metadata);
    eg_pop(cx, m);
    return bad ? -1 : 0;
}

static bool state_fits(const eg_named *one, const eg_tensor *x)
{
    bool same = eg_ok(x) && eg_type(x) == eg_type(one->x) && eg_rank(x) == eg_rank(one->x);
    for (int k = 0; same && k < eg_rank(x); k++) same = eg_dim(x, k) == eg_dim(one->x, k);
    return same;
}

/* True if a tensor of the state has values that can occur; else records an error. The first count,
 * the number of steps, is at most 2^53, and no count is negative or greater than it; the learning
 * rate is one that eg_opt_set_lr takes; moments are finite. */
static bool state_sound(eg_ctx *cx, const eg_named *one, eg_tensor *x, const char *path)
{
    const int64_t *count = eg_type(x) == EG_I64 ? eg_i64(x) : NULL;
    for (int64_t k = 0; count && k < eg_size(x); k++)
        if (count[k] < 0 || count[k] > (k ? count[0] : STEP_MOST))
            eg_fail_as(cx, EG_ERROR_FILE,
                       "%s: tensor \"%s\" has a count of %lld, not within 0 and %lld", path,
                       one->name, (long long)count[k], (long long)(k ? count[0] : STEP_MOST));
    if (eg_rank(x) == 0 && !(eg_item(x) >= 0 && isfinite(eg_item(x))))
        eg_fail_as(cx, EG_ERROR_FILE,
                   "%s: tensor \"%s\" is %g, but a learning rate is not negative or infinite", path,
                   one->name, eg_item(x));
    else if (!eg_error(cx) && eg_first_nonfinite(x))
        eg_fail_as(cx, EG_ERROR_FILE, "%s: tensor \"%s\" has a NaN or an infinity", path,
                   one->name);
    return !eg_error(cx);
}

/* The tensor of a file for the k-th of the state; NULL if older files have none. */
static eg_tensor *state_at(const eg_safetensors *file, const eg_named *one)
{
    const int at = eg_safetensors_find(file, one->name);
    return at < 0 ? NULL : eg_safetensors_at(file, at);
}
/* Older files have none: no step skipped a parameter. */
static bool state_may_lack(const eg_named *one) { return !strcmp(one->name, "opt.skipped"); }

bool eg__opt_fits(const eg_opt *op, const eg_safetensors *file, const char *path)
{
    const eg_named *one;
    for (int k = 0; (one = eg_opt_state(op, k)); k++) {
        eg_tensor *x = state_at(file, one);
        if (!x && state_may_lack(one)) continue;
        bool real = eg_type(one->x) == eg_params_type(op->o.params);
        if (real && !eg_ok(eg_safetensors_need(file, path, one->name, one->name, eg_rank(one->x),
                                               eg_dims(one->x))))
            return false;
        if (!x || !state_fits(one, x)) {
            eg_fail_as(op->cx, EG_ERROR_FILE,
                       "%s: tensor \"%s\" is %s; it must be %s of rank %d and %lld numbers", path,
                       one->name, x ? "another" : "missing", eg_type_name(eg_type(one->x)),
                       eg_rank(one->x), (long long)eg_size(one->x));
            return false;
        }
        if (!state_sound(op->cx, one, x, path)) return false;
    }
    return true;
}

bool eg__opt_read(eg_opt *op, const eg_safetensors *file, const char *path)
{
    const eg_named *one;
    if (!eg__opt_fits(op, file, path)) return false;
    for (int k = 0; (one = eg_opt_state(op, k)); k++) {
        eg_tensor *x = state_at(file, one);
        if (x && eg_assign(one->x, x)) return false;
    }
    return true;
}

/* True, after recording an error, if the parameters have copies: each copy is saved in a file of
 * its own. */
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
    char draws[24];
    if (!op || (eg_error(op->cx) && !op->ranks) || opt_has_copies(op, "opt_save")) return -1;
    snprintf(draws, sizeof draws, "%llu", (unsigned long long)eg_draws(op->cx));
    return eg__opt_write(
        op, path, (const char *const[]){ "format", "eingrad run 1", "draws", draws, NULL }, true);
}

/* Parameters are compared with the file as a whole before a value changes, and so is the state. */
int64_t eg_opt_resume(eg_opt *op, const char *path)
{
    if (!op || eg_error(op->cx) || opt_has_copies(op, "opt_resume")) return -1;
    eg_ctx *cx = op->cx;
    if (op->ranks)
        return eg_fail_as(cx, EG_ERROR_MISUSE,
                          "opt_resume: the optimiser is divided among ranks; resume it before "
                          "eg_opt_divide"),
               -1;
    FILE *there = path ? fopen(path, "rbe") : NULL;
    if (path && !there && errno == ENOENT) return 0;
    if (there) fclose(there);
    eg_safetensors *file = eg_safetensors_open(cx, path);
    if (!file) return -1;
    const char *format = eg_safetensors_metadata(file, "format"),
               *draws = eg_safetensors_metadata(file, "draws");
    char *end = NULL;
    errno = 0;
    const uint64_t drawn = draws && *draws >= '0' && *draws <= '9' ? strtoull(draws, &end, 10) : 0;
    if (!format || strcmp(format, "eingrad run 1") || !end || *end || errno)
        eg_fail_as(cx, EG_ERROR_FILE, "%s: not a run that eg_opt_save wrote", path);
    const bool good = !eg_error(cx) && eg__opt_fits(op, file, path) &&
                      !eg_params_read(op->o.params, file, path) && eg__opt_read(op, file, path);
    eg_safetensors_close(file);
    if (good) eg_set_draws(cx, drawn);
    return good ? eg_opt_now(op).steps : -1;
}
