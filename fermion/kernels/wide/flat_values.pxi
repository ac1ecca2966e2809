# Values of one flat column as the tree of a page, and their bounds; see flat_pages.pxi.

cdef extern from "<math.h>" nogil:
    double fabs(double)
    double rint(double)


cdef void _flat_bounds(
    const number* values, const uint8_t* bits, FlatWork* work, FlatResult* found
) noexcept nogil:
    """Bounds of numbers of which at least one is neither NaN nor null."""
    cdef number low, high
    cdef PageTotals totals
    cdef Py_ssize_t first = 0
    totals.valid = totals.nans = 0
    if bits is not NULL:
        while not bits[first >> 3] >> (first & 7) & 1:
            first += 1
    low = high = values[first]
    if number is float or number is double:
        low, high = INFINITY, -INFINITY
    if bits is NULL:
        _extremes(values, work.count, &low, &high, &totals.nans)
    else:
        _extremes_of_valid(values, bits, 0, work.count, &low, &high, &totals)
    found.minimum, found.maximum = _key(low, False), _key(high, True)
    found.nans = totals.nans
    found.flags = FLAT_BOUNDS | FLAT_MIN_EXACT | FLAT_MAX_EXACT
    found.flags |= FLAT_HAS_NAN if totals.nans else 0


cdef void _flat_widen(const integer* values, int64_t count, int64_t* out) noexcept nogil:
    cdef int64_t i
    for i in range(count):
        out[i] = <int64_t>values[i]


cdef bint _flat_is_constant(const uint8_t* values, int64_t count, int64_t width) noexcept nogil:
    """Whether all values are the same, bit by bit."""
    return memcmp(values, values + width, (count - 1) * width) == 0


cdef bint _flat_constant(
    const uint8_t* value, int64_t width, FlatWork* work, FlatResult* found
) noexcept nogil:
    """The page of one value that all slots have."""
    cdef uint8_t* page = _flat_page(work, 64)
    cdef uint8_t* node = page + COLUMN_PAGE_HEADER
    cdef uint8_t* stop
    if page is NULL:
        return False
    stop = _flat_node(node, TREE_CONSTANT, 0, work)
    memcpy(stop, value, width)
    found.data_bytes = _flat_seal(work, _flat_close(node, stop + width))
    return True


cdef bint _flat_plain(
    const uint8_t* values, int64_t width, FlatRules* rules, FlatWork* work, FlatResult* found
) noexcept nogil:
    """The page of small values as they are, or of their zstd frame where that is smaller."""
    cdef int64_t bytes = work.count * width, size, zipped = 0
    cdef uint8_t* page = _flat_page(work, 2 * bytes + 1024)
    cdef uint8_t* node = page + COLUMN_PAGE_HEADER
    cdef uint8_t* frame
    cdef uint8_t* stop
    if page is NULL:
        return False
    stop = _flat_node(node, TREE_PLAIN, 0, work)
    memcpy(stop, values, bytes)
    stop = _flat_close(node, stop + bytes)
    size = stop - node
    if size >= rules.page_zip_bytes_min and _flat_may_zip(node, size, rules.page_ratio, work):
        frame = stop
        zipped = _flat_zip(rules, rules.page_ratio, node, size, frame)
    if zipped:
        memmove(node, frame, zipped)
        stop = _flat_pad(node, node + zipped)
        found.data_bytes = _flat_seal_as(work, stop, TREE_CODEC_ZSTD, TREE_PLAIN, size)
    else:
        found.data_bytes = _flat_seal(work, stop)
    return True


cdef bint _flat_integers(
    const uint8_t* values, char letter, int64_t width, const uint8_t* bits, FlatRules* rules,
    FlatWork* work, FlatResult* found
) noexcept nogil:
    cdef int64_t count = work.count, packed
    cdef uint8_t* page
    cdef uint8_t* stop
    if letter == c'i' and width == 2:
        _flat_bounds(<const int16_t*>values, bits, work, found)
        _flat_widen(<const int16_t*>values, count, work.wide)
    elif letter == c'i' and width == 4:
        _flat_bounds(<const int32_t*>values, bits, work, found)
        _flat_widen(<const int32_t*>values, count, work.wide)
    elif letter == c'i':
        _flat_bounds(<const int64_t*>values, bits, work, found)
        _flat_widen(<const int64_t*>values, count, work.wide)
    elif width == 2:
        _flat_bounds(<const uint16_t*>values, bits, work, found)
        _flat_widen(<const uint16_t*>values, count, work.wide)
    elif width == 4:
        _flat_bounds(<const uint32_t*>values, bits, work, found)
        _flat_widen(<const uint32_t*>values, count, work.wide)
    else:
        return False
    if found.minimum == found.maximum and _flat_is_constant(values, count, width):
        return _flat_constant(values, width, work, found)
    page = _flat_page(work, _bitpack_worst(count, width) + 64)
    if page is NULL:
        return False
    stop = _flat_packed(page + COLUMN_PAGE_HEADER, values, count, width, letter == c'i', work)
    packed = stop - page - COLUMN_PAGE_HEADER
    if packed >= count * width:
        return False
    if count * width >= rules.search_bytes_min and (
        _flat_may_shrink(work.wide, count, packed, 2, rules.ratio, FLAT_TABLES_BYTES, rules, work)
        or _flat_has_dictionary(values, width, count, packed, rules, work)
    ):
        return False
    found.data_bytes = _flat_seal(work, stop)
    return True


cdef bint _flat_small(
    const uint8_t* values, char letter, int64_t width, const uint8_t* bits, FlatRules* rules,
    FlatWork* work, FlatResult* found
) noexcept nogil:
    """Numbers of one byte, floats of two and unsigned integers of eight, if they are few."""
    cdef int64_t count = work.count
    cdef int64_t bytes = (count + 7) >> 3 if letter == c'b' else count * width
    cdef uint8_t* page
    cdef uint8_t* stop
    if TREE_NODE_HEADER + ((bytes + 7) & ~<int64_t>7) >= rules.search_bytes_min:
        return False
    if letter == c'f':
        _widen_halves(<const uint16_t*>values, count, <float*>work.wide)
        _flat_bounds(<const float*>work.wide, bits, work, found)
    elif width == 8:
        _flat_bounds(<const uint64_t*>values, bits, work, found)
    elif letter == c'i':
        _flat_bounds(<const int8_t*>values, bits, work, found)
    else:
        _flat_bounds(values, bits, work, found)
    if found.minimum > found.maximum:  # nothing but NaN
        return False
    if _flat_is_constant(values, count, width):
        return _flat_constant(values, width, work, found)
    if letter == c'b':
        return _flat_bitmap(values, work, found)
    if width < 8:
        return _flat_plain(values, width, rules, work, found)
    page = _flat_page(work, _bitpack_worst(count, width) + 64)
    if page is NULL:
        return False
    stop = _flat_packed(page + COLUMN_PAGE_HEADER, values, count, width, False, work)
    if stop - page - COLUMN_PAGE_HEADER >= count * width:
        return False
    found.data_bytes = _flat_seal(work, stop)
    return True


cdef bint _flat_bitmap(const uint8_t* values, FlatWork* work, FlatResult* found) noexcept nogil:
    """The page of booleans, each a byte here."""
    cdef int64_t count = work.count, bytes = (count + 7) >> 3, i
    cdef uint8_t* page = _flat_page(work, bytes + 64)
    cdef uint8_t* node = page + COLUMN_PAGE_HEADER
    cdef uint8_t* stop
    if page is NULL:
        return False
    stop = _flat_node(node, TREE_BITMAP, 0, work)
    memset(stop, 0, bytes)
    for i in range(count):
        stop[i >> 3] |= <uint8_t>(values[i] << (i & 7))
    found.data_bytes = _flat_seal(work, _flat_close(node, stop + bytes))
    return True


cdef int _flat_exponent(
    const floating* values, int64_t count, const FlatRules* rules
) noexcept nogil:
    """The smallest power of ten that makes most of a sample integers, as `alp.decimal_exponent` does."""
    cdef int64_t step = max(count // rules.sample_values, 1), size, i
    cdef int exponent, best = 0, hits, most = -1
    size = min(count, rules.sample_values)
    for exponent in range(TREE_EXPONENT_MAX + 1):
        hits = 0
        for i in range(size):
            hits += <floating>(
                rint(<double>values[i * step] * POWERS_OF_TEN[exponent]) / POWERS_OF_TEN[exponent]
            ) == values[i * step]
        if hits > most:
            best, most = exponent, hits
    return best if most >= max(size * rules.sample_part_min, 1) else -1


cdef int64_t _flat_to_integers(
    const floating* values, int64_t count, double power, int64_t* out
) noexcept nogil:
    """How many floats are not, bit by bit, the quotients of integers and a power of ten.

    Those become the integer before.
    """
    cdef int64_t i, others = 0
    cdef double scaled
    cdef floating back
    for i in range(count):
        scaled = rint(<double>values[i] * power)
        if fabs(scaled) < 9e15:
            out[i] = <int64_t>scaled
            back = <floating>(<double>out[i] / power)
            if memcmp(&back, values + i, sizeof(floating)) == 0:
                continue
        others += 1
        out[i] = out[i - 1] if i else 0
    return others


cdef bint _flat_floats(
    const floating* values, const uint8_t* bits, FlatRules* rules, FlatWork* work,
    FlatResult* found
) noexcept nogil:
    cdef int64_t count = work.count, packed, width = sizeof(floating), others
    cdef bint is_small = TREE_NODE_HEADER + count * width < rules.search_bytes_min
    cdef int exponent
    cdef uint8_t* page
    cdef uint8_t* node
    cdef uint8_t* stop
    _flat_bounds(values, bits, work, found)
    if found.minimum > found.maximum:  # nothing but NaN
        return False
    if _flat_is_constant(<const uint8_t*>values, count, width):
        return _flat_constant(<const uint8_t*>values, width, work, found)
    exponent = _flat_exponent(values, count, rules)
    if exponent < 0:
        return is_small and _flat_plain(<const uint8_t*>values, width, rules, work, found)
    others = _flat_to_integers(values, count, POWERS_OF_TEN[exponent], work.wide)
    if others > (1 - rules.sample_part_min) / 2 * count:
        return is_small and _flat_plain(<const uint8_t*>values, width, rules, work, found)
    page = _flat_page(work, _bitpack_worst(count, 8) + 64)
    if page is NULL:
        return False
    node = page + COLUMN_PAGE_HEADER
    stop = _flat_node(node, FLAT_ALP, 1, work)
    memset(stop, 0, 8)
    stop[0], stop[1] = exponent, width
    stop = _flat_packed(stop + 8, work.wide, count, 8, True, NULL)
    stop = _flat_close(node, stop)
    packed = stop - node
    if packed > TREE_NODE_HEADER + ((work.slots * width + 7) & ~<int64_t>7):
        return is_small and _flat_plain(<const uint8_t*>values, width, rules, work, found)
    if others or packed >= count * width:  # others would be exceptions
        return False
    if count * width >= rules.search_bytes_min and (
        _flat_may_shrink(work.wide, count, packed, 2, rules.ratio, FLAT_FLOATS_BYTES, rules, work)
        or _flat_has_dictionary(<const uint8_t*>values, width, count, packed, rules, work)
    ):
        return False
    found.data_bytes = _flat_seal(work, stop)
    return True


cdef bint _flat_offsets(
    const integer* ends, const uint8_t* bits, int64_t count, int64_t* out
) noexcept nogil:
    """Offsets from 0 on; False where they are not well-formed, or a null slot is not empty."""
    cdef int64_t i, base = ends[0]
    cdef bint fine = base >= 0
    for i in range(count + 1):
        out[i] = ends[i] - base
    for i in range(count):
        fine &= out[i + 1] >= out[i]
    if bits is not NULL:
        for i in range(count):
            fine &= (out[i + 1] == out[i]) | ((bits[i >> 3] >> (i & 7)) & 1)
    return fine


cdef void _flat_string_bounds(
    const int64_t* offsets, const uint8_t* text, const uint8_t* bits, FlatWork* work,
    FlatResult* found
) noexcept nogil:
    cdef int64_t low, high, nulls, length
    cdef uint64_t prefix
    _page_extremes_binary(
        offsets, text, offsets[work.count], bits, 0, work.count, &low, &high, &nulls
    )
    found.flags = FLAT_BOUNDS
    length = offsets[low + 1] - offsets[low]
    prefix = _load_prefix(text + offsets[low], length, offsets[work.count] - offsets[low])
    found.minimum = <int64_t>(fermion_byte_swap64(prefix) ^ (<uint64_t>1 << 63))
    if _flat_is_exact(text + offsets[low], length):
        found.flags |= FLAT_MIN_EXACT
    length = offsets[high + 1] - offsets[high]
    prefix = _load_prefix(text + offsets[high], length, offsets[work.count] - offsets[high])
    if length < 8:
        prefix |= ~<uint64_t>0 << (8 * length)
    found.maximum = <int64_t>(fermion_byte_swap64(prefix) ^ (<uint64_t>1 << 63))
    if _flat_is_exact(text + offsets[high], length):
        found.flags |= FLAT_MAX_EXACT


cdef inline bint _flat_is_exact(const uint8_t* value, int64_t length) noexcept nogil:
    """As `keys.is_unambiguous`."""
    return length < 8 and (
        length == 0 or not (value[length - 1] == 0 or value[length - 1] == 0xFF)
    )


cdef int64_t _flat_zip(
    FlatRules* rules, double ratio, const uint8_t* data, int64_t size, uint8_t* out
) noexcept with gil:
    """A zstd frame at ``out`` if it is small enough; its bytes, else 0."""
    cdef object frame
    try:
        frame = (<object>rules.zip)(PyMemoryView_FromMemory(<char*>data, size, PyBUF_READ))
        if not isinstance(frame, bytes) or len(frame) > ratio * size:
            return 0
        memcpy(out, PyBytes_AS_STRING(frame), len(frame))
        return len(frame)
    except BaseException as error:
        (<list>rules.raised).append(error)
        return 0


cdef void _flat_narrow(
    const integer* values, int64_t count, int64_t width, uint8_t* out
) noexcept nogil:
    cdef int64_t i
    if width == 1:
        for i in range(count):
            out[i] = <uint8_t>values[i]
    elif width == 2:
        for i in range(count):
            (<uint16_t*>out)[i] = <uint16_t>values[i]
    else:
        for i in range(count):
            (<uint32_t*>out)[i] = <uint32_t>values[i]


cdef inline int64_t _flat_width(uint64_t top) noexcept nogil:
    return 1 if top < 0x100 else 2 if top < 0x10000 else 4


cdef uint8_t* _flat_entries(
    const int64_t* offsets, const uint8_t* text, int64_t entries, FlatRules* rules,
    FlatWork* work, uint8_t* node
) noexcept nogil:
    """The first of each distinct string as a node of lengths and bytes; its end."""
    cdef uint8_t* at = _flat_node(node, TREE_SPLIT_LENGTHS, 1, NULL)
    cdef uint8_t* tables
    cdef uint8_t* raw
    cdef int64_t i, start, length, longest = 0, total = 0, zipped = 0
    cdef uint32_t word
    for i in range(entries):
        length = offsets[work.first[i] + 1] - offsets[work.first[i]]
        work.other[i] = length
        longest = max(longest, length)
        total += length
    memset(at, 0, 8)
    at[0] = 1
    at[5] = <uint8_t>_flat_width(longest)
    tables = at + 8
    word = <uint32_t>entries
    memcpy(tables, &word, 4)
    word = <uint32_t>total
    memcpy(tables + 4, &word, 4)
    # Beyond where the frame will go, and no part of the page if there is one.
    raw = tables + 12 + total
    for i in range(entries):
        start = offsets[work.first[i]]
        memcpy(raw, text + start, work.other[i])
        raw += work.other[i]
    raw -= total
    if total >= rules.zip_bytes_min:
        zipped = _flat_zip(rules, rules.ratio, raw, total, tables + 12)
    if zipped:
        at[4] = TREE_CODEC_ZSTD
        word = <uint32_t>zipped
        memcpy(tables + 8, &word, 4)
        at = tables + 12 + zipped
    else:
        memmove(tables + 8, raw, total)
        at = tables + 8 + total
    at = _flat_pad(node, at)
    _flat_narrow(work.other, entries, _flat_width(longest), work.copy)
    at = _flat_unsigned(at, work.copy, entries, _flat_width(longest))
    return _flat_close(node, at)


cdef bint _flat_strings(
    const int64_t* offsets, const uint8_t* text, const uint8_t* bits, FlatRules* rules,
    FlatWork* work, FlatResult* found
) noexcept nogil:
    """Strings of few distinct values, as a page with its own dictionary."""
    cdef int64_t count = work.count, total = offsets[count], entries, width, packed, i
    cdef int64_t plain = 4 * count + total
    cdef HashTable table
    cdef uint32_t word
    cdef uint8_t* page
    cdef uint8_t* node
    cdef uint8_t* stop
    if plain < rules.search_bytes_min or not _table_open(&table, 1024):
        return False
    entries = _encode_bytes(
        text, total, offsets, 0, count, count // rules.entry_slots_min, &table, work.codes, work.first
    )
    free(table.slots)
    if entries < 2:
        return False
    width = _flat_width(entries - 1)
    page = _flat_page(work, _bitpack_worst(count, 8) + 2 * total + 24 * entries + 1024)
    if page is NULL:
        return False
    node = page + COLUMN_PAGE_HEADER
    stop = _flat_node(node, TREE_DICTIONARY_LOCAL, 2, work)
    memset(stop, 0, 8)
    word = <uint32_t>entries
    memcpy(stop, &word, 4)
    stop[4] = <uint8_t>width
    _flat_narrow(work.codes, count, width, work.copy)
    stop = _flat_unsigned(stop + 8, work.copy, count, width)
    packed = stop - node
    for i in range(count):
        work.wide[i] = work.codes[i]
    if _flat_may_shrink(
        work.wide, count, packed, 6, rules.ratio if count * width >= rules.search_bytes_min else 0,
        FLAT_TABLES_BYTES, rules, work,
    ):
        return False
    stop = _flat_entries(offsets, text, entries, rules, work, stop)
    stop = _flat_close(node, stop)
    _flat_string_bounds(offsets, text, bits, work, found)
    if stop - page >= rules.chunk_bytes_max or 2 * (stop - page) > plain:
        return False
    found.data_bytes = _flat_seal(work, stop)
    return True
