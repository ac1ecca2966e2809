"""The command `fermion catalog`: what it prints, as JSON too, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fermion
from fermion.cli import main
from fermion_table import Catalog, Table


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs ``fermion catalog COMMAND WAREHOUSE ...``; gives what it prints."""

    def runs(command: str, *arguments: object, status: int = 0) -> str:
        capsys.readouterr()
        given = ["catalog", command, str(tmp_path / "warehouse"), *map(str, arguments)]
        assert main(given) == status
        captured = capsys.readouterr()
        return captured.out + captured.err

    return runs


def test_tables_are_created_listed_renamed_and_dropped(run: Any, tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "day": ["x"]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    fermion.write_table(rows, tmp_path / "rows.fermion")
    Table.create(tmp_path / "other", rows.schema)
    location = tmp_path / "warehouse" / "db" / "a"
    assert run("create", "db.a", "--like", tmp_path / "rows.parquet") == f"db.a: {location}\n"
    run("create", "db.b", "--like", tmp_path / "rows.fermion", "--primary-key", "id",
        "--property", "bucket=1")  # fmt: skip
    run("create", "c", "--like", location, "--partition-by", "day")
    run("create", "d", "--register", tmp_path / "other")
    assert run("list").split() == ["c", "d", "db.a", "db.b"]
    assert json.loads(run("list", "db", "--pattern", "?", "--json")) == ["db.a", "db.b"]
    assert run("list", "--namespaces") == "db\n"
    assert run("rename", "db.a", "e.a") == "db.a is now e.a\n"
    assert run("drop", "c") == "dropped c\n"
    assert "deleted 3 files" in run("drop", "db.b", "--purge")
    assert json.loads(run("drop", "d", "--json")) == {"dropped": "d"}
    catalog = Catalog.open(tmp_path / "warehouse")
    assert catalog.tables() == ["e.a"]
    assert list(catalog.table("e.a").schema.names) == ["id", "day"]


def test_snapshots_are_created_shown_and_deleted(run: Any, tmp_path: Path) -> None:
    assert run("snapshot") == "no snapshots\n"
    for name in ("a", "b"):
        Catalog.open(tmp_path / "warehouse").create_table(name, pa.schema({"id": pa.int64()}))
    assert run("snapshot", "q1") == "snapshot q1: 2 tables\n"
    found = json.loads(run("snapshot", "q2", "--table", "b", "-m", "why", "--json"))
    assert (found["table_count"], found["message"], found["state"]) == (1, "why", "ready")
    lines = run("snapshot").splitlines()
    assert [line.partition(",")[0] for line in lines] == ["q1: 2 tables", "q2: 1 tables"]
    assert lines[1].endswith(", why")
    assert run("snapshot", "q1", "--delete") == "deleted snapshot q1\n"
    assert [each["name"] for each in json.loads(run("snapshot", "--json"))] == ["q2"]


def test_a_catalog_is_repaired(run: Any, tmp_path: Path) -> None:
    """The exit status says whether a problem is left."""
    path = tmp_path / "warehouse"
    Catalog.open(path).create_table("a", pa.schema({"id": pa.int64()}))
    Table.create(path / "b", pa.schema({"id": pa.int64()}))
    assert run("repair", "--dry-run") == "1 repairs would be done\n  b: listed, lies at b\n"
    assert json.loads(run("repair", "--json"))["actions"] == ["b: listed, lies at b"]
    Table.create(path / "_catalog" / "data" / "x", pa.schema({"id": pa.int64()}))
    assert "1 problems left" in run("repair", status=1)


def test_wrong_usage_is_told(run: Any, tmp_path: Path) -> None:
    assert "expected a name" in run("snapshot", "--delete", status=2)
    assert "without --table" in run("snapshot", "q", "--delete", "-m", "x", status=2)
    assert "NAME=VALUE" in run("create", "a", "--like", tmp_path, "--property", "x", status=2)
    assert "--namespaces alone" in run("list", "db", "--namespaces", status=2)
    assert "no table nope" in run("drop", "nope", status=1)
    assert "without options" in run(
        "create", "a", "--register", tmp_path, "--primary-key", "id", status=2
    )
