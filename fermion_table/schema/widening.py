"""Kinds of Arrow types, and which may become which so that every value stays the same value.

A column may change its type where `can_widen` says so. What `always_fits` does not hold for, as a
finer unit has a smaller range, it may only if none of its values is out of that range.

======================  ===========================================================================
from                    to
======================  ===========================================================================
null                    anything
int8 to int64           a wider signed integer; float64 from 32 bits down, float32 from 16 bits down
uint8 to uint64         a wider integer, signed or not; floats as above
float16, float32        a wider float
decimal                 a decimal with at least the same scale and as many integer digits
date                    a timestamp without a time zone; date32 also date64
timestamp               the same time zone, a finer unit
time, duration          a finer unit
string, binary          large_string, large_binary, or a view of the same kind; and views back to
                        the large kind
dictionary              the same with a wider index and a value type that widens
======================  ===========================================================================
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from fermion.engine import with_leaf_types


def is_text(dtype: pa.DataType) -> bool:
    """Whether values are text: string, large string or string view."""
    return pat.is_string(dtype) or pat.is_large_string(dtype) or pat.is_string_view(dtype)


def is_binary(dtype: pa.DataType) -> bool:
    """Whether values are bytes of any length: binary, large binary or binary view."""
    return pat.is_binary(dtype) or pat.is_large_binary(dtype) or pat.is_binary_view(dtype)


def is_list_view(dtype: pa.DataType) -> bool:
    """Whether lists have offsets and sizes, and so may overlap or lie out of order."""
    return pat.is_list_view(dtype) or pat.is_large_list_view(dtype)


def shares_memory(dtype: pa.DataType) -> bool:
    """Whether rows that are taken of an array use all of its values: views, dictionaries."""
    if isinstance(dtype, pa.BaseExtensionType):
        return shares_memory(dtype.storage_type)
    return (
        pat.is_string_view(dtype)
        or pat.is_binary_view(dtype)
        or is_list_view(dtype)
        or pat.is_dictionary(dtype)
        or any(shares_memory(dtype.field(at).type) for at in range(dtype.num_fields))
    )


_UNITS = {"s": 0, "ms": 1, "us": 2, "ns": 3}
_MANTISSA_BITS = {16: 11, 32: 24, 64: 53}


def can_widen(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether each value of a type without children is a value of another; equal types may."""
    if old == new or pat.is_null(old):
        return True
    if isinstance(old, pa.BaseExtensionType) or isinstance(new, pa.BaseExtensionType):
        return False
    if pat.is_integer(old):
        return _integer(old, new)
    if pat.is_floating(old):
        return pat.is_floating(new) and new.bit_width > old.bit_width
    if pat.is_decimal(old):
        return _decimal(old, new)
    if pat.is_date(old):
        return _date(old, new)
    if pat.is_timestamp(old):
        return pat.is_timestamp(new) and old.tz == new.tz and _finer(old, new)
    if pat.is_time(old):
        return pat.is_time(new) and _finer(old, new)
    if pat.is_duration(old):
        return pat.is_duration(new) and _finer(old, new)
    if pat.is_dictionary(old):
        return (
            pat.is_dictionary(new)
            and old.ordered == new.ordered
            and can_widen(old.index_type, new.index_type)
            and pat.is_integer(new.index_type)
            and can_widen(old.value_type, new.value_type)
        )
    return new in _BYTES.get(old, ())


def always_fits(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether no value of a type can be out of the range of one that `can_widen` allows."""
    if pat.is_dictionary(old) and pat.is_dictionary(new):
        return always_fits(old.value_type, new.value_type)
    if pat.is_date(old) and pat.is_timestamp(new):
        return bool(_UNITS[new.unit] <= _UNITS["ms"])
    finer = pat.is_timestamp(old) or pat.is_duration(old)
    return not finer or bool(old.unit == new.unit)


_BYTES = {
    pa.string(): (pa.large_string(), pa.string_view()),
    pa.string_view(): (pa.large_string(),),
    pa.large_string(): (pa.string_view(),),
    pa.binary(): (pa.large_binary(), pa.binary_view()),
    pa.binary_view(): (pa.large_binary(),),
    pa.large_binary(): (pa.binary_view(),),
}


def _integer(old: pa.DataType, new: pa.DataType) -> bool:
    signed = pat.is_signed_integer(old)
    if pat.is_floating(new):
        return old.bit_width - signed <= _MANTISSA_BITS[new.bit_width]
    if not pat.is_integer(new) or new.bit_width <= old.bit_width:
        return False
    return pat.is_signed_integer(new) or not signed


def _decimal(old: pa.DataType, new: pa.DataType) -> bool:
    return (
        pat.is_decimal(new)
        and new.bit_width >= old.bit_width
        and new.scale >= old.scale
        and new.precision - new.scale >= old.precision - old.scale
    )


def _date(old: pa.DataType, new: pa.DataType) -> bool:
    if pat.is_timestamp(new):
        return new.tz is None and (pat.is_date32(old) or _UNITS[new.unit] >= _UNITS["ms"])
    return pat.is_date32(old) and pat.is_date64(new)


def _finer(old: pa.DataType, new: pa.DataType) -> bool:
    return _UNITS[new.unit] > _UNITS[old.unit]


def can_cast_checked(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether Arrow's safe cast converts values exactly, and raises for those it cannot.

    What a writer does with data of another type than its column's: more than widening, but
    nothing that rounds, truncates or reads text.
    """
    if can_widen(old, new):
        return True
    if isinstance(old, pa.BaseExtensionType):
        return can_cast_checked(old.storage_type, new)
    if isinstance(new, pa.BaseExtensionType):
        return can_cast_checked(old, new.storage_type)
    if pat.is_dictionary(old):
        return can_cast_checked(old.value_type, new)
    if pat.is_dictionary(new):
        return can_cast_checked(old, new.value_type)
    if pat.is_run_end_encoded(old):
        return can_cast_checked(old.value_type, new)
    if pat.is_timestamp(old) and pat.is_timestamp(new):
        return (old.tz is None) == (new.tz is None)
    return any(one(old) and other(new) for one, other in _CHECKED)


def cast_checked(values: Any, dtype: pa.DataType) -> Any:
    """What Arrow's safe cast is meant to give.

    By itself it refuses integers whose type has larger ones than a decimal holds, and of decimals
    of 128 and 256 bits it cuts off what 32 bits don't hold; what 64 bits don't hold it refuses.

    values: An array, a chunked array or a scalar.
    Raises pyarrow.ArrowException: A value does not fit.
    """
    if pat.is_decimal(dtype) and pat.is_integer(values.type):
        values = values.cast(pa.decimal256(76, 0))
    wide = with_leaf_types(pa.field("", dtype), _wide_decimal).type
    return values.cast(dtype) if wide == dtype else values.cast(wide).cast(dtype)


def _wide_decimal(dtype: pa.DataType) -> pa.DataType:
    is_narrow = pat.is_decimal(dtype) and dtype.bit_width == 32
    return pa.decimal64(dtype.precision, dtype.scale) if is_narrow else dtype


_CHECKED = (
    (pat.is_integer, pat.is_integer),
    (pat.is_integer, pat.is_floating),
    (pat.is_floating, pat.is_integer),
    (pat.is_integer, pat.is_decimal),
    (pat.is_decimal, pat.is_decimal),
    (pat.is_time, pat.is_time),
    (pat.is_duration, pat.is_duration),
    (pat.is_date, pat.is_date),
    (is_text, is_text),
    (is_binary, is_binary),
    (is_text, is_binary),
    (is_binary, is_text),
    (pat.is_fixed_size_binary, is_binary),
)


def keeps_json(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether a value's JSON (`value_codec`) stays the same when a column's type widens.

    Only then may a partition column change: manifests hold bounds over files of both types.
    """
    if pat.is_temporal(old) or pat.is_null(old) or pat.is_dictionary(old):
        return old == new
    return not pat.is_decimal(old) or old.scale == new.scale
