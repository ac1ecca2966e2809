"""A primary-key table beside a plain list of rows, through random histories.

The model keeps all rows that were ever written, in order, and folds them one by one. Every kept
version is compared with it, whatever was compacted meanwhile.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fermion.blobs import Handle
from fermion.errors import InvalidArgumentError
from fermion_table import Table, lit
from fermion_table.keys.key_changes import key_options
from tests.kit.tables.crash_operations import AT_ONCE
from tests.kit.tables.keyed_strategies import (
    ADDED,
    ADDED_FUNCTIONS,
    ADDITIONS,
    BY_SEQUENCE,
    ENGINES,
    KEY_TYPES,
    KEYS,
    VALUES,
    Condition,
    Engine,
    allowed,
    conditions,
    drawn_settings,
)
from tests.kit.tables.keyed_versions import (
    Columns,
    Version,
    as_table,
    check,
    check_changes,
    check_compacted,
    check_extremes,
    found_by_key,
    in_order,
    sequences,
    shown,
)
from tests.kit.tables.merge_rows import KINDS, Row

IMAGES = {"i": (pa.binary(), [None, b"", b"i" * 5_000, b"j" * 6_000])}
NAMES = ["x", "y", "z"]
SIZES = ["1kb", "4kb", "256mb"]
"""Of files and of the write buffer: flushes of several files, and several flushes a commit."""


class KeyedMachine(RuleBasedStateMachine):
    """Random operations on a primary-key table and on the model."""

    blobs: ClassVar[Columns] = {}
    """Columns of blobs."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="fermion-keyed-"))
        self.versions: dict[int, Version] = {}
        self.others: list[tuple[Table, Version]] = []
        self.tags: dict[str, Version] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(
        engine=st.sampled_from(sorted(ENGINES)),
        key=st.sampled_from(KEYS),
        is_partitioned=st.booleans(),
        bucket=st.integers(1, 4),
        trigger=st.integers(1, 4),
        file_size=st.sampled_from(SIZES),
        buffer_size=st.sampled_from(SIZES),
        settings=drawn_settings(),
    )
    def create(
        self, engine, key, is_partitioned, bucket, trigger, file_size, buffer_size, settings
    ) -> None:
        self.engine: Engine = ENGINES[engine]
        self.fixed = {*self.engine.fixed}
        functions = {}
        if self.engine.properties.get("merge_engine") == "aggregation":
            functions = {f"fields.{name}.aggregate_function": "last_value" for name in self.blobs}
            self.fixed |= self.blobs.keys()
        self.partition = "p" if is_partitioned and "p" in key else None
        columns: Columns = {name: KEY_TYPES[kind] for name, kind in key.items()}
        columns |= VALUES | self.blobs
        self.table = Table.create(
            self.folder / "table",
            pa.schema(
                pa.field(
                    name, dtype, metadata={"fermion:blob": "true"} if name in self.blobs else {}
                )
                for name, (dtype, _) in columns.items()
            ),
            primary_key=list(key),
            partition_by=self.partition and [self.partition],
            properties={
                "bucket": str(bucket),
                "num_sorted_run.compaction_trigger": str(trigger),
                "target_file_size": file_size,
                "write_buffer_size": buffer_size,
                **allowed({**functions, **self.engine.properties, **settings}),
            },
            durability="fast",
        )
        self.model = Version(list(key), columns, key_options(self.table.schema))
        self.keep()

    def keep(self) -> None:
        """The model is what every snapshot since the last step holds."""
        if self.model.options.compaction.is_inline:
            self.model.settled = None
        for snapshot in reversed(self.table.snapshots()):
            if snapshot.id in self.versions:
                break
            self.versions[snapshot.id] = self.model.copy()

    def rows(self, data: st.DataObject, kinds: Any = ("+I",), max_size: int = 6) -> list[Row]:
        """Draw rows of the current columns, some of which are left out."""
        values = self.model.values()
        others = [name for name in values if name not in self.model.key]
        names = [*self.model.key, *data.draw(st.lists(st.sampled_from(others), unique=True))]
        row = {name: st.sampled_from(values[name]) for name in names}
        row["_kind"] = st.sampled_from(kinds)
        return data.draw(st.lists(st.fixed_dictionaries(row), max_size=max_size))

    def given(self, rows: list[Row], *, with_kinds: bool = False) -> pa.Table:
        """Return drawn rows as data to write."""
        names = rows[0] if rows else self.model.columns
        columns = {name: each for name, each in self.model.columns.items() if name in names}
        return as_table(rows, columns, with_kinds=with_kinds)

    def condition(self, data: st.DataObject) -> Condition:
        return data.draw(conditions(self.compared(self.model)))

    def compared(self, version: Version) -> dict[str, list[Any]]:
        """The values of the columns that can be compared: all but blobs."""
        values = [values for _, values in self.blobs.values()]
        return {name: each for name, each in version.values().items() if each not in values}

    # Rows.

    @rule(data=st.data())
    def upsert(self, data: st.DataObject) -> None:
        rows = self.rows(data)
        data.draw(st.sampled_from([self.table.upsert, self.table.append]))(self.given(rows))
        self.model.write(rows)
        self.keep()

    @rule(data=st.data())
    def upsert_many(self, data: st.DataObject) -> None:
        """So many rows that flushes have several files."""
        rows = self.rows(data, max_size=60)
        self.table.upsert(self.given(rows))
        self.model.write(rows)
        self.keep()

    @rule(data=st.data())
    def upsert_changes(self, data: st.DataObject) -> None:
        rows = self.rows(data, self.kinds)
        self.table.upsert(self.given(rows, with_kinds=True), change_type="_change")
        self.model.write(rows)
        self.keep()

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of the changes that the table takes."""
        options = self.model.options
        if not any(function.refuses_retractions for function in options.functions.values()):
            return self.engine.kinds
        return (*ADDITIONS, "-D") if options.remove_record_on_delete else ADDITIONS

    @precondition(lambda self: set(self.kinds) != set(KINDS))
    @rule(data=st.data())
    def upsert_what_is_refused(self, data: st.DataObject) -> None:
        rows = self.rows(data, [kind for kind in KINDS if kind not in self.kinds])
        if rows:
            given = self.given(rows, with_kinds=True)
            self.refused(lambda: self.table.upsert(given, change_type="_change"))

    def refused(self, action: Callable[[], Any]) -> None:
        """An error, and nothing changes."""
        before = self.table.snapshot.id
        with pytest.raises(InvalidArgumentError):
            action()
        assert self.table.refresh().id == before

    @rule(data=st.data())
    def commit_several_writers(self, data: st.DataObject) -> None:
        """Rows of later messages are newer, whichever writer was made first."""
        parts = [self.rows(data) for _ in range(3)]
        messages = []
        for rows in reversed(parts):
            with self.table.writer() as writer:
                writer.write(self.given(rows))
                messages.append(writer.prepare_commit())
        self.table.commit([each for several in reversed(messages) for each in several])
        for rows in parts:
            self.model.write(rows)
        self.keep()

    @rule(data=st.data())
    def delete_keys(self, data: st.DataObject) -> None:
        """A deletion has its sequences too, where rows are in the order of some."""
        names = [*self.model.key, *sequences(self.model.options)]
        values = self.model.values()
        known = {name: [each for each in values[name] if each is not None] for name in names}
        row = {name: st.sampled_from(known[name]) for name in names} | {"_kind": st.just("-D")}
        rows = data.draw(st.lists(st.fixed_dictionaries(row), max_size=4))
        keys = as_table(rows, {name: self.model.columns[name] for name in names})
        if self.engine.takes_keys:
            self.table.delete_keys(keys)
            self.model.write([dict.fromkeys(self.model.columns) | row for row in rows])
            self.keep()
        elif rows:
            self.refused(lambda: self.table.delete_keys(keys))

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        condition = self.condition(data)
        if self.engine.removes:
            self.table.delete(condition.expression)
            self.model.take_out(condition)
            self.keep()
        else:
            self.refused(lambda: self.table.delete(condition.expression))

    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        """Where rows do not replace each other whole, the old row is deleted first."""
        if not self.free():
            return
        condition, name = self.condition(data), data.draw(st.sampled_from(self.free()))
        value = data.draw(st.sampled_from(self.model.columns[name][1]))
        if not self.engine.updates:
            self.refused(lambda: self.table.update(condition.expression, {name: lit(value)}))
            return
        self.table.update(condition.expression, {name: lit(value)})
        for row in [row for row in self.model.folded(self.model.rows) if condition.selects(row)]:
            if self.model.options.merge_engine != "deduplicate":
                self.model.write([{**row, "_kind": "-D"}])
            self.model.write([{**row, name: value, "_kind": "+U"}])
        self.keep()

    def free(self) -> list[str]:
        """Return the columns that neither the key nor the settings name."""
        fixed = {*self.model.key, *self.fixed}
        return [name for name in self.model.columns if name not in fixed]

    @rule(data=st.data())
    def overwrite(self, data: st.DataObject) -> None:
        rows = self.rows(data)
        self.table.overwrite(self.given(rows))
        self.model.keep(lambda row: False)
        self.model.write(rows)
        self.keep()

    @precondition(lambda self: self.partition is not None)
    @rule(data=st.data())
    def overwrite_dynamically(self, data: st.DataObject) -> None:
        rows = self.rows(data)
        self.table.overwrite(self.given(rows), dynamic=True)
        gone = {row[self.partition] for row in rows}
        self.model.keep(lambda row: row[self.partition] not in gone)
        self.model.write(rows)
        self.keep()

    @rule(data=st.data())
    def overwrite_by_filter(self, data: st.DataObject) -> None:
        """A filter on the partition alone leaves nothing of the partition's history."""
        condition, rows = self.condition(data), self.rows(data)
        if condition.columns == {self.partition}:
            self.model.keep(lambda row: not condition.selects(row))
        elif not self.engine.removes or "sequence.field" in self.engine.properties:
            return  # refused
        else:
            self.model.take_out(condition)
        self.table.overwrite(self.given(rows), filter=condition.expression)
        self.model.write(rows)
        self.keep()

    @rule(data=st.data())
    def change_all_at_once(self, data: st.DataObject) -> None:
        first, second = self.rows(data), self.rows(data)
        with self.table.transaction() as transaction:
            transaction.append(self.given(first))
            self.model.write(first)
            if self.engine.removes:
                condition = self.condition(data)
                transaction.delete(condition.expression)
                self.model.take_out(condition)
            transaction.append(self.given(second))
            self.model.write(second)
        self.keep()

    # Files.

    @rule(is_full=st.booleans())
    def compact(self, is_full: bool) -> None:
        self.table.compact(full=is_full)
        self.model.compacted(is_full=is_full)
        self.keep()

    @rule(retained=st.integers(1, 3))
    def expire(self, retained: int) -> None:
        self.table.expire_snapshots(older_than=AT_ONCE, retain_last=retained)
        kept = {snapshot.id for snapshot in self.table.snapshots()}
        self.versions = {number: each for number, each in self.versions.items() if number in kept}

    @rule()
    def open_again(self) -> None:
        self.table = Table.open(self.folder / "table", durability="fast")

    # Columns and settings.

    @rule(
        name=st.sampled_from(NAMES),
        default=st.sampled_from(ADDED[1]),
        function=st.sampled_from(ADDED_FUNCTIONS),
    )
    def add_column(self, name: str, default: Any, function: str | None) -> None:
        options, rows = self.model.options, self.model.rows
        if name in self.model.columns:
            return
        if options.merge_engine != "aggregation":
            function = None
        if options.merge_engine == "partial_update":
            default = None

        def add() -> None:
            with self.table.update_schema() as update:
                if function is not None:
                    update.set_properties({f"fields.{name}.aggregate_function": function})
                update.add_column(name, ADDED[0], default=default)

        is_inexact = bool(options.sequence_fields) and function not in BY_SEQUENCE
        if options.merge_engine == "aggregation" and is_inexact:
            self.refused(add)
            return
        if default is not None and function == "sum" and self.table.snapshot.totals.files:
            self.refused(add)  # every row would add it
            return
        try:
            add()
        except InvalidArgumentError:  # some retraction is not compacted, and leaves it open
            assert default is not None
            assert options.merge_engine == "aggregation"
            assert function in (None, "last_value")
            taken_back = {"-U"} if options.remove_record_on_delete else {"-U", "-D"}
            assert any(row["_kind"] in taken_back for row in rows)
            return
        if function is not None:
            self.fixed.add(name)
        self.model.columns[name] = ADDED
        self.model.defaults[name] = default
        for row in rows:
            row[name] = default
            row["_older"] = (*row.get("_older", ()), name)
        self.changed_schema()

    @rule(data=st.data())
    def drop_column(self, data: st.DataObject) -> None:
        if len(self.free()) > 1:
            name = data.draw(st.sampled_from(self.free()))
            self.table.drop_columns([name])
            del self.model.columns[name]
            self.model.defaults.pop(name, None)
            for row in self.model.rows:
                del row[name]
            self.changed_schema()

    @rule(data=st.data(), new=st.sampled_from(NAMES))
    def rename_column(self, data: st.DataObject, new: str) -> None:
        free = [name for name in self.model.columns if name not in {*self.fixed, "p"}]
        old = data.draw(st.sampled_from(free))
        if new in self.model.columns:
            return
        self.table.rename_column(old, new)
        model = self.model

        def renamed(found: Mapping[str, Any]) -> dict[str, Any]:
            return {new if name == old else name: value for name, value in found.items()}

        model.columns, model.defaults = renamed(model.columns), renamed(model.defaults)
        model.key = [new if name == old else name for name in model.key]
        model.rows = [
            {**renamed(row), "_older": tuple(renamed(dict.fromkeys(row.get("_older", ()))))}
            for row in model.rows
        ]
        self.changed_schema()

    @rule(data=st.data())
    def widen_column(self, data: st.DataObject) -> None:
        narrow = [name for name, each in self.model.columns.items() if each[0] == pa.int32()]
        if narrow:
            name = data.draw(st.sampled_from(narrow))
            self.table.alter_column(name, type=pa.int64())
            self.model.columns[name] = (pa.int64(), self.model.columns[name][1])
            self.changed_schema()

    @rule(
        trigger=st.integers(1, 5),
        size=st.sampled_from(SIZES),
        bucket=st.integers(1, 4),
        merges=st.booleans(),
    )
    def set_properties(self, trigger: int, size: str, bucket: int, merges: bool) -> None:
        updates = {"num_sorted_run.compaction_trigger": str(trigger), "bucket": str(bucket)}
        options = self.model.options
        if options.deletion_vectors and not options.compaction.is_inline:
            updates["deletion_vectors.merge_on_read"] = str(merges)
        self.table.set_properties({**updates, "target_file_size": size})
        self.changed_schema()

    def changed_schema(self) -> None:
        self.model.options = key_options(self.table.schema)
        self.keep()

    # Versions.

    def known(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.versions)))

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        number = self.known(data)
        self.table.restore(number)
        self.model = self.versions[number].copy()
        self.keep()

    @rule(data=st.data())
    def tag(self, data: st.DataObject) -> None:
        number, name = self.known(data), f"t{len(self.tags)}"
        self.table.tags.create(name, version=number)
        self.tags[name] = self.versions[number].copy()

    @rule(data=st.data(), moves=st.booleans())
    def branch(self, data: st.DataObject, moves: bool) -> None:
        """Write to a branch and compact it; perhaps main moves there."""
        name = f"b{len(self.others)}"
        self.table.branches.create(name)
        other = Table.open(self.folder / "table", branch=name, durability="fast")
        model = self.write_elsewhere(other, data)
        if moves and other.snapshot.id != self.table.snapshot.id:
            self.table.branches.fast_forward(name)
            self.model = model.copy()
            self.keep()

    @rule(data=st.data())
    def clone(self, data: st.DataObject) -> None:
        """Write to a clone and compact it."""
        place = self.folder / f"clone{len(self.others)}"
        self.write_elsewhere(self.table.clone(place, durability="fast"), data)

    def write_elsewhere(self, other: Table, data: st.DataObject) -> Version:
        model, rows = self.model.copy(), self.rows(data)
        other.upsert(self.given(rows))
        model.write(rows)
        other.compact(full=True)
        model.compacted(is_full=True)
        self.others.append((other, model))
        return model

    # What has to hold.

    @invariant()
    def the_latest_version_holds_the_rows(self) -> None:
        if self.versions:
            check(self.table.scan(), self.model)

    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        """Projections, filters, counts, limits and extremes, of any kept version."""
        number = self.known(data)
        version = self.versions[number]
        names = data.draw(st.lists(st.sampled_from(list(version.columns)), unique=True, min_size=1))
        condition = data.draw(conditions(self.compared(version)))
        limit = data.draw(st.integers(0, 4))
        for chosen in (None, condition):
            wanted = [row for row in version.visible() if chosen is None or chosen.selects(row)]
            filter = None if chosen is None else chosen.expression
            scan = self.table.scan(snapshot_id=number, filter=filter, columns=names)
            assert shown(scan.to_arrow().to_pylist(), names) == shown(wanted, names)
            assert scan.count() == len(wanted)
            first = scan.head(limit).to_pylist()
            assert len(first) == min(limit, len(wanted))
            left = shown(wanted, names)
            for row in shown(first, names):
                left.remove(row)
            limited = self.table.scan(snapshot_id=number, filter=filter, limit=limit)
            assert limited.count() == len(first)
            for name in self.compared(version).keys() & names:
                check_extremes(scan, name, wanted)

    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        """The changes between kept versions, applied to the first one, give the last one."""
        check_changes(self.table, self.versions, *sorted([self.known(data), self.known(data)]))

    @rule(data=st.data())
    def look_up(self, data: st.DataObject) -> None:
        """Some keys, of any kept version; some of them absent."""
        number = self.known(data)
        version = self.versions[number]
        values = version.values()
        key = st.tuples(*(st.sampled_from(values[name]) for name in version.key))
        drawn = data.draw(st.lists(key, unique=True, max_size=5))
        keys = [dict(zip(version.key, each, strict=True)) for each in drawn]
        columns = {name: version.columns[name] for name in version.key}
        blobs = data.draw(st.sampled_from(["bytes", "handles"]))
        given = as_table(keys, columns)
        found = self.table.lookup(given, snapshot_id=number, blobs=blobs).to_pylist()
        found = list(map(_with_bytes, found))
        wanted = found_by_key(version.visible(), keys)
        assert in_order(found, list(version.columns)) == in_order(wanted, list(version.columns))


def _with_bytes(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose handles were read."""
    return {name: each.read() if isinstance(each, Handle) else each for name, each in row.items()}


class CheckedKeyedMachine(KeyedMachine):
    """The same, with everything checked at the end."""

    def teardown(self) -> None:
        if self.versions:
            for number, version in self.versions.items():
                check(self.table.scan(snapshot_id=number), version)
                check_compacted(self.table, number, version)
            for name, version in self.tags.items():
                check(self.table.scan(tag=name), version)
            handles = self.table.scan(blobs="handles").to_arrow().to_pylist()
            names = list(self.model.columns)
            assert shown(map(_with_bytes, handles), names) == shown(self.model.visible(), names)
            for table, version in self.others:
                check(table.scan(), version)
                assert table.verify().ok
            report = self.table.verify(data=True)
            assert report.ok, report
        super().teardown()


class CheckedKeyedBlobsMachine(CheckedKeyedMachine):
    """The same of a table with a column of blobs."""

    blobs = IMAGES


CheckedKeyedMachine.TestCase.settings = settings(
    max_examples=24, stateful_step_count=14, deadline=None
)
CheckedKeyedBlobsMachine.TestCase.settings = settings(
    max_examples=10, stateful_step_count=14, deadline=None
)
