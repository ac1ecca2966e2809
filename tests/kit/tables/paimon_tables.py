"""Tables that pypaimon writes and reads, where it is installed: `make test-pypaimon`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pypaimon = pytest.importorskip(
    "pypaimon", reason="pypaimon needs an older pyarrow: make test-pypaimon has both"
)

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tinyint": (pa.int8(), [-128, 127]),
    "smallint": (pa.int16(), [-(2**15), 2**15 - 1]),
    "int": (pa.int32(), [-(2**31), 2**31 - 1]),
    "bigint": (pa.int64(), [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), [0.5, float("inf")]),
    "double": (pa.float64(), [1e300, -0.0]),
    "boolean": (pa.bool_(), [True, False]),
    "string": (pa.string(), ["", "žluť 🐎"]),
    "bytes": (pa.binary(), [b"", b"\x00\xff"]),
    "decimal": (pa.decimal128(38, 10), [Decimal("-1.5"), Decimal("9" * 28)]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "time": (pa.time32("ms"), [dt.time(0), dt.time(23, 59, 59, 999000)]),
    "timestamp_0": (pa.timestamp("s"), [dt.datetime(1969, 1, 1), dt.datetime(2999, 1, 1)]),
    "timestamp_3": (pa.timestamp("ms"), [dt.datetime(1969, 1, 1, 0, 0, 0, 1000), None]),
    "timestamp_6": (pa.timestamp("us"), [dt.datetime(1969, 1, 1, 0, 0, 0, 1), None]),
    "timestamp_9": (pa.timestamp("ns"), [1, 2**62]),
    "timestamp_ltz": (pa.timestamp("us", "UTC"), [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None]),
    "array": (pa.list_(pa.int32()), [[1, None], []]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], []]),
    "row": (
        pa.struct([("a", pa.int8()), ("b", pa.list_(pa.string()))]),
        [{"a": 1, "b": ["x"]}, None],
    ),
}


def rows_of_every_type() -> pa.Table:
    """Two rows with values, one of nulls, and a number that tells them apart."""
    columns = {name: pa.array([*values, None], dtype) for name, (dtype, values) in TYPES.items()}
    return pa.table({"number": pa.array([1, 2, 3], pa.int32())} | columns)


def catalog_at(path: Path) -> Any:
    """A catalog of Paimon with the database `db`."""
    catalog = pypaimon.CatalogFactory.create({"warehouse": str(path)})
    catalog.create_database("db", True)
    return catalog


def create(
    catalog: Any,
    name: str,
    schema: pa.Schema,
    *,
    key: Sequence[str] | None = None,
    partition_by: Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
) -> Any:
    """A new table of Paimon."""
    fields = [f.with_nullable(f.nullable and f.name not in (key or ())) for f in schema]
    made = pypaimon.Schema.from_pyarrow_schema(
        pa.schema(fields),
        primary_keys=key,
        partition_keys=partition_by,
        options=dict(options or {}),
    )
    catalog.create_table(f"db.{name}", made, False)
    return catalog.get_table(f"db.{name}")


def write(
    table: Any, rows: pa.Table | Sequence[dict[str, Any]], overwrite: dict[str, Any] | None = None
) -> Any:
    """One commit; `overwrite`: of a partition, or of all with an empty one. Returns the table."""
    if not isinstance(rows, pa.Table):
        rows = pa.Table.from_pylist(list(rows), schema=arrow_of(table))
    builder = table.new_batch_write_builder()
    if overwrite is not None:
        builder = builder.overwrite(overwrite)
    writer, commit = builder.new_write(), builder.new_commit()
    try:
        writer.write_arrow(rows)
        commit.commit(writer.prepare_commit())
    finally:
        writer.close()
        commit.close()
    return table


def arrow_of(table: Any) -> pa.Schema:
    """The columns of a table of Paimon."""
    from pypaimon.schema.data_types import PyarrowFieldParser

    schema: pa.Schema = PyarrowFieldParser.from_paimon_schema(table.fields)
    return schema


def read(
    table: Any, *, columns: Sequence[str] | None = None, predicate: Any = None, **options: str
) -> pa.Table:
    """What pypaimon reads, with options of Paimon whose names have `_` for `-` and `__` for `.`."""
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    builder = table.copy(named).new_read_builder()
    if columns is not None:
        builder = builder.with_projection(list(columns))
    if predicate is not None:
        builder = builder.with_filter(predicate)
    return builder.new_read().to_arrow(builder.new_scan().plan().splits())


def rows_of(table: Any, **options: str) -> list[dict[str, Any]]:
    """The rows of a table of Paimon, in an order of their own."""
    return ordered(read(table, **options).to_pylist())


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in an order that does not depend on how they were read."""
    return sorted(rows, key=repr)
