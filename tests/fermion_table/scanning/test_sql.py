"""SQL over tables: `Table.sql` and `Catalog.sql`, whose columns and filters reach the files."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fermion.columns.types import with_wide_floats
from fermion.errors import InvalidArgumentError
from fermion_table import Catalog, MissingDataFile, Table, TableNotFound
from fermion_table.scanning.sql import SqlResult

ROWS = pa.table(
    {"id": range(100), "at": range(100, 200), "city": ["Rome", "Oslo"] * 50, 'q"t': [0] * 100}
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Four files of 25 rows."""
    made = Table.create(tmp_path / "t", ROWS.schema, durability="fast")
    for start in range(0, 100, 25):
        made.append(ROWS.slice(start, 25))
    return made


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = Catalog.open(tmp_path / "w", durability="fast")
    made.create_table("db.events", ROWS)
    made.create_table("db.deep.er.users", {"id": [1, 2], "name": ["a", "b"]})
    made.create_table("db.`a.b`", {"id": [7]})
    made.create_table("top", {"id": [2]})
    return made


def read(result: SqlResult) -> dict[str, int]:
    (scan,) = result.scans.values()
    return scan.io_stats


def test_a_filter_in_sql_prunes_files_and_other_columns_are_not_read(tmp_path: Path) -> None:
    """Counted: files opened and bytes used; the column that is not named takes a mebibyte."""
    table = Table.create(
        tmp_path / "t",
        durability="fast",
        schema=pa.schema({"id": pa.int64(), "payload": pa.binary()}),
    )
    for start in range(0, 100, 25):
        payload = [os.urandom(1 << 15) for _ in range(25)]
        table.append({"id": range(start, start + 25), "payload": payload})
    result = table.sql("SELECT sum(id) AS total FROM this WHERE id BETWEEN 30 AND 40")
    assert result.to_arrow().to_pylist() == [{"total": sum(range(30, 41))}]
    assert read(result)["files"] == 1
    assert read(result)["bytes_used"] < 1 << 15
    everything = table.sql("SELECT count(payload) AS n FROM this")
    assert everything.to_arrow().to_pylist() == [{"n": 100}]
    assert read(everything)["files"] == 4
    assert read(everything)["bytes_used"] > 100 << 15


def test_an_answer_is_data_for_every_library(table: Table) -> None:
    result = table.sql('SELECT city, max("at") AS last FROM this GROUP BY city ORDER BY city')
    expected = pa.table({"city": ["Oslo", "Rome"], "last": [199, 198]})
    assert result.to_arrow() == expected
    assert result.schema == expected.schema
    assert pa.table(result) == expected
    assert result.to_reader().read_all() == expected
    assert pl.DataFrame(result).equals(pl.from_arrow(expected))
    assert result.to_polars().equals(pl.from_arrow(expected))
    pd.testing.assert_frame_equal(result.to_pandas(), expected.to_pandas())
    assert result.head(1) == expected.slice(0, 1)
    assert duckdb.sql("SELECT count(*) FROM result").fetchall() == [(2,)]
    assert pickle.loads(pickle.dumps(result)).to_arrow() == expected
    assert "columns city, last" in repr(result)


def test_answers_are_read_side_by_side_and_left_halfway(table: Table) -> None:
    result = table.sql("FROM this")
    first, second = iter(result.to_reader()), iter(result.to_reader())
    assert next(first).num_rows + next(second).num_rows > 0
    del first
    assert sum(batch.num_rows for batch in result.to_batches()) == 100
    assert table.sql("FROM this AS a, this b LIMIT 1").to_arrow().num_columns == 8


def test_the_snapshot_of_the_handle_is_asked(table: Table) -> None:
    result = table.sql("SELECT count(*) AS n FROM this")
    Table.open(table.location).append(ROWS)
    assert result.to_arrow()["n"].to_pylist() == [100]
    table.refresh()
    assert table.sql("SELECT count(*) AS n FROM THIS").to_arrow()["n"].to_pylist() == [200]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("FROM events", "sql: no table events; expected this"),
        ("SELECT at FROM this", r'double quotes: write "at"'),
        ("SELECT nope FROM this", "nope"),
        ("SELECT 'open FROM this", "unterminated"),
        ("", "expected one query, found 0 statements"),
        (";", "found 0 statements"),
        ("FROM this; FROM this", "found 2 statements"),
        ("DELETE FROM this", r"found DELETE: table\.delete\(filter\)"),
        ("UPDATE this SET id = 1", r"found UPDATE: table\.update\("),
        ("INSERT INTO this VALUES (1)", r"found INSERT: table\.append\(rows\)"),
        ("DROP TABLE this", r"found DROP: fermion_table\.drop_table"),
        ("ALTER TABLE this ADD COLUMN x INT", r"found ALTER: table\.update_schema"),
        ("CREATE TABLE x AS FROM this", r"found CREATE: Table\.create"),
        ("COPY this TO 'x.csv'", "found COPY"),
        ("SET threads = 1", "found SET"),
        ("FROM read_csv('/etc/passwd')", "disabled by configuration"),
        ("FROM '/etc/passwd'", "no table /etc/passwd"),
    ],
)
def test_what_is_no_query_of_the_table_is_refused(table: Table, query: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"(?s){message}"):
        table.sql(query)
    assert Table.open(table.location).snapshot.id == table.snapshot.id


def test_queries_without_the_table_and_of_other_forms_are_answered(table: Table) -> None:
    assert table.sql("SELECT 1 AS x").to_arrow().to_pylist() == [{"x": 1}]
    assert table.sql('PIVOT this ON city USING sum(id) GROUP BY "q""t"').to_arrow().num_rows == 1
    assert "id" in table.sql("EXPLAIN SELECT id FROM this").to_arrow()[1][0].as_py()
    assert table.sql("SUMMARIZE this").to_arrow().num_rows == 4
    shadowed = "WITH this AS (SELECT id + 1 AS id FROM this) SELECT max(id) AS m FROM this"
    assert table.sql(shadowed).to_arrow().to_pylist() == [{"m": 100}]
    with pytest.raises(TypeError, match="query: expected text"):
        table.sql(5)  # type: ignore[arg-type]


def test_an_error_of_the_table_is_not_one_of_duckdb(table: Table) -> None:
    result = table.sql("SELECT sum(id) FROM this")
    for file in Path(table.location).glob("data/**/*.fermion"):
        file.unlink()
    with pytest.raises(MissingDataFile, match="names a file that is gone"):
        result.to_arrow()


def test_tables_of_a_catalog_are_joined_by_name(catalog: Catalog) -> None:
    query = (
        "SELECT name, city FROM db.events JOIN db.deep.er.users USING (id) JOIN top USING (id), "
        'db."a.b" AS other WHERE other.id = 7'
    )
    assert catalog.sql(query).to_arrow().to_pylist() == [{"name": "b", "city": "Rome"}]
    subquery = "WITH few AS (FROM db.events LIMIT 3) SELECT count(*) AS n FROM few"
    assert catalog.sql(subquery).to_arrow().to_pylist() == [{"n": 3}]
    assert catalog.sql("DESCRIBE top").to_arrow().num_rows == 1


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("FROM db.event", TableNotFound, r"no table db\.event; the closest names: db\.events"),
        ("FROM DB.events", TableNotFound, r"no table DB\.events"),
        ("WITH x AS (FROM nope) FROM x", TableNotFound, "no table nope"),
        ("DELETE FROM top", InvalidArgumentError, "found DELETE"),
        ("EXPLAIN FROM top", InvalidArgumentError, "expected a SELECT"),
    ],
)
def test_what_a_catalog_can_not_answer_is_said(
    catalog: Catalog, query: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        catalog.sql(query)


def test_bug_an_error_between_batches_was_one_of_pyarrow(table: Table) -> None:
    """The rows come as a stream, and the last of them is no number."""
    bad = Table.create(f"{table.location}-bad", {"x": ["1"] * 300_000 + ["one"]}, durability="fast")
    result = bad.sql("SELECT CAST(x AS INT) AS x FROM this")
    with pytest.raises(InvalidArgumentError, match=r"sql: .*Could not convert string 'one'"):
        for _ in result.to_batches():
            pass


def test_an_answer_takes_values_and_tells_their_types(table: Table) -> None:
    """Those of the columns they are compared with; left out they are NULL."""
    query = (
        "SELECT count(*) AS n FROM this WHERE id BETWEEN $1 AND $2 AND this.CITY IN ($3, $4) "
        "AND $5 LIKE 'x%' LIMIT $6"
    )
    scans = {("this",): table.scan()}
    values = {"1": 10, "2": 19, "3": "Rome", "5": "xy", "6": 1}
    result = SqlResult(query, scans, where="here", parameters=values)
    kinds = [pa.int64(), pa.int64(), pa.string(), pa.string(), pa.string(), pa.int64()]
    assert list(result.parameter_types.values()) == kinds
    assert result.to_arrow().to_pylist() == [{"n": 5}]
    assert pickle.loads(pickle.dumps(result)).to_arrow().to_pylist() == [{"n": 5}]
    named = SqlResult("SELECT $b AS x, $a AS y;", {}, where="here", parameters={"a": 1, "b": 2})
    assert list(named.parameter_types) == ["b", "a"]
    assert named.to_arrow().to_pylist() == [{"x": 2, "y": 1}]
    with pytest.raises(InvalidArgumentError, match=r"here: .*Values were not provided"):
        SqlResult("SELECT ?", {}, where="here")


HALVES = np.array([0.1, 1.0, np.nan, 65504.0, 6e-8, -0.0], np.float16)


@pytest.mark.parametrize(
    "condition",
    [
        *("h > 0.1", "h >= 0.0999755859375", "h = 1", "h IN (1, 65504)", "h < 1e-7", "isnan(h)"),
        *("s.x = 1", "m['k'] > 1", "l[1] > 0.5", "f[2] = 1"),
    ],
)
def test_half_floats_come_as_floats_into_duckdb(tmp_path: Path, condition: str) -> None:
    columns = {
        "id": pa.array(range(6)),
        "h": pa.array(HALVES),
        "s": pa.array([{"x": value} for value in HALVES], pa.struct([("x", pa.float16())])),
        "m": pa.array([[("k", value)] for value in HALVES], pa.map_(pa.string(), pa.float16())),
        "l": pa.array([[value] for value in HALVES], pa.list_(pa.float16())),
        "f": pa.array([[0, value] for value in HALVES], pa.list_(pa.float16(), 2)),
    }
    table = Table.create(tmp_path / "t", pa.table(columns))
    expected = pa.schema([with_wide_floats(field) for field in table.scan().schema])
    rows = table.to_arrow().cast(expected)
    query = f"SELECT id FROM this WHERE {condition}"
    asked = duckdb.connect().from_arrow(rows).query("this", query).fetchall()
    assert table.sql(query).to_arrow()["id"].to_pylist() == [id for (id,) in asked]
    assert table.to_duckdb().query("this", query).fetchall() == asked
    assert pa.types.is_float32(table.sql("SELECT * FROM this").schema.field("h").type)


STRANGE: dict[str, pa.Array] = {
    "big": pa.array([1], pa.decimal256(76, 0)),
    "interval": pa.array([None], pa.month_day_nano_interval()),
}


@pytest.mark.parametrize("name", STRANGE)
def test_bug_columns_of_types_that_others_lack_were_not_named(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUST_BACKTRACE", "0")
    table = Table.create(tmp_path / "t", pa.table({"id": [7], name: STRANGE[name]}))
    calls = {
        "DuckDB": [lambda: table.sql("SELECT id FROM this"), lambda: table.to_duckdb().fetchall()],
        "Polars": [lambda: table.to_polars().collect(), lambda: table.scan().to_polars()],
    }
    lacks = {"big": ["DuckDB", "Polars"], "interval": ["Polars"]}[name]
    for library, made in calls.items():
        for call in made:
            if library in lacks:
                with pytest.raises(
                    InvalidArgumentError, match=rf"{library} has no type for {name} "
                ):
                    call()
            else:
                call()
    rest = table.scan(columns=["id"])
    assert rest.to_duckdb().fetchall() == [(7,)]
    assert rest.to_polars()["id"].to_list() == [7]


@pytest.mark.parametrize("query", ['SELECT "V" FROM this', "SELECT max(this.V) FROM this", 's."A"'])
def test_bug_names_that_differ_in_case_alone_gave_the_first_column(
    tmp_path: Path, query: str
) -> None:
    dtype = pa.struct([("a", pa.int64()), ("A", pa.int64())])
    rows = {"v": [1], "V": [2], "s": pa.array([{"a": 1, "A": 2}], dtype)}
    table = Table.create(tmp_path / "t", pa.table(rows), durability="fast")
    with pytest.raises(InvalidArgumentError, match="differ in case alone"):
        table.sql(query if "this" in query else f"SELECT {query} FROM this")
    known = table.sql("SELECT v, V_1, s.a FROM this WHERE V_1 = 2").to_arrow().to_pylist()
    assert known == [{"v": 1, "V_1": 2, "a": 1}]
