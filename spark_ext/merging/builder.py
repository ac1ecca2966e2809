"""`spark_ext.merge`: rows of a data frame update, delete and insert rows of a table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from fermion_table import MergeResult, StorageAccess, Table
from fermion_table.engine import Clause, CommitMetadata, MergeCounts, MergeDescription, check_on
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


class FrameMergeBuilder(MergeDescription):
    """A merge that is being described: add clauses, then call `execute`.

    Conditions and values are SQL expressions (text, or a Spark column) that name columns
    ``target.COLUMN`` and ``source.COLUMN``.

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
        super().__init__(check_on(on, table.schema))
        self._merge = FrameMerge(spark, table, source, self._on)
        self._metadata = metadata

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
        clauses = self._begun()
        earlier = committed_before(self._merge.table, self._metadata)
        if earlier is not None:
            return MergeResult(earlier, MergeCounts())
        return run_merge(self._merge, clauses, self._metadata)

    def _check(self, clause: Clause) -> None:
        check_clause(self._merge, clause)
