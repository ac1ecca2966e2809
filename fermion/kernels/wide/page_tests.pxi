# Which slots of many pages lie in a range, without a value decoded that blocks and dictionaries
# decide: the other half of page_values.pxi.

cdef struct SlotTest:
    # Whole numbers from ``low`` on, at most ``span`` more, modulo their width: that is a range of
    # signed and of unsigned ones. Floats from ``floor`` to ``ceiling``.
    char letter
    int64_t width
    uint64_t low
    uint64_t span
    double floor
    double ceiling
    const WantedValues* wanted  # in place of the range; NULL: none
    const uint8_t* entries  # of the chunk's dictionary: whether each is wanted
    int64_t entries_count


cdef void _test_words(
    const word_type* values, int64_t count, word_type low, word_type span, uint8_t* out
) noexcept nogil:
    cdef int64_t i
    for i in range(count):
        out[i] = <word_type>(values[i] - low) <= span


cdef void _test_floats(
    const floating* values, int64_t count, floating floor, floating ceiling, uint8_t* out
) noexcept nogil:
    cdef int64_t i
    for i in range(count):
        out[i] = (values[i] >= floor) & (values[i] <= ceiling)


cdef bint _test_set(
    const void* values, char letter, int64_t width, int64_t count, const WantedValues* wanted,
    uint8_t* out,
) noexcept nogil:
    if wanted.kind != WANTED_NUMBERS or letter != c'i' and letter != c'u':
        return False
    if width == 1:
        _test_members(<const uint8_t*>values, count, wanted, out)
    elif width == 2:
        _test_members(<const uint16_t*>values, count, wanted, out)
    elif width == 4:
        _test_members(<const uint32_t*>values, count, wanted, out)
    else:
        _test_members(<const uint64_t*>values, count, wanted, out)
    return True


cdef bint _test_values(
    const void* values, char letter, int64_t width, int64_t count, const SlotTest* test,
    uint8_t* out,
) noexcept nogil:
    """Values that are decoded, aligned to their width."""
    if test.wanted is not NULL:
        return _test_set(values, letter, width, count, test.wanted, out)
    if letter == c'f' and width == 8:
        _test_floats(<const double*>values, count, test.floor, test.ceiling, out)
    elif letter == c'f' and width == 4:
        _test_floats(
            <const float*>values, count, <float>test.floor, <float>test.ceiling, out
        )
    elif letter != c'i' and letter != c'u':
        return False
    elif width == 1:
        _test_words(<const uint8_t*>values, count, <uint8_t>test.low, <uint8_t>test.span, out)
    elif width == 2:
        _test_words(<const uint16_t*>values, count, <uint16_t>test.low, <uint16_t>test.span, out)
    elif width == 4:
        _test_words(<const uint32_t*>values, count, <uint32_t>test.low, <uint32_t>test.span, out)
    else:
        _test_words(<const uint64_t*>values, count, test.low, test.span, out)
    return True


cdef int _test_block(
    const uint8_t* block, int64_t available, Py_ssize_t count, word_type low, word_type span,
    uint8_t* out,
) noexcept nogil:
    """A block whose base and width do not decide it is unpacked next to the processor."""
    cdef BlockPlan plan
    cdef word_type base, distance, top = 0
    cdef word_type values[BLOCK_VALUES]
    cdef int error = _check_block(block, available, count, sizeof(word_type), &plan)
    if error:
        return error
    memcpy(&base, block + BLOCK_HEADER, sizeof(word_type))
    distance = base - low
    if plan.width:
        top = <word_type>(~<uint64_t>0 >> (64 - plan.width))
    if plan.patch_count == 0 and distance <= span and top <= <word_type>(span - distance):
        memset(out, 1, count)
    elif plan.patch_count == 0 and distance > span and top < <word_type>(0 - distance):
        memset(out, 0, count)
    else:
        _unpack_block(block, count, &plan, distance, &values[0])
        _test_words(&values[0], count, <word_type>0, span, out)
    return BLOCK_FINE


cdef int _test_blocks(
    const uint8_t* payload, int64_t payload_size, int64_t count, word_type low, word_type span,
    uint8_t* out,
) noexcept nogil:
    cdef int64_t blocks = (count + BLOCK_VALUES - 1) // BLOCK_VALUES, block
    cdef const uint8_t* ends = payload + PAYLOAD_HEADER
    cdef const uint8_t* body = ends + 4 * blocks
    cdef int64_t body_size = payload_size - PAYLOAD_HEADER - 4 * blocks
    cdef uint32_t begin = 0, end
    cdef int error
    for block in range(blocks):
        memcpy(&end, ends + 4 * block, 4)
        if begin > end or end > body_size:
            return BLOCK_OUTSIDE
        error = _test_block(
            body + begin, end - begin, min(count - block * BLOCK_VALUES, <int64_t>BLOCK_VALUES),
            low, span, out + block * BLOCK_VALUES,
        )
        if error:
            return error
        begin = end
    return BLOCK_FINE


cdef bint _test_bitpacked(
    TreeNode* node, int64_t width, int64_t count, const SlotTest* test, uint8_t* out
) noexcept nogil:
    cdef int64_t size = node.stop - node.start
    if not _is_bitpacked(node.start, size, width, count):
        return False
    if width == 1:
        return not _test_blocks(
            node.start, size, count, <uint8_t>test.low, <uint8_t>test.span, out
        )
    if width == 2:
        return not _test_blocks(
            node.start, size, count, <uint16_t>test.low, <uint16_t>test.span, out
        )
    if width == 4:
        return not _test_blocks(
            node.start, size, count, <uint32_t>test.low, <uint32_t>test.span, out
        )
    return not _test_blocks(node.start, size, count, test.low, test.span, out)


cdef bint _test_node(
    TreeReader* reader, TreeNode* node, char letter, int64_t width, int64_t count,
    const SlotTest* test, uint8_t* out,
) noexcept nogil:
    cdef TreeNode child
    cdef uint8_t* values
    cdef bint fine
    if node.encoding == TREE_NARROW:
        return (
            letter == c'V'
            and node.children == 1
            and _open_child(node, node.start, &child)
            and _test_node(reader, &child, c'i', 8, count, test, out)
        )
    if letter == c'V':
        return False
    if node.encoding == TREE_FOR_BITPACK and letter != c'f' and test.wanted is NULL:
        return _test_bitpacked(node, width, count, test, out)
    if node.encoding == TREE_RLE:
        return _test_runs(reader, node, letter, width, count, test, out)
    if node.encoding == TREE_DICTIONARY_LOCAL:
        return _test_local(reader, node, letter, width, count, test, out)
    values = <uint8_t*>malloc(count * width + 8)
    if values is NULL:
        return False
    fine = _decode_node(reader, node, letter, width, count, values) and _test_values(
        values, letter, width, count, test, out
    )
    free(values)
    return fine


cdef bint _test_runs(
    TreeReader* reader, TreeNode* node, char letter, int64_t width, int64_t count,
    const SlotTest* test, uint8_t* out,
) noexcept nogil:
    """Once a run."""
    cdef uint32_t runs = 0, run
    cdef int64_t* ends = NULL
    cdef uint8_t* values = NULL
    cdef uint8_t* wanted = NULL
    cdef bint fine = _open_runs(reader, node, letter, width, count, &runs, &ends, &values)
    if fine:
        wanted = <uint8_t*>malloc(<int64_t>runs + 8)
        fine = wanted is not NULL and _test_values(values, letter, width, runs, test, wanted)
    for run in range(runs if fine else 0):
        memset(out + ends[run], wanted[run], ends[run + 1] - ends[run])
    free(ends)
    free(values)
    free(wanted)
    return fine


cdef bint _test_local(
    TreeReader* reader, TreeNode* node, char letter, int64_t width, int64_t count,
    const SlotTest* test, uint8_t* out,
) noexcept nogil:
    """Once an entry of the node's own dictionary."""
    cdef uint32_t entries = 0
    cdef const uint8_t* rest = NULL
    cdef uint32_t* codes = _decode_codes(reader, node, count, &entries, &rest)
    cdef uint8_t* values
    cdef uint8_t* wanted
    cdef bint fine
    if codes is NULL:
        return False
    values = <uint8_t*>malloc(entries * width + 8)
    wanted = <uint8_t*>malloc(<int64_t>entries + 8)
    fine = (
        values is not NULL
        and wanted is not NULL
        and _decode_numbers(
            reader, rest, node.stop, node.depth + 1, letter, width, entries, values
        )
        and _test_values(values, letter, width, entries, test, wanted)
    )
    if fine:
        _gather_words(wanted, codes, count, out, 1)
    free(codes)
    free(values)
    free(wanted)
    return fine


cdef bint _test_strings(
    TreeReader* reader, TreeNode* root, int64_t count, const WantedValues* wanted, uint8_t* out
) noexcept nogil:
    """Strings of a page that refers to no dictionary of its chunk."""
    cdef PickDictionary none
    cdef PickedStrings strings
    cdef TreeStrings page
    cdef bint fine
    if wanted is NULL or wanted.kind == WANTED_NUMBERS:
        return False
    memset(&none, 0, sizeof(none))
    memset(&strings, 0, sizeof(strings))
    page.offsets, page.data, page.total = <int64_t*>malloc(8 * (count + 1)), NULL, 0
    fine = page.offsets is not NULL
    if fine:
        page.offsets[0] = 0
        fine = _append_strings(reader, root, count, &none, &strings, &page)
    if fine:
        _test_texts(page.offsets, strings.out, count, wanted, out)
    free(strings.out)
    free(strings.offsets)
    free(page.offsets)
    return fine


cdef bint _test_page(
    const Page* page, bint verify, const SlotTest* test, TreeReader* reader, uint8_t* out
) noexcept nogil:
    cdef TreeNode root
    cdef uint8_t* unzipped = NULL
    cdef int64_t count = page.slots
    if page.size < COLUMN_PAGE_HEADER or page.start[1] != TREE_CODEC_NONE:
        return False
    if not _open_page(page, verify, reader, &root, &unzipped) or root.flags:
        return False
    if count * (8 if test.letter == c's' else test.width) > reader.output_bytes_max:
        return False
    if root.encoding == TREE_DICTIONARY:
        return _gather_page(reader, &root, count, test.entries_count, test.entries, 1, out)
    if test.letter == c's':
        return _test_strings(reader, &root, count, test.wanted, out)
    return _test_node(reader, &root, test.letter, test.width, count, test, out)


cdef class PageTest:
    """Which values of pages are wanted."""

    cdef SlotTest test
    cdef Buffers entries
    cdef Wanted wanted

    def __cinit__(self, char letter, int64_t width, bounds, entries, Wanted wanted=None):
        if not (letter in b"iu" and width in (1, 2, 4, 8)) and not (
            letter == c'f' and width in (4, 8)
        ) and not (letter == c'V' and width in (16, 32)) and letter != c's':
            raise ValueError(
                f"values of kind {chr(letter)!r} and {width} bytes have no order here"
            )
        self.entries, self.wanted = Buffers([entries]), wanted
        self.test.letter, self.test.width = letter, width
        self.test.entries = <const uint8_t*>self.entries.views[0].buf
        self.test.entries_count = self.entries.views[0].len
        if wanted is not None:
            self.test.wanted = &wanted.values
        self.bound(_input(bounds))

    cdef int bound(self, cnp.ndarray pair) except -1:
        """A range from its two bounds, both inclusive."""
        _same_length(pair.shape[0], 2, "bounds")
        if self.test.letter == c'f':
            self.test.floor, self.test.ceiling = float(pair[0]), float(pair[1])
        elif self.test.letter != c's':
            if not pair[0] <= pair[1]:
                raise ValueError(f"bounds {pair[0]} to {pair[1]}: expected them to ascend")
            self.test.low = <uint64_t>(int(pair[0]) & 0xFFFFFFFFFFFFFFFF)
            self.test.span = <uint64_t>(int(pair[1]) - int(pair[0]))
        return 0


def match_pages(
    list pages, counts, page_offsets, PageTest test not None, PageReader how not None, out
):
    """Whether each slot of some pages lies in a range, or is wanted, end to end."""
    cdef PageList given = PageList(pages, counts, page_offsets)
    cdef cnp.ndarray target = _output(out)
    cdef list raised = []
    cdef TreeReader reader = how.start(raised)
    cdef uint8_t* to = _bytes_out(target)
    cdef bint fine = True
    cdef Page page
    cdef Py_ssize_t i
    _same_length(target.nbytes, given.slots, "out")
    with nogil:
        for i in range(given.count):
            page = given.at(i, how.place_key)
            if not _test_page(&page, how.verify, &test.test, &reader, to):
                fine = False
                break
            to += page.slots
    _raise_interrupt(raised)
    return fine
