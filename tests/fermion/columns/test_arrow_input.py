"""Data of callers as record batches: no value changes on the way."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fermion.columns.arrow_input import record_batch_reader
from fermion.errors import InvalidArgumentError

SCHEMA = pa.schema([("n", pa.int64())])


@pytest.mark.parametrize("values", [[1.5], (1, 2.5), [float("nan")], [np.float32(0.5)], [2.0**70]])
def test_floats_with_fractions_are_refused_for_integer_columns(values):
    """Arrow cuts fractions off where it converts a list of Python numbers."""
    with pytest.raises(InvalidArgumentError, match="column 'n' of type int64"):
        record_batch_reader({"n": values}, schema=SCHEMA)


@pytest.mark.parametrize("values", [[1.0, 2, None], (3.0,), [], [np.float64(4)]])
def test_whole_floats_are_integers(values):
    found = record_batch_reader({"n": values}, schema=SCHEMA).read_all()
    assert found.column("n").to_pylist() == list(values)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([None, datetime(2020, 1, 1, 0, 0, 0, 1)], pa.timestamp("ms")),
        ([datetime(2020, 1, 1, 12)], pa.date32()),
        ([date(2020, 1, 1), datetime(2020, 1, 1, 12)], pa.date64()),
        ([time(1, 2, 3, 4)], pa.time32("s")),
        ([timedelta(microseconds=1)], pa.duration("ms")),
        ([[1, 1.5]], pa.list_(pa.int8())),
        ([np.array([1.5])], pa.list_(pa.int8())),
        ([np.array([1.5], object)], pa.list_(pa.int8())),
        ([[("x", 1.5)]], pa.map_(pa.string(), pa.int8())),
        ([{"x": 1.5}], pa.map_(pa.string(), pa.int8())),
        ([Decimal("1.5")], pa.int8()),
        ([1.5], pa.dictionary(pa.int8(), pa.int64())),
        ([1.5], pa.timestamp("s")),
        ([pd.Timestamp(1)], pa.timestamp("us")),
        ([pd.Timedelta(1)], pa.duration("us")),
        (pd.Series([1.5], dtype=object), pa.int8()),
        (np.array(["2020-01-01T12"], "M8[h]"), pa.date32()),
        ([None, {"x": [time(1, 2, 3, 4)]}], pa.struct([("x", pa.large_list(pa.time32("ms")))])),
        ([(1.5,), None], pa.struct([("x", pa.int8())])),
        ([{b"x": 1.5}], pa.struct([("x", pa.int8())])),
        ([{b"x": 1, "y": 2}], pa.struct([("x", pa.int8()), ("y", pa.int8())])),
        ([[("x", 1.5)]], pa.struct([("x", pa.int8())])),
        ([{"x": 1, "y": 2}], pa.struct([("x", pa.int8())])),
        ([{"X": 1}], pa.struct([("x", pa.int8())])),
        ([[[("x", 1), ("y", 2)]]], pa.list_(pa.struct([("x", pa.int8())]))),
        ([1.0, None, 1e300], pa.float32()),
        ([10**400], pa.float32()),
        ([70_000], pa.float16()),
        (np.array([1.0, 1e39]), pa.float32()),
        (pd.Series([-70_000]), pa.float16()),
        ([np.array([1e300])], pa.list_(pa.float32())),
        ([None, np.array([70_000])], pa.list_(pa.float16())),
        (np.ma.masked_array([1.0, 1e300], mask=[True, False]), pa.float32()),
        ([10**400], pa.int64()),
        ([[(1e300, "y")]], pa.list_(pa.struct([("x", pa.float32()), ("y", pa.string())]))),
    ],
)
def test_what_arrow_would_cut_off_is_refused(values, dtype):
    with pytest.raises(InvalidArgumentError, match="column 'n' of type"):
        record_batch_reader({"n": values}, schema=pa.schema([("n", dtype)]))


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([datetime(2020, 1, 1, 0, 0, 0, 1000), None], pa.timestamp("ms", "Europe/Oslo")),
        ([datetime(2020, 1, 1), date(2020, 1, 2), pd.NaT], pa.date32()),
        (np.array(["2020-01-01T00", "NaT"], "M8[h]").astype("M8[s]"), pa.date32()),
        ([timedelta(days=1)], pa.month_day_nano_interval()),
        ([timedelta(days=999_999_999)], pa.duration("s")),
        ([datetime(1850, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))], pa.timestamp("s", "UTC")),
        ([pd.Timestamp(1)], pa.timestamp("ns")),
        ([np.longdouble(1), np.float16(2), Decimal("3.0")], pa.int8()),
        ([[1.0, 2], None], pa.list_(pa.int8())),
        ([[("x", 1.0)], {"y": 2.0}, None], pa.map_(pa.string(), pa.int8())),
        ([(1.0,), None], pa.struct([("x", pa.int8())])),
        ([{b"x": 1.0}, {"x": 2}], pa.struct([("x", pa.int8())])),
        ([{}, {"x": None}, None], pa.struct([("x", pa.int8())])),
        ([float("inf"), -0.0, None, 3.4028234663852886e38, 0.1, True], pa.float32()),
        (np.array([np.inf, 1e38]), pa.float32()),
        ([], pa.float16()),
    ],
)
def test_what_fits_is_taken(values, dtype):
    found = record_batch_reader({"n": values}, schema=pa.schema([("n", dtype)])).read_all()
    assert found.column("n").combine_chunks().equals(pa.array(values, dtype))


def test_nanoseconds_of_a_list_without_a_type_are_refused():
    """Arrow takes pandas' timestamps for such of microseconds; a series keeps them."""
    with pytest.raises(InvalidArgumentError, match="is more exact than the type"):
        record_batch_reader({"n": [pd.Timestamp(1)]})
    kept = record_batch_reader({"n": pd.Series([pd.Timestamp(1)], dtype="M8[ns]")})
    assert kept.schema.field("n").type == pa.timestamp("ns")


def test_hidden_values_of_masked_arrays_are_not_looked_at():
    values = np.ma.masked_array([1.0, 1e300], mask=[False, True])
    found = record_batch_reader({"n": values}, schema=pa.schema([("n", pa.float32())]))
    assert found.read_all()["n"].to_pylist() == [1.0, None]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([1e300], pa.float32()), ([{"x": 1, "z": 2}], pa.struct([("x", pa.int64())]))],
)
def test_what_arrow_would_cut_off_of_a_frame_is_refused(values, dtype):
    with pytest.raises(InvalidArgumentError, match="column 'n' of type"):
        record_batch_reader(pd.DataFrame({"n": values}), schema=pa.schema([("n", dtype)]))


def test_frames_of_pandas_3_are_frames_of_pandas():
    """From that version on their class says it is of the module ``pandas``: the index stays out."""
    frame = type("DataFrame", (pd.DataFrame,), {"__module__": "pandas"})({"a": [1]}, index=["x"])
    assert record_batch_reader(frame).schema.names == ["a"]
    with pytest.raises(InvalidArgumentError, match="to_frame"):
        record_batch_reader(type("Series", (pd.Series,), {"__module__": "pandas"})([1]))


@pytest.mark.parametrize("values", ["int64", b"ab"])
def test_a_text_is_no_column_of_characters(values):
    """As in a dict of types, given instead of a schema."""
    with pytest.raises(InvalidArgumentError, match="column 'a': expected a sequence of values"):
        record_batch_reader({"a": values})
