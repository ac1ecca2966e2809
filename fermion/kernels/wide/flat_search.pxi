# Numbers of one page by encodings that may be smaller than a light one: tried, and the smallest
# taken; see flat_pages.pxi. The trial of an encoding is what is written.

from fermion.layout import EncodingId as _SearchedId

cdef enum:
    FLAT_REPEAT_BITS = 12

cdef int FLAT_PCODEC = _SearchedId.PCODEC, FLAT_ZSTD = _SearchedId.ZSTD


cdef struct FlatNumbers:
    const uint8_t* values  # aligned to their width
    char letter
    int64_t width
    int64_t count
    const FlatWork* root  # as `_flat_node` takes it


cdef inline int64_t _flat_room(int64_t count) noexcept nogil:
    """Bytes for the nodes that a search has at one time."""
    return 8 * _bitpack_worst(count, 8) + 4096


cdef uint8_t* _flat_take(
    uint8_t* node, uint8_t* stop, uint8_t* other_stop, double size_max
) noexcept nogil:
    """The end of the smaller one of two nodes, moved to ``node``.

    The first ends at ``stop``, where the other starts, which must have at most ``size_max`` bytes;
    no other one where ``other_stop`` is NULL.
    """
    cdef int64_t size = other_stop - stop
    if other_stop is NULL or size >= stop - node or size > size_max:
        return stop
    memmove(node, stop, size)
    return node + size


cdef uint8_t* _flat_raw(uint8_t* node, const FlatNumbers* of) noexcept nogil:
    """A node of numbers as they are; its end."""
    cdef uint8_t* at = _flat_node(node, TREE_PLAIN, 0, of.root)
    memcpy(at, of.values, of.count * of.width)
    return _flat_close(node, at + of.count * of.width)


cdef uint8_t* _flat_light(
    uint8_t* node, const FlatNumbers* of, FlatRules* rules, FlatWork* work
) noexcept nogil:
    """A node of frames of reference, of decimals, or of numbers as they are; its end."""
    cdef uint8_t* stop = NULL
    if of.letter != c'f':
        stop = _flat_packed(node, of.values, of.count, of.width, of.letter == c'i', of.root)
    elif of.width == 4:
        stop = _flat_decimals(node, <const float*>of.values, of, False, rules, work)
    elif of.width == 8:
        stop = _flat_decimals(node, <const double*>of.values, of, False, rules, work)
    if stop is NULL or stop - node > _flat_plain_size(of.count * of.width):
        return _flat_raw(node, of)
    return stop


cdef uint8_t* _flat_differences(
    uint8_t* node, const FlatNumbers* of, FlatWork* work
) noexcept nogil:
    """A node of differences of neighbouring integers; its end."""
    cdef uint8_t* at = _flat_node(node, TREE_DELTA, 1, of.root)
    memset(at, 0, 8)
    at[0] = <uint8_t>of.width
    at += 8
    if of.width == 1:
        _delta_encode(of.values, of.count, <uint8_t*>work.other, at)
    elif of.width == 2:
        _delta_encode(
            <const uint16_t*>of.values, of.count, <uint16_t*>work.other, <uint16_t*>at
        )
    elif of.width == 4:
        _delta_encode(
            <const uint32_t*>of.values, of.count, <uint32_t*>work.other, <uint32_t*>at
        )
    else:
        _delta_encode(
            <const uint64_t*>of.values, of.count, <uint64_t*>work.other, <uint64_t*>at
        )
    at += (of.count + BLOCK_VALUES - 1) // BLOCK_VALUES * of.width
    at = _flat_packed(_flat_pad(node, at), work.other, of.count, of.width, True, NULL)
    return _flat_close(node, at)


cdef uint8_t* _flat_runs(
    uint8_t* node, const FlatNumbers* of, FlatRules* rules, FlatWork* work
) noexcept nogil:
    """A node of runs of equal numbers; its end, or NULL where they are short."""
    cdef int64_t i, runs = 0, longest = 0, width = of.width, length_width
    cdef uint8_t* at
    cdef uint32_t word
    cdef FlatNumbers firsts = of[0]
    for i in range(of.count):
        if i and memcmp(of.values + i * width, of.values + (i - 1) * width, width) == 0:
            continue
        memcpy(<uint8_t*>work.entries + runs * width, of.values + i * width, width)
        work.first[runs] = i
        runs += 1
    if runs * rules.policy.run_slots_min > of.count:
        return NULL
    work.first[runs] = of.count
    for i in range(runs):
        work.other[i] = work.first[i + 1] - work.first[i]
        longest = max(longest, work.other[i])
    length_width = _flat_width(longest)
    at = _flat_node(node, TREE_RLE, 2, of.root)
    memset(at, 0, 8)
    word = <uint32_t>runs
    memcpy(at, &word, 4)
    at[4] = <uint8_t>length_width
    _flat_narrow(work.other, runs, length_width, <uint8_t*>work.offsets)
    at = _flat_unsigned(at + 8, work.offsets, runs, length_width)
    firsts.values, firsts.count, firsts.root = <uint8_t*>work.entries, runs, NULL
    return _flat_close(node, _flat_light(at, &firsts, rules, work))


cdef int64_t _flat_ask(
    FlatRules* rules, const FlatNumbers* of, int64_t size_max, uint8_t* out
) noexcept with gil:
    """What pcodec makes of numbers, at ``out``; its bytes, 0 where they are too many."""
    cdef object packed
    try:
        packed = (<object>rules.entropy)(
            PyMemoryView_FromMemory(<char*>of.values, of.count * of.width, PyBUF_READ),
            chr(of.letter), of.width,
        )
        if not isinstance(packed, bytes) or len(packed) > size_max:
            return 0
        memcpy(out, PyBytes_AS_STRING(packed), len(packed))
        return len(packed)
    except BaseException as error:
        (<list>rules.raised).append(error)
        return 0


cdef uint8_t* _flat_entropy_coded(
    uint8_t* node, const FlatNumbers* of, int64_t size_max, FlatRules* rules
) noexcept nogil:
    """A node of what pcodec makes of numbers; its end, or NULL where it has too many bytes."""
    cdef uint8_t* at = _flat_node(node, FLAT_PCODEC, 0, of.root)
    cdef int64_t size = _flat_ask(rules, of, size_max, at)
    return _flat_close(node, at + size) if size else NULL


cdef uint8_t* _flat_zipped(
    uint8_t* node, const FlatNumbers* of, FlatRules* rules
) noexcept nogil:
    """A node of a zstd frame of numbers; its end, or NULL where it saves too little."""
    cdef FlatNumbers plain = of[0]
    cdef uint8_t* at = _flat_node(node, FLAT_ZSTD, 1, of.root)
    cdef uint8_t* raw = at + of.count * of.width + 64
    cdef int64_t size, zipped
    plain.root = NULL
    size = _flat_raw(raw, &plain) - raw
    memcpy(at, &size, 8)
    zipped = _flat_zip(rules, rules.policy.codec.ratio, raw, size, at + 8)
    return _flat_close(node, at + 8 + zipped) if zipped else NULL


cdef void _flat_widen_all(const FlatNumbers* of, int64_t* out) noexcept nogil:
    """Integers as such of 8 bytes, unsigned ones as they are if they have fewer; else the bits."""
    if of.width == 1:
        if of.letter == c'i':
            _flat_widen(<const int8_t*>of.values, of.count, out)
        else:
            _flat_widen(of.values, of.count, out)
    elif of.width == 2:
        if of.letter == c'i':
            _flat_widen(<const int16_t*>of.values, of.count, out)
        else:
            _flat_widen(<const uint16_t*>of.values, of.count, out)
    elif of.width == 4:
        if of.letter == c'i':
            _flat_widen(<const int32_t*>of.values, of.count, out)
        else:
            _flat_widen(<const uint32_t*>of.values, of.count, out)
    else:
        memcpy(out, of.values, 8 * of.count)


cdef uint8_t* _flat_heavier(
    uint8_t* node, uint8_t* stop, const FlatNumbers* of, FlatRules* rules, FlatWork* work
) noexcept nogil:
    """The end of the smallest node of numbers; a heavy one has to be worth its time to decode.

    ``stop``: the end of the smallest light one, at ``node``.
    """
    cdef const FlatRule* numbers[3]
    cdef const FlatRule* rule
    cdef double light = stop - node
    cdef int i
    numbers[0], numbers[1], numbers[2] = (
        &rules.policy.delta, &rules.policy.entropy, &rules.policy.codec
    )
    for i in range(3):
        rule = numbers[i]
        if _flat_is_tried(rule, of.count * of.width):
            stop = _flat_take(
                node, stop, _flat_tried(node, stop, of, rule, rule.ratio * light, rules, work),
                rule.ratio * light,
            )
    return stop


cdef uint8_t* _flat_tried(
    const uint8_t* node, uint8_t* stop, const FlatNumbers* of, const FlatRule* rule,
    double size_max, FlatRules* rules, FlatWork* work
) noexcept nogil:
    """A node at ``stop`` by the encoding of a rule; its end, or NULL where it is too large.

    ``node``: the smallest one so far.
    """
    if rule.encoding == TREE_DELTA:
        return NULL if of.letter == c'f' else _flat_differences(stop, of, work)
    if rule.encoding == FLAT_PCODEC:
        return _flat_entropy_coded(stop, of, <int64_t>size_max, rules)
    _flat_widen_all(of, work.wide)
    # A repeat of one value costs a codec some bits, that of a row of values next to nothing.
    if (
        8 * (stop - node) > FLAT_REPEAT_BITS * of.count
        and _flat_repeats(work.wide, of.count, 1, 4, work.seen)
    ) or _flat_repeats(work.wide, of.count, 2, 2, work.seen):
        return _flat_zipped(stop, of, rules)
    return NULL


cdef inline double _flat_entropy_ratio(const FlatNumbers* of, const FlatPolicy* policy) noexcept nogil:
    """What the entropy coder has to reach; 0 where it is not tried."""
    return policy.entropy.ratio if _flat_is_tried(&policy.entropy, of.count * of.width) else 0


cdef uint8_t* _flat_child(
    uint8_t* node, const FlatNumbers* of, FlatRules* rules, FlatWork* work
) noexcept nogil:
    """A node of numbers that are part of another node; its end."""
    cdef uint8_t* stop = _flat_light(node, of, rules, work)
    if of.letter != c'f':
        _flat_widen_all(of, work.wide)
        if not _flat_may_shrink(
            work.wide, of.count, stop - node, 6, _flat_entropy_ratio(of, &rules.policy),
            FLAT_TABLES_BYTES, &rules.policy, work,
        ):
            return stop
    return _flat_heavier(node, stop, of, rules, work)


cdef uint8_t* _flat_number_entries(
    uint8_t* node, const FlatNumbers* of, int64_t entries, FlatRules* rules, FlatWork* work
) noexcept nogil:
    """A node of a dictionary of numbers, whose codes ``work`` has; its end."""
    cdef int64_t width = _flat_width(entries - 1), i
    cdef uint8_t* at = _flat_node(node, TREE_DICTIONARY_LOCAL, 2, of.root)
    cdef uint32_t word = <uint32_t>entries
    cdef FlatNumbers part = of[0]
    memset(at, 0, 8)
    memcpy(at, &word, 4)
    at[4] = <uint8_t>width
    for i in range(entries):
        memcpy(
            <uint8_t*>work.entries + i * of.width, of.values + work.first[i] * of.width, of.width
        )
    _flat_narrow(work.codes, of.count, width, <uint8_t*>work.offsets)
    part.values, part.letter, part.width, part.root = <uint8_t*>work.offsets, c'u', width, NULL
    at = _flat_child(at + 8, &part, rules, work)
    part.values, part.letter, part.width = <uint8_t*>work.entries, of.letter, of.width
    part.count = entries
    return _flat_close(node, _flat_child(at, &part, rules, work))


cdef uint8_t* _flat_search(
    uint8_t* node, uint8_t* stop, const FlatNumbers* of, FlatRules* rules, FlatWork* work
) noexcept nogil:
    """The end of the smallest node of a column's numbers; a light one is at ``node`` already."""
    cdef int64_t entries
    stop = _flat_take(node, stop, _flat_runs(stop, of, rules, work), stop - node)
    stop = _flat_heavier(node, stop, of, rules, work)
    entries = _flat_distinct(of.values, of.width, of.count, stop - node, &rules.policy, work)
    if entries:
        stop = _flat_take(
            node, stop, _flat_number_entries(stop, of, entries, rules, work),
            rules.policy.dictionary.ratio * (stop - node),
        )
    return stop
