"""The end of a file: its last 256 bytes, the section directory, and the tail region around them.

The tail region of an open file is read on demand in 64 KiB blocks, each verified once.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Self

import numpy as np

from fermion.errors import ChecksumError, InvalidFileError, UnsupportedVersionError
from fermion.exports import NamedTuple, dataclass
from fermion.io.checksum import PageChecks, crc32c
from fermion.io.source import CountingSource
from fermion.layout import (
    ALIGNMENT,
    CMB_LENGTH_MAX,
    COLUMNS_MAX,
    EXTENDED_CIT_ENTRY,
    FOOTER,
    FOOTER_CRC_SPAN,
    FULL_CHUNK_DESC,
    HEAD,
    INT64_MAX,
    MAGIC,
    PAGE_ALIGNMENT,
    PAGE_META,
    SECTION_ENTRY,
    SECTIONS_HEADER,
    SETTING_CHECKSUM_MASK,
    SETTING_CHECKSUM_SHIFT,
    SIMPLE_CHUNK_DESC,
    STREAM_META,
    STRIPE_META,
    STRIPES_MAX,
    TAIL_BLOCK_BYTES,
    VERSION_MAJOR,
    VERSION_MINOR,
    VERSION_MINOR_BLOBS,
    VERSION_MINOR_MAP_KEYS,
    VERSION_MINOR_POSITIONS,
    VERSION_MINOR_VARIANT_PATHS,
    VERSION_MINOR_VARIANT_RANKS,
    ChecksumKind,
    Incompat,
    SectionKind,
    Setting,
)

_HEAD = struct.Struct("<8sHHI")
_FOOTER = struct.Struct("<QQQQQQQIIQIIQQQIIHHHHH6xQII64s16sQ8xIHH8s")
_SECTION = struct.Struct("<IIQQ")
_SECTIONS = struct.Struct("<II")
assert _HEAD.size == HEAD.itemsize
assert _FOOTER.size == FOOTER.itemsize
assert _SECTION.size == SECTION_ENTRY.itemsize
assert _SECTIONS.size == SECTIONS_HEADER.itemsize

KNOWN_SIZES = tuple(
    struct_type.itemsize
    for struct_type in (STRIPE_META, STREAM_META, SIMPLE_CHUNK_DESC, FULL_CHUNK_DESC, PAGE_META)
)
SIZE_MIN = HEAD.itemsize + FOOTER.itemsize
# A plain number: the complement of a flag leaves out the bits that have no name yet.
_EXT_CIT, _PLACED = int(Incompat.EXT_CIT), int(Incompat.PLACED)
_BATCH_POSITIONS, _MAP_KEYS = int(Incompat.BATCH_POSITIONS), int(Incompat.MAP_KEYS)
_BLOBS, _VARIANT_PATHS = int(Incompat.BLOBS), int(Incompat.VARIANT_PATHS)
_VARIANT_RANKS = int(Incompat.VARIANT_RANKS)
_OF_COLUMNS = _MAP_KEYS | _BLOBS | _VARIANT_PATHS | _VARIANT_RANKS
SUPPORTED_INCOMPAT = _EXT_CIT | _PLACED | _BATCH_POSITIONS | _OF_COLUMNS
# So are those that every file is asked about: an operation of a flag costs ten of a number.
_BATCH, _NO_CIT = int(Setting.BATCH), int(Setting.NO_CIT)
_SORTED, _ALIGN64 = int(Setting.SORTED), int(Setting.ALIGN64)
_SCHEMA_ZSTD = int(Setting.SCHEMA_ZSTD)
_CHECKSUM_KINDS = {int(kind): kind for kind in ChecksumKind}


class FileIdentity(NamedTuple):
    """What tells a file from every other one.

    file_id: 16 random bytes, which no other file has; zero in files of version 1.0.
    place_key: What checksums are bound to their places with, 64 bits; 0 where they are not bound.
    """

    file_id: bytes = bytes(16)
    place_key: int = 0

    @classmethod
    def new(cls) -> Self:
        """The identity of a new file."""
        return cls(os.urandom(16), int.from_bytes(os.urandom(8), "little") or 1)

    @property
    def text(self) -> str | None:
        """The id as 32 hexadecimal digits; None for a file that has none."""
        return self.file_id.hex() if any(self.file_id) else None


UNKNOWN_IDENTITY = FileIdentity()


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """What a footer says; offsets and lengths in bytes from the start of the file.

    The fields up to ``incompat`` are in the order of the struct.
    """

    schema_offset: int
    schema_length: int
    cit_offset: int
    cit_length: int
    cmb_offset: int
    cmb_length: int
    sections_offset: int
    sections_length: int
    num_columns: int
    num_rows: int
    num_stripes: int
    num_system_columns: int
    file_length: int
    previous_footer_offset: int = 0
    settings: int
    compat: int = 0
    incompat: int = 0
    sizes: tuple[int, ...] = KNOWN_SIZES
    crc_sections: int
    created_by: str
    major: int = VERSION_MAJOR
    minor: int = VERSION_MINOR
    identity: FileIdentity = UNKNOWN_IDENTITY

    @property
    def file_id(self) -> str | None:
        """The file's identity, 32 hexadecimal digits; None for a file that has none."""
        return self.identity.text

    @property
    def place_key(self) -> int:
        """What checksums are bound to their places with; 0 where they are not bound."""
        return self.identity.place_key if self.incompat & _PLACED else 0

    @property
    def checksum_kind(self) -> ChecksumKind:
        """The checksum of pages."""
        return _CHECKSUM_KINDS[(self.settings & SETTING_CHECKSUM_MASK) >> SETTING_CHECKSUM_SHIFT]

    def page_checks(self, verify: bool) -> PageChecks:
        """How the file's pages are checked; not at all unless ``verify``."""
        return PageChecks(self.checksum_kind if verify else ChecksumKind.NONE, self.place_key)

    @property
    def is_batch(self) -> bool:
        """Whether the file was written in batch mode."""
        return bool(self.settings & _BATCH)

    @property
    def has_positions(self) -> bool:
        """Whether rows of batches may have other positions than their places say."""
        return bool(self.incompat & _BATCH_POSITIONS)

    @property
    def has_map_keys(self) -> bool:
        """Whether keys of maps may have columns of their own, behind the batch column."""
        return bool(self.incompat & _MAP_KEYS)

    @property
    def has_variant_ranks(self) -> bool:
        """Whether rests of Variant values may have ranks of values in place of their offsets."""
        return bool(self.incompat & _VARIANT_RANKS)

    @property
    def has_blobs(self) -> bool:
        """Whether columns may hold references to values that lie outside of pages."""
        return bool(self.incompat & _BLOBS)

    @property
    def num_key_columns(self) -> int:
        """Columns of keys of maps."""
        return self.num_system_columns - self.is_batch

    @property
    def has_cit(self) -> bool:
        """Whether there is a CIT; without one, CMBs follow each other behind their lengths."""
        return not self.settings & _NO_CIT

    @property
    def is_extended(self) -> bool:
        """Whether entries of the CIT say where a CMB ends, too: columns were changed."""
        return bool(self.incompat & _EXT_CIT)

    @property
    def is_sorted(self) -> bool:
        """Whether the section SORT_ORDER says what the rows are sorted by."""
        return bool(self.settings & _SORTED)

    @property
    def has_compressed_schema(self) -> bool:
        """Whether the schema's own metadata may be compressed."""
        return bool(self.settings & _SCHEMA_ZSTD)

    @property
    def is_aligned(self) -> bool:
        """Whether pages lie so that the values of plain ones start at multiples of 64."""
        return bool(self.settings & _ALIGN64)

    @property
    def described_settings(self) -> dict[str, Any]:
        """What the settings say, by name."""
        return {
            "batch": self.is_batch,
            "checksum": self.checksum_kind.name.lower(),
            "column_index": self.has_cit,
            "align": PAGE_ALIGNMENT if self.is_aligned else ALIGNMENT,
        }

    @property
    def tail_offset(self) -> int:
        """Where the checksummed tail region starts: the end of the CMB area."""
        return self.cmb_offset + self.cmb_length


_NUMBERS = tuple(Footer.__annotations__)[: list(Footer.__annotations__).index("sizes")]
_numbers_of = attrgetter(*_NUMBERS)


def build_head() -> bytes:
    """The first 16 bytes, which are written before it is known which features the file has."""
    return _HEAD.pack(MAGIC, VERSION_MAJOR, VERSION_MINOR, 0)


def minor_version(incompat: int) -> int:
    """The first minor version that has all features of a file."""
    if incompat & _VARIANT_RANKS:
        return VERSION_MINOR_VARIANT_RANKS
    if incompat & _VARIANT_PATHS:
        return VERSION_MINOR_VARIANT_PATHS
    if incompat & _BLOBS:
        return VERSION_MINOR_BLOBS
    if incompat & _MAP_KEYS:
        return VERSION_MINOR_MAP_KEYS
    return VERSION_MINOR_POSITIONS if incompat & _BATCH_POSITIONS else VERSION_MINOR


def build_footer(footer: Footer) -> bytes:
    """The last 256 bytes."""
    data = _FOOTER.pack(
        *_numbers_of(footer),
        *footer.sizes,
        0,
        footer.crc_sections,
        0,
        footer.created_by.encode()[:64],
        *footer.identity,
        0,
        footer.major,
        footer.minor,
        MAGIC,
    )
    crc = crc32c(data[:FOOTER_CRC_SPAN])
    return data[:FOOTER_CRC_SPAN] + struct.pack("<I", crc) + data[FOOTER_CRC_SPAN + 4 :]


def parse_footer(data: memoryview, *, file_size: int | None, where: str) -> Footer:
    """Parse and check the last 256 bytes of a file.

    file_size: Bytes of the file; None where nobody knows but the footer.
    Raises InvalidFileError, ChecksumError: Wrong magic, checksum, or regions that do not lie where
        a writer puts them.
    Raises UnsupportedVersionError: A newer major version, an unknown feature bit, or smaller
        structs than this version's.
    """
    at = "256 bytes before the end" if file_size is None else file_size - FOOTER.itemsize
    if bytes(data[248:256]) != MAGIC:
        place = "8 bytes before the end" if file_size is None else file_size - 8
        raise InvalidFileError(
            f"{where}: {other_format(data)}no Fermion file: offset {place}: expected magic "
            f"{MAGIC!r}, found other bytes"
        )
    values = _FOOTER.unpack(data)
    crc, major, minor = values[-4:-1]
    found = crc32c(data[:FOOTER_CRC_SPAN])
    if crc != found:
        raise ChecksumError(
            f"{where}: offset {at}: footer checksum: expected {crc:#010x}, found {found:#010x}"
        )
    if major != VERSION_MAJOR:
        raise UnsupportedVersionError(
            f"{where}: format version {major}.{minor}; this reader knows {VERSION_MAJOR}.x"
        )
    footer = Footer(
        **dict(zip(_NUMBERS, values, strict=False)),
        sizes=values[17:22],
        crc_sections=values[23],
        created_by=values[25].rstrip(b"\0").decode(errors="replace"),
        major=major,
        minor=minor,
        identity=FileIdentity(*values[26:28]),
    )
    _check_features(footer, where)
    _check_regions(footer, footer.file_length if file_size is None else file_size, where)
    return footer


def _check_features(footer: Footer, where: str) -> None:
    unknown = footer.incompat & ~SUPPORTED_INCOMPAT
    if unknown:
        bit = (unknown & -unknown).bit_length() - 1
        name = next((each.name for each in Incompat if each == 1 << bit), "unknown")
        raise UnsupportedVersionError(
            f"{where}: needs feature bit {bit} ({name}), which this reader does not have"
        )
    for size, known in zip(footer.sizes, KNOWN_SIZES, strict=True):
        if size < known or size % 4:
            raise UnsupportedVersionError(
                f"{where}: struct sizes {footer.sizes}; this reader needs at least {KNOWN_SIZES}"
            )
    kind = (footer.settings & SETTING_CHECKSUM_MASK) >> SETTING_CHECKSUM_SHIFT
    if kind not in _CHECKSUM_KINDS:
        raise UnsupportedVersionError(f"{where}: unknown checksum kind {kind}")


def _check_regions(footer: Footer, file_size: int, where: str) -> None:
    if footer.file_length != file_size:
        raise InvalidFileError(
            f"{where}: expected {footer.file_length} bytes by the footer, found {file_size}"
        )
    num_cmbs = footer.num_columns + footer.num_system_columns
    tail, end = footer.tail_offset, footer.sections_offset
    checks = (
        (footer.num_columns <= COLUMNS_MAX and footer.num_stripes <= STRIPES_MAX, "counts"),
        (footer.num_rows <= INT64_MAX, "row count"),
        (_system_columns_fit(footer), "number of system columns"),
        (footer.is_batch or not footer.has_positions, "positions in batches"),
        (HEAD.itemsize <= footer.cmb_offset <= tail <= end, "CMB area"),
        (footer.cmb_length <= CMB_LENGTH_MAX * max(num_cmbs, 1), "length of the CMB area"),
        (tail <= footer.schema_offset, "schema area"),
        (footer.schema_offset + footer.schema_length <= end, "length of the schema area"),
        (_cit_fits(footer, num_cmbs), "CIT"),
        (footer.place_key or not footer.incompat & _PLACED, "place key"),
        (end + footer.sections_length == file_size - FOOTER.itemsize, "section directory"),
    )
    for holds, what in checks:
        if not holds:
            raise InvalidFileError(
                f"{where}: offset {file_size - FOOTER.itemsize}: footer: wrong {what}: {footer}"
            )


def _system_columns_fit(footer: Footer) -> bool:
    keys = footer.num_key_columns
    return 0 <= keys <= COLUMNS_MAX if footer.has_map_keys else keys == 0


def _cit_fits(footer: Footer, num_cmbs: int) -> bool:
    if not footer.has_cit:
        nothing = footer.cit_offset == footer.cmb_offset and footer.cit_length == 0
        return nothing and not footer.is_extended and 8 * num_cmbs <= footer.cmb_length
    inside = footer.tail_offset <= footer.cit_offset
    inside &= footer.cit_offset + footer.cit_length <= footer.sections_offset
    length = EXTENDED_CIT_ENTRY.itemsize * num_cmbs if footer.is_extended else 8 * (num_cmbs + 1)
    return inside and footer.cit_length == length


def other_format(end: bytes | memoryview) -> str:
    """What a file looks like by its last bytes, and what to do with it; empty where unknown."""
    last = bytes(end[-8:])
    if last.endswith((b"PAR1", b"PARE")):
        return "a Parquet file, which fermion.from_parquet converts; "
    if last.endswith(b"ARROW1"):
        return "an Arrow IPC file, which pyarrow.ipc.open_file reads; "
    return "an ORC file, which pyarrow.orc reads; " if last[-4:-1] == b"ORC" else ""


def parse_head(data: memoryview, *, where: str) -> None:
    """Check the first 16 bytes.

    Raises InvalidFileError, UnsupportedVersionError.
    """
    magic, major, _, _ = _HEAD.unpack(data)
    if magic != MAGIC:
        raise InvalidFileError(f"{where}: offset 0: expected magic {MAGIC!r}, found other bytes")
    if major != VERSION_MAJOR:
        raise UnsupportedVersionError(
            f"{where}: format version {major}; this reader knows {VERSION_MAJOR}.x"
        )


@dataclass(frozen=True, slots=True)
class SectionDirectory:
    """Sections by kind, and the checksum of every 64 KiB block of the tail region."""

    sections: Mapping[int, tuple[int, int]]
    block_checksums: Sequence[int]


def build_sections(sections: Mapping[SectionKind, tuple[int, int]], tail: bytes) -> bytes:
    """The section directory for a tail region (from the end of the CMBs to this directory)."""
    checksums = [
        crc32c(tail[start : start + TAIL_BLOCK_BYTES])
        for start in range(0, len(tail), TAIL_BLOCK_BYTES)
    ]
    data = _SECTIONS.pack(len(sections), len(checksums))
    for kind, (offset, length) in sections.items():
        data += _SECTION.pack(kind, 0, offset, length)
    data += struct.pack(f"<{len(checksums)}I", *checksums)
    return data + bytes(-len(data) % 8)


def parse_sections(data: memoryview, footer: Footer, where: str) -> SectionDirectory:
    """Parse and check the section directory.

    Raises ChecksumError, InvalidFileError.
    """
    found = crc32c(data)
    if found != footer.crc_sections:
        raise ChecksumError(
            f"{where}: offset {footer.sections_offset}: section directory checksum: "
            f"expected {footer.crc_sections:#010x}, found {found:#010x}"
        )
    if len(data) < _SECTIONS.size:
        raise InvalidFileError(f"{where}: section directory of {len(data)} bytes")
    num_sections, num_blocks = _SECTIONS.unpack_from(data)
    tail, end = footer.tail_offset, footer.sections_offset
    wanted_blocks = -(-(end - tail) // TAIL_BLOCK_BYTES)
    size = _SECTIONS.size + _SECTION.size * num_sections + 4 * num_blocks
    if num_blocks != wanted_blocks or not size <= len(data) < size + 8:
        raise InvalidFileError(
            f"{where}: offset {end}: section directory of {num_sections} sections and "
            f"{num_blocks} blocks (expected {wanted_blocks}) does not fit {len(data)} bytes"
        )
    sections: dict[int, tuple[int, int]] = {}
    for index in range(num_sections):
        kind, _, offset, length = _SECTION.unpack_from(data, _SECTIONS.size + _SECTION.size * index)
        if not tail <= offset <= offset + length <= end:
            raise InvalidFileError(
                f"{where}: section {kind} at {offset}+{length} lies outside {tail} to {end}"
            )
        sections[kind] = (offset, length)
    at = _SECTIONS.size + _SECTION.size * num_sections
    checksums = struct.unpack_from(f"<{num_blocks}I", data, at)
    return SectionDirectory(sections, checksums)


AT_ONCE_BYTES_MAX = 4 * 2**20
"""A region of a remote file up to this size is read whole when some of it is missing."""


class TailRegion:
    """Bytes between the end of the CMB area and the section directory.

    source: Where missing blocks come from.
    footer, directory: Say where the region lies and what its blocks' checksums are.
    prefetched, prefetched_offset: Bytes from the end of the file that are there already.
    """

    def __init__(
        self,
        source: CountingSource,
        footer: Footer,
        directory: SectionDirectory,
        prefetched: memoryview,
        prefetched_offset: int,
    ) -> None:
        self._source = source
        self._start = footer.tail_offset
        self._length = footer.sections_offset - footer.tail_offset
        self._checksums = directory.block_checksums
        self._buffer = np.empty(self._length, np.uint8)
        self._bytes = self._buffer.data
        self._loaded = bytearray(len(self._checksums))
        self._verified = bytearray(len(self._checksums))
        self._keep(prefetched, prefetched_offset)

    def _keep(self, data: memoryview, offset: int) -> None:
        begin = max(offset - self._start, 0)
        first = -(-begin // TAIL_BLOCK_BYTES)
        if first < len(self._checksums):
            at = first * TAIL_BLOCK_BYTES
            source_at = self._start + at - offset
            self._bytes[at:] = data[source_at : source_at + self._length - at]
            self._loaded[first:] = b"\1" * (len(self._checksums) - first)

    def view(self, offset: int, length: int) -> memoryview:
        """``length`` verified bytes from ``offset`` (in the file) on; a view.

        Raises ChecksumError, TruncatedFileError, InvalidFileError.
        """
        begin = offset - self._start
        if begin < 0 or length < 0 or begin + length > self._length:
            raise InvalidFileError(
                f"{self._source.source.name}: range {offset}+{length} lies outside the tail region"
            )
        if length:
            first, last = begin // TAIL_BLOCK_BYTES, (begin + length - 1) // TAIL_BLOCK_BYTES
            if self._verified.find(0, first, last + 1) >= 0:
                self._load(first, last + 1)
        return self._bytes[begin : begin + length]

    def section_view(self, offset: int) -> Callable[[int, int], memoryview]:
        """`view`, with offsets counted from the start of a section."""
        return lambda start, length: self.view(offset + start, length)

    def _load(self, first: int, stop: int) -> None:
        missing = [block for block in range(first, stop) if not self._loaded[block]]
        if missing and not self._source.source.is_local and self._length <= AT_ONCE_BYTES_MAX:
            # One request more beats several of them, one after the other.
            missing = [block for block, loaded in enumerate(self._loaded) if not loaded]
        if missing:
            self._read(missing[0], missing[-1] + 1)
        wrong = [block for block in range(first, stop) if not self._is_right(block)]
        if not wrong:
            return
        self._read(wrong[0], wrong[-1] + 1, again=True)
        for block in wrong:
            if not self._is_right(block):
                raise self._error(block)

    def _read(self, first: int, stop: int, *, again: bool = False) -> None:
        at, end = first * TAIL_BLOCK_BYTES, min(stop * TAIL_BLOCK_BYTES, self._length)
        place = self._start + at, end - at
        if again:
            (data,) = self._source.read_many([place], again=True)
        else:
            data = self._source.read(*place)
        for block in range(first, stop):
            if not self._verified[block]:  # views of the others were given out
                own = slice(block * TAIL_BLOCK_BYTES, min((block + 1) * TAIL_BLOCK_BYTES, end))
                self._bytes[own] = data[own.start - at : own.stop - at]
                self._loaded[block] = 1

    def _crc(self, block: int) -> int:
        at = block * TAIL_BLOCK_BYTES
        return crc32c(self._bytes[at : min(at + TAIL_BLOCK_BYTES, self._length)])

    def _is_right(self, block: int) -> bool:
        if not self._verified[block] and self._crc(block) == self._checksums[block]:
            self._verified[block] = 1
        return bool(self._verified[block])

    def _error(self, block: int) -> ChecksumError:
        return ChecksumError(
            f"{self._source.source.name}: offset {self._start + block * TAIL_BLOCK_BYTES}: "
            f"checksum of a metadata block: expected {self._checksums[block]:#010x}, "
            f"found {self._crc(block):#010x}"
        )

    def verify_all(self) -> None:
        """Read and verify every block."""
        if self._checksums:
            self._load(0, len(self._checksums))
