"""Single values ⇄ JSON: partition values, defaults, keys; the Arrow type says how to read them.

==========================  ==================================================================
boolean                     ``true``, ``false``
integers                    a number
date, time, timestamp,      a number: days, or ticks of the type's unit
duration
decimal                     a number: the unscaled value
floats                      a number; ``"NaN"``, ``"Infinity"``, ``"-Infinity"``
string                      a string
binary, fixed size binary   hexadecimal digits, lower case
null of any type            ``null``
anything else               ``{"arrow": <base64 of an Arrow stream of one row>}``
==========================  ==================================================================

JSON values of one type compare as the values do (but for the special floats and the last row).
"""

from __future__ import annotations

import base64
import math
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from fermion.engine import PLAIN, array_of, unscaled_integer
from fermion.errors import UnsupportedTypeError
from fermion_table.errors import CorruptMetadata
from fermion_table.schema.repeated import nulls, repeat
from fermion_table.schema.widening import is_binary, is_text

ARROW_KEY = "arrow"
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def encode_value(scalar: pa.Scalar | None) -> Any:
    """A scalar as a JSON value; None for None and for null.

    Raises UnsupportedTypeError: Arrow streams can't carry values of this type.
    """
    if scalar is None or not scalar.is_valid:
        return None
    dtype = scalar.type
    if pat.is_boolean(dtype) or pat.is_integer(dtype) or is_text(dtype):
        return scalar.as_py()
    if pat.is_floating(dtype):
        value = float(scalar.as_py())
        return value if math.isfinite(value) else _special_text(value)
    if _is_ticks(dtype):
        return scalar.value
    if pat.is_decimal(dtype):
        return unscaled_integer(scalar.as_py(), dtype.scale)
    if _is_binary(dtype):
        return scalar.as_py().hex()
    if not _has_stream_form(dtype):
        raise UnsupportedTypeError(
            f"a value of {dtype}: Arrow streams can't carry dictionaries or run-end encoded values "
            "that hold dictionaries, run-end encoded values or extension types"
        )
    batch = pa.record_batch([repeat(scalar, 1)], [""])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return {ARROW_KEY: base64.b64encode(sink.getvalue().to_pybytes()).decode("ascii")}


def decode_value(value: Any, dtype: pa.DataType) -> pa.Scalar:
    """The scalar of a JSON value, of exactly this type.

    Raises CorruptMetadata: The value is not of the type's form.
    """
    try:
        return _decode(value, dtype)
    except (pa.ArrowException, ValueError, TypeError, KeyError, ArithmeticError, OSError) as error:
        found = f"{value!r:.200} ({error})"
        raise CorruptMetadata("a value", f"a value of {dtype}", found) from None


def has_plain_json(dtype: pa.DataType) -> bool:
    """Whether values of a type are plain JSON values, not Arrow streams."""
    return (
        pat.is_boolean(dtype)
        or pat.is_integer(dtype)
        or pat.is_floating(dtype)
        or pat.is_decimal(dtype)
        or _is_ticks(dtype)
        or is_text(dtype)
        or _is_binary(dtype)
    )


def _has_stream_form(dtype: pa.DataType, *, wrapped: bool = False) -> bool:
    """Whether Arrow gives a value of a type back as it was, through scalars and streams.

    It fails on dictionaries and run-end encoding whose values hold such types again, or extensions.
    """
    if isinstance(dtype, pa.BaseExtensionType):
        return not wrapped and _has_stream_form(dtype.storage_type)
    if pat.is_dictionary(dtype) or pat.is_run_end_encoded(dtype):
        return not wrapped and _has_stream_form(dtype.value_type, wrapped=True)
    children = [dtype.field(at).type for at in range(dtype.num_fields)]
    return all(_has_stream_form(child, wrapped=wrapped) for child in children)


def _decode(value: Any, dtype: pa.DataType) -> pa.Scalar:
    if value is None:
        return nulls(dtype, 1)[0]
    if isinstance(value, dict):
        with pa.ipc.open_stream(base64.b64decode(value[ARROW_KEY])) as reader:
            table = reader.read_all()
        if table.shape != (1, 1):
            raise ValueError(f"an Arrow stream of shape {table.shape}, expected (1, 1)")
        scalar = table.column(0)[0]
        return scalar if scalar.type == dtype else scalar.cast(dtype)
    if pat.is_floating(dtype):
        number = _SPECIAL[value] if isinstance(value, str) else float(value)
        return pa.scalar(number, pa.float64()).cast(dtype, safe=False)
    if pat.is_decimal(dtype):
        return _decimal(_typed(value, int), dtype)
    if _is_binary(dtype):
        return pa.scalar(bytes.fromhex(_typed(value, str)), dtype)
    if pat.is_boolean(dtype):
        return pa.scalar(_typed(value, bool), dtype)
    typed = _typed(value, str if is_text(dtype) else int)
    return array_of([typed], dtype)[0] if dtype in PLAIN else pa.scalar(typed, dtype)


def _decimal(unscaled: int, dtype: pa.DataType) -> pa.Scalar:
    if abs(unscaled) >= 10**dtype.precision:
        raise OverflowError(f"more than {dtype.precision} digits")
    data = unscaled.to_bytes(dtype.bit_width // 8, "little", signed=True)
    return pa.Array.from_buffers(dtype, 1, [None, pa.py_buffer(data)])[0]


def _typed(value: Any, wanted: type) -> Any:
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise TypeError(f"expected {wanted.__name__}, found {type(value).__name__}")
    return value


def _special_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _is_binary(dtype: pa.DataType) -> bool:
    return is_binary(dtype) or pat.is_fixed_size_binary(dtype)


def _is_ticks(dtype: pa.DataType) -> bool:
    return (
        pat.is_date(dtype)
        or pat.is_time(dtype)
        or pat.is_timestamp(dtype)
        or pat.is_duration(dtype)
    )
