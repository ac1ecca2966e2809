"""What is published is reported as published, and what is there is found, whatever else fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion_table import Table, hints
from fermion_table.commit import create_table
from fermion_table.commit_request import NewSchema
from fermion_table.history import latest
from fermion_table.local_store import LocalStore
from fermion_table.metadata_cache import shared_cache
from fermion_table.paths import earliest_hint_path
from fermion_table.storage import CreateResult, StoredObject
from fermion_table.testing import MemoryStore, WrappedStore

CHANGES: dict[str, Callable[[Table], Any]] = {
    "append": lambda t: t.append({"a": [2]}),
    "identified append": lambda t: t.append({"a": [2]}, commit_user="u", commit_identifier=1),
    "overwrite": lambda t: t.overwrite({"a": [2]}),
    "delete": lambda t: t.delete("a = 1"),
    "schema": lambda t: t.add_columns({"b": pa.int64()}),
}


class FailsAfterwards(WrappedStore):
    """Objects other than slots and hints can't be read once a slot was created."""

    has_created = False

    def call(self, operation: str, *arguments: Any) -> Any:
        if self.has_created and operation == "read" and not arguments[0].startswith("snapshot/"):
            raise TimeoutError("no reply")
        result = super().call(operation, *arguments)
        if operation == "create_if_absent" and result is CreateResult.CREATED:
            self.has_created = True
        return result


@pytest.mark.parametrize("name", CHANGES)
def test_a_published_commit_does_not_fail_because_nothing_can_be_read(
    name: str, tmp_path: Path
) -> None:
    """The snapshot comes back; an error would let its caller commit a second time."""
    table = Table.create(tmp_path / "t", pa.schema({"a": pa.int64()}), durability="fast")
    table.append({"a": [1]})
    store = FailsAfterwards(LocalStore(tmp_path / "t", durability="fast"))
    table = Table(store, latest(store))
    shared_cache.clear()
    snapshot = CHANGES[name](table)
    assert snapshot.id == 2
    assert table.snapshot == snapshot
    store.has_created = False
    assert Table.open(tmp_path / "t").snapshot == snapshot
    assert table.verify().ok


def test_a_table_is_found_though_a_listing_lags_behind() -> None:
    """Snapshot 0 is there, and the listing does not show it yet."""

    class Lagging(MemoryStore):
        def list(self, directory: str = "") -> Iterator[StoredObject]:
            return iter(())

    store = Lagging()
    created = create_table(store, NewSchema(0, b"{}"))
    assert latest(store) == latest(store, start=0) == created


def test_an_earliest_that_cannot_be_read_lets_nothing_come_back(tmp_path: Path) -> None:
    """Expiry that takes it for missing would count expired snapshots as kept, and say so."""

    class Unreadable(WrappedStore):
        def call(self, operation: str, *arguments: Any) -> Any:
            if operation == "read" and arguments[0] == earliest_hint_path():
                raise OSError(5, "no reply")
            return super().call(operation, *arguments)

    table = Table.create(tmp_path / "t", pa.schema({"a": pa.int64()}), durability="fast")
    for number in range(6):
        table.append({"a": [number]})
    at_once = timedelta(days=-1)
    table.expire_snapshots(older_than=at_once, retain_last=2)
    assert hints.read_earliest(table.store) == 5
    broken = Table(Unreadable(table.store), table.snapshot)
    with pytest.raises(OSError, match="no reply"):
        broken.expire_snapshots(older_than=at_once, retain_last=4)
    assert hints.mark_expired(table.store, 3) == 5
    assert hints.read_earliest(table.store) == 5
    assert [snapshot.id for snapshot in table.snapshots()] == [5, 6]
    assert table.verify().ok
