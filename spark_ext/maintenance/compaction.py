"""Compacts a table with Spark: the driver plans and commits, tasks rewrite groups of files.

Spark only schedules. Tasks read and write the files themselves, so no row passes through the JVM.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyspark import Accumulator, Broadcast, SparkContext
from pyspark.sql import SparkSession

from fermion.arguments import flag, function, integer
from fermion.typing import FilterLike
from fermion_table import CompactionResult, StorageAccess, Table
from fermion_table.engine import CompactionMessage, CompactionTask, compact_group
from spark_ext.opening import open_table
from spark_ext.session import classic
from spark_ext.writing.finished_tasks import finished_messages

Progress = Callable[[int, int], None]
"""Called with the number of groups done, and of all groups."""


def compact(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    filter: FilterLike | None = None,
    target_size: int | str | None = None,
    min_input_files: int = 2,
    sort_by: Sequence[str] | None = None,
    full: bool = False,
    max_groups_per_commit: int | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
) -> CompactionResult:
    """Rewrite small files as larger ones; rows, their order and batches do not change.

    Of a table with a primary key each tree (the files of a partition and bucket) that has too many
    sorted runs is a group, as for `fermion_table.Table.compact`.

    Other writers can commit at the same time. A group whose files another commit removed is left
    out, and counted in the result; the other groups are published.

    Parameters
    ----------
    spark
        A classic session.
    path
        The table.
    filter
        Only files that may hold such rows.
    target_size
        Of a file: bytes, or as in ``"256MB"``; None takes the table's property.
    min_input_files
        Do not rewrite fewer small files than this.
    sort_by
        Columns to sort rows by, or ``["zorder(a, b)"]`` to cluster rows by several columns equally,
        as for `fermion_table.Table.compact`.
    full
        Of a table with a primary key: merge all runs of each tree into one.
    max_groups_per_commit
        Commit after this many groups, so that a later failure loses less work; None: commit once,
        at the end.
    dry_run
        Only report what would be done; no task runs.
    progress
        Called with the number of groups done, and of all groups.
    storage_options
        For fsspec.
    access
        As for `read_table`.

    Raises
    ------
    TableNotFound
    TypeError, InvalidArgumentError
        Names the argument that is wrong; raised before any task runs.
    pyspark.errors.PySparkException, py4j.protocol.Py4JJavaError
        A task failed, the second where workers died; what was committed before stays.
    CommitStateUnknown
    """
    classic(spark, "compact")
    if max_groups_per_commit is not None:
        max_groups_per_commit = integer(max_groups_per_commit, "max_groups_per_commit", minimum=1)
    dry_run = flag(dry_run, "dry_run")
    full = flag(full, "full")
    function(progress, "progress")
    started = time.monotonic()
    table = open_table(path, storage_options=storage_options, access=access)
    chosen: dict[str, Any] = {
        "filter": filter,
        "target_size": target_size,
        "min_input_files": min_input_files,
        "sort_by": sort_by,
        "full": full,
    }
    if dry_run:
        return table.compact(dry_run=True, **chosen)
    base = table.snapshot
    tasks = table.plan_compaction(**chosen)
    result = CompactionResult()
    for done, messages in _rewritten(spark.sparkContext, table, tasks, max_groups_per_commit):
        result.add(table.commit_compaction(messages, base))
        if progress is not None:
            progress(done, len(tasks))
    result.seconds = time.monotonic() - started
    return result


def _rewritten(
    context: SparkContext,
    table: Table,
    tasks: list[CompactionTask],
    max_groups_per_commit: int | None,
) -> Iterable[tuple[int, list[CompactionMessage]]]:
    """Rewrite all groups; yield how many are done, and those to be committed together.

    A Spark job has at least as many groups as can run at once, even if fewer are committed
    together.
    """
    if not tasks:
        return
    groups = max_groups_per_commit or len(tasks)
    job = max(groups, context.defaultParallelism)
    # Tasks share the table's schema, which may have many thousands of fields: it is sent once.
    shared = context.broadcast(tasks)
    try:
        for start in range(0, len(tasks), job):
            messages = _run(context, table, shared, range(start, min(start + job, len(tasks))))
            for first in range(0, len(messages), groups):
                part = messages[first : first + groups]
                yield start + first + len(part), part
    finally:
        shared.destroy()


def _run(
    context: SparkContext, table: Table, shared: Broadcast[list[CompactionTask]], numbers: range
) -> list[CompactionMessage]:
    """Rewrite some groups, each in a Spark task."""
    with finished_messages(context, table, _files) as finished:
        rewrite = _Rewrite(shared, finished)
        return context.parallelize(numbers, len(numbers)).map(rewrite).collect()


class _Rewrite:
    """Rewrites a group, given by its number. Picklable."""

    def __init__(
        self,
        shared: Broadcast[list[CompactionTask]],
        finished: Accumulator[list[CompactionMessage]],
    ) -> None:
        self.shared = shared
        self.finished = finished

    def __call__(self, number: int) -> CompactionMessage:
        message = compact_group(self.shared.value[number])
        self.finished.add([message])
        return message


def _files(message: CompactionMessage) -> list[str]:
    """The files that a task wrote; others only moved to another level, and stay whatever comes."""
    return [entry.path for entry in message.written]
