"""`Table.add_files`: Fermion files of others become files of a table, as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fermion
from fermion.errors import InvalidArgumentError
from fermion_table import SchemaMismatch, Table

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("city", pa.string()),
        ("place", pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.string()))])),
    ]
)


def rows(start: int, stop: int, city: str = "Oslo") -> pa.Table:
    found = [
        {"id": number, "city": city, "place": {"x": number / 2, "tags": ["a"]}}
        for number in range(start, stop)
    ]
    return pa.Table.from_pylist(found, schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(tmp_path / "t", SCHEMA, durability="fast")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{number}.fermion" for number in range(3)]
    for number, path in enumerate(paths):
        fermion.write_table(rows(number * 100, number * 100 + 100), path)
    return paths


def data_files(table: Table) -> list[Path]:
    return sorted(Path(table.location).glob("data/**/*.fermion"))


def test_files_are_added_as_they_are_in_one_commit(table: Table, files: list[Path]) -> None:
    """The copies have the bytes of the originals, which stay and may go."""
    originals = sorted(path.read_bytes() for path in files)
    snapshot = table.add_files(files, message="by hand")
    assert (snapshot.id, snapshot.kind, snapshot.message) == (1, "append", "by hand")
    assert sorted(path.read_bytes() for path in data_files(table)) == originals
    for path in files:
        path.unlink()
    assert table.to_arrow() == rows(0, 300)
    assert table.verify(data=True).ok
    table.delete("id = 150")
    table.compact(min_input_files=2)
    assert table.count() == 299


def test_statistics_of_added_files_are_those_that_a_writer_gives(
    table: Table, files: list[Path], tmp_path: Path
) -> None:
    table.add_files(files)
    appended = Table.create(tmp_path / "a", SCHEMA, durability="fast")
    for start in range(0, 300, 100):
        appended.append(rows(start, start + 100))
    columns = ["statistics", "rows"]
    assert table.inspect.files().select(columns) == appended.inspect.files().select(columns)
    scan = table.scan(filter="id BETWEEN 120 AND 130")
    assert scan.to_arrow()["id"].to_pylist() == list(range(120, 131))
    assert scan.io_stats["files"] == 1
    assert table.describe(sample=0)["source"][0].as_py() == "exact"


def test_batches_of_added_files_are_found(table: Table, tmp_path: Path) -> None:
    path = tmp_path / "b.fermion"
    with fermion.Writer(path, SCHEMA) as writer:
        writer.append_batch(7, rows(0, 5))
        writer.append_batch(9, rows(5, 9))
        writer.close()
    table.add_files([path])
    assert table.lookup_batch(9)["id"].to_pylist() == [5, 6, 7, 8]
    assert table.scan(batch_id=9).to_arrow().num_rows == 4
    assert len(table.scan(batch_id=10).plan().splits) == 0


def test_the_same_identity_adds_once(table: Table, files: list[Path]) -> None:
    for _ in range(2):
        table.add_files(files, commit_user="job", commit_identifier=1)
    assert table.count() == 300
    assert len(data_files(table)) == 3
    Table.open(table.location).add_files(files, commit_user="job", commit_identifier=1)
    assert Table.open(table.location).count() == 300
    table.add_files(files[:1])  # without an identity its rows are there twice, in two files
    table.delete("id = 5")
    assert (table.count("id < 100"), table.count()) == (198, 398)


def test_a_file_lies_in_the_partition_of_its_rows(tmp_path: Path) -> None:
    made = Table.create(
        tmp_path / "p", SCHEMA, partition_by=["city", "bucket(1, id)"], durability="fast"
    )
    fermion.write_table(rows(0, 5, "Oslo"), tmp_path / "o.fermion")
    fermion.write_table(rows(5, 9, "Rome"), tmp_path / "r.fermion")
    both = pa.concat_tables([rows(0, 5, "Oslo"), rows(5, 9, "Rome")])
    fermion.write_table(both, tmp_path / "both.fermion")
    made.add_files([tmp_path / "o.fermion", tmp_path / "r.fermion"])
    scan = made.scan(filter="city = 'Rome'")
    assert (scan.count(), len(scan.plan().splits)) == (4, 1)
    with pytest.raises(InvalidArgumentError, match=r"both.*expected rows of one partition"):
        made.add_files([tmp_path / "both.fermion"])


def test_rows_that_are_not_sorted_as_the_table_are_refused(tmp_path: Path) -> None:
    made = Table.create(tmp_path / "s", SCHEMA, sort_by="id", durability="fast")
    fermion.write_table(rows(0, 5), tmp_path / "sorted.fermion")
    fermion.write_table(rows(0, 5).take([1, 0]), tmp_path / "not.fermion")
    made.add_files([tmp_path / "sorted.fermion"])
    with pytest.raises(InvalidArgumentError, match=r"rows are not sorted by \['id'\]"):
        made.add_files([tmp_path / "not.fermion"])


def other(name: str, path: Path) -> Path:
    """A file that the table can't take."""
    found = rows(0, 3)
    if name == "order":
        found = found.select(["city", "id", "place"])
    if name == "names":
        found = found.rename_columns(["id", "town", "place"])
    if name == "types":
        found = found.set_column(1, "city", pa.array([b"x"] * 3))
    if name == "nulls":
        found = found.set_column(0, "id", pa.array([1, None, 2]))
    fermion.write_table(found, path)
    if name == "damage":
        data = bytearray(path.read_bytes())
        data[40] ^= 255
        path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("order", SchemaMismatch, r"columns in their order, \['id', 'city', 'place'\], found"),
        ("names", SchemaMismatch, r"found \['id', 'town', 'place'\]; Table\.append\("),
        ("types", SchemaMismatch, r"column 'city': expected string, found binary"),
        ("nulls", SchemaMismatch, r"column 'id': expected int64 not null, found int64;"),
        ("damage", InvalidArgumentError, r"is damaged"),
    ],
)
def test_one_file_that_does_not_fit_adds_none_of_them(
    table: Table, files: list[Path], tmp_path: Path, name: str, error: Any, message: str
) -> None:
    bad = other(name, tmp_path / "bad.fermion")
    with pytest.raises(error, match=f"bad.fermion.*{message}"):
        table.add_files([*files, bad])
    assert Table.open(table.location).snapshot.id == 0
    assert data_files(table) == []


def test_what_is_no_list_of_files_is_refused(table: Table, files: list[Path]) -> None:
    with pytest.raises(InvalidArgumentError, match="comes twice"):
        table.add_files([files[0], str(files[0])])
    with pytest.raises(TypeError, match="files"):
        table.add_files(str(files[0]))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected paths or URLs, found"):
        table.add_files([5])  # type: ignore[list-item]
    with pytest.raises(FileNotFoundError):
        table.add_files([*files, "nope.fermion"])
    assert data_files(table) == []
    assert table.add_files([]).id == 0
    keyed = Table.create(f"{table.location}-k", SCHEMA, primary_key="id", durability="fast")
    with pytest.raises(InvalidArgumentError, match=r"sorted by key and bucket: Table\.upsert"):
        keyed.add_files(files)
