"""Rows that compaction removes because they have expired, and files that hold such rows.

A row is removed only where it is what a scan shows for its key, and no older row of the key is left
below. So no older row comes back: a key whose row was removed begins anew with the next row that is
written. Whatever the merge engine, the time of the merged row counts.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fermion.exports import dataclass
from fermion_table.merge_engines.key_groups import Unfoldable, is_retraction
from fermion_table.merging.fold import fold, groups_by_key
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.metadata.manifest import Entry
from fermion_table.schema.key_options import RecordExpiry
from fermion_table.schema.schema import TableSchema
from fermion_table.trees.section_reader import KeyedRows


@dataclass(frozen=True, slots=True)
class ExpiredRows:
    """Finds the rows that are expired at a time. Picklable.

    now_ms: Milliseconds since 1970 UTC.
    """

    expiry: RecordExpiry | None
    deletions: RecordExpiry | None
    now_ms: int

    def known_in(self, entry: Entry, schema: TableSchema, written: TableSchema) -> bool:
        """Whether a file is known to hold expired rows, by its statistics.

        schema, written: The table's, and that of the file.
        """
        if self.deletions is not None and entry.retractions:
            newest = self._bound(self.deletions, entry, schema, written, least=False)
            if newest is not None and self._are_expired(newest, self.deletions)[0]:
                return True
        if self.expiry is None or entry.retractions or entry.keys_repeated or entry.delete_rows:
            return False  # the least time may be that of a row that is not shown
        oldest = self._bound(self.expiry, entry, schema, written, least=True)
        return oldest is not None and bool(self._are_expired(oldest, self.expiry)[0])

    def _bound(
        self,
        expiry: RecordExpiry,
        entry: Entry,
        schema: TableSchema,
        written: TableSchema,
        *,
        least: bool,
    ) -> pa.Array | None:
        """The least or greatest time in a file, as an array of one; None: it is not known."""
        field = written.by_id.get(schema.by_name[expiry.column].id)
        statistics = None if field is None else entry.stats.get(field.id)
        bounds = None if statistics is None else statistics.bounds()
        if field is None or bounds is None:
            return None
        bound = bounds.min_value if least else bounds.max_value
        value = bound(field.type, exact=True)
        return None if value is None else pa.array([value], field.type)

    def removed(self, each: KeyedRows, key: PrimaryKey, *, is_final: bool) -> KeyedRows | None:
        """The rows without those of keys that are expired; None: no row is left.

        each: All rows of some keys that are left.
        is_final: Whether they are what a scan shows; otherwise there may be several of a key, or
            retractions.
        """
        kept = np.ones(each.rows.num_rows, bool)
        if self.expiry is not None and is_final:
            kept = ~self._are_expired(each.rows.column(self.expiry.column), self.expiry)
        elif self.expiry is not None:
            kept = ~self._of_expired_keys(each, key, self.expiry)
        if self.deletions is not None and each.kinds is not None:
            times = each.rows.column(self.deletions.column)
            kept &= ~(is_retraction(each.kinds) & self._are_expired(times, self.deletions))
        if kept.all():
            return each
        if not kept.any():
            return None
        mask = pa.array(kept)
        kinds = None if each.kinds is None else each.kinds[kept]
        return KeyedRows(each.rows.filter(mask), each.keys.filter(mask), kinds)

    def _of_expired_keys(
        self, each: KeyedRows, key: PrimaryKey, expiry: RecordExpiry
    ) -> np.ndarray:
        """Whether the row of a key is expired, for each of its rows: ``bool``, shape (n,)."""
        groups = groups_by_key(each.rows, each.keys, key)
        numbers = np.empty(each.rows.num_rows, np.int64)
        numbers[groups.order] = groups.numbers
        try:
            folded = fold(each.rows, groups, key, each.kinds, is_oldest=True)
        except Unfoldable:  # a key without a row: then these rows wait
            return np.zeros(each.rows.num_rows, bool)
        shown = folded.gather(each.rows, [expiry.column])
        expired = numbers[folded.rows[self._are_expired(shown.column(0), expiry)]]
        return np.isin(numbers, expired)

    def _are_expired(self, times: pa.Array, expiry: RecordExpiry) -> np.ndarray:
        """``bool``, shape (n,)."""
        limit = expiry.limit(times.type, self.now_ms)
        bits = pa.int32() if times.type.bit_width == 32 else pa.int64()
        numbers = times.cast(bits).cast(pa.int64())
        limit = max(min(limit, 2**63 - 1), -(2**63))
        below = pc.less(numbers, pa.scalar(limit, pa.int64())).fill_null(False)
        return below.to_numpy(zero_copy_only=False)


def expired_rows(key: PrimaryKey, now_ms: int) -> ExpiredRows | None:
    """What finds the expired rows of a table; None: its rows and deletions do not expire."""
    expiry, deletions = key.options.record_expiry, key.options.deletion_expiry
    if expiry is None and deletions is None:
        return None
    return ExpiredRows(expiry, deletions, now_ms)
