"""Rows that expire: compaction removes them, and never shows an older row in their place."""

from __future__ import annotations

import random
import time
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from fermion_table.schema.key_options import RecordExpiry
from tests.kit.tables.engines import ENGINES, rows_for
from tests.kit.tables.runs import (
    entries,
    expected,
    levels,
    shown,
    table_of,
    write_run,
)

EXPIRES = {"record_level.expire_time": "1 s", "record_level.time_field": "p"}
OLDEST = 3
"""The time of the oldest row that is not expired once the clock has moved on."""


@pytest.fixture
def clock(monkeypatch):
    """Let the time be what is last in the list, in seconds: first one where no row is expired."""
    now = [1]
    monkeypatch.setattr(time, "time_ns", lambda: now[-1] * 1_000_000_000)
    return now


def fresh(rows: list[dict]) -> list[dict]:
    """Rows that are not expired at the later time."""
    return [row for row in rows if row["p"] is None or row["p"] >= OLDEST]


@pytest.mark.parametrize("engine", ENGINES)
def test_only_expired_rows_go_whatever_the_engine_and_the_compactions_before(
    engine, tmp_path, clock
):
    """Against the model of each engine; what is not expired never changes."""
    properties, kinds = ENGINES[engine]
    choice = random.Random(engine)
    vectors = {"deletion_vectors.enabled": choice.choice(["true", "false"])}
    table = table_of(tmp_path / "t", {**properties, **EXPIRES, **vectors, "bucket": "1"})
    written: list[dict] = []
    for _ in range(4):
        written += (rows := rows_for(choice, kinds, choice.randrange(2, 8)))
        write_run(table, rows)
        if choice.random() < 0.5:
            table.compact(full=choice.random() < 0.3)
        assert shown(table) == expected(table, written)
    clock.append(OLDEST + 1)
    assert shown(table) == expected(table, written)
    table.compact()
    assert fresh(shown(table)) == fresh(expected(table, written))
    written += (rows := [{"k": 100, "p": 9, "s": 9, "v": 9, "_kind": "+I"}])
    write_run(table, rows)
    table.compact(full=True)
    assert shown(table) == fresh(expected(table, written))
    assert table.verify(data=True).ok


@pytest.mark.parametrize(
    "properties", [{}, {"deletion_vectors.enabled": "true"}, {"sequence.field": "p"}], ids=str
)
@pytest.mark.parametrize("seed", range(2))
def test_no_older_row_comes_back_in_place_of_an_expired_one(properties, seed, tmp_path, clock):
    """Rows may be old when they are written: what is not expired agrees with the model always."""
    clock.append(OLDEST + 1)
    table = table_of(tmp_path / "t", {**EXPIRES, **properties, "bucket": "1"})
    choice = random.Random(seed)
    written: list[dict] = []
    for _ in range(10):
        rows = rows_for(choice, ["+I", "+I", "-D"], choice.randrange(1, 4))
        written += (rows := [{**row, "p": row["p"] or 0, "k": row["k"] % 5} for row in rows])
        write_run(table, rows)
        assert fresh(shown(table)) == fresh(expected(table, written))
        table.compact(full=choice.random() < 0.2)
        assert fresh(shown(table)) == fresh(expected(table, written))
    write_run(table, [{"k": 7, "p": 9}])
    table.compact(full=True)
    assert shown(table) == [
        *fresh(expected(table, written)),
        {"k": 7, "p": 9, "s": None, "v": None},
    ]


def test_a_file_alone_is_rewritten_only_where_it_is_known_to_hold_expired_rows(tmp_path, clock):
    """By the statistics of the time field, which are kept however many columns come before it."""
    columns = [("k", pa.int64()), *((f"c{n}", pa.int64()) for n in range(40)), ("p", pa.int64())]
    table = Table.create(
        tmp_path / "t",
        pa.schema(columns),
        primary_key=["k"],
        properties={**EXPIRES, "target_file_size": "1"},
    )
    for k, p in [(1, 1), (2, 5), (3, None), (4, 2)]:
        table.upsert({"k": [k], "p": [p]})
    clock.append(OLDEST + 1)
    result = table.compact(full=True)
    assert (result.files_upgraded, result.files_before, result.files_after) == (2, 2, 0)
    assert [row["k"] for row in shown(table)] == [2, 3]
    clock.append(100)
    assert table.compact().groups == 0
    assert table.compact(full=True).files_before == 1
    assert [row["k"] for row in shown(table)] == [3]
    assert table.compact(full=True).groups == 0
    assert table.scan(snapshot_id=4).count() == 4


def test_expired_rows_stay_above_older_rows(tmp_path, clock):
    """A compaction that leaves the oldest run alone keeps even files that are all expired."""
    table = table_of(tmp_path / "t", {"bucket": "1"})
    choice = random.Random(0)
    many = [{"k": k, "p": 9, "v": choice.randrange(2**62)} for k in range(1_000)]
    write_run(table, many)
    table.compact(full=True)
    for _ in range(3):
        write_run(table, [{"k": k, "p": 1} for k in (1, 2)])
    table.set_properties(EXPIRES)
    clock.append(OLDEST + 1)
    before = shown(table)
    table.compact()
    assert levels(table) == {((), 0): [1, 2]}
    assert shown(table) == before
    table.compact(full=True)
    assert shown(table) == fresh(before)
    assert len(entries(table)) == 1


NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("dtype", "kind", "old", "young"),
    [
        (pa.timestamp("s"), "timestamp", datetime(2026, 5, 3, 11, 59, 59), NOW.replace(day=3)),
        (pa.timestamp("us", "Asia/Tokyo"), "timestamp", datetime(2026, 5, 3, tzinfo=UTC), NOW),
        (pa.timestamp("ns"), "timestamp", datetime(2026, 5, 3, 11, 59, 59, 999_999), NOW),
        (pa.date32(), "date", date(2026, 5, 3), date(2026, 5, 4)),
        (pa.int32(), "seconds_int", 1_777_809_599, 1_777_809_600),
        (pa.int64(), "seconds_long", 1_777_809_599, 1_777_809_600),
        (pa.int64(), "millis-long", 1_777_809_599_999, 1_777_809_600_000),
    ],
)
def test_times_of_every_type_expire(tmp_path, monkeypatch, dtype, kind, old, young):
    """After a day; without a zone a time is UTC, and a date begins at midnight."""
    monkeypatch.setattr(time, "time_ns", lambda: int(NOW.timestamp()) * 1_000_000_000)
    schema = pa.schema([("k", pa.int64()), ("at", dtype)])
    table = Table.create(
        tmp_path / "t",
        schema,
        primary_key=["k"],
        properties={
            "record-level.expire-time": "1 d",
            "record-level.time-field": "at",
            "record-level.time-field-type": kind,
        },
    )
    times = [
        value.replace(tzinfo=None) if dtype == pa.timestamp("s") and value is young else value
        for value in (old, young, None)
    ]
    table.upsert(pa.table({"k": [1, 2, 3], "at": pa.array(times, dtype)}))
    table.compact(full=True)
    assert [row["k"] for row in shown(table)] == [2, 3]


def test_limits_beyond_what_a_column_holds_are_no_error():
    expiry = RecordExpiry("at", 10**12)
    assert expiry.limit(pa.int64(), 0) == -(10**9)
    assert expiry.limit(pa.timestamp("ns"), 0) == -(10**18)
    assert expiry.limit(pa.date32(), 10**12 + 1) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"expire_time": "1 d"}, "expire_time: expected record_level.time_field"),
        ({"time_field": "p"}, "time_field: there is no record_level.expire_time"),
        ({"time_field_type": "date"}, "time_field_type: there is no record_level.expire_time"),
        ({"expire_time": "1", "time_field": "p"}, "expected a number and a unit"),
        ({"expire_time": "1 d", "time_field": "q"}, "column 'q' is not in the schema"),
        ({"expire_time": "1 d", "time_field": "name"}, "'name' is string, expected a timestamp"),
        (
            {"expire_time": "1 d", "time_field": "p", "time_field_type": "date"},
            "column 'p' is int64, expected seconds_long or millis_long",
        ),
        (
            {"expire_time": "1 d", "time_field": "p", "time_field_type": "second"},
            "expected one of seconds_int",
        ),
        ({"expire_time": "1 d", "time_field": "p", "time_fields": "p"}, "is not known here"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path, settings, message):
    schema = pa.schema([("k", pa.int64()), ("p", pa.int64()), ("name", pa.string())])
    properties = {f"record_level.{name}": value for name, value in settings.items()}
    with pytest.raises(InvalidArgumentError, match=message):
        Table.create(tmp_path / "t", schema, primary_key=["k"], properties=properties)


def test_the_time_field_can_not_be_dropped(tmp_path):
    table = table_of(tmp_path / "t", EXPIRES)
    with pytest.raises(InvalidArgumentError, match="column 'p' is not in the schema"):
        table.drop_columns("p")
