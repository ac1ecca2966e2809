"""A table of features that gets more columns every week, without its files being rewritten.

python examples/feature_table.py [directory]
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from fermion_table import ColumnFunctionError, Table

FIRST_FEATURES, NEW_FEATURES, WEEKS = 40, 5, 3
FILES, ROWS_PER_FILE = 4, 500


def rows(number: int, schema: pa.Schema) -> pa.Table:
    """One file of made-up features."""
    dice = random.Random(number)
    ids = [number * ROWS_PER_FILE + place for place in range(ROWS_PER_FILE)]
    features = [[dice.gauss(0, 1) for _ in ids] for _ in range(FIRST_FEATURES)]
    return pa.table([ids, *features], schema=schema)


def add_features(table: Table, week: int) -> None:
    """Compute the new features of a week from two that are there."""
    names = [f"week{week}_{number}" for number in range(NEW_FEATURES)]

    def compute(batch: pa.RecordBatch) -> dict[str, pa.Array]:
        total = pc.add(batch["f0"], batch[f"f{week}"])
        return {name: pc.multiply(total, float(place)) for place, name in enumerate(names)}

    new = pa.schema([(name, pa.float64()) for name in names])
    table.add_columns_with(compute, read=["f0", f"f{week}"], schema=new, message=f"week {week}")


def main() -> int:
    """Make the table, add features week by week, and read across all of them."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="fermion-"))
    first = [(f"f{number}", pa.float64()) for number in range(FIRST_FEATURES)]
    schema = pa.schema([("id", pa.int64()), *first])
    table = Table.create(directory / "features", schema)
    for number in range(FILES):
        table.append(rows(number, schema))
    start = table.snapshot
    for week in range(1, WEEKS + 1):
        add_features(table, week)
        added = table.snapshot.deltas
        print(f"week {week}: {added.bytes_added:,} bytes written, {added.files_added} data files")

    # Scores that another system has computed, of some rows, by key.
    table.fill_columns({"id": [3, 1_003], "score": [0.25, 0.75]}, on="id", message="scores")
    scan = table.scan(columns=["id", "f3", "week1_1", "week3_4", "score"], filter="score > 0.5")
    print(scan.to_arrow().to_pylist())
    print(f"files opened: {scan.io_stats['files']} of {FILES * (1 + WEEKS) + 2}")

    def careless(batch: pa.RecordBatch) -> dict[str, pa.Array]:
        if pc.max(batch["id"]).as_py() >= 3 * ROWS_PER_FILE:
            raise ValueError("no model for these rows")
        return {"rank": batch["f0"]}

    rank = pa.schema([("rank", pa.float64())])
    try:
        table.add_columns_with(careless, read=["id", "f0"], schema=rank)
    except ColumnFunctionError as error:
        print(f"nothing was published: {error}")
        done = error.finished
        table.add_columns_with(
            lambda batch: batch["f0"], read=["id", "f0"], schema=rank, resume=done
        )

    print(table.history())
    columns = [len(each.fields) for each in table.schemas()]
    before = table.scan(snapshot_id=start.id).schema.names
    table.compact(column_files_max=0)  # everything into data files again, when it suits
    complete = table.scan(filter="rank IS NOT NULL").count() == FILES * ROWS_PER_FILE
    return 0 if complete and len(before) < max(columns) and table.verify(data=True).ok else 1


if __name__ == "__main__":
    sys.exit(main())
