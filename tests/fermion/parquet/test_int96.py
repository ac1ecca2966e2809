"""INT96 timestamps of Parquet files: instants in UTC, in microseconds, or an error."""

from __future__ import annotations

import datetime as dt
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fermion
from fermion.errors import InvalidFileError
from tests.kit.equality import assert_logically_equal

NANOSECONDS = pa.timestamp("ns")
INSTANT = pa.timestamp("us", "UTC")
UTC = dt.UTC


def parquet_with_int96(table: pa.Table, *, store_schema: bool = False) -> io.BytesIO:
    stream = io.BytesIO()
    pq.write_table(table, stream, use_deprecated_int96_timestamps=True, store_schema=store_schema)
    stream.seek(0)
    return stream


def converted(source, tmp_path) -> pa.Table:
    target = tmp_path / "a.fermion"
    fermion.from_parquet(source, target)
    return fermion.read_table(target)


def with_int96_days(source: io.BytesIO, days: int) -> io.BytesIO:
    """The file with another Julian day in its one INT96 value of 1970-01-01."""
    epoch = np.uint64(0).tobytes() + np.uint32(2_440_588).tobytes()
    data = source.getvalue()
    assert data.count(epoch) >= 1
    return io.BytesIO(data.replace(epoch, epoch[:8] + np.uint32(days).tobytes()))


def one_value() -> io.BytesIO:
    """1970-01-01 as INT96, without statistics and dictionary."""
    stream = io.BytesIO()
    pq.write_table(
        pa.table({"a": pa.array([0], NANOSECONDS)}),
        stream,
        use_deprecated_int96_timestamps=True,
        store_schema=False,
        use_dictionary=False,
        write_statistics=False,
        compression="none",
    )
    return stream


def test_int96_becomes_microseconds_in_utc_at_any_depth(tmp_path):
    """In columns, lists, maps and structs, beside INT64 timestamps that keep having no zone."""
    values = pa.array([0, None, 1_500, -1_500_000], NANOSECONDS)
    stamps = pa.array([[0, 1_000], None, [], [None]], pa.list_(NANOSECONDS))
    struct = pa.StructArray.from_arrays([values, pa.array([1, 2, 3, 4])], ["x", "y"])
    table = pa.table({"a": values, "l": stamps, "s": struct, "k": pa.array([1, 2, 3, 4])})
    found = converted(parquet_with_int96(table), tmp_path)
    assert found.schema.field("a").type == INSTANT
    assert found.schema.field("l").type.value_type == INSTANT
    assert found.schema.field("s").type.field("x").type == INSTANT
    assert found["a"].cast(pa.int64()).to_pylist() == [0, None, 1, -1500]
    assert found["l"].to_pylist()[0] == [
        dt.datetime(1970, 1, 1, tzinfo=UTC),
        dt.datetime(1970, 1, 1, microsecond=1, tzinfo=UTC),
    ]
    assert found["s"].combine_chunks().field("y").to_pylist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("day", "date"),
    [
        (1_721_426, dt.datetime(1, 1, 1)),
        (2_299_239, dt.datetime(1583, 1, 1)),
        (5_373_484, dt.datetime(9999, 12, 31)),
    ],
)
def test_int96_of_the_years_1_to_9999_does_not_overflow(tmp_path, day, date):
    """Nanoseconds turn 1583 into 2167."""
    found = converted(with_int96_days(one_value(), day), tmp_path)
    assert found["a"].to_pylist() == [date.replace(tzinfo=UTC)]


@pytest.mark.parametrize("day", [2**32 - 1, 2_440_588 + 106_751_992])
def test_int96_out_of_range_is_an_error_and_leaves_nothing(tmp_path, day):
    """The last day of 32 bits, and the first that microseconds can't number."""
    source = with_int96_days(one_value(), day)
    target = tmp_path / "a.fermion"
    with pytest.raises(InvalidFileError, match=r"row group 0: column 'a': expected INT96"):
        fermion.from_parquet(source, target)
    assert not target.exists()


def test_int96_that_arrow_wrote_stays_what_its_schema_says(tmp_path):
    """Arrow's own schema lies in the file: nanoseconds without a zone."""
    table = pa.table({"a": pa.array([0, None, 1_500], NANOSECONDS)})
    found = converted(parquet_with_int96(table, store_schema=True), tmp_path)
    assert_logically_equal(found["a"], table["a"])
