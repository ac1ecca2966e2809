"""A table beside a plain list of dicts, through random histories; every kept version is checked.

The model knows fields by their ids, as a table does: rows are dicts from field id to value, so that
renaming is free, and a column that is dropped and added again starts empty.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fermion_table import Table

KEYS = ["a", "b", "c"]
VALUES = st.one_of(st.none(), st.integers(0, 9))
ROWS = st.lists(st.tuples(st.sampled_from(KEYS), VALUES), max_size=6)
NAMES = ["v", "w", "x", "y"]
IMAGE = pa.field("image", pa.large_binary(), metadata={"fermion:blob": "true"})
SPECS: list[Any] = [None, ["k"], ["bucket(2, k)"], ["truncate(4, v)"]]
Row = dict[int, Any]


@dataclass(frozen=True)
class Version:
    """What a snapshot should hold."""

    rows: tuple[Row, ...]
    names: dict[str, int]


@dataclass
class Model:
    """Rows by field id, and the ids of the columns by name, in their order."""

    names: dict[str, int]
    rows: list[Row] = field(default_factory=list)
    defaults: dict[int, Any] = field(default_factory=dict)

    def version(self) -> Version:
        return Version(tuple(dict(row) for row in self.rows), dict(self.names))


@dataclass(frozen=True)
class Condition:
    """A filter that the model can ask too."""

    name: str
    low: int
    high: int
    key: str | None

    @property
    def text(self) -> str:
        both = f"{self.name} >= {self.low} AND {self.name} <= {self.high}"
        return both if self.key is None else f"({both}) OR k = '{self.key}'"

    def selects(self, row: Row, names: dict[str, int]) -> bool:
        value = row.get(names[self.name])
        inside = value is not None and self.low <= value <= self.high
        return inside or (self.key is not None and row[names["k"]] == self.key)


def shown(rows: Any, names: dict[str, int]) -> list[tuple]:
    """Rows as tuples in the order of the columns, sorted."""
    return sorted((tuple(row.get(each) for each in names.values()) for row in rows), key=repr)


def image_of(key: str, value: Any) -> bytes | None:
    """A blob for a row, in the table's blob files or within its data file."""
    return None if value is None else key.encode() * (9_000 if value % 2 else value)


class TableMachine(RuleBasedStateMachine):
    """Random operations on a table and on the model."""

    has_images = False
    """Whether the table has a column of blobs."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="fermion-model-"))
        self.versions: dict[int, Version] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(spec=st.sampled_from(SPECS))
    def create(self, spec: Any) -> None:
        schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
        self.model = Model({"k": 1, "v": 2})
        if self.has_images:
            schema = schema.append(IMAGE)
            self.model.names["image"] = 3
        self.table = Table.create(
            self.folder / "table", schema, partition_by=spec, durability="fast"
        )
        self.spec = spec
        self.keep()

    def keep(self) -> None:
        self.versions[self.table.snapshot.id] = self.model.version()

    def data(self, pairs: list[tuple[str, Any]], extra: Any) -> tuple[pa.Table, list[Row]]:
        """The same rows for the table and for the model; one more column now and then."""
        names = self.model.names
        columns: dict[str, list] = {"k": [key for key, _ in pairs]}
        last = (["v", *self.numbers()])[-1]
        if "v" in names:
            columns["v"] = [value for _, value in pairs]
        if last != "v":
            columns[last] = [extra] * len(pairs)
        if self.has_images:
            columns["image"] = [image_of(key, value) for key, value in pairs]
        types = {"k": pa.string(), "image": IMAGE.type}
        arrays = [pa.array(values, types.get(name, pa.int64())) for name, values in columns.items()]
        rows = []
        for place in range(len(pairs)):
            row = {names[name]: values[place] for name, values in columns.items()}
            for each in names.values():
                row.setdefault(each, self.model.defaults.get(each))
            rows.append(row)
        return pa.Table.from_arrays(arrays, names=list(columns)), rows

    @rule(pairs=ROWS, extra=VALUES)
    def append(self, pairs: list, extra: Any) -> None:
        given, rows = self.data(pairs, extra)
        self.table.append(given)
        self.model.rows += rows
        self.keep()

    @rule(pairs=ROWS, extra=VALUES, batch_id=st.integers(0, 3))
    def append_batch(self, pairs: list, extra: Any, batch_id: int) -> None:
        given, rows = self.data(pairs, extra)
        self.table.append_batch(batch_id, given)
        self.model.rows += rows
        self.keep()

    @rule(pairs=ROWS, extra=VALUES)
    def overwrite(self, pairs: list, extra: Any) -> None:
        given, rows = self.data(pairs, extra)
        self.table.overwrite(given)
        self.model.rows = rows
        self.keep()

    @precondition(lambda self: self.spec == ["k"])
    @rule(pairs=ROWS, extra=VALUES)
    def overwrite_dynamically(self, pairs: list, extra: Any) -> None:
        given, rows = self.data(pairs, extra)
        self.table.overwrite(given, dynamic=True)
        key = self.model.names["k"]
        gone = {row[key] for row in rows}
        self.model.rows = [row for row in self.model.rows if row[key] not in gone] + rows
        self.keep()

    @rule(data=st.data(), pairs=ROWS, extra=VALUES)
    def overwrite_by_filter(self, data: st.DataObject, pairs: list, extra: Any) -> None:
        condition = self.condition(data)
        given, rows = self.data(pairs, extra)
        self.table.overwrite(given, filter=condition.text)
        self.model.rows = self.others(condition) + rows
        self.keep()

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        condition = self.condition(data)
        self.table.delete(condition.text)
        self.model.rows = self.others(condition)
        self.keep()

    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        condition = self.condition(data)
        self.table.update(condition.text, {condition.name: pc.field(condition.name) + 3})
        number = self.model.names[condition.name]
        for row in self.model.rows:
            if condition.selects(row, self.model.names) and row.get(number) is not None:
                row[number] += 3
        self.keep()

    @rule(pairs=ROWS, extra=VALUES)
    def merge(self, pairs: list, extra: Any) -> None:
        """Rows of known keys take what the source has; those of other keys come."""
        given, rows = self.data(list({pair[0]: pair for pair in pairs}.values()), extra)
        names = [name for name in given.schema.names if name != "k"]
        builder = self.table.merge(given, on=["k"]).when_not_matched_insert()
        if names:
            builder.when_matched_update({name: f"source.{name}" for name in names})
        builder.execute()
        key = self.model.names["k"]
        partners = {row[key]: row for row in rows if row[key] is not None}
        known = {row[key] for row in self.model.rows}
        for row in self.model.rows:
            if row[key] in partners:
                numbers = [self.model.names[name] for name in names]
                row.update({number: partners[row[key]][number] for number in numbers})
        self.model.rows += [row for row in rows if row[key] is None or row[key] not in known]
        self.keep()

    @rule(data=st.data(), pairs=ROWS, extra=VALUES)
    def change_all_at_once(self, data: st.DataObject, pairs: list, extra: Any) -> None:
        first, second = self.condition(data), self.condition(data)
        given, rows = self.data(pairs, extra)
        with self.table.transaction() as transaction:
            transaction.delete(first.text)
            transaction.append(given)
            transaction.delete(second.text)
        self.model.rows = self.others(first) + rows
        self.model.rows = self.others(second)
        self.keep()

    @rule(column_files_max=st.sampled_from([None, 0]))
    def compact(self, column_files_max: int | None) -> None:
        self.table.compact(column_files_max=column_files_max)
        self.keep()

    @rule(data=st.data(), name=st.sampled_from(NAMES), batch_rows=st.integers(1, 4))
    def add_column_with_values(self, data: st.DataObject, name: str, batch_rows: int) -> None:
        if name in self.model.names:
            return
        source = data.draw(st.sampled_from(self.numbers()))
        self.table.add_columns_with(
            lambda rows: pc.add(rows.column(0), 1),
            read=[source],
            schema=pa.schema([(name, pa.int64())]),
            batch_rows=batch_rows,
            threads=1,
        )
        number, read = self.table.schema.find(name).id, self.model.names[source]
        self.model.names[name] = number
        self.model.defaults[number] = None
        for row in self.model.rows:
            row[number] = None if row.get(read) is None else row[read] + 1
        self.keep()

    @rule(data=st.data(), pairs=ROWS)
    def fill_column(self, data: st.DataObject, pairs: list) -> None:
        names = [each for each in self.free() if each in self.numbers()]
        if not names:
            return
        name, values = data.draw(st.sampled_from(names)), dict(pairs)
        given = pa.table(
            {"k": pa.array(values, pa.string()), name: pa.array(values.values(), pa.int64())}
        )
        self.table.fill_columns(given, on="k", unmatched="ignore")
        for row in self.model.rows:
            if row[self.model.names["k"]] in values:
                row[self.model.names[name]] = values[row[self.model.names["k"]]]
        self.keep()

    @rule(name=st.sampled_from(NAMES), default=VALUES)
    def add_column(self, name: str, default: Any) -> None:
        if name in self.model.names:
            return
        defaults = None if default is None else {name: default}
        self.table.add_columns({name: pa.int64()}, defaults=defaults)
        number = self.table.schema.find(name).id
        assert number not in self.model.names.values()
        self.model.names[name] = number
        self.model.defaults[number] = default
        for row in self.model.rows:
            row[number] = default
        self.keep()

    @rule(name=st.sampled_from(NAMES))
    def drop_column(self, name: str) -> None:
        if name not in self.free() or len(self.numbers()) < 2:
            return
        self.table.drop_columns([name])
        number = self.model.names.pop(name)
        for row in self.model.rows:
            del row[number]
        self.keep()

    @rule(name=st.sampled_from(NAMES), other=st.sampled_from(NAMES))
    def rename_column(self, name: str, other: str) -> None:
        if name not in self.model.names or other in self.model.names:
            return
        self.table.rename_column(name, other)
        self.model.names = {
            other if each == name else each: number for each, number in self.model.names.items()
        }
        self.keep()

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        """Rows and columns of then; what the columns were called since is forgotten."""
        version = self.versions[data.draw(st.sampled_from(sorted(self.versions)))]
        self.table.restore(
            data.draw(
                st.sampled_from(
                    [number for number, each in self.versions.items() if each == version]
                )
            )
        )
        self.model.names = dict(version.names)
        self.model.rows = [dict(row) for row in version.rows]
        self.keep()

    @rule()
    def open_again(self) -> None:
        self.table = Table.open(self.folder / "table", durability="fast")

    def free(self) -> list[str]:
        """Columns that nothing is partitioned by."""
        taken = {each.source_id for each in self.table.schema.partition_by}
        return [name for name, number in self.model.names.items() if number not in taken]

    def numbers(self) -> list[str]:
        """Columns of numbers."""
        return [name for name in self.model.names if name not in ("k", "image")]

    def condition(self, data: st.DataObject) -> Condition:
        name = data.draw(st.sampled_from(self.numbers()))
        low = data.draw(st.integers(0, 9))
        high = data.draw(st.integers(0, 12))
        return Condition(name, low, high, data.draw(st.sampled_from([None, None, *KEYS])))

    def others(self, condition: Condition) -> list[Row]:
        names = self.model.names
        return [row for row in self.model.rows if not condition.selects(row, names)]

    @invariant()
    def the_latest_version_holds_the_rows(self) -> None:
        if not self.versions:
            return
        self.check(self.table.snapshot.id)
        live = self.table.snapshot.totals
        assert live.rows - live.rows_deleted == len(self.model.rows) == self.table.scan().count()

    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        """Pruned equals unpruned, whatever the filter; a count reads what a scan does."""
        condition = self.condition(data)
        names = self.model.names
        wanted = [row for row in self.model.rows if condition.selects(row, names)]
        scan = self.table.scan(filter=condition.text)
        found = scan.to_arrow().to_pydict()
        assert sorted(zip(*found.values(), strict=True), key=repr) == shown(wanted, names)
        assert scan.count() == len(wanted)
        assert self.table.scan(filter=condition.text, limit=2).to_arrow().num_rows == min(
            2, len(wanted)
        )

    def check(self, snapshot_id: int) -> None:
        version = self.versions[snapshot_id]
        found = self.table.scan(snapshot_id=snapshot_id).to_arrow()
        assert found.schema.names == list(version.names)
        rows = sorted(zip(*found.to_pydict().values(), strict=True), key=repr)
        assert rows == shown(version.rows, version.names)
        if self.has_images:
            scan = self.table.scan(columns=["image"], snapshot_id=snapshot_id, blobs="handles")
            handles = [each for each in scan.to_arrow()["image"].to_pylist() if each is not None]
            images = [row[3] for row in version.rows if row[3] is not None]
            assert sorted(each.read() for each in handles) == sorted(images)


class CheckedTableMachine(TableMachine):
    """The same, with everything checked at the end."""

    def teardown(self) -> None:
        for snapshot_id in self.versions:
            self.check(snapshot_id)
        if self.versions:
            report = self.table.verify()
            assert report.ok, report
            self.replay_changes()
        super().teardown()

    def replay_changes(self) -> None:
        """All rows that were ever added, without those removed, are the rows there are."""
        left: Counter[tuple] = Counter()
        count = len(self.model.names)
        for row in zip(*self.table.scan_changes(0).to_arrow().to_pydict().values(), strict=True):
            left[row[:count]] += 1 if row[count] == "insert" else -1
            assert left[row[:count]] >= 0
        assert sorted(left.elements(), key=repr) == shown(self.model.rows, self.model.names)


class CheckedImagesMachine(CheckedTableMachine):
    """The same of a table with a column of blobs."""

    has_images = True


CheckedTableMachine.TestCase.settings = settings(
    max_examples=12, stateful_step_count=14, deadline=None
)
CheckedImagesMachine.TestCase.settings = CheckedTableMachine.TestCase.settings
