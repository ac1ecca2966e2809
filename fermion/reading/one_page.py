"""Flat columns of one page each, many at once: from CMBs to Arrow arrays.

Wide tables have thousands of columns of a few kilobytes. `OnePageRead` skips the parsed CMB, the
plan, and the objects of pages and streams: the kernels parse CMBs and decode pages of many columns
a call. It leaves columns of more pages, other encodings of strings, and damage.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from fermion import kernels
from fermion.columns.filled import check_filled
from fermion.columns.types import Node
from fermion.encodings.decoding import page_reader
from fermion.exports import NamedTuple
from fermion.io.source import FEW_RANGES
from fermion.layout import ALL_NULL_LENGTH
from fermion.pages.frame import HEADER_SIZE, page_checksums
from fermion.reading.chunk_pages import FetchedPages
from fermion.reading.strategy import ReadRequest, ReadResult, ReadStrategy

T = TypeVar("T")
_KernelColumns = tuple[list[memoryview], np.ndarray, np.ndarray, np.ndarray]
"""The first arguments of `kernels.decode_flat` and `kernels.pick_flat`."""

COLUMNS_PER_TASK = 64
COLUMNS_PER_CALL = 1024
"""Of columns that one thread decodes; Python looks for an interrupt in between."""
# Of columns with fewer bytes the threads would pass Python's lock to and fro for longer than they
# work without it.
THREADED_COLUMN_BYTES_MIN = 32 * 1024
FEW_VALUES_MAX = 8 * 1024
"""Picked rows times columns: more are decoded column by column, which threads can share."""
SMALL_ROWS_MAX = 1024
"""Columns of so few rows are handed to Arrow together; their memory is freed together."""
PICKED_ROWS_MAX = 1 << 20
"""Rows that are named one by one."""


class _Pages(NamedTuple):
    """The pages of some columns: of each its validity, then its values.

    forms: ``int64``, shape (columns, 3), as `kernels.decode_flat` takes them.
    ranges: ``int64``, shape (2 * columns, 2): where they lie in the file.
    buffers, places: As `CountingSource.read_places` gives them.
    """

    nodes: Sequence[Node]
    forms: np.ndarray
    ranges: np.ndarray
    buffers: list[memoryview]
    places: np.ndarray

    def left(self, missing: Sequence[bool]) -> FetchedPages:
        """The pages of columns that are not read yet."""
        if True not in missing:
            return {}
        left = np.repeat(np.array(missing, bool), 2)
        return {
            (offset, length): self.buffers[buffer][at : at + length]
            for (offset, length), (buffer, at, _) in zip(
                self.ranges[left].tolist(), self.places[left].tolist(), strict=True
            )
        }


class OnePageRead(ReadStrategy):
    """All rows of a stripe, or a few."""

    def applies(self, request: ReadRequest) -> bool:
        """See `ReadStrategy.applies`.

        Some rows of a few large columns are read as fast otherwise, side by side.
        """
        if request.rows is None or not request.is_plain:
            return request.is_plain
        columns = len([True for node in request.trees if node.form is not None])
        is_small = columns >= COLUMNS_PER_TASK or request.total * columns <= FEW_VALUES_MAX
        return 0 < request.total <= PICKED_ROWS_MAX and is_small

    def read(self, request: ReadRequest) -> ReadResult:
        result, trees = ReadResult.nothing(request), request.trees
        flat = [place for place, node in enumerate(trees) if node.form is not None]
        if not flat:
            return result
        chunks = self._chunks([request.columns[place].ordinal for place in flat], request.stripe)
        null, paged = _null_and_paged(chunks)
        arrays = result.arrays
        for place in null:
            node = trees[flat[place]]
            if node.nullable:
                check_filled(node.storage, request.total, f"column {node.name!r}")
                arrays[flat[place]] = pa.nulls(request.total, node.storage)
        wanted = [flat[place] for place in paged]
        if request.rows is not None and not self._index.is_local:
            known = len(wanted) + sum(array is not None for array in arrays)
            if known < len(trees):  # one round of requests for all of them
                return ReadResult.nothing(request)
        if not wanted:
            return result
        ranges = (chunks if len(paged) == len(chunks) else chunks[paged]).reshape(-1, 2)
        nodes = [trees[place] for place in wanted]
        pages = _Pages(
            nodes,
            np.array([(*(node.form or (0, 0)), node.nullable) for node in nodes], np.int64),
            ranges,
            *self._index.source.read_places(ranges),
        )
        if request.is_joined and len(wanted) + len(null) == len(trees):
            joined = self._joined(pages, request)
            if joined is not None:
                return result._replace(joined=(wanted, joined))
        schema = request.schema if len(wanted) == len(trees) else None
        decoded, batch = self._decoded(pages, request, schema)
        if batch is not None:
            return result._replace(batch=batch)
        for place, array in zip(wanted, decoded, strict=True):
            arrays[place] = array
        return result._replace(fetched=pages.left([arrays[place] is None for place in wanted]))

    def _chunks(self, ordinals: Sequence[int], stripe: int) -> np.ndarray:
        """What `kernels.flat_chunks` finds in the CMBs of some columns."""
        index = self._index
        blocks, places, offsets = index.block_places(ordinals)
        return kernels.flat_chunks(
            blocks,
            places,
            index.stripe_rows,
            stripe,
            index.footer.cmb_offset,
            index.footer.sizes,
            offsets,
            index.footer.place_key,
        )

    def _decoded(
        self, pages: _Pages, request: ReadRequest, schema: pa.Schema | None
    ) -> tuple[Iterable[pa.Array | None], pa.RecordBatch | None]:
        """Columns, or a batch of this schema (None: of no use) if all of them were decoded."""
        if request.rows is None and (
            self._index.footer.is_aligned or request.slots > SMALL_ROWS_MAX
        ):
            return itertools.chain(*_tasks(partial(self._whole, pages), pages, request)), None
        picks = None if request.rows is None else request.listed
        parts = _tasks(partial(self._picked, pages, picks), pages, request)
        batch, count = kernels.arrow_batch(parts), len(pages.nodes)
        if schema is not None and batch.columns == count:
            return (), pa.RecordBatch._import_from_c(batch.address, schema)
        arrays: list[pa.Array | None] = [None] * count
        if batch.columns:
            fine = np.flatnonzero(np.concatenate([part.fine for part in parts])).tolist()
            nodes = {id(node): node for node in pages.nodes}  # columns of one shape share it
            fields = {key: pa.field("", node.storage) for key, node in nodes.items()}
            own = pa.schema([fields[id(pages.nodes[place])] for place in fine])
            columns = pa.RecordBatch._import_from_c(batch.address, own).columns
            for place, array in zip(fine, columns, strict=True):
                arrays[place] = array
        return arrays, None

    def _joined(self, pages: _Pages, request: ReadRequest) -> pa.Array | None:
        """The values of all columns in one array; None where that is not possible."""
        (form,), total = {node.form for node in pages.nodes}, request.total * len(pages.nodes)
        assert form is not None
        picks = None if request.rows is None else request.listed
        parts = _tasks(partial(self._picked, pages, picks), pages, request)
        values, bits = np.empty(total * form[1], np.uint8), np.zeros((total + 7) // 8, np.uint8)
        if not kernels.join_flat(parts, values, bits):
            return None
        buffers = [pa.py_buffer(bits), pa.py_buffer(values)]
        return pa.Array.from_buffers(pages.nodes[0].storage, total, buffers)

    def _whole(self, pages: _Pages, slots: int, group: slice) -> list[pa.Array | None]:
        """All rows of some of the columns."""
        decoded = kernels.decode_flat(
            *self._asked(pages, group),
            slots,
            page_reader(self._checks),
            self._index.footer.is_aligned,
        )
        return [
            None if parts is None else _array(node.storage, slots, *parts)
            for node, parts in zip(pages.nodes[group], decoded, strict=True)
        ]

    def _picked(self, pages: _Pages, picks: np.ndarray | None, slots: int, group: slice) -> Any:
        """Some rows (None: all) of some of the columns, as `kernels.arrow_batch` takes them."""
        asked = self._asked(pages, group)
        return kernels.pick_flat(*asked, slots, picks, page_reader(self._checks))

    def _asked(self, pages: _Pages, group: slice) -> _KernelColumns:
        """What the kernels are told of some columns."""
        own = slice(2 * group.start, 2 * group.stop)
        offsets = np.ascontiguousarray(pages.ranges[own, 0])
        places = self._sound(pages.buffers, pages.places[own], offsets)
        return pages.buffers, np.ascontiguousarray(places), offsets, pages.forms[group]

    def _sound(
        self, buffers: list[memoryview], places: np.ndarray, offsets: np.ndarray
    ) -> np.ndarray:
        """The places without those of columns whose checksums the kernels do not look at, and that
        have a wrong one: a page of no bytes is left to the general way."""
        if self._checks.is_in_kernels:
            return places
        places = places.copy()
        for page, (buffer, at, length) in enumerate(places.tolist()):
            if length >= HEADER_SIZE:
                data = buffers[buffer][at : at + length]
                stored, computed = page_checksums(data, self._checks, int(offsets[page]))
                if stored != computed:
                    places[page - page % 2 : page - page % 2 + 2, 2] = 0
        return places


def _tasks(task: Callable[[int, slice], T], pages: _Pages, request: ReadRequest) -> list[T]:
    """What a task gives for groups of columns, side by side where that is worth it."""
    count, run = len(pages.nodes), map
    step = COLUMNS_PER_CALL
    bytes_min = THREADED_COLUMN_BYTES_MIN * count
    if count > COLUMNS_PER_TASK and pages.ranges[:, 1].sum() >= bytes_min:
        step = COLUMNS_PER_TASK
        run = map if request.executor is None else request.executor.map  # type: ignore[assignment]
    groups = [slice(start, min(start + step, count)) for start in range(0, count, step)]
    return list(run(partial(task, request.slots), groups))


def _null_and_paged(chunks: np.ndarray) -> tuple[list[int], list[int]]:
    """Which columns are null in all rows of a stripe, and which have pages.

    chunks: As `kernels.flat_chunks` gives them.
    """
    if len(chunks) <= FEW_RANGES:
        listed = [(validity, data) for _, validity, _, data in chunks.tolist()]
        null = [
            at
            for at, (validity, data) in enumerate(listed)
            if validity == ALL_NULL_LENGTH and not data
        ]
        return null, [
            at
            for at, (validity, data) in enumerate(listed)
            if validity != ALL_NULL_LENGTH and data > 0
        ]
    all_null = chunks[:, 1] == ALL_NULL_LENGTH
    null = np.flatnonzero(all_null & (chunks[:, 3] == 0)).tolist()
    return null, np.flatnonzero(~all_null & (chunks[:, 3] > 0)).tolist()


def _array(
    dtype: pa.DataType, rows: int, nulls: int, bitmap: object, values: object, data: object
) -> pa.Array:
    buffers = [None if bitmap is None else pa.py_buffer(bitmap), pa.py_buffer(values)]
    if data is not None:
        buffers.append(pa.py_buffer(data))
    return pa.Array.from_buffers(dtype, rows, buffers, nulls)
