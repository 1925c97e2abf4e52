/* kernel_info.c: a readable description of the kernels that einsum uses. */
#include "contraction/contraction.h"

const char *eg_kernel_info(void) { return eg__kernel_why(); }
