"""Foreign files in a table's directory stay, and no other table comes to lie there."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion_table import Table, TableExists
from fermion_table.storage.local import LocalStore
from fermion_table.storage.paths import is_made_by_writers, unique_name

SCHEMA = pa.schema({"a": pa.int64()})
ROWS = pa.table({"a": [1, 2]})
AT_ONCE = timedelta(days=-1)
U = "0123456789abcdef" * 2
USERS_FILES = [
    "data/notes.csv",
    "data/report.fermion",
    f"data/{U}.parquet",
    f"data/{U}.fermion.bak",
    f"data/{U[:-1]}.fermion",
    f"data/{U.upper()}.fermion",
    f"data/backup/{U}.fermion",
    f"data/a=1/old/{U}.fermion",
    f"data/inner/data/{U}.fermion",
    f"data/bucket-x/{U}.fermion",
    f"data/.hidden.{U}.tmp",
    "manifest/readme.md",
    f"manifest/{U}.json.gz",
    f"manifest/old/{U}.json",
    f"schema/{U}.json",
    f"deletion/{U}.txt",
    "pending/todo.json",
    "snapshot/draft.tmp",
    "branch/dev/mine.tmp",
    "tags/.swap.tmp",
]
WRITERS_FILES = [
    f"data/{U}.fermion",
    f"data/.{U}.fermion.{U}.tmp",
    f"data/p=a%20b/q=__HIVE_DEFAULT_PARTITION__/bucket-3/{U}.fermion",
    f"deletion/{U}.dv",
    f"manifest/{U}.json",
    f"manifest/{U}.json.zst",
    f"manifest/{U}.index.fermion",
    f"schema/12-{U}.json",
    f"pending/.{U}.json.{U}.tmp",
    f"snapshot/.00000000000000000007.json.{U}.tmp",
    f"expired/.00000000000000000007.{U}.tmp",
    f"branch/dev/.branch.json.{U}.tmp",
    f"branch/dev/snapshot/.LATEST.{U}.tmp",
    f"tags/.v1.json.{U}.tmp",
]


def put(table: Table, names: list[str]) -> None:
    for name in names:
        path = Path(table.location, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"..")
        os.utime(path, (0, 0))


def test_orphan_removal_takes_only_what_a_writer_could_have_made(tmp_path: Path) -> None:
    """Users' files lie beside orphans in every folder, all of them old."""
    table = Table.create(tmp_path / "t", SCHEMA)
    table.append(ROWS)
    live = {item.path for item in table.store.list()}
    put(table, USERS_FILES + WRITERS_FILES)
    planned = table.remove_orphan_files(older_than=AT_ONCE, dry_run=True)
    done = table.remove_orphan_files(older_than=AT_ONCE)
    assert set(done.paths) == set(planned.paths) == set(WRITERS_FILES)
    assert {item.path for item in table.store.list()} == live | set(USERS_FILES)
    assert table.verify(data=True).ok


def test_every_object_of_a_real_table_is_one_that_a_writer_could_have_made(tmp_path: Path) -> None:
    """Partitions of difficult values, vectors, manifests, schemas: all in the listed folders."""
    schema = pa.schema({"a": pa.int64(), "p": pa.string(), "Größe % = /": pa.string()})
    table = Table.create(tmp_path / "t", schema, partition_by=["p", "Größe % = /", "bucket(4, a)"])
    values = ["", "..", "a/b", "a=b", "~", "ä" * 90, None, "bucket-1", "%41", "\n"]
    for _ in range(8):
        count = len(values)
        table.append(pa.table([range(count), values, values[::-1]], schema=schema))
    table.delete("a = 3")
    table.add_columns({"b": pa.int32()})
    found = {item.path for item in table.store.list()}
    folders = ("data/", "deletion/", "manifest/", "schema/", "pending/")
    ours = {path for path in found if path.startswith(folders)}
    assert len(ours) > 80
    assert [path for path in ours if not is_made_by_writers(path)] == []
    assert not any(map(is_made_by_writers, found - ours))


def places(tmp_path: Path, where: str) -> tuple[str, list[str]]:
    """A table's location, and those around it where no other one may lie."""
    outer = f"{tmp_path}/w/t" if where == "local" else f"memory://{unique_name()}/w/t"
    above = outer.rpartition("/")[0]
    return outer, [f"{outer}/data", f"{outer}/data/x=1/inner", f"{outer}/snapshot", above]


@pytest.mark.parametrize("where", ["local", "memory"])
def test_no_table_is_made_or_cloned_inside_or_around_another(tmp_path: Path, where: str) -> None:
    """Nothing is written: neither below the target nor a tag in the source."""
    location, bad = places(tmp_path, where)
    table = Table.create(location, SCHEMA)
    table.append(ROWS)
    beside = Table.create(f"{location}-beside", SCHEMA)
    before = [item.path for item in table.store.list()]
    for target in bad:
        makers: list[Any] = [
            lambda target=target: Table.create(target, SCHEMA),
            lambda target=target: Table.create(target, SCHEMA, mode="ignore"),
            lambda target=target: Table.create(target, SCHEMA, mode="overwrite"),
            lambda target=target: table.clone(target),
            lambda target=target: beside.clone(target),
        ]
        for make in makers:
            with pytest.raises(TableExists, match="choose a directory beside"):
                make()
    assert [item.path for item in table.store.list()] == before
    assert table.tags.list() == beside.tags.list() == []
    assert table.clone(f"{location}-clone").scan().count() == 2


def test_a_link_does_not_hide_that_a_table_lies_in_another(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA)
    (tmp_path / "link").symlink_to(table.location)
    with pytest.raises(TableExists, match="inside the directory"):
        Table.create(tmp_path / "link" / "inner", SCHEMA)


def test_a_table_in_a_directory_of_other_files_is_fine(tmp_path: Path) -> None:
    """Directories named like a table's, but without a first snapshot, are no table."""
    (tmp_path / "w" / "a" / "snapshot").mkdir(parents=True)
    (tmp_path / "w" / "data.csv").write_text("1,2")
    Table.create(tmp_path / "w", SCHEMA).append(ROWS)


def test_what_cannot_be_looked_into_holds_no_table(tmp_path: Path, monkeypatch: Any) -> None:
    """As with a role that may see one prefix of a bucket only."""
    real = LocalStore.exists

    def exists(store: LocalStore, path: str) -> bool:
        if store.location != str(tmp_path / "w" / "t"):
            raise PermissionError(path)
        return real(store, path)

    monkeypatch.setattr(LocalStore, "exists", exists)
    assert Table.create(tmp_path / "w" / "t", SCHEMA).append(ROWS).id == 1
