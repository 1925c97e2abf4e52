/* bind_call.h: a call of eg_attention, and what its string says; for call.c. */
#ifndef EG_BIND_CALL_H
#define EG_BIND_CALL_H
#include "attention/attention.h"

/* The most terms of a string: query, key, value, one for each mask, and .weights_axes. */
enum { EG_CALL_TERMS = 4 + EG_MASKS };
/* A call: the options, and the string with a term for each mask that is given. */
typedef struct eg_attention_call {
    eg_attention_args o;
    eg_dtype was[EG_GIVEN_MAX]; /* the dtypes of .with before they were cast */
    const char *spec;
    eg_mask_option mask[EG_MASKS];
    int terms;                         /* of the string */
    eg_tensor *x[EG_CALL_TERMS];       /* by term: its operand; NULL for .weights_axes */
    const char *called[EG_CALL_TERMS]; /* by term: its name in messages */
} eg_attention_call;
/* The role of each letter of a bound string. */
typedef struct eg_call_roles {
    const eg_bound *bound;
    uint8_t in[EG_AXES_MAX];     /* by axis: which terms have it, IN_Q | … of bind_call.c */
    int rank, inner;             /* axes of the scores; the last `inner` of them are keys */
    uint16_t score[EG_RANK_MAX]; /* axes of the scores, as axes of `bound` */
    double width; /* product of the sizes of the letters that are summed for a score */
    uint16_t number[EG_AXES_MAX]; /* by axis: its number in the plan */
} eg_call_roles;

/* Binds the string. Returns the plan, and sets x to the operands of the plan and order[] to the
 * order of the weights' axes, as positions in r->score; NULL after an error. */
eg_attention_plan *eg__call_bind(const eg_attention_call *, eg_call_roles *r, eg_tensor **x,
                                 int *order);
/* True if no operand was split, merged or reduced to a diagonal and the result needs no such step,
 * so that the plan applies to the operands of a later call as they are. */
bool eg__call_is_as_given(const eg_attention_call *, const eg_call_roles *,
                          const eg_attention_plan *);
/* Returns y, which has the axes of the plan, with those of the output in the string. */
eg_tensor *eg__call_result(const eg_call_roles *, const eg_attention_plan *, eg_tensor *y);
#endif
