"""Change a table's schema six ways without writing a data file again.

python examples/schema_evolution.py [directory]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from fermion_table import Table
from fermion_table.errors import SchemaMismatch

FIRST = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("place", pa.struct({"city": pa.string()})),
        pa.field("note", pa.string()),
    ]
)
OLD_ROWS = [
    {"id": 1, "place": {"city": "Oslo"}, "note": "first"},
    {"id": 2, "place": None, "note": None},
]
EXPECTED = [
    {"key": 1, "place": {"town": "Oslo", "zip": None}, "stars": 3},
    {"key": 2, "place": None, "stars": 3},
    {"key": 3_000_000_000, "place": {"town": "Rome", "zip": "00118"}, "stars": 5},
]


def main() -> int:
    """Change the schema and read old and new rows under it; return the exit status."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="fermion-"))
    table = Table.create(directory / "places", FIRST)
    table.append(pa.Table.from_pylist(OLD_ROWS, schema=FIRST))

    table.add_columns({"stars": pa.int8()}, defaults={"stars": 3})  # old rows read as 3
    table.rename_column("id", "key")
    table.alter_column("key", type=pa.int64())
    table.drop_columns(["note"])
    with table.update_schema() as update:  # several changes, one snapshot
        update.rename_column(("place", "city"), "town")
        update.add_column(("place", "zip"), pa.string())
    print(table.schema)

    new = {"key": 3_000_000_000, "place": {"town": "Rome", "zip": "00118"}, "stars": 5}
    table.append(pa.Table.from_pylist([new], schema=table.schema.to_arrow()))
    try:
        table.append(pa.table({"key": ["not a number"]}))
    except SchemaMismatch as error:
        print(f"refused: {error}")

    found = table.scan().to_arrow().sort_by("key").to_pylist()
    files = table.snapshot.totals.files
    print(f"{len(found)} rows of {files} files, under schema {table.snapshot.schema.id}")
    as_written = table.scan(snapshot_id=1).to_arrow().to_pylist()
    right = found == EXPECTED and as_written == OLD_ROWS and files == 2
    print("right" if right else f"WRONG: {found}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
