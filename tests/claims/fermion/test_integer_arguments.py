"""Integers that callers pass to files: nothing is coerced; those of NumPy and Arrow are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import fermion
from fermion.columns.ranges import RowRanges

DATA = pa.table({"a": range(10), "b": [str(n) for n in range(10)]})
NO_INTEGERS = [True, np.bool_(False), 1.0, 1.9, np.float64(1), "1", b"1", float("nan"), 1j]
INTEGERS = [np.int64, np.uint8, np.int8, pa.scalar]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("integers") / "a.fermion"
    with fermion.Writer(found, DATA.schema) as writer:
        for batch_id in (3, 4):
            writer.append_batch(batch_id, DATA)
    return found


CALLS = {
    "take": lambda file, n: file.take([n]),
    "take mixed": lambda file, n: file.take([0, n]),
    "rows start": lambda file, n: file.read(rows=(n, 5)),
    "rows stop": lambda file, n: file.read(rows=(0, n)),
    "count": lambda file, n: file.count(rows=(0, n)),
    "find": lambda file, n: file.find("a > 3", rows=(0, n)),
    "prune": lambda file, n: file.prune("a > 3", rows=(0, n)),
    "iter_batches": lambda file, n: file.iter_batches(rows=(0, n)),
    "batch_size": lambda file, n: file.iter_batches(batch_size=n),
    "read_batch": lambda file, n: file.read_batch(n),
    "columns": lambda file, n: file.read([n]),
    "column": lambda file, n: file.column(n),
    "ranges": lambda file, n: file.read(rows=RowRanges.from_bounds([n], [5])),
    "indices": lambda file, n: file.read(rows=RowRanges.from_indices([n])),
}


@pytest.mark.parametrize("value", NO_INTEGERS, ids=repr)
@pytest.mark.parametrize("call", CALLS)
def test_no_argument_of_a_reader_is_coerced_to_an_integer(path: Path, call: str, value: Any):
    """A type error; text is a column's name, which is not there."""
    expected: Any = TypeError
    if call.startswith("column") and isinstance(value, str):
        expected = fermion.ColumnNotFoundError
    with fermion.open(path) as file, pytest.raises(expected):
        CALLS[call](file, value)


def test_columns_by_number_are_not_taken_from_what_was_asked_for_before(path: Path):
    """1, True and 1.0 are the same key of a dictionary."""
    with fermion.open(path) as file:
        assert file.read([1]).column_names == ["b"]
        for value in (True, 1.0):
            with pytest.raises(TypeError, match=r"columns=.*expected an integer"):
                file.read([value])  # type: ignore[list-item]


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_of_numpy_and_arrow_are_integers_to_a_reader(path: Path, kind: Any):
    """The answers are those to Python's."""
    with fermion.open(path) as file:
        for call in CALLS.values():
            expected, found = call(file, 1), call(file, kind(1))
            if hasattr(expected, "__next__"):
                expected, found = list(expected), list(found)
            if isinstance(expected, fermion.ColumnMetadata):
                expected, found = expected.name, found.name
            assert found == expected


@pytest.mark.parametrize(
    "indices",
    [
        [3, 1, 3],
        (3, 1, 3),
        np.array([3, 1, 3], np.uint8),
        pa.array([3, 1, 3], pa.int16()),
        pa.chunked_array([[3, 1], [3]]),
        pd.Series([3, 1, 3]),
        iter([3, np.int64(1), 3]),
    ],
    ids=lambda indices: type(indices).__name__,
)
def test_take_takes_integers_of_any_kind(path: Path, indices: Any):
    """In their order, repeats included."""
    with fermion.open(path) as file:
        assert file.take(indices, columns=["a"])["a"].to_pylist() == [3, 1, 3]


@pytest.mark.parametrize(
    "indices", [[True, False], [1.7], ["1"], np.array([1.0]), np.array([True]), pa.array([1.5]), 3]
)
def test_take_coerces_nothing(path: Path, indices: Any):
    """A type error names the parameter."""
    with fermion.open(path) as file, pytest.raises(TypeError, match=r"^indices"):
        file.take(indices)


@pytest.mark.parametrize("rows", [slice(0, 2), 5, "01", (0, 1, 2), (0,), {0, 1}, (0.0, 1.5)])
def test_rows_are_a_pair_or_ranges(path: Path, rows: Any):
    """Anything else is a type error that says so."""
    with fermion.open(path) as file, pytest.raises(TypeError, match=r"^rows"):
        file.read(rows=rows)


@pytest.mark.parametrize("batch_id", NO_INTEGERS, ids=repr)
def test_no_batch_id_is_coerced_to_an_integer(tmp_path: Path, batch_id: Any):
    """A type error; the writer goes on."""
    with fermion.Writer(tmp_path / "a.fermion", DATA.schema) as writer:
        with pytest.raises(TypeError, match=r"^batch_id"):
            writer.append_batch(batch_id, DATA)
        with pytest.raises(fermion.InvalidArgumentError, match=r"batch_id"):
            writer.append_batch(2**63, DATA)
        writer.append_batch(np.int64(9), DATA)
        writer.append_batch(pa.scalar(8), DATA)
        writer.append_batch(None, DATA)
    with fermion.open(tmp_path / "a.fermion") as file:
        assert file.batches()[0].tolist() == [9, 8, 10]


def test_rows_of_a_row_group_are_an_integer(path: Path, tmp_path: Path):
    """Of Parquet."""
    with pytest.raises(TypeError, match=r"^row_group_size"):
        fermion.to_parquet(path, tmp_path / "a.parquet", row_group_size=1.5)  # type: ignore[arg-type]
    with pytest.warns(fermion.ConversionWarning):
        fermion.to_parquet(path, tmp_path / "a.parquet", row_group_size=np.int32(7))
