"""Data of callers as record batches: no value changes on the way."""

from __future__ import annotations

import numpy as np
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
