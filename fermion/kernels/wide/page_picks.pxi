# Single slots out of many pages of one stream, picked by one call that leaves Python's lock alone.
#
# A Python object a page, and a turn of the lock for each, would cost more than the few slots do.
# `fermion.reading.chunk_pages` drives this; as in trees.pxi, Python is asked for numbers of other encodings,
# and what is not exactly as expected (other codecs, damage) is left to the general way.

cdef int TREE_DICTIONARY = _EncodingId.DICTIONARY
cdef int TREE_GLOBAL_DICTIONARY = _EncodingId.GLOBAL_DICTIONARY
cdef int TREE_FSST = _EncodingId.FSST


cdef struct PickedStrings:
    uint8_t* offsets  # of all slots of a page, int64
    int64_t offsets_room
    uint8_t* piece  # bytes of one piece that was compressed
    int64_t piece_room
    uint8_t* out
    int64_t size
    int64_t room
    bint is_lent  # ``out`` is of the caller, and cannot grow


cdef bint _room_for(uint8_t** memory, int64_t* room, int64_t needed) noexcept nogil:
    cdef int64_t wanted
    cdef uint8_t* larger
    if needed <= room[0]:
        return True
    wanted = max(needed, 2 * room[0])
    larger = <uint8_t*>realloc(memory[0], wanted)
    if larger is NULL:
        return False
    memory[0], room[0] = larger, wanted
    return True


cdef bint _ask_picks(
    TreeReader* reader, TreeNode* node, char letter, int64_t width, int64_t count,
    const int64_t* slots, Py_ssize_t picks, uint8_t* out,
) noexcept with gil:
    """Some slots of an encoding that is read in Python; False where that fails."""
    try:
        (<object>reader.decode)(
            PyMemoryView_FromMemory(
                <char*>node.start - TREE_NODE_HEADER,
                node.stop - node.start + TREE_NODE_HEADER, PyBUF_READ,
            ),
            node.depth, chr(letter), width, count, reader.output_bytes_max,
            PyMemoryView_FromMemory(<char*>out, picks * width, PyBUF_WRITE),
            PyMemoryView_FromMemory(<char*>slots, 8 * picks, PyBUF_READ),
        )
        return True
    except BaseException as error:
        (<list>reader.raised).append(error)
        return False


cdef bint _pick_node(
    TreeReader* reader, TreeNode* node, char letter, int64_t width, int64_t count,
    const int64_t* slots, Py_ssize_t picks, uint8_t* out,
) noexcept nogil:
    cdef int64_t size = node.stop - node.start
    cdef Py_ssize_t i, block = 0
    cdef TreeNode child
    if node.encoding == TREE_PLAIN:
        if size < count * width:
            return False
        for i in range(picks):
            memcpy(out + i * width, node.start + slots[i] * width, width)
        return True
    if node.encoding == TREE_CONSTANT:
        if size < width:
            return False
        for i in range(picks):
            memcpy(out + i * width, node.start, width)
        return True
    if node.encoding == TREE_FOR_BITPACK:
        return (
            (letter == c'i' or letter == c'u')
            and _is_bitpacked(node.start, size, width, count)
            and _unpack_picks(node.start, size, width, count, slots, picks, out, &block)
            == BLOCK_FINE
        )
    if node.encoding == TREE_NARROW:
        if (width != 16 and width != 32) or node.children != 1:
            return False
        if not _open_child(node, node.start, &child) or not _pick_node(
            reader, &child, c'i', 8, count, slots, picks, out
        ):
            return False
        _widen_words(out, width, picks)
        return True
    if node.encoding == TREE_DICTIONARY_LOCAL:
        return _pick_dictionary(reader, node, letter, width, count, slots, picks, out)
    if node.encoding == TREE_ALP:
        return letter == c'f' and _pick_decimals(reader, node, width, count, slots, picks, out)
    if node.encoding == TREE_BYTE_STREAM_SPLIT:
        return _pick_byte_streams(reader, node, width, count, slots, picks, out)
    if node.encoding == TREE_DELTA:
        return _pick_delta(reader, node, letter, width, count, slots, picks, out)
    if node.encoding == TREE_RLE:
        return _pick_runs(reader, node, letter, width, count, slots, picks, out)
    return _ask_picks(reader, node, letter, width, count, slots, picks, out)


cdef uint32_t* _pick_codes(
    TreeReader* reader, TreeNode* node, int64_t count, const int64_t* slots, Py_ssize_t picks,
    int64_t entries,
) noexcept nogil:
    """Codes into a dictionary of so many entries, checked, to be freed."""
    cdef TreeNode child
    if node.children != 1 or node.stop - node.start < 8:
        return NULL
    if not _open_child(node, node.start + 8, &child):
        return NULL
    return _pick_child_codes(reader, &child, node.start[4], count, slots, picks, entries)


cdef uint32_t* _pick_child_codes(
    TreeReader* reader, TreeNode* child, int width, int64_t count, const int64_t* slots,
    Py_ssize_t picks, int64_t entries,
) noexcept nogil:
    cdef uint32_t* codes
    cdef uint32_t top = 0
    cdef Py_ssize_t i
    if width not in (1, 2, 4):
        return NULL
    codes = <uint32_t*>malloc(4 * picks + 8)
    if codes is NULL:
        return NULL
    if not _pick_node(
        reader, child, c'u', width, count, slots, picks, <uint8_t*>codes
    ):
        free(codes)
        return NULL
    _widen_codes(codes, width, picks)
    for i in range(picks):
        top = max(top, codes[i])
    if top >= entries:
        free(codes)
        return NULL
    return codes


cdef bint _pick_values(
    TreeReader* reader, TreeNode* root, const ValueForm* form, int64_t count,
    const int64_t* slots, Py_ssize_t picks, uint8_t* out,
) noexcept nogil:
    """Numbers of a page's tree."""
    cdef const PickDictionary* dictionary = &form.dictionary
    cdef uint32_t* codes
    if root.encoding != TREE_DICTIONARY and root.encoding != TREE_GLOBAL_DICTIONARY:
        return _pick_node(reader, root, form.letter, form.width, count, slots, picks, out)
    if dictionary.size < dictionary.entries * form.width:
        return False
    codes = _pick_codes(reader, root, count, slots, picks, dictionary.entries)
    if codes is NULL:
        return False
    _gather_words(dictionary.values, codes, picks, out, form.width)
    free(codes)
    return True


cdef bint _pick_strings(
    TreeNode* root, int64_t count, const int64_t* slots, Py_ssize_t picks,
    const PickDictionary* dictionary, TreeReader* reader, PickedStrings* strings, int64_t* ends,
) noexcept nogil:
    """Strings of a page's tree: where each ends in ``strings.out``, and their bytes there."""
    cdef TreeStrings page
    if root.encoding == TREE_DICTIONARY or root.encoding == TREE_GLOBAL_DICTIONARY:
        return _pick_entries(root, count, slots, picks, dictionary, reader, strings, ends)
    if root.encoding == TREE_DICTIONARY_LOCAL:
        return _pick_dictionary_strings(root, count, slots, picks, reader, strings, ends)
    if root.encoding == TREE_PLAIN:
        return _pick_plain_strings(root, count, slots, picks, reader, strings, ends)
    if not _room_for(&strings.offsets, &strings.offsets_room, 8 * (count + 1)):
        return False
    page.offsets, page.data, page.total = <int64_t*>strings.offsets, NULL, 0
    page.offsets[0] = 0
    if root.encoding == TREE_SPLIT_LENGTHS:
        return _pick_split_lengths(root, count, slots, picks, reader, strings, &page, ends)
    if root.encoding == TREE_FSST:
        return _pick_symbols(root, count, slots, picks, reader, strings, &page, ends)
    return False


cdef bint _room_for_strings(
    TreeReader* reader, PickedStrings* strings, int64_t end
) noexcept nogil:
    """Room for the bytes of a page's strings, which go up to ``end``."""
    if end - strings.size > reader.output_bytes_max:
        return False
    if strings.is_lent:
        return end <= strings.room
    return _room_for(&strings.out, &strings.room, end + SHORT_BYTES)


cdef bint _end_strings(
    const TreeStrings* page, const int64_t* slots, Py_ssize_t picks, TreeReader* reader,
    PickedStrings* strings, int64_t* ends,
) noexcept nogil:
    """Where the strings of some slots end, and room for their bytes."""
    cdef Py_ssize_t i
    cdef int64_t to = strings.size
    for i in range(picks):
        to += page.offsets[slots[i] + 1] - page.offsets[slots[i]]
        ends[i] = to
    return _room_for_strings(reader, strings, to)


cdef bint _pick_entries(
    TreeNode* root, int64_t count, const int64_t* slots, Py_ssize_t picks,
    const PickDictionary* dictionary, TreeReader* reader, PickedStrings* strings, int64_t* ends,
) noexcept nogil:
    cdef uint32_t* codes
    cdef bint fine
    if dictionary.offsets is NULL:
        return False
    codes = _pick_codes(reader, root, count, slots, picks, dictionary.entries)
    if codes is NULL:
        return False
    fine = _gather_entries(codes, picks, dictionary, reader, strings, ends)
    free(codes)
    return fine


cdef bint _gather_entries(
    const uint32_t* codes, Py_ssize_t picks, const PickDictionary* dictionary,
    TreeReader* reader, PickedStrings* strings, int64_t* ends,
) noexcept nogil:
    """The strings that codes stand for, and where each ends."""
    cdef Py_ssize_t i
    cdef int64_t to = strings.size
    cdef bint fine = False
    for i in range(picks):
        to += dictionary.offsets[<size_t>codes[i] + 1] - dictionary.offsets[codes[i]]
        ends[i] = to
    if _room_for_strings(reader, strings, to):
        fine = _gather_strings(
            dictionary.offsets, dictionary.values, dictionary.size, codes, picks,
            strings.out + strings.size, to - strings.size,
        )
    strings.size = to
    return fine


cdef bint _pick_split_lengths(
    TreeNode* root, int64_t count, const int64_t* slots, Py_ssize_t picks, TreeReader* reader,
    PickedStrings* strings, TreeStrings* page, int64_t* ends,
) noexcept nogil:
    """Only pieces that hold bytes of some slots are decompressed."""
    cdef SplitLengths parts
    cdef Py_ssize_t i, at = 0
    cdef int64_t piece, start, stop, size, to = strings.size
    cdef uint32_t raw_start = 0, raw_end, stored_start = 0, stored_end
    if not _open_split_lengths(root, count, &parts):
        return False
    if not _decode_lengths(reader, parts.lengths, root, parts.width, count, page):
        return False
    if not _are_cut_at_values(&parts, page.offsets, count) or not _end_strings(
        page, slots, picks, reader, strings, ends
    ):
        return False
    if parts.codec == TREE_CODEC_NONE:
        if page.total > parts.stored:
            return False
        for i in range(picks):
            start = page.offsets[slots[i]]
            stop = page.offsets[slots[i] + 1]
            memcpy(strings.out + to, parts.data + start, stop - start)
            to += stop - start
        strings.size = to
        return True
    for piece in range(parts.frames):
        memcpy(&raw_end, parts.raw_ends + 4 * piece, 4)
        memcpy(&stored_end, parts.stored_ends + 4 * piece, 4)
        if stored_end < stored_start or stored_end > parts.stored:
            return False
        size = 0  # of the piece, once it is decompressed
        while at < picks and page.offsets[slots[at]] < raw_end:
            start = page.offsets[slots[at]]
            stop = page.offsets[slots[at] + 1]
            if stop > start and size == 0:
                size = raw_end - raw_start
                if size > reader.output_bytes_max or not _room_for(
                    &strings.piece, &strings.piece_room, size
                ):
                    return False
                if not _unzip(
                    reader, parts.data + stored_start, stored_end - stored_start, strings.piece,
                    size,
                ):
                    return False
            if stop > start:
                memcpy(strings.out + to, strings.piece + (start - raw_start), stop - start)
                to += stop - start
            at += 1
        raw_start, stored_start = raw_end, stored_end
    # What is left are empty strings at the end.
    strings.size = to
    return to == ends[picks - 1]


cdef bint _has_strings_here(int encoding) noexcept nogil:
    """Whether `_pick_strings` knows an encoding."""
    return (
        encoding == TREE_DICTIONARY
        or encoding == TREE_GLOBAL_DICTIONARY
        or encoding == TREE_DICTIONARY_LOCAL
        or encoding == TREE_PLAIN
        or encoding == TREE_SPLIT_LENGTHS
        or encoding == TREE_FSST
    )


cdef bint _pick_page(
    const Page* page, bint verify, const int64_t* slots, Py_ssize_t picks, const ValueForm* form,
    TreeReader* reader, PickedStrings* strings, uint8_t* out,
) noexcept nogil:
    cdef TreeNode root
    cdef uint8_t* unzipped = NULL
    cdef bint is_text = form.letter == c's'
    # Its checksum, unless strings lie in a way that is not known here; and first: single values
    # are found quickly in a page that lies next to the processor.
    if page.size < COLUMN_PAGE_HEADER or page.start[1] != TREE_CODEC_NONE:
        return False
    if not _open_page(page, False, reader, &root, &unzipped) or root.flags:
        return False
    if page.slots * (8 if is_text else form.width) > reader.output_bytes_max:
        return False
    if is_text and not _has_strings_here(root.encoding):
        return False
    if verify and not _is_sound(page):
        return False
    if is_text:
        return _pick_strings(
            &root, page.slots, slots, picks, &form.dictionary, reader, strings, <int64_t*>out
        )
    return _pick_values(reader, &root, form, page.slots, slots, picks, out)


def pick_pages(
    list pages, counts, page_offsets, slots, const int64_t[::1] cuts, PageForm form not None,
    PageReader how not None, out,
):
    """Some slots of each of some pages, end to end."""
    cdef PageList given = PageList(pages, counts, page_offsets)
    cdef const int64_t[::1] wanted = _input(slots)
    cdef cnp.ndarray target = _output(out)
    cdef PickedStrings strings
    cdef list raised = []
    cdef TreeReader reader = how.start(raised)
    cdef uint8_t* to = _bytes_out(target)
    cdef char letter = form.form.letter
    cdef int64_t width = form.form.width, step = 8 if letter == c's' else width
    cdef bint fine = True
    cdef Memory found = None
    cdef Page page
    cdef Py_ssize_t i
    _same_length(cuts.shape[0], given.count + 1, "cuts")
    _check_cuts(cuts, wanted.shape[0])
    if not 1 <= width <= 2**31 - 1:
        raise ValueError(f"values of {width} bytes")
    _same_length(target.nbytes, step * wanted.shape[0], "bytes of out")
    if letter in b"iu" and width not in (1, 2, 4, 8):
        raise ValueError(f"whole numbers of {width} bytes")
    if <uintptr_t>to % min(step & -step, 8):
        raise ValueError(f"out is not aligned for values of {width} bytes")
    for i in range(given.count):
        _check_slots(wanted[cuts[i]:cuts[i + 1]], given.counts[i])
    memset(&strings, 0, sizeof(strings))
    try:
        with nogil:
            for i in range(given.count):
                page = given.at(i, how.place_key)
                if cuts[i] < cuts[i + 1] and not _pick_page(
                    &page, how.verify, &wanted[cuts[i]], cuts[i + 1] - cuts[i], &form.form,
                    &reader, &strings, to + step * cuts[i],
                ):
                    fine = False
                    break
        _raise_interrupt(raised)
        if not fine:
            return None
        if strings.out is NULL:
            return b""
        found = _own(&strings.out, strings.size)
        return found
    finally:
        free(strings.offsets)
        free(strings.piece)
        free(strings.out)
