# Lengths to offsets, and ranges of slots.


cdef uint64_t _prefix_sum(const integer* lengths, Py_ssize_t count, int64_t* out) noexcept nogil:
    """Offsets from lengths; the top bit of the result is set after a negative or an overflow."""
    cdef Py_ssize_t i
    cdef uint64_t total = 0, seen = 0
    out[0] = 0
    for i in range(count):
        total += <uint64_t><int64_t>lengths[i]
        seen |= total | <uint64_t><int64_t>lengths[i]
        out[i + 1] = <int64_t>total
    return seen


def lengths_to_offsets(lengths, int64_t[::1] out):
    """Running total of lengths, starting at 0."""
    cdef cnp.ndarray array = _input(lengths)
    cdef const void* data = cnp.PyArray_DATA(array)
    cdef char letter = _letter(array)
    cdef Py_ssize_t width = array.itemsize, count = array.shape[0]
    cdef uint64_t seen = 0
    cdef bint known = True
    _same_length(out.shape[0], count + 1, "out")
    with nogil:
        if letter == c'u' and width == 1:
            seen = _prefix_sum(<const uint8_t*>data, count, &out[0])
        elif letter == c'u' and width == 2:
            seen = _prefix_sum(<const uint16_t*>data, count, &out[0])
        elif letter == c'u' and width == 4:
            seen = _prefix_sum(<const uint32_t*>data, count, &out[0])
        elif letter == c'u' and width == 8:
            seen = _prefix_sum(<const uint64_t*>data, count, &out[0])
        elif letter == c'i' and width == 1:
            seen = _prefix_sum(<const int8_t*>data, count, &out[0])
        elif letter == c'i' and width == 2:
            seen = _prefix_sum(<const int16_t*>data, count, &out[0])
        elif letter == c'i' and width == 4:
            seen = _prefix_sum(<const int32_t*>data, count, &out[0])
        elif letter == c'i' and width == 8:
            seen = _prefix_sum(<const int64_t*>data, count, &out[0])
        else:
            known = False
    if not known:
        raise TypeError(f"lengths must be whole numbers, got {array.dtype}")
    if seen >> 63:
        raise ValueError("a length is negative, or the lengths add up to 2**63 or more")
    return out[count]


cdef int64_t _check_ranges(
    const int64_t[::1] starts, const int64_t[::1] stops, int64_t length
) except -1:
    """The slots in all ranges; each range lies within ``length`` slots."""
    cdef Py_ssize_t i
    cdef int64_t total = 0
    _same_length(stops.shape[0], starts.shape[0], "stops")
    for i in range(starts.shape[0]):
        if starts[i] < 0 or stops[i] < starts[i] or stops[i] > length:
            raise ValueError(f"range {starts[i]} to {stops[i]} is outside of {length} slots")
        total += stops[i] - starts[i]
    return total


def gather_ranges(values, starts, stops, out):
    """Join ``values[starts[i]:stops[i]]`` of all i; ``out`` must fit exactly."""
    cdef cnp.ndarray array = _input(values)
    cdef cnp.ndarray target = _output(out)
    cdef const int64_t[::1] begin = _input(starts)
    cdef const int64_t[::1] end = _input(stops)
    cdef int64_t total = _check_ranges(begin, end, array.shape[0])
    if array.itemsize != target.itemsize:
        raise ValueError(f"out has items of {target.itemsize} bytes, expected {array.itemsize}")
    _same_length(target.shape[0], total, "out")
    cdef const uint8_t* source = _bytes_in(array)
    cdef uint8_t* to = _bytes_out(target)
    cdef Py_ssize_t i, size, width = array.itemsize
    with nogil:
        for i in range(begin.shape[0]):
            size = (end[i] - begin[i]) * width
            memcpy(to, source + begin[i] * width, size)
            to += size


def gather_ranges_bits(const uint8_t[::1] data, starts, stops, uint8_t[::1] out):
    """Join bit ranges, from bit 0 of ``out`` on."""
    cdef const int64_t[::1] begin = _input(starts)
    cdef const int64_t[::1] end = _input(stops)
    cdef int64_t total = _check_ranges(begin, end, 8 * data.shape[0])
    cdef Py_ssize_t i, at = 0
    _bit_range(out.shape[0], 0, total, "out")
    if total:
        with nogil:
            for i in range(begin.shape[0]):
                if end[i] > begin[i]:
                    _copy_bits(&data[0], begin[i], &out[0], at, end[i] - begin[i])
                    at += end[i] - begin[i]
