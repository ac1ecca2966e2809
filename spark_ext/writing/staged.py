"""Writes the rows of a table that is created or replaced from a query.

The catalog passes the table's definition in an option of the data source. Tasks write the files,
and the data source's commit publishes definition and rows together.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion_table.engine import StagedTable, WriterMessage, stage_table
from spark_ext.options import SourceOptions
from spark_ext.types import arriving_schema
from spark_ext.writing.columns import check_batches, task_writer
from spark_ext.writing.task import TaskMessage, WriteTask, all_messages, messages_of

STAGED_OPTION = "fermion.staged"
"""An option that only the catalog sets; Spark may change the case of its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedDefinition:
    """The arguments of `fermion_table.engine.stage_table` and a message, as text for the option."""

    mode: str
    schema: pa.Schema
    partition_by: Sequence[str] = ()
    primary_key: Sequence[str] = ()
    sort_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    message: str | None = None

    def to_text(self) -> str:
        """JSON; the schema in it is an Arrow message."""
        return json.dumps(
            {
                "mode": self.mode,
                "schema": base64.b64encode(self.schema.serialize()).decode(),
                "partition_by": list(self.partition_by),
                "primary_key": list(self.primary_key),
                "sort_by": list(self.sort_by),
                "properties": dict(self.properties),
                "message": self.message,
            }
        )

    @classmethod
    def from_text(cls, text: str) -> StagedDefinition:
        """Parse what `to_text` made.

        Raises InvalidArgumentError: Not a text of `to_text`.
        """
        try:
            given = json.loads(text)
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(given.pop("schema"))))
            return cls(**given, schema=schema)
        except (ValueError, TypeError, KeyError, AttributeError, pa.ArrowException) as error:
            raise InvalidArgumentError(
                f"option {STAGED_OPTION} is set by the catalog alone; leave it out"
            ) from error

    def stage(self, path: str, storage_options: dict[str, Any] | None) -> StagedTable:
        """Stage the table; raises as `fermion_table.engine.stage_table`."""
        return stage_table(
            path,
            self.schema,
            mode=self.mode,  # type: ignore[arg-type]
            partition_by=list(self.partition_by),
            primary_key=list(self.primary_key) or None,
            sort_by=list(self.sort_by),
            properties=self.properties,
            storage_options=storage_options,
        )


def split_staged(options: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """The other options, and the text of the option that the catalog set."""
    others = {name: text for name, text in options.items() if name.lower() != STAGED_OPTION}
    staged = (text for name, text in options.items() if name.lower() == STAGED_OPTION)
    return others, next(staged, None)


class FermionStagedWriter(DataSourceArrowWriter):
    """Checks on the driver, writes in tasks, and publishes table and rows at the end.

    Raises TableExists, TableNotFound, SchemaMismatch, InvalidArgumentError, UnsupportedBySpark.
    """

    def __init__(self, options: SourceOptions, staged: str, schema: StructType) -> None:
        definition = StagedDefinition.from_text(staged)
        self._commit_arguments: dict[str, Any] = {
            "message": definition.message,
            "commit_user": options.commit_user,
            "commit_identifier": options.commit_identifier,
        }
        self._staged = definition.stage(options.path, options.storage_options)
        columns = arriving_schema(schema, self._staged.schema.to_arrow(field_ids=False))
        open_writer = task_writer(self._staged)
        check_batches(open_writer, columns)
        self._task = WriteTask(open_writer, columns)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        return TaskMessage(self._task.write(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish the table with what all tasks wrote."""
        written = all_messages(messages, self._staged.store.location)
        self._staged.commit(written, **self._commit_arguments)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete what the tasks of a failed job wrote; a failed commit deletes its files itself."""
        written: list[WriterMessage] = []
        if any(message is None for message in messages):
            written = messages_of(messages)
        self._staged.discard(written)
