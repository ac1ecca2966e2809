"""Columns of one stripe → encoded pages and what the CMB must say of them, as the options ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion.arguments import first_repeated
from fermion.columns.shred import shred
from fermion.columns.types import (
    BITS,
    UINT32,
    BinaryValues,
    Bits,
    ColumnStreams,
    Node,
    NodeKind,
    Order,
    PhysicalKind,
    PhysicalType,
    Values,
    column_node,
)
from fermion.encodings.choice.choose import ChoiceMemory, check_forced
from fermion.encodings.choice.policy import policy_for
from fermion.encodings.choice.shared_dictionary import GrowingDictionary
from fermion.encodings.encoding import Encoding
from fermion.encodings.registry import selectable
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.layout import CHUNK_SLOTS_MAX, INT64_MAX, INT64_MIN, ChunkFlag, EncodingId
from fermion.metadata.cmb import ALL_NULL_CHUNK, DEFAULT_CHUNK
from fermion.metadata.schema_area import shapes_of
from fermion.options import WriteOptions
from fermion.pages.cuts import cut_batches, cut_fixed, cut_offsets
from fermion.pages.pages import EncodedChunk, EncodedStream, encode_chunk, encoded_stream
from fermion.statistics.bloom import build_bloom, build_page_blooms
from fermion.statistics.bounds import (
    EXACT_FLAGS,
    ColumnStatistics,
    content_records,
    detail_records,
    merge,
    page_statistics,
)

OFFSET_BYTES = 4
VALIDITY_BYTES = 1 / 8
REST_PAGES = 8
"""What is left of Variant values: pages of so many times the bytes that options say."""


@dataclass(slots=True)
class EncodedColumn:
    """All streams of one column in one stripe, by ordinal, and the statistics of its leaves."""

    streams: list[EncodedStream]
    statistics: dict[tuple[str, ...], ColumnStatistics]
    all_null: bool


@dataclass(slots=True)
class ColumnPlan:
    """What stays the same for a column from stripe to stripe.

    paths: Path of each DATA stream by ordinal, but for those below a list.
    names: What options call each DATA stream, by ordinal: its dotted path; below a list, that of
        the outermost list.
    memories: What was chosen for each stream in the stripe before.
    dictionaries: What the stripes of some DATA streams share, by ordinal.
    is_sorted_by: Whether the rows are sorted by the column.
    """

    node: Node
    options: WriteOptions
    paths: dict[int, tuple[str, ...]]
    names: dict[int, str]
    memories: dict[int, ChoiceMemory] = field(default_factory=dict)
    dictionaries: dict[int, GrowingDictionary] = field(default_factory=dict)
    is_sorted_by: bool = False

    @classmethod
    def of(cls, node: Node, options: WriteOptions, *, is_sorted_by: bool = False) -> ColumnPlan:
        """The plan of a top-level column."""
        found = list(_leaf_paths(node, (node.name,)))
        paths = {leaf.stream: path for leaf, path, in_list in found if not in_list}
        names = {leaf.stream: ".".join(path) for leaf, path, _ in found}
        plan = cls(node, options, paths, names, is_sorted_by=is_sorted_by)
        for leaf, *_ in found if options.global_dictionaries else ():
            named = names[leaf.stream] in options.global_dictionaries
            if named and leaf.physical is not None and leaf.physical != BITS:
                plan.dictionaries[leaf.stream] = GrowingDictionary.of(leaf.physical)
        return plan

    def leaves(self) -> Iterator[tuple[str, Node]]:
        """What options call each leaf, and the leaf."""
        for node in self.node.walk():
            if node.kind is NodeKind.LEAF:
                yield self.names[node.stream], node

    def forced(self, ordinal: int) -> str | None:
        """The encoding that the options force for a leaf, None for a free choice."""
        return self.options.encodings.get(self.names[ordinal]) if self.options.encodings else None

    def wants_statistics(self, ordinal: int) -> bool:
        """Whether bounds are kept for a leaf."""
        wanted = self.options.statistics
        if isinstance(wanted, bool):
            return wanted
        return self.names[ordinal] in wanted

    def is_named(self, ordinal: int, names: Sequence[str]) -> bool:
        """Whether a leaf that is below no list is one of some columns that the options name."""
        path = self.paths.get(ordinal)
        return path is not None and ".".join(path) in names

    def page_limits(self) -> dict[str, int]:
        """Where a page of any stream of the column ends, as `cut_fixed` takes it."""
        options = self.options
        size = options.column_page_bytes.get(self.node.name, options.page_bytes)
        return {"page_bytes": size, "page_rows_max": options.page_rows_max}

    def memory(self, ordinal: int) -> ChoiceMemory:
        """The memory of a stream's choices."""
        if ordinal not in self.memories:
            self.memories[ordinal] = ChoiceMemory()
        return self.memories[ordinal]


def _options_of_rest(options: WriteOptions) -> WriteOptions:
    """How a Variant column is written whose frequent paths have columns.

    Few read what is left of its values, which are like each other: pages are large, and each is
    compressed in one piece.
    """
    if options.profile not in ("balanced", "compact") or options.codec != "zstd":
        return options
    return replace(
        options,
        profile="compact",
        compression_level=policy_for(options).settings.level,
        page_bytes=REST_PAGES * options.page_bytes,
    )


class ColumnPlans:
    """The plans of a file's columns, made when they are asked for.

    A wide file has few shapes, and most of its columns are written without a plan.

    shapes: ``uint32``, shape (columns,): the shape of each column.
    nodes: The tree of each shape, under the name of its first column.
    Raises UnsupportedTypeError: For a type that the format cannot hold.
    """

    def __init__(self, schema: pa.Schema, options: WriteOptions, where: str = "schema") -> None:
        shapes = shapes_of(schema)
        self.names: list[str] = schema.names
        self.shapes = shapes.ids
        self.nodes = [column_node(field, where=where) for field in shapes.columns]
        self._options = options
        self._sorted_by = {key.name for key in options.sort_keys}
        self._made: dict[int, ColumnPlan] = {}

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, ordinal: int) -> ColumnPlan:
        plan = self._made.get(ordinal)
        if plan is None:
            name, options = self.names[ordinal], self._options
            if name in options.shred and not pat.is_map(self.node(ordinal).type):
                options = _options_of_rest(options)
            plan = ColumnPlan.of(self.node(ordinal), options, is_sorted_by=name in self._sorted_by)
            self._made[ordinal] = plan
        return plan

    def __iter__(self) -> Iterator[ColumnPlan]:
        return map(self.__getitem__, range(len(self)))

    def node(self, ordinal: int) -> Node:
        """The tree of a column."""
        return self.nodes[self.shapes[ordinal]].renamed(self.names[ordinal])

    def of_shapes(self, wanted: Callable[[Node], bool]) -> dict[int, Node]:
        """The trees of the columns whose shapes are wanted, by ordinal."""
        chosen = np.array([wanted(node) for node in self.nodes], bool)
        ordinals = np.flatnonzero(chosen[self.shapes]).tolist() if chosen.any() else []
        return {ordinal: self.node(ordinal) for ordinal in ordinals}

    def made(self) -> list[tuple[int, ColumnPlan]]:
        """The plans that were asked for so far, by ordinal."""
        return sorted(self._made.items(), key=itemgetter(0))


def _leaf_paths(
    node: Node, path: tuple[str, ...], in_list: bool = False
) -> Iterator[tuple[Node, tuple[str, ...], bool]]:
    """Each leaf, its path up to the outermost list, and whether there is one."""
    if node.kind is NodeKind.LEAF:
        yield node, path, in_list
    in_list |= node.kind in (NodeKind.LIST, NodeKind.FIXED_LIST)
    for child in node.children:
        yield from _leaf_paths(child, path if in_list else (*path, child.name), in_list)


def encode_column(
    plan: ColumnPlan, array: pa.ChunkedArray, batch_ends: np.ndarray | None
) -> EncodedColumn:
    """Shred, cut, describe and encode one column of one stripe.

    plan: The column's plan; its memories are updated.
    batch_ends: In batch mode ``int64``, shape (batches,): rows up to the end of each batch.
    Raises InvalidArgumentError: For nulls in a non-nullable field, or a chunk larger than the
        format allows.
    """
    streams = shred(array, plan.node)
    encoder = _Encoder(plan, streams)
    encoder.encode(plan.node, batch_ends)
    top = streams.validity.get(plan.node.validity)
    return EncodedColumn(
        [encoder.encoded[ordinal] for ordinal in range(plan.node.stop)],
        encoder.statistics,
        top is False,
    )


class _Encoder:
    """Walks a column's tree once, filling in every stream."""

    def __init__(self, plan: ColumnPlan, streams: ColumnStreams) -> None:
        self._plan, self._streams = plan, streams
        self.encoded: dict[int, EncodedStream] = {}
        self._below_nulls: set[int] = set()
        self.statistics: dict[tuple[str, ...], ColumnStatistics] = {}

    def encode(self, node: Node, batch_ends: np.ndarray | None) -> None:
        """Encode the streams of a node and of all below it."""
        validity = self._streams.validity.get(node.validity)
        self.encoded[node.validity] = self._validity(node, validity, batch_ends)
        if node.kind is NodeKind.LEAF:
            self.encoded[node.stream] = self._data(node, validity, batch_ends)
            return
        if node.kind is NodeKind.LIST:
            offsets = self._streams.offsets[node.stream]
            self.encoded[node.stream] = self._offsets(node, offsets, batch_ends)
            if batch_ends is not None:
                batch_ends = offsets[batch_ends]
        elif node.kind is NodeKind.FIXED_LIST and batch_ends is not None:
            batch_ends = batch_ends * node.storage.list_size
        for child in node.children:
            if validity is not None or node.validity in self._below_nulls:
                self._below_nulls.add(child.validity)
            self.encode(child, batch_ends)

    def _cuts(self, slots: int, slot_bytes: float, batch_ends: np.ndarray | None) -> np.ndarray:
        limits = self._plan.page_limits()
        if batch_ends is None:
            return cut_fixed(slots, slot_bytes, **limits)
        return cut_batches(batch_ends, batch_ends * slot_bytes, **limits)

    def _validity(
        self, node: Node, validity: Bits | bool | None, batch_ends: np.ndarray | None
    ) -> EncodedStream:
        if validity is None:
            return EncodedStream(DEFAULT_CHUNK)
        if not isinstance(validity, Bits):
            return EncodedStream(ALL_NULL_CHUNK)
        cuts = self._cuts(len(validity), VALIDITY_BYTES, batch_ends)
        ones = np.add.reduceat(validity.unpack(), cuts[:-1], dtype=np.int64)
        nulls = np.diff(cuts) - ones
        chunk = self._pages(node.validity, validity, BITS, cuts, None)
        return encoded_stream(chunk, cuts, nulls, np.zeros_like(nulls), null_count=int(nulls.sum()))

    def _offsets(
        self, node: Node, offsets: np.ndarray, batch_ends: np.ndarray | None
    ) -> EncodedStream:
        children = int(offsets[-1])
        if children == 0:
            return EncodedStream(DEFAULT_CHUNK)
        cuts = self._cuts(len(offsets) - 1, OFFSET_BYTES, batch_ends)
        lengths = np.diff(offsets).astype(np.uint32)
        chunk = self._pages(node.stream, lengths, UINT32, cuts, None)
        ends = offsets[cuts]
        return encoded_stream(chunk, cuts, ends[:-1], ends[1:], minimum=0, maximum=children)

    def _data(
        self, node: Node, validity: Bits | bool | None, batch_ends: np.ndarray | None
    ) -> EncodedStream:
        physical = node.physical
        assert physical is not None
        values = self._streams.data.get(node.stream)
        if values is None or len(values) == 0 or validity is False:
            self._empty_statistics(node, validity)
            return EncodedStream(DEFAULT_CHUNK)
        cuts = self._data_cuts(values, physical, batch_ends)
        stream = self._described(node, values, validity, cuts)
        summary = self._plan.is_named(node.stream, self._plan.options.summaries)
        records = content_records(values, validity, node, stream.record.length, summary=summary)
        stream.record.extension.update(records)
        if self._plan.is_named(node.stream, self._plan.options.bloom_filters):
            stream.filters.append(build_bloom(values, validity, node))
        if self._plan.is_named(node.stream, self._plan.options.page_bloom_filters):
            stream.filters.append(build_page_blooms(values, validity, node, cuts))
        return stream

    def _described(
        self, node: Node, values: Values, validity: Bits | bool | None, cuts: np.ndarray
    ) -> EncodedStream:
        plan, physical = self._plan, node.physical
        assert physical is not None
        bits = validity if isinstance(validity, Bits) else None
        chunk = self._pages(node.stream, values, physical, cuts, bits)
        if node.order is Order.NONE or not plan.wants_statistics(node.stream):
            unknown = np.full(len(cuts) - 1, INT64_MIN), np.full(len(cuts) - 1, INT64_MAX)
            nulls = len(values) - validity.count() if isinstance(validity, Bits) else 0
            return encoded_stream(chunk, cuts, *unknown, null_count=nulls)
        sortedness = plan.is_sorted_by
        pages = page_statistics(values, validity, cuts, node, sortedness=sortedness)
        merged = merge(pages, len(values))
        if node.stream in plan.paths:
            self.statistics[plan.paths[node.stream]] = self._as_seen(node, merged)
        stream = encoded_stream(
            chunk,
            cuts,
            pages.min,
            pages.max,
            minimum=merged.min,
            maximum=merged.max,
            flags=int(merged.flags),
            null_count=merged.null_count,
        )
        size = stream.record.length
        stream.record.extension.update(detail_records(values, pages, merged, size))
        return stream

    def _as_seen(self, node: Node, found: ColumnStatistics) -> ColumnStatistics:
        """Statistics of a leaf as a query sees it, through the structs above.

        Below a null struct a required field holds filler, which bounds cover but nobody sees; and
        the rows where the field is null are those of the struct.
        """
        if node.nullable or node.validity not in self._below_nulls:
            return found
        exact = ChunkFlag.MIN_EXACT | ChunkFlag.MAX_EXACT
        return replace(found, null_count=-1, flags=found.flags & ~exact)

    def _empty_statistics(self, node: Node, validity: Bits | bool | None) -> None:
        path = self._plan.paths.get(node.stream)
        if path is None or node.order is Order.NONE:
            return
        if self._plan.wants_statistics(node.stream):
            slots = self._streams.slots.get(node.validity, self._streams.length)
            self.statistics[path] = ColumnStatistics(
                min=INT64_MAX,
                max=INT64_MIN,
                flags=ChunkFlag(EXACT_FLAGS),
                null_count=slots if validity is False else 0,
                nan_count=0,
                rows=slots,
                order=node.order,
            )

    def _data_cuts(
        self, values: Values, physical: PhysicalType, batch_ends: np.ndarray | None
    ) -> np.ndarray:
        if not isinstance(values, BinaryValues):
            slot_bytes = 1 / 8 if physical.kind is PhysicalKind.BITS else physical.width
            return self._cuts(len(values), slot_bytes, batch_ends)
        limits = self._plan.page_limits()
        if batch_ends is None:
            sizes = values.offsets + OFFSET_BYTES * np.arange(len(values.offsets))
            return cut_offsets(sizes, **limits)
        sizes = values.offsets[batch_ends] + OFFSET_BYTES * batch_ends
        return cut_batches(batch_ends, sizes, **limits)

    def _pages(
        self,
        ordinal: int,
        values: Values,
        physical: PhysicalType,
        cuts: np.ndarray,
        validity: Bits | None,
    ) -> EncodedChunk:
        plan = self._plan
        is_data = ordinal in self._streams.data
        if len(values) > CHUNK_SLOTS_MAX:
            raise InvalidArgumentError(
                f"column {plan.node.name!r}: {len(values)} slots in one stripe; at most "
                f"{CHUNK_SLOTS_MAX} fit: lower stripe_rows"
            )
        return encode_chunk(
            values,
            physical,
            cuts,
            options=plan.options,
            validity=validity,
            forced=plan.forced(ordinal) if is_data else None,
            memory=plan.memory(ordinal),
            shared=plan.dictionaries.get(ordinal) if is_data else None,
        )


Leaves = Sequence[tuple[str, Node]]


def check_option_columns(options: WriteOptions, plans: ColumnPlans) -> None:
    """Refuse options that name what the schema lacks, or ask of a column what it cannot have.

    Raises InvalidArgumentError.
    """
    columns = set(plans.names) if options.column_page_bytes else set()
    for name in options.column_page_bytes:
        if name not in columns:
            raise InvalidArgumentError(
                f"column_page_bytes names column {name!r}, which the schema lacks"
            )
    _check_sort_keys(options, plans)
    filtered = {
        "bloom_filters": options.bloom_filters,
        "page_bloom_filters": options.page_bloom_filters,
        "summaries": options.summaries,
    }
    named = [*options.encodings, *options.global_dictionaries]
    for names in filtered.values():
        named += names
    if not isinstance(options.statistics, bool):
        named += options.statistics
    if not named:
        return
    leaves = [each for plan in plans for each in plan.leaves()]
    known = {name for name, _ in leaves} | {plan.node.name for plan in plans}
    for name in named:
        if name not in known:
            raise InvalidArgumentError(f"options name column {name!r}, which the schema lacks")
    _check_encodings(options, leaves)
    scalars = {".".join(path) for plan in plans for path in plan.paths.values()}
    unordered = {name for name, leaf in leaves if leaf.order is Order.NONE}
    for option, name in [(option, name) for option, names in filtered.items() for name in names]:
        if name not in scalars or name in unordered:
            raise InvalidArgumentError(
                f"{option}: column {name!r} is not a scalar of a type with equality"
            )
    shared = {plan.names[stream] for plan in plans for stream in plan.dictionaries}
    for name in options.global_dictionaries:
        if name not in shared:
            raise InvalidArgumentError(
                f"global_dictionaries: column {name!r} has no values that a dictionary can hold"
            )
        if name in options.encodings:
            raise InvalidArgumentError(
                f"column {name!r} has both a global dictionary and a forced encoding"
            )


def _check_sort_keys(options: WriteOptions, plans: ColumnPlans) -> None:
    names = {key.name for key in options.sort_keys}
    for plan in plans if names else ():
        if plan.node.name in names and plan.node.order is Order.NONE:
            raise InvalidArgumentError(
                f"sorted_by: column {plan.node.name!r} is {plan.node.type}, which has no order"
            )


def _check_encodings(options: WriteOptions, leaves: Leaves) -> None:
    physical: dict[str, list[Any]] = {}
    for name, leaf in leaves if options.encodings else ():
        physical.setdefault(name, []).append(leaf.physical)
    for name, encoding in options.encodings.items():
        held = physical.get(name)
        if not held:
            raise InvalidArgumentError(
                f"encodings: column {name!r} has no values of its own; name a field within it"
            )
        for each in held:
            assert each is not None
            try:
                check_forced(encoding, each)
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"encodings: column {name!r}: {error}") from None
        _check_edition(options, selectable(encoding), f"encodings: column {name!r}")


def _check_edition(options: WriteOptions, encoding: Encoding, wanted: str) -> None:
    if isinstance(encoding.id, EncodingId):
        options.check_edition(encoding.id, wanted)
    elif encoding.id not in policy_for(options).settings.encodings:
        raise InvalidArgumentError(
            f"{wanted}: edition {options.edition!r} lacks the encoding {encoding.name}"
        )


def physical_order(names: Sequence[str], first: Sequence[str], where: str) -> Sequence[int]:
    """Ordinals of all columns in the order of their data: those named first, then the others.

    names: Of the schema's columns, in its order; those of one name stay together.
    Raises InvalidArgumentError: A name is not there, or named twice.
    """
    if not first:
        return range(len(names))
    known: dict[str, list[int]] = {name: [] for name in names}
    for ordinal, name in enumerate(names):
        known[name].append(ordinal)
    ordinals: list[int] = []
    repeated = first_repeated(first)
    if repeated is not None:
        raise InvalidArgumentError(f"{where}: column_order names column {repeated!r} twice")
    for name in first:
        if name not in known:
            raise InvalidArgumentError(
                f"{where}: column_order names column {name!r}, which the schema lacks"
            )
        ordinals += known[name]
    chosen = set(ordinals)
    return [*ordinals, *(each for each in range(len(names)) if each not in chosen)]
