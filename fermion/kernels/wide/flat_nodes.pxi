# Pages of flat columns while they are written: memory, nodes and frames; see flat_pages.pxi.

from libc.string cimport memmove

cdef int FLAT_ALP = _EncodingId.ALP
cdef uint32_t FLAT_BOUNDS = _ChunkFlag.HAS_MINMAX | _ChunkFlag.NAN_KNOWN
cdef uint32_t FLAT_HAS_NAN = _ChunkFlag.HAS_NAN
cdef uint32_t FLAT_DENSE = _ChunkFlag.DENSE_NO_NULL_SLOTS
cdef uint32_t FLAT_MIN_EXACT = _ChunkFlag.MIN_EXACT, FLAT_MAX_EXACT = _ChunkFlag.MAX_EXACT


cdef enum:
    FLAT_SEEN_BYTES = 8192
    FLAT_LINEAR_BINS = 256
    FLAT_LOG_BINS = 496
    # Bytes that pcodec needs beside what entropy says: for tables, and for floats' powers of ten.
    FLAT_TABLES_BYTES = 96
    FLAT_FLOATS_BYTES = 256
    FLAT_FIELDS = 8
    # Of decimals that need more bits each, all encodings are tried.
    FLAT_DECIMAL_BITS = 24
    # A table of Huffman codes of all 256 bytes.
    FLAT_CODES_BYTES = 128


cdef struct FlatRule:
    # As `encodings.choice.policy.Rule`; chunks are small here, and tried as a whole.
    int64_t encoding
    double ratio  # taken where it needs at most this part of what decodes faster; 0: not tried
    int64_t bytes_min  # values of fewer bytes are left as they are
    double saving
    int64_t bits_min
    double beside


cdef struct FlatPolicy:
    # As `encodings.choice.policy` has rules and limits, and what `fermion.writing.flat` adds.
    FlatRule delta
    FlatRule entropy
    FlatRule codec
    FlatRule dictionary
    FlatRule symbols
    FlatRule strings_codec
    int64_t search_bytes_min
    int64_t run_slots_min
    int64_t entry_slots_min
    int64_t sample_values
    double sample_part_min
    int64_t split_slots_min
    int64_t codec_bytes_min
    int64_t page_bytes_min
    double page_ratio
    double nulls_share_min  # null slots are left out where there are more
    int64_t chunk_bytes_max  # of longer chunks of strings there is more to be said
    int64_t strings_bytes_max  # of as many bytes, strings that are mostly different are left


cdef struct FlatRules:
    FlatPolicy policy
    # ``zip(data)`` gives a zstd frame, ``entropy(data, letter, width)`` what pcodec makes of numbers
    # (no bytes where it cannot); what they raise is put into the list ``raised``.
    void* zip
    void* entropy
    void* raised


cdef struct FlatForm:
    int64_t place  # of the column in its batch
    int64_t letter
    int64_t width
    int64_t nullable
    int64_t page_bytes  # a column of more bytes is left


cdef struct FlatSource:
    const uint8_t* validity
    const uint8_t* values
    const uint8_t* text
    int64_t first
    char letter
    int64_t width
    bint nullable
    int64_t page_bytes


cdef struct FlatResult:
    int64_t validity_bytes
    int64_t data_bytes
    int64_t minimum
    int64_t maximum
    int64_t nulls
    int64_t flags
    int64_t nans
    int64_t offset  # of the first page


cdef struct FlatWork:
    # Memory of one call, each array of as many items as there are slots, and a few more.
    int64_t slots
    int64_t count  # values: fewer than slots where null ones are left out
    int64_t* wide
    int64_t* other
    int64_t* first
    int64_t* offsets
    int64_t* entries  # 8 bytes a slot, of any width
    uint32_t* codes
    uint32_t* exceptions
    int64_t others  # how many exceptions the last floats had
    uint8_t* copy  # 8 bytes a slot
    uint8_t* bits
    uint8_t* seen
    uint8_t* out
    int64_t size
    int64_t room


cdef inline int64_t _flat_plain_size(int64_t bytes) noexcept nogil:
    """Bytes of the node of values as they are, as `choose.plain_size` has it."""
    return TREE_NODE_HEADER + ((bytes + 7) & ~<int64_t>7)


cdef inline bint _flat_is_tried(const FlatRule* rule, int64_t bytes) noexcept nogil:
    return rule.ratio > 0 and bytes >= rule.bytes_min


cdef uint8_t* _flat_page(FlatWork* work, int64_t tree_bytes_max) noexcept nogil:
    """Where the next page goes, with room for its tree; NULL when out of memory."""
    cdef int64_t needed = work.size + COLUMN_PAGE_HEADER + tree_bytes_max, room
    cdef uint8_t* larger
    if needed > work.room:
        room = max(needed, 2 * work.room)
        larger = <uint8_t*>realloc(work.out, room)
        if larger is NULL:
            return NULL
        work.out, work.room = larger, room
    return work.out + work.size


cdef int64_t _flat_seal(FlatWork* work, const uint8_t* stop) noexcept nogil:
    """Put the header of a page whose tree ends at ``stop``, a multiple of 8; its bytes."""
    cdef uint8_t* tree = work.out + work.size + COLUMN_PAGE_HEADER
    return _flat_seal_as(work, stop, TREE_CODEC_NONE, tree[0] | tree[1] << 8, stop - tree)


cdef int64_t _flat_seal_as(
    FlatWork* work, const uint8_t* stop, int codec, int encoding, int64_t raw_length
) noexcept nogil:
    """As `_flat_seal`, for a tree of ``raw_length`` bytes that went through a codec."""
    cdef uint8_t* page = work.out + work.size
    cdef int64_t size = stop - page
    cdef uint16_t number = encoding
    cdef uint32_t slots = <uint32_t>work.slots, raw = <uint32_t>raw_length, crc
    page[0] = COLUMN_PAGE_VERSION
    page[1] = codec
    memcpy(page + 2, &number, 2)
    memcpy(page + 4, &slots, 4)
    memcpy(page + 8, &raw, 4)
    crc = crc32c_update(
        crc32c_update(0, page, 12, 0), page + COLUMN_PAGE_HEADER, size - COLUMN_PAGE_HEADER, 0
    )
    memcpy(page + 12, &crc, 4)
    work.size += size
    return size


cdef uint8_t* _flat_node(
    uint8_t* at, int encoding, int children, const FlatWork* root
) noexcept nogil:
    """The header of a node, whose length `_flat_close` fills in; where its parameters go.

    ``root`` is NULL but for a page's root, which says so where it lacks null slots.
    """
    cdef uint16_t number = encoding
    cdef uint32_t count
    memset(at, 0, TREE_NODE_HEADER + 8)
    memcpy(at, &number, 2)
    at[2] = children
    if root is NULL or root.count == root.slots:
        return at + TREE_NODE_HEADER
    at[3] = COLUMN_NULLS_REMOVED
    count = <uint32_t>root.count
    memcpy(at + TREE_NODE_HEADER, &count, 4)
    return at + TREE_NODE_HEADER + 8


cdef uint8_t* _flat_pad(const uint8_t* node, uint8_t* stop) noexcept nogil:
    while (stop - node) & 7:
        stop[0] = 0
        stop += 1
    return stop


cdef uint8_t* _flat_close(uint8_t* node, uint8_t* stop) noexcept nogil:
    """Fill in the length of the node at ``node`` that ends at ``stop``; the end, padded."""
    cdef uint32_t length
    stop = _flat_pad(node, stop)
    length = <uint32_t>(stop - node - TREE_NODE_HEADER)
    memcpy(node + 4, &length, 4)
    return stop


cdef uint8_t* _flat_packed(
    uint8_t* node, const void* values, int64_t count, int64_t width, bint signed,
    const FlatWork* root,
) noexcept nogil:
    """A node of frames of reference; its end."""
    cdef uint8_t* at = _flat_node(node, TREE_FOR_BITPACK, 0, root)
    if width == 1:
        at += _bitpack_encode(<const uint8_t*>values, count, signed, at)
    elif width == 2:
        at += _bitpack_encode(<const uint16_t*>values, count, signed, at)
    elif width == 4:
        at += _bitpack_encode(<const uint32_t*>values, count, signed, at)
    else:
        at += _bitpack_encode(<const uint64_t*>values, count, signed, at)
    return _flat_close(node, at)


cdef uint8_t* _flat_unsigned(
    uint8_t* node, const void* values, int64_t count, int64_t width
) noexcept nogil:
    """A node of unsigned numbers, as they are or as frames of reference; its end."""
    cdef uint8_t* stop = _flat_packed(node, values, count, width, False, NULL)
    if stop - node < _flat_plain_size(count * width):
        return stop
    _flat_node(node, TREE_PLAIN, 0, NULL)
    memcpy(node + TREE_NODE_HEADER, values, count * width)
    return _flat_close(node, node + TREE_NODE_HEADER + count * width)
