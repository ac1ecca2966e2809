"""Compaction by writers: it follows a commit, bounds the number of runs, never fails it."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from fermion_table.commit import next_snapshot
from fermion_table.compaction.task import CompactionResult
from fermion_table.merging.sections import sorted_runs
from fermion_table.metadata import manifest_store
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.local import LocalStore
from fermion_table.table import inline_compaction
from tests.kit.stores import Crash, CrashingStore
from tests.kit.tables.runs import levels, shown, table_of, trees

INLINE = {"compaction": "inline", "bucket": "1"}
AFTER_EACH = {**INLINE, "full_compaction.delta_commits": "1"}
TREE = ((), 0)


def one(k: int, v: int = 0) -> dict:
    return {"k": [k], "v": [v]}


def runs(table: Table) -> int:
    """The greatest number of runs of a tree."""
    return max(len(sorted_runs(files)) for files in trees(table).values())


def by_writer(table: Table) -> None:
    with table.writer() as writer:
        writer.write(one(1, 2))
        table.commit(writer.prepare_commit())


def by_transaction(table: Table) -> None:
    with table.transaction() as changes:
        changes.upsert(one(1, 2))
        changes.delete_keys([3])


CHANGES = {
    "upsert": lambda table: table.upsert(one(1, 2)),
    "append": lambda table: table.append(one(1, 2)),
    "delete_keys": lambda table: table.delete_keys([1]),
    "delete": lambda table: table.delete("k = 1"),
    "update": lambda table: table.update("k = 1", {"v": 5}),
    "overwrite": lambda table: table.overwrite(one(1, 2), filter="k = 2"),
    "merge": lambda table: (
        table.merge(one(1, 2), on="k").when_matched_update({"v": "source.v"}).execute()
    ),
    "writer": by_writer,
    "transaction": by_transaction,
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_commit_of_rows_is_followed_by_compaction(change, tmp_path):
    """Against the same table without: the same rows, all at the top, in one more snapshot."""
    table, plain = table_of(tmp_path / "t", AFTER_EACH), table_of(tmp_path / "plain", {})
    for each in (plain, table):
        each.upsert({"k": [1, 2, 3], "v": [1, 1, 1]})
        before = each.snapshot.id
        found = CHANGES[change](each)
    assert shown(table) == shown(plain)
    assert levels(table) == {TREE: [2]}
    assert table.snapshot.kind == "compact"
    assert table.snapshot.id == before + 2
    snapshot = getattr(found, "snapshot", found)
    assert snapshot is None or snapshot.id == before + 1
    assert snapshot is None or snapshot.kind != "compact"


def test_only_trees_that_a_commit_has_changed_are_compacted(tmp_path):
    table = table_of(tmp_path / "t", {**INLINE, "bucket": "2", "write_only": "true"})
    for v in range(4):
        table.upsert({"k": list(range(8)), "v": [v] * 8})
    assert levels(table) == {TREE: [0] * 4, ((), 1): [0] * 4}
    table.set_properties({"write_only": "false"})
    table.upsert(one(1))
    assert sorted(levels(table).values(), key=len) == [[2], [0] * 4]


def test_a_writer_that_only_writes_leaves_all_to_others(tmp_path):
    table = table_of(tmp_path / "t", {**INLINE, "write-only": "true"})
    for v in range(9):
        table.upsert(one(1, v))
    assert levels(table) == {TREE: [0] * 9}
    assert table.compact().groups == 1
    assert levels(table) == {TREE: [2]}


def test_a_failure_is_a_warning_and_the_commit_stands(tmp_path, monkeypatch):
    table = table_of(tmp_path / "t", AFTER_EACH)

    def fails(*arguments, **options):
        raise OSError("the disk is full")

    monkeypatch.setattr(inline_compaction, "run_compaction", fails)
    with pytest.warns(RuntimeWarning, match="snapshot 1 is committed.*OSError: the disk is full"):
        assert table.upsert(one(1)).id == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert table.upsert(one(2)).id == 2
    monkeypatch.undo()
    assert [row["k"] for row in shown(table)] == [1, 2]
    table.upsert(one(3))
    assert levels(table) == {TREE: [2]}


def test_a_crash_at_any_call_leaves_the_rows_before_or_those_after(tmp_path):
    """Whatever is published, no row is lost, and a later upsert compacts."""
    outcomes = []
    for calls in range(1, 200):
        path = tmp_path / str(calls)
        shared_cache.clear()
        table = table_of(path, AFTER_EACH)
        table.upsert({"k": [1, 2], "v": [0, 0]})
        store = CrashingStore(LocalStore(str(path), durability="fast"), 10**9)
        table = Table(store, table.snapshot)
        store.calls_left = calls
        try:
            table.upsert(one(1, 7))
        except Crash:
            store.calls_left = 10**9
        else:
            outcomes.append("done")
        shared_cache.clear()
        found = Table.open(path, durability="fast")
        values = [row["v"] for row in shown(found)]
        assert values in ([0, 0], [7, 0])
        is_compacted = levels(found) == {TREE: [2]}
        if "done" in outcomes:
            assert is_compacted
            break
        outcomes.append((values[0] == 7, is_compacted))
        assert found.verify(data=True).ok
        found.upsert(one(3))
        assert [row["k"] for row in shown(found)] == [1, 2, 3]
        assert levels(found) == {TREE: [2]}
    assert outcomes[-1] == "done"
    assert {(False, True), (True, False), (True, True)} == set(outcomes[:-1])


def test_threads_that_upsert_and_compact_lose_no_row(tmp_path):
    """Writers of one bucket; few runs are left at the end, and no upsert fails or warns.

    Half of them share a table object.
    """
    path, each = tmp_path / "t", 6
    shared = table_of(path, INLINE)

    def write(number: int) -> None:
        table = shared if number % 2 else Table.open(path, durability="fast")
        for n in range(each):
            table.upsert({"k": [number * each + n, -1], "v": [n, n]})

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ThreadPoolExecutor(6) as executor:
            list(executor.map(write, range(6)))
    table = Table.open(path)
    assert [row["k"] for row in shown(table)] == list(range(-1, 36))
    assert runs(table) < 2 + 3 + 6
    kinds = table.inspect.snapshots().column("kind").to_pylist()
    assert kinds.count("append") == 36
    assert "compact" in kinds
    assert table.verify(data=True).ok


def test_a_writer_waits_for_another_thread_only_where_runs_are_many(tmp_path):
    table = table_of(tmp_path / "t", {**INLINE, "num_sorted_run.stop_trigger": "3"})
    lock = inline_compaction._LOCKS[hash(table.location) % len(inline_compaction._LOCKS)]
    with ThreadPoolExecutor(1) as executor:
        with lock.get():
            for v in range(2):
                executor.submit(table.upsert, one(1, v)).result(timeout=60)
            waiting = executor.submit(table.upsert, one(1, 2))
            time.sleep(0.3)
            assert not waiting.done()
            assert levels(Table.open(tmp_path / "t")) == {TREE: [0, 0, 0]}
        assert waiting.result(timeout=60).id == 3
    assert levels(table) == {TREE: [2]}


def test_a_compaction_that_came_too_late_is_tried_again_while_runs_are_many(tmp_path, monkeypatch):
    table = table_of(tmp_path / "t", {**INLINE, "num_sorted_run.stop_trigger": "4"})
    tried = []
    run = inline_compaction.run_compaction

    def comes_too_late(tasks, base, **options):
        tried.append(base.id)
        if len(tried) == 5:
            return run(tasks, base, **options)
        return CompactionResult(groups=1, groups_dropped=1)

    monkeypatch.setattr(inline_compaction, "run_compaction", comes_too_late)
    for v in range(4):
        table.upsert(one(1, v))
    assert tried == [2, 3, 4, 4, 4]
    assert levels(table) == {TREE: [2]}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"compaction": "outline"}, "compaction='outline': expected one of none, inline"),
        ({"write_only": "maybe"}, "write_only='maybe': expected true or false"),
        ({"num_sorted_run.stop_trigger": "1"}, "stop_trigger='1': expected a number from 2"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path, properties, message):
    with pytest.raises(InvalidArgumentError, match=message):
        table_of(tmp_path / "t", properties)


MERGED = {"compaction.min.file_num": "3"}
PLAIN = pa.schema([("a", pa.int64()), ("p", pa.string())])


def plain_table(path, properties=MERGED, **options) -> Table:
    return Table.create(path, PLAIN, properties=properties, durability="fast", **options)


def some(*values: int) -> dict:
    return {"a": list(values), "p": ["xy"[value % 2] for value in values]}


def change(table: Table, choice: random.Random, number: int) -> None:
    """One random commit."""
    rows = some(*(number * 100 + each for each in range(choice.choice((1, 1, 2, 7)))))
    kind = choice.choice(("append",) * 6 + ("batches", "delete", "update", "columns", "branch"))
    if kind == "batches":
        table.append_batches([(number, rows), (number + 1, some(number))])
    elif kind == "delete":
        table.delete(f"a % 5 = {choice.randrange(5)}")
    elif kind == "update":
        table.update(f"a % 7 = {choice.randrange(7)}", {"a": "a + 1"})
    elif kind == "columns" and number == 9:
        table.append({**rows, "new": [str(number)] * len(rows["a"])}, schema_mode="merge")
    elif kind == "branch":
        table.branches.create(f"b{number}")
        branch = Table.open(table.location, branch=f"b{number}", durability="fast")
        for _ in range(3):
            branch.append(rows)
        table.branches.fast_forward(f"b{number}")
    else:
        table.append(rows)


@pytest.mark.parametrize("seed", range(6))
def test_a_table_that_its_writers_merge_is_as_without(seed, tmp_path):
    """Random commits: rows in the order of each partition, their changes, earlier snapshots."""
    parted = {"partition_by": ["p"]} if seed % 2 else {}
    table, plain = plain_table(tmp_path / "t", **parted), plain_table(tmp_path / "u", {}, **parted)
    ids = []
    for number in range(20):
        for each in (table, plain):
            change(each, random.Random(seed * 100 + number), number)
        ids.append((table.snapshot.id, plain.snapshot.id))
        assert table.snapshot.totals.live_rows == plain.snapshot.totals.live_rows

    def rows(scan) -> list:
        found = scan.to_arrow().to_pylist()
        return sorted(found, key=lambda row: row["p"]) if parted else found

    assert len(table.inspect.files()) < len(plain.inspect.files())
    for one, other in ids[::4]:
        assert rows(table.scan(version=one)) == rows(plain.scan(version=other))
    feeds = [
        each.scan_changes(0, columns=["a", "p"]).to_arrow().drop_columns(["_commit_timestamp"])
        for each in (table, plain)
    ]
    changes = [
        sorted(map(str, feed.drop_columns(["_commit_version"]).to_pylist())) for feed in feeds
    ]
    assert changes[0] == changes[1]
    assert table.verify(data=True).ok


def test_writers_merge_after_commits_of_rows_and_only_where_the_table_says_so(tmp_path):
    """The snapshot that comes back is that of the rows; other branches, and transactions, too."""
    table, plain = plain_table(tmp_path / "t"), plain_table(tmp_path / "u", {})
    for each in (table, plain):
        assert [each.append(some(n)).id for n in range(3)] == [1, 2, 3]
    assert [table.snapshot.kind, plain.snapshot.kind] == ["compact", "append"]
    assert [table.snapshot.totals.files, plain.snapshot.totals.files] == [1, 3]
    with table.transaction() as transaction:
        for n in range(3):
            transaction.append(some(n))
    assert table.snapshot.totals.files == 2
    table.set_properties({}, remove=["compaction.min.file_num"])
    for n in range(5):
        table.append(some(n))
    assert table.snapshot.totals.files == 7
    with pytest.raises(InvalidArgumentError, match="expected a number from 2"):
        table.set_properties({"compaction.min.file_num": "1"})


def test_a_merge_that_fails_or_comes_too_late_leaves_the_commit(tmp_path, monkeypatch):
    """One that another commit's removal outruns says nothing, and leaves no file."""
    table = plain_table(tmp_path / "t")
    run = inline_compaction.run_compaction

    def fails(*arguments, **options):
        raise OSError("the disk is full")

    def is_outrun(*arguments, **options):
        with monkeypatch.context() as patched:
            patched.setattr(inline_compaction, "run_compaction", run)
            Table.open(table.location, durability="fast").delete("a = 1")
        return run(*arguments, **options)

    table.append(some(0))
    table.append(some(1))
    monkeypatch.setattr(inline_compaction, "run_compaction", fails)
    with pytest.warns(RuntimeWarning, match="snapshot 3 is committed.*OSError: the disk is full"):
        assert table.append(some(2)).id == 3
    monkeypatch.setattr(inline_compaction, "run_compaction", is_outrun)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.append(some(3))
    monkeypatch.undo()
    assert Table.open(table.location).scan().to_arrow()["a"].to_pylist() == [0, 2, 3]
    assert len(list((tmp_path / "t" / "data").rglob("*.fermion"))) == 4


def test_a_crash_in_a_merge_leaves_all_rows(tmp_path):
    """After any call: the rows before or those after, and a later append merges."""
    outcomes = []
    for calls in itertools.count(1):
        path = tmp_path / str(calls)
        shared_cache.clear()
        table = plain_table(path)
        table.append(some(0))
        table.append(some(1))
        store = CrashingStore(LocalStore(str(path), durability="fast"), 10**9)
        table = Table(store, table.snapshot)
        store.calls_left = calls
        try:
            table.append(some(2))
        except Crash:
            store.calls_left = 10**9
        else:
            outcomes.append("done")
        shared_cache.clear()
        found = Table.open(path, durability="fast")
        values = found.scan().to_arrow()["a"].to_pylist()
        assert values in ([0, 1], [0, 1, 2])
        outcomes.append((len(values), found.snapshot.kind == "compact"))
        assert found.verify(data=True).ok
        for n in range(3):
            found.append(some(n))
        assert found.scan().to_arrow()["a"].to_pylist() == [*values, 0, 1, 2]
        assert found.snapshot.totals.files <= 3
        if "done" in outcomes:
            break
    assert {(2, False), (3, False), (3, True)} == set(outcomes) - {"done"}


WRITER = """
import sys, warnings
from fermion_table import Table
warnings.simplefilter("error")
table, first = Table.open(sys.argv[1], durability="fast"), int(sys.argv[2])
for n in range(first, first + 25):
    table.append({"a": [n], "p": ["x"]})
"""


def test_processes_that_append_and_merge_lose_no_row(tmp_path):
    """None fails or warns; the rows of each come in its order."""
    table = plain_table(tmp_path / "t")
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, table.location, first])
        for first in ("0", "100")
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    table = Table.open(tmp_path / "t", durability="fast")
    values = table.scan().to_arrow()["a"].to_pylist()
    assert [n for n in values if n < 100] == list(range(25))
    assert [n for n in values if n >= 100] == list(range(100, 125))
    kinds = table.inspect.snapshots()["kind"].to_pylist()
    assert kinds.count("append") == 50
    assert "compact" in kinds
    assert table.verify(data=True).ok
    for n in range(9):
        table.append(some(n))
    assert table.snapshot.totals.files <= 12


def test_threads_that_append_and_merge_lose_no_row(tmp_path):
    table = plain_table(tmp_path / "t")
    with warnings.catch_warnings(), ThreadPoolExecutor(4) as executor:
        warnings.simplefilter("error")
        list(executor.map(lambda n: table.append(some(n)), range(40)))
    found = Table.open(tmp_path / "t", durability="fast")
    assert sorted(found.scan().to_arrow()["a"].to_pylist()) == list(range(40))
    assert found.verify(data=True).ok


def test_the_property_may_have_hyphens(tmp_path):
    properties = {"compaction.min.file-num": "3"}
    table = Table.create(tmp_path / "t", pa.schema([("a", pa.int64())]), properties=properties)
    for at in range(9):
        table.append({"a": [at]})
    assert table.snapshot.totals.files == 1


def test_files_that_a_deletion_made_new_entries_keep_their_place(tmp_path, monkeypatch):
    """They came out of packed manifests, and are no neighbours of the newest."""
    monkeypatch.setattr(next_snapshot, "INLINE_ENTRIES_MAX", 4)
    for module in (manifest_store, next_snapshot):
        monkeypatch.setattr(module, "PACK_ENTRIES_MIN", 16)
    table = Table.create(tmp_path / "t", pa.schema([("a", pa.int64())]))
    for at in range(60):
        table.append({"a": [2 * at, 2 * at + 1]})
    assert any(each.kind == "packed" for each in table.snapshot.manifests)
    table.set_properties({"compaction.min.file_num": "3"})
    table.delete("a = 0")
    table.delete("a = 20")
    before = table.to_arrow()["a"].to_pylist()
    table.append({"a": [1_000]})
    assert table.to_arrow()["a"].to_pylist() == [*before, 1_000]


def test_a_schema_that_can_not_be_read_after_a_commit_asks_for_no_compaction(
    tmp_path, monkeypatch
) -> None:
    """The storage fails once the rows are committed; there was nothing to compact."""
    table = Table.create(tmp_path / "t", pa.schema({"k": pa.int64()}), durability="fast")

    def failing(store: LocalStore, path: str, *arguments: int) -> bytes:
        raise OSError(f"{path} can't be read now")

    def compact(state, committed) -> None:
        state._schemas = None
        shared_cache.clear()
        with monkeypatch.context() as patch:
            patch.setattr(LocalStore, "read", failing)
            compact_inline(state, committed)

    compact_inline = inline_compaction.compact_inline
    monkeypatch.setattr(inline_compaction, "compact_inline", compact)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert table.append({"k": [1]}).id == 1
    assert not told
    assert table.scan().count() == 1
