# Flat columns whose chunks are single pages, many at once: their pages decoded (CMBs: blocks.pxi).
#
# A wide table is thousands of such columns with a few kilobytes each, where a Python object a
# stream would cost more than the values. `fermion.reading.one_page` drives these; what they leave
# is read the general way, which also tells what is wrong with damaged columns.

from cpython.buffer cimport PyBuffer_FillInfo

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
    Page data
    Page validity  # of no bytes: all slots are valid
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


cdef bint _decode_validity(
    FlatColumn* column, int64_t slots, bint verify, TreeReader* reader
) noexcept nogil:
    """The bitmap of a column; none where all slots are valid."""
    cdef TreeNode root
    cdef uint8_t* unzipped = NULL
    cdef bint fine
    column.nulls = 0
    if column.validity.size == 0:
        return True
    fine = _open_page(
        &column.validity, verify, reader, &root, &unzipped
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
        &column.data, verify, reader, &root, &unzipped
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
        self, Buffers views, const int64_t[:, ::1] places, const int64_t[::1] offsets,
        const int64_t[:, ::1] forms, int64_t slots, bint borrow, uint64_t place_key,
    ):
        cdef Py_ssize_t count = forms.shape[0], i
        cdef FlatColumn* column
        cdef int64_t letter, width
        _same_length(forms.shape[1], 3, "columns of forms")
        _same_length(places.shape[0], 2 * count, "places")
        _same_length(offsets.shape[0], 2 * count, "offsets")
        views.check(places)
        if slots < 0 or slots > <int64_t>0xFFFFFFFF:
            raise ValueError(f"slots is {slots}, expected 0 to 2**32 - 1")
        for i in range(count):
            letter, width = forms[i, 0], forms[i, 1]
            if not (1 if letter != c's' else 4) <= width <= 2**31 - 1:
                raise ValueError(f"column {i}: values of {width} bytes")
            if (letter == c'i' or letter == c'u') and width not in (1, 2, 4, 8):
                raise ValueError(f"column {i}: whole numbers of {width} bytes")
        self.columns = <FlatColumn*>calloc(count + 1, sizeof(FlatColumn))
        if self.columns is NULL:
            raise MemoryError(f"no memory for {count} columns")
        self.views, self.count, self.slots, self.rows = views, count, slots, slots
        for i in range(count):
            column = &self.columns[i]
            self.open(&column.validity, places, offsets, 2 * i, place_key)
            self.open(&column.data, places, offsets, 2 * i + 1, place_key)
            column.letter, column.width = <char>forms[i, 0], forms[i, 1]
            column.nullable, column.borrow = forms[i, 2] != 0, borrow

    cdef void open(
        self, Page* page, const int64_t[:, ::1] places, const int64_t[::1] offsets, Py_ssize_t i,
        uint64_t place_key,
    ) noexcept:
        page.start, page.size = self.views.at(places, i), places[i, 2]
        page.slots, page.place = self.slots, _place(place_key, offsets[i])

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.columns is not NULL:
            for i in range(self.count):
                _free_column(&self.columns[i])
            free(self.columns)

    cdef int decode(self, const Picks* picks, PageReader how) except -1:
        """Decode some slots of every column; all of them where ``picks`` has none."""
        cdef list raised = []
        cdef TreeReader reader = how.start(raised)
        cdef PickedStrings strings
        cdef Py_ssize_t i
        memset(&strings, 0, sizeof(strings))
        with nogil:
            for i in range(self.count):
                _decode_column(
                    &self.columns[i], self.slots, picks, how.verify, &reader, &strings
                )
        free(strings.offsets)
        free(strings.piece)
        self.views = None
        _raise_interrupt(raised)
        return 0

    @property
    def fine(self):
        """Which columns were decoded: ``bool``, shape (columns,)."""
        return np.array([self.columns[i].fine for i in range(self.count)], bool)


def decode_flat(
    list buffers, const int64_t[:, ::1] places, offsets, forms, int64_t slots,
    PageReader how not None, bint borrow,
):
    """All slots of columns of one stripe."""
    cdef DecodedColumns columns = DecodedColumns(
        Buffers(buffers), places, offsets, forms, slots, borrow, how.place_key
    )
    cdef Picks picks
    cdef Py_ssize_t i
    cdef list found = [None] * columns.count
    memset(&picks, 0, sizeof(picks))
    columns.decode(&picks, how)
    for i in range(columns.count):
        if columns.columns[i].fine:
            found[i] = _column_buffers(
                &columns.columns[i], slots, buffers[places[2 * i + 1, 0]], buffers[places[2 * i, 0]]
            )
    return found


def pick_flat(
    list buffers, places, offsets, forms, int64_t slots, picks, PageReader how not None
):
    """Some slots of columns of one stripe, or all of them."""
    cdef DecodedColumns columns = DecodedColumns(
        Buffers(buffers), places, offsets, forms, slots, False, how.place_key
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
    columns.decode(&chosen, how)
    return columns
