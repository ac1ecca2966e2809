"""A primary-key table is no source of a stream: its commits replace rows."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from fermion_table import Table
from spark_ext.datasource.stream import FermionStreamReader
from spark_ext.errors import UnsupportedBySpark
from spark_ext.options import Use, parse_options
from spark_ext.types import spark_schema

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.mark.parametrize(
    "ask",
    [
        FermionStreamReader.initialOffset,
        FermionStreamReader.prepareForTriggerAvailableNow,
        FermionStreamReader.reportLatestOffset,
    ],
)
@pytest.mark.parametrize("skips", ["true", "false"])
def test_a_stream_of_a_keyed_table_is_refused(tmp_path, ask: Callable, skips: str):
    table = Table.create(tmp_path / "t", SCHEMA, primary_key=["id"])
    table.upsert({"id": [1]})
    options = {"path": table.location, "skipRewrites": skips}
    stream = FermionStreamReader(
        parse_options(options, Use.STREAM_READ), spark_schema(SCHEMA, where="test")
    )
    with pytest.raises(UnsupportedBySpark, match=r"primary-key table.*readChangeFeed=true"):
        ask(stream)
