"""Filters of parts of Variant columns, in Python and in SQL, of files and of tables."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

import fermion
from fermion import col, variant
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion.predicate.variant_value import type_of_sql
from fermion_table import Table

TEXTS = [
    '{"user":{"id":7,"name":"abc"},"ok":true,"a b":1.5,"tags":["x"]}',
    '{"user":{"id":8},"ok":false}',
    None,
    '{"user":{"id":"9"}}',
    '{"user":null,"it\'s":{"":3}}',
]
ROWS = pa.table({"id": range(5), "event": variant.from_json(TEXTS)})
ID = col("event")["user"]["id"].cast(pa.int64())
CONDITIONS = [
    (ID == 7, [0]),
    (ID > 7, [1, 3]),
    (ID.isin([7, 9]), [0, 3]),
    (ID.is_null(), [2, 4]),
    (ID.is_valid(), [0, 1, 3]),
    (ID.leaf(lambda value: ~col(*value).is_null()), [0, 1, 3]),
    (~(ID < 8), [1, 3]),
    (ID.between(8, 9) & (col("id") < 3), [1]),
    (col("event")["ok"].cast(pa.bool_()), [0]),
    (~col("event")["ok"].cast(pa.bool_()), [1]),
    (col("event")["user"]["name"].cast(pa.string()).starts_with("a"), [0]),
    (col("event")["a b"].cast(pa.float64()).is_nan(), []),
    (col("event")["it's"][""].cast(pa.int8()) == 3, [4]),
    ("variant_get(event, '$.user.id', 'bigint') = 7", [0]),
    ("8 <= variant_get(event, '$.user.id', 'BIGINT')", [1, 3]),
    ("variant_get(event, '$.user.id', 'bigint') BETWEEN 8 AND 9 OR id = 4", [1, 3, 4]),
    ("try_variant_get(event, '$.user.name', 'int') IS NULL", [0, 1, 2, 3, 4]),
    ("variant_get(event, '$.ok', 'boolean')", [0]),
    ("variant_get(event, '$.ok', 'boolean') IS NOT TRUE", [1, 2, 3, 4]),
    ("variant_get(event, '$.tags[0]', 'string') LIKE 'x%'", [0]),
    ("variant_get(event, '$[\"a b\"]', 'decimal(3, 1)') = 1.5", [0]),
    ("variant_get(event, '$.user.id', 'bigint') IN (7, 8) AND id % 2 = 0", [0]),
]


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> tuple[str, Table]:
    """The rows as a file, and as a table of two files."""
    home = tmp_path_factory.mktemp("variant")
    fermion.write_table(ROWS, home / "f")
    table = Table.create(home / "t", ROWS.schema)
    table.append(ROWS[:2])
    table.append(ROWS[2:])
    return str(home / "f"), table


@pytest.mark.parametrize(("condition", "expected"), CONDITIONS)
def test_a_filter_selects_rows_by_a_part_of_a_value(places, condition, expected):
    path, table = places
    if not isinstance(condition, str):
        condition = pickle.loads(pickle.dumps(condition))
    found = fermion.read_table(path, columns=["id"], filter=condition)
    assert found["id"].to_pylist() == expected
    assert table.scan(filter=condition).to_arrow()["id"].to_pylist() == expected
    assert table.count(condition) == len(expected)


@pytest.mark.parametrize(
    "condition", [each for each, _ in CONDITIONS if not isinstance(each, str)], ids=str
)
def test_a_filter_says_itself_in_sql(places, condition):
    path, _ = places
    again = fermion.read_table(path, filter=condition.to_sql())
    assert again.equals(fermion.read_table(path, filter=condition))


@pytest.mark.parametrize(
    ("condition", "error", "words"),
    [
        ("variant_get(id, '$.a', 'int') = 7", InvalidArgumentError, "expected a Variant column"),
        ("variant_get(event, 'a', 'int') = 7", InvalidArgumentError, "expected a path such as"),
        ("variant_get(event, '$.a', 'bigin') = 7", InvalidArgumentError, "type 'bigin': expected"),
        ("variant_get(event, '$.a') = 7", InvalidArgumentError, "expected variant_get"),
        ("variant_get(event, '$.a', 3) = 7", InvalidArgumentError, "expected variant_get"),
        ("variant_get(event, '$.user', 'int') = 1", InvalidArgumentError, "row 0: .*found {"),
        ("variant_get(none, '$.a', 'int') = 1", ColumnNotFoundError, "none"),
        (ID == "x", InvalidArgumentError, "int64, but the literal 'x' is str"),
        (col("id").cast(pa.int64()) == 1, InvalidArgumentError, "expected a Variant column"),
    ],
)
def test_what_is_no_part_of_a_value_is_refused(places, condition, error, words):
    path, table = places
    with pytest.raises(error, match=words):
        fermion.read_table(path, filter=condition)
    with pytest.raises(error, match=words):
        table.scan(filter=condition).to_arrow()


def test_a_type_that_is_none_and_a_path_below_a_type_are_refused():
    with pytest.raises(InvalidArgumentError, match=r"expected a pyarrow\.DataType"):
        col("event")["a"].cast("int")
    with pytest.raises(InvalidArgumentError, match="name the whole path before cast"):
        ID["x"]
    with pytest.raises(InvalidArgumentError, match=r"type 'decimal\(39,1\)'"):
        type_of_sql("decimal(39,1)", "x")
