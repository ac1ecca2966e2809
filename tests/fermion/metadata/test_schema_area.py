"""Shapes keep everything about a field but its name and id."""

from __future__ import annotations

import io
import json

import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

import fermion
from fermion.metadata.schema_area import (
    SchemaArea,
    build_field_ids,
    build_schema_area,
    field_id,
    strip_field_id,
)
from tests.kit.arrow_limits import message_can_hold
from tests.kit.strategies import arrow_types


def opened(schema: pa.Schema, compress: bool = False) -> SchemaArea:
    data = memoryview(build_schema_area(schema, compress_metadata=compress))
    return SchemaArea(
        lambda at, size: data[at : at + size],
        len(data),
        len(schema),
        "file",
        has_compressed_metadata=compress,
    )


def rebuilt(schema: pa.Schema, compress: bool = False) -> pa.Schema:
    area = opened(schema, compress)
    ids = area.shape_ids().tolist()
    fields = [area.shape(i).with_name(name) for i, name in zip(ids, schema.names, strict=True)]
    return pa.schema(fields, metadata=area.metadata())


METADATA = st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3), min_size=1)


@given(
    st.lists(st.tuples(st.text(max_size=4), arrow_types(), st.booleans(), METADATA), max_size=12),
    METADATA,
    st.booleans(),
)
def test_a_schema_comes_back_exactly(columns, metadata, compress):
    fields = [
        pa.field(n, t, nullable=null or pa.types.is_null(t), metadata=meta)
        for n, t, null, meta in columns
    ]
    schema = pa.schema(fields, metadata=metadata)
    assume(message_can_hold(schema))
    assert rebuilt(schema, compress).equals(schema, check_metadata=True)


def test_metadata_of_the_schema_are_compressed_when_asked(monkeypatch):
    """Those that pandas makes for 2,000 columns; one column is found without them."""
    count = 2_000
    noted = [{"name": f"c{i}", "pandas_type": "float64", "metadata": None} for i in range(count)]
    schema = pa.schema(
        [(f"c{i}", pa.float64()) for i in range(count)], {"pandas": json.dumps({"columns": noted})}
    )
    table = schema.empty_table()
    sizes = {}
    for compress in (False, True):
        target = io.BytesIO()
        fermion.write_table(table, target, compress_schema=compress)
        sizes[compress] = len(target.getvalue())
        with fermion.open(target.getvalue()) as file:
            assert file.schema.equals(schema, check_metadata=True)
    assert sizes[False] - sizes[True] > 0.8 * len(schema.metadata[b"pandas"])
    monkeypatch.setattr(SchemaArea, "metadata", None)
    with fermion.open(target.getvalue()) as file:
        assert file.index.field(7).name == "c7"


def test_metadata_that_do_not_get_smaller_are_stored_as_they_are():
    schema = pa.schema([("a", pa.int8())], metadata={"k": "v"})
    for compress in (False, True):
        assert rebuilt(schema, compress).equals(schema, check_metadata=True)
    assert opened(pa.schema([("a", pa.int8())]), compress=True).metadata() is None


def test_ids_single_and_all_agree_for_every_kind_of_storage():
    """One shape, runs, one byte and two bytes a column."""
    types = [pa.decimal128(precision, 1) for precision in range(1, 39)]
    for names in ([pa.int64()] * 9, [*types[:2]] * 50, types * 10):
        schema = pa.schema([pa.field(f"c{i}", dtype) for i, dtype in enumerate(names)])
        area = opened(schema)
        every = area.shape_ids().tolist()
        assert [area.shape_ids([i])[0] for i in range(len(names))] == every
        assert rebuilt(schema) == schema


def test_more_than_65536_shapes_are_told_apart():
    fields = [pa.field("x", pa.int8(), metadata={"k": str(i)}) for i in range(66_000)]
    area = opened(pa.schema(fields))
    (shape,) = area.shape_ids([65_999])
    assert area.shape(int(shape)).metadata == {b"k": b"65999"}


def test_field_ids_leave_the_shape_and_make_no_new_ones():
    fields = [
        pa.field(f"c{i}", pa.int64(), metadata={"PARQUET:field_id": str(i)}) for i in range(1000)
    ]
    schema = pa.schema(fields)
    bare = pa.schema([pa.field(f"c{i}", pa.int64()) for i in range(1000)])
    assert build_schema_area(schema) == build_schema_area(bare)
    assert build_field_ids(schema) is not None
    assert strip_field_id(fields[3]).metadata is None


def test_only_canonical_ids_are_taken_out():
    for text in ("-1", "01", "x", str(2**32 - 1)):
        field = pa.field("a", pa.int8(), metadata={"PARQUET:field_id": text})
        assert field_id(field) is None
        assert rebuilt(pa.schema([field])).field(0).metadata == field.metadata
