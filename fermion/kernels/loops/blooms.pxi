# XXH64 of values, and split-block bloom filters over those hashes.

cdef uint64_t _XXH_1 = 0x9E3779B185EBCA87
cdef uint64_t _XXH_2 = 0xC2B2AE3D27D4EB4F
cdef uint64_t _XXH_3 = 0x165667B19E3779F9
cdef uint64_t _XXH_4 = 0x85EBCA77C2B2AE63
cdef uint64_t _XXH_5 = 0x27D4EB2F165667C5

cdef uint32_t[8] _SALTS
_SALTS[:] = [
    0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D,
    0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31,
]


cdef inline uint64_t _rotate(uint64_t value, int count) noexcept nogil:
    return (value << count) | (value >> (64 - count))


cdef inline uint64_t _load64(const uint8_t* data) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, data, 8)
    return word


cdef inline uint64_t _lane(uint64_t lane, uint64_t word) noexcept nogil:
    return _rotate(lane + word * _XXH_2, 31) * _XXH_1


cdef inline uint64_t _merge_lane(uint64_t total, uint64_t lane) noexcept nogil:
    return (total ^ _lane(0, lane)) * _XXH_1 + _XXH_4


cdef uint64_t _xxh64(const uint8_t* data, int64_t length) noexcept nogil:
    """XXH64 with seed 0."""
    cdef uint64_t total, a, b, c, d
    cdef uint32_t half
    cdef int64_t at = 0
    if length >= 32:
        a, b, c, d = _XXH_1 + _XXH_2, _XXH_2, 0, 0 - _XXH_1
        while at + 32 <= length:
            a = _lane(a, _load64(data + at))
            b = _lane(b, _load64(data + at + 8))
            c = _lane(c, _load64(data + at + 16))
            d = _lane(d, _load64(data + at + 24))
            at += 32
        total = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
        total = _merge_lane(total, a)
        total = _merge_lane(total, b)
        total = _merge_lane(total, c)
        total = _merge_lane(total, d)
    else:
        total = _XXH_5
    total += <uint64_t>length
    while at + 8 <= length:
        total = _rotate(total ^ _lane(0, _load64(data + at)), 27) * _XXH_1 + _XXH_4
        at += 8
    if at + 4 <= length:
        memcpy(&half, data + at, 4)
        total = _rotate(total ^ (half * _XXH_1), 23) * _XXH_2 + _XXH_3
        at += 4
    while at < length:
        total = _rotate(total ^ (data[at] * _XXH_5), 11) * _XXH_1
        at += 1
    total ^= total >> 33
    total *= _XXH_2
    total ^= total >> 29
    total *= _XXH_3
    return total ^ (total >> 32)


def hash_fixed(values, uint64_t[::1] out):
    """XXH64 of the bytes of each value."""
    cdef cnp.ndarray array = _input(values)
    cdef const uint8_t* data = _bytes_in(array)
    cdef Py_ssize_t i, width = array.itemsize
    _same_length(out.shape[0], array.shape[0], "out")
    with nogil:
        for i in range(out.shape[0]):
            out[i] = _xxh64(data + i * width, width)


def hash_binary(offsets, const uint8_t[::1] data, uint64_t[::1] out):
    """XXH64 of each byte string."""
    cdef const int64_t[::1] ends = _input(offsets)
    cdef Py_ssize_t i
    cdef const uint8_t* first = &data[0] if data.shape[0] else NULL
    _check_offsets(ends, data.shape[0])
    _same_length(out.shape[0], ends.shape[0] - 1, "out")
    with nogil:
        for i in range(out.shape[0]):
            out[i] = _xxh64(first + ends[i], ends[i + 1] - ends[i])


cdef inline Py_ssize_t _bloom_block(uint64_t hashed, uint64_t blocks) noexcept nogil:
    return 8 * <Py_ssize_t>(((hashed >> 32) * blocks) >> 32)


def bloom_insert(hashes, uint32_t[::1] words):
    """Set the bits of each hash in a filter of 8-word blocks."""
    cdef const uint64_t[::1] wanted = _input(hashes)
    cdef uint64_t blocks = _bloom_blocks(words.shape[0])
    cdef Py_ssize_t i, base
    cdef int lane
    with nogil:
        for i in range(wanted.shape[0]):
            base = _bloom_block(wanted[i], blocks)
            for lane in range(8):
                words[base + lane] |= (
                    <uint32_t>1 << ((<uint32_t>wanted[i] * _SALTS[lane]) >> 27)
                )


def bloom_contains(hashes, const uint32_t[::1] words, uint8_t[::1] out):
    """Whether each hash may be in a filter: 1, or 0 where it is not."""
    cdef const uint64_t[::1] wanted = _input(hashes)
    cdef uint64_t blocks = _bloom_blocks(words.shape[0])
    cdef Py_ssize_t i, base
    cdef uint32_t missing
    cdef int lane
    _same_length(out.shape[0], wanted.shape[0], "out")
    with nogil:
        for i in range(wanted.shape[0]):
            base = _bloom_block(wanted[i], blocks)
            missing = 0
            for lane in range(8):
                missing |= ~words[base + lane] & (
                    <uint32_t>1 << ((<uint32_t>wanted[i] * _SALTS[lane]) >> 27)
                )
            out[i] = missing == 0


cdef uint64_t _bloom_blocks(Py_ssize_t words) except 0:
    if words < 8 or words % 8:
        raise ValueError(f"a bloom filter has a multiple of 8 words and at least 8, not {words}")
    return words // 8
