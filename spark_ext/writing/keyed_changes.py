"""The Spark job that changes rows of a primary-key table: its tasks write them again by key."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql import types as st

from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table import Table
from fermion_table.engine import StatementWriter, WriterMessage, required_key
from spark_ext.column_names import is_case_sensitive, quoted
from spark_ext.errors import UnsupportedBySpark
from spark_ext.exchange import convert_batch
from spark_ext.session import batch_settings, settings
from spark_ext.types import arriving_schema
from spark_ext.writing.clustering import arranged
from spark_ext.writing.columns import check_columns, task_writer
from spark_ext.writing.finished_tasks import finished_messages
from spark_ext.writing.job import files_of
from spark_ext.writing.row_changes import (
    DELETE,
    INSERT,
    REPLACE,
    UPDATE,
    ChangeColumns,
    RowChanges,
    why_unfit,
)
from spark_ext.writing.task import MESSAGE, MESSAGE_SCHEMA

_REFUSED = {
    "moved key": "a column of the primary key is set: delete the row, and insert one of the new "
    "key",
    "set sequence": "a column of sequence.field is set: upsert the new rows, and delete those of "
    "the old keys",
}


@dataclass(frozen=True, slots=True)
class KeyedChangeTask:
    """Writes the rows of one task to the table as it was read. Picklable.

    kind, columns: The column of the kinds of rows, and the schema in which rows reach the table's
        writer.
    finished, unfit: As of `ChangeTask` and its `WriteTask`.
    """

    table: Table
    kind: str
    columns: pa.Schema
    finished: Accumulator[list[WriterMessage]]
    unfit: str | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write batches of one struct column; yield one row with the result."""
        done = RowChanges()
        with task_writer(self.table)() as writer:
            statement = StatementWriter(self.table, writer)
            for batch in batches:
                rows = pa.RecordBatch.from_struct_array(batch.column(0))
                kinds = rows.column(self.kind)
                self._check(kinds)
                columns = rows.select(self.columns.names)
                statement.write(convert_batch(columns, self.columns), kinds)
            statement.check()
            done.messages = [message for message in writer.prepare_commit() if message.entries]
            done.counts = statement.counts
        self.finished.add(done.messages)
        if done.messages:
            yield pa.record_batch({MESSAGE: pa.array([pickle.dumps(done)], pa.binary())})

    def _check(self, kinds: pa.Array) -> None:
        kinds_given = set(kinds.unique().to_pylist())
        for kind in kinds_given & _REFUSED.keys():
            raise InvalidArgumentError(f"{self.table.location}: {_REFUSED[kind]}")
        if self.unfit is not None and "+U" in kinds_given:
            raise UnsupportedBySpark(self.unfit)


def run_keyed_changes(df: DataFrame, table: Table, action: str) -> RowChanges:
    """Run the tasks. If the job fails, the files that its tasks wrote are deleted.

    df: The operation and the old values of `ChangeColumns`, and the columns of the table, unless
        rows are deleted only.
    table: A primary-key table, at the snapshot that the rows were read from.
    action: ``update`` may give rows other keys, and no other sequences; ``merge`` the other way
        round.
    Raises SchemaMismatch, UnsupportedBySpark, InvalidArgumentError: The frame does not fit; raised
        before any task runs.
    Raises pyspark.errors.PySparkException, py4j.protocol.Py4JJavaError.
    """
    spark, schema = df.sparkSession, table.schema
    names = ChangeColumns.of(table)
    changes = _by_kind(df, table, names, action)
    frame = st.StructType([field for field in changes.schema if field.name != names.kind])
    if set(schema.names) <= set(df.columns):
        columns = check_columns(table, frame, case_sensitive=is_case_sensitive(spark))
    else:  # of rows that are deleted the key is enough
        columns = arriving_schema(frame, schema.to_arrow(field_ids=False))
    counts = task_writer(table).keywords.get("bucket_counts")
    is_retraction = functions.col(names.kind) == "-D"
    rows = arranged(changes, schema, counts, first=is_retraction)
    structs = rows.select(functions.struct("*").alias("row"))
    done = RowChanges()
    with (
        finished_messages(spark.sparkContext, table, files_of) as finished,
        settings(spark, batch_settings(spark, columns)),
    ):
        task = KeyedChangeTask(table, names.kind, columns, finished, why_unfit(table))
        for result in structs.mapInArrow(task, MESSAGE_SCHEMA).collect():
            done.add(pickle.loads(result[0]))
    return done


def _by_kind(df: DataFrame, table: Table, names: ChangeColumns, action: str) -> DataFrame:
    """The rows to write for each row of the frame, with their kinds; of one that goes the key."""
    old = {name: functions.col(quoted(before)) for name, before in names.old.items()}
    if not set(table.schema.names).intersection(df.columns):
        gone = functions.lit("-D").alias(names.kind)
        return df.select(gone, *(column.alias(name) for name, column in old.items()))
    rows = df.withColumn(names.kind, functions.explode(_kinds(table, names, action)))
    is_gone = functions.col(names.kind) == "-D"
    kept = {
        name: functions.when(is_gone, column).otherwise(functions.col(quoted(name)))
        for name, column in old.items()
    }
    return rows.withColumns(kept).drop(names.operation, *names.old.values())


def _kinds(table: Table, names: ChangeColumns, action: str) -> Column:
    """The kinds of the rows to write for a row of the frame: an array."""
    key = required_key(table.schema, table.location, action)
    gone, inserted, updated = _texts("-D"), _texts("+I"), _texts("+U")
    if action == "update":
        moved, refused = _texts("-D", "+I"), _texts("set sequence")
        fields = [name for name in key.options.sequence_fields if name not in key.names]
    else:
        moved, refused, fields = _texts("moved key"), _texts("moved key"), []
    is_replacing = key.engine.replaces
    operation = functions.col(names.operation)
    return (
        functions.when(operation == DELETE, gone)
        .when(operation == INSERT, inserted)
        .when(operation == REPLACE, updated)
        .when((operation == UPDATE) & ~_is_same(fields, names), refused)
        .when(
            (operation == UPDATE) & _is_same(key.names, names),
            updated if is_replacing else _texts("-D", "+U"),
        )
        .when(operation == UPDATE, moved)
        .otherwise(_texts("unknown"))
    )


def _texts(*kinds: str) -> Column:
    return functions.array(*map(functions.lit, kinds))


def _is_same(columns: Iterable[str], names: ChangeColumns) -> Column:
    """Whether columns of a row have the values that they had before."""
    same = functions.lit(True)
    for name in columns:
        before = functions.col(quoted(names.old[name]))
        same = same & before.eqNullSafe(functions.col(quoted(name)))
    return same
