/* eingrad: tensors in index notation, gradients of any order, attention.
 * One header for users. Two are not included: <eingrad/check.h>, which needs the Check library, and
 * <eingrad/dlpack.h>. */
#ifndef EINGRAD_H
#define EINGRAD_H
#include <eingrad/core.h>             /* contexts, scopes, tensors, their elements               */
#include <eingrad/views.h>            /* views, copies, conversions                              */
#include <eingrad/ops.h>              /* einsum and every other operation                        */
#include <eingrad/loss.h>             /* losses                                                  */
#include <eingrad/scan.h>             /* cumulative sums, recurrences, causal convolutions       */
#include <eingrad/attention.h>        /* attention and its masks                                 */
#include <eingrad/linear_attention.h> /* attention without a softmax, by a state of fixed size   */
#include <eingrad/grad.h>             /* gradients, and how an operation is written              */
#include <eingrad/gradcheck.h>        /* the check of gradients                                  */
#include <eingrad/capture.h>          /* a step that is recorded and run again                   */
#include <eingrad/blocks.h>           /* gradients of sums over examples, block by block         */
#include <eingrad/notation.h>         /* strings of axes and predicates as data                  */
#include <eingrad/einsum.h>           /* plans of einsums, and explanations of their cost        */
#include <eingrad/nn.h>               /* parameters and modules                                  */
#include <eingrad/mha.h>              /* multi-head attention, its cache, rotary positions       */
#include <eingrad/model.h>            /* transformer blocks, encoder, decoder, both              */
#include <eingrad/pretrained.h>       /* GPT-2, Llama, Gemma, BERT from their files          */
#include <eingrad/optimiser.h>        /* optimisers and schedules                                */
#include <eingrad/data.h>             /* sequence tasks, and examples by number                  */
#include <eingrad/train.h>            /* the trainer                                             */
#include <eingrad/network.h>          /* batches by number, custom networks for a trainer        */
#include <eingrad/ranks.h>            /* processes that compute together, and sums over them     */
#include <eingrad/copies.h>           /* several computations of one shape as one                */
#include <eingrad/decode.h>           /* greedy, drawn and beam-searched sequences               */
#include <eingrad/heads.h>            /* measures of attention heads and their similarity        */
#include <eingrad/io.h>               /* .npy, safetensors, pictures                             */
#endif
