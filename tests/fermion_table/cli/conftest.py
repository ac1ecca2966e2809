"""A table that the commands are tried on; the program finds them, installed or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.cli import main
from fermion_table import Table
from tests.kit.declared_commands import declared_commands

SCHEMA = pa.schema({"id": pa.int64(), "kind": pa.string(), "tags": pa.list_(pa.string())})


@pytest.fixture(autouse=True)
def found_by_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry point as the project declares it, whether installed or not."""
    monkeypatch.setattr("importlib.metadata.entry_points", declared_commands)


@pytest.fixture
def table(table_path: Path) -> Table:
    """Snapshots 1 to 3 append two rows each; 4 deletes one, 5 adds a column."""
    made = Table.create(table_path, SCHEMA, durability="fast", partition_by=["kind"])
    for day in range(1, 4):
        rows = {"id": [day, day * 10], "kind": ["a", "b"], "tags": [["x"], None]}
        made.append(pa.table(rows, schema=SCHEMA), message=f"day {day}")
    made.delete("id = 10")
    made.add_columns({"price": pa.float64()})
    return made


@pytest.fixture
def run(table: Table, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs ``fermion table COMMAND PATH ...``; gives what it prints."""

    def runs(command: str, *arguments: object, status: int = 0) -> str:
        capsys.readouterr()
        given = ["table", command, table.location, *map(str, arguments)]
        assert main(given) == status
        captured = capsys.readouterr()
        assert captured.err == "" if status == 0 else True
        return captured.out + captured.err

    return runs


@pytest.fixture
def json_of(run: Any) -> Any:
    return lambda *arguments, **options: json.loads(run(*arguments, "--json", **options))
