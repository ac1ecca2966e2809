"""Rows of small files that lookups keep: within their memory, and only while files are in use."""

from __future__ import annotations

import pyarrow as pa

import fermion
from fermion_table import Table
from fermion_table.lookup import held_files
from fermion_table.lookup.held_files import HeldRows
from tests.kit.tables.tree_rows import put

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
ROWS = pa.record_batch({"v": pa.array(range(10), pa.int64())})


def test_rows_are_held_up_to_the_memory_and_let_go_with_their_files():
    held = HeldRows(bytes_max=200)
    choices = [(f"{number}", b"v") for number in range(4)]
    for choice in choices:
        held.hold(choice, ROWS)
        held.hold(choice, ROWS)
    assert [held.get(choice) is not None for choice in choices] == [False, False, True, True]
    held.keep_only({"2"})
    assert [held.get(choice) is not None for choice in choices] == [False, False, True, False]
    held.hold(("5", b"v"), ROWS)
    assert held.get(choices[2]) is not None, "there is room again"
    held.hold(("6", b"v"), pa.concat_batches([ROWS] * 2))
    assert held.get(("6", b"v")) is None, "more than half of the memory"


def test_a_file_is_worth_it_once_enough_of_it_was_asked_for():
    held = HeldRows(bytes_max=8_000)
    assert not held.is_worth(("a", b""), 2, 3_000, 100)
    assert held.is_worth(("a", b""), 1, 3_000, 100)
    assert not held.is_worth(("a", b"other columns"), 1, 3_000, 100)
    assert not held.is_worth(("b", b""), 3_000, 3_000, 1_001), "too great"


def test_what_is_held_is_not_read_again(tmp_path, monkeypatch):
    table = Table.create(tmp_path / "t", SCHEMA, primary_key="k", durability="fast")
    put(table, [{"k": k, "v": k, "s": f"{k}"} for k in range(9)])
    read: list[list] = []
    real = fermion.FermionFile.read

    def counted(self, columns=None, **options):
        read.append(columns)
        return real(self, columns, **options)

    monkeypatch.setattr(fermion.FermionFile, "read", counted)
    assert table.lookup([3, 7], columns=["s"])["s"].to_pylist() == ["3", "7"]
    first = len(read)
    assert first
    for keys in ([3], [8, 0], [99]):
        wanted = [f"{key}" for key in keys if key < 9]
        assert table.lookup(keys, columns=["s"])["s"].to_pylist() == wanted
    assert len(read) == first
    assert table.lookup([1], columns=["v"])["v"].to_pylist() == [1]
    assert len(read) == first + 1, "other columns"
    monkeypatch.setattr(held_files, "ROWS_PER_ASKED", 0)
    put(table, [{"k": 3, "v": 0, "s": "new"}])
    assert table.lookup([3, 4], columns=["s"])["s"].to_pylist() == ["new", "4"]
