"""Streams of tables: a snapshot, then its changes, in the order of each key."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fermion_table import Table
from tests.flink.environment import FlinkError, use_catalog, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

ONE = {"parallelism.default": "1"}


def in_catalog(warehouse: str, name: str) -> str:
    return f"{warehouse}/default/{name}"


@pytest.fixture
def keyed(warehouse: str) -> Table:
    """Three keys, of which one was updated."""
    table = Table.create(
        in_catalog(warehouse, "keyed"),
        pa.schema([("k", pa.int64()), ("v", pa.int64())]),
        primary_key=["k"],
        properties={"bucket": "2"},
    )
    table.upsert({"k": [1, 2, 3], "v": [10, 20, 30]})
    table.upsert({"k": [2], "v": [21]})
    return table


def hint(consumer: str | None = None, **options: str) -> str:
    """Options of a table in a statement; the stream looks for snapshots often."""
    options = {"scan.poll_interval": "100 ms", **options}
    if consumer is not None:
        options["consumer_id"] = consumer
    listed = ", ".join(f"'{name.replace('_', '-')}' = '{text}'" for name, text in options.items())
    return f"/*+ OPTIONS({listed}) */"


def test_a_stream_has_the_snapshot_first_and_then_each_change_with_its_kind(
    flink, warehouse, keyed
):
    """The changes are committed while the stream runs."""
    query = f"SELECT k, v FROM keyed {hint(consumer='report')}"
    flink.send(*use_catalog(warehouse), query, batch=False, settings=ONE, rows_max=7)
    wait_until(
        lambda: any(each.name == "report" for each in keyed.consumers.list()),
        "the stream has not begun",
        flink,
    )
    keyed.upsert({"k": [1], "v": [11]})
    keyed.delete("k = 3")
    keyed.upsert({"k": [4], "v": [40]})
    rows = flink.rows()
    state = {}
    for kind, (k, v) in rows:
        if kind in ("-U", "-D"):
            assert state.pop(k) == v
        else:
            assert k not in state
            state[k] = v
    assert state == {1: 11, 2: 21, 4: 40}


def test_a_new_job_goes_on_where_its_consumer_was_although_older_snapshots_expired(
    flink, warehouse, keyed
):
    """The consumer keeps the snapshot that it has read; those before it expire."""
    keyed.consumers.record("report", version=1)
    keyed.upsert({"k": [2], "v": [22]})
    keyed.expire_snapshots(older_than="0 s", retain_last=1)
    query = f"SELECT k, v FROM keyed {hint(consumer='report')}"
    rows = flink.sql(*use_catalog(warehouse), query, batch=False, settings=ONE, rows_max=4)
    assert rows == [
        ("-U", (2, 20)),
        ("+U", (2, 21)),
        ("-U", (2, 21)),
        ("+U", (2, 22)),
    ]


def test_what_a_stream_can_not_do_is_an_error_that_says_what_can(flink, warehouse, keyed):
    """A position that has expired, deletions of an append table, options of streams in a batch."""
    plain = Table.create(in_catalog(warehouse, "plain"), {"k": [1, 2]})
    plain.delete("k = 1")
    keyed.expire_snapshots(older_than="0 s", retain_last=1)
    wrong = {
        "scan.mode' = 'from-snapshot', 'scan.snapshot-id' = '1": ("keyed", "no snapshot 1"),
        "scan.mode' = 'from-snapshot', 'scan.snapshot-id' = '0": ("plain", "snapshot 2 deleted"),
        "scan.mode' = 'late": ("keyed", "expected one of .latest-full, latest, from-snapshot"),
        "scan.mode' = 'from-snapshot": ("keyed", "say which one"),
        "scan.deletes' = 'drop": ("plain", "expected one of .fail, ignore, emit"),
    }
    for options, (table, message) in wrong.items():
        query = f"SELECT k FROM {table} /*+ OPTIONS('{options}') */"
        with pytest.raises(FlinkError, match=message):
            flink.sql(*use_catalog(warehouse), query, batch=False, rows_max=9)
    query = f"SELECT k FROM keyed {hint(consumer='report')}"
    with pytest.raises(FlinkError, match="'consumer-id' is for streams"):
        flink.sql(*use_catalog(warehouse), query)
    assert keyed.consumers.list() == []


def test_deletions_of_an_append_table_are_rows_of_a_stream_that_asks_for_them(flink, warehouse):
    plain = Table.create(in_catalog(warehouse, "plain"), {"k": [1, 2]})
    plain.delete("k = 1")
    options = {"scan.mode": "from-snapshot", "scan.snapshot_id": "0", "scan.deletes": "emit"}
    query = f"SELECT k FROM plain {hint(**options)}"
    rows = flink.sql(*use_catalog(warehouse), query, batch=False, settings=ONE, rows_max=3)
    assert rows == [("+I", (1,)), ("+I", (2,)), ("-D", (1,))]
