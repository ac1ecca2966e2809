"""What is published is reported as published, and what is there is found, whatever else fails."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion_table import Table
from fermion_table.commit.commit import create_table
from fermion_table.commit.request import NewSchema
from fermion_table.errors import CommitStateUnknown, VersionNotFound
from fermion_table.metadata import pointers
from fermion_table.metadata.history import latest, load_snapshot
from fermion_table.metadata.references import create_branch, create_tag, load_branch, load_tag
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.schema.from_arrow import schema_from_arrow
from fermion_table.schema.schema import encode_schema
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.local import LocalStore
from fermion_table.storage.paths import PENDING_DIRECTORY, earliest_hint_path, snapshot_path
from fermion_table.storage.store import CreateResult, StoredObject
from tests.kit.stores import MemoryStore, WrappedStore, made_up_schema

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
    created = create_table(store, made_up_schema())
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
    assert pointers.read_earliest(table.store) == 5
    broken = Table(Unreadable(table.store), table.snapshot)
    with pytest.raises(OSError, match="no reply"):
        broken.expire_snapshots(older_than=at_once, retain_last=4)
    assert pointers.mark_expired(table.store, 3) == 5
    assert pointers.read_earliest(table.store) == 5
    assert [snapshot.id for snapshot in table.snapshots()] == [5, 6]
    assert table.verify().ok


class FailsFrom(WrappedStore):
    """Nothing can be read once the next snapshot's slot was created, as far as told."""

    is_unreadable: Callable[[str], bool] = staticmethod(lambda path: False)
    has_created = False

    def call(self, operation: str, *arguments: Any) -> Any:
        if self.has_created and operation == "read" and self.is_unreadable(arguments[0]):
            raise TimeoutError("no reply")
        result = super().call(operation, *arguments)
        if operation == "create_if_absent" and arguments[0].startswith("snapshot/"):
            self.has_created = True
        return result


def branched() -> tuple[FailsFrom, Table]:
    """A table whose branch has one commit more than main."""
    store = FailsFrom(MemoryStore())
    schema = schema_from_arrow(pa.schema({"a": pa.int64()}))
    table = Table(store, create_table(store, NewSchema(schema.id, encode_schema(schema))))
    table.branches.create("dev")
    with Table(store, latest(store, branch="dev"), branch="dev").update_schema() as update:
        update.add_column("b", pa.int64())
    store.has_created = False
    return store, table


def test_bug_a_fast_forward_that_was_published_and_failed() -> None:
    """The branch was read again after main had moved; and an unread fence was an error of input."""
    store, table = branched()
    store.is_unreadable = lambda path: path.startswith("branch/")
    assert table.branches.fast_forward("dev") == latest(store) == table.snapshot
    store, table = branched()
    store.is_unreadable = lambda path: path.startswith("snapshot/")
    with pytest.raises(CommitStateUnknown, match="snapshot 1 was created"):
        table.branches.fast_forward("dev")


def names_of(table: Table, kind: str) -> Any:
    return table.tags if kind == "tag" else table.branches


@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_bug_a_name_that_came_back_after_it_was_refused(kind: str) -> None:
    """A first try without a reply took effect after its second had been taken back."""
    late: list[tuple[Any, ...]] = []

    class Late(WrappedStore):
        def call(self, operation: str, *arguments: Any) -> Any:
            if operation == "create_if_absent" and not arguments[0].startswith("snapshot/"):
                late.append(arguments)
                if len(late) == 1:
                    return CreateResult.UNKNOWN
                pointers.mark_expired(self.inner, 2)  # in the meantime
            return super().call(operation, *arguments)

    _, table = branched()
    for name in ("x", "y"):
        table.add_columns({name: pa.int64()})
    store = Late(table.store)
    with pytest.raises(VersionNotFound, match="snapshot 1 has expired"):
        names_of(Table(store, latest(store)), kind).create("new", version=1)
    assert len(late) == 2
    table.store.create_if_absent(*late[0])
    assert load_tag(store, "new") is load_branch(store, "new") is None
    assert len(list(table.store.list(PENDING_DIRECTORY))) == 1


class Interrupted(WrappedStore):
    """Something happens before a call."""

    def __init__(self, inner: Any, at: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        super().__init__(inner)
        self.calls, self.at, self.meanwhile = 0, at, meanwhile

    def call(self, operation: str, *arguments: Any) -> Any:
        self.calls += 1
        if self.calls == self.at:
            self.meanwhile()
        return super().call(operation, *arguments)


def with_history(path: Path) -> Table:
    """Files that only expired snapshots will have: each was overwritten."""
    table = Table.create(path, pa.schema({"a": pa.int64()}), durability="fast")
    for number in range(4):
        table.overwrite({"a": [number]})
    return table


def expire_all(table: Table) -> None:
    """All but the latest snapshot, slots included."""
    at_once = timedelta(days=-1)
    table.expire_snapshots(older_than=at_once, retain_last=1)
    for number in range(1, table.snapshot.id):
        with contextlib.suppress(FileNotFoundError):
            table.store.delete(snapshot_path(number))


class Stalled(WrappedStore):
    """An object that is created if absent takes long to arrive; then, perhaps, its maker dies."""

    def __init__(
        self,
        inner: Any,
        which: int,
        while_waiting: Callable[[Callable[[], None]], None],
        dies: bool,
    ) -> None:
        super().__init__(inner)
        self.left, self.while_waiting, self.dies, self.has_died = which, while_waiting, dies, False

    def call(self, operation: str, *arguments: Any) -> Any:
        if self.has_died:
            raise OSError(5, "died")
        if operation != "create_if_absent":
            return super().call(operation, *arguments)
        self.left -= 1
        if self.left:
            return super().call(operation, *arguments)
        result: list[CreateResult] = []
        self.while_waiting(lambda: result.append(self.inner.create_if_absent(*arguments)))
        self.has_died = self.dies
        return result[0]


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("which", [1, 2])
@pytest.mark.parametrize("dies", [True, False])
@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_bug_a_name_whose_maker_died_while_its_snapshot_expired(
    kind: str, dies: bool, which: int, step: int, tmp_path: Path
) -> None:
    """Seed 17527 of the simulation: it died between giving the name and looking again.

    What it creates, first or second, arrives before each storage call of an expiry that runs
    meanwhile (in routine runs before every fourth, from another one on for each way to end); then
    it dies or goes on.
    """
    with_history(tmp_path / "template")
    for at in itertools.count(1 + (2 * dies + which) % step, step):
        shutil.copytree(tmp_path / "template", tmp_path / str(at))
        table = Table.open(tmp_path / str(at))
        expiry = Interrupted(table.store, at)

        def meanwhile(
            arrive: Callable[[], None], expiry: Interrupted = expiry, table: Table = table
        ) -> None:
            expiry.meanwhile = arrive
            expire_all(Table(expiry, table.snapshot))
            if expiry.calls < expiry.at:
                arrive()

        maker = Table(Stalled(table.store, which, meanwhile, dies), table.snapshot)
        with contextlib.suppress(OSError, VersionNotFound):
            names_of(maker, kind).create("new", version=2)
        shared_cache.clear()
        found = Table.open(table.location)
        assert found.verify(data=True).ok
        if expiry.calls < at:
            break
        found.remove_orphan_files(older_than=timedelta(days=-1))
        assert not list(table.store.list(PENDING_DIRECTORY))
        expire_all(found)
        assert found.verify(data=True).ok
    assert at > 20


@pytest.mark.parametrize("kinds", [("tag", "branch"), ("branch", "tag"), ("tag", "tag")])
def test_bug_two_names_that_vouched_for_each_other(kinds: tuple[str, str], tmp_path: Path) -> None:
    """Seed 12351 of the simulation: both were made after the snapshot's data had gone.

    The second is made before each storage call of the first, and history expires before it.
    """
    for at in itertools.count(1):
        table = with_history(tmp_path / str(at))
        old = load_snapshot(table.store, 2)

        def meanwhile(table: Table = table, old: Snapshot = old) -> None:
            expire_all(table)
            create = create_tag if kinds[1] == "tag" else create_branch
            with contextlib.suppress(VersionNotFound):
                create(table.store, "second", old)

        store = Interrupted(table.store, at, meanwhile)
        with contextlib.suppress(VersionNotFound):
            names_of(Table(store, table.snapshot), kinds[0]).create("first", version=2)
        shared_cache.clear()
        assert Table.open(table.location).verify(data=True).ok
        if store.calls < at:
            break
    assert at > 5
