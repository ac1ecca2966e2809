"""`fermion head`: the first rows, of wide files as many columns as fit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import fermion
from tests.kit.command_line import output, printed_json

ROWS = 3_000


def test_head_of_a_wide_file_reads_only_what_it_shows(capsys, wide, monkeypatch):
    """Thirty of two thousand columns, at most."""
    read: list[Any] = []
    original = fermion.FermionFile.read

    def spy(self: fermion.FermionFile, columns: Any = None, **options: Any) -> pa.Table:
        read.append(columns)
        return original(self, columns, **options)

    monkeypatch.setattr(fermion.FermionFile, "read", spy)
    output(capsys, "head", wide)
    assert len(read[0]) <= 30


def test_head_shows_the_first_rows(capsys, sample):
    lines = output(capsys, "head", sample, "-n", 2, "--column", "id", "--column", "s").splitlines()
    assert lines == [
        "id  s",
        " 0  {x: 0, tags: []}",
        " 1  {x: 1, tags: [a]}",
        "... and 2,998 more rows",
    ]
    rows = printed_json(capsys, "head", sample, "-n", 2)
    assert rows[1] == {
        "id": 1,
        "price": 0.25,
        "name": "name 1",
        "s": {"x": 1, "tags": ["a"]},
        "nothing": None,
    }


def test_head_of_more_rows_than_there_are_shows_all(capsys, sample):
    assert len(printed_json(capsys, "head", sample, "-n", 10**9, "--column", "id")) == ROWS
    assert printed_json(capsys, "head", sample, "-n", 0) == []
    assert printed_json(capsys, "head", sample, "-n", -5) == []


def test_columns_with_one_name_all_appear(capsys, tmp_path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    fermion.write_table(table, tmp_path / "x.fermion")
    assert printed_json(capsys, "head", tmp_path / "x.fermion") == [{"a": 1, "a#1": 2}]
    assert output(capsys, "head", tmp_path / "x.fermion").splitlines() == ["a  a", "1  2"]
