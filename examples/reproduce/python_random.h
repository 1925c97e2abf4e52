/* The pairs of AdderBoard's verify.py: what Python's random.Random(2025).randint draws. */
#ifndef PYTHON_RANDOM_H
#define PYTHON_RANDOM_H
#include <stdbool.h>
#include <stdint.h>

/* Returns the next 32 bits of Python's random.Random(2025): the Mersenne Twister (Matsumoto,
 * Nishimura 1998), seeded by init_by_array({ 2025 }). */
static inline uint32_t twister(bool begin)
{
    enum { N = 624, M = 397 };
    static uint32_t s[N];
    static int at;
    if (begin) {
        s[0] = 19650218;
        for (uint32_t i = 1; i < N; i++) s[i] = 1812433253u * (s[i - 1] ^ s[i - 1] >> 30) + i;
        for (int k = 0, i = 1; k < 2 * N - 1; k++) {
            const uint32_t mixed = s[i - 1] ^ s[i - 1] >> 30;
            s[i] = k < N ? (s[i] ^ mixed * 1664525u) + 2025
                         : (s[i] ^ mixed * 1566083941u) - (uint32_t)i;
            if (++i == N) s[0] = s[N - 1], i = 1;
        }
        s[0] = 0x80000000u;
        at = N;
    }
    if (at == N) {
        at = 0;
        for (int i = 0; i < N; i++) {
            const uint32_t y = (s[i] & 0x80000000u) | (s[(i + 1) % N] & 0x7fffffffu);
            s[i] = s[(i + M) % N] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
        }
    }
    if (begin) return 0;
    uint32_t y = s[at++];
    y ^= y >> 11, y ^= y << 7 & 0x9d2c5680u, y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

/* randint(0, 9999999999): 34 bits, the lower 32 first, drawn again until they are small enough */
static inline int64_t addend(void)
{
    int64_t r;
    do {
        r = twister(false);
        r |= (int64_t)(twister(false) >> 30) << 32;
    } while (r > 9999999999);
    return r;
}
#endif
