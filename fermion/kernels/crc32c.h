/* CRC-32C (Castagnoli): the processor's instruction where there is one, tables elsewhere. */

#ifndef FERMION_CRC32C_H
#define FERMION_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CRC32C_POLYNOMIAL 0x82F63B78u /* reflected */

static uint32_t crc32c_table[8][256];

/* The instruction takes 3 cycles but one can start each cycle: three stretches run side by side. */
#define CRC32C_STRETCH 1024
static uint32_t crc32c_zeros[4][256]; /* the effect of CRC32C_STRETCH zero bytes on a CRC */

static void crc32c_make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1) ? CRC32C_POLYNOMIAL : 0);
        crc32c_table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++) {
            uint32_t before = crc32c_table[k - 1][i];
            crc32c_table[k][i] = (before >> 8) ^ crc32c_table[0][before & 0xFF];
        }
    for (int k = 0; k < 4; k++)
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t crc = i << (8 * k);
            if (i & (i - 1)) /* the effect is linear: that of each bit is enough */
                crc = crc32c_zeros[k][i & (i - 1)] ^ crc32c_zeros[k][i & -i];
            else
                for (int zero = 0; zero < CRC32C_STRETCH; zero++)
                    crc = (crc >> 8) ^ crc32c_table[0][crc & 0xFF];
            crc32c_zeros[k][i] = crc;
        }
}

static uint32_t crc32c_portable(uint32_t crc, const uint8_t *data, size_t length)
{
    while (length >= 8) {
        uint32_t low, high;
        memcpy(&low, data, 4);
        memcpy(&high, data + 4, 4);
        low ^= crc;
        crc = crc32c_table[7][low & 0xFF] ^ crc32c_table[6][(low >> 8) & 0xFF]
            ^ crc32c_table[5][(low >> 16) & 0xFF] ^ crc32c_table[4][low >> 24]
            ^ crc32c_table[3][high & 0xFF] ^ crc32c_table[2][(high >> 8) & 0xFF]
            ^ crc32c_table[1][(high >> 16) & 0xFF] ^ crc32c_table[0][high >> 24];
        data += 8;
        length -= 8;
    }
    while (length--)
        crc = (crc >> 8) ^ crc32c_table[0][(crc ^ *data++) & 0xFF];
    return crc;
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <nmmintrin.h>
#define CRC32C_HAS_HARDWARE 1

static uint32_t crc32c_skip_stretch(uint32_t crc)
{
    return crc32c_zeros[0][crc & 0xFF] ^ crc32c_zeros[1][(crc >> 8) & 0xFF]
         ^ crc32c_zeros[2][(crc >> 16) & 0xFF] ^ crc32c_zeros[3][crc >> 24];
}

__attribute__((target("sse4.2")))
static uint32_t crc32c_hardware(uint32_t crc, const uint8_t *data, size_t length)
{
    uint64_t first = crc;
    while (length >= 3 * CRC32C_STRETCH) {
        uint64_t second = 0, third = 0, word;
        for (size_t at = 0; at < CRC32C_STRETCH; at += 8) {
            memcpy(&word, data + at, 8);
            first = _mm_crc32_u64(first, word);
            memcpy(&word, data + at + CRC32C_STRETCH, 8);
            second = _mm_crc32_u64(second, word);
            memcpy(&word, data + at + 2 * CRC32C_STRETCH, 8);
            third = _mm_crc32_u64(third, word);
        }
        first = crc32c_skip_stretch((uint32_t)first) ^ second;
        first = crc32c_skip_stretch((uint32_t)first) ^ third;
        data += 3 * CRC32C_STRETCH;
        length -= 3 * CRC32C_STRETCH;
    }
    while (length >= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        first = _mm_crc32_u64(first, word);
        data += 8;
        length -= 8;
    }
    while (length--)
        first = _mm_crc32_u8((uint32_t)first, *data++);
    return (uint32_t)first;
}

static int crc32c_detect_hardware(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2");
}
#else
#define crc32c_hardware crc32c_portable

static int crc32c_detect_hardware(void)
{
    return 0;
}
#endif

static int crc32c_use_hardware;

/* Called once, under the GIL, before any checksum. */
static void crc32c_initialise(void)
{
    crc32c_make_tables();
    crc32c_use_hardware = crc32c_detect_hardware();
}

static uint32_t crc32c_update(uint32_t seed, const uint8_t *data, size_t length, int portable)
{
    uint32_t crc = ~seed;
    if (crc32c_use_hardware && !portable)
        crc = crc32c_hardware(crc, data, length);
    else
        crc = crc32c_portable(crc, data, length);
    return ~crc;
}

#endif
