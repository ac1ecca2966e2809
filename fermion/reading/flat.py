"""Flat columns of a stripe, many at once: the short way from CMBs to Arrow arrays.

Wide tables have thousands of columns of a few kilobytes each. Where a chunk is a single page, the
kernels parse its CMB and decode the page with no Python object in between. Whatever is not so (more
pages, other encodings of strings, damage) is left to `column_reader`, which reads everything and
knows what to say of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from fermion import kernels
from fermion.columns.ranges import RowRanges
from fermion.columns.types import Form, Node, flat_form
from fermion.encodings.decoding import decode_numbers
from fermion.io.compression import decompress
from fermion.io.source import FEW_RANGES
from fermion.layout import ALL_NULL_LENGTH, ChecksumKind
from fermion.pages.frame import HEADER_SIZE, page_checksums
from fermion.reading.column import FetchedPages
from fermion.reading.index import FileIndex
from fermion.reading.spread import THREADED_SLOTS_MIN

T = TypeVar("T")
_Asked = tuple[list[memoryview], np.ndarray, np.ndarray, bytes, np.ndarray, np.ndarray, np.ndarray]

FLAT_COLUMNS_PER_TASK = 64
COLUMNS_PER_CALL = 1024
"""Of columns that one thread decodes; Python looks for an interrupt in between."""
# Of columns with fewer bytes the threads would pass Python's lock to and fro for longer than they
# work without it.
THREADED_COLUMN_BYTES_MIN = 32 * 1024

SMALL_ROWS_MAX = 1024
"""Columns of so few rows are handed to Arrow together; their memory is freed together."""
PICKED_ROWS_MAX = 1 << 20
"""Rows that are named one by one."""

FORMS_KNOWN_MAX = 1024
_forms: dict[int, tuple[pa.DataType, Form | None]] = {}
"""By identity of the type, which all columns of a shape share and which is kept alive here."""


def known_form(node: Node) -> Form | None:
    """`flat_form`, remembered: files of a table share their types too."""
    known = _forms.get(id(node.type))
    if known is None:
        if len(_forms) >= FORMS_KNOWN_MAX:
            _forms.clear()
        known = _forms[id(node.type)] = (node.type, flat_form(node))
    return known[1]


class FlatRead(NamedTuple):
    """What was read.

    Attributes
    ----------
    arrays
        None for a column that has to be read otherwise.
    pages
        What was fetched for such columns.
    batch
        All columns, instead of the arrays.
    """

    arrays: list[pa.Array | None]
    pages: FetchedPages
    batch: pa.RecordBatch | None = None


class _Pages(NamedTuple):
    """The pages of some columns: of each its validity, then its values.

    Attributes
    ----------
    ranges
        ``int64``, shape (2 * columns, 2): where they lie in the file.
    buffers, places
        As `CountingSource.read_places` gives them.
    """

    nodes: Sequence[Node]
    forms: Sequence[Form]
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


class FlatColumns:
    """Reads flat columns of a file.

    Parameters
    ----------
    index
        The open file.
    executor
        Decodes groups of columns side by side; None: one after the other.
    """

    def __init__(self, index: FileIndex, executor: Executor | None) -> None:
        self._index, self._executor = index, executor
        self._checks = index.footer.page_checks(index.options.verify_checksums)
        self._borrow = index.footer.is_aligned

    def read(
        self,
        columns: Sequence[tuple[int, Node]],
        stripe: int,
        ranges: RowRanges | None = None,
        schema: pa.Schema | None = None,
    ) -> FlatRead:
        """Some rows of some columns of a stripe.

        Parameters
        ----------
        columns
            Ordinals and trees.
        ranges
            Rows of the stripe; None: all.
        schema
            Of the columns; None: a batch is of no use.
        """
        found: list[pa.Array | None] = [None] * len(columns)
        shapes = {id(node): node for _, node in columns}  # which columns of a shape may share
        shape_forms = {key: known_form(node) for key, node in shapes.items()}
        forms = [shape_forms[id(node)] for _, node in columns]
        flat = [place for place, form in enumerate(forms) if form is not None]
        if not flat or (ranges is not None and not _is_picked(ranges.total, len(flat))):
            return FlatRead(found, {})
        slots = int(self._index.stripe_rows[stripe])
        rows = slots if ranges is None else ranges.total
        chunks = self._chunks([columns[place][0] for place in flat], stripe)
        null, paged = _null_and_paged(chunks)
        for place in null:
            node = columns[flat[place]][1]
            if node.nullable:
                found[flat[place]] = pa.nulls(rows, node.storage)
        wanted = [flat[place] for place in paged]
        if ranges is not None and not self._index.source.source.is_local:
            known = len(wanted) + sum(array is not None for array in found)
            if known < len(columns):  # one round of requests for all of them
                return FlatRead([None] * len(columns), {})
        if not wanted:
            return FlatRead(found, {})
        places = (chunks if len(paged) == len(chunks) else chunks[paged]).reshape(-1, 2)
        pages = _Pages(
            [columns[place][1] for place in wanted],
            [forms[place] or (0, 0) for place in wanted],
            places,
            *self._index.source.read_places(places),
        )
        arrays: Iterable[pa.Array | None]
        if ranges is None and (self._borrow or slots > SMALL_ROWS_MAX):
            arrays = itertools.chain(*self._tasks(partial(self._decoded, pages, slots), pages))
        else:
            whole = schema if len(wanted) == len(columns) else None
            arrays, batch = self._some(pages, slots, ranges, whole)
            if batch is not None:
                return FlatRead(found, {}, batch)
        for place, array in zip(wanted, arrays, strict=True):
            found[place] = array
        return FlatRead(found, pages.left([found[place] is None for place in wanted]))

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

    def _some(
        self, pages: _Pages, slots: int, ranges: RowRanges | None, schema: pa.Schema | None
    ) -> tuple[list[pa.Array | None], pa.RecordBatch | None]:
        """Some rows of columns: arrays, or a batch of this schema if all of them were decoded."""
        picks = None if ranges is None else ranges.to_indices()
        parts = self._tasks(partial(self._picked, pages, slots, picks), pages)
        batch, count = kernels.arrow_batch(parts), len(pages.nodes)
        if schema is not None and batch.columns == count:
            return [], pa.RecordBatch._import_from_c(batch.address, schema)
        found: list[pa.Array | None] = [None] * count
        if batch.columns:
            fine = np.flatnonzero(np.concatenate([part.fine for part in parts])).tolist()
            own = pa.schema([("", pages.nodes[place].storage) for place in fine])
            arrays = pa.RecordBatch._import_from_c(batch.address, own).columns
            for place, array in zip(fine, arrays, strict=True):
                found[place] = array
        return found, None

    def _tasks(self, task: Callable[[slice], T], pages: _Pages) -> list[T]:
        """What a task gives for groups of columns, side by side where that is worth it."""
        count = len(pages.nodes)
        bytes_min = THREADED_COLUMN_BYTES_MIN * count
        worth = count > FLAT_COLUMNS_PER_TASK and pages.ranges[:, 1].sum() >= bytes_min
        step = FLAT_COLUMNS_PER_TASK if worth else COLUMNS_PER_CALL
        groups = [slice(start, min(start + step, count)) for start in range(0, count, step)]
        run = map if self._executor is None or not worth else self._executor.map
        return list(run(task, groups))

    def _decoded(self, pages: _Pages, slots: int, group: slice) -> list[pa.Array | None]:
        nodes = pages.nodes[group]
        buffers, data, validity, letters, widths, nullable, offsets = self._asked(pages, group)
        decoded = kernels.decode_flat(
            buffers,
            data,
            validity,
            letters,
            widths,
            nullable,
            slots,
            self._checks.kind is ChecksumKind.CRC32C,
            self._borrow,
            decode_numbers,
            _unzip,
            offsets,
            self._checks.place_key,
        )
        return [
            None if parts is None else _array(node.storage, slots, *parts)
            for node, parts in zip(nodes, decoded, strict=True)
        ]

    def _picked(self, pages: _Pages, slots: int, picks: np.ndarray | None, group: slice) -> Any:
        """What `kernels.arrow_batch` takes."""
        buffers, data, validity, letters, widths, nullable, offsets = self._asked(pages, group)
        return kernels.pick_flat(
            buffers,
            data,
            validity,
            letters,
            widths,
            nullable,
            slots,
            picks,
            self._checks.kind is ChecksumKind.CRC32C,
            decode_numbers,
            _unzip,
            offsets,
            self._checks.place_key,
        )

    def _asked(self, pages: _Pages, group: slice) -> _Asked:
        """What the kernels are told of some columns."""
        own = slice(2 * group.start, 2 * group.stop)
        offsets = pages.ranges[own, 0]
        places = self._sound(pages.buffers, pages.places[own], offsets)
        forms, nodes = pages.forms[group], pages.nodes[group]
        return (
            pages.buffers,
            np.ascontiguousarray(places[1::2]),
            np.ascontiguousarray(places[::2]),
            bytes([letter for letter, _ in forms]),
            np.array([width for _, width in forms], np.int64),
            np.array([node.nullable for node in nodes], np.uint8),
            np.ascontiguousarray(offsets).reshape(-1, 2),
        )

    def _sound(
        self, buffers: list[memoryview], places: np.ndarray, offsets: np.ndarray
    ) -> np.ndarray:
        """The places without those of columns whose checksums the kernels do not look at, and that
        have a wrong one: a page of no bytes is left to the way around."""
        if self._checks.kind in (ChecksumKind.NONE, ChecksumKind.CRC32C):
            return places
        places = places.copy()
        for page, (buffer, at, length) in enumerate(places.tolist()):
            if length >= HEADER_SIZE:
                data = buffers[buffer][at : at + length]
                stored, found = page_checksums(data, self._checks, int(offsets[page]))
                if stored != found:
                    places[page - page % 2 : page - page % 2 + 2, 2] = 0
        return places


def _null_and_paged(chunks: np.ndarray) -> tuple[list[int], list[int]]:
    """Which columns are null in all rows of a stripe, and which have pages.

    Parameters
    ----------
    chunks
        As `kernels.flat_chunks` gives them.
    """
    if len(chunks) <= FEW_RANGES:
        each = list(enumerate(chunks.tolist()))
        null = [
            at for at, (_, validity, _, data) in each if validity == ALL_NULL_LENGTH and not data
        ]
        return null, [
            at for at, (_, length, _, data) in each if length != ALL_NULL_LENGTH and data > 0
        ]
    all_null = chunks[:, 1] == ALL_NULL_LENGTH
    null = np.flatnonzero(all_null & (chunks[:, 3] == 0)).tolist()
    return null, np.flatnonzero(~all_null & (chunks[:, 3] > 0)).tolist()


def _is_picked(rows: int, columns: int) -> bool:
    """Whether some rows of columns are read here: of a few large columns the way around is as fast,
    and decodes them side by side."""
    is_small = columns >= FLAT_COLUMNS_PER_TASK or rows * columns <= THREADED_SLOTS_MIN
    return 0 < rows <= PICKED_ROWS_MAX and is_small


def _unzip(frame: memoryview, raw_length: int) -> bytes:
    return decompress(frame, raw_length, padded=True)


def _array(
    dtype: pa.DataType, rows: int, nulls: int, bitmap: object, values: object, data: object
) -> pa.Array:
    buffers = [None if bitmap is None else pa.py_buffer(bitmap), pa.py_buffer(values)]
    if data is not None:
        buffers.append(pa.py_buffer(data))
    return pa.Array.from_buffers(dtype, rows, buffers, nulls)
