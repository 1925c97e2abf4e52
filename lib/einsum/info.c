/* info.c: what einsum computes with, for people. */
#include "einsum/einsum.h"

const char *eg_kernel_info(void) { return eg__kernel_why(); }
