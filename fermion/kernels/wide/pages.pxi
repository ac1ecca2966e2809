# Pages as the kernels over columns and over streams get them: their bytes, how they are checked,
# and what their values are.

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


cdef enum:
    # Short strings are copied as so many bytes, where that many may be read and written.
    SHORT_BYTES = 32
    PADDED_BYTES_MAX = 65536


cdef struct Page:
    const uint8_t* start
    int64_t size
    int64_t slots  # that it must hold
    uint32_t place  # in the file, as `_place` has it


cdef struct PickDictionary:
    int64_t entries
    bint is_short  # no string is longer than SHORT_BYTES, of which so many may be read
    const uint8_t* values  # numbers, or the bytes of strings
    int64_t size
    const int64_t* offsets  # of strings


cdef struct ValueForm:
    char letter  # NumPy's kind; s for strings
    int64_t width  # of a value
    PickDictionary dictionary


cdef class PageForm:
    """What values of some pages are, and what their DICTIONARY nodes refer to, checked."""

    cdef Buffers views
    cdef const int64_t[::1] ends
    cdef uint8_t* padded
    cdef ValueForm form

    def __cinit__(self, char letter, int64_t width, dictionary, offsets):
        cdef PickDictionary* entries = &self.form.dictionary
        self.form.letter, self.form.width = letter, width
        self.views, self.ends = Buffers([dictionary]), _input(offsets)
        entries.values = <const uint8_t*>self.views.views[0].buf
        entries.size = self.views.views[0].len
        entries.entries, entries.offsets, entries.is_short = 0, NULL, False
        if self.ends.shape[0]:
            _check_offsets(self.ends, entries.size)
            entries.offsets, entries.entries = &self.ends[0], self.ends.shape[0] - 1
            self._pad()
        elif letter != c's' and width > 0:
            entries.entries = entries.size // width

    def __dealloc__(self):
        free(self.padded)

    cdef int _pad(self) except -1:
        """Make short strings of a small dictionary such that more can be read behind them."""
        cdef PickDictionary* entries = &self.form.dictionary
        cdef Py_ssize_t i
        cdef int64_t longest = 0
        if entries.size > PADDED_BYTES_MAX:
            return 0
        for i in range(entries.entries):
            longest = max(longest, self.ends[i + 1] - self.ends[i])
        if longest > SHORT_BYTES:
            return 0
        self.padded = <uint8_t*>calloc(entries.size + SHORT_BYTES, 1)
        if self.padded is NULL:
            raise MemoryError(f"no memory for {entries.size} bytes of a dictionary")
        memcpy(self.padded, entries.values, entries.size)
        entries.values, entries.is_short = self.padded, True
        return 0


cdef class PageReader:
    """How pages are checked, and what decodes what is not known here."""

    cdef object decode
    cdef object unzip
    cdef bint verify
    cdef uint64_t place_key

    def __cinit__(self, decode, unzip, bint verify, uint64_t place_key):
        self.decode, self.unzip = decode, unzip
        self.verify, self.place_key = verify, place_key

    cdef TreeReader start(self, list raised) noexcept:
        """For one call; what Python raises while it runs is put into a list."""
        cdef TreeReader reader
        reader.decode, reader.unzip = <void*>self.decode, <void*>self.unzip
        reader.raised, reader.output_bytes_max = <void*>raised, 0
        return reader


cdef int _raise_interrupt(list raised) except -1:
    """Raise what is no error about the file, as an interrupt is."""
    for error in raised:
        if not isinstance(error, Exception):
            # Frames of the traceback may hold views of memory that is gone.
            raise error.with_traceback(None)
    return 0


cdef class PageList:
    """Pages of one stream, in their order."""

    cdef Buffers views
    cdef const int64_t[::1] counts
    cdef const int64_t[::1] offsets
    cdef Py_ssize_t count
    cdef int64_t slots  # of all pages

    def __cinit__(self, list pages, const int64_t[::1] counts, const int64_t[::1] offsets):
        cdef Py_ssize_t i
        self.views, self.count = Buffers(pages), len(pages)
        self.counts, self.offsets, self.slots = counts, offsets, 0
        _same_length(offsets.shape[0], self.count, "page_offsets")
        _same_length(counts.shape[0], self.count, "counts")
        for i in range(self.count):
            if not 0 <= counts[i] <= <int64_t>0xFFFFFFFF:
                raise ValueError(f"page {i} of {counts[i]} slots")
            self.slots += counts[i]

    cdef Page at(self, Py_ssize_t i, uint64_t place_key) noexcept nogil:
        """One of them, of a file with a key."""
        cdef Page page
        page.start, page.size = <const uint8_t*>self.views.views[i].buf, self.views.views[i].len
        page.slots, page.place = self.counts[i], _place(place_key, self.offsets[i])
        return page


cdef bint _is_sound(const Page* page) noexcept nogil:
    """Whether a page with a whole header has the checksum that it says, at its place."""
    cdef uint32_t crc
    memcpy(&crc, page.start + 12, 4)
    return crc ^ page.place == crc32c_update(
        crc32c_update(0, page.start, 12, 0), page.start + COLUMN_PAGE_HEADER,
        page.size - COLUMN_PAGE_HEADER, 0,
    )


cdef bint _open_page(
    const Page* page, bint verify, TreeReader* reader, TreeNode* root, uint8_t** unzipped
) noexcept nogil:
    """Verify a page and find its tree; ``unzipped`` is memory to be freed."""
    cdef uint16_t encoding
    cdef uint32_t stored_slots, raw_length
    cdef const uint8_t* start = page.start
    cdef const uint8_t* tree
    cdef int64_t size = page.size
    if size < COLUMN_PAGE_HEADER or (verify and not _is_sound(page)):
        return False
    memcpy(&encoding, start + 2, 2)
    memcpy(&stored_slots, start + 4, 4)
    memcpy(&raw_length, start + 8, 4)
    if start[0] != COLUMN_PAGE_VERSION or stored_slots != page.slots:
        return False
    reader.output_bytes_max = max(COLUMN_EXPANSION_FREE_BYTES, COLUMN_EXPANSION_MAX * size)
    if start[1] == TREE_CODEC_NONE:
        tree = start + COLUMN_PAGE_HEADER
        if raw_length > size - COLUMN_PAGE_HEADER:
            return False
    elif start[1] == TREE_CODEC_ZSTD and raw_length <= reader.output_bytes_max:
        unzipped[0] = <uint8_t*>malloc(<int64_t>raw_length + 8)
        if unzipped[0] is NULL or not _unzip(
            reader, start + COLUMN_PAGE_HEADER, size - COLUMN_PAGE_HEADER, unzipped[0], raw_length
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
