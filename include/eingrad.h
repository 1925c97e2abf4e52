/* eingrad: tensors in index notation, gradients of any order, attention.
 * One header for users. Two are not included: <eingrad/check.h>, which needs the Check library, and
 * <eingrad/dlpack.h>. */
#ifndef EINGRAD_H
#define EINGRAD_H
#include <eingrad/core.h>       /* contexts, tensors, views, reading and writing          */
#include <eingrad/ops.h>        /* einsum and every other operation                        */
#include <eingrad/attention.h>  /* attention and its masks                            */
#include <eingrad/blocks.h>     /* gradients of sums over examples, block by block         */
#include <eingrad/grad.h>       /* gradients, their check, and how an operation is written */
#include <eingrad/notation.h>   /* strings of axes and predicates as data               */
#include <eingrad/einsum.h>     /* plans of einsums, and explanations of their cost          */
#include <eingrad/nn.h>         /* parameters and modules                                  */
#include <eingrad/mha.h>        /* multi-head attention, its cache, rotary positions      */
#include <eingrad/model.h>      /* transformer blocks, encoder, decoder, both             */
#include <eingrad/pretrained.h> /* GPT-2, Llama, Gemma, BERT … from their files          */
#include <eingrad/train.h>      /* optimisers, schedules, tasks, the training loop         */
#include <eingrad/network.h>    /* batches by number, custom networks for a trainer          */
#include <eingrad/ranks.h>      /* processes that compute together, and sums over them      */
#include <eingrad/copies.h>     /* several computations of one shape as one                   */
#include <eingrad/decode.h>     /* greedy, drawn and beam-searched sequences               */
#include <eingrad/heads.h>      /* measures of attention heads and their similarity        */
#include <eingrad/io.h>         /* .npy, safetensors, pictures                             */
#endif
