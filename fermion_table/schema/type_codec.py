"""Arrow types ⇄ JSON: a text for every plain type, Arrow's own message for the exotic ones.

A type without children is a text: ``int32``, ``timestamp[us, UTC]``, ``decimal128(10, 2)``,
``dictionary<int32, string>``. What has no text (extension types, run-end encoding, unions) is
``{"arrow": <base64 of an Arrow schema message of one nameless field>, "text": ...}``.
Lists, maps and structs are spelled by `schema`, as their children have field ids.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from functools import lru_cache

import pyarrow as pa
import pyarrow.types as pat

from fermion_table.errors import CorruptMetadata

EXTENSION_NAME = b"ARROW:extension:name"

_PLAIN: dict[str, pa.DataType] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date32": pa.date32(),
    "date64": pa.date64(),
    "time32[s]": pa.time32("s"),
    "time32[ms]": pa.time32("ms"),
    "time64[us]": pa.time64("us"),
    "time64[ns]": pa.time64("ns"),
    "duration[s]": pa.duration("s"),
    "duration[ms]": pa.duration("ms"),
    "duration[us]": pa.duration("us"),
    "duration[ns]": pa.duration("ns"),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "string_view": pa.string_view(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "binary_view": pa.binary_view(),
    "month_day_nano_interval": pa.month_day_nano_interval(),
}
_TEXTS = {dtype: text for text, dtype in _PLAIN.items()}

_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:, (.+))?\]", re.DOTALL)
_DECIMAL = re.compile(r"decimal(32|64|128|256)\((\d{1,3}), (-?\d{1,3})\)")
_FIXED_BINARY = re.compile(r"fixed_size_binary\[(\d{1,10})\]")
_DICTIONARY = re.compile(r"dictionary<(u?int(?:8|16|32|64)), (.+?)(, ordered)?>", re.DOTALL)
_DECIMALS: dict[str, Callable[[int, int], pa.DataType]] = {
    "32": pa.decimal32,
    "64": pa.decimal64,
    "128": pa.decimal128,
    "256": pa.decimal256,
}


@lru_cache(maxsize=4096)
def type_text(dtype: pa.DataType) -> str | None:
    """The text of a type without children; None for a type that has none."""
    if isinstance(dtype, pa.BaseExtensionType):
        return None
    text = _TEXTS.get(dtype)
    if text is not None:
        return text
    if pat.is_timestamp(dtype):
        return f"timestamp[{dtype.unit}, {dtype.tz}]" if dtype.tz else f"timestamp[{dtype.unit}]"
    if pat.is_decimal(dtype):
        return f"decimal{dtype.bit_width}({dtype.precision}, {dtype.scale})"
    if pat.is_fixed_size_binary(dtype):
        return f"fixed_size_binary[{dtype.byte_width}]"
    if pat.is_dictionary(dtype):
        value = type_text(dtype.value_type)
        ordered = ", ordered" if dtype.ordered else ""
        return value and f"dictionary<{type_text(dtype.index_type)}, {value}{ordered}>"
    return None


@lru_cache(maxsize=4096)
def parse_type_text(text: str) -> pa.DataType:
    """The type of a text.

    Raises
    ------
    ValueError
        The text names no type.
    """
    plain = _PLAIN.get(text)
    if plain is not None:
        return plain
    try:
        if match := _TIMESTAMP.fullmatch(text):
            return pa.timestamp(match[1], match[2])
        if match := _DECIMAL.fullmatch(text):
            return _DECIMALS[match[1]](int(match[2]), int(match[3]))
        if match := _FIXED_BINARY.fullmatch(text):
            return pa.binary(int(match[1]))
        if match := _DICTIONARY.fullmatch(text):
            values = parse_type_text(match[2])
            return pa.dictionary(parse_type_text(match[1]), values, ordered=bool(match[3]))
    except (pa.ArrowException, OverflowError) as error:
        raise ValueError(f"{text!r} is not a type: {error}") from None
    raise ValueError(f"{text!r} is not a type that this version knows")


def message_of(dtype: pa.DataType) -> str:
    """Base64 of an Arrow schema message that holds a type exactly."""
    schema = pa.schema([pa.field("", dtype)])
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


@lru_cache(maxsize=1024)
def field_of_message(text: str) -> pa.Field:
    """The nameless field of a message.

    An extension type that is not registered in this process comes back as its storage type, with
    the extension's name in the field's metadata.

    Raises
    ------
    ValueError
        Not base64 of a message of one field.
    """
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (binascii.Error, pa.ArrowException, OSError, RecursionError) as error:
        raise ValueError(f"not an Arrow schema message: {error}") from None
    if len(schema) != 1:
        raise ValueError(f"an Arrow schema message of {len(schema)} fields, expected 1")
    return schema.field(0)


def resolve_extension(dtype: pa.DataType, metadata: Mapping[bytes, bytes]) -> pa.Field:
    """A field whose extension type, named in its metadata, is made if it is registered here."""
    field = pa.field("", dtype, metadata=dict(metadata))
    return pa.ipc.read_schema(pa.schema([field]).serialize()).field(0)


def encode_metadata(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Arrow metadata as JSON: UTF-8 as it is, other values under ``base64:<base64 of the key>``."""
    encoded: dict[str, str] = {}
    for key, value in (metadata or {}).items():
        try:
            text = key.decode("utf-8")
            if text.startswith("base64:"):
                raise ValueError
            encoded[text] = value.decode("utf-8")
        except ValueError:
            name = base64.b64encode(key).decode("ascii")
            encoded[f"base64:{name}"] = base64.b64encode(value).decode("ascii")
    return encoded


def decode_metadata(encoded: Mapping[str, str]) -> dict[bytes, bytes]:
    """Arrow metadata from JSON, as `encode_metadata` wrote it."""
    metadata: dict[bytes, bytes] = {}
    for text, value in encoded.items():
        if text.startswith("base64:"):
            try:
                key = base64.b64decode(text.removeprefix("base64:"), validate=True)
                metadata[key] = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError) as error:
                raise CorruptMetadata("schema", f"base64 metadata {text!r}", str(error)) from None
        else:
            metadata[text.encode("utf-8")] = value.encode("utf-8")
    return metadata


def is_extension(metadata: Mapping[bytes, bytes]) -> bool:
    """Whether a field's metadata names an extension type."""
    return bool(metadata) and EXTENSION_NAME in metadata
