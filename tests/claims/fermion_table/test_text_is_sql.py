"""Text is SQL wherever a column is set: in updates, merges and new columns. `lit` is a value."""

from __future__ import annotations

import datetime
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import Table, lit
from fermion_table.errors import SchemaMismatch

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "city": pa.string(),
        "n": pa.int8(),
        "day": pa.date32(),
        "is_new": pa.bool_(),
        "kind": pa.dictionary(pa.int32(), pa.string()),
        "pair": pa.struct({"x": pa.int64()}),
    }
)
ROWS = pa.table(
    {"id": [1, 2], "city": ["Rome", "Oslo"], "n": [1, 2], "pair": [{"x": 10}, {"x": 20}]}
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Two rows; whatever warns fails."""
    made = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    made.append(ROWS)
    return made


@pytest.fixture
def keyed(tmp_path: Path) -> Table:
    made = Table.create(tmp_path / "k", SCHEMA, primary_key="id", durability="fast")
    made.upsert(ROWS)
    return made


@pytest.fixture(autouse=True)
def _no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        yield


def row(table: Table, number: int = 1) -> dict[str, Any]:
    (found,) = table.scan(filter=f"id = {number}").to_arrow().to_pylist()
    return found


@pytest.mark.parametrize("name", ["table", "keyed"])
def test_an_update_computes_sql_and_does_not_store_its_text(
    name: str, request: pytest.FixtureRequest
) -> None:
    table = request.getfixturevalue(name)
    table.update("id = 1", {"city": "upper(city)"})
    assert row(table)["city"] == "ROME"
    table.update(
        "id = 1", {"city": "lower(city) || '!'", "n": "n + id", "pair": "{'x': pair.x + 1}"}
    )
    assert (row(table)["city"], row(table)["n"], row(table)["pair"]) == ("rome!", 2, {"x": 11})
    assert (row(table, 2)["city"], row(table, 2)["n"]) == ("Oslo", 2)


@pytest.mark.parametrize(
    ("column", "text", "expected"),
    [
        ("city", "'Oslo'", "Oslo"),
        ("city", "city", "Rome"),
        ("city", "kind", None),
        ("city", "CASE WHEN id = 1 THEN 'one' END", "one"),
        ("n", "5", 5),
        ("n", "'5'", 5),
        ("n", "NULL", None),
        ("n", "id", 1),
        ("day", "'2026-01-02'", datetime.date(2026, 1, 2)),
        ("is_new", "true", True),
        ("is_new", "n > 0", True),
        ("kind", "city", "Rome"),
        ("kind", "'a'", "a"),
        ("pair", "NULL", None),
    ],
)
def test_sql_of_every_kind_sets_columns_of_every_kind(
    table: Table, column: str, text: str, expected: Any
) -> None:
    table.update("id = 1", {column: text})
    assert row(table)[column] == expected


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("city", "upper(city)"),
        ("city", "city"),
        ("city", ""),
        ("city", None),
        ("n", 7),
        ("day", datetime.date(2026, 1, 2)),
        ("kind", "city"),
        ("pair", {"x": 3}),
    ],
)
def test_lit_is_the_value_itself(table: Table, column: str, value: Any) -> None:
    table.update("id = 1", {column: pickle.loads(pickle.dumps(lit(value)))})
    assert row(table)[column] == value
    table.merge({"id": [2]}, ["id"]).when_matched_update({column: lit(value)}).execute()
    assert row(table, 2)[column] == value


def test_lit_of_a_wrong_type_is_refused(table: Table) -> None:
    for value in ("five", lit(lit("a")), [1], 1000):
        with pytest.raises(InvalidArgumentError, match="column 'n'"):
            table.update("TRUE", {"n": lit(value)})
    assert row(table)["n"] == 1


@pytest.mark.parametrize(
    "text",
    ["Paris", "New York", "it's", "", "example.com", "price-list", "5", "2024-01-01", "null", "["],
)
@pytest.mark.parametrize("column", ["city", "kind"])
def test_text_that_names_no_column_is_a_value_for_the_last_time(
    table: Table, column: str, text: str
) -> None:
    with pytest.warns(FutureWarning, match=r"write fermion_table\.lit\(") as caught:
        table.update("id = 1", {column: text})
    assert row(table)[column] == text
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(FutureWarning, match=r"merge: .*column '" + column) as caught:
        table.merge({"id": [2]}, ["id"]).when_matched_update({column: text}).execute()
    assert row(table, 2)[column] == text
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(
    ("column", "text", "error"),
    [
        ("city", "upper(cty)", ColumnNotFoundError),
        ("city", "uper(city)", InvalidArgumentError),
        ("city", "city || cty", ColumnNotFoundError),
        ("city", "the city of Rome", InvalidArgumentError),
        ("city", "upper(city", InvalidArgumentError),
        ("city", "max(city)", InvalidArgumentError),
        ("city", "now()", InvalidArgumentError),
        ("n", "Rome", ColumnNotFoundError),
        ("n", "id + ", InvalidArgumentError),
        ("n", "id * 1000", InvalidArgumentError),
        ("n", "city", InvalidArgumentError),
        ("n", "city || 'x'", InvalidArgumentError),
        ("day", "2024-01-01x", InvalidArgumentError),
        ("day", "City", ColumnNotFoundError),
    ],
)
def test_text_that_is_wrong_sql_is_refused_and_lit_is_named(
    table: Table, column: str, text: str, error: type[Exception]
) -> None:
    before = table.snapshot.id
    with pytest.raises(error, match=f"column '{column}'|{column}: ") as caught:
        table.update("TRUE", {column: text})
    is_sql = text in ("id * 1000", "city", "city || 'x'")
    assert is_sql or f"write lit({text!r})" in str(caught.value)
    assert table.refresh().id == before


def test_merges_compute_sql_of_both_sides(table: Table) -> None:
    source = {"id": [2, 3], "city": ["Bern", "Lima"], "more": [5, 6]}
    merge = table.merge(source, ["id"])
    merge = merge.when_matched_update({"n": "target.n + source.more", "city": "upper(source.city)"})
    merge = merge.when_not_matched_insert(
        {"id": "source.id", "city": "source.city || ' new'", "kind": "'inserted'"}
    )
    merge.when_not_matched_by_source_update({"city": "target.city || '?'"}).execute()
    assert (row(table)["city"], row(table, 2)["city"], row(table, 2)["n"]) == ("Rome?", "BERN", 7)
    assert (row(table, 3)["city"], row(table, 3)["kind"]) == ("Lima new", "inserted")


def test_merges_of_primary_key_tables_compute_sql(keyed: Table) -> None:
    merge = keyed.merge({"id": [2, 3], "more": [5, 6]}, ["id"])
    merge = merge.when_matched_update({"n": "target.n + source.more"})
    merge.when_not_matched_insert({"id": "source.id", "city": "'new'"}).execute()
    assert (row(keyed, 2)["n"], row(keyed, 3)["city"]) == (7, "new")


@pytest.mark.parametrize(
    ("values", "error", "match"),
    [
        ({"n": "n + 1"}, ColumnNotFoundError, "named target.COLUMN or source.COLUMN"),
        ({"city": "upper(city)"}, ColumnNotFoundError, "named target.COLUMN or source.COLUMN"),
        ({"city": "upper(source.cty)"}, ColumnNotFoundError, "source.city"),
        ({"city": "source.city of the source"}, InvalidArgumentError, "write lit"),
        ({"n": "source.city"}, SchemaMismatch, "n: .*int8"),
    ],
)
def test_merges_refuse_wrong_sql_before_they_read_anything(
    table: Table, values: dict[str, str], error: type[Exception], match: str
) -> None:
    merge = table.merge({"id": [2], "city": ["Bern"]}, ["id"])
    with pytest.raises(error, match=match):
        merge.when_matched_update(values)


def test_new_columns_are_computed_from_sql_or_are_literal(table: Table) -> None:
    schema = pa.schema({"twice": pa.int64(), "text": pa.string()})
    table.add_columns_with({"twice": "id * 2", "text": lit("id * 2")}, schema=schema)
    assert (row(table, 2)["twice"], row(table, 2)["text"]) == (4, "id * 2")


def test_columns_and_words_need_no_engine_of_sql(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    table.update("id = 1", {"city": "kind", "n": lit(5)})
    table.merge({"id": [2], "city": ["x"]}, ["id"]).when_matched_update(
        {"city": "source.city"}
    ).execute()
    assert (row(table)["city"], row(table, 2)["city"]) == (None, "x")
    with pytest.warns(FutureWarning):
        table.update("id = 1", {"city": "Paris"})
    with pytest.raises(InvalidArgumentError, match="SQL needs DuckDB"):
        table.update("id = 1", {"city": "upper(city)"})


def test_bug_a_merge_warned_twice_of_the_same_text(table: Table, keyed: Table) -> None:
    """It was read when its clause was given, and again for each try of the commit."""
    for target in (table, keyed):
        merge = target.merge({"id": [2, 3]}, ["id"])
        with pytest.warns(FutureWarning) as caught:
            merge = merge.when_matched_update({"city": "New York"})
        assert len(caught) == 1
        with pytest.warns(FutureWarning) as caught:
            merge = merge.when_not_matched_insert({"id": "source.id", "city": "New York"})
        assert len(caught) == 1
        merge.execute()  # a warning fails
        assert [row(target, number)["city"] for number in (2, 3)] == ["New York"] * 2


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("city", "id", "1"),
        ("city", "day", None),
        ("kind", "city", "Rome"),
        ("n", "id", 1),
        ("id", "n", 1),
    ],
)
def test_bug_a_column_alone_was_not_cast_as_other_sql_is(
    table: Table, keyed: Table, column: str, text: str, value: object
) -> None:
    for target in (table, keyed):
        if (target, column) == (keyed, "id"):
            continue  # a key stays
        target.update("id = 1", {column: text})
        assert row(target)[column] == value


def test_a_column_alone_that_does_not_fit_is_refused_by_name(table: Table) -> None:
    with pytest.raises(InvalidArgumentError, match=r"'n': SQL 'city': expected type int8.*string"):
        table.update("TRUE", {"n": "city"})
