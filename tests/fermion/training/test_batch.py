"""Columns of training batches: NumPy where NumPy has the type, nulls only where said."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion.errors import ColumnNotFoundError, InvalidArgumentError

TYPES = {
    "int8": pa.array([1, -2, 3], pa.int8()),
    "uint64": pa.array([1, 2**64 - 1, 3], pa.uint64()),
    "half": pa.array(np.array([0.5, -0.0, np.nan], np.float16)),
    "double": pa.array([0.5, -0.0, np.inf]),
    "bool": pa.array([True, False, True]),
    "date": pa.array([datetime.date(2024, 2, 29)] * 3),
    "time": pa.array([1, 2, 3], pa.timestamp("us", tz="Asia/Tokyo")),
    "length": pa.array([1, 2, 3], pa.duration("s")),
    "vector": pa.FixedSizeListArray.from_arrays(pa.array(range(6), pa.float32()), 2),
    "text": pa.array(["a", None, "c"]),
    "list": pa.array([[1, 2], [], [3]], pa.list_(pa.int32())),
    "struct": pa.array([{"a": 1}, None, {"a": None}]),
    "decimal": pa.array([1, 2, None], pa.decimal128(30, 2)),
    "category": pa.array(["x", "y", "x"]).dictionary_encode(),
}


def one_batch(rows, path, **options):
    fermion.write_table(rows, path)
    with fermion.open(path) as file:
        (batch,) = file.training(batch_rows=10, shuffle=None, **options)
    return batch


def test_columns_of_all_types_come_back_as_they_were(tmp_path):
    rows = pa.table(TYPES)
    batch = one_batch(rows, tmp_path / "rows.fermion")
    assert pa.Table.from_batches([batch.to_arrow()]).equals(
        rows.combine_chunks(), check_metadata=False
    ) or (str(batch.to_arrow().to_pydict()) == str(rows.to_pydict()))
    assert batch.to_arrow().schema.equals(rows.schema)
    assert batch["vector"].shape == (3, 2)
    assert batch["double"].dtype == np.float64
    assert np.signbit(batch["double"][1])
    assert isinstance(batch["text"], pa.Array)
    assert list(batch) == list(TYPES) == list(dict(batch))
    assert len(batch) == 3
    assert "3 rows" in repr(batch)


def test_columns_are_the_callers(tmp_path):
    path = tmp_path / "rows.fermion"
    fermion.write_table({"x": np.arange(100.0)}, path)
    with fermion.open(path) as file:
        reader = file.training(batch_rows=50)
        for batch in reader.epoch(0):
            batch["x"][:] = -1  # writable, and not seen by anyone else
        assert sorted(np.concatenate([batch["x"] for batch in reader.epoch(1)])) == list(range(100))


NULLS = pa.table(
    {
        "x": pa.array([1, None, 3]),
        "flag": pa.array([None, True, False]),
        "day": pa.array([None, datetime.date(2020, 1, 1), None]),
        "vector": pa.array([[1.0, 2.0], None, [3.0, None]], pa.list_(pa.float32(), 2)),
    }
)


@pytest.mark.parametrize("name", NULLS.schema.names)
def test_nulls_have_to_be_said(tmp_path, name):
    with pytest.raises(InvalidArgumentError, match=f"column '{name}' has nulls"):
        one_batch(NULLS.select([name]), tmp_path / "rows.fermion")


def test_nulls_are_filled(tmp_path):
    fill = {"x": -1, "flag": True, "day": datetime.date(1999, 1, 1), "vector": 0.5}
    batch = one_batch(NULLS, tmp_path / "rows.fermion", fill=fill)
    assert batch["x"].tolist() == [1, -1, 3]
    assert batch["flag"].tolist() == [True, True, False]
    assert batch["day"][0] == np.datetime64("1999-01-01")
    assert batch["vector"].tolist() == [[1, 2], [0.5, 0.5], [3, 0.5]]


def test_a_mask_tells_where_nulls_were(tmp_path):
    batch = one_batch(NULLS, tmp_path / "rows.fermion", mask=True)
    assert batch.mask("x").tolist() == [False, True, False]
    assert batch.mask("vector").tolist() == [False, True, False]
    assert batch["x"].tolist() == [1, 0, 3]
    assert batch.to_arrow()["x"].to_pylist() == [1, None, 3]
    assert batch.to_arrow()["vector"].to_pylist() == [[1, 2], None, [3, 0]]


def test_a_mask_that_was_not_asked_for_is_refused(tmp_path):
    batch = one_batch(pa.table({"x": [1], "text": [None]}), tmp_path / "rows.fermion")
    with pytest.raises(InvalidArgumentError, match="mask=True"):
        batch.mask("x")
    assert batch.mask("text").tolist() == [True]
    with pytest.raises(ColumnNotFoundError, match="'y'"):
        batch["y"]
