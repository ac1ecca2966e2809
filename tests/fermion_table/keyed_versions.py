"""What a version of a primary-key table should hold, and how scans are compared with it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from fermion_table.schema.key_options import KeyOptions
from tests.fermion_table.keyed_model import merged
from tests.fermion_table.keyed_strategies import (
    Condition,
)
from tests.fermion_table.merge_rows import Row

Columns = dict[str, tuple[pa.DataType, list[Any]]]


@dataclass
class Version:
    """All rows up to a snapshot, and how they are folded."""

    key: list[str]
    columns: Columns
    options: KeyOptions
    rows: list[Row] = field(default_factory=list)
    defaults: dict[str, Any] = field(default_factory=dict)

    def copy(self) -> Version:
        rows = [dict(row) for row in self.rows]
        return replace(
            self, key=[*self.key], columns={**self.columns}, rows=rows, defaults={**self.defaults}
        )

    def visible(self) -> list[Row]:
        """Return what a scan returns."""
        return merged(self.rows, list(self.columns), self.key, self.options)

    def write(self, rows: list[Row]) -> None:
        """Add rows; columns that they lack have their defaults."""
        for row in rows:
            full = {name: row.get(name, self.defaults.get(name)) for name in self.columns}
            self.rows.append(full | {"_kind": row.get("_kind", "+I")})

    def take_out(self, condition: Condition) -> None:
        """Delete the rows that a filter selects."""
        gone = [row for row in self.visible() if condition.selects(row)]
        self.write([{**row, "_kind": "-D"} for row in gone])

    def values(self) -> dict[str, list[Any]]:
        return {name: values for name, (_, values) in self.columns.items()}


def sequences(options: KeyOptions) -> list[str]:
    """Return the columns that order the rows of a key."""
    in_groups = [name for group in options.sequence_groups for name in group.sequence]
    return [*options.sequence_fields, *in_groups]


def shown(rows: list[Row], names: list[str]) -> list[str]:
    """Return rows in a form that can be compared."""
    return sorted(repr([row[name] for name in names]) for row in rows)


def as_table(rows: list[Row], columns: Columns, *, with_kinds: bool = False) -> pa.Table:
    """Return rows as a table of some columns."""
    arrays = {
        name: pa.array([row.get(name) for row in rows], dtype)
        for name, (dtype, _) in columns.items()
    }
    if with_kinds:
        arrays["_change"] = pa.array([row["_kind"] for row in rows], pa.string())
    return pa.table(arrays)


def found_by_key(wanted: list[Row], keys: list[Row]) -> list[Row]:
    """Return the rows of keys, in the order of the keys."""
    names = list(keys[0]) if keys else []
    by_key = {tuple(row[name] for name in names): row for row in wanted}
    found = [by_key.get(tuple(key.values())) for key in keys]
    return [row for row in found if row is not None]


def check(scan: Any, version: Version) -> None:
    """A scan returns the rows of a version, and at most one row a key."""
    names = list(version.columns)
    found = scan.to_arrow()
    assert found.schema.names == names
    rows = found.to_pylist()
    assert shown(rows, names) == shown(version.visible(), names)
    keys = shown(rows, version.key)
    assert len(set(keys)) == len(keys)
    assert scan.count() == len(rows)


def in_order(rows: list[Row], names: list[str]) -> list[str]:
    """Return rows in a form that can be compared, in their order."""
    return [repr([row[name] for name in names]) for row in rows]


def check_extremes(scan: Any, name: str, wanted: list[Row]) -> None:
    values = [row[name] for row in wanted if row[name] is not None]
    least, most = scan.min_max(name)
    assert (least.as_py(), most.as_py()) == ((min(values), max(values)) if values else (None, None))
    known = scan.known_min_max(name)
    assert known is None or known == (least, most)
