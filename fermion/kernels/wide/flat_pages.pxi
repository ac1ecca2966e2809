# Flat columns whose chunks are single pages, many at once: described, encoded and sealed as pages.
#
# The other direction of columns.pxi. Of the encodings it knows those that small columns mostly get:
# frames of reference, decimals, and dictionaries of strings. Whatever looks as if another one might
# be smaller, by counts that need no trial, is left to `fermion.writing.column`, and so is whatever
# is unusual.

from cpython.bytearray cimport PyByteArray_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_GetPointer


cdef void _flat_dense(
    const uint8_t* values, const uint8_t* bits, int64_t width, int64_t count, void* out
) noexcept nogil:
    """The values of valid slots, in order; ``out`` may be where they are."""
    cdef int64_t at
    cdef uint8_t* to = <uint8_t*>out
    for at in range(count):
        memmove(to, values + at * width, width)
        to += width * (bits[at >> 3] >> (at & 7) & 1)


cdef const uint8_t* _flat_booleans(
    FlatSource* source, const uint8_t* bits, FlatWork* work
) noexcept nogil:
    """Booleans as bytes, those of null slots False, or left out where ``work.count`` says so."""
    cdef int64_t i, at
    for i in range(work.slots):
        at = source.first + i
        work.copy[i] = source.values[at >> 3] >> (at & 7) & 1
        if bits is not NULL:
            work.copy[i] &= bits[i >> 3] >> (i & 7)
    if work.count < work.slots:
        _flat_dense(work.copy, bits, 1, work.slots, work.copy)
    return work.copy


cdef bint _flat_data(
    FlatSource* source, const uint8_t* bits, FlatRules* rules, FlatWork* work, FlatResult* found
) noexcept nogil:
    """The page of a column's values, its nulls as ``bits`` say; False to leave it.

    Null slots are left out where ``work.count`` says so.
    """
    cdef int64_t count = work.slots, width = source.width, at
    cdef const uint8_t* values = source.values + source.first * width
    cdef bint fine
    if source.letter == c'b':
        values = _flat_booleans(source, bits, work)
        if work.count < count:
            bits = NULL
        return _flat_small(values, c'b', 1, bits, rules, work, found)
    if source.letter == c'd':
        if not _flat_narrowed(source, bits, count, <int64_t*>work.copy):
            return False
        values, width = work.copy, 8
    if <uintptr_t>values % width:
        return False
    if source.letter == c's':
        # The offsets outlive what the rest does with the other arrays.
        if width == 4:
            fine = _flat_offsets(<const int32_t*>values, bits, count, work.offsets)
        else:
            fine = _flat_offsets(<const int64_t*>values, bits, count, work.offsets)
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
        memmove(work.copy, values, count * width)
        for at in range(count):
            if bits[at >> 3] >> (at & 7) & 1:
                continue
            if at == 0:
                memset(work.copy, 0, width)
            else:
                memcpy(work.copy + at * width, work.copy + (at - 1) * width, width)
        values = work.copy
    if source.letter == c'd':
        return _flat_wide(<const int64_t*>values, source.width, bits, rules, work, found)
    if width == 1 or (source.letter == c'f' and width == 2):
        return _flat_small(values, source.letter, width, bits, rules, work, found)
    if source.letter == c'f' and width == 4:
        return _flat_floats(<const float*>values, bits, rules, work, found)
    if source.letter == c'f':
        return _flat_floats(<const double*>values, bits, rules, work, found)
    return _flat_integers(values, source.letter, width, bits, rules, work, found)


cdef bint _flat_fits(const FlatSource* source, int64_t count) noexcept nogil:
    """Whether a column's bytes fit into one page."""
    cdef const uint8_t* values = source.values + source.first * source.width
    cdef int64_t bytes = count * source.width
    if source.letter == c'b':
        return (count + 7) >> 3 <= source.page_bytes
    if source.letter == c's' and source.width == 4:
        bytes += 4 + (<const int32_t*>values)[count] - (<const int32_t*>values)[0]
    elif source.letter == c's':
        bytes += 8 + (<const int64_t*>values)[count] - (<const int64_t*>values)[0]
    return bytes <= source.page_bytes


cdef void _flat_all_null(int64_t count, FlatResult* found) noexcept nogil:
    """A column that has no page."""
    found.validity_bytes, found.nulls = COLUMN_ALL_NULL, count
    found.minimum, found.maximum = INT64_MAX, INT64_MIN
    found.flags = FLAT_BOUNDS | FLAT_MIN_EXACT | FLAT_MAX_EXACT


cdef void _flat_column(
    FlatSource* source, FlatRules* rules, FlatWork* work, FlatResult* found
) noexcept nogil:
    """The pages of a column, validity first; zeros, and nothing written, to leave it."""
    cdef int64_t count = work.slots, bytes = (count + 7) >> 3
    cdef uint8_t* page
    cdef const uint8_t* bits = NULL
    found.offset = work.size
    if source.validity is not NULL:
        memset(work.bits, 0, bytes + 8)
        _copy_bits(source.validity, source.first, work.bits, 0, count)
        found.nulls = count - _count_bits(work.bits, 0, count)
        bits = work.bits if found.nulls else NULL
    if bits is not NULL and found.nulls == count and source.nullable:
        _flat_all_null(count, found)
        return
    work.count = count
    if found.nulls > rules.policy.nulls_share_min * count:
        work.count -= found.nulls
    page = _flat_page(work, bytes + 64)
    if page is NULL or not _flat_fits(source, count) or (bits is not NULL and not source.nullable):
        memset(found, 0, sizeof(FlatResult))
        return
    if bits is not NULL:
        _flat_node(page + COLUMN_PAGE_HEADER, TREE_BITMAP, 0, NULL)
        memcpy(page + COLUMN_PAGE_HEADER + TREE_NODE_HEADER, bits, bytes)
        page += COLUMN_PAGE_HEADER
        found.validity_bytes = _flat_seal(
            work, _flat_close(page, page + TREE_NODE_HEADER + bytes)
        )
    if _flat_data(source, bits, rules, work, found):
        found.flags |= FLAT_DENSE if work.count < count else 0
        return
    work.size = found.offset
    memset(found, 0, sizeof(FlatResult))


def encode_flat(
    columns, const FlatForm[::1] forms, const FlatPolicy[::1] policy, zip, entropy
):
    """Columns of one stripe, each as one page of data and at most one of validity."""
    cdef Py_ssize_t count = forms.shape[0], i
    cdef const ArrowArray* batch = <const ArrowArray*>PyCapsule_GetPointer(columns, b"arrow_array")
    cdef int64_t slots = batch.length
    cdef FlatRules rules
    cdef FlatWork work
    cdef FlatSource* sources
    cdef list raised = []
    cdef int64_t room = slots + slots // BLOCK_VALUES + 16
    _same_length(policy.shape[0], 1, "policy")
    rules.policy = policy[0]
    rules.zip, rules.entropy, rules.raised = <void*>zip, <void*>entropy, <void*>raised
    if min(
        rules.policy.run_slots_min, rules.policy.entry_slots_min, rules.policy.sample_values
    ) < 1:
        raise ValueError("run_slots_min, entry_slots_min and sample_values: expected 1 or more")
    if not 0 < slots <= 2**31 - 1:
        raise ValueError(f"slots is {slots}, expected 1 to 2**31 - 1")
    found_array = np.zeros((count, FLAT_FIELDS), np.int64)
    cdef int64_t[:, ::1] found = found_array
    memset(&work, 0, sizeof(work))
    work.slots = slots
    sources = <FlatSource*>calloc(count + 1, sizeof(FlatSource))
    memory = np.empty((7, room), np.int64)
    cdef int64_t[:, ::1] rows = memory
    bits = np.zeros(FLAT_SEEN_BYTES + (slots + 7) // 8 + 16, np.uint8)
    cdef uint8_t[::1] bytes_of_bits = bits
    work.wide, work.other, work.first = &rows[0, 0], &rows[1, 0], &rows[2, 0]
    work.codes, work.copy = <uint32_t*>&rows[3, 0], <uint8_t*>&rows[4, 0]
    work.exceptions = work.codes + room
    work.offsets, work.entries = &rows[5, 0], &rows[6, 0]
    work.seen, work.bits = &bytes_of_bits[0], &bytes_of_bits[FLAT_SEEN_BYTES]
    try:
        if sources is NULL:
            raise MemoryError(f"no memory for {count} columns")
        for i in range(count):
            if not 0 <= forms[i].place < batch.n_children:
                raise ValueError(f"column {forms[i].place} of {batch.n_children}")
            _flat_source(
                &sources[i], batch.children[forms[i].place], batch.offset, &forms[i], slots
            )
        with nogil:
            for i in range(count):
                _flat_column(&sources[i], &rules, &work, <FlatResult*>&found[i, 0])
        for error in raised:
            raise error
        pages = PyByteArray_FromStringAndSize(<char*>work.out, work.size)
    finally:
        free(sources)
        free(work.out)
    return pages, found_array


cdef int _flat_source(
    FlatSource* source, const ArrowArray* array, int64_t first, const FlatForm* form, int64_t slots
) except -1:
    """Note a column's memory, which Arrow has found to be large enough for its slots."""
    cdef int64_t width = form.width
    cdef char letter = <char>form.letter
    cdef bint is_known = width in (1, 2, 4, 8) and letter in b"iufsb"
    if letter == c'd':
        is_known = width == 16 or width == 32
    if not is_known or (width == 1 and letter in b"fs"):
        raise ValueError(f"values {chr(letter)}{width} are not known")
    if array.n_buffers != (3 if letter == c's' else 2) or array.n_children:
        raise ValueError(f"{array.n_buffers} buffers cannot be those of {chr(letter)}{width}")
    if array.offset < 0 or first < 0 or array.length - first < slots:
        raise ValueError(f"{array.length} slots do not hold {slots} from slot {first} on")
    if array.null_count != 0:
        source.validity = <const uint8_t*>array.buffers[0]
    source.values = <const uint8_t*>array.buffers[1]
    source.text = <const uint8_t*>array.buffers[2] if letter == c's' else NULL
    source.first = array.offset + first
    source.letter, source.width = letter, width
    source.nullable, source.page_bytes = form.nullable, form.page_bytes
    return 0
