"""What Spark tasks do to write: rows become data files, and commit messages are returned."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql.datasource import WriterCommitMessage

from fermion.exports import dataclass
from fermion_table.engine import DataWriter, KeyWriter, WriterMessage, write_changes
from spark_ext.column_names import renamed_batch
from spark_ext.errors import UnsupportedBySpark
from spark_ext.exchange import convert_batch
from spark_ext.writing.batch_runs import batch_runs

MESSAGE = "message"
MESSAGE_SCHEMA = f"{MESSAGE} binary"


@dataclass(slots=True)
class TaskMessage(WriterCommitMessage):
    """What a task of a data source wrote."""

    messages: list[WriterMessage]


def messages_of(tasks: Sequence[WriterCommitMessage | None]) -> list[WriterMessage]:
    """The messages of all tasks that finished."""
    return [message for task in tasks if isinstance(task, TaskMessage) for message in task.messages]


def all_messages(tasks: Sequence[WriterCommitMessage | None], location: str) -> list[WriterMessage]:
    """The messages of all tasks of a job that is to be committed.

    Raises UnsupportedBySpark: A task has none. Spark has not given it an iterator of its rows, but
        one row after the other, and Spark's writer for Python sources passes over these without an
        error.
    """
    lost = sum(not isinstance(task, TaskMessage) for task in tasks)
    if lost:
        raise UnsupportedBySpark(
            f"{location}: nothing was published: {lost} of {len(tasks)} tasks did not get their "
            "rows, as Spark passed these one by one, which its writer for Python sources ignores "
            "(so does a stream with a continuous trigger)"
        )
    return messages_of(tasks)


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes the rows of one task as data files with their final names. Picklable.

    open_writer: Makes the table's writer in the task.
    columns: The schema in which rows reach the writer (see `types.arriving_schema`).
    batch_id: Index, in the frame, of the column that numbers batches; None: rows without batches.
    finished: Gets the messages of a finished task, so that the driver knows its files even if the
        job fails later.
    renamed: Columns to rename to the table's names: see `column_names.renamed_fields`.
    change_type: The column of `columns` that says what each row is; None: all are insertions.
    """

    open_writer: Callable[[], DataWriter | KeyWriter]
    columns: pa.Schema
    batch_id: int | None = None
    finished: Accumulator[list[WriterMessage]] | None = None
    renamed: Mapping[str, pa.Field] = field(default_factory=dict)
    change_type: str | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write batches of one struct column; yield one row with the pickled messages."""
        rows = (pa.RecordBatch.from_struct_array(batch.column(0)) for batch in batches)
        messages = self.write(rows)
        if messages:
            yield pa.record_batch({MESSAGE: pa.array([pickle.dumps(messages)], pa.binary())})

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[WriterMessage]:
        """Write record batches as Spark passes them; without rows no file is made."""
        with self.open_writer() as writer:
            if self.batch_id is None:
                for batch in batches:
                    write_changes(writer, self._arriving(batch), self.change_type)
            else:
                for number, parts in batch_runs(batches, self.batch_id):
                    arriving = [self._arriving(part) for part in parts]
                    writer.append_batch(number, pa.Table.from_batches(arriving), copy=False)
            messages = [message for message in writer.prepare_commit() if message.entries]
        if self.finished is not None:
            self.finished.add(messages)
        return messages

    def _arriving(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        batch = renamed_batch(batch, self.renamed)
        return convert_batch(batch.select(self.columns.names), self.columns)
