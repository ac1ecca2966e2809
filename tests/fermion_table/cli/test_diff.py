"""`fermion table diff`: what differs between two versions."""

from __future__ import annotations

from typing import Any


def test_diff_prints_what_differs(run: Any, json_of: Any) -> None:
    lines = run("diff", 3).splitlines()
    assert lines[:2] == ["snapshot 3 -> snapshot 5", "  + price: double"]
    assert "no difference" in run("diff", 4, 4)
    rows = run("diff", "main~2", "--rows").splitlines()
    assert rows[-1].split()[:2] == ["delete", "10"]
    found = json_of("diff", 3, 5, "--rows")
    assert found["schema_changes"] == ["+ price: double"]
    assert (found["rows_removed"], len(found["files_removed"])) == (1, 1)
    assert [(row["_change_type"], row["id"]) for row in found["rows"]] == [("delete", 10)]
