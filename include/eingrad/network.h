/* eingrad/network.h: batches of data by number, their score, and custom networks for a trainer.
 * Lifetimes and errors are as in train.h. */
#ifndef EINGRAD_NETWORK_H
#define EINGRAD_NETWORK_H
#include <eingrad/heads.h>
#include <eingrad/mha.h>
#include <eingrad/train.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- a batch: rows of tokens and the target at each position
 *
 * decoder tokens = input SEP output (without SEP where the input ends with a question); the target
 *            at a position is the next token, from the end of the input on: output STOP.
 *            For a text: tokens = a window of it; the target at a position is the next token
 * .encoder   tokens = input; the target at a position is the output there
 * .source    source = input;  tokens = SEP output;  targets output STOP
 *
 * Shorter rows end in EG_PAD. A target that is EG_PAD does not count. */
typedef struct eg_batch {
    int64_t rows, length; /* tokens, target and keep are rows × length */
    const int32_t *tokens;
    const int32_t *target;
    const bool *keep;       /* false at padding */
    const int64_t *lengths; /* of each row, without padding; NULL while an answer is decoded */
    int64_t source_length;  /* source and source_keep are rows × source_length; 0: no source */
    const int32_t *source;
    const bool *source_keep;
    const int64_t *source_lengths;
    bool padded, source_padded; /* true if some row is shorter and its padding has to be masked. A
                                 * decoder needs no such mask, since padding comes after all
                                 * positions that count; `padded` is then false */
    /* further inputs and outputs that a trainer uses; all NULL in a batch of eg_batches */
    eg_tensor *gain;     /* (attentions h): factors of the heads; NULL: 1 */
    eg_tensor **weights; /* out: one (b h i j) for each attention; NULL: not wanted */
    eg_tensor *memory;   /* what eg_network.memory returned for the source; NULL: see there */
    eg_cache *cache;     /* if the network is .cached: `tokens` follow those in it; or NULL */
    /* out, in training: a scalar that is added to Σ −ln p of this batch, and like it a sum over the
     * examples (times eg_batch_counted if it is a mean over targets): the load of experts, the
     * squared ln Z of a router; NULL: not wanted. It is part of the loss of a step, but not of
     * scores */
    eg_tensor **auxiliary_loss;
    /* the whole batch, of which this one is the rows eg_block_range, in memory that stays valid: a
     * captured block (eg_captured_blocks_open) reads its elements from there in each run; NULL:
     * this batch cannot be captured */
    const struct eg_batch *full_batch;
} eg_batch;
/* The members of a batch as tensors (b l) of i32, made in the given context, which may be that of a
 * block (eg_step_over). */
EG_API eg_tensor *eg_batch_tokens(eg_ctx *, const eg_batch *);
EG_API eg_tensor *eg_batch_target(eg_ctx *, const eg_batch *);
EG_API eg_tensor *eg_batch_source(eg_ctx *, const eg_batch *); /* refused if there is no source */
/* The .keep of eg_mha_run, eg_transformer_run …: {"bj", (b l) bool}; {0}, no mask, if `padded` is
 * not set. */
EG_API eg_masked eg_batch_keep(eg_ctx *, const eg_batch *);
EG_API eg_masked eg_batch_source_keep(eg_ctx *, const eg_batch *);
/* The .lengths and .packed_length of eg_transformer_run …: the lengths (b) of i64, and the number
 * of packed positions: Σ lengths rounded up to a multiple of EG_PACK_ROUND, or rows · length if
 * that is less. NULL and 0 (not packed) if no row is shorter, or while an answer is decoded. */
EG_API eg_tensor *eg_batch_lengths(eg_ctx *, const eg_batch *);
EG_API eg_tensor *eg_batch_source_lengths(eg_ctx *, const eg_batch *);
EG_API int64_t eg_batch_packed_length(const eg_batch *);
EG_API int64_t eg_batch_packed_source_length(const eg_batch *);
/* The number of targets that count. */
EG_API int64_t eg_batch_counted(const eg_batch *);
/* Σ of −ln p over the targets that count, of logits (b l v), with label smoothing ε in [0, 1). The
 * mean is eg_scale(loss, 1.0 / (double)eg_batch_counted(b)). */
EG_API eg_tensor *eg_batch_loss(eg_ctx *, const eg_batch *, eg_tensor *logits, double smoothing);
/* The rows [from, to) of a batch, as a block of eg_step_over has them; rows 0 if out of range. */
EG_API eg_batch eg_batch_part(const eg_batch *, int64_t from, int64_t to);

/* -- batches by number
 * A trainer with the same data, seed and rows uses the same batches. Batch `number` is a pure
 * function of (data, seed, rows, number), so a loop that is resumed at a step continues with the
 * same batches as an uninterrupted one. */
typedef struct eg_batches eg_batches;
typedef struct eg_batches_args {
    size_t size;
    eg_data *data;
    int64_t rows;    /* of a batch: 64; for a text 32 */
    bool encoder;    /* as above; refused: inputs and outputs of different lengths, a text */
    bool source;     /* as above; refused: a text, and .encoder */
    int64_t context; /* for a text: tokens of a window; 64, or less where the held-out part is
                      * shorter */
    uint64_t seed;   /* 0 */
} eg_batches_args;
/* Lives in the open scope. */
EG_API eg_batches *eg_batches_new_with(const eg_batches_args *);
/* The sizes that a network for these data needs: the number of different tokens, and the largest
 * length. */
typedef struct eg_network_sizes {
    int64_t vocabulary;
    int64_t length;        /* of tokens */
    int64_t source_length; /* 0: there is no source */
} eg_network_sizes;
EG_API eg_network_sizes eg_batches_sizes(const eg_batches *);
/* Training batch number 0, 1, …; valid until the next call. Consecutive numbers are fast. For any
 * other number, all examples before that batch may have to be made again; of pairs, those of one
 * round. */
EG_API const eg_batch *eg_batches_at(eg_batches *, int64_t number);
/* Test batch number 0, 1, …, the last of which may have fewer rows; NULL past the end, without an
 * error. Valid until the next call. */
EG_API const eg_batch *eg_batches_test(eg_batches *, int64_t number);
/* Logits (b l v) of a batch, in that context; the network is only read. */
typedef eg_tensor *eg_logits(const void *network, eg_ctx *, const eg_batch *);
/* The score of logits on one batch: how much greedy decoding would get right (an answer is exactly
 * right if and only if each position is right given the right tokens before it). Its loss is the
 * sum of −ln p, not the mean. 0, or −1 after an error, when the score is as it was. */
EG_API int eg_batch_score(const eg_batches *, const eg_batch *, eg_tensor *logits, eg_score *);
/* The score on all test batches; its loss is the mean over tokens. Several threads call logits at
 * the same time, each for a block of up to 8 rows of a batch and in the context of that block; the
 * bits of the result do not depend on the number of threads. Runs under eg_nograd and without
 * dropout, and does not change the random state and eg_train. */
EG_API int eg_batches_score(eg_batches *, eg_logits *, const void *network, eg_score *);

/* -- a custom network: eg_trainer_new(data, .network = &row, .user = &mine)
 * The trainer gives it data, batches in blocks on all threads, evaluations, alarms, checkpoints,
 * resuming with the same bits, and eg_trainer_predict, _generate, _attention_weights, _evaluate and
 * _check. The models "encoder", "decoder" and "seq2seq" are such structs. */
enum { EG_NETWORK_PARTS = 3 };
struct eg_network {
    size_t size;          /* sizeof (eg_network); 0: the same */
    const char *name;     /* "alibi": used in checkpoints and messages; needed */
    bool encoder, source; /* the form of its batches: see eg_batch */
    /* true: logits reads and extends batch->cache (.cache of a module, eg_cache_append or
     * eg_cache_set_state), so that decoding computes each position once. false, or if logits leaves
     * the cache empty: for each token the whole sequence is computed again */
    bool cached;
    /* Adds parameters to the list, and returns the pointer that the other functions get as
     * `network`; NULL is an error. eg_trainer_check calls it again, for its copies of the
     * parameters in f64 and with a dropout of 0. Options are those of the trainer with defaults
     * filled in, .user among them. */
    void *(*make)(eg_params *, const eg_trainer_args *, const eg_network_sizes *);
    /* Needed. Several threads may call it at the same time, each with the context of a block as cx.
     * It may read tensors of the trainer's context (parameters, constants) but not write to them,
     * and makes all other tensors in cx. It applies dropout if eg_training(cx) is true. Evaluations
     * call it under eg_nograd: logits that compute gradients have to turn recording on before the
     * operations that these go through. */
    eg_logits *logits;
    /* With .source, for decoding: encodes the source once for logits. While an answer is decoded,
     * batch->memory has this for each row, and batch->source is NULL. NULL: logits gets the source
     * again for each token. */
    eg_logits *memory;
    /* Names of the network's parts, in the order of batch->weights and batch->gain; each part has
     * `layers` attentions of `heads` heads. With .source a part is "encoder", "decoder" or "cross",
     * which says what its rows and columns are. {0}: the network gives no attention weights, and
     * eg_trainer_attention_weights, _saturation and _heads_off are refused. The last is refused as
     * well for logits that do not depend on batch->gain. */
    const char *part[EG_NETWORK_PARTS];
    /* Writes the options in .user on which results depend as a text, "kv_heads 2, cap 30", and
     * returns its length as snprintf does. A checkpoint stores the text, and is refused for a
     * network whose text differs. NULL: no text. */
    int (*config)(const eg_trainer_args *, char *out, size_t capacity);
    /* true: the operations of logits depend only on the batch's sizes (including
     * eg_batch_packed_length) and on whether .keep, .source_keep and .gain are set, and logits
     * reads elements only through eg_batch_tokens, _source, _keep, _lengths, _source_keep and
     * _source_lengths. Then the blocks of a step are captured (eg_captured_blocks_open). */
    bool captures;
    /* true: logits is called by one thread alone, in steps and evaluations, and the operations in
     * it are divided among threads: for a function that must not run several times at once. */
    bool serial;
};
/* Refused, before the first step: a name of the built-in models; logits that are not (b l v) floats
 * of the parameters' dtype; an auxiliary loss that is not a scalar; a loss that is not finite, with
 * the operation that made it so; a parameter on which the loss does not depend, or only through an
 * operation without a gradient; logits of the first batch that differ when it is computed again
 * (state outside the parameters); a call of eg_seed, and a call of eg_train, eg_eval, eg_nograd,
 * eg_flush or eg_trace that is not undone; what a block must not do (core.h), such as writing to a
 * parameter; logits of an example that depend on other examples of its batch; except with .encoder,
 * logits that depend on later tokens; with .cached, logits that are not the same when the preceding
 * tokens are in the cache. */

#ifndef __cplusplus
#define eg_batches_new(...) eg_batches_new_with(EG_ARGS_(eg_batches_args, __VA_ARGS__))
#endif

#ifdef __cplusplus
} /* extern "C" */
EG_CXX_OF_(eg_batches *, eg_batches_new, eg_data *, data, eg_batches_args)
#endif
#endif
