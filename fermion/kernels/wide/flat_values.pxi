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


cdef inline bint _flat_is_packed(int64_t plain, const FlatRules* rules) noexcept nogil:
    """Whether a page of so many bytes, of a chunk that is not searched, may go through the codec."""
    return rules.policy.codec.ratio > 0 and plain >= rules.policy.codec_bytes_min


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
    if _flat_is_packed(size, rules) and _flat_may_zip(node, size, rules.policy.page_ratio, work):
        frame = stop
        zipped = _flat_zip(rules, rules.policy.page_ratio, node, size, frame)
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
    cdef int64_t count = work.count
    cdef FlatNumbers of
    cdef uint8_t* page
    cdef uint8_t* node
    cdef uint8_t* stop
    if letter == c'i' and width == 1:
        _flat_bounds(<const int8_t*>values, bits, work, found)
    elif letter == c'i' and width == 2:
        _flat_bounds(<const int16_t*>values, bits, work, found)
    elif letter == c'i' and width == 4:
        _flat_bounds(<const int32_t*>values, bits, work, found)
    elif letter == c'i':
        _flat_bounds(<const int64_t*>values, bits, work, found)
    elif width == 1:
        _flat_bounds(values, bits, work, found)
    elif width == 2:
        _flat_bounds(<const uint16_t*>values, bits, work, found)
    elif width == 4:
        _flat_bounds(<const uint32_t*>values, bits, work, found)
    else:
        _flat_bounds(<const uint64_t*>values, bits, work, found)
    if found.minimum == found.maximum and _flat_is_constant(values, count, width):
        return _flat_constant(values, width, work, found)
    page = _flat_page(work, _flat_room(count))
    if page is NULL:
        return False
    of.values, of.letter, of.width, of.count, of.root = values, letter, width, count, work
    node = page + COLUMN_PAGE_HEADER
    stop = _flat_light(node, &of, rules, work)
    if _flat_plain_size(count * width) >= rules.policy.search_bytes_min:
        _flat_widen_all(&of, work.wide)
        if _flat_may_shrink(
            work.wide, count, stop - node, 2, _flat_entropy_ratio(&of, &rules.policy),
            FLAT_TABLES_BYTES, &rules.policy, work,
        ) or _flat_distinct(values, width, count, stop - node, &rules.policy, work):
            stop = _flat_search(node, stop, &of, rules, work)
    found.data_bytes = _flat_seal(work, stop)
    return True


cdef bint _flat_narrowed(
    FlatSource* source, const uint8_t* bits, int64_t count, int64_t* out
) noexcept nogil:
    """Integers of 16 or 32 bytes as such of 8, 0 in null slots; False where one does not fit."""
    cdef const uint8_t* values = source.values + source.first * source.width
    cdef int64_t i, word, other
    for i in range(count):
        out[i] = 0
        if bits is not NULL and not bits[i >> 3] >> (i & 7) & 1:
            continue
        memcpy(&out[i], values + i * source.width, 8)
        for word in range(8, source.width, 8):
            memcpy(&other, values + i * source.width + word, 8)
            if other != out[i] >> 63:
                return False
    return True


cdef bint _flat_wide(
    const int64_t* values, int64_t width, const uint8_t* bits, FlatRules* rules, FlatWork* work,
    FlatResult* found
) noexcept nogil:
    """Integers of ``width`` bytes, given as such of 8."""
    cdef int64_t count = work.count
    cdef FlatNumbers of
    cdef uint64_t wide[4]
    cdef uint8_t* page
    cdef uint8_t* node
    cdef uint8_t* child
    cdef uint8_t* stop
    _flat_bounds(values, bits, work, found)
    if found.minimum == found.maximum and _flat_is_constant(<const uint8_t*>values, count, 8):
        _widen_block(<const uint64_t*>values, 1, width, <uint8_t*>wide)
        return _flat_constant(<uint8_t*>wide, width, work, found)
    page = _flat_page(work, _flat_room(count))
    if page is NULL:
        return False
    of.values, of.letter, of.width = <const uint8_t*>values, c'i', 8
    of.count, of.root = count, NULL
    node = page + COLUMN_PAGE_HEADER
    child = _flat_node(node, TREE_NARROW, 1, work)
    stop = _flat_light(child, &of, rules, work)
    if _flat_may_shrink(
        values, count, stop - child, 2, _flat_entropy_ratio(&of, &rules.policy), FLAT_TABLES_BYTES,
        &rules.policy, work,
    ) or _flat_distinct(of.values, 8, count, stop - child, &rules.policy, work):
        stop = _flat_search(child, stop, &of, rules, work)
    found.data_bytes = _flat_seal(work, _flat_close(node, stop))
    return True


cdef bint _flat_small(
    const uint8_t* values, char letter, int64_t width, const uint8_t* bits, FlatRules* rules,
    FlatWork* work, FlatResult* found
) noexcept nogil:
    """Numbers of one byte and floats of two, if they are few."""
    cdef int64_t count = work.count
    cdef int64_t bytes = (count + 7) >> 3 if letter == c'b' else count * width
    if _flat_plain_size(bytes) >= rules.policy.search_bytes_min:
        if letter == c'b' or letter == c'f':
            return False
        return _flat_integers(values, letter, width, bits, rules, work, found)
    if letter == c'f':
        _widen_halves(<const uint16_t*>values, count, <float*>work.wide)
        _flat_bounds(<const float*>work.wide, bits, work, found)
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
    return _flat_plain(values, width, rules, work, found)


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
    const floating* values, int64_t count, const FlatPolicy* policy
) noexcept nogil:
    """The smallest power of ten that makes most of a sample integers, as `alp.decimal_exponent` does."""
    cdef int64_t step = max(count // policy.sample_values, 1), size, i
    cdef int exponent, best = 0, hits, most = -1
    size = min(count, policy.sample_values)
    for exponent in range(TREE_EXPONENT_MAX + 1):
        hits = 0
        for i in range(size):
            hits += <floating>(
                rint(<double>values[i * step] * POWERS_OF_TEN[exponent]) / POWERS_OF_TEN[exponent]
            ) == values[i * step]
        if hits > most:
            best, most = exponent, hits
    return best if most >= max(size * policy.sample_part_min, 1) else -1


cdef int64_t _flat_to_integers(
    const floating* values, int64_t count, double power, int64_t* out, uint32_t* others
) noexcept nogil:
    """How many floats are not, bit by bit, the quotients of integers and a power of ten.

    Those become the first integer that is exact, and their slots are put into ``others``.
    """
    cdef int64_t i, found = 0, first = -1
    cdef double scaled
    cdef floating back
    for i in range(count):
        scaled = rint(<double>values[i] * power)
        if fabs(scaled) < 9e15:
            out[i] = <int64_t>scaled
            back = <floating>(<double>out[i] / power)
            if memcmp(&back, values + i, sizeof(floating)) == 0:
                first = i if first < 0 else first
                continue
        others[found] = <uint32_t>i
        found += 1
    for i in range(found if found < count else 0):
        out[others[i]] = out[first]
    return found


cdef uint8_t* _flat_decimals(
    uint8_t* node, const floating* values, const FlatNumbers* of, bint follow, FlatRules* rules,
    FlatWork* work
) noexcept nogil:
    """A node of floats as integers, or, where they follow each other, as differences of such.

    Its end; NULL where too many are no decimals. ``work.wide`` gets the integers.
    """
    cdef int exponent = _flat_exponent(values, of.count, &rules.policy)
    cdef int64_t others, i, width = sizeof(floating)
    cdef uint32_t word
    cdef uint8_t* at
    cdef FlatNumbers integers = of[0]
    if exponent < 0:
        return NULL
    others = _flat_to_integers(
        values, of.count, POWERS_OF_TEN[exponent], work.wide, work.exceptions
    )
    work.others = others
    if others > (1 - rules.policy.sample_part_min) / 2 * of.count:
        return NULL
    at = _flat_node(node, FLAT_ALP, 1, of.root)
    memset(at, 0, 8)
    at[0], at[1] = exponent, width
    word = <uint32_t>others
    memcpy(at + 4, &word, 4)
    memcpy(at + 8, work.exceptions, 4 * others)
    at = _flat_pad(node, at + 8 + 4 * others)
    for i in range(others):
        memcpy(at + i * width, values + work.exceptions[i], width)
    at = _flat_pad(node, at + others * width)
    integers.values, integers.letter, integers.width = <uint8_t*>work.wide, c'i', 8
    integers.root = NULL
    if follow:
        at = _flat_differences(at, &integers, work)
    else:
        at = _flat_packed(at, work.wide, of.count, 8, True, NULL)
    return _flat_close(node, at)


cdef bint _flat_floats(
    const floating* values, const uint8_t* bits, FlatRules* rules, FlatWork* work,
    FlatResult* found
) noexcept nogil:
    cdef int64_t count = work.count, width = sizeof(floating), limit
    cdef bint is_small = _flat_plain_size(count * width) < rules.policy.search_bytes_min
    cdef FlatNumbers of
    cdef uint8_t* page
    cdef uint8_t* node
    cdef uint8_t* stop
    _flat_bounds(values, bits, work, found)
    if found.minimum > found.maximum:  # nothing but NaN
        return False
    if _flat_is_constant(<const uint8_t*>values, count, width):
        return _flat_constant(<const uint8_t*>values, width, work, found)
    page = _flat_page(work, _flat_room(count))
    if page is NULL:
        return False
    of.values, of.letter, of.width, of.count = <const uint8_t*>values, c'f', width, count
    of.root = work
    node = page + COLUMN_PAGE_HEADER
    stop = _flat_decimals(node, values, &of, False, rules, work)
    limit = _flat_plain_size(work.slots * width)
    if stop is NULL or stop - node > limit:
        if is_small:
            return _flat_plain(<const uint8_t*>values, width, rules, work, found)
        stop = _flat_search(node, _flat_raw(node, &of), &of, rules, work)
    elif not is_small and (
        # Floats that are decimals by chance, or after a calculation.
        work.others or 8 * (stop - node) > FLAT_DECIMAL_BITS * count
        or _flat_may_shrink(
            work.wide, count, stop - node, 2, _flat_entropy_ratio(&of, &rules.policy),
            FLAT_FLOATS_BYTES, &rules.policy, work,
        )
        or _flat_distinct(<const uint8_t*>values, width, count, stop - node, &rules.policy, work)
    ):
        stop = _flat_take(
            node, stop, _flat_decimals(stop, values, &of, True, rules, work),
            rules.policy.delta.ratio * (stop - node),
        )
        stop = _flat_search(node, stop, &of, rules, work)
    found.data_bytes = _flat_seal(work, stop)
    return True
