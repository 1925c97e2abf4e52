/* mkl.c: a library that is preloaded into PyTorch's process on processors that Intel did not make.
 * MKL asks mkl_serv_intel_cpu_true() who made the processor and takes slower kernels unless the
 * answer is yes: on an EPYC of family 26 its squares of 1024 take 18.2 ms then, and 9.0 ms with
 * this answer. A ratio to PyTorch would else depend on the maker of the processor. */
__attribute__((visibility("default"))) int mkl_serv_intel_cpu_true(void);
int mkl_serv_intel_cpu_true(void) { return 1; }
