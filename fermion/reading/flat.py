"""Flat columns of a stripe, many at once: the short way from CMBs to Arrow arrays.

Wide tables have thousands of columns of a few kilobytes each. Where a chunk is a single page, the
kernels parse its CMB and decode the page with no Python object in between. Whatever is not so (more
pages, other encodings of strings, damage) is left to `column_reader`, which reads everything and
knows what to say of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np
import pyarrow as pa

from fermion import kernels
from fermion.columns.ranges import RowRanges
from fermion.columns.types import Form, Node, flat_form
from fermion.encodings.decoding import decode_numbers
from fermion.io.compression import decompress
from fermion.layout import ALL_NULL_LENGTH, ChecksumKind
from fermion.pages.frame import HEADER_SIZE, page_checksums
from fermion.reading.column import THREADED_SLOTS_MIN, FetchedPages
from fermion.reading.index import FileIndex

FLAT_COLUMNS_PER_TASK = 64
# Of columns with fewer bytes the threads would pass Python's lock to and fro for longer than they
# work without it.
THREADED_COLUMN_BYTES_MIN = 32 * 1024

PICKED_ROWS_MAX = 1 << 20
"""Rows that are named one by one."""

FORMS_KNOWN_MAX = 1024
_forms: dict[int, tuple[pa.DataType, Form | None]] = {}
"""By identity of the type, which all columns of a shape share and which is kept alive here."""


def _form(node: Node) -> Form | None:
    """`flat_form`, remembered: files of a table share their types too."""
    known = _forms.get(id(node.type))
    if known is None:
        if len(_forms) >= FORMS_KNOWN_MAX:
            _forms.clear()
        known = _forms[id(node.type)] = (node.type, flat_form(node))
    return known[1]


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

    def arrays(
        self, columns: Sequence[tuple[int, Node]], stripe: int, ranges: RowRanges | None = None
    ) -> tuple[list[pa.Array | None], FetchedPages]:
        """Some rows of some columns of a stripe.

        Parameters
        ----------
        columns
            Ordinals and trees.
        ranges
            Rows of the stripe; None: all.

        Returns
        -------
        arrays, pages
            None for a column that has to be read otherwise, and what was fetched for such columns.
        """
        found: list[pa.Array | None] = [None] * len(columns)
        forms = [_form(node) for _, node in columns]
        flat = [place for place, form in enumerate(forms) if form is not None]
        if not flat or (ranges is not None and not _is_picked(ranges.total, len(flat))):
            return found, {}
        index, slots = self._index, int(self._index.stripe_rows[stripe])
        picks = None if ranges is None else ranges.to_indices()
        rows = slots if picks is None else len(picks)
        blocks, places, offsets = index.block_places([columns[place][0] for place in flat])
        chunks = kernels.flat_chunks(
            blocks,
            places,
            index.stripe_rows,
            stripe,
            index.footer.cmb_offset,
            index.footer.sizes,
            offsets,
            index.footer.place_key,
        )
        all_null = chunks[:, 1] == ALL_NULL_LENGTH
        for place in np.flatnonzero(all_null & (chunks[:, 3] == 0)).tolist():
            node = columns[flat[place]][1]
            if node.nullable:
                found[flat[place]] = pa.nulls(rows, node.storage)
        paged = np.flatnonzero(~all_null & (chunks[:, 3] > 0))
        wanted = [flat[place] for place in paged.tolist()]
        pages = chunks[paged].reshape(-1, 2)
        buffers, places = index.source.read_places(pages)

        def decode(start: int) -> list[pa.Array | None]:
            group = wanted[start : start + FLAT_COLUMNS_PER_TASK]
            nodes = [columns[place][1] for place in group]
            own = slice(2 * start, 2 * (start + len(group)))
            own_forms = [forms[place] or (0, 0) for place in group]
            return self._decode(nodes, own_forms, buffers, places[own], pages[own, 0], slots, picks)

        starts = range(0, len(wanted), FLAT_COLUMNS_PER_TASK)
        bytes_min = THREADED_COLUMN_BYTES_MIN * len(wanted)
        worth = len(starts) > 1 and pages[:, 1].sum() >= bytes_min
        run = map if self._executor is None or not worth else self._executor.map
        for start, arrays in zip(starts, run(decode, starts), strict=True):
            for place, array in zip(wanted[start : start + len(arrays)], arrays, strict=True):
                found[place] = array
        if all(found[place] is not None for place in wanted):
            return found, {}
        left = np.repeat(np.array([found[place] is None for place in wanted], bool), 2)
        return found, {
            (offset, length): buffers[buffer][at : at + length]
            for (offset, length), (buffer, at, _) in zip(
                pages[left].tolist(), places[left].tolist(), strict=True
            )
        }

    def _decode(
        self,
        nodes: Sequence[Node],
        forms: Sequence[Form],
        buffers: list[memoryview],
        places: np.ndarray,
        offsets: np.ndarray,
        slots: int,
        picks: np.ndarray | None,
    ) -> list[pa.Array | None]:
        places = self._sound(buffers, places, offsets)
        decoded = kernels.decode_flat(
            buffers,
            np.ascontiguousarray(places[1::2]),
            np.ascontiguousarray(places[::2]),
            bytes([letter for letter, _ in forms]),
            np.array([width for _, width in forms], np.int64),
            np.array([node.nullable for node in nodes], np.uint8),
            slots,
            self._checks.kind is ChecksumKind.CRC32C,
            self._borrow,
            decode_numbers,
            _unzip,
            np.ascontiguousarray(offsets).reshape(-1, 2),
            self._checks.place_key,
            picks,
        )
        rows = slots if picks is None else len(picks)
        return [
            None if parts is None else _array(node.storage, rows, *parts)
            for node, parts in zip(nodes, decoded, strict=True)
        ]

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
