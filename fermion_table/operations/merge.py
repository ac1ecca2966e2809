"""A merge as a change of rows.

Everything is decided before anything is written, and everything is written before the draft
changes. The source is held in memory; of the table the keys, and what conditions read, of a
million rows or as many as the source has, and the numbers of the rows that change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from fermion.engine import one_batch, take_batch_rows
from fermion_table.commit.conflict import Partitions
from fermion_table.commit.publisher import Publisher
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.snapshot import Kind
from fermion_table.operations.draft import Draft, Matched
from fermion_table.operations.merge_by_key import by_key_concerns, check_by_key, merge_by_key
from fermion_table.operations.merge_clauses import Clause, MergeSides
from fermion_table.operations.merge_matching import (
    BoundMerge,
    FileOutcome,
    Matching,
    MergeCounts,
    bind_clauses,
    bind_merge,
    find_matches,
    rows_to_insert,
    unread_columns,
)
from fermion_table.operations.merge_source import MergeSource
from fermion_table.operations.rewriting import write_changed
from fermion_table.planning.plan import plan_scan
from fermion_table.schema.changes import merge_columns
from fermion_table.writing.make_writer import TableWriter


class Merge:
    """Rows of a table and of a source with equal keys are updated, deleted or inserted.

    Parameters
    ----------
    source
        The rows to merge.
    on
        Columns of the source by those of the table that they are compared with.
    clauses
        What happens to which rows: the first one that takes a row decides.
    publisher
        Of the branch, if columns that only the source has are added to the table; else None.

    Attributes
    ----------
    counts
        Of the draft that it was applied to last; or what counts them.
    """

    kind: Kind = "upsert"
    scope: Partitions | None = None

    def __init__(
        self,
        source: MergeSource,
        on: Mapping[str, str],
        clauses: Sequence[Clause],
        publisher: Publisher | None = None,
    ) -> None:
        self.source = source
        self.on = dict(on)
        self.clauses = tuple(clauses)
        self.publisher = publisher
        self.counts: MergeCounts | Callable[[], MergeCounts] = MergeCounts()
        self._bound: BoundMerge | None = None

    def apply(self, draft: Draft) -> None:
        """Write what the rows become, and delete what they were; batches stay in place."""
        self._add_columns(draft)
        merge = self._bound_to(draft)
        if draft.key is not None:
            self.counts = merge_by_key(draft, draft.key, merge)
            return
        matching = find_matches(draft, merge)
        inserted = 0
        with draft.writer() as writer:
            for outcome in matching.files:
                if outcome.entry.batch is None:
                    _write_updates(draft, merge, outcome, writer)
            for clause, rows in rows_to_insert(merge, matching.unmatched):
                made = clause.made_of(merge.seen_by_insert(clause, rows), None)
                writer.write(made, copy=False)
                inserted += len(rows)
            (message,) = writer.prepare_commit()
        rewritten = {
            outcome.entry.file: _write_batches(draft, merge, outcome)
            for outcome in matching.files
            if outcome.entry.batch is not None and _updates(merge, outcome).any()
        }
        for outcome in matching.files:
            if outcome.entry.file in rewritten:
                draft.take_place(outcome.entry, rewritten[outcome.entry.file])
            else:
                draft.delete(_gone(draft, outcome))
        draft.add_written(message.entries)
        if merge.inserts:
            draft.relied_on |= matching.partners
        self.counts = _counted(merge, matching, inserted)

    def concerns(self, entry: Entry, draft: Draft) -> bool:
        """Whether the file may hold keys of the source, or rows that a clause takes without one."""
        merge = self._bound_to(draft)
        if draft.key is not None:
            return by_key_concerns(entry, draft, draft.key, merge)
        if entry.schema_id not in draft.schemas:
            return True
        kept, _ = plan_scan([entry], draft.schemas, draft.schema, merge.chosen)
        return bool(kept)

    def describe(self) -> str:
        """What is merged how."""
        actions = dict.fromkeys(clause.action for clause in self.clauses)
        return f"merge on {', '.join(self.on)}: {', '.join(actions)}"

    def _bound_to(self, draft: Draft) -> BoundMerge:
        if self._bound is None or self._bound.sides.schema != draft.schema:
            bound = bind_merge(self.clauses, self.source.rows(), self.on, draft.schema)
            if draft.key is not None:
                for clause in bound.clauses:
                    check_by_key(clause, draft.key)
            self._bound = bound
        return self._bound

    def _add_columns(self, draft: Draft) -> None:
        """Add to the table what clauses that take every column would leave of the source."""
        if self.publisher is None:
            return
        sides = MergeSides(draft.schema, self.source.schema, self.on)
        unread = unread_columns(bind_clauses(self.clauses, sides), sides)
        if unread:
            added = pa.schema([self.source.schema.field(name) for name in unread])
            changes = merge_columns(draft.schema, added)
            draft.take_schema(self.publisher.changed_schema(draft.base, changes) or draft.schema)


def _counted(merge: BoundMerge, matching: Matching, inserted: int) -> MergeCounts:
    updated = sum(int(_updates(merge, each).sum()) for each in matching.files)
    taken = sum(len(each.rows) for each in matching.files)
    return MergeCounts(inserted, updated, taken - updated)


def _updates(merge: BoundMerge, outcome: FileOutcome) -> np.ndarray:
    """Which of the rows are updated, and not deleted: ``bool``."""
    is_update = np.array([clause.clause.action == "update" for clause in merge.clauses])
    return is_update[outcome.clauses]


def _gone(draft: Draft, outcome: FileOutcome) -> Matched:
    rows = outcome.ranges
    return Matched(outcome.entry, rows, rows.total == draft.live_rows(outcome.entry).total)


def _write_updates(
    draft: Draft, merge: BoundMerge, outcome: FileOutcome, writer: TableWriter
) -> None:
    """Write what rows of a file become, clause by clause."""
    for number in np.unique(outcome.clauses[_updates(merge, outcome)]).tolist():
        clause, part = merge.clauses[number], outcome.only(outcome.clauses == number)
        reader = draft.column_reader([part.entry], clause.carried)
        start = 0
        for batch in draft.read(reader, part.entry, part.ranges):
            source_rows = part.source_rows[start : start + batch.num_rows]
            start += batch.num_rows
            made = clause.made_of(merge.seen_by_update(clause, batch, source_rows), batch)
            writer.write(made, copy=False)


def _write_batches(draft: Draft, merge: BoundMerge, outcome: FileOutcome) -> tuple[Entry, ...]:
    """Write a file in batch mode again, its updated rows in place and without its deleted ones."""
    entry, is_update = outcome.entry, _updates(merge, outcome)
    deleted = outcome.only(~is_update).ranges
    kept = draft.live_rows(entry) & deleted.complement(entry.rows)
    updated = outcome.only(is_update)

    def change(batch: pa.RecordBatch, at: int) -> pa.RecordBatch:
        place = slice(at, at + batch.num_rows)
        return _updated(merge, batch, updated.source_rows[place], updated.clauses[place])

    return write_changed(draft, entry, kept, updated.ranges, change)


def _updated(
    merge: BoundMerge, batch: pa.RecordBatch, source_rows: np.ndarray, clauses: np.ndarray
) -> pa.RecordBatch:
    """Whole rows after their update, in their order; columns of batches stay as they are."""
    width = len(merge.sides.schema.fields)
    order, parts = [], []
    for number in np.unique(clauses).tolist():
        clause, places = merge.clauses[number], np.flatnonzero(clauses == number)
        rows = take_batch_rows(batch, places).select(range(width))
        parts.append(clause.fitting(merge.seen_by_update(clause, rows, source_rows[places]), rows))
        order.append(places)
    fresh = take_batch_rows(one_batch(parts), np.argsort(np.concatenate(order)))
    return pa.RecordBatch.from_arrays([*fresh.columns, *batch.columns[width:]], schema=batch.schema)
