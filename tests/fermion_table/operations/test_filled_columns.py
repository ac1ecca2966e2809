"""Values filled into columns by row id and by key: of some rows, of new columns, in batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import Table
from fermion_table.errors import SchemaMismatch

SCHEMA = pa.schema(
    [("k", pa.string()), ("n", pa.int32()), ("v", pa.float64()), pa.field("r", pa.int64(), False)]
)

ORDER = [("k", "ascending"), ("n", "ascending"), ("v", "ascending")]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Two files of four rows, the second in batches; row 2 is deleted."""
    table = Table.create(tmp_path / "t", SCHEMA, partition_by=["truncate(1, k)"], durability="fast")
    table.append({"k": ["a", "a", "a", None], "n": [1, 2, 3, 4], "v": [0.5] * 4, "r": [0] * 4})
    rows = {"k": ["b", "b"], "n": [1, 2], "v": [None, 1.5], "r": [1, 1]}
    table.append_batches([(7, rows), (8, rows)])
    table.delete("k = 'a' AND n = 3")
    return table


def values(table: Table, *columns: str) -> list[Any]:
    return [tuple(row.values()) for row in table.scan(columns=columns).to_arrow().to_pylist()]


def files(table: Table) -> list[int]:
    return [len(entry.column_files) for entry in table.scan().entries[0]]


def test_rows_get_values_by_key_and_others_keep_theirs(table: Table) -> None:
    before = table.snapshot.id
    given = {
        "k": ["a", "b", None, "z"],
        "n": [2, 1, 4, 1],
        "v": [20, None, 40, 50],
        "x": list("abcd"),
    }
    data = pa.table(given, schema=pa.schema([
        ("k", pa.large_string()), ("n", pa.int64()), ("v", pa.int64()), ("x", pa.string()),
    ]))  # fmt: skip
    snapshot = table.fill_columns(data, on=["k", "n"], message="joined")
    assert snapshot.message == "joined"
    assert values(table, "n", "v", "x") == [
        (1, 0.5, None), (2, 20.0, "a"), (4, 0.5, None),  # a null matches nothing
        (1, None, "b"), (2, 1.5, None), (1, None, "b"), (2, 1.5, None),
    ]  # fmt: skip
    assert table.scan(filter="x = 'b'", batch_id=8).to_arrow()["n"].to_pylist() == [1]
    assert sorted(files(table)) == [0, 1, 1]
    changes = table.scan_changes(before, columns=["n", "v"]).to_arrow().to_pylist()
    assert [(row["n"], row["v"], row["_change_type"]) for row in changes] == [
        (2, 0.5, "delete"), (2, 20.0, "insert"),
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"rows 0 and 2 of the data have the same \['n'\]"):
        table.fill_columns({"n": [1, 2, 1], "v": [0, 0, 0]}, on="n")


def test_rows_get_values_by_their_ids(table: Table) -> None:
    ids = table.scan(columns=["_row_id"]).to_arrow()["_row_id"].to_pylist()
    assert ids == [0, 1, 3, 4, 5, 6, 7]
    given = {"_row_id": [7, 0, 2, 1000], "v": [7.0, 0.0, 2.0, 9.0]}  # 2 is deleted
    told = table.fill_columns(given).properties
    assert told == {"matched": "2", "unmatched_source": "2", "unmatched_target": "5"}
    assert values(table, "_row_id", "v")[0] == (0, 0.0)
    assert values(table, "_row_id", "v")[-1] == (7, 7.0)
    table.fill_columns({"_row_id": [7], "v": [8.0], "y": [True]}, columns=["y"])
    assert values(table, "v", "y")[-1] == (7.0, True)
    latest = table.snapshot
    assert table.fill_columns({"_row_id": [1000], "v": [0.0]}, unmatched="ignore") == latest
    nothing = pa.schema([("_row_id", pa.int64()), ("v", pa.float64())]).empty_table()
    assert table.fill_columns(nothing) == latest
    assert table.verify(data=True).ok
    rows = table.scan().to_arrow().sort_by(ORDER)
    table.compact(column_files_max=0)
    assert table.scan().to_arrow().sort_by(ORDER) == rows


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], type[Exception], str]] = {
    "a key twice": ({"_row_id": [1, 1], "v": [0, 0]}, {}, InvalidArgumentError, "row 1 is there"),
    "a null id": ({"_row_id": [1, None], "v": [0, 0]}, {}, InvalidArgumentError, "without nulls"),
    "text ids": ({"_row_id": ["1"], "v": [0]}, {}, InvalidArgumentError, "found string"),
    "no ids": ({"v": [0]}, {}, ColumnNotFoundError, "_row_id"),
    "no values": ({"_row_id": [1]}, {}, InvalidArgumentError, "a column to fill"),
    "no such values": ({"_row_id": [1], "v": [0]}, {"columns": ["x"]}, ColumnNotFoundError, "x"),
    "no such key": ({"q": [1], "v": [0]}, {"on": "q"}, ColumnNotFoundError, "q"),
    "a partition column": ({"n": [1], "k": ["b"]}, {"on": "n"}, InvalidArgumentError, "partition"),
    "a type": ({"_row_id": [1], "v": ["x"]}, {}, SchemaMismatch, "v"),
    "a value": ({"n": [1], "r": [2.5]}, {"on": "n"}, SchemaMismatch, "r"),
    "a null": ({"_row_id": [1], "r": pa.nulls(1, pa.int64())}, {}, SchemaMismatch, "NOT NULL"),
    "no columns": ({"_row_id": [1], "v": [0]}, {"columns": []}, InvalidArgumentError, "at least"),
    "no key at all": ({"v": [0]}, {"on": []}, InvalidArgumentError, "on="),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_can_not_be_filled_is_refused(table: Table, name: str) -> None:
    data, options, kind, message = WRONG[name]
    latest = table.snapshot
    with pytest.raises(kind, match=message):
        table.fill_columns(pa.table(data), **options)
    assert Table.open(table.location).snapshot == latest
    assert not any(files(table))


def test_a_change_of_another_writer_meanwhile_is_seen(table: Table) -> None:
    """The values of the other rows are those that the other commit left."""

    class Late:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pa.table({"n": [1], "v": [-1.0]}).__arrow_c_stream__(requested_schema)

    other = Table.open(table.location, durability="fast")
    store, link = table.store, type(table.store).create_if_absent
    raced: list[int] = []

    def create_if_absent(path: str, data: bytes) -> Any:
        if not raced:
            raced.append(1)
            other.fill_columns({"n": [2], "v": [-2.0]}, on="n")
        return link(store, path, data)

    store.create_if_absent = create_if_absent  # type: ignore[method-assign]
    table.fill_columns(Late(), on="n")
    assert sorted(values(table, "n", "v"), key=repr) == [
        (1, -1.0), (1, -1.0), (1, -1.0), (2, -2.0), (2, -2.0), (2, -2.0), (4, 0.5),
    ]  # fmt: skip
    live = {file.path for each in table.scan().entries[0] for file in each.column_files}
    assert {each.path for each in table.store.list("data") if "/columns-" in each.path} == live


@pytest.fixture
def scored(tmp_path: Path) -> Table:
    """Two files: ids 0 to 2 and 3 to 5; the last one was deleted."""
    schema = pa.schema({"id": pa.int64(), "score": pa.float64(), "fixed": pa.float64()})
    made = Table.create(tmp_path / "scored", schema, durability="fast")
    made.append({"id": [0, 1, 2], "score": [0.0, 1.0, 2.0]})
    made.append({"id": [3, 4, 5], "score": [3.0, 4.0, 5.0]})
    made.delete("id = 5")
    return made


def scores(table: Table) -> dict[int, float | None]:
    return {row["id"]: row["score"] for row in table.to_arrow().to_pylist()}


def test_a_fill_tells_which_rows_have_no_partner(scored: Table) -> None:
    snapshot = scored.fill_columns({"id": [1, 5, 9], "score": [10.0, 50.0, 90.0]}, on="id")
    expected = {"matched": "1", "unmatched_source": "2", "unmatched_target": "4"}
    assert snapshot.properties == expected
    assert Table.open(scored.location).snapshot.properties == expected
    assert scores(scored) == {0: 0.0, 1: 10.0, 2: 2.0, 3: 3.0, 4: 4.0}


def test_data_of_which_no_row_matches_is_refused_unless_that_is_right(scored: Table) -> None:
    data, before = {"id": [70, 71], "score": [1.0, 2.0]}, scored.snapshot.id
    with pytest.raises(InvalidArgumentError, match=r"no row of the data matches.*\{'id': 70\}"):
        scored.fill_columns(data, on="id")
    with pytest.raises(InvalidArgumentError, match="unmatched_source 2, unmatched_target 5"):
        scored.fill_columns(data, on="id", unmatched="error")
    with pytest.raises(InvalidArgumentError, match="no row of the data matches"):
        scored.fill_columns({"_row_id": [999], "score": [1.0]})
    assert scored.fill_columns(data, on="id", unmatched="ignore").id == before
    assert scored.fill_columns({"id": [], "score": []}, on="id").id == before
    assert scored.refresh().id == before
    files = {str(path) for path in Path(scored.location).rglob("data/*")}
    assert len(files) == 2, "nothing is left behind"


@pytest.mark.parametrize("ids", [[0, 1, 2, 3], [0, 1, 2, 3, 4, 9], [0, 1, 2, 3, 4, 5]])
def test_a_fill_that_must_match_all_changes_nothing_else(scored: Table, ids: list[int]) -> None:
    data = {"id": ids, "score": [9.0] * len(ids)}
    with pytest.raises(InvalidArgumentError, match="rows have no partner"):
        scored.fill_columns(data, on="id", unmatched="error")
    assert scores(scored) == {number: float(number) for number in range(5)}
    whole = {"id": range(5), "score": [9.0] * 5}
    snapshot = scored.fill_columns(whole, on="id", unmatched="error")
    assert snapshot.properties["matched"] == "5"
    assert set(scores(scored).values()) == {9.0}


def test_rows_without_a_partner_become_null_on_request(scored: Table) -> None:
    scored.fill_columns({"id": [1], "score": [10.0], "new": ["x"]}, on="id", unmatched="null")
    assert scores(scored) == {0: None, 1: 10.0, 2: None, 3: None, 4: None}
    assert scored.scan(filter="new IS NOT NULL").count() == 1
    assert scored.verify(data=True).ok
    scored.fill_columns({"id": [8], "score": [10.0]}, on="id", unmatched="ignore")
    scored.update("TRUE", {"score": 1.0})
    scored.alter_column("score", nullable=False)
    with pytest.raises(SchemaMismatch, match="'score' is NOT NULL"):
        scored.fill_columns({"id": [1], "score": [10.0]}, on="id", unmatched="null")


@pytest.mark.parametrize("wrong", ["drop", True, 1, ["error"]])
def test_what_becomes_of_rows_without_a_partner_is_one_of_three(scored: Table, wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="'error', 'null' or 'ignore'"):
        scored.fill_columns({"id": [1], "score": [10.0]}, on="id", unmatched=wrong)
