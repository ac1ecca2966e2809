"""Hypothesis strategies for Arrow types, arrays, schemas and tables of any shape.

Types and sizes are drawn, so they shrink; values come from a random generator with a drawn seed,
which is fast and lets arrays lie in memory in ways that Arrow allows but its builders never make:
slices at every level, garbage under nulls, lists that overlap or start late, dictionaries with
nulls and repeated values.
"""

from __future__ import annotations

import functools
import itertools
import string
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from hypothesis import strategies as st

_DAY_SECONDS = 86_400
_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_TEXTS = ["", "a", "b", "null", "\x00", "é", "日本語", "🙂", "a" * 13, "Fermion " * 40, "\n\t\"'"]
_NAMES = ["a", "b", "c", "id", "", "x.y", "Größe", "列", "with space", "NULL"]


@functools.cache
def fixed_width_types() -> st.SearchStrategy[pa.DataType]:
    """Types whose values all have the same width."""
    units = st.sampled_from(["s", "ms", "us", "ns"])
    zones = st.sampled_from([None, "UTC", "Europe/Berlin", "+05:30"])
    return st.one_of(
        st.sampled_from(
            [
                pa.bool_(),
                pa.int8(),
                pa.int16(),
                pa.int32(),
                pa.int64(),
                pa.uint8(),
                pa.uint16(),
                pa.uint32(),
                pa.uint64(),
                pa.float16(),
                pa.float32(),
                pa.float64(),
                pa.date32(),
                pa.date64(),
                pa.time32("s"),
                pa.time32("ms"),
                pa.time64("us"),
                pa.time64("ns"),
                pa.month_day_nano_interval(),
            ]
        ),
        st.builds(pa.timestamp, units, zones),
        st.builds(pa.duration, units),
        decimal_types(),
        st.builds(pa.binary, st.sampled_from([0, 1, 3, 16])),
    )


@functools.cache
def decimal_types() -> st.SearchStrategy[pa.DataType]:
    """Decimals of all four widths, of any precision, with small and negative scales."""
    scales = st.integers(-3, 5)
    return st.one_of(
        st.builds(pa.decimal32, st.integers(1, 9), scales),
        st.builds(pa.decimal64, st.integers(1, 18), scales),
        st.builds(pa.decimal128, st.integers(1, 38), scales),
        st.builds(pa.decimal256, st.integers(1, 76), scales),
    )


@functools.cache
def binary_types() -> st.SearchStrategy[pa.DataType]:
    """Strings and binary in all forms."""
    return st.sampled_from(
        [
            pa.string(),
            pa.large_string(),
            pa.string_view(),
            pa.binary(),
            pa.large_binary(),
            pa.binary_view(),
        ]
    )


@functools.cache
def scalar_types() -> st.SearchStrategy[pa.DataType]:
    """Types without children and without wrappers."""
    return st.one_of(fixed_width_types(), binary_types())


@functools.cache
def wrapped_types(
    values: st.SearchStrategy[pa.DataType] | None = None,
) -> st.SearchStrategy[pa.DataType]:
    """Dictionaries, run-end encoded and extension types."""
    values = scalar_types() if values is None else values
    integers = st.sampled_from(
        [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64()]
    )
    ends = st.sampled_from([pa.int16(), pa.int32(), pa.int64()])
    return st.one_of(
        st.builds(_dictionary_type, integers, values, st.booleans()),
        st.builds(pa.run_end_encoded, ends, values),
        st.sampled_from(
            [
                pa.uuid(),
                pa.json_(),
                pa.json_(pa.large_string()),
                pa.bool8(),
                pa.opaque(pa.binary(), "kind", "vendor"),
                pa.fixed_shape_tensor(pa.float32(), [2, 1]),
            ]
        ),
    )


def _dictionary_type(indices: pa.DataType, values: pa.DataType, ordered: bool) -> pa.DictionaryType:
    """Ordered only where no ordered dictionary lies within its values."""
    return pa.dictionary(indices, values, ordered and "ordered=1" not in str(values))


@functools.cache
@st.composite
def arrow_types(
    draw: st.DrawFn, depth: int = 3, *, wrapped: bool = True, nulls: bool = True
) -> pa.DataType:
    """Any type the format can hold.

    Parameters
    ----------
    depth
        How many levels of nesting there may be.
    wrapped
        Whether dictionaries, run-end encoded and extension types may occur.
    nulls
        Whether the null type may occur.
    """
    kinds = ["scalar"] * 3 + ["null"] * nulls + ["wrapped"] * (2 * wrapped)
    if depth > 0:
        kinds += ["list", "list_view", "fixed", "struct", "struct", "map"]
    kind = draw(st.sampled_from(kinds))
    if kind == "scalar":
        return draw(scalar_types())
    if kind == "null":
        return pa.null()
    below = arrow_types(depth - 1, wrapped=wrapped, nulls=nulls)
    if kind == "wrapped":
        rarely = depth > 0 and draw(st.integers(0, 3)) == 0
        return draw(wrapped_types(below if rarely else None))
    if kind == "struct":
        return pa.struct(draw(fields(depth - 1, most=4, wrapped=wrapped, nulls=nulls)))
    if kind == "map":
        key = draw(scalar_types())
        item = _field("value", draw(below), draw(st.booleans()))
        return pa.map_(key, item, keys_sorted=draw(st.booleans()))
    child = _field(draw(st.sampled_from(["item", "element"])), draw(below), draw(st.booleans()))
    if kind == "fixed":
        return pa.list_(child, draw(st.integers(0, 3)))
    makers = (
        [pa.list_view, pa.large_list_view] if kind == "list_view" else [pa.list_, pa.large_list]
    )
    return draw(st.sampled_from(makers))(child)


def _field(name: str, dtype: pa.DataType, nullable: bool) -> pa.Field:
    """A field; one of the null type, in wrappers or not, holds nulls and so is nullable."""
    inner = dtype
    while pat.is_dictionary(inner) or pat.is_run_end_encoded(inner):
        inner = inner.value_type
    return pa.field(name, dtype, nullable=nullable or pat.is_null(inner))


@functools.cache
@st.composite
def fields(
    draw: st.DrawFn,
    depth: int = 3,
    *,
    fewest: int = 0,
    most: int = 6,
    wrapped: bool = True,
    nulls: bool = True,
) -> list[pa.Field]:
    """Fields with different names, of any types."""
    types = draw(
        st.lists(arrow_types(depth, wrapped=wrapped, nulls=nulls), min_size=fewest, max_size=most)
    )
    first = draw(st.integers(0, len(_NAMES) - 1))
    names = _NAMES[first:] + _NAMES[:first]
    return [
        _field(name, dtype, draw(st.booleans())) for name, dtype in zip(names, types, strict=False)
    ]


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3, *, fewest: int = 0, most: int = 6) -> pa.Schema:
    """Schemas, some with metadata."""
    metadata = draw(st.sampled_from([None, {"key": "value"}]))
    return pa.schema(draw(fields(depth, fewest=fewest, most=most)), metadata=metadata)


@st.composite
def arrow_arrays(
    draw: st.DrawFn,
    types: st.SearchStrategy[pa.DataType] | pa.DataType | None = None,
    *,
    length: int | None = None,
    length_max: int = 40,
    nullable: bool = True,
) -> pa.Array:
    """Arrays of any type.

    Parameters
    ----------
    types
        A strategy of types, or one type; None draws any.
    length, length_max
        Values, exactly or at most.
    nullable
        False gives arrays without nulls on the top level.
    """
    if types is None:
        types = arrow_types()
    dtype = draw(types) if isinstance(types, st.SearchStrategy) else types
    count = draw(st.integers(0, length_max)) if length is None else length
    return random_array(np.random.default_rng(draw(st.integers(0, 2**32))), dtype, count, nullable)


@st.composite
def chunked_arrays(
    draw: st.DrawFn, dtype: pa.DataType, *, length: int, nullable: bool = True
) -> pa.ChunkedArray:
    """Chunked arrays of one type, in up to four chunks that may be empty."""
    cuts = sorted(draw(st.lists(st.integers(0, length), max_size=3)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    bounds = [0, *cuts, length]
    chunks = [
        random_array(rng, dtype, stop - start, nullable)
        for start, stop in itertools.pairwise(bounds)
    ]
    return pa.chunked_array(chunks, dtype)


@st.composite
def tables(
    draw: st.DrawFn,
    schema: pa.Schema | None = None,
    *,
    depth: int = 3,
    columns_max: int = 6,
    rows_max: int = 40,
) -> pa.Table:
    """Tables of any schema; columns are chunked, each in its own way."""
    if schema is None:
        schema = draw(schemas(depth, most=columns_max))
    rows = draw(st.integers(0, rows_max))
    if len(schema) == 0:
        return pa.table({"": pa.nulls(rows)}).select([]).replace_schema_metadata(schema.metadata)
    columns = [
        draw(chunked_arrays(field.type, length=rows, nullable=field.nullable)) for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def random_array(
    rng: np.random.Generator, dtype: pa.DataType, length: int, nullable: bool = True
) -> pa.Array:
    """An array of this type and length, as oddly laid out as Arrow allows."""
    return _build(rng, dtype, _random_validity(rng, length, nullable))


def _random_validity(rng: np.random.Generator, length: int, nullable: bool) -> np.ndarray:
    share = rng.choice([0.0, 0.0, 0.3, 0.9, 1.0]) if nullable else 0.0
    return rng.random(length) >= share


def _build(rng: np.random.Generator, dtype: pa.DataType, valid: np.ndarray) -> pa.Array:
    """An array whose slots are valid as given; often a slice of a longer one."""
    if rng.random() < 0.5:
        return _build_whole(rng, dtype, valid)
    before, after = int(rng.integers(0, 12)), int(rng.integers(0, 3))
    padded = np.concatenate([np.ones(before, bool), valid, np.ones(after, bool)])
    if pat.is_null(dtype):
        return pa.nulls(len(padded)).slice(before, len(valid))
    return _build_whole(rng, dtype, padded).slice(before, len(valid))


def _build_whole(rng: np.random.Generator, dtype: pa.DataType, valid: np.ndarray) -> pa.Array:
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(dtype, _build(rng, dtype.storage_type, valid))
    if pat.is_null(dtype):
        return pa.nulls(len(valid))
    if pat.is_dictionary(dtype):
        return _build_dictionary(rng, dtype, valid)
    if pat.is_run_end_encoded(dtype):
        return _build_run_ends(rng, dtype, valid)
    if pat.is_string_view(dtype) or pat.is_binary_view(dtype):
        large = pa.large_string() if pat.is_string_view(dtype) else pa.large_binary()
        return _build_whole(rng, large, valid).cast(dtype)
    slots = len(valid)
    bitmap = _bitmap(rng, valid)
    if pat.is_struct(dtype):
        children = [_build_child(rng, field, valid) for field in dtype]
        return pa.Array.from_buffers(dtype, slots, [bitmap], children=children)
    if pat.is_fixed_size_list(dtype):
        child = _build_child(rng, dtype.value_field, np.repeat(valid, dtype.list_size))
        return pa.Array.from_buffers(dtype, slots, [bitmap], children=[child])
    if dtype.num_fields:
        return _build_list(rng, dtype, valid, bitmap)
    buffers = [pa.py_buffer(buffer) for buffer in _leaf_buffers(rng, dtype, slots)]
    return pa.Array.from_buffers(dtype, slots, [bitmap, *buffers])


def _bitmap(rng: np.random.Generator, valid: np.ndarray) -> pa.Buffer | None:
    if valid.all() and rng.random() < 0.8:
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _build_child(rng: np.random.Generator, field: pa.Field, seen: np.ndarray) -> pa.Array:
    """A child's values; where it is not seen, even a field that is not nullable may be null."""
    valid = _random_validity(rng, len(seen), field.nullable)
    if not field.nullable and rng.random() < 0.5:
        valid = seen | (rng.random(len(seen)) < 0.5)
    return _build(rng, field.type, valid)


def _build_list(
    rng: np.random.Generator, dtype: pa.DataType, valid: np.ndarray, bitmap: pa.Buffer | None
) -> pa.Array:
    slots = len(valid)
    wide = pat.is_large_list(dtype) or pat.is_large_list_view(dtype)
    width = np.int64 if wide else np.int32
    sizes = rng.integers(0, 4, slots)
    if rng.random() < 0.1:
        sizes[:] = 0
    if rng.random() < 0.5:
        sizes[~valid] = 0
    first = int(rng.integers(0, 3))
    if pat.is_list_view(dtype) or pat.is_large_list_view(dtype):
        elements = int(sizes.max(initial=0)) + int(rng.integers(0, 8))
        starts = np.array([rng.integers(0, elements - size + 1) for size in sizes], width)
        if rng.random() < 0.3:
            starts, elements = _packed(sizes, first), first + int(sizes.sum())
        buffers = [pa.py_buffer(starts.astype(width)), pa.py_buffer(sizes.astype(width))]
    else:
        ends = np.append(_packed(sizes, first), first + int(sizes.sum()))
        starts, elements = ends[:-1], int(ends[-1]) + int(rng.integers(0, 3))
        buffers = [pa.py_buffer(ends.astype(width))]
    # Arrow refuses null keys and entries even where no map refers to them.
    seen = np.full(elements, pat.is_map(dtype))
    for start, size in zip(starts[valid], sizes[valid], strict=True):
        seen[start : start + size] = True
    field = _entries_field(dtype) if pat.is_map(dtype) else dtype.value_field
    child = _build_child(rng, field, seen)
    return pa.Array.from_buffers(dtype, slots, [bitmap, *buffers], children=[child])


def _entries_field(dtype: pa.MapType) -> pa.Field:
    return pa.field("entries", pa.struct([dtype.key_field, dtype.item_field]), nullable=False)


def _packed(sizes: np.ndarray, first: int) -> np.ndarray:
    return first + np.cumsum(sizes) - sizes


def _build_dictionary(
    rng: np.random.Generator, dtype: pa.DictionaryType, valid: np.ndarray
) -> pa.Array:
    """Nulls may stand in the indices and, if there is a choice, in the values too."""
    known = np.ones(int(rng.integers(1, 6)), bool)
    if rng.random() < 0.3:
        known = np.append(known, False)
    dictionary = _build(rng, dtype.value_type, known)
    codes = rng.integers(0, int(known.sum()), len(valid))
    null = ~valid
    codes[null] = len(known) - 1 if not known[-1] else rng.integers(0, 100, int(null.sum()))
    in_values = null & (rng.random(len(valid)) < 0.5) if not known[-1] else np.zeros_like(null)
    width = np.dtype(dtype.index_type.to_pandas_dtype())
    buffers = [_bitmap(rng, valid | in_values), pa.py_buffer(codes.astype(width))]
    indices = pa.Array.from_buffers(dtype.index_type, len(valid), buffers)
    if pat.is_null(dtype.value_type):
        indices = pa.nulls(len(valid), dtype.index_type)
    return pa.DictionaryArray.from_arrays(indices, dictionary, ordered=dtype.ordered)


def _build_run_ends(
    rng: np.random.Generator, dtype: pa.RunEndEncodedType, valid: np.ndarray
) -> pa.Array:
    slots = len(valid)
    change = rng.random(slots) < 0.5
    change[1:] |= valid[1:] != valid[:-1]
    starts = np.flatnonzero(change | (np.arange(slots) == 0))
    ends = np.append(starts[1:], slots)[: len(starts)]
    width = np.dtype(dtype.run_end_type.to_pandas_dtype())
    values = _build(rng, dtype.value_type, valid[starts])
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends.astype(width)), values, dtype)


def _leaf_buffers(
    rng: np.random.Generator, dtype: pa.DataType, slots: int
) -> Sequence[np.ndarray | bytes]:
    if pat.is_boolean(dtype):
        return [rng.integers(0, 256, slots // 8 + 1).astype(np.uint8)]
    if pat.is_string(dtype) or pat.is_large_string(dtype):
        return _binary_buffers(rng, dtype, [_random_text(rng).encode() for _ in range(slots)])
    if pat.is_binary(dtype) or pat.is_large_binary(dtype):
        return _binary_buffers(rng, dtype, [rng.bytes(int(n)) for n in rng.integers(0, 9, slots)])
    if pat.is_decimal(dtype):
        return [b"".join(_random_decimal(rng, dtype) for _ in range(slots))]
    if pat.is_floating(dtype):
        return [_random_floats(rng, np.dtype(dtype.to_pandas_dtype()), slots)]
    if pat.is_interval(dtype):
        parts = np.zeros(slots, [("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
        parts["months"] = rng.integers(-100, 100, slots)
        parts["days"] = rng.integers(-1000, 1000, slots)
        parts["nanoseconds"] = rng.integers(-(2**40), 2**40, slots)
        return [parts]
    if pat.is_fixed_size_binary(dtype):
        return [rng.integers(0, 256, slots * dtype.byte_width).astype(np.uint8)]
    return [_random_integers(rng, dtype, slots)]


def _binary_buffers(
    rng: np.random.Generator, dtype: pa.DataType, values: list[bytes]
) -> list[np.ndarray | bytes]:
    """Offsets that may start behind 0, and bytes that may go on behind the last value."""
    before = rng.bytes(int(rng.integers(0, 3)))
    wide = pat.is_large_string(dtype) or pat.is_large_binary(dtype)
    ends = np.cumsum([len(before)] + [len(value) for value in values])
    return [ends.astype(np.int64 if wide else np.int32), b"".join([before, *values, b"rest"])]


def _random_text(rng: np.random.Generator) -> str:
    if rng.random() < 0.5:
        return _TEXTS[int(rng.integers(len(_TEXTS)))]
    return "".join(rng.choice(list(string.printable), int(rng.integers(0, 12))))


def _random_decimal(rng: np.random.Generator, dtype: pa.DataType) -> bytes:
    digits = int(rng.integers(0, dtype.precision + 1))
    unscaled = int(rng.integers(0, 10**18)) ** 5 % 10**digits if digits else 0
    if rng.random() < 0.1:
        unscaled = 10**dtype.precision - 1
    sign = -1 if rng.random() < 0.4 else 1
    return (sign * unscaled).to_bytes(dtype.byte_width, "little", signed=True)


def _random_floats(rng: np.random.Generator, dtype: np.dtype, slots: int) -> np.ndarray:
    """Round numbers, any bits at all (so NaN of many kinds), zeros of both signs, infinities."""
    bits = np.frombuffer(rng.bytes(slots * dtype.itemsize), dtype)
    special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, np.finfo(dtype).max, 1.5], dtype)
    choice = rng.integers(0, 3, slots)
    plain = rng.integers(-100, 100, slots).astype(dtype)
    return np.where(choice == 0, bits, np.where(choice == 1, rng.choice(special, slots), plain))


def _random_integers(rng: np.random.Generator, dtype: pa.DataType, slots: int) -> np.ndarray:
    """Integers of whatever an integer stands for, within what Python's own types can show."""
    width = np.dtype(f"i{dtype.bit_width // 8}")
    if pat.is_integer(dtype):
        width = np.dtype(dtype.to_pandas_dtype())
        low, high = int(np.iinfo(width).min), int(np.iinfo(width).max)
    elif pat.is_date32(dtype):
        low, high = -700_000, 2_900_000
    elif pat.is_date64(dtype):
        days = rng.integers(-700_000, 2_900_000, slots)
        return days * (_DAY_SECONDS * 1000)
    elif pat.is_time(dtype):
        low, high = 0, _DAY_SECONDS * _UNITS[dtype.unit] - 1
    elif dtype.unit == "ns":
        low, high = -(2**63) + 1, 2**63 - 1
    else:
        low, high = -60_000_000_000 * _UNITS[dtype.unit], 250_000_000_000 * _UNITS[dtype.unit]
    near = rng.integers(max(low, -5), min(high, 100), slots, dtype=width)
    far = rng.integers(low, high, slots, dtype=width, endpoint=True)
    ends = rng.choice(np.array([low, high], dtype=width), slots)
    choice = rng.integers(0, 4, slots)
    return np.where(choice == 0, far, np.where(choice == 1, ends, near))
