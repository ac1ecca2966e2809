"""Deletions of tables with sequence fields, which compaction forgets after a time that is set."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table

SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("v", pa.int64())])
LATE = 10
"""Seconds by which a row may arrive after its own time, and after which deletions are forgotten."""
FORGETS = {
    "sequence.deletion_expire_time": f"{LATE} s",
    "sequence.deletion_time_type": "seconds_long",
}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time in seconds is what is last in the list."""
    now = [1_000]
    monkeypatch.setattr(time, "time_ns", lambda: now[-1] * 1_000_000_000)
    return now


def table_of(path: Path, **properties: str) -> Table:
    settings = {"bucket": "1", "sequence.field": "at", **properties}
    return Table.create(path, SCHEMA, primary_key="k", properties=settings, durability="fast")


def change(table: Table, key: int, at: int, value: int | None) -> None:
    """Write a row; a deletion where the value is None."""
    row: dict[str, Any] = {"k": [key], "at": [at], "v": [value], "kind": ["+U"]}
    if value is None:
        row["kind"] = ["-D"]
    table.upsert(row, change_type="kind")


def markers(table: Table) -> int:
    return sum(entry.retractions for entry in table.scan().entries[0])


def shown(table: Table) -> dict[int, int]:
    rows = table.scan().to_arrow()
    return dict(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("vectors", ["false", "true"])
def test_forgotten_deletions_change_nothing_while_no_row_is_later_than_the_time(
    table_path: Path, clock: list[int], seed: int, vectors: str
) -> None:
    """Against a plain dict of the newest change of each key; compactions come at any moment."""
    choice = random.Random(seed)
    table = table_of(table_path, **FORGETS, **{"deletion_vectors.enabled": vectors})
    newest: dict[int, tuple[int, int | None]] = {}
    for number in range(25):
        clock.append(clock[-1] + choice.randrange(6))
        key, at = choice.randrange(6), clock[-1] - choice.randrange(LATE)
        value = None if choice.random() < 0.5 else number
        change(table, key, at, value)
        if at >= newest.get(key, (0, None))[0]:
            newest[key] = at, value
        if choice.random() < 0.4:
            table.compact(full=choice.random() < 0.7)
        model = {key: value for key, (_, value) in newest.items() if value is not None}
        assert shown(table) == model
    clock.append(clock[-1] + LATE + 1)
    table.upsert({"k": [99], "at": [clock[-1]], "v": [1]})
    table.compact(full=True)
    assert markers(table) == 0
    assert shown(table) == {**model, 99: 1}
    assert table.verify(data=True).ok


def test_without_the_setting_deletions_stay_and_hide_rows_however_late(
    table_path: Path, clock: list[int]
) -> None:
    table = table_of(table_path)
    change(table, 1, 1_000, None)
    clock.append(10**9)
    table.compact(full=True)
    assert markers(table) == 1
    change(table, 1, 999, 5)
    assert shown(table) == {}


def test_a_row_that_comes_after_the_time_comes_back(table_path: Path, clock: list[int]) -> None:
    """As documented: nothing is left that says that it was deleted."""
    table = table_of(table_path, **FORGETS)
    change(table, 1, 1_000, None)
    table.compact(full=True)
    assert markers(table) == 1
    clock.append(1_000 + LATE + 1)
    table.compact(full=True)
    assert (markers(table), table.snapshot.totals.rows) == (0, 0)
    change(table, 1, 999, 5)
    assert shown(table) == {1: 5}


def test_a_compaction_that_leaves_older_runs_forgets_nothing(
    table_path: Path, clock: list[int]
) -> None:
    """The deletion hides a row of the oldest run, which is not rewritten."""
    table = table_of(table_path, **FORGETS, **{"num_sorted_run.compaction_trigger": "2"})
    table.upsert({"k": range(5000), "at": [900] * 5000, "v": range(5000)})
    table.compact(full=True)
    change(table, 1, 950, None)
    clock.append(2_000)
    for key in (3, 4):
        change(table, key, 1_990, 7)
        table.compact()
    assert 1 not in shown(table)
    table.compact(full=True)
    assert markers(table) == 0
    assert 1 not in shown(table)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"sequence.deletion_expire_time": "10 s"}, "expected a timestamp or a date, or"),
        ({**FORGETS, "sequence.deletion_time_type": "date"}, "expected seconds_long or"),
        ({"sequence.deletion_time_type": "date"}, "there is no sequence.deletion_expire_time"),
        ({**FORGETS, "sequence.field.sort_order": "descending"}, "ascending"),
        ({**FORGETS, "sequence.deletion_expire_time": "soon"}, "is not a duration"),
    ],
)
def test_a_field_that_may_be_no_time_is_refused(
    table_path: Path, properties: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        table_of(table_path, **properties)


def test_a_table_without_sequence_fields_needs_no_such_setting(table_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="expected merge_engine=deduplicate"):
        Table.create(table_path, SCHEMA, primary_key="k", properties=FORGETS)
