"""Changes of rows as batches and streams: ``format("fermion")`` with the option readChangeFeed.

Batches have the rows of `spark_ext.read_changes`. A stream begins with all rows of the table as
insertions (or after a snapshot that the user names), and goes on with the changes of every commit.
A limit of files divides the first rows by files, of a primary-key table by trees; a commit is never
divided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table import Scan, Table, VersionNotFound
from fermion_table.engine import CHANGE_FIELDS, ChangeSplit, Split
from spark_ext.datasource.offsets import BEFORE_ALL, Portion, StreamOffset, portions
from spark_ext.datasource.stream import QUIET_KINDS, FermionStreamReader, StreamPartition
from spark_ext.datasource.tasks import TASKS_MIN
from spark_ext.errors import StreamSourceChanged
from spark_ext.opening import changes_of
from spark_ext.options import SourceOptions
from spark_ext.reading.changes import InsertReader
from spark_ext.reading.task import ReadTask, column_paths
from spark_ext.types import exchange_schema, spark_schema

CHANGE_NAMES = [field.name for field in CHANGE_FIELDS]


def changes_schema(options: SourceOptions) -> tuple[StructType, int]:
    """The columns of changes, and the id of the last snapshot."""
    changes = changes_of(options, options.ending_snapshot_id, options.ending_snapshot_id)
    return spark_schema(changes.schema, where=f"table {options.path}"), changes.snapshot.id


def check_start(options: SourceOptions) -> None:
    """Check that options of a batch say where its changes begin.

    Raises InvalidArgumentError.
    """
    if options.starting_snapshot_id is None:
        raise InvalidArgumentError(
            "option readChangeFeed=true needs startingSnapshotId, the snapshot after which "
            "the changes begin"
        )


def without_labels(schema: StructType, path: str) -> StructType:
    """The columns of the table in a schema of changes, which may be the user's own.

    Raises InvalidArgumentError: It does not end with the columns of a change.
    """
    if schema.names[-len(CHANGE_NAMES) :] != CHANGE_NAMES:
        raise InvalidArgumentError(
            f"{path}: a schema for readChangeFeed=true ends with {', '.join(CHANGE_NAMES)}, found "
            f"{', '.join(schema.names)}"
        )
    return StructType(schema.fields[: -len(CHANGE_NAMES)])


@dataclass(slots=True)
class ChangesPartition(InputPartition):
    """The splits that one task reads."""

    value: Sequence[ChangeSplit]


class FermionChangesReader(DataSourceReader):
    """Plans the changes between two snapshots on the driver, reads them in tasks.

    options: What to read.
    last: The last snapshot, from which the schema was taken; None: the one that the options choose.
    schema: The columns: those of the source, or the user's own.
    Raises InvalidArgumentError: The options do not say where the changes begin.
    """

    def __init__(self, options: SourceOptions, last: int | None, schema: StructType) -> None:
        check_start(options)
        if last is None:  # the schema is the user's own
            columns = column_paths(without_labels(schema, options.path))
            options, last = replace(options, columns=columns), options.ending_snapshot_id
        changes = changes_of(options, options.starting_snapshot_id, last)
        self._tasks: Sequence[Sequence[ChangeSplit]] = changes.plan().tasks(tasks_min=TASKS_MIN)
        self._read = ReadTask(changes.reader, exchange_schema(schema))

    def partitions(self) -> Sequence[InputPartition]:
        """A partition for each task, in an order in which changes can be replayed."""
        return [ChangesPartition(splits) for splits in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """The rows of a partition."""
        return self._read.read(partition.value or [])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tasks": ()}  # a task gets its own


class ChangeStreamReader(FermionStreamReader):
    """Reads what commits change; parameters are those of `FermionStreamReader`."""

    divides_commits = False

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        columns = without_labels(schema, options.path)
        if options.columns is None:
            options = replace(options, columns=column_paths(columns))
        super().__init__(options, columns)
        self._labelled = schema

    def check_source(self, table: Table) -> None:
        """Take tables of every kind."""

    def batch_tasks(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        """The tasks of a micro-batch: first rows, or changes, or first rows and then changes."""
        if start.files is not None and not start.initial:
            raise StreamSourceChanged(
                f"{self._options.path}: the checkpoint ends between files of snapshot "
                f"{start.snapshot}, as it was made without readChangeFeed; start the query with a "
                "new checkpoint"
            )
        tasks: list[InputPartition] = []
        for portion in portions(start, end):
            if portion.initial:
                tasks += self._first_rows(portion)
        if start.snapshot != BEFORE_ALL and end.snapshot > start.snapshot:
            tasks += self._changes(start.snapshot, end.snapshot)
        return tasks

    def _first_rows(self, portion: Portion) -> list[InputPartition]:
        scan = self._scan(portion.snapshot)
        self.check_columns(scan.schema, scan.snapshot.id)
        reader = InsertReader(scan.reader, scan.snapshot.id, scan.snapshot.time_ms)
        return self._partitions(reader, self.split_tasks(scan, portion))

    def _changes(self, first: int, last: int) -> list[InputPartition]:
        """The changes of the commits after a snapshot.

        Raises VersionNotFound: Some of them have expired.
        """
        try:
            changes = changes_of(self._options, first, last)
            plan = changes.plan()
        except VersionNotFound as error:
            raise VersionNotFound(
                f"{error}. The stream has read up to snapshot {first}: start the query with a new "
                "checkpoint"
            ) from error
        shown = pa.schema(list(changes.schema)[: -len(CHANGE_NAMES)])
        self.check_columns(shown, last)
        return self._partitions(changes.reader, plan.tasks(tasks_min=TASKS_MIN))

    def _partitions(self, reader: Any, tasks: Sequence[Sequence[Any]]) -> list[InputPartition]:
        read = ReadTask(reader, exchange_schema(self._labelled))
        return [StreamPartition(read, list(splits)) for splits in tasks]

    def _splits(self, scan: Scan, portion: Portion) -> list[Split]:
        """The splits of a portion; of a primary-key table those of whole trees."""
        if scan.key is None or portion.is_whole:
            return list(scan.plan().splits) if portion.is_whole else super()._splits(scan, portion)
        listed, _ = replace(scan, filter=None).entries
        tree_of = {entry.file: (repr(entry.partition), entry.bucket or 0) for entry in listed}
        begins: dict[tuple[str, int], int] = {}
        for place, (tree, _) in enumerate(sorted((tree, file) for file, tree in tree_of.items())):
            begins.setdefault(tree, place)
        places = range(len(listed))[portion.start : portion.stop]
        return [
            split for split in scan.plan().splits if begins[tree_of[split.files[0].file]] in places
        ]

    def _files_in(self, snapshot_id: int, initial: bool) -> int:
        """The number of files that count: those that the commit added and removed."""
        if initial:
            return super()._files_in(snapshot_id, initial)
        snapshot = self._commit(snapshot_id)
        if snapshot is None or snapshot.kind in QUIET_KINDS:
            return 0
        return snapshot.deltas.files_added + snapshot.deltas.files_removed
