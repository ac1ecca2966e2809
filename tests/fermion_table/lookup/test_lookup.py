"""Rows by key: what lookups find is what the list of all rows ever written says."""

from __future__ import annotations

import copy
import gc
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fermion
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import Table, VersionNotFound
from fermion_table.lookup import held_files
from fermion_table.lookup import lookup as lookup_module
from fermion_table.lookup.held_files import FileKeys, HeldFiles
from fermion_table.merging.primary_key import primary_key_of
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.trees import seen_keys
from tests.kit.tables.keyed_model import merged
from tests.kit.tables.merge_rows import Row
from tests.kit.tables.tree_rows import put

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "deduplicate by sequence": {"sequence.field": "v"},
    "first_row": {"merge_engine": "first_row"},
    "partial_update": {"merge_engine": "partial_update"},
    "aggregation": {"merge_engine": "aggregation", "fields.v.aggregate_function": "sum"},
}


def made(path: Path, schema: pa.Schema = SCHEMA, *, key: Any = "k", **options: Any) -> Table:
    properties = {"bucket": "2"} | options.pop("properties", {})
    return Table.create(
        path, schema, primary_key=key, properties=properties, durability="fast", **options
    )


def row(k: Any, v: int | None = None, s: str | None = None, kind: str = "+I") -> Row:
    return {"k": k, "v": v, "s": s, "_kind": kind}


@pytest.fixture
def table(table_path: Path) -> Table:
    """Keys 0 to 9 at the top level; then 3 is new, 4 is deleted, 5 deleted and inserted again."""
    table = made(table_path)
    put(table, [row(k, k, str(k)) for k in range(10)], level=5)
    put(table, [row(3, 30, "new"), row(4, kind="-D"), row(5, kind="-D")])
    put(table, [row(5, 50, "again"), row(11, 110, "more")])
    return table


def found(table: Table, keys: Any, **options: Any) -> list[Row]:
    return table.lookup(keys, **options).to_pylist()


@pytest.mark.parametrize(
    ("dtype", "key", "found"),
    [
        (pa.binary(3), "abc", b"abc"),
        (pa.string_view(), "abc", "abc"),
        (pa.decimal128(5, 2), 2, Decimal("2.00")),
        (pa.uint64(), 2**63, 2**63),
    ],
)
def test_keys_of_plain_python_values_are_those_of_the_column(table_path, dtype, key, found):
    schema = pa.schema([pa.field("k", dtype, nullable=False)])
    table = made(table_path, schema)
    table.upsert(pa.table([pa.array([found], dtype)], schema=schema))
    assert table.lookup([key])["k"].to_pylist() == [found]


def test_keys_that_are_texts_are_no_decimals(table_path):
    table = made(table_path, pa.schema([pa.field("k", pa.decimal128(5, 2), nullable=False)]))
    with pytest.raises(InvalidArgumentError, match="column 'k' of the primary key is decimal128"):
        table.lookup(["1.00"])


def test_rows_come_in_the_order_of_the_keys_as_often_as_they_are_asked_for(table):
    assert found(table, [11, 3, 4, 99, 3, 0, 5]) == [
        *({"k": 11, "v": 110, "s": "more"}, {"k": 3, "v": 30, "s": "new"}),
        *({"k": 3, "v": 30, "s": "new"}, {"k": 0, "v": 0, "s": "0"}),
        {"k": 5, "v": 50, "s": "again"},
    ]
    assert table.lookup([]).schema == table.scan().schema
    assert table.lookup([99]).num_rows == 0
    assert table.lookup(range(20)).sort_by("k") == table.scan().to_arrow().sort_by("k")


def test_an_empty_table_has_no_rows(table_path):
    assert made(table_path).lookup([1, 2]).num_rows == 0


def test_columns_are_those_of_a_scan(table):
    assert found(table, [3, 0], columns=["s"]) == [{"s": "new"}, {"s": "0"}]
    assert found(table, [3, 0], columns=["s", "k"]) == [{"s": "new", "k": 3}, {"s": "0", "k": 0}]
    nothing = table.lookup([3, 3, 4], columns=[])
    assert (nothing.num_rows, nothing.num_columns) == (2, 0)
    with pytest.raises(ColumnNotFoundError, match="'x'"):
        table.lookup([3], columns=["x"])
    with pytest.raises(InvalidArgumentError, match="_row_id"):
        table.lookup([3], columns=["_row_id"])


def test_an_earlier_snapshot_is_looked_up_as_it_was(table):
    first, second, third = (snapshot.id for snapshot in table.snapshots()[-3:])
    for _ in range(2):  # more snapshots than are kept, forth and back
        assert found(table, [3, 4, 5], columns=["v"], snapshot_id=first) == [
            {"v": 3},
            {"v": 4},
            {"v": 5},
        ]
        assert found(table, [3, 4, 5], columns=["v"], snapshot_id=second) == [{"v": 30}]
        assert found(table, [3, 4, 5], columns=["v"], snapshot_id=third) == [{"v": 30}, {"v": 50}]
    with pytest.raises(VersionNotFound):
        table.lookup([1], snapshot_id=99)


def test_the_table_sees_its_own_new_rows(table):
    assert found(table, [3], columns=["v"]) == [{"v": 30}]
    put(table, [row(3, 31)])
    assert found(table, [3], columns=["v"]) == [{"v": 31}]


def test_an_append_table_says_what_to_use_instead(table_path):
    table = Table.create(table_path, SCHEMA)
    with pytest.raises(InvalidArgumentError, match=r"scan\(filter=\.\.\.\), or lookup_batch"):
        table.lookup([1])


@pytest.mark.parametrize(
    "keys",
    [
        [3, 0],
        (3, 0),
        iter([3, 0]),
        np.array([3, 0], np.int8),
        pa.array([3, 0], pa.uint16()),
        pa.chunked_array([[3], [0]]),
        pa.array([3, 0]).dictionary_encode(),
        pd.Series([3, 0]),
        pd.DataFrame({"other": ["x", "y"], "k": [3, 0]}),
        pl.Series([3, 0]),
        pl.DataFrame({"k": [3, 0]}),
        {"k": [3, 0]},
        [{"k": 3}, {"k": 0}],
        [(3,), (0,)],
        [3.0, 0.0],
        pa.table({"k": [3, 0]}).to_batches(),
        pa.table({"k": [3, 0]}).to_reader(),
    ],
    ids=lambda keys: type(keys).__name__,
)
def test_keys_come_in_many_forms(table, keys):
    assert found(table, keys, columns=["v"]) == [{"v": 30}, {"v": 0}]


@pytest.mark.parametrize(
    ("keys", "error", "message"),
    [
        (3, TypeError, "keys: expected Arrow data or a list of keys, found int 3"),
        ("3", TypeError, "found str"),
        (None, TypeError, "found NoneType"),
        ([None], InvalidArgumentError, "column 'k' of the primary key: expected no nulls"),
        ([1.5], InvalidArgumentError, "'k' of the primary key is int64.*1.5"),
        ([True], InvalidArgumentError, "'k' of the primary key is int64, found values of bool"),
        (["3"], InvalidArgumentError, "is int64, found values of string"),
        ([2**70], InvalidArgumentError, "is int64"),
        (pa.array([2**63], pa.uint64()), InvalidArgumentError, "does not fit"),
        ({"j": [3]}, InvalidArgumentError, "expected one column 'k'"),
        ([(3, 4)], InvalidArgumentError, "expected the values of k"),
        ([{"j": 3}], InvalidArgumentError, "an item of keys: expected one column 'k'"),
    ],
)
def test_wrong_keys_are_refused(table, keys, error, message):
    with pytest.raises(error, match=message):
        table.lookup(keys)


def test_keys_of_several_columns(table_path):
    schema = pa.schema([("d", pa.date32()), ("name", pa.string()), ("v", pa.int64())])
    table = made(table_path, schema, key=["name", "d"], partition_by=["month(d)"])
    days = [date(2026, month, 1) for month in (1, 2, 3)]
    rows = [{"d": day, "name": name, "v": n} for n, day in enumerate(days) for name in ("a", "b\0")]
    put(table, rows, level=5)
    put(table, [{"d": days[1], "name": "a", "v": 9}])
    wanted = [{"v": 9}, {"v": 2}]
    for keys in (
        [("a", days[1]), ("b\0", days[2]), ("b", days[2]), ("a", date(2027, 1, 1))],
        [{"d": days[1], "name": "a"}, {"d": days[2], "name": "b\0"}],
        pa.table({"d": [days[1], days[2]], "name": ["a", "b\0"]}),
    ):
        assert found(table, keys, columns=["v"]) == wanted
    for keys, message in (
        ([("a",)], "expected the values of name, d"),
        (["a"], "expected the values of name, d"),
        (pa.array(["a"]), "expected the columns name, d"),
        ({"name": ["a"]}, "expected one column 'd'"),
        ({"name": ["a"], "d": [days[0], days[1]]}, r"of one length, found \[1, 2\]"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            table.lookup(keys)


@pytest.mark.parametrize("dtype", [pa.int64(), pa.uint64(), pa.int8()])
def test_whole_decimals_are_keys_of_integers(table_path, dtype):
    """As floats are; others are refused, as no key equals them."""
    table = made(table_path, pa.schema([("k", dtype), ("v", pa.int64())]))
    put(table, [{"k": 1, "v": 10}, {"k": 100, "v": 20}])
    keys = [Decimal("1"), Decimal("100.00"), Decimal("7"), Decimal("1e2")]
    wanted = [10, 20, 20]
    assert table.lookup(keys)["v"].to_pylist() == wanted
    assert table.lookup(pa.array(keys))["v"].to_pylist() == wanted
    assert table.lookup([1.0])["v"].to_pylist() == [10]
    for bad, message in [("1.5", "no whole number"), ("1e30", "does not fit"), ("NaN", "is ")]:
        with pytest.raises(InvalidArgumentError, match=message):
            table.lookup([Decimal(bad)])


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (pa.uint64(), [0, 2**63, 2**64 - 1]),
        (pa.decimal128(9, 2), [Decimal("-1.50"), Decimal("0.00"), Decimal("3.25")]),
        (pa.string(), ["", "a", "é"]),
        (pa.binary(2), [b"\0\0", b"\0a", b"zz"]),
        (pa.bool_(), [False, True]),
        (pa.date32(), [date(1969, 1, 1), date(2026, 1, 1)]),
        (pa.string_view(), ["", "a", "b"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("way", ["decoded", "searched"])
def test_keys_of_every_type(table_path, monkeypatch, dtype, values, way):
    if way != "decoded":
        never_decode(monkeypatch)
    schema = pa.schema([("k", dtype), ("v", pa.int64())])
    table = made(table_path, schema)
    put(table, [{"k": value, "v": n} for n, value in enumerate(values)], level=5)
    put(table, [{"k": values[0], "v": 10}])
    wanted = [{"k": value, "v": n or 10} for n, value in enumerate(values)]
    assert found(table, values) == wanted
    assert found(table, values[::-1]) == wanted[::-1]


def never_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every file be searched by filter, as great ones are for a few keys."""
    monkeypatch.setattr(lookup_module, "DECODED_BYTES_LOCAL", -1)
    monkeypatch.setattr(lookup_module, "ROWS_PER_KEY", 0)
    monkeypatch.setattr(held_files, "ROWS_PER_ASKED", 0)


ROWS = st.lists(
    st.builds(
        row,
        st.integers(0, 12),
        st.integers(0, 3) | st.none(),
        st.sampled_from(["a", "b"]) | st.none(),
        st.sampled_from(["+I", "+I", "+U", "-D", "-U"]),
    ),
    max_size=12,
)


@pytest.mark.parametrize("way", ["decoded", "searched"])
@pytest.mark.parametrize("engine", ENGINES)
@given(commits=st.lists(ROWS, max_size=5), base=ROWS, asked=st.lists(st.integers(-1, 13)))
@settings(max_examples=9)
def test_a_lookup_finds_what_the_model_holds(tmp_path_factory, engine, way, commits, base, asked):
    is_picky = engine not in ("deduplicate", "deduplicate by sequence")
    every = [base, *commits]
    if is_picky:  # the other engines take no retractions
        every = [[each for each in rows if each["_kind"][0] == "+"] for rows in every]
    table = made(tmp_path_factory.mktemp("lookup") / "t", properties=ENGINES[engine])
    with pytest.MonkeyPatch.context() as patch:
        if way != "decoded":
            never_decode(patch)
        for number, rows in enumerate(every):
            if rows:
                put(table, rows, level=5 if number == 0 else 0)
        key = primary_key_of(table.schema)
        assert key is not None
        flat = [each for rows in every for each in rows]
        by_key = {each["k"]: each for each in merged(flat, SCHEMA.names, ["k"], key.options)}
        wanted = [by_key[k] for k in asked if k in by_key]
        assert found(table, asked) == wanted
        only = [{"v": each["v"]} for each in wanted]
        assert found(table, asked, columns=["v"]) == only
        assert table.lookup(asked, columns=[]).num_rows == len(wanted)


def test_a_renamed_and_widened_table_is_looked_up_under_its_new_names(table_path):
    schema = pa.schema(
        [("k", pa.int32()), ("v", pa.int32()), ("s", pa.struct([("a", pa.string())]))]
    )
    table = made(table_path, schema)
    before = put(table, [{"k": 1, "v": 1, "s": {"a": "x"}}, {"k": 2, "v": 2, "s": None}])
    table.rename_column("k", "key")
    table.alter_column("key", type=pa.int64())
    table.add_columns({"new": pa.int8()}, defaults={"new": 7})
    put(table, [{"key": 2**40, "v": 3, "s": {"a": "y"}, "new": 1}])
    assert found(table, [2**40, 1], columns=["key", "s.a", "new"]) == [
        {"key": 2**40, "s": {"a": "y"}, "new": 1},
        {"key": 1, "s": {"a": "x"}, "new": 7},
    ]
    assert found(table, [1], columns=["k"], snapshot_id=before.id) == [{"k": 1}]
    with pytest.raises(InvalidArgumentError, match="'k' of the primary key is int32"):
        table.lookup([2**40], snapshot_id=before.id)


def test_files_that_can_not_hold_the_keys_are_not_opened(table_path, monkeypatch):
    table = made(table_path, properties={"bucket": "1"})
    for first in range(0, 50, 10):
        put(table, [row(k, k) for k in range(first, first + 10)])
    opened: list[str] = []
    real = fermion.open
    monkeypatch.setattr(
        fermion, "open", lambda path, **options: opened.append(path) or real(path, **options)
    )
    assert found(table, [13, 33], columns=["v"]) == [{"v": 13}, {"v": 33}]
    assert len(opened) == 2
    found(table, [13, 33, 14])
    assert len(opened) == 2, "they are still open"
    put(table, [row(13, 1)])
    assert found(table, [13], columns=["v"]) == [{"v": 1}]
    assert len(opened) == 3, "the newest run decides"


def test_files_that_an_earlier_snapshot_had_are_known(table_path, monkeypatch):
    table = made(table_path, properties={"bucket": "1"})
    for k in range(5):
        put(table, [row(k, k)])
    resolved: list[int] = []
    splits_of = lookup_module.splits_of

    def counted(entries: Any, store: Any) -> Any:
        made = splits_of(entries, store)
        resolved.append(len(made))
        return made

    monkeypatch.setattr(lookup_module, "splits_of", counted)
    assert found(table, [3], columns=["v"]) == [{"v": 3}]
    assert resolved == [1], "no other file may hold the key"
    put(table, [row(3, 4)])
    assert found(table, [3], columns=["v"]) == [{"v": 4}]
    assert found(table, [2], columns=["v"]) == [{"v": 2}]
    assert sum(resolved) == 6, "each file once: what an earlier snapshot had stays known"


def test_rows_marked_since_the_last_lookup_are_not_found(table_path):
    """The file is the one of before, and has a deletion vector now."""
    table = made(table_path, properties={"bucket": "1", "deletion_vectors.enabled": "true"})
    put(table, [row(k, k) for k in range(20_000)], level=5)
    assert found(table, [3, 4], columns=["v"]) == [{"v": 3}, {"v": 4}]
    put(table, [row(3, kind="-D")])
    for k in range(8, 12):
        put(table, [row(k, 1)])
    table.compact()
    assert found(table, [3, 4, 9], columns=["v"]) == [{"v": 4}, {"v": 1}]


def test_a_great_file_is_searched_by_filter_until_it_was_asked_often(table, monkeypatch):
    monkeypatch.setattr(lookup_module, "DECODED_BYTES_LOCAL", 0)
    monkeypatch.setattr(lookup_module, "ROWS_PER_KEY", 2)
    held = table._state.lookups._held
    assert found(table, [0], columns=["v"]) == [{"v": 0}]
    assert not held._keys._values
    assert found(table, [0, 1, 2], columns=["v"]) == [{"v": 0}, {"v": 1}, {"v": 2}]
    assert held._keys._values


def test_copies_hold_nothing_and_forked_processes_go_on(table):
    wanted = found(table, [3, 0])
    copied = pickle.loads(pickle.dumps(table))
    assert not copied._state.lookups._held._files._values
    assert found(copied, [3, 0]) == wanted
    shallow = copy.copy(table)
    put(shallow, [row(3, 1)])
    assert found(table, [3, 0]) == wanted
    assert found(shallow, [3], columns=["v"]) == [{"v": 1}]
    child = os.fork()
    if not child:
        os._exit(0 if found(table, [3, 0]) == wanted else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert found(table, [3, 0]) == wanted


def test_files_are_closed_with_the_table(table_path):
    table = made(table_path)
    for k in range(20):
        put(table, [row(k, k)])
    gc.collect()
    before = open_files()
    assert table.lookup(range(20)).num_rows == 20
    assert open_files() == before + 20
    del table
    assert open_files() == before


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_few_files_stay_open(table_path):
    held = HeldFiles(files_max=3, bytes_max=100)
    assert held.has_room("0", 50)
    assert not held.has_room("0", 51)
    for number in range(5):
        held.hold(str(number), number)
        held.hold_keys(str(number), FileKeys(np.zeros(3, np.int64), None))
    assert [*held._files._values] == ["2", "3", "4"]
    assert [*held._keys._values] == ["1", "2", "3", "4"]
    held.hold_keys("5", FileKeys(np.zeros(7, np.int64), None))
    assert held.keys("5") is None, "too many for so little memory"
    assert not held.has_room("5", 8), "that is known now"
    held.keep_only({"3"})
    assert ([*held._files._values], [*held._keys._values]) == (["3"], ["3"])


def test_files_of_snapshots_that_are_not_looked_up_any_more_are_let_go(table):
    found(table, range(12))
    files = set(table._state.lookups._held._files._values)
    old = live_entries(table.store, table.snapshot)
    put(table, [row(k, 1) for k in range(12)], removed=old, kind="overwrite")
    found(table, [1])
    put(table, [row(99)])
    found(table, [1])
    assert files.isdisjoint(table._state.lookups._held._files._values)


def test_threads_look_up_side_by_side(table):
    wanted = {k: found(table, [k]) for k in range(12)}
    fresh = Table.open(table.location)
    with ThreadPoolExecutor(4) as pool:
        asked = [k % 12 for k in range(200)]
        assert list(pool.map(lambda k: found(fresh, [k]), asked)) == [wanted[k] for k in asked]


@pytest.mark.parametrize("one_by_one_max", [0, 64])
@given(st.lists(st.binary(max_size=3), max_size=20), st.lists(st.binary(max_size=3), max_size=5))
def test_binary_search_over_bytes(one_by_one_max, keys, wanted):
    keys.sort()
    arrays = [pa.array(each, pa.large_binary()) for each in (keys, wanted)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen_keys, "ONE_BY_ONE_MAX", one_by_one_max)
        first, after = seen_keys.places_of(*arrays)
    assert first.tolist() == [sum(key < each for key in keys) for each in wanted]
    assert after.tolist() == [sum(key <= each for key in keys) for each in wanted]


def test_the_first_lookup_decodes_a_few_keys_of_a_large_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All two million keys were decoded for one; from the second lookup on that pays."""
    monkeypatch.setattr(lookup_module, "DECODED_BYTES_REMOTE", 1_000)
    monkeypatch.setattr(lookup_module, "ROWS_PER_KEY", 100)
    schema = pa.schema([("k", pa.int64())])
    table = Table.create(tmp_path / "t", schema, primary_key="k", durability="fast")
    table.upsert({"k": range(1_000)})
    decoded = []
    for key in (7, 8, 9):
        assert table.lookup([key]).num_rows == 1
        held = table._state.lookups._held
        decoded.append(len(held._keys.values()))
    assert decoded == [0, 1, 1]


@pytest.mark.parametrize("asked", [[7], [7, 8]])
def test_the_key_of_a_row_that_the_filter_found_is_not_read_again(table_path, monkeypatch, asked):
    monkeypatch.setattr(lookup_module, "DECODED_BYTES_REMOTE", 1_000)
    monkeypatch.setattr(lookup_module, "ROWS_PER_KEY", 100)
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    Table.create(table_path, schema, primary_key="k").upsert({"k": range(1_000), "v": [1] * 1_000})
    read = []
    file_keys = lookup_module._Lookup._file_keys
    monkeypatch.setattr(
        lookup_module._Lookup,
        "_file_keys",
        lambda lookup, split, rows: read.append(rows) or file_keys(lookup, split, rows),
    )
    table = Table.open(table_path)
    assert table.lookup(asked).to_pylist() == [{"k": key, "v": 1} for key in asked]
    assert len(read) == len(asked) - 1
