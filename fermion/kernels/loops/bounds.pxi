# Bounds of pages: the smallest and greatest value, nulls and NaNs of each.

cdef enum:
    LANES = 8

cdef extern from "<math.h>" nogil:
    float INFINITY

ctypedef fused number:
    int8_t
    int16_t
    int32_t
    int64_t
    uint8_t
    uint16_t
    uint32_t
    uint64_t
    float
    double


cdef struct PageTotals:
    int64_t valid
    int64_t nans


cdef inline void _take(const number value, number* low, number* high) noexcept nogil:
    # Written as the processor's min and max: a NaN compares false and changes nothing.
    low[0] = value if value < low[0] else low[0]
    high[0] = value if value > high[0] else high[0]


cdef void _extremes(
    const number* values, Py_ssize_t count, number* low, number* high, int64_t* nans
) noexcept nogil:
    """Widen low and high to hold all values but NaN, and count the NaNs."""
    cdef number lows[LANES]
    cdef number highs[LANES]
    cdef number value
    cdef int64_t unequal[LANES]
    cdef Py_ssize_t i = 0, lane
    for lane in range(LANES):
        lows[lane] = low[0]
        highs[lane] = high[0]
        unequal[lane] = 0
    while i + LANES <= count:
        for lane in range(LANES):
            value = values[i + lane]
            lows[lane] = value if value < lows[lane] else lows[lane]
            highs[lane] = value if value > highs[lane] else highs[lane]
            if number is float or number is double:
                unequal[lane] += value != value
        i += LANES
    for lane in range(LANES):
        low[0] = lows[lane] if lows[lane] < low[0] else low[0]
        high[0] = highs[lane] if highs[lane] > high[0] else high[0]
        nans[0] += unequal[lane]
    while i < count:
        value = values[i]
        _take(value, low, high)
        if number is float or number is double:
            nans[0] += value != value
        i += 1


cdef void _extremes_of_valid(
    const number* values,
    const uint8_t* bits,
    Py_ssize_t start,
    Py_ssize_t stop,
    number* low,
    number* high,
    PageTotals* totals,
) noexcept nogil:
    """As `_extremes` over the slots whose bit is set."""
    cdef Py_ssize_t at = start, count
    cdef uint64_t word
    cdef number value
    while at < stop:
        count = min(stop - at, 64)
        word = _load_bits(bits, at, count)
        totals.valid += fermion_popcount64(word)
        if word == ~<uint64_t>0:
            _extremes(values + at, 64, low, high, &totals.nans)
            word = 0
        while word:
            value = values[at + fermion_trailing_zeros64(word)]
            _take(value, low, high)
            if number is float or number is double:
                totals.nans += value != value
            word &= word - 1
        at += count


cdef inline int64_t _float_key(double value, bint is_high) noexcept nogil:
    """The place of a float in the total order; a zero is -0.0 as a minimum, +0.0 as a maximum."""
    cdef int64_t key
    if value == 0:
        return 0 if is_high else -1
    memcpy(&key, &value, 8)
    return key ^ ((key >> 63) & INT64_MAX)


cdef inline int64_t _key(number value, bint is_high) noexcept nogil:
    if number is float or number is double:
        return _float_key(<double>value, is_high)
    elif number is uint64_t:
        return <int64_t>(value ^ (<uint64_t>1 << 63))
    else:
        return <int64_t>value


cdef void _page_bounds(
    const number* values,
    const uint8_t* bits,
    const int64_t[::1] cuts,
    int64_t[::1] mins,
    int64_t[::1] maxs,
    int64_t[::1] nulls,
    int64_t[::1] nans,
) noexcept nogil:
    cdef Py_ssize_t page
    cdef number low, high, lowest, highest
    cdef PageTotals totals
    if number is float or number is double:
        highest = INFINITY
        lowest = -INFINITY
    elif number is uint8_t or number is uint16_t or number is uint32_t or number is uint64_t:
        highest = <number>~<uint64_t>0
        lowest = 0
    else:
        highest = <number>(~<uint64_t>0 >> (65 - 8 * sizeof(number)))
        lowest = -highest - 1
    for page in range(cuts.shape[0] - 1):
        low = highest
        high = lowest
        totals.valid = 0
        totals.nans = 0
        if bits is NULL:
            totals.valid = cuts[page + 1] - cuts[page]
            _extremes(values + cuts[page], totals.valid, &low, &high, &totals.nans)
        else:
            _extremes_of_valid(values, bits, cuts[page], cuts[page + 1], &low, &high, &totals)
        nulls[page] = cuts[page + 1] - cuts[page] - totals.valid
        nans[page] = totals.nans
        if totals.valid > totals.nans:
            mins[page] = _key(low, False)
            maxs[page] = _key(high, True)
        else:
            mins[page] = INT64_MAX
            maxs[page] = INT64_MIN


cdef void _widen_halves(const uint16_t* halves, Py_ssize_t count, float* out) noexcept nogil:
    """float16 widened exactly to float32."""
    cdef Py_ssize_t i
    cdef uint32_t half, exponent, fraction, word
    cdef int shift
    for i in range(count):
        half = halves[i]
        exponent = (half >> 10) & 0x1F
        fraction = half & 0x3FF
        if exponent == 0x1F:
            word = 0x7F800000 | (fraction << 13)
        elif exponent:
            word = ((exponent + 112) << 23) | (fraction << 13)
        elif fraction:
            shift = fermion_leading_zeros64(fraction) - 53
            word = (<uint32_t>(113 - shift) << 23) | (((fraction << shift) & 0x3FF) << 13)
        else:
            word = 0
        word |= (half & 0x8000) << 16
        memcpy(out + i, &word, 4)


def page_bounds(
    values,
    const uint8_t[::1] bits,
    const int64_t[::1] cuts,
    int64_t[::1] mins,
    int64_t[::1] maxs,
    int64_t[::1] nulls,
    int64_t[::1] nans,
):
    """Order-preserving bounds, nulls and NaNs of each page."""
    cdef cnp.ndarray array = _input(values)
    cdef char letter = _letter(array)
    cdef Py_ssize_t width = array.itemsize, pages = cuts.shape[0] - 1
    if letter == c'f' and width == 2:
        array = _widen_half(array)
        width = 4
    cdef const void* data = cnp.PyArray_DATA(array)
    cdef const uint8_t* mask = NULL
    cdef bint known = True
    _check_cuts(cuts, array.shape[0])
    _same_length(mins.shape[0], pages, "mins")
    _same_length(maxs.shape[0], pages, "maxs")
    _same_length(nulls.shape[0], pages, "nulls")
    _same_length(nans.shape[0], pages, "nans")
    if bits is not None and cuts[pages]:
        _bit_range(bits.shape[0], 0, cuts[pages], "bits")
        mask = &bits[0]
    with nogil:
        if letter == c'i' and width == 1:
            _page_bounds[int8_t](<const int8_t*>data, mask, cuts, mins, maxs, nulls, nans)
        elif letter == c'i' and width == 2:
            _page_bounds[int16_t](<const int16_t*>data, mask, cuts, mins, maxs, nulls, nans)
        elif letter == c'i' and width == 4:
            _page_bounds[int32_t](<const int32_t*>data, mask, cuts, mins, maxs, nulls, nans)
        elif letter == c'i' and width == 8:
            _page_bounds[int64_t](<const int64_t*>data, mask, cuts, mins, maxs, nulls, nans)
        elif letter == c'u' and width == 1:
            _page_bounds[uint8_t](<const uint8_t*>data, mask, cuts, mins, maxs, nulls, nans)
        elif letter == c'u' and width == 2:
            _page_bounds[uint16_t](<const uint16_t*>data, mask, cuts, mins, maxs, nulls, nans)
        elif letter == c'u' and width == 4:
            _page_bounds[uint32_t](<const uint32_t*>data, mask, cuts, mins, maxs, nulls, nans)
        elif letter == c'u' and width == 8:
            _page_bounds[uint64_t](<const uint64_t*>data, mask, cuts, mins, maxs, nulls, nans)
        elif letter == c'f' and width == 4:
            _page_bounds[float](<const float*>data, mask, cuts, mins, maxs, nulls, nans)
        elif letter == c'f' and width == 8:
            _page_bounds[double](<const double*>data, mask, cuts, mins, maxs, nulls, nans)
        else:
            known = False
    if not known:
        raise TypeError(f"page_bounds has no order for {array.dtype}")


cdef cnp.ndarray _widen_half(cnp.ndarray array):
    cdef cnp.ndarray out = np.empty(array.shape[0], np.float32)
    cdef const uint16_t* halves = <const uint16_t*>cnp.PyArray_DATA(array)
    cdef float* floats = <float*>cnp.PyArray_DATA(out)
    cdef Py_ssize_t count = array.shape[0]
    with nogil:
        _widen_halves(halves, count, floats)
    return out


cdef inline int _compare_rest(
    const uint8_t* left, int64_t left_length, const uint8_t* right, int64_t right_length
) noexcept nogil:
    """Compare byte strings that agree in their first 8 bytes, or in all if they have fewer."""
    cdef int64_t shorter = min(left_length, right_length)
    cdef int order = memcmp(left + 8, right + 8, shorter - 8) if shorter > 8 else 0
    if order:
        return order
    return (left_length > right_length) - (left_length < right_length)


cdef void _page_extremes_binary(
    const int64_t* offsets,
    const uint8_t* data,
    int64_t data_size,
    const uint8_t* bits,
    int64_t start,
    int64_t stop,
    int64_t* low,
    int64_t* high,
    int64_t* nulls,
) noexcept nogil:
    cdef int64_t i, length
    cdef uint64_t prefix, low_prefix = 0, high_prefix = 0
    cdef const uint8_t* value
    low[0] = -1
    high[0] = -1
    nulls[0] = 0
    for i in range(start, stop):
        if bits is not NULL and not (bits[i >> 3] >> (i & 7)) & 1:
            nulls[0] += 1
            continue
        value = data + offsets[i]
        length = offsets[i + 1] - offsets[i]
        # The first 8 bytes as a big-endian number, so that numbers compare as bytes do.
        prefix = fermion_byte_swap64(_load_prefix(value, length, data_size - offsets[i]))
        if low[0] < 0:
            low[0] = i
            high[0] = i
            low_prefix = prefix
            high_prefix = prefix
            continue
        if prefix < low_prefix or (
            prefix == low_prefix
            and _compare_rest(
                value, length, data + offsets[low[0]], offsets[low[0] + 1] - offsets[low[0]]
            ) < 0
        ):
            low[0] = i
            low_prefix = prefix
        if prefix > high_prefix or (
            prefix == high_prefix
            and _compare_rest(
                value, length, data + offsets[high[0]], offsets[high[0] + 1] - offsets[high[0]]
            ) > 0
        ):
            high[0] = i
            high_prefix = prefix


def page_bounds_binary(
    offsets,
    const uint8_t[::1] data,
    const uint8_t[::1] bits,
    const int64_t[::1] cuts,
    int64_t[::1] min_index,
    int64_t[::1] max_index,
    int64_t[::1] nulls,
):
    """The first smallest and first greatest byte string of each page."""
    cdef const int64_t[::1] ends = _input(offsets)
    cdef Py_ssize_t page, pages = cuts.shape[0] - 1
    cdef uint8_t nothing = 0
    cdef const uint8_t* text = &data[0] if data.shape[0] else &nothing
    cdef const uint8_t* mask = NULL
    _check_offsets(ends, data.shape[0])
    _check_cuts(cuts, ends.shape[0] - 1)
    _same_length(min_index.shape[0], pages, "min_index")
    _same_length(max_index.shape[0], pages, "max_index")
    _same_length(nulls.shape[0], pages, "nulls")
    if bits is not None and cuts[pages]:
        _bit_range(bits.shape[0], 0, cuts[pages], "bits")
        mask = &bits[0]
    with nogil:
        for page in range(pages):
            _page_extremes_binary(
                &ends[0], text, data.shape[0], mask, cuts[page], cuts[page + 1],
                &min_index[page], &max_index[page], &nulls[page],
            )
