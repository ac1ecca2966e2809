"""Metadata of users: of the file, which is text, and of the schema and its fields, any bytes."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fermion
from fermion import InvalidArgumentError

SCHEMA = pa.schema([("a", pa.int64())])


def stored(schema: pa.Schema, **options) -> bytes:
    sink = io.BytesIO()
    with fermion.Writer(sink, schema, **options):
        pass
    return sink.getvalue()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"a": 1}, TypeError, "'a': expected text or bytes, found int"),
        ({"a": None}, TypeError, "'a': expected text or bytes, found NoneType"),
        ({"a": ["x"]}, TypeError, "'a': expected text or bytes, found list"),
        ({"a": {"b": "c"}}, TypeError, "'a': expected text or bytes, found dict"),
        ({1: "a"}, TypeError, "a key: expected text or bytes, found int"),
        ("abc", TypeError, "expected a mapping of text to text, found str"),
        ([("a", "b")], TypeError, "expected a mapping of text to text, found list"),
        ({"a": b"\xff"}, InvalidArgumentError, "'a': expected UTF-8"),
        ({b"\xff": "a"}, InvalidArgumentError, "a key: expected UTF-8"),
        ({"a": "\ud800"}, InvalidArgumentError, "'a': expected UTF-8"),
        ({"a": "x", b"a": "y"}, InvalidArgumentError, "a key comes as text and as bytes"),
    ],
)
def test_metadata_that_are_no_text_are_refused_before_anything_is_written(
    tmp_path, given, error, message
):
    path = tmp_path / "x.fermion"
    path.write_bytes(b"old")
    with pytest.raises(error, match=f"key_value_metadata: {message}"):
        fermion.Writer(path, SCHEMA, key_value_metadata=given)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_bytes_that_are_text_come_back_as_text():
    given = {b"k": b"v", "ä".encode(): b"\0", "e": "", b"": b"x"}
    with fermion.open(stored(SCHEMA, key_value_metadata=given)) as file:
        assert file.key_value_metadata == {"k": "v", "ä": "\0", "e": "", "": "x"}
        assert file.verify().ok
    arrow = pa.KeyValueMetadata({"a": "b"})
    with fermion.open(stored(SCHEMA, key_value_metadata=arrow)) as file:
        assert file.key_value_metadata == {"a": "b"}


ANY = st.one_of(st.text(), st.binary(), st.integers(), st.none())


@given(st.dictionaries(st.one_of(st.text(), st.binary()), ANY, max_size=4))
def test_any_metadata_are_refused_or_make_a_file_that_verifies(given):
    try:
        data = stored(SCHEMA, key_value_metadata=given)
    except (TypeError, InvalidArgumentError):
        return
    with fermion.open(data) as file:
        assert file.verify().ok
        texts = {key if isinstance(key, str) else key.decode() for key in given}
        assert set(file.key_value_metadata) == texts


@given(
    st.dictionaries(st.binary(), st.binary(), max_size=4),
    st.dictionaries(st.binary(), st.binary(), min_size=1, max_size=4),
    st.booleans(),
)
def test_metadata_of_schema_and_fields_come_back_as_they_came(top, own, compressed):
    """Any bytes, at top level and nested; after columns were added and dropped, too."""
    own = {key: value for key, value in own.items() if not key.startswith((b"ARROW", b"PARQUET"))}
    assume(own)
    inner = pa.field("x", pa.int8(), metadata=own)
    field = pa.field("a", pa.struct([inner]), metadata=own)
    schema = pa.schema([field, inner], metadata=top)
    options = fermion.WriteOptions(compress_schema=compressed)
    data = stored(schema, options=options)
    changed = io.BytesIO()
    fermion.drop_columns(data, ["x"], destination=changed)
    for each, fields in ((data, 2), (changed.getvalue(), 1)):
        with fermion.open(each) as file:
            assert file.verify().ok
            assert file.schema.metadata == schema.metadata
            assert file.schema.field("a").metadata == field.metadata
            assert file.schema.field("a").type.field(0).metadata == inner.metadata
            assert len(file.schema) == fields
