"""Streams of tables: a snapshot, then its changes, in the order of each key."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from fermion_table import Table
from tests.flink.environment import use_catalog

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

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


def wait_for(table: Table, consumer: str, snapshot_id: int = 0, seconds: float = 60) -> None:
    """Wait until a stream has begun, or until a checkpoint says how far it has come."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if any(c.name == consumer and c.snapshot_id >= snapshot_id for c in table.consumers.list()):
            return
        time.sleep(0.1)
    raise TimeoutError(f"consumer {consumer!r} is not at snapshot {snapshot_id}")


def test_a_stream_has_the_snapshot_first_and_then_each_change_with_its_kind(
    flink, warehouse, keyed
):
    """The changes are committed while the stream runs."""
    query = f"SELECT k, v FROM keyed {hint(consumer='report')}"
    flink.send(*use_catalog(warehouse), query, batch=False, settings=ONE, rows_max=7)
    wait_for(keyed, "report")
    keyed.upsert({"k": [1], "v": [11]})
    keyed.delete("k = 3")
    keyed.upsert({"k": [4], "v": [40]})
    rows = flink.rows(seconds=90)
    state = {}
    for kind, (k, v) in rows:
        if kind in ("-U", "-D"):
            assert state.pop(k) == v
        else:
            assert k not in state
            state[k] = v
    assert state == {1: 11, 2: 21, 4: 40}
