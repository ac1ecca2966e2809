"""Flat columns of many pages without nulls: a call of the kernels for many pages.

`WholeRead` skips plans of single pages and their objects where all rows are read, or many without
gaps. `PickedRead` skips them where a few rows are read, and decodes these alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fermion.columns.types import BinaryValues
from fermion.exports import NamedTuple
from fermion.layout import ChecksumKind
from fermion.pages.pages import expansion_limit
from fermion.reading.chunk_pages import (
    PICKED_RUN_MAX,
    STRINGS,
    ChunkPages,
    FetchedPages,
    StreamPages,
    chunk_pages,
)
from fermion.reading.strategy import ReadRequest, ReadResult, ReadStrategy, run_by_size
from fermion.statistics.bounds import decoded_bytes

if TYPE_CHECKING:
    from typing_extensions import Buffer  # no dependency of the installed package

RUN_ROWS_MIN = 32 * 1024
"""So many rows without gaps are read as all rows of a stripe are: the pages around them whole."""
PART_BYTES = 4 * 1024 * 1024
"""Bytes of values that one thread decodes at once, but for strings: those are decoded together."""
VIEW_FRACTION = 0.75
"""Of the decoded numbers: if fewer are wanted they are copied, and the others let go."""

PICKED_ROWS_MAX = 1 << 20
"""Rows that are named one by one."""

_INT32_MAX = 2**31 - 1
_Decoded = tuple[pa.Array | None, Sequence[memoryview]]
"""A column's array; or None where it has to be read otherwise, and its pages."""


class _PagedRead(ReadStrategy):
    """What both strategies share: which columns they know, and what is left of the others."""

    def read(self, request: ReadRequest) -> ReadResult:
        blocks = self._index.blocks([column.ordinal for column in request.columns])
        plans: dict[int, ChunkPages] = {}
        for place, (node, block) in enumerate(zip(request.trees, blocks, strict=True)):
            chunk = chunk_pages(node, block, request.stripe, request.slots)
            plan = None if chunk is None else self._plan(chunk, request)
            if plan is not None:
                plans[place] = plan
        result = ReadResult.nothing(request)
        is_split = len(plans) < len(request.columns)
        if not plans or (is_split and not self._index.is_local):
            return result  # one round of requests for all columns
        decoded = self._decoded(list(plans.values()), request)
        for (place, plan), (array, pages) in zip(plans.items(), decoded, strict=True):
            result.arrays[place] = array
            if array is None:
                result.fetched.update(plan.fetched(pages))
        return result

    @abstractmethod
    def _plan(self, chunk: ChunkPages, request: ReadRequest) -> ChunkPages | None:
        """The pages that are read of a chunk; None where it is better read otherwise."""

    @abstractmethod
    def _decoded(self, plans: Sequence[ChunkPages], request: ReadRequest) -> list[_Decoded]:
        """The columns' arrays and pages."""

    def _views(self, plans: Sequence[ChunkPages]) -> list[list[memoryview]]:
        """The pages of some columns, fetched together."""
        views = iter(self._index.source.read_views([plan.ranges for plan in plans]))
        return [[next(views) for _ in plan.ranges] for plan in plans]


class _WholeColumn(NamedTuple):
    """A column that is decoded.

    out: Values, or offsets of strings; written.
    text: Memory for the bytes of strings; None: it is not known how many these are.
    rows: First and stop of those wanted, counted from the first page.
    """

    plan: ChunkPages
    pages: StreamPages
    out: np.ndarray
    text: np.ndarray | None
    rows: tuple[int, int]

    def parts(self) -> list[tuple[_WholeColumn, int, int]]:
        """The column with pages that one call decodes, as first and stop."""
        pages = len(self.pages.pages)
        if self.plan.form[0] == STRINGS:
            return [(self, 0, pages)]
        step = max(pages * PART_BYTES // max(self.out.nbytes, 1), 1)
        return [(self, first, min(first + step, pages)) for first in range(0, pages, step)]

    def part_bytes(self, first: int, stop: int) -> int:
        """Bytes that some pages decode, about."""
        stored = self.out.nbytes + self.plan.stored_bytes
        text = 0 if self.text is None else self.text.nbytes
        return stored * (stop - first) // len(self.pages.pages) + text

    def decode(self, first: int, stop: int) -> Buffer | None:
        """Decode some pages: bytes of strings, none of numbers; None: not known."""
        form, out = self.plan.form, self.out
        if form[0] != STRINGS:
            starts = self.plan.firsts - self.plan.firsts[0]
            out = out[starts[first] : starts[stop - 1] + self.plan.counts[stop - 1]]
        return self.pages.decode(form, first, stop, out, self.text)

    def array(self, texts: Sequence[Buffer | None]) -> pa.Array | None:
        """The rows wanted, of what was decoded of each part."""
        if any(text is None for text in texts):
            return None
        storage, out, (start, stop) = self.plan.node.storage, self.out, self.rows
        if self.plan.form[0] == STRINGS:
            buffers = [None, pa.py_buffer(out), pa.py_buffer(texts[0])]
            whole = pa.Array.from_buffers(storage, len(out) - 1, buffers, 0)
            return whole.slice(start, stop - start)
        wanted = out[start:stop]
        if len(wanted) < len(out) * VIEW_FRACTION:
            wanted = wanted.copy()  # not to hold the others
        return pa.Array.from_buffers(storage, stop - start, [None, pa.py_buffer(wanted)], 0)


class WholeRead(_PagedRead):
    """All rows of a stripe, or many without gaps."""

    def applies(self, request: ReadRequest) -> bool:
        rows = request.rows
        is_run = rows is None or (
            len(rows) == 1 and rows.total >= RUN_ROWS_MIN and not request.verified
        )
        return request.is_plain and is_run and request.slots > 0 and self._checks.is_in_kernels

    def _plan(self, chunk: ChunkPages, request: ReadRequest) -> ChunkPages:
        if request.rows is None:
            return chunk
        ((start, stop),) = request.rows
        first = int(chunk.firsts.searchsorted(start, "right")) - 1
        last = int(chunk.firsts.searchsorted(stop, "left"))
        return chunk.some(np.arange(first, last))

    def _decoded(self, plans: Sequence[ChunkPages], request: ReadRequest) -> list[_Decoded]:
        fetched = self._views(plans)
        columns = [
            self._open(plan, pages, request) for plan, pages in zip(plans, fetched, strict=True)
        ]
        opened = [column for column in columns if column is not None]
        parts = [part for column in opened for part in column.parts()]
        sizes = [column.part_bytes(first, stop) for column, first, stop in parts]
        slots = sum(len(column.out) for column in opened)
        decode = _WholeColumn.decode
        done = run_by_size(request.executor, decode, sizes, slots, *zip(*parts, strict=True))
        texts = iter(done)
        return [
            (column and column.array([next(texts) for _ in column.parts()]), pages)
            for column, pages in zip(columns, fetched, strict=True)
        ]

    def _open(
        self, plan: ChunkPages, fetched: Sequence[memoryview], request: ReadRequest
    ) -> _WholeColumn | None:
        """Memory for a column, and its dictionary; None where that is damaged."""
        pages, (letter, width) = plan.open(fetched, self._checks), plan.form
        slots = int(plan.counts.sum())
        limit = sum(map(expansion_limit, plan.ranges[:, 1].tolist()))
        if pages is None or slots * width > limit:
            return None
        text = None
        if letter == STRINGS:
            out = _memory(slots + 1, np.dtype(np.int32 if width == 4 else np.int64))
            is_all = request.rows is None
            size = decoded_bytes(plan.block.extension(plan.chunk)) if is_all else None
            if size is not None and size <= limit:
                text = _memory(size, np.dtype(np.uint8))
        else:
            assert plan.node.physical is not None
            out = _memory(slots, plan.node.physical.dtype)
        rows = (0, slots)
        if request.rows is not None:
            ((start, stop),) = request.rows
            rows = start - int(plan.firsts[0]), stop - int(plan.firsts[0])
        return _WholeColumn(plan, pages, out, text, rows)


def _memory(count: int, dtype: np.dtype) -> np.ndarray:
    """Room for values, with anything in it. Arrow's pool keeps what a result before has let go,
    where the system would clear each page anew."""
    return np.frombuffer(pa.allocate_buffer(count * dtype.itemsize), dtype)


class PickedRead(_PagedRead):
    """A few rows."""

    def applies(self, request: ReadRequest) -> bool:
        if request.rows is None or not request.is_plain or not self._checks.is_in_kernels:
            return False
        return 0 < request.total <= min(PICKED_ROWS_MAX, PICKED_RUN_MAX * len(request.rows))

    def _plan(self, chunk: ChunkPages, request: ReadRequest) -> ChunkPages | None:
        return chunk.pick(request.listed)

    def _decoded(self, plans: Sequence[ChunkPages], request: ReadRequest) -> list[_Decoded]:
        fetched: Sequence[Sequence[memoryview] | None] = [None] * len(plans)
        if not self._index.is_local:
            fetched = self._views(plans)
        sizes = [plan.stored_bytes for plan in plans]
        decode = partial(self._decode, request.verified)
        slots = request.total * len(plans)
        return run_by_size(request.executor, decode, sizes, slots, plans, fetched)

    def _decode(
        self, verified: FetchedPages, plan: ChunkPages, fetched: Sequence[memoryview] | None
    ) -> _Decoded:
        """A column's rows and pages; those of a local file are read here, so that they are still
        next to the processor."""
        checks = self._checks
        if fetched is None:
            fetched = plan.among(verified)
            if fetched is None:
                fetched = self._index.source.read_chunk(plan.ranges)
            else:
                checks = checks._replace(kind=ChecksumKind.NONE)
        pages = plan.open(fetched, checks)
        array = None if pages is None else _picked(plan, pages)
        # Pages that are let go leave their memory to those of the next column.
        return array, (fetched if array is None else ())


def _picked(plan: ChunkPages, pages: StreamPages) -> pa.Array | None:
    """The slots that are wanted of a column."""
    assert plan.picks is not None
    assert plan.cuts is not None
    assert plan.node.physical is not None
    values = pages.pick(plan.picks, plan.cuts, plan.node.physical)
    buffers = [None]
    if isinstance(values, BinaryValues):
        offsets = values.offsets
        if plan.form[1] == 4:
            if offsets[-1] > _INT32_MAX:
                return None
            offsets = offsets.astype(np.int32)
        buffers += [pa.py_buffer(offsets), pa.py_buffer(values.data)]
    elif values is not None:
        buffers.append(pa.py_buffer(values))
    else:
        return None
    return pa.Array.from_buffers(plan.node.storage, len(plan.picks), buffers, 0)
