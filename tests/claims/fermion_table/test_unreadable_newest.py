"""Tables whose newest snapshot cannot be read: the error, what still opens, what verify finds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.__main__ import main
from fermion_table import Table, drop_table
from fermion_table.errors import CorruptMetadata, TableNotFound
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.location import open_store
from fermion_table.storage.paths import snapshot_path
from fermion_table.storage.store import AtomicStore
from tests.kit.stores import WrappedStore

SCHEMA = pa.schema({"a": pa.int64()})


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(b"\x00\xff garbage" * 20)


def json_of_something_else(path: Path) -> None:
    path.write_bytes(b'{"format": "fermion-tag", "format_version": 1}')


def another_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


DAMAGES: list[Callable[[Path], None]] = [
    truncated,
    emptied,
    garbage,
    json_of_something_else,
    another_byte,
]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    for value in (1, 2, 3):
        made.append({"a": [value]})
    return made


def slot(table: Table, number: int, branch: str = "main") -> Path:
    shared_cache.clear()
    return Path(table.location, snapshot_path(number, branch))


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_error_of_opening_says_which_snapshot_still_opens(
    table: Table, damage: Callable[[Path], None]
) -> None:
    """The call that the message names works, for reading."""
    damage(slot(table, 3))
    with pytest.raises(CorruptMetadata, match=r"snapshot 2 is the newest that opens") as caught:
        Table.open(table.location)
    advice = str(caught.value)[str(caught.value).index("Table.open(") :]
    opened = eval(advice, {"Table": Table})
    assert opened.scan().to_arrow()["a"].to_pylist() == [1, 2]
    assert [each.id for each in opened.snapshots()] == [0, 1, 2]


@pytest.mark.parametrize("damage", DAMAGES)
def test_verify_reports_a_newest_snapshot_that_cannot_be_read(
    table: Table, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """From a table opened before, one opened at what still opens, and the command."""
    older = Table.open(table.location, version=1)
    damage(slot(table, 3))
    for opened in (table, older, Table.open(table.location, version=2)):
        report = opened.verify(data=True)
        assert not report.ok
        assert [problem.path for problem in report.problems] == [snapshot_path(3)]
        assert report.snapshots == 3
    assert main(["table", "verify", table.location, "--data"]) == 1
    printed = capsys.readouterr()
    assert snapshot_path(3) in printed.out
    assert printed.err == ""


def test_several_snapshots_that_cannot_be_read_are_passed_over(table: Table) -> None:
    for number in (2, 3):
        garbage(slot(table, number))
    with pytest.raises(CorruptMetadata, match=r"snapshot 1 is the newest that opens"):
        Table.open(table.location)
    assert len(table.verify().problems) == 2
    garbage(slot(table, 1))
    garbage(slot(table, 0))
    with pytest.raises(CorruptMetadata) as caught:
        Table.open(table.location)
    assert "opens" not in str(caught.value)
    assert main(["table", "verify", table.location]) == 1


def test_a_schema_that_cannot_be_read_counts_too(table: Table) -> None:
    table.add_columns({"b": pa.int64()})
    garbage(Path(table.location, table.snapshot.schema.path))
    shared_cache.clear()
    with pytest.raises(CorruptMetadata, match=r"snapshot 3 is the newest that opens"):
        Table.open(table.location)
    assert not Table.open(table.location, version=3).verify().ok
    assert main(["table", "verify", table.location]) == 1


def test_the_advice_names_the_branch(table: Table) -> None:
    table.branches.create("dev", version=1)
    branch = Table.open(table.location, branch="dev")
    branch.append({"a": [7]})
    branch.append({"a": [8]})
    garbage(slot(table, 3, "dev"))
    with pytest.raises(CorruptMetadata, match=r"version=2, branch='dev'"):
        Table.open(table.location, branch="dev")
    opened = Table.open(table.location, version=2, branch="dev")
    assert opened.scan().to_arrow()["a"].to_pylist() == [1, 7]
    assert Table.open(table.location).scan().count() == 3


def test_the_command_still_tells_what_is_not_there(
    table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No table, and no branch of that name, are errors and no findings."""
    assert main(["table", "verify", str(tmp_path / "none")]) == 1
    assert main(["table", "verify", table.location, "--branch", "mein"]) == 1
    assert "the closest branches: 'main'" in capsys.readouterr().err
    with pytest.raises(TableNotFound):
        Table.open(tmp_path / "none")


class DroppedMeanwhile(WrappedStore):
    """A store whose table somebody drops before one of its calls."""

    def __init__(self, inner: AtomicStore, calls_before: int) -> None:
        super().__init__(inner)
        self.calls_left = calls_before

    def call(self, operation: str, *arguments: Any) -> Any:
        if self.calls_left == 0:
            drop_table(self.location)
        self.calls_left -= 1
        return super().call(operation, *arguments)


def test_a_table_that_is_dropped_while_it_is_opened_is_not_damaged(table: Table) -> None:
    """Before each call of the storage that opening makes, until it opens."""
    for calls in range(100):
        path = Path(f"{table.location}-{calls}")
        shutil.copytree(table.location, path)
        shared_cache.clear()
        store = DroppedMeanwhile(open_store(path), calls)
        try:
            assert Table.at(store).snapshot.id == table.snapshot.id
        except TableNotFound:
            assert not path.exists()
            continue
        break
    assert store.calls_left >= 0
    assert calls >= 3
