/* info.c: what einsum computes with, for people. */
#include "contraction/contraction.h"

const char *eg_kernel_info(void) { return eg__kernel_why(); }
