"""`fermion table index`: indexes are made, listed, rebuilt and dropped."""

from __future__ import annotations

from typing import Any

from fermion_table import Table


def test_indexes_are_made_listed_rebuilt_and_dropped(run: Any, json_of: Any, table: Table) -> None:
    table.set_properties({"index.rows_min": "1"})
    assert run("index") == "no indexes\n"
    assert run("index", "id", "--kind", "bitmap").splitlines()[1].split()[:2] == ["id", "bitmap"]
    (made,) = json_of("index", "price")
    assert (made["kind"], made["files"], made["files_indexed"]) == ("btree", 5, 5)
    assert [row["name"] for row in json_of("index")] == ["id", "price"]
    assert len(json_of("index", "--rebuild", "--full")) == 2
    assert run("index", "id", "--drop") == "dropped the index of id\n"
    assert [index.name for index in Table.open(table.location).indexes] == ["price"]
    assert "no index of 'id'" in run("index", "id", "--drop", status=2)
    for wrong in (["--drop"], ["id", "--kind", "btree", "--rebuild"], ["id", "--kind", "hash"]):
        assert "expected" in run("index", *wrong, status=2)
