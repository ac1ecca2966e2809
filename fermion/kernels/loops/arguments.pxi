# Checks of arguments, shared by all kernels; also the fused types the loops are written for.

cdef extern from "portable.h":
    int fermion_popcount64(uint64_t) noexcept nogil
    int fermion_trailing_zeros64(uint64_t) noexcept nogil
    int fermion_leading_zeros64(uint64_t) noexcept nogil
    uint64_t fermion_byte_swap64(uint64_t) noexcept nogil

ctypedef fused integer:
    int8_t
    int16_t
    int32_t
    int64_t
    uint8_t
    uint16_t
    uint32_t
    uint64_t

ctypedef fused word_type:
    uint8_t
    uint16_t
    uint32_t
    uint64_t


cdef cnp.ndarray _input(object array):
    """A 1-D array as it is, or a copy where it is strided, byte-swapped or unaligned."""
    cdef cnp.ndarray result = cnp.PyArray_FROM_OF(
        array, cnp.NPY_ARRAY_C_CONTIGUOUS | cnp.NPY_ARRAY_ALIGNED | cnp.NPY_ARRAY_NOTSWAPPED
    )
    if result.ndim != 1:
        raise ValueError(f"expected an array of one dimension, got {result.ndim}")
    return result


cdef cnp.ndarray _output(object array):
    """A 1-D array that a kernel can write in place."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected a NumPy array to write to, got {type(array).__name__}")
    cdef cnp.ndarray result = array
    if result.ndim != 1:
        raise ValueError(f"expected an array of one dimension, got {result.ndim}")
    if not cnp.PyArray_ISCARRAY(result):
        raise ValueError("expected a writable, contiguous, aligned array to write to")
    return result


cdef const uint8_t* _bytes_in(cnp.ndarray array) noexcept:
    return <const uint8_t*>cnp.PyArray_DATA(array)


cdef uint8_t* _bytes_out(cnp.ndarray array) noexcept:
    return <uint8_t*>cnp.PyArray_DATA(array)


cdef char _letter(cnp.ndarray array) noexcept:
    """NumPy's letter for the kind of number: i, u, f, V ...; dates count as signed."""
    cdef char letter = array.descr.kind
    return c'i' if letter == c'M' or letter == c'm' else letter


cdef inline uint64_t _load_prefix(
    const uint8_t* value, int64_t length, int64_t readable
) noexcept nogil:
    """The first 8 bytes of a byte string, zeros after its end; ``readable`` bytes may be read."""
    cdef uint64_t word = 0
    if readable >= 8:
        memcpy(&word, value, 8)
        if length < 8:
            word &= ((<uint64_t>1) << (8 * length)) - 1
    else:
        memcpy(&word, value, min(length, readable))
    return word


cdef int _same_length(Py_ssize_t length, Py_ssize_t expected, str name) except -1:
    if length != expected:
        raise ValueError(f"{name} has {length} elements, expected {expected}")
    return 0


cdef int _bit_range(Py_ssize_t size_bytes, int64_t start, int64_t count, str name) except -1:
    """Bits ``start`` to ``start + count`` (exclusive) lie within ``size_bytes`` bytes."""
    if start < 0 or count < 0:
        raise ValueError(f"{name}: bit {start} and count {count} must not be negative")
    if start > 8 * size_bytes or count > 8 * size_bytes - start:
        raise ValueError(
            f"{name}: bits {start} to {start + count} are outside of {8 * size_bytes} bits"
        )
    return 0


cdef int _check_cuts(const int64_t[::1] cuts, int64_t length) except -1:
    """Cuts are one more than the pages, never decrease, and lie within the values."""
    cdef Py_ssize_t i
    if cuts.shape[0] < 1:
        raise ValueError("cuts must hold at least one element")
    if cuts[0] < 0 or cuts[cuts.shape[0] - 1] > length:
        raise ValueError(
            f"cuts {cuts[0]} to {cuts[cuts.shape[0] - 1]} are outside of {length} values"
        )
    for i in range(1, cuts.shape[0]):
        if cuts[i] < cuts[i - 1]:
            raise ValueError(f"cuts decrease at {i}: {cuts[i - 1]}, {cuts[i]}")
    return 0


cdef int _check_offsets(const int64_t[::1] offsets, int64_t size_bytes) except -1:
    """Offsets are one more than the values, never decrease, and lie within the bytes."""
    cdef Py_ssize_t i, count = offsets.shape[0]
    cdef bint decreasing = False
    if count < 1:
        raise ValueError("offsets must hold at least one element")
    if offsets[0] < 0 or offsets[count - 1] > size_bytes:
        raise ValueError(
            f"offsets {offsets[0]} to {offsets[count - 1]} are outside of {size_bytes} bytes"
        )
    with nogil:
        for i in range(1, count):
            decreasing |= offsets[i] < offsets[i - 1]
    if decreasing:
        raise ValueError("offsets decrease")
    return 0


cdef int _check_codes(const uint32_t[::1] codes, Py_ssize_t size) except -1:
    """Codes are below the size of the dictionary."""
    cdef Py_ssize_t i, count = codes.shape[0]
    cdef uint32_t lane, top = 0
    with nogil:
        for i in range(count):
            lane = codes[i]
            top = lane if lane > top else top
    if count and top >= <uint64_t>size:
        raise ValueError(f"code {top} is outside of a dictionary of {size} values")
    return 0
