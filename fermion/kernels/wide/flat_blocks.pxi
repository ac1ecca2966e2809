# CMBs of flat columns, made many at once from what `encode_flat` found; the other direction of
# blocks.pxi.

from fermion.layout import STRIPE_META as _STRIPE_META
from fermion.layout import ExtTag as _ExtTag

cdef uint16_t FLAT_NAN_COUNT = _ExtTag.NAN_COUNT, FLAT_END = _ExtTag.END
cdef int64_t FLAT_STRIPE_BYTES = _STRIPE_META.itemsize


cdef enum:
    FLAT_RECORD_BYTES = 24  # of a NaN count and the end of the records


cdef struct FlatBlock:
    # How the CMB of a column is laid out.
    bint has_validity
    bint is_written
    int64_t nan_chunks
    int64_t validity_at
    int64_t data_at
    int64_t extensions_at
    int64_t size


cdef void _flat_plan_block(
    const FlatResult* first, int64_t stride, int64_t stripes, FlatBlock* block
) noexcept nogil:
    """The layout of a column's CMB; none where it was left in some stripe, or is null in all."""
    cdef const FlatResult* chunk = first
    cdef int64_t i, directory
    memset(block, 0, sizeof(FlatBlock))
    for i in range(stripes):
        if chunk.validity_bytes == 0 and chunk.data_bytes == 0:
            block.is_written = False
            return
        block.is_written |= chunk.data_bytes != 0
        block.has_validity |= chunk.validity_bytes != 0
        block.nan_chunks += chunk.nans != 0
        chunk += stride
    directory = (COLUMN_CMB_FRAME + FLAT_STRIPE_BYTES * stripes + 7) & ~<int64_t>7
    block.validity_at = directory + 2 * COLUMN_STREAM_BYTES
    block.data_at = block.validity_at
    if block.has_validity:
        block.data_at += COLUMN_SIMPLE_BYTES * stripes
    block.extensions_at = block.data_at + COLUMN_FULL_BYTES * stripes
    block.size = block.extensions_at + FLAT_RECORD_BYTES * block.nan_chunks + COLUMN_CMB_FRAME


cdef inline uint8_t* _flat_put(uint8_t* at, uint64_t value, int size) noexcept nogil:
    memcpy(at, &value, size)
    return at + size


cdef void _flat_write_block(
    const FlatResult* first, int64_t stride, const int64_t* stripe_rows, int64_t stripes,
    const FlatBlock* block, uint8_t* out
) noexcept nogil:
    """A column's CMB, whose bytes are zero so far, and whose checksum is bound to no place."""
    cdef const FlatResult* chunk = first
    cdef uint8_t* at = _flat_put(_flat_put(out, 2, 4), stripes, 4)
    cdef uint8_t* extension = out + block.extensions_at
    cdef int64_t i, validity
    for i in range(stripes):
        memcpy(at + FLAT_STRIPE_BYTES * i, &stripe_rows[i], 4)
    at = out + block.validity_at - 2 * COLUMN_STREAM_BYTES
    at[0], at[1] = COLUMN_SIMPLE if block.has_validity else COLUMN_DEFAULT, COLUMN_VALIDITY
    _flat_put(at + 4, block.validity_at if block.has_validity else 0, 4)
    at += COLUMN_STREAM_BYTES
    at[0], at[1] = COLUMN_FULL, COLUMN_DATA
    _flat_put(at + 4, block.data_at, 4)
    for i in range(stripes):
        validity = chunk.validity_bytes if chunk.data_bytes else 0
        if block.has_validity:
            at = out + block.validity_at + COLUMN_SIMPLE_BYTES * i
            at = _flat_put(at, chunk.offset if validity else 0, 8)
            _flat_put(at, chunk.validity_bytes, 4)
        at = out + block.data_at + COLUMN_FULL_BYTES * i
        at = _flat_put(at, chunk.offset + validity if chunk.data_bytes else 0, 8)
        at = _flat_put(at, chunk.data_bytes, 4)
        at = _flat_put(at, chunk.flags if chunk.data_bytes else 0, 4)
        at = _flat_put(at, chunk.minimum, 8)
        at = _flat_put(at, chunk.maximum, 8)
        at = _flat_put(at, chunk.nulls if chunk.data_bytes else 0, 4)
        at = _flat_put(at, chunk.data_bytes != 0, 4)
        if chunk.nans:
            _flat_put(at + 4, extension - out, 4)
            _flat_put(_flat_put(extension, FLAT_NAN_COUNT, 4), 8, 4)
            _flat_put(extension + 8, chunk.nans, 8)
            _flat_put(extension + 16, FLAT_END, 2)
            extension += FLAT_RECORD_BYTES
        chunk += stride
    at = out + block.size - COLUMN_CMB_FRAME
    _flat_put(_flat_put(at, crc32c_update(0, out, at - out, 0), 4), block.size, 4)


def build_flat_blocks(const int64_t[:, :, ::1] chunks, const int64_t[::1] stripe_rows):
    """CMBs of flat columns, end to end, and their lengths."""
    cdef Py_ssize_t stripes = chunks.shape[0], columns = chunks.shape[1], i
    cdef int64_t total = 0
    cdef FlatBlock* blocks
    cdef const FlatResult* first
    cdef uint8_t* out
    _same_length(stripe_rows.shape[0], stripes, "stripe_rows")
    _same_length(chunks.shape[2], FLAT_FIELDS, "fields of a chunk")
    lengths_array = np.zeros(columns, np.int64)
    cdef int64_t[::1] lengths = lengths_array
    if not stripes or not columns:
        return bytearray(), lengths_array
    first = <const FlatResult*>&chunks[0, 0, 0]
    blocks = <FlatBlock*>calloc(columns, sizeof(FlatBlock))
    if blocks is NULL:
        raise MemoryError(f"no memory for {columns} columns")
    try:
        with nogil:
            for i in range(columns):
                _flat_plan_block(first + i, columns, stripes, &blocks[i])
                lengths[i] = blocks[i].size if blocks[i].is_written else 0
                total += lengths[i]
        area = bytearray(total)
        out = <uint8_t*>PyByteArray_AS_STRING(area)
        with nogil:
            for i in range(columns):
                if lengths[i]:
                    _flat_write_block(
                        first + i, columns, &stripe_rows[0], stripes, &blocks[i], out
                    )
                    out += lengths[i]
    finally:
        free(blocks)
    return area, lengths_array
