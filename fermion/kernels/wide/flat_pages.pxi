# Flat columns whose chunks are single pages, many at once: described, encoded and sealed as pages.
#
# The other direction of columns.pxi. Of the encodings it knows those that small columns mostly get:
# frames of reference, decimals, and dictionaries of strings. Whatever looks as if another one might
# be smaller, by counts that need no trial, is left to `fermion.writing.column`, and so is whatever
# is unusual.

from cpython.bytearray cimport PyByteArray_FromStringAndSize


cdef void _flat_dense(
    const uint8_t* values, const uint8_t* bits, int64_t width, int64_t count, void* out
) noexcept nogil:
    """The values of valid slots, in order; ``out`` may be where they are."""
    cdef int64_t at
    cdef uint8_t* to = <uint8_t*>out
    for at in range(count):
        memmove(to, values + at * width, width)
        to += width * (bits[at >> 3] >> (at & 7) & 1)


cdef bint _flat_data(
    FlatSource* source, const uint8_t* bits, FlatRules* rules, FlatWork* work, FlatResult* found
) noexcept nogil:
    """The page of a column's values, its nulls as ``bits`` say; False to leave it.

    Null slots are left out where ``work.count`` says so.
    """
    cdef int64_t count = work.slots, width = source.width, at
    cdef const uint8_t* values = source.values + source.first * width
    cdef bint fine
    if <uintptr_t>values % width:
        return False
    if source.letter == c's':
        # The offsets outlive what the rest does with the other arrays.
        if width == 4:
            fine = _flat_offsets(
                <const int32_t*>values, bits, count, source.text_size, work.offsets
            )
        else:
            fine = _flat_offsets(
                <const int64_t*>values, bits, count, source.text_size, work.offsets
            )
        if not fine:
            return False
        at = (<const int32_t*>values)[0] if width == 4 else (<const int64_t*>values)[0]
        if work.count < count:
            _flat_dense(<const uint8_t*>(work.offsets + 1), bits, 8, count, work.offsets + 1)
            bits = NULL
        return _flat_strings(work.offsets, source.text + at, bits, rules, work, found)
    if work.count < count:
        _flat_dense(values, bits, width, count, work.copy)
        values, bits = work.copy, NULL
    elif bits is not NULL:
        memcpy(work.copy, values, count * width)
        for at in range(count):
            if bits[at >> 3] >> (at & 7) & 1:
                continue
            if at == 0:
                memset(work.copy, 0, width)
            else:
                memcpy(work.copy + at * width, work.copy + (at - 1) * width, width)
        values = work.copy
    if source.letter == c'f' and width == 4:
        return _flat_floats(<const float*>values, bits, rules, work, found)
    if source.letter == c'f':
        return _flat_floats(<const double*>values, bits, rules, work, found)
    return _flat_integers(values, source.letter, width, bits, rules, work, found)


cdef bint _flat_column(
    FlatSource* source, double nulls_share_min, FlatRules* rules, FlatWork* work,
    FlatResult* found
) noexcept nogil:
    """The pages of a column, validity first; False, and nothing written, to leave it."""
    cdef int64_t count = work.slots, bytes = (count + 7) >> 3, start = work.size
    cdef uint8_t* page
    cdef const uint8_t* bits = NULL
    if source.validity is not NULL:
        memset(work.bits, 0, bytes + 8)
        _copy_bits(source.validity, source.first, work.bits, 0, count)
        found.nulls = count - _count_bits(work.bits, 0, count)
        if found.nulls == count:
            return False
        if found.nulls:
            bits = work.bits
    work.count = count - found.nulls if found.nulls > nulls_share_min * count else count
    if bits is not NULL:
        page = _flat_page(work, bytes + 64)
        if page is NULL:
            return False
        _flat_node(page + COLUMN_PAGE_HEADER, TREE_BITMAP, 0, NULL)
        memcpy(page + COLUMN_PAGE_HEADER + TREE_NODE_HEADER, bits, bytes)
        page += COLUMN_PAGE_HEADER
        found.validity_bytes = _flat_seal(
            work, _flat_close(page, page + TREE_NODE_HEADER + bytes)
        )
    if _flat_data(source, bits, rules, work, found):
        found.flags |= FLAT_DENSE if work.count < count else 0
        return True
    work.size = start
    return False


def encode_flat(
    list validities, list values, list texts, const int64_t[::1] firsts, bytes letters,
    const int64_t[::1] widths, int64_t slots, double nulls_share_min, double ratio,
    int64_t search_bytes_min, int64_t zip_bytes_min, int64_t chunk_bytes_max,
    double page_ratio, int64_t page_zip_bytes_min, int64_t run_slots_min,
    int64_t entry_slots_min, int64_t sample_values, double sample_part_min, zip,
):
    """Columns of one stripe, each as one page of data and at most one of validity."""
    cdef Py_ssize_t count = len(values), i
    cdef Buffers own_bits = Buffers(validities), own_values = Buffers(values)
    cdef Buffers own_texts = Buffers(texts)
    cdef FlatRules rules
    cdef FlatWork work
    cdef FlatSource* sources
    cdef list raised = []
    cdef int64_t room = slots + slots // BLOCK_VALUES + 16
    _same_length(len(validities), count, "validities")
    _same_length(len(texts), count, "texts")
    _same_length(firsts.shape[0], count, "firsts")
    _same_length(len(letters), count, "letters")
    _same_length(widths.shape[0], count, "widths")
    if min(run_slots_min, entry_slots_min, sample_values) < 1:
        raise ValueError("run_slots_min, entry_slots_min and sample_values: expected 1 or more")
    if not 0 < slots <= 2**31 - 1:
        raise ValueError(f"slots is {slots}, expected 1 to 2**31 - 1")
    found_array = np.zeros((count, FLAT_FIELDS), np.int64)
    cdef int64_t[:, ::1] found = found_array
    memset(&work, 0, sizeof(work))
    work.slots = slots
    rules.ratio, rules.search_bytes_min = ratio, search_bytes_min
    rules.zip_bytes_min, rules.chunk_bytes_max = zip_bytes_min, chunk_bytes_max
    rules.page_ratio, rules.page_zip_bytes_min = page_ratio, page_zip_bytes_min
    rules.run_slots_min, rules.entry_slots_min = run_slots_min, entry_slots_min
    rules.sample_values, rules.sample_part_min = sample_values, sample_part_min
    rules.zip, rules.raised = <void*>zip, <void*>raised
    sources = <FlatSource*>calloc(count + 1, sizeof(FlatSource))
    memory = np.empty((6, room), np.int64)
    cdef int64_t[:, ::1] rows = memory
    bits = np.zeros(FLAT_SEEN_BYTES + (slots + 7) // 8 + 16, np.uint8)
    cdef uint8_t[::1] bytes_of_bits = bits
    work.wide, work.other, work.first = &rows[0, 0], &rows[1, 0], &rows[2, 0]
    work.codes, work.copy = <uint32_t*>&rows[3, 0], <uint8_t*>&rows[4, 0]
    work.offsets = &rows[5, 0]
    work.seen, work.bits = &bytes_of_bits[0], &bytes_of_bits[FLAT_SEEN_BYTES]
    try:
        if sources is NULL:
            raise MemoryError(f"no memory for {count} columns")
        for i in range(count):
            _flat_source(
                &sources[i], &own_bits.views[i], &own_values.views[i], &own_texts.views[i],
                firsts[i], letters[i], widths[i], slots,
            )
        with nogil:
            for i in range(count):
                if not _flat_column(
                    &sources[i], nulls_share_min, &rules, &work, <FlatResult*>&found[i, 0]
                ):
                    found[i, 1] = 0
        for error in raised:
            raise error
        pages = PyByteArray_FromStringAndSize(<char*>work.out, work.size)
    finally:
        free(sources)
        free(work.out)
    return pages, found_array


cdef int _flat_source(
    FlatSource* source, Py_buffer* validity, Py_buffer* values, Py_buffer* text,
    int64_t first, char letter, int64_t width, int64_t slots,
) except -1:
    """Note a column's memory; fails where that is too small."""
    if not (width in (2, 4, 8) and first >= 0 and letter in b"iufs"):
        raise ValueError(f"slot {first} of values {chr(letter)}{width}")
    if values.len // width < first + slots + (letter == c's'):
        raise ValueError(f"{values.len} bytes do not hold {slots} values from slot {first} on")
    if validity.len:
        _bit_range(validity.len, first, slots, "validity")
        source.validity = <const uint8_t*>validity.buf
    source.values, source.text = <const uint8_t*>values.buf, <const uint8_t*>text.buf
    source.text_size, source.first = text.len, first
    source.letter, source.width = letter, width
    return 0
