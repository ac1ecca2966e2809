"""The page of a table: exact statistics, bounded work, and a page where rows can't be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fermion_table import Table
from fermion_table.inspection import table_page as module
from fermion_table.inspection.table_page import table_map


def map_of(table: Table, rows: int = 20, snapshots: int = 20) -> dict:
    return table_map(table.scan(), "main", rows=rows, snapshots=snapshots)


@pytest.fixture
def table(table_path: Path) -> Table:
    made = Table.create(
        table_path, pa.table({"id": [1, 2, 3], "city": ["b", None, "a"]}), durability="fast"
    )
    made.append(pa.table({"id": [9], "city": ["z"]}))
    return made


def test_statistics_of_columns_are_exact_or_limits_or_left_out(table):
    """Those that a scan computes; after a delete they are limits, without any where none hold."""
    assert [row[2:5] for row in map_of(table)["columns"]["rows"]] == [
        ["0", "1", "9"],
        ["1", "a", "z"],
    ]
    table.add_columns({"late": pa.int64()})
    table.add_columns({"filled": pa.int64()}, defaults={"filled": 100})
    table.append({"id": [4], "city": ["x" * 100], "late": [5], "filled": [6]})
    table.delete("id = 9")
    table.delete("id = 2")
    assert [row[2:5] for row in map_of(table)["columns"]["rows"]] == [
        ["0", "≥ 1", "≤ 4"],
        ["≤ 1", "≥ a", "≤ xxxxxxxx…"],
        ["2", "5", "5"],
        [None, None, None],  # older files do not say that they hold 100
    ]


def test_limits_of_a_table_with_a_key_hold_for_the_rows_that_are_merged(table_path):
    """Of sums of stored values nothing is said; what is merged and compacted is exact again."""
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("sold", pa.int64())])
    keyed = Table.create(table_path, schema, primary_key="id", durability="fast")
    keyed.upsert({"id": [1, 2], "city": ["a", None], "sold": [5, None]})
    keyed.upsert({"id": [2], "city": ["q"], "sold": [7]})
    assert [row[2:5] for row in map_of(keyed)["columns"]["rows"]] == [
        ["0", "≥ 1", "≤ 2"],
        ["≤ 1", "≥ a", "≤ q"],
        ["≤ 1", "≥ 5", "≤ 7"],
    ]
    keyed.add_columns({"late": pa.int64()})
    assert map_of(keyed)["columns"]["rows"][3][2:5] == ["≤ 3", None, None]
    keyed.compact(full=True)
    assert [row[2:5] for row in map_of(keyed)["columns"]["rows"]] == [
        ["0", "1", "2"],
        ["0", "a", "q"],
        ["0", "5", "7"],
        ["2", None, None],
    ]
    sums = Table.create(
        f"{table_path}-sums",
        schema,
        primary_key="id",
        properties={"merge_engine": "aggregation", "fields.sold.aggregate_function": "sum"},
        durability="fast",
    )
    sums.upsert({"id": [1], "city": ["a"], "sold": [5]})
    sums.upsert({"id": [1], "city": ["b"], "sold": [7]})
    assert map_of(sums)["columns"]["rows"][2][2:5] == [None, None, None]
    assert sums.describe(["sold"], sample=0)["max"].to_pylist() == [None]
    assert sums.describe(["sold"])["max"].to_pylist() == ["12"]


def test_commits_show_the_rows_that_they_changed_within_limits(table, monkeypatch):
    """So many rows and commits as asked for; large ones are told apart by their notes."""
    shown = map_of(table, rows=2)
    assert [len(each["rows"]["rows"]) if each["rows"] else 0 for each in shown["commits"]] == [
        0,
        2,
        1,
    ]
    assert shown["head"]["rows"] == [["1", "b"], ["2", None]]
    assert [each["title"][:10] for each in map_of(table, snapshots=1)["commits"]] == ["snapshot 2"]
    assert map_of(table, rows=0)["head"]["rows"] == []
    monkeypatch.setattr(module, "COMPARED_ROWS", 2)
    notes = [each["note"] for each in map_of(table)["commits"]]
    assert notes[1] == "Its rows are not compared: there are 3 in files that differ."
    monkeypatch.setattr(module, "COMPARED_FILES", 1)
    assert "the table has 2 files" in map_of(table)["commits"][2]["note"]


def test_a_table_whose_data_file_is_gone_has_a_page(table, tmp_path):
    """What metadata tell stays; what is missing is said."""
    (entry,) = table.diff(1).files_added
    Path(table.location, entry.file).unlink()
    page = table.show()
    page.save(tmp_path / "t.html")
    assert (tmp_path / "t.html").read_text(encoding="utf-8") == str(page)
    shown = map_of(Table.open(table.location))
    assert "The rows can't be read" in shown["note"]
    assert "can't be compared" in shown["commits"][2]["note"]
    assert shown["commits"][1]["rows"]["changes"] == ["insert"] * 3
    assert "<td style='text-align:left'>4</td>" in table._repr_html_()


def test_a_notebook_shows_a_table_in_brief_with_its_first_rows(table):
    """Escaped, a few rows of a few columns."""
    wide = {f"<b>{number}": np.arange(30) for number in range(40)}
    table.overwrite(pa.table({"id": np.arange(30), "city": ["<i>"] * 30}))
    text = table._repr_html_()
    assert "<b>First rows</b>" in text
    assert text.count("&lt;i&gt;") == 5
    other = Table.create(f"{table.location}-wide", pa.table(wide), durability="fast")
    assert "&lt;b&gt;9</th>" in other._repr_html_()
    assert "&lt;b&gt;10</th>" not in other._repr_html_()


def test_numbers_of_rows_and_snapshots_are_checked(table):
    for options in ({"rows": -1}, {"snapshots": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            table.show(**options)
    with pytest.raises(TypeError, match="rows"):
        table.show(rows="many")
