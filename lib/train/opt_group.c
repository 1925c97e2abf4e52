/* opt_group.c: which parameters of its list an optimiser has, and the options of groups of them,
 * also as a text. */
#include "opt.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A list made by eg_params_under has the parameters below its own name. */
static bool group_listed(const eg_params *p, const eg_named *one)
{
    const char *prefix = eg_params_prefix(p);
    return !strncmp(one->name, prefix, strlen(prefix));
}

/* True if the name matches the pattern: '*' stands for any text, '?' for one byte. */
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

/* True, after an error, if a pattern of group g that is a name, without '*' and '?', is not that of
 * a parameter. */
static bool group_name_unknown(const char *who, const eg_opt_args *o, int g)
{
    const char *names = o->groups[g].names;
    for (const char *at = names, *end; *(at += strspn(at, " ")); at = end) {
        end = at + strcspn(at, " ");
        const eg_named *one;
        bool some = memchr(at, '*', (size_t)(end - at)) || memchr(at, '?', (size_t)(end - at));
        for (int k = 0; !some && (one = eg_params_at(o->params, k)); k++)
            some = group_listed(o->params, one) && group_matches(at, end, one->name);
        if (!some)
            return eg_fail_as(eg_params_context(o->params), EG_ERROR_MISUSE,
                              "%s: there is no parameter \"%.*s\", a name of group %d, \"%s\"", who,
                              (int)(end - at), at, g + 1, names),
                   true;
    }
    return false;
}
/* Returns the group of a parameter, the first one that names it; NULL: none. */
static const eg_opt_group *group_naming(const eg_opt_group *groups, const char *name)
{
    while (groups && groups->names && !group_has(groups, name)) groups++;
    return groups && groups->names ? groups : NULL;
}
/* True, after an error, if no parameter is in group g, since all that it names are in groups before
 * it. */
static bool group_shadowed(const char *who, const eg_opt_args *o, int g)
{
    const eg_named *one;
    for (int k = 0; (one = eg_params_at(o->params, k)); k++)
        if (group_listed(o->params, one) && group_naming(o->groups, one->name) == &o->groups[g])
            return false;
    return eg_fail_as(eg_params_context(o->params), EG_ERROR_MISUSE,
                      "%s: every parameter of group %d, \"%s\", belongs to a group before it", who,
                      g + 1, o->groups[g].names),
           true;
}
/* True, after an error, if a group has a wrong option, no parameter, or the name of none. */
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
        if (group_name_unknown(who, o, g) || group_shadowed(who, o, g)) return true;
    }
    return false;
}

int eg__opt_members(const char *who, const eg_opt_args *o, int *own, eg__opt_options *of)
{
    const eg_named *one;
    int n = 0;
    if (group_refused(who, o)) return -1;
    for (int k = 0; (one = eg_params_at(o->params, k)); k++) {
        if (!group_listed(o->params, one)) continue;
        const eg_opt_group *group = group_naming(o->groups, one->name);
        if (!group) {
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

/* -- groups as a text: "PATTERNS: frozen; PATTERNS: lr_factor 10, weight_decay 0" -------------- */
const char *eg__shortest(double x, char out[EG__NUMBER_TEXT])
{
    for (int digits = 6; digits <= 17; digits++) {
        eg_number_text(out, EG__NUMBER_TEXT, digits, x);
        const double read = eg_number_read(out, NULL);
        if (!(read < x) && !(read > x)) break;
    }
    return out;
}
/* Writes an option that is given; EG_OFF is 0. Returns the number of bytes. */
static int group_number(const char *name, double x, const char *between, char *out, size_t size)
{
    char text[EG__NUMBER_TEXT];
    if (x == 0) return 0;
    return snprintf(out, size, "%s%s %s", between, name, eg__shortest(eg_option(x, 0), text));
}
size_t eg_opt_groups_write(const eg_opt_group *groups, char *out, size_t size)
{
    size_t n = 0;
    if (!out) size = 0;
    if (size) *out = 0;
#define END  (n < size ? out + n : NULL)
#define LEFT (n < size ? size - n : 0)
    for (int g = 0; groups && groups[g].names; g++) {
        const eg_opt_group *group = &groups[g];
        n += (size_t)snprintf(END, LEFT, "%s%s:%s", g ? "; " : "", group->names,
                              group->frozen ? " frozen" : "");
        if (group->frozen) continue;
        n += (size_t)group_number("lr_factor", group->lr_factor, " ", END, LEFT);
        n += (size_t)group_number("weight_decay", group->weight_decay,
                                  group->lr_factor == 0 ? " " : ", ", END, LEFT);
    }
#undef END
#undef LEFT
    return n;
}

/* Reads one option, "frozen" or "lr_factor 10", of n bytes. False if it is none. */
static bool group_option(eg_opt_group *group, const char *text, size_t n)
{
    static const struct {
        const char *name;
        size_t at;
    } numbers[] = { { "lr_factor", offsetof(eg_opt_group, lr_factor) },
                    { "weight_decay", offsetof(eg_opt_group, weight_decay) } };
    char word[64], *end;
    if (n >= sizeof word) return false;
    snprintf(word, sizeof word, "%.*s", (int)n, text);
    char *value = word + strcspn(word, " ");
    if (*value) *value++ = 0;
    for (char *c = word; *c; c++) *c = *c == '-' ? '_' : *c;
    if (!strcmp(word, "frozen") && !*value) return group->frozen = true;
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        double *to = (double *)(void *)((char *)group + numbers[k].at);
        if (strcmp(word, numbers[k].name)) continue;
        const double x = eg_number_read(value, &end);
        if (end == value || *end || !(x >= 0 && x < INFINITY) || *to != 0) return false;
        *to = x > 0 ? x : EG_OFF;
        return true;
    }
    return false;
}
/* Reads a group from n bytes, "PATTERNS: frozen". False after an error. */
static bool group_read(eg_ctx *cx, eg_owner *owner, eg_opt_group *group, const char *text, size_t n)
{
    size_t colon = 0;
    while (colon < n && text[colon] != ':') colon++;
    bool good = colon && colon < n && strspn(text, " ") < colon;
    for (size_t at = colon + 1, next; good && at < n; at = next + 1) {
        next = at;
        while (next < n && text[next] != ',') next++;
        size_t from = at, to = next;
        while (from < to && text[from] == ' ') from++;
        while (to > from && text[to - 1] == ' ') to--;
        good = group_option(group, text + from, to - from);
    }
    if (!good || (group->frozen && (group->lr_factor != 0 || group->weight_decay != 0))) {
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "opt_groups_read: \"%.*s\" is no group, such as \"*.b *.gain: lr_factor 2, "
                   "weight_decay 0\" or \"tokens.*: frozen\"",
                   n < 200 ? (int)n : 200, text);
        return false;
    }
    char *names = eg_owner_alloc(owner, colon + 1);
    if (names) memcpy(names, text, colon);
    group->names = names;
    return names;
}
const eg_opt_group *eg_opt_groups_read(eg_ctx *cx, const char *text)
{
    size_t count = 1;
    if (!text) eg_fail_as(cx, EG_ERROR_MISUSE, "opt_groups_read: the text is NULL");
    const bool can = cx && !eg_error(cx) && !eg_refuse_capture(cx, "opt_groups_read");
    eg_owner *owner = can ? eg_owner_open(cx) : NULL;
    if (!owner) return NULL;
    for (const char *s = text; *s; s++) count += *s == ';';
    eg_opt_group *groups = eg_owner_alloc(owner, (count + 1) * sizeof *groups);
    for (size_t k = 0; groups && k < count; k++) {
        text += strspn(text, " ");
        const size_t n = strcspn(text, ";");
        if (!group_read(cx, owner, &groups[k], text, n)) return NULL;
        text += n + (text[n] == ';');
    }
    return groups;
}

/* The names are part of the text, in which these bytes have a meaning. */
bool eg__opt_groups_sound(eg_ctx *cx, const eg_opt_group *groups)
{
    for (int g = 0; groups && groups[g].names; g++) {
        const char *names = groups[g].names;
        if (names[strcspn(names, ":;\r\n")] || !names[strspn(names, " ")])
            eg_fail_as(cx, EG_ERROR_MISUSE, "trainer: the names of group %d, \"%s\", %s", g + 1,
                       names,
                       names[strspn(names, " ")] ? "have a ':', ';' or line end, which a "
                                                   "checkpoint cannot store"
                                                 : "are empty");
    }
    return !eg_error(cx);
}
const eg_opt_group *eg__opt_groups_copy(eg_owner *owner, const eg_opt_group *groups)
{
    int count = 0;
    while (groups[count].names) count++;
    eg_opt_group *copy = eg_owner_alloc(owner, (size_t)(count + 1) * sizeof *copy);
    for (int g = 0; copy && g < count; g++) {
        const char *given = groups[g].names + strspn(groups[g].names, " "); /* as it is read back */
        char *names = eg_owner_alloc(owner, strlen(given) + 1);
        if (!names) return NULL;
        copy[g] = groups[g];
        copy[g].names = strcpy(names, given);
    }
    return copy;
}
