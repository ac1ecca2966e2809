"""The index of an open file: footer, sections, names, shapes and CMBs, each read when needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import msgspec
import numpy as np
import pyarrow as pa

from fermion.arrow_types import Node, column_node
from fermion.batch_meta import STREAM_TYPES
from fermion.cit import ColumnIndexTable, ColumnRanges, UnindexedColumns
from fermion.cmb import ColumnBlock
from fermion.errors import InvalidArgumentError, InvalidFileError, column_not_found
from fermion.footer import SIZE_MIN, Footer, parse_footer, parse_head, parse_sections
from fermion.layout import (
    FIELD_ID_NONE,
    FOOTER,
    HEAD,
    STRIPE_ENTRY,
    TAIL_BLOCK_BYTES,
    SectionKind,
    StreamType,
)
from fermion.name_index import NameIndex
from fermion.options import ReadOptions
from fermion.schema_area import FIELD_ID_KEY, SchemaArea
from fermion.source import CountingSource
from fermion.tail import TailRegion

REMOTE_PREFETCH_BYTES = 512 * 1024


class FileIndex:
    """Everything about a file but its data.

    Parameters
    ----------
    source
        The file's bytes.
    options
        How to read.

    Raises
    ------
    InvalidFileError, ChecksumError, UnsupportedVersionError, TruncatedFileError
        The file is no Fermion file, is damaged, or needs a newer reader.
    """

    def __init__(self, source: CountingSource, options: ReadOptions) -> None:
        self.source, self.options = source, options
        self.where = source.source.name
        size = source.source.size
        if size < SIZE_MIN:
            raise InvalidFileError(
                f"{self.where}: {size} bytes; a Fermion file has at least {SIZE_MIN}"
            )
        local = source.source.is_local
        prefetch = options.prefetch_bytes or (TAIL_BLOCK_BYTES if local else REMOTE_PREFETCH_BYTES)
        prefetch = min(max(prefetch, FOOTER.itemsize), size)
        tail = source.read(size - prefetch, prefetch)
        self.footer: Footer = parse_footer(
            tail[-FOOTER.itemsize :], file_size=size, where=self.where
        )
        if prefetch == size:
            parse_head(tail[: HEAD.itemsize], where=self.where)
        self._prefetched, self._prefetched_offset = tail, size - prefetch
        directory = parse_sections(self._sections_bytes(), self.footer, self.where)
        self.sections = directory.sections
        self.tail = TailRegion(source, self.footer, directory, tail, size - prefetch)
        self.cit: ColumnRanges = (
            ColumnIndexTable(self.tail, self.footer, self.where)
            if self.footer.has_cit
            else UnindexedColumns(source, self.footer, self.where)
        )
        self._nodes: dict[int, Node] = {}
        self._fields: dict[int, pa.Field] = {}
        self._blocks: dict[int, ColumnBlock | None] = {}

    def _sections_bytes(self) -> memoryview:
        offset, length = self.footer.sections_offset, self.footer.sections_length
        begin = offset - self._prefetched_offset
        if begin >= 0:
            return self._prefetched[begin : begin + length]
        return self.source.read(offset, length)

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
        entries = np.frombuffer(data, STRIPE_ENTRY)
        rows = entries["rowCount"].astype(np.int64)
        firsts = np.cumsum(rows) - rows
        if int(rows.sum()) != self.footer.num_rows or (entries["firstRow"] != firsts).any():
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
        return SchemaArea(view, self.footer.schema_length, self.footer.num_columns, self.where)

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
        shapes = self.schema_area
        fields = [
            self._with_id(shapes.shape(shape).with_name(name), ordinal)
            for ordinal, (name, shape) in enumerate(
                zip(self.all_names, shapes.shape_ids().tolist(), strict=True)
            )
        ]
        return pa.schema(fields, metadata=shapes.metadata())

    def _with_id(self, field: pa.Field, ordinal: int) -> pa.Field:
        if self._field_ids is None:
            return field
        data = self.tail.view(self._field_ids[0] + 4 * ordinal, 4)
        value = int.from_bytes(data, "little")
        if value == FIELD_ID_NONE:
            return field
        return field.with_metadata({**(field.metadata or {}), FIELD_ID_KEY: str(value).encode()})

    def find(self, name: str) -> int:
        """The ordinal of the one column of this name.

        Raises
        ------
        ColumnNotFoundError
            Names the closest matches.
        InvalidArgumentError
            When several columns have the name.
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
            shapes = self.schema_area
            (shape,) = shapes.shape_ids([ordinal]).tolist()
            found = name if name is not None else self.all_names[ordinal]
            field = self._with_id(shapes.shape(shape).with_name(found), ordinal)
            self._fields[ordinal] = field
        return field

    def node(self, ordinal: int, name: str | None = None) -> Node:
        """The tree of a column."""
        node = self._nodes.get(ordinal)
        if node is None:
            node = self._nodes[ordinal] = column_node(self.field(ordinal, name), where=self.where)
        return node

    def blocks(self, ordinals: Iterable[int]) -> list[ColumnBlock | None]:
        """The CMB of each column, None for one that is null in every row.

        Blocks that are not loaded yet are read together.
        """
        wanted = list(ordinals)
        missing = [ordinal for ordinal in dict.fromkeys(wanted) if ordinal not in self._blocks]
        if missing:
            self._load_blocks(missing)
        return [self._blocks[ordinal] for ordinal in wanted]

    def _load_blocks(self, ordinals: Sequence[int]) -> None:
        ranges = self.cit.ranges(ordinals)
        for ordinal, data in zip(ordinals, self._read_blocks(ranges), strict=True):
            self._blocks[ordinal] = self._block(ordinal, data) if len(data) else None

    def _read_blocks(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        footer, start = self.footer, self._prefetched_offset
        if start <= min((offset for offset, length in ranges if length), default=start):
            return [self._prefetched[at - start : at - start + length] for at, length in ranges]
        small = footer.cmb_length <= self.options.eager_load_threshold
        if small and not self.source.source.is_local and len(ranges) > footer.num_columns // 10:
            area = self.source.read(footer.cmb_offset, footer.cmb_length)
            base = footer.cmb_offset
            return [area[at - base : at - base + length] for at, length in ranges]
        return self.source.read_many(ranges)

    def _block(self, ordinal: int, data: memoryview) -> ColumnBlock:
        footer = self.footer
        types: Sequence[StreamType] = STREAM_TYPES
        name = "batches"
        if ordinal < footer.num_columns:
            node = self.node(ordinal)
            types, name = node.stream_types(), repr(node.name)
        block = ColumnBlock(
            data,
            types,
            footer.num_stripes,
            footer.cmb_offset,
            footer.file_length,
            f"{self.where}: column {name}",
            footer.sizes,
        )
        block.check_stripe_rows(self.stripe_rows)
        return block
