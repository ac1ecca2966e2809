"""The kit of these tests: statements, values, kinds of rows, errors, and processes that end."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from tests.flink.environment import FlinkError, flink_process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def plain_flink(tmp_path_factory):
    """Flink without the connector."""
    with flink_process(tmp_path_factory.mktemp("plain")) as process:
        yield process


def test_values_of_flink_arrive_as_they_are(plain_flink):
    """In batch mode, one of each type that JSON does not have, nested ones too.

    PyFlink drops fractions of seconds: where they count, statements cast to STRING.
    """
    [(kind, row)] = plain_flink.sql(
        "SELECT CAST(1.50 AS DECIMAL(5, 2)), DATE '2026-01-02', TIME '03:04:05', "
        "TIMESTAMP '2026-01-02 03:04:05', X'00ff', ARRAY[1, 2], MAP['a', 1], "
        "ROW(1, 'b'), CAST(NULL AS STRING)"
    )
    assert kind == "+I"
    assert row == (
        Decimal("1.50"),
        dt.date(2026, 1, 2),
        dt.time(3, 4, 5),
        dt.datetime(2026, 1, 2, 3, 4, 5),
        b"\x00\xff",
        [1, 2],
        {"a": 1},
        (1, "b"),
        None,
    )


def test_rows_of_streams_have_their_kinds(plain_flink):
    """A count by key, updated by a second row of the key."""
    rows = plain_flink.sql(
        "CREATE TEMPORARY VIEW given AS SELECT * FROM (VALUES ('a'), ('a')) AS t (name)",
        "SELECT name, count(*) FROM given GROUP BY name",
        batch=False,
        settings={"parallelism.default": "1"},
    )
    assert rows == [("+I", ("a", 1)), ("-U", ("a", 1)), ("+U", ("a", 2))]


def test_an_endless_stream_is_cancelled_after_so_many_rows(plain_flink):
    """And the process answers the next request."""
    rows = plain_flink.sql(
        "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', "
        "'fields.n.min' = '7', 'fields.n.max' = '8', 'rows-per-second' = '100')",
        "SELECT n FROM numbers",
        batch=False,
        settings={"parallelism.default": "1"},
        rows_max=3,
    )
    assert len(rows) == 3
    assert {kind for kind, _ in rows} == {"+I"}
    assert plain_flink.sql("SELECT 1") == [("+I", (1,))]


def test_an_error_of_flink_says_its_cause(plain_flink):
    """And the process answers the next request."""
    with pytest.raises(FlinkError, match="nowhere"):
        plain_flink.sql("SELECT * FROM nowhere")
    assert plain_flink.sql("SELECT 1") == [("+I", (1,))]


def test_a_killed_process_leaves_nothing_behind(tmp_path):
    """Its JVM is in its process group, and ends with it."""
    with flink_process(tmp_path) as process:
        process.sql("SELECT 1")
        assert process.processes()
    assert not process.processes()
