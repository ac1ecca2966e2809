# Some slots of flat columns whose chunks are single pages; the other half of columns.pxi.
#
# Only what holds the slots is decoded: blocks of packed numbers, codes of a dictionary, pieces of
# strings. The page's checksum covers all of its bytes, and is verified before.

cdef struct Picks:
    const int64_t* slots  # ascending
    Py_ssize_t count


cdef bint _pick_validity(FlatColumn* column, const Picks* picks, uint8_t** bitmap) noexcept nogil:
    """The bitmap of the slots alone, in memory to be freed; none where all of them are valid."""
    cdef Py_ssize_t i
    cdef int64_t slot
    column.nulls = 0
    if column.bitmap is NULL:
        return True
    bitmap[0] = <uint8_t*>calloc((picks.count + 63) // 64 * 8 + 8, 1)
    if bitmap[0] is NULL:
        return False
    for i in range(picks.count):
        slot = picks.slots[i]
        if column.bitmap[slot >> 3] >> (slot & 7) & 1:
            bitmap[0][i >> 3] |= <uint8_t>(1 << (i & 7))
        else:
            column.nulls += 1
    if column.nulls == 0:
        free(bitmap[0])
        bitmap[0] = NULL
    return column.nulls == 0 or column.nullable


cdef Py_ssize_t _rank_slots(const uint8_t* bitmap, const Picks* picks, int64_t* ranks) noexcept nogil:
    """For each valid slot how many before it are valid; returns the number of valid ones."""
    cdef Py_ssize_t i, found = 0
    cdef int64_t at = 0, valid = 0, slot
    for i in range(picks.count):
        slot = picks.slots[i]
        valid += _count_bits(bitmap, at, slot - at)
        at = slot
        if bitmap[slot >> 3] >> (slot & 7) & 1:
            ranks[found] = valid
            found += 1
    return found


cdef bint _pick_column(
    FlatColumn* column, TreeNode* root, int64_t slots, const Picks* picks, TreeReader* reader,
    PickedStrings* strings,
) noexcept nogil:
    """Values and validity of some slots; ``column`` has the bitmap of all of them."""
    cdef Picks held = picks[0]  # of the values that the page holds
    cdef int64_t count = slots, nulls = column.nulls
    cdef int64_t* ranks = NULL
    cdef uint8_t* bitmap = NULL
    cdef uint32_t stored
    cdef bint fine
    if root.flags and (
        root.flags != COLUMN_NULLS_REMOVED or root.stop - root.start < 8
    ):
        return False
    if root.flags:
        memcpy(&stored, root.start, 4)
        count = stored
        root.start += 8
        if count != slots - nulls:
            return False
    if count < slots:
        ranks = <int64_t*>malloc(8 * picks.count + 8)
        if ranks is NULL:
            return False
        held.slots, held.count = ranks, _rank_slots(column.bitmap, picks, ranks)
    fine = _pick_validity(column, picks, &bitmap)
    _free_bitmap(column)
    column.bitmap = bitmap
    if fine and column.letter == c's':
        fine = _pick_column_strings(column, root, slots, count, &held, picks.count, reader, strings)
    elif fine and column.letter == c'b':
        fine = _pick_column_bits(column, root, slots, count, &held, picks.count, reader)
    elif fine:
        fine = _pick_column_numbers(column, root, slots, count, &held, picks.count, reader)
    free(ranks)
    return fine


cdef bint _pick_column_numbers(
    FlatColumn* column, TreeNode* root, int64_t slots, int64_t count, const Picks* held,
    Py_ssize_t rows, TreeReader* reader,
) noexcept nogil:
    cdef int64_t width = column.width
    if slots * width > reader.output_bytes_max:
        return False
    column.values = <uint8_t*>malloc(rows * width + 8)
    if column.values is NULL:
        return False
    if held.count and not _pick_node(
        reader, root, column.letter, width, count, held.slots, held.count,
        column.values + (rows - held.count) * width,
    ):
        return False
    if held.count < rows:
        _restore_nulls(column.values, width, True, column.bitmap, 0, rows)
    return True


cdef bint _pick_column_bits(
    FlatColumn* column, TreeNode* root, int64_t slots, int64_t count, const Picks* held,
    Py_ssize_t rows, TreeReader* reader,
) noexcept nogil:
    cdef uint8_t* packed
    cdef uint8_t* chosen
    cdef Py_ssize_t i
    cdef int64_t slot
    cdef bint fine
    if (slots + 63) // 64 * 8 > reader.output_bytes_max:
        return False
    packed = <uint8_t*>calloc((count + 63) // 64 * 8 + 8, 1)
    chosen = <uint8_t*>calloc((rows + 63) // 64 * 8 + 8, 1)
    fine = packed is not NULL and chosen is not NULL and _decode_bits(root, count, packed)
    if fine:
        for i in range(held.count):
            slot = held.slots[i]
            chosen[i >> 3] |= (packed[slot >> 3] >> (slot & 7) & 1) << (i & 7)
    free(packed)
    if fine and held.count < rows:
        column.values = <uint8_t*>calloc((rows + 63) // 64 * 8 + 8, 1)
        fine = column.values is not NULL
        if fine:
            _restore_nulls_bits(chosen, column.bitmap, 0, rows, column.values, 0)
        free(chosen)
        return fine
    column.values = chosen
    return fine


cdef bint _pick_column_strings(
    FlatColumn* column, TreeNode* root, int64_t slots, int64_t count, const Picks* held,
    Py_ssize_t rows, TreeReader* reader, PickedStrings* strings,
) noexcept nogil:
    """Offsets as wide as Arrow wants them, and bytes."""
    cdef PickDictionary none
    cdef int64_t* offsets
    cdef Py_ssize_t i
    if 8 * (slots + 1) > reader.output_bytes_max:
        return False
    offsets = <int64_t*>malloc(8 * (rows + 1))
    column.values = <uint8_t*>offsets
    if offsets is NULL:
        return False
    memset(&none, 0, sizeof(none))
    strings.out, strings.size, strings.room = NULL, 0, 0
    offsets[rows - held.count] = 0
    if held.count and not _pick_strings(
        root, count, held.slots, held.count, &none, reader, strings,
        offsets + (rows - held.count) + 1,
    ):
        free(strings.out)
        strings.out = NULL
        return False
    column.bytes, column.bytes_size = strings.out, strings.size
    strings.out = NULL
    if column.bytes is NULL:
        column.bytes = <uint8_t*>malloc(8)  # Arrow wants memory for no bytes too
    if column.bytes is NULL or column.bytes_size > <int64_t>0x7FFFFFFF and column.width == 4:
        return False
    if held.count < rows:
        # A null slot is empty: it ends where the one before it ends.
        offsets[0] = 0
        _restore_nulls(<uint8_t*>(offsets + 1), 8, True, column.bitmap, 0, rows)
    if column.width == 4:
        for i in range(rows + 1):
            (<int32_t*>offsets)[i] = <int32_t>offsets[i]
    return True


cdef extern from *:
    """
    #ifndef ARROW_C_DATA_INTERFACE
    #define ARROW_C_DATA_INTERFACE
    struct ArrowArray {
      int64_t length;
      int64_t null_count;
      int64_t offset;
      int64_t n_buffers;
      int64_t n_children;
      const void** buffers;
      struct ArrowArray** children;
      struct ArrowArray* dictionary;
      void (*release)(struct ArrowArray*);
      void* private_data;
    };
    #endif
    """
    cdef struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void** buffers
        ArrowArray** children
        ArrowArray* dictionary
        void (*release)(ArrowArray*) noexcept nogil
        void* private_data


cdef struct ArrowColumn:
    # A column of a record batch, with the places of its buffers: bitmap, values, bytes.
    ArrowArray array
    const void* buffers[3]


cdef void _release_column(ArrowArray* array) noexcept nogil:
    cdef int64_t i
    for i in range(array.n_buffers):
        free(<void*>array.buffers[i])
    array.release = NULL


cdef void _release_batch(ArrowArray* array) noexcept nogil:
    cdef int64_t i
    for i in range(array.n_children):
        if array.children[i].release is not NULL:
            array.children[i].release(array.children[i])
    free(array.children)
    free(array.private_data)
    array.release = NULL


cdef class ArrowBatch:
    """Columns in Arrow's C data interface, until somebody imports them."""

    cdef ArrowArray array
    cdef const void* none[1]

    def __dealloc__(self):
        if self.array.release is not NULL:
            self.array.release(&self.array)

    @property
    def address(self):
        """Where the struct lies that an importer takes over."""
        return <uintptr_t>&self.array

    @property
    def columns(self):
        """How many there are."""
        return self.array.n_children

    cdef int reserve(self, int64_t columns, int64_t rows) except -1:
        self.array.children = <ArrowArray**>calloc(columns + 1, sizeof(ArrowArray*))
        self.array.private_data = calloc(columns + 1, sizeof(ArrowColumn))
        self.array.release = _release_batch
        self.array.length, self.array.n_buffers = rows, 1
        self.array.buffers = &self.none[0]
        if self.array.children is NULL or self.array.private_data is NULL:
            raise MemoryError(f"no memory for {columns} columns")
        return 0

    cdef void take(self, FlatColumn* column, int64_t rows) noexcept:
        """Take over the memory of a column, as the next one."""
        cdef ArrowColumn* to = <ArrowColumn*>self.array.private_data + self.array.n_children
        if column.letter == c's' and column.bytes is NULL:
            column.bytes = <uint8_t*>malloc(8)  # Arrow wants memory for no bytes too
        to.array.length, to.array.null_count = rows, column.nulls
        to.array.n_buffers = 3 if column.letter == c's' else 2
        to.array.buffers, to.array.release = &to.buffers[0], _release_column
        to.buffers[0], to.buffers[1], to.buffers[2] = column.bitmap, column.values, column.bytes
        column.bitmap = column.values = column.bytes = NULL
        self.array.children[self.array.n_children] = &to.array
        self.array.n_children += 1


def join_flat(list parts, uint8_t[::1] values, uint8_t[::1] bits):
    """Copy the numbers of columns one behind the other; False where one was not decoded."""
    cdef DecodedColumns part
    cdef FlatColumn* column
    cdef int64_t columns = 0, at = 0, slot = 0, size
    cdef Py_ssize_t i
    for part in parts:
        for i in range(part.count):
            column = &part.columns[i]
            if not column.fine or column.values is NULL or column.letter in (c's', c'b'):
                return False
            at += part.rows * column.width
            slot += part.rows
    _same_length(values.shape[0], at, "values")
    _same_length(bits.shape[0], (slot + 7) >> 3, "bits")
    at = slot = 0
    for part in parts:
        for i in range(part.count):
            column = &part.columns[i]
            size = part.rows * column.width
            if size:
                memcpy(&values[at], column.values, size)
                _set_bits(&bits[0], slot, column.bitmap, part.rows)
            at += size
            slot += part.rows
    return True


cdef void _set_bits(
    uint8_t* out, int64_t start, const uint8_t* bits, int64_t count
) noexcept nogil:
    """Bits from a place on; no bitmap: all of them are set."""
    cdef uint64_t ones = ~<uint64_t>0
    cdef int64_t done = 0, some
    if bits is not NULL:
        _copy_bits(bits, 0, out, start, count)
        return
    while done < count:
        some = min(<int64_t>64, count - done)
        _copy_bits(<const uint8_t*>&ones, 0, out, start + done, some)
        done += some


def arrow_batch(list parts):
    """The columns that were found in parts, of equal rows, as one batch, which takes them over."""
    cdef DecodedColumns part
    cdef ArrowBatch batch = ArrowBatch.__new__(ArrowBatch)
    cdef int64_t columns = 0, rows = -1
    cdef Py_ssize_t i
    for part in parts:
        columns += part.count
        if rows < 0:
            rows = part.rows
        _same_length(part.rows, rows, "rows of a part")
    batch.reserve(columns, max(rows, 0))
    for part in parts:
        for i in range(part.count):
            if part.columns[i].fine and part.columns[i].values is not NULL:
                batch.take(&part.columns[i], rows)
    return batch
