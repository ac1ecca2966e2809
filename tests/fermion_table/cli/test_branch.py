"""`fermion table branch`: branches are made, published and deleted."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from fermion_table import Table


def ids(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def test_branches_are_made_published_and_deleted(run: Any, json_of: Any, table: Table) -> None:
    line = run("branch", "dev", "--version", "main~1", "-m", "try")
    assert line == "branch dev starts at snapshot 4 of main\n"
    assert run("branch").splitlines()[2].split()[:4] == ["dev", "4", "main", "4"]
    assert [row["name"] for row in json_of("branch")] == ["main", "dev"]
    assert run("branch", "dev", "--delete") == "deleted branch dev\n"
    assert json_of("branch", "dev") == {"name": "dev", "parent": "main", "left_after": 5}
    dev = Table.open(table.location, branch="dev")
    dev.append(pa.table({"id": [7]}))
    assert run("scan", "--branch", "dev", "--count") == "6 rows\n"
    assert run("branch", "dev", "--fast-forward") == "main is at snapshot 6, the state of dev\n"
    assert 7 in ids(Table.open(table.location))
    dev.append(pa.table({"id": [8]}))
    Table.open(table.location).append(pa.table({"id": [9]}))
    assert run("branch", "dev", "--merge") == "main is at snapshot 8, with the commits of dev\n"
    assert {8, 9} <= set(ids(Table.open(table.location)))
    assert "expected a name" in run("branch", "--fast-forward", status=2)
    assert "expected a name" in run("branch", "--merge", status=2)
