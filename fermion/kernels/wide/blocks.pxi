# CMBs of flat columns, parsed many at once; see columns.pxi.

from fermion.layout import CMB_HEADER as _CMB_HEADER
from fermion.layout import CMB_TRAILER as _CMB_TRAILER
from fermion.layout import FULL_CHUNK_DESC as _FULL_CHUNK_DESC
from fermion.layout import HEAD as _HEAD
from fermion.layout import SIMPLE_CHUNK_DESC as _SIMPLE_CHUNK_DESC
from fermion.layout import STREAM_META as _STREAM_META
from fermion.layout import DescType as _DescType
from fermion.layout import StreamType as _StreamType
from fermion.layout import ALL_NULL_LENGTH as _ALL_NULL_LENGTH
from fermion.layout import ChunkFlag as _ChunkFlag

cdef int COLUMN_DEFAULT = _DescType.USE_DEFAULT, COLUMN_SIMPLE = _DescType.SIMPLE
cdef int COLUMN_FULL = _DescType.FULL, COLUMN_FORCE_NULL = _DescType.FORCE_NULL
cdef int COLUMN_VALIDITY = _StreamType.VALIDITY, COLUMN_DATA = _StreamType.DATA
cdef uint32_t COLUMN_ALL_NULL = _ALL_NULL_LENGTH
cdef uint32_t COLUMN_OTHER_FLAGS = _ChunkFlag.FIRST_PAGE_IS_DICT | _ChunkFlag.USES_GLOBAL_DICT


cdef int64_t COLUMN_HEAD_BYTES = _HEAD.itemsize  # of the file: no chunk lies there
cdef int64_t COLUMN_CMB_FRAME = _CMB_HEADER.itemsize  # also of the trailer
cdef int64_t COLUMN_FULL_BYTES = _FULL_CHUNK_DESC.itemsize
cdef int64_t COLUMN_SIMPLE_BYTES = _SIMPLE_CHUNK_DESC.itemsize
cdef int64_t COLUMN_STREAM_BYTES = _STREAM_META.itemsize
assert COLUMN_CMB_FRAME == _CMB_TRAILER.itemsize


cdef struct BlockFormat:
    # What the footer says of every CMB.
    int64_t stripes
    int64_t stripe
    int64_t stripe_bytes
    int64_t stream_bytes
    int64_t simple_bytes
    int64_t full_bytes
    int64_t chunk_stop


cdef bint _read_descriptor(
    const uint8_t* block, int64_t end, int64_t at, int stream_type, BlockFormat* form,
    int64_t* chunk,
) noexcept nogil:
    """Offset and length of a stream's chunk, checked; False for what is not a single page."""
    cdef uint64_t offset
    cdef uint32_t length, flags, pages, position
    cdef int kind = block[at]
    memcpy(&position, block + at + 4, 4)
    if block[at + 1] != stream_type:
        return False
    chunk[0] = chunk[1] = 0
    if kind == COLUMN_DEFAULT:
        return position == 0
    if kind == COLUMN_FORCE_NULL:
        chunk[1] = COLUMN_ALL_NULL
        return position == 0 and stream_type == COLUMN_VALIDITY
    if kind == COLUMN_SIMPLE:
        at = position + form.stripe * form.simple_bytes
        if not position or position & 7 or at + form.simple_bytes > end:
            return False
        pages = 1
        memcpy(&flags, block + at + 12, 4)
    elif kind == COLUMN_FULL:
        at = position + form.stripe * form.full_bytes
        if not position or position & 7 or at + form.full_bytes > end:
            return False
        memcpy(&flags, block + at + 12, 4)
        memcpy(&pages, block + at + 36, 4)
    else:
        return False
    memcpy(&offset, block + at, 8)
    memcpy(&length, block + at + 8, 4)
    if length == 0 or length == COLUMN_ALL_NULL:
        chunk[1] = length
        return length == 0 or stream_type == COLUMN_VALIDITY
    chunk[0], chunk[1] = <int64_t>offset, length
    return (
        pages == 1
        and not flags & COLUMN_OTHER_FLAGS
        and offset >= COLUMN_HEAD_BYTES
        and offset <= <uint64_t>form.chunk_stop
        and <int64_t>length <= form.chunk_stop - <int64_t>offset
    )


cdef bint _read_cmb(
    const uint8_t* block, int64_t size, uint32_t place, const int64_t* stripe_rows,
    BlockFormat* form, int64_t* chunks,
) noexcept nogil:
    """The chunks of a flat column: validity offset, length, data offset, length."""
    cdef uint32_t streams, stripes, crc, length, rows
    cdef int64_t i, end = size - COLUMN_CMB_FRAME, directory
    if size < 2 * COLUMN_CMB_FRAME or form.stripe >= form.stripes:
        return False
    memcpy(&crc, block + end, 4)
    memcpy(&length, block + end + 4, 4)
    memcpy(&streams, block, 4)
    memcpy(&stripes, block + 4, 4)
    if length != size or streams != 2 or stripes != form.stripes:
        return False
    if crc32c_update(0, block, end, 0) != crc ^ place:
        return False
    directory = (COLUMN_CMB_FRAME + form.stripe_bytes * form.stripes + 7) & ~<int64_t>7
    if directory + 2 * form.stream_bytes > end:
        return False
    for i in range(form.stripes):
        memcpy(&rows, block + COLUMN_CMB_FRAME + i * form.stripe_bytes, 4)
        if rows != stripe_rows[i]:
            return False
    return _read_descriptor(
        block, end, directory, COLUMN_VALIDITY, form, chunks
    ) and _read_descriptor(
        block, end, directory + form.stream_bytes, COLUMN_DATA, form, chunks + 2
    )


cdef class Buffers:
    """Views of some buffers, and the bytes at places in them."""

    cdef Py_buffer* views
    cdef Py_ssize_t count

    def __cinit__(self, list buffers):
        self.views = <Py_buffer*>calloc(len(buffers) + 1, sizeof(Py_buffer))
        if self.views is NULL:
            raise MemoryError(f"no memory for views of {len(buffers)} buffers")
        for buffer in buffers:
            PyObject_GetBuffer(buffer, &self.views[self.count], PyBUF_SIMPLE)
            self.count += 1

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            PyBuffer_Release(&self.views[i])
        free(self.views)

    cdef int check(self, const int64_t[:, ::1] places) except -1:
        """Places (buffer, first byte, length) lie within the buffers."""
        cdef Py_ssize_t i
        if places.shape[1] != 3:
            raise ValueError(f"places have {places.shape[1]} columns, expected 3")
        for i in range(places.shape[0]):
            if (
                not 0 <= places[i, 0] < self.count
                or places[i, 1] < 0
                or places[i, 2] < 0
                or places[i, 1] > self.views[places[i, 0]].len
                or places[i, 2] > self.views[places[i, 0]].len - places[i, 1]
            ):
                raise ValueError(f"place {i} is outside of {self.count} buffers")
        return 0

    cdef const uint8_t* at(self, const int64_t[:, ::1] places, Py_ssize_t i) noexcept:
        return <const uint8_t*>self.views[places[i, 0]].buf + places[i, 1]


def flat_chunks(
    list buffers, const int64_t[:, ::1] places, const int64_t[::1] stripe_rows, int64_t stripe,
    int64_t chunk_stop, sizes, offsets=None, uint64_t place_key=0,
):
    """Chunks of flat columns in a stripe, from their CMBs."""
    cdef BlockFormat form
    cdef Py_ssize_t i
    cdef Buffers views = Buffers(buffers)
    found = np.empty((places.shape[0], 4), np.int64)
    cdef int64_t[:, ::1] chunks = found
    cdef int64_t nothing = 0
    cdef const int64_t[::1] found_at = (
        np.zeros(places.shape[0], np.int64) if offsets is None else offsets
    )
    cdef const int64_t* rows = &stripe_rows[0] if stripe_rows.shape[0] else &nothing
    form.stripes, form.stripe, form.chunk_stop = stripe_rows.shape[0], stripe, chunk_stop
    form.stripe_bytes, form.stream_bytes, form.simple_bytes, form.full_bytes = sizes[:4]
    views.check(places)
    _same_length(found_at.shape[0], places.shape[0], "offsets")
    if (
        stripe < 0
        or form.stripe_bytes < 4
        or form.stream_bytes < COLUMN_STREAM_BYTES
        or form.simple_bytes < COLUMN_SIMPLE_BYTES
        or form.full_bytes < COLUMN_FULL_BYTES
    ):
        raise ValueError(f"stripe {stripe} and records of {sizes[:4]} bytes cannot be")
    for i in range(places.shape[0]):
        if not _read_cmb(
            views.at(places, i), places[i, 2], _place(place_key, found_at[i]), rows, &form,
            &chunks[i, 0],
        ):
            chunks[i, 0] = chunks[i, 1] = chunks[i, 2] = chunks[i, 3] = -1
    return found
