"""Scans: columns, filters, limits, forms of the result, and that pruning changes no answer."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fermion
from fermion import col
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import Table
from fermion_table.scanning import scan
from fermion_table.schema.schema import field_to_arrow
from fermion_table.schema.selection import select_columns
from tests.kit.counting import calls
from tests.kit.equality import assert_logically_equal
from tests.kit.strategies import random_array, scalar_types

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.string())]))])),
    ],
    metadata={"made": "here"},
)


def part(start):
    return pa.Table.from_pylist(
        [
            {"id": n, "name": f"n{n}", "s": None if n % 4 == 3 else {"x": n, "y": {"z": "z" * n}}}
            for n in range(start, start + 5)
        ],
        SCHEMA,
    )


WHOLE = pa.concat_tables([part(start) for start in range(0, 20, 5)])


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    table = Table.create(tmp_path_factory.mktemp("scan") / "table", SCHEMA)
    for start in range(0, 20, 5):
        table.append(part(start))
    return table


FORMS = {
    "to_arrow": lambda scan: scan.to_arrow(),
    "to_batches": lambda scan: pa.Table.from_batches(scan.to_batches(), schema=scan.schema),
    "to_reader": lambda scan: scan.to_reader().read_all(),
    "stream": lambda scan: pa.RecordBatchReader.from_stream(scan).read_all(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("threads", [1, 3])
def test_every_form_gives_the_rows_in_the_order_they_came(table, form, threads):
    found = FORMS[form](table.scan(threads=threads))
    assert found.schema.equals(SCHEMA, check_metadata=True)
    assert found.equals(WHOLE)


def test_frames_of_pandas_polars_and_duckdb_hold_the_rows(table):
    scan = table.scan(columns=["id", "name"], filter="id > 2")
    wanted = WHOLE.select(["id", "name"]).slice(3).replace_schema_metadata(None)
    frame = pa.Table.from_pandas(scan.to_pandas()).replace_schema_metadata(None)
    assert frame.cast(wanted.schema).equals(wanted)  # text of pandas 3 is large_string
    assert scan.to_polars().to_dict(as_series=False) == wanted.to_pydict()
    lazy = scan.to_polars(lazy=True).filter(pl.col("id") < 6).select("name").head(2).collect()
    assert lazy.to_dict(as_series=False) == {"name": ["n3", "n4"]}
    with duckdb.connect() as connection:
        assert scan.to_duckdb(connection).aggregate("sum(id)").fetchall() == [(187,)]


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (["name", "id"], ["name", "id"]),
        (["s.x"], ["s"]),
        (["s.y.z", "id", "s.x"], ["s", "id"]),
        ([("s", "y")], ["s"]),
        ([], []),
    ],
)
def test_columns_come_in_the_order_asked_and_structs_are_pruned(table, columns, names):
    found = table.scan(columns=columns).to_arrow()
    assert found.column_names == names
    assert found.num_rows == 20
    if "s.y.z" in columns:
        assert found.field("s").type == SCHEMA.field("s").type
    if columns == ["s.x"]:
        assert found.column("s").to_pylist()[:4] == [{"x": 0}, {"x": 1}, {"x": 2}, None]


def test_patterns_stand_for_columns_of_tables_and_files(tmp_path):
    """In their order, each once; a name is itself, whatever signs it has."""
    rows = pa.table({name: [1] for name in ("id", "f_1", "f.2", "f_*", "g_[1]")})
    table = Table.create(tmp_path / "t", rows)
    fermion.write_table(rows, tmp_path / "f")
    with fermion.open(tmp_path / "f") as file:
        for columns, names in (
            (["f*"], ["f_1", "f.2", "f_*"]),
            (["g_[1]", "*_*", "id"], ["g_[1]", "f_1", "f_*", "id"]),
            (["f_*"], ["f_*"]),
            (["*"], rows.column_names),
        ):
            assert table.scan(columns=columns).to_arrow().column_names == names
            assert table.scan().select(columns).training(batch_rows=1).schema.names == names
            assert file.read(columns).column_names == names
            assert file.training(columns, batch_rows=1).schema.names == names
        for missing in (["h_*"], [("f*",)]):
            with pytest.raises(ColumnNotFoundError, match=r"h_\*|f\*"):
                table.scan(columns=missing)
            with pytest.raises(ColumnNotFoundError, match=r"h_\*|f\*"):
                file.read(missing)


@pytest.mark.parametrize("columns", [["nope"], ["s.nope"], ["id.x"], [("s", "y", "q")]])
def test_a_column_that_is_not_there_is_an_error_at_once(table, columns):
    with pytest.raises(ColumnNotFoundError):
        table.scan(columns=columns)


def test_a_text_of_columns_or_a_negative_limit_is_refused(table):
    with pytest.raises(InvalidArgumentError, match="list of names"):
        table.scan(columns="id")
    with pytest.raises(InvalidArgumentError, match="limit=-1"):
        table.scan(limit=-1)
    with pytest.raises(InvalidArgumentError, match="one of them"):
        table.scan(snapshot_id=1, tag="x")


@pytest.mark.parametrize(
    "question",
    [
        "id >= 5 AND id < 7",
        col("id").between(5, 6),
        [("id", ">=", 5), ("id", "<", 7)],
        pa.compute.field("id").isin([5, 6]),
        "s.x IN (5, 6)",
        "s.y.z = 'zzzzz' OR name = 'n6'",
    ],
    ids=["sql", "col", "dnf", "pyarrow", "nested", "or"],
)
def test_filters_come_in_every_form(table, question):
    assert table.scan(filter=question).to_arrow().column("id").to_pylist() == [5, 6]
    assert table.scan(filter=question, columns=["name"]).to_arrow().to_pydict() == {
        "name": ["n5", "n6"]
    }
    assert table.scan(filter=question).count() == 2


def test_a_filter_opens_only_files_that_may_match(table, monkeypatch):
    opened = []
    real = fermion.open

    def counting(path, **options):
        opened.append(path)
        return real(path, **options)

    monkeypatch.setattr("fermion.open", counting)
    scan = table.scan(filter="id = 7")
    assert scan.to_arrow().num_rows == 1
    assert len(opened) == 1
    assert "statistics: 1 of 4 files" in scan.explain()
    assert "filter: id = 7" in scan.explain()
    assert table.scan(filter="id > 100").to_arrow().num_rows == 0
    assert len(opened) == 1


def test_a_limit_stops_reading(table, monkeypatch):
    opened = []
    real = fermion.open
    monkeypatch.setattr("fermion.open", lambda path, **o: opened.append(path) or real(path, **o))
    assert table.scan(limit=3, threads=1).to_arrow().equals(WHOLE.slice(0, 3))
    assert len(opened) == 1
    assert table.scan(limit=7).to_arrow().equals(WHOLE.slice(0, 7))
    assert table.scan(limit=0).to_arrow().num_rows == 0
    assert table.scan(limit=99).count() == 20
    assert table.scan(limit=3, filter="id > 1").count() == 3
    assert table.scan(columns=[], limit=3).to_arrow().num_rows == 3
    assert table.scan().head(2).equals(WHOLE.slice(0, 2))


def test_a_question_about_two_columns_makes_no_arrow_fields_of_the_others(table_path, monkeypatch):
    """Cost follows the columns named, in a table of a thousand."""
    names = [f"c{i}" for i in range(1000)]
    table = Table.create(table_path, pa.schema([(name, pa.int8()) for name in names]))
    table.append({"c7": [1, 2], "c9": [3, 4]})
    made = []
    real = field_to_arrow

    def counting(field, **options):
        made.append(field.name)
        return real(field, **options)

    for module in (
        "planning.filters",
        "planning.plan",
        "planning.split",
        "schema.conversion",
    ):
        monkeypatch.setattr(f"fermion_table.{module}.field_to_arrow", counting)
    assert table.scan(columns=["c9"], filter="c7 = 2").to_arrow().to_pydict() == {"c9": [4]}
    assert set(made) == {"c7", "c9"}
    with pytest.raises(ColumnNotFoundError, match="'c99'"):
        table.scan(filter="c9x9 = 1")


def test_counting_without_a_filter_opens_nothing(table, monkeypatch):
    monkeypatch.setattr("fermion.open", lambda *args, **options: 1 / 0)
    assert table.scan().count() == 20
    assert table.scan(columns=[]).to_arrow().num_rows == 20


def test_the_reader_and_its_splits_read_the_same_in_another_process(table):
    """Pickled apart, as an engine ships them."""
    scan = table.scan(columns=["name", "s.x"], filter="id > 3 AND s.x < 12")
    reader = pickle.loads(pickle.dumps(scan.reader))
    splits = [pickle.loads(pickle.dumps(split)) for split in scan.plan().splits]
    assert len(pickle.dumps(scan.plan().splits[0])) < 1_000
    batches = [batch for split in splits for batch in reader.read(split, threads=1)]
    assert pa.Table.from_batches(batches, schema=reader.schema).equals(scan.to_arrow())


def test_a_split_of_some_rows_reads_those(table):
    scan = table.scan(columns=["id"])
    (split, *_) = scan.plan().splits
    values = {"row_range": (1, 4)}
    some = type(split)(**{name: getattr(split, name) for name in split.__slots__} | values)
    assert [b.column(0).to_pylist() for b in scan.reader.read(some)] == [[1, 2, 3]]
    assert scan.reader.count(some) == 3


def test_batch_columns_are_there_when_asked_for_and_null_in_other_files(table_path):
    table = Table.create(table_path, pa.schema([("v", pa.int8())]))
    table.append_batches([(7, {"v": [1, 2]}), (9, {"v": []}), (8, {"v": [3]})])
    table.append({"v": [4]})
    asked = ["batch_id", "index_in_batch", "v"]
    assert table.scan().schema.names == ["v"]
    assert table.scan(columns=asked).to_arrow().to_pydict() == {
        "batch_id": [7, 7, 8, None],
        "index_in_batch": [0, 1, 0, None],
        "v": [1, 2, 3, 4],
    }
    assert table.lookup_batch(8).to_pydict() == {"v": [3]}
    assert table.lookup_batch(9).num_rows == table.lookup_batch(1).num_rows == 0
    assert table.scan(batch_id=[7, 8], filter="v > 1").to_arrow().to_pydict() == {"v": [2, 3]}
    assert table.scan(filter="batch_id IS NULL").to_arrow().to_pydict() == {"v": [4]}
    assert len(table.scan(batch_id=8).plan().splits) == 1


def test_a_users_own_batch_id_column_hides_the_virtual_one(table_path):
    table = Table.create(table_path, pa.schema([("batch_id", pa.string())]))
    table.append({"batch_id": ["x"]})
    assert table.scan(filter="batch_id = 'x'").count() == 1
    with pytest.raises(InvalidArgumentError, match="hides the batch ids"):
        table.scan(batch_id=1)
    assert [f.name for f in select_columns(table.schema, None, where="t")] == ["batch_id"]


def comparable(dtype):
    """Arrow compares no decimals of negative scale."""
    return not pa.types.is_decimal(dtype) or dtype.scale >= 0


@settings(max_examples=60)
@given(
    scalar_types().filter(comparable),
    st.integers(0, 2**32),
    st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "not in", "null", "not null"]),
)
def test_pruning_changes_no_answer(tmp_path_factory, dtype, seed, operator):
    """Any type, over files of sorted values, against the filter applied to all rows at once."""
    rng = np.random.default_rng(seed)
    path = tmp_path_factory.mktemp("prune") / "table"
    data = pa.table({"v": random_array(rng, dtype, 24), "n": np.arange(24)})
    table = Table.create(path, data.schema, durability="fast")
    for start in range(0, 24, 6):
        table.append(data.slice(start, 6))
    literal = data.column("v")[int(rng.integers(0, 24))]
    column = col("v")
    try:
        question = {
            "==": lambda: column == literal,
            "!=": lambda: column != literal,
            "<": lambda: column < literal,
            "<=": lambda: column <= literal,
            ">": lambda: column > literal,
            ">=": lambda: column >= literal,
            "in": lambda: column.isin([literal]),
            "not in": lambda: ~column.isin([literal]),
            "null": column.is_null,
            "not null": column.is_valid,
        }[operator]()
        scan = table.scan(filter=question)
    except InvalidArgumentError:
        return  # a type that does not compare
    file = tmp_path_factory.mktemp("whole") / "file.fermion"
    fermion.write_table(data, file)
    options = fermion.ReadOptions(use_statistics=False)
    with fermion.open(file, options=options) as whole:
        wanted = whole.read(filter=question)
    assert scan.to_arrow().column("n").to_pylist() == wanted.column("n").to_pylist()
    assert scan.count() == wanted.num_rows
    assert_logically_equal(scan.to_arrow(), wanted)


def test_small_local_files_are_read_without_threads(
    table_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would only pass Python's lock to and fro."""
    table = Table.create(table_path, pa.schema({"a": pa.int64()}), durability="fast")
    for number in range(3):
        table.append({"a": [number]})

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a thread")

    monkeypatch.setattr(scan, "read_ahead", refuse)
    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor", refuse)
    assert table.scan(threads=4).to_arrow()["a"].to_pylist() == [0, 1, 2]
    assert table.scan(threads=4, filter="a = 1").to_arrow()["a"].to_pylist() == [1]
    monkeypatch.setattr(scan, "SMALL_FILE_BYTES", 0)
    with pytest.raises(AssertionError, match="a thread"):
        table.scan(threads=4).to_arrow()


def small_files(path, count: int = 20) -> Table:
    """A table of small files, some with nulls, with fewer columns, and with one of another type."""
    table = Table.create(path, pa.schema([("a", pa.int32()), ("name", pa.string())]))
    for number in range(count):
        if number == 7:
            with table.update_schema() as update:
                update.alter_column("a", type=pa.int64())
                update.add_column("late", pa.float64())
        rows = {"a": [number, None, -number], "name": [f"n{number % 5}", "x", None]}
        table.append(rows if number < 9 else {**rows, "late": [0.5, number, None]})
    return table


@pytest.mark.parametrize(
    "filter",
    [
        "a > 3",
        "name = 'n2' OR late > 10",
        "late IS NULL AND a < 0",
        "NOT (name = 'x')",
        pc.field("a") > 12,
        "a > 100",
    ],
)
def test_small_files_filtered_together_give_the_rows_of_each(filter, tmp_path, monkeypatch):
    """Against the same scan file by file; in the order of rows, and as a count."""
    table = small_files(tmp_path / "t")
    for columns in (None, ["late"], ["name", "a"], []):
        found = table.scan(columns=columns, filter=filter).to_arrow()
        batches = list(table.scan(columns=columns, filter=filter).to_batches())
        with monkeypatch.context() as patched:
            patched.setattr(scan.SplitReader, "gathering", lambda *_: None)
            one_by_one = table.scan(columns=columns, filter=filter)
            assert found.equals(one_by_one.to_arrow())
            assert table.scan(filter=filter).count() == one_by_one.count() == found.num_rows
        assert len(batches) <= 3
    assert table.scan(filter=filter, limit=2).to_arrow().num_rows == min(found.num_rows, 2)


def test_files_that_have_lost_rows_or_are_large_are_filtered_one_by_one(tmp_path):
    table = small_files(tmp_path / "t", 3)
    splits = table.scan(filter="a > 0").plan().splits
    reader = table.scan(filter="a > 0").reader
    assert reader.gathering(splits) is not None
    assert table.scan().reader.gathering(splits) is None
    assert reader.gathering([*splits, replace(splits[0], rows=10**6)]) is None
    assert reader.gathering([*splits, replace(splits[0], row_range=(0, 1))]) is None
    table.delete("a = 1")
    assert table.scan(filter="a > 0").to_arrow()["a"].to_pylist() == [2]
    assert table.scan(filter="a > 0").count() == 1


def test_a_filter_of_many_small_files_costs_no_more_calls_than_reading_them(tmp_path):
    """Functions of Python for each file, of tables of 20 and 40 files."""
    counts = {}
    for files in (20, 40):
        table = small_files(tmp_path / str(files), files)
        for name, do in (
            ("read", lambda table=table: table.scan().to_arrow()),
            ("filter", lambda table=table: table.scan(filter="a > 3").to_arrow()),
            ("count", lambda table=table: table.scan(filter="a > 3").count()),
        ):
            do()
            counts[name, files] = calls(do)
    each = {
        name: (counts[name, 40] - counts[name, 20]) / 20 for name in ("read", "filter", "count")
    }
    assert each["filter"] < 1.15 * each["read"] < 370
    assert each["count"] < 1.15 * each["read"]
