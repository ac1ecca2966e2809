# Whole encoding trees, decoded without a Python object a node.
#
# `fermion.encodings` says how every node lies and how it is read slot by slot; these are shortcuts
# for whole trees of small pages. What they do not know (an encoding, a codec) is asked of Python
# where that fits, and everything that is not exactly as expected is left to the general way, which
# either reads it or knows the words for what is wrong.

from cython cimport floating
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE

from fermion.layout import ALP_EXPONENT_MAX as _ALP_EXPONENT_MAX
from fermion.layout import NODE_DEPTH_MAX as _NODE_DEPTH_MAX
from fermion.layout import NODE_HEADER as _NODE_HEADER
from fermion.layout import Codec as _Codec
from fermion.layout import EncodingId as _EncodingId

cdef int TREE_DEPTH_MAX = _NODE_DEPTH_MAX
cdef int TREE_PLAIN = _EncodingId.PLAIN, TREE_CONSTANT = _EncodingId.CONSTANT
cdef int TREE_BITMAP = _EncodingId.BITMAP, TREE_FOR_BITPACK = _EncodingId.FOR_BITPACK
cdef int TREE_SPLIT_LENGTHS = _EncodingId.SPLIT_LENGTHS, TREE_NARROW = _EncodingId.NARROW
cdef int TREE_DICTIONARY_LOCAL = _EncodingId.DICTIONARY_LOCAL
cdef int TREE_BYTE_STREAM_SPLIT = _EncodingId.BYTE_STREAM_SPLIT
cdef int TREE_ALP = _EncodingId.ALP
cdef int TREE_CODEC_NONE = _Codec.NONE, TREE_CODEC_ZSTD = _Codec.ZSTD


cdef int64_t TREE_NODE_HEADER = _NODE_HEADER.itemsize
cdef int TREE_EXPONENT_MAX = _ALP_EXPONENT_MAX

cdef double[16] POWERS_OF_TEN
assert TREE_EXPONENT_MAX < sizeof(POWERS_OF_TEN) // sizeof(double)
for _exponent in range(TREE_EXPONENT_MAX + 1):
    POWERS_OF_TEN[_exponent] = float(10**_exponent)


cdef struct TreeNode:
    int encoding
    int children
    int flags
    int depth
    const uint8_t* start
    const uint8_t* stop


cdef struct TreeReader:
    # ``decode(node, depth, letter, width, count, output_bytes_max, out)`` writes numbers;
    # ``unzip(frame, size)`` gives the bytes of a zstd frame, which padding may follow; what
    # they raise is put into the list ``raised``.
    void* decode
    void* unzip
    void* raised
    int64_t output_bytes_max


cdef inline bint _open_node(
    const uint8_t* at, const uint8_t* stop, int depth, TreeNode* node
) noexcept nogil:
    cdef uint16_t encoding
    cdef uint32_t length
    if depth > TREE_DEPTH_MAX or stop - at < TREE_NODE_HEADER:
        return False
    memcpy(&encoding, at, 2)
    memcpy(&length, at + 4, 4)
    node.encoding, node.children, node.flags, node.depth = encoding, at[2], at[3], depth
    node.start = at + TREE_NODE_HEADER
    if length & 7 or <int64_t>length > stop - node.start or (node.flags and depth > 1):
        return False
    node.stop = node.start + length
    return True


cdef inline bint _open_child(
    const TreeNode* parent, const uint8_t* at, TreeNode* child
) noexcept nogil:
    """A node within another one, which has no null slots left out."""
    return _open_node(at, parent.stop, parent.depth + 1, child) and child.flags == 0


cdef bint _ask_numbers(
    TreeReader* reader, TreeNode* node, char letter, int64_t width, int64_t count, uint8_t* out
) noexcept with gil:
    """Numbers of an encoding that is read in Python; False where that fails."""
    try:
        (<object>reader.decode)(
            PyMemoryView_FromMemory(
                <char*>node.start - TREE_NODE_HEADER,
                node.stop - node.start + TREE_NODE_HEADER, PyBUF_READ,
            ),
            node.depth, chr(letter), width, count, reader.output_bytes_max,
            PyMemoryView_FromMemory(<char*>out, count * width, PyBUF_WRITE),
        )
        return True
    except BaseException as error:
        (<list>reader.raised).append(error)
        return False


cdef bint _unzip(
    TreeReader* reader, const uint8_t* frame, int64_t size, uint8_t* out, int64_t out_size
) noexcept with gil:
    """The bytes of a zstd frame; False where it does not hold exactly so many."""
    cdef object raw
    try:
        raw = (<object>reader.unzip)(
            PyMemoryView_FromMemory(<char*>frame, size, PyBUF_READ), out_size
        )
        if not isinstance(raw, bytes) or len(raw) != out_size:
            return False
        memcpy(out, PyBytes_AS_STRING(raw), out_size)
        return True
    except BaseException as error:
        (<list>reader.raised).append(error)
        return False


cdef bint _decode_numbers(
    TreeReader* reader, const uint8_t* at, const uint8_t* stop, int depth,
    char letter, int64_t width, int64_t count, uint8_t* out,
) noexcept nogil:
    """All values of the node at ``at``: ``count`` of ``width`` bytes, aligned to their width."""
    cdef TreeNode node
    return (
        _open_node(at, stop, depth, &node)
        and node.flags == 0
        and _decode_node(reader, &node, letter, width, count, out)
    )


cdef bint _decode_node(
    TreeReader* reader, TreeNode* node, char letter, int64_t width, int64_t count, uint8_t* out
) noexcept nogil:
    cdef int64_t size = node.stop - node.start, i
    cdef Py_ssize_t block = 0
    if count == 0:
        return True
    if node.encoding == TREE_PLAIN:
        if size < count * width:
            return False
        memcpy(out, node.start, count * width)
        return True
    if node.encoding == TREE_CONSTANT:
        if size < width:
            return False
        for i in range(count):
            memcpy(out + i * width, node.start, width)
        return True
    if node.encoding == TREE_FOR_BITPACK:
        return (
            (letter == c'i' or letter == c'u')
            and _is_bitpacked(node.start, size, width, count)
            and _unpack_all(node.start, size, width, 0, count, count, out, &block) == BLOCK_FINE
        )
    if node.encoding == TREE_DICTIONARY_LOCAL:
        return _decode_dictionary(reader, node, letter, width, count, out)
    if node.encoding == TREE_NARROW:
        return _decode_narrow(reader, node, width, count, out)
    if node.encoding == TREE_BYTE_STREAM_SPLIT:
        return _decode_byte_streams(reader, node, width, count, out)
    if node.encoding == TREE_ALP:
        return letter == c'f' and _decode_decimals(reader, node, width, count, out)
    if node.encoding == TREE_DELTA:
        return _decode_delta(reader, node, letter, width, count, out)
    if node.encoding == TREE_RLE:
        return _decode_runs(reader, node, letter, width, count, out)
    return _ask_numbers(reader, node, letter, width, count, out)


cdef uint32_t* _decode_codes(
    TreeReader* reader, TreeNode* node, int64_t count, uint32_t* entries, const uint8_t** rest
) noexcept nogil:
    """Codes of a local dictionary, checked, to be freed; and where its entries start."""
    cdef TreeNode child
    cdef int width
    cdef uint32_t top = 0
    cdef uint32_t* codes
    cdef int64_t i
    if node.children != 2 or node.stop - node.start < 8:
        return NULL
    memcpy(entries, node.start, 4)
    width = node.start[4]
    if width not in (1, 2, 4) or entries[0] > count:
        return NULL
    if not _open_child(node, node.start + 8, &child):
        return NULL
    rest[0] = child.stop
    codes = <uint32_t*>malloc(4 * count + 8)
    if codes is NULL:
        return NULL
    if not _decode_node(reader, &child, c'u', width, count, <uint8_t*>codes):
        free(codes)
        return NULL
    _widen_codes(codes, width, count)
    for i in range(count):
        top = max(top, codes[i])
    if top >= entries[0]:
        free(codes)
        return NULL
    return codes


cdef void _widen_codes(uint32_t* codes, int width, int64_t count) noexcept nogil:
    """Codes of fewer bytes at the start of ``codes`` as such of 4, from the end on."""
    cdef int64_t i
    if width == 1:
        for i in range(count - 1, -1, -1):
            codes[i] = (<uint8_t*>codes)[i]
    elif width == 2:
        for i in range(count - 1, -1, -1):
            codes[i] = (<uint16_t*>codes)[i]


cdef bint _decode_dictionary(
    TreeReader* reader, TreeNode* node, char letter, int64_t width, int64_t count, uint8_t* out
) noexcept nogil:
    cdef uint32_t entries = 0
    cdef const uint8_t* rest = NULL
    cdef uint32_t* codes = _decode_codes(reader, node, count, &entries, &rest)
    cdef uint8_t* values
    cdef bint fine = False
    if codes is NULL:
        return False
    values = <uint8_t*>malloc(entries * width + 8)
    if values is not NULL and _decode_numbers(
        reader, rest, node.stop, node.depth + 1, letter, width, entries, values
    ):
        _gather_words(values, codes, count, out, width)
        fine = True
    free(values)
    free(codes)
    return fine


cdef bint _decode_narrow(
    TreeReader* reader, TreeNode* node, int64_t width, int64_t count, uint8_t* out
) noexcept nogil:
    """64-bit integers, block by block where they are packed; else at the start of ``out``."""
    cdef TreeNode child
    cdef uint64_t words[BLOCK_VALUES]
    cdef int64_t first, stop, size
    cdef Py_ssize_t block = 0
    if (width != 16 and width != 32) or node.children != 1:
        return False
    if not _open_child(node, node.start, &child):
        return False
    size = child.stop - child.start
    if child.encoding == TREE_FOR_BITPACK and _is_bitpacked(child.start, size, 8, count):
        first = 0
        while first < count:
            stop = min(first + BLOCK_VALUES, count)
            if _unpack_all(child.start, size, 8, first, stop, count, words, &block) != BLOCK_FINE:
                return False
            _widen_block(words, stop - first, width, out + first * width)
            first = stop
        return True
    if not _decode_numbers(reader, node.start, node.stop, node.depth + 1, c'i', 8, count, out):
        return False
    _widen_words(out, width, count)
    return True


cdef void _widen_block(
    const uint64_t* words, int64_t count, int64_t width, uint8_t* out
) noexcept nogil:
    """64-bit integers as such of 16 or 32 bytes, elsewhere."""
    cdef int64_t i
    cdef uint64_t pair[2]
    if width == 16:
        for i in range(count):
            pair[0] = words[i]
            pair[1] = <uint64_t>(<int64_t>words[i] >> 63)
            memcpy(out + 16 * i, pair, 16)
        return
    for i in range(count):
        pair[0] = pair[1] = <uint64_t>(<int64_t>words[i] >> 63)
        memcpy(out + 32 * i, &words[i], 8)
        memcpy(out + 32 * i + 8, pair, 16)
        memcpy(out + 32 * i + 24, pair, 8)


cdef void _widen_words(uint8_t* out, int64_t width, int64_t count) noexcept nogil:
    """64-bit integers at the start of ``out`` as such of more bytes, from the end on."""
    cdef int64_t i, word, value, sign
    for i in range(count - 1, -1, -1):
        memcpy(&value, out + 8 * i, 8)
        sign = value >> 63
        memcpy(out + i * width, &value, 8)
        for word in range(1, width // 8):
            memcpy(out + i * width + 8 * word, &sign, 8)


cdef bint _decode_decimals(
    TreeReader* reader, TreeNode* node, int64_t width, int64_t count, uint8_t* out
) noexcept nogil:
    """Floats from integers, which are decoded in place where they are as wide."""
    cdef int64_t size = node.stop - node.start, values, child, i, last = -1
    cdef uint32_t exceptions, slot
    cdef uint8_t* integers = out
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
        integers = <uint8_t*>malloc(8 * count)
        if integers is NULL:
            return False
    fine = _decode_numbers(
        reader, node.start + child, node.stop, node.depth + 1, c'i', 8, count, integers
    )
    if fine and width == 4:
        _divide(integers, count, POWERS_OF_TEN[node.start[0]], <float*>out)
    elif fine:
        _divide(integers, count, POWERS_OF_TEN[node.start[0]], <double*>out)
    if width == 4:
        free(integers)
    for i in range(exceptions if fine else 0):
        memcpy(&slot, node.start + 8 + 4 * i, 4)
        if slot >= count or slot <= last:
            return False
        memcpy(out + slot * width, node.start + values + i * width, width)
        last = slot
    return fine


cdef void _divide(
    const uint8_t* integers, int64_t count, double power, floating* out
) noexcept nogil:
    cdef int64_t i, whole
    cdef floating value
    for i in range(count):
        memcpy(&whole, integers + 8 * i, 8)
        value = <floating>(<double>whole / power)
        memcpy(out + i, &value, sizeof(floating))


cdef bint _decode_byte_streams(
    TreeReader* reader, TreeNode* node, int64_t width, int64_t count, uint8_t* out
) noexcept nogil:
    cdef uint32_t stored
    cdef uint8_t* planes
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
    if fine:
        _merge_bytes(planes, count, 0, count, width, out)
    free(planes)
    return fine


cdef bint _decode_bits(TreeNode* node, int64_t count, uint8_t* out) noexcept nogil:
    """All booleans of a node, packed; bits after the last are zero."""
    cdef int64_t size = (count + 7) >> 3
    if count == 0:
        return True
    if node.encoding == TREE_BITMAP:
        if node.stop - node.start < size:
            return False
        memcpy(out, node.start, size)
    elif node.encoding == TREE_CONSTANT:
        if node.stop - node.start < 1 or node.start[0] > 1:
            return False
        memset(out, 0xFF * node.start[0], size)
    else:
        return False
    if count & 7:
        out[size - 1] &= (1 << (count & 7)) - 1
    return True
