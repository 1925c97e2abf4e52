/* each_type_of.h: includes the template TEMPLATE, a name in quotes, for each numeric dtype. In the
 * template
 *
 *   T         is the type of an element
 *   NAME(x)   is x with the name of its dtype
 *   REAL      is the type of an element's real part
 *   U         is the type of sums: unsigned for integers, whose signed sums may overflow
 *   INTEGERS  is 1 for integers, else 0
 *   F(name)   is the mathematical function for the type; integers have none
 *
 * If WITH_BOOL is defined, the template is also included for bool, with WITH_BOOL as T. */
#define T        float
#define NAME(x)  x##_f32
#define REAL     float
#define U        float
#define INTEGERS 0
#define F(name)  name##f
#include TEMPLATE
#undef T
#undef NAME
#undef REAL
#undef U
#undef F

#define T       double
#define NAME(x) x##_f64
#define REAL    double
#define U       double
#define F(name) name
#include TEMPLATE
#undef T
#undef NAME
#undef U
#undef F

#define T       double complex
#define NAME(x) x##_c128
#define U       double complex
#define F(name) eg__c_##name
#include TEMPLATE
#undef T
#undef NAME
#undef REAL
#undef U
#undef INTEGERS

#define T        int32_t
#define NAME(x)  x##_i32
#define REAL     int32_t
#define U        uint32_t
#define INTEGERS 1
#include TEMPLATE
#undef T
#undef NAME
#undef REAL
#undef U

#define T       int64_t
#define NAME(x) x##_i64
#define REAL    int64_t
#define U       uint64_t
#include TEMPLATE
#undef T
#undef NAME
#undef REAL

#ifdef WITH_BOOL
#define T       WITH_BOOL
#define NAME(x) x##_bool
#define REAL    WITH_BOOL
#include TEMPLATE
#undef T
#undef NAME
#undef REAL
#undef WITH_BOOL
#endif
#undef U
#undef INTEGERS
#undef F
#undef TEMPLATE
