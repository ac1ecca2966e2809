# Single slots of encoding trees: the nodes that page_picks.pxi does not have itself.

cdef bint _pick_decimals(
    TreeReader* reader, TreeNode* node, int64_t width, int64_t count, const int64_t* slots,
    Py_ssize_t picks, uint8_t* out,
) noexcept nogil:
    """Floats from integers, which are picked in place where they are as wide."""
    cdef int64_t size = node.stop - node.start, values, child, i, last = -1
    cdef uint32_t exceptions, slot
    cdef Py_ssize_t at = 0
    cdef uint8_t* integers = out
    cdef TreeNode whole
    cdef bint fine
    if node.children != 1 or size < 8 or node.start[0] > TREE_EXPONENT_MAX:
        return False
    if node.start[1] != width or (width != 4 and width != 8):
        return False
    memcpy(&exceptions, node.start + 4, 4)
    values = (8 + 4 * <int64_t>exceptions + 7) & ~<int64_t>7
    child = values + ((exceptions * width + 7) & ~<int64_t>7)
    if child > size:
        return False
    if width == 4:
        integers = <uint8_t*>malloc(8 * picks)
        if integers is NULL:
            return False
    fine = _open_child(node, node.start + child, &whole) and _pick_node(
        reader, &whole, c'i', 8, count, slots, picks, integers
    )
    if fine and width == 4:
        _divide(integers, picks, POWERS_OF_TEN[node.start[0]], <float*>out)
    elif fine:
        _divide(integers, picks, POWERS_OF_TEN[node.start[0]], <double*>out)
    if width == 4:
        free(integers)
    for i in range(exceptions if fine else 0):
        memcpy(&slot, node.start + 8 + 4 * i, 4)
        if slot >= count or slot <= last:
            return False
        while at < picks and slots[at] < slot:
            at += 1
        if at < picks and slots[at] == slot:
            memcpy(out + at * width, node.start + values + i * width, width)
        last = slot
    return fine


cdef bint _pick_byte_streams(
    TreeReader* reader, TreeNode* node, int64_t width, int64_t count, const int64_t* slots,
    Py_ssize_t picks, uint8_t* out,
) noexcept nogil:
    """Values whose bytes lie apart; all of those bytes are decoded."""
    cdef uint32_t stored
    cdef uint8_t* planes
    cdef Py_ssize_t i
    cdef int64_t place
    cdef bint fine
    if node.children != 1 or node.stop - node.start < 8:
        return False
    memcpy(&stored, node.start, 4)
    if stored != width:
        return False
    planes = <uint8_t*>malloc(count * width + 8)
    if planes is NULL:
        return False
    fine = _decode_numbers(
        reader, node.start + 8, node.stop, node.depth + 1, c'u', 1, count * width, planes
    )
    for i in range(picks if fine else 0):
        for place in range(width):
            out[i * width + place] = planes[place * count + slots[i]]
    free(planes)
    return fine


cdef uint32_t* _pick_local_codes(
    TreeReader* reader, TreeNode* node, int64_t count, const int64_t* slots, Py_ssize_t picks,
    uint32_t* entries, TreeNode* rest,
) noexcept nogil:
    """Codes into the node's own dictionary, checked, to be freed; and the node of its entries."""
    cdef TreeNode child
    if node.children != 2 or node.stop - node.start < 8:
        return NULL
    memcpy(entries, node.start, 4)
    if entries[0] > count:
        return NULL
    if not _open_child(node, node.start + 8, &child):
        return NULL
    if not _open_child(node, child.stop, rest):
        return NULL
    return _pick_child_codes(
        reader, &child, node.start[4], count, slots, picks, entries[0]
    )


cdef bint _pick_dictionary(
    TreeReader* reader, TreeNode* node, char letter, int64_t width, int64_t count,
    const int64_t* slots, Py_ssize_t picks, uint8_t* out,
) noexcept nogil:
    """Numbers of a dictionary that lies in the node; all of its entries are decoded."""
    cdef uint32_t entries = 0
    cdef TreeNode rest
    cdef uint32_t* codes = _pick_local_codes(reader, node, count, slots, picks, &entries, &rest)
    cdef uint8_t* values
    cdef bint fine = False
    if codes is NULL:
        return False
    values = <uint8_t*>malloc(entries * width + 8)
    if values is not NULL and _decode_node(reader, &rest, letter, width, entries, values):
        _gather_words(values, codes, picks, out, width)
        fine = True
    free(values)
    free(codes)
    return fine


cdef bint _pick_dictionary_strings(
    TreeNode* node, int64_t count, const int64_t* slots, Py_ssize_t picks, TreeReader* reader,
    PickedStrings* strings, int64_t* ends,
) noexcept nogil:
    """Strings of a dictionary that lies in the node; all of its entries are decoded."""
    cdef uint32_t entries = 0
    cdef TreeNode rest
    cdef TreeStrings values
    cdef PickDictionary known
    cdef bint fine = False
    cdef uint32_t* codes = _pick_local_codes(reader, node, count, slots, picks, &entries, &rest)
    if codes is NULL:
        return False
    values.data = NULL
    values.offsets = <int64_t*>malloc(8 * (<int64_t>entries + 1))
    if values.offsets is not NULL and _decode_strings(reader, &rest, entries, &values):
        known.entries, known.values = entries, values.data
        known.size, known.offsets, known.is_short = values.total, values.offsets, False
        fine = _gather_entries(codes, picks, &known, reader, strings, ends)
    free(values.data)
    free(values.offsets)
    free(codes)
    return fine


cdef bint _pick_plain_strings(
    TreeNode* node, int64_t count, const int64_t* slots, Py_ssize_t picks, TreeReader* reader,
    PickedStrings* strings, int64_t* ends,
) noexcept nogil:
    """Strings that lie in the node as they are, behind their lengths."""
    cdef int64_t size = node.stop - node.start, table = (4 * count + 7) & ~<int64_t>7
    cdef int64_t start = 0, i, to = strings.size
    cdef uint32_t length
    cdef Py_ssize_t at = 0
    if size < table:
        return False
    for i in range(count):
        memcpy(&length, node.start + 4 * i, 4)
        if at < picks and slots[at] == i:
            to += length
            ends[at] = to
            at += 1
        start += length
    if start > size - table or not _room_for_strings(reader, strings, to):
        return False
    at, start = 0, table
    for i in range(count):
        if at == picks:
            break
        memcpy(&length, node.start + 4 * i, 4)
        if slots[at] == i:
            memcpy(strings.out + strings.size, node.start + start, length)
            strings.size += length
            at += 1
        start += length
    return True
