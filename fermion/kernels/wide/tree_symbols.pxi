# Strings of FSST nodes: their tables, their lengths, and single ones of them.

cdef struct Symbols:
    # A node that `fermion.encodings.fsst` describes; its tables are checked.
    int64_t block_slots
    int64_t blocks
    int width  # of a length
    uint64_t words[256]
    uint8_t widths[256]
    const uint8_t* code_ends  # uint32 each, ascending
    const uint8_t* codes
    int64_t codes_size
    TreeNode lengths


cdef inline int64_t _code_end(const Symbols* symbols, int64_t block) noexcept nogil:
    """Where the codes of a block end; of block -1, where those of the first start."""
    cdef uint32_t end = 0
    if block >= 0:
        memcpy(&end, symbols.code_ends + 4 * block, 4)
    return end


cdef bint _open_symbols(TreeNode* root, int64_t count, Symbols* symbols) noexcept nogil:
    cdef int64_t size = root.stop - root.start, at = 8, i
    cdef uint32_t block_slots
    cdef int kinds
    if root.children != 1 or size < 8:
        return False
    memcpy(&block_slots, root.start, 4)
    kinds, symbols.width = root.start[4], root.start[5]
    if block_slots == 0 or symbols.width not in (1, 2, 4):
        return False
    symbols.block_slots, symbols.code_ends = block_slots, root.start + 8
    symbols.blocks = (count + block_slots - 1) // block_slots
    at += 4 * symbols.blocks + kinds
    if size < at:
        return False
    memset(symbols.words, 0, sizeof(symbols.words))
    memset(symbols.widths, UNKNOWN_SIZE, sizeof(symbols.widths))
    for i in range(kinds):
        symbols.widths[i] = root.start[8 + 4 * symbols.blocks + i]
        if not 1 <= symbols.widths[i] <= SYMBOL_BYTES_MAX or size < at + symbols.widths[i]:
            return False
        memcpy(&symbols.words[i], root.start + at, symbols.widths[i])
        at += symbols.widths[i]
    for i in range(symbols.blocks):
        if _code_end(symbols, i) < _code_end(symbols, i - 1):
            return False
    symbols.codes, symbols.codes_size = root.start + at, _code_end(symbols, symbols.blocks - 1)
    at = (at + symbols.codes_size + 7) & ~<int64_t>7
    return at <= size and (
        _open_child(root, root.start + at, &symbols.lengths)
    )


cdef bint _decode_symbol_lengths(
    const Symbols* symbols, int64_t count, const int64_t* slots, Py_ssize_t picks,
    TreeReader* reader, TreeStrings* page,
) noexcept nogil:
    """Offsets of the values of each block that holds slots, counted on from block to block."""
    cdef TreeNode node = symbols.lengths
    cdef int64_t size = node.stop - node.start, start, stop, block = -1, at
    cdef uint64_t seen = 0
    cdef uint8_t* lengths
    cdef Py_ssize_t i, in_block = 0
    cdef int width = symbols.width
    cdef bint fine = True
    lengths = <uint8_t*>malloc(min(symbols.block_slots, count) * width + 8)
    if lengths is NULL:
        return False
    page.total = 0
    for i in range(picks):
        if slots[i] // symbols.block_slots == block:
            continue
        block = slots[i] // symbols.block_slots
        start = block * symbols.block_slots
        stop = min(start + symbols.block_slots, count)
        if _unpack_all(
            node.start, size, width, start, stop, count, lengths, &in_block
        ) != BLOCK_FINE:
            fine = False
            break
        page.offsets[start] = page.total
        for at in range(start, stop):
            if width == 1:
                page.total += lengths[at - start]
            elif width == 2:
                page.total += (<uint16_t*>lengths)[at - start]
            else:
                page.total += (<uint32_t*>lengths)[at - start]
            page.offsets[at + 1] = page.total
        seen |= <uint64_t>page.total
    free(lengths)
    return fine and not seen >> 63


cdef bint _pick_symbols(
    TreeNode* root, int64_t count, const int64_t* slots, Py_ssize_t picks, TreeReader* reader,
    PickedStrings* strings, TreeStrings* page, int64_t* ends,
) noexcept nogil:
    """Strings as symbols; of the lengths only those of blocks that hold slots, if these are few."""
    cdef Symbols symbols
    cdef int64_t done, i
    cdef int64_t* code_ends
    cdef int32_t seen = 0
    cdef bint fine
    if not _open_symbols(root, count, &symbols):
        return False
    if (
        symbols.lengths.encoding == TREE_FOR_BITPACK
        and 2 * picks * symbols.block_slots < count
        and _is_bitpacked(
            symbols.lengths.start, symbols.lengths.stop - symbols.lengths.start, symbols.width,
            count,
        )
    ):
        fine = _decode_symbol_lengths(&symbols, count, slots, picks, reader, page)
    else:
        fine = _decode_lengths(
            reader, symbols.lengths.start - TREE_NODE_HEADER, root, symbols.width, count, page
        )
    if (
        not fine
        or page.total > SYMBOL_BYTES_MAX * symbols.codes_size
        or not _end_strings(page, slots, picks, reader, strings, ends)
    ):
        return False
    code_ends = <int64_t*>malloc(8 * symbols.blocks + 8)
    if code_ends is NULL:
        return False
    for i in range(symbols.blocks):
        code_ends[i] = _code_end(&symbols, i)
    done = _fsst_pick(
        symbols.words, symbols.widths, symbols.codes, code_ends, symbols.block_slots,
        page.offsets, slots, picks, strings.out + strings.size, True, &seen,
    )
    free(code_ends)
    strings.size = ends[picks - 1]
    return done == picks and not seen & UNKNOWN_SIZE
