"""Deletes, overwrites and updates whose process dies after each storage call, or loses replies."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fermion_table import Table
from fermion_table.errors import CommitStateUnknown
from fermion_table.storage.local import LocalStore
from tests.kit.stores import Crash, CrashingStore, ForgetfulStore, LostReplies

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
IMAGE = pa.field("image", pa.binary(), metadata={"fermion:blob": "true"})
AT_ONCE = timedelta(days=-1)

CHANGES: dict[str, Callable[[Table], Any]] = {
    "delete by mark": lambda t: t.delete("v = 3 OR v = 12"),
    "delete by writing again": lambda t: t.delete("v < 8"),
    "delete by dropping files": lambda t: t.delete("v >= 10"),
    "overwrite": lambda t: t.overwrite({"k": ["n"], "v": [99]}),
    "overwrite by filter": lambda t: t.overwrite({"k": ["n"], "v": [99]}, filter="v < 12"),
    "update": lambda t: t.update("v = 4", {"v": pc.field("v") + 100}),
    "merge": lambda t: merge(t),
    "append of images": lambda t: t.append(images(["n", "o"], [98, 99])),
    "overwrite with images": lambda t: t.overwrite(images(["n"], [99]), filter="v < 12"),
}
KEYED_CHANGES: dict[str, Callable[[Table], Any]] = {
    "upsert": lambda t: t.upsert(images(["n", "o"], [98, 12])),
    "deletion of keys": lambda t: t.delete_keys([4, 12]),
}
KEEP_ROWS: dict[str, Callable[[Table], Any]] = {
    "compaction": lambda t: t.compact(threads=1),
    "expiry": lambda t: t.expire_snapshots(older_than=AT_ONCE, retain_last=1),
    "removal of orphans": lambda t: t.remove_orphan_files(older_than=AT_ONCE),
}
"""What leaves the rows as they are."""


def merge(table: Table) -> None:
    """Rows of both files change, and a new one comes."""
    source = {"k": ["a", "b", "n"], "v": [4, 12, 99]}
    changes = table.merge(source, on=["v"]).when_matched_delete("source.v = 4")
    changes.when_matched_update({"v": 112}).when_not_matched_insert().execute()


def images(keys: list[str], values: Iterable[int]) -> pa.Table:
    rows = pa.table({"k": keys, "v": list(values)}, schema=SCHEMA)
    return rows.append_column("image", [pa.array([key.encode() * 5_000 for key in keys])])


def rows_of(table: Table) -> list[int]:
    """The values of ``v``; what images there are belong to their rows."""
    found = table.scan().to_arrow()
    for row in found.to_pylist() if "image" in found.schema.names else ():
        assert row["image"] in (None, row["k"].encode() * 5_000)
        assert row["image"] or row["k"] in ("n", "later")
    return sorted(found["v"].to_pylist())


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """Two files with images, the first with a row deleted already; and one of no snapshot."""
    path = tmp_path_factory.mktemp("template") / "table"
    table = Table.create(path, SCHEMA.append(IMAGE), durability="fast")
    table.append(images(["a"] * 10, range(10)))
    table.append(images(["b"] * 4, range(10, 14)))
    table.delete("v = 0")
    (path / "data" / f"{'0' * 32}.blob").write_bytes(b"")
    return path


@pytest.fixture(scope="module")
def keyed_template(tmp_path_factory) -> Path:
    """Two runs with images, and one of deletions."""
    path = tmp_path_factory.mktemp("template") / "table"
    settings = {"num_sorted_run.compaction_trigger": "2"}
    schema = SCHEMA.append(IMAGE)
    table = Table.create(path, schema, primary_key="v", properties=settings, durability="fast")
    table.upsert(images(["a"] * 10, range(10)))
    table.upsert(images(["b"] * 4, range(8, 12)))
    table.delete_keys([0])
    return path


@pytest.fixture(params=["template", "keyed_template"])
def any_template(request) -> Path:
    return request.getfixturevalue(request.param)


def expected_after(template: Path, tmp_path: Path, change: Callable[[Table], Any]) -> list[int]:
    shutil.copytree(template, tmp_path / "model")
    table = Table.open(tmp_path / "model", durability="fast")
    change(table)
    return rows_of(table)


@pytest.mark.parametrize("name", CHANGES)
def test_a_crash_leaves_the_rows_before_or_those_after(template, tmp_path, name):
    crash_everywhere(template, tmp_path, CHANGES[name])


@pytest.mark.parametrize("name", KEYED_CHANGES)
def test_a_crash_leaves_a_primary_key_table_with_images_whole(keyed_template, tmp_path, name):
    crash_everywhere(keyed_template, tmp_path, KEYED_CHANGES[name])


def crash_everywhere(template: Path, tmp_path: Path, change: Callable[[Table], Any]) -> None:
    before = rows_of(Table.open(template))
    after = expected_after(template, tmp_path, change)
    assert before != after
    outcomes = []
    for calls in range(1, 100):
        path = tmp_path / f"crash-{calls}"
        shutil.copytree(template, path)
        store = CrashingStore(LocalStore(str(path), durability="fast"), 10**9)
        table = Table(store, Table.open(path).snapshot)
        store.calls_left = calls
        try:
            change(table)
        except Crash:
            found = Table.open(path)
            rows = rows_of(found)
            assert rows in (before, after), calls
            outcomes.append(rows == after)
            assert found.verify().ok
            found.append({"k": ["later"], "v": [1000]})  # nothing is in the way of the next
            assert rows_of(Table.open(path)) == [*rows, 1000]
            continue
        break
    assert rows_of(Table.open(path)) == after
    assert outcomes == sorted(outcomes)  # once published, it stays
    assert {False, True} <= set(outcomes)


@pytest.mark.parametrize("name", KEEP_ROWS)
def test_a_crash_of_maintenance_keeps_all_rows_and_their_images(any_template, tmp_path, name):
    """Whatever it leaves behind, the next maintenance takes it away."""
    before = rows_of(Table.open(any_template))
    for calls in range(1, 100):
        path = tmp_path / f"crash-{calls}"
        shutil.copytree(any_template, path)
        store = CrashingStore(LocalStore(str(path), durability="fast"), 10**9)
        table = Table(store, Table.open(path).snapshot)
        store.calls_left = calls
        try:
            KEEP_ROWS[name](table)
        except Crash:
            found = Table.open(path)
            assert rows_of(found) == before
            assert found.verify().ok
            found.compact()
            found.expire_snapshots(older_than=AT_ONCE, retain_last=1)
            found.remove_orphan_files(older_than=AT_ONCE)
            assert rows_of(Table.open(path)) == before
            listed = {each.path for entry in found.scan().entries[0] for each in entry.blob_files}
            assert {f"data/{each.name}" for each in path.glob("data/*.blob")} == listed
            continue
        break
    assert calls > 2
    assert rows_of(Table.open(path)) == before


@pytest.mark.parametrize("name", CHANGES)
def test_a_lost_reply_is_told_from_a_lost_race(template, tmp_path, name):
    change = CHANGES[name]
    after = expected_after(template, tmp_path, change)
    for lost in (LostReplies(after_success={1}), LostReplies(before_trying={1})):
        path = tmp_path / f"lost-{bool(lost.after_success)}"
        shutil.copytree(template, path)
        inner = LocalStore(str(path), durability="fast")
        change(Table(ForgetfulStore(inner, lost), Table.open(path).snapshot))
        assert rows_of(Table.open(path)) == after
        assert Table.open(path).snapshot.id == 4


@pytest.mark.parametrize("name", ["delete by mark", "overwrite", "update"])
def test_an_outcome_that_is_unknown_deletes_no_file(template, tmp_path, name):
    path = tmp_path / "unknown"
    shutil.copytree(template, path)
    inner = LocalStore(str(path), durability="fast")
    store = ForgetfulStore(inner, LostReplies(after_success={1}), reads_fail=True)
    table = Table(store, Table.open(path).snapshot)
    with pytest.raises(CommitStateUnknown):
        CHANGES[name](table)
    assert rows_of(Table.open(path)) == expected_after(template, tmp_path, CHANGES[name])
    assert Table.open(path).verify().ok
