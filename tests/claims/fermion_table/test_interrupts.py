"""Whoever is interrupted, or forgotten, before its commit leaves no data files behind."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import CommitStateUnknown, Table
from fermion_table.engine import WriterMessage
from fermion_table.metadata.history import latest
from fermion_table.storage.local import LocalStore
from tests.kit.stores import WrappedStore
from tests.kit.tables.crash_operations import AT_ONCE, OPERATIONS, SCHEMA, Signaller, rows

INTERRUPTED = sorted(set(OPERATIONS) - {"expiry", "maintenance", "clone"})
"""An expiry, which maintenance has, too, is there to make files that nothing refers to, before it
deletes them."""
STEP_SAMPLED = 23


def orphans(table: Table) -> list[str]:
    """Data files and deletion vectors that nothing refers to, temporary ones too."""
    found = table.remove_orphan_files(older_than=AT_ONCE, dry_run=True).paths
    return [path for path in found if path.startswith(("data/", "deletion/"))]


def interrupt(
    name: str, template: Path, tmp_path: Path, signaller: Signaller, numbers: Iterable[int]
) -> None:
    before = Table.open(template).snapshot.id
    published = []
    for number, path in signaller.run_until_done(name, numbers, "SIGINT", template, tmp_path):
        table = Table.open(path)
        assert orphans(table) == [], number
        assert table.verify(data=True).ok
        published.append(table.snapshot.id > before)
    assert published == sorted(published), "once published, it stays"
    assert published[-1]


@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interrupted_operation_leaves_no_data_files(
    name: str, template: Path, tmp_path: Path, signaller: Signaller
) -> None:
    """Ctrl-C before every 23rd change of a file: published whole, or nothing is left."""
    first = 1 + INTERRUPTED.index(name) % STEP_SAMPLED
    interrupt(name, template, tmp_path, signaller, range(first, 1000, STEP_SAMPLED))


@pytest.mark.slow
@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_operation_interrupted_anywhere_leaves_no_data_files(
    name: str, template: Path, tmp_path: Path, signaller: Signaller
) -> None:
    """Ctrl-C before every change of a file."""
    interrupt(name, template, tmp_path, signaller, range(1, 1000))


class InterruptedStore(WrappedStore):
    """A local table whose n-th call is interrupted, before or after it is carried out."""

    done_when_interrupted = True

    def __init__(self, path: Path, number: int, *, after: bool) -> None:
        super().__init__(LocalStore(path, durability="fast"))
        self.left, self.after = number, after

    def call(self, operation: str, *arguments: Any) -> Any:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise KeyboardInterrupt
        result = super().call(operation, *arguments)
        if self.left == 0:
            raise KeyboardInterrupt
        return result


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interrupt_at_any_call_of_the_storage_leaves_no_data_files(
    name: str, after: bool, template: Path, tmp_path: Path
) -> None:
    """The lists of objects are the same, or a snapshot has the new ones."""
    for number in range(1, 1000):
        path = tmp_path / f"{number}"
        shutil.copytree(template, path)
        store = InterruptedStore(path, number, after=after)
        with contextlib.suppress(KeyboardInterrupt):
            OPERATIONS[name](Table(store, latest(LocalStore(path))))
        table = Table.open(path)
        assert orphans(table) == [], number
        assert table.verify(data=True).ok
        shutil.rmtree(path)
        if store.left > 0:
            break
    else:
        pytest.fail("never finished")
    assert number > 3


def stored(table: Table) -> set[str]:
    return {item.path for item in table.store.list()}


def change(table: Table) -> Any:
    """A transaction that has written rows, a changed file and a vector, and is not over."""
    transaction = table.transaction()
    transaction.append(rows(50, 60))
    transaction.delete("v = 2")
    transaction.update("v = 3", {"v": 97})
    assert len(transaction._files.paths) == 2
    return transaction


@pytest.mark.parametrize("where", ["local", "memory"])
def test_a_forgotten_transaction_deletes_its_files(tmp_path: Path, where: str) -> None:
    """One that never came to its end, directly and in a reference cycle."""
    path = tmp_path / "t" if where == "local" else f"memory://forgotten-{os.getpid()}"
    table = Table.create(path, SCHEMA)
    table.append(rows(0, 10))
    before = stored(table)
    for cyclic in (False, True):
        transaction = change(table)
        assert stored(table) > before
        if cyclic:
            transaction.itself = transaction
        del transaction
        gc.collect()
        assert stored(table) == before


def test_a_block_that_raises_anything_deletes_its_files(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA)
    table.append(rows(0, 10))
    before = stored(table)

    def change_and_raise(error: type[BaseException]) -> None:
        with table.transaction() as transaction:
            transaction.append(rows(50, 60))
            transaction.delete("v = 2")
            raise error

    for error in (KeyboardInterrupt, SystemExit, GeneratorExit, ValueError):
        with pytest.raises(error):
            change_and_raise(error)
        assert stored(table) == before


def test_a_forgotten_writer_deletes_its_files_and_a_finished_one_keeps_them(tmp_path: Path) -> None:
    """Files that are complete as well as the one that is being written."""
    table = Table.create(tmp_path / "t", SCHEMA, partition_by=["k"])
    data = pa.table({"k": ["a", "b"], "v": [1, 2]})
    before = stored(table)
    writer = table.writer()
    writer.write(data)
    writer._close(next(iter(writer._open)))
    assert len(stored(table) - before) == 2
    del writer
    gc.collect()
    assert stored(table) == before
    writer = table.writer()
    writer.write(data)
    messages = writer.prepare_commit()
    del writer
    gc.collect()
    assert table.commit(messages).totals.rows == 2


def write(table: Table, first: int) -> list[WriterMessage]:
    with table.writer() as writer:
        writer.write(rows(first, first + 5))
        return writer.prepare_commit()


def test_the_files_of_messages_outlive_a_forgotten_transaction(tmp_path: Path) -> None:
    """They are their writer's; the transaction's own go. Whoever has the messages commits them."""
    table = Table.create(tmp_path / "t", SCHEMA)
    table.append(rows(0, 10))
    published, pending = write(table, 20), write(table, 30)
    before = stored(table)
    transaction = change(table)
    transaction.append_written(published)
    transaction.append_written(pending)
    Table.open(table.location).commit(published)
    del transaction
    gc.collect()
    assert before <= stored(table)
    assert orphans(table) == [pending[0].entries[0].path]
    table.commit(pending)
    assert table.verify(data=True).ok
    assert table.scan().count() == 20


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_interrupt_never_deletes_files_that_another_commit_has_published(
    tmp_path: Path, after: bool, step: int
) -> None:
    """Wherever (in routine runs, at some calls) a commit, alone or of a transaction, is stopped."""
    template = tmp_path / "template"
    table = Table.create(template, SCHEMA)
    table.append(rows(0, 10))
    published, pending = write(table, 20), write(table, 30)
    seen = table.snapshot
    Table.open(template).commit(published)

    def transact(late: Table) -> None:
        with late.transaction() as transaction:
            transaction.append(rows(50, 60))
            transaction.append_written(pending)
            transaction.append_written(published)

    for name, operation in (
        ("transaction", transact),
        ("commit", lambda late: late.commit([*pending, *published])),
    ):
        for number in range(1 + 2 * after % step, 200, step):
            path = tmp_path / f"{name}-{number}"
            shutil.copytree(template, path)
            store = InterruptedStore(path, number, after=after)
            with contextlib.suppress(KeyboardInterrupt, InvalidArgumentError):
                operation(Table(store, seen))
            gc.collect()
            again = Table.open(path)
            assert again.verify(data=True).ok, number
            assert again.scan().count() == 15
            shutil.rmtree(path)
            if store.left > 0:
                break
        else:
            pytest.fail("never finished")


def test_a_fork_does_not_delete_its_parents_files(tmp_path: Path) -> None:
    """Neither when it forgets the transaction nor when it ends."""
    table = Table.create(tmp_path / "t", SCHEMA)
    table.append(rows(0, 10))
    transaction = change(table)
    before = stored(table)
    child = os.fork()
    if child == 0:
        del transaction
        gc.collect()
        os._exit(0 if stored(table) == before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    transaction.commit()
    assert table.verify(data=True).ok
    assert table.scan().count() == 19


def test_what_may_be_published_is_kept(tmp_path: Path) -> None:
    """A store that does not say what became of the slot, or whose calls go on when interrupted."""

    class Silent(WrappedStore):
        error: type[BaseException] = KeyboardInterrupt

        def call(self, operation: str, *arguments: Any) -> Any:
            if operation == "create_if_absent" and arguments[0].startswith("snapshot/"):
                raise self.error("no reply")
            return super().call(operation, *arguments)

    Table.create(tmp_path / "t", SCHEMA)
    for error in (KeyboardInterrupt, CommitStateUnknown):
        store = Silent(LocalStore(tmp_path / "t"))
        store.error = error
        table = Table(store, latest(store))
        count = len(stored(table))
        with pytest.raises(error):
            table.append(rows(0, 3))
        with pytest.raises(error), table.transaction() as transaction:
            transaction.append(rows(0, 3))
        gc.collect()
        assert len(stored(table)) == count + 2


def test_a_storage_that_refuses_the_slot_leaves_no_data_files(tmp_path: Path) -> None:
    """An OSError of the creation says that nothing was created."""

    class Full(WrappedStore):
        def call(self, operation: str, *arguments: Any) -> Any:
            if operation == "create_if_absent":
                raise OSError(28, "no space left")
            return super().call(operation, *arguments)

    Table.create(tmp_path / "t", SCHEMA)
    store = Full(LocalStore(tmp_path / "t"))
    table = Table(store, latest(store))
    before = stored(table)
    for write in (
        lambda: table.append(rows(0, 3)),
        lambda: table.append({"k": ["n"], "v": [1], "w": [1]}, schema_mode="merge"),
        lambda: table.append_batches([(1, rows(0, 3))]),
        lambda: table.overwrite(rows(0, 3)),
    ):
        with pytest.raises(OSError, match="no space left"):
            write()
        assert stored(table) == before
