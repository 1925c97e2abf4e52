/* fpmode.h: this thread's floating-point control word, that is, the rounding mode and whether
 * subnormal numbers are treated as 0. On x86-64 this is MXCSR with its bits FTZ and DAZ, on AArch64
 * FPCR with FZ. On other processors the functions do nothing, and subnormal numbers are kept. */
#ifndef EG_FPMODE_H
#define EG_FPMODE_H
#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__) && defined(__GNUC__)
/* EG_FPMODE_FLAGS: bits that report exceptions and are not part of the mode */
enum { EG_FPMODE_FLAGS = 0x3f, EG_FPMODE_FLUSH = 0x8040 };
static inline uint64_t eg__fpmode_word(void)
{
    uint32_t word;
    __asm__ __volatile__("stmxcsr %0" : "=m"(word) : : "memory");
    return word;
}
static inline void eg__fpmode_set(uint64_t mode)
{
    const uint32_t word = (uint32_t)mode;
    __asm__ __volatile__("ldmxcsr %0" : : "m"(word) : "memory");
}
static inline uint64_t eg__fpmode(void) { return eg__fpmode_word() & ~(uint64_t)EG_FPMODE_FLAGS; }
#elif defined(__aarch64__) && defined(__GNUC__)
enum { EG_FPMODE_FLUSH = 1 << 24 };
static inline uint64_t eg__fpmode_word(void)
{
    uint64_t word;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(word) : : "memory");
    return word;
}
static inline void eg__fpmode_set(uint64_t mode)
{
    __asm__ __volatile__("msr fpcr, %0" : : "r"(mode) : "memory");
}
static inline uint64_t eg__fpmode(void) { return eg__fpmode_word(); }
#else
enum { EG_FPMODE_FLUSH = 0 };
static inline uint64_t eg__fpmode_word(void) { return 0; }
static inline void eg__fpmode_set(uint64_t mode) { (void)mode; }
static inline uint64_t eg__fpmode(void) { return 0; }
#endif

/* Between begin and end this thread treats subnormal numbers as 0 if `flush`; otherwise its mode is
 * unchanged. Pairs may be nested; end takes the value that begin returned. */
#define EG_FPMODE_CHANGED ((uint64_t)1 << 63)
static inline uint64_t eg__fpmode_begin(bool flush)
{
    if (!flush) return 0;
    const uint64_t word = eg__fpmode_word();
    if ((word & EG_FPMODE_FLUSH) == EG_FPMODE_FLUSH) return 0;
    eg__fpmode_set(word | EG_FPMODE_FLUSH);
    return word | EG_FPMODE_CHANGED;
}
/* As eg__fpmode_begin, but between the two calls this thread keeps subnormal numbers, whatever its
 * mode was. */
static inline uint64_t eg__fpmode_exact(void)
{
    const uint64_t word = eg__fpmode_word();
    eg__fpmode_set(word & ~(uint64_t)EG_FPMODE_FLUSH);
    return word | EG_FPMODE_CHANGED;
}
static inline void eg__fpmode_end(uint64_t begun)
{
    if (begun & EG_FPMODE_CHANGED) eg__fpmode_set(begun & ~EG_FPMODE_CHANGED);
}
#endif
