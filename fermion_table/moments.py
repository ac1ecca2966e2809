"""Times as callers give them: what is unambiguous, and nothing that has to be guessed."""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np

from fermion.errors import InvalidArgumentError

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

Moment = datetime | date | np.datetime64 | str
"""A time: a datetime (pandas' too), a date (its start), NumPy's or ISO text; UTC without a zone."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = np.dtype("datetime64[us]")


def now_ms() -> int:
    """Milliseconds since 1970 UTC by this machine's clock."""
    return time.time_ns() // 1_000_000


def time_text(milliseconds: int) -> str:
    """Milliseconds since 1970 UTC as people read them: ``2026-01-31 08:00:00``."""
    return str(np.datetime64(milliseconds, "ms").astype("datetime64[s]")).replace("T", " ")


def moment_of(moment: Any, name: str) -> datetime:
    """A time as a datetime with a zone.

    moment: As in `Moment`.
    name: Of the parameter, for the message.
    Raises TypeError: Anything else; a number could mean seconds, milliseconds or a snapshot.
    Raises InvalidArgumentError: Text that is no time, NaT, or a year that a datetime can't hold.
    """
    found = moment
    if isinstance(found, np.datetime64):
        found = found.astype(_MICROSECOND).item()  # an int where a datetime can't hold it
        if not isinstance(found, datetime):
            raise InvalidArgumentError(f"{name}={moment}: expected a time of the years 1 to 9999")
    elif isinstance(found, str):
        try:
            found = datetime.fromisoformat(found)
        except ValueError:
            raise InvalidArgumentError(
                f"{name}={moment!r}: expected ISO 8601, as in '2026-01-31T12:00:00'"
            ) from None
    elif isinstance(found, date) and not isinstance(found, datetime):
        found = datetime.combine(found, datetime.min.time())
    elif not isinstance(found, datetime):
        raise TypeError(
            f"{name}={moment!r}: expected a datetime, a date, a numpy.datetime64 or ISO 8601 text, "
            f"found {type(moment).__name__}"
        )
    _refuse_nat(found, name)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def milliseconds(moment: datetime) -> int:
    """A time with a zone in milliseconds since 1970 UTC, rounded down."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def limit_ms(older_than: Any, *, now_ms: int) -> int | None:
    """The time before which things are old, in milliseconds since 1970 UTC; None stays None.

    older_than: A datetime (UTC without a zone) or a timedelta, so long ago; or either as text:
        ``"7d"``.
    Raises TypeError: Anything else: a number could mean days, milliseconds or a time.
    Raises InvalidArgumentError: NaT, or text that is neither an age nor a time.
    """
    if older_than is None:
        return None
    if isinstance(older_than, str):
        older_than = age_or_time(older_than, "older_than")
    if not isinstance(older_than, (datetime, timedelta)):
        raise TypeError(
            f"older_than={older_than!r}: expected a datetime or a timedelta, such as "
            f"timedelta(days=7) or '7d', found {type(older_than).__name__}"
        )
    _refuse_nat(older_than, "older_than")
    if isinstance(older_than, timedelta):
        return now_ms - older_than // timedelta(milliseconds=1)
    return milliseconds(moment_of(older_than, "older_than"))


def age_or_time(text: str, name: str) -> timedelta | datetime:
    """An age such as ``7d``, ``12h`` or ``90s``, or an ISO time.

    Raises InvalidArgumentError: Neither, or more days than a timedelta holds.
    """
    age = _AGE.fullmatch(text.strip().lower())
    try:
        if age is not None:
            return timedelta(**{_UNITS[age[2]]: float(age[1])})
        return datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise InvalidArgumentError(
            f"{name}={text!r}: expected an age such as 7d or 12h, or a time such as 2026-01-31"
        ) from None


def age_of(age: Any, name: str) -> timedelta:
    """A timedelta, or one as text: ``"7d"``.

    Raises TypeError, InvalidArgumentError.
    """
    found = age_or_time(age, name) if isinstance(age, str) else age
    if isinstance(found, timedelta):
        return found
    if isinstance(age, str):
        raise InvalidArgumentError(f"{name}={age!r}: expected an age such as 30d")
    found_name = type(age).__name__
    raise TypeError(f"{name}: expected a timedelta, or text such as '30d', found {found_name}")


def _refuse_nat(value: Any, name: str) -> None:
    if value != value:  # pandas' NaT is a datetime, and not equal to itself
        raise InvalidArgumentError(f"{name}={value}: expected a time")
