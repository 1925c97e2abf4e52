/* schedule.c: learning-rate schedules: a table entry for each decay, whose function computes the
 * factor of a step; and the checks of a schedule. */
#include <eingrad/train.h>
#include "opt.h"
#include <math.h>
#include <stdio.h>

static double schedule_clamp(double t) { return t < 0 ? 0 : t < 1 ? t : 1; }
/* Returns the share of the steps between warm-up and end that is done, in [0, 1]. */
static double schedule_share(const eg_schedule *s, double k)
{
    double way = (double)s->steps - (double)s->warmup;
    return way > 0 ? schedule_clamp(k / way) : 0;
}
/* Returns the factor after a share t of the way from 1 to `last`. */
static double factor_at_share(const eg_schedule *s, double t)
{
    return s->last == EG_OFF ? 1 - t : s->last + (1 - s->last) * (1 - t);
}

static double schedule_constant(const eg_schedule *s, double k)
{
    (void)s, (void)k;
    return 1;
}
static double schedule_linear(const eg_schedule *s, double k)
{
    return factor_at_share(s, schedule_share(s, k));
}
static double cosine(const eg_schedule *s, double k)
{
    return factor_at_share(s, (1 - cos(acos(-1) * schedule_share(s, k))) / 2);
}
static double exponential(const eg_schedule *s, double k)
{
    return s->gamma > 0 ? pow(s->gamma, k) : NAN;
}

static double noam(const eg_schedule *s, double k)
{
    double w = (double)s->warmup, step = k + w + 1;
    return w > 0 && s->d_model > 0
               ? fmin(pow(step, -0.5), step * pow(w, -1.5)) / sqrt((double)s->d_model)
               : NAN;
}

static double steps(const eg_schedule *s, double k)
{
    double times = s->step_size > 0 ? floor(k / (double)s->step_size) : 0;
    for (int m = 0; m < EG_MILESTONES && s->milestones[m] > 0; m++)
        times += (double)s->milestones[m] <= k;
    return pow(s->gamma > 0 ? s->gamma : 0.1, times);
}

/* Returns the share of the decay of wsd that is done, in [0, 1]. */
static double wsd_decayed(const eg_schedule *s, double k)
{
    double all = (double)s->steps, length = (double)s->decay_steps;
    length = length > 0 ? length : fmax(1, floor(all / 10));
    return schedule_clamp((k + (double)s->warmup - (all - length)) / length);
}
static double wsd(const eg_schedule *s, double k) { return factor_at_share(s, wsd_decayed(s, k)); }
static double wsd_sqrt(const eg_schedule *s, double k)
{
    return factor_at_share(s, sqrt(wsd_decayed(s, k)));
}

/* the members of a schedule that only some decays read */
enum {
    READS_STEPS = 1,
    READS_LAST = 2,
    READS_DECAY_STEPS = 4,
    READS_GAMMA = 8,
    READS_STEP_SIZE = 16,
    READS_MILESTONES = 32,
    READS_D_MODEL = 64,
    ENDS = READS_STEPS | READS_LAST
};
static const struct decay {
    const char *name;
    double (*factor)(const eg_schedule *, double k); /* k: steps since the warm-up */
    bool own_warmup;                                 /* false: the warm-up is linear */
    int reads;
} decays[] = {
    [EG_CONSTANT] = { "constant", schedule_constant, false, 0 },
    [EG_LINEAR] = { "linear", schedule_linear, false, ENDS },
    [EG_COSINE] = { "cosine", cosine, false, ENDS },
    [EG_NOAM] = { "noam", noam, true, READS_D_MODEL },
    [EG_STEPS] = { "steps", steps, false, READS_GAMMA | READS_STEP_SIZE | READS_MILESTONES },
    [EG_EXPONENTIAL] = { "exponential", exponential, false, READS_GAMMA },
    [EG_WSD] = { "wsd", wsd, false, ENDS | READS_DECAY_STEPS },
    [EG_WSD_SQRT] = { "wsd-sqrt", wsd_sqrt, false, ENDS | READS_DECAY_STEPS },
};
enum { DECAYS = sizeof decays / sizeof *decays };

const char *eg_schedule_name(eg_decay decay)
{
    return (int)decay < 0 || (int)decay >= DECAYS ? NULL : decays[decay].name;
}

double eg_schedule_factor(const eg_schedule *s, int64_t step)
{
    if (!s) return 1;
    if ((int)s->decay < 0 || (int)s->decay >= DECAYS) return NAN;
    if (step < s->warmup && !decays[s->decay].own_warmup)
        return ((double)step + 1) / (double)s->warmup;
    return decays[s->decay].factor(s, (double)step - (double)s->warmup);
}

/* Returns the name of the first given member whose bit is above `after`, and sets *reads to that
 * bit; NULL if there is none. */
static const char *schedule_given(const eg_schedule *s, int after, int *reads)
{
    const struct {
        const char *name;
        int reads;
        bool given;
    } members[] = {
        { "steps", READS_STEPS, s->steps != 0 },
        { "last", READS_LAST, s->last < 0 || s->last > 0 || isnan(s->last) },
        { "decay_steps", READS_DECAY_STEPS, s->decay_steps != 0 },
        { "gamma", READS_GAMMA, s->gamma < 0 || s->gamma > 0 || isnan(s->gamma) },
        { "step_size", READS_STEP_SIZE, s->step_size != 0 },
        { "milestones", READS_MILESTONES, s->milestones[0] != 0 },
        { "d_model", READS_D_MODEL, s->d_model != 0 },
    };
    for (size_t k = 0; k < sizeof members / sizeof *members; k++)
        if (members[k].given && members[k].reads > after) {
            *reads = members[k].reads;
            return members[k].name;
        }
    return NULL;
}
bool eg__schedule_is_default(const eg_schedule *s)
{
    int reads;
    return !s->decay && !s->warmup && !schedule_given(s, 0, &reads);
}
const char *eg__opt_list(int n, const char *const *names, char out[EG__LIST])
{
    size_t used = 0;
    *out = 0;
    for (int k = 0; k < n && used < EG__LIST; k++)
        used += (size_t)snprintf(out + used, EG__LIST - used, "%s%s",
                                 k == 0      ? ""
                                 : k + 1 < n ? ", "
                                             : " and ",
                                 names[k]);
    return out;
}
/* True if a member is given that belongs to other decays; then also records an error. `steps` may
 * always be given: it is the length of the run. */
static bool schedule_foreign(eg_ctx *cx, const char *who, const eg_schedule *s)
{
    const char *name;
    int reads = READS_STEPS;
    while ((name = schedule_given(s, reads, &reads)) && (decays[s->decay].reads & reads)) {
    }
    if (!name) return false;
    const char *names[DECAYS];
    char list[EG__LIST];
    int n = 0;
    for (int k = 0; k < DECAYS; k++)
        if (decays[k].reads & reads) names[n++] = decays[k].name;
    eg_fail_as(cx, EG_ERROR_MISUSE, "%s: schedule.%s belongs to the schedule%s %s, not to %s", who,
               name, n == 1 ? "" : "s", eg__opt_list(n, names, list), decays[s->decay].name);
    return true;
}

bool eg__schedule_refused(eg_ctx *cx, const char *who, const eg_schedule *s)
{
    long long w = (long long)s->warmup, all = (long long)s->steps,
              decay = (long long)s->decay_steps;
    const bool steps = s->decay == EG_STEPS, wsd = s->decay == EG_WSD || s->decay == EG_WSD_SQRT;
    int marks = 0;
    while (marks < EG_MILESTONES && s->milestones[marks] > (marks ? s->milestones[marks - 1] : 0))
        marks++;
    bool rising = marks == EG_MILESTONES || s->milestones[marks] == 0;
    if ((int)s->decay < 0 || (int)s->decay >= DECAYS)
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: schedule.decay is none of EG_CONSTANT, EG_LINEAR, EG_COSINE, EG_NOAM, "
                   "EG_STEPS, EG_EXPONENTIAL, EG_WSD, "
                   "EG_WSD_SQRT, but %d",
                   who, (int)s->decay);
    else if (schedule_foreign(cx, who, s))
        return true;
    else if (w < 0 || all < 0 || ((decays[s->decay].reads & READS_STEPS) && all <= w))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: schedule.steps must be more than schedule.warmup; they are %lld and %lld",
                   who, all, w);
    else if (!(s->last >= 0 && s->last < INFINITY))
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: schedule.last must be a number from 0 on, not %g", who,
                   s->last);
    else if (!(s->gamma >= 0 && s->gamma < INFINITY) ||
             (s->decay == EG_EXPONENTIAL && !(s->gamma > 0)))
        eg_fail_as(cx, EG_ERROR_MISUSE, "%s: schedule.gamma must be a number above 0, not %g%s",
                   who, s->gamma, s->decay == EG_EXPONENTIAL ? "; exponential needs it" : "");
    else if (s->decay == EG_NOAM && (w < 1 || s->d_model < 1))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: EG_NOAM needs schedule.warmup and schedule.d_model; they are %lld and %lld",
                   who, w, (long long)s->d_model);
    else if (steps && (s->step_size < 0 || !rising || (s->step_size > 0) == (marks > 0)))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: EG_STEPS needs either schedule.step_size or schedule.milestones that rise; "
                   "step_size is %lld, and %d "
                   "milestone%s",
                   who, (long long)s->step_size, marks, marks == 1 ? " rises" : "s rise");
    else if (wsd && (decay < 0 || decay > all - w))
        eg_fail_as(cx, EG_ERROR_MISUSE,
                   "%s: schedule.decay_steps must be at most the %lld step%s%s, not %lld", who,
                   all - w, all - w == 1 ? "" : "s", w ? " after the warm-up" : " of the schedule",
                   decay);
    return eg_error(cx) != NULL;
}
