"""A few rows of flat columns of many pages: planned with a few array operations a column.

A page costs no object but a view of its bytes. What the kernels do not know (nulls, booleans,
dictionaries that stripes share, other encodings, damage) is left to `column.read_columns`, which
reads everything and knows what to say of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fermion.columns.ranges import RowRanges
from fermion.columns.types import Node
from fermion.columns.values import BinaryValues
from fermion.io.checksum import PageChecks
from fermion.layout import ChecksumKind
from fermion.reading.chunk_pages import ChunkPages, chunk_pages, entries_of
from fermion.reading.column import FetchedPages
from fermion.reading.flat import known_form
from fermion.reading.index import FileIndex
from fermion.reading.picks import pick_pages
from fermion.reading.spread import run_by_size
from fermion.reading.stream import PICKED_RUN_MAX, PICKED_SLOTS_MIN

PICKED_ROWS_MAX = 1 << 20
"""Rows that are named one by one."""
LONE_ROWS_MAX = 16
"""So few rows are picked wherever they are: the way around costs more than to decode them."""

_INT32_MAX = 2**31 - 1
_BITS = ord("b")


class _Plan(NamedTuple):
    """The pages of a chunk that hold wanted slots.

    Attributes
    ----------
    pages
        Only these, and that of the dictionary.
    counts
        ``int64``: slots of each page, without the dictionary's.
    picks, cuts
        The slots wanted, counted within their pages, and which of them each page has.
    """

    pages: ChunkPages
    counts: np.ndarray
    picks: np.ndarray
    cuts: np.ndarray


class PickedColumns:
    """Reads a few rows of flat columns of a file.

    Parameters
    ----------
    index
        The open file.
    executor
        Decodes columns side by side; None: one after the other.
    """

    def __init__(self, index: FileIndex, executor: Executor | None) -> None:
        self._index, self._executor = index, executor
        self._checks = index.footer.page_checks(index.options.verify_checksums)
        self._is_known = self._checks.kind in (ChecksumKind.NONE, ChecksumKind.CRC32C)

    def arrays(
        self,
        columns: Sequence[tuple[int, Node]],
        stripe: int,
        ranges: RowRanges,
        held: FetchedPages | None = None,
    ) -> tuple[list[pa.Array | None], FetchedPages]:
        """Some rows of some columns of a stripe.

        Parameters
        ----------
        columns
            Ordinals and trees.
        held
            Pages that are here already.

        Returns
        -------
        arrays, pages
            None for a column that has to be read otherwise, and what was fetched for such columns.
        """
        found: list[pa.Array | None] = [None] * len(columns)
        rows = ranges.total
        if not self._is_known or not 0 < rows <= min(PICKED_ROWS_MAX, PICKED_RUN_MAX * len(ranges)):
            return found, {}
        forms = [known_form(node) for _, node in columns]
        flat = [place for place, form in enumerate(forms) if form is not None and form[0] != _BITS]
        blocks = self._index.blocks([columns[place][0] for place in flat])
        wanted, slots = ranges.to_indices(), int(self._index.stripe_rows[stripe])
        planned = [
            (place, plan)
            for place, block in zip(flat, blocks, strict=True)
            if block is not None
            and (chunk := chunk_pages(columns[place][1], block, stripe, slots)) is not None
            and (plan := _plan(chunk, wanted)) is not None
        ]
        is_split = len(planned) < len(columns)
        if not planned or (is_split and not self._index.source.source.is_local):
            return found, {}  # one round of requests for all columns
        plans = [plan for _, plan in planned]
        pages: Sequence[Sequence[memoryview] | None] = [None] * len(plans)
        if not self._index.source.source.is_local:
            pages = self._fetch([plan.pages for plan in plans], held or {})
        sizes = [int(plan.pages.ranges[:, 1].sum()) for plan in plans]
        decode = partial(self._decode, held or {})
        arrays = run_by_size(self._executor, decode, sizes, rows, plans, pages)
        left: FetchedPages = {}
        for (place, plan), (own, array) in zip(planned, arrays, strict=True):
            found[place] = array
            if array is None:
                left.update(plan.pages.fetched(own))
        return found, left

    def _fetch(self, plans: Sequence[ChunkPages], held: FetchedPages) -> list[Sequence[memoryview]]:
        """The pages of each plan; what is held is not asked for."""
        missing = [plan.ranges for plan in plans if not plan.is_held(held)]
        views = iter(self._index.source.read_views(missing))
        return [
            [held[place] for place in map(tuple, plan.ranges.tolist())]
            if plan.is_held(held)
            else [next(views) for _ in plan.ranges]
            for plan in plans
        ]

    def _decode(
        self, held: FetchedPages, plan: _Plan, fetched: Sequence[memoryview] | None
    ) -> tuple[Sequence[memoryview], pa.Array | None]:
        """A column's pages and what they hold; those of a local file are read here, so that they
        are still next to the processor."""
        checks = self._checks
        if fetched is None and plan.pages.is_held(held):
            fetched = [held[place] for place in map(tuple, plan.pages.ranges.tolist())]
            checks = checks._replace(kind=ChecksumKind.NONE)  # the filter has done that
        elif fetched is None:
            fetched = self._index.source.read_chunk(plan.pages.ranges)
        array = self._picked(plan, fetched, checks)
        return (() if array is not None else fetched), array

    def _picked(
        self, plan: _Plan, fetched: Sequence[memoryview], checks: PageChecks
    ) -> pa.Array | None:
        node, rows = plan.pages.node, len(plan.picks)
        assert node.physical is not None
        opened = entries_of(plan.pages, fetched, checks)
        if opened is None:
            return None
        dictionary, pages = opened
        values = pick_pages(
            pages,
            np.ascontiguousarray(plan.pages.ranges[int(plan.pages.has_dictionary) :, 0]),
            plan.counts,
            plan.picks,
            plan.cuts,
            node.physical,
            dictionary,
            checks,
        )
        if isinstance(values, BinaryValues):
            return _strings(node, rows, values)
        if values is None:
            return None
        return pa.Array.from_buffers(node.storage, rows, [None, pa.py_buffer(values)], 0)


def _plan(pages: ChunkPages, wanted: np.ndarray) -> _Plan | None:
    """The pages that hold wanted slots; None where the column is better read otherwise.

    Parameters
    ----------
    wanted
        ``int64``, ascending: the rows.
    """
    cuts = pages.cuts
    at = wanted.searchsorted(cuts)
    touched = (at[1:] > at[:-1]).nonzero()[0]
    first, last = at[touched], at[touched + 1]
    between = (wanted[last - 1] - wanted[first]).sum() + len(touched)
    if len(wanted) > LONE_ROWS_MAX and PICKED_SLOTS_MIN * len(wanted) > between:
        return None
    before = cuts[touched]
    bounds = np.empty(len(first) + 1, np.int64)
    bounds[:-1], bounds[-1] = first, len(wanted)
    return _Plan(
        pages.some(touched),
        cuts[touched + 1] - before,
        wanted - before.repeat(last - first),
        bounds,
    )


def _strings(node: Node, rows: int, values: BinaryValues) -> pa.Array | None:
    offsets, form = values.offsets, known_form(node)
    assert form is not None
    if form[1] == 4:
        if offsets[-1] > _INT32_MAX:
            return None
        offsets = offsets.astype(np.int32)
    return pa.Array.from_buffers(
        node.storage, rows, [None, pa.py_buffer(offsets), pa.py_buffer(values.data)], 0
    )
