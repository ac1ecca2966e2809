"""The general way to read columns: plan pages, fetch them together, decode, assemble arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from fermion.columns import slots as rearrange
from fermion.columns.assemble import assemble
from fermion.columns.filled import check_filled
from fermion.columns.ranges import RowRanges
from fermion.columns.types import (
    BITS,
    UINT32,
    Bits,
    ColumnStreams,
    Node,
    NodeKind,
    PhysicalType,
    Values,
)
from fermion.columns.validity import Validity, settled, to_flags
from fermion.errors import ChecksumError, InvalidFileError
from fermion.exports import NamedTuple
from fermion.forks import ThreadPool, cached_property
from fermion.io.source import CountingSource
from fermion.layout import ALL_NULL_LENGTH
from fermion.metadata.cmb import Chunk, ColumnBlock
from fermion.pages.global_dictionary import DictionaryRecord, GlobalDictionaries, entries_array
from fermion.reading.chunk_pages import FetchedPages
from fermion.reading.plan import (
    PageSpan,
    StreamPlan,
    plan_stream,
    positions,
    times,
    validity_ranges,
)
from fermion.reading.projection import Projected
from fermion.reading.strategy import (
    ReadRequest,
    ReadResult,
    ReadStrategy,
    is_worth_threads,
    run_by_size,
    run_each,
)
from fermion.reading.stream import DecodeOptions, FetchedStream, PageValidity


class GeneralRead(ReadStrategy):
    """Columns of every type and encoding, any rows of them: the last of the strategies.

    It plans which pages hold the rows, fetches those of all columns together, and decodes and
    assembles column by column. It says what is wrong with damaged ones.
    """

    @cached_property
    def _options(self) -> DecodeOptions:
        where = self._index.where
        return DecodeOptions(self._checks, where, GlobalDictionaries(where))

    def applies(self, request: ReadRequest) -> bool:
        return True

    def read(self, request: ReadRequest) -> ReadResult:
        tasks = self.tasks(request.columns, request.stripe, request.rows)
        keep, pages = request.kept is not None, request.kept
        if pages is None:
            pages = request.verified | request.fetched
        source, executor = self._index.source, request.executor
        arrays = read_columns(source, tasks, executor, pages, keep=keep)
        return ReadResult(
            [
                self._finished(column, task, array)
                for column, task, array in zip(request.columns, tasks, arrays, strict=True)
            ],
            {},
        )

    def tasks(
        self, columns: Sequence[Projected], stripe: int, rows: RowRanges | None
    ) -> list[ColumnTask]:
        """What reads some rows (None: all) of each of some stored columns."""
        slots = int(self._index.stripe_rows[stripe])
        blocks = self._index.blocks(column.ordinal for column in columns)
        return [
            ColumnTask(
                node, block, stripe, slots, rows, self._options, as_dictionary=column.as_dictionary
            )
            for column, block in zip(columns, blocks, strict=True)
            if (node := column.node) is not None
        ]

    def _finished(self, column: Projected, task: ColumnTask, array: pa.Array) -> pa.Array:
        """A column's array, with the dictionary that it had when written, or that all its batches
        share."""
        node, record, dictionaries = task.node, column.shared, self._options.dictionaries
        array = self._index.restored(node, column.ordinal, task.stripe, array)
        if record is None or (physical := node.physical) is None:
            return array
        if not dictionaries.knows(record, physical):  # all is null so far
            self._index.source.read_checked(
                [record.place], lambda data: dictionaries.add(record, data[0], physical)
            )
        shared, wanted = dictionaries.share(array, record, node), column.field.type
        if shared.type == wanted:
            return shared
        indices = shared.indices.cast(wanted.index_type)
        return pa.DictionaryArray.from_arrays(indices, shared.dictionary, ordered=wanted.ordered)


class _Level(NamedTuple):
    """A subtree, and the slots wanted of it.

    ranges: None: all.
    slots: All that the stripe has; -1: not known yet.
    """

    node: Node
    ranges: RowRanges | None
    slots: int

    @property
    def wanted(self) -> int:
        """How many are wanted."""
        return self.slots if self.ranges is None else self.ranges.total

    def below(self) -> Iterator[_Level]:
        """The children of a struct, and the child of lists of one size."""
        node, ranges, slots = self
        if node.kind is NodeKind.FIXED_LIST:
            size = node.storage.list_size
            ranges, slots = times(ranges, size), slots * size if slots >= 0 else -1
        for child in node.children:
            yield _Level(child, ranges, slots)


class ColumnTask:
    """Reads one column of one stripe in rounds: plan, fetch, decode, until every level is there.

    One round is enough for all rows, and for flat columns; a part of a nested column takes one
    more for each list level whose offsets have to be seen before its children's slots are known.
    """

    __slots__ = (
        "_as_dictionary",
        "_coded",
        "_executor",
        "_frontier",
        "_options",
        "_page_validity",
        "_planned",
        "_shared",
        "_taken",
        "block",
        "node",
        "rows",
        "streams",
        "stripe",
    )

    def __init__(
        self,
        node: Node,
        block: ColumnBlock | None,
        stripe: int,
        rows: int,
        ranges: RowRanges | None,
        options: DecodeOptions,
        *,
        as_dictionary: bool = False,
    ) -> None:
        wanted = rows if ranges is None else ranges.total
        self.node, self.block, self.stripe, self.rows = node, block, stripe, wanted
        self.streams = ColumnStreams(wanted)
        self._options, self._as_dictionary = options, as_dictionary
        self._executor: ThreadPool | None = None
        self._coded: tuple[np.ndarray, Values] | None = None
        self._shared: DictionaryRecord | None = None
        self._frontier = [_Level(node, ranges, rows)] if block is not None else []
        self._planned: dict[int, StreamPlan | Chunk] = {}
        self._taken: dict[int, list[memoryview]] = {}
        self._page_validity: dict[int, PageValidity] = {}

    def plan(self) -> list[tuple[int, int]]:
        """The byte ranges that the next round needs; empty when none does."""
        requests: list[tuple[int, int]] = []
        for level in self._frontier:
            self._plan_level(level, requests)
        return requests

    @property
    def is_done(self) -> bool:
        """Whether every level was decoded."""
        return not self._frontier

    def _plan_level(self, level: _Level, requests: list[tuple[int, int]]) -> None:
        node, ranges, slots = level
        self._plan_stream(node.validity, self._around(node, ranges), slots, requests)
        if node.kind is NodeKind.LEAF:
            self._plan_stream(node.stream, ranges, slots, requests, physical=node.physical)
        elif node.kind is NodeKind.LIST:
            self._plan_stream(node.stream, ranges, slots, requests, from_page_start=True)
            if ranges is None:
                self._plan_level(_Level(node.children[0], None, -1), requests)
        else:
            for below in level.below():
                self._plan_level(below, requests)

    def _around(self, node: Node, ranges: RowRanges | None) -> RowRanges | None:
        """The slots whose validity is needed.

        More than the wanted ones where the pages that hold those leave their null slots out.
        """
        if ranges is None or node.kind is not NodeKind.LEAF:
            return ranges
        assert self.block is not None
        return validity_ranges(self.block, self.block.chunk(node.stream, self.stripe), ranges)

    def _plan_stream(
        self,
        ordinal: int,
        ranges: RowRanges | None,
        slots: int,
        requests: list[tuple[int, int]],
        *,
        from_page_start: bool = False,
        physical: PhysicalType | None = None,
    ) -> None:
        assert self.block is not None
        chunk = self.block.chunk(ordinal, self.stripe)
        if chunk.is_empty:
            self._planned[ordinal] = chunk
            return
        plan = plan_stream(self.block, chunk, ranges, slots, from_page_start=from_page_start)
        known = self._options.dictionaries
        if plan.shared is not None and physical and known.knows(plan.shared, physical):
            plan = replace(plan, dictionary=None)
        self._planned[ordinal] = plan
        if plan.dictionary is not None:
            requests.append(plan.dictionary)
        requests.extend((span.offset, span.length) for span in plan.spans)

    def feed(self, buffers: Sequence[memoryview], executor: ThreadPool | None = None) -> None:
        """Decode what `plan` asked for, in its order; pages side by side on other threads."""
        self._executor = executor
        frontier, self._frontier = self._frontier, []
        try:
            self._decode(frontier, buffers)
        except InvalidFileError as error:
            if isinstance(error, ChecksumError):
                self._frontier = frontier  # the same may be fed again, read once more
            message, place = str(error), f"column {self.node.name!r}, stripe {self.stripe}"
            if place in message:
                raise
            raise type(error)(f"{message} ({place})") from error
        self._planned, self._taken = {}, {}

    def _decode(self, frontier: Sequence[_Level], buffers: Sequence[memoryview]) -> None:
        supply = iter(buffers)
        for ordinal, plan in self._planned.items():
            if isinstance(plan, StreamPlan):
                count = len(plan.spans) + (plan.dictionary is not None)
                self._taken[ordinal] = [next(supply) for _ in range(count)]
        for level in frontier:
            self._decode_level(level)

    def _decode_level(self, level: _Level) -> None:
        node, streams = level.node, self.streams
        streams.slots[node.validity] = level.wanted
        streams.validity[node.validity] = self._validity(level)
        if node.stream >= 0:
            streams.slots[node.stream] = level.wanted
        if node.kind is NodeKind.LEAF:
            values = self._data(level)
            if values is not None:
                streams.data[node.stream] = values
        elif node.kind is NodeKind.LIST:
            self._decode_list(level)
        else:
            for below in level.below():
                self._decode_level(below)

    def _validity(self, level: _Level) -> Bits | bool | None:
        node, ranges, slots = level
        plan = self._planned[node.validity]
        found: Validity
        if isinstance(plan, Chunk):
            missing = plan.length == ALL_NULL_LENGTH or node.kind is NodeKind.NULL
            found = False if missing and level.wanted else None
            if self._needs_validity(node):
                self._page_validity[node.stream] = PageValidity(found, None, self._error)
            return found
        around = self._around(node, ranges)
        bits = self._fetched(node.validity, BITS).values(around, slots)
        assert isinstance(bits, Bits)
        known = PageValidity(settled(bits), around, self._error)
        if self._needs_validity(node):
            self._page_validity[node.stream] = known
        return known.of_slots(ranges)

    def _needs_validity(self, node: Node) -> bool:
        """Whether the pages of a leaf's values cannot be read without its validity."""
        plan = self._planned.get(node.stream)
        return isinstance(plan, StreamPlan) and plan.nulls_removed

    def _data(self, level: _Level) -> Values | None:
        """The values of a leaf; None where all are null, which needs no memory yet."""
        node, ranges, slots = level
        assert node.physical is not None
        if isinstance(self._planned[node.stream], Chunk):
            if not level.wanted:
                return rearrange.blank_values(node.physical, 0)
            if self.streams.validity[node.validity] is not False:
                raise self._error(f"stream {node.stream} has no data for {level.wanted} slots")
            return None
        fetched = self._fetched(node.stream, node.physical)
        self._shared = fetched.plan.shared
        valid = self._page_validity.get(node.stream)
        if self._as_dictionary:
            self._coded = fetched.codes(ranges, slots, valid)
            if self._coded is not None:
                return rearrange.blank_values(node.physical, 0)
        return fetched.values(ranges, slots, valid)

    def _fetched(self, ordinal: int, physical: PhysicalType) -> FetchedStream:
        plan, taken = self._planned[ordinal], self._taken[ordinal]
        assert isinstance(plan, StreamPlan)
        return FetchedStream(plan, taken, physical, self._options, self._error, self._executor)

    def _error(self, what: str) -> InvalidFileError:
        return InvalidFileError(
            f"{self._options.where}: column {self.node.name!r}, stripe {self.stripe}: {what}"
        )

    def _decode_list(self, level: _Level) -> None:
        node, ranges, slots = level
        child = node.children[0]
        if isinstance(self._planned[node.stream], Chunk):
            self.streams.offsets[node.stream] = np.zeros(level.wanted + 1, np.int64)
            below: RowRanges | None = RowRanges.empty()
            offsets = None
        else:
            fetched = self._fetched(node.stream, UINT32)
            spans, lengths = fetched.spans(slots), fetched.decode(slots)
            assert isinstance(lengths, np.ndarray)
            offsets = self._child_offsets(spans, lengths)
            below = self._child_ranges(node, spans, ranges, offsets, lengths)
        if ranges is None:
            below_slots = int(offsets[-1]) if offsets is not None and len(offsets) else 0
            self._decode_level(_Level(child, None, below_slots))
        else:
            self._frontier.append(_Level(child, below, self._child_slots(node)))

    def _child_offsets(self, spans: tuple[PageSpan, ...], lengths: np.ndarray) -> np.ndarray:
        """First child slot of every decoded list and one past the last: int64, per span closed."""
        parts, at = [], 0
        for span in spans:
            count = span.stop - span.start
            own = np.empty(count + 1, np.int64)
            own[0] = span.child_base
            np.cumsum(lengths[at : at + count], dtype=np.int64, out=own[1:])
            own[1:] += span.child_base
            whole = span.stop == span.slots
            if span.child_stop >= 0 and (
                own[-1] > span.child_stop or (whole and own[-1] != span.child_stop)
            ):
                raise self._error(
                    f"lists of the page at {span.offset} reach child slot {own[-1]}, "
                    f"expected {span.child_stop}"
                )
            parts.append(own if len(spans) == 1 else own[:-1])
            at += count
        if len(spans) > 1:
            parts.append(own[-1:])
        return np.concatenate(parts) if parts else np.zeros(1, np.int64)

    def _child_ranges(
        self,
        node: Node,
        spans: tuple[PageSpan, ...],
        ranges: RowRanges | None,
        offsets: np.ndarray,
        lengths: np.ndarray,
    ) -> RowRanges | None:
        if ranges is None:
            if len(lengths) != self.streams.slots[node.stream] or offsets[0]:
                raise self._error(
                    f"stream {node.stream}: expected {self.streams.slots[node.stream]} lists from "
                    f"child slot 0 on, found {len(lengths)} from {offsets[0]}"
                )
            self.streams.offsets[node.stream] = offsets
            return None
        if not spans:
            self.streams.offsets[node.stream] = np.zeros(1, np.int64)
            return RowRanges.empty()
        starts, stops = positions(spans, ranges)
        chosen = lengths[RowRanges.from_bounds(starts, stops).to_indices()]
        own = np.zeros(len(chosen) + 1, np.int64)
        np.cumsum(chosen, dtype=np.int64, out=own[1:])
        self.streams.offsets[node.stream] = own
        # Ranges that touch among the decoded lists may be far apart among the children.
        return RowRanges.from_bounds(offsets[starts], offsets[stops - 1] + lengths[stops - 1])

    def _child_slots(self, node: Node) -> int:
        assert self.block is not None
        chunk = self.block.chunk(node.stream, self.stripe)
        pages = self.block.pages(chunk)
        if chunk.is_empty:
            return 0
        return int(pages["maxVal"][-1]) if pages is not None else -1

    def array(self) -> pa.Array:
        """The rows as an Arrow array of the column's exact type."""
        if self.block is None:
            return null_column(self.node, self.rows, self._options.where)
        if self._coded is not None:
            return self._dictionary_array(*self._coded)
        node = self.node
        if self._as_dictionary:  # by our own means: Arrow's do not know all types
            node = replace(node, type=pa.dictionary(pa.int32(), node.storage))
        return assemble(node, self.streams)

    def _dictionary_array(self, codes: np.ndarray, values: Values) -> pa.Array:
        known = self._options.dictionaries
        shared = self._shared and known.array(self._shared, self.node)
        entries = entries_array(self.node, values) if shared is None else shared
        validity = self.streams.validity[self.node.validity]
        mask = None if validity is None else ~to_flags(validity, len(codes))
        indices = pa.array(codes.astype(np.int32), mask=mask)
        return pa.DictionaryArray.from_arrays(indices, entries)


def null_column(node: Node, rows: int, where: str) -> pa.Array:
    """The rows of a column that has no CMB: nothing but nulls."""
    if rows and not node.nullable:
        raise InvalidFileError(
            f"{where}: column {node.name!r} has no CMB, which means null in every row, "
            "but the field is not nullable"
        )
    check_filled(node.storage, rows, f"{where}: column {node.name!r}")
    streams = ColumnStreams(rows)
    rearrange.blank(node, rows, streams)
    return assemble(node, streams)


def read_columns(
    source: CountingSource,
    tasks: Sequence[ColumnTask],
    executor: ThreadPool | None,
    pages: FetchedPages,
    *,
    keep: bool = False,
) -> list[pa.Array]:
    """Fetch, decode and assemble some columns of one stripe.

    Pages of all columns are fetched together, so that neighbours share requests; columns are
    decoded side by side where there is an executor. What ``pages`` holds is not fetched again;
    ``keep`` adds what is fetched.
    """
    pending, threads = list(tasks), None
    while pending := [task for task in pending if not task.is_done]:
        wanted = [task.plan() for task in pending]
        missing = [place for ranges in wanted for place in ranges if place not in pages]
        fetched = dict(zip(missing, source.read_many(missing), strict=True))
        supplied = [
            [pages[place] if place in pages else fetched[place] for place in ranges]
            for ranges in wanted
        ]
        if keep:
            pages.update(fetched)
        sizes = [sum([length for _, length in ranges]) for ranges in wanted]
        slots = sum([task.rows for task in pending])
        threads = executor if is_worth_threads(slots, sum(sizes)) else None
        if len(pending) == 1:
            feed_checked(source, pages, pending[0], wanted[0], supplied[0], threads)
        else:
            feed = partial(feed_checked, source, pages)
            run_by_size(threads, feed, sizes, slots, pending, wanted, supplied)
    return run_each(threads, ColumnTask.array, tasks)


def feed_checked(
    source: CountingSource,
    pages: FetchedPages,
    task: ColumnTask,
    ranges: Sequence[tuple[int, int]],
    buffers: Sequence[memoryview],
    executor: ThreadPool | None = None,
) -> None:
    """Feed a task with what it planned; where a checksum fails, once more with bytes read again.

    pages: What else may hold bytes that are wrong, and gets those that were read again.
    Raises ChecksumError: A page's bytes are not those that were written, twice.
    Raises InvalidFileError, UnsupportedEncodingError, UnsupportedVersionError.
    """
    try:
        task.feed(buffers, executor)
    except ChecksumError:
        fresh = source.read_many(ranges, again=True)
        for place, data in zip(ranges, fresh, strict=True):
            if place in pages:
                pages[place] = data
        task.feed(fresh, executor)


def feed_planned(source: CountingSource, task: ColumnTask) -> None:
    """Fetch what a task plans next, and feed it; errors are those of `feed_checked`."""
    ranges = task.plan()
    feed_checked(source, {}, task, ranges, source.read_many(ranges))
