"""What a query touched: tasks it started, files and columns that it could do without."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import fermion
from fermion_table import Table


def tasks_started(spark, action: Callable[[], object]) -> int:
    """How many tasks Spark started while an action ran, right or wrong."""
    context = spark.sparkContext
    group = f"counted-{uuid.uuid4()}"  # ids of objects come again
    context.setJobGroup(group, "counted")
    try:
        action()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds]
    return sum(stage.numTasks for stage in stages if stage is not None)


@contextmanager
def files_away(table: Table, filter: str) -> Iterator[int]:
    """Take the data files away that may hold rows of a filter; their number is given."""
    names = [split.location for split in table.scan(filter=filter).plan().splits]
    for name in names:
        os.rename(name, name + ".away")
    try:
        yield len(names)
    finally:
        for name in names:
            os.rename(name + ".away", name)


@contextmanager
def destroyed_columns(table: Table, keep: Sequence[tuple[str, ...]]) -> Iterator[int]:
    """Overwrite all pages of the columns that are not to be read; how many bytes is given.

    Reading one of them is an error, as checksums tell.
    """
    files = [Path(split.location) for split in table.scan().plan().splits]
    before = {file: file.read_bytes() for file in files}
    destroyed = 0
    for file, content in before.items():
        changed = bytearray(content)
        for start, stop in _others(file, keep):
            changed[start:stop] = b"\xa5" * (stop - start)
            destroyed += stop - start
        file.write_bytes(changed)
    assert destroyed
    try:
        yield destroyed
    finally:
        for file, content in before.items():
            file.write_bytes(content)


def _others(file: Path, keep: Sequence[tuple[str, ...]]) -> Iterator[tuple[int, int]]:
    """Where the pages of all other columns lie; a struct's own stream goes with its fields."""
    with fermion.open(file) as opened:
        for name in opened.schema.names:
            for stream in opened.column((name,)).streams:
                wanted = any(stream.path[: len(path)] == path[: len(stream.path)] for path in keep)
                for chunk in stream.chunks if not wanted else ():
                    if chunk.state == "stored":
                        yield chunk.offset, chunk.offset + chunk.length
