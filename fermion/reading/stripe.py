"""Reads rows of one stripe: what a filter needs first, then only the rows that it selects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from copy import copy
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fermion import arrow_compute as pc
from fermion.columns.arrow_buffers import booleans
from fermion.columns.ranges import RowRanges, join_near, mask_within
from fermion.columns.rows import Matches, empty_columns, filter_arrays
from fermion.errors import InvalidFileError
from fermion.predicate import Expression, evaluate, without_opaque
from fermion.reading.batches import BatchLookup
from fermion.reading.bounds import PrunedRows, StripeBounds
from fermion.reading.column import FetchedPages
from fermion.reading.encoded_filter import EncodedFilter
from fermion.reading.index import FileIndex
from fermion.reading.projection import Projected, read_by, result_schema
from fermion.reading.stripe_columns import StripeColumns

DENSE_FRACTION = 0.25
FEW_ROWS, FEW_BYTES = 32 * 1024, 4 * 1024 * 1024
"""Of a stripe of at most so many rows, in a file of so many bytes, picking rows costs more than to
decode all of them, unless next to none are selected."""
FEW_FRACTION = 1 / 32
TOGETHER_COLUMNS_MAX = 16
"""Columns of such a stripe that are read at once, with those that the filter reads."""
JOIN_ROWS = 512


class Chosen(NamedTuple):
    """Rows of a stripe that a filter selects.

    Attributes
    ----------
    rows
        How many they are; 0 too where all rows are decoded, as the stripe is small.
    read
        Reads them with a reader of the file; gives None where there are none.
    """

    rows: int
    read: Callable[[StripeReader], pa.RecordBatch | None]


class StripeReader:
    """Reads columns of a file stripe by stripe.

    Parameters
    ----------
    index
        The open file.
    executor
        Decodes columns side by side; None: one after the other.
    """

    def __init__(self, index: FileIndex, executor: Executor | None) -> None:
        self._index = index
        checks = index.footer.page_checks(index.options.verify_checksums)
        self.batches = BatchLookup(index, checks=checks)
        self.bounds = StripeBounds(index, self.batches)
        self._columns = StripeColumns(index, self.batches, executor)
        self._encoded = EncodedFilter(index, executor)

    def alone(self) -> StripeReader:
        """The same for one thread, while others read other stripes."""
        reader = copy(self)
        reader._columns = self._columns.alone()
        reader._encoded = EncodedFilter(self._index, None)
        return reader

    def fetch(
        self, columns: Sequence[Projected], stripe: int, ranges: RowRanges, kept: FetchedPages
    ) -> None:
        """Fetch pages that hold some rows of columns (see `StripeColumns.fetch`)."""
        self._columns.fetch(columns, stripe, ranges, kept)

    def stored_bytes(self, columns: Sequence[Projected], stripe: int) -> int:
        """Bytes of the pages of some columns of a stripe."""
        return self._columns.stored_bytes(columns, stripe)

    def batch(
        self,
        columns: Sequence[Projected],
        stripe: int,
        ranges: RowRanges | None,
        kept: FetchedPages | None = None,
    ) -> pa.RecordBatch:
        """The same as a record batch, which knows its length without any column."""
        if not columns:
            rows = int(self._index.stripe_rows[stripe]) if ranges is None else ranges.total
            return empty_columns(rows)
        schema = result_schema(columns)
        arrays, batch = self._columns.arrays_or_batch(columns, stripe, ranges, kept, schema)
        return pa.RecordBatch.from_arrays(arrays, schema=schema) if batch is None else batch

    def selected(
        self,
        columns: Sequence[Projected],
        stripe: int,
        ranges: RowRanges | None,
        kept: FetchedPages | None = None,
    ) -> pa.RecordBatch:
        """The same where rows may be missing here and there: small gaps are read and left out."""
        joined = ranges and join_near(ranges, JOIN_ROWS)
        if ranges and joined and ranges.total <= joined.total * DENSE_FRACTION:
            return self.batch(columns, stripe, ranges, kept)
        batch = self.batch(columns, stripe, joined and self._whole(joined, stripe), kept)
        if ranges is None or joined is None or joined.total == ranges.total:
            return batch
        if not columns:
            return empty_columns(ranges.total)
        arrays = _filtered(columns, batch.columns, mask_within(ranges, joined))
        return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)

    def find(
        self,
        expression: Expression,
        columns: Sequence[Projected],
        stripe: int,
        within: RowRanges | None = None,
    ) -> RowRanges:
        """Which rows of a stripe match; reads only rows that statistics do not decide."""
        rows = int(self._index.stripe_rows[stripe])
        may, must = self.bounds.prune(expression, columns, stripe)
        undecided = may & must.complement(rows)
        if within is not None:
            undecided = undecided & join_near(within, JOIN_ROWS)
        mask = self._matches(expression, columns, stripe, undecided).mask
        matching = must | RowRanges.from_indices(undecided.to_indices()[mask])
        return matching if within is None else matching & within

    def _matches(
        self,
        expression: Expression,
        columns: Sequence[Projected],
        stripe: int,
        ranges: RowRanges,
        kept: FetchedPages | None = None,
    ) -> Matches:
        """Which of some rows match, and the filter's columns over them, or their pages."""
        if not ranges:
            return Matches(ranges, np.zeros(0, bool), None)
        if kept is None:
            found = self._found(expression, columns, stripe, ranges)
            if found is not None:
                return found
        batch = self.batch(columns, stripe, self._whole(ranges, stripe), kept)
        return Matches(ranges, self._mask(expression, batch, stripe), batch.columns)

    def _found(
        self,
        expression: Expression,
        columns: Sequence[Projected],
        stripe: int,
        ranges: RowRanges,
    ) -> Matches | None:
        """The same, where it needs no decoding but of what opaque parts read, in the rows that the
        other parts select; else None."""
        easy, rest = without_opaque(expression)
        if easy is None:
            return None
        read = read_by(easy, columns)
        found = self._encoded.find(easy, read, stripe, self._whole(ranges, stripe))
        if found is None:
            return None
        mask = found.mask
        if rest is not None and mask.any():
            rows = RowRanges.from_indices(ranges.to_indices()[mask])
            batch = self.selected(read_by(rest, columns), stripe, self._whole(rows, stripe))
            mask = mask.copy()
            mask[mask] = self._mask(rest, batch, stripe)
        return Matches(ranges, mask, None, found.pages)

    def _mask(self, expression: Expression, rows: pa.RecordBatch, stripe: int) -> np.ndarray:
        """Whether each of some rows of a stripe matches: ``bool``."""
        try:
            mask = evaluate(expression, rows)
            mask = pc.fill_null(mask, False) if mask.null_count else mask
        except pa.ArrowException as error:  # such as decimals with more digits than their type
            raise InvalidFileError(
                f"{self._index.where}: stripe {stripe}: values that cannot be compared: {error}"
            ) from error
        found: np.ndarray = booleans(mask).unpack()
        return found

    def _whole(self, ranges: RowRanges, stripe: int) -> RowRanges | None:
        return None if ranges.total == int(self._index.stripe_rows[stripe]) else ranges

    def filtered(
        self,
        expression: Expression,
        filter_columns: Sequence[Projected],
        columns: Sequence[Projected],
        stripe: int,
        within: RowRanges | None = None,
        *,
        pruned: PrunedRows | None = None,
        kept: FetchedPages | None = None,
    ) -> pa.RecordBatch | None:
        """The rows of a stripe that a filter selects; None where there are none.

        Parameters
        ----------
        within
            Rows of the stripe to read; None: all.
        pruned
            The rows that statistics leave; None: prune here.
        kept
            See `arrays`.
        """
        chosen = self.choose(
            expression, filter_columns, columns, stripe, within, pruned=pruned, kept=kept
        )
        return chosen.read(self)

    def choose(
        self,
        expression: Expression,
        filter_columns: Sequence[Projected],
        columns: Sequence[Projected],
        stripe: int,
        within: RowRanges | None = None,
        *,
        pruned: PrunedRows | None = None,
        kept: FetchedPages | None = None,
    ) -> Chosen:
        """The rows of a stripe that a filter selects, not read yet; parameters as of `filtered`."""
        may, must = pruned or self.bounds.prune(expression, filter_columns, stripe)
        wanted, certain = (may, must) if within is None else (may & within, must & within)
        if wanted == certain:
            rows = self._whole(wanted, stripe)
            return Chosen(
                wanted.total,
                lambda reader: reader.selected(columns, stripe, rows, kept) if wanted else None,
            )
        count = len(columns) + len(filter_columns)
        is_open = bool(filter_columns) and kept is None and not certain
        if is_open and self._is_read_together(count, stripe, may):
            return Chosen(
                0,
                lambda reader: reader._together(
                    expression, filter_columns, columns, stripe, within
                ),
            )
        if within is not None:
            may = may & join_near(within, JOIN_ROWS)
        matches = self.matches(expression, filter_columns, stripe, wanted, may, kept)
        count = matches.count()
        return Chosen(
            count,
            lambda reader: reader.matched(columns, filter_columns, stripe, matches, kept, count),
        )

    def _together(
        self,
        expression: Expression,
        filter_columns: Sequence[Projected],
        columns: Sequence[Projected],
        stripe: int,
        within: RowRanges | None,
    ) -> pa.RecordBatch | None:
        """The same of a small stripe: all columns are read at once, then rows are chosen."""
        read, count = list(filter_columns), len(filter_columns)
        own = {_key(column): place for place, column in enumerate(filter_columns)}
        places = []
        for column in columns:
            place = own.get(_key(column))
            if place is None or not _is_reusable(read[place].field.type, column):
                place = len(read)
                read.append(column)
            places.append(place)
        arrays = self._columns.arrays(read, stripe, None)
        tested = pa.RecordBatch.from_arrays(arrays[:count], schema=result_schema(filter_columns))
        mask = self._mask(expression, tested, stripe)
        if within is not None:
            mask &= within.to_mask(len(mask))
        if not mask.any():
            return None
        if not columns:
            return empty_columns(int(np.count_nonzero(mask)))
        chosen = _filtered(columns, [arrays[place] for place in places], mask)
        return pa.RecordBatch.from_arrays(chosen, schema=result_schema(columns))

    def matches(
        self,
        expression: Expression,
        filter_columns: Sequence[Projected],
        stripe: int,
        wanted: RowRanges,
        around: RowRanges,
        kept: FetchedPages | None = None,
    ) -> Matches:
        """Which of the wanted rows match; ``around`` holds them, and is read."""
        found = self._matches(expression, filter_columns, stripe, around, kept)
        if wanted.total < around.total:
            found = replace(found, mask=found.mask & mask_within(wanted, around))
        return found

    def matched(
        self,
        columns: Sequence[Projected],
        filter_columns: Sequence[Projected],
        stripe: int,
        matches: Matches,
        kept: FetchedPages | None = None,
        count: int | None = None,
    ) -> pa.RecordBatch | None:
        """The rows that match, without reading the filter's columns again; None where none do.

        Parameters
        ----------
        count
            How many they are; None: they are counted here.
        """
        mask, count = matches.mask, matches.count() if count is None else count
        if not count:
            return None
        candidates = self._whole(matches.around, stripe)
        of_filter = {
            _key(column): array
            for column, array in zip(
                filter_columns if matches.arrays else (), matches.arrays or (), strict=True
            )
        }
        known = [
            array if array is not None and _is_reusable(array.type, column) else None
            for column in columns
            for array in [of_filter.get(_key(column))]
        ]
        others = [column for column, array in zip(columns, known, strict=True) if array is None]
        rest = iter(
            self._survivors(others, stripe, matches, count, candidates, kept) if others else ()
        )
        at_hand = [place for place, array in enumerate(known) if array is not None]
        mine = [columns[place] for place in at_hand]
        chosen = iter(_filtered(mine, [known[place] for place in at_hand], mask) if mine else ())
        arrays = [next(rest) if array is None else next(chosen) for array in known]
        if not columns:
            return empty_columns(count)
        schema = pa.schema([column.field for column in columns])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _survivors(
        self,
        columns: Sequence[Projected],
        stripe: int,
        matches: Matches,
        count: int,
        candidates: RowRanges | None,
        kept: FetchedPages | None,
    ) -> list[pa.Array]:
        """Columns the filter did not read: only the selected rows, unless they are many."""
        mask = matches.mask
        if count > self._dense_fraction(stripe, kept) * len(mask):
            return _filtered(columns, self._columns.arrays(columns, stripe, candidates, kept), mask)
        wanted = np.flatnonzero(mask)
        if candidates is not None and len(candidates) == 1:
            wanted = wanted + candidates.starts[0]
        elif candidates is not None:
            wanted = candidates.to_indices()[wanted]
        rows = RowRanges.from_listed(wanted)
        return self._columns.arrays(columns, stripe, rows, kept, matches.pages)

    def _dense_fraction(self, stripe: int, kept: FetchedPages | None) -> float:
        """Of a stripe's rows: if more are selected, all are decoded and the others left out."""
        return FEW_FRACTION if kept is None and self._is_small(stripe) else DENSE_FRACTION

    def _is_read_together(self, columns: int, stripe: int, rows: RowRanges) -> bool:
        """Whether all of so many columns are read before the filter is looked at."""
        is_local = self._index.source.source.is_local
        is_few = columns <= TOGETHER_COLUMNS_MAX and self._is_small(stripe)
        return is_local and is_few and self._whole(rows, stripe) is None

    def _is_small(self, stripe: int) -> bool:
        """Whether picking rows of a stripe costs more than to decode all of them."""
        rows, end = self._index.stripe_rows[stripe], self._index.footer.cmb_offset
        return bool(rows <= FEW_ROWS and end <= FEW_BYTES)


def _key(column: Projected) -> int | str:
    """What tells a column's values from others': its ordinal, or the name of a virtual one."""
    return column.ordinal if column.tree is not None else column.field.name


def _is_reusable(dtype: pa.DataType, column: Projected) -> bool:
    """Whether values that the filter read, of a type, are the column's as it is asked for."""
    return bool(dtype == column.field.type) and column.shared is None


def _filtered(
    columns: Sequence[Projected], arrays: Sequence[pa.Array], mask: np.ndarray
) -> list[pa.Array]:
    return filter_arrays(arrays, mask, lambda place: columns[place].node)
