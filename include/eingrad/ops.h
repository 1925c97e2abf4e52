/* eingrad/ops.h: einsum and every other operation, attention.h included. Their gradients and the
 * check of gradients are in grad.h.
 *
 * Results live in the open scope of their operands' context, and share no memory with the
 * operands unless the comment says "view". Operands are f32, f64 or c128, and others where a
 * comment names them; integers are i32 and i64. Operations that only move elements (views,
 * rearrange, at, roll, concat, stack, pack, unpack, pad, where, tril, triu) take every dtype.
 * Comparisons of c128 compare the real parts. In formulas of gradients g is the cotangent of y, and
 * dx that of x (PyTorch's grad_output and grad_input). Every operation refuses (the context has an
 * error, the result is poison) operands of two contexts, of mixed dtypes, or of shapes that do not
 * fit; the message names the operation, the index, the operand and both sizes. If the operation
 * takes a spec, the message points at the letter. Notation (docs/notation.md): letters or names,
 * groups (h d), brackets [j] for the axes an operation works on, ellipsis. */
#ifndef EINGRAD_OPS_H
#define EINGRAD_OPS_H
#include <eingrad/core.h>
#include <eingrad/views.h>
#ifdef __cplusplus
extern "C" {
#endif

/* -- contraction and moves -------------------------------------------------------------------- */
typedef struct eg_einsum_args {
    size_t size;
    const char *spec;
    int count;                  /* of operands */
    eg_tensor *const *operands; /* count of them */
    bool broadcast;             /* allow a size of 1 under a letter, as NumPy does */
    double alpha; /* the factor of the result, alpha Σ …: 1. An integer if the operands are */
    /* written in place and returned: any view of the result's shape and dtype */
    eg_tensor *out;
    /* the factor of the old value of out, alpha Σ … + beta out: 0. An integer if the operands
     * are */
    double beta;
    /* a tensor that is multiplied by beta (1 if beta is left out) and added to the result. It has
     * the result's dtype, and its shape or one that broadcasts to it. NULL: nothing is added */
    eg_tensor *add;
    /* count − 1 pairs as numpy.einsum_path returns them: positions in the list of remaining
     * operands, to which results are appended; NULL: the order with the fewest multiply-adds that
     * was found */
    const int (*path)[2];
    int steps; /* of path: count − 1 */
    /* the most bytes that an intermediate result, which one step computes and another reads, may
     * have, in the gradient too. 0: no limit, EG_OFF: no intermediate results */
    int64_t limit;
    /* the most bytes of intermediate results that are kept for the gradient while the context
     * records; the others are computed again. 0: all are kept, EG_OFF: none */
    int64_t keep_limit;
} eg_einsum_args;
/* Returns alpha times the sum, over the indices that are not in the output, of the products of the
 * operands. An operand that shares memory with out is read as it was before the call (the result is
 * then copied into out). Writing to out counts as a change of its storage, as by eg_assign.
 * Refused: out while the context records (it would have no gradients; alpha and add have them), an
 * out in which two elements share an address, or of another shape or dtype; beta without out or
 * add; out and add together; an add of another dtype or one that does not broadcast; a path of
 * another length or with a position that does not exist; a limit that is exceeded by every order
 * that was found (the message has both numbers).
 *
 * All operands have the same dtype, except that f16 and bf16 may be mixed with each other and with
 * f32 or f64. The result and the sums are then f32, or f64 if an operand is f64. Numbers of f16 and
 * bf16 are converted to that type while they are read, and no operand is copied whole, except that
 * a recorded call of three or more operands casts several of them to f64 if another is f64. A
 * matrix product is bitwise equal to that of the cast operands. Operands of f16 and bf16 are
 * constants for gradients; the other operands have gradients.
 *
 * All gradients of three or more operands, none of them expanded or empty, take together at most
 * twice the multiply-adds of the forward pass, if its intermediate results are kept. */
EG_API eg_tensor *eg_einsum_with(const eg_einsum_args *);
/* The sum over the letters that are not in the output, in i64 for integers and bool, in f32 for f16
 * and bf16; a spec that only changes the order of axes gives a view if the dtype stays the same */
EG_API eg_tensor *eg_einsum_n(const char *spec, int count, eg_tensor *const *operands);
/* eg_einsum_n with numbers ≥ 0 in place of letters: axis r of xs[k] has the index labels[k][r].
 * out_labels are those of the result's `rank` axes; NULL: the labels that occur once, in ascending
 * order, as without an arrow; rank is then not read. The result has the bits of the string that has
 * a letter for each number. */
EG_API eg_tensor *eg_einsum_labels(int count, eg_tensor *const *xs, const int *const *labels,
                                   int rank, const int *out_labels);
typedef struct eg_affine_args {
    size_t size;
    const char *spec; /* of x and W: "bi,io->bo" */
    eg_tensor *x, *W;
    eg_tensor *b; /* (o), the last letters of y; NULL: none */
    /* f: an operation of one operand, "gelu", "relu", "tanh" …, or an expression of x, "x *
     * sigmoid(1.702 * x)" (docs/expressions.md); NULL: f(z) = z */
    const char *activation;
    eg_tensor *add; /* r, of y's shape; NULL: none */
} eg_affine_args;
/* y = f(einsum(spec, x, W) + b) + r, bitwise equal to the separate operations (integers and bool in
 * i64, as einsum). If f is an operation, y is one node, computed in one pass: bias, f and r are
 * applied while the product is in the cache, and einsum(…) + b is kept if the gradient of f needs
 * it. Refused besides what einsum refuses: operands of several dtypes (x, W and b may be f16 or
 * bf16, as in einsum), a b or r of another shape, an activation that does not exist.
 *
 *     h = eg_affine("...i,io->...o", x, W1, b1, .activation = "gelu");
 *     y = eg_affine("...i,io->...o", h, W2, b2, .add = x);
 */
EG_API eg_tensor *eg_affine_with(const eg_affine_args *);
/* "nij,nik->njk", the letters of a, b and x: returns the x that solves Σ_j a[n,i,j] x[n,j,k] =
 * b[n,i,k]. i is the letter that x lacks, j the one that b lacks. a is a lower triangle, i ≥ j, or
 * with `upper` an upper one; its other elements are not read. In "ij,jk->ik" the matrix of the
 * system is the transpose of a: an a that is stored as a lower triangle needs `upper`. A zero on
 * the diagonal gives infinities or NaN. Refused: a that is not square, not exactly one letter i and
 * one j, a letter that occurs twice in an operand. */
EG_API eg_tensor *eg_solve_triangular(const char *spec, eg_tensor *a, eg_tensor *b, bool upper);
/* the micro-kernel under einsum, and why it was chosen: one line */
EG_API const char *eg_kernel_info(void);
/* f(a, b) after aligning a and b by letters, as "bhij, bj": a missing letter broadcasts */
EG_API eg_tensor *eg_on(const char *spec, eg_tensor *(*f)(eg_tensor *, eg_tensor *), eg_tensor *a,
                        eg_tensor *b);
/* Sets out[k] to a view of xs[k] with the axes of the output, those that xs[k] lacks expanded: "b
 * i, j, b i j" for eg_where. Without -> these are all indices, in the order of the string. out may
 * be xs. Returns 0, or −1 after an error (out is then poison). */
EG_API int eg_align_n(const char *spec, int count, eg_tensor *const *xs, eg_tensor **out);
typedef struct eg_rearrange_args {
    size_t size;
    const char *spec;
    eg_tensor *operand;
    /* sizes of letters */
    int64_t a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z;
} eg_rearrange_args;
/* "b l (h d) -> b h l d", .h = 8: permutes, splits and merges axes, adds and drops axes of size 1,
 * and repeats elements along a new axis, "b -> b r=3"; a view if there is one, else a copy */
EG_API eg_tensor *eg_rearrange_with(const eg_rearrange_args *);
typedef struct eg_axes_args {
    size_t size;
    const char *spec;
    eg_tensor *x;
    int64_t *o0, *o1, *o2, *o3, *o4, *o5, *o6, *o7, *o8, *o9, *o10, *o11, *o12, *o13, *o14, *o15,
        *o16, *o17, *o18, *o19, *o20, *o21, *o22, *o23, *o24, *o25, *o26, *o27, *o28, *o29, *o30,
        *o31;
} eg_axes_args;
/* Checks the rank of x (and sizes that the string gives, as (h=8 d)), and stores the sizes of its
 * letters in the order of the string: eg_axes("b l d", x, &b, &l, &d). True if x fits; else records
 * an error and returns false */
EG_API bool eg_axes_with(const eg_axes_args *);

/* -- reductions over the bracketed axes
 * "b [l] d" -> "b d"; "b [l] d -> d b" chooses the order; spec NULL: over all axes. eg_sum and
 * eg_prod of integers of any width and of bool are i64; eg_max and eg_min of integers and bool keep
 * the dtype. eg_argmax, eg_argmin, eg_any and eg_all take integers and bool, too; the other
 * reductions refuse them. */
EG_API eg_tensor *eg_sum(const char *spec, eg_tensor *x);  /* y = Σ x, of no elements: 0 */
EG_API eg_tensor *eg_mean(const char *spec, eg_tensor *x); /* y = Σ x / n, refused: n = 0 */
/* y = Π x; of no elements: 1. The gradient is right if elements are 0, too */
EG_API eg_tensor *eg_prod(const char *spec, eg_tensor *x);
/* y = max x; equal largest elements share the gradient evenly. Refused: no elements */
EG_API eg_tensor *eg_max(const char *spec, eg_tensor *x);
EG_API eg_tensor *eg_min(const char *spec, eg_tensor *x); /* y = min x, as eg_max */
/* y = ln Σ e^x; of no elements, or if all are −inf: −inf, with gradient 0 */
EG_API eg_tensor *eg_logsumexp(const char *spec, eg_tensor *x);
typedef struct eg_var_args {
    size_t size;
    const char *spec;
    eg_tensor *x;
    double correction; /* subtracted from the number of elements: 1; EG_OFF: 0, as in NumPy */
} eg_var_args;
/* y = Σ (x − mean)² / (n − correction)   refused: n ≤ correction */
EG_API eg_tensor *eg_var_with(const eg_var_args *);
/* y = √var             gradient 0 where all x are equal */
EG_API eg_tensor *eg_std_with(const eg_var_args *);
/* y = (Σ |x|^p)^(1/p), p > 0 or INFINITY (max |x|); of no elements: 0. Gradient 0 where y = 0 */
EG_API eg_tensor *eg_pnorm(const char *spec, eg_tensor *x, double p);
/* The number (i64) of the largest element (eg_argmin: the smallest), counted row-major over the
 * bracketed axes: the first of equal elements, or the first NaN if there is one. Refused: no
 * elements */
EG_API eg_tensor *eg_argmax(const char *spec, eg_tensor *x);
EG_API eg_tensor *eg_argmin(const char *spec, eg_tensor *x);
/* bool: any x ≠ 0; of no elements: false. x has any dtype but c128, as for eg_all */
EG_API eg_tensor *eg_any(const char *spec, eg_tensor *x);
/* bool: all x ≠ 0; of no elements: true */
EG_API eg_tensor *eg_all(const char *spec, eg_tensor *x);

/* -- pointwise: y = f(x), same shape, dtype and layout
 * neg, abs, sign, square, relu, scale, shift and clip take integers too; for these, scale and shift
 * refuse a constant that is not an integer. */
EG_API eg_tensor *eg_neg(eg_tensor *x);     /* −x */
EG_API eg_tensor *eg_abs(eg_tensor *x);     /* |x|                dx = g sign x */
EG_API eg_tensor *eg_sign(eg_tensor *x);    /* −1, 0, 1           dx = 0 */
EG_API eg_tensor *eg_exp(eg_tensor *x);     /* e^x                dx = g y */
EG_API eg_tensor *eg_exp2(eg_tensor *x);    /* 2^x                dx = g y ln 2 */
EG_API eg_tensor *eg_expm1(eg_tensor *x);   /* e^x − 1            dx = g e^x */
EG_API eg_tensor *eg_log(eg_tensor *x);     /* ln x               dx = g / x */
EG_API eg_tensor *eg_log2(eg_tensor *x);    /* log₂ x             dx = g / (x ln 2) */
EG_API eg_tensor *eg_log10(eg_tensor *x);   /* log₁₀ x            dx = g / (x ln 10) */
EG_API eg_tensor *eg_log1p(eg_tensor *x);   /* ln(1 + x)          dx = g / (1 + x) */
EG_API eg_tensor *eg_sqrt(eg_tensor *x);    /* √x                 dx = g / 2y */
EG_API eg_tensor *eg_rsqrt(eg_tensor *x);   /* 1/√x               dx = −g y³ / 2 */
EG_API eg_tensor *eg_square(eg_tensor *x);  /* x²                 dx = 2 g x */
EG_API eg_tensor *eg_recip(eg_tensor *x);   /* 1/x                dx = −g y² */
EG_API eg_tensor *eg_sin(eg_tensor *x);     /* sin x              dx = g cos x */
EG_API eg_tensor *eg_cos(eg_tensor *x);     /* cos x              dx = −g sin x */
EG_API eg_tensor *eg_tan(eg_tensor *x);     /* tan x              dx = g (1 + y²) */
EG_API eg_tensor *eg_asin(eg_tensor *x);    /* arcsin x           dx = g / √(1 − x²) */
EG_API eg_tensor *eg_acos(eg_tensor *x);    /* arccos x           dx = −g / √(1 − x²) */
EG_API eg_tensor *eg_atan(eg_tensor *x);    /* arctan x           dx = g / (1 + x²) */
EG_API eg_tensor *eg_sinh(eg_tensor *x);    /* sinh x             dx = g cosh x */
EG_API eg_tensor *eg_cosh(eg_tensor *x);    /* cosh x             dx = g sinh x */
EG_API eg_tensor *eg_asinh(eg_tensor *x);   /* arsinh x           dx = g / √(x² + 1) */
EG_API eg_tensor *eg_acosh(eg_tensor *x);   /* arcosh x           dx = g / √(x² − 1) */
EG_API eg_tensor *eg_atanh(eg_tensor *x);   /* artanh x           dx = g / (1 − x²) */
EG_API eg_tensor *eg_tanh(eg_tensor *x);    /* tanh x             dx = g (1 − tanh² x) */
EG_API eg_tensor *eg_sigmoid(eg_tensor *x); /* σ = 1/(1 + e^−x)   dx = g σ(x) σ(−x) */
EG_API eg_tensor *eg_erf(eg_tensor *x);     /* erf x              dx = g 2/√π e^−x² */
EG_API eg_tensor *eg_relu(eg_tensor *x);    /* max(x, 0)          dx = g [x > 0] */
EG_API eg_tensor *eg_leaky_relu(eg_tensor *x, double slope); /* x > 0 ? x : slope x */
EG_API eg_tensor *eg_elu(eg_tensor *x, double alpha);        /* x > 0 ? x : alpha (e^x − 1) */
EG_API eg_tensor *eg_gelu(eg_tensor *x);      /* x Φ(x), Φ by erf   Hendrycks, Gimpel 2016 */
EG_API eg_tensor *eg_gelu_tanh(eg_tensor *x); /* x/2 (1 + tanh(√(2/π)(x + 0.044715 x³))) */
EG_API eg_tensor *eg_silu(eg_tensor *x);      /* x σ(x) */
EG_API eg_tensor *eg_softplus(eg_tensor *x);  /* ln(1 + e^x)        dx = g σ(x) */
EG_API eg_tensor *eg_floor(eg_tensor *x);     /* ⌊x⌋                dx = 0 */
EG_API eg_tensor *eg_ceil(eg_tensor *x);      /* ⌈x⌉                dx = 0 */
EG_API eg_tensor *eg_trunc(eg_tensor *x);     /* x without its fraction              dx = 0 */
EG_API eg_tensor *eg_round(eg_tensor *x);     /* nearest whole number, halves to even  dx = 0 */
EG_API eg_tensor *eg_scale(eg_tensor *x, double c); /* c x */
EG_API eg_tensor *eg_shift(eg_tensor *x, double c); /* x + c */
EG_API eg_tensor *eg_powc(eg_tensor *x, double c);  /* x^c                dx = g c x^(c−1) */
/* min(max(x, low), high)   dx = g [low ≤ x ≤ high]; refused: low > high, a limit of NaN */
EG_API eg_tensor *eg_clip(eg_tensor *x, double low, double high);
EG_API eg_tensor *eg_isnan(eg_tensor *x); /* bool: x is a NaN; false for integers and bool */

/* -- two operands
 * Shapes broadcast by NumPy's rule (sizes 1 stretch, missing axes on the left); one dtype. add,
 * sub, mul, maximum and minimum take integers too. */
EG_API eg_tensor *eg_add(eg_tensor *a, eg_tensor *b); /* a + b */
EG_API eg_tensor *eg_sub(eg_tensor *a, eg_tensor *b); /* a − b */
EG_API eg_tensor *eg_mul(eg_tensor *a, eg_tensor *b); /* a b; da = g b, db = g a */
EG_API eg_tensor *eg_div(eg_tensor *a, eg_tensor *b); /* a / b; da = g / b, db = −g y / b */
EG_API eg_tensor *eg_pow(eg_tensor *a, eg_tensor *b); /* a^b; da = g b a^(b−1), db = g y ln a */
/* the angle of the point (b, a)   da = g b / (a² + b²), db = −g a / (a² + b²) */
EG_API eg_tensor *eg_atan2(eg_tensor *a, eg_tensor *b);
/* √(a² + b²)         without overflow in a²; da = g a / y, db = g b / y */
EG_API eg_tensor *eg_hypot(eg_tensor *a, eg_tensor *b);
/* ln(e^a + e^b)     da = g σ(a − b), db = g σ(b − a) */
EG_API eg_tensor *eg_logaddexp(eg_tensor *a, eg_tensor *b);
EG_API eg_tensor *eg_maximum(eg_tensor *a, eg_tensor *b); /* the larger; ties: half each */
EG_API eg_tensor *eg_minimum(eg_tensor *a, eg_tensor *b); /* the smaller */
/* condition (bool) ? a : b */
EG_API eg_tensor *eg_where(eg_tensor *condition, eg_tensor *a, eg_tensor *b);
/* a = b as a bool; here and in the next five a and b may be integers (also i32 with i64) or bool */
EG_API eg_tensor *eg_eq(eg_tensor *a, eg_tensor *b);
EG_API eg_tensor *eg_ne(eg_tensor *a, eg_tensor *b);  /* a ≠ b */
EG_API eg_tensor *eg_lt(eg_tensor *a, eg_tensor *b);  /* a < b */
EG_API eg_tensor *eg_le(eg_tensor *a, eg_tensor *b);  /* a ≤ b */
EG_API eg_tensor *eg_gt(eg_tensor *a, eg_tensor *b);  /* a > b */
EG_API eg_tensor *eg_ge(eg_tensor *a, eg_tensor *b);  /* a ≥ b */
EG_API eg_tensor *eg_and(eg_tensor *a, eg_tensor *b); /* a and b, of bool */
EG_API eg_tensor *eg_or(eg_tensor *a, eg_tensor *b);  /* a or b, of bool */
EG_API eg_tensor *eg_xor(eg_tensor *a, eg_tensor *b); /* a ≠ b, of bool */
EG_API eg_tensor *eg_not(eg_tensor *a);               /* not a, of bool */

/* -- formulas --------------------------------------------------------------------------------- */
typedef struct eg_expr_args {
    size_t size;
    const char *axes; /* of the result: "b i h"; in "... h", '...' are the other axes of with[0] */
    const char *text; /* the formula: "x * sigmoid(x) * g[h]" */
    eg_given with[8]; /* the tensors that it reads; ends at a NULL name */
    eg_ctx *cx;       /* needed if the formula reads no tensor */
} eg_expr_args;
/* eg_expr("b i h", "x * sigmoid(x) * g[h]", .with = { { "x", x }, { "g", g } }): y has the axes
 * `axes`, and each of its elements is the value of the formula `text`, computed in one pass over
 * memory; the gradient takes one pass, too. A letter is the position along its axis, |i| the size
 * of that axis, g[h] an element of g, and a name without brackets is read at all letters in order.
 * y is bool if the formula is a condition, i64 if it is an integer, else of the dtype of its float
 * tensors, or of the context's if there are none. Sizes that no tensor has are given by the axes:
 * eg_expr("i=8 j=8", "exp(-abs(i - j))", .cx = cx). docs/expressions.md describes the language.
 * Refused: tensors of .with that are not read; with a caret: unknown names, letters without a size,
 * sizes that disagree, indices that can be out of range, f32 together with f64. */
EG_API eg_tensor *eg_expr_with(const eg_expr_args *);

/* -- softmax; attention is in attention.h
 * A mask is index notation: .where = "j <= i" names letters of the spec, |i| is a size; it may read
 * integer and bool tensors of .with, as in "doc[b,i] == doc[b,j]". .keep is a bool or integer
 * tensor whose non-zero elements take part (a float tensor is refused); .bias is added before the
 * softmax and has a gradient. A row in which all entries are masked is 0, with gradient 0. */
typedef struct eg_masked {
    const char *axes;
    eg_tensor *x;
} eg_masked; /* { "bj", pad } */
typedef struct eg_where_mask_args {
    size_t size;
    /* the predicate, "j <= i" */
    const char *where;
    /* axes of the mask, "b i [j]", with the keys in brackets; without brackets the last axis is the
     * key */
    const char *axes;
    /* the number of positions before the first query, at least 0: the query's index starts at it,
     * and the query's size includes it */
    int64_t offset;
    /* sizes of the axes; NULL: those that the string gives (j=8), else those of the tensors that
     * the predicate reads */
    const int64_t *sizes;
    /* the tensors that it reads, of integers and bools; ends at a NULL name */
    eg_given with[8];
    /* the index that the offset applies to, "i"; NULL: the only one that is not a key */
    const char *offset_letter;
} eg_where_mask_args;
/* eg_where_mask(cx, "j <= i", "i [j]", 3, sizes): the predicate as bool over `axes`. An offset has
 * no effect if it applies to no index of the predicate. Refused: a predicate that cannot be read,
 * sizes that are not known or disagree, indices that can be out of range, a negative offset, an
 * offset that could apply to several indices, unless .offset_letter names one. */
EG_API eg_tensor *eg_where_mask_with(eg_ctx *, const eg_where_mask_args *);
typedef struct eg_softmax_args {
    size_t size;
    const char *spec; /* axes of x, "b h i [j]", "[s t]": the sums run over those in brackets */
    eg_tensor *x;
    const char *where; /* the entries that take part: "j <= i"; NULL: all */
    eg_given with[8];  /* what `where` reads: { "doc", doc }; ends at a NULL name */
    eg_masked keep;    /* { "bj", t }: the entries where t is not 0; bool or integer */
    eg_masked bias;    /* { "hij", t }: t is added to x */
    /* the number of positions before the first query, at least 0, such as the keys in a cache: the
     * query's index in `where` starts at it, and the query's size |i| includes it. Default: 0. It
     * must apply to an index */
    int64_t offset;
    /* the index that the offset applies to, "i"; NULL: the only one in `where` outside of the
     * brackets; if there are several, an offset is refused */
    const char *offset_letter;
} eg_softmax_args;
/* y = e^x / Σ e^x   0 where x is more than 87 (f32) or 708 (f64) below the largest x */
EG_API eg_tensor *eg_softmax_with(const eg_softmax_args *);
/* y = x − ln Σ e^x   masked entries −inf */
EG_API eg_tensor *eg_log_softmax_with(const eg_softmax_args *);

/* -- norms, dropout; losses are in loss.h ------------------------------------------------------ */
typedef struct eg_norm_args {
    size_t size;
    const char *spec; /* axes of x, "b l [d]": those in brackets are normalised */
    eg_tensor *x;
    eg_tensor *gain, *bias; /* of the shape of the bracketed axes; NULL: none */
    double eps;             /* ≥ 0: 1e-5; EG_OFF: 0 */
} eg_norm_args;
/* y = (x − mean)/√(var + eps) gain + bias, var = mean (x − mean)². With an eps of 0, y and dx are 0
 * where all x of a row are equal. Ba et al. 2016 */
EG_API eg_tensor *eg_layernorm_with(const eg_norm_args *);
/* y = x/√(mean x² + eps) gain; a bias is refused. Zhang, Sennrich 2019 */
EG_API eg_tensor *eg_rmsnorm_with(const eg_norm_args *);
/* x m/(1−p), where m is 0 with probability p, else 1; p = 1: zeros. After eg_eval, or if p = 0, x
 * itself. The draw of an element depends on seed, number of the draw and index alone. Refused: p
 * outside [0, 1] */
EG_API eg_tensor *eg_dropout(eg_tensor *x, double p);

/* -- gather, join, build, sort; sums and the like along an axis are in scan.h ------------------ */
/* "[v] m, b l -> b l m": y[b,l,m] = x[index[b,l], m]. index: i32 or i64. Refused, here and in
 * eg_scatter_add: an index outside [0, v) */
EG_API eg_tensor *eg_at(const char *spec, eg_tensor *x, eg_tensor *index);
/* "[v] m, b l, b l m": y = x; y[index[b,l], m] += u[b,l,m]; x and u: integers too */
EG_API eg_tensor *eg_scatter_add(const char *spec, eg_tensor *x, eg_tensor *index, eg_tensor *u);
/* "b i [d]": concatenates the tensors along d. The single term names the axes of each of them; the
 * other axes have equal sizes. eg_concat("b i [d]", x1, x2, …) counts the tensors. */
EG_API eg_tensor *eg_concat_n(const char *spec, int count, eg_tensor *const *x);
/* eg_concat with the axis as a number, −1 the last */
EG_API eg_tensor *eg_concat_axis_n(int axis, int count, eg_tensor *const *x);
/* "b [n] d": y[b,n,d] = x_n[b,d]; n is the new axis of the result */
EG_API eg_tensor *eg_stack_n(const char *spec, int count, eg_tensor *const *x);
/* eg_stack with the new axis as a number, −1 the last */
EG_API eg_tensor *eg_stack_axis_n(int axis, int count, eg_tensor *const *x);
/* Sequences of different lengths without their padding. eg_pack: x (b l …), lengths t (b) i32/i64 →
 * y (p …): y[t[0] + … + t[b−1] + i, …] = x[b, i, …] for i < t[b], and 0 after the last sequence.
 * eg_unpack: (p …) → (b l …), the same in reverse, and 0 where a sequence has ended. Operations on
 * single positions then compute Σ t positions instead of b·l; eg_mha_run has .packed for attention
 * within each sequence. Each is the gradient of the other. (The pack of einops joins tensors of
 * different shapes: eg_concat.) Refused: a length below 0 or above l; Σ t above p. As
 * pad_packed_sequence of PyTorch, or the "unpadding" of Portes et al. 2023 (MosaicBERT) */
EG_API eg_tensor *eg_pack(eg_tensor *x, eg_tensor *lengths, int64_t packed_length /* p */);
EG_API eg_tensor *eg_unpack(eg_tensor *x, eg_tensor *lengths, int64_t length /* l */);
/* Σ t, rounded up to a multiple of 16 so that few different shapes occur: the p of eg_pack. It
 * reads the lengths, so a captured step refuses it. −1 after an error */
enum { EG_PACK_ROUND = 16 };
EG_API int64_t eg_packed_length(eg_tensor *lengths);
/* "b [l] d": y[b,before+l,d] = x[b,l,d], and `value` (as of eg_full_n) before and after */
EG_API eg_tensor *eg_pad(const char *spec, eg_tensor *x, int64_t before, int64_t after,
                         double value);
EG_API eg_tensor *eg_pad_axis(eg_tensor *x, int axis, int64_t before, int64_t after, double value);
typedef struct eg_sort_args {
    size_t size;
    const char *spec; /* axes of x, "b [l]": the one to sort along in brackets */
    eg_tensor *x;
    bool descending;   /* the largest first; false */
    eg_tensor **order; /* out: what eg_argsort returns; NULL: not wanted */
} eg_sort_args;
/* x in ascending order; equal elements keep their order, and a NaN counts as the largest. x may
 * have integers or bools, as for eg_argsort and eg_topk */
EG_API eg_tensor *eg_sort_with(const eg_sort_args *);
/* i64: the indices along [l] that put x in order */
EG_API eg_tensor *eg_argsort_with(const eg_sort_args *);
typedef struct eg_topk_args {
    size_t size;
    const char *spec; /* axes of x, "b [l]"; "b [l] -> b" with k = 1 drops the axis */
    eg_tensor *x;
    int64_t k;         /* how many, from 0 to the size of the axis */
    bool smallest;     /* instead of the largest; false */
    eg_tensor **order; /* out: their indices along [l], i64; NULL: not wanted */
} eg_topk_args;
/* The k largest (.smallest: the k smallest) elements, the largest (smallest) first */
EG_API eg_tensor *eg_topk_with(const eg_topk_args *);
/* x where column − row ≤ k, else 0, over the last two axes */
EG_API eg_tensor *eg_tril(eg_tensor *x, int64_t k);
EG_API eg_tensor *eg_triu(eg_tensor *x, int64_t k); /* x where column − row ≥ k, else 0 */
/* 1 at the index along a new last axis, else 0; the context's dtype. index: i32 or i64. Refused: an
 * index outside [0, depth) */
EG_API eg_tensor *eg_one_hot(eg_tensor *index, int64_t depth);

#ifndef __cplusplus
#define EG_XS_(...)                                                                      \
    (int)(sizeof((eg_tensor *[]){ __VA_ARGS__ }) / sizeof(eg_tensor *)), (eg_tensor *[]) \
    {                                                                                    \
        __VA_ARGS__                                                                      \
    }
#define eg_einsum(spec, ...) \
    eg_einsum_n((spec), EG_XS_(__VA_ARGS__)) /* operands counted and type-checked */
/* eg_einsum_to(out, "ij,jk->ik", A, B): writes the result to out and returns it */
#define eg_einsum_to(out_, spec, ...) \
    eg_einsum_with(                   \
        &(eg_einsum_args){ sizeof(eg_einsum_args), (spec), EG_XS_(__VA_ARGS__), .out = (out_) })

#define eg_concat(spec, ...)      eg_concat_n((spec), EG_XS_(__VA_ARGS__))
#define eg_stack(spec, ...)       eg_stack_n((spec), EG_XS_(__VA_ARGS__))
#define eg_concat_axis(axis, ...) eg_concat_axis_n((axis), EG_XS_(__VA_ARGS__))
#define eg_stack_axis(axis, ...)  eg_stack_axis_n((axis), EG_XS_(__VA_ARGS__))
#define EG_ARGS_(type, ...)       (&(type){ .size = sizeof(type), __VA_ARGS__ })
#define eg_affine(...)            eg_affine_with(EG_ARGS_(eg_affine_args, __VA_ARGS__))
#define eg_rearrange(...)         eg_rearrange_with(EG_ARGS_(eg_rearrange_args, __VA_ARGS__))
#define eg_axes(...)              eg_axes_with(EG_ARGS_(eg_axes_args, __VA_ARGS__))
#define eg_var(...)               eg_var_with(EG_ARGS_(eg_var_args, __VA_ARGS__))
#define eg_std(...)               eg_std_with(EG_ARGS_(eg_var_args, __VA_ARGS__))
#define eg_sort(...)              eg_sort_with(EG_ARGS_(eg_sort_args, __VA_ARGS__))
#define eg_argsort(...)           eg_argsort_with(EG_ARGS_(eg_sort_args, __VA_ARGS__))
#define eg_topk(...)              eg_topk_with(EG_ARGS_(eg_topk_args, __VA_ARGS__))
#define eg_expr(...)              eg_expr_with(EG_ARGS_(eg_expr_args, __VA_ARGS__))
#define eg_softmax(...)           eg_softmax_with(EG_ARGS_(eg_softmax_args, __VA_ARGS__))
#define eg_log_softmax(...)       eg_log_softmax_with(EG_ARGS_(eg_softmax_args, __VA_ARGS__))
#define eg_layernorm(...)         eg_layernorm_with(EG_ARGS_(eg_norm_args, __VA_ARGS__))
#define eg_rmsnorm(...)           eg_rmsnorm_with(EG_ARGS_(eg_norm_args, __VA_ARGS__))
/* clang-format off */
#define eg_where_mask(cx, ...) \
    eg_where_mask_with((cx), EG_ARGS_(eg_where_mask_args, __VA_ARGS__))
/* clang-format on */
#endif

#ifdef __cplusplus
} /* extern "C" */
#define EG_CXX_OPS_
#include <eingrad/cxx.h>
#endif
#include <eingrad/attention.h>
#include <eingrad/loss.h>
#include <eingrad/scan.h>
#endif
