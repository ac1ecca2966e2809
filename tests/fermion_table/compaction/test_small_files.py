"""Compaction: which files go together, and that rows, order and batches stay."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from fermion.predicate import RowRanges
from fermion_table import MissingDataFile, Table
from fermion_table.compaction.small_files import plan_compaction, plan_newest
from fermion_table.engine import compact_group
from fermion_table.metadata.manifest import BatchRange
from fermion_table.reading.split_reader import batches_left
from fermion_table.reading.whole_rows import whole_batches
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.paths import snapshot_path
from tests.kit.stores import made_up_entry

MIB = 1024 * 1024
SCHEMA = pa.schema([("a", pa.int64()), ("p", pa.int32())])


def entries(*sizes, **fields):
    return [
        made_up_entry(f"f{place}", size=size, sequence_start=place, **fields)
        for place, size in enumerate(sizes)
    ]


def planned(listed, target=100, **options):
    groups = plan_compaction(listed, target_bytes=target, **options)
    return [[entry.size for entry in group.entries] for group in groups]


def test_groups_take_neighbours_until_the_target_is_reached():
    assert planned(entries(30, 30, 50, 10, 69, 20, 1)) == [[30, 30, 50], [10, 69, 20, 1]]


def test_big_files_are_left_alone_and_single_ones_too():
    assert planned(entries(30, 70, 500, 30)) == [[30, 30]]
    assert planned(entries(30, 70)) == []
    assert planned(entries(10, 10), min_input_files=3) == []


def test_partitions_and_modes_are_not_mixed():
    listed = [
        *entries(10, 11, partition=("x",)),
        *entries(20, 21, partition=("y",)),
        *entries(30, 31, 32, batch=None),
    ]
    assert planned(listed) == [[10, 11], [20, 21], [30, 31, 32]]


def test_a_group_of_tiny_files_ends_before_opening_them_takes_too_long():
    groups = plan_compaction(entries(*[1] * 2500), target_bytes=256 * MIB)
    assert [len(group.entries) for group in groups] == [1024, 1024, 452]


@given(st.lists(st.integers(1, 150), max_size=40))
def test_planning_uses_each_small_file_at_most_once_and_in_order(sizes):
    groups = planned(entries(*sizes))
    small = [size for size in sizes if size < 70]
    flat = [size for group in groups for size in group]
    remaining = iter(small)
    assert all(size in remaining for size in flat)  # a subsequence
    assert all(len(group) >= 2 and sum(group[:-1]) < 100 for group in groups)
    assert len(small) - len(flat) <= 1 + sum(1 for size in small if size >= 50)


def merged_by_writers(commits, files_min, target=10**12):
    """Live entries after commits of files, given by their rows, and how often rows were written.

    Each commit is followed by what its writer merges. Names are the files that an entry holds.
    """
    live, written = [], {}
    for place, rows in enumerate(commits):
        live.append(made_up_entry(f"{place}", rows=rows, size=100 + rows, sequence_start=place))
        for group in plan_newest(live, files_min=files_min, target_bytes=target):
            first = live.index(group.entries[0])
            assert live[first : first + len(group.entries)] == list(group.entries)
            name = " ".join(entry.path[5:-8] for entry in group.entries)
            rows = sum(entry.rows for entry in group.entries)
            start = group.entries[0].sequence_start
            joined = made_up_entry(name, rows=rows, size=100 + rows, sequence_start=start)
            live[first : first + len(group.entries)] = [joined]
            for each in name.split():
                written[each] = written.get(each, 0) + 1
    assert " ".join(entry.path[5:-8] for entry in live).split() == [
        str(n) for n in range(len(commits))
    ]
    return live, max(written.values(), default=0)


@given(st.lists(st.integers(0, 500), max_size=200), st.integers(2, 6))
def test_writers_merge_neighbours_and_each_row_once_a_level(commits, files_min):
    """Whatever the rows of commits; of equal ones few files are left of each level, too."""
    _, written = merged_by_writers(commits, files_min)
    levels = 0
    while files_min**levels <= max(sum(commits), 1):
        levels += 1
    assert written <= levels
    live, _ = merged_by_writers([3] * len(commits), files_min)
    levels = 1
    while 3 * files_min ** (levels - 1) <= 3 * max(len(commits), 1):
        levels += 1
    assert len(live) <= levels * (files_min - 1)


def test_writers_merge_no_large_files_and_keep_partitions_and_batches_apart():
    def newest(listed, files_min=3, target=300):
        groups = plan_newest(listed, files_min=files_min, target_bytes=target)
        return [[entry.size for entry in group.entries] for group in groups]

    assert newest(entries(10, 11, 12)) == [[10, 11, 12]]
    assert newest(entries(10, 11, 100, 12, 13)) == []
    assert newest(entries(10, 100, 12, 13, 14)) == [[12, 13, 14]]
    one, other = entries(10, 11, 12, partition=("x",)), entries(20, 21, partition=("y",))
    assert newest([*other, *one]) == [[10, 11, 12]]
    batches = entries(30, 31, batch=BatchRange(1, 1, 1))
    assert newest([*entries(1, 2), *batches, *entries(3)]) == []
    assert newest([*entries(1, 2), *batches, *entries(3, 4, 5)]) == [[3, 4, 5]]


def test_min_input_files_below_two_is_refused():
    with pytest.raises(InvalidArgumentError, match="at least 2"):
        plan_compaction([], target_bytes=1, min_input_files=1)


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.none() | st.integers(-9, 9), max_size=5), min_size=1, max_size=8),
    st.sampled_from(["1B", "2KB", "256MB"]),
    st.booleans(),
)
def test_compaction_keeps_rows_and_order(tmp_path_factory, appends, target, partitioned):
    """Within each partition; the old snapshot stays readable, and doing it again does nothing."""
    path = tmp_path_factory.mktemp("compaction") / "table"
    by = {"partition_by": "p"} if partitioned else {}
    table = Table.create(path, SCHEMA, durability="fast", **by)
    for values in appends:
        data = {"a": values, "p": [abs(value or 0) % 2 for value in values]}
        table.append(pa.table(data, schema=SCHEMA))
    parts = ["p = 0", "p = 1"] if partitioned else [None]
    before = [table.scan(filter=part).to_arrow() for part in parts]
    old = table.snapshot.id
    result = table.compact(target_size=target)
    assert [table.scan(filter=part).to_arrow() for part in parts] == before
    assert table.scan(snapshot_id=old).count() == table.scan().count()
    assert result.files_after == result.groups
    assert table.verify(data=True).ok
    if target == "256MB":
        assert table.snapshot.totals.files <= 2
        assert table.compact().groups == 0


BATCHES = st.lists(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 4)), min_size=1, max_size=4),
    min_size=1,
    max_size=5,
)


@settings(max_examples=25)
@given(BATCHES)
def test_compaction_keeps_batches_whole_under_their_ids(tmp_path_factory, appends):
    """Against a list of batches; ids are in any order, and some come twice in a row."""
    path = tmp_path_factory.mktemp("batches") / "table"
    table = Table.create(path, pa.schema([("v", pa.int64())]), durability="fast")
    model, row = [], 0
    for append in appends:
        batches = []
        for number, rows in append:
            batches.append((number, {"v": list(range(row, row + rows))}))
            row += rows
        table.append_batches(batches)
        model += batches
    table.compact()
    assert table.snapshot.totals.files == 1
    scan = table.scan(columns=["v", "batch_id", "index_in_batch"])
    (split,) = scan.plan().splits
    batches = scan.reader.batches(split)
    whole = list(whole_batches(scan.to_batches(), batches, scan.schema))
    assert [(each.batch_id, each.rows.to_pydict()) for each in whole] == model
    for number in range(-4, 5):
        wanted = [value for n, data in model if n == number for value in data["v"]]
        assert table.lookup_batch(number).column("v").to_pylist() == wanted
    (entry,) = table.scan().entries[0]
    assert entry.batch.count == len(model)


def small_files(table_path, count=6):
    table = Table.create(table_path, SCHEMA)
    for value in range(count):
        table.append({"a": [value], "p": [value % 2]})
    return table


def test_a_dry_run_says_what_would_be_done_and_does_nothing(table_path):
    table = small_files(table_path)
    result = table.compact(dry_run=True)
    assert (result.dry_run, result.groups, result.files_before, result.rows) == (True, 1, 6, 6)
    assert result.bytes_before == table.snapshot.totals.bytes
    assert table.refresh().id == 6


def test_progress_is_published_group_by_group(table_path):
    table = small_files(table_path, 8)
    size = table.scan().entries[0][0].size
    seen = []
    result = table.compact(
        target_size=2 * size,
        max_groups_per_commit=1,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert result.groups == 4
    assert result.snapshots == [9, 10, 11, 12]
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert table.scan().to_arrow().column("a").to_pylist() == list(range(8))


def test_a_filter_compacts_only_files_that_may_match(table_path):
    table = Table.create(table_path, SCHEMA, partition_by="p")
    for value in range(6):
        table.append({"a": [value], "p": [value % 2]})
    assert table.compact(filter="p = 1").files_before == 3
    assert sorted(entry.partition for entry in table.scan().entries[0]) == [(0,)] * 3 + [(1,)]


def test_sorting_sorts_each_new_file(table_path):
    table = Table.create(table_path, SCHEMA)
    for value in (3, 1, 2):
        table.append({"a": [value, -value]})
    table.compact(sort_by=["a"])
    assert table.scan().to_arrow().column("a").to_pylist() == [-3, -2, -1, 1, 2, 3]
    table.append_batch(1, {"a": [1]})
    table.append_batch(2, {"a": [1]})
    with pytest.raises(InvalidArgumentError, match="batch mode"):
        table.compact(sort_by=["a"])


def test_a_group_whose_inputs_are_gone_is_dropped_and_its_files_deleted(table_path):
    """Two compactors at once: the second yields, and nothing of its work stays."""
    table = small_files(table_path)
    base, tasks = table.snapshot, table.plan_compaction()
    messages = [compact_group(task) for task in tasks]
    assert Table.open(table_path).compact().groups == 1
    result = table.commit_compaction(messages, base)
    assert (result.groups, result.groups_dropped, result.snapshots) == (1, 1, [])
    assert not table.store.exists(messages[0].added[0].path)
    assert table.scan().to_arrow().column("a").to_pylist() == list(range(6))


@pytest.mark.parametrize("kind", ["delete", "update", "overwrite"])
@pytest.mark.parametrize("more", [0, 1, 2])
@pytest.mark.parametrize("has_slots", [True, False])
def test_a_deletion_survives_a_compaction_where_history_has_expired_meanwhile(
    table_path, kind, more, has_slots, monkeypatch
):
    """Seed 18507 of the simulation: who won was not readable any more, and taken for harmless.

    A slot stays for an hour after the data of its snapshot has gone, its manifests too.
    """
    monkeypatch.setattr("fermion_table.commit.next_snapshot.INLINE_ENTRIES_MAX", 1)
    table = Table.create(table_path, SCHEMA)
    for start in range(0, 300, 100):
        table.append({"a": range(start, start + 100), "p": [0] * 100})
    base, tasks = table.snapshot, table.plan_compaction()
    messages = [compact_group(task) for task in tasks]
    other = Table.open(table_path)
    if kind == "delete":
        other.delete("a = 7")
    elif kind == "update":
        other.update("a = 7", {"p": 1})
    else:
        other.overwrite({"a": [1], "p": [1]})
    deletions = [split.deletion for split in other.scan().plan().splits if split.deletion]
    assert len(deletions) == (kind != "overwrite")
    for _ in range(more):
        other.append({"a": [1_000], "p": [0]})
    expected = sorted(other.scan().to_arrow().to_pylist(), key=str)
    other.expire_snapshots(retain_last=1, older_than=timedelta(0))
    first_kept = other.snapshot.id
    assert [each.id for each in other.snapshots() if each.id] == [first_kept]
    for expired in range(1, 1 if has_slots else first_kept):
        other.store.delete(snapshot_path(expired))
    shared_cache.clear()
    result = table.commit_compaction(messages, base)
    assert (result.groups_dropped, result.snapshots) == (1, [])
    found = Table.open(table_path)
    assert sorted(found.scan().to_arrow().to_pylist(), key=str) == expected
    assert found.verify(data=True).ok


def test_groups_that_still_have_their_inputs_are_committed(table_path):
    table = Table.create(table_path, SCHEMA, partition_by="p")
    for value in range(6):
        table.append({"a": [value], "p": [value % 2]})
    base = table.snapshot
    messages = [compact_group(task) for task in table.plan_compaction()]
    assert len(messages) == 2
    Table.open(table_path).compact(filter="p = 0")
    result = table.commit_compaction(messages, base)
    assert (result.groups_dropped, len(result.snapshots), result.files_before) == (1, 1, 3)
    assert table.snapshot.totals.files == 2
    assert sorted(table.scan().to_arrow().column("a").to_pylist()) == list(range(6))
    assert table.verify(data=True).ok


def test_appends_and_schema_changes_meanwhile_do_no_harm(table_path):
    table = small_files(table_path)
    base, tasks = table.snapshot, table.plan_compaction()
    other = Table.open(table_path)
    other.append({"a": [6], "p": [0]})
    other.rename_column("a", "b")
    other.append({"b": [7], "p": [1]})
    table.commit_compaction([compact_group(task) for task in tasks], base)
    assert table.scan().to_arrow().column("b").to_pylist() == list(range(8))
    assert table.snapshot.totals.files == 3


def test_tasks_and_messages_pickle_and_are_small(table_path):
    table = small_files(table_path)
    (task,) = table.plan_compaction()
    data = pickle.dumps(task)
    assert len(data) < 10_000
    message = compact_group(pickle.loads(data))
    assert len(pickle.dumps(message)) < 10_000
    table.commit_compaction([pickle.loads(pickle.dumps(message))], table.snapshot)
    assert table.snapshot.totals.files == 1


def test_a_failing_group_leaves_the_table_as_it_was(table_path, monkeypatch):
    table = small_files(table_path)
    (task,) = table.plan_compaction()
    gone = msgspec.structs.replace(task.group.entries[-1], path="data/gone.fermion")
    broken = type(task.group)((*task.group.entries[:-1], gone))
    files = {each.path for each in table.store.list("data")}
    with pytest.raises(FileNotFoundError):
        compact_group(
            type(task)(
                store=task.store,
                schema=task.schema,
                reader=task.reader,
                group=broken,
                settings=task.settings,
            )
        )
    assert {each.path for each in table.store.list("data")} == files


def test_whole_batches_are_cut_however_the_rows_arrive():
    schema = pa.schema([("v", pa.int8()), ("batch_id", pa.int64()), ("index_in_batch", pa.int64())])
    rows = pa.record_batch(
        [pa.array(range(6), pa.int8()), pa.array([5, 5, 5, 5, 1, 1]), pa.array([0, 4, 1, 3, 0, 1])],
        schema=schema,
    )
    batches = np.array([9, 5, 5, 7, 1, 9]), np.array([0, 2, 2, 0, 2, 0])
    for size in range(1, 7):
        pieces = [rows.slice(start, size) for start in range(0, 6, size)]
        whole = list(whole_batches(pieces, batches, schema))
        found = [(each.batch_id, each.rows.column("v").to_pylist()) for each in whole]
        assert found == [(9, []), (5, [0, 1]), (5, [2, 3]), (7, []), (1, [4, 5]), (9, [])]
        positions = [each.positions for each in whole if each.positions is not None]
        assert [each.tolist() for each in positions] == [[0, 4], [1, 3], [0, 1]]
    nothing = np.array([], np.int64)
    assert list(whole_batches([], (nothing, nothing), schema)) == []


def test_a_batch_goes_with_its_last_row_but_not_for_having_none():
    ids, lengths = np.array([4, 5, 6, 7]), np.array([2, 0, 3, 1])
    ids, lengths = batches_left(ids, lengths, RowRanges.from_indices(np.array([2, 4, 5])))
    assert (ids.tolist(), lengths.tolist()) == ([5, 6, 7], [0, 2, 1])


def test_batches_without_rows_survive_what_rewrites_their_files(table_path):
    """A compaction, a delete of most rows and an update; a deleted batch does not come back."""
    table = Table.create(table_path, pa.schema([("v", pa.int64())]))
    empty = pa.table({"v": pa.array([], pa.int64())})
    table.append_batches([(1, {"v": [1, 2]}), (2, empty), (3, {"v": [3]})])
    table.append_batches([(4, empty), (5, {"v": [4, 5, 6]})])
    table.append_batch(6, empty)
    assert batches_of(table) == [(1, 2), (2, 0), (3, 1), (4, 0), (5, 3), (6, 0)]
    table.compact()
    assert batches_of(table) == [(1, 2), (2, 0), (3, 1), (4, 0), (5, 3), (6, 0)]
    table.update("v = 2", {"v": 20})
    assert batches_of(table) == [(1, 2), (2, 0), (3, 1), (4, 0), (5, 3), (6, 0)]
    table.delete("v IN (20, 3, 4, 5)")
    assert batches_of(table) == [(1, 1), (2, 0), (4, 0), (5, 1), (6, 0)]
    assert table.scan().to_arrow().column("v").to_pylist() == [1, 6]


def batches_of(table):
    """Ids and lengths of all batches, file by file."""
    scan = table.scan()
    found = [scan.reader.batches(split) for split in scan.plan().splits]
    return [pair for each in found for pair in zip(*(part.tolist() for part in each), strict=True)]


@pytest.mark.parametrize("key", [None, "a"])
def test_bug_a_compaction_did_not_say_which_snapshot_names_a_missing_file(table_path, key):
    """Its groups are rewritten here, or by `compact_group` on another machine."""
    table = Table.create(table_path, SCHEMA, primary_key=key)
    for value in (1, 2):
        table.upsert({"a": [1], "p": [value]}) if key else table.append({"a": [1], "p": [value]})
    (gone, *_) = sorted(Path(table.location, "data").rglob("*.fermion"))
    gone.unlink()
    options = {"full": True} if key else {}
    before = table.snapshot.id
    with pytest.raises(MissingDataFile, match=f"snapshot 2 of branch 'main'.*{gone.name}"):
        table.compact(**options)
    (task,) = pickle.loads(pickle.dumps(table.plan_compaction(**options)))
    with pytest.raises(MissingDataFile, match=gone.name):
        compact_group(task)
    assert table.refresh().id == before


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.delete("p = 1"),
        lambda table: table.update("p = 1", {"p": "p + 1"}),
        lambda table: table.merge({"a": [1]}, "a").when_matched_delete().execute(),
    ],
    ids=["delete", "update", "merge"],
)
def test_bug_changes_of_rows_did_not_say_which_snapshot_names_a_missing_file(table_path, change):
    table = Table.create(table_path, SCHEMA)
    table.append({"a": [1, 2], "p": [1, 2]})
    (gone,) = Path(table.location, "data").rglob("*.fermion")
    gone.unlink()
    with pytest.raises(MissingDataFile, match=f"snapshot 1 of branch 'main'.*{gone.name}"):
        change(table)
