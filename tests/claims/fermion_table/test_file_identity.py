"""Entries hold the identity of their data files: another file in their place is refused."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pyarrow as pa
import pytest

import fermion
from fermion_table import Table, lit
from fermion_table.commit import next_snapshot
from fermion_table.errors import CorruptMetadata
from fermion_table.metadata import manifest_store
from fermion_table.metadata.manifest import Entry
from fermion_table.writing.data_files import EntryMaker

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])


def rows(first: int) -> dict[str, list[Any]]:
    numbers = list(range(first, first + 50))
    return {"k": numbers, "s": [str(each) for each in numbers]}


def entries_of(table: Table) -> list[Entry]:
    return table.scan().entries[0]


def data_file(table: Table, place: int = 0) -> Path:
    return Path(table.location) / entries_of(table)[place].path


def overwritten(folder: Path) -> tuple[Table, Path, str]:
    """A table whose data file was replaced by another of the same size, layout and schema."""
    table = Table.create(folder / "table", SCHEMA)
    table.append(rows(100_000))
    other = Table.create(folder / "other", SCHEMA)
    other.append(rows(200_000))
    path, replacement = data_file(table), data_file(other)
    assert path.stat().st_size == replacement.stat().st_size
    with fermion.open(replacement) as file:
        found = file.file_id
    shutil.copyfile(replacement, path)
    assert found is not None
    return Table.open(folder / "table"), path, found


def test_an_entry_has_the_id_of_its_file(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA)
    table.append(rows(0))
    with fermion.open(data_file(table)) as file:
        assert entries_of(table)[0].file_id == file.file_id
    assert len(entries_of(table)[0].file_id or "") == 32


READS: dict[str, Callable[[Table], Any]] = {
    "all": lambda table: table.scan().to_arrow(),
    "a column": lambda table: table.scan(columns=["s"]).to_arrow(),
    "filter": lambda table: table.scan(filter="k = 100007").to_arrow(),
    "batches": lambda table: list(table.scan().to_batches()),
    "update": lambda table: table.update("k = 100003", {"s": lit("x")}),
    "delete": lambda table: table.delete("s = '100003'"),
    "compact": lambda table: table.compact(full=True),
}


@pytest.mark.parametrize("name", [each for each in READS if each != "compact"])
def test_a_data_file_overwritten_by_another_of_the_same_size_is_refused(
    name: str, tmp_path: Path
) -> None:
    """The error names the file, the id expected and the id found; nothing is committed."""
    table, path, found = overwritten(tmp_path)
    entry = entries_of(table)[0]
    before = table.snapshot.id
    with pytest.raises(CorruptMetadata) as caught:
        READS[name](table)
    message = str(caught.value)
    assert entry.path in message
    assert f"id {entry.file_id}" in message
    assert f"id {found}" in message
    assert path.name in message
    assert Table.open(tmp_path / "table").snapshot.id == before


def test_verifying_the_data_finds_a_file_overwritten_by_another(tmp_path: Path) -> None:
    table, path, found = overwritten(tmp_path)
    report = table.verify(data=True)
    assert not report.ok
    (problem,) = report.problems
    assert problem.path.endswith(path.name)
    assert found in problem.found


def test_verifying_without_data_measures_files_and_opens_none(tmp_path: Path) -> None:
    """It finds missing and cut files; one of the same size is found with the data only."""
    table, path, _ = overwritten(tmp_path)
    with mock.patch.object(fermion, "open", side_effect=AssertionError("opened")):
        assert table.verify().ok
        path.write_bytes(path.read_bytes()[:-1])
        assert not table.verify().ok
        path.unlink()
        (problem,) = table.verify().problems
    assert problem.found == "no such object"


def test_compacting_a_file_overwritten_by_another_is_refused(tmp_path: Path) -> None:
    table, path, _ = overwritten(tmp_path)
    copy = path.read_bytes()
    table.append(rows(300_000))
    path.write_bytes(copy)
    before = Table.open(tmp_path / "table").snapshot.id
    with pytest.raises(CorruptMetadata, match="the data file with id"):
        table.compact()
    assert Table.open(tmp_path / "table").snapshot.id == before


def test_ids_stay_through_manifests_packed_and_not(tmp_path: Path) -> None:
    """Commits are merged into manifests at once, of which many entries are packed."""
    table = Table.create(tmp_path / "t", SCHEMA)
    with (
        mock.patch.object(next_snapshot, "INLINE_ENTRIES_MAX", 2),
        mock.patch.object(next_snapshot, "PACK_ENTRIES_MIN", 1),
        mock.patch.object(manifest_store, "PACK_ENTRIES_MIN", 1),
    ):
        for number in range(12):
            table.append(rows(100 * number))
    kinds = {each.kind for each in table.snapshot.manifests}
    assert "packed" in kinds
    again = Table.open(tmp_path / "t")
    for entry in entries_of(again):
        with fermion.open(tmp_path / "t" / entry.path) as file:
            assert entry.file_id == file.file_id
    assert again.scan().count() == 600
    assert again.verify(data=True).ok


def test_ids_travel_in_messages_clones_branches_and_compactions(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA)
    with table.writer() as writer:
        writer.write(pa.table(rows(0), SCHEMA))
        messages = writer.prepare_commit()
    table.commit(pickle.loads(pickle.dumps(messages)))
    table.append(rows(100))
    own = {each.file_id for each in entries_of(table)}
    assert None not in own
    assert len(own) == 2
    clone = table.clone(tmp_path / "clone")
    assert {each.file_id for each in entries_of(clone)} == own
    table.branches.create("b")
    branch = Table.open(tmp_path / "t", branch="b")
    assert {each.file_id for each in entries_of(branch)} == own
    branch.delete("k = 3")
    assert {each.file_id for each in entries_of(branch)} >= own - {None}
    branch.compact()
    assert None not in {each.file_id for each in entries_of(branch)}
    for version in (table, clone, branch):
        assert version.verify(data=True).ok


def test_entries_without_an_id_are_read_as_before(tmp_path: Path, monkeypatch) -> None:
    """As earlier versions wrote them."""
    make = EntryMaker.entry
    monkeypatch.setattr(
        EntryMaker,
        "entry",
        lambda *args, **kwargs: msgspec.structs.replace(make(*args, **kwargs), file_id=None),
    )
    table, path, _ = overwritten(tmp_path)
    assert entries_of(table)[0].file_id is None
    assert table.scan().to_arrow().column("k")[0].as_py() == 200_000
    assert path.exists()
