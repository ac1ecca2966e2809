"""A key column of Arrow's type null is refused by its name, and nothing is made."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table


def test_a_key_column_of_type_null_is_refused_by_its_name(tmp_path):
    schema = pa.schema([("id", pa.null()), ("v", pa.int64())])
    with pytest.raises(InvalidArgumentError, match="key column 'id' is null: expected an integer"):
        Table.create(tmp_path / "t", schema, primary_key=["id"])
    assert not Table.exists(tmp_path / "t")
