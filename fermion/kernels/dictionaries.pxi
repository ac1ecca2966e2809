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


cdef inline uint64_t _hash_bytes(const uint8_t* value, int64_t length) noexcept nogil:
    cdef uint64_t state = _mix(<uint64_t>length + 1), word
    while length > 8:
        memcpy(&word, value, 8)
        state = _mix(state ^ word)
        value += 8
        length -= 8
    word = 0
    if length == 8:
        memcpy(&word, value, 8)
    else:
        memcpy(&word, value, length)
    return _mix(state ^ word)


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


ctypedef fused word_type:
    uint8_t
    uint16_t
    uint32_t
    uint64_t


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
    cdef int64_t code, other, start, length = width
    for i in range(count):
        start = i * width
        if offsets is not NULL:
            start = offsets[i]
            length = offsets[i + 1] - start
        hash = _hash_bytes(data + start, length)
        at = hash & table.mask
        while True:
            code = <int64_t>table.slots[at].code - 1
            if code < 0:
                break
            if table.slots[at].hash == hash:
                other = first[code]
                if offsets is NULL:
                    if memcmp(data + other * width, data + start, length) == 0:
                        break
                elif (
                    offsets[other + 1] - offsets[other] == length
                    and memcmp(data + offsets[other], data + start, length) == 0
                ):
                    break
            at = (at + 1) & table.mask
        if code < 0:
            code = _table_insert(table, at, hash, limit)
            if code < 0:
                return code
            first[code] = i
        codes[i] = <uint32_t>code
    return table.count


cdef object _build_dictionary(
    const uint8_t* data, const int64_t* offsets, int64_t width, Py_ssize_t count, int64_t limit
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
    if not _table_open(&table, 1024):
        raise MemoryError("no memory for a hash table of 1024 slots")
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
                size = _encode_bytes(data, offsets, width, count, limit, &table, codes, first)
    finally:
        free(table.slots)
    if size == -2:
        raise MemoryError(f"no memory to grow a hash table of {table.count} values")
    return None if size < 0 else (codes_array, first_array[:size].copy())


def build_dictionary(values, int64_t limit):
    cdef cnp.ndarray array = _input(values)
    if array.dtype.hasobject:
        raise TypeError(f"expected fixed-width values, got {array.dtype}")
    # NumPy calls void and odd arrays aligned; words must be.
    if array.itemsize in (2, 4, 8) and <uintptr_t>cnp.PyArray_DATA(array) % array.itemsize:
        array = array.copy()
    return _build_dictionary(_bytes_in(array), NULL, array.itemsize, array.shape[0], limit)


def build_dictionary_binary(offsets, const uint8_t[::1] data, int64_t limit):
    cdef const int64_t[::1] ends = _input(offsets)
    cdef uint8_t nothing = 0
    _check_offsets(ends, data.shape[0])
    return _build_dictionary(
        &data[0] if data.shape[0] else &nothing, &ends[0], 0, ends.shape[0] - 1, limit
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


cdef void _gather_strings(
    const int64_t* ends,
    const uint8_t* data,
    int64_t data_size,
    const uint32_t* codes,
    Py_ssize_t count,
    uint8_t* out,
    int64_t out_size,
) noexcept nogil:
    cdef Py_ssize_t i
    cdef int64_t start, length, to = 0
    for i in range(count):
        start = ends[codes[i]]
        length = ends[<size_t>codes[i] + 1] - start
        # Short values are copied as 16 bytes where there is room: what lies beyond is
        # overwritten by the next value.
        if length <= 16 and start + 16 <= data_size and to + 16 <= out_size:
            memcpy(out + to, data + start, 16)
        else:
            memcpy(out + to, data + start, length)
        to += length


def gather_binary_data(dict_offsets, const uint8_t[::1] dict_data, codes, out_offsets, uint8_t[::1] out_data):
    cdef const int64_t[::1] ends = _input(dict_offsets)
    cdef const uint32_t[::1] indices = _input(codes)
    cdef const int64_t[::1] to = _input(out_offsets)
    cdef Py_ssize_t i
    cdef uint64_t total = 0
    _check_offsets(ends, dict_data.shape[0])
    _same_length(to.shape[0], indices.shape[0] + 1, "out_offsets")
    _check_codes(indices, ends.shape[0] - 1)
    with nogil:
        for i in range(indices.shape[0]):
            total += <uint64_t>(ends[<size_t>indices[i] + 1] - ends[indices[i]])
            if total > <uint64_t>out_data.shape[0]:
                break
    if total != <uint64_t>out_data.shape[0]:
        raise ValueError(f"out_data has {out_data.shape[0]} bytes, expected {total}")
    if total:
        with nogil:
            _gather_strings(
                &ends[0], &dict_data[0], dict_data.shape[0],
                &indices[0], indices.shape[0], &out_data[0], out_data.shape[0],
            )
