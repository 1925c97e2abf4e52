/* each_set_of.h: includes the template TEMPLATE, a name in quotes, for each instruction set. In the
 * template TARGET is the attribute of the set, BYTES the length of its registers, and SUFFIX part
 * of all names. EG_OF_EACH_SET(name) lists what the template calls name, by eg__kernel_isa(). */
#if HAVE_TARGET_CLONES
#define TARGET __attribute__((target("arch=x86-64-v4")))
#define BYTES  64
#define SUFFIX 512
#include TEMPLATE
#undef TARGET
#undef BYTES
#undef SUFFIX
#define TARGET __attribute__((target("arch=x86-64-v3")))
#define BYTES  32
#define SUFFIX 256
#include TEMPLATE
#undef TARGET
#undef BYTES
#undef SUFFIX
#define EG_OF_EACH_SET(name)                  \
    {                                         \
        &name##_128, &name##_256, &name##_512 \
    }
#else
#define EG_OF_EACH_SET(name)                  \
    {                                         \
        &name##_128, &name##_128, &name##_128 \
    }
#endif
#define TARGET
#if !HAVE_TARGET_CLONES && defined(__AVX512F__) /* by CFLAGS, such as -march=native */
#define BYTES 64
#elif !HAVE_TARGET_CLONES && defined(__AVX2__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define SUFFIX 128
#include TEMPLATE
#undef TARGET
#undef BYTES
#undef SUFFIX
#undef TEMPLATE
