/* Compiler and processor differences, hidden from the kernels. */

#ifndef FERMION_PORTABLE_H
#define FERMION_PORTABLE_H

#include <stdint.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernels read and write little-endian memory in place"
#endif

/* The compiler's own is a call to a table without -mpopcnt. */
static inline int fermion_popcount64(uint64_t x)
{
    x = x - ((x >> 1) & 0x5555555555555555ULL);
    x = (x & 0x3333333333333333ULL) + ((x >> 2) & 0x3333333333333333ULL);
    x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0FULL;
    return (int)((x * 0x0101010101010101ULL) >> 56);
}

#if defined(__GNUC__) || defined(__clang__)
#define fermion_trailing_zeros64(x) __builtin_ctzll(x)
#define fermion_leading_zeros64(x) __builtin_clzll(x)
#define fermion_byte_swap64(x) __builtin_bswap64(x)
#elif defined(_MSC_VER)
#include <intrin.h>
#include <stdlib.h>
#define fermion_byte_swap64(x) _byteswap_uint64(x)

static __inline int fermion_trailing_zeros64(uint64_t x)
{
    unsigned long at;
    _BitScanForward64(&at, x);
    return (int)at;
}

static __inline int fermion_leading_zeros64(uint64_t x)
{
    unsigned long at;
    _BitScanReverse64(&at, x);
    return 63 - (int)at;
}
#endif

#endif
