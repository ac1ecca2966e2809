"""`fermion table show`: a snapshot in brief."""

from __future__ import annotations

from typing import Any

from fermion_table import Table


def test_show_prints_a_snapshot_in_brief(run: Any, json_of: Any, table: Table) -> None:
    table.tags.create("v1", version=2, message="first")
    table.branches.create("dev", version=3)
    table.set_properties({"target_file_size": "64MB"})
    lines = run("show").splitlines()
    assert lines[0] == table.location
    assert lines[1].startswith("snapshot 6 of main: schema")
    for line in (
        "partitioned by kind",
        "4 columns, schema 2",
        "property target_file_size: 64MB",
        "branch main: snapshot 6",
        "branch dev: snapshot 3, from snapshot 3 of main",
        "tag v1: snapshot 2 (first)",
    ):
        assert line in lines
    assert any(line.startswith("5 rows in ") for line in lines)
    assert "    day 2" in run("show", "--version", "v1").splitlines()
    found = json_of("show")
    assert (found["snapshot_id"], found["rows"], found["columns"]) == (6, 5, 4)
    assert found["tags"] == {"v1": 2}
    assert found["branches"] == {"main": 6, "dev": 3}
