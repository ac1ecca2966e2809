# What binds the checksum of bytes to their place: a number of a file's key and an offset in it.


cdef inline uint32_t _place(uint64_t key, uint64_t offset) noexcept nogil:
    """The number that a checksum is combined with; 0 for the key 0, which no bound file has."""
    cdef uint64_t mixed
    if key == 0:
        return 0
    # The finalizer of splitmix64.
    mixed = key + offset * <uint64_t>0x9E3779B97F4A7C15
    mixed = (mixed ^ (mixed >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    mixed = (mixed ^ (mixed >> 27)) * <uint64_t>0x94D049BB133111EB
    mixed ^= mixed >> 31
    return <uint32_t>(mixed ^ (mixed >> 32))


def place_of(uint64_t key, uint64_t offset):
    """What the checksum of bytes at an offset of a file is combined with."""
    return _place(key, offset)


def bind_checksum(data, Py_ssize_t at, uint64_t key, uint64_t offset):
    """Combine a checksum within some bytes with their place, in these bytes."""
    cdef Py_buffer view
    cdef uint32_t checksum
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    try:
        if at < 0 or at > view.len - 4:
            raise ValueError(f"a checksum at {at} is outside of {view.len} bytes")
        memcpy(&checksum, <uint8_t*>view.buf + at, 4)
        checksum ^= _place(key, offset)
        memcpy(<uint8_t*>view.buf + at, &checksum, 4)
    finally:
        PyBuffer_Release(&view)


def bind_checksums(data, places, uint64_t key, offsets):
    """Combine checksums within some bytes, each with the place of what it is of."""
    cdef const int64_t[::1] at = _input(places)
    cdef const int64_t[::1] found_at = _input(offsets)
    cdef Py_buffer view
    cdef Py_ssize_t i
    cdef uint32_t checksum
    _same_length(found_at.shape[0], at.shape[0], "offsets")
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    try:
        for i in range(at.shape[0]):
            if at[i] < 0 or at[i] > view.len - 4:
                raise ValueError(f"a checksum at {at[i]} is outside of {view.len} bytes")
        for i in range(at.shape[0]):
            memcpy(&checksum, <uint8_t*>view.buf + at[i], 4)
            checksum ^= _place(key, found_at[i])
            memcpy(<uint8_t*>view.buf + at[i], &checksum, 4)
    finally:
        PyBuffer_Release(&view)
