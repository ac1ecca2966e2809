"""The messages of a job's finished tasks, which the driver gets even if the job then fails.

A failed job returns nothing, but Spark sends the accumulators of the tasks that finished before.
The files that they name are deleted, because no commit names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pyspark import Accumulator, AccumulatorParam, SparkContext

from fermion_table import Table
from fermion_table.engine import OwnedFiles, StagedTable

_Message = TypeVar("_Message")


@contextmanager
def finished_messages(
    context: SparkContext,
    table: Table | StagedTable,
    files: Callable[[_Message], Iterable[str]],
) -> Iterator[Accumulator[list[_Message]]]:
    """Collect the messages of a job's tasks; if the job fails, delete the files that they name.

    The ``with`` block runs the job and commits nothing.

    files: The paths, relative to the table, of the files that a message names.
    """
    finished: Accumulator[list[_Message]] = context.accumulator([], _Gathering())
    try:
        yield finished
    except BaseException as error:
        delete_files(table, [path for message in finished.value for path in files(message)])
        if isinstance(error, Exception):
            error.add_note(f"nothing of this job was published to {table.store.location}")
        raise


def delete_files(table: Table | StagedTable, paths: Iterable[str]) -> None:
    """Delete data files that no commit names; a file that cannot be deleted becomes an orphan."""
    owned = OwnedFiles(table.store)
    owned.take(paths)
    owned.delete()


class _Gathering(AccumulatorParam[list[_Message]]):
    """Concatenates lists."""

    def zero(self, value: list[_Message]) -> list[_Message]:
        return []

    def addInPlace(  # noqa: N802 - Spark's name
        self, value1: list[_Message], value2: list[_Message]
    ) -> list[_Message]:
        value1.extend(value2)
        return value1
