/* each_width_of.h: includes the template TEMPLATE, a name in quotes, for elements of 1, 2, 4, 8 and
 * 16 bytes, whose bytes are moved without regard to their meaning. In the template T is a type of
 * that width, and NAME(x) is x with its number of bits. */
#define T       uint8_t
#define NAME(x) x##_8
#include TEMPLATE
#undef T
#undef NAME

#define T       uint16_t
#define NAME(x) x##_16
#include TEMPLATE
#undef T
#undef NAME

#define T       uint32_t
#define NAME(x) x##_32
#include TEMPLATE
#undef T
#undef NAME

#define T       uint64_t
#define NAME(x) x##_64
#include TEMPLATE
#undef T
#undef NAME

#define T       double complex
#define NAME(x) x##_128
#include TEMPLATE
#undef T
#undef NAME
#undef TEMPLATE
