# Integers as frames of reference and bit widths; `fermion.encodings.bitpack` has the byte layout.

cdef enum:
    BLOCK_VALUES = 1024
    ROW_BYTES = 128  # one word of every lane
    PATCHES_MAX = 255
    PATCH_SAVES_MIN = 4  # bits: fewer are not worth the patches
    PAYLOAD_HEADER = 8
    BLOCK_HEADER = 4


cdef enum BlockError:
    BLOCK_FINE = 0
    BLOCK_OUTSIDE = 1
    BLOCK_WIDTH = 2
    BLOCK_SIZE = 3
    BLOCK_PATCH = 4


cdef struct BlockPlan:
    uint64_t base
    int width
    int patch_count
    int patch_bytes


cdef inline int64_t _block_bytes(
    Py_ssize_t count, Py_ssize_t word_bytes, BlockPlan* plan
) noexcept nogil:
    return (
        BLOCK_HEADER
        + word_bytes
        + ((count * plan.width + 7) >> 3)
        + plan.patch_count * (2 + plan.patch_bytes)
    )


cdef inline int _bit_length(uint64_t value) noexcept nogil:
    return 64 - fermion_leading_zeros64(value) if value else 0


cdef void _choose_width(
    const word_type* values, Py_ssize_t count, BlockPlan* plan, int width_max
) noexcept nogil:
    """The width that makes the block smallest, given its base and the width of its top value."""
    cdef uint32_t histogram[4][65]
    cdef uint32_t above = 0
    cdef int64_t size, best
    cdef int width
    cdef Py_ssize_t i
    cdef BlockPlan trial
    plan.width = width_max
    plan.patch_count = 0
    plan.patch_bytes = 0
    if width_max < PATCH_SAVES_MIN:
        return
    for i in range(count):
        above += <word_type>(values[i] - <word_type>plan.base) >> (width_max - PATCH_SAVES_MIN) != 0
    if above > PATCHES_MAX:
        return
    above = 0
    memset(histogram, 0, sizeof(histogram))
    for i in range(count):
        histogram[i & 3][_bit_length(<word_type>(values[i] - <word_type>plan.base))] += 1
    trial = plan[0]
    best = _block_bytes(count, sizeof(word_type), plan)
    for width in range(width_max - 1, -1, -1):
        above += (
            histogram[0][width + 1] + histogram[1][width + 1]
            + histogram[2][width + 1] + histogram[3][width + 1]
        )
        if above > PATCHES_MAX:
            return
        if width > width_max - PATCH_SAVES_MIN:
            continue
        trial.width = width
        trial.patch_count = above
        trial.patch_bytes = (width_max - width + 7) >> 3
        size = _block_bytes(count, sizeof(word_type), &trial)
        if size < best:
            best = size
            plan[0] = trial


cdef void _plan_block(
    const word_type* values, Py_ssize_t count, bint signed, BlockPlan* plan
) noexcept nogil:
    cdef int8_t low8 = 127, high8 = -128
    cdef int16_t low16 = 32767, high16 = -32768
    cdef int32_t low32 = <int32_t>0x7FFFFFFF, high32 = -<int32_t>0x7FFFFFFF - 1
    cdef int64_t low64 = INT64_MAX, high64 = INT64_MIN, nans
    cdef word_type low = ~<word_type>0, high = 0
    if not signed:
        _extremes[word_type](values, count, &low, &high, &nans)
    elif word_type is uint8_t:
        _extremes[int8_t](<const int8_t*>values, count, &low8, &high8, &nans)
        low, high = <word_type>low8, <word_type>high8
    elif word_type is uint16_t:
        _extremes[int16_t](<const int16_t*>values, count, &low16, &high16, &nans)
        low, high = <word_type>low16, <word_type>high16
    elif word_type is uint32_t:
        _extremes[int32_t](<const int32_t*>values, count, &low32, &high32, &nans)
        low, high = <word_type>low32, <word_type>high32
    else:
        _extremes[int64_t](<const int64_t*>values, count, &low64, &high64, &nans)
        low, high = <word_type>low64, <word_type>high64
    plan.base = low
    _choose_width(values, count, plan, _bit_length(<word_type>(high - low)))


cdef void _pack_lanes(
    const word_type* values, word_type base, int width, uint8_t* out
) noexcept nogil:
    """A full block: value i lies in lane i % lanes, at bits width * (i // lanes) of that lane."""
    cdef int bits = 8 * sizeof(word_type), lanes = ROW_BYTES // sizeof(word_type)
    cdef int row, lane, shift
    cdef word_type mask = <word_type>(~<uint64_t>0 >> (64 - width))
    cdef word_type words[ROW_BYTES]  # as many as there can be lanes
    cdef word_type value
    memset(words, 0, lanes * sizeof(word_type))
    for row in range(bits):
        shift = row * width % bits
        for lane in range(lanes):
            value = <word_type>(values[row * lanes + lane] - base) & mask
            words[lane] |= <word_type>(value << shift)
        if shift + width >= bits:
            memcpy(out, words, ROW_BYTES)
            out += ROW_BYTES
            memset(words, 0, lanes * sizeof(word_type))
            if shift + width > bits:
                for lane in range(lanes):
                    value = <word_type>(values[row * lanes + lane] - base) & mask
                    words[lane] = value >> (bits - shift)


cdef inline void _unpack_rows(
    const uint8_t* packed, word_type base, int width, int first, int stop, word_type* out
) noexcept nogil:
    """Some rows of a full block, ``stop`` exclusive: a value of every lane each."""
    cdef int bits = 8 * sizeof(word_type), lanes = ROW_BYTES // sizeof(word_type)
    cdef int row, lane, shift, rest
    cdef word_type mask = <word_type>(~<uint64_t>0 >> (64 - width))
    cdef const uint8_t* words
    cdef word_type low, high
    for row in range(first, stop):
        words = packed + row * width // bits * ROW_BYTES
        shift = row * width % bits
        rest = bits - shift
        if width <= rest:
            for lane in range(lanes):
                memcpy(&low, words + lane * sizeof(word_type), sizeof(word_type))
                out[lane] = <word_type>(((low >> shift) & mask) + base)
        else:
            for lane in range(lanes):
                memcpy(&low, words + lane * sizeof(word_type), sizeof(word_type))
                memcpy(&high, words + ROW_BYTES + lane * sizeof(word_type), sizeof(word_type))
                low = <word_type>(low >> shift) | <word_type>(high << rest)
                out[lane] = <word_type>((low & mask) + base)
        out += lanes


cdef void _unpack_lanes(
    const uint8_t* packed, word_type base, int width, word_type* out
) noexcept nogil:
    _unpack_rows(packed, base, width, 0, 8 * sizeof(word_type), out)


cdef void _pack_sequence(
    const word_type* values, Py_ssize_t count, word_type base, int width, uint8_t* out
) noexcept nogil:
    """A partial block: value i at bits width * i of one stream."""
    cdef uint8_t stream[BLOCK_VALUES * 8 + 16]
    cdef uint64_t mask = ~<uint64_t>0 >> (64 - width), value, word
    cdef Py_ssize_t i, at
    cdef int shift
    memset(stream, 0, ((count * width + 7) >> 3) + 16)
    for i in range(count):
        value = <word_type>(values[i] - base) & mask
        at = i * width >> 3
        shift = i * width & 7
        memcpy(&word, stream + at, 8)
        word |= value << shift
        memcpy(stream + at, &word, 8)
        if shift + width > 64:
            stream[at + 8] = <uint8_t>(value >> (64 - shift))
    memcpy(out, stream, (count * width + 7) >> 3)


cdef void _unpack_sequence(
    const uint8_t* packed, Py_ssize_t count, word_type base, int width, word_type* out
) noexcept nogil:
    cdef uint8_t stream[BLOCK_VALUES * 8 + 16]  # room to load 8 bytes at any value
    cdef uint64_t mask = ~<uint64_t>0 >> (64 - width), word
    cdef Py_ssize_t i, at, size = (count * width + 7) >> 3
    cdef int shift
    memcpy(stream, packed, size)
    memset(stream + size, 0, 16)
    for i in range(count):
        at = i * width >> 3
        shift = i * width & 7
        memcpy(&word, stream + at, 8)
        word >>= shift
        if shift + width > 64:
            word |= <uint64_t>stream[at + 8] << (64 - shift)
        out[i] = <word_type>((word & mask) + base)


cdef uint8_t* _write_block(
    const word_type* values, Py_ssize_t count, BlockPlan* plan, uint8_t* out
) noexcept nogil:
    """One block; returns its end."""
    cdef word_type base = <word_type>plan.base, residual
    cdef uint8_t* positions
    cdef uint8_t* patches
    cdef uint16_t position
    cdef uint64_t high
    cdef Py_ssize_t i
    out[0] = plan.width
    out[1] = plan.patch_count
    out[2] = plan.patch_bytes
    out[3] = 0
    memcpy(out + BLOCK_HEADER, &base, sizeof(word_type))
    out += BLOCK_HEADER + sizeof(word_type)
    if plan.width and count == BLOCK_VALUES:
        _pack_lanes(values, base, plan.width, out)
    elif plan.width:
        _pack_sequence(values, count, base, plan.width, out)
    positions = out + ((count * plan.width + 7) >> 3)
    patches = positions + 2 * plan.patch_count
    if plan.patch_count:
        for i in range(count):
            residual = values[i] - base
            high = <uint64_t>residual >> plan.width
            if high:
                position = <uint16_t>i
                memcpy(positions, &position, 2)
                memcpy(patches, &high, plan.patch_bytes)
                positions += 2
                patches += plan.patch_bytes
    return patches


cdef int64_t _bitpack_size(const word_type* values, Py_ssize_t count, bint signed) noexcept nogil:
    cdef Py_ssize_t at = 0, size
    cdef int64_t total = PAYLOAD_HEADER
    cdef BlockPlan plan
    while at < count:
        size = min(count - at, BLOCK_VALUES)
        _plan_block(values + at, size, signed, &plan)
        total += 4 + _block_bytes(size, sizeof(word_type), &plan)
        at += size
    return (total + 7) & ~<int64_t>7


cdef int64_t _bitpack_encode(
    const word_type* values, Py_ssize_t count, bint signed, uint8_t* out
) noexcept nogil:
    cdef Py_ssize_t blocks = (count + BLOCK_VALUES - 1) // BLOCK_VALUES, block, size
    cdef uint8_t* ends = out + PAYLOAD_HEADER
    cdef uint8_t* body = ends + 4 * blocks
    cdef uint8_t* to = body
    cdef uint32_t word = <uint32_t>count
    cdef BlockPlan plan
    memset(out, 0, PAYLOAD_HEADER)
    out[0] = 8 * sizeof(word_type)
    memcpy(out + 4, &word, 4)
    for block in range(blocks):
        size = min(count - block * BLOCK_VALUES, BLOCK_VALUES)
        _plan_block(values + block * BLOCK_VALUES, size, signed, &plan)
        to = _write_block(values + block * BLOCK_VALUES, size, &plan, to)
        word = <uint32_t>(to - body)
        memcpy(ends + 4 * block, &word, 4)
    while (to - out) & 7:
        to[0] = 0
        to += 1
    return to - out


cdef int _check_integers(cnp.ndarray array) except -1:
    if _letter(array) not in (c'i', c'u'):
        raise TypeError(f"expected whole numbers, got {array.dtype}")
    return 0


cdef int64_t _bitpack_worst(int64_t count, int64_t width) noexcept nogil:
    cdef int64_t blocks = (count + BLOCK_VALUES - 1) // BLOCK_VALUES
    return PAYLOAD_HEADER + blocks * (4 + BLOCK_HEADER + width) + count * width + 8


def bitpack_size(values):
    """Bytes that `bitpack_encode` would make of whole numbers, shape (n,)."""
    cdef cnp.ndarray array = _input(values)
    cdef const void* data = cnp.PyArray_DATA(array)
    cdef Py_ssize_t width = array.itemsize, count = array.shape[0]
    cdef bint signed = _letter(array) == c'i'
    cdef int64_t total = 0
    _check_integers(array)
    with nogil:
        if width == 1:
            total = _bitpack_size(<const uint8_t*>data, count, signed)
        elif width == 2:
            total = _bitpack_size(<const uint16_t*>data, count, signed)
        elif width == 4:
            total = _bitpack_size(<const uint32_t*>data, count, signed)
        else:
            total = _bitpack_size(<const uint64_t*>data, count, signed)
    return total


def bitpack_encode(values):
    """Whole numbers as a payload of `fermion.encodings.bitpack`; ``uint8``, a new array."""
    cdef cnp.ndarray array = _input(values)
    cdef const void* data = cnp.PyArray_DATA(array)
    cdef Py_ssize_t width = array.itemsize, count = array.shape[0]
    cdef bint signed = _letter(array) == c'i'
    cdef int64_t worst = _bitpack_worst(count, width), total
    _check_integers(array)
    if worst > <int64_t>0xFFFFFFFF:
        raise ValueError(f"{count} values of {width} bytes do not fit into 4 GiB")
    result = np.empty(worst, np.uint8)
    cdef uint8_t* out = _bytes_out(result)
    with nogil:
        if width == 1:
            total = _bitpack_encode(<const uint8_t*>data, count, signed, out)
        elif width == 2:
            total = _bitpack_encode(<const uint16_t*>data, count, signed, out)
        elif width == 4:
            total = _bitpack_encode(<const uint32_t*>data, count, signed, out)
        else:
            total = _bitpack_encode(<const uint64_t*>data, count, signed, out)
    return result[:total]


cdef bint _is_bitpacked(
    const uint8_t* payload, int64_t size, Py_ssize_t width, int64_t count
) noexcept nogil:
    """Whether a payload says that it holds so many values of this width, and has their table."""
    cdef int64_t blocks = (count + BLOCK_VALUES - 1) // BLOCK_VALUES
    cdef uint32_t stored
    if size < PAYLOAD_HEADER + 4 * blocks:
        return False
    memcpy(&stored, payload + 4, 4)
    return (
        payload[0] == 8 * width
        and not (payload[1] | payload[2] | payload[3])
        and <int64_t>stored == count
    )


cdef int _unpack_all(
    const uint8_t* payload, int64_t size, Py_ssize_t width, int64_t start, int64_t stop,
    int64_t count, void* out, Py_ssize_t* block,
) noexcept nogil:
    if width == 1:
        return _bitpack_decode(payload, size, count, start, stop, <uint8_t*>out, block)
    if width == 2:
        return _bitpack_decode(payload, size, count, start, stop, <uint16_t*>out, block)
    if width == 4:
        return _bitpack_decode(payload, size, count, start, stop, <uint32_t*>out, block)
    return _bitpack_decode(payload, size, count, start, stop, <uint64_t*>out, block)


cdef dict _BLOCK_ERRORS = {
    BLOCK_OUTSIDE: "its end offset decreases or lies outside of the payload",
    BLOCK_WIDTH: "its width is more than the type has bits, or a reserved byte is set",
    BLOCK_SIZE: "its size is not what its header says",
    BLOCK_PATCH: "a patch lies outside of the block or out of order, or is too wide",
}


def bitpack_decode(const uint8_t[::1] payload, int64_t count, int64_t start, int64_t stop, out):
    """Decode values ``start`` to ``stop`` (exclusive) of a payload of ``count`` values."""
    cdef cnp.ndarray target = _output(out)
    cdef void* data = cnp.PyArray_DATA(target)
    cdef Py_ssize_t width = target.itemsize, block = 0
    cdef int64_t size = payload.shape[0], blocks
    cdef uint32_t stored
    cdef int error = BLOCK_FINE
    cdef const uint8_t* source
    _check_integers(target)
    if not 0 <= start <= stop <= count <= 0xFFFFFFFF:
        raise ValueError(f"slots {start} to {stop} are outside of {count} values")
    _same_length(target.shape[0], stop - start, "out")
    blocks = (count + BLOCK_VALUES - 1) // BLOCK_VALUES
    if size < PAYLOAD_HEADER + 4 * blocks:
        raise ValueError(
            f"expected at least {PAYLOAD_HEADER + 4 * blocks} bytes for {count} values, "
            f"found {size}"
        )
    source = &payload[0]
    memcpy(&stored, source + 4, 4)
    if not _is_bitpacked(source, size, width, count):
        raise ValueError(
            f"expected {count} values of {8 * width} bits, found {stored} of {source[0]}"
        )
    with nogil:
        error = _unpack_all(source, size, width, start, stop, count, data, &block)
    if error:
        raise ValueError(f"block {block}: {_BLOCK_ERRORS[error]}")
