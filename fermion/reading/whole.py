"""Rows without gaps of flat columns of many pages: a call of the kernels for many pages.

What the kernels do not know (nulls, booleans, dictionaries that stripes share, other encodings,
damage) is left to `column.read_columns`, which reads everything and knows what to say of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from fermion import kernels
from fermion.columns.types import Form, Node
from fermion.columns.values import Values
from fermion.encodings.decoding import decode_numbers
from fermion.io.compression import decompress
from fermion.layout import ChecksumKind
from fermion.metadata.cmb import ColumnBlock
from fermion.pages.pages import expansion_limit
from fermion.reading.chunk_pages import ChunkPages, chunk_pages, dictionary_of, entries_of
from fermion.reading.column import FetchedPages
from fermion.reading.flat import known_form
from fermion.reading.index import FileIndex
from fermion.reading.spread import run_by_size
from fermion.statistics.details import decoded_bytes

if TYPE_CHECKING:
    from typing_extensions import Buffer  # no dependency of the installed package

PART_BYTES = 4 * 1024 * 1024
"""Bytes of values that one thread decodes at once, but for strings: those are decoded together."""

VIEW_FRACTION = 0.75
"""Of the decoded numbers: if fewer are wanted they are copied, and the others let go."""

_BITS, _STRINGS = ord("b"), ord("s")


class _Column(NamedTuple):
    """A column that is decoded.

    Attributes
    ----------
    pages
        Without that of the dictionary.
    out
        Values, or offsets of strings; written.
    text
        Memory for the bytes of strings; None: it is not known how many these are.
    rows
        First and stop of those wanted, counted from the first page.
    """

    place: int
    form: Form
    plan: ChunkPages
    fetched: Sequence[memoryview]
    pages: Sequence[memoryview]
    dictionary: Values | None
    out: np.ndarray
    text: np.ndarray | None
    rows: tuple[int, int]


class WholeColumns:
    """Reads rows without gaps of flat columns of a file, of which each has several pages.

    Parameters
    ----------
    index
        The open file.
    executor
        Decodes parts of columns side by side; None: one after the other.
    """

    def __init__(self, index: FileIndex, executor: Executor | None) -> None:
        self._index, self._executor = index, executor
        self._checks = index.footer.page_checks(index.options.verify_checksums)
        self._is_known = self._checks.kind in (ChecksumKind.NONE, ChecksumKind.CRC32C)

    def arrays(
        self,
        columns: Sequence[tuple[int, Node]],
        stripe: int,
        rows: tuple[int, int] | None = None,
    ) -> tuple[list[pa.Array | None], FetchedPages]:
        """Some columns of a stripe.

        Parameters
        ----------
        columns
            Ordinals and trees.
        rows
            First and stop of the rows of the stripe to read; None: all.

        Returns
        -------
        arrays, pages
            None for a column that has to be read otherwise, and what was fetched for such columns.
        """
        found: list[pa.Array | None] = [None] * len(columns)
        planned = self._plans(columns, stripe)
        if rows is not None:
            planned = [(place, _around(plan, *rows), block) for place, plan, block in planned]
        is_split = len(planned) < len(columns)
        if not planned or (is_split and not self._index.source.source.is_local):
            return found, {}  # one round of requests for all columns
        views = iter(self._index.source.read_views([plan.ranges for _, plan, _ in planned]))
        left: FetchedPages = {}
        opened: list[_Column] = []
        for place, plan, block in planned:
            pages = [next(views) for _ in plan.ranges]
            column = self._open(place, plan, block, pages, rows)
            if column is not None:
                opened.append(column)
            else:
                left.update(plan.fetched(pages))
        for column, array in zip(opened, self._decoded(opened), strict=True):
            found[column.place] = array
            if array is None:
                left.update(column.plan.fetched(column.fetched))
        return found, left

    def _plans(
        self, columns: Sequence[tuple[int, Node]], stripe: int
    ) -> list[tuple[int, ChunkPages, ColumnBlock]]:
        """The columns that are read here: their places, pages and CMBs."""
        slots = int(self._index.stripe_rows[stripe])
        if not self._is_known or not slots:
            return []
        forms = [known_form(node) for _, node in columns]
        flat = [place for place, form in enumerate(forms) if form is not None and form[0] != _BITS]
        blocks = self._index.blocks([columns[place][0] for place in flat])
        return [
            (place, plan, block)
            for place, block in zip(flat, blocks, strict=True)
            if block is not None
            and (plan := chunk_pages(columns[place][1], block, stripe, slots)) is not None
        ]

    def _open(
        self,
        place: int,
        plan: ChunkPages,
        block: ColumnBlock,
        fetched: Sequence[memoryview],
        rows: tuple[int, int] | None,
    ) -> _Column | None:
        """Memory for a column, and its dictionary; None where that is damaged."""
        form, first, slots = known_form(plan.node), int(plan.cuts[0]), int(plan.cuts[-1])
        slots -= first
        assert form is not None
        opened = entries_of(plan, fetched, self._checks)
        limits = [expansion_limit(size) for size in plan.ranges[:, 1].tolist()]
        if opened is None or slots * form[1] > sum(limits):
            return None
        text = None
        if form[0] == _STRINGS:
            out = np.empty(slots + 1, np.int32 if form[1] == 4 else np.int64)
            size = decoded_bytes(block.extension(plan.chunk)) if rows is None else None
            if size is not None and size <= sum(limits):
                text = np.empty(size, np.uint8)
        else:
            assert plan.node.physical is not None
            out = np.empty(slots, plan.node.physical.dtype)
        wanted = (0, slots) if rows is None else (rows[0] - first, rows[1] - first)
        return _Column(place, form, plan, fetched, opened[1], opened[0], out, text, wanted)

    def _decoded(self, columns: Sequence[_Column]) -> list[pa.Array | None]:
        """The columns' arrays: parts of all of them side by side, the largest first."""
        parts = [(column, *part) for column in columns for part in _parts(column)]
        if not parts:
            return []
        sizes = [
            (column.out.nbytes + int(column.plan.ranges[:, 1].sum()))
            * (stop - first)
            // len(column.pages)
            + (0 if column.text is None else column.text.nbytes)
            for column, first, stop in parts
        ]
        slots = sum(len(column.out) for column in columns)
        done = run_by_size(self._executor, self._decode, sizes, slots, *zip(*parts, strict=True))
        texts: dict[int, list[Buffer | None]] = {}
        for (column, _, _), text in zip(parts, done, strict=True):
            texts.setdefault(column.place, []).append(text)
        return [_array(column, texts[column.place]) for column in columns]

    def _decode(self, column: _Column, first: int, stop: int) -> Buffer | None:
        """Decode some pages of a column: bytes of strings, none of numbers; None: not known."""
        cuts, out = column.plan.cuts - column.plan.cuts[0], column.out
        entries, offsets = dictionary_of(column.dictionary)
        start = int(column.plan.has_dictionary) + first
        return kernels.decode_pages(
            list(column.pages[first:stop]),
            np.diff(cuts[first : stop + 1]),
            column.form[0],
            column.form[1],
            entries,
            offsets,
            self._checks.kind is ChecksumKind.CRC32C,
            decode_numbers,
            _unzip,
            (out if column.form[0] == _STRINGS else out[cuts[first] : cuts[stop]]).view(np.uint8),
            np.ascontiguousarray(column.plan.ranges[start : start + stop - first, 0]),
            self._checks.place_key,
            column.text,
        )


def _parts(column: _Column) -> list[tuple[int, int]]:
    """Pages that one call decodes, as first and stop."""
    pages = len(column.pages)
    if column.form[0] == _STRINGS:
        return [(0, pages)]
    step = max(pages * PART_BYTES // max(column.out.nbytes, 1), 1)
    return [(first, min(first + step, pages)) for first in range(0, pages, step)]


def _around(plan: ChunkPages, start: int, stop: int) -> ChunkPages:
    """The pages that hold some rows, with the slots before each of them."""
    first = int(plan.cuts.searchsorted(start, "right")) - 1
    last = int(plan.cuts.searchsorted(stop, "left"))
    return plan.some(np.arange(first, last))._replace(cuts=plan.cuts[first : last + 1])


def _array(column: _Column, texts: Sequence[Buffer | None]) -> pa.Array | None:
    if any(text is None for text in texts):
        return None
    storage, out, (start, stop) = column.plan.node.storage, column.out, column.rows
    if column.form[0] == _STRINGS:
        buffers = [None, pa.py_buffer(out), pa.py_buffer(texts[0])]
        whole = pa.Array.from_buffers(storage, len(out) - 1, buffers, 0)
        return whole.slice(start, stop - start)
    wanted = out[start:stop]
    if len(wanted) < len(out) * VIEW_FRACTION:
        wanted = wanted.copy()  # not to hold the others
    return pa.Array.from_buffers(storage, stop - start, [None, pa.py_buffer(wanted)], 0)


def _unzip(frame: memoryview, raw_length: int) -> bytes:
    return decompress(frame, raw_length, padded=True)
