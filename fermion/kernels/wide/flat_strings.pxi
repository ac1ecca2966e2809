# Strings of one flat column as the tree of a page, and their bounds; see flat_pages.pxi.

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


cdef struct FlatTexts:
    const int64_t* offsets
    const uint8_t* text
    const int64_t* chosen  # which slots; NULL: the first ones
    int64_t count


cdef inline int64_t _flat_length(const FlatTexts* of, int64_t i) noexcept nogil:
    cdef int64_t slot = i if of.chosen is NULL else of.chosen[i]
    return of.offsets[slot + 1] - of.offsets[slot]


cdef uint8_t* _flat_split(
    uint8_t* node, const FlatTexts* of, const FlatRule* codec, const FlatWork* root,
    FlatRules* rules, FlatWork* work,
) noexcept nogil:
    """A node of the lengths and the bytes of strings; its end. NULL ``codec``: nothing is tried."""
    cdef uint8_t* at = _flat_node(node, TREE_SPLIT_LENGTHS, 1, root)
    cdef uint8_t* tables
    cdef uint8_t* raw
    cdef int64_t i, longest = 0, total = 0, zipped = 0
    cdef uint32_t word
    cdef FlatNumbers lengths
    for i in range(of.count):
        work.other[i] = _flat_length(of, i)
        longest = max(longest, work.other[i])
        total += work.other[i]
    memset(at, 0, 8)
    at[0] = 1
    at[5] = <uint8_t>_flat_width(longest)
    tables = at + 8
    word = <uint32_t>of.count
    memcpy(tables, &word, 4)
    word = <uint32_t>total
    memcpy(tables + 4, &word, 4)
    # Beyond where the frame will go, and no part of the page if there is one.
    raw = tables + 12 + total
    _flat_texts(of, raw)
    if codec is not NULL and _flat_is_tried(codec, total):
        zipped = _flat_zip(rules, codec.ratio, raw, total, tables + 12)
    if zipped:
        at[4] = TREE_CODEC_ZSTD
        word = <uint32_t>zipped
        memcpy(tables + 8, &word, 4)
        at = tables + 12 + zipped
    else:
        memmove(tables + 8, raw, total)
        at = tables + 8 + total
    at = _flat_pad(node, at)
    lengths.letter, lengths.width, lengths.count = c'u', _flat_width(longest), of.count
    lengths.values, lengths.root = work.copy, NULL
    _flat_narrow(work.other, of.count, lengths.width, work.copy)
    if codec is NULL:
        at = _flat_unsigned(at, work.copy, of.count, lengths.width)
    else:
        at = _flat_child(at, &lengths, rules, work)
    return _flat_close(node, at)


cdef void _flat_texts(const FlatTexts* of, uint8_t* out) noexcept nogil:
    """The bytes of some strings, one after the other."""
    cdef int64_t i, size
    if of.chosen is NULL:
        memcpy(out, of.text + of.offsets[0], of.offsets[of.count] - of.offsets[0])
        return
    for i in range(of.count):
        size = _flat_length(of, i)
        memcpy(out, of.text + of.offsets[of.chosen[i]], size)
        out += size


cdef uint8_t* _flat_whole_strings(
    uint8_t* node, const FlatTexts* of, const FlatWork* root
) noexcept nogil:
    """A node of strings as they are; its end."""
    cdef uint8_t* at = _flat_node(node, TREE_PLAIN, 0, root)
    cdef int64_t i, total = 0
    cdef uint32_t word
    for i in range(of.count):
        word = <uint32_t>_flat_length(of, i)
        memcpy(at + 4 * i, &word, 4)
        total += word
    at = _flat_pad(node, at + 4 * of.count)
    _flat_texts(of, at)
    return _flat_close(node, at + total)


cdef bint _flat_constant_string(
    const uint8_t* text, int64_t length, FlatWork* work, FlatResult* found
) noexcept nogil:
    """The page of one string that all slots have."""
    cdef uint8_t* page = _flat_page(work, length + 64)
    cdef uint8_t* node = page + COLUMN_PAGE_HEADER
    cdef uint8_t* stop
    if page is NULL:
        return False
    stop = _flat_node(node, TREE_CONSTANT, 0, work)
    memcpy(stop, &length, 8)
    memcpy(stop + 8, text, length)
    found.data_bytes = _flat_seal(work, _flat_close(node, stop + 8 + length))
    return True


cdef uint8_t* _flat_coded_strings(
    uint8_t* node, const FlatTexts* of, const FlatRule* codec, FlatRules* rules, FlatWork* work,
) noexcept nogil:
    """A node of a dictionary of strings, whose codes ``work`` has; its end.

    ``of``: the distinct ones; ``codec`` as of `_flat_split`.
    """
    cdef uint8_t* at = _flat_node(node, TREE_DICTIONARY_LOCAL, 2, work)
    cdef uint32_t word = <uint32_t>of.count
    cdef FlatNumbers codes
    codes.letter, codes.width, codes.count = c'u', _flat_width(of.count - 1), work.count
    codes.values, codes.root = work.copy, NULL
    memset(at, 0, 8)
    memcpy(at, &word, 4)
    at[4] = <uint8_t>codes.width
    _flat_narrow(work.codes, work.count, codes.width, work.copy)
    if codec is NULL:
        at = _flat_packed(at + 8, work.copy, work.count, codes.width, False, NULL)
    else:
        at = _flat_child(at + 8, &codes, rules, work)
    if codec is NULL and of.count < rules.policy.split_slots_min:
        at = _flat_whole_strings(at, of, NULL)
    else:
        at = _flat_split(at, of, codec, NULL, rules, work)
    return _flat_close(node, at)


cdef int64_t _flat_distinct_strings(
    const int64_t* offsets, const uint8_t* text, int64_t limit, FlatWork* work
) noexcept nogil:
    """How many distinct strings there are, whose codes ``work`` gets; 0 where more than allowed."""
    cdef HashTable table
    cdef int64_t found
    if limit == 0 or not _table_open(&table, 1024):
        return 0
    found = _encode_bytes(
        text, offsets[work.count], offsets, 0, work.count, limit, &table, work.codes, work.first
    )
    free(table.slots)
    return max(found, 0)


cdef bint _flat_strings(
    const int64_t* offsets, const uint8_t* text, const uint8_t* bits, FlatRules* rules,
    FlatWork* work, FlatResult* found
) noexcept nogil:
    """Strings as they are, in lengths and bytes, or as a page with its own dictionary."""
    cdef int64_t count = work.count, total = offsets[count], i
    cdef int64_t plain = _flat_plain_size(((4 * count + 7) & ~<int64_t>7) + total)
    cdef const FlatRule* codec = &rules.policy.strings_codec
    cdef FlatTexts of, entries
    cdef uint8_t* page
    cdef uint8_t* node
    cdef uint8_t* stop
    cdef uint8_t* split
    cdef bint is_constant = True, repeat = False
    for i in range(1, count):
        is_constant &= offsets[i + 1] - offsets[i] == offsets[1]
    if is_constant and (count == 1 or memcmp(text, text + offsets[1], total - offsets[1]) == 0):
        _flat_string_bounds(offsets, text, bits, work, found)
        return _flat_constant_string(text, offsets[1], work, found)
    page = _flat_page(work, _flat_room(count) + 8 * total)
    if page is NULL:
        return False
    node = page + COLUMN_PAGE_HEADER
    _flat_string_bounds(offsets, text, bits, work, found)
    of.offsets, of.text, of.chosen, of.count = offsets, text, NULL, count
    if plain < rules.policy.search_bytes_min:
        return _flat_few_strings(&of, plain, rules, work, found)
    entries = of
    entries.chosen = work.first
    entries.count = _flat_distinct_strings(
        offsets, text, count // rules.policy.entry_slots_min, work
    )
    if not entries.count and plain >= rules.policy.strings_bytes_max:
        return False
    stop = node
    if entries.count:
        for i in range(count):
            work.wide[i] = work.codes[i]
        repeat = _flat_repeats(work.wide, count, 6, 2, work.seen)
        stop = _flat_coded_strings(node, &entries, codec, rules, work)
    if repeat or not entries.count or 2 * (stop - node) > plain:
        split = _flat_split(stop, &of, codec, work, rules, work)
        stop = _flat_take(node, stop, split, plain) if entries.count else split
    if stop - page >= rules.policy.chunk_bytes_max or stop - node > plain:
        return False
    found.data_bytes = _flat_seal(work, stop)
    return True


cdef bint _flat_few_strings(
    const FlatTexts* of, int64_t plain, FlatRules* rules, FlatWork* work, FlatResult* found
) noexcept nogil:
    """The page of strings so few that a close look at them costs more than it saves."""
    cdef int64_t size, zipped = 0
    cdef int64_t whole = plain + 4 * (work.slots - of.count)  # with null slots
    cdef uint8_t* node = work.out + work.size + COLUMN_PAGE_HEADER
    cdef uint8_t* stop = NULL
    cdef int encoding
    cdef FlatTexts entries = of[0]
    if of.count >= rules.policy.split_slots_min:
        entries.chosen = work.first
        entries.count = _flat_distinct_strings(of.offsets, of.text, of.count // 2, work)
        if entries.count:
            stop = _flat_coded_strings(node, &entries, NULL, rules, work)
        else:
            stop = _flat_split(node, of, NULL, work, rules, work)
    if stop is NULL or stop - node > whole:
        stop = _flat_whole_strings(node, of, work)
    size = stop - node
    if _flat_is_packed(plain, rules) and size >= rules.policy.page_bytes_min:
        zipped = _flat_zip(rules, rules.policy.page_ratio, node, size, stop)
    if zipped:
        encoding = node[0] | node[1] << 8
        memmove(node, stop, zipped)
        stop = _flat_pad(node, node + zipped)
        found.data_bytes = _flat_seal_as(work, stop, TREE_CODEC_ZSTD, encoding, size)
    else:
        found.data_bytes = _flat_seal(work, stop)
    return True
