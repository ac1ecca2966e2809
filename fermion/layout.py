"""Every byte layout and persisted id of a Fermion file: shared by writer and reader.

All integers are little-endian. Never change a persisted value or a field's place: the ids and
offsets below are in files on people's disks. ``docs/format.md`` holds the same tables in prose.
"""

from __future__ import annotations

import enum

import numpy as np

MAGIC = b"FERMION1"
VERSION_MAJOR = 1
VERSION_MINOR = 1
"""Of files with none of the features that a later version has brought."""
VERSION_MINOR_POSITIONS = 2
VERSION_MINOR_MAP_KEYS = 3
VERSION_MINOR_BLOBS = 4
VERSION_MINOR_VARIANT_PATHS = 5
VERSION_MINOR_VARIANT_RANKS = 6

ALIGNMENT = 8
PAGE_ALIGNMENT = 64
# Where an aligned page starts, modulo PAGE_ALIGNMENT: its values, behind page header (16 bytes) and
# node header (8), are then aligned.
ALIGNED_PAGE_START = 40
TAIL_BLOCK_BYTES = 64 * 1024
CHUNK_LENGTH_MAX = 0xFFFF_FFFE
ALL_NULL_LENGTH = 0xFFFF_FFFF
CHUNK_SLOTS_MAX = 2**31 - 1
COLUMNS_MAX = 2**31 - 1
STRIPES_MAX = 2**31 - 1
CMB_LENGTH_MAX = 0xFFFF_FFFF
SCHEMA_DEPTH_MAX = 64
NODE_DEPTH_MAX = 4
# A page decodes to at most so many times its bytes, or so many bytes where that is more.
PAGE_EXPANSION_MAX = 256
PAGE_EXPANSION_FREE_BYTES = 64 * 1024 * 1024
ALP_EXPONENT_MAX = 15
FIELD_ID_NONE = 0xFFFF_FFFF
GLOBAL_DICTIONARY_ENTRIES_MAX = 2**20
GLOBAL_DICTIONARY_BYTES_MAX = 16 * 1024 * 1024
LONG_BOUND_BYTES_MAX = 64
BLOB_KEY = b"fermion:blob"
"""Of a field's metadata: the column's values are blobs."""
BLOB_PIECE_BYTES = 512 * 1024
"""Of a blob: what one of its checksums covers."""
BLOB_ALIGNMENT = 64
INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1


def _struct(size: int, *fields: tuple[str, str, int]) -> np.dtype:
    """A packed little-endian record of ``size`` bytes; ``fields`` are (name, type, offset)."""
    names, formats, offsets = zip(*fields, strict=True)
    dtype = np.dtype(
        {"names": names, "formats": formats, "offsets": offsets, "itemsize": size}  # type: ignore[arg-type]
    )
    assert dtype.itemsize == size
    return dtype


HEAD = _struct(
    16, ("magic", "V8", 0), ("major", "<u2", 8), ("minor", "<u2", 10), ("reserved", "<u4", 12)
)

FOOTER = _struct(
    256,
    ("schema_offset", "<u8", 0),
    ("schema_length", "<u8", 8),
    ("cit_offset", "<u8", 16),
    ("cit_length", "<u8", 24),
    ("cmb_offset", "<u8", 32),
    ("cmb_length", "<u8", 40),
    ("sections_offset", "<u8", 48),
    ("sections_length", "<u4", 56),
    ("num_columns", "<u4", 60),
    ("num_rows", "<u8", 64),
    ("num_stripes", "<u4", 72),
    ("num_system_columns", "<u4", 76),
    ("file_length", "<u8", 80),
    ("previous_footer_offset", "<u8", 88),
    ("settings", "<u8", 96),
    ("compat", "<u4", 104),
    ("incompat", "<u4", 108),
    ("sizeof_stripe_meta", "<u2", 112),
    ("sizeof_stream_meta", "<u2", 114),
    ("sizeof_simple_chunk_desc", "<u2", 116),
    ("sizeof_full_chunk_desc", "<u2", 118),
    ("sizeof_page_meta", "<u2", 120),
    ("crc_sections", "<u4", 136),
    ("created_by", "S64", 144),
    ("file_id", "V16", 208),
    ("place_key", "<u8", 224),
    ("crc_footer", "<u4", 240),
    ("major", "<u2", 244),
    ("minor", "<u2", 246),
    ("magic", "V8", 248),
)
FOOTER_CRC_SPAN = 240

CMB_HEADER = _struct(8, ("numStreams", "<u4", 0), ("numStripes", "<u4", 4))
STRIPE_META = _struct(4, ("rowCount", "<u4", 0))
STREAM_META = _struct(8, ("descType", "u1", 0), ("streamType", "u1", 1), ("chunksOffset", "<u4", 4))
SIMPLE_CHUNK_DESC = _struct(16, ("offset", "<u8", 0), ("length", "<u4", 8), ("flags", "<u4", 12))
FULL_CHUNK_DESC = _struct(
    48,
    ("offset", "<u8", 0),
    ("length", "<u4", 8),
    ("flags", "<u4", 12),
    ("chunkMin", "<i8", 16),
    ("chunkMax", "<i8", 24),
    ("nullCount", "<u4", 32),
    ("numPages", "<u4", 36),
    ("pageMetaOffset", "<u4", 40),
    ("extOffset", "<u4", 44),
)
PAGE_META = _struct(
    24, ("pageSize", "<u4", 0), ("rowCount", "<u4", 4), ("minVal", "<i8", 8), ("maxVal", "<i8", 16)
)
CMB_TRAILER = _struct(8, ("crc", "<u4", 0), ("length", "<u4", 4))

PAGE_HEADER = _struct(
    16,
    ("version", "u1", 0),
    ("codec", "u1", 1),
    ("encoding", "<u2", 2),
    ("numSlots", "<u4", 4),
    ("rawLength", "<u4", 8),
    ("crc", "<u4", 12),
)
PAGE_VERSION = 1
NODE_HEADER = _struct(
    8, ("encoding", "<u2", 0), ("numChildren", "u1", 2), ("flags", "u1", 3), ("length", "<u4", 4)
)

SECTION_ENTRY = _struct(
    24, ("kind", "<u4", 0), ("flags", "<u4", 4), ("offset", "<u8", 8), ("length", "<u8", 16)
)
SECTIONS_HEADER = _struct(8, ("numSections", "<u4", 0), ("numBlocks", "<u4", 4))
SCHEMA_HEADER = _struct(
    32,
    ("numColumns", "<u4", 0),
    ("numShapes", "<u4", 4),
    ("metadataLength", "<u4", 8),
    ("idKind", "<u4", 12),
    ("numRuns", "<u4", 16),
    ("numBlocks", "<u4", 20),
    ("metadataRawLength", "<u4", 24),
    ("reserved", "<u4", 28),
)
SHAPE_RUN = _struct(8, ("start", "<u4", 0), ("shape", "<u4", 4))
SHAPE_BLOCK = _struct(
    16, ("offset", "<u4", 0), ("length", "<u4", 4), ("rawLength", "<u4", 8), ("reserved", "<u4", 12)
)
SHAPES_PER_BLOCK = 64
NAME_INDEX_HEADER = _struct(
    16,
    ("numNames", "<u4", 0),
    ("restartInterval", "<u4", 4),
    ("numRestarts", "<u4", 8),
    ("reserved", "<u4", 12),
)
RESTART_INTERVAL = 16
STRIPE_ENTRY = _struct(16, ("firstRow", "<u8", 0), ("rowCount", "<u4", 8), ("reserved", "<u4", 12))
FILE_STATISTICS_ENTRY = _struct(
    32,
    ("ordinal", "<u4", 0),
    ("flags", "<u4", 4),
    ("min", "<i8", 8),
    ("max", "<i8", 16),
    ("nullCount", "<u8", 24),
)
EXTENDED_CIT_ENTRY = _struct(16, ("offset", "<u8", 0), ("length", "<u4", 8), ("crc", "<u4", 12))
SORT_KEY = _struct(8, ("ordinal", "<u4", 0), ("flags", "<u4", 4))
ORDERED_HEADER = _struct(8, ("numEntries", "<u4", 0), ("reserved", "<u4", 4))
ORDERED_ENTRY = _struct(
    32,
    ("column", "<u4", 0),
    ("node", "<u4", 4),
    ("firstStripe", "<u4", 8),
    ("reserved", "<u4", 12),
    ("offset", "<u8", 16),
    ("length", "<u8", 24),
)
MAP_KEYS_HEADER = _struct(8, ("numMaps", "<u4", 0), ("reserved", "<u4", 4))
MAP_KEYS_ENTRY = _struct(
    24, ("column", "<u4", 0), ("numKeys", "<u4", 4), ("offset", "<u8", 8), ("length", "<u8", 16)
)


class StreamType(enum.IntEnum):
    """Kind of a stream, persisted in ``StreamMeta.streamType``."""

    VALIDITY = 0
    OFFSETS = 1
    DATA = 2
    BATCH_META = 3


class DescType(enum.IntEnum):
    """Kind of a stream's chunk descriptors, persisted in ``StreamMeta.descType``."""

    SIMPLE = 0
    FULL = 1
    USE_DEFAULT = 2
    FORCE_NULL = 3


class Codec(enum.IntEnum):
    """Compression of page payloads and of pieces of strings, persisted in their headers."""

    NONE = 0
    ZSTD = 1
    LZ4 = 2


class EncodingId(enum.IntEnum):
    """Encoding of a tree node, persisted in page and node headers."""

    PLAIN = 1
    CONSTANT = 2
    BITMAP = 3
    DICTIONARY = 4
    FOR_BITPACK = 5
    PCODEC = 6
    SPLIT_LENGTHS = 7
    ZSTD = 8
    NARROW = 9
    DICTIONARY_LOCAL = 10
    DELTA = 11
    DELTA_FOR = 12
    RLE = 13
    BYTE_STREAM_SPLIT = 14
    ALP = 15
    FSST = 16
    GLOBAL_DICTIONARY = 17
    LZ4 = 18


# Never take an encoding from an edition nor add one: a new encoding joins a new edition.
_CORE_2026 = frozenset(
    {
        EncodingId.PLAIN,
        EncodingId.CONSTANT,
        EncodingId.BITMAP,
        EncodingId.DICTIONARY,
        EncodingId.FOR_BITPACK,
        EncodingId.SPLIT_LENGTHS,
        EncodingId.ZSTD,
        EncodingId.NARROW,
        EncodingId.DICTIONARY_LOCAL,
        EncodingId.DELTA,
        EncodingId.RLE,
        EncodingId.BYTE_STREAM_SPLIT,
    }
)
EDITIONS: dict[str, frozenset[EncodingId]] = {
    "core-2026": _CORE_2026,
    "2026": _CORE_2026
    | {
        EncodingId.PCODEC,
        EncodingId.ALP,
        EncodingId.FSST,
        EncodingId.GLOBAL_DICTIONARY,
        EncodingId.LZ4,
    },
}
"""Encodings that a file may use, by the name of the edition that a writer is told to keep to."""


class NodeFlag(enum.IntFlag):
    """Flags of an encoding node."""

    NULLS_REMOVED = 1


class ChunkFlag(enum.IntFlag):
    """Flags of a chunk descriptor."""

    HAS_MINMAX = 1
    MIN_EXACT = 2
    MAX_EXACT = 4
    HAS_NAN = 8
    SORTED_ASC = 16
    SORTED_DESC = 32
    FIRST_PAGE_IS_DICT = 64
    USES_GLOBAL_DICT = 128
    DENSE_NO_NULL_SLOTS = 256
    NAN_KNOWN = 512


class ExtTag(enum.IntEnum):
    """Tags of a chunk's extension records (type, length, value)."""

    END = 0
    BLOOM = 1
    NAN_COUNT = 2
    DISTINCT_COUNT = 3
    DECODED_BYTES = 4
    LONG_MIN = 5
    LONG_MAX = 6
    GLOBAL_DICTIONARY = 7
    PAGE_BLOOM = 8
    PAGE_NULL_COUNTS = 9
    SUM = 10


class ShapeIds(enum.IntEnum):
    """How the schema area maps columns to shapes, persisted in ``SCHEMA_HEADER.idKind``."""

    ONE = 0
    U8 = 1
    U16 = 2
    U32 = 4
    RUNS = 8


class SectionKind(enum.IntEnum):
    """Kinds in the section directory."""

    STRIPE_TABLE = 1
    NAME_INDEX = 2
    KEY_VALUE = 3
    FILE_STATISTICS = 4
    SORT_ORDER = 5
    ENCRYPTION = 6
    FIELD_IDS = 7
    ORDERED_DICTIONARIES = 8
    MAP_KEYS = 9


class SortFlag(enum.IntFlag):
    """How the rows of a file are sorted by one column, persisted in ``SORT_KEY.flags``."""

    DESCENDING = 1
    NULLS_FIRST = 2


class Setting(enum.IntFlag):
    """Bits of ``Footer.settings``; bits 8 to 11 hold the checksum kind."""

    BATCH = 1
    NO_CIT = 2
    SCHEMA_ZSTD = 4
    ALIGN64 = 8
    HAS_INDEX_AREA = 16
    SORTED = 32


SETTING_CHECKSUM_SHIFT = 8
SETTING_CHECKSUM_MASK = 0xF << SETTING_CHECKSUM_SHIFT


class ChecksumKind(enum.IntEnum):
    """Checksum of pages, persisted in ``Footer.settings``; metadata is always CRC32C."""

    NONE = 0
    CRC32 = 1
    CRC32C = 2
    XXH3 = 3


class Incompat(enum.IntFlag):
    """Feature bits that a reader must know to read the file at all."""

    EXT_CIT = 1
    SPLIT_STRUCT = 2
    ENCRYPTED = 4
    PLACED = 8
    BATCH_POSITIONS = 16
    MAP_KEYS = 32
    BLOBS = 64
    VARIANT_PATHS = 128
    VARIANT_RANKS = 256


def align(value: int, alignment: int = ALIGNMENT) -> int:
    """The smallest multiple of ``alignment`` that is at least ``value``."""
    return -(-value // alignment) * alignment


def padded(data: bytes) -> bytes:
    """The bytes, and zeros up to a multiple of `ALIGNMENT`."""
    return data + bytes(align(len(data)) - len(data))
