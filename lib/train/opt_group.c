/* opt_group.c: which parameters of its list an optimiser has, and the options of groups of them. */
#include "opt.h"
#include <math.h>
#include <string.h>

/* A list made by eg_params_under has the parameters below its own name. */
static bool group_listed(const eg_params *p, const eg_named *one)
{
    const char *prefix = eg_params_prefix(p);
    return !strncmp(one->name, prefix, strlen(prefix));
}

/* True if the name is what the pattern says: '*' stands for any text, '?' for one byte. */
static bool group_matches(const char *pattern, const char *end, const char *name)
{
    const char *star = NULL, *from = NULL; /* the last '*', and the end of what it stands for */
    while (*name) {
        if (pattern < end && *pattern == '*') {
            star = pattern++, from = name;
        } else if (pattern < end && (*pattern == '?' || *pattern == *name)) {
            pattern++, name++;
        } else if (star) {
            pattern = star + 1, name = ++from;
        } else {
            return false;
        }
    }
    while (pattern < end && *pattern == '*') pattern++;
    return pattern == end;
}
/* True if one of the patterns, which blanks separate, matches. */
static bool group_has(const eg_opt_group *group, const char *name)
{
    for (const char *at = group->names, *end; *(at += strspn(at, " ")); at = end) {
        end = at + strcspn(at, " ");
        if (group_matches(at, end, name)) return true;
    }
    return false;
}

/* True, after an error, if a group has a wrong option or no parameter. */
static bool group_refused(const char *who, const eg_opt_args *o)
{
    eg_ctx *cx = eg_params_context(o->params);
    for (int g = 0; o->groups && o->groups[g].names; g++) {
        const eg_opt_group *group = &o->groups[g];
        const double lr = eg_option(group->lr_factor, 1), decay = eg_option(group->weight_decay, 0);
        const char *wrong = !(lr >= 0 && lr < INFINITY)         ? "lr_factor"
                            : !(decay >= 0 && decay < INFINITY) ? "weight_decay"
                                                                : NULL;
        if (wrong)
            return eg_fail_as(cx, EG_ERROR_MISUSE,
                              "%s: %s of group %d, \"%s\", must not be negative or infinite, "
                              "not %g",
                              who, wrong, g + 1, group->names, *wrong == 'l' ? lr : decay),
                   true;
        const eg_named *one;
        bool some = false;
        for (int k = 0; !some && (one = eg_params_at(o->params, k)); k++)
            some = group_listed(o->params, one) && group_has(group, one->name);
        if (!some)
            return eg_fail_as(cx, EG_ERROR_MISUSE,
                              "%s: no parameter has a name of group %d, \"%s\"; the first "
                              "parameter is \"%s\"",
                              who, g + 1, group->names, eg_params_at(o->params, 0)->name),
                   true;
    }
    return false;
}

int eg__opt_members(const char *who, const eg_opt_args *o, int *own, eg__opt_options *of)
{
    const eg_named *one;
    int n = 0;
    if (group_refused(who, o)) return -1;
    for (int k = 0; (one = eg_params_at(o->params, k)); k++) {
        const eg_opt_group *group = o->groups;
        if (!group_listed(o->params, one)) continue;
        while (group && group->names && !group_has(group, one->name)) group++;
        if (!group || !group->names) {
            of[n] = (eg__opt_options){ 1, o->weight_decay };
        } else if (group->frozen) {
            continue;
        } else {
            of[n] = (eg__opt_options){ eg_option(group->lr_factor, 1),
                                       eg_option(group->weight_decay, o->weight_decay) };
        }
        own[n++] = k;
    }
    if (n) return n;
    eg_fail_as(eg_params_context(o->params), EG_ERROR_MISUSE, "%s: %s", who,
               !eg_params_count(o->params) ? "the list of parameters is empty"
               : o->groups                 ? "every parameter is frozen"
                                           : "the list has no parameters below its name");
    return -1;
}
