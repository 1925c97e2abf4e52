/* mkl.c: a library that is preloaded into PyTorch's process on processors that are not from Intel.
 * MKL asks mkl_serv_intel_cpu_true() about the vendor and uses slower kernels unless the answer is
 * yes: on an EPYC of family 26 its squares of 1024 then take 18.2 ms, and 9.0 ms with this answer.
 * A ratio to PyTorch would otherwise depend on the vendor of the processor. */
__attribute__((visibility("default"))) int mkl_serv_intel_cpu_true(void);
int mkl_serv_intel_cpu_true(void) { return 1; }
