# Single slots that lie apart, out of blocks: only the blocks that hold some are decoded.


cdef int _check_slots(const int64_t[::1] slots, int64_t count) except -1:
    """Slots ascend and are below ``count``."""
    cdef Py_ssize_t i
    cdef int64_t previous = -1
    for i in range(slots.shape[0]):
        if slots[i] <= previous or slots[i] >= count:
            raise ValueError(f"slot {slots[i]} after {previous}: expected to ascend below {count}")
        previous = slots[i]
    return 0


cdef enum:
    # More picks than this, and a whole block is unpacked faster.
    PICKED_ALONE_MAX = 32


cdef inline word_type _packed_in_lanes(
    const uint8_t* packed, int width, Py_ssize_t slot, word_type mask
) noexcept nogil:
    """The bits of one value of a full block, which `_pack_lanes` wrote."""
    cdef int bits = 8 * sizeof(word_type), lanes = ROW_BYTES // sizeof(word_type)
    cdef int at = slot // lanes * width, shift = at % bits
    cdef const uint8_t* words = packed + at // bits * ROW_BYTES + slot % lanes * sizeof(word_type)
    cdef word_type low, high
    memcpy(&low, words, sizeof(word_type))
    low = <word_type>(low >> shift)
    if shift + width > bits:
        memcpy(&high, words + ROW_BYTES, sizeof(word_type))
        low |= <word_type>(high << (bits - shift))
    return low & mask


cdef inline word_type _packed_in_sequence(
    const uint8_t* packed, int64_t size, int width, Py_ssize_t slot, word_type mask
) noexcept nogil:
    """The bits of one value of a partial block, which `_pack_sequence` wrote."""
    cdef uint64_t low = 0, high = 0
    cdef int64_t at = slot * width >> 3
    cdef int shift = slot * width & 7
    memcpy(&low, packed + at, min(<int64_t>8, size - at))
    low >>= shift
    if shift + width > 64:
        memcpy(&high, packed + at + 8, 1)
        low |= high << (64 - shift)
    return <word_type>low & mask


cdef int _pick_in_block(
    const uint8_t* block, int64_t available, Py_ssize_t count, const int64_t* slots,
    int64_t first, Py_ssize_t picks, word_type* out,
) noexcept nogil:
    """Check a block, then read single values of it; its first slot is ``first``."""
    cdef BlockPlan plan
    cdef word_type base, mask
    cdef uint64_t high
    cdef uint16_t position
    cdef Py_ssize_t i, slot
    cdef int k, error = _check_block(block, available, count, sizeof(word_type), &plan)
    cdef const uint8_t* packed = block + BLOCK_HEADER + sizeof(word_type)
    cdef int64_t size
    if error:
        return error
    size = (count * plan.width + 7) >> 3
    memcpy(&base, block + BLOCK_HEADER, sizeof(word_type))
    if plan.width == 0:
        for i in range(picks):
            out[i] = base
    elif count == BLOCK_VALUES:
        mask = <word_type>(~<uint64_t>0 >> (64 - plan.width))
        for i in range(picks):
            out[i] = base + _packed_in_lanes[word_type](
                packed, plan.width, slots[i] - first, mask
            )
    else:
        mask = <word_type>(~<uint64_t>0 >> (64 - plan.width))
        for i in range(picks):
            out[i] = base + _packed_in_sequence[word_type](
                packed, size, plan.width, slots[i] - first, mask
            )
    i = 0
    for k in range(plan.patch_count):
        memcpy(&position, packed + size + 2 * k, 2)
        slot = first + position
        while i < picks and slots[i] < slot:
            i += 1
        if i < picks and slots[i] == slot:
            high = 0
            memcpy(
                &high, packed + size + 2 * plan.patch_count + k * plan.patch_bytes,
                plan.patch_bytes,
            )
            out[i] += <word_type>(high << plan.width)
    return BLOCK_FINE


cdef int _bitpack_pick(
    const uint8_t* payload, int64_t payload_size, int64_t count, const int64_t* slots,
    Py_ssize_t picks, word_type* out, Py_ssize_t* at_block,
) noexcept nogil:
    """A few values of a block are read where they lie; of more the block is unpacked."""
    cdef int64_t blocks = (count + BLOCK_VALUES - 1) // BLOCK_VALUES, block, first
    cdef const uint8_t* ends = payload + PAYLOAD_HEADER
    cdef const uint8_t* body = ends + 4 * blocks
    cdef int64_t body_size = payload_size - PAYLOAD_HEADER - 4 * blocks
    cdef uint32_t begin, end
    cdef word_type whole[BLOCK_VALUES]
    cdef Py_ssize_t i = 0, stop, size
    cdef int error
    while i < picks:
        block = at_block[0] = slots[i] // BLOCK_VALUES
        first = block * BLOCK_VALUES
        stop = i + 1
        while stop < picks and slots[stop] < first + BLOCK_VALUES:
            stop += 1
        begin = 0
        if block:
            memcpy(&begin, ends + 4 * (block - 1), 4)
        memcpy(&end, ends + 4 * block, 4)
        if begin > end or end > body_size:
            return BLOCK_OUTSIDE
        size = min(count - first, BLOCK_VALUES)
        if stop - i <= PICKED_ALONE_MAX:
            error = _pick_in_block(
                body + begin, end - begin, size, slots + i, first, stop - i, out + i
            )
        else:
            error = _read_block(body + begin, end - begin, size, &whole[0])
        if error:
            return error
        if stop - i > PICKED_ALONE_MAX:
            for i in range(i, stop):
                out[i] = whole[slots[i] - first]
        i = stop
    return BLOCK_FINE


cdef int _unpack_picks(
    const uint8_t* payload, int64_t size, int64_t width, int64_t count, const int64_t* slots,
    Py_ssize_t picks, uint8_t* out, Py_ssize_t* at_block,
) noexcept nogil:
    """Values of ``width`` bytes at ``out``, which has that alignment."""
    if width == 1:
        return _bitpack_pick(payload, size, count, slots, picks, out, at_block)
    if width == 2:
        return _bitpack_pick(payload, size, count, slots, picks, <uint16_t*>out, at_block)
    if width == 4:
        return _bitpack_pick(payload, size, count, slots, picks, <uint32_t*>out, at_block)
    return _bitpack_pick(payload, size, count, slots, picks, <uint64_t*>out, at_block)


def bitpack_pick(const uint8_t[::1] payload, int64_t count, slots, out):
    """Values of some ascending slots of a payload of ``count`` values."""
    cdef const int64_t[::1] wanted = _input(slots)
    cdef cnp.ndarray target = _output(out)
    cdef uint8_t* data = _bytes_out(target)
    cdef Py_ssize_t width = target.itemsize, picks = wanted.shape[0], block = 0
    cdef int64_t size = payload.shape[0]
    cdef int error = BLOCK_FINE
    _check_integers(target)
    _same_length(target.shape[0], picks, "out")
    if not 0 <= count <= 0xFFFFFFFF:
        raise ValueError(f"{count} values: expected 0 to 2**32 - 1")
    _check_slots(wanted, count)
    if size < PAYLOAD_HEADER or not _is_bitpacked(&payload[0], size, width, count):
        raise ValueError(f"expected a payload of {count} values of {8 * width} bits")
    if picks == 0:
        return
    cdef const uint8_t* source = &payload[0]
    with nogil:
        error = _unpack_picks(source, size, width, count, &wanted[0], picks, data, &block)
    if error:
        raise ValueError(f"block {block}: {_BLOCK_ERRORS[error]}")


cdef int64_t _fsst_pick(
    const uint64_t* words, const uint8_t* widths, const uint8_t* codes, const int64_t* code_ends,
    int64_t block_slots, const int64_t* bounds, const int64_t* slots, Py_ssize_t picks,
    uint8_t* out, bint has_slack, int32_t* seen,
) noexcept nogil:
    """The number of slots that were decoded; the next one is not as its length says.

    ``has_slack``: 8 bytes may be written behind the output.
    """
    cdef bint enough
    cdef int64_t block = -1, start, stop, codes_start = 0, to = 0
    cdef Py_ssize_t i
    cdef Decoded state
    state.at = state.written = state.seen = 0
    for i in range(picks):
        if slots[i] // block_slots != block:
            block = slots[i] // block_slots
            codes_start = code_ends[block - 1] if block else 0
            state.at = state.written = 0
        start = bounds[slots[i]] - bounds[block * block_slots]
        stop = start + bounds[slots[i] + 1] - bounds[slots[i]]
        _skip_symbols(
            widths, codes + codes_start, code_ends[block] - codes_start, start, &state
        )
        if not _write_last_symbols(
            words, widths, codes + codes_start, code_ends[block] - codes_start, NULL, start, &state
        ) or state.written != start:
            seen[0] |= state.seen
            return i
        # The state counts a block's bytes, of which the output has but some.
        state.written = 0
        _write_symbols(
            words, widths, codes + codes_start, code_ends[block] - codes_start, out + to,
            stop - start, &state,
        )
        if has_slack:
            enough = _write_few_symbols(
                words, widths, codes + codes_start, code_ends[block] - codes_start, out + to,
                stop - start, &state,
            )
        else:
            enough = _write_last_symbols(
                words, widths, codes + codes_start, code_ends[block] - codes_start, out + to,
                stop - start, &state,
            )
        if not enough or state.written != stop - start:
            seen[0] |= state.seen
            return i
        to += stop - start
        state.written = stop
    seen[0] |= state.seen
    return picks


def fsst_pick(
    const uint8_t[::1] codes, code_ends, int64_t block_slots, bounds, const uint8_t[::1] sizes,
    const uint8_t[::1] symbols, slots, uint8_t[::1] out,
):
    """Values of some ascending slots, end to end; each block of values has codes of its own."""
    cdef const int64_t[::1] ends = _input(code_ends)
    cdef const int64_t[::1] limits = _input(bounds)
    cdef const int64_t[::1] wanted = _input(slots)
    cdef Symbol known[SYMBOLS_MAX]
    cdef uint64_t words[256]
    cdef uint8_t widths[256]
    cdef uint8_t nothing = 0
    cdef Py_ssize_t i, picks = wanted.shape[0]
    cdef int64_t total = 0, done = 0, count = limits.shape[0] - 1
    cdef int32_t seen = 0
    _read_symbols(sizes, symbols, known)
    if block_slots < 1 or count < 0 or ends.shape[0] * block_slots < count:
        raise ValueError(f"{ends.shape[0]} blocks of {block_slots} do not hold {count} values")
    _check_offsets(limits, INT64_MAX)
    _check_offsets(ends, codes.shape[0])
    _check_slots(wanted, count)
    for i in range(picks):
        total += limits[wanted[i] + 1] - limits[wanted[i]]
    _same_length(out.shape[0], total, "out")
    if picks == 0:
        return
    cdef const uint8_t* source = &codes[0] if codes.shape[0] else &nothing
    cdef uint8_t* target = &out[0] if out.shape[0] else &nothing
    with nogil:
        memset(words, 0, sizeof(words))
        memset(widths, UNKNOWN_SIZE, sizeof(widths))
        for i in range(sizes.shape[0]):
            words[i] = known[i].word
            widths[i] = known[i].size
        done = _fsst_pick(
            words, widths, source, &ends[0], block_slots, &limits[0], &wanted[0], picks, target,
            False, &seen,
        )
    if seen & UNKNOWN_SIZE:
        raise ValueError(f"a code is not below {sizes.shape[0]}, the number of symbols")
    if done < picks:
        raise ValueError(f"the codes of slot {wanted[done]} do not stand for as many bytes")
