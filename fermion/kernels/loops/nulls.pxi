# Null slots taken out of values, and values spread over their slots again.


cdef int64_t _first_set(const uint8_t* bits, int64_t start, int64_t count) noexcept nogil:
    """How many of the bits from ``start`` on are clear before the first one that is set."""
    cdef int64_t at = 0
    cdef uint64_t word
    while at < count:
        word = _load_bits(bits, start + at, min(count - at, 64))
        if word:
            return at + fermion_trailing_zeros64(word)
        at += 64
    return count


cdef void _collect_words(
    const word_type* values, const uint8_t* bits, int64_t left, word_type* out
) noexcept nogil:
    """The first ``left`` values whose bit is set."""
    cdef int64_t at = 0, to = 0, i
    cdef uint64_t word
    while to < left:
        # Bits behind the last one that is set are never reached, so whole bytes may be read.
        word = bits[at >> 3]
        for i in range(8):
            if to == left:
                break
            # Written before it is known to stay: the next value overwrites it.
            out[to] = values[at + i]
            to += (word >> i) & 1
        at += 8


cdef void _spread_words(
    word_type* values, const uint8_t* bits, int64_t start, int64_t first, int64_t count,
    int64_t valid,
) noexcept nogil:
    """Copy value after value down from the end; a read never lies below the slot written."""
    cdef int64_t at = first, source = count - valid - 1, size, i
    cdef uint64_t word
    while at < count:
        size = min(count - at, 64)
        word = _load_bits(bits, start + at, size)
        for i in range(size):
            source += (word >> i) & 1
            values[at + i] = values[source]
        at += size


def remove_nulls(values, const uint8_t[::1] bits, out):
    """The values whose bit is set, in order."""
    cdef cnp.ndarray array = _input(values), target = _output(out)
    cdef const uint8_t* data = _bytes_in(array)
    cdef uint8_t* to = _bytes_out(target)
    cdef int64_t width = array.itemsize, count = array.shape[0], valid = 0, at = 0, slot
    cdef uint64_t word
    cdef bint aligned = _is_aligned(array) and _is_aligned(target)
    _bit_range(bits.shape[0], 0, count, "bits")
    if target.itemsize != width:
        raise ValueError(f"out has items of {target.itemsize} bytes, expected {width}")
    if count:
        valid = _count_bits(&bits[0], 0, count)
    _same_length(target.shape[0], valid, "out")
    if valid == 0:
        return
    with nogil:
        if width == 1:
            _collect_words(<const uint8_t*>data, &bits[0], valid, <uint8_t*>to)
        elif width == 2 and aligned:
            _collect_words(<const uint16_t*>data, &bits[0], valid, <uint16_t*>to)
        elif width == 4 and aligned:
            _collect_words(<const uint32_t*>data, &bits[0], valid, <uint32_t*>to)
        elif width == 8 and aligned:
            _collect_words(<const uint64_t*>data, &bits[0], valid, <uint64_t*>to)
        else:
            while at < count:
                word = _load_bits(&bits[0], at, min(count - at, 64))
                while word:
                    slot = at + fermion_trailing_zeros64(word)
                    word &= word - 1
                    memcpy(to, data + slot * width, width)
                    to += width
                at += 64


cdef void _restore_nulls(
    uint8_t* data, int64_t width, bint aligned, const uint8_t* bits, int64_t start, int64_t count
) noexcept nogil:
    """Spread values that lie at the end over ``count`` slots by the bits from ``start`` on."""
    cdef int64_t valid = _count_bits(bits, start, count), first = _first_set(bits, start, count)
    cdef int64_t at, source
    if width == 1:
        _spread_words(data, bits, start, first, count, valid)
    elif width == 2 and aligned:
        _spread_words(<uint16_t*>data, bits, start, first, count, valid)
    elif width == 4 and aligned:
        _spread_words(<uint32_t*>data, bits, start, first, count, valid)
    elif width == 8 and aligned:
        _spread_words(<uint64_t*>data, bits, start, first, count, valid)
    else:
        source = count - valid - 1
        for at in range(first, count):
            source += bits[(start + at) >> 3] >> ((start + at) & 7) & 1
            if source != at:
                memcpy(data + at * width, data + source * width, width)
    memset(data, 0, first * width)


def restore_nulls(values, const uint8_t[::1] bits, int64_t start):
    """Spread values that lie at the end over the slots whose bits are set, in place."""
    cdef cnp.ndarray array = _output(values)
    cdef uint8_t* data = _bytes_out(array)
    cdef int64_t width = array.itemsize, count = array.shape[0]
    cdef bint aligned = _is_aligned(array)
    _bit_range(bits.shape[0], start, count, "bits")
    if count:
        with nogil:
            _restore_nulls(data, width, aligned, &bits[0], start, count)


cdef uint64_t _extract_bits(uint64_t word, uint64_t wanted) noexcept nogil:
    """The bits of ``word`` at the places that are set in ``wanted``, moved together."""
    cdef uint64_t result = 0, lowest
    cdef int place = 0
    while wanted:
        lowest = wanted & (~wanted + 1)
        result |= (<uint64_t>((word & lowest) != 0)) << place
        place += 1
        wanted ^= lowest
    return result


cdef uint64_t _deposit_bits(uint64_t word, uint64_t wanted) noexcept nogil:
    """The low bits of ``word``, moved to the places that are set in ``wanted``."""
    cdef uint64_t result = 0, lowest
    while wanted:
        lowest = wanted & (~wanted + 1)
        result |= lowest & (~(word & 1) + 1)
        word >>= 1
        wanted ^= lowest
    return result


def remove_nulls_bits(const uint8_t[::1] data, const uint8_t[::1] bits, int64_t count, out):
    """The bits of ``data`` whose bit in ``bits`` is set, packed from bit 0 of ``out`` on."""
    cdef uint8_t[::1] target = out
    cdef int64_t at = 0, to = 0, valid = 0, size
    cdef uint64_t word, wanted
    _bit_range(data.shape[0], 0, count, "data")
    _bit_range(bits.shape[0], 0, count, "bits")
    if count:
        valid = _count_bits(&bits[0], 0, count)
    _bit_range(target.shape[0], 0, valid, "out")
    with nogil:
        while to < valid:
            size = min(count - at, 64)
            wanted = _load_bits(&bits[0], at, size)
            if wanted:
                word = _extract_bits(_load_bits(&data[0], at, size), wanted)
                size = fermion_popcount64(wanted)
                _copy_bits(<const uint8_t*>&word, 0, &target[0], to, size)
                to += size
            at += 64


cdef void _restore_nulls_bits(
    const uint8_t* data, const uint8_t* bits, int64_t start, int64_t count, uint8_t* out,
    int64_t out_bit,
) noexcept nogil:
    """Bits of ``data``, one for each bit that is set, spread over ``count`` slots."""
    cdef int64_t at = 0, source = 0, size, valid
    cdef uint64_t word, wanted
    while at < count:
        size = min(count - at, 64)
        wanted = _load_bits(bits, start + at, size)
        word = 0
        if wanted:
            valid = fermion_popcount64(wanted)
            word = _deposit_bits(_load_bits(data, source, valid), wanted)
            source += valid
        _copy_bits(<const uint8_t*>&word, 0, out, out_bit + at, size)
        at += size


def restore_nulls_bits(
    const uint8_t[::1] data, const uint8_t[::1] bits, int64_t start, int64_t count, out,
    int64_t out_bit,
):
    """Set the bits of ``out`` whose values, in order, are set in ``data``; null slots get 0."""
    cdef uint8_t[::1] target = out
    _bit_range(bits.shape[0], start, count, "bits")
    _bit_range(target.shape[0], out_bit, count, "out")
    if count == 0:
        return
    _bit_range(data.shape[0], 0, _count_bits(&bits[0], start, count), "data")
    cdef uint8_t nothing = 0
    cdef const uint8_t* values = &data[0] if data.shape[0] else &nothing
    with nogil:
        _restore_nulls_bits(values, &bits[0], start, count, &target[0], out_bit)
