"""What the finished tasks of a job wrote: known to the driver even if the job then fails.

A job that fails returns nothing, but Spark passes on the accumulators of the tasks that had
finished by then. The files they name are deleted, as nothing can refer to them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pyspark import Accumulator, AccumulatorParam, SparkContext

from fermion_table import StagedTable, Table

_Message = TypeVar("_Message")


@contextmanager
def finished_messages(
    context: SparkContext,
    table: Table | StagedTable,
    files: Callable[[_Message], Iterable[str]],
) -> Iterator[Accumulator[list[_Message]]]:
    """Gather the messages of a job's tasks; if the job fails, delete the files they name.

    The block runs the job and nothing else: in it, nothing is committed.

    Parameters
    ----------
    files
        The paths, relative to the table, of the files that a message names.
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
    """Delete data files that no commit names; what cannot be deleted is left as an orphan."""
    for path in paths:
        with contextlib.suppress(OSError):
            table.store.delete(path)


class _Gathering(AccumulatorParam[list[_Message]]):
    """Lists, one after the other."""

    def zero(self, value: list[_Message]) -> list[_Message]:
        return []

    def addInPlace(  # noqa: N802 - Spark's name
        self, value1: list[_Message], value2: list[_Message]
    ) -> list[_Message]:
        value1.extend(value2)
        return value1
