"""A key whose sum has no value is an error of its own: others are read, and compaction goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table

MOST = 2**63 - 1
MARKING = {"deletion_vectors.enabled": "true"}
EXPIRING = {"record_level.expire_time": "1 d", "record_level.time_field": "at"}
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("at", pa.timestamp("us"))])
OLD = pa.scalar(0, pa.timestamp("us"))


def make(path: Path, **properties: str) -> Table:
    """Return ten keys of three runs; of 3 and 4 the sums are out of range, and 5 is taken back."""
    settings = {"merge_engine": "aggregation", "fields.v.aggregate_function": "sum", **properties}
    table = Table.create(path, SCHEMA, primary_key="k", properties=settings, durability="fast")
    upsert(table, [(k, MOST if k in (3, 4) else k, "+I") for k in range(10)])
    upsert(table, [(k, 1, "+I") for k in range(10)])
    upsert(table, [(5, 6, "-U"), (3, 2, "-U"), (3, 3, "+U")])
    return table


def upsert(table: Table, rows: list[tuple[int, int, str]]) -> None:
    keys, values, kinds = zip(*rows, strict=True)
    table.upsert({"k": keys, "v": values, "op": kinds}, change_type="op")


def values(table: Table, **words: Any) -> dict[int, int]:
    found = table.scan(columns=["k", "v"], **words).to_arrow()
    return dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


OTHERS = {k: k + 1 for k in range(10) if k not in (3, 4, 5)} | {5: 0}


def check(table: Table) -> None:
    """Only what reads the keys 3 and 4 fails, and says which key it is."""
    for filter in (None, "k = 3", "k >= 4"):
        with pytest.raises(InvalidArgumentError, match=r"key \{'k': [34]\}: the sum is out of"):
            table.scan(filter=filter).to_arrow()
    assert values(table, filter="k < 3 OR k > 4") == OTHERS
    assert table.scan(columns=["k"]).count() == 10
    assert dict(table.lookup([0, 5, 9], columns=["k", "v"]).to_pandas().values.tolist()) == {
        k: OTHERS[k] for k in (0, 5, 9)
    }
    with pytest.raises(InvalidArgumentError, match=r"key \{'k': 4\}"):
        table.lookup([4])
    assert table.verify(data=True).ok


RECORDING = {"changelog_producer": "lookup"}


@pytest.mark.parametrize("properties", [{}, MARKING, EXPIRING, RECORDING], ids=str)
def test_a_sum_that_overflows_keeps_no_other_key_from_being_read_and_compacted(
    properties, table_path
):
    """Also when the bucket is compacted again; a value that is taken back heals the key."""
    table = make(table_path, **properties)
    check(table)
    with pytest.warns(RuntimeWarning, match=r"the rows of 2 keys as they are.*'k': 3.*out of"):
        table.compact(full=True)
    (file,) = table.inspect.files().to_pylist()
    assert file["rows"] == 8 + 4 + 2
    check(table)
    before, paths = table.snapshot, sorted(table_path.rglob("*"))
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match=r"the rows of 2 keys as they are.*'k': 3"):
            result = table.compact(full=True)
        assert (result.files_before, result.files_after, result.snapshots) == (0, 0, [])
        assert (table.snapshot.id, sorted(table_path.rglob("*"))) == (before.id, paths)
    upsert(table, [(4, 1, "-U")])
    with pytest.warns(RuntimeWarning, match=r"the rows of 1 keys as they are.*'k': 3"):
        table.compact(full=True)
    assert values(table, filter="k != 3") == OTHERS | {4: MOST}
    upsert(table, [(3, 2, "-U")])
    assert values(table) == OTHERS | {3: MOST, 4: MOST}
    table.compact(full=True)
    (file,) = table.inspect.files().to_pylist()
    assert file["rows"] == 10
    assert values(table) == OTHERS | {3: MOST, 4: MOST}


def test_a_retraction_that_can_not_be_folded_stays_one(table_path):
    """Of an unsigned sum: what comes later may make it positive again."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.uint64())])
    settings = {"merge_engine": "aggregation", "fields.v.aggregate_function": "sum"}
    table = Table.create(table_path, schema, primary_key="k", properties=settings)
    upsert(table, [(1, 5, "-D"), (2, 5, "+I"), (2, 1, "-U")])
    with pytest.warns(RuntimeWarning, match=r"'k': 1.*out of the range of uint64"):
        table.compact(full=True)
    assert values(table, filter="k = 2") == {2: 4}
    upsert(table, [(1, 7, "+I")])
    assert values(table) == {1: 2, 2: 4}
    table.compact(full=True)
    assert values(table) == {1: 2, 2: 4}


def test_a_full_compaction_leaves_files_alone_of_which_no_key_can_be_folded(table_path):
    """Of several files of a run; a key that can be folded after all is, in its file."""
    settings = {"merge_engine": "aggregation", "fields.v.aggregate_function": "sum"}
    table = Table.create(
        table_path, SCHEMA, primary_key="k", properties=settings, durability="fast"
    )
    upsert(table, [(k, MOST, "+I") for k in range(1000)])
    upsert(table, [(k, 1, "+I") for k in range(0, 1000, 100)])
    with pytest.warns(RuntimeWarning, match="the rows of 10 keys as they are"):
        table.compact(full=True, target_size=1000)
    files = {each["path"] for each in table.inspect.files().to_pylist()}
    assert len(files) > 1
    snapshot = table.snapshot
    with pytest.warns(RuntimeWarning, match="the rows of 10 keys as they are"):
        table.compact(full=True, target_size=1000)
    assert table.snapshot.id == snapshot.id
    upsert(table, [(0, 1, "-U")])
    with pytest.warns(RuntimeWarning, match="the rows of 9 keys as they are"):
        table.compact(full=True, target_size=1000)
    assert table.snapshot.id == snapshot.id + 2
    assert values(table, filter="k < 100") == dict.fromkeys(range(100), MOST)
    assert {each["level"] for each in table.inspect.files().to_pylist()} == {5}
    assert table.verify(data=True).ok


@pytest.mark.parametrize("producer", ["lookup", "full_compaction"])
def test_changes_are_recorded_after_a_compaction_that_found_nothing_to_do(table_path, producer):
    table = make(table_path, changelog_producer=producer)
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="the rows of 2 keys"):
            table.compact(full=True)
    start = table.snapshot.id
    upsert(table, [(4, 1, "-U"), (3, 2, "-U"), (7, 1, "+I")])
    table.compact(full=True)
    assert values(table) == OTHERS | {3: MOST, 4: MOST, 7: 9}
    upsert(table, [(8, 1, "+I")])
    table.compact(full=True)
    changes = table.scan_changes(start + 2, columns=["k", "v"]).to_arrow()
    assert changes["k"].to_pylist() == [8, 8]
    assert changes["v"].to_pylist() == [9, 10]
