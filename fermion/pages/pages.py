"""Pages: chunks of values as encoding trees in frames, both directions, with what describes them.

`pages.frame` says how a frame looks, `encodings.encoding` how a tree does, and
`encodings.removed_nulls` how a page leaves its null slots out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np

from fermion.columns.types import (
    BinaryValues,
    Bits,
    PhysicalKind,
    PhysicalType,
    Values,
    slice_values,
    slots_bytes,
)
from fermion.columns.validity import Validity
from fermion.encodings.decoding import (
    NodeDescription,
    TreeSlice,
    decode_tree_codes,
    decode_trees,
    describe_tree,
)
from fermion.encodings.encoding import (
    Buffer,
    EncodeSettings,
    Node,
    PageBuffer,
    Recipe,
    encoding_name,
    node_size,
    parse_node,
    plain_recipe,
)
from fermion.encodings.removed_nulls import (
    Spread,
    is_worth_removing,
    mark_root,
    open_root,
    remove_nulls,
    valid_before,
)
from fermion.errors import FermionError, InvalidArgumentError, InvalidFileError
from fermion.exports import LoadedWhenAskedFor, dataclass
from fermion.forks import ThreadPool
from fermion.io.checksum import UNBOUND_CRC32C, UNCHECKED, PageChecks
from fermion.io.compression import PACKED_BYTES_MAX, pack
from fermion.layout import (
    CHUNK_LENGTH_MAX,
    INT64_MAX,
    INT64_MIN,
    PAGE_EXPANSION_FREE_BYTES,
    PAGE_EXPANSION_MAX,
    ChecksumKind,
    ChunkFlag,
    Codec,
    EncodingId,
)
from fermion.metadata.cmb import ChunkRecord
from fermion.options import WriteOptions
from fermion.pages.frame import (
    CHECKSUM_KINDS,
    HEADER_SIZE,
    Frame,
    open_page,
    root_encoding,
    seal_page,
)

if TYPE_CHECKING:
    from fermion.encodings.choice import choose as choosing
    from fermion.encodings.choice import policy
    from fermion.encodings.choice.choose import ChoiceMemory
    from fermion.encodings.choice.shared_dictionary import GrowingDictionary
    from fermion.statistics.bloom import BuiltFilters
else:  # readers choose no encodings
    choosing = LoadedWhenAskedFor("fermion.encodings.choice.choose")
    policy = LoadedWhenAskedFor("fermion.encodings.choice.policy")


@dataclass(slots=True)
class EncodedStream:
    """Pages of one stream's chunk, its bloom filters, and its record, which lacks only offsets."""

    record: ChunkRecord
    pages: list[bytearray] = field(default_factory=list)
    filters: list[BuiltFilters] = field(default_factory=list)


def encoded_stream(
    chunk: EncodedChunk,
    cuts: np.ndarray,
    mins: np.ndarray,
    maxs: np.ndarray,
    *,
    minimum: int = INT64_MAX,
    maximum: int = INT64_MIN,
    flags: int = 0,
    null_count: int = 0,
) -> EncodedStream:
    """Put a chunk's pages together with the record that describes them.

    cuts: ``int64``, shape (pages + 1,): slots at which pages begin and end, without a dictionary.
    mins, maxs: ``int64``, shape (pages,): PAGE_META bounds.
    """
    sizes = tuple([len(page) for page in chunk.pages])
    rows, lows, highs = (tuple(each.tolist()) for each in (np.diff(cuts), mins, maxs))
    if chunk.has_dictionary:
        rows, lows, highs = (0, *rows), (INT64_MIN, *lows), (INT64_MAX, *highs)
        flags |= ChunkFlag.FIRST_PAGE_IS_DICT
    if chunk.nulls_removed:
        flags |= ChunkFlag.DENSE_NO_NULL_SLOTS
    if chunk.shared_entries:
        flags |= ChunkFlag.USES_GLOBAL_DICT
    if sum(sizes) > CHUNK_LENGTH_MAX:
        raise InvalidArgumentError(
            f"a chunk of {sum(sizes)} bytes; at most {CHUNK_LENGTH_MAX} fit: lower stripe_bytes"
        )
    record = ChunkRecord(
        length=sum(sizes),
        flags=int(flags),
        minimum=minimum,
        maximum=maximum,
        null_count=null_count,
        page_sizes=sizes,
        page_rows=rows,
        page_mins=lows,
        page_maxs=highs,
        shared_entries=chunk.shared_entries,
    )
    return EncodedStream(record, list(chunk.pages))


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """A chunk as pages.

    pages: Complete pages, header included, each a multiple of 8 bytes, or of 64 where asked for.
        Their checksums are not bound to places yet; see `frame.bind_page`.
    has_dictionary: Whether ``pages[0]`` is the chunk's dictionary page; it holds no slots.
    nulls_removed: Whether pages hold only the values of valid slots.
    shared_entries: How many entries of the dictionary that stripes share the pages may refer to; 0
        where they refer to none.
    encodings: What was chosen, for people: ``dictionary(pcodec, split_lengths(for_bitpack))``.
    """

    pages: list[bytearray]
    has_dictionary: bool = False
    nulls_removed: bool = False
    shared_entries: int = 0
    encodings: str = ""


@dataclass(frozen=True, slots=True)
class PageSlice:
    """A page that was read, and the slots wanted of it.

    offset: Where the page starts in the file, which its checksum is bound to.
    slot_count: Slots it must hold, by the metadata; None where that does not say, and for a
        dictionary.
    start, stop: Slots wanted (stop exclusive); stop -1 means to the page's end.
    validity: Which of the page's slots are valid: all for None, none for False. Asked only where
        the page leaves its null slots out.
    picks: Single slots from ``start`` to ``stop`` that are wanted, ``int64``, ascending, not empty;
        None: all of them. Neither for booleans nor for pages that leave their null slots out.
    """

    buffer: PageBuffer
    offset: int
    slot_count: int | None
    start: int
    stop: int
    validity: Validity = None
    picks: np.ndarray | None = None


def encode_chunk(
    values: Values,
    physical: PhysicalType,
    cuts: np.ndarray,
    *,
    options: WriteOptions,
    validity: Bits | None = None,
    forced: str | None = None,
    memory: ChoiceMemory | None = None,
    shared: GrowingDictionary | None = None,
) -> EncodedChunk:
    """Encode the values of one stream of one stripe as pages.

    cuts: ``int64``, shape (pages + 1,): slot bounds of the pages, from 0 to the number of slots.
    validity: Which slots are valid; the fillers of the others are encoded as any value.
    forced: Name of the encoding to use (see `registry.selectable_names`); None chooses.
    memory: The choices made for this stream in earlier stripes; updated.
    shared: The dictionary that the stream's stripes share; updated, and used until it is full.
    Raises InvalidArgumentError: ``forced`` names no encoding, or one that cannot hold the values; a
        page passes 4 GiB.
    """
    bounds = np.asarray(cuts).tolist()
    held, ends = values, bounds
    if validity is not None and is_worth_removing(validity):
        held, ends = remove_nulls(values, validity), valid_before(validity, bounds)
    known = None if shared is None else shared.entries
    shared_codes = None
    if shared is not None:
        shared_codes = shared.codes(held, validity if held is values else None)
    if shared_codes is not None:
        choice, memory = choosing.choose_codes(shared_codes, len(bounds) - 1, options=options), None
    else:
        choice = choosing.choose(
            held, physical, len(bounds) - 1, options=options, forced=forced, memory=memory
        )
    settings = policy.policy_for(options).settings
    if physical.kind is PhysicalKind.BINARY:
        learnt = {} if choice.symbols is None else {EncodingId.FSST: choice.symbols}
        settings = replace(settings, learnt=learnt)
    writer = _PageWriter(
        physical,
        settings,
        CHECKSUM_KINDS[options.checksum],
        choice.compress_page,
        forced is not None,
        options.align,
    )
    codes, dictionary = choice.codes, choice.dictionary
    pages: list[bytearray] = []
    if dictionary is not None:
        pages.append(writer.page(dictionary, choice.recipe.children[1]))
    for start, stop, first, last in zip(bounds, bounds[1:], ends, ends[1:], strict=False):
        pages.append(
            writer.page(
                slice_values(values, start, stop),
                choice.recipe,
                None if codes is None else codes[first:last],
                None if last - first == stop - start else slice_values(held, first, last),
            )
        )
    if memory is not None:
        memory.record(choice, sum(map(len, pages)), choosing.plain_size(held, physical))
    shared_entries = 0
    if shared is not None and known is not None:
        if any(root_encoding(page) == EncodingId.GLOBAL_DICTIONARY for page in pages):
            shared_entries = len(shared.entries)
        else:  # it is full, or plain pages are smaller
            shared.entries = known
    return EncodedChunk(
        pages,
        dictionary is not None,
        held is not values,
        shared_entries,
        choosing.describe_recipe(choice.recipe),
    )


@dataclass(frozen=True, slots=True)
class _PageWriter:
    """Writes pages of one chunk."""

    physical: PhysicalType
    settings: EncodeSettings
    kind: ChecksumKind
    compress_page: bool
    forced: bool
    alignment: int

    def page(
        self,
        values: Values,
        recipe: Recipe,
        codes: np.ndarray | None = None,
        kept: Values | None = None,
    ) -> bytearray:
        """One page of ``values``, or of ``codes`` that stand for them.

        Falls back to plain where the recipe cannot hold the values (unless it was forced), where
        plain is smaller, and where the page would expand by more than readers allow.

        kept: The values of the valid slots, where the others are to be left out; ``codes`` are
            theirs then.
        """
        plain = plain_recipe(self.physical)
        held = values if kept is None else kept
        if not len(held):
            recipe = plain
        limit = choosing.plain_size(values, self.physical)
        slots = len(values)
        parts = self._tree(held, recipe, codes, slots, limit)
        if parts is None and kept is not None:
            recipe = plain
            parts = self._tree(held, plain, None, slots, limit)
        if parts is None:
            recipe = plain
            parts = self.settings.encode(values, self.physical, plain)
        size = node_size(parts)
        codec, stored = Codec.NONE, size
        packed = recipe.encoding == EncodingId.ALP  # bits, in which codecs find nothing
        limits = policy.LIMITS
        if self.compress_page and limits.page_bytes_min <= size <= PACKED_BYTES_MAX and not packed:
            payload = pack(self.settings.codec, b"".join(parts), self.settings.level)
            smaller = len(payload)
            worthwhile = smaller <= size * limits.page_ratio and size <= expansion_limit(smaller)
            if worthwhile and self._expansion_allowed(values, slots, smaller):
                codec, parts, stored = self.settings.codec, [payload], smaller
        padding = -(HEADER_SIZE + stored) % self.alignment
        if padding:
            parts.append(bytes(padding))
        return seal_page(parts, self.kind, codec, recipe.encoding, len(values), size)

    def _tree(
        self, values: Values, recipe: Recipe, codes: np.ndarray | None, slots: int, limit: int
    ) -> list[Buffer] | None:
        """The encoding tree of a page; None where the recipe does not suit it."""
        try:
            parts = self.settings.encode(values if codes is None else codes, self.physical, recipe)
        except InvalidArgumentError:
            if self.forced or recipe == plain_recipe(self.physical):
                raise
            return None
        if len(values) < slots:
            parts = mark_root(parts, len(values))
        size = node_size(parts)
        return parts if size <= limit and self._expansion_allowed(values, slots, size) else None

    def _expansion_allowed(self, values: Values, slots: int, size: int) -> bool:
        limit = expansion_limit(size)
        if isinstance(values, BinaryValues) and int(values.offsets[-1]) > limit:
            return False
        return slots_bytes(self.physical, slots) <= limit


def expansion_limit(stored: int) -> int:
    """Bytes that a page of ``stored`` bytes may decode to; writers and readers both check it."""
    return max(PAGE_EXPANSION_FREE_BYTES, PAGE_EXPANSION_MAX * stored)


def decode_pages(
    slices: Sequence[PageSlice],
    physical: PhysicalType,
    *,
    dictionary: PageSlice | Values | None = None,
    checks: PageChecks = UNBOUND_CRC32C,
    where: str = "",
    executor: ThreadPool | None = None,
) -> Values:
    """Decode slots of pages of one chunk, or of several chunks without dictionaries, in order.

    Returns new arrays; for one whole plain page a view of its buffer.

    dictionary: The dictionary page of these pages' chunk, or what `decode_dictionary` made of it.
    checks: How pages of the file are checked.
    where: The file's name, for messages.
    executor: Decodes pages side by side where that helps; must not be the caller's own.
    Raises ChecksumError: A page's bytes are not those that were written.
    Raises InvalidFileError: A page is not well-formed, or does not hold the slots expected.
    Raises UnsupportedEncodingError, UnsupportedVersionError: A page needs a newer reader.
    """
    wanted = [page for page in slices if page.start != page.stop]
    trees = _open_all(wanted, physical, checks, where)
    if isinstance(dictionary, PageSlice):
        dictionary = (
            decode_dictionary(dictionary, physical, checks=checks, where=where)
            if any(tree.root.encoding == EncodingId.DICTIONARY for tree in trees)
            else None
        )
    return decode_trees(
        trees,
        physical,
        dictionary,
        lambda index, error: located(error, where, wanted[index]),
        executor,
    )


def decode_codes(
    slices: Sequence[PageSlice],
    physical: PhysicalType,
    *,
    dictionary: PageSlice | Values | None = None,
    checks: PageChecks = UNBOUND_CRC32C,
    where: str = "",
) -> tuple[np.ndarray, Values] | None:
    """Decode pages to codes and a dictionary, where they are stored so.

    Parameters and errors are those of `decode_pages`.

    Returns: ``uint32``, one a slot, each below the number of values; and the distinct values in the
        order of the file. None where not all pages share one dictionary.
    """
    wanted = [page for page in slices if page.start != page.stop]
    trees = _open_all(wanted, physical, checks, where)
    if isinstance(dictionary, PageSlice):
        dictionary = decode_dictionary(dictionary, physical, checks=checks, where=where)
    return decode_tree_codes(
        trees, physical, dictionary, lambda index, error: located(error, where, wanted[index])
    )


def decode_dictionary(
    page: PageSlice, physical: PhysicalType, *, checks: PageChecks = UNBOUND_CRC32C, where: str = ""
) -> Values:
    """Decode a chunk's dictionary page, to be given to `decode_pages` any number of times.

    Raises InvalidFileError, ChecksumError, UnsupportedEncodingError, UnsupportedVersionError: As
        `decode_pages`.
    """
    try:
        tree = _open_entries(page, checks)
        _check_expansion(tree, physical)
    except (FermionError, ValueError) as error:
        raise located(error, where, page) from error
    trees = [tree] if tree.slots else []
    return decode_trees(trees, physical, None, lambda _, error: located(error, where, page))


def _open_all(
    pages: Sequence[PageSlice], physical: PhysicalType, checks: PageChecks, where: str
) -> list[TreeSlice]:
    trees = []
    for page in pages:
        try:
            trees.append(_open(page, checks))
            _check_expansion(trees[-1], physical)
        except (FermionError, ValueError) as error:
            raise located(error, where, page) from error
    return trees


def _check_expansion(tree: TreeSlice, physical: PhysicalType) -> None:
    """Refuse slots that a writer would not have put in a page of this size, before allocating."""
    slots = max(tree.slots, len(tree))
    if slots_bytes(physical, slots) > tree.output_bytes_max:
        raise InvalidFileError(
            f"expected slots of at most {tree.output_bytes_max} bytes, found {slots} slots"
        )


def _open(page: PageSlice, checks: PageChecks) -> TreeSlice:
    """Open a page and find the values wanted of its tree."""
    frame = open_frame(page, checks)
    slots, start = frame.slots, page.start
    stop = slots if page.stop < 0 else page.stop
    if page.slot_count is not None and slots != page.slot_count:
        raise InvalidFileError(f"expected {page.slot_count} slots, found {slots}")
    if not 0 <= start <= stop <= slots:
        raise InvalidFileError(f"expected slots {start} to {stop}, found {slots} slots")
    root = root_of(frame)
    if not root.flags:
        wanted = range(start, stop) if page.picks is None else page.picks
        return TreeSlice(root, slots, wanted, expansion_limit(len(page.buffer)))
    if page.picks is not None:
        raise InvalidFileError(
            "expected all slots, as the chunk's flags say, found null ones left out"
        )
    root, values = open_root(root)
    spread = Spread.of(page.validity, values, slots, start, stop)
    wanted = range(spread.first, spread.last)
    return TreeSlice(root, values, wanted, expansion_limit(len(page.buffer)), spread)


def _open_entries(page: PageSlice, checks: PageChecks) -> TreeSlice:
    """Open a dictionary page."""
    frame = open_frame(page, checks)
    root = root_of(frame)
    if root.flags:
        raise InvalidFileError("dictionary page: expected entries without null slots removed")
    return TreeSlice(root, frame.slots, range(frame.slots), expansion_limit(len(page.buffer)))


def open_frame(page: PageSlice, checks: PageChecks) -> Frame:
    """A page without its frame; see `frame.open_page`."""
    return open_page(page.buffer, checks, page.offset, expansion_limit(len(page.buffer)))


def root_of(frame: Frame) -> Node:
    """The root of a page's tree, which must fill the payload."""
    stop = frame.start + frame.raw_length
    root = parse_node(frame.buffer, frame.start, stop, 1)
    if root.encoding != frame.encoding or root.stop != stop:
        raise InvalidFileError(
            f"encoding tree: expected {encoding_name(frame.encoding)} up to byte {stop}, "
            f"found {encoding_name(root.encoding)} up to byte {root.stop}"
        )
    return root


def located(error: Exception, where: str, page: PageSlice) -> FermionError:
    """The same error, naming the file and the page's offset."""
    message = f"{where or 'page'}: page at offset {page.offset}: {error}"
    kind = type(error) if isinstance(error, FermionError) else InvalidFileError
    return kind(message)


@dataclass(frozen=True, slots=True)
class PageDescription:
    """What a page is made of, for people.

    slots: Slots; for a dictionary page, its entries.
    codec: ``none`` or ``zstd``, over the whole tree.
    size, raw_length: Bytes of the page, and of its tree without the codec.
    """

    slots: int
    codec: str
    size: int
    raw_length: int
    tree: NodeDescription

    @property
    def label(self) -> str:
        """The tree and the codec on one line."""
        return tree_label(self.tree) + ("" if self.codec == "none" else f" in {self.codec}")


def tree_label(tree: NodeDescription) -> str:
    """A tree of encodings on one line: ``dictionary(codes: for_bitpack, values: plain)``."""
    if not tree.children:
        return tree.encoding
    children = ", ".join(f"{child.role}: {tree_label(child)}" for child in tree.children)
    return f"{tree.encoding}({children})"


def describe_page(page: PageSlice, *, where: str = "") -> PageDescription:
    """Names and sizes of a page's encodings; its checksum is not verified.

    page: The page; its slots and slice are ignored.
    Raises InvalidFileError, UnsupportedEncodingError, UnsupportedVersionError: The page is not
        well-formed, or needs a newer reader.
    """
    try:
        frame = open_frame(page, UNCHECKED)
        root, values = root_of(frame), frame.slots
        if root.flags:
            root, values = open_root(root)
        tree = TreeSlice(root, values, range(values), expansion_limit(len(page.buffer)))
        return PageDescription(
            frame.slots,
            frame.codec.name.lower(),
            len(page.buffer),
            frame.raw_length,
            describe_tree(tree),
        )
    except (FermionError, ValueError) as error:
        raise located(error, where, page) from error
