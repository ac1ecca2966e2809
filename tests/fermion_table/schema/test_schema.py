"""Table schemas: ids, JSON, pickles, and what a broken one says."""

from __future__ import annotations

import datetime
import pickle

import msgspec
import pyarrow as pa
import pytest
from hypothesis import assume, given

from fermion.errors import ColumnNotFoundError, InvalidArgumentError, UnsupportedTypeError
from fermion_table import Table
from fermion_table.errors import CorruptMetadata, UnsupportedFeature
from fermion_table.schema import changes as schema_update
from fermion_table.schema.changes import add_column, add_columns, merge_columns
from fermion_table.schema.from_arrow import schema_from_arrow
from fermion_table.schema.schema import decode_schema, encode_schema, parse_type_text, type_text
from fermion_table.storage import json_codec
from tests.kit.arrow_limits import message_can_hold
from tests.kit.strategies import schemas

NESTED = pa.schema(
    [
        pa.field("a", pa.int64(), nullable=False, metadata={"comment": "why", "unit": "m"}),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.struct([("z", pa.string())])))])),
        ("m", pa.map_(pa.string(), pa.list_(pa.uuid(), 3))),
        ("x.y", pa.dictionary(pa.int8(), pa.string())),
    ],
    metadata={"k": b"\xff"},
)


def stored(schema):
    return decode_schema(encode_schema(schema), "schema/0-x.json", keep_unknown=True)


@given(schemas())
def test_every_arrow_schema_survives_as_json(arrow):
    """Types, nullability and metadata at every depth; the ids are taken out again."""
    assume(message_can_hold(arrow))
    schema = schema_from_arrow(arrow)
    again = stored(schema)
    assert again == schema
    assert again.to_arrow(field_ids=False).equals(arrow, check_metadata=True)


@given(schemas())
def test_the_ids_of_an_arrow_schema_are_not_reused(arrow):
    """The fields of a schema that has ids get new ones, in their order."""
    assume(message_can_hold(arrow))
    schema = schema_from_arrow(arrow)
    shifted = msgspec.structs.replace(schema, fields=schema.fields[::-1])
    fresh = schema_from_arrow(shifted.to_arrow())
    assert [field.id for field in fresh.fields] == list(range(1, len(arrow) + 1))


def test_columns_get_the_first_ids_and_nested_fields_the_next():
    schema = schema_from_arrow(NESTED)
    paths = {path: number for number, path in schema.paths.items()}
    assert [field.id for field in schema.fields] == [1, 2, 3, 4]
    assert paths[("s", "y", "element", "z")] == 8
    assert paths[("m", "key")] == 9
    assert paths[("m", "value", "element")] == 11
    assert schema.last_field_id == 11


def test_a_field_is_found_by_name_dotted_path_and_tuple():
    schema = schema_from_arrow(NESTED)
    assert schema.find("s.y.element.z") == schema.find(("s", "y", "element", "z"))
    assert schema.find("x.y").name == "x.y"
    with pytest.raises(ColumnNotFoundError, match=r"closest matches: 'x.y'"):
        schema.find(("x.z",))


def test_a_comment_is_arrow_metadata_and_a_field_of_the_schema():
    schema = schema_from_arrow(NESTED)
    assert schema.find("a").comment == "why"
    assert schema.to_arrow().field("a").metadata == {
        b"comment": b"why",
        b"unit": b"m",
        b"PARQUET:field_id": b"1",
    }


def test_a_schema_pickles():
    schema = schema_from_arrow(NESTED, partition_by="a", properties={"p.p": "q"})
    assert pickle.loads(pickle.dumps(schema)) == schema


@pytest.mark.parametrize(
    ("arrow", "options", "error", "text"),
    [
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), {}, InvalidArgumentError, "'a'"),
        (
            pa.schema([("s", pa.struct([("b", pa.int8()), ("b", pa.int8())]))]),
            {},
            InvalidArgumentError,
            "'b'",
        ),
        (
            pa.schema([("u", pa.dense_union([pa.field("x", pa.int8())]))]),
            {},
            UnsupportedTypeError,
            "union",
        ),
        (pa.schema([("a", pa.int8())]), {"partition_by": "b"}, ColumnNotFoundError, "'b'"),
        (
            pa.schema([("a", pa.list_(pa.int8()))]),
            {"partition_by": ["a"]},
            InvalidArgumentError,
            "list<item: int8>",
        ),
    ],
)
def test_a_schema_that_no_table_can_have_is_refused(arrow, options, error, text):
    with pytest.raises(error, match=text):
        schema_from_arrow(arrow, **options)


def with_field(**changes):
    schema = schema_from_arrow(NESTED)
    field = msgspec.structs.replace(schema.fields[0], **changes)
    return msgspec.structs.replace(schema, fields=(field, *schema.fields[1:]))


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        (with_field(id=2), "used twice"),
        (with_field(id=99), "field ids"),
        (with_field(name="s"), "'s'"),
        (with_field(stored_type="int63"), "int63"),
        (with_field(stored_type="decimal128(99, 0)"), "precision"),
        (msgspec.structs.replace(schema_from_arrow(NESTED), primary_key=(5,)), "lacks"),
        (msgspec.structs.replace(schema_from_arrow(NESTED), format="other"), "other"),
    ],
)
def test_a_stored_schema_that_contradicts_itself_is_corrupt(schema, found):
    with pytest.raises(CorruptMetadata, match=found):
        decode_schema(json_codec.encode(schema), "schema/0-x.json")


def test_a_newer_schema_format_is_refused_and_unknown_keys_are_kept():
    schema = schema_from_arrow(NESTED)
    newer = msgspec.structs.replace(schema, format_version=2)
    with pytest.raises(UnsupportedFeature, match="version 2"):
        decode_schema(encode_schema(newer), "schema/0-x.json")
    raw = msgspec.json.decode(encode_schema(schema)) | {"later": [1]}
    again = decode_schema(msgspec.json.encode(raw), "schema/0-x.json", keep_unknown=True)
    assert msgspec.json.decode(encode_schema(again))["later"] == [1]


@given(schemas(depth=0))
def test_the_text_of_a_plain_type_is_read_back(arrow):
    for dtype in arrow.types:
        text = type_text(dtype)
        assert text is None or parse_type_text(text) == dtype


MANY = [
    pa.field("c", pa.int64()),
    pa.field("s", pa.struct([("x", pa.int8()), ("l", pa.list_(pa.string()))])),
    pa.field("d", pa.date32(), nullable=False, metadata={"comment": "a day", "k": "v"}),
    pa.field("m", pa.map_(pa.string(), pa.int8())),
]
DEFAULTS = {"c": 7, "d": datetime.date(2024, 1, 1)}


def test_columns_added_at_once_are_those_added_one_by_one():
    """The same JSON, ids of nested fields included."""
    start = schema_from_arrow(pa.schema([("a", pa.int64()), ("p", pa.struct([("q", pa.int8())]))]))
    for parent in [(), ("p",)]:
        one_by_one = start
        for field in MANY:
            default = DEFAULTS.get(field.name)
            one_by_one = add_column(one_by_one, (*parent, field.name), field, default=default)
        at_once = add_columns(start, parent, MANY, defaults=DEFAULTS)
        assert encode_schema(at_once) == encode_schema(one_by_one)
    merged = start
    data = pa.schema(
        [MANY[0], ("p", pa.struct([("r", pa.int8()), MANY[1], ("q", pa.int8())])), *MANY[1:]]
    )
    for change in merge_columns(start, data):
        merged = change(merged)
    assert [merged.paths[number] for number in range(4, merged.last_field_id + 1)][:6] == [
        ("c",), ("p", "r"), ("p", "s"), ("p", "s", "x"), ("p", "s", "l"), ("p", "s", "l", "element")
    ]  # fmt: skip
    assert merged.names == ["a", "p", "c", "s", "d", "m"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([pa.field("b", pa.int8()), pa.field("a", pa.int8())], "column 'a': the name is taken"),
        ([pa.field("b", pa.int8()), pa.field("b", pa.int8())], "column 'b': the name is taken"),
        ([pa.field("b", pa.int8()), pa.field("d", pa.int8(), nullable=False)], "'d': NOT NULL"),
    ],
)
def test_one_wrong_column_of_many_is_named(fields, text):
    start = schema_from_arrow(pa.schema([("a", pa.int64())]))
    with pytest.raises(InvalidArgumentError, match=text):
        add_columns(start, (), fields, defaults={})


@pytest.mark.parametrize("is_merged", [False, True])
def test_many_columns_are_added_without_a_look_at_all_others_for_each(
    table_path, monkeypatch: pytest.MonkeyPatch, is_merged
):
    """Counts how often the columns are put beside those there were: for the draft and the commit,
    not for each of them."""
    table = Table.create(table_path, pa.schema([("a", pa.int64())]), durability="fast")
    calls: list[int] = []
    placed = schema_update._placed

    def counted(siblings, fields, *rest):
        calls.append(len(fields))
        return placed(siblings, fields, *rest)

    monkeypatch.setattr(schema_update, "_placed", counted)
    names = [f"c{number}" for number in range(50)]
    if is_merged:
        table.append(pa.table({name: [1] for name in names}), schema_mode="merge")
    else:
        table.add_columns(dict.fromkeys(names, pa.int64()))
    assert table.schema.names == ["a", *names]
    assert set(calls) == {50}
    assert len(calls) <= 2
