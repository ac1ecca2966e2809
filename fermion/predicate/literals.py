"""Filter literals: what a Python, NumPy or Arrow value means, and where it lies in a column's type.

Comparisons are exact: a literal that the column's type cannot hold (1.5 for integers, a later
digit for decimals, a finer unit for timestamps) is placed between two values it can hold, and the
comparison is rewritten. So pruning and row filtering follow one rule, and never round.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Hashable, Iterable
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion.columns.arrow_buffers import PLAIN, array_of
from fermion.columns.types import is_string_like, is_text, strip_wrappers
from fermion.errors import InvalidArgumentError
from fermion.exports import LoadedWhenAskedFor, NamedTuple
from fermion.statistics.keys import raw_decimal

if TYPE_CHECKING:
    import fractions
else:
    fractions = LoadedWhenAskedFor("fractions")

_EXPONENT_MAX = 5000
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY = 86_400 * 10**9
_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_UTC = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class TimestampText(str):
    """A SQL ``TIMESTAMP '...'`` without a zone: read in the zone of the column it meets."""

    __slots__ = ()


class Resolved(NamedTuple):
    """A comparison with its literal placed in the column's type.

    operator: One of ``== != < <= > >=``, or ``always`` (true for every value), ``never``, ``null``.
    raw: The literal in the column's raw domain: int for integers, booleans, temporal values (ticks)
        and decimals (unscaled); float; bytes. None where the operator needs none.
    """

    operator: str
    raw: Any = None


def normalize(value: Any) -> Any:
    """A literal as a plain Python value; Arrow scalars only for what Python cannot hold.

    Two results of one type that are equal mean the same, so that caches may have them as keys: a
    datetime with a time zone comes back in UTC, as Python ignores ``fold`` where it compares two
    of one zone.

    Raises InvalidArgumentError: For values that no column can be compared with.
    """
    if type(value) in _PLAIN_ALREADY:
        return value
    if isinstance(value, np.generic):
        value = _from_numpy(value)
    if isinstance(value, pa.Scalar):
        value = _from_arrow(value)
    if any(base.__module__.startswith("pandas") for base in type(value).__mro__):
        value = _from_pandas(value)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if type(value) in _PLAIN_ALREADY or isinstance(value, pa.Scalar):
        return value
    for kind, plain in _PLAIN:
        if isinstance(value, kind):
            return plain(value)
    raise InvalidArgumentError(
        f"a filter cannot compare with {value!r} of type {type(value).__name__}; expected a "
        "number, string, bytes, bool, date, datetime, time, timedelta, Decimal, None, or a "
        "scalar of NumPy or Arrow"
    )


def meaning(value: Any) -> Hashable:
    """What two normalized literals share if they select the same rows of any column.

    Python takes 1, 1.0 and True as one value, and NaN as two.
    """
    return type(value), "NaN" if isinstance(value, float) and math.isnan(value) else value


def _plain_text(value: str) -> str:
    # Not str(value): it gives the name of a member of `class Color(str, Enum)`.
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"a filter cannot compare with {text!r}: the text has no UTF-8 form: {error.reason} "
            f"at position {error.start}"
        ) from None
    return text


def _plain_decimal(value: Decimal) -> Decimal | float:
    if value.is_nan():  # also of a signaling NaN, of which float() makes none
        return math.nan
    return Decimal(value) if value.is_finite() else float(value)


def _plain_datetime(value: datetime.datetime) -> datetime.datetime | pa.Scalar:
    date, clock = value.date(), value.time()
    local = datetime.datetime(
        date.year, date.month, date.day, clock.hour, clock.minute, clock.second, clock.microsecond
    )
    offset = value.utcoffset()
    if offset is None:
        return local
    try:
        return (local - offset).replace(tzinfo=datetime.UTC)
    except OverflowError:  # before year 1 or after year 9999 in UTC
        ticks = (_delta_nanoseconds(local - _EPOCH) - _delta_nanoseconds(offset)) // 1000
        return pa.scalar(ticks, pa.timestamp("us", "UTC"))


def _plain_time(value: datetime.time) -> datetime.time:
    if value.tzinfo is not None:
        raise InvalidArgumentError(
            f"a filter cannot compare with {value!r}: times of day have no time zone; drop it"
        )
    return datetime.time(value.hour, value.minute, value.second, value.microsecond)


_PLAIN_ALREADY = {bool, int, float, bytes, type(None), TimestampText}
# Subclasses (an enum, say) become the plain type, which compares and hashes by the value alone.
_PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int.__int__),
    (float, float.__float__),
    (str, _plain_text),
    (bytes, bytes.__bytes__),
    (Decimal, _plain_decimal),
    (datetime.datetime, _plain_datetime),
    (datetime.date, lambda value: datetime.date(value.year, value.month, value.day)),
    (datetime.time, _plain_time),
    (
        datetime.timedelta,
        lambda value: datetime.timedelta(value.days, value.seconds, value.microseconds),
    ),
)


def _from_numpy(value: np.generic) -> Any:
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return None if np.isnat(value) else _from_ticks(value)
    return value.item()


def _from_ticks(value: np.datetime64 | np.timedelta64) -> pa.Scalar:
    """A NumPy date, time or span of time in a unit that Arrow has, exactly."""
    name, _ = np.datetime_data(value.dtype)
    is_moment = isinstance(value, np.datetime64)
    # Days and what is longer in seconds, what is shorter than nanoseconds only if nothing is lost.
    unit = name if name in _NANOSECONDS else ("ns" if name in ("ps", "fs", "as") else "s")
    if not is_moment and name in ("Y", "M", "generic"):
        raise InvalidArgumentError(f"a filter cannot compare with {value!r}: its length varies")
    kind = "datetime64" if is_moment else "timedelta64"
    found = value.astype(f"{kind}[{unit}]")
    if found.astype(value.dtype) != value:
        raise InvalidArgumentError(
            f"a filter cannot compare with {value!r}: expected {unit} or more"
        )
    dtype = pa.timestamp(unit) if is_moment else pa.duration(unit)
    return pa.scalar(found.astype(np.int64).item(), dtype)


def _from_pandas(value: Any) -> Any:
    try:
        return pa.scalar(value, from_pandas=True) if value == value else None
    except (pa.ArrowException, TypeError, ValueError):
        return None if str(value) in ("NaT", "<NA>") else value


def _from_arrow(scalar: pa.Scalar) -> Any:
    while isinstance(scalar, (pa.DictionaryScalar, pa.ExtensionScalar)):
        scalar = scalar.as_py() if isinstance(scalar, pa.DictionaryScalar) else scalar.value
        if not isinstance(scalar, pa.Scalar):
            return scalar
    if not scalar.is_valid:
        return None
    if pat.is_nested(scalar.type) or pat.is_interval(scalar.type):
        raise InvalidArgumentError(f"a filter cannot compare with a value of type {scalar.type}")
    if pat.is_timestamp(scalar.type) or pat.is_duration(scalar.type) or pat.is_time64(scalar.type):
        return scalar
    try:
        return scalar.as_py()
    except OverflowError:  # a date before year 1 or after year 9999
        return scalar.cast(pa.timestamp("s"))


def family(dtype: pa.DataType) -> str:
    """What a column's values can be compared with: a word that error messages can use."""
    storage = strip_wrappers(dtype)
    if pat.is_boolean(storage):
        return "boolean"
    if pat.is_integer(storage) or pat.is_floating(storage) or pat.is_decimal(storage):
        return "number"
    if is_string_like(storage) or pat.is_fixed_size_binary(storage):
        return "string"
    if pat.is_timestamp(storage):
        return "instant" if storage.tz is not None else "timestamp"
    if pat.is_date(storage):
        return "timestamp"
    if pat.is_time(storage):
        return "time"
    if pat.is_duration(storage):
        return "duration"
    return "null" if pat.is_null(storage) else "none"


def describe(value: Any) -> str:
    """A literal's type, for messages."""
    if isinstance(value, pa.Scalar):
        return str(value.type)
    if isinstance(value, datetime.datetime):
        return "datetime with a time zone" if value.tzinfo else "datetime without a time zone"
    return type(value).__name__


def bind_literal(value: Any, dtype: pa.DataType, where: str) -> Any:
    """Check a literal against a column's type; texts of dates and times become dates and times.

    value: A normalized literal.
    Raises InvalidArgumentError: Naming both types, where they cannot be compared.
    """
    wanted = family(dtype)
    if value is None or wanted == "null":
        return value
    if wanted == "none":
        raise InvalidArgumentError(
            f"column {where} is {dtype}, which has no order; compare one of its fields, "
            "or ask is_null()"
        )
    if isinstance(value, str) and wanted in ("instant", "timestamp", "time"):
        return _parse_text(value, dtype, where)
    if (
        wanted == "instant"
        and isinstance(value, datetime.date)
        and not isinstance(value, datetime.datetime)
    ):
        return _localize(value.isoformat(), strip_wrappers(dtype).tz, where)
    if literal_family(value) != wanted or (isinstance(value, TimestampText) and wanted == "string"):
        raise InvalidArgumentError(
            f"column {where} is {dtype}, but the literal {value!r} is {describe(value)}: "
            f"they cannot be compared{_advice(value, wanted)}"
        )
    return value


def _advice(value: Any, wanted: str) -> str:
    if wanted == "instant" and literal_family(value) == "timestamp":
        return "; give the literal a time zone (tzinfo=datetime.timezone.utc)"
    if literal_family(value) == "instant" and wanted == "timestamp":
        return "; drop the literal's time zone"
    if isinstance(value, str) and wanted in ("number", "boolean"):
        return "; write the literal without quotes"
    return ""


def literal_family(value: Any) -> str:
    """The family of columns that a literal can be compared with."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float, Decimal)):
        return "number"
    if isinstance(value, (str, bytes)):
        return "string"
    if isinstance(value, datetime.datetime):
        return "instant" if value.tzinfo is not None else "timestamp"
    if isinstance(value, datetime.date):
        return "timestamp"
    if isinstance(value, datetime.time):
        return "time"
    if isinstance(value, datetime.timedelta):
        return "duration"
    return family(value.type) if isinstance(value, pa.Scalar) else "null"


def _parse_text(text: str, dtype: pa.DataType, where: str) -> Any:
    storage = strip_wrappers(dtype)
    try:
        if pat.is_time(storage):
            return parse_time(text.strip())
        moment = parse_moment(text.strip())
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise InvalidArgumentError(
            f"column {where} is {dtype}, but the literal {text!r} is not an ISO 8601 "
            f"{'time' if pat.is_time(storage) else 'date or timestamp'}: {error}"
        ) from None
    zoned = literal_family(moment) == "instant"
    if pat.is_timestamp(storage) and storage.tz is not None:
        return moment if zoned else _localize(text.strip(), storage.tz, where)
    if zoned:
        raise InvalidArgumentError(
            f"column {where} is {dtype}, but the literal {text!r} has a time zone; drop it"
        )
    return moment


_FAR_YEAR = r"(-\d{4,}|0000|\+?\d{5,})(?=-\d\d-\d\d)"


def is_far_date(text: str) -> bool:
    """Whether a text is a date of a year that Python has not."""
    far = re.match(_FAR_YEAR, text)
    return far is not None and far.end() + len("-01-01") == len(text)


def parse_moment(text: str) -> Any:
    """A date, datetime, or, for digits below the microsecond, an Arrow timestamp."""
    try:
        if len(text) == 10:
            return datetime.date.fromisoformat(text)
        if not _is_finer_than_python(text):
            return datetime.datetime.fromisoformat(text)
    except ValueError:
        pass
    if (far := re.match(_FAR_YEAR, text)) and not _is_finer_than_python(text):
        return _far_moment(int(far[1]), text[far.end() :])
    try:
        return pa.scalar(text).cast(pa.timestamp("ns"))
    except pa.ArrowException:
        return pa.scalar(text).cast(pa.timestamp("ns", "UTC"))


def _far_moment(year: int, rest: str) -> pa.TimestampScalar:
    """A moment of a year that Python has not; the calendar repeats itself after 400 years."""
    cycles = (year - 2000) // 400
    near = datetime.datetime.fromisoformat(f"{year - 400 * cycles}{rest}")
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC if near.tzinfo else None)
    span = (near - start) // datetime.timedelta(microseconds=1) + cycles * 12_622_780_800_000_000
    unit = "us" if -(2**63) <= span < 2**63 else "s"
    seconds, microseconds = divmod(span, 10**6)
    if unit == "s" and (microseconds or not -(2**63) <= seconds < 2**63):
        raise ValueError("no timestamp holds it")
    zone = "UTC" if near.tzinfo else None
    return pa.scalar(span if unit == "us" else seconds, pa.timestamp(unit, zone))


def parse_time(text: str) -> Any:
    """A time of day, or, for digits below the microsecond, an Arrow time."""
    if not _is_finer_than_python(text):
        return normalize(datetime.time.fromisoformat(text))
    whole, _, fraction = text.partition(".")
    digits = int(fraction[:9].ljust(9, "0"))
    return pa.scalar(nanoseconds(datetime.time.fromisoformat(whole)) + digits, pa.time64("ns"))


def _is_finer_than_python(text: str) -> bool:
    """Whether a text has more than six fractional digits, which Python would cut off unasked."""
    return re.search(r"\.\d{7}", text) is not None


def _localize(text: str, zone: str, where: str) -> Any:
    """A wall-clock text as an instant, read in a column's own zone."""
    unit = "ns" if _is_finer_than_python(text) else "us"
    try:
        is_far = re.match(_FAR_YEAR, text) and unit == "us"
        naive = parse_moment(text) if is_far else pa.scalar(text).cast(pa.timestamp(unit))
        return pc.assume_timezone(naive, zone)
    except (ValueError, pa.ArrowException) as error:
        raise InvalidArgumentError(
            f"column {where} has time zone {zone}, where {text!r} is not one moment: {error}; "
            "write it with an offset, as in '2024-01-01 00:00:00+00:00'"
        ) from None


def resolve(operator: str, value: Any, dtype: pa.DataType) -> Resolved:
    """Place a literal in a column's type and rewrite the comparison accordingly.

    operator: One of ``== != < <= > >=``.
    value: A literal that `bind_literal` accepted, for this type or for one it was widened from.
    dtype: The type of the column's values.
    """
    return _resolve(operator, value, strip_wrappers(dtype))


def equal_raws(values: Iterable[Any], dtype: pa.DataType) -> list[Any]:
    """The raw values that are equal to one of some literals, in their order.

    values: Literals that `bind_literal` accepted, none of them None.
    dtype: The type of the column's values. Literals that it cannot hold are left out.
    """
    storage = strip_wrappers(dtype)
    values = list(values)
    if pat.is_integer(storage) and set(map(type, values)) == {int}:
        low, high = raw_limits(storage)
        return [value for value in values if low <= value <= high]
    resolved = [_resolve("==", value, storage) for value in values]
    return [each.raw for each in resolved if each.operator == "=="]


@lru_cache(maxsize=4096, typed=True)
def _resolve(operator: str, value: Any, storage: pa.DataType) -> Resolved:
    if value is None or pat.is_null(storage):
        return Resolved("null")
    if isinstance(value, float) and math.isnan(value):
        return Resolved("always" if operator == "!=" else "never")
    floor, exact = _place(value, storage)
    if exact:
        return Resolved(operator, floor)
    if operator == "==":
        return Resolved("never")
    if operator == "!=":
        return Resolved("always")
    below = operator in ("<", "<=")
    if floor is None:
        return Resolved("never" if below else "always")
    if floor == math.inf and not pat.is_floating(storage):
        return Resolved("always" if below else "never")
    return Resolved("<=" if below else ">", floor)


def _place(value: Any, storage: pa.DataType) -> tuple[Any, bool]:
    """The greatest raw value not above the literal (None: there is none), and whether it equals.

    ``inf`` for a type without infinities means that every value is below the literal.
    """
    if family(storage) == "string":
        return (value.encode() if isinstance(value, str) else value), True
    if pat.is_floating(storage):
        return _place_float(value, storage)
    low, high = raw_limits(storage)
    if isinstance(value, float) and math.isinf(value):
        return (math.inf if value > 0 else None), False
    scaled = _position(value, storage)
    raw = math.floor(scaled)
    if raw < low:
        return None, False
    if raw > high:
        return math.inf, False
    return raw, raw == scaled


def _place_float(value: Any, storage: pa.DataType) -> tuple[float, bool]:
    width = storage.bit_width // 8
    kind = np.dtype(f"f{width}").type
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float) and (width == 8 or math.isinf(value)):
        return value, True
    exact = fractions.Fraction(value)
    with np.errstate(over="ignore"):
        try:
            near = kind(value)
        except OverflowError:
            near = kind(math.inf if value > 0 else -math.inf)
    if not math.isinf(near) and fractions.Fraction(float(near)) == exact:
        return float(near), True
    if near == math.inf or (near != -math.inf and fractions.Fraction(float(near)) > exact):
        near = np.nextafter(near, kind(-math.inf), dtype=kind)
    return float(near), False


def _position(value: Any, storage: pa.DataType) -> int | fractions.Fraction:
    """Where a literal lies on the raw axis of an integer, decimal, boolean or temporal type."""
    if pat.is_decimal(storage):
        if abs(storage.scale) > _EXPONENT_MAX:
            raise InvalidArgumentError(
                f"values of {storage} cannot be compared: expected a scale within "
                f"{_EXPONENT_MAX} of 0"
            )
        return rational(value) * fractions.Fraction(10) ** storage.scale
    if pat.is_integer(storage) or pat.is_boolean(storage):
        return rational(value)
    return fractions.Fraction(nanoseconds(value), _tick(storage))


def rational(value: Any) -> int | fractions.Fraction:
    """The exact value of a number; that of a float by its shortest digits, and of one that is very
    large or very small one that is on the same side of all values of columns."""
    if isinstance(value, float):
        # The shortest digits that give the float: 0.1 means one tenth, as in a decimal column.
        value = Decimal(repr(value))
    if isinstance(value, Decimal):
        sign = -1 if value.is_signed() else 1
        if value and value.adjusted() > _EXPONENT_MAX:
            return sign * 10**_EXPONENT_MAX
        if value and value.adjusted() < -_EXPONENT_MAX:
            return fractions.Fraction(sign, 10**_EXPONENT_MAX)
        return fractions.Fraction(value)
    return int(value)


def nanoseconds(value: Any) -> int:
    """A temporal literal on the axis of its kind, in nanoseconds from its origin."""
    if isinstance(value, pa.Scalar):
        return value.value * _NANOSECONDS[value.type.unit]
    if isinstance(value, datetime.timedelta):
        return _delta_nanoseconds(value)
    if isinstance(value, datetime.datetime):
        return _delta_nanoseconds(value - (_EPOCH_UTC if value.tzinfo else _EPOCH))
    if isinstance(value, datetime.date):
        return (value.toordinal() - _EPOCH.toordinal()) * _DAY
    clock = datetime.timedelta(
        hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond
    )
    return _delta_nanoseconds(clock)


def _delta_nanoseconds(value: datetime.timedelta) -> int:
    return ((value.days * 86_400 + value.seconds) * 10**6 + value.microseconds) * 1000


def _tick(storage: pa.DataType) -> int:
    if pat.is_date32(storage):
        return _DAY
    return 10**6 if pat.is_date64(storage) else _NANOSECONDS[storage.unit]


def raw_limits(storage: pa.DataType) -> tuple[int, int]:
    """The least and the greatest raw value of a type of whole numbers, both inclusive."""
    if pat.is_boolean(storage):
        return 0, 1
    if pat.is_decimal(storage):
        return 1 - 10**storage.precision, 10**storage.precision - 1
    if pat.is_unsigned_integer(storage):
        return 0, 2**storage.bit_width - 1
    return -(2 ** (storage.bit_width - 1)), 2 ** (storage.bit_width - 1) - 1


def raw_scalar(raw: Any, storage: pa.DataType) -> pa.Scalar:
    """A raw value as an Arrow scalar of a type without wrappers."""
    if pat.is_decimal(storage):
        return raw_decimal(raw, storage)
    if pat.is_boolean(storage):
        return pa.scalar(bool(raw))
    is_plain = storage in PLAIN and not (isinstance(raw, bytes) and is_text(storage))
    if is_plain:  # pa.scalar() imports pandas
        return array_of([raw], storage)[0]
    return pa.scalar(raw, storage)
