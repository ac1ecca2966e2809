"""What `Table.merge` and `Transaction.merge` return: takes clauses, and executes the merge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fermion_table.commit.publisher import Publisher
from fermion_table.merging.primary_key import primary_key_of
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.operations.merge import Merge
from fermion_table.operations.merge_by_key import check_by_key
from fermion_table.operations.merge_clauses import Clause, MergeSides, bind_clause
from fermion_table.operations.merge_description import MergeDescription
from fermion_table.operations.merge_matching import MergeCounts
from fermion_table.operations.merge_source import MergeSource, check_on
from fermion_table.schema.schema import TableSchema


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

    A column is set to ``"source.COLUMN"``, ``"target.COLUMN"``, a value (None is null),
    ``fermion.col("source.COLUMN")``, a ``pyarrow.compute.Expression`` such as
    ``pc.field("target", "n") + pc.field("source", "n")``, or a function from a record batch with
    the columns ``target`` and ``source`` (structs) to an array. Text that begins with ``source.``
    or ``target.`` is a column: pass such a value as ``pa.scalar(text)``.

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
        self._sides = MergeSides(schema, self._source.schema, self._on)
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
        clauses = list(self._begun())
        return self._run(Merge(self._source, self._on, clauses, self._publisher))

    def _check(self, clause: Clause) -> None:
        bound = bind_clause(clause, self._sides)
        if self._key is not None:
            check_by_key(bound, self._key)
