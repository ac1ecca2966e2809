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
from fermion.encodings.decoding import (
    NodeDescription,
    TreeSlice,
    decode_tree_codes,
    decode_trees,
    describe_tree,
)
from fermion.encodings.policy import policy_for
from fermion.encodings.protocol import (
    Buffer,
    EncodeSettings,
    PageBuffer,
    Recipe,
    encoding_name,
    node_size,
    parse_node,
)
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
        Slots it must hold, by the metadata; None where that does not say, and for a dictionary.
    start, stop
        Slots wanted (stop exclusive).
    """

    buffer: PageBuffer
    offset: int
    slot_count: int | None
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class PageDescription:
    """What a page is made of, for people.

    Attributes
    ----------
    slots
        Slots; for a dictionary page, its entries.
    codec
        ``none`` or ``zstd``, over the whole tree.
    size, raw_length
        Bytes of the page, and of its tree without the codec.
    tree
        The encodings.
    """

    slots: int
    codec: str
    size: int
    raw_length: int
    tree: NodeDescription


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
        packed = recipe.encoding == EncodingId.ALP  # bits, in which zstd finds nothing
        if self.compress_page and size >= COMPRESSED_BYTES_MIN and not packed:
            payload = compress(b"".join(parts), self.settings.zstd_level)
            stored = len(payload)
            worthwhile = stored <= size * WORTHWHILE_RATIO and size <= _expansion_limit(stored)
            if worthwhile and self._expansion_allowed(values, stored):
                codec, parts = Codec.ZSTD, [payload, b"\0" * (-stored % ALIGNMENT)]
        return self._assemble(parts, codec, recipe.encoding, len(values), size)

    def _expansion_allowed(self, values: Values, size: int) -> bool:
        limit = _expansion_limit(size)
        if isinstance(values, BinaryValues) and int(values.offsets[-1]) > limit:
            return False
        return _slots_bytes(self.physical, len(values)) <= limit

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


def _slots_bytes(physical: PhysicalType, slots: int) -> int:
    """Bytes that decoded slots take: values of a fixed width, or the offsets of strings."""
    if physical.kind is PhysicalKind.BITS:
        return (slots + 7) // 8
    width = 8 if physical.kind is PhysicalKind.BINARY else physical.dtype.itemsize
    return width * slots


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
    wanted = [page for page in slices if page.start != page.stop]
    trees = _open_all(wanted, physical, verify, checksum, where)
    if isinstance(dictionary, PageSlice):
        dictionary = (
            decode_dictionary(dictionary, physical, verify=verify, checksum=checksum, where=where)
            if any(tree.root.encoding == EncodingId.DICTIONARY for tree in trees)
            else None
        )
    return decode_trees(
        trees, physical, dictionary, lambda index, error: _located(error, where, wanted[index])
    )


def decode_codes(
    slices: Sequence[PageSlice],
    physical: PhysicalType,
    *,
    dictionary: PageSlice | Values | None = None,
    verify: bool = True,
    checksum: ChecksumKind = ChecksumKind.CRC32C,
    where: str = "",
) -> tuple[np.ndarray, Values] | None:
    """Decode pages to codes and a dictionary, where they are stored so.

    Parameters and errors are those of `decode_pages`.

    Returns
    -------
    codes, values
        ``uint32``, one a slot, each below the number of values; and the distinct values in the
        order in which they first appear. None where not all pages share one dictionary.
    """
    wanted = [page for page in slices if page.start != page.stop]
    trees = _open_all(wanted, physical, verify, checksum, where)
    if isinstance(dictionary, PageSlice):
        dictionary = decode_dictionary(
            dictionary, physical, verify=verify, checksum=checksum, where=where
        )
    return decode_tree_codes(
        trees, physical, dictionary, lambda index, error: _located(error, where, wanted[index])
    )


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
        tree = _open(page, verify, checksum, is_dictionary=True)
        _check_expansion(tree, physical)
    except (FermionError, ValueError) as error:
        raise _located(error, where, page) from error
    trees = [tree] if tree.slots else []
    return decode_trees(trees, physical, None, lambda _, error: _located(error, where, page))


def describe_page(page: PageSlice, *, where: str = "") -> PageDescription:
    """Names and sizes of a page's encodings; its checksum is not verified.

    Parameters
    ----------
    page
        The page; its slots and slice are ignored.

    Raises
    ------
    InvalidFileError, UnsupportedEncodingError, UnsupportedVersionError
        The page is not well-formed, or needs a newer reader.
    """
    try:
        tree = _open(page, False, ChecksumKind.NONE, is_dictionary=True)
        _, codec, _, _, raw_length, _ = _HEADER.unpack_from(page.buffer, 0)
        name = Codec(codec).name.lower()
        return PageDescription(tree.slots, name, len(page.buffer), raw_length, describe_tree(tree))
    except (FermionError, ValueError) as error:
        raise _located(error, where, page) from error


def _open_all(
    pages: Sequence[PageSlice],
    physical: PhysicalType,
    verify: bool,
    kind: ChecksumKind,
    where: str,
) -> list[TreeSlice]:
    trees = []
    for page in pages:
        try:
            trees.append(_open(page, verify, kind))
            _check_expansion(trees[-1], physical)
        except (FermionError, ValueError) as error:
            raise _located(error, where, page) from error
    return trees


def _check_expansion(tree: TreeSlice, physical: PhysicalType) -> None:
    """Refuse slots that a writer would not have put in a page of this size, before allocating."""
    if _slots_bytes(physical, tree.slots) > tree.output_bytes_max:
        raise InvalidFileError(
            f"expected slots of at most {tree.output_bytes_max} bytes, found {tree.slots} slots"
        )


def _open(
    page: PageSlice, verify: bool, kind: ChecksumKind, *, is_dictionary: bool = False
) -> TreeSlice:
    """Verify a page's checksum, then its header, and find the root of its tree."""
    buffer = page.buffer
    size = len(buffer)
    if size < HEADER_SIZE:
        raise InvalidFileError(f"expected a page of at least {HEADER_SIZE} bytes, found {size}")
    version, codec, encoding, slots, raw_length, crc = _HEADER.unpack_from(buffer, 0)
    if verify and kind is not ChecksumKind.NONE:
        found = checksum_of(kind, buffer[:_CRC_OFFSET])
        found = checksum_of(kind, buffer[HEADER_SIZE:], found)
        if found != crc:
            raise ChecksumError(f"checksum: stored {crc:#010x}, computed {found:#010x}")
    if version != PAGE_VERSION:
        raise UnsupportedVersionError(f"page version: expected {PAGE_VERSION}, found {version}")
    start, stop = (0, slots) if is_dictionary else (page.start, page.stop)
    if not is_dictionary and page.slot_count is not None and slots != page.slot_count:
        raise InvalidFileError(f"expected {page.slot_count} slots, found {slots}")
    if not 0 <= start <= stop <= slots:
        raise InvalidFileError(f"expected slots {start} to {stop}, found {slots} slots")
    limit = _expansion_limit(size)
    tree, at = _payload(buffer, codec, raw_length, limit)
    root = parse_node(tree, at, at + raw_length, 1)
    if root.encoding != encoding or root.stop != at + raw_length:
        raise InvalidFileError(
            f"encoding tree: expected {encoding_name(encoding)} up to byte {at + raw_length}, "
            f"found {encoding_name(root.encoding)} up to byte {root.stop}"
        )
    return TreeSlice(root, slots, start, stop, limit)


def _payload(buffer: PageBuffer, codec: int, raw_length: int, limit: int) -> tuple[PageBuffer, int]:
    """The buffer that holds a page's tree, and where the tree starts."""
    if codec == Codec.NONE:
        if raw_length > len(buffer) - HEADER_SIZE:
            raise InvalidFileError(
                f"raw length: expected at most {len(buffer) - HEADER_SIZE}, found {raw_length}"
            )
        return buffer, HEADER_SIZE
    if codec == Codec.ZSTD:
        if raw_length > limit:
            raise InvalidFileError(f"raw length: expected at most {limit}, found {raw_length}")
        return decompress(buffer[HEADER_SIZE:], raw_length, padded=True), 0
    raise UnsupportedEncodingError(f"codec id {codec} is not known to this reader")


def _located(error: Exception, where: str, page: PageSlice) -> FermionError:
    """The same error, naming the file and the page's offset."""
    message = f"{where or 'page'}: page at offset {page.offset}: {error}"
    kind = type(error) if isinstance(error, FermionError) else InvalidFileError
    return kind(message)
