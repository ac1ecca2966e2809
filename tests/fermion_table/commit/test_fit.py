"""Files of trees in commits: which ones fit a later schema, and in which order their runs are."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from fermion_table.commit.fit import misfit
from fermion_table.commit.request import RunNumbers, numbered_in_order
from fermion_table.metadata.manifest import Entry
from tests.kit.tables.trees import keyed_table


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"bucket": "3"}, None),  # the entries say how many buckets there were
        ({"merge-engine": "first_row"}, "merge_engine can't change from 'deduplicate'"),
        ({"sequence.field": "v"}, "sequence.field can't change"),
        ({"ignore_delete": "true"}, "ignore_delete can't change"),
        ({"target_file_size": "1MB"}, None),
        ({"num_sorted_run.compaction_trigger": "7"}, None),
    ],
)
def test_files_fit_as_long_as_their_rows_are_in_the_same_trees(tmp_path, properties, message):
    schema = keyed_table(tmp_path / "t", properties={"bucket": "2"}).schema
    later = msgspec.structs.replace(schema, id=1, properties=schema.properties | properties)
    found = misfit(schema, later, [])
    assert found is None if message is None else message in str(found)


def test_a_key_that_was_only_recorded_is_another_one(tmp_path):
    schema = keyed_table(tmp_path / "t").schema
    recorded = msgspec.structs.replace(schema, properties={})
    assert "merged by a primary key now" in str(misfit(recorded, schema, []))
    assert "merged by a primary key now" in str(misfit(schema, recorded, []))
    wider = msgspec.structs.replace(schema, primary_key=(1, 2))
    assert "another primary key" in str(misfit(schema, wider, []))
    assert misfit(recorded, recorded, []) is None


def entry(offset: int, **values: Any) -> Entry:
    return Entry(
        **{"path": "p", "size": 1, "rows": 1, "bucket": 0, "sequence_offset": offset} | values
    )


def test_runs_of_writers_follow_each_other_in_each_tree():
    first = [entry(0), entry(1), entry(0, bucket=1)]
    second = [entry(0), entry(0), entry(1), entry(0, bucket=2), entry(0, partition=("x",))]
    found = numbered_in_order([first, second, [entry(0), entry(0, bucket=1)]])
    assert [each.sequence_offset for each in found] == [0, 1, 0, 2, 2, 3, 0, 0, 4, 1]


def test_only_runs_of_level_0_that_a_commit_places_get_numbers():
    numbers = RunNumbers()
    numbers.numbered([entry(0), entry(1)])
    others = [
        entry(0, bucket=None),
        entry(0, level=2),
        entry(1, sequence_start=7),
    ]
    assert numbers.numbered(others) == others
    assert numbers.numbered([entry(0)]) == [entry(2)]


def test_tables_without_a_key_have_no_runs(tmp_path):
    table = keyed_table(tmp_path / "t", pa.schema([("k", pa.int64())]), primary_key=None)
    with table.transaction() as changes:
        changes.append({"k": [1]})
        changes.append({"k": [2]})
    assert {each["sequence_number"] for each in table.inspect.files().to_pylist()} == {1}
