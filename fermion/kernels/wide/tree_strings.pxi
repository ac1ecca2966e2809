# Strings of encoding trees; the other half of trees.pxi.

cdef struct TreeStrings:
    int64_t* offsets  # count + 1 of them, owned by the caller
    uint8_t* data  # owned by whoever asked, to be freed
    int64_t total


cdef bint _decode_strings(
    TreeReader* reader, TreeNode* node, int64_t count, TreeStrings* out
) noexcept nogil:
    """All strings of a node: offsets from 0, and their bytes in memory to be freed."""
    out.data, out.total, out.offsets[0] = NULL, 0, 0
    if count == 0:
        out.data = <uint8_t*>malloc(8)  # Arrow wants memory for no bytes too
        return out.data is not NULL
    if node.encoding == TREE_PLAIN:
        return _decode_plain_strings(reader, node, count, out)
    if node.encoding == TREE_SPLIT_LENGTHS:
        return _decode_split_lengths(reader, node, count, out)
    if node.encoding == TREE_DICTIONARY_LOCAL:
        return _decode_dictionary_strings(reader, node, count, out)
    return False


cdef bint _take_bytes(
    TreeReader* reader, const uint8_t* source, int64_t available, TreeStrings* out
) noexcept nogil:
    """A copy of the strings' bytes, which lie in the page as they are."""
    if out.total > available or out.total > reader.output_bytes_max:
        return False
    out.data = <uint8_t*>malloc(out.total + 8)
    if out.data is NULL:
        return False
    memcpy(out.data, source, out.total)
    return True


cdef bint _decode_plain_strings(
    TreeReader* reader, TreeNode* node, int64_t count, TreeStrings* out
) noexcept nogil:
    cdef int64_t size = node.stop - node.start, table = (4 * count + 7) & ~<int64_t>7, i
    cdef uint32_t length
    if size < table:
        return False
    for i in range(count):
        memcpy(&length, node.start + 4 * i, 4)
        out.total += length
        out.offsets[i + 1] = out.total
    return _take_bytes(reader, node.start + table, size - table, out)


cdef bint _decode_lengths(
    TreeReader* reader, const uint8_t* at, TreeNode* node, int width, int64_t count,
    TreeStrings* out,
) noexcept nogil:
    """Offsets from a child that holds lengths."""
    cdef uint8_t* lengths = <uint8_t*>malloc(count * width + 8)
    cdef bint fine = False
    cdef uint64_t seen = 0
    if lengths is NULL:
        return False
    if _decode_numbers(reader, at, node.stop, node.depth + 1, c'u', width, count, lengths):
        if width == 1:
            seen = _prefix_sum(lengths, count, out.offsets)
        elif width == 2:
            seen = _prefix_sum(<uint16_t*>lengths, count, out.offsets)
        else:
            seen = _prefix_sum(<uint32_t*>lengths, count, out.offsets)
        fine = not seen >> 63
    free(lengths)
    out.total = out.offsets[count]
    return fine


cdef struct SplitLengths:
    # Where the parts of a node lie; the number of its slots and what its tables take up is checked.
    uint32_t frames
    int codec
    int width
    const uint8_t* slot_ends
    const uint8_t* raw_ends
    const uint8_t* stored_ends
    const uint8_t* data
    const uint8_t* lengths
    int64_t raw_total
    int64_t stored


cdef bint _open_split_lengths(TreeNode* node, int64_t count, SplitLengths* parts) noexcept nogil:
    cdef int64_t size = node.stop - node.start, tables, child
    cdef uint32_t last_slot, raw_end, stored_end
    if node.children != 1 or size < 8:
        return False
    memcpy(&parts.frames, node.start, 4)
    parts.codec, parts.width = node.start[4], node.start[5]
    if parts.frames == 0 or parts.width not in (1, 2, 4):
        return False
    if parts.codec != TREE_CODEC_NONE and parts.codec != TREE_CODEC_ZSTD:
        return False
    tables = 8 + (12 if parts.codec == TREE_CODEC_ZSTD else 8) * <int64_t>parts.frames
    if size < tables:
        return False
    parts.slot_ends = node.start + 8
    parts.raw_ends = parts.slot_ends + 4 * <int64_t>parts.frames
    parts.stored_ends = parts.raw_ends
    if parts.codec == TREE_CODEC_ZSTD:
        parts.stored_ends += 4 * <int64_t>parts.frames
    parts.data = node.start + tables
    memcpy(&last_slot, parts.raw_ends - 4, 4)
    memcpy(&raw_end, parts.raw_ends + 4 * <int64_t>(parts.frames - 1), 4)
    memcpy(&stored_end, parts.stored_ends + 4 * <int64_t>(parts.frames - 1), 4)
    parts.raw_total, parts.stored = raw_end, stored_end
    child = (tables + parts.stored + 7) & ~<int64_t>7
    parts.lengths = node.start + child
    return last_slot == count and child <= size


cdef bint _are_cut_at_values(
    const SplitLengths* parts, const int64_t* offsets, int64_t count
) noexcept nogil:
    """Whether the pieces end where their last values do, one after the other, the last at all."""
    cdef int64_t piece, last = 0
    cdef uint32_t slot_end, raw_end
    for piece in range(parts.frames):
        memcpy(&slot_end, parts.slot_ends + 4 * piece, 4)
        memcpy(&raw_end, parts.raw_ends + 4 * piece, 4)
        if slot_end < last or slot_end > count or offsets[slot_end] != raw_end:
            return False
        last = slot_end
    return offsets[count] == parts.raw_total


cdef bint _decode_split_lengths(
    TreeReader* reader, TreeNode* node, int64_t count, TreeStrings* out
) noexcept nogil:
    cdef SplitLengths parts
    cdef int64_t i
    cdef uint32_t raw_end, stored_end, raw_start = 0, stored_start = 0
    if not _open_split_lengths(node, count, &parts):
        return False
    if not _decode_lengths(reader, parts.lengths, node, parts.width, count, out):
        return False
    if not _are_cut_at_values(&parts, out.offsets, count):
        return False
    if parts.codec == TREE_CODEC_NONE:
        return _take_bytes(reader, parts.data, parts.stored, out)
    if out.total > reader.output_bytes_max:
        return False
    out.data = <uint8_t*>malloc(out.total + 8)
    if out.data is NULL:
        return False
    for i in range(parts.frames):
        memcpy(&raw_end, parts.raw_ends + 4 * i, 4)
        memcpy(&stored_end, parts.stored_ends + 4 * i, 4)
        if stored_end < stored_start or stored_end > parts.stored:
            return False
        if raw_end > raw_start and not _unzip(
            reader, parts.data + stored_start, stored_end - stored_start,
            out.data + raw_start, raw_end - raw_start,
        ):
            return False
        raw_start, stored_start = raw_end, stored_end
    return True


cdef bint _decode_dictionary_strings(
    TreeReader* reader, TreeNode* node, int64_t count, TreeStrings* out
) noexcept nogil:
    cdef uint32_t entries = 0
    cdef const uint8_t* rest = NULL
    cdef uint32_t* codes = _decode_codes(reader, node, count, &entries, &rest)
    cdef TreeNode child
    cdef TreeStrings values
    cdef int64_t i
    cdef bint fine = False
    if codes is NULL:
        return False
    values.data = NULL
    values.offsets = <int64_t*>malloc(8 * (<int64_t>entries + 1))
    if (
        values.offsets is not NULL
        and _open_child(node, rest, &child)
        and _decode_strings(reader, &child, entries, &values)
    ):
        for i in range(count):
            out.total += values.offsets[codes[i] + 1] - values.offsets[codes[i]]
            out.offsets[i + 1] = out.total
        if out.total <= reader.output_bytes_max:
            out.data = <uint8_t*>malloc(out.total + 8)
            fine = out.data is not NULL and _gather_strings(
                values.offsets, values.data, values.total, codes, count, out.data, out.total
            )
    free(values.data)
    free(values.offsets)
    free(codes)
    return fine
