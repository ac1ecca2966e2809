# Whether another encoding may be smaller, by counts that need no trial; see flat_pages.pxi.

cdef extern from "<math.h>" nogil:
    double log2(double)


cdef double _flat_bits(const uint32_t* bins, int64_t size, int64_t count) noexcept nogil:
    """Bits that telling the bins of all values takes, without the bias of few values."""
    cdef int64_t i, filled = 0
    cdef double total = 0
    for i in range(size):
        if bins[i]:
            total += bins[i] * log2(<double>count / bins[i])
            filled += 1
    return total + (filled - 1) * 0.7213


cdef double _flat_entropy(const uint64_t* offsets, int64_t count, uint64_t top) noexcept nogil:
    """Bytes that an entropy coder needs for numbers from 0 to ``top``, by two ways to bin them."""
    cdef uint32_t linear[FLAT_LINEAR_BINS]
    cdef uint32_t logarithmic[FLAT_LOG_BINS]
    cdef int shift = max(_bit_length(top) - 8, 0), length
    cdef int64_t i, extra = 0
    cdef uint64_t value
    memset(linear, 0, sizeof(linear))
    memset(logarithmic, 0, sizeof(logarithmic))
    for i in range(count):
        value = offsets[i]
        linear[value >> shift] += 1
        if value < 16:
            logarithmic[value] += 1
        else:
            length = _bit_length(value)
            logarithmic[8 + (length - 5) * 8 + (value >> (length - 4))] += 1
            extra += length - 4
    return min(
        _flat_bits(linear, FLAT_LINEAR_BINS, count) + <double>shift * count,
        _flat_bits(logarithmic, FLAT_LOG_BINS, count) + extra,
    ) / 8


cdef bint _flat_repeats(
    const int64_t* values, int64_t count, int gram, int part, uint8_t* seen
) noexcept nogil:
    """Whether at least one of ``part`` runs of ``gram`` neighbours occurred before."""
    cdef int64_t i, repeats = 0
    cdef int k
    cdef uint64_t hash
    memset(seen, 0, FLAT_SEEN_BYTES)
    for i in range(count - gram + 1):
        hash = 0
        for k in range(gram):
            hash = (hash ^ <uint64_t>values[i + k]) * <uint64_t>0x9E3779B97F4A7C15
            hash ^= hash >> 29
        hash >>= 48
        repeats += seen[hash >> 3] >> (hash & 7) & 1
        seen[hash >> 3] |= <uint8_t>(1 << (hash & 7))
    return part * repeats >= count


cdef bint _flat_may_shrink(
    const int64_t* values, int64_t count, int64_t packed, int gram, double ratio,
    int64_t extra, const FlatPolicy* policy, FlatWork* work
) noexcept nogil:
    """Whether another encoding of some numbers may be much smaller than ``packed`` bytes.

    ``ratio``: what the entropy coder has to reach; 0 where it is not tried.
    """
    cdef uint64_t* other = <uint64_t*>work.other
    cdef int64_t i, low = INT64_MAX, high = INT64_MIN, nans = 0
    cdef uint64_t divisor = 0, value, rest
    if policy.run_slots_min * (_count_changes(<const uint64_t*>values, count) + 1) <= count:
        return True
    _delta_encode(<const uint64_t*>values, count, other, other + count)
    if _bitpack_size(other, count, True) < packed:
        return True
    _extremes(values, count, &low, &high, &nans)
    for i in range(count):
        other[i] = <uint64_t>values[i] - <uint64_t>low
    if _flat_entropy(other, count, <uint64_t>high - <uint64_t>low) + extra <= (
        ratio * packed
    ):
        return True
    for i in range(count):
        value = other[i]
        while value:
            rest = divisor % value
            divisor, value = value, rest
        if divisor == 1:
            break
    return divisor != 1 or _flat_repeats(values, count, gram, 2, work.seen)


cdef int64_t _flat_distinct(
    const uint8_t* values, int64_t width, int64_t count, int64_t packed,
    const FlatPolicy* policy, FlatWork* work
) noexcept nogil:
    """How many distinct values numbers have, whose codes ``work`` gets.

    0 where there are so many that a dictionary cannot be smaller than ``packed`` bytes.
    """
    cdef double code_bits = policy.dictionary.ratio * packed * 8 / count
    cdef int64_t limit = count // policy.entry_slots_min, found
    cdef HashTable table
    if code_bits < 30:
        limit = min(limit, <int64_t>(2.0 ** code_bits))
    if limit == 0 or not _table_open(&table, 1024):
        return 0
    if width == 1:
        found = _encode_words(values, count, limit, &table, work.codes, work.first)
    elif width == 2:
        found = _encode_words(<const uint16_t*>values, count, limit, &table, work.codes, work.first)
    elif width == 4:
        found = _encode_words(<const uint32_t*>values, count, limit, &table, work.codes, work.first)
    else:
        found = _encode_words(<const uint64_t*>values, count, limit, &table, work.codes, work.first)
    free(table.slots)
    return max(found, 0)


cdef bint _flat_may_zip(const uint8_t* data, int64_t size, double ratio, FlatWork* work) noexcept nogil:
    """Whether a codec may need at most a part of some bytes: by their frequencies and repeats."""
    cdef uint32_t bins[FLAT_LINEAR_BINS]
    cdef int64_t i, repeats = 0
    cdef uint32_t word
    cdef double total = 0
    memset(bins, 0, sizeof(bins))
    memset(work.seen, 0, FLAT_SEEN_BYTES)
    for i in range(size):
        bins[data[i]] += 1
    for i in range(size - 3):
        memcpy(&word, data + i, 4)
        word = (word * <uint32_t>0x9E3779B1) >> 16
        repeats += work.seen[word >> 3] >> (word & 7) & 1
        work.seen[word >> 3] |= <uint8_t>(1 << (word & 7))
    for i in range(FLAT_LINEAR_BINS):
        if bins[i]:
            total += bins[i] * log2(<double>size / bins[i])
    return 32 * repeats >= size or total / 8 + FLAT_CODES_BYTES <= ratio * size
