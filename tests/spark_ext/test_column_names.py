"""Names of a frame's columns in any case: those of the table, or refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from spark_ext.column_names import renamed_batch, renamed_fields, spelled
from spark_ext.types import spark_schema

TABLE = pa.schema(
    [("id", pa.int64()), ("Deep", pa.list_(pa.struct({"x": pa.int64(), "Y": pa.string()})))]
)


def frame(*columns):
    """The schema of a data frame, by Arrow's types."""
    return spark_schema(pa.schema(columns), where="t")


def names(*columns, table=TABLE, case_sensitive=False):
    return spelled(frame(*columns), table, case_sensitive=case_sensitive).simpleString()


def twins(upper, lower):
    return pa.struct([(upper, pa.int64()), (lower, pa.int64())])


def test_names_in_another_case_are_the_tables_own_at_any_depth():
    inner = pa.struct([("X", pa.int64()), ("y", pa.string()), ("New", pa.int32())])
    assert names(("ID", pa.int64()), ("deep", pa.list_(inner)), ("more", pa.int32())) == (
        "struct<id:bigint,Deep:array<struct<x:bigint,Y:string,New:int>>,more:int>"
    )
    same = frame(("id", pa.int64()), ("Deep", pa.list_(pa.struct([("x", pa.int64())]))))
    assert spelled(same, TABLE, case_sensitive=False) is same
    columns = ("ID", pa.int64()), ("id", pa.int64())
    assert names(*columns, case_sensitive=True) == "struct<ID:bigint,id:bigint>"


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([("ID", pa.int64()), ("id", pa.int64())], "'ID' and 'id'"),
        ([("New", pa.int64()), ("NEW", pa.int64())], "'New' and 'NEW'"),
        ([("deep", pa.list_(twins("n", "N")))], r"'Deep\.element\.n' and 'Deep\.element\.N'"),
        ([("s", twins("a", "A"))], r"'s\.a' and 's\.A'"),
        ([("m", pa.map_(pa.string(), twins("a", "A")))], r"'m\.value\.a' and 'm\.value\.A'"),
    ],
)
def test_names_that_differ_in_case_alone_are_refused(columns, said):
    with pytest.raises(InvalidArgumentError, match=said):
        names(*columns)


def test_a_name_that_may_mean_two_columns_is_refused_unless_it_is_one_of_them():
    both = pa.schema([("id", pa.int64()), ("Id", pa.int64())])
    assert names(("Id", pa.int64()), table=both) == "struct<Id:bigint>"
    columns = ("Id", pa.int64()), ("id", pa.int64())
    assert names(*columns, table=both) == "struct<Id:bigint,id:bigint>"
    with pytest.raises(InvalidArgumentError, match="the table has 'id' and 'Id'"):
        names(("ID", pa.int64()), table=both)


def test_batches_are_renamed_at_any_depth_without_a_copy():
    dtype = pa.list_(pa.struct({"X": pa.int64(), "y": pa.string()}))
    given = frame(("other", pa.int64()), ("DEEP", dtype))
    fields = renamed_fields(given, spelled(given, TABLE, case_sensitive=False))
    assert list(fields) == ["DEEP"]
    values = [[{"X": 1, "y": "a"}, None], None]
    batch = pa.record_batch({"other": [7, 8], "DEEP": pa.array(values, dtype), "z": [1, 2]})
    found = renamed_batch(batch, fields)
    assert found.to_pydict() == {
        "other": [7, 8],
        "Deep": [[{"x": 1, "Y": "a"}, None], None],
        "z": [1, 2],
    }
    address = batch["DEEP"].values.field(0).buffers()[1].address
    assert found["Deep"].values.field(0).buffers()[1].address == address
    assert renamed_batch(batch, {}) is batch
