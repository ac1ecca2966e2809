"""Requests of streaming sources: where they begin, which changes come next, and their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fermion.engine import convert_batches
from fermion.errors import InvalidArgumentError
from fermion_table.engine import CHANGE_FIELDS, ChangeScan, ChangeSplit, TreeChanges
from flink_ext.errors import UnsupportedByFlink
from flink_ext.requests import Answer, Rows
from flink_ext.worker.reading import Plan, ScanRequest, window
from flink_ext.worker.tables import TableRequest, Worker, travelling

COMMITS_MAX = 100
"""Of one interval: so far a checkpoint, and a consumer, is behind the rows that were read."""
SPLIT_BYTES = 64 * 1024 * 1024
"""Files of appended rows are read together until they have so many bytes."""
KINDS = {"insert": 0, "update_preimage": 1, "update_postimage": 2, "delete": 3}
"""What Flink's RowKind has for the kinds of changes."""
KIND = "_row_kind"


class Begin(Plan, tag="begin", kw_only=True):
    """Where a stream begins: the splits of its first snapshot, and which one that is.

    mode: ``latest-full``: with the rows of the snapshot; else with the changes after it.
    consumer: A consumer that goes on where it is, whatever the mode; a new one is recorded.
    """

    mode: Literal["latest-full", "latest", "from-snapshot"] = "latest-full"
    consumer: str | None = None

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """As of a plan of the snapshot."""
        table = self.open()
        known = {each.name: each for each in table.consumers.list()} if self.consumer else {}
        at = known.get(self.consumer or "")
        if at is not None:
            if at.branch != self.branch:
                raise InvalidArgumentError(
                    f"{self.path}: consumer {at.name!r} reads branch {at.branch!r}, not "
                    f"{self.branch!r}"
                )
            return {"snapshot": at.snapshot_id, "schema": table.snapshot.id, "splits": []}
        snapshot = self.scan(table, **self.version.arguments()).snapshot
        if self.consumer:
            table.consumers.record(self.consumer, version=snapshot.id)
        if self.mode != "latest-full":
            return {"snapshot": snapshot.id, "schema": table.snapshot.id, "splits": []}
        return super().answer(worker, rows)


class RecordConsumer(TableRequest, tag="record_consumer", kw_only=True):
    """Say how far a consumer has come.

    consumer, snapshot: Of this name; it has read up to this snapshot.
    """

    consumer: str
    snapshot: int

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """Nothing to say."""
        self.open().consumers.record(self.consumer, version=self.snapshot)
        return {}


class ChangesRequest(ScanRequest, kw_only=True):
    """A request about the changes after a snapshot.

    start: The snapshot, exclusive.
    """

    start: int

    def changes(self, end: int) -> ChangeScan:
        """The changes up to another snapshot, under its schema."""
        table = self.open(end)
        names = [(name,) for name, _ in self.columns]
        return table.scan_changes(self.start, columns=names, filter=self.chosen(table))


class PlanChanges(ChangesRequest, tag="plan_changes", kw_only=True):
    """What changed since a snapshot, by places.

    Places of another order than those before must wait until these are read. What is of one place
    is read in the order of the plans.
    """

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """The last snapshot that is covered, and places: names, order, and key of the reader."""
        table = self.open()
        latest = table.snapshot.id
        if latest <= self.start:
            return {"snapshot": self.start, "latest": latest, "places": []}
        ends = (*range(self.start + COMMITS_MAX, latest, COMMITS_MAX), latest)
        # The id of a transaction that was given up stands for the snapshot before it.
        counted = (table.scan_changes(self.start, end).snapshot.id for end in ends)
        end = next(each for each in counted if each > self.start)
        places = [
            {"order": group[0].order, "places": [tree.place for tree in group]}
            for group in _groups(self.changes(end).trees())
        ]
        return {"snapshot": end, "latest": latest, "places": places}


class ReadChanges(ChangesRequest, tag="read_changes", kw_only=True):
    """The changes of some places, each row with its kind in another column, the last one.

    end, places: As `PlanChanges` has answered.
    deletes: What becomes of rows that an append table has lost: ``fail``, ``ignore`` or ``emit``.
    skip: Rows that were emitted before.
    """

    end: int
    places: list[str]
    deletes: Literal["fail", "ignore", "emit"] = "emit"
    skip: int = 0

    def answer(self, worker: Worker, rows: pa.Table | None) -> Answer:
        """The rows, in the order of their commits."""
        columns = travelling(self.columns)
        target = columns.append(pa.field(KIND, pa.int8()))
        return Rows(target, window(self._batches(worker, columns, target), self.skip, None))

    def _batches(
        self, worker: Worker, columns: pa.Schema, target: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        scan, trees = self._planned(worker)
        for split in (split for place in self.places for split in trees[place]):
            for batch in scan.reader.read(split, threads=1):
                kinds = self._kinds(batch)
                if self.deletes == "ignore":
                    kept = pc.equal(kinds, KINDS["insert"])
                    batch, kinds = batch.filter(kept), kinds.filter(kept)
                plain, row = batch.drop_columns([field.name for field in CHANGE_FIELDS]), 0
                for part in convert_batches(plain, columns, UnsupportedByFlink):
                    arrays = [*part.columns, kinds.slice(row, part.num_rows)]
                    row += part.num_rows
                    yield pa.RecordBatch.from_arrays(arrays, schema=target)

    def _planned(self, worker: Worker) -> tuple[ChangeScan, dict[str, list[ChangeSplit]]]:
        """The scan, and splits by place, which are the same for all splits of an interval."""
        asked = msgspec.json.encode(msgspec.structs.replace(self, places=[], skip=0))
        found = worker.changes.get(asked)
        if found is None:
            scan = self.changes(self.end)
            splits: dict[str, list[ChangeSplit]] = {}
            for tree in scan.trees():
                splits.setdefault(tree.place, []).extend(tree.splits)
            found = scan, splits
            worker.changes = {asked: found}
        return found

    def _kinds(self, batch: pa.RecordBatch) -> pa.Array:
        """The kinds as Flink numbers them.

        Raises InvalidArgumentError: Rows were deleted, and the stream can't tell of that.
        """
        names = batch.column(CHANGE_FIELDS[0].name)
        if self.deletes == "fail" and pc.any(pc.not_equal(names, "insert")).as_py():
            lost = batch.filter(pc.not_equal(names, "insert"))
            raise InvalidArgumentError(
                f"{self.path}: snapshot {lost.column(CHANGE_FIELDS[1].name)[0]} deleted rows, and "
                "a stream of an append table has only new ones: set 'scan.deletes' to 'emit', "
                "so that it has deletions, too, or to 'ignore'"
            )
        index = pc.index_in(names, pa.array(list(KINDS)))
        return index.cast(pa.int8())


def _groups(trees: Sequence[TreeChanges]) -> Iterator[list[TreeChanges]]:
    """Places that one split reads: files together, all others apart."""
    group: list[TreeChanges] = []
    size = 0
    for tree in trees:
        if group and (tree.order != "file" or group[0].order != "file" or size >= SPLIT_BYTES):
            yield group
            group, size = [], 0
        group.append(tree)
        size += tree.bytes
    if group:
        yield group
