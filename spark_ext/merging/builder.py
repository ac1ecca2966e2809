"""`spark_ext.merge`: rows of a data frame update, delete and insert rows of a table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from fermion.errors import InvalidArgumentError
from fermion_table import CommitMetadata, MergeResult, StorageAccess, Table
from fermion_table.changes.merge_clauses import Action, Case, Clause, check_reachable
from fermion_table.changes.merge_matching import MergeCounts
from fermion_table.changes.merge_source import check_on
from spark_ext.merging.run import FrameMerge, check_clause, run_merge
from spark_ext.opening import open_table
from spark_ext.session import classic, classic_frame
from spark_ext.writing.job import committed_before


def merge(
    spark: SparkSession,
    path: str | os.PathLike[str],
    source: DataFrame,
    on: Sequence[str] | Mapping[str, str] | str,
    *,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
    branch: str | None = None,
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
) -> FrameMergeBuilder:
    """Merge the rows of a data frame into a table, as one snapshot; needs no catalog.

    ``merge(spark, path, changes, on=["id"]).when_matched_update().when_not_matched_insert()
    .execute()`` does what `fermion_table.Table.merge` does, in Spark's tasks.

    Parameters
    ----------
    spark
        A classic session.
    path
        The table. It must exist.
    source
        The rows to merge. It is computed once, and of a primary-key table once more where the rows
        of an upsert are counted.
    on
        Columns whose values are equal in rows that match: names that both sides have, or a mapping
        from columns of the table to those of the source. Null matches nothing; NaN matches NaN.
        Values of the source are cast to the table's types.
    message, properties, commit_user, commit_identifier
        As for `spark_ext.append`.
    branch, storage_options, access
        As for `spark_ext.append`.

    Returns
    -------
    FrameMergeBuilder
        Add clauses to it, and call its ``execute()``.

    Raises
    ------
    TypeError, InvalidArgumentError
        Names the argument that is wrong.
    ColumnNotFoundError
        A column of `on` is not there.
    TableNotFound, VersionNotFound, UnsupportedBySpark
        As for `spark_ext.append`.
    """
    classic(spark, "merge")
    classic_frame(source, "merge: source")
    metadata = CommitMetadata(
        message=message,
        properties=properties,
        commit_user=commit_user,
        commit_identifier=commit_identifier,
    )
    table = open_table(path, branch=branch, storage_options=storage_options, access=access)
    return FrameMergeBuilder(spark, table, source, on, metadata)


class FrameMergeBuilder:
    """A merge that is being described: add clauses, then call `execute`.

    For each pair of a row of the table and a row of the source that match, and for each row without
    a partner, the first clause of its case whose condition holds decides what happens; a row that
    no clause takes stays as it is.

    Conditions and values are SQL expressions (text, or a Spark column) that name columns
    ``target.COLUMN`` and ``source.COLUMN``. Every method that adds a clause changes this object,
    and returns it.

    Parameters
    ----------
    spark, table, source, on, metadata
        Use `merge`.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: Table,
        source: DataFrame,
        on: Sequence[str] | Mapping[str, str] | str,
        metadata: CommitMetadata,
    ) -> None:
        self._merge = FrameMerge(spark, table, source, check_on(on, table.schema))
        self._metadata = metadata
        self._clauses: list[Clause] = []
        self._is_executed = False

    def when_matched_update(
        self, set: Mapping[str, Any] | None = None, condition: Any = None
    ) -> FrameMergeBuilder:
        """Update rows of the table that have a partner.

        Parameters
        ----------
        set
            What columns are set to: SQL expressions by column. None sets every column to that of
            its name in the source.
        condition
            Which pairs: an SQL expression; None: all.

        Raises
        ------
        ColumnNotFoundError, SchemaMismatch
            The table lacks a column; or the source does, with ``set=None``.
        TypeError, InvalidArgumentError
            Nothing to set, or a clause that is never reached.
        pyspark.errors.PySparkException
            Spark does not understand an expression.
        """
        return self._add("matched", "update", condition, set)

    def when_matched_delete(self, condition: Any = None) -> FrameMergeBuilder:
        """Delete rows of the table that have a partner; raises as `when_matched_update`."""
        return self._add("matched", "delete", condition)

    def when_not_matched_insert(
        self, values: Mapping[str, Any] | None = None, condition: Any = None
    ) -> FrameMergeBuilder:
        """Insert rows of the source that have no partner; raises as `when_matched_update`.

        Parameters
        ----------
        values
            As in `when_matched_update`; there is only ``source``. Columns that are not named are
            null, or have their default. None takes every column of its name from the source.
        condition
            Which rows of the source; None: all.
        """
        return self._add("not_matched", "insert", condition, values)

    def when_not_matched_by_source_update(
        self, set: Mapping[str, Any], condition: Any = None
    ) -> FrameMergeBuilder:
        """Update rows of the table that have no partner; raises as `when_matched_update`."""
        if set is None:
            raise InvalidArgumentError(
                "merge: when_not_matched_by_source_update: set=None: expected the columns to set, "
                "as there is no row of the source to take them from"
            )
        return self._add("not_matched_by_source", "update", condition, set)

    def when_not_matched_by_source_delete(self, condition: Any = None) -> FrameMergeBuilder:
        """Delete rows of the table that have no partner; raises as `when_matched_update`."""
        return self._add("not_matched_by_source", "delete", condition)

    def execute(self) -> MergeResult:
        """Merge, as one snapshot.

        Returns
        -------
        fermion_table.MergeResult
            The new snapshot, or the latest one if no row changed, and how many rows were changed.

        Raises
        ------
        InvalidArgumentError
            There is no clause, or it was executed before.
        pyspark.errors.PySparkException, py4j.protocol.Py4JJavaError
            A task failed, also where several rows of the source match a row that clauses update or
            delete; the second where workers died. Nothing was published.
        SchemaMismatch, UnsupportedBySpark
            What is written does not fit the table, or Spark can't hold it.
        CommitConflict, CommitStateUnknown
            As `fermion_table.Table.commit_found`.
        """
        if not self._clauses:
            raise InvalidArgumentError(
                "merge: nothing to do: add a clause, such as when_matched_update()"
            )
        if self._is_executed:
            raise InvalidArgumentError("merge: executed before: call merge() again")
        self._is_executed = True
        earlier = committed_before(self._merge.table, self._metadata)
        if earlier is not None:
            return MergeResult(earlier, MergeCounts())
        return run_merge(self._merge, self._clauses, self._metadata)

    def __repr__(self) -> str:
        clauses = ", ".join(clause.method for clause in self._clauses) or "no clauses yet"
        return f"<FrameMergeBuilder on {', '.join(self._merge.on)}: {clauses}>"

    def _add(
        self,
        case: Case,
        action: Action,
        condition: Any,
        values: Mapping[str, Any] | None = None,
    ) -> FrameMergeBuilder:
        clause = Clause(case, action, condition, values)
        check_reachable([*self._clauses, clause])
        check_clause(self._merge, clause)
        self._clauses.append(clause)
        return self
