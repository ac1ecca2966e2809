"""Rows out of files of other formats, and out of other things than Arrow's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet
import pytest

import fermion
from fermion.columns.file_input import reader_of_files
from fermion.errors import InvalidArgumentError
from fermion_table import SchemaMismatch, Table

ROWS = pa.table({"a": pa.array([1, 2, 3], pa.int64()), "b": ["x", "", None]})


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "in"
    for day in ("day=2026-01-31", "day=2026-02-01"):
        (folder / "hive" / day).mkdir(parents=True)
        pyarrow.parquet.write_table(ROWS, folder / "hive" / day / "part.parquet")
    (folder / "hive" / "_SUCCESS").touch()
    (folder / "hive" / ".part.parquet.crc").touch()
    (folder / "empty").mkdir()
    pyarrow.parquet.write_table(ROWS, folder / "r.parquet")
    pyarrow.csv.write_csv(ROWS, folder / "r.csv")
    pyarrow.csv.write_csv(ROWS, folder / "r2.csv")
    with pa.CompressedOutputStream(folder / "z.csv.gz", "gzip") as out:
        pyarrow.csv.write_csv(ROWS, out)
    pyarrow.csv.write_csv(ROWS, folder / "r.tsv", pyarrow.csv.WriteOptions(delimiter="\t"))
    pyarrow.feather.write_feather(ROWS, folder / "r.arrow")
    pyarrow.orc.write_table(ROWS, folder / "r.orc")
    (folder / "r.jsonl").write_text('{"a": 1, "b": "x"}\n{"a": 2, "b": ""}\n{"a": 3}\n')
    (folder / "bad.parquet").write_text("no Parquet")
    (folder / "bad.csv").write_text("a,b\n1,2\n1,2,3\n")
    (folder / "text.txt").write_text("x")
    fermion.write_table(ROWS, folder / "r.fermion")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(
    "name", ["r.parquet", "r.csv", "z.csv.gz", "r.tsv", "r.arrow", "r.orc", "r.jsonl", "r.par*"]
)
def test_files_of_other_formats_are_rows(files: Path, name: str) -> None:
    table = Table.create("t", name)
    assert table.scan().to_arrow().to_pylist() == ROWS.to_pylist()
    table.append(files / name if "*" not in name else name)
    assert table.scan().count() == 6
    fermion.write_table(name, "copy.fermion")
    assert fermion.read_table("copy.fermion").num_rows == 3


@pytest.mark.parametrize(
    "named", ["hive", "hive/{}", "hive/{}/", "hive/{}/*.parquet", "hive/{}/part.parquet", "*/{}/*"]
)
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_directories_patterns_and_files_give_the_same_columns(
    files: Path, named: str, scheme: str
) -> None:
    """Of the folders around what is named, those that directly hold it, and no others."""
    inside = files.parent / "env=test" / "in"
    files.parent.joinpath("env=test").mkdir()
    files.rename(inside)
    rows = reader_of_files(f"{scheme}{inside}/{named.format('day=2026-01-31')}").read_all()
    assert rows.schema.names == ["a", "b", "day"]
    assert set(rows["day"].to_pylist()) >= {"2026-01-31"}


def test_a_column_of_the_files_wins_over_the_folder_around_them(tmp_path: Path) -> None:
    folder = tmp_path / "b=7"
    folder.mkdir()
    pyarrow.parquet.write_table(ROWS, folder / "part.parquet")
    for named in (folder, folder / "*.parquet", folder / "part.parquet"):
        assert reader_of_files(named).read_all() == ROWS


def test_a_directory_gives_its_hive_partitions_as_columns(files: Path) -> None:
    found = Table.create("t", files / "hive").scan().to_arrow()
    assert found.num_rows == 6
    assert set(found["day"].to_pylist()) == {"2026-01-31", "2026-02-01"}


def test_a_pattern_gives_the_rows_of_all_files_that_fit(files: Path) -> None:
    assert Table.create("t", "r*.csv").scan().count() == 6


@pytest.mark.parametrize("named", ["hive/day=*", "h*", "hive/**", "hive/day=2026-01-3?"])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_pattern_of_directories_gives_the_files_in_them_once(
    files: Path, named: str, scheme: str
) -> None:
    hidden = files / "hive" / "day=2026-01-31" / "_temporary"
    hidden.mkdir()
    (hidden / "part.parquet").write_bytes(b"half of a file")
    rows = reader_of_files(f"{scheme}{files}/{named}" if scheme else named)
    days = ["2026-01-31"] * 3 + ["2026-02-01"] * (3 if "?" not in named else 0)
    assert sorted(rows.read_all()["day"].to_pylist()) == days


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nope.parquet", "nope.parquet: expected a file.*found none"),
        ("nope*.csv", "found none"),
        ("empty", "found none"),
        ("text.txt", r"expected a suffix of \.parquet.*found \.txt"),
        ("r.[ct]sv", None),
        ("r.*v", None),
        ("r.[cp]*", "expected files of one format, found"),
        ("r.fermion", r"a Fermion file: give fermion\.open\('r\.fermion'\)"),
        ("bad.parquet", "bad.parquet"),
        ("bad.csv", "bad.csv.*Expected 2 columns"),
        ("", "found none"),
    ],
)
def test_what_is_no_file_of_rows_is_refused(files: Path, name: str, message: str | None) -> None:
    """And leaves no table behind."""
    message = message or "expected files of one format, found r.csv and r.tsv"
    with pytest.raises(InvalidArgumentError, match=message):
        Table.create("t", name)
    assert not os.path.exists("t")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"a": 1, "b": "x"}, {"b": "y"}, {}], {"a": [1, None, None], "b": ["x", "y", None]}),
        ([{}, {"a": {"c": [1]}}], {"a": [None, {"c": [1]}]}),
        (pl.LazyFrame({"a": [1, 2]}).filter(pl.col("a") > 1), {"a": [2]}),
        (pl.LazyFrame({"a": []}, schema={"a": pl.Int8}), {"a": []}),
        (np.arange(4).reshape(2, 2), {"column0": [0, 2], "column1": [1, 3]}),
        (np.array([(1, 2.5)], [("q", "i4"), ("w", "f8")]), {"q": [1], "w": [2.5]}),
    ],
    ids=["dicts", "structs", "lazy", "empty lazy", "two dimensions", "structured"],
)
def test_dicts_lazy_frames_and_arrays_are_rows(tmp_path: Path, rows: Any, expected: Any) -> None:
    assert Table.create(tmp_path / "t", rows).scan().to_arrow().to_pydict() == expected
    fermion.write_table(rows, tmp_path / "x.fermion")
    assert fermion.read_table(tmp_path / "x.fermion").to_pydict() == expected


def test_a_generator_of_dicts_is_read_in_parts(tmp_path: Path) -> None:
    rows = ({"a": number} for number in range(150_000))
    assert Table.create(tmp_path / "t", rows).scan().count() == 150_000
    late = ({"a": number} if number < 70_000 else {"z": 1} for number in range(70_001))
    with pytest.raises(
        InvalidArgumentError, match=r"row 70000: expected one of \['a'\], found 'z'"
    ):
        Table.create(tmp_path / "u", late)
    assert not (tmp_path / "u").exists()


def test_rows_get_the_types_of_the_table(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int8()), ("b", pa.float32())])
    table = Table.create(tmp_path / "t", schema)
    table.append([{"b": 1.5}, {"a": 2}])
    table.append(np.ones((1, 2), np.int64))
    assert table.scan().to_arrow() == pa.table(
        {"a": [None, 2, 1], "b": [1.5, None, 1.0]}, schema=schema
    )
    with pytest.raises(SchemaMismatch, match="z: int64: not in the table"):
        table.append([{"a": 1, "z": 2}])
    with pytest.raises(InvalidArgumentError, match="expected 2 columns, found 3"):
        table.append(np.ones((1, 3)))
    with pytest.raises(InvalidArgumentError, match="row 1: expected a dict, found int"):
        table.append([{"a": 1}, 5])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"a": 1}, {2: 3}], "row 1: expected a name as text, found 2"),
        (np.zeros(3), r"expected two dimensions.*shape \(3,\)"),
        ([1, 2], "iterable of record batches, tables or dicts; found one of int"),
        (b"x.parquet", "found bytes"),
        (5, "found int"),
    ],
)
def test_other_things_are_no_rows(tmp_path: Path, rows: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Table.create(tmp_path / "t", rows)


READS_JSON = """
import sys, tempfile, fsspec
from fermion_table import Table
memory = fsspec.filesystem("memory")
memory.pipe_file("/in/day=1/a.jsonl", b'{"id": 1}\\n')
table = Table.create(sys.argv[1], "memory://in", durability="fast")
memory.pipe_file("/in/day=2/b.jsonl", b'{"id": 2}\\n')
table.append("memory://in/*/b.jsonl")
print(table.to_arrow().sort_by("id").to_pylist())
"""


def test_json_lines_of_a_storage_are_read_and_not_waited_for(tmp_path: Path) -> None:
    """In a process of its own, as it would wait for ever; nothing is left of the copies."""
    copies = tmp_path / "copies"
    copies.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", READS_JSON, str(tmp_path / "t")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "TMPDIR": str(copies)},
    )
    assert done.stdout.strip() == "[{'id': 1, 'day': 1}, {'id': 2, 'day': 2}]", done.stderr
    assert list(copies.iterdir()) == []
