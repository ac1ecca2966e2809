# The order of whole numbers: least significant digit first (Knuth, The Art of Computer Programming,
# volume 3, section 5.2.5).

cdef enum:
    DIGIT_BITS = 11
    DIGITS = 1 << DIGIT_BITS


cdef void _by_digit(
    const uint64_t* keys, const uint32_t* rows, uint64_t* to_keys, uint32_t* to_rows,
    int64_t count, int shift, int64_t* starts
) noexcept nogil:
    """Move keys with their rows to where their digit belongs; ``starts`` counts its keys before."""
    cdef int64_t i, place
    cdef int64_t total = 0, here
    for i in range(DIGITS):
        here = starts[i]
        starts[i] = total
        total += here
    for i in range(count):
        place = starts[(keys[i] >> shift) & (DIGITS - 1)]
        starts[(keys[i] >> shift) & (DIGITS - 1)] = place + 1
        to_keys[place] = keys[i]
        to_rows[place] = rows[i]


def stable_order(values, int64_t[::1] out):
    """The rows by ascending value, those of equal values as they come."""
    cdef const int64_t[::1] numbers = _input(values)
    cdef int64_t i, count = numbers.shape[0]
    cdef int64_t least, greatest
    cdef uint64_t span
    cdef uint64_t* keys
    cdef uint64_t* to_keys
    cdef uint32_t* rows
    cdef uint32_t* to_rows
    cdef void* memory
    cdef int64_t[DIGITS] starts
    cdef int shift = 0
    _same_length(out.shape[0], count, "out")
    if count == 0:
        return
    if count > UINT32_MAX:
        raise ValueError(f"expected at most {UINT32_MAX} values, found {count}")
    memory = malloc(count * 2 * (sizeof(uint64_t) + sizeof(uint32_t)))
    if memory is NULL:
        raise MemoryError(f"no memory for the order of {count} values")
    keys, to_keys = <uint64_t*>memory, <uint64_t*>memory + count
    rows = <uint32_t*>(to_keys + count)
    to_rows = rows + count
    with nogil:
        least = greatest = numbers[0]
        for i in range(count):
            least, greatest = min(least, numbers[i]), max(greatest, numbers[i])
        span = <uint64_t>greatest - <uint64_t>least
        for i in range(count):
            keys[i] = <uint64_t>numbers[i] - <uint64_t>least
            rows[i] = <uint32_t>i
        while shift < 64 and span >> shift:
            memset(starts, 0, sizeof(starts))
            for i in range(count):
                starts[(keys[i] >> shift) & (DIGITS - 1)] += 1
            if starts[(keys[0] >> shift) & (DIGITS - 1)] < count:
                _by_digit(keys, rows, to_keys, to_rows, count, shift, starts)
                keys, to_keys = to_keys, keys
                rows, to_rows = to_rows, rows
            shift += DIGIT_BITS
        for i in range(count):
            out[i] = rows[i]
    free(memory)
