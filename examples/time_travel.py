"""Read a table as it was: by snapshot id, tag, time and distance; undo a mistake.

python examples/time_travel.py [directory]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from fermion_table import Table

SCHEMA = pa.schema([pa.field("item", pa.string(), nullable=False), ("price", pa.float64())])


def rows(*items: tuple[str, float]) -> pa.Table:
    """Return items and prices as a table."""
    return pa.table(
        {"item": [name for name, _ in items], "price": [price for _, price in items]},
        schema=SCHEMA,
    )


def main() -> int:
    """Make a table of prices and look back at it; return the exit status."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="fermion-"))
    table = Table.create(directory / "prices", SCHEMA)

    monday = table.append(rows(("tea", 3.0), ("coffee", 4.0)), message="Monday's prices")
    table.tags.create("week-1", version=monday.id)
    table.append(rows(("cocoa", 5.0)), message="cocoa is back")
    mistake = table.append(rows(("tea", 300.0)), message="a price without its point")
    print(f"after the mistake: {table.scan().count()} rows instead of 3")

    by_id = table.scan(snapshot_id=monday.id).count()
    by_tag = table.scan(tag="week-1").count()
    before = Table.open(directory / "prices", version="main~1").scan().count()
    print(f"snapshot {monday.id}: {by_id} rows; tag week-1: {by_tag}; one before now: {before}")

    restored = table.restore(mistake.id - 1)
    print(f"snapshot {restored.id} restores snapshot {mistake.id - 1}: {table.scan().count()} rows")
    for snapshot in table.snapshots():
        print(f"  {snapshot.id} {snapshot.kind:8} {snapshot.message or ''}")

    right = (by_id, by_tag, before, table.scan().count()) == (2, 2, 3, 3)
    print("right" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
