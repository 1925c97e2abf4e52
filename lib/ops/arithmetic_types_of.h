/* arithmetic_types_of.h: the loops of arithmetic.c for one instruction set, of which TARGET is the
 * attribute, BYTES the length of a register, and SUFFIX part of all names. */
#define JOIN_AGAIN(x, type, suffix) x##_##type##_##suffix
#define JOIN(x, type, suffix)       JOIN_AGAIN(x, type, suffix)
/* f32 */
#define T         float
#define NAME(x)   JOIN(x, f32, SUFFIX)
#define BITS      bits_f32
#define WIDE      wide_f32
#define EIGHT     eight_f32
#define FOUR      four_f32
#define WORD      int32_t
#define EXP       epowf_normal /* of numbers from LEAST to 0 */
#define POW       powf
#define LEAST     -87
#define TINY      1.66e-38f
#define MODERATE  EG_MODERATE_F32
#define MINUS_INF (int32_t)0xff800000
#define MAGNITUDE INT32_MAX /* all bits but the sign */
#include "ops/arithmetic_of.h"
/* f64 */
#define T         double
#define NAME(x)   JOIN(x, f64, SUFFIX)
#define BITS      bits_f64
#define WIDE      wide_f64
#define EIGHT     eight_f64
#define FOUR      four_f64
#define WORD      int64_t
#define EXP       exp
#define POW       pow
#define LEAST     -708
#define TINY      3.31e-308
#define MODERATE  EG_MODERATE_F64
#define MINUS_INF (int64_t)0xfff0000000000000
#define MAGNITUDE INT64_MAX
#include "ops/arithmetic_of.h"
#undef JOIN
#undef JOIN_AGAIN
