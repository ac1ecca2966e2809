"""Arguments of wrong types and values: refused by name, before anything is done."""

from __future__ import annotations

import datetime
import io
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import fermion
from fermion import InvalidArgumentError, InvalidFileError, col
from fermion_table import Table

DAYS = [datetime.datetime(2020, 1, day) for day in (1, 2, 3)]
TABLE = pa.table(
    {
        "a": [1, 2, 3],
        "t": pa.array(DAYS),
        "d": pa.array([day.date() for day in DAYS]),
        "p": pa.array([1, 2, 3], pa.duration("s")),
    }
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fermion.write_table(TABLE, tmp_path / "x.fermion")
    return tmp_path / "x.fermion"


@pytest.mark.parametrize("given", [{}, 0, 5, "fast", fermion.ReadOptions(), fermion.WriteOptions])
def test_options_of_the_wrong_class_are_refused(path: Path, given):
    """Empty ones too, by everything that writes."""
    before, message = path.read_bytes(), "options: expected WriteOptions, found"
    for write in (
        lambda: fermion.write_table(TABLE, path, options=given),
        lambda: fermion.Writer(path, TABLE.schema, options=given),
        lambda: fermion.add_columns(path, {"z": [1, 2, 3]}, options=given),
    ):
        with pytest.raises(TypeError, match=message):
            write()
    parquet = io.BytesIO()
    pq.write_table(TABLE, parquet)
    with pytest.raises(TypeError, match=message):
        fermion.from_parquet(parquet.getvalue(), path, options=given)
    if not isinstance(given, fermion.ReadOptions):
        with pytest.raises(TypeError, match="options: expected ReadOptions, found"):
            fermion.open(path, options=given)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("threads", [-1, 0, 1.5, "2", True]),
        ("compression_level", [99, -8, "3", 2.0]),
        ("stripe_bytes", [0, "1", 1.0]),
        ("stripe_rows", [0, None, 1.5, np.float64(3)]),
        ("page_bytes", [0, None, True]),
        ("page_rows_max", [0, None, b"1"]),
        ("block_bytes", [0, "x"]),
        ("blob_inline_bytes", [-1, "x", None, 2**21]),
        ("bloom_filters", ["a", b"a", 5, [5], None, [b"a"]]),
        ("page_bloom_filters", ["a", 5]),
        ("summaries", ["a", 5]),
        ("global_dictionaries", ["a", 5]),
        ("column_order", ["a", 5]),
        ("sorted_by", ["a", 5, [5]]),
        ("statistics", ["a", 5, None]),
        ("encodings", ["a", ["a"], None, {5: "plain"}]),
        ("column_page_bytes", ["a", ["a"], {"a": "1"}, {"a": 0}]),
        ("durable", [1, "no", None]),
        ("read_back", [1, "no", None]),
        ("column_index", [1, "no", None]),
        ("compress_schema", [1, "no", None]),
        ("profile", [5, None, ["fast"]]),
        ("codec", [5, None, ["lz4"]]),
        ("edition", [2026, None, ["2026"]]),
        ("checksum", [5, None]),
        ("align", [7, "8", None]),
    ],
)
def test_write_options_are_checked_when_they_are_made(name, values):
    for value in values:
        with pytest.raises((TypeError, InvalidArgumentError), match=name):
            fermion.WriteOptions(**{name: value})
        with pytest.raises((TypeError, InvalidArgumentError), match=name):
            fermion.write_table(TABLE, io.BytesIO(), **{name: value})


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("threads", [-1, 0, 1.5, "2"]),
        ("prefetch_bytes", [-5, "x"]),
        ("eager_load_threshold", [-1, "x", None]),
        ("coalesce_gap_bytes", [-1, 1.5]),
        ("coalesce_span_bytes", [-1, "x"]),
        ("keep_dictionaries", [1, "no"]),
        ("memory_map", [1, "yes", None]),
        ("verify_checksums", [None, 0]),
        ("use_statistics", [3]),
    ],
)
def test_read_options_are_checked_when_they_are_made(name, values):
    for value in values:
        with pytest.raises((TypeError, InvalidArgumentError), match=name):
            fermion.ReadOptions(**{name: value})


def test_integers_of_numpy_and_any_sequence_of_names_are_taken():
    options = fermion.WriteOptions(
        threads=np.int64(2), compression_level=np.int8(3), bloom_filters=("a",), durable=np.bool_(0)
    )
    assert type(options.threads) is int
    assert options == fermion.WriteOptions(
        threads=2, compression_level=3, bloom_filters=["a"], durable=False
    )
    fermion.write_table(TABLE, io.BytesIO(), options=options)


def test_what_is_no_fermion_file_is_called_what_it_is(tmp_path: Path):
    """A directory, a table, a pipe, and files of other formats, short ones too."""
    Table.create(str(tmp_path / "table"), TABLE.schema)
    with pytest.raises(
        IsADirectoryError, match=r"expected a file, found a directory: '.*'"
    ) as found:
        fermion.open(tmp_path)
    assert found.value.filename == str(tmp_path)
    with pytest.raises(IsADirectoryError, match=r"table, which fermion_table\.Table\.open opens"):
        fermion.open(tmp_path / "table")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidArgumentError, match=r"pipe: expected a regular file, found a pipe"):
        fermion.open(tmp_path / "pipe")
    pq.write_table(TABLE, tmp_path / "p")
    pyarrow.feather.write_feather(TABLE, tmp_path / "f")
    for name, message in (("p", "a Parquet file, which"), ("f", "an Arrow IPC file, which")):
        with pytest.raises(InvalidFileError, match=f"{name}: {message}"):
            fermion.open(tmp_path / name)
        short = (tmp_path / name).read_bytes()[-100:]
        with pytest.raises(InvalidFileError, match=message):
            fermion.open(short)
    with pytest.raises(InvalidFileError, match="a Parquet file, which"):
        fermion.to_parquet(tmp_path / "p", tmp_path / "q")
    with pytest.raises(IsADirectoryError):
        fermion.open("memory://")
    assert not (tmp_path / "q").exists()


@pytest.mark.parametrize("given", [None, 5, 1.5, ["x"]])
def test_what_is_no_path_is_refused(given):
    with pytest.raises(TypeError, match="path: expected a path, a URL or an object with write"):
        fermion.write_table(TABLE, given)
    with pytest.raises(
        TypeError, match="path: expected a path, a URL or an object with the buffer"
    ):
        fermion.open(given)
    with pytest.raises(TypeError, match="source: expected a path"):
        fermion.from_parquet(given, io.BytesIO())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pd.Series([1]), "expected a data frame, found Series"),
        (pd.Index([1]), "expected a data frame, found Index"),
        (pa.array([1]), "expected columns with names, found an array of int64"),
        (pa.chunked_array([[1]]), "expected columns with names, found an array of int64"),
        ({"a": [1, "x"]}, "column 'a': "),
        ({"a": [1], "b": 5}, "column 'b': "),
        ({"a": [1], "b": [1, 2]}, "named b"),
        ({5: [1]}, "column 5"),
        (pd.DataFrame({"a": [1, "x"]}), "column a"),
    ],
)
def test_data_that_is_no_table_is_refused(path: Path, given, message):
    before = path.read_bytes()
    with pytest.raises(InvalidArgumentError, match=f"data: .*{message}"):
        fermion.write_table(given, path)
    assert path.read_bytes() == before


def test_a_value_that_does_not_fit_a_tables_column_names_the_column(table_path):
    table = Table.create(str(table_path), pa.schema([("kind", pa.string()), ("n", pa.int64())]))
    with pytest.raises(InvalidArgumentError, match=r"column 'kind' of type string: .*int"):
        table.append({"kind": [2]})
    with pytest.raises(InvalidArgumentError, match=r"column 'n' of type int64: .*'x'"):
        table.append({"kind": ["a"], "n": ["x"]})
    assert table.scan().count() == 0


def test_dates_of_numpy_are_literals_in_any_unit(path: Path):
    """Days, months and years are their first moments; what is finer than ns has to lose nothing."""
    second, moment = np.datetime64("2020-01-02"), np.datetime64("2020-01-02T00:00:00")
    with fermion.open(path) as file:
        for value in (second, *(moment.astype(f"M8[{unit}]") for unit in ("s", "ms", "us", "ns"))):
            for name in ("t", "d"):
                assert file.read(filter=col(name) == value)["a"].to_pylist() == [2]
                assert file.read(filter=[(name, ">", value)])["a"].to_pylist() == [3]
                assert file.read(filter=col(name).isin([value]))["a"].to_pylist() == [2]
        assert file.read(filter=col("t") == np.datetime64("2020-01"))["a"].to_pylist() == [1]
        assert file.read(filter=col("t") >= np.datetime64("2020", "Y")).num_rows == 3
        assert file.read(filter=col("t") > np.datetime64("1970-01-01T00:00", "ps")).num_rows == 3
        assert file.read(filter=col("p") == np.timedelta64(2, "s"))["a"].to_pylist() == [2]
        assert file.read(filter=col("p") < np.timedelta64(1, "D")).num_rows == 3
        with pytest.raises(InvalidArgumentError, match="its length varies"):
            file.read(filter=col("p") < np.timedelta64(1, "M"))
        with pytest.raises(InvalidArgumentError, match="cannot compare with"):
            file.read(filter=col("t") > np.datetime64(1, "ps"))
        with pytest.raises(InvalidArgumentError, match="cannot compare with"):
            file.read(filter=col("t") > np.datetime64(2**62, "W"))


def test_arguments_of_iter_batches_are_checked_by_the_call(path: Path):
    """Not by the first batch that is asked for."""
    with fermion.open(path) as file:
        for wrong in (
            {"batch_size": 0},
            {"batch_size": "x"},
            {"columns": ["zz"]},
            {"columns": "a"},
            {"filter": "zz = 1"},
            {"filter": 5},
            {"rows": slice(0, 2)},
            {"rows": (2, 1)},
        ):
            with pytest.raises((TypeError, fermion.FermionError)):
                file.iter_batches(**wrong)


def test_a_slice_of_rows_is_refused_by_name(path: Path):
    with (
        fermion.open(path) as file,
        pytest.raises(TypeError, match=r"rows=slice\(0, 2, None\): expected \(start, stop\)"),
    ):
        file.read(rows=slice(0, 2))


def test_a_path_of_no_names_is_no_column(path: Path, tmp_path: Path):
    """Of files and of tables."""
    table = Table.create(tmp_path / "t", TABLE.select(["a"]))
    for read in (
        lambda: fermion.open(path).read([()]),
        lambda: table.scan(columns=[()]).to_arrow(),
        lambda: table.scan(columns=["a", []]).to_arrow(),
    ):
        with pytest.raises(InvalidArgumentError, match="an empty path names no column"):
            read()
