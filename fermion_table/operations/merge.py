"""A merge as a change of rows.

Everything is decided before anything is written, and everything is written before the draft
changes. The source is held in memory; of the table the keys, and what conditions read, of a
million rows or as many as the source has, and the numbers of the rows that change.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from fermion.engine import one_batch, take_batch_rows
from fermion.predicate import RowRanges
from fermion_table.commit.commit import Publisher
from fermion_table.commit.conflict import Partitions
from fermion_table.commit.schema_versions import changed_schema
from fermion_table.merging.primary_key import primary_key_of
from fermion_table.metadata.manifest import Entry, KnownBlobs
from fermion_table.metadata.snapshot import Kind, Snapshot
from fermion_table.operations.assignments import LiteralValue
from fermion_table.operations.draft import Draft, Matched
from fermion_table.operations.merge_by_key import by_key_concerns, check_by_key, merge_by_key
from fermion_table.operations.merge_clauses import (
    TARGET,
    Clause,
    MergeClauses,
    MergeDescription,
    MergeSides,
    below,
    bind_clause,
    fields_of,
)
from fermion_table.operations.merge_matching import (
    BoundMerge,
    Evaluation,
    MergeCounts,
    Taken,
    bind_merge,
    unread_columns,
)
from fermion_table.operations.merge_source import MergeSource, check_on
from fermion_table.operations.row_changes import write_changed
from fermion_table.planning.plan import plan_scan
from fermion_table.schema.changes import merge_columns
from fermion_table.schema.schema import TableSchema
from fermion_table.writing.make_writer import TableWriter


class Merge:
    """Rows of a table and of a source with equal keys are updated, deleted or inserted.

    publisher: Of the branch, if columns that only the source has are added to the table; else None.

    Attributes:
    counts: Of the draft that it was applied to last; or what counts them.
    """

    kind: Kind = "upsert"
    scope: Partitions | None = None

    def __init__(
        self,
        source: MergeSource,
        clauses: MergeClauses,
        publisher: Publisher | None = None,
    ) -> None:
        self.source = source
        self.clauses = clauses
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
        self.counts = _merge_files(draft, merge)

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
        return self.clauses.describe()

    def _bound_to(self, draft: Draft) -> BoundMerge:
        if self._bound is None or self._bound.sides.schema != draft.schema:
            bound = bind_merge(self.clauses, self.source.rows(), draft.schema)
            if draft.key is not None:
                for clause in bound.clauses:
                    check_by_key(clause, draft.key)
            self._bound = bound
        return self._bound

    def _add_columns(self, draft: Draft) -> None:
        """Add to the table what clauses that take every column would leave of the source."""
        if self.publisher is None:
            return
        sides = MergeSides(draft.schema, self.source.schema, self.clauses)
        unread = unread_columns(sides.bound_clauses(), sides)
        if unread:
            added = pa.schema([self.source.schema.field(name) for name in unread])
            changes = merge_columns(draft.schema, added)
            draft.take_schema(
                changed_schema(self.publisher.store, draft.base, changes) or draft.schema
            )


def _merge_files(draft: Draft, merge: BoundMerge) -> MergeCounts:
    """Write what rows become, and delete what they were; batches stay in place."""
    files = draft.match(merge.chosen)
    evaluation, ends = Evaluation(merge), np.cumsum([each.rows.total for each in files])
    parts: list[Taken] = []
    partners: set[str] = set()
    start = 0
    for rows, paired, part in evaluation.decided(_rows_of(draft, files, merge)):
        owners = np.unique(np.searchsorted(ends, paired + start, "right"))
        partners.update(files[owner].entry.file for owner in owners.tolist())
        parts.append(replace(part, rows=part.rows + start))
        start += rows.num_rows
    outcomes = [each for part in _joined(parts) for each in _by_file(files, ends, part)]
    inserted = 0
    known = {each.name: each for entry, _ in outcomes for each in entry.blob_files}
    carried = KnownBlobs(known) if merge.carries_blobs else None
    with draft.writer(known_blobs=carried) as writer:
        for entry, taken in outcomes:
            if entry.batch is None:
                _write_updates(draft, merge, entry, taken, writer)
        for clause, source_rows in merge.insertions(evaluation.unmatched):
            writer.write(merge.made_by(clause, source_rows), copy=False)
            inserted += len(source_rows)
        (message,) = writer.prepare_commit()
    rewritten = {
        entry.file: _write_batches(draft, merge, entry, taken)
        for entry, taken in outcomes
        if entry.batch is not None and _updates(merge, taken).any()
    }
    for entry, taken in outcomes:
        if entry.file in rewritten:
            draft.take_place(entry, rewritten[entry.file])
        else:
            gone = RowRanges.from_indices(taken.rows)
            draft.delete(Matched(entry, gone, gone.total == draft.live_rows(entry).total))
    draft.add_written(message.entries)
    if merge.inserts:
        draft.relied_on |= partners
    updated = sum(int(_updates(merge, taken).sum()) for _, taken in outcomes)
    return MergeCounts(inserted, updated, sum(len(part.rows) for part in parts) - updated)


def _rows_of(draft: Draft, files: Sequence[Matched], merge: BoundMerge) -> Iterator[pa.RecordBatch]:
    """The rows of files that the merge may look at, with the columns that decide about them."""
    paths = [*((name,) for name in merge.sides.on), *below(merge.asked, TARGET)]
    fields = fields_of(merge.sides.schema, paths)
    reader = draft.column_reader([each.entry for each in files], fields)
    for each in files:
        yield from draft.read(reader, each.entry, each.rows)


def _joined(parts: Sequence[Taken]) -> Iterator[Taken]:
    """Several as one; none of none."""
    if parts:
        columns = zip(*((part.rows, part.source_rows, part.clauses) for part in parts), strict=True)
        yield Taken(*map(np.concatenate, columns))


def _by_file(
    files: Sequence[Matched], ends: np.ndarray, taken: Taken
) -> Iterator[tuple[Entry, Taken]]:
    """Rows by their places among those of all files, as rows of each file by their numbers there.

    ends: The place after the last row of each file.
    """
    bounds = np.searchsorted(taken.rows, [0, *ends])
    for number, (first, last) in enumerate(itertools.pairwise(bounds.tolist())):
        if first < last:
            rows, part = files[number].rows, taken.only(slice(first, last))
            places = part.rows - (ends[number] - rows.total)
            yield files[number].entry, replace(part, rows=rows.to_indices()[places])


def _updates(merge: BoundMerge, taken: Taken) -> np.ndarray:
    """Which of the rows are updated, and not deleted: ``bool``."""
    is_update = np.array([clause.clause.action == "update" for clause in merge.clauses])
    return is_update[taken.clauses]


def _write_updates(
    draft: Draft, merge: BoundMerge, entry: Entry, taken: Taken, writer: TableWriter
) -> None:
    """Write what rows of a file become, clause by clause."""
    for number, part in taken.only(_updates(merge, taken)).by_clause():
        clause, start = merge.clauses[number], 0
        carries = merge.carries_blobs
        reader = draft.column_reader([entry], clause.carried, carries_blobs=carries)
        for batch in draft.read(reader, entry, RowRanges.from_indices(part.rows)):
            source_rows = part.source_rows[start : start + batch.num_rows]
            start += batch.num_rows
            writer.write(merge.made_by(clause, source_rows, batch), copy=False)


def _write_batches(
    draft: Draft, merge: BoundMerge, entry: Entry, taken: Taken
) -> tuple[Entry, ...]:
    """Write a file in batch mode again, its updated rows in place and without its deleted ones."""
    is_update = _updates(merge, taken)
    deleted = RowRanges.from_indices(taken.rows[~is_update])
    kept = draft.live_rows(entry) & deleted.complement(entry.rows)
    updated, width = taken.only(is_update), len(merge.sides.schema.fields)

    def change(batch: pa.RecordBatch, at: int) -> pa.RecordBatch:
        """Whole rows after their update, in their order; columns of batches stay as they are."""
        here, order, made = updated.only(slice(at, at + batch.num_rows)), [], []
        for number, part in replace(here, rows=np.arange(batch.num_rows)).by_clause():
            clause, rows = merge.clauses[number], take_batch_rows(batch, part.rows)
            rows = rows.select(range(width))
            fresh = merge.made_by(clause, part.source_rows, rows)
            made.append(clause.fitting(fresh, rows.schema))
            order.append(part.rows)
        fresh = take_batch_rows(one_batch(made), np.argsort(np.concatenate(order)))
        columns = [*fresh.columns, *batch.columns[width:]]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    changed = RowRanges.from_indices(updated.rows)
    reader = draft.reader([entry], carries_blobs=merge.carries_blobs)
    return write_changed(draft, reader, entry, kept, changed, change)


class MergeResult:
    """What a merge did.

    Parameters
    ----------
    snapshot, counts
        Use `MergeBuilder.execute`.

    Attributes
    ----------
    snapshot
        The new one; the latest one if no row changed; None within a transaction, which makes one
        at its end.
    rows_inserted, rows_updated, rows_deleted
        By this call: zeros where an earlier try of the same commit had been published. Within a
        transaction, as of then: a commit that comes first may change them. Of a merge that is an
        upsert (see `Table.merge`), as of the snapshot that it began with: they are counted when
        one of them is asked for first, which reads the keys of that snapshot, and raises
        VersionNotFound where it has expired.
    """

    def __init__(
        self, snapshot: Snapshot | None, counts: MergeCounts | Callable[[], MergeCounts]
    ) -> None:
        self.snapshot = snapshot
        self._counts = counts

    def __reduce__(self) -> tuple[type[MergeResult], tuple[Snapshot | None, MergeCounts]]:
        """With the counts, whatever they are counted from."""
        return MergeResult, (self.snapshot, self._known)

    @property
    def rows_inserted(self) -> int:
        """See above."""
        return self._known.inserted

    @property
    def rows_updated(self) -> int:
        """See above."""
        return self._known.updated

    @property
    def rows_deleted(self) -> int:
        """See above."""
        return self._known.deleted

    @property
    def _known(self) -> MergeCounts:
        if not isinstance(self._counts, MergeCounts):
            self._counts = self._counts()
        return self._counts

    def __repr__(self) -> str:
        snapshot = "no snapshot yet" if self.snapshot is None else f"snapshot {self.snapshot.id}"
        if not isinstance(self._counts, MergeCounts):
            return f"<MergeResult: {snapshot}, an upsert, rows not counted yet>"
        return (
            f"<MergeResult: {snapshot}, {self.rows_inserted:,} rows inserted, "
            f"{self.rows_updated:,} updated, {self.rows_deleted:,} deleted>"
        )


class MergeBuilder(MergeDescription):
    """A merge that is being described: add clauses, then call `execute`.

    Conditions and values name columns ``target.COLUMN`` and ``source.COLUMN``. A condition is
    anything that `fermion` takes as a filter; to compare two columns pass a pyarrow expression,
    ``pc.field("source", "at") > pc.field("target", "at")``.

    A column is set to SQL such as ``"source.n"`` or ``"target.n + source.n"`` (see
    `SqlExpression`; more than a column needs DuckDB), a value (None is null, text as
    ``fermion_table.lit(text)``), ``fermion.col("source.n")``, a ``pyarrow.compute.Expression`` such
    as ``pc.field("target", "n") + pc.field("source", "n")``, or a function from a record batch with
    the columns ``target`` and ``source`` (structs) to an array.

    Parameters
    ----------
    source, on
        See `Table.merge`.
    schema
        Of the table: clauses are checked against it.
    run
        Executes the merge.
    publisher
        See `Merge`.
    """

    def __init__(
        self,
        source: Any,
        on: Any,
        schema: TableSchema,
        run: Callable[[Merge], MergeResult],
        publisher: Publisher | None = None,
    ) -> None:
        super().__init__(check_on(on, schema))
        self._key = primary_key_of(schema)
        self._source = MergeSource(source, self._on, schema)
        self._sides = MergeSides(schema, self._source.schema, self._clauses)
        self._run = run
        self._publisher = publisher

    def execute(self) -> MergeResult:
        """Merge, as one snapshot.

        Raises
        ------
        InvalidArgumentError
            There is no clause, it was executed before, or several rows of the source match a row
            of the table that clauses update or delete.
        SchemaMismatch
            A value does not fit its column, or the source has a column that the table lacks and
            no clause reads, where a clause takes all; or a column that is NOT NULL has no value.
        CommitConflict, CommitStateUnknown
        """
        return self._run(Merge(self._source, self._begun(), self._publisher))

    def _checked(self, clause: Clause) -> Clause:
        bound = bind_clause(clause, self._sides)
        if self._key is not None:
            check_by_key(bound, self._key)
        if clause.values is None:
            return clause
        # Text that is a value is not read again: it would be warned of again.
        texts = {
            name: value
            for name, value in bound.values.items()
            if isinstance(value, LiteralValue) and name in clause.values
        }
        return replace(clause, values={**clause.values, **texts})
