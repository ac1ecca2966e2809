"""Columns by SQL: what may stay, what is refused, values beside those of pyarrow, tables."""

from __future__ import annotations

import builtins
import datetime
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fermion import col
from fermion.engine import SqlExpressions
from fermion.errors import ColumnNotFoundError, FermionError, InvalidArgumentError
from fermion.sql import engine as sql_engine
from fermion_table import ColumnFunctionError, SqlExpression, Table, lit
from fermion_table.operations.column_expressions import ColumnExpressions

STRUCT = pa.struct([("c", pa.int64()), ("d", pa.string())])
ROWS = pa.record_batch(
    {
        "v": pa.array([1, None, 3], pa.int64()),
        "V": pa.array([10, 20, 30], pa.int32()),
        "a.b": [1.5, 2.5, None],
        'q"q': ["x", None, "it's"],
        "s": pa.array([{"c": 1, "d": "x"}, None, {"c": None, "d": "z"}], STRUCT),
        "l": pa.array([[1, 2], [], None], pa.list_(pa.int64())),
        "day": pa.array([datetime.date(2024, 2, 29), None, datetime.date(1969, 12, 31)]),
        "moment": pa.array([0, None, 10**15 + 1], pa.timestamp("ns", "Europe/Berlin")),
        "money": pa.array([Decimal("1.25"), None, Decimal("-2.50")], pa.decimal128(10, 2)),
        "code": pa.array(["a", "b", None]).dictionary_encode(),
        "bytes": pa.array([b"\0\xff", b"", None]),
        "half": pa.array([0.5, None, -2.0], pa.float16()),
        "current_date": [7, 8, 9],
        "fermion column 0": [-1, -2, -3],
    }
)

SAME: dict[str, tuple[pc.Expression, pa.DataType]] = {
    # SQL, what pyarrow computes by, and the type of the column
    "v * 2": (pc.field("v") * 2, pa.int64()),
    "V + v -- a comment": (pc.field("V") + pc.field("v"), pa.int64()),
    'v /* "a.b"; DROP TABLE x */ + "a.b"': (pc.field("v") + pc.field("a.b"), pa.float64()),
    '"q""q" || \'!\'': (pc.binary_join_element_wise(pc.field('q"q'), "!", ""), pa.string()),
    "s.c": (pc.field("s", "c"), pa.int32()),
    "s['d']": (pc.field("s", "d"), pa.large_string()),
    "s": (pc.field("s"), STRUCT),
    "l[1]": (pc.list_element(pc.list_slice(pc.field("l"), 0, 1, 1, True), 0), pa.int64()),
    "len(l)": (pc.list_value_length(pc.field("l")), pa.int8()),
    "year(day)": (pc.year(pc.field("day")), pa.int64()),
    "moment": (pc.field("moment"), pa.timestamp("ns", "Europe/Berlin")),
    "hour(moment::TIMESTAMPTZ)": (
        pc.hour(pc.field("moment").cast(pa.timestamp("ns", "UTC"))), pa.int64(),
    ),
    "money * 2": (pc.field("money") * Decimal(2), pa.decimal128(12, 2)),
    "upper(code)": (pc.utf8_upper(pc.field("code").cast(pa.string())), pa.string()),
    "code": (pc.field("code"), pa.dictionary(pa.int32(), pa.string())),
    "bytes": (pc.field("bytes"), pa.large_binary()),
    "half + 1": (pc.field("half").cast(pa.float32()) + 1, pa.float32()),
    "coalesce(v, 0)": (pc.coalesce(pc.field("v"), 0), pa.int64()),
    "CASE WHEN v > 1 THEN 'many' ELSE 'few' END": (
        pc.if_else(pc.coalesce(pc.field("v") > 1, False), "many", "few"), pa.string(),
    ),
    "current_date + 1": (pc.field("current_date") + 1, pa.int64()),
    '"fermion column 0" * v': (pc.field("fermion column 0") * pc.field("v"), pa.int64()),
    "NULL": (pc.scalar(None), pa.int64()),
    "v;": (pc.field("v"), pa.int64()),
    "nullif(v, 1)": (pc.if_else(pc.field("v") == 1, None, pc.field("v")), pa.int64()),
}  # fmt: skip


@pytest.mark.parametrize("text", SAME)
def test_values_are_those_of_an_expression_of_pyarrow(text: str) -> None:
    """Of all rows, and of none; also from a pickle."""
    expression, dtype = SAME[text]
    columns = pa.schema([("w", dtype)])
    if expression.equals(pc.field("l")) or "list_element" in str(expression):
        expected = [1, None, None]
        given: Any = None
    else:
        given = ColumnExpressions({"w": expression}, columns, "here")
        expected = given(ROWS)["w"].to_pylist()
    function = ColumnExpressions({"w": text}, columns, "here")
    function.check(ROWS.schema)
    found = pickle.loads(pickle.dumps(function))(ROWS)
    assert found.schema == columns
    assert found["w"].to_pylist() == expected
    if given is not None:
        assert function.paths == given.paths or text == "s['d']"
    assert function(ROWS.slice(0, 0)).num_rows == 0
    assert function(ROWS.slice(2))["w"].to_pylist() == expected[2:]


OTHERS: dict[str, list[Any]] = {
    "list_transform(l, lambda x: x + v)": [[2, 3], [], None],
    "list_transform(l, lambda v: v + V)": [[11, 12], [], None],
    "[x * 2 for x in l if x > 1]": [[4], [], None],
    "list_sum(l)": [3, None, None],
    "day = day + age(day, day)": [True, None, True],
    "{'a': v, 'b': s.d}": [{"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": 3, "b": "z"}],
    "1 + 1": [2, 2, 2],
    "repeat('x', V // 10)": ["x", "xx", "xxx"],
    "split_part(s.d, 'x', 1)": ["", None, "z"],
    "day + INTERVAL 1 DAY": [
        datetime.datetime(2024, 3, 1), None, datetime.datetime(1970, 1, 1),
    ],
    "try_cast(\"q\"\"q\" AS INTEGER)": [None, None, None],
    "json_extract_string('{\"a\": 5}', '$.a')": ["5", "5", "5"],
    "strftime(moment, '%H:%M')": ["00:00", None, "13:46"],
    "v IN (1, 2) AND V BETWEEN 1 AND 10": [True, False, False],
}  # fmt: skip


@pytest.mark.parametrize("text", OTHERS)
def test_what_sql_can_say(text: str) -> None:
    expression = pickle.loads(pickle.dumps(SqlExpression(text)))
    assert expression(ROWS).to_pylist() == OTHERS[text]
    assert repr(expression) == f"SqlExpression({text!r})"


REFUSED = {
    "": "expected an expression",
    " \n\t": "expected an expression",
    "v\0": "expected an expression",
    "-- v": "without selection list",
    ";": "without selection list",
    "1); DROP TABLE t": "syntax error",
    "v; DROP TABLE t": "Only SELECT",
    "v; SELECT 1": "one expression",
    "v) FROM t; --": "syntax error",
    "v +": "syntax error",
    "'v": "unterminated|syntax error",
    "*": "no expression of one column",
    "s.*": "no expression of one column",
    "COLUMNS('v')": "no expression of one column",
    "v, V": "one expression",
    "v AS w": "one expression",
    "DISTINCT v": "one expression",
    "v FROM fermion_rows": "one expression",
    "v FROM read_text('x')": "one expression",
    "v WHERE TRUE": "one expression",
    "v LIMIT 1": "one expression",
    "v ORDER BY 1": "one expression",
    "v GROUP BY ALL": "one expression",
    "v HAVING TRUE": "one expression",
    "v QUALIFY TRUE": "one expression",
    "v USING SAMPLE 1": "one expression",
    "v UNION SELECT 1": "one expression",
    "?": "one expression|parameter",
    "$a": "one expression|parameter",
    "#1": "by position",
    "(SELECT 1)": "subquery",
    "v IN (SELECT 1)": "subquery",
    "EXISTS (FROM duckdb_settings())": "subquery",
    "v = ANY(l)": "subquery",
    "sum(v)": r"sum\(\) is no function of one row \(aggregate\)",
    "1 + SUM(v)": "aggregate",
    '"sum"(v)': "aggregate",
    "main.sum(v)": "aggregate",
    "count(*)": "aggregate",
    "any_value(v)": "aggregate",
    "geomean(v)": r"avg\(\) is no function of one row",
    "json_group_array(v)": "aggregate",
    "list_transform(l, lambda x: x + sum(v))": "aggregate",
    "abs(DISTINCT v)": "DISTINCT",
    "sum(v) FILTER (WHERE TRUE)": "FILTER",
    "sum(v) OVER ()": "window",
    "row_number() OVER (ORDER BY v)": "window",
    "lag(v)": "window",
    "unnest(l)": "of another kind",
    "generate_subscripts(l, 1)": "of another kind",
    "regexp_split_to_table('a', 'b')": "of another kind",
    "read_text('x')": "of another kind",
    "query('SELECT 1')": "of another kind",
    "no_such(v)": "unknown",
    "getenv('HOME')": "unknown",
    "random()": "other values when it is called again",
    "v + random()": "other values",
    "now()": "other values",
    "current_localtimestamp()": "other values",
    "current_localtime()": "other values",
    "age(day)": "other values",
    "gen_random_uuid()": "other values",
    "ago(INTERVAL 1 DAY)": "current_timestamp gives other values",
    "nextval('s')": "other values",
    "current_setting('threads')": "other values",
    "getvariable('v')": "other values",
    "list_transform(l, x -> x + 1)": "write lambda x",
    "\"q\"\"q\" -> '$.a'": "write lambda x",
    "list_transform(l, lambda \"fermion column 0\": v)": "lambda is called",
    "DEFAULT": "DEFAULT",
    "(" * 3000 + "v" + ")" * 3000: "depth|deep",
    "v" + " + v" * 3000: "depth|deep",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_expression_of_one_row_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=REFUSED[text]) as caught:
        SqlExpression(text)
    assert "SQL" in str(caught.value)
    assert len(str(caught.value)) < 700


NOT_COMPUTED = {
    "no_such": (ColumnNotFoundError, "no column 'no_such'"),
    "fermion_rows": (ColumnNotFoundError, "no column"),
    "current_user": (ColumnNotFoundError, "no column 'current_user'"),
    "rowid": (ColumnNotFoundError, "no column 'rowid'"),
    "Day": (ColumnNotFoundError, "no column 'Day'; names are case-sensitive: write 'day'"),
    '"V "': (ColumnNotFoundError, "no column 'V '"),
    "s.nope": (InvalidArgumentError, "nope"),
    "v.c.d": (InvalidArgumentError, "v"),
    "'a' + v": (InvalidArgumentError, "Conversion"),
    "v::nonsense": (InvalidArgumentError, "nonsense"),
    "day + day": (InvalidArgumentError, "No function matches"),
    "9223372036854775807 + V": (InvalidArgumentError, "verflow"),
    "list_aggregate(l, 'nonsense')": (InvalidArgumentError, "nonsense"),
    "grouping(v)": (InvalidArgumentError, "GROUPING"),
}


@pytest.mark.parametrize("text", NOT_COMPUTED)
def test_what_can_not_be_computed_says_why(text: str) -> None:
    """And the next query of the thread is answered."""
    error, message = NOT_COMPUTED[text]
    with pytest.raises(error, match=message):
        SqlExpression(text)(ROWS)
    assert SqlExpression("v")(ROWS).to_pylist() == [1, None, 3]


def test_functions_stay_expressions_where_duckdb_says_that_a_zone_is_a_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DuckDB 2.0.1 says that one + and one year() among several give other values later."""
    listed = sql_engine.ENGINE.functions()
    zone = "TIMESTAMP WITH TIME ZONE"
    for name, types in (("+", [zone, "INTERVAL"]), ("-", [zone, zone]), ("year", [zone])):
        row = (name, "scalar", "CONSISTENT_WITHIN_QUERY", None, [], types, "BIGINT")
        listed.append(row)
    monkeypatch.setattr(sql_engine.ENGINE, "functions", lambda: listed)
    sql_engine.functions.cache_clear()
    try:
        batch = pa.record_batch({"a": [1, 2]})
        assert SqlExpression("a - (-a) + 1")(batch).to_pylist() == [3, 5]
        assert SqlExpression("year(DATE '2026-01-01') + a")(batch).to_pylist() == [2027, 2028]
        for clock in ("now()", "random()", "today()"):
            with pytest.raises(InvalidArgumentError, match="other values"):
                SqlExpression(clock)(batch)
    finally:
        sql_engine.functions.cache_clear()


@pytest.mark.parametrize(
    "dtype",
    [
        pa.decimal256(40, 2),
        pa.decimal128(20, -2),
        pa.duration("ns"),
        pa.struct([("a", pa.list_(pa.decimal256(50, 1)))]),
    ],
    ids=str,
)
def test_types_that_would_lose_something_are_refused(dtype: pa.DataType) -> None:
    rows = pa.record_batch([pa.nulls(3, dtype), pa.nulls(3)], names=["x", "y"])
    with pytest.raises(InvalidArgumentError, match="column 'x': DuckDB has no type"):
        SqlExpression("x IS NULL")(rows)
    assert SqlExpression("y IS NULL")(rows).to_pylist() == [True] * 3


def test_half_floats_are_computed_as_floats_wherever_they_are() -> None:
    halves = pa.array([[0.5, None], None], pa.list_(pa.float16()))
    rows = pa.record_batch([halves, pa.array([{"h": 2.5}, None])], names=["x", "y"])
    assert SqlExpression("x[1] + y.h")(rows).to_pylist() == [3.0, None]


def test_an_engine_that_broke_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    import duckdb

    expression = SqlExpression("v")
    before = sql_engine.ENGINE._connection()

    def broken(query: str, rows: Any) -> Any:
        raise duckdb.InternalException("INTERNAL Error: broken")

    with monkeypatch.context() as patch:
        patch.setattr(sql_engine.ENGINE, "run", broken)
        with pytest.raises(InvalidArgumentError, match="INTERNAL Error: broken"):
            expression(ROWS)
    assert expression(ROWS).to_pylist() == [1, None, 3]
    assert sql_engine.ENGINE._connection() is not before


def test_the_engine_has_no_access_to_anything(tmp_path: Path) -> None:
    import duckdb

    (tmp_path / "file.txt").write_text("secret")
    frame = pa.table({"x": [1]})  # not found by its name
    connection = sql_engine.ENGINE._connection()
    for query, message in (
        (f"FROM read_text('{tmp_path}/file.txt')", "disabled"),
        (f"COPY (SELECT 1) TO '{tmp_path}/new.csv'", "disabled"),
        (f"ATTACH '{tmp_path}/new.db'", "disabled"),
        ("INSTALL httpfs", "disabled|not"),
        ("SET enable_external_access = true", "Cannot|locked"),
        ("SET threads = 4", "locked"),
        ("FROM frame", "frame does not exist"),
    ):
        with pytest.raises(duckdb.Error, match=message):
            connection.execute(query)
    assert frame.num_rows == 1
    assert [each.name for each in tmp_path.iterdir()] == ["file.txt"]


def test_many_expressions_are_one_query_and_keep_the_order_of_rows() -> None:
    """More rows than DuckDB computes at once, on several threads."""
    count = 300_000
    rows = pa.record_batch({"v": pa.array(range(count))})
    several = SqlExpressions({f"w{at}": f"v + {at}" for at in range(20)}, "here")
    assert several.paths == (("v",),)

    def compute(_: int) -> bool:
        found = several.compute(rows)
        return all(array.equals(pc.add(rows["v"], at)) for at, array in enumerate(found))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(compute, range(8)))


def test_without_duckdb_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    given = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "duckdb":
            raise ImportError(name)
        return given(name, *rest)

    monkeypatch.delitem(sys.modules, "duckdb", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidArgumentError, match="the extra duckdb of fermion"):
        SqlExpression("v")


def test_an_old_duckdb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import duckdb

    monkeypatch.setattr(duckdb, "__version__", "1.4.5.dev1")
    with pytest.raises(InvalidArgumentError, match=r"needs DuckDB 2.0 or later, found 1.4.5.dev1"):
        SqlExpression("v")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Two files, of which the first has lost a row."""
    table = Table.create(tmp_path / "t", ROWS.schema, durability="fast")
    table.append(ROWS)
    table.append(ROWS)
    table.delete("v = 3")
    return table


def test_a_table_gets_columns_by_sql_beside_other_expressions(table: Table) -> None:
    """What is read follows from the expressions."""
    schema = pa.schema(
        [("w", pa.float64()), ("x", pa.int8()), ("y", pa.int64()), ("z", pa.string())]
    )
    snapshot = table.add_columns_with(
        {
            "w": 'v * "a.b" + s.c',
            "x": SqlExpression("len(l)"),
            "y": col("V"),
            "z": pc.binary_join_element_wise(pc.field("s", "d"), "!", ""),
        },
        schema=schema,
    )
    assert snapshot.kind == "upsert"
    assert table.scan(columns=schema.names).to_arrow().to_pylist() == 2 * [
        {"w": 2.5, "x": 2, "y": 10, "z": "x!"},
        {"w": None, "x": 0, "y": 20, "z": None},
    ]
    whole = pa.schema([("one", pa.int16()), ("id", pa.int64())])
    table.add_columns_with({"one": "1", "id": "_row_id * 10"}, schema=whole)
    found = table.scan(columns=["one", "id", "_row_id"]).to_arrow().to_pylist()
    assert [each["one"] for each in found] == [1] * 4
    assert all(each["id"] == 10 * each["_row_id"] for each in found)
    table.add_columns_with({"constant": "'x'"}, schema=pa.schema([("constant", pa.string())]))
    assert table.scan(columns=["constant"]).to_arrow()["constant"].to_pylist() == ["x"] * 4
    assert table.verify(data=True).ok


@pytest.mark.parametrize(
    ("given", "read", "schema", "error", "message"),
    [
        ({"w": "nope"}, None, pa.int64(), ColumnNotFoundError, "no column 'nope'"),
        ({"w": "v"}, ["V"], pa.int64(), ColumnNotFoundError, "no column 'v'"),
        ({"w": "s.nope"}, None, pa.int64(), ColumnNotFoundError, "nope"),
        ({"w": "sum(v)"}, None, pa.int64(), InvalidArgumentError, "'w'.*aggregate"),
        ({"w": "l"}, None, pa.int64(), InvalidArgumentError, "expected type int64, found list"),
        ({"w": "day"}, None, pa.bool_(), InvalidArgumentError, "expected type bool"),
        ({"w": "day + day"}, None, pa.int64(), InvalidArgumentError, "No function matches"),
        ({"w": 5}, None, pa.int64(), TypeError, "expected SQL, lit, fermion.col or a pyarrow"),
        ({"w": None}, None, pa.int64(), TypeError, "expected SQL"),
        ({"w": pc.field(0)}, None, pa.int64(), InvalidArgumentError, "by position"),
        ({"w": "v", "x": "v"}, None, pa.int64(), InvalidArgumentError, "expected expressions for"),
        (lambda rows: rows, None, pa.int64(), TypeError, "read: expected the columns"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_before_any_file_is_read(
    table: Table, given: Any, read: Any, schema: pa.DataType, error: type, message: str
) -> None:
    before = table.snapshot
    with pytest.raises(error, match=message):
        table.add_columns_with(given, read=read, schema=pa.schema([("w", schema)]))
    assert Table.open(table.location).snapshot == before
    assert not [each for each in table.store.list("data") if "/columns-" in each.path]


def test_a_value_that_does_not_fit_names_the_file_and_the_rows(table: Table) -> None:
    for text in ("V * 100", "v / 3", "CAST(s.d AS INTEGER)"):
        with pytest.raises(ColumnFunctionError, match="rows 0 to 1 of data/") as caught:
            table.add_columns_with({"w": text}, schema=pa.schema([("w", pa.int8())]))
        assert isinstance(caught.value.__cause__, (FermionError, pa.ArrowException))
    assert "w" not in Table.open(table.location).schema.names


def test_an_update_sets_what_sql_computes_and_text_stays_text(tmp_path: Path) -> None:
    """In column files, where only the columns that SQL names are read, and in rewritten rows."""
    names = [f"c{at}" for at in range(8)]
    table = Table.create(tmp_path / "t", {name: [1, 2] for name in names}, durability="fast")
    table.update("TRUE", {"c0": SqlExpression("c1 * 10 + c0")})
    (entry,) = table.scan().entries[0]
    assert len(entry.column_files) == 1
    assert table.scan(columns=["c0"]).to_arrow()["c0"].to_pylist() == [11, 22]
    table.update("c1 = 2", {"c2": SqlExpression("c0 - 1"), "c3": 7})
    found = table.scan(columns=["c2", "c3"]).to_arrow().sort_by("c2").to_pylist()
    assert found == [{"c2": 1, "c3": 1}, {"c2": 21, "c3": 7}]
    with pytest.raises(ColumnNotFoundError, match="no column 'nope'"):
        table.update("TRUE", {"c0": SqlExpression("nope")})
    texts = Table.create(tmp_path / "texts", {"a": ["x"], "b": ["y"]}, durability="fast")
    texts.update("TRUE", {"a": lit("b || b"), "b": SqlExpression("b || b")})
    assert texts.scan().to_arrow().to_pylist() == [{"a": "b || b", "b": "yy"}]


def test_fields_that_differ_in_case_alone_are_computed_from_their_own(tmp_path: Path) -> None:
    dtype = pa.struct([("a", pa.int64()), ("A", pa.int64())])
    rows = pa.table({"s": pa.array([{"a": 1, "A": 2}, None], dtype), "v": [0, 0]})
    table = Table.create(tmp_path / "t", rows, durability="fast")
    table.update("TRUE", {"v": 's."A" * 10 + s.a'})
    table.add_columns_with({"lower": "s.a", "upper": "s.A"})
    found = table.scan(columns=["v", "lower", "upper"]).to_arrow().to_pylist()
    assert [list(row.values()) for row in found] == [[21, 1, 2], [None, None, None]]


@pytest.mark.parametrize("text", ["s['A']", "(s).A", "struct_extract(s, 'A')"])
def test_fields_that_duckdb_does_not_tell_apart_are_refused(tmp_path: Path, text: str) -> None:
    dtype = pa.struct([("a", pa.int64()), ("A", pa.int64())])
    table = Table.create(tmp_path / "t", pa.table({"s": pa.array([{"a": 1, "A": 2}], dtype)}))
    for call in (
        lambda: table.add_columns_with({"v": text}),
        lambda: table.count(f"{text} + 0 = 2"),
    ):
        with pytest.raises(InvalidArgumentError, match="differ in case alone"):
            call()
    assert table.count("s.A + s.a = 3") == 1
