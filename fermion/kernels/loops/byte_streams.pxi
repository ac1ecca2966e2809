# Bytes of equal place collected: all first bytes of the values, then all second ones...


cdef void _split_bytes(
    const uint8_t* values, Py_ssize_t count, Py_ssize_t width, uint8_t* out
) noexcept nogil:
    cdef Py_ssize_t first = 0, byte, i, stop
    while first < count:
        # A block at a time, so that it stays in the cache while each of its bytes is visited.
        stop = min(first + BLOCK_VALUES, count)
        for byte in range(width):
            for i in range(first, stop):
                out[byte * count + i] = values[i * width + byte]
        first = stop


cdef void _merge_bytes(
    const uint8_t* data, Py_ssize_t count, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t width,
    uint8_t* out,
) noexcept nogil:
    cdef Py_ssize_t first = start, byte, i, end
    while first < stop:
        end = min(first + BLOCK_VALUES, stop)
        for byte in range(width):
            for i in range(first, end):
                out[(i - start) * width + byte] = data[byte * count + i]
        first = end


def byte_stream_split(values, uint8_t[::1] out):
    """First bytes of all values, then all second bytes...; ``out`` is ``uint8``."""
    cdef cnp.ndarray array = _input(values)
    cdef const uint8_t* data = _bytes_in(array)
    cdef Py_ssize_t width = array.itemsize, count = array.shape[0]
    _same_length(out.shape[0], count * width, "out")
    if out.shape[0]:
        with nogil:
            if width == 2:
                _split_bytes(data, count, 2, &out[0])
            elif width == 4:
                _split_bytes(data, count, 4, &out[0])
            elif width == 8:
                _split_bytes(data, count, 8, &out[0])
            else:
                _split_bytes(data, count, width, &out[0])


def byte_stream_merge(const uint8_t[::1] data, int64_t count, int64_t start, int64_t stop, out):
    """Values ``start`` to ``stop`` (exclusive) of ``count`` split ones."""
    cdef cnp.ndarray target = _output(out)
    cdef uint8_t* to = _bytes_out(target)
    cdef Py_ssize_t width = target.itemsize
    if not 0 <= start <= stop <= count:
        raise ValueError(f"slots {start} to {stop} are outside of {count} values")
    if width == 0 or data.shape[0] % width or data.shape[0] // width != count:
        raise ValueError(f"expected {count} values of {width} bytes, found {data.shape[0]} bytes")
    _same_length(target.shape[0], stop - start, "out")
    if stop > start:
        with nogil:
            if width == 2:
                _merge_bytes(&data[0], count, start, stop, 2, to)
            elif width == 4:
                _merge_bytes(&data[0], count, start, stop, 4, to)
            elif width == 8:
                _merge_bytes(&data[0], count, start, stop, 8, to)
            else:
                _merge_bytes(&data[0], count, start, stop, width, to)
