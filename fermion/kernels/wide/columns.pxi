# Flat columns whose chunks are single pages, many at once: their pages decoded (CMBs: blocks.pxi).
#
# A wide table is thousands of such columns with a few kilobytes each, where a Python object a
# stream would cost more than the values. `fermion.reading.one_page` drives these; what they leave
# is read the general way, which also tells what is wrong with damaged columns.

from cpython.buffer cimport PyBuffer_FillInfo

from fermion.layout import PAGE_EXPANSION_FREE_BYTES as _PAGE_EXPANSION_FREE_BYTES
from fermion.layout import PAGE_EXPANSION_MAX as _PAGE_EXPANSION_MAX
from fermion.layout import PAGE_HEADER as _PAGE_HEADER
from fermion.layout import PAGE_VERSION as _PAGE_VERSION
from fermion.layout import NodeFlag as _NodeFlag

cdef int COLUMN_PAGE_VERSION = _PAGE_VERSION
cdef int COLUMN_NULLS_REMOVED = _NodeFlag.NULLS_REMOVED


cdef int64_t COLUMN_PAGE_HEADER = _PAGE_HEADER.itemsize
cdef int64_t COLUMN_EXPANSION_MAX = _PAGE_EXPANSION_MAX
cdef int64_t COLUMN_EXPANSION_FREE_BYTES = _PAGE_EXPANSION_FREE_BYTES


cdef class Memory:
    """Bytes of a decoded column, freed with the object."""

    cdef uint8_t* data
    cdef Py_ssize_t size

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 0, flags)


cdef Memory _own(uint8_t** data, Py_ssize_t size):
    """An object that owns memory from now on."""
    cdef Memory memory = Memory.__new__(Memory)
    memory.data, memory.size = data[0], size
    data[0] = NULL
    return memory


cdef struct FlatColumn:
    # Asked for
    const uint8_t* data_page
    const uint8_t* validity_page
    uint32_t data_place  # of the page in the file, as `_place` has it
    uint32_t validity_place
    int64_t data_size
    int64_t validity_size
    char letter  # i, u, f, V; b for booleans, s for strings
    bint nullable
    int64_t width  # of a value; of an offset for strings
    bint borrow  # what lies in a page as Arrow wants it, at a multiple of 64 bytes
    # Found
    bint fine
    bint bitmap_borrowed
    bint values_borrowed
    uint8_t* bitmap
    uint8_t* values  # numbers, bits, or offsets
    uint8_t* bytes
    int64_t bytes_size
    int64_t nulls


cdef bint _is_sound(const uint8_t* page, int64_t size, uint32_t place) noexcept nogil:
    """Whether a page with a whole header has the checksum that it says, at its place."""
    cdef uint32_t crc
    memcpy(&crc, page + 12, 4)
    return crc ^ place == crc32c_update(
        crc32c_update(0, page, 12, 0), page + COLUMN_PAGE_HEADER, size - COLUMN_PAGE_HEADER, 0
    )


cdef bint _open_page(
    const uint8_t* page, int64_t size, int64_t slots, bint verify, uint32_t place,
    TreeReader* reader, TreeNode* root, uint8_t** unzipped,
) noexcept nogil:
    """Verify a page and find its tree; ``unzipped`` is memory to be freed."""
    cdef uint16_t encoding
    cdef uint32_t stored_slots, raw_length
    cdef const uint8_t* tree
    if size < COLUMN_PAGE_HEADER or (verify and not _is_sound(page, size, place)):
        return False
    memcpy(&encoding, page + 2, 2)
    memcpy(&stored_slots, page + 4, 4)
    memcpy(&raw_length, page + 8, 4)
    if page[0] != COLUMN_PAGE_VERSION or stored_slots != slots:
        return False
    reader.output_bytes_max = max(COLUMN_EXPANSION_FREE_BYTES, COLUMN_EXPANSION_MAX * size)
    if page[1] == TREE_CODEC_NONE:
        tree = page + COLUMN_PAGE_HEADER
        if raw_length > size - COLUMN_PAGE_HEADER:
            return False
    elif page[1] == TREE_CODEC_ZSTD and raw_length <= reader.output_bytes_max:
        unzipped[0] = <uint8_t*>malloc(<int64_t>raw_length + 8)
        if unzipped[0] is NULL or not _unzip(
            reader, page + COLUMN_PAGE_HEADER, size - COLUMN_PAGE_HEADER, unzipped[0], raw_length
        ):
            return False
        tree = unzipped[0]
    else:
        return False
    return (
        _open_node(tree, tree + raw_length, 1, root)
        and root.encoding == encoding
        and root.stop == tree + raw_length
    )


cdef bint _decode_validity(
    FlatColumn* column, int64_t slots, bint verify, TreeReader* reader
) noexcept nogil:
    """The bitmap of a column; none where all slots are valid."""
    cdef TreeNode root
    cdef uint8_t* unzipped = NULL
    cdef bint fine
    column.nulls = 0
    if column.validity_page is NULL:
        return True
    fine = _open_page(
        column.validity_page, column.validity_size, slots, verify, column.validity_place, reader,
        &root, &unzipped,
    ) and root.flags == 0 and (slots + 63) // 64 * 8 <= reader.output_bytes_max
    if fine and _is_borrowed(column, &root, unzipped, TREE_BITMAP, (slots + 7) >> 3):
        column.bitmap, column.bitmap_borrowed = <uint8_t*>root.start, True
    elif fine:
        column.bitmap = <uint8_t*>calloc((slots + 63) // 64 * 8, 1)
        fine = column.bitmap is not NULL and _decode_bits(&root, slots, column.bitmap)
    free(unzipped)
    if not fine:
        return False
    column.nulls = slots - _count_bits(column.bitmap, 0, slots)
    if column.nulls == 0:
        _free_bitmap(column)
    return True


cdef inline bint _is_borrowed(
    FlatColumn* column, TreeNode* root, const uint8_t* unzipped, int encoding, int64_t size
) noexcept nogil:
    """Whether a tree is nothing but values that can be used where they lie."""
    return (
        column.borrow
        and unzipped is NULL
        and root.encoding == encoding
        and root.stop - root.start >= size
        and <uintptr_t>root.start & 63 == 0
    )


cdef void _free_bitmap(FlatColumn* column) noexcept nogil:
    if not column.bitmap_borrowed:
        free(column.bitmap)
    column.bitmap, column.bitmap_borrowed = NULL, False


cdef bint _decode_values(
    FlatColumn* column, TreeNode* root, const uint8_t* unzipped, int64_t slots, TreeReader* reader
) noexcept nogil:
    """The values of a column's page, its null slots put back where they were left out."""
    cdef int64_t count = slots, width = column.width, size
    cdef uint32_t stored
    cdef uint8_t* packed
    if root.flags == COLUMN_NULLS_REMOVED:
        if root.stop - root.start < 8:
            return False
        memcpy(&stored, root.start, 4)
        count = stored
        root.start += 8
        if count != slots - column.nulls:
            return False
    elif root.flags:
        return False
    if column.letter == c's':
        return _decode_column_strings(column, root, slots, count, reader)
    size = (slots + 63) // 64 * 8 if column.letter == c'b' else slots * width
    if size > reader.output_bytes_max:
        return False
    if not root.flags and _is_borrowed(
        column, root, unzipped,
        TREE_BITMAP if column.letter == c'b' else TREE_PLAIN, _values_size(column, slots),
    ):
        column.values, column.values_borrowed = <uint8_t*>root.start, True
        return True
    column.values = <uint8_t*>malloc(size + 8)
    if column.values is NULL:
        return False
    if column.letter == c'b':
        return _decode_column_bits(column, root, slots, count)
    packed = column.values + (slots - count) * width
    if not _decode_node(reader, root, column.letter, width, count, packed):
        return False
    if count < slots:
        _restore_nulls(column.values, width, True, column.bitmap, 0, slots)
    return True


cdef bint _decode_column_bits(
    FlatColumn* column, TreeNode* root, int64_t slots, int64_t count
) noexcept nogil:
    cdef uint8_t* packed
    cdef bint fine
    if count == slots:
        return _decode_bits(root, slots, column.values)
    packed = <uint8_t*>calloc((count + 63) // 64 * 8 + 8, 1)
    fine = packed is not NULL and _decode_bits(root, count, packed)
    if fine:
        _restore_nulls_bits(packed, column.bitmap, 0, slots, column.values, 0)
    free(packed)
    return fine


cdef inline int64_t _values_size(FlatColumn* column, int64_t slots) noexcept nogil:
    """Bytes of a column's values, or offsets."""
    if column.letter == c'b':
        return (slots + 7) >> 3
    return (slots + (column.letter == c's')) * column.width


cdef bint _decode_column_strings(
    FlatColumn* column, TreeNode* root, int64_t slots, int64_t count, TreeReader* reader
) noexcept nogil:
    """Offsets as wide as Arrow wants them, and bytes."""
    cdef int64_t* offsets
    cdef int64_t i
    cdef TreeStrings strings
    if 8 * (slots + 1) > reader.output_bytes_max:
        return False
    offsets = <int64_t*>malloc(8 * (slots + 1))
    column.values = <uint8_t*>offsets
    if offsets is NULL:
        return False
    strings.offsets = offsets + (slots - count)
    strings.data = NULL
    if not _decode_strings(reader, root, count, &strings):
        free(strings.data)
        return False
    column.bytes, column.bytes_size = strings.data, strings.total
    if count < slots:
        # A null slot is empty: it ends where the one before it ends.
        offsets[0] = 0
        _restore_nulls(<uint8_t*>(offsets + 1), 8, True, column.bitmap, 0, slots)
    if column.width == 4:
        if strings.total > <int64_t>0x7FFFFFFF:
            return False
        for i in range(slots + 1):
            (<int32_t*>offsets)[i] = <int32_t>offsets[i]
    return True


cdef void _free_column(FlatColumn* column) noexcept nogil:
    _free_bitmap(column)
    if not column.values_borrowed:
        free(column.values)
    free(column.bytes)
    column.values = column.bytes = NULL


cdef void _decode_column(
    FlatColumn* column, int64_t slots, const Picks* picks, bint verify, TreeReader* reader,
    PickedStrings* strings,
) noexcept nogil:
    """Some slots of a column; all of them where ``picks`` has none."""
    cdef TreeNode root
    cdef uint8_t* unzipped = NULL
    column.fine = _decode_validity(column, slots, verify, reader) and _open_page(
        column.data_page, column.data_size, slots, verify, column.data_place, reader, &root,
        &unzipped,
    )
    if column.fine and picks.slots is NULL:
        column.fine = (
            (column.nulls == 0 or column.nullable)
            and _decode_values(column, &root, unzipped, slots, reader)
        )
    elif column.fine:
        column.fine = _pick_column(column, &root, slots, picks, reader, strings)
    free(unzipped)
    if not column.fine:
        _free_column(column)


cdef object _column_buffers(FlatColumn* column, int64_t slots, data_buffer, validity_buffer):
    """A decoded column as (null count, bitmap, values or offsets, bytes)."""
    cdef int64_t size = _values_size(column, slots), bits = (slots + 7) >> 3
    bitmap = data = None
    if column.bitmap_borrowed:
        bitmap = _lend(validity_buffer, column.bitmap, bits)
    elif column.bitmap is not NULL:
        bitmap = _own(&column.bitmap, bits)
    if column.values_borrowed:
        values = _lend(data_buffer, column.values, size)
    else:
        values = _own(&column.values, size)
    if column.letter == c's':
        data = _own(&column.bytes, column.bytes_size)
    return column.nulls, bitmap, values, data


cdef object _lend(buffer, const uint8_t* data, int64_t size):
    """A view of the part of a buffer that starts at ``data``."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    cdef int64_t start = data - <const uint8_t*>view.buf
    PyBuffer_Release(&view)
    return memoryview(buffer).cast("B")[start : start + size]


cdef class DecodedColumns:
    """Columns of one stripe, each from one page of data and at most one of validity."""

    cdef Buffers views  # of the pages, until they are decoded
    cdef FlatColumn* columns
    cdef Py_ssize_t count
    cdef int64_t slots
    cdef int64_t rows  # that were asked for

    def __cinit__(
        self, Buffers views, const int64_t[:, ::1] data_places,
        const int64_t[:, ::1] validity_places, bytes letters, const int64_t[::1] widths,
        const uint8_t[::1] nullable, int64_t slots, bint borrow, const int64_t[:, ::1] found_at,
        uint64_t place_key,
    ):
        cdef Py_ssize_t count = data_places.shape[0], i
        cdef FlatColumn* column
        _same_length(validity_places.shape[0], count, "validity_places")
        _same_length(len(letters), count, "letters")
        _same_length(widths.shape[0], count, "widths")
        _same_length(found_at.shape[0], count, "offsets")
        _same_length(found_at.shape[1], 2, "columns of offsets")
        _same_length(nullable.shape[0], count, "nullable")
        views.check(data_places)
        views.check(validity_places)
        if slots < 0 or slots > <int64_t>0xFFFFFFFF:
            raise ValueError(f"slots is {slots}, expected 0 to 2**32 - 1")
        for i in range(count):
            if not (1 if letters[i] != c's' else 4) <= widths[i] <= 2**31 - 1:
                raise ValueError(f"column {i}: values of {widths[i]} bytes")
            if letters[i] in b"iu" and widths[i] not in (1, 2, 4, 8):
                raise ValueError(f"column {i}: whole numbers of {widths[i]} bytes")
        self.columns = <FlatColumn*>calloc(count + 1, sizeof(FlatColumn))
        if self.columns is NULL:
            raise MemoryError(f"no memory for {count} columns")
        self.views, self.count, self.slots, self.rows = views, count, slots, slots
        for i in range(count):
            column = &self.columns[i]
            column.data_page, column.data_size = views.at(data_places, i), data_places[i, 2]
            column.validity_place = _place(place_key, found_at[i, 0])
            column.data_place = _place(place_key, found_at[i, 1])
            if validity_places[i, 2]:
                column.validity_page = views.at(validity_places, i)
                column.validity_size = validity_places[i, 2]
            column.letter, column.width = letters[i], widths[i]
            column.nullable, column.borrow = nullable[i], borrow

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.columns is not NULL:
            for i in range(self.count):
                _free_column(&self.columns[i])
            free(self.columns)

    cdef int decode(self, const Picks* picks, bint verify, decode, unzip) except -1:
        """Decode some slots of every column; all of them where ``picks`` has none."""
        cdef TreeReader reader
        cdef PickedStrings strings
        cdef list raised = []
        cdef Py_ssize_t i
        memset(&strings, 0, sizeof(strings))
        reader.decode, reader.unzip, reader.raised = <void*>decode, <void*>unzip, <void*>raised
        with nogil:
            for i in range(self.count):
                _decode_column(&self.columns[i], self.slots, picks, verify, &reader, &strings)
        free(strings.offsets)
        free(strings.piece)
        self.views = None
        for error in raised:
            if not isinstance(error, Exception):
                # Frames of the traceback may hold views of memory that is gone.
                raise error.with_traceback(None)
        return 0

    @property
    def fine(self):
        """Which columns were decoded: ``bool``, shape (columns,)."""
        return np.array([self.columns[i].fine for i in range(self.count)], bool)


def decode_flat(
    list buffers, const int64_t[:, ::1] data_places, const int64_t[:, ::1] validity_places,
    bytes letters, const int64_t[::1] widths, const uint8_t[::1] nullable, int64_t slots,
    bint verify, bint borrow, decode, unzip, const int64_t[:, ::1] offsets, uint64_t place_key,
):
    """All slots of columns of one stripe."""
    cdef DecodedColumns columns = DecodedColumns(
        Buffers(buffers), data_places, validity_places, letters, widths, nullable, slots, borrow,
        offsets, place_key,
    )
    cdef Picks picks
    cdef Py_ssize_t i
    cdef list found = [None] * columns.count
    memset(&picks, 0, sizeof(picks))
    columns.decode(&picks, verify, decode, unzip)
    for i in range(columns.count):
        if columns.columns[i].fine:
            found[i] = _column_buffers(
                &columns.columns[i], slots,
                buffers[data_places[i, 0]], buffers[validity_places[i, 0]],
            )
    return found


def pick_flat(
    list buffers, const int64_t[:, ::1] data_places, const int64_t[:, ::1] validity_places,
    bytes letters, const int64_t[::1] widths, const uint8_t[::1] nullable, int64_t slots,
    picks, bint verify, decode, unzip, const int64_t[:, ::1] offsets, uint64_t place_key,
):
    """Some slots of columns of one stripe, or all of them."""
    cdef DecodedColumns columns = DecodedColumns(
        Buffers(buffers), data_places, validity_places, letters, widths, nullable, slots, False,
        offsets, place_key,
    )
    cdef const int64_t[::1] wanted
    cdef Picks chosen
    memset(&chosen, 0, sizeof(chosen))
    if picks is not None:
        wanted = _input(picks)
        if wanted.shape[0] == 0:
            raise ValueError("no slots are wanted: expected at least one")
        _check_slots(wanted, slots)
        chosen.slots, chosen.count = &wanted[0], wanted.shape[0]
        columns.rows = chosen.count
    columns.decode(&chosen, verify, decode, unzip)
    return columns
