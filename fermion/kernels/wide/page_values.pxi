# All slots of many pages of one stream, decoded by one call that leaves Python's lock alone.
#
# The other half of page_picks.pxi: the same pages, the same answers to what is not known here.

ctypedef fused code_type:
    uint8_t
    uint16_t
    uint32_t


cdef struct PageCodes:
    int width
    void* codes  # to be freed


cdef bint _are_below(const code_type* codes, int64_t count, int64_t entries) noexcept nogil:
    cdef code_type top = 0
    cdef int64_t i
    for i in range(count):
        top = max(top, codes[i])
    return count == 0 or top < entries


cdef bint _page_codes(
    TreeReader* reader, TreeNode* root, int64_t count, int64_t entries, PageCodes* found
) noexcept nogil:
    """Codes into a dictionary of so many entries, checked; memory to be freed in any case."""
    cdef TreeNode child
    if root.children != 1 or root.stop - root.start < 8:
        return False
    found.width = root.start[4]
    if found.width not in (1, 2, 4):
        return False
    if not _open_child(root, root.start + 8, &child):
        return False
    found.codes = malloc(count * found.width + 8)
    if found.codes is NULL or not _decode_node(
        reader, &child, c'u', found.width, count, <uint8_t*>found.codes
    ):
        return False
    if found.width == 1:
        return _are_below(<uint8_t*>found.codes, count, entries)
    if found.width == 2:
        return _are_below(<uint16_t*>found.codes, count, entries)
    return _are_below(<uint32_t*>found.codes, count, entries)


cdef void _gather_by_code(
    const uint8_t* values, const code_type* codes, int64_t count, int64_t width, uint8_t* out
) noexcept nogil:
    cdef int64_t i
    if width == 1:
        for i in range(count):
            out[i] = values[codes[i]]
    elif width == 4:
        for i in range(count):
            memcpy(out + 4 * i, values + 4 * <int64_t>codes[i], 4)
    elif width == 8:
        for i in range(count):
            memcpy(out + 8 * i, values + 8 * <int64_t>codes[i], 8)
    elif width == 16:
        for i in range(count):
            memcpy(out + 16 * i, values + 16 * <int64_t>codes[i], 16)
    else:
        for i in range(count):
            memcpy(out + width * i, values + width * <int64_t>codes[i], width)


cdef bint _gather_page(
    TreeReader* reader, TreeNode* root, int64_t count, int64_t entries, const uint8_t* values,
    int64_t width, uint8_t* out,
) noexcept nogil:
    """What the codes of a page stand for: values of ``width`` bytes."""
    cdef PageCodes found
    cdef bint fine
    found.codes = NULL
    fine = _page_codes(reader, root, count, entries, &found)
    if fine and found.width == 1:
        _gather_by_code(values, <uint8_t*>found.codes, count, width, out)
    elif fine and found.width == 2:
        _gather_by_code(values, <uint16_t*>found.codes, count, width, out)
    elif fine:
        _gather_by_code(values, <uint32_t*>found.codes, count, width, out)
    free(found.codes)
    return fine


cdef bint _page_numbers(
    TreeReader* reader, TreeNode* root, const ValueForm* form, int64_t count, uint8_t* out
) noexcept nogil:
    cdef const PickDictionary* dictionary = &form.dictionary
    if root.encoding != TREE_DICTIONARY and root.encoding != TREE_GLOBAL_DICTIONARY:
        return _decode_node(reader, root, form.letter, form.width, count, out)
    return dictionary.size >= dictionary.entries * form.width and _gather_page(
        reader, root, count, dictionary.entries, dictionary.values, form.width, out
    )


cdef bint _append_symbols(
    TreeReader* reader, TreeNode* root, int64_t count, PickedStrings* strings, TreeStrings* page
) noexcept nogil:
    cdef Symbols symbols
    cdef Decoded state
    cdef uint8_t* out
    if not _open_symbols(root, count, &symbols) or not _decode_lengths(
        reader, symbols.lengths.start - TREE_NODE_HEADER, root, symbols.width, count, page
    ):
        return False
    if page.total > SYMBOL_BYTES_MAX * symbols.codes_size or not _room_for_strings(
        reader, strings, strings.size + page.total
    ):
        return False
    out = strings.out + strings.size
    state.at = state.written = state.seen = 0
    _write_symbols(
        symbols.words, symbols.widths, symbols.codes, symbols.codes_size, out, page.total, &state
    )
    if not _write_last_symbols(
        symbols.words, symbols.widths, symbols.codes, symbols.codes_size, out, page.total, &state
    ):
        return False
    strings.size += page.total
    return (
        state.written == page.total
        and state.at == symbols.codes_size
        and not state.seen & UNKNOWN_SIZE
    )


cdef int64_t _gather_texts(
    const PickDictionary* dictionary, const code_type* codes, int64_t count, uint8_t* out,
    int64_t room, int64_t to, int64_t* ends,
) noexcept nogil:
    """Strings behind those up to ``to``; returns the end, -1 where there is too little room."""
    cdef int64_t i, start, length, easy = room - SHORT_BYTES if dictionary.is_short else -1
    for i in range(count):
        start = dictionary.offsets[codes[i]]
        length = dictionary.offsets[<int64_t>codes[i] + 1] - start
        if to <= easy:
            memcpy(out + to, dictionary.values + start, SHORT_BYTES)
        elif length > room - to:
            return -1
        else:
            memcpy(out + to, dictionary.values + start, length)
        to += length
        ends[i] = to
    return to


cdef int64_t _texts_size(
    const PickDictionary* dictionary, const code_type* codes, int64_t count
) noexcept nogil:
    cdef int64_t i, size = 0
    for i in range(count):
        size += dictionary.offsets[<int64_t>codes[i] + 1] - dictionary.offsets[codes[i]]
    return size


cdef bint _append_entries(
    TreeReader* reader, TreeNode* root, int64_t count, const PickDictionary* dictionary,
    PickedStrings* strings, TreeStrings* page,
) noexcept nogil:
    cdef PageCodes found
    cdef int64_t before = strings.size, size = 0
    cdef bint fine
    found.codes = NULL
    fine = dictionary.offsets is not NULL and _page_codes(
        reader, root, count, dictionary.entries, &found
    )
    if fine and not strings.is_lent:
        if found.width == 1:
            size = _texts_size(dictionary, <uint8_t*>found.codes, count)
        elif found.width == 2:
            size = _texts_size(dictionary, <uint16_t*>found.codes, count)
        else:
            size = _texts_size(dictionary, <uint32_t*>found.codes, count)
        fine = _room_for_strings(reader, strings, before + size)
    if fine:
        page.offsets[0] = before
        if found.width == 1:
            size = _gather_texts(
                dictionary, <uint8_t*>found.codes, count, strings.out, strings.room, before,
                page.offsets + 1,
            )
        elif found.width == 2:
            size = _gather_texts(
                dictionary, <uint16_t*>found.codes, count, strings.out, strings.room, before,
                page.offsets + 1,
            )
        else:
            size = _gather_texts(
                dictionary, <uint32_t*>found.codes, count, strings.out, strings.room, before,
                page.offsets + 1,
            )
        fine = size >= before and size - before <= reader.output_bytes_max
    if fine:
        strings.size = size
    free(found.codes)
    return fine


cdef bint _append_strings(
    TreeReader* reader, TreeNode* root, int64_t count, const PickDictionary* dictionary,
    PickedStrings* strings, TreeStrings* page,
) noexcept nogil:
    """Strings of a page's tree: offsets of the page, from any base, and bytes at ``strings.out``."""
    cdef bint fine
    if root.encoding == TREE_DICTIONARY or root.encoding == TREE_GLOBAL_DICTIONARY:
        return _append_entries(reader, root, count, dictionary, strings, page)
    if root.encoding == TREE_FSST:
        return _append_symbols(reader, root, count, strings, page)
    fine = _decode_strings(reader, root, count, page) and _room_for_strings(
        reader, strings, strings.size + page.total
    )
    if fine:
        memcpy(strings.out + strings.size, page.data, page.total)
        strings.size += page.total
    free(page.data)
    page.data = NULL
    return fine


cdef bint _write_ends(
    const TreeStrings* page, int64_t count, int64_t before, int64_t width, uint8_t* out
) noexcept nogil:
    """Where the strings of a page end among those of all pages; False where that is too far."""
    cdef int64_t i, shift = before - page.offsets[0]
    if width == 4:
        if page.offsets[count] + shift > <int64_t>0x7FFFFFFF:
            return False
        for i in range(count):
            (<int32_t*>out)[i] = <int32_t>(page.offsets[i + 1] + shift)
    else:
        for i in range(count):
            (<int64_t*>out)[i] = page.offsets[i + 1] + shift
    return True


cdef bint _decode_page(
    const Page* page, bint verify, const ValueForm* form, TreeReader* reader,
    PickedStrings* strings, uint8_t* out,
) noexcept nogil:
    cdef TreeNode root
    cdef uint8_t* unzipped = NULL
    cdef bint is_text = form.letter == c's'
    cdef bint fine = (
        _open_page(page, verify, reader, &root, &unzipped)
        and root.flags == 0
        and page.slots * (8 if is_text else form.width) <= reader.output_bytes_max
    )
    if fine and is_text:
        fine = _append_page(reader, &root, form, page.slots, strings, out)
    elif fine:
        fine = _page_numbers(reader, &root, form, page.slots, out)
    free(unzipped)
    return fine


cdef bint _append_page(
    TreeReader* reader, TreeNode* root, const ValueForm* form, int64_t count,
    PickedStrings* strings, uint8_t* out,
) noexcept nogil:
    cdef TreeStrings found
    cdef int64_t before = strings.size
    if not _room_for(&strings.offsets, &strings.offsets_room, 8 * (count + 1)):
        return False
    found.offsets, found.data, found.total = <int64_t*>strings.offsets, NULL, 0
    found.offsets[0] = 0
    return _append_strings(
        reader, root, count, &form.dictionary, strings, &found
    ) and _write_ends(&found, count, before, form.width, out)


def decode_pages(
    list pages, counts, page_offsets, PageForm form not None, PageReader how not None, out,
    text=None,
):
    """All slots of some pages, end to end."""
    cdef PageList given = PageList(pages, counts, page_offsets)
    cdef cnp.ndarray target = _output(out)
    cdef cnp.ndarray room = None
    cdef PickedStrings strings
    cdef list raised = []
    cdef TreeReader reader = how.start(raised)
    cdef uint8_t* to = _bytes_out(target)
    cdef char letter = form.form.letter
    cdef int64_t width = form.form.width
    cdef bint fine = True
    cdef Memory found = None
    cdef Page page
    cdef Py_ssize_t i
    if not (4 if letter == c's' else 1) <= width <= 2**31 - 1:
        raise ValueError(f"values of {width} bytes")
    if letter == c's' and width not in (4, 8):
        raise ValueError(f"offsets of {width} bytes: expected 4 or 8")
    if letter in b"iu" and width not in (1, 2, 4, 8):
        raise ValueError(f"whole numbers of {width} bytes")
    if <uintptr_t>to % min(width & -width, 8):
        raise ValueError(f"out is not aligned for values of {width} bytes")
    _same_length(target.nbytes, width * (given.slots + (letter == c's')), "bytes of out")
    memset(&strings, 0, sizeof(strings))
    if text is not None:
        room = _output(text)
        strings.out, strings.room, strings.is_lent = _bytes_out(room), room.nbytes, True
    try:
        with nogil:
            if letter == c's':
                memset(to, 0, width)
                to += width
            for i in range(given.count):
                page = given.at(i, how.place_key)
                if not _decode_page(&page, how.verify, &form.form, &reader, &strings, to):
                    fine = False
                    break
                to += width * page.slots
        _raise_interrupt(raised)
        if not fine:
            return None
        if strings.is_lent:
            return text[: strings.size]
        if strings.out is NULL:
            return b""
        found = _own(&strings.out, strings.size)
        return found
    finally:
        free(strings.offsets)
        if not strings.is_lent:
            free(strings.out)
