"""Variant columns of Parquet files: found, put together where they are shredded, and shredded.

The rules are those of Parquet's "Variant Shredding": beside ``value`` a group may have
``typed_value``, of which one at most holds a value, but for objects, whose fields may be divided.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion.columns.types import VARIANT
from fermion.columns.variants import (
    STORAGE,
    TYPES,
    WHOLE,
    Path,
    PathTree,
    Values,
    VariantType,
    storage_of,
    values_of,
)
from fermion.errors import InvalidArgumentError, InvalidFileError, UnsupportedTypeError
from fermion.exports import NamedTuple
from fermion.metadata.map_keys import VariantPaths

SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"
DEPTH_MAX = 64
NULL = b"\x00"

_ANNOTATED = re.compile(r"^  (?:required|optional) group(?: field_id=-?\d+)? (.*) \(Variant", re.M)
_DECIMALS = ((9, 8, 4), (18, 9, 8), (38, 10, 16))
_PRIMITIVES = (
    (pat.is_int8, 3),
    (pat.is_int16, 4),
    (pat.is_int32, 5),
    (pat.is_int64, 6),
    (pat.is_float64, 7),
    (pat.is_date32, 11),
    (lambda dtype: pat.is_timestamp(dtype) and dtype.unit == "us" and dtype.tz is not None, 12),
    (lambda dtype: pat.is_timestamp(dtype) and dtype.unit == "us", 13),
    (pat.is_float32, 14),
    (lambda dtype: pat.is_time64(dtype) and dtype.unit == "us", 17),
    (lambda dtype: pat.is_timestamp(dtype) and dtype.unit == "ns" and dtype.tz is not None, 18),
    (lambda dtype: pat.is_timestamp(dtype) and dtype.unit == "ns", 19),
)
"""Types of a fixed width, and the numbers that the encoding has for them."""


def variant_columns(
    schema: pa.Schema, parquet_schema: Any, key_values: dict[str, str]
) -> list[int]:
    """Ordinals of the columns that are Variant: annotated so, or by Spark 4.0.

    A Variant within another column stays the struct that it is stored as.
    """
    shaped = [at for at, field in enumerate(schema) if _is_group(field.type)]
    if not shaped:
        return []
    found = set(_ANNOTATED.findall(str(parquet_schema)))
    try:
        fields = json.loads(key_values.get(SPARK_SCHEMA, "{}"))["fields"]
        found |= {field["name"] for field in fields if field["type"] == "variant"}
    except (ValueError, KeyError, TypeError):
        pass  # the entry is any writer's text
    return [at for at in shaped if schema.field(at).name in found]


def _is_group(dtype: pa.DataType) -> bool:
    if isinstance(dtype, VariantType):
        dtype = dtype.storage_type
    if not pat.is_struct(dtype):
        return False
    names = set(dtype.names)
    return (
        len(names) == dtype.num_fields
        and "metadata" in names
        and names <= {"metadata", "value", "typed_value"}
        and len(names) > 1
        and all(_is_binary(dtype.field(name).type) for name in names - {"typed_value"})
    )


def _is_binary(dtype: pa.DataType) -> bool:
    return bool(pat.is_binary(dtype) or pat.is_large_binary(dtype) or pat.is_binary_view(dtype))


def unwrapped(field: pa.Field) -> pa.Field:
    """A field of Variant as a struct whose metadata names the type.

    pyarrow's writer ends the process where it meets the type itself, unless that is its own in C++.
    """
    metadata = {"ARROW:extension:name": VARIANT, "ARROW:extension:metadata": ""}
    return field.with_type(field.type.storage_type).with_metadata(
        {**(field.metadata or {}), **metadata}
    )


def whole_values(column: pa.StructArray, where: str, first: int = 0) -> pa.StructArray:
    """The values of a Variant column, each in one piece.

    where: The file and column, for messages.
    first: The number of the column's first row in the file.
    Returns: Of type ``STORAGE``; the column's own bytes where nothing is shredded.
    Raises InvalidFileError: Values that the rules of shredding forbid.
    Raises UnsupportedTypeError: A typed value is of a type that no Variant value has.
    """
    valid = column.is_valid()
    metadata = column.field("metadata").cast(pa.binary())
    visible = np.flatnonzero(np.asarray(valid))
    if "typed_value" in column.type.names:
        part = column.take(pa.array(visible))  # values below a null are anything
        texts = part.field("metadata").cast(pa.binary()).to_pylist()
        if None in texts:
            raise InvalidFileError(f"{where}: a value has no metadata")
        known = _KeyIds(where)
        keys = {int(row): known.of(text) for row, text in zip(visible, texts, strict=True)}
        made = _Group(where, keys, first).values(part, visible, 0)
        # A value that is required and not there counts as the null of Variant.
        value = pa.array([NULL if each is None else each for each in made], pa.binary())
        places = np.zeros(len(column), np.int64)
        places[visible] = np.arange(len(visible))
        value = value.take(pa.array(places, mask=~np.asarray(valid)))
    else:
        value = column.field("value").cast(pa.binary())
    children = []
    for child, name in ((metadata, "metadata"), (value, "value")):
        if valid.false_count:
            child = pc.if_else(valid, child, pa.scalar(b"", pa.binary()))
        if child.null_count:
            raise InvalidFileError(f"{where}: a value has no {name}")
        children.append(child)
    mask = pc.invert(valid) if valid.false_count else None
    return pa.StructArray.from_arrays(children, fields=list(STORAGE), mask=mask)


class Shredding:
    """The shredded form of a Variant column: groups for its paths with columns, and their parents.

    A path above another one keeps its own values in ``value``: a group has one typed value. So do
    names that another one differs from in case alone, which engines without case do not tell apart,
    and paths that a schema has too few levels for.
    """

    def __init__(self, keys: VariantPaths) -> None:
        parents = {path[:depth] for path in keys.keys for depth in range(1, len(path))}
        taken: dict[Path, str] = {}
        kept = [
            place
            for place, path in enumerate(keys.keys)
            if path not in parents
            and 2 * len(path) < DEPTH_MAX  # each name is two levels of the schema
            and all(
                taken.setdefault((*path[:depth], name.casefold()), name) == name
                for depth, name in enumerate(path)
            )
        ]
        self._tree = PathTree([keys.keys[place] for place in kept], keys.kinds[kept])
        self._fields: _Fields = {}
        for at, place in enumerate(kept):
            *above, name = keys.keys[place]
            group = self._fields
            for each in above:
                below = group.setdefault(each, {})
                assert isinstance(below, dict)
                group = below
            group[name] = at

    def __len__(self) -> int:
        """How many paths have a typed value."""
        return len(self._tree.kinds)

    def _groups(self, fields: _Fields | int) -> list[pa.Field]:
        """Of what fields, or a path, are: value and typed value."""
        if isinstance(fields, int):
            typed = TYPES[self._tree.kinds[fields]]
        else:
            typed = pa.struct(
                [
                    pa.field(name, pa.struct(self._groups(below)), nullable=False)
                    for name, below in fields.items()
                ]
            )
        return [pa.field("value", pa.binary()), pa.field("typed_value", typed)]

    @property
    def type(self) -> pa.StructType:
        """The type of the column."""
        return pa.struct([STORAGE.field("metadata"), *self._groups(self._fields)])

    def shredded(self, array: pa.Array, where: str) -> pa.StructArray:
        """Values of the Variant column in this form.

        Raises InvalidArgumentError: Bytes are no Variant value.
        """
        values, storage = values_of(array), storage_of(array)
        try:
            rest, ends, parts, _ = self._tree.split(values)
            columns = list(chain.from_iterable(parts.columns(len(array))))
            left = values._replace(values=rest, value_ends=ends)
            children = self._group(left, self._fields, columns)
        except (ValueError, pa.ArrowInvalid) as error:
            raise InvalidArgumentError(f"{where}: {error}") from None
        metadata = storage.field("metadata").cast(pa.binary())
        return pa.StructArray.from_arrays(
            [metadata, *children], fields=list(self.type), mask=pc.invert(storage.is_valid())
        )

    def _group(
        self, values: Values, fields: _Fields | int, columns: Sequence[pa.Array]
    ) -> list[pa.Array]:
        """Value and typed value of what is left of values without those of the columns."""
        sizes = np.diff(values.value_ends)
        if isinstance(fields, int):
            return [_binary(values.values, values.value_ends, sizes > 0), columns[fields]]
        there = np.flatnonzero(sizes)
        is_object = np.zeros(len(sizes), bool)
        is_object[there] = values.values[values.value_ends[there]] & 3 == 2
        tree = PathTree([(name,) for name in fields], np.full(len(fields), WHOLE))
        rest, ends, parts, _ = tree.split(values)
        arrays, types = [], self._groups(fields)[1]
        below = zip(fields.values(), types.type, strict=True)
        for column, (child, field) in zip(
            chain.from_iterable(parts.columns(len(sizes))), below, strict=True
        ):
            _, own, data = column.cast(pa.large_binary()).buffers()
            found = values._replace(
                values=np.frombuffer(data, np.uint8),
                value_ends=np.frombuffer(own, np.int64, len(sizes) + 1),
            )
            group = self._group(found, child, columns)
            arrays.append(pa.StructArray.from_arrays(group, fields=list(field.type)))
        left = sizes > 0
        heads = ends[:-1][is_object]
        count = heads[:, None] + 1 + np.arange(4) * (rest[heads] >> 6 & 1)[:, None]  # 1 byte, or 4
        left[is_object] = rest[count].any(axis=1)  # whether fields are left
        typed = pa.StructArray.from_arrays(
            arrays, fields=list(types.type), mask=pa.array(~is_object)
        )
        return [_binary(rest, ends, left), typed]


_Fields = dict[str, "_Fields | int"]
"""Fields of an object by name: the fields of each, or the place of a path."""


def _binary(data: np.ndarray, ends: np.ndarray, valid: np.ndarray) -> pa.Array:
    bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bits, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(valid), buffers).cast(pa.binary())


class _Keys(NamedTuple):
    """Keys by their ids, and the first id of each."""

    keys: list[bytes]
    ids: dict[bytes, int]


class _KeyIds:
    """The keys of metadata by its bytes, read once each."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._known: dict[bytes, _Keys] = {}

    def of(self, data: bytes) -> _Keys:
        """The keys; one may have several ids where they are in no order.

        Raises InvalidFileError: They are no metadata of version 1.
        """
        if data not in self._known:
            width = (data[0] >> 6) + 1 if data else 0
            count = int.from_bytes(data[1 : 1 + width], "little")
            start = 1 + width * (count + 2)
            bounds = _numbers(data[1 + width : start], width)
            if not data or data[0] & 15 != 1 or len(bounds) != count + 1 or start > len(data):
                raise InvalidFileError(f"{self._where}: metadata of {len(data)} bytes is damaged")
            keys = [data[start + low : start + high] for low, high in pairwise(bounds)]
            ids = {key: at for at, key in reversed(list(enumerate(keys)))}
            self._known[data] = _Keys(keys, ids)
        return self._known[data]


def _numbers(data: bytes, width: int) -> list[int]:
    """Whole numbers of ``width`` bytes each."""
    return [
        int.from_bytes(data[at : at + width], "little") for at in range(0, len(data), width or 1)
    ]


class _Group:
    """Puts the values of groups together, level by level; rows share the ids of their keys."""

    def __init__(self, where: str, keys: dict[int, _Keys], first: int) -> None:
        self._where, self._keys, self._first = where, keys, first

    def values(self, group: pa.StructArray, rows: np.ndarray, depth: int) -> list[bytes | None]:
        """The value of each group; None: it has none.

        rows: Which row of the column each group belongs to.
        """
        if depth > DEPTH_MAX:
            raise UnsupportedTypeError(f"{self._where}: shredded deeper than {DEPTH_MAX} levels")
        names = group.type.names
        if not set(names) <= {"metadata", "value", "typed_value"}:
            raise InvalidFileError(f"{self._where}: a shredded group has the fields {names}")
        values: list[bytes | None] = [None] * len(group)
        if "value" in names:
            values = group.field("value").to_pylist()
        if "typed_value" not in names:
            return values
        typed = group.field("typed_value")
        if isinstance(typed, pa.ExtensionArray) and typed.type.extension_name == "arrow.uuid":
            made = [_bytes(20, each) for each in typed.storage.to_pylist()]
        elif pat.is_struct(typed.type):
            return self._objects(typed, values, rows, depth)
        elif pat.is_list(typed.type) or pat.is_large_list(typed.type):
            made = self._arrays(typed, rows, depth)
        else:
            made = self._primitives(typed)
        for at, each in enumerate(made):
            if each is not None:
                if values[at] is not None:
                    raise self._invalid(int(rows[at]), "has both value and typed_value")
                values[at] = each
        return values

    def _invalid(self, row: int, what: str) -> InvalidFileError:
        return InvalidFileError(f"{self._where}: row {self._first + row}: the value {what}")

    def _primitives(self, typed: pa.Array) -> list[bytes | None]:
        dtype = typed.type
        if pat.is_boolean(dtype):
            return [
                None if each is None else b"\x04" if each else b"\x08" for each in typed.to_pylist()
            ]
        if pat.is_decimal128(dtype) and 0 <= dtype.scale <= dtype.precision:
            kind, width = next(each[1:] for each in _DECIMALS if dtype.precision <= each[0])
            return self._fixed(typed, 16, bytes((kind << 2, dtype.scale)), width)
        if _is_binary(dtype):
            return [_bytes(15, each) for each in typed.to_pylist()]
        if pat.is_string(dtype) or pat.is_large_string(dtype) or pat.is_string_view(dtype):
            return [_text(each) for each in typed.cast(pa.large_string()).to_pylist()]
        for matches, kind in _PRIMITIVES:
            if matches(dtype):
                width = dtype.bit_width // 8
                return self._fixed(typed, width, bytes((kind << 2,)), width)
        raise UnsupportedTypeError(f"{self._where}: no Variant value is of the type {dtype}")

    @staticmethod
    def _fixed(typed: pa.Array, stride: int, head: bytes, width: int) -> list[bytes | None]:
        """The first bytes of values of a fixed size, behind a header."""
        data, start = bytes(typed.buffers()[1] or b""), typed.offset
        return [
            head + data[(start + at) * stride : (start + at) * stride + width] if is_valid else None
            for at, is_valid in enumerate(typed.is_valid().to_pylist())
        ]

    def _arrays(self, typed: pa.Array, rows: np.ndarray, depth: int) -> list[bytes | None]:
        lengths = np.asarray(typed.value_lengths().fill_null(0))
        ends = np.concatenate(([0], np.cumsum(lengths)))
        elements = typed.flatten()
        if not pat.is_struct(elements.type):
            raise InvalidFileError(f"{self._where}: elements of a shredded array are no groups")
        below = self.values(elements, np.repeat(rows, lengths), depth + 1)
        items = [NULL if each is None else each for each in below]
        return [
            _nested(3, [], items[ends[at] : ends[at + 1]]) if is_valid else None
            for at, is_valid in enumerate(typed.is_valid().to_pylist())
        ]

    def _objects(
        self, typed: pa.StructArray, values: list[bytes | None], rows: np.ndarray, depth: int
    ) -> list[bytes | None]:
        names = [name.encode() for name in typed.type.names]
        fields = []
        for at in range(len(names)):
            field = typed.field(at)
            if not pat.is_struct(field.type):
                raise InvalidFileError(f"{self._where}: a field of a shredded object is no group")
            fields.append(self.values(field, rows, depth + 1))
        for at, is_valid in enumerate(typed.is_valid().to_pylist()):
            rest = values[at]
            if not is_valid:
                continue
            row = int(rows[at])
            known, ids = self._keys[row]
            found = {
                name: value
                for name, column in zip(names, fields, strict=True)
                if (value := column[at]) is not None
            }
            if not found.keys() <= ids.keys():
                raise self._invalid(row, "has a shredded field whose name its metadata lacks")
            if rest is not None:
                found |= self._rest(rest, known, names, row)
            keys = sorted(found)
            values[at] = _nested(2, [ids[key] for key in keys], [found[key] for key in keys])
        return values

    def _rest(
        self, value: bytes, keys: list[bytes], names: list[bytes], row: int
    ) -> dict[bytes, bytes]:
        """The fields of an object that is shredded in part."""
        if not value or value[0] & 3 != 2:
            raise self._invalid(row, "is no object, but has shredded fields")
        bits = value[0] >> 2
        offset_width, id_width, count_width = (
            (bits & 3) + 1,
            (bits >> 2 & 3) + 1,
            1 + 3 * (bits >> 4),
        )
        count = int.from_bytes(value[1 : 1 + count_width], "little")
        at = 1 + count_width + count * id_width
        start = at + (count + 1) * offset_width
        if start > len(value):
            raise self._invalid(row, "is a damaged object")
        ids = _numbers(value[1 + count_width : at], id_width)
        offsets = _numbers(value[at:start], offset_width)
        # The end of a value is the start of that which lies behind it, in the order of offsets.
        order = sorted(set(offsets))
        end_of = dict(pairwise(order))
        found = {}
        for key, offset in zip(ids, offsets, strict=False):
            if key >= len(keys) or offset not in end_of or order[-1] > len(value) - start:
                raise self._invalid(row, "is a damaged object")
            if keys[key] in names:
                raise self._invalid(row, f"has the shredded field {keys[key]!r} in value, too")
            if keys[key] in found:
                raise self._invalid(row, f"has the field {keys[key]!r} twice")
            found[keys[key]] = value[start + offset : start + end_of[offset]]
        return found


def _bytes(kind: int, value: bytes | None) -> bytes | None:
    """Binary with its length, or the bytes of a UUID."""
    if value is None:
        return None
    return bytes((kind << 2,)) + (b"" if kind == 20 else len(value).to_bytes(4, "little")) + value


def _text(value: str | None) -> bytes | None:
    if value is None:
        return None
    data = value.encode()
    return bytes((len(data) << 2 | 1,)) + data if len(data) < 64 else _bytes(16, data)


def _nested(kind: int, ids: list[int], values: list[bytes]) -> bytes:
    """An object (2) with the ids of its sorted keys, or an array (3)."""
    size = sum(map(len, values))
    width, id_width = _width(size), _width(max(ids, default=0)) if kind == 2 else 0
    is_large = len(values) > 255
    header = kind | (width - 1) << 2
    header |= (id_width - 1) << 4 | is_large << 6 if kind == 2 else is_large << 4
    parts = [bytes((header,)), len(values).to_bytes(4 if is_large else 1, "little")]
    parts += [key.to_bytes(id_width, "little") for key in ids]
    offset = 0
    for value in values:
        parts.append(offset.to_bytes(width, "little"))
        offset += len(value)
    return b"".join([*parts, size.to_bytes(width, "little"), *values])


def _width(value: int) -> int:
    return max((value.bit_length() + 7) // 8, 1)
