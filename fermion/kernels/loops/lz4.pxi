# LZ4 blocks: runs of literal bytes, each followed by a copy of bytes written before.

cdef enum:
    LZ4_MATCH_MIN = 4
    LZ4_OK = 0
    LZ4_ENDS_EARLY = 1
    LZ4_TOO_LONG = 2
    LZ4_NO_SOURCE = 3


cdef inline int64_t _lz4_length(
    const uint8_t* block, int64_t count, int64_t at, int64_t* length
) noexcept nogil:
    """Add up the bytes that lengthen a length of 15; where they end, or -1 past the end."""
    cdef uint8_t more = 255
    while more == 255:
        if at >= count:
            return -1
        more = block[at]
        length[0] += more
        at += 1
    return at


cdef inline void _copy_match(
    uint8_t* out, int64_t to, int64_t distance, int64_t length, int64_t size
) noexcept nogil:
    """Copy bytes from ``distance`` before; they may overlap, and then repeat.

    Up to 7 bytes more are written where there is room, which the next run overwrites.
    """
    cdef int64_t step = distance, first, i
    while step < 8:
        step += distance
    if step == distance:
        first = 0
    else:
        first = min(length, step)
        for i in range(first):
            out[to + i] = out[to + i - distance]
    if size - to < length + 8:
        for i in range(first, length):
            out[to + i] = out[to + i - step]
        return
    i = first
    while i < length:
        memcpy(out + to + i, out + to + i - step, 8)
        i += 8


cdef int _lz4_decode(
    const uint8_t* block, int64_t count, uint8_t* out, int64_t size, int64_t* used
) noexcept nogil:
    cdef int64_t at = 0, to = 0, length, distance
    cdef uint8_t token
    while at < count:
        token = block[at]
        at += 1
        length = token >> 4
        if length == 15:
            at = _lz4_length(block, count, at, &length)
        if at < 0 or length > count - at:
            return LZ4_ENDS_EARLY
        if length > size - to:
            return LZ4_TOO_LONG
        if length <= 16 and count - at >= 16 and size - to >= 16:
            memcpy(out + to, block + at, 16)
        else:
            memcpy(out + to, block + at, length)
        at += length
        to += length
        if to == size:
            used[0] = at
            return LZ4_OK
        if count - at < 2:
            return LZ4_ENDS_EARLY
        distance = block[at] | <int64_t>block[at + 1] << 8
        at += 2
        length = token & 15
        if length == 15:
            at = _lz4_length(block, count, at, &length)
            if at < 0:
                return LZ4_ENDS_EARLY
        length += LZ4_MATCH_MIN
        if distance == 0 or distance > to:
            return LZ4_NO_SOURCE
        if length > size - to:
            return LZ4_TOO_LONG
        _copy_match(out, to, distance, length, size)
        to += length
    return LZ4_ENDS_EARLY


def lz4_decode(const uint8_t[::1] block, uint8_t[::1] out):
    """Fill ``out`` from an LZ4 block."""
    cdef uint8_t nothing = 0
    cdef int64_t used = 0, count = block.shape[0], size = out.shape[0]
    cdef const uint8_t* source = &block[0] if count else &nothing
    cdef uint8_t* target = &out[0] if size else &nothing
    cdef int problem
    with nogil:
        problem = _lz4_decode(source, count, target, size, &used)
    if problem == LZ4_ENDS_EARLY:
        raise ValueError(f"the block of {count} bytes ends before it gave {size} bytes")
    if problem == LZ4_TOO_LONG:
        raise ValueError(f"the block holds more than {size} bytes")
    if problem == LZ4_NO_SOURCE:
        raise ValueError("the block copies bytes from before its start")
    return used
