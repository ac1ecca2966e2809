# Nodes whose values depend on those before them: differences (DELTA) and runs (RLE).

cdef int TREE_DELTA = _EncodingId.DELTA, TREE_RLE = _EncodingId.RLE


cdef enum:
    # More picks than this of a block, and adding up all of it is faster.
    PICKED_SUMS_MAX = 48


cdef bint _open_delta(
    TreeNode* node, int64_t width, int64_t count, TreeNode* child
) noexcept nogil:
    """The node of the differences; the first values of the blocks lie 8 bytes into ``node``."""
    cdef int64_t size = node.stop - node.start, at
    if node.children != 1 or size < 8 or node.start[0] != width:
        return False
    at = (8 + width * ((count + BLOCK_VALUES - 1) // BLOCK_VALUES) + 7) & ~<int64_t>7
    return (
        at <= size
        and _open_child(node, node.start + at, child)
    )


cdef void _add_up(
    const uint8_t* bases, int64_t first_block, int64_t count, word_type* values
) noexcept nogil:
    """Differences as values, in place, from the start of a block on."""
    cdef int64_t first = 0
    cdef word_type base
    while first < count:
        memcpy(
            &base, bases + (first_block + first // BLOCK_VALUES) * sizeof(word_type),
            sizeof(word_type),
        )
        _delta_decode(
            values + first, &base, min(<int64_t>BLOCK_VALUES, count - first), values + first
        )
        first += BLOCK_VALUES


cdef void _add_up_words(
    const uint8_t* bases, int64_t first_block, int64_t count, int64_t width, uint8_t* values
) noexcept nogil:
    if width == 1:
        _add_up(bases, first_block, count, values)
    elif width == 2:
        _add_up(bases, first_block, count, <uint16_t*>values)
    elif width == 4:
        _add_up(bases, first_block, count, <uint32_t*>values)
    else:
        _add_up(bases, first_block, count, <uint64_t*>values)


cdef bint _decode_delta(
    TreeReader* reader, TreeNode* node, char letter, int64_t width, int64_t count, uint8_t* out
) noexcept nogil:
    cdef TreeNode child
    if (letter != c'i' and letter != c'u') or not _open_delta(node, width, count, &child):
        return False
    if not _decode_node(reader, &child, c'i', width, count, out):
        return False
    _add_up_words(node.start + 8, 0, count, width, out)
    return True


cdef inline word_type _lanes_sum(const word_type* lanes, int first, int stop) noexcept nogil:
    cdef word_type total = 0
    cdef int lane
    for lane in range(first, stop):
        total += lanes[lane]
    return total


cdef void _add_planes(const uint8_t* packed, uint64_t* planes) noexcept nogil:
    """Which bits are set how often in 16 words: bit i of plane k is bit k of that number."""
    cdef uint64_t carry, before
    cdef int i, k
    memset(planes, 0, 5 * sizeof(uint64_t))
    for i in range(16):
        memcpy(&carry, packed + 8 * i, 8)
        for k in range(5):
            before = planes[k]
            planes[k] = before ^ carry
            carry &= before


cdef void _pick_bit_sums(
    const uint8_t* packed, const int64_t* slots, int64_t first, Py_ssize_t picks, word_type* out
) noexcept nogil:
    """The number of bits up to single slots of a full block of 1-bit values.

    Row i of the lanes is bit i of each of their words; as many lanes as fit lie in 64 bits.
    """
    cdef int bits = 8 * sizeof(word_type), lanes = ROW_BYTES // sizeof(word_type)
    cdef uint64_t planes[5]
    cdef uint64_t whole
    cdef uint64_t each = ~<uint64_t>0 // <uint64_t>(<word_type>~<word_type>0)  # bit 0 of a lane
    cdef word_type word, found
    cdef Py_ssize_t i, slot
    cdef int row, lane
    _add_planes(packed, planes)
    for i in range(picks):
        slot = slots[i] - first
        row = slot // lanes
        whole = each * ((<uint64_t>1 << row) - 1)
        found = <word_type>(
            fermion_popcount64(planes[0] & whole)
            + 2 * fermion_popcount64(planes[1] & whole)
            + 4 * fermion_popcount64(planes[2] & whole)
            + 8 * fermion_popcount64(planes[3] & whole)
            + 16 * fermion_popcount64(planes[4] & whole)
        )
        for lane in range(slot % lanes + 1):
            memcpy(&word, packed + lane * sizeof(word_type), sizeof(word_type))
            found += (word >> row) & 1
        out[i] = found


cdef void _pick_sums(
    const uint8_t* block, Py_ssize_t count, const BlockPlan* plan, word_type before,
    const int64_t* slots, int64_t first, Py_ssize_t picks, word_type* out,
) noexcept nogil:
    """Sums of a checked block's values up to single slots, plus ``before``.

    The slots of a full block lie in rows of lanes: whole rows are added up lane by lane, and only
    for a slot the lanes with each other.
    """
    cdef int bits = 8 * sizeof(word_type), lanes = ROW_BYTES // sizeof(word_type)
    cdef const uint8_t* packed = block + BLOCK_HEADER + sizeof(word_type)
    cdef const uint8_t* positions = packed + ((count * plan.width + 7) >> 3)
    cdef const uint8_t* patches = positions + 2 * plan.patch_count
    cdef const uint8_t* words
    cdef word_type sums[ROW_BYTES]  # as many as there can be lanes
    cdef word_type row_values[ROW_BYTES]
    cdef word_type base, mask, low, high, total
    cdef uint64_t patch
    cdef uint16_t position
    cdef Py_ssize_t i, slot
    cdef int row = 0, lane, shift, rest, k = 0
    memcpy(&base, block + BLOCK_HEADER, sizeof(word_type))
    mask = <word_type>(~<uint64_t>0 >> (64 - plan.width)) if plan.width else <word_type>0
    memset(sums, 0, lanes * sizeof(word_type))
    if plan.width == 1:
        _pick_bit_sums[word_type](packed, slots, first, picks, out)
    for i in range(picks):
        slot = slots[i] - first
        total = <word_type>(before + <word_type>(base * <word_type>(slot + 1)))
        if plan.width == 1:
            total += out[i]
        elif plan.width:
            # The row of the slot too, of which the lanes behind it are left out.
            while row <= slot // lanes:
                words = packed + row * plan.width // bits * ROW_BYTES
                shift = row * plan.width % bits
                rest = bits - shift
                if plan.width <= rest:
                    for lane in range(lanes):
                        memcpy(&low, words + lane * sizeof(word_type), sizeof(word_type))
                        low = <word_type>(low >> shift) & mask
                        row_values[lane] = low
                        sums[lane] += low
                else:
                    for lane in range(lanes):
                        memcpy(&low, words + lane * sizeof(word_type), sizeof(word_type))
                        memcpy(
                            &high, words + ROW_BYTES + lane * sizeof(word_type), sizeof(word_type)
                        )
                        low = (<word_type>(low >> shift) | <word_type>(high << rest)) & mask
                        row_values[lane] = low
                        sums[lane] += low
                row += 1
            total += _lanes_sum[word_type](sums, 0, lanes)
            total -= _lanes_sum[word_type](row_values, slot % lanes + 1, lanes)
        while k < plan.patch_count:
            memcpy(&position, positions + 2 * k, 2)
            if position > slot:
                break
            patch = 0
            memcpy(&patch, patches + k * plan.patch_bytes, plan.patch_bytes)
            before += <word_type>(patch << plan.width)
            total += <word_type>(patch << plan.width)
            k += 1
        out[i] = total


cdef inline void _first_of_block(
    const uint8_t* block, const BlockPlan* plan, word_type* first
) noexcept nogil:
    """The first value of a checked block of `BLOCK_VALUES`."""
    cdef const uint8_t* packed = block + BLOCK_HEADER + sizeof(word_type)
    cdef const uint8_t* positions = packed + ((BLOCK_VALUES * plan.width) >> 3)
    cdef word_type value, low = 0
    cdef uint16_t position
    cdef uint64_t patch = 0
    memcpy(&value, block + BLOCK_HEADER, sizeof(word_type))
    if plan.width:
        memcpy(&low, packed, sizeof(word_type))
        value += low & <word_type>(~<uint64_t>0 >> (64 - plan.width))
    if plan.patch_count:
        memcpy(&position, positions, 2)
        if position == 0:
            memcpy(&patch, positions + 2 * plan.patch_count, plan.patch_bytes)
            value += <word_type>(patch << plan.width)
    first[0] = value


cdef bint _pick_added(
    const uint8_t* bases, TreeNode* child, int64_t count, const int64_t* slots, Py_ssize_t picks,
    word_type* out,
) noexcept nogil:
    """Values of single slots: differences of a packed node added up in the blocks that hold some."""
    cdef int64_t blocks = (count + BLOCK_VALUES - 1) // BLOCK_VALUES, block, first
    cdef const uint8_t* ends = child.start + PAYLOAD_HEADER
    cdef const uint8_t* body = ends + 4 * blocks
    cdef int64_t body_size = child.stop - body
    cdef uint32_t begin, end
    cdef BlockPlan plan
    cdef word_type whole[BLOCK_VALUES]
    cdef word_type value, own
    cdef Py_ssize_t i = 0, stop, size, at
    while i < picks:
        block = slots[i] // BLOCK_VALUES
        first = block * BLOCK_VALUES
        stop = i + 1
        while stop < picks and slots[stop] < first + BLOCK_VALUES:
            stop += 1
        begin = 0
        if block:
            memcpy(&begin, ends + 4 * (block - 1), 4)
        memcpy(&end, ends + 4 * block, 4)
        size = min(count - first, BLOCK_VALUES)
        if begin > end or end > body_size or _check_block(
            body + begin, end - begin, size, sizeof(word_type), &plan
        ):
            return False
        memcpy(&value, bases + block * sizeof(word_type), sizeof(word_type))
        memcpy(&own, body + begin + BLOCK_HEADER, sizeof(word_type))
        if size == BLOCK_VALUES and stop - i <= PICKED_SUMS_MAX:
            # The first difference of a block is that to the block before, or nothing: it is taken
            # off again.
            _first_of_block[word_type](body + begin, &plan, &own)
            _pick_sums[word_type](
                body + begin, size, &plan, <word_type>(value - own), slots + i, first, stop - i,
                out + i,
            )
        else:
            _unpack_block[word_type](body + begin, size, &plan, own, &whole[0])
            _delta_decode[word_type](&whole[0], &value, size, &whole[0])
            for at in range(i, stop):
                out[at] = whole[slots[at] - first]
        i = stop
    return True


cdef bint _pick_delta(
    TreeReader* reader, TreeNode* node, char letter, int64_t width, int64_t count,
    const int64_t* slots, Py_ssize_t picks, uint8_t* out,
) noexcept nogil:
    """Only in the blocks that hold slots differences are added up."""
    cdef TreeNode child
    cdef const uint8_t* bases = node.start + 8
    if (letter != c'i' and letter != c'u') or not _open_delta(node, width, count, &child):
        return False
    if child.encoding != TREE_FOR_BITPACK:
        return _ask_picks(reader, node, letter, width, count, slots, picks, out)
    if not _is_bitpacked(child.start, child.stop - child.start, width, count):
        return False
    if width == 1:
        return _pick_added[uint8_t](bases, &child, count, slots, picks, out)
    if width == 2:
        return _pick_added[uint16_t](bases, &child, count, slots, picks, <uint16_t*>out)
    if width == 4:
        return _pick_added[uint32_t](bases, &child, count, slots, picks, <uint32_t*>out)
    return _pick_added[uint64_t](bases, &child, count, slots, picks, <uint64_t*>out)


cdef bint _open_runs(
    TreeReader* reader, TreeNode* node, char letter, int64_t width, int64_t count,
    uint32_t* runs, int64_t** ends, uint8_t** values,
) noexcept nogil:
    """Where runs end, ``runs + 1`` from 0 on, and their values; memory to be freed in any case."""
    cdef TreeNode lengths, rest
    cdef TreeStrings offsets
    if node.children != 2 or node.stop - node.start < 8:
        return False
    memcpy(runs, node.start, 4)
    if not 1 <= runs[0] <= count or node.start[4] not in (1, 2, 4):
        return False
    ends[0] = <int64_t*>malloc(8 * (<int64_t>runs[0] + 1))
    values[0] = <uint8_t*>malloc(runs[0] * width + 8)
    if ends[0] is NULL or values[0] is NULL:
        return False
    offsets.offsets, offsets.data, offsets.total = ends[0], NULL, 0
    return (
        _open_node(node.start + 8, node.stop, node.depth + 1, &lengths)
        and _decode_lengths(reader, node.start + 8, node, node.start[4], runs[0], &offsets)
        and offsets.total == count
        and _open_child(node, lengths.stop, &rest)
        and _decode_node(reader, &rest, letter, width, runs[0], values[0])
    )


cdef bint _decode_runs(
    TreeReader* reader, TreeNode* node, char letter, int64_t width, int64_t count, uint8_t* out
) noexcept nogil:
    cdef uint32_t runs = 0, run
    cdef int64_t* ends = NULL
    cdef uint8_t* values = NULL
    cdef bint fine = _open_runs(reader, node, letter, width, count, &runs, &ends, &values)
    for run in range(runs if fine else 0):
        if ends[run + 1] > ends[run]:
            _fill(out + ends[run] * width, values + run * width, ends[run + 1] - ends[run], width)
    free(ends)
    free(values)
    return fine


cdef bint _pick_runs(
    TreeReader* reader, TreeNode* node, char letter, int64_t width, int64_t count,
    const int64_t* slots, Py_ssize_t picks, uint8_t* out,
) noexcept nogil:
    cdef uint32_t runs = 0
    cdef int64_t run = 0
    cdef int64_t* ends = NULL
    cdef uint8_t* values = NULL
    cdef Py_ssize_t i
    cdef bint fine = _open_runs(reader, node, letter, width, count, &runs, &ends, &values)
    for i in range(picks if fine else 0):
        while ends[run + 1] <= slots[i]:
            run += 1
        memcpy(out + i * width, values + run * width, width)
    free(ends)
    free(values)
    return fine
