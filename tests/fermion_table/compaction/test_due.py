"""Compactions that are due by time or by commits, in tables whose runs are few."""

from __future__ import annotations

import time
from datetime import timedelta

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from tests.kit.tables.runs import levels, shown, table_of, write_run
from tests.kit.tables.trees import key_of

FEW = {"bucket": "1", "num_sorted_run.compaction_trigger": "4"}
TREE = ((), 0)


def written(path, properties: dict[str, str]) -> Table:
    return table_of(path, {**FEW, **properties})


def write(table: Table, k: int = 1) -> None:
    write_run(table, [{"k": k, "v": table.snapshot.id}, {"k": 0}, {"k": 9}])


def levels_after(table: Table, **options) -> list[int]:
    """Compact once; whatever that does, rows stay."""
    before = shown(table)
    table.compact(threads=1, **options)
    assert shown(table) == before
    return levels(table).get(TREE, [])


@pytest.fixture
def clock(monkeypatch):
    """Let the time be what `clock.append` says last, in milliseconds."""
    now = [1_000_000_000_000]
    monkeypatch.setattr(time, "time_ns", lambda: now[-1] * 1_000_000)
    return now


def test_a_tree_is_merged_fully_once_the_interval_has_passed(tmp_path, clock):
    """By the times of its files alone: also where a file moved up as it is."""
    table = written(tmp_path / "t", {"compaction.optimization_interval": "1 h"})
    write(table)
    assert levels_after(table) == [0]  # one run is never merged by time
    write(table)
    assert levels_after(table) == [4]  # there was none yet
    for later, found in [(0, [0, 4]), (3_600_000, [0, 0, 4]), (1, [4])]:
        clock.append(clock[-1] + later)
        write(table)
        assert levels_after(table) == found


def test_files_that_moved_up_count_with_the_time_when_they_were_written(tmp_path, clock):
    settings = {"compaction.optimization_interval": "10s", "target_file_size": "1"}
    table = written(tmp_path / "t", settings)
    write_run(table, [{"k": 1}])
    clock.append(clock[-1] + 5_000)
    write_run(table, [{"k": 2}])
    assert table.compact().files_upgraded == 2
    clock.append(clock[-1] + 10_000)
    write_run(table, [{"k": 3}])
    assert levels_after(table) == [0, 4, 4]
    clock.append(clock[-1] + 1)
    assert levels_after(table) == [4, 4, 4]


@pytest.mark.parametrize("commits", [1, 3])
def test_a_table_is_merged_fully_after_so_many_commits(tmp_path, commits):
    """Compactions and changes of the schema do not count; a run alone is moved up, too."""
    table = written(tmp_path / "t", {"full_compaction.delta_commits": str(commits)})
    for n in range(1, 3 * commits + 1):
        write(table, n)
        table.set_properties({"a.note": str(n)})
        is_full = n % commits == 0
        assert set(levels_after(table)) == ({4} if is_full else {0} if n < commits else {0, 4})
        assert table.compact().groups == 0


def test_commits_count_in_every_tree_and_after_expiry(tmp_path):
    """A tree that one commit changed is due after others, though their snapshots are gone."""
    table = written(tmp_path / "t", {"full_compaction.delta_commits": "4", "bucket": "2"})
    for _ in range(2):
        write_run(table, [{"k": k} for k in range(8)])
    assert set(levels(table)) == {TREE, ((), 1)}
    table.compact(full=True)
    keys = pa.record_batch({"k": list(range(8))})
    buckets = key_of(table).buckets(keys).tolist()
    write_run(table, [{"k": buckets.index(0)}])
    for _ in range(2):
        write_run(table, [{"k": buckets.index(1)}])
    table.expire_snapshots(older_than=timedelta(days=-1), retain_last=1)
    assert table.compact().groups == 0
    write_run(table, [{"k": buckets.index(1)}])
    assert table.compact().groups == 2
    assert levels(table) == {TREE: [4], ((), 1): [4]}


def test_level_0_waits_for_so_many_commits_where_lookups_are_gentle(tmp_path):
    gentle = {"lookup_compact": "gentle", "lookup_compact.max_interval": "3"}
    table = written(tmp_path / "t", {"force_lookup": "true", **gentle})
    for _ in range(2):
        for found in ([0], [0, 0], [4]):
            write(table)
            newer = [level for level in levels_after(table) if level < 4]
            assert newer == [level for level in found if level < 4]
    table.set_properties({}, remove=list(gentle))
    write(table)
    assert 0 not in levels_after(table)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lookup_compact": "gentle"}, "expected one of force_lookup=true"),
        ({"force_lookup": "true", "lookup_compact": "soft"}, "expected one of radical, gentle"),
        ({"force_lookup": "1"}, "force_lookup='1': expected true or false"),
        (
            {"force_lookup": "true", "lookup_compact.max_interval": "3"},
            "max_interval: is for lookup_compact=gentle",
        ),
        (
            {
                "force_lookup": "true",
                "lookup_compact": "gentle",
                "lookup_compact.max_interval": "0",
            },
            "expected a number from 1 to",
        ),
        ({"full_compaction.delta_commits": "0"}, "expected a number from 1 to"),
        ({"compaction.optimization_interval": "10"}, "expected a number and a unit"),
        ({"compaction.optimization_interval": "0 s"}, "is not a duration"),
        ({"compaction.optimization_interval": "1 month"}, "is not a duration"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path, settings, message):
    with pytest.raises(InvalidArgumentError, match=message):
        written(tmp_path / "t", settings)
