"""Publishes mirrors of a table: the driver plans and commits, tasks write the copies."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from fermion.arguments import mapping
from fermion.exports import dataclass
from fermion_table import StorageAccess
from fermion_table.engine import CopyTask, Publication, Split
from spark_ext.opening import open_table
from spark_ext.session import classic


def mirror(
    spark: SparkSession,
    path: str | os.PathLike[str],
    name: str | None = None,
    *,
    branch: str | None = None,
    storage_options: dict[str, Any] | None = None,
    mirror_storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
) -> list[Publication]:
    """Bring mirrors of a table up to its newest snapshot, with a task for each Parquet file.

    As ``Table.mirrors.publish``, where files are many. No row passes through the JVM.

    Parameters
    ----------
    spark
        A classic session.
    path
        The table.
    name
        Of one mirror; None: all of the branch.
    branch
        None: ``main``.
    storage_options
        For fsspec.
    mirror_storage_options
        Of the mirror's storage; None: those of the table.
    access
        As for `read_table`.

    Returns
    -------
    list of Publication
        One for each mirror.

    Raises
    ------
    TableNotFound, VersionNotFound, CommitConflict, InvalidArgumentError, UnsupportedTypeError
        As ``Table.mirrors.publish``.
    pyspark.errors.PySparkException, py4j.protocol.Py4JJavaError
        A task failed, the second where workers died. Snapshots before it stay published.
    """
    classic(spark, "mirror")
    mapping(mirror_storage_options, "mirror_storage_options")
    table = open_table(path, branch=branch, storage_options=storage_options, access=access)
    return table.mirrors.publish(
        name, storage_options=mirror_storage_options, runner=_Runner(spark.sparkContext)
    )


class _Runner:
    """Writes copies, each in a Spark task."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def __call__(self, task: CopyTask, splits: Sequence[tuple[Split, str]]) -> None:
        self._context.parallelize(splits, len(splits)).foreach(_Write(task))


@dataclass(frozen=True, slots=True)
class _Write:
    """Writes one copy."""

    task: CopyTask

    def __call__(self, split: tuple[Split, str]) -> None:
        self.task.write(*split)
