"""What a version of a primary-key table should hold, and how scans are compared with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pyarrow as pa

from fermion_table import Table
from fermion_table.change_feed.changes import FileScan
from fermion_table.merging.fold import keeps_retractions
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.planning.tree_plan import trees_of
from fermion_table.scanning.scan import Scan
from fermion_table.schema.key_options import KeyOptions
from tests.kit.tables.keyed_model import merged
from tests.kit.tables.keyed_strategies import (
    Condition,
)
from tests.kit.tables.merge_rows import Row

Columns = dict[str, tuple[pa.DataType, list[Any]]]


@dataclass
class Version:
    """All rows up to a snapshot, and how they are folded.

    Attributes
    ----------
    settled
        How many of the rows were compacted, so that they are read without merging; None: not known.
    """

    key: list[str]
    columns: Columns
    options: KeyOptions
    rows: list[Row] = field(default_factory=list)
    defaults: dict[str, Any] = field(default_factory=dict)
    settled: int | None = 0

    def copy(self) -> Version:
        rows = [dict(row) for row in self.rows]
        return replace(
            self, key=[*self.key], columns={**self.columns}, rows=rows, defaults={**self.defaults}
        )

    def visible(self) -> list[Row]:
        """Return what a scan returns."""
        return self.folded(self.rows if self.options.reads_level0 else self.rows[: self.settled])

    def folded(self, rows: list[Row]) -> list[Row]:
        """Return the row of each key."""
        return merged(rows, list(self.columns), self.key, self.options)

    def compacted(self, *, is_full: bool) -> None:
        """Note a compaction; with deletion vectors each takes all rows."""
        is_known = is_full or self.options.deletion_vectors
        self.settled = len(self.rows) if is_known else None

    def keep(self, kept: Callable[[Row], bool]) -> None:
        """Forget some rows."""
        if self.settled is not None:
            self.settled = sum(map(kept, self.rows[: self.settled]))
        self.rows = [row for row in self.rows if kept(row)]

    def write(self, rows: list[Row]) -> None:
        """Add rows; columns that they lack have their defaults."""
        for row in rows:
            full = {name: row.get(name, self.defaults.get(name)) for name in self.columns}
            self.rows.append(full | {"_kind": row.get("_kind", "+I")})

    def take_out(self, condition: Condition) -> None:
        """Delete the rows that a filter selects."""
        gone = [row for row in self.folded(self.rows) if condition.selects(row)]
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


def check_compacted(table: Table, number: int, version: Version) -> None:
    """What was compacted is read without merging; with deletion vectors no key is there twice."""
    names = list(version.columns)
    if version.settled is not None:
        scan = table.scan(snapshot_id=number, mode="read_optimized")
        rows = version.folded(version.rows[: version.settled])
        assert shown(scan.to_arrow().to_pylist(), names) == shown(rows, names)
        assert scan.count() == len(rows)
    if version.options.deletion_vectors:
        scan = table.scan(snapshot_id=number, columns=version.key)
        keeps = keeps_retractions(scan.key) and version.options.merge_engine != "deduplicate"
        for files in trees_of(live_entries(table.store, scan.snapshot), scan.key).values():
            keys = [stored_keys(scan, file.entry) for file in files if file.level > 0]
            listed = [key for found in keys for key in (set(found) if keeps else found)]
            assert len(set(listed)) == len(listed)


def stored_keys(scan: Scan, entry: Entry) -> list[str]:
    """Return the keys of the rows of a file that are not deleted."""
    asked = {each.name: getattr(scan, each.name) for each in fields(scan)}
    found = FileScan(**asked, files=(entry,)).to_arrow()
    return shown(found.to_pylist(), found.schema.names)


def check_changes(table: Table, versions: dict[int, Version], first: int, last: int) -> None:
    """The changes from one version to another, applied to it, give the other one.

    A version with another schema is read as the latest one, and compared with that.
    """
    scans = [table.scan(snapshot_id=number) for number in (first, last)]
    if scans[0].snapshot.schema != scans[1].snapshot.schema:
        last = table.snapshot.id
        scans = [table.scan(snapshot_id=first, schema="current")]
    changes = table.scan_changes(first, last).to_arrow().to_pylist()
    version = versions[last]
    found = replayed(scans[0].to_arrow().to_pylist(), changes, version.key)
    names = list(version.columns)
    assert shown(found, names) == shown(version.visible(), names)


def replayed(rows: list[Row], changes: list[Row], key: list[str]) -> list[Row]:
    """Return rows after changes; each of these finds the row that it says."""
    by_key = {repr([row[name] for name in key]): row for row in rows}
    labels = [name for name in (changes[0] if changes else ()) if name.startswith("_c")]
    for change in changes:
        kind, *_ = (change.pop(name) for name in labels)
        place = repr([change[name] for name in key])
        before = by_key.pop(place, None)
        if kind in ("delete", "update_preimage"):
            assert repr(before) == repr(change)
        else:
            assert before is None
            by_key[place] = change
    return list(by_key.values())


def in_order(rows: list[Row], names: list[str]) -> list[str]:
    """Return rows in a form that can be compared, in their order."""
    return [repr([row[name] for name in names]) for row in rows]


def check_extremes(scan: Any, name: str, wanted: list[Row]) -> None:
    values = [row[name] for row in wanted if row[name] is not None]
    least, most = scan.min_max(name)
    assert (least.as_py(), most.as_py()) == ((min(values), max(values)) if values else (None, None))
    known = scan.known_min_max(name)
    assert known is None or known == (least, most)
