"""Reads rows of one stripe: what a filter needs first, then only the rows that it selects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from fermion import arrow_compute as pc
from fermion.columns.arrow_buffers import booleans
from fermion.columns.maps import MapBuilder, are_sorted, entries_of, looked_up, sorted_keys
from fermion.columns.ranges import RowRanges, join_near, mask_within
from fermion.columns.rows import Matches, empty_columns, filter_arrays
from fermion.columns.types import Node, NodeKind, PhysicalKind, column_node, slots_bytes
from fermion.errors import InvalidFileError
from fermion.exports import NamedTuple
from fermion.forks import ThreadPool, cached_property
from fermion.metadata.cmb import ColumnBlock
from fermion.metadata.map_keys import MapKeys, VariantPaths
from fermion.predicate import Expression, VariantValue, evaluate, without_opaque
from fermion.reading.bounds import PrunedRows, StripeBounds
from fermion.reading.chunk_pages import FetchedPages
from fermion.reading.column import GeneralRead
from fermion.reading.encoded_filter import EncodedFilter
from fermion.reading.index import FileIndex
from fermion.reading.many_pages import PickedRead, WholeRead
from fermion.reading.one_page import OnePageRead
from fermion.reading.projection import (
    BoundFilter,
    Projected,
    keys_columns,
    part_columns,
    read_by,
    result_schema,
)
from fermion.reading.strategy import ReadRequest, ReadResult, ReadStrategy
from fermion.statistics.bounds import decoded_bytes

DENSE_FRACTION = 0.25
FEW_ROWS, FEW_BYTES = 32 * 1024, 4 * 1024 * 1024
"""Of a stripe of at most so many rows, in a file of so many bytes, picking rows costs more than to
decode all of them, unless next to none are selected."""
FEW_FRACTION = 1 / 32
TOGETHER_COLUMNS_MAX = 16
"""Columns of such a stripe that are read at once, with those that the filter reads."""
JOIN_ROWS = 512
KEYS_BYTES = 256 * 1024 * 1024
"""Of the columns of a map's keys that are decoded at once."""
INFLATION, OFFSET_BYTES = 4, 4
"""Of values whose size in Arrow no metadata tells: so many times their stored bytes."""

FAST_STRATEGIES = (OnePageRead, WholeRead, PickedRead)
"""In the order in which they are asked; `GeneralRead` gets the columns that all of them leave."""


class StripeReader:
    """Reads columns of a file stripe by stripe, each in the way that fits it.

    executor: Decodes columns side by side; None: one after the other.
    """

    def __init__(self, index: FileIndex, executor: ThreadPool | None) -> None:
        self.index, self.executor = index, executor
        self._general = GeneralRead(index)
        fast: list[ReadStrategy] = [strategy(index) for strategy in FAST_STRATEGIES]
        self._strategies = [*fast, self._general]
        self.bounds = StripeBounds(index)

    @cached_property
    def encoded(self) -> EncodedFilter:
        """Tests filters on encoded pages."""
        return EncodedFilter(self.index)

    def alone(self) -> StripeReader:
        """The same for one thread, while others read other stripes."""
        reader = copy(self)
        reader.executor = None
        return reader

    def rows(self, stripe: int) -> int:
        """Rows of a stripe."""
        return int(self.index.stripe_rows[stripe])

    def batch(
        self,
        columns: Sequence[Projected],
        stripe: int,
        rows: RowRanges | None,
        *,
        kept: FetchedPages | None = None,
        verified: FetchedPages | None = None,
    ) -> pa.RecordBatch:
        """Some rows (None: all) of some columns.

        kept, verified: See `ReadRequest`.
        """
        slots = self.rows(stripe)
        if not columns:
            return empty_columns(slots if rows is None else rows.total)
        schema = result_schema(columns)
        stored = _stored(columns)
        read = [column for column in stored if column is not None]
        maps = self.index.map_keys
        final = [each for each in columns if each.tree is not None and each.ordinal not in maps]
        own = schema if len(final) == len(columns) else None
        result = self._read(
            ReadRequest(read, stripe, slots, rows, self.executor, own, kept, verified or {})
        )
        if result.batch is not None:
            return result.batch
        if own is not None:
            return pa.RecordBatch.from_arrays(list(result.arrays), schema=own)
        arrays = iter(result.arrays)
        return pa.RecordBatch.from_arrays(
            [
                self.bounds.batches.column(column.field.name, stripe, rows)
                if source is None
                else self._made(column, next(arrays), stripe, rows, kept)
                for column, source in zip(columns, stored, strict=True)
            ],
            schema=schema,
        )

    def _made(
        self,
        column: Projected,
        array: pa.Array,
        stripe: int,
        rows: RowRanges | None,
        kept: FetchedPages | None,
    ) -> pa.Array:
        """A column of what is stored of it: a map or Variant of its rest, or a part of it."""
        if isinstance(column.key, VariantValue):
            return self._variant_part(column, column.key, array, stripe, rows, kept)
        if column.of is not None:
            return looked_up(array, column.key)
        keys = self.index.map_keys.get(column.ordinal)
        if isinstance(keys, VariantPaths):
            rest = self._with_offsets(keys, array)
            return self._whole_variant(keys, rest, stripe, rows, kept)
        return array if keys is None else self._whole_map(keys, array, stripe, rows, kept)

    def _with_offsets(self, keys: VariantPaths, rest: pa.Array) -> pa.Array:
        """What columns of paths leave of Variant values, as values."""
        if not self.index.footer.has_variant_ranks or rest.type == pa.struct([]):
            return rest
        return keys.with_offsets(rest)

    def _whole_variant(
        self,
        keys: VariantPaths,
        rest: pa.Array,
        stripe: int,
        rows: RowRanges | None,
        kept: FetchedPages | None,
    ) -> pa.Array:
        """The Variant values of some rows, with the values of the columns of their paths."""
        places = np.flatnonzero(self.index.cit.ranges(keys.ordinals)[:, 1] > 0).tolist()
        arrays = self._of_paths(keys_columns(keys, places), stripe, rows, kept)
        return keys.tree.assemble(rest, places, arrays, keys.where)

    def _variant_part(
        self,
        column: Projected,
        value: VariantValue,
        array: pa.Array,
        stripe: int,
        rows: RowRanges | None,
        kept: FetchedPages | None,
    ) -> pa.Array:
        """A part of the Variant values of some rows: of a path's column, the rest, or both."""
        from fermion.predicate.variant_value import PrunedVariant  # few files have Variant columns

        assert column.of is not None
        keys = self.index.map_keys.get(column.of.ordinal)
        if not isinstance(keys, VariantPaths):
            return value.values_of(array)
        beside, array = part_columns(keys, value), self._with_offsets(keys, array)
        if beside is None:
            return value.values_of(self._whole_variant(keys, array, stripe, rows, kept))
        arrays = self._of_paths(beside, stripe, rows, kept)
        if isinstance(value, PrunedVariant):
            places = [each.ordinal - keys.first for each in beside]
            if array.type != pa.struct([]):
                return keys.tree.assemble(array, places, arrays, keys.where)
            return value.assemble(array, keys.kinds[places], arrays, keys.where)
        found = value.values_of(array)
        for own in arrays:
            found = pc.coalesce(value.values_of(own), found)
        return found

    def _of_paths(
        self,
        columns: Sequence[Projected],
        stripe: int,
        rows: RowRanges | None,
        kept: FetchedPages | None,
    ) -> Sequence[Any]:
        slots = self.rows(stripe)
        request = ReadRequest(columns, stripe, slots, rows, self.executor, None, kept)
        return self._read(request).arrays

    def _whole_map(
        self,
        keys: MapKeys,
        rest: pa.MapArray,
        stripe: int,
        rows: RowRanges | None,
        kept: FetchedPages | None,
    ) -> pa.MapArray:
        """The maps of some rows, with the entries of the columns of their keys."""
        has_data = self.index.cit.ranges(keys.ordinals)[:, 1] > 0
        if not has_data.any() and are_sorted(rest):
            return rest
        entries = entries_of(rest)
        coded = entries.keys.dictionary_encode()
        names = {key: place for place, key in enumerate(keys.keys)}
        try:
            places = [names.setdefault(key, len(names)) for key in coded.dictionary.to_pylist()]
        except UnicodeDecodeError as error:
            raise InvalidFileError(f"{keys.where}: a key that is no text: {error}") from None
        listed = list(names)
        order = sorted_keys(listed)
        ranks = np.empty(len(listed), np.int64)
        ranks[order] = np.arange(len(listed))
        found = np.array(places, np.int64)[coded.indices.to_numpy()]
        valid = entries.items.is_valid().to_numpy(zero_copy_only=False)
        if (valid & (found < keys.count)).any():
            raise InvalidFileError(f"{keys.where}: a key that has a column is in the map, too")
        builder = MapBuilder(rest, ranks[found], keys.node, keys.where)
        slots, node = self.rows(stripe), keys.node
        leaves = [each.physical for each in node.walk() if each.physical is not None]
        width = sum(slots_bytes(physical, slots) for physical in leaves)
        step = max(KEYS_BYTES // max(width, 1), 1)
        with_columns = [place for place in order if place < keys.count and has_data[place]]
        for start in range(0, max(len(with_columns), 1), step):
            some, later = with_columns[start : start + step], with_columns[start + step :][:1]
            columns = keys_columns(keys, some)
            request = ReadRequest(columns, stripe, slots, rows, self.executor, None, kept)
            request.is_joined = node.form is not None and chr(node.form[0]) in "iuf"
            result = self._read(request)
            stop = int(ranks[later[0]]) if later else len(listed)
            if result.joined is None:
                builder.add(ranks[some], result.arrays, stop)
            else:
                own, values = result.joined
                builder.add(ranks[some][own], [values], stop)
        return builder.build(pa.array([listed[place] for place in order], keys.dtype.key_type))

    def _all_stored(self, columns: Sequence[Projected]) -> list[Projected]:
        """What is stored of columns, with the columns of keys of whole maps and Variants."""
        found = [source for source in _stored(columns) if source is not None]
        for column in columns if (maps := self.index.map_keys) else ():
            keys = maps.get((column if column.of is None else column.of).ordinal)
            if isinstance(column.key, VariantValue) and isinstance(keys, VariantPaths):
                beside = part_columns(keys, column.key)
                found += keys_columns(keys) if beside is None else beside
            elif column.tree is not None and keys is not None:
                found += keys_columns(keys)
        return found

    def _read(self, request: ReadRequest) -> ReadResult:
        """Ask the strategies in order, each for the columns that those before it have left."""
        arrays: list[pa.Array | None] = [None] * len(request.columns)
        left: Sequence[int] = range(len(arrays))
        for strategy in self._strategies:
            if not left:
                break
            if not strategy.applies(request):
                continue
            result = strategy.read(request)
            is_whole = (result.batch or result.joined) is not None or None not in result.arrays
            if len(left) == len(arrays) and is_whole:
                return result
            for place, array in zip(left, result.arrays, strict=True):
                arrays[place] = array
            missing = [at for at, array in enumerate(result.arrays) if array is None]
            request = request.only(missing, result.fetched)
            left = [left[at] for at in missing]
        return ReadResult(arrays, {})

    def selected(
        self,
        columns: Sequence[Projected],
        stripe: int,
        rows: RowRanges | None,
        kept: FetchedPages | None = None,
    ) -> pa.RecordBatch:
        """`batch` where rows may be missing here and there: small gaps are read and left out."""
        if rows is None or not rows:
            return self.batch(columns, stripe, rows, kept=kept)
        joined = join_near(rows, JOIN_ROWS)
        if rows.total <= joined.total * DENSE_FRACTION:
            return self.batch(columns, stripe, rows, kept=kept)
        batch = self.batch(columns, stripe, self.unless_all(joined, stripe), kept=kept)
        if joined.total == rows.total:
            return batch
        return _filtered(columns, batch.columns, mask_within(rows, joined))

    def unless_all(self, rows: RowRanges, stripe: int) -> RowRanges | None:
        """The rows; None where they are all rows of the stripe."""
        return None if rows.total == self.rows(stripe) else rows

    def fetch(
        self, columns: Sequence[Projected], stripe: int, rows: RowRanges, kept: FetchedPages
    ) -> None:
        """Fetch pages that hold some rows of columns, together; of lists only the outer offsets."""
        missing = self._places(columns, stripe, rows).difference(kept)
        kept.update(zip(missing, self.index.source.read_many(list(missing)), strict=True))

    def stored_bytes(self, columns: Sequence[Projected], stripe: int) -> int:
        """Bytes of the pages of some columns of a stripe."""
        return sum(length for _, length in self._places(columns, stripe, None))

    def arrow_bytes(self, columns: Sequence[Projected], stripe: int) -> int:
        """Bytes of some columns of a stripe in Arrow; about, where metadata does not say it."""
        rows, stored = self.rows(stripe), self._all_stored(columns)
        trees = {column.ordinal: column.tree for column in stored if column.tree is not None}
        own = {key: _fixed_bytes(tree, rows) for key, tree in trees.items()}
        others = [key for key, size in own.items() if size is None]  # whose metadata is read
        sizes = [
            _arrow_bytes(trees[key], block, stripe, rows)
            for key, block in zip(others, self.index.blocks(others), strict=True)
            if block is not None
        ]
        return sum(sizes) + sum(size for size in own.values() if size is not None)

    def _places(
        self, columns: Sequence[Projected], stripe: int, rows: RowRanges | None
    ) -> set[tuple[int, int]]:
        tasks = self._general.tasks(self._all_stored(columns), stripe, rows)
        return {page for task in tasks for page in task.plan()}


class Query(NamedTuple):
    """What is asked of a file: columns of the rows that a filter selects.

    rows: Of the file, before the filter; None: all.
    """

    columns: Sequence[Projected]
    filter: BoundFilter
    rows: RowRanges | None


class Chosen(NamedTuple):
    """Rows of a stripe that a filter selects.

    rows: How many they are; 0 too where all rows are decoded, as the stripe is small.
    read: Reads them with a reader of the file; gives None where there are none.
    """

    rows: int
    read: Callable[[StripeReader], pa.RecordBatch | None]


class StripeFilter:
    """The rows of one stripe that a filter selects.

    filter: With an expression.
    """

    def __init__(
        self,
        stripes: StripeReader,
        stripe: int,
        filter: BoundFilter,
        columns: Sequence[Projected] = (),
    ) -> None:
        assert filter.expression is not None
        self._stripes, self._stripe, self._columns = stripes, stripe, columns
        self._filter = filter
        self._expression, self._filter_columns = filter.expression, filter.columns
        self._slots = stripes.rows(stripe)
        self.kept: FetchedPages | None = None
        """Pages that stay here from one call to the next; None: none do."""

    @cached_property
    def pruned(self) -> PrunedRows:
        """The rows that statistics leave."""
        return self._stripes.bounds.prune(self._filter, self._stripe)

    def find(self, within: RowRanges | None) -> RowRanges:
        """Which rows of a set (None: all) match; reads only rows that statistics do not decide."""
        may, must = self.pruned
        if not may:
            return may
        undecided = may & must.complement(self._slots)
        if within is not None:
            undecided = undecided & join_near(within, JOIN_ROWS)
        mask = self._tested(undecided).mask
        matching = must | RowRanges.from_indices(undecided.to_indices()[mask])
        return matching if within is None else matching & within

    def read(self, within: RowRanges | None) -> pa.RecordBatch | None:
        """The rows of a set (None: all) that match; None where there are none."""
        return self.choose(within).read(self._stripes)

    def choose(self, within: RowRanges | None) -> Chosen:
        """The rows of a set (None: all) that match, not read yet."""
        may, must = self.pruned
        wanted, certain = (may, must) if within is None else (may & within, must & within)
        if wanted == certain:
            columns, stripe, kept = self._columns, self._stripe, self.kept
            rows = self._stripes.unless_all(wanted, stripe)
            return Chosen(
                wanted.total,
                lambda reader: reader.selected(columns, stripe, rows, kept) if wanted else None,
            )
        if not certain and self._is_read_together(may):
            return Chosen(0, lambda reader: self._together(reader, within))
        around = may if within is None else may & join_near(within, JOIN_ROWS)
        matches = self.matches(wanted, around)
        count = matches.count()
        return Chosen(count, lambda reader: self._matched(reader, matches, count))

    def _is_read_together(self, may: RowRanges) -> bool:
        """Whether all columns of the stripe are read before the filter is looked at."""
        count = len(self._columns) + len(self._filter_columns)
        return (
            count <= TOGETHER_COLUMNS_MAX
            and len(self._filter_columns) > 0
            and self.kept is None
            and self._stripes.index.is_local
            and self._is_small
            and may.total == self._slots
        )

    @property
    def _is_small(self) -> bool:
        """Whether picking rows of the stripe costs more than to decode all of them."""
        return self._slots <= FEW_ROWS and self._stripes.index.footer.cmb_offset <= FEW_BYTES

    def _together(self, reader: StripeReader, within: RowRanges | None) -> pa.RecordBatch | None:
        """The rows that match, of a small stripe: all columns are read, then rows are chosen."""
        read, count = list(self._filter_columns), len(self._filter_columns)
        own = {_key(column): place for place, column in enumerate(read)}
        places = []
        for column in self._columns:
            place = own.get(_key(column))
            if place is None or not _is_reusable(read[place].field.type, column):
                place = len(read)
                read.append(column)
            places.append(place)
        arrays = reader.batch(read, self._stripe, None).columns
        tested = pa.RecordBatch.from_arrays(
            arrays[:count], schema=result_schema(self._filter_columns)
        )
        mask = self._mask(self._expression, tested)
        if within is not None:
            mask &= within.to_mask(len(mask))
        if not mask.any():
            return None
        return _filtered(self._columns, [arrays[place] for place in places], mask)

    def matches(self, wanted: RowRanges, around: RowRanges) -> Matches:
        """Which of the wanted rows match; ``around`` holds them, and is read."""
        matches = self._tested(around)
        if wanted.total < around.total:
            matches = replace(matches, mask=matches.mask & mask_within(wanted, around))
        return matches

    def _tested(self, around: RowRanges) -> Matches:
        """Which of some rows match, and the filter's columns over them, or their pages."""
        if not around:
            return Matches(around, np.zeros(0, bool), None)
        if self.kept is None:
            matches = self._tested_encoded(around)
            if matches is not None:
                return matches
        rows = self._stripes.unless_all(around, self._stripe)
        batch = self._stripes.batch(self._filter_columns, self._stripe, rows, kept=self.kept)
        return Matches(around, self._mask(self._expression, batch), batch.columns)

    def _tested_encoded(self, around: RowRanges) -> Matches | None:
        """The same, where it needs no decoding but of what opaque parts read, in the rows that the
        other parts select; else None."""
        easy, rest = without_opaque(self._expression)
        if easy is None:
            return None
        reader, stripe = self._stripes, self._stripe
        result = reader.encoded.find(
            easy,
            read_by(easy, self._filter_columns),
            stripe,
            reader.unless_all(around, stripe),
            reader.executor,
        )
        if result is None:
            return None
        mask = result.mask
        if rest is not None and mask.any():
            rows = RowRanges.from_indices(around.to_indices()[mask])
            columns = read_by(rest, self._filter_columns)
            batch = reader.selected(columns, stripe, reader.unless_all(rows, stripe))
            mask = mask.copy()
            mask[mask] = self._mask(rest, batch)
        return Matches(around, mask, None, result.pages)

    def _mask(self, expression: Expression, rows: pa.RecordBatch) -> np.ndarray:
        """Whether each of some rows matches: ``bool``."""
        try:
            flags = evaluate(expression, rows)
            flags = pc.fill_null(flags, False) if flags.null_count else flags
        except pa.ArrowException as error:  # such as decimals with more digits than their type
            raise InvalidFileError(
                f"{self._stripes.index.where}: stripe {self._stripe}: values that cannot be "
                f"compared: {error}"
            ) from error
        mask: np.ndarray = booleans(flags).unpack()
        return mask

    def matched(self, matches: Matches) -> pa.RecordBatch | None:
        """The rows that match, without reading the filter's columns again; None where none do."""
        return self._matched(self._stripes, matches, matches.count())

    def _matched(self, reader: StripeReader, matches: Matches, count: int) -> pa.RecordBatch | None:
        if not count:
            return None
        columns = self._columns
        if not columns:
            return empty_columns(count)
        arrays = dict(zip(map(_key, self._filter_columns), matches.arrays or (), strict=False))
        at_hand: list[Projected] = []
        others: list[Projected] = []
        for column in columns:
            array = arrays.get(_key(column))
            is_at_hand = array is not None and _is_reusable(array.type, column)
            (at_hand if is_at_hand else others).append(column)
        rest = self._survivors(reader, others, matches, count) if others else []
        mine = [arrays[_key(column)] for column in at_hand]
        if at_hand:
            mine = _filtered_arrays(at_hand, mine, matches.mask)
        places = {
            id(column): array
            for column, array in zip((*at_hand, *others), (*mine, *rest), strict=True)
        }
        return pa.RecordBatch.from_arrays(
            [places[id(column)] for column in columns], schema=result_schema(columns)
        )

    def _survivors(
        self, reader: StripeReader, columns: Sequence[Projected], matches: Matches, count: int
    ) -> list[pa.Array]:
        """Columns the filter did not read: only the selected rows, unless they are many."""
        mask, around, stripe = matches.mask, matches.around, self._stripe
        is_few = self.kept is None and self._is_small
        if count > (FEW_FRACTION if is_few else DENSE_FRACTION) * len(mask):
            rows = reader.unless_all(around, stripe)
            batch = reader.batch(columns, stripe, rows, kept=self.kept)
            return _filtered_arrays(columns, batch.columns, mask)
        wanted = np.flatnonzero(mask)
        if len(around) == 1:
            wanted = wanted + around.starts[0]
        else:
            wanted = around.to_indices()[wanted]
        rows = RowRanges.from_listed(wanted)
        return reader.batch(columns, stripe, rows, kept=self.kept, verified=matches.pages).columns


def _fixed_bytes(node: Node, slots: int) -> int | None:
    """Bytes of values of one size in Arrow, without validity; None of others."""
    if node.kind is not NodeKind.LEAF or node.physical is None:
        return None
    return None if node.physical.kind is PhysicalKind.BINARY else slots * node.physical.width


def _arrow_bytes(node: Node, block: ColumnBlock, stripe: int, slots: int | None) -> int:
    """Bytes of a tree's values in Arrow, with their offsets, without validity.

    slots: How many values it has; None where only its pages say it, as below lists.
    """
    if node.kind is NodeKind.LEAF:
        chunk = block.chunk(node.stream, stripe)
        fixed = None if slots is None else _fixed_bytes(node, slots)
        if fixed is not None:
            return fixed
        size = decoded_bytes(block.extension(chunk)) if chunk.extension_offset else None
        return (chunk.length * INFLATION if size is None else size) + OFFSET_BYTES * (slots or 0)
    below, own = slots, 0
    if node.kind is NodeKind.FIXED_LIST:
        below = None if slots is None else slots * node.storage.list_size
    elif node.kind is NodeKind.LIST:
        below, own = None, OFFSET_BYTES * (slots or 0)
    return own + sum(_arrow_bytes(child, block, stripe, below) for child in node.children)


def _stored(columns: Sequence[Projected]) -> list[Projected | None]:
    """What is stored of columns; None of one of batch mode."""
    return [column if column.tree is not None else column.of for column in columns]


def _key(column: Projected) -> int | str:
    """What tells a column's values from others': its ordinal, or the name of a virtual one."""
    return column.ordinal if column.tree is not None else column.field.name


def _is_reusable(dtype: pa.DataType, column: Projected) -> bool:
    """Whether values that the filter read, of a type, are the column's as it is asked for."""
    return bool(dtype == column.field.type) and column.shared is None


def _filtered(
    columns: Sequence[Projected], arrays: Sequence[pa.Array], mask: np.ndarray
) -> pa.RecordBatch:
    if not columns:
        return empty_columns(int(np.count_nonzero(mask)))
    chosen = _filtered_arrays(columns, arrays, mask)
    return pa.RecordBatch.from_arrays(chosen, schema=result_schema(columns))


def _filtered_arrays(
    columns: Sequence[Projected], arrays: Sequence[pa.Array], mask: np.ndarray
) -> list[pa.Array]:
    return filter_arrays(
        arrays, mask, lambda place: columns[place].node or column_node(columns[place].field)
    )
