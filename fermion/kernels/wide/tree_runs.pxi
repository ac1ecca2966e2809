# Nodes whose values depend on those before them: differences (DELTA) and runs (RLE).

cdef int TREE_DELTA = _EncodingId.DELTA, TREE_RLE = _EncodingId.RLE


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
        and _open_node(node.start + at, node.stop, node.depth + 1, child)
        and child.flags == 0
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


cdef bint _pick_delta(
    TreeReader* reader, TreeNode* node, char letter, int64_t width, int64_t count,
    const int64_t* slots, Py_ssize_t picks, uint8_t* out,
) noexcept nogil:
    """Only the blocks that hold slots are added up."""
    cdef TreeNode child
    cdef uint64_t whole[BLOCK_VALUES]
    cdef uint8_t* values = <uint8_t*>whole
    cdef int64_t block = -1, first = 0, stop
    cdef Py_ssize_t i, at_block = 0
    if (letter != c'i' and letter != c'u') or not _open_delta(node, width, count, &child):
        return False
    if child.encoding != TREE_FOR_BITPACK:
        return _ask_picks(reader, node, letter, width, count, slots, picks, out)
    if not _is_bitpacked(child.start, child.stop - child.start, width, count):
        return False
    for i in range(picks):
        if slots[i] // BLOCK_VALUES != block:
            block = slots[i] // BLOCK_VALUES
            first, stop = block * BLOCK_VALUES, min((block + 1) * BLOCK_VALUES, count)
            if _unpack_all(
                child.start, child.stop - child.start, width, first, stop, count, values, &at_block
            ) != BLOCK_FINE:
                return False
            _add_up_words(node.start + 8, block, stop - first, width, values)
        memcpy(out + i * width, values + (slots[i] - first) * width, width)
    return True


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
        and _open_node(lengths.stop, node.stop, node.depth + 1, &rest)
        and rest.flags == 0
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
