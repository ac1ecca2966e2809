"""The index of an open file: footer, sections, names, shapes and CMBs, each read when needed."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fermion.bounded_cache import BoundedCache
from fermion.columns.types import Node, column_node, has_ordered
from fermion.errors import ChecksumError, InvalidArgumentError, InvalidFileError, column_not_found
from fermion.exports import LoadedWhenAskedFor
from fermion.forks import Lock, cached_property
from fermion.io.checksum import PageChecks
from fermion.io.source import FEW_RANGES, CountingSource
from fermion.layout import (
    FIELD_ID_NONE,
    FOOTER,
    HEAD,
    STRIPE_ENTRY,
    TAIL_BLOCK_BYTES,
    SectionKind,
    StreamType,
)
from fermion.metadata.cit import ColumnRanges, NameIndex, open_cit
from fermion.metadata.cmb import ColumnBlock, trailer_checksums
from fermion.metadata.footer import (
    SIZE_MIN,
    Footer,
    TailRegion,
    other_format,
    parse_footer,
    parse_head,
    parse_sections,
)
from fermion.metadata.map_keys import MapKeys, VariantPaths, parse_map_keys
from fermion.metadata.schema_area import FIELD_ID_KEY, SchemaArea
from fermion.options import ReadOptions, SortKey
from fermion.pages.batches import stream_types

if TYPE_CHECKING:
    import hashlib

    import msgspec

    from fermion.columns import ordered_dictionaries as orders
    from fermion.metadata import sort_order
else:
    sort_order = LoadedWhenAskedFor("fermion.metadata.sort_order")
    orders = LoadedWhenAskedFor("fermion.columns.ordered_dictionaries")
    msgspec = LoadedWhenAskedFor("msgspec")
    hashlib = LoadedWhenAskedFor("hashlib")

REMOTE_PREFETCH_BYTES = 512 * 1024
LAYOUT_BYTES_MAX = 16 * 1024
"""Of a file whose columns are remembered for others like it."""
LAYOUTS_KNOWN_MAX = 128
_STRIPE = struct.Struct("<QII")
_LAYOUT = struct.Struct("<I???")
_schema_metadata = BoundedCache(LAYOUTS_KNOWN_MAX)
"""The schema's own metadata, by the layout of the file."""


class FileIndex:
    """Everything about a file but its data.

    Raises InvalidFileError, ChecksumError, UnsupportedVersionError, TruncatedFileError: The file is
        no Fermion file, is damaged, or needs a newer reader.
    """

    def __init__(self, source: CountingSource, options: ReadOptions) -> None:
        self.source, self.options = source, options
        self.where = source.source.name
        local = source.source.is_local
        usual = getattr(source.source, "prefetch_bytes", None) or REMOTE_PREFETCH_BYTES
        prefetch = options.prefetch_bytes or (TAIL_BLOCK_BYTES if local else usual)
        end_bytes = max(prefetch, SIZE_MIN)
        try:
            tail = self._read_footer(end_bytes)
        except ChecksumError:
            tail = self._read_footer(end_bytes)
        start = self.footer.file_length - len(tail)
        source.hold(tail, start)
        directory = source.read_checked(
            [(self.footer.sections_offset, self.footer.sections_length)],
            lambda found: parse_sections(found[0], self.footer, self.where),
        )
        self.sections = directory.sections
        self.tail = TailRegion(source, self.footer, directory, tail, start)
        self.cit: ColumnRanges = open_cit(source, self.tail, self.footer, self.where)
        self._nodes: dict[int, Node] = {}
        self._shape_nodes: dict[int, Node] = {}
        self._fields: dict[int, pa.Field] = {}
        # Buffer (from 1 on; 0: not read yet), first byte and length of each column's CMB.
        columns = self.footer.num_columns + self.footer.num_system_columns
        self._block_places = np.zeros((columns, 3), np.int64)
        self._block_offsets = np.zeros(columns, np.int64)
        self._block_buffers = [memoryview(b"")]
        self._block_lock = Lock()
        self._blocks: dict[int, ColumnBlock | None] = {}

    @property
    def is_local(self) -> bool:
        """Whether the file is local, so that a request costs next to nothing."""
        return self.source.source.is_local

    @cached_property
    def page_checks(self) -> PageChecks:
        """How pages are checked when they are read."""
        return self.footer.page_checks(self.options.verify_checksums)

    def _read_footer(self, length: int) -> memoryview:
        """Read the end of the file, and the footer there."""
        source = self.source
        tail = source.read_end(length)
        if len(tail) < SIZE_MIN:
            raise InvalidFileError(
                f"{self.where}: {other_format(tail)}no Fermion file: {len(tail)} bytes, expected "
                f"at least {SIZE_MIN}"
            )
        self.footer: Footer = parse_footer(
            tail[-FOOTER.itemsize :], file_size=source.source.size, where=self.where
        )
        source.source.size = self.footer.file_length
        if len(tail) == self.footer.file_length:
            parse_head(tail[: HEAD.itemsize], where=self.where)
        return tail

    def _section(self, kind: SectionKind) -> memoryview | None:
        place = self.sections.get(kind)
        return self.tail.view(*place) if place is not None else None

    @cached_property
    def stripe_rows(self) -> np.ndarray:
        """Rows of each stripe: int64, shape (stripes,)."""
        data = self._section(SectionKind.STRIPE_TABLE)
        wanted = STRIPE_ENTRY.itemsize * self.footer.num_stripes
        if data is None or len(data) != wanted:
            found = None if data is None else len(data)
            raise InvalidFileError(
                f"{self.where}: stripe table: expected {wanted} bytes, found {found}"
            )
        total = self.footer.num_rows
        if total < 2**32 and data == _STRIPE.pack(0, total, 0):  # of most files: one stripe
            return np.array([total], np.int64)
        entries = np.frombuffer(data, STRIPE_ENTRY)
        rows = entries["rowCount"].astype(np.int64)
        ends = np.cumsum(rows)
        total = int(ends[-1]) if len(ends) else 0
        if total != self.footer.num_rows or (entries["firstRow"] != ends - rows).any():
            raise InvalidFileError(
                f"{self.where}: stripe table: stripes do not add up to {self.footer.num_rows} rows"
            )
        return rows

    @cached_property
    def stripe_starts(self) -> np.ndarray:
        """First row of each stripe, and the number of rows: int64, shape (stripes + 1,)."""
        return np.concatenate(([0], np.cumsum(self.stripe_rows)))

    @cached_property
    def names(self) -> NameIndex:
        """The name index."""
        offset, length = self.sections.get(SectionKind.NAME_INDEX, (self.footer.tail_offset, 0))
        view = self.tail.section_view(offset)
        return NameIndex(view, length, self.footer.num_columns, self.where)

    @cached_property
    def schema_area(self) -> SchemaArea:
        """The schema area."""
        view = self.tail.section_view(self.footer.schema_offset)
        footer = self.footer
        return SchemaArea(
            view,
            footer.schema_length,
            footer.num_columns,
            self.where,
            has_compressed_metadata=footer.has_compressed_schema,
        )

    @cached_property
    def all_names(self) -> list[str]:
        """Every column's name, by ordinal."""
        return self.names.all()

    @cached_property
    def key_value_metadata(self) -> dict[str, str]:
        """The user's metadata."""
        data = self._section(SectionKind.KEY_VALUE)
        if data is None:
            return {}
        try:
            return msgspec.json.decode(data, type=dict[str, str])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidFileError(f"{self.where}: key/value metadata: {error}") from None

    @cached_property
    def sort_order(self) -> list[tuple[int, SortKey]]:
        """Ordinal and key of each column that the rows are sorted by."""
        data = self._section(SectionKind.SORT_ORDER)
        if data is None or not self.footer.is_sorted:
            return []
        columns = self.footer.num_columns
        return sort_order.parse_sort_order(data, self.all_names.__getitem__, columns, self.where)

    @cached_property
    def ordered_dictionaries(self) -> orders.OrderedDictionaries:
        """What the ordered dictionaries of all columns were when written."""
        data = self._section(SectionKind.ORDERED_DICTIONARIES)
        if data is None:
            return orders.OrderedDictionaries()
        return orders.parse_ordered(data, self.all_trees(), self.footer.num_stripes, self.where)

    @cached_property
    def map_keys(self) -> dict[int, MapKeys | VariantPaths]:
        """What has columns of each shredded map or Variant column, by its ordinal."""
        place, footer = self.sections.get(SectionKind.MAP_KEYS), self.footer
        if not footer.has_map_keys:
            return {}
        offset, length = place if place is not None else (footer.tail_offset, 0)
        columns = footer.num_columns, footer.num_columns + footer.is_batch, footer.num_key_columns
        return parse_map_keys(
            self.tail.section_view(offset),
            length,
            columns,
            footer.num_stripes,
            self.field,
            self.where,
        )

    def restored(self, node: Node, ordinal: int, stripe: int, array: pa.Array) -> pa.Array:
        """A column's array of a stripe with its ordered dictionaries as they were when written."""
        if not has_ordered(node):
            return array
        return self.ordered_dictionaries.restore(ordinal, node, stripe, array, where=self.where)

    @cached_property
    def _field_ids(self) -> tuple[int, int] | None:
        place = self.sections.get(SectionKind.FIELD_IDS)
        if place is not None and place[1] != 4 * self.footer.num_columns:
            raise InvalidFileError(
                f"{self.where}: field ids: expected {4 * self.footer.num_columns} bytes, "
                f"found {place[1]}"
            )
        return place

    @cached_property
    def schema(self) -> pa.Schema:
        """The exact Arrow schema; building it looks at every column."""
        return pa.schema(self.all_fields(), metadata=self.schema_area.metadata())

    def all_fields(self) -> list[pa.Field]:
        """The field of every column."""
        if len(self._fields) < self.footer.num_columns:
            shapes = self.schema_area.shape_ids().tolist()
            fields = map(self._field, shapes, self.all_names, self._all_field_ids())
            self._fields = dict(enumerate(fields))
        return [self._fields[ordinal] for ordinal in range(self.footer.num_columns)]

    def all_trees(self) -> list[Node]:
        """The tree of every column; those of one shape share it, under the name of the first."""
        shapes = self.schema_area.shape_ids().tolist()
        return list(map(self._tree, shapes, self.all_names))

    def _all_field_ids(self) -> list[int]:
        if self._field_ids is None:
            return [FIELD_ID_NONE] * self.footer.num_columns
        return np.frombuffer(self.tail.view(*self._field_ids), "<u4").tolist()

    def _field(self, shape: int, name: str, field_id: int) -> pa.Field:
        field = self.schema_area.shape(shape).with_name(name)
        if field_id == FIELD_ID_NONE:
            return field
        metadata = {**(field.metadata or {}), FIELD_ID_KEY: str(field_id).encode()}
        return field.with_metadata(metadata)

    def _tree(self, shape: int, name: str) -> Node:
        """The tree of a shape, under the name of the column that first asked for it."""
        node = self._shape_nodes.get(shape)
        if node is None:
            field = self.schema_area.shape(shape).with_name(name)
            node = self._shape_nodes[shape] = column_node(field, where=self.where)
        return node

    @cached_property
    def layout(self) -> bytes | None:
        """What names, shapes and field ids depend on: files alike have the same; None if long."""
        if sum(length for _, length in self._layout_places) > LAYOUT_BYTES_MAX:
            return None
        return self._layout_bytes()

    @cached_property
    def layout_hash(self) -> bytes:
        """What stands for a `layout` that is long; reads all names."""
        return hashlib.blake2b(self._layout_bytes()).digest()

    @property
    def _layout_places(self) -> list[tuple[int, int]]:
        footer = self.footer
        places = [(footer.schema_offset, footer.schema_length)]
        keys = self.sections.get(SectionKind.MAP_KEYS) if footer.has_map_keys else None
        places += filter(None, (self.sections.get(SectionKind.NAME_INDEX), self._field_ids, keys))
        return places

    def _layout_bytes(self) -> bytes:
        footer, parts = self.footer, list[bytes | memoryview]()
        compressed, ids = footer.has_compressed_schema, self._field_ids is not None
        parts.append(_LAYOUT.pack(footer.num_columns, footer.is_batch, ids, compressed))
        for offset, length in self._layout_places:
            parts += length.to_bytes(4, "little"), self.tail.view(offset, length)
        return b"".join(parts)

    @property
    def schema_metadata(self) -> dict[bytes, bytes] | None:
        """The schema's own metadata, which is not to be changed; None where it has none."""
        layout = self.layout
        if layout is None:
            return self.schema_area.metadata()
        known: tuple[dict[bytes, bytes] | None] | None = _schema_metadata.get(layout)
        if known is None:
            known = (self.schema_area.metadata(),)
            _schema_metadata.put(layout, known)
        return known[0]

    def find(self, name: str) -> int:
        """The ordinal of the one column of this name.

        Raises ColumnNotFoundError: Names the closest matches.
        Raises InvalidArgumentError: When several columns have the name.
        """
        found = self.names.find(name)
        if not found:
            raise column_not_found(name, self.all_names, where=self.where)
        if len(found) > 1:
            raise InvalidArgumentError(
                f"{self.where}: {len(found)} columns are named {name!r} (ordinals {found})"
            )
        return found[0]

    def field(self, ordinal: int, name: str | None = None) -> pa.Field:
        """The field of a column; its name is looked up unless it is given."""
        field = self._fields.get(ordinal)
        if field is None:
            (shape,) = self.schema_area.shape_ids([ordinal]).tolist()
            found = name if name is not None else self.all_names[ordinal]
            field_id = FIELD_ID_NONE
            if self._field_ids is not None:
                data = self.tail.view(self._field_ids[0] + 4 * ordinal, 4)
                field_id = int.from_bytes(data, "little")
            field = self._fields[ordinal] = self._field(shape, found, field_id)
        return field

    def node(self, ordinal: int, name: str | None = None) -> Node:
        """The tree of a column, or of the column of a key of a map."""
        if ordinal >= self.footer.num_columns:
            return next(
                keys.node_at(ordinal - keys.first)
                for keys in self.map_keys.values()
                if ordinal in keys.ordinals
            )
        node = self._nodes.get(ordinal)
        if node is None:
            (shape,) = self.schema_area.shape_ids([ordinal]).tolist()
            found = self.field(ordinal, name).name
            node = self._nodes[ordinal] = self._tree(shape, found).renamed(found)
        return node

    def blocks(self, ordinals: Iterable[int]) -> list[ColumnBlock | None]:
        """The CMB of each column, None for one that is null in every row.

        Blocks that are not loaded yet are read together, and once more where one of them fails its
        checksum.
        """
        wanted = list(ordinals)
        missing = [ordinal for ordinal in dict.fromkeys(wanted) if ordinal not in self._blocks]
        if not missing:
            return [self._blocks[ordinal] for ordinal in wanted]
        with self.source.in_time(len(missing)):
            try:
                self._parse_blocks(missing)
            except ChecksumError:
                rest = [each for each in missing if each not in self._blocks]
                self._parse_blocks(rest, again=True)
        return [self._blocks[ordinal] for ordinal in wanted]

    def _parse_blocks(self, ordinals: Sequence[int], *, again: bool = False) -> None:
        buffers, places, offsets = self.block_places(ordinals, again=again)
        for ordinal, (buffer, at, size), offset in zip(
            ordinals, places.tolist(), offsets.tolist(), strict=True
        ):
            data = buffers[buffer][at : at + size]
            self._blocks[ordinal] = self._block(ordinal, data, offset) if size else None

    def block_places(
        self, ordinals: Sequence[int], *, again: bool = False
    ) -> tuple[list[memoryview], np.ndarray, np.ndarray]:
        """Where the bytes of each column's CMB are, none for one that is null in every row.

        Bytes that are not loaded yet are read together, all of them where ``again`` says that they
        were wrong.

        Returns buffers, places: As `CountingSource.read_places` gives them.
        Returns offsets: ``int64``, shape (columns,): where the CMBs are in the file.
        """
        wanted = np.asarray(ordinals, np.int64)
        with self._block_lock.get():
            missing = wanted
            is_first = len(self._block_buffers) == 1 and len(wanted) <= FEW_RANGES and not again
            if again or (len(wanted) > 1 and not is_first):
                is_missing = np.zeros(len(self._block_places), bool)
                is_missing[wanted[again | (self._block_places[wanted, 0] == 0)]] = True
                missing = np.flatnonzero(is_missing)
            elif len(wanted) and self._block_places[wanted[0], 0]:
                missing = wanted[:0]
            if len(missing):
                ranges = self.cit.ranges(missing)
                buffers, places = self._read_blocks(missing, ranges, again=again)
                places[:, 0] += len(self._block_buffers)
                self._block_buffers += buffers  # first: another thread may fork in between
                self._block_offsets[missing] = ranges[:, 0]
                self._block_places[missing] = places
                if is_first:  # nothing was left out, nor put in order
                    return self._block_buffers, places, np.ascontiguousarray(ranges[:, 0])
            return self._block_buffers, self._block_places[wanted], self._block_offsets[wanted]

    def _read_blocks(
        self, ordinals: np.ndarray, ranges: np.ndarray, *, again: bool
    ) -> tuple[list[memoryview], np.ndarray]:
        """Read CMBs; those that are not what the index speaks of are read once more."""
        if not again:
            found = self._fetch_blocks(ranges)
            try:
                self._check_trailers(ordinals, *found)
                return found
            except ChecksumError:
                pass
        found = self.source.read_places(ranges, again=True)
        self._check_trailers(ordinals, *found)
        return found

    def _fetch_blocks(self, ranges: np.ndarray) -> tuple[list[memoryview], np.ndarray]:
        footer = self.footer
        small = footer.cmb_length <= self.options.eager_load_threshold
        small = small and not footer.is_extended  # other CMBs lie before the area
        if small and not self.is_local and len(ranges) > footer.num_columns // 10:
            area = self.source.read(footer.cmb_offset, footer.cmb_length)
            return [area], _places_within(ranges, footer.cmb_offset)
        return self.source.read_places(ranges)

    def _check_trailers(
        self, ordinals: np.ndarray, buffers: Sequence[memoryview], places: np.ndarray
    ) -> None:
        """Check that CMBs are those that the index speaks of, where it says so."""
        checksums = self.cit.checksums(ordinals)
        if checksums is None:
            return
        found = trailer_checksums(buffers, places)
        wrong = np.flatnonzero((found != checksums) & (places[:, 2] > 0))
        if len(wrong):
            place = int(wrong[0])
            raise ChecksumError(
                f"{self.where}: CMB of column {ordinals[place]}: expected the checksum "
                f"{checksums[place]:#010x}, found {found[place]:#010x}"
            )

    def _block(self, ordinal: int, data: memoryview, offset: int) -> ColumnBlock:
        footer = self.footer
        types: Sequence[StreamType]
        types, name = stream_types(has_positions=footer.has_positions), "batches"
        if ordinal < footer.num_columns:
            node = self.node(ordinal)
            types, name = node.stream_types(), repr(node.name)
        elif ordinal >= footer.num_columns + footer.is_batch:
            types, name = self.node(ordinal).stream_types(), f"{ordinal}, of a key of a map"
        block = ColumnBlock(data, types, footer, f"{self.where}: column {name}", offset)
        block.check_stripe_rows(self.stripe_rows)
        return block


def _places_within(ranges: np.ndarray, start: int) -> np.ndarray:
    """Places of byte ranges of the file in the one buffer that starts at ``start`` of it."""
    places = np.zeros((len(ranges), 3), np.int64)
    places[:, 1] = np.where(ranges[:, 1] > 0, ranges[:, 0] - start, 0)
    places[:, 2] = ranges[:, 1]
    return places
