"""The Spark job that changes rows: tasks tell which rows go and write the new ones, one commit.

The frame of such a job has a row for every change: what happens, to which row of the table, and the
new values; see `ChangeColumns`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from pyroaring import BitMap64
from pyspark.sql import DataFrame, functions
from pyspark.sql import types as st

from fermion.engine import strip_wrappers
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table import Scan, Table
from fermion_table.engine import MergeCounts, WriterMessage, primary_key_of
from spark_ext.column_names import free_names, is_case_sensitive
from spark_ext.errors import UnsupportedBySpark
from spark_ext.session import batch_settings, settings
from spark_ext.writing.clustering import arranged
from spark_ext.writing.columns import check_columns, task_writer
from spark_ext.writing.finished_tasks import finished_messages
from spark_ext.writing.job import files_of
from spark_ext.writing.task import MESSAGE, MESSAGE_SCHEMA, WriteTask

KEEP, DELETE, UPDATE, INSERT, REPLACE = 0, 1, 2, 3, 9
"""Operations; Spark gives the second to fourth these numbers. The last is of primary-key tables
only: a row that is new, or takes the place of that of its key."""
_ROW_STRUCT = "row"


@dataclass(frozen=True, slots=True)
class ChangeColumns:
    """Names of the columns that a frame of changes has beside those of the table.

    operation, row: What happens; of an append table to which row, by its id.
    kind: Of a primary-key table: the kinds of the rows to write.
    old: Of each column of its key, and each sequence field: the name of that of the row before.
    """

    operation: str
    row: str
    kind: str
    old: Mapping[str, str]

    @classmethod
    def of(cls, table: Table) -> ChangeColumns:
        """The names for a table: none of its columns has one of them, in any case."""
        key = primary_key_of(table.schema)
        before = () if key is None else dict.fromkeys((*key.names, *key.options.sequence_fields))
        wanted = ("operation", "row", "kind", *(f"old_{name}" for name in before))
        operation, row, kind, *old = free_names(table.schema.names, *wanted)
        return cls(operation, row, kind, dict(zip(before, old, strict=True)))


@dataclass(slots=True)
class RowChanges:
    """What tasks have done.

    gone, moved: The ids of rows that were deleted or updated, and those of them that were updated.
    kept: The ids of rows that decided something, and stay.
    messages, counts: Of the writers of new rows; how many rows were inserted, updated and deleted.
    """

    gone: BitMap64 = field(default_factory=BitMap64)
    moved: BitMap64 = field(default_factory=BitMap64)
    kept: BitMap64 = field(default_factory=BitMap64)
    messages: list[WriterMessage] = field(default_factory=list)
    counts: MergeCounts = field(default_factory=MergeCounts)

    def add(self, other: RowChanges) -> None:
        """Add what another task has done.

        Raises InvalidArgumentError: Both have changed the same row, and it is not deleted by both.
        """
        _refuse_twice(self.gone & other.moved or self.moved & other.gone)
        self.gone |= other.gone
        self.moved |= other.moved
        self.kept |= other.kept
        self.messages += other.messages
        self.counts = counted(self.counts, other.counts)


@dataclass(frozen=True, slots=True)
class ChangeTask:
    """Collects the rows that go, and writes the new ones. Picklable.

    names: Of the columns that say what happens.
    write: Writes rows; None: there are none to write.
    unfit: Why rows of the table can't be written again with what Spark has of them; None: they can.
    is_strict: Whether a row that is deleted twice is an error, too.
    """

    names: ChangeColumns
    write: WriteTask | None
    unfit: str | None = None
    is_strict: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Carry out the changes of batches of one struct column; yield one row with the result."""
        done = RowChanges()
        rows = self._new_rows(batches, done)
        if self.write is None:
            for batch in rows:
                raise InvalidArgumentError(f"{batch.num_rows} rows to write in a deletion")
        else:
            done.messages = self.write.write(rows)
        if done.gone or done.kept or done.messages:
            yield pa.record_batch({MESSAGE: pa.array([pickle.dumps(done)], pa.binary())})

    def _new_rows(
        self, batches: Iterable[pa.RecordBatch], done: RowChanges
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.RecordBatch.from_struct_array(batch.column(0))
            operations = rows.column(self.names.operation).to_numpy()
            _check_operations(operations)
            is_update = operations == UPDATE
            ids = rows.column(self.names.row)
            deleted, updated, kept = (
                _ids(ids, operations == kind) for kind in (DELETE, UPDATE, KEEP)
            )
            _refuse_twice(done.gone & updated or (done.moved | updated) & deleted)
            numbers = (int((operations == kind).sum()) for kind in (INSERT, UPDATE, DELETE))
            changed = MergeCounts(*numbers)
            if len(updated) < changed.updated:
                _refuse_twice(updated)
            if self.is_strict and len(deleted - done.gone) < changed.deleted:
                _refuse_twice(deleted)
            done.counts = counted(done.counts, changed)
            done.gone |= deleted | updated
            done.moved |= updated
            done.kept |= kept
            if self.unfit is not None and is_update.any():
                raise UnsupportedBySpark(self.unfit)
            is_written = is_update | (operations == INSERT)
            if is_written.all():
                yield rows
            elif is_written.any():
                yield rows.filter(pa.array(is_written))


def run_changes(
    df: DataFrame, table: Table, columns: Sequence[str] | None, *, is_strict: bool = False
) -> RowChanges:
    """Run the tasks. If the job fails, the files that its tasks wrote are deleted.

    df: The operation and the row of `ChangeColumns`, and with them the columns of `columns`.
    table: An append table, at the snapshot that the rows were read from.
    columns: All columns of the table; None: rows are deleted only.
    is_strict: See `ChangeTask`.
    Raises SchemaMismatch, UnsupportedBySpark, InvalidArgumentError: The frame does not fit; raised
        before any task runs.
    Raises pyspark.errors.PySparkException, py4j.protocol.Py4JJavaError.
    """
    spark = df.sparkSession
    rows, write, held = df, None, pa.schema([])
    with finished_messages(spark.sparkContext, table, files_of) as finished:
        if columns is not None:
            types = {field.name: field for field in df.schema}
            frame = st.StructType([types[name] for name in columns])
            held = check_columns(table, frame, case_sensitive=is_case_sensitive(spark))
            rows = arranged(df, table.schema)
            write = WriteTask(task_writer(table), held, None, finished)
        structs = rows.select(functions.struct("*").alias(_ROW_STRUCT))
        task = ChangeTask(ChangeColumns.of(table), write, why_unfit(table), is_strict)
        with settings(spark, batch_settings(spark, held)):
            results = structs.mapInArrow(task, MESSAGE_SCHEMA).collect()
        done = RowChanges()
        for result in results:
            part: RowChanges = pickle.loads(result[0])
            if is_strict:
                _refuse_twice(done.gone & part.gone)
            done.add(part)
    return done


def counted(*parts: MergeCounts) -> MergeCounts:
    """The sum of counts."""
    return MergeCounts(
        sum(part.inserted for part in parts),
        sum(part.updated for part in parts),
        sum(part.deleted for part in parts),
    )


def files_with(rows: BitMap64, scan: Scan) -> frozenset[str]:
    """The files of a scan that hold some of the rows of an append table."""
    if not rows:
        return frozenset()
    return frozenset(
        entry.file
        for entry in scan.entries[0]
        if entry.row_id_base is not None
        and rows.range_cardinality(entry.row_id_base, entry.row_id_base + entry.rows)
    )


def why_unfit(table: Table) -> str | None:
    """Why Spark can't write rows of a table again as they are; None if it can."""
    for field_ in table.schema.to_arrow(field_ids=False):
        if _is_finer(field_.type):
            return (
                f"column {field_.name!r} has nanoseconds, and Spark would round them down in rows "
                "that are updated: use Table.update or Table.merge"
            )
    return None


def _is_finer(dtype: pa.DataType) -> bool:
    """Whether values, at any depth, are finer than Spark's."""
    dtype = strip_wrappers(dtype)
    if pat.is_timestamp(dtype) or pat.is_duration(dtype):
        return bool(dtype.unit == "ns")
    return any(_is_finer(dtype.field(place).type) for place in range(dtype.num_fields))


def _check_operations(operations: np.ndarray) -> None:
    """Refuse what no row of a frame should say: such a row would be lost."""
    unknown = operations[(operations < KEEP) | (operations > INSERT)]
    if len(unknown):
        raise InvalidArgumentError(f"operation {unknown[0]} of a row: expected {KEEP} to {INSERT}")


def _ids(rows: pa.Array, mask: np.ndarray) -> BitMap64:
    """The ids of some rows of the table."""
    if not mask.any():
        return BitMap64()
    chosen = rows.filter(pa.array(mask))
    if chosen.null_count:
        raise InvalidArgumentError("a row that changes has no id")
    return BitMap64(chosen.to_numpy().astype(np.uint64))


def _refuse_twice(rows: BitMap64) -> None:
    """Refuse rows that would have two new values; to be deleted twice does no harm."""
    if rows:
        raise InvalidArgumentError(
            f"{len(rows):,} rows of the table would be changed twice: each can be updated once"
        )
