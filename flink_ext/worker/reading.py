"""Requests of sources: which filters are exact, what is read, and the rows of a split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from fermion.engine import convert_batches
from fermion.errors import InvalidArgumentError
from fermion.predicate import Expression
from fermion_table import Scan, Table
from fermion_table.engine import Split, split_text, splits_from_text
from flink_ext.errors import UnsupportedByFlink
from flink_ext.requests import Answer, Rows
from flink_ext.worker.filters import Node, NotTheSame, flink_filter
from flink_ext.worker.tables import Columns, TableRequest, Worker, moment, travelling

BATCH_ROWS, BATCH_BYTES = 32_768, 8 * 1024 * 1024
"""Of a batch that goes to Flink, at most; rows of more bytes go alone."""


class Version(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Which snapshot is read: at most one of these, or the latest.

    snapshot_id, tag: As of `Table.scan`.
    timestamp: ISO text, or milliseconds since 1970 UTC.
    """

    snapshot_id: int | None = None
    tag: str | None = None
    timestamp: int | str | None = None

    def arguments(self) -> dict[str, Any]:
        """For `Table.scan`."""
        at = self.timestamp
        return {
            "snapshot_id": self.snapshot_id,
            "tag": self.tag,
            "as_of": moment(at) if isinstance(at, int) else at,
        }


class Aggregate(msgspec.Struct, forbid_unknown_fields=True):
    """A function over all rows: ``count``, ``min`` or ``max``; without a column of rows."""

    kind: str
    column: str | None = None


class ScanRequest(TableRequest, kw_only=True):
    """What a source reads.

    columns: Those of the result.
    filters: All of which select a row; each is exact.
    limit: Rows that are needed at most.
    aggregates: What the columns of the one row of the result are instead; empty: nothing.
    """

    columns: Columns
    filters: list[Node] = msgspec.field(default_factory=list)
    limit: int | None = None
    aggregates: list[Aggregate] = msgspec.field(default_factory=list)

    def scan(self, table: Table, **version: Any) -> Scan:
        """The scan, under the schema that the table has now."""
        names = [] if self.aggregates else [(name,) for name, _ in self.columns]
        chosen = self.chosen(table)
        return table.scan(columns=names, filter=chosen, schema="current", **version)

    def chosen(self, table: Table) -> Expression | None:
        """All filters as one; None: all rows."""
        schema = table.schema.to_arrow(field_ids=False)
        chosen: Expression | None = None
        for node in self.filters:
            one = flink_filter(node, schema)
            chosen = one if chosen is None else chosen & one
        return chosen


class Filters(TableRequest, tag="filters", kw_only=True):
    """Which predicates have an exact counterpart."""

    filters: list[Node]

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """A truth value for each, and the SQL of those that have one."""
        table = self.open()
        schema = table.schema.to_arrow(field_ids=False)
        texts: list[str | None] = []
        for node in self.filters:
            try:
                chosen = flink_filter(node, schema)
                table.scan(filter=chosen)  # a literal that the column can't be compared with
                texts.append(chosen.to_sql())
            except (NotTheSame, InvalidArgumentError, TypeError):
                texts.append(None)
        return {"filters": texts}


class Plan(ScanRequest, tag="plan", kw_only=True):
    """The splits of a scan of one snapshot.

    version: Which one.
    tasks_min: How many readers share the work.
    """

    version: Version = Version()
    tasks_min: int = 1

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """Splits as text; the snapshots that are read, and whose schema names the columns."""
        table = self.open()
        scan = self.scan(table, **self.version.arguments())
        splits = []
        if self.aggregates:
            splits = [split_text([])]
        elif self.limit != 0:
            splits = [split_text(task) for task in scan.plan().tasks(tasks_min=self.tasks_min)]
        return {"snapshot": scan.snapshot.id, "schema": table.snapshot.id, "splits": splits}


class Aggregates(ScanRequest, tag="aggregates", kw_only=True):
    """Whether metadata answer the aggregates of a scan.

    version: As of `Plan`.
    """

    version: Version = Version()

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """``{"known": ...}``."""
        scan = self.scan(self.open(), **self.version.arguments())
        try:
            values = aggregated(scan, self.aggregates)
            known = values is not None and row_of(values, travelling(self.columns)) is not None
        except (UnsupportedByFlink, InvalidArgumentError):
            known = False
        return {"known": known}


class Read(ScanRequest, tag="read", kw_only=True):
    """The rows of a split.

    snapshot, schema, split: As `Plan` has answered.
    skip: Rows that were emitted before.
    """

    snapshot: int
    schema: int
    split: str
    skip: int = 0

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """The rows, in the order of the split."""
        target = travelling(self.columns)
        scan = self._scan(worker)
        if self.aggregates:
            values = aggregated(scan, self.aggregates)
            if values is None:
                raise InvalidArgumentError(f"{self.path}: the aggregates are not known any more")
            return Rows(target, iter([row_of(values, target)]))
        batches = self._batches(scan, splits_from_text(self.split), target)
        return Rows(target, window(batches, self.skip, self.limit))

    def _scan(self, worker: Worker) -> Scan:
        """The scan, which is the same for all splits."""
        asked = msgspec.json.encode(msgspec.structs.replace(self, split="", skip=0))
        scan = worker.scans.get(asked)
        if scan is None:
            scan = self.scan(self.open(self.schema), snapshot_id=self.snapshot)
            worker.scans = {asked: scan}
        return scan

    def _batches(
        self, scan: Scan, splits: Sequence[Split], target: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        for split in splits:
            for batch in scan.reader.read(split, threads=1):
                yield from convert_batches(batch, target, UnsupportedByFlink)


def window(
    batches: Iterator[pa.RecordBatch], skip: int, limit: int | None
) -> Iterator[pa.RecordBatch]:
    """Rows from one on, up to another, in batches of a size that suits Flink."""
    left = None if limit is None else limit - skip
    for batch in batches:
        taken = min(skip, batch.num_rows)
        batch, skip = batch.slice(taken), skip - taken
        if left is not None:
            batch = batch.slice(0, max(left, 0))
            left -= batch.num_rows
        row_bytes = max(1, batch.nbytes // max(1, batch.num_rows))
        rows = max(1, min(BATCH_ROWS, BATCH_BYTES // row_bytes))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)
        if left is not None and left <= 0:
            return


def aggregated(scan: Scan, functions: Sequence[Aggregate]) -> list[pa.Scalar] | None:
    """Values that metadata tell; None: data files would have to be read."""
    values: list[pa.Scalar] = []
    for function in functions:
        if function.column is None:
            if not scan.plan().is_exact or scan.filter is not None:
                return None
            values.append(pa.scalar(scan.count(), pa.int64()))
            continue
        bounds = scan.known_min_max((function.column,))
        if bounds is None:
            return None
        values.append(bounds[0 if function.kind == "min" else 1])
    return values


def row_of(values: Sequence[pa.Scalar], target: pa.Schema) -> pa.RecordBatch:
    """One row of some values, as it goes to Flink.

    Raises UnsupportedByFlink.
    """
    arrays = [pa.array([value.as_py()], value.type) for value in values]
    row = pa.RecordBatch.from_arrays(arrays, names=target.names)
    (converted,) = convert_batches(row, target, UnsupportedByFlink)
    return converted
