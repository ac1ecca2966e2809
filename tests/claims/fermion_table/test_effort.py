"""Every operation says what it did and what it took; none of that is stored."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from fermion_table import Snapshot, Table
from fermion_table.engine import Effort
from fermion_table.storage.paths import snapshot_id_of, snapshot_path
from fermion_table.storage.store import AtomicStore
from tests.kit.stores import WrappedStore

ROWS = {"k": ["a", "b"], "v": [1, 2]}


def in_transaction(table: Table) -> Snapshot:
    with table.transaction() as transaction:
        transaction.delete("v = 1")
        transaction.append(ROWS)
    return table.snapshot


def from_writer(table: Table) -> Snapshot:
    with table.writer() as writer:
        writer.write(pa.table(ROWS))
        messages = writer.prepare_commit()
    return table.commit(messages)


def moved_to_branch(table: Table) -> Snapshot:
    table.branches.create("dev")
    Table.open(table.location, branch="dev").append(ROWS)
    return table.branches.fast_forward("dev")


OPERATIONS: dict[str, Callable[[Table], Snapshot]] = {
    "append": lambda t: t.append(ROWS),
    "append and merge": lambda t: t.append({**ROWS, "w": [1, 2]}, schema_mode="merge"),
    "append batches": lambda t: t.append_batches([(1, pa.table(ROWS)), (2, pa.table(ROWS))]),
    "overwrite": lambda t: t.overwrite(ROWS, filter="v = 1"),
    "delete": lambda t: t.delete("v = 1"),
    "update": lambda t: t.update("v = 1", {"v": 3}),
    "transaction": in_transaction,
    "writer": from_writer,
    "add columns": lambda t: t.add_columns({"w": pa.int8()}),
    "rename": lambda t: t.rename_column("v", "w"),
    "properties": lambda t: t.set_properties({"a.b": "c"}),
    "restore": lambda t: t.restore(1),
}


class RacingStore(WrappedStore):
    """Another writer takes the next slot twice before this one gets one."""

    def __init__(self, inner: AtomicStore, between: Callable[[], object]) -> None:
        super().__init__(inner)
        self.between, self.races = between, 2

    def call(self, operation: str, *arguments: Any) -> Any:
        is_slot = operation == "create_if_absent" and snapshot_id_of(arguments[0].split("/")[-1])
        if is_slot and self.races:
            self.races -= 1
            self.between()
        return super().call(operation, *arguments)


def made(path: Path) -> Table:
    table = Table.create(path, pa.schema([("k", pa.string()), ("v", pa.int64())]))
    assert 0 < table.snapshot.effort.seconds < 60
    table.append(ROWS)
    table.append(ROWS)
    return table


@pytest.mark.parametrize("name", [*OPERATIONS, "fast-forward"])
def test_an_operation_says_what_it_took(tmp_path: Path, name: str) -> None:
    """The time lies within that of the call; a snapshot read from storage says nothing."""
    table = made(tmp_path / "t")
    began = time.monotonic()
    found = {**OPERATIONS, "fast-forward": moved_to_branch}[name](table)
    assert 0 < found.effort.seconds <= time.monotonic() - began
    assert found.effort.retries == 0
    again = Table.open(tmp_path / "t").snapshot
    assert again == found
    assert again.effort.seconds == 0.0
    assert b"effort" not in table.store.read(snapshot_path(found.id))


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_says_how_often_it_lost(tmp_path: Path, name: str) -> None:
    other = made(tmp_path / "t")
    store = RacingStore(other.store, lambda: other.append({"k": ["z"], "v": [9]}))
    found = OPERATIONS[name](Table(store, other.snapshot))
    assert found.effort.retries == 2
    assert found.id == 5


def test_a_compaction_says_how_often_it_lost(tmp_path: Path) -> None:
    other = made(tmp_path / "t")
    store = RacingStore(other.store, lambda: other.append({"k": ["z"], "v": [9]}))
    result = Table(store, other.snapshot).compact()
    assert (result.retries, result.snapshots, result.files_before) == (2, [5], 2)
    assert result.seconds > 0


def test_what_an_operation_did_is_in_its_numbers(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    appended = table.append(ROWS).deltas
    assert (appended.files_added, appended.rows_added) == (1, 2)
    assert appended.bytes_added == sum(item.size for item in table.store.list("data")) - sum(
        entry.size for entry in table.scan(snapshot_id=2).entries[0]
    )
    assert table.delete("v = 1").deltas.rows_deleted == 3
    assert table.delete("v = 2").deltas.files_removed == 3
    rows = pa.table({"k": ["a"] * 10, "v": range(10)})
    table.append(rows)
    assert table.delete("v = 3").deltas.rows_deleted == 1


def test_efforts_are_equal_where_their_numbers_are_and_snapshots_whatever_theirs(
    tmp_path: Path,
) -> None:
    """A snapshot that was read again is the one committed; its effort is another one."""
    assert Effort(retries=1, seconds=0.5) == Effort(retries=1, seconds=0.5)
    assert len({Effort(), Effort(retries=1), Effort(seconds=0.5)}) == 3
    committed = made(tmp_path / "t").snapshot
    found = Table.open(tmp_path / "t").snapshot
    assert found == committed
    assert found.effort != committed.effort
    assert found != msgspec.structs.replace(found, message="another")
    assert found != found.reference
