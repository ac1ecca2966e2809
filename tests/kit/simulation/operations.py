"""The operations that simulations carry out on an append table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fermion_table.metadata.snapshot import Snapshot
from fermion_table.table.table import Table
from tests.kit.simulation.history_check import Attempt
from tests.kit.simulation.history_rows import COMPUTED, image_of

SCHEMA = pa.schema({"k": pa.string(), "v": pa.int64()})
WITH_IMAGES = SCHEMA.append(pa.field("image", pa.binary(), metadata={"fermion:blob": "true"}))
"""The same, and a blob that no operation changes."""


def carry_out(table: Table, attempt: Attempt, words: dict[str, Any]) -> Snapshot:
    """Carry out an operation; the snapshot that the table is at then.

    Parameters
    ----------
    table
        At the snapshot where the operation begins.
    attempt
        Of the operation: see `history_rows.rows_after`. Columns that it adds are named after it.
    words
        What the commit says of itself.
    """
    operation, message = attempt.operation, attempt.message
    key = operation.get("key")
    match operation["kind"]:
        case "append":
            return table.append(data_of(operation["rows"], table), **words)
        case "overwrite":
            data = data_of(operation["rows"], table)
            return table.overwrite(data, filter=f"k = '{key}'", **words)
        case "delete":
            return table.delete(f"k = '{key}'", **words)
        case "update":
            return table.update(f"k = '{key}'", {"v": operation["value"]}, **words)
        case "fill":
            values = {"k": [key], "v": [operation["value"]]}
            return table.fill_columns(values, on="k", unmatched="ignore", message=message)
        case "compute":
            return _add_doubled(table, attempt)
        case "fast-forward":
            return table.branches.fast_forward(operation["to"], message=message)
    with table.update_schema(message=message) as update:
        update.add_column(f"c{attempt.key}", pa.int64())
    return table.snapshot


def _add_doubled(table: Table, attempt: Attempt) -> Snapshot:
    """Add a column with twice the values of ``v``."""
    name = COMPUTED + attempt.key

    def double(rows: pa.RecordBatch) -> dict[str, pa.Array]:
        attempt.seen.update(rows["k"].to_pylist())
        return {name: pc.multiply(rows["v"], 2)}

    return table.add_columns_with(
        double,
        read=["k", "v"],
        schema=pa.schema([(name, pa.int64())]),
        threads=1,
        message=attempt.message,
    )


def data_of(rows: list[list[Any]], table: Table | None = None) -> pa.Table:
    """Pairs of key and value as data to write; with images, if a table has them."""
    keys, values = zip(*rows, strict=True)
    made = pa.table({"k": list(keys), "v": list(values)}, schema=SCHEMA)
    if table is None or not table.schema.blob_columns:
        return made
    return made.append_column("image", [pa.array(map(image_of, keys), pa.binary())])
