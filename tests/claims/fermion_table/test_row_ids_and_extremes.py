"""Row ids, and least and greatest values, of scans."""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from fermion_table import Table

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("f", pa.float64()),
        ("t", pa.string()),
        ("s", pa.struct([("x", pa.int32())])),
        ("l", pa.list_(pa.int64())),
    ]
)


def rows(start: int, count: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "a": None if n % 4 == 3 else n,
                "f": math.nan if n % 5 == 0 else n / 2,
                "t": "long text that is cut " * 3 + str(n),
                "s": None if n % 6 == 0 else {"x": -n},
                "l": [n],
            }
            for n in range(start, start + count)
        ],
        SCHEMA,
    )


@pytest.fixture
def table(table_path):
    table = Table.create(table_path, SCHEMA)
    for start in range(0, 30, 10):
        table.append(rows(start, 10))
    return table


def test_row_ids_count_through_the_history(table):
    """In every combination with columns, filters (pushed down or not), limits and deletions."""
    assert table.scan(columns=["_row_id"]).to_arrow().column(0).to_pylist() == list(range(30))
    assert table.scan(columns=["_row_id"]).io_stats["files"] == 0
    found = table.scan(columns=["t", "_row_id", "s.x"], filter="a >= 18").to_arrow()
    assert found.column_names == ["t", "_row_id", "s"]
    assert found.column("_row_id").to_pylist() == [18, 20, 21, 22, 24, 25, 26, 28, 29]
    assert [text.split()[-1].removeprefix("cut") for text in found.column("t").to_pylist()] == [
        str(n) for n in found.column("_row_id").to_pylist()
    ]
    asked = table.scan(filter="_row_id IN (3, 14, 99) OR a = 20", columns=["_row_id"])
    assert asked.to_arrow().column(0).to_pylist() == [3, 14, 20]
    assert asked.count() == 3
    assert table.scan(filter="_row_id = 7", columns=["a"]).to_arrow().to_pydict() == {"a": [None]}
    table.delete("a = 1 OR a = 14")
    left = [n for n in range(30) if n not in (1, 14)]
    assert table.scan(columns=["_row_id"]).to_arrow().column(0).to_pylist() == left
    assert table.scan(columns=["_row_id"], limit=3).to_arrow().column(0).to_pylist() == [0, 2, 3]
    old = table.scan(snapshot_id=3, columns=["_row_id"]).to_arrow()
    assert old.column(0).to_pylist() == list(range(30))


def test_rows_that_are_rewritten_get_new_ids(table):
    table.compact()
    found = table.scan(columns=["_row_id", "t"]).to_arrow()
    assert found.column("_row_id").to_pylist() == list(range(30, 60))
    table.append(rows(30, 1))
    assert table.scan(columns=["_row_id"]).to_arrow().column(0).to_pylist()[-1] == 60


def test_a_column_of_that_name_hides_the_ids(table_path):
    table = Table.create(table_path, pa.schema([("_row_id", pa.string())]))
    table.append(pa.table({"_row_id": ["mine"]}))
    assert table.scan().to_arrow().to_pydict() == {"_row_id": ["mine"]}
    assert table.scan(filter="_row_id = 'mine'").count() == 1


def test_extremes_come_from_metadata_where_bounds_are_exact(table):
    """Numbers are; texts longer than a bound are not; a file that lost rows is read."""
    scan = table.scan()
    assert [each.as_py() for each in scan.min_max("a")] == [0, 29]
    assert [each.as_py() for each in scan.min_max("f")] == [0.5, 14.5]
    assert [each.as_py() for each in scan.min_max("s.x")] == [-29, -1]
    assert [each.as_py() for each in scan.known_min_max("a")] == [0, 29]
    assert scan.known_min_max("t") is None
    assert scan.io_stats["files"] == 0
    texts = sorted(rows(0, 30).column("t").to_pylist())
    assert [each.as_py() for each in scan.min_max("t")] == [texts[0], texts[-1]]
    assert scan.io_stats["files"] == 3
    table.delete("a = 0")
    less = table.scan()
    assert less.known_min_max("a") is table.scan(limit=2).known_min_max("a") is None
    assert [each.as_py() for each in less.min_max("a")] == [1, 29]
    assert less.io_stats["files"] == 1
    assert [each.as_py() for each in table.scan(filter="a < 9").min_max("a")] == [1, 8]
    assert [each.as_py() for each in table.scan(limit=2).min_max("a")] == [1, 2]
    with pytest.raises(InvalidArgumentError, match="no order"):
        scan.min_max("l")


def test_columns_added_later_count_with_their_defaults(table):
    table.add_columns({"n": pa.int64(), "d": pa.int64()}, defaults={"d": 5})
    assert [each.as_py() for each in table.scan().min_max("n")] == [None, None]
    assert [each.as_py() for each in table.scan().min_max("d")] == [5, 5]
    table.alter_column("a", type=pa.int64())
    table.append(pa.table({"a": [100], "d": [7]}))
    assert [each.as_py() for each in table.scan().min_max("d")] == [5, 7]
    assert table.scan().min_max("a")[1].as_py() == 100


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(st.none() | st.floats() | st.just(-0.0), max_size=5), max_size=4))
def test_extremes_are_those_of_the_rows(tmp_path_factory, parts):
    """Files of any floats, NaN and infinities among them."""
    table = Table.create(
        tmp_path_factory.mktemp("extremes") / "table", pa.schema([("f", pa.float64())]),
        durability="fast",
    )  # fmt: skip
    for part in [*parts, [math.nan]]:
        table.append(pa.table({"f": pa.array(part, pa.float64())}))
    values = [each for part in parts for each in part if each is not None and each == each]
    wanted = pc.min_max(pa.array(values, pa.float64()))
    assert table.scan().min_max("f") == (wanted["min"], wanted["max"])


def test_half_floats_have_extremes_too(table_path):
    table = Table.create(table_path, pa.schema([("h", pa.float16())]))
    for part in ([1.5, None], [-2.0], [math.nan]):
        table.append(pa.table({"h": pa.array(part, pa.float32()).cast(pa.float16())}))
    assert [float(each.as_py()) for each in table.scan().min_max("h")] == [-2.0, 1.5]
    table.delete("h = -2")
    assert [float(each.as_py()) for each in table.scan().min_max("h")] == [1.5, 1.5]


def test_a_column_named_like_row_ids_hides_no_ids(table_path):
    """They get the next name that is free."""
    table = Table.create(table_path, pa.schema([("_row_id", pa.int64()), ("_row_id_", pa.int64())]))
    table.append({"_row_id": [7, 8], "_row_id_": [1, 2]})
    assert table.schema.row_id_name == "_row_id__"
    found = table.scan(columns=["_row_id__", "_row_id"], filter="_row_id__ = 1").to_arrow()
    assert found.to_pylist() == [{"_row_id__": 1, "_row_id": 8}]
    assert table.scan().to_arrow().column_names == ["_row_id", "_row_id_"]


@pytest.mark.parametrize("name", ["batch_id", "index_in_batch", "_row_id"])
def test_a_field_of_a_struct_named_like_a_virtual_column_is_read_alone(table_path, name):
    """Its file was asked for the whole struct: another field came back under its name."""
    struct = pa.struct({"a": pa.int64(), "b": pa.int64()})
    table = Table.create(table_path, pa.schema([(name, struct)]))
    table.append({name: [{"a": 1, "b": 2}, None]})
    for path, value in (((name, "a"), {"a": 1}), ((name, "b"), {"b": 2})):
        assert table.scan(columns=[path]).to_arrow().column(0).to_pylist() == [value, None]
