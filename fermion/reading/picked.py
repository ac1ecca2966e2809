"""A few rows of flat columns of many pages: planned with a few array operations a column.

A page costs no object but a view of its bytes. What the kernels do not know (nulls, booleans,
dictionaries that stripes share, other encodings, damage) is left to `column.read_columns`, which
reads everything and knows what to say of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fermion.columns.ranges import RowRanges
from fermion.columns.types import Node
from fermion.columns.values import BinaryValues, Values
from fermion.errors import FermionError
from fermion.layout import ChecksumKind, ChunkFlag, EncodingId
from fermion.metadata.cmb import ColumnBlock
from fermion.pages.frame import root_encoding
from fermion.pages.pages import PageSlice, decode_dictionary
from fermion.reading.column import FetchedPages
from fermion.reading.flat import known_form
from fermion.reading.index import FileIndex
from fermion.reading.picks import pick_pages
from fermion.reading.spread import run_by_size
from fermion.reading.stream import PICKED_RUN_MAX, PICKED_SLOTS_MIN

PICKED_ROWS_MAX = 1 << 20
"""Rows that are named one by one."""

_FIRST_PAGE_IS_DICT = int(ChunkFlag.FIRST_PAGE_IS_DICT)
_OTHERS = int(ChunkFlag.DENSE_NO_NULL_SLOTS) | int(ChunkFlag.USES_GLOBAL_DICT)
_INT32_MAX = 2**31 - 1
_BITS = ord("b")


class _Plan(NamedTuple):
    """The pages of a chunk that hold wanted slots.

    Attributes
    ----------
    ranges
        ``int64``, shape (pages, 2): where they lie, that of the dictionary first if there is one.
    counts
        ``int64``: slots of each page, without the dictionary's.
    picks, cuts
        The slots wanted, counted within their pages, and which of them each page has.
    """

    node: Node
    has_dictionary: bool
    ranges: np.ndarray
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
        self, columns: Sequence[tuple[int, Node]], stripe: int, ranges: RowRanges
    ) -> tuple[list[pa.Array | None], FetchedPages]:
        """Some rows of some columns of a stripe.

        Parameters
        ----------
        columns
            Ordinals and trees.

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
            and (plan := _plan(columns[place][1], block, stripe, wanted, slots)) is not None
        ]
        is_split = len(planned) < len(columns)
        if not planned or (is_split and not self._index.source.source.is_local):
            return found, {}  # one round of requests for all columns
        plans = [plan for _, plan in planned]
        buffers, places = self._index.source.read_places(np.concatenate([p.ranges for p in plans]))
        views = [buffers[buffer][at : at + size] for buffer, at, size in places.tolist()]
        ends = np.cumsum([len(plan.ranges) for plan in plans]).tolist()
        pages = [views[stop - len(p.ranges) : stop] for p, stop in zip(plans, ends, strict=True)]
        sizes = [int(plan.ranges[:, 1].sum()) for plan in plans]
        arrays = run_by_size(self._executor, self._decode, sizes, rows, plans, pages)
        left: FetchedPages = {}
        for (place, plan), own, array in zip(planned, pages, arrays, strict=True):
            found[place] = array
            if array is None:
                left.update(zip(map(tuple, plan.ranges.tolist()), own, strict=True))
        return found, left

    def _decode(self, plan: _Plan, pages: Sequence[memoryview]) -> pa.Array | None:
        physical, rows = plan.node.physical, len(plan.picks)
        assert physical is not None
        dictionary: Values | None = None
        offsets = plan.ranges[:, 0].copy()
        if plan.has_dictionary:
            first, pages = pages[0], pages[1:]
            if any(root_encoding(page) == EncodingId.DICTIONARY for page in pages):
                entries = PageSlice(first, int(offsets[0]), None, 0, 0)
                try:
                    dictionary = decode_dictionary(entries, physical, checks=self._checks)
                except FermionError:  # told by the way around, which names the file
                    return None
            offsets = offsets[1:]
        values = pick_pages(
            pages, offsets, plan.counts, plan.picks, plan.cuts, physical, dictionary, self._checks
        )
        if isinstance(values, BinaryValues):
            return _strings(plan.node, rows, values)
        if values is None:
            return None
        return pa.Array.from_buffers(plan.node.storage, rows, [None, pa.py_buffer(values)], 0)


def _plan(
    node: Node, block: ColumnBlock, stripe: int, wanted: np.ndarray, slots: int
) -> _Plan | None:
    """The pages of a column that hold wanted slots; None where it has to be read otherwise.

    Parameters
    ----------
    wanted
        ``int64``, ascending: the rows.
    """
    try:
        chunk = block.chunk(node.stream, stripe)
        is_known = not chunk.is_empty and not chunk.flags & _OTHERS
        if not is_known or block.chunk(node.validity, stripe).length:
            return None
        metas = block.pages(chunk)
    except FermionError:  # told by the way around, when it comes to this column
        return None
    if metas is None:
        return None
    skip = int(bool(chunk.flags & _FIRST_PAGE_IS_DICT))
    sizes, counts = metas["pageSize"].astype(np.int64), metas["rowCount"].astype(np.int64)
    cuts = np.zeros(len(metas) + 1 - skip, np.int64)
    counts[skip:].cumsum(out=cuts[1:])
    if cuts[-1] != slots or counts[:skip].any():
        return None
    at = wanted.searchsorted(cuts)
    touched = (at[1:] > at[:-1]).nonzero()[0]
    first, last = at[touched], at[touched + 1]
    between = (wanted[last - 1] - wanted[first]).sum() + len(touched)
    if PICKED_SLOTS_MIN * len(wanted) > between:
        return None
    pages = touched + skip
    if skip:
        pages = np.concatenate(([0], pages))
    offsets = sizes.cumsum() - sizes + chunk.offset
    return _Plan(
        node,
        bool(skip),
        np.stack((offsets[pages], sizes[pages]), axis=1),
        counts[touched + skip],
        wanted - cuts[touched].repeat(last - first),
        np.append(first, len(wanted)),
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
