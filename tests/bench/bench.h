/* bench.h: what the parts of `make bench` share.
 *
 *   bench.c    options, rounds, the table and the JSON lines
 *   probe.c    this machine's multiply-add peak and memory bandwidths
 *   peers.c    the peers, each in a process that is stopped between its turns
 *   gemm.c     BLIS and OpenBLAS, looped over batches
 *   einsum.c   the cases of contraction
 *   attention.c  attention alone
 *   score.c    scores and masks of published attentions, compared with plain causal attention
 *   module.c   attention modules, an encoder layer
 *   capture.c  captured steps, compared with the same steps as they are called; a separate table
 *   model.c    small operations, rows, gradients, training
 *   peers.py   NumPy and PyTorch
 *   mkl.c      preloaded into PyTorch's process: makes MKL as fast as on Intel's processors
 *   report.py  JSON lines → the tables of docs/benchmarks.md
 *
 * The contenders of a case are measured in turn, round after round, and in each round the
 * multiply-add peak is measured as well, so that all are measured under the same conditions. The
 * time of a case is the best of all rounds; its spread is worst/best − 1. A
 * ratio to a peer, and the share of the peak, is the median over the rounds of the quotient within
 * a round. No time makes the program fail. */
#ifndef EG_BENCH_H
#define EG_BENCH_H
#include <eingrad.h>
#include <stdio.h>

enum { LEVELS = 7, CONTENDERS = 8, ROUNDS = 99 };
double bench_now(void); /* in seconds */

/* -- probe.c: FLOP/s and bytes/s of `threads` threads at once --------------------------------- */
typedef struct probe {
    double peak[2];           /* of f32, f64 */
    double footprint[LEVELS]; /* bytes touched */
    /* bytes/s; a copy of n bytes moves 2n bytes */
    double copy[LEVELS], read[LEVELS], write[LEVELS];
} probe;
/* keeps the best of its former values and of those that it measures now */
void probe_run(probe *, int threads);
/* the f32 or f64 peak now, from a loop of about a millisecond */
double probe_peak(int threads, bool f64);
/* Returns the seconds in which memory transfers that much. */
double probe_moved(const probe *, double read, double written);

/* -- a contender: n calls of whatever it measures; false stops it ----------------------------- */
typedef struct contender {
    const char *name;
    /* NULL: in the process of a peer, which knows the case by its name */
    bool (*run)(void *user, int64_t n);
    void *user;
    const char *peer; /* name of the peer; NULL: the contender's name */
} contender;
double bench_turn(const contender *, double seconds, int64_t *calls);
typedef struct result { /* 0: it did not run */
    double best, worst, turn[ROUNDS];
} result;

typedef struct report {
    const char *group, *name, *note; /* note: NULL, or a word on how the peers computed the case */
    eg_dtype dtype;
    double flop, read, written; /* 0: not counted */
} report;
/* Measures, prints and stores a case. The first contender is eingrad. */
void bench_case(const report *, int count, const contender *);
bool bench_wanted(const char *group, const char *name, eg_dtype);

/* -- the present configuration ---------------------------------------------------------------- */
extern eg_ctx *bench_cx;
extern int bench_threads;
extern bool bench_quick, bench_slow_mkl;

/* -- peers.c: "BLIS", "OpenBLAS", "NumPy", "PyTorch" ------------------------------------------ */
void bench_peers_open(int threads);
void bench_peers_close(void);
/* Sends a line and reads the answer; false: the peer is missing. */
bool bench_ask(const char *peer, const char *line, char *reply, size_t room);
const char *bench_version(const char *peer); /* NULL: the peer is missing */
/* Returns the library to preload into a Python peer so that MKL is as fast as on an Intel
 * processor; "" on an Intel processor, with --slow-mkl, and if the library is missing. */
const char *bench_mkl(void);

/* -- whole programs --------------------------------------------------------------------------- */
void bench_wall(const char *group, const char *name, double own, double torch,
                const char *note); /* seconds of whole programs */
/* Returns the wall time of a program in seconds and its last line; < 0: it failed. */
double bench_shell(char *const *argv, char *last, size_t room);
const char *bench_python(void);
const char *bench_folder(void); /* the folder of peers.py */
const char *bench_self(void);

/* -- gemm.c: C[z] = A[z] B[z] ----------------------------------------------------------------- */
typedef struct gemm {
    eg_dtype dtype;
    int64_t batch, m, n, k;
    int64_t am, ak, bk, bn; /* strides in elements; c is batch·m·n row-major */
    const int64_t *az, *bz; /* offsets of each batch */
    const void *a, *b;
    void *c;
} gemm;
bool gemm_blis(void *gemm, int64_t n);
bool gemm_openblas(void *gemm, int64_t n);
bool gemm_openblas_takes(const gemm *);
const char *gemm_blis_open(int threads); /* returns its version */
/* Opens $OPENBLAS, libopenblas.so.0, or path; NULL: there is none. */
const char *gemm_openblas_open(int threads, const char *path);

void einsum_cases(eg_dtype);
/* The program as which bench runs itself: BLIS, OpenBLAS. */
int einsum_serve(const char *peer, int threads, const char *library);
void attention_cases(void);
void score_cases(void);
void module_cases(void);
void capture_cases(void);
void model_cases(void);
/* The program as which bench runs itself: trains `reverse` to 99 %. */
int model_to_goal(int threads, int seed);
#endif
