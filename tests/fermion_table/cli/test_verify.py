"""`fermion table verify`: what is wrong, and its exit status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fermion_table import Table


def test_verify_ends_with_1_where_something_is_wrong(run: Any, json_of: Any, table: Table) -> None:
    table.tags.create("v1", version=1)
    assert run("verify").rstrip().endswith(": OK")
    assert json_of("verify", "--data")["ok"] is True
    path = table.inspect.files()["path"].to_pylist()[0]
    Path(table.location, path).unlink()
    text = run("verify", status=1)
    assert f"{path}: expected a file of " in text
    found = json_of("verify", status=1)
    assert found["ok"] is False
    assert found["problems"][0]["path"] == path
