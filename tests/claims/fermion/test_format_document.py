"""The specification says what the code does: every offset, id, limit and worked byte of it."""

from __future__ import annotations

import ast
import enum
import functools
import inspect
import io
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xxhash

import fermion
from fermion import errors, layout
from fermion.columns.shred import shred
from fermion.columns.types import (
    BINARY,
    BITS,
    BinaryValues,
    Bits,
    Order,
    PhysicalKind,
    PhysicalType,
    Values,
    column_node,
    leaf_type,
)
from fermion.columns.types import number as number_type
from fermion.encodings.choice.policy import policy_for
from fermion.encodings.decoding import TreeSlice, decode_trees
from fermion.encodings.encoding import Recipe, parse_node
from fermion.encodings.registry import ENCODINGS
from fermion.encodings.removed_nulls import Spread, mark_root, open_root
from fermion.io.checksum import checksum
from fermion.layout import ChecksumKind, DescType, EncodingId, ExtTag
from fermion.metadata.cit import NameIndex, build_name_index
from fermion.options import WriteOptions
from fermion.pages.global_dictionary import DictionaryRecord
from fermion.statistics import bloom
from fermion.statistics.keys import bytes_key, value_key
from tests.kit.equality import assert_logically_equal
from tests.kit.files.format_document import (
    NAMED_STRUCT,
    TABLES,
    TEXT,
    WORKED,
    Bytes,
    Table,
    enum_tables,
    struct_tables,
    table_under,
)
from tests.kit.files.identities import one_identity
from tests.kit.files.physical_values import binary_values

PROJECT = Path(__file__).resolve().parents[3]
STRUCTS = {name: value for name, value in vars(layout).items() if isinstance(value, np.dtype)}
ENUMS = {
    name: value
    for name, value in vars(layout).items()
    if inspect.isclass(value)
    and issubclass(value, enum.Enum)
    and value.__module__ == layout.__name__
}


def test_every_struct_is_documented_as_it_is():
    """Name, size, offset and type of every field of every struct, no more and no less."""
    tables = struct_tables()
    assert tables.keys() == STRUCTS.keys()
    for name, dtype in STRUCTS.items():
        size = int(dict(NAMED_STRUCT.findall(tables[name].before))[name])
        assert size == dtype.itemsize, name
        documented = {
            row["name"]: (int(row["offset"]), int(row["size"]), row["type"])
            for row in tables[name].rows
        }
        fields = {
            field: (offset, kind.itemsize, type_name(kind))
            for field, (kind, offset, *_) in dtype.fields.items()
        }
        assert documented == fields, name


def type_name(kind: np.dtype) -> str:
    if kind.kind in "SV":
        return "bytes"
    return {"u": "u", "i": "i"}[kind.kind] + str(8 * kind.itemsize)


def test_every_id_is_documented_as_it_is():
    tables = enum_tables()
    assert tables.keys() == ENUMS.keys()
    for name, values in ENUMS.items():
        documented = {row["name"]: int(row["value"]) for row in tables[name].rows}
        assert documented == {each.name: each.value for each in values}, name


def test_every_limit_is_documented_as_it_is():
    rows = table_under("Limits", "name", "value").rows
    for row in rows:
        assert int(row["value"]) == getattr(layout, row["name"]), row["name"]
    limits = {name for name in vars(layout) if name.endswith(("_MAX", "_BYTES"))} - {"INT64_MAX"}
    assert limits <= {row["name"] for row in rows}


def test_exactly_the_encodings_that_are_not_reserved_can_be_read():
    """Whoever builds one has to say so on the page."""
    rows = enum_tables()["EncodingId"].rows
    free = {int(row["value"]) for row in rows if not row["holds"].startswith("reserved")}
    assert free == set(ENCODINGS)


def test_every_edition_is_documented_as_it_is():
    """Names and encodings; all editions together are what can be read."""
    rows = table_under("Editions", "edition").rows
    documented: dict[str, set[str]] = {}
    for row in rows:
        names = row["encodings"]
        if names.startswith("those of "):
            base, _, names = names.removeprefix("those of ").partition(", ")
            documented[row["edition"]] = documented[base] | set(names.split(", "))
        else:
            documented[row["edition"]] = set(names.split(", "))
    editions = {name: {each.name for each in known} for name, known in layout.EDITIONS.items()}
    assert documented == editions
    assert set().union(*layout.EDITIONS.values()) == set(ENCODINGS)


def test_the_bloom_record_is_documented_as_it_is():
    rows = table_under("Bloom filters", "offset").rows
    sizes = [int(row["size"]) for row in rows]
    assert [int(row["offset"]) for row in rows] == [sum(sizes[:i]) for i in range(len(sizes))]
    record = bloom.bloom_record(0x1122, b"x" * 32)
    assert len(record) == sum(sizes)
    assert bloom.parse_bloom_record(record, 2**20, "x")[:2] == (0x1122, 32)


def test_the_record_of_a_global_dictionary_is_documented_as_it_is():
    rows = table_under("Global dictionaries", "offset").rows
    record = DictionaryRecord(0x1122, 0x3344, 0x55, 0x66)
    assert len(record.pack()) == sum(int(row["size"]) for row in rows)
    for row in rows:
        start, size = int(row["offset"]), int(row["size"])
        value = int.from_bytes(record.pack()[start : start + size], "little")
        assert value == getattr(record, row["name"])


def test_the_worked_bound_in_full_is_what_is_written():
    (block,) = [block for block in WORKED if "record" in block.facts]
    texts = [block.json("value"), *(f"ironic deposits {i} " * 9 for i in range(800))]
    sink = io.BytesIO()
    fermion.write_table(pa.table({"s": texts}), sink, encodings={"s": "plain"})
    with fermion.open(sink.getvalue()) as file:
        (found,) = file.index.blocks([0])
        records = found.extension(found.chunk(1, 0))
    assert records[ExtTag[block.facts["record"]]] == block.data


def test_every_error_is_documented():
    classes = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.FermionError)
    }
    rows = table_under("Errors", "error", "when").rows
    assert {row["error"] for row in rows} == classes - {"FermionError"}
    assert all(row["when"] for row in rows)


def test_the_check_values_of_the_checksums_are_right():
    """Those of CRC-32 are in every catalogue; that of XXH3-64 is its library's."""
    said = re.search(
        r"`123456789` is (0x\w+), CRC-32 \(IEEE\) of the same (0x\w+), and XXH3-64\s"
        r"(0x\w+), of which a page keeps (0x\w+)",
        TEXT,
    )
    assert said is not None
    crc32c, crc32, whole, folded = (int(value, 16) for value in said.groups())
    assert xxhash.xxh3_64_intdigest(b"123456789") == whole
    expected = {
        ChecksumKind.NONE: 0,
        ChecksumKind.CRC32: crc32,
        ChecksumKind.CRC32C: crc32c,
        ChecksumKind.XXH3: folded,
    }
    assert {kind: checksum(kind, b"123456789") for kind in ChecksumKind} == expected


TREES = [block for block in WORKED if "type" in block.facts]


def physical_type(name: str) -> PhysicalType:
    if name.startswith("fixed"):
        return PhysicalType(PhysicalKind.FIXED, int(name.removeprefix("fixed")))
    known = {"binary": BINARY, "bits": BITS}
    return known.get(name) or number_type(PhysicalKind[name.upper()])


def make(values: list, physical: PhysicalType) -> Values:
    """JSON as physical values."""
    if physical == BINARY:
        return binary_values([value.encode() for value in values])
    if physical == BITS:
        return Bits.pack(np.array(values, bool))
    if physical.kind is PhysicalKind.FIXED:
        data = b"".join(value.to_bytes(physical.width, "little", signed=True) for value in values)
        return np.frombuffer(data, physical.dtype)
    return np.array(values, physical.dtype)


def raw(values: Values) -> tuple:
    """What values are equal by."""
    if isinstance(values, BinaryValues):
        return values.offsets.tolist(), values.data.tobytes()[: values.offsets[-1]]
    if isinstance(values, Bits):
        return (values.unpack().tolist(),)
    return values.dtype, values.tobytes()


def decode(block: Bytes) -> Values:
    physical, count = physical_type(block.facts["type"]), len(block.json("values"))
    root = parse_node(block.data, 0, len(block.data), 1)
    dictionary = make(block.json("dictionary"), physical) if "dictionary" in block.facts else None
    if root.flags:
        root, held = open_root(root)
        valid = Bits.pack(np.array(block.json("validity"), bool))
        spread = Spread.of(valid, held, count, 0, count)
        tree = TreeSlice(root, held, range(spread.first, spread.last), 2**20, spread)
    else:
        tree = TreeSlice(root, count, range(count), 2**20)
    return decode_trees([tree], physical, dictionary, lambda _, error: error)


def parse_recipe(text: str) -> Recipe:
    name, _, inner = text.partition("(")
    children = [part for part in re.split(r",(?![^(]*\))", inner.removesuffix(")")) if part]
    return Recipe(EncodingId[name], tuple(map(parse_recipe, children)))


@pytest.mark.parametrize("block", TREES, ids=lambda block: block.data[:1].hex())
def test_worked_trees_decode_to_their_values(block):
    wanted = make(block.json("values"), physical_type(block.facts["type"]))
    assert raw(decode(block)) == raw(wanted)


@pytest.mark.parametrize(
    "block",
    [block for block in TREES if "recipe" in block.facts],
    ids=lambda block: block.facts["recipe"],
)
def test_worked_trees_are_what_the_encoder_writes(block):
    physical = physical_type(block.facts["type"])
    values = make(block.json("held" if "held" in block.facts else "values"), physical)
    if "codes" in block.facts:
        values = np.array(block.json("codes"), np.uint32)
    settings = policy_for(WriteOptions(profile="fast", compression_level=6)).settings
    parts = settings.encode(values, physical, parse_recipe(block.facts["recipe"]))
    if "held" in block.facts:
        parts = mark_root(parts, len(values))
    assert b"".join(map(bytes, parts)) == block.data


def test_every_encoding_that_can_be_read_has_worked_bytes():
    assert {block.data[0] for block in TREES} == set(ENCODINGS)
    decode_only = {block.data[0] for block in TREES if "decode-only" in block.facts}
    assert decode_only == {EncodingId.ZSTD, EncodingId.LZ4, EncodingId.PCODEC}


def test_the_worked_name_index_is_what_is_written_and_read():
    (block,) = [block for block in WORKED if "names" in block.facts]
    names = block.json("names")
    assert build_name_index(names) == block.data
    view = memoryview(block.data)
    index = NameIndex(lambda at, size: view[at : at + size], len(view), len(names), "x")
    assert index.all() == names


@functools.cache
@one_identity()
def example_file(name: str) -> bytes:
    sink = io.BytesIO()
    if name == "first":
        column = pa.array([[1, 2], None, [3]], pa.list_(pa.int64()))
        fermion.write_table(pa.table({"first": column}), sink, encodings={"first": "plain"})
    elif name == "aligned":
        column = pa.array([1.5, -2.0])
        options = {"encodings": {"aligned": "plain"}, "align": 64}
        fermion.write_table(pa.table({"aligned": column}), sink, **options)
    else:
        assert name == "shared"
        colours = ["green", "violet", "green", "green", "violet", "indigo", "violet", "violet"]
        options = {"stripe_rows": 4, "global_dictionaries": ["shared"]}
        fermion.write_table(pa.table({"shared": colours}), sink, **options)
    return sink.getvalue()


def test_worked_bytes_are_in_the_file_they_speak_of():
    blocks = [block for block in WORKED if "file" in block.facts]
    assert len(blocks) == 6
    for block in blocks:
        offset = int(block.facts["offset"])
        stored = example_file(block.facts["file"])
        assert stored[offset : offset + len(block.data)] == block.data


def nested_examples() -> list[tuple[pa.Array, Table]]:
    """The worked examples of nested columns: a column, and the table of its streams."""
    found = []
    for table in TABLES:
        match = re.fullmatch(r"Example: `(.*)` as `(.*)`", table.heading)
        if match:
            dtype = pa.int64()
            for _ in range(match[2].count("list")):
                dtype = pa.list_(dtype)
            rows = ast.literal_eval(match[1].replace("null", "None"))
            found.append((pa.array(rows, dtype), table))
    return found


def test_the_nested_examples_have_the_streams_they_say():
    assert len(nested_examples()) == 2
    for column, table in nested_examples():
        node = column_node(pa.field("c", column.type))
        streams = shred(column, node)
        kinds = [each.name for each in node.stream_types()]
        assert [(int(row["stream"]), row["type"]) for row in table.rows] == list(enumerate(kinds))
        for ordinal, row in enumerate(table.rows):
            said = row["values"]
            if row["type"] == "VALIDITY":
                valid = streams.validity[ordinal]
                bits = "default: all valid" if valid is None else spaced(valid.unpack().astype(int))
                assert said == bits
            elif row["type"] == "OFFSETS":
                assert said == spaced(np.diff(streams.offsets[ordinal]))
            else:
                assert said == spaced(streams.data[ordinal])


def spaced(values: np.ndarray) -> str:
    return " ".join(map(str, values.tolist()))


def test_the_nested_examples_have_the_offsets_they_say():
    """In words under each table; and the columns come back from a file."""
    (first, _), (second, _) = nested_examples()
    said = re.findall(r"offsets 0 2 2 3|outer offsets are 0 2 3, the inner ones 0 2 3 4", TEXT)
    assert said[:2] == ["offsets 0 2 2 3", "outer offsets are 0 2 3, the inner ones 0 2 3 4"]
    assert first.offsets.to_pylist() == [0, 2, 2, 3]
    assert second.offsets.to_pylist() == [0, 2, 3]
    assert second.values.offsets.to_pylist() == [0, 2, 3, 4]
    for column in (first, second):
        sink = io.BytesIO()
        fermion.write_table(pa.table({"c": column}), sink)
        found = fermion.read_table(sink.getvalue())["c"].combine_chunks()
        assert_logically_equal(found, column)
        assert found.offsets.to_pylist() == column.offsets.to_pylist()


TYPES = {
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "decimal32": pa.decimal32(9, 2),
    "decimal64": pa.decimal64(18, 2),
    "decimal128": pa.decimal128(38, 2),
    "decimal256": pa.decimal256(76, 2),
    "time32": pa.time32("s"),
    "time64": pa.time64("ns"),
    "timestamp": pa.timestamp("us", "UTC"),
    "duration": pa.duration("ms"),
    "fixed-size binary": pa.binary(5),
    "month_day_nano_interval": pa.month_day_nano_interval(),
}


def test_every_documented_type_is_stored_as_documented():
    rows = table_under("Types and streams", "Arrow type").rows
    names = [name for row in rows for name in row["Arrow type"].split(", ")]
    assert len(names) > 25
    for row in rows:
        kinds = row["physical type of DATA"].partition(":")[0].split(" as ")[0].split(", ")
        named = row["Arrow type"].split(", ")
        for index, name in enumerate(named):
            variants = [TYPES.get(name) or getattr(pa, name, lambda: None)()]
            if name in ("string", "binary"):
                variants = [getattr(pa, form)() for form in (name, f"large_{name}", f"{name}_view")]
            elif name == "their large and view forms":
                continue
            for dtype in variants:
                found = leaf_type(dtype)
                assert found is not None, name
                physical, order = found
                assert order is Order[row["order"]], name
                assert says(kinds[min(index, len(kinds) - 1)], physical, dtype), name


def says(words: str, physical: PhysicalType, dtype: pa.DataType) -> bool:
    """Whether the document's words name a physical type."""
    if words == "the same":
        return physical.kind.name.lower() == {"halffloat": "float16"}.get(
            str(dtype), {"float": "float32", "double": "float64"}.get(str(dtype), str(dtype))
        )
    if words == "byte strings":
        return physical == BINARY
    if words == "bits":
        return physical == BITS
    if words == "so many bytes":
        return physical == PhysicalType(PhysicalKind.FIXED, dtype.byte_width)
    if words.rstrip(" bytes").isdigit():
        return physical == PhysicalType(PhysicalKind.FIXED, int(words.rstrip(" bytes")))
    return physical.kind.name.lower() == words


def test_worked_keys_are_the_keys():
    rows = table_under("Statistics", "type", "value").rows
    assert len(rows) > 5
    for row in rows:
        kind, value, key = row["type"], row["value"], row["key"]
        if kind == "string":
            side, _, number = key.partition(" ")
            pad = {"min": 0x00, "max": 0xFF}[side]
            assert int(number) == bytes_key(value.encode(), pad)
        elif kind.startswith("float"):
            assert int(key) == value_key(float(value), Order.FLOAT)
        elif kind.startswith("decimal"):
            assert int(key) == int(value.replace(".", ""))
        else:
            unsigned = kind == "uint64"
            assert int(key) == value_key(int(value), Order.SIGNED, is_uint64=unsigned)


def test_each_way_to_store_nothing_is_written_and_read():
    """The table of the design: what each stream stores in each of its states, over two stripes."""
    two = 2
    full, empty, nulls = [1, 2], [None, 1], [None, None]
    lists, hollow = [[1], [2, 3]], [[], []]
    cases = {
        "all valid": (pa.array(full + full), [(0, DescType.USE_DEFAULT), (1, DescType.FULL)]),
        "mixed": (pa.array(empty + empty), [(0, DescType.SIMPLE), (1, DescType.FULL)]),
        "null stripe": (pa.array(full + nulls), [(0, DescType.SIMPLE), (1, DescType.FULL)]),
        "lists": (pa.array(lists + hollow), [(1, DescType.SIMPLE), (3, DescType.FULL)]),
        "empty lists": (
            pa.array(hollow + hollow, pa.list_(pa.int64())),
            [(1, DescType.USE_DEFAULT), (2, DescType.USE_DEFAULT), (3, DescType.USE_DEFAULT)],
        ),
        "nulls within": (
            pa.array([{"a": None}] * 4, pa.struct([("a", pa.int64())])),
            [(0, DescType.USE_DEFAULT), (1, DescType.FORCE_NULL), (2, DescType.USE_DEFAULT)],
        ),
    }
    table = pa.table({name: column for name, (column, _) in cases.items()})
    sink = io.BytesIO()
    fermion.write_table(table, sink, stripe_rows=two)
    with fermion.open(sink.getvalue()) as file:
        assert_logically_equal(file.read(), table)
        for name, (_, kinds) in cases.items():
            streams = file.column(name).streams
            assert [(each, streams[each].desc_type) for each, _ in kinds] == kinds, name
        states = [chunk.state for chunk in file.column("null stripe").streams[0].chunks]
        assert states == ["default", "all_null"]
        states = [chunk.state for chunk in file.column("lists").streams[1].chunks]
        assert states == ["stored", "default"]


TRACED = [table for table in TABLES if table.titles == ["in the design", "code", "test"]]
PLACE = re.compile(r"`([\w/.]+)(?:::(\w+))?`")


def places(cell: str) -> list[tuple[str, str]]:
    return [(path, name) for path, name in PLACE.findall(cell) if (PROJECT / path).exists()]


def test_every_part_of_the_design_is_traced_to_code_and_to_a_test():
    """No empty cell; every path exists, and holds the name that is given with it."""
    rows = [row for table in TRACED for row in table.rows]
    assert len(rows) > 60
    for row in rows:
        what = row["in the design"]
        assert what
        for cell in (row["code"], row["test"]):
            found = places(cell)
            assert found, f"{what}: {cell} names no file of the project"
            assert len(found) == len(PLACE.findall(cell)), f"{what}: {cell}"
            for path, name in found:
                text = "" if (PROJECT / path).is_dir() else (PROJECT / path).read_text()
                defined = re.search(rf"^\s*(class|def) {name}\b", text, re.M)
                assert not name or defined, f"{what}: {path} has no {name}"
        assert all(path.startswith("tests/") for path, _ in places(row["test"])), what


def test_what_is_not_built_is_said():
    said = TEXT.partition("## Not built yet")[2]
    assert "SPLIT_STRUCT" in said
    assert len(re.findall(r"^- ", said, re.M)) >= 3
