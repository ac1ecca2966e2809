"""Requests of sinks: rows into data files, and their commit, once for each checkpoint."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from fermion.engine import convert_batches
from fermion.errors import InvalidArgumentError
from fermion.predicate import Column, Expression
from fermion_table import CommitConflict, Snapshot, Table
from fermion_table.engine import DataWriter, KeyWriter, WriterMessage, write_changes
from flink_ext.errors import UnsupportedByFlink
from flink_ext.requests import Answer, Request, Rows
from flink_ext.worker.tables import Columns, TableRequest, Worker, travelling

KINDS = pa.array(["+I", "-U", "+U", "-D"])
"""Kinds of rows, by the numbers that Flink gives them."""


class Overwrite(msgspec.Struct, forbid_unknown_fields=True):
    """Which rows INSERT OVERWRITE replaces.

    partition: Values of the PARTITION clause, as text. Without all of them the partitions are
        replaced that the new rows fall into; of a table without partitions all rows are.
    """

    partition: dict[str, str] = msgspec.field(default_factory=dict)

    def arguments(self, table: Table) -> dict[str, Any]:
        """``filter`` and ``dynamic`` of `Table.overwrite`."""
        if set(self.partition) != set(table.partition_by):
            return {"filter": None, "dynamic": True}
        chosen: Expression | None = None
        for name, text in self.partition.items():
            value = pa.scalar(text).cast(table.schema.by_name[name].type).as_py()
            one = Column((name,)) == value
            chosen = one if chosen is None else chosen & one
        return {"filter": chosen, "dynamic": False}


class Sink:
    """Writes rows of one task; a new writer for each checkpoint in which there are any.

    table: At its latest snapshot.
    columns: Of the rows.
    kinds: The column with the kinds of rows, as numbers; None: all are insertions.
    overwrite: What the rows replace; None: nothing.
    """

    def __init__(
        self, table: Table, columns: Columns, kinds: str | None, overwrite: Overwrite | None
    ) -> None:
        self._table = table
        self._columns = columns
        self._kinds = kinds
        self._overwrite = overwrite
        self._writer: DataWriter | KeyWriter | None = None
        self._stored = self._schema()  # a column that is not there is an error at once

    def _schema(self) -> pa.Schema:
        """The rows' columns as the table stores them."""
        schema = self._table.schema.to_arrow(field_ids=False)
        unknown = [name for name, _ in self._columns if name not in schema.names]
        if unknown:
            raise InvalidArgumentError(f"{self._table.location} has no columns {unknown}")
        return pa.schema([schema.field(name) for name, _ in self._columns])

    def _begin(self) -> DataWriter | KeyWriter:
        self._table.refresh()
        self._stored = self._schema()
        if self._overwrite is None:
            return self._table.writer()
        replaced = self._overwrite.arguments(self._table)
        return self._table.writer_factory(overwrites=True, filter=replaced["filter"])()

    def write(self, rows: pa.Table) -> None:
        """Write rows, in the order in which they came."""
        if self._writer is None:
            self._writer = self._begin()
        for batch in rows.to_batches():
            plain = batch.select(self._stored.names)
            kinds = None if self._kinds is None else KINDS.take(batch.column(self._kinds))
            done = 0
            for part in convert_batches(plain, self._stored, UnsupportedByFlink):
                if kinds is not None:
                    part = part.append_column(self._kinds, kinds.slice(done, part.num_rows))
                done += part.num_rows
                write_changes(self._writer, part, self._kinds, copy=False)

    def prepare(self) -> list[WriterMessage]:
        """Finish the files of a checkpoint; none where there were no rows."""
        if self._writer is None:
            return []
        messages, self._writer = self._writer.prepare_commit(), None
        return [message for message in messages if message.entries]

    def abort(self) -> None:
        """Delete the files that no checkpoint has."""
        if self._writer is not None:
            self._writer.abort()


class OpenSink(TableRequest, tag="open_sink", kw_only=True):
    """Begin to write.

    columns, kinds, overwrite: See `Sink`.
    """

    columns: Columns
    kinds: str | None = None
    overwrite: Overwrite | None = None

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """Rows of no table: what they are to look like when they come."""
        if worker.sink is not None:
            raise InvalidArgumentError(f"{self.path}: this worker writes already")
        worker.sink = Sink(self.open(), self.columns, self.kinds, self.overwrite)
        schema = travelling(self.columns)
        if self.kinds is not None:
            schema = schema.append(pa.field(self.kinds, pa.int8(), False))
        return Rows(schema, iter(()))


class Write(Request, tag="write", kw_only=True):
    """Write the rows that follow."""

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """How many."""
        if rows is None or worker.sink is None:
            raise InvalidArgumentError("write: expected rows, after open_sink")
        worker.sink.write(rows)
        return {"written": rows.num_rows}


class Prepare(Request, tag="prepare", kw_only=True):
    """Finish the files of a checkpoint."""

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """Messages for `Commit`."""
        if worker.sink is None:
            raise InvalidArgumentError("prepare: expected open_sink before")
        return {"messages": worker.sink.prepare()}


class CheckUser(TableRequest, tag="check_user", kw_only=True):
    """Refuse a user whose commits are there already.

    A job that does not go on from a checkpoint numbers its checkpoints from 1 again: under the same
    user they would be taken for those of before, and their rows left out.
    """

    user: str

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """Nothing to say."""
        for snapshot in self.open().snapshots():
            if snapshot.commit_user == self.user:
                raise InvalidArgumentError(
                    f"{self.path}: 'sink.commit-user' = {self.user!r} has made snapshot "
                    f"{snapshot.id}, and this job does not go on from a checkpoint: its commits "
                    "would be taken for earlier ones. Restore the job, or choose another user"
                )
        return {}


class Commit(TableRequest, tag="commit", kw_only=True):
    """Publish the files of a checkpoint, once however often it is asked for.

    user, identifier: The identity of the commit: who, and the number of the checkpoint.
    messages: Of all writers.
    overwrite: As of `OpenSink`.
    """

    user: str
    identifier: int
    messages: list[WriterMessage]
    overwrite: Overwrite | None = None

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """The snapshot, None if it has expired; whether it was there before."""
        table = self.open()
        try:
            before = table.find_commit(self.user, self.identifier)
        except CommitConflict:  # committed, and expired since
            return {"snapshot": None, "again": True}
        if before is not None:
            return {"snapshot": before.id, "again": True}
        return {"snapshot": self._publish(table).id, "again": False}

    def _publish(self, table: Table) -> Snapshot:
        identity: dict[str, Any] = {
            "commit_user": self.user,
            "message": f"Flink checkpoint {self.identifier}",
        }
        if self.overwrite is not None:
            replaced = self.overwrite.arguments(table)
            with table.transaction(commit_identifier=self.identifier, **identity) as transaction:
                transaction.overwrite_written(self.messages, **replaced)
            return table.snapshot
        # The schema may have changed while some writers had begun: one snapshot for each schema.
        # The last one has the identity that says that all are there.
        *earlier, last = sorted({message.schema_id for message in self.messages})
        for schema_id in (*earlier, last):
            own = self.identifier if schema_id == last else f"{self.identifier}/{schema_id}"
            of_schema = [each for each in self.messages if each.schema_id == schema_id]
            table.commit(of_schema, commit_identifier=own, **identity)
        return table.snapshot
