# Building dictionaries by hashing, and gathering values by code.

cdef struct Slot:
    uint64_t hash
    uint32_t code  # code + 1; 0 is an empty slot


cdef struct HashTable:
    Slot* slots
    uint64_t mask
    uint32_t count


cdef inline uint64_t _mix(uint64_t word) noexcept nogil:
    """A bijection that spreads every bit over the word."""
    word ^= word >> 32
    word *= <uint64_t>0xD6E8FEB86659FD93
    word ^= word >> 32
    word *= <uint64_t>0xD6E8FEB86659FD93
    word ^= word >> 32
    return word


cdef inline uint64_t _hash_bytes(
    const uint8_t* value, int64_t length, int64_t readable
) noexcept nogil:
    """For up to 8 bytes, equal lengths and hashes mean equal bytes: every step is 1:1."""
    cdef uint64_t left = <uint64_t>length * <uint64_t>0x9E3779B97F4A7C15, right = 0, word
    while length > 16:
        memcpy(&word, value, 8)
        left = (left ^ word) * <uint64_t>0xD6E8FEB86659FD93
        left ^= left >> 29
        memcpy(&word, value + 8, 8)
        right = (right ^ word) * <uint64_t>0x9E3779B97F4A7C15
        right ^= right >> 31
        value += 16
        length -= 16
        readable -= 16
    if length > 8:
        memcpy(&word, value, 8)
        right ^= _mix(word)
        value += 8
        length -= 8
        readable -= 8
    return _mix(left ^ (right << 1) ^ _load_prefix(value, length, readable))


cdef inline bint _equal_bytes(
    const uint8_t* left, const uint8_t* right, int64_t length
) noexcept nogil:
    """Whether more than 8 bytes are equal; up to 16 by two overlapping words."""
    cdef uint64_t a, b, c, d
    if length > 16:
        return memcmp(left, right, length) == 0
    memcpy(&a, left, 8)
    memcpy(&b, right, 8)
    memcpy(&c, left + length - 8, 8)
    memcpy(&d, right + length - 8, 8)
    return ((a ^ b) | (c ^ d)) == 0


cdef bint _table_open(HashTable* table, uint64_t size) noexcept nogil:
    table.slots = <Slot*>calloc(size, sizeof(Slot))
    table.mask = size - 1
    table.count = 0
    return table.slots is not NULL


cdef bint _table_grow(HashTable* table) noexcept nogil:
    """Four times the slots; False when out of memory, the table then stays as it was."""
    cdef HashTable larger
    cdef uint64_t at, to
    if not _table_open(&larger, 4 * (table.mask + 1)):
        return False
    for at in range(table.mask + 1):
        if table.slots[at].code:
            to = table.slots[at].hash & larger.mask
            while larger.slots[to].code:
                to = (to + 1) & larger.mask
            larger.slots[to] = table.slots[at]
    larger.count = table.count
    free(table.slots)
    table[0] = larger
    return True


cdef inline int64_t _table_insert(
    HashTable* table, uint64_t at, uint64_t hash, int64_t limit
) noexcept nogil:
    """The code of a new value at an empty slot; -1 over the limit, -2 out of memory."""
    if table.count >= limit:
        return -1
    table.count += 1
    table.slots[at].hash = hash
    table.slots[at].code = table.count
    if 2 * <uint64_t>table.count > table.mask and not _table_grow(table):
        return -2
    return <int64_t>table.count - 1


cdef int64_t _encode_words(
    const word_type* values,
    Py_ssize_t count,
    int64_t limit,
    HashTable* table,
    uint32_t* codes,
    int64_t* first,
) noexcept nogil:
    """Codes of values up to 8 bytes wide: equal hashes mean equal values, for `_mix` is 1:1."""
    cdef Py_ssize_t i
    cdef uint64_t at, hash
    cdef int64_t code
    for i in range(count):
        hash = _mix(values[i])
        at = hash & table.mask
        while table.slots[at].code and table.slots[at].hash != hash:
            at = (at + 1) & table.mask
        code = <int64_t>table.slots[at].code - 1
        if code < 0:
            code = _table_insert(table, at, hash, limit)
            if code < 0:
                return code
            first[code] = i
        codes[i] = <uint32_t>code
    return table.count


cdef int64_t _encode_bytes(
    const uint8_t* data,
    int64_t data_size,
    const int64_t* offsets,
    int64_t width,
    Py_ssize_t count,
    int64_t limit,
    HashTable* table,
    uint32_t* codes,
    int64_t* first,
) noexcept nogil:
    """Codes of byte strings: ``width`` bytes each, or between offsets where those are given."""
    cdef Py_ssize_t i
    cdef uint64_t at, hash
    cdef int64_t code, other, start, other_start, length = width, other_length = width
    for i in range(count):
        start = i * width
        if offsets is not NULL:
            start = offsets[i]
            length = offsets[i + 1] - start
        hash = _hash_bytes(data + start, length, data_size - start)
        at = hash & table.mask
        while table.slots[at].code:
            if table.slots[at].hash == hash:
                other = first[table.slots[at].code - 1]
                other_start = other * width
                if offsets is not NULL:
                    other_start = offsets[other]
                    other_length = offsets[other + 1] - other_start
                if length == other_length and (
                    length <= 8 or _equal_bytes(data + start, data + other_start, length)
                ):
                    break
            at = (at + 1) & table.mask
        code = <int64_t>table.slots[at].code - 1
        if code < 0:
            code = _table_insert(table, at, hash, limit)
            if code < 0:
                return code
            first[code] = i
        codes[i] = <uint32_t>code
    return table.count


cdef object _build_dictionary(
    const uint8_t* data,
    int64_t data_size,
    const int64_t* offsets,
    int64_t width,
    Py_ssize_t count,
    int64_t limit,
):
    if limit < 0:
        raise ValueError(f"limit is {limit}, expected at least 0")
    limit = min(min(limit, count), <int64_t>0xFFFFFFFE)
    codes_array = np.empty(count, np.uint32)
    first_array = np.empty(limit, np.int64)
    cdef uint32_t* codes = <uint32_t*>cnp.PyArray_DATA(codes_array)
    cdef int64_t* first = <int64_t*>cnp.PyArray_DATA(first_array)
    cdef HashTable table
    cdef int64_t size
    cdef uint64_t slots = 64
    while slots < 1024 and slots < 2 * <uint64_t>limit:
        slots *= 2
    if not _table_open(&table, slots):
        raise MemoryError(f"no memory for a hash table of {slots} slots")
    try:
        with nogil:
            if offsets is NULL and width == 1:
                size = _encode_words(<const uint8_t*>data, count, limit, &table, codes, first)
            elif offsets is NULL and width == 2:
                size = _encode_words(<const uint16_t*>data, count, limit, &table, codes, first)
            elif offsets is NULL and width == 4:
                size = _encode_words(<const uint32_t*>data, count, limit, &table, codes, first)
            elif offsets is NULL and width == 8:
                size = _encode_words(<const uint64_t*>data, count, limit, &table, codes, first)
            else:
                size = _encode_bytes(
                    data, data_size, offsets, width, count, limit, &table, codes, first
                )
    finally:
        free(table.slots)
    if size == -2:
        raise MemoryError(f"no memory to grow a hash table of {table.count} values")
    return None if size < 0 else (codes_array, first_array[:size].copy())


def build_dictionary(values, int64_t limit):
    """Distinct values and their codes; equal means equal bytes."""
    cdef cnp.ndarray array = _input(values)
    if array.dtype.hasobject:
        raise TypeError(f"expected fixed-width values, got {array.dtype}")
    if array.itemsize in (2, 4, 8) and not _is_aligned(array):
        array = array.copy()
    return _build_dictionary(
        _bytes_in(array), cnp.PyArray_NBYTES(array), NULL, array.itemsize, array.shape[0], limit
    )


def build_dictionary_binary(offsets, const uint8_t[::1] data, int64_t limit):
    """As `build_dictionary`, for byte strings given by ``int64`` offsets and ``uint8`` data."""
    cdef const int64_t[::1] ends = _input(offsets)
    cdef uint8_t nothing = 0
    _check_offsets(ends, data.shape[0])
    return _build_dictionary(
        &data[0] if data.shape[0] else &nothing,
        data.shape[0], &ends[0], 0, ends.shape[0] - 1, limit,
    )


cdef void _gather_words(
    const uint8_t* dictionary, const uint32_t* codes, Py_ssize_t count, uint8_t* out,
    Py_ssize_t width,
) noexcept nogil:
    cdef Py_ssize_t i
    if width == 1:
        for i in range(count):
            out[i] = dictionary[codes[i]]
    elif width == 2:
        for i in range(count):
            memcpy(out + 2 * i, dictionary + 2 * <size_t>codes[i], 2)
    elif width == 4:
        for i in range(count):
            memcpy(out + 4 * i, dictionary + 4 * <size_t>codes[i], 4)
    elif width == 8:
        for i in range(count):
            memcpy(out + 8 * i, dictionary + 8 * <size_t>codes[i], 8)
    elif width == 16:
        for i in range(count):
            memcpy(out + 16 * i, dictionary + 16 * <size_t>codes[i], 16)
    else:
        for i in range(count):
            memcpy(out + width * i, dictionary + width * <size_t>codes[i], width)


def gather_fixed(dictionary, codes, out):
    """``out[:] = dictionary[codes]``."""
    cdef cnp.ndarray values = _input(dictionary)
    cdef const uint32_t[::1] indices = _input(codes)
    cdef cnp.ndarray target = _output(out)
    if values.itemsize != target.itemsize:
        raise ValueError(f"out has items of {target.itemsize} bytes, expected {values.itemsize}")
    _same_length(target.shape[0], indices.shape[0], "out")
    _check_codes(indices, values.shape[0])
    cdef const uint8_t* source = _bytes_in(values)
    cdef uint8_t* to = _bytes_out(target)
    cdef Py_ssize_t width = values.itemsize
    if indices.shape[0]:
        with nogil:
            _gather_words(source, &indices[0], indices.shape[0], to, width)


def gather_binary(dict_offsets, const uint8_t[::1] dict_data, codes, int64_t[::1] out_offsets):
    """Offsets of the byte strings that codes stand for."""
    cdef const int64_t[::1] ends = _input(dict_offsets)
    cdef const uint32_t[::1] indices = _input(codes)
    cdef Py_ssize_t i
    cdef int64_t total = 0
    cdef uint64_t seen = 0
    _check_offsets(ends, dict_data.shape[0])
    _same_length(out_offsets.shape[0], indices.shape[0] + 1, "out_offsets")
    _check_codes(indices, ends.shape[0] - 1)
    with nogil:
        out_offsets[0] = 0
        for i in range(indices.shape[0]):
            total += ends[<size_t>indices[i] + 1] - ends[indices[i]]
            seen |= <uint64_t>total
            out_offsets[i + 1] = total
    if seen >> 63:
        raise ValueError("the gathered values are longer than 2**63 - 1 bytes")
    return total


cdef bint _gather_strings(
    const int64_t* ends,
    const uint8_t* data,
    int64_t data_size,
    const uint32_t* codes,
    Py_ssize_t count,
    uint8_t* out,
    int64_t out_size,
) noexcept nogil:
    """False, and no byte written past the end, where the strings do not fill ``out`` exactly."""
    cdef Py_ssize_t i
    cdef int64_t start, length, to = 0
    for i in range(count):
        start = ends[codes[i]]
        length = ends[<size_t>codes[i] + 1] - start
        # Short values are copied as 32 bytes where there is room: what lies beyond is
        # overwritten by the next value.
        if length <= 32 and start <= data_size - 32 and to <= out_size - 32:
            memcpy(out + to, data + start, 32)
        elif length > out_size - to:
            return False
        else:
            memcpy(out + to, data + start, length)
        to += length
    return to == out_size


def gather_binary_data(
    dict_offsets, const uint8_t[::1] dict_data, codes, out_offsets, uint8_t[::1] out_data
):
    """Bytes of the byte strings that codes stand for; ``out_data`` must fit exactly."""
    cdef const int64_t[::1] ends = _input(dict_offsets)
    cdef const uint32_t[::1] indices = _input(codes)
    cdef const int64_t[::1] to = _input(out_offsets)
    cdef uint8_t nothing = 0
    cdef const uint8_t* source = &dict_data[0] if dict_data.shape[0] else &nothing
    cdef uint8_t* target = &out_data[0] if out_data.shape[0] else &nothing
    cdef bint fits = out_data.shape[0] == 0
    _check_offsets(ends, dict_data.shape[0])
    _same_length(to.shape[0], indices.shape[0] + 1, "out_offsets")
    _check_codes(indices, ends.shape[0] - 1)
    if indices.shape[0]:
        with nogil:
            fits = _gather_strings(
                &ends[0], source, dict_data.shape[0],
                &indices[0], indices.shape[0], target, out_data.shape[0],
            )
    if not fits:
        raise ValueError(
            f"out_data has {out_data.shape[0]} bytes, which the gathered values do not fill exactly"
        )
