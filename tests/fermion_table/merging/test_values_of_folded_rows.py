"""Values of the rows that an engine makes, also of types that Arrow does not take."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from fermion_table.merge_engines.key_groups import ABSENT, Folded

LONG = "a text that no view holds itself"


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["x", None, LONG], pa.string_view()),
        pa.array([b"x", None, LONG.encode()], pa.binary_view()),
        pa.array([["x", LONG], None, []], pa.list_(pa.string_view())),
        pa.array([{"a": "x"}, None, {"a": None}], pa.struct({"a": pa.binary_view()})),
        pa.array(["x", None, LONG], pa.string()),
    ],
    ids=lambda column: str(column.type),
)
def test_rows_and_values_of_other_rows_are_gathered_from_columns_of_views(column):
    batch = pa.record_batch({"k": [1, 2, 3], "whole": column, "picked": column})
    values = column.to_pylist()
    folded = Folded(np.array([2, 0, 1]), {"picked": np.array([0, ABSENT, 2])})
    found = folded.gather(batch)
    found.validate(full=True)
    assert found.schema == batch.schema
    assert found.to_pydict() == {
        "k": [3, 1, 2],
        "whole": [values[2], values[0], values[1]],
        "picked": [values[0], None, values[2]],
    }
