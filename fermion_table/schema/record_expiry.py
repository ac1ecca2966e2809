"""Expiry of single rows of a primary-key table: after which time, by which column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pat

from fermion.errors import InvalidArgumentError
from fermion_table.schema.properties import KeySettings, plain_name

EXPIRE_TIME = "record_level.expire_time"
TIME_FIELD = "record_level.time_field"
TIME_FIELD_TYPE = "record_level.time_field_type"
_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_MILLISECOND = _NANOSECONDS["ms"]
_DAY = 86_400 * _NANOSECONDS["s"]
_TYPES = {
    "seconds_int": _NANOSECONDS["s"],
    "seconds_long": _NANOSECONDS["s"],
    "millis_long": _MILLISECOND,
    "timestamp": None,
    "date": None,
}
"""Nanoseconds of the unit of each kind of time field; None: its type says it."""


@dataclass(frozen=True, slots=True)
class RecordExpiry:
    """When rows expire.

    Attributes
    ----------
    column
        Holds the time of each row. A row without one does not expire.
    expire_ms
        Milliseconds after its time from which on a row is expired.
    integer_ns
        Nanoseconds that 1 stands for in a column of integers.
    """

    column: str
    expire_ms: int
    integer_ns: int = _NANOSECONDS["s"]

    def limit(self, dtype: pa.DataType, now_ms: int) -> int:
        """The least value, as an integer, of a row that is not expired.

        Parameters
        ----------
        dtype
            Of the column.
        now_ms
            Milliseconds since 1970 UTC.
        """
        unit = _unit(dtype) or self.integer_ns
        return -(-(now_ms - self.expire_ms) * _MILLISECOND // unit)


def record_expiry(settings: KeySettings, columns: Mapping[str, pa.DataType]) -> RecordExpiry | None:
    """Read and check the settings; None: rows do not expire.

    Parameters
    ----------
    columns
        Types by name.

    Raises
    ------
    InvalidArgumentError
        A value of another form, one setting without the other, or a column that is not there or
        holds no time.
    """
    expire_ms, column = settings.value(EXPIRE_TIME), settings.value(TIME_FIELD, "")
    if expire_ms is None:
        for name in (TIME_FIELD, TIME_FIELD_TYPE):
            if settings.has(name):
                raise InvalidArgumentError(f"{name}: there is no {EXPIRE_TIME}")
        return None
    if not column:
        raise InvalidArgumentError(f"{EXPIRE_TIME}: expected {TIME_FIELD}, the column of times")
    if column not in columns:
        raise InvalidArgumentError(f"{TIME_FIELD}: column {column!r} is not in the schema")
    known = _kinds(columns[column])
    if not known:
        raise InvalidArgumentError(
            f"{TIME_FIELD}: column {column!r} is {columns[column]}, expected a timestamp, a date, "
            "or int32 or int64 that hold seconds"
        )
    kind = settings.value(TIME_FIELD_TYPE, known[0])
    if kind not in known:
        raise InvalidArgumentError(
            f"{TIME_FIELD_TYPE}={kind}: column {column!r} is {columns[column]}, expected "
            f"{' or '.join(known)}"
        )
    return RecordExpiry(column, expire_ms, _TYPES[kind] or _NANOSECONDS["s"])


def time_field(properties: Mapping[str, str]) -> str | None:
    """The column by which rows expire, of settings that were checked before."""
    for name, value in properties.items():
        if plain_name(name) == TIME_FIELD:
            return value
    return None


def _kinds(dtype: pa.DataType) -> tuple[str, ...]:
    """The kinds of time field that a column can be, the usual one first."""
    if pat.is_timestamp(dtype):
        return ("timestamp",)
    if pat.is_date32(dtype):
        return ("date",)
    if pat.is_int32(dtype):
        return ("seconds_int",)
    return ("seconds_long", "millis_long") if pat.is_int64(dtype) else ()


def _unit(dtype: pa.DataType) -> int | None:
    """Nanoseconds of 1 in the integers of a column; None: the settings say it."""
    if pat.is_timestamp(dtype):
        return _NANOSECONDS[dtype.unit]
    return _DAY if pat.is_date32(dtype) else None
