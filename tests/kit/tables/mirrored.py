"""Mirrors beside their source: rows in one spelling, whoever read them, and mirrors that crash."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from fermion_table import Table
from fermion_table.mirrors.publish import Publisher, write_here
from fermion_table.storage.store import AtomicStore
from tests.kit.stores import CrashingStore

ShownRows = list[str]


def shown(rows: pa.Table) -> ShownRows:
    """Rows as text, in an order of their own: what readers spell in their own ways is made one."""
    columns = {
        name: [_plain(value, rows.schema.field(name).type) for value in rows[name].to_pylist()]
        for name in sorted(rows.column_names)
    }
    return sorted(repr(row) for row in zip(*columns.values(), strict=True))


def _plain(value: Any, dtype: pa.DataType) -> Any:
    if value is None:
        return None
    if pat.is_map(dtype):
        pairs = value.items() if isinstance(value, dict) else value
        return sorted(
            (_plain(key, dtype.key_type), _plain(item, dtype.item_type)) for key, item in pairs
        )
    if pat.is_struct(dtype):
        return [(each.name, _plain(value[each.name], each.type)) for each in dtype]
    if isinstance(value, list):
        inside = dtype.value_type
        if pat.is_struct(inside) and [each.name for each in inside] == ["key", "value"]:
            return sorted(  # a map, as Polars has it
                (_plain(each["key"], inside[0].type), _plain(each["value"], inside[1].type))
                for each in value
            )
        return [_plain(each, inside) for each in value]
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if pat.is_timestamp(dtype) and dtype.tz:
        return value.timestamp()
    return value


def source_rows(table: Table, snapshot_id: int) -> ShownRows:
    """What a snapshot of the source shows."""
    return shown(table.scan(snapshot_id=snapshot_id).to_arrow())


def publisher(
    table: Table,
    make: Callable[[AtomicStore], Any],
    store: AtomicStore,
    *,
    history: bool = True,
) -> Publisher:
    """What brings a mirror in a store up to a table."""
    return Publisher(
        "mirror", table.store, table.branch, make(store), history=history, runner=write_here
    )


class DyingStore(CrashingStore):
    """A store whose process dies at one of its calls, or as it begins to write a file."""

    def locate(self, path: str, *, for_writing: bool = False) -> str:
        """Where an object is; counts if it is to be written."""
        if for_writing:
            self.call("exists", path)
        return super().locate(path, for_writing=for_writing)


def parquet_files(directory: Path) -> set[str]:
    """The names of the copies that lie in a mirror, shown or not."""
    return {each.name for each in directory.rglob("*.parquet") if "_delta_log" not in each.parts}


def delta_versions(location: Path) -> Iterable[tuple[int, int, pa.Table]]:
    """The version, the source's snapshot and the rows of all of a Delta table, by its library."""
    import deltalake

    newest = deltalake.DeltaTable(location)
    for commit in newest.history():
        version = deltalake.DeltaTable(location, version=commit["version"])
        rows = version.to_pyarrow_table()
        yield commit["version"], int(commit["fermion.snapshot-id"]), pa.table(rows)
