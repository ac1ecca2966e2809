"""Changelog files: what they record, and that replaying the changes of any interval is exact."""

from __future__ import annotations

import pickle
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from fermion_table.compaction import tree_changelog
from fermion_table.compaction.task import compact_group
from fermion_table.errors import UnsupportedFeature
from fermion_table.metadata.manifest_store import changelog_entries
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.writing.writer_message import WriteSettings
from tests.kit.tables.keyed_strategies import ENGINES, VALUES, Engine

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
WIDE = pa.schema([("k", pa.int64()), *((name, dtype) for name, (dtype, _) in VALUES.items())])
AT_ONCE = timedelta(days=-1)
PRODUCERS = ["lookup", "full_compaction"]


def made(path: Path, schema: pa.Schema = SCHEMA, **properties: str) -> Table:
    properties = {"bucket": "1"} | properties
    return Table.create(path, schema, primary_key="k", properties=properties, durability="fast")


def upsert(table: Table, *rows: tuple[int, int]) -> None:
    table.upsert({"k": [k for k, _ in rows], "v": [v for _, v in rows], "s": ["x"] * len(rows)})


def said(table: Table, *versions: int, **query: Any) -> list[tuple[str, int, int, int | None]]:
    found = table.scan_changes(*versions, **query).to_arrow()
    names = ["_change_type", "_commit_version", "k", "v"]
    return list(zip(*found.select(names).to_pydict().values(), strict=True))


def recorded(table: Table) -> dict[int, int]:
    """Return the rows of changelog files by the snapshot, of those that have a changelog."""
    return {
        each.id: sum(entry.rows for entry in changelog_entries(table.store, each))
        for each in table.snapshots()
        if each.changelog is not None
    }


def files(table: Table) -> set[str]:
    return {item.path for item in table.store.list("data")}


def test_input_records_what_writers_were_given_as_it_came(table_path):
    table = made(table_path, changelog_producer="input")
    upsert(table, (1, 10), (2, 20), (1, 11))
    rows = {"k": [2, 2, 1], "v": [20, 21, 11], "s": ["x"] * 3, "kind": ["-U", "+U", "-D"]}
    with table.transaction() as transaction:
        transaction.upsert(rows, change_type="kind")
        transaction.delete_keys([7])
        transaction.update("k = 2", {"v": 22})
    assert said(table, 0) == [
        *(("insert", 1, 1, 10), ("insert", 1, 2, 20), ("insert", 1, 1, 11)),
        *(("update_preimage", 2, 2, 20), ("update_postimage", 2, 2, 21), ("delete", 2, 1, 11)),
        *(("delete", 2, 7, None), ("update_postimage", 2, 2, 22)),
    ]
    assert said(table, 1, filter="v < 21 AND s = 'x'") == [
        *(("update_preimage", 2, 2, 20), ("delete", 2, 1, 11)),
    ]
    assert table.scan_changes(0, columns=[]).count() == 8
    table.compact(full=True)
    table.overwrite({"k": [2, 3], "v": [22, 3], "s": ["x", "y"]})
    assert said(table, 2) == [("insert", 4, 3, 3)]
    assert recorded(table) == {1: 3, 2: 5}
    assert table.snapshot.writer_features == ("changelog",)
    assert table.verify(data=True).ok
    table.set_properties({"changelog_producer": "none"})
    upsert(table, (3, 4), (3, 5))
    assert said(table, 5) == [("update_preimage", 6, 3, 3), ("update_postimage", 6, 3, 5)]


def test_rows_that_compaction_shows_were_told_of_when_they_were_written(table_path):
    settings = {"deletion_vectors.enabled": "true", "deletion_vectors.merge_on_read": "false"}
    table = made(table_path, changelog_producer="input", **settings)
    upsert(table, (1, 10))
    table.compact()
    assert said(table, 0) == [("insert", 1, 1, 10)]


def test_a_commit_of_files_of_which_some_were_not_recorded_has_no_changelog(table_path):
    table = made(table_path)
    messages = []
    for number, producer in enumerate(["none", "input"]):
        table.set_properties({"changelog_producer": producer})
        with table.writer() as writer:
            writer.write({"k": [number], "v": [number], "s": ["x"]})
            messages += writer.prepare_commit()
    with table.transaction() as transaction:
        transaction.append_written(messages)
    assert table.snapshot.changelog is None
    assert [row[2] for row in said(table, 0)] == [0, 1]
    assert len(files(table)) == 2


def test_writers_record_what_they_write_in_several_flushes(table_path):
    table = made(table_path, changelog_producer="input", write_buffer_size="1kb", bucket="2")
    given = [(number % 10, number) for number in range(80)]
    upsert(table, *given)
    assert len(table.snapshot.changelog.entries) > 4
    of_key = [[v for _, _, k, v in said(table, 0) if k == key] for key in range(10)]
    assert of_key == [[v for k, v in given if k == key] for key in range(10)]


def test_files_of_writers_that_give_up_are_deleted(table_path):
    table = made(table_path, changelog_producer="input")
    with table.writer() as writer:
        writer.write({"k": [1], "v": [1], "s": ["x"]})
        (message,) = writer.prepare_commit()
    assert len(message.entries) == 2
    assert message.rows == 1
    table.commit(pickle.loads(pickle.dumps([message])))
    before = files(table)
    assert len(before) == 2
    with pytest.raises(InvalidArgumentError, match="committed only once"):
        table.commit([message])
    with table.transaction() as transaction:
        transaction.upsert({"k": [2], "v": [1], "s": ["x"]})
        transaction.abort()
    writer = table.writer(settings=WriteSettings())
    writer.write({"k": [1], "v": [1], "s": ["x"]})
    writer.abort()
    with table.transaction() as transaction:
        with table.writer() as writer:
            writer.write({"k": [3], "v": [1], "s": ["x"]})
            messages = writer.prepare_commit()
        transaction.append_written(messages)
        transaction.abort()
    assert files(table) == before
    with table.writer() as writer:
        writer.write({"k": [3], "v": [1], "s": ["x"]})
        messages = writer.prepare_commit()
    with table.transaction() as transaction:
        transaction.overwrite_written(messages)
    assert table.snapshot.changelog is None
    assert len(files(table)) == len(before) + 1  # what the overwrite did not record is gone


def test_lookup_records_what_each_compaction_changes(table_path):
    table = made(table_path, changelog_producer="lookup")
    upsert(table, (1, 10), (2, 20), (3, 30))
    table.compact()
    upsert(table, (1, 11), (2, 20), (4, 40))
    upsert(table, (1, 12))
    table.delete_keys([3, 99])
    assert said(table, 2, 4) == [  # no compaction tells of them yet
        *(("update_preimage", 3, 1, 10), ("update_postimage", 3, 1, 11), ("insert", 3, 4, 40)),
        *(("update_preimage", 4, 1, 11), ("update_postimage", 4, 1, 12)),
    ]
    table.compact()
    assert recorded(table) == {2: 3, 6: 6}
    updates = [("update_preimage", 6, 1, 10), ("update_postimage", 6, 1, 12)]
    same = [("update_preimage", 6, 2, 20), ("update_postimage", 6, 2, 20)]
    gone, new = ("delete", 6, 3, 30), ("insert", 6, 4, 40)
    assert said(table, 2) == [gone, *updates, *same, new]
    assert said(table, 2, filter="v >= 12") == [gone, ("insert", 6, 1, 12), *same, new]
    assert said(table, 2, filter="k = 4") == [new]
    last = [("update_preimage", 6, 1, 11), ("update_postimage", 6, 1, 12)]
    assert said(table, 3) == [gone, *last]  # keys of snapshot 3 that were not compacted there
    upsert(table, (5, 50))
    assert said(table, 5) == [("insert", 7, 5, 50)]
    table.set_properties({"changelog_producer.row_deduplicate": "true"})
    upsert(table, (5, 50), (1, 12))
    table.compact()
    assert said(table, 6) == [("insert", 10, 5, 50)]
    assert table.diff(6).rows().count() == 1


def test_rows_that_first_row_ignores_are_no_recorded_changes(table_path):
    table = made(table_path, changelog_producer="lookup", merge_engine="first_row")
    upsert(table, (1, 10))
    table.compact()
    upsert(table, (1, 11), (2, 20))
    table.compact()
    assert said(table, 0) == [("insert", 2, 1, 10), ("insert", 4, 2, 20)]


def test_full_compaction_records_the_changes_of_the_top_level(table_path):
    settings = {
        "num_sorted_run.compaction_trigger": "3",
        "compaction.max_size_amplification_percent": "100000",
        "changelog_producer": "full_compaction",
    }
    table = made(table_path, **settings)
    upsert(table, *((k, 0 if k < 3 else k**5 % 99_991) for k in range(2_000)))
    table.compact(full=True)
    upsert(table, (1, 1))
    upsert(table, (1, 2), (2, 2))
    table.compact()
    assert recorded(table) == {2: 2_000, 5: 0}
    assert table.scan(mode="read_optimized").count() == 2_000
    assert [row[2:] for row in said(table, 2)] == [(1, 0), (2, 0), (1, 2), (2, 2)]
    table.delete_keys([2])
    table.compact(full=True)
    assert recorded(table)[7] == 3
    wanted = ("delete", 7, 2, 0), ("update_preimage", 7, 1, 0), ("update_postimage", 7, 1, 2)
    assert said(table, 2) == list(wanted)
    difference = table.diff(2).rows()
    assert sum(entry.rows for entry in difference.steps[0].touched) == 3
    assert difference.to_arrow()["k"].to_pylist() == [2, 1, 1]


def test_commits_during_a_compaction_are_not_recorded_by_it(table_path):
    """Neither rows that come meanwhile, nor a compaction that comes too late."""
    table = made(table_path, changelog_producer="lookup")
    upsert(table, (1, 1))
    table.compact()
    upsert(table, (1, 2), (2, 2))
    base = table.snapshot
    tasks = [pickle.loads(pickle.dumps(task)) for task in table.plan_compaction()]
    first, late = ([compact_group(task) for task in tasks] for _ in range(2))
    upsert(table, (1, 3), (3, 3))
    table.commit_compaction(first, base)
    assert recorded(table) == {2: 1, 5: 3}
    before = files(table)
    assert table.commit_compaction(late, base).groups_dropped == 1
    assert files(table) < before
    assert replayed(table, 2, table.snapshot.id) == state(table)
    assert table.verify(data=True).ok


def test_maintenance_knows_changelog_files(table_path, monkeypatch):
    table = made(table_path, changelog_producer="lookup")
    for number in range(4):
        upsert(table, (1, number), (number, number))
        table.compact()
    table.tags.create("kept", version=4)
    lost = made(table_path.parent / "other")
    upsert(lost, (1, 1))
    (stray,) = files(lost)
    name = "data/bucket-0/changelog-" + stray.rsplit("/", 1)[-1]
    table.store.write(name, Path(lost.store.locate(stray)).read_bytes())
    assert table.remove_orphan_files(older_than=AT_ONCE).paths == (name,)
    table.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    kept = {entry.path for each in (4, 8) for entry in tagged(table, each)}
    assert {path for path in files(table) if "changelog-" in path} == kept
    assert table.verify(data=True).ok
    clone = table.clone(table_path.parent / "clone")
    upsert(clone, (1, 99))
    clone.compact()
    assert said(clone, 1) == [("update_preimage", 3, 1, 3), ("update_postimage", 3, 1, 99)]
    table.store.delete(next(iter(kept)))
    assert not table.verify().ok
    monkeypatch.setattr("fermion_table.metadata.snapshot.KNOWN_WRITER_FEATURES", frozenset())
    for change in (table.expire_snapshots, table.remove_orphan_files):
        with pytest.raises(UnsupportedFeature, match="'changelog'"):
            change()


@pytest.mark.parametrize("producer", ["input", *PRODUCERS])
def test_a_fast_forward_records_nothing(table_path, producer):
    """It brings many commits, and the changelog of the branch's last one tells of that alone."""
    table = made(table_path, changelog_producer=producer)
    upsert(table, (1, 1))
    table.compact(full=True)
    table.branches.create("dev")
    branch = Table.open(table_path, branch="dev", durability="fast")
    upsert(branch, (1, 2))
    branch.compact(full=True)
    upsert(branch, (1, 3), (2, 3))
    if producer != "input":
        branch.compact(full=True)
    assert branch.snapshot.changelog is not None
    table.branches.fast_forward("dev")
    table.refresh()
    assert table.snapshot.changelog is None
    table.branches.delete("dev")
    check_all_intervals(table)
    assert table.verify(data=True).ok


def tagged(table: Table, snapshot_id: int) -> list[Any]:
    if snapshot_id == table.snapshot.id:
        return changelog_entries(table.store, table.snapshot)
    return changelog_entries(table.store, table.scan(tag="kept").snapshot)


def test_many_changelog_files_get_a_manifest(table_path):
    table = made(table_path, changelog_producer="input", bucket="100")
    upsert(table, *((k, k) for k in range(2_000)))
    changelog = table.snapshot.changelog
    assert (changelog.entries, len(changelog.manifests)) == ((), 1)
    assert table.scan_changes(0).count() == 2_000
    assert table.remove_orphan_files(older_than=AT_ONCE).paths == ()
    assert table.verify(data=True).ok
    upsert(table, (1, 1))
    table.expire_snapshots(older_than=AT_ONCE, retain_last=1)
    assert not table.store.exists(changelog.manifests[0].path)


@pytest.mark.parametrize(
    ("properties", "match"),
    [
        ({"changelog_producer": "lookups"}, "lookup"),
        ({"changelog_producer": "input", "merge_engine": "first_row"}, "first_row"),
        (
            {"changelog_producer": "full_compaction", "deletion_vectors.enabled": "true"},
            "changelog_producer=lookup",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(table_path, properties, match):
    with pytest.raises(InvalidArgumentError, match=match):
        made(table_path, **properties)


def test_the_columns_and_types_of_the_end_are_read(table_path):
    table = made(table_path, changelog_producer="lookup")
    upsert(table, (1, 1))
    table.compact()
    table.rename_column("v", "value")
    table.add_columns({"new": pa.int8()}, defaults={"new": 7})
    changes = table.scan_changes(0, columns=["new", "value"]).to_arrow()
    assert changes.column_names[:2] == ["new", "value"]
    assert changes.to_pydict()["new"] == [7]
    assert table.scan_changes(0, columns=["s"], filter="value = 1").count() == 1


# Any history.


def state(table: Table, snapshot_id: int | None = None) -> dict[int, Any]:
    rows = table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
    return {row["k"]: row for row in rows}


def replayed(table: Table, first: int, last: int) -> dict[int, Any]:
    changes = table.scan_changes(first, last).to_arrow().to_pylist()
    return after_changes(state(table, first), changes)


def after_changes(before: dict[int, Any], changes: list[dict[str, Any]]) -> dict[int, Any]:
    """Return the state after some changes, each of which has to fit the state before it."""
    now = dict(before)
    for each in changes:
        row = {name: value for name, value in each.items() if not name.startswith("_c")}
        if each["_change_type"] in ("delete", "update_preimage"):
            assert now.pop(row["k"]) == row
        else:
            assert row["k"] not in now
            now[row["k"]] = row
    return now


def check_all_intervals(table: Table) -> None:
    states = {each.id: state(table, each.id) for each in table.snapshots()}
    for first, last in combinations(states, 2):
        assert replayed(table, first, last) == states[last], (first, last)
    first, last = min(states), max(states)
    differences = table.diff(first, last).rows().to_arrow().to_pylist()
    assert after_changes(states[first], differences) == states[last]


def rows_of(engine: Engine) -> st.SearchStrategy[Any]:
    row = {name: st.sampled_from(values) for name, (_, values) in VALUES.items()}
    kinds = st.sampled_from(engine.kinds)
    rows = st.fixed_dictionaries({"k": st.integers(0, 5), "kind": kinds, **row})
    return st.lists(rows, min_size=1, max_size=6)


def change(table: Table, operation: Any, producer: str) -> None:
    match operation:
        case "compact" | "full":
            table.compact(full=operation == "full")
        case "late":
            base, tasks = table.refresh(), table.plan_compaction()
            table.upsert({"k": [0, 6], "a": [1, 2]})
            table.commit_compaction([compact_group(task) for task in tasks], base)
        case "restore":
            table.restore(table.snapshot.id // 2)
        case "overwrite":
            table.overwrite(table.scan().to_arrow().slice(0, 2))
        case "set":
            table.set_properties({"changelog_producer": producer})
        case rows:
            columns = pa.schema([*WIDE, ("kind", pa.string())])
            table.upsert(pa.Table.from_pylist(rows, schema=columns), change_type="kind")


OPERATIONS = ["compact", "compact", "full", "late", "restore", "overwrite", "set"]


def check_random_history(folder: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(ENGINES)))
    producers = PRODUCERS[:1] if name.startswith("first") else PRODUCERS
    producer = data.draw(st.sampled_from(producers))
    properties = {
        **ENGINES[name].properties,
        "bucket": "2",
        "changelog_producer": data.draw(st.sampled_from([producer, producer, "none"])),
        "changelog_producer.row_deduplicate": data.draw(st.sampled_from(["true", "false"])),
        "num_sorted_run.compaction_trigger": data.draw(st.sampled_from(["1", "2", "4"])),
    }
    if producer == "lookup":
        marks = data.draw(st.sampled_from(["true", "false"]))
        properties["deletion_vectors.enabled"] = marks
        if marks == "true":
            merges = data.draw(st.sampled_from(["true", "false"]))
            properties["deletion_vectors.merge_on_read"] = merges
    table = made(folder / "t", WIDE, **properties)
    step = rows_of(ENGINES[name]) | st.sampled_from(OPERATIONS)
    for operation in data.draw(st.lists(step, min_size=3, max_size=8)):
        change(table, operation, producer)
    check_all_intervals(table)
    assert table.verify().ok


@pytest.mark.long
@given(data=st.data())
@settings(max_examples=5)
def test_replayed_changes_lead_from_any_state_to_any_later_one(tmp_path_factory, data):
    check_random_history(tmp_path_factory.mktemp("changes"), data)


@pytest.mark.slow
@given(data=st.data())
def test_replayed_changes_lead_from_any_state_to_any_later_one_in_many_histories(
    tmp_path_factory, data
):
    check_random_history(tmp_path_factory.mktemp("changes"), data)


@pytest.mark.parametrize("producer", PRODUCERS)
def test_the_check_of_intervals_notices_a_wrong_row_before(table_path, monkeypatch, producer):
    """It fails if a changelog is made as if there had been no rows before."""

    def emptied(snapshot: Snapshot, entries: Any, name: str) -> Snapshot:
        return state_of(snapshot, () if name == "before" else entries, name)

    state_of = tree_changelog.state_of
    table = made(table_path, changelog_producer=producer)
    for number in range(3):
        upsert(table, (1, number), (number + 2, 0))
        table.compact(full=True)
    check_all_intervals(table)
    monkeypatch.setattr(tree_changelog, "state_of", emptied)
    upsert(table, (1, 7))
    table.compact(full=True)
    with pytest.raises(AssertionError):
        check_all_intervals(table)
