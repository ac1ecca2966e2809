"""Pages: an encoding tree within a header and a checksum; chunks as lists of pages.

====== ==== ========== ==================================================================
offset size name       meaning
====== ==== ========== ==================================================================
0      1    version    1
1      1    codec      `Codec` of the payload
2      2    encoding   encoding of the tree's root
4      4    numSlots   slots; for a dictionary page, its entries
8      4    rawLength  bytes of the tree (before the codec, without padding)
12     4    crc        over bytes 0 to 11 and all bytes from 16 to the page's end
16     ...  payload    the tree, through the codec, zero-padded to a multiple of 8
====== ==== ========== ==================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fermion.checksum import checksum as checksum_of
from fermion.compression import compress, decompress
from fermion.encodings.policy import policy_for
from fermion.encodings.protocol import (
    BinaryPlan,
    Buffer,
    DecodeContext,
    EncodeSettings,
    Node,
    PageBuffer,
    Recipe,
    encoding_name,
    node_size,
    parse_node,
)
from fermion.encodings.registry import ENCODINGS
from fermion.encodings.selection import (
    ChoiceMemory,
    choose,
    describe_recipe,
    plain_recipe,
    plain_size,
)
from fermion.errors import (
    ChecksumError,
    FermionError,
    InvalidArgumentError,
    InvalidFileError,
    UnsupportedEncodingError,
    UnsupportedVersionError,
)
from fermion.layout import (
    ALIGNMENT,
    PAGE_HEADER,
    PAGE_VERSION,
    ChecksumKind,
    Codec,
    EncodingId,
)
from fermion.options import WriteOptions
from fermion.values import (
    BinaryValues,
    Bits,
    PhysicalKind,
    PhysicalType,
    Values,
    empty,
    slice_values,
)

HEADER_SIZE = PAGE_HEADER.itemsize
# A page may decode to 64 MiB, or to this many times its size: more is taken for an attack.
EXPANSION_MAX = 256
EXPANSION_FREE_BYTES = 64 * 1024 * 1024
COMPRESSED_BYTES_MIN = 256
WORTHWHILE_RATIO = 0.95

_HEADER = struct.Struct("<BBHIII")
_HEADER_START = struct.Struct("<BBHII")
_CRC = struct.Struct("<I")
_CRC_OFFSET = 12


_KINDS = {
    "none": ChecksumKind.NONE,
    "crc32": ChecksumKind.CRC32,
    "crc32c": ChecksumKind.CRC32C,
}


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """A chunk as pages.

    Attributes
    ----------
    pages
        Complete pages, header included, each a multiple of 8 bytes.
    has_dictionary
        Whether ``pages[0]`` is the chunk's dictionary page; it holds no slots.
    encodings
        What was chosen, for people: ``dictionary(pcodec, split_lengths(for_bitpack))``.
    """

    pages: list[bytes]
    has_dictionary: bool = False
    encodings: str = ""


@dataclass(frozen=True, slots=True)
class PageSlice:
    """A page that was read, and the slots wanted of it.

    Attributes
    ----------
    buffer
        The whole page.
    offset
        Where the page starts in the file, for messages.
    slot_count
        Slots it must hold, by the metadata; ignored for a dictionary page.
    start, stop
        Slots wanted (stop exclusive).
    """

    buffer: PageBuffer
    offset: int
    slot_count: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Page:
    """A page whose checksum and header were verified."""

    root: Node
    codec: int
    slots: int
    output_bytes_max: int


def encode_chunk(
    values: Values,
    physical: PhysicalType,
    cuts: np.ndarray,
    *,
    options: WriteOptions,
    validity: Bits | None = None,
    forced: str | None = None,
    memory: ChoiceMemory | None = None,
) -> EncodedChunk:
    """Encode the values of one stream of one stripe as pages.

    Parameters
    ----------
    values
        One value a slot.
    cuts
        ``int64``, shape (pages + 1,): slot bounds of the pages, from 0 to the number of slots.
    validity
        Which slots are valid; the fillers of the others are encoded as any value.
    forced
        Name of the encoding to use (see `selection.FORCED`); None chooses.
    memory
        The choices made for this stream in earlier stripes; updated.

    Raises
    ------
    InvalidArgumentError
        ``forced`` names no encoding, or one that cannot hold the values; a page passes 4 GiB.
    """
    bounds = np.asarray(cuts).tolist()
    choice = choose(
        values, physical, len(bounds) - 1, options=options, forced=forced, memory=memory
    )
    writer = _PageWriter(
        physical,
        policy_for(options).settings,
        _KINDS[options.checksum],
        choice.compress_page,
        forced is not None,
    )
    codes, dictionary = choice.codes, choice.dictionary
    pages: list[bytes] = []
    if dictionary is not None:
        pages.append(writer.page(dictionary, choice.recipe.children[1]))
    for start, stop in pairwise(bounds):
        pages.append(
            writer.page(
                slice_values(values, start, stop),
                choice.recipe,
                None if codes is None else codes[start:stop],
            )
        )
    if memory is not None:
        memory.record(choice, sum(map(len, pages)), plain_size(values, physical))
    return EncodedChunk(pages, dictionary is not None, describe_recipe(choice.recipe))


@dataclass(frozen=True, slots=True)
class _PageWriter:
    """Writes pages of one chunk."""

    physical: PhysicalType
    settings: EncodeSettings
    kind: ChecksumKind
    compress_page: bool
    forced: bool

    def page(self, values: Values, recipe: Recipe, codes: np.ndarray | None = None) -> bytes:
        """One page of ``values``, or of ``codes`` that stand for them.

        Falls back to plain where the recipe cannot hold the values (unless it was forced), where
        plain is smaller, and where the page would expand by more than readers allow.
        """
        plain = plain_recipe(self.physical)
        if not len(values):
            recipe = plain
        limit = plain_size(values, self.physical)
        try:
            parts = self.settings.encode(values if codes is None else codes, self.physical, recipe)
            size = node_size(parts)
        except InvalidArgumentError:
            if self.forced or recipe == plain:
                raise
            size = limit + 1
        if size > limit or not self._expansion_allowed(values, size):
            recipe = plain
            parts = self.settings.encode(values, self.physical, plain)
            size = node_size(parts)
        codec = Codec.NONE
        if self.compress_page and size >= COMPRESSED_BYTES_MIN:
            payload = compress(b"".join(parts), self.settings.zstd_level)
            small = len(payload) <= size * WORTHWHILE_RATIO and size <= _expansion_limit(
                len(payload)
            )
            if small and self._expansion_allowed(values, len(payload)):
                codec, parts = Codec.ZSTD, [payload, b"\0" * (-len(payload) % ALIGNMENT)]
        return self._assemble(parts, codec, recipe.encoding, len(values), size)

    def _expansion_allowed(self, values: Values, size: int) -> bool:
        if not isinstance(values, BinaryValues):
            return True
        return int(values.offsets[-1]) <= _expansion_limit(size)

    def _assemble(
        self, parts: list[Buffer], codec: Codec, encoding: EncodingId, slots: int, raw: int
    ) -> bytes:
        start = _HEADER_START.pack(PAGE_VERSION, codec, encoding, slots, raw)
        crc = 0
        for part in (start, *parts):
            crc = checksum_of(self.kind, part, crc)
        return b"".join((start, _CRC.pack(crc), *parts))


def _expansion_limit(stored: int) -> int:
    """Bytes that a page of ``stored`` bytes may decode to; writers and readers both check it."""
    return max(EXPANSION_FREE_BYTES, EXPANSION_MAX * stored)


def decode_dictionary(
    page: PageSlice,
    physical: PhysicalType,
    *,
    verify: bool = True,
    checksum: ChecksumKind = ChecksumKind.CRC32C,
    where: str = "",
) -> Values:
    """Decode a chunk's dictionary page, to be given to `decode_pages` any number of times.

    Raises
    ------
    InvalidFileError, ChecksumError, UnsupportedEncodingError, UnsupportedVersionError
        As `decode_pages`.
    """
    try:
        opened = _open(page, verify, checksum, None)
        context = DecodeContext(ENCODINGS, None, opened.output_bytes_max)
        if physical.kind is PhysicalKind.BITS:
            raise InvalidFileError("booleans cannot have a dictionary")
        _check_dictionary_size(opened, physical)
        return context.values(opened.root, opened.slots, physical)
    except (FermionError, ValueError) as error:
        raise _located(error, where, page) from error


def _check_dictionary_size(page: _Page, physical: PhysicalType) -> None:
    """A dictionary's entries differ, so it cannot be much larger than its page."""
    width = 8 if physical.kind is PhysicalKind.BINARY else physical.dtype.itemsize
    if page.slots * width > page.output_bytes_max:
        raise InvalidFileError(
            f"dictionary page: expected at most {page.output_bytes_max} bytes of values, "
            f"found {page.slots} entries"
        )


def decode_pages(
    slices: Sequence[PageSlice],
    physical: PhysicalType,
    *,
    dictionary: PageSlice | Values | None = None,
    verify: bool = True,
    checksum: ChecksumKind = ChecksumKind.CRC32C,
    where: str = "",
) -> Values:
    """Decode slots of pages of one chunk, or of several chunks without dictionaries, in order.

    Returns new arrays; for one whole plain page a view of its buffer.

    Parameters
    ----------
    dictionary
        The dictionary page of these pages' chunk, or what `decode_dictionary` made of it.
    verify
        Whether to verify checksums.
    where
        The file's name, for messages.

    Raises
    ------
    ChecksumError
        A page's bytes are not those that were written.
    InvalidFileError
        A page is not well-formed, or does not hold the slots expected.
    UnsupportedEncodingError, UnsupportedVersionError
        A page needs a newer reader.
    """
    pages = []
    for part in slices:
        if part.start == part.stop:
            continue
        try:
            pages.append((part, _open(part, verify, checksum, part.slot_count)))
        except (FermionError, ValueError) as error:
            raise _located(error, where, part) from error
    if not pages:
        return empty(physical)
    if isinstance(dictionary, PageSlice):
        dictionary = (
            decode_dictionary(dictionary, physical, verify=verify, checksum=checksum, where=where)
            if any(page.root.encoding == EncodingId.DICTIONARY for _, page in pages)
            else None
        )
    if physical.kind is PhysicalKind.BITS:
        return _decode_bits(pages, where)
    if physical.kind is PhysicalKind.BINARY:
        return _decode_binary(pages, dictionary, where)
    return _decode_fixed(pages, physical, dictionary, where)


def _open(page: PageSlice, verify: bool, kind: ChecksumKind, slot_count: int | None) -> _Page:
    """Verify a page's checksum, then its header, and find the root of its tree."""
    buffer = page.buffer
    size = len(buffer)
    if size < HEADER_SIZE:
        raise InvalidFileError(f"expected a page of at least {HEADER_SIZE} bytes, found {size}")
    version, codec, encoding, slots, raw_length, crc = _HEADER.unpack_from(buffer, 0)
    if verify and kind is not ChecksumKind.NONE:
        found = checksum_of(kind, buffer[HEADER_SIZE:], checksum_of(kind, buffer[:_CRC_OFFSET]))
        if found != crc:
            raise ChecksumError(f"checksum: stored {crc:#010x}, computed {found:#010x}")
    if version != PAGE_VERSION:
        raise UnsupportedVersionError(f"page version: expected {PAGE_VERSION}, found {version}")
    if slot_count is not None and slots != slot_count:
        raise InvalidFileError(f"expected {slot_count} slots, found {slots}")
    if not 0 <= page.start <= page.stop <= slots:
        raise InvalidFileError(f"expected slots {page.start} to {page.stop}, found {slots}")
    limit = _expansion_limit(size)
    if codec == Codec.NONE:
        if raw_length > size - HEADER_SIZE:
            raise InvalidFileError(
                f"raw length: expected at most {size - HEADER_SIZE}, found {raw_length}"
            )
        tree, start = buffer, HEADER_SIZE
    elif codec == Codec.ZSTD:
        if raw_length > limit:
            raise InvalidFileError(f"raw length: expected at most {limit}, found {raw_length}")
        tree, start = decompress(buffer[HEADER_SIZE:], raw_length, padded=True), 0
    else:
        raise UnsupportedEncodingError(f"codec id {codec} is not known to this reader")
    root = parse_node(tree, start, start + raw_length, 1)
    if root.encoding != encoding or root.stop != start + raw_length:
        raise InvalidFileError(
            f"encoding tree: expected {encoding_name(encoding)} up to byte {start + raw_length}, "
            f"found {encoding_name(root.encoding)} up to byte {root.stop}"
        )
    return _Page(root, codec, slots, limit)


def _located(error: Exception, where: str, page: PageSlice) -> FermionError:
    """The same error, naming the file and the page's offset."""
    message = f"{where or 'page'}: page at offset {page.offset}: {error}"
    kind = type(error) if isinstance(error, FermionError) else InvalidFileError
    return kind(message)


def _decode_fixed(
    pages: list[tuple[PageSlice, _Page]],
    physical: PhysicalType,
    dictionary: Values | None,
    where: str,
) -> np.ndarray:
    dtype = physical.dtype
    out = None
    at = 0
    for part, page in pages:
        context = DecodeContext(ENCODINGS, dictionary, page.output_bytes_max)
        try:
            encoding = context.encoding(page.root)
            if out is None:
                if len(pages) == 1 and part.stop - part.start == page.slots:
                    view = encoding.view_fixed(page.root, page.slots, dtype)
                    if view is not None:
                        return view
                out = np.empty(sum([part.stop - part.start for part, _ in pages]), dtype)
            stop = at + part.stop - part.start
            encoding.read_fixed(page.root, page.slots, part.start, part.stop, out[at:stop], context)
            at = stop
        except (FermionError, ValueError) as error:
            raise _located(error, where, part) from error
    assert out is not None
    return out


def _decode_bits(pages: list[tuple[PageSlice, _Page]], where: str) -> Bits:
    total = sum([part.stop - part.start for part, _ in pages])
    out = None
    at = 0
    for part, page in pages:
        context = DecodeContext(ENCODINGS, None, page.output_bytes_max)
        try:
            encoding = context.encoding(page.root)
            if out is None:
                if len(pages) == 1 and total == page.slots:
                    view = encoding.view_bits(page.root, page.slots)
                    if view is not None:
                        return Bits(view, total)
                out = np.zeros((total + 7) // 8, np.uint8)
            encoding.read_bits(page.root, page.slots, part.start, part.stop, out, at, context)
            at += part.stop - part.start
        except (FermionError, ValueError) as error:
            raise _located(error, where, part) from error
    assert out is not None
    return Bits(out, total)


def _decode_binary(
    pages: list[tuple[PageSlice, _Page]], dictionary: Values | None, where: str
) -> BinaryValues:
    """Lengths of all pages first, then all bytes into one array."""
    offsets = np.empty(sum([part.stop - part.start for part, _ in pages]) + 1, np.int64)
    plans: list[tuple[int, BinaryPlan]] = []
    at = base = 0
    for part, page in pages:
        context = DecodeContext(ENCODINGS, dictionary, page.output_bytes_max)
        stop = at + part.stop - part.start
        own = offsets[at : stop + 1]
        try:
            plan = context.encoding(page.root).plan_binary(
                page.root, page.slots, part.start, part.stop, own, context
            )
            context.check_output(plan.total)
        except (FermionError, ValueError) as error:
            raise _located(error, where, part) from error
        if base:
            own += base
        plans.append((base, plan))
        base += plan.total
        at = stop
    if len(plans) == 1 and plans[0][1].data is not None:
        return BinaryValues(offsets, plans[0][1].data)
    data = np.empty(base, np.uint8)
    for (start, plan), (part, _) in zip(plans, pages, strict=True):
        try:
            plan.write(data, start)
        except (FermionError, ValueError) as error:
            raise _located(error, where, part) from error
    return BinaryValues(offsets, data)
