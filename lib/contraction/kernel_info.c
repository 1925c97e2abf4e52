/* kernel_info.c: a description, for people, of what einsum computes with. */
#include "contraction/contraction.h"

const char *eg_kernel_info(void) { return eg__kernel_why(); }
