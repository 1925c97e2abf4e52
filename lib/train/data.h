/* data.h: what the files of lib/train know of each other beyond the public headers */
#ifndef EG_TRAIN_DATA_H
#define EG_TRAIN_DATA_H
#include <eingrad/train.h>

uint64_t eg__train_mix(uint64_t);                                   /* a hash of 64 bits                          */
int  eg__data_longest(const eg_data *, bool output);               /* symbols of the longest input or output     */
bool eg__data_asks(const eg_data *);                                /* no SEP after the input                     */
const eg_task *eg__data_task(const eg_data *);                     /* NULL of pairs                              */
eg_ctx *eg__data_context(const eg_data *);
uint64_t eg__data_hash(const eg_data *, const eg_example *);        /* of the input's text                        */
int64_t  eg__data_uneven(const eg_data *);                          /* number of the first pair of two lengths, −1: none */
#endif
