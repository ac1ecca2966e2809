"""`fermion table schema`: columns and their history."""

from __future__ import annotations

from typing import Any

import pytest


def test_schema_prints_columns_and_their_history(
    run: Any, json_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("schema").splitlines() == [
        "1: id: int64",
        "2: kind: string",
        "3: tags: list<item: string>",
        "5: price: double",
    ]
    assert "price" not in run("schema", "--version", 4)
    assert run("schema", "--history").splitlines()[-1] == "    + price: double"
    found = json_of("schema")
    assert found["fields"][3] == {
        "id": 4,
        "path": ["tags", "element"],
        "type": "string",
        "nullable": True,
        "comment": None,
    }
    assert json_of("schema", "--history")[1]["changes"] == ["+ price: double"]
    monkeypatch.setattr("fermion_table.cli.schema.COLUMNS_SHOWN", 1)
    assert run("schema").splitlines() == [
        "1: id: int64",
        "... and 3 more columns (--all shows them)",
    ]
