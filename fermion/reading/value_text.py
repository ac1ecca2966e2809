"""Arrow values as JSON, and as text for people."""

from __future__ import annotations

import decimal
import json
import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pat

from fermion.columns.types import VARIANT, is_text
from fermion.errors import InvalidArgumentError
from fermion.exports import LoadedWhenAskedFor

if TYPE_CHECKING:
    from fermion.variant import values as variant_values
else:
    variant_values = LoadedWhenAskedFor("fermion.variant.values")


def json_values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column, each as `json_value` gives it."""
    if isinstance(column.type, pa.BaseExtensionType) and column.type.extension_name == VARIANT:
        try:
            texts = variant_values.to_json(column).to_pylist()
        except InvalidArgumentError:  # one is none
            return [json_value(each) for each in column]
        return [None if text is None else _json_of(text) for text in texts]
    return [json_value(each) for each in column]


def json_value(scalar: pa.Scalar | None) -> Any:
    """An Arrow value as JSON has it.

    Binary becomes hexadecimal digits; decimals, dates, times and durations become text, floats that
    are not finite too; a map becomes a list of pairs, a struct with a name twice a list of pairs. A
    Variant becomes its JSON, in which decimals that are no doubles are text.
    """
    if scalar is None or not scalar.is_valid:
        return None
    if isinstance(scalar, pa.ExtensionScalar) and scalar.type.extension_name == VARIANT:
        return _variant_value(scalar)
    if isinstance(scalar, (pa.ExtensionScalar, pa.DictionaryScalar, pa.RunEndEncodedScalar)):
        return json_value(scalar.value)
    dtype = scalar.type
    if pat.is_map(dtype):
        return [[json_value(entry[0]), json_value(entry[1])] for entry in scalar.values]
    if pat.is_struct(dtype):
        pairs = [
            (dtype.field(index).name, json_value(scalar[index]))
            for index in range(dtype.num_fields)
        ]
        fields = dict(pairs)
        return fields if len(fields) == len(pairs) else [list(pair) for pair in pairs]
    if dtype.num_fields:
        return [json_value(element) for element in scalar.values]
    return _json_leaf(scalar)


def _variant_value(scalar: pa.ExtensionScalar) -> Any:
    """The JSON of a Variant; bytes that are none stay bytes."""
    storage = pa.array([scalar.value.as_py()], scalar.type.storage_type)
    try:
        texts = variant_values.to_json(pa.ExtensionArray.from_storage(scalar.type, storage))
    except InvalidArgumentError:
        return json_value(scalar.value)
    return _json_of(texts[0].as_py())


def _json_of(text: str) -> Any:
    return json.loads(text, parse_float=_json_number)


def _json_number(text: str) -> float | str:
    number = float(text)
    return number if decimal.Decimal(repr(number)) == decimal.Decimal(text) else text


def _json_leaf(scalar: pa.Scalar) -> Any:
    dtype = scalar.type
    if pat.is_boolean(dtype) or pat.is_integer(dtype):
        return scalar.as_py()
    if pat.is_floating(dtype):
        number = float(scalar.as_py())
        return number if math.isfinite(number) else str(number)
    if is_text(dtype):
        return scalar.as_buffer().to_pybytes().decode("utf-8", "backslashreplace")
    if pat.is_binary(dtype) or pat.is_large_binary(dtype) or pat.is_binary_view(dtype):
        return scalar.as_buffer().to_pybytes().hex()
    if pat.is_fixed_size_binary(dtype):
        return scalar.as_buffer().to_pybytes().hex()
    return _temporal_text(scalar)


def _temporal_text(scalar: pa.Scalar) -> str:
    dtype = scalar.type
    if pat.is_duration(dtype):
        return f"{scalar.value} {dtype.unit}"
    if pat.is_interval(dtype):
        months, days, nanoseconds = scalar.as_py()
        return f"{months} months {days} days {nanoseconds} ns"
    if pat.is_decimal(dtype):
        return str(scalar.as_py())
    try:
        return str(scalar.cast(pa.string()).as_py())
    except pa.ArrowException:  # a time or a zone that Arrow cannot write out
        ticks = pa.int32() if dtype.bit_width == 32 else pa.int64()
        return f"{scalar.cast(ticks).as_py()} {dtype}"


def value_text(scalar: pa.Scalar | None) -> str:
    """An Arrow value for people: as in JSON, but text without quotation marks."""
    return plain_text(json_value(scalar))


def plain_text(value: Any) -> str:
    """A JSON value for people."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {plain_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(plain_text(each) for each in value) + "]"
    return str(value)
