# Entries of maps, row by row ⇄ a column for each key.


cdef const uint8_t* _bits_or_null(const uint8_t[::1] bits, int64_t count) except? NULL:
    """Bits that say which of ``count`` slots are valid; NULL: all of them are."""
    if bits.shape[0] == 0:
        return NULL
    _bit_range(bits.shape[0], 0, count, "bits")
    return &bits[0]


cdef inline bint _is_set(const uint8_t* bits, int64_t at) noexcept nogil:
    return bits is NULL or (bits[at >> 3] >> (at & 7)) & 1


cdef int _check_rows(const int64_t[::1] rows, int64_t total, int shift) except -1:
    """Rows are below ``total``; without their last ``shift`` bits they never decrease."""
    cdef Py_ssize_t i
    cdef int64_t last = 0
    for i in range(rows.shape[0]):
        if rows[i] >> shift < last or rows[i] >= total:
            raise ValueError(f"row {rows[i]} at {i} is out of order, or outside of {total} rows")
        last = rows[i] >> shift
    return 0


def count_keys(codes, rows, const uint8_t[::1] bits, int64_t[::1] counts):
    """Valid entries of each key; the first entry whose key its row has already, or -1."""
    cdef const uint32_t[::1] keys = _input(codes)
    cdef const int64_t[::1] row_of = _input(rows)
    cdef Py_ssize_t i, found = -1
    _same_length(row_of.shape[0], keys.shape[0], "rows")
    _check_codes(keys, counts.shape[0])
    cdef const uint8_t* valid = _bits_or_null(bits, keys.shape[0])
    cdef int64_t* last
    if keys.shape[0] == 0:
        return found
    last = <int64_t*>malloc(counts.shape[0] * sizeof(int64_t))
    if last is NULL:
        raise MemoryError(f"no memory for {counts.shape[0]} keys")
    with nogil:
        memset(last, 0xFF, counts.shape[0] * sizeof(int64_t))
        for i in range(keys.shape[0]):
            if last[keys[i]] == row_of[i]:
                found = i
                break
            last[keys[i]] = row_of[i]
            counts[keys[i]] += _is_set(valid, i)
    free(last)
    return found


cdef inline void _copy_value(
    const uint8_t* source, int64_t at, uint8_t* out, int64_t to, int64_t width
) noexcept nogil:
    """``out[to] = source[at]``, of aligned values of one width."""
    if width == 4:
        (<uint32_t*>out)[to] = (<const uint32_t*>source)[at]
    elif width == 8:
        (<uint64_t*>out)[to] = (<const uint64_t*>source)[at]
    elif width == 1:
        out[to] = source[at]
    else:
        memcpy(out + to * width, source + at * width, width)


def spread_keys(
    values, codes, rows, const uint8_t[::1] bits, places, int64_t total, out,
    uint8_t[::1] out_bits,
):
    """Put valid values into the columns of their keys, and set their bits there."""
    cdef cnp.ndarray source = _input(values), target = _output(out)
    cdef const uint32_t[::1] keys = _input(codes)
    cdef const int64_t[::1] row_of = _input(rows), place_of = _input(places)
    cdef int64_t columns = target.shape[0] // max(total, 1), size = (total + 7) >> 3
    cdef int64_t i, column, row, width = source.itemsize
    _same_length(row_of.shape[0], keys.shape[0], "rows")
    _same_length(source.shape[0], keys.shape[0], "values")
    _same_length(target.shape[0], columns * total, "out")
    _same_length(out_bits.shape[0], columns * size, "out_bits")
    if target.itemsize != width:
        raise ValueError(f"out has items of {target.itemsize} bytes, expected {width}")
    _check_codes(keys, place_of.shape[0])
    _check_rows(row_of, total, 0)
    cdef const uint8_t* valid = _bits_or_null(bits, keys.shape[0])
    cdef const uint8_t* data = _bytes_in(source)
    cdef uint8_t* to = _bytes_out(target)
    with nogil:
        for i in range(keys.shape[0]):
            column = place_of[keys[i]]
            if 0 <= column < columns and _is_set(valid, i):
                row = row_of[i]
                _copy_value(data, i, to, column * total + row, width)
                out_bits[column * size + (row >> 3)] |= 1 << (row & 7)


cdef struct _Joined:
    int64_t* offsets
    uint32_t* ranks
    uint8_t* values
    int64_t* places


cdef void _join_keys(
    const uint8_t* bits, const uint8_t* values, int64_t width, const uint32_t* ranks,
    int64_t columns, int64_t rows, const int64_t* rest_rows, const uint32_t* rest_ranks,
    int64_t rest, _Joined out,
) noexcept nogil:
    """64 rows after the other: how many entries each has, then these, key by key."""
    cdef int64_t ends[64]
    cdef int64_t at = 0, total = 0, mine = 0, stop = 0, size, column, base, count, i
    cdef uint64_t word, full
    out.offsets[0] = 0
    while at < rows:
        size = min(rows - at, 64)
        full = ~<uint64_t>0 >> (64 - size)
        memset(&ends[0], 0, sizeof(ends))
        while stop < rest and rest_rows[stop] < at + size:
            ends[rest_rows[stop] - at] += 1
            stop += 1
        for column in range(columns):
            word = full if bits is NULL else _load_bits(bits, column * rows + at, size)
            for i in range(64):
                ends[i] += (word >> i) & 1
        for i in range(size):
            count = ends[i]
            ends[i] = total
            total += count
            out.offsets[at + i + 1] = total
        for column in range(columns + 1):
            while mine < stop and (column == columns or rest_ranks[mine] < ranks[column]):
                i = rest_rows[mine] - at
                out.ranks[ends[i]] = rest_ranks[mine]
                out.places[mine] = ends[i]
                ends[i] += 1
                mine += 1
            if column == columns:
                break
            base = column * rows + at
            word = full if bits is NULL else _load_bits(bits, base, size)
            while word:
                i = fermion_trailing_zeros64(word)
                word &= word - 1
                out.ranks[ends[i]] = ranks[column]
                _copy_value(values, base + i, out.values, ends[i], width)
                ends[i] += 1
        at += size


def join_keys(
    values, const uint8_t[::1] bits, ranks, int64_t rows, rest_rows, rest_ranks,
    int64_t[::1] offsets, uint32_t[::1] out_ranks, out, int64_t[::1] places,
):
    """Entries of columns and of the rest, row by row, those of a row by their ranks."""
    cdef cnp.ndarray source = _input(values), target = _output(out)
    cdef const uint32_t[::1] rank_of = _input(ranks), others = _input(rest_ranks)
    cdef const int64_t[::1] others_in = _input(rest_rows)
    cdef int64_t columns = rank_of.shape[0], rest = others.shape[0], count = source.shape[0]
    cdef int64_t width = source.itemsize
    _same_length(others_in.shape[0], rest, "rest_rows")
    _same_length(places.shape[0], rest, "places")
    _same_length(offsets.shape[0], max(rows, 0) + 1, "offsets")
    _same_length(count, columns * rows, "values")
    if target.itemsize != width:
        raise ValueError(f"out has items of {target.itemsize} bytes, expected {width}")
    _check_rows(others_in, rows, 6)
    cdef const uint8_t* valid = _bits_or_null(bits, count)
    cdef int64_t found = rest + (count if valid is NULL else _count_bits(valid, 0, count))
    _same_length(out_ranks.shape[0], found, "out_ranks")
    _same_length(target.shape[0], found, "out")
    cdef const uint8_t* data = _bytes_in(source)
    cdef _Joined result
    result.offsets, result.ranks = &offsets[0], &out_ranks[0]
    result.values, result.places = _bytes_out(target), &places[0]
    with nogil:
        _join_keys(
            valid, data, width, &rank_of[0], columns, rows, &others_in[0],
            &others[0], rest, result,
        )
