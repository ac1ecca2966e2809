"""Rows and clauses for merges, on both kinds of tables, by SQL, by frames and by `Table.merge`."""

from __future__ import annotations

import pyarrow as pa

from fermion_table import Table

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("part", pa.string()),
        ("n", pa.int32()),
        ("text", pa.string()),
    ]
)
KEYED = {"primary_key": ["id"], "properties": {"bucket": "3"}}
PLAIN = {"partition_by": ["part"], "sort_by": ["id"]}


def target_rows() -> list[dict]:
    return [
        {"id": i, "part": f"p{i % 2}", "n": None if i % 4 == 0 else i, "text": f"t{i}"}
        for i in range(24)
    ]


def source_rows() -> list[dict]:
    return [
        {"key": i, "part": f"p{i % 2}", "n": None if i % 5 == 0 else 100 + i, "text": None}
        for i in range(12, 32)
    ]


def make_target(path, **options) -> Table:
    """In two files; of the plain one some rows are deleted, and a column is younger than others."""
    table = Table.create(path, SCHEMA, mode="overwrite", **options)
    rows = target_rows()
    table.append(pa.Table.from_pylist(rows[:10], schema=SCHEMA))
    table.append(pa.Table.from_pylist(rows[10:], schema=SCHEMA))
    table.delete("id IN (5, 20)")
    return table


def content(table: Table) -> list[dict]:
    table.refresh()
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
