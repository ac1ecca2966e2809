# Differences of neighbours, restarted every 1,024 values.


cdef void _delta_encode(
    const word_type* values, Py_ssize_t count, word_type* out, word_type* bases
) noexcept nogil:
    cdef Py_ssize_t first = 0, i, stop
    while first < count:
        stop = min(first + BLOCK_VALUES, count)
        bases[first // BLOCK_VALUES] = values[first]
        for i in range(first + 1, stop):
            out[i] = values[i] - values[i - 1]
        # A repeated neighbour costs a frame of reference nothing; a zero might.
        out[first] = out[first + 1] if first + 1 < stop else 0
        first = stop


cdef void _delta_decode(
    const word_type* deltas, const word_type* bases, Py_ssize_t count, word_type* out
) noexcept nogil:
    cdef Py_ssize_t first = 0, i, stop
    cdef word_type value
    while first < count:
        stop = min(first + BLOCK_VALUES, count)
        value = bases[first // BLOCK_VALUES]
        out[first] = value
        for i in range(first + 1, stop):
            value += deltas[i]
            out[i] = value
        first = stop


cdef int _check_delta(cnp.ndarray values, cnp.ndarray bases, cnp.ndarray out) except -1:
    cdef Py_ssize_t count = values.shape[0]
    _check_integers(values)
    if bases.itemsize != values.itemsize or out.itemsize != values.itemsize:
        raise ValueError(
            f"values, bases and out have items of {values.itemsize}, {bases.itemsize} and "
            f"{out.itemsize} bytes, expected the same"
        )
    _same_length(bases.shape[0], (count + BLOCK_VALUES - 1) // BLOCK_VALUES, "bases")
    _same_length(out.shape[0], count, "out")
    return 0


def delta_encode(values, out, bases):
    """Differences of neighbours, modulo the width, restarted every 1,024 values."""
    cdef cnp.ndarray source = _input(values), target = _output(out), starts = _output(bases)
    _check_delta(source, starts, target)
    cdef const void* data = cnp.PyArray_DATA(source)
    cdef void* to = cnp.PyArray_DATA(target)
    cdef void* base = cnp.PyArray_DATA(starts)
    cdef Py_ssize_t width = source.itemsize, count = source.shape[0]
    with nogil:
        if width == 1:
            _delta_encode(<const uint8_t*>data, count, <uint8_t*>to, <uint8_t*>base)
        elif width == 2:
            _delta_encode(<const uint16_t*>data, count, <uint16_t*>to, <uint16_t*>base)
        elif width == 4:
            _delta_encode(<const uint32_t*>data, count, <uint32_t*>to, <uint32_t*>base)
        else:
            _delta_encode(<const uint64_t*>data, count, <uint64_t*>to, <uint64_t*>base)


def delta_decode(deltas, bases, out):
    """Undo `delta_encode`; the arrays may begin at any block."""
    cdef cnp.ndarray source = _input(deltas), starts = _input(bases), target = _output(out)
    _check_delta(source, starts, target)
    cdef const void* data = cnp.PyArray_DATA(source)
    cdef const void* base = cnp.PyArray_DATA(starts)
    cdef void* to = cnp.PyArray_DATA(target)
    cdef Py_ssize_t width = source.itemsize, count = source.shape[0]
    with nogil:
        if width == 1:
            _delta_decode(<const uint8_t*>data, <const uint8_t*>base, count, <uint8_t*>to)
        elif width == 2:
            _delta_decode(<const uint16_t*>data, <const uint16_t*>base, count, <uint16_t*>to)
        elif width == 4:
            _delta_decode(<const uint32_t*>data, <const uint32_t*>base, count, <uint32_t*>to)
        else:
            _delta_decode(<const uint64_t*>data, <const uint64_t*>base, count, <uint64_t*>to)
