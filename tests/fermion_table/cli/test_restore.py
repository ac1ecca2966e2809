"""`fermion table restore`: an earlier state becomes the latest."""

from __future__ import annotations

from typing import Any

from fermion_table import Table


def ids(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def test_restore_makes_an_earlier_state_the_latest(run: Any, json_of: Any, table: Table) -> None:
    assert run("restore", 2, "-m", "back") == "snapshot 6: back\n"
    assert ids(Table.open(table.location)) == [1, 2, 10, 20]
    assert json_of("restore", 2) == {"snapshot_id": 6, "changed": False}
    assert run("restore", "main") == "nothing to do: snapshot 6 has that state\n"
