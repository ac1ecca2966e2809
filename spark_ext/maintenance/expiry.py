"""Expires old snapshots and removes orphan files of a table.

The driver does this alone: it reads only metadata, and deletes files with single requests.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from fermion_table import MaintenanceResult, StorageAccess
from spark_ext.opening import open_table
from spark_ext.session import classic


def expire(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    older_than: datetime | timedelta | str | None = None,
    retain_last: int | None = None,
    dry_run: bool = False,
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
) -> MaintenanceResult:
    """Expire old snapshots and delete data that only they use.

    Parameters
    ----------
    spark
        A classic session.
    path
        The table.
    older_than, retain_last, dry_run
        As for `fermion_table.Table.expire_snapshots`: by default 7 days, and the last
        10 snapshots stay.
    storage_options
        For fsspec.
    access
        As for `read_table`.

    Raises
    ------
    TypeError, InvalidArgumentError
        Names the argument that is wrong.
    TableNotFound, CorruptMetadata
    """
    classic(spark, "expire")
    table = open_table(path, storage_options=storage_options, access=access)
    return table.expire_snapshots(older_than=older_than, retain_last=retain_last, dry_run=dry_run)


def remove_orphans(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    older_than: datetime | timedelta | str | None = None,
    dry_run: bool = False,
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
) -> MaintenanceResult:
    """Delete orphan files, such as those of killed tasks.

    Parameters
    ----------
    spark
        A classic session.
    path
        The table.
    older_than, dry_run
        As for `fermion_table.Table.remove_orphan_files`: by default 3 days, as younger files may
        belong to a job that has not committed yet.
    storage_options
        For fsspec.
    access
        As for `read_table`.

    Raises
    ------
    TypeError, InvalidArgumentError
        Names the argument that is wrong.
    TableNotFound, CorruptMetadata
    """
    classic(spark, "remove_orphans")
    table = open_table(path, storage_options=storage_options, access=access)
    return table.remove_orphan_files(older_than=older_than, dry_run=dry_run)
