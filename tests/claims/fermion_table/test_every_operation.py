"""Every public operation in random order, on tables, branches and clones, against lists of dicts.

Each history has a model of its own. In the end, and after each expiry, every version kept is
read: as a whole, by its id and its time, through filters, and as the changes that led to it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from fermion.errors import InvalidArgumentError
from fermion_table import CommitConflict, Table
from tests.kit.table_machine import Condition, Model, TableMachine, Version, shown

AT_ONCE = timedelta(days=-1)
BRANCHES = ["dev", "fix"]
TAGS = ["v1", "v2"]
Key = tuple[str, str]


@dataclass
class Line:
    """One history, and what each of its versions should hold."""

    table: Table
    model: Model
    versions: dict[int, Version]


class LakeMachine(TableMachine):
    """Random operations on several histories; the inherited ones change that of `table`."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[Key, Line] = {}
        self.tags: dict[tuple[str, str], Version] = {}
        self.clones = 0

    @property
    def key(self) -> Key:
        return self.table.location, self.table.branch

    def keep(self) -> None:
        super().keep()
        self.lines[self.key] = Line(self.table, self.model, self.versions)

    def turn_to(self, key: Key) -> None:
        line = self.lines[key]
        self.table, self.model, self.versions = line.table, line.model, line.versions

    def model_of(self, version: Version) -> Model:
        rows = [dict(row) for row in version.rows]
        return Model(dict(version.names), rows, dict(self.model.defaults))

    def kept(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.versions)))

    # Rules

    @rule()
    def open_again(self) -> None:
        location, branch = self.key
        self.table = Table.open(location, branch=branch, durability="fast")
        self.lines[self.key].table = self.table

    @rule(data=st.data())
    def turn(self, data: st.DataObject) -> None:
        self.turn_to(data.draw(st.sampled_from(sorted(self.lines))))

    @rule(data=st.data(), name=st.sampled_from(BRANCHES))
    def create_branch(self, data: st.DataObject, name: str) -> None:
        location = self.table.location
        if (location, name) in self.lines:
            return
        left = self.kept(data)
        self.table.branches.create(name, version=left)
        versions = {number: each for number, each in self.versions.items() if number <= left}
        table = Table.open(location, branch=name, durability="fast")
        self.lines[location, name] = Line(table, self.model_of(versions[left]), versions)
        self.turn_to((location, name))

    @precondition(lambda self: self.table.branch != "main")
    @rule()
    def move_parent(self) -> None:
        location, name = self.key
        heads = {head.name: head.parent for head in self.table.branches.list()}
        parent = self.lines[location, heads[name] or "main"]
        try:
            moved = parent.table.branches.fast_forward(name)
        except CommitConflict:
            return
        parent.table = Table.open(location, branch=parent.table.branch, durability="fast")
        assert parent.table.snapshot == moved
        now = self.versions[max(self.versions)]
        parent.versions[moved.id] = now
        parent.model = self.model_of(now)

    @precondition(lambda self: self.table.branch != "main")
    @rule()
    def delete_branch(self) -> None:
        location, name = self.key
        try:
            self.table.branches.delete(name)
        except InvalidArgumentError:  # another branch has left it
            return
        del self.lines[location, name]
        self.turn_to((location, "main"))

    @rule(data=st.data(), name=st.sampled_from(TAGS))
    def tag(self, data: st.DataObject, name: str) -> None:
        place = self.table.location, name
        if place in self.tags:
            self.table.tags.delete(name)
            del self.tags[place]
        else:
            version = self.kept(data)
            self.table.tags.create(name, version=version)
            self.tags[place] = self.versions[version]

    @precondition(lambda self: self.clones < 2)
    @rule(data=st.data())
    def clone(self, data: st.DataObject) -> None:
        version = self.kept(data)
        self.clones += 1
        path = self.folder / f"clone{self.clones}"
        table = self.table.clone(path, version=version, durability="fast")
        held = self.versions[version]
        versions = {0: Version((), held.names), table.snapshot.id: held}
        self.lines[table.location, "main"] = Line(table, self.model_of(held), versions)
        self.turn_to((table.location, "main"))

    @rule(retain=st.integers(1, 4))
    def expire(self, retain: int) -> None:
        planned = self.table.expire_snapshots(older_than=AT_ONCE, retain_last=retain, dry_run=True)
        done = self.table.expire_snapshots(older_than=AT_ONCE, retain_last=retain)
        assert planned.paths == done.paths
        for line in self.lines.values():
            if line.table.location == self.table.location:
                there = {snapshot.id for snapshot in line.table.snapshots()}
                for number in line.versions.keys() - there:
                    del line.versions[number]
        self.check_versions(self.table.location)

    @rule()
    def remove_orphans(self) -> None:
        self.table.remove_orphan_files(older_than=AT_ONCE)

    @rule(data=st.data())
    def compare(self, data: st.DataObject) -> None:
        """What one version lacks of another, and has besides."""
        before, after = self.kept(data), self.kept(data)
        old, new = self.versions[before], self.versions[after]
        if old.names != new.names:
            return
        wanted = Counter(shown(new.rows, new.names))
        wanted.subtract(Counter(shown(old.rows, old.names)))
        found: Counter[tuple] = Counter()
        changes = self.table.diff(before, after).rows().to_arrow()
        for row in zip(*changes.to_pydict().values(), strict=True):
            found[row[: len(new.names)]] += 1 if row[len(new.names)] == "insert" else -1
        assert {row: n for row, n in found.items() if n} == {
            row: n for row, n in wanted.items() if n
        }

    # Checks

    def check_versions(self, location: str | None = None) -> None:
        """Every version that is kept of every history (or of one table's), and every tag."""
        here = self.key
        for key, line in self.lines.items():
            if location not in (None, key[0]):
                continue
            self.turn_to(key)
            there = {snapshot.id: snapshot for snapshot in line.table.snapshots()}
            assert (
                there.keys() == line.versions.keys() or there.keys() | {0} == line.versions.keys()
            )
            for number, snapshot in there.items():
                self.check(number)
                self.check_pruned(number)
                moment = datetime.fromtimestamp(snapshot.time_ms / 1000, UTC)
                assert line.table.scan(as_of=moment).snapshot == snapshot
        self.turn_to(here)
        for (location, name), version in self.tags.items():
            found = self.lines[location, "main"].table.scan(tag=name).to_arrow()
            rows = sorted(zip(*found.to_pydict().values(), strict=True), key=repr)
            assert rows == shown(version.rows, version.names)

    def check_pruned(self, number: int) -> None:
        """A filter on every column gives what looking at every row gives."""
        version = self.versions[number]
        for name in version.names:
            if name == "k":
                continue
            for condition in (Condition(name, 3, 6, None), Condition(name, 0, 1, "b")):
                wanted = [row for row in version.rows if condition.selects(row, version.names)]
                scan = self.table.scan(snapshot_id=number, filter=condition.text)
                rows = sorted(zip(*scan.to_arrow().to_pydict().values(), strict=True), key=repr)
                assert rows == shown(wanted, version.names)
                assert scan.count() == len(wanted)

    def check_changes(self) -> None:
        """The changes since the first version kept lead through every later one.

        Rows are compared by the columns that both the version and the latest have.
        """
        numbers = sorted(snapshot.id for snapshot in self.table.snapshots())
        names = self.versions[numbers[-1]].names
        found = self.table.scan_changes(numbers[0]).to_arrow().to_pydict()
        changes: dict[int, list[tuple[tuple, int]]] = {number: [] for number in numbers}
        for row in zip(*found.values(), strict=True):
            values, (kind, at) = row[: len(names)], row[len(names) : len(names) + 2]
            changes[at].append((values, 1 if kind == "insert" else -1))
        since: Counter[tuple] = Counter()
        for number in numbers:
            for values, sign in changes[number]:
                since[values] += sign
            shared = {
                name: each
                for name, each in names.items()
                if each in self.versions[number].names.values()
                and each in self.versions[numbers[0]].names.values()
            }
            if not shared:
                continue
            places = [list(names).index(name) for name in shared]
            held = Counter(shown(self.versions[numbers[0]].rows, shared))
            for values, count in since.items():
                held[tuple(values[place] for place in places)] += count
            wanted = Counter(shown(self.versions[number].rows, shared))
            assert {row: n for row, n in held.items() if n} == wanted

    def teardown(self) -> None:
        if self.lines:
            self.check_versions()
            for key in list(self.lines):
                self.turn_to(key)
                self.check_changes()
                report = self.table.verify(data=True)
                assert report.ok, report
        super().teardown()


LakeMachine.TestCase.settings = settings(max_examples=5, stateful_step_count=20, deadline=None)
test_any_history_of_any_operations_agrees_with_the_models = LakeMachine.TestCase
