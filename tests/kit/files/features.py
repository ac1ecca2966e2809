"""Small files, one per feature of the format: what is in them and how they are written."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

import fermion
from fermion.variant import from_json
from tests.kit import variants
from tests.kit.files.encoding_features import (
    blocks,
    compact,
    lz4_blocks,
    number_encodings,
    ordered_dictionary,
    symbols,
    text_encodings,
)
from tests.kit.files.feature import ROWS, Feature, with_nulls


def _integers() -> Feature:
    columns = {}
    for dtype in (pa.int8(), pa.int16(), pa.int32(), pa.int64()):
        limit = 2 ** (dtype.bit_width - 1)
        columns[str(dtype)] = with_nulls([-limit, 0, limit - 1, -1, 7, 8] * 2, dtype)
    for dtype in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()):
        columns[str(dtype)] = with_nulls([0, 1, 2**dtype.bit_width - 1, 5, 6, 7] * 2, dtype)
    return Feature(pa.table(columns), filter="int32 > 3")


def _floats() -> Feature:
    values = [0.0, 1.0, -0.0, float("nan"), float("inf"), float("-inf"), 0.1, 1e4, -2.5, 3.0, 4, 5]
    columns = {
        "half": with_nulls([np.float16(value) for value in values], pa.float16()),
        "float": with_nulls(values, pa.float32()),
        "double": with_nulls(values, pa.float64()),
        "money": pa.array([i / 100 for i in range(ROWS)]),
    }
    return Feature(pa.table(columns), filter="double >= 3")


def _temporal() -> Feature:
    day, moment = datetime.date(1969, 12, 30), datetime.datetime(2038, 1, 19, 3, 14, 7)
    days = [day + datetime.timedelta(days=i) for i in range(ROWS)]
    moments = [moment + datetime.timedelta(hours=i) for i in range(ROWS)]
    clock = [each.time() for each in moments]
    columns = {
        "date32": with_nulls(days, pa.date32()),
        "date64": with_nulls(days, pa.date64()),
        "time32": with_nulls(clock, pa.time32("s")),
        "time64": with_nulls(clock, pa.time64("ns")),
        "timestamp": with_nulls(moments, pa.timestamp("us")),
        "zoned": with_nulls(moments, pa.timestamp("ms", "Europe/Berlin")),
        "duration": with_nulls([each - moment for each in moments], pa.duration("s")),
        "interval": with_nulls([(i, -i, 10**9 + i) for i in range(ROWS)], _INTERVAL),
    }
    return Feature(pa.table(columns), filter="date32 >= DATE '1970-01-01'")


_INTERVAL = pa.month_day_nano_interval()


def _decimals() -> Feature:
    small = [decimal.Decimal(i * 37 - 100).scaleb(-2) for i in range(ROWS)]
    large = [value * 10**20 for value in small]
    columns = {
        "decimal32": with_nulls(small, pa.decimal32(9, 2)),
        "decimal64": with_nulls(small, pa.decimal64(18, 2)),
        "decimal128": with_nulls(small, pa.decimal128(38, 2)),
        "wide128": with_nulls(large, pa.decimal128(38, 2)),
        "decimal256": with_nulls(large, pa.decimal256(76, 2)),
    }
    return Feature(pa.table(columns), filter="decimal128 > 1.5")


def _booleans() -> Feature:
    flags = [i % 5 < 2 for i in range(ROWS)]
    columns = {
        "flag": pa.array(flags),
        "maybe": with_nulls(flags, pa.bool_()),
        "always": pa.array([True] * ROWS),
        "required": pa.array([not flag for flag in flags]),
    }
    table = pa.table(columns)
    required = pa.field("required", pa.bool_(), nullable=False)
    return Feature(table.cast(table.schema.set(3, required)), filter="flag AND maybe")


_TEXTS = ["", "a", "fermion", "über", "日本語", "carefully final deposits", "a", "a\0b"] * 2


def _strings() -> Feature:
    texts = _TEXTS[:ROWS]
    raw = [text.encode() + b"\xff" for text in texts]
    columns = {
        "string": with_nulls(texts, pa.string()),
        "large_string": with_nulls(texts, pa.large_string()),
        "string_view": with_nulls(texts, pa.string_view()),
        "binary": with_nulls(raw, pa.binary()),
        "large_binary": with_nulls(raw, pa.large_binary()),
        "binary_view": with_nulls(raw, pa.binary_view()),
        "fixed": with_nulls([bytes([i] * 3) for i in range(ROWS)], pa.binary(3)),
        "empty": pa.array([""] * ROWS),
    }
    return Feature(pa.table(columns), filter="string = 'fermion'")


def _dictionaries() -> Feature:
    texts = [None if i % 7 == 3 else ["red", "green", "blue"][i % 3] for i in range(40)]
    columns = {
        "dictionary": pa.array(texts).dictionary_encode(),
        "ordered": pa.DictionaryArray.from_arrays(
            pa.array([i % 2 for i in range(40)], pa.int8()), pa.array([1.5, 2.5]), ordered=True
        ),
        "stored": pa.array([["north", "south", "east"][i % 7 % 3] for i in range(40)]),
        "numbers": pa.array([[10**15, -7, 3][i % 3] for i in range(40)]),
    }
    options = {"encodings": {"stored": "dictionary", "numbers": "dictionary"}, "page_rows_max": 24}
    return Feature(pa.table(columns), options, filter="stored = 'east'")


def _global_dictionaries() -> Feature:
    count = 50
    texts = ["red", "green", "blue", "deep sea green", "ultramarine", "", "ochre"]
    picks = [i // 9 + i % 2 for i in range(count)]
    columns = {
        "text": with_nulls([texts[pick] for pick in picks], pa.string()),
        "number": pa.array([10**15 + 7 * pick for pick in picks]),
        "real": pa.array([float("nan") if pick == 2 else pick / 7 for pick in picks]),
        "fixed": pa.array([bytes([pick]) * 5 for pick in picks], pa.binary(5)),
        "sparse": pa.array([texts[pick] if i % 3 == 1 else None for i, pick in enumerate(picks)]),
        "stripe_of_nulls": pa.array([None if 20 <= i < 40 else texts[i % 3] for i in range(count)]),
        "tiny": pa.array(picks, pa.int8()),
        "list": pa.array([[texts[pick]] * (pick % 3) for pick in picks]),
        "struct": pa.array([{"a": texts[pick], "b": i} for i, pick in enumerate(picks)]),
    }
    shared = [*list(columns)[:-1], "struct.a"]
    options = {"global_dictionaries": shared, "page_rows_max": 12, "stripe_rows": 20}
    return Feature(pa.table(columns), options, filter="text = 'ultramarine'")


def _run_ends() -> Feature:
    values = pa.array([1, 1, 1, None, None, 5, 5, 5, 5, 5, 6, 6])
    ree = pa.RunEndEncodedArray.from_arrays(
        pa.array([3, 5, 12], pa.int32()), pa.array(["x", None, "y"])
    )
    return Feature(pa.table({"runs": ree, "plain": values}), filter="plain = 5")


def _lists() -> Feature:
    rows = [[1, 2], None, [3], [], [None, 4], [5] * 5] * 2
    columns = {
        "list": pa.array(rows, pa.list_(pa.int64())),
        "large_list": pa.array(rows, pa.large_list(pa.int16())),
        "list_view": pa.array(rows, pa.list_view(pa.int32())),
        "large_list_view": pa.array(rows, pa.large_list_view(pa.uint8())),
        "lists": pa.array([[row, None] if i % 4 else [] for i, row in enumerate(rows)]),
        "fixed": pa.array(
            [[i, None] if i % 5 else None for i in range(ROWS)], pa.list_(pa.int8(), 2)
        ),
        "empty": pa.array([[]] * ROWS, pa.list_(pa.string())),
    }
    return Feature(pa.table(columns))


_PAIR = pa.list_(pa.int8(), 2)


def _lists_of_nulls() -> Feature:
    rows = pa.array([[None, None], None, [None]] * 4, pa.list_(pa.float32()))
    return Feature(pa.table({"l": rows, "n": pa.array([[None]] * ROWS, pa.list_(pa.null()))}))


def _structs() -> Feature:
    inner = [{"x": i, "y": {"z": str(i), "w": None}} if i % 4 else None for i in range(ROWS)]
    columns = {"struct": pa.array(inner), "empty": pa.array([{}, None] * 6, pa.struct([]))}
    return Feature(pa.table(columns), filter="struct.x > 6")


def _maps() -> Feature:
    pairs = [[(str(j), j / 2) for j in range(i % 3)] if i % 5 else None for i in range(ROWS)]
    columns = {
        "map": pa.array(pairs, _PAIRS),
        "sorted": pa.array(pairs, pa.map_(pa.string(), pa.float64(), keys_sorted=True)),
        "deep": pa.array([[{"m": pair}] for pair in pairs], pa.list_(pa.struct([("m", _PAIRS)]))),
    }
    return Feature(pa.table(columns))


_PAIRS = pa.map_(pa.string(), pa.float64())


_MAP_ROWS = [
    {"": 1.5, "a.b": 2.5, "it's": None},
    None,
    {},
    {"a.b": -1.0, "rare": 0.5, "über": 3.0},
    {"a.b": None},
    {"a.b": 0.25},
]


def _shredded_maps() -> Feature:
    texts = [each if each is None else list(each.items()) for each in _MAP_ROWS * 2]
    numbers = [[(-3, [i]), (20, None)] if i % 3 else [(100, [i, None])] for i in range(ROWS)]
    columns = {
        "text": pa.array(texts, pa.map_(pa.string(), pa.float32())),
        "number": pa.array(numbers, pa.map_(pa.int16(), pa.list_(pa.int32()))),
        "id": pa.array(range(ROWS)),
    }
    shred = {"text": fermion.Shred(["", "a.b", "it's"]), "number": fermion.Shred(1)}
    return Feature(pa.table(columns), {"shred": shred, "stripe_rows": 7}, filter="text['a.b'] < 1")


def _shredded_batches() -> Feature:
    feature = _shredded_maps()
    return replace(feature, batches=[(1001, 5), (1002, 0), (1002, 4), (1003, 3)])


def _shredded_variants() -> Feature:
    """Paths of every type, some with other types in the rest, some within others.

    And values in another order than their names.
    """
    day = datetime.date(2020, 2, 29)
    first = {"on": True, "n": 5, "x": 0.5, "s": "é" * 40, "day": day, "a.b": {"": None}}
    second = {"n": -(2**40), "s": "", "at": datetime.datetime(2020, 1, 2, 3), "user": {"id": 7}}
    third = {"n": "text", "user": {"id": None, "tags": ["a", {"id": 1}]}, "s": {"t": 300}}
    fourth = {"utc": datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC), "user": {}, "x": None}
    values = [first, second, ..., third, fourth, 5] * 2
    other = from_json(['{"n": 1, "z": [{"b": 1, "a": "x", "c": []}, 0.5]}'])
    keys = ["on", "n", "x", "s", "s.t", "day", "at", "utc", "user.id", "'a.b'.''"]
    column = pa.concat_arrays([variants.column(values[:-1]), other])
    table = pa.table({"event": column, "id": range(ROWS)})
    return Feature(
        table, {"shred": {"event": fermion.Shred(keys)}, "stripe_rows": 7}, filter="id > 3"
    )


def _changed_maps() -> Feature:
    feature = _shredded_maps()
    table = feature.table.append_column("new", [range(ROWS)])
    return replace(feature, table=table, added=["new"])


def _seed_examples() -> Feature:
    columns = {
        "first": pa.array([[1, 2], None, [3]], pa.list_(pa.int64())),
        "second": pa.array([[[1, 2], [3]], [[4]], None], pa.list_(pa.list_(pa.int64()))),
    }
    return Feature(pa.table(columns))


def _extensions() -> Feature:
    tensor = pa.fixed_shape_tensor(pa.float32(), [2])
    storage = pa.array([[i, i + 0.5] for i in range(ROWS)], tensor.storage_type)
    columns = {
        "uuid": pa.array([bytes([i]) * 16 for i in range(ROWS)], pa.binary(16)).cast(pa.uuid()),
        "json": pa.array(['{"a":1}', None] * 6).cast(pa.json_()),
        "tensor": pa.ExtensionArray.from_storage(tensor, storage),
    }
    return Feature(pa.table(columns))


def _nulls() -> Feature:
    columns = {
        "null": pa.nulls(ROWS),
        "nothing": pa.nulls(ROWS, pa.string()),
        "some": pa.array([None] * 8 + [1, 2, 3, 4]),
        "struct": pa.array([{"a": None, "b": i} for i in range(ROWS)]),
        "last": pa.nulls(ROWS, pa.list_(pa.int8())),
    }
    return Feature(pa.table(columns), {"stripe_rows": 4}, filter="some IS NULL")


def _null_slots_left_out() -> Feature:
    count = 50
    texts = ["red", "green", "blue", "deep sea green"]
    sparse = [None if i % 7 < 5 else i for i in range(count)]
    columns = {
        "int": pa.array(sparse),
        "text": pa.array([None if i is None else texts[i % 4] * (i % 3) for i in sparse]),
        "flag": pa.array([None if i is None else i % 4 < 2 for i in sparse]),
        "coded": pa.array([None if i is None else texts[i % 4] for i in sparse]),
        "list": pa.array([[] if i is None else [i, None, None] for i in sparse], _INTS),
    }
    options = {"encodings": {"coded": "dictionary"}, "page_rows_max": 20, "stripe_rows": 30}
    return Feature(pa.table(columns), options, filter="int > 20")


_INTS = pa.list_(pa.int16())


def _no_rows() -> Feature:
    schema = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    return Feature(schema.empty_table(), filter="a = 1")


def _pages() -> Feature:
    count = 30
    columns = {
        "key": pa.array(range(count)),
        "text": pa.array([None if i % 4 == 0 else f"value {i}" for i in range(count)]),
        "list": pa.array([[i] * (i % 3) if i % 5 else None for i in range(count)]),
    }
    options = {"page_rows_max": 10, "stripe_rows": 25}
    return Feature(pa.table(columns), options, filter="key BETWEEN 22 AND 27")


def _batches() -> Feature:
    count = 20
    columns = {
        "a": pa.array(range(count)),
        "l": pa.array([[str(i)] * (i % 3) if i % 4 else None for i in range(count)]),
    }
    batches = [(1001, 3), (1002, 2), (None, 0), (7, 10), (1002, 5)]
    return Feature(
        pa.table(columns), {"page_bytes": 64, "stripe_rows": 8}, batches, filter="batch_id = 1002"
    )


def _batch_positions() -> Feature:
    """The first stripe has positions in two pages, the last one none."""
    positions = [[0, 1, 7], [3, 2**31 - 2], [], [*range(0, 20, 2)], [0, 1, 2, 3, 4]]
    return replace(_batches(), options={"page_bytes": 16, "stripe_rows": 8}, positions=positions)


def _schema() -> Feature:
    shapes = [pa.int64(), pa.string(), pa.float64()]
    fields = [pa.field(f"column_{i:02d}", shapes[i % 3]) for i in range(36)]
    ids = [
        pa.field("id", pa.int32(), metadata={b"PARQUET:field_id": b"7"}),
        pa.field("", pa.int32(), nullable=False, metadata={b"PARQUET:field_id": b"9", b"k": b"v"}),
        pa.field("twice", pa.int32(), metadata={b"unit": b"m"}),
        pa.field("twice", pa.int32()),
        pa.field("dotted.name", pa.int32()),
        pa.field("列", pa.int32()),
    ]
    schema = pa.schema([*fields, *ids], metadata={b"origin": b"a test", b"\xff": b"\x00"})
    arrays = [pa.nulls(2, each.type) for each in fields]
    arrays += [pa.array([1, 2], pa.int32()) for _ in ids]
    table = pa.Table.from_arrays(arrays, schema=schema)
    return Feature(table, metadata={"writer": "a test", "ключ": "値"}, filter="id = 2")


def _bloom_filters() -> Feature:
    columns = {
        "id": pa.array([i * 7919 for i in range(ROWS)]),
        "text": pa.array([f"text {i}" for i in range(ROWS)]),
        "real": with_nulls([i / 3 for i in range(ROWS)], pa.float64()),
        "money": pa.array([decimal.Decimal(i) for i in range(ROWS)], pa.decimal128(20, 0)),
    }
    return Feature(pa.table(columns), {"bloom_filters": list(columns)}, filter="text = 'text 3'")


def _summaries() -> Feature:
    count = 40
    columns = {
        "int": with_nulls([2**63 - 1 - i % 3 for i in range(count)], pa.int64()),
        "unsigned": pa.array([2**64 - 1 - i % 3 for i in range(count)], pa.uint64()),
        "money": with_nulls([decimal.Decimal(37 * i - 500) for i in range(count)], _MONEY),
        "flag": with_nulls([i % 3 == 0 for i in range(count)], pa.bool_()),
        "real": pa.array([0.0, -0.0, float("nan"), 1.5] * (count // 4)),
        "text": with_nulls([f"{i * 7 % 11} " * 60 for i in range(count)], pa.string()),
        "long": pa.array([np.random.default_rng(i).bytes(120) for i in range(count)]),
    }
    options = {"summaries": list(columns), "page_rows_max": 8, "stripe_rows": 34}
    return Feature(pa.table(columns), options, filter="int > 9223372036854775805")


_MONEY = pa.decimal128(38, 2)


def _page_bloom_filters() -> Feature:
    count = 40
    columns = {
        "id": pa.array([i * 7919 % 101 for i in range(count)]),
        "text": with_nulls([f"text {i * 31 % 7}" for i in range(count)], pa.string()),
        "real": pa.array([float("nan") if i < 20 else i / 3 for i in range(count)]),
        "flag": pa.array([i > 30 for i in range(count)]),
    }
    options = {
        "bloom_filters": ["id"],
        "page_bloom_filters": list(columns),
        "encodings": {"text": "dictionary"},
        "page_rows_max": 8,
        "stripe_rows": 30,
    }
    return Feature(pa.table(columns), options, filter="text = 'text 3' AND flag")


def _counts_and_long_bounds() -> Feature:
    rng = np.random.default_rng(11)
    count = 240
    texts = [f"https://example.org/{rng.bytes(22).hex()}" for _ in range(count)]
    columns = {
        "url": with_nulls(texts, pa.string()),
        "cut": pa.array([text * 2 for text in texts]),
        "real": pa.array([float("nan") if i % 7 == 3 else i / 3 for i in range(count)]),
        "late": pa.array([i if i > 100 else None for i in range(count)]),
    }
    return Feature(pa.table(columns), {"page_rows_max": 80}, filter="late IS NULL")


def _sort_order() -> Feature:
    reals = [None, float("nan"), 7.5, 0.0, -0.0, -2.0, -2.0, float("-inf"), float("-inf")]
    columns = {
        "day": pa.array([datetime.date(2024, 1, 1 + i // 9) for i in range(24)]),
        "real": pa.array([reals[i % 9] for i in range(24)]),
        "text": pa.array([f"{i % 5} {i}" for i in range(24)]),
    }
    keys = ["day", fermion.SortKey("real", descending=True, nulls_first=True)]
    options = {"sorted_by": keys, "page_rows_max": 8, "stripe_rows": 16}
    return Feature(pa.table(columns), options, filter="day = DATE '2024-01-02'")


def _dictionary_orders() -> Feature:
    """Ordered dictionaries, with values that no row has; from the second stripe on another one."""
    levels, fewer = pa.array(["low", "mid", "high", "top"]), pa.array(["high", "low"])
    codes = [0, None, 2] * 4
    chunks = [pa.array(codes, pa.int8()), pa.array([1, 0, None, 0], pa.int8())]
    top = [
        pa.DictionaryArray.from_arrays(each, entries, ordered=True)
        for each, entries in zip(chunks, (levels, fewer), strict=True)
    ]
    numbers = pa.array([7, -7, 0], pa.int16())
    below = pa.DictionaryArray.from_arrays(
        pa.array([1, 1, 0] * 4, pa.int8()), numbers, ordered=True
    )
    numbered = pa.chunked_array([below, below.slice(0, 4)])
    table = pa.table({"level": pa.chunked_array(top), "number": numbered})
    return Feature(table, filter="level = 'high'", has_orders=True)


def _compressed_schema() -> Feature:
    noted = [{"name": name, "numpy_type": "int64", "metadata": None} for name in "abcdefgh"]
    table = pa.table({"a": pa.array(range(ROWS)), "b": ["x", None] * (ROWS // 2)})
    table = table.replace_schema_metadata({"pandas": json.dumps({"columns": noted})})
    return Feature(table, {"compress_schema": True}, filter="a < 5")


def _no_column_index() -> Feature:
    columns = {"a": pa.array(range(ROWS)), "b": pa.nulls(ROWS, pa.string()), "c": ["x"] * ROWS}
    return Feature(pa.table(columns), {"column_index": False}, filter="a < 5")


def _changed_columns() -> Feature:
    columns = {
        "new": pa.array([f"text {i}" for i in range(ROWS)]),
        "old": with_nulls(range(ROWS), pa.int32()),
        "new_null": pa.nulls(ROWS, pa.string()),
        "old_null": pa.nulls(ROWS, pa.int8()),
        "new_list": pa.array([[i] * (i % 3) for i in range(ROWS)], _INTS),
        "old_list": pa.array([[str(i)] if i % 5 else None for i in range(ROWS)]),
    }
    options = {"page_rows_max": 4, "stripe_rows": 10}
    added = ["new", "new_null", "new_list"]
    return Feature(pa.table(columns), options, filter="new = 'text 11'", added=added)


def _changed_batches() -> Feature:
    return replace(_batches(), added=["a"])


def _changed_batch_positions() -> Feature:
    return replace(_batch_positions(), added=["a"])


def _aligned() -> Feature:
    count = 20
    columns = {
        "plain": pa.array([i / 7 for i in range(count)]),
        "flag": with_nulls([i % 3 == 0 for i in range(count)], pa.bool_()),
        "list": pa.array([[i, i] if i % 5 else None for i in range(count)], _INTS),
        "text": pa.array([f"value {i}" for i in range(count)]),
        "coded": pa.array(["red" if i % 3 else "green" for i in range(count)]),
    }
    encodings = {"plain": "plain", "coded": "dictionary"}
    options = {"align": 64, "encodings": encodings, "page_rows_max": 8, "stripe_rows": 16}
    return Feature(pa.table(columns), options, filter="plain > 2")


def _blobs() -> Feature:
    """Values within the column and outside of it, in two types; a column of nulls alone."""
    sizes = [0, 3, None, 8, 9, 40, None, 70, 8, 100, 1, 2]
    values = [None if size is None else bytes(range(size)) for size in sizes]
    noted = {"fermion:blob": "true"}
    fields = [
        pa.field("id", pa.int32()),
        pa.field("image", pa.large_binary(), metadata={**noted, "of": "cats"}),
        pa.field("sound", pa.binary(), nullable=False, metadata=noted),
        pa.field("none", pa.binary(), metadata=noted),
    ]
    sounds = [(value or b"?")[::-1] for value in values]
    columns = [range(ROWS), values, sounds, [None] * ROWS]
    arrays = [pa.array(column, each.type) for column, each in zip(columns, fields, strict=True)]
    table = pa.table(arrays, schema=pa.schema(fields))
    options = {"blob_inline_bytes": 8, "stripe_rows": 7}
    return Feature(table, options, filter="image IS NULL")


def _changed_blobs() -> Feature:
    return replace(_blobs(), added=["sound"])


def _checksum(kind: str) -> Callable[[], Feature]:
    return lambda: Feature(pa.table({"a": list(range(ROWS))}), {"checksum": kind})


FEATURES: dict[str, Callable[[], Feature]] = {
    "integers": _integers,
    "floats": _floats,
    "temporal": _temporal,
    "decimals": _decimals,
    "booleans": _booleans,
    "strings": _strings,
    "dictionaries": _dictionaries,
    "global_dictionaries": _global_dictionaries,
    "run_ends": _run_ends,
    "lists": _lists,
    "lists_of_nulls": _lists_of_nulls,
    "structs": _structs,
    "maps": _maps,
    "shredded_maps": _shredded_maps,
    "shredded_batches": _shredded_batches,
    "shredded_variants": _shredded_variants,
    "changed_maps": _changed_maps,
    "seed_examples": _seed_examples,
    "extensions": _extensions,
    "nulls": _nulls,
    "null_slots_left_out": _null_slots_left_out,
    "no_rows": _no_rows,
    "pages_and_stripes": _pages,
    "batches": _batches,
    "batch_positions": _batch_positions,
    "schema": _schema,
    "compact": compact,
    "number_encodings": number_encodings,
    "text_encodings": text_encodings,
    "fsst": symbols,
    "lz4": lz4_blocks,
    "bloom_filters": _bloom_filters,
    "summaries": _summaries,
    "page_bloom_filters": _page_bloom_filters,
    "counts_and_long_bounds": _counts_and_long_bounds,
    "sort_order": _sort_order,
    "dictionary_orders": _dictionary_orders,
    "no_column_index": _no_column_index,
    "compressed_schema": _compressed_schema,
    "changed_columns": _changed_columns,
    "changed_batches": _changed_batches,
    "changed_batch_positions": _changed_batch_positions,
    "aligned": _aligned,
    "blobs": _blobs,
    "changed_blobs": _changed_blobs,
    "checksum_crc32": _checksum("crc32"),
    "checksum_xxh3": _checksum("xxh3"),
    "checksum_none": _checksum("none"),
}
"""The feature of each name, made when called."""


LARGE_FEATURES: dict[str, Callable[[], Feature]] = {
    "blocks_balanced": blocks("balanced"),
    "blocks_compact": blocks("compact"),
    "blocks_fast": blocks("fast"),
    "blocks_random": blocks("random"),
    "ordered_dictionary": ordered_dictionary,
}
"""Features that need more rows: too large to damage byte by byte."""
