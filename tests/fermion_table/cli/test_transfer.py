"""`fermion table create`, `import` and `export`."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from fermion.cli import main
from fermion_table import Table

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "kind": ["a", "", None]})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Any:
    """Runs ``fermion table COMMAND ...`` beside `r.parquet`; gives what it prints."""
    monkeypatch.chdir(tmp_path)
    pyarrow.parquet.write_table(ROWS, "r.parquet")

    def runs(*arguments: str, fails: bool = False) -> str:
        capsys.readouterr()
        assert (main(["table", *arguments]) != 0) == fails
        captured = capsys.readouterr()
        return captured.out + captured.err

    return runs


def test_a_table_is_made_from_files_and_takes_more(run: Any) -> None:
    said = run("create", "t", "r.parquet", "--partition-by", "kind", "--sort-by", "id")
    assert said == "snapshot 1: the table stores 3 rows\n"
    pyarrow.csv.write_csv(ROWS, "more.csv")
    assert json.loads(run("import", "t", "*.csv", "-m", "more", "--json")) == {
        "snapshot_id": 2,
        "rows": 6,
    }
    table = Table.open("t")
    assert table.snapshot.message == "more"
    assert table.scan().to_arrow().sort_by("id")["id"].to_pylist() == [1, 1, 2, 2, 3, 3]
    Path("new.jsonl").write_text('{"id": 4, "price": 1.5}\n')
    assert "price: double: not in the table" in run("import", "t", "new.jsonl", fails=True)
    run("import", "t", "new.jsonl", "--add-columns")
    assert Table.open("t").scan(filter="price > 1").count() == 1


def test_a_table_with_a_primary_key_is_upserted(run: Any) -> None:
    properties = ("--property", "target_file_size=1MiB", "--property", "my.note=a=b")
    run("create", "t", "r.parquet", "--primary-key", "id", *properties)
    pyarrow.parquet.write_table(pa.table({"id": [3, 4], "kind": ["c", "d"]}), "u.parquet")
    run("import", "t", "u.parquet")
    assert Table.open("t").scan().to_arrow().sort_by("id")["kind"].to_pylist() == [
        *("a", "", "c", "d"),
    ]
    assert Table.open("t").properties["my.note"] == "a=b"
    assert "expected NAME=VALUE" in run("create", "u", "r.parquet", "--property", "x.y", fails=True)


@pytest.mark.parametrize(
    "name", ["o.parquet", "o.csv", "o.csv.gz", "o.tsv", "o.jsonl", "o.json.gz"]
)
def test_rows_go_out_and_come_back_in(run: Any, name: str) -> None:
    run("create", "t", "r.parquet")
    said = run("export", "t", name, "--filter", "id > 1", "--column", "kind", "--column", "id")
    assert said == f"{name}: 2 rows\n"
    run("create", "u", name)
    assert Table.open("u").scan().to_arrow().to_pylist() == [
        {"kind": "", "id": 2},
        {"kind": None, "id": 3},
    ]
    assert sorted(os.listdir()) == sorted(["r.parquet", "t", "u", name])


def test_earlier_versions_go_out(run: Any) -> None:
    run("create", "t", "r.parquet")
    run("import", "t", "r.parquet")
    shown = run("export", "t", "o.parquet", "--version", "1", "--json")
    assert json.loads(shown) == {"path": "o.parquet", "rows": 3}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", "t", "r.parquet"), "exists"),
        (("create", "u", "nope.csv"), "nope.csv: expected a file"),
        (("import", "t", "nope.csv"), "nope.csv: expected a file"),
        (("import", "nope", "r.parquet"), "nope"),
        (("export", "t", "r.parquet"), "r.parquet: expected a new file, found one that exists"),
        (("export", "t", "o.xls"), r"expected a suffix of .parquet.*found .xls"),
        (("export", "t", "o.csv", "--filter", "nope = 1"), "no column 'nope'"),
        (("export", "t", "no/o.csv"), "no/"),
    ],
)
def test_what_can_not_be_done_changes_nothing(run: Any, arguments: Any, message: str) -> None:
    run("create", "t", "r.parquet")
    before = sorted(os.listdir())
    said = run(*arguments, fails=True)
    assert re.search(message, said)
    assert sorted(os.listdir()) == before
    assert Table.open("t").snapshot.id == 1


def test_an_export_that_fails_halfway_leaves_no_file(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table.create("t", pa.table({"l": [[1], [2]]}))  # lists, which CSV has no form for
    assert table.scan().count() == 2
    assert "list" in run("export", "t", "o.csv", fails=True)
    assert sorted(os.listdir()) == ["r.parquet", "t"]
