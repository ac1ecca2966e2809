"""Compaction with deletion vectors: what newer rows replace is marked, so that levels read raw."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermion_table import Table
from fermion_table.engine import FileSplit
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.storage.paths import unique_name

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
MARKING = {"deletion_vectors.enabled": "true", "num_sorted_run.compaction_trigger": "3"}
MANY = 20_000
KEYS = st.lists(st.integers(0, 40), min_size=1, max_size=20)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), KEYS),
        st.tuples(st.just("upsert"), KEYS),
        st.tuples(st.just("delete_keys"), KEYS),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("compact"), st.booleans()),
        st.tuples(st.just("compact"), st.just(False)),
    ),
    max_size=9,
)


def make(path: Any, **properties: str) -> Table:
    """Return a new table whose compactions mark what they replace."""
    return Table.create(
        path, SCHEMA, primary_key="k", properties=MARKING | properties, durability="fast"
    )


def rows_of(table: Table, **options: Any) -> dict[int, int]:
    """Return what a scan shows, by key."""
    found = table.scan(**options).to_arrow().to_pylist()
    assert len(found) == len({row["k"] for row in found}) == table.scan(**options).count()
    return {row["k"]: row["v"] for row in found}


@pytest.mark.long
@settings(deadline=None, max_examples=20)
@given(STEPS, st.sampled_from(["300B", "10MB"]), st.sampled_from(["1", "2"]))
def test_every_snapshot_shows_what_it_should(steps, target, buckets):
    table = make(f"memory://marked-{unique_name()}", target_file_size=target, bucket=buckets)
    model: dict[int, int] = {}
    states = {0: dict(model)}
    for number, (step, given_keys) in enumerate(steps):
        if step == "compact":
            table.compact(full=given_keys)
            settled = [entry.level > 0 for entry in live_entries(table.store, table.snapshot)]
            assert all(settled)  # level 0 never waits for more runs
            assert all(isinstance(split, FileSplit) for split in table.scan().plan().splits)
            assert rows_of(table, mode="read_optimized") == model
        elif step == "upsert":
            table.upsert({"k": given_keys, "v": [number] * len(given_keys)})
            model.update(dict.fromkeys(given_keys, number))
        else:
            if step == "delete_keys":
                table.delete_keys(given_keys)
            else:
                table.delete(f"k IN ({', '.join(map(str, given_keys))})")
            model = {key: value for key, value in model.items() if key not in given_keys}
        states[table.snapshot.id] = dict(model)
    for snapshot_id, expected in states.items():
        assert rows_of(table, snapshot_id=snapshot_id) == expected
        found = table.lookup(list(range(41)), snapshot_id=snapshot_id).to_pylist()
        assert {row["k"]: row["v"] for row in found} == expected
    assert rows_of(table, filter="v > 3") == {k: v for k, v in model.items() if v > 3}
    assert table.verify(data=True).ok


def test_large_files_stay_and_get_vectors(table_path):
    table = make(table_path)
    table.upsert({"k": range(MANY), "v": [each**5 % 99991 for each in range(MANY)]})
    table.compact(full=True)
    (before,) = live_entries(table.store, table.snapshot)
    table.upsert({"k": [5, 6, MANY], "v": [1, 1, 1]})
    table.delete_keys([7])
    result = table.compact()
    files = {entry.level: entry for entry in live_entries(table.store, table.snapshot)}
    assert len(files) == 2
    assert files[before.level].file == before.file
    assert files[before.level].delete_rows == 3
    assert all(entry.retractions == 0 for entry in files.values())
    assert result.files_after == 1
    assert table.scan().count() == MANY
    assert table.snapshot.totals.rows_deleted == 3


def test_a_file_that_loses_all_rows_goes(table_path):
    table = make(table_path)
    table.upsert({"k": range(9), "v": [0] * 9})
    table.compact(full=True)
    table.delete_keys(list(range(9)))
    table.compact()
    assert table.snapshot.totals.files == 0
    assert table.scan().count() == 0


def test_of_two_compactions_that_mark_the_same_file_one_stands(table_path):
    table = make(table_path)
    values = [each**5 % 99991 for each in range(MANY)]
    table.upsert({"k": range(MANY), "v": values})
    table.compact(full=True)
    table.upsert({"k": range(10), "v": [1] * 10})
    base, tasks = table.snapshot, table.plan_compaction()
    messages = [task.rewrite() for task in tasks]
    table.upsert({"k": range(5, 15), "v": [2] * 10})
    assert Table.open(table_path).compact().groups_dropped == 0
    result = table.commit_compaction(messages, base)
    assert result.groups_dropped == 1
    expected = {k: 1 if k < 5 else 2 if k < 15 else values[k] for k in range(MANY)}
    assert rows_of(table) == expected
    vectors = {path.name for path in (table_path / "deletion").iterdir()}
    live = live_entries(table.store, table.snapshot)
    named = {each.deletion_vector.path for each in live if each.deletion_vector}
    assert len(named) == 1
    assert vectors == {path.removeprefix("deletion/") for path in named}


def test_a_table_with_rows_stops_marking_and_does_not_begin_again(table_path):
    table = make(table_path)
    for step in range(4):
        table.upsert({"k": range(step, 9), "v": [step] * (9 - step)})
        table.compact(full=step == 0)
        if step == 2:
            table.set_properties({"deletion_vectors.enabled": "false"})
    expected = {key: min(key, 3) for key in range(9)}
    assert rows_of(table) == expected
    table.compact(full=True)
    assert rows_of(table) == rows_of(table, mode="read_optimized") == expected
    with pytest.raises(ValueError, match=r"deletion_vectors\.enabled can't change from false"):
        table.set_properties({"deletion_vectors.enabled": "true"})
