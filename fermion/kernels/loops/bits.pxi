# Packed booleans, least significant bit first.

cdef inline uint64_t _load_bits(
    const uint8_t* bits, Py_ssize_t at, Py_ssize_t count
) noexcept nogil:
    """Bits ``at`` to ``at + count``, 1 <= count <= 64; reads no byte outside of them."""
    cdef Py_ssize_t byte = at >> 3, shift = at & 7
    cdef Py_ssize_t needed = (shift + count + 7) >> 3
    cdef uint64_t word = 0
    if needed >= 8:
        memcpy(&word, bits + byte, 8)
    else:
        memcpy(&word, bits + byte, needed)
    word >>= shift
    if needed == 9:
        word |= (<uint64_t>bits[byte + 8]) << (64 - shift)
    if count < 64:
        word &= ((<uint64_t>1) << count) - 1
    return word


cdef inline int64_t _count_bits(
    const uint8_t* bits, Py_ssize_t at, Py_ssize_t count
) noexcept nogil:
    cdef int64_t total = 0
    while count > 0:
        total += fermion_popcount64(_load_bits(bits, at, min(count, 64)))
        at += 64
        count -= 64
    return total


cdef void _copy_bits(
    const uint8_t* source, Py_ssize_t source_bit, uint8_t* out, Py_ssize_t out_bit, Py_ssize_t count
) noexcept nogil:
    cdef Py_ssize_t head = min(count, (8 - (out_bit & 7)) & 7)
    cdef uint64_t word
    cdef uint8_t mask
    if head:
        word = _load_bits(source, source_bit, head)
        mask = <uint8_t>(((1 << head) - 1) << (out_bit & 7))
        out[out_bit >> 3] = (out[out_bit >> 3] & ~mask) | <uint8_t>(word << (out_bit & 7))
        source_bit += head
        out_bit += head
        count -= head
    out += out_bit >> 3
    if source_bit & 7 == 0:
        memcpy(out, source + (source_bit >> 3), count >> 3)
        out += count >> 3
        source_bit += count & ~<Py_ssize_t>7
        count &= 7
    while count >= 64:
        word = _load_bits(source, source_bit, 64)
        memcpy(out, &word, 8)
        out += 8
        source_bit += 64
        count -= 64
    while count > 0:
        word = _load_bits(source, source_bit, min(count, 8))
        mask = <uint8_t>((1 << min(count, 8)) - 1)
        out[0] = (out[0] & ~mask) | <uint8_t>word
        out += 1
        source_bit += 8
        count -= 8


def count_bits(const uint8_t[::1] data, int64_t start, int64_t count):
    """How many of the bits ``start`` to ``start + count`` (exclusive) are set."""
    _bit_range(data.shape[0], start, count, "data")
    cdef int64_t total = 0
    if count:
        with nogil:
            total = _count_bits(&data[0], start, count)
    return total


def copy_bits(
    const uint8_t[::1] source,
    int64_t source_bit,
    uint8_t[::1] out,
    int64_t out_bit,
    int64_t count,
):
    """Copy ``count`` bits from one bit position to another; other bits of ``out`` stay."""
    _bit_range(source.shape[0], source_bit, count, "source")
    _bit_range(out.shape[0], out_bit, count, "out")
    if count:
        with nogil:
            _copy_bits(&source[0], source_bit, &out[0], out_bit, count)
