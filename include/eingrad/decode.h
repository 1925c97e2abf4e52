/* eingrad/decode.h: decoding with any model that returns logits: greedy, sampling, or beam search.
 *
 *     const eg_decoded *d = eg_decode(cx, next, user, .prompt = tokens, .prompt_length = n,
 *                                     .max_new_tokens = 40, .end = EG_STOP, .beam = 4);
 *
 * The step function `next` gets the sequences so far and returns the logits of what follows
 * each. */
#ifndef EINGRAD_DECODE_H
#define EINGRAD_DECODE_H
#include <eingrad/core.h>
#ifdef __cplusplus
extern "C" {
#endif

/* The sequences so far: rows × length tokens. */
typedef struct eg_prefixes {
    int64_t rows, length;
    const int32_t *tokens; /* each row: the prompt, then what was chosen */
    const int64_t *from;   /* row r is row from[r] of the previous call plus one token, so that a
                            * cache can be reordered; NULL: the first call, every token is new */
} eg_prefixes;
/* Returns logits (rows v), f32 or f64, v the same in each call. A scope is opened around the call
 * and popped when the logits have been read. */
typedef eg_tensor *eg_next(void *user, const eg_prefixes *);

/* p = softmax(logits) over the tokens from `min_token` on, and the end.
 * greedy  the largest logit, the first of equals
 * draws   q ∝ p^(1/temperature), restricted to the top_k largest, and then to the fewest of these
 *         that sum to at least top_p; the token is chosen by u in [0, 1), a hash of (seed,
 *         position), so that the same seed gives the same sequence.  Fan et al. 2018 (top-k),
 *         Holtzman et al. 2020 (top-p)
 * beam    the `beam` prefixes of largest Σ ln p; ended ones are ranked by Σ ln p / n^length_power,
 *         n their tokens with the end; a prefix is dropped once it cannot overtake the ended ones.
 *         With beam ≥ v^max_new_tokens the search is exhaustive.  Wu et al. 2016, §7 */
typedef struct eg_decode_args {
    size_t size;
    eg_ctx *cx;
    eg_next *next;
    void *user;
    const int32_t *prompt;
    int64_t prompt_length;  /* tokens of the prompt: at least 1 */
    int64_t max_new_tokens; /* new tokens at most; needed */
    int32_t end;            /* the token that ends a sequence: none; EG_OFF: token 0 */
    int32_t min_token;      /* smaller tokens are chosen only as the end: 0 */
    double temperature;  /* of the draws, > 0. 0: greedy, or 1 if top_k or top_p is given; EG_OFF:
                          * greedy */
    int64_t top_k;       /* 0: all */
    double top_p;        /* in (0, 1]: 1 */
    uint64_t seed;       /* of the draws: 0 */
    int64_t beam;        /* 1; from 2 to 65536: beam search, which draws nothing */
    double length_power; /* 1; EG_OFF: 0, ranks by the sum itself */
} eg_decode_args;
typedef struct eg_sequence {
    int64_t count;
    const int32_t *tokens; /* new ones, without the end */
    bool ended;            /* by the end token, not by `max_new_tokens` */
    double log_p;          /* Σ ln p, the end's included */
    double score;          /* log_p / n^length_power */
} eg_sequence;
typedef struct eg_decoded {
    int64_t count;               /* 1; for beam search up to `beam` */
    const eg_sequence *sequence; /* the best first */
} eg_decoded;
/* Lives in the open scope; NULL after an error. Refused: an empty prompt, a `max_new_tokens` below
 * 1, a temperature that is negative or NaN, top_p outside (0, 1], beams with draws, logits of
 * another shape, with NaN or with nothing above −inf. */
EG_API const eg_decoded *eg_decode_with(const eg_decode_args *);

#ifndef __cplusplus
#define eg_decode(...) \
    eg_decode_with(&(eg_decode_args){ .size = sizeof(eg_decode_args), __VA_ARGS__ })
#endif

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_DECODE_
#include <eingrad/cxx.h>
#endif
#endif
