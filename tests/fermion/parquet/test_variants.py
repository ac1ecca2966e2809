"""Variant columns of Parquet files: those of parquet-testing, and what to_parquet makes of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fermion
from fermion import Shred
from fermion.columns.variants import STORAGE, VariantType
from fermion.errors import FermionError, InvalidFileError
from fermion.parquet.variants import SPARK_SCHEMA, whole_values
from tests.conftest import SHARED_DATA

FOLDER = SHARED_DATA / "parquet-testing/shredded_variant"
CASES = json.loads(path.read_text()) if (path := FOLDER / "cases.json").exists() else []
CASES = [case for case in CASES if "parquet_file" in case]
SIZES = (0, 0, 0, 1, 2, 4, 8, 8, 5, 9, 17, 4, 8, 8, 4, 0, 0, 8, 8, 8, 16)


def numbers(data: bytes, at: int, width: int, count: int) -> list[int]:
    """Whole numbers one behind the other."""
    places = range(at, at + count * width, width)
    return [int.from_bytes(data[place : place + width], "little") for place in places]


def keys_of(metadata: bytes) -> tuple[list[bytes], int]:
    """The keys of metadata, and how long this is."""
    width = (metadata[0] >> 6) + 1
    count = int.from_bytes(metadata[1 : 1 + width], "little")
    start = 1 + width * (count + 2)
    ends = [start + end for end in numbers(metadata, 1 + width, width, count + 1)]
    keys = [metadata[low:high] for low, high in pairwise(ends)]
    return keys, ends[-1]


def model(keys: list[bytes], value: bytes) -> Any:
    """A value as its type and bytes, a dict or a list, read by the book."""
    kind, bits = value[0] & 3, value[0] >> 2
    if kind == 0 and bits in (15, 16):
        return bits, value[5 : 5 + int.from_bytes(value[1:5], "little")]
    if kind < 2:
        return (16, value[1 : 1 + bits]) if kind else (bits, value[1 : 1 + SIZES[bits]])
    width, id_width = (bits & 3) + 1, (bits >> 2 & 3) + 1 if kind == 2 else 0
    count_width = 4 if bits >> (4 if kind == 2 else 2) & 1 else 1
    count = int.from_bytes(value[1 : 1 + count_width], "little")
    at = 1 + count_width
    ids = numbers(value, at, id_width, count) if kind == 2 else []
    at += count * id_width
    start = at + (count + 1) * width
    items = [model(keys, value[start + each :]) for each in numbers(value, at, width, count)]
    return dict(zip([keys[each] for each in ids], items, strict=True)) if kind == 2 else items


def models(array: pa.ChunkedArray) -> list[Any]:
    """The values of a column of the extension type."""
    found = []
    for chunk in array.chunks:
        rows = chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk
        for row in rows.to_pylist():
            found.append(row and model(keys_of(row["metadata"])[0], row["value"]))
    return found


@pytest.mark.parametrize("case", CASES, ids=[case["test"] for case in CASES])
def test_shredded_values_are_those_of_the_cases_or_refused(case, tmp_path, shared_data):
    """The bytes beside each file are the oracle; invalid files leave nothing."""
    source, target = FOLDER / case["parquet_file"], tmp_path / "x.fermion"
    if "error_message" in case or "INVALID" in source.name:
        with pytest.raises(FermionError, match=f"{source.name}: column 'var': "):
            fermion.from_parquet(source, target)
        assert list(tmp_path.iterdir()) == []
        return
    fermion.from_parquet(source, target)
    expected = []
    for name in case.get("variant_files") or [case["variant_file"]]:
        if name is None:
            expected.append(None)
            continue
        data = Path(FOLDER / name).read_bytes()
        keys, size = keys_of(data)
        expected.append(model(keys, data[size:]))
    table = fermion.read_table(target)
    field = table.schema.field("var")
    assert field.type == VariantType()
    assert models(table["var"]) == expected
    # and once more through Parquet
    back, again = tmp_path / "x.parquet", tmp_path / "y.fermion"
    info = fermion.to_parquet(target, back)
    assert info.size == back.stat().st_size
    data = back.read_bytes()
    assert info.tail_length == int.from_bytes(data[-8:-4], "little") + 8
    assert "var (Variant(1))" in str(pq.ParquetFile(back).schema)
    fermion.from_parquet(back, again)
    assert fermion.read_table(again).equals(table)
    # and with paths that have columns in both files
    fermion.from_parquet(source, target, options=fermion.WriteOptions(shred={"var": Shred()}))
    fermion.to_parquet(target, back, shred_variants=True)
    fermion.from_parquet(back, again)
    assert plain(models(fermion.read_table(again)["var"])) == plain(expected)


def plain(value: Any) -> Any:
    """Values whose integers have no width, which columns of paths do not keep."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, tuple) and value[0] in (3, 4, 5, 6):
        return int.from_bytes(value[1], "little", signed=True)
    return value


def test_columns_of_paths_are_typed_values_of_parquet_where_asked_for(tmp_path):
    """DuckDB reads them: objects in part and in whole, other types, nothing, null, no objects."""
    events = [
        {
            "user": {"id": at, "name": f"n{at}"} if at % 3 else {},
            "size": at if at % 20 else "many",
            "a": {"b": {"c": at / 8}, "when": None} if at % 2 else {"b": at},
        }
        for at in range(100)
    ]
    texts = [*map(json.dumps, events), "7", None, "{}", "[1]", '{"user":null}']
    table = pa.table({"n": range(len(texts)), "event": fermion.variant.from_json(texts)})
    source, target, back = (tmp_path / name for name in ("x.fermion", "x.parquet", "y.fermion"))
    fermion.write_table(table, source, shred={"event": Shred()}, stripe_rows=60)
    fermion.to_parquet(source, target, shred_variants=True, row_group_size=40)
    shown = str(pq.ParquetFile(target).schema)
    kinds = Counter(re.findall(r"(\S+) typed_value", shown.replace(" field_id=-1", "")))
    assert kinds == {"group": 4, "int64": 2, "binary": 1, "double": 1}
    expected = [text and json.loads(text) for text in texts]
    found = duckdb.sql(f"SELECT event::JSON::VARCHAR FROM '{target}' ORDER BY n").fetchall()
    assert [text and json.loads(text) for (text,) in found] == expected
    ids = duckdb.sql(f"SELECT sum(event.user.id::BIGINT) FROM '{target}' WHERE n < 100")
    assert ids.fetchall() == [(sum(at for at in range(100) if at % 3),)]
    fermion.from_parquet(target, back)
    assert plain(models(fermion.read_table(back)["event"])) == plain(models(table["event"]))
    assert "typed_value" not in converted(source)
    plain_file = tmp_path / "z.fermion"
    fermion.write_table(table, plain_file)
    assert "typed_value" not in converted(plain_file, shred_variants=True)


def test_many_fields_without_columns_are_kept_beside_typed_values(tmp_path):
    """Their number is of four bytes then, of which the first may be 0."""
    texts = [json.dumps({"a": 1, **{f"k{at}": at for at in range(n)}}) for n in (0, 255, 256, 512)]
    events = pa.table({"event": fermion.variant.from_json(texts)})
    source, target, back = (tmp_path / name for name in ("x.fermion", "x.parquet", "y.fermion"))
    fermion.write_table(events, source, shred={"event": Shred(["a"])})
    fermion.to_parquet(source, target, shred_variants=True)
    fermion.from_parquet(target, back)
    found = fermion.variant.to_json(fermion.read_table(back)["event"]).to_pylist()
    assert [*map(json.loads, found)] == [*map(json.loads, texts)]


def test_names_that_differ_in_case_alone_share_no_typed_value(tmp_path):
    """DuckDB renamed the second of them, and gave the value under another name."""
    texts = ['{"a":{"id":1,"Id":2,"n":3},"A":{"id":4}}', '{"\u00e9":"x","\u00c9":"y"}'] * 2
    source, target = tmp_path / "x.fermion", tmp_path / "x.parquet"
    events = pa.table({"event": fermion.variant.from_json(texts)})
    fermion.write_table(events, source, shred={"event": Shred()})
    fermion.to_parquet(source, target, shred_variants=True)
    assert str(pq.ParquetFile(target).schema).count("typed_value") == 4
    found = duckdb.sql(f"SELECT event::JSON::VARCHAR FROM '{target}'").fetchall()
    assert [json.loads(text) for (text,) in found] == [*map(json.loads, texts)]


@pytest.mark.parametrize("names", [31, 32])
def test_paths_too_deep_for_a_schema_have_no_typed_value(names, tmp_path):
    text = '{"a":' * names + "1" + "}" * names
    events = pa.table({"event": fermion.variant.from_json([text] * 2)})
    source, target, back = (tmp_path / name for name in ("x.fermion", "x.parquet", "y.fermion"))
    fermion.write_table(events, source, shred={"event": Shred()})
    fermion.to_parquet(source, target, shred_variants=True)
    assert ("typed_value" in str(pq.ParquetFile(target).schema)) == (names < 32)
    fermion.from_parquet(target, back)
    assert fermion.variant.to_json(fermion.read_table(back)["event"]).to_pylist() == [text] * 2


def converted(source: Path, **options: Any) -> str:
    """The schema of a file as Parquet."""
    fermion.to_parquet(source, target := source.with_suffix(".out"), **options)
    return str(pq.ParquetFile(target).schema)


def test_files_of_duckdb_and_snowflake_become_values(tmp_path, shared_data):
    """Each gives values that can be read by the book, of the rows that pyarrow finds."""
    refused = []
    for source in sorted(SHARED_DATA.glob("duckdb-parquet/*variant*.parquet")):
        target = tmp_path / source.with_suffix(".fermion").name
        try:
            fermion.from_parquet(source, target)
        except FermionError:
            refused.append(source.stem)
            continue
        table = fermion.read_table(target)
        assert table.num_rows == pq.read_metadata(source).num_rows
        names = [each.name for each in table.schema if each.type == VariantType()]
        assert names, source
        if source.stem != "variant_malicious":  # damaged values are kept as they are
            assert all(models(table[name]) for name in names)
    assert refused == []


def test_columns_that_are_variant_are_annotated_among_others(tmp_path):
    """DuckDB reads them as VARIANT; others, and structs of the same shape, stay what they are."""
    rows = pa.array([{"metadata": b"\x01\x00\x00", "value": b"\x0c\x07"}, None], STORAGE)
    nested = pa.array([{"v": [{"v": 1}]}, None])
    fields = [
        pa.field("n", nested.type),
        pa.field("v", VariantType()),
        *[
            pa.field(f"c{at}", pa.int8(), metadata={"PARQUET:field_id": str(at)})
            for at in range(20)
        ],
        pa.field("s", STORAGE),
        pa.field("last \u20ac", VariantType(), metadata={"PARQUET:field_id": "9"}),
    ]
    numbers = [pa.array([1, 2], pa.int8())] * 20
    values = pa.ExtensionArray.from_storage(VariantType(), rows)
    table = pa.table([nested, values, *numbers, rows, values], schema=pa.schema(fields))
    fermion.write_table(table, source := tmp_path / "x.fermion")
    fermion.to_parquet(source, target := tmp_path / "x.parquet")
    assert pq.read_table(target).equals(table)
    shown = str(pq.ParquetFile(target).schema)
    assert re.findall(r"^  optional group field_id=-?\d+ (.+) \(Variant", shown, re.M) == [
        "v",
        "last \u20ac",
    ]
    columns = duckdb.sql(f"SELECT * FROM '{target}'")
    kinds = dict(zip(columns.columns, map(str, columns.types), strict=True))
    assert (kinds["v"], kinds["last \u20ac"], kinds["c3"]) == ("VARIANT", "VARIANT", "TINYINT")
    assert kinds["s"].startswith("STRUCT")
    assert columns.select("v::INTEGER").fetchall() == [(7,), (None,)]


def group(rows: list[Any], typed: pa.DataType, *, metadata: bytes = b"\x01\x00\x00") -> pa.Array:
    """A shredded column: pairs of value and typed value."""
    dtype = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", typed)])
    given = [row and {"metadata": metadata, "value": row[0], "typed_value": row[1]} for row in rows]
    return pa.array(given, dtype)


def test_what_is_required_and_not_there_is_the_null_of_variant():
    """Also in slices, whose first rows are elsewhere; a null column stays null."""
    rows = [(b"\x00", None), None, (None, None), (None, 7), (b"\x0c\x05", None)]
    whole = whole_values(group(rows, pa.int32()).slice(1), "x")
    assert whole.type == STORAGE
    expected = [None, b"\x00", b"\x14\x07\x00\x00\x00", b"\x0c\x05"]
    assert [row and row["value"] for row in whole.to_pylist()] == expected
    assert whole_values(group([], pa.int32()), "x").to_pylist() == []


def test_sliced_decimals_keep_their_values():
    array = pa.array([None, "1.25", None, "-3.50"]).cast(pa.decimal128(4, 2))
    rows = [(None, value) for value in array.to_pylist()]
    whole = whole_values(group(rows, array.type).slice(1), "x")
    values = [row["value"] for row in whole.to_pylist()]
    assert values == [b"\x20\x02\x7d\x00\x00\x00", b"\x00", b"\x20\x02\xa2\xfe\xff\xff"]


def test_many_fields_and_long_values_need_wide_offsets():
    names = [f"k{at:04d}" for at in range(300)]
    ends = np.cumsum([0, *map(len, names)]).astype("<u2")
    metadata = b"\x51" + (300).to_bytes(2, "little") + ends.tobytes() + "".join(names).encode()
    typed = pa.struct([(name, pa.struct([("typed_value", pa.string())])) for name in names])
    value = {name: {"typed_value": f"{name} " * 50} for name in names}
    whole = whole_values(group([(None, value)], typed, metadata=metadata), "x")
    found = model(keys_of(metadata)[0], whole.to_pylist()[0]["value"])
    assert found == {name.encode(): (16, f"{name} ".encode() * 50) for name in names}


def test_of_a_name_with_two_ids_the_first_counts():
    """Names in no order, one of them twice: those behind it keep their own ids."""
    metadata = b"\x01\x04\x00\x01\x02\x03\x04xxca"
    rest = b"\x02\x02\x02\x01\x00\x02\x04\x0c\x05\x0c\x06"  # c: 5, x by its second id: 6
    whole = whole_values(group([(rest, {"a": {"typed_value": 7}})], OBJECT, metadata=metadata), "x")
    found = model(keys_of(metadata)[0], whole.to_pylist()[0]["value"])
    assert found == {b"a": (3, b"\x07"), b"c": (3, b"\x05"), b"x": (3, b"\x06")}


OBJECT = pa.struct([("a", pa.struct([("typed_value", pa.int8())]))])


@pytest.mark.parametrize(
    ("row", "typed", "metadata", "message"),
    [
        ((b"\x0c\x01", 5), pa.int8(), b"\x01\x00\x00", "both value and typed_value"),
        ((None, {"a": {"typed_value": 1}}), OBJECT, b"\x01\x00\x00", "its metadata lacks"),
        ((b"\x0c\x01", {"a": None}), OBJECT, b"\x01\x01\x00\x01a", "is no object"),
        ((b"", {"a": None}), OBJECT, b"\x01\x01\x00\x01a", "is no object"),
        ((b"\x02\x05", {"a": None}), OBJECT, b"\x01\x01\x00\x01a", "a damaged object"),
        ((b"\x42\xff\xff\xff\xff", {"a": None}), OBJECT, b"\x01\x01\x00\x01a", "damaged object"),
        (
            (b"\x02\x02\x00\x01\x00\x01\x02\x00\x00", {"a": None}),
            OBJECT,
            b"\x01\x03\x00\x01\x02\x03cca",
            "the field b'c' twice",
        ),
        ((None, {"a": None}), OBJECT, b"", "metadata of 0 bytes is damaged"),
        ((None, {"a": None}), OBJECT, b"\x02\x00\x00", "metadata of 3 bytes is damaged"),
        ((None, {"a": None}), OBJECT, b"\xc1\xff\xff\xff\x3f", "metadata of 5 bytes is damaged"),
    ],
)
def test_hostile_groups_are_refused_by_row(row, typed, metadata, message):
    column = group([None, row], typed, metadata=metadata)
    with pytest.raises(InvalidFileError, match=f"^x: (row 11: )?.*{re.escape(message)}"):
        whole_values(column, "x", first=10)


def test_values_without_metadata_or_value_are_refused():
    storage = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    for row, name in (({"value": b"\x00"}, "metadata"), ({"metadata": b"\x01\x00\x00"}, "value")):
        with pytest.raises(InvalidFileError, match=f"^x: a value has no {name}"):
            whole_values(pa.array([row], storage), "x")


def test_columns_of_spark_4_0_are_known_by_its_schema(tmp_path):
    """Spark 4.0 writes no annotation; a struct of the same shape that nothing names stays one."""
    rows = pa.array([{"metadata": b"\x01\x00\x00", "value": b"\x04"}], STORAGE)
    fields = [{"name": "v", "type": "variant"}, {"name": "s", "type": {"type": "struct"}}]
    spark = {SPARK_SCHEMA: json.dumps({"type": "struct", "fields": fields})}
    source, target = tmp_path / "x.parquet", tmp_path / "x.fermion"
    table = pa.table({"v": rows, "s": rows})
    for metadata, is_named in ((spark, True), ({SPARK_SCHEMA: "{"}, False), ({}, False)):
        pq.write_table(table.replace_schema_metadata(metadata), source)
        fermion.from_parquet(source, target)
        schema = fermion.read_table(target).schema
        assert (schema.field("v").type == VariantType()) is is_named
        assert schema.field("s") == pa.field("s", STORAGE)
