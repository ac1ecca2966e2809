"""Maintenance with clones, tags and branches about: whatever can be reached can still be read."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from fermion_table import CommitConflict, Table
from fermion_table.commit import next_snapshot
from fermion_table.commit.clone import CLONE_TAG
from fermion_table.expiry import expire
from fermion_table.storage.cache import shared_cache
from fermion_table.writing.writer_message import WriterMessage

SCHEMA = pa.schema({"a": pa.int64()})
AT_ONCE = timedelta(days=-1)
OPERATIONS = (
    "append", "append", "append", "append", "delete", "overwrite", "compact",
    "restore", "tag", "untag", "branch", "fast_forward", "delete_branch",
    "clone", "drop_clone", "add_column", "lose_files", "prepare", "publish", "expire", "expire",
    "orphans",
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def short_tails_and_slots() -> Iterator[None]:
    """Few entries stay in tails, and slots go at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(next_snapshot, "INLINE_ENTRIES_MAX", 3)
        expiry = partial(expire.expire_snapshots, snapshot_file_grace_ms=0)
        patch.setattr(expire, "expire_snapshots", expiry)
        yield


class Lake:
    """Tables, their clones, and a model of what each version of them holds."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tables: dict[str, dict[str, dict[int, list[int]]]] = {}
        self.tags: dict[str, dict[str, list[int]]] = {}
        self.made = 0
        self.sources: dict[str, list[str]] = {}
        self.in_flight: list[tuple[Table, int, list[WriterMessage], int]] = []
        self.add(Table.create(self.new_path(), SCHEMA, durability="fast"), [])

    def new_path(self) -> Path:
        self.made += 1
        return self.directory / f"t{self.made}"

    def add(self, table: Table, sources: list[str]) -> None:
        rows = {
            snapshot.id: rows_of(table, snapshot_id=snapshot.id) for snapshot in table.snapshots()
        }
        self.tables[table.location] = {"main": rows}
        self.tags[table.location] = {}
        self.sources[table.location] = sources

    def open(self, place: int) -> Table:
        every = [(path, branch) for path, branches in self.tables.items() for branch in branches]
        path, branch = every[place % len(every)]
        return Table.open(path, branch=branch, durability="fast")

    def rows(self, table: Table) -> dict[int, list[int]]:
        return self.tables[table.location][table.branch]

    def apply(self, name: str, place: int, number: int) -> None:
        table = self.open(place)
        note(f"{name} {number} on {table.branch} of {table.location}")
        getattr(self, name)(table, number)

    def append(self, table: Table, number: int) -> None:
        before = self.rows(table)[table.snapshot.id]
        table.append(pa.table({"a": [number, 3, 3]}))
        self.rows(table)[table.snapshot.id] = sorted([*before, number, 3, 3])

    def delete(self, table: Table, number: int) -> None:
        before = self.rows(table)[table.snapshot.id]
        table.delete(f"a = {number}")
        self.rows(table)[table.snapshot.id] = [each for each in before if each != number]

    def overwrite(self, table: Table, number: int) -> None:
        before = self.rows(table)[table.snapshot.id]
        table.overwrite(pa.table({"a": [number]}), filter="a >= 2")
        self.rows(table)[table.snapshot.id] = sorted([number, *(x for x in before if x < 2)])

    def compact(self, table: Table, number: int) -> None:
        before = self.rows(table)[table.snapshot.id]
        table.compact()
        self.rows(table)[table.snapshot.id] = before

    def add_column(self, table: Table, number: int) -> None:
        before = self.rows(table)[table.snapshot.id]
        table.add_columns({f"c{table.schema.last_field_id}": pa.int64()})
        self.rows(table)[table.snapshot.id] = before

    def restore(self, table: Table, number: int) -> None:
        kept = table.snapshots()
        target = kept[number % len(kept)].id
        before = self.rows(table)[target]
        table.restore(target)
        self.rows(table)[table.snapshot.id] = before

    def tag(self, table: Table, number: int) -> None:
        names = self.tags[table.location]
        if f"v{number}" not in names:
            table.tags.create(f"v{number}")
            names[f"v{number}"] = self.rows(table)[table.snapshot.id]

    def untag(self, table: Table, number: int) -> None:
        names = self.tags[table.location]
        if names:
            name = sorted(names)[number % len(names)]
            table.tags.delete(name)
            del names[name]

    def branch(self, table: Table, number: int) -> None:
        kept = table.snapshots()
        left = kept[number % len(kept)].id
        branches = self.tables[table.location]
        if f"b{number}" not in branches:
            table.branches.create(f"b{number}", version=left)
            own = self.rows(table)
            branches[f"b{number}"] = {at: rows for at, rows in own.items() if at <= left}

    def fast_forward(self, table: Table, number: int) -> None:
        heads = [head for head in table.branches.list() if head.parent is not None]
        if heads:
            head = heads[number % len(heads)]
            branches = self.tables[table.location]
            try:
                moved = table.branches.fast_forward(head.name)
            except CommitConflict:
                return
            assert head.parent is not None
            branches[head.parent][moved.id] = branches[head.name][head.snapshot_id]

    def delete_branch(self, table: Table, number: int) -> None:
        if table.branch != "main":
            try:
                table.branches.delete(table.branch)
            except InvalidArgumentError:  # another branch has left it
                return
            del self.tables[table.location][table.branch]

    def clone(self, table: Table, number: int) -> None:
        kept = table.snapshots()
        version = kept[number % len(kept)].id
        clone = table.clone(self.new_path(), version=version, durability="fast")
        assert rows_of(clone) == self.rows(table)[version]
        self.add(clone, [table.location, *self.sources[table.location]])

    def drop_clone(self, table: Table, number: int) -> None:
        used = {source for sources in self.sources.values() for source in sources}
        sources = self.sources[table.location]
        if sources and table.location not in used:
            tag = table.scan(snapshot_id=0).snapshot.properties[CLONE_TAG]
            shutil.rmtree(table.location)
            for source in sources:
                if tag in {each.name for each in Table.open(source).tags.list()}:
                    Table.open(source).tags.delete(tag)
            for known in (self.tables, self.tags, self.sources):
                del known[table.location]

    def lose_files(self, table: Table, number: int) -> None:
        """A writer dies before it commits."""
        with table.writer() as writer:
            writer.write(pa.table({"a": [number]}))
            writer.prepare_commit()

    def prepare(self, table: Table, number: int) -> None:
        """A writer has written its files and takes its time to commit."""
        began_ms = time.time_ns() // 1_000_000
        with table.writer() as writer:
            writer.write(pa.table({"a": [number]}))
            self.in_flight.append((table, number, writer.prepare_commit(), began_ms))

    def publish(self, _: Table, number: int) -> None:
        """It commits, whatever has happened since."""
        if self.in_flight:
            table, value, messages, _ = self.in_flight.pop(number % len(self.in_flight))
            rows = self.tables.get(table.location, {}).get(table.branch)
            if rows is None:  # dropped meanwhile
                return
            snapshot = table.commit(messages)
            rows[snapshot.id] = sorted([*rows[snapshot.id - 1], value])

    def expire(self, table: Table, number: int) -> None:
        planned = table.expire_snapshots(older_than=AT_ONCE, retain_last=1 + number, dry_run=True)
        done = table.expire_snapshots(older_than=AT_ONCE, retain_last=1 + number)
        assert planned.paths == done.paths
        self.check()

    def orphans(self, table: Table, number: int) -> None:
        """What a writer in flight has written is too young to go."""
        begins = [began for each, *_, began in self.in_flight if each.location == table.location]
        limit: Any = AT_ONCE
        if begins:
            limit = datetime.fromtimestamp((min(begins) - 1) / 1000, UTC)
        done = table.remove_orphan_files(older_than=limit)
        assert table.remove_orphan_files(older_than=limit).paths == ()
        assert not any(path.startswith("snapshot/0") for path in done.paths)
        self.check()

    def check(self) -> None:
        """Read every version that can be reached, from storage."""
        shared_cache.clear()
        for path, branches in self.tables.items():
            for branch, rows in branches.items():
                table = Table.open(path, branch=branch)
                assert rows_of(table) == rows[max(rows)]
                for snapshot in table.snapshots():
                    assert rows_of(table, snapshot_id=snapshot.id) == rows[snapshot.id]
            for name, expected in self.tags[path].items():
                assert rows_of(table, tag=name) == expected
            report = table.verify()
            assert report.ok, report


def rows_of(table: Table, **version: Any) -> list[int]:
    return sorted(table.scan(columns=["a"], threads=1, **version).to_arrow()["a"].to_pylist())


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 5), st.integers(0, 3)),
        min_size=5,
        max_size=25,
    )
)
def test_whatever_can_be_reached_can_be_read(operations: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        lake = Lake(Path(directory))
        for name, place, number in operations:
            lake.apply(name, place, number)
        for place in range(3):
            lake.expire(lake.open(place), 0)
            lake.orphans(lake.open(place), 0)
