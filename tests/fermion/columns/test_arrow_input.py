"""Data of callers as record batches: no value changes on the way."""

from __future__ import annotations

from collections import deque
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
        ([deque([1.5])], pa.list_(pa.int8())),
        ([np.array([[1.5, 2]])], pa.list_(pa.int8(), 2)),
        ([np.array(1.5)], pa.int8()),
        ([[{"key": "x", "value": 1.5}]], pa.map_(pa.string(), pa.int8())),
        ([2049], pa.float16()),
        (np.array([2049]), pa.float16()),
        (np.array([300]), pa.binary()),
        (np.array([1.5]), pa.binary(8)),
        ([np.ma.masked_array([1, 2], mask=[True, False])], pa.list_(pa.int64())),
        ([1.5], pa.opaque(pa.int8(), "type", "vendor")),
        ([[70_000]], pa.list_(pa.opaque(pa.float16(), "type", "vendor"))),
        ([[1.5, 2]], pa.fixed_shape_tensor(pa.int8(), [2])),
        ([1.5], pa.run_end_encoded(pa.int32(), pa.int8())),
        (np.array([(1, 2)], [("x", "i8"), ("y", "i8")]), pa.struct([("x", pa.int64())])),
        (np.array([86_400], "M8[s]"), pa.time32("s")),
        (np.array([1], "M8[ns]"), pa.date32()),
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


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([np.array([5], "M8[ns]")], pa.list_(pa.timestamp("s"))),
        ([np.array([5], "m8[D]")], pa.list_view(pa.duration("s"))),
        ([np.array([5], "M8[25s]")], pa.list_(pa.timestamp("s"))),
        ([[np.datetime64(5, "ns")]], pa.list_(pa.date32())),
        ([np.datetime64(5, "ns")], pa.time32("s")),
        ([np.array(5, "M8[ns]")], pa.timestamp("s")),
        ([{"x": np.array([5], "M8[D]")}], pa.struct([("x", pa.list_(pa.timestamp("s")))])),
        ([[("x", pd.Series([5], dtype="M8[ns]"))]], pa.map_(pa.string(), pa.list_(pa.date64()))),
        (pd.Series([pd.DatetimeIndex([5])]), pa.large_list(pa.timestamp("us", "UTC"))),
        (np.array([5], "M8[D]"), pa.int32()),
        (np.array([(5,)], [("x", "M8[D]")]), pa.struct([("x", pa.timestamp("s"))])),
        (np.array([2**62], "M8[D]"), pa.timestamp("s")),
    ],
)
def test_times_of_numpy_whose_unit_arrow_does_not_look_at_are_refused(values, dtype):
    """Arrow takes their numbers: 5 ns for 5 s, where they lie within lists."""
    with pytest.raises(InvalidArgumentError, match=r"column 'n'.*: (times of|expected)"):
        record_batch_reader({"n": values}, schema=pa.schema([("n", dtype)]))


@pytest.mark.parametrize(
    ("dtype", "column"),
    [
        ("M8[D]", pa.timestamp("us", "UTC")),
        ("M8[D]", pa.date32()),
        ("M8[D]", pa.opaque(pa.timestamp("s"), "type", "vendor")),
        ("M8[25s]", pa.timestamp("ns")),
        ("M8[M]", pa.date64()),
        ("M8[h]", None),
        ("m8[W]", pa.duration("ms")),
    ],
)
def test_days_of_numpy_are_no_garbage_in_a_column_of_timestamps(dtype, column):
    """Arrow reads every second one of them, and zeros between; of 25 s it reads one."""
    values = np.ma.masked_array(np.array([5, -7, 11, 13], dtype), mask=[False, False, False, True])
    schema = None if column is None else pa.schema([("n", column)])
    found = record_batch_reader({"n": values}, schema=schema).read_all()["n"].to_pylist()
    assert found.pop() is None
    plain = [each.replace(tzinfo=None) if isinstance(each, datetime) else each for each in found]
    assert (np.array(plain, f"{dtype[0]}8[us]") == values.data[:3]).all()


def test_what_is_cut_in_lists_without_a_type_is_refused():
    for data in (
        {"n": [[pd.Timestamp(1)]]},
        {"n": [[{"x": pd.Timedelta(1)}]]},
        {"n": [[date(2020, 1, 1), datetime(2020, 1, 1, 1)]]},
        pd.DataFrame({7: [[pd.Timestamp(1)]]}),
    ):
        with pytest.raises(InvalidArgumentError, match="is more exact than the type"):
            record_batch_reader(data)


def test_nanoseconds_of_a_list_without_a_type_are_refused():
    """Arrow takes pandas' timestamps for such of microseconds; a series keeps them."""
    with pytest.raises(InvalidArgumentError, match="is more exact than the type"):
        record_batch_reader({"n": [pd.Timestamp(1)]})
    kept = record_batch_reader({"n": pd.Series([pd.Timestamp(1)], dtype="M8[ns]")})
    assert kept.schema.field("n").type == pa.timestamp("ns")


@pytest.mark.parametrize(
    "values",
    [
        np.array([0.0, 0.5]),
        np.array([1, -1], np.int8),
        np.array([np.nan]),
        pd.Series([1.0, None, 2.0]),
        pd.Series([1, None, 7], dtype="Int64"),
    ],
)
def test_numbers_of_numpy_other_than_0_and_1_are_no_booleans(values):
    """Arrow takes all but 0 for true."""
    schema = pa.schema([("n", pa.bool_())])
    with pytest.raises(InvalidArgumentError, match=r"'n' of type bool: .* neither true"):
        record_batch_reader({"n": values}, schema=schema)
    if isinstance(values, pd.Series):
        with pytest.raises(InvalidArgumentError, match="neither true"):
            record_batch_reader(pd.DataFrame({"n": values}), schema=schema)


@pytest.mark.parametrize(
    "values",
    [
        np.ma.masked_array([1.0, 0.5, 0.0], mask=[False, True, False]),
        pd.Series([1.0, None, 0.0]),
        pd.Series([1, None, 0], dtype="Int64"),
    ],
)
def test_0_and_1_of_numpy_are_booleans(values):
    schema = pa.schema([("n", pa.bool_())])
    found = record_batch_reader({"n": values}, schema=schema).read_all()["n"]
    assert found.to_pylist() == [True, None, False]


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
