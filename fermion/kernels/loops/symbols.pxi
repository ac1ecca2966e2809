# Symbols of FSST written out or counted; see fsst.pxi.

cdef struct Decoded:
    int64_t at  # codes used
    int64_t written
    int32_t seen  # sizes of the symbols used, or-ed


cdef inline bint _has_escape(uint32_t four) noexcept nogil:
    """Whether one of four bytes is 255."""
    return ((~four - <uint32_t>0x01010101) & four & <uint32_t>0x80808080) != 0


cdef void _write_symbols(
    const uint64_t* words, const uint8_t* sizes, const uint8_t* codes, int64_t count,
    uint8_t* out, int64_t size, Decoded* state,
) noexcept nogil:
    """Write symbols, whole words at a time, until the output or the codes are nearly used up.

    A word may reach 7 bytes past its symbol, and an unknown code counts as 16 bytes, so four of
    them need 64 bytes of room.
    """
    cdef int64_t at = state.at, to = state.written
    cdef int32_t seen = 0, a, b, c, d
    cdef uint32_t four
    while at + 4 <= count and to + 64 <= size:
        memcpy(&four, codes + at, 4)
        if not _has_escape(four):
            a, b = sizes[codes[at]], sizes[codes[at + 1]]
            c, d = sizes[codes[at + 2]], sizes[codes[at + 3]]
            memcpy(out + to, &words[codes[at]], 8)
            to += a
            memcpy(out + to, &words[codes[at + 1]], 8)
            to += b
            memcpy(out + to, &words[codes[at + 2]], 8)
            to += c
            memcpy(out + to, &words[codes[at + 3]], 8)
            to += d
            seen |= a | b | c | d
            at += 4
        elif codes[at] == ESCAPE:
            out[to] = codes[at + 1]
            to += 1
            at += 2
        else:
            memcpy(out + to, &words[codes[at]], 8)
            to += sizes[codes[at]]
            seen |= sizes[codes[at]]
            at += 1
    state.at, state.written = at, to
    state.seen |= seen


cdef void _skip_last_symbols(
    const uint8_t* sizes, const uint8_t* codes, int64_t count, int64_t size, Decoded* state
) noexcept nogil:
    """The same four at a time, up to the last ones."""
    cdef int64_t at = state.at, to = state.written
    cdef int32_t a, b, c, d, seen = 0
    cdef uint32_t four
    while at + 4 <= count:
        memcpy(&four, codes + at, 4)
        if _has_escape(four):
            if to >= size:
                break
            if codes[at] == ESCAPE:
                to += 1
                at += 2
            elif to + sizes[codes[at]] <= size:
                to += sizes[codes[at]]
                seen |= sizes[codes[at]]
                at += 1
            else:
                break
            continue
        a, b = sizes[codes[at]], sizes[codes[at + 1]]
        c, d = sizes[codes[at + 2]], sizes[codes[at + 3]]
        if to + a + b + c + d > size:
            break
        to += a + b + c + d
        seen |= a | b | c | d
        at += 4
    state.at, state.written = at, to
    state.seen |= seen


cdef void _skip_symbols(
    const uint8_t* sizes, const uint8_t* codes, int64_t count, int64_t size, Decoded* state
) noexcept nogil:
    """Count the bytes of symbols, eight at a time, as long as they end before ``size``.

    An unknown code counts as 16 bytes, so that eight are no more than 128.
    """
    cdef int64_t at = state.at, to = state.written
    cdef int32_t a, b, c, d, e, f, g, h, seen = 0
    cdef uint64_t eight
    while at + 8 <= count and to + 128 <= size:
        memcpy(&eight, codes + at, 8)
        if ((~eight - <uint64_t>0x0101010101010101) & eight & <uint64_t>0x8080808080808080) != 0:
            if codes[at] == ESCAPE:
                to += 1
                at += 2
            else:
                to += sizes[codes[at]]
                seen |= sizes[codes[at]]
                at += 1
            continue
        a, b = sizes[eight & 0xFF], sizes[eight >> 8 & 0xFF]
        c, d = sizes[eight >> 16 & 0xFF], sizes[eight >> 24 & 0xFF]
        e, f = sizes[eight >> 32 & 0xFF], sizes[eight >> 40 & 0xFF]
        g, h = sizes[eight >> 48 & 0xFF], sizes[eight >> 56]
        to += ((a + b) + (c + d)) + ((e + f) + (g + h))
        seen |= ((a | b) | (c | d)) | ((e | f) | (g | h))
        at += 8
    state.at, state.written = at, to
    state.seen |= seen
    _skip_last_symbols(sizes, codes, count, size, state)


cdef bint _write_last_symbols(
    const uint64_t* words, const uint8_t* sizes, const uint8_t* codes, int64_t count,
    uint8_t* out, int64_t size, Decoded* state,
) noexcept nogil:
    """The same symbol by symbol, up to the last byte of the output; NULL only counts.

    False where the codes end before that.
    """
    cdef int64_t i, at = state.at, to = state.written
    cdef int32_t width
    while to < size and at < count:
        if codes[at] == ESCAPE:
            if at + 1 == count:
                break
            if out is not NULL:
                out[to] = codes[at + 1]
            to += 1
            at += 2
            continue
        width = sizes[codes[at]]
        state.seen |= width
        if out is not NULL:
            for i in range(min(width, size - to, <int64_t>SYMBOL_BYTES_MAX)):
                out[to + i] = <uint8_t>(words[codes[at]] >> (8 * i))
        to += width
        at += 1
    state.at, state.written = at, to
    return to >= size


cdef bint _write_few_symbols(
    const uint64_t* words, const uint8_t* sizes, const uint8_t* codes, int64_t count,
    uint8_t* out, int64_t size, Decoded* state,
) noexcept nogil:
    """The same where 8 bytes may be written behind the output."""
    cdef int64_t at = state.at, to = state.written
    cdef int32_t code, seen = 0
    while to < size and at < count:
        code = codes[at]
        if code == ESCAPE:
            if at + 1 == count:
                break
            out[to] = codes[at + 1]
            to += 1
            at += 2
        else:
            memcpy(out + to, &words[code], 8)
            to += sizes[code]
            seen |= sizes[code]
            at += 1
    state.at, state.written = at, to
    state.seen |= seen
    return to >= size
